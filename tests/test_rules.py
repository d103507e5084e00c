"""A rule for many things is one test that lists everything that breaks it."""

from __future__ import annotations

import pytest
from tests._rules import every


def test_a_rule_lists_each_case_that_breaks_it() -> None:
    @every([1, 2, 3, 4])
    def rule(number: int) -> None:
        assert number % 2, "even"

    with pytest.raises(AssertionError, match=r"(?s)2 of 4:\n2: even.*\n4: even"):
        rule()


def test_a_rule_applies_to_each_combination_of_lists() -> None:
    pairs: list[tuple[int, str]] = []

    @every([1, 2], ["a", "b"])
    def rule(number: int, letter: str) -> None:
        pairs.append((number, letter))

    rule()
    assert pairs == [(1, "a"), (1, "b"), (2, "a"), (2, "b")]


def test_a_rule_without_a_case_fails() -> None:
    @every([])
    def rule(number: int) -> None: ...

    with pytest.raises(AssertionError, match="no case"):
        rule()
