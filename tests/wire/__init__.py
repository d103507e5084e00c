"""Servers that play a script in a provider's streaming format, for tests with its SDK."""

from .formats import WireFormat
from .server import Wire, WireRequest, WireServer

__all__ = ["Wire", "WireFormat", "WireRequest", "WireServer"]
