"""External sources of hooks: telemetry, which is imported only when it is used.

The core does not depend on telemetry. It only knows that a module may add hooks to a new chat.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Collection
from importlib import import_module
from typing import Any, Final, Protocol

from hookline._hooks.bus import HookBus

TELEMETRY: Final = "hookline.otel"
# A program that wants traces has imported this API, or named a provider in the environment.
_API: Final = ("opentelemetry.trace", "opentelemetry.metrics")
_BY_NAME: Final = any(f"OTEL_PYTHON_{kind}_PROVIDER" in os.environ for kind in ("TRACER", "METER"))


class HookSource(Protocol):
    """Adds its own hooks to chats, such as `hookline.otel.Telemetry`."""

    def bus_for_chat(self, keys: Collection[object]) -> HookBus[Any] | None:
        """Return the hooks for a chat that begins now, or None; called once per chat.

        `keys` are the points at which the chat has other hooks.
        """
        ...


class DefaultTelemetry:
    """Telemetry if the process uses it; otherwise nothing is imported."""

    __slots__ = ()

    def bus_for_chat(self, keys: Collection[object]) -> HookBus[Any] | None:
        modules = sys.modules
        if not _BY_NAME and _API[0] not in modules and _API[1] not in modules:
            return None
        door = modules.get(TELEMETRY) or import_module(TELEMETRY)
        bus: HookBus[Any] | None = door.default_bus(keys)
        return bus


DEFAULT_TELEMETRY: Final = DefaultTelemetry()
