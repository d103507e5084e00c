"""Check arguments that take a number. A comparison with NaN is never true, and True counts as 1."""

from __future__ import annotations

from reprlib import repr as short_repr
from typing import Any, Final

from hookline._base.errors import UsageError

_MOST: Final = 2**63 - 1  # of a database, and of JSON readers


def check_number(
    name: str, value: object, *, least: float = 0, above: float | None = None, whole: bool = False
) -> None:
    """Raise UsageError unless the argument `name` is a number of at least `least`.

    `above`: the number must be greater than this. `whole`: it must be an int that a database can
    hold.
    """
    number: Any = value
    fits = isinstance(number, int if whole else (int, float)) and not isinstance(number, bool)
    if not fits or not (number > above if above is not None else number >= least):
        kind = "a whole number" if whole else "a number"
        bound = f"of at least {least:g}" if above is None else f"above {above:g}"
        raise UsageError(f"{name}={short_repr(value)} must be {kind} {bound}")
    if whole and number > _MOST:
        raise UsageError(f"{name}={short_repr(value)} must be at most {_MOST}")
