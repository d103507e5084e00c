"""Convert a request to the JSON of Anthropic's Messages API. Pure.

Thinking is sent back unchanged, with its signature, which is kept in the meta of the parts under
the name of its server. Thinking without a signature, or from another server, is left out. So is
thinking that was cut off, or that nothing follows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
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
from hookline.providers._adapter.ids import call_ids, call_name
from hookline.providers._adapter.json_fields import own
from hookline.providers._adapter.merged_settings import effective, put, same_names, with_extra
from hookline.providers._adapter.request_parts import (
    base64_text,
    choice,
    functions,
    location,
    record,
    refuse,
    run_there,
    showing,
    user_parts,
)
from hookline.providers._adapter.schemas import plain

PROVIDER: Final = "anthropic"
MAX_TOKENS: Final = 16_384  # the API requires a limit; all current models accept this one
BREAKPOINTS: Final = 4  # the most cache breakpoints in a prompt
_PICTURES: Final = ("image/png", "image/jpeg", "image/gif", "image/webp")
_OTHERS: Final = "GoogleModel accepts audio and video; OpenAIChatModel accepts audio"
_THINKING: Final = ("thinking", "redacted_thinking")
_RECORDS: Final = frozenset(
    {"server_tool_use", "web_search_tool_result", "web_fetch_tool_result", "advisor_tool_result"}
    | {"code_execution_tool_result", "bash_code_execution_tool_result"}
    | {"text_editor_code_execution_tool_result", "tool_search_tool_result"}
    | {"mcp_tool_use", "mcp_tool_result", "mcp_tool_listing"}
    | {"container_upload", "compaction", "fallback"}
)
"""The blocks of the provider's tools, which are sent back as they came."""
_CHOICES: Final = {"auto": "auto", "none": "none", "required": "any"}


class AnthropicSettings(Settings, frozen=True, kw_only=True):
    """Settings for Anthropic models; None means the default of the API."""

    thinking: int | Literal["adaptive", "off"] | None = None
    """The token budget for thinking; "adaptive" lets the model decide."""
    thinking_display: Literal["summarized", "omitted"] | None = None
    """Whether responses contain a summary of the thinking, or only its encrypted form."""
    effort: Literal["low", "medium", "high", "xhigh", "max"] | None = None
    """The effort that the model puts into an answer."""
    cache: bool | Literal["5m", "1h"] | None = None
    """Whether to cache the tools, the system text and the last messages, and for how long."""
    beta: tuple[str, ...] = ()
    """Names of beta features to enable; the names are sent as a header."""
    top_k: int | None = None
    """Sample only from the `top_k` most likely tokens."""
    service_tier: Literal["auto", "standard_only"] | None = None
    """The service tier, which determines speed and price."""
    speed: Literal["standard", "fast"] | None = None
    """ "fast": faster responses at a higher price."""
    parallel_tool_calls: bool | None = None
    """False limits a response to one tool call."""
    container: str | None = None
    """The id of the container in which the provider runs code; an earlier response has this id."""
    user_id: str | None = None
    """An opaque id of the end user."""
    headers: dict[str, str] | None = None
    """Additional HTTP headers."""
    body: dict[str, Any] | None = None
    """Further fields of the request body."""


DEFAULTS: Final = AnthropicSettings()


def request_body(
    model: str,
    request: ModelRequest,
    own_settings: AnthropicSettings = DEFAULTS,
    server: str = PROVIDER,
) -> dict[str, Any]:
    """Build the body for /v1/messages; raises BadRequestError for unsupported content.

    `server` is the name under which the meta of messages has the data of this server.
    """
    settings = effective(own_settings, request.settings)
    form = plain(request.output.schema) if request.output is not None else None
    if form is None:
        request = request.prompted()
    body: dict[str, Any] = {
        "model": model,
        "stream": True,
        "max_tokens": settings.max_tokens or _room(settings),
        "messages": _messages(request.messages, server),
    }
    if request.system:
        body["system"] = request.system
    tools = functions(request, "input_schema")
    put(body, {"tools": (*tools, *run_there(request, PROVIDER))})
    tool_choice = choice(settings, request)
    if tool_choice is None and tools and settings.parallel_tool_calls is False:
        tool_choice = "auto"
    if tool_choice is not None:
        mode = _CHOICES.get(tool_choice)
        which: dict[str, Any] = {"type": mode} if mode else {"type": "tool", "name": tool_choice}
        body["tool_choice"] = which
        if settings.parallel_tool_calls is False and tool_choice != "none":
            which["disable_parallel_tool_use"] = True
    _put_settings(body, settings, form)
    if settings.cache:
        _mark(body, settings.cache)
    put(body, settings.body or {})
    return with_extra(body, PROVIDER, own_settings, request.settings)


