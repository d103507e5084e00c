"""Which conversations a principal has, and how they are opened and forgotten.

A conversation is stored under a key that begins with the quoted name of its principal, so that
nobody can even name another's. A store is asked through what it has: `open`, `load`, `list` and
`delete` are used where they are there; of a store that cannot list, only what this process has
seen is known.
"""

from __future__ import annotations

import time
from hashlib import sha256
from inspect import isawaitable, signature
from typing import Any, Final
from urllib.parse import quote

import msgspec

from hookline import Conversation, Store, UserMessage
from hookline.errors import ConversationBusyError
from hookline.web._incoming import Refused

TITLE: Final = 60
KNOWN: Final = 1000  # conversations of one principal that are remembered with a title
PAGES: Final = 50  # of a store's list, at most
NAME: Final = 100  # characters of a principal's quoted name; a longer one is hashed


def prefix_of(principal: str) -> str:
    """What the keys of a principal's conversations begin with; no two have the same."""
    name = quote(principal, safe="@")
    if len(name) > NAME:
        name = "%~" + sha256(principal.encode()).hexdigest()  # quoting never writes `%~`
    return f"{name}/"


def key_of(principal: str, id: str) -> str:
    """The id under which a principal's conversation is stored."""
    return prefix_of(principal) + id


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

    async def open(self, principal: str, id: str) -> Conversation:
        """The conversation of that id, a new one if there is none."""
        how: Any = getattr(self._store, "open", None)
        key = key_of(principal, id)
        if how is not None:
            found: Conversation = await how(key)
        else:
            makes: Any = Conversation
            found = await makes.open(self._store, key)
        return found

    def touch(
        self, principal: str, id: str, conversation: Conversation, message: UserMessage | None
    ) -> None:
        """Something was said in a conversation; its first words become its title, if it has none.

        The title stands in `conversation.meta`, and is saved with the message.
        """
        mine = self._entries.setdefault(principal, {})
        entry = mine.pop(id, None) or Entry(id=id)
        if message is not None and "title" not in conversation.meta:
            words = " ".join(message.text.split())
            short = words if len(words) <= TITLE else f"{words[: TITLE - 1]}…"
            conversation.meta["title"] = short
        entry.title = str(conversation.meta.get("title", ""))
        entry.updated = time.time()
        mine[id] = entry
        while len(mine) > KNOWN:
            del mine[next(iter(mine))]

    async def has(self, principal: str, id: str) -> bool:
        """Whether there is one of that id."""
        if id in self._entries.get(principal, {}):
            return True
        load = getattr(self._store, "load", None)
        if load is not None:
            return await load(key_of(principal, id)) is not None
        return any(entry.id == id for entry in await self._stored(principal))

    async def entries(self, principal: str) -> list[Entry]:
        """The latest first."""
        known = self._entries.get(principal, {})
        rest = [entry for entry in await self._stored(principal) if entry.id not in known]
        return [*reversed(known.values()), *rest]

    async def forget(self, principal: str, id: str) -> bool:
        """Forget a conversation, in the store too where that can."""
        found = await self.has(principal, id)
        delete = getattr(self._store, "delete", None)
        if found and delete is not None:
            try:
                await _awaited(delete(key_of(principal, id)))
            except ConversationBusyError:
                raise Refused(
                    409, "This conversation is busy with an answer; wait for it, or stop it."
                ) from None
        self._entries.get(principal, {}).pop(id, None)
        return found

    async def _stored(self, principal: str) -> list[Entry]:
        """What the store knows, which may be conversations of other processes and times."""
        listing = getattr(self._store, "list", None)
        if listing is None:
            return []
        prefix = prefix_of(principal)
        paged = "offset" in signature(listing).parameters
        out: list[Entry] = []
        seen = 0
        for _ in range(PAGES if paged else 1):
            page: Any = await _awaited(listing(offset=seen) if paged else listing())
            seen += len(page)
            for each in page:
                key = str(getattr(each, "id", each))
                if key.startswith(prefix):
                    meta: Any = getattr(each, "meta", {})
                    out.append(
                        Entry(
                            id=key.removeprefix(prefix),
                            title=str(meta.get("title", "")),
                            updated=float(getattr(each, "updated", 0.0)),
                        )
                    )
            if not page:
                break
        return out


async def _awaited(value: Any) -> Any:
    return await value if isawaitable(value) else value
