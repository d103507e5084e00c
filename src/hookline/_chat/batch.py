"""The tool calls of one answer: decided one by one, run side by side, written in the model's order.

Theory of operation. A batch takes its calls in groups. A group is as many calls as may run at the
same time: up to a call that runs alone, or that call. Of each group

1. every call is admitted in order (`_admit`): looked up, through preToolCall, announced;
2. questions are put; a call whose answer a later chat brings waits and holds up nothing but calls
   that must not overtake it;
3. every other call is completed (`_complete`), each in a task where there are several: the
   approver's answer, the handler, then, one call at a time, the result's hooks, its event, and the
   messages whose turn it is.

A call that is answered before its handler (denied, answered, unknown, bad arguments, stopped) never
runs. Calls past `Limits.tool_calls` are refused in one pass at the end. The only shared state is
the state of each call (`call.py`); who completes a call looks at the chat again whenever it has
waited, since another call may have ended it. When the chat ends in mid-batch, `close` gives each
call that has no message its one result.
"""

from __future__ import annotations

from asyncio import CancelledError, Lock
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final

import msgspec

from hookline._base.cancel import give_way
from hookline._base.errors import ToolArgumentsError, ToolLimitError, UnknownToolError
from hookline._base.events import ToolCallFinished, ToolCallStarted
from hookline._base.json import NotJson, to_json_data
from hookline._base.messages import ToolCall, ToolMessage
from hookline._base.returns import Ask, Deny, Stop, ToolFailure, ToolResult
from hookline._base.runtime import CALL, RUN, Json
from hookline._chat.approval import decide, prepare, put
from hookline._chat.call import (
    ASKED,
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
    Verdict,
)
from hookline._chat.request import foreign_names, lookup
from hookline._chat.results import as_data, settle, worded
from hookline._chat.run_tool import RAN, admit, run_handler
from hookline._chat.state import Chat
from hookline._hooks.call_rules import intercept
from hookline._hooks.points import PreToolCall
from hookline._model.model import ModelRequest
from hookline._talk.store import PendingStep

_VERDICT: Json[Verdict] = Json(Verdict)
PASS: Final = 64  # so many calls are handled before the others of the event loop have their turn
STOPPED: Final = ToolFailure("not run: the chat was stopped", type="Stopped")
ABORTED: Final = ToolFailure("not finished: the chat ended", type="Aborted")
UNSEEN: Final = ToolFailure(
    "the call ran; the chat ended before its result was kept", type="Aborted"
)


