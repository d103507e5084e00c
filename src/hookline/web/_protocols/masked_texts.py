"""Hide from browsers the texts of describe_error, and addresses that no page may follow.

An error is shown as a short sentence and an id, which is also logged.

The text of an exception may contain a password, a path or a query, so it stays on the server. Texts
that an application writes for its user are shown: a `ToolFailure` made by hand, a refusal, and
hookline's own messages about a call. `describe_error=` of the encoders and apps is a function that
changes this.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from math import ceil
from typing import Any, Final, TypeAlias

import msgspec

from hookline import Message, ToolFailure, ToolMessage, ToolResult
from hookline.events import (
    ChatAborted,
    ChatDone,
    ChatEvent,
    ChatFailed,
    ErrorInfo,
    FileAdded,
    MessageAdded,
    MessageQueued,
    MessageReturned,
    ReasoningDelta,
    SourceAdded,
    TextDelta,
    ToolCallDelta,
    ToolCallFinished,
)
from hookline.web._http.request_reply import Refused
from hookline.web._http.sse import json_text
from hookline.web._protocols.outgoing_files import safe_message, safe_part
from hookline.web._runs.run_header import error_id, id_of_chat

logger = logging.getLogger("hookline.web")

DescribeError: TypeAlias = Callable[[ErrorInfo], str | None]
"""A function that returns the text of an error for users."""

# Errors with a text for users: made by hand, or written by hookline about a call.
_PUBLIC: Final = frozenset(
    {"ToolFailure", "Denied", "Stopped", "Aborted", "ToolDenied", "UnknownToolError"}
    | {"DisabledToolError", "ToolArgumentsError", "ToolTimeoutError", "ToolLimitError"}
)
_CHAT: Final = {
    "ApprovalError": "This approval is no longer waiting for an answer",
    "ConversationBusyError": "This conversation is busy with another answer",
    "ConversationConflictError": "This conversation has changed in the meantime",
    "MaxStepsError": "The answer took too many steps",
    "StreamInterruptedError": "The answer was cut off",
}


class Mask:
    """Hides the texts of exceptions, and unsafe addresses, in the events of one answer.

    The id of an error derives from the id of its chat or call. So a stream, a stored timeline and a
    history that is loaded later show the same id. `chat_id`: the chat, for an error before the
    first event. `what`: what the log says before the type of an error.
    """

    def __init__(
        self,
        describe_error: DescribeError | None = None,
        *,
        chat_id: str = "",
        what: str = "a chat ended with",
    ) -> None:
        self._describe_error = describe_error
        self._chat_id = chat_id
        self._what = what
        self.call_texts: dict[str, str] = {}
        """The error texts of failed calls, by call id."""

    def event(self, event: ChatEvent) -> ChatEvent:
        """Return the event with its error texts and unsafe addresses hidden."""
        self._chat_id = self._chat_id or event.chat_id
        match event:
            case TextDelta() | ReasoningDelta() | ToolCallDelta():  # most events
                return event
            case ToolCallFinished(outcome="error"):
                assert isinstance(event.result, ToolFailure)
                failure = self._tool(event.call_id, event.name, event.result)
                return event if failure is event.result else event.replace(result=failure)
            case ToolCallFinished(result=ToolResult() as result) if result.media:
                media = tuple([safe_part(part) for part in result.media])
                return event.replace(result=result.replace(media=media))
            case SourceAdded():
                return event.replace(source=safe_part(event.source))
            case FileAdded():
                return event.replace(file=safe_part(event.file))
            case MessageAdded() | MessageQueued() | MessageReturned():
                message: Any = self.message(event.message)
                return event if message is event.message else event.replace(message=message)
            case ChatFailed():
                return event.replace(error=self.info(event.error, event.chat_id))
            case ChatDone(response=response):
                messages = self._messages(response.messages)
                return event.replace(response=response.replace(messages=messages))
            case ChatAborted():
                return event.replace(partial=self._messages(event.partial))
            case _:
                return event

    def _messages(self, messages: tuple[Message, ...]) -> tuple[Message, ...]:
        return tuple([self.message(message) for message in messages])

    def message(self, message: Message) -> Message:
        """Return a message of the history with its error hidden. A tool's error in it is JSON."""
        message = safe_message(message)
        if not isinstance(message, ToolMessage) or message.outcome != "error":
            return message
        error = _read(message.text)
        failure = self._tool(message.call_id, message.name, error)
        if failure is error:
            return message
        text = json_text({"error": {"type": failure.type, "message": failure.message}})
        return message.replace(text=text)

    def info(self, error: BaseException | ErrorInfo, chat_id: str = "") -> ErrorInfo:
        """Return what a client sees of an error that ended an answer. A refusal is shown as it is,
        and can be tried again if it says when.
        """
        if isinstance(error, Refused):
            seconds = error.headers.get("retry-after")
            return ErrorInfo(
                type="Error",
                message=error.text,
                retryable=seconds is not None,
                retry_after=None if seconds is None else float(seconds),
            )
        info = error if isinstance(error, ErrorInfo) else ErrorInfo.of(error)
        return info.replace(type="Error", message=self.text(info, chat_id))

    def text(self, error: ErrorInfo, chat_id: str = "") -> str:
        """Return the sentence for an error, and log the error with its id."""
        own = self._own_text(error)
        if own is not None:
            return own
        id = id_of_chat(chat_id or self._chat_id)
        logger.error("error %s: %s %s", id, self._what, error.type)
        return f"{_CHAT.get(error.type, 'Something went wrong')} (error {id}).{_advice(error)}"

    def _own_text(self, error: ErrorInfo) -> str | None:
        """Return the text of `describe_error=`; None stands for the default text."""
        if self._describe_error is None:
            return None
        try:
            return self._describe_error(error)
        except Exception as exc:
            logger.error("describe_error= raised %s; the default text is shown", type(exc).__name__)
            logger.debug("describe_error= raised", exc_info=exc)
            return None

    def _tool(self, call_id: str, name: str, error: ToolFailure) -> ToolFailure:
        if error.type in _PUBLIC and self._describe_error is None:
            return error
        text = self.call_texts.get(call_id)
        if text is None:
            text = self.call_texts[call_id] = self._tool_text(call_id, name, error)
        return ToolFailure(text, type="ToolFailure")

    def _tool_text(self, call_id: str, name: str, error: ToolFailure) -> str:
        own = self._own_text(ErrorInfo(type=error.type, message=error.message))
        if own is not None:
            return own
        if error.type in _PUBLIC:
            return error.message
        id = error_id("call", call_id)
        logger.warning("error %s: tool %s failed with %s", id, name, error.type)
        return f"The tool failed (error {id})."


def retry_of(error: ErrorInfo) -> dict[str, Any]:
    """Return whether and when to try again, under the names of both foreign protocols."""
    if not error.retryable:
        return {}
    when = {} if error.retry_after is None else {"retryAfter": error.retry_after}
    return {"retryable": True, **when}


def _advice(error: ErrorInfo) -> str:
    """Return the sentence that tells a person when to try again, if that may help."""
    if not error.retryable:
        return ""
    seconds = ceil(error.retry_after or 0)
    return f" Try again in {seconds} seconds." if seconds > 1 else " Try again."


def _read(text: str) -> ToolFailure:
    """Parse the error in a tool message; an unreadable one is replaced and stays hidden."""
    try:
        error = msgspec.json.decode(text)["error"]
        return ToolFailure(str(error["message"]), type=str(error["type"]))
    except Exception:
        return ToolFailure(text, type="Unknown")
