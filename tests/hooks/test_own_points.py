"""Points that a user declares as classes, on a bus with no agent."""

from __future__ import annotations

import collections.abc
import gc
import sys
from types import FrameType
from typing import Annotated, Any, ClassVar, Generic, Literal, NewType, Protocol, TypedDict, TypeVar

import msgspec
import pytest

from hookline import (
    Agent,
    HookBus,
    Interceptor,
    Observer,
    ToolFailure,
    Wrapper,
    define_hook,
    tool,
)
from hookline.errors import HookOptionError, HookReturnError, UnknownHookError
from hookline.points import TABLE, OnStep
from hookline.testing import ScriptedModel, call

T = TypeVar("T")
UserId = NewType("UserId", int)


class Saved(Observer):
    path: str
    size: int = 0


class Veto:
    def __init__(self, why: str) -> None:
        self.why = why


class Renamed(Interceptor[str | Veto]):
    name: str
    owner: str = "nobody"
    ends: ClassVar[tuple[type, ...]] = (Veto,)


class Fetched(Wrapper[bytes]):
    url: str
    tries: int = 1


async def fetch(url: str) -> bytes:
    return url.encode()


# ── the three kinds ─────────────────────────────────────────────────────────────────────────


async def test_a_point_of_ones_own_fires_on_a_bus_without_an_agent() -> None:
    out: list[Any] = []
    bus: HookBus[Any] = HookBus()
    bus.add_hook(Saved, out.append)
    await bus.notify(Saved("a.txt", 3))
    assert out == [Saved("a.txt", 3)]


@pytest.mark.parametrize("point", [Saved, Renamed, Fetched], ids=lambda each: each.__name__)
def test_its_context_is_frozen_and_has_replace(point: Any) -> None:
    ctx = point("a")
    field = point.__struct_fields__[0]
    with pytest.raises(AttributeError):
        setattr(ctx, field, "b")
    assert ctx.replace(**{field: "b"}) == point("b")


async def test_with_no_hooks_an_interceptor_gives_its_payload_and_a_wrapper_the_inner() -> None:
    bus: HookBus[Any] = HookBus()
    await bus.notify(Saved("a.txt"))
    assert await bus.intercept(Renamed("a")) == "a"
    assert await bus.wrap(Fetched("u"), fetch) == b"u"


async def test_the_payload_is_the_first_field() -> None:
    seen: list[Any] = []
    bus: HookBus[Any] = HookBus()
    bus.add_hook(Renamed, lambda ctx: "b")
    bus.add_hook(Renamed, seen.append)
    assert await bus.intercept(Renamed("a", owner="me")) == "b"
    assert seen == [Renamed("b", owner="me")]


async def test_payload_names_another_field() -> None:
    class Sized(Interceptor[int]):
        path: str
        size: int
        payload: ClassVar[str] = "size"

    class Timed(Wrapper[str]):
        path: str
        seconds: float
        payload: ClassVar[str] = "seconds"

    async def inner(seconds: float) -> str:
        return f"{seconds} s"

    async def longer(ctx: Timed, proceed: Any) -> str:
        return await proceed(ctx.seconds * 2)

    bus: HookBus[Any] = HookBus()
    bus.add_hook(Sized, lambda ctx: ctx.size + 1)
    bus.add_hook(Timed, longer)
    assert await bus.intercept(Sized("a", 1)) == 2
    assert await bus.wrap(Timed("a", 1.5), inner) == "3.0 s"


async def test_a_value_of_a_type_in_ends_ends_the_chain_and_is_the_answer() -> None:
    out: list[Any] = []
    bus: HookBus[Any] = HookBus()
    veto = Veto("taken")
    bus.add_hook(Renamed, lambda ctx: "b")
    bus.add_hook(Renamed, lambda ctx: veto)
    bus.add_hook(Renamed, out.append)
    assert await bus.intercept(Renamed("a")) is veto
    assert out == []


