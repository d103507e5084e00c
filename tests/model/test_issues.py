"""A JSON value as a Python type, and every reason why it does not fit."""

import dataclasses
import datetime
import decimal
import enum
import sys
import uuid
from collections.abc import Mapping, Sequence
from typing import (
    Annotated,
    Any,
    Generic,
    Literal,
    NamedTuple,
    NewType,
    NotRequired,
    TypedDict,
    TypeVar,
)

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field, field_validator, model_validator

from hookline._tools.issues import decode_foreign, find_issues

T = TypeVar("T")


class Item(BaseModel):
    price: float
    tags: list[str] = []
    when: datetime.date | None = None

    @field_validator("tags")
    @classmethod
    def few(cls, tags: list[str]) -> list[str]:
        if len(tags) > 3:
            raise ValueError("at most 3 tags")
        return tags


class Crashing(BaseModel):
    a: int

    @model_validator(mode="after")
    def crash(self) -> "Crashing":
        raise LookupError("secret")


@dataclasses.dataclass
class Box:
    items: list[Item]
    size: Annotated[int, msgspec.Meta(ge=0)] = 3

    def __post_init__(self) -> None:
        if self.size == 13:
            raise ValueError("unlucky")
        if self.size == 14:
            raise LookupError("secret")


class Point(msgspec.Struct, forbid_unknown_fields=True, rename="camel"):
    x_axis: int
    y_axis: int


class Row(msgspec.Struct, array_like=True):
    a: int
    b: str


class Cat(msgspec.Struct, tag=True, forbid_unknown_fields=True):
    lives: int
    name: str


class Dog(msgspec.Struct, tag=True):
    tricks: list[str]


class Wrapped(msgspec.Struct, Generic[T]):
    value: T
    count: int


class Options(TypedDict):
    name: str
    sizes: NotRequired[list[int]]


class Coordinates(NamedTuple):
    x: int
    y: int


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


@dataclasses.dataclass
class Node:
    value: int
    children: "list[Node]" = dataclasses.field(default_factory=list)


UserId = NewType("UserId", int)


