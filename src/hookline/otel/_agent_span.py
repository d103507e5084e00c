"""The span of a whole chat: how it begins, and what it and its metrics say at its end."""

from __future__ import annotations

from time import time_ns
from typing import Any

from opentelemetry.trace import SpanKind

from hookline import Response
from hookline.errors import ChatAbortedError
from hookline.otel import _names as names
from hookline.otel._content import as_json
from hookline.otel._kit import Kit
from hookline.otel._spans import Operation
from hookline.otel._trace import Trace
from hookline.otel._words import text_of, usage_of
from hookline.points import AroundChat


def begin_agent_span(kit: Kit, ctx: AroundChat[Any]) -> Trace:
    """Begin it; it is current until it is left."""
    run = ctx.run
    first = {
        names.OPERATION: names.INVOKE_AGENT,
        names.AGENT_NAME: run.agent,
        names.CHAT_ID: run.chat_id,
    }
    if run.conversation_id is not None:
        first[names.CONVERSATION] = run.conversation_id
    op = Operation(kit, f"{names.INVOKE_AGENT} {run.agent}", SpanKind.INTERNAL, first)
    return Trace(run, op, ctx.message)


def end_agent_span(
    kit: Kit, trace: Trace, exc: BaseException | None, response: Response | None
) -> None:
    """End it, and what is open below it first."""
    trace.close_open()
    error = None if exc is None else _why(trace, exc)
    text = None
    if trace.op.span.is_recording():
        _tell(kit, trace, exc, response)
        if exc is not None and kit.content.spans:
            text = kit.content.text(text_of(exc))
    at = time_ns()
    trace.op.finish(at, error, text)
    if kit.metered:
        _measure(kit, trace, trace.op.seconds(at), error)


def _tell(kit: Kit, trace: Trace, exc: BaseException | None, response: Response | None) -> None:
    found = trace.op.attributes
    found[names.OUTCOME] = trace.outcome or ("done" if exc is None else "error")
    found.update(usage_of(response.usage if response is not None else trace.usage))
    if kit.content.spans and trace.message is not None:
        found[names.INPUT] = as_json(kit.content.messages([trace.message]))
    if response is None:
        return
    found[names.STEPS] = response.steps
    if response.finish_reason is not None:
        reason = names.FINISHED[response.finish_reason]
        found[names.FINISH_REASONS] = (reason,)
        if kit.content.spans:
            found[names.OUTPUT] = as_json(kit.content.said(response.text, reason))


def _measure(kit: Kit, trace: Trace, seconds: float, error: str | None) -> None:
    to, context = kit.instruments, trace.op.context
    mine = {names.AGENT_NAME: trace.agent}
    to.agent_calls.record(trace.model_calls, mine, context)
    to.agent_tools.record(trace.tool_calls, mine, context)
    labels: dict[str, Any] = dict(mine)  # an SDK may keep what it was given
    if trace.model is not None:
        labels[names.REQUEST_MODEL] = trace.model
    if error is not None:
        labels[names.ERROR_TYPE] = error
    to.agent_duration.record(seconds, labels, context)


def _why(trace: Trace, exc: BaseException) -> str:
    """The error.type of a chat that did not end well."""
    if isinstance(exc, ChatAbortedError):
        reason = trace.reason if trace.reason is not None else exc.reason
        if reason in names.LEFT:
            return names.OTHER
        return names.CANCELLED if reason == "cancelled" else names.error_type(exc)
    return names.OTHER if isinstance(exc, GeneratorExit) else names.error_type(exc)
