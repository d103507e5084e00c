"""The conversations of each principal: list, open and delete them.

A conversation is stored under a key that begins with its principal's quoted name, so no request can
even name a conversation of somebody else. The method `open` of a store is used if the store has it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Final
from urllib.parse import unquote

import msgspec

from hookline import Conversation, Store
from hookline.errors import ConversationBusyError, UsageError
from hookline.web._http.request_reply import Refused
from hookline.web._runs.run import DEFAULT_CAPS
from hookline.web._runs.store_keys import NAME, prefix_of

TITLES: Final = 1000  # most titles to remember for one principal
PRINCIPALS: Final = 1000  # most principals whose titles are remembered
PAGES: Final = 50  # most pages to read of a store's list
SEARCHED: Final = 200  # most conversations whose messages are searched


def conversation_key(principal: str, id: str) -> str:
    """Return the id under which a principal's conversation is stored."""
    return prefix_of(principal) + id


def read_conversation_key(key: str) -> tuple[str, str]:
    """Return the principal and the id of the conversation that is stored under this key.

    Raises UsageError if the key does not come from `conversation_key`, and if the principal's name
    is so long that the key contains only its hash.
    """
    name, slash, id = key.partition("/")
    principal = unquote(name)
    if not slash or not id or prefix_of(principal) != name + slash:
        raise UsageError(
            f"key={key!r} must come from conversation_key(); if the name of its principal has more "
            f"than {NAME} characters when it is quoted, keep the key and the name in a table of "
            "your own"
        )
    return principal, id


def busy_with_answer() -> Refused:
    """Build the refusal to change or delete a conversation while an answer runs."""
    return Refused(409, "This conversation is busy with an answer; wait for it, or stop it.")


class Entry(msgspec.Struct, kw_only=True):
    """One line of the list. `updated` is in seconds since the epoch."""

    id: str
    title: str = ""
    updated: float = 0.0


class Index:
    """The conversations of each principal. `active` returns whether a conversation, by its key, has
    a run in this process. A principal may have `limit` conversations.
    """

    def __init__(
        self,
        store: Store,
        active: Callable[[str], bool] = lambda key: False,
        *,
        limit: int = DEFAULT_CAPS.conversations_per_principal,
    ) -> None:
        self._store = store
        self._active = active
        self._limit = limit
        self._entries: dict[str, dict[str, Entry]] = {}

    async def open(self, principal: str, id: str) -> Conversation:
        """Open the conversation with that id; creates it if it does not exist.

        Raises Refused if it is new and the principal already has too many.
        """
        how = getattr(self._store, "open", None) or partial(Conversation.open, self._store)
        conversation: Conversation = await how(conversation_key(principal, id))
        if not conversation.messages and id not in self._entries.get(principal, {}):
            await self.check_room(principal)
        return conversation

    async def check_room(self, principal: str) -> None:
        """Raise Refused if the principal may not begin another conversation."""
        if await self._store.list(prefix=prefix_of(principal), limit=1, offset=self._limit - 1):
            raise Refused(
                429, "You have too many conversations; delete one before you begin another."
            )

    def touch(self, principal: str, id: str, conversation: Conversation) -> None:
        """Note that a conversation has changed."""
        mine = self._entries.pop(principal, {})
        self._entries[principal] = mine  # the last one
        while len(self._entries) > PRINCIPALS:
            del self._entries[next(iter(self._entries))]
        entry = mine.pop(id, None) or Entry(id=id)
        entry.title = str(conversation.meta.get("title", ""))
        entry.updated = time.time()
        mine[id] = entry
        while len(mine) > TITLES:
            del mine[next(iter(mine))]

    async def has(self, principal: str, id: str) -> bool:
        """Return whether a conversation with that id exists."""
        if id in self._entries.get(principal, {}):
            return True
        return await self._store.load(conversation_key(principal, id)) is not None

    async def entries(self, principal: str) -> list[Entry]:
        """List the conversations, the latest first."""
        recent = self._entries.get(principal, {})
        prefix = prefix_of(principal)
        inactive = [id for id in recent if not self._active(prefix + id)]
        listed_entries, whole = await self._list(principal)
        if whole:  # what is missing was deleted by another process, or was never stored
            for id in {*inactive} - {entry.id for entry in listed_entries}:
                recent.pop(id, None)
        for entry in listed_entries:
            mine = recent.get(entry.id)
            if mine is not None and mine.updated <= entry.updated:
                del recent[entry.id]  # from here on the store knows better: see other processes
        rest = [entry for entry in listed_entries if entry.id not in recent]
        return [*reversed(recent.values()), *rest]

    def title(self, principal: str, id: str, title: str) -> None:
        """Change a conversation's title."""
        entry = self._entries.get(principal, {}).get(id)
        if entry is not None:  # else the store lists it
            entry.title = title

    async def search(self, principal: str, words: str) -> list[Entry]:
        """Search the titles and messages of the latest conversations."""
        needle = words.casefold()
        matches: list[Entry] = []
        for entry in (await self.entries(principal))[:SEARCHED]:
            if needle in entry.title.casefold():
                matches.append(entry)
                continue
            stored = await self._store.load(conversation_key(principal, entry.id))
            if stored is not None and any(
                needle in getattr(message, "text", "").casefold() for message in stored.messages
            ):
                matches.append(entry)
        return matches

    async def forget(self, principal: str, id: str) -> bool:
        """Delete a conversation; returns False if it does not exist."""
        exists = await self.has(principal, id)
        if exists:
            try:
                await self._store.delete(conversation_key(principal, id))
            except ConversationBusyError:
                raise busy_with_answer() from None
        self._entries.get(principal, {}).pop(id, None)
        return exists

    async def _list(self, principal: str) -> tuple[list[Entry], bool]:
        """Read the list of the store, which includes conversations of other processes; also return
        whether the whole list was read.
        """
        prefix = prefix_of(principal)
        out: dict[str, Entry] = {}  # a conversation that moves may be on two pages
        offset = 0
        for _ in range(PAGES):
            page = await self._store.list(prefix=prefix, offset=offset)
            if not page:
                return list(out.values()), True
            offset += len(page)
            for item in page:
                if item.id.startswith(prefix):
                    id, title = item.id.removeprefix(prefix), str(item.meta.get("title", ""))
                    out.setdefault(id, Entry(id=id, title=title, updated=item.updated))
        return list(out.values()), False
