"""How much of each request equals the one before, for the attribute `hookline.prefix`."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, Final

from hookline import ModelRequest, Run
from hookline.models import PrefixMeter

CONVERSATIONS: Final = 1000
"""The number of conversations whose last request is remembered."""


class Prefixes:
    """A meter for each conversation and agent, the most recently used last."""

    def __init__(self) -> None:
        self._meters: OrderedDict[tuple[str, str], PrefixMeter] = OrderedDict()

    def share(self, run: Run[Any], request: ModelRequest) -> float | None:
        """Return the part of the request that equals the start of the one before; None for the
        first request."""
        key = (run.conversation_id or run.chat_id, run.agent)
        meter = self._meters.setdefault(key, PrefixMeter())
        self._meters.move_to_end(key)
        if len(self._meters) > CONVERSATIONS:
            self._meters.popitem(last=False)
        prefix = meter.measure(request)
        return None if prefix is None else prefix.share