async def test_a_class_may_extend_a_point_and_is_a_point_of_its_own() -> None:
    class RenamedTwice(Renamed):
        times: int = 2

    out: list[Any] = []
    bus: HookBus[Any] = HookBus()
    bus.add_hook(Renamed, lambda ctx: out.append("base"))
    bus.add_hook(RenamedTwice, lambda ctx: ctx.name * ctx.times)
    assert await bus.intercept(RenamedTwice("ab")) == "abab"
    assert out == []


# ── what R may be ───────────────────────────────────────────────────────────────────────────


class Pair(msgspec.Struct):
    a: int = 0


class Named(TypedDict):
    name: str


class Anything(Interceptor[Any]):
    value: Any


class Listed(Interceptor[list[str]]):
    value: list[str]


class Mapped(Interceptor[dict[str, int]]):
    value: dict[str, int]


class Paired(Interceptor[tuple[int, ...]]):
    value: tuple[int, ...]


class Sequenced(Interceptor[collections.abc.Sequence[int]]):
    value: collections.abc.Sequence[int]


class Union_(Interceptor[list[str] | int]):
    value: list[str] | int


class Structured(Interceptor[Pair]):
    value: Pair


class Typed(Interceptor[Named]):
    value: Named


class Chosen(Interceptor[Literal["a", "b"]]):
    value: Literal["a", "b"]


class Told(Interceptor[Annotated[str, "a note"]]):
    value: str


class NewTyped(Interceptor[UserId]):
    value: UserId


class Of(Interceptor[T], Generic[T]):
    value: T


class Classes(Interceptor[type[Pair]]):
    value: type[Pair]


TAKEN: dict[str, tuple[Any, Any]] = {
    "Any": (Anything, {"a": 1}),
    "list[str]": (Listed, ["b"]),
    "dict[str, int]": (Mapped, {"b": 1}),
    "tuple[int, ...]": (Paired, (2,)),
    "Sequence[int]": (Sequenced, [2]),
    "a union's generic": (Union_, ["b"]),
    "a union's class": (Union_, 3),
    "a struct": (Structured, Pair(1)),
    "a TypedDict": (Typed, {"name": "b"}),
    "a Literal": (Chosen, "b"),
    "Annotated": (Told, "b"),
    "a NewType": (NewTyped, UserId(3)),
    "a type variable": (Of, 5),
    "a type variable that is set": (Of[int], 5),
    "type[...]": (Classes, Pair),
}


@pytest.mark.parametrize(("point", "value"), TAKEN.values(), ids=TAKEN.keys())
async def test_an_interceptor_takes_what_its_type_says(point: Any, value: Any) -> None:
    bus: HookBus[Any] = HookBus()
    bus.add_hook(point, lambda ctx: value)
    assert await bus.intercept(point(point)) == value


REFUSED_R: dict[str, tuple[Any, Any]] = {
    "str for list[str]": (Listed, "b"),
    "int for dict[str, int]": (Mapped, 3),
    "int for tuple[int, ...]": (Paired, 3),
    "dict for list[str] | int": (Union_, {}),
    "True for a struct": (Structured, True),
}


@pytest.mark.parametrize(("point", "value"), REFUSED_R.values(), ids=REFUSED_R.keys())
async def test_an_interceptor_refuses_what_its_type_does_not_say(point: Any, value: Any) -> None:
    bus: HookBus[Any] = HookBus()
    bus.add_hook(point, lambda ctx: value)
    with pytest.raises(HookReturnError):
        await bus.intercept(point(point))


class AnyWork(Wrapper[Any]):
    job: str


class ListWork(Wrapper[list[str]]):
    job: str


class NoWork(Wrapper[None]):
    job: str


class MaybeWork(Wrapper[str | None]):
    job: str


GIVEN: dict[str, tuple[Any, Any]] = {
    "Any": (AnyWork, 3),
    "list[str]": (ListWork, ["a"]),
    "None": (NoWork, None),
    "str | None: None": (MaybeWork, None),
    "str | None: str": (MaybeWork, "a"),
}


