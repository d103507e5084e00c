"""`limits`: a chat ends gracefully once it has used up its steps, tokens, seconds or money.

It is looked at before each model call, and after a step that asks for one more. What a sub-agent
spends is spent of its parent's budget too, so that it may use at most what its parent has left.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial
from time import monotonic
from typing import Any

from hookline import HookDef, Run, Stop, Usage, define_hook
from hookline.errors import UsageError
from hookline.hooks._common import GUARD, Hooks, PerChat
from hookline.hooks._meter import Meter
from hookline.points import OnChatEnd, OnChatStart, OnStep, PreRequest

Amounts = tuple[float | None, float | None, float | None, float | None]
WORDS = (
    ("steps_limit", "step limit reached: {:g}/{:g}"),
    ("tokens_limit", "token limit reached: {:.0f}/{:.0f}"),
    ("time_limit", "time limit reached: {:.0f}/{:g} s"),
    ("cost_limit", "cost limit reached: {:.4g}/{:g}"),
)


def limits(
    steps: int | None = 20,
    tokens: int | None = 32_768,
    seconds: float | None = 300.0,
    cost: float | None = None,
    finish_reasons: Collection[str] = (),
    *,
    count: Callable[[Run[Any]], int] | None = None,
    price: Callable[[Usage], float] | None = None,
    say: bool = True,
    clock: Callable[[], float] = monotonic,
    inherit: bool = True,
    required: bool = True,
) -> Hooks:
    """End a chat gracefully at a limit; None switches one off, and N steps are N model calls.

    `finish_reasons`: end after an answer that finished so. `count`: counts the steps instead.
    `cost` is what `price(usage)` comes to. `say`: the reason is also said to the user, such as
    "step limit reached: 10/10". Raises UsageError for limits that cannot hold.
    """
    wanted: Amounts = (steps, tokens, seconds, cost)
    if any(limit is not None and limit < 0 for limit in wanted):
        raise UsageError(f"a limit must not be below 0: {wanted}")
    if cost is not None and price is None:
        raise UsageError("cost= needs price=, a function of the usage that gives its cost")

    def meter(run: Run[Any]) -> Meter:
        return Meter(run, clock(), meters.find(run.parent_chat_id))

    meters = PerChat(meter)

    def reached(own: Meter, made: int) -> Stop | None:
        for meter in own.line():
            meter.spend(price)
        for meter in own.line():
            if count is not None:
                made = count(meter.run)
            elif meter is not own:
                made = meter.run.iteration + 1
            used = (made + meter.steps_below, meter.tokens, clock() - meter.start, meter.cost)
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
            for meter in own.line():
                meter.steps_below += meter is not own
        return stop

    def after(ctx: OnStep[Any]) -> Stop | None:
        return reached(meters.of(ctx.run), ctx.iteration + 1) if ctx.response.tool_calls else None

    def end(ctx: OnChatEnd[Any]) -> None:
        meters.of(ctx.run).spend(price)

    def finished(ctx: OnStep[Any]) -> Stop | None:
        return Stop("finish_reason") if ctx.response.finish_reason in finish_reasons else None

    add: Callable[..., HookDef] = partial(
        define_hook, name="limits", inherit=inherit, required=required
    )
    hooks: Hooks = (
        add("onChatStart", begin, priority=GUARD),
        add("preRequest", before, priority=GUARD),
        add("onStep", after, priority=GUARD),
        add("onChatEnd", end),
        meters.forget("limits", inherit=inherit, required=required),
    )
    return (*hooks, add("onStep", finished, priority=-GUARD)) if finish_reasons else hooks
