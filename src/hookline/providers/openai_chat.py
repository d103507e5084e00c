"""Chat Completions on the SDK `openai` (extra `openai`): OpenAI's, and everything that speaks them.

Ollama, vLLM, OpenRouter, Azure and others are reached by a preset (`hookline.providers.presets`),
by `base_url` or by a client of their own.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Any

from hookline.models import Chunk, ModelRequest
from hookline.providers._clients import IDLE_TIMEOUT
from hookline.providers._failures import Exchange
from hookline.providers._frame import posted, relay
from hookline.providers._openai_chat_reader import ChatReader
from hookline.providers._openai_chat_request import (
    DEFAULTS,
    META,
    PLAIN,
    Dialect,
    OpenAIChatSettings,
    request_body,
)
from hookline.providers._think import thinks_aloud
from hookline.providers.openai import Client, Connection

__all__ = ["OpenAIChatModel", "OpenAIChatSettings"]


class OpenAIChatModel:
    """A model behind Chat Completions: `OpenAIChatModel("qwen3", base_url="http://…/v1")`.

    `client` is an `AsyncOpenAI` (or `AsyncAzureOpenAI`) of the user's, or a function that makes
    one; otherwise one is made from `api_key` and `base_url`, or OPENAI_API_KEY and
    OPENAI_BASE_URL. `settings` are the weakest: agent and chat go before them. `provider` names the
    service in errors, traces and `Settings.extra`. `think_tags`: whether what the model writes
    between <think> and </think> is reasoning; by default it is for families known to do so.
    `idle_timeout`: seconds in which something must come. Raises UsageError where the SDK is not
    installed.
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
        idle_timeout: float = IDLE_TIMEOUT,
        connection: Connection | None = None,
        dialect: Dialect | None = None,
    ) -> None:
        self.name = name
        """The provider's name of the model."""
        self.provider = provider or "openai"
        self.settings = settings
        self._connection = connection or Connection(client, api_key, base_url)
        self.server_address, self.server_port = self._connection.server()
        self._dialect = dialect or (Dialect(provider or META) if provider else PLAIN)
        self._adapts = dialect is None
        self._tags = thinks_aloud(name) if think_tags is None else think_tags
        self._idle_timeout = idle_timeout

    def stream(self, request: ModelRequest, /) -> AsyncIterator[Chunk]:
        """The answer, chunk by chunk; what fails is a ModelError."""
        exchange = Exchange(self.provider, secrets=self._connection.secrets())
        events = self._events(request, exchange)
        return relay(exchange, events, ChatReader(exchange, tags=self._tags))

    async def _events(self, request: ModelRequest, exchange: Exchange) -> AsyncGenerator[Any, None]:
        dialect = self._dialect
        client = await self._connection.clients.get()
        exchange.where = self._connection.where(client, self.provider)
        if self._adapts and client.base_url.host.endswith(("openai.com", "azure.com")):
            # Of OpenAI's own models the newer ones refuse the old name, others know only that one.
            dialect = Dialect(dialect.name, limit="max_completion_tokens")
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

    def __repr__(self) -> str:
        return f"<OpenAIChatModel {self.name!r}>"
