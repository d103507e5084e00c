"""Laws of a dispatch, against models of ten lines: order, short-circuit, throw, dispose, add.

Every dispatch is made twice, so that the second sees what the first disposed and added.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from hookline import HookBus, Interceptor, Observer, Wrapper

SIZE = 5  # hooks at most; a hook may dispose any of them, itself too


class Boom(Exception):
    pass


class Plan(NamedTuple):
    """What a hook is going to do."""

    priority: int
    does: str
    disposes: frozenset[int]
    adds: bool
    is_async: bool


class Heard(Observer):
    text: str = ""


class Sum(Interceptor[int]):
    value: int = 0
    ends: ClassVar[tuple[type, ...]] = (str,)


class Job(Wrapper[tuple[int, ...]]):
    value: int = 0


def plans(*does: str) -> st.SearchStrategy[list[Plan]]:
    return st.lists(
        st.builds(
            Plan,
            priority=st.integers(-1, 1),
            does=st.sampled_from(does),
            disposes=st.frozensets(st.integers(0, SIZE - 1), max_size=2),
            adds=st.booleans(),
            is_async=st.booleans(),
        ),
        max_size=SIZE,
    )


class Model:
    """What stands: hooks by number, in order of registration."""

    def __init__(self, hooks: list[Plan]) -> None:
        self.hooks = dict(enumerate(hooks))
        self.dead: set[int] = set()
        self.trace: list[Any] = []

    def order(self) -> list[int]:
        standing = [number for number in self.hooks if number not in self.dead]
        return sorted(standing, key=lambda number: -self.hooks[number].priority)

    def begin(self, number: int) -> str:
        """The hook is called: what it writes, disposes and adds."""
        plan = self.hooks[number]
        self.trace.append(number)
        self.dead |= plan.disposes & self.hooks.keys()
        if plan.adds:
            self.hooks[len(self.hooks)] = Plan(1, "pass", frozenset(), False, False)
        return plan.does


class Real:
    """The same hooks on a bus."""

    def __init__(self, point: type, hooks: list[Plan], body: Callable[..., Any]) -> None:
        self.bus: HookBus[Any] = HookBus()
        self.trace: list[Any] = []
        self.disposers: list[Callable[[], None]] = []
        self._point = point
        self._body = body
        for plan in hooks:
            self.add(plan)

    def add(self, plan: Plan) -> None:
        number = len(self.disposers)
        on_error: Any = "log" if plan.does.startswith("log") else "raise"
        hook = self._body(self, number, plan)
        self.disposers.append(
            self.bus.add_hook(self._point, hook, priority=plan.priority, on_error=on_error)
        )

    def begin(self, number: int, plan: Plan) -> None:
        self.trace.append(number)
        for other in plan.disposes:
            if other < len(self.disposers):
                self.disposers[other]()
        if plan.adds:
            self.add(Plan(1, "pass", frozenset(), False, False))


def outcome(run: Callable[[], Any]) -> Any:
    """What it gave, or what it raised."""
    try:
        return run()
    except Boom as exc:
        return f"raised by {exc}"


def agree(model: Model, real: Real, expected: Callable[[], Any], fired: Callable[[], Any]) -> None:
    """Two dispatches of the bus come to what two of the model come to, in the same order."""
    for _ in range(2):
        wanted = outcome(expected)
        assert outcome(lambda: asyncio.run(fired())) == wanted
        assert real.trace == model.trace
    assert len(real.bus.hooks()) == len(model.order())


# ── notify ──────────────────────────────────────────────────────────────────────────────────


def observer(real: Real, number: int, plan: Plan) -> Any:
    def hook(ctx: Heard) -> Any:
        real.begin(number, plan)
        if plan.does in ("raise", "log"):
            raise Boom(number)
        return "ignored"

    async def later(ctx: Heard) -> Any:
        await asyncio.sleep(0)
        return hook(ctx)

    return later if plan.is_async else hook


@given(plans("pass", "raise", "log"))
@settings(max_examples=150)
def test_notify_calls_in_order_what_stands_until_one_throws(hooks: list[Plan]) -> None:
    model, real = Model(hooks), Real(Heard, hooks, observer)

    def expected() -> None:
        for number in model.order():
            if number not in model.dead and model.begin(number) == "raise":
                raise Boom(number)

    agree(model, real, expected, lambda: real.bus.notify(Heard()))


# ── intercept ───────────────────────────────────────────────────────────────────────────────


def interceptor(real: Real, number: int, plan: Plan) -> Any:
    def hook(ctx: Sum) -> Any:
        real.begin(number, plan)
        if plan.does in ("raise", "log"):
            raise Boom(number)
        if plan.does == "log wrong":
            return 1.5
        return {"change": ctx.value * 10 + number, "end": f"ended by {number}"}.get(plan.does)

    async def later(ctx: Sum) -> Any:
        await asyncio.sleep(0)
        return hook(ctx)

    return later if plan.is_async else hook


@given(plans("pass", "change", "change", "end", "raise", "log", "log wrong"))
@settings(max_examples=300)
def test_intercept_hands_on_each_value_until_one_ends_the_chain_or_throws(
    hooks: list[Plan],
) -> None:
    model, real = Model(hooks), Real(Sum, hooks, interceptor)

    def expected() -> Any:
        value = 0
        for number in model.order():
            does = "dead" if number in model.dead else model.begin(number)
            if does == "raise":
                raise Boom(number)
            if does == "end":
                return f"ended by {number}"
            if does == "change":
                value = value * 10 + number
        return value

    agree(model, real, expected, lambda: real.bus.intercept(Sum()))


# ── wrap ────────────────────────────────────────────────────────────────────────────────────


def wrapper(real: Real, number: int, plan: Plan) -> Any:
    async def hook(ctx: Job, proceed: Any) -> Any:
        real.begin(number, plan)
        if plan.is_async:
            await asyncio.sleep(0)
        if plan.does in ("raise", "log"):
            raise Boom(number)
        if plan.does == "end":
            return (number,)
        changed = plan.does == "change"
        result = await (proceed(ctx.value * 10 + number) if changed else proceed())
        if plan.does == "again":
            result = await proceed()
        if plan.does in ("raise after", "log after"):
            raise Boom(number)
        return (*result, number) if changed else result

    return hook


@given(
    plans("pass", "change", "end", "again", "raise", "log", "raise after", "log after"),
    st.booleans(),
)
@settings(max_examples=300)
def test_wrap_is_an_onion_of_what_stands(hooks: list[Plan], fails: bool) -> None:
    model, real = Model(hooks), Real(Job, hooks, wrapper)

    async def inner(value: int) -> tuple[int, ...]:
        real.trace.append(f"inner {value}")
        if fails:
            raise Boom("inner")
        return (value,)

    def layer(order: list[int], value: int) -> tuple[int, ...]:
        if not order:
            model.trace.append(f"inner {value}")
            if fails:
                raise Boom("inner")
            return (value,)
        number, *rest = order
        does = "dead" if number in model.dead else model.begin(number)
        if does == "raise":
            raise Boom(number)
        if does == "end":
            return (number,)
        if does == "change":
            return (*layer(rest, value * 10 + number), number)
        result = layer(rest, value)
        if does == "again":
            result = layer(rest, value)
        if does == "raise after":
            raise Boom(number)
        return result

    agree(model, real, lambda: layer(model.order(), 0), lambda: real.bus.wrap(Job(), inner))


# ── disposing between dispatches ────────────────────────────────────────────────────────────


@given(
    st.lists(st.tuples(st.integers(-2, 2), st.integers(0, 2)), max_size=8),
    st.lists(st.integers(0, 7), max_size=12),
)
@settings(max_examples=150)
def test_disposers_take_back_their_own_registration_whatever_is_registered_twice(
    added: list[tuple[int, int]], disposed: list[int]
) -> None:
    """Three functions registered any number of times; disposers called in any order, repeatedly."""
    bus: HookBus[Any] = HookBus()
    functions = [lambda ctx: None, lambda ctx: None, lambda ctx: None]
    disposers = [
        bus.add_hook(Heard, functions[which], priority=priority, name=str(number))
        for number, (priority, which) in enumerate(added)
    ]
    left = list(range(len(added)))
    for number in disposed:
        if number < len(disposers):
            disposers[number]()
            left = [each for each in left if each != number]
        listed = [info.name for info in bus.hooks()]
        assert listed == [str(each) for each in sorted(left, key=lambda each: -added[each][0])]
