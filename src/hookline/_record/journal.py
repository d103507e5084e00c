"""One life of a durable chat: replays recorded steps, runs new ones, and records those.

An engine provides one thing, an append-only log for each chat (`Log`). Parallel tools, failures,
aborts and clock readings are lines of the log, so the engine needs nothing deterministic except
"append the next batch". A single writer takes all lines that are ready, appends them as one batch,
and wakes the jobs that wait for those lines.

A later life reads the whole log first. A step that ended is not run again: its recorded value is
returned, in the order in which the steps ended. Nothing new begins until all recorded values have
been returned.

Other code may have written the record. When every running job waits for its turn, the next recorded
end is one that no code asks for, or comes after a step that is new (`look`):

- A new hook's step that comes before it in a chat runs in its place, in the middle of the record.
- The recorded end of a step that only runs hooks is skipped: its effects are applied, and a line is
  logged. Should the step be asked for after all, it gets the recorded value.
- Otherwise this life halts. No model call, tool call or answer begins before the whole record has
  been replayed, so the chat is unchanged, and the code that wrote the record can continue it.

A step that raised has no end, and runs again in the next life, unless another step has begun after
it: the chat ends then, and what its ending writes must not stand beside another result.

A life also halts if it finds a batch that cannot be read or a newer format.
"""

from __future__ import annotations

import asyncio
from asyncio import CancelledError
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextvars import ContextVar
from typing import Final, TypeVar

import msgspec

from hookline._base.cancel import spawn
from hookline._base.errors import JournalError, RemoteChatError
from hookline._base.log import logger
from hookline._base.messages import UserMessage, encoded
from hookline._base.returns import ApprovalRequest, Decision, ErrorInfo, When
from hookline._record.format import Line, Log, Past, Witness, Writer, read_log, refuse
from hookline._record.order import comes_before, is_after, is_hook
from hookline._record.runtime import (
    CALL,
    CHILD_RUN,
    LOCAL,
    MODEL,
    RUN,
    Halted,
    Journaled,
    Key,
    Returns,
    key_name,
)

T = TypeVar("T")
CURRENT: ContextVar[Journal | None] = ContextVar("hookline_journal", default=None)
"""The journal of the job that the current code runs in."""
IN_STEP: ContextVar[bool] = ContextVar("hookline_in_step", default=False)
"""Whether the current code runs inside a step; a chat that begins there is a part of the step."""
GUARDED: Final = frozenset({MODEL, RUN, CHILD_RUN})
"""Steps whose begin is recorded before they run, so that a later life can count the attempts."""
PATIENCE: Final = 60.0
"""Seconds without progress after which a replay counts as stuck."""


class _Result(msgspec.Struct, frozen=True):
    call_id: str | None = None


_result: Final = msgspec.json.Decoder(_Result | None)


