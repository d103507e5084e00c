"""When the death of a worker counts against a chat: the rule of all engines.

A life has died if its claim lapsed, and nobody released it; the death is taken back if the life
reports later that it has only lost its claim. A chat with deaths is a suspect: it begins alone in
its worker until it has recorded a model call or tool call, and from the second death on after a
delay that doubles. `max_deaths` lives in a row that recorded none put it into quarantine.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from hookline.durable._job import encode_outcome
from hookline.errors import RemoteChatError
from hookline.runtimes import Batch

FIRST_DELAY: Final = 0.5  # seconds before the life after the second death
LONGEST_DELAY: Final = 300.0
TRIAL: Final = 1.0  # seconds alone after one death, which most likely was not its own
PATIENCE: Final = 30.0  # seconds for which a suspect waits until its worker runs nothing else
MAX_DEATHS: Final = 5

_batch: Final = msgspec.json.Decoder(Batch)


def delay(deaths: int) -> float:
    """Return the seconds between a death and the next life."""
    return 0.0 if deaths < 2 else min(FIRST_DELAY * 2.0 ** min(deaths - 2, 20), LONGEST_DELAY)


def outcome_of(id: str, deaths: int) -> str:
    """Return the outcome of a quarantined chat."""
    words = (
        f"{deaths} workers in a row died while they ran this chat; find out why, then call "
        f"retry({id!r}) or abort({id!r}, force=True)"
    )
    return encode_outcome(id, RemoteChatError(id, "WorkerDied", words))


class Progress:
    """Whether a life has recorded a call of the model or a tool that it had begun."""

    def __init__(self) -> None:
        self._begun: set[str] = set()
        self.made = False

    def look(self, data: bytes) -> bool:
        """Look at the next batch of this life; returns whether there was progress so far."""
        if not self.made:
            for line in _batch.decode(data).lines:
                if line.kind == "begin":
                    self._begun.add(line.key)
                elif line.kind == "end" and _is_call(line.key) and line.key in self._begun:
                    self.made = True
        return self.made


def _is_call(key: str) -> bool:
    return key.endswith(("/model", "/run"))


def deaths_after(deaths: int, batches: Iterable[bytes]) -> int:
    """Return the deaths in a row after that of the life that wrote these batches."""
    progress = Progress()
    try:
        made = any(progress.look(data) for data in batches)
    except msgspec.DecodeError:  # of newer code
        made = True
    return 1 if made else deaths + 1
