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
from itertools import count
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from hookline._base.errors import ToolArgumentsError, ToolLimitError, UnknownToolError
from hookline._base.events import ToolCallFinished, ToolCallStarted
from hookline._base.json import NotJson, to_json_data
from hookline._base.messages import ModelPart, RanCall, ToolCall, ToolMessage
from hookline._base.returns import (
    ApprovalRequest,
    Approve,
    Ask,
    Deny,
    Stop,
    ToolFailure,
    ToolResult,
)
from hookline._chat.approval import decide, prepare, put
from hookline._chat.call import (
    ASKING,
    AT_CLIENT,
    COMMITTED,
    FINAL,
    FINISHED,
    FOR_LATER,
    PROPOSED,
    READY,
    RUNNING,
    WAITING,
    WRITING,
    CallRun,
    CallVerdict,
    may_be_interrupted,
)
from hookline._chat.channel import HIGH_WATER
from hookline._chat.child_answers import await_answers
from hookline._chat.commit import commit, write_now, write_past_hooks
from hookline._chat.guards import NOT_RUN_AFTER_STOP, ask_guards, before_call
from hookline._chat.request import foreign_names, look_up
from hookline._chat.results import as_data, ask_hooks, bounded, with_text
from hookline._chat.rules import approval_by_rule, seal
from hookline._chat.run_tool import RAN, Ran, admit, run_handler
from hookline._chat.state import Chat
from hookline._conversations.store import PendingStep, WaitingChild
from hookline._hooks.call_rules import intercept
from hookline._hooks.points import END, KEEP
from hookline._hooks.registration import Hook
from hookline._model.model import ModelRequest
from hookline._record.runtime import CALL, CHILD_RUN, LOCAL, RESULT, RUN, Json

