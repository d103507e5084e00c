"""The streaming formats of model providers, as sent over HTTP. Pure functions.

A turn of a script is written once, as chunks. This module converts it to the server-sent events
that each provider would send, with everything around it: ids, ends of parts, usage. The formats
follow the providers' documentation and SDKs; they are not recordings.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, Literal, TypeAlias

from hookline import Image, Source, Usage
from hookline.models import (
    Chunk,
    FileChunk,
    Finish,
    PartEndChunk,
    ReasoningChunk,
    SourceChunk,
    TextChunk,
    ToolCallChunk,
)

from .habits import changed, check_habits, framed

WireFormat: TypeAlias = Literal["openai", "openai-chat", "anthropic", "google"]
"""The providers whose formats are supported."""
Events: TypeAlias = Iterable[dict[str, Any]]

MODEL: Final = "wire-model"
CITES: Final = "sources"  # the key in the meta of a text for the sources that it cites


def encoded(format: WireFormat, chunks: Sequence[Chunk], habits: Sequence[str] = ()) -> list[bytes]:
    """Encode an answer as the body of a response, one piece per server-sent event.

    Raises ValueError for a part that the format cannot express, and for an unknown habit.
    """
    check_habits(format, habits)
    pieces: list[bytes] = []
    for event in changed(format, _FORMATS[format](chunks), habits):
        name = f"event: {event['type']}\n" if format in ("openai", "anthropic") else ""
        pieces.append(f"{name}data: {json.dumps(event, ensure_ascii=False)}\n\n".encode())
    if format == "openai-chat" and any(isinstance(chunk, Finish) for chunk in chunks):
        pieces.append(b"data: [DONE]\n\n")
    return framed(pieces, habits)


def error_body(format: WireFormat, status: int, code: str, message: str) -> dict[str, Any]:
    """The body of a provider's error response."""
    if format == "anthropic":
        error = {"type": code, "message": message}
        return {"type": "error", "error": error, "request_id": "req_wire"}
    if format == "google":
        return {"error": {"code": status, "message": message, "status": code.upper()}}
    return {"error": {"message": message, "type": code, "param": None, "code": code}}


class _Parts:
    """Splits chunks into steps, and determines where parts begin and end, as providers do."""

    def __init__(self, chunks: Sequence[Chunk]) -> None:
        self.finish = Finish(usage=Usage())
        self.whole = False
        self.steps: list[tuple[str, Any]] = []
        self.sources: list[Source] = []
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
            elif isinstance(chunk, SourceChunk):
                self._source(chunk.source)
            elif isinstance(chunk, FileChunk):
                self.steps.append(("file", chunk.file))
            else:
                self.finish, self.whole = chunk, True
        if open_ is not None and self.whole:
            self.steps.append((f"{open_} end", None))

    def _source(self, source: Source) -> None:
        """Add a source; after a text, it counts as a source that the text cites."""
        self.sources.append(source)
        if self.steps and self.steps[-1][0] == "text end":
            meta: dict[str, Any] = self.steps[-1][1] or {}
            self.steps[-1] = ("text end", {**meta, CITES: [*meta.get(CITES, ()), source]})
        else:
            self.steps.append(("source", source))

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


def _cites(meta: dict[str, Any] | None) -> Sequence[Source]:
    found: Sequence[Source] = (meta or {}).get(CITES) or ()
    return found


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
        elif kind in ("source", "file"):
            index += 1
            item = _responses_record(kind, index, value)
            yield {"type": "response.output_item.done", "output_index": index, "item": item}
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


def _responses_record(kind: str, index: int, part: Any) -> dict[str, Any]:
    """The item for the result of a provider's own tool."""
    if isinstance(part, Source) and part.url is not None:
        action = {"type": "search", "query": "", "sources": [{"type": "url", "url": part.url}]}
        head = {"id": f"ws_{index}", "type": "web_search_call", "status": "completed"}
        return {**head, "action": action}
    if isinstance(part, Source):
        head = {"id": f"fs_{index}", "type": "file_search_call", "status": "completed"}
        return {**head, "queries": [], "results": [{"file_id": "f", "filename": part.name}]}
    if isinstance(part, Image) and part.data is not None:
        head = {"id": f"ig_{index}", "type": "image_generation_call", "status": "completed"}
        form = {"output_format": part.media_type.removeprefix("image/")}
        return {**head, **form, "result": b64encode(part.data).decode()}
    raise _unsaid("openai", part)


