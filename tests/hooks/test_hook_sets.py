"""@define_hook on methods, and an object of such a class as one thing to pass."""

from typing import Any

import pytest

from hookline import (
    Agent,
    Deny,
    HookDef,
    HookSet,
    Proceed,
    Response,
    ToolFailure,
    define_hook,
    tool,
)
from hookline.errors import HookOptionError, UnknownHookError, UsageError
from hookline.points import AroundChat, OnChatEnd, OnChatStart, PreToolCall
from hookline.testing import ScriptedModel, call


class Tenant(HookSet):
    """The hooks of one tenant."""

    def __init__(self, name: str, out: list[str]) -> None:
        self.name = name
        self.out = out

    @define_hook("onChatStart", id="tenant_start")
    def start(self, ctx: OnChatStart[Any]) -> None:
        self.out.append(f"{self.name} starts")

    @define_hook("aroundChat", priority=1)
    async def around(self, ctx: AroundChat[Any], proceed: Proceed[Any, Response]) -> Response:
        self.out.append(f"{self.name} wraps")
        return await proceed()

    @define_hook("onChatEnd", name="the end")
    @staticmethod
    def inner(ctx: OnChatEnd[Any]) -> None: ...

    @staticmethod
    @define_hook("onChatEnd")
    def outer(ctx: OnChatEnd[Any]) -> None: ...


RAN = ["ann wraps", "ann starts"]


def agent_of(**options: Any) -> Agent[Any]:
    return Agent(ScriptedModel(*["ok"] * 9), **options)


# ── a method ────────────────────────────────────────────────────────────────────────────────


async def test_a_method_binds_to_its_object() -> None:
    out: list[str] = []
    ann, bob = Tenant("ann", out), Tenant("bob", out)
    await agent_of(hooks=[ann.start, bob.around]).chat("hi")
    assert out == ["bob wraps", "ann starts"]


def test_a_bound_definition_is_called_like_the_method_and_keeps_its_options() -> None:
    out: list[str] = []
    start = Tenant("ann", out).start
    start(None)
    assert out == ["ann starts"]
    assert isinstance(start, HookDef)
    assert (start.id, start.name, start.point) == ("tenant_start", "Tenant.start", "onChatStart")


def test_bound_definitions_are_equal_as_methods_are() -> None:
    ann, bob = Tenant("ann", []), Tenant("bob", [])
    assert ann.start == ann.start
    assert ann.start != bob.start
    assert ann.start != ann.around
    assert len({ann.start, ann.start, bob.start}) == 2


def test_a_definition_has_the_name_that_its_registration_will_have() -> None:
    def watch(ctx: Any) -> None: ...

    assert define_hook("onStep", watch).name.endswith("<locals>.watch")
    named = define_hook("onStep", watch, name="mine", priority=3)
    assert (named.name, named.options.priority) == ("mine", 3)
    (info,) = agent_of(hooks=[named]).hooks()
    assert (info.name, info.priority) == ("mine", 3)


@pytest.mark.parametrize("way", ["Agent", "chat", "use"])
async def test_a_method_without_its_object_is_refused_before_anything_runs(way: str) -> None:
    model = ScriptedModel()
    agent: Agent[Any] = Agent(model)
    ways: dict[str, Any] = {
        "Agent": lambda: agent_of(hooks=[Tenant.start]),
        "chat": lambda: agent.chat("hi", hooks=[Tenant.start]),
        "use": lambda: agent.use(Tenant.start),
    }
    with pytest.raises(HookOptionError, match=r"is a method of Tenant; pass an instance"):
        await _made(ways[way])
    assert model.calls == 0


async def _made(make: Any) -> None:
    made = make()
    if hasattr(made, "__await__"):
        await made


# ── an object ───────────────────────────────────────────────────────────────────────────────


async def test_an_object_is_one_thing_to_pass_to_an_agent() -> None:
    out: list[str] = []
    agent = agent_of(hooks=[Tenant("ann", out)])
    await agent.chat("hi")
    assert out == RAN
    assert [info.name for info in agent.hooks("onChatEnd")] == ["the end", "Tenant.outer"]


@pytest.mark.parametrize("option", ["hooks", "only_hooks"])
async def test_an_object_is_one_thing_to_pass_to_a_chat(option: str) -> None:
    out: list[str] = []
    agent = agent_of()
    await agent.chat("hi", **{option: [Tenant("ann", out)]})  # type: ignore[arg-type]
    await agent.chat("hi")
    assert out == RAN


async def test_an_object_is_a_plugin_and_its_ids_are_known_while_it_is_there() -> None:
    out: list[str] = []
    agent = agent_of()
    remove = await agent.use(Tenant("ann", out))
    await agent.chat("hi", hooks=["tenant_start"])
    assert {info.origin for info in agent.hooks()} == {"plugin ann"}
    remove()
    assert agent.hooks() == ()
    with pytest.raises(UnknownHookError):
        await agent.chat("hi", hooks=["tenant_start"])
    assert out == RAN


async def test_an_object_that_is_passed_twice_runs_once_and_two_objects_run_both() -> None:
    out: list[str] = []

    class Plain:
        def __init__(self, name: str) -> None:
            self.name = name

        @define_hook("onChatStart")
        def start(self, ctx: OnChatStart[Any]) -> None:
            out.append(self.name)

    ann: Any = Plain("ann")
    bob: Any = Plain("bob")
    await agent_of(hooks=[ann]).chat("hi", hooks=[bob, ann, ann.start])
    assert out == ["ann", "bob"]