class Journal:
    """Records one life of a durable chat in the chat's log."""

    def __init__(self, chat_id: str, log: Log, batches: list[bytes], worker: str = "") -> None:
        """`batches` are the batches of the log; the record names the `worker`, if there is one.

        Raises JournalError.
        """
        self.chat_id = chat_id
        """The chat's id."""
        self.log = log
        """The log that records the chat."""
        lines = read_log(chat_id, batches)
        self.past = Past(lines)
        """The record of earlier lives."""
        self._answered = set(_answered_calls(lines))
        self.number = self.past.lives + 1
        """The number of this life of the chat, counted from 1."""
        unique = LOCAL.new_id()  # two lives may get the same number
        self.life = f"{self.number}.{worker}.{unique}" if worker else f"{self.number}.{unique}"
        """The name of this life in leases."""
        self.chat: Journaled | None = None
        """The chat, once it has begun."""
        self.halted = False
        """Whether this life ended before the chat did."""
        self.replayed: int | None = None
        """The number of the last event before anything new began; None until then."""
        self.jobs = 1
        """The number of jobs of the chat that run in parallel."""
        self._resting = 0  # jobs that wait for an answer
        # Jobs that wait for their turn in the replay, with the name of each new step.
        self._turns: dict[asyncio.Future[None], str | None] = {}
        self._newer: str | None = None  # the new step that may run in the middle of the replay
        self._steps: set[asyncio.Task[object]] = set()  # tasks that are inside of a new step
        self._draining = False  # no step may begin
        self._raised: list[Line] = []  # ends of steps that raised, recorded before the next begin
        self._on_hold: list[asyncio.Future[None]] = []  # jobs whose next step may not begin
        self._unordered = False  # an abort was replayed
        self._aborting: asyncio.Future[None] | None = None  # the first abort
        self.witness: Witness | None = None
        """Shows this chat to readers elsewhere, if set."""
        self.receive: Callable[[], Awaitable[Sequence[tuple[UserMessage, When]]]] | None = None
        """Returns the messages that were sent into the chat since its last call, if set. The first
        call in a life returns all of them: the record knows which were delivered."""
        self.on_call: Callable[[], None] | None = None
        """Is called immediately before a call of the model or a tool, if set."""
        self._writer = Writer(log, self.halt, self._recording, self.poke)
        self._writer.note(Line("life", key=self.life))
        self._failure: BaseException | None = None

    @classmethod
    async def open(cls, chat_id: str, log: Log, worker: str = "") -> Journal:
        """Read the log and begin a life. If this raises JournalError, the chat stays unchanged."""
        return cls(chat_id, log, await log.read(), worker)

    @property
    def resting(self) -> bool:
        """True if all lines are written and all jobs of the chat wait for answers."""
        aborted = self._unordered or self._aborting is not None
        return self._resting >= self.jobs and self._writer.idle and not aborted

    @property
    def seq(self) -> int:
        """The number of the last event of the chat."""
        return 0 if self.chat is None else self.chat.effects(self.chat.mark()).seq

    async def flush(self) -> None:
        """Write all pending lines; after the write, no other life has the same `number`."""
        await self._writer.flush()

    async def _recording(self, seq: int) -> None:
        if self.witness is not None:
            await self.witness.recording(seq)

    def poke(self) -> None:
        """Notify the engine of a change; if the chat rests, also notify the witness."""
        waits = bool(self._on_hold or self._resting) and len(self._steps) == self._resting
        if self._draining and waits and self._writer.idle:  # no step runs
            self.halt()
        self.log.poke()
        if self.witness is not None and self.resting and not self.halted:
            self.witness.rests()

    async def carry(self, chat: Callable[[], Awaitable[T]]) -> T:
        """Run the chat that the function `chat` starts, and record the chat until it ends.

        Raises the exceptions of the chat. If this life ends before the chat ends, raises Halted or
        the exception that halted this life.
        """
        writer = spawn(self._writer.run())
        token = CURRENT.set(self)
        try:
            value = await chat()
            while self.past.next is not None and not self._unordered and not self.halted:
                self._skip_or_halt()
            self.check()
            await self._writer.flush()
            return value
        except Halted:
            raise self._failure or Halted() from None
        finally:
            CURRENT.reset(token)
            self._writer.stop()  # an abort that comes now would wait for its line forever
            writer.cancel()
            await asyncio.wait([writer])  # `await writer` would raise the writer's cancellation

    async def abort(self, reason: str | None = None) -> None:
        """Record an abort that was requested from outside, then abort the chat.

        Meanwhile, no step begins. Later lives replay the abort, unless the abort came too late.
        """
        if self._aborting is not None:
            return
        self._aborting = asyncio.get_running_loop().create_future()
        line = Line("abort", reason=reason)
        await self._writer.write(line)
        self.check()  # a life can end between the write and its caller
        if self.past.abort is None:
            # A replay reaches the abort after everything recorded so far, as in every later life.
            self.past.abort, self.past.abort_at = line, self.past.total
            self._abort_in_its_place()
        self._aborting.set_result(None)

    def interrupt(self, message_id: str) -> None:
        """Cancel the running tools that an Interrupt may cancel, for a message with this id."""
        if self.chat is not None and not self.halted:
            self.chat.interrupt_tools(message_id)

    def drain(self) -> None:
        """Begin no new steps, and end this life once no step runs, unless the chat ends first."""
        self._draining = True
        self.poke()

    async def _hold(self) -> None:
        """Wait until this life has ended: the next step belongs to the next life."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._on_hold.append(turn)
        self.poke()
        try:
            await turn
        finally:
            self._on_hold.remove(turn)

    def halt(self, failure: BaseException | None = None) -> None:
        """End this life: cancel whatever runs, and raise Halted in everything that waits."""
        if self.halted:
            return
        self.halted = True
        self._failure = failure
        if self.chat is not None:
            self.chat.halt()
        for future in (*self._turns, *self._on_hold, *([self._aborting] if self._aborting else ())):
            refuse(future)
        self._writer.stop()
        for task in self._steps:
            task.cancel()

    # ── replaying and running steps ─────────────────────────────────────────────────────────

    async def step(self, key: Key, fn: Callable[[], Awaitable[T]], returns: Returns[T]) -> T:
        """Return the recorded result of the step, or run the step and record its result.

        Raises Halted if this life has ended. Raises CancelledError if an abort cut off the step.
        """
        self.check()
        chat, name = self.chat, key_name(key)
        assert chat is not None
        entry = self.past.take(name)
        if entry is not None:
            return returns.decode(await self._recorded(*entry))
        before = await self._turn(self.past.total, name)
        if self._aborting is not None:
            await asyncio.wait([self._aborting])
            self.check()
        if self._draining:
            await self._hold()
        await self._write_raised()
        begin = Line("begin", name)
        self.past.begin_counts[name] += 1
        if key[0] in GUARDED:
            await self._writer.write(begin)
            self.check()
            if self.on_call is not None:
                self.on_call()
        else:
            self._writer.note(begin)
        chat.attempt = self.past.begin_counts[name]
        mark = chat.mark()
        try:
            value = await self._inside(fn)
        except CancelledError:
            effects = chat.effects(mark)
            if effects.aborted and not self.halted:
                await self._writer.write(Line("end", name, effects=effects, cut=True))
            self.check()
            raise
        except Exception as exc:
            error = ErrorInfo.of(exc)
            self._raised.append(Line("end", name, effects=chat.effects(mark), error=error))
            raise
        self.check()
        data = msgspec.Raw(returns.encode(value))
        await self._writer.write(Line("end", name, data, chat.effects(mark), before=before))
        return value

    async def _recorded(self, place: int, line: Line) -> bytes:
        """Return the recorded result of a step, or raise its exception, when it is its turn.

        Parallel jobs continue in the order in which their steps ended.
        """
        await self._turn(place)
        if not self.past.was_skipped(place):
            self.past.position += 1
            self._apply(line)
        if line.cut:  # `apply` has repeated the abort
            raise CancelledError("the chat was aborted in this step")
        if line.error is not None:
            raise RemoteChatError(self.chat_id, line.error.type, line.error.message)
        return bytes(line.value)

    async def _write_raised(self) -> None:
        """Record the steps that raised: a later life must not run them beside what follows."""
        if self._raised:
            for line in self._raised:
                self._writer.note(line)
            self._raised = []
            await self._writer.flush()

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
        """Wait until the engine has the answer to a question."""
        if request.id not in self.past.wait_keys:
            await self._writer.write(Line("wait", request.id, msgspec.Raw(encoded(request))))
        self._resting += 1
        self.poke()
        try:
            if self.witness is not None:
                await self.witness.asking()
            return await self.log.answer(request)
        finally:
            self._resting -= 1

    def now(self) -> float:
        """Return the recorded time of an earlier life, or record and return the current time."""
        if self.past.nows:
            return self.past.nows.popleft()
        at = LOCAL.now()
        # If this line is lost, so are all later ones: nothing recorded depends on the time.
        self._writer.note(Line("now", at=at))
        return at

    def has_begun(self, key: Key) -> bool:
        """Whether this step has begun in an earlier life."""
        return key_name(key) in self.past.begin_counts

    def has_passed(self, key: Key) -> bool:
        """Whether the record goes on past the place of this step."""
        name = key_name(key)
        if self._unordered:
            return False
        if key[0] == CALL and key[2] in self._answered:
            return True
        return any(is_after(key, name) for key in self.past.rest)

    def begin(self, chat: Journaled) -> None:
        """Set the chat that this journal records."""
        self.chat = chat
        self._abort_in_its_place()

    def check(self) -> None:
        """Raise Halted if this life has ended."""
        if self.halted:
            raise Halted

    async def _turn(self, place: int, new: str | None = None) -> int | None:
        """Wait until all results that were recorded before this place have been returned.

        A step that is `new` waits for all recorded results. If newer code has a step in the middle
        of the record, the step runs once nothing else can continue; then its place is returned.
        """
        past = self.past
        while past.position < place and not self._unordered:
            turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._turns[turn] = new
            self.look()
            try:
                await self._patiently(turn)
            finally:
                self._turns.pop(turn, None)
            if new is not None and new == self._newer:
                self._newer = None
                return past.insert()
        return None

    def look(self) -> None:
        """If every running job waits for its turn, let a new step run, or skip the next end.

        The head of this module has the rules.
        """
        next_line = self.past.next
        waiting = self._turns and len(self._turns) >= self.jobs and not self._unordered
        if not waiting or next_line is None or self.halted or self._newer is not None:
            return
        for turn, name in self._turns.items():
            if name is None or turn.done():
                continue
            if is_hook(name) and comes_before(name, next_line):
                self._newer = name
                turn.set_result(None)
                return
        self._skip_or_halt()

    def _skip_or_halt(self) -> None:
        """Skip the next recorded end if it is that of hooks; otherwise halt this life."""
        next_line = self.past.next
        assert next_line is not None
        if not is_hook(next_line):
            self._stuck()
            return
        logger.warning(
            "durable chat %s: skipped step %r of its record, which only another version of this "
            "code runs; its effects count",
            self.chat_id,
            next_line,
        )
        self._apply(self.past.skip())

    def _apply(self, line: Line) -> None:
        """Apply the effects of a recorded end, which has been counted as replayed."""
        assert line.effects is not None
        assert self.chat is not None
        self.chat.apply(line.effects)
        self._abort_in_its_place()
        self._wake_turns()

    async def _patiently(self, turn: asyncio.Future[None]) -> None:
        """Wait for the turn, or halt: `look` cannot see a job that waits for something else."""
        count = self.past.position
        while not turn.done():
            _, waiting = await asyncio.wait([turn], timeout=PATIENCE)
            if waiting and self.past.position == count:
                self._stuck()
            count = self.past.position
        turn.result()

    def _stuck(self) -> None:
        """Halt, because no code asks for the next recorded end: other code recorded it."""
        why = (
            f"its log has a result of step {self.past.next!r}, but this code does not run that "
            "step next; run the code that recorded it"
        )
        self.halt(JournalError(self.chat_id, why))

    def _abort_in_its_place(self) -> None:
        past = self.past
        if past.abort is not None and past.position >= past.abort_at and self.chat is not None:
            abort, past.abort = past.abort, None
            self._unordered = True
            if not self.chat.abort(abort.reason):
                self._writer.note(Line("late"))
        if self.replayed is None and (past.position >= past.total or self._unordered):
            self.replayed = self.seq

    def _wake_turns(self) -> None:
        for turn in self._turns:
            if not turn.done():
                turn.set_result(None)
        self._turns = {}  # at once, because `look` counts the jobs that wait


def _answered_calls(lines: Iterable[Line]) -> Iterator[str]:
    """The ids of the calls whose results are recorded messages."""
    for line in lines:
        result = _result.decode(line.value) if line.key.startswith("message/") else None
        if result is not None and result.call_id is not None:
            yield result.call_id
