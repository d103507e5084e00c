"""`budget`: a chat ends gracefully once it has used up its steps, tokens, seconds or money.

It is looked at before each model call, and after a step that asks for one more. What a sub-agent
spends is spent of its parent's budget too, so that it may use at most what its parent has left.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial
from time import monotonic
from typing import Any

from hookline import (
    HookDef,
    Proceed,
    Run,
    Stop,
    ToolCall,
    ToolFailure,
    ToolResult,
    Usage,
    define_hook,
)
from hookline.errors import UsageError
from hookline.hooks._common import GUARD, Hooks, PerChat
from hookline.hooks._meter import Meter
from hookline.points import (
    AroundToolCall,
    OnChatEnd,
    OnChatStart,
    OnMessage,
    OnStep,
    PreRequest,
)

Amounts = tuple[float | None, float | None, float | None, float | None]
WORDS = (
    ("steps_limit", "step limit reached: {:g}/{:g}"),
    ("tokens_limit", "token limit reached: {:.0f}/{:.0f}"),
    ("time_limit", "time limit reached: {:.0f}/{:g} s"),
    ("cost_limit", "cost limit reached: {:.4g}/{:g}"),
)


def budget(
    *,
    steps: int | None = None,
    tokens: int | None = None,
    seconds: float | None = None,
    cost: float | None = None,
    finish_reasons: Collection[str] = (),
    count: Callable[[Run[Any]], int] | None = None,
    price: Callable[[Usage], float] | None = None,
    say: bool = True,
    clock: Callable[[], float] = monotonic,
    inherit: bool = True,
    required: bool = True,
) -> Hooks:
    """End a chat gracefully at a limit; only the limits that are named hold.

    N `steps` are N model calls. `finish_reasons`: end after an answer that finished so. `count`:
    counts the steps instead. `cost` is what `price(usage)` comes to. `say`: the reason is also said
    to the user, such as "step limit reached: 10/10". Raises UsageError for a budget without a limit
    and for limits that cannot hold.
    """
    wanted: Amounts = (steps, tokens, seconds, cost)
    if all(limit is None for limit in wanted) and not finish_reasons:
        raise UsageError(
            "budget() needs a limit: steps=, tokens=, seconds=, cost= or finish_reasons="
        )
    if any(limit is not None and not limit >= 0 for limit in wanted):
        raise UsageError(f"budget(): a limit must not be below 0: {wanted}")
    if cost is not None and price is None:
        raise UsageError("cost= needs price=, a function of the usage that gives its cost")
    if count is not None and steps is None:
        raise UsageError("count= needs steps=, the most that it may count")

    def meter(run: Run[Any]) -> Meter:
        return Meter(run, clock, meters.find(run.parent_chat_id))

    meters = PerChat(meter)

    def reached(own: Meter, made: int) -> Stop | None:
        own.note()
        for meter in own.line():
            if meter is not own:
                meter.note()
                made = meter.run.iteration + 1
            counted = made if count is None else count(meter.run)
            used = meter.used(counted, price)
            for (reason, text), amount, limit in zip(WORDS, used, wanted, strict=True):
                if limit is not None and amount >= limit:
                    return Stop(reason, text.format(amount, limit) if say else None)
        return None

    def begin(ctx: OnChatStart[Any]) -> None:
        meters.of(ctx.run)

    def before(ctx: PreRequest[Any]) -> Stop | None:
        own = meters.of(ctx.run)
        stop = reached(own, ctx.iteration)
        if stop is None:
            own.note(ctx.iteration + 1)
        return stop

    def message(ctx: OnMessage[Any]) -> None:
        meters.of(ctx.run).note()  # it may be the last moment before the chat waits

    async def tool_call(
        ctx: AroundToolCall[Any], proceed: Proceed[ToolCall, ToolResult | ToolFailure]
    ) -> ToolResult | ToolFailure:
        meters.of(ctx.run)  # of a sub-agent that the tool may ask, also in a later process
        return await proceed()

    def after(ctx: OnStep[Any]) -> Stop | None:
        calls = ctx.response.tool_calls
        return reached(meters.of(ctx.run), ctx.iteration + 1) if calls else None

    def end(ctx: OnChatEnd[Any]) -> None:
        meters.of(ctx.run).note()

    def finished(ctx: OnStep[Any]) -> Stop | None:
        return Stop("finish_reason") if ctx.response.finish_reason in finish_reasons else None

    add: Callable[..., HookDef] = partial(
        define_hook, name="budget", inherit=inherit, required=required
    )
    hooks: Hooks = (
        add("onChatStart", begin, priority=GUARD),
        add("preRequest", before, priority=GUARD),
        add("onMessage", message, priority=GUARD),
        add("aroundToolCall", tool_call, priority=GUARD),
        add("onStep", after, priority=GUARD),
        add("onChatEnd", end),
        meters.forget("budget", inherit=inherit, required=required),
    )
    if finish_reasons:
        hooks += (add("onStep", finished, priority=-GUARD),)
    return hooks
