"""A signature as JSON Schema, and arguments as a function's typed keyword arguments."""

import dataclasses
import datetime
import decimal
import enum
import functools
import inspect
import json
import math
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterable, Iterator
from types import SimpleNamespace
from typing import Annotated, Any, Literal, NewType, NotRequired, TypedDict, TypeVar

import annotated_types
import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field
from pydantic.dataclasses import dataclass as pydantic_dataclass
from typing_extensions import TypeAliasType

from hookline._base.errors import ToolDefinitionError
from hookline._base.frozen import freeze
from hookline._base.json import BadArguments
from hookline._tools.schema import Signature, inspect_callable


class Run:
    """Stands for what the library injects."""


def signature(fn: Callable[..., Any]) -> Signature:
    return inspect_callable(fn, tool="t", skip=lambda hint: hint is Run)


def function_of(hints: dict[str, Any], defaults: dict[str, Any] | None = None) -> Any:
    """A function with these parameters."""
    parameters = [
        inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            annotation=hint,
            default=(defaults or {}).get(name, inspect.Parameter.empty),
        )
        for name, hint in hints.items()
    ]

    def fn(**arguments: Any) -> Any:
        return arguments

    fn.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return fn


def schema_of(hint: Any, **default: Any) -> dict[str, Any]:
    found: dict[str, Any] = signature(function_of({"x": hint}, default)).schema["properties"]["x"]
    return found


def problem(fn: Any) -> str:
    with pytest.raises(ToolDefinitionError) as caught:
        signature(fn)
    return str(caught.value)


def issues(fn: Any, **arguments: Any) -> tuple[str, ...]:
    with pytest.raises(BadArguments) as caught:
        signature(fn).bind(arguments)
    return caught.value.issues


# ── types ───────────────────────────────────────────────────────────────────────────────────


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Tag(BaseModel):
    """A word on an item."""

    word: str = Field(description="One word.")


class Item(BaseModel):
    price: float
    tags: list[Tag] = []
    when: datetime.date | None = None


class Tree(BaseModel):
    children: list["Tree"] = []


@dataclasses.dataclass
class Box:
    """A box."""

    item: Item
    size: Annotated[int, msgspec.Meta(description="In litres.")] = 3


@dataclasses.dataclass
class Node:
    value: int
    next: "Node | None" = None


class Point(msgspec.Struct, forbid_unknown_fields=True):
    x: int
    y: int


class Options(TypedDict):
    name: str
    sizes: NotRequired[list[int]]


@dataclasses.dataclass
class Plain:
    x: int


@pydantic_dataclass
class Checked:
    x: int


@dataclasses.dataclass
class HasField:
    x: Annotated[int, Field(ge=1)]
    again: "HasField | None" = None


# ── schema ──────────────────────────────────────────────────────────────────────────────────


def add(a: int, b: float = 0.5) -> float:
    """Add two numbers.

    Exactly.

    Args:
        a: The first.
        b: The second.

    Returns:
        The sum.
    """
    return a + b


def test_a_function_becomes_a_schema_and_a_description() -> None:
    found = signature(add)
    assert found.description == "Add two numbers.\n\nExactly."
    assert found.injected is None
    assert found.schema == {
        "type": "object",
        "properties": {
            "a": {"type": "integer", "description": "The first."},
            "b": {"type": "number", "description": "The second.", "default": 0.5},
        },
        "required": ["a"],
        "additionalProperties": False,
    }


def test_a_function_without_parameters() -> None:
    def fn() -> None: ...

    found = signature(fn)
    assert found.schema == {
        "type": "object",
        "properties": {},
        "required": [],
        "additionalProperties": False,
    }
    assert found.description == ""
    assert found.bind({}) == {}
    assert issues(fn, a=1) == ("a: unknown; the known names are: none",)


def test_a_signature_is_frozen() -> None:
    with pytest.raises(AttributeError):
        signature(add).injected = "x"  # type: ignore[misc]


