"""The aiostream operators: what they give, and that leaving them at any place ends the chat."""

from __future__ import annotations

import asyncio
import gc
import importlib
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any

import pytest
from aiostream import pipe, stream
from aiostream.core import Stream
from hypothesis import given
from hypothesis import strategies as st

from hookline import Agent, ModelRequest
from hookline.errors import ChatAbortedError, UsageError
from hookline.events import (
    ChatDone,
    ChatEvent,
    ChatFailed,
    ChatStarted,
    PartEnd,
    ReasoningDelta,
    ResponseReset,
    StepFinished,
    TextDelta,
)
from hookline.models import Chunk, Finish, ReasoningChunk, TextChunk
from hookline.streams import coalesce, of_type, sentences, text


class Says:
    """A model that says these texts, then ends as it is told to."""

    def __init__(
        self, *texts: str, hangs: bool = False, raises: BaseException | None = None
    ) -> None:
        self.texts = texts
        self.hangs = hangs
        self.raises = raises

    async def stream(self, request: ModelRequest) -> AsyncIterator[Chunk]:
        yield ReasoningChunk("Hm.")
        for each in self.texts:
            yield TextChunk(each)
        if self.hangs:
            await asyncio.Event().wait()
        if self.raises is not None:
            raise self.raises
        yield Finish()


class Watched:
    """An agent, and how its chats began and ended."""

    def __init__(self, *texts: str, **ending: Any) -> None:
        self.agent = Agent(Says(*texts, **ending))
        self.begun = 0
        self.ends: list[str | None] = []
        self.agent.add_hook("onChatStart", self._begins)
        self.agent.add_hook("onChatDone", lambda ctx: self.ends.append("done"))
        self.agent.add_hook("onChatAbort", lambda ctx: self.ends.append(ctx.reason))
        self.agent.add_hook("onChatError", lambda ctx: self.ends.append("error"))

    def _begins(self, ctx: object) -> None:
        self.begun += 1

    def chat(self) -> Any:
        return self.agent.chat_stream("hi")


def others() -> set[asyncio.Task[Any]]:
    return asyncio.all_tasks() - {asyncio.current_task()}  # type: ignore[arg-type]


@pytest.fixture(autouse=True)
async def _nothing_is_left() -> AsyncIterator[None]:
    before = asyncio.all_tasks()
    yield
    gc.collect()  # what was dropped warns now, and a warning is an error
    assert asyncio.all_tasks() - before <= {asyncio.current_task()}


def delta(text: str, *, seq: int = 0, iteration: int = 0, chat: str = "c", path: Any = ()) -> Any:
    return TextDelta(chat_id=chat, seq=seq, path=path, iteration=iteration, text=text)


def part_end(**more: Any) -> PartEnd:
    return PartEnd(chat_id="c", seq=0, iteration=0, part="text", **more)


async def read_into(got: list[Any], xs: Any) -> None:
    async with xs.stream() as items:
        async for item in items:
            got.append(item)


async def all_of(xs: Any) -> list[Any]:
    got: list[Any] = []
    await read_into(got, xs)
    return got


async def settle() -> None:
    for _ in range(30):
        await asyncio.sleep(0)


# ── composing ───────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "operator",
    [text, of_type, coalesce, sentences],
    ids=["text", "of_type", "coalesce", "sentences"],
)
def test_each_is_an_operator_of_aiostream(operator: Any) -> None:
    assert callable(operator.pipe)
    assert callable(operator.raw)
    assert operator.__doc__


async def test_called_on_a_chat_then_piped() -> None:
    a = Watched("Hello", " there. ", "And you?")
    assert await all_of(text(a.chat()) | sentences.pipe()) == ["Hello there.", "And you?"]
    assert a.ends == ["done"]


async def test_piped_from_aiostreams_own_source() -> None:
    a = Watched("a", "b", "c")
    chat = stream.iterate(a.chat())
    joined = chat | of_type.pipe(TextDelta) | coalesce.pipe(chars=2) | text.pipe()
    assert await all_of(joined) == ["ab", "c"]


async def test_composed_outside_a_loop_and_never_read_nothing_begins() -> None:
    a = Watched("a")
    await asyncio.to_thread(lambda: text(a.chat()) | coalesce.pipe(seconds=1) | sentences.pipe())
    assert not others()
    assert a.ends == []


async def test_a_second_iteration_is_empty() -> None:
    xs = text(Watched("a", "b").chat())
    assert await all_of(xs) == ["a", "b"]
    assert await all_of(xs) == []


