"""Set up a chat on the command line: the agent, its conversation, and the hooks that show it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Annotated, Any, Final, Literal

from cyclopts import Parameter

from hookline import Agent, Conversation, ModelRequest, Store
from hookline.cli._commands.conversations import latest
from hookline.cli._options import Debug, Deps, Format
from hookline.cli._target import Located, store_at
from hookline.cli._terminal.clean_text import strict
from hookline.cli._terminal.hook_lines import HookRun
from hookline.cli._terminal.output import View
from hookline.cli._terminal.screen import Screen
from hookline.errors import UsageError
from hookline.hooks import RequestPrefix, watch_prefix
from hookline.mcp import connect, load
from hookline.models import resolve_model
from hookline.points import OnHook, PreRequest
from hookline.workspace import Mode, Rules, Workspace

OURS: Final = "hookline chat "  # the prefix of our own hooks, which are not shown
FIRST: Final = 1_000_000  # before every hook of the agent, which may still choose another model


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class ChatOptions:
    """The options of `hookline chat`."""

    message: Annotated[
        str | None,
        Parameter(
            alias="-m", allow_leading_hyphen=True, help="Send this message, print the answer, exit."
        ),
    ] = None
    model: Annotated[
        str | None,
        Parameter(help="The model; replaces the agent's model, and also works without an agent."),
    ] = None
    conversation: Annotated[
        str | None, Parameter(help="The id of the conversation to continue or start.")
    ] = None
    store: Annotated[
        str | None, Parameter(help="The store for conversations, such as sqlite:///chats.db.")
    ] = None
    mcp: Annotated[
        tuple[str, ...], Parameter(help="A file, such as mcp.json, with MCP servers for the agent.")
    ] = ()
    deps: Deps = None
    resume: Annotated[
        bool, Parameter(help="Continue the most recently changed conversation of the store.")
    ] = False
    hooks: Annotated[
        Literal["all", "decisions"] | None,
        Parameter(help="Show each hook as it fires; decisions: only hooks that decided something."),
    ] = None
    output: Annotated[Format, Parameter(help="json: every event of the chat on its own line.")] = (
        "text"
    )
    workspace: Annotated[
        str | None,
        Parameter(help="A folder for the agent to work in, with tools and a sandbox for commands."),
    ] = None
    mode: Annotated[
        Mode,
        Parameter(help="With --workspace: only read; ask before changes; or edit without asking."),
    ] = "ask"
    allow: Annotated[
        tuple[str, ...],
        Parameter(help="With --workspace: a rule for what may run, such as 'bash(npm test)'."),
    ] = ()
    no_sandbox: Annotated[
        bool, Parameter(help="With --workspace: run commands with all your rights, after asking.")
    ] = False
    debug: Debug = False


@dataclass(eq=False)
class Talk:
    """An agent and a conversation with it. `is_stored`: the conversation outlives this process."""

    agent: Agent[Any]
    conversation: Conversation
    is_stored: bool = field(kw_only=True)
    workspace: Workspace | None = None


@asynccontextmanager
async def open_talk(options: ChatOptions, located: Located | None) -> AsyncGenerator[Talk]:
    """Open the located agent with its model and conversation; closes everything that it opens."""
    if located is None:
        assert options.model is not None
        agent: Agent[Any] = Agent(resolve_model(options.model), name=options.model)
    else:
        agent = await located.agent()
        if options.model is not None:
            _use_model(agent, options.model)
    workspace: Workspace | None = None
    if options.workspace is not None:
        workspace = Workspace(
            options.workspace,
            mode=options.mode,
            rules=Rules(allow=options.allow),
            sandbox="none" if options.no_sandbox else "auto",
            unsafe=options.no_sandbox,
            at=None,  # its paths are those of this machine
        )
        await agent.use(workspace)
    servers = [server for path in options.mcp for server in load(path)]
    async with agent, connect(agent, *servers) if servers else nullcontext():
        opening = nullcontext(agent.store) if options.store is None else store_at(options.store)
        async with opening as store:
            talk = await _talk(agent, store, options)
            talk.workspace = workspace
            yield talk


async def _talk(agent: Agent[Any], store: Store | None, options: ChatOptions) -> Talk:
    if store is None:
        if options.conversation is not None or options.resume:
            option = "--resume" if options.resume else f"--conversation {options.conversation}"
            raise UsageError(
                f"{option} needs a store: add --store sqlite:///chats.db, or give the agent a store"
            )
        return Talk(agent, Conversation(), is_stored=False)
    if options.resume:
        if options.conversation is not None:
            raise UsageError("--resume chooses the conversation: leave --conversation out")
        last = await latest(store)
        if last is None:
            raise UsageError(
                "--resume: the store has no conversation; leave --resume out to start one"
            )
        return Talk(agent, await Conversation.open(store, last), is_stored=True)
    if options.conversation is None and options.store is None:
        return Talk(agent, Conversation(), is_stored=False)  # not stored: no option asks for it
    id = Conversation().id if options.conversation is None else options.conversation
    return Talk(agent, await Conversation.open(store, id), is_stored=True)


def _use_model(agent: Agent[Any], name: str) -> None:
    """Use this model instead of the agent's own."""
    model = resolve_model(name)

    def use_model(ctx: PreRequest) -> ModelRequest:
        return ctx.request.replace(model=model)

    agent.add_hook("preRequest", use_model, priority=FIRST, name=f"{OURS}--model")


def watch(agent: Agent[Any], view: View, *, decisions: bool = False) -> None:
    """Show each hook of the agent, and of its sub-agents, as it fires, and what of each request a
    prompt cache can reuse.

    `decisions`: only hooks that decided something, and requests whose prefix a hook has moved.
    """

    async def show(ctx: OnHook) -> None:
        silent = ctx.outcome == "ok" and ctx.passed is None
        if ctx.hook.startswith(OURS) or (decisions and silent):
            return
        for _ in range(2):  # let the reader catch up with earlier events
            await asyncio.sleep(0)
        chat_id = "" if ctx.run is None else ctx.run.chat_id
        view.hook(
            HookRun(
                chat_id=chat_id,
                point=ctx.point,
                hook=ctx.hook,
                outcome=ctx.outcome,
                seconds=ctx.duration,
            )
        )

    def show_prefix(figure: RequestPrefix) -> None:
        if figure.hook is not None or not decisions:
            view.prefix(figure)

    agent.add_hook("onHook", show, name=f"{OURS}--hooks", inherit=True)
    add: Any = agent.add_hook  # the points of ready-made hooks are not typed
    for hook in watch_prefix(show_prefix):
        add(
            hook.point,
            hook.fn,
            name=f"{OURS}--prefix",
            priority=hook.options.priority,
            on_error=hook.options.on_error,
            inherit=True,
        )


class Notes(logging.Handler):
    """Shows hookline's log as notes between lines, unless the agent's module configures logging."""

    def __init__(self, screen: Screen) -> None:
        super().__init__()
        self._screen = screen

    def emit(self, record: logging.LogRecord) -> None:
        if logging.getLogger().handlers:
            return
        for line in self.format(record).split("\n"):
            self._screen.say(strict(f"{record.name}: {line}"))


def log_to(screen: Screen, *, debug: bool) -> None:
    """Send hookline's log to the screen: warnings, or everything."""
    logger = logging.getLogger("hookline")
    logger.addHandler(Notes(screen))
    if debug:
        logger.setLevel(logging.DEBUG)
