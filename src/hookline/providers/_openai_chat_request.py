"""A request as the JSON of Chat Completions. Pure.

Reasoning goes back with the calls that it led to, in the form in which it came; so does what a
server has put beside a call (Gemini's signatures).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, Final, Literal

from hookline import (
    AssistantMessage,
    File,
    Image,
    Message,
    Reasoning,
    Settings,
    Text,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from hookline.models import ModelRequest
from hookline.providers._ids import USUAL, call_ids
from hookline.providers._openai_request import json_schema
from hookline.providers._parts import (
    base64_text,
    choice,
    functions,
    json_text,
    location,
    own,
    refuse,
    run_there,
    said,
)
from hookline.providers._settings import effective, put, with_extra

META: Final = "openai-chat"
THOUGHTS: Final = ("reasoning_content", "reasoning")


class OpenAIChatSettings(Settings, frozen=True, kw_only=True):
    """What a model of Chat Completions is asked with; None is the server's default."""

    reasoning_effort: str | None = None
    """From "none" to "max", in words that the model knows."""
    verbosity: Literal["low", "medium", "high"] | None = None
    """How long answers are to be."""
    service_tier: Literal["auto", "default", "flex", "scale", "priority", "fast"] | None = None
    """How fast, and at which price, the request is served."""
    cache_key: str | None = None
    """Requests with one key share a cache of prompts."""
    cache_retention: Literal["in_memory", "24h"] | None = None
    """How long a cached prompt is kept."""
    top_logprobs: int | None = None
    """How many likely tokens to tell at each place; kept in the message's meta."""
    frequency_penalty: float | None = None
    """Above 0: fewer repetitions."""
    presence_penalty: float | None = None
    """Above 0: more new topics."""
    logit_bias: dict[str, int] | None = None
    """By token: how much more or less likely it is."""
    parallel_tool_calls: bool | None = None
    """False: at most one call in an answer."""
    modalities: tuple[Literal["text", "audio"], ...] = ()
    """What the answer may be made of."""
    audio: dict[str, Any] | None = None
    """The voice and the format of audio that the model makes."""
    metadata: dict[str, str] | None = None
    """Kept with the request, for the provider's dashboard."""
    safety_identifier: str | None = None
    """Who asks, as an opaque id."""
    headers: dict[str, str] | None = None
    """Headers that are sent beside the SDK's."""
    body: dict[str, Any] | None = None
    """Fields of the request that have no name here."""


DEFAULTS: Final = OpenAIChatSettings()


class Dialect:
    """How one server's Chat Completions differ from OpenAI's."""

    __slots__ = ("ids", "limit", "name", "required", "seed", "usage")

    def __init__(
        self,
        name: str = META,
        *,
        limit: str = "max_tokens",
        usage: bool = True,
        seed: str = "seed",
        required: str = "required",
        ids: re.Pattern[str] = USUAL,
    ) -> None:
        self.name = name  # in Settings.extra, and in errors before anything is sent
        self.limit = limit  # the name of the limit of tokens
        self.usage = usage  # whether the usage has to be asked for
        self.seed = seed
        self.required = required  # the word for "some tool must be called"
        self.ids = ids


PLAIN: Final = Dialect()


def request_body(
    model: str,
    request: ModelRequest,
    own_settings: OpenAIChatSettings = DEFAULTS,
    dialect: Dialect = PLAIN,
) -> dict[str, Any]:
    """What is posted to /chat/completions; raises BadRequestError for what it cannot say."""
    settings = effective(own_settings, request.settings)
    body: dict[str, Any] = {
        "model": model,
        "stream": True,
        "messages": _messages(request, dialect),
    }
    if dialect.usage:
        body["stream_options"] = {"include_usage": True}
    tools = [
        {
            "type": "function",
            "function": {
                "name": tool.name,
                "description": tool.description,
                "parameters": tool.parameters,
            },
        }
        for tool in functions(request)
    ]
    put(body, {"tools": (*tools, *run_there(request, dialect.name))})
    chosen = choice(settings, request)
    if chosen is not None:
        known = {"auto": "auto", "none": "none", "required": dialect.required}
        named = {"type": "function", "function": {"name": chosen}}
        body["tool_choice"] = known.get(chosen, named)
    _put_settings(body, settings, request, dialect)
    if request.output is not None:
        form = {"type": "json_schema", "json_schema": json_schema(request.output)}
        body["response_format"] = form
    put(body, settings.body or {})
    return with_extra(body, dialect.name, own_settings, request.settings)