# ── text and of_type ────────────────────────────────────────────────────────────────────────


async def test_text_is_the_text_alone() -> None:
    assert await all_of(text(Watched("a", "b").chat())) == ["a", "b"]


async def test_text_of_sub_agents_is_asked_for() -> None:
    events = [delta("a"), delta("sub", chat="d", path=("call",)), delta("b")]
    assert await all_of(text(stream.iterate(events))) == ["a", "b"]
    assert await all_of(text(stream.iterate(events), subagents=True)) == ["a", "sub", "b"]


async def test_text_puts_something_between_complete_texts() -> None:
    sub = part_end(path=("call",))
    events = [delta("a"), sub, delta("b"), part_end(), delta("c"), delta("d"), part_end()]
    assert await all_of(text(stream.iterate(events))) == ["a", "b", "c", "d"]
    assert await all_of(text(stream.iterate(events), between="\n")) == ["a", "b", "\nc", "d"]


async def test_of_type_gives_these_types_in_order() -> None:
    chat = Watched("a", "b").chat()
    got = await all_of(of_type(chat, ChatStarted, TextDelta, ChatDone))
    assert [type(each) for each in got] == [ChatStarted, TextDelta, TextDelta, ChatDone]


def test_of_type_wants_a_type() -> None:
    with pytest.raises(UsageError, match="pass a type, such as"):
        of_type(stream.empty())


# ── coalesce ────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        ({}, "needs a limit"),
        ({"chars": 0}, r"chars=0\) must be at least 1"),
        ({"seconds": 0}, r"seconds=0\) must be more than 0"),
        ({"seconds": float("nan")}, "must be more than 0"),
    ],
    ids=["none", "chars", "seconds", "nan"],
)
def test_coalesce_wants_a_limit(limits: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        coalesce(stream.empty(), **limits)


async def test_coalesce_joins_strings_until_there_are_enough() -> None:
    xs = stream.iterate(["a", "bc", "d", "efghij", "k"])
    assert await all_of(coalesce(xs, chars=3)) == ["abc", "defghij", "k"]


@given(st.lists(st.text(max_size=5)), st.integers(1, 12))
def test_coalesce_keeps_every_character(pieces: list[str], chars: int) -> None:
    got = asyncio.run(all_of(coalesce(stream.iterate(pieces), chars=chars)))
    assert "".join(got) == "".join(pieces)
    assert all(len(each) >= chars for each in got[:-1])


async def test_coalesce_makes_one_delta_with_the_last_seq() -> None:
    got = await all_of(
        coalesce(stream.iterate([delta("a", seq=4), delta("b", seq=5), delta("c", seq=6)]), chars=9)
    )
    assert got == [delta("abc", seq=6)]


async def test_coalesce_passes_a_lone_delta_as_it_is() -> None:
    lone = delta("abc")
    (got,) = await all_of(coalesce(stream.iterate([lone]), chars=2))
    assert got is lone


@pytest.mark.parametrize(
    "other",
    [
        delta("x", iteration=1),
        delta("x", chat="d"),
        delta("x", path=("call",)),
        ReasoningDelta(chat_id="c", seq=0, iteration=0, text="x"),
        ResponseReset(chat_id="c", seq=0, iteration=0),
        part_end(),
    ],
    ids=["step", "chat", "path", "reasoning", "reset", "event"],
)
async def test_coalesce_flushes_before_what_does_not_go_on(other: ChatEvent) -> None:
    events = [delta("a"), delta("b"), other, delta("c"), delta("d")]
    got = await all_of(coalesce(stream.iterate(events), chars=99))
    assert got == [delta("ab"), other, delta("cd")]


async def test_coalesce_joins_reasoning_too() -> None:
    events = [ReasoningDelta(chat_id="c", seq=n, iteration=0, text="x") for n in (1, 2)]
    got = await all_of(coalesce(stream.iterate(events), chars=99))
    assert got == [ReasoningDelta(chat_id="c", seq=2, iteration=0, text="xx")]


async def test_coalesce_of_a_whole_chat_keeps_all_its_events() -> None:
    a = Watched("a", "b", "c")
    whole = [event async for event in a.chat()]
    got = await all_of(coalesce(a.chat(), chars=99, seconds=60))
    assert [type(each) for each in got] == [
        type(each) for each in whole if getattr(each, "text", "c") in ("c", "Hm.")
    ]
    assert [each.text for each in got if isinstance(each, TextDelta)] == ["abc"]


class Hand:
    """A source that is fed by hand, a clock that is turned by hand, and a reader."""

    def __init__(self, operator: Callable[[Any], Stream[Any]], monkeypatch: Any) -> None:
        self.now = 1000.0
        self.got: list[Any] = []
        self.closed = False
        self._items: asyncio.Queue[Any] = asyncio.Queue()
        monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: self.now)
        self.reader = asyncio.create_task(read_into(self.got, operator(self._source())))

    async def _source(self) -> AsyncIterator[Any]:
        try:
            while (item := await self._items.get()) is not None:
                yield item
        finally:
            self.closed = True

    async def feed(self, *items: Any) -> None:
        for item in items:
            self._items.put_nowait(item)
        await settle()

    async def turn(self, seconds: float) -> None:
        self.now += seconds
        await settle()


