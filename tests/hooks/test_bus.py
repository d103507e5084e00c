"""The bus: registration, order, disposers, what happens during a dispatch, and declared hooks."""

from __future__ import annotations

import asyncio
import functools
import inspect
from threading import Thread
from typing import Any

import pytest

from hookline import (
    Agent,
    HookBus,
    Interceptor,
    ModelResponse,
    NullBus,
    Observer,
    Stop,
    ToolResult,
    Wrapper,
    define_hook,
    tool,
)
from hookline._base.patterns import NamePatterns
from hookline.errors import (
    HookError,
    HookOptionError,
    HookReturnError,
    UnknownHookError,
    UsageError,
)
from hookline.events import TextDelta
from hookline.models import TextChunk
from hookline.points import TABLE, OnChatStart, OnMessage, PreRequest, PreToolCall
from hookline.testing import ScriptedModel, call


class Said(Observer, frozen=True):
    text: str = ""


class Word(Interceptor[str], frozen=True):
    word: str = ""


class Work(Wrapper[str], frozen=True):
    job: str = ""


KINDS = pytest.mark.parametrize("point", [Said, Word, Work], ids=["notify", "intercept", "wrap"])


async def fire(bus: HookBus[Any], point: type) -> None:
    """Fire the point of one of the three kinds."""
    if point is Said:
        await bus.notify(Said())
    elif point is Word:
        await bus.intercept(Word())
    else:
        await bus.wrap(Work(), _inner)


async def _inner(job: str) -> str:
    return job


def tracer(out: list[str], point: type, name: str, then: Any = None) -> Any:
    """A hook that writes its name, does `then()`, and changes nothing."""

    def hook(ctx: Any) -> None:
        out.append(name)
        if then is not None:
            then()

    async def wrapper(ctx: Any, proceed: Any) -> Any:
        hook(ctx)
        return await proceed()

    return wrapper if point is Work else hook


def traced(out: list[str], name: str) -> Any:
    def hook(ctx: Any) -> None:
        out.append(name)

    return hook


# ── observers ───────────────────────────────────────────────────────────────────────────────


async def test_one_event_fans_out_to_all_observers_of_the_point() -> None:
    out: list[Any] = []
    bus: HookBus[Any] = HookBus()
    for name in "abc":
        bus.add_hook(Said, lambda ctx, name=name: out.append((name, ctx.text)))
    await bus.notify(Said("hi"))
    assert out == [("a", "hi"), ("b", "hi"), ("c", "hi")]


async def test_observers_run_one_after_the_other_each_awaited() -> None:
    out: list[str] = []
    bus: HookBus[Any] = HookBus()
    gate = asyncio.Event()

    async def slow(ctx: Said) -> None:
        out.append("slow begins")
        await gate.wait()
        out.append("slow ends")

    bus.add_hook(Said, slow)
    bus.add_hook(Said, traced(out, "next"))
    task = asyncio.create_task(bus.notify(Said()))
    for _ in range(5):
        await asyncio.sleep(0)
    assert out == ["slow begins"]
    gate.set()
    await task
    assert out == ["slow begins", "slow ends", "next"]


async def test_what_an_observer_returns_is_ignored() -> None:
    out: list[str] = []
    bus: HookBus[Any] = HookBus()
    bus.add_hook(Said, lambda ctx: Stop("no"))
    bus.add_hook(Said, lambda ctx: 42)
    bus.add_hook(Said, traced(out, "last"))
    await bus.notify(Said())
    assert out == ["last"]


async def test_in_a_chat_too_what_an_observer_returns_is_ignored() -> None:
    agent = Agent(ScriptedModel("Hello."), hooks={"onMessage": lambda ctx: Stop("no")})
    response = await agent.chat("hi")
    assert (response.text, response.stop_reason) == ("Hello.", None)


# ── what may be a hook ──────────────────────────────────────────────────────────────────────


async def _write(out: list[str], ctx: Said) -> None:
    await asyncio.sleep(0)
    out.append(ctx.text)


class _Writer:
    def __init__(self, out: list[str]) -> None:
        self.out = out

    async def __call__(self, ctx: Said) -> None:
        await _write(self.out, ctx)

    async def method(self, ctx: Said) -> None:
        await _write(self.out, ctx)


CALLABLES = {
    "sync function": lambda out: lambda ctx: out.append(ctx.text),
    "builtin method": lambda out: lambda ctx: list.append(out, ctx.text),
    "async function": lambda out: functools.partial(_write, out),
    "sync that returns a coroutine": lambda out: lambda ctx: _write(out, ctx),
    "sync that returns a task": lambda out: lambda ctx: asyncio.ensure_future(_write(out, ctx)),
    "bound async method": lambda out: _Writer(out).method,
    "object with async __call__": _Writer,
}


@pytest.mark.parametrize("make", CALLABLES.values(), ids=CALLABLES.keys())
async def test_a_hook_is_any_callable_and_an_awaitable_that_it_returns_is_awaited(
    make: Any,
) -> None:
    out: list[str] = []
    bus: HookBus[Any] = HookBus()
    bus.add_hook(Said, make(out))
    await bus.notify(Said("hi"))
    assert out == ["hi"]


async def test_an_interceptor_may_be_a_sync_function_that_returns_an_awaitable() -> None:
    async def answer(word: str) -> str:
        return word + "!"

    bus: HookBus[Any] = HookBus()
    bus.add_hook(Word, lambda ctx: answer(ctx.word))
    assert await bus.intercept(Word("hi")) == "hi!"


# ── interceptors ────────────────────────────────────────────────────────────────────────────


async def test_each_interceptor_sees_what_the_previous_one_returned() -> None:
    seen: list[str] = []
    bus: HookBus[Any] = HookBus()

    def add(letter: str) -> Any:
        def hook(ctx: Word) -> str:
            seen.append(ctx.word)
            return ctx.word + letter

        return hook

    for letter in "abc":
        bus.add_hook(Word, add(letter))
    assert await bus.intercept(Word("-")) == "-abc"
    assert seen == ["-", "-a", "-ab"]


