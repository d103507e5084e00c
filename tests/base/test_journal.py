"""The record of a durable chat: wherever a life ends, the next ones bring the chat to its end.

A log in memory is cut after each of its lines, its chat is aborted at each of them, and it is
damaged. `Died` counts what runs after the end of a life: nothing may.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from tests._recording import Model

from hookline import (
    Agent,
    Approve,
    Ask,
    ChatStream,
    Conversation,
    Deny,
    MemoryStore,
    Run,
    check_history,
    tool,
)
from hookline.errors import JournalError, UsageError
from hookline.runtimes import Batch, Durable, Halted, Journal, Line

TURNS = [
    ["Let me see, ", "now. ", ("a", "lookup", {"q": "a"}), ("b", "charge", {"q": "b"}),
     ("c", "refund", {"q": "c"})],
    ["One more. ", ("d", "lookup", {"q": "d"})],
    ["Done: ", "end."],
]  # fmt: skip
MAY_RUN_AGAIN = {"lookup a", "lookup d"}


class MemoryLog:
    """A log that takes so many lines, after which its life is over."""

    def __init__(self, lines: list[Line], limit: int | None = None) -> None:
        self.lines = lines
        self.limit = limit
        self.ended = False
        self.decision: Approve | Deny = Approve()
        self.before: Callable[[Line], None] = lambda line: None

    async def read(self) -> list[bytes]:
        return [msgspec.json.encode(Batch(1, [line])) for line in self.lines]

    async def append(self, data: bytes) -> None:
        await asyncio.sleep(0)
        for line in msgspec.json.decode(data, type=Batch).lines:
            if self.limit is not None and len(self.lines) >= self.limit:
                self.ended = True
                raise Halted
            self.before(line)
            self.lines.append(line)
        await asyncio.sleep(0)

    async def answer(self, request: Any) -> Approve | Deny:
        await asyncio.sleep(0)
        return self.decision

    def poke(self) -> None:
        """Nobody waits for it."""


class Watched(MemoryStore):
    """A store that says when it is asked for something."""

    def __init__(self, asked: Callable[[str], None]) -> None:
        super().__init__()
        self.asked = asked

    def __getattribute__(self, name: str) -> Any:
        if name in ("acquire", "renew", "release", "append", "load"):
            object.__getattribute__(self, "asked")(f"store {name}")
        return object.__getattribute__(self, name)


class World:
    """What outlives the lives: the log, the store, and what has happened."""

    points: tuple[Any, ...] = ("onChatStart", "onMessage", "onStep", "onChatDone", "onChatAbort")

    def __init__(self, *, stored: bool) -> None:
        self.lines: list[Line] = []
        self.ran: list[str] = []
        self.recorded: list[str] = []
        self.late: list[str] = []
        self.log = MemoryLog(self.lines)
        self.store = Watched(self.note) if stored else None

    def note(self, what: str) -> None:
        """Something happened: in a life that is over, it is too late."""
        self.ran.append(what)
        if self.log.ended:
            self.late.append(what)

    def agent(self, **more: Any) -> Agent[Any]:
        def work(name: str, idempotent: bool) -> Any:
            async def fn(q: str, run: Run[Any]) -> str:
                self.note(f"{name} {q}")
                await run.status("working", q)
                await asyncio.sleep(0)
                return f"{name} {q} done"

            fn.__name__ = name
            return tool(idempotent=idempotent, description=name)(fn)

        made: Agent[Any] = Agent(
            Model(lambda what: self.note(what), *TURNS),
            tools=[work("lookup", True), work("charge", False), work("refund", False)],
            runtime=Durable(),
            store=self.store,
            **more,
        )

        @made.hook("preToolCall")
        async def asks(ctx: Any) -> Any:
            self.note(f"asks {ctx.call.id}")
            return Ask("Refund?") if ctx.call.name == "refund" else None

        made.add_hook("onStatus", lambda ctx: self.note("status"))
        for point in self.points:
            made.add_hook(point, lambda ctx, point=point: self.note(point))  # type: ignore[call-overload]
        made.add_hook("onChatError", lambda ctx: self.note("onChatError"))
        made.add_hook("onChatEnd", lambda ctx: self.note("onChatEnd"))
        return made


class Life:
    """What one life came to."""

    events: list[Any]
    conversation: Conversation
    error: BaseException | None = None
    response: Any = None


async def live(world: World, limit: int | None = None, *, abort_at: int | None = None) -> Life:
    """Live once, and no further than to this line."""
    world.log = log = MemoryLog(world.lines, limit)
    journal = await Journal.open("chat", log)
    life = Life()
    life.events = []
    life.conversation = Conversation(id="talk")
    if world.store is not None:
        life.conversation = Conversation.at(world.store, "talk")
    aborts: list[asyncio.Task[None]] = []
    if abort_at is not None:

        def look(line: Line) -> None:
            if len(log.lines) == abort_at and not aborts:
                aborts.append(asyncio.create_task(journal.abort("enough")))

        log.before = look

    async def chat() -> Any:
        stream: ChatStream = world.agent().chat_stream(
            "Go.", conversation=life.conversation, chat_id="chat"
        )
        async with stream:
            async for event in stream:
                life.events.append(event)
        return stream.response

    try:
        life.response = await journal.carry(chat)
    except (Exception, Halted) as exc:
        life.error = exc
    await asyncio.gather(*aborts, return_exceptions=True)
    for _ in range(50):
        await asyncio.sleep(0)  # whatever is left would run now
    return life


async def whole(*, stored: bool) -> tuple[World, Life]:
    world = World(stored=stored)
    return world, await live(world)


def results(life: Life) -> dict[str, str]:
    return {m.call_id: m.text for m in life.conversation.messages if m.role == "tool"}


def same(life: Life, reference: Life) -> None:
    """The same chat, but that a call that may have run twice says so."""
    assert life.error is None
    assert life.response.text == reference.response.text == "Done: end."
    check_history(life.conversation.messages)
    roles = [(m.role, m.id) for m in life.conversation.messages]
    assert roles == [(m.role, m.id) for m in reference.conversation.messages]
    for id, text in results(life).items():
        assert text == results(reference)[id] or "may have run" in text


def once(world: World) -> None:
    """No tool that is not idempotent has begun twice; no hook of a recorded step ran twice."""
    for what in ("charge b", "refund c"):
        assert world.ran.count(what) <= 1, what


@pytest.mark.parametrize("stored", [False, True], ids=["memory", "store"])
async def test_cut_after_each_line_the_next_life_brings_the_same_chat_to_its_end(
    stored: bool,
) -> None:
    first, reference = await whole(stored=stored)
    for limit in range(len(first.lines)):
        world = World(stored=stored)
        died = await live(world, limit)
        assert isinstance(died.error, Halted), limit
        assert not world.late, limit
        ends = [line.key for line in world.lines if line.kind == "end"]
        before = list(world.ran)
        life = await live(world)
        same(life, reference)
        once(world)
        again = world.ran[len(before) :]
        for turn in range(3):  # a model whose answer is recorded is not asked again
            assert f"step/{turn}/model" not in ends or f"model {turn}" not in again, limit
        if stored:
            found = await MemoryStore.load(world.store, "talk")  # type: ignore[arg-type]
            assert found is not None
            assert found.messages == life.conversation.messages
            assert found.owner is None


@pytest.mark.parametrize("stored", [False, True], ids=["memory", "store"])
async def test_a_life_that_is_halted_at_any_line_runs_and_shows_nothing_more(stored: bool) -> None:
    """No hook, no event, no call of the store, and its lease stays its own."""
    first, _ = await whole(stored=stored)
    for limit in range(len(first.lines)):
        world = World(stored=stored)
        died = await live(world, limit)
        assert isinstance(died.error, Halted), limit
        assert world.late == [], limit
        assert not {"onChatDone", "onChatAbort", "onChatError", "onChatEnd"} & set(
            world.ran[:-4] if limit > len(first.lines) - 8 else world.ran
        ), limit


async def test_cut_again_and_again_each_life_goes_a_little_further() -> None:
    first, reference = await whole(stored=True)
    world = World(stored=True)
    for _ in range(len(first.lines)):
        life = await live(world, len(world.lines) + 8)
        if life.error is None:
            break
        assert isinstance(life.error, Halted)
    same(life, reference)
    once(world)
    assert sum(line.kind == "life" for line in world.lines) > 5


@pytest.mark.parametrize("stored", [False, True], ids=["memory", "store"])
async def test_aborted_at_each_line_and_cut_at_each_after_it_the_chat_is_aborted(
    stored: bool,
) -> None:
    first, _ = await whole(stored=stored)
    for place in range(1, len(first.lines) - 8, 3):
        world = World(stored=stored)
        reference = await live(world, abort_at=place)
        assert type(reference.events[-1]).__name__ == "ChatAborted", place
        check_history(reference.conversation.messages)
        lines = list(world.lines)
        abort = next(n for n, line in enumerate(lines) if line.kind == "abort")
        for limit in range(abort + 1, len(lines)):
            world = World(stored=False)
            world.lines[:] = lines[:limit]
            life = await live(world)
            where = (place, limit)
            assert type(life.events[-1]).__name__ == "ChatAborted", where
            check_history(life.conversation.messages)
            assert life.events[-1].reason == "enough", where


async def test_an_abort_that_comes_too_late_is_recorded_as_that() -> None:
    first, _ = await whole(stored=False)
    for place in range(len(first.lines) - 6, len(first.lines)):
        world = World(stored=False)
        live_ = await live(world, abort_at=place)
        kinds = [type(event).__name__ for event in live_.events[-1:]]
        again = World(stored=False)
        again.lines[:] = world.lines
        replayed = await live(again)
        assert [type(event).__name__ for event in replayed.events[-1:]] == kinds, place


async def test_an_abort_that_is_recorded_twice_counts_once() -> None:
    """As when a worker dies between the record and the note that it was carried out."""
    world = World(stored=False)
    first = await live(world, abort_at=20)
    assert type(first.events[-1]).__name__ == "ChatAborted"
    world.lines += [Line("abort", reason="again"), Line("late")]
    again = await live(world)
    assert type(again.events[-1]).__name__ == "ChatAborted"
    assert again.events[-1].reason == "enough"


async def test_a_replay_runs_nothing_that_is_recorded() -> None:
    world, reference = await whole(stored=False)
    world.ran.clear()
    same(await live(world), reference)
    assert world.ran == []


async def test_a_new_hook_runs_in_the_life_that_has_it() -> None:
    first, _ = await whole(stored=False)
    place = next(n for n, line in enumerate(first.lines) if line.key == "step/1/model")
    world = World(stored=False)
    await live(world, place)
    made = world.agent
    seen: list[int] = []

    def newer(**more: Any) -> Agent[Any]:
        agent = made(**more)
        agent.add_hook("onResponse", lambda ctx: seen.append(ctx.iteration))
        return agent

    world.agent = newer  # type: ignore[method-assign]
    life = await live(world)
    assert life.response.text == "Done: end."
    assert seen == [0, 1, 2]  # a step without a record is new, wherever it stands
    world.ran.clear()
    assert (await live(world)).response.text == "Done: end."
    assert (seen, world.ran) == ([0, 1, 2], [])  # and has its place from then on


async def test_an_end_that_no_code_asks_for_is_an_error_by_name_and_leaves_the_chat_as_it_is() -> (
    None
):
    first, reference = await whole(stored=False)
    place = next(n for n, line in enumerate(first.lines) if line.key == "step/1/model")
    world = World(stored=False)
    await live(world, place)
    lines = len(world.lines)
    world.points = world.points[1:]
    life = await live(world)
    assert isinstance(life.error, JournalError)
    assert "'start'" in str(life.error)
    assert not {"onChatError", "onChatEnd"} & set(world.ran)
    del world.lines[lines:]
    world.points = World.points
    same(await live(world), reference)


@pytest.mark.parametrize(
    ("batch", "says"),
    [
        (b'{"hookline":1,"lines":[{"kind":"beg', "batch 3 of its log cannot be read"),
        (b"", "batch 3 of its log cannot be read"),
        (b'{"hookline":1,"lines":[{"kind":"dance"}]}', "batch 3 of its log cannot be read"),
        (b'{"hookline":2,"lines":"of another kind"}', "format 2, and this hookline knows 1"),
    ],
    ids=["cut in half", "empty", "of no kind", "newer"],
)
async def test_a_log_that_cannot_be_read_is_refused_by_the_number_of_the_batch(
    batch: bytes, says: str
) -> None:
    world, _ = await whole(stored=False)
    log = MemoryLog(world.lines)
    batches = await log.read()
    with pytest.raises(JournalError, match=says):
        Journal("chat", log, [*batches[:3], batch])


async def test_a_job_runs_one_durable_chat() -> None:
    world = World(stored=False)
    agent = world.agent()
    journal = await Journal.open("chat", world.log)

    async def two() -> None:
        await agent.chat("Go.", conversation=Conversation(), chat_id="chat")
        with pytest.raises(UsageError, match="begins in the job of durable chat 'chat'"):
            await agent.chat("Go.", chat_id="another")

    await journal.carry(two)


async def test_a_chat_outside_of_a_job_is_local() -> None:
    world = World(stored=False)
    response = await world.agent(approver=lambda request, run: Approve()).chat("Go.")
    assert response.text == "Done: end."
    assert world.lines == []


async def test_the_answer_of_the_engine_is_recorded_and_counts_once() -> None:
    world = World(stored=False)
    world.log.decision = Deny("no")
    life = await live(world)
    assert world.ran.count("refund c") == 1  # the log of this life says Approve
    waits = [line.key for line in world.lines if line.kind == "wait"]
    assert waits == ["chat.c"]
    again = await live(world)
    assert results(again) == results(life)


async def test_a_log_that_cannot_be_written_ends_the_life_and_not_the_chat() -> None:
    world = World(stored=True)

    class Full(MemoryLog):
        async def append(self, data: bytes) -> None:
            if len(self.lines) > 10:
                self.ended = True
                raise OSError("disk full")
            await super().append(data)

    log = world.log = Full(world.lines)
    journal = await Journal.open("chat", log)
    agent = world.agent()
    with pytest.raises(OSError, match="disk full"):
        await journal.carry(lambda: agent.chat("Go.", conversation="talk"))
    assert world.late == []
    life = await live(world)
    assert life.response.text == "Done: end."
