"""Requests and messages of hookline's own protocol."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

import msgspec

from hookline import Message, Text, UserMessage, read_message
from hookline.web._incoming import (
    Answer,
    Incoming,
    Refused,
    decision_of,
    object_of,
    objects,
    optional_id,
    text_of,
)
from hookline.web._wire import plain


def to_native_messages(messages: Iterable[Message]) -> list[dict[str, Any]]:
    """A history as JSON data; `read_message` reads each back."""
    return [plain(message) for message in messages]


def parse_native(body: dict[str, Any]) -> Incoming:
    """`{"conversation", "message", "answers", "regenerate", "history"}`, all but one of them
    optional: there is a message, or there are answers `{id: {"approved": true}}`.

    Raises Refused for what is none of that protocol.
    """
    conversation_id = optional_id(body.get("conversation"), "conversation")
    history = tuple(_message(each) for each in objects(body.get("history", []), "history"))
    regenerate = body.get("regenerate") is True
    if body.get("answers") is not None:
        given = object_of(body["answers"], "answers")
        answers: dict[str, Answer] = {}
        for id, value in given.items():
            said = object_of(value, "An answer")
            decision = decision_of(said.get("approved"), said.get("reason"), said.get("arguments"))
            answers[id] = Answer(decision=decision)
        if not answers:
            raise Refused(400, "There must be an answer.")
        return Incoming(conversation_id=conversation_id, answers=answers, history=history)
    message = None if regenerate else _said(body.get("message"))
    return Incoming(
        conversation_id=conversation_id,
        message=message,
        history=history,
        regenerate=regenerate,
        message_id=optional_id(body.get("messageId"), "messageId"),
    )


def _said(value: Any) -> UserMessage:
    if isinstance(value, dict):
        message = _message({"role": "user", **cast("dict[str, Any]", value)})
        if isinstance(message, UserMessage) and message.parts:
            return message
        raise Refused(400, "The message must be the user's.")
    text = text_of(value, "message")
    if not text.strip():
        raise Refused(400, "The message must not be empty.")
    return UserMessage(parts=(Text(text),))


def _message(value: dict[str, Any]) -> Message:
    try:
        return read_message(msgspec.json.encode(value))
    except (msgspec.ValidationError, UnicodeError):
        raise Refused(400, "A message must be one of hookline's.") from None
