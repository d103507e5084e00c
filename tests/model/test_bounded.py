"""A stranger's schema cannot hold the event loop: what is checked, and what is passed over."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hookline import Agent, Tool
from hookline._base.json import BadArguments
from hookline._tools import bounded
from hookline._tools.foreign import checker
from hookline.events import ToolCallFinished
from hookline.testing import ScriptedModel, call, collect

jsonschema = pytest.importorskip("jsonschema")

HOSTILE = [
    pytest.param(r"^(a+)+$", id="nested"),
    pytest.param(r"^(a|aa)+$", id="alternatives"),
    pytest.param(r"(x+x+)+y", id="two-in-one"),
    pytest.param("a?" * 30 + "a" * 30, id="optional"),
    pytest.param(r"^(?=(a*)*b)", id="lookahead"),
    pytest.param(r"^(\w+\s?)*$", id="words"),
    pytest.param(r"^(.*)\1(.*)\2b$", id="backreference"),
    pytest.param(r"(?:a{0,100}){0,100}b", id="counted"),
    pytest.param(r"(?m)^(a*)*$b", id="lines"),
    pytest.param("((((a|b)*c?)*){2,9}d?)*" * 3 + "e", id="deep"),
    pytest.param(r"(.*)*(.*)*(.*)*b", id="cubed"),
]


def of(properties: Any, **more: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, **more}


def refuses(schema: dict[str, Any], data: Any) -> tuple[str, ...]:
    """The issues; none where the data is taken."""
    try:
        checker("t", schema)(data)
    except BadArguments as error:
        return error.issues
    return ()


# ── patterns: a test that hangs here has failed ─────────────────────────────────────────────


@pytest.mark.parametrize("pattern", HOSTILE)
@pytest.mark.parametrize("text", ["a" * 5_000 + "!", "x" * 5_000], ids=["a", "x"])
def test_a_pattern_that_could_take_for_ever_is_passed_over(pattern: str, text: str) -> None:
    assert refuses(of({"a": {"type": "string", "pattern": pattern}}), {"a": text}) == ()


@pytest.mark.parametrize("pattern", HOSTILE)
def test_so_is_one_for_the_names_of_properties(pattern: str) -> None:
    name = "a" * 5_000 + "!"
    schema = of({}, patternProperties={pattern: {"type": "integer"}}, additionalProperties=False)
    assert refuses(schema, {name: "x"}) == ()
    assert refuses(of({}, propertyNames={"pattern": pattern}), {name: 1}) == ()
    hidden = of({}, patternProperties={pattern: True}, unevaluatedProperties=False)
    assert refuses(hidden, {name: 1}) == ()


@pytest.mark.parametrize("pattern", HOSTILE)
@pytest.mark.parametrize("inside", ["draft-04", "draft-07"])
def test_so_is_one_in_a_part_of_another_dialect(pattern: str, inside: str) -> None:
    part = {"$schema": f"http://json-schema.org/{inside}/schema#", "pattern": pattern}
    assert refuses(of({"a": part}), {"a": "a" * 5_000 + "!"}) == ()


@pytest.mark.parametrize(
    ("pattern", "good", "bad"),
    [
        (r"^[a-z]+$", "abc" * 10_000, "abc" * 10_000 + "!"),
        (r"^\d{4}-\d{2}-\d{2}$", "2026-11-22", "22.11.2026"),
        (r"^https?://\S+$", "https://x.example/" + "a" * 2_000, "ftp://x"),
        (r"^[^@\s]+@[^@\s]+\.[a-z]{2,}$", "ada@example.org", "ada"),
        (r"^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$", f"{'a' * 8}{'-aaaa' * 3}-{'a' * 12}", "a"),
        (r"b", "abc", "ac"),
        (r"^(?!tmp).*$", "home", "tmp/x"),
        (r"^.{1,100}$", "x" * 100, "x" * 101),
        (r"^(a|b|cd)$", "cd", "c"),
    ],
)
def test_the_usual_patterns_are_checked(pattern: str, good: str, bad: str) -> None:
    schema = of({"a": {"pattern": pattern}})
    assert refuses(schema, {"a": good}) == ()
    [issue] = refuses(schema, {"a": bad})
    assert "does not match" in issue


def test_the_names_of_properties_are_checked() -> None:
    schema = of(
        {"a": True}, patternProperties={"^x-": {"type": "integer"}}, additionalProperties=False
    )
    assert refuses(schema, {"a": "x", "x-b": 1}) == ()
    assert "not of type 'integer'" in refuses(schema, {"x-b": "1"})[0]
    assert "'b' was unexpected" in refuses(schema, {"b": 1, "x-b": 1})[0]
    typed = of({}, patternProperties={"^x-": True}, additionalProperties={"type": "integer"})
    assert refuses(typed, {"x-b": "1"}) == ()
    assert refuses(typed, {"b": "1"}) != ()


def test_many_texts_together_have_one_bound() -> None:
    """Each is cheap enough by itself; past the bound they are passed over, and none is refused."""
    schema = of({"a": {"items": {"pattern": "^a*a*$"}}})
    assert refuses(schema, {"a": ["a" * 500 + "!"] * 5_000})[0].endswith("'^a*a*$'")
    assert refuses(schema, {"a": ["a" * 500] * 5_000}) == ()


REGEX = st.recursive(
    st.sampled_from(["a", "b", ".", "[ab]", "^", "$", r"\w"]),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map("".join),
        st.tuples(inner, inner).map(lambda two: f"({two[0]}|{two[1]})"),
        st.tuples(inner, st.sampled_from(["*", "+", "?", "{1,3}"])).map(
            lambda two: f"(?:{two[0]}){two[1]}"
        ),
        inner.map(lambda each: f"(?={each})"),
    ),
    max_leaves=6,
)


@given(pattern=REGEX, text=st.text("ab", max_size=12))
def test_what_is_checked_is_what_re_says(pattern: str, text: str) -> None:
    bounded._budget.set([bounded.STEPS, bounded.MOVES])
    found = bounded.matches(pattern, text)
    assert found is None or found is (re.search(pattern, text) is not None)


# ── schemas that take many steps ────────────────────────────────────────────────────────────


def doubling(levels: int) -> dict[str, Any]:
    """Each level refers to the next one twice."""
    parts: dict[str, Any] = {"x0": True}
    for n in range(levels):
        parts[f"x{n + 1}"] = {"allOf": [{"$ref": f"#/$defs/x{n}"}] * 2}
    return of({"a": {"$ref": f"#/$defs/x{levels}"}}, **{"$defs": parts})


def test_a_schema_that_doubles_on_each_level_is_refused_at_the_bound() -> None:
    assert refuses(doubling(8), {"a": 1}) == ()
    [issue] = refuses(doubling(60), {"a": 1})
    assert issue == "checking the arguments against the tool's schema takes too long; send less"


def test_unevaluated_properties_beside_references_are_passed_over() -> None:
    schema = {**doubling(60), "unevaluatedProperties": False}
    schema["allOf"] = [{"$ref": "#/$defs/x60"}]
    assert len(refuses(schema, {"b": 1})) == 1  # the references themselves are the bound
    plain = of({"a": True}, unevaluatedProperties=False)
    assert refuses(plain, {"a": 1}) == ()
    assert refuses(plain, {"b": 1}) != ()


def test_unique_objects_are_compared_as_long_as_they_are_few() -> None:
    schema = of({"a": {"uniqueItems": True}})
    assert refuses(schema, {"a": [{"n": n} for n in range(100)]}) == ()
    assert refuses(schema, {"a": [{"n": 1}] * 2}) != ()
    [issue] = refuses(schema, {"a": [{"n": n} for n in range(10_000)]})
    assert "takes too long" in issue


def test_a_long_list_of_plain_values_is_checked() -> None:
    schema = of({"a": {"items": {"type": "integer"}, "uniqueItems": True}})
    assert refuses(schema, {"a": list(range(20_000))}) == ()
    assert refuses(schema, {"a": [*range(20_000), "x"]}) != ()


# ── in a chat ───────────────────────────────────────────────────────────────────────────────


async def test_a_chat_goes_on_past_a_hostile_schema() -> None:
    async def fn(arguments: dict[str, Any]) -> str:
        return "fine"

    hostile = Tool.from_schema("hostile", "", of({"a": {"pattern": "^(a+)+$"}}), fn)
    doubles = Tool.from_schema("doubles", "", doubling(60), fn)
    model = ScriptedModel(
        call("hostile", call_id="hostile", a="a" * 5_000 + "!"),
        call("doubles", call_id="doubles", a=1),
        "done",
    )
    events = await collect(Agent(model, tools=[hostile, doubles]).chat_stream("go"))
    ends: dict[str, Any] = {e.call_id: e.result for e in events if isinstance(e, ToolCallFinished)}
    assert ends["hostile"].value == "fine"
    assert ends["doubles"].type == "ToolArgumentsError"
    assert "takes too long" in ends["doubles"].message
