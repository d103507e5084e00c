"""The client of durable chats for all engines: it starts, answers, aborts and awaits chats."""

from __future__ import annotations

import asyncio
import os
import re
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, Protocol

import msgspec

from hookline import ApprovalRequest, Approve, Deny, Limits, Response, Settings, UserMessage
from hookline.durable._job import (
    Decision,
    Job,
    aborted_outcome,
    encode_decision,
    encode_job,
    read_decision,
    read_outcome,
)
from hookline.durable._status import ChatStatus, Operated, Query, State, check_query
from hookline.errors import ApprovalError, UsageError
from hookline.points import as_tuple

_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_request: Final = msgspec.json.Decoder(ApprovalRequest)


class Board(Protocol):
    """The operations of an engine; all texts are JSON."""

    async def add(self, id: str, job: str, /) -> object:
        """Add a job; has no effect if a job with this id exists."""
        ...

    async def result(self, id: str, /) -> str:
        """Wait for the outcome of a job; raises UsageError if there is no job with this id."""
        ...

    async def questions(self, id: str, /) -> list[str]:
        """Return the questions that wait for an answer; raises UsageError for an unknown job."""
        ...

    async def answer(self, id: str, answers: dict[str, str], /) -> str | None:
        """Answer all questions or none; returns the first id that is not pending.

        Raises UsageError if there is no job with this id.
        """
        ...

    async def abort(self, id: str, reason: str, /) -> bool:
        """Request an abort; False if the job is done. Raises UsageError for an unknown job."""
        ...

    async def aclose(self) -> None:
        """Close the connections."""
        ...


class Client:
    """Starts, answers, aborts and awaits durable chats by their ids, from any process."""

    def __init__(self, board: Board) -> None:
        self._board = board

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
    ) -> str:
        """Start a chat and return its id. If the `chat_id` already exists, nothing is started.

        All arguments must be JSON data. `agent` is the name of the agent whose workers may run the
        chat; without it, any worker may. `model` is a name. `hooks` are ids of hooks that the agent
        knows. `deps` is converted by the worker's function `deps=`. Raises UsageError for other
        arguments.
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
        )
        id = os.urandom(10).hex() if chat_id is None else _checked(chat_id)
        await self._board.add(id, encode_job(job))
        return id

    async def pending(self, chat_id: str) -> tuple[ApprovalRequest, ...]:
        """Return the approvals that a chat is waiting for.

        Raises UsageError for an id that no chat can have.
        """
        questions = await self._board.questions(_checked(chat_id))
        return tuple([_request.decode(text) for text in questions])

    async def answer(self, chat_id: str, answers: Mapping[str, Decision]) -> None:
        """Answer pending approvals: `{approval_id: Approve() | Deny("why")}`.

        Raises ApprovalError if an approval is not pending, or was answered before. After this
        error, none of the answers counts. Raises UsageError for an id that no chat can have.
        """
        for id, decision in answers.items():
            if not isinstance(decision, (Approve, Deny)):  # pyright: ignore
                raise ApprovalError(
                    f"the answer to {id!r} must be Approve() or Deny(), not {decision!r}"
                )
        encoded: dict[str, str] = {}
        for id, decision in answers.items():
            try:
                encoded[id] = encode_decision(decision)
                read_decision(encoded[id])  # what no worker can read would break the chat
            except (TypeError, ValueError, msgspec.MsgspecError) as exc:
                raise ApprovalError(
                    f"the answer to {id!r} cannot be stored: {exc}; pass JSON as the arguments of "
                    "Approve, and text as the reason of Deny"
                ) from exc
        wrong = await self._board.answer(_checked(chat_id), encoded)
        if wrong is not None:
            raise ApprovalError(
                f"chat {chat_id!r} has no pending approval {wrong!r}: the approval was "
                "answered or has expired, or the chat is over; look at pending()"
            )

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
            if await self._operated.discard(_checked(chat_id), outcome):
                return True
        return await self._board.abort(_checked(chat_id), text)

    async def result(
        self,
        chat_id: str,
        *,
        timeout: float | None = None,  # noqa: ASYNC109
    ) -> Response:
        """Wait for the response, at most `timeout` seconds.

        Raises ChatAbortedError if the chat was aborted, RemoteChatError if it failed or is
        quarantined, TimeoutError, UsageError if there is no chat with this id, and StoreError if
        the engine is not reachable.
        """
        async with asyncio.timeout(timeout):
            return read_outcome(await self._board.result(_checked(chat_id)))

    # ── of operators ────────────────────────────────────────────────────────────────────────

    @property
    def _operated(self) -> Operated:
        if not isinstance(self._board, Operated):
            raise UsageError(
                f"{type(self)!r} cannot list, end or delete the chats on Restate; use Restate's "
                "own program, as in `restate invocations list`, or its user interface"
            )
        return self._board

    async def list(
        self,
        *,
        state: State | None = None,
        agent: str | None = None,
        older_than: float | None = None,
        limit: int = 100,
    ) -> tuple[ChatStatus, ...]:
        """Return the chats that match, the oldest first.

        `older_than` is the age of the chats in seconds, counted from their start. Raises UsageError
        for a wrong state or limit, and on Restate, which has its own program for this.
        """
        before = None if older_than is None else time.time() - older_than
        query = check_query(Query(state=state, agent=agent, before=before, limit=limit))
        return tuple(await self._operated.chats(query))

    async def status(self, chat_id: str) -> ChatStatus:
        """Return the state of a chat. Raises UsageError for an unknown chat, and on Restate."""
        for status in await self._operated.chats(Query(id=_checked(chat_id))):
            return status
        raise UsageError(f"there is no durable chat {chat_id!r} here; start it first")

    async def retry(self, chat_id: str) -> None:
        """Queue a quarantined chat again, with no deaths.

        Raises UsageError if the chat is not quarantined, and on Restate.
        """
        if not await self._operated.retry(_checked(chat_id)):
            raise UsageError(f"chat {chat_id!r} is not quarantined; look at status({chat_id!r})")

    async def delete(self, chat_id: str) -> None:
        """Delete a chat that is over, with its outcome and its input.

        Raises UsageError if the chat is not over, and on Restate.
        """
        if not await self._operated.delete(_checked(chat_id)):
            raise UsageError(f"chat {chat_id!r} cannot be deleted before it is over; use abort()")

    async def cleanup(self, *, older_than: float) -> int:
        """Delete the chats that ended more than `older_than` seconds ago; returns their number.

        Quarantined chats stay. Raises UsageError on Restate, which has `retention=`.
        """
        return await self._operated.cleanup(time.time() - older_than)

    async def aclose(self) -> None:
        """Close the connections; the next call of a method opens new connections."""
        await self._board.aclose()


def _checked(chat_id: str) -> str:
    if not isinstance(chat_id, str) or not _ID.fullmatch(chat_id):  # pyright: ignore
        raise UsageError(
            f"chat_id={chat_id!r} must be 1 to 64 characters from A-Z, a-z, 0-9, '_' and '-'"
        )
    return chat_id
