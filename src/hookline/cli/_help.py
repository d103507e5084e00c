"""What `--help` says, for people who want to see how it is done: each command by examples."""

from __future__ import annotations

from typing import Final

ALL: Final = """Talk to agents, see their hooks, serve them.

Try it, with the variable `agent` of app.py in this folder:

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
  hookline chat app:agent --mcp mcp.json
  hookline chat app:agent --conversation ada --store sqlite:///chats.db
  hookline chat --model anthropic:claude-haiku-4-5
  hookline chat app:agent -m "What is new?" > answer.txt
  git diff | hookline chat app:reviewer
  hookline chat app:agent -m "Hi" --output json | jq .event

Ctrl-C stops an answer. At the prompt, Ctrl-D or Ctrl-C twice leaves, and a
line that ends with a backslash goes on in the next one. A tool call that
needs an approval is shown whole: y runs it, n refuses it, e edits its
arguments.

Exit status: 0 done, 1 the chat failed, 2 wrong usage, 3 an approval is
waited for and nobody is there to be asked, 130 interrupted.
"""

MODELS: Final = """List the providers that a model's name may begin with.

For example:

  hookline models
  hookline models --output json | jq -r '.[].prefix'

Each line has the prefix, the service, the format that it speaks, the package
to install, and the variable that holds its key; a mark says that it is set.
"""

HOOKS: Final = """List an agent's hooks by point, in the order in which they fire.

For example:

  hookline hooks app:agent
  hookline hooks app:agent --all
  hookline hooks app:agent --output json | jq -r '.[].hooks[].name'

Each line has the priority, the name, where the hook is written, who has
brought it (the agent, add_hook, a plugin, a file or an entry point), and its
rules: the tools it is for, what becomes of a throw where that does not end
the chat (on_error), its timeout.
"""

SERVE: Final = """Serve an agent with a chat page and the three protocols.

For example:

  hookline serve app:agent
  hookline serve app:agent --port 9000
  hookline serve app:agent --allow-origin https://www.example.com
  hookline serve app:agent --host 0.0.0.0 --allow-host chat.example.com

It prints an address with a token in it. Ctrl-C, or SIGTERM, lets answers end
within --drain seconds.
"""

MCP: Final = """Serve an agent as an MCP server on stdin and stdout.

For example, as the command of a server in a client's configuration:

  hookline mcp app:agent

It has one tool, chat. What the agent's module prints goes to stderr.
"""

MCP_LIST: Final = """List the tools of MCP servers, by the names that a model is given.

For example:

  hookline mcp list mcp.json
  hookline mcp list mcp.json github
  hookline mcp list https://example.com/mcp
  hookline mcp list npx -y @modelcontextprotocol/server-everything
  hookline mcp list mcp.json --output json | jq '.[].tools[].parameters'

Exit status: 0 all are listed, 1 a server cannot be connected.
"""
