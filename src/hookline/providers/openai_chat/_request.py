"""Convert a request to the JSON of Chat Completions. Pure.

Reasoning is sent back with the calls that it led to, in its original form. The same applies to data
that a server attached to a call (signatures of Gemini). Many servers use this format, so such data
is kept in the meta under the name of the server, and not of the format.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, Final, Literal

import msgspec

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
from hookline.providers._adapter.ids import USUAL, call_ids, call_name
from hookline.providers._adapter.json_fields import json_text, own
from hookline.providers._adapter.merged_settings import effective, put, same_names, with_extra
from hookline.providers._adapter.request_parts import (
    base64_text,
    choice,
    functions,
    location,
    refuse,
    run_there,
    showing,
    user_parts,
)
from hookline.providers.openai._request import json_schema

META: Final = "openai-chat"
THOUGHTS: Final = ("reasoning_content", "reasoning")


class OpenAIChatSettings(Settings, frozen=True, kw_only=True):
    """Settings for models that use Chat Completions; None means the default of the server."""

    reasoning_effort: str | None = None
    """The reasoning effort, from "none" to "max"; the model defines the allowed values."""
    verbosity: Literal["low", "medium", "high"] | None = None
    """The length of the answers."""
    service_tier: Literal["auto", "default", "flex", "scale", "priority", "fast"] | None = None
    """The service tier, which determines speed and price."""
    cache_key: str | None = None
    """The key of the prompt cache; requests with the same key share the cache."""
    cache_retention: Literal["in_memory", "24h"] | None = None
    """How long a cached prompt is kept."""
    top_logprobs: int | None = None
    """How many of the likely tokens at each position to keep in the message's meta."""
    frequency_penalty: float | None = None
    """Values above 0 reduce repetition."""
    presence_penalty: float | None = None
    """Values above 0 encourage new topics."""
    logit_bias: dict[str, int] | None = None
    """A bias for each token, which makes that token more or less likely."""
    parallel_tool_calls: bool | None = None
    """False limits a response to one tool call."""
    modalities: tuple[Literal["text", "audio"], ...] = ()
    """The modalities that the response may contain."""
    audio: dict[str, Any] | None = None
    """The voice and format of generated audio."""
    metadata: dict[str, str] | None = None
    """Metadata that is stored with the request, for the provider's dashboard."""
    safety_identifier: str | None = None
    """An opaque id of the end user."""
    headers: dict[str, str] | None = None
    """Additional HTTP headers."""
    body: dict[str, Any] | None = None
    """Further fields of the request body."""


DEFAULTS: Final = OpenAIChatSettings()


def sound_of(settings: OpenAIChatSettings) -> str:
    """Return the media type of the audio that a response may contain."""
    form = str((settings.audio or {}).get("format") or "pcm16")
    return "audio/" + {"pcm16": "pcm", "mp3": "mpeg"}.get(form, form)


class Dialect(msgspec.Struct, frozen=True):
    """The differences between one server's Chat Completions and OpenAI's."""

    name: str = META
    """Used in Settings.extra, and in errors before anything is sent."""
    limit: str = "max_tokens"
    """The field for the token limit."""
    usage: bool = True
    """Whether the usage must be requested."""
    seed: str = "seed"
    required: str = "required"
    """The value for "some tool must be called"."""
    ids: re.Pattern[str] = USUAL
    video: bool = True
    """Whether the server accepts video_url, unlike OpenAI."""


PLAIN: Final = Dialect()


def request_body(
    model: str,
    request: ModelRequest,
    own_settings: OpenAIChatSettings = DEFAULTS,
    dialect: Dialect = PLAIN,
    server: str = META,
) -> dict[str, Any]:
    """Build the body for /chat/completions; raises BadRequestError for unsupported content.

    `server` is the name under which the meta of messages has the data of this server.
    """
    settings = effective(own_settings, request.settings)
    body: dict[str, Any] = {
        "model": model,
        "stream": True,
        "messages": _messages(request, dialect, server),
    }
    if dialect.usage:
        body["stream_options"] = {"include_usage": True}
    tools = [{"type": "function", "function": tool} for tool in functions(request)]
    put(body, {"tools": (*tools, *run_there(request, dialect.name))})
    tool_choice = choice(settings, request)
    if tool_choice is not None:
        modes = {"auto": "auto", "none": "none", "required": dialect.required}
        function = {"type": "function", "function": {"name": tool_choice}}
        body["tool_choice"] = modes.get(tool_choice, function)
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
            **same_names(settings, "temperature", "top_p", "top_logprobs", "service_tier"),
            **same_names(settings, "stop", "reasoning_effort", "verbosity", "logit_bias"),
            **same_names(settings, "frequency_penalty", "presence_penalty"),
            **same_names(settings, "modalities", "audio", "metadata", "safety_identifier"),
            "prompt_cache_key": settings.cache_key,
            "prompt_cache_retention": settings.cache_retention,
            "parallel_tool_calls": settings.parallel_tool_calls if request.tools else None,
            dialect.limit: settings.max_tokens,
            dialect.seed: settings.seed,
            "logprobs": settings.top_logprobs is not None or None,
        },
    )


