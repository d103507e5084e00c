"""The tool calls of one answer: decided one by one, run side by side, written in the model's order.

Theory of operation. A batch takes its calls in groups. A group holds the calls that may run at the
same time; a call that must run alone is a group of its own. For each group:

1. Look up the tools (`_next_group`). Run preToolCall for each call in order, then announce the
   calls in order (`_decide`).
2. Ask the questions. A call is parked if its answer or its client's result will come in a later
   chat. Calls that must run alone wait for it; other calls overtake it.
3. Complete the calls that are not parked. If there are several and one may wait, each gets a task
   of its own. Wait for the approver and run the handler (`_run`). Then, one call at a time, run
   the result's hooks, publish its event, and write the messages whose turn has come (`_finish`).

A call that has an answer before its function is called (denied, answered, unknown, bad arguments,
stopped) never runs. Calls past `Limits.tool_calls` are refused in one pass at the end. The only
shared state is the state of each call (`call.py`). After each wait, the call checks the chat
again, since another call may have ended it. When the chat ends in the middle of a batch, `close`
gives each call without a message its one result.
"""

from __future__ import annotations

from asyncio import CancelledError
from collections import deque
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager, suppress
from functools import partial
from typing import Any, Final

import msgspec

from hookline._base.errors import ToolArgumentsError, ToolLimitError, UnknownToolError
from hookline._base.events import ToolCallFinished, ToolCallStarted
from hookline._base.json import NotJson, to_json_data
from hookline._base.messages import RanCall, ToolCall, ToolMessage
from hookline._base.returns import Ask, Deny, Stop, ToolFailure, ToolResult
from hookline._chat.approval import decide, prepare, put, seal
from hookline._chat.call import (
    ASKED,
    AWAY,
    PARKED,
    PROPOSED,
    READY,
    REPORTED,
    RUNNING,
    SETTLED,
    SETTLING,
    WAITING,
    WRITING,
    WRITTEN,
    CallRun,
    CallVerdict,
)
from hookline._chat.commit import commit, write_now, write_past_hooks
from hookline._chat.guards import STOPPED, ask_guards, before_call
from hookline._chat.request import foreign_names, lookup
from hookline._chat.results import as_data, settle, worded
from hookline._chat.run_tool import RAN, admit, run_handler
from hookline._chat.state import Chat
from hookline._conversations.store import PendingStep
from hookline._hooks.call_rules import intercept
from hookline._hooks.points import END, KEEP
from hookline._hooks.registration import Hook
from hookline._model.model import ModelRequest
from hookline._record.runtime import CALL, RUN, Json

_CALL_VERDICT: Json[CallVerdict] = Json(CallVerdict)
ABORTED: Final = ToolFailure("not finished: the chat ended", type="Aborted")
UNSEEN: Final = ToolFailure(
    "the call ran; the chat ended before its result was saved", type="Aborted"
)


