"""Paths of a probe in one chat of one agent, and to a tool that the provider runs."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from hookline import Approve, ModelRequest, Stop, ToolCall, ToolResult
from hookline.errors import ApprovalError, HooklineError, UsageError
from hookline.models import ProviderTool
from hookline.points import AroundRequest, AroundToolCall, PreRequest, PreToolCall
from hookline.testing._events import collect
from hookline.testing._guards.call_path import CallPath, Walk, changing, last_hook
from hookline.testing._turn import call as call_of

# ── a chat ──────────────────────────────────────────────────────────────────────────────────


async def direct(path: CallPath) -> None:
    await path.chat(path.guarded())


async def streamed(path: CallPath) -> None:
    stream = path.guarded().chat_stream("probe", approver=path.deny, deps=path.deps)
    await collect(stream)


async def only_hooks(path: CallPath) -> None:
    await path.chat(path.guarded(), only_hooks=[])


async def nobody_answers(path: CallPath) -> None:
    await path.chat(path.guarded(), approver=None)


async def not_offered(path: CallPath) -> None:
    def withhold(ctx: PreRequest[Any]) -> ModelRequest:
        return ctx.request.replace(tools=())

    hook = last_hook("preRequest", withhold)
    await path.chat(path.guarded(), hook, approver=path.approve)


async def beside_a_stop(path: CallPath) -> None:
    def stop(ctx: PreToolCall[Any]) -> Stop | None:
        if path.has_refused and ctx.call.id != "first":
            return None
        path.has_refused = True  # no call of this step may begin now
        return Stop("only a probe")

    first = call_of(path.call.name, dict(path.harmless.arguments), call_id="first")
    hook = last_hook("preToolCall", stop)
    await path.chat(path.guarded([first, path.turn()]), hook, approver=path.approve)


# ── a call that is changed ──────────────────────────────────────────────────────────────────


async def changed_by_a_hook(path: CallPath) -> None:
    def change(ctx: PreToolCall[Any]) -> ToolCall:
        return ctx.call.replace(arguments=path.call.arguments)

    agent = path.guarded(path.turn(path.harmless))
    await path.chat(agent, last_hook("preToolCall", change))


async def changed_by_a_wrapper(path: CallPath) -> None:
    await path.chat(path.guarded(path.turn(path.harmless)), changing(path.call.arguments))


async def run_again_changed(path: CallPath) -> None:
    async def run(ctx: AroundToolCall[Any], proceed: Any) -> Any:
        await proceed()
        return await proceed(ctx.call.replace(arguments=path.call.arguments))

    agent = path.guarded(path.turn(path.harmless))
    await path.chat(agent, last_hook("aroundToolCall", run))


async def changed_by_an_approver(path: CallPath) -> None:
    path.is_approved = True
    agent = path.guarded(path.turn(path.harmless))
    await path.chat(agent, path.question(), approver=path.edit)


async def answered_by_a_hook(path: CallPath) -> None:
    path.is_approved = True

    def answer(ctx: PreToolCall[Any]) -> ToolResult | None:
        if not path.is_meant(ctx.call.name, ctx.call.arguments):
            return None
        path.ran = True  # it has passed the guards, which run before this hook
        return ToolResult("only a probe")

    await path.chat(path.guarded(), last_hook("preToolCall", answer))


# ── a call that was approved ────────────────────────────────────────────────────────────────


async def changed_after_the_approval(path: CallPath) -> None:
    path.must_differ()
    agent, other = path.guarded(), path.harmless
    path.call = other  # which nobody has approved
    with path.refusing(HooklineError):
        await path.chat(agent, changing(other.arguments), approver=path.approve)


async def run_twice(path: CallPath) -> None:
    async def run(ctx: AroundToolCall[Any], proceed: Any) -> Any:
        await proceed()
        return await proceed()

    agent = path.guarded(scopes=path.scopes(idempotent=False))
    with path.refusing(HooklineError):
        await path.chat(agent, last_hook("aroundToolCall", run), approver=path.approve)
    path.count()


async def tool_replaced(path: CallPath) -> None:
    agent = path.guarded()

    async def replace(request: Any, run: Any) -> Approve:
        for scope in path.scopes():
            agent.scopes.unregister(scope.label)
            agent.scopes.register(scope)
        return Approve()

    await path.chat(agent, approver=replace)


async def request_changed(path: CallPath) -> None:
    path.must_differ()

    async def change(request: Any, run: Any) -> Approve:
        arguments: dict[str, Any] = request.call.arguments
        dict.update(arguments, path.call.arguments)  # pyright: ignore[reportUnknownMemberType]
        return Approve()

    with path.refusing(ApprovalError):
        await path.chat(path.guarded(path.turn(path.harmless)), path.question(), approver=change)


async def approved_too_late(path: CallPath) -> None:
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

    with path.refusing(UsageError):
        await path.chat(path.guarded("done"), last_hook("aroundRequest", look))
    path.has_refused = not path.ran


PROVIDER_PATHS: Final[dict[str, Walk]] = {"run by the provider": _by_the_provider}
"""The paths to a tool that the provider runs."""
