"""The suspects that a worker has claimed: chats that may have killed their last worker.

A suspect waits until its worker runs nothing else, but not for ever, and nothing else begins before
it has recorded a call. The suspect whose call began last is tried first.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping

from hookline.durable._polled.chat_life import Life
from hookline.durable._polled.claims import Claim
from hookline.durable._shared.deaths import PATIENCE, TRIAL


class Suspects:
    """The suspects of one worker; one at a time may begin."""

    def __init__(self) -> None:
        self.waiting: dict[str, tuple[Claim, float]] = {}  # by owner, each with its time
        self._alone: tuple[str, float] | None = None  # the one that runs alone, and until when
        self._last_begin = 0.0
        self.prime: set[str] = set()
        """The chats whose call was the last to begin in a worker that died."""

    def add(self, claim: Claim) -> None:
        """Let a suspect wait for its turn."""
        self.waiting[claim.owner] = claim, time.monotonic()

    def is_alone(self, lives: Mapping[str, Life]) -> bool:
        """Return whether a suspect runs beside which nothing may begin yet."""
        if self._alone is None:
            return False
        owner, until = self._alone
        life = lives.get(owner)
        if life is None:
            self._alone = None
        elif life.log.is_cleared or time.monotonic() >= until:
            self._alone = None
            if self.waiting:  # it makes room for them between two steps
                life.journal.drain()
        return self._alone is not None

    def next(self, lives: Mapping[str, Life]) -> Claim | None:
        """Return the suspect whose turn it is: it begins, or has waited for too long."""
        if not self.waiting or self.is_alone(lives):
            return None
        owner, (claim, start) = max(self.waiting.items(), key=self._rank)
        now = time.monotonic()
        is_first = claim.strikes == 1
        until = max(start, self._last_begin) + TRIAL if is_first else start + PATIENCE
        if lives and now < until:
            return None
        del self.waiting[owner]
        self._last_begin = now
        self._alone = owner, now + TRIAL if is_first else math.inf
        return claim

    def _rank(self, item: tuple[str, tuple[Claim, float]]) -> tuple[bool, float]:
        claim, _ = item[1]
        return claim.id in self.prime, claim.last or 0.0