_CALL_VERDICT: Json[CallVerdict | None] = Json(CallVerdict | None)
_NOT_DUE: Final = (*FOR_LATER, COMMITTED)
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
    place: int = 0  # all calls before this place are written or parked
    overtaken: bool = False  # one of these is parked, so later results are out of order
    answered: set[str] = msgspec.field(default_factory=set[str])  # requests, by a later answer

    def interrupt(self) -> None:
        """Cancel the tools that run and may be interrupted."""
        for run in self.runs:
            tool = run.tool
            if run.in_tool and tool is not None and may_be_interrupted(tool):
                run.interrupted = True
                self.chat.deadlines.interrupt(tool)

    @property
    def running(self) -> list[str]:
        """The names of the tools that run now."""
        return [run.call.name for run in self.runs if run.in_tool]

    @property
    def results(self) -> tuple[ToolMessage, ...]:
        """The committed messages, in the model's order."""
        done = [run.message for run in self.runs if run.state is COMMITTED]
        return tuple([message for message in done if message is not None])

    async def run(self) -> bool:
        """Run the calls to their results; return False if some wait for an answer."""
        chat = self.chat
        limit = chat.config.limits.tool_calls
        todo = deque(self.runs[:limit])
        while todo and (group := self._next_group(todo)):
            await self._decide(group)
            if self.stopping:  # stop the waiting calls and all later calls, too
                group = self.runs[:limit]
                todo.clear()
                await self._decide(group)
            due: list[CallRun] = []
            for run in group:
                if run.state is ASKING:
                    await put(chat, self.iteration, run)
                if run.state not in _NOT_DUE:
                    due.append(run)
            if len(due) > 1 and any(run.state in (READY, ASKING) for run in due):
                await self._complete_together(due)
            else:  # one call, or calls that do not wait
                for run in due:
                    await self._run(run)
                    await self._finish(run)
        if not todo and len(self.runs) > limit:  # a later chat may still have calls before these
            await self._refuse_surplus(self.runs[limit:])
        if self.overtaken or self.place < len(self.runs):
            return False
        chat.step.batch = None
        return True

    def _next_group(self, todo: deque[CallRun]) -> list[CallRun]:
        """Take the next calls that may run at the same time, or one call that must run alone.

        The group is empty if the next call must not overtake a call that waits.
        """
        chat = self.chat
        group: list[CallRun] = []
        while todo:
            run = todo.popleft()
            if run.state is COMMITTED:  # by an earlier chat
                continue
            # As late as possible, since scopes may change. A call that was asked about keeps its
            # tool; `admit` checks whether the tool is still there.
            if run.request is None:
                look_up(chat, self.request, run)
            tool = run.tool
            alone = not chat.config.parallel_tools or (tool is not None and not tool.parallel)
            if alone and (group or _calls_for_later(self.runs[: run.place])):
                todo.appendleft(run)
                break
            group.append(run)
            if alone:
                break
        return group

    # ── before the handler ──────────────────────────────────────────────────────────────────

    async def _decide(self, group: Sequence[CallRun]) -> None:
        """Decide in order whether the calls may run, then announce them."""
        chat = self.chat
        for run in group:
            if run.state is PROPOSED and not self.stopping and self._is_asked(run):
                key = (CALL, self.iteration, run.id)
                verdict = await chat.runtime.step(key, self._ask_hooks, _CALL_VERDICT, run)
                run.verdict = verdict
                if verdict is not None and isinstance(verdict.answer, Stop):
                    self.stop = self.stop or verdict.answer
                    self.stopping = True
        # Announced only now: if a hook raises, no call of the group looks as if it had begun.
        for run in group:
            if run.state is PROPOSED:
                if run.verdict is not None:
                    run.call = run.verdict.call  # a replayed verdict has not set it
                if len(chat.channel.items) > HIGH_WATER:
                    await chat.room()
                chat.put(
                    ToolCallStarted(chat_id=chat.chat_id, iteration=self.iteration, call=run.call)
                )
                if run.verdict is None:
                    run.move(READY)
                else:
                    self._accept(run, run.verdict)
        if self.stopping:
            _stop(group)

    def _is_asked(self, run: CallRun) -> bool:
        """Whether the call's hooks decide about it, or have decided in an earlier life.

        If not, it is refused here, past the limit or without its tool, or it may run.
        """
        chat, call = self.chat, run.call
        has_passed = False
        if chat.runtime is not LOCAL:
            key = (CALL, self.iteration, run.id)
            if chat.runtime.has_begun(key):
                return True
            has_passed = chat.runtime.has_passed(key)
        error: Exception | None = None
        if run.place >= chat.config.limits.tool_calls:
            error = ToolLimitError(call.name, chat.config.limits.tool_calls)
        elif run.tool is None or has_passed:
            # An earlier life knew no such tool, or was past its limit: the result is recorded.
            names = [tool.name for tool in self.request.tools] if self.request else []
            error = UnknownToolError(call.name, names)
        elif not (chat.view.preToolCall or run.tool.client):
            run.judged = call
            return False
        if chat.runtime is not LOCAL and chat.has_run(self.iteration, run.id):
            return False  # decided in an earlier life, without hooks
        if error is not None:
            run.verdict = _failed(call, error)
        return error is None

    async def _ask_hooks(self, run: CallRun) -> CallVerdict | None:
        """The verdict of the call's hooks; None if none has a say and its tool runs here."""
        ctx = before_call(self.chat, run, run.call)
        hooks, run.judges = self.chat.view.preToolCall, self.chat.view.tool_guards
        effects: list[tuple[Hook, str]] = []
        last, end, asks = await intercept(hooks, ctx, self.chat, run.call.name, effects=effects)
        if effects or run.is_for_client:
            return await self._verdict_of(run, hooks, effects, last.call, end, asks)
        run.judged = run.call
        return None

    async def _verdict_of(
        self,
        run: CallRun,
        hooks: Sequence[Hook],
        effects: Sequence[tuple[Hook, str]],
        call: ToolCall,
        end: Any,
        asks: list[Ask | Approve],
    ) -> CallVerdict:
        """The verdict of these hooks, which have left this call and these values."""
        if call.arguments is not run.call.arguments:
            try:
                arguments = to_json_data(call.arguments)
            except NotJson as exc:
                issue = f"a hook's arguments: {exc}"
                return _failed(run.call, ToolArgumentsError(run.call.name, (issue,)))
            # a hook may have replaced arguments that were not an object
            call = call.replace(arguments=arguments, raw=None)
        if end is None and call != run.call:
            # These guards saw the call before its last change. They are asked now, and not only
            # when it runs, because a question can still be answered.
            last_edit = [hook for hook, effect in effects if effect not in (END, KEEP)][-1]
            seen_before = hooks[: hooks.index(last_edit) + 1]
            early = [hook for hook in seen_before if hook.guard]
            end, more = await ask_guards(self.chat, run, early, call)
            asks += [ask for ask in more if ask not in asks]
        run.judged = call
        verdict = self._judge(run, call, end, asks)
        if verdict.asks:
            approval = verdict.approval or await approval_by_rule(self.chat, run.tool, call)
            verdict = replace(verdict, approval=approval, tool_digest=seal(run.tool))
        return replace(verdict, **_deciders(effects)) if effects else verdict

    def _judge(
        self, run: CallRun, call: ToolCall, end: Any, asks: list[Ask | Approve]
    ) -> CallVerdict:
        """The verdict that follows from the chain of hooks."""
        if end is None:
            run.call = call
            if not (asks or run.is_for_client):
                return CallVerdict(call=call)
            # A call that waits is checked now, inside the step, so that a replay decides the same.
            # Other calls are checked when they run.
            last = asks[-1] if asks else None
            approval = last if isinstance(last, Approve) else None  # of the hooks before it
            questions = tuple([ask for ask in asks if isinstance(ask, Ask)])
            error = admit(self.chat, run) if questions or run.is_for_client else None
            if error is not None:
                return CallVerdict(call=call, answer=error, failed=True)
            return CallVerdict(call=call, asks=questions, approval=approval if questions else None)
        if isinstance(end, Stop):
            return CallVerdict(call=call, answer=end)
        if isinstance(end, ToolResult):
            data = as_data(end)
            return CallVerdict(call=call, answer=data, failed=isinstance(data, ToolFailure))
        if isinstance(end, Deny):
            end = ToolFailure(end.reason)
        return CallVerdict(call=call, answer=with_text(end).replace(type="Denied"))

    def _accept(self, run: CallRun, verdict: CallVerdict) -> None:
        """Carry out the verdict. After a Stop, `_decide` settles the call next."""
        answer = verdict.answer
        if verdict.hooks:
            run.record = RanCall(hooks=verdict.hooks, hook_ids=verdict.hook_ids)
        if isinstance(answer, ToolResult):
            run.refuse(answer, "answered")
        elif isinstance(answer, ToolFailure):
            run.refuse(answer, "error" if verdict.failed else "denied")
        elif verdict.asks:
            prepare(self.chat, self.iteration, run, verdict)
        else:
            at_client = run.is_for_client and not self.chat.has_run(self.iteration, run.id)
            run.move(AT_CLIENT if at_client else READY)

    async def _refuse_surplus(self, surplus: list[CallRun]) -> None:
        """Answer the calls past the limit of a step with an error."""
        for run in surplus:
            if run.state is not COMMITTED:
                if run.request is None:
                    look_up(self.chat, self.request, run)
                await self._decide([run])
                await self._run(run)
                await self._finish(run)

    # ── running ─────────────────────────────────────────────────────────────────────────────

    async def _complete_together(self, due: Sequence[CallRun]) -> None:
        """Complete the calls at the same time, each in a task of its own."""
        turn = self.chat.runtime.lock()  # one result at a time
        await self.chat.runtime.gather([partial(self._complete, run, turn) for run in due])

    async def _complete(self, run: CallRun, turn: AbstractAsyncContextManager[None]) -> None:
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
            async with turn:
                await self._finish(run)
        except Exception as exc:
            chat.fail(exc)  # first of all: calls that are cancelled next may raise, too
            raise

    async def _run(self, run: CallRun) -> None:
        """Run the call to its result; first wait for the answer to its question."""
        chat = self.chat
        if chat.life.broken:
            chat.check()
        if run.state is ASKING:
            await decide(chat, self.iteration, run)
            chat.check()
        if run.state is READY:
            run.move(RUNNING)
            ran = await chat.runtime.step(
                (RUN, self.iteration, run.id), run_handler, RAN, chat, run
            )
            if run.state is not RUNNING:  # it was left behind, and the ending has settled it
                raise CancelledError
            if ran.child is not None:
                if not chat.runtime.answers:
                    run.wait_again(ran.child)
                    return
                ran = await self._run_after_answers(run, ran.child)
            if run.record is not None:
                run.record = run.record.replace(at=ran.at, duration=ran.duration)
            run.result = ran.result
            run.outcome = ran.outcome

    async def _run_after_answers(self, run: CallRun, child: WaitingChild) -> Ran:
        """Wait for the answers for its sub-agent, and run the handler again; repeat if needed."""
        chat = self.chat
        for round in count(1):
            run.child, run.ran, run.judged = child, False, None
            await await_answers(chat, self.iteration, run, round)
            key = (CHILD_RUN, self.iteration, run.id, round)
            ran = await chat.runtime.step(key, run_handler, RAN, chat, run)
            if run.state is not RUNNING:
                raise CancelledError
            if ran.child is None:
                return ran
            child = ran.child
        raise AssertionError  # the rounds do not end

    async def _finish(self, run: CallRun) -> None:
        """Settle and report the result, then write the messages whose turn has come."""
        chat = self.chat
        if chat.progress.accepted:
            chat.progress.use(run.id)
        if run.state not in FOR_LATER:  # approved for its client, or a sub-agent waits
            if chat.life.broken:  # another call may have ended the chat while this one waited
                chat.check()
            if run.state is not FINAL:
                assert run.result is not None
                # Hooks see the result as the model would read it.
                run.result = bounded(run.result, chat.config.limits.output_bytes)
                view = chat.view
                if view.onToolCallResult or view.onToolCallError or chat.runtime is not LOCAL:
                    await ask_hooks(chat, (RESULT, self.iteration, run.id), run)
            if run.stop is not None:
                self.stop = self.stop or run.stop
            self._report(run)
        for run in self.runs[self.place :]:
            if run.state is FINISHED:
                if self.overtaken:
                    chat.conversation.disorder()
                await commit(chat, run)
            elif run.state in FOR_LATER:
                self.overtaken = True
            elif run.state is not COMMITTED:
                return
            self.place += 1

    def _report(self, run: CallRun) -> None:
        """Publish the end of the call."""
        chat, result = self.chat, run.result
        assert result is not None
        if not isinstance(result, ToolResult):
            result = result.told()  # an event that is kept must not keep a traceback
        run.move(FINISHED)
        chat.put(
            ToolCallFinished(
                chat_id=chat.chat_id,
                iteration=self.iteration,
                call_id=run.id,
                name=run.call.name,
                outcome=run.outcome,
                result=result,
            )
        )

    # ── the end of a broken chat ────────────────────────────────────────────────────────────

    async def close(self) -> None:
        """Give each call its one result: the chat ends in the middle of this step."""
        chat = self.chat
        for run in self._unwritten():
            announced = run.state is not PROPOSED
            self._break_off(run)
            if announced and run.state is FINAL:
                await chat.room()
                self._report(run)
            if run.message is None:  # preMessage has not run
                with suppress(Exception):  # of a hook or the store; written below
                    await commit(chat, run)
            if run.state < WRITING:  # a hook or the store has refused it
                await write_past_hooks(chat, run)

    def close_now(self) -> None:
        """Write what a `close` that was cut off has not written, without hooks and waiting."""
        for run in self._unwritten():
            self._break_off(run)
            write_now(self.chat, run)
        self.chat.step.batch = None

    def _unwritten(self) -> list[CallRun]:
        """The calls that lack their message, and do not wait again for an answer."""
        waiting = self._waiting_again()
        runs = [run for run in self.runs if run.state < WRITING and run not in waiting]
        # Calls behind a call that waits again have not been looked at: the next chat does that.
        return [run for run in runs if run.state is not PROPOSED] if waiting else runs

    def _waiting_again(self) -> list[CallRun]:
        """The calls that an earlier chat has left waiting, and that have not begun in this chat.

        An abort must not use up an approval. A denied call never waits again.
        """
        claim = self.chat.conversation.claimed_by(self.chat.chat_id)
        answers = self.chat.input.answers or {}
        return [
            run
            for run in self.runs
            if run.id in claim
            and run.state in (WAITING, AT_CLIENT, READY, RUNNING)
            and not run.ran
            and run.result is None
            and not (run.request and isinstance(answers.get(run.request.id), Deny))
        ]

    def give_back(self) -> None:
        """Let the calls that wait again do so; the other calls have their results."""
        waiting = [run.id for run in self._waiting_again()]
        self.chat.conversation.give_back(self.chat.chat_id, waiting)

    def _break_off(self, run: CallRun) -> None:
        """Settle a call that was broken off, unless it waits again for an answer."""
        if run.state < FINAL and run not in self._waiting_again():
            run.set(UNSEEN if run.ran and run.result is not None else ABORTED, "aborted")
            run.move(FINAL)

    def pending_step(self) -> PendingStep:
        """The step as a resumed chat needs it."""
        waiting = [run for run in self.runs if run.state is WAITING]
        requests: list[ApprovalRequest] = []
        for run in waiting:
            if run.child is not None:
                requests += run.child.step.requests
            elif run.request is not None:
                requests.append(run.request)
        later = _calls_for_later(self.runs)
        tools = self.request.tools if self.request else ()
        foreign = foreign_names(self.chat, tools)  # a resumed chat does not have these tools
        return PendingStep(
            chat_id=self.chat.chat_id,
            iteration=self.iteration,
            requests=tuple(requests),
            path=self.chat.path,
            children=tuple([run.child for run in waiting if run.child is not None]),
            records={run.id: run.record for run in later if run.record is not None},
            client_calls=tuple([run.call for run in self.runs if run.state is AT_CLIENT]),
            offered_tools=tuple(tool.name for tool in tools if tool.name not in foreign),
            stop=self.stop,
            continuations=self.chat.progress.continuations,
        )


