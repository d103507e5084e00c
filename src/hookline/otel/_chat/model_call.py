"""A model call: its span, its metrics, and its end.

Failures in this module are reported, and never reach the chat.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextvars import ContextVar
from time import time_ns
from typing import Any, Final

from opentelemetry.context import Context
from opentelemetry.trace import NonRecordingSpan, SpanKind

from hookline import Message, ModelRequest, ModelResponse, Usage
from hookline.models import Timing
from hookline.otel._chat.attributes import ModelWords, usage_of
from hookline.otel._chat.trace import Trace
from hookline.otel._conventions import names
from hookline.otel._conventions.openinference import COST as LLM_COST
from hookline.otel._conventions.openinference import inputs_and_outputs, kind_of
from hookline.otel._emit.content import as_json, text_of
from hookline.otel._emit.emitter import Emitter
from hookline.otel._emit.own_failures import FailureReport, report
from hookline.otel._emit.spans import Operation
from hookline.points import AroundRequest


class ModelCall(Operation):
    """One logical model call, with all its attempts."""

    what = "a model call"

    def __init__(self, emitter: Emitter, trace: Trace, ctx: AroundRequest[Any]) -> None:
        request = ctx.request
        words = trace.words_of(request)
        first = {**words.first, names.ITERATION: ctx.iteration}
        if request.output is not None:
            first[names.OUTPUT_TYPE] = "json"
        if trace.deltas:  # of answers by hooks, which have no span of their own
            trace.tell_deltas(trace.op)
        if trace.model is None:
            trace.tell_model(words, request)
            trace.links.meet(ctx.run)
        if emitter.openinference:
            first.update(kind_of(names.CHAT))
        super().__init__(emitter, words.name, SpanKind.CLIENT, first)
        self._response: ModelResponse | None = None
        self._usage: Usage | None = None  # the tokens of all attempts that were answered
        self._reader_wait = 0.0  # seconds that the attempts waited for the reader of the stream
        self._run = ctx.run
        self._trace = trace
        self._words = words
        self.attempts = 0  # the number of requests that were actually sent
        self.error: str | None = None  # the error of the last failed attempt
        self.request = request
        self.timing: Timing | None = None
        trace.open.append(self)

    def attempt(self, request: ModelRequest) -> None:
        """Note a request. The inner wrappers may have changed the request or the model."""
        self.attempts += 1
        before = self.request
        if request.model is not before.model or request.settings is not before.settings:
            with FailureReport("the model of an attempt could not be traced"):
                self._words = self._trace.words_of(request)
                self.attributes.update(self._words.first)
                self.span.update_name(self._words.name)
        self.request = request
        self.timing = None

    def failed(self, exc: Exception) -> None:
        """Record a failed attempt as an event, whether or not it is retried."""
        self.error = names.error_type(exc)
        tell_failure(self.emitter, self._words, exc, self.context)
        self._broke_off()

    def took(self, response: ModelResponse) -> None:
        """Record the timing and the tokens of an attempt that the model has answered."""
        if self.closed:
            return
        self._timed(response.timing)
        try:
            if response.usage is not None:
                self._pay(response.model, response.usage)
        except Exception as exc:
            report("the tokens of a model call could not be recorded", exc)

    def _timed(self, timing: Timing | None) -> None:
        self.timing = timing
        if timing is not None:
            self._reader_wait += timing.reader_wait

    def _broke_off(self) -> None:
        if self.timing is None and self.attempts:
            self._timed(self._run.timing)

    def end(self, response: ModelResponse) -> None:
        """End the span with a response."""
        try:
            self._response = response
            if self.span.__class__ is not NonRecordingSpan:
                attributes = self.attributes
                attributes[names.FINISH_REASONS] = (names.FINISHED[response.finish_reason],)
                if response.model:
                    attributes[names.RESPONSE_MODEL] = names.whole(response.model)
                if response.response_id:
                    attributes[names.RESPONSE_ID] = self.emitter.content.word(response.response_id)
            self._end(time_ns(), None, None)
        except Exception as exc:
            report("a model call could not be traced to its end", exc)
            self.drop()

    def end_stopped(self) -> None:
        """End the span without an error: a hook has stopped the chat."""
        self._end(time_ns(), None, None)

    def close(self, at: int, error: str | None, exc: BaseException | None = None) -> None:
        """End the span without a response."""
        self.attributes[names.FINISH_REASONS] = ("error",)
        self._broke_off()
        self._end(at, error, exc)

    def _end(self, at: int, error: str | None, exc: BaseException | None) -> None:
        if self.closed:
            return
        emitter, trace = self.emitter, self._trace
        trace.open.remove(self)
        if self.attempts != 1:
            self.attributes[names.ATTEMPTS] = self.attempts
        if trace.deltas:
            trace.tell_deltas(self)
        if self.timing is not None:
            self.attributes[names.FIRST_CHUNK] = self.timing.first_chunk
        if self._reader_wait:
            self.attributes[names.READER_WAIT] = self._reader_wait
            trace.reader_wait += self._reader_wait
        if self.attempts and self.span.is_recording():
            share = emitter.prefixes.share(self._run, self.request)
            if share is not None:
                self.attributes[names.PREFIX] = share
        self.attributes.update(usage_of(self._usage, emitter.semconv.cache_write))
        text = self._write(error, exc) if emitter.writes else None
        self.finish(at, error, text)
        trace.model_calls += 1
        if emitter.metered:
            self._measure(max(self.seconds(at) - self._reader_wait, 0.0), error)
        trace.fresh = False

    def _pay(self, answered_by: str | None, usage: Usage) -> None:
        self._usage = usage if self._usage is None else self._usage + usage
        emitter, points = self.emitter, self._words.points(answered_by)
        if emitter.metered:
            emitter.instruments.record_tokens(usage, points, self.context)
        cost = emitter.price(self._words.labels[names.REQUEST_MODEL], answered_by, usage)
        if cost is None:
            return
        if emitter.metered and cost > 0:
            emitter.instruments.cost.add(cost, points.call, self.context)
        trace = self._trace
        trace.cost = cost if trace.cost is None else trace.cost + cost
        self.attributes[names.COST] = cost = self.attributes.get(names.COST, 0.0) + cost
        if emitter.openinference:
            self.attributes[LLM_COST] = cost

    def _write(self, error: str | None, exc: BaseException | None) -> str | None:
        """Record content, if requested; returns the text of the error, if spans may contain it."""
        content = self.emitter.content
        recording = self.span.is_recording()
        on_span, in_event = content.spans and recording, content.events and self.emitter.details
        content_attributes = self._content() if on_span or in_event else {}
        if on_span:
            self.attributes.update(
                {name: as_json(value) for name, value in content_attributes.items()}
            )
            if self.emitter.openinference:
                self.attributes.update(inputs_and_outputs(self.attributes))
        if self.emitter.details:
            details = {**self._words.labels, **self.attributes}
            details.update(content_attributes if in_event else {})
            if error is not None:
                details[names.ERROR_TYPE] = error
            self.emitter.events.emit(names.DETAILS_EVENT, "DEBUG", details, self.context)
        return content.error_text(exc)

    def _content(self) -> dict[str, Any]:
        """Return the messages and the response; for messages recorded before, only their number."""
        content, trace, request = self.emitter.content, self._trace, self.request
        full = self.emitter.full
        attributes: dict[str, Any] = {}
        if request.system and (full or request.system != trace.system):
            attributes[names.SYSTEM] = content.system(request.system)
        if request.tools and (full or request.tools != trace.tools):
            attributes[names.DEFINITIONS], _ = content.bounded(content.definitions(request.tools))
        trace.system, trace.tools = request.system, request.tools
        history: Sequence[Message] = request.messages
        messages = history if full else trace.unwritten(history, self._run)
        attributes[names.INPUT], omitted = content.bounded(content.messages(messages))
        if omitted:
            self.attributes[names.OMITTED_MESSAGES] = omitted
        if len(messages) < len(history):
            self.attributes[names.EARLIER] = len(history) - len(messages)
        if self._response is not None:
            answer = self._response
            attributes[names.OUTPUT] = content.answer(answer.parts, answer.finish_reason)
        return attributes

    def _measure(self, seconds: float, error: str | None) -> None:
        to, context = self.emitter.instruments, self.context
        response, timing = self._response, self.timing
        points = self._words.points(None if response is None else response.model)
        labels = points.call
        if error is not None:
            labels = {**labels, names.ERROR_TYPE: error}
        to.duration.record(seconds, labels, context)
        if timing is not None:
            to.first_chunk.record(timing.first_chunk, points.call, context)
            if timing.chunks > 1 and error is None:
                took = timing.duration - timing.reader_wait - timing.first_chunk
                mean = max(took, 0.0) / (timing.chunks - 1)
                to.chunk_time.record(mean, points.call, context)


def tell_failure(emitter: Emitter, words: ModelWords, exc: Exception, context: Context) -> None:
    """Emit the event for a failed model call."""
    attributes = {**words.labels, names.EXCEPTION_TYPE: names.error_type(exc)}
    if emitter.content.events:
        attributes[names.EXCEPTION_MESSAGE] = emitter.content.text(text_of(exc))
    emitter.events.emit(names.EXCEPTION_EVENT, "WARN", attributes, context)


class CallSlot:
    """A model call inside its wrappers; it has a span once a request was sent."""

    __slots__ = ("call",)

    def __init__(self) -> None:
        self.call: ModelCall | None = None


SLOT: Final[ContextVar[CallSlot | None]] = ContextVar("hookline_otel_call", default=None)


def open_call() -> ModelCall | None:
    """The model call whose wrappers run here."""
    slot = SLOT.get()
    return None if slot is None else slot.call
