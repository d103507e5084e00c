"""The streaming formats of model providers, as they are on the wire. Pure.

A turn of a script is written down once, as chunks; here it becomes the server-sent events in
which each provider would say it, with what belongs around it: ids, ends of parts, usage. The
formats are written after the providers' documents and SDKs, and are no recordings of them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, Literal, TypeAlias

from hookline import Usage
from hookline.models import Chunk, Finish, PartEndChunk, ReasoningChunk, TextChunk, ToolCallChunk

WireFormat: TypeAlias = Literal["openai", "openai-chat", "anthropic", "google"]
"""The providers whose wire can be spoken."""
Events: TypeAlias = Iterable[dict[str, Any]]

MODEL: Final = "wire-model"


def encoded(format: WireFormat, chunks: Sequence[Chunk]) -> list[bytes]:
    """The body of an answer, one piece per server-sent event."""
    pieces: list[bytes] = []
    for event in _FORMATS[format](chunks):
        name = f"event: {event['type']}\n" if format in ("openai", "anthropic") else ""
        pieces.append(f"{name}data: {json.dumps(event, ensure_ascii=False)}\n\n".encode())
    if format == "openai-chat" and any(isinstance(chunk, Finish) for chunk in chunks):
        pieces.append(b"data: [DONE]\n\n")
    return pieces


def error_body(format: WireFormat, status: int, code: str, message: str) -> dict[str, Any]:
    """The body with which a provider refuses a request."""
    if format == "anthropic":
        error = {"type": code, "message": message}
        return {"type": "error", "error": error, "request_id": "req_wire"}
    if format == "google":
        return {"error": {"code": status, "message": message, "status": code.upper()}}
    return {"error": {"message": message, "type": code, "param": None, "code": code}}


class _Parts:
    """Walks through chunks and tells where parts begin and end, as providers do."""

    def __init__(self, chunks: Sequence[Chunk]) -> None:
        self.finish = Finish(usage=Usage())
        self.whole = False
        self.steps: list[tuple[str, Any]] = []
        open_: str | None = None
        for chunk in chunks:
            kind = "text" if isinstance(chunk, TextChunk) else "reasoning"
            if isinstance(chunk, (TextChunk, ReasoningChunk)):
                if open_ != kind:
                    if open_ is not None:
                        self.steps.append((f"{open_} end", None))
                    self.steps.append((f"{kind} begin", None))
                    open_ = kind
                self.steps.append((kind, chunk.text))
                continue
            if isinstance(chunk, PartEndChunk):
                if open_ != chunk.part:
                    if open_ is not None:
                        self.steps.append((f"{open_} end", None))
                    self.steps.append((f"{chunk.part} begin", None))
                self.steps.append((f"{chunk.part} end", chunk.meta))
                open_ = None
                continue
            if open_ is not None:
                self.steps.append((f"{open_} end", None))
                open_ = None
            if isinstance(chunk, ToolCallChunk):
                self.steps.append(("call", chunk))
            else:
                self.finish, self.whole = chunk, True
        if open_ is not None and self.whole:
            self.steps.append((f"{open_} end", None))

    def calls(self) -> dict[int, list[ToolCallChunk]]:
        """The chunks of each call, in the order in which the calls began."""
        found: dict[int, list[ToolCallChunk]] = {}
        for kind, chunk in self.steps:
            if kind == "call":
                found.setdefault(chunk.index, []).append(chunk)
        return found


def _meta(meta: dict[str, Any] | None, provider: str) -> dict[str, Any]:
    found: dict[str, Any] = (meta or {}).get(provider) or {}
    return dict(found)


def _usage(finish: Finish) -> Usage:
    return finish.usage or Usage()


# ── OpenAI: Responses ───────────────────────────────────────────────────────────────────────


def _responses(chunks: Sequence[Chunk]) -> Events:
    for number, event in enumerate(_responses_events(_Parts(chunks))):
        yield {**event, "sequence_number": number}


def _responses_events(parts: _Parts) -> Events:
    response: dict[str, Any] = {"id": "resp_wire", "object": "response", "status": "in_progress"}
    response |= {"model": MODEL, "output": [], "usage": None, "error": None}
    yield {"type": "response.created", "response": response}
    yield {"type": "response.in_progress", "response": response}
    index = -1
    said: list[str] = []
    calls: dict[int, tuple[int, dict[str, Any]]] = {}
    for kind, value in parts.steps:
        if kind.endswith("begin"):
            index, said = index + 1, []
            yield from _responses_begin(kind, index)
        elif kind in ("text", "reasoning"):
            said.append(value)
            name = "output_text" if kind == "text" else "reasoning_summary_text"
            yield {"type": f"response.{name}.delta", **_place(kind, index), "delta": value}
        elif kind.endswith("end"):
            yield from _responses_end(kind, index, "".join(said), value)
        else:
            if value.index not in calls:
                index += 1
                item = {"id": f"fc_{index}", "type": "function_call", "status": "in_progress"}
                item |= {"call_id": value.id, "name": value.name, "arguments": ""}
                item |= _meta(value.meta, "openai")
                calls[value.index] = index, item
                yield {
                    "type": "response.output_item.added",
                    "output_index": index,
                    "item": dict(item),
                }
            at, item = calls[value.index]
            item["arguments"] += value.arguments
            if value.arguments:
                yield {
                    "type": "response.function_call_arguments.delta",
                    "item_id": item["id"],
                    "output_index": at,
                    "delta": value.arguments,
                }
    for at, item in calls.values():
        done = {"item_id": item["id"], "output_index": at, "arguments": item["arguments"]}
        yield {"type": "response.function_call_arguments.done", "name": item["name"], **done}
        item["status"] = "completed"
        yield {"type": "response.output_item.done", "output_index": at, "item": item}
    if parts.whole:
        yield _responses_finish(response, parts.finish)


def _place(kind: str, index: int) -> dict[str, Any]:
    text = kind.startswith("text")
    where = {"item_id": f"{'msg' if text else 'rs'}_{index}", "output_index": index}
    return {**where, "content_index" if text else "summary_index": 0}


def _responses_begin(kind: str, index: int) -> Events:
    item: dict[str, Any] = {"id": f"msg_{index}", "type": "message", "role": "assistant"}
    item |= {"status": "in_progress", "content": []}
    part: dict[str, Any] = {"type": "output_text", "text": "", "annotations": []}
    name = "content_part"
    if kind.startswith("reasoning"):
        item = {"id": f"rs_{index}", "type": "reasoning", "summary": []}
        name, part = "reasoning_summary_part", {"type": "summary_text", "text": ""}
    yield {"type": "response.output_item.added", "output_index": index, "item": item}
    yield {"type": f"response.{name}.added", **_place(kind, index), "part": part}


def _responses_end(kind: str, index: int, text: str, meta: Any) -> Events:
    place = _place(kind, index)
    if kind.startswith("text"):
        part: dict[str, Any] = {"type": "output_text", "text": text, "annotations": []}
        yield {"type": "response.output_text.done", **place, "text": text}
        yield {"type": "response.content_part.done", **place, "part": part}
        item: dict[str, Any] = {"id": f"msg_{index}", "type": "message", "role": "assistant"}
        item |= {"status": "completed", "content": [part]}
    else:
        part = {"type": "summary_text", "text": text}
        yield {"type": "response.reasoning_summary_text.done", **place, "text": text}
        yield {"type": "response.reasoning_summary_part.done", **place, "part": part}
        item = {"id": f"rs_{index}", "type": "reasoning", "summary": [part] if text else []}
        item |= _meta(meta, "openai")
    yield {"type": "response.output_item.done", "output_index": index, "item": item}


def _responses_finish(response: dict[str, Any], finish: Finish) -> dict[str, Any]:
    usage = _usage(finish)
    whole = finish.finish_reason in ("stop", "tool_calls")
    response = {**response, "status": "completed" if whole else "incomplete"}
    if not whole:
        reasons = {"length": "max_output_tokens", "refusal": "content_filter"}
        response["incomplete_details"] = {"reason": reasons.get(finish.finish_reason, "other")}
    response["usage"] = {
        "input_tokens": usage.input_tokens,
        "input_tokens_details": {
            "cached_tokens": usage.cache_read_tokens,
            "cache_write_tokens": usage.cache_write_tokens,
        },
        "output_tokens": usage.output_tokens,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
        "total_tokens": usage.total_tokens,
    }
    return {"type": f"response.{response['status']}", "response": response}


# ── OpenAI: Chat Completions ────────────────────────────────────────────────────────────────


def _chat(chunks: Sequence[Chunk]) -> Events:
    parts = _Parts(chunks)
    begun: set[int] = set()

    def chunk(delta: dict[str, Any], reason: str | None = None) -> dict[str, Any]:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}
        return {**head, "choices": [choice], "usage": None}

    head: dict[str, Any] = {"id": "chatcmpl-wire", "object": "chat.completion.chunk"}
    head |= {"created": 1_700_000_000, "model": MODEL}
    yield chunk({"role": "assistant", "content": ""})
    for kind, value in parts.steps:
        if kind == "text":
            yield chunk({"content": value})
        elif kind == "reasoning":
            yield chunk({"reasoning_content": value})
        elif kind == "call":
            call: dict[str, Any] = {"index": value.index}
            if value.index not in begun:
                begun.add(value.index)
                call |= {"id": value.id, "type": "function"}
                call["function"] = {"name": value.name, "arguments": value.arguments}
            else:
                call["function"] = {"arguments": value.arguments}
            yield chunk({"tool_calls": [call]})
    if not parts.whole:
        return
    reasons = {"refusal": "content_filter"}
    yield chunk({}, reasons.get(parts.finish.finish_reason, parts.finish.finish_reason))
    usage = _usage(parts.finish)
    yield {
        **head,
        "choices": [],
        "usage": {
            "prompt_tokens": usage.input_tokens,
            "completion_tokens": usage.output_tokens,
            "total_tokens": usage.total_tokens,
            "prompt_tokens_details": {
                "cached_tokens": usage.cache_read_tokens,
                "cache_write_tokens": usage.cache_write_tokens,
            },
            "completion_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
        },
    }


# ── Anthropic: Messages ─────────────────────────────────────────────────────────────────────


def _anthropic(chunks: Sequence[Chunk]) -> Events:
    parts = _Parts(chunks)
    usage = _usage(parts.finish)
    cached = usage.cache_read_tokens + usage.cache_write_tokens
    message: dict[str, Any] = {"id": "msg_wire", "type": "message", "role": "assistant"}
    message |= {"model": MODEL, "content": [], "stop_reason": None, "stop_sequence": None}
    message["usage"] = {
        "input_tokens": usage.input_tokens - cached,
        "cache_read_input_tokens": usage.cache_read_tokens,
        "cache_creation_input_tokens": usage.cache_write_tokens,
        "output_tokens": 1,
    }
    yield {"type": "message_start", "message": message}
    yield {"type": "ping"}
    yield from _anthropic_blocks(parts)
    if not parts.whole:
        return
    reasons = {"stop": "end_turn", "tool_calls": "tool_use", "length": "max_tokens"}
    reason = reasons.get(parts.finish.finish_reason, parts.finish.finish_reason)
    total: dict[str, Any] = {"output_tokens": usage.output_tokens}
    if usage.reasoning_tokens:
        total["output_tokens_details"] = {"thinking_tokens": usage.reasoning_tokens}
    words = {"pause": "pause_turn", "other": "a_new_reason"}
    delta = {"stop_reason": words.get(reason, reason), "stop_sequence": None}
    yield {"type": "message_delta", "delta": delta, "usage": total}
    yield {"type": "message_stop"}


def _anthropic_blocks(parts: _Parts) -> Iterator[dict[str, Any]]:
    index = -1
    calls: set[int] = set()

    def delta(**more: Any) -> dict[str, Any]:
        return {"type": "content_block_delta", "index": index, "delta": more}

    def start(**block: Any) -> dict[str, Any]:
        return {"type": "content_block_start", "index": index, "content_block": block}

    for place, (kind, value) in enumerate(parts.steps):
        if kind == "text begin":
            index += 1
            yield start(type="text", text="")
        elif kind == "reasoning begin":
            index += 1
            meta = _meta(_end_of(parts, place), "anthropic")
            if "data" in meta:
                yield start(type="redacted_thinking", data=meta["data"])
            else:
                yield start(type="thinking", thinking="", signature="")
        elif kind == "text":
            yield delta(type="text_delta", text=value)
        elif kind == "reasoning":
            yield delta(type="thinking_delta", thinking=value)
        elif kind.endswith("end"):
            signature = _meta(value, "anthropic").get("signature")
            if signature:
                yield delta(type="signature_delta", signature=signature)
            yield {"type": "content_block_stop", "index": index}
        elif value.index not in calls:
            calls.add(value.index)  # a block is whole before the next one begins
            index += 1
            yield start(type="tool_use", id=value.id, name=value.name, input={})
            for chunk in parts.calls()[value.index]:
                yield delta(type="input_json_delta", partial_json=chunk.arguments)
            yield {"type": "content_block_stop", "index": index}


def _end_of(parts: _Parts, place: int) -> Any:
    """The meta with which the part that begins here will end."""
    return next((value for kind, value in parts.steps[place:] if kind.endswith("end")), None)


# ── Google: Gemini ──────────────────────────────────────────────────────────────────────────


def _google(chunks: Sequence[Chunk]) -> Events:
    parts = _Parts(chunks)
    head = {"modelVersion": MODEL, "responseId": "gemini-wire"}

    def chunk(*content: dict[str, Any], **more: Any) -> dict[str, Any]:
        candidate = {"content": {"role": "model", "parts": list(content)}, "index": 0, **more}
        return {"candidates": [candidate], **head}

    calls: set[int] = set()
    for kind, value in parts.steps:
        if kind == "text":
            yield chunk({"text": value})
        elif kind == "reasoning":
            yield chunk({"text": value, "thought": True})
        elif kind.endswith("end") and (signature := _meta(value, "google").get("signature")):
            yield chunk({"text": "", "thoughtSignature": signature})
        elif kind == "call" and value.index not in calls:
            calls.add(value.index)  # calls come whole
            text = "".join(each.arguments for each in parts.calls()[value.index])
            call: dict[str, Any] = {"name": value.name, "args": json.loads(text or "{}")}
            if value.id:
                call["id"] = value.id
            part: dict[str, Any] = {"functionCall": call}
            meta = _meta(value.meta, "google")
            if "signature" in meta:
                part["thoughtSignature"] = meta["signature"]
            yield chunk(part)
    if not parts.whole:
        return
    usage = _usage(parts.finish)
    reasons = {"stop": "STOP", "tool_calls": "STOP", "length": "MAX_TOKENS", "refusal": "SAFETY"}
    last = chunk({"text": ""}, finishReason=reasons.get(parts.finish.finish_reason, "OTHER"))
    last["usageMetadata"] = {
        "promptTokenCount": usage.input_tokens,
        "cachedContentTokenCount": usage.cache_read_tokens,
        "candidatesTokenCount": usage.output_tokens - usage.reasoning_tokens,
        "thoughtsTokenCount": usage.reasoning_tokens,
        "totalTokenCount": usage.total_tokens,
    }
    yield last


_FORMATS: Final[dict[str, Callable[[Sequence[Chunk]], Events]]] = {
    "openai": _responses,
    "openai-chat": _chat,
    "anthropic": _anthropic,
    "google": _google,
}
