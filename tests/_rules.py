"""A rule that holds for many things is one test, which lists everything that breaks it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any


def every(
    *lists: Iterable[Any] | Callable[[], Iterable[Any]],
) -> Callable[[Callable[..., None]], Callable[[], None]]:
    """Apply the decorated rule to each case, or to each combination of several lists.

    A case is the rule's argument; a tuple holds several arguments. A list that takes long to make
    is given by a function, which is called when the test runs and not when it is collected.
    """

    def decorate(rule: Callable[..., None]) -> Callable[[], None]:
        def test() -> None:
            cases: list[tuple[Any, ...]] = [()]
            for given in lists:
                items = given() if callable(given) else given
                cases = [(*case, *as_tuple(item)) for case in cases for item in items]
            assert cases, "no case: the rule would hold for nothing"
            offenders: list[str] = []
            for case in cases:
                try:
                    rule(*case)
                except AssertionError as error:
                    offenders.append(f"{', '.join(map(str, case))}: {error}")
            assert not offenders, f"{len(offenders)} of {len(cases)}:\n" + "\n".join(offenders)

        test.__name__, test.__doc__ = rule.__name__, rule.__doc__
        test.__module__ = rule.__module__
        return test

    return decorate


def as_tuple(item: Any) -> tuple[Any, ...]:
    return item if type(item) is tuple else (item,)
