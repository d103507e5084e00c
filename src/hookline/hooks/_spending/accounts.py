"""Money that many chats share: the account of a tenant, a user or a program in a ledger.

Each model call reserves an estimate of its cost before it begins, and settles its real cost when it
has ended. An account is therefore overdrawn by at most the calls that run at the same time, and a
process that is killed has still reserved its call. The reservation is JSON in `run.state`, so a
durable chat that goes on elsewhere settles its own reservation. If two agents of a handoff have the
same budget, the first hook counts the call, and the others see that it is counted.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, Literal, Protocol, TypeAlias, cast, runtime_checkable

import msgspec

from hookline import ModelRequest, ModelResponse, Run, Stop, Usage
from hookline.errors import UsageError
from hookline.hooks._common import CallModel
from hookline.hooks._context.window import rough_tokens
from hookline.models import PriceFunction, model_name
from hookline.points import AroundRequest, OnChatEnd, OnResponse, OnStatus, PreRequest

Period: TypeAlias = Literal["hour", "day", "month", "year"] | Callable[[], str]
"""A period of UTC time, or a function that returns the name of the current period."""
By: TypeAlias = Callable[[Run[Any]], str]
"""A function that returns the name of the account to which a chat belongs."""

_FORMATS: Final = {"hour": "%Y-%m-%dT%H", "day": "%Y-%m-%d", "month": "%Y-%m", "year": "%Y"}
_KEY: Final = "hookline.spending"
_SUMMARIES: Final = "hookline.summaries"
_ANSWER: Final = 1_000  # tokens of an answer, for the estimate, without `Settings.max_tokens`


@runtime_checkable
class Ledger(Protocol):
    """Keeps the totals of accounts. `MemoryStore` and `SQLStore` are ledgers."""

    async def spend(
        self, account: str, amount: float, *, limit: float | None = None
    ) -> float | None:
        """Add the amount to the account, and return the new total.

        If the total has reached `limit`, return None and change nothing. Both are one atomic
        operation. A negative amount gives money back.
        """
        ...


class _Reservation(msgspec.Struct):
    """What a chat has reserved for its current model call."""

    account: str
    amount: float
    phase: Literal["open", "running", "settled"] = "open"


@dataclass(frozen=True, eq=False, kw_only=True)
class Spending:
    """The hooks of a budget that many chats share."""

    limit: float
    price: PriceFunction
    ledger: Ledger
    by: By | None
    per: Period | None
    stop: Stop

    async def reserve(self, ctx: PreRequest[Any]) -> Stop | None:
        """Reserve the estimate of a model call, or stop the chat."""
        owner = self._owner(ctx.run)
        last = self._read(ctx.run, owner)
        if last is not None and last.phase == "open":
            return None  # reserved by a hook of another agent
        account, amount = self._account(owner), self._estimate(ctx.request)
        if await self.ledger.spend(account, amount, limit=self.limit) is None:
            return self.stop
        self._write(ctx.run, owner, _Reservation(account, amount))
        return None

    async def call(self, ctx: AroundRequest[Any], proceed: CallModel) -> ModelResponse:
        """Settle the cost of a model call; a call that is repeated reserves again."""
        run, owner = ctx.run, self._owner(ctx.run)
        mine = self._read(run, owner)
        if mine is None or mine.phase == "running":
            return await proceed()
        if mine.phase == "settled" or run.attempt > 1:
            mine.amount = self._estimate(ctx.request)
            await self.ledger.spend(mine.account, mine.amount)
        mine.phase = "running"
        self._write(run, owner, mine)
        try:
            response = await proceed()
        except Exception:
            # Providers do not charge for a request that they refuse. If the answer had begun, its
            # cost is unknown, and the estimate stays; so does that of an aborted call.
            if run.timing is None or run.timing.chunks == 0:
                await self.ledger.spend(mine.account, -mine.amount)
            self._settle(run, owner, mine)
            raise
        if response.usage is not None:
            models = (response.model or "", model_name(ctx.request.model))
            cost = self._cost(response.usage, *models)
            await self.ledger.spend(mine.account, cost - mine.amount)
        self._settle(run, owner, mine)
        return response

    async def give_back_unused(self, ctx: OnResponse[Any] | OnChatEnd[Any]) -> None:
        """Give back the reservation of a call that never began, or of an answer by a hook."""
        owner = self._owner(ctx.run)
        mine = self._read(ctx.run, owner)
        if mine is not None and mine.phase == "open":
            self._settle(ctx.run, owner, mine)
            await self.ledger.spend(mine.account, -mine.amount)

    async def summarized(self, ctx: OnStatus[Any]) -> None:
        """Add the cost of a model call that `summarize` has made."""
        if ctx.type != "summarized" or ctx.call is not None:
            return
        run, owner = ctx.run, self._owner(ctx.run)
        name, tokens = self._name(owner), run.usage.total_tokens  # more with each summary
        counted = run.state.get(_SUMMARIES, {})
        if counted.get(name) == tokens:
            return  # counted by a hook of another agent
        run.state[_SUMMARIES] = {**counted, name: tokens}
        usage = msgspec.convert(ctx.data["usage"], Usage)
        await self.ledger.spend(self._account(owner), self._cost(usage, ctx.data["model"]))

    # ── amounts ─────────────────────────────────────────────────────────────────────────────

    def _estimate(self, request: ModelRequest) -> float:
        tokens = sum(map(rough_tokens, request.messages)) + len(request.system or "") // 4
        answer = request.settings.max_tokens or _ANSWER
        usage = Usage(input_tokens=tokens, output_tokens=answer)
        return self._cost(usage, model_name(request.model))

    def _cost(self, usage: Usage, *models: str) -> float:
        """The cost by the first of these names that has a price."""
        costs = (self.price(model, usage) for model in models)
        cost = next((cost for cost in costs if cost is not None), None)
        if cost is None:
            raise no_price(self.limit, models[-1])
        return cost

    # ── accounts ────────────────────────────────────────────────────────────────────────────

    def _owner(self, run: Run[Any]) -> str:
        owner: Any = "" if self.by is None else self.by(run)
        if not isinstance(owner, str) or len(owner) > 200 or (self.by and not owner):
            raise UsageError(
                f"budget(by=) returned {owner!r}; return the name of an account, a str of 1 to 200 "
                "characters"
            )
        return owner

    def _account(self, owner: str) -> str:
        return f"{self._period()} {owner}".strip()

    def _period(self) -> str:
        if self.per is None or callable(self.per):
            return "" if self.per is None else self.per()
        return datetime.now(UTC).strftime(_FORMATS[self.per])

    # ── reservations ────────────────────────────────────────────────────────────────────────

    def _name(self, owner: str) -> str:
        return f"{self.per if isinstance(self.per, str) else ''} {owner}"

    def _read(self, run: Run[Any], owner: str) -> _Reservation | None:
        entry = cast("dict[str, Any]", run.state.get(_KEY, {})).get(self._name(owner))
        return None if entry is None else msgspec.convert(entry, _Reservation)

    def _write(self, run: Run[Any], owner: str, mine: _Reservation) -> None:
        entry = {self._name(owner): msgspec.to_builtins(mine)}
        run.state[_KEY] = {**run.state.get(_KEY, {}), **entry}

    def _settle(self, run: Run[Any], owner: str, mine: _Reservation) -> None:
        mine.phase = "settled"
        self._write(run, owner, mine)


def no_price(limit: float, model: str) -> UsageError:
    """The error for a model whose calls would never reach the limit."""
    return UsageError(
        f"budget(cost={limit:g}) has no price for model {model!r}, so the limit would never apply; "
        "add the model to price="
    )


def check_shared(by: object, per: object, ledger: object) -> None:
    """Raise UsageError for arguments that cannot work."""
    if per is not None and not callable(per) and per not in _FORMATS:
        raise UsageError(
            f"per={per!r} must be one of {', '.join(map(repr, _FORMATS))}, or a function"
        )
    if by is not None and not callable(by):
        raise UsageError(f"by={by!r} must be a function that takes the run and returns a name")
    if ledger is not None and not isinstance(ledger, Ledger):
        raise UsageError(
            f"ledger={ledger!r} must have a method `spend`; pass a MemoryStore, a SQLStore or your "
            "own Ledger"
        )
