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
from hookline.cli._target import settled
from hookline.cli._terminal.clean_text import strict
from hookline.cli._terminal.output import View
from hookline.cli._terminal.screen import Screen
from hookline.cli._terminal.styled_lines import Fired
from hookline.errors import UsageError
from hookline.mcp import connect, load
from hookline.models import resolve_model
from hookline.points import OnHook, PreRequest
from hookline.storage import resolve_store

OURS: Final = "hookline chat "  # the prefix of our own hooks, which are not shown
FIRST: Final = 1_000_000  # before every hook of the agent, which may still choose another model

Output = Literal["text", "json"]


class Asked(msgspec.Struct, frozen=True, kw_only=True):
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

    @property
    def target(self) -> str:
        """The agent or model, as named on the command line."""
        return self.agent or self.model or ""


class Talk:
    """An agent and a conversation with it. `kept`: the conversation outlives this process."""

    def __init__(self, agent: Agent[Any], conversation: Conversation, *, kept: bool) -> None:
        self.agent = agent
        self.conversation = conversation
        self.kept = kept


@asynccontextmanager
async def opened(asked: Asked, found: Any) -> AsyncGenerator[Talk]:
    """Open the located agent with its model and conversation; closes everything that it opens."""
    if found is None:
        assert asked.model is not None
        agent: Agent[Any] = Agent(resolve_model(asked.model), name=asked.model)
    else:
        agent = await settled(found, asked.target)
        if asked.model is not None:
            _use_model(agent, asked.model)
    servers = [server for path in asked.mcp for server in load(path)]
    async with agent, connect(agent, *servers) if servers else nullcontext():
        store = agent.store if asked.store is None else resolve_store(asked.store)
        try:
            yield await _talk(agent, store, asked)
        finally:
            closing: Any = getattr(store, "aclose", None)
            if asked.store is not None and closing is not None:
                await closing()


async def _talk(agent: Agent[Any], store: Store | None, asked: Asked) -> Talk:
    if store is None:
        if asked.conversation is not None or asked.resume:
            option = "--resume" if asked.resume else f"--conversation {asked.conversation}"
            raise UsageError(
                f"{option} needs a store: add --store sqlite:///chats.db, or give the agent a store"
            )
        return Talk(agent, Conversation(), kept=False)
    if asked.resume:
        if asked.conversation is not None:
            raise UsageError("--resume chooses the conversation: leave --conversation out")
        last = await latest(store)
        if last is None:
            raise UsageError(
                "--resume: the store has no conversation; leave --resume out to start one"
            )
        return Talk(agent, await Conversation.open(store, last), kept=True)
    if asked.conversation is None and asked.store is None:
        return Talk(agent, Conversation(), kept=False)  # not stored: no option asks for it
    id = Conversation().id if asked.conversation is None else asked.conversation
    return Talk(agent, await Conversation.open(store, id), kept=True)


def _use_model(agent: Agent[Any], name: str) -> None:
    """Use this model instead of the agent's own."""
    model = resolve_model(name)

    def chosen(ctx: PreRequest) -> ModelRequest:
        return ctx.request.replace(model=model)

    agent.add_hook("preRequest", chosen, priority=FIRST, name=f"{OURS}--model")


def watch(agent: Agent[Any], view: View, *, decisions: bool = False) -> None:
    """Show each hook of the agent, and of its sub-agents, as it fires.

    `decisions`: only hooks that decided something.
    """

    async def show(ctx: OnHook) -> None:
        silent = ctx.outcome == "ok" and ctx.passed is None
        if ctx.hook.startswith(OURS) or (decisions and silent):
            return
        for _ in range(2):  # let the reader catch up with earlier events
            await asyncio.sleep(0)
        chat_id = "" if ctx.run is None else ctx.run.chat_id
        view.hook(
            Fired(
                chat_id=chat_id,
                point=ctx.point,
                hook=ctx.hook,
                outcome=ctx.outcome,
                seconds=ctx.duration,
            )
        )

    agent.add_hook("onHook", show, name=f"{OURS}--hooks", inherit=True)


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
