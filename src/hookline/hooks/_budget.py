"""`budget`: end a chat gracefully once it has used up its steps, tokens, seconds or money.

The budget is checked before each model call, and after each step that needs another one. The usage
of a sub-agent counts for its parent's budget too, so it may use at most what its parent has left.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
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
from hookline.models import Prices, model_name, price_function
from hookline.points import (
    AroundToolCall,
    OnChatEnd,
    OnChatStart,
    OnMessage,
    OnResponse,
    OnStep,
    PreRequest,
    as_tuple,
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
    price: Prices | None = None,
    say: bool = True,
    clock: Callable[[], float] = monotonic,
    inherit: bool = True,
    required: bool = True,
) -> Hooks:
    """End a chat gracefully when it reaches one of the given limits.

    By default, a step is a model call; `count` can count steps in another way. `cost` is the cost
    of the tokens. `price` is a dict of model names to `Rates`, or a function `(model, usage)` such
    as `genai_prices()`. With `finish_reasons`, the chat ends after an answer with one of these
    finish reasons. With `say`, the user gets the reason as a message, such as "step limit reached:
    10/10". If `cost` is set, a model without a price raises UsageError. If `price` is a dict, the
    error is raised before the model call. If `price` is a function, the error is raised after the
    answer. Raises UsageError for a budget without a limit and for invalid limits.
    """
    wanted: Amounts = (steps, tokens, seconds, cost)
    finish_reasons = as_tuple("finish_reasons", finish_reasons)
    _check(wanted, finish_reasons, price, count)
    rate = None if price is None else price_function(price)

    def meter(run: Run[Any]) -> Meter:
        return Meter(run, clock, meters.find(run.parent_chat_id), rate)

    meters = PerChat(meter)

    def has_price(usage: Usage, *models: str) -> None:
        if cost is None or rate is None or any(rate(each, usage) is not None for each in models):
            return
        raise UsageError(
            f"budget(cost={cost:g}) has no price for model {models[-1]!r}, so the limit would "
            "never apply; add the model to price="
        )

    def reached(own: Meter, made: int) -> Stop | None:
        own.note()
        for meter in own.line():
            if meter is not own:
                meter.note()
                made = meter.run.iteration + 1
            counted = made if count is None else count(meter.run)
            used = meter.used(counted)
            for (reason, text), amount, limit in zip(WORDS, used, wanted, strict=True):
                if limit is not None and amount >= limit:
                    return Stop(reason, text.format(amount, limit) if say else None)
        return None

    def begin(ctx: OnChatStart[Any]) -> None:
        meters.of(ctx.run)

    def before(ctx: PreRequest[Any]) -> Stop | None:
        own = meters.of(ctx.run)
        stop = reached(own, ctx.iteration)
        if isinstance(price, Mapping):
            has_price(Usage(), model_name(ctx.request.model))
        if stop is None:
            own.note(ctx.iteration + 1)
        return stop

    def message(ctx: OnMessage[Any]) -> None:
        meters.of(ctx.run).note()  # the chat may stop to wait after this

    def answered(ctx: OnResponse[Any]) -> None:
        models = (ctx.response.model or "", model_name(ctx.request.model))
        if ctx.response.usage is not None:
            has_price(ctx.response.usage, *models)
        meters.of(ctx.run).note(None, *models)

    async def tool_call(
        ctx: AroundToolCall[Any], proceed: Proceed[ToolCall, ToolResult | ToolFailure]
    ) -> ToolResult | ToolFailure:
        meters.of(ctx.run)  # for a sub-agent that the tool may call, also in a later process
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
        add("onResponse", answered, priority=GUARD),
        add("onMessage", message, priority=GUARD),
        add("aroundToolCall", tool_call, priority=GUARD),
        add("onStep", after, priority=GUARD),
        add("onChatEnd", end),
        meters.forget("budget", inherit=inherit, required=required),
    )
    if finish_reasons:
        hooks += (add("onStep", finished, priority=-GUARD),)
    return hooks


def _check(wanted: Amounts, finish_reasons: Collection[str], price: object, count: object) -> None:
    if all(limit is None for limit in wanted) and not finish_reasons:
        raise UsageError(
            "budget() needs a limit: steps=, tokens=, seconds=, cost= or finish_reasons="
        )
    if any(limit is not None and not limit >= 0 for limit in wanted):
        raise UsageError(f"budget(): the limits must not be below 0: {wanted}")
    if wanted[3] is not None and price is None:
        raise UsageError("cost= needs price=: a dict of Rates, genai_prices(), or a function")
    if count is not None and wanted[0] is None:
        raise UsageError("count= needs steps=, the highest number of steps; pass both")
