"""`redact`: remove matching text everywhere, so that it is not shown, stored or traced.

In the live stream, matches across chunks are found by holding back a bounded amount of text. These
hooks run last, so that they also check changes by other hooks. Around a tool they run innermost, so
that other hooks never see its raw result. Redacting twice changes nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final

from hookline import (
    Deny,
    Message,
    MessageChanges,
    ModelResponse,
    Proceed,
    Reasoning,
    Response,
    Text,
    ToolCall,
    ToolFailure,
    ToolResult,
    UserMessage,
)
from hookline.hooks._common import LAST, CallModel, Hooks, Outcome, PerChat, RunTool, definer
from hookline.hooks._text.redact_objects import Clean
from hookline.hooks._text.text_redactor import Pieces, Redactor, Replacement
from hookline.models import (
    Delta,
    FileChunk,
    PartEndChunk,
    ReasoningChunk,
    SourceChunk,
    TextChunk,
    ToolCallChunk,
)
from hookline.points import (
    AroundChat,
    AroundRequest,
    AroundToolCall,
    OnDelta,
    OnResponse,
    OnToolCallError,
    OnToolCallResult,
    PreMessage,
    PreMessageUpdate,
    PreSteer,
    PreToolCall,
)

_REFUSED: Final = Deny(
    "the arguments have a text that redact() keeps from tools; make the call without this text"
)


def redact(
    *patterns: str | re.Pattern[str],
    values: Iterable[str] = (),
    replacement: Replacement = "[redacted]",
    hold: int = 128,
    words: bool = False,
    arguments: bool = True,
    inherit: bool = True,
    required: bool = True,
) -> Hooks:
    """Replace these patterns and values in everything that is shown, stored or traced.

    In a live stream, the last `hold` characters are held back, so that matches up to this length
    are always found. If no pattern matches white space, pass `words=True`: then each word is shown
    as soon as it is complete. With `arguments`, the arguments of tool calls are redacted too. With
    this option, the stream does not show the arguments piece by piece, and tools get the redacted
    arguments. Raises UsageError for a pattern that matches the empty text.
    """
    mine = _Hooks(Redactor(patterns, values, replacement, hold, words), arguments)
    # All hooks have the same name.
    add = definer(name="redact", inherit=inherit, required=required)
    return (
        add("aroundChat", mine.chat, priority=-LAST),
        add("aroundRequest", mine.request, priority=LAST),
        add("onDelta", mine.delta, priority=LAST),
        add("onResponse", mine.response, priority=LAST, keeps_deltas=True),
        add("preSteer", mine.steer, priority=LAST, early=True),
        *((add("preToolCall", mine.call, priority=LAST),) if arguments else ()),
        add("aroundToolCall", mine.tool_call, priority=LAST),
        add("onToolCallResult", mine.result, priority=LAST),
        add("onToolCallError", mine.error, priority=LAST),
        add("preMessage", mine.message, priority=LAST, keeps_deltas=True),
        add("preMessageUpdate", mine.update, priority=LAST),
        mine.streams.forget(add),
    )


class _Live:
    """The state of a chat's live stream."""

    def __init__(self, redactor: Redactor) -> None:
        self.text = Pieces(redactor)
        # A provider's signatures of reasoning that was changed; they are no longer valid.
        self.unsigned: list[dict[str, Any]] = []


class _Hooks:
    """The hooks of one `redact()`."""

    def __init__(self, redactor: Redactor, arguments: bool) -> None:
        self._redactor = redactor
        self._arguments = arguments
        self._clean = Clean(redactor, arguments)
        self.streams = PerChat(lambda run: _Live(redactor))

    async def chat(self, ctx: AroundChat[Any], proceed: Proceed[UserMessage, Response]) -> Response:
        message = None if ctx.message is None else self._clean.parts(ctx.message)
        response = await proceed(message)
        if response.stop_reason is None:
            return response
        return response.replace(stop_reason=self._redactor.text(response.stop_reason))

    async def request(self, ctx: AroundRequest[Any], proceed: CallModel) -> ModelResponse:
        live = self.streams.of(ctx.run)
        live.unsigned.clear()
        try:
            tools = [tool.name for tool in ctx.request.tools]
            return self._clean.answer(await proceed(), tools)
        finally:
            live.text = Pieces(self._redactor)  # discard the held-back text of a broken answer

    def delta(self, ctx: OnDelta[Any]) -> Delta | tuple[Delta, ...] | None:
        delta = ctx.delta
        if isinstance(delta, ToolCallChunk):
            names = (delta.id or "", delta.name or "")
            hides = self._arguments or any(self._clean.name(name) != name for name in names)
            return () if hides else None
        if isinstance(delta, FileChunk):
            return None
        if isinstance(delta, SourceChunk):
            return SourceChunk(self._clean.source(delta.source))
        live = self.streams.of(ctx.run)
        if not isinstance(delta, PartEndChunk):
            text = live.text.feed(delta.text)
            return delta.replace(text=text) if text else ()
        text = live.text.feed("", last=True)
        if live.text.has_match and delta.meta:
            live.unsigned.append(delta.meta)
        live.text = Pieces(self._redactor)
        if not text:
            return None
        return (TextChunk(text) if delta.part == "text" else ReasoningChunk(text), delta)

    def response(self, ctx: OnResponse[Any]) -> ModelResponse | None:
        response = self._clean.answer(ctx.response, [tool.name for tool in ctx.request.tools])
        unsigned = self.streams.of(ctx.run).unsigned
        if not unsigned:
            return response
        parts = (
            part.replace(meta=None)
            if isinstance(part, Text | Reasoning) and part.meta in unsigned
            else part
            for part in response.parts
        )
        return response.replace(parts=tuple(parts))

    def call(self, ctx: PreToolCall[Any]) -> ToolCall | Deny | None:
        """Redact a call; refuse one that a person or a hook has changed since."""
        arguments = self._redactor.data(ctx.call.arguments)
        if arguments == ctx.call.arguments:
            return None
        return _REFUSED if ctx.again else ctx.call.replace(arguments=arguments, raw=None)

    async def tool_call(self, ctx: AroundToolCall[Any], proceed: RunTool) -> Outcome:
        result = await proceed()
        if isinstance(result, ToolFailure):
            return self._clean.error(result)
        return self._clean.result(result)

    def result(self, ctx: OnToolCallResult[Any]) -> ToolResult:
        return self._clean.result(ctx.result)

    def error(self, ctx: OnToolCallError[Any]) -> ToolFailure:
        return self._clean.error(ctx.error)

    def steer(self, ctx: PreSteer[Any]) -> UserMessage:
        return self._clean.parts(ctx.message)

    def message(self, ctx: PreMessage[Any]) -> Message:
        return self._clean.message(ctx.message)

    def update(self, ctx: PreMessageUpdate[Any]) -> MessageChanges:
        return self._clean.changes(ctx.changes)
