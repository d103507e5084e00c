"""When the death of a worker counts against a chat: the rule of all engines.

A life has died if its claim lapsed, unless it had not begun, or its worker was told to stop. The
death is taken back if the life reports later that it has only lost its claim. Two counts make the
strikes against a chat: the lives in a row that died without progress (a recorded call of the model
or a tool), and a quarter of all that died since a life with progress ended well. So a chat whose
workers are killed all the time goes on as long as it makes progress, and a chat that makes a little
progress in each life before it kills its worker is stopped too.

Of the chats whose worker has died, those that recorded something shortly before are suspects, and
so is each chat with two strikes. A suspect begins alone in its worker until it has recorded a call,
and from the second strike on after a delay that doubles. If suspects die again, it was one of them,
and the deaths of the chats that had died with them are taken back. `max_deaths` strikes put a chat
into quarantine.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Final, NamedTuple

import msgspec

from hookline.durable._job import encode_outcome
from hookline.errors import RemoteChatError
from hookline.runtimes import Batch

logger = logging.getLogger("hookline.durable")
FIRST_DELAY: Final = 0.5  # seconds before the life after the second strike
LONGEST_DELAY: Final = 300.0
TRIAL: Final = 1.0  # seconds within which a call that kills its worker is expected to do so
PATIENCE: Final = 30.0  # seconds for which a suspect waits until its worker runs nothing else
MAX_DEATHS: Final = 5
_PER_STRIKE: Final = 4  # deaths with progress that are one strike

_batch: Final = msgspec.json.Decoder(Batch)


class Toll(NamedTuple):
    """The deaths of a chat's lives since one of them ended well."""

    deaths: int = 0
    stalls: int = 0
    """Those in a row, up to the last one, that recorded no call."""

    @property
    def strikes(self) -> int:
        """The weight of the deaths."""
        return max(self.stalls, self.deaths // _PER_STRIKE)

    @property
    def delay(self) -> float:
        """The seconds before the next life."""
        if self.strikes < 2:
            return 0.0
        return min(FIRST_DELAY * 2.0 ** min(self.strikes - 2, 20), LONGEST_DELAY)

    def after(self, batches: Iterable[bytes]) -> Toll:
        """Return the toll after the death of the life that wrote these batches."""
        progress = Progress()
        try:
            has_call = any(progress.look(data) for data in batches)
        except msgspec.DecodeError:  # of newer code
            has_call = True
        return Toll(self.deaths + 1, 1 if has_call else self.stalls + 1)


def outcome_of(id: str, deaths: int) -> str:
    """Return the outcome of a quarantined chat."""
    return encode_outcome(id, RemoteChatError(id, "WorkerDied", words_of(id, deaths)))


def words_of(id: str, deaths: int) -> str:
    """Return why a chat is quarantined."""
    return (
        f"{deaths} workers died while they ran this chat; find out why, then call "
        f"retry({id!r}) or abort({id!r}, force=True)"
    )


def log_quarantine(id: str, deaths: int) -> None:
    """Log that a chat was quarantined."""
    logger.error("durable chat %s was quarantined: %d workers died while they ran it", id, deaths)


class _Ran(msgspec.Struct, frozen=True):
    began: bool = True


_ran: Final = msgspec.json.Decoder(_Ran | None)


class Progress:
    """Whether a life has recorded a call of the model or a tool that it had begun.

    A call that was interrupted does not run again, but the model may request it again. So a life
    that has reported one makes progress with the second call: the model's, and the next tool's.
    """

    def __init__(self) -> None:
        self._begins: set[str] = set()
        self._missing = 1  # calls
        self.exists = False

    def look(self, data: bytes) -> bool:
        """Look at the next batch of this life; returns whether there was progress so far."""
        for line in () if self.exists else _batch.decode(data).lines:
            if line.kind == "begin":
                self._begins.add(line.key)
            elif line.kind == "end" and is_call(line.key) and line.key in self._begins:
                ran = _ran.decode(line.value) if line.key.endswith("/run") else None
                self._missing = 2 if ran is not None and not ran.began else self._missing - 1
                self.exists = self.exists or self._missing <= 0
        return self.exists


def is_call(key: str) -> bool:
    """Return whether a step is a call of the model or a tool."""
    return key.endswith(("/model", "/run"))
