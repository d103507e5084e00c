"""Two web applications that steer and show the durable chats of an engine, in three protocols."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
from tests.durable._engines import Engine
from tests.web._redis import URL as REDIS
from tests.web._server import TOKEN, client, serve
from tests.web.test_site import answer_of
from tests.web.test_steering import PROTOCOLS, sent

from hookline import Agent, Text, UserMessage
from hookline.durable import ChatMessage
from hookline.runtimes import Durable, sent_into
from hookline.stores import SQLStore
from hookline.testing import ScriptedModel
from hookline.web import Caps, app
from hookline.web.relay import RedisRelay

CAPS = Caps(streams=5000, streams_per_principal=5000)


class Doors:
    """Each chat has one of the protocols; messages and readers go to both applications."""

    def __init__(self, sites: list[httpx.AsyncClient]) -> None:
        self._sites = sites
        self._ids: dict[str, str] = {}  # of the clients, by the id in the chat
        self._over: dict[str, asyncio.Event] = {}
        self._readers: dict[str, list[asyncio.Task[list[tuple[str, str]]]]] = {}
        self.in_history: dict[str, set[str]] = {}
        """The messages that a client with an approval to answer has found in the history."""

    def _path(self, id: str) -> tuple[str, str]:
        protocol = PROTOCOLS[int(id.rpartition("-")[2]) % len(PROTOCOLS)]
        return protocol, f"/{protocol}/{id}"

    async def send(self, id: str, text: str, when: Any) -> ChatMessage:
        """Send a message, as a client that sends it again until it knows what became of it."""
        protocol, path = self._path(id)
        own = f"m-{len(self._ids)}"
        message = sent_into(id, UserMessage(id=own, parts=(Text(text),)))
        self._ids[message.id] = own
        refused = await self._post(f"{path}/messages", sent(protocol, text, own, when=when))
        return ChatMessage(
            message=message,
            when=when,
            status="queued" if refused is None else "returned",
            reason=refused,
        )

    async def is_refused(self, id: str, each: ChatMessage) -> bool:
        """Whether a message is refused when its client sends it again."""
        protocol, path = self._path(id)
        own = self._ids[each.message.id]
        body = sent(protocol, each.message.text, own, when=each.when)
        return await self._post(f"{path}/messages", body) is not None

    async def _post(self, path: str, body: Any) -> str | None:
        while True:
            reply = await self._ask("POST", path, json=body)
            if reply.status_code == 202:
                return None
            if reply.status_code == 409 and reply.text.startswith("Not delivered"):
                return reply.text
            assert reply.status_code in (409, 503), reply.text  # it has not begun, or nobody knows
            await asyncio.sleep(0.05)

    async def _ask(self, method: str, path: str, **options: Any) -> httpx.Response:
        """Ask either application; again, if it closes the connection."""
        while True:
            self._sites.reverse()
            try:
                return await self._sites[0].request(method, path, **options)
            except httpx.TransportError:
                await asyncio.sleep(0.05)

    def read(self, id: str) -> None:
        """Read the streams of a chat from now on."""
        self._over[id] = asyncio.Event()
        self._readers[id] = [asyncio.create_task(self._read(id))]

    def end(self, id: str) -> None:
        """Stop reading: the chat is over."""
        self._over[id].set()

    async def answer(self, id: str) -> None:
        """Approve what a chat waits for, if it waits, and read the stream of the response.

        A run can begin and end between two requests for the stream, but not unread by whoever has
        begun it. What the first run has delivered is in the history that its client reads here.
        """
        protocol, path = self._path(id)
        shown = await self._ask("GET", f"{path}/messages")
        if shown.status_code != 200:  # the store is busy
            return
        body = approval_in(protocol, id, shown.json())
        if body is not None:
            self.in_history[id] = {message["id"] for message in shown.json()["messages"]}
            self._readers[id].append(asyncio.create_task(self._begin(protocol, body)))

    async def told(self, id: str) -> list[tuple[str, str]]:
        """What the streams of a chat have said of its messages."""
        streams = await asyncio.gather(*self._readers[id])
        return [item for stream in streams for item in stream]

    async def _begin(self, protocol: str, body: Any) -> list[tuple[str, str]]:
        reply = await self._ask("POST", f"/{protocol}", json=body)
        assert reply.status_code in (200, 409, 503), reply.text  # it may be answered already
        return told_in(protocol, reply.text)

    async def _read(self, id: str) -> list[tuple[str, str]]:
        protocol, path = self._path(id)
        told: list[tuple[str, str]] = []
        while not self._over[id].is_set():
            reply = await self._ask("GET", f"{path}/stream")
            told += told_in(protocol, reply.text)
            if reply.status_code == 204:
                await asyncio.sleep(0.3)
        return told


def approval_in(protocol: str, id: str, shown: Any) -> dict[str, Any] | None:
    """The approval of what the messages of a conversation show as pending; None if nothing is."""
    if protocol != "ai-sdk":
        for request in shown["pending"]:
            return answer_of(protocol, {"id": request["id"]}, conversation=id)
    for message in shown["messages"] if protocol == "ai-sdk" else ():
        for part in message["parts"]:
            if part.get("state") == "approval-requested":
                known = {"id": part["approval"]["id"], "message": message["id"]}
                body = answer_of(
                    protocol, known, conversation=id, call=part["toolCallId"], input=part["input"]
                )
                body["messages"][0]["parts"][0]["type"] = part["type"]
                return body
    return None


def told_in(protocol: str, data: str) -> list[tuple[str, str]]:
    """What a stream says of the messages that were sent: (id, status)."""
    lines = [
        line.removeprefix("data: ") for line in data.splitlines() if line.startswith("data: {")
    ]
    told: list[tuple[str, str]] = []
    for event in map(json.loads, lines):
        if protocol == "native":
            kind = str(event.get("event")).removeprefix("message_")
            if kind in ("queued", "returned", "added"):
                status = "delivered" if kind == "added" else kind
                told.append((event["message"]["id"], status))
        elif event["type"] in ("data-message", "CUSTOM") and event.get("name") in (None, "message"):
            value = event["data" if protocol == "ai-sdk" else "value"]
            told.append((value["message"]["id"], value["status"]))
    return told


@asynccontextmanager
async def doors(engine: Engine, store: str, prefix: str) -> AsyncIterator[Doors]:
    """Serve both applications; the chats are those of the engine, shown through the relay."""
    async with (
        SQLStore(store, busy_timeout=60.0) as opened,
        _site(engine, opened, prefix) as one,
        _site(engine, opened, prefix) as two,
    ):
        yield Doors([one, two])


@asynccontextmanager
async def _site(engine: Engine, store: SQLStore, prefix: str) -> AsyncIterator[httpx.AsyncClient]:
    site = app(
        Agent(ScriptedModel(), runtime=Durable(), store=store),
        token=TOKEN,
        on_disconnect="detach",
        relay=RedisRelay(REDIS, prefix=prefix),
        durable=engine.client(),
        caps=CAPS,
    )
    async with serve(site) as address, client(address) as http:
        http.timeout = httpx.Timeout(None)
        yield http
