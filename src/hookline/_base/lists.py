"""Check arguments that take a list. Python also iterates a single text, by its letters."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar

from hookline._base.errors import UsageError

T = TypeVar("T")


def as_tuple(name: str, values: Iterable[T]) -> tuple[T, ...]:
    """Return the items of the argument `name`; raises UsageError for a single text or object."""
    items: Any = values
    if isinstance(items, (str, bytes)) or not isinstance(items, Iterable):
        # The value is not in the text, because it may be a secret.
        raise UsageError(
            f"{name}= must be a list, but its type is {type(items).__name__}; put a single item "
            f"in a list: {name}=[…]"
        )
    return tuple(values)