async def test_a_subclass_changes_a_hook_by_its_name_and_keeps_the_order() -> None:
    out: list[str] = []

    class Sub(Tenant):
        @define_hook("onChatStart", id="tenant_start")
        def start(self, ctx: OnChatStart[Any]) -> None:
            out.append("sub starts")

        outer = None  # type: ignore[assignment]

    agent = agent_of(hooks=[Sub("ann", out)])
    await agent.chat("hi")
    assert out == ["ann wraps", "sub starts"]
    assert [info.name for info in agent.hooks("onChatEnd")] == ["the end"]


async def test_definitions_that_an_object_makes_for_itself_are_its_hooks_too() -> None:
    out: list[str] = []

    class Watch:
        def __init__(self, point: str) -> None:
            self.hook = HookDef(point, self.note)

        def note(self, ctx: Any) -> None:
            out.append("noted")

    watch: Any = Watch("onChatStart")
    await agent_of(hooks=[watch]).chat("hi")
    assert out == ["noted"]


async def test_a_guard_as_a_class_refuses_calls() -> None:
    @tool
    async def pay(amount: int) -> str:
        """Pay."""
        raise AssertionError("it ran")

    class Cap(HookSet):
        def __init__(self, most: int) -> None:
            self.most = most

        @define_hook("preToolCall", tools=["pay"], on_error="deny", required=True)
        def check(self, ctx: PreToolCall[Any]) -> ToolFailure | None:
            amount = ctx.call.arguments["amount"]
            return ToolFailure("too much", type="Denied") if amount > self.most else None

    agent: Agent[Any] = Agent(
        ScriptedModel(call("pay", amount=11), "no"), tools=[pay], hooks=[Cap(10)]
    )
    response = await agent.chat("pay", only_hooks=[])
    assert "too much" in response.messages[2].text


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (print, "is not a hook"),
        (object(), "is not a hook"),
        (3, "is not a hook"),
        (Tenant, "the class Tenant; pass an instance"),
        (Deny("x"), "is not a hook"),
    ],
    ids=["a function", "an object", "a number", "a class", "a decision"],
)
def test_what_is_not_a_hook_is_refused_with_what_to_do(given: Any, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        agent_of(hooks=[given])


@pytest.mark.parametrize(
    "given", [3, print, {"a"}, iter(())], ids=["int", "function", "set", "iterator"]
)
def test_hooks_are_a_table_or_a_list(given: Any) -> None:
    with pytest.raises(UsageError, match="must be a list, or a dict of points and functions"):
        agent_of(hooks=given)


# ── names and parameters ────────────────────────────────────────────────────────────────────


def no_parameter() -> None: ...
def two_parameters(ctx: Any, other: Any) -> None: ...
async def no_proceed(ctx: Any) -> None: ...


@pytest.mark.parametrize(
    ("point", "fn"),
    [("onStep", no_parameter), ("onStep", two_parameters), ("aroundChat", no_proceed)],
    ids=["none", "two", "a wrapper without proceed"],
)
def test_a_function_that_cannot_take_what_the_point_gives_is_refused(point: str, fn: Any) -> None:
    with pytest.raises(HookOptionError, match=r"must take \(ctx"):
        agent_of().add_hook(point, fn)
    with pytest.raises(HookOptionError, match=r"must take \(ctx"):
        agent_of(hooks=[HookDef(point, fn)])


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("pre_tool_call", "preToolCall"),
        ("on_chat_end", "onChatEnd"),
        ("PRETOOLCALL", "preToolCall"),
        ("preToolcal", "preToolCall"),
    ],
)
def test_an_unknown_point_is_told_with_the_point_that_was_meant(name: Any, meant: str) -> None:
    with pytest.raises(UnknownHookError) as caught:
        agent_of().add_hook(name, print)
    assert caught.value.closest[0] == meant
    assert f"did you mean {meant!r}" in str(caught.value)


@pytest.mark.parametrize(
    ("wrong", "meant"),
    [("prioritty", "priority"), ("onError", "on_error"), ("tool", "tools")],
)
@pytest.mark.parametrize("way", ["add_hook", "hook", "define_hook", "HookDef"])
def test_an_unknown_option_is_refused_with_the_option_that_was_meant(
    way: str, wrong: str, meant: str
) -> None:
    agent: Any = agent_of()
    ways: dict[str, Any] = {
        "add_hook": lambda **given: agent.add_hook("preToolCall", len, **given),
        "hook": lambda **given: agent.hook("preToolCall", **given),
        "define_hook": lambda **given: define_hook("preToolCall", len, **given),
        "HookDef": lambda **given: HookDef("preToolCall", len, **given),
    }
    with pytest.raises(HookOptionError, match=f"no option '{wrong}' .did you mean '{meant}'"):
        ways[way](**{wrong: 1})


@pytest.mark.parametrize(
    "given", [{"inherit": 1}, {"required": "yes"}, {"name": 3}, {"tools": 3}, {"id": 3}], ids=str
)
def test_an_option_of_the_wrong_type_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(HookOptionError, match=r"must be"):
        HookDef("preToolCall", len, **given)
