"""A model call and a tool call: what their spans and metrics say, and their one end each.

What fails in here is reported, and never reaches the chat.
"""

from __future__ import annotations

from collections.abc import Sequence
from time import time_ns
from typing import Any

from opentelemetry.trace import NonRecordingSpan, SpanKind

from hookline import Message, ModelRequest, ModelResponse, Run, ToolFailure, ToolResult
from hookline.models import Timing
from hookline.otel import _names as names
from hookline.otel._content import as_json
from hookline.otel._kit import Kit
from hookline.otel._report import report
from hookline.otel._spans import Operation
from hookline.otel._trace import Trace
from hookline.otel._words import ModelWords, ToolWords, hook_labels, text_of, usage_of
from hookline.points import AroundRequest, AroundToolCall


class ModelCall(Operation):
    """One logical model call: all its attempts."""

    __slots__ = ("_response", "_run", "_trace", "_words", "attempts", "request", "timing")

    _response: ModelResponse | None
    _run: Run[Any]
    _trace: Trace
    _words: ModelWords
    attempts: int  # how often a model was really asked
    request: ModelRequest
    timing: Timing | None

    @classmethod
    def begin(cls, kit: Kit, trace: Trace, ctx: AroundRequest[Any]) -> ModelCall | None:
        """Begin its span, which is current until it is left; None where that fails."""
        try:
            request = ctx.request
            words = trace.words
            if (
                words is None
                or words.model is not request.model
                or words.settings is not request.settings
            ):
                words = trace.words_of(request)
            first = {**words.first, names.ITERATION: ctx.iteration}
            if request.output is not None:
                first[names.OUTPUT_TYPE] = "json"
            if trace.model is None:
                trace.tell_model(words, request)
            call = cls(kit, words.name, SpanKind.CLIENT, first)
            call._response = call.timing = None
            call._run = ctx.run
            call._trace = trace
            call._words = words
            call.attempts = 0
            call.request = request
            trace.open.append(call)
            return call
        except Exception as exc:
            report("a model call could not be traced", exc)
            return None

    def attempt(self, request: ModelRequest) -> None:
        """A model is asked; the wrappers inside may have changed what, or whom."""
        self.attempts += 1
        if request.model is not self.request.model:
            self._words = self._trace.words_of(request)
            self.attributes.update(self._words.labels)
        self.request = request
        self.timing = None

    def failed(self, exc: Exception) -> None:
        """An attempt has failed: that is an event, whether or not it is tried again."""
        attributes = {**self._words.labels, names.EXCEPTION_TYPE: names.error_type(exc)}
        if self.kit.content.events:
            attributes[names.EXCEPTION_MESSAGE] = self.kit.content.text(text_of(exc))
        self.kit.events.emit(names.EXCEPTION_EVENT, "WARN", attributes, self.context)

    def answered(self, response: ModelResponse) -> None:
        """The end that was hoped for."""
        try:
            self._response = response
            if self.span.__class__ is not NonRecordingSpan:
                found = self.attributes
                found[names.FINISH_REASONS] = (names.FINISHED[response.finish_reason],)
                if response.model:
                    found[names.RESPONSE_MODEL] = response.model
                if response.response_id:
                    found[names.RESPONSE_ID] = response.response_id
                if self.timing is not None:
                    found[names.FIRST_CHUNK] = self.timing.first_chunk
                if response.usage is not None:
                    found.update(usage_of(response.usage))
            self._end(time_ns(), None, None)
        except Exception as exc:
            report("a model call could not be traced to its end", exc)
            self.drop()

    def close(self, at: int, error: str, exc: BaseException | None = None) -> None:
        """It ends without an answer."""
        self.attributes[names.FINISH_REASONS] = ("error",)
        self._end(at, error, exc)

    def _end(self, at: int, error: str | None, exc: BaseException | None) -> None:
        if self.ended:
            return
        kit, trace = self.kit, self._trace
        trace.open.remove(self)
        if self.attempts != 1:
            self.attributes[names.ATTEMPTS] = self.attempts
        if trace.deltas:
            self._tell_deltas()
        text = self._write(error, exc) if kit.writes else None
        self.finish(at, error, text)
        if self.attempts:  # where a hook answered, no model was called
            trace.model_calls += 1
            if kit.metered:
                self._measure(self.seconds(at), error)
        trace.fresh = False

    def _write(self, error: str | None, exc: BaseException | None) -> str | None:
        """Content where it was asked for; gives the text of the error, where a span may say it."""
        content = self.kit.content
        recording = self.span.is_recording()
        said = self._said() if content.wanted else {}
        if content.spans and recording:
            self.attributes.update({name: as_json(value) for name, value in said.items()})
        if self.kit.details:
            details = {**self._words.labels, **self.attributes}
            details.update(said if content.events else {})
            if error is not None:
                details[names.ERROR_TYPE] = error
            self.kit.events.emit(names.DETAILS_EVENT, "DEBUG", details, self.context)
        return content.text(text_of(exc)) if content.spans and exc is not None else None

    def _said(self) -> dict[str, Any]:
        """What was asked and answered; of what was written before, only how much it is."""
        content, trace, request = self.kit.content, self._trace, self.request
        full = self.kit.full
        said: dict[str, Any] = {}
        if request.system and (full or request.system != trace.system):
            said[names.SYSTEM] = content.system(request.system)
        if request.tools and (full or request.tools != trace.tools):
            said[names.DEFINITIONS] = content.definitions(request.tools)
        trace.system, trace.tools = request.system, request.tools
        sent: Sequence[Message] = request.messages
        messages = sent if full else trace.unwritten(sent, self._run)
        said[names.INPUT] = content.messages(messages)
        if len(messages) < len(sent):
            self.attributes[names.EARLIER] = len(sent) - len(messages)
        if self._response is not None:
            said[names.OUTPUT] = content.answer(self._response)
        return said

    def _tell_deltas(self) -> None:
        """What hooks at onDelta did to this answer: one event and one value each, not per chunk."""
        deltas, self._trace.deltas = self._trace.deltas, {}
        for (hook, outcome), (count, seconds) in deltas.items():
            labels = hook_labels(hook, "onDelta", outcome)
            self.kit.instruments.hook_duration.record(seconds, labels, self.context)
            if outcome != "ok" and self.span.is_recording():
                more = {names.HOOK_DURATION: seconds, names.HOOK_COUNT: int(count)}
                self.span.add_event(names.HOOK_EVENT, {**labels, **more})

    def _measure(self, seconds: float, error: str | None) -> None:
        to, context = self.kit.instruments, self.context
        if error is not None:
            labels = {**self._words.labels, names.ERROR_TYPE: error}
            to.duration.record(seconds, labels, context)
            return
        response, timing = self._response, self.timing
        points = self._words.points(None if response is None else response.model)
        to.duration.record(seconds, points.call, context)
        if response is not None and response.usage is not None:
            to.tokens.record(response.usage.input_tokens, points.input, context)
            to.tokens.record(response.usage.output_tokens, points.output, context)
        if timing is not None:
            to.first_chunk.record(timing.first_chunk, points.call, context)
            if timing.chunks > 1:
                mean = (timing.duration - timing.first_chunk) / (timing.chunks - 1)
                to.chunk_time.record(mean, points.call, context)


