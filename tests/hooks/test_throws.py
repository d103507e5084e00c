"""A hook that throws: what `on_error`, `timeout` and the point make of it."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from tests import _every_point as t1

from hookline import (
    Agent,
    Conversation,
    HookBus,
    Interceptor,
    Observer,
    Run,
    Scope,
    Tool,
    Wrapper,
    tool,
)
from hookline.errors import (
    ChatAbortedError,
    HookError,
    HookReturnError,
    HookTimeoutError,
    StopChat,
    ToolDenied,
)
from hookline.events import ChatDone, ChatFailed, ToolCallFinished
from hookline.points import TABLE
from hookline.testing import ScriptedModel, call, collect

# What a throw does, by point; the tests below go through these groups, which are the whole table.
IGNORED = (
    "onChatAbort", "onChatError", "onChatEnd", "onScopeRegister", "onScopeUnregister", "onHook"
)  # fmt: skip
ALONE = ("aroundChat",)  # before proceed: reaches the caller alone
LATE = ("onChatDone",)
UPDATES = ("preMessageUpdate", "onMessageUpdate")  # outside of chats: tests/talk/test_updates.py
ENDS = tuple(name for name in TABLE if name not in (*IGNORED, *ALONE, *LATE, *UPDATES))


class Boom(Exception):
    pass


class Said(Observer):
    text: str = ""


class Word(Interceptor[str]):
    word: str = ""


class Work(Wrapper[str]):
    job: str = ""


KINDS = pytest.mark.parametrize("point", [Said, Word, Work], ids=["notify", "intercept", "wrap"])


async def fire(bus: HookBus[Any], point: type) -> Any:
    if point is Said:
        return await bus.notify(Said())
    if point is Word:
        return await bus.intercept(Word("word"))
    return await bus.wrap(Work("word"), _inner)


async def _inner(job: str) -> str:
    return job


def tracer(out: list[str], point: Any, name: str, exc: BaseException | None = None) -> Any:
    """A hook that writes its name, and raises or changes nothing."""

    def hook(ctx: Any) -> None:
        out.append(name)
        if exc is not None:
            raise exc

    async def wrapper(ctx: Any, proceed: Any) -> Any:
        hook(ctx)
        return await proceed()

    return wrapper if point is Work else hook


def outcomes(agent: Any) -> list[str]:
    """What the outcome hooks of the agent are told from now on."""
    out: list[str] = []
    for point in ("onChatStart", "onChatDone", "onChatAbort", "onChatError", "onChatEnd"):
        agent.add_hook(point, lambda ctx, point=point: out.append(point), priority=-2000)
    return out


# ── 1. on_error="raise" ─────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("way", ["chat", "chat_stream"])
@pytest.mark.parametrize("point", [*ENDS, *LATE, *ALONE])
async def test_the_same_exception_object_reaches_the_caller_with_a_note(
    point: str, way: str
) -> None:
    boom = Boom("content")
    agent = t1.agent_for(point)
    agent.add_hook(point, t1.raising(boom, TABLE[point].kind), name="thrower")
    with pytest.raises(Boom) as caught:
        await (t1.play(point, agent) if way == "chat" else collect(agent.chat_stream("Add.")))
    assert caught.value is boom
    note, *outer = boom.__notes__
    assert len(outer) == (point == "preCompact")  # the hook that asked there
    assert "'thrower'" in note
    assert point in note


@pytest.mark.parametrize("point", ENDS)
async def test_a_throw_ends_the_chat_and_on_chat_error_fires_with_it(point: str) -> None:
    boom = Boom()
    errors: list[Any] = []
    agent = t1.agent_for(point)
    out = outcomes(agent)
    agent.add_hook("onChatError", lambda ctx: errors.append(ctx.error))
    agent.add_hook(point, t1.raising(boom, TABLE[point].kind))
    with pytest.raises(Boom):
        await t1.play(point, agent)
    started = [] if point == "onChatStart" else ["onChatStart"]  # ours stands last there
    assert out == [*started, "onChatError", "onChatEnd"]
    assert errors == [boom]


@pytest.mark.parametrize("point", ENDS)
async def test_a_stream_ends_with_chat_failed_and_then_raises(point: str) -> None:
    agent = t1.agent_for(point)
    agent.add_hook(point, t1.raising(Boom(), TABLE[point].kind))
    events: list[Any] = []
    with pytest.raises(Boom):
        await collect(agent.chat_stream("Add 1 and 2."), events)
    assert isinstance(events[-1], ChatFailed)
    assert events[-1].error.type == "Boom"


@pytest.mark.parametrize("point", ENDS)
async def test_the_rest_of_the_dispatch_is_skipped(point: str) -> None:
    out: list[Any] = []
    agent = t1.agent_for(point)
    agent.add_hook(point, t1.raising(Boom(), TABLE[point].kind), priority=1)
    agent.add_hook(point, t1.observing(out, TABLE[point].kind))
    with pytest.raises(Boom):
        await t1.play(point, agent)
    assert out == []


@KINDS
async def test_standalone_too_the_rest_of_the_dispatch_is_skipped(point: type) -> None:
    out: list[str] = []
    boom = Boom()
    bus: HookBus[Any] = HookBus()
    bus.add_hook(point, tracer(out, point, "first"))
    bus.add_hook(point, tracer(out, point, "thrower", boom), name="thrower")
    bus.add_hook(point, tracer(out, point, "last"))
    with pytest.raises(Boom) as caught:
        await fire(bus, point)
    assert caught.value is boom
    assert out == ["first", "thrower"]
    assert "'thrower'" in boom.__notes__[0]
    assert point.__name__ in boom.__notes__[0]


@pytest.mark.parametrize("point", ENDS)
async def test_the_model_never_sees_it(point: str) -> None:
    agent = t1.agent_for(point, model=(model := t1.model()))
    conversation = Conversation()
    agent.add_hook(point, t1.raising(Boom("the secret"), TABLE[point].kind))
    with pytest.raises(Boom):
        await t1.play(point, agent, conversation=conversation)
    assert "the secret" not in repr(model.requests)
    assert "the secret" not in repr(conversation.messages)


@pytest.mark.parametrize("point", ["onMessage", "preToolCall", "aroundToolCall", "onStatus"])
async def test_the_conversation_is_free_and_valid_after_a_throw(point: str) -> None:
    conversation = Conversation()
    agent = t1.agent_for(point)
    agent.add_hook(point, t1.raising(Boom(), TABLE[point].kind))
    with pytest.raises(Boom):
        await t1.play(point, agent, conversation=conversation)
    other = Agent(ScriptedModel("Fine."))
    assert (await other.chat("And now?", conversation=conversation)).text == "Fine."


async def test_an_exception_that_is_raised_twice_gets_its_note_once() -> None:
    boom = Boom()
    bus: HookBus[Any] = HookBus()
    bus.add_hook(Said, t1.raising(boom), name="thrower")
    for _ in range(2):
        with pytest.raises(Boom):
            await bus.notify(Said())
    assert len(boom.__notes__) == 1


async def test_what_a_wrapper_lets_through_is_not_said_to_be_its_own() -> None:
    boom = Boom()
    bus: HookBus[Any] = HookBus()

    async def outer(ctx: Any, proceed: Any) -> Any:
        return await proceed()

    bus.add_hook(Work, outer, name="outer")
    bus.add_hook(Work, t1.raising(boom, "wrapper"), name="inner")
    with pytest.raises(Boom):
        await bus.wrap(Work("job"), _inner)
    (note,) = boom.__notes__
    assert "'inner'" in note


async def test_a_wrapper_that_raises_another_exception_replaces_the_inner_one() -> None:
    bus: HookBus[Any] = HookBus()

    async def translates(ctx: Any, proceed: Any) -> Any:
        try:
            return await proceed()
        except OSError as exc:
            raise Boom("translated") from exc

    async def inner(job: str) -> str:
        raise OSError("inner")

    bus.add_hook(Work, translates)
    with pytest.raises(Boom, match="translated") as caught:
        await bus.wrap(Work("job"), inner)
    assert isinstance(caught.value.__cause__, OSError)


async def test_a_throw_beside_running_siblings_comes_out_alone() -> None:
    """Never an ExceptionGroup around a single error."""
    agent = t1.agent_for("onToolCallResult")
    boom = Boom()
    agent.add_hook("onToolCallResult", t1.raising(boom), tools=["report"])
    with pytest.raises(Boom) as caught:
        await agent.chat("Add 1 and 2.")
    assert caught.value is boom


async def test_of_two_failures_side_by_side_one_is_raised_and_none_is_left_unretrieved() -> None:
    left: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: left.append(context))

    async def fails(ctx: Any, proceed: Any) -> Any:
        raise Boom(ctx.call.id)

    agent: Any = Agent(ScriptedModel([call("report"), call("report")]), tools=[t1.report])
    agent.add_hook("aroundToolCall", fails)
    with pytest.raises(Boom, match="call_1"):
        await agent.chat("hi")
    gc.collect()
    await asyncio.sleep(0)
    assert left == []


async def test_a_group_that_a_hook_raises_comes_out_as_it_is() -> None:
    group = ExceptionGroup("mine", [Boom(), OSError()])
    with pytest.raises(ExceptionGroup) as caught:
        await t1.fire("onStep", t1.raising(group))
    assert caught.value is group


@pytest.mark.parametrize("point", ENDS)
async def test_a_wrong_return_type_is_a_throw_like_any_other(point: str) -> None:
    if TABLE[point].kind == "observer":
        assert await t1.fire(point, lambda ctx: 42) is not None  # ignored
        return
    agent = t1.agent_for(point)
    out = outcomes(agent)
    agent.add_hook(point, t1.returning(42, TABLE[point].kind), name="wrong")
    with pytest.raises(HookReturnError) as caught:
        await t1.play(point, agent)
    assert (caught.value.hook, caught.value.point) == ("wrong", point)
    assert out[-2:] == ["onChatError", "onChatEnd"]


# ── 2. on_error="log" ───────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("point", [*ENDS, *LATE, *ALONE])
async def test_log_lets_the_chat_go_on(point: str, caplog: pytest.LogCaptureFixture) -> None:
    out: list[Any] = []
    agent = t1.agent_for(point)
    kind = TABLE[point].kind
    agent.add_hook(point, t1.raising(Boom(), kind), name="thrower", priority=1, on_error="log")
    agent.add_hook(point, t1.observing(out, kind))
    response = await t1.play(point, agent)
    assert response.text == "All done."
    assert out, "the next hook runs"
    logged = [r for r in caplog.records if r.name == "hookline"]
    assert all("'thrower'" in r.getMessage() and point in r.getMessage() for r in logged)
    assert len(logged) >= 1


async def test_log_keeps_the_last_good_value() -> None:
    seen: list[str] = []
    bus: HookBus[Any] = HookBus()
    bus.add_hook(Word, lambda ctx: ctx.word + "a")
    bus.add_hook(Word, t1.raising(Boom()), on_error="log")
    bus.add_hook(Word, lambda ctx: seen.append(ctx.word))
    assert await bus.intercept(Word("-")) == "-a"
    assert seen == ["-a"]


async def test_log_takes_a_wrong_return_type_too() -> None:
    bus: HookBus[Any] = HookBus()
    bus.add_hook(Word, lambda ctx: ctx.word + "a")
    bus.add_hook(Word, lambda ctx: 42, on_error="log")
    bus.add_hook(Word, lambda ctx: ctx.word + "b")
    assert await bus.intercept(Word("-")) == "-ab"


async def test_log_keeps_the_delta_that_the_hook_was_given() -> None:
    agent = Agent(ScriptedModel("abc", chunk=1))

    def picky(ctx: Any) -> Any:
        if getattr(ctx.delta, "text", "") == "b":
            raise Boom
        return None

    agent.add_hook("onDelta", picky, on_error="log")
    assert (await agent.chat("hi")).text == "abc"


async def test_the_log_holds_no_content(caplog: pytest.LogCaptureFixture) -> None:
    bus: HookBus[Any] = HookBus()
    bus.add_hook(Said, t1.raising(Boom("the secret")), on_error="log")
    with caplog.at_level(logging.INFO):
        await bus.notify(Said())
    assert "Boom" in caplog.text
    assert "the secret" not in caplog.text


async def test_a_wrapper_that_failed_before_proceed_is_skipped() -> None:
    out: list[str] = []
    bus: HookBus[Any] = HookBus()
    bus.add_hook(Work, tracer(out, Work, "outer"))
    bus.add_hook(Work, tracer(out, Work, "fails", Boom()), on_error="log")
    bus.add_hook(Work, tracer(out, Work, "inner"))
    assert await bus.wrap(Work("job"), _inner) == "job"
    assert out == ["outer", "fails", "inner"]


async def test_a_logged_wrapper_that_fails_beside_its_proceed_has_no_result_to_go_on_with() -> None:
    """The inner part has begun and may not run twice, and has no result yet: the throw stands."""
    began, gate = asyncio.Event(), asyncio.Event()
    tasks: list[asyncio.Task[Any]] = []

    async def fails(ctx: Any, proceed: Any) -> Any:
        tasks.append(asyncio.create_task(proceed()))
        await began.wait()
        raise Boom

    async def inner(job: str) -> str:
        began.set()
        await gate.wait()
        return job

    bus: HookBus[Any] = HookBus()
    bus.add_hook(Work, fails, on_error="log")
    try:
        with pytest.raises(Boom):
            await bus.wrap(Work("job"), inner)
    finally:
        gate.set()
        await asyncio.gather(*tasks)


async def test_after_proceed_the_inner_result_stands_and_nothing_runs_twice() -> None:
    out: list[str] = []
    bus: HookBus[Any] = HookBus()

    async def fails(ctx: Any, proceed: Any) -> Any:
        await proceed("changed")
        raise Boom

    async def inner(job: str) -> str:
        out.append(job)
        return f"{job}!"

    bus.add_hook(Work, fails, on_error="log")
    bus.add_hook(Work, tracer(out, Work, "inside"))
    assert await bus.wrap(Work("job"), inner) == "changed!"
    assert out == ["inside", "changed"]


async def test_after_two_calls_of_proceed_the_last_result_stands() -> None:
    bus: HookBus[Any] = HookBus()

    async def fails(ctx: Any, proceed: Any) -> Any:
        await proceed("first")
        await proceed("second")
        raise Boom

    bus.add_hook(Work, fails, on_error="log")
    assert await bus.wrap(Work("job"), _inner) == "second"


async def test_where_the_inner_part_failed_its_own_exception_stands() -> None:
    bus: HookBus[Any] = HookBus()

    async def fails(ctx: Any, proceed: Any) -> Any:
        try:
            return await proceed()
        except OSError:
            raise Boom from None

    error = OSError("inner")

    async def inner(job: str) -> str:
        raise error

    bus.add_hook(Work, fails, on_error="log")
    with pytest.raises(OSError, match="inner") as caught:
        await bus.wrap(Work("job"), inner)
    assert caught.value is error


async def test_a_wrapper_that_returns_a_wrong_type_is_logged_and_the_result_stands() -> None:
    bus: HookBus[Any] = HookBus()
    bus.add_hook(Work, t1.returning(42, "wrapper"), on_error="log")
    assert await bus.wrap(Work("job"), _inner) == "job"


async def test_a_logged_wrapper_whose_payload_is_refused_is_skipped() -> None:
    out: list[Any] = []
    bus: HookBus[Any] = HookBus()

    async def fails(ctx: Any, proceed: Any) -> Any:
        return await proceed(42)

    bus.add_hook(Work, fails, on_error="log")
    bus.add_hook("onHook", lambda ctx: out.append((ctx.outcome, ctx.passed)))
    assert await bus.wrap(Work("job"), _inner) == "job"
    assert out == [("raised", None)]


async def test_a_logged_wrapper_whose_second_proceed_is_refused_keeps_the_result() -> None:
    out: list[str] = []
    bus: HookBus[Any] = HookBus()

    async def fails(ctx: Any, proceed: Any) -> Any:
        await proceed("first")
        return await proceed(42)

    bus.add_hook(Work, fails, on_error="log")
    bus.add_hook("onHook", lambda ctx: out.append(ctx.outcome))
    assert await bus.wrap(Work("job"), _inner) == "first"
    assert out == ["raised"]


async def test_a_skipped_wrapper_cannot_run_the_operation_beside_the_chat() -> None:
    out: list[str] = []
    tasks: list[asyncio.Task[Any]] = []
    bus: HookBus[Any] = HookBus()

    async def fails(ctx: Any, proceed: Any) -> Any:
        tasks.append(asyncio.create_task(proceed()))
        raise Boom  # before the task has begun

    async def inner(job: str) -> str:
        out.append(job)
        await asyncio.sleep(0)
        return job

    bus.add_hook(Work, fails, on_error="log")
    assert await bus.wrap(Work("job"), inner) == "job"
    (late,) = await asyncio.gather(*tasks, return_exceptions=True)
    assert isinstance(late, HookError)
    assert out == ["job"]


async def test_what_a_skipped_wrapper_wraps_does_not_count_as_its_time() -> None:
    out: list[float] = []
    bus: HookBus[Any] = HookBus()

    async def fails(ctx: Any, proceed: Any) -> Any:
        raise Boom

    bus.add_hook(Work, fails, on_error="log")
    bus.add_hook("onHook", lambda ctx: out.append(ctx.inner))
    await bus.wrap(Work("job"), _inner)
    assert out[0] > 0


@pytest.mark.parametrize("point", ["aroundChat", "aroundRequest", "aroundToolCall"])
async def test_in_a_chat_a_logged_wrapper_that_fails_after_proceed_runs_nothing_twice(
    point: str,
) -> None:
    async def fails(ctx: Any, proceed: Any) -> Any:
        await proceed()
        raise Boom

    with t1.model() as model:
        agent = t1.agent_for(point, model=model)
        agent.add_hook(point, fails, on_error="log")
        response = await agent.chat("Add 1 and 2.")
    assert response.text == "All done."
    results = [m for m in response.messages if m.role == "tool"]
    assert [m.text for m in results[:2]] == ["3", "reported"]


# ── 3. on_error="deny" ──────────────────────────────────────────────────────────────────────


def _denying(**options: Any) -> tuple[Any, list[str]]:
    """An agent whose tool calls are checked by a hook that fails for one of them."""
    ran: list[str] = []

    @tool
    async def act(what: str) -> str:
        """Do something."""
        ran.append(what)
        return what

    calls = [call("act", what="a"), call("act", what="b")]
    agent: Any = Agent(ScriptedModel(calls, "Done."), tools=[act])

    async def check(ctx: Any) -> None:
        if ctx.call.arguments["what"] == "a":
            raise Boom("the secret")

    agent.add_hook("preToolCall", check, **{"on_error": "deny", **options})
    return agent, ran


async def test_deny_refuses_this_call_alone_and_the_chat_goes_on() -> None:
    agent, ran = _denying()
    response = await agent.chat("hi")
    assert ran == ["b"]
    assert response.text == "Done."
    denied, fine = response.messages[2:4]
    assert (denied.outcome, fine.outcome) == ("denied", "ok")


async def test_the_model_is_told_that_the_call_was_denied_and_nothing_more() -> None:
    agent, _ = _denying()
    response = await agent.chat("hi")
    text = response.messages[2].text
    assert "denied" in text
    assert "Boom" not in text
    assert "the secret" not in text


async def test_deny_ends_the_chain_so_that_no_later_hook_can_let_it_pass() -> None:
    agent, ran = _denying()
    out: list[str] = []
    agent.add_hook("preToolCall", lambda ctx: out.append(ctx.call.arguments["what"]))
    await agent.chat("hi")
    assert (out, ran) == (["b"], ["b"])


async def test_a_denial_passes_on_tool_call_error() -> None:
    agent, _ = _denying()
    out: list[str] = []
    agent.add_hook("onToolCallError", lambda ctx: out.append(ctx.error.type))
    await agent.chat("hi")
    assert out == ["Denied"]


async def test_deny_fires_no_on_chat_error() -> None:
    agent, _ = _denying()
    out = outcomes(agent)
    await agent.chat("hi")
    assert out == ["onChatStart", "onChatDone", "onChatEnd"]


async def test_a_check_that_hangs_denies_after_its_timeout_and_answers_the_next_call() -> None:
    agent, ran = _denying()
    agent.bus.clear("preToolCall")

    async def hangs(ctx: Any) -> None:
        if ctx.call.arguments["what"] == "a":
            await asyncio.Event().wait()

    agent.add_hook("preToolCall", hangs, on_error="deny", timeout=0.01)
    response = await agent.chat("hi")
    assert (ran, response.text) == (["b"], "Done.")


async def test_a_check_that_returns_a_wrong_type_denies() -> None:
    agent, ran = _denying()
    agent.bus.clear("preToolCall")
    agent.add_hook("preToolCall", lambda ctx: True, on_error="deny")
    await agent.chat("hi")
    assert ran == []


# ── 4. timeout= ─────────────────────────────────────────────────────────────────────────────


def hanging(point: Any, times: int = 1) -> Any:
    """An async hook that hangs so many times."""
    left = [times]

    async def hook(ctx: Any, proceed: Any = None) -> Any:
        if left[0]:
            left[0] -= 1
            await asyncio.Event().wait()
        return await proceed() if proceed is not None else None

    return hook


@KINDS
async def test_running_out_of_time_is_a_hook_timeout_error(point: type) -> None:
    bus: HookBus[Any] = HookBus()
    bus.add_hook(point, hanging(point), timeout=0.01, name="slow")
    with pytest.raises(HookTimeoutError) as caught:
        await fire(bus, point)
    error = caught.value
    assert (error.hook, error.point, error.seconds) == ("slow", point.__name__, 0.01)
    assert isinstance(error, TimeoutError)


@KINDS
async def test_after_a_timeout_the_next_call_of_the_same_hook_works_again(point: type) -> None:
    bus: HookBus[Any] = HookBus()
    bus.add_hook(point, hanging(point), timeout=0.01)
    with pytest.raises(HookTimeoutError):
        await fire(bus, point)
    await fire(bus, point)
    await fire(bus, point)


@KINDS
async def test_a_timeout_follows_on_error(point: type) -> None:
    out: list[str] = []
    bus: HookBus[Any] = HookBus()
    bus.add_hook(point, hanging(point), timeout=0.01, on_error="log")
    bus.add_hook(point, tracer(out, point, "next"))
    await fire(bus, point)
    assert out == ["next"]


@KINDS
async def test_a_hook_that_is_in_time_is_not_cancelled(point: type) -> None:
    bus: HookBus[Any] = HookBus()
    bus.add_hook(point, hanging(point, times=0), timeout=0.01)
    await fire(bus, point)
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0


@KINDS
async def test_after_a_timeout_the_callers_task_is_not_being_cancelled(point: type) -> None:
    bus: HookBus[Any] = HookBus()
    bus.add_hook(point, hanging(point), timeout=0.01)
    with pytest.raises(HookTimeoutError):
        await fire(bus, point)
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0
    await asyncio.sleep(0)


@pytest.mark.parametrize("point", [*ENDS, *LATE, *ALONE])
async def test_at_every_point_a_timeout_reaches_the_caller(point: str) -> None:
    with pytest.raises(HookTimeoutError) as caught:
        await t1.fire(point, hanging(point), timeout=0.01, name="slow")
    assert (caught.value.point, caught.value.hook) == (point, "slow")


@pytest.mark.parametrize("point", [*ENDS, *LATE, *ALONE])
async def test_at_every_point_the_next_chat_works_after_a_timeout(point: str) -> None:
    agent = t1.agent_for(point, model=ScriptedModel(*2 * [t1_turn()], "All done.", strict=False))
    hook = hanging(point)
    agent.add_hook(point, hook, timeout=0.01, on_error="log")
    assert (await t1.play(point, agent)).text


def t1_turn() -> Any:
    return [call("add", a=1, b=2), call("report"), call("broken")]


async def test_a_wrappers_timeout_covers_what_it_wraps() -> None:
    out: list[str] = []
    bus: HookBus[Any] = HookBus()

    async def wrapper(ctx: Any, proceed: Any) -> Any:
        return await proceed()

    async def inner(job: str) -> str:
        try:
            await asyncio.Event().wait()
        finally:
            out.append("inner was cancelled")
        return job

    bus.add_hook(Work, wrapper, timeout=0.01, name="limit")
    with pytest.raises(HookTimeoutError, match="limit"):
        await bus.wrap(Work("job"), inner)
    assert out == ["inner was cancelled"]


async def test_where_its_timeout_cut_what_it_wraps_log_has_no_result_to_go_on_with() -> None:
    """The inner part never runs twice and left nothing, so the timeout is raised all the same."""
    out: list[str] = []
    bus: HookBus[Any] = HookBus()

    async def wrapper(ctx: Any, proceed: Any) -> Any:
        return await proceed()

    async def inner(job: str) -> str:
        out.append("inner")
        await asyncio.Event().wait()
        return job

    bus.add_hook(Work, wrapper, timeout=0.01, on_error="log")
    with pytest.raises(HookTimeoutError):
        await bus.wrap(Work("job"), inner)
    assert out == ["inner"]


async def test_of_two_nested_timeouts_the_shorter_one_speaks() -> None:
    bus: HookBus[Any] = HookBus()

    async def wrapper(ctx: Any, proceed: Any) -> Any:
        return await proceed()

    async def inner(job: str) -> str:
        await asyncio.Event().wait()
        return job

    bus.add_hook(Work, wrapper, timeout=60, name="outer")
    bus.add_hook(Work, wrapper, timeout=0.01, name="inner")
    with pytest.raises(HookTimeoutError) as caught:
        await bus.wrap(Work("job"), inner)
    assert caught.value.hook == "inner"


@pytest.mark.parametrize("point", ["aroundRequest", "aroundToolCall", "aroundChat"])
async def test_in_a_chat_a_wrappers_timeout_covers_the_model_and_the_tool(point: str) -> None:
    async def wrapper(ctx: Any, proceed: Any) -> Any:
        return await proceed()

    @tool
    async def hangs() -> str:
        """Never answer."""
        await asyncio.Event().wait()
        return ""

    async def never() -> None:
        await asyncio.Event().wait()

    model = ScriptedModel(call("hangs"), delay=None if point == "aroundToolCall" else never)
    agent: Any = Agent(model, tools=[hangs])
    agent.add_hook(point, wrapper, timeout=0.05, name="limit")
    with pytest.raises(HookTimeoutError) as caught:
        await agent.chat("hi")
    assert (caught.value.hook, caught.value.point) == ("limit", point)


async def test_a_wrapper_with_a_timeout_works_again_in_the_next_chat() -> None:
    async def wrapper(ctx: Any, proceed: Any) -> Any:
        return await proceed()

    hang = [True]

    async def delay() -> None:
        if hang.pop() if hang else False:
            await asyncio.Event().wait()

    agent: Any = Agent(ScriptedModel("never", "Hello.", delay=delay))
    agent.add_hook("aroundRequest", wrapper, timeout=0.05)
    with pytest.raises(HookTimeoutError):
        await agent.chat("hi")
    assert (await agent.chat("hi")).text == "Hello."


async def test_a_hook_may_swallow_its_cancellation_and_answer() -> None:
    """A hook that cleans up in time after its limit has its own say; nobody else is cancelled."""
    bus: HookBus[Any] = HookBus()

    async def stubborn(ctx: Any) -> str:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return "late"
        return "never"

    bus.add_hook(Word, stubborn, timeout=0.01)
    assert await bus.intercept(Word("word")) == "late"
    await asyncio.sleep(0)
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0


async def test_what_a_hook_raises_while_it_is_timed_out_is_its_own_exception() -> None:
    boom = Boom()
    bus: HookBus[Any] = HookBus()

    async def cleans_badly(ctx: Any) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            raise boom

    bus.add_hook(Said, cleans_badly, timeout=0.01)
    with pytest.raises(Boom) as caught:
        await bus.notify(Said())
    assert caught.value is boom
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0


async def test_a_timeout_that_a_hook_raises_itself_is_its_own() -> None:
    error = TimeoutError("mine")
    bus: HookBus[Any] = HookBus()

    async def own(ctx: Any) -> None:
        raise error

    bus.add_hook(Said, own, timeout=60)
    with pytest.raises(TimeoutError) as caught:
        await bus.notify(Said())
    assert caught.value is error


async def test_cancelling_a_dispatch_is_no_timeout() -> None:
    bus: HookBus[Any] = HookBus()
    bus.add_hook(Said, hanging(Said), timeout=60, on_error="log")
    task = asyncio.create_task(bus.notify(Said()))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


# ── 5. throws that are ignored ──────────────────────────────────────────────────────────────


async def _outcome(point: str, agent: Any) -> tuple[str, Any]:
    try:
        return "done", (await t1.play(point, agent)).text
    except (ChatAbortedError, t1.Planned) as exc:
        return type(exc).__name__, exc.args


@pytest.mark.parametrize("on_error", ["raise", "log"])
@pytest.mark.parametrize("exc", [Boom, asyncio.CancelledError])
@pytest.mark.parametrize("point", IGNORED)
async def test_throws_of_the_ending_and_of_the_watchers_are_logged_and_ignored(
    point: str, exc: type[BaseException], on_error: Any, caplog: pytest.LogCaptureFixture
) -> None:
    expected = await _outcome(point, t1.agent_for(point))
    agent = t1.agent_for(point)
    out: list[Any] = []
    agent.add_hook(point, t1.raising(exc()), priority=1, name="thrower", on_error=on_error)
    agent.add_hook(point, out.append)
    ends = outcomes(agent)
    assert await _outcome(point, agent) == expected
    assert ends[-1] == "onChatEnd"
    assert len(ends) == 3, "exactly one outcome"
    assert out, "the next hook runs"
    assert f"hook 'thrower' at {point} raised" in caplog.text


@pytest.mark.parametrize("point", IGNORED)
async def test_a_timeout_there_is_logged_and_ignored_too(
    point: str, caplog: pytest.LogCaptureFixture
) -> None:
    expected = await _outcome(point, t1.agent_for(point))
    agent = t1.agent_for(point)
    agent.add_hook(point, hanging(point), name="slow", timeout=0.01)
    assert await _outcome(point, agent) == expected
    assert f"hook 'slow' at {point} raised: HookTimeoutError" in caplog.text


async def test_a_throwing_async_scope_observer_is_logged_and_ignored(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def fails(ctx: Any) -> None:
        raise Boom

    agent: Any = Agent(ScriptedModel("Hello."))
    agent.add_hook("onScopeRegister", fails, name="thrower")
    agent.scopes.register(Scope("later"))
    assert (await agent.chat("hi")).text == "Hello."
    assert "hook 'thrower' at onScopeRegister raised" in caplog.text


async def test_a_scope_is_registered_even_when_its_observer_throws() -> None:
    agent: Any = Agent(ScriptedModel())
    agent.add_hook("onScopeRegister", t1.raising(Boom()))
    agent.scopes.register(Scope("later"))
    assert agent.scopes.get("later") is not None


@pytest.mark.parametrize("point", ["onChatError", "onChatEnd"])
async def test_they_cannot_hide_the_error(point: str) -> None:
    boom = Boom("the first")
    agent = t1.agent_for("onStep")
    agent.add_hook("onStep", t1.raising(boom))
    agent.add_hook(point, t1.raising(OSError("the second")))
    with pytest.raises(Boom) as caught:
        await agent.chat("Add.")
    assert caught.value is boom
    assert caught.value.__context__ is None


# ── 6. onChatDone ───────────────────────────────────────────────────────────────────────────


async def test_after_a_throw_in_on_chat_done_the_other_observers_still_run() -> None:
    agent: Any = Agent(ScriptedModel("Hello."))
    out: list[str] = []
    agent.add_hook("onChatDone", lambda ctx: out.append("before"))
    agent.add_hook("onChatDone", t1.raising(Boom()))
    agent.add_hook("onChatDone", lambda ctx: out.append("after"))
    agent.add_hook("onChatEnd", lambda ctx: out.append(f"end: {ctx.outcome}"))
    with pytest.raises(Boom):
        await agent.chat("hi")
    assert out == ["before", "after", "end: done"]


async def test_after_a_throw_in_on_chat_done_on_chat_error_does_not_fire() -> None:
    """One outcome."""
    agent: Any = Agent(ScriptedModel("Hello."))
    out = outcomes(agent)
    agent.add_hook("onChatDone", t1.raising(Boom()))
    with pytest.raises(Boom):
        await agent.chat("hi")
    assert out == ["onChatStart", "onChatDone", "onChatEnd"]


async def test_the_stream_delivers_chat_done_and_then_the_exception_reaches_the_caller() -> None:
    boom = Boom()
    agent: Any = Agent(ScriptedModel("Hello."))
    agent.add_hook("onChatDone", t1.raising(boom))
    events: list[Any] = []
    stream = agent.chat_stream("hi")
    with pytest.raises(Boom) as caught:
        await collect(stream, events)
    assert caught.value is boom
    assert isinstance(events[-1], ChatDone)
    assert not [event for event in events if isinstance(event, ChatFailed)]
    assert stream.response.text == "Hello."


async def test_of_several_throws_in_on_chat_done_the_first_reaches_the_caller(
    caplog: pytest.LogCaptureFixture,
) -> None:
    first, second = Boom("first"), Boom("second")
    agent: Any = Agent(ScriptedModel("Hello."))
    agent.add_hook("onChatDone", t1.raising(first), name="one")
    agent.add_hook("onChatDone", t1.raising(second), name="two")
    with pytest.raises(Boom) as caught:
        await agent.chat("hi")
    assert caught.value is first
    assert "'two'" in caplog.text


async def test_after_a_throw_in_on_chat_done_the_answer_is_kept() -> None:
    conversation = Conversation()
    agent: Any = Agent(ScriptedModel("Hello."))
    agent.add_hook("onChatDone", t1.raising(Boom()))
    with pytest.raises(Boom):
        await agent.chat("hi", conversation=conversation)
    assert [m.text for m in conversation.messages] == ["hi", "Hello."]


async def test_an_around_chat_that_throws_after_proceed_is_like_a_throw_in_on_chat_done() -> None:
    boom = Boom()
    agent: Any = Agent(ScriptedModel("Hello."))
    out = outcomes(agent)

    @agent.hook("aroundChat")
    async def fails(ctx: Any, proceed: Any) -> Any:
        await proceed()
        raise boom

    events: list[Any] = []
    with pytest.raises(Boom) as caught:
        await collect(agent.chat_stream("hi"), events)
    assert caught.value is boom
    assert isinstance(events[-1], ChatDone)
    assert out == ["onChatStart", "onChatDone", "onChatEnd"]


async def test_an_around_chat_that_throws_before_proceed_reaches_the_caller_alone() -> None:
    agent: Any = Agent(ScriptedModel())
    out = outcomes(agent)
    agent.add_hook("aroundChat", t1.raising(Boom(), "wrapper"))
    events: list[Any] = []
    with pytest.raises(Boom):
        await collect(agent.chat_stream("hi"), events)
    assert (out, events) == ([], [])


# ── 7. onToolCallResult ─────────────────────────────────────────────────────────────────────


async def _redacted(point: str) -> tuple[list[str], Conversation]:
    """A chat that ends because the hook which looks at a result fails."""
    ran: list[str] = []

    @tool
    async def secret() -> str:
        """Tell a secret."""
        ran.append("secret")
        return "the secret"

    @tool
    async def fails() -> str:
        """Tell a secret in an error."""
        ran.append("fails")
        raise ValueError("the secret")

    name = "secret" if point == "onToolCallResult" else "fails"
    conversation = Conversation()
    agent: Any = Agent(ScriptedModel(call(name)), tools=[secret, fails])
    out = outcomes(agent)
    agent.add_hook(point, t1.raising(Boom()))
    with pytest.raises(Boom):
        await agent.chat("hi", conversation=conversation)
    assert out == ["onChatStart", "onChatError", "onChatEnd"]
    return ran, conversation


@pytest.mark.parametrize("point", ["onToolCallResult", "onToolCallError"])
async def test_after_a_throw_of_the_redactor_the_tool_is_not_run_again(point: str) -> None:
    ran, _ = await _redacted(point)
    assert len(ran) == 1


@pytest.mark.parametrize("point", ["onToolCallResult", "onToolCallError"])
async def test_history_keeps_ran_result_withheld_and_not_the_value(point: str) -> None:
    _, conversation = await _redacted(point)
    last = conversation.messages[-1]
    assert "ran; its result is withheld" in last.text
    assert "the secret" not in repr(conversation.messages)


async def test_the_withheld_value_is_in_no_event_either() -> None:
    @tool
    async def secret() -> str:
        """Tell a secret."""
        return "the secret"

    agent: Any = Agent(ScriptedModel(call("secret")), tools=[secret])
    agent.add_hook("onToolCallResult", t1.raising(Boom()))
    events: list[Any] = []
    with pytest.raises(Boom):
        await collect(agent.chat_stream("hi"), events)
    assert [event.call_id for event in events if isinstance(event, ToolCallFinished)] == ["call_1"]
    assert "the secret" not in repr(events)


async def test_after_a_throw_in_on_tool_call_result_a_sibling_keeps_its_own_result() -> None:
    conversation = Conversation()
    agent = t1.agent_for("onToolCallResult")
    agent.add_hook("onToolCallResult", t1.raising(Boom()), tools=["report"])
    with pytest.raises(Boom):
        await agent.chat("Add.", conversation=conversation)
    texts = {m.name: m.text for m in conversation.messages if m.role == "tool"}
    assert texts["add"] == "3"
    assert "withheld" in texts["report"]


# ── 8. CancelledError, KeyboardInterrupt, SystemExit ────────────────────────────────────────


@pytest.mark.parametrize("point", [*ENDS, *LATE, *ALONE])
async def test_a_hook_that_raises_cancelled_error_uncancelled_has_failed(point: str) -> None:
    """It counts as a HookError caused by it, with the note; the chat was not aborted."""
    cancelled = asyncio.CancelledError("mine")
    agent = t1.agent_for(point)
    out = outcomes(agent)
    agent.add_hook(point, t1.raising(cancelled, TABLE[point].kind), name="thrower")
    with pytest.raises(HookError) as caught:
        await t1.play(point, agent)
    assert caught.value.__cause__ is cancelled
    assert any("'thrower'" in note and point in note for note in caught.value.__notes__)
    assert "onChatAbort" not in out


async def _cancelled_inside(ctx: Any, proceed: Any = None) -> None:
    """A hook that awaits something which somebody else has cancelled."""
    future = asyncio.get_running_loop().create_future()
    future.cancel()
    await future


@pytest.mark.parametrize("point", [*ENDS, *LATE, *ALONE])
async def test_a_hook_that_awaits_what_was_cancelled_has_failed(point: str) -> None:
    with pytest.raises(HookError):
        await t1.fire(point, _cancelled_inside)


@pytest.mark.parametrize("limit", [None, 60], ids=["no timeout", "with a timeout"])
@KINDS
async def test_standalone_too_cancelled_error_is_a_hook_error(point: type, limit: Any) -> None:
    bus: HookBus[Any] = HookBus()
    bus.add_hook(point, _cancelled_inside, timeout=limit)
    with pytest.raises(HookError) as caught:
        await fire(bus, point)
    assert isinstance(caught.value.__cause__, asyncio.CancelledError)


@KINDS
async def test_cancelled_error_follows_on_error(point: type) -> None:
    out: list[str] = []
    bus: HookBus[Any] = HookBus()
    bus.add_hook(point, _cancelled_inside, on_error="log")
    bus.add_hook(point, tracer(out, point, "next"))
    await fire(bus, point)
    assert out == ["next"]


async def test_cancelled_error_in_a_check_denies_the_call() -> None:
    agent, ran = _denying()
    agent.bus.clear("preToolCall")
    agent.add_hook("preToolCall", _cancelled_inside, on_error="deny")
    assert (await agent.chat("hi")).text == "Done."
    assert ran == []


@KINDS
async def test_a_real_cancellation_is_no_failure_of_the_hook(point: type) -> None:
    bus: HookBus[Any] = HookBus()
    bus.add_hook(point, hanging(point), on_error="log")
    task = asyncio.ensure_future(fire(bus, point))
    for _ in range(3):
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


EXITS = pytest.mark.parametrize("exit_", [KeyboardInterrupt, SystemExit])


@EXITS
@pytest.mark.parametrize("on_error", ["raise", "log"])
@KINDS
async def test_exits_always_propagate(
    point: type, on_error: Any, exit_: type[BaseException]
) -> None:
    out: list[str] = []
    raised = exit_()
    bus: HookBus[Any] = HookBus()
    bus.add_hook(point, tracer(out, point, "exits", raised), on_error=on_error)
    bus.add_hook(point, tracer(out, point, "next"))
    with pytest.raises(exit_) as caught:
        await fire(bus, point)
    assert caught.value is raised
    assert out == ["exits"]


@EXITS
@pytest.mark.parametrize("point", [name for name in TABLE if name not in ("onHook",)])
def test_exits_in_a_chat_leave_the_event_loop(point: str, exit_: type[BaseException]) -> None:
    raised = exit_()

    async def main() -> None:
        await t1.fire(point, t1.raising(raised, TABLE[point].kind))

    _leaves_the_loop(main, raised)


@EXITS
@pytest.mark.parametrize("form", ["chat", "stream"])
@pytest.mark.parametrize("calls", [1, 2], ids=["one call", "two calls"])
@pytest.mark.parametrize("is_async", [True, False], ids=["async", "sync"])
def test_exits_of_a_tool_leave_the_event_loop(
    is_async: bool, calls: int, form: str, exit_: type[BaseException]
) -> None:
    raised = exit_()

    def leave() -> None:
        raise raised

    async def leave_later() -> None:
        await asyncio.sleep(0)
        raise raised

    async def main() -> None:
        made = Tool(leave_later if is_async else leave, name="leave", description="Leave.")
        agent = Agent(ScriptedModel([call("leave") for _ in range(calls)], "done"), tools=[made])
        if form == "chat":
            await agent.chat("hi")
        else:
            await collect(agent.chat_stream("hi"))

    _leaves_the_loop(main, raised)


@EXITS
@pytest.mark.parametrize("form", ["chat", "stream"])
def test_who_waits_for_a_chat_gets_the_exit_itself(form: str, exit_: type[BaseException]) -> None:
    raised = exit_()

    async def leave() -> None:
        raise raised

    async def main() -> None:
        made = Tool(leave, name="leave", description="Leave.")
        agent = Agent(ScriptedModel(call("leave"), "done"), tools=[made])
        if form == "chat":
            await agent.chat("hi")
        else:
            await collect(agent.chat_stream("hi"))

    loop = asyncio.new_event_loop()
    try:
        waiting = loop.create_task(main())
        for _ in range(2):  # out of the chat's task, and out of the one that waits for it
            with pytest.raises(exit_) as caught:
                loop.run_until_complete(waiting)
            assert caught.value is raised
        assert waiting.exception() is raised
    finally:
        _drain(loop)


@EXITS
def test_an_exit_leaves_the_event_loop_though_nobody_reads_the_stream(
    exit_: type[BaseException],
) -> None:
    raised = exit_()

    async def leave() -> None:
        raise raised

    async def main() -> None:
        made = Tool(leave, name="leave", description="Leave.")
        async with Agent(ScriptedModel(call("leave"), "done"), tools=[made]).chat_stream("hi"):
            for _ in range(100):
                await asyncio.sleep(0)

    _leaves_the_loop(main, raised)


def _leaves_the_loop(main: Callable[[], Coroutine[Any, Any, None]], raised: BaseException) -> None:
    """The exit comes out of the event loop, and asyncio complains of no task."""
    complaints: list[Any] = []
    loop = asyncio.new_event_loop()
    loop.set_exception_handler(lambda loop, context: complaints.append(context["message"]))
    try:
        with pytest.raises(type(raised)) as caught:
            loop.run_until_complete(main())
        assert caught.value is raised
    finally:
        _drain(loop)
    raised.__traceback__ = None  # which holds the tasks, and asyncio complains as they are freed
    del caught
    gc.collect()
    assert complaints == []


def _drain(loop: asyncio.AbstractEventLoop) -> None:
    """Let every task end; each that the exit passes on its way out stops the loop once more."""
    ended: set[asyncio.Task[Any]] = set()
    while tasks := asyncio.all_tasks(loop):
        ended |= tasks
        for task in tasks:
            task.cancel()
        with contextlib.suppress(KeyboardInterrupt, SystemExit):
            loop.run_until_complete(asyncio.wait(tasks))
    loop.run_until_complete(loop.shutdown_asyncgens())
    loop.close()
    for task in ended:  # as asyncio.run does with what it has to end
        if not task.cancelled():
            task.exception()


# ── 9. from inside a tool ───────────────────────────────────────────────────────────────────


def _raising_tools(exc: Exception) -> tuple[list[Any], list[str]]:
    ended: list[str] = []
    gate = asyncio.Event()

    @tool
    async def raises() -> str:
        """Raise."""
        gate.set()
        raise exc

    @tool
    async def sibling() -> str:
        """Take longer than its sibling."""
        await gate.wait()
        for _ in range(5):
            await asyncio.sleep(0)
        ended.append("sibling")
        return "fine"

    return [raises, sibling], ended


async def test_tool_denied_in_a_tool_is_a_denial_that_the_model_is_told() -> None:
    tools, ended = _raising_tools(ToolDenied("not on Sundays"))
    model = ScriptedModel([call("raises"), call("sibling")], "I see.")
    response = await Agent(model, tools=tools).chat("hi")
    assert response.text == "I see."
    first, second = response.messages[2:4]
    assert (first.outcome, second.outcome) == ("denied", "ok")
    assert "denied while running: not on Sundays" in first.text
    assert ended == ["sibling"]


async def test_stop_chat_gives_that_call_its_reason_as_result() -> None:
    tools, _ = _raising_tools(StopChat("that is all"))
    model = ScriptedModel([call("raises"), call("sibling")])
    response = await Agent(model, tools=tools).chat("hi")
    assert response.messages[2].text == "that is all"
    assert response.messages[2].outcome == "ok"


async def test_stop_chat_lets_its_siblings_finish() -> None:
    tools, ended = _raising_tools(StopChat("that is all"))
    model = ScriptedModel([call("raises"), call("sibling")])
    response = await Agent(model, tools=tools).chat("hi")
    assert ended == ["sibling"]
    assert response.messages[3].text == "fine"


async def test_stop_chat_stops_the_chat_after_the_step() -> None:
    tools, _ = _raising_tools(StopChat("that is all"))
    steps: list[int] = []
    with ScriptedModel([call("raises"), call("sibling")]) as model:
        agent: Any = Agent(model, tools=tools)
        out = outcomes(agent)
        agent.add_hook("onStep", lambda ctx: steps.append(len(ctx.results)))
        response = await agent.chat("hi")
    assert response.stop_reason == "that is all"
    assert steps == [2]
    assert out == ["onChatStart", "onChatDone", "onChatEnd"]


async def test_stop_chat_from_a_sync_tool_in_its_thread_stops_too() -> None:
    @tool
    def quits() -> str:
        """Stop."""
        raise StopChat("from a thread")

    response = await Agent(ScriptedModel(call("quits")), tools=[quits]).chat("hi")
    assert response.stop_reason == "from a thread"


async def test_the_reason_of_stop_chat_passes_on_tool_call_result() -> None:
    out: list[Any] = []
    tools, _ = _raising_tools(StopChat("that is all"))
    agent: Any = Agent(ScriptedModel(call("raises")), tools=tools)
    agent.add_hook("onToolCallResult", lambda ctx: out.append(ctx.result.value))
    await agent.chat("hi")
    assert out == ["that is all"]


async def test_tool_denied_raised_in_pre_tool_call_counts_as_returning_tool_error() -> None:
    ran: list[str] = []
    errors: list[tuple[str, str]] = []

    @tool
    async def act() -> str:
        """Do something."""
        ran.append("act")
        return ""

    agent: Any = Agent(ScriptedModel(call("act"), "I see."), tools=[act])
    agent.add_hook("preToolCall", t1.raising(ToolDenied("not on Sundays")))
    agent.add_hook("preToolCall", lambda ctx: ran.append("later hook"))
    agent.add_hook(
        "onToolCallError", lambda ctx: errors.append((ctx.error.type, ctx.error.message))
    )
    response = await agent.chat("hi")
    assert (ran, response.text) == ([], "I see.")
    assert errors == [("Denied", "not on Sundays")]
    assert response.messages[2].outcome == "denied"


@pytest.mark.parametrize("on_error", ["raise", "log", "deny"])
async def test_tool_denied_in_pre_tool_call_is_no_throw_whatever_on_error_says(
    on_error: Any,
) -> None:
    agent: Any = Agent(ScriptedModel(call("add", a=1, b=2), "I see."), tools=[t1.add])
    agent.add_hook("preToolCall", t1.raising(ToolDenied("no")), on_error=on_error)
    response = await agent.chat("hi")
    assert '"no"' in response.messages[2].text


@pytest.mark.parametrize(
    ("exc", "point"),
    [
        pytest.param(exc, point, id=f"{type(exc).__name__}-{point}")
        for exc in (ToolDenied("x"), StopChat("x"))
        for point in ("onStep", "onMessage", "onToolCallResult")
    ],
)
async def test_elsewhere_hooks_return_values_and_what_they_raise_is_a_throw(
    exc: Exception, point: str
) -> None:
    with pytest.raises(type(exc)) as caught:
        await t1.fire(point, t1.raising(exc, TABLE[point].kind))
    assert caught.value is exc


async def test_stop_chat_raised_in_pre_tool_call_is_a_throw() -> None:
    stop = StopChat("x")
    with pytest.raises(StopChat) as caught:
        await t1.fire("preToolCall", t1.raising(stop))
    assert caught.value is stop


async def test_a_tool_cannot_catch_what_a_hook_at_on_status_raises() -> None:
    """A throw in onStatus ends the chat, also when a tool sent the status."""
    went_on: list[str] = []

    @tool
    async def stubborn(run: Run) -> str:
        """Report and catch everything."""
        try:
            await run.status("working")
        except Exception:
            went_on.append("caught")
        return ""

    boom = Boom()
    agent: Any = Agent(ScriptedModel(call("stubborn")), tools=[stubborn])
    agent.add_hook("onStatus", t1.raising(boom))
    with pytest.raises(Boom) as caught:
        await agent.chat("hi")
    assert caught.value is boom
    assert went_on == []