async def test_none_from_an_interceptor_means_unchanged() -> None:
    bus: HookBus[Any] = HookBus()
    bus.add_hook(Word, lambda ctx: ctx.word + "a")
    bus.add_hook(Word, lambda ctx: None)
    bus.add_hook(Word, lambda ctx: ctx.word + "b")
    assert await bus.intercept(Word("-")) == "-ab"


async def test_a_wrong_return_type_names_hook_point_type_and_the_types_allowed() -> None:
    bus: HookBus[Any] = HookBus()
    bus.add_hook(Word, lambda ctx: 42, name="counter")
    with pytest.raises(HookReturnError) as caught:
        await bus.intercept(Word("hi"))
    assert caught.value.hook == "counter"
    assert caught.value.point == "Word"
    assert caught.value.value_type is int
    for word in ("'counter'", "Word", "int", "str", "None"):
        assert word in str(caught.value)


# ── wrappers ────────────────────────────────────────────────────────────────────────────────


async def test_the_first_wrapper_in_order_is_the_outermost() -> None:
    out: list[str] = []
    bus: HookBus[Any] = HookBus()

    def around(name: str) -> Any:
        async def wrapper(ctx: Work, proceed: Any) -> str:
            out.append(f"{name} in")
            result = await proceed()
            out.append(f"{name} out")
            return f"{name}({result})"

        return wrapper

    async def inner(job: str) -> str:
        out.append(job)
        return job

    bus.add_hook(Work, around("b"))
    bus.add_hook(Work, around("a"), priority=1)
    assert await bus.wrap(Work("job"), inner) == "a(b(job))"
    assert out == ["a in", "b in", "job", "b out", "a out"]


async def test_proceed_goes_on_with_the_payload_as_it_stands_or_with_another() -> None:
    seen: list[str] = []
    bus: HookBus[Any] = HookBus()

    async def changes(ctx: Work, proceed: Any) -> str:
        seen.append(ctx.job)
        return await proceed(ctx.job + "+")

    async def leaves(ctx: Work, proceed: Any) -> str:
        seen.append(ctx.job)
        return await proceed()

    bus.add_hook(Work, changes)
    bus.add_hook(Work, leaves)
    assert await bus.wrap(Work("job"), _inner) == "job+"
    assert seen == ["job", "job+"]


async def test_a_wrapper_that_returns_without_proceed_short_circuits() -> None:
    out: list[str] = []
    bus: HookBus[Any] = HookBus()

    async def cached(ctx: Work, proceed: Any) -> str:
        return "cached"

    async def inner(job: str) -> str:
        out.append("inner")
        return job

    bus.add_hook(Work, cached)
    bus.add_hook(Work, tracer(out, Work, "inside"))
    assert await bus.wrap(Work("job"), inner) == "cached"
    assert out == []


async def test_a_wrapper_may_call_proceed_again() -> None:
    out: list[str] = []
    bus: HookBus[Any] = HookBus()

    async def retry(ctx: Work, proceed: Any) -> str:
        try:
            return await proceed()
        except OSError:
            return await proceed("second")

    async def inner(job: str) -> str:
        out.append(job)
        if len(out) == 1:
            raise OSError("first")
        return job

    bus.add_hook(Work, retry)
    bus.add_hook(Work, tracer(out_inside := [], Work, "inside"))
    assert await bus.wrap(Work("first"), inner) == "second"
    assert out == ["first", "second"]
    assert out_inside == ["inside", "inside"]


async def test_proceed_with_a_wrong_type_is_an_error_of_that_wrapper() -> None:
    bus: HookBus[Any] = HookBus()

    async def wrong(ctx: Work, proceed: Any) -> str:
        return await proceed(42)

    bus.add_hook(Work, wrong, name="wrong")
    with pytest.raises(HookReturnError, match=r"'wrong' at Work returned a value of type int.*str"):
        await bus.wrap(Work("job"), _inner)


async def test_proceed_called_while_it_runs_is_an_error() -> None:
    bus: HookBus[Any] = HookBus()

    async def twice(ctx: Work, proceed: Any) -> str:
        first = asyncio.ensure_future(proceed())
        await asyncio.sleep(0)
        try:
            return await proceed()
        finally:
            first.cancel()

    async def hangs(job: str) -> str:
        await asyncio.Event().wait()
        return job

    bus.add_hook(Work, twice)
    with pytest.raises(HookError, match="still running"):
        await bus.wrap(Work("job"), hangs)


# ── payloads ────────────────────────────────────────────────────────────────────────────────

PAYLOADS = sorted(
    {each for head in TABLE.values() for each in (*head.acts, head.context)},
    key=lambda each: each.__name__,
)


@pytest.mark.parametrize("payload", PAYLOADS, ids=lambda each: each.__name__)
def test_every_payload_is_immutable_and_has_replace(payload: Any) -> None:
    assert payload.__struct_config__.frozen
    assert callable(payload.replace)


async def test_replace_makes_a_changed_copy_and_leaves_the_original() -> None:
    seen: list[Any] = []

    def concise(ctx: PreRequest[Any]) -> Any:
        seen.append(ctx.request)
        return ctx.request.replace(system=f"{ctx.request.system}\nBe concise.")

    model = ScriptedModel("Hello.")
    await Agent(model, system="Help.", hooks={"preRequest": concise}).chat("hi")
    assert seen[0].system == "Help."
    assert model.last_request.system == "Help.\nBe concise."
    with pytest.raises(AttributeError):
        seen[0].system = "changed"


def test_replace_with_an_unknown_field_is_a_type_error() -> None:
    with pytest.raises(TypeError):
        Stop("why").replace(raeson="typo")


# ── order ───────────────────────────────────────────────────────────────────────────────────


@KINDS
async def test_higher_priority_runs_first_and_ties_in_registration_order(point: type) -> None:
    out: list[str] = []
    bus: HookBus[Any] = HookBus()
    for name, priority in [("a", 0), ("b", -5), ("c", 200), ("d", 0), ("e", 200), ("f", 100)]:
        bus.add_hook(point, tracer(out, point, name), priority=priority)
    await fire(bus, point)
    assert out == ["c", "e", "f", "a", "d", "b"]


