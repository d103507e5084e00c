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
from hookline._chat.call import SETTLED, CallRun
from hookline._chat.state import Chat
from hookline._hooks.call_rules import intercept
from hookline._hooks.points import OnToolCallError, OnToolCallResult
from hookline._record.runtime import RESULT, Json
from hookline._tools.scopes import Scope
from hookline._tools.tool import unknown_tool

NOWHERE: Final = Scope("unknown")  # the scope of a tool that does not exist
_SCALARS = frozenset([type(None), bool, int, float])

# ── as JSON data ────────────────────────────────────────────────────────────────────────────


def as_result(value: object) -> CallResult:
    """The value that a tool's function returned, as a result."""
    if isinstance(value, ToolFailure):
        return worded(value)
    if isinstance(value, ToolResult):
        return as_data(value)
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


def worded(error: ToolFailure) -> ToolFailure:
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
    shown = data[:limit].decode("utf-8", "ignore")
    return f"{shown}\n[truncated: the first {limit} of {len(data)} bytes are shown]"


# ── through its hooks ───────────────────────────────────────────────────────────────────────


class Settled(msgspec.Struct, frozen=True, kw_only=True):
    """A call's result after its hooks."""

    result: ToolResult | ToolFailure
    outcome: CallOutcome
    stop: Stop | None = None


_SETTLED: Final[Json[Settled]] = Json(Settled)


async def settle(chat: Chat, iteration: int, run: CallRun) -> None:
    """Pass the result through its hooks, then make it final."""
    limit = chat.config.limits.output_bytes
    assert run.result is not None
    run.result = bounded(run.result, limit)  # hooks see the result as the model would read it
    key = (RESULT, iteration, run.id)
    if chat.asks(chat.view.onToolCallResult or chat.view.onToolCallError, *key):
        try:
            settled = await chat.runtime.step(key, _chains, _SETTLED, chat, run)
        except BaseException:
            if run.state < SETTLED:  # else the ending has settled it: a hook was left behind
                run.withhold()
                run.move(SETTLED)
            raise
        run.stop = run.stop or settled.stop
        run.set(bounded(settled.result, limit), settled.outcome)
    run.move(SETTLED)


async def _chains(chat: Chat, run: CallRun) -> Settled:
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
            return Settled(result=result, outcome=outcome, stop=stop)
        result = as_data(end) if isinstance(end, ToolResult) else worded(end)
        recovered: CallOutcome = "ok" if run.ran else "answered"
        outcome = "error" if isinstance(result, ToolFailure) else recovered
        if converted or (isinstance(end, ToolResult) and isinstance(result, ToolFailure)):
            return Settled(result=result, outcome=outcome, stop=stop)
        converted = True


async def _failures(
    chat: Chat, run: CallRun, error: ToolFailure, converted: bool
) -> tuple[CallResult, Any, list[Any]]:
    ctx: OnToolCallError[Any] = OnToolCallError(
        run=run.run_of(chat), call=run.wanted, tool=run.tool, scope=run.scope, error=error
    )
    refused = ToolResult if converted else None
    last, end, stops = await intercept(
        chat.view.onToolCallError, ctx, chat, tool=run.wanted.name, refused=refused
    )
    return last.error, end, stops


async def _values(
    chat: Chat, run: CallRun, result: ToolResult, converted: bool
) -> tuple[CallResult, Any]:
    tool, scope = run.tool, run.scope
    if tool is None or scope is None:  # an unknown tool whose error a hook has replaced
        tool, scope = unknown_tool(run.wanted.name), NOWHERE
    ctx: OnToolCallResult[Any] = OnToolCallResult(
        run=run.run_of(chat), call=run.wanted, tool=tool, scope=scope, result=result
    )
    refused = ToolFailure if converted else None
    last, end, _ = await intercept(
        chat.view.onToolCallResult, ctx, chat, tool=run.wanted.name, refused=refused
    )
    if end is not None or last.result is result:
        return last.result, end
    data = as_data(last.result)
    if isinstance(data, ToolFailure):
        return result, data  # a hook's value must be JSON, too
    return data, None
