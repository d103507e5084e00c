"""Hooks that come into a chat from elsewhere: telemetry, imported when it is used, not before.

The core knows no telemetry. It knows that some module may have hooks for a chat that begins.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Collection
from importlib import import_module
from typing import Any, Final, Protocol

from hookline._hooks.bus import HookBus

TELEMETRY: Final = "hookline.otel"
# Whoever wants traces has imported this, or has named a provider in the environment.
_API: Final = ("opentelemetry.trace", "opentelemetry.metrics")
_BY_NAME: Final = any(f"OTEL_PYTHON_{kind}_PROVIDER" in os.environ for kind in ("TRACER", "METER"))


class HookSource(Protocol):
    """Brings hooks of its own into chats, such as `hookline.otel.Telemetry`."""

    def bus_for_chat(self, beside: Collection[object]) -> HookBus[Any] | None:
        """The hooks for a chat that begins now, if any; asked once for each chat.

        `beside` are the points at which the chat has other hooks.
        """
        ...


class DefaultTelemetry:
    """Telemetry where the process has it: nothing is imported while nobody can have set it up."""

    __slots__ = ()

    def bus_for_chat(self, beside: Collection[object]) -> HookBus[Any] | None:
        modules = sys.modules
        if not _BY_NAME and _API[0] not in modules and _API[1] not in modules:
            return None
        door = modules.get(TELEMETRY) or import_module(TELEMETRY)
        bus: HookBus[Any] | None = door.default_bus(beside)
        return bus


DEFAULT_TELEMETRY: Final = DefaultTelemetry()
