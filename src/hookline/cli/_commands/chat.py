"""`hookline chat`: its options."""

from __future__ import annotations

from typing import Annotated, Literal

from cyclopts import Parameter

from hookline.cli._commands.chat_session import run
from hookline.cli._commands.chat_setup import ChatOptions
from hookline.cli._commands.workspace import WorkspaceOptions
from hookline.cli._options import Debug, Deps, Target


def chat(
    agent: Target | None = None,
    /,
    *,
    message: Annotated[
        str | None,
        Parameter(
            alias="-m", allow_leading_hyphen=True, help="Send this message, print the answer, exit."
        ),
    ] = None,
    model: Annotated[
        str | None,
        Parameter(help="The model; replaces the agent's model, and also works without an agent."),
    ] = None,
    conversation: Annotated[
        str | None, Parameter(help="The id of the conversation to continue or start.")
    ] = None,
    store: Annotated[
        str | None, Parameter(help="The store for conversations, such as sqlite:///chats.db.")
    ] = None,
    mcp: Annotated[
        list[str] | None,
        Parameter(help="A file, such as mcp.json, with MCP servers for the agent."),
    ] = None,
    deps: Deps = None,
    resume: Annotated[
        bool, Parameter(help="Continue the most recently changed conversation of the store.")
    ] = False,
    hooks: Annotated[
        Literal["all", "decisions"] | None,
        Parameter(help="Show each hook as it fires; decisions: only hooks that decided something."),
    ] = None,
    output: Annotated[
        Literal["text", "json"],
        Parameter(help="json: every event of the chat on its own line."),
    ] = "text",
    workspace: Annotated[
        str | None,
        Parameter(help="A folder for the agent to work in, with tools and a sandbox for commands."),
    ] = None,
    mode: Annotated[
        Literal["read", "ask", "edits"],
        Parameter(help="With --workspace: only read; ask before changes; or edit without asking."),
    ] = "ask",
    allow: Annotated[
        list[str] | None,
        Parameter(help="With --workspace: a rule for what may run, such as 'bash(npm test)'."),
    ] = None,
    no_sandbox: Annotated[
        bool, Parameter(help="With --workspace: run commands with all your rights, after asking.")
    ] = False,
    debug: Debug = False,
) -> int:
    """Talk to an agent in this terminal."""
    place = None
    if workspace is not None:
        place = WorkspaceOptions(
            path=workspace, mode=mode, allow=tuple(allow or ()), sandbox=not no_sandbox
        )
    return run(
        ChatOptions(
            agent=agent,
            message=message,
            model=model,
            conversation=conversation,
            resume=resume,
            store=store,
            mcp=tuple(mcp or ()),
            deps=deps,
            hooks=hooks,
            output=output,
            debug=debug,
            workspace=place,
        )
    )
