"""A tool's handler: run inside its wrappers and its time limit, its value made JSON data.

Whatever a tool raises becomes a ToolError for the model; what a wrapper raises is the wrapper's.
A cancellation is passed on when it is the chat's, and is a tool error when nobody cancelled.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from functools import partial
from inspect import isawaitable
from math import inf
from typing import Any, Final

import anyio.to_thread
import msgspec

from hookline._call import Call
from hookline._chain import wrap
from hookline._chat import Chat
from hookline._deadline import Limit, being_cancelled
from hookline._errors import (
    DisabledToolError,
    HookError,
    StopChat,
    ToolArgumentsError,
    ToolTimeoutError,
    UnknownToolError,
)
from hookline._json import BadArguments, clean_text, parse_arguments
from hookline._messages import ToolCall
from hookline._outcomes import CallResult, Stop, ToolError, ToolResult
from hookline._points import AroundToolCall
from hookline._request import FROM_HOOK
from hookline._runtime import Json
from hookline._tools import AnyTool
from hookline._values import as_data, worded


class Ran(msgspec.Struct, frozen=True, kw_only=True):
    """What a handler came to, and the Stop that it asked for."""

    result: ToolResult | ToolError
    stop: Stop | None = None
    began: bool = True  # the tool's function was called


RAN: Final[Json[Ran]] = Json(Ran)


def run_handler(chat: Chat, call: Call) -> Awaitable[Ran]:
    """Run the call, through aroundToolCall."""
    return _wrapped(chat, call) if chat.view.aroundToolCall else _handle(chat, call)


async def _wrapped(chat: Chat, call: Call) -> Ran:
    error = _refused(chat, call)
    if error is not None:
        return Ran(result=error, began=False)
    tool, scope = call.tool, call.scope
    assert tool is not None and scope is not None
    stop: Stop | None = None
    began = False

    async def inner(wanted: ToolCall) -> CallResult:
        nonlocal stop, began
        ran = await _handle(chat, call, wanted)
        stop, began = ran.stop, began or ran.began
        return ran.result

    def again() -> str | None:
        if tool.idempotent:
            return None
        return "proceed ran this tool already; declare it @tool(idempotent=True) to run it again"

    ctx: AroundToolCall[Any] = AroundToolCall(
        run=call.run_of(chat), call=call.call, tool=tool, scope=scope
    )
    name = call.call.name
    result = await wrap(chat.view.aroundToolCall, ctx, inner, chat, tool=name, again=again)
    if isinstance(result, ToolResult):
        result = as_data(result)
    return Ran(result=result, stop=stop, began=began)


def _refused(chat: Chat, call: Call) -> ToolError | None:
    """Why the call must not run, where nobody has looked yet."""
    tool = call.tool
    assert tool is not None
    error = admit(chat, call) if call.bound is None else None
    if error is None and chat.attempt > 1 and not tool.idempotent:
        return ToolError("interrupted: the call may have run", type="Interrupted")
    return error


def admit(chat: Chat, call: Call) -> ToolError | None:
    """Whether the call may run: its tool offered and on, its arguments bound; every issue told."""
    tool, scope = call.tool, call.scope
    assert tool is not None and scope is not None
    if not call.offered or not chat.config.scopes.allows(tool, scope):
        return ToolError.of(DisabledToolError(call.call.name))
    raw = call.call.raw
    try:
        if raw is not None:
            parse_arguments(raw, limit=chat.config.limits.argument_bytes)
            raise BadArguments(("the arguments were cut off",))
        call.bound = tool.signature.bind(call.call.arguments)
    except BadArguments as bad:
        return ToolError.of(ToolArgumentsError(call.call.name, bad.issues, raw))
    return None


async def _handle(chat: Chat, call: Call, wanted: ToolCall | None = None) -> Ran:
    """The inside of the onion: never raises for the tool. `wanted` is what wrappers made of it."""
    tool = call.tool
    assert tool is not None
    seconds = tool.timeout if tool.timeout is not None else chat.config.limits.tool_timeout
    limit: Limit | None = None
    began = False
    if chat.broken:
        chat.check()
    chat.doing[call.id] = tool.name
    try:
        if wanted is None:
            known = call.bound is not None
            error = _refused(chat, call)
            if error is not None:
                return Ran(result=error, began=False)
            if known:  # somebody was waited for since
                _check_offer(chat, call, tool)
        elif call.request is not None and wanted.arguments != call.call.arguments:
            raise _Changed(
                f"the call of {tool.name!r} was approved as it stands; a wrapper cannot change it"
            )
        else:
            _check_offer(chat, call, tool)
            if wanted is not call.call:  # a wrapper changed the arguments
                call.call = wanted
                call.bound = tool.bind(wanted.arguments)
        arguments = call.bound
        assert arguments is not None
        if tool.signature.injected is not None:
            arguments = {**arguments, tool.signature.injected: call.run_of(chat)}
        if seconds is not None and seconds != inf:
            limit = chat.deadlines.start(seconds)
        began = True
        if tool.is_async:
            value = await tool.fn(**arguments)
        else:
            value = await _in_thread(chat, tool.name, partial(tool.fn, **arguments))
    except StopChat as stop:
        reason = clean_text(str(stop.reason))
        return Ran(result=ToolResult(reason), stop=Stop(reason))
    except asyncio.CancelledError as exc:
        if limit is not None and limit.ran_out():
            assert seconds is not None
            return Ran(result=ToolError.of(ToolTimeoutError(tool.name, seconds)))
        if chat.broken or being_cancelled():
            raise
        return Ran(result=ToolError.of(exc))  # the tool's own: nobody cancelled it
    except _Changed:
        raise
    except Exception as exc:
        return Ran(result=ToolError.of(exc), began=began)
    finally:
        del chat.doing[call.id]
        if limit is not None:
            chat.deadlines.stop(limit)
    if isinstance(value, ToolError):
        return Ran(result=worded(value))
    return Ran(result=as_data(value if isinstance(value, ToolResult) else ToolResult(value)))


class _Changed(HookError):
    """A wrapper's fault, not the tool's."""


def _check_offer(chat: Chat, call: Call, tool: AnyTool) -> None:
    """A tool that is off or gone by now does not run."""
    scope, scopes = call.scope, chat.config.scopes
    if scope is FROM_HOOK or scope is None:
        return
    found = scopes.find(tool.name)
    if found is None or found[0] is not tool:
        raise UnknownToolError(tool.name, ())
    if not scopes.allows(tool, scope):
        raise DisabledToolError(tool.name)


async def _in_thread(chat: Chat, name: str, fn: partial[Any]) -> Any:
    """A sync tool: nobody can stop its thread, so one that is left behind is reported."""
    ended = False

    def work() -> Any:
        nonlocal ended
        try:
            return fn()
        finally:
            ended = True

    try:
        value = await anyio.to_thread.run_sync(work, abandon_on_cancel=True)
    except asyncio.CancelledError:
        chat.report_later(name, lambda: ended)
        raise
    return await value if isawaitable(value) else value


def bind_again(call: Call, arguments: dict[str, Any]) -> None:
    """Arguments that an approver edited: validated like the model's."""
    assert call.tool is not None
    call.call = call.call.replace(arguments=arguments, raw=None)
    try:
        call.bound = call.tool.bind(arguments)
        call.runs = True
    except ToolArgumentsError as bad:
        call.set(ToolError.of(bad), "error")
