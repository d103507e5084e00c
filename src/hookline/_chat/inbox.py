"""The messages that were sent into a running chat and wait to be committed.

A chat has an inbox from the first message on that is sent to it. Each message in it is decided
exactly once: it is delivered when it is in the history, or returned to its sender. The chat takes
messages out at the places that `steering.py` describes.
"""

from __future__ import annotations

from asyncio import Event
from collections.abc import Collection
from typing import Final, Literal

import msgspec

from hookline._base.input import Input
from hookline._base.messages import UserMessage
from hookline._base.returns import When

MAX_QUEUED: Final = 64
"""How many messages may wait in a chat."""
SentStatus = Literal["queued", "delivered", "returned", "unknown"]


class Interrupt(msgspec.Struct, frozen=True):
    """A message for `send` that first cancels the running tools that are `idempotent`."""

    message: Input
    """The message; it is added to the history before the next request."""


class SentMessage:
    """A message that was sent into a running chat, and what has become of it."""

    __slots__ = ("_decided", "message", "reason", "status", "when")

    def __init__(self, message: UserMessage, when: When) -> None:
        self.message = message
        """The message, with the id that it gets in the history."""
        self.when: When = when
        """"next" or "idle", as it was sent."""
        self.status: SentStatus = "queued"
        """"queued" until it is decided; "delivered" once it is in the history; "returned" if it is
        not and will never be in the history; "unknown" if another process goes on with the chat."""
        self.reason: str | None = None
        """Why the message was not delivered."""
        self._decided = Event()

    async def delivered(self) -> bool:
        """Wait until the message is delivered or returned; return whether it was delivered.

        The task that reads the stream must not wait here: the chat may wait for its reader.
        """
        await self._decided.wait()
        return self.status == "delivered"

    def decide(self, status: SentStatus, reason: str | None = None) -> None:
        """Note what has become of the message."""
        self.status, self.reason = status, reason
        self._decided.set()

    def __repr__(self) -> str:
        return f"<SentMessage {self.message.id!r}, {self.status}>"


class Inbox:
    """The queued messages of one chat, in the order in which they were sent."""

    __slots__ = ("_known", "_queued", "announced")

    def __init__(self) -> None:
        self.announced: set[str] = set()
        """The ids of the messages for which MessageQueued was published, in any life."""
        self._queued: list[SentMessage] = []
        # By id: a sender may send a message again, and a later life of a durable chat gets all
        # again. None is a message that an earlier life has decided.
        self._known: dict[str, SentMessage | None] = {}

    @property
    def full(self) -> bool:
        """Whether no more messages may wait."""
        return len(self._queued) >= MAX_QUEUED

    def add(self, entry: SentMessage) -> None:
        """Queue a message, unless it is known."""
        if not self.knows(entry.message.id):
            self._known[entry.message.id] = entry
            self._queued.append(entry)

    def knows(self, id: str) -> bool:
        """Whether the message with this id is queued or decided."""
        return id in self._known

    def find(self, id: str) -> SentMessage | None:
        """The message with this id, if it was sent before."""
        return self._known.get(id)

    def due(self, *, idle: bool) -> tuple[SentMessage, ...]:
        """The messages to commit before the next request; at an idle end, all messages."""
        return tuple([entry for entry in self._queued if idle or entry.when == "next"])

    def decide(self, id: str, status: SentStatus, reason: str | None = None) -> None:
        """Take the message with this id out of the queue, if it is in it."""
        entry = self._known.setdefault(id, None)
        if entry in self._queued:
            self._queued.remove(entry)
            entry.decide(status, reason)

    def close(self, written_ids: Collection[str], *, halted: bool) -> None:
        """Decide all messages, since the chat is over."""
        for entry in self._queued:
            if entry.message.id in written_ids:
                entry.decide("delivered")
            elif halted:
                entry.decide("unknown", "the chat goes on in another process")
            else:
                entry.decide("returned", TOO_LATE)
        self._queued = []


TOO_LATE: Final = "the chat ended before the message was delivered"
