"""Convert a request to the arguments of Google's SDK. Pure.

Thought signatures are sent back with the part that they arrived with. The signature of a call is in
the call's meta; any other signature is in a reasoning part without text, under the
name of the server.
"""

from __future__ import annotations

import re
from base64 import b64decode
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
from hookline.providers._adapter.json_fields import is_object, own
from hookline.providers._adapter.merged_settings import effective, put, same_names, with_extra
from hookline.providers._adapter.request_parts import (
    choice,
    functions,
    location,
    run_there,
    showing,
    user_parts,
)

PROVIDER: Final = "google"
_RECORD: Final = ("executableCode", "codeExecutionResult", "thoughtSignature", "thought")
"""The fields of the provider's code runs, which are sent back as they came."""
_CHOICES: Final = {"auto": "AUTO", "none": "NONE", "required": "ANY"}


class GoogleSettings(Settings, frozen=True, kw_only=True):
    """Settings for Gemini models; None means the default of the API."""

    thinking_budget: int | None = None
    """The token budget for thinking; 0 turns thinking off, -1 lets the model decide."""
    thinking_level: Literal["minimal", "low", "medium", "high"] | None = None
    """The thinking level, for models that have levels."""
    include_thoughts: bool | None = None
    """Whether the response includes summaries of the thoughts."""
    cached_content: str | None = None
    """The name of a cached prompt, such as "cachedContents/…"."""
    top_k: float | None = None
    """Sample only from the `top_k` most likely tokens."""
    frequency_penalty: float | None = None
    """Values above 0 reduce repetition."""
    presence_penalty: float | None = None
    """Values above 0 encourage new topics."""
    logprobs: int | None = None
    """How many likely tokens to report at each position."""
    safety: dict[str, str] | None = None
    """The blocking threshold of each harm category; keys and values are names of the API."""
    modalities: tuple[Literal["TEXT", "IMAGE", "AUDIO"], ...] = ()
    """The modalities that the response may contain."""
    media_resolution: str | None = None
    """The resolution at which media are processed: one of the API's names."""
    service_tier: str | None = None
    """The service tier, which determines speed and price."""
    labels: dict[str, str] | None = None
    """Labels that are stored with the request, for billing."""
    headers: dict[str, str] | None = None
    """Additional HTTP headers."""
    body: dict[str, Any] | None = None
    """Further fields of `GenerateContentConfig`."""


DEFAULTS: Final = GoogleSettings()


def request_body(
    model: str,
    request: ModelRequest,
    own_settings: GoogleSettings = DEFAULTS,
    server: str = PROVIDER,
) -> dict[str, Any]:
    """Build the arguments of `generate_content_stream`; raises BadRequestError if unsupported.

    `server` is the name under which the meta of messages has the data of this server.
    """
    settings = effective(own_settings, request.settings)
    config: dict[str, Any] = {"automatic_function_calling": {"disable": True}}
    if request.system:
        config["system_instruction"] = request.system
    declared = functions(request, "parameters_json_schema")
    ours = ({"function_declarations": declared},) if declared else ()
    put(config, {"tools": (*ours, *run_there(request, PROVIDER))})
    tool_choice = choice(settings, request)
    if tool_choice is not None:
        mode: dict[str, Any] = {"mode": _CHOICES.get(tool_choice, "ANY")}
        if tool_choice not in _CHOICES:
            mode["allowed_function_names"] = [tool_choice]
        config["tool_config"] = {"function_calling_config": mode}
    _put_settings(config, settings)
    if request.output is not None:
        config["response_mime_type"] = "application/json"
        config["response_json_schema"] = request.output.schema
    put(config, settings.body or {})
    return {
        "model": model,
        "contents": _contents(request.messages, server, unsigned=_wants_signatures(model)),
        "config": with_extra(config, PROVIDER, own_settings, request.settings),
    }


