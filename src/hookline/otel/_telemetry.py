"""`Telemetry`: the telemetry options of an agent, and the check whether an SDK is configured;
`record_evaluation`: a rating of an answer, as an event below the chat's span.

An application requests telemetry by configuring an SDK. Until then there are no hooks, and each
chat pays for one check only. The check is repeated for each chat, so a provider that is set later
still counts.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Literal, cast

from opentelemetry import metrics as api_metrics
from opentelemetry import trace
from opentelemetry.metrics import MeterProvider, NoOpMeter, NoOpMeterProvider
from opentelemetry.trace import (
    NoOpTracer,
    NoOpTracerProvider,
    ProxyTracerProvider,
    TracerProvider,
)

from hookline import HookBus, Response, __version__
from hookline.errors import UsageError
from hookline.models import Prices, price_function
from hookline.otel._chat.hooks import Tracing
from hookline.otel._conventions import names
from hookline.otel._conventions.names import SEMCONVS
from hookline.otel._emit.content import ATTRIBUTE, CAPTURES, Capture, Content, Redact
from hookline.otel._emit.emitter import Attributes, Emitter
from hookline.otel._emit.log_events import Events
from hookline.otel._emit.metrics import Instruments
from hookline.otel._emit.own_failures import FailureReport, report
from hookline.otel._emit.spans import innermost

CAPTURE = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
EMIT = "OTEL_INSTRUMENTATION_GENAI_EMIT_EVENT"
SIZE = 16_384
_NAMED_IN_ENVIRONMENT = any(
    f"OTEL_PYTHON_{kind}_PROVIDER" in os.environ for kind in ("TRACER", "METER")
)
_MISSING = object()


def _nobody() -> bool:
    """Return whether no global provider is set; the API's own check takes twenty times as long.

    If an API version stores providers under other names, this returns False, and the API is used.
    """
    internal = getattr(api_metrics, "_internal", None)
    return (
        not _NAMED_IN_ENVIRONMENT
        and getattr(trace, "_TRACER_PROVIDER", _MISSING) is None
        and getattr(internal, "_METER_PROVIDER", _MISSING) is None
    )


class Telemetry:
    """Records traces, metrics and events of an agent's chats: `Agent(telemetry=Telemetry())`.

    By default the global providers are used. `capture` selects where content may be recorded. The
    default is the setting in the environment; without that setting, no content is recorded.
    `redact` receives every text before it is recorded. `max_text` is the maximum length of a
    message in characters. `max_attribute` is the maximum length of an attribute in bytes.
    `history="full"` records the whole history at each model call, instead of only the new messages.
    `price` returns the cost of a model call. `attributes` are added to every span. `metrics`
    selects the core metrics or all metrics. `semconv` selects the version of the semantic
    conventions. `openinference` adds attributes for OpenInference back-ends. Raises UsageError for
    an invalid option.
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
        max_attribute: int = ATTRIBUTE,
        history: Literal["new", "full"] = "new",
        metrics: Literal["core", "all"] = "all",
        semconv: Literal["v1.41", "genai-v0.1.0"] = "v1.41",
        price: Prices | None = None,
        attributes: Attributes | None = None,
        openinference: bool = False,
    ) -> None:
        if capture is not None and capture not in CAPTURES:
            raise UsageError(f"capture={capture!r} must be one of {', '.join(CAPTURES)}")
        if max_text < 1:
            raise UsageError(f"max_text={max_text!r} must be at least 1")
        if history not in ("new", "full"):
            raise UsageError(f"history={history!r} must be 'new' or 'full'")
        if max_attribute < 256:
            raise UsageError(f"max_attribute={max_attribute!r} must be at least 256")
        if metrics not in ("core", "all"):
            raise UsageError(f"metrics={metrics!r} must be 'core' or 'all'")
        if semconv not in SEMCONVS:
            raise UsageError(f"semconv={semconv!r} must be one of {', '.join(SEMCONVS)}")
        self._tracers = tracer_provider
        self._meters = meter_provider
        self._loggers = logger_provider
        self._capture: Capture | None = capture
        self._redact = redact
        self._max_text = max_text
        self._max_attribute = max_attribute
        self._full = history == "full"
        self._core = metrics == "core"
        self._semconv = SEMCONVS[semconv]
        self._price = None if price is None else price_function(price)
        self._attributes = attributes
        self._openinference = openinference
        self._providers: tuple[Any, Any] | None = None
        self._tracing: Tracing | None = None

    def bus_for_chat(self, keys: Collection[object]) -> HookBus[Any] | None:
        """Return the hooks that trace a new chat; None if no SDK is configured.

        `keys` are the points at which the chat has other hooks.
        """
        own_provider = self._tracers or self._meters or self._loggers
        if own_provider is None and _nobody():
            return None
        tracers = self._tracers or trace.get_tracer_provider()
        meters = self._meters or api_metrics.get_meter_provider()
        providers = self._providers
        if providers is None or providers[0] is not tracers or providers[1] is not meters:
            self._tracing = None
            with FailureReport("telemetry could not be started"):  # such as an SDK that is too old
                self._tracing = self._begin(tracers, meters)
            self._providers = (tracers, meters)
        return None if self._tracing is None else self._tracing.bus_for_chat(keys)

    def _begin(self, tracers: TracerProvider, meters: MeterProvider) -> Tracing | None:
        schema = self._semconv.schema
        tracer = tracers.get_tracer("hookline", __version__, schema_url=schema)
        meter = meters.get_meter("hookline", __version__, schema_url=schema)
        silent = isinstance(tracers, (ProxyTracerProvider, NoOpTracerProvider))
        unmetered = type(meters).__name__ == "_ProxyMeterProvider"
        unmetered = unmetered or isinstance(meters, NoOpMeterProvider)
        unmetered = unmetered or isinstance(meter, NoOpMeter)
        silent = silent or isinstance(tracer, NoOpTracer)
        if silent and unmetered and self._loggers is None:
            return None
        if silent:
            tracer = NoOpTracer()
        capture: Capture = self._capture if self._capture is not None else _captured()
        content = Content(capture, self._redact, self._max_text, self._max_attribute)
        emitter = Emitter(
            tracer=tracer,
            instruments=Instruments(meter, self._semconv, core=self._core),
            events=Events(self._loggers, __version__, schema),
            content=content,
            metered=not unmetered,
            details=_emits(content.events),
            full=self._full,
            semconv=self._semconv,
            openinference=self._openinference,
            price_function=self._price,
            own_attributes=self._attributes,
        )
        return Tracing(emitter)


