"""What is recorded of a durable chat: the lines of its log, how they are read and written.

A log is a list of batches, a batch a list of lines as JSON with the number of its format. A line is
stored data: its fields are only ever added to. An abort has its place among the ends: after those
that stand before it, and after those of the steps that it found running and that ended all the
same. From there on order does not count, since what an abort cuts off never asks for its record.
"""

from __future__ import annotations

import asyncio
import sys
from collections import Counter, defaultdict, deque
from collections.abc import Awaitable, Callable
from typing import Final, Literal, Protocol

import msgspec

from hookline._base.cancel import shielded
from hookline._base.errors import JournalError
from hookline._base.returns import ApprovalRequest, Decision
from hookline._base.runtime import Effects, Halted

FORMAT: Final = 1


class Log(Protocol):
    """What an engine keeps of one chat."""

    async def read(self) -> list[bytes]:
        """All batches, the oldest first."""
        ...

    async def append(self, data: bytes) -> None:
        """Add a batch: durable on return. Raises Halted when this life has lost the chat."""
        ...

    async def answer(self, request: ApprovalRequest) -> Decision:
        """Wait for the answer to this question, or give Deny when its time has run out.

        One that was given before the wait began, or in an earlier life, counts too.
        """
        ...

    def poke(self) -> None:
        """Look again: `Journal.resting` may have changed, so the engine may put the chat aside."""
        ...


class Line(msgspec.Struct, frozen=True, omit_defaults=True):
    """One entry of a log."""

    kind: Literal["life", "begin", "end", "now", "wait", "abort", "late"]
    """Begin of a life or a step, end of a step, a time, a question, an abort, one in vain."""
    key: str = ""
    """The step's name, or the id of the question."""
    value: msgspec.Raw = msgspec.Raw(b"null")
    """What the step gave."""
    effects: Effects | None = None
    """The step's effects beside its value."""
    cut: bool = False
    """The step was cut off by an abort that it had asked for."""
    at: float = 0.0
    """What the clock said."""
    reason: str | None = None
    """Of the abort."""
    before: int | None = None
    """The place of the end that it stands before, where it was not the last one."""


class Batch(msgspec.Struct, frozen=True):
    """What is appended at once."""

    hookline: int
    """The number of its format."""
    lines: list[Line]
    """In the order in which things happened."""


class _Head(msgspec.Struct, frozen=True):
    hookline: int


_head: Final = msgspec.json.Decoder(_Head)
_batch: Final = msgspec.json.Decoder(Batch)
_encode: Final = msgspec.json.Encoder().encode


def encode_lines(lines: list[Line]) -> bytes:
    """A batch of these lines."""
    return _encode(Batch(FORMAT, lines))


def read_lines(chat_id: str, batches: list[bytes]) -> list[Line]:
    """The lines of a log. Raises JournalError for what cannot be read, or is of a newer format."""
    lines: list[Line] = []
    for number, data in enumerate(batches):
        try:
            format = _head.decode(data).hookline
            if format <= FORMAT:
                lines += _batch.decode(data).lines
        except (msgspec.DecodeError, UnicodeDecodeError) as exc:
            raise JournalError(chat_id, f"batch {number} of its log cannot be read") from exc
        if format > FORMAT:
            raise JournalError(
                chat_id,
                f"batch {number} of its log is in format {format}, and this hookline knows "
                f"{FORMAT}: a newer one wrote it",
            )
    return lines


