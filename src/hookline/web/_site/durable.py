"""An application whose chats run in durable workers: it forwards requests to their engine.

The worker writes the answer to the relay, from which the application reads it. When a chat waits
for an approval, its run has ended there; the answer to the approval begins the next run.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from hashlib import blake2b
from secrets import token_hex
from typing import Any, Final, Literal

from hookline import Approve, Conversation, Deny, UserMessage
from hookline.durable import Client
from hookline.errors import ApprovalError, StoreError, UsageError
from hookline.events import Interrupt
from hookline.runtimes import find_sent
from hookline.web._http.request_reply import Refused
from hookline.web._protocols.incoming import Incoming
from hookline.web._runs.run import Receipt, When
from hookline.web._runs.run_header import Header
from hookline.web._site.conversations import busy_with_answer
from hookline.web._site.run_start import denied_calls
from hookline.web.relay import RedisRelay

BY_USER: Final = "stopped by the user"


def chat_of(key: str, message: UserMessage | None) -> str:
    """Return the id of the chat that answers a message; a repeated message gets the same id."""
    if message is None or not message.id:
        return token_hex(10)
    return blake2b(f"{key} {message.id}".encode(), digest_size=10).hexdigest()


def waiting_on(conversation: Conversation) -> str | None:
    """Return the durable chat that waits for an answer in a conversation."""
    step = conversation.pending_step
    return step.chat_id if step is not None and step.locked else None


def _check(incoming: Incoming, waits: str | None, *, has_answers: bool) -> None:
    """Raise Refused for a request that does not fit the state of the conversation."""
    if incoming.regenerate or (incoming.message is None and not has_answers):
        raise Refused(409, "A durable answer cannot be regenerated; send a message instead.")
    if has_answers and waits is None:
        raise Refused(409, "This approval is not waiting for an answer; load the messages again.")
    if waits is not None and not has_answers:
        raise Refused(409, "This conversation waits for an approval; answer it, or stop the chat.")


class DurableChats:
    """Forwards the requests of an application to its durable workers."""

    def __init__(self, agent: str, engine: Client, relay: RedisRelay, *, edits: bool) -> None:
        """`agent` is the name of the agent."""
        self._agent = agent
        self._engine = engine
        self._relay = relay
        self._edits = edits
        self._starting: dict[str, bool] = {}  # chats that the engine does not know yet: stopped?

    async def ask(
        self,
        incoming: Incoming,
        conversation: Conversation,
        principal: str,
        *,
        deps: Any,
        release: Literal["live", "response"],
    ) -> None:
        """Begin the run that a request asks for. Raises Refused, with nothing changed."""
        key, message = conversation.id, incoming.message
        waits = waiting_on(conversation)
        decisions = incoming.decisions(conversation.pending, by=principal, edits=self._edits)
        _check(incoming, waits, has_answers=bool(decisions))
        chat_id = waits or chat_of(key, message)
        if waits is None and any(m.id.startswith(f"{chat_id}.") for m in conversation.messages):
            raise Refused(409, "This message was already sent; load its answer instead.")
        header = Header(
            run=token_hex(6),
            chat_id=chat_id,
            principal=principal,
            before=len(conversation.messages),
            resumed=waits is not None,
            denied=denied_calls(conversation, decisions),
            message_id=incoming.message_id,
            run_id=incoming.run_id,
            modern=incoming.modern,
            client_messages=incoming.client_messages,
        )
        await self._relay.announce(key, header)
        try:
            if waits is not None:
                await self._answer(waits, decisions)
                return
            input = None if message is None else message.replace(id="")  # the chat sets the id
            self._starting[chat_id] = False
            await self._engine.start(
                input,
                conversation=key,
                chat_id=chat_id,
                deps=deps,
                release=release,
                agent=self._agent,
            )
            if self._starting[chat_id]:
                await self._engine.abort(chat_id, BY_USER)
        except BaseException as exc:
            self._relay.release(key, header.run)
            if isinstance(exc, StoreError):
                text = "The workers are not available; try again later."
                raise Refused(503, text, retry_after="5") from None
            if isinstance(exc, ApprovalError):
                raise Refused(
                    409, "This approval is not waiting for an answer; load the messages again."
                ) from None
            raise
        finally:
            self._starting.pop(chat_id, None)

    async def _answer(self, chat_id: str, decisions: Mapping[str, Approve | Deny]) -> None:
        """Answer approvals; if the engine does not know one, try again for a second.

        A worker shows a question to the browser just before it stores the question in the engine.
        """
        for pause in (0.05, 0.1, 0.25, 0.6):
            with suppress(ApprovalError):
                await self._engine.answer(chat_id, decisions)
                return
            await asyncio.sleep(pause)
        await self._engine.answer(chat_id, decisions)

    async def stop(self, conversation: Conversation, principal: str) -> bool:
        """Stop the chat that runs or waits in a conversation; False if there is none."""
        header = await self._relay.running(conversation.id, principal)
        chat_id = waiting_on(conversation) if header is None else header.chat_id
        if chat_id is None:
            return False
        if chat_id in self._starting:
            self._starting[chat_id] = True
            return True
        aborts = False
        with suppress(UsageError):  # the engine has deleted the chat, or never got it
            aborts = await self._engine.abort(chat_id, BY_USER)
        if not aborts and header is not None:  # its worker ended before it could say so
            await self._relay.close(conversation.id, chat_id)
        return aborts

    async def send(
        self, conversation: Conversation, principal: str, message: UserMessage, when: When
    ) -> Receipt | None:
        """Send a message into the chat that runs or waits in a conversation; None without one.

        The engine also knows what has become of a message that was sent before the chat ended.
        Raises Refused (503) if the end of the chat takes longer than a second.
        """
        earlier = find_sent(conversation.messages, message.id)
        if earlier is not None:
            return Receipt(id=earlier)
        header = await self._relay.last(conversation.id, principal)
        chat_id = waiting_on(conversation) or (None if header is None else header.chat_id)
        if chat_id is None:
            return None
        message = message.replace(id=message.id or token_hex(10))

        item = Interrupt(message) if when == "interrupt" else message
        moment: Literal["next", "idle"] = "next" if when == "interrupt" else when
        try:
            # The streams of a chat that is ending may have no event for the message: send it again
            # to learn what became of it.
            for pause in (0.05, 0.1, 0.25, 0.6):
                sent = await self._engine.send(chat_id, item, when=moment)
                if sent.status != "queued" or not await self._ends(conversation, principal):
                    break
                await asyncio.sleep(pause)
            else:
                text = "The answer is about to end; send this again to learn if it was taken."
                raise Refused(503, text, retry_after="1")
        except UsageError:  # the engine has deleted the chat, has not got it yet, or takes none
            return None
        except StoreError:
            text = "The workers are not available; try again later."
            raise Refused(503, text, retry_after="5") from None
        if sent.status == "unknown":
            raise Refused(409, "It is not known if this was delivered; load the messages.")
        refused = sent.reason if sent.status == "returned" else None
        return Receipt(id=sent.message.id, refused=refused)

    async def _ends(self, conversation: Conversation, principal: str) -> bool:
        """Whether the chat of a conversation is ending, or has ended without a question."""
        if await self._relay.ends(conversation.id):
            return True
        waits = waiting_on(conversation) is not None
        return not waits and not await self._relay.running(conversation.id, principal)

    async def forget(self, key: str) -> None:
        """Delete the chats of a conversation from the engine. Raises Refused while one is open."""
        try:
            for pause in (0.05, 0.1, 0.25, 0.6, 0.0):  # a worker may be storing the outcome
                if not await self._has_open(key):
                    await self._engine.delete_conversation(key)
                    return
                await asyncio.sleep(pause)
        except StoreError:
            text = "The workers are not available; try again later."
            raise Refused(503, text, retry_after="5") from None
        raise busy_with_answer()

    async def _has_open(self, key: str) -> bool:
        for state in ("queued", "running", "waiting"):
            chats = await self._engine.list(state=state, conversation=key)
            if any(chat.conversation == key for chat in chats):
                return True
        return False

    async def aclose(self) -> None:
        """Close the connection to the engine."""
        await self._engine.aclose()
