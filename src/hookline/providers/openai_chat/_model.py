"""Chat Completions through the SDK `openai` (extra `openai`), for OpenAI and compatible servers.

Ollama, vLLM, OpenRouter, Azure and others need a preset (`hookline.providers.presets`), a
`base_url`, or your own client.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Any

from hookline.models import Chunk, ModelRequest
from hookline.providers._adapter.clients import IDLE_TIMEOUT, keys_of, where_of
from hookline.providers._adapter.errors.failures import Exchange
from hookline.providers._adapter.streaming import posted, relay
from hookline.providers._adapter.think_tags import thinks_aloud
from hookline.providers.openai._model import Client, Connection
from hookline.providers.openai_chat._reader import ChatReader
from hookline.providers.openai_chat._request import (
    DEFAULTS,
    META,
    Dialect,
    OpenAIChatSettings,
    request_body,
    sound_of,
)

__all__ = ["OpenAIChatModel", "OpenAIChatSettings"]


class OpenAIChatModel:
    """A model behind Chat Completions: `OpenAIChatModel("qwen3", base_url="http://…/v1")`.

    `client` is your own `AsyncOpenAI` (or `AsyncAzureOpenAI`), or a function that returns a client.
    By default a client is created from `api_key` and `base_url`, or from OPENAI_API_KEY and
    OPENAI_BASE_URL. `settings` are defaults, which the settings of the agent and the chat override.
    `provider` names the service in errors, traces and `Settings.extra`. Data that the service
    expects back, such as signatures, is sent only to a service of the same name; without
    `provider`, only to the same host. `think_tags`: whether text
    between <think> and </think> is reasoning; the default depends on the family of the model.
    `takes_schema=False`: the server has no mode for JSON schemas, so the system text describes the
    form of the answer. `idle_timeout`: the longest time without an event, in seconds.
    Raises UsageError if the SDK is not installed, or if `api_key` or `base_url` is passed together
    with `client`.
    """

    def __init__(
        self,
        name: str,
        *,
        client: Client | None = None,
        api_key: str | None = None,
        base_url: str | None = None,
        settings: OpenAIChatSettings = DEFAULTS,
        provider: str | None = None,
        think_tags: bool | None = None,
        takes_schema: bool = True,
        idle_timeout: float = IDLE_TIMEOUT,
        connection: Connection | None = None,
        dialect: Dialect | None = None,
    ) -> None:
        self.name = name
        """The provider's name for the model."""
        self.takes_schema = takes_schema
        """Whether the server has a mode for JSON schemas."""
        self.provider = provider or "openai"
        self.settings = settings
        self._connection = connection or Connection(
            client, api_key, base_url, provider=self.provider
        )
        self.server_address, self.server_port = self._connection.server()
        self._dialect = dialect
        self._named = provider
        self._tags = thinks_aloud(name) if think_tags is None else think_tags
        self._idle_timeout = idle_timeout

    def stream(self, request: ModelRequest, /) -> AsyncIterator[Chunk]:
        """Stream the answer, chunk by chunk. Failures raise a ModelError."""
        exchange = Exchange(
            self.provider, secrets=self._connection.secrets(), idle=self._idle_timeout
        )
        reader = ChatReader(exchange, tags=self._tags, sound=sound_of(self.settings))
        return relay(exchange, self._events(request, exchange, reader), reader)

    async def _events(
        self, request: ModelRequest, exchange: Exchange, reader: ChatReader
    ) -> AsyncGenerator[Any, None]:
        client = await self._connection.clients.get()
        exchange.secrets += keys_of(client)
        exchange.where = self._connection.where(client, self.provider)
        dialect = self._dialect or self._dialect_at(client.base_url)
        reader.server = dialect.server
        body = request_body(self.name, request, self.settings, dialect)
        sent = client.chat.completions.with_streaming_response.create(
            model=self.name,
            messages=(),
            stream=True,
            extra_headers=self.settings.headers,
            extra_body=body,
            timeout=self._connection.limits(self._idle_timeout),
        )
        async with aclosing(posted(sent, exchange)) as events:
            async for event in events:
                yield event

    def _dialect_at(self, url: Any) -> Dialect:
        """Return the dialect of the server at this address, which has no preset."""
        name = self._named or META
        server = self._named or where_of(url, META, "openai.com")
        if url.host.endswith(("openai.com", "azure.com")):
            # New OpenAI models refuse the old field name; other servers know only the old name.
            return Dialect(name, server=server, limit="max_completion_tokens", video=False)
        return Dialect(name, server=server)

    def __repr__(self) -> str:
        return f"<OpenAIChatModel {self.name!r}>"
