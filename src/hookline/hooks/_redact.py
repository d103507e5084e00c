"""`redact`: what matches is seen by nobody: shown = stored = traced.

The live stream is redacted across the borders of its chunks by holding back a bounded end of it.
These hooks come last, so that what others put in is looked at too, and stand innermost around a
tool, so that others never see its raw result. What is redacted twice stays as it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, TypeVar

from hookline import (
    AssistantMessage,
    Message,
    ModelRequest,
    ModelResponse,
    Proceed,
    Reasoning,
    Response,
    Text,
    ToolCall,
    ToolError,
    ToolMessage,
    ToolResult,
    UserMessage,
    define_hook,
)
from hookline.hooks._common import LAST, Hooks, PerChat
from hookline.hooks._redactor import Pieces, Redactor, Replacement
from hookline.models import Delta, PartEndChunk, ReasoningChunk, TextChunk, ToolCallChunk
from hookline.points import (
    AroundChat,
    AroundRequest,
    AroundToolCall,
    OnDelta,
    OnResponse,
    OnToolCallError,
    OnToolCallResult,
    PreMessage,
)

M = TypeVar("M", UserMessage, AssistantMessage, ModelResponse)
Result = ToolResult | ToolError


def redact(
    *patterns: str | re.Pattern[str],
    values: Iterable[str] = (),
    replacement: Replacement = "[redacted]",
    hold: int = 128,
    words: bool = False,
    arguments: bool = True,
    inherit: bool = True,
) -> Hooks:
    """Replace what matches a pattern, and these values, in all that is shown, stored and traced.

    `hold`: how many characters of the live text are held back, and so how long a match may be that
    is always found. `words`: no pattern matches a space, so that a word is decided where it ends.
    `arguments`: also those of tool calls, which are not shown while they are written; the tools get
    them redacted. Raises UsageError for a pattern that matches nothing at all, which is everywhere.
    """
    clean = _Clean(Redactor(patterns, values, replacement, hold, words), arguments)
    add: Any = define_hook  # one name for hooks of all points
    hooks = (
        add("aroundChat", clean.chat, name="redact", priority=-LAST, inherit=inherit),
        add("aroundRequest", clean.request, name="redact", priority=LAST, inherit=inherit),
        add("onDelta", clean.delta, name="redact", priority=LAST, inherit=inherit),
        add("onResponse", clean.response, name="redact", priority=LAST, inherit=inherit),
        add("aroundToolCall", clean.tool_call, name="redact", priority=LAST, inherit=inherit),
        add("onToolCallResult", clean.result, name="redact", priority=LAST, inherit=inherit),
        add("onToolCallError", clean.error, name="redact", priority=LAST, inherit=inherit),
        add("preMessage", clean.message, name="redact", priority=LAST, inherit=inherit),
    )
    return (*hooks, clean.streams.forget(inherit=inherit))


class _Live:
    """What streams in a chat."""

    def __init__(self, redactor: Redactor) -> None:
        self.text = Pieces(redactor)
        # A provider's signatures of reasoning that was changed: they hold no more.
        self.unsigned: list[dict[str, Any]] = []


class _Clean:
    """The hooks, which share a redactor."""

    def __init__(self, redactor: Redactor, arguments: bool) -> None:
        self._redactor = redactor
        self._arguments = arguments
        self.streams = PerChat(lambda run: _Live(redactor))

    # ── the answer ──────────────────────────────────────────────────────────────────────────

    async def request(
        self, ctx: AroundRequest[Any], proceed: Proceed[ModelRequest, ModelResponse]
    ) -> ModelResponse:
        live = self.streams.of(ctx.run)
        live.unsigned.clear()
        try:
            return self._parts(await proceed())
        finally:
            live.text = Pieces(self._redactor)  # what a broken answer has left is nobody's

    def delta(self, ctx: OnDelta[Any]) -> Delta | tuple[Delta, ...] | None:
        delta = ctx.delta
        if isinstance(delta, ToolCallChunk):
            return () if self._arguments else None
        live = self.streams.of(ctx.run)
        if not isinstance(delta, PartEndChunk):
            text = live.text.feed(delta.text)
            return delta.replace(text=text) if text else ()
        text = live.text.feed("", last=True)
        if live.text.changed and delta.meta:
            live.unsigned.append(delta.meta)
        live.text = Pieces(self._redactor)
        if not text:
            return None
        return (TextChunk(text) if delta.part == "text" else ReasoningChunk(text), delta)

    def response(self, ctx: OnResponse[Any]) -> ModelResponse | None:
        response = self._parts(ctx.response)
        unsigned = self.streams.of(ctx.run).unsigned
        if not unsigned:
            return response
        parts = (
            part.replace(meta=None)
            if isinstance(part, Reasoning) and part.meta in unsigned
            else part
            for part in response.parts
        )
        return response.replace(parts=tuple(parts))

    # ── calls ───────────────────────────────────────────────────────────────────────────────

    async def tool_call(
        self, ctx: AroundToolCall[Any], proceed: Proceed[ToolCall, Result]
    ) -> Result:
        return self._result(await proceed())

    def result(self, ctx: OnToolCallResult[Any]) -> ToolResult | None:
        return self._good(ctx.result)

    def error(self, ctx: OnToolCallError[Any]) -> ToolError:
        return self._bad(ctx.error)

    def _result(self, result: Result) -> Result:
        return self._bad(result) if isinstance(result, ToolError) else self._good(result)

    def _good(self, result: ToolResult) -> ToolResult:
        value = self._redactor.data(result.value)
        return result if value == result.value else result.replace(value=value)

    def _bad(self, error: ToolError) -> ToolError:
        message = self._redactor.text(error.message)
        issues = tuple(map(self._redactor.text, error.issues))
        if (message, issues) == (error.message, error.issues):
            return error
        return ToolError(message, type=error.type, issues=issues)  # and no exception behind it

    # ── messages ────────────────────────────────────────────────────────────────────────────

    async def chat(self, ctx: AroundChat[Any], proceed: Proceed[UserMessage, Response]) -> Response:
        return await proceed(None if ctx.message is None else self._parts(ctx.message))

    def message(self, ctx: PreMessage[Any]) -> Message | None:
        message = ctx.message
        if isinstance(message, ToolMessage):
            return message.replace(text=self._redactor.text(message.text))
        if isinstance(message, AssistantMessage):
            return self._parts(message, calls=False)  # those are as onResponse left them
        return self._parts(message)

    def _parts(self, holder: M, calls: bool = True) -> M:
        """The same with its parts redacted."""
        parts = tuple(self._part(part, calls and self._arguments) for part in holder.parts)
        return holder if parts == holder.parts else holder.replace(parts=parts)

    def _part(self, part: Any, arguments: bool) -> Any:
        if isinstance(part, ToolCall):
            if not arguments:
                return part
            raw = None if part.raw is None else self._redactor.text(part.raw)
            return part.replace(arguments=self._redactor.data(part.arguments), raw=raw)
        if not isinstance(part, Text | Reasoning):
            return part
        text = self._redactor.text(part.text)
        if text == part.text:
            return part
        return Text(text) if isinstance(part, Text) else Reasoning(text)
