"""`hookline conversations`: list the conversations of a store, the last changed first."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from typing import Annotated, Final

from cyclopts import Parameter
from rich.cells import cell_len

from hookline import Conversation, Store
from hookline.cli._options import Debug, Format
from hookline.cli._target import store_at
from hookline.cli._terminal.clean_text import strict
from hookline.cli._terminal.screen import show_data
from hookline.cli._terminal.styled_lines import Line
from hookline.cli._terminal.text_layout import fit, pad
from hookline.errors import HooklineError
from hookline.storage import ConversationInfo

MAX_ROWS: Final = 100
ID: Final = 40  # most cells of the id column
TITLE: Final = 60
INTERNAL: Final = "%~"  # the prefix of ids that hookline uses internally


async def entitle(conversation: Conversation) -> None:
    """Make the first words of a conversation its title, as changed by hooks."""
    text = next((message.text for message in conversation.messages if message.role == "user"), "")
    if text and "title" not in conversation.meta:
        conversation.meta["title"] = fit(strict(" ".join(text.split())), TITLE)
        with suppress(HooklineError):  # the title can be set later
            await conversation.save()


async def list_of(store: Store) -> list[ConversationInfo]:
    """List the conversations of a store, without internal entries."""
    rows = await store.list(limit=2 * MAX_ROWS)
    return [row for row in rows if not row.id.startswith(INTERNAL)][:MAX_ROWS]


async def latest(store: Store) -> str | None:
    """Return the id of the last changed conversation."""
    rows = await list_of(store)
    return rows[0].id if rows else None


async def conversations_in(url: str) -> list[ConversationInfo]:
    """List the conversations of the store at a URL."""
    async with store_at(url) as store:
        return await list_of(store)


def listing(rows: Sequence[ConversationInfo]) -> list[Line]:
    """Return a line per conversation: time of change, id, number of messages, title."""
    if not rows:
        return [[("dim", "no conversations")]]
    room = min(ID, max(cell_len(strict(row.id)) for row in rows))
    lines: list[Line] = []
    for row in rows:
        when = datetime.fromtimestamp(row.updated).strftime("%Y-%m-%d %H:%M")
        count = f"{row.messages:>5} messages" if row.messages != 1 else "    1 message "
        line: Line = [("dim", f"{when}  "), ("name", pad(strict(row.id), room))]
        line.append(("dim", f"  {count}  "))
        line.append(("", strict(str(row.meta.get("title", "")))))
        if row.waits:
            line.append(("mark", "  waits for an approval"))
        lines.append(line)
    return lines


def conversations(
    store: Annotated[str, Parameter(help="A store, such as sqlite:///chats.db.")],
    /,
    *,
    output: Annotated[Format, Parameter(help="json: a list of conversations.")] = "text",
    debug: Debug = False,
) -> None:
    """List the conversations of a store, the most recently changed first."""
    rows = asyncio.run(conversations_in(store))
    show_data([json.loads(row.to_json()) for row in rows], listing(rows), output, piped=120)
