"""The world in which a scene is played: the model, people, faults, and tools that note their calls.

The agent is a copy (`Agent.twin`), with observers, because a policy may keep its books there. Each
approval allows one run of exactly the call that was approved.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, Final, TypeAlias

from hookline import (
    Agent,
    ApprovalRequest,
    Approve,
    Conversation,
    Deny,
    MemoryStore,
    ModelRequest,
    Response,
    Tool,
    ToolResult,
    define_hook,
)
from hookline.models import Chunk, Finish, TextChunk, ToolCallChunk
from hookline.points import OnHook, PreRequest, PreToolCall
from hookline.runtimes import Durable, Halted, Journal
from hookline.testing._memory_log import MemoryLog
from hookline.testing.explore._arguments import Arguments, Guarded, needs_approval
from hookline.testing.explore._scene import Call, Scene

AnyTool: TypeAlias = Tool[..., Any]
Decision: TypeAlias = Approve | Deny
Make: TypeAlias = Callable[[], Agent[Any]]
"""Makes the agent anew, as a new process would."""
NAME: Final = "explore"
ABOVE: Final[Any] = {"name": NAME, "priority": 1_000_000_000, "inherit": True}
LIVES: Final = 4
ROUNDS: Final = 6  # how often a chat that waits is resumed


class ExploredModel:
    """A model that writes the calls of a scene."""

    name = NAME
    provider = NAME

    def __init__(self, answers: list[list[Call]]) -> None:
        self._answers = list(answers)

    async def stream(self, request: ModelRequest, /) -> AsyncIterator[Chunk]:
        """Write the calls of the next answer; a text once there are none."""
        if not self._answers:
            yield TextChunk("end")
            yield Finish()
            return
        for index, call in enumerate(self._answers.pop(0)):
            text = json.dumps(call.arguments)
            yield ToolCallChunk(index=index, id=call.id or None, name=call.tool, arguments=text)
        yield Finish(finish_reason="tool_calls")


class World:
    """One scene as it is played, and what has happened so far."""

    def __init__(self, make: Make, guarded: Mapping[str, Guarded], scene: Scene) -> None:
        self.make = make
        """Makes the agent anew."""
        self.guarded = guarded
        """The tools that need an approval, and for which arguments."""
        self.scene = scene
        """The scene that is played."""
        self.trace: list[str] = []
        """What has happened, in order."""
        self.unapproved: str | None = None
        """The first run without an approval."""
        self.reached: Counter[tuple[str, str]] = Counter()
        """How often a guarded tool was "called", "asked" about, "approved", and "ran"."""
        self.store = MemoryStore()
        """The store of the conversations."""
        self._approved: Counter[str] = Counter()
        self._people = list(scene.people)
        self._delays = list(scene.delays)
        self._below: dict[str, ExploredModel] = {}
        self._hooks = 0

    # ── what the scene brings to the agent ──────────────────────────────────────────────────

    def agent(self) -> Agent[Any]:
        """The agent of a new process, whose tools only note their calls."""
        return self.make().twin(
            model=ExploredModel([]),
            tools=self._stand_in,
            hooks=[
                define_hook("preRequest", self._give_model, **ABOVE),
                define_hook("preToolCall", self._count_call, **ABOVE),
                define_hook("onHook", self._count_hook, name=NAME),
            ],
            observers=True,
        )

    def _stand_in(self, tool: AnyTool) -> AnyTool:
        if tool.leads is not None or tool.client:
            return tool

        async def note(arguments: Arguments, run: Any) -> str:
            for _ in range(self._delays.pop(0) if self._delays else 0):
                await asyncio.sleep(0)
            self._note_run(tool.name, arguments)
            return "done"

        return tool.with_handler(note)

    def _give_model(self, ctx: PreRequest[Any]) -> ModelRequest | None:
        if ctx.run.parent_chat_id is None:
            return None
        answers = self.scene.answers_below
        model = self._below.setdefault(ctx.run.chat_id, ExploredModel(answers))
        return ctx.request.replace(model=model)

    def _count_call(self, ctx: PreToolCall[Any]) -> None:
        tool, arguments = ctx.call.name, dict(ctx.call.arguments)
        with suppress(LookupError, TypeError):  # arguments that the tool does not accept
            if needs_approval(tool, self.guarded.get(tool), arguments):
                self.reached[tool, "called"] += 1

    def _count_hook(self, ctx: OnHook[Any]) -> None:
        if ctx.hook == NAME or ctx.run is None:
            return
        self._hooks += 1
        if self._hooks == self.scene.abort:
            self.trace.append("the chat is aborted")
            ctx.run.abort("explored")

    def _note_run(self, tool: str, arguments: Arguments) -> None:
        call = _text(tool, arguments)
        self.trace.append(f"RUN {call}")
        if not needs_approval(tool, self.guarded.get(tool), arguments):
            return
        self.reached[tool, "ran"] += 1
        if self._approved[call]:
            self._approved[call] -= 1
        elif self.unapproved is None:
            self.unapproved = call

    # ── people ──────────────────────────────────────────────────────────────────────────────

    async def _approver(self, request: ApprovalRequest, run: Any) -> Decision:
        if self._people[:1] == ["late"]:
            for _ in range(5):
                await asyncio.sleep(0)
        return self._decide(request)

    async def answer(self, request: ApprovalRequest) -> Decision:
        """The answer to a question of a chat that waits."""
        try:
            return self._decide(request)
        except RuntimeError:
            return Deny("nobody could be asked")

    def _decide(self, request: ApprovalRequest) -> Decision:
        person = self._people.pop(0) if self._people else "approve"
        tool, arguments = request.call.name, dict(request.call.arguments)
        self.reached[tool, "asked"] += 1
        self.trace.append(f"asked about {_text(tool, arguments)}: {person}")
        if person == "raise":
            raise RuntimeError(f"nobody answers {request.call.name!r} here; try another person")
        if person == "deny":
            return Deny("no")
        self.reached[tool, "approved"] += 1
        edits = None
        if person == "edit":
            edits = arguments = {name: _edited(value) for name, value in arguments.items()}
        self._approved[_text(tool, arguments)] += 1
        return Approve(arguments=edits)

    # ── playing ─────────────────────────────────────────────────────────────────────────────

    async def play(self) -> None:
        """Play the scene to its end."""
        agent = self.agent()
        if isinstance(agent.runtime, Durable):
            await self._lives(agent)
            return
        for number, answers in enumerate(self.scene.chats):
            self.trace.append(f"chat {number + 1}")
            key = "talk" if self.scene.same else f"talk {number + 1}"
            conversation = Conversation.at(self.store, key)
            await self._until_end(self._chat(agent, conversation, ExploredModel(answers)))

    async def _until_end(self, chat: Any) -> None:
        """Await a chat. It may fail, but nothing may run unapproved on the way."""
        try:
            await chat
        except (Exception, asyncio.CancelledError) as exc:
            self.trace.append(f"the chat fails: {type(exc).__name__}")

    async def _chat(self, agent: Agent[Any], conversation: Conversation, model: Any) -> None:
        approver = None if self.scene.waits else self._approver
        options: dict[str, Any] = {"conversation": conversation, "model": model}
        response = await agent.chat("go", approver=approver, **options)
        for _ in range(ROUNDS):
            if not response.pending and not response.client_calls:
                return
            agent, response = await self._resume(agent, response, options)

    async def _resume(
        self, agent: Agent[Any], response: Response[Any], options: dict[str, Any]
    ) -> tuple[Agent[Any], Response[Any]]:
        way = self.scene.resume
        self.trace.append(f"resumed: {way}")
        answers: dict[str, Any] = {}
        for request in response.pending:
            answers[request.id] = await self.answer(request)
        for call in response.client_calls:
            answers[call.id] = ToolResult("done")
        if way == "elsewhere":
            agent = self.agent()
        elif way == "after a chat":
            chat = agent.chat("more", approver=self._approver, **options)
            await self._until_end(chat)
        elif way == "wrong id":
            answers = {f"{id[:-1]}x": answer for id, answer in answers.items()}
        elif way == "twice":
            await agent.resume(options["conversation"], answers, model=options["model"])
        response = await agent.resume(options["conversation"], answers, model=options["model"])
        return agent, response

    # ── durable chats ───────────────────────────────────────────────────────────────────────

    async def _lives(self, agent: Agent[Any]) -> None:
        """Play the first chat as a durable one: after a crash, a new process goes on."""
        log = MemoryLog(lambda request, run: self.answer(request), self.scene.crash)
        answers = [answer for chat in self.scene.chats for answer in chat]
        for _ in range(LIVES):
            journal = await Journal.open("explored", log)
            recorded = sum(batch.count(b'/model","value"') for batch in log.batches)
            model = ExploredModel(answers[recorded:])
            begin = partial(agent.chat, "go", chat_id="explored", model=model)
            try:
                await self._until_end(journal.carry(begin))
                return
            except Halted:
                self.trace.append("the worker crashes")
                agent = self.agent()


def _text(tool: str, arguments: Arguments) -> str:
    parts = (f"{n}={json.dumps(v, sort_keys=True)}" for n, v in sorted(arguments.items()))
    return f"{tool}({', '.join(parts)})"


def _edited(value: Any) -> Any:
    """Another value of the same type."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, (int, float)):
        return value + 1
    return f"{value}!" if isinstance(value, str) else value
