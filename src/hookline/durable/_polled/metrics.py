"""The metrics of a queue, for OpenTelemetry: `hookline.durable.…`.

The gauges are measured by each worker every ten seconds. Without opentelemetry, nothing is
measured; without a meter provider, nothing is exported.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from hookline.durable._status import Counts

_GAUGES = {
    "queued": ("{chat}", "Chats that wait for a worker."),
    "oldest": ("s", "The age of the oldest chat that waits for a worker."),
    "running": ("{chat}", "Chats that a worker runs."),
    "resting": ("{chat}", "Chats that wait for an answer, or for their next attempt."),
    "quarantined": ("{chat}", "Chats that were quarantined."),
}


_COUNTERS = {
    "lives": ("{life}", "Lives that began."),
    "refused": ("{chat}", "Chats that this code cannot continue."),
    "leases_lost": ("{life}", "Lives whose claim lapsed although their worker lives."),
}


class Metrics:
    """The metrics of one worker."""

    def __init__(self, queue: str) -> None:
        self._attributes = {"hookline.durable.queue": queue}
        self._gauges: dict[str, Any] = {}
        self._counters: dict[str, Any] = {}
        try:
            meter: Any = import_module("opentelemetry.metrics").get_meter("hookline.durable")
        except ModuleNotFoundError:
            return
        for metrics, create, table in (
            (self._gauges, meter.create_gauge, _GAUGES),
            (self._counters, meter.create_counter, _COUNTERS),
        ):
            for name, (unit, words) in table.items():
                metrics[name] = create(f"hookline.durable.{name}", unit=unit, description=words)

    def show(self, counts: Counts) -> None:
        """Set the gauges."""
        for name, gauge in self._gauges.items():
            gauge.set(getattr(counts, name), self._attributes)

    def add(self, name: str, **attributes: str) -> None:
        """Count one more; the names of `attributes` are those after `hookline.durable`."""
        if counter := self._counters.get(name):
            names = {f"hookline.durable.{key}": value for key, value in attributes.items()}
            counter.add(1, {**self._attributes, **names})
