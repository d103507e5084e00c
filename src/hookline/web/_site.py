"""The ASGI application: the routes of the three protocols, for one agent.

    POST   /{protocol}                  a message, answers to approvals, or the answer again
    GET    /{protocol}/{id}/stream      the run on a conversation, from its start; 204: none runs
    POST   /{protocol}/{id}/stop        stop that run
    GET    /{protocol}/{id}/messages    what was said, as that protocol writes it
    GET    /conversations               the principal's conversations; DELETE …/{id} forgets one
    GET    /, /page.css, /page.js       the chat page, where it is on

A conversation belongs to its principal: it is stored under a key that begins with the principal's
name, so that nobody can even ask for another's.
"""

from __future__ import annotations

import logging
from inspect import isawaitable
from secrets import token_hex
from typing import Any
from urllib.parse import quote

import msgspec

from hookline import Conversation, Store
from hookline.events import ErrorInfo
from hookline.web._ai_sdk import Target
from hookline.web._chats import Deps, OnDisconnect, Opening, begin
from hookline.web._guard import Guard, preflight
from hookline.web._http import Reply, Request, json_reply, refusal
from hookline.web._incoming import Refused, id_of, read_object
from hookline.web._index import Index, key_of
from hookline.web._live import Live
from hookline.web._mask import ErrorText, Mask
from hookline.web._page import page_file
from hookline.web._protocols import (
    PROTOCOLS,
    Protocol,
    encoder_for,
    last_turn,
    parse,
    shown_messages,
)
from hookline.web._runs import Runs
from hookline.web._send import Headers, Outgoing, Receive, Scope, Send, send_stream
from hookline.web._wire import plain

logger = logging.getLogger("hookline.web")


class SiteConfig(msgspec.Struct, frozen=True, kw_only=True):
    """What `app` was asked for."""

    agent: Any  # Agent: its type parameter is the caller's
    guard: Guard
    runs: Runs
    store: Store
    on_disconnect: OnDisconnect = "cancel"
    target: Target = 6
    deps: Deps | None = None
    errors: ErrorText | None = None
    options: dict[str, Any] = {}
    page: bool = False