def test_a_function_may_change_its_lists_although_the_arguments_are_read_only() -> None:
    def fn(plain: list[list[str]], open: Any) -> None: ...

    def only_plain(plain: list[list[str]]) -> None: ...

    for found in (signature(fn), signature(only_plain)):
        names = found.schema["properties"]
        arguments = freeze({name: [["a"]] for name in names})
        bound = found.bind(arguments)
        for name in names:
            bound[name].append([])
            bound[name][0].append("b")
        assert bound == {name: [["a", "b"], []] for name in names}
        assert arguments == {name: [["a"]] for name in names}


def test_meta_describes_before_the_docstring() -> None:
    def fn(a: Annotated[int, msgspec.Meta(description="meta", ge=1)]) -> None:
        """:param a: docstring"""

    assert signature(fn).schema["properties"] == {
        "a": {"type": "integer", "minimum": 1, "description": "meta"}
    }


def test_models_of_all_kinds_are_defined_at_the_root() -> None:
    def fn(box: Box, items: list[Item], point: Point, node: Node, options: Options) -> None:
        """Fills.

        Args:
            box: Where to.
        """

    schema = signature(fn).schema
    check_schema(schema)
    assert schema["properties"]["box"] == {"$ref": "#/$defs/Box", "description": "Where to."}
    assert schema["properties"]["items"] == {"type": "array", "items": {"$ref": "#/$defs/Item"}}
    definitions = schema["$defs"]
    assert sorted(definitions) == ["Box", "Item", "Node", "Options", "Point", "Tag"]
    assert definitions["Box"]["description"] == "A box."
    assert definitions["Box"]["properties"]["item"] == {"$ref": "#/$defs/Item"}
    assert definitions["Box"]["properties"]["size"]["description"] == "In litres."
    assert definitions["Tag"]["properties"]["word"]["description"] == "One word."
    assert definitions["Tag"]["description"] == "A word on an item."
    assert definitions["Point"]["additionalProperties"] is False
    assert definitions["Node"]["properties"]["next"]["anyOf"][0] == {"$ref": "#/$defs/Node"}


def test_a_recursive_pydantic_model_is_hoisted() -> None:
    schema = signature(function_of({"tree": Tree})).schema
    check_schema(schema)
    assert schema["properties"]["tree"] == {"$ref": "#/$defs/Tree"}
    assert "$defs" not in schema["$defs"]["Tree"]


def test_a_lone_model_is_not_unwrapped() -> None:
    schema = signature(function_of({"item": Item})).schema
    assert list(schema["properties"]) == ["item"]


OTHER = dataclasses.make_dataclass("Item", [("y", int)])
THIRD = pydantic.create_model("Item", z=(int, ...))
TAKEN = msgspec.defstruct("pydantic_Item", [("s", int)])


@pytest.mark.parametrize(
    ("hints", "expected"),
    [
        pytest.param([Item, OTHER], ["price", "y"], id="pydantic-and-dataclass"),
        pytest.param([Item, THIRD], ["price", "z"], id="two-of-pydantic"),
        pytest.param([OTHER, Item, TAKEN], ["y", "price", "s"], id="the-new-name-too"),
        pytest.param([Item, OTHER, THIRD, TAKEN], ["price", "y", "z", "s"], id="all"),
    ],
)
def test_definitions_of_one_name_do_not_clash(hints: list[Any], expected: list[str]) -> None:
    schema = signature(function_of({f"p{i}": hint for i, hint in enumerate(hints)})).schema
    check_schema(schema)
    names = [field["$ref"].removeprefix("#/$defs/") for field in schema["properties"].values()]
    assert [next(iter(schema["$defs"][name]["properties"])) for name in names] == expected


def test_two_classes_that_cannot_be_told_apart_are_refused() -> None:
    twin = dataclasses.make_dataclass("Item", [("w", int)])
    assert "described together" in problem(function_of({"a": OTHER, "b": twin}))
    assert "the same module and name; rename one" in problem(function_of({"a": tuple[OTHER, twin]}))


