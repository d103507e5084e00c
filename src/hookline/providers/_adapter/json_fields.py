"""The fields of a provider's JSON: each is read with its type, or refused. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeGuard

import msgspec


def is_object(value: object) -> TypeGuard[dict[str, Any]]:
    """Return whether a value is a JSON object."""
    return isinstance(value, dict)


def is_list(value: object) -> TypeGuard[list[Any] | tuple[Any, ...]]:
    """Return whether a value is a JSON array."""
    return isinstance(value, (list, tuple))


def text_in(event: Mapping[str, Any], name: str) -> str:
    """Return a text field; None counts as empty. Raises TypeError for any other type."""
    value = event.get(name)
    if value is None:
        return ""
    if type(value) is not str:
        raise TypeError(f"{name} is a {type(value).__name__}")
    return value


def index_in(event: Mapping[str, Any], name: str = "index") -> int:
    """Return a position in the answer; raises TypeError for a non-number, KeyError if missing."""
    value = event[name]
    if type(value) is not int:
        raise TypeError(f"{name} is a {type(value).__name__}")
    return value


def list_in(holder: object, name: str) -> Sequence[Any]:
    """Return the array in a field; empty if there is none."""
    value = holder.get(name) if is_object(holder) else None
    return value if is_list(value) else ()


def objects_in(holder: object, name: str) -> list[dict[str, Any]]:
    """Return the objects of the array in a field."""
    return [item for item in list_in(holder, name) if is_object(item)]


def count(usage: object, *path: str) -> int:
    """Return a token count of the provider's usage; 0 if it is missing."""
    value: Any = usage
    for name in path:
        value = value.get(name) if is_object(value) else None
    return value if type(value) is int and value > 0 else 0


def own(meta: Mapping[str, Any] | None, provider: str) -> dict[str, Any]:
    """Return this provider's own data in the meta of a part or message."""
    data = meta.get(provider) if meta else None
    return data if is_object(data) else {}


def json_text(data: Any) -> str:
    """Return the compact JSON text of JSON data."""
    return msgspec.json.encode(data).decode()