async def test_the_default_priority_is_0() -> None:
    out: list[str] = []
    bus: HookBus[Any] = HookBus()
    bus.add_hook(Said, traced(out, "minus"), priority=-1)
    bus.add_hook(Said, traced(out, "default"))
    bus.add_hook(Said, traced(out, "plus"), priority=1)
    await bus.notify(Said())
    assert out == ["plus", "default", "minus"]


async def test_a_hook_added_again_after_its_disposal_stands_last_among_its_equals() -> None:
    out: list[str] = []
    bus: HookBus[Any] = HookBus()
    a = traced(out, "a")
    dispose = bus.add_hook(Said, a)
    bus.add_hook(Said, traced(out, "b"))
    dispose()
    bus.add_hook(Said, a)
    await bus.notify(Said())
    assert out == ["b", "a"]


# ── disposers ───────────────────────────────────────────────────────────────────────────────


@KINDS
async def test_a_disposer_removes_the_hook(point: type) -> None:
    out: list[str] = []
    bus: HookBus[Any] = HookBus()
    dispose = bus.add_hook(point, tracer(out, point, "a"))
    dispose()
    await fire(bus, point)
    assert out == []
    assert bus.hooks() == ()


@pytest.mark.parametrize("first", [0, 1], ids=["the first", "the second"])
async def test_a_disposer_removes_that_registration_and_no_other_of_the_same_function(
    first: int,
) -> None:
    bus: HookBus[Any] = HookBus()

    def hook(ctx: Said) -> None: ...

    disposers = [bus.add_hook(Said, hook, name=name) for name in ("first", "second")]
    disposers[first]()
    assert [info.name for info in bus.hooks()] == [["first", "second"][1 - first]]


async def test_a_disposer_called_twice_is_harmless() -> None:
    out: list[str] = []
    bus: HookBus[Any] = HookBus()
    hook = traced(out, "again")
    dispose = bus.add_hook(Said, hook)
    dispose()
    bus.add_hook(Said, hook)
    dispose()
    await bus.notify(Said())
    assert out == ["again"]


async def test_a_disposer_works_as_a_context_manager() -> None:
    out: list[str] = []
    bus: HookBus[Any] = HookBus()
    with bus.add_hook(Said, traced(out, "a")):
        await bus.notify(Said())
    await bus.notify(Said())
    assert out == ["a"]


async def test_a_disposer_removes_its_hook_also_when_its_block_raises() -> None:
    bus: HookBus[Any] = HookBus()
    with pytest.raises(KeyError), bus.add_hook(Said, traced([], "a")):
        raise KeyError
    assert bus.hooks() == ()


async def test_a_disposer_works_from_another_thread() -> None:
    out: list[str] = []
    bus: HookBus[Any] = HookBus()
    dispose = bus.add_hook(Said, traced(out, "a"))
    bus.add_hook(Said, traced(out, "b"))
    thread = Thread(target=dispose)
    thread.start()
    thread.join()
    await bus.notify(Said())
    assert out == ["b"]