def headers(settings: AnthropicSettings) -> dict[str, str] | None:
    """Return the headers that the settings require."""
    beta = {"anthropic-beta": ",".join(settings.beta)} if settings.beta else {}
    return {**(settings.headers or {}), **beta} or None


def _room(settings: AnthropicSettings) -> int:
    """Return the token limit if none is set; thinking counts towards the limit."""
    return MAX_TOKENS + (settings.thinking if isinstance(settings.thinking, int) else 0)


def _put_settings(body: dict[str, Any], settings: AnthropicSettings, form: Any) -> None:
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
    if form is not None:
        output["format"] = {"type": "json_schema", "schema": form}
    put(
        body,
        {
            **same_names(settings, "temperature", "top_p", "top_k"),
            **same_names(settings, "service_tier", "speed", "container"),
            "stop_sequences": settings.stop,
            "thinking": thinking,
            "output_config": output,
            "metadata": {"user_id": settings.user_id} if settings.user_id else None,
        },
    )


def _mark(body: dict[str, Any], cache: bool | str) -> None:
    """Mark the ends of the stable parts: tools, system text, and the last two user turns.

    The previous request ended with the turn before the last, so that turn is found in the cache.
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


def _messages(messages: Sequence[Message], server: str) -> list[dict[str, Any]]:
    """Build alternating turns: tool results belong to the user turn, before the user's text."""
    ids = call_ids(messages, server)
    out: list[dict[str, Any]] = []
    for message in showing(messages, server):
        role = "assistant" if isinstance(message, AssistantMessage) else "user"
        blocks = list(_blocks(message, ids, server))
        while blocks and blocks[-1]["type"] in _THINKING:
            blocks.pop()  # an answer must not end with thinking
        if not blocks:
            continue
        if out and out[-1]["role"] == role:
            out[-1]["content"] += blocks
        else:
            out.append({"role": role, "content": blocks})
    return out


def _blocks(message: Message, ids: Callable[[str], str], server: str) -> Iterable[dict[str, Any]]:
    if isinstance(message, UserMessage):
        yield from map(_block, user_parts(message))
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
        yield from _answer(message, ids, server)


def _answer(
    message: AssistantMessage, ids: Callable[[str], str], server: str
) -> Iterable[dict[str, Any]]:
    for part in message.parts:
        meta = {} if isinstance(part, ToolCall) else own(part.meta, server)
        if isinstance(part, ToolCall):
            call = {"type": "tool_use", "id": ids(part.id), "name": call_name(part.name)}
            yield {**call, "input": dict(part.arguments)}
        elif isinstance(part, Text):
            block = {"type": "text", "text": part.text}
            yield {**block, "citations": meta["citations"]} if meta.get("citations") else block
        elif message.partial or not isinstance(part, Reasoning):
            pass  # only for people to see
        elif meta.get("block"):
            block_of_tool = record(meta["block"], _RECORDS)
            if block_of_tool is not None:
                yield block_of_tool
        elif meta.get("data"):
            yield {"type": "redacted_thinking", "data": meta["data"]}
        elif meta.get("signature"):
            signature = meta["signature"]
            yield {"type": "thinking", "thinking": part.text, "signature": signature}


def _block(part: Text | Image | File) -> dict[str, Any]:
    if isinstance(part, Text):
        return {"type": "text", "text": part.text}
    if isinstance(part, Image):
        if part.media_type not in _PICTURES:
            raise refuse(
                PROVIDER, f"images of type {part.media_type} are not supported", "send PNG or JPEG"
            )
        return {"type": "image", "source": _source(part)}
    title = {"title": part.name} if part.name else {}
    if part.media_type.startswith("text/") and part.data is not None:
        text = part.data.decode(errors="replace")
        source = {"type": "text", "media_type": "text/plain", "data": text}
        return {"type": "document", "source": source, **title}
    if part.media_type.startswith("text/"):
        raise refuse(
            PROVIDER, f"{part.media_type} cannot be sent as a URL", "pass the file's data="
        )
    if part.media_type != "application/pdf":
        what = f"documents of type {part.media_type} are not supported"
        raise refuse(PROVIDER, what, f"send PDF or text; {_OTHERS}")
    return {"type": "document", "source": _source(part), **title}


def _source(part: Image | File) -> dict[str, Any]:
    if part.data is None:
        return {"type": "url", "url": location(part, PROVIDER)}
    return {"type": "base64", "media_type": part.media_type, "data": base64_text(part.data)}
