"""Google's Gemini, through the SDK `google-genai` (extra `google`)."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Hashable
from contextlib import aclosing, suppress
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from hookline.models import Chunk, ModelRequest
from hookline.providers._adapter.clients import (
    IDLE_TIMEOUT,
    Clients,
    check_alone,
    check_async,
    check_extra,
    check_url,
    from_environment,
    imported,
    keys_of,
    no_key,
    server_of,
    where_of,
)
from hookline.providers._adapter.errors.failures import Exchange, is_error
from hookline.providers._adapter.http import hooks, put_body
from hookline.providers._adapter.parts import is_object, refuse
from hookline.providers._adapter.streaming import relay, server_sent
from hookline.providers.google._reader import GeminiReader
from hookline.providers.google._request import DEFAULTS, PROVIDER, GoogleSettings, request_body

if TYPE_CHECKING:
    from google.genai import Client as GenaiClient

__all__ = ["GoogleModel", "GoogleSettings"]

Client: TypeAlias = "GenaiClient | Callable[[], GenaiClient]"

URL: Final = "https://generativelanguage.googleapis.com"
MODULES: Final = ("google.genai", "google.genai.types")
KEYS: Final = ("GOOGLE_API_KEY", "GEMINI_API_KEY")
_NOT_WIRE: Final = {"sdk_http_response", "automatic_function_calling_history", "parsed"}

_LIMIT: Final = "X-Server-Timeout"

_bodies: ContextVar[list[Any]] = ContextVar("hookline_google_bodies")


class _Answer:
    """The body of an answer, which hookline reads itself: the SDK's reader has no size limit."""

    def __init__(self, response: Any) -> None:
        self.headers = dict(response.headers)
        self._stream = response.stream

    async def iter_bytes(self) -> AsyncIterator[bytes]:
        async for piece in self._stream:
            yield piece

    async def close(self) -> None:
        await self._stream.aclose()


async def _take_body(response: Any) -> None:
    """Take the body of an answer; the SDK reads an empty event in its place."""
    bodies = _bodies.get(None)
    if bodies is not None and response.status_code < 300:
        bodies.append(_Answer(response))
        put_body(response, b"data: {}\n\n", "text/event-stream")


async def _unlimited(request: Any) -> None:
    """Send no limit for the whole answer unless the user has set one."""
    limits = [each for each in request.headers.get_list(_LIMIT) if each]
    request.headers.pop(_LIMIT, None)
    if limits:
        request.headers[_LIMIT] = limits[-1]


