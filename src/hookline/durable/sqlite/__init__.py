"""Durable chats on one machine, in a SQLite file: nothing to install, no server.

    agent = Agent("anthropic:…", tools=[…], store="sqlite:///chats.db", runtime=Durable())
    async with chats(agent, "jobs.db"):                  # a worker: any number of processes
        client = Chats("jobs.db")                        # from any process of this machine
        await client.start("Book it.", conversation="c1", chat_id="7f3")
        response = await client.result("7f3")

A few times a second, a worker signals in the file that it is alive, and takes free jobs. If a
worker gives no sign of life for `lease` seconds, its jobs count as free. A chat that waits for an
answer is suspended after `idle` seconds, and takes up no memory until the answer arrives.
"""

from __future__ import annotations

import os
from typing import Any, Literal

from hookline import Agent
from hookline.durable._client import Client
from hookline.durable._job import MakeDeps, Relay
from hookline.durable._polled.claims import selection_of
from hookline.durable._polled.client_operations import ClientOperations
from hookline.durable._polled.worker import MONTH, Worker
from hookline.durable._polled.worker_operations import Jobs
from hookline.durable._shared.deaths import MAX_DEATHS
from hookline.durable._urls import Policy, file_of
from hookline.durable.sqlite._file import File
from hookline.errors import UsageError

__all__ = ["Chats", "Worker", "chats"]


class Chats(Client):
    """The client of the durable chats in a file, named by its path or URL; works in any process."""

    def __init__(
        self,
        file: str | os.PathLike[str],
        *,
        queue: str = "hookline",
        poll: float = 0.1,
        max_queued: int | None = None,
        synchronous: Literal["FULL", "NORMAL"] = "FULL",
    ) -> None:
        database = File(file_of(file), synchronous)
        super().__init__(ClientOperations(database, queue, poll, max_queued))


def chats(
    agent: Agent[Any],
    file: str | os.PathLike[str],
    *,
    deps: MakeDeps | None = None,
    relay: Relay | None = None,
    queue: str = "hookline",
    version: str | None = None,
    policy: Policy = "upgrade",
    per_key: int | None = None,
    retention: float | None = MONTH,
    concurrency: int = 100,
    lease: float = 1.0,
    idle: float = 1.0,
    poll: float = 0.1,
    synchronous: Literal["FULL", "NORMAL"] = "FULL",
    max_deaths: int = MAX_DEATHS,
) -> Worker:
    """Return a worker for the durable chats in a file, which is named by its path or URL.

    `deps` converts the JSON deps of a chat to the deps that hooks and tools receive. `relay` shows
    the chats in web applications; pass a RedisRelay that nothing else uses. `queue` is the queue of
    the chats. `version` names the version of your code, and is recorded for each life; with the
    `policy` "pin", a chat that has begun runs only in workers of the same version. At most
    `per_key` chats with one key run at once, in all workers. Chats that ended more than `retention`
    seconds ago are deleted. `concurrency` is the maximum number of chats that run at once. A worker
    that gives no sign of life for `lease` seconds counts as dead. A chat that only waits is
    suspended after `idle` seconds. The file is polled every `poll` seconds. `synchronous` is
    SQLite's setting: with "NORMAL", a power cut may lose the latest records, and their steps run
    again. A chat whose worker has died `max_deaths` times in a row is quarantined. Raises
    UsageError if the agent has no `runtime=Durable()`, or if an option is wrong.
    """
    if not 3 * poll <= lease <= 3600:
        raise UsageError(
            f"lease={lease!r} must be at least three times poll={poll!r}, and at most 3600"
        )
    return Worker(
        agent,
        Jobs(File(file_of(file), synchronous), queue, poll, lease),
        deps=deps,
        relay=relay,
        concurrency=concurrency,
        idle=idle,
        poll=poll,
        selection=selection_of(version, policy, per_key, max_deaths),
        retention=retention,
    )
