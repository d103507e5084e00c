"""The life of a chat as a table: five phases, the signs that move it on, one verdict.

Theory of operation. A chat is NEW until aroundChat has called `proceed`, and RUNNING until its end
is decided. Its verdict – done, aborted or error, with what reaches the caller – is the first one
that anybody gives: the chat itself with its answer, an abort, a failure, a cancellation by somebody
else. A verdict other than done breaks the chat: in BREAKING nothing new begins, and what still runs
is cancelled and waited for, no longer than the grace period. Then it is ENDING: the broken step is
closed, and the observers of the outcome run. When the caller has its result the chat is OVER.

    NEW ── proceed ──▶ RUNNING ── answered ──────────────────────────▶ ENDING ── ended ──▶ OVER
                          └── abort, fail, cut ──▶ BREAKING ── caught, grace over ──▲

Two rules make this safe. The phase is moved by the chat's own event loop alone. A verdict may come
from any thread and from a signal handler, so it takes no lock: all verdicts are appended to one
list, which is atomic, and the first of the list counts. Whoever asks for the phase in between sees
what the table makes of both.

A chat that is broken before it was RUNNING never begins: it is OVER with a verdict and without an
outcome, so that no observer hears of it. `halt` ends a life at once and at any moment, without an
outcome too: an exit of the process, or a runtime that goes on with the chat elsewhere.
"""

from __future__ import annotations

from enum import Enum, IntEnum, auto
from typing import Final

import msgspec

from hookline._base.returns import Outcome


class Phase(IntEnum):
    """Where a chat is; a later one is greater."""

    NEW = auto()
    RUNNING = auto()
    BREAKING = auto()
    ENDING = auto()
    OVER = auto()


class Sign(Enum):
    """What moves a chat from one phase to the next."""

    PROCEED = "aroundChat proceeds"
    ANSWERED = "nothing is left to do"
    ABORT = "abort()"
    FAIL = "an error"
    CUT = "cancelled by others"
    CAUGHT = "what ran has ended"
    GRACE_OVER = "what ran is left behind"
    ENDED = "the result is there"
    HALT = "an exit, or Halted"

    __hash__ = object.__hash__  # members are single, and Enum's own is slow


MOVES: Final = {
    (Phase.NEW, Sign.PROCEED): Phase.RUNNING,
    (Phase.NEW, Sign.ABORT): Phase.OVER,
    (Phase.NEW, Sign.FAIL): Phase.OVER,
    (Phase.NEW, Sign.ENDED): Phase.OVER,  # what was wrong before it began reaches the caller alone
    (Phase.NEW, Sign.HALT): Phase.OVER,
    (Phase.RUNNING, Sign.ANSWERED): Phase.ENDING,
    (Phase.RUNNING, Sign.ABORT): Phase.BREAKING,
    (Phase.RUNNING, Sign.FAIL): Phase.BREAKING,
    (Phase.RUNNING, Sign.CUT): Phase.BREAKING,
    (Phase.RUNNING, Sign.HALT): Phase.OVER,
    (Phase.BREAKING, Sign.CAUGHT): Phase.ENDING,
    (Phase.BREAKING, Sign.GRACE_OVER): Phase.ENDING,
    (Phase.BREAKING, Sign.HALT): Phase.OVER,
    (Phase.ENDING, Sign.ENDED): Phase.OVER,
    (Phase.ENDING, Sign.HALT): Phase.OVER,
}
"""Every move there is; docs/images/phases.svg is drawn from it."""

OUTCOMES: Final[dict[Sign, Outcome]] = {
    Sign.ANSWERED: "done",
    Sign.ABORT: "aborted",
    Sign.CUT: "aborted",
    Sign.FAIL: "error",
}
"""The signs that carry a verdict, and what it is."""


class Verdict(msgspec.Struct, frozen=True):
    """How a chat ends."""

    sign: Sign
    error: BaseException | None = None  # what the chat raises
    reason: str | None = None  # of an abort
    by_reader: bool = False  # whose abort it is: the stream's reader is not told by an error

    @property
    def outcome(self) -> Outcome:
        """Its outcome."""
        return OUTCOMES[self.sign]

    @property
    def failure(self) -> Exception | None:
        """The error, where it is not the cancellation by somebody else."""
        return self.error if isinstance(self.error, Exception) else None


DONE: Final = Verdict(Sign.ANSWERED)


class Life:
    """Where one chat is, and how it ends."""

    __slots__ = ("_own", "_verdicts", "broken", "late", "outcome")

    def __init__(self) -> None:
        self._own = Phase.NEW  # where its event loop has moved it
        self._verdicts: list[Verdict] = []
        self.broken = False
        """Aborted or failed: nothing new begins. Read before each thing that would."""
        self.outcome: Outcome | None = None
        """The verdict's, from the moment on at which the ending carries it out."""
        self.late: tuple[Exception, ...] = ()
        """Raised at onChatDone: too late for the outcome, and the caller gets the first."""

    @property
    def phase(self) -> Phase:
        """The phase, whoever asks."""
        if self.broken and self._verdicts:
            return MOVES.get((self._own, self._verdicts[0].sign), self._own)
        return self._own

    @property
    def verdict(self) -> Verdict | None:
        """How the chat ends, where that is decided."""
        return self._verdicts[0] if self._verdicts else None

    @property
    def error(self) -> BaseException | None:
        """What the chat raises; never kept by a caller whose frame it would hold."""
        return self._verdicts[0].error if self._verdicts else None

    def decide(self, verdict: Verdict) -> bool:
        """Give a verdict, from any thread: False where it comes too late."""
        if (self.phase, verdict.sign) not in MOVES:
            return False
        self._verdicts.append(verdict)
        first = self._verdicts[0]
        if first is DONE:
            return verdict is DONE
        self.broken = True  # set by a loser too: it may look before the winner has come to it
        return verdict is first

    def move(self, sign: Sign) -> bool:
        """Move on, in the chat's own event loop: False where the table has no such move."""
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
        """Drop the exceptions, whose tracebacks hold the chat."""
        self.late = ()
        if self._verdicts and self._verdicts[0].error is not None:
            self._verdicts = [msgspec.structs.replace(self._verdicts[0], error=None)]