class ToolCallSpan(Operation):
    """One run of a tool's handler, with the wrappers around it."""

    __slots__ = ("_arguments", "_trace", "_words")

    _arguments: Any
    _trace: Trace
    _words: ToolWords

    @classmethod
    def begin(cls, kit: Kit, trace: Trace, ctx: AroundToolCall[Any]) -> ToolCallSpan | None:
        """Begin its span, which is current until it is left; None where that fails."""
        try:
            call, tool = ctx.call, ctx.tool
            words = trace.tool_words.get(tool.name)
            if words is None or words.tool is not tool:
                words = trace.words_of_tool(tool)
            first = {
                **words.first,
                names.TOOL_CALL_ID: call.id,
                names.ITERATION: ctx.run.iteration,
            }
            work = cls(kit, words.name, SpanKind.INTERNAL, first)
            work._arguments = call.arguments
            work._trace = trace
            work._words = words
            trace.open.append(work)
            return work
        except Exception as exc:
            report("a tool call could not be traced", exc)
            return None

    def finished(self, result: ToolResult | ToolFailure) -> None:
        """The tool has a result, or failed with an error that the model is told."""
        try:
            kit = self.kit
            if isinstance(result, ToolResult):
                if kit.shows and self.span.is_recording():
                    self.attributes[names.RESULT] = as_json(kit.content.data(result.value))
                self._end(time_ns(), None, None)
                return
            exc = result.exception
            error = result.type if exc is None else names.error_type(exc)
            self._end(time_ns(), error, kit.content.text(result.message) if kit.shows else None)
        except Exception as exc:
            report("a tool call could not be traced to its end", exc)
            self.drop()

    def close(self, at: int, error: str, exc: BaseException | None = None) -> None:
        """It ends without a result."""
        text = None
        if exc is not None and self.kit.shows:
            text = self.kit.content.text(text_of(exc))
        self._end(at, error, text)

    def _end(self, at: int, error: str | None, text: str | None) -> None:
        if self.ended:
            return
        kit, trace = self.kit, self._trace
        trace.open.remove(self)
        trace.tool_calls += 1
        if kit.shows and self.span.is_recording():
            arguments = kit.content.data(self._arguments)
            self.attributes[names.ARGUMENTS] = as_json(arguments)
        if error is None and not self.attributes:
            self.ended = True
            self.span.end(at)
        else:
            self.finish(at, error, text)
        if not kit.metered:
            return
        labels = self._words.labels
        if error is not None:
            labels = {**labels, names.ERROR_TYPE: error}
        kit.instruments.tool_duration.record(self.seconds(at), labels, self.context)
