"""`Proceed`: the way on, as a wrapper is given it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Generic, TypeVar

from hookline._errors import HookError

P = TypeVar("P")
R = TypeVar("R")


class Proceed(Generic[P, R]):
    """The way on, as a wrapper is given it: `await proceed()` or `await proceed(changed)`."""

    __slots__ = ("_go", "calls", "error", "result", "running")

    def __init__(self, go: Callable[[Any], Awaitable[R]]) -> None:
        self._go: Callable[[Any], Awaitable[R]] | None = go
        self.calls = 0
        self.running = False
        self.result: R | None = None
        self.error: BaseException | None = None

    async def __call__(self, payload: P | None = None, /) -> R:
        if self.running:
            raise HookError("proceed was called while an earlier call of it was still running")
        if self._go is None:
            raise HookError("proceed was called after its hook had returned")
        self.calls += 1
        self.running = True
        self.error = None
        try:
            self.result = await self._go(payload)
            return self.result
        except BaseException as exc:
            self.error = exc
            raise
        finally:
            self.running = False

    def end(self) -> None:
        """The wrapper has returned: what it wraps cannot be run any more, and is let go."""
        self._go = None
        self.error = None
