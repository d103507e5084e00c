"""A tool call: its span, its metrics, and its end.

Failures in this module are reported, and never reach the chat.
"""

from __future__ import annotations

from collections.abc import Mapping
from time import time_ns
from typing import Any, Final

from opentelemetry.context import attach, set_value
from opentelemetry.trace import SpanKind

from hookline import ToolFailure, ToolResult
from hookline.errors import ToolDenied
from hookline.otel._chat.trace import Trace
from hookline.otel._conventions import names
from hookline.otel._conventions.openinference import INPUT, OUTPUT, kind_of, value_of
from hookline.otel._emit.content import as_json
from hookline.otel._emit.emitter import Emitter
from hookline.otel._emit.own_failures import FailureReport, report
from hookline.otel._emit.spans import Operation
from hookline.points import AroundToolCall

DENIED: Final = "Denied"  # the type of a refusal


class ToolCallSpan(Operation):
    """One run of a tool's handler, including its wrappers."""

    what = "a tool call"

    def __init__(self, emitter: Emitter, trace: Trace, ctx: AroundToolCall[Any]) -> None:
        call, tool = ctx.call, ctx.tool
        words = trace.words_of_tool(tool)
        first = {
            **words.first,
            names.TOOL_CALL_ID: emitter.content.word(call.id),
            names.ITERATION: ctx.run.iteration,
        }
        if emitter.openinference:
            first.update(kind_of(names.EXECUTE_TOOL))
        super().__init__(emitter, words.name, SpanKind.INTERNAL, first)
        self._arguments = call.arguments
        self._trace = trace
        self._words = words
        trace.open.append(self)
        # A tool that calls a server reports the request here, and need not import this module.
        key = f"hookline.call:{trace.chat_id}:{call.id}"
        if emitter.metered or not self.quiet:
            self.context = set_value(key, self.tell, self.context)
            attach(self.context)

    def tell(self, attributes: Mapping[str, Any], seconds: float) -> None:
        """Record a request to an MCP server, as reported by the tool."""
        with FailureReport("a request to an MCP server could not be traced"):
            self.attributes.update(
                {key: value for key, value in attributes.items() if key != names.ERROR_TYPE}
            )
            if self.emitter.metered:
                labels = {
                    **attributes,
                    names.OPERATION: names.EXECUTE_TOOL,
                    names.TOOL_NAME: self._words.tool.name,
                }
                self.emitter.instruments.mcp_duration.record(seconds, labels, self.context)

    def finished(self, result: ToolResult | ToolFailure) -> None:
        """End the span with a result, or with a failure that the model sees."""
        try:
            emitter = self.emitter
            if isinstance(result, ToolResult):
                if emitter.content.spans and self.span.is_recording():
                    text = as_json(emitter.content.data(result.value))
                    self.attributes[names.RESULT] = text
                    if emitter.openinference:
                        self.attributes.update(value_of(OUTPUT, text, "application/json"))
                self._end(time_ns(), None, None)
                return
            exc = result.exception
            if result.type == DENIED or isinstance(exc, ToolDenied):
                self.attributes[names.OUTCOME] = "denied"  # a decision, and not an error
                self._end(time_ns(), None, None)
                return
            error = names.identifier(result.type) if exc is None else names.error_type(exc)
            self._end(
                time_ns(),
                error,
                emitter.content.text(result.message) if emitter.content.spans else None,
            )
        except Exception as exc:
            report("a tool call could not be traced to its end", exc)
            self.drop()

    def close(self, at: int, error: str | None, exc: BaseException | None = None) -> None:
        """End the span without a result."""
        self._end(at, error, self.emitter.content.error_text(exc))

    def _end(self, at: int, error: str | None, text: str | None) -> None:
        if self.closed:
            return
        emitter, trace = self.emitter, self._trace
        trace.open.remove(self)
        trace.tool_calls += 1
        if emitter.content.spans and self.span.is_recording():
            arguments = as_json(emitter.content.data(self._arguments))
            self.attributes[names.ARGUMENTS] = arguments
            if emitter.openinference:
                self.attributes.update(value_of(INPUT, arguments, "application/json"))
        if error is None and not self.attributes:
            self.closed = True
            self.span.end(at)
        else:
            self.finish(at, error, text)
        if not emitter.metered:
            return
        labels = self._words.labels
        if error is not None:
            labels = {**labels, names.ERROR_TYPE: error}
        emitter.instruments.tool_duration.record(self.seconds(at), labels, self.context)