@pytest.mark.parametrize(("point", "value"), GIVEN.values(), ids=GIVEN.keys())
async def test_a_wrapper_gives_what_its_type_says(point: Any, value: Any) -> None:
    async def inner(job: str) -> Any:
        return value

    async def wrapper(ctx: Any, proceed: Any) -> Any:
        return await proceed()

    bus: HookBus[Any] = HookBus()
    bus.add_hook(point, wrapper)
    assert await bus.wrap(point("job"), inner) == value


class Sent(Wrapper[str]):
    what: str | bytes | None = None


@pytest.mark.parametrize("before", ["text", None], ids=["str", "None"])
async def test_proceed_takes_whatever_the_payloads_field_may_hold(before: Any) -> None:
    async def inner(what: Any) -> str:
        return repr(what)

    async def raw(ctx: Sent, proceed: Any) -> str:
        return await proceed(b"raw")

    bus: HookBus[Any] = HookBus()
    bus.add_hook(Sent, raw)
    assert await bus.wrap(Sent(before), inner) == "b'raw'"


class Anything(Interceptor):  # type: ignore[type-arg]
    """A point that says nothing of its type takes every value."""

    value: object


class Hidden(Protocol):
    """Not to be asked for at run time."""

    def show(self) -> str: ...


class Behind(Interceptor[Hidden]):
    value: object


class Locally(Wrapper[int]):
    value: Nowhere  # type: ignore[name-defined]  # noqa: F821 - nobody can resolve it


class Silently(Wrapper[None]):
    value: str


@pytest.mark.parametrize("point", [Anything, Behind], ids=lambda each: each.__name__)
async def test_a_point_whose_type_cannot_be_asked_for_takes_every_value(point: Any) -> None:
    bus: HookBus[Any] = HookBus()
    bus.add_hook(point, lambda ctx: [ctx.value])
    assert await bus.intercept(point(value=1)) == [1]


async def test_proceed_takes_everything_where_the_payloads_hint_cannot_be_resolved() -> None:
    bus: Any = HookBus()

    async def around(ctx: Any, proceed: Any) -> Any:
        return await proceed("changed")

    async def inner(value: object) -> int:
        return len(str(value))

    bus.add_hook(Locally, around)
    assert await bus.wrap(Locally(value="x"), inner) == 7


async def test_a_wrapper_of_nothing_returns_None() -> None:
    bus: Any = HookBus()
    out: list[str] = []

    async def around(ctx: Any, proceed: Any) -> Any:
        await proceed()
        return None if ctx.value == "fine" else "something"

    async def inner(value: str) -> None:
        out.append(value)

    bus.add_hook(Silently, around)
    assert await bus.wrap(Silently(value="fine"), inner) is None
    with pytest.raises(HookReturnError, match="Silently"):
        await bus.wrap(Silently(value="wrong"), inner)
    assert out == ["fine", "wrong"]


async def test_a_wrapper_that_returns_another_type_is_an_error_that_names_it() -> None:
    async def wrong(ctx: Fetched, proceed: Any) -> Any:
        return 3

    bus: HookBus[Any] = HookBus()
    bus.add_hook(Fetched, wrong, name="wrong")
    with pytest.raises(HookReturnError, match=r"'wrong' at Fetched returned a value of type int"):
        await bus.wrap(Fetched("u"), fetch)


# ── names ───────────────────────────────────────────────────────────────────────────────────


class _Private(Observer):
    text: str = ""


async def test_a_point_may_have_a_private_name() -> None:
    out: list[Any] = []
    bus: HookBus[Any] = HookBus()
    await bus.notify(_Private("nobody listens"))
    bus.add_hook(_Private, out.append)
    await bus.notify(_Private("heard"))
    assert out == [_Private("heard")]


def _namesake(base: Any, name: str = "Saved") -> Any:
    return type(base)(name, (base,), {"__annotations__": {"text": str}, "text": ""})


