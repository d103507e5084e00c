"""Events on spans that explain the course of a chat: retries, handoffs, guardrails and approvals.

Only hookline's own statuses are recorded: a user's status may contain content.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, cast

from hookline import Approve, Run
from hookline.otel._chat.attributes import hook_labels
from hookline.otel._chat.model_call import ModelCall
from hookline.otel._chat.trace import Trace
from hookline.otel._conventions import names
from hookline.otel._emit.emitter import Emitter
from hookline.otel._emit.spans import Operation, innermost
from hookline.points import OnApproval, OnHook, PreSteer


def nearest(trace: Trace | None, call: ModelCall | None) -> Operation | None:
    """Return the innermost open operation, or the chat's.

    Between two attempts of a model call, no span of the call is current; `call` is that call.
    """
    op = innermost()
    if trace is None or not (op is None or op.closed or op is trace.op):
        return op
    return call if call is not None and not call.closed else trace.op


def tell_status(op: Operation, name: str, keys: Collection[str], data: Any) -> None:
    """Record a status as an event, with the data at these keys as attributes.

    A user's own status may have the same type, and content at other keys.
    """
    if not op.span.is_recording():
        return
    content = op.emitter.content
    attributes: dict[str, Any] = {}
    fields = cast("dict[str, Any]", data) if isinstance(data, dict) else {}
    for key, value in fields.items():
        if key not in keys or not isinstance(value, (str, int, float)):
            continue
        if key == "error":
            error = op.error if isinstance(op, ModelCall) else None
            attributes[names.ERROR_TYPE] = error or names.identifier(str(value))
        elif key in ("why", "code"):
            attributes[f"{name}.{key}"] = names.identifier(str(value))
        else:
            attributes[f"{name}.{key}"] = content.word(value) if isinstance(value, str) else value
    op.span.add_event(name, attributes)


def tell_approval(trace: Trace, ctx: OnApproval) -> None:
    """Record that an approval was requested or answered, and when."""
    call, decision, span = ctx.request.call, ctx.decision, trace.op.span
    if not span.is_recording():
        return
    attributes: dict[str, Any] = {
        names.TOOL_NAME: call.name,
        names.TOOL_CALL_ID: trace.op.emitter.content.word(call.id),
    }
    if decision is None:
        attributes[names.APPROVAL_DECISION] = "asked"
        trace.links.approval_requested(ctx.run, call.id)
    else:
        approved = isinstance(decision, Approve)
        attributes[names.APPROVAL_DECISION] = "approved" if approved else "denied"
        if isinstance(decision, Approve) and decision.arguments is not None:
            attributes[names.APPROVAL_EDITED] = True
        if decision.by is not None:
            attributes[names.APPROVAL_BY] = trace.op.emitter.content.word(decision.by)
        wait = trace.links.approval_wait(ctx.run, call.id)
        if wait is not None:
            attributes[names.APPROVAL_WAIT] = wait
    span.add_event(names.APPROVAL_EVENT, attributes)


def tell_sent(trace_of: Callable[[Run[Any]], Trace | None], ctx: PreSteer[Any]) -> None:
    """Record that a message that was sent into the chat is delivered."""
    trace = trace_of(ctx.run)
    if trace is not None and trace.op.span.is_recording():
        id = trace.op.emitter.content.word(ctx.message.id)
        attributes = {names.SENT_ID: id, names.SENT_WHEN: ctx.when}
        trace.op.span.add_event(names.SENT_EVENT, attributes)


def tell_hook(
    emitter: Emitter, ctx: OnHook[Any], trace: Trace | None, call: ModelCall | None
) -> None:
    """Record another hook: its duration as a metric, its decision as an event."""
    labels = hook_labels(ctx.hook, ctx.point, ctx.outcome)
    op = nearest(trace, call)
    emitter.instruments.hook_duration.record(
        ctx.duration, labels, None if op is None else op.context
    )
    if ctx.outcome == "ok" or op is None or trace is None or not op.span.is_recording():
        return
    attributes: dict[str, Any] = {**labels, names.HOOK_DURATION: ctx.duration}
    if ctx.id is not None:
        attributes[names.HOOK_ID] = names.whole(ctx.id)
    op.span.add_event(names.HOOK_EVENT, attributes)
