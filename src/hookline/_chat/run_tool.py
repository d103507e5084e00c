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
from types import NoneType
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
from hookline._chat.call import INTERRUPTED, CallRun
from hookline._chat.child_history import ChildWaits, use_answers
from hookline._chat.guards import NOT_RUN_AFTER_STOP, is_due, last_look
from hookline._chat.recorder import ChatReturns
from hookline._chat.request import FROM_HOOK
from hookline._chat.results import as_data, as_result
from hookline._chat.state import Chat
from hookline._conversations.history import MAY_HAVE_RUN
from hookline._conversations.store import WaitingChild
from hookline._hooks.points import AroundToolCall
from hookline._hooks.wrappers import wrap
from hookline._record.runtime import LOCAL, Json
from hookline._tools.check import Check, NotRun
from hookline._tools.scopes import allows
from hookline._tools.tool import AnyTool, UnknownTool


class Ran(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a handler, and the Stop that it asked for."""

    result: ToolResult | ToolFailure
    stop: Stop | None = None
    began: bool = True  # the tool's function was called
    outcome: CallOutcome = "ok"
    at: float | None = None  # when it began, for the record of a call that was decided about
    duration: float | None = None
    child: WaitingChild | None = None  # instead of a result: its sub-agent waits for answers


WAITS: Final = ToolFailure("its sub-agent waits for an approval", type="Waiting")
MAY_HAVE_BEEN_RUN: Final = ToolFailure(MAY_HAVE_RUN, type="Interrupted")
# An exception of a tool would keep the chat alive through its frames; see `forget_our_locals`.
FRAMES_KNOW_WHO_AWAITED: Final = sys.version_info >= (3, 12)


# ── whether it may run ──────────────────────────────────────────────────────────────────────


def admit(chat: Chat, run: CallRun) -> ToolFailure | None:
    """Bind the call's arguments; return the error if the call cannot run.

    Called again after each wait, since the tool may be removed or off by then.
    """
    tool, scope, name = run.tool, run.scope, run.call.name
    if scope is None or isinstance(tool, (UnknownTool, NoneType)):
        return ToolFailure.of(UnknownToolError(name, ()))
    if not run.is_offered:
        return ToolFailure.of(DisabledToolError(name))
    if scope is not FROM_HOOK:
        known_tool, _ = chat.config.scopes.tools.get(name, (None, None))
        if known_tool is not tool:
            return ToolFailure.of(UnknownToolError(name, ()))
    if (scope.is_on or tool.is_on) and not allows(tool, scope, chat, run.id):
        return ToolFailure.of(DisabledToolError(name))
    if tool.client and not chat.keeps:
        return ToolFailure.of(
            ToolCallError(
                f"a client must run {name!r}, but this chat has no conversation that could take "
                "the result; answer without this tool"
            )
        )
    if run.arguments is None or run.ran:  # the handler may have changed its arguments
        raw = run.call.raw
        try:
            if raw is not None:
                parse_arguments(raw, limit=chat.config.limits.argument_bytes)
                raise BadArguments(("the arguments were cut off",))
            run.arguments = tool.signature.bind(run.call.arguments)
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
        return None if tool is not None and tool.idempotent else MAY_HAVE_BEEN_RUN
    work = _call_check(chat, run, tool, tool.check)
    seconds = tool.timeout or chat.config.limits.tool_timeout
    try:
        value = await chat.deadlines.run(work, seconds, tool.name)
    except (Exception, Expired) as exc:
        log_throw(f"the check of tool {tool.name!r} could not tell whether the call has run", exc)
        return MAY_HAVE_BEEN_RUN
    if value is None:
        return MAY_HAVE_BEEN_RUN
    return None if isinstance(value, NotRun) else as_result(value)


async def _call_check(chat: Chat, run: CallRun, tool: AnyTool, check: Check) -> Any:
    """Call `@tool(check=…)` with those of the call's arguments that it takes."""
    arguments: dict[str, Any] = {}
    if check.takes:
        values = tool.signature.bind(run.call.arguments)
        arguments = {name: value for name, value in values.items() if name in check.takes}
    if check.injected is not None:
        arguments[check.injected] = run.run_of(chat)
    fn = partial(check.fn, **arguments)
    return await fn() if check.is_async else await _in_thread(chat, tool.name, fn)


# ── running it ──────────────────────────────────────────────────────────────────────────────


async def run_handler(chat: Chat, run: CallRun) -> Ran:
    """Run the call, through aroundToolCall, unless an earlier life may have run it."""
    # First: the tool may be gone, or its arguments changed.
    if chat.runtime is not LOCAL and chat.attempt > 1:
        earlier = await _earlier_result(chat, run)
        if earlier is not None:
            run.ran = isinstance(earlier, ToolResult)
            return Ran(result=earlier, began=run.ran, outcome="ok" if run.ran else "error")
    handler = _handle if run.tool and not chat.view.aroundToolCall else _with_wrappers
    at = None if run.record is None else chat.runtime.now()
    try:
        result = await handler(chat, run)
    except ChildWaits as waits:
        return Ran(result=WAITS, began=False, child=waits.child_of(run))
    if run.child_answers is not None and isinstance(result, ToolResult):
        run.ran = True
    outcome = "ok" if isinstance(result, ToolResult) else _outcome(run, result)
    ran = Ran(result=result, stop=run.stop, began=run.ran, outcome=outcome)
    if at is None or not run.ran:
        return ran
    duration = max(0.0, chat.runtime.now() - at)
    return msgspec.structs.replace(ran, at=at, duration=duration)


async def _recall(ran: Ran, chat: Chat, run: CallRun) -> None:
    """Set what a recorded run of the handler has set, unless its sub-agent waits."""
    if ran.child is None:
        run.stop, run.ran = ran.stop, ran.began


RAN: Final[ChatReturns[Ran]] = ChatReturns(form=Json(Ran), on_replay=_recall)


def _outcome(run: CallRun, result: ToolFailure) -> CallOutcome:
    """The outcome of a call that was stopped or refused, or has failed."""
    if result is NOT_RUN_AFTER_STOP:
        return "stopped"
    is_refusal = result is run.refusal or (result.type == "Denied" and not run.ran)
    return "denied" if is_refusal or isinstance(result.exception, ToolDenied) else "error"


async def _with_wrappers(chat: Chat, run: CallRun) -> CallResult:
    """Run the call inside its wrappers, unless new code has removed its tool."""
    error = admit(chat, run) if run.arguments is None else None
    if error is not None:
        return error
    tool, scope = run.tool, run.scope
    assert tool is not None and scope is not None

    handler_result = cast("CallResult | None", None)  # the handler's result

    async def inner(call: ToolCall) -> CallResult:
        nonlocal handler_result
        chat.check()
        run.stop = None  # the last attempt counts
        if call is not run.call:
            _change(run, tool, call)
        handler_result = await _handle(chat, run)
        return handler_result

    def again() -> str | None:
        if tool.idempotent:
            return None
        return (
            "proceed has run this tool already; declare it @tool(idempotent=True) to run it again"
        )

    ctx: AroundToolCall[Any] = AroundToolCall(
        run=run.run_of(chat), call=run.call, tool=tool, scope=scope
    )
    wrappers = chat.view.aroundToolCall
    try:
        result = await wrap(wrappers, ctx, inner, chat, tool=tool.name, again=again)
    except StopChat as stop:
        return _stop(run, stop)
    if result is handler_result:
        return result
    if isinstance(result, ToolResult):
        return as_data(result)  # the wrapper's own
    exc = result.exception
    if isinstance(exc, ToolDenied) and exc is not getattr(handler_result, "exception", None):
        return denied(run, exc)  # raised by a wrapper
    return result


def _stop(run: CallRun, stop: StopChat) -> ToolResult:
    """The result of a call whose tool or wrapper ends the chat."""
    reason = clean_text(str(stop.reason))
    run.stop = Stop(reason)
    return ToolResult(reason)


def _change(run: CallRun, tool: AnyTool, call: ToolCall) -> None:
    """Take the call as wrappers have changed it; refuse to change an approved call."""
    if run.request is not None and call.arguments != run.call.arguments:
        raise HookError(
            f"the call of {tool.name!r} was approved and can no longer be changed; use "
            "proceed() with no arguments"
        )
    run.call = call
    run.arguments = None


async def _look(chat: Chat, run: CallRun) -> ToolFailure | None:
    """Ask the guards about a call that could run; return its error or their refusal."""
    return admit(chat, run) or await last_look(chat, run)


async def _handle(chat: Chat, run: CallRun) -> CallResult:
    """Call the tool's function, inside all wrappers. An exception becomes a ToolFailure."""
    tool = run.tool
    assert tool is not None
    seconds = tool.timeout or chat.config.limits.tool_timeout
    guards = chat.view.tool_guards
    if guards and is_due(run, guards) and (refusal := await _look(chat, run)) is not None:
        return refusal
    if run.request is not None or chat.input.answers is not None:  # approved, or resumed
        await use_answers(chat, run)
    run.judged = None  # each run of the handler needs a look of its own
    try:
        error = admit(chat, run)
        if error is not None:
            return error
        value = await chat.deadlines.run(_call(chat, run, tool), seconds, tool)
    except StopChat as stop:
        return _stop(run, stop)
    except Expired:
        if run.interrupted:
            run.interrupted = False
            return INTERRUPTED
        return ToolFailure.of(ToolTimeoutError(tool.name, cast("float", seconds)))
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
        chat.progress.raised = [*(chat.progress.raised or ()), exc]
    return denied(run, exc) if isinstance(exc, ToolDenied) else ToolFailure.of(exc)


def _call(chat: Chat, run: CallRun, tool: AnyTool) -> Any:
    """Call the tool's function with the bound arguments, and with the run if it takes one."""
    arguments: Any = run.arguments
    if tool.signature.injected is not None:
        arguments = {**arguments, tool.signature.injected: run.run_of(chat)}
    if run.child_answers is None:  # a sub-agent that goes on has not begun anything yet
        if chat.progress.accepted:
            chat.progress.use(run.id)
        run.ran = True  # before the call: a function that raises did run
    if tool.is_async:
        return tool.fn(**arguments)
    return _in_thread(chat, tool.name, partial(tool.fn, **arguments))


async def _in_thread(chat: Chat, name: str, fn: partial[Any]) -> Any:
    """Run a sync tool in a thread. A thread cannot be stopped; one left behind is logged."""
    finished = False

    def work() -> Any:
        nonlocal finished
        try:
            return fn()
        finally:
            finished = True

    try:
        value = await anyio.to_thread.run_sync(work, abandon_on_cancel=True)
    except asyncio.CancelledError:
        if chat.supervisor is not None:
            chat.supervisor.report_later(name, lambda: finished)
        raise
    return await value if isawaitable(value) else value
