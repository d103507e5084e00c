"""Content as attributes: recorded only on request, redacted, and cut to a size.

Every text goes through `Content`, including the keys and numbers of arguments. The user's `redact`
sees the whole text before it is cut, so a cut cannot hide a secret from it. If `redact` raises, the
text is not recorded. A cut shortens texts and leaves out items; JSON stays valid JSON.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, Final, Literal, TypeGuard, cast

import msgspec

from hookline import (
    AssistantMessage,
    File,
    Image,
    Message,
    Reasoning,
    Source,
    Text,
    Tool,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from hookline.models import FinishReason
from hookline.otel._conventions.names import FINISHED, whole
from hookline.otel._emit.own_failures import report

Capture = Literal["no_content", "span_only", "event_only", "span_and_event"]
"""Where content may be recorded."""
CAPTURES: Final = ("no_content", "span_only", "event_only", "span_and_event")
Redact = Callable[[str], str]
"""Receives each text before it is recorded, and returns the text to record."""
Part = dict[str, Any]

FAILED: Final = "[redaction failed]"
DEEP: Final = "[too deep]"
DEPTH: Final = 64
LARGEST: Final = 2**63 - 1  # a larger integer would lose its whole attribute
ATTRIBUTE: Final = 65_536


class Content:
    """Converts content to attributes; `spans` and `events` tell where content is recorded."""

    def __init__(
        self, capture: Capture, redact: Redact | None, size: int, most: int = ATTRIBUTE
    ) -> None:
        self.spans = capture in ("span_only", "span_and_event")
        self.events = capture in ("event_only", "span_and_event")
        self._redact = redact
        self._size = size
        self._most = most  # the most bytes of an attribute

    # ── texts and JSON ──────────────────────────────────────────────────────────────────────

    def text(self, text: str) -> str:
        """Convert a single text."""
        fitting: str = self._fitting(lambda size: self._cut(text, [size]))
        return fitting

    def error_text(self, exc: BaseException | None) -> str | None:
        """Return the text of an exception, if spans may contain it."""
        return self.text(text_of(exc)) if self.spans and exc is not None else None

    def word(self, text: str) -> str:
        """Convert a name, an id or a description: recorded even if content is not."""
        if self._redact is None and text.isascii() and len(text) * 5 <= self._most:
            return text
        return self._cut(text, [self._most // 5])

    def data(self, value: Any) -> Any:
        """Convert JSON data: an object of arguments, or a result."""
        return self._fitting(lambda size: self._data(value, [size], 0))

    def own(self, value: Any) -> Any:
        """Convert a value of the application's own attributes."""
        return self._data(value, [self._most // 5], 0)

    def bounded(self, parts: list[Part]) -> tuple[list[Part], int]:
        """Return the last parts that fit into an attribute, and the number of parts left out."""
        room = self._most - 2
        for count, part in enumerate(reversed(parts)):
            room -= len(as_json(part).encode()) + 1
            if room < 0:
                return parts[len(parts) - count :], len(parts) - count
        return parts, 0

    def _fitting(self, write: Callable[[int], Any]) -> Any:
        """Call `write` with smaller sizes until the result fits into an attribute."""
        size = min(self._size, self._most)
        while True:
            value = write(size)
            if len(as_json(value).encode()) <= self._most - 2 or size <= 1:
                return value
            size //= 4

    def _clean(self, text: str) -> str:
        if self._redact is not None:
            try:
                text = self._redact(text)
            except Exception as exc:
                report("redact= raised, so the text was left out", exc)
                return FAILED
            if not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance]
                return FAILED
        return whole(text)

    def _cut(self, text: str, room: list[int]) -> str:
        text = self._clean(text)
        size = max(room[0], 0)
        room[0] = size - len(text)
        if room[0] >= 0:
            return text
        room[0] = 0
        return f"{text[:size]}… [{len(text) - size} characters more]"

    def _data(self, value: Any, room: list[int], depth: int) -> Any:
        if isinstance(value, str):
            return self._cut(value, room)
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, (int, float)):
            return self._number(value)
        if depth > DEPTH:
            return DEEP
        if _is_object(value):
            return self._object(value, room, depth)
        if isinstance(value, (list, tuple)):
            return self._array(cast("Sequence[Any]", value), room, depth)
        return self._cut(str(value), room)

    def _number(self, value: float) -> float | str:
        if self._redact is None and -LARGEST <= value <= LARGEST:
            return value
        text = str(value)
        clean = self._clean(text)
        return value if clean == text and not abs(value) > LARGEST else clean

    def _object(self, value: dict[Any, Any], room: list[int], depth: int) -> dict[str, Any]:
        out: dict[str, Any] = {}
        for count, (key, item) in enumerate(value.items()):
            if room[0] <= 0:
                out["…"] = f"{len(value) - count} more"
                break
            room[0] -= 4
            out[self._cut(str(key), room)] = self._data(item, room, depth + 1)
        return out

    def _array(self, value: Sequence[Any], room: list[int], depth: int) -> list[Any]:
        out: list[Any] = []
        for count, item in enumerate(value):
            if room[0] <= 0:
                out.append(f"… {len(value) - count} more")
                break
            room[0] -= 4
            out.append(self._data(item, room, depth + 1))
        return out

    # ── messages ────────────────────────────────────────────────────────────────────────────

    def system(self, text: str) -> list[Part]:
        """Convert the system text."""
        return [self._fitting(lambda size: {"type": "text", "content": self._cut(text, [size])})]

    def messages(self, messages: Iterable[Message]) -> list[Part]:
        """Convert messages, in the order of the request."""
        return [self._fitting(partial(self._message, message)) for message in messages]

    def answer(self, parts: Sequence[object], finish_reason: FinishReason) -> list[Part]:
        """Convert the answer of a model or of a chat, as the only choice."""
        reason = FINISHED[finish_reason]

        def write(size: int) -> Part:
            written = self._parts(parts, [size])
            return {"role": "assistant", "parts": written, "finish_reason": reason}

        return [self._fitting(write)]

    def _parts(self, parts: Sequence[object], room: list[int]) -> list[Part]:
        """Convert as many parts as fit."""
        out: list[Part] = []
        for count, part in enumerate(parts):
            if room[0] <= 0:
                out.append({"type": "omitted", "count": len(parts) - count})
                break
            out.append(self._part(part, room))
            room[0] -= 4
        return out

    def _message(self, message: Message, size: int) -> Part:
        room = [size]
        if isinstance(message, ToolMessage):
            response = self._cut(message.text, room)
            part = {
                "type": "tool_call_response",
                "id": self.word(message.call_id),
                "response": response,
            }
            return {"role": "tool", "parts": [part]}
        assert isinstance(message, (UserMessage, AssistantMessage))
        return {"role": message.role, "parts": self._parts(message.parts, room)}

    def _part(self, part: object, room: list[int]) -> Part:
        if isinstance(part, Text):
            return {"type": "text", "content": self._cut(part.text, room)}
        if isinstance(part, Reasoning):
            return {"type": "reasoning", "content": self._cut(part.text, room)}
        if isinstance(part, ToolCall):
            values: Any = part.arguments if part.raw is None else part.raw
            name, arguments = self._clean(part.name), self._data(values, room, 0)
            id = self.word(part.id)
            return {"type": "tool_call", "id": id, "name": name, "arguments": arguments}
        if isinstance(part, Source):
            values = {"uri": part.url, "title": part.title, "name": part.name}
            about = {name: self._cut(text, room) for name, text in values.items() if text}
            return {"type": "source", **about}
        assert isinstance(part, (Image, File))
        return self._media(part, room)

    def _media(self, part: Image | File, room: list[int]) -> Part:
        """Describe an image or document by its URL or size, never by its bytes."""
        modality = part.media_type.partition("/")[0]
        if modality not in ("image", "video", "audio"):
            modality = "document"
        head = {"modality": modality, "mime_type": self.word(part.media_type)}
        if part.url is not None and not part.url.startswith("data:"):
            return {"type": "uri", **head, "uri": self._cut(part.url, room)}
        size = len(part.data if part.data is not None else part.url or "")
        return {"type": "omitted", **head, "size": size}

    def definitions(self, tools: Iterable[Tool[..., Any]]) -> list[Part]:
        """Convert the tool definitions of a request."""

        def write(tool: Tool[..., Any], size: int) -> Part:
            return {
                "type": "function",
                "name": tool.name,
                "description": self._cut(tool.description, [size]),
                "parameters": self._data(tool.parameters, [size], 0),
            }

        return [self._fitting(partial(write, tool)) for tool in tools]


def _is_object(value: Any) -> TypeGuard[dict[Any, Any]]:
    return isinstance(value, dict)


def text_of(exc: BaseException) -> str:
    """Return the text of an exception; empty if `str()` of it fails."""
    try:
        return str(exc)
    except Exception:
        return ""


def as_json(value: Any) -> str:
    """Return the JSON text of a value from `Content`."""
    try:
        return msgspec.json.encode(value).decode()
    except (UnicodeEncodeError, TypeError, ValueError):  # a lone surrogate, a huge number
        return json.dumps(value, default=str)
