"""What a browser is told of errors: a short sentence and an id, which the log has too.

The text of an exception may hold a password, a path or a query, so it stays here. What an
application says on purpose is shown: a `ToolFailure` made by hand, a refusal, hookline's own words
about a call. `errors=` of the encoders and apps is a mapper that decides otherwise.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from secrets import token_hex
from typing import Final, TypeAlias

import msgspec

from hookline import Message, ToolFailure, ToolMessage
from hookline.events import (
    ChatAborted,
    ChatDone,
    ChatEvent,
    ChatFailed,
    ErrorInfo,
    MessageAdded,
    ToolCallFinished,
)
from hookline.web._wire import json_text

logger = logging.getLogger("hookline.web")

ErrorText: TypeAlias = Callable[[ErrorInfo], str | None]

# Errors that were meant for a reader: made by hand, or worded by hookline about a call.
_SAID: Final = frozenset(
    {"ToolFailure", "Denied", "Stopped", "Aborted", "ToolDenied", "UnknownToolError"}
    | {"DisabledToolError", "ToolArgumentsError", "ToolTimeoutError", "ToolLimitError"}
)
_CHAT: Final = {
    "ApprovalError": "This question is not waiting for an answer any more",
    "ConversationBusyError": "This conversation is busy with another answer",
    "ConversationConflictError": "This conversation has changed meanwhile",
    "MaxStepsError": "The answer took too many steps",
    "StreamInterruptedError": "The answer was cut off",
}


class Mask:
    """Takes the text of exceptions out of the events of one answer."""

    def __init__(self, errors: ErrorText | None = None) -> None:
        self._errors = errors
        self._told: dict[str, str] = {}  # by call id: a call's error has one text

    def event(self, event: ChatEvent) -> ChatEvent:
        """The event as a browser may see it."""
        match event:
            case ToolCallFinished(outcome="error"):
                assert isinstance(event.result, ToolFailure)
                shown = self._tool(event.call_id, event.name, event.result)
                return event if shown is event.result else event.replace(result=shown)
            case MessageAdded():
                message = self.message(event.message)
                return event if message is event.message else event.replace(message=message)
            case ChatFailed():
                error = ErrorInfo(type="Error", message=self.text(event.error))
                return event.replace(error=error)
            case ChatDone() | ChatAborted():
                return event
            case _:
                return event

    def message(self, message: Message) -> Message:
        """A message of history: a tool's error stands in it as JSON."""
        if not isinstance(message, ToolMessage) or message.outcome != "error":
            return message
        error = _read(message.text)
        shown = self._tool(message.call_id, message.name, error)
        if shown is error:
            return message
        text = json_text({"error": {"type": shown.type, "message": shown.message}})
        return message.replace(text=text)

    def text(self, error: ErrorInfo) -> str:
        """The sentence for an error that ended the chat; it goes to the log with its id."""
        if self._errors is not None:
            said = self._errors(error)
            if said is not None:
                return said
        id = token_hex(4)
        logger.error("error %s: a chat ended with %s", id, error.type)
        return f"{_CHAT.get(error.type, 'Something went wrong')} (error {id})."

    def _tool(self, call_id: str, name: str, error: ToolFailure) -> ToolFailure:
        if error.type in _SAID and self._errors is None:
            return error
        told = self._told.get(call_id)
        if told is None:
            told = self._told[call_id] = self._tool_text(name, error)
        return ToolFailure(told, type="ToolFailure")

    def _tool_text(self, name: str, error: ToolFailure) -> str:
        if self._errors is not None:
            said = self._errors(ErrorInfo(type=error.type, message=error.message))
            if said is not None:
                return said
            if error.type in _SAID:
                return error.message
        id = token_hex(4)
        logger.warning("error %s: tool %s failed with %s", id, name, error.type)
        return f"The tool failed (error {id})."


def _read(text: str) -> ToolFailure:
    """The error in a tool message; where it is none, one that is not shown."""
    try:
        error = msgspec.json.decode(text)["error"]
        return ToolFailure(str(error["message"]), type=str(error["type"]))
    except Exception:
        return ToolFailure(text, type="Unknown")
