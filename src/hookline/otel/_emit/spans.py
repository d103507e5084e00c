"""An operation: an open span, the context in which it is current, and its end.

`attach` makes a span current, around an await that never yields to foreign code. The span is never
detached by its token: a forgotten coroutine may be closed in another context, in which the token is
invalid. Instead the previous context is restored, and only if this operation is still the innermost
one.
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

from hookline.otel._conventions.names import ERROR_TYPE
from hookline.otel._emit.emitter import Emitter

_inside: ContextVar[Operation | None] = ContextVar("hookline_otel_operation", default=None)
_ERROR: Final = StatusCode.ERROR
_CURRENT: Final = next(
    iter(set_span_in_context(INVALID_SPAN, Context()))
)  # the key of a context's span


def innermost() -> Operation | None:
    """Return the operation that the current code runs in."""
    return _inside.get()


class Place:
    """The current span of a task, to be restored."""

    __slots__ = ("context", "operation")

    def __init__(self) -> None:
        self.context = get_current()
        self.operation = innermost()

    def restore(self, operation: Operation) -> None:
        """Leave a span that was entered since: the earlier span is current again.

        Nothing happens in another task, or if the span is no longer the innermost one.
        """
        if _inside.get() is operation:
            attach(self.context)
            _inside.set(self.operation)


class Operation:
    """An open span; all attributes except the first ones are set together, at its end."""

    quiet: bool  # whether nothing below it is sampled
    span: Span

    def __init__(
        self, emitter: Emitter, name: str, kind: SpanKind, attributes: Mapping[str, Any]
    ) -> None:
        self.emitter = emitter
        self.closed = False
        self.quiet = False
        self.attributes: dict[str, Any] = {}
        self._place = Place()
        around, before = self._place.operation, self._place.context
        start = self.start = time_ns()
        unsampled = around is not None and around.quiet and around.emitter is emitter
        # Other code may have begun another trace inside of the span around this one.
        if around is not None and unsampled and before.get(_CURRENT) is around.span:
            self.quiet, self.span = True, around.span  # this span would not be sampled either
            self.context = before
            _inside.set(self)
            return
        span = emitter.tracer.start_span(
            name, context=before, kind=kind, attributes=attributes, start_time=start
        )
        self.span = span
        self.quiet = emitter.by_parent and not span.is_recording()
        context = self.context = Context({**before, _CURRENT: span})
        attach(context)
        _inside.set(self)

    def enter(self) -> None:
        """Make the span current in this task, too."""
        if _inside.get() is not self:
            attach(self.context)
            _inside.set(self)

    def leave(self) -> None:
        """Stop being the current span."""
        self._place.restore(self)

    def finish(self, at: int, error: str | None = None, text: str | None = None) -> None:
        """End the span."""
        self.closed = True
        span = self.span
        if error is not None:
            self.attributes[ERROR_TYPE] = error
        try:
            if self.attributes and span.is_recording():
                if error is not None:
                    span.set_status(Status(_ERROR, text))
                span.set_attributes(self.attributes)
        finally:
            span.end(at)

    def close(self, at: int, error: str | None, exc: BaseException | None = None) -> None:
        """End the span, with the text of an exception if it may contain that."""
        text = self.emitter.content.error_text(exc) if self.span.is_recording() else None
        self.finish(at, error, text)

    def seconds(self, at: int) -> float:
        """Return the duration until `at`, in seconds."""
        return max(at - self.start, 0) / 1e9

    def drop(self) -> None:
        """End the span as it is: recording its outcome has failed."""
        if not self.closed:
            self.closed = True
            self.span.end()
