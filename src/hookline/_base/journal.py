"""One life of a durable chat: it replays what is recorded, runs what is new, and records that.

An engine is asked for one thing, an append-only log for each chat (`Log`). Tools that run side by
side, failures, aborts and clocks are lines of it, so nothing has to be deterministic for the engine
but "the next batch". One writer takes whatever lines are there, appends them as one batch, and lets
those go on who wait for them.

A later life reads the whole log first. A step that ended is not run again: it gives its value back,
in the order in which the steps had ended. Nothing new begins before all that is recorded was given,
but a step of newer code, which runs where it stands once nothing else can go on. What a life cannot
go on with halts it and leaves the chat as it is: a batch that cannot be read, a newer format, an
end that no code asks for.
"""

from __future__ import annotations

import asyncio
from asyncio import CancelledError
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import Final, TypeVar

import msgspec

from hookline._base.cancel import spawn
from hookline._base.errors import JournalError
from hookline._base.record import Line, Log, Past, Writer, rank_of, read_lines, refuse
from hookline._base.returns import ApprovalRequest, Decision
from hookline._base.runtime import LOCAL, MODEL, RUN, Halted, Journaled, Key, key_name

T = TypeVar("T")
CURRENT: ContextVar[Journal | None] = ContextVar("hookline_journal", default=None)
"""The journal in whose job we are."""
IN_STEP: ContextVar[bool] = ContextVar("hookline_in_step", default=False)
"""Whether we are inside of a step: what begins there is a part of it."""
GUARDED: Final = frozenset({MODEL, RUN})
"""Steps whose begin is durable before they run, so that a later life knows of each attempt."""
PATIENCE: Final = 60.0
"""Seconds without progress after which a replay counts as stuck."""


