"""A request as the JSON of Anthropic's Messages. Pure.

Thinking goes back as it came, with its signature, which is kept in the parts' meta under
"anthropic"; thinking without one, or of another provider, is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, Literal

from hookline import (
    AssistantMessage,
    File,
    Image,
    Message,
    Settings,
    Text,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from hookline.models import ModelRequest
from hookline.providers._ids import call_ids
from hookline.providers._parts import (
    base64_text,
    choice,
    closed,
    functions,
    is_object,
    location,
    own,
    refuse,
    run_there,
    said,
    without,
)
from hookline.providers._settings import effective, put, with_extra

PROVIDER: Final = "anthropic"
MAX_TOKENS: Final = 16_384  # the API wants a limit; this one every current model takes
BREAKPOINTS: Final = 4  # places up to which a prompt may be cached
_CHOICES: Final = {"auto": "auto", "none": "none", "required": "any"}
# What the schema mode does not take; the answer is checked against the type in any case.
_NOT_TAKEN: Final = (
    "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "minLength",
    "maxLength", "maxItems", "uniqueItems", "minProperties", "maxProperties", "pattern",
)  # fmt: skip


class AnthropicSettings(Settings, frozen=True, kw_only=True):
    """What a model of Anthropic's is asked with; None is the API's default."""

    thinking: int | Literal["adaptive", "off"] | None = None
    """How many tokens it may think, or "adaptive": as many as it takes."""
    thinking_display: Literal["summarized", "omitted"] | None = None
    """Whether thinking is shown, or sealed."""
    effort: Literal["low", "medium", "high", "xhigh", "max"] | None = None
    """How much work goes into an answer."""
    cache: bool | Literal["5m", "1h"] | None = None
    """Cache the prompt up to the tools, the system text and the last messages; for how long."""
    beta: tuple[str, ...] = ()
    """Names of features in beta, sent as a header."""
    top_k: int | None = None
    """Choose among so many of the likeliest tokens."""
    service_tier: Literal["auto", "standard_only"] | None = None
    """How fast, and at which price, the request is served."""
    speed: Literal["standard", "fast"] | None = None
    """ "fast": sooner, at another price."""
    parallel_tool_calls: bool | None = None
    """False: at most one call in an answer."""
    container: str | None = None
    """The container of an earlier answer, for code that the provider runs."""
    user_id: str | None = None
    """Who asks, as an opaque id."""
    headers: dict[str, str] | None = None
    """Headers that are sent beside the SDK's."""
    body: dict[str, Any] | None = None
    """Fields of the request that have no name here."""


DEFAULTS: Final = AnthropicSettings()


def request_body(
    model: str, request: ModelRequest, own_settings: AnthropicSettings = DEFAULTS
) -> dict[str, Any]:
    """What is posted to /v1/messages; raises BadRequestError for what it has no way to say."""
    settings = effective(own_settings, request.settings)
    body: dict[str, Any] = {
        "model": model,
        "stream": True,
        "max_tokens": settings.max_tokens or _room(settings),
        "messages": _messages(request.messages),
    }
    if request.system:
        body["system"] = request.system
    tools = [
        {"name": tool.name, "description": tool.description, "input_schema": tool.parameters}
        for tool in functions(request)
    ]
    put(body, {"tools": (*tools, *run_there(request, PROVIDER))})
    chosen = choice(settings, request)
    if chosen is None and tools and settings.parallel_tool_calls is False:
        chosen = "auto"
    if chosen is not None:
        named: dict[str, Any] = {"type": "tool", "name": chosen}
        which: dict[str, Any] = {"type": _CHOICES[chosen]} if chosen in _CHOICES else named
        body["tool_choice"] = which
        if settings.parallel_tool_calls is False and chosen != "none":
            which["disable_parallel_tool_use"] = True
    _put_settings(body, settings, request)
    if settings.cache:
        _mark(body, settings.cache)
    put(body, settings.body or {})
    return with_extra(body, PROVIDER, own_settings, request.settings)


def headers(settings: AnthropicSettings) -> dict[str, str] | None:
    """The headers that the settings ask for."""
    beta = {"anthropic-beta": ",".join(settings.beta)} if settings.beta else {}
    return {**(settings.headers or {}), **beta} or None


def _room(settings: AnthropicSettings) -> int:
    """The limit of tokens where none is set; what is thought counts."""
    return MAX_TOKENS + (settings.thinking if isinstance(settings.thinking, int) else 0)


