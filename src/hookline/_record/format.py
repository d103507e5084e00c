"""The record of a durable chat: the lines of its log, and how to read and write them.

A log is a list of batches. A batch is a list of lines as JSON, with the number of its format. Lines
are stored data, so fields are only ever added. An abort has its place among the ends of steps: it
follows the ends that are recorded before it, and the ends of steps that were running at the abort
and still ended. After the abort, order does not matter, because a step that the abort cut off never
asks for its record.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict, deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Literal, Protocol

import msgspec

from hookline._base.cancel import finished
from hookline._base.errors import JournalError
from hookline._base.messages import encoded
from hookline._base.returns import ApprovalRequest, Decision, ErrorInfo
from hookline._record.runtime import Effects, Halted

FORMAT: Final = 1


class Log(Protocol):
    """The log that an engine keeps of one chat."""

    async def read(self) -> list[bytes]:
        """Return all batches, the oldest first."""
        ...

    async def append(self, data: bytes) -> None:
        """Append a batch, durably. Raises Halted if this life no longer owns the chat."""
        ...

    async def answer(self, request: ApprovalRequest) -> Decision:
        """Wait for the answer to this question; return Deny when the question expires.

        The answer may already exist when this method is called, for example from an earlier life.
        """
        ...

    def poke(self) -> None:
        """Check `Journal.resting` again; if it is true, the engine may suspend the chat."""
        ...


class Witness(Protocol):
    """Shows a durable chat to readers in other processes.

    The journal calls the witness during one life of the chat.
    """

    async def recording(self, seq: int) -> None:
        """Store the events up to the number `seq`, before the journal records these events."""
        ...

    def rests(self) -> None:
        """Record that the whole chat now waits for an answer."""
        ...

    async def asking(self) -> None:
        """Wait until the chat may accept an answer; called before each wait for an answer."""
        ...


class Line(msgspec.Struct, frozen=True, omit_defaults=True):
    """One entry of a log."""

    kind: Literal["life", "begin", "end", "now", "wait", "abort", "late"]
    """The start of a life or step, the end of a step, a time, a question, an abort, or a late
    abort."""
    key: str = ""
    """The step's name, or the id of the question."""
    value: msgspec.Raw = msgspec.Raw(b"null")
    """The result of the step, or the question."""
    effects: Effects | None = None
    """The effects of the step, apart from its result."""
    cut: bool = False
    """Whether the step was cut off by an abort that the step itself had requested."""
    error: ErrorInfo | None = None
    """The exception of the step, if the chat has ended or gone on without the step's result."""
    at: float = 0.0
    """The recorded time."""
    reason: str | None = None
    """The reason of the abort."""
    before: int | None = None
    """The index at which this end is inserted into the recorded ends; None to append it."""


class Batch(msgspec.Struct, frozen=True):
    """Lines that are appended together."""

    hookline: int
    """The version number of the format."""
    lines: list[Line]
    """The lines, in the order in which they happened."""


class _Head(msgspec.Struct, frozen=True):
    hookline: int


_head: Final = msgspec.json.Decoder(_Head)
_batch: Final = msgspec.json.Decoder(Batch)
_encode: Final = msgspec.json.Encoder().encode


def encode_lines(lines: list[Line]) -> bytes:
    """Encode these lines as a batch."""
    try:
        return _encode(Batch(FORMAT, lines))
    except UnicodeEncodeError:
        return _encode(Batch(FORMAT, [_without_secrets(line) for line in lines]))


def _without_secrets(line: Line) -> Line:
    """Replace lone surrogates, which the reason of an abort may contain."""
    effects = msgspec.json.decode(encoded(line.effects), type=Effects | None)
    reason = msgspec.json.decode(encoded(line.reason), type=str | None)
    return msgspec.structs.replace(line, effects=effects, reason=reason)


def read_log(chat_id: str, batches: list[bytes]) -> tuple[Line, ...]:
    """Return the lines of a durable chat's log; raises JournalError if it cannot be read."""
    lines: list[Line] = []
    for number, data in enumerate(batches):
        try:
            # Read the number first: the lines of a newer format may have another shape.
            format = _head.decode(data).hookline
            if format <= FORMAT:
                lines += _batch.decode(data).lines
        except (msgspec.DecodeError, UnicodeDecodeError) as exc:
            raise JournalError(chat_id, f"batch {number} of its log cannot be read") from exc
        if format > FORMAT:
            raise JournalError(
                chat_id,
                f"batch {number} of its log is in format {format}, but this version of hookline "
                f"reads only formats up to {FORMAT}",
            )
    return tuple(lines)


def last_event(lines: Sequence[Line]) -> int:
    """The number of the last event that these lines count as published; 0 if there is none."""
    return max((line.effects.seq for line in lines if line.effects is not None), default=0)


