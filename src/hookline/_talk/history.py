"""What makes a history valid, and how a broken one is mended.

Valid: right after an assistant message with calls comes exactly one result for each of them, no
result stands anywhere else, and no message id appears twice. Providers refuse anything less.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from hookline._base.errors import HistoryError
from hookline._base.messages import (
    AssistantMessage,
    Data,
    Message,
    ModelPart,
    ToolCall,
    ToolMessage,
)

INTERRUPTED = "interrupted: this call may have run, and its result is lost"


def problems(messages: Iterable[Message], *, open_end: bool = False) -> list[str]:
    """Everything that is wrong with a history; `open_end` allows calls of the last step to wait."""
    found: list[str] = []
    seen: set[str] = set()
    waiting: dict[str, str] = {}  # the calls of the last assistant message without a result
    known: set[str] = set()
    for index, message in enumerate(messages):
        where = f"message {index}"
        if message.id:
            if message.id in seen:
                found.append(f"{where}: the id {message.id!r} appears twice")
            seen.add(message.id)
        if isinstance(message, ToolMessage):
            if message.call_id in waiting:
                del waiting[message.call_id]
            elif message.call_id in known:
                found.append(f"{where}: a second result for call {message.call_id!r}")
            else:
                found.append(f"{where}: a result for call {message.call_id!r}, which nobody made")
            continue
        found += _orphans(waiting, where)
        waiting = {}
        known = set()
        if isinstance(message, AssistantMessage):
            for call in message.tool_calls:
                if call.id in known:
                    found.append(f"{where}: two calls have the id {call.id!r}")
                known.add(call.id)
                waiting[call.id] = call.name
    if not open_end:
        found += _orphans(waiting, "the end")
    return found


def _orphans(waiting: dict[str, str], where: str) -> list[str]:
    return [
        f"{where}: call {id!r} of {name!r} has no result before it" for id, name in waiting.items()
    ]


def check_history(messages: Iterable[Message], *, open_end: bool = False) -> None:
    """Raises HistoryError, which lists everything that is wrong."""
    found = problems(messages, open_end=open_end)
    if found:
        raise HistoryError(found)


class Repair(Data, frozen=True, kw_only=True):
    """A mended history, and what was done to it, in order."""

    messages: tuple[Message, ...]
    """A valid history."""
    actions: tuple[str, ...]
    """What was done, one sentence each."""


def repair_history(messages: Sequence[Message]) -> Repair:
    """Mend a history; the same input always gives the same output.

    Results are moved behind their calls, missing ones are written ("may have run"), and orphan
    results, second results, second calls of one id and repeated messages are left out.
    """
    actions: list[str] = []
    results: dict[int, dict[str, ToolMessage]] = {}
    home: dict[str, int] = {}  # call id -> the index of the latest message that makes it
    seen: dict[str, Message] = {}
    kept: list[tuple[int, Message]] = []
    for index, message in enumerate(messages):
        if message.id and message.id in seen:
            actions.append(f"message {index} with the id {message.id!r} again: left out")
            continue
        seen[message.id] = message
        if isinstance(message, ToolMessage):
            owner = home.get(message.call_id)
            if owner is None:
                actions.append(f"message {index}: orphan result of {message.call_id!r} left out")
            elif message.call_id in results[owner]:
                actions.append(f"message {index}: second result of {message.call_id!r} left out")
            else:
                results[owner][message.call_id] = message
                if kept[-1][0] != owner:
                    actions.append(f"message {index}: moved behind its call")
            continue
        if isinstance(message, AssistantMessage):
            message = _single_calls(index, message, actions)
            results[index] = {}
            home.update({call.id: index for call in message.tool_calls})
        kept.append((index, message))
    out: list[Message] = []
    for index, message in kept:
        out.append(message)
        if isinstance(message, AssistantMessage):
            out.extend(results[index].values())
            for call in message.tool_calls:
                if call.id not in results[index]:
                    actions.append(f"call {call.id!r} of {call.name!r}: result written")
                    out.append(interrupted(call))
    return Repair(messages=tuple(out), actions=tuple(actions))


def _single_calls(index: int, message: AssistantMessage, actions: list[str]) -> AssistantMessage:
    ids = [call.id for call in message.tool_calls]
    if len(set(ids)) == len(ids):
        return message
    seen: set[str] = set()
    parts: list[ModelPart] = []
    for part in message.parts:
        if isinstance(part, ToolCall):
            if part.id in seen:
                actions.append(f"message {index}: second call with the id {part.id!r} left out")
                continue
            seen.add(part.id)
        parts.append(part)
    return message.replace(parts=tuple(parts))


def interrupted(call: ToolCall, id: str = "") -> ToolMessage:
    """The result of a call whose real one is lost."""
    text = '{"error":{"type":"Interrupted","message":"' + INTERRUPTED + '"}}'
    return ToolMessage(id=id, call_id=call.id, name=call.name, text=text, outcome="aborted")


def open_calls(messages: Sequence[Message]) -> list[ToolCall]:
    """The calls of the last step that have no result."""
    answered: set[str] = set()
    for message in reversed(messages):
        if isinstance(message, ToolMessage):
            answered.add(message.call_id)
        elif isinstance(message, AssistantMessage):
            return [call for call in message.tool_calls if call.id not in answered]
        else:
            break
    return []


def in_call_order(messages: Iterable[Message]) -> tuple[Message, ...]:
    """The same messages with the results of each step in the order of its calls."""
    out: list[Message] = []
    order: dict[str, int] = {}
    batch: list[ToolMessage] = []

    def place(result: ToolMessage) -> int:
        return order.get(result.call_id, 0)

    for message in messages:
        if isinstance(message, ToolMessage):
            batch.append(message)
            continue
        batch.sort(key=place)
        out.extend(batch)
        batch = []
        if isinstance(message, AssistantMessage):
            order = {call.id: place for place, call in enumerate(message.tool_calls)}
        out.append(message)
    batch.sort(key=place)
    out.extend(batch)
    return tuple(out)
