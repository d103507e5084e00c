"""A call's result on its way to history: its hooks, the event, the message.

A result goes through one chain; a conversion there ends it and the value goes once through the
whole other one. What a hook that failed was given is not kept: it may have been the redactor.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from hookline._base.messages import CallOutcome
from hookline._base.returns import CallResult, Stop, ToolFailure, ToolResult
from hookline._base.runtime import RESULT, Json
from hookline._chat.call import Call
from hookline._chat.state import Chat
from hookline._chat.values import as_data, bounded
from hookline._hooks.call_rules import intercept
from hookline._hooks.points import OnToolCallError, OnToolCallResult
from hookline._model.scopes import Scope
from hookline._model.tool import unknown_tool

NOWHERE: Final = Scope("unknown")  # where a tool stands that does not exist
_RAN: Final = ToolFailure("the call ran; its result is withheld", type="Withheld")
_NOT_RUN: Final = ToolFailure("not run; what was said of it is withheld", type="Withheld")


class Settled(msgspec.Struct, frozen=True, kw_only=True):
    """What a call's result is once its hooks have seen it."""

    result: ToolResult | ToolFailure
    outcome: CallOutcome
    stop: Stop | None = None


_SETTLED: Json[Settled] = Json(Settled)


def withheld(call: Call) -> ToolFailure:
    """What stands for a result that a failed hook may have had to change."""
    return _RAN if call.ran else _NOT_RUN


async def settle(chat: Chat, iteration: int, call: Call) -> None:
    """The result's way through its hooks; afterwards it is final."""
    key = (RESULT, iteration, call.id)
    try:
        settled = await chat.runtime.step(key, _chains, _SETTLED, chat, call)
    except BaseException:
        call.withhold(withheld(call))
        call.final = True
        raise
    call.stop = call.stop or settled.stop
    call.set(bounded(settled.result, chat.config.limits.output_bytes), settled.outcome)
    call.final = True


async def _chains(chat: Chat, call: Call) -> Settled:
    result, outcome = call.result, call.outcome
    stop: Stop | None = None
    converted = False
    while True:
        assert result is not None
        if isinstance(result, ToolFailure):
            result, end, stops = await _errors(chat, call, result, converted)
            stop = stop or (stops[0] if stops else None)
        else:
            result, end = await _goods(chat, call, result, converted)
        if end is None:
            return Settled(result=result, outcome=outcome, stop=stop)
        result = as_data(end) if isinstance(end, ToolResult) else end
        outcome = "ok" if isinstance(result, ToolResult) else "error"
        if converted or (isinstance(end, ToolResult) and isinstance(result, ToolFailure)):
            return Settled(result=result, outcome=outcome, stop=stop)
        converted = True


async def _errors(
    chat: Chat, call: Call, error: ToolFailure, converted: bool
) -> tuple[CallResult, Any, list[Any]]:
    ctx: OnToolCallError[Any] = OnToolCallError(
        run=call.run_of(chat), call=call.call, tool=call.tool, scope=call.scope, error=error
    )
    refused = ToolResult if converted else None
    last, end, stops = await intercept(
        chat.view.onToolCallError, ctx, chat, tool=call.call.name, refused=refused
    )
    return last.error, end, stops


async def _goods(
    chat: Chat, call: Call, result: ToolResult, converted: bool
) -> tuple[CallResult, Any]:
    tool, scope = call.tool, call.scope
    if tool is None or scope is None:  # an unknown tool whose error was recovered
        tool, scope = unknown_tool(call.call.name), NOWHERE
    ctx: OnToolCallResult[Any] = OnToolCallResult(
        run=call.run_of(chat), call=call.call, tool=tool, scope=scope, result=result
    )
    refused = ToolFailure if converted else None
    last, end, _ = await intercept(
        chat.view.onToolCallResult, ctx, chat, tool=call.call.name, refused=refused
    )
    if end is not None or last.result is result:
        return last.result, end
    data = as_data(last.result)
    if isinstance(data, ToolFailure):
        return result, data  # a hook's value that is no JSON is a tool error
    return data, None
