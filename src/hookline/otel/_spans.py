"""An operation: one span that is open, the context in which it is current, and its one end.

A span is made current by `attach`, around an await that never yields to a stranger. It is never
detached by token: what closes a forgotten coroutine may do so in another context, where a token is
no good. Instead the former context is put back, and only where this operation is still the
innermost one.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import ContextVar
from time import time_ns
from typing import Any, Final

from opentelemetry.context import Context, attach, get_current
from opentelemetry.trace import (
    INVALID_SPAN,
    Span,
    SpanKind,
    Status,
    StatusCode,
    set_span_in_context,
)

from hookline.otel._kit import Kit
from hookline.otel._names import ERROR_TYPE

_inside: ContextVar[Operation | None] = ContextVar("hookline_otel_operation", default=None)
_ERROR: Final = StatusCode.ERROR
_CURRENT: Final = next(iter(set_span_in_context(INVALID_SPAN, Context())))  # a context's key of it


def innermost() -> Operation | None:
    """The operation that this code runs in."""
    return _inside.get()


class Operation:
    """One span; its attributes but the first ones are written at its end, all at once."""

    __slots__ = (
        "_around", "_before", "attributes", "context", "ended", "kit", "span", "start",
    )  # fmt: skip

    def __init__(self, kit: Kit, name: str, kind: SpanKind, attributes: Mapping[str, Any]) -> None:
        self.kit = kit
        self.ended = False
        self.attributes: dict[str, Any] = {}
        self._around = _inside.get()
        before = self._before = get_current()
        start = self.start = time_ns()
        span: Span = kit.tracer.start_span(
            name, context=before, kind=kind, attributes=attributes, start_time=start
        )
        self.span = span
        context = self.context = Context({**before, _CURRENT: span})
        attach(context)
        _inside.set(self)

    def leave(self) -> None:
        """It is not current any more."""
        if _inside.get() is self:
            attach(self._before)
            _inside.set(self._around)

    def finish(self, at: int, error: str | None = None, text: str | None = None) -> None:
        """End the span."""
        self.ended = True
        span = self.span
        if error is not None:
            self.attributes[ERROR_TYPE] = error
        if self.attributes and span.is_recording():
            if error is not None:
                span.set_status(Status(_ERROR, text))
            span.set_attributes(self.attributes)
        span.end(at)

    def seconds(self, at: int) -> float:
        """How long it took until then."""
        return max(at - self.start, 0) / 1e9

    def drop(self) -> None:
        """End the span as it is: something failed while it was told how it went."""
        if not self.ended:
            self.ended = True
            self.span.end()
