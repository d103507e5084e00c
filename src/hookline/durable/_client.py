"""The client of durable chats for all engines: it starts, answers, aborts and awaits chats."""

from __future__ import annotations

import asyncio
import os
import re
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any, Final, Literal, TypeVar, overload

import msgspec

from hookline import ApprovalRequest, Approve, Deny, Limits, Response, Settings, UserMessage
from hookline.durable._job import (
    Decision,
    Job,
    Sent,
    When,
    aborted_outcome,
    encode_decision,
    encode_job,
    encode_outcome,
    read_decision,
    read_outcome,
    read_request,
)
from hookline.durable._status import (
    STATES,
    ChatStatus,
    Counts,
    Operations,
    Query,
    Record,
    State,
)
from hookline.durable._timeline import TOO_LATE, ChatMessage, Event, sent_messages, timeline
from hookline.durable._trace import current_trace
from hookline.errors import ApprovalError, RemoteChatError, UsageError
from hookline.events import Interrupt
from hookline.points import as_tuple, check_number
from hookline.runtimes import sent_into

T = TypeVar("T")
MAX_QUEUED: Final = 64
"""How many messages may wait in a chat."""
_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")


class Client:
    """Starts, answers, aborts and awaits durable chats by their ids, from any process."""

    def __init__(self, operations: Operations) -> None:
        self._operations = operations

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.aclose()

    async def start(
        self,
        input: str | UserMessage | None,
        *,
        conversation: str | None = None,
        chat_id: str | None = None,
        deps: Any = None,
        settings: Settings | None = None,
        limits: Limits | None = None,
        system: str | None = None,
        model: str | None = None,
        hooks: Sequence[str] = (),
        release: Literal["live", "response"] = "live",
        agent: str | None = None,
        key: str | None = None,
        priority: int = 0,
    ) -> str:
        """Start a chat and return its id. If the `chat_id` already exists, nothing is started.

        All arguments must be JSON data. `agent` is the name of the agent whose workers may run the
        chat; without it, any worker may. `model` is a name. `hooks` are ids of hooks that the agent
        knows. `deps` is converted by the worker's function `deps=`. `key` is whose chat it is, such
        as a tenant: workers with `per_key=` limit the chats of one key. Chats with a higher
        `priority` begin first. Raises UsageError for other arguments, and QueueFullError if as many
        chats wait as the client's `max_queued` allows.
        """
        job = Job(
            input=input,
            conversation=conversation,
            deps=deps,
            settings=settings,
            limits=limits,
            system=system,
            model=model,
            hooks=as_tuple("hooks", hooks),
            release=release,
            agent=agent,
            key=key,
            priority=priority,
            trace=current_trace(),
        )
        id = os.urandom(10).hex() if chat_id is None else _check_id(chat_id)
        await self._operations.add(id, encode_job(job))
        return id

    async def pending(self, chat_id: str) -> tuple[ApprovalRequest, ...]:
        """Return the approvals that a chat is waiting for.

        Raises UsageError for an id that no chat can have.
        """
        questions = await self._operations.questions(_check_id(chat_id))
        return tuple([read_request(text) for text in questions])

    async def answer(self, chat_id: str, answers: Mapping[str, Decision]) -> None:
        """Answer pending approvals: `{approval_id: Approve() | Deny("why")}`.

        Raises ApprovalError if an approval is not pending, or was answered before. After this
        error, none of the answers counts. Raises UsageError for an id that no chat can have.
        """
        encoded: dict[str, str] = {}
        for id, decision in answers.items():
            if not isinstance(decision, (Approve, Deny)):  # pyright: ignore
                raise ApprovalError(
                    f"the answer to {id!r} must be Approve() or Deny(), not {decision!r}"
                )
            try:
                encoded[id] = encode_decision(decision)
                read_decision(encoded[id])  # what no worker can read would break the chat
            except (TypeError, ValueError, msgspec.MsgspecError) as exc:
                raise ApprovalError(
                    f"the answer to {id!r} cannot be stored: {exc}; pass JSON as the arguments of "
                    "Approve, and text as the reason of Deny"
                ) from exc
        wrong = await self._operations.answer(_check_id(chat_id), encoded, current_trace())
        if wrong is not None:
            raise ApprovalError(
                f"chat {chat_id!r} has no pending approval {wrong!r}: the approval was "
                "answered or has expired, or the chat is over; look at pending()"
            )

    async def send(
        self, chat_id: str, message: str | UserMessage | Interrupt, *, when: When = "next"
    ) -> ChatMessage:
        """Send a message into a chat, from any process.

        With `when="next"`, the chat commits it after the tools of the running step; with "idle",
        when it would end. A chat that waits for an approval gets it once it continues. An
        `Interrupt` first cancels the running tools that are `idempotent`, as soon as the worker
        hears of it. Look at `sent` for what has become of it. A message with an `id` is queued
        once: if it is sent again, the result is what has become of it. While 64 messages wait, a
        message is returned. Raises UsageError for an empty message or an unknown chat.
        """
        if when not in ("next", "idle"):
            raise UsageError(f"when={when!r} must be 'next' or 'idle'")
        interrupts = isinstance(message, Interrupt)
        if interrupts and when != "next":
            raise UsageError(f"when={when!r} contradicts an Interrupt; leave when= out")
        input = message.message if isinstance(message, Interrupt) else message
        message = sent_into(_check_id(chat_id), input)
        sent = Sent(message=message, when=when, interrupts=interrupts)
        id = sent.message.id
        try:
            body = msgspec.json.encode(sent).decode()
        except (TypeError, ValueError) as exc:
            raise UsageError(f"message={message!r} must be JSON: {exc}; pass JSON data") from exc
        most = MAX_QUEUED
        while True:
            sending = await self._operations.send(chat_id, id, body, most, interrupts)
            if sending not in ("repeated", "full"):
                break
            messages = await self.sent(chat_id)
            if sending == "repeated":
                return next(known for known in messages if known.message.id == id)
            decided = sum(known.status != "queued" for known in messages)
            if decided + MAX_QUEUED == most:
                break
            most = decided + MAX_QUEUED
        reasons = {"over": TOO_LATE, "full": f"{MAX_QUEUED} messages wait already"}
        return ChatMessage(
            message=sent.message,
            when=when,
            status="returned" if sending in reasons else "queued",
            reason=reasons.get(sending),
        )

    async def sent(self, chat_id: str) -> tuple[ChatMessage, ...]:
        """Return the messages that were sent into a chat, and what has become of each.

        Raises UsageError for an unknown chat.
        """
        return sent_messages(await self.record(chat_id))

    async def abort(self, chat_id: str, reason: str | None = None, *, force: bool = False) -> bool:
        """Request the abort of a chat; returns False if the chat is over.

        A worker carries out the abort. With `force`, the client itself ends a chat that no worker
        runs at this moment, such as a quarantined chat, or one that no worker can run.

        Raises UsageError if the reason is not text, or for an id that no chat can have.
        """
        try:
            text = msgspec.json.encode(reason).decode()
        except (TypeError, ValueError):
            text = ""
        if not text or (reason is not None and not isinstance(reason, str)):  # pyright: ignore
            raise UsageError(f"reason={reason!r} of an abort must be text")
        if force:
            outcome = aborted_outcome(chat_id, reason)
            if await self._operations.discard(_check_id(chat_id), outcome, "aborted"):
                return True
        return await self._operations.abort(_check_id(chat_id), text)

    @overload
    async def result(
        self,
        chat_id: str,
        *,
        timeout: float | None = None,  # noqa: ASYNC109
        output: None = None,
    ) -> Response: ...
    @overload
    async def result(
        self,
        chat_id: str,
        *,
        timeout: float | None = None,  # noqa: ASYNC109
        output: type[T],
    ) -> Response[T]: ...
    async def result(
        self,
        chat_id: str,
        *,
        timeout: float | None = None,  # noqa: ASYNC109
        output: type[Any] | None = None,
    ) -> Response[Any]:
        """Wait for the response, at most `timeout` seconds.

        With `output`, the `output` of the response is converted to this type, which should be the
        agent's. Raises ChatAbortedError if the chat was aborted, RemoteChatError if it failed or is
        quarantined, TimeoutError, UsageError if there is no chat with this id or its output does
        not fit, and StoreError if the engine is not reachable.
        """
        async with asyncio.timeout(timeout):
            text = await self._operations.result(_check_id(chat_id))
        response = read_outcome(text)
        if output is None:
            return response
        try:
            value = msgspec.convert(response.output, output)
        except msgspec.ValidationError as exc:
            raise UsageError(
                f"the output of chat {chat_id!r} is not {output!r} ({exc}); pass the output= of "
                "its agent"
            ) from exc
        return response.replace(output=value)

    # ── of operators ────────────────────────────────────────────────────────────────────────

    async def list(
        self,
        *,
        state: State | None = None,
        agent: str | None = None,
        key: str | None = None,
        conversation: str | None = None,
        older_than: float | None = None,
        limit: int = 100,
    ) -> tuple[ChatStatus, ...]:
        """Return the chats that match, the oldest first.

        `conversation` is how the id of the conversation begins. `older_than` is the age of the
        chats in seconds, counted from their start. Raises UsageError for a wrong state or limit.
        """
        if state is not None and state not in STATES:
            raise UsageError(f"state={state!r} must be one of {', '.join(STATES)}")
        check_number("limit", limit, whole=True)
        before = None if older_than is None else time.time() - older_than
        query = Query(
            state=state,
            agent=agent,
            key=key,
            conversation=conversation,
            before=before,
            limit=limit,
        )
        return tuple(await self._operations.chats(query))

    async def status(self, chat_id: str) -> ChatStatus:
        """Return the state of a chat. Raises UsageError for an unknown chat."""
        for status in await self._operations.chats(Query(id=_check_id(chat_id))):
            return status
        raise UsageError(f"there is no durable chat {chat_id!r} here; start it first")

    async def queues(self) -> tuple[str, ...]:
        """Return the queues that have chats. Raises UsageError if the database has no tables."""
        return tuple(await self._operations.queues())

    async def counts(self) -> Counts:
        """Return the figures of the queue."""
        return await self._operations.counts()

    async def record(self, chat_id: str) -> Record:
        """Return all that the engine knows about a chat. Raises UsageError for an unknown chat."""
        return await self._operations.record(_check_id(chat_id))

    async def timeline(self, chat_id: str) -> tuple[Event, ...]:
        """Return what has happened to a chat: its lives, steps, questions and answers.

        Raises UsageError for an unknown chat.
        """
        return timeline(await self.record(chat_id))

    async def watch(self, chat_id: str, *, poll: float = 0.5) -> AsyncGenerator[Event]:
        """Yield what has happened to a chat, and what happens, until it is over.

        Looks every `poll` seconds. Raises UsageError for an unknown chat.
        """
        events: set[Event] = set()
        while True:
            record = await self.record(chat_id)
            for event in timeline(record):
                if event not in events:
                    events.add(event)
                    yield event
            if record.outcome is not None:
                return
            await asyncio.sleep(poll)

    async def quarantine(self, chat_id: str) -> None:
        """Put a chat into quarantine: no worker runs it until `retry`.

        Raises UsageError if a worker runs the chat, or if it is over.
        """
        words = "an operator put this chat into quarantine"
        outcome = encode_outcome(chat_id, RemoteChatError(chat_id, "Quarantined", words))
        if not await self._operations.discard(_check_id(chat_id), outcome, "quarantined"):
            raise UsageError(f"chat {chat_id!r} runs or is over; abort() it, or wait for its end")

    async def drain(self, *, timeout: float | None = None) -> None:  # noqa: ASYNC109
        """Let no worker of this queue begin a chat until `resume`; returns once no chat runs.

        The running model calls and tool calls end; their chats wait for `resume`. Chats can still
        be started, answered and aborted. Raises TimeoutError if calls run for longer than `timeout`
        seconds; the queue stays drained. Raises UsageError on Restate: stop the workers instead.
        """
        await self._operations.drain()
        async with asyncio.timeout(timeout):
            still = 0
            while still < 2:  # a claim may have begun just before
                still = 0 if (await self.counts()).running else still + 1
                await asyncio.sleep(0.1)

    async def resume(self) -> None:
        """Let the workers of this queue take chats again, after `drain`."""
        await self._operations.resume()

    async def retry(self, chat_id: str) -> None:
        """Queue a quarantined chat again, with no deaths.

        Raises UsageError if the chat is not quarantined.
        """
        if not await self._operations.retry(_check_id(chat_id)):
            state = (await self.status(chat_id)).state
            raise UsageError(
                f"chat {chat_id!r} is {state}, not quarantined; pass the id of a quarantined chat"
            )

    async def delete(self, chat_id: str) -> None:
        """Delete a chat that is over, with its record, its outcome and its input.

        Raises UsageError if the chat is not over.
        """
        if not await self._operations.delete(_check_id(chat_id)):
            raise UsageError(f"chat {chat_id!r} cannot be deleted before it is over; use abort()")

    async def delete_conversation(self, conversation: str) -> int:
        """Delete the chats of a conversation that no worker runs; returns their number.

        Chats that wait end without an outcome. Delete the conversation in its store too.
        """
        return await self._operations.forget(conversation)

    async def cleanup(self, *, older_than: float) -> int:
        """Delete the chats that ended more than `older_than` seconds ago; returns their number.

        Quarantined chats stay. Workers do this by themselves, after their `retention`.
        """
        return await self._operations.cleanup(time.time() - older_than)

    async def aclose(self) -> None:
        """Close the connections; the next call of a method opens new connections."""
        await self._operations.aclose()


def _check_id(chat_id: str) -> str:
    if not isinstance(chat_id, str) or not _ID.fullmatch(chat_id):  # pyright: ignore
        raise UsageError(
            f"chat_id={chat_id!r} must be 1 to 64 characters from A-Z, a-z, 0-9, '_' and '-'"
        )
    return chat_id