async def test_coalesce_lets_go_when_the_time_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    hand = Hand(coalesce.pipe(seconds=1), monkeypatch)
    await hand.feed("a", "b")
    await hand.turn(0.6)
    await hand.feed("c")
    assert hand.got == []
    await hand.turn(0.6)  # counted from the first
    assert hand.got == ["abc"]
    await hand.turn(5)  # nothing is held: no empty string
    assert hand.got == ["abc"]
    await hand.feed("d")  # the wait went on: nothing is lost, and the time begins anew
    await hand.turn(0.9)
    assert hand.got == ["abc"]
    await hand.feed(None)  # the end is not waited for
    assert hand.got == ["abc", "d"]
    await hand.reader
    assert hand.closed


async def test_coalesce_by_time_under_a_source_that_never_pauses(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loop = asyncio.get_running_loop()
    now = 0.0
    monkeypatch.setattr(loop, "time", lambda: now)

    async def pieces() -> AsyncIterator[str]:
        nonlocal now
        for each in "abcdefg":
            now += 0.25
            yield each

    assert await all_of(coalesce(pieces(), seconds=0.5)) == ["abc", "def", "g"]


async def test_coalesce_by_time_and_size(monkeypatch: pytest.MonkeyPatch) -> None:
    hand = Hand(coalesce.pipe(seconds=1, chars=2), monkeypatch)
    await hand.feed("a", "b", "c")
    assert hand.got == ["ab"]
    await hand.turn(1)
    assert hand.got == ["ab", "c"]
    await hand.feed("d", 5, "e")  # what is no text goes by, after what is held
    assert hand.got == ["ab", "c", "d", 5]
    hand.reader.cancel()
    with pytest.raises(asyncio.CancelledError):
        await hand.reader
    assert hand.closed


class Closing:
    """A source that says one thing and, once cancelled, ends only when it may."""

    def __init__(self) -> None:
        self.may_end = asyncio.Event()
        self.trace: list[str] = []

    async def __aiter__(self) -> AsyncIterator[str]:
        yield "a"
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.trace.append("told")
            await self.may_end.wait()
            self.trace.append("closed")
            raise


async def test_coalesce_waits_for_its_reading_task_however_often_it_is_cancelled() -> None:
    source = Closing()
    task = asyncio.create_task(all_of(coalesce(source, seconds=60)))
    await settle()
    for _ in range(3):
        task.cancel()
        await settle()
    assert not task.done()
    source.may_end.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert source.trace == ["told", "closed"]


async def read_one(xs: Stream[Any], has_it: asyncio.Event, may_leave: asyncio.Event) -> None:
    async with xs.stream() as items:
        async for _ in items:
            has_it.set()
            await may_leave.wait()
            break


async def test_coalesce_keeps_a_cancellation_that_comes_while_it_closes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 0.0
    monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: now)
    source, has_it, may_leave = Closing(), asyncio.Event(), asyncio.Event()
    task = asyncio.create_task(read_one(coalesce(source, seconds=1), has_it, may_leave))
    await settle()
    now = 2.0
    await settle()
    assert has_it.is_set()  # and a task reads on
    may_leave.set()
    await settle()
    assert source.trace == ["told"]
    task.cancel()
    await settle()
    source.may_end.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert source.trace == ["told", "closed"]