async def test_another_class_of_the_same_name_is_another_point() -> None:
    out: list[Any] = []
    other = _namesake(Observer)
    bus: HookBus[Any] = HookBus()
    bus.add_hook(Saved, lambda ctx: out.append(ctx.path))
    await bus.notify(other())
    assert out == []


async def test_both_of_two_points_with_the_same_name_can_have_hooks() -> None:
    out: list[str] = []
    other = _namesake(Observer)
    bus: HookBus[Any] = HookBus()
    bus.add_hook(Saved, lambda ctx: out.append("ours"))
    bus.add_hook(other, lambda ctx: out.append("theirs"))
    await bus.notify(Saved("a"))
    await bus.notify(other())
    assert out == ["ours", "theirs"]


@pytest.mark.parametrize("name", ["onChatStart", "refresh", "sources"])
async def test_a_point_named_like_something_of_ours_does_not_mix_with_it(name: str) -> None:
    out: list[str] = []
    point = _namesake(Observer, name)
    agent: Any = Agent(ScriptedModel("Hello."))
    agent.add_hook(point, lambda ctx: out.append("own"))
    agent.add_hook("onChatEnd", lambda ctx: out.append("chat"))
    await agent.chat("hi")
    await agent.bus.notify(point())
    assert out == ["chat", "own"]


# ── what is refused ─────────────────────────────────────────────────────────────────────────


async def test_each_verb_fires_only_points_of_its_kind() -> None:
    bus: Any = HookBus()
    for fired in (
        lambda: bus.notify(Renamed("a")),
        lambda: bus.notify(Fetched("u")),
        lambda: bus.intercept(Saved("a")),
        lambda: bus.intercept(Fetched("u")),
        lambda: bus.wrap(Saved("a"), fetch),
        lambda: bus.wrap(Renamed("a"), fetch),
    ):
        with pytest.raises(HookOptionError):
            await fired()


@pytest.mark.parametrize("verb", ["notify", "intercept"])
async def test_the_points_of_a_chat_are_fired_by_a_chat_only(verb: str) -> None:
    bus: HookBus[Any] = HookBus()
    with pytest.raises(UnknownHookError, match="onStep"):
        await getattr(bus, verb)(OnStep(run=None, iteration=0, response=None, results=()))


async def test_what_is_no_point_cannot_be_fired() -> None:
    bus: Any = HookBus()
    with pytest.raises(UnknownHookError, match="dict"):
        await bus.notify({})


@pytest.mark.parametrize("base", [Interceptor[str], Wrapper[str]], ids=["interceptor", "wrapper"])
def test_a_point_without_a_field_for_its_payload_is_refused(base: Any) -> None:
    class Empty(base): ...

    async def hook(ctx: Any, proceed: Any = None) -> Any: ...

    with pytest.raises(HookOptionError, match="payload"):
        HookBus[Any]().add_hook(Empty, hook)


def test_a_payload_that_is_no_field_is_refused() -> None:
    class Typo(Interceptor[str]):
        name: str
        payload: ClassVar[str] = "nmae"

    with pytest.raises(HookOptionError):
        HookBus[Any]().add_hook(Typo, lambda ctx: None)


@pytest.mark.parametrize("options", [{"tools": ["a"]}, {"on_error": "deny"}], ids=["tools", "deny"])
def test_options_of_a_tool_call_are_refused_at_a_point_of_ones_own(options: Any) -> None:
    bus: Any = HookBus()
    with pytest.raises(HookOptionError):
        bus.add_hook(Saved, lambda ctx: None, **options)


@pytest.mark.parametrize("base", [Observer, Interceptor, Wrapper], ids=lambda each: each.__name__)
def test_the_bases_are_no_points(base: Any) -> None:
    async def hook(ctx: Any, proceed: Any = None) -> Any: ...

    with pytest.raises((UnknownHookError, HookOptionError)):
        HookBus[Any]().add_hook(base, hook)


