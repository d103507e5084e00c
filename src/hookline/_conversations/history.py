"""The rules for valid histories, and the repair of broken ones.

In a valid history, an assistant message with calls is followed directly by exactly one result for
each call, there are no other results, and each message id is unique. Providers reject anything
else.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Final

from hookline._base.errors import HistoryError
from hookline._base.lists import as_tuple
from hookline._base.messages import (
    AssistantMessage,
    Data,
    Message,
    ModelPart,
    ToolCall,
    ToolMessage,
)

PIECE: Final = 256  # messages to read before other tasks of the event loop can run
MAY_HAVE_RUN: Final = "interrupted: this call may have run, and its result is lost"


class Survey:
    """One pass over a history, in one or several pieces; collects its faults and its call ids."""

    def __init__(self, messages: Iterable[Message] = ()) -> None:
        self.call_ids: dict[str, int | None] = {}
        """The ids of all calls."""
        self.disordered = False
        """Whether the results of a step are not in the order of its calls."""
        self._faults: list[str] = []
        self._ids: set[str] = set()
        self._index = 0
        self._order: dict[str, int] = {}  # the calls of the last assistant message
        self._waiting: dict[str, str] = {}  # of these, the calls that have no result yet
        self._last = -1  # the place of the last result
        self.see(messages)

    def see(self, messages: Iterable[Message]) -> None:
        """Continue the survey with these messages."""
        ids, index = self._ids, self._index
        for message in messages:
            if id := message.id:
                if id in ids:
                    self._faults.append(f"message {index}: the id {id!r} appears twice")
                ids.add(id)
            if type(message) is ToolMessage:
                self._result(message.call_id, index)
            else:
                if self._waiting:
                    self._orphans(f"message {index}")
                if self._order:
                    self._order, self._waiting, self._last = {}, {}, -1
                if type(message) is AssistantMessage:
                    self._calls(message, index)
            index += 1
        self._index = index

    def _calls(self, message: AssistantMessage, index: int) -> None:
        for call in message.tool_calls:
            if call.id in self._order:
                self._faults.append(f"message {index}: two calls have the id {call.id!r}")
            self._order[call.id] = len(self._order)
            self._waiting[call.id] = call.name
            self.call_ids[call.id] = None

    def _result(self, call_id: str, index: int) -> None:
        place = self._order.get(call_id, -1)
        if self._waiting.pop(call_id, None) is None:
            wrong = "a second result for call" if place >= 0 else "a result for call"
            hint = "" if place >= 0 else ", but there is no such call before it"
            self._faults.append(f"message {index}: {wrong} {call_id!r}{hint}")
        elif place < self._last:
            self.disordered = True
        self._last = place

    def _orphans(self, where: str) -> None:
        self._faults += [
            f"{where}: call {id!r} of {name!r} has no result" for id, name in self._waiting.items()
        ]

    def check(self, *, open_end: bool = False) -> None:
        """Raise HistoryError, which lists all faults, if the history is not valid.

        `open_end` allows calls of the last step to have no results yet.
        """
        if not open_end:
            self._orphans("the end")
        if self._faults:
            raise HistoryError(self._faults)


def check_history(messages: Iterable[Message], *, open_end: bool = False) -> None:
    """Raise HistoryError, which lists all faults, if the history is not valid."""
    Survey(as_tuple("messages", messages)).check(open_end=open_end)


async def surveyed(messages: Sequence[Message]) -> Survey:
    """Survey a history that may be long, letting other tasks run in between."""
    survey = Survey()
    for begin in range(0, len(messages), PIECE):
        if begin:
            await asyncio.sleep(0)
        survey.see(messages[begin : begin + PIECE])
    return survey


class Repair(Data, frozen=True, kw_only=True):
    """A repaired history, and the list of repairs."""

    messages: tuple[Message, ...]
    """A valid history."""
    actions: tuple[str, ...]
    """The repairs in order, one sentence each."""


def repair_history(messages: Sequence[Message]) -> Repair:
    """Repair a history. For the same input, the output is always the same.

    Results are moved to their calls, and missing results are added ("may have run"). These are
    removed: results without a call, second results of a call, second calls with the same id, and
    repeated messages.
    """
    actions: list[str] = []
    results: dict[int, dict[str, ToolMessage]] = {}
    home: dict[str, int] = {}  # call id -> the index of the latest message that makes it
    by_id: dict[str, Message] = {}
    messages_kept: list[tuple[int, Message]] = []
    for index, message in enumerate(messages):
        if message.id and message.id in by_id:
            actions.append(f"message {index}: left out, because the id {message.id!r} is repeated")
            continue
        by_id[message.id] = message
        if isinstance(message, ToolMessage):
            owner = home.get(message.call_id)
            if owner is None:
                actions.append(f"message {index}: orphan result of {message.call_id!r} left out")
            elif message.call_id in results[owner]:
                actions.append(f"message {index}: second result of {message.call_id!r} left out")
            else:
                results[owner][message.call_id] = message
                if messages_kept[-1][0] != owner:
                    actions.append(f"message {index}: moved to its call")
            continue
        if isinstance(message, AssistantMessage):
            message = _single_calls(index, message, actions)
            results[index] = {}
            home.update({call.id: index for call in message.tool_calls})
        messages_kept.append((index, message))
    out: list[Message] = []
    for index, message in messages_kept:
        out.append(message)
        if isinstance(message, AssistantMessage):
            out.extend(results[index].values())
            for call in message.tool_calls:
                if call.id not in results[index]:
                    actions.append(f"call {call.id!r} of {call.name!r}: missing result added")
                    out.append(interrupted_result(call, chat_id=message.chat_id))
    return Repair(messages=tuple(out), actions=tuple(actions))


def _single_calls(index: int, message: AssistantMessage, actions: list[str]) -> AssistantMessage:
    ids = [call.id for call in message.tool_calls]
    if len(set(ids)) == len(ids):
        return message
    call_ids: set[str] = set()
    parts: list[ModelPart] = []
    for part in message.parts:
        if isinstance(part, ToolCall):
            if part.id in call_ids:
                actions.append(f"message {index}: second call with the id {part.id!r} left out")
                continue
            call_ids.add(part.id)
        parts.append(part)
    return message.replace(parts=tuple(parts))


def interrupted_result(call: ToolCall, id: str = "", *, chat_id: str | None = None) -> ToolMessage:
    """Make the result of a call whose real result is lost; `chat_id` is the chat that lost it."""
    text = '{"error":{"type":"Interrupted","message":"' + MAY_HAVE_RUN + '"}}'
    return ToolMessage(
        id=id, call_id=call.id, name=call.name, text=text, outcome="aborted", chat_id=chat_id
    )


def open_calls(messages: Sequence[Message]) -> list[ToolCall]:
    """The calls of the last step that have no results."""
    ids: set[str] = set()
    for message in reversed(messages):
        if isinstance(message, ToolMessage):
            ids.add(message.call_id)
        elif isinstance(message, AssistantMessage):
            return [call for call in message.tool_calls if call.id not in ids]
        else:
            break
    return []


def in_call_order(messages: Iterable[Message]) -> tuple[Message, ...]:
    """Return the messages with the results of each step in the order of its calls."""
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
        out += batch
        batch = []
        if isinstance(message, AssistantMessage):
            order = {call.id: index for index, call in enumerate(message.tool_calls)}
        out.append(message)
    batch.sort(key=place)
    return (*out, *batch)
