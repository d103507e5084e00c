"""The ASGI application: the routes of the three protocols, for one agent.

    POST   /{protocol}                  send a message or answers to approvals, or regenerate
    GET    /{protocol}/{id}/stream      the run of a conversation, from its start; 204: no run
    POST   /{protocol}/{id}/stop        stop that run
    GET    /{protocol}/{id}/messages    the messages, in the form of that protocol; an empty list
                                        for an unknown conversation
    POST   /{protocol}/{id}/messages    send a message into that run
    …      /conversations               the principal's conversations: `conversation_routes.py`
    GET    /, /page.css, /page.js       the chat page, if it is on; /page: see `page_routes.py`

A conversation belongs to its principal: it is stored under a key that begins with the principal's
name, so no request can even name a conversation of somebody else.
"""

from __future__ import annotations

import logging
from typing import Any

from hookline import Conversation
from hookline.errors import HooklineError
from hookline.runtimes import find_sent
from hookline.web._http.access import preflight
from hookline.web._http.request_reply import (
    Headers,
    Receive,
    Refused,
    Reply,
    Request,
    Scope,
    Send,
    json_reply,
    refusal,
)
from hookline.web._http.sse import plain
from hookline.web._page.files import page_file
from hookline.web._protocols.incoming import id_of
from hookline.web._protocols.table import (
    PROTOCOLS,
    Protocol,
    parse_sent,
    shown_messages,
    untold,
)
from hookline.web._runs.registry import closing
from hookline.web._runs.run import Live, Receipt
from hookline.web._runs.run_header import Header
from hookline.web._site.answers.answer import Answer, Answers
from hookline.web._site.answers.streaming import Presence, Streaming, start_of
from hookline.web._site.config import SiteConfig
from hookline.web._site.conversation_routes import ConversationRoutes, allow
from hookline.web._site.conversations import Index, busy_with_answer, conversation_key
from hookline.web._site.error_statuses import refused_for
from hookline.web._site.inbox import Inbox
from hookline.web._site.page_routes import PageRoutes
from hookline.web._site.policy_trials import PolicyRoutes
from hookline.web.relay._remote_runs import RemoteRun

logger = logging.getLogger("hookline.web")


