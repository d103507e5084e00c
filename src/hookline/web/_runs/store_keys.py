"""The keys of runs and conversations in the stores: one prefix for each principal."""

from __future__ import annotations

from hashlib import sha256
from typing import Final
from urllib.parse import quote

NAME: Final = 100  # most characters of a quoted name; a longer name is hashed


def prefix_of(principal: str) -> str:
    """Return the prefix of a principal's keys; it is different for each principal."""
    name = quote(principal, safe="@")
    if len(name) > NAME:
        name = "%~" + sha256(principal.encode()).hexdigest()  # quoting never writes `%~`
    return f"{name}/"
