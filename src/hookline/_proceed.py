"""`Proceed`: the way on, as a wrapper is given it."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Generic, TypeVar

from hookline._errors import HookError

P = TypeVar("P")
R = TypeVar("R")


class Proceed(Generic[P, R]):
    """The way on, as a wrapper is given it: `await proceed()` or `await proceed(changed)`."""

    __slots__ = ("calls", "error", "over", "result", "running")

    def __init__(self) -> None:
        self.calls = 0
        self.running = False
        self.over = False
        self.result: R | None = None
        self.error: BaseException | None = None

    async def __call__(self, payload: P | None = None, /) -> R:
        if self.running:
            raise HookError("proceed was called while an earlier call of it was still running")
        if self.over:
            raise HookError("proceed was called after its hook had returned")
        self.calls += 1
        self.running = True
        self.error = None
        try:
            result = self.result = await self._go(payload)
            return result
        except BaseException as exc:
            self.error = exc
            raise
        finally:
            self.running = False

    def _go(self, payload: P | None) -> Awaitable[R]:
        """Go on; a method and no function that is kept, or each of them would hold itself."""
        raise NotImplementedError