class Past:
    """What earlier lives have recorded, and how much of it was given back."""

    def __init__(self, lines: list[Line]) -> None:
        self.lives = sum(line.kind == "life" for line in lines)
        self.nows = deque(line.at for line in lines if line.kind == "now")
        self.begun = Counter(line.key for line in lines if line.kind == "begin")
        self.asked = {line.key for line in lines if line.kind == "wait"}
        self.abort: Line | None = None
        self.abort_at = 0  # ends that stand before it, and of steps that it found running
        self.given = 0
        self._order: list[Line] = []
        self._begun = False  # a step, since the abort
        self._ignored = False  # a further abort, which changes nothing
        for line in lines:
            self._read(line)
        self.total = len(self._order)
        self._ends: defaultdict[str, deque[tuple[int, Line]]] = defaultdict(deque)
        for place, line in enumerate(self._order):
            self._ends[line.key].append((place, line))

    def _read(self, line: Line) -> None:
        if line.kind == "end":
            self._place(line)
        elif line.kind == "begin":
            self._begun = self.abort is not None
        elif line.kind == "abort":
            self._ignored = self.abort is not None
            if self.abort is None:
                self.abort, self.abort_at = line, len(self._order)
        elif line.kind == "late" and not self._ignored:
            self.abort = None

    def _place(self, line: Line) -> None:
        if line.before is None:
            self._order.append(line)
        else:  # of a step that is newer than what is recorded around it
            self._order.insert(line.before, line)
            self.abort_at += self.abort is not None and line.before < self.abort_at
        if self.abort is not None and not self._begun:
            self.abort_at = len(self._order)

    def take(self, name: str) -> tuple[int, Line] | None:
        """The next recorded end of this step, and its place."""
        ends = self._ends.get(name)
        return ends.popleft() if ends else None

    @property
    def next(self) -> str | None:
        """The step whose end is given back next."""
        return self._order[self.given].key if self.given < self.total else None


_PHASES: Final = ("request", "model", "response", "call", "pending", "end", "say")


def rank_of(name: str) -> tuple[int, int] | None:
    """Where a step stands in the life of a chat; None where its name does not tell."""
    parts = name.split("/")
    if parts[0] == "step":
        return int(parts[1]), _PHASES.index(parts[2])
    if parts[0] in ("start", "preChat"):
        return -1, 0 if parts[0] == "start" else 1
    return None if parts[0] in ("message", "stop") else (sys.maxsize, 0)  # else of the ending


# ── writing ─────────────────────────────────────────────────────────────────────────────────


class Writer:
    """The one writer of a log: it appends what is there as one batch, again and again."""

    def __init__(self, log: Log, halt: Callable[[BaseException | None], None]) -> None:
        self._log = log
        self._halt = halt  # nothing can be recorded any more
        self._stopped = False
        self._lines: list[Line] = []
        self._waiting: list[asyncio.Future[None]] = []  # until these lines are durable
        self._sent: list[asyncio.Future[None]] = []  # the same, of the batch that is on its way
        self._wake: asyncio.Future[None] | None = None
        self.before: Callable[[], Awaitable[None]] | None = None
        """Awaited before each batch."""

    @property
    def idle(self) -> bool:
        """Whether nothing is to be written."""
        return not self._lines and not self._sent

    def note(self, line: Line) -> None:
        """Write this with the next line that somebody waits for."""
        self._lines.append(line)

    async def write(self, line: Line) -> None:
        """Write this, and wait until it is durable. Raises Halted where it cannot be."""
        self.note(line)
        await self.flush()

    async def flush(self) -> None:
        """Wait until all is durable."""
        if self._stopped:
            raise Halted
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(waiter)
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)
        _, cut = await shielded(waiter)
        if cut is not None:
            raise cut

    async def run(self) -> None:
        """Write until it is cancelled, or nothing can be written any more."""
        try:
            while True:
                if not self._waiting:
                    self._wake = asyncio.get_running_loop().create_future()
                    await self._wake
                lines, self._lines = self._lines, []
                self._sent, self._waiting = self._waiting, []
                if self.before is not None:
                    await self.before()
                if lines:
                    await self._log.append(encode_lines(lines))
                sent, self._sent = self._sent, []
                for waiter in sent:
                    if not waiter.done():
                        waiter.set_result(None)
                self._log.poke()
        except Halted:
            self._halt(None)
        except Exception as exc:  # a later life goes on
            self._halt(exc)

    def stop(self) -> None:
        """Nothing is written any more: whoever waits for it gets Halted."""
        self._stopped = True
        for waiter in (*self._sent, *self._waiting):
            refuse(waiter)


def refuse(waiter: asyncio.Future[None]) -> None:
    """Let whoever waits get Halted; it counts as retrieved where nobody does any more."""
    if not waiter.done():
        waiter.set_exception(Halted())
        waiter.exception()
