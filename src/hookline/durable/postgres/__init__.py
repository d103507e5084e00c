"""Durable chats on PostgreSQL, on any number of machines; no other server is needed.

    agent = Agent("anthropic:…", tools=[…], store="postgresql://…", runtime=Durable())
    async with chats(agent, "postgresql://…"):               # a worker: any number of processes
        async with Chats("postgresql://…") as client:        # from any process
            await client.start("Book it.", conversation="c1", chat_id="7f3")
            response = await client.result("7f3")

hookline creates its tables, whose names begin with `hookline_job`, on first use. If a worker gives
no sign of life for `lease` seconds, other workers take over its chats. A chat that waits for an
answer is suspended after `idle` seconds.
"""

from __future__ import annotations

from typing import Any

from hookline import Agent
from hookline.durable._client import Client
from hookline.durable._job import MakeDeps, Relay
from hookline.durable._polled.claims import selection_of
from hookline.durable._polled.client_operations import ClientOperations
from hookline.durable._polled.worker import MONTH, Worker
from hookline.durable._polled.worker_operations import Jobs
from hookline.durable._shared.deaths import MAX_DEATHS
from hookline.durable._urls import Policy
from hookline.durable.postgres._connection import Connections
from hookline.errors import UsageError

__all__ = ["Chats", "Worker", "chats"]


class Chats(Client):
    """The client of the durable chats in a database; works in any process."""

    def __init__(
        self,
        url: str,
        *,
        queue: str = "hookline",
        poll: float = 0.1,
        max_queued: int | None = None,
    ) -> None:
        super().__init__(ClientOperations(Connections(url), queue, poll, max_queued))


def chats(
    agent: Agent[Any],
    url: str,
    *,
    deps: MakeDeps | None = None,
    relay: Relay | None = None,
    queue: str = "hookline",
    version: str | None = None,
    policy: Policy = "upgrade",
    per_key: int | None = None,
    retention: float | None = MONTH,
    concurrency: int = 100,
    lease: float = 3.0,
    idle: float = 1.0,
    poll: float = 0.1,
    max_deaths: int = MAX_DEATHS,
) -> Worker:
    """Return a worker for the durable chats in a database.

    `deps` converts the JSON deps of a chat to the deps that hooks and tools receive. `relay` shows
    the chats in web applications; pass a RedisRelay that nothing else uses. `queue` is the queue of
    the chats. `version` names the version of your code, and is recorded for each life; with the
    `policy` "pin", a chat that has begun runs only in workers of the same version. At most
    `per_key` chats with one key run at once, in all workers. Chats that ended more than `retention`
    seconds ago are deleted. `concurrency` is the maximum number of chats that run at once. A worker
    that gives no sign of life for `lease` seconds counts as dead. A chat that only waits is
    suspended after `idle` seconds. The database is polled every `poll` seconds. A chat whose worker
    has died `max_deaths` times in a row is quarantined. Raises UsageError if the agent has no
    `runtime=Durable()`, or if an option is wrong.
    """
    if lease < 3 * poll:
        raise UsageError(f"lease={lease!r} must be at least three times poll={poll!r}")
    return Worker(
        agent,
        Jobs(Connections(url), queue, poll, lease),
        deps=deps,
        relay=relay,
        concurrency=concurrency,
        idle=idle,
        poll=poll,
        selection=selection_of(version, policy, per_key, max_deaths),
        retention=retention,
    )
