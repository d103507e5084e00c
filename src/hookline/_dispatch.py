"""Tool calls → tool messages: decided one by one, run side by side, written in the model's order.

A call that has an answer before its handler (denied, answered, unknown, bad arguments, stopped)
never runs. Result chains run one at a time; each message is committed as soon as its turn comes. A
call that waits for approval holds up nothing but calls that must not overtake it. What a call's
handler came to is never lost because of another call. How a handler runs is `_handler.py`.
"""

from __future__ import annotations

from asyncio import Lock
from collections.abc import Sequence
from functools import partial
from typing import Any

import msgspec

from hookline._approval import decide, prepare, put
from hookline._call import Call, Verdict
from hookline._chain import intercept
from hookline._chat import Chat
from hookline._conversation import PendingStep
from hookline._errors import (
    DisabledToolError,
    HookReturnError,
    ToolArgumentsError,
    ToolLimitError,
    UnknownToolError,
)
from hookline._events import ToolCallFinished, ToolCallStarted
from hookline._handler import as_data, bounded, message_for, run_handler
from hookline._messages import CallOutcome, ToolCall, ToolMessage
from hookline._model import ModelRequest
from hookline._outcomes import Ask, CallResult, Stop, ToolError, ToolResult
from hookline._points import OnToolCallError, OnToolCallResult, PreToolCall
from hookline._request import lookup
from hookline._runtime import CALL, RESULT, Json
from hookline._schema import BadArguments, parse_arguments

_VERDICT: Json[Verdict] = Json(Verdict)
WITHHELD = ToolError("the call ran; its result is withheld", type="Withheld")
STOPPED = ToolError("not run: the chat was stopped", type="Stopped")
UNSEEN = ToolError("the call ran; the chat ended before its result was kept", type="Aborted")
ABORTED = ToolError("not finished: the chat ended", type="Aborted")


class Settled(msgspec.Struct, frozen=True, kw_only=True):
    """What a call's result is once its hooks have seen it."""

    result: ToolResult | ToolError
    outcome: CallOutcome
    stop: Stop | None = None


_SETTLED: Json[Settled] = Json(Settled)


