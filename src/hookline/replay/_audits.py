"""Reads the chats of a file of `audit(content=True)`: its lines as messages, by conversation.

The file is read twice, so that it can be larger than the memory: first to find the last line of
each conversation, then to yield the chats of a conversation as soon as it is complete.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any, Final, cast

import msgspec

from hookline import AssistantMessage, Message, Text, ToolCall, ToolMessage, UserMessage
from hookline.errors import UsageError
from hookline.replay._records import Record, records_of
from hookline.storage import RanCall

HEAD: Final = 100  # the lines in which the kind of a file must show
FIELDS: Final = frozenset({"at", "what", "agent", "chat"})


def is_audit(path: Path) -> bool:
    """Whether one of the first lines is a line of `audit`."""
    return next(islice(_lines(path, HEAD), 1), None) is not None


def records_of_audit(path: Path, *, prefix: str, since: float | None) -> Iterator[Record]:
    """Yield the chats of the file; a conversation that ends earlier in it comes earlier."""
    last = {_talk_of(line): number for number, line in _lines(path)}
    open_talks: dict[str, _Talk] = {}
    for number, line in _lines(path):
        id = _talk_of(line)
        talk = open_talks.setdefault(id, _Talk(id if "conversation" in line else ""))
        if "parent" not in line and id.startswith(prefix):
            talk.add(line, f"{str(path)!r}, line {number}")
        if last[id] == number:
            for record in open_talks.pop(id).records():
                if since is None or record.at is None or record.at >= since:
                    yield record


def _lines(path: Path, limit: int | None = None) -> Iterator[tuple[int, dict[str, Any]]]:
    """The lines with their numbers; a line that a kill has cut off is left out."""
    with path.open("rb") as file:
        for number, data in enumerate(islice(file, limit), 1):
            try:
                line = json.loads(data)
            except ValueError:
                continue
            if isinstance(line, dict) and set(cast("dict[str, Any]", line)) >= FIELDS:
                yield number, cast("dict[str, Any]", line)


def _talk_of(line: dict[str, Any]) -> str:
    """The conversation of a line; a chat without one is a conversation of its own."""
    return str(line.get("conversation") or line["chat"])


class _Talk:
    """What the lines of one conversation tell."""

    def __init__(self, id: str) -> None:
        self._id = id
        self._messages: list[Message] = []
        self._earlier: list[Record] = []  # chats whose answers were replaced
        self._began: dict[str, float] = {}  # by chat
        self._calls: dict[str, ToolCall] = {}  # by id, as the model wrote them
        self._ran: dict[str, dict[str, Any]] = {}  # by call id: the fields of `ToolMessage.ran`

    def add(self, line: dict[str, Any], place: str) -> None:
        """Add a line."""
        what, call = line["what"], line.get("call", "")
        self._began.setdefault(line["chat"], line["at"])
        if what.endswith(" message"):
            if "text" not in line:
                raise UsageError(
                    f"{place} has no text, because it was written without content; only files of "
                    "audit(content=True) can be replayed: pass one"
                )
            self._add_message(what, line)
        elif what == "tool started":
            question = self._calls.get(call)  # None if the file begins in the middle of the chat
            if question is not None and question.arguments != line.get("arguments"):
                self._ran.setdefault(call, {})["arguments"] = line.get("arguments")
        elif what in ("approval: approve", "approval: deny"):
            fields = self._ran.setdefault(call, {})
            fields["approved"] = what == "approval: approve"
            fields |= {name: line[name] for name in ("by", "note", "arguments") if name in line}

    def _add_message(self, what: str, line: dict[str, Any]) -> None:
        id, text = line["id"], line["text"]
        if what == "user message":
            self._cut(id)
            self._messages.append(UserMessage(parts=(Text(text),), id=id))
        elif what == "assistant message":
            calls = [
                ToolCall(id=call["id"], name=call["tool"], arguments=call["arguments"])
                for call in line.get("calls", ())
            ]
            self._calls.update({call.id: call for call in calls})
            parts = ([Text(text)] if text else []) + calls
            self._messages.append(AssistantMessage(parts=tuple(parts), id=id))
        else:
            ran = self._ran.get(line["call"])
            self._messages.append(
                ToolMessage(
                    id=id,
                    call_id=line["call"],
                    name=line["tool"],
                    text=text,
                    outcome=line["outcome"],
                    ran=RanCall(**ran) if ran else None,
                )
            )

    def _cut(self, id: str) -> None:
        """Take back a question that is asked again, and all later messages."""
        place = next((n for n, message in enumerate(self._messages) if message.id == id), None)
        if place is not None:
            self._earlier += (r for r in self._records() if len(r.before) >= place)
            del self._messages[place:]

    def records(self) -> list[Record]:
        """The chats of the conversation by time; also those whose answers were replaced."""
        return sorted([*self._earlier, *self._records()], key=lambda record: record.at or 0.0)

    def _records(self) -> list[Record]:
        return [
            msgspec.structs.replace(
                record, source="audit", at=self._began.get(record.id.rpartition("/")[2])
            )
            for record in records_of(self._messages, id=self._id)
        ]