@pytest.mark.parametrize(
    ("hint", "expected"),
    [
        pytest.param(str, {"type": "string"}, id="str"),
        pytest.param(Any, {}, id="any"),
        pytest.param(dict, {"type": "object"}, id="dict"),
        pytest.param(None, {"type": "null"}, id="none"),
        pytest.param(list[int], {"type": "array", "items": {"type": "integer"}}, id="list"),
        pytest.param(Literal["b", "a"], {"enum": ["a", "b"]}, id="literal"),
        pytest.param(int | None, {"anyOf": [{"type": "integer"}, {"type": "null"}]}, id="optional"),
        pytest.param(int | str, {"anyOf": [{"type": "integer"}, {"type": "string"}]}, id="union"),
        pytest.param(uuid.UUID, {"type": "string", "format": "uuid"}, id="uuid"),
        pytest.param(bytes, {"type": "string", "contentEncoding": "base64"}, id="bytes"),
        pytest.param(datetime.date, {"type": "string", "format": "date"}, id="date"),
        pytest.param(decimal.Decimal, {"type": "string", "format": "decimal"}, id="decimal"),
    ],
)
def test_simple_types(hint: Any, expected: dict[str, Any]) -> None:
    assert schema_of(hint) == expected


@pytest.mark.parametrize(
    ("hint", "default", "shown"),
    [
        pytest.param(int | None, None, None, id="none"),
        pytest.param(Colour, Colour.RED, "red", id="enum"),
        pytest.param(datetime.date, datetime.date(2020, 1, 1), "2020-01-01", id="date"),
        pytest.param(set[str], {"c", "a", "b"}, ["a", "b", "c"], id="set"),
        pytest.param(Tag, Tag(word="w"), {"word": "w"}, id="pydantic"),
        pytest.param(Point, Point(1, 2), {"x": 1, "y": 2}, id="struct"),
        pytest.param(tuple[int, str], (1, "a"), [1, "a"], id="tuple"),
        pytest.param(dict[int, str], {1: "a"}, {"1": "a"}, id="dict"),
    ],
)
def test_a_default_that_is_json_is_shown(hint: Any, default: Any, shown: Any) -> None:
    assert schema_of(hint, x=default)["default"] == shown


@pytest.mark.parametrize(
    ("hint", "default"),
    [
        pytest.param(Any, object(), id="object"),
        pytest.param(float, math.nan, id="nan"),
        pytest.param(int, None, id="of-another-type"),
        pytest.param(Annotated[int, msgspec.Meta(ge=1)], 0, id="out-of-bounds"),
        pytest.param(set[Any], {1, "a", None}, id="without-order"),
    ],
)
def test_any_other_default_is_left_out(hint: Any, default: Any) -> None:
    found = signature(function_of({"x": hint}, {"x": default}))
    assert "default" not in found.schema["properties"]["x"]
    assert found.schema["required"] == []
    assert found.bind({}) == {}


SCRIPT = """
import msgspec
from hookline._tools.schema import inspect_callable
def fn(a: set[str] = {"a", "b", "c", "d"}, b: dict[str, int] = {"z": 1, "y": 2}): ...
print(msgspec.json.encode(inspect_callable(fn, tool="t", skip=lambda hint: False).schema))
import sys
assert "pydantic" not in sys.modules
"""


