"""Tools: both forms of `tool`, what from_schema takes and refuses, and `enabled(run)`."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from hookline import Agent, Conversation, Run, Scope, Tool, tool
from hookline._base.json import BadArguments
from hookline.errors import ScopeError, ToolArgumentsError, ToolDefinitionError
from hookline.testing import ScriptedModel, call

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"q": {"type": "string"}, "n": {"type": "integer", "maximum": 5, "default": 3}},
    "required": ["q"],
    "additionalProperties": False,
}


def search(q: str) -> str:
    """Search."""
    return q


# ── tool(fn, …) ─────────────────────────────────────────────────────────────────────────────

OPTIONS: dict[str, Any] = {
    "name": "find",
    "description": "Find it.",
    "parallel": False,
    "idempotent": True,
    "timeout": 5,
    "enabled": lambda: True,
}


@pytest.mark.parametrize(
    "make",
    [lambda **o: tool(search, **o), lambda **o: tool(**o)(search)],
    ids=["call", "decorator"],
)
def test_both_forms_of_tool_take_every_option(make: Any) -> None:
    made = make(**OPTIONS)
    assert {name: getattr(made, name) for name in OPTIONS} == OPTIONS
    assert made.replace(name="again").timeout == 5


@pytest.mark.parametrize(
    "make",
    [
        lambda: tool(search, timeot=5),  # type: ignore[call-overload]
        lambda: tool(timeot=5),  # type: ignore[call-overload]
        lambda: Tool(search, timeot=5),  # type: ignore[call-arg]
        lambda: tool(search).replace(timeot=5),
    ],
    ids=["call", "decorator", "class", "replace"],
)
def test_an_option_that_does_not_exist_is_named(make: Any) -> None:
    with pytest.raises(TypeError, match="timeot"):
        make()


# ── Tool.from_schema ────────────────────────────────────────────────────────────────────────


async def test_a_tool_from_a_schema_gets_its_arguments_as_one_dict_and_the_run() -> None:
    seen: list[Any] = []

    async def fn(arguments: dict[str, Any], run: Run) -> str:
        seen.append((arguments, type(arguments), run.call_id))
        return "found"

    found = Tool.from_schema("find", "Find it.", SCHEMA, fn, **OPTIONS_OF_SCHEMA)
    assert (found.parameters, found.description) == (SCHEMA, "Find it.")
    assert {name: getattr(found, name) for name in OPTIONS_OF_SCHEMA} == OPTIONS_OF_SCHEMA
    response = await Agent(
        ScriptedModel(call("find", q="x", call_id="a"), "ok"), tools=[found]
    ).chat("?")
    assert seen == [({"q": "x"}, dict, "a")]  # no default is filled in
    assert [m.text for m in response.messages if m.role == "tool"] == ["found"]


OPTIONS_OF_SCHEMA: dict[str, Any] = {
    name: OPTIONS[name] for name in ("parallel", "idempotent", "timeout", "enabled")
}


@pytest.mark.parametrize(
    ("arguments", "issue"),
    [
        pytest.param({}, "'q' is a required property", id="missing"),
        pytest.param({"q": 1}, "q: 1 is not of type 'string'", id="type"),
        pytest.param({"q": "x", "n": "3"}, "n: '3' is not of type", id="no-coercion"),
        pytest.param({"q": "x", "n": 6}, "n: 6 is greater than the maximum", id="range"),
        pytest.param({"q": "x", "z": 1}, "'z' was unexpected", id="unknown"),
    ],
)
def test_arguments_are_checked_against_the_schema(arguments: Any, issue: str) -> None:
    made = Tool.from_schema("find", "", SCHEMA, lambda arguments: None)
    with pytest.raises(ToolArgumentsError, match=issue):
        made.bind(arguments)
    unchecked = Tool.from_schema("find", "", SCHEMA, lambda arguments: None, validate=False)
    assert unchecked.bind(arguments) == {"arguments": arguments}


def test_what_is_said_of_bad_arguments_is_bounded() -> None:
    made = Tool.from_schema("find", "", SCHEMA, lambda arguments: None)
    with pytest.raises(BadArguments) as bad:
        made.signature.bind({"q": ["x" * 1_000_000], "n": "y" * 1_000_000})
    assert sum(map(len, bad.value.issues)) < 1_000
    many = {"type": "object", "additionalProperties": {"type": "string"}}
    made = Tool.from_schema("find", "", many, lambda arguments: None)
    with pytest.raises(BadArguments) as bad:
        made.signature.bind({str(i): i for i in range(1_000)})
    assert len(bad.value.issues) == 20


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        pytest.param(["type"], "must be a dict", id="no-dict"),
        pytest.param({"type": "array"}, "must describe an object", id="no-object"),
        pytest.param({"properties": []}, "must describe an object", id="no-properties"),
        pytest.param(
            {"properties": {"a": {"type": "text"}}}, "must be a valid JSON schema", id="bad-type"
        ),
        pytest.param({"required": "q"}, "must be a valid JSON schema", id="bad-required"),
        pytest.param({"x": object()}, "must be JSON data", id="no-json"),
        pytest.param(
            {"properties": {"a": {"$ref": "https://example.org/a"}}},
            "nothing is fetched",
            id="remote",
        ),
        pytest.param({"properties": {"a": {"$ref": "#/$defs/a"}}}, "'#/\\$defs/a'", id="dangling"),
    ],
)
def test_a_schema_that_cannot_work_is_refused_where_the_tool_is_made(
    schema: Any, words: str
) -> None:
    with pytest.raises(ToolDefinitionError, match=words):
        Tool.from_schema("find", "", schema, lambda arguments: None)


@pytest.mark.parametrize(
    "schema",
    [
        pytest.param({}, id="empty"),
        pytest.param(
            {"$defs": {"a": {}}, "properties": {"a": {"$ref": "#/$defs/a"}}}, id="local"
        ),
        pytest.param(
            {"$schema": "http://json-schema.org/draft-07/schema#", "definitions": {"a": {}},
             "properties": {"a": {"$ref": "#/definitions/a"}}}, id="draft-7"),
        pytest.param({"properties": {"$ref": {"type": "string"}}}, id="a-property-of-that-name"),
        pytest.param(
            {"$id": "urn:x", "items": {"$id": "urn:b", "$defs": {"c": {}}, "$ref": "#/$defs/c"}},
            id="an-id-inside"),
    ],
)  # fmt: skip
def test_a_schema_may_refer_to_itself(schema: Any) -> None:
    Tool.from_schema("find", "", schema, lambda arguments: None).bind({})


def test_a_schema_without_end_makes_bad_arguments() -> None:
    endless = {"allOf": [{"$ref": "#"}]}
    with pytest.raises(ToolArgumentsError, match="cannot be checked"):
        Tool.from_schema("find", "", endless, lambda arguments: None).bind({})


@pytest.mark.parametrize(
    "fn",
    [lambda: None, lambda a, b: None, lambda *a: None, lambda **a: None, lambda a, /: None, "find"],
    ids=["none", "two", "any", "names", "positional", "text"],
)
def test_a_function_that_does_not_take_one_dict_is_refused(fn: Any) -> None:
    with pytest.raises(ToolDefinitionError):
        Tool.from_schema("find", "", SCHEMA, fn)


@pytest.mark.parametrize("name", ["", "a.b", "x" * 65, None], ids=repr)
def test_a_name_that_no_provider_takes_is_refused(name: Any) -> None:
    with pytest.raises(ToolDefinitionError, match="1 to 64 letters"):
        Tool.from_schema(name, "", SCHEMA, lambda arguments: None)


def test_without_the_library_the_install_line_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jsonschema", None)
    with pytest.raises(ToolDefinitionError, match=r'pip install "hookline\[schema\]"'):
        Tool.from_schema("find", "", SCHEMA, lambda arguments: None)
    Tool.from_schema("find", "", SCHEMA, lambda arguments: None, validate=False)


# ── enabled(run) ────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("enabled", "offered"),
    [
        pytest.param(lambda run: run.deps == "admin", True, id="run"),
        pytest.param(lambda run: run.deps == "guest", False, id="run-off"),
        pytest.param(lambda: False, False, id="none"),
        pytest.param(lambda flag=False: flag, False, id="a-default-of-its-own"),
        pytest.param(lambda run=None: run.deps == "admin", True, id="a-default-named-run"),
        pytest.param(lambda run: run.nonsense, False, id="raises"),
    ],
)
@pytest.mark.parametrize("where", ["tool", "scope"])
async def test_enabled_is_asked_with_the_run_where_it_takes_it(
    enabled: Any, offered: bool, where: str
) -> None:
    on = enabled if where == "tool" else None
    scope = Scope("s", tools=[tool(search, enabled=on)], enabled=None if on else enabled)
    model = ScriptedModel(call("search", q="x"), "done")
    agent: Agent[str] = Agent(model, scopes=[scope])
    response = await agent.chat("go", deps="admin")
    assert [len(request.tools) for request in model.requests] == [offered, offered]
    [result] = [m for m in response.messages if m.role == "tool"]
    assert result.outcome == ("ok" if offered else "error")


# ── scopes.replace ──────────────────────────────────────────────────────────────────────────


def scope_of(label: str, *names: str) -> Scope:
    return Scope(label, tools=[tool(search, name=name) for name in names])


async def test_a_scope_is_replaced_in_one_go_and_no_step_is_without() -> None:
    agent = Agent(model := ScriptedModel(call("a1", q="x"), "done"), scopes=[scope_of("a", "a1")])
    agent.scopes.register(scope_of("b", "b1"))
    told: list[str] = []
    agent.add_hook("onScopeRegister", lambda ctx: told.append(f"+{names(ctx.scope)}"))
    agent.add_hook("onScopeUnregister", lambda ctx: told.append(f"-{names(ctx.scope)}"))

    @agent.hook("onStep")
    def change(ctx: Any) -> None:
        agent.scopes.replace("a", scope_of("a", "a1", "a2"))

    await agent.chat("go", conversation=Conversation())
    assert [[t.name for t in r.tools] for r in model.requests] == [["a1", "b1"], ["a1", "a2", "b1"]]
    assert told[:2] == ["-['a1']", "+['a1', 'a2']"]


def names(scope: Scope) -> list[str]:
    return [each.name for each in scope.tools]


@pytest.mark.parametrize(
    ("label", "scope"),
    [
        pytest.param("z", scope_of("z"), id="no-such-scope"),
        pytest.param("a", scope_of("b"), id="label-taken"),
        pytest.param("a", scope_of("a", "a1", "b1"), id="tool-taken"),
    ],
)
def test_a_replacement_that_cannot_be_changes_nothing(label: str, scope: Scope) -> None:
    agent = Agent(ScriptedModel("x"), scopes=[scope_of("a", "a1"), scope_of("b", "b1")])
    before = list(agent.scopes)
    with pytest.raises(ScopeError):
        agent.scopes.replace(label, scope)
    assert list(agent.scopes) == before


def test_the_disposer_of_a_replacement_removes_it_and_the_old_one_does_nothing() -> None:
    agent = Agent(ScriptedModel("x"))
    old = agent.scopes.register(scope_of("a", "a1"))
    new = agent.scopes.replace("a", scope_of("other", "a1"))
    old()
    assert [scope.label for scope in agent.scopes] == ["other"]
    new()
    assert list(agent.scopes) == []