@pytest.mark.parametrize(
    ("value", "hint", "expected"),
    [
        pytest.param("5", int, ["v: expected int, got str"], id="no-coercion"),
        pytest.param(True, int, ["v: expected int, got bool"], id="bool-is-no-int"),
        pytest.param(1.0, int, ["v: expected int, got float"], id="float-is-no-int"),
        pytest.param(1, float, [], id="int-is-a-float"),
        pytest.param(None, int, ["v: expected int, got null"], id="null"),
        pytest.param([1], int | str, ["v: expected int | str, got array"], id="union"),
        pytest.param("x", Literal["a", 1, None], ['v: must be one of "a", 1, null'], id="literal"),
        pytest.param("x" * 9999, Colour, ['v: must be one of "red", "blue"'], id="enum"),
        pytest.param("x", Colour | None, ['v: must be one of "red", "blue"'], id="optional-enum"),
        pytest.param("x", datetime.date, ["v: invalid RFC3339 encoded date"], id="date"),
        pytest.param("x", uuid.UUID, ["v: invalid UUID"], id="uuid"),
        pytest.param("x", decimal.Decimal, ["v: invalid decimal string"], id="decimal"),
        pytest.param("x", bytes, ["v: invalid base64 encoded string"], id="bytes"),
        pytest.param(
            0, Annotated[int, msgspec.Meta(ge=1)], ["v: expected int >= 1"], id="constraint"
        ),
        pytest.param("1", UserId, ["v: expected int, got str"], id="new-type"),
        pytest.param(
            ["a", 1, "b"],
            list[int],
            ["v[0]: expected int, got str", "v[2]: expected int, got str"],
            id="list",
        ),
        pytest.param(["a"], Sequence[int], ["v[0]: expected int, got str"], id="sequence"),
        pytest.param(
            [["a"], [1, 2]],
            list[tuple[int]],
            ["v[0][0]: expected int, got str", "v[1]: expected array of length 1, got 2"],
            id="tuples",
        ),
        pytest.param(
            ["a", 1],
            tuple[int, str],
            ["v[0]: expected int, got str", "v[1]: expected str, got int"],
            id="fixed-tuple",
        ),
        pytest.param(["a", 1], tuple[str, ...], ["v[1]: expected str, got int"], id="open-tuple"),
        pytest.param(
            [],
            Annotated[list[int], msgspec.Meta(min_length=1)],
            ["v: expected array of length >= 1"],
            id="length",
        ),
        pytest.param(
            [[1]],
            set[Any],
            ["v: cannot be converted to the required type (TypeError)"],
            id="unhashable",
        ),
        pytest.param(
            {"a": "x", "b b": 1, "c": None},
            dict[str, int],
            ["v.a: expected int, got str", "v.c: expected int, got null"],
            id="dict",
        ),
        pytest.param(
            {"b b": ""}, Mapping[str, int], ['v["b b"]: expected int, got str'], id="mapping"
        ),
        pytest.param(
            {"x": 1, "2": "y"},
            dict[int, int],
            ["v.x: this key is not allowed here", 'v["2"]: expected int, got str'],
            id="keys",
        ),
        pytest.param(
            {"k" * 99: ""},
            dict[str, int],
            ['v["%s…"]: expected int, got str' % ("k" * 59)],
            id="long-key",
        ),
        pytest.param(
            {"\ud800": ""}, dict[str, int], ['v["\ufffd"]: expected int, got str'], id="broken-key"
        ),
        pytest.param(
            {"items": [{"price": "x", "tags": [1]}, {}, {"price": 1}], "size": -1},
            Box,
            [
                "v.items[0].price: Input should be a valid number",
                "v.items[0].tags[0]: Input should be a valid string",
                "v.items[1].price: Field required",
                "v.size: expected int >= 0",
            ],
            id="pydantic-in-dataclass",
        ),
        pytest.param({}, Box, ["v.items: missing, but required"], id="dataclass"),
        pytest.param({"items": [], "size": 13}, Box, ["v: unlucky"], id="post-init"),
        pytest.param(
            {"items": [], "size": 14},
            Box,
            ["v: cannot be converted to the required type (LookupError)"],
            id="crash",
        ),
        pytest.param(
            {"price": "5"}, Item, ["v.price: Input should be a valid number"], id="pydantic-strict"
        ),
        pytest.param(
            {"price": 5, "tags": ["a"] * 4},
            Item,
            ["v.tags: Value error, at most 3 tags"],
            id="pydantic-validator",
        ),
        pytest.param(
            {"a": 5},
            Crashing,
            ["v: cannot be converted to the required type (LookupError)"],
            id="pydantic-crash",
        ),
        pytest.param(
            {"a": {"price": 1}, "b": 5},
            dict[str, Item | None],
            ["v.b: Input should be an object"],
            id="pydantic-in-dict",
        ),
        pytest.param(
            {"yAxis": "1", "x_axis": 1},
            Point,
            [
                "v.xAxis: missing, but required",
                "v.yAxis: expected int, got str",
                'v.x_axis: unknown; the known names are: "xAxis", "yAxis"',
            ],
            id="struct",
        ),
        pytest.param(5, Point, ["v: expected object, got int"], id="not-an-object"),
        pytest.param({"a": 1}, Row, ["v: expected array, got object"], id="array-struct"),
        pytest.param([1, 2], Row, ["v[1]: expected str, got int"], id="array-struct-item"),
        pytest.param(["1", "2"], Coordinates, ["v[0]: expected int, got str"], id="named-tuple"),
        pytest.param(
            {"type": "Cat", "name": 1, "age": 3},
            Cat | Dog | None,
            [
                "v.lives: missing, but required",
                "v.name: expected str, got int",
                'v.age: unknown; the known names are: "lives", "name"',
            ],
            id="tagged-union",
        ),
        pytest.param({"type": "Cow"}, Cat | Dog, ["v.type: invalid value 'Cow'"], id="unknown-tag"),
        pytest.param(
            {"sizes": [1, "2"]},
            Options,
            ["v.name: missing, but required", "v.sizes[1]: expected int, got str"],
            id="typed-dict",
        ),
        pytest.param(
            {"a": "x"},
            list[int] | dict[str, int] | None,
            ["v.a: expected int, got str"],
            id="union-of-shapes",
        ),
        pytest.param(
            ["x"],
            list[int] | dict[str, int] | str,
            ["v[0]: expected int, got str"],
            id="union-of-shapes-array",
        ),
        pytest.param(
            {"value": "x", "count": "y"},
            Wrapped[int],
            ["v.count: expected int, got str"],
            id="generic",
        ),
        pytest.param(
            {"value": "x", "count": 1},
            Wrapped[int],
            ["v.value: expected int, got str"],
            id="generic-field",
        ),
        pytest.param(
            {"value": 1, "children": [{"value": "x"}, {"value": 2, "children": [{}]}]},
            Node,
            [
                "v.children[0].value: expected int, got str",
                "v.children[1].children[0].value: missing, but required",
            ],
            id="recursive",
        ),
        pytest.param(
            ["x"], list[int] | Literal["a"], ["v[0]: expected int, got str"], id="array-or-literal"
        ),
        pytest.param(
            1,
            complex,
            ["v: <class 'complex'> cannot be converted from JSON"],
            id="no-json-type",
        ),
    ],
)
def test_every_issue_is_named_with_its_path(value: Any, hint: Any, expected: list[str]) -> None:
    assert find_issues(value, hint, "v") == expected


def test_a_model_instance_passes_as_it_is() -> None:
    item = Item(price=1)
    assert decode_foreign(Item, item) is item


@pytest.mark.skipif(sys.version_info < (3, 12), reason="the type statement is of Python 3.12")
def test_an_alias_is_looked_through() -> None:
    from typing import TypeAliasType

    ints = TypeAliasType("ints", list[int])
    assert find_issues(["x"], ints, "v") == ["v[0]: expected int, got str"]


def test_a_long_text_is_cut() -> None:
    (issue,) = find_issues({"type": "C" * 9999}, Cat | Dog, "v")
    assert issue.startswith("v.type: invalid value 'CCC")
    assert len(issue) < 350


class Alias(BaseModel):
    model_config = {"extra": "forbid"}
    start: int = Field(alias="from")


def test_an_alias_of_pydantic_is_the_name() -> None:
    assert find_issues({"from": 1}, Alias, "v") == []
    assert find_issues({"start": 1}, Alias, "v") == [
        "v.from: Field required",
        "v.start: Extra inputs are not permitted",
    ]


@given(st.lists(st.integers() | st.text() | st.none()))
def test_law_one_issue_for_each_wrong_item(items: list[Any]) -> None:
    wrong = [f"v[{index}]" for index, item in enumerate(items) if type(item) is not int]
    assert [issue.split(":")[0] for issue in find_issues(items, list[int], "v")] == wrong
