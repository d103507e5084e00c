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
from typing import Any

import anyio.to_thread
import msgspec

from hookline._call import Call
from hookline._chain import wrap
from hookline._chat import Chat
from hookline._deadline import Limit
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
from hookline._runtime import RUN, Json
from hookline._scopes import Scope
from hookline._tools import AnyTool
from hookline._values import as_data, worded


class Ran(msgspec.Struct, frozen=True, kw_only=True):
    """What a handler came to, and the Stop that it asked for."""

    result: ToolResult | ToolError
    stop: Stop | None = None


_RAN: Json[Ran] = Json(Ran)


def run_handler(chat: Chat, iteration: int, call: Call) -> Awaitable[Ran]:
    """Run the call, through aroundToolCall."""
    return chat.runtime.step((RUN, iteration, call.id), partial(_run, chat, call), _RAN)


async def _run(chat: Chat, call: Call) -> Ran:
    assert call.tool is not None
    if call.bound is None:
        error = admit(chat, call)
        if error is not None:
            return Ran(result=error)
    if chat.attempt > 1 and not call.tool.idempotent:
        return Ran(result=ToolError("interrupted: the call may have run", type="Interrupted"))
    handler = Handler(chat, call)
    wrappers = chat.view.aroundToolCall
    if not wrappers:
        return Ran(result=await handler(call.call), stop=handler.stop)
    assert call.tool is not None and call.scope is not None
    ctx: AroundToolCall[Any] = AroundToolCall(
        run=call.run_of(chat), call=call.call, tool=call.tool, scope=call.scope
    )
    name = call.call.name
    result = await wrap(wrappers, ctx, handler, chat, tool=name, again=handler.again)
    if isinstance(result, ToolResult):
        result = as_data(result)
    return Ran(result=result, stop=handler.stop)


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
        call.bound = tool.bind(call.call.arguments)
    except (BadArguments, ToolArgumentsError) as bad:
        return ToolError.of(ToolArgumentsError(call.call.name, bad.issues, raw))
    return None


class Handler:
    """The inside of the onion: gives a result, never raises for the tool."""

    __slots__ = ("_call", "_chat", "stop")

    def __init__(self, chat: Chat, call: Call) -> None:
        self._chat = chat
        self._call = call
        self.stop: Stop | None = None

    def again(self) -> str | None:
        """Why `proceed` must not be called a second time."""
        tool = self._call.tool
        if tool is not None and tool.idempotent:
            return None
        return "proceed ran this tool already; declare it @tool(idempotent=True) to run it again"

    async def __call__(self, wanted: ToolCall) -> CallResult:
        chat, call = self._chat, self._call
        tool, scope = call.tool, call.scope
        assert tool is not None and scope is not None
        if call.request is not None and wanted.arguments != call.call.arguments:
            raise HookError(
                f"the call of {tool.name!r} was approved as it stands; a wrapper cannot change it"
            )
        seconds = tool.timeout if tool.timeout is not None else chat.config.limits.tool_timeout
        limit: Limit | None = None
        chat.check()
        chat.doing[call.id] = tool.name
        try:
            self._check_offer(tool, scope)
            if wanted is not call.call:  # a wrapper changed the arguments
                call.call = wanted
                call.bound = tool.bind(wanted.arguments)
            arguments = call.bound
            assert arguments is not None
            if tool.signature.injected is not None:
                arguments = {**arguments, tool.signature.injected: call.run_of(chat)}
            if seconds is not None and seconds != inf:
                limit = chat.deadlines.start(seconds)
            if tool.is_async:
                value = await tool.fn(**arguments)
            else:
                value = await _in_thread(chat, tool.name, partial(tool.fn, **arguments))
        except StopChat as stop:
            reason = clean_text(str(stop.reason))
            self.stop = Stop(reason)
            return ToolResult(reason)
        except asyncio.CancelledError as exc:
            if limit is not None and limit.ran_out():
                assert seconds is not None
                return ToolError.of(ToolTimeoutError(tool.name, seconds))
            task = asyncio.current_task()
            if chat.broken or (task is not None and task.cancelling()):
                raise
            return ToolError.of(exc)  # the tool's own: nobody cancelled it
        except Exception as exc:
            return ToolError.of(exc)
        finally:
            del chat.doing[call.id]
            if limit is not None:
                chat.deadlines.stop(limit)
        if isinstance(value, ToolError):
            return worded(value)
        return as_data(value if isinstance(value, ToolResult) else ToolResult(value))

    def _check_offer(self, tool: AnyTool, scope: Scope) -> None:
        """A tool that is off or gone by now does not run."""
        scopes = self._chat.config.scopes
        if scope is FROM_HOOK:
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
