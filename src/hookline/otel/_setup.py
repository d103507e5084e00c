"""`setup`: start OpenTelemetry's own SDK and OTLP exporters in one line.

It is for applications that have no SDK yet. The SDK does all the work: it exports batches in its
own threads, so a slow or missing collector blocks nothing, and the standard OTEL_* variables apply
wherever no argument is passed.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from importlib import import_module
from time import monotonic
from types import ModuleType
from typing import Any, Final, Literal

from opentelemetry import metrics, trace
from opentelemetry.trace import ProxyTracerProvider

from hookline.errors import UsageError
from hookline.otel._emit.own_failures import FailureReport

Protocol = Literal["http/protobuf", "grpc"]

# For each signal: its path below an endpoint, the exporter's module, and the exporter's class.
_SIGNALS: Final = {
    "traces": ("v1/traces", "trace_exporter", "OTLPSpanExporter"),
    "metrics": ("v1/metrics", "metric_exporter", "OTLPMetricExporter"),
    "logs": ("v1/logs", "_log_exporter", "OTLPLogExporter"),
}
# For each signal: the module and the class of the exporter that prints.
_CONSOLE: Final = {
    "traces": ("opentelemetry.sdk.trace.export", "ConsoleSpanExporter"),
    "metrics": ("opentelemetry.sdk.metrics.export", "ConsoleMetricExporter"),
    "logs": ("opentelemetry.sdk._logs.export", "ConsoleLogRecordExporter"),
}
_PACKAGES: Final = {
    "http/protobuf": "opentelemetry.exporter.otlp.proto.http",
    "grpc": "opentelemetry.exporter.otlp.proto.grpc",
}
_UNSET: Final = ("_ProxyMeterProvider", "ProxyLoggerProvider")  # the API's own


class Exporting:
    """A handle for the providers that `setup` has started.

    `flush` and `shutdown` block: call them in a thread. The SDK shuts down by itself at the end of
    the process.
    """

    def __init__(self, providers: Mapping[str, Any]) -> None:
        self.tracer_provider: Any = providers.get("traces")
        """The tracer provider; None if traces are off."""
        self.meter_provider: Any = providers.get("metrics")
        """The meter provider; None if metrics are off."""
        self.logger_provider: Any = providers.get("logs")
        """The logger provider for events; None if logs are off."""
        self._providers = [provider for provider in providers.values() if provider is not None]

    def flush(self, timeout: float = 10.0) -> bool:
        """Export everything that is waiting; returns False if this fails or takes too long."""
        results: list[bool] = []
        until = monotonic() + timeout
        for provider in self._providers:
            remaining = max(until - monotonic(), 0.0)
            try:
                results.append(provider.force_flush(int(remaining * 1000)) is not False)
            except Exception:
                results.append(False)  # a missing collector is not the caller's error
        return all(results)

    def shutdown(self) -> None:
        """Export everything that is waiting, and stop."""
        providers, self._providers = self._providers, []
        for provider in providers:
            # A missing collector is not the caller's error.
            with FailureReport("a provider could not be shut down"):
                provider.shutdown()


def setup(
    endpoint: str | None = None,
    *,
    protocol: Protocol | None = None,
    headers: Mapping[str, str] | None = None,
    service_name: str | None = None,
) -> Exporting:
    """Export traces, metrics and events over OTLP, to `endpoint` or as set by the OTEL_* variables.

    Raises UsageError if the application already has a provider; hookline uses that provider without
    `setup`. Also raises UsageError for an endpoint without a scheme, and for an exporter that is
    unknown or not installed.
    """
    if protocol is not None and protocol not in _PACKAGES:
        raise UsageError(f"protocol={protocol!r} must be one of {', '.join(_PACKAGES)}")
    if endpoint is not None and "://" not in endpoint:
        raise UsageError(f"endpoint={endpoint!r} needs a scheme, such as http://{endpoint}")
    if os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return Exporting({})
    if not isinstance(trace.get_tracer_provider(), ProxyTracerProvider):
        raise UsageError(
            "this process has a tracer provider already, which hookline uses; leave setup() out, "
            "or call setup() before the other provider is set"
        )
    kinds = {signal: _kind(signal) for signal in _SIGNALS}
    signals = {signal: kind for signal, kind in kinds.items() if kind != "none"}
    for signal in signals:
        _check_free(signal)
    exporters: dict[str, Any] = {}
    for signal, kind in signals.items():
        if kind == "console":
            module, name = _CONSOLE[signal]
            exporters[signal] = getattr(_import(module), name)()
        else:
            exporters[signal] = _exporter(signal, endpoint, protocol, headers)
    return Exporting(_start(exporters, service_name))


def _kind(signal: str) -> str:
    """Return the kind of exporter that the environment asks for."""
    name = f"OTEL_{signal.upper()}_EXPORTER"
    kind = os.environ.get(name, "").strip() or "otlp"
    if kind not in ("otlp", "console", "none"):
        raise UsageError(
            f"{name}={kind!r} must be 'otlp', 'console' or 'none'; set up another exporter yourself"
        )
    return kind


def _check_free(signal: str) -> None:
    """Check that nobody has set a provider of metrics or logs; ours would get no data."""
    if signal == "metrics":
        provider: Any = metrics.get_meter_provider()
    elif signal == "logs":
        provider = _import("opentelemetry._logs").get_logger_provider()
    else:
        return  # `setup` has checked it
    if type(provider).__name__ not in _UNSET:
        raise UsageError(
            f"this process has a provider of {signal} already, which hookline uses; set "
            f"OTEL_{signal.upper()}_EXPORTER=none, or call setup() before that provider is set"
        )


def _exporter(
    signal: str, endpoint: str | None, protocol: str | None, headers: Mapping[str, str] | None
) -> Any:
    path, module, name = _SIGNALS[signal]
    chosen_protocol = (
        protocol
        or os.environ.get(f"OTEL_EXPORTER_OTLP_{signal.upper()}_PROTOCOL", "").strip()
        or os.environ.get("OTEL_EXPORTER_OTLP_PROTOCOL", "").strip()
        or "http/protobuf"
    )
    if chosen_protocol not in _PACKAGES:
        names = ", ".join(_PACKAGES)
        raise UsageError(f"OTEL_EXPORTER_OTLP_PROTOCOL={chosen_protocol!r} must be one of: {names}")
    options: dict[str, Any] = {}
    if headers is not None:
        options["headers"] = {key.lower(): value for key, value in headers.items()}  # as gRPC asks
    if endpoint is not None:
        options["endpoint"] = endpoint
        if chosen_protocol == "http/protobuf":
            options["endpoint"] = f"{endpoint.rstrip('/')}/{path}"
    return getattr(_import(f"{_PACKAGES[chosen_protocol]}.{module}"), name)(**options)


def _import(name: str) -> ModuleType:
    try:
        return import_module(name)
    except ImportError as exc:
        raise UsageError(f'setup() needs {name}: pip install "hookline[otel]"') from exc


def _start(exporters: Mapping[str, Any], service_name: str | None) -> dict[str, Any]:
    """Start the providers, and make them global."""
    attributes = {} if service_name is None else {"service.name": service_name}
    resource = _import("opentelemetry.sdk.resources").Resource.create(attributes)
    started: dict[str, Any] = {}
    if "traces" in exporters:
        sdk, export = _import("opentelemetry.sdk.trace"), _import("opentelemetry.sdk.trace.export")
        provider = started["traces"] = sdk.TracerProvider(resource=resource)
        provider.add_span_processor(export.BatchSpanProcessor(exporters["traces"]))
        trace.set_tracer_provider(provider)
    if "metrics" in exporters:
        sdk = _import("opentelemetry.sdk.metrics")
        export = _import("opentelemetry.sdk.metrics.export")
        reader = export.PeriodicExportingMetricReader(exporters["metrics"])
        started["metrics"] = sdk.MeterProvider([reader], resource=resource)
        metrics.set_meter_provider(started["metrics"])
    if "logs" in exporters:
        sdk, export = _import("opentelemetry.sdk._logs"), _import("opentelemetry.sdk._logs.export")
        provider = started["logs"] = sdk.LoggerProvider(resource=resource)
        provider.add_log_record_processor(export.BatchLogRecordProcessor(exporters["logs"]))
        _import("opentelemetry._logs").set_logger_provider(provider)
    return started
