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
from msgspec import UNSET
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
    Text,
    UserMessage,
    check_history,
    define_hook,
    tool,
)
from hookline._record.order import rank_of
from hookline._record.runtime import KEYS, key_name
from hookline.errors import (
    ChatAbortedError,
    HistoryError,
    JournalError,
    RemoteChatError,
    UsageError,
)
from hookline.points import PreChat, PreMessage
from hookline.runtimes import Batch, Durable, Halted, Journal, Line
from hookline.storage import Change
from hookline.testing import ScriptedModel, call

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
        self.decision: Approve | Deny = Approve()
        self.change: Callable[[list[Any]], list[Any]] = lambda tools: tools
        self.turns: list[Any] = TURNS

    def note(self, what: str) -> None:
        """Something happened: in a life that is over, it is too late."""
        self.ran.append(what)
        if self.log.ended:
            self.late.append(what)

    def bare(self, **more: Any) -> Agent[Any]:
        """The agent without hooks."""

        def work(name: str, idempotent: bool) -> Any:
            async def fn(q: str, run: Run[Any]) -> str:
                self.note(f"{name} {q}")
                await run.status("working", q)
                await asyncio.sleep(0)
                return f"{name} {q} done"

            fn.__name__ = name
            return tool(idempotent=idempotent, description=name)(fn)

        return Agent(
            Model(lambda what: self.note(what), *self.turns),
            tools=self.change([work("lookup", True), work("charge", False), work("refund", False)]),
            runtime=Durable(),
            store=self.store,
            **more,
        )

    def agent(self, **more: Any) -> Agent[Any]:
        made = self.bare(**more)

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


async def live(
    world: World,
    limit: int | None = None,
    *,
    abort_at: int | None = None,
    abort_first: bool = False,
    said: str | UserMessage = "Go.",
    options: dict[str, Any] | None = None,
) -> Life:
    """Live once, and no further than to this line."""
    world.log = log = MemoryLog(world.lines, limit)
    log.decision = world.decision
    journal = await Journal.open("chat", log)
    life = Life()
    life.events = []
    life.conversation = Conversation(id="talk")
    if world.store is not None:
        life.conversation = Conversation.at(world.store, "talk")
    aborts: list[asyncio.Task[None]] = []
    if abort_first:
        aborts.append(asyncio.create_task(journal.abort("enough")))
    if abort_at is not None:

        def look(line: Line) -> None:
            if len(log.lines) == abort_at and not aborts:
                aborts.append(asyncio.create_task(journal.abort("enough")))

        log.before = look

    async def chat() -> Any:
        stream: ChatStream = world.agent().chat_stream(
            said, conversation=life.conversation, chat_id="chat", **(options or {})
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


class SlowToAsk(Watched):
    """A store that takes its time to write questions; other writes wait for their turn."""

    async def append(self, conversation_id: str, change: Change) -> int:
        if change.pending is not UNSET:
            for _ in range(30):
                await asyncio.sleep(0)
        return await super().append(conversation_id, change)


@pytest.mark.slow
async def test_a_question_that_is_written_slowly_holds_up_no_message_for_good() -> None:
    """A later life writes its question while results come that stand in the store already."""
    first, reference = await whole(stored=True)
    for limit in range(len(first.lines)):
        world = World(stored=True)
        world.store = SlowToAsk(world.note)
        await live(world, limit)
        same(await live(world), reference)
        found = await MemoryStore.load(world.store, "talk")
        assert found is not None
        check_history(found.messages)


OWN = UserMessage(id="own", parts=(Text("Go."),))


def given_by_pre_chat() -> dict[str, Any]:
    def give(ctx: PreChat) -> Any:
        return ctx.request.replace(message=OWN)

    return {"said": "Hello.", "options": {"hooks": [define_hook("preChat", id="give")(give)]}}


def mended() -> dict[str, Any]:
    def mend(ctx: PreMessage) -> Any:
        return ctx.message.replace(text="Go on.") if ctx.message.role == "user" else None

    return {"said": OWN, "options": {"hooks": [define_hook("preMessage", id="mend")(mend)]}}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("given", "before"),
    [
        (lambda: {"said": OWN}, ()),
        (lambda: {"said": OWN}, (UserMessage(id="theirs", parts=(Text("Hi."),)),)),
        (given_by_pre_chat, ()),
        (mended, ()),
    ],
    ids=["input", "after another", "preChat", "preMessage"],
)
async def test_a_message_with_an_id_of_its_own_is_written_once_in_all_lives(
    given: Callable[[], dict[str, Any]], before: tuple[UserMessage, ...]
) -> None:
    """What stands in the store under its id is its own, wherever an earlier life was cut."""

    async def begun() -> World:
        world = World(stored=True)
        if before:
            await Conversation(before, id="talk").save(world.store)
            world.ran.clear()
        return world

    first = await begun()
    reference = await live(first, **given())
    said = [m for m in reference.conversation.messages if m.role == "user"]
    assert [m.id for m in said] == [*[m.id for m in before], "own"]
    for limit in range(len(first.lines)):
        world = await begun()
        died = await live(world, limit, **given())
        assert isinstance(died.error, Halted), limit
        assert not world.late, limit
        life = await live(world, **given())
        same(life, reference)
        once(world)
        found = await MemoryStore.load(world.store, "talk")  # type: ignore[arg-type]
        assert found is not None
        assert found.messages == life.conversation.messages
        assert [m for m in found.messages if m.role == "user"] == said


