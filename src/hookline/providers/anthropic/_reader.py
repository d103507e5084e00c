"""Convert the events of Anthropic's Messages API to chunks. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, ClassVar, Final

from hookline import Usage
from hookline.models import (
    Chunk,
    Finish,
    FinishReason,
    PartEndChunk,
    ReasoningChunk,
    TextChunk,
    ToolCallChunk,
)
from hookline.providers._adapter.errors.failures import Exchange, is_error
from hookline.providers._adapter.ids import own_id
from hookline.providers._adapter.json_fields import (
    count,
    index_in,
    is_list,
    is_object,
    json_text,
    text_in,
)
from hookline.providers._adapter.response_files import Attachments
from hookline.providers._adapter.streaming import parse_json
from hookline.providers.anthropic._request import PROVIDER

_REASONS: Final[dict[str, FinishReason]] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "tool_use": "tool_calls",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "pause_turn": "pause",
    "refusal": "refusal",
}


class MessagesReader:
    """Reads one response of the Messages API, event by event."""

    def __init__(self, exchange: Exchange | None = None) -> None:
        self.done = False
        self._exchange = exchange or Exchange(PROVIDER)
        self._reason: FinishReason | None = None
        self._usage: dict[str, Any] = {}
        self._model: str | None = None
        self._id: str | None = None
        self._details: dict[str, Any] | None = None  # why the response was refused
        self._kinds: dict[int, str] = {}  # the kind of each block
        self._meta: dict[int, dict[str, Any]] = {}  # the meta of each thinking block
        self._calls: dict[int, int] = {}  # the characters received for each tool_use block
        self._blocks: dict[int, dict[str, Any]] = {}  # the blocks of tools that the provider runs
        self._typed: dict[int, str] = {}  # the JSON of their inputs
        self._citations: dict[int, list[Any]] = {}  # the citations of each text block
        self._attachments = Attachments()
        self._torn: ValueError | None = None  # the input of a provider's tool was not whole JSON
        self._inputs: dict[int, Any] = {}  # non-empty inputs at the start of a block

    def take(self, event: Any, /) -> Iterable[Chunk]:
        if event is None or self.done:
            return ()
        kind = event.get("type") if is_object(event) else None
        if is_error(event):
            raise self._exchange.error(event)
        if kind == "message" or not isinstance(kind, str):
            raise self._exchange.unstreamed(event)
        take = self._takes.get(kind)
        return take(self, event) if take is not None else ()

    def end(self) -> Iterable[Chunk]:
        if not self.done or self._reason is None:
            raise self._exchange.cut_off()
        if self._torn is not None and self._reason != "length":
            raise self._torn
        yield Finish(
            finish_reason=self._reason,
            usage=usage_of(self._usage),
            model=self._model,
            response_id=self._id,
            meta=self._exchange.meta({"stop_details": self._details} if self._details else {}),
        )

    def _start(self, event: dict[str, Any]) -> Iterable[Chunk]:
        message = event["message"]
        self._model = text_in(message, "model") or None
        self._id = text_in(message, "id") or None
        self._add_usage(message)
        return ()

    def _block_start(self, event: dict[str, Any]) -> Iterable[Chunk]:
        index, block = index_in(event), event["content_block"]
        kind = self._kinds[index] = block["type"]
        if kind == "text" and block.get("text"):
            yield TextChunk(text_in(block, "text"))
        elif kind == "thinking":
            self._meta[index] = {"signature": text_in(block, "signature")}
            if block.get("thinking"):
                yield ReasoningChunk(text_in(block, "thinking"))
        elif kind == "redacted_thinking":
            self._meta[index] = {"data": text_in(block, "data")}
        elif kind == "tool_use":
            self._calls.setdefault(index, 0)
            self._inputs[index] = block.get("input")
            id = text_in(block, "id")
            meta = self._exchange.meta(own_id(id))
            yield ToolCallChunk(index=index, id=id or None, name=text_in(block, "name"), meta=meta)
        elif kind != "text":
            self._blocks[index] = block
            self._typed[index] = ""

    def _block_delta(self, event: dict[str, Any]) -> Iterable[Chunk]:
        index, delta = index_in(event), event["delta"]
        kind = delta["type"]
        if kind == "text_delta":
            return (TextChunk(text_in(delta, "text")),)
        if kind == "input_json_delta":
            more = text_in(delta, "partial_json")
            if self._kinds[index] != "tool_use":
                self._typed[index] += more
                return ()  # the block belongs to a tool that the provider runs
            self._calls[index] += len(more)
            return (ToolCallChunk(index=index, arguments=more),)
        if kind == "thinking_delta":
            return (ReasoningChunk(text_in(delta, "thinking")),)
        if kind == "citations_delta" and is_object(delta.get("citation")):
            self._citations.setdefault(index, []).append(delta["citation"])
        elif kind == "signature_delta":
            meta = self._meta[index]
            meta["signature"] = meta.get("signature", "") + text_in(delta, "signature")
        return ()

    def _block_stop(self, event: dict[str, Any]) -> Iterable[Chunk]:
        index = index_in(event)
        kind = self._kinds.get(index)
        if kind == "text":
            cited = self._citations.get(index)
            yield PartEndChunk("text", self._exchange.meta({"citations": cited} if cited else {}))
            for value in cited or ():
                yield from self._cited(value)
        elif index in self._blocks:
            yield from self._record(index)
            yield from self._tool_content(self._blocks[index].get("content"))
        elif kind in ("thinking", "redacted_thinking"):
            meta = {name: value for name, value in self._meta[index].items() if value}
            yield PartEndChunk("reasoning", self._exchange.meta(meta))
        elif kind == "tool_use" and not self._calls[index] and self._inputs.get(index):
            yield ToolCallChunk(index=index, arguments=json_text(self._inputs[index]))

    def _record(self, index: int) -> Iterable[Chunk]:
        """Keep a block of a provider's tool, to be sent back: as a part without text."""
        block = {name: value for name, value in self._blocks[index].items() if value is not None}
        if self._typed[index]:
            try:
                block["input"] = parse_json(self._typed[index].encode())
            except ValueError as exc:
                self._torn = exc  # only an answer that became too long may end like this
                return
        json_text(block)  # raises if no store could keep it
        yield PartEndChunk("reasoning", self._exchange.meta({"block": block}))

    def _cited(self, citation: dict[str, Any]) -> Iterable[Chunk]:
        """Return the web page or user document that a text cites."""
        if citation.get("type") == "search_result_location":
            where = citation.get("source")
            of_the_web = isinstance(where, str) and where.startswith(("https://", "http://"))
            return self._attachments.source(citation, url="source" if of_the_web else "")
        title = "title" if citation.get("url") else "document_title"
        return self._attachments.source(citation, title=title)

    def _tool_content(self, content: Any) -> Iterable[Chunk]:
        """Return the pages that a tool found or read, and the files that its code created."""
        if is_list(content):
            for item in content:
                yield from self._attachments.source(item)
        elif is_object(content):
            page = content.get("content")
            if content.get("type") == "web_fetch_result":
                title = page.get("title") if is_object(page) else None
                yield from self._attachments.source({**content, "title": title})
            for item in page if is_list(page) else ():
                if is_object(item) and item.get("file_id"):
                    id = item["file_id"]
                    yield from self._attachments.stored_file(
                        self._exchange.meta({"file_id": id}), id=id
                    )

    def _delta(self, event: dict[str, Any]) -> Iterable[Chunk]:
        reason = text_in(event["delta"], "stop_reason")
        if reason:
            self._reason = _REASONS.get(reason, "other")
        if is_object(event["delta"].get("stop_details")):
            self._details = event["delta"]["stop_details"]
        self._add_usage(event)
        return ()

    def _stop(self, event: dict[str, Any]) -> Iterable[Chunk]:
        self.done = True
        return ()

    def _add_usage(self, event: dict[str, Any]) -> None:
        """Update the usage. Counts are totals, so a later count replaces an earlier one."""
        usage = event.get("usage")
        if is_object(usage):
            self._usage.update({name: value for name, value in usage.items() if value is not None})

    _takes: ClassVar[dict[str, Callable[[Any, dict[str, Any]], Iterable[Chunk]]]] = {
        "message_start": _start,
        "content_block_start": _block_start,
        "content_block_delta": _block_delta,
        "content_block_stop": _block_stop,
        "message_delta": _delta,
        "message_stop": _stop,
    }


def usage_of(usage: dict[str, Any]) -> Usage | None:
    """Read the usage, if present. Anthropic does not count cached tokens as input tokens."""
    if not usage:
        return None
    read = count(usage, "cache_read_input_tokens")
    write = count(usage, "cache_creation_input_tokens")
    return Usage(
        input_tokens=count(usage, "input_tokens") + read + write,
        output_tokens=count(usage, "output_tokens"),
        cache_read_tokens=read,
        cache_write_tokens=write,
        reasoning_tokens=count(usage, "output_tokens_details", "thinking_tokens"),
    )
