"""An operation: one span that is open, the context in which it is current, and its one end.

A span is made current by `attach`, around an await that never yields to a stranger. It is never
detached by token: what closes a forgotten coroutine may do so in another context, where a token is
no good. Instead the former context is put back, and only where this operation is still the
innermost one.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextvars import ContextVar
from time import time_ns
from typing import Any, Final, Protocol

from opentelemetry.context import attach, get_current
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, Tracer, set_span_in_context

from hookline import HookBus
from hookline.otel._names import ERROR_TYPE

_inside: ContextVar[Operation | None] = ContextVar("hookline_otel_operation", default=None)
_ERROR: Final = StatusCode.ERROR


def innermost() -> Operation | None:
    """The operation that this code runs in."""
    return _inside.get()


class Source(Protocol):
    """Brings the hooks that trace a chat."""

    def bus_for_chat(self, beside: Collection[object]) -> HookBus[Any] | None: ...


class Maker(Protocol):
    """With what an operation is made: a tracer, and what brings the hooks that trace with it."""

    tracer: Tracer
    source: Source


class Operation:
    """One span; its attributes but the first ones are written at its end, all at once."""

    __slots__ = (
        "_around", "_before", "attributes", "context", "ended", "source", "span", "start",
    )  # fmt: skip

    def __init__(
        self, maker: Maker, name: str, kind: SpanKind, attributes: Mapping[str, Any]
    ) -> None:
        self.source = maker.source
        self.start = time_ns()
        self.ended = False
        self.attributes: dict[str, Any] = {}
        before = self._before = get_current()
        self._around = _inside.get()
        self.span: Span = maker.tracer.start_span(
            name, context=before, kind=kind, attributes=attributes, start_time=self.start
        )
        self.context = set_span_in_context(self.span, before)
        attach(self.context)
        _inside.set(self)

    def leave(self) -> None:
        """It is not current any more."""
        if _inside.get() is self:
            attach(self._before)
            _inside.set(self._around)

    def finish(self, at: int, error: str | None = None, text: str | None = None) -> float:
        """End the span; gives the seconds that it took."""
        self.ended = True
        span = self.span
        if span.is_recording():
            if error is not None:
                self.attributes[ERROR_TYPE] = error
                span.set_status(Status(_ERROR, text))
            if self.attributes:
                span.set_attributes(self.attributes)
        span.end(at)
        return max(at - self.start, 0) / 1e9

    def drop(self) -> None:
        """End the span as it is: something failed while it was told how it went."""
        if not self.ended:
            self.ended = True
            self.span.end()