DEFAULT = Telemetry()
_in_block: ContextVar[Telemetry | None] = ContextVar("hookline_otel_used", default=None)


def default_bus(keys: Collection[object]) -> HookBus[Any] | None:
    """Return the hooks for an agent without `telemetry=`; a nested chat gets the outer hooks."""
    op = innermost()
    if op is not None and not op.closed:
        return op.emitter.bus_for_chat(keys)
    return (_in_block.get() or DEFAULT).bus_for_chat(keys)


@contextmanager
def using(telemetry: Telemetry) -> Generator[None, None, None]:
    """Trace the chats that begin inside the block, if their agent has no Telemetry of its own."""
    before = _in_block.get()
    _in_block.set(telemetry)
    try:
        yield
    finally:
        _in_block.set(before)


def _captured() -> Capture:
    """Read the capture option from the environment; an invalid value means no content."""
    value = os.environ.get(CAPTURE, "").strip()
    if not value:
        return "no_content"
    if value.lower() in CAPTURES:
        return cast("Capture", value.lower())
    words = ", ".join(word.upper() for word in CAPTURES)
    report(f"{CAPTURE} must be one of {words}; no content is recorded")
    return "no_content"


def _emits(otherwise: bool) -> bool:
    value = os.environ.get(EMIT, "").strip().lower()
    return value == "true" if value in ("true", "false") else otherwise


def record_evaluation(
    response: Response[Any],
    name: str,
    *,
    score: float | None = None,
    label: str | None = None,
    explanation: str | None = None,
    telemetry: Telemetry = DEFAULT,
) -> bool:
    """Record the quality of a chat's answer, as an event `gen_ai.evaluation.result`.

    The event belongs to the span of that chat. The chat may have ended: hookline remembers the last
    1,024 chats. `telemetry` is the agent's own Telemetry, if the agent has one. Returns whether the
    events of that chat are exported. Raises UsageError if none of `score`, `label` and
    `explanation` is given.
    """
    if score is None and label is None and explanation is None:
        raise UsageError("record_evaluation() needs score=, label= or explanation=")
    tracing = telemetry._tracing  # pyright: ignore[reportPrivateUsage]
    context = None if tracing is None else tracing.emitter.ended_chats.get(response.chat_id)
    if tracing is None or context is None:  # without a chat before, or without this chat
        return False
    emitter = tracing.emitter
    values = {
        names.EVALUATION_NAME: name,
        names.EVALUATION_SCORE: score,
        names.EVALUATION_LABEL: None if label is None else emitter.content.word(label),
        names.EVALUATION_WHY: None if explanation is None else emitter.content.text(explanation),
        names.CHAT_ID: response.chat_id,
    }
    attributes = {key: value for key, value in values.items() if value is not None}
    emitter.events.emit(names.EVALUATION_EVENT, "INFO", attributes, context)
    return True