@pytest.mark.parametrize("fails", ["before it is left", "when it is left"])
async def test_coalesce_drops_an_error_that_comes_too_late(
    monkeypatch: pytest.MonkeyPatch, fails: str
) -> None:
    loop = asyncio.get_running_loop()
    now = 0.0
    monkeypatch.setattr(loop, "time", lambda: now)
    heard: list[object] = []
    loop.set_exception_handler(lambda _, context: heard.append(context))
    may_fail, has_it, may_leave = asyncio.Event(), asyncio.Event(), asyncio.Event()
    trace: list[str] = []

    async def source() -> AsyncIterator[str]:
        yield "a"
        try:
            await may_fail.wait()
        finally:
            trace.append("failed")
            raise KeyError

    task = asyncio.create_task(read_one(coalesce(source(), seconds=1), has_it, may_leave))
    await settle()
    now = 2.0
    await settle()
    assert has_it.is_set()
    if fails == "before it is left":
        may_fail.set()
    await settle()
    may_leave.set()
    await task
    gc.collect()
    assert trace == ["failed"]
    assert heard == []


# ── sentences ───────────────────────────────────────────────────────────────────────────────

SENTENCES = {
    "plain": ("One. Two! Three? Four… Five", ["One.", "Two!", "Three?", "Four…", "Five"]),
    "runs": ("What?! No... Yes!!! ", ["What?!", "No...", "Yes!!!"]),
    "numbers": ("Pi is 3.14, see v1.2 at a.com. End.", ["Pi is 3.14, see v1.2 at a.com.", "End."]),
    "closers": ('He said "no." (Yes.) **Bold.** x', ['He said "no."', "(Yes.)", "**Bold.**", "x"]),
    "lines": ("# Head\n\nText\r\nmore", ["# Head", "Text", "more"]),
    "list": ("1. Milk\n2. Two. Eggs", ["1. Milk", "2. Two.", "Eggs"]),
    "a number ends a line": ("1.\nTwo", ["1.", "Two"]),
    "cjk": ("你好。「再见！」他说？好", ["你好。", "「再见！」", "他说？", "好"]),  # noqa: RUF001
    "mixed": ("OK。Next. 好！!吗", ["OK。", "Next.", "好！!", "吗"]),  # noqa: RUF001
    "abbreviations are not known": ("Dr. Who", ["Dr.", "Who"]),
    "nothing": (" \n ", []),
    "empty": ("", []),
}


@pytest.mark.parametrize("size", [1, 2, 3, 99])
@pytest.mark.parametrize(("whole", "expected"), SENTENCES.values(), ids=SENTENCES)
async def test_sentences(whole: str, expected: Sequence[str], size: int) -> None:
    pieces = [whole[at : at + size] for at in range(0, len(whole), size)]
    assert await all_of(sentences(stream.iterate(pieces))) == list(expected)


@given(st.lists(st.text(alphabet='aB1 .!?…。！\n")*', max_size=4)))  # noqa: RUF001
def test_sentences_do_not_depend_on_the_pieces(pieces: list[str]) -> None:
    whole = "".join(pieces)
    got = asyncio.run(all_of(sentences(stream.iterate(pieces))))
    assert got == asyncio.run(all_of(sentences(stream.iterate([whole]))))
    assert "".join("".join(got).split()) == "".join(whole.split())


async def test_a_sentence_comes_as_soon_as_it_is_certain(monkeypatch: pytest.MonkeyPatch) -> None:
    hand = Hand(sentences.pipe(), monkeypatch)
    await hand.feed("One", ".")
    assert hand.got == []
    await hand.feed(" ")
    assert hand.got == ["One."]
    await hand.feed("二。", "三")
    assert hand.got == ["One.", "二。"]
    await hand.feed(None)
    assert hand.got == ["One.", "二。", "三"]
    await hand.reader


# ── leaving early ───────────────────────────────────────────────────────────────────────────

PIPES: dict[str, Callable[[Any], Stream[Any]]] = {
    "none": stream.iterate,
    "text": text,
    "of_type": lambda chat: of_type(chat, TextDelta),
    "coalesce chars": lambda chat: coalesce(chat, chars=5),
    "coalesce seconds": lambda chat: coalesce(chat, chars=5, seconds=60),
    "sentences": lambda chat: text(chat) | sentences.pipe(),
    "several": lambda chat: (
        of_type(chat, TextDelta)
        | coalesce.pipe(chars=2, seconds=60)
        | pipe.skip(0)
        | text.pipe(between=" ")
        | coalesce.pipe(chars=3, seconds=60)
        | sentences.pipe()
    ),
}
LEFT = ("consumer left", "cancelled")


