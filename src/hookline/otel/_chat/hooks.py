"""The hooks that begin, activate and end the spans of a chat.

`aroundChat` handles the agent's span, `aroundRequest` the spans of model calls, and
`aroundToolCall` the spans of tools. The outermost wrapper of a model call handles its span, so that
the span covers all attempts; the innermost wrapper sees each attempt. `onHook` records other hooks.
Nothing here changes a request or result, and failures are reported and never reach the chat.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from functools import partial
from time import time_ns
from typing import Any, Final, TypeVar

from hookline import (
    HookBus,
    ModelRequest,
    ModelResponse,
    Proceed,
    Response,
    Run,
    ToolCall,
    ToolFailure,
    ToolResult,
    UserMessage,
)
from hookline.errors import ChatAbortedError, StopChat
from hookline.otel._chat import span_events
from hookline.otel._chat.agent_span import begin_agent_span, end_agent_span
from hookline.otel._chat.model_call import SLOT, CallSlot, ModelCall, open_call, tell_failure
from hookline.otel._chat.tool_call import ToolCallSpan
from hookline.otel._chat.trace import Trace
from hookline.otel._conventions import names
from hookline.otel._emit.emitter import Emitter
from hookline.otel._emit.own_failures import FailureReport, report
from hookline.otel._emit.spans import Place
from hookline.points import (
    AroundChat,
    AroundRequest,
    AroundToolCall,
    OnApproval,
    OnChatAbort,
    OnChatEnd,
    OnHook,
    OnStatus,
)

NAME: Final = "hookline.otel"
OUTERMOST: Final = 1_000_000
INNERMOST: Final = -1_000_000
C = TypeVar("C", ModelCall, ToolCallSpan)


class Tracing:
    """The hooks for one pair of providers, on buses of their own.

    A chat gets only the hooks that it needs: no `onHook` if there are no other hooks.
    """

    def __init__(self, emitter: Emitter) -> None:
        emitter.bus_for_chat = self.bus_for_chat
        self.emitter = emitter
        # whether nothing is recorded without spans
        self._silent = not emitter.metered and not emitter.details
        self._chats: dict[object, Trace] = {}  # by the chat itself: ids may be equal
        self._without_hooks = self._bus(lone=True)
        self._with_observers = self._bus(lone=True, with_others=True)
        self._with_wrappers = self._bus(lone=False, with_others=True)

    def bus_for_chat(self, keys: Collection[object]) -> HookBus[Any]:
        """Return the hooks for a chat that has other hooks at these points."""
        if not keys:
            return self._without_hooks
        return self._with_wrappers if "aroundRequest" in keys else self._with_observers

    def _bus(self, *, lone: bool, with_others: bool = False) -> HookBus[Any]:
        bus: HookBus[Any] = HookBus()
        add = bus.add_hook
        add("aroundChat", self._around_chat, priority=OUTERMOST, name=NAME)
        if lone:
            add("aroundRequest", self._around_lone_request, priority=OUTERMOST, name=NAME)
        else:
            add("aroundRequest", self._around_request, priority=OUTERMOST, name=NAME)
            add("aroundRequest", self._around_attempt, priority=INNERMOST, name=NAME)
        add("aroundToolCall", self._around_tool, priority=OUTERMOST, name=NAME)
        add("onChatAbort", self._on_abort, priority=OUTERMOST, name=NAME)
        add("onChatEnd", self._on_end, priority=INNERMOST, name=NAME)
        add("onApproval", self._on_approval, priority=OUTERMOST, name=NAME)
        steer = partial(span_events.tell_sent, self._trace_of)
        add("preSteer", steer, priority=INNERMOST, name=NAME)
        add("onStatus", self._on_status, priority=OUTERMOST, name=NAME)
        if with_others:
            add("onHook", self._on_hook, name=NAME)
        return bus

    def _trace_of(self, run: Run[Any]) -> Trace | None:
        return self._chats.get(Run.chat_of(run))

    # ── the chat ────────────────────────────────────────────────────────────────────────────

    async def _around_chat(
        self, ctx: AroundChat, proceed: Proceed[UserMessage, Response]
    ) -> Response:
        trace = self._begin_chat(ctx)
        if trace is None:
            return await proceed()
        try:
            response = await proceed()
        except BaseException as exc:
            self._end_chat(trace, exc)
            raise
        else:
            self._end_chat(trace, None, response)
            return response
        finally:
            trace.op.leave()

    def _begin_chat(self, ctx: AroundChat) -> Trace | None:
        with FailureReport("a chat could not be traced"):
            trace = begin_agent_span(self.emitter, ctx)
            self._chats[Run.chat_of(ctx.run)] = trace
            return trace
        return None

    def _end_chat(
        self, trace: Trace, exc: BaseException | None, response: Response | None = None
    ) -> None:
        """End the chat's trace; a second call has no effect."""
        with FailureReport("a chat could not be traced to its end", trace.op.drop):
            self._chats.pop(Run.chat_of(trace.run), None)
            if not trace.op.closed:
                end_agent_span(self.emitter, trace, exc, response)

    def _on_abort(self, ctx: OnChatAbort) -> None:
        trace = self._trace_of(ctx.run)
        if trace is not None:
            trace.reason = ctx.reason
            trace.outcome = "aborted"
            trace.close_cut()

    def _on_end(self, ctx: OnChatEnd) -> None:
        trace = self._trace_of(ctx.run)
        if trace is None:
            return
        trace.outcome = ctx.outcome
        trace.usage = ctx.usage
        with FailureReport("a chat could not be linked to the previous chat"):
            trace.links.meet(ctx.run, leave=False)
        if Run.chat_of(ctx.run).left_behind:  # `_around_chat` may never return
            aborted = ChatAbortedError(trace.reason) if ctx.response is None else None
            self._end_chat(trace, ctx.error or aborted, ctx.response)

    # ── a model call ────────────────────────────────────────────────────────────────────────

    async def _around_request(
        self, ctx: AroundRequest, proceed: Proceed[ModelRequest, ModelResponse]
    ) -> ModelResponse:
        """Wrap other wrappers: the span begins with the first attempt, if there is one."""
        trace = self._trace_of(ctx.run)
        if trace is None:
            return await proceed()
        slot, before = CallSlot(), SLOT.get()
        SLOT.set(slot)
        try:
            response = await proceed()
        except BaseException as exc:
            if slot.call is not None:
                self._break_off(trace, slot.call, exc)
            raise
        else:
            if slot.call is not None:
                slot.call.end(response)
            return response
        finally:
            if SLOT.get() is slot:
                SLOT.set(before)

    async def _around_lone_request(
        self, ctx: AroundRequest, proceed: Proceed[ModelRequest, ModelResponse]
    ) -> ModelResponse:
        """Wrap a model call that has no other wrappers."""
        trace = self._trace_of(ctx.run)
        if trace is not None and trace.op.quiet and self._silent:
            return await self._unseen(trace, ctx, proceed)
        call = _begin(ModelCall, self.emitter, trace, ctx)
        if trace is None or call is None:
            return await proceed()
        call.attempts = 1
        try:
            response = await proceed()
        except BaseException as exc:
            if isinstance(exc, Exception):
                call.failed(exc)
            self._break_off(trace, call, exc)
            raise
        else:
            call.took(response)
            call.end(response)
            return response
        finally:
            call.leave()

    async def _unseen(
        self, trace: Trace, ctx: AroundRequest, proceed: Proceed[ModelRequest, ModelResponse]
    ) -> ModelResponse:
        """Wrap a call in an unsampled chat without metrics: only failures are recorded."""
        try:
            return await proceed()
        except Exception as exc:
            with FailureReport("a failed model call could not be traced"):
                tell_failure(self.emitter, trace.words_of(ctx.request), exc, trace.op.context)
            raise

    async def _around_attempt(
        self, ctx: AroundRequest, proceed: Proceed[ModelRequest, ModelResponse]
    ) -> ModelResponse:
        slot, trace = SLOT.get(), self._trace_of(ctx.run)
        if slot is None or trace is None:
            return await proceed()
        place = Place()  # each attempt may be inside of another span of a wrapper
        if slot.call is None:
            slot.call = _begin(ModelCall, self.emitter, trace, ctx)
        else:
            slot.call.enter()  # an attempt may run in another task
        call = slot.call
        if call is None:
            return await proceed()
        call.attempt(ctx.request)
        try:
            response = await proceed()
        except Exception as exc:
            call.failed(exc)
            raise
        else:
            call.took(response)
            return response
        finally:
            place.restore(call)

    # ── a tool call ─────────────────────────────────────────────────────────────────────────

    async def _around_tool(
        self, ctx: AroundToolCall, proceed: Proceed[ToolCall, ToolResult | ToolFailure]
    ) -> ToolResult | ToolFailure:
        trace = self._trace_of(ctx.run)
        if trace is not None and trace.op.quiet and self._silent:
            return await proceed()
        work = _begin(ToolCallSpan, self.emitter, trace, ctx)
        if trace is None or work is None:
            return await proceed()
        try:
            result = await proceed()
        except BaseException as exc:
            self._break_off(trace, work, exc)
            raise
        else:
            work.finished(result)
            return result
        finally:
            work.leave()

    def _break_off(self, trace: Trace, work: ModelCall | ToolCallSpan, exc: BaseException) -> None:
        """End a call that was cancelled or that raised."""
        with FailureReport("a call could not be traced to its end", work.drop):
            is_open = Run.chat_of(trace.run) in self._chats
            if isinstance(exc, asyncio.CancelledError) and is_open:
                trace.hold(work)
            elif isinstance(exc, StopChat) and isinstance(work, ModelCall):
                work.end_stopped()
            elif isinstance(exc, (asyncio.CancelledError, GeneratorExit)):
                work.close(time_ns(), names.OTHER)
            else:
                work.close(time_ns(), names.error_type(exc), exc)

    # ── why a chat took the way that it took ────────────────────────────────────────────────

    def _on_status(self, ctx: OnStatus) -> None:
        event = names.STATUS_EVENTS.get(ctx.type)
        op = None if event is None else span_events.nearest(self._trace_of(ctx.run), open_call())
        if event is None or op is None:
            return
        with FailureReport("a status could not be traced"):
            span_events.tell_status(op, *event, ctx.data)

    def _on_approval(self, ctx: OnApproval) -> None:
        trace = self._trace_of(ctx.run)
        if trace is not None:
            with FailureReport("an approval could not be traced"):
                span_events.tell_approval(trace, ctx)

    # ── other hooks ─────────────────────────────────────────────────────────────────────────

    def _on_hook(self, ctx: OnHook) -> None:
        if ctx.hook == NAME:
            return
        trace = self._trace_of(ctx.run) if ctx.run is not None else None
        if trace is not None and ctx.point == "onDelta":
            count = trace.deltas.setdefault((ctx.hook, ctx.outcome), [0, 0.0])
            count[0] += 1
            count[1] += ctx.duration
            return
        with FailureReport("a hook could not be traced"):
            span_events.tell_hook(self.emitter, ctx, trace, open_call())


def _begin(kind: type[C], emitter: Emitter, trace: Trace | None, ctx: Any) -> C | None:
    """Begin the span of a call, which stays current until it is left; None if that fails."""
    if trace is None:
        return None
    try:
        return kind(emitter, trace, ctx)
    except Exception as exc:
        report(f"{kind.what} could not be traced", exc)
        return None
