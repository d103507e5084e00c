"""What was said, as attributes: only where it was asked for, redacted, and cut to a size.

Every text that leaves goes through `Content`: keys and numbers of arguments too. First the user's
`redact` sees the whole text, then it is cut, so that a cut cannot hide a secret from it. What
`redact` fails on is not written. A cut shortens texts and leaves out items; JSON stays JSON.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, Literal, TypeGuard, cast

import msgspec

from hookline import (
    AssistantMessage,
    File,
    Image,
    Message,
    ModelResponse,
    Reasoning,
    Text,
    Tool,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from hookline.otel._names import FINISHED
from hookline.otel._report import report

Capture = Literal["no_content", "span_only", "event_only", "span_and_event"]
"""Where what was said may be written."""
CAPTURES: Final = ("no_content", "span_only", "event_only", "span_and_event")
Redact = Callable[[str], str]
"""Given each text before it is written; gives what may be."""
Part = dict[str, Any]

FAILED: Final = "[redaction failed]"
DEEP: Final = "[too deep]"
DEPTH: Final = 64


class Content:
    """How content is written; `spans` and `events` say where, if anywhere."""

    def __init__(self, capture: Capture, redact: Redact | None, size: int) -> None:
        self.spans = capture in ("span_only", "span_and_event")
        self.events = capture in ("event_only", "span_and_event")
        self.wanted = self.spans or self.events
        self._redact = redact
        self._size = size

    # ── texts and JSON ──────────────────────────────────────────────────────────────────────

    def text(self, text: str) -> str:
        """One text by itself."""
        return self._cut(text, [self._size])

    def data(self, value: Any) -> Any:
        """JSON data: an object of arguments, or a result."""
        return self._data(value, [self._size], 0)

    def _clean(self, text: str) -> str:
        if self._redact is None:
            return text
        try:
            cleaned = self._redact(text)
        except Exception as exc:
            report("redact= raised, so the text was left out", exc)
            return FAILED
        return cleaned if isinstance(cleaned, str) else FAILED  # pyright: ignore[reportUnnecessaryIsInstance]

    def _cut(self, text: str, room: list[int]) -> str:
        text = self._clean(text)
        left, room[0] = room[0], room[0] - len(text)
        if room[0] >= 0:
            return text
        room[0] = 0
        return f"{text[:left]}… [{len(text) - left} characters more]"

    def _data(self, value: Any, room: list[int], depth: int) -> Any:
        if isinstance(value, str):
            return self._cut(value, room)
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, (int, float)):
            if self._redact is None:
                return value
            text = str(value)
            cleaned = self._clean(text)
            return value if cleaned == text else cleaned
        if depth > DEPTH:
            return DEEP
        if _is_object(value):
            return self._object(value, room, depth)
        if isinstance(value, (list, tuple)):
            return self._array(cast("Sequence[Any]", value), room, depth)
        return self._cut(str(value), room)

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
        """The system text."""
        return [{"type": "text", "content": self.text(text)}]

    def messages(self, messages: Iterable[Message]) -> list[Part]:
        """Messages, in the order of the request."""
        return [self._message(message) for message in messages]

    def answer(self, response: ModelResponse) -> list[Part]:
        """The model's answer, as the one choice there is."""
        room = [self._size]
        parts = [self._part(part, room) for part in response.parts]
        reason = FINISHED[response.finish_reason]
        return [{"role": "assistant", "parts": parts, "finish_reason": reason}]

    def said(self, text: str, finish_reason: str) -> list[Part]:
        """The answer of a whole chat."""
        part = {"type": "text", "content": self.text(text)}
        return [{"role": "assistant", "parts": [part], "finish_reason": finish_reason}]

    def _message(self, message: Message) -> Part:
        room = [self._size]
        if isinstance(message, ToolMessage):
            response = self._cut(message.text, room)
            part = {"type": "tool_call_response", "id": message.call_id, "response": response}
            return {"role": "tool", "parts": [part]}
        assert isinstance(message, (UserMessage, AssistantMessage))
        parts = [self._part(part, room) for part in message.parts]
        return {"role": message.role, "parts": parts}

    def _part(self, part: object, room: list[int]) -> Part:
        if isinstance(part, Text):
            return {"type": "text", "content": self._cut(part.text, room)}
        if isinstance(part, Reasoning):
            return {"type": "reasoning", "content": self._cut(part.text, room)}
        if isinstance(part, ToolCall):
            given: Any = part.arguments if part.raw is None else part.raw
            name, arguments = self._clean(part.name), self._data(given, room, 0)
            return {"type": "tool_call", "id": part.id, "name": name, "arguments": arguments}
        assert isinstance(part, (Image, File))
        return self._media(part, room)

    def _media(self, part: Image | File, room: list[int]) -> Part:
        """A picture or a document: where it is or how large, never its bytes."""
        modality = part.media_type.partition("/")[0]
        if modality not in ("image", "video", "audio"):
            modality = "document"
        head = {"modality": modality, "mime_type": part.media_type}
        if part.url is not None and not part.url.startswith("data:"):
            return {"type": "uri", **head, "uri": self._cut(part.url, room)}
        size = len(part.data if part.data is not None else part.url or "")
        return {"type": "blob", **head, "content": "", "size": size}

    def definitions(self, tools: Iterable[Tool[..., Any]]) -> list[Part]:
        """What the model was told of the tools."""
        return [
            {
                "type": "function",
                "name": tool.name,
                "description": self.text(tool.description),
                "parameters": self.data(tool.parameters),
            }
            for tool in tools
        ]


def _is_object(value: Any) -> TypeGuard[dict[Any, Any]]:
    return isinstance(value, dict)


def as_json(value: Any) -> str:
    """The JSON text of a value that `Content` gave."""
    try:
        return msgspec.json.encode(value).decode()
    except (UnicodeEncodeError, TypeError, ValueError):  # a lone surrogate, a huge number
        return json.dumps(value, default=str)