def _put_settings(body: dict[str, Any], settings: AnthropicSettings, request: ModelRequest) -> None:
    thinking: dict[str, Any] = {}
    if isinstance(settings.thinking, int):
        thinking = {"type": "enabled", "budget_tokens": settings.thinking}
    elif settings.thinking is not None:
        words = {"adaptive": "adaptive", "off": "disabled"}
        thinking = {"type": words[settings.thinking]}
    if thinking and settings.thinking_display is not None:
        thinking["display"] = settings.thinking_display
    output: dict[str, Any] = {}
    put(output, {"effort": settings.effort})
    if request.output is not None:
        schema = closed(without(request.output.schema, _NOT_TAKEN))
        output["format"] = {"type": "json_schema", "schema": schema}
    put(
        body,
        {
            "temperature": settings.temperature,
            "top_p": settings.top_p,
            "top_k": settings.top_k,
            "stop_sequences": settings.stop,
            "thinking": thinking,
            "output_config": output,
            "service_tier": settings.service_tier,
            "speed": settings.speed,
            "container": settings.container,
            "metadata": {"user_id": settings.user_id} if settings.user_id else None,
        },
    )


def _mark(body: dict[str, Any], cache: bool | str) -> None:
    """Mark the ends of what stays the same: tools, system text, and the last two user turns.

    The turn before the last is where the request before this one ended, so it is found cached.
    """
    mark: dict[str, Any] = {"type": "ephemeral"}
    if isinstance(cache, str):
        mark["ttl"] = cache
    if body.get("tools"):
        body["tools"][-1]["cache_control"] = mark
    if body.get("system"):
        body["system"] = [{"type": "text", "text": body["system"], "cache_control": mark}]
    turns = [turn["content"] for turn in body["messages"] if turn["role"] == "user"]
    for content in turns[-2:]:
        content[-1]["cache_control"] = mark


def _messages(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """Turns that alternate: results are the user's, and stand before what the user says."""
    ids = call_ids(messages, PROVIDER)
    out: list[dict[str, Any]] = []
    for message in messages:
        role = "assistant" if isinstance(message, AssistantMessage) else "user"
        blocks = list(_blocks(message, ids))
        if not blocks:
            continue
        if out and out[-1]["role"] == role:
            out[-1]["content"] += blocks
        else:
            out.append({"role": role, "content": blocks})
    return out


def _blocks(message: Message, ids: Callable[[str], str]) -> Iterable[dict[str, Any]]:
    if isinstance(message, UserMessage):
        yield from map(_block, said(message))
    elif isinstance(message, ToolMessage):
        content: Any = message.text
        if message.media:
            text = (Text(message.text),) if message.text.strip() else ()
            content = [_block(part) for part in (*text, *message.media)]
        block = {"type": "tool_result", "tool_use_id": ids(message.call_id), "content": content}
        if message.outcome not in ("ok", "answered"):
            block["is_error"] = True
        yield block
    else:
        yield from _answer(message, ids)


def _answer(message: AssistantMessage, ids: Callable[[str], str]) -> Iterable[dict[str, Any]]:
    for part in message.parts:
        meta = {} if isinstance(part, ToolCall) else own(part.meta, PROVIDER)
        if isinstance(part, ToolCall):
            call = {"type": "tool_use", "id": ids(part.id), "name": part.name}
            yield {**call, "input": dict(part.arguments)}
        elif isinstance(part, Text):
            block = {"type": "text", "text": part.text}
            yield {**block, "citations": meta["citations"]} if meta.get("citations") else block
        elif is_object(meta.get("block")):
            if not message.partial:  # of a tool that the provider ran: whole, or not at all
                yield dict(meta["block"])
        elif meta.get("data"):
            yield {"type": "redacted_thinking", "data": meta["data"]}
        elif meta.get("signature"):
            signature = meta["signature"]
            yield {"type": "thinking", "thinking": part.text, "signature": signature}


def _block(part: Text | Image | File) -> dict[str, Any]:
    if isinstance(part, Text):
        return {"type": "text", "text": part.text}
    kind = "image" if isinstance(part, Image) else "document"
    named = {"title": part.name} if isinstance(part, File) and part.name else {}
    if part.data is None:
        url = location(part, PROVIDER)
        return {"type": kind, "source": {"type": "url", "url": url}, **named}
    if isinstance(part, File) and part.media_type.startswith("text/"):
        text = part.data.decode(errors="replace")
        source = {"type": "text", "media_type": "text/plain", "data": text}
    elif isinstance(part, File) and part.media_type != "application/pdf":
        raise refuse(PROVIDER, f"a document cannot be {part.media_type}", "send PDF or text")
    else:
        data = base64_text(part.data)
        source = {"type": "base64", "media_type": part.media_type, "data": data}
    return {"type": kind, "source": source, **named}
