"""What a relay holds of durable chats: the events of their runs, and the text that a reader has."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from hookline.events import (
    ApprovalRequested,
    ChatAborted,
    ChatDone,
    ChatFailed,
    ChatStarted,
    MessageAdded,
    MessageQueued,
    MessageReturned,
    ResponseReset,
    StepFinished,
    StepStarted,
    TextDelta,
    ToolCallFinished,
    ToolCallStarted,
    read_event,
)
from hookline.web import HookFired


def events_of(lines: bytes) -> list[Any]:
    """The events of an entry: a line is a time, `e` or `h`, and an event or a hook that fired."""
    parts = [line.split(b" ", 2) for line in lines.split(b"\n")]
    return [
        msgspec.json.decode(text, type=HookFired) if kind == b"h" else read_event(text)
        for _, kind, text in parts
    ]


async def runs_of(client: Any, prefix: str, key: str) -> list[list[Any]]:
    """The events of each run on a conversation, the first run first; none of them has a gap."""
    found: list[list[Any]] = []
    async for name in client.scan_iter(f"{prefix}log:{key}:*"):
        run: list[Any] = []
        for id, fields in await client.xrange(name):
            if b"k" in fields:  # what a life of the chat begins with
                continue
            assert fields.get(b"x") != b"lost", "given up"
            assert int(id.partition(b"-")[2]) - 1 == len(run), f"a gap: {name} {id} {len(run)}"
            if b"e" in fields:
                run += events_of(fields[b"e"])
        found.append(run)
    return sorted(found, key=lambda run: run[-1].seq if run else 0)


def text_shown(runs: list[list[Any]]) -> str:
    """What a reader has in the end: it forgets the text of a step that it is told to forget."""
    texts: dict[int, str] = {}
    for run in runs:
        for event in run:
            if isinstance(event, ResponseReset):
                texts[event.iteration] = ""
            elif isinstance(event, TextDelta):
                texts[event.iteration] = texts.get(event.iteration, "") + event.text
    return text_of(list(texts.values()))


def text_of(answers: list[str]) -> str:
    """The texts of a chat's answers as one."""
    return "|".join(answers)


START, OVER = "start", "over"
ONCE: dict[type, Callable[[Any], object]] = {
    StepStarted: lambda event: event.iteration,
    StepFinished: lambda event: event.iteration,
    ToolCallStarted: lambda event: event.call.id,
    ToolCallFinished: lambda event: event.call_id,
    ApprovalRequested: lambda event: event.request.id,
    MessageQueued: lambda event: event.message.id,
    MessageReturned: lambda event: event.message.id,
    MessageAdded: lambda event: event.message.id,
}
"""What a chat tells once of each step, call, question and message."""


def name_of(event: Any) -> str | None:
    """Name an event that a chat tells once; None for the others, and for those of sub-agents."""
    if event.path:
        return None
    if isinstance(event, ChatStarted):
        return START
    if isinstance(event, (ChatDone, ChatAborted, ChatFailed)):
        return OVER
    kind = type(event)
    return f"{kind.__name__} {ONCE[kind](event)}" if kind in ONCE else None


def told_twice(runs: list[list[Any]]) -> list[str]:
    """What a chat tells once, and was told more often; each run has a beginning and an end."""
    names = [name for run in runs for event in run if (name := name_of(event))]
    anew = (START, OVER)
    wrong = [name for name in set(names) if names.count(name) > 1 and name not in anew]
    for run in runs:
        told = [name_of(event) for event in run]
        wrong += [name for name in anew if told.count(name) != 1]
    return wrong