class Oops(Exception):
    pass


async def by_break(xs: Stream[Any]) -> None:
    async with xs.stream() as items:
        async for _ in items:
            break


async def first_then_raise(xs: Stream[Any], error: Exception) -> None:
    async with xs.stream() as items:
        async for _ in items:
            raise error


async def by_exception(xs: Stream[Any]) -> None:
    oops = Oops()
    with pytest.raises(Oops) as caught:
        await first_then_raise(xs, oops)
    assert caught.value is oops


async def by_timeout(xs: Stream[Any]) -> None:
    async def read() -> None:
        async with asyncio.timeout(None) as limit:
            due = asyncio.ensure_future(due_when_settled(limit))
            await all_of(xs)
        await due

    with pytest.raises(TimeoutError):
        await read()


async def due_when_settled(limit: asyncio.Timeout) -> None:
    """Let the time run out once everything waits: sooner, on a busy machine, nothing has begun."""
    await settle()
    limit.reschedule(asyncio.get_running_loop().time())


async def by_aiostreams_timeout(xs: Stream[Any]) -> None:
    with pytest.raises(TimeoutError):
        await all_of(xs | pipe.timeout(0.3))


async def by_cancel_while_reading(xs: Stream[Any]) -> None:
    task = asyncio.create_task(all_of(xs))
    await settle()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def by_cancel_in_the_body(xs: Stream[Any]) -> None:
    async def read() -> None:
        async with xs.stream() as items:
            async for _ in items:
                await asyncio.Event().wait()

    task = asyncio.create_task(read())
    await settle()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def by_take(xs: Stream[Any]) -> None:
    assert len(await all_of(xs | pipe.take(2))) == 2


async def by_leaving_a_generator_around_it(xs: Stream[Any]) -> None:
    async def body() -> AsyncIterator[Any]:
        async with xs.stream() as items:
            async for item in items:
                yield item

    around = body()
    await anext(around)
    await around.aclose()


WAYS = [
    by_break,
    by_exception,
    by_timeout,
    by_aiostreams_timeout,
    by_cancel_while_reading,
    by_cancel_in_the_body,
    by_take,
    by_leaving_a_generator_around_it,
]
each_way = pytest.mark.parametrize("leave", WAYS, ids=lambda way: way.__name__)
each_pipe = pytest.mark.parametrize("through", PIPES.values(), ids=PIPES)
Leave = Callable[[Stream[Any]], Awaitable[None]]
Through = Callable[[Any], Stream[Any]]


@each_way
@each_pipe
async def test_leaving_ends_the_chat(through: Through, leave: Leave) -> None:
    a = Watched("One. ", "Two. ", "Three. ", hangs=True)
    await leave(through(a.chat()))
    assert not others()
    assert len(a.ends) == 1
    assert a.ends[0] in LEFT


@each_way
@each_pipe
async def test_leaving_a_merge_ends_both_chats(through: Through, leave: Leave) -> None:
    a = Watched("One. ", "Two. ", "Three. ", hangs=True)
    b = Watched("Un. ", "Deux. ", "Trois. ", hangs=True)
    await leave(stream.merge(through(a.chat()), through(b.chat())))
    assert not others()
    assert a.begun == 1  # the other need not have begun
    assert [len(each.ends) for each in (a, b)] == [a.begun, b.begun]
    assert {*a.ends, *b.ends} <= {*LEFT}


@each_pipe
async def test_leaving_a_merge_while_both_run_ends_both(through: Through) -> None:
    a, b = Watched("One. ", "Two. ", hangs=True), Watched("Un. ", "Deux. ", hangs=True)
    async with stream.merge(through(a.chat()), through(b.chat())).stream() as items:
        async for _ in items:
            if a.begun and b.begun:
                break
    assert not others()
    assert [len(each.ends) for each in (a, b)] == [1, 1]
    assert {*a.ends, *b.ends} <= {*LEFT}


async def test_a_break_without_a_wait_has_the_consumers_reason() -> None:
    a = Watched("One. ", "Two. ", hangs=True)
    await by_break(text(a.chat()) | coalesce.pipe(chars=2) | sentences.pipe())
    assert a.ends == ["consumer left"]


async def test_take_closes_the_chat_at_its_last_item() -> None:
    a = Watched("a", "b", "c", "d", hangs=True)
    async with (text(a.chat()) | pipe.take(3)).stream() as items:
        got = [item async for item in items]
        assert a.ends == ["consumer left"]  # the block is not left yet
    assert got == ["a", "b", "c"]


