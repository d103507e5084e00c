"""A tool's handler: run inside its wrappers and its time limit, its value made JSON data.

Whatever a tool raises becomes a ToolFailure for the model; what a wrapper raises is the wrapper's.
A cancellation is passed on when it is the chat's, and is a tool error when nobody cancelled.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable
from functools import partial
from inspect import isawaitable
from math import inf
from typing import Any, Final

import anyio.to_thread
import msgspec

from hookline._base.cancel import Expired, being_cancelled
from hookline._base.errors import (
    DisabledToolError,
    HookError,
    StopChat,
    ToolArgumentsError,
    ToolTimeoutError,
    UnknownToolError,
)
from hookline._base.json import BadArguments, clean_text, parse_arguments
from hookline._base.messages import ToolCall
from hookline._base.returns import CallResult, Stop, ToolFailure, ToolResult
from hookline._base.runtime import Json
from hookline._chat.call import Call
from hookline._chat.request import FROM_HOOK
from hookline._chat.state import Chat
from hookline._chat.values import as_data, outcome_of
from hookline._hooks.points import AroundToolCall
from hookline._hooks.wrappers import wrap
from hookline._model.tool import AnyTool


class Ran(msgspec.Struct, frozen=True, kw_only=True):
    """What a handler came to, and the Stop that it asked for."""

    result: ToolResult | ToolFailure
    stop: Stop | None = None
    began: bool = True  # the tool's function was called


RAN: Final[Json[Ran]] = Json(Ran)
INTERRUPTED: Final = ToolFailure("interrupted: the call may have run", type="Interrupted")
FRAMES_KNOW_WHO_AWAITED: Final = sys.version_info >= (3, 12)


async def run_handler(chat: Chat, call: Call) -> Ran:
    """Run the call, through aroundToolCall."""
    run = wrapped if chat.view.aroundToolCall else handle
    result = await run(chat, call)
    return Ran(result=result, stop=call.stop, began=call.ran)


async def wrapped(chat: Chat, call: Call) -> CallResult:
    """The call, inside its wrappers."""
    error = _refused(chat, call)
    if error is not None:
        return error
    tool, scope = call.tool, call.scope
    assert tool is not None and scope is not None

    def inner(wanted: ToolCall) -> Awaitable[CallResult]:
        chat.check()
        call.stop = None  # the last attempt counts
        return handle(chat, call, None if wanted is call.call else wanted)

    def again() -> str | None:
        if tool.idempotent:
            return None
        return "proceed ran this tool already; declare it @tool(idempotent=True) to run it again"

    ctx: AroundToolCall[Any] = AroundToolCall(
        run=call.run_of(chat), call=call.call, tool=tool, scope=scope
    )
    name = call.call.name
    result = await wrap(chat.view.aroundToolCall, ctx, inner, chat, tool=name, again=again)
    if result is call.made or not isinstance(result, ToolResult):
        return result
    return as_data(result)  # the wrapper's own


def _refused(chat: Chat, call: Call) -> ToolFailure | None:
    """Why the call must not run, where nobody has looked yet."""
    assert call.tool is not None
    error = admit(chat, call) if call.bound is None else None
    if error is None and chat.again and _may_have_run(chat, call.tool):
        return INTERRUPTED
    return error


def _may_have_run(chat: Chat, tool: AnyTool) -> bool:
    """Whether an interrupted attempt may have run the tool, which must not run twice."""
    return chat.attempt > 1 and not tool.idempotent


def admit(chat: Chat, call: Call) -> ToolFailure | None:
    """Whether the call may run: its tool offered and on, its arguments bound; every issue told."""
    tool = call.tool
    assert tool is not None
    if not call.offered:
        return ToolFailure.of(DisabledToolError(call.call.name))
    if call.fixed is None or call.fixed is not chat.config.scopes.fixed:
        gone = _gone(chat, call, tool)
        if gone is not None:
            return gone
    raw = call.call.raw
    try:
        if raw is not None:
            parse_arguments(raw, limit=chat.config.limits.argument_bytes)
            raise BadArguments(("the arguments were cut off",))
        call.bound = tool.signature.bind(call.call.arguments)
    except BadArguments as bad:
        return ToolFailure.of(ToolArgumentsError(call.call.name, bad.issues, raw))
    return None


async def handle(chat: Chat, call: Call, wanted: ToolCall | None = None) -> CallResult:
    """The inside of the onion: never raises for the tool. `wanted` is what wrappers changed."""
    tool = call.tool
    assert tool is not None
    seconds = tool.timeout if tool.timeout is not None else chat.config.limits.tool_timeout
    try:
        error: ToolFailure | None = None
        if wanted is not None:
            error = _take_changed(chat, call, wanted)
        elif call.bound is None or call.ran:  # a handler may have changed what it got before
            error = admit(chat, call)
        elif call.fixed is None or call.fixed is not chat.config.scopes.fixed:
            error = _gone(chat, call, tool)  # somebody was waited for since
        if error is not None:
            return error
        if chat.again and wanted is None and _may_have_run(chat, tool):
            return INTERRUPTED
        arguments: Any = call.bound
        if tool.signature.injected is not None:
            arguments = {**arguments, tool.signature.injected: call.run_of(chat)}
        call.ran = True
        if tool.is_async:
            work: Any = tool.fn(**arguments)
        else:
            work = _in_thread(chat, tool.name, partial(tool.fn, **arguments))
        if seconds is None or seconds == inf:
            value = await work
        else:
            value = await chat.deadlines.run(work, seconds, tool.name)
    except StopChat as stop:
        reason = clean_text(str(stop.reason))
        call.stop = Stop(reason)
        return ToolResult(reason)
    except Expired:
        assert seconds is not None
        return ToolFailure.of(ToolTimeoutError(tool.name, seconds))
    except asyncio.CancelledError as exc:
        if chat.broken or being_cancelled():
            raise
        return ToolFailure.of(exc)  # the tool's own: nobody cancelled it
    except _Changed:
        raise
    except Exception as exc:
        return _raised(chat, exc)
    call.made = result = outcome_of(value)
    return result


def _take_changed(chat: Chat, call: Call, wanted: ToolCall) -> ToolFailure | None:
    """The call as wrappers changed it; one that was approved stays as it is."""
    tool = call.tool
    assert tool is not None
    if call.request is not None and wanted.arguments != call.call.arguments:
        raise _Changed(
            f"the call of {tool.name!r} was approved as it stands; a wrapper cannot change it"
        )
    if call.fixed is None or call.fixed is not chat.config.scopes.fixed:
        gone = _gone(chat, call, tool)
        if gone is not None:
            return gone
    call.call = wanted
    call.bound = tool.bind(wanted.arguments)
    return None


def _raised(chat: Chat, exc: Exception) -> ToolFailure:
    if FRAMES_KNOW_WHO_AWAITED:
        chat.raised = [*(chat.raised or ()), exc]
    return ToolFailure.of(exc)


class _Changed(HookError):
    """A wrapper's fault, not the tool's."""


def _gone(chat: Chat, call: Call, tool: AnyTool) -> ToolFailure | None:
    """Why a tool that was there when it was looked up may not run: it was removed, or is off.

    It is not asked where nothing was registered or removed since, and nothing can be off (`fixed`).
    """
    scope, scopes = call.scope, chat.config.scopes
    assert scope is not None
    found = scopes.tools.get(tool.name)
    if scope is not FROM_HOOK and (found is None or found[0] is not tool):
        return ToolFailure.of(UnknownToolError(tool.name, ()))
    return (
        None
        if scopes.allows(tool, scope, call.run_of(chat))
        else ToolFailure.of(DisabledToolError(tool.name))
    )


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
        if chat.supervisor is not None:
            chat.supervisor.report_later(name, lambda: ended)
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
        call.set(ToolFailure.of(bad), "error")
