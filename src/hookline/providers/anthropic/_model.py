"""Anthropic's Messages API, through the SDK `anthropic` (extra `anthropic`)."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Hashable
from contextlib import aclosing
from inspect import signature
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from hookline.models import Chunk, ModelRequest
from hookline.providers._adapter.clients import (
    CONNECT_TIMEOUT,
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
from hookline.providers._adapter.errors.failures import Exchange
from hookline.providers._adapter.http import hooks
from hookline.providers._adapter.streaming import posted, relay
from hookline.providers.anthropic._reader import MessagesReader
from hookline.providers.anthropic._request import (
    DEFAULTS,
    PROVIDER,
    AnthropicSettings,
    headers,
    request_body,
)

if TYPE_CHECKING:
    from anthropic import AsyncAnthropic

__all__ = ["AnthropicModel", "AnthropicSettings"]

Client: TypeAlias = "AsyncAnthropic | Callable[[], AsyncAnthropic]"

URL: Final = "https://api.anthropic.com"
MODULES: Final = ("anthropic", "anthropic.resources.messages")
KEYS: Final = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN")


class AnthropicModel:
    """A model of Anthropic: `AnthropicModel("claude-…")`.

    `client` is your own `AsyncAnthropic` (or the SDK's client for Bedrock, Vertex, …), or a
    function that returns a client. By default a client is created from `api_key` and `base_url`, or
    from ANTHROPIC_API_KEY and ANTHROPIC_BASE_URL. `settings` are defaults, which the settings of
    the agent and the chat override. `idle_timeout`: the longest time without an event,
    in seconds. Raises UsageError if the SDK is not installed, or if `api_key` or `base_url` is
    passed together with `client`.
    """

    provider = PROVIDER
    """The name of the service in errors and traces."""

    takes_schema = True
    """Whether the provider's own schema mode is used for structured answers."""

    def __init__(
        self,
        name: str,
        *,
        client: Client | None = None,
        api_key: str | None = None,
        base_url: str | None = None,
        settings: AnthropicSettings = DEFAULTS,
        idle_timeout: float = IDLE_TIMEOUT,
    ) -> None:
        check_extra("anthropic", "anthropic")
        check_alone(client, api_key=api_key, base_url=base_url)
        if client is None:
            check_url(base_url or from_environment("ANTHROPIC_BASE_URL"))
        if client is not None:
            check_async(client, "an AsyncAnthropic, or a function that returns one")
        self.name = name
        """The provider's name for the model."""
        self.settings = settings
        self._client = client
        self._api_key = api_key
        self._base_url = base_url
        self._idle_timeout = idle_timeout
        given, here = getattr(client, "base_url", None), from_environment("ANTHROPIC_BASE_URL")
        known = () if callable(client) else (given, base_url, here, URL)
        self.server_address, self.server_port = server_of(*known)
        self._clients: Clients[AsyncAnthropic] = Clients(
            client,
            modules=MODULES,
            make=self._make,
            key=self._key,
            close=lambda client: client.close(),
            prepare=lambda client: client.with_options(max_retries=0),
        )

    def stream(self, request: ModelRequest, /) -> AsyncIterator[Chunk]:
        """Stream the answer, chunk by chunk. Failures raise a ModelError."""
        exchange = Exchange(PROVIDER, secrets=self._secrets(), idle=self._idle_timeout)
        return relay(exchange, self._events(request, exchange), MessagesReader(exchange))

    async def _events(self, request: ModelRequest, exchange: Exchange) -> AsyncGenerator[Any, None]:
        body = request_body(self.name, request, self.settings)
        client = await self._clients.get()
        exchange.secrets += keys_of(client)
        exchange.where = where_of(client.base_url, PROVIDER, "anthropic.com")
        limits = imported("anthropic").Timeout(
            self._idle_timeout, connect=min(self._idle_timeout, CONNECT_TIMEOUT)
        )
        # The SDK transforms its arguments, but merges extra_body unchanged.
        sent = client.messages.with_streaming_response.create(
            model=self.name,
            max_tokens=body["max_tokens"],
            messages=(),
            stream=True,
            extra_headers=headers(self.settings),
            extra_body=body,
            timeout=limits,
        )
        async with aclosing(posted(sent, exchange)) as events:
            async for event in events:
                yield event

    def _make(self) -> AsyncAnthropic:
        if self._api_key is None and from_environment(*KEYS) is None:
            raise no_key(PROVIDER, KEYS[0])
        sdk = imported("anthropic")
        made: Any = sdk.AsyncAnthropic
        options: dict[str, Any] = {
            "api_key": self._api_key,
            "base_url": self._base_url,
            "http_client": sdk.DefaultAsyncHttpxClient(event_hooks=hooks()),
        }
        if "open_telemetry" in signature(made).parameters:
            options["open_telemetry"] = {"traces": False}  # the agent has this span
        client: AsyncAnthropic = made(**options)
        return client

    def _key(self) -> Hashable:
        variables = (*KEYS, "ANTHROPIC_BASE_URL")
        return (PROVIDER, self._api_key, self._base_url, *map(from_environment, variables))

    def _secrets(self) -> list[str]:
        found = (self._api_key, getattr(self._client, "api_key", None))
        return [each for each in (*found, *map(from_environment, KEYS)) if isinstance(each, str)]

    def __repr__(self) -> str:
        return f"<AnthropicModel {self.name!r}>"
