"""The state of a durable chat, as an operator sees it, and what an engine offers an operator."""

from __future__ import annotations

from typing import Final, Literal, Protocol, get_args, runtime_checkable

import msgspec

from hookline.errors import UsageError

State = Literal["queued", "running", "waiting", "done", "aborted", "failed", "quarantined"]
"""A chat waits for a worker, runs, waits for an answer, is over, or waits for an operator."""
STATES: Final[tuple[State, ...]] = get_args(State)
HEAD: Final = 40  # characters of an outcome that contain its kind


class ChatStatus(msgspec.Struct, frozen=True, kw_only=True):
    """What an engine knows about a chat without reading its record."""

    id: str
    """The id of the chat."""
    state: State
    """Whether the chat waits, runs or is over."""
    agent: str | None
    """The agent whose workers may run the chat; None: all."""
    created: float
    """When the chat was started, in seconds since 1970."""
    deaths: int = 0
    """How many of its lives in a row have died with their worker."""


class Query(msgspec.Struct, frozen=True, kw_only=True):
    """Which chats to list."""

    id: str | None = None
    state: State | None = None
    agent: str | None = None
    before: float | None = None
    """Only chats that were started before this time."""
    limit: int = 100


def state_of(outcome: str) -> State:
    """Return the state of a chat that is over, from the start of its outcome."""
    head = outcome[:HEAD]
    if '"chat_done"' in head:
        return "done"
    return "aborted" if '"chat_aborted"' in head else "failed"


def check_query(query: Query) -> Query:
    """Raise UsageError for a state that no chat has, or a limit below 1."""
    if query.state is not None and query.state not in STATES:
        raise UsageError(f"state={query.state!r} must be one of {', '.join(STATES)}")
    if query.limit < 1:
        raise UsageError(f"limit={query.limit!r} must be at least 1")
    return query


@runtime_checkable
class Operated(Protocol):
    """An engine whose chats can be listed, retried and deleted through hookline."""

    async def chats(self, query: Query, /) -> list[ChatStatus]:
        """Return the chats that match, the oldest first."""
        ...

    async def discard(self, id: str, outcome: str, /) -> bool:
        """Store the outcome of a job that no life holds; False if one does, or if it is over.

        Raises UsageError for an unknown job.
        """
        ...

    async def retry(self, id: str, /) -> bool:
        """Queue a quarantined job again; False if it is not quarantined.

        Raises UsageError for an unknown job.
        """
        ...

    async def delete(self, id: str, /) -> bool:
        """Delete a job that is over; False if it is not. Raises UsageError for an unknown job."""
        ...

    async def cleanup(self, before: float, /) -> int:
        """Delete all jobs that ended before this time; returns their number."""
        ...
