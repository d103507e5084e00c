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


class Metrics:
    """The metrics of one worker."""

    def __init__(self, queue: str) -> None:
        self._attributes = {"hookline.durable.queue": queue}
        try:
            meter: Any = import_module("opentelemetry.metrics").get_meter("hookline.durable")
        except ModuleNotFoundError:
            meter = None
        self.is_on = meter is not None
        """Whether the figures of the queue are of use."""
        if meter is None:
            return
        self._gauges = {
            name: meter.create_gauge(f"hookline.durable.{name}", unit=unit, description=words)
            for name, (unit, words) in _GAUGES.items()
        }
        self._lives = meter.create_counter(
            "hookline.durable.lives", unit="{life}", description="Lives that began."
        )
        self._refusals = meter.create_counter(
            "hookline.durable.refused",
            unit="{chat}",
            description="Chats that this code cannot continue.",
        )
        self._losses = meter.create_counter(
            "hookline.durable.leases_lost",
            unit="{life}",
            description="Lives whose claim lapsed although their worker lives.",
        )

    def show(self, counts: Counts) -> None:
        """Set the gauges."""
        if self.is_on:
            for name, gauge in self._gauges.items():
                gauge.set(getattr(counts, name), self._attributes)

    def begin(self, ending: str | None) -> None:
        """Count a life, by how the last one ended."""
        if self.is_on:
            attributes = {**self._attributes, "hookline.durable.previous": ending or "none"}
            self._lives.add(1, attributes)

    def refuse(self) -> None:
        """Count a chat that this code cannot continue."""
        if self.is_on:
            self._refusals.add(1, self._attributes)

    def lose(self, lives: int) -> None:
        """Count the lives that have lost their claims."""
        if self.is_on:
            self._losses.add(lives, self._attributes)
