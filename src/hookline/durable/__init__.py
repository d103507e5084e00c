"""Chats that outlive their worker, on an engine that keeps a log for each chat.

    async with chats(agent, "sqlite:///jobs.db"), client("sqlite:///jobs.db") as jobs:
        await jobs.start("Book it.", chat_id="7f3")

The URL selects the engine, so a program moves to another engine by changing the URL:
`sqlite:///jobs.db` for one machine, with nothing to install; `postgresql://…` for many machines
with an existing database; `http://…` (Restate's address) for many machines with a separate engine.
Each engine also has a module with more options: `hookline.durable.sqlite`, `.postgres`, `.restate`.

A *life* is the work of one worker on one chat. It ends with the chat, when the chat waits for an
answer, or when the worker stops or dies; the next life replays the log, and continues.
"""

from __future__ import annotations

from typing import Any

from hookline import Agent
from hookline.durable._client import Client
from hookline.durable._deploy_check import Replay, check_chats
from hookline.durable._job import MakeDeps, Relay
from hookline.durable._status import ChatStatus, Counts
from hookline.durable._timeline import ChatMessage, Event
from hookline.durable._urls import AnyWorker, Policy, engine_of, in_queue
from hookline.errors import UsageError
from hookline.storage import shown_url

__all__ = [
    "ChatMessage",
    "ChatStatus",
    "Client",
    "Counts",
    "Event",
    "Replay",
    "chats",
    "check_chats",
    "client",
]


def chats(
    agent: Agent[Any],
    url: str,
    *,
    deps: MakeDeps | None = None,
    relay: Relay | None = None,
    queue: str | None = None,
    version: str | None = None,
    policy: Policy = "upgrade",
) -> AnyWorker:
    """Return a worker for durable chats: `async with chats(…): …`, or `await chats(…).run()`.

    `deps` converts the JSON deps of a chat to the deps that hooks and tools receive. `relay` shows
    the chats in web applications; pass a RedisRelay that nothing else uses. `queue` separates the
    agents that share a database or a Restate server (its module calls it `name`). `version` names
    the version of your code, and is recorded for each life of a chat; with the `policy` "pin", a
    chat that has begun runs only in workers of the same version. Raises UsageError if the URL names
    no known engine, if the agent has no `runtime=Durable()`, or if a package is missing.
    """
    name, engine = engine_of(url)
    worker: AnyWorker = engine.chats(
        agent, url, deps=deps, relay=relay, version=version, policy=policy, **in_queue(name, queue)
    )
    return worker


def client(url: str, *, queue: str | None = None, admin: str | None = None) -> Client:
    """Return the client that starts, answers, aborts and awaits chats, from any process.

    `queue` is the queue of the workers. `admin` is the address of Restate's admin API, by default
    port 9070 on the host of the URL. Raises UsageError if the URL names no known engine, if a
    package is missing, or if another engine than Restate has an `admin`.
    """
    name, engine = engine_of(url)
    options: dict[str, str] = in_queue(name, queue)
    if admin is not None:
        if name != "restate":
            raise UsageError(f"admin={admin!r} is for Restate; remove it for {shown_url(url)!r}")
        options["admin"] = admin
    jobs: Client = engine.Chats(url, **options)
    return jobs
