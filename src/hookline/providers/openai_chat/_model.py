"""Chat Completions through the SDK `openai` (extra `openai`), for OpenAI and compatible servers.

Ollama, vLLM, OpenRouter, Azure and others need a preset (`hookline.providers.presets`), a
`base_url`, or your own client.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from hookline.models import Chunk, ModelRequest
from hookline.providers._adapter.clients import IDLE_TIMEOUT
from hookline.providers._adapter.connection import Connection
from hookline.providers._adapter.streaming import relay
from hookline.providers.openai._model import SERVICE as OPENAI
from hookline.providers.openai._model import Client
from hookline.providers.openai_chat._reader import ChatReader
from hookline.providers.openai_chat._request import (
    DEFAULTS,
    META,
    Dialect,
    OpenAIChatSettings,
    request_body,
    sound_of,
)
from hookline.providers.openai_chat._think_tags import ThinkTags

if TYPE_CHECKING:
    from openai import AsyncOpenAI

__all__ = ["OpenAIChatModel", "OpenAIChatSettings"]

SERVICE: Final = replace(OPENAI, meta=META)


class OpenAIChatModel:
    """A model behind Chat Completions: `OpenAIChatModel("qwen3", base_url="http://…/v1")`.

    `client` is your own `AsyncOpenAI` (or `AsyncAzureOpenAI`), or a function that returns a client.
    By default a client is created from `api_key` and `base_url`, or from OPENAI_API_KEY and
    OPENAI_BASE_URL. `settings` are defaults, which the settings of the agent and the chat override.
    `provider` names the service in errors, traces and `Settings.extra`. Data that the service
    expects back, such as signatures, is sent only to a service of the same name; without
    `provider`, only to the same host. `think_tags`: whether text between <think> and </think> is
    reasoning if it begins the answer; by default, at every server but OpenAI's and Azure's.
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
        connection: Connection[AsyncOpenAI] | None = None,
        dialect: Dialect | None = None,
    ) -> None:
        self.name = name
        """The provider's name for the model."""
        self.takes_schema = takes_schema
        """Whether the server has a mode for JSON schemas."""
        self.settings = settings
        self._connection: Connection[AsyncOpenAI] = connection or Connection(
            SERVICE, client, api_key, base_url, provider=provider, idle_timeout=idle_timeout
        )
        self.provider = self._connection.provider
        self.server_address, self.server_port = self._connection.server()
        self._dialect = dialect
        self._extra_name = provider or META
        self._think_tags = think_tags

    def stream(self, request: ModelRequest, /) -> AsyncIterator[Chunk]:
        """Stream the answer, chunk by chunk. Failures raise a ModelError."""
        exchange = self._connection.exchange()
        reader = ChatReader(exchange, sound=sound_of(self.settings))

        def call(client: AsyncOpenAI) -> Any:
            own = client.base_url.host.endswith(("openai.com", "azure.com"))
            if not own if self._think_tags is None else self._think_tags:
                reader.tags = ThinkTags()
            dialect = self._dialect or self._dialect_of(own)
            body = request_body(self.name, request, self.settings, dialect, exchange.server)
            return client.chat.completions.with_streaming_response.create(
                model=self.name,
                messages=(),
                stream=True,
                extra_headers=self.settings.headers,
                extra_body=body,
                timeout=self._connection.timeout(),
            )

        return relay(exchange, self._connection.events(exchange, call), reader)

    def _dialect_of(self, own: bool) -> Dialect:
        """Return the dialect of a server without a preset; `own`: it is OpenAI's or Azure's."""
        if own:
            # New OpenAI models refuse the old field name; other servers know only the old name.
            return Dialect(self._extra_name, limit="max_completion_tokens", video=False)
        return Dialect(self._extra_name)

    def __repr__(self) -> str:
        return f"<OpenAIChatModel {self.name!r}>"
