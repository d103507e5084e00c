"""Redact whole objects: messages, answers and results."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any, Final, TypeVar

from hookline import (
    AssistantMessage,
    Message,
    MessageChanges,
    ModelResponse,
    Reasoning,
    Source,
    Text,
    ToolCall,
    ToolFailure,
    ToolMessage,
    ToolResult,
    UserMessage,
)
from hookline.hooks._text.text_redactor import Redactor
from hookline.storage import RanCall

M = TypeVar("M", UserMessage, AssistantMessage, ModelResponse)
_NO_NAME: Final = re.compile(r"[^A-Za-z0-9_-]+")  # what ids and names cannot have


class Clean:
    """Returns redacted copies of objects; the same object if there is nothing to redact."""

    def __init__(self, redactor: Redactor, arguments: bool) -> None:
        self._redactor = redactor
        self._arguments = arguments

    def message(self, message: Message) -> Message:
        """Redact a message. The calls of an answer stay, because `onResponse` has redacted them."""
        if isinstance(message, ToolMessage):
            text = self._redactor.text(message.text)
            return message.replace(text=text, ran=message.ran and self._ran(message.ran))
        if isinstance(message, AssistantMessage):
            return self.parts(message, calls=False)
        return self.parts(message)

    def _ran(self, ran: RanCall) -> RanCall:
        note = ran.note and self._redactor.text(ran.note)
        arguments = ran.arguments
        if arguments is not None and self._arguments:
            arguments = self._redactor.data(arguments)
        same = (note, arguments) == (ran.note, ran.arguments)
        return ran if same else ran.replace(note=note, arguments=arguments)

    def parts(self, holder: M, *, calls: bool = True) -> M:
        """Redact the parts of an object."""
        parts = tuple(self._part(part, calls and self._arguments) for part in holder.parts)
        return holder if parts == holder.parts else holder.replace(parts=parts)

    def answer(self, answer: ModelResponse, tools: Collection[str]) -> ModelResponse:
        """Redact an answer, also the ids of its calls, and names of tools that were not offered."""
        answer = self.parts(answer)
        parts = tuple(
            self._call(part, tools) if isinstance(part, ToolCall) else part for part in answer.parts
        )
        return answer if parts == answer.parts else answer.replace(parts=parts)

    def _call(self, call: ToolCall, tools: Collection[str]) -> ToolCall:
        id, name = self.name(call.id), call.name if call.name in tools else self.name(call.name)
        if (id, name) == (call.id, call.name):
            return call
        return call.replace(id=id, name=name, meta=None)  # the meta may have the provider's id

    def name(self, name: str) -> str:
        """Redact an id or a name; the result is one too."""
        clean = self._redactor.text(name)
        return name if clean == name else _NO_NAME.sub("_", clean).strip("_")[:64] or "redacted"

    def changes(self, changes: MessageChanges) -> MessageChanges:
        """Redact the changes of a stored message, whose calls stay."""
        text = None if changes.text is None else self._redactor.text(changes.text)
        parts = None
        if changes.parts is not None:
            parts = tuple(self._part(part, arguments=False) for part in changes.parts)
        return MessageChanges(text=text, parts=parts)

    def _part(self, part: Any, arguments: bool) -> Any:
        if isinstance(part, ToolCall):
            if not arguments:
                return part
            raw = None if part.raw is None else self._redactor.text(part.raw)
            return part.replace(arguments=self._redactor.data(part.arguments), raw=raw)
        if isinstance(part, Source):
            return self.source(part)
        if not isinstance(part, Text | Reasoning):
            return part
        text = self._redactor.text(part.text)
        if text == part.text:
            return part
        # A provider's signature would not fit the changed text.
        return Text(text) if isinstance(part, Text) else Reasoning(text)

    def source(self, source: Source) -> Source:
        """Redact the source of an answer."""
        texts = {name: getattr(source, name) for name in ("url", "title", "name")}
        clean = {name: text and self._redactor.text(text) for name, text in texts.items()}
        return source if clean == texts else source.replace(**clean, meta=None)

    def result(self, result: ToolResult) -> ToolResult:
        """Redact the result of a tool."""
        value = self._redactor.data(result.value)
        return result if value == result.value else result.replace(value=value)

    def error(self, error: ToolFailure) -> ToolFailure:
        """Redact the failure of a tool; a changed failure no longer has an exception."""
        message = self._redactor.text(error.message)
        issues = tuple(map(self._redactor.text, error.issues))
        if (message, issues) == (error.message, error.issues):
            return error
        return ToolFailure(message, type=error.type, issues=issues)
