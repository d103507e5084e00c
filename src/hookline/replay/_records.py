"""Records of past chats: the one form that is played, and its readers for messages and logs.

A log has everything that ran. A stored conversation has the messages: the model's answers after
redaction, the text of each result, and for calls that somebody decided about also what ran and who
decided (`ToolMessage.ran`). Cassettes and audit files have readers of their own, which read them as
messages.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any, Final, Literal, TypeAlias, cast

import msgspec

from hookline import (
    Approve,
    AssistantMessage,
    Deny,
    Message,
    ModelResponse,
    ToolFailure,
    ToolMessage,
    ToolResult,
    UserMessage,
    read_message,
)
from hookline.runtimes import Line, read_log

Source: TypeAlias = Literal["conversation", "log", "cassette", "audit"]
"""Where a record is from."""
FAILED: Final = frozenset({"error", "denied", "stopped", "aborted"})


class CallRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What became of one call."""

    outcome: str
    """How the call ended, as in `ToolMessage.outcome`."""
    result: ToolResult | ToolFailure
    """What the tool returned, or why it did not."""
    arguments: dict[str, Any] | None = None
    """The effective arguments; None if they are those that the model wrote."""
    decision: Approve | Deny | None = None
    """The decision of a person, if somebody was asked."""


class Record(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One chat as it was."""

    id: str
    """The chat's id; in a conversation, `conversation/chat`."""
    source: Source
    """What the record was read from."""
    before: tuple[Message, ...] = ()
    """The messages of the conversation before the chat."""
    message: UserMessage
    """The message that began the chat."""
    messages: tuple[Message, ...] = ()
    """All messages of the chat, in order, beginning with `message`."""
    answers: tuple[ModelResponse, ...] = ()
    """The model's answers, in order."""
    calls: dict[str, CallRecord] = {}
    """What became of each call, by its id."""
    at: float | None = None
    """When the chat began, or if its messages do not say, when its conversation was last written;
    in seconds since the epoch."""


# ── stored conversations ────────────────────────────────────────────────────────────────────


def records_of(
    messages: Sequence[Message], *, id: str = "", at: float | None = None
) -> list[Record]:
    """Return the chats of a conversation, from its messages.

    A chat begins at a user message with the id of another chat. A question belongs to the chat that
    answers it: its own id may be one that a client has chosen, or that of an answer since replaced.
    """
    prefix = f"{id}/" if id else ""
    starts = [0] if messages else []
    for place in range(1, len(messages)):
        new_chat = _chat_at(messages, place) != _chat_at(messages, place - 1)
        if messages[place].role == "user" and new_chat:
            starts.append(place)
    ends = [*starts[1:], len(messages)][: len(starts)]
    records: list[Record] = []
    for start, end in zip(starts, ends, strict=True):
        if isinstance(messages[start], UserMessage):
            chat, own = _chat_at(messages, start), messages[start:end]
            times = [m.at for m in own if m.at is not None and _chat_of(m) == chat]
            began = times[0] if times else at
            records.append(record_of(messages[:start], own, id=f"{prefix}{chat}", at=began))
    return records


def _chat_at(messages: Sequence[Message], place: int) -> str:
    """The chat of a message."""
    has_answer = place + 1 < len(messages) and messages[place + 1].role != "user"
    start = place + 1 if messages[place].role == "user" and has_answer else place
    for message in messages[start:]:
        chat = _chat_of(message)
        if chat is not None:
            return chat
        if message is not messages[place] and message.role == "user":
            break
    return messages[place].id


def _chat_of(message: Message) -> str | None:
    """The chat that has written the message, from the id `chat.number` if need be."""
    if message.chat_id is not None:
        return message.chat_id
    chat, _, number = message.id.rpartition(".")
    return chat if chat and number.isdecimal() else None


def record_of(
    before: Sequence[Message],
    own: Sequence[Message],
    *,
    id: str,
    source: Source = "conversation",
    at: float | None = None,
) -> Record:
    """Return the record of one chat from its messages; the first one of the user began it."""
    return Record(
        id=id,
        source=source,
        before=tuple(before),
        message=next(m for m in own if isinstance(m, UserMessage)),
        messages=tuple(own),
        answers=tuple(answer_of(m) for m in own if isinstance(m, AssistantMessage)),
        calls={m.call_id: call_of(m) for m in own if isinstance(m, ToolMessage)},
        at=at,
    )


def answer_of(message: AssistantMessage) -> ModelResponse:
    """Return the answer that became this message."""
    return ModelResponse(
        parts=message.parts,
        finish_reason=message.finish_reason or "stop",
        usage=message.usage,
        model=message.model,
        meta=message.meta,
    )


def call_of(message: ToolMessage) -> CallRecord:
    """Return what a message tells about its call."""
    ran = message.ran
    decision: Approve | Deny | None = None
    if ran is not None and ran.approved is not None:
        edited = ran.arguments if ran.approved else None
        decision = Approve(arguments=edited, by=ran.by) if ran.approved else Deny(by=ran.by or None)
        if isinstance(decision, Deny):
            decision = decision.replace(reason=failure_text(message.text))
    return CallRecord(
        outcome=message.outcome,
        result=_result(message),
        arguments=None if ran is None or ran.arguments is None else dict(ran.arguments),
        decision=decision,
    )


def _data(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _error(text: str) -> dict[str, Any]:
    data: Any = _data(text)
    error: Any = cast("dict[str, Any]", data).get("error") if isinstance(data, dict) else None
    return cast("dict[str, Any]", error) if isinstance(error, dict) else {}


def failure_text(text: str) -> str:
    """The message of a failure in the text of its result."""
    return str(_error(text).get("message", text))


def _result(message: ToolMessage) -> ToolResult | ToolFailure:
    error = _error(message.text) if message.outcome in FAILED else {}
    if error:
        return ToolFailure(str(error.get("message", "")), type=str(error.get("type", "Error")))
    return ToolResult(_data(message.text), media=message.media)


# ── logs of durable chats ───────────────────────────────────────────────────────────────────


def record_of_log(chat_id: str, batches: Iterable[bytes]) -> Record | None:
    """Return the chat that the log of a durable chat records; None if it has no message yet.

    Raises JournalError if the log cannot be read.
    """
    lines = read_log(chat_id, list(batches))
    messages: list[Message] = []
    answers: list[ModelResponse] = []
    for line in lines:
        if line.kind != "end" or bytes(line.value) == b"null":  # the step has no result
            continue
        key = line.key.split("/")
        if "message" in key[:2]:
            messages.append(read_message(bytes(line.value)))
        elif key[2:] == ["model"]:
            answers.append(msgspec.json.decode(line.value, type=ModelResponse))
    if not any(message.role == "user" for message in messages):
        return None
    at = next((line.at for line in lines if line.kind == "now"), None)
    record = record_of((), messages, id=chat_id, source="log", at=at)
    _take_from_steps(lines, record.calls)
    return msgspec.structs.replace(record, answers=tuple(answers))


def _take_from_steps(lines: Sequence[Line], calls: dict[str, CallRecord]) -> None:
    """Put the results and decisions into the calls as they were, and not as messages show them."""
    for line in lines:
        key = line.key.split("/")
        if line.kind != "end" or len(key) != 5 or key[2] != "call" or key[3] not in calls:
            continue
        value, call = msgspec.json.decode(line.value), calls[key[3]]
        if value is None:  # it was aborted, or raised
            continue
        if key[4] == "run":
            result = msgspec.convert(value["result"], ToolResult | ToolFailure)
            calls[key[3]] = msgspec.structs.replace(call, result=result)
        elif key[4] == "answer":
            decision = msgspec.convert(value, Approve | Deny)
            calls[key[3]] = msgspec.structs.replace(call, decision=decision)
