"""Arguments that take a number refuse what is none, with their name and the value."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
from tests._wires import ADAPTERS, KEY, WIRES

from hookline import Limits
from hookline.errors import UsageError
from hookline.mcp import MCPServer
from hookline.points import check_number
from hookline.stores import SQLStore

WRONG: dict[str, Any] = {
    "nan": math.nan,
    "negative": -1,
    "bool": True,
    "text": "5",
    "list": [],
    "deep": [[[[[[[[]]]]]]]],
}
UNLIMITED = ("request_seconds", "tool_timeout")


def store(**options: Any) -> SQLStore:
    return SQLStore("sqlite:///never-opened.db", **options)


TAKES_NUMBERS: dict[str, Callable[[Any], object]] = {
    **{
        f"Limits.{name}": lambda value, name=name: Limits(**{name: value})
        for name in Limits.__struct_fields__
    },
    "lease": lambda value: store(lease=value),
    "busy_timeout": lambda value: store(busy_timeout=value),
    "reconnect": lambda value: store(reconnect=value),
    **{
        name: lambda value, name=name: MCPServer.stdio("never-started", **{name: value})
        for name in ("timeout", "connect_timeout")
    },
    **{
        f"idle_timeout {kind}": lambda value, kind=kind: ADAPTERS[kind](
            "m", api_key=KEY, idle_timeout=value
        )
        for kind in WIRES
    },
}


@pytest.mark.parametrize("value", WRONG.values(), ids=WRONG)
@pytest.mark.parametrize("name", TAKES_NUMBERS)
def test_a_wrong_number_is_refused_with_its_name_and_its_value(name: str, value: Any) -> None:
    with pytest.raises(UsageError) as caught:
        TAKES_NUMBERS[name](value)

    text = str(caught.value)
    assert text.startswith(
        f"{name.partition(' ')[0]}={'[' if isinstance(value, list) else repr(value)}"
    )
    assert "must be a" in text


@pytest.mark.parametrize("name", [*Limits.__struct_fields__])
def test_only_seconds_may_be_unlimited_or_broken(name: str) -> None:
    seconds = name in (*UNLIMITED, "grace")
    for value, right in ((None, name in UNLIMITED), (1.5, seconds), (math.inf, seconds), (1, True)):
        if right:
            assert getattr(Limits(**{name: value}), name) == value
        else:
            with pytest.raises(UsageError, match=rf"Limits\.{name}={value!r} must be a"):
                Limits(**{name: value})


def test_a_copy_of_limits_is_checked_too() -> None:
    with pytest.raises(UsageError, match=r"Limits\.steps=0 must be a whole number of at least 1"):
        Limits(steps=3).replace(steps=0)


def test_numbers_on_the_bound_pass() -> None:
    check_number("size", 0)
    check_number("size", 2, least=2, whole=True)
    with pytest.raises(UsageError, match="size=0 must be a number above 0"):
        check_number("size", 0, above=0)
    with pytest.raises(UsageError, match=r"size=2\.0 must be a whole number of at least 0"):
        check_number("size", 2.0, whole=True)
