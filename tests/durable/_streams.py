"""What a relay holds of durable chats: the events of their runs, and the text that a reader has."""

from __future__ import annotations

from typing import Any

from hookline.events import ResponseReset, TextDelta
from hookline.web.relay._codec import END, LINES, LOSS, NAMES, items_of
from hookline.web.relay._durable.earlier_lives import OVER, name_of


async def runs_of(client: Any, prefix: str, key: str) -> list[list[Any]]:
    """The events of each run on a conversation, the first run first; none of them has a gap."""
    found: list[list[Any]] = []
    async for name in client.scan_iter(f"{prefix}log:{key}:*"):
        run: list[Any] = []
        for id, fields in await client.xrange(name):
            if NAMES in fields:
                continue
            assert fields.get(END) != LOSS, "given up"
            assert int(id.partition(b"-")[2]) - 1 == len(run), f"a gap: {name} {id} {len(run)}"
            if LINES in fields:
                run += [item for _, item in items_of(fields[LINES])]
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


def told_twice(runs: list[list[Any]]) -> list[str]:
    """What a chat tells once, and was told more often; each run has a beginning and an end."""
    names = [name for run in runs for event in run if (name := name_of(event))]
    anew = ("start", OVER)
    wrong = [name for name in set(names) if names.count(name) > 1 and name not in anew]
    for run in runs:
        told = [name_of(event) for event in run]
        wrong += [name for name in anew if told.count(name) != 1]
    return wrong