def test_the_schema_is_the_same_bytes_in_every_process_and_pydantic_is_not_imported() -> None:
    def output(seed: str) -> bytes:
        environment = {"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)}
        return subprocess.check_output([sys.executable, "-c", SCRIPT], env=environment)

    assert output("1") == output("2")
    assert json.dumps(signature(add).schema) == json.dumps(signature(add).schema)


# ── the injected parameter ──────────────────────────────────────────────────────────────────


def test_the_injected_parameter_is_no_part_of_the_schema() -> None:
    def fn(a: int, run: "Run", b: int = 1) -> None:
        """
        Args:
            run: never shown
        """

    found = signature(fn)
    assert found.injected == "run"
    assert list(found.schema["properties"]) == ["a", "b"]
    assert found.description == ""
    assert found.bind({"a": 1}) == {"a": 1}
    assert issues(fn, a=1, run=2) == ('run: unknown; the known names are: "a", "b"',)


def test_two_injected_parameters_are_refused() -> None:
    def fn(a: Run, b: Run) -> None: ...

    assert "the parameters a, b are all injected; keep only one" in problem(fn)


def test_what_a_partial_bound_is_no_part_of_the_schema() -> None:
    fn = functools.partial(add, b=7)
    found = signature(fn)
    assert list(found.schema["properties"]) == ["a"]
    assert fn(**found.bind({"a": 1})) == 8


# ── what cannot be a tool ───────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("hint", "words"),
    [
        pytest.param(complex, "<class 'complex'> cannot be converted", id="complex"),
        pytest.param(SimpleNamespace, "use JSON types, dataclasses", id="class"),
        pytest.param(list[Callable[[], int]], "cannot be converted", id="nested"),
        pytest.param(Iterable[int], "cannot be converted", id="iterable"),
        pytest.param(Item | Tag, "use a pydantic model with that union", id="two-models"),
        pytest.param(Item | str, "use a pydantic model with that union", id="model-or-text"),
        pytest.param(Item | Plain, "use a pydantic model with that union", id="model-or-dataclass"),
        pytest.param(Box | Plain, "msgspec Structs with tag=True", id="two-dataclasses"),
        pytest.param(datetime.date | str, "more than one str-like", id="two-kinds-of-text"),
        pytest.param(Annotated[int, Field(alias="y")], "pydantic's alias", id="field-alias"),
        pytest.param(
            list[Annotated[int, Field(default=1)]], "pydantic's default", id="field-inside"
        ),
        pytest.param(dict[str, HasField], "pydantic's Field", id="field-in-dataclass"),
        pytest.param(
            Annotated[int, annotated_types.Timezone(...)], "pydantic's tz", id="annotated-types"
        ),
        pytest.param(Checked, "a pydantic dataclass would not", id="pydantic-dataclass"),
        pytest.param(list[Checked | None], "make it a BaseModel", id="pydantic-dataclass-inside"),
        pytest.param(
            Annotated[int, msgspec.Meta(extra_json_schema={"x": object()})],
            "cannot be described",
            id="schema-that-is-no-json",
        ),
    ],
)
def test_a_type_without_a_schema_is_refused(hint: Any, words: str) -> None:
    message = problem(function_of({"fine": int, "x": hint}))
    assert words in message
    assert message.startswith("tool 't': ")
    assert "parameter 'x'" in message


@pytest.mark.parametrize(
    ("hint", "schema", "good", "bad"),
    [
        pytest.param(
            Annotated[int, Field(ge=1, lt=9, description="how many")],
            {
                "type": "integer",
                "minimum": 1,
                "exclusiveMaximum": 9,
                "description": "how many",
            },
            1,
            9,
            id="number",
        ),
        pytest.param(
            Annotated[str, Field(min_length=2, pattern="^a")],
            {"type": "string", "minLength": 2, "pattern": "^a"},
            "ab",
            "a",
            id="text",
        ),
        pytest.param(
            list[Annotated[float, Field(gt=0, multiple_of=0.5)]],
            {
                "type": "array",
                "items": {"type": "number", "exclusiveMinimum": 0, "multipleOf": 0.5},
            },
            [1.5],
            [0.2],
            id="inside-a-list",
        ),
        pytest.param(
            Annotated[int, annotated_types.Ge(1)] | None,
            {"anyOf": [{"type": "integer", "minimum": 1}, {"type": "null"}]},
            None,
            0,
            id="annotated-types-in-a-union",
        ),
        pytest.param(
            Annotated[str, Field(json_schema_extra={"format": "iban"}, examples=["DE1"])],
            {"type": "string", "format": "iban", "examples": ["DE1"]},
            "x",
            1,
            id="words-alone",
        ),
    ],
)
def test_pydantics_field_in_a_hint_is_kept(hint: Any, schema: Any, good: Any, bad: Any) -> None:
    made = signature(function_of({"x": hint}))
    assert made.schema["properties"]["x"] == schema
    assert made.bind({"x": good}) == {"x": good}
    with pytest.raises(BadArguments):
        made.bind({"x": bad})


def test_a_pydantic_field_as_default_is_refused() -> None:
    fn = function_of({"x": int}, {"x": Field(default=3, ge=1)})
    assert "a plain default" in problem(fn)


def test_a_model_that_pydantic_cannot_describe_is_refused() -> None:
    class Opaque(BaseModel):
        model_config = {"arbitrary_types_allowed": True}
        value: SimpleNamespace

    assert "parameter 'x' cannot be described" in problem(function_of({"x": Opaque}))


