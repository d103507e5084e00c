"""The admin API of Restate: the address of a worker, and the chats of workers that are gone.

Restate runs a chat at the address where it began. So all workers should have one stable address, of
a load balancer for example. If a worker has an address of its own and is gone, Restate tries that
address for ever. Each worker therefore looks for such chats, and moves them to its own address.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from typing import Final
from urllib.parse import urlsplit

import msgspec

from hookline.durable.restate._requests import Requests, quoted
from hookline.errors import StoreError, UsageError

logger = logging.getLogger("hookline.durable")
_AGAIN: Final = 1.0  # seconds before an unreachable server is tried again
_LOOK: Final = 3.0  # seconds between two looks for chats of workers that are gone
_ATTEMPTS: Final = 5  # failed connections after which a worker counts as gone
_MARK: Final = "moving"
"""The state of a chat that a worker pauses to move it; the worker may die before it resumes it."""
_NOT_CONNECTED: Final = "RT0010"  # Restate's own code: it could not connect to the address


class _Service(msgspec.Struct, frozen=True):
    name: str


class _Deployment(msgspec.Struct, frozen=True):
    id: str
    uri: str = ""
    services: tuple[_Service, ...] = ()


class _Deployments(msgspec.Struct, frozen=True):
    deployments: tuple[_Deployment, ...] = ()


class _Row(msgspec.Struct, frozen=True):
    id: str
    chat: str
    status: str


def listen(bind: str) -> socket.socket:
    """Listen at `bind`, a host and a port; `[::]` is all interfaces, also those without IPv6."""
    host, _, port = bind.rpartition(":")
    host = host.strip("[]")
    return socket.create_server(
        (host, int(port)),
        family=socket.AF_INET6 if ":" in host else socket.AF_INET,
        dualstack_ipv6=host == "::" and socket.has_dualstack_ipv6(),
        backlog=1000,
        reuse_port=True,
    )


def address_for(bind: str, server: str) -> str:
    """The address at which a server reaches what is bound to `bind`."""
    host, _, port = bind.rpartition(":")
    if host.strip("[]") in ("", "0.0.0.0", "::"):
        parts = urlsplit(server)
        family = socket.AF_INET6 if ":" in (parts.hostname or "") else socket.AF_INET
        with socket.socket(family, socket.SOCK_DGRAM) as probe:  # sends nothing
            try:
                probe.connect((parts.hostname or "127.0.0.1", parts.port or 80))
                address = probe.getsockname()[0]
            except OSError:
                address = socket.gethostname()
        host = f"[{address}]" if ":" in address else address
    return f"http://{host}:{port}"


class Admin:
    """One worker's view of the admin API."""

    def __init__(self, requests: Requests, uri: str) -> None:
        """`uri` is the address of the worker."""
        self._requests = requests
        self._name, self._url = requests.name, requests.admin
        self._names = frozenset({self._name, f"{self._name}-answers"})
        self._uri = uri.rstrip("/")
        self._id = ""  # of our deployment

    async def register(self) -> None:
        """Register the worker; wait and log while the server is away.

        Raises UsageError if the address belongs to other services, or Restate cannot reach it.
        """
        waits = False
        while True:
            try:
                await self._register()
                logger.info(
                    "a worker begins: it serves the chats of %r at %s", self._name, self._uri
                )
                return
            except StoreError as exc:
                if not waits:
                    logger.warning("the worker waits for its server: %s", type(exc).__name__)
                waits = True
                await asyncio.sleep(_AGAIN)

    async def _register(self) -> None:
        answer = await self._requests.ask("GET", f"{self._url}/deployments")
        deployments = msgspec.json.decode(answer.content, type=_Deployments).deployments
        is_known = False
        for other in deployments:
            names = {service.name for service in other.services}
            if other.uri.rstrip("/") == self._uri:
                is_known = True
                if foreign := sorted(names - self._names):
                    raise UsageError(
                        f"advertise={self._uri!r} is registered with Restate for {foreign[0]!r}; "
                        "use another address, or remove that one: restate deployments remove "
                        f"{other.id}"
                    )
            elif names & self._names:
                logger.warning(
                    "chats of %r are also registered at %s: chats that began there stay there; "
                    "give all workers one address, advertise=",
                    self._name,
                    other.uri,
                )
        # What is registered here has only our own names, so it may be replaced.
        body = msgspec.json.encode({"uri": self._uri, "force": is_known})
        answer = await self._requests.ask("POST", f"{self._url}/deployments", body)
        if not answer.is_success:
            raise UsageError(
                f"Restate at {self._url} did not accept the worker at {self._uri}; check that "
                f"Restate can reach this address, or set advertise=: {answer.text.strip()}"
            )
        self._id = msgspec.json.decode(answer.content, type=_Deployment).id

    async def adopt(self) -> None:
        """Move the chats of workers that are gone to this worker, until cancelled."""
        while True:
            await asyncio.sleep(_LOOK)
            try:
                await self.move_all()
            except (StoreError, UsageError, msgspec.DecodeError) as exc:
                logger.debug("chats of other workers could not be read", exc_info=exc)

    async def move_all(self) -> None:
        """Move the chats of workers that are gone, except those that an operator has paused."""
        names = ", ".join(quoted(name) for name in sorted(self._names))
        query = (
            "SELECT i.id AS id, i.target_service_key AS chat, i.status AS status "
            "FROM sys_invocation i "
            f"LEFT JOIN state s ON s.key = '{_MARK}' AND s.service_key = i.target_service_key "
            f"AND s.service_name IN ({names}) "
            f"WHERE i.target_service_name IN ({names}) AND ("
            "(i.status = 'paused' AND s.key IS NOT NULL) OR "
            f"(i.status = 'backing-off' AND i.retry_count >= {_ATTEMPTS} "
            f"AND i.last_failure_error_code = '{_NOT_CONNECTED}' "
            f"AND i.pinned_deployment_id <> '{self._id}')) LIMIT 1000"
        )
        for row in await self._requests.rows(_Row, query):
            if row.status != "paused":
                await self._mark(row.chat, {_MARK: list(b"true")})
                await self._requests.act(row.id, "pause")
            # Two workers may have moved it at the same time: then one look more resumes it.
            state = {} if await self._resume(row.id) else {_MARK: list(b"true")}
            await self._mark(row.chat, state)

    async def _mark(self, chat: str, state: dict[str, list[int]]) -> None:
        """Set the state of the chat's object for answers, which has no other state."""
        body = msgspec.json.encode({"object_key": chat, "new_state": state})
        await self._requests.ask("POST", f"{self._url}/services/{self._name}-answers/state", body)

    async def _resume(self, id: str) -> bool:
        """Resume an invocation here; False if it is not paused yet."""
        for _ in range(10):
            if await self._requests.act(id, f"resume?deployment={self._id}"):
                logger.warning("took over a chat of %r: its worker is gone", self._name)
                return True
            await asyncio.sleep(0.1)
        return False
