"""Durable chats on Restate, on any number of machines; a dead worker is noticed at once.

    agent = Agent("anthropic:…", tools=[…], store="postgresql://…", runtime=Durable())
    app = chats(agent)                                   # ASGI: `hypercorn module:app`, or
    async with chats(agent, "http://127.0.0.1:8080"):    # served and registered from here
        async with Chats("http://127.0.0.1:8080") as client:     # from any process, on any machine
            await client.start("Book it.", conversation="c1", chat_id="7f3")
            response = await client.result("7f3")

The client needs no SDK, only httpx. A chat that waits for an answer is suspended after `idle`
seconds, and takes up no memory until the answer arrives. You also need Restate's server, a separate
program.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from importlib import import_module
from typing import Any
from urllib.parse import urlsplit

from hookline import Agent
from hookline.durable._client import Client
from hookline.durable._job import MakeDeps, Relay, check_agent, check_limits
from hookline.durable._shared.deaths import MAX_DEATHS
from hookline.durable._shared.extra import needed
from hookline.durable._shared.same_machine import LastCall
from hookline.durable._urls import Policy
from hookline.durable.restate._admin import Admin, address_for, listen
from hookline.durable.restate._operator_requests import OperatorRequests
from hookline.durable.restate._reports import Reports
from hookline.errors import StoreError, UsageError
from hookline.points import as_tuple
from hookline.runtimes import Journal

__all__ = ["Chats", "Worker", "chats"]

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
DAY = 86_400.0
_CLOSING = 1.0  # seconds for lives that are cut off to close their step


class Chats(Client):
    """The client of the durable chats on a Restate server; works in any process."""

    def __init__(
        self,
        url: str,
        *,
        name: str = "hookline",
        headers: dict[str, str] | None = None,
        admin: str | None = None,
    ) -> None:
        """`url` is Restate's ingress; `name` is the workers' name; requests carry `headers`.

        `admin` is the address of Restate's admin API, which the methods for operators use; the
        default is port 9070 on the host of the ingress.
        """
        super().__init__(OperatorRequests(url, name, headers or {}, admin))


class Worker:
    """An ASGI application that runs an agent's chats; Restate calls it over HTTP/2.

    `async with worker: …` and `await worker.run()` also serve the application with hypercorn, and
    register the application with Restate. Raises UsageError if `bind` has no port.
    """

    def __init__(
        self,
        agent: Agent[Any],
        url: str | None = None,
        *,
        deps: MakeDeps | None = None,
        relay: Relay | None = None,
        name: str = "hookline",
        concurrency: int = 100,
        max_deaths: int = MAX_DEATHS,
        idle: float = 30.0,
        retention: float = 30 * DAY,
        identity_keys: Sequence[str] = (),
        bind: str = "127.0.0.1:9080",
        advertise: str | None = None,
        admin: str | None = None,
    ) -> None:
        check_agent(agent, relay)
        check_limits(concurrency, max_deaths)
        _check_addresses(bind, advertise)
        restate = needed("restate")
        module = import_module("hookline.durable.restate._services")  # imports the SDK
        self._lives: set[Journal] = set()
        self._last_call = LastCall(name)
        self._reports = None if url is None else Reports(url, name, admin)
        services = module.services_of(
            agent,
            deps=deps,
            relay=relay,
            name=name,
            concurrency=concurrency,
            idle=idle,
            retention=retention,
            lives=self._lives,
            last_call=self._last_call,
            reports=self._reports,
            max_deaths=max_deaths,
        )
        keys = list(as_tuple("identity_keys", identity_keys))
        self._app = restate.app(services, protocol="bidi", identity_keys=keys)
        self._relay = relay
        self._bind = bind
        self._advertise = advertise
        self._calls: set[asyncio.Task[Any]] = set()
        self._refusals: set[asyncio.Task[Any]] = set()
        self._running: asyncio.Task[None] | None = None
        self._stopping = asyncio.Event()
        self._drain = 0.0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request of Restate."""
        if scope["type"] != "lifespan":
            is_refused = self._stopping.is_set()
            tasks = self._refusals if is_refused else self._calls
            task = asyncio.current_task()
            assert task is not None
            tasks.add(task)
            try:
                await (_refuse(receive, send) if is_refused else self._app(scope, receive, send))
            finally:
                tasks.discard(task)
            return
        while True:
            message = await receive()
            if message["type"] == "lifespan.shutdown":
                self._last_call.close()
                if self._reports is not None:
                    await self._reports.aclose()
                if self._relay is not None:
                    await self._relay.aclose()
                await send({"type": "lifespan.shutdown.complete"})
                return
            try:
                await asyncio.to_thread(self._last_call.open)
                if self._relay is not None:
                    await self._relay.open()
            except StoreError as exc:
                await send({"type": "lifespan.startup.failed", "message": str(exc)})
                return
            await send({"type": "lifespan.startup.complete"})

    async def __aenter__(self) -> Worker:
        up = asyncio.Event()
        self._running = asyncio.create_task(self._serve(up))
        waiting = asyncio.create_task(up.wait())
        try:
            await asyncio.wait([self._running, waiting], return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            await self.__aexit__()
            raise
        finally:
            waiting.cancel()
        if self._running.done():
            self._running.result()
        return self

    async def __aexit__(self, *exc: object) -> None:
        running, self._running = self._running, None
        if running is not None:
            if not self._stopping.is_set():
                running.cancel()
            await asyncio.wait([running])

    def stop(self, drain: float = 10.0) -> None:
        """Refuse new calls, and end `run()`, or the block, once no step of a chat runs.

        Running model calls and tool calls have `drain` seconds to end; the rest is cut off, as if
        the worker was cancelled. Restate continues the chats in another worker. Call this in the
        event loop of the worker.
        """
        self._drain = drain
        self._stopping.set()
        for journal in list(self._lives):
            journal.drain()

    async def run(self) -> None:
        """Serve until stopped or cancelled. After that, Restate continues the running chats in
        another worker.
        """
        await self._serve(asyncio.Event())

    async def _work(self, admin: Admin, serving: asyncio.Future[Any], up: asyncio.Event) -> None:
        """Register with Restate, then adopt chats of workers that are gone, until stopped."""
        stopping = asyncio.ensure_future(self._stopping.wait())
        work = asyncio.ensure_future(admin.register())
        try:
            await _until_first(serving, stopping, work)
            if work.done():
                work.result()
                up.set()
                work = asyncio.ensure_future(admin.adopt())
                await _until_first(serving, stopping, work)
        finally:
            stopping.cancel()
            work.cancel()
            await asyncio.wait([work])

    async def _serve(self, up: asyncio.Event) -> None:
        if self._reports is None:
            raise UsageError(
                f"a worker cannot listen at {self._bind!r} without url=; pass the URL of Restate's "
                "ingress, as in chats(agent, 'http://127.0.0.1:8080'), or serve it with hypercorn"
            )
        hypercorn = needed("hypercorn")
        needed("hypercorn.asyncio")
        admin = Admin(self._reports, self._advertise or address_for(self._bind, self._reports.url))
        listener = listen(self._bind)
        config = hypercorn.Config()
        config.bind = [f"fd://{listener.detach()}"]  # hypercorn closes it
        config.errorlog = config.accesslog = None
        config.h2_max_concurrent_streams = 10_000
        config.graceful_timeout = 1.0
        over = asyncio.Event()
        serving = asyncio.ensure_future(
            hypercorn.asyncio.serve(self, config, shutdown_trigger=over.wait)
        )
        try:
            await self._work(admin, serving, up)
            if serving.done():
                serving.result()
            elif self._calls:
                await asyncio.wait(self._calls, timeout=self._drain)
        finally:
            if self._lives:  # they close their step, so that they have not died
                for journal in list(self._lives):
                    journal.halt()
                await asyncio.wait(self._calls, timeout=_CLOSING)
            while self._calls:  # Restate continues these chats elsewhere
                for call in self._calls:
                    call.cancel()
                await asyncio.wait(self._calls, timeout=0.1)
            if self._refusals:  # hypercorn can then close their connections in order
                await asyncio.wait(self._refusals, timeout=_CLOSING)
            over.set()
            await asyncio.wait([serving])
            await self._reports.aclose()


def _check_addresses(bind: str, advertise: str | None) -> None:
    if advertise is not None and urlsplit(advertise).scheme not in ("http", "https"):
        raise UsageError(
            f"advertise={advertise!r} must be the URL at which Restate reaches the workers, "
            "such as 'http://workers.internal:9080'"
        )
    if not bind.rpartition(":")[2].isdecimal():
        raise UsageError(f"bind={bind!r} must be a host and a port, such as '127.0.0.1:9080'")


async def _refuse(receive: Receive, send: Send) -> None:
    """Answer that this worker takes no more calls.

    The response ends after the request: hypercorn breaks off a connection that brings data for a
    response that has ended, and with it the calls that still run on this connection.
    """
    await send({"type": "http.response.start", "status": 503, "headers": []})
    is_open = True
    while is_open:  # until the request has ended, or its connection
        is_open = (await receive()).get("more_body", False)
    await send({"type": "http.response.body", "body": b""})


async def _until_first(*tasks: asyncio.Future[Any]) -> None:
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)


