"""The seam to durable engines, for those who write an adapter."""

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
    "Effects",
    "Halted",
    "Journaled",
    "Key",
    "LocalRuntime",
    "Returns",
    "Runtime",
    "key_name",
]