def _put_settings(
    body: dict[str, Any], settings: OpenAIChatSettings, request: ModelRequest, dialect: Dialect
) -> None:
    put(
        body,
        {
            "temperature": settings.temperature,
            "top_p": settings.top_p,
            dialect.limit: settings.max_tokens,
            "stop": settings.stop,
            dialect.seed: settings.seed,
            "reasoning_effort": settings.reasoning_effort,
            "verbosity": settings.verbosity,
            "service_tier": settings.service_tier,
            "prompt_cache_key": settings.cache_key,
            "prompt_cache_retention": settings.cache_retention,
            "logprobs": settings.top_logprobs is not None or None,
            "top_logprobs": settings.top_logprobs,
            "frequency_penalty": settings.frequency_penalty,
            "presence_penalty": settings.presence_penalty,
            "logit_bias": settings.logit_bias,
            "parallel_tool_calls": settings.parallel_tool_calls if request.tools else None,
            "modalities": settings.modalities,
            "audio": settings.audio,
            "metadata": settings.metadata,
            "safety_identifier": settings.safety_identifier,
        },
    )


def _messages(request: ModelRequest, dialect: Dialect) -> list[dict[str, Any]]:
    ids = call_ids(request.messages, META, dialect.ids)
    provider = dialect.name
    out: list[dict[str, Any]] = []
    media: list[Image | File] = []  # of tool results, which are text alone on this wire
    if request.system:
        out.append({"role": "system", "content": request.system})
    for message in request.messages:
        if media and not isinstance(message, ToolMessage):
            out.append(_shown(media, provider))
            media = []
        if isinstance(message, ToolMessage):
            id = ids(message.call_id)
            out.append({"role": "tool", "tool_call_id": id, "content": message.text})
            media += message.media
        else:
            out.append(_message(message, provider, ids))
    if media:
        out.append(_shown(media, provider))
    return out


def _shown(media: Sequence[Image | File], provider: str) -> dict[str, Any]:
    about: dict[str, Any] = {"type": "text", "text": "What the tools above have returned:"}
    return {"role": "user", "content": [about, *(_input(part, provider) for part in media)]}


def _message(message: Message, provider: str, ids: Callable[[str], str]) -> dict[str, Any]:
    if isinstance(message, UserMessage):
        parts = said(message)
        if all(isinstance(part, Text) for part in parts):
            return {"role": "user", "content": message.text}
        return {"role": "user", "content": [_input(part, provider) for part in parts]}
    assert isinstance(message, AssistantMessage)
    out: dict[str, Any] = {"role": "assistant", "content": message.text or None}
    calls = [part for part in message.parts if type(part) is ToolCall]
    if calls:
        out["tool_calls"] = [
            {
                "id": ids(call.id),
                "type": "function",
                "function": {"name": call.name, "arguments": json_text(call.arguments)},
                **_beside(call),
            }
            for call in calls
        ]
        for part in message.parts:
            if type(part) is Reasoning:
                _think(out, part)
    elif out["content"] is None:
        out["content"] = ""  # reasoning alone, which has no place here
    return out


def _beside(call: ToolCall) -> dict[str, Any]:
    """What the server has put beside the call, and wants back with it."""
    found = own(call.meta, META).get("extra_content")
    return {"extra_content": found} if found else {}


def _think(out: dict[str, Any], part: Reasoning) -> None:
    meta = own(part.meta, META)
    if meta.get("field") in THOUGHTS and part.text:
        out[meta["field"]] = out.get(meta["field"], "") + part.text
    if meta.get("details"):
        out["reasoning_details"] = [*out.get("reasoning_details", ()), *meta["details"]]


def _input(part: Text | Image | File, provider: str) -> dict[str, Any]:
    if isinstance(part, Text):
        return {"type": "text", "text": part.text}
    if isinstance(part, Image):
        return {"type": "image_url", "image_url": {"url": location(part, provider)}}
    if part.data is None:
        raise refuse(
            provider, f"Chat Completions takes no file by URL ({part.url!r:.80})", "pass its data="
        )
    if part.media_type.startswith("audio/"):
        kind = part.media_type.removeprefix("audio/").removeprefix("x-")
        sound = {"data": base64_text(part.data), "format": {"mpeg": "mp3"}.get(kind, kind)}
        return {"type": "input_audio", "input_audio": sound}
    file = {"filename": part.name or "file", "file_data": location(part, provider)}
    return {"type": "file", "file": file}
