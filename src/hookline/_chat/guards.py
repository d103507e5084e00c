"""The last look: the guards are asked about a call as it will run, right before its handler begins.

A guard is a hook at preToolCall that must hold whatever happens to a call after the hook saw it: a
later hook or a wrapper may change the call, an approver may edit it, it may wait for days. A guard
that has just seen exactly this call is not asked again. The look is part of the recorded run of the
call, so a durable chat takes it once.

Only refusals and questions count. An edit cannot count, because the others have seen the call
without it. A question that nobody has answered for this very call is a refusal.
"""

from __future__ import annotations

from asyncio import CancelledError
from collections.abc import Sequence
from typing import Any, Final

from hookline._base.messages import ToolCall
from hookline._base.returns import Ask, Deny, Stop, ToolFailure
from hookline._chat.call import CallRun
from hookline._chat.results import with_text
from hookline._chat.state import Chat
from hookline._hooks.call_rules import look
from hookline._hooks.points import PreToolCall
from hookline._hooks.registration import Hook

NOT_RUN_AFTER_STOP: Final = ToolFailure("not run: the chat was stopped", type="Stopped")
_REFUSALS: Final = (Deny, ToolFailure, Stop)
_NOT_APPROVED: Final = Deny(
    "this call needs an approval, which it did not need when it was made; make the call again, as "
    "it shall run"
)


def before_call(
    chat: Chat, run: CallRun, call: ToolCall, *, again: bool = False
) -> PreToolCall[Any]:
    """The context of preToolCall for this call."""
    tool: Any = run.tool
    scope: Any = run.scope
    return PreToolCall(
        run=run.run_of(chat),
        iteration=chat.iteration,
        call=call,
        tool=tool,
        scope=scope,
        again=again,
    )


async def ask_guards(
    chat: Chat, run: CallRun, guards: Sequence[Hook], call: ToolCall, *, again: bool = True
) -> tuple[Deny | ToolFailure | Stop | None, list[Ask]]:
    """Ask these guards about the call; return the refusal and the questions."""
    ctx = before_call(chat, run, call, again=again)
    end, values = await look(guards, ctx, chat, call.name, _REFUSALS)
    return end, [value for value in values if isinstance(value, Ask)]


def is_due(run: CallRun, guards: Sequence[Hook]) -> bool:
    """Return whether one of these guards has not just seen exactly this call."""
    return run.judged is not run.call or run.judges is not guards


async def last_look(chat: Chat, run: CallRun) -> ToolFailure | None:
    """Ask each guard that has not just seen exactly this call; return the refusal."""
    call, guards = run.call, chat.view.tool_guards
    same = run.judged == call
    todo = [hook for hook in guards if hook not in run.judges] if same else guards
    try:
        end, asks = await ask_guards(chat, run, todo, call, again=not same)
    except Exception as exc:  # of a guard: a wrapper must not take it for an error of the tool
        chat.fail(exc)
        chat.interrupt()
        raise CancelledError("a guard raised") from exc
    chat.check()
    if end is None and asks and run.approved != call:
        end = _NOT_APPROVED
    if end is None:
        run.judges = guards
        return None
    if isinstance(end, Stop):
        run.stop = end
        run.refusal = NOT_RUN_AFTER_STOP
    elif isinstance(end, Deny):
        run.refusal = ToolFailure(end.reason, type="Denied")
    else:
        run.refusal = with_text(end).replace(type="Denied")
    return run.refusal
