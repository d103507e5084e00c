"""OpenAI's Responses API, through the SDK `openai` (extra `openai`)."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Hashable, Sequence
from contextlib import aclosing
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
from hookline.providers.openai._reader import ResponsesReader
from hookline.providers.openai._request import DEFAULTS, PROVIDER, OpenAISettings, request_body

if TYPE_CHECKING:
    from openai import AsyncOpenAI

__all__ = ["OpenAIModel", "OpenAISettings"]

Client: TypeAlias = "AsyncOpenAI | Callable[[], AsyncOpenAI]"

MODULES: Final = (
    *("openai", "openai.resources.responses.responses"),
    "openai.resources.chat.completions.completions",
)
VARIABLES: Final = (
    *("OPENAI_API_KEY", "OPENAI_BASE_URL", "OPENAI_ORG_ID", "OPENAI_PROJECT_ID"),
    *("OPENAI_API_VERSION", "AZURE_OPENAI_ENDPOINT", "AZURE_OPENAI_AD_TOKEN"),
)


class Connection:
    """The connection of an OpenAI model to its service: a client per event loop, and its keys.

    `provider` names the service in errors. `keys` are the environment variables that may hold the
    key. `make` creates the client, if that
    needs more than a key and an address; it gets `api_key`.
    """

    def __init__(
        self,
        client: Client | None = None,
        api_key: str | None = None,
        base_url: str | None = None,
        *,
        provider: str = PROVIDER,
        keys: Sequence[str] = ("OPENAI_API_KEY",),
        keyless: bool | None = None,
        make: Callable[[str | None], AsyncOpenAI] | None = None,
    ) -> None:
        check_extra("openai", "openai")
        check_alone(client, api_key=api_key, base_url=base_url)
        if client is None:
            check_url(base_url or from_environment("OPENAI_BASE_URL"))
        if client is not None:
            check_async(client, "an AsyncOpenAI, or a function that returns one")
        self._api_key = api_key
        self._base_url = base_url
        self._client = client
        self._provider = provider
        self._keys = keys
        self._made_by = PROVIDER if make is None else make
        self._keyless = base_url is not None if keyless is None else keyless
        self.clients: Clients[AsyncOpenAI] = Clients(
            client,
            modules=MODULES,
            make=self._make if make is None else lambda: make(api_key),
            key=self._key,
            close=lambda client: client.close(),
            prepare=lambda client: client.with_options(max_retries=0),
        )

    def _make(self) -> AsyncOpenAI:
        key = self._api_key or from_environment(*self._keys)
        if key is None:
            if not self._keyless:
                raise no_key(self._provider, *self._keys)
            key = "none"  # your own server needs no key
        sdk = imported("openai")
        made: AsyncOpenAI = sdk.AsyncOpenAI(
            api_key=key,
            base_url=self._base_url,
            http_client=sdk.DefaultAsyncHttpxClient(event_hooks=hooks()),
        )
        return made

    def _key(self) -> Hashable:
        return (
            self._made_by,
            self._api_key,
            self._base_url,
            *map(from_environment, (*VARIABLES, *self._keys)),
        )

    def secrets(self) -> list[str]:
        """Return the secrets that must not appear in errors."""
        found = (
            self._api_key,
            *map(from_environment, self._keys),
            getattr(self._client, "api_key", None),
        )
        return [each for each in found if isinstance(each, str)]

    def server(self) -> tuple[str | None, int | None]:
        """Return the host and port of the service, for traces."""
        if callable(self._client):
            return None, None  # the function decides
        given = getattr(self._client, "base_url", None)
        here = from_environment("OPENAI_BASE_URL")
        return server_of(given, self._base_url, here, "https://api.openai.com")

    def where(self, client: AsyncOpenAI, provider: str) -> str:
        """Name the server in errors."""
        return where_of(client.base_url, provider, "openai.com")

    def limits(self, idle: float) -> Any:
        """Return the timeouts for connecting and between bytes; there is no overall timeout."""
        return imported("openai").Timeout(idle, connect=min(idle, CONNECT_TIMEOUT))


class OpenAIModel:
    """A model of OpenAI's Responses API: `OpenAIModel("gpt-…")`.

    `client` is your own `AsyncOpenAI`, or a function that returns a client. By default a client is
    created from `api_key` and `base_url`, or from OPENAI_API_KEY and OPENAI_BASE_URL. `settings`
    are defaults, which the settings of the agent and the chat override. `idle_timeout`: the longest
    time without an event, in seconds. Raises UsageError if the SDK is not installed,
    or if `api_key` or `base_url` is passed together with `client`.
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
        settings: OpenAISettings = DEFAULTS,
        idle_timeout: float = IDLE_TIMEOUT,
    ) -> None:
        self.name = name
        """The provider's name for the model."""
        self.settings = settings
        self._connection = Connection(client, api_key, base_url)
        self.server_address, self.server_port = self._connection.server()
        self._idle_timeout = idle_timeout

    def stream(self, request: ModelRequest, /) -> AsyncIterator[Chunk]:
        """Stream the answer, chunk by chunk. Failures raise a ModelError."""
        exchange = Exchange(PROVIDER, secrets=self._connection.secrets(), idle=self._idle_timeout)
        return relay(exchange, self._events(request, exchange), ResponsesReader(exchange))

    async def _events(self, request: ModelRequest, exchange: Exchange) -> AsyncGenerator[Any, None]:
        body = request_body(self.name, request, self.settings)
        client = await self._connection.clients.get()
        exchange.secrets += keys_of(client)
        exchange.where = self._connection.where(client, PROVIDER)
        # The SDK transforms its arguments, but merges extra_body unchanged.
        sent = client.responses.with_streaming_response.create(
            model=self.name,
            input=[],
            stream=True,
            extra_headers=self.settings.headers,
            extra_body=body,
            timeout=self._connection.limits(self._idle_timeout),
        )
        async with aclosing(posted(sent, exchange)) as events:
            async for event in events:
                yield event

    def __repr__(self) -> str:
        return f"<OpenAIModel {self.name!r}>"
