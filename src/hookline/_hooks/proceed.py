"""`Proceed`: the way on, as a wrapper is given it. What it does is in `_hooks/call_rules.py`."""

from __future__ import annotations

from typing import Protocol, TypeVar

P = TypeVar("P", contravariant=True)
R = TypeVar("R", covariant=True)


class Proceed(Protocol[P, R]):
    """The way on, as a wrapper is given it: `await proceed()` or `await proceed(changed)`.

    Raises HookError when it is called while an earlier call of it runs, or after its hook has
    returned; and whatever the inner part raises.
    """

    async def __call__(self, payload: P | None = None, /) -> R:
        """Run what is inside, and give what it came to."""
        ...
