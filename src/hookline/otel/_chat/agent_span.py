"""The span of a whole chat, and the metrics recorded at its end."""

from __future__ import annotations

from asyncio import CancelledError
from time import time_ns
from typing import Any

from opentelemetry.trace import SpanKind

from hookline import Response, Text
from hookline.errors import ChatAbortedError
from hookline.otel._chat.attributes import usage_of
from hookline.otel._chat.trace import Trace
from hookline.otel._conventions import names
from hookline.otel._conventions.openinference import INPUT, OUTPUT, SESSION, kind_of, value_of
from hookline.otel._emit.content import as_json
from hookline.otel._emit.emitter import Emitter
from hookline.otel._emit.spans import Operation
from hookline.points import AroundChat
from hookline.runtimes import Halted


def begin_agent_span(emitter: Emitter, ctx: AroundChat[Any]) -> Trace:
    """Begin the agent span; it stays current until it is left."""
    run, agent = ctx.run, names.whole(ctx.run.agent)
    common = emitter.attributes(run)
    if run.conversation_id is not None:
        common[names.CONVERSATION] = emitter.content.word(run.conversation_id)
    first: dict[str, Any] = {
        **common,
        names.OPERATION: names.INVOKE_AGENT,
        names.AGENT_NAME: agent,
        names.CHAT_ID: run.chat_id,
        names.PROVIDER: names.whole(run.provider or names.UNKNOWN),
        names.REQUEST_MODEL: names.whole(run.model),
    }
    if emitter.openinference:
        first.update(kind_of(names.INVOKE_AGENT))
        if run.conversation_id is not None:
            first[SESSION] = common[names.CONVERSATION]
    op = Operation(emitter, f"{names.INVOKE_AGENT} {agent}", SpanKind.INTERNAL, first)
    return Trace(run, op, common)


def end_agent_span(
    emitter: Emitter, trace: Trace, exc: BaseException | None, response: Response | None
) -> None:
    """End the agent span, after the open spans below it."""
    trace.close_open()
    if trace.deltas:  # of answers by hooks, which have no span of their own
        trace.tell_deltas(trace.op)
    error = None if exc is None or isinstance(exc, Halted) else _why(trace, exc)
    if trace.op.span.is_recording():
        _tell(emitter, trace, exc, response)
    at = time_ns()
    trace.op.close(at, error, exc)
    emitter.keep(trace.chat_id, trace.op.context)
    if emitter.metered:
        _measure(emitter, trace, trace.op.seconds(at), error)


def _tell(
    emitter: Emitter, trace: Trace, exc: BaseException | None, response: Response | None
) -> None:
    attributes = trace.op.attributes
    attributes[names.OUTCOME] = trace.outcome or _outcome(exc)
    usage = response.usage if response is not None else trace.usage
    cache_write = emitter.semconv.cache_write if emitter.semconv.agent_caches else None
    attributes.update(usage_of(usage, cache_write))
    if trace.reader_wait:
        attributes[names.READER_WAIT] = trace.reader_wait
    if trace.cost is not None:
        attributes[names.COST] = trace.cost
    message = trace.user_message() if emitter.content.spans else None
    if message is not None:
        messages, _ = emitter.content.bounded(emitter.content.messages([message]))
        attributes[names.INPUT] = as_json(messages)
        if emitter.openinference:
            attributes.update(value_of(INPUT, emitter.content.text(message.text)))
    if response is not None:
        _tell_answer(emitter, attributes, response)


def _tell_answer(emitter: Emitter, attributes: dict[str, Any], response: Response) -> None:
    attributes[names.STEPS] = response.steps
    if response.stop_reason is not None:
        attributes[names.STOP_REASON] = names.identifier(response.stop_reason)
    if response.pending:
        attributes[names.PENDING] = len(response.pending)
    if response.finish_reason is not None:
        attributes[names.FINISH_REASONS] = (names.FINISHED[response.finish_reason],)
        if emitter.content.spans:
            answer = emitter.content.answer([Text(response.text)], response.finish_reason)
            attributes[names.OUTPUT] = as_json(answer)
    if emitter.openinference and (emitter.content.spans or response.pending):
        attributes.update(value_of(OUTPUT, _answer_with_pending(emitter, response)))


def _outcome(exc: BaseException | None) -> str:
    if isinstance(exc, Halted):
        return "halted"  # this life is over, but another worker continues the chat
    if exc is None:
        return "done"
    cut = isinstance(exc, (ChatAbortedError, CancelledError, GeneratorExit))
    return "aborted" if cut else "error"


def _answer_with_pending(emitter: Emitter, response: Response) -> str:
    """Return the answer, with its pending approvals: a waiting chat must not look finished."""
    lines = [f"[waits for an approval of {request.call.name}]" for request in response.pending]
    if emitter.content.spans and response.text:
        lines.insert(0, emitter.content.text(response.text))
    return "\n".join(lines)


def _measure(emitter: Emitter, trace: Trace, seconds: float, error: str | None) -> None:
    to, context = emitter.instruments, trace.op.context
    mine = {names.AGENT_NAME: trace.agent}
    to.agent_calls.record(trace.model_calls, mine, context)
    to.agent_tools.record(trace.tool_calls, mine, context)
    labels: dict[str, Any] = dict(mine)  # an SDK may keep the labels that it gets
    if trace.model is not None:
        labels[names.REQUEST_MODEL] = trace.model
    if error is not None:
        labels[names.ERROR_TYPE] = error
    to.agent_duration.record(seconds, labels, context)


def _why(trace: Trace, exc: BaseException) -> str:
    """Return the error.type of a chat that failed or was aborted."""
    if isinstance(exc, ChatAbortedError):
        reason = trace.reason if trace.reason is not None else exc.reason
        if reason in names.READER_GONE:
            return names.OTHER
        return names.CANCELLED if reason == "cancelled" else names.error_type(exc)
    return names.OTHER if isinstance(exc, GeneratorExit) else names.error_type(exc)
