"""OpenAI's Responses API, through the SDK `openai` (extra `openai`)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from hookline.models import Chunk, ModelRequest
from hookline.providers._adapter.clients import IDLE_TIMEOUT, imported
from hookline.providers._adapter.connection import Connection, Service, without_retries
from hookline.providers._adapter.http_limits import hooks
from hookline.providers._adapter.streaming import relay
from hookline.providers.openai._reader import ResponsesReader
from hookline.providers.openai._request import DEFAULTS, PROVIDER, OpenAISettings, request_body

if TYPE_CHECKING:
    from openai import AsyncOpenAI

__all__ = ["OpenAIModel", "OpenAISettings"]

Client: TypeAlias = "AsyncOpenAI | Callable[[], AsyncOpenAI]"


def make_client(connection: Connection[Any]) -> Any:
    """Create a client; a server of your own may need no key."""
    key, sdk = connection.key() or "none", imported("openai")
    http = sdk.DefaultAsyncHttpxClient(event_hooks=hooks())
    return sdk.AsyncOpenAI(api_key=key, base_url=connection.base_url, http_client=http)


SERVICE: Final = Service(
    name=PROVIDER,
    meta=PROVIDER,
    extra="openai",
    modules=(
        *("openai", "openai.resources.responses.responses"),
        "openai.resources.chat.completions.completions",
    ),
    url="https://api.openai.com/v1",
    host="openai.com",
    keys=("OPENAI_API_KEY",),
    address="OPENAI_BASE_URL",
    variables=(
        *("OPENAI_ORG_ID", "OPENAI_PROJECT_ID", "OPENAI_API_VERSION"),
        *("AZURE_OPENAI_ENDPOINT", "AZURE_OPENAI_AD_TOKEN"),
    ),
    keyless=None,
    client="an AsyncOpenAI, or a function that returns one",
    make=make_client,
    prepare=without_retries,
)


class OpenAIModel:
    """A model of OpenAI's Responses API: `OpenAIModel("gpt-…")`.

    `client` is your own `AsyncOpenAI`, or a function that returns a client. By default a client is
    created from `api_key` and `base_url`, or from OPENAI_API_KEY and OPENAI_BASE_URL. `settings`
    are defaults, which the settings of the agent and the chat override. `provider` names the
    service in errors and traces. Data that the service expects back, such as encrypted reasoning,
    is sent only to a service of the same name; without `provider`, only to the same host.
    `idle_timeout`: the longest time without an event, in seconds. Raises UsageError if the SDK is
    not installed, or if `api_key` or `base_url` is passed together with `client`.
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
        settings: OpenAISettings = DEFAULTS,
        provider: str | None = None,
        idle_timeout: float = IDLE_TIMEOUT,
    ) -> None:
        self.name = name
        """The provider's name for the model."""
        self.settings = settings
        self._connection: Connection[AsyncOpenAI] = Connection(
            SERVICE, client, api_key, base_url, provider=provider, idle_timeout=idle_timeout
        )
        self.provider = self._connection.provider
        """The name of the service in errors and traces."""
        self.server_address, self.server_port = self._connection.server()

    def stream(self, request: ModelRequest, /) -> AsyncIterator[Chunk]:
        """Stream the answer, chunk by chunk. Failures raise a ModelError."""
        exchange = self._connection.exchange()

        def call(client: AsyncOpenAI) -> Any:
            # The SDK transforms its arguments, but merges extra_body unchanged.
            return client.responses.with_streaming_response.create(
                model=self.name,
                input=[],
                stream=True,
                extra_headers=self.settings.headers,
                extra_body=request_body(self.name, request, self.settings, exchange.server),
                timeout=self._connection.timeout(),
            )

        events = self._connection.events(exchange, call)
        return relay(exchange, events, ResponsesReader(exchange))

    def __repr__(self) -> str:
        return f"<OpenAIModel {self.name!r}>"
