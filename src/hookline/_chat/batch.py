"""Tool calls → tool messages: decided one by one, run side by side, written in the model's order.

A call that has an answer before its handler (denied, answered, unknown, bad arguments, stopped)
never runs. Result chains run one at a time; each message is committed as soon as its turn comes. A
call that waits for approval holds up nothing but calls that must not overtake it. What a call's
handler came to is never lost because of another call. How a handler runs is `run_tool.py`, what its
result goes through `results.py`. It is long because the order of the calls is one decision.
"""

from __future__ import annotations

from asyncio import CancelledError, Lock
from collections.abc import Awaitable, Sequence
from functools import partial
from typing import Any, Final

import msgspec

from hookline._base.errors import ToolArgumentsError, ToolLimitError, UnknownToolError
from hookline._base.events import ToolCallFinished, ToolCallStarted
from hookline._base.json import NotJson, to_json_data
from hookline._base.messages import ToolCall, ToolMessage
from hookline._base.returns import Ask, Stop, ToolFailure, ToolResult
from hookline._base.run import Run
from hookline._base.runtime import CALL, LOCAL, RUN, Json
from hookline._chat.approval import decide, prepare, put
from hookline._chat.call import Call, Verdict
from hookline._chat.channel import SIZE
from hookline._chat.request import FROM_HOOK, foreign_names, lookup
from hookline._chat.results import settle, withheld
from hookline._chat.run_tool import RAN, admit, handle, run_handler, wrapped
from hookline._chat.state import Chat
from hookline._chat.values import as_data, bounded, message_for, worded
from hookline._hooks.call_rules import hear, intercept
from hookline._hooks.points import PreToolCall
from hookline._hooks.registration import Hook
from hookline._model.model import ModelRequest
from hookline._talk.store import PendingStep

_VERDICT: Json[Verdict] = Json(Verdict)
NOT_FOUND: Final = (None, None, False)
STOPPED: Final = ToolFailure("not run: the chat was stopped", type="Stopped")
ABORTED: Final = ToolFailure("not finished: the chat ended", type="Aborted")
UNSEEN: Final = ToolFailure(
    "the call ran; the chat ended before its result was kept", type="Aborted"
)