async def test_an_id_that_another_chat_has_used_is_refused_in_every_life() -> None:
    """Also where nothing tells whether an earlier life of this chat has written it: it has not."""
    for limit in (0, 1, None):
        world = World(stored=True)
        await Conversation([OWN], id="talk").save(world.store)
        for at in (limit, None):
            life = await live(world, at, said=OWN.replace(text="Something else."))
            if at is not None:
                assert isinstance(life.error, Halted)
        assert isinstance(life.error, HistoryError), limit
        found = await MemoryStore.load(world.store, "talk")  # type: ignore[arg-type]
        assert found is not None
        assert (found.messages, found.owner) == ((OWN,), None)


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


@pytest.mark.slow
@pytest.mark.parametrize("stored", [False, True], ids=["memory", "store"])
async def test_aborted_at_each_line_and_cut_at_each_after_it_the_chat_is_aborted(
    stored: bool,
) -> None:
    first, _ = await whole(stored=stored)
    for place in range(1, len(first.lines) - 8):
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


@pytest.mark.parametrize("given", [True, False], ids=["while it replays", "before it begins"])
async def test_an_abort_in_a_later_life_has_its_place_after_all_that_is_recorded(
    given: bool,
) -> None:
    """However early it comes there: what is recorded has happened."""
    first, _ = await whole(stored=False)
    for place in range(1, len(first.lines) - 8):
        world = World(stored=False)
        world.lines[:] = first.lines[:place]
        life = await live(world, **({"abort_at": place + 1} if given else {"abort_first": True}))
        assert type(life.events[-1]).__name__ == "ChatAborted", place
        check_history(life.conversation.messages)
        ended = {line.key for line in first.lines[:place] if line.kind == "end"}
        for id, turn in (("a", 0), ("b", 0), ("c", 0), ("d", 1)):
            if f"step/{turn}/call/{id}/result" in ended:
                assert "done" in results(life)[id], place
        again = await live(world)
        assert isinstance(again.error, ChatAbortedError), place
        assert results(again) == results(life), place


FAILING = [["Let me see, ", ConnectionError("reset")]]


async def test_what_a_failed_chat_has_kept_stands_beside_no_answer_of_a_later_life() -> None:
    """The model answers again in the later life; the partial answer may be in the store by then."""
    first = World(stored=True)
    first.turns = FAILING
    reference = await live(first)
    assert isinstance(reference.error, ConnectionError)
    outcomes = set[str]()
    for limit in range(len(first.lines)):
        world = World(stored=True)
        world.turns = FAILING
        died = await live(world, limit)
        assert isinstance(died.error, Halted), limit
        world.turns = TURNS
        life = await live(world)
        check_history(life.conversation.messages)
        if life.error is None:
            assert life.response.text == "Done: end.", limit
        else:
            assert isinstance(life.error, RemoteChatError), (limit, life.error)
            assert (life.error.type, life.error.message) == ("ConnectionError", "reset")
            assert life.conversation.messages == reference.conversation.messages, limit
        outcomes.add(type(life.error).__name__)
        found = await MemoryStore.load(world.store, "talk")  # type: ignore[arg-type]
        assert found is not None
        assert found.messages == life.conversation.messages, limit
        assert found.owner is None
    assert outcomes == {"NoneType", "RemoteChatError"}


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
    assert seen == [1, 2]  # the record had gone on past the first one
    world.ran.clear()
    assert (await live(world)).response.text == "Done: end."
    assert (seen, world.ran) == ([1, 2], [])  # and has its place from then on


