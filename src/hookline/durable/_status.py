"""What operators see of durable chats, and what an engine offers them."""

from __future__ import annotations

from typing import Final, Literal, Protocol, get_args

import msgspec

State = Literal["queued", "running", "waiting", "done", "aborted", "failed", "quarantined"]
"""A chat waits for a worker, runs, waits for an answer, is over, or waits for an operator."""
STATES: Final[tuple[State, ...]] = get_args(State)
Sending = Literal["queued", "repeated", "full", "over"]
"""What an engine did with a message: "repeated", the job has it; "full" and "over", it has not."""
_HEAD: Final = 40  # characters of an outcome that contain its kind


class ChatStatus(msgspec.Struct, frozen=True, kw_only=True):
    """What an engine knows about a chat without reading its record."""

    id: str
    """The id of the chat."""
    state: State
    """Whether the chat waits, runs or is over."""
    agent: str | None
    """The agent whose workers may run the chat; None: all."""
    key: str | None = None
    """The key that the chat was started with, such as a tenant."""
    conversation: str | None = None
    """The conversation of the chat."""
    version: str | None = None
    """The version of the code that ran the chat last."""
    created: float
    """When the chat was started, in seconds since 1970."""
    ended: float | None = None
    """When the chat ended."""
    deaths: int = 0
    """How many of its lives have died with their worker since one ended well."""


class Counts(msgspec.Struct, frozen=True, kw_only=True):
    """The figures of a queue."""

    queued: int = 0
    """Chats that wait for a worker."""
    oldest: float = 0.0
    """The age of the oldest of these in seconds."""
    running: int = 0
    """Chats that a worker runs."""
    resting: int = 0
    """Chats that wait for an answer, or for their next attempt."""
    quarantined: int = 0
    """Chats that were quarantined."""
    drained: bool = False
    """Whether workers take no chats, because of `drain`."""


class Query(msgspec.Struct, frozen=True, kw_only=True):
    """Which chats to list."""

    id: str | None = None
    state: State | None = None
    agent: str | None = None
    key: str | None = None
    conversation: str | None = None
    """How the id of the conversation begins."""
    before: float | None = None
    """Only chats that were started before this time."""
    limit: int = 100


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """All that an engine knows about a chat."""

    id: str
    created: float
    aborted: float | None
    abort: str | None
    """The reason of the requested abort, as JSON."""
    ended: float | None
    state: State | None
    """How the chat ended."""
    outcome: str | None
    input: str
    lives: list[tuple[str, str | None, float, float | None, str | None]]
    """Owner, version, begin, end, and how it ended."""
    batches: list[tuple[float, bytes]]
    """The record, each batch with its time."""
    questions: list[tuple[str, str, float, str | None, float | None]]
    """Id, body, time, answer, and its time."""
    messages: list[tuple[str, float]] = []
    """The messages that clients have sent into the chat, in their order: body, time."""


def state_of(outcome: str) -> State:
    """Return the state of a chat that is over, from the start of its outcome."""
    head = outcome[:_HEAD]
    if '"chat_done"' in head:
        return "done"
    return "aborted" if '"chat_aborted"' in head else "failed"


class Operations(Protocol):
    """The operations of an engine; all texts are JSON."""

    async def add(self, id: str, job: str, /) -> object:
        """Add a job; has no effect if a job with this id exists."""
        ...

    async def result(self, id: str, /) -> str:
        """Wait for the outcome of a job; raises UsageError if there is no job with this id."""
        ...

    async def questions(self, id: str, /) -> list[str]:
        """Return the questions that wait for an answer; raises UsageError for an unknown job."""
        ...

    async def answer(self, id: str, answers: dict[str, str], trace: str | None, /) -> str | None:
        """Answer all questions or none; returns the first id that is not pending.

        `trace` is the trace context of whoever answers. Raises UsageError if there is no job with
        this id.
        """
        ...

    async def abort(self, id: str, reason: str, /) -> bool:
        """Request an abort; False if the job is done. Raises UsageError for an unknown job."""
        ...

    async def send(
        self, id: str, message: str, body: str, most: int, interrupts: bool, /
    ) -> Sending:
        """Queue a message for a job, unless the job is over or has `most` messages.

        `message` is the id of the message. If it `interrupts`, the worker is told at once.
        Raises UsageError for an unknown job.
        """
        ...

    # ── of operators ────────────────────────────────────────────────────────────────────────

    async def chats(self, query: Query, /) -> list[ChatStatus]:
        """Return the chats that match, the oldest first."""
        ...

    async def record(self, id: str, /) -> Record:
        """Return all that is known about a job. Raises UsageError for an unknown job."""
        ...

    async def queues(self) -> list[str]:
        """Return the queues that have jobs. Raises UsageError if none was ever used there."""
        ...

    async def counts(self) -> Counts:
        """Return the figures of the queue."""
        ...

    async def discard(self, id: str, outcome: str, state: State, /) -> bool:
        """Store the outcome of a job that no life holds; False if one does, or if it is over.

        Raises UsageError for an unknown job.
        """
        ...

    async def drain(self) -> None:
        """Let no worker take a job until `resume`."""
        ...

    async def resume(self) -> None:
        """Let workers take jobs again."""
        ...

    async def retry(self, id: str, /) -> bool:
        """Queue a quarantined job again; False if it is not quarantined.

        Raises UsageError for an unknown job.
        """
        ...

    async def delete(self, id: str, /) -> bool:
        """Delete a job that is over; False if it is not. Raises UsageError for an unknown job."""
        ...

    async def forget(self, conversation: str, /) -> int:
        """Delete the jobs of a conversation that no life holds; returns their number."""
        ...

    async def cleanup(self, before: float, /) -> int:
        """Delete all jobs that ended before this time; returns their number."""
        ...

    async def aclose(self) -> None:
        """Close the connections; the next call opens them again."""
        ...
