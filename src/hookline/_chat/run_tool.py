"""A call's handler: admitted, run inside its wrappers and its time limit, its value made JSON data.

An exception of the tool becomes a ToolFailure for the model. An exception of a wrapper follows the
wrapper's failure rule. A CancelledError is passed on if the chat was cancelled, and is a tool error
otherwise.
"""

from __future__ import annotations

import asyncio
import sys
from functools import partial
from inspect import isawaitable
from math import inf
from typing import Any, Final, cast

import anyio.to_thread
import msgspec

from hookline._base.cancel import Expired, being_cancelled
from hookline._base.errors import (
    DisabledToolError,
    HookError,
    StopChat,
    ToolArgumentsError,
    ToolCallError,
    ToolDenied,
    ToolTimeoutError,
    UnknownToolError,
)
from hookline._base.json import BadArguments, clean_text, parse_arguments
from hookline._base.log import log_throw
from hookline._base.messages import CallOutcome, ToolCall
from hookline._base.returns import CallResult, Stop, ToolFailure, ToolResult
from hookline._chat.call import CallRun
from hookline._chat.guards import STOPPED, is_due, last_look
from hookline._chat.request import FROM_HOOK
from hookline._chat.results import as_data, as_result
from hookline._chat.state import Chat
from hookline._conversations.history import MAY_HAVE_RUN
from hookline._hooks.points import AroundToolCall
from hookline._hooks.wrappers import wrap
from hookline._record.runtime import Json
from hookline._tools.check import Check, NotRun
from hookline._tools.tool import AnyTool, UnknownTool