class Step(msgspec.Struct, kw_only=True, eq=False):
    """The tool calls of one step, in the model's order."""

    chat: Chat
    iteration: int
    request: ModelRequest | None
    calls: list[Call]
    stop: Stop | None = None  # the chat ends after this step
    fresh: bool = True  # no call has a result yet
    lone: bool = False  # there is one call, it is offered, and the step may have it
    halted: bool = False  # no handler of it starts any more
    held: bool = False  # a call asks for approval
    turn: Lock | None = None  # of those that run side by side, one result at a time

    def find(self, call_id: str) -> ToolCall | None:
        """The call of that id, as hooks have left it."""
        return next((call.call for call in self.calls if call.id == call_id), None)

    @property
    def results(self) -> tuple[ToolMessage, ...]:
        """The committed messages, in the model's order."""
        return tuple([call.message for call in self.calls if call.message is not None])

    def run(self) -> Awaitable[bool]:
        """Bring the calls to their results; False when some must wait for an answer."""
        asks = self.chat.view.preToolCall
        if not self.lone or (asks and self.chat.runtime is not LOCAL):
            return self._run_all()
        call = self.calls[0]  # most steps have one
        if not asks:
            call.runs = True
        return self._run(call, asks)

    def _permits(
        self, call: Call, ctx: PreToolCall[Any], said: tuple[PreToolCall[Any], Any, list[Ask]]
    ) -> bool:
        """Whether the one call of this step may run, after what its hooks have said."""
        last, end, asks = said
        if last is ctx and end is None and not asks:
            return True
        verdict = self._judge(call, last, end, asks)
        call.call = verdict.call
        if verdict.answer is None and not verdict.asks:
            return True
        self._accept(call, verdict)
        if self.halted:
            self._halt(self.calls)
        return False

    async def _run_all(self) -> bool:
        """Decide about the calls, then run them in batches."""
        chat = self.chat
        todo = self.calls if self.fresh else [call for call in self.calls if call.message is None]
        while todo:
            self._look_up(todo)  # each time: scopes may have changed
            lone = len(todo) == 1 and not self.held
            batch = todo if lone else self._batch(todo)
            if not batch:
                break
            for call in batch:
                if call.result is not None or call.request is not None:
                    continue  # known from an earlier chat
                if call.tool is None or call.place >= chat.config.limits.tool_calls:
                    self._refuse(call)
                elif not chat.view.preToolCall:
                    call.runs = True
                else:
                    if chat.runtime is LOCAL:
                        verdict = await self._chain(call)
                    else:
                        key = (CALL, self.iteration, call.id)
                        verdict = await chat.runtime.step(key, self._chain, _VERDICT, call)
                    call.call = verdict.call
                    if verdict.answer is None and not verdict.asks:
                        call.runs = True
                        continue
                    self._accept(call, verdict)
                    if self.halted:
                        self._halt(todo)
                        batch = todo
                        break
            for call in batch:
                if not call.announced:
                    if len(chat.outlet.items) >= SIZE:
                        await chat.outlet.room()
                    self._announce(call)
            if lone and not self.held:
                await self._run(todo[0])  # it needs no task of its own
                break
            await self._carry_out(batch)
            todo = todo[len(batch) :]
        if self.held and any(call.pending for call in self.calls):
            return False
        chat.open_step = None
        return True

    def _announce(self, call: Call) -> None:
        """Publish that the call begins; room was waited for."""
        chat = self.chat
        outlet = chat.outlet
        call.announced = True
        seq = outlet.buffer.seq = outlet.buffer.seq + 1
        outlet.put(
            ToolCallStarted(
                chat_id=chat.chat_id,
                path=outlet.path,
                seq=seq,
                iteration=self.iteration,
                call=call.call,
            )
        )

    def _batch(self, todo: list[Call]) -> list[Call]:
        """The calls that may run side by side: up to one that runs alone, or that one.

        None, where the next must not overtake a call that waits for an approval.
        """
        if self.held and self._alone(todo[0]):
            waits = any(call.pending for call in self.calls[: todo[0].place])
            return [] if waits else todo[:1]
        if self._alone(todo[0]):
            return todo[:1]
        end = next((i for i, call in enumerate(todo) if self._alone(call)), len(todo))
        return todo[:end]

    def _look_up(self, calls: list[Call]) -> None:
        for call in calls:
            if call.request is None:
                found = lookup(self.chat, self.request, call.call.name)
                call.tool, call.scope, call.offered = found or NOT_FOUND
                call.fixed = self.chat.config.scopes.fixed if call.scope is not FROM_HOOK else None

    def _alone(self, call: Call) -> bool:
        if not self.chat.config.parallel_tools:
            return True
        return call.tool is not None and not call.tool.parallel

    # ── before ──────────────────────────────────────────────────────────────────────────────

    def _refuse(self, call: Call) -> None:
        """There is no such tool, or the step may have no more calls."""
        limit = self.chat.config.limits.tool_calls
        if call.place >= limit:
            call.set(ToolFailure.of(ToolLimitError(call.call.name, limit)), "error")
        else:
            names = [tool.name for tool in self.request.tools] if self.request else []
            call.set(ToolFailure.of(UnknownToolError(call.call.name, names)), "error")

    def _accept(self, call: Call, verdict: Verdict) -> None:
        """What preToolCall came to, where the call does not just run: an answer, or questions."""
        answer = verdict.answer
        if answer is None:
            self.held = True
            prepare(self.chat, self.iteration, call, verdict.asks)
        elif isinstance(answer, Stop):
            self.stop = self.stop or answer
            self.halted = True
        elif isinstance(answer, ToolResult):
            call.set(answer, "answered")
        else:
            call.set(answer, "error" if verdict.failed else "denied")

    def _halt(self, todo: list[Call]) -> None:
        """A hook said Stop: nothing of this step starts any more."""
        for call in todo:
            if call.result is None:
                call.set(STOPPED, "stopped")
                call.request = None
                call.pending = False
                call.final = True

    async def _chain(self, call: Call) -> Verdict:
        hooks, chat = self.chat.view.preToolCall, self.chat
        return self._judge(call, *await intercept(hooks, self._before(call), chat, call.call.name))

    def _before(self, call: Call) -> PreToolCall[Any]:
        tool: Any = call.tool
        scope: Any = call.scope
        return PreToolCall(
            run=Run(self.chat, call.id),
            iteration=self.iteration,
            call=call.call,
            tool=tool,
            scope=scope,
        )

    def _judge(self, call: Call, last: PreToolCall[Any], end: Any, asks: list[Ask]) -> Verdict:
        """What the chain has come to."""
        chat, changed = self.chat, last.call
        if changed is not call.call and changed.arguments is not call.call.arguments:
            try:
                arguments = to_json_data(changed.arguments)
            except NotJson as exc:
                bad = ToolArgumentsError(call.call.name, (f"a hook's arguments: {exc}",))
                return Verdict(call=call.call, answer=ToolFailure.of(bad), failed=True)
            # the hook has mended what was no object
            changed = changed.replace(arguments=arguments, raw=None)
        if end is None:
            call.call = changed
            error = admit(chat, call)  # here, so that a replay does not decide otherwise
            if error is None and not asks:
                return Verdict(call=changed)
            return Verdict(call=changed, answer=error, failed=error is not None, asks=tuple(asks))
        if isinstance(end, ToolResult):
            data = as_data(end)
            return Verdict(call=changed, answer=data, failed=isinstance(data, ToolFailure))
        return Verdict(call=changed, answer=worded(end) if isinstance(end, ToolFailure) else end)

    # ── running ─────────────────────────────────────────────────────────────────────────────

    async def _carry_out(self, batch: list[Call]) -> None:
        """Put questions, run what runs side by side, write the results."""
        chat = self.chat
        ready: list[Call] = []
        for call in batch:
            if call.request is not None and not call.asked:
                await put(chat, self.iteration, call)
            if not call.pending:
                ready.append(call)
        if len(ready) > 1 and any(call.runs or call.request is not None for call in ready):
            self.turn = Lock()
            await chat.runtime.gather([partial(self._guarded, call) for call in ready])
            self.turn = None
        else:
            for call in ready:
                await self._run(call)

    async def _guarded(self, call: Call) -> None:
        try:
            await self._run(call)
        except Exception as exc:
            self.chat.fail(exc)  # it came first, whatever its siblings do while they end
            raise
        except CancelledError as exc:
            if self.chat.broken or self.chat.cancelled or call.result is not None:
                raise
            call.set(ToolFailure.of(exc), None)  # the tool cancelled its own task
            await self._run(call)

    async def _run(self, call: Call, asks: Sequence[Hook] = ()) -> bool:
        """What `asks` says of the one call; the handler; the result's hooks, event and message."""
        chat, outlet = self.chat, self.chat.outlet
        if asks:
            ctx = self._before(call)
            chain = hear(asks, ctx, chat, call.call.name)
            if chain is not None and not self._permits(call, ctx, await chain):
                return await self._run_all()
            call.runs = True
        if not call.announced:
            if len(outlet.items) >= SIZE:
                await outlet.room()
            self._announce(call)
        if chat.broken:
            chat.check()
        if call.request is not None and not call.decided:
            await decide(chat, self.iteration, call)
            chat.check()
        if call.runs:
            if chat.runtime is LOCAL:
                result = await (wrapped if chat.view.aroundToolCall else handle)(chat, call)
            else:
                key = (RUN, self.iteration, call.id)
                ran = await chat.runtime.step(key, run_handler, RAN, chat, call)
                result, call.stop, call.ran = ran.result, ran.stop, ran.began
            call.result = result
            call.runs = False
            if not isinstance(result, ToolResult):
                call.outcome = "error"
            if chat.broken:
                chat.check()
        if self.turn is not None:
            await self.turn.acquire()
        try:
            call.result = bounded(call.result, chat.config.limits.output_bytes)
            if not call.final:
                if chat.view.onToolCallResult or chat.view.onToolCallError:
                    await settle(chat, self.iteration, call)
                call.final = True
            if call.stop is not None:
                self.stop = self.stop or call.stop
            if len(outlet.items) >= SIZE:
                await outlet.room()
            self._report(call)
            if not self.lone:
                await self._write()
            else:
                message = message_for(call, f"{chat.chat_id}.{len(chat.messages)}")
                if chat.keep(message):
                    call.message = message
                    if chat.view.onMessage:
                        await chat.tell(message)
                else:
                    call.message = await chat.commit(message)
        finally:
            if self.turn is not None:
                self.turn.release()
        return True

    async def _write(self) -> None:
        """Write the messages whose turn it is."""
        overtaken = False
        for each in self.calls:
            if each.pending:
                overtaken = True
            elif each.message is None:
                if not each.reported:
                    return
                if overtaken:
                    self.chat.conversation.disorder()
                message = message_for(each, self.chat.next_id())
                each.message = await self.chat.commit(message)

    def _report(self, call: Call) -> None:
        """Publish how the call ended; room was waited for."""
        result = call.result
        assert result is not None
        if not isinstance(result, ToolResult):
            result = result.told()  # who keeps an event keeps no traceback
        outlet = self.chat.outlet
        call.reported = True
        seq = outlet.buffer.seq = outlet.buffer.seq + 1
        outlet.put(
            ToolCallFinished(
                chat_id=self.chat.chat_id,
                path=outlet.path,
                seq=seq,
                iteration=self.iteration,
                call_id=call.id,
                name=call.call.name,
                outcome=call.outcome,
                result=result,
            )
        )

    # ── the end that was not planned ────────────────────────────────────────────────────────

    def _unwritten(self) -> list[Call]:
        written = {m.call_id for m in self.chat.messages if isinstance(m, ToolMessage)}
        return [call for call in self.calls if not call.earlier and call.id not in written]

    def _broken_off(self, call: Call) -> None:
        if call.result is None:
            call.set(ABORTED, "aborted")
        elif not call.final:
            call.set(UNSEEN, "aborted")
        call.final = True

    async def close(self) -> None:
        """The chat ends in the middle of this step: each call gets its one result."""
        for call in self._unwritten():
            self._broken_off(call)
            if call.announced and not call.reported:
                if len(self.chat.outlet.items) >= SIZE:
                    await self.chat.outlet.room()
                self._report(call)
            count = len(self.chat.messages)
            try:
                call.message = await self.chat.commit(message_for(call, self.chat.next_id()))
            except Exception:
                if len(self.chat.messages) == count:  # a hook will not have it as it is
                    call.withhold(withheld(call))
                    if len(self.chat.outlet.items) >= SIZE:
                        await self.chat.outlet.room()
                    self.chat.write_plain(message_for(call, self.chat.next_id()))

    def close_now(self) -> None:
        """The same without hooks and without waiting: what a hanging hook has left undone."""
        for call in self._unwritten():
            self._broken_off(call)
            self.chat.write_plain(message_for(call, self.chat.next_id()))
        self.chat.open_step = None

    def reopened(self) -> None:
        """Some of its calls have results, or wait, from an earlier chat."""
        self.fresh = self.lone = False
        self.held = True

    def pending_step(self) -> PendingStep:
        """What a resumed chat needs to go on with this step."""
        requests = [call.request for call in self.calls if call.pending and call.request]
        tools = self.request.tools if self.request else ()
        foreign = foreign_names(self.chat, tools)  # nobody has them later: the agent's is another
        return PendingStep(
            chat_id=self.chat.chat_id,
            iteration=self.iteration,
            requests=tuple(requests),
            offered=tuple(tool.name for tool in tools if tool.name not in foreign),
            stop=self.stop,
            continuations=self.chat.continuations,
        )


def open_step(
    chat: Chat, iteration: int, calls: Sequence[ToolCall], request: ModelRequest | None
) -> Step:
    """The step whose calls are made next."""
    config, first, lone = chat.config, calls[0], False
    if len(calls) > 1:
        made = [Call(call.id, call, place) for place, call in enumerate(calls)]
    else:
        found = config.scopes.tools.get(first.name)
        if found is not None and request is not None and found[0] in request.tools:
            fixed = config.scopes.fixed
            made = [Call(first.id, first, 0, found[0], found[1], True, fixed)]
            lone = config.limits.tool_calls > 0
        else:
            made = [Call(first.id, first, 0)]
    step = Step(chat=chat, iteration=iteration, request=request, calls=made, lone=lone)
    chat.open_step = step
    return step
