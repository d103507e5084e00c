"""`Telemetry`: what an agent is given, and the look at whether anybody listens.

An application says that it wants telemetry by configuring an SDK. Until it has, there are no hooks
and a chat pays for one look. The look is made once for each chat, so that a provider which is set
later still counts.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from typing import Any, Literal, cast

from opentelemetry import metrics, trace
from opentelemetry.metrics import MeterProvider, NoOpMeter, NoOpMeterProvider
from opentelemetry.trace import (
    NoOpTracer,
    NoOpTracerProvider,
    ProxyTracerProvider,
    TracerProvider,
)

from hookline import HookBus, __version__
from hookline.errors import UsageError
from hookline.otel._content import CAPTURES, Capture, Content, Redact
from hookline.otel._events import Events
from hookline.otel._kit import Kit
from hookline.otel._metrics import Instruments
from hookline.otel._report import report
from hookline.otel._spans import innermost
from hookline.otel._tracing import Tracing

CAPTURE = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
EMIT = "OTEL_INSTRUMENTATION_GENAI_EMIT_EVENT"
SIZE = 16_384
_NAMED = any(f"OTEL_PYTHON_{kind}_PROVIDER" in os.environ for kind in ("TRACER", "METER"))
_MISSING = object()


def _nobody() -> bool:
    """Whether no provider was made global; the API's own answer takes twenty times as long.

    Where an API keeps them under other names, this says nothing, and the API is asked.
    """
    internal = getattr(metrics, "_internal", None)
    return (
        not _NAMED
        and getattr(trace, "_TRACER_PROVIDER", _MISSING) is None
        and getattr(internal, "_METER_PROVIDER", _MISSING) is None
    )


class Telemetry:
    """Traces, metrics and events of an agent's chats; pass it as `Agent(telemetry=...)`.

    Without providers it uses the global ones. `capture` says where what was said may be written (by
    default nowhere, or what the environment says), `redact` is given every text before it is
    written, and `max_text` bounds the characters of a message. `history="full"` writes the whole
    history at each model call, and not only what is new. Raises UsageError for an option that is
    none of these.
    """

    def __init__(
        self,
        *,
        tracer_provider: TracerProvider | None = None,
        meter_provider: MeterProvider | None = None,
        logger_provider: Any = None,
        capture: Capture | None = None,
        redact: Redact | None = None,
        max_text: int = SIZE,
        history: Literal["new", "full"] = "new",
    ) -> None:
        if capture is not None and capture not in CAPTURES:
            raise UsageError(f"capture={capture!r} must be one of {', '.join(CAPTURES)}")
        if max_text < 1:
            raise UsageError(f"max_text={max_text!r} must be at least 1")
        if history not in ("new", "full"):
            raise UsageError(f"history={history!r} must be 'new' or 'full'")
        self._tracers = tracer_provider
        self._meters = meter_provider
        self._loggers = logger_provider
        self._capture: Capture | None = capture
        self._redact = redact
        self._max_text = max_text
        self._full = history == "full"
        self._seen: tuple[Any, Any] | None = None
        self._tracing: Tracing | None = None

    def bus_for_chat(self, beside: Collection[object]) -> HookBus[Any] | None:
        """The hooks that trace a chat which begins now; None while nobody listens.

        `beside` are the points at which the chat has other hooks.
        """
        if self._tracers is None and self._meters is None and _nobody():
            return None
        tracers = self._tracers or trace.get_tracer_provider()
        meters = self._meters or metrics.get_meter_provider()
        seen = self._seen
        if seen is None or seen[0] is not tracers or seen[1] is not meters:
            self._tracing = self._look(tracers, meters)
            self._seen = (tracers, meters)
        return None if self._tracing is None else self._tracing.bus_for_chat(beside)

    def _look(self, tracers: TracerProvider, meters: MeterProvider) -> Tracing | None:
        try:
            return self._begin(tracers, meters)
        except Exception as exc:  # such as an SDK that is too old: no reason for a chat to fail
            report("telemetry could not be started", exc)
            return None

    def _begin(self, tracers: TracerProvider, meters: MeterProvider) -> Tracing | None:
        tracer = tracers.get_tracer("hookline", __version__)
        meter = meters.get_meter("hookline", __version__)
        silent = isinstance(tracers, (ProxyTracerProvider, NoOpTracerProvider))
        unmetered = type(meters).__name__ == "_ProxyMeterProvider"
        unmetered = unmetered or isinstance(meters, NoOpMeterProvider)
        unmetered = unmetered or isinstance(meter, NoOpMeter)
        silent = silent or isinstance(tracer, NoOpTracer)
        if silent and unmetered:
            return None
        if silent:
            tracer = NoOpTracer()
        capture: Capture = self._capture if self._capture is not None else _captured()
        content = Content(capture, self._redact, self._max_text)
        kit = Kit(
            tracer,
            Instruments(meter),
            Events(self._loggers, __version__),
            content,
            metered=not unmetered,
            details=_emits(content.events),
            full=self._full,
        )
        return Tracing(kit)


_DEFAULT = Telemetry()


def default_bus(beside: Collection[object]) -> HookBus[Any] | None:
    """The hooks of an agent that says nothing of telemetry; in a traced chat, that chat's."""
    op = innermost()
    if op is not None and not op.ended:
        return op.kit.source.bus_for_chat(beside)
    return _DEFAULT.bus_for_chat(beside)


def _captured() -> Capture:
    """What the environment says of content; a word that it should not say means none."""
    said = os.environ.get(CAPTURE, "").strip()
    if not said:
        return "no_content"
    if said.lower() in CAPTURES:
        return cast("Capture", said.lower())
    words = ", ".join(word.upper() for word in CAPTURES)
    report(f"{CAPTURE} is none of {words}, so no content is written")
    return "no_content"


def _emits(otherwise: bool) -> bool:
    said = os.environ.get(EMIT, "").strip().lower()
    return said == "true" if said in ("true", "false") else otherwise
