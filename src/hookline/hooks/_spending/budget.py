"""`budget`: end a chat gracefully once it has used up its steps, tokens, seconds or money.

The budget is checked before each model call, and after each step that needs another one. The usage
of a sub-agent counts for its parent's budget too, so it may use at most what its parent has left.
Money that many chats share is counted in a ledger instead; see `accounts.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import partial
from time import monotonic
from typing import Any

from hookline import (
    MemoryStore,
    Run,
    Stop,
    Usage,
)
from hookline.errors import UsageError
from hookline.hooks._common import GUARD, LAST, Add, Hooks, Outcome, PerChat, RunTool, definer
from hookline.hooks._spending.accounts import By, Ledger, Period, Spending, check_shared, no_price
from hookline.hooks._spending.usage_meter import Meter
from hookline.models import PriceFunction, Prices, model_name, price_function
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
COST = "cost_limit"
WORDS = (
    ("steps_limit", "step limit reached: {:g}/{:g}"),
    ("tokens_limit", "token limit reached: {:.0f}/{:.0f}"),
    ("time_limit", "time limit reached: {:.0f}/{:g} s"),
    (COST, "cost limit reached: {:.4g}/{:g}"),
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
    by: By | None = None,
    per: Period | None = None,
    ledger: Ledger | None = None,
    say: bool | str = True,
    clock: Callable[[], float] = monotonic,
    inherit: bool = True,
    required: bool = True,
) -> Hooks:
    """End a chat gracefully when it reaches one of the given limits.

    By default, a step is a model call; `count` can count steps in another way. `cost` is the cost
    of the tokens. `price` is a dict of model names to `Rates`, or a function `(model, usage)` such
    as `genai_prices()`. With `by=`, `per=` or `ledger=`, many chats share the limit `cost`: `by`
    returns the account of a chat, such as its tenant, `per` is a period such as "month", and
    `ledger` keeps the totals. Without `ledger=`, the totals are kept in memory. With
    `finish_reasons`, the chat ends after an answer with one of these finish reasons. `say` is the
    text that the user gets at the end; True is the reason, such as "step limit reached: 10/10". If
    `cost` is set, a model without a price raises UsageError. If `price` is a dict, the error is
    raised before the model call. If `price` is a function, the error is raised after the answer, or
    before the call if the chats share the limit. Raises UsageError for a budget without a limit and
    for invalid limits.
    """
    is_shared = by is not None or per is not None or ledger is not None
    finish_reasons = as_tuple("finish_reasons", finish_reasons)
    _check((steps, tokens, seconds, cost), finish_reasons, price, count)
    check_shared(by, per, ledger)
    rate = None if price is None else price_function(price)
    add = definer(name="budget", inherit=inherit, required=required)
    hooks: Hooks = ()
    limits: Amounts = (steps, tokens, seconds, None if is_shared else cost)
    if any(limit is not None for limit in limits):
        mine = _PerChat(limits, count, price, rate, say, clock)
        hooks += mine.hooks(add)
    if is_shared:
        if cost is None or rate is None:
            raise UsageError(
                f"by=, per= and ledger= need a limit, and cost={cost!r}; pass cost= too"
            )
        stop = Stop(COST, "cost limit reached" if say is True else say or None)
        totals = ledger or MemoryStore()
        spending = Spending(limit=cost, price=rate, ledger=totals, by=by, per=per, stop=stop)
        hooks += (
            add("preRequest", spending.reserve, priority=LAST),
            add("aroundRequest", spending.call, priority=LAST),
            add("onResponse", spending.give_back_unused, priority=GUARD),
            add("onStatus", spending.summarized),
            add("onChatEnd", spending.give_back_unused),
        )
    if finish_reasons:
        hooks += (add("onStep", partial(_finished, finish_reasons), priority=-GUARD),)
    return hooks


class _PerChat:
    """The hooks that limit each chat by itself."""

    def __init__(
        self,
        limits: Amounts,
        count: Callable[[Run[Any]], int] | None,
        price: Prices | None,
        rate: PriceFunction | None,
        say: bool | str,
        clock: Callable[[], float],
    ) -> None:
        self._limits = limits
        self._count = count
        self._has_table = isinstance(price, Mapping)
        self._rate = rate
        self._say = say
        self.meters = PerChat(
            lambda run: Meter(run, clock, self.meters.find(run.parent_chat_id), rate)
        )

    def hooks(self, add: Add) -> Hooks:
        return (
            add("onChatStart", self.begin, priority=GUARD),
            add("preRequest", self.before, priority=GUARD),
            add("onResponse", self.response, priority=GUARD),
            add("onMessage", self.note, priority=GUARD),
            add("aroundToolCall", self.tool_call, priority=GUARD),
            add("onStep", self.after, priority=GUARD),
            add("onChatEnd", self.note),
            self.meters.forget(add),
        )

    def begin(self, ctx: OnChatStart[Any]) -> None:
        self.meters.of(ctx.run)

    def before(self, ctx: PreRequest[Any]) -> Stop | None:
        own = self.meters.of(ctx.run)
        stop = self._reached(own, ctx.iteration)
        if self._has_table:
            self._check_price(Usage(), model_name(ctx.request.model))
        if stop is None:
            own.note(ctx.iteration + 1)
        return stop

    def note(self, ctx: OnMessage[Any] | OnChatEnd[Any]) -> None:
        self.meters.of(ctx.run).note()  # the chat may stop to wait after a message

    def response(self, ctx: OnResponse[Any]) -> None:
        models = (ctx.response.model or "", model_name(ctx.request.model))
        if ctx.response.usage is not None:
            self._check_price(ctx.response.usage, *models)
        self.meters.of(ctx.run).note(None, *models)

    async def tool_call(self, ctx: AroundToolCall[Any], proceed: RunTool) -> Outcome:
        self.meters.of(ctx.run)  # for a sub-agent that the tool may call, also in a later process
        return await proceed()

    def after(self, ctx: OnStep[Any]) -> Stop | None:
        calls = ctx.response.tool_calls
        return self._reached(self.meters.of(ctx.run), ctx.iteration + 1) if calls else None

    def _check_price(self, usage: Usage, *models: str) -> None:
        cost, rate = self._limits[3], self._rate
        if cost is None or rate is None or any(rate(model, usage) is not None for model in models):
            return
        raise no_price(cost, models[-1])

    def _reached(self, own: Meter, steps: int) -> Stop | None:
        own.note()
        for meter in own.line():
            if meter is not own:
                meter.note()
                steps = meter.run.iteration + 1
            count = steps if self._count is None else self._count(meter.run)
            amounts = meter.amounts(count)
            for (reason, text), amount, limit in zip(WORDS, amounts, self._limits, strict=True):
                if limit is not None and amount >= limit:
                    text = text.format(amount, limit)
                    return Stop(reason, text if self._say is True else self._say or None)
        return None


def _finished(reasons: Collection[str], ctx: OnStep[Any]) -> Stop | None:
    """End a chat after an answer with one of these finish reasons."""
    return Stop("finish_reason") if ctx.response.finish_reason in reasons else None


def _check(limits: Amounts, finish_reasons: Collection[str], price: object, count: object) -> None:
    if all(limit is None for limit in limits) and not finish_reasons:
        raise UsageError(
            "budget() needs a limit: steps=, tokens=, seconds=, cost= or finish_reasons="
        )
    if any(limit is not None and not limit >= 0 for limit in limits):
        raise UsageError(f"budget(): the limits must not be below 0: {limits}")
    if limits[3] is not None and price is None:
        raise UsageError("cost= needs price=: a dict of Rates, genai_prices(), or a function")
    if count is not None and limits[0] is None:
        raise UsageError("count= needs steps=, the highest number of steps; pass both")
