"""What has become of the messages that clients have sent into a durable chat, from its record."""

from __future__ import annotations

from typing import Any, Final, Literal

import msgspec

from hookline import UserMessage
from hookline.durable._job import When, read_sent
from hookline.durable._status import Record
from hookline.runtimes import read_log

TOO_LATE: Final = "the chat ended before the message was delivered"
_UNKNOWN: Final = "the chat was ended while it wrote the message; look at its conversation"


class ChatMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A message that a client has sent into a durable chat, and what has become of it."""

    message: UserMessage
    """The message, with the id that it gets in the history."""
    when: When
    """"next" or "idle", as it was sent."""
    status: Literal["queued", "delivered", "returned", "unknown"]
    """"queued" until it is decided; "delivered" once it is in the history; "returned" if it is not
    and will never be in the history; "unknown" if the chat was ended while it wrote the message."""
    reason: str | None = None
    """Why the message was not delivered."""


def sent_messages(record: Record) -> tuple[ChatMessage, ...]:
    """Return the messages that were sent into a chat, in their order."""
    written: set[str] = set()
    decisions: dict[str, str | None] = {}  # why a message was refused, by its id
    for line in read_log(record.id, [data for _, data in record.batches]):
        parts = line.key.split("/")
        if line.kind != "end" or line.cut:
            continue
        if parts[0] == "message":
            written.add(msgspec.json.decode(line.value)["id"])
        elif parts[-1] == "input":
            steered: list[dict[str, Any]] = msgspec.json.decode(line.value)
            decisions.update({item["message"]["id"]: item.get("refused") for item in steered})
    is_over = record.outcome is not None and record.state != "quarantined"
    messages: list[ChatMessage] = []
    for body, _ in record.messages:
        sent = read_sent(body)
        id, status, reason = sent.message.id, "queued", None
        if id in written:
            status = "delivered"
        elif decisions.get(id) is not None:
            status, reason = "returned", decisions[id]
        elif is_over:
            status, reason = ("unknown", _UNKNOWN) if id in decisions else ("returned", TOO_LATE)
        messages.append(_message(sent.message, sent.when, status, reason))
    return tuple(messages)


def _message(message: UserMessage, when: When, status: Any, reason: str | None) -> ChatMessage:
    return ChatMessage(message=message, when=when, status=status, reason=reason)
