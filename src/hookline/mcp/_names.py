"""Names, descriptions and schemas of a server's tools, made fit for models. Pure.

A name is mapped to what every provider takes, without two tools falling together. A text loses its
control and format characters (they hide instructions from people) and is bounded.
"""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from hashlib import sha256
from typing import Any, Final
from unicodedata import category

MAX_DESCRIPTION: Final = 4_096  # characters
MAX_SCHEMA_TEXT: Final = 1_024
MAX_NAME: Final = 64
_OTHER: Final = re.compile(r"[^a-zA-Z0-9_-]")
_HIDDEN: Final = frozenset(["Cc", "Cf", "Co", "Cs", "Cn"])


def mapped(names: list[str], prefix: str) -> dict[str, str]:
    """The server's names and what the model calls them by: valid, and each another."""
    out: dict[str, str] = {}
    taken: set[str] = set()
    for name in names:
        plain = _OTHER.sub("_", prefix + name)
        if len(plain) > MAX_NAME or plain in taken or not name:
            mark = sha256(name.encode("utf-8", "replace")).hexdigest()[:8]
            plain = f"{plain[: MAX_NAME - 9]}_{mark}"
        taken.add(plain)
        out[name] = plain
    return out


def matches(name: str, patterns: tuple[str, ...]) -> bool:
    """Whether one of these patterns is the name; `*` stands for anything."""
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def clean(text: object, limit: int = MAX_DESCRIPTION) -> str:
    """A stranger's text without what nobody sees, and bounded."""
    if not isinstance(text, str):
        return ""
    seen = "".join(
        char for char in text[: limit * 2] if char in "\n\t" or category(char) not in _HIDDEN
    )
    return seen if len(seen) <= limit else f"{seen[: limit - 1]}…"


def clean_schema(schema: Any) -> Any:
    """A schema whose titles and descriptions are cleaned."""
    if isinstance(schema, list):
        return [clean_schema(each) for each in schema]  # pyright: ignore[reportUnknownVariableType]
    if not isinstance(schema, dict):
        return schema
    return {
        key: clean(each, MAX_SCHEMA_TEXT)
        if key in ("title", "description") and isinstance(each, str)
        else clean_schema(each)
        for key, each in schema.items()  # pyright: ignore[reportUnknownVariableType]
    }


def told(description: object, name: str, plain: str) -> str:
    """What the model is told of a tool; where its name was changed, the server's own too."""
    text = clean(description)
    if plain.endswith(name):
        return text
    known = f"The server calls it {clean(name, 128)!r}."
    return f"{text}\n\n{known}" if text else known
