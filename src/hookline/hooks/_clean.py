"""What `redact` makes of whole things: messages, answers, results."""

from __future__ import annotations

from typing import Any, TypeVar

from hookline import (
    AssistantMessage,
    Message,
    ModelResponse,
    Reasoning,
    Text,
    ToolCall,
    ToolFailure,
    ToolMessage,
    ToolResult,
    UserMessage,
)
from hookline.hooks._redactor import Redactor

M = TypeVar("M", UserMessage, AssistantMessage, ModelResponse)


class Clean:
    """Gives what it is given without what must not be seen; the same object where it is clean."""

    def __init__(self, redactor: Redactor, arguments: bool) -> None:
        self._redactor = redactor
        self._arguments = arguments

    def message(self, message: Message) -> Message:
        """A message. The calls of an answer stay: they are as `onResponse` left them."""
        if isinstance(message, ToolMessage):
            return message.replace(text=self._redactor.text(message.text))
        if isinstance(message, AssistantMessage):
            return self.parts(message, calls=False)
        return self.parts(message)

    def parts(self, holder: M, calls: bool = True) -> M:
        """What has parts."""
        parts = tuple(self._part(part, calls and self._arguments) for part in holder.parts)
        return holder if parts == holder.parts else holder.replace(parts=parts)

    def _part(self, part: Any, arguments: bool) -> Any:
        if isinstance(part, ToolCall):
            if not arguments:
                return part
            raw = None if part.raw is None else self._redactor.text(part.raw)
            return part.replace(arguments=self._redactor.data(part.arguments), raw=raw)
        if not isinstance(part, Text | Reasoning):
            return part
        text = self._redactor.text(part.text)
        if text == part.text:
            return part
        # What a provider has signed holds for the text as it was.
        return Text(text) if isinstance(part, Text) else Reasoning(text)

    def result(self, result: ToolResult) -> ToolResult:
        """What a tool came to."""
        value = self._redactor.data(result.value)
        return result if value == result.value else result.replace(value=value)

    def error(self, error: ToolFailure) -> ToolFailure:
        """What it failed with; one that was changed has no exception behind it any more."""
        message = self._redactor.text(error.message)
        issues = tuple(map(self._redactor.text, error.issues))
        if (message, issues) == (error.message, error.issues):
            return error
        return ToolFailure(message, type=error.type, issues=issues)