def test_a_point_of_ones_own_does_not_enter_the_table() -> None:
    before = list(TABLE)
    HookBus[Any]().add_hook(Saved, lambda ctx: None)
    assert list(TABLE) == before


# ── beside an agent ─────────────────────────────────────────────────────────────────────────


async def test_a_hook_of_a_chat_may_fire_a_point_of_ones_own_on_the_agents_bus() -> None:
    out: list[str] = []
    agent = Agent(ScriptedModel("Hello."))
    agent.add_hook(Saved, lambda ctx: out.append(ctx.path))

    @agent.hook("onChatEnd")
    async def save(ctx: Any) -> None:
        await agent.bus.notify(Saved(ctx.response.text))

    await agent.chat("hi")
    assert out == ["Hello."]


async def test_a_tool_may_fire_a_point_of_ones_own() -> None:
    bus: HookBus[Any] = HookBus()

    @tool
    async def rename(name: str) -> str:
        """Give a file another name."""
        answer = await bus.intercept(Renamed(name))
        return answer if isinstance(answer, str) else f"vetoed: {answer.why}"

    bus.add_hook(Renamed, lambda ctx: Veto("taken"))
    model = ScriptedModel(call("rename", name="a"), "Done.")
    response = await Agent(model, tools=[rename], bus=bus).chat("hi")
    assert response.messages[2].text == "vetoed: taken"


async def test_a_point_of_ones_own_may_be_declared_for_an_agent() -> None:
    out: list[Any] = []
    agent = Agent(ScriptedModel(), hooks=[define_hook(Saved, out.append, id="saver")])
    await agent.bus.notify(Saved("a"))
    assert out == [Saved("a")]
    assert [(info.point, info.id) for info in agent.hooks()] == [("Saved", "saver")]


async def test_a_type_of_hookline_may_end_a_point_of_ones_own() -> None:
    class Upload(Interceptor[str]):
        path: str
        ends: ClassVar[tuple[type, ...]] = (ToolFailure,)

    bus: HookBus[Any] = HookBus()
    bus.add_hook(Upload, lambda ctx: ToolFailure("not today"))
    assert await bus.intercept(Upload("a")) == ToolFailure("not today")


# ── a point that nobody hears ───────────────────────────────────────────────────────────────


class _LeastBus:
    """What a bus cannot do without."""

    def __init__(self) -> None:
        self.hooks: dict[type, tuple[Any, ...]] = {}

    async def notify(self, ctx: Any) -> None:
        for hook in self.hooks.get(ctx.__class__, ()):
            await hook(ctx)


async def _bytecodes(bus: Any) -> int:
    """How many bytecodes a `notify` that nobody hears executes, the first one aside."""
    ctx = Saved("a")
    await bus.notify(ctx)
    count = 0

    def trace(frame: FrameType, event: str, arg: Any) -> Any:
        nonlocal count
        frame.f_trace_opcodes = True
        count += event == "opcode"
        return trace

    work = bus.notify(ctx)
    before = sys.gettrace()
    gc.disable()  # a finalizer of other work would be counted, too
    sys._getframe().f_trace_opcodes = True  # or Python 3.12 traces no opcodes at first
    sys.settrace(trace)
    try:
        await work
    finally:
        sys.settrace(before)
        gc.enable()
    return count


async def test_an_unheard_point_costs_at_most_twice_what_the_least_bus_does() -> None:
    assert 0 < await _bytecodes(HookBus()) <= 2 * await _bytecodes(_LeastBus())


@pytest.mark.parametrize("heard", [False, True], ids=["unheard", "heard"])
async def test_a_point_of_another_kind_is_refused_by_notify_each_time(heard: bool) -> None:
    bus: HookBus[Any] = HookBus()
    if heard:
        bus.add_hook(Renamed, lambda ctx: None)
    for _ in range(2):
        with pytest.raises(HookOptionError, match="fired as observer"):
            await bus.notify(Renamed("a"))
