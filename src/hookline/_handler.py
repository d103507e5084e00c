"""A tool's handler: run inside its wrappers and its time limit, its value made JSON data.

Whatever a tool raises becomes a ToolError for the model; what a wrapper raises is the wrapper's.
A cancellation is passed on when it is the chat's, and is a tool error when nobody cancelled.
"""

from __future__ import annotations

import asyncio
from functools import partial
from inspect import isawaitable
from math import inf
from typing import Any

import anyio.to_thread
import msgspec

from hookline._call import Call
from hookline._chain import wrap
from hookline._chat import Chat
from hookline._deadline import Expired
from hookline._errors import (
    DisabledToolError,
    StopChat,
    ToolArgumentsError,
    ToolTimeoutError,
    UnknownToolError,
)
from hookline._messages import ToolCall, ToolMessage
from hookline._outcomes import CallResult, Stop, ToolError, ToolResult
from hookline._points import AroundToolCall
from hookline._request import FROM_HOOK
from hookline._runtime import RUN, Json
from hookline._schema import NotJson, clean_text, json_text, to_json_data


class Ran(msgspec.Struct, frozen=True, kw_only=True):
    """What a handler came to, and the Stop that it asked for."""

    result: ToolResult | ToolError
    stop: Stop | None = None


_RAN: Json[Ran] = Json(Ran)


async def run_handler(chat: Chat, iteration: int, call: Call) -> Ran:
    """Run the call, through aroundToolCall."""
    key = (RUN, iteration, call.id)
    return await chat.runtime.step(key, partial(_run, chat, call), _RAN)


async def _run(chat: Chat, call: Call) -> Ran:
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
        try:
            if scope is not FROM_HOOK:
                if chat.config.scopes.find(tool.name) is None:
                    raise UnknownToolError(tool.name, ())
                if not chat.config.scopes.allows(tool, scope):
                    raise DisabledToolError(tool.name)
            if wanted is not call.call:  # a wrapper changed the arguments
                call.call = wanted
                call.bound = tool.bind(wanted.arguments)
            value = await self._invoke()
        except StopChat as stop:
            self.stop = Stop(stop.reason)
            return ToolResult(clean_text(stop.reason))
        except asyncio.CancelledError as exc:
            task = asyncio.current_task()
            if chat.broken or (task is not None and task.cancelling()):
                raise
            return ToolError.of(exc)  # the tool's own: nobody cancelled it
        except Exception as exc:
            return ToolError.of(exc)
        if isinstance(value, ToolError):
            return value
        return as_data(value if isinstance(value, ToolResult) else ToolResult(value))

    async def _invoke(self) -> Any:
        chat, call = self._chat, self._call
        tool = call.tool
        assert tool is not None and call.bound is not None
        arguments = call.bound
        if tool.signature.injected is not None:
            arguments = {**arguments, tool.signature.injected: call.run_of(chat)}
        chat.doing[call.id] = f"tool {tool.name!r}"
        limit = tool.timeout if tool.timeout is not None else chat.config.limits.tool_timeout
        if limit == inf:
            limit = None
        try:
            if tool.is_async:
                work = tool.fn(**arguments)
                return await (work if limit is None else chat.deadlines.run(work, limit))
            work = _in_thread(chat, tool.name, partial(tool.fn, **arguments))
            return await (work if limit is None else chat.deadlines.run(work, limit))
        except Expired:
            assert limit is not None
            raise ToolTimeoutError(tool.name, limit) from None
        finally:
            del chat.doing[call.id]


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
        chat.report_later(f"tool {name!r}", lambda: ended)
        raise
    return await value if isawaitable(value) else value


# ── results as data ─────────────────────────────────────────────────────────────────────────


def as_data(result: ToolResult) -> CallResult:
    """The result with its value as JSON data; what cannot be is a tool error."""
    value = result.value
    if value is None or value is True or value is False or type(value) is int:
        return result
    try:
        data = to_json_data(value)
    except NotJson as exc:
        return ToolError(f"the tool's result is not JSON: {exc}", type="NotJson")
    return result if data is value else result.replace(value=data)


def text_of_result(result: CallResult) -> str:
    """What the model reads: a string as it is, any other value as JSON."""
    if isinstance(result, ToolResult):
        return result.value if isinstance(result.value, str) else json_text(result.value)
    message = clean_text(result.message)
    return json_text({"error": {"type": clean_text(result.type), "message": message}})


def bounded(result: CallResult, limit: int) -> CallResult:
    """The result, cut to so many bytes of text and marked where it is longer."""
    if isinstance(result, ToolError):
        cut = _cut(result.message, limit)
        return result if cut is result.message else result.replace(message=cut)
    value = result.value
    if value is None or isinstance(value, (bool, int, float)):
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


def message_for(call: Call) -> ToolMessage:
    """The message that tells the model what the call came to."""
    result = call.result
    assert result is not None
    return ToolMessage(
        call_id=call.id,
        name=call.call.name,
        text=text_of_result(result),
        outcome=call.outcome,
        media=result.media if isinstance(result, ToolResult) else (),
    )


def bind_again(call: Call, arguments: dict[str, Any]) -> None:
    """Arguments that an approver edited: validated like the model's."""
    assert call.tool is not None
    call.call = call.call.replace(arguments=arguments, raw=None)
    try:
        call.bound = call.tool.bind(arguments)
        call.runs = True
    except ToolArgumentsError as bad:
        call.set(ToolError.of(bad), "error")
