"""Set up a chat on the command line: the agent, its conversation, and the hooks that show it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, nullcontext
from typing import Any, Final, Literal

import msgspec

from hookline import Agent, Conversation, ModelRequest, Store
from hookline.cli._commands.conversations import latest
from hookline.cli._commands.workspace import WorkspaceOptions, open_workspace
from hookline.cli._target import as_agent
from hookline.cli._terminal.clean_text import strict
from hookline.cli._terminal.hook_lines import HookRun
from hookline.cli._terminal.output import View
from hookline.cli._terminal.screen import Screen
from hookline.errors import UsageError
from hookline.hooks import RequestPrefix, watch_prefix
from hookline.mcp import connect, load
from hookline.models import resolve_model
from hookline.points import OnHook, PreRequest
from hookline.storage import resolve_store
from hookline.workspace import Workspace

OURS: Final = "hookline chat "  # the prefix of our own hooks, which are not shown
FIRST: Final = 1_000_000  # before every hook of the agent, which may still choose another model

Output = Literal["text", "json"]


class ChatOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of `hookline chat`."""

    agent: str | None = None
    message: str | None = None
    model: str | None = None
    conversation: str | None = None
    store: str | None = None
    mcp: tuple[str, ...] = ()
    deps: str | None = None
    resume: bool = False
    hooks: Literal["all", "decisions"] | None = None
    output: Output = "text"
    debug: bool = False
    workspace: WorkspaceOptions | None = None

    @property
    def target(self) -> str:
        """The agent or model, as named on the command line."""
        return self.agent or self.model or ""


class Talk:
    """An agent and a conversation with it. `is_stored`: the conversation outlives this process."""

    workspace: Workspace | None = None

    def __init__(self, agent: Agent[Any], conversation: Conversation, *, is_stored: bool) -> None:
        self.agent = agent
        self.conversation = conversation
        self.is_stored = is_stored


@asynccontextmanager
async def open_talk(options: ChatOptions, target: Any) -> AsyncGenerator[Talk]:
    """Open the located agent with its model and conversation; closes everything that it opens."""
    if target is None:
        assert options.model is not None
        agent: Agent[Any] = Agent(resolve_model(options.model), name=options.model)
    else:
        agent = await as_agent(target, options.target)
        if options.model is not None:
            _use_model(agent, options.model)
    workspace = None if options.workspace is None else open_workspace(options.workspace)
    if workspace is not None:
        await agent.use(workspace)
    servers = [server for path in options.mcp for server in load(path)]
    async with agent, connect(agent, *servers) if servers else nullcontext():
        store = agent.store if options.store is None else resolve_store(options.store)
        try:
            talk = await _talk(agent, store, options)
            talk.workspace = workspace
            yield talk
        finally:
            closing: Any = getattr(store, "aclose", None)
            if options.store is not None and closing is not None:
                await closing()


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
        text = self.format(record)
        for line in text.split("\n"):
            self._screen.say(strict(f"{record.name}: {line}"))


def log_to(screen: Screen, *, debug: bool) -> None:
    """Send hookline's log to the screen: warnings, or everything."""
    logger = logging.getLogger("hookline")
    logger.addHandler(Notes(screen))
    if debug:
        logger.setLevel(logging.DEBUG)
