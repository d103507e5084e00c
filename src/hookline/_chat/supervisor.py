"""The supervisor of a chat: the one task in which it runs, and everything about its cancellation.

Theory of operation. Scopes, spans, provider streams, hooks and history writes begin and end in one
task, which is never the caller's. The task acquires the conversation, runs the loop, releases the
conversation and settles the result. The caller waits for a future. Cancelling the caller therefore
never interrupts the chat at a random place: the chat is aborted, and the caller waits for its end.

- Abort: the task is cancelled once, and the grace period starts. The loop raises CancelledError.
- Judging: an exception of the loop becomes the verdict, if there is none yet (see `life.py`). Our
  own cancellations are taken back. The cancellations that `task.cancelling()` still counts at the
  end come from other code and are passed on.
- Ending: it runs in a task of its own, which no further cancellation reaches. Its hooks share one
  grace period.
- Rescue: a task that is still running after the grace period is left behind and named in the log.
  A second task carries out the ending in its place. A store that hangs is left behind, too.

Facts about asyncio's cancellation stay in this file and in `_base/cancel.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import Context, ContextVar
from typing import Any
from weakref import ref

from hookline._base.cancel import Cut, finished, shielded, spawn
from hookline._base.errors import ChatAbortedError, HooklineError, StreamInterruptedError
from hookline._base.events import ChatAborted, ChatDone, ChatFailed
from hookline._base.log import log_throw, logger
from hookline._base.returns import ErrorInfo, Response, forget_our_locals
from hookline._chat.channel import Channel
from hookline._chat.ending import end, is_close
from hookline._chat.life import Phase, Sign, Verdict
from hookline._chat.loop import prepare, run
from hookline._chat.reach import tell_of_hooks_left_behind
from hookline._chat.state import Chat, Ending
from hookline._conversations.state import ConversationState
from hookline._hooks.call_rules import OutsideChat
from hookline._hooks.registration import Hook
from hookline._record.runtime import Halted

# Weak, because a task holds its context and a supervisor its task.
_inside: ContextVar[ref[Supervisor] | None] = ContextVar("hookline_supervisor", default=None)


def _running(chat: Chat) -> list[str]:
    """The names of the model and the tools that run now."""
    names: list[str] = chat.step.batch.running if chat.step.batch is not None else []
    tools = [f"tool {name!r}" for name in names]
    return ["the model", *tools] if chat.step.asking else tools


async def _leave(chat: Chat) -> None:
    """Write the remaining changes and release the conversation."""
    try:
        await chat.conversation.leave(chat.chat_id)
    finally:
        chat.conversation.release(chat.chat_id)


def _stuck_in(coro: Any) -> str:
    """The name of the hook or the store that a task is waiting for, for a log message."""
    place = "a hook"
    while coro is not None:
        if getattr(coro, "cr_code", None) in _STORE_CALLS:
            return "the store"
        frame = getattr(coro, "cr_frame", None)
        # Each function that calls a hook has it in a local variable of this name.
        hook = frame.f_locals.get("hook") if frame is not None else None
        if isinstance(hook, Hook):
            place = f"hook {hook.name!r} at {hook.spec.name}"
        coro = getattr(coro, "cr_await", None)
    return place


class Supervisor:
    """Owns the task of one chat."""

    __slots__ = (
        "__weakref__",
        "_cancels",
        "_finishing",
        "_halted",
        "_is_running",
        "_rescuer",
        "_timer",
        "_waiters",
        "around",
        "channel",
        "chat",
        "error",
        "is_over",
        "loop",
        "response",
        "task",
    )

    def __init__(self, chat: Chat, channel: Channel | None) -> None:
        self.chat = chat
        self.channel = channel
        self.is_over = False
        self.response: Response | None = None
        self.error: BaseException | None = None  # for the caller
        self._is_running = False  # the task has begun to run
        self._cancels = 0  # our own cancellations
        self._finishing = False  # the ending runs, within its grace period
        self._halted: Halted | None = None  # this life of the chat is over
        self._timer: asyncio.TimerHandle | None = None
        self._rescuer: asyncio.Task[None] | None = None  # ends the chat of a task that is stuck
        self._waiters: tuple[asyncio.Future[None], ...] = ()

    def start(self, context: Context | None = None) -> None:
        """Begin the chat, in this event loop and in a copy of the caller's context."""
        self.around = _inside.get()  # the chat inside which this one was begun
        outer = self.around() if self.around is not None else None
        if outer is not None:
            tell_of_hooks_left_behind(self.chat, outer.chat)
        self.loop = asyncio.get_running_loop()
        self.chat.supervisor = self
        self.task = spawn(self._main(), context)
        self.task.add_done_callback(self._done, context=context)

    def is_here(self) -> bool:
        """Whether the chat's event loop is the running one."""
        try:
            return asyncio.get_running_loop() is self.loop
        except RuntimeError:  # outside of any
            return False

    def cancelled(self) -> bool:
        """Whether the chat's task is being cancelled."""
        return self.task.cancelling() > 0

    def holds_caller(self) -> bool:
        """Whether the caller runs inside this chat, or inside a chat that this chat has begun."""
        inside = _inside.get()
        while inside is not None:
            supervisor = inside()
            if supervisor is self:
                return True
            inside = supervisor.around if supervisor is not None else None
        return False

    @property
    def left_behind(self) -> bool:
        """Whether the task is stuck, and the rescuer ends the chat."""
        return self._rescuer is not None

    @property
    def _cancelled_by_others(self) -> bool:
        """Whether other code has cancelled the task."""
        return self.task.cancelling() > self._cancels

    def _done(self, task: asyncio.Task[None]) -> None:
        """Settle the chat if its task was cancelled before its first step, or at its last event."""
        if not (self.is_over or self.left_behind):
            self.error = asyncio.CancelledError()
            self._settle()
        progress = self.chat.progress
        raised, progress.raised = progress.raised, None
        if raised and not self.left_behind:  # one left behind may still need its frames
            for exc in raised:
                forget_our_locals(exc)

    async def _main(self) -> None:
        chat = self.chat
        task = asyncio.current_task()
        assert task is not None
        self.task = task  # before `start` sets it, if the loop begins its tasks eagerly
        self._is_running = True
        _inside.set(ref(self))
        try:
            chat.check()
            chat.conversation.acquire(chat.chat_id)
            try:
                await prepare(chat)
                await run(chat, self)
            finally:
                # Before the last event: its reader may begin the next chat of the conversation.
                await self.let_go()
        except (Exception, asyncio.CancelledError) as exc:
            if self._halted is not None:
                self._exit(self._halted)
            elif not self.left_behind:
                self.error = exc
        except BaseException as exc:
            self._exit(exc)
        if self._halted is None and not self.left_behind:
            await self._publish_last()
            self._settle()
            if self._cancelled_by_others:
                raise asyncio.CancelledError

    def _exit(self, exc: BaseException) -> None:
        """End this life for Halted or an exit of the process; the exit is raised again."""
        self.chat.life.move(Sign.HALT)
        if not self.is_over:
            self.error = self._halted or exc
            self._settle()
        if not isinstance(exc, Halted):
            raise exc

    def halt(self, exc: Halted) -> None:
        """Cancel the task and raise this in the caller."""
        self._halted = exc
        ledger = self.chat.conversation.ledger
        if ledger is not None:
            ledger.abandon(self.chat.chat_id)
        self.interrupt()

    # ── for the loop ────────────────────────────────────────────────────────────────────────

    def judge(self, exc: BaseException) -> None:
        """Decide the outcome by an exception of the chat; raise any other exception again."""
        chat, life = self.chat, self.chat.life
        ours = isinstance(exc, (Exception, asyncio.CancelledError))
        if not ours or self.left_behind or self._halted is not None:
            raise exc
        self._stop_timer()
        # Otherwise the ending would run in a task that is being cancelled.
        while self._cancels:
            self._cancels -= 1
            self.task.uncancel()
        if life.phase is Phase.ENDING:
            if not isinstance(exc, asyncio.CancelledError):
                raise exc
            return
        if isinstance(exc, Exception):
            if not life.decide(Verdict(Sign.FAIL, exc)) and exc is not chat.error:
                log_throw(f"chat {chat.chat_id}: an exception after the outcome was decided", exc)
        else:  # ours if there is a verdict; else of other code, or of a wrapper's time limit
            life.decide(Verdict(Sign.CUT, exc, "cancelled"))
        life.move(Sign.CAUGHT)
        self._begin_ending()

    def _begin_ending(self) -> None:
        """Let hooks run again: the chat stays broken, and its ending has a Firing of its own."""
        self.chat.firing = OutsideChat(self.chat.watch, self.chat.deadlines)

    def _stop_timer(self) -> None:
        timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()

    async def finish(self, ending: Ending) -> None:
        """Carry out the ending in a task that our cancellations do not reach."""
        self._finishing = True
        await shielded(self._end(ending))  # a cancellation is found in task.cancelling() at the end
        self._finishing = False
        self._limit_rest()  # of the wrappers at aroundChat

    async def _end(self, ending: Ending) -> None:
        """Carry out the acts one by one. The hooks share one grace period; a longer one is cut off.

        Closing a step may wait for a slow reader and has a grace period of its own.
        """
        grace = self.chat.config.limits.grace
        until = self.loop.time() + grace
        while ending:
            act = ending.popleft()
            task = spawn(act())
            # A moment for each, even if an earlier one has used up the grace period.
            await asyncio.wait([task], timeout=max(0.05, until - self.loop.time()))
            if not task.done():
                stuck = _stuck_in(task.get_coro())
                task.cancel()
                await asyncio.wait([task], timeout=0.05)
                logger.warning(
                    "chat %s: %s ran longer than the grace period at the chat's end and was %s",
                    self.chat.chat_id,
                    stuck,
                    "cancelled" if task.done() else "left behind: it ignored its cancellation",
                )
            elif not task.cancelled() and (exc := task.exception()) is not None:
                if not isinstance(exc, Exception):
                    raise exc
                log_throw(f"chat {self.chat.chat_id}: its ending raised", exc)
            if is_close(act):
                until = self.loop.time() + grace

    # ── aborting ────────────────────────────────────────────────────────────────────────────

    def interrupt(self) -> None:
        """Cancel the running work of a broken chat. Call it from any thread."""
        if self.is_here():
            self._cancel()
        elif not self.loop.is_closed():
            self.loop.call_soon_threadsafe(self._cancel)

    def _cancel(self) -> None:
        # A task that was cancelled before its first step would never run; it checks for the abort
        # itself. An ending is not interrupted.
        if self.task.done() or not self._is_running or self.chat.life.outcome is not None:
            return
        if self._cancels:
            return  # once: a second cancellation would interrupt the tools that clean up
        self._cancels += 1
        self.task.cancel()
        self.hurry()

    def hurry(self) -> None:
        """Start the grace period. Work that still runs when it is over is left behind."""
        if self._timer is None:
            self._timer = self.loop.call_later(self.chat.config.limits.grace, self._rescue)

    def leave(self, reason: str | None) -> None:
        """The caller leaves: abort the chat, or limit its ending if the outcome is decided."""
        # If the outcome is decided, its ending has no limit unless a timer runs or it is `_end`.
        if self.chat.abort(reason) or self.is_over or self._finishing or self._timer is not None:
            return
        self._limit_rest()

    def _limit_rest(self) -> None:
        """Give the work that is left a grace period."""
        self._timer = self.loop.call_later(self.chat.config.limits.grace, self._cut_off)

    def _cut_off(self) -> None:
        """Cancel an ending that hangs after its caller has left."""
        if self.is_over or self._finishing:
            return  # `_end` limits its acts itself
        logger.warning(
            "chat %s: %s ran longer than the grace period at the chat's end and was cancelled",
            self.chat.chat_id,
            _stuck_in(self.task.get_coro()),
        )
        self._cancels += 1
        self.task.cancel()
        self._timer = self.loop.call_later(self.chat.config.limits.grace, self._rescue)

    def _rescue(self) -> None:
        """End the chat without its task, which still runs after the grace period."""
        chat = self.chat
        if self.is_over or self._finishing:
            return
        self._rescuer = spawn(self._rescued())
        what = ", ".join(_running(chat)) or _stuck_in(self.task.get_coro())
        logger.warning(
            "chat %s: %s ignored its cancellation for %g s and is left behind",
            chat.chat_id,
            what,
            chat.config.limits.grace,
        )

    async def _rescued(self) -> None:
        chat = self.chat
        try:
            if chat.life.move(Sign.GRACE_OVER):
                self._begin_ending()
                chat.ending = end(chat)
            # Otherwise the task is stuck in the ending: the acts that it has left are done here.
            if self._halted is None and chat.ending:
                await self._end(chat.ending)
            await self.let_go()
            if self._halted is not None:
                raise self._halted
            await self._publish_last()
            self._settle()
        except BaseException as exc:
            self._exit(exc)

    def report_later(self, name: str, is_over: Callable[[], bool]) -> None:
        """Log the name of a tool if its thread still runs after the grace period."""

        def report() -> None:
            if not is_over():
                logger.warning(
                    "chat %s: %s ignored its cancellation for %g s; its thread is left behind",
                    self.chat.chat_id,
                    f"tool {name!r}",
                    self.chat.config.limits.grace,
                )

        self.loop.call_later(self.chat.config.limits.grace, report)

    # ── the end ─────────────────────────────────────────────────────────────────────────────

    async def let_go(self) -> None:
        """Release the conversation and stop the timer.

        A chat that is done waits for its writes. After an abort, an error or a cancellation, a
        store that hangs gets the grace period.
        """
        chat, conversation = self.chat, self.chat.conversation
        chat.deadlines.close()
        patient = chat.life.outcome == "done" and not self.left_behind
        if not patient:
            self._stop_timer()  # the waits that follow have limits of their own
        if self._halted is not None or conversation.ledger is None:
            conversation.release(chat.chat_id)
            return
        grace = chat.config.limits.grace
        leaving = spawn(_leave(chat))
        cut: Cut = None
        if patient:
            try:
                await asyncio.wait([leaving])
            except asyncio.CancelledError as exc:
                cut = exc
                self._stop_timer()
        _, later = await shielded(leaving, self.loop.time() + grace)
        if not leaving.done():
            logger.warning(
                "chat %s: its store did not answer within %g s; conversation %r is busy until the "
                "store answers",
                *(chat.chat_id, grace, conversation.id),
            )
        cut = later or cut
        if cut is not None:
            raise cut

    async def _publish_last(self) -> None:
        """Publish the one last event, if the chat has begun. A root chat's waits for no room."""
        chat = self.chat
        if chat.life.outcome is None:
            return
        if chat.input.parent is not None:  # the channel is the root chat's, and stays bounded
            try:
                async with asyncio.timeout(chat.config.limits.grace):
                    await chat.room()
            except TimeoutError:
                return  # nobody reads; the parent's call must end all the same
        if chat.life.outcome == "done":
            assert chat.response is not None
            chat.put(ChatDone(chat_id=chat.chat_id, response=chat.response))
        elif chat.life.outcome == "aborted":
            partial = tuple(chat.messages)
            chat.put(ChatAborted(chat_id=chat.chat_id, reason=chat.reason, partial=partial))
        else:
            assert chat.error is not None
            chat.put(ChatFailed(chat_id=chat.chat_id, error=ErrorInfo.of(chat.error)))

    def _settle(self) -> None:
        """Settle the result for the caller and drop our references to the exception."""
        chat, verdict = self.chat, self.chat.life.verdict
        self._stop_timer()
        cut = isinstance(self.error, asyncio.CancelledError)
        if chat.life.outcome == "done":
            self.response = chat.response
            if cut:
                self.error = None  # the answer is whole
        elif cut or self.error is None:
            if chat.life.outcome is None and self._cancelled_by_others:
                verdict = None  # the chat never began, so nobody was told of a verdict
            self.error = (verdict and verdict.failure) or StreamInterruptedError()
        if verdict is not None and verdict.by_reader and isinstance(self.error, ChatAbortedError):
            self.error = None  # its own abort is a normal end
        chat.life.move(Sign.RESULT)
        chat.dispose()
        chat.progress.accept(())  # nobody waits for its approved calls any more
        self.is_over = True
        if self.channel is not None:
            self.channel.end()
        waiters, self._waiters = self._waiters, ()
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    async def join(self) -> None:
        """Wait for the end, even if cancelled; then raise that CancelledError."""
        if self.is_over:
            return
        await finished(self._waiter())

    def _waiter(self) -> asyncio.Future[None]:
        """A future that is done when the chat is over."""
        waiter: asyncio.Future[None] = self.loop.create_future()
        self._waiters = (*self._waiters, waiter)
        return waiter

    async def collect(self) -> Response:
        """Wait for the answer. Cancelling the wait aborts the chat."""
        if not self.is_over:
            try:
                await self._waiter()
            except asyncio.CancelledError:
                above = self.chat.input.parent  # a sub-agent's caller is a tool call of its parent
                broken = above if above is not None and above.broken else None
                self.leave("cancelled" if broken is None else broken.reason)
                await self.join()
                raise
        error, self.error = self.error, None
        if error is not None:
            try:
                raise error
            finally:
                del error
        if self.response is None:
            raise HooklineError(
                "the chat ended without a response: this is a bug in hookline; report it with the "
                "log"
            )
        return self.response


_STORE_CALLS = [
    method.__code__
    for method in (
        ConversationState.take,
        ConversationState.claim,
        ConversationState.write,
        ConversationState.flush,
        ConversationState.change,
        ConversationState.leave,
        Supervisor.let_go,
    )
]
