"""The paths of a probe: chats in which the call would run at the end if no guard stopped it.

On most paths, no answer of a person lets the call run: it was asked for in another form, too late,
or twice. On the paths that set `is_approved`, a person or a hook allows the call, so only a guard
that refuses it must hold there.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from hookline import (
    Approve,
    ModelRequest,
    Stop,
    ToolCall,
    ToolResult,
    define_hook,
)
from hookline.errors import ApprovalError, HooklineError, UsageError
from hookline.models import ProviderTool
from hookline.points import AroundRequest, AroundToolCall, PreRequest, PreToolCall
from hookline.testing._guard_later import (
    after_a_handoff,
    answered_too_late,
    answered_twice,
    below,
    changed_by_an_answer,
    client_tool_removed,
    durable,
    handed_over_to,
    in_a_sub_agent,
    new_chat,
    stored_request_changed,
    withdrawn_before_a_replay,
    withdrawn_between_two_runs,
    withdrawn_in_a_store,
    withdrawn_while_a_durable_chat_waits,
    withdrawn_while_a_sub_agent_waits,
    withdrawn_while_an_approver_thinks,
    withdrawn_while_it_waits,
    without_the_hooks,
)
from hookline.testing._guard_path import (
    LAST,
    OURS,
    CallPath,
    Walk,
    changing,
)
from hookline.testing._turn import call as call_of

# ── a chat ──────────────────────────────────────────────────────────────────────────────────


async def _direct(path: CallPath) -> None:
    await path.chat(path.guarded())


async def _streamed(path: CallPath) -> None:
    stream = path.guarded().chat_stream("probe", approver=path.deny, deps=path.deps)
    async with stream:
        async for _ in stream:
            pass


async def _only_hooks(path: CallPath) -> None:
    await path.chat(path.guarded(), only_hooks=[])


async def _nobody_answers(path: CallPath) -> None:
    await path.chat(path.guarded(), approver=None)


async def _not_offered(path: CallPath) -> None:
    def withhold(ctx: PreRequest[Any]) -> ModelRequest:
        return ctx.request.replace(tools=())

    hook = define_hook("preRequest", withhold, name=OURS, priority=LAST)
    await path.chat(path.guarded(), hook, approver=path.approve)


async def _beside_a_stop(path: CallPath) -> None:
    def stop(ctx: PreToolCall[Any]) -> Stop | None:
        if path.has_refused and ctx.call.id != "first":
            return None
        path.has_refused = True  # no call of this step may begin now
        return Stop("only a probe")

    first = call_of(path.call.name, dict(path.harmless.arguments), call_id="first")
    hook = define_hook("preToolCall", stop, name=OURS, priority=LAST)
    await path.chat(path.guarded([first, path.turn()]), hook, approver=path.approve)


# ── a call that is changed ──────────────────────────────────────────────────────────────────


async def _changed_by_a_hook(path: CallPath) -> None:
    def change(ctx: PreToolCall[Any]) -> ToolCall:
        return ctx.call.replace(arguments=path.call.arguments)

    hook = define_hook("preToolCall", change, name=OURS, priority=LAST)
    await path.chat(path.guarded(path.turn(path.harmless)), hook)


async def _changed_by_a_wrapper(path: CallPath) -> None:
    await path.chat(path.guarded(path.turn(path.harmless)), changing(path.call.arguments))


async def _run_again_changed(path: CallPath) -> None:
    async def run(ctx: AroundToolCall[Any], proceed: Any) -> Any:
        await proceed()
        return await proceed(ctx.call.replace(arguments=path.call.arguments))

    hook = define_hook("aroundToolCall", run, name=OURS, priority=LAST)
    await path.chat(path.guarded(path.turn(path.harmless)), hook)


async def _changed_by_an_approver(path: CallPath) -> None:
    path.is_approved = True
    agent = path.guarded(path.turn(path.harmless))
    await path.chat(agent, path.question(), approver=path.edit)


async def _answered_by_a_hook(path: CallPath) -> None:
    path.is_approved = True

    def answer(ctx: PreToolCall[Any]) -> ToolResult | None:
        if not path.is_meant(ctx.call.name, ctx.call.arguments):
            return None
        path.ran = True  # it has passed the guards, which run before this hook
        return ToolResult("only a probe")

    hook = define_hook("preToolCall", answer, name=OURS, priority=LAST)
    await path.chat(path.guarded(), hook)


# ── a call that was approved ────────────────────────────────────────────────────────────────


async def _changed_after_the_approval(path: CallPath) -> None:
    path.must_differ()
    agent, other = path.guarded(), path.harmless
    path.call = other  # which nobody has approved
    with path.refusing(HooklineError):
        await path.chat(agent, changing(other.arguments), approver=path.approve)


async def _run_twice(path: CallPath) -> None:
    async def run(ctx: AroundToolCall[Any], proceed: Any) -> Any:
        await proceed()
        return await proceed()

    agent = path.guarded(scopes=path.scopes(idempotent=False))
    hook = define_hook("aroundToolCall", run, name=OURS, priority=LAST)
    with path.refusing(HooklineError):
        await path.chat(agent, hook, approver=path.approve)
    path.count()


async def _tool_replaced(path: CallPath) -> None:
    agent = path.guarded()

    async def replace(request: Any, run: Any) -> Approve:
        for scope in path.scopes():
            agent.scopes.unregister(scope.label)
            agent.scopes.register(scope)
        return Approve()

    await path.chat(agent, approver=replace)


async def _request_changed(path: CallPath) -> None:
    path.must_differ()

    async def change(request: Any, run: Any) -> Approve:
        arguments: dict[str, Any] = request.call.arguments
        dict.update(arguments, path.call.arguments)  # pyright: ignore[reportUnknownMemberType]
        return Approve()

    with path.refusing(ApprovalError):
        await path.chat(path.guarded(path.turn(path.harmless)), path.question(), approver=change)


async def _approved_too_late(path: CallPath) -> None:
    async def approve(request: Any, run: Any) -> Approve:
        await asyncio.Event().wait()
        return Approve()

    await path.chat(path.guarded(), path.question(expires=0.001), approver=approve)


# ── tools of the provider ───────────────────────────────────────────────────────────────────


async def _by_the_provider(path: CallPath) -> None:
    """The provider runs the tool as soon as a request offers it."""

    async def look(ctx: AroundRequest[Any], proceed: Any) -> Any:
        tools = [tool for tool in ctx.request.tools if isinstance(tool, ProviderTool)]
        path.ran = path.ran or any(tool.name == path.call.name for tool in tools)
        return await proceed()

    hook = define_hook("aroundRequest", look, name=OURS, priority=LAST)
    with path.refusing(UsageError):
        await path.chat(path.guarded("done"), hook)
    path.has_refused = not path.ran


PROVIDER_PATHS: Final[dict[str, Walk]] = {"run by the provider": _by_the_provider}
"""The paths to a tool that the provider runs."""


# ── which paths there are ───────────────────────────────────────────────────────────────────


PATHS: Final[dict[str, Walk]] = {
    "chat": _direct,
    "chat_stream": _streamed,
    "only_hooks=[]": _only_hooks,
    "nobody can answer": _nobody_answers,
    "not offered to the model": _not_offered,
    "beside a call that stops the chat": _beside_a_stop,
    "changed by a later hook": _changed_by_a_hook,
    "changed by a wrapper": _changed_by_a_wrapper,
    "run again by a wrapper": _run_again_changed,
    "changed after the approval": _changed_after_the_approval,
    "run twice after one approval": _run_twice,
    "tool replaced before the approval": _tool_replaced,
    "request changed by the approver": _request_changed,
    "approved too late": _approved_too_late,
    "resumed too late": answered_too_late,
    "resumed twice": answered_twice,
    "resumed without the hooks of the chat": without_the_hooks,
    "resumed with a changed request": stored_request_changed,
    "resumed after a client's tool was removed": client_tool_removed,
    "a new chat instead of an answer": new_chat,
    "in a sub-agent": in_a_sub_agent,
    "in a sub-agent of the agent": below(1),
    "three sub-agents below the agent": below(3),
    "after a handoff": after_a_handoff,
    "after a handoff to the agent": handed_over_to,
    "durable chat": durable,
    "changed by an approver": _changed_by_an_approver,
    "changed by an answer of resume": changed_by_an_answer,
    "answered by a later hook": _answered_by_a_hook,
    "withdrawn while an approver thinks": withdrawn_while_an_approver_thinks,
    "withdrawn between two runs": withdrawn_between_two_runs,
    "withdrawn while the call waits": withdrawn_while_it_waits,
    "withdrawn while the call waits in a store": withdrawn_in_a_store,
    "withdrawn while a sub-agent waits": withdrawn_while_a_sub_agent_waits,
    "withdrawn while a durable chat waits": withdrawn_while_a_durable_chat_waits,
    "withdrawn before a durable chat is replayed": withdrawn_before_a_replay,
}
