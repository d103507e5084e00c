"""The emitter: everything shared by the traced chats of one pair of providers."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping
from math import isfinite
from typing import Any, Final, Protocol

from opentelemetry.baggage import get_all, set_baggage
from opentelemetry.context import Context
from opentelemetry.trace import NonRecordingSpan, Tracer, get_current_span, set_span_in_context

from hookline import HookBus, Run, Usage
from hookline.models import PriceFunction
from hookline.otel._conventions import names
from hookline.otel._conventions.names import Semconv
from hookline.otel._emit.content import Content
from hookline.otel._emit.log_events import Events
from hookline.otel._emit.metrics import Instruments
from hookline.otel._emit.own_failures import report
from hookline.otel._emit.prefix_share import Prefixes

Attributes = Mapping[str, Any] | Callable[[Run[Any]], Mapping[str, Any]]
"""Additional attributes of every span: a mapping, or a function of the chat."""
MAX_ENDED: Final = 1_024  # the most ended chats that can still be evaluated


class Source(Protocol):
    """Provides the hooks that trace a chat."""

    def bus_for_chat(self, keys: Collection[object]) -> HookBus[Any] | None: ...


class Emitter:
    """A tracer, instruments and a logger, with the options for recording."""

    __slots__ = (
        "_attributes",
        "_price",
        "by_parent",
        "content",
        "details",
        "ended_chats",
        "events",
        "full",
        "instruments",
        "metered",
        "openinference",
        "prefixes",
        "semconv",
        "shows",
        "source",
        "tracer",
        "writes",
    )

    source: Source  # provides the hooks that use this emitter

    def __init__(
        self,
        tracer: Tracer,
        instruments: Instruments,
        events: Events,
        content: Content,
        *,
        semconv: Semconv,
        metered: bool,
        details: bool,
        full: bool,
        openinference: bool,
        price: PriceFunction | None,
        attributes: Attributes | None,
    ) -> None:
        self.tracer = tracer
        self.prefixes = Prefixes()
        self.instruments = instruments
        self.events = events
        self.content = content
        self.semconv = semconv
        self.metered = metered  # whether metrics are exported
        self.details = details  # whether each model call emits an event
        self.full = full  # whether each model call records the whole history
        self.openinference = openinference  # whether spans have OpenInference attributes, too
        self.shows = content.spans  # whether spans have content
        self.writes = details or content.enabled  # whether calls record content or events
        self.by_parent = _by_parent(tracer)  # whether children of unsampled spans are never sampled
        self.ended_chats: OrderedDict[str, Context] = OrderedDict()  # ended chats, by id
        self._price = price
        self._attributes = attributes

    def price(self, model: str, answered_by: str | None, usage: Usage) -> float | None:
        """Return the cost of a call, by the name of the answering or the requested model."""
        if self._price is None:
            return None
        try:
            price = self._price(answered_by, usage) if answered_by else None
            price = self._price(model, usage) if price is None else price
            cost = None if price is None else float(price)  # a Decimal would lose its whole batch
            return cost if cost is None or isfinite(cost) else None
        except Exception as exc:
            report(
                "price= raised or returned no number, so no cost is recorded for a model call", exc
            )
            return None

    def attributes(self, run: Run[Any]) -> dict[str, Any]:
        """Return the application's attributes for the spans of this chat."""
        attributes = self._attributes
        if attributes is None:
            return {}
        try:
            values = attributes(run) if callable(attributes) else attributes
            return {
                names.whole(str(key)): self.content.word(value)
                if isinstance(value, str)
                else self.content.own(value)
                for key, value in values.items()
                if value is not None
            }
        except Exception as exc:
            report("attributes= raised or is not a dict, so the spans lack these attributes", exc)
            return {}

    def keep(self, chat_id: str, context: Context) -> None:
        """Keep the ids and the baggage of an ended chat, for later evaluation.

        The context itself would keep the content of its span, and of the chat around it, in memory.
        """
        ids = get_current_span(context).get_span_context()
        ids_only = set_span_in_context(NonRecordingSpan(ids), Context())
        for name, value in get_all(context).items():
            ids_only = set_baggage(name, value, ids_only)
        self.ended_chats[chat_id] = ids_only
        self.ended_chats.move_to_end(chat_id)  # an earlier life of the chat may have ended long ago
        if len(self.ended_chats) > MAX_ENDED:
            self.ended_chats.popitem(last=False)


def _by_parent(tracer: Tracer) -> bool:
    """Return whether the sampler drops all children of a dropped span, as the SDK's own does."""
    sampler = getattr(tracer, "sampler", None)
    try:
        about = str(sampler.get_description()) if sampler is not None else ""
    except Exception:
        return False
    return about.startswith("ParentBased{") and "localParentNotSampled:AlwaysOffSampler" in about
