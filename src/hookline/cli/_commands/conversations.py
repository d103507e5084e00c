"""`hookline conversations`: list the conversations of a store, the last changed first."""

from __future__ import annotations

import json
from collections.abc import Iterable
from contextlib import suppress
from datetime import datetime
from typing import Any, Final

from rich.cells import cell_len

from hookline import Conversation, Store
from hookline.cli._terminal.clean_text import strict
from hookline.cli._terminal.styled_lines import Line, cut
from hookline.cli._terminal.text_layout import fit, pad
from hookline.errors import HooklineError
from hookline.storage import ConversationInfo, resolve_store

SHOWN: Final = 100
ID: Final = 40  # most cells of the id column
TITLE: Final = 60
HIDDEN: Final = "%~"  # the prefix of ids that hookline uses internally


async def entitle(conversation: Conversation) -> None:
    """Make the first words of a conversation its title, as changed by hooks."""
    said = next((each.text for each in conversation.messages if each.role == "user"), "")
    if said and "title" not in conversation.meta:
        conversation.meta["title"] = fit(strict(" ".join(said.split())), TITLE)
        with suppress(HooklineError):  # the title can be set later
            await conversation.save()


async def listed(store: Store) -> list[ConversationInfo]:
    """List the conversations of a store, without internal entries."""
    found = await store.list(limit=2 * SHOWN)
    return [each for each in found if not each.id.startswith(HIDDEN)][:SHOWN]


async def latest(store: Store) -> str | None:
    """Return the id of the last changed conversation."""
    found = await listed(store)
    return found[0].id if found else None


async def found_in(url: str) -> list[ConversationInfo]:
    """List the conversations of the store at a URL."""
    store = resolve_store(url)
    try:
        return await listed(store)
    finally:
        closing: Any = getattr(store, "aclose", None)
        if closing is not None:
            await closing()


def listing(found: Iterable[ConversationInfo], width: int) -> list[Line]:
    """Return a line per conversation: time of change, id, number of messages, title."""
    rows = list(found)
    if not rows:
        return [[("dim", "no conversations")]]
    room = min(ID, max(cell_len(strict(each.id)) for each in rows))
    lines: list[Line] = []
    for each in rows:
        when = datetime.fromtimestamp(each.updated).strftime("%Y-%m-%d %H:%M")
        count = f"{each.messages:>5} messages" if each.messages != 1 else "    1 message "
        line: Line = [("dim", f"{when}  "), ("name", pad(strict(each.id), room))]
        line.append(("dim", f"  {count}  "))
        line.append(("", strict(str(each.meta.get("title", "")))))
        if each.waits:
            line.append(("mark", "  waits for an approval"))
        lines.append(cut(line, width))
    return lines


def as_json(found: Iterable[ConversationInfo]) -> str:
    """Return the conversations as JSON in ASCII."""
    return json.dumps([json.loads(each.to_json()) for each in found], indent=2)