class Site:
    """An ASGI application; `app()` makes it. `runs` is what runs at the moment."""

    def __init__(self, config: SiteConfig) -> None:
        self.runs = config.runs
        self._config = config
        self._index = Index(config.store)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
        elif scope["type"] == "http":
            await self._http(Request(scope, receive), send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})

    async def shutdown(self, drain: float | None = None) -> None:
        """Take no more requests and end all runs: see `Runs.shutdown`."""
        await self.runs.shutdown(drain)

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                await send({"type": "lifespan.startup.complete"})
            elif message["type"] == "lifespan.shutdown":
                await self.shutdown()
                await send({"type": "lifespan.shutdown.complete"})
                return

    async def _http(self, request: Request, send: Send) -> None:
        cors: Headers = ()
        try:
            if self._config.page and request.method in ("GET", "HEAD"):
                file = page_file(request.path)
                if file is not None:
                    self._config.guard.check_host(request)
                    await file.send(send)
                    return
            cors = self._config.guard.check_site(request)
            if request.method == "OPTIONS":
                await Reply(status=204).send(send, preflight(request, cors))
                return
            principal = await self._config.guard.enter(request)
            answer = await self._route(request, principal)
        except Refused as refused:
            answer = refusal(refused)
        except Exception as exc:
            text = Mask(self._config.errors).text(ErrorInfo.of(exc))
            logger.debug("a request failed", exc_info=exc)
            answer = refusal(Refused(500, text))
        if isinstance(answer, Reply):
            await answer.send(send, cors)
        else:
            await answer.send(request.receive, send, cors)

    # ── routes ──────────────────────────────────────────────────────────────────────────────

    async def _route(self, request: Request, principal: str) -> Reply | Streaming:
        first, _, rest = request.path.removeprefix("/").partition("/")
        if first == "conversations":
            return await self._conversations(request, principal, rest)
        if first not in PROTOCOLS:
            raise Refused(404, "There is nothing here; check the address.")
        protocol: Protocol = first
        if not rest:
            _allow(request, "POST")
            return await self._chat(request, principal, protocol)
        id, _, what = rest.rpartition("/")
        id = id_of(id, "A conversation's id")
        if what == "stream":
            _allow(request, "GET")
            return self._replay(request, principal, protocol, id)
        if what == "stop":
            _allow(request, "POST")
            return json_reply({"stopped": self.runs.stop(key_of(principal, id))})
        if what == "messages":
            _allow(request, "GET")
            return await self._messages(principal, protocol, id)
        raise Refused(404, "There is nothing here; check the address.")

    async def _chat(self, request: Request, principal: str, protocol: Protocol) -> Streaming:
        config = self._config
        body = await request.body(self.runs.caps.body_bytes, self.runs.caps.send)
        incoming = parse(protocol, read_object(body))
        id = incoming.conversation_id or token_hex(10)
        key = key_of(principal, id)
        self.runs.check(key, principal)
        conversation = await self._index.open(principal, id)
        options = dict(config.options)
        if config.deps is not None:
            deps = config.deps(request.scope, principal)
            options["deps"] = await deps if isawaitable(deps) else deps
        opening = Opening(
            agent=config.agent,
            runs=self.runs,
            protocol=protocol,
            on_disconnect=config.on_disconnect,
            target=config.target,
        )
        live = begin(
            opening,
            incoming,
            key=key,
            principal=principal,
            conversation=conversation,
            options=options,
        )
        # Before the run's first step, which is in a task of its own: the title is saved with it.
        self._index.touch(principal, id, conversation, incoming.message)
        return Streaming(self, live, protocol, id)

    def _replay(
        self, request: Request, principal: str, protocol: Protocol, id: str
    ) -> Reply | Streaming:
        """The run from its start, or from where a client of our own protocol had got to."""
        last = request.headers.get("last-event-id", "") if protocol == "native" else ""
        live = self.runs.find(key_of(principal, id), ended=bool(last))
        if live is None or not live.kept:
            return Reply(status=204)
        start = 0
        run, _, number = last.rpartition("-")
        if run == live.id and number.isdecimal() and len(number) < 12:
            start = int(number) + 1
        elif live.over:
            return Reply(status=204)
        if live.over and start >= live.number:
            return Reply(status=204)  # that client has it all
        if start < live.first or start > live.number:
            return Reply(status=204)
        return Streaming(self, live, protocol, id, start=start, replay=True)

    async def _messages(self, principal: str, protocol: Protocol, id: str) -> Reply:
        conversation = await self._find(principal, id)
        messages, pending = conversation.messages, conversation.pending
        live = self.runs.find(key_of(principal, id))
        running = live is not None and live.kept
        if live is not None and running:  # what the run says is told by its stream
            said = messages[len(live.before) :]
            messages = live.before
            if protocol != "native":
                if live.resumed:
                    messages = messages[: len(messages) - len(last_turn(messages))]
                messages = (*messages, *said[:1])
            pending = ()
        shown = shown_messages(protocol, messages, pending, self._config.errors)
        reply: dict[str, Any] = {"messages": shown, "running": running}
        if protocol != "ai-sdk":
            own = [request.replace(conversation_id=id) for request in pending]
            reply["pending"] = [plain(request) for request in own]
        return json_reply(reply)

    async def _find(self, principal: str, id: str) -> Conversation:
        """A conversation that is there: reading must not make one."""
        if not await self._index.has(principal, id):
            raise Refused(404, "There is no such conversation; choose one from the list.")
        return await self._index.open(principal, id)

    async def _conversations(self, request: Request, principal: str, id: str) -> Reply:
        if not id:
            _allow(request, "GET")
            return json_reply({"conversations": await self._index.entries(principal)})
        _allow(request, "DELETE")
        if self.runs.find(key_of(principal, id)) is not None:
            raise Refused(409, "This conversation is busy with an answer; wait for it, or stop it.")
        if not await self._index.forget(principal, id_of(id, "A conversation's id")):
            raise Refused(404, "There is no such conversation; choose one from the list.")
        return Reply(status=204)

    async def stream(
        self, streaming: Streaming, receive: Receive, send: Send, cors: Headers
    ) -> None:
        """Send what a route has found to be streamed."""
        live, config = streaming.live, self._config
        encoder, prelude = encoder_for(
            streaming.protocol,
            live,
            conversation_id=streaming.conversation_id,
            replay=streaming.replay,
            target=config.target,
            errors=config.errors,
        )
        more = [*cors, ("x-hookline-conversation", quote(streaming.conversation_id))]
        if cors:
            more.append(("access-control-expose-headers", "x-hookline-conversation"))
        outgoing = Outgoing(
            live=live,
            reader=live.read(streaming.start),
            encoder=encoder,
            caps=self.runs.caps,
            headers=more,
            prelude=prelude,
        )
        await send_stream(outgoing, receive, send)


class Streaming:
    """An answer that is a run's stream, and not sent yet."""

    def __init__(
        self,
        site: Site,
        live: Live,
        protocol: Protocol,
        conversation_id: str,
        *,
        start: int = 0,
        replay: bool = False,
    ) -> None:
        self.live = live
        self.protocol: Protocol = protocol
        self.conversation_id = conversation_id
        self.start = start
        self.replay = replay
        self._site = site

    async def send(self, receive: Receive, send: Send, cors: Headers) -> None:
        await self._site.stream(self, receive, send, cors)


def _allow(request: Request, method: str) -> None:
    if request.method != method:
        raise Refused(405, f"Use {method} here.", allow=method)
