"""Convert the events of OpenAI's Responses API to chunks. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, ClassVar, Final

from hookline import Usage
from hookline.models import (
    Chunk,
    FileChunk,
    Finish,
    FinishReason,
    PartEndChunk,
    ReasoningChunk,
    TextChunk,
    ToolCallChunk,
)
from hookline.providers._adapter.errors.failures import Exchange
from hookline.providers._adapter.ids import own_id
from hookline.providers._adapter.json_fields import (
    count,
    index_in,
    is_list,
    is_object,
    json_text,
    list_in,
    text_in,
)
from hookline.providers._adapter.response_files import Attachments, decoded, media_part, pictured
from hookline.providers.openai._request import PROVIDER

_CUT: Final[dict[str, FinishReason]] = {"max_output_tokens": "length", "content_filter": "refusal"}


class ResponsesReader:
    """Reads one response of the Responses API, event by event."""

    def __init__(self, exchange: Exchange | None = None) -> None:
        self.done = False
        self._exchange = exchange or Exchange(PROVIDER)
        self._reason: FinishReason = "stop"
        self._response: dict[str, Any] = {}
        self._calls: dict[int, int] = {}  # by output index: the characters of arguments received
        self._texts: set[tuple[object, object]] = set()  # the text parts that arrived as deltas
        self._thoughts: set[object] = set()  # the reasoning items with shown text
        self._messages: list[dict[str, Any]] = []
        self._logprobs: list[Any] = []
        self._has_refusal = False
        self._attachments = Attachments()

    def take(self, event: Any, /) -> Iterable[Chunk]:
        if event is None or self.done:
            return ()
        kind = event.get("type") if is_object(event) else None
        if not isinstance(kind, str):
            raise self._exchange.unstreamed(event)
        if kind in ("response.output_text.delta", "response.refusal.delta"):
            return self._text(event, "delta")
        if kind == "response.function_call_arguments.delta":
            return self._arguments(event, text_in(event, "delta"))
        if kind in ("response.reasoning_summary_text.delta", "response.reasoning_text.delta"):
            self._thoughts.add(event["output_index"])
            return (ReasoningChunk(text_in(event, "delta")),)
        take = self._takes.get(kind)
        return take(self, event) if take is not None else ()

    def end(self) -> Iterable[Chunk]:
        if not self.done:
            raise self._exchange.cut_off()
        response = self._response
        meta: dict[str, Any] = {"messages": self._messages} if self._messages else {}
        if self._logprobs:
            meta["logprobs"] = self._logprobs
        yield Finish(
            finish_reason=self._reason,
            usage=usage_of(response.get("usage")),
            model=text_in(response, "model") or None,
            response_id=text_in(response, "id") or None,
            meta=self._exchange.meta(meta),
        )

    def _text(self, event: dict[str, Any], field: str) -> Iterable[Chunk]:
        self._texts.add((event.get("output_index"), event.get("content_index")))
        if is_list(event.get("logprobs")):
            self._logprobs += event["logprobs"]
        self._has_refusal = self._has_refusal or event["type"].startswith("response.refusal")
        return (TextChunk(text_in(event, field)),)

    def _whole_text(self, event: dict[str, Any]) -> Iterable[Chunk]:
        if (event.get("output_index"), event.get("content_index")) in self._texts:
            return ()
        return self._text(event, "refusal" if "refusal" in event["type"] else "text")

    def _arguments(self, event: dict[str, Any], more: str) -> Iterable[Chunk]:
        index = index_in(event, "output_index")
        self._calls[index] += len(more)
        return (ToolCallChunk(index=index, arguments=more),)

    def _whole_arguments(self, event: dict[str, Any]) -> Iterable[Chunk]:
        index = index_in(event, "output_index")
        if self._calls[index]:
            return ()
        return self._arguments(event, text_in(event, "arguments"))

    def _new_summary(self, event: dict[str, Any]) -> Iterable[Chunk]:
        """Begin a new summary: the summaries of one reasoning item are paragraphs of one text."""
        return (ReasoningChunk("\n\n"),) if event["output_index"] in self._thoughts else ()

    def _item_added(self, event: dict[str, Any]) -> Iterable[Chunk]:
        item = event["item"]
        if item["type"] != "function_call":
            return ()
        return self._new_call(index_in(event, "output_index"), item)

    def _new_call(self, index: int, item: dict[str, Any]) -> Iterable[Chunk]:
        self._calls.setdefault(index, 0)
        id, call_id = text_in(item, "id"), text_in(item, "call_id")
        own = {**({"id": id} if id else {}), **own_id(call_id)}
        meta = self._exchange.meta(own)
        return (
            ToolCallChunk(index=index, id=call_id or None, name=text_in(item, "name"), meta=meta),
        )

    def _item_done(self, event: dict[str, Any]) -> Iterable[Chunk]:
        item, index = event["item"], index_in(event, "output_index")
        kind = item["type"]
        if kind == "message":
            return self._message_done(item, index)
        if kind == "function_call":
            return self._call_done(event, item, index)
        if kind == "reasoning":
            return self._reasoning_done(item, index)
        return self._record(kind, item)

    def _reasoning_done(self, item: dict[str, Any], index: int) -> Iterable[Chunk]:
        texts = [text_in(entry, "text") for entry in list_in(item, "summary")]
        if any(texts) and index not in self._thoughts:
            yield ReasoningChunk("\n\n".join(texts))
        sealed = text_in(item, "encrypted_content")
        own = {"id": text_in(item, "id"), "encrypted_content": sealed} if sealed else None
        yield PartEndChunk("reasoning", self._exchange.meta(own))

    def _record(self, kind: str, item: dict[str, Any]) -> Iterable[Chunk]:
        """Keep the record of a provider's tool, to send it back whole and in its place."""
        record = {name: value for name, value in item.items() if value is not None}
        picture = record.pop("result", None) if kind == "image_generation_call" else None
        json_text(record)  # raises if no store could keep it
        if isinstance(picture, str):  # the bytes are kept once, in the image, not in its record
            made_as = f"image/{text_in(item, 'output_format') or 'png'}"
            yield FileChunk(
                media_part(made_as, decoded(picture), self._exchange.meta({"item": record}))
            )
            return
        yield PartEndChunk("reasoning", self._exchange.meta({"item": record}))
        action = item.get("action")
        if kind == "web_search_call" and is_object(action):
            for page in (*list_in(action, "sources"), action):
                yield from self._attachments.source(page, title="")
        elif kind == "file_search_call":
            for value in list_in(item, "results"):
                yield from self._attachments.source(value, url="", title="", name="filename")
        elif kind == "code_interpreter_call":
            for value in list_in(item, "outputs"):
                yield from pictured(value.get("url") if is_object(value) else None)

    def _message_done(self, item: dict[str, Any], index: int) -> Iterable[Chunk]:
        if not any(place in (index, None) for place, _ in self._texts):  # the item came whole
            for part in list_in(item, "content"):
                if is_object(part) and part.get("type") in ("output_text", "refusal"):
                    whole = {**part, "type": f"response.{part['type']}", "output_index": index}
                    yield from self._text(whole, "text" if "text" in part else "refusal")
        own = {name: text_in(item, name) for name in ("id", "phase") if item.get(name)}
        if own.get("id"):
            self._messages.append(own)
        notes = [
            note
            for content in item.get("content") or ()
            for note in list_in(content, "annotations")
        ]
        yield PartEndChunk("text", self._exchange.meta({"annotations": notes} if notes else {}))
        for note in notes:
            yield from self._annotation(note)

    def _annotation(self, note: Any) -> Iterable[Chunk]:
        """Return the source that a text cites, or the file that it mentions."""
        kind = note.get("type") if is_object(note) else None
        if kind == "url_citation":
            return self._attachments.source(note)
        if kind == "file_citation":
            return self._attachments.source(note, url="", title="", name="filename")
        if kind == "container_file_citation":
            where = {name: note.get(name) for name in ("container_id", "file_id")}
            id, name = note.get("file_id"), note.get("filename")
            return self._attachments.stored_file(self._exchange.meta(where), id=id, name=name)
        return ()

    def _call_done(
        self, event: dict[str, Any], item: dict[str, Any], index: int
    ) -> Iterable[Chunk]:
        if index not in self._calls:
            yield from self._new_call(index, item)
        if not self._calls[index]:
            yield from self._arguments(event, text_in(item, "arguments"))

    def _finish(self, event: dict[str, Any]) -> Iterable[Chunk]:
        response = self._response = event["response"]
        self.done = True
        if event["type"] == "response.incomplete":
            details = response.get("incomplete_details")
            why = details.get("reason") if is_object(details) else None
            self._reason = _CUT.get(str(why), "other")
        elif self._calls:
            self._reason = "tool_calls"
        elif self._has_refusal:
            self._reason = "refusal"
        return ()

    def _failed(self, event: dict[str, Any]) -> Iterable[Chunk]:
        raise self._exchange.error((event.get("response") or event).get("error") or event)

    _takes: ClassVar[dict[str, Callable[[Any, dict[str, Any]], Iterable[Chunk]]]] = {
        "response.output_text.done": _whole_text,
        "response.refusal.done": _whole_text,
        "response.function_call_arguments.done": _whole_arguments,
        "response.reasoning_summary_part.added": _new_summary,
        "response.output_item.added": _item_added,
        "response.output_item.done": _item_done,
        "response.completed": _finish,
        "response.incomplete": _finish,
        "response.failed": _failed,
        "error": _failed,
    }


def usage_of(usage: object) -> Usage | None:
    """Read the usage, if present."""
    if not is_object(usage):
        return None
    return Usage(
        input_tokens=count(usage, "input_tokens"),
        output_tokens=count(usage, "output_tokens"),
        cache_read_tokens=count(usage, "input_tokens_details", "cached_tokens"),
        cache_write_tokens=count(usage, "input_tokens_details", "cache_write_tokens"),
        reasoning_tokens=count(usage, "output_tokens_details", "reasoning_tokens"),
    )