class ToolBatch(msgspec.Struct, kw_only=True, eq=False):
    """The tool calls of one answer, in the model's order."""

    chat: Chat
    iteration: int
    request: ModelRequest | None  # of this step, as sent
    runs: list[CallRun]
    stop: Stop | None = None  # the chat ends after this step
    stopping: bool = False  # after a Stop: no further handler starts
    written: int = 0  # all calls before this place are written or parked
    overtaken: bool = False  # one of these is parked, so later results are out of order

    def find(self, call_id: str) -> ToolCall | None:
        """The call with that id, as hooks have left it."""
        return next((run.wanted for run in self.runs if run.id == call_id), None)

    @property
    def running(self) -> list[str]:
        """The names of the tools that run now."""
        return [run.wanted.name for run in self.runs if run.state is RUNNING and run.ran]

    @property
    def results(self) -> tuple[ToolMessage, ...]:
        """The committed messages, in the model's order."""
        done = [run.message for run in self.runs if run.state is WRITTEN]
        return tuple([message for message in done if message is not None])

    async def run(self) -> bool:
        """Run the calls to their results; return False if some wait for an answer."""
        limit = self.chat.config.limits.tool_calls
        todo = self._open(limit)
        while todo and (group := self._next_group(todo)):
            await self._decide(group)
            if self.stopping:  # stop the waiting calls and all later calls, too
                group = self._open(limit)
                todo.clear()
                await self._decide(group)
            for run in group:
                if run.state is ASKED:
                    await put(self.chat, self.iteration, run)
            await self._complete_all([run for run in group if run.state not in PARKED])
        if not todo and len(self.runs) > limit:  # a later chat may still have calls before these
            await self._refuse_surplus(self.runs[limit:])
        if _parked(self.runs):
            return False
        self.chat.making.batch = None
        return True

    def _open(self, limit: int) -> deque[CallRun]:
        """The calls up to the limit that are not written yet."""
        return deque([run for run in self.runs[:limit] if run.state is not WRITTEN])

    def _next_group(self, todo: deque[CallRun]) -> Sequence[CallRun]:
        """Take the next calls that may run at the same time, or one call that must run alone.

        The group is empty if the next call must not overtake a call that waits.
        """
        group: list[CallRun] = []
        while todo:
            run = todo[0]
            self._look_up(run)
            tool = run.tool
            alone = not self.chat.config.parallel_tools or (tool is not None and not tool.parallel)
            if alone and (group or _parked(self.runs[: run.place])):
                break
            group.append(todo.popleft())
            if alone:
                break
        return group

    def _look_up(self, run: CallRun) -> None:
        """Look up the call's tool, as late as possible, since scopes may change.

        A call that was asked about keeps its tool; `admit` checks whether the tool is still there.
        """
        if run.request is None:
            found = lookup(self.chat, self.request, run.wanted.name)
            run.tool, run.scope, run.offered = found or (None, None, False)

    # ── before the handler ──────────────────────────────────────────────────────────────────

    async def _decide(self, group: Sequence[CallRun]) -> None:
        """Decide in order whether the calls may run, then announce them."""
        verdicts: list[tuple[CallRun, CallVerdict]] = []
        for run in group:
            if run.state is PROPOSED:
                verdicts.append((run, await self._verdict(run)))
        # Announced only now: if a hook raises, no call of the group looks as if it had begun.
        for run, verdict in verdicts:
            run.wanted = verdict.call  # a replayed verdict has not set it
            await self.chat.publish(
                ToolCallStarted(
                    chat_id=self.chat.chat_id, iteration=self.iteration, call=run.wanted
                )
            )
            self._accept(run, verdict)
        if self.stopping:
            for run in group:
                if run.state in (READY, ASKED, *PARKED):
                    run.set(STOPPED, "stopped")
                    run.move(SETTLED)

    async def _verdict(self, run: CallRun) -> CallVerdict:
        """The verdict on a call: from the limit, a missing tool, or its hooks.

        After a Stop the verdict is empty, and `_decide` settles the call.
        """
        chat, wanted = self.chat, run.wanted
        if self.stopping:
            return CallVerdict(call=wanted)
        key = (CALL, self.iteration, run.id)
        if not chat.asks((), *key):
            if chat.has_run(self.iteration, run.id):
                return CallVerdict(call=wanted)  # decided in an earlier life, without hooks
            if run.place >= chat.config.limits.tool_calls:
                return _failed(wanted, ToolLimitError(wanted.name, chat.config.limits.tool_calls))
            if run.tool is None:
                names = [tool.name for tool in self.request.tools] if self.request else []
                return _failed(wanted, UnknownToolError(wanted.name, names))
            if not chat.view.preToolCall and not run.tool.client:
                run.judged = wanted
                return CallVerdict(call=wanted)
        verdict = await chat.runtime.step(key, self._ask_hooks, _CALL_VERDICT, run)
        if isinstance(verdict.answer, Stop):
            self.stop = self.stop or verdict.answer
            self.stopping = True
        return verdict

    async def _ask_hooks(self, run: CallRun) -> CallVerdict:
        ctx = before_call(self.chat, run, run.wanted)
        view, name = self.chat.view, run.wanted.name
        hooks, guards = view.preToolCall, view.tool_guards
        effects: list[tuple[Hook, str]] = []
        last, end, asks = await intercept(hooks, ctx, self.chat, name, effects=effects)
        changed = last.call
        if changed.arguments is not run.wanted.arguments:
            try:
                arguments = to_json_data(changed.arguments)
            except NotJson as exc:
                issue = f"a hook's arguments: {exc}"
                return _failed(run.wanted, ToolArgumentsError(name, (issue,)))
            # a hook may have replaced arguments that were not an object
            changed = changed.replace(arguments=arguments, raw=None)
        if end is None and changed != run.wanted:
            # These guards saw the call before its last change. They are asked now, and not only
            # when it runs, because a question can still be answered.
            last_edit = [hook for hook, effect in effects if effect not in (END, KEEP)][-1]
            seen_before = hooks[: hooks.index(last_edit) + 1]
            early = [hook for hook in seen_before if hook.guard]
            end, more = await ask_guards(self.chat, run, early, changed)
            asks += [ask for ask in more if ask not in asks]
        run.judged, run.judges = changed, guards
        verdict = self._judge(run, changed, end, asks)
        return msgspec.structs.replace(
            verdict,
            hooks=tuple(dict.fromkeys([hook.name for hook, _ in effects])),
            tool_digest=seal(run.tool) if verdict.asks else "",
        )

    def _judge(self, run: CallRun, changed: ToolCall, end: Any, asks: list[Ask]) -> CallVerdict:
        """The verdict that follows from the chain of hooks."""
        if end is None:
            run.wanted = changed
            # A call that waits is checked now, inside the step, so that a replay decides the same.
            # Other calls are checked when they run.
            waits = asks or (run.tool is not None and run.tool.client)
            error = admit(self.chat, run) if waits else None
            asked = () if error is not None else tuple(asks)
            return CallVerdict(call=changed, answer=error, failed=error is not None, asks=asked)
        if isinstance(end, Stop):
            return CallVerdict(call=changed, answer=end)
        if isinstance(end, ToolResult):
            data = as_data(end)
            return CallVerdict(call=changed, answer=data, failed=isinstance(data, ToolFailure))
        if isinstance(end, Deny):
            end = ToolFailure(end.reason)
        return CallVerdict(call=changed, answer=worded(end).replace(type="Denied"))

    def _accept(self, run: CallRun, verdict: CallVerdict) -> None:
        """Carry out the verdict. After a Stop, `_decide` settles the call next."""
        answer = verdict.answer
        if verdict.hooks:
            run.record = RanCall(hooks=verdict.hooks)
        if isinstance(answer, ToolResult):
            run.refuse(answer, "answered")
        elif isinstance(answer, ToolFailure):
            run.refuse(answer, "error" if verdict.failed else "denied")
        elif verdict.asks:
            prepare(self.chat, self.iteration, run, verdict)
        else:
            run.let_run(here=self.chat.has_run(self.iteration, run.id))

    async def _refuse_surplus(self, surplus: list[CallRun]) -> None:
        """Answer the calls past the limit of a step with an error."""
        for run in surplus:
            if run.state is not WRITTEN:
                self._look_up(run)
                await self._decide([run])
                await self._complete_all([run])

    # ── running ─────────────────────────────────────────────────────────────────────────────

    async def _complete_all(self, runs: list[CallRun]) -> None:
        """Complete the calls one by one, or at the same time if one of several may wait."""
        if len(runs) > 1 and any(run.state in (READY, ASKED) for run in runs):
            turn = self.chat.runtime.lock()  # one result at a time
            jobs = [partial(self._complete_beside, run, turn) for run in runs]
            await self.chat.runtime.gather(jobs)
        else:
            for run in runs:
                await self._run(run)
                await self._finish(run)

    async def _complete_beside(self, run: CallRun, turn: AbstractAsyncContextManager[None]) -> None:
        """Complete the call in a task of its own."""
        chat = self.chat
        try:
            try:
                await self._run(run)
            except CancelledError as exc:
                if chat.broken or chat.cancelled or run.state is not RUNNING:
                    self._break_off(run)  # the log names only what still runs
                    raise
                run.set(ToolFailure.of(exc))  # the tool cancelled its own task
                run.move(SETTLING)
            async with turn:
                await self._finish(run)
        except Exception as exc:
            chat.fail(exc)  # first of all: calls that are cancelled next may raise, too
            raise

    async def _run(self, run: CallRun) -> None:
        """Run the call to its result; first wait for the answer to its question."""
        chat = self.chat
        chat.check()
        if run.state is ASKED:
            await decide(chat, self.iteration, run)
            chat.check()
        if run.state is READY:
            run.move(RUNNING)
            key = (RUN, self.iteration, run.id)
            ran = await chat.runtime.step(key, run_handler, RAN, chat, run)
            if run.state is not RUNNING:  # it was left behind, and the ending has settled it
                raise CancelledError
            run.stop, run.ran = ran.stop, ran.began  # a replay did not set them
            if run.record is not None:
                run.record = run.record.replace(at=ran.at, duration=ran.duration)
            run.set(ran.result, ran.outcome)
            run.move(SETTLING)

    async def _finish(self, run: CallRun) -> None:
        """Settle and report the result, then write the messages whose turn has come."""
        chat = self.chat
        chat.progress.use(run.id)
        if run.state is not AWAY:  # approved, and its client runs it
            chat.check()  # another call may have ended the chat while this one waited
            if run.state is not SETTLED:
                await settle(chat, self.iteration, run)
            self.stop = self.stop or run.stop
            await self._report(run)
        await self._write()

    async def _report(self, run: CallRun) -> None:
        """Publish the end of the call."""
        result = run.result
        assert result is not None
        if not isinstance(result, ToolResult):
            result = result.told()  # an event that is kept must not keep a traceback
        await self.chat.publish(
            ToolCallFinished(
                chat_id=self.chat.chat_id,
                iteration=self.iteration,
                call_id=run.id,
                name=run.wanted.name,
                outcome=run.outcome,
                result=result,
            )
        )
        run.move(REPORTED)

    async def _write(self) -> None:
        """Write the messages whose turn has come."""
        chat, runs = self.chat, self.runs
        while self.written < len(runs):
            run = runs[self.written]
            if run.state in PARKED:
                self.overtaken = True
            elif run.state is REPORTED:
                if self.overtaken:
                    chat.conversation.disorder()
                await commit(chat, run.message_for(chat.next_id()), run=run)
            elif run.state is not WRITTEN:
                return
            self.written += 1

    # ── the end of a broken chat ────────────────────────────────────────────────────────────

    async def close(self) -> None:
        """Give each call its one result: the chat ends in the middle of this step."""
        chat = self.chat
        for run in self._unwritten():
            announced = run.state is not PROPOSED
            self._break_off(run)
            if announced and run.state is SETTLED:
                await self._report(run)
            if run.message is None:  # preMessage has not run
                with suppress(Exception):  # of a hook or the store; written below
                    await commit(chat, run.message_for(chat.next_id()), run=run)
            if run.state < WRITING:  # a hook or the store has refused it
                await write_past_hooks(chat, self._message(run), run)

    def close_now(self) -> None:
        """Write what a `close` that was cut off has not written, without hooks and waiting."""
        for run in self._unwritten():
            self._break_off(run)
            write_now(self.chat, self._message(run), run)
        self.chat.making.batch = None

    def _unwritten(self) -> list[CallRun]:
        """The calls that lack their message, and do not wait again for an answer."""
        waiting = self._waiting_again()
        left = [run for run in self.runs if run.state < WRITING and run not in waiting]
        # Calls behind a call that waits again have not been looked at: the next chat does that.
        return [run for run in left if run.state is not PROPOSED] if waiting else left

    def _waiting_again(self) -> list[CallRun]:
        """The calls that an earlier chat has left waiting, and that have not begun in this chat.

        An abort must not use up an approval. A denied call never waits again.
        """
        claimed = self.chat.conversation.claimed_by(self.chat.chat_id)
        answers = self.chat.input.answers or {}
        return [
            run
            for run in self.runs
            if run.id in claimed
            and run.state in (WAITING, AWAY, READY, RUNNING)
            and not run.ran
            and not (run.request and isinstance(answers.get(run.request.id), Deny))
        ]

    def give_back(self) -> None:
        """Let the calls that wait again do so; the other calls have their results."""
        waiting = [run.id for run in self._waiting_again()]
        self.chat.conversation.give_back(self.chat.chat_id, waiting)

    def _break_off(self, run: CallRun) -> None:
        """Settle a call that was broken off, unless it waits again for an answer."""
        if run.state < SETTLED and run not in self._waiting_again():
            run.set(UNSEEN if run.ran and run.result is not None else ABORTED, "aborted")
            run.move(SETTLED)

    def _message(self, run: CallRun) -> ToolMessage:
        """The call's message: from preMessage if that has run, else a new one."""
        return run.message or run.message_for(self.chat.next_id())

    def pending_step(self) -> PendingStep:
        """The step as a resumed chat needs it."""
        requests = [run.request for run in self.runs if run.state is WAITING and run.request]
        tools = self.request.tools if self.request else ()
        foreign = foreign_names(self.chat, tools)  # a resumed chat does not have these tools
        return PendingStep(
            chat_id=self.chat.chat_id,
            iteration=self.iteration,
            requests=tuple(requests),
            client_calls=tuple([run.wanted for run in self.runs if run.state is AWAY]),
            offered=tuple(tool.name for tool in tools if tool.name not in foreign),
            stop=self.stop,
            continuations=self.chat.progress.continuations,
        )


def _parked(runs: Sequence[CallRun]) -> list[CallRun]:
    """The calls among these with which a later chat goes on."""
    return [run for run in runs if run.state in PARKED]


def _failed(call: ToolCall, error: Exception) -> CallVerdict:
    """The verdict on a call that cannot run; its outcome is "error", not "denied"."""
    return CallVerdict(call=call, answer=ToolFailure.of(error), failed=True)


def open_batch(
    chat: Chat, iteration: int, calls: Sequence[ToolCall], request: ModelRequest | None
) -> ToolBatch:
    """A new batch of these calls."""
    runs = [CallRun(call.id, call, place, written=call) for place, call in enumerate(calls)]
    batch = ToolBatch(chat=chat, iteration=iteration, request=request, runs=runs)
    chat.making.batch = batch
    return batch