class Ran(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a handler, and the Stop that it asked for."""

    result: ToolResult | ToolFailure
    stop: Stop | None = None
    began: bool = True  # the tool's function was called
    outcome: CallOutcome | None = None  # None: follows from the result
    at: float | None = None  # when it began, for the record of a call that was decided about
    duration: float | None = None


RAN: Final[Json[Ran]] = Json(Ran)
INTERRUPTED: Final = ToolFailure(MAY_HAVE_RUN, type="Interrupted")
# An exception of a tool would keep the chat alive through its frames; see `forget_our_locals`.
FRAMES_KNOW_WHO_AWAITED: Final = sys.version_info >= (3, 12)


# ── whether it may run ──────────────────────────────────────────────────────────────────────


def admit(chat: Chat, run: CallRun) -> ToolFailure | None:
    """Bind the call's arguments; return the error if the call cannot run.

    Called again after each wait, since the tool may be removed or off by then.
    """
    tool, scope, scopes = run.tool, run.scope, chat.config.scopes
    name = run.wanted.name
    if tool is None or scope is None or isinstance(tool, UnknownTool):
        return ToolFailure.of(UnknownToolError(name, ()))
    if not run.offered:
        return ToolFailure.of(DisabledToolError(name))
    if scope is not FROM_HOOK:
        found = scopes.find(name)
        if found is None or found[0] is not tool:
            return ToolFailure.of(UnknownToolError(name, ()))
    if not scopes.allows(tool, scope, run.run_of(chat)):
        return ToolFailure.of(DisabledToolError(name))
    if tool.client and not chat.keeps:
        return ToolFailure.of(
            ToolCallError(
                f"a client must run {name!r}, but this chat has no conversation that could take "
                "the result; answer without this tool"
            )
        )
    if run.bound is None or run.ran:  # the handler may have changed its arguments
        raw = run.wanted.raw
        try:
            if raw is not None:
                parse_arguments(raw, limit=chat.config.limits.argument_bytes)
                raise BadArguments(("the arguments were cut off",))
            run.bound = tool.signature.bind(run.wanted.arguments)
        except BadArguments as bad:
            return ToolFailure.of(ToolArgumentsError(name, bad.issues, raw))
    return None


def denied(run: CallRun, exc: ToolDenied) -> ToolFailure:
    """The refusal for the model; its text says so if the handler had begun."""
    error = ToolFailure.of(exc)
    text = f"denied while running: {error.message}" if run.ran else error.message
    return error.replace(message=text, type="Denied")


# ── whether it has run ──────────────────────────────────────────────────────────────────────


async def _earlier_result(chat: Chat, run: CallRun) -> CallResult | None:
    """The result of a call that an earlier life has begun; None if the call may run again."""
    tool = run.tool
    if tool is None or tool.check is None:
        return None if tool is not None and tool.idempotent else INTERRUPTED
    seconds = tool.timeout if tool.timeout is not None else chat.config.limits.tool_timeout
    try:
        work = _call_check(chat, run, tool, tool.check)
        if seconds is None or seconds == inf:
            value = await work
        else:
            value = await chat.deadlines.run(work, seconds, tool.name)
    except (Exception, Expired) as exc:
        log_throw(f"the check of tool {tool.name!r} could not tell whether the call has run", exc)
        return INTERRUPTED
    if value is None:
        return INTERRUPTED
    return None if isinstance(value, NotRun) else as_result(value)


async def _call_check(chat: Chat, run: CallRun, tool: AnyTool, check: Check) -> Any:
    """Call `@tool(check=…)` with those of the call's arguments that it takes."""
    arguments: dict[str, Any] = {}
    if check.takes:
        bound = tool.signature.bind(run.wanted.arguments)
        arguments = {name: value for name, value in bound.items() if name in check.takes}
    if check.injected is not None:
        arguments[check.injected] = run.run_of(chat)
    fn = partial(check.fn, **arguments)
    return await fn() if check.is_async else await _in_thread(chat, tool.name, fn)


# ── running it ──────────────────────────────────────────────────────────────────────────────


async def run_handler(chat: Chat, run: CallRun) -> Ran:
    """Run the call, through aroundToolCall, unless an earlier life may have run it."""
    if chat.attempt > 1:  # before anything else: the tool may be gone, or its arguments changed
        earlier = await _earlier_result(chat, run)
        if earlier is not None:
            return Ran(result=earlier, began=isinstance(earlier, ToolResult))
    handler = _wrapped if chat.view.aroundToolCall else _handle
    at = None if run.record is None else chat.runtime.now()
    result = await handler(chat, run)
    ran = Ran(result=result, stop=run.stop, began=run.ran, outcome=_outcome(run, result))
    if at is None or not run.ran:
        return ran
    duration = max(0.0, chat.runtime.now() - at)
    return msgspec.structs.replace(ran, at=at, duration=duration)


def _outcome(run: CallRun, result: CallResult) -> CallOutcome | None:
    """The outcome of a call that was refused or stopped; None if it follows from the result."""
    if isinstance(result, ToolResult):
        return None
    if result is STOPPED:
        return "stopped"
    refused = result is run.refusal or (result.type == "Denied" and not run.ran)
    return "denied" if refused or isinstance(result.exception, ToolDenied) else None


async def _wrapped(chat: Chat, run: CallRun) -> CallResult:
    """Run the call inside its wrappers."""
    error = admit(chat, run) if run.bound is None else None
    if error is not None:
        return error
    tool, scope = run.tool, run.scope
    assert tool is not None and scope is not None

    made = cast("CallResult | None", None)  # the handler's result

    async def inner(wanted: ToolCall) -> CallResult:
        nonlocal made
        chat.check()
        run.stop = None  # the last attempt counts
        if wanted is not run.wanted:
            _change(run, tool, wanted)
        made = await _handle(chat, run)
        return made

    def again() -> str | None:
        if tool.idempotent:
            return None
        return (
            "proceed has run this tool already; declare it @tool(idempotent=True) to run it again"
        )

    ctx: AroundToolCall[Any] = AroundToolCall(
        run=run.run_of(chat), call=run.wanted, tool=tool, scope=scope
    )
    wrappers = chat.view.aroundToolCall
    result = await wrap(wrappers, ctx, inner, chat, tool=tool.name, again=again)
    if result is made:
        return result
    if isinstance(result, ToolResult):
        return as_data(result)  # the wrapper's own
    exc = result.exception
    if isinstance(exc, ToolDenied) and exc is not getattr(made, "exception", None):
        return denied(run, exc)  # raised by a wrapper
    return result


def _change(run: CallRun, tool: AnyTool, wanted: ToolCall) -> None:
    """Take the call as wrappers have changed it; refuse to change an approved call."""
    if run.request is not None and wanted.arguments != run.wanted.arguments:
        raise HookError(
            f"the call of {tool.name!r} was approved and can no longer be changed; use "
            "proceed() with no arguments"
        )
    run.wanted = wanted
    run.bound = None


async def _look(chat: Chat, run: CallRun) -> ToolFailure | None:
    """Ask the guards about a call that could run; return its error or their refusal."""
    return admit(chat, run) or await last_look(chat, run)


async def _use_answer(chat: Chat, run: CallRun) -> None:
    """Use up the approval of the call, which begins now."""
    if run.request is not None:
        await chat.conversation.begin(run.request.id)
        chat.check()


async def _handle(chat: Chat, run: CallRun) -> CallResult:
    """Call the tool's function, inside all wrappers. An exception becomes a ToolFailure."""
    tool = run.tool
    assert tool is not None
    seconds = tool.timeout if tool.timeout is not None else chat.config.limits.tool_timeout
    guards = chat.view.tool_guards
    if guards and is_due(run, guards) and (refusal := await _look(chat, run)) is not None:
        return refusal
    await _use_answer(chat, run)
    run.judged = None  # each run of the handler needs a look of its own
    try:
        error = admit(chat, run)
        if error is not None:
            return error
        work = _call(chat, run, tool)
        if seconds is None or seconds == inf:
            value = await work
        else:
            value = await chat.deadlines.run(work, seconds, tool.name)
    except StopChat as stop:
        reason = clean_text(str(stop.reason))
        run.stop = Stop(reason)
        return ToolResult(reason)
    except Expired:
        assert seconds is not None
        return ToolFailure.of(ToolTimeoutError(tool.name, seconds))
    except asyncio.CancelledError as exc:
        if chat.broken or being_cancelled():
            raise
        return ToolFailure.of(exc)  # raised by the tool: nobody cancelled it
    except Exception as exc:
        return _error(chat, run, exc)
    return as_result(value)


def _error(chat: Chat, run: CallRun, exc: Exception) -> ToolFailure:
    """The result of a call whose tool raised."""
    if FRAMES_KNOW_WHO_AWAITED:
        chat.making.raised = [*(chat.making.raised or ()), exc]
    return denied(run, exc) if isinstance(exc, ToolDenied) else ToolFailure.of(exc)


def _call(chat: Chat, run: CallRun, tool: AnyTool) -> Any:
    """Call the tool's function with the bound arguments, and with the run if it takes one."""
    arguments: Any = run.bound
    if tool.signature.injected is not None:
        arguments = {**arguments, tool.signature.injected: run.run_of(chat)}
    chat.progress.use(run.id)
    run.ran = True  # before the call: a function that raises did run
    if tool.is_async:
        return tool.fn(**arguments)
    return _in_thread(chat, tool.name, partial(tool.fn, **arguments))


async def _in_thread(chat: Chat, name: str, fn: partial[Any]) -> Any:
    """Run a sync tool in a thread. A thread cannot be stopped; one left behind is logged."""
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
