"""The messages that clients have sent into a chat: promises of its workflow, numbered from 1.

A client resolves the next promise that is free. A life waits for the first promise that it does not
know. Once it is resolved, the life records the step MESSAGES, and then peeks at the promises after
it until one is free. So the requests of a replay follow from the journal here, too.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final, cast

import restate
from restate.serde import BytesSerde

from hookline import UserMessage
from hookline.durable._job import Sent, When, read_sent
from hookline.durable.restate._journal_entries import message_in, promise_of
from hookline.runtimes import Halted

_bytes: Final = BytesSerde()
_RECEIVED: Final = "received"
"""The key of the number of received messages in the workflow's state."""


class Messages:
    """The messages of one chat, as one life sees them."""

    def __init__(self, context: restate.WorkflowContext) -> None:
        self._context = context
        self._number = 0  # of the last message that this life knows
        self._messages: list[Sent] = []  # for the chat
        self._collected: asyncio.Future[None] | None = None
        self.next: Any = self._promise(1).value()
        """A future of the engine that is completed by the next message."""

    def _promise(self, number: int) -> Any:
        return self._context.promise(promise_of(number), serde=_bytes)

    @property
    def waiting(self) -> bool:
        """Whether there are messages that this life has not collected."""
        return bool(self.next.is_completed())

    async def collect(self) -> list[Sent]:
        """Collect the messages that are there; MESSAGES must be the last step of the journal."""
        messages: list[Sent] = []
        body: bytes | None = await self.next
        while body is not None:
            messages.append(read_sent(message_in(body.decode())[0]))
            self._number += 1
            body = await self._promise(self._number + 1).peek()
        self._messages += messages
        self._context.set(_RECEIVED, self._number)
        self.next = self._promise(self._number + 1).value()
        if self._collected is not None and not self._collected.done():
            self._collected.set_result(None)
        return messages

    async def receive(self) -> list[tuple[UserMessage, When]]:
        """Return the messages that were sent into the chat since the last call."""
        if self.waiting:
            self._collected = asyncio.get_running_loop().create_future()
            await self._collected
        messages, self._messages = self._messages, []
        return [(sent.message, sent.when) for sent in messages]

    def halt(self) -> None:
        """End a call of `receive`, because this life has ended."""
        if self._collected is not None and not self._collected.done():
            self._collected.set_exception(Halted())
            self._collected.exception()


async def deliver(context: restate.WorkflowSharedContext, id: str, body: str, most: int) -> str:
    """Add a message with this id to a chat that has less than `most`; see `Sending`.

    The calls for one chat must not overlap.
    """
    known = context.promise(promise_of(id), serde=_bytes)
    if await known.peek() is not None:
        return "repeated"
    received = cast("int | None", await context.get(_RECEIVED))
    number = (received or 0) + 1
    while await context.promise(promise_of(number), serde=_bytes).peek() is not None:
        number += 1
    if number > most:
        return "full"
    at = await context.time()
    message = context.promise(promise_of(number), serde=_bytes)
    await message.resolve(f"{at} {body}".encode())
    await known.resolve(str(number).encode())
    return "queued"
