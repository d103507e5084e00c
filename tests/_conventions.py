"""Checks spans against the attributes that the conventions ask of each kind, by their version.

The table is generated from the published files by `scripts/dev/conventions.py`. Every test that
sends spans through `tests._otlp.pipeline` has all of them checked at its end, however its chats
end.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Protocol

TABLE: dict[str, Any] = json.loads(
    (Path(__file__).parent / "otel" / "conventions.json").read_text()
)
KINDS = {
    "invoke_agent": ("gen_ai.invoke_agent.internal", "INTERNAL", "gen_ai.agent.name"),
    "chat": ("gen_ai.inference.client", "CLIENT", "gen_ai.request.model"),
    "execute_tool": ("gen_ai.execute_tool.internal", "INTERNAL", "gen_ai.tool.name"),
}
# Attributes that the table does not have yet or any more, and that do no harm.
BESIDE = {
    "invoke_agent": {"gen_ai.usage.reasoning.output_tokens"},
    "chat": {"gen_ai.usage.cache_write.input_tokens"},  # main has renamed it since
    "execute_tool": {"gen_ai.agent.name"},
}


class SpanLike(Protocol):
    name: str
    kind: str
    status: str
    attributes: dict[str, Any]


def faults(span: SpanLike, version: str) -> list[str]:
    """What is wrong with one of our spans."""
    found = span.attributes
    operation = found.get("gen_ai.operation.name")
    if operation not in KINDS:
        return [f"{span.name}: gen_ai.operation.name is {operation!r}"]
    kind, side, subject = KINDS[operation]
    levels: dict[str, list[str]] = TABLE[version]["spans"][kind]
    known = {name for names in levels.values() for name in names} | BESIDE[operation]
    said = [f"{name} is missing" for name in levels["required"] if name not in found]
    said += [f"{name} is missing" for name in (subject,) if name not in found]
    said += [
        f"{name} is not of {version}"
        for name in found
        if name.startswith(("gen_ai.", "server.", "error.")) and name not in known
    ]
    if "server.address" in found and "server.port" not in found:
        said.append("server.port is missing")
    if ("error.type" in found) is not (span.status == "ERROR"):
        said.append(f"status {span.status} with error.type {found.get('error.type')!r}")
    if span.kind != side:
        said.append(f"kind {span.kind}")
    if span.name != f"{operation} {found.get(subject)}":
        said.append("another name")
    return [f"{span.name}: {each}" for each in said]


def check(spans: Iterable[SpanLike], version: str) -> None:
    """Raise AssertionError where one of hookline's spans breaks the conventions."""
    found = [fault for span in spans for fault in faults(span, version)]
    assert found == []
