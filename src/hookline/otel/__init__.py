"""OpenTelemetry for agents: traces, metrics and events that follow the GenAI conventions.

    hookline.otel.setup(endpoint="http://localhost:4318")  # if the application has no SDK yet

An agent is traced as soon as an SDK is configured; only then is this module imported. It uses only
public hooks. It records no content unless you ask for it.
"""

from hookline.otel._emit.content import Capture, Redact
from hookline.otel._emit.emitter import Attributes
from hookline.otel._setup import Exporting, setup
from hookline.otel._telemetry import Telemetry, default_bus, record_evaluation, using

__all__ = [
    "Attributes",
    "Capture",
    "Exporting",
    "Redact",
    "Telemetry",
    "default_bus",
    "record_evaluation",
    "setup",
    "using",
]