def test_a_class_with_an_unknown_name_inside_is_refused() -> None:
    @dataclasses.dataclass
    class Local:
        value: "Nowhere"  # type: ignore[name-defined]  # noqa: F821

    assert "define that name at the top of its module" in problem(function_of({"x": Local}))


# ── binding ─────────────────────────────────────────────────────────────────────────────────

UUID = "00000000-0000-0000-0000-000000000001"


@pytest.mark.parametrize(
    ("hint", "value", "expected"),
    [
        pytest.param(int, 2**64 - 1, 2**64 - 1, id="int"),
        pytest.param(float, 3, 3.0, id="int-as-float"),
        pytest.param(bool, True, True, id="bool"),
        pytest.param(str | None, None, None, id="none"),
        pytest.param(Any, {"a": [1, None]}, {"a": [1, None]}, id="any"),
        pytest.param(dict, {"a": {"b": "2020-01-01"}}, {"a": {"b": "2020-01-01"}}, id="dict"),
        pytest.param(list[int], [1], [1], id="list"),
        pytest.param(tuple[int, str], [1, "a"], (1, "a"), id="tuple"),
        pytest.param(set[int], [1, 1], {1}, id="set"),
        pytest.param(dict[int, float], {"1": 2}, {1: 2.0}, id="int-keys"),
        pytest.param(Colour, "red", Colour.RED, id="enum"),
        pytest.param(Literal[2, 1], 1, 1, id="literal"),
        pytest.param(
            datetime.datetime,
            "2020-01-01T12:00:00",
            datetime.datetime(2020, 1, 1, 12),
            id="datetime",
        ),
        pytest.param(datetime.date, "2020-01-01", datetime.date(2020, 1, 1), id="date"),
        pytest.param(datetime.timedelta, "P1D", datetime.timedelta(days=1), id="timedelta"),
        pytest.param(uuid.UUID, UUID, uuid.UUID(UUID), id="uuid"),
        pytest.param(decimal.Decimal, "1.50", decimal.Decimal("1.50"), id="decimal"),
        pytest.param(bytes, "/w==", b"\xff", id="bytes"),
        pytest.param(Point, {"x": 1, "y": 2}, Point(1, 2), id="struct"),
        pytest.param(Node, {"value": 1, "next": {"value": 2}}, Node(1, Node(2)), id="dataclass"),
        pytest.param(Options, {"name": "n"}, {"name": "n"}, id="typed-dict"),
        pytest.param(
            Item,
            {"price": 1, "when": "2020-01-01"},
            Item(price=1, when=datetime.date(2020, 1, 1)),
            id="pydantic",
        ),
        pytest.param(Item | None, None, None, id="pydantic-or-none"),
        pytest.param(list[Tag], [{"word": "w"}], [Tag(word="w")], id="pydantic-in-list"),
        pytest.param(
            dict[str, Tag], {"k": {"word": "w"}}, {"k": Tag(word="w")}, id="pydantic-in-dict"
        ),
        pytest.param(Box, {"item": {"price": 1}}, Box(Item(price=1)), id="pydantic-in-dataclass"),
        pytest.param(Annotated[str, msgspec.Meta(pattern="^a")], "ab", "ab", id="constraint"),
    ],
)
def test_arguments_become_the_types_of_the_parameters(hint: Any, value: Any, expected: Any) -> None:
    bound = signature(function_of({"x": hint})).bind({"x": value})
    assert bound == {"x": expected}
    assert type(bound["x"]) is type(expected)


def test_attrs_classes_are_accepted() -> None:
    attrs: Any = pytest.importorskip("attrs")
    made = attrs.make_class("Made", {"x": attrs.field(type=int)})
    fn = function_of({"made": made})
    assert signature(fn).bind({"made": {"x": 1}}) == {"made": made(1)}
    assert issues(fn, made={"x": "1"}) == ("made.x: expected int, got str",)


def test_what_has_a_default_may_be_left_out() -> None:
    bound = signature(add).bind
    assert bound({"a": 1}) == {"a": 1}
    assert bound({"b": 1, "a": 1}) == {"a": 1, "b": 1.0}


def test_arguments_are_not_changed() -> None:
    arguments = {"x": {"a": [1]}}
    bound = signature(function_of({"x": dict[str, set[int]]})).bind(arguments)
    assert bound == {"x": {"a": {1}}}
    assert arguments == {"x": {"a": [1]}}


