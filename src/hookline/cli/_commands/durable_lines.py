"""The lines that `hookline durable` prints: chats, events, questions, counts and verdicts. Pure."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from typing import Final

import msgspec

from hookline import ApprovalRequest
from hookline.cli._terminal.clean_text import strict
from hookline.cli._terminal.styled_lines import Line
from hookline.cli._terminal.text_layout import pad
from hookline.durable import ChatStatus, Counts, Event, Replay
from hookline.errors import UsageError

_UNITS: Final = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
_STATES: Final = {"failed": "bad", "quarantined": "bad", "waiting": "mark"}
_KINDS: Final = {
    **dict.fromkeys(("death", "loss", "error"), "bad"),
    **dict.fromkeys(("question", "answer", "begin"), "mark"),
}


def seconds_of(text: str) -> float:
    """Return the seconds of a duration such as `30s`, `2h` or `7d`. Raises UsageError."""
    try:
        return float(text[:-1]) * _UNITS[text[-1:]]
    except (KeyError, ValueError):
        raise UsageError(
            f"{text!r} is not a duration; use a number and s, m, h or d, such as 7d"
        ) from None


def number_of(count: int, noun: str) -> str:
    """Return a number with its noun, such as `1 chat` or `2 chats`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def time_of(at: float) -> str:
    """Return a time of this computer."""
    return datetime.fromtimestamp(at).strftime("%Y-%m-%d %H:%M:%S")


def chat_rows(chats: Sequence[ChatStatus]) -> list[Line]:
    """Return a line for each chat, below a head."""
    if not chats:
        return [[("dim", "no chats")]]
    head = f"{'started':<21}{pad('chat', 24)}  {'state':<12}agent"
    return [[("dim", head)], *map(chat_row, chats)]


def chat_row(chat: ChatStatus) -> Line:
    """Return the line of a chat."""
    more = [f"key {chat.key}"] if chat.key else []
    more += [f"version {chat.version}"] if chat.version else []
    more += [number_of(chat.deaths, "death")] if chat.deaths else []
    return [
        ("dim", f"{time_of(chat.created)}  "),
        ("name", pad(strict(chat.id), 24)),
        (_STATES.get(chat.state, ""), f"  {chat.state:<12}"),
        ("", strict(chat.agent or "")),
        ("dim", strict("  " + ", ".join(more)) if more else ""),
    ]


def event_row(event: Event) -> Line:
    """Return the line of an event."""
    style = _STATES.get(event.name, "name") if event.kind == "end" else "name"
    return [
        ("dim", f"{time_of(event.at)}  "),
        (_KINDS.get(event.kind, style), f"{event.kind:<9}"),
        ("", strict(event.name)),
        ("dim", strict(f"  {event.text}") if event.text else ""),
    ]


def question_row(request: ApprovalRequest) -> Line:
    """Return the line of a call that waits for an answer."""
    arguments = json.dumps(msgspec.to_builtins(dict(request.call.arguments)), ensure_ascii=False)
    prompts = " ".join(prompt for prompt in request.prompts if prompt)
    return [
        ("name", strict(request.id)),
        ("", strict(f"  {request.call.name}({arguments})")),
        ("dim", strict(f"  {prompts}") if prompts else ""),
    ]


def figures(counts: Counts) -> str:
    """Return the chats of a queue that do not run."""
    return f"{counts.queued} queued, {counts.resting} resting, {counts.quarantined} quarantined"


def verdict_row(replay: Replay) -> Line:
    """Return the line of a chat whose record was replayed."""
    kind = "dim" if replay.fits else "bad"
    return [("name", strict(replay.id)), (kind, f"  {strict(replay.why)}")]


def others_line(others: Sequence[ChatStatus]) -> str:
    """Return how many chats are for which other agents."""
    agents = Counter(chat.agent for chat in others)
    names = ", ".join(f"{name!r} ({count})" for name, count in sorted(agents.items(), key=str))
    return f"{number_of(len(others), 'open chat')} for other agents: {names}"