def test_each_step_of_the_loop_has_its_place_among_the_others() -> None:
    keys = [(key, 3, "id", 2, "request") for key in KEYS if "step/" in key]
    names = [key_name(key[: 1 + key[0].count("{}")]) for key in keys]
    ranks = [rank_of(name) for name in names]
    assert {rank[0] for rank in ranks} == {3}
    assert len(set(ranks)) == len(ranks)  # also the phases of one call


@pytest.mark.parametrize(
    ("batch", "says"),
    [
        (b'{"hookline":1,"lines":[{"kind":"beg', "batch 3 of its log cannot be read"),
        (b"", "batch 3 of its log cannot be read"),
        (b'{"hookline":1,"lines":[{"kind":"dance"}]}', "batch 3 of its log cannot be read"),
        (
            b'{"hookline":2,"lines":"of another kind"}',
            "format 2, but this version of hookline reads only formats up to 1",
        ),
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
        with pytest.raises(UsageError, match="began in the job of durable chat 'chat'"):
            await agent.chat("Go.", chat_id="another")

    await journal.carry(two)


async def test_a_chat_outside_of_a_job_is_local() -> None:
    world = World(stored=False)
    response = await world.agent(approver=lambda request, run: Approve()).chat("Go.")
    assert response.text == "Done: end."
    assert world.lines == []


async def test_the_answer_of_the_engine_is_recorded_and_counts_once() -> None:
    world = World(stored=False)
    world.decision = Deny("no")
    life = await live(world)
    assert world.ran.count("refund c") == 0
    waits = [line.key for line in world.lines if line.kind == "wait"]
    assert waits == ["chat.c"]
    world.decision = Approve()
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


async def test_a_sub_agent_inside_of_a_halted_tool_is_halted_too() -> None:
    """No hook of it hears of an end that is none."""
    heard: list[str] = []
    asked = asyncio.Event()

    class Thinking:
        name = "thinking"

        async def stream(self, request: Any) -> Any:
            asked.set()
            await asyncio.Event().wait()
            yield

    sub: Agent[Any] = Agent(Thinking(), name="helper")
    for point in ("onChatAbort", "onChatError", "onChatDone", "onChatEnd", "onMessage"):
        sub.add_hook(point, lambda ctx, point=point: heard.append(point))  # type: ignore[call-overload]
    inner: Agent[Any] = Agent(
        ScriptedModel(call("helper", input="Help.")),
        name="outer",
        tools=[sub.as_tool(description="Helps.")],
    )
    inner.add_hook("onChatAbort", lambda ctx: heard.append("outer"))
    agent: Agent[Any] = Agent(
        ScriptedModel(call("outer", input="Go on.")),
        tools=[inner.as_tool(description="Goes on.")],
        runtime=Durable(),
    )
    log = MemoryLog([])
    journal = await Journal.open("chat", log)
    life = asyncio.create_task(journal.carry(lambda: agent.chat("Go.")))
    await asked.wait()
    before = list(heard)
    journal.halt()
    with pytest.raises(Halted):
        await life
    await asyncio.sleep(0)
    assert heard == before == ["onMessage"]


async def test_an_abort_whose_life_ends_as_it_is_recorded_is_halted() -> None:
    class Lost(MemoryLog):
        def poke(self) -> None:
            if any(line.kind == "abort" for line in self.lines):
                journal.halt()

    journal = await Journal.open("chat", Lost([]))
    with pytest.raises(Halted):
        await journal.carry(lambda: journal.abort("enough"))


@pytest.mark.parametrize("after", [False, True], ids=["during the last write", "after it"])
async def test_an_abort_that_comes_as_a_chat_ends_does_not_wait_for_its_line(after: bool) -> None:
    """Nobody writes the line, and a task that waits for it could not even be cancelled."""
    aborts: list[asyncio.Task[None]] = []

    class Last(MemoryLog):
        async def append(self, data: bytes) -> None:
            await super().append(data)
            if not after and not aborts:
                aborts.append(asyncio.create_task(journal.abort("enough")))
                await asyncio.sleep(0)

    async def chat() -> str:
        journal.now()  # a last line
        return "done"

    journal = await Journal.open("chat", Last([]))
    assert await journal.carry(chat) == "done"
    if after:
        aborts.append(asyncio.create_task(journal.abort("enough")))
    for _ in range(50):
        await asyncio.sleep(0)
    ended = [abort.done() for abort in aborts]
    journal.halt()
    await asyncio.gather(*aborts, return_exceptions=True)
    assert ended == [True]
