"""The seam to durable engines, for those who write an adapter."""

from hookline._base.durable import Durable
from hookline._base.journal import Journal
from hookline._base.record import Batch, Line, Log
from hookline._base.runtime import (
    KEYS,
    Effects,
    Halted,
    Journaled,
    Key,
    LocalRuntime,
    Returns,
    Runtime,
    key_name,
)

__all__ = [
    "KEYS",
    "Batch",
    "Durable",
    "Effects",
    "Halted",
    "Journal",
    "Journaled",
    "Key",
    "Line",
    "LocalRuntime",
    "Log",
    "Returns",
    "Runtime",
    "key_name",
]