class ToolBatch(msgspec.Struct, kw_only=True, eq=False):
    """The tool calls of one answer, in the model's order."""

    chat: Chat
    iteration: int
    request: ModelRequest | None  # of this step, as it was sent
    runs: list[CallRun]
    stop: Stop | None = None  # the chat ends after this step
    halted: bool = False  # a hook said Stop: no handler starts any more
    turn: Lock = msgspec.field(default_factory=Lock)  # one result at a time
    written: int = 0  # the calls before this place have their messages, or wait
    overtaken: bool = False  # one of them waits

    def find(self, call_id: str) -> ToolCall | None:
        """The call of that id, as hooks have left it."""
        return next((run.wanted for run in self.runs if run.id == call_id), None)

    @property
    def running(self) -> list[str]:
        """The names of the tools that have begun and not ended."""
        return [run.wanted.name for run in self.runs if run.state is RUNNING and run.ran]

    @property
    def results(self) -> tuple[ToolMessage, ...]:
        """The committed messages, in the model's order."""
        done = [run.message for run in self.runs if run.state is WRITTEN]
        return tuple([message for message in done if message is not None])

    async def run(self) -> bool:
        """Bring the calls to their results; False when some must wait for an answer."""
        limit = self.chat.config.limits.tool_calls
        todo = deque([run for run in self.runs[:limit] if run.state is not WRITTEN])
        waiting: list[CallRun] = []
        while group := self._next_group(todo, waiting):
            await self._admit(group)
            if self.halted:  # also what waits, and what has not been looked at
                group = [*waiting, *group, *todo]
                todo.clear()
                waiting = []
                await self._admit(group)
            for run in group:
                if run.state is ASKED:
                    await put(self.chat, self.iteration, run)
            waiting += [run for run in group if run.state is WAITING]
            await self._complete_all([run for run in group if run.state is not WAITING])
        if not todo:
            await self._refuse_surplus(self.runs[limit:])
        if waiting:
            return False
        self.chat.making.batch = None
        return True

    def _next_group(self, todo: deque[CallRun], waiting: list[CallRun]) -> list[CallRun]:
        """Take the calls that may run side by side: up to one that runs alone, or that one.

        None, where the next must not overtake a call that waits.
        """
        group: list[CallRun] = []
        while todo:
            run = todo[0]
            if run.request is None:  # now, since scopes may have changed
                found = lookup(self.chat, self.request, run.wanted.name)
                run.tool, run.scope, run.offered = found or (None, None, False)
            tool = run.tool
            alone = not self.chat.config.parallel_tools or (tool is not None and not tool.parallel)
            if alone and (group or waiting):
                break
            group.append(todo.popleft())
            if alone:
                break
        return group

    # ── before the handler ──────────────────────────────────────────────────────────────────

    async def _admit(self, group: list[CallRun]) -> None:
        """Decide in order whether the calls may run, then announce them."""
        verdicts: list[tuple[CallRun, Verdict]] = []
        for run in group:
            if run.state is PROPOSED:
                verdicts.append((run, await self._verdict(run)))
                if len(verdicts) % PASS == 0:
                    await give_way()
        for number, (run, verdict) in enumerate(verdicts, 1):
            run.wanted = verdict.call
            await self.chat.publish(ToolCallStarted, iteration=self.iteration, call=run.wanted)
            self._accept(run, verdict)
            if number % PASS == 0:
                await give_way()
        for run in group:
            if self.halted and run.state in (READY, ASKED, WAITING):
                run.set(STOPPED, "stopped")
                run.move(SETTLED)

    async def _verdict(self, run: CallRun) -> Verdict:
        """What is known of the call, or what its hooks say of it."""
        limits, wanted = self.chat.config.limits, run.wanted
        error: Exception
        if self.halted:
            return Verdict(call=wanted)
        if run.place >= limits.tool_calls:
            error = ToolLimitError(wanted.name, limits.tool_calls)
        elif run.tool is None:
            names = [tool.name for tool in self.request.tools] if self.request else []
            error = UnknownToolError(wanted.name, names)
        elif not self.chat.view.preToolCall:
            return Verdict(call=wanted)  # arguments are checked when it runs
        else:
            key = (CALL, self.iteration, run.id)
            verdict = await self.chat.runtime.step(key, self._ask_hooks, _VERDICT, run)
            if isinstance(verdict.answer, Stop):
                self.stop = self.stop or verdict.answer
                self.halted = True
            return verdict
        return Verdict(call=wanted, answer=ToolFailure.of(error), failed=True)

    async def _ask_hooks(self, run: CallRun) -> Verdict:
        tool: Any = run.tool
        scope: Any = run.scope
        ctx: PreToolCall[Any] = PreToolCall(
            run=run.run_of(self.chat),
            iteration=self.iteration,
            call=run.wanted,
            tool=tool,
            scope=scope,
        )
        hooks, name = self.chat.view.preToolCall, run.wanted.name
        return self._judge(run, *await intercept(hooks, ctx, self.chat, name))

    def _judge(self, run: CallRun, last: PreToolCall[Any], end: Any, asks: list[Ask]) -> Verdict:
        """What the chain has come to."""
        changed = last.call
        if changed is not run.wanted and changed.arguments is not run.wanted.arguments:
            try:
                arguments = to_json_data(changed.arguments)
            except NotJson as exc:
                bad = ToolArgumentsError(run.wanted.name, (f"a hook's arguments: {exc}",))
                return Verdict(call=run.wanted, answer=ToolFailure.of(bad), failed=True)
            # a hook may have put an object where the model's text was none
            changed = changed.replace(arguments=arguments, raw=None)
        if end is None:
            run.wanted = changed
            error = admit(self.chat, run)  # here, so that a replay does not decide otherwise
            asked = () if error is not None else tuple(asks)
            return Verdict(call=changed, answer=error, failed=error is not None, asks=asked)
        if isinstance(end, Stop):
            return Verdict(call=changed, answer=end)
        if isinstance(end, ToolResult):
            data = as_data(end)
            return Verdict(call=changed, answer=data, failed=isinstance(data, ToolFailure))
        if isinstance(end, Deny):
            end = ToolFailure(end.reason)
        return Verdict(call=changed, answer=worded(end).replace(type="Denied"))

    def _accept(self, run: CallRun, verdict: Verdict) -> None:
        """Carry out the verdict."""
        answer = verdict.answer
        if isinstance(answer, ToolResult):
            run.refuse(answer, "answered")
        elif isinstance(answer, ToolFailure):
            run.refuse(answer, "error" if verdict.failed else "denied")
        elif verdict.asks:
            prepare(self.chat, self.iteration, run, verdict.asks)
        else:
            run.move(READY)  # also one that is stopped next, like all others

    async def _refuse_surplus(self, surplus: list[CallRun]) -> None:
        """Refuse the calls that are more than a step may have."""
        for number, run in enumerate(surplus, 1):
            if run.state is not WRITTEN:
                await self._admit([run])
                await self._complete(run)
            if number % PASS == 0:
                await give_way()

    # ── running ─────────────────────────────────────────────────────────────────────────────

    async def _complete_all(self, runs: list[CallRun]) -> None:
        """Side by side where one of several has something to wait for."""
        if len(runs) > 1 and any(run.state in (READY, ASKED) for run in runs):
            await self.chat.runtime.gather([partial(self._complete_beside, run) for run in runs])
        else:
            for run in runs:
                await self._complete(run)

    async def _complete_beside(self, run: CallRun) -> None:
        """Complete the call in a task of its own."""
        chat = self.chat
        try:
            await self._complete(run)
        except Exception as exc:
            chat.fail(exc)  # it came first, whatever its siblings do while they end
            raise
        except CancelledError as exc:
            if chat.broken or chat.cancelled or run.state is not RUNNING:
                raise
            run.set(ToolFailure.of(exc))  # the tool cancelled its own task
            run.move(SETTLING)
            await self._complete(run)

    async def _complete(self, run: CallRun) -> None:
        """Bring one call to its message, or to where it waits for its turn."""
        chat = self.chat
        chat.check()
        if run.state is ASKED:
            await decide(chat, self.iteration, run)
            chat.check()
        if run.state is READY:
            run.move(RUNNING)
            key = (RUN, self.iteration, run.id)
            ran = await chat.runtime.step(key, run_handler, RAN, chat, run)
            run.stop, run.ran = ran.stop, ran.began
            run.set(ran.result, ran.outcome)
            run.move(SETTLING)
        async with self.turn:
            chat.check()  # another call may have ended the chat while this one waited
            if run.state is not SETTLED:
                await settle(chat, self.iteration, run)
            self.stop = self.stop or run.stop
            await self._report(run)
            await self._write()

    async def _report(self, run: CallRun) -> None:
        """Publish how the call ended."""
        result = run.result
        assert result is not None
        if not isinstance(result, ToolResult):
            result = result.told()  # who keeps an event keeps no traceback
        await self.chat.publish(
            ToolCallFinished,
            iteration=self.iteration,
            call_id=run.id,
            name=run.wanted.name,
            outcome=run.outcome,
            result=result,
        )
        run.move(REPORTED)

    async def _write(self) -> None:
        """Write the messages whose turn it is."""
        chat, runs = self.chat, self.runs
        while self.written < len(runs):
            run = runs[self.written]
            if run.state is WAITING:
                self.overtaken = True
            elif run.state is REPORTED:
                if self.overtaken:
                    chat.conversation.disorder()
                await chat.commit(run.message_for(chat.next_id()), run=run)
            elif run.state is not WRITTEN:
                return
            self.written += 1
            if self.written % PASS == 0:
                await give_way()

    # ── the end that was not planned ────────────────────────────────────────────────────────

    async def close(self) -> None:
        """The chat ends in the middle of this step: each call gets its one result."""
        chat = self.chat
        for number, run in enumerate(self._unwritten(), 1):
            announced = run.state is not PROPOSED
            self._break_off(run)
            if announced and run.state is SETTLED:
                await self._report(run)
            if run.message is None:  # else preMessage was asked already
                with suppress(Exception):  # then the message is withheld, or not in the store
                    await chat.commit(run.message_for(chat.next_id()), run=run)
            if run.state < WRITING:
                await chat.write_past_hooks(self._message(run), run)
            if number % PASS == 0:
                await give_way()

    def close_now(self) -> None:
        """The same without hooks and without waiting: what a hanging hook has left undone."""
        for run in self._unwritten():
            self._break_off(run)
            self.chat.write_now(self._message(run), run)
        self.chat.making.batch = None

    def _unwritten(self) -> list[CallRun]:
        """The calls without a message, and whose message is not being written either."""
        return [run for run in self.runs if run.state < WRITING]

    def _break_off(self, run: CallRun) -> None:
        """Make the result final, which a call that was cut off does not have."""
        if run.state < SETTLED:
            run.set(ABORTED if run.result is None else UNSEEN, "aborted")
            run.move(SETTLED)

    def _message(self, run: CallRun) -> ToolMessage:
        """Its message, as preMessage left it where that was asked."""
        return run.message or run.message_for(self.chat.next_id())

    def pending_step(self) -> PendingStep:
        """What a resumed chat needs to go on with this step."""
        requests = [run.request for run in self.runs if run.state is WAITING and run.request]
        tools = self.request.tools if self.request else ()
        foreign = foreign_names(self.chat, tools)  # nobody has them later: the agent's is another
        return PendingStep(
            chat_id=self.chat.chat_id,
            iteration=self.iteration,
            requests=tuple(requests),
            offered=tuple(tool.name for tool in tools if tool.name not in foreign),
            stop=self.stop,
            continuations=self.chat.progress.continuations,
        )


def open_batch(
    chat: Chat, iteration: int, calls: Sequence[ToolCall], request: ModelRequest | None
) -> ToolBatch:
    """The batch of the calls that are made next."""
    runs = [CallRun(call.id, call, place) for place, call in enumerate(calls)]
    batch = ToolBatch(chat=chat, iteration=iteration, request=request, runs=runs)
    chat.making.batch = batch
    return batch
