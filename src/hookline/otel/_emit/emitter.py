"""The emitter: everything shared by the traced chats of one pair of providers."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from math import isfinite
from typing import Any, Final

from opentelemetry.baggage import get_all, set_baggage
from opentelemetry.context import Context
from opentelemetry.trace import NonRecordingSpan, Tracer, get_current_span, set_span_in_context

from hookline import HookBus, ModelRequest, Run, Usage
from hookline.models import PrefixMeter, PriceFunction
from hookline.otel._conventions import names
from hookline.otel._conventions.names import Semconv
from hookline.otel._emit.content import Content
from hookline.otel._emit.log_events import Events
from hookline.otel._emit.metrics import Instruments
from hookline.otel._emit.own_failures import FailureReport

Attributes = Mapping[str, Any] | Callable[[Run[Any]], Mapping[str, Any]]
"""Additional attributes of every span: a mapping, or a function of the chat."""
MAX_ENDED: Final = 1_024  # the most ended chats that can still be evaluated


CONVERSATIONS: Final = 1000  # the most conversations whose last request is remembered


class Prefixes:
    """How much of each request equals the one before: a meter for each conversation and agent."""

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


@dataclass(eq=False, kw_only=True)
class Emitter:
    """A tracer, instruments and a logger, with the options for recording."""

    tracer: Tracer
    instruments: Instruments
    events: Events
    content: Content
    semconv: Semconv
    metered: bool  # whether metrics are exported
    details: bool  # whether each model call emits an event
    full: bool  # whether each model call records the whole history
    openinference: bool  # whether spans have OpenInference attributes, too
    price_function: PriceFunction | None
    own_attributes: Attributes | None  # of the application
    bus_for_chat: Callable[[Collection[object]], HookBus[Any]] = field(init=False)

    def __post_init__(self) -> None:
        self.prefixes = Prefixes()
        # whether calls record content or events
        self.writes = self.details or self.content.spans or self.content.events
        self.by_parent = _by_parent(self.tracer)  # whether no child of an unsampled span is sampled
        self.ended_chats: OrderedDict[str, Context] = OrderedDict()  # ended chats, by id

    def price(self, model: str, answered_by: str | None, usage: Usage) -> float | None:
        """Return the cost of a call, by the name of the answering or the requested model."""
        if self.price_function is None:
            return None
        with FailureReport(
            "price= raised or returned no number, so no cost is recorded for a model call"
        ):
            price = self.price_function(answered_by, usage) if answered_by else None
            price = self.price_function(model, usage) if price is None else price
            cost = None if price is None else float(price)  # a Decimal would lose its whole batch
            return cost if cost is None or isfinite(cost) else None
        return None

    def attributes(self, run: Run[Any]) -> dict[str, Any]:
        """Return the application's attributes for the spans of this chat."""
        attributes = self.own_attributes
        if attributes is None:
            return {}
        with FailureReport(
            "attributes= raised or is not a dict, so the spans lack these attributes"
        ):
            values = attributes(run) if callable(attributes) else attributes
            return {
                names.whole(str(key)): self.content.word(value)
                if isinstance(value, str)
                else self.content.own(value)
                for key, value in values.items()
                if value is not None
            }
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
