"""Log events: failed model calls and, on request, the details of each call.

OpenTelemetry's log API still has a private name, so it is imported with care. If the API is too old
for events, no events are emitted.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from opentelemetry.context import Context

from hookline.otel._emit.own_failures import FailureReport, report

Severity = Literal["DEBUG", "INFO", "WARN"]


class Events:
    """The logger, if there is one."""

    def __init__(self, provider: Any, version: str, schema: str | None) -> None:
        self._logger: Any = None
        try:
            from opentelemetry import _logs
        except ImportError as exc:
            report("opentelemetry has no log API, so there are no events", exc)
            return
        self._api: Any = _logs
        self._logger = _logs.get_logger("hookline", version, provider, schema_url=schema)

    def emit(
        self, name: str, severity: Severity, attributes: Mapping[str, Any], context: Context
    ) -> None:
        """Emit one event. A failure is only reported."""
        if self._logger is None:
            return
        with FailureReport("an event could not be emitted"):
            record = self._api.LogRecord(
                event_name=name,
                severity_number=self._api.SeverityNumber[severity],
                severity_text=severity,
                attributes=dict(attributes),
                context=context,
            )
            self._logger.emit(record)