class Step:
    """The tool calls of one step, in the model's order."""

    def __init__(
        self, chat: Chat, iteration: int, calls: Sequence[ToolCall], request: ModelRequest | None
    ) -> None:
        self.chat = chat
        self.iteration = iteration
        self.request = request
        self.calls = [Call(call, place) for place, call in enumerate(calls)]
        self.stop: Stop | None = None  # the chat ends after this step
        self._halted = False  # and no handler of it starts any more
        self._turn = Lock()
        chat.open_step = self

    @property
    def results(self) -> tuple[ToolMessage, ...]:
        """The committed messages, in the model's order."""
        return tuple(call.message for call in self.calls if call.message is not None)

    @property
    def waiting(self) -> list[Call]:
        """The calls that wait for an approval."""
        return [call for call in self.calls if call.pending]

    async def run(self) -> None:
        """Bring all calls to their results, except those that must wait for an answer."""
        todo = [call for call in self.calls if call.message is None]
        while todo and not self._held(todo[0]):
            batch = self._batch(todo)
            for call in batch:
                if not self._halted:
                    await self._before(call)
            if self._halted:
                batch = todo
                self._stop_rest(batch)
            for call in batch:
                await self._started(call)
            await self._put(batch)
            await self._run_batch([call for call in batch if not call.pending])
            todo = todo[len(batch) :]
        for call in todo:
            call.deferred = True
        if not self.waiting:
            self.chat.open_step = None

    def _batch(self, todo: list[Call]) -> list[Call]:
        """The calls that may run side by side: up to one that runs alone, or that one."""
        if self._alone(todo[0]):
            return todo[:1]
        end = next((i for i, call in enumerate(todo) if self._alone(call)), len(todo))
        return todo[:end]

    def _alone(self, call: Call) -> bool:
        if not self.chat.config.parallel_tools:
            return True
        found = lookup(self.chat, self.request, call.call.name)
        return found is not None and not found[0].parallel

    def _held(self, call: Call) -> bool:
        return self._alone(call) and any(each.pending for each in self.calls[: call.place])

    def _stop_rest(self, todo: list[Call]) -> None:
        """Nothing of this step runs any more: calls without an answer are stopped."""
        for call in todo:
            if call.result is None or call.runs:
                call.set(STOPPED, "stopped")
                call.request = None
                call.pending = False
                call.final = True

    # ── before ──────────────────────────────────────────────────────────────────────────────

    async def _before(self, call: Call) -> None:
        """Decide a call: does it run, with which arguments, or what is its answer?"""
        chat = self.chat
        limit = chat.config.limits.tool_calls
        if call.decided or call.result is not None:
            return  # answered by an approval
        if call.place >= limit:
            call.set(ToolError.of(ToolLimitError(call.call.name, limit)), "error")
            return
        found = lookup(chat, self.request, call.call.name)
        if found is None:
            names = [tool.name for tool in self.request.tools] if self.request else []
            call.set(ToolError.of(UnknownToolError(call.call.name, names)), "error")
            return
        call.tool, call.scope, offered = found
        if chat.view.preToolCall:
            key = (CALL, self.iteration, call.id)
            verdict = await chat.runtime.step(key, partial(self._chain, call), _VERDICT)
            call.call = verdict.call
            if isinstance(verdict.answer, Stop):
                self.stop = self.stop or verdict.answer
                self._halted = True
                return
            if verdict.answer is not None:
                self._answered(call, verdict.answer)
                return
            call.ask = verdict.ask
        if not offered or not chat.config.scopes.allows(call.tool, call.scope):
            call.set(ToolError.of(DisabledToolError(call.call.name)), "error")
            return
        self._validate(call)
        if call.runs and call.ask is not None:
            prepare(chat, self.iteration, call, call.ask)

    async def _chain(self, call: Call) -> Verdict:
        chat = self.chat
        assert call.tool is not None and call.scope is not None
        ctx: PreToolCall[Any] = PreToolCall(
            run=call.run_of(chat),
            iteration=self.iteration,
            call=call.call,
            tool=call.tool,
            scope=call.scope,
        )
        last, end, asks = await intercept(chat.view.preToolCall, ctx, chat, tool=call.call.name)
        changed = last.call
        if changed is not call.call:
            changed = changed.replace(raw=None)
        return Verdict(call=changed, answer=end, ask=_merged(asks) if asks else None)

    def _answered(self, call: Call, answer: CallResult) -> None:
        """A hook answered in the tool's place."""
        if isinstance(answer, ToolResult):
            call.set(as_data(answer), "answered")
        else:
            call.set(answer, "denied")

    def _validate(self, call: Call) -> None:
        """Bind the arguments to the tool's parameters; every issue is told to the model."""
        assert call.tool is not None
        try:
            if call.call.raw is not None:
                limit = self.chat.config.limits.argument_bytes
                parse_arguments(call.call.raw, limit=limit)
                raise BadArguments(("the arguments were cut off",))
            call.bound = call.tool.bind(call.call.arguments)
            call.runs = True
        except (BadArguments, ToolArgumentsError) as bad:
            error = ToolArgumentsError(call.call.name, bad.issues, call.call.raw)
            call.set(ToolError.of(error), "error")

    async def _started(self, call: Call) -> None:
        if not call.announced:
            call.announced = True
            await self.chat.publish(ToolCallStarted, iteration=self.iteration, call=call.call)

    # ── running ─────────────────────────────────────────────────────────────────────────────

    async def _put(self, batch: list[Call]) -> None:
        """Put the calls of this batch that need it to somebody."""
        for call in batch:
            if call.request is not None and not call.decided:
                await put(self.chat, self.iteration, call)

    async def _run_batch(self, batch: list[Call]) -> None:
        if len(batch) == 1:
            await self._run(batch[0])  # a lone call needs no task of its own
        elif any(call.runs for call in batch):
            await self.chat.runtime.gather([partial(self._guarded, call) for call in batch])
        else:
            for call in batch:
                await self._run(call)

    async def _guarded(self, call: Call) -> None:
        try:
            await self._run(call)
        except Exception as exc:
            self.chat.fail(exc)  # it came first, whatever its siblings do while they end
            raise

    async def _run(self, call: Call) -> None:
        if call.request is not None and not call.decided:
            await decide(self.chat, self.iteration, call)
        if call.runs:
            ran = await run_handler(self.chat, self.iteration, call)
            call.set(bounded(ran.result, self.chat.config.limits.output_bytes), None)
            call.stop = ran.stop
            self.chat.check()
        async with self._turn:
            await self._settle(call)
            await self._finished(call)
            await self._write_ready()

    async def _settle(self, call: Call) -> None:
        """The result's way through its hooks, one call at a time."""
        chat, result = self.chat, call.result
        assert result is not None
        if not call.final:
            view = chat.view
            if view.onToolCallResult or view.onToolCallError:
                key = (RESULT, self.iteration, call.id)
                try:
                    settled = await chat.runtime.step(key, partial(self._chains, call), _SETTLED)
                except BaseException:
                    # The hook may have been the redactor: what it was given is not kept.
                    call.set(WITHHELD, "error" if call.outcome == "ok" else call.outcome)
                    call.final = True
                    raise
                call.stop = call.stop or settled.stop
                limit = chat.config.limits.output_bytes
                call.set(bounded(settled.result, limit), settled.outcome)
            call.final = True
        self.stop = self.stop or call.stop

    async def _chains(self, call: Call) -> Settled:
        """One chain; a conversion goes once through the whole other one."""
        chat, view = self.chat, self.chat.view
        result, outcome, stop = call.result, call.outcome, None
        run, converted = call.run_of(chat), False
        while True:
            if isinstance(result, ToolError):
                ctx: OnToolCallError[Any] = OnToolCallError(
                    run=run, call=call.call, tool=call.tool, scope=call.scope, error=result
                )
                last, end, stops = await intercept(
                    view.onToolCallError, ctx, chat, tool=call.call.name
                )
                stop = stop or (stops[0] if stops else None)
                result = last.error
            else:
                assert result is not None and call.tool is not None and call.scope is not None
                seen: OnToolCallResult[Any] = OnToolCallResult(
                    run=run, call=call.call, tool=call.tool, scope=call.scope, result=result
                )
                good, end, _ = await intercept(
                    view.onToolCallResult, seen, chat, tool=call.call.name
                )
                result = good.result
            if end is None:
                return Settled(result=result, outcome=outcome, stop=stop)
            if converted:
                raise HookReturnError(
                    "onToolCallResult or onToolCallError", "(chain)", end, "no conversion back"
                )
            converted = True
            result = as_data(end) if isinstance(end, ToolResult) else end
            outcome = "ok" if isinstance(result, ToolResult) else "error"

    async def _finished(self, call: Call) -> None:
        assert call.result is not None
        call.reported = True
        await self.chat.publish(
            ToolCallFinished,
            iteration=self.iteration,
            call_id=call.id,
            name=call.call.name,
            outcome=call.outcome,
            result=call.result,
        )

    async def _write_ready(self) -> None:
        """Commit the results whose turn it is."""
        overtaken = False
        for call in self.calls:
            if call.message is not None:
                continue
            if call.pending:
                overtaken = True
                continue
            if not call.reported:
                return
            if overtaken:
                self.chat.conversation.disorder()
            await self._write(call)

    async def _write(self, call: Call) -> None:
        call.message = message_for(call)  # its place is taken, whatever a hook does now
        call.message = await self.chat.commit(call.message)

    # ── the end that was not planned ────────────────────────────────────────────────────────

    async def close(self) -> None:
        """The chat ends in the middle of this step: each call gets its one result."""
        committed = {m.call_id for m in self.chat.messages if isinstance(m, ToolMessage)}
        for call in self.calls:
            if call.earlier or call.id in committed:
                continue
            self._broken_off(call)
            if call.announced and not call.reported:
                await self._finished(call)
            await self._close(call)
        self.chat.open_step = None

    def _broken_off(self, call: Call) -> None:
        if call.result is None:
            call.set(ABORTED, "aborted")
        elif not call.final:
            call.set(UNSEEN, "aborted")
        call.final = True

    def close_now(self) -> None:
        """The same without hooks and without waiting: what a hanging hook has left undone."""
        committed = {m.call_id for m in self.chat.messages if isinstance(m, ToolMessage)}
        for call in self.calls:
            if not call.earlier and call.id not in committed:
                self._broken_off(call)
                self.chat.write_plain(message_for(call))
        self.chat.open_step = None

    async def _close(self, call: Call) -> None:
        """Commit a result; where a hook will not have it, what is written says so."""
        count = len(self.chat.messages)
        try:
            call.message = await self.chat.commit(message_for(call))
        except Exception:
            if len(self.chat.messages) == count:
                call.set(WITHHELD, call.outcome)
                self.chat.write_plain(message_for(call))

    def pending_step(self) -> PendingStep:
        """What a resumed chat needs to go on with this step."""
        chat = self.chat
        requests = tuple(call.request for call in self.calls if call.pending and call.request)
        return PendingStep(
            chat_id=chat.chat_id,
            iteration=self.iteration,
            requests=requests,
            deferred=tuple(call.id for call in self.calls if call.deferred),
            offered=tuple(tool.name for tool in self.request.tools) if self.request else (),
            stop=self.stop,
            continuations=chat.continuations,
        )


def _merged(asks: list[Ask]) -> Ask:
    """Several questions become one, which the strictest expiry bounds."""
    limits = [ask.expires for ask in asks if ask.expires is not None]
    return Ask("\n".join(ask.prompt for ask in asks), expires=min(limits) if limits else None)
