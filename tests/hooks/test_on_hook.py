"""`onHook`: what it is told of each hook that ran, and that it disturbs none."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any, get_args

import pytest
from tests import _every_point as t1

from hookline import (
    Agent,
    Ask,
    Continue,
    Deny,
    HookBus,
    Interceptor,
    ModelRequest,
    ModelResponse,
    Observer,
    Scope,
    Stop,
    ToolFailure,
    ToolResult,
    Wrapper,
    define_hook,
    tool,
)
from hookline._hooks.points import HookOutcome
from hookline.errors import ToolDenied
from hookline.models import TextChunk
from hookline.points import TABLE, AroundRequest, OnHook, PreRequest
from hookline.testing import ScriptedModel, call

OTHERS = [name for name in TABLE if name != "onHook"]


class Said(Observer):
    text: str = ""


class Word(Interceptor[str]):
    word: str = ""


class Work(Wrapper[str]):
    job: str = ""


class Boom(Exception):
    pass


def watched(agent: Any, hook: str = "watched") -> list[Any]:
    """What onHook is told of the hooks of that name."""
    out: list[Any] = []
    agent.add_hook("onHook", lambda ctx: out.append(ctx) if ctx.hook == hook else None)
    return out


@pytest.mark.parametrize(
    "point",
    OTHERS,
)
async def test_it_fires_after_each_hook_of_every_other_point(point: str) -> None:
    calls: list[Any] = []
    agent = t1.agent_for(point)
    out = watched(agent)
    agent.add_hook(point, t1.observing(calls, TABLE[point].kind), name="watched")
    try:
        await t1.play(point, agent)
    except Exception:
        assert point in ("onChatAbort", "onChatError")
    assert calls
    assert [(ctx.point, ctx.outcome) for ctx in out] == [(point, "ok")] * len(calls)


async def test_it_tells_point_hook_outcome_duration_and_the_run() -> None:
    agent: Any = Agent(ScriptedModel("Hello."), name="greeter")
    out = watched(agent)
    agent.add_hook("onChatStart", lambda ctx: None, name="watched")
    response = await agent.chat("hi")
    (ctx,) = out
    assert isinstance(ctx, OnHook)
    assert (ctx.point, ctx.hook, ctx.outcome) == ("onChatStart", "watched", "ok")
    assert isinstance(ctx.duration, float)
    assert 0 <= ctx.duration < 60
    assert (ctx.run.chat_id, ctx.run.agent) == (response.chat_id, "greeter")


async def test_it_never_fires_for_itself() -> None:
    out: list[tuple[str, str]] = []
    agent: Any = Agent(ScriptedModel("Hello."))
    agent.add_hook("onHook", lambda ctx: out.append(("one", ctx.point)))
    agent.add_hook("onHook", lambda ctx: out.append(("two", ctx.point)))
    agent.add_hook("onChatEnd", lambda ctx: None)
    await agent.chat("hi")
    assert out == [("one", "onChatEnd"), ("two", "onChatEnd")]


async def test_one_that_an_earlier_one_disposes_is_told_no_more() -> None:
    out: list[str] = []
    disposers: list[Any] = []
    agent: Any = Agent(ScriptedModel("Hello."))
    agent.add_hook("onHook", lambda ctx: disposers[0](), priority=1)
    disposers.append(agent.add_hook("onHook", lambda ctx: out.append("disposed")))
    agent.add_hook("onHook", lambda ctx: out.append("last"))
    agent.add_hook("onChatEnd", lambda ctx: None)
    await agent.chat("hi")
    assert out == ["last"]


async def test_with_no_other_hook_it_is_silent() -> None:
    out: list[Any] = []
    agent: Any = Agent(ScriptedModel("Hello."), hooks={"onHook": out.append})
    await agent.chat("hi")
    assert out == []


async def test_it_comes_after_its_hook_and_before_the_next() -> None:
    out: list[str] = []
    bus: HookBus[Any] = HookBus()
    bus.add_hook(Said, lambda ctx: out.append("a"), name="a")
    bus.add_hook(Said, lambda ctx: out.append("b"), name="b")

    async def observer(ctx: Any) -> None:
        await asyncio.sleep(0)
        out.append(f"told of {ctx.hook}")

    bus.add_hook("onHook", observer)
    await bus.notify(Said())
    assert out == ["a", "told of a", "b", "told of b"]


async def test_of_wrappers_the_inner_one_is_told_first() -> None:
    out: list[str] = []
    bus: HookBus[Any] = HookBus()

    async def wrapper(ctx: Any, proceed: Any) -> Any:
        return await proceed()

    async def inner(job: str) -> str:
        return job

    bus.add_hook(Work, wrapper, name="outer")
    bus.add_hook(Work, wrapper, name="inner")
    bus.add_hook("onHook", lambda ctx: out.append(ctx.hook))
    await bus.wrap(Work("job"), inner)
    assert out == ["inner", "outer"]


# ── outcomes ────────────────────────────────────────────────────────────────────────────────


async def _raises(ctx: Any, proceed: Any = None) -> Any:
    raise Boom


async def _hangs(ctx: Any, proceed: Any = None) -> Any:
    await asyncio.Event().wait()


async def _denies(ctx: Any) -> None:
    raise ToolDenied("no")


async def _passes(ctx: Any, proceed: Any) -> Any:
    return await proceed()


async def _proceeds_with_another(ctx: Any, proceed: Any) -> Any:
    return await proceed(ctx.request.replace(system="another"))


async def _changes_the_response(ctx: Any, proceed: Any) -> Any:
    return (await proceed()).replace(text="changed")


async def _answers(ctx: Any, proceed: Any) -> Any:
    return ModelResponse.of("answered")


def _is(value: Any) -> Any:
    return lambda ctx: value


OUTCOMES: dict[str, tuple[str, Any, dict[str, Any], str]] = {
    "observer": ("onMessage", _is(None), {}, "ok"),
    "observer that returns something": ("onMessage", _is(Stop("x")), {}, "ok"),
    "interceptor that returns None": ("preChat", _is(None), {}, "ok"),
    "a changed request": ("preChat", lambda ctx: ctx.request.replace(system="x"), {}, "changed"),
    "a changed delta": ("onDelta", _is(TextChunk("x")), {"text": True}, "changed"),
    "a dropped delta": ("onDelta", _is(()), {"text": True}, "changed"),
    "a message that it may not be": (
        "preMessage",
        lambda ctx: ctx.message.replace(id="x"),
        {},
        "raised",
    ),
    "a ModelResponse": ("preRequest", _is(ModelResponse.of("x")), {}, "answered"),
    "a replaced response": ("onResponse", lambda ctx: ctx.response, {}, "changed"),
    "a Stop": ("onStep", _is(Stop("x")), {}, "stopped"),
    "a Stop at preToolCall": ("preToolCall", _is(Stop("x")), {}, "stopped"),
    "a Continue": ("preStop", _is(Continue("x")), {}, "changed"),
    "an Ask": ("preToolCall", _is(Ask("sure?")), {}, "asked"),
    "a ToolResult": ("preToolCall", _is(ToolResult(1)), {}, "answered"),
    "a ToolFailure": ("preToolCall", _is(ToolFailure("x")), {}, "blocked"),
    "a changed call": ("preToolCall", lambda ctx: ctx.call.replace(arguments={}), {}, "changed"),
    "a changed result": ("onToolCallResult", _is(ToolResult(1)), {}, "changed"),
    "a result made an error": ("onToolCallResult", _is(ToolFailure("x")), {}, "blocked"),
    "a changed error": ("onToolCallError", _is(ToolFailure("x")), {}, "changed"),
    "an error made a result": ("onToolCallError", _is(ToolResult(1)), {}, "answered"),
    "a throw": ("onStep", _raises, {}, "raised"),
    "a logged throw": ("onStep", _raises, {"on_error": "log"}, "raised"),
    "a throw that denies": ("preToolCall", _raises, {"on_error": "deny"}, "raised"),
    "ToolDenied in preToolCall": ("preToolCall", _denies, {}, "blocked"),
    "a timeout": ("onStep", _hangs, {"timeout": 0.01}, "raised"),
    "a wrong return": ("onStep", _is(42), {}, "raised"),
    "a wrapper that passes": ("aroundRequest", _passes, {}, "ok"),
    "another payload": ("aroundRequest", _proceeds_with_another, {}, "ok"),
    "a wrapper's other result": ("aroundRequest", _changes_the_response, {}, "changed"),
    "a short circuit": ("aroundRequest", _answers, {}, "answered"),
    "a wrapper's throw": ("aroundRequest", _raises, {}, "raised"),
    "a wrapper's logged throw": ("aroundRequest", _raises, {"on_error": "log"}, "raised"),
    "a wrapper's timeout": ("aroundRequest", _hangs, {"timeout": 0.01}, "raised"),
    "a wrapper's wrong return": ("aroundRequest", t1.returning(42, "wrapper"), {}, "raised"),
}


@pytest.mark.parametrize(
    ("point", "hook", "options", "outcome"),
    [pytest.param(*values, id=case) for case, values in OUTCOMES.items()],
)
async def test_the_outcome_says_what_the_hook_did(
    point: str, hook: Any, options: dict[str, Any], outcome: str
) -> None:
    agent = t1.agent_for(point)
    out = watched(agent)
    if options.pop("text", False):
        change = hook
        hook = lambda ctx: change(ctx) if isinstance(ctx.delta, TextChunk) else None  # noqa: E731
    agent.add_hook(point, hook, name="watched", **options)
    with contextlib.suppress(Exception):  # how the chat ends is not asked here
        await agent.chat("Add 1 and 2.")
    assert out[0].outcome == outcome


def test_every_outcome_that_the_type_names_is_told_of_above() -> None:
    assert {case[3] for case in OUTCOMES.values()} == set(get_args(HookOutcome))


async def test_a_wrapper_that_lets_an_exception_through_has_not_raised() -> None:
    out: list[tuple[str, str]] = []
    bus: HookBus[Any] = HookBus()

    async def inner(job: str) -> str:
        raise Boom

    bus.add_hook(Work, _passes, name="passes")
    bus.add_hook("onHook", lambda ctx: out.append((ctx.hook, ctx.outcome)))
    with pytest.raises(Boom):
        await bus.wrap(Work("job"), inner)
    assert out == [("passes", "ok")]


# ── which hooks it is told of ───────────────────────────────────────────────────────────────


async def test_a_hook_that_tools_leaves_out_did_not_run() -> None:
    agent = t1.agent_for("preToolCall")
    out = watched(agent)
    agent.add_hook("preToolCall", lambda ctx: None, name="watched", tools=["add"])
    await agent.chat("Add.")
    assert len(out) == 1


async def test_a_hook_that_was_disposed_meanwhile_did_not_run() -> None:
    out: list[str] = []
    bus: HookBus[Any] = HookBus()
    bus.add_hook("onHook", lambda ctx: out.append(ctx.hook))
    bus.add_hook(Said, lambda ctx: dispose(), name="disposes")
    dispose = bus.add_hook(Said, lambda ctx: None, name="disposed")
    await bus.notify(Said())
    assert out == ["disposes"]


async def test_hooks_that_a_throw_skipped_did_not_run() -> None:
    out: list[str] = []
    bus: HookBus[Any] = HookBus()
    bus.add_hook("onHook", lambda ctx: out.append(ctx.hook))
    bus.add_hook(Said, _raises, name="raises")
    bus.add_hook(Said, lambda ctx: None, name="skipped")
    with pytest.raises(Boom):
        await bus.notify(Said())
    assert out == ["raises"]


async def test_an_observer_added_during_a_chat_is_told_from_then_on() -> None:
    out: list[str] = []
    agent: Any = Agent(ScriptedModel("Hello."))
    agent.add_hook("onChatStart", lambda ctx: None)
    agent.add_hook(
        "onMessage", lambda ctx: agent.add_hook("onHook", lambda ctx: out.append(ctx.point))
    )
    agent.add_hook("onChatDone", lambda ctx: None)
    await agent.chat("hi")
    assert out[-1] == "onChatDone"
    assert "onChatStart" not in out


async def test_an_observer_that_is_disposed_is_told_no_more() -> None:
    out: list[str] = []
    agent: Any = Agent(ScriptedModel("Hello."))

    def once(ctx: Any) -> None:
        out.append(ctx.point)
        dispose()

    dispose = agent.add_hook("onHook", once)
    agent.add_hook("onChatStart", lambda ctx: None)
    agent.add_hook("onChatEnd", lambda ctx: None)
    await agent.chat("hi")
    assert out == ["onChatStart"]


# ── without a chat ──────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("point", "verb"),
    [(Said, "notify"), (Word, "intercept"), (Work, "wrap")],
    ids=["notify", "intercept", "wrap"],
)
async def test_on_a_bus_without_a_chat_it_has_no_run(point: Any, verb: str) -> None:
    out: list[Any] = []
    bus: HookBus[Any] = HookBus()

    async def inner(job: str) -> str:
        return job

    bus.add_hook("onHook", out.append)
    bus.add_hook(point, _passes if point is Work else lambda ctx: None, name="own")
    await getattr(bus, verb)(point(), *([inner] if point is Work else []))
    assert [(ctx.run, ctx.point, ctx.hook) for ctx in out] == [(None, point.__name__, "own")]


async def test_a_point_of_ones_own_fired_in_a_chat_is_told_too() -> None:
    agent: Any = Agent(ScriptedModel("Hello."))
    out = watched(agent)
    agent.add_hook(Said, lambda ctx: None, name="watched")

    @agent.hook("onChatEnd")
    async def say(ctx: Any) -> None:
        await agent.bus.notify(Said())

    await agent.chat("hi")
    assert [ctx.point for ctx in out] == ["Said"]


# ── it disturbs nothing ─────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("point", OTHERS)
async def test_being_watched_changes_nothing_in_a_chat(point: str) -> None:
    """What it returns is ignored, and the chat ends as it would without it."""
    results = []
    for hooks in ({}, {"onHook": lambda ctx: Stop("x")}):
        agent = t1.agent_for(point, hooks=hooks)
        agent.add_hook(point, t1.observing([], TABLE[point].kind))
        try:
            results.append([m.text for m in (await t1.play(point, agent)).messages])
        except Exception as exc:
            results.append([repr(exc)])
    assert results[0] == results[1]


async def test_a_watched_hook_may_still_time_out_and_the_next_call_works() -> None:
    hang = [True]

    async def hook(ctx: Any) -> None:
        if hang.pop() if hang else False:
            await asyncio.Event().wait()

    bus: HookBus[Any] = HookBus()
    out: list[str] = []
    bus.add_hook("onHook", lambda ctx: out.append(ctx.outcome))
    bus.add_hook(Said, hook, timeout=0.01)
    with pytest.raises(TimeoutError):
        await bus.notify(Said())
    await bus.notify(Said())
    assert out == ["raised", "ok"]


async def test_it_works_beside_parallel_tool_calls() -> None:
    out: list[str] = []
    agent = t1.agent_for("aroundToolCall", model=ScriptedModel([call("report")] * 3, "Done."))
    agent.add_hook("onHook", lambda ctx: out.append(ctx.hook))
    agent.add_hook("aroundToolCall", _passes, name="around")
    agent.add_hook("onToolCallResult", lambda ctx: None, name="result")
    await agent.chat("hi")
    assert sorted(out) == ["around"] * 3 + ["result"] * 3


async def test_it_is_told_what_a_hook_was_given_and_what_it_made_of_it() -> None:
    out: list[OnHook] = []
    agent: Any = Agent(ScriptedModel("Hello."), hooks={"onHook": out.append})

    @agent.hook("preRequest")
    def brief(ctx: PreRequest) -> ModelRequest:
        return ctx.request.replace(system="Be brief.")

    @agent.hook("aroundRequest")
    async def warm(ctx: AroundRequest, proceed: Any) -> Any:
        changed = ctx.request.replace(system="Be warm.")
        return await proceed(changed)

    await agent.chat("Hi.")
    told = {each.hook.rpartition(".")[2]: each for each in out}
    assert told["brief"].context.request.system is None
    assert told["brief"].returned.system == "Be brief."
    assert told["brief"].inner == 0
    assert told["warm"].context.request.system == "Be brief."
    assert told["warm"].passed.system == "Be warm."
    assert told["warm"].returned.text == "Hello."
    assert 0 < told["warm"].inner <= told["warm"].duration


async def test_a_value_of_a_derived_type_has_the_outcome_of_its_base() -> None:
    class Forbidden(Deny, frozen=True):
        pass

    @tool
    def pay() -> str:
        return "paid"

    agent: Any = Agent(ScriptedModel([call("pay")], "ok"), tools=[pay])
    out = watched(agent)
    agent.add_hook("preToolCall", lambda ctx: Forbidden("no"), name="watched")
    await agent.chat("go")
    assert [ctx.outcome for ctx in out] == ["blocked"]


@pytest.mark.parametrize(("raises", "outcome"), [(False, "ok"), (True, "raised")])
async def test_a_sync_scope_observer_that_returns_an_awaitable_is_told_of(
    raises: bool, outcome: str
) -> None:
    async def later() -> None:
        await asyncio.sleep(0)
        if raises:
            raise Boom

    agent: Any = Agent(ScriptedModel("ok"))
    out = watched(agent)
    agent.add_hook("onScopeRegister", lambda ctx: later(), name="watched")
    agent.scopes.register(Scope("web"))
    await agent.chat("go")
    assert [(ctx.point, ctx.outcome) for ctx in out] == [("onScopeRegister", outcome)]


async def test_a_point_of_ones_own_may_have_the_same_name() -> None:
    own: Any = type("onHook", (Observer,), {})
    bus: HookBus[Any] = HookBus()
    out: list[Any] = []
    bus.add_hook("onHook", out.append)
    bus.add_hook(own, lambda ctx: None, name="watched")
    await bus.notify(own())
    assert [(ctx.point, ctx.hook) for ctx in out] == [("onHook", "watched")]


async def test_it_has_the_id_of_the_hooks_definition() -> None:
    out: list[tuple[str, str | None]] = []

    @define_hook("preRequest", id="brief", name="makes it brief")
    def brief(ctx: PreRequest) -> None: ...

    agent: Any = Agent(ScriptedModel("Hello."), hooks=[brief])
    agent.add_hook("preRequest", lambda ctx: None, name="none")
    agent.add_hook("onHook", lambda ctx: out.append((ctx.hook, ctx.id)))
    await agent.chat("Hi.")
    assert out == [("makes it brief", "brief"), ("none", None)]