def test_parameters_may_have_any_name() -> None:
    names = ["self", "cls", "type", "name", "schema", "__init__", "größe"]
    fn = function_of(dict.fromkeys(names, int))
    assert signature(fn).bind(dict.fromkeys(names, 1)) == dict.fromkeys(names, 1)


def test_every_issue_is_named() -> None:
    def fn(a: int, b: bool, items: list[Item], box: Box, c: Colour = Colour.RED) -> None: ...

    assert issues(
        fn,
        a="5",
        items=[{"price": "x", "tags": [{}]}, {"price": 1}, {"price": True}],
        box={"item": {"price": None}, "size": "3"},
        c="green",
        colour="red",
    ) == (
        "a: expected int, got str",
        "b: missing, but required",
        "items[0].price: Input should be a valid number",
        "items[0].tags[0].word: Field required",
        "items[2].price: Input should be a valid number",
        "box.item.price: Input should be a valid number",
        "box.size: expected int, got str",
        'c: must be one of "red", "blue"',
        'colour: unknown; the known names are: "a", "b", "items", "box", "c"',
    )


@pytest.mark.parametrize(
    "arguments",
    [{1: 2}, {"a": "\ud800"}, {"a": object()}, {"\ud800": 1}, {"a": 2**70, (): 1}],
    ids=["key", "surrogate", "object", "surrogate-key", "many"],
)
def test_arguments_that_a_hook_broke_are_bad_arguments_too(arguments: Any) -> None:
    for fn in (add, function_of({"a": Item}), function_of({"a": datetime.date})):
        with pytest.raises(BadArguments) as caught:
            signature(fn).bind(arguments)
        assert caught.value.issues
        "".join(caught.value.issues).encode()


def test_a_cycle_that_a_hook_made_is_bad_arguments() -> None:
    value: dict[str, Any] = {"value": 1}
    value["next"] = value
    with pytest.raises(BadArguments):
        signature(function_of({"x": Node})).bind({"x": value})


def test_types_that_a_hook_put_there_are_kept() -> None:
    tag, day = Tag(word="w"), datetime.date(2020, 1, 1)
    fn = function_of({"tag": Tag, "day": datetime.date})
    assert signature(fn).bind({"tag": tag, "day": day}) == {"tag": tag, "day": day}


# ── laws ────────────────────────────────────────────────────────────────────────────────────

HINTS: list[Any] = [
    int,
    float,
    str,
    bool,
    bytes,
    Any,
    dict,
    list,
    None,
    int | None,
    int | str,
    list[int],
    dict[str, int],
    dict[int, list[str]],
    set[str],
    tuple[int, str],
    tuple[int, ...],
    Literal["a", "b"],
    Colour,
    datetime.datetime,
    datetime.date,
    uuid.UUID,
    decimal.Decimal,
    datetime.timedelta,
    Item,
    Item | None,
    list[Item],
    dict[str, Box],
    Tree,
    Node,
    Point,
    list[Point | None],
    Options,
    Annotated[int, msgspec.Meta(ge=0, le=9)],
]
NAMES = ["price", "tags", "when", "word", "children", "item", "size", "value", "next", "x", "y"]
SAMPLES = ["a", "red", "5", "2020-01-01", "P1D", UUID, "name", "sizes"]

names = st.sampled_from([*NAMES, *SAMPLES]) | st.text(max_size=3)
leaves = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | names
)
values = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
    max_leaves=15,
)
signatures = st.dictionaries(st.sampled_from([*NAMES, "a"]), st.sampled_from(HINTS), max_size=4)


def check_schema(schema: Any) -> None:
    """What every JSON Schema of a tool must be, whatever its types are."""
    assert schema["type"] == "object"
    assert schema["additionalProperties"] is False
    assert set(schema["required"]) <= set(schema["properties"])
    assert json.loads(json.dumps(schema, allow_nan=False)) == schema
    definitions = schema.get("$defs", {})
    used: set[str] = set()
    for part in [*schema["properties"].values(), *definitions.values()]:
        for found in subschemas(part):
            assert "$defs" not in found
            assert "definitions" not in found
            assert set(found.get("required", ())) <= set(found.get("properties", ()))
            kind = found.get("type", "object")
            assert kind in ("object", "array", "string", "integer", "number", "boolean", "null")
            if "$ref" in found:
                prefix, _, name = found["$ref"].rpartition("/")
                assert prefix == "#/$defs"
                used.add(name)
    assert used == set(definitions)


