"""Durable chats on PostgreSQL, on any number of machines; no other server is needed.

    agent = Agent("anthropic:…", tools=[…], store="postgresql://…", runtime=Durable())
    async with chats(agent, "postgresql://…"):               # a worker: any number of processes
        async with Chats("postgresql://…") as client:        # from any process
            await client.start("Book it.", conversation="c1", chat_id="7f3")
            response = await client.result("7f3")

The chats are tasks of Absurd, a schema of PostgreSQL functions for queues, claims, checkpoints and
events. hookline creates this schema if it is missing. The program `absurdctl` lists tasks and
deletes old tasks. If a worker gives no sign of life for `lease` seconds, other workers take over
its chats. A chat that waits for an answer is suspended after `idle` seconds.
"""

from __future__ import annotations

from typing import Any

from hookline import Agent
from hookline.durable._client import Client
from hookline.durable._job import MakeDeps, Relay
from hookline.durable._polled.deaths import MAX_DEATHS
from hookline.durable._polled.worker import Worker
from hookline.durable.postgres._tasks import Jobs
from hookline.errors import UsageError

__all__ = ["Chats", "Worker", "chats"]


class Chats(Client):
    """The client of the durable chats in a database; works in any process."""

    def __init__(self, url: str, *, queue: str = "hookline", poll: float = 0.1) -> None:
        super().__init__(Jobs(url, queue, poll))


def chats(
    agent: Agent[Any],
    url: str,
    *,
    deps: MakeDeps | None = None,
    relay: Relay | None = None,
    queue: str = "hookline",
    concurrency: int = 100,
    lease: int = 3,
    idle: float = 1.0,
    poll: float = 0.1,
    max_deaths: int = MAX_DEATHS,
) -> Worker:
    """Return a worker for the durable chats in a database.

    `deps` converts the JSON deps of a chat to the deps that hooks and tools receive. `relay` shows
    the chats in web applications; pass a RedisRelay that nothing else uses. `queue` is the queue of
    the chats. `concurrency` is the maximum number of chats that run at once. A worker that gives no
    sign of life for `lease` seconds counts as dead; `lease` is a whole number. A chat that only
    waits is suspended after `idle` seconds. The database is polled every `poll` seconds. A chat
    whose worker has died `max_deaths` times in a row is quarantined. Raises UsageError if the agent
    has no `runtime=Durable()`, if `concurrency` is below 1, or if the lease is too short.
    """
    if lease != int(lease) or lease < 1 or lease < 3 * poll:
        raise UsageError(
            f"lease={lease!r} must be a whole number, at least three times poll={poll!r}"
        )
    jobs = Jobs(url, queue, poll, lease)
    return Worker(
        agent,
        jobs,
        deps=deps,
        relay=relay,
        concurrency=concurrency,
        idle=idle,
        poll=poll,
        max_deaths=max_deaths,
    )
