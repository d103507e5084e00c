"""The kit: with what all chats of one pair of providers are traced."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Protocol

from opentelemetry.trace import Tracer

from hookline import HookBus
from hookline.otel._content import Content
from hookline.otel._events import Events
from hookline.otel._metrics import Instruments


class Source(Protocol):
    """Brings the hooks that trace a chat."""

    def bus_for_chat(self, beside: Collection[object]) -> HookBus[Any] | None: ...


class Kit:
    """A tracer, instruments, a logger, and what may be written with them."""

    __slots__ = (
        "content",
        "details",
        "events",
        "full",
        "instruments",
        "metered",
        "shows",
        "source",
        "tracer",
        "writes",
    )

    source: Source  # of the hooks that trace with this

    def __init__(
        self,
        tracer: Tracer,
        instruments: Instruments,
        events: Events,
        content: Content,
        *,
        metered: bool,
        details: bool,
        full: bool,
    ) -> None:
        self.tracer = tracer
        self.instruments = instruments
        self.events = events
        self.content = content
        self.metered = metered  # whether anybody reads the instruments
        self.details = details  # whether each model call emits an event
        self.full = full  # whether each model call writes the whole history
        self.shows = content.spans  # whether spans have content
        self.writes = details or content.wanted  # whether a call says more than its attributes
