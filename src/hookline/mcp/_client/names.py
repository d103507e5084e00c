"""Adapt the names, descriptions and schemas of a server's tools for models. Pure.

A name is mapped to a name that every provider accepts; two tools never get the same name. Control
and format characters, which can hide instructions from people, are removed from texts, and texts
are shortened.
"""

from __future__ import annotations

import re
from hashlib import sha256
from typing import Any, Final
from unicodedata import category

MAX_DESCRIPTION: Final = 4_096  # characters
MAX_SCHEMA_TEXT: Final = 1_024
MAX_NAME: Final = 64
_OTHER: Final = re.compile(r"[^a-zA-Z0-9_-]")
_HIDDEN_CATEGORIES: Final = frozenset(["Cc", "Cf", "Co", "Cs", "Cn"])


def mapped(names: list[str], prefix: str) -> dict[str, str]:
    """Map the server's names to valid, distinct names for the model."""
    out: dict[str, str] = {}
    results: set[str] = set()
    for name in dict.fromkeys(names):  # a server may list a tool twice
        plain = _OTHER.sub("_", prefix + name)
        if len(plain) > MAX_NAME or plain in results or not name:
            mark = sha256(name.encode("utf-8", "replace")).hexdigest()[:8]
            plain = f"{plain[: MAX_NAME - 9]}_{mark}"
        results.add(plain)
        out[name] = plain
    return out


def clean(text: object, limit: int = MAX_DESCRIPTION) -> str:
    """Remove invisible characters from an untrusted text, and shorten it."""
    if not isinstance(text, str):
        return ""
    visible = "".join(
        char
        for char in text[: limit * 2]
        if char in "\n\t" or category(char) not in _HIDDEN_CATEGORIES
    )
    return visible if len(visible) <= limit else f"{visible[: limit - 1]}…"


def clean_schema(schema: Any) -> Any:
    """Return a schema with cleaned titles and descriptions."""
    if isinstance(schema, list):
        return [clean_schema(value) for value in schema]  # pyright: ignore[reportUnknownVariableType]
    if not isinstance(schema, dict):
        return schema
    return {
        key: clean(value, MAX_SCHEMA_TEXT)
        if key in ("title", "description") and isinstance(value, str)
        else clean_schema(value)
        for key, value in schema.items()  # pyright: ignore[reportUnknownVariableType]
    }


def description_of(description: object, name: str, plain: str) -> str:
    """Return the description for the model; add the original name if the tool was renamed."""
    text = clean(description)
    if plain.endswith(name):
        return text
    original = f"The server calls it {clean(name, 128)!r}."
    return f"{text}\n\n{original}" if text else original
