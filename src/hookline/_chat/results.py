"""A call's result: made JSON data, bounded, passed through its hooks.

A result goes through the chain of its kind. If a hook there turns an error into a value or a value
into an error, that chain ends, and the new value goes through the whole other chain, once. If a
hook fails, the result that it was looking at is withheld, since it may need redaction.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from hookline._base.json import NotJson, json_text, to_json_data
from hookline._base.messages import CallOutcome
from hookline._base.returns import CallResult, Stop, ToolFailure, ToolResult
from hookline._chat.call import FINAL, CallRun
from hookline._chat.state import Chat
from hookline._hooks.call_rules import intercept
from hookline._hooks.points import OnToolCallError, OnToolCallResult
from hookline._record.runtime import Json, Key
from hookline._tools.scopes import Scope
from hookline._tools.tool import unknown_tool

NOWHERE: Final = Scope("unknown")  # the scope of a tool that does not exist
_RESULTS = (ToolResult, ToolFailure)
_SCALARS = frozenset([type(None), bool, int, float])

# ── as JSON data ────────────────────────────────────────────────────────────────────────────


def as_result(value: object) -> CallResult:
    """The value that a tool's function returned, as a result."""
    if isinstance(value, _RESULTS):
        return with_text(value) if isinstance(value, ToolFailure) else as_data(value)
    try:
        return ToolResult(to_json_data(value))
    except NotJson as exc:
        return _not_json(exc)


def as_data(result: ToolResult) -> CallResult:
    """The result with its value as JSON data; a tool error if the value is not JSON."""
    try:
        data = to_json_data(result.value)
    except NotJson as exc:
        return _not_json(exc)
    return result if data is result.value else result.replace(value=data)


def _not_json(exc: NotJson) -> ToolFailure:
    return ToolFailure(f"the tool's result is not JSON: {exc}", type="NotJson")


def with_text(error: ToolFailure) -> ToolFailure:
    """The error with a text, even if a hook or tool made it with an exception."""
    message, kind = error.message, error.type
    if isinstance(message, str) and isinstance(kind, str):  # pyright: ignore
        return error
    if isinstance(message, BaseException):
        return ToolFailure.of(message)
    return ToolFailure(f"a {type(message).__name__}", type=str(kind))


def bounded(result: CallResult, limit: int) -> CallResult:
    """The result; a longer text is cut to `limit` bytes and marked."""
    if not isinstance(result, ToolResult):
        cut = _cut(result.message, limit)
        return result if cut is result.message else result.replace(message=cut)
    value = result.value
    if value.__class__ in _SCALARS:
        return result
    text = value if isinstance(value, str) else json_text(value)
    cut = _cut(text, limit)
    return result if cut is text else result.replace(value=cut, truncated=True)


def _cut(text: str, limit: int) -> str:
    if len(text) * 4 <= limit:
        return text
    data = text.encode("utf-8", "replace")
    if len(data) <= limit:
        return text
    beginning = data[:limit].decode("utf-8", "ignore")
    return f"{beginning}\n[truncated: the first {limit} of {len(data)} bytes are shown]"


# ── through its hooks ───────────────────────────────────────────────────────────────────────


class FinalResult(msgspec.Struct, frozen=True, kw_only=True):
    """A call's result after its hooks."""

    result: ToolResult | ToolFailure
    outcome: CallOutcome
    stop: Stop | None = None


_FINAL: Final[Json[FinalResult]] = Json(FinalResult)


async def ask_hooks(chat: Chat, key: Key, run: CallRun) -> None:
    """Pass the result through its hooks, unless an earlier life of the chat went past them."""
    if not chat.asks(chat.view.onToolCallResult or chat.view.onToolCallError, key):
        return
    try:
        final = await chat.runtime.step(key, _chains, _FINAL, chat, run)
    except BaseException:
        if run.state < FINAL:  # else the ending has settled it: a hook was left behind
            run.withhold()
            run.move(FINAL)
        raise
    run.stop = run.stop or final.stop
    run.set(bounded(final.result, chat.config.limits.output_bytes), final.outcome)


async def _chains(chat: Chat, run: CallRun) -> FinalResult:
    result, outcome = run.result, run.outcome
    stop: Stop | None = None
    converted = False
    while True:
        assert result is not None
        if isinstance(result, ToolFailure):
            result, end, stops = await _failures(chat, run, result, converted)
            stop = stop or (stops[0] if stops else None)
        else:
            result, end = await _values(chat, run, result, converted)
        if end is None:
            return FinalResult(result=result, outcome=outcome, stop=stop)
        result = as_data(end) if isinstance(end, ToolResult) else with_text(end)
        recovered: CallOutcome = "ok" if run.ran else "answered"
        outcome = "error" if isinstance(result, ToolFailure) else recovered
        if converted or (isinstance(end, ToolResult) and isinstance(result, ToolFailure)):
            return FinalResult(result=result, outcome=outcome, stop=stop)
        converted = True


async def _failures(
    chat: Chat, run: CallRun, error: ToolFailure, converted: bool
) -> tuple[CallResult, Any, list[Any]]:
    ctx: OnToolCallError[Any] = OnToolCallError(
        run=run.run_of(chat), call=run.call, tool=run.tool, scope=run.scope, error=error
    )
    not_allowed = ToolResult if converted else None
    last, end, stops = await intercept(
        chat.view.onToolCallError, ctx, chat, tool=run.call.name, not_allowed=not_allowed
    )
    return last.error, end, stops


async def _values(
    chat: Chat, run: CallRun, result: ToolResult, converted: bool
) -> tuple[CallResult, Any]:
    tool, scope = run.tool, run.scope
    if tool is None or scope is None:  # an unknown tool whose error a hook has replaced
        tool, scope = unknown_tool(run.call.name), NOWHERE
    ctx: OnToolCallResult[Any] = OnToolCallResult(
        run=run.run_of(chat), call=run.call, tool=tool, scope=scope, result=result
    )
    not_allowed = ToolFailure if converted else None
    last, end, _ = await intercept(
        chat.view.onToolCallResult, ctx, chat, tool=run.call.name, not_allowed=not_allowed
    )
    if end is not None or last.result is result:
        return last.result, end
    data = as_data(last.result)
    if isinstance(data, ToolFailure):
        return result, data  # a hook's value must be JSON, too
    return data, None