def _put_settings(config: dict[str, Any], settings: GoogleSettings) -> None:
    thinking: dict[str, Any] = {}
    level = settings.thinking_level
    put(
        thinking,
        {
            "thinking_budget": settings.thinking_budget,
            "thinking_level": level.upper() if level else None,
            "include_thoughts": settings.include_thoughts,
        },
    )
    safety = (settings.safety or {}).items()
    put(
        config,
        {
            **same_names(settings, "temperature", "top_p", "top_k", "seed", "cached_content"),
            **same_names(settings, "frequency_penalty", "presence_penalty", "logprobs"),
            **same_names(settings, "media_resolution", "service_tier", "labels"),
            "max_output_tokens": settings.max_tokens,
            "stop_sequences": settings.stop,
            "thinking_config": thinking,
            "response_logprobs": settings.logprobs is not None or None,
            "safety_settings": tuple({"category": c, "threshold": t} for c, t in safety),
            "response_modalities": settings.modalities,
            "http_options": {"headers": settings.headers} if settings.headers else None,
        },
    )


def _wants_signatures(model: str) -> bool:
    """Return whether the model refuses calls without a signature, as Gemini 3 and later do."""
    match = re.search(r"gemini-(\d+)", model)
    return match is not None and int(match[1]) >= 3


def _contents(messages: Sequence[Message], server: str, *, unsigned: bool) -> list[dict[str, Any]]:
    """Build alternating turns; tool results are user turns. `unsigned`: mark foreign calls."""
    ids = call_ids(messages, server)
    out: list[dict[str, Any]] = []
    for message in showing(messages, server):
        role = "model" if isinstance(message, AssistantMessage) else "user"
        parts = list(_parts(message, ids, server))
        if not parts:
            continue
        if unsigned and role == "model":
            _excuse(parts)
        if out and out[-1]["role"] == role:
            out[-1]["parts"] += parts
        else:
            out.append({"role": role, "parts": parts})
    return out


def _parts(message: Message, ids: Callable[[str], str], server: str) -> Iterable[dict[str, Any]]:
    if isinstance(message, UserMessage):
        yield from map(_part, user_parts(message))
    elif isinstance(message, ToolMessage):
        word = "output" if message.outcome in ("ok", "answered") else "error"
        result: dict[str, Any] = {"name": call_name(message.name), "response": {word: message.text}}
        result["id"] = ids(message.call_id)
        if message.media:
            result["parts"] = [_part(part) for part in message.media]
        yield {"function_response": result}
    else:
        yield from _answer(message, ids, server)


def _answer(
    message: AssistantMessage, ids: Callable[[str], str], server: str
) -> Iterable[dict[str, Any]]:
    for part in message.parts:
        if isinstance(part, Text):
            yield {"text": part.text}
        elif isinstance(part, ToolCall):
            function = {"name": call_name(part.name), "args": dict(part.arguments)}
            yield {"function_call": {**function, "id": ids(part.id)}, **_signature(part, server)}
        elif isinstance(part, Image) and server in (part.meta or {}):
            if not message.partial:
                yield {**_part(part), **_signature(part, server)}
        elif message.partial or not isinstance(part, Reasoning):
            pass  # only for people to see
        elif is_object(run := own(part.meta, server).get("part")):
            record: dict[str, Any] = {name: run[name] for name in _RECORD if name in run}
            if record.keys() & {"executableCode", "codeExecutionResult"}:
                yield record
        elif signature := _signature(part, server):  # the thoughts themselves are not sent back
            yield {"text": "", **signature}


def _excuse(parts: list[dict[str, Any]]) -> None:
    """Add the marker with which Gemini accepts calls that it did not make."""
    calls = [part for part in parts if "function_call" in part]
    if calls and not any("thought_signature" in part for part in parts):
        calls[0]["thought_signature"] = _bytes("skip_thought_signature_validator")


def _signature(part: Reasoning | ToolCall | Image, server: str) -> dict[str, bytes]:
    signature = own(part.meta, server).get("signature")
    return {"thought_signature": _bytes(signature)} if isinstance(signature, str) else {}


def _bytes(text: str) -> bytes:
    """Decode base64 in either alphabet."""
    return b64decode(text.replace("-", "+").replace("_", "/"))


def _part(part: Text | Image | File) -> dict[str, Any]:
    if isinstance(part, Text):
        return {"text": part.text}
    if part.data is not None:
        return {"inline_data": {"mime_type": part.media_type, "data": part.data}}
    return {"file_data": {"mime_type": part.media_type, "file_uri": location(part, PROVIDER)}}
