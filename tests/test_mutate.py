"""The mutation tester makes the changes that it says, and notices whether a test does."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from .mutate import (
    FIRST_LOOK,
    NOTICED,
    SECOND_LOOK,
    SOURCES,
    SURVIVED,
    UNTESTED,
    Place,
    changed,
    changes,
    drawn,
    judged,
    places,
)

CODE = """
def f(a: int = 1) -> int:
    if a > 1 and not None:
        print(a)
        self.a = 2
        raise ValueError
    return a + 1
"""


def test_each_kind_of_change_is_found(tmp_path: Path) -> None:
    path = tmp_path / "f.py"
    path.write_text(CODE)
    made = {change: changed(path, i) for i, (_, change, _) in enumerate(changes(ast.parse(CODE)))}
    assert "if not (a > 1 and (not None)):" in made["negate the condition"]
    assert (
        "if a > 1 or (not None):" in made["swap the operator"]
        or "a - 1" in made["swap the operator"]
    )
    assert "if a <= 1 and (not None):" in made["turn the comparison"]
    assert "print" not in made["leave out the statement"]
    assert "self.a" not in made["leave out the assignment"]
    assert "raise" not in made["do not raise"]
    assert "return None" in made["return None"]
    assert len({*made.values(), ast.unparse(ast.parse(CODE))}) == len(made) + 1


def test_annotations_defaults_and_assertions_are_left_alone() -> None:
    code = "def f(a: int = 1) -> int:\n    assert a > 1\n    b: int = a\n    return b"
    assert [change for _, change, _ in changes(ast.parse(code))] == ["return None"]


@pytest.mark.slow
def test_a_change_that_a_test_sees_is_noticed_and_another_survives() -> None:
    """Read by the tests of `parse_docstring`: its first return. `Chat` is not in their way."""
    tests = ["tests/model/test_callables.py"]
    module = "_tools.callables"
    noticed = next(place for place in places([module]) if place.change == "return None")
    assert judged(noticed, [tests, []]) == NOTICED[0]
    elsewhere = next(place for place in places(["_chat"]) if place.change == "return None")
    assert judged(elsewhere, [tests, []]) == SURVIVED


@pytest.mark.slow
def test_what_the_first_look_misses_the_second_may_notice() -> None:
    noticed = next(place for place in places(["_tools.callables"]) if place.change == "return None")
    looks = [
        ["tests/base/test_limits.py::test_the_defaults_are_finite_and_those_that_are_promised"],
        ["tests/model/test_callables.py"],
    ]
    assert judged(noticed, looks) == NOTICED[1]


def test_a_change_that_no_test_runs_is_said_to_be_untested() -> None:
    assert judged(places(["_chat"])[0], drawn(places(["_chat"])[0], [])) == UNTESTED


@pytest.mark.parametrize("count", [1, FIRST_LOOK, FIRST_LOOK + 1, FIRST_LOOK + SECOND_LOOK + 1])
def test_the_second_look_asks_tests_that_the_first_did_not(count: int) -> None:
    tests = [f"tests/test_{i:03}.py" for i in range(count)]
    first, second = drawn(Place("_chat.loop", 1, "return None", 7), tests)
    assert len(first) == min(count, FIRST_LOOK)
    assert len(second) == min(count - len(first), SECOND_LOOK)
    asked = {*first, *second}
    assert len(asked) == len(first) + len(second)
    assert asked <= set(tests)


def test_a_place_is_named_by_its_module_and_line() -> None:
    found = places(["_base.json"])
    assert found
    assert all(isinstance(place, Place) and place.module == "_base.json" for place in found)
    lines = (SOURCES / "_base" / "json.py").read_text().splitlines()
    assert all(1 <= place.line <= len(lines) for place in found)
