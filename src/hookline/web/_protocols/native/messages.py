"""Read the requests of hookline's own protocol, and write its messages."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, cast

import msgspec

from hookline import Message, Text, ToolFailure, ToolResult, UserMessage, read_message
from hookline.web._http.request_reply import Refused
from hookline.web._http.sse import plain
from hookline.web._protocols.client_messages import narrow
from hookline.web._protocols.incoming import (
    Answer,
    Incoming,
    bounded,
    decision_of,
    id_of,
    not_empty,
    object_of,
    objects,
    only,
    optional_id,
    text_of,
)

KEYS: Final = (
    *("conversation", "message", "answers", "results"),
    *("regenerate", "messageId", "history"),
)
ANSWER: Final = ("approved", "arguments", "reason")
RESULT: Final = ("value", "error")
MESSAGE: Final = ("role", "id", "parts")


def to_native_messages(messages: Iterable[Message]) -> list[dict[str, Any]]:
    """Convert a history to JSON data; `read_message` can parse each of these messages."""
    return [plain(message) for message in messages]


def parse_native(body: dict[str, Any]) -> Incoming:
    """Read a request, which has one of three forms: `message`; `answers` and `results`;
    `regenerate`.

    `answers` has the answers to approvals, by approval id. `results` has the results of calls that
    the client ran, by call id. Every request may also have `conversation` and `history`;
    `regenerate` may have `messageId`. Raises Refused for any other request, and for an unknown key.
    """
    only(bounded(body), "The body", KEYS)
    fields = {key: value for key, value in body.items() if value is not None}
    conversation_id = optional_id(fields.get("conversation"), "conversation")
    history = tuple([_message(item) for item in objects(fields.get("history", []), "history")])
    regenerate = fields.get("regenerate", False)
    if not isinstance(regenerate, bool):
        raise Refused(400, "regenerate must be true or false.")
    answering = "answers" in fields or "results" in fields
    if answering + regenerate + ("message" in fields) != 1:
        raise Refused(400, "Send exactly one of: message; answers and results; regenerate.")
    answers = _answers(fields.get("answers", {}))
    results = _results(fields.get("results", {}))
    if answering and not answers and not results:
        raise Refused(400, "There must be at least one answer or result.")
    return Incoming(
        conversation_id=conversation_id,
        message=parse_user_message(fields["message"]) if "message" in fields else None,
        history=history,
        answers=answers,
        results=results,
        regenerate=regenerate,
        message_id=None if answering else optional_id(fields.get("messageId"), "messageId"),
    )


def _answers(value: Any) -> dict[str, Answer]:
    answers: dict[str, Answer] = {}
    for id, entry in object_of(value, "answers").items():
        answer = only(object_of(entry, "An answer"), "An answer", ANSWER)
        decision = decision_of(
            answer.get("approved"), answer.get("reason"), answer.get("arguments")
        )
        answers[id] = Answer(decision=decision)
    return answers


def _results(value: Any) -> dict[str, ToolResult | ToolFailure]:
    results: dict[str, ToolResult | ToolFailure] = {}
    for id, entry in object_of(value, "results").items():
        result = only(object_of(entry, "A result"), "A result", RESULT)
        if len(result) != 1:
            raise Refused(400, "A result must have a value or an error.")
        if "error" in result:
            results[id] = ToolFailure(text_of(result["error"], "An error"))
        else:
            results[id] = ToolResult(result["value"])
    return results


def parse_user_message(value: Any) -> UserMessage:
    """Read a user's message: a text, or an object. Raises Refused for any other message."""
    if isinstance(value, dict):
        fields = only(cast("dict[str, Any]", value), "The message", MESSAGE)
        message = _message({"role": "user", **fields})
        if not isinstance(message, UserMessage):
            raise Refused(400, "The message must be a user message.")
        if message.id:
            id_of(message.id, "A message id")
        return not_empty(message)
    return not_empty(UserMessage(parts=(Text(text_of(value, "message")),)))


def _message(value: dict[str, Any]) -> Message:
    try:
        return narrow(read_message(msgspec.json.encode(value)))
    except (msgspec.ValidationError, UnicodeError):
        raise Refused(400, "A message must have the form of a hookline message.") from None
