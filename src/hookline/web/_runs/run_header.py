"""The header of a run: everything besides its events that another process needs to show it."""

from __future__ import annotations

from hashlib import sha256
from secrets import token_hex
from typing import Final

import msgspec

SHARED_BYTES: Final = 64 * 1024
"""Most bytes of the client's messages that other processes get."""


class Header(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A run, and the request that started it."""

    run: str
    """The id of the run."""
    chat_id: str
    principal: str = ""
    """The principal that the run belongs to."""
    before: int = 0
    """The number of messages in the conversation when the run began."""
    resumed: bool = False
    """Whether the run continues an answer that waited."""
    denied: tuple[str, ...] = ()
    """The calls that the user denied with the request."""
    client_results: tuple[str, ...] = ()
    """The calls whose results the client sent."""
    message_id: str | None = None
    """The client's id of the answer that the run continues or regenerates."""
    conversation_id: str | None = None
    """The client's id of the conversation, on a custom route; empty: the client gets no id."""
    run_id: str | None = None
    """The client's id of the run (AG-UI)."""
    modern: bool = True
    """Whether the client uses AG-UI 1.0."""
    client_messages: tuple[msgspec.Raw, ...] = ()
    """The client's messages as JSON text, for a MESSAGES_SNAPSHOT (AG-UI). Text takes less memory
    than the objects that it stands for."""

    messages_left_out: bool = False
    """Whether other processes do not get the client's messages, because they are too many."""

    @property
    def size(self) -> int:
        """The approximate size in bytes."""
        results = sum([50 + len(id) for id in self.client_results])
        return results + sum([100 + len(memoryview(message)) for message in self.client_messages])

    def to_share(self) -> bytes:
        """Encode the header for other processes, without the client's messages if they are large.

        Such a process asks its readers to reload in the rare case that needs the messages.
        """
        header = self
        if self.size > SHARED_BYTES:
            header = msgspec.structs.replace(self, client_messages=(), messages_left_out=True)
        return msgspec.json.encode(header)


def id_of_chat(chat_id: str) -> str:
    """Return the id of the error that a chat ended with."""
    return error_id("chat", chat_id)


def error_id(kind: str, name: str) -> str:
    """Return the id of an error, for the browser and the log: the same each time it is shown."""
    return sha256(f"{kind}/{name}".encode()).hexdigest()[:8] if name else token_hex(4)
