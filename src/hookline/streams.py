"""aiostream operators for chat streams: `text`, `of_type`, `coalesce`, `sentences`.

A chat stream is itself a valid source for aiostream. Call the first operator with the stream as its
argument, and add the others with `.pipe()`. You can mix operators of aiostream and of this module:

    lines = text(agent.chat_stream("hi")) | sentences.pipe() | pipe.take(3)
    async with lines.stream() as spoken:
        async for sentence in spoken: ...

When you leave the `async with` block, the chat ends before the next statement runs. An exception of
the chat is raised unchanged. No adapter is needed, because aiostream closes the sources that it
opened. A chat runs only once: a second iteration over the same aiostream stream is empty. If a
cancellation arrives while aiostream's `merge` closes its operators, the cancellation is lost.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterator
from contextlib import aclosing
from math import inf
from typing import (
    Any,
    Generic,
    Protocol,
    TypeAlias,
    TypedDict,
    TypeVar,
    Unpack,
    cast,
    overload,
)

from hookline.errors import UsageError
from hookline.events import ChatEvent, PartEnd, ReasoningDelta, TextDelta

try:
    from aiostream.core import Stream, pipable_operator, streamcontext
except ImportError as exc:
    raise ImportError(
        "hookline.streams needs aiostream: pip install 'hookline[streams]'", name="aiostream"
    ) from exc

__all__ = ["coalesce", "of_type", "sentences", "text"]

T = TypeVar("T")
A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")

# ── text ────────────────────────────────────────────────────────────────────────────────────


@pipable_operator
async def text(
    source: AsyncIterable[ChatEvent], *, subagents: bool = False, between: str = ""
) -> AsyncIterator[str]:
    """The text of a chat's TextDelta events, by default without the text of its sub-agents.

    `between` is inserted between two complete texts, such as the texts before and after a tool
    call. Strings cannot express a ResponseReset. If the model is behind a retry or fallback, read
    the events, or stream with `release="response"`.
    """
    complete = False
    async with streamcontext(source) as streamer:
        async for event in streamer:
            if event.path and not subagents:
                continue
            if isinstance(event, TextDelta):
                yield between + event.text if complete else event.text
                complete = False
            elif isinstance(event, PartEnd) and event.part == "text":
                complete = True


# ── of_type ─────────────────────────────────────────────────────────────────────────────────


class _OfType(Protocol):
    """An aiostream operator whose result has the requested types."""

    @overload
    def __call__(
        self, source: AsyncIterable[object], a: type[A], b: type[B], /
    ) -> Stream[A | B]: ...
    @overload
    def __call__(
        self, source: AsyncIterable[object], a: type[A], b: type[B], c: type[C], /
    ) -> Stream[A | B | C]: ...
    @overload
    def __call__(self, source: AsyncIterable[object], /, *types: type[A]) -> Stream[A]: ...

    @overload
    def pipe(
        self, a: type[A], b: type[B], /
    ) -> Callable[[AsyncIterable[object]], Stream[A | B]]: ...
    @overload
    def pipe(
        self, a: type[A], b: type[B], c: type[C], /
    ) -> Callable[[AsyncIterable[object]], Stream[A | B | C]]: ...
    @overload
    def pipe(self, *types: type[A]) -> Callable[[AsyncIterable[object]], Stream[A]]: ...

    def raw(self, source: AsyncIterable[object], /, *types: type[A]) -> AsyncIterator[A]: ...


def _of_type(operator: Callable[..., AsyncIterator[Any]]) -> _OfType:
    return cast(_OfType, pipable_operator(operator))


@_of_type
def of_type(source: AsyncIterable[object], *types: type[Any]) -> AsyncIterator[Any]:
    """Keep only the events of these types; raises UsageError if no type is given."""
    if not types:
        raise UsageError("of_type() needs at least one type; pass a type, such as TextDelta")
    return _filtered(source, types)


async def _filtered(
    source: AsyncIterable[object], types: tuple[type[Any], ...]
) -> AsyncIterator[Any]:
    async with streamcontext(source) as streamer:
        async for item in streamer:
            if isinstance(item, types):
                yield item


# ── coalesce ────────────────────────────────────────────────────────────────────────────────


class _Limits(TypedDict, total=False):
    chars: int | None
    seconds: float | None


class _Coalesce(Protocol):
    """An aiostream operator whose output has the same type as its input."""

    def __call__(self, source: AsyncIterable[T], /, **limits: Unpack[_Limits]) -> Stream[T]: ...

    def pipe(self, **limits: Unpack[_Limits]) -> Callable[[AsyncIterable[T]], Stream[T]]: ...

    def raw(self, source: AsyncIterable[T], /, **limits: Unpack[_Limits]) -> AsyncIterator[T]: ...


def _coalesce(operator: Callable[..., AsyncIterator[Any]]) -> _Coalesce:
    return cast(_Coalesce, pipable_operator(operator))


@_coalesce
def coalesce(
    source: AsyncIterable[object], *, chars: int | None = None, seconds: float | None = None
) -> AsyncIterator[object]:
    """Join small pieces: strings, or the text and reasoning deltas of one step.

    A joined piece is sent when it has at least `chars` characters, or when `seconds` have passed
    since its first part arrived. The piece is also sent before any other event, before an
    exception, and at the end of the stream. A joined delta has the `seq` of its last part. Coalesce
    before you merge, because deltas of different chats are never joined. Raises UsageError if
    neither limit is given, or if a limit is not positive.
    """
    if chars is None and seconds is None:
        raise UsageError("coalesce() needs a limit; pass chars=, seconds= or both")
    if chars is not None and chars < 1:
        raise UsageError(f"coalesce(chars={chars!r}) must be at least 1")
    if seconds is not None and not seconds > 0:
        raise UsageError(f"coalesce(seconds={seconds!r}) must be more than 0")
    return _coalesced(source, chars or inf, seconds or inf)


async def _coalesced(
    source: AsyncIterable[object], chars: float, seconds: float
) -> AsyncIterator[object]:
    buffer = _Buffer(chars, seconds)
    async with streamcontext(source) as streamer, aclosing(_Reader(streamer)) as reader:
        while True:
            if buffer.pieces and seconds < inf and not await reader.ready(buffer.seconds_left()):
                yield buffer.take()
            try:
                item = await reader.next()
            except Exception as exc:  # only from the source: a consumer's is raised at a yield
                if buffer.pieces:
                    yield buffer.take()
                if isinstance(exc, StopAsyncIteration):
                    return
                raise
            if buffer.pieces and not buffer.goes_on(item):
                yield buffer.take()
            if not isinstance(item, _Piece):
                yield item
            elif buffer.add(item):
                yield buffer.take()


_Piece: TypeAlias = str | TextDelta | ReasoningDelta


class _Buffer:
    """The pieces that wait to be joined: all of the same kind, chat and step."""

    def __init__(self, chars: float, seconds: float) -> None:
        self.pieces: list[_Piece] = []
        self._chars = chars
        self._seconds = seconds
        self._clock = asyncio.get_running_loop().time
        self._size = 0
        self._due = inf

    def seconds_left(self) -> float:
        """The number of seconds until the pieces must be sent."""
        return max(0.0, self._due - self._clock())

    def goes_on(self, item: object) -> bool:
        """Return whether the item can be joined to the waiting pieces."""
        return _kind(item) == _kind(self.pieces[-1])

    def add(self, piece: _Piece) -> bool:
        """Add a piece; returns whether a limit is reached."""
        if not self.pieces:
            self._size = 0
            self._due = self._clock() + self._seconds
        self.pieces.append(piece)
        self._size += len(_text(piece))
        return self._size >= self._chars or self._clock() >= self._due

    def take(self) -> _Piece:
        """Remove all pieces and return them joined."""
        pieces, self.pieces = self.pieces, []
        last = pieces[-1]
        if len(pieces) == 1:
            return last
        whole = "".join(map(_text, pieces))
        return whole if isinstance(last, str) else last.replace(text=whole)


def _text(piece: _Piece) -> str:
    return piece if isinstance(piece, str) else piece.text


def _kind(item: object) -> tuple[object, ...]:
    if isinstance(item, (TextDelta, ReasoningDelta)):
        return type(item), item.chat_id, item.path, item.iteration
    return (type(item),)


class _Reader(Generic[T]):
    """Reads a source in a task, so that a wait can time out and be resumed later.

    Cancelling the wait itself would end the chat. The task reads at most one item ahead.
    """

    def __init__(self, source: AsyncIterator[T]) -> None:
        self._source = source
        self._task: asyncio.Future[T] | None = None

    async def ready(self, seconds: float) -> bool:
        """Return whether the next item, or the end, arrives in time; call `next` afterwards."""
        self._task = asyncio.ensure_future(anext(self._source))
        done, _ = await asyncio.wait([self._task], timeout=seconds)
        return bool(done)

    async def next(self) -> T:
        """Return the next item; exceptions of the source are raised here."""
        task, self._task = self._task, None
        return await (anext(self._source) if task is None else task)

    async def aclose(self) -> None:
        """Cancel the task and wait for its end, even if the caller is cancelled meanwhile."""
        task, self._task = self._task, None
        if task is None:
            return
        task.cancel()
        cancelled: asyncio.CancelledError | None = None
        while not task.done():
            try:
                await asyncio.wait([task])
            except asyncio.CancelledError as exc:
                cancelled = exc
        if not task.cancelled():
            task.exception()  # mark it as retrieved: there is no longer a caller to raise it in
        if cancelled is not None:
            raise cancelled


# ── sentences ───────────────────────────────────────────────────────────────────────────────


@pipable_operator
async def sentences(source: AsyncIterable[str]) -> AsyncIterator[str]:
    """Whole sentences, each as soon as its end is certain, with surrounding white space removed.

    A sentence ends after `.` `!` `?` `…` (and a closing quote or bracket) if white space follows;
    after `。` `！` `？`; and at the end of a line. When the source ends, the remaining text is
    sent. If the source raises, the remaining text is sent before the exception. The number of a
    list item, such as `1.`, is not a sentence. Abbreviations are not recognized: "Dr. Who" counts
    as two sentences.
    """  # noqa: RUF002 – the full-width signs are meant
    splitter = _Splitter()
    async with streamcontext(source) as streamer:
        while True:
            try:
                piece = await anext(streamer)
            except Exception as exc:  # only from the source: a consumer's is raised at a yield
                if rest := splitter.rest():
                    yield rest
                if isinstance(exc, StopAsyncIteration):
                    return
                raise
            for sentence in splitter.feed(piece):
                yield sentence


_SPACED_ENDS = frozenset(".!?…")
_CJK_ENDS = frozenset("。！？")  # noqa: RUF001
_CLOSERS = frozenset("\"'”’»)]}*_`」』”’）】》")  # noqa: RUF001 – so are these


class _Splitter:
    """Finds sentences in text that arrives in pieces; reads each character once."""

    def __init__(self) -> None:
        self._parts: list[str] = []  # of the unfinished sentence
        self._end: frozenset[str] | None = None  # the kind of the last end mark, if just read

    def feed(self, piece: str) -> Iterator[str]:
        """Return the sentences that are certain to be complete."""
        begin = 0
        for at, char in enumerate(piece):
            if char in _SPACED_ENDS:
                self._end = self._end or _SPACED_ENDS
            elif char in _CJK_ENDS:
                self._end = _CJK_ENDS
            elif char == "\n" or (self._end and self._is_over(char)):
                self._parts.append(piece[begin:at])
                begin = at
                self._end = None
                if (char == "\n" or not self._is_number()) and (sentence := self.rest()):
                    yield sentence
            elif char not in _CLOSERS:
                self._end = None
        self._parts.append(piece[begin:])

    def _is_over(self, char: str) -> bool:
        """Return whether this character, after an end mark, begins something new."""
        return char.isspace() or (self._end is _CJK_ENDS and char not in _CLOSERS)

    def _is_number(self) -> bool:
        """Return whether the text so far is only the number of a list item."""
        number = "".join(self._parts).strip()
        return number[-1:] == "." and number[:-1].isdigit()

    def rest(self) -> str:
        """Return the remaining text, and forget it."""
        sentence = "".join(self._parts).strip()
        self._parts.clear()
        return sentence