class Past:
    """The record of earlier lives, and how much of it has been replayed."""

    def __init__(self, lines: Sequence[Line]) -> None:
        self.lives = sum(line.kind == "life" for line in lines)
        self.nows = deque(line.at for line in lines if line.kind == "now")
        self.begin_counts = Counter(line.key for line in lines if line.kind == "begin")
        self.wait_keys = {line.key for line in lines if line.kind == "wait"}
        self.abort: Line | None = None
        self.abort_at = 0  # the number of ends before the abort, as defined at the top
        self.position = 0
        self.seq = last_event(lines)
        """The number of the last event that counts as published."""
        self._order: list[Line] = []
        self._has_begun_after_abort = False  # whether a step began after the abort
        self._has_second_abort = False  # whether a further abort followed, which changes nothing
        for line in lines:
            self._read(line)
        self.total = len(self._order)
        self._ends: defaultdict[str, deque[tuple[int, Line]]] = defaultdict(deque)
        for place, line in enumerate(self._order):
            self._ends[line.key].append((place, line))
        self._inserted = 0  # ends that this life has inserted before the next recorded end
        self._skip_places: set[int] = set()

    def _read(self, line: Line) -> None:
        if line.kind == "end":
            self._place(line)
        elif line.kind == "begin":
            self._has_begun_after_abort = self.abort is not None
        elif line.kind == "abort":
            self._has_second_abort = self.abort is not None
            if self.abort is None:
                self.abort, self.abort_at = line, len(self._order)
        elif line.kind == "late" and not self._has_second_abort:
            self.abort = None

    def _place(self, line: Line) -> None:
        if line.before is None:
            self._order.append(line)
        else:  # the end of a step that is newer than the record around it
            self._order.insert(line.before, line)
            self.abort_at += self.abort is not None and line.before < self.abort_at
        if self.abort is not None and not self._has_begun_after_abort:
            self.abort_at = len(self._order)  # the step was running at the abort

    def take(self, name: str) -> tuple[int, Line] | None:
        """Take the next recorded end of this step, with its place."""
        ends = self._ends.get(name)
        return ends.popleft() if ends else None

    @property
    def next(self) -> str | None:
        """The name of the step whose end is replayed next."""
        return self._order[self.position].key if self.position < self.total else None

    @property
    def rest(self) -> list[str]:
        """The names of the steps whose ends are yet to be replayed."""
        return [line.key for line in self._order[self.position :]]

    def skip(self) -> Line:
        """Go past the next recorded end. A step that asks for it later still gets its value."""
        self._skip_places.add(self.position)
        line = self._order[self.position]
        self.position += 1
        return line

    def was_skipped(self, place: int) -> bool:
        """Whether the effects of the end at this place have been applied already."""
        return place in self._skip_places

    def insert(self) -> int:
        """The index for an end before the next recorded end: the later ones move by one."""
        self._inserted += 1
        return self.position + self._inserted - 1


# ── writing ─────────────────────────────────────────────────────────────────────────────────


class Writer:
    """The only writer of a log: repeatedly appends all waiting lines as one batch."""

    def __init__(
        self,
        log: Log,
        halt: Callable[[BaseException | None], None],
        before: Callable[[int], Awaitable[None]],
        after: Callable[[], None],
    ) -> None:
        self._log = log
        self._halt = halt  # called when nothing can be recorded any longer
        self._before = before  # called before a batch, with the number of its last published event
        self._after = after  # called after a batch
        self._is_stopped = False
        self._lines: list[Line] = []
        self._waiting: list[asyncio.Future[None]] = []  # callers that wait for these lines
        self._in_flight: list[asyncio.Future[None]] = []  # and for the batch being sent
        self._wake = asyncio.Event()  # whether a caller waits

    @property
    def idle(self) -> bool:
        """Whether no caller is waiting for a write."""
        return not self._waiting and not self._in_flight

    def note(self, line: Line) -> None:
        """Write this line together with the next line that a caller waits for."""
        self._lines.append(line)

    async def write(self, line: Line) -> None:
        """Write this line and wait until it is durable. Raises Halted if it cannot be written."""
        self.note(line)
        await self.flush()

    async def flush(self) -> None:
        """Wait until all lines are durable."""
        if self._is_stopped:
            raise Halted
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(waiter)
        self._wake.set()
        # The line is written even if the caller is cancelled, and then counts in later lives. So
        # the caller, too, must know whether it was written.
        await finished(waiter)

    async def run(self) -> None:
        """Write until the task is cancelled, or writing is no longer possible."""
        try:
            while True:
                await self._wake.wait()
                self._wake.clear()
                # Lines and callers that arrive during the write belong to the next batch.
                lines, self._lines = self._lines, []
                self._in_flight, self._waiting = self._waiting, []
                if lines:
                    await self._before(last_event(lines))
                    await self._log.append(encode_lines(lines))
                futures, self._in_flight = self._in_flight, []
                for waiter in futures:
                    if not waiter.done():
                        waiter.set_result(None)
                self._after()
        except Halted:
            self._halt(None)
        except Exception as exc:  # a later life continues the chat
            self._halt(exc)

    def stop(self) -> None:
        """Stop writing: callers that wait for a write get Halted."""
        self._is_stopped = True
        for waiter in (*self._in_flight, *self._waiting):
            refuse(waiter)


def refuse(waiter: asyncio.Future[None]) -> None:
    """Raise Halted in the waiting caller; marked as retrieved in case no caller is left."""
    if not waiter.done():
        waiter.set_exception(Halted())
        waiter.exception()
