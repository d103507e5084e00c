"""The mutation tester makes the changes that it says, and notices whether a test does."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from .mutate import SOURCES, Place, changed, changes, places, survives

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
    module = "_model.callables"
    noticed = next(place for place in places([module]) if place.change == "return None")
    assert not survives(noticed, tests)
    elsewhere = next(place for place in places(["_chat"]) if place.change == "return None")
    assert survives(elsewhere, tests)


def test_a_place_is_named_by_its_module_and_line() -> None:
    found = places(["_base.json"])
    assert found
    assert all(isinstance(place, Place) and place.module == "_base.json" for place in found)
    lines = (SOURCES / "_base" / "json.py").read_text().splitlines()
    assert all(1 <= place.line <= len(lines) for place in found)
