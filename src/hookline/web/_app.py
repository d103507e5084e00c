"""`app` and `chat_response`: an agent as an ASGI application, or as the answer of one's own route.

Both take more than six parameters: they are the face, and all but the first few are options by
name.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable
from functools import cache
from secrets import token_hex, token_urlsafe
from typing import TYPE_CHECKING, Any, Literal

from hookline import Agent, Conversation, MemoryStore, Store
from hookline.errors import UsageError
from hookline.events import ChatEvent
from hookline.web._ai_sdk import Target
from hookline.web._chats import Deps, OnDisconnect, Opening, begin
from hookline.web._extra import needs
from hookline.web._guard import LOOPBACK, Authorize, Guard
from hookline.web._http import Request as HttpRequest
from hookline.web._http import refusal
from hookline.web._incoming import Refused, SystemPolicy, read_object
from hookline.web._live import DEFAULT_CAPS, Caps, Live
from hookline.web._mask import ErrorText
from hookline.web._protocols import Protocol, check_protocol, encoder_for, parse
from hookline.web._runs import Runs
from hookline.web._send import Encoder, Outgoing, Receive, Scope, Send, send_stream
from hookline.web._site import Site, SiteConfig

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response


def app(
    agent: Agent[Any],
    *,
    store: Store | None = None,
    token: str | None = None,
    authorize: Authorize | None = None,
    hosts: Iterable[str] = LOOPBACK,
    origins: Iterable[str] = (),
    on_disconnect: OnDisconnect = "cancel",
    caps: Caps = DEFAULT_CAPS,
    deps: Deps | None = None,
    errors: ErrorText | None = None,
    target: Target = 6,
    release: Literal["live", "response"] | None = None,
    page: bool = False,
    timeline: bool | None = None,
) -> Site:
    """The agent as an ASGI application, to be served alone or mounted in Starlette or FastAPI.

    Without `token=` or `authorize=` (a callable that is given starlette's HTTPConnection and gives
    the principal's name, or None) a token is made and printed. `hosts=` and `origins=` list the
    names under which it is reached and the other sites that may use it. `deps=` is called with the
    ASGI scope and the principal. `timeline=` (on with `page=`) adds an observer at onHook to the
    agent. Raises UsageError for options that contradict each other, a host or an origin that is
    none, a token that is too short.
    """
    if on_disconnect not in ("cancel", "detach"):
        raise UsageError(f"on_disconnect={on_disconnect!r} must be 'cancel' or 'detach'")
    if token is None and authorize is None:
        token = token_urlsafe(24)
        print(f"hookline.web: the bearer token is {token}", file=sys.stderr, flush=True)
    runs = Runs(caps)
    if timeline if timeline is not None else page:
        runs.watch(agent)
    return Site(
        SiteConfig(
            agent=agent,
            guard=Guard(token=token, authorize=authorize, hosts=hosts, origins=origins),
            runs=runs,
            store=store or getattr(agent, "store", None) or MemoryStore(),
            on_disconnect=on_disconnect,
            target=target,
            deps=deps,
            errors=errors,
            options={} if release is None else {"release": release},
            page=page,
        )
    )


_own_routes = Runs()


async def chat_response(
    agent: Agent[Any],
    request: Request,
    *,
    protocol: Protocol = "ai-sdk",
    conversation: Conversation | None = None,
    runs: Runs | None = None,
    principal: str = "",
    on_disconnect: OnDisconnect = "cancel",
    system: SystemPolicy = "refuse",
    errors: ErrorText | None = None,
    target: Target = 6,
    **options: Any,
) -> Response:
    """The answer of a route of your own in Starlette or FastAPI. Who may ask is your affair.

    With a `conversation`, which the route has found for its user, the client's history is not
    read, approvals work, and with `on_disconnect="detach"` the run can be read again by
    `resume_response`. Without one, the history is the one that the client sends. `options` are
    those of `agent.chat_stream`. A bad request gives a response that says so.
    """
    check_protocol(protocol)
    runs = _own_routes if runs is None else runs
    make = _response_type()
    try:
        http = HttpRequest(request.scope, request.receive)
        if hasattr(request, "_body"):  # the framework has read it already
            http.receive = _once(await request.body())
        body = await http.body(runs.caps.body_bytes, runs.caps.send)
        incoming = parse(protocol, read_object(body), system)
        key = conversation.id if conversation is not None else f"-{token_hex(8)}"
        opening = Opening(
            agent=agent, runs=runs, protocol=protocol, on_disconnect=on_disconnect, target=target
        )
        runs.check(key, principal)
    except Refused as refused:
        return make(_Whole(refused))

    def start() -> tuple[Live, Encoder, bytes]:
        live = begin(
            opening,
            incoming,
            key=key,
            principal=principal,
            conversation=conversation,
            options=options,
        )
        encoder, prelude = encoder_for(
            protocol,
            live,
            conversation_id=incoming.conversation_id or key,
            target=target,
            errors=errors,
        )
        return live, encoder, prelude

    return make(_Run(start, runs.caps))


def resume_response(
    conversation: Conversation | str,
    *,
    runs: Runs | None = None,
    protocol: Protocol = "ai-sdk",
    errors: ErrorText | None = None,
    target: Target = 6,
) -> Response:
    """The answer that runs on a conversation, from its start; 204 where none runs.

    It finds what `chat_response` began with the same `runs` and `on_disconnect="detach"`.
    """
    check_protocol(protocol)
    runs = _own_routes if runs is None else runs
    key = conversation if isinstance(conversation, str) else conversation.id
    live = runs.find(key)
    make = _response_type()
    if live is None or not live.kept or live.first > 0:
        return make(_Whole(None))
    encoder, prelude = encoder_for(
        protocol, live, conversation_id=key, replay=True, target=target, errors=errors
    )
    return make(_Run(lambda: (live, encoder, prelude), runs.caps))


async def encode(events: AsyncIterable[ChatEvent], encoder: Encoder) -> AsyncIterator[bytes]:
    """The bytes of a stream of events, up to its end, however it ends; no web framework needed."""
    try:
        async for event in events:
            data = encoder.encode(event)
            if data:
                yield data
    except Exception as exc:
        yield encoder.end(exc)
    else:
        last = encoder.end()
        if last:
            yield last


# ── a response of starlette's kind ──────────────────────────────────────────────────────────


class _Whole:
    """A refusal, or nothing (204)."""

    def __init__(self, refused: Refused | None) -> None:
        self.status = 204 if refused is None else refused.status
        self._reply = refusal(refused if refused is not None else Refused(204, ""))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._reply.send(send)


class _Run:
    """A run that begins when its response is sent, so that one that is never sent runs nothing."""

    status = 200

    def __init__(self, start: Callable[[], tuple[Live, Encoder, bytes]], caps: Caps) -> None:
        self._start = start
        self._caps = caps

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            live, encoder, prelude = self._start()
        except Refused as refused:
            await refusal(refused).send(send)
            return
        outgoing = Outgoing(
            live=live, reader=live.read(), encoder=encoder, caps=self._caps, prelude=prelude
        )
        await send_stream(outgoing, receive, send)


@cache
def _response_type() -> Callable[[_Whole | _Run], Response]:
    """A Response of starlette's, which its frameworks take as a route's answer."""
    base: Any = needs("starlette.responses").Response

    class ChatResponse(base):  # type: ignore[misc]
        def __init__(self, inner: _Whole | _Run) -> None:
            super().__init__(status_code=inner.status)  # pyright: ignore[reportUnknownMemberType]
            self._inner = inner

        async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
            await self._inner(scope, receive, send)
            if self.background is not None:
                await self.background()

    return ChatResponse


def _once(body: bytes) -> Receive:
    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body}

    return receive
