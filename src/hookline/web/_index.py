"""Which conversations a principal has: what the page lists, and what may be asked for.

A store that can list its ids is asked; of another one only what this process has seen is known.
"""

from __future__ import annotations

import time
from inspect import isawaitable
from typing import Any
from urllib.parse import quote

import msgspec

from hookline import Store, UserMessage

TITLE = 60
KNOWN = 1000  # conversations of one principal that are remembered with a title


class Entry(msgspec.Struct, kw_only=True):
    """One line of the list. `updated` in seconds since the epoch."""

    id: str
    title: str = ""
    updated: float = 0.0


class Index:
    """The conversations of each principal."""

    def __init__(self, store: Store) -> None:
        self._store: Any = store
        self._entries: dict[str, dict[str, Entry]] = {}

    def touch(self, principal: str, id: str, message: UserMessage | None) -> None:
        """Something was said in a conversation."""
        mine = self._entries.setdefault(principal, {})
        entry = mine.pop(id, None) or Entry(id=id)
        if not entry.title and message is not None:
            words = " ".join(message.text.split())
            entry.title = words if len(words) <= TITLE else f"{words[: TITLE - 1]}…"
        entry.updated = time.time()
        mine[id] = entry
        while len(mine) > KNOWN:
            del mine[next(iter(mine))]

    async def has(self, principal: str, id: str) -> bool:
        return id in self._entries.get(principal, {}) or id in await self._stored(principal)

    async def entries(self, principal: str) -> list[Entry]:
        """The latest first."""
        known = self._entries.get(principal, {})
        rest = [Entry(id=id) for id in await self._stored(principal) if id not in known]
        return [*reversed(known.values()), *rest]

    async def forget(self, principal: str, id: str) -> bool:
        """Forget a conversation, in the store too where that can."""
        found = await self.has(principal, id)
        self._entries.get(principal, {}).pop(id, None)
        delete = getattr(self._store, "delete", None)
        if found and delete is not None:
            done = delete(f"{quote(principal, safe='@')}/{id}")
            if isawaitable(done):
                await done
        return found

    async def _stored(self, principal: str) -> list[str]:
        listing = getattr(self._store, "list", None)
        if listing is None:
            return []
        ids = listing()
        if isawaitable(ids):
            ids = await ids
        prefix = f"{quote(principal, safe='@')}/"
        found = [str(getattr(each, "id", each)) for each in ids]
        return [id.removeprefix(prefix) for id in found if id.startswith(prefix)]
