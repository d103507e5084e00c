"""What a worker asks of an engine that is polled."""

from __future__ import annotations

from collections.abc import Set
from typing import NamedTuple, Protocol


class Taken(NamedTuple):
    """A job that this worker has taken."""

    id: str
    owner: str
    job: str
    abort: str | None = None
    """The reason of the requested abort, as JSON."""
    deaths: int = 0
    """The lives in a row that died; a job with deaths counts as begun once `begin` is called."""


class Jobs(Protocol):
    """The job storage of an engine; all texts are JSON. Each call may raise StoreError."""

    async def take(
        self,
        worker: str,
        limit: int,
        refused: Set[str],
        agent: str | None = None,
        max_deaths: int = 5,
        /,
    ) -> list[Taken]:
        """Take jobs without an owner, or whose worker gives no sign of life.

        Only jobs of this agent (None: of any agent), and none of the `refused`. The deaths of lives
        are counted here, and a job with `max_deaths` is quarantined.
        """
        ...

    async def others(self, agent: str, /) -> set[str]:
        """Return the other agents that open jobs are for."""
        ...

    async def begin(self, id: str, owner: str, /) -> None:
        """Note that the life of a job with deaths begins."""
        ...

    async def clear(self, id: str, owner: str, /) -> None:
        """Forget the deaths of a job: this life has made progress."""
        ...

    async def lost(self, id: str, owner: str, /) -> None:
        """Take back the death of a life that has lost its job, but did not die."""
        ...

    async def beat(self, owners: list[str], /) -> dict[str, str | None]:
        """Renew lives; returns those that still own their job, each with its requested abort."""
        ...

    async def aborted(self, id: str, owner: str, /) -> None:
        """Note that the requested abort is in the log."""
        ...

    async def read(self, id: str, owner: str, /) -> list[bytes]:
        """Read the log of a job."""
        ...

    async def append(self, id: str, owner: str, data: bytes, /) -> bool:
        """Append to the log of a job; False if another life owns the job now."""
        ...

    async def ask(
        self, id: str, owner: str, request: str, body: str, default: str | None, /
    ) -> str | None:
        """Store a question, unless it exists; returns its answer, if there is one.

        `default` answers the question if there is no answer: its time has expired.
        """
        ...

    async def rest(self, id: str, owner: str, requests: list[str], wake: float | None, /) -> bool:
        """Put a job aside that waits for these answers; False if an answer is already there."""
        ...

    async def leave(self, id: str, owner: str, delay: float = 0.0, /) -> None:
        """Release a job for any other life, after `delay` seconds."""
        ...

    async def finish(self, id: str, owner: str, outcome: str, /) -> None:
        """Store the outcome of a job."""
        ...

    async def aclose(self) -> None:
        """Close the connections."""
        ...
