"""`scripts/test --changed`: the tests that a change concerns, read off the imports."""

from __future__ import annotations

import importlib.util
from functools import cache
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent


@cache
def _script() -> Any:
    spec = importlib.util.spec_from_file_location(
        "changed_tests", ROOT / "scripts/dev/changed_tests.py"
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _concerned(*changes: str) -> set[str]:
    paths = _script().concerned({ROOT / change for change in changes})
    return {path.relative_to(ROOT).as_posix() for path in paths}


@pytest.mark.slow
def test_a_change_of_a_door_concerns_its_own_tests_and_not_those_of_other_doors() -> None:
    tests = _concerned("src/hookline/stores/_url.py")
    assert "tests/stores/test_stores.py" in tests
    assert not [test for test in tests if test.startswith("tests/providers/")]


def test_a_change_of_the_core_concerns_the_tests_of_the_doors_too() -> None:
    tests = _concerned("src/hookline/_base/messages.py")
    assert {"tests/stores/test_stores.py", "tests/test_streams.py"} <= tests


def test_a_change_of_a_helper_concerns_the_tests_that_import_it() -> None:
    assert "tests/test_house.py" in _concerned("tests/_rules.py")


def test_a_change_of_a_program_concerns_the_tests_that_run_it() -> None:
    assert "tests/stores/test_stores_kill.py" in _concerned("tests/_killing.py")
    assert "tests/durable/test_engines.py" in _concerned("tests/durable/_worker.py")


def test_a_change_of_fixtures_concerns_the_tests_of_their_folder() -> None:
    tests = _concerned("tests/durable/conftest.py")
    assert "tests/durable/test_engines.py" in tests
    assert all(test.startswith("tests/durable/") for test in tests)


def test_a_changed_test_concerns_itself_alone() -> None:
    assert _concerned("tests/test_rules.py") == {"tests/test_rules.py"}


def test_a_page_concerns_no_test() -> None:
    assert _concerned("docs/web.md") == set()
