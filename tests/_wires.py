"""The models that the conformance suite is for: the adapters over wire servers, and the script."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from tests.wire import Wire, WireFormat, WireServer

from hookline import Model
from hookline.providers.anthropic import AnthropicModel
from hookline.providers.google import GoogleModel
from hookline.providers.openai import OpenAIModel
from hookline.providers.openai_chat import OpenAIChatModel
from hookline.testing import ScriptedModel

KEY = "sk-secret-1234567890"
ADAPTERS: dict[WireFormat, Callable[..., Model]] = {
    "openai": OpenAIModel,
    "openai-chat": OpenAIChatModel,
    "anthropic": AnthropicModel,
    "google": GoogleModel,
}
WIRES = list(ADAPTERS)
KINDS = [*WIRES, "scripted"]


@asynccontextmanager
async def wire(kind: WireFormat, *turns: Any, **options: Any) -> AsyncIterator[tuple[Model, Any]]:
    """An adapter with its real SDK, and the server that it talks to."""
    async with WireServer(kind, *turns) as server:
        model = ADAPTERS[kind]("wire-model", base_url=server.url, api_key=KEY, **options)
        yield model, server


@asynccontextmanager
async def backend(kind: str, *turns: Any) -> AsyncIterator[Model]:
    """A model of that kind which plays these turns."""
    if kind == "scripted":
        with ScriptedModel(*turns, chunk=3) as model:
            yield model
    else:
        # Three bytes a write: the events, and the characters, come in pieces.
        async with wire(kind, *(Wire(turn, piece=3) for turn in turns)) as (model, _):  # type: ignore[arg-type]
            yield model