class GoogleModel:
    """A Gemini model: `GoogleModel("gemini-…")`.

    `client` is your own `google.genai.Client`, or a function that returns a client. By default a
    client is created from `api_key` and `base_url`, or from GOOGLE_API_KEY or GEMINI_API_KEY. For
    Vertex AI, the SDK's own environment variables are used. `settings` are defaults, which the
    settings of the agent and the chat override. `idle_timeout`: the
    longest time without an event, in seconds. In errors and traces `provider` is "gcp.gemini" or
    "gcp.vertex_ai".
    Raises UsageError if the SDK is not installed, or if `api_key` or `base_url` is passed together
    with `client`.
    """

    takes_schema = True
    """Whether the provider's own schema mode is used for structured answers."""

    def __init__(
        self,
        name: str,
        *,
        client: Client | None = None,
        api_key: str | None = None,
        base_url: str | None = None,
        settings: GoogleSettings = DEFAULTS,
        idle_timeout: float = IDLE_TIMEOUT,
    ) -> None:
        check_extra("google.genai", "google")
        check_alone(client, api_key=api_key, base_url=base_url)
        check_url(base_url)
        if client is not None:
            aio = client if callable(client) else getattr(client, "aio", client)
            check_async(aio, "a google.genai.Client, or a function that returns one")
        self.name = name
        """The provider's name for the model."""
        self.settings = settings
        self._api_key = api_key
        self._base_url = base_url
        self._idle_timeout = idle_timeout
        vertex = bool(getattr(client, "vertexai", _on_vertex()))
        self.provider = "gcp.vertex_ai" if vertex else "gcp.gemini"  # names from telemetry
        default = "https://aiplatform.googleapis.com" if vertex else URL
        known = () if callable(client) else (base_url, default)
        self.server_address, self.server_port = server_of(*known)
        given: Any = client
        if callable(client):
            make = client
            given = lambda: _Service(make())  # noqa: E731
        elif client is not None:
            given = _Service(client)
        self._clients: Clients[_Service] = Clients(
            given, modules=MODULES, make=self._make, key=self._key, close=_Service.close
        )

    def stream(self, request: ModelRequest, /) -> AsyncIterator[Chunk]:
        """Stream the answer, chunk by chunk. Failures raise a ModelError."""
        found = (self._api_key, *map(from_environment, KEYS))
        secrets = [each for each in found if each]
        where = where_of(self._base_url, PROVIDER, "googleapis.com")
        exchange = Exchange(PROVIDER, where=where, secrets=secrets, idle=self._idle_timeout)
        return relay(exchange, self._events(request, exchange), GeminiReader(exchange))

    async def _events(self, request: ModelRequest, exchange: Exchange) -> AsyncGenerator[Any, None]:
        service = await self._clients.get()
        exchange.secrets += keys_of(service.client)
        body = request_body(self.name, request, self.settings)
        own_options: dict[str, Any] = body["config"].get("http_options") or {}
        if is_object(own_headers := own_options.get("headers") or {}):
            own_options = {**own_options, "headers": {**service.headers, **own_headers}}
        body["config"]["http_options"] = {
            "timeout": int(self._idle_timeout * 1000),
            "retry_options": {"attempts": 1},
            **own_options,
        }
        try:
            config = imported("google.genai.types").GenerateContentConfig(**body["config"])
        except ValueError as exc:
            wrong = f"the SDK refuses these settings ({_places(exc)})"
            raise refuse(PROVIDER, wrong, "see the SDK's GenerateContentConfig") from None
        bodies: list[Any] = []
        _bodies.set(bodies)
        stream: Any = await service.client.aio.models.generate_content_stream(
            model=self.name, contents=body["contents"], config=config
        )
        async with aclosing(stream):
            async for event in stream:
                if not bodies:  # the user's own client: the SDK reads the answer
                    yield event.model_dump(
                        mode="json", by_alias=True, exclude_none=True, exclude=_NOT_WIRE
                    )
        for answer in bodies:
            async with aclosing(_read(answer, exchange)) as events:
                async for event in events:
                    yield event

    def _make(self) -> _Service:
        key = self._api_key or from_environment(*KEYS)
        if key is None and not _on_vertex():
            raise no_key(PROVIDER, KEYS[0])
        options, http = _options(self._base_url)
        made = imported("google.genai").Client(api_key=self._api_key, http_options=options)
        return _Service(made, http)

    def _key(self) -> Hashable:
        variables = (*KEYS, "GOOGLE_GENAI_USE_VERTEXAI", "GOOGLE_CLOUD_PROJECT")
        return (PROVIDER, self._api_key, self._base_url, *map(from_environment, variables))

    def __repr__(self) -> str:
        return f"<GoogleModel {self.name!r}>"


async def _read(answer: _Answer, exchange: Exchange) -> AsyncGenerator[Any, None]:
    """Yield the events of an answer as the SDK's would be; an error among them is raised."""
    exchange.heard(answer.headers)
    try:
        async with aclosing(server_sent(answer, exchange)) as events:
            async for event in events:
                if is_error(event):
                    raise exchange.told(event)
                yield event
    finally:
        with suppress(Exception):  # which would replace the cancellation
            await answer.close()


def _on_vertex() -> bool:
    """Return whether the environment selects Vertex AI."""
    names = ("GOOGLE_GENAI_USE_VERTEXAI", "GOOGLE_GENAI_USE_ENTERPRISE")
    return (from_environment(*names) or "false").lower() in ("1", "true")


def _places(exc: Any) -> str:
    """Name the settings that pydantic refuses, without their values."""
    return ", ".join(".".join(map(str, each["loc"])) for each in exc.errors())


class _Service:
    """The SDK's client, and its HTTP client if hookline must close it."""

    def __init__(self, client: GenaiClient, http: Any = None) -> None:
        self.client: Any = client
        self._http = http
        # The SDK derives a limit for the whole answer from its timeout, unless it has the header.
        self.headers = {_LIMIT: ""} if http is not None else {}

    async def close(self) -> None:
        await self.client.aio.aclose()
        if self._http is not None:
            await self._http.aclose()


def _options(base_url: str | None) -> tuple[Any, Any]:
    """Return SDK options with an HTTP client that reports each response, and that HTTP client."""
    types = imported("google.genai.types")
    address = {} if base_url is None else {"base_url": base_url}
    guards = hooks()
    for name in ("httpx2", "httpx"):  # the SDK's version decides which of them it uses
        try:
            http = imported(name).AsyncClient(
                event_hooks={
                    "request": [_unlimited, *guards["request"]],
                    "response": [*guards["response"], _take_body],
                },
                follow_redirects=True,
            )
            return types.HttpOptions(httpx_async_client=http, **address), http
        except (ImportError, ValueError):
            continue
    return types.HttpOptions(**address), None
