"""The table of hook points: what is made from it is fresh, and each row is fired and documented."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections import Counter
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from tests import _every_point as t1

import hookline.models
import hookline.points
from hookline import Agent, LocalRuntime, Run, tool
from hookline._hooks.points import END, KEEP
from hookline._record.runtime import KEYS, key_name
from hookline.errors import HookReturnError
from hookline.points import TABLE
from hookline.testing import ScriptedModel, call

ROOT = Path(__file__).resolve().parents[2]
SOURCES = sorted(Path(hookline.__file__).parent.rglob("*.py"))
DOCS = (ROOT / "docs" / "hooks.md").read_text()
ROWS = pytest.mark.parametrize("head", TABLE.values(), ids=TABLE.keys())


# ── the table is well-formed; interface.txt pins what it promises ───────────────────────────


@ROWS
def test_every_context_has_run_where_there_is_a_chat(head: Any) -> None:
    outside = ("onScopeRegister", "onScopeUnregister")
    assert ("run" in head.context.__struct_fields__) == (head.name not in outside)


@ROWS
def test_a_context_class_is_named_like_its_point(head: Any) -> None:
    assert head.context.__name__ == head.name[0].upper() + head.name[1:]
    assert getattr(hookline.points, head.context.__name__) is head.context


@ROWS
def test_what_a_returned_value_does_is_one_of_the_three_things(head: Any) -> None:
    for act in head.acts.values():
        assert act in (END, KEEP, *head.context.__struct_fields__)


# ── what is made from the table is fresh ────────────────────────────────────────────────────


def test_the_overloads_and_the_docs_are_fresh() -> None:
    command = [sys.executable, str(ROOT / "scripts" / "dev" / "generate.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert (done.stdout.strip(), done.returncode) == ("up to date", 0), done.stderr


# ── each row is fired in one place ──────────────────────────────────────────────────────────


@cache
def _made() -> Counter[str]:
    """How often each context class is constructed in the source."""
    contexts = {head.context.__name__ for head in TABLE.values()}
    made: Counter[str] = Counter()
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call):
                func = node.func
                name = func.attr if isinstance(func, ast.Attribute) else getattr(func, "id", "")
                if name in contexts:
                    made[name] += 1
    return made


@ROWS
def test_every_context_class_is_constructed_in_exactly_one_place(head: Any) -> None:
    assert _made()[head.context.__name__] == 1


@ROWS
async def test_every_row_fires_in_a_chat(head: Any) -> None:
    out: list[Any] = []
    agent = t1.agent_for(head.name)
    agent.add_hook(head.name, t1.observing(out, head.kind))
    try:
        await t1.play(head.name, agent)
    except Exception:
        assert head.name in ("onChatAbort", "onChatError")
    assert out, f"{head.name} did not fire"
    for ctx in out:
        assert type(ctx) is head.context
        if "run" in head.context.__struct_fields__:
            assert type(ctx.run) is Run
            assert ctx.run.agent == "agent"  # its name, never the agent itself


@ROWS
async def test_every_context_is_frozen(head: Any) -> None:
    out: list[Any] = []
    agent = t1.agent_for(head.name)
    agent.add_hook(head.name, t1.observing(out, head.kind))
    try:
        await t1.play(head.name, agent)
    except Exception:
        assert head.name in ("onChatAbort", "onChatError")
    for field in head.context.__struct_fields__:
        with pytest.raises(AttributeError):
            setattr(out[0], field, None)


# ── wrong returns ───────────────────────────────────────────────────────────────────────────

ACTING = [head for head in TABLE.values() if head.kind != "observer"]


@pytest.mark.parametrize(
    "value", [42, "text", True, object()], ids=["int", "str", "bool", "object"]
)
@pytest.mark.parametrize("head", ACTING, ids=lambda head: head.name)
async def test_any_other_type_is_an_error_that_names_hook_point_type_and_types_allowed(
    head: Any, value: Any
) -> None:
    with pytest.raises(HookReturnError) as caught:
        await t1.fire(head.name, t1.returning(value, head.kind), name="wrong")
    error = caught.value
    assert (error.point, error.hook, error.value_type) == (head.name, "wrong", type(value))
    text = str(error)
    for word in (
        "'wrong'",
        head.name,
        type(value).__name__,
        *(kind.__name__ for kind in head.acts),
    ):
        assert word in text


@pytest.mark.parametrize(
    "head", [h for h in ACTING if h.kind == "wrapper"], ids=lambda head: head.name
)
async def test_a_wrapper_must_not_return_none(head: Any) -> None:
    with pytest.raises(HookReturnError):
        await t1.fire(head.name, t1.returning(None, "wrapper"))


@pytest.mark.parametrize(
    "head", [h for h in ACTING if h.kind == "interceptor"], ids=lambda head: head.name
)
async def test_a_tuple_is_taken_by_on_delta_alone(head: Any) -> None:
    if head.name == "onDelta":
        assert await t1.fire(head.name, lambda ctx: (ctx.delta,)) is not None
        return
    with pytest.raises(HookReturnError, match="tuple"):
        await t1.fire(head.name, lambda ctx: ())


# ── each row is documented ──────────────────────────────────────────────────────────────────


@ROWS
def test_every_row_has_a_section_that_names_its_context_and_fields(head: Any) -> None:
    section = DOCS.split(f"\n## {head.name}\n")[1].split("\n## ")[0]
    assert (head.context.__doc__ or "").strip().splitlines()[0] in section
    assert f"ctx: {head.context.__name__}" in section
    for field in head.context.__struct_fields__:
        assert field == "run" or f"`ctx.{field}`" in section
    assert head.note in section
    for rule, says in (("throws", "If a hook raises an exception"), ("replay", "On replay")):
        usual = getattr(TABLE["preRequest"], rule)  # which the page says once, for all points
        own = getattr(head, rule)
        assert (f"{says}: {own}." in section) == (own != usual)


def test_the_stub_of_every_row_registers_a_hook() -> None:
    """Its annotations are names of the public modules."""
    agent: Agent[Any] = Agent(ScriptedModel("Hello."))
    modules = (hookline, hookline.models, hookline.points)
    names = {name: getattr(module, name) for module in modules for name in module.__all__}
    _, *stubs = re.findall(r"^```py\n(.*?)^```$", DOCS, re.DOTALL | re.MULTILINE)
    assert [len(stub.splitlines()) for stub in stubs] == [3] * len(TABLE)
    for stub in stubs:
        exec(stub, {**names, "agent": agent})
    assert {info.point for info in agent.hooks()} == set(TABLE)


@ROWS
def test_the_picture_of_a_chats_life_shows_every_row_as_what_it_is(head: Any) -> None:
    svg = ElementTree.parse(ROOT / "docs" / "images" / "life.svg").getroot()
    space = "{http://www.w3.org/2000/svg}"
    above = [
        shape.get("class")
        for shape, text in pairwise(svg)
        if shape.tag == f"{space}rect" and text.tag == f"{space}text" and text.text == head.name
    ]
    assert above
    assert set(above) == {head.kind}


def test_the_bands_of_priority_are_documented() -> None:
    for word in ("200", "100", "guards", "infrastructure", "application", "post-processing"):
        assert word in DOCS


# ── each row is type-checked ────────────────────────────────────────────────────────────────


def _forms() -> set[tuple[str, str]]:
    """How tests/typing/api.py registers hooks: `add_hook` or `hook`, and with what as the point."""
    tree = ast.parse((ROOT / "tests" / "typing" / "api.py").read_text())
    return {
        (node.func.attr, ast.unparse(node.args[0]).strip("'"))
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args
    }


FORMS = _forms()


@ROWS
def test_every_row_is_type_checked_by_name_and_class_added_and_decorated(head: Any) -> None:
    for way in ("add_hook", "hook"):
        assert (way, head.name) in FORMS
        assert (way, head.context.__name__) in FORMS


# ── where hooks run ─────────────────────────────────────────────────────────────────────────


class Recording(LocalRuntime):
    """Notes the keys of the steps, and which of them is running."""

    def __init__(self) -> None:
        self.keys: list[Any] = []
        self.running: list[Any] = []

    async def step(self, key: Any, fn: Any, returns: Any, /, *args: Any) -> Any:
        self.keys.append(key)
        self.running.append(key)
        try:
            return await fn(*args)
        finally:
            self.running.remove(key)


IN_A_CHAT = [
    head
    for head in TABLE.values()
    if head.name not in ("aroundChat", "onScopeRegister", "onScopeUnregister")
    and not head.name.endswith("MessageUpdate")
]


@pytest.mark.parametrize("head", IN_A_CHAT, ids=lambda head: head.name)
async def test_hooks_run_inside_the_step_whose_moment_they_see(head: Any) -> None:
    runtime = Recording()
    seen: list[list[str]] = []
    agent = t1.agent_for(head.name, runtime=runtime)

    class Noting(list[Any]):
        def append(self, ctx: Any) -> None:
            seen.append([key_name(key) for key in runtime.running])

    agent.add_hook(head.name, t1.observing(Noting(), head.kind))
    try:
        await t1.play(head.name, agent)
    except Exception:
        assert head.name in ("onChatAbort", "onChatError")
    assert seen
    assert all(seen), f"{head.name} ran outside of every step"


async def test_every_step_of_a_chat_has_a_key_of_its_own_from_the_one_table() -> None:
    runtime = Recording()
    agent = t1.agent_for("onApproval", runtime=runtime)
    for head in TABLE.values():
        agent.add_hook(head.name, t1.observing([], head.kind))
    await t1.play("onApproval", agent)
    names = [key_name(key) for key in runtime.keys]
    assert len(set(names)) == len(names)
    assert {key[0] for key in runtime.keys} <= set(KEYS)
    assert len(set(KEYS)) == len(KEYS)
    assert len({key[0] for key in runtime.keys}) >= 14  # nearly all of them were passed


async def test_model_and_tools_run_inside_steps_of_their_own() -> None:
    runtime = Recording()
    seen: list[tuple[str, list[str]]] = []

    def note(what: str) -> None:
        seen.append((what, [key_name(key) for key in runtime.running]))

    @tool
    async def work() -> str:
        """Work."""
        note("tool")
        return ""

    def turn(*parts: Any) -> Any:
        def play(request: Any) -> Any:
            note("model")
            return list(parts)

        return play

    model = ScriptedModel(turn(call("work", call_id="a")), turn("Done."))
    await Agent(model, tools=[work], runtime=runtime).chat("hi")
    assert seen == [
        ("model", ["step/0/model"]),
        ("tool", ["step/0/call/a/run"]),
        ("model", ["step/1/model"]),
    ]


async def test_clock_and_ids_come_from_the_runtime() -> None:
    class Fixed(LocalRuntime):
        def now(self) -> float:
            times.append(None)
            return 100.0 + len(times)

        def new_id(self) -> str:
            return "chat-1"

    times: list[None] = []
    durations: list[float] = []
    agent: Any = Agent(ScriptedModel("Hello."), runtime=Fixed())
    agent.add_hook("onChatEnd", lambda ctx: durations.append(ctx.duration))
    assert (await agent.chat("hi")).chat_id == "chat-1"
    assert durations == [float(len(times) - 1)]


async def test_calls_run_side_by_side_through_the_runtime() -> None:
    class Counting(LocalRuntime):
        async def gather(self, jobs: Any, /) -> None:
            sizes.append(len(jobs))
            await super().gather(jobs)

    sizes: list[int] = []
    agent = t1.agent_for("onStep", runtime=Counting())
    await agent.chat("Add 1 and 2.")
    assert sizes == [3]
