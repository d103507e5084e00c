"""Interfaces for authors of adapters to durable engines."""

from hookline._base.input import find_sent, sent_into
from hookline._record.durable import Durable
from hookline._record.format import Batch, Line, Log, Witness, read_log
from hookline._record.journal import Journal
from hookline._record.runtime import (
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
    "find_sent",
    "key_name",
    "read_log",
    "sent_into",
]
