"""`check_events`: the grammar of a stream's events, from CONTRACT sections 7, 8 and 12.

One automaton per chat: the root's, and one for each path under which a sub-agent's chat runs. They
know the events alone, and not what made them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from tests._event_automaton import ChatGrammar, WrongError, need

from hookline.events import ChatEvent, ChatStarted, Status, ToolCallFinished
from hookline.testing._descriptions import event_line

AROUND: Final = 4  # lines of an excerpt before and after the event that is wrong
Path = tuple[str, ...]


def check_events(events: Iterable[ChatEvent], *, complete: bool = True) -> None:
    """The events of one stream keep its grammar; raises AssertionError with an excerpt.

    They are those of one root chat, from ChatStarted on, sub-agents' included. `complete=False`
    takes a stream that was left early: it need not have its last event.
    """
    seen = list(events)
    chats: dict[Path, ChatGrammar] = {}
    place = 0
    try:
        need(seen, "there are no events")
        for place, event in enumerate(seen):
            _numbered(seen, place)
            root = chats.get(())
            need(root is None or root.end is None, "the last event of the chat came before")
            _take(chats, event)
        root = chats.get(())
        need(not complete or (root is not None and root.end), "the chat has no last event")
    except WrongError as wrong:
        text = f"{wrong}\n{_excerpt(seen, place)}"
    else:
        return
    raise AssertionError(text)


def _excerpt(events: Sequence[ChatEvent], place: int) -> str:
    first = max(0, place - AROUND)
    lines: list[str] = []
    for index, event in enumerate(events[first : place + AROUND + 1], first):
        mark = ">>" if index == place else "  "
        lines.append(f"{mark} {event.seq:4} {'  ' * len(event.path)}{event_line(event)}")
    return "\n".join(lines)


def _numbered(events: Sequence[ChatEvent], place: int) -> None:
    if place:
        last, seq = events[place - 1].seq, events[place].seq
        need(seq == last + 1, f"seq {seq} follows {last}")


def _take(chats: dict[Path, ChatGrammar], event: ChatEvent) -> None:
    """Give an event to the chat of its path."""
    path = event.path
    chat = chats.get(path)
    if path:
        parent = chats.get(path[:-1])
        need(parent is not None, f"the sub-agent at {path} has no parent")
        assert parent is not None
        need(path[-1] not in parent.finished, f"the call {path[-1]!r} of this chat had finished")
        known = path[-1] in parent.started or parent.old
        need(known, f"the call {path[-1]!r} of this chat has not started")
    if isinstance(event, ChatStarted):
        again = chat is not None and chat.end is not None and path
        need(chat is None or again, "the chat had started")
        chats[path] = ChatGrammar(chat_id=event.chat_id, resumed=event.resumes is not None)
        return
    if chat is None:  # only a wrapper at aroundChat can report before its chat begins
        need(isinstance(event, Status), "an event before ChatStarted")
        return
    need(chat.chat_id == event.chat_id, f"the chat here is {chat.chat_id!r}")
    need(chat.end is None, "the chat had ended")
    if isinstance(event, ToolCallFinished) and event.outcome != "aborted":
        child = chats.get((*path, event.call_id))
        need(child is None or child.end, "the sub-agent of this call has not ended")
    chat.take(event)