def test_hooks_may_be_added_and_disposed_in_many_threads_at_once() -> None:
    bus: HookBus[Any] = HookBus()
    kept = [bus.add_hook(Said, traced([], "kept"), name="kept") for _ in range(3)]

    def work() -> None:
        for _ in range(200):
            bus.add_hook(Said, lambda ctx: None)()

    threads = [Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [info.name for info in bus.hooks()] == ["kept"] * len(kept)


async def test_a_disposed_hook_is_gone_from_a_chat_that_runs() -> None:
    out: list[str] = []
    agent = Agent(ScriptedModel("abc", chunk=1))

    def once(ctx: Any) -> None:
        out.append(ctx.delta.text)
        dispose()

    dispose = agent.add_hook("onDelta", once)
    await agent.chat("hi")
    assert out == ["a"]


async def test_a_hook_added_to_a_chat_that_runs_is_called_by_it() -> None:
    out: list[str] = []
    agent = Agent(ScriptedModel("Hello."))
    agent.add_hook("onChatStart", lambda ctx: agent.add_hook("onChatEnd", traced(out, "added")))
    await agent.chat("hi")
    assert out == ["added"]


# ── during a dispatch ───────────────────────────────────────────────────────────────────────


@KINDS
async def test_a_hook_that_disposes_itself_does_not_make_the_next_one_skipped(point: type) -> None:
    out: list[str] = []
    bus: HookBus[Any] = HookBus()
    bus.add_hook(point, tracer(out, point, "a"))
    dispose = bus.add_hook(point, tracer(out, point, "once", lambda: dispose()))
    bus.add_hook(point, tracer(out, point, "b"))
    bus.add_hook(point, tracer(out, point, "c"))
    await fire(bus, point)
    await fire(bus, point)
    assert out == ["a", "once", "b", "c", "a", "b", "c"]


@KINDS
async def test_nobody_is_skipped_when_an_earlier_hook_is_disposed(point: type) -> None:
    out: list[str] = []
    bus: HookBus[Any] = HookBus()
    dispose = bus.add_hook(point, tracer(out, point, "a"))
    bus.add_hook(point, tracer(out, point, "b", dispose))
    bus.add_hook(point, tracer(out, point, "c"))
    await fire(bus, point)
    assert out == ["a", "b", "c"]


@KINDS
async def test_a_hook_disposed_during_the_dispatch_is_not_called_any_more(point: type) -> None:
    out: list[str] = []
    bus: HookBus[Any] = HookBus()
    bus.add_hook(point, tracer(out, point, "a", lambda: dispose()))
    dispose = bus.add_hook(point, tracer(out, point, "b"))
    bus.add_hook(point, tracer(out, point, "c"))
    await fire(bus, point)
    assert out == ["a", "c"]


@KINDS
async def test_of_two_hooks_that_dispose_each_other_the_first_runs(point: type) -> None:
    out: list[str] = []
    bus: HookBus[Any] = HookBus()
    disposers: list[Any] = []
    disposers.append(bus.add_hook(point, tracer(out, point, "a", lambda: disposers[1]())))
    disposers.append(bus.add_hook(point, tracer(out, point, "b", lambda: disposers[0]())))
    await fire(bus, point)
    await fire(bus, point)
    assert out == ["a", "a"]


@KINDS
async def test_a_hook_added_during_the_dispatch_waits_for_the_next_one(point: type) -> None:
    out: list[str] = []
    bus: HookBus[Any] = HookBus()
    added: list[Any] = []

    def add() -> None:
        if not added:
            added.append(bus.add_hook(point, tracer(out, point, "last"), priority=-1))
            added.append(bus.add_hook(point, tracer(out, point, "first"), priority=1))

    bus.add_hook(point, tracer(out, point, "adds", add))
    await fire(bus, point)
    assert out == ["adds"]
    await fire(bus, point)
    assert out == ["adds", "first", "adds", "last"]


@KINDS
async def test_clear_during_the_dispatch_ends_it(point: type) -> None:
    out: list[str] = []
    bus: HookBus[Any] = HookBus()
    bus.add_hook(point, tracer(out, point, "a", bus.clear))
    bus.add_hook(point, tracer(out, point, "b"))
    await fire(bus, point)
    assert out == ["a"]


async def test_a_hook_that_is_disposed_while_it_waits_is_not_broken_off() -> None:
    out: list[str] = []
    bus: HookBus[Any] = HookBus()
    gate = asyncio.Event()

    async def waits(ctx: Said) -> None:
        await gate.wait()
        out.append("whole")

    dispose = bus.add_hook(Said, waits)
    task = asyncio.create_task(bus.notify(Said()))
    await asyncio.sleep(0)
    dispose()
    gate.set()
    await task
    assert out == ["whole"]


async def test_a_wrapper_disposed_between_two_calls_of_proceed_is_not_called_by_the_second() -> (
    None
):
    out: list[str] = []
    bus: HookBus[Any] = HookBus()

    async def twice(ctx: Work, proceed: Any) -> str:
        await proceed()
        dispose()
        return await proceed()

    bus.add_hook(Work, twice)
    dispose = bus.add_hook(Work, tracer(out, Work, "inside"))
    await bus.wrap(Work("job"), _inner)
    assert out == ["inside"]


async def test_a_delta_hook_that_disposes_itself_is_not_called_for_the_next_delta() -> None:
    out: list[str] = []
    agent = Agent(ScriptedModel("x"))

    @agent.hook("onDelta")
    def doubles(ctx: Any) -> Any:
        if isinstance(ctx.delta, TextChunk):
            return (TextChunk("a"), TextChunk("b"))
        return None

    def once(ctx: Any) -> None:
        out.append(ctx.delta.text)
        dispose()

    dispose = agent.add_hook("onDelta", once)
    assert (await agent.chat("hi")).text == "ab"
    assert out == ["a"]


async def test_dispatches_that_overlap_do_not_disturb_each_other() -> None:
    out: list[str] = []
    bus: HookBus[Any] = HookBus()

    async def hook(ctx: Said) -> None:
        out.append(f"{ctx.text} in")
        await asyncio.sleep(0)
        out.append(f"{ctx.text} out")

    bus.add_hook(Said, hook)
    bus.add_hook(Said, lambda ctx: out.append(f"{ctx.text} next"))
    await asyncio.gather(bus.notify(Said("a")), bus.notify(Said("b")))
    for each in "ab":
        mine = [line for line in out if line.startswith(each)]
        assert mine == [f"{each} in", f"{each} out", f"{each} next"]


async def test_a_hook_may_fire_its_own_point_again() -> None:
    out: list[str] = []
    bus: HookBus[Any] = HookBus()

    async def nested(ctx: Said) -> None:
        out.append(ctx.text)
        if ctx.text == "outer":
            await bus.notify(Said("inner"))

    bus.add_hook(Said, nested)
    await bus.notify(Said("outer"))
    assert out == ["outer", "inner"]


# ── names and classes of points ─────────────────────────────────────────────────────────────


@pytest.mark.parametrize("head", TABLE.values(), ids=TABLE.keys())
def test_the_context_class_may_stand_for_the_name(head: Any) -> None:
    async def hook(ctx: Any, proceed: Any = None) -> None: ...

    bus: HookBus[Any] = HookBus()
    bus.add_hook(head.context, hook)
    assert [info.point for info in bus.hooks(head.name)] == [head.name]


def test_a_context_class_with_its_deps_type_stands_for_the_name_too() -> None:
    bus: HookBus[Any] = HookBus()
    bus.add_hook(PreToolCall[str], lambda ctx: None)
    assert [info.point for info in bus.hooks()] == ["preToolCall"]


@pytest.mark.parametrize(
    ("name", "closest"),
    [("onMesage", "onMessage"), ("preToolcall", "preToolCall"), ("OnStep", "onStep")],
)
def test_an_unknown_name_raises_with_the_closest_names(name: str, closest: str) -> None:
    with pytest.raises(UnknownHookError) as caught:
        HookBus[Any]().add_hook(name, lambda ctx: None)
    assert caught.value.closest[0] == closest
    assert name in str(caught.value)
    assert closest in str(caught.value)


@pytest.mark.parametrize("point", ["zzz", "", int, None, 3, ("a", "tuple")], ids=repr)
def test_what_is_no_point_at_all_raises_unknown_hook_error(point: Any) -> None:
    with pytest.raises(UnknownHookError):
        HookBus[Any]().add_hook(point, lambda ctx: None)


@pytest.mark.parametrize(
    "use", ["add_hook", "hook", "hooks", "clear", "Agent", "define_hook", "chat"]
)
async def test_an_unknown_name_is_refused_wherever_it_is_given(use: str) -> None:
    agent: Any = Agent(ScriptedModel("Hello."))
    uses: dict[str, Any] = {
        "add_hook": lambda: agent.add_hook("onMesage", _sync),
        "hook": lambda: agent.hook("onMesage")(_sync),
        "hooks": lambda: agent.hooks("onMesage"),
        "clear": lambda: agent.bus.clear("onMesage"),
        "Agent": lambda: Agent(ScriptedModel(), hooks={"onMesage": _sync}),
        "define_hook": lambda: define_hook("onMesage", _sync),
        "chat": lambda: asyncio.get_running_loop().create_task(
            agent.chat("hi", hooks={"onMesage": _sync})
        ),
    }
    with pytest.raises(UnknownHookError, match="onMessage"):
        await uses[use]()


# ── options ─────────────────────────────────────────────────────────────────────────────────


def _sync(ctx: Any) -> None: ...


async def _async(ctx: Any, proceed: Any = None) -> None: ...


NO_TOOL = [head.name for head in TABLE.values() if not head.at_tool]
NO_DENY = [name for name in TABLE if name != "preToolCall"]
WRAPPERS = [head.name for head in TABLE.values() if head.kind == "wrapper"]


def _generator(ctx: Any) -> Any:
    yield


async def _async_generator(ctx: Any) -> Any:
    yield


REFUSED: dict[str, tuple[str, Any, dict[str, Any]]] = {
    **{f"tools= at {name}": (name, _async, {"tools": ["add"]}) for name in NO_TOOL},
    **{f"deny at {name}": (name, _async, {"on_error": "deny"}) for name in NO_DENY},
    **{f"sync wrapper at {name}": (name, _sync, {}) for name in WRAPPERS},
    "a generator": ("onMessage", _generator, {}),
    "an async generator": ("onMessage", _async_generator, {}),
    "timeout= on a sync hook": ("onMessage", _sync, {"timeout": 1.0}),
    "timeout=0": ("onMessage", _async, {"timeout": 0}),
    "timeout=-1": ("onMessage", _async, {"timeout": -1.0}),
    "timeout=nan": ("onMessage", _async, {"timeout": float("nan")}),
    "timeout='1'": ("onMessage", _async, {"timeout": "1"}),
    "priority='high'": ("onMessage", _sync, {"priority": "high"}),
    "priority=1.5": ("onMessage", _sync, {"priority": 1.5}),
    "on_error='ignore'": ("onMessage", _sync, {"on_error": "ignore"}),
    "tools='add'": ("preToolCall", _sync, {"tools": "add"}),
    "tools=[]": ("preToolCall", _sync, {"tools": []}),
    "tools=['']": ("preToolCall", _sync, {"tools": ["add", ""]}),
    "tools=[1]": ("preToolCall", _sync, {"tools": [1]}),
    "no callable": ("onMessage", "hook", {}),
    "a definition": ("preToolCall", define_hook("preToolCall", _sync, guard=True), {}),
}


@pytest.mark.parametrize("option", ["prio", "origin"])
@pytest.mark.parametrize("way", ["add_hook", "hook", "define_hook"])
def test_unknown_options_are_refused(way: str, option: str) -> None:
    bus: Any = HookBus()
    ways: dict[str, Any] = {
        "add_hook": lambda **options: bus.add_hook("onMessage", _sync, **options),
        "hook": lambda **options: bus.hook("onMessage", **options)(_sync),
        "define_hook": lambda **options: define_hook("onMessage", _sync, **options),
    }
    with pytest.raises(HookOptionError, match=option):
        ways[way](**{option: "agent"})


@pytest.mark.parametrize("way", ["add_hook", "define_hook"])
@pytest.mark.parametrize(("point", "hook", "options"), REFUSED.values(), ids=REFUSED.keys())
def test_options_that_do_not_fit_are_refused_and_nothing_is_registered(
    point: str, hook: Any, options: dict[str, Any], way: str
) -> None:
    bus: Any = HookBus()
    add: Any = bus.add_hook if way == "add_hook" else define_hook
    with pytest.raises(HookOptionError):
        add(point, hook, **options)
    assert bus.hooks() == ()


def test_a_refusal_names_point_hook_and_what_is_wrong() -> None:
    with pytest.raises(HookOptionError) as caught:
        HookBus[Any]().add_hook("onMessage", _sync, on_error="deny", name="guard")
    for word in ("guard", "onMessage", "deny", "preToolCall"):
        assert word in str(caught.value)


@pytest.mark.parametrize(
    "make",
    [
        lambda: functools.partial(_write, []),
        lambda: _Writer([]),
        lambda: _Writer([]).method,
    ],
    ids=["partial", "object", "method"],
)
def test_timeout_is_taken_for_every_shape_of_async_hook(make: Any) -> None:
    bus: HookBus[Any] = HookBus()
    bus.add_hook(Said, make(), timeout=1.0)
    assert [info.timeout for info in bus.hooks()] == [1.0]


# ── tools= ──────────────────────────────────────────────────────────────────────────────────

AT_TOOL = [head.name for head in TABLE.values() if head.at_tool]


@tool
async def good(word: str) -> str:
    """Succeed."""
    return word


@tool
async def other(word: str) -> str:
    """Succeed as well."""
    return word


@tool
async def bad(word: str) -> str:
    """Fail."""
    raise ValueError(word)


@tool
async def worse(word: str) -> str:
    """Fail as well."""
    raise ValueError(word)


async def _names(point: str, **options: Any) -> list[str]:
    """The tools whose calls reached the hook."""
    calls = [call(name, word=name) for name in ("good", "other", "bad", "worse", "nobody")]
    agent: Any = Agent(ScriptedModel(calls, "Done."), tools=[good, other, bad, worse])
    out: list[str] = []

    async def wrapper(ctx: Any, proceed: Any) -> Any:
        out.append(ctx.call.name)
        return await proceed()

    hook = wrapper if point == "aroundToolCall" else lambda ctx: out.append(ctx.call.name)
    agent.add_hook(point, hook, **options)
    await agent.chat("hi")
    return sorted(out)


@pytest.mark.parametrize("point", AT_TOOL)
async def test_tools_limits_a_tool_hook_to_those_tools(point: str) -> None:
    everything = await _names(point)
    assert len(everything) >= 2
    assert await _names(point, tools=everything[:1]) == everything[:1]
    assert await _names(point, tools=everything[1:]) == everything[1:]


@pytest.mark.parametrize("point", AT_TOOL)
async def test_tools_takes_patterns(point: str) -> None:
    reached = await _names(point)
    assert await _names(point, tools=["*"]) == reached
    fit = [name for name in reached if name in ("bad", "worse") or name.endswith("od")]
    assert await _names(point, tools=["*od", "[bw]*"]) == fit
    assert await _names(point, tools=["GOOD", "oo", "*x*"]) == []


def test_names_are_remembered_and_not_without_a_bound() -> None:
    patterns = NamePatterns(("fs_*",))
    for number in range(5000):  # a model can make up any number of names
        assert f"fs_{number}" in patterns
        assert f"xs_{number}" not in patterns
    assert 0 < len(patterns._cache) <= 1024  # pyright: ignore[reportPrivateUsage]


async def test_tools_may_be_an_iterator() -> None:
    assert await _names("preToolCall", tools=iter(["good", "bad"])) == ["bad", "good"]


# ── decorator and table ─────────────────────────────────────────────────────────────────────


async def test_the_decorator_registers_and_gives_the_function_back() -> None:
    out: list[str] = []
    agent = Agent(ScriptedModel("Hello."))

    @agent.hook("onChatStart")
    def sync(ctx: OnChatStart[Any]) -> None:
        out.append("sync")

    @agent.hook(OnChatStart, priority=1, name="first")
    async def later(ctx: OnChatStart[Any]) -> None:
        out.append("async")

    await agent.chat("hi")
    assert out == ["async", "sync"]
    assert sync.__name__ == "sync"
    assert inspect.iscoroutinefunction(later)
    assert [info.name for info in agent.hooks()] == ["first", sync.__qualname__]


async def test_one_function_may_be_decorated_for_two_points() -> None:
    agent = Agent(ScriptedModel("Hello."))
    out: list[str] = []

    @agent.hook("onChatStart")
    @agent.hook("onChatEnd")
    def both(ctx: Any) -> None:
        out.append(type(ctx).__name__)

    await agent.chat("hi")
    assert out == ["OnChatStart", "OnChatEnd"]


async def test_the_table_form_takes_names_classes_and_lists() -> None:
    out: list[str] = []
    hooks = {
        "onChatStart": traced(out, "name"),
        OnMessage: traced(out, "class"),
        "onChatEnd": [traced(out, "one"), traced(out, "two")],
    }
    await Agent(ScriptedModel("Hello."), hooks=hooks).chat("hi")
    assert out == ["name", "class", "class", "one", "two"]


def test_a_hook_is_named_after_its_function_unless_it_is_given_a_name() -> None:
    bus: HookBus[Any] = HookBus()
    bus.add_hook(Said, _sync)
    bus.add_hook(Said, _sync, name="mine")
    bus.add_hook(Said, _Writer([]))
    assert [info.name for info in bus.hooks()] == ["_sync", "mine", "_Writer"]


def test_a_partial_is_named_after_the_function_in_it() -> None:
    bus: HookBus[Any] = HookBus()
    bus.add_hook(Said, functools.partial(_write, []))
    assert [info.name for info in bus.hooks()] == ["_write"]


# ── hooks() and clear() ─────────────────────────────────────────────────────────────────────


def test_hooks_lists_point_name_priority_and_origin() -> None:
    agent = Agent(ScriptedModel(), hooks={"onMessage": _sync})
    agent.add_hook("onChatStart", _sync, priority=3, name="starts")
    listed = [(info.point, info.name, info.priority, info.origin) for info in agent.hooks()]
    assert listed == [("onChatStart", "starts", 3, "add_hook"), ("onMessage", "_sync", 0, "agent")]


def test_hooks_lists_the_options_too() -> None:
    bus: HookBus[Any] = HookBus()
    bus.add_hook("preToolCall", _async, timeout=2.0, on_error="deny", tools=["b", "a"])
    (info,) = bus.hooks()
    assert (info.timeout, info.on_error, info.tools) == (2.0, "deny", ("a", "b"))


def test_hooks_are_listed_in_the_order_of_a_chat_and_of_firing() -> None:
    bus: HookBus[Any] = HookBus()
    for point in reversed(TABLE):
        bus.add_hook(point, _async, name="second")
        bus.add_hook(point, _async, name="first", priority=1)
    bus.add_hook(Said, _sync, name="own")
    listed = [(info.point, info.name) for info in bus.hooks()]
    expected = [(point, name) for point in TABLE for name in ("first", "second")]
    assert listed == [*expected, ("Said", "own")]


@pytest.mark.parametrize("point", ["onMessage", OnMessage], ids=["name", "class"])
def test_hooks_of_one_point(point: Any) -> None:
    bus: HookBus[Any] = HookBus()
    bus.add_hook("onMessage", _sync)
    bus.add_hook("onStep", _sync)
    assert [info.point for info in bus.hooks(point)] == ["onMessage"]


@pytest.mark.parametrize("point", ["onMessage", OnMessage], ids=["name", "class"])
def test_clear_removes_the_hooks_of_one_point(point: Any) -> None:
    bus: HookBus[Any] = HookBus()
    bus.add_hook("onMessage", _sync)
    bus.add_hook("onMessage", _sync)
    bus.add_hook("onStep", _sync)
    bus.clear(point)
    assert [info.point for info in bus.hooks()] == ["onStep"]


async def test_clear_removes_all_hooks() -> None:
    out: list[str] = []
    bus: HookBus[Any] = HookBus()
    bus.add_hook("onMessage", _sync)
    dispose = bus.add_hook(Said, traced(out, "own"))
    bus.clear()
    dispose()  # harmless
    await bus.notify(Said())
    assert (bus.hooks(), out) == ((), [])


# ── Agent(bus=…), a shared bus, NullBus ─────────────────────────────────────────────────────


async def test_an_agent_takes_another_bus_with_the_hooks_that_stand_there() -> None:
    out: list[str] = []
    bus: HookBus[Any] = HookBus()
    bus.add_hook("onChatStart", traced(out, "before"))
    agent = Agent(ScriptedModel("Hello."), bus=bus)
    bus.add_hook("onChatEnd", traced(out, "after"))
    await agent.chat("hi")
    assert agent.bus is bus
    assert out == ["before", "after"]


async def test_two_agents_may_share_a_bus() -> None:
    out: list[str] = []
    bus: HookBus[Any] = HookBus()
    first = Agent(ScriptedModel("Hello."), name="first", bus=bus)
    second = Agent(ScriptedModel("Hello."), name="second", bus=bus)
    dispose = first.add_hook("onChatStart", lambda ctx: out.append(ctx.run.agent))
    await first.chat("hi")
    await second.chat("hi")
    assert out == ["first", "second"]
    assert first.hooks() == second.hooks()
    dispose()
    assert second.hooks() == ()


async def test_a_subscriber_of_a_shared_bus_gets_the_events_of_both_agents() -> None:
    bus: HookBus[Any] = HookBus()
    with bus.subscribe(TextDelta) as events:
        await Agent(ScriptedModel("one"), bus=bus).chat("hi")
        await Agent(ScriptedModel("two"), bus=bus).chat("hi")
    assert [event.text async for event in events] == ["one", "two"]


@KINDS
async def test_a_null_bus_runs_no_hook(point: type) -> None:
    out: list[str] = []
    bus: HookBus[Any] = NullBus()
    bus.add_hook(point, tracer(out, point, "never"))
    await fire(bus, point)
    assert out == []


async def test_an_agent_with_a_null_bus_runs_no_hook() -> None:
    out: list[str] = []
    agent = Agent(
        ScriptedModel("Hello."), bus=NullBus(), hooks={"onChatStart": traced(out, "declared")}
    )
    agent.add_hook("onMessage", traced(out, "added"))
    response = await agent.chat("hi")
    assert (response.text, out) == ("Hello.", [])


async def test_an_agent_with_a_null_bus_runs_no_hook_of_a_chat_either() -> None:
    out: list[str] = []
    agent = Agent(ScriptedModel("Hello."), bus=NullBus())
    await agent.chat("hi", hooks={"onMessage": traced(out, "chat's own")})
    assert out == []


def test_a_null_bus_takes_registrations_and_gives_disposers() -> None:
    bus: HookBus[Any] = NullBus()
    bus.add_hook("onMessage", _sync)()
    with pytest.raises(UnknownHookError):
        bus.add_hook("onMesage", _sync)


# ── declared hooks ──────────────────────────────────────────────────────────────────────────


def declared(out: list[str], name: str, **options: Any) -> Any:
    return define_hook("onChatStart", traced(out, name), id=name, **options)


async def test_hooks_declared_by_object_count_as_registered_at_construction() -> None:
    out: list[str] = []
    agent = Agent(ScriptedModel("Hello."), hooks=[declared(out, "a"), declared(out, "b")])
    agent.add_hook("onChatStart", traced(out, "c"))
    await agent.chat("hi")
    assert out == ["a", "b", "c"]


async def test_hooks_may_be_declared_by_id() -> None:
    out: list[str] = []
    known = [declared(out, "a"), declared(out, "b")]
    await Agent(ScriptedModel("Hello."), known_hooks=known, hooks=["b"]).chat("hi")
    assert out == ["b"]


async def test_lists_of_declared_hooks_may_be_nested() -> None:
    out: list[str] = []
    bundle = [declared(out, "a"), [declared(out, "b")]]
    await Agent(ScriptedModel("Hello."), hooks=[bundle, declared(out, "c")]).chat("hi")
    assert out == ["a", "b", "c"]


async def test_a_declared_hook_keeps_its_options() -> None:
    out: list[str] = []
    hooks = [declared(out, "a"), declared(out, "b", priority=5)]
    agent = Agent(ScriptedModel("Hello."), hooks=hooks)
    await agent.chat("hi")
    assert out == ["b", "a"]
    assert [(info.id, info.origin) for info in agent.hooks()] == [("b", "agent"), ("a", "agent")]


def test_an_unknown_id_is_refused_with_the_closest_ids() -> None:
    with pytest.raises(UnknownHookError, match="audit") as caught:
        Agent(ScriptedModel(), known_hooks=[declared([], "audit")], hooks=["audt"])
    assert caught.value.closest == ("audit",)


async def test_an_unknown_id_given_to_a_chat_reaches_the_caller_alone() -> None:
    out: list[str] = []
    model = ScriptedModel()
    agent = Agent(model, hooks=[declared(out, "audit")])
    for point in ("onChatStart", "onChatError", "onChatEnd"):
        agent.add_hook(point, traced(out, point))
    with agent.subscribe() as events, pytest.raises(UnknownHookError):
        await agent.chat("hi", hooks=["audt"])
    assert [event async for event in events] == []
    assert (out, model.calls) == ([], 0)


@pytest.mark.parametrize("bad", ["Audit", "2nd", "has space", "has-dash", ""], ids=repr)
def test_an_id_is_snake_case(bad: str) -> None:
    with pytest.raises(HookOptionError):
        define_hook("onMessage", _sync, id=bad)


@pytest.mark.parametrize(
    ("chosen", "ran"),
    [(None, ["a", "b"]), ([], []), (["b"], ["b"]), ("own", ["own"])],
    ids=["not given", "empty", "by id", "by object"],
)
async def test_only_hooks_replace_the_declared_ones_for_that_chat(
    chosen: Any, ran: list[str]
) -> None:
    out: list[str] = []
    model = ScriptedModel("Hello.", "Again.")
    agent = Agent(model, hooks=[declared(out, "a"), declared(out, "b")])
    hooks = [declared(out, "own")] if chosen == "own" else chosen
    await (agent.chat("hi") if hooks is None else agent.chat("hi", only_hooks=hooks))
    assert out == ran
    out.clear()
    await agent.chat("hi")
    assert out == ["a", "b"]


async def test_an_empty_table_replaces_the_declared_hooks_too() -> None:
    out: list[str] = []
    await Agent(ScriptedModel("Hello."), hooks=[declared(out, "a")]).chat("hi", only_hooks={})
    assert out == []


async def test_only_hooks_of_a_stream_replace_the_declared_ones_too() -> None:
    out: list[str] = []
    agent = Agent(ScriptedModel("Hello."), hooks=[declared(out, "a")])
    async with agent.chat_stream("hi", only_hooks=[]) as stream:
        async for _ in stream:
            pass
    assert out == []


async def test_hooks_given_as_a_table_are_declared_hooks_too() -> None:
    out: list[str] = []
    agent = Agent(ScriptedModel("Hello."), hooks={"onChatStart": traced(out, "a")})
    await agent.chat("hi", only_hooks={"onChatStart": traced(out, "own")})
    assert out == ["own"]


@pytest.mark.parametrize("chosen", [[], ["b"]], ids=["empty", "another"])
async def test_required_declared_hooks_also_run_in_a_chat_with_only_hooks(
    chosen: list[str],
) -> None:
    out: list[str] = []
    hooks = [declared(out, "a", required=True), declared(out, "b")]
    await Agent(ScriptedModel("Hello."), hooks=hooks).chat("hi", only_hooks=chosen)
    assert out == ["a", *chosen]


async def test_a_required_hook_that_a_chat_names_itself_runs_once() -> None:
    out: list[str] = []
    agent = Agent(ScriptedModel("Hello."), hooks=[declared(out, "a", required=True)])
    await agent.chat("hi", only_hooks=["a"])
    assert out == ["a"]


@pytest.mark.parametrize("chosen", [[], ["a"]], ids=["empty", "declared"])
async def test_hooks_added_with_add_hook_always_run(chosen: list[str]) -> None:
    out: list[str] = []
    agent = Agent(ScriptedModel("Hello."), known_hooks=[declared(out, "a")])
    agent.add_hook("onChatStart", traced(out, "added"))

    @agent.hook("onChatStart")
    def decorated(ctx: Any) -> None:
        out.append("decorated")

    await agent.chat("hi", only_hooks=chosen)
    assert out == ["added", "decorated", *chosen]


async def test_priority_orders_a_chats_own_hooks_among_those_of_the_agent() -> None:
    out: list[str] = []
    agent = Agent(ScriptedModel("Hello."))
    agent.add_hook("onChatStart", traced(out, "agent's"))
    own = [declared(out, "tie"), declared(out, "high", priority=1)]
    await agent.chat("hi", hooks=own)
    assert out == ["high", "agent's", "tie"]


async def test_a_chats_own_hooks_are_not_on_the_agent() -> None:
    out: list[str] = []
    model = ScriptedModel("Hello.", "Again.")
    agent = Agent(model)
    await agent.chat("hi", hooks=[declared(out, "own")])
    await agent.chat("hi")
    assert out == ["own"]
    assert agent.hooks() == ()


async def test_one_definition_may_serve_several_agents() -> None:
    out: list[str] = []
    shared = declared(out, "shared")
    await Agent(ScriptedModel("Hello."), hooks=[shared]).chat("hi")
    await Agent(ScriptedModel("Hello."), hooks=[shared]).chat("hi")
    assert out == ["shared", "shared"]


def test_hooks_as_one_string_are_refused() -> None:
    with pytest.raises(UsageError, match="list"):
        Agent(ScriptedModel(), hooks="audit")


# ── the bands ───────────────────────────────────────────────────────────────────────────────


async def test_a_guard_at_its_band_is_asked_before_an_application_hook() -> None:
    out: list[str] = []
    agent = Agent(ScriptedModel(call("good", word="x"), "Done."), tools=[good])
    agent.add_hook("preToolCall", traced(out, "application"))
    agent.add_hook("preToolCall", lambda ctx: ToolResult("guarded"), priority=200)
    await agent.chat("hi")
    assert out == []


async def test_everything_a_wrapper_is_for_is_made_with_the_public_api() -> None:
    """Telemetry, retry, fallback and caching are wrappers: here all four at once."""
    out: list[str] = []
    cache: dict[str, ModelResponse] = {}
    spare = ScriptedModel("From the spare.")
    agent = Agent(ScriptedModel(OSError("first"), OSError("second"), "never"))

    @agent.hook("aroundRequest", priority=3)
    async def timing(ctx: Any, proceed: Any) -> ModelResponse:
        out.append("begin")
        response = await proceed()
        out.append("end")
        return response

    @agent.hook("aroundRequest", priority=2)
    async def caching(ctx: Any, proceed: Any) -> ModelResponse:
        text = ctx.request.messages[-1].text
        if text not in cache:
            cache[text] = await proceed()
        return cache[text]

    @agent.hook("aroundRequest", priority=1)
    async def fallback(ctx: Any, proceed: Any) -> ModelResponse:
        try:
            return await proceed()
        except OSError:
            return await proceed(ctx.request.replace(model=spare))

    @agent.hook("aroundRequest", priority=0)
    async def retry(ctx: Any, proceed: Any) -> ModelResponse:
        try:
            return await proceed()
        except OSError:
            out.append("again")
            return await proceed()

    assert (await agent.chat("hi")).text == "From the spare."
    assert (await agent.chat("hi")).text == "From the spare."
    assert out == ["begin", "again", "end", "begin", "end"]
    assert spare.calls == 1


def test_the_signature_and_the_docs_of_add_hook_have_every_option() -> None:
    import inspect

    import msgspec

    from hookline import Agent
    from hookline._hooks.registration import _ADD_OPTIONS, HookOptions

    parameters = inspect.signature(HookBus().add_hook).parameters
    options = {
        name: each.default
        for name, each in parameters.items()
        if each.kind is inspect.Parameter.KEYWORD_ONLY
    }
    known = {each.name: each for each in msgspec.structs.fields(HookOptions)}
    defaults = {
        name: None if known[name].required else known[name].default for name in _ADD_OPTIONS
    }
    assert options == defaults
    words = inspect.getdoc(HookBus().add_hook) or ""
    for name, default in defaults.items():
        shown = f'"{default}"' if isinstance(default, str) else repr(default)
        assert f"`{name}`" in words
        for holder in (Agent, HookBus):
            assert f"{name}={shown}" in (inspect.getdoc(holder.add_hook) or "")


@pytest.mark.parametrize(
    ("point", "option"),
    [("onResponse", "keeps_deltas"), ("preSteer", "early"), ("aroundRequest", "observes")],
)
def test_add_hook_takes_the_promises_of_a_hook_like_define_hook(point: str, option: str) -> None:
    async def wrapper(ctx: Any, proceed: Any) -> Any:
        return await proceed()

    def hook(ctx: Any) -> None:
        pass

    agent: Any = Agent(ScriptedModel())
    agent.add_hook(point, wrapper if option == "observes" else hook, **{option: True})
    assert [getattr(info, option) for info in agent.hooks(point)] == [True]
