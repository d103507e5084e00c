"""The timeline of a durable chat: its record, lives, questions and messages, by their times.

The record also says what has become of each message that a client has sent into the chat.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterator
from typing import Any, Final, Literal, cast

import msgspec

from hookline import Approve, UserMessage
from hookline.durable._job import When, failure_of, read_decision, read_request, read_sent
from hookline.durable._status import Record
from hookline.errors import JournalError
from hookline.runtimes import Batch, Line, read_log

Kind = Literal[
    "start",
    "life",
    "begin",
    "step",
    "error",
    "question",
    "answer",
    "message",
    "abort",
    "release",
    "wait",
    "death",
    "loss",
    "end",
]
Status = Literal["queued", "delivered", "returned", "unknown"]
TOO_LATE: Final = "the chat ended before the message was delivered"
_UNKNOWN: Final = "the chat was ended while it wrote the message; look at its conversation"
_batch: Final = msgspec.json.Decoder(Batch)
_WAITS: Final = re.compile("/answer$|/child/")  # a question shows it
_ERROR: Final = re.compile(r'{"error":{"type":"(\w+)"')
_ENDINGS: Final[dict[str, Kind]] = {
    "died": "death",
    "lapsed": "loss",
    "lost": "loss",
    "released": "release",
    "waits": "wait",
}
"""Of lives: the worker died, lost the chat, left it to another one, or put it aside to wait."""


class _Message(msgspec.Struct, frozen=True):
    role: str = ""
    call_id: str = ""
    name: str = ""
    outcome: str = "ok"
    text: str = ""


_message: Final = msgspec.json.Decoder(_Message | None)


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """Something that has happened to a durable chat."""

    at: float
    """When, in seconds since 1970."""
    kind: Kind
    """What has happened: the chat was started, a life began, a step ended, …

    "begin" is a step that has not ended, and "error" the end of a call that was denied, failed,
    or may have run.
    """
    name: str = ""
    """The step, the worker of the life, the id of the question, or how the chat ended."""
    text: str = ""
    """More about it, such as the called tool, the version of the code, who answered, or the error
    of a chat that failed."""


def timeline(record: Record) -> tuple[Event, ...]:
    """Return what has happened to a chat."""
    events = [*_lives(record), *_steps(record), *_questions(record), *_messages(record)]
    events.append(Event(at=record.created, kind="start"))
    if record.aborted is not None:
        reason = msgspec.json.decode(record.abort or "null")
        events.append(Event(at=record.aborted, kind="abort", text=reason or ""))
    if record.ended is not None:
        failure = "" if record.outcome is None else failure_of(record.outcome)
        events.append(Event(at=record.ended, kind="end", name=record.state or "", text=failure))
    return tuple(sorted(events, key=lambda event: event.at))  # stable: the order above


def _lives(record: Record) -> Iterator[Event]:
    for owner, version, began, ended, ending in record.lives:
        worker = owner.rpartition(".")[0].rpartition(".")[0]
        version = f"version {version}" if version else ""
        yield Event(at=began, kind="life", name=worker, text=version)
        if ended is not None and ending in _ENDINGS:
            yield Event(at=ended, kind=_ENDINGS[ending], name=worker)


def _steps(record: Record) -> Iterator[Event]:
    tools: dict[str, str] = {}  # the names of the called tools, by the ids of the calls
    approved = {
        read_request(body).call.id
        for _, body, _, answer, _ in record.questions
        if answer is not None and isinstance(read_decision(answer), Approve)
    }
    begins: dict[str, float] = {}  # of the steps that have not ended
    for at, data in record.batches:
        try:
            lines = _batch.decode(data).lines
        except msgspec.DecodeError:  # of newer code
            yield Event(at=at, kind="step", text="cannot be read by this version of hookline")
            continue
        for line in lines:
            if line.kind == "begin":
                begins[line.key] = at
            elif line.kind == "end":
                begins.pop(line.key, None)
                kind, text = _about(line, tools, approved)
                yield Event(at=at, kind=kind, name=line.key, text=text)
    for key, at in begins.items():
        if not _WAITS.search(key):
            yield Event(at=at, kind="begin", name=key, text=_tool_of(key, tools))


def _about(line: Line, tools: dict[str, str], approved: Container[str]) -> tuple[Kind, str]:
    """Return what a step was about, without content: the tools, and what became of the calls."""
    parts = line.key.split("/")
    if line.error is not None:
        return "error", line.error.type
    if parts[-1] == "model":
        calls = list(_calls(msgspec.json.decode(line.value)))
        tools.update(calls)
        names = ", ".join(name for _, name in calls)
        return "step", f"calls {names}" if names else ""
    message = _message.decode(line.value) if "message" in parts[:2] else None
    if message is None or message.role != "tool":
        return "step", _tool_of(line.key, tools)
    if message.outcome == "ok":
        return "step", message.name
    match = _ERROR.match(message.text)
    after = " after its approval" if message.call_id in approved else ""
    return "error", f"{message.name}: {match[1] if match else message.outcome}{after}"


def _tool_of(key: str, tools: dict[str, str]) -> str:
    return next((tools[part] for part in key.split("/") if part in tools), "")


def _calls(value: Any) -> Iterator[tuple[str, str]]:
    """Yield the ids and names of the tool calls anywhere in the value of a step."""
    if isinstance(value, dict):
        data = cast("dict[str, Any]", value)
        if isinstance(data.get("name"), str) and "arguments" in data and "id" in data:
            yield str(data["id"]), data["name"]
        for item in data.values():
            yield from _calls(item)
    elif isinstance(value, list):
        for item in value:  # pyright: ignore[reportUnknownVariableType]
            yield from _calls(item)


def _messages(record: Record) -> Iterator[Event]:
    try:
        messages = sent_messages(record)
    except JournalError:  # of newer code
        messages = ()
    statuses = {sent.message.id: f", {sent.status}" for sent in messages}
    for body, at in record.messages:
        sent = read_sent(body)
        id = sent.message.id
        yield Event(at=at, kind="message", name=id, text=f"{sent.when}{statuses.get(id, '')}")


def _questions(record: Record) -> Iterator[Event]:
    for request, body, question_time, answer, answer_time in record.questions:
        call = read_request(body).call
        yield Event(at=question_time, kind="question", name=request, text=call.name)
        if answer is not None and answer_time is not None:
            decision = read_decision(answer)
            verb = "approved" if isinstance(decision, Approve) else "denied"
            by = f" by {decision.by}" if decision.by else ""
            yield Event(at=answer_time, kind="answer", name=request, text=f"{verb}{by}")


class ChatMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A message that a client has sent into a durable chat, and what has become of it."""

    message: UserMessage
    """The message, with the id that it gets in the history."""
    when: When
    """"next" or "idle", as it was sent."""
    status: Status
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
        elif parts[-1] == "input" or parts[1:2] == ["returned"]:
            decisions.update(_decisions(line))
    is_over = record.outcome is not None and record.state != "quarantined"
    messages: list[ChatMessage] = []
    for body, _ in record.messages:
        sent = read_sent(body)
        id, reason = sent.message.id, None
        status: Status = "queued"
        if id in written:
            status = "delivered"
        elif decisions.get(id) is not None:
            status, reason = "returned", decisions[id]
        elif is_over:
            status, reason = ("unknown", _UNKNOWN) if id in decisions else ("returned", TOO_LATE)
        messages.append(
            ChatMessage(message=sent.message, when=sent.when, status=status, reason=reason)
        )
    return tuple(messages)


def _decisions(line: Line) -> dict[str, str | None]:
    """Return why messages were refused, by their ids; None for a message that was taken."""
    steered: list[dict[str, Any]] = msgspec.json.decode(line.value)
    decided = [item for item in steered if not item.get("held")]
    return {item["message"]["id"]: item.get("refused") for item in decided}