# ── merging ─────────────────────────────────────────────────────────────────────────────────


async def test_merge_gives_two_whole_chats_each_in_its_order() -> None:
    many = [str(n) for n in range(200)]  # each is read in a task of its own
    a, b = Watched(*many), Watched(*many)
    got = await all_of(stream.merge(a.chat(), b.chat()))
    chats = {event.chat_id for event in got}
    assert len(chats) == 2
    for chat in chats:
        own = [event for event in got if event.chat_id == chat]
        assert [event.seq for event in own] == list(range(1, len(own) + 1))
        assert [event.text for event in own if isinstance(event, TextDelta)] == many
        assert isinstance(own[-1], ChatDone)
    assert a.ends == b.ends == ["done"]


async def test_operators_work_on_both_sides_of_a_merge() -> None:
    a, b = Watched("a", "b"), Watched("c", "d")
    whole = stream.merge(*(coalesce(each.chat(), chars=9) for each in (a, b))) | text.pipe()
    assert sorted(await all_of(whole)) == ["ab", "cd"]


async def test_a_chat_that_fails_in_a_merge_ends_the_other() -> None:
    boom = Oops("boom")
    a, b = Watched("a", hangs=True), Watched("b", raises=boom)
    with pytest.raises(Oops) as caught:
        await all_of(stream.merge(text(a.chat()), text(b.chat())))
    assert caught.value is boom
    assert not others()
    assert a.ends[0] in LEFT
    assert b.ends == ["error"]


# ── errors ──────────────────────────────────────────────────────────────────────────────────


@each_pipe
async def test_an_error_of_the_chat_comes_out_as_itself(through: Through) -> None:
    boom = Oops("boom")
    a = Watched("One. ", "Two. ", "Thr", raises=boom)
    got: list[Any] = []
    with pytest.raises(Oops) as caught:
        await read_into(got, through(a.chat()))
    assert caught.value is boom
    assert a.ends == ["error"]
    assert not others()
    said = "".join(each if isinstance(each, str) else getattr(each, "text", "") for each in got)
    assert said.removeprefix("Hm.").replace(" ", "") == "One.Two.Thr"


async def test_the_last_event_comes_before_the_error() -> None:
    a = Watched("a", raises=Oops())
    got: list[Any] = []
    with pytest.raises(Oops):
        await read_into(got, of_type(a.chat(), ChatFailed, StepFinished))
    assert [type(each) for each in got] == [ChatFailed]


async def test_an_abort_from_elsewhere_comes_out_as_itself() -> None:
    a = Watched("a", hangs=True)
    a.agent.add_hook("onDelta", lambda ctx: ctx.run.abort("enough") and None)
    with pytest.raises(ChatAbortedError, match="enough"):
        await all_of(text(a.chat()) | coalesce.pipe(seconds=60))
    assert a.ends == ["enough"]


async def test_the_streams_own_abort_ends_it_normally() -> None:
    a = Watched("a", "b", hangs=True)
    chat = a.chat()
    got: list[str] = []
    async with (text(chat) | coalesce.pipe(chars=2)).stream() as items:
        async for item in items:
            got.append(item)
            chat.abort("seen enough")
    assert got == ["ab"]
    assert a.ends == ["seen enough"]


@pytest.mark.parametrize(
    "operator", [coalesce.pipe(chars=99), sentences.pipe()], ids=["coalesce", "sentences"]
)
async def test_leaving_at_the_flush_before_an_error(operator: Callable[[Any], Stream[Any]]) -> None:
    async def source() -> AsyncIterator[str]:
        yield "a"
        raise Oops

    another = KeyError()
    with pytest.raises(KeyError) as caught:
        await first_then_raise(operator(source()), another)
    assert caught.value is another


# ── the extra ───────────────────────────────────────────────────────────────────────────────


def test_without_aiostream_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "aiostream", None)
    monkeypatch.setitem(sys.modules, "aiostream.core", None)
    monkeypatch.delitem(sys.modules, "hookline.streams")
    with pytest.raises(ImportError, match=r"pip install 'hookline\[streams\]'"):
        importlib.import_module("hookline.streams")


def test_hookline_itself_does_not_import_aiostream() -> None:
    code = (
        "import sys, hookline, hookline.events, hookline.models; print('aiostream' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