def _unsaid(format: str, part: object) -> ValueError:
    """Make the error for a part that a format cannot express."""
    return ValueError(f"the format {format!r} cannot express {part!r:.100}; leave it out")


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
    record = _meta(meta, "openai").get("item")
    if record is not None:  # the result of a provider's own tool
        yield {"type": "response.output_item.done", "output_index": index, "item": record}
        return
    if kind.startswith("text"):
        notes = [*_meta(meta, "openai").get("annotations", ()), *_cited(meta, len(text))]
        part: dict[str, Any] = {"type": "output_text", "text": text, "annotations": notes}
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


def _cited(meta: Any, length: int) -> list[dict[str, Any]]:
    """Sources as OpenAI's annotations."""
    place = {"start_index": 0, "end_index": length}
    return [
        {"type": "url_citation", "url": source.url, "title": source.title or "", **place}
        if source.url is not None
        else {"type": "file_citation", "file_id": "f", "filename": source.name, "index": 0}
        for source in _cites(meta)
    ]


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
        said = _chat_said(kind, value)
        if said is not None:
            yield chunk(said)
        elif kind == "call":
            call: dict[str, Any] = {"index": value.index}
            if value.index not in begun:
                begun.add(value.index)
                call |= {"id": value.id, "type": "function"}
                call["function"] = {"name": value.name, "arguments": value.arguments}
            else:
                call["function"] = {"arguments": value.arguments}
            yield chunk({"tool_calls": [call]})
    found = [{"url": each.url, "title": each.title} for each in parts.sources if each.url]
    if any(kind == "source" for kind, _ in parts.steps):
        yield {**chunk({}), "search_results": found}
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


def _chat_said(kind: str, value: Any) -> dict[str, Any] | None:
    """The delta for a value that is not a call; None if it is sent in another way."""
    if kind == "text":
        return {"content": value}
    if kind == "reasoning":
        return {"reasoning_content": value}
    if kind == "file":
        return _chat_file(value)
    kept = _meta(value, "openai-chat") if kind.endswith("end") else {}
    if kind == "text end" and value:
        notes = [{"type": note["type"], note["type"]: note} for note in _cited(value, 0)]
        return {"annotations": [*kept.get("annotations", ()), *notes]}
    return {"reasoning_details": kept["details"]} if kept.get("details") else None


def _chat_file(part: Any) -> dict[str, Any]:
    if part.data is not None and part.media_type.startswith("audio/"):
        return {"audio": {"id": "audio_wire", "data": b64encode(part.data).decode()}}
    if not isinstance(part, Image):
        raise _unsaid("openai-chat", part)
    url = part.url
    if part.data is not None:
        url = f"data:{part.media_type};base64,{b64encode(part.data).decode()}"
    return {"images": [{"type": "image_url", "image_url": {"url": url}}]}


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
            if "block" in meta:
                yield {
                    "type": "content_block_start",
                    "index": index,
                    "content_block": meta["block"],
                }
            elif "data" in meta:
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
            for citation in _anthropic_citations(value):
                yield delta(type="citations_delta", citation=citation)
            yield {"type": "content_block_stop", "index": index}
        elif kind in ("source", "file"):
            index += 1
            yield start(**_anthropic_record(value, index))
            yield {"type": "content_block_stop", "index": index}
        elif value.index not in calls:
            calls.add(value.index)  # a block is complete before the next one begins
            index += 1
            yield start(type="tool_use", id=value.id, name=value.name, input={})
            for chunk in parts.calls()[value.index]:
                yield delta(type="input_json_delta", partial_json=chunk.arguments)
            yield {"type": "content_block_stop", "index": index}


def _anthropic_citations(meta: Any) -> list[dict[str, Any]]:
    found = [
        {"type": "web_search_result_location", "url": source.url, "title": source.title}
        if source.url is not None
        else {"type": "page_location", "document_index": 0, "document_title": source.title}
        for source in _cites(meta)
    ]
    return [*_meta(meta, "anthropic").get("citations", ()), *found]


