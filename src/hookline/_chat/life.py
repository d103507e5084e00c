"""The life of a chat as a table: five phases, the signs that move it on, one verdict.

Theory of operation. A chat is NEW until aroundChat has called `proceed` and ChatStarted has room,
and RUNNING until its end is decided. It has one verdict, the first: done, aborted or error. A
verdict is given when nothing is left to do, by an abort, by a failure, or by a cancellation from
other code. Observers are told the outcome of the verdict, from the start of the ending on. A
verdict other than done breaks the chat. In BREAKING nothing new begins; running work is cancelled
and gets the grace period to end. Then the chat is ENDING: the broken step is closed, and the
observers of the outcome run. Once the caller has the result, the chat is OVER.

    NEW ── proceed ──▶ RUNNING ── answered ──────────────────────────▶ ENDING ── ended ──▶ OVER
                          └── abort, fail, cut ──▶ BREAKING ── caught, grace over ──▲

    Not drawn: HALT from any phase, and NEW → OVER.

Two rules make this safe. The phase is moved by the chat's own event loop alone. A verdict may come
from any thread and from a signal handler, so it takes no lock: verdicts are appended to one list,
which is atomic, and the first in the list counts. `phase` is therefore computed: from the phase
that the event loop has reached, it makes the move of the first verdict, if the loop has not made it
yet.

A chat that is broken before it is RUNNING never begins. It is OVER with a verdict but without an
outcome, and no observer runs. HALT ends a life, which is the run of a chat in one process, at any
moment and without an outcome: the process exits, or a runtime goes on with the chat elsewhere.
"""

from __future__ import annotations

from enum import Enum, IntEnum, auto
from typing import Final

import msgspec

from hookline._base.returns import Outcome


class Phase(IntEnum):
    """The phase of a chat; a later phase is greater."""

    NEW = auto()
    RUNNING = auto()
    BREAKING = auto()
    ENDING = auto()
    OVER = auto()


class Sign(Enum):
    """The causes that move a chat from one phase to the next."""

    PROCEED = "aroundChat proceeds"
    COMPLETE = "nothing is left to do"
    ABORT = "abort()"
    FAIL = "an error"
    CUT = "cancelled by others"
    CAUGHT = "running work has ended"
    GRACE_OVER = "running work is left behind"
    RESULT = "the result is there"
    HALT = "an exit, or Halted"

    __hash__ = object.__hash__  # members are single, and Enum's own is slow


MOVES: Final = {
    (Phase.NEW, Sign.PROCEED): Phase.RUNNING,
    (Phase.NEW, Sign.ABORT): Phase.OVER,
    (Phase.NEW, Sign.FAIL): Phase.OVER,
    (Phase.NEW, Sign.RESULT): Phase.OVER,  # a fault before the chat began concerns only the caller
    (Phase.NEW, Sign.HALT): Phase.OVER,
    (Phase.RUNNING, Sign.COMPLETE): Phase.ENDING,
    (Phase.RUNNING, Sign.ABORT): Phase.BREAKING,
    (Phase.RUNNING, Sign.FAIL): Phase.BREAKING,
    (Phase.RUNNING, Sign.CUT): Phase.BREAKING,
    (Phase.RUNNING, Sign.HALT): Phase.OVER,
    (Phase.BREAKING, Sign.CAUGHT): Phase.ENDING,
    (Phase.BREAKING, Sign.GRACE_OVER): Phase.ENDING,
    (Phase.BREAKING, Sign.HALT): Phase.OVER,
    (Phase.ENDING, Sign.RESULT): Phase.OVER,
    (Phase.ENDING, Sign.HALT): Phase.OVER,
}
"""All moves; docs/images/phases.svg is drawn from them."""

OUTCOMES: Final[dict[Sign, Outcome]] = {
    Sign.COMPLETE: "done",
    Sign.ABORT: "aborted",
    Sign.CUT: "aborted",
    Sign.FAIL: "error",
}
"""The outcome that each sign of a verdict stands for."""


class Verdict(msgspec.Struct, frozen=True):
    """The decision how a chat ends."""

    sign: Sign
    error: BaseException | None = None  # raised in the caller
    reason: str | None = None  # for an abort
    by_reader: bool = False  # the stream's reader aborted it, and gets no exception

    @property
    def outcome(self) -> Outcome:
        """The outcome of this phase."""
        return OUTCOMES[self.sign]

    @property
    def failure(self) -> Exception | None:
        """Its exception, unless that is a CancelledError."""
        return self.error if isinstance(self.error, Exception) else None


DONE: Final = Verdict(Sign.COMPLETE)


class Life:
    """The phase of one chat, and its verdict."""

    __slots__ = ("_own", "_verdicts", "broken", "late", "outcome")

    def __init__(self) -> None:
        self._own = Phase.NEW  # as its event loop has moved it
        self._verdicts: list[Verdict] = []
        self.broken = False
        """Aborted or failed. The engine checks this before it begins anything."""
        self.outcome: Outcome | None = None
        """The verdict's outcome, set when the ending begins."""
        self.late: tuple[Exception, ...] = ()
        """The first exception of onChatDone, too late for the outcome: raised in the caller."""

    @property
    def phase(self) -> Phase:
        """The current phase, for any thread."""
        if self.broken and self._verdicts:
            return MOVES.get((self._own, self._verdicts[0].sign), self._own)
        return self._own

    @property
    def verdict(self) -> Verdict | None:
        """The verdict, once there is one."""
        return self._verdicts[0] if self._verdicts else None

    @property
    def error(self) -> BaseException | None:
        """The chat's exception. Do not store it: its traceback keeps the chat's frames alive."""
        return self._verdicts[0].error if self._verdicts else None

    def decide(self, verdict: Verdict) -> bool:
        """Give a verdict, from any thread; return whether it is the one that counts."""
        if (self.phase, verdict.sign) not in MOVES:
            return False
        self._verdicts.append(verdict)
        first = self._verdicts[0]
        if first is not DONE:
            self.broken = True  # also set for a later verdict, whose thread may be first here
        return verdict is first

    def move(self, sign: Sign) -> bool:
        """Move on, in the chat's own event loop; return False if the table has no such move."""
        to = MOVES.get((self.phase, sign))
        if to is None:
            return False
        self._own = to
        if sign is Sign.HALT:
            self.broken = True
            self.outcome = None
        elif to is Phase.ENDING and self._verdicts:
            self.outcome = self._verdicts[0].outcome
        return True

    def forget(self) -> None:
        """Drop the exceptions, since their tracebacks refer to the chat."""
        self.late = ()
        if self._verdicts and self._verdicts[0].error is not None:
            self._verdicts = [msgspec.structs.replace(self._verdicts[0], error=None)]
