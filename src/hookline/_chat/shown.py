"""Makes the shown answer equal to the stored one: a changed answer is shown again.

A hook may change an answer into many parts, so each part waits for room.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from hookline._base.events import (
    FileAdded,
    PartEnd,
    ReasoningDelta,
    ResponseReset,
    SourceAdded,
    TextDelta,
    ToolCallDelta,
)
from hookline._base.json import json_text
from hookline._base.messages import MediaPart, ModelPart, Reasoning, Source, Text, ToolCall
from hookline._chat.state import Chat
from hookline._model.assembly import PartKind

DELTAS: Final[Mapping[PartKind, type[TextDelta] | type[ReasoningDelta]]] = {
    "text": TextDelta,
    "reasoning": ReasoningDelta,
}
"""The event that shows a piece of a part of this kind."""


async def show(chat: Chat, final: tuple[ModelPart, ...], streamed: tuple[ModelPart, ...]) -> None:
    """Show the stored answer. If hooks have changed it, take the streamed one back first."""
    if chat.live and _visible(final) == _visible(streamed):
        return
    if chat.attempt > 1:
        chat.step.visible = True  # by an interrupted attempt
    if _visible(streamed) or not chat.live:
        await take_back(chat)
    chat.step.assembly = None  # nothing of it is shown any more, so nothing of it is kept
    chat.step.visible = True
    for index, part in enumerate(final):
        await chat.room()
        if isinstance(part, (Text, Reasoning)):
            _show_text(chat, part)
        elif not isinstance(part, ToolCall):
            show_part(chat, part)
        elif not chat.live and part.id not in chat.step.hidden_calls:
            chat.put(
                ToolCallDelta(
                    chat_id=chat.chat_id,
                    iteration=chat.iteration,
                    index=index,
                    call_id=part.id,
                    name=part.name,
                    arguments=json_text(part.arguments),
                )
            )


def _show_text(chat: Chat, part: Text | Reasoning) -> None:
    kind: PartKind = "text" if isinstance(part, Text) else "reasoning"
    if kind == "text" or part.text.strip():
        chat_id, iteration = chat.chat_id, chat.iteration
        chat.put(DELTAS[kind](chat_id=chat_id, iteration=iteration, text=part.text))
        chat.put(PartEnd(chat_id=chat_id, iteration=iteration, part=kind))


def show_part(chat: Chat, part: Source | MediaPart) -> None:
    """Show a part that is not streamed."""
    chat_id, iteration = chat.chat_id, chat.iteration
    if isinstance(part, Source):
        chat.put(SourceAdded(chat_id=chat_id, iteration=iteration, source=part))
    else:
        chat.put(FileAdded(chat_id=chat_id, iteration=iteration, file=part))


async def take_back(chat: Chat) -> None:
    """Publish ResponseReset if text was shown that will not be stored."""
    if chat.step.visible:
        await chat.room()
        chat.put(ResponseReset(chat_id=chat.chat_id, iteration=chat.iteration))
        chat.step.visible = False


def _visible(parts: tuple[ModelPart, ...]) -> list[tuple[type, object]]:
    """The parts that are shown: text and reasoning that are not blank, sources, files."""
    shown_parts: list[tuple[type, object]] = []
    for part in parts:
        if isinstance(part, (Text, Reasoning)):
            if part.text.strip():
                shown_parts.append((type(part), part.text))
        elif not isinstance(part, ToolCall):
            shown_parts.append((type(part), part))
    return shown_parts
