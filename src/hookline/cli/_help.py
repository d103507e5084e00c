"""The texts of `--help`: each command with examples."""

from __future__ import annotations

from typing import Final

ALL: Final = """Talk to agents, list their hooks, and serve agents.

For example, with the variable `agent` of app.py in this folder:

  hookline init
  hookline chat app:agent
  hookline hooks app:agent
  hookline serve app:agent
  hookline mcp app:agent

Or without any code:

  hookline chat --model openai:gpt-5-mini
"""

CHAT: Final = """Talk to an agent in this terminal.

For example:

  hookline chat app:agent
  hookline chat app:agent --hooks
  hookline chat app:agent --hooks decisions
  hookline chat app:agent --store sqlite:///chats.db --resume
  hookline chat app:agent --mcp mcp.json
  hookline chat --model openai:gpt-5-mini --workspace . --allow "bash(npm test)"
  hookline chat app:agent --deps app:shop
  hookline chat app:agent --conversation ada --store sqlite:///chats.db
  hookline chat --model anthropic:claude-haiku-4-5
  hookline chat app:agent -m "What is new?" > answer.txt
  git diff | hookline chat app:reviewer
  hookline chat app:agent -m "Hi" --output json | jq .event

Ctrl-C stops an answer. At the prompt, press Ctrl-D once or Ctrl-C twice to
leave. End a line with a backslash to continue on the next line. A tool call
that needs an approval is shown in full: y runs it, n refuses it, e edits its
arguments; a also runs a command of a workspace again in this conversation.
In a workspace, /diff shows what has changed, and /undo undoes the last change.

Exit status: 0 done, 1 the chat failed, 2 wrong usage, 3 an approval is
needed and there is nobody to ask, 130 interrupted.
"""

WORKSPACE: Final = """Say what the tools of a workspace can do on this machine.

For example:

  hookline workspace check
  hookline workspace check ../project

If commands cannot run, the line says why, and what to change. Exit status:
0 everything works, 1 something does not.
"""

MODELS: Final = """List the providers that a model's name may begin with.

For example:

  hookline models
  hookline models --output json | jq -r '.[].prefix'

Each line has the prefix, the service, its API format, the package to install,
and the environment variable of the key. A mark shows that the variable is set.
"""

INIT: Final = """Write an agent with a tool, a hook and a test.

For example:

  hookline init
  hookline init myagent

The command writes app.py and test_app.py. Existing files are not changed.
"""

APPROVALS: Final = """List the remembered approvals of a store, or revoke one.

For example:

  hookline approvals sqlite:///chats.db
  hookline approvals sqlite:///chats.db --revoke 5f0c2a9e1b7d4c3f8a61
"""
REVIEW: Final = """Compare the decisions of a reviewer with the answers of people.

For example:

  hookline review report reviews.jsonl
"""
CONVERSATIONS: Final = """List the conversations of a store, the most recently changed first.

For example:

  hookline conversations sqlite:///chats.db
  hookline conversations sqlite:///chats.db --output json | jq -r '.[].id'

To continue a conversation, run hookline chat app:agent
--store sqlite:///chats.db --conversation ID. With --resume instead of
--conversation ID, the most recently changed conversation continues.
"""

HOOKS: Final = """List an agent's hooks by point, in the order in which they fire.

For example:

  hookline hooks app:agent
  hookline hooks app:agent --all
  hookline hooks app:agent --output json | jq -r '.[].hooks[].name'

Each line has the hook's priority, its name, the place of its definition, its
origin and its options. The origin is the agent, add_hook, a plugin, a file or
an entry point. The options are tools=, timeout= and on_error=, if they are set.
"""

CHECK: Final = """Prove an agent's guards with the calls in a file.

For example:

  hookline check app:agent --probe calls.jsonl

Each line of the file is a call, as JSON:

  {"name": "bash", "arguments": {"command": "rm -rf /"}, "expect": "denied"}

`expect` is denied, the default, or asked, or redacted with a "secret", the text
that the tool must not get. Each call is sent over the paths to its tool: a
chat, a stream, sub-agents, handoffs, resumed chats, durable chats, the web
protocols, an MCP server, a second process, and calls that a hook, a wrapper or
an approver has changed, or that run after access was withdrawn. "changed" says
that the tool ran with other arguments, and "not run" that it did not run, but
that no guard refused the call, for example because a hook has answered it. A
path that does not exist for the agent, or whose extra is not installed, is
listed as left out, with the reason. The agent's hooks run; none of its tools,
models or stores is called. The second process imports the agent anew. The exit
status is 1 if a call passes on a path, or if a guard was never asked.
"""

REPLAY: Final = """Show what other hooks would have done to recorded chats.

For example:

  hookline replay chats.db app:agent --hook policies:refund_limit --since 7d
  hookline replay audit.jsonl app:agent --without approve --fail-on allowed
  hookline replay sqlite:///jobs.db app:agent --durable --hook policies:refund_limit

The records are a store, a cassette, a file of audit(content=True), or with
--durable the logs of an engine: a SQLite file, or postgresql://…. Each chat is
played twice: with the agent's hooks as they are, and with the change. The
differences are listed. The model writes what it wrote, and tools return what
they returned: no model, tool, observer or telemetry is called.
"""

SERVE: Final = """Serve an agent over HTTP, with a chat page and three protocols.

For example:

  hookline serve app:agent
  hookline serve app:agent --port 9000
  hookline serve app:agent --store sqlite:///chats.db --reload
  hookline serve app:agent --deps app:shop
  hookline serve app:agent --allow-origin https://www.example.com
  hookline serve app:agent --host 0.0.0.0 --allow-host chat.example.com
  hookline serve app:agent --relay redis://localhost --workers 4

The command prints an address that contains the token. After Ctrl-C or
SIGTERM, answers may still run for --drain seconds.
"""

MCP: Final = """Serve an agent as an MCP server on stdin and stdout.

In the configuration of an MCP client, use this command for the server:

  hookline mcp app:agent

The server has one tool, chat. The output of the agent's module goes to stderr.
"""

MCP_LIST: Final = """List the tools of MCP servers under the names that a model sees.

For example:

  hookline mcp list mcp.json
  hookline mcp list mcp.json github
  hookline mcp list https://example.com/mcp
  hookline mcp list npx -y @modelcontextprotocol/server-everything
  hookline mcp list mcp.json --output json | jq '.[].tools[].parameters'

Exit status: 0 all servers are listed, 1 the connection to a server failed.
"""

DURABLE: Final = """Look after the durable chats of an engine.

For example:

  hookline durable ls sqlite:///jobs.db --state quarantined
  hookline durable counts sqlite:///jobs.db
  hookline durable show sqlite:///jobs.db booking-7
  hookline durable pending sqlite:///jobs.db booking-7
  hookline durable answer sqlite:///jobs.db booking-7 booking-7.call_1 --approve
  hookline durable retry sqlite:///jobs.db booking-7
  hookline durable send sqlite:///jobs.db booking-7 "Two seats, please."
  hookline durable abort sqlite:///jobs.db booking-7 --force
  hookline durable drain sqlite:///jobs.db --timeout 60s
  hookline durable resume sqlite:///jobs.db
  hookline durable cleanup sqlite:///jobs.db --older-than 30d
  hookline durable check sqlite:///jobs.db app:agent
"""
