"""Interfaces for authors of adapters to durable engines."""

from hookline._base.durable import Durable
from hookline._base.journal import Journal
from hookline._base.record import Batch, Line, Log, Witness
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
    "Witness",
    "key_name",
]
