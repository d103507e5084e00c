"""The hooks: where in a chat which span begins, is current, and ends.

`aroundChat` holds the agent's span, `aroundRequest` that of a model call, `aroundToolCall` that of
a tool. The outermost wrapper of a model call holds the span, so that it covers all attempts; the
innermost one sees each attempt. `onHook` tells what other hooks did. Nothing here changes what
passes, and what fails here is reported and never reaches the chat.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from time import time_ns
from typing import Any, Final, TypeAlias

from hookline import (
    HookBus,
    ModelRequest,
    ModelResponse,
    Proceed,
    Response,
    ToolCall,
    ToolFailure,
    ToolResult,
    UserMessage,
)
from hookline.errors import ChatAbortedError
from hookline.otel import _names as names
from hookline.otel._agent_span import begin_agent_span, end_agent_span
from hookline.otel._calls import ModelCall, ToolCallSpan
from hookline.otel._kit import Kit
from hookline.otel._report import report
from hookline.otel._spans import innermost
from hookline.otel._trace import Trace
from hookline.otel._words import hook_labels
from hookline.points import (
    AroundChat,
    AroundRequest,
    AroundToolCall,
    OnChatAbort,
    OnChatEnd,
    OnHook,
    OnStatus,
)

NAME: Final = "hookline.otel"
OUTERMOST: Final = 1_000_000
INNERMOST: Final = -1_000_000
TOLD: Final = frozenset({"retrying", "falling-back", "guardrail", "handoff", "summarized"})


Call: TypeAlias = ModelCall | ToolCallSpan


class Tracing:
    """The hooks of one pair of providers, on buses of their own.

    A chat gets no more of them than it can use: `onHook` tells nothing where there are no other
    hooks, and each attempt is seen by the outermost wrapper where there is no other.
    """

    def __init__(self, kit: Kit) -> None:
        kit.source = self
        self._kit = kit
        self._chats: dict[str, Trace] = {}
        self._alone = self._bus(lone=True)
        self._beside = self._bus(lone=True, told=True)
        self._between = self._bus(lone=False, told=True)

    def bus_for_chat(self, beside: Collection[object]) -> HookBus[Any]:
        """The hooks for a chat that has others at these points."""
        if not beside:
            return self._alone
        return self._between if "aroundRequest" in beside else self._beside

    def _bus(self, *, lone: bool, told: bool = False) -> HookBus[Any]:
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
        add("onStatus", self._on_status, priority=OUTERMOST, name=NAME)
        if told:
            add("onHook", self._on_hook, name=NAME)
        return bus

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
        try:
            trace = begin_agent_span(self._kit, ctx)
            self._chats[trace.chat_id] = trace
            return trace
        except Exception as exc:
            report("a chat could not be traced", exc)
            return None

    def _end_chat(
        self, trace: Trace, exc: BaseException | None, response: Response | None = None
    ) -> None:
        """The chat's one end; whoever comes second changes nothing."""
        try:
            if self._chats.get(trace.chat_id) is trace:
                del self._chats[trace.chat_id]
            if trace.op.ended:
                return
            trace.close_open()
            end_agent_span(self._kit, trace, exc, response)
        except Exception as failure:
            report("a chat could not be traced to its end", failure)
            trace.op.drop()

    def _on_abort(self, ctx: OnChatAbort) -> None:
        trace = self._chats.get(ctx.run.chat_id)
        if trace is not None:
            trace.reason = ctx.reason
            trace.outcome = "aborted"
            trace.close_cut()

    def _on_end(self, ctx: OnChatEnd) -> None:
        trace = self._chats.get(ctx.run.chat_id)
        if trace is None:
            return
        trace.outcome = ctx.outcome
        trace.usage = ctx.usage
        if asyncio.current_task() is not trace.task and ctx.outcome != "done":
            # The chat's own task was aborted, and may be left behind: nothing comes after this.
            self._end_chat(trace, ctx.error or ChatAbortedError(trace.reason))

    # ── a model call ────────────────────────────────────────────────────────────────────────

    async def _around_request(
        self, ctx: AroundRequest, proceed: Proceed[ModelRequest, ModelResponse]
    ) -> ModelResponse:
        trace = self._chats.get(ctx.run.chat_id)
        call = None if trace is None else ModelCall.begin(self._kit, trace, ctx)
        if trace is None or call is None:
            return await proceed()
        try:
            response = await proceed()
        except BaseException as exc:
            self._break_off(trace, call, exc)
            raise
        else:
            call.answered(response)
            return response
        finally:
            call.leave()

    async def _around_lone_request(
        self, ctx: AroundRequest, proceed: Proceed[ModelRequest, ModelResponse]
    ) -> ModelResponse:
        """The same where no other wrapper stands between it and the model."""
        trace = self._chats.get(ctx.run.chat_id)
        call = None if trace is None else ModelCall.begin(self._kit, trace, ctx)
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
            call.timing = response.timing
            call.answered(response)
            return response
        finally:
            call.leave()

    async def _around_attempt(
        self, ctx: AroundRequest, proceed: Proceed[ModelRequest, ModelResponse]
    ) -> ModelResponse:
        call = innermost()
        if not isinstance(call, ModelCall):
            return await proceed()
        call.attempt(ctx.request)
        try:
            response = await proceed()
        except Exception as exc:
            call.failed(exc)
            raise
        call.timing = response.timing
        return response

    # ── a tool call ─────────────────────────────────────────────────────────────────────────

    async def _around_tool(
        self, ctx: AroundToolCall, proceed: Proceed[ToolCall, ToolResult | ToolFailure]
    ) -> ToolResult | ToolFailure:
        trace = self._chats.get(ctx.run.chat_id)
        work = None if trace is None else ToolCallSpan.begin(self._kit, trace, ctx)
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

    def _break_off(self, trace: Trace, work: Call, exc: BaseException) -> None:
        """A call was cut, or something in it raised."""
        try:
            known = self._chats.get(trace.chat_id) is trace
            if isinstance(exc, asyncio.CancelledError) and known:
                trace.hold(work)
            elif isinstance(exc, (asyncio.CancelledError, GeneratorExit)):
                work.close(time_ns(), names.OTHER)
            else:
                work.close(time_ns(), names.error_type(exc), exc)
        except Exception as failure:
            report("a call could not be traced to its end", failure)
            work.drop()

    # ── why a chat took the way that it took ────────────────────────────────────────────────

    def _on_status(self, ctx: OnStatus) -> None:
        """Only statuses of hookline's own: those of users may hold content."""
        if ctx.type not in TOLD:
            return
        try:
            trace = self._chats.get(ctx.run.chat_id)
            op = innermost()
            if trace is not None and (op is None or op.ended):
                op = trace.op
            if op is not None and op.span.is_recording():
                labels = {f"hookline.status.{key}": value for key, value in ctx.data.items()}
                op.span.add_event(names.STATUS_EVENT, {names.STATUS_TYPE: ctx.type, **labels})
        except Exception as exc:
            report("a status could not be traced", exc)

    # ── other hooks ─────────────────────────────────────────────────────────────────────────

    def _on_hook(self, ctx: OnHook) -> None:
        if ctx.hook == NAME:
            return
        trace = self._chats.get(ctx.run.chat_id) if ctx.run is not None else None
        if trace is not None and ctx.point == "onDelta":
            count = trace.deltas.setdefault((ctx.hook, ctx.outcome), [0, 0.0])
            count[0] += 1
            count[1] += ctx.duration
            return
        try:
            self._tell_hook(ctx, trace)
        except Exception as exc:
            report("a hook could not be traced", exc)

    def _tell_hook(self, ctx: OnHook, trace: Trace | None) -> None:
        labels = hook_labels(ctx.hook, ctx.point, ctx.outcome)
        op = innermost()
        if trace is not None and (op is None or op.ended):
            op = trace.op
        self._kit.instruments.hook_duration.record(
            ctx.duration, labels, None if op is None else op.context
        )
        if ctx.outcome == "ok" or op is None or trace is None or not op.span.is_recording():
            return
        op.span.add_event(names.HOOK_EVENT, {**labels, names.HOOK_DURATION: ctx.duration})