def _messages(request: ModelRequest, dialect: Dialect, server: str) -> list[dict[str, Any]]:
    ids = call_ids(request.messages, server, dialect.ids)
    out: list[dict[str, Any]] = []
    media: list[Image | File] = []  # media of tool results, which can only be text in this format
    if request.system:
        out.append({"role": "system", "content": request.system})
    for message in showing(request.messages, server):
        if media and not isinstance(message, ToolMessage):
            out.append(_media_message(media, dialect))
            media = []
        if isinstance(message, ToolMessage):
            id = ids(message.call_id)
            out.append({"role": "tool", "tool_call_id": id, "content": message.text})
            media += message.media
        else:
            out.append(_message(message, dialect, ids, server))
    if media:
        out.append(_media_message(media, dialect))
    return out


def _media_message(media: Sequence[Image | File], dialect: Dialect) -> dict[str, Any]:
    about: dict[str, Any] = {"type": "text", "text": "Files returned by the tools above:"}
    return {"role": "user", "content": [about, *(_input(part, dialect) for part in media)]}


def _message(
    message: Message, dialect: Dialect, ids: Callable[[str], str], server: str
) -> dict[str, Any]:
    if isinstance(message, UserMessage):
        parts = user_parts(message)
        if all(isinstance(part, Text) for part in parts):
            return {"role": "user", "content": message.text}
        return {"role": "user", "content": [_input(part, dialect) for part in parts]}
    assert isinstance(message, AssistantMessage)
    out: dict[str, Any] = {"role": "assistant", "content": message.text or None}
    calls = [part for part in message.parts if type(part) is ToolCall]
    if calls:
        out["tool_calls"] = [
            {
                "id": ids(call.id),
                "type": "function",
                "function": {"name": call_name(call.name), "arguments": json_text(call.arguments)},
                **_call_extra(call, server),
            }
            for call in calls
        ]
        for part in message.parts:
            if type(part) is Reasoning:
                _think(out, part, server)
    elif out["content"] is None:
        out["content"] = ""  # only reasoning, which this format cannot express
    return out


def _call_extra(call: ToolCall, server: str) -> dict[str, Any]:
    """Return the data that the server attached to the call and expects back."""
    extra = own(call.meta, server).get("extra_content")
    return {"extra_content": extra} if extra else {}


def _think(out: dict[str, Any], part: Reasoning, server: str) -> None:
    meta = own(part.meta, server)
    if meta.get("field") in THOUGHTS and part.text:
        out[meta["field"]] = out.get(meta["field"], "") + part.text
    if meta.get("details"):
        out["reasoning_details"] = [*out.get("reasoning_details", ()), *meta["details"]]


def _input(part: Text | Image | File, dialect: Dialect) -> dict[str, Any]:
    provider = dialect.name
    if isinstance(part, Text):
        return {"type": "text", "text": part.text}
    if isinstance(part, Image):
        return {"type": "image_url", "image_url": {"url": location(part, provider)}}
    if part.media_type.startswith("video/"):
        if not dialect.video:
            raise refuse(
                provider, f"{part.media_type} is not supported", "use GoogleModel, or send images"
            )
        return {"type": "video_url", "video_url": {"url": location(part, provider)}}
    if part.data is None:
        raise refuse(
            provider,
            f"Chat Completions does not accept the URL of a file ({part.url!r:.80})",
            "pass the file's data=",
        )
    if part.media_type.startswith("audio/"):
        kind = part.media_type.removeprefix("audio/").removeprefix("x-")
        sound = {"data": base64_text(part.data), "format": {"mpeg": "mp3"}.get(kind, kind)}
        return {"type": "input_audio", "input_audio": sound}
    file = {"filename": part.name or "file", "file_data": location(part, provider)}
    return {"type": "file", "file": file}
