"""Requests whose runs have not begun: `deps=` and `hooks=` of the application may still run.

A stop reaches these requests, too: the preparation is cancelled, the request is refused, and no
run begins.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from hookline.errors import UsageError
from hookline.web._http.refused import Refused

T = TypeVar("T")


class StoppedEarly(Refused):
    """The request was stopped before its run began."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(409, "This answer was stopped before it began; send the request again.")


class _Start:
    """One request, with the id of its run."""

    __slots__ = ("run", "scope", "why")

    def __init__(self, run: str) -> None:
        self.run = run
        self.scope = asyncio.timeout(None)
        self.why: str | None = None
        """The reason of the stop; None if there was none."""

    def stop(self, reason: str) -> None:
        if self.why is None:
            self.why = reason
            self.scope.reschedule(asyncio.get_running_loop().time())  # cancels the preparation


class Starts:
    """The requests of a process whose runs have not begun, by the key of the conversation."""

    def __init__(self) -> None:
        self._starts: dict[str, list[_Start]] = {}

    def __contains__(self, key: str) -> bool:
        return key in self._starts

    async def prepare(self, key: str, run: str, preparing: Coroutine[Any, Any, T]) -> T:
        """Await the preparation of a run; the run must begin before the next await.

        Raises StoppedEarly if a stop came meanwhile, also if the preparation ignored its
        cancellation.
        """
        start = _Start(run)
        task = asyncio.current_task()
        assert task is not None
        before = task.cancelling()
        self._starts.setdefault(key, []).append(start)
        try:
            async with start.scope:
                value = await preparing
        except Exception:
            if start.why is None:
                raise
            raise StoppedEarly(start.why) from None
        except asyncio.CancelledError as exc:
            if task.cancelling() > before:
                raise
            raise UsageError(
                f"deps= or hooks= raised {exc!r}, but nobody cancelled the request; catch it "
                "there, and raise another exception"
            ) from exc
        finally:
            self._starts[key].remove(start)
            if not self._starts[key]:
                del self._starts[key]
        if start.why is not None:
            raise StoppedEarly(start.why)
        return value

    def stop(self, key: str, reason: str, *, run: str | None = None) -> bool:
        """Stop the requests of a conversation, or only the one of this run; returns False if there
        is none.
        """
        starts = [start for start in self._starts.get(key, ()) if run in (None, start.run)]
        for start in starts:
            start.stop(reason)
        return bool(starts)
