"""The trace of a durable chat: whoever starts or answers it, and all its lives, are in one trace.

The trace context travels as a `traceparent`, as W3C Trace Context defines it. Without
opentelemetry, or without a current span, there is none.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from functools import lru_cache
from importlib import import_module
from typing import Any, Final

_FIELD: Final = "traceparent"


@lru_cache(maxsize=1)
def _opentelemetry() -> tuple[Any, Any] | None:
    """Return the modules for contexts and for their propagation, if they are installed."""
    try:
        propagation = import_module("opentelemetry.trace.propagation.tracecontext")
        return import_module("opentelemetry.context"), propagation.TraceContextTextMapPropagator()
    except ModuleNotFoundError:
        return None


def current_trace() -> str | None:
    """Return the `traceparent` of the current span; None if there is no span."""
    modules = _opentelemetry()
    if modules is None:
        return None
    carrier: dict[str, str] = {}
    modules[1].inject(carrier)
    return carrier.get(_FIELD)


@contextmanager
def in_trace(traceparent: str | None) -> Generator[None, None, None]:
    """Run a block, in a task of its own, in the trace of somebody else."""
    modules = _opentelemetry()
    if modules is None or traceparent is None:
        yield
        return
    context, propagator = modules
    token = context.attach(propagator.extract({_FIELD: traceparent}))
    try:
        yield
    finally:
        context.detach(token)
