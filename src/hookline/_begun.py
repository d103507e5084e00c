"""Work that has begun: a coroutine that was run up to where it first waits for something.

Some tools never wait: one that adds two numbers, one that knows the answer already. To run the
first part by hand (`work.send(None)`) tells which kind it is, before a time limit is paid for.
`go_on` awaits what is left of the other kind.
"""

from __future__ import annotations

from collections.abc import Generator
from types import CoroutineType, coroutine
from typing import Any, cast


@coroutine
def go_on(work: CoroutineType[Any, Any, Any], waits: Any) -> Generator[Any, Any, Any]:
    """Await the rest of `work`, which `waits` for something now."""
    rest: Generator[Any, Any, Any] = cast("Any", work)
    try:
        while True:
            try:
                yield waits
            except BaseException as exc:
                waits = work.throw(exc)
            else:
                return (yield from rest)
    except StopIteration as end:  # what was thrown into it has ended it
        return end.value
