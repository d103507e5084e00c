"""OpenTelemetry for agents: traces, metrics and events by the GenAI conventions.

    hookline.otel.setup(endpoint="http://localhost:4318")  # where the application has no SDK yet

An agent is traced as soon as an SDK is configured; this module is imported then, and not before.
It stands on public hooks alone. No content is written unless somebody asks for it.
"""

from hookline.otel._content import Capture, Redact
from hookline.otel._setup import Exporting, setup
from hookline.otel._telemetry import Telemetry, default_bus

__all__ = ["Capture", "Exporting", "Redact", "Telemetry", "default_bus", "setup"]