def _anthropic_record(part: Any, index: int) -> dict[str, Any]:
    """The block for the result of a provider's own tool."""
    if isinstance(part, Source) and part.url is not None:
        page = {"type": "web_search_result", "url": part.url, "title": part.title}
        head = {"type": "web_search_tool_result", "tool_use_id": f"srvtoolu_{index}"}
        return {**head, "content": [{**page, "encrypted_content": "c2VhbGVk"}]}
    id = None if isinstance(part, Source) else _meta(part.meta, "anthropic").get("file_id")
    if id is None:
        raise _unsaid("anthropic", part)
    output = {"type": "bash_code_execution_output", "file_id": id}
    result = {"type": "bash_code_execution_result", "stdout": "", "stderr": "", "return_code": 0}
    head = {"type": "bash_code_execution_tool_result", "tool_use_id": f"srvtoolu_{index}"}
    return {**head, "content": {**result, "content": [output]}}


def _end_of(parts: _Parts, place: int) -> Any:
    """The meta at the end of the part that begins here."""
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
        if kind == "call":
            if value.index not in calls:
                calls.add(value.index)  # calls are sent whole
                yield chunk(_google_call(value, parts.calls()[value.index]))
        elif part := _google_part(kind, value):
            yield chunk(part)
    if not parts.whole:
        return
    usage = _usage(parts.finish)
    reasons = {"stop": "STOP", "tool_calls": "STOP", "length": "MAX_TOKENS", "refusal": "SAFETY"}
    last = chunk({"text": ""}, finishReason=reasons.get(parts.finish.finish_reason, "OTHER"))
    grounding = [
        {"web": {"uri": each.url, "title": each.title}}
        if each.url is not None
        else {"retrievedContext": {"title": each.title}}
        for each in parts.sources
    ]
    if grounding:
        last["candidates"][0]["groundingMetadata"] = {"groundingChunks": grounding}
    last["usageMetadata"] = {
        "promptTokenCount": usage.input_tokens,
        "cachedContentTokenCount": usage.cache_read_tokens,
        "candidatesTokenCount": usage.output_tokens - usage.reasoning_tokens,
        "thoughtsTokenCount": usage.reasoning_tokens,
        "totalTokenCount": usage.total_tokens,
    }
    yield last


def _google_part(kind: str, value: Any) -> dict[str, Any] | None:
    """The part for a value that is not a call; None if there is none."""
    if kind == "text":
        return {"text": value}
    if kind == "reasoning":
        return {"text": value, "thought": True}
    if kind == "file":
        return _google_file(value)
    kept = _meta(value, "google") if kind.endswith("end") else {}
    if "part" in kept:  # a part about code that the provider ran
        return dict(kept["part"])
    return {"text": "", "thoughtSignature": kept["signature"]} if "signature" in kept else None


def _google_call(first: ToolCallChunk, chunks: Sequence[ToolCallChunk]) -> dict[str, Any]:
    text = "".join(each.arguments for each in chunks)
    call: dict[str, Any] = {"name": first.name, "args": json.loads(text or "{}")}
    if first.id:
        call["id"] = first.id
    meta = _meta(first.meta, "google")
    signed = {"thoughtSignature": meta["signature"]} if "signature" in meta else {}
    return {"functionCall": call, **signed}


def _google_file(part: Any) -> dict[str, Any]:
    if part.data is not None:
        data = b64encode(part.data).decode()
        out: dict[str, Any] = {"inlineData": {"mimeType": part.media_type, "data": data}}
    elif part.url is not None:
        out = {"fileData": {"mimeType": part.media_type, "fileUri": part.url}}
    else:
        raise _unsaid("google", part)
    signature = _meta(part.meta, "google").get("signature")
    return {**out, "thoughtSignature": signature} if signature else out


_FORMATS: Final[dict[str, Callable[[Sequence[Chunk]], Events]]] = {
    "openai": _responses,
    "openai-chat": _chat,
    "anthropic": _anthropic,
    "google": _google,
}
