"""`app` and `chat_response`: an agent as an ASGI application, or as the response of your own route.

Both have more than six parameters: they are public functions, and most parameters are options that
callers pass by name.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterable, AsyncIterator, Iterable
from secrets import token_hex, token_urlsafe
from typing import TYPE_CHECKING, Any, Literal, Unpack

from hookline import Agent, Conversation, MemoryStore, Store
from hookline.durable import Client
from hookline.errors import UsageError
from hookline.events import ChatEvent
from hookline.web._http.access import LOOPBACK, Authorize, Guard
from hookline.web._http.extra import needs
from hookline.web._http.request_reply import Refused
from hookline.web._http.request_reply import Request as HttpRequest
from hookline.web._page.files import Page
from hookline.web._page.run_observers import Watcher
from hookline.web._protocols.ag_ui.state import AgUiState
from hookline.web._protocols.ai_sdk.encoder import AiSdkVersion
from hookline.web._protocols.incoming import SystemPolicy, read_object
from hookline.web._protocols.masked_texts import DescribeError
from hookline.web._protocols.table import Encoder, Protocol, check_protocol, encoder_for, parse
from hookline.web._runs.registry import Runs
from hookline.web._runs.run import DEFAULT_CAPS, Caps, Live
from hookline.web._site.answers.responses import once, run_response, whole_response
from hookline.web._site.answers.streaming import start_of
from hookline.web._site.application import Site
from hookline.web._site.config import SiteConfig
from hookline.web._site.durable import DurableChats
from hookline.web._site.error_statuses import not_begun
from hookline.web._site.inbox import Approvers
from hookline.web._site.policy_trials import Policies
from hookline.web._site.run_start import (
    ChatHooks,
    ClientTools,
    Deps,
    OnBusy,
    OnDisconnect,
    Opening,
    RouteOptions,
    begin,
    check_answers,
)
from hookline.web.relay import RedisRelay

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
    on_busy: OnBusy = "refuse",
    caps: Caps = DEFAULT_CAPS,
    deps: Deps | None = None,
    hooks: ChatHooks | None = None,
    describe_error: DescribeError | None = None,
    ai_sdk_version: AiSdkVersion = 6,
    release: Literal["live", "response"] | None = None,
    page: Page | bool = False,
    timeline: bool | None = None,
    relay: RedisRelay | None = None,
    durable: Client | None = None,
    client_tools: ClientTools = (),
    ag_ui_state: AgUiState | None = None,
    ag_ui_context: bool = False,
    edits: bool = True,
    approvals: bool = True,
    approvers: Approvers | None = None,
    policies: Policies | None = None,
) -> Site:
    """Return the agent as an ASGI application. Serve it alone, or mount it in Starlette or FastAPI.

    `token=` is the bearer token that clients must send. `authorize=` is a callable that replaces
    the token: it gets starlette's HTTPConnection, and returns the name of the principal, or None to
    refuse. Without `token=` and `authorize=`, a token is generated and printed. `hosts=` lists the
    host names of the server. `origins=` lists other sites that may use the server. `deps=` and
    `hooks=` are called with the ASGI scope and the principal, and return the `deps` and `hooks` of
    each chat. `on_busy="queue"` queues a message that arrives during an answer, instead of refusing
    the message. `page=` adds the chat page, with the given texts. `timeline=` adds an observer at
    onHook to the agent, whose hooks every user of the page then sees by name; the default is True
    if `page=` is given and `authorize=` is not. `relay=` shares the answers with
    other processes. `durable=` is the client of a durable engine; the workers of that engine run
    the chats. `client_tools=` lists the tools that a front end may bring along; True allows all
    tools. `ag_ui_state=` lists the keys of `run.state` that are shared with AG-UI front ends. The
    value of each key is a type: front ends may set `run.state[key]` to data of this type. If the
    value is None, front ends may only read the key. `ag_ui_context=True` adds the front end's
    context to the prompt. `edits=False` refuses approvals with changed arguments. `approvals=False`
    refuses all answers to approvals, for applications that use `resume_detached`. `approvers=` is a
    function of a principal, a request and the principal who asked, that says whether the first may
    answer the request: only those principals can, at `GET /approvals` and `POST /approvals`.
    `policies=` is a function that returns, for a principal, the policies that it may try out on its
    own stored conversations: a mapping from names to hooks. Raises UsageError for options that are
    invalid or contradict each other.
    """
    if token is None and authorize is None:
        token = token_urlsafe(24)
        print(f"hookline.web: the bearer token is {token}", file=sys.stderr, flush=True)
    store = store or getattr(agent, "store", None)
    if relay is not None and store is None:
        raise UsageError("relay= needs a store= that all processes share, such as an SQLStore")
    runs = Runs(caps)
    page_texts = (Page() if page else None) if isinstance(page, bool) else page
    if timeline if timeline is not None else page_texts is not None and authorize is None:
        Watcher(runs, details=page_texts is not None and page_texts.details).watch(agent)
    return Site(
        _check_options(
            SiteConfig(
                agent=agent,
                guard=Guard(token=token, authorize=authorize, hosts=hosts, origins=origins),
                runs=runs,
                store=store or MemoryStore(),
                on_disconnect=on_disconnect,
                on_busy=on_busy,
                ai_sdk_version=ai_sdk_version,
                deps=deps,
                hooks=hooks,
                describe_error=describe_error,
                options={} if release is None else {"release": release},
                page=page_texts,
                relay=relay,
                durable=_durable_chats(agent.name, durable, relay, edits=edits),
                client_tools=client_tools,
                ag_ui_state=ag_ui_state,
                ag_ui_context=ag_ui_context,
                edits=edits,
                approvals=approvals and approvers is None,
                approvers=approvers,
                policies=policies,
            )
        )
    )


def _check_options(config: SiteConfig) -> SiteConfig:
    """Raise UsageError for options that are invalid or contradict each other."""
    if config.on_disconnect not in ("cancel", "detach"):
        raise UsageError(f"on_disconnect={config.on_disconnect!r} must be 'cancel' or 'detach'")
    if config.on_busy not in ("refuse", "queue"):
        raise UsageError(f"on_busy={config.on_busy!r} must be 'refuse' or 'queue'")
    if config.relay is not None:
        if config.on_disconnect != "detach":
            raise UsageError(
                "relay= needs on_disconnect='detach', so that answers outlive a client"
            )
        if config.on_busy == "queue":
            raise UsageError("relay= needs on_busy='refuse': a queue exists only in one process")
    if config.approvers is not None and config.relay is not None:
        raise UsageError(
            f"approvers={config.approvers!r} does not work with relay=; leave it out, and answer "
            "approvals with resume_detached"
        )
    if config.durable is not None:
        for name in ("hooks", "client_tools", "ag_ui_state", "ag_ui_context"):
            if value := getattr(config, name):
                raise UsageError(
                    f"{name}={value!r} does not work with durable=: leave it out; the workers do "
                    "not receive it"
                )
    return config


def _durable_chats(
    agent: str, engine: Client | None, relay: RedisRelay | None, *, edits: bool
) -> DurableChats | None:
    if engine is None:
        return None
    if relay is None:
        raise UsageError(f"durable={engine!r} needs relay=; pass the relay of the durable workers")
    return DurableChats(agent, engine, relay, edits=edits)


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
    describe_error: DescribeError | None = None,
    ai_sdk_version: AiSdkVersion = 6,
    client_tools: ClientTools = (),
    ag_ui_state: AgUiState | None = None,
    ag_ui_context: bool = False,
    edits: bool = True,
    approvals: bool = True,
    conversation_id: str | None = None,
    **options: Unpack[RouteOptions],
) -> Response:
    """Return the response for your own route in Starlette or FastAPI. Your route authorizes.

    `conversation` is the user's conversation, which your route has loaded. With a conversation,
    approvals work, and the client's history is ignored. With `on_disconnect="detach"` a client can
    also rejoin the run through `resume_response`. Without a conversation the history comes from the
    client. `conversation_id` is the conversation's id for the client. The default `conversation_id`
    is the id that the client sent, never the id in the store. `edits=` and `approvals=` work as in
    `app`. The `options` go to `agent.chat_stream`. A bad request gets an error response.
    """
    check_protocol(protocol)
    needs("starlette.responses")  # before the request is read
    runs = _own_routes if runs is None else runs
    try:
        http = HttpRequest(request.scope, request.receive)
        if hasattr(request, "_body"):  # the framework has already read the body
            http.receive = once(await request.body())
        body = await http.body(runs.caps.body_bytes, runs.caps.send)
        incoming = parse(protocol, read_object(body), system)
        check_answers(incoming, approvals=approvals)
        key = conversation.id if conversation is not None else f"-{token_hex(8)}"
        name = conversation_id or incoming.conversation_id
        if name is None and conversation is not None:
            name = ""  # the client must not learn the id in the store
        opening = Opening(
            agent=agent,
            runs=runs,
            on_disconnect=on_disconnect,
            ai_sdk_version=ai_sdk_version,
            edits=edits,
            client_tools=client_tools,
            ag_ui_state=ag_ui_state,
            ag_ui_context=ag_ui_context,
        )
        runs.check(key, principal)
    except Refused as refused:
        return whole_response(refused)

    async def start() -> tuple[Live, Encoder, bytes]:
        live = begin(
            opening,
            protocol,
            incoming,
            key=key,
            principal=principal,
            conversation=conversation,
            options=dict(options),
            conversation_id=name,
        )
        try:
            await runs.until_begun(key, live, runs.caps.keep_alive)
        except Exception as exc:
            raise not_begun(exc, describe_error, live.header.chat_id) from exc
        encoder, prelude = encoder_for(
            protocol,
            live,
            conversation_id=name,
            ai_sdk_version=ai_sdk_version,
            describe_error=describe_error,
            approvals=approvals,
        )
        return live, encoder, prelude

    return run_response(start, runs.caps)


def resume_response(
    conversation: Conversation | str,
    *,
    request: Request | None = None,
    runs: Runs | None = None,
    protocol: Protocol = "ai-sdk",
    describe_error: DescribeError | None = None,
    ai_sdk_version: AiSdkVersion = 6,
    approvals: bool = True,
) -> Response:
    """Return the conversation's current answer, from its start; status 204 if there is none.

    The answer was started by `resume_detached`, or by `chat_response` with the same `runs` and
    `on_disconnect="detach"`. If you pass the `request`, a native client can name a frame in
    `Last-Event-ID`, and receives the frames after that frame. For a short time after its end, a run
    can still be read.
    """
    check_protocol(protocol)
    runs = _own_routes if runs is None else runs
    key = conversation if isinstance(conversation, str) else conversation.id
    last = ""
    if request is not None and protocol == "native":
        last = request.headers.get("last-event-id", "")
    live = runs.find(key, include_ended=bool(last))
    start = None if live is None else start_of(live, last)
    if live is None or start is None:
        return whole_response(None)
    encoder, prelude = encoder_for(
        protocol,
        live,
        conversation_id=live.header.conversation_id or "",
        replay=True,
        ai_sdk_version=ai_sdk_version,
        describe_error=describe_error,
        approvals=approvals,
    )

    async def attach() -> tuple[Live, Encoder, bytes]:
        return live, encoder, prelude

    return run_response(attach, runs.caps, start)


async def encode(events: AsyncIterable[ChatEvent], encoder: Encoder) -> AsyncIterator[bytes]:
    """Encode a stream of events as bytes, until it ends or fails. Needs no web framework."""
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
