"""Convert a request to the JSON of OpenAI's Responses API. Pure.

Each request is complete in itself (`store` is False): data that the provider expects back, such as
encrypted reasoning, is kept in the messages' meta under "openai", and sent with the next request.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, Literal

from hookline import (
    AssistantMessage,
    File,
    Image,
    Message,
    Reasoning,
    Settings,
    Source,
    Text,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from hookline.models import ModelRequest, OutputSchema
from hookline.providers._adapter.ids import call_ids, call_name
from hookline.providers._adapter.json_fields import json_text, own
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
from hookline.providers._adapter.schemas import closed, is_strict

PROVIDER: Final = "openai"
SEALED: Final = "reasoning.encrypted_content"
_RECORDS: Final = frozenset(
    {"web_search_call", "file_search_call", "code_interpreter_call", "image_generation_call"}
    | {"computer_call", "computer_call_output", "compaction", "program", "program_output"}
    | {"tool_search_call", "tool_search_output", "mcp_call", "mcp_list_tools"}
    | {"mcp_approval_request", "local_shell_call", "local_shell_call_output"}
    | {"shell_call", "shell_call_output", "apply_patch_call", "apply_patch_call_output"}
    | {"custom_tool_call", "custom_tool_call_output"}
)
"""The items of the provider's tools, which are sent back as they came."""
_REASONING: Final = ("id", "encrypted_content")
_MESSAGE: Final = ("id", "phase")


class OpenAISettings(Settings, frozen=True, kw_only=True):
    """Settings for models of OpenAI's Responses API; None means the default of the API."""

    reasoning_effort: Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"] | None = (
        None
    )
    """The amount of reasoning before the answer."""
    reasoning_summary: Literal["auto", "concise", "detailed"] | None = None
    """The style of reasoning summaries; if None, no reasoning is shown."""
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
    parallel_tool_calls: bool | None = None
    """False limits a response to one tool call."""
    max_tool_calls: int | None = None
    """The maximum number of calls to provider tools in one response."""
    truncation: Literal["auto", "disabled"] | None = None
    """ "auto" lets the API drop the oldest items if the context is full."""
    include: tuple[str, ...] = ()
    """Additional data to include in the response: a list of the API's names."""
    metadata: dict[str, str] | None = None
    """Metadata that is stored with the request, for the provider's dashboard."""
    safety_identifier: str | None = None
    """An opaque id of the end user."""
    headers: dict[str, str] | None = None
    """Additional HTTP headers."""
    body: dict[str, Any] | None = None
    """Further fields of the request body."""


DEFAULTS: Final = OpenAISettings()


def request_body(
    model: str,
    request: ModelRequest,
    own_settings: OpenAISettings = DEFAULTS,
    server: str = PROVIDER,
) -> dict[str, Any]:
    """Build the body for /responses; raises BadRequestError for unsupported content.

    `server` is the name under which the meta of messages has the data of this server.
    """
    settings = effective(own_settings, request.settings)
    if settings.stop:
        raise refuse(
            PROVIDER, f"the Responses API has no stop={settings.stop!r}", "use OpenAIChatModel"
        )
    ids = call_ids(request.messages, server)
    body: dict[str, Any] = {
        "model": model,
        "stream": True,
        "store": False,
        "input": [
            item
            for message in showing(request.messages, server)
            for item in _items(message, ids, server)
        ],
    }
    if request.system:
        body["instructions"] = request.system
    tools = [{"type": "function", **tool, "strict": False} for tool in functions(request)]
    put(body, {"tools": (*tools, *run_there(request, PROVIDER))})
    tool_choice = choice(settings, request)
    if tool_choice is not None:
        is_mode = tool_choice in ("auto", "none", "required")
        body["tool_choice"] = tool_choice if is_mode else {"type": "function", "name": tool_choice}
    _put_settings(body, settings, request)
    put(body, settings.body or {})
    return with_extra(body, PROVIDER, own_settings, request.settings)


def _put_settings(body: dict[str, Any], settings: OpenAISettings, request: ModelRequest) -> None:
    reasoning: dict[str, Any] = {}
    put(reasoning, {"effort": settings.reasoning_effort, "summary": settings.reasoning_summary})
    text: dict[str, Any] = {}
    if request.output is not None:
        text["format"] = {"type": "json_schema", **json_schema(request.output)}
    put(text, {"verbosity": settings.verbosity})
    include = list(settings.include)
    if settings.reasoning_effort not in (None, "none") and SEALED not in include:
        include.append(SEALED)  # without it reasoning could not be sent back
    if settings.top_logprobs is not None:
        include.append("message.output_text.logprobs")
    put(
        body,
        {
            **same_names(settings, "temperature", "top_p", "top_logprobs", "service_tier"),
            **same_names(settings, "max_tool_calls", "truncation", "metadata", "safety_identifier"),
            "prompt_cache_key": settings.cache_key,
            "prompt_cache_retention": settings.cache_retention,
            "parallel_tool_calls": settings.parallel_tool_calls if request.tools else None,
            "max_output_tokens": settings.max_tokens,
            "reasoning": reasoning,
            "text": text,
            "include": tuple(include),
        },
    )