class Journal:
    """One life of one chat, over its log."""

    def __init__(self, chat_id: str, log: Log, batches: list[bytes]) -> None:
        """`batches` is what the log gave to be read. Raises JournalError."""
        self.chat_id = chat_id
        """The chat's id."""
        self.log = log
        """Where it is kept."""
        self.past = Past(read_lines(chat_id, batches))
        """What earlier lives have recorded."""
        self.number = self.past.lives + 1
        """Which life of the chat this is, counted from 1."""
        self.life = f"{self.number}.{LOCAL.new_id()}"  # two may count the same number
        """Names this life in leases."""
        self.chat: Journaled | None = None
        """The chat, once it has begun."""
        self.halted = False
        """Whether this life is over before the chat is."""
        self.jobs = 1
        """How much of the chat goes on side by side."""
        self._resting = 0  # jobs that wait for an answer
        # Jobs that wait for their place in the replay, with the name of a new step.
        self._turns: dict[asyncio.Future[None], str | None] = {}
        self._newer: str | None = None  # the one that may run in the middle of it
        self._steps: set[asyncio.Task[object]] = set()  # tasks that are inside of a new step
        self._unordered = False  # an abort was given back
        self._aborting: asyncio.Future[None] | None = None  # one is being written: nothing begins
        self._writer = Writer(log, self.halt)
        self._writer.note(Line("life", key=self.life))
        self._failure: BaseException | None = None

    @classmethod
    async def open(cls, chat_id: str, log: Log) -> Journal:
        """Read the log and begin a life. Raises JournalError, and leaves the chat as it is."""
        return cls(chat_id, log, await log.read())

    @property
    def resting(self) -> bool:
        """Nothing is to be written, and all of the chat waits for answers."""
        return self._resting >= self.jobs and self._writer.idle

    def before_append(self, do: Callable[[], Awaitable[None]]) -> None:
        """Await this before each batch: what is recorded was shown, where a relay shows it."""
        self._writer.before = do

    async def carry(self, chat: Callable[[], Awaitable[T]]) -> T:
        """Run the chat that this function begins, and write its record until it ends.

        Raises what the chat raises; Halted, or what has halted it, where this life is over and the
        chat is not.
        """
        writer = spawn(self._writer.run())
        token = CURRENT.set(self)
        try:
            value = await chat()
            if self.past.next is not None and not self._unordered:
                self._stuck()
            self.check()
            await self._writer.flush()
            return value
        except Halted:
            raise self._failure or Halted() from None
        finally:
            CURRENT.reset(token)
            writer.cancel()
            await asyncio.wait([writer])

    async def abort(self, reason: str | None = None) -> None:
        """Abort the chat from outside: recorded first, so that a later life aborts there too.

        No step begins meanwhile. One that comes too late is recorded as that.
        """
        if self._aborting is not None:
            return
        self._aborting = asyncio.get_running_loop().create_future()
        await self._writer.write(Line("abort", reason=reason))
        if self.chat is not None and not self.chat.abort(reason):
            self._writer.note(Line("late"))
        self._aborting.set_result(None)

    def halt(self, failure: BaseException | None = None) -> None:
        """This life is over: whatever runs is cancelled, and everybody who waits gets Halted."""
        if self.halted:
            return
        self.halted = True
        self._failure = failure
        if self.chat is not None:
            self.chat.halt()
        held = () if self._aborting is None else (self._aborting,)
        for future in (*held, *self._turns):
            refuse(future)
        self._writer.stop()
        for task in self._steps:
            task.cancel()

    # ── replaying and running steps ─────────────────────────────────────────────────────────

    async def step(
        self,
        key: Key,
        fn: Callable[[], Awaitable[T]],
        encode: Callable[[T], bytes],
        decode: Callable[[bytes], T],
    ) -> T:
        """Give what the step gave before, or run it and record what it gives.

        Raises Halted where this life is over, and CancelledError where an abort had cut the step.
        """
        self.check()
        chat, name = self.chat, key_name(key)
        assert chat is not None
        found = self.past.take(name)
        if found is not None:
            place, line = found
            await self._turn(place)
            assert line.effects is not None
            chat.apply(line.effects)
            self._gave()
            if line.cut:
                raise CancelledError("the chat was aborted in this step")
            return decode(bytes(line.value))
        before = await self._turn(self.past.total, name)
        if self._aborting is not None:
            await asyncio.wait([self._aborting])
            self.check()
        begin = Line("begin", name)
        self.past.begun[name] += 1
        if key[0] in GUARDED:
            await self._writer.write(begin)
            self.check()
        else:
            self._writer.note(begin)
        chat.attempt = self.past.begun[name]
        mark = chat.mark()
        try:
            value = await self._inside(fn)
        except CancelledError:
            effects = chat.effects(mark)
            if effects.aborted and not self.halted:
                await self._writer.write(Line("end", name, effects=effects, cut=True))
            self.check()
            raise
        self.check()
        data = msgspec.Raw(encode(value))
        await self._writer.write(Line("end", name, data, chat.effects(mark), before=before))
        return value

    async def _inside(self, fn: Callable[[], Awaitable[T]]) -> T:
        task = asyncio.current_task()
        assert task is not None
        token = IN_STEP.set(True)
        self._steps.add(task)
        try:
            return await fn()
        finally:
            self._steps.discard(task)
            IN_STEP.reset(token)

    async def ask(self, request: ApprovalRequest) -> Decision:
        """Wait for the engine's answer to a question."""
        if request.id not in self.past.asked:
            await self._writer.write(Line("wait", request.id))
        self._resting += 1
        self.log.poke()
        try:
            return await self.log.answer(request)
        finally:
            self._resting -= 1

    def now(self) -> float:
        """What the clock says, or said at this place in an earlier life."""
        nows = self.past.nows
        if nows:
            return nows.popleft()
        at = LOCAL.now()
        self._writer.note(Line("now", at=at))
        return at

    def begin(self, chat: Journaled) -> None:
        """The chat that this is the journal of."""
        self.chat = chat
        self._abort_in_its_place()

    def check(self) -> None:
        """Raises Halted where this life is over."""
        if self.halted:
            raise Halted

    async def _turn(self, place: int, new: str | None = None) -> int | None:
        """Wait until all that was recorded before this place was given back.

        A step that is `new` waits for all of it. One that stands in the middle of what is recorded,
        since the code is newer, runs there when nothing else can go on: then its place is given.
        """
        past = self.past
        while past.given < place and not self._unordered:
            turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._turns[turn] = new
            self.look()
            try:
                await self._patiently(turn)
            finally:
                self._turns.pop(turn, None)
            if new is not None and new == self._newer:
                self._newer = None
                return past.given
        return None

    def look(self) -> None:
        """Where all that goes on waits for its turn, let a newer step run, or give up."""
        if len(self._turns) < self.jobs or self.halted or self._newer is not None:
            return
        ahead = self.past.next
        last = None if ahead is None else rank_of(ahead)
        for turn, name in self._turns.items():
            if name is not None and not turn.done():
                rank = rank_of(name)
                if last is None or rank is None or rank <= last:
                    self._newer = name
                    turn.set_result(None)
                    return
        self._stuck()

    async def _patiently(self, turn: asyncio.Future[None]) -> None:
        given = self.past.given
        while not turn.done():
            _, waiting = await asyncio.wait([turn], timeout=PATIENCE)
            if waiting and self.past.given == given:
                self._stuck()
            given = self.past.given
        turn.result()

    def _stuck(self) -> None:
        """Nobody asks for the end that is next: the code is not the one that recorded it."""
        self.halt(
            JournalError(
                self.chat_id,
                f"its log has an end of step {self.past.next!r}, which this code does not ask for: "
                "a hook or tool was removed",
            )
        )

    def _gave(self) -> None:
        self.past.given += 1
        self._abort_in_its_place()
        self._wake_turns()

    def _abort_in_its_place(self) -> None:
        past = self.past
        if past.abort is not None and past.given == past.abort_at and self.chat is not None:
            abort, past.abort = past.abort, None
            self._unordered = True
            self.chat.abort(abort.reason)

    def _wake_turns(self) -> None:
        turns, self._turns = self._turns, {}
        for turn in turns:
            if not turn.done():
                turn.set_result(None)
