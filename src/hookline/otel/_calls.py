"""A model call and a tool call: what their spans and metrics say, and their one end each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from time import time_ns
from typing import Any, Final

from opentelemetry.trace import SpanKind, Tracer

from hookline import (
    Message,
    ModelRequest,
    ModelResponse,
    Settings,
    ToolError,
    ToolResult,
    Usage,
)
from hookline.models import Timing
from hookline.otel import _names as names
from hookline.otel._content import Content, as_json
from hookline.otel._events import Events
from hookline.otel._metrics import Instruments
from hookline.otel._spans import Operation, Source
from hookline.otel._trace import Trace
from hookline.points import AroundRequest, AroundToolCall

NO_SETTINGS: Final = Settings()


class Kit:
    """What all calls are traced with."""

    __slots__ = (
        "content",
        "details",
        "events",
        "full",
        "instruments",
        "metered",
        "source",
        "tracer",
    )

    source: Source  # of the hooks that trace with this

    def __init__(
        self,
        tracer: Tracer,
        instruments: Instruments,
        events: Events,
        content: Content,
        *,
        metered: bool,
        details: bool,
        full: bool,
    ) -> None:
        self.tracer = tracer
        self.instruments = instruments
        self.events = events
        self.content = content
        self.metered = metered  # whether anybody reads the instruments
        self.details = details  # whether each model call emits an event
        self.full = full  # whether each model call writes the whole history


def usage_of(usage: Usage | None) -> dict[str, Any]:
    """The tokens, as attributes; kinds of which there were none are left out."""
    if usage is None:
        return {}
    found = {names.INPUT_TOKENS: usage.input_tokens, names.OUTPUT_TOKENS: usage.output_tokens}
    if usage.cache_read_tokens:
        found[names.CACHE_READ] = usage.cache_read_tokens
    if usage.cache_write_tokens:
        found[names.CACHE_WRITE] = usage.cache_write_tokens
    if usage.reasoning_tokens:
        found[names.REASONING_TOKENS] = usage.reasoning_tokens
    return found


class ModelCall(Operation):
    """One logical model call: all its attempts."""

    __slots__ = ("_kit", "_labels", "_response", "_run", "_trace", "attempts", "request", "timing")

    def __init__(self, kit: Kit, trace: Trace, ctx: AroundRequest[Any]) -> None:
        request: ModelRequest = ctx.request
        self._kit = kit
        self._trace = trace
        self._run = ctx.run
        self._labels = trace.labels_of(request.model)
        self._response: ModelResponse | None = None
        self.request: ModelRequest = request
        self.attempts = 0  # how often a model was really asked
        self.timing: Timing | None = None
        first = {**self._labels, names.REQUEST_STREAM: True, names.ITERATION: ctx.iteration}
        if trace.conversation is not None:
            first[names.CONVERSATION] = trace.conversation
        if request.settings != NO_SETTINGS:
            first.update(names.parameters(request.settings))
        if request.output is not None:
            first[names.OUTPUT_TYPE] = "json"
        name = f"{names.CHAT} {self._labels[names.REQUEST_MODEL]}"
        super().__init__(kit, name, SpanKind.CLIENT, first)
        trace.open.append(self)

    @property
    def model(self) -> str:
        """The name of the model that was asked for."""
        name: str = self._labels[names.REQUEST_MODEL]
        return name

    def attempt(self, request: ModelRequest) -> None:
        """A model is asked; the wrappers inside may have changed what, or whom."""
        self.attempts += 1
        if request.model is not self.request.model:
            self._labels = self._trace.labels_of(request.model)
            self.attributes.update(self._labels)
        self.request = request
        self.timing = None

    def failed(self, exc: Exception) -> None:
        """An attempt has failed: that is an event, whether or not it is tried again."""
        attributes = {**self._labels, names.EXCEPTION_TYPE: names.error_type(exc)}
        if self._kit.content.events:
            attributes[names.EXCEPTION_MESSAGE] = self._kit.content.text(text_of(exc))
        self._kit.events.emit(names.EXCEPTION_EVENT, "WARN", attributes, self.context)

    def answered(self, response: ModelResponse) -> None:
        """The end that was hoped for."""
        self._response = response
        if self.span.is_recording():
            found = self.attributes
            found[names.FINISH_REASONS] = (names.FINISHED[response.finish_reason],)
            if response.model:
                found[names.RESPONSE_MODEL] = response.model
            if response.response_id:
                found[names.RESPONSE_ID] = response.response_id
            if self.timing is not None:
                found[names.FIRST_CHUNK] = self.timing.first_chunk
            found.update(usage_of(response.usage))
        self._end(time_ns(), None, None)

    def close(self, at: int, error: str, exc: BaseException | None = None) -> None:
        """It ends without an answer."""
        self.attributes[names.FINISH_REASONS] = ("error",)
        self._end(at, error, exc)

    def _end(self, at: int, error: str | None, exc: BaseException | None) -> None:
        if self.ended:
            return
        self._trace.open.remove(self)
        if self.attempts != 1:
            self.attributes[names.ATTEMPTS] = self.attempts
        if self._trace.deltas:
            self._tell_deltas()
        kit = self._kit
        text = self._write(error, exc) if kit.content.wanted or kit.details else None
        seconds = self.finish(at, error, text if kit.content.spans else None)
        if kit.metered and self.attempts:  # where a hook answered, no model was called
            self._measure(seconds, error)
        if self.attempts:
            self._trace.model_calls += 1
        self._trace.fresh = False

    def _write(self, error: str | None, exc: BaseException | None) -> str | None:
        """Content where it was asked for; gives the text of the error."""
        content = self._kit.content
        recording = self.span.is_recording()
        said = self._said() if content.wanted else {}
        if content.spans and recording:
            self.attributes.update({name: as_json(value) for name, value in said.items()})
        if self._kit.details:
            details = {**self._labels, **self.attributes}
            details.update(said if content.events else {})
            if error is not None:
                details[names.ERROR_TYPE] = error
            self._kit.events.emit(names.DETAILS_EVENT, "DEBUG", details, self.context)
        return None if exc is None else content.text(text_of(exc))

    def _said(self) -> dict[str, Any]:
        """What was asked and answered; of what was written before, only how much it is."""
        content, trace, request = self._kit.content, self._trace, self.request
        full = self._kit.full
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
            self._kit.instruments.hook_duration.record(seconds, labels, self.context)
            if outcome != "ok" and self.span.is_recording():
                more = {names.HOOK_DURATION: seconds, names.HOOK_COUNT: int(count)}
                self.span.add_event(names.HOOK_EVENT, {**labels, **more})

    def _measure(self, seconds: float, error: str | None) -> None:
        to, context, labels = self._kit.instruments, self.context, self._labels
        if error is not None:
            to.duration.record(seconds, {**labels, names.ERROR_TYPE: error}, context)
            return
        response = self._response
        if response is not None and response.model:
            labels = {**labels, names.RESPONSE_MODEL: response.model}
        to.duration.record(seconds, labels, context)
        if response is not None and response.usage is not None:
            usage = response.usage
            to.tokens.record(usage.input_tokens, {**labels, names.TOKEN_TYPE: "input"}, context)
            to.tokens.record(usage.output_tokens, {**labels, names.TOKEN_TYPE: "output"}, context)
        timing = self.timing
        if timing is not None:
            to.first_chunk.record(timing.first_chunk, labels, context)
            if timing.chunks > 1:
                mean = (timing.duration - timing.first_chunk) / (timing.chunks - 1)
                to.chunk_time.record(mean, labels, context)


class ToolCallSpan(Operation):
    """One run of a tool's handler, with the wrappers around it."""

    __slots__ = ("_arguments", "_kit", "_labels", "_trace")

    def __init__(self, kit: Kit, trace: Trace, ctx: AroundToolCall[Any]) -> None:
        self._kit = kit
        self._trace = trace
        self._labels: dict[str, Any] = {
            names.TOOL_NAME: ctx.tool.name,
            names.TOOL_TYPE: "function",
            names.AGENT_NAME: trace.agent,
        }
        first = {
            names.OPERATION: names.EXECUTE_TOOL,
            **self._labels,
            names.TOOL_CALL_ID: ctx.call.id,
            names.ITERATION: ctx.run.iteration,
        }
        if ctx.tool.description:
            first[names.TOOL_DESCRIPTION] = ctx.tool.description
        name = f"{names.EXECUTE_TOOL} {ctx.tool.name}"
        super().__init__(kit, name, SpanKind.INTERNAL, first)
        self._arguments = ctx.call.arguments
        trace.open.append(self)

    def finished(self, result: ToolResult | ToolError) -> None:
        """The tool has a result, or failed with an error that the model is told."""
        content = self._kit.content
        if isinstance(result, ToolResult):
            if content.spans and self.span.is_recording():
                self.attributes[names.RESULT] = as_json(content.data(result.value))
            self._end(time_ns(), None, None)
            return
        exc = result.exception
        error = result.type if exc is None else names.error_type(exc)
        self._end(time_ns(), error, content.text(result.message) if content.spans else None)

    def close(self, at: int, error: str, exc: BaseException | None = None) -> None:
        """It ends without a result."""
        text = None
        if exc is not None and self._kit.content.spans:
            text = self._kit.content.text(text_of(exc))
        self._end(at, error, text)

    def _end(self, at: int, error: str | None, text: str | None) -> None:
        if self.ended:
            return
        self._trace.open.remove(self)
        self._trace.tool_calls += 1
        if self._kit.content.spans and self.span.is_recording():
            arguments = self._kit.content.data(self._arguments)
            self.attributes[names.ARGUMENTS] = as_json(arguments)
        seconds = self.finish(at, error, text)
        if not self._kit.metered:
            return
        labels = self._labels
        if error is not None:
            labels[names.ERROR_TYPE] = error
        self._kit.instruments.tool_duration.record(seconds, labels, self.context)


def hook_labels(hook: str, point: str, outcome: str) -> Mapping[str, str]:
    """The attributes of a hook's event and metric."""
    return {names.HOOK_NAME: hook, names.HOOK_POINT: point, names.HOOK_OUTCOME: outcome}


def text_of(exc: BaseException) -> str:
    """The exception's text; one whose text cannot be had has none."""
    try:
        return str(exc)
    except Exception:
        return ""