class Site:
    """The ASGI application that `app()` returns. `runs` holds the current runs."""

    def __init__(self, config: SiteConfig) -> None:
        self.runs = config.runs
        self._config = config
        self._index = Index(
            config.store,
            lambda key: self.runs.find(key) is not None,
            limit=self.runs.caps.conversations_per_principal,
        )
        self._closed = False  # whether the connections are closed
        self._presence = Presence(config.agent.bus)
        self._answers = Answers(config, self._index, self._presence)
        self._page = PageRoutes(config, self._index)
        timelines = None if config.page is None else self._page.timelines
        self._routes = ConversationRoutes(config, self._index, timelines)
        self._lists: dict[str, Inbox | PolicyRoutes] = {}  # by the first part of the path
        if config.approvers is not None:
            self._lists["approvals"] = Inbox(config, self._index, self._answers, config.approvers)
        if config.policies is not None:
            self._lists["policies"] = PolicyRoutes(config, self._index, config.policies)
        if timelines is not None:
            self.runs.record = timelines.begin

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
        elif scope["type"] == "http":
            await self._http(Request(scope, receive), send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})

    async def shutdown(self, drain: float | None = None) -> None:
        """Accept no more requests, and end all runs: see `Runs.shutdown`."""
        await self.runs.shutdown(drain)
        self._closed = True
        await self._page.timelines.settle()
        self._page.markdown.close()
        await self._presence.settle()
        if self._config.relay is not None:
            await self._config.relay.aclose()
        if self._config.durable is not None:
            await self._config.durable.aclose()

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                try:
                    await self._open()
                except HooklineError as exc:
                    await send({"type": "lifespan.startup.failed", "message": str(exc)})
                    return
                await send({"type": "lifespan.startup.complete"})
            elif message["type"] == "lifespan.shutdown":
                await self.shutdown()
                await send({"type": "lifespan.shutdown.complete"})
                return

    async def _open(self) -> None:
        if self._config.relay is not None:
            await self._config.relay.open(self.runs)

    async def _http(self, request: Request, send: Send) -> None:
        cors: Headers = ()
        try:
            if self._config.page is not None and request.method in ("GET", "HEAD"):
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
            if self._closed:
                raise closing()
            await self._open()
            answer = await self._route(request, principal)
        except Exception as exc:
            if not isinstance(exc, Refused) or exc.__cause__ is not None:
                logger.debug("a request failed", exc_info=exc)
            answer = refusal(refused_for(exc, self._config.describe_error))
        if isinstance(answer, Reply):
            await answer.send(send, cors)
        else:
            await answer.send(request.receive, send, cors)

    # ── routes ──────────────────────────────────────────────────────────────────────────────

    async def _route(self, request: Request, principal: str) -> Reply | Answer:
        first, _, rest = request.path.removeprefix("/").partition("/")
        if first == "conversations":
            return await self._conversations(request, principal, rest)
        if first == "rules":
            return await self._routes.rules(request, principal, rest)
        if first in self._lists and not rest:
            if request.method == "POST":
                return await self._lists[first].post(request, principal)
            allow(request, "GET")
            return await self._lists[first].get(principal)
        if first == "page":
            allow(request, "POST" if rest == "markdown" else "GET")
            return await self._page.answer(request, principal, rest)
        if first not in PROTOCOLS:
            raise Refused(404, "There is nothing here; check the address.")
        protocol: Protocol = first
        if not rest:
            allow(request, "POST")
            return await self._answers.ask(request, principal, protocol)
        id, _, what = rest.rpartition("/")
        id = id_of(id, "A conversation's id")
        if what == "stream":
            allow(request, "GET")
            return await self._replay(request, principal, protocol, id)
        if what == "stop":
            allow(request, "POST")
            return json_reply({"stopped": await self._stop(principal, id)})
        if what == "messages" and request.method == "POST":
            return await self._send(request, principal, protocol, id)
        if what == "messages":
            allow(request, "GET")
            return await self._messages(principal, protocol, id)
        raise Refused(404, "There is nothing here; check the address.")

    async def _stop(self, principal: str, id: str) -> bool:
        key = conversation_key(principal, id)
        if self.runs.stop(key):
            return True
        if self._config.durable is not None:
            return await self._config.durable.stop(await self._index.open(principal, id), principal)
        if self._config.relay is None:
            return False
        return await self._config.relay.stop(key, principal, "stopped by the user")

    async def _send(self, request: Request, principal: str, protocol: Protocol, id: str) -> Reply:
        """Send a message into the running answer, in this or another process."""
        message, when = parse_sent(protocol, await self._config.body(request))
        key = conversation_key(principal, id)
        receipt = self.runs.send(key, message, when)
        if receipt is None and self._config.durable is not None:
            conversation = await self._index.open(principal, id)
            receipt = await self._config.durable.send(conversation, principal, message, when)
        elif receipt is None:
            earlier = find_sent((await self._read(principal, id)).messages, message.id)
            if earlier is not None:
                receipt = Receipt(id=earlier)
            elif self._config.relay is not None:
                receipt = await self._config.relay.send(key, principal, message, when)
        if receipt is None:
            raise Refused(409, "No answer takes this message now; send it as a new message.")
        if receipt.refused is not None:
            raise Refused(409, f"Not delivered: {receipt.refused}; send it as a new message.")
        return json_reply({"id": receipt.id, "status": "queued"}, 202)

    async def _replay(
        self, request: Request, principal: str, protocol: Protocol, id: str
    ) -> Reply | Streaming:
        """Return the run from its start, or from the last frame that a native client received."""
        last = request.headers.get("last-event-id", "") if protocol == "native" else ""
        key = conversation_key(principal, id)
        run: Live | RemoteRun | None = self.runs.find(key, include_ended=bool(last))
        # After the run that ended here, another process may have run another answer.
        other = run is None or (run.over and not last.startswith(f"{run.header.run}-"))
        if other and self._config.relay is not None:
            run = await self._answers.follow(principal, id)
        if run is None:
            return Reply(status=204)
        start = start_of(run, last)
        if start is not None:
            return self._answers.streaming(
                run=run, protocol=protocol, conversation_id=id, start=start, replay=True
            )
        if isinstance(run, RemoteRun):
            run.log.unread()
        return Reply(status=204)

    async def _messages(self, principal: str, protocol: Protocol, id: str) -> Reply:
        conversation = await self._read(principal, id)
        messages, pending = conversation.messages, conversation.pending
        client_calls = conversation.client_calls
        header = await self._running(principal, id)
        if header is not None:
            messages = untold(protocol, header, messages)
            pending, client_calls = (), ()
        history = shown_messages(
            protocol,
            messages,
            pending,
            self._config.describe_error,
            client_calls=client_calls,
            ai_sdk_version=self._config.ai_sdk_version,
            approvals=self._config.approvals,
        )
        reply: dict[str, Any] = {"messages": history, "running": header is not None}
        if protocol != "ai-sdk":
            reply["pending"] = [plain(request.replace(conversation_id=id)) for request in pending]
            reply["clientCalls"] = [plain(call) for call in client_calls]
            reply["mayAnswer"] = self._config.approvals
        return json_reply(reply)

    async def _running(self, principal: str, id: str) -> Header | None:
        """Return the header of the active run, in this or another process."""
        key = conversation_key(principal, id)
        live = self.runs.find(key)
        if live is not None:
            return live.header if live.log.detached else None
        relay = self._config.relay
        return None if relay is None else await relay.running(key, principal)

    async def _read(self, principal: str, id: str) -> Conversation:
        """Return a conversation; an unknown one is empty, and reading does not create it."""
        if not await self._index.has(principal, id):
            return Conversation()
        return await self._index.open(principal, id)

    async def _conversations(self, request: Request, principal: str, id: str) -> Reply:
        if not id:
            allow(request, "GET")
            return await self._routes.entries(request, principal)
        if request.method != "DELETE":
            return await self._routes.conversation(request, principal, id)
        id = id_of(id, "A conversation's id")
        key = conversation_key(principal, id)
        runs_here = self.runs.find(key) is not None or key in self.runs.starts
        if runs_here or await self._running(principal, id) is not None:
            raise busy_with_answer()
        if self._config.durable is not None and await self._index.has(principal, id):
            await self._config.durable.forget(key)
        if not await self._index.forget(principal, id):
            raise Refused(404, "There is no such conversation; choose one from the list.")
        self.runs.forget(key)
        if self._config.page is not None:
            await self._page.timelines.forget(key)
        if self._config.relay is not None:
            await self._config.relay.forget(key)
        return Reply(status=204)
