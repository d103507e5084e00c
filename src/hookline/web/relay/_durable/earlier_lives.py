"""Read the events that earlier lives of a durable chat published from the stream of a run."""

from __future__ import annotations

from typing import Final
from urllib.parse import unquote

import msgspec

from hookline.events import (
    ApprovalRequested,
    ChatAborted,
    ChatDone,
    ChatEvent,
    ChatFailed,
    ChatStarted,
    MessageAdded,
    MessageQueued,
    MessageReturned,
    StepFinished,
    StepStarted,
    ToolCallFinished,
    ToolCallStarted,
)
from hookline.web._runs.backlog import HookFired
from hookline.web.relay._codec import END, LINES, NAMES, items_of

OVER: Final = "over"
_names: Final = msgspec.json.Decoder(list[str])


def name_of(event: ChatEvent) -> str | None:
    """Name an event that a chat publishes only once; None for an event that a step may repeat."""
    if event.path:
        return None
    match event:
        case ChatStarted():
            return "start"
        case StepStarted(iteration=iteration):
            return f"step {iteration}"
        case StepFinished(iteration=iteration):
            return f"end {iteration}"
        case ToolCallStarted(call=call):
            return f"call {call.id}"
        case ToolCallFinished(call_id=id):
            return f"result {id}"
        case ApprovalRequested(request=request):
            return f"question {request.id}"
        case MessageQueued(message=message):
            return f"queued {message.id}"
        case MessageReturned(message=message):
            return f"returned {message.id}"
        case MessageAdded(message=message):
            return f"message {message.id}"
        case ChatDone() | ChatAborted() | ChatFailed():
            return OVER
        case _:
            return None


def principal_of(key: str) -> str | None:
    """Return the principal of a conversation; None for a conversation that no browser can name."""
    name, slash, _ = key.partition("/")
    return unquote(name) if slash and not name.startswith("%~") else None


class Before:
    """The content of a run's stream."""

    def __init__(self) -> None:
        self.names: set[str] = set()
        """The names of all published events, including those of earlier runs of the chat."""
        self.events: list[ChatEvent] = []
        self.whole = True
        """Whether no entry is missing, and the run has not ended."""

    def take(self, id: bytes, fields: dict[bytes, bytes]) -> None:
        """Add an entry of the stream."""
        if NAMES in fields:
            self.names.update(_names.decode(fields[NAMES]))
            return
        in_its_place = int(id.partition(b"-")[2]) - 1 == len(self.events)
        self.whole = self.whole and in_its_place and END not in fields
        for _, item in items_of(fields[LINES]) if LINES in fields else ():
            if not isinstance(item, HookFired):
                self.events.append(item)
                self.names.add(name_of(item) or "")
