"""Reads the chats of a cassette: the requests as messages, with the results that tools returned.

A call's id is made from its step and its position in the answer: `call_0_1`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec

from hookline import (
    AssistantMessage,
    Message,
    Reasoning,
    Text,
    ToolCall,
    ToolFailure,
    ToolResult,
)
from hookline.errors import UsageError
from hookline.models import (
    Chunk,
    FileChunk,
    Finish,
    PartEndChunk,
    ReasoningChunk,
    SourceChunk,
    TextChunk,
    ToolCallChunk,
)
from hookline.replay._records import CallRecord, Record, record_of
from hookline.testing.cassette import CallEntry, CassetteError, Request, Track, read_cassette

MARK: Final = b'"hookline_cassette"'
Shape = dict[str, Any]  # a message of a request, as a cassette has it


def is_cassette(path: Path) -> bool:
    """Whether the file says that it is a cassette."""
    with path.open("rb") as file:
        return any(MARK in line for line in file)


def records_of_cassette(path: Path) -> Iterator[Record]:
    """Yield the chats of the file, without those that tools and hooks began."""
    try:
        tracks = read_cassette(path)
    except CassetteError as exc:
        raise UsageError(str(exc)) from exc
    chats = {
        name: _Chat(track)
        for name, track in tracks.items()
        if track.requests and not track.is_inner
    }
    resumed = [chat for chat in chats.values() if chat.is_resumed]
    ends: dict[str, _Chat] = {}
    for name, chat in chats.items():
        later = next((other for other in resumed if other.continues(chat)), None)
        if later is None:
            ends[name] = chat
        else:
            resumed.remove(later)
            later.earlier = chat
    for name, chat in ends.items():
        yield chat.record(name)


class _Chat:
    """One chat of a cassette.

    Each request has the whole history, so the first one tells what came before the chat.
    """

    def __init__(self, track: Track) -> None:
        self.earlier: _Chat | None = None  # whose questions were answered when this one began
        self._requests = track.requests
        self._runs = {_id(*place.split(".", 1)): runs for place, runs in track.calls.items()}
        self._first: list[Shape] = track.requests[0].body["messages"]
        self._last: list[Shape] = track.requests[-1].body["messages"]

    @property
    def is_resumed(self) -> bool:
        """Whether the chat began with the answers to the questions of another."""
        return bool(self._first[-1]["role"] == "tool")

    def continues(self, other: _Chat) -> bool:
        """Whether this chat began with the answers to the questions of the other one."""
        size = len(other._last)
        if self is other or self._first[:size] != other._last:
            return False
        answer, *results = self._first[size:]
        roles = [answer["role"], *{shape["role"] for shape in results}]
        return roles == ["assistant", "tool"]

    @property
    def runs(self) -> dict[str, list[CallEntry]]:
        """The runs of calls by id, also before the chat was resumed."""
        return self._runs if self.earlier is None else {**self.earlier.runs, **self._runs}

    def record(self, name: str) -> Record:
        """The record of the chat."""
        start = max(at for at, shape in enumerate(self._first) if shape["role"] == "user")
        before = _messages(self._first[:start], "before_")
        own = _messages(self._first[start:])
        answered: Request | None = None
        for request in self._requests:
            if answered is not None:
                own += _results(request.body["messages"], answered.step)
            is_whole = "error" not in request.answer and request.answer.get("ended", True)
            answered = request if is_whole else None
            if is_whole:
                own.append(_answer(request))
        record = record_of(before, own, id=name, source="cassette")
        calls, all_runs = dict(record.calls), self.runs
        for message in own:
            for call in message.tool_calls if isinstance(message, AssistantMessage) else ():
                runs = all_runs.get(call.id)
                if runs and runs[-1].result is not None:
                    calls[call.id] = _call(call, runs[-1], calls.get(call.id))
        return msgspec.structs.replace(record, calls=calls)


# ── messages of requests ────────────────────────────────────────────────────────────────────


def _messages(shapes: list[Shape], prefix: str = "") -> list[Message]:
    """The messages of a history that begins with step 0."""
    messages: list[Message] = []
    ids: dict[str, str] = {}
    steps = 0
    for shape in shapes:
        if shape["role"] == "assistant":
            ids |= _ids(shape, f"{prefix}{steps}")
            steps += 1
        messages.append(_message(shape, ids))
    return messages


def _results(shapes: list[Shape], step: int) -> list[Message]:
    """What follows the last answer in a request: the results of its calls, and more."""
    end = max((at for at, shape in enumerate(shapes) if shape["role"] == "assistant"), default=-1)
    ids = _ids(shapes[end], str(step)) if end >= 0 else {}
    return [_message(shape, ids) for shape in shapes[end + 1 :]]


def _ids(shape: Shape, step: str) -> dict[str, str]:
    """The calls of an answer: their ids in the request, and in the record."""
    calls = [part["id"] for part in shape["parts"] if part["part"] == "call"]
    return {id: _id(step, position) for position, id in enumerate(calls)}


def _id(step: object, position: object) -> str:
    return f"call_{step}_{position}"


def _message(shape: Shape, ids: dict[str, str]) -> Message:
    data = {name: value for name, value in shape.items() if name not in ("call", "tool")}
    if shape["role"] == "tool":
        data |= {"call_id": ids.get(shape["call"], shape["call"]), "name": shape["tool"]}
    else:
        data["parts"] = [
            {**part, "id": ids[part["id"]]} if part["part"] == "call" else part
            for part in shape["parts"]
        ]
    message: Message = msgspec.convert(data, Message)
    return message


def _call(call: ToolCall, run: CallEntry, note: CallRecord | None) -> CallRecord:
    """What the run of a call tells, and what the next request tells of its outcome."""
    result: ToolResult | ToolFailure = msgspec.convert(run.result, ToolResult | ToolFailure)
    outcome = "error" if isinstance(result, ToolFailure) else "ok"
    return CallRecord(
        outcome=outcome if note is None else note.outcome,
        result=result,
        arguments=None if run.arguments == call.arguments else run.arguments,
    )


# ── answers ─────────────────────────────────────────────────────────────────────────────────


def _answer(request: Request) -> AssistantMessage:
    """The message of an answer, as the model wrote it."""
    parts: list[Any] = []
    calls: dict[int, tuple[int, list[str]]] = {}  # by index: the place among the parts, the text
    finish = Finish()
    for chunk in msgspec.convert(request.answer["chunks"], list[Chunk]):
        match chunk:
            case TextChunk(text=text) | ReasoningChunk(text=text):
                _add_text(parts, Text if isinstance(chunk, TextChunk) else Reasoning, text)
            case PartEndChunk(meta=meta):
                if parts and isinstance(parts[-1], (Text, Reasoning)):
                    parts[-1] = parts[-1].replace(meta=meta or {})
            case ToolCallChunk(index=index, name=name, arguments=text):
                if index not in calls:
                    id = _id(request.step, len(calls))
                    calls[index] = len(parts), []
                    parts.append(ToolCall(id=id, name=name or "", arguments={}))
                calls[index][1].append(text)
            case SourceChunk(source=part) | FileChunk(file=part):
                parts.append(part)
            case Finish():
                finish = chunk
    for place, texts in calls.values():
        parts[place] = _with_arguments(parts[place], "".join(texts))
    return AssistantMessage(
        parts=tuple(parts),
        finish_reason=finish.finish_reason,
        usage=finish.usage,
        model=finish.model,
        meta=finish.meta,
    )


def _add_text(parts: list[Any], kind: type[Text | Reasoning], text: str) -> None:
    last = parts[-1] if parts else None
    if isinstance(last, kind) and last.meta is None:
        parts[-1] = last.replace(text=last.text + text)
    else:
        parts.append(kind(text))


def _with_arguments(call: Any, text: str) -> Any:
    try:
        arguments = json.loads(text or "{}")
    except ValueError:
        arguments = None
    if not isinstance(arguments, dict):
        return call.replace(raw=text)
    return call.replace(arguments=arguments)