def json_schema(output: OutputSchema) -> dict[str, Any]:
    """Return the format of the answer; strict if the schema allows it."""
    schema = closed(output.schema)
    return {"name": output.name, "schema": schema, "strict": is_strict(schema)}


def _items(message: Message, ids: Callable[[str], str], server: str) -> Iterable[dict[str, Any]]:
    if isinstance(message, UserMessage):
        yield {"role": "user", "content": [_input(part) for part in user_parts(message)]}
    elif isinstance(message, ToolMessage):
        output: Any = message.text
        if message.media:
            output = [_input(part) for part in (Text(message.text), *message.media)]
        yield {"type": "function_call_output", "call_id": ids(message.call_id), "output": output}
    else:
        yield from _answer(message, ids, server)


def _input(part: Text | Image | File) -> dict[str, Any]:
    if isinstance(part, Text):
        return {"type": "input_text", "text": part.text}
    if isinstance(part, Image):
        where = location(part, PROVIDER)
        return {"type": "input_image", "image_url": where, "detail": "auto"}
    kind = part.media_type.partition("/")[0]
    if kind in ("audio", "video"):
        others = "GoogleModel" if kind == "video" else "OpenAIChatModel or GoogleModel"
        raise refuse(PROVIDER, f"{part.media_type} is not supported", f"use {others}")
    if part.data is None and part.url is not None:
        return {"type": "input_file", "file_url": part.url}
    data = location(part, PROVIDER)
    return {"type": "input_file", "filename": part.name or "file", "file_data": data}


def _answer(
    message: AssistantMessage, ids: Callable[[str], str], server: str
) -> Iterable[dict[str, Any]]:
    """Convert an answer to items. Of an answer that was cut off only the text is sent.

    Encrypted reasoning belongs to the items after it, so these items are sent with their ids,
    otherwise without.
    """
    parts = message.parts
    sealed = not message.partial and any(
        type(part) is Reasoning and own(part.meta, server) for part in parts
    )
    items: Sequence[Any] = own(message.meta, server).get("messages") or ()
    texts = sum(type(part) is Text for part in parts)
    originals = iter(items if sealed and len(items) == texts else ())
    for part in parts:
        meta = own(part.meta, server)
        if isinstance(part, Text):
            yield _text(part, next(originals, None), server)
        elif isinstance(part, ToolCall):
            call = {"type": "function_call", "call_id": ids(part.id), "name": call_name(part.name)}
            item = {"id": meta["id"]} if sealed and meta.get("id") else {}
            yield {**call, **item, "arguments": json_text(part.arguments)}
        elif not message.partial:
            yield from _record(part, server, sealed=sealed)


def _record(
    part: Image | Reasoning | Source | File, server: str, *, sealed: bool
) -> Iterable[dict[str, Any]]:
    """Return the original item of a part: reasoning, or the record of a provider's tool."""
    meta = own(part.meta, server)
    item = record(meta.get("item"), _RECORDS)
    if isinstance(part, Image):
        if item is not None and part.data is not None:
            yield {**item, "result": base64_text(part.data)}
    elif isinstance(part, Reasoning):
        if item is not None:
            yield item
        elif sealed and meta.get("id"):
            summary = [{"type": "summary_text", "text": part.text}] if part.text else []
            yield {"type": "reasoning", "summary": summary, **_fields(meta, _REASONING)}


def _text(part: Text, item: dict[str, Any] | None, server: str) -> dict[str, Any]:
    """Convert a text, to its original item if the id is known."""
    if item is None:
        return {"role": "assistant", "content": part.text}
    notes = own(part.meta, server).get("annotations") or ()
    output = {"type": "output_text", "text": part.text, "annotations": notes}
    shape = {"type": "message", "role": "assistant", "status": "completed"}
    return {**shape, **_fields(item, _MESSAGE), "content": [output]}


def _fields(meta: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """Return these fields of an original item; a role or type is never one of them."""
    return {name: meta[name] for name in names if name in meta}