def subschemas(schema: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield schema
    inner = [*schema.get("properties", {}).values(), *schema.get("anyOf", ())]
    inner += schema.get("prefixItems", ())
    inner += [schema[key] for key in ("items", "additionalProperties") if schema.get(key)]
    for part in inner:
        if part is not True:
            yield from subschemas(part)


@given(signatures, st.data())
def test_law_any_signature_has_a_valid_schema(hints: dict[str, Any], data: st.DataObject) -> None:
    defaults = {name: data.draw(values) for name in hints if data.draw(st.booleans())}
    found = signature(function_of(hints, defaults))
    check_schema(found.schema)
    assert list(found.schema["properties"]) == list(hints)
    assert found.schema["required"] == [name for name in hints if name not in defaults]


@given(signatures, st.data())
def test_law_binding_gives_arguments_or_bad_arguments(
    hints: dict[str, Any], data: st.DataObject
) -> None:
    given_names = st.sampled_from([*hints, "z"])
    arguments = data.draw(st.dictionaries(given_names, values, max_size=5))
    found: tuple[str, ...] = ()
    try:
        bound = signature(function_of(hints)).bind(arguments)
    except BadArguments as error:
        found = error.issues
    if not found:
        assert bound.keys() == arguments.keys() == hints.keys()
    assert len(set(found)) == len(found)
    "".join(found).encode()
    named = {issue.partition(":")[0] for issue in found}
    assert arguments.keys() ^ hints.keys() <= named


@given(st.dictionaries(st.sampled_from("abcd"), st.integers(0, 9) | st.text(max_size=1)))
def test_law_exactly_the_wrong_arguments_are_named(arguments: dict[str, Any]) -> None:
    found = signature(function_of({"a": int, "b": int, "c": int}, {"c": 1}))
    wrong = {name for name, value in arguments.items() if not isinstance(value, int)}
    wrong |= {"a", "b"} - arguments.keys() | arguments.keys() - {"a", "b", "c"}
    try:
        assert found.bind(arguments) == arguments
        named = set()
    except BadArguments as error:
        named = {issue.partition(":")[0] for issue in error.issues}
    assert named == wrong


T = TypeVar("T")
Percent = NewType("Percent", Annotated[int, Field(ge=0, le=100)])  # type: ignore[valid-newtype]
Share = TypeAliasType("Share", Annotated[int, Field(ge=0, le=100)])
Nested = TypeAliasType("Nested", "list[Nested] | int")
Many = TypeAliasType("Many", Annotated[list[T], Field(min_length=1)], type_params=(T,))


@dataclasses.dataclass
class Discount:
    percent: Percent


@pytest.mark.parametrize("name", [Percent, Share], ids=["NewType", "alias"])
def test_pydantics_constraints_behind_a_name_are_kept(name: Any) -> None:
    made = signature(function_of({"percent": name, "others": list[name]}))
    bounds = {"type": "integer", "minimum": 0, "maximum": 100}
    assert made.schema["properties"]["percent"] == bounds
    assert made.schema["properties"]["others"]["items"] == bounds
    with pytest.raises(BadArguments, match="percent: expected int <= 100"):
        made.bind({"percent": 101, "others": []})


def test_pydantics_constraints_behind_a_name_are_refused_where_they_would_be_ignored() -> None:
    with pytest.raises(ToolDefinitionError, match="pydantic's Field works only in"):
        signature(function_of({"discount": Discount}))


Bounded = SimpleNamespace()  # as Python 3.12 makes of `type Bounded = Annotated[list[Bounded], …]`
Bounded.__value__ = Annotated[list[Bounded], Field(min_length=1)]


@pytest.mark.parametrize("hint", [Nested, Many[int], Bounded], ids=["text", "generic", "itself"])
def test_an_alias_that_cannot_be_described_is_refused(hint: Any) -> None:
    with pytest.raises(ToolDefinitionError, match="parameter 'x'"):
        signature(function_of({"x": hint}))
