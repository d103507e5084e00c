"""Additional attributes for OpenInference back-ends: kinds, inputs and outputs, costs.

Only `Telemetry(openinference=True)` sets them. They contain content only if it was requested.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hookline.otel._conventions import names

KIND = "openinference.span.kind"
INPUT = "input.value"
OUTPUT = "output.value"
MIME = "mime_type"
SESSION = "session.id"
COST = "llm.cost.total"


def kind_of(operation: str) -> dict[str, str]:
    """Return the OpenInference kind of a span."""
    return {KIND: {"invoke_agent": "AGENT", "chat": "LLM"}.get(operation, "TOOL")}


def value_of(name: str, text: str, mime: str = "text/plain") -> dict[str, Any]:
    """Return the attributes of an input or output, with its type."""
    return {name: text, f"{name.partition('.')[0]}.{MIME}": mime}


def inputs_and_outputs(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Derive the input and output of a model call from its recorded content."""
    values: dict[str, Any] = {}
    for ours, theirs in ((names.INPUT, INPUT), (names.OUTPUT, OUTPUT)):
        if ours in attributes:
            values.update(value_of(theirs, attributes[ours], "application/json"))
    return values
