"""Anthropic's Messages API, through the SDK `anthropic` (extra `anthropic`)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from inspect import signature
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from hookline.models import Chunk, ModelRequest
from hookline.providers._adapter.clients import IDLE_TIMEOUT, imported
from hookline.providers._adapter.connection import Connection, Service, without_retries
from hookline.providers._adapter.http_limits import hooks
from hookline.providers._adapter.streaming import relay
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


def make_client(connection: Connection[Any]) -> Any:
    """Create a client; the SDK reads the key itself, because a token has another header."""
    connection.key()
    sdk = imported("anthropic")
    create: Any = sdk.AsyncAnthropic
    options: dict[str, Any] = {
        "api_key": connection.api_key,
        "base_url": connection.base_url,
        "http_client": sdk.DefaultAsyncHttpxClient(event_hooks=hooks()),
    }
    if "open_telemetry" in signature(create).parameters:
        options["open_telemetry"] = {"traces": False}  # the agent has this span
    return create(**options)


SERVICE: Final = Service(
    name=PROVIDER,
    meta=PROVIDER,
    extra="anthropic",
    modules=("anthropic", "anthropic.resources.messages"),
    url="https://api.anthropic.com",
    host="anthropic.com",
    keys=("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"),
    address="ANTHROPIC_BASE_URL",
    client="an AsyncAnthropic, or a function that returns one",
    make=make_client,
    prepare=without_retries,
)


class AnthropicModel:
    """A model of Anthropic: `AnthropicModel("claude-…")`.

    `client` is your own `AsyncAnthropic` (or the SDK's client for Bedrock, Vertex, …), or a
    function that returns a client. By default a client is created from `api_key` and `base_url`, or
    from ANTHROPIC_API_KEY and ANTHROPIC_BASE_URL. `settings` are defaults, which the settings of
    the agent and the chat override. `provider` names the service in errors and traces. Data that
    the service expects back, such as signatures, is sent only to a service of the same name;
    without `provider`, only to the same host. `idle_timeout`: the longest time without an event,
    in seconds. Raises UsageError if the SDK is not installed, or if `api_key` or `base_url` is
    passed together with `client`.
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
        settings: AnthropicSettings = DEFAULTS,
        provider: str | None = None,
        idle_timeout: float = IDLE_TIMEOUT,
    ) -> None:
        self.name = name
        """The provider's name for the model."""
        self.settings = settings
        self._connection: Connection[AsyncAnthropic] = Connection(
            SERVICE, client, api_key, base_url, provider=provider, idle_timeout=idle_timeout
        )
        self.provider = self._connection.provider
        """The name of the service in errors and traces."""
        self.server_address, self.server_port = self._connection.server()

    def stream(self, request: ModelRequest, /) -> AsyncIterator[Chunk]:
        """Stream the answer, chunk by chunk. Failures raise a ModelError."""
        exchange = self._connection.exchange()

        def call(client: AsyncAnthropic) -> Any:
            body = request_body(self.name, request, self.settings, exchange.server)
            # The SDK transforms its arguments, but merges extra_body unchanged.
            return client.messages.with_streaming_response.create(
                model=self.name,
                max_tokens=body["max_tokens"],
                messages=(),
                stream=True,
                extra_headers=headers(self.settings),
                extra_body=body,
                timeout=self._connection.timeout(),
            )

        events = self._connection.events(exchange, call)
        return relay(exchange, events, MessagesReader(exchange))

    def __repr__(self) -> str:
        return f"<AnthropicModel {self.name!r}>"
