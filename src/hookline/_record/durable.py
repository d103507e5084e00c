"""The runtime of durable chats, over a journal: `Agent(runtime=Durable())`.

The chat of a job is durable. A chat inside one of its steps, such as a sub-agent's chat, is a part
of that step. All other chats of the agent are local.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Final, TypeVar, TypeVarTuple

from hookline._base.errors import UsageError
from hookline._base.messages import UserMessage
from hookline._base.returns import ApprovalRequest, Approve, Decision, Deny, When
from hookline._record.journal import CURRENT, IN_STEP, Journal
from hookline._record.runtime import LOCAL, Journaled, Json, Key, LocalRuntime, Returns, Runtime

T = TypeVar("T")
Args = TypeVarTuple("Args")
_DECISION: Final[Json[Approve | Deny]] = Json(Approve | Deny)
_REQUEST: Final[Json[ApprovalRequest]] = Json(ApprovalRequest)


class _Lock:
    """A lock for parallel jobs; a job that waits for it does not count as running.

    The job that leaves the lock hands it to the next one, which counts again from then on.
    """

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._locked = False
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def __aenter__(self) -> None:
        if not self._locked:
            self._locked = True
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        self._journal.jobs -= 1
        self._journal.look()
        self._journal.poke()
        try:
            await turn
        except BaseException:
            if turn.cancelled():
                self._journal.jobs += 1
            else:
                self._leave()
            raise

    async def __aexit__(self, *exc: object) -> None:
        self._leave()

    def _leave(self) -> None:
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                self._journal.jobs += 1
                turn.set_result(None)
                return
        self._locked = False


class _OfChat(LocalRuntime):
    """The runtime of one durable chat."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self.life = journal.life
        self.answers = True

    def for_chat(self, chat: Journaled) -> Runtime:
        """Return the local runtime, because a chat inside a step is a part of that step."""
        return LOCAL

    def step(
        self,
        key: Key,
        fn: Callable[[*Args], Awaitable[T]],
        returns: Returns[T],
        /,
        *args: *Args,
    ) -> Awaitable[T]:
        """Run the step once across all lives, unless a life ends before it is recorded."""
        return self._journal.step(key, lambda: fn(*args), returns)

    def wait(
        self, key: Key, request: ApprovalRequest, ask: Callable[[], Awaitable[Decision | None]], /
    ) -> Awaitable[Decision]:
        """Return the approver's answer, or without an approver that of the engine's client."""
        journal = self._journal

        async def answer() -> Decision:
            decision = await ask()
            if decision is not None:
                return decision
            # The engine gets the question as it is recorded, without lone surrogates.
            return await journal.ask(_REQUEST.decode(_REQUEST.encode(request)))

        return journal.step(key, answer, _DECISION)

    async def gather(self, jobs: Sequence[Callable[[], Awaitable[None]]], /) -> None:
        """Run the jobs in parallel, and tell the journal how many there are."""
        journal, remaining = self._journal, len(jobs)

        async def one(job: Callable[[], Awaitable[None]]) -> None:
            nonlocal remaining
            try:
                await job()
            finally:
                remaining -= 1
                if remaining:  # the last job makes way for the caller, which then goes on
                    journal.jobs -= 1
                    journal.look()
                    journal.poke()

        journal.jobs += remaining - 1  # the caller waits meanwhile
        await super().gather([partial(one, job) for job in jobs])

    def lock(self) -> AbstractAsyncContextManager[None]:
        """Return a lock that tells the journal which jobs wait for it."""
        return _Lock(self._journal)

    def has_begun(self, key: Key) -> bool:
        """Whether the step has begun in an earlier life."""
        return self._journal.has_begun(key)

    def has_passed(self, key: Key) -> bool:
        """Whether the record goes on past the place of this step."""
        return self._journal.has_passed(key)

    async def messages(self) -> Sequence[tuple[UserMessage, When]]:
        """Return the messages that clients have sent into the chat since the last call."""
        return () if self._journal.receive is None else await self._journal.receive()

    def now(self) -> float:
        """Return seconds since the epoch; outside of steps, every life gets the same value."""
        return super().now() if IN_STEP.get() else self._journal.now()


class Durable(LocalRuntime):
    """`Agent(runtime=Durable())`: chats that an engine runs are durable; other chats are local."""

    def new_id(self) -> str:
        """Return the id of the job's chat; if that chat has already begun, return a new id."""
        journal = CURRENT.get()
        if journal is None or journal.chat is not None or IN_STEP.get():
            return super().new_id()
        return journal.chat_id

    def for_chat(self, chat: Journaled) -> Runtime:
        """Return the chat's runtime; raises UsageError for a second chat in one job."""
        journal = CURRENT.get()
        if journal is None or IN_STEP.get():
            return LOCAL
        if chat.chat_id != journal.chat_id or journal.chat is not None:
            raise UsageError(
                f"chat {chat.chat_id!r} began in the job of durable chat {journal.chat_id!r}, but "
                "a job runs only one chat; start other chats in a tool, or outside the job"
            )
        journal.begin(chat)
        return _OfChat(journal)