def _stop(runs: Sequence[CallRun]) -> None:
    """Settle the calls that have not begun: a hook has stopped the chat."""
    for run in runs:
        if run.state in (READY, ASKING, *FOR_LATER):
            run.set(NOT_RUN_AFTER_STOP, "stopped")
            run.move(FINAL)


def _deciders(effects: Sequence[tuple[Hook, str]]) -> dict[str, tuple[str, ...]]:
    """The names and the ids of the hooks that returned a value, for a verdict."""
    ids = [hook.options.id for hook, _ in effects]
    return {
        "hooks": tuple(dict.fromkeys([hook.name for hook, _ in effects])),
        "hook_ids": tuple(dict.fromkeys([id for id in ids if id is not None])),
    }


def _calls_for_later(runs: Sequence[CallRun]) -> list[CallRun]:
    """The calls among these with which a later chat goes on."""
    return [run for run in runs if run.state in FOR_LATER]


def _failed(call: ToolCall, error: Exception) -> CallVerdict:
    """The verdict on a call that cannot run; its outcome is "error", not "denied"."""
    return CallVerdict(call=call, answer=ToolFailure.of(error), failed=True)


def open_batch(
    chat: Chat, iteration: int, parts: Sequence[ModelPart], request: ModelRequest | None
) -> ToolBatch | None:
    """A new batch of the calls among these parts of an answer; None if there are none."""
    runs: list[CallRun] = []
    for part in parts:
        if type(part) is ToolCall:
            runs.append(CallRun(part.id, part, len(runs), part))
    if not runs:
        return None
    batch = ToolBatch(chat=chat, iteration=iteration, request=request, runs=runs)
    chat.step.batch = batch
    return batch