def chats(
    agent: Agent[Any],
    url: str | None = None,
    *,
    deps: MakeDeps | None = None,
    relay: Relay | None = None,
    name: str = "hookline",
    version: str | None = None,
    policy: Policy = "upgrade",
    concurrency: int = 100,
    max_deaths: int = MAX_DEATHS,
    idle: float = 30.0,
    retention: float = 30 * DAY,
    identity_keys: Sequence[str] = (),
    bind: str = "127.0.0.1:9080",
    advertise: str | None = None,
    admin: str | None = None,
) -> Worker:
    """Return a worker, an ASGI application, for the durable chats of a Restate server.

    `deps` converts the JSON deps of a chat to the deps that hooks and tools receive. `relay` shows
    the chats in web applications; pass a RedisRelay that nothing else uses. `name` is the name of
    the worker's services: each agent of a server needs a different name. `version` is not recorded
    by Restate, and its only `policy` is "upgrade". A chat that only waits is suspended after `idle`
    seconds. A worker that hangs counts as dead after twice `idle` seconds, or after 20 seconds if
    that is longer. For `retention` seconds, Restate keeps outcomes and recognizes known ids. If the
    Restate server signs its calls, `identity_keys` are the server's public keys. `url` is the
    address of Restate's ingress. If `url` is given, `async with` and `run()` serve the application
    at `bind`, and register it with Restate at the address `advertise`, by default that of `bind`;
    if the server is away, they wait. Give all workers one `advertise`, that of a load balancer.
    `concurrency` is the most chats that a worker runs at once. `admin` is the address of Restate's
    admin API; the default is port 9070 on the host of the ingress. Raises UsageError if the agent
    has no `runtime=Durable()`, or if `bind` has no port.
    """
    if policy != "upgrade":
        raise UsageError(
            f"policy={policy!r} cannot be used with Restate; give the workers of each version an "
            "address of their own, advertise="
        )
    return Worker(
        agent,
        url,
        deps=deps,
        relay=relay,
        name=name,
        concurrency=concurrency,
        max_deaths=max_deaths,
        idle=idle,
        retention=retention,
        identity_keys=identity_keys,
        bind=bind,
        advertise=advertise,
        admin=admin,
    )
