"""The events of a stream: collected in a list, or as the text that a UI shows."""

from __future__ import annotations

from collections.abc import AsyncIterable, Iterable
from contextlib import AbstractAsyncContextManager, aclosing, nullcontext
from typing import Any, TypeVar

from hookline import AssistantMessage
from hookline.events import ChatEvent, MessageAdded, ResponseReset, TextDelta

E = TypeVar("E")


def closed_after(stream: Any) -> AbstractAsyncContextManager[Any]:
    """Close the stream at the end of the block, if it has `aclose`."""
    return aclosing(stream) if hasattr(stream, "aclose") else nullcontext()


async def collect(stream: AsyncIterable[E], into: list[E] | None = None) -> list[E]:
    """Collect all events of a stream, and close the stream. Raises the exceptions of the stream.

    `into` is an optional list to which the events are added. If the stream raises an exception, the
    list has the events before the exception.
    """
    items: list[E] = [] if into is None else into
    async with closed_after(stream):
        async for item in stream:
            items.append(item)
    return items


def text_of_events(events: Iterable[ChatEvent], *, path: tuple[str, ...] = ()) -> str:
    """Return the text that a UI shows after these events: a paragraph for each answer with text.

    A ResponseReset retracts the text of an answer. `path` selects the chat of a sub-agent.
    """
    answers = [""]
    for event in events:
        if event.path != path:
            continue
        if isinstance(event, TextDelta):
            answers[-1] += event.text
        elif isinstance(event, ResponseReset):
            answers[-1] = ""
        elif isinstance(event, MessageAdded) and isinstance(event.message, AssistantMessage):
            answers.append("")
    return "\n\n".join([answer for answer in answers if answer.strip()])
