"""JSON at the border of a tool: what a model wrote, and what a tool returned."""

import collections
import dataclasses
import datetime
import decimal
import enum
import json
import math
import pathlib
import pickle
import types
import uuid
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import BaseModel

from hookline._base.frozen import thaw
from hookline._base.json import (
    MAX_ARGUMENT_DEPTH,
    MAX_RESULT_DEPTH,
    BadArguments,
    NotJson,
    _check_text,
    _parse_strictly,
    clean_text,
    json_text,
    parse_arguments,
    to_json_data,
)

LIMIT = 1 << 20


def parse(text: str, limit: int = LIMIT) -> dict[str, Any]:
    return parse_arguments(text, limit=limit)


def issue_of(text: str, limit: int = LIMIT) -> str:
    with pytest.raises(BadArguments) as caught:
        parse(text, limit)
    (issue,) = caught.value.issues
    issue.encode()  # it can be sent
    assert len(issue) < 300
    return issue


# ── strategies ──────────────────────────────────────────────────────────────────────────────

texts = st.text(st.characters(codec="utf-8"))
scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | texts
)
values = st.recursive(
    scalars, lambda inner: st.lists(inner) | st.dictionaries(texts, inner), max_leaves=20
)
objects = st.dictionaries(texts, scalars) | st.dictionaries(texts, values)


@st.composite
def json_texts(draw: st.DrawFn) -> str:
    """JSON texts as many a writer would write them, some of them with a mistake."""
    text = json.dumps(
        draw(objects | values),
        ensure_ascii=draw(st.booleans()),
        separators=draw(st.sampled_from([(",", ":"), (", ", ": "), (" ,\n", "\t:\r")])),
    )
    pieces = ['"a":1,', '"a":1}', "NaN", "1e999", "9" * 20, "\\ud83d", ":", ",", '"', "}", "[", " "]
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(text)))
        end = at + draw(st.integers(0, 2))
        text = text[:at] + draw(st.sampled_from(["", *pieces])) + text[end:]
    return text


# ── parse_arguments: accepted ───────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "text",
    ["", " ", "\n\t ", "\u00a0", "{}", " {} "],
    ids=["empty", "space", "whitespace", "unicode-space", "object", "padded-object"],
)
def test_blank_text_counts_as_an_empty_object(text: str) -> None:
    assert parse(text) == {}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param('{"a":1,"b":"x"}', {"a": 1, "b": "x"}, id="flat"),
        pytest.param('{"a":{"a":1}}', {"a": {"a": 1}}, id="same-key-on-two-levels"),
        pytest.param(
            '[{"a":1},{"a":2}]'.join(['{"l":', "}"]), {"l": [{"a": 1}, {"a": 2}]}, id="siblings"
        ),
        pytest.param('{"u":"https://x.y/z"}', {"u": "https://x.y/z"}, id="colon-in-a-string"),
        pytest.param('{"a":"\\u0000"}', {"a": "\0"}, id="nul"),
        pytest.param('{"a":"\\ud83d\\ude00"}', {"a": "😀"}, id="escaped-pair"),
        pytest.param('{"\\ud83d\\ude00":[1]}', {"😀": [1]}, id="escaped-pair-strictly"),
        pytest.param('{"a":"😀"}', {"a": "😀"}, id="raw-character"),
        pytest.param(f'{{"a":{2**64 - 1}}}', {"a": 2**64 - 1}, id="largest-integer"),
        pytest.param(f'{{"a":{-(2**63)}}}', {"a": -(2**63)}, id="smallest-integer"),
        pytest.param(
            f'{{"a":[{2**64 - 1},{-(2**63)}]}}', {"a": [2**64 - 1, -(2**63)]}, id="both-nested"
        ),
        pytest.param('{"a":1e-999,"b":1e308}', {"a": 0.0, "b": 1e308}, id="floats"),
        pytest.param('{"a":"[[[[{{{{"}', {"a": "[[[[{{{{"}, id="brackets-in-a-string"),
        pytest.param('{"a":null,"b":true}', {"a": None, "b": True}, id="constants"),
    ],
)
def test_an_object_is_read_as_it_stands(text: str, expected: dict[str, Any]) -> None:
    assert parse(text) == expected


@pytest.mark.parametrize("text", ['{"a":1}', '{"a":{"b":1}}', ""], ids=["flat", "nested", "blank"])
def test_arguments_are_read_only(text: str) -> None:
    data = parse(text)
    for container in (data, *[value for value in data.values() if isinstance(value, dict)]):
        with pytest.raises(TypeError, match="is read-only"):
            container["b"] = 2


def test_nesting_is_allowed_down_to_the_limit() -> None:
    deepest = '{"a":' * MAX_ARGUMENT_DEPTH + "1" + "}" * MAX_ARGUMENT_DEPTH
    assert json_text(parse(deepest)) == deepest
    in_a_string = json.dumps({"a": '\\"[' * 1000, "b": [[], [], {}] * 40})
    assert parse(in_a_string) == json.loads(in_a_string)


def test_the_limit_counts_bytes() -> None:
    assert parse('{"a":"é"}', limit=10) == {"a": "é"}
    assert (
        issue_of('{"a":"é"}', limit=9)
        == "the arguments are 10 bytes long, but only 9 are allowed; send less"
    )
    assert parse('{"a":"x"}', limit=9) == {"a": "x"}
    assert "9 bytes" in issue_of('{"a":"x"}', limit=8)


# ── parse_arguments: refused ────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("text", "words"),
    [
        pytest.param("null", 'one JSON object such as {"name": "value"}, not null', id="null"),
        pytest.param("[]", "not an array", id="array"),
        pytest.param('"x"', "not a string", id="string"),
        pytest.param("3", "not a number", id="integer"),
        pytest.param("3.5", "not a number", id="float"),
        pytest.param("true", "not a boolean", id="boolean"),
        pytest.param('{"a": 1', "ends too early", id="cut-after-value"),
        pytest.param('{"a": ', "ends too early", id="cut-before-value"),
        pytest.param('{"a": "x', "ends too early", id="cut-in-string"),
        pytest.param('{"a"', "ends too early", id="cut-after-key"),
        pytest.param("{", "ends too early", id="cut-at-once"),
        pytest.param("{'a': 1}", "expecting property name", id="single-quotes"),
        pytest.param('{"a": 1,}', "not valid JSON", id="trailing-comma"),
        pytest.param('{"a": 1} {"a": 1}', "extra data at character 9", id="two-objects"),
        pytest.param('```json\n{"a": 1}\n```', "not valid JSON", id="markdown"),
        pytest.param('\ufeff{"a": 1}', "not valid JSON", id="byte-order-mark"),
        pytest.param('{"a": "\n"}', "invalid control character", id="raw-newline"),
        pytest.param('{"a": 01}', "not valid JSON", id="leading-zero"),
        pytest.param('{"a":1,"a":1}', 'more than once: "a"; write', id="duplicate"),
        pytest.param('{"a":1,"\\u0061":2}', 'more than once: "a"', id="duplicate-by-escape"),
        pytest.param('{"a":1,"a":2,"b":1,"b":1}', '"a", "b"', id="two-duplicates"),
        pytest.param('{"a":":","a":1}', '"a"', id="duplicate-with-colon"),
        pytest.param('{"l":[{"x":{"k":1,"k":2}}]}', '"k"', id="deep-duplicate"),
        pytest.param('{"\\ud83d":1,"\\ud83d":2}', "\ufffd", id="duplicate-surrogate"),
        pytest.param('{"' + '":1,"'.join(["k" * 99] * 2) + '":2}', "k…", id="long-duplicate"),
        pytest.param('{"a": NaN}', "NaN is not JSON", id="nan"),
        pytest.param('{"a": [Infinity]}', "Infinity is not JSON", id="infinity"),
        pytest.param('{"a": -Infinity}', "-Infinity is not JSON", id="minus-infinity"),
        pytest.param('{"a": 1e999}', "the number 1e999 is too large", id="huge-float"),
        pytest.param('{"a": [-1e999]}', "the number -1e999 is too large", id="huge-negative-float"),
        pytest.param(f'{{"a": {2**64}}}', "64-bit", id="integer-too-large"),
        pytest.param(f'{{"a": [{-(2**63) - 1}]}}', "64-bit", id="integer-too-small"),
        pytest.param('{"a": %s}' % ("9" * 100_000), "64-bit", id="endless-integer"),
        pytest.param('{"a": "\\ud83d"}', "lone surrogate escape", id="escaped-high-surrogate"),
        pytest.param('{"a": ["\\ude00x"]}', "lone surrogate escape", id="escaped-low-surrogate"),
        pytest.param('{"a": "\\ude00\\ud83d"}', "lone surrogate escape", id="pair-reversed"),
        pytest.param('{"\\uD83D": {"b": 1}}', "lone surrogate escape", id="surrogate-in-a-key"),
        pytest.param('{"a": "\ud83d"}', "lone surrogate", id="raw-surrogate"),
        pytest.param('{"\udc00": 1}', "lone surrogate", id="raw-surrogate-in-a-key"),
    ],
)
def test_what_is_not_one_plain_object_is_refused(text: str, words: str) -> None:
    assert words in issue_of(text)


@pytest.mark.parametrize(
    "text",
    [
        "[" * 100_000,
        '{"a":' * 100_000,
        '{"a":' + "[" * 100_000 + "]" * 100_000 + "}",
        '{"a":' * (MAX_ARGUMENT_DEPTH + 1) + "1" + "}" * (MAX_ARGUMENT_DEPTH + 1),
    ],
    ids=["open-brackets", "open-objects", "closed-brackets", "one-too-deep"],
)
def test_deep_nesting_is_refused_and_never_a_recursion_error(text: str) -> None:
    assert "nested deeper than 64" in issue_of(text)


@pytest.mark.parametrize(
    "text",
    ['"' + '[\\"' * 40_000, '{"a":"' + '\\"[' * 40_000, "]" * 100_000, "[]" * 50_000],
    ids=["escaped-quotes", "escaped-quotes-in-object", "closing", "empty-arrays"],
)
def test_an_odd_text_of_brackets_is_refused(text: str) -> None:
    issue_of(text)


def test_the_error_shows_its_issues_and_can_be_pickled() -> None:
    error = BadArguments(("a: bad", "b: bad"))
    assert str(error) == "a: bad; b: bad"
    assert pickle.loads(pickle.dumps(error)).issues == ("a: bad", "b: bad")


# ── parse_arguments: laws ───────────────────────────────────────────────────────────────────


@given(objects, st.booleans())
def test_law_parsing_undoes_dumping(data: dict[str, Any], ascii_only: bool) -> None:
    assert repr(parse(json.dumps(data, ensure_ascii=ascii_only))) == repr(data)
    assert repr(parse(json_text(data))) == repr(data)


@given(json_texts())
@example('{"a":":x" , "a" : 1}')
@example('{"a" :":x", "a" :1}')
@example('{"a":{},"a":{}}')
@example('{"a":-0,"b":-0.0}')
def test_law_the_fast_and_the_strict_way_agree(text: str) -> None:
    try:
        _check_text(text, LIMIT)
        expected = repr(_parse_strictly(text))
    except BadArguments as error:
        expected = repr(error.issues)
    try:
        found = repr(parse(text))
    except BadArguments as error:
        found = repr(error.issues)
    assert found == expected


@given(st.text() | st.text('[]{}":,\\ud80dce019.-+eNaInfty \ud83d', max_size=40))
def test_law_any_text_is_an_object_or_bad_arguments(text: str) -> None:
    try:
        data = parse(text)
    except BadArguments as error:
        found = error.issues
    else:
        found = ("fine",)
        assert repr(parse(json_text(data))) == repr(data)
    assert "".join(found).encode()


# ── clean_text ──────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("\ud83d\ude00", "😀", id="pair"),
        pytest.param("a\ud83d", "a\ufffd", id="high-at-the-end"),
        pytest.param("\ude00b", "\ufffdb", id="low"),
        pytest.param("\ud83dx\ude00", "\ufffdx\ufffd", id="apart"),
        pytest.param("\ud83d\ud83d\ude00", "\ufffd😀", id="high-before-a-pair"),
        pytest.param("\ud83d😀", "\ufffd😀", id="high-before-a-character"),
        pytest.param("\ufeff\ud83d", "\ufeff\ufffd", id="byte-order-mark-stays"),
    ],
)
def test_surrogates_are_joined_or_replaced(text: str, expected: str) -> None:
    assert clean_text(text) == expected


@pytest.mark.parametrize("text", ["", "plain", "é😀\ufffd", "\0"], ids=ascii)
def test_clean_text_is_the_same_object(text: str) -> None:
    assert clean_text(text) is text


@given(st.text(st.characters() | st.sampled_from("\ud83d\ude00\udbff\udfff")))
def test_law_clean_text_is_valid_and_changes_nothing_else(text: str) -> None:
    clean = clean_text(text)
    clean.encode()
    joined = text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")
    assert clean == "".join("\ufffd" if "\ud800" <= c <= "\udfff" else c for c in joined)


# ── to_json_data ────────────────────────────────────────────────────────────────────────────


class Colour(enum.Enum):
    RED = "red"
    PAIR = (1, ("x",))
    THING = object()


class Level(enum.IntEnum):
    HIGH = 3


class Text(str):
    __slots__ = ()

    def __str__(self) -> str:
        raise RuntimeError("not asked")


class Number(int):
    pass


class Fraction(float):
    pass


@dataclasses.dataclass
class Point:
    x: int
    tags: frozenset[str] = frozenset({"t"})


class Box(msgspec.Struct):
    point: Point
    when: datetime.datetime


class Order(BaseModel):
    when: datetime.date
    price: decimal.Decimal
    point: Point | None = None


Pair = collections.namedtuple("Pair", "a b")
NOON = datetime.datetime(2020, 1, 1, 12)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        pytest.param(None, None, id="none"),
        pytest.param(True, True, id="bool"),
        pytest.param(3, 3, id="int"),
        pytest.param(2**64 - 1, 2**64 - 1, id="largest-int"),
        pytest.param(1.5, 1.5, id="float"),
        pytest.param("é", "é", id="str"),
        pytest.param("a\ud83d", "a\ufffd", id="lone-surrogate"),
        pytest.param(["\ud83d\ude00"], ["😀"], id="surrogate-pair"),
        pytest.param({"\ud83d": "\ud83d"}, {"\ufffd": "\ufffd"}, id="surrogate-key"),
        pytest.param((1, (2, "x")), [1, [2, "x"]], id="tuples"),
        pytest.param({1, 2}, [1, 2], id="set"),
        pytest.param(b"\xff", "/w==", id="bytes"),
        pytest.param(bytearray(b"x"), "eA==", id="bytearray"),
        pytest.param(NOON, "2020-01-01T12:00:00", id="datetime"),
        pytest.param(datetime.timedelta(days=1), "P1D", id="timedelta"),
        pytest.param(uuid.UUID(int=1), "00000000-0000-0000-0000-000000000001", id="uuid"),
        pytest.param(decimal.Decimal("1.50"), "1.50", id="decimal"),
        pytest.param(Colour.RED, "red", id="enum"),
        pytest.param([Colour.PAIR], [[1, ["x"]]], id="enum-of-tuple"),
        pytest.param(Level.HIGH, 3, id="int-enum"),
        pytest.param(Text("t"), "t", id="str-subclass"),
        pytest.param([Number(3), Fraction(0.5)], [3, 0.5], id="number-subclasses"),
        pytest.param(Point(1), {"x": 1, "tags": ["t"]}, id="dataclass"),
        pytest.param(
            Box(Point(1), NOON),
            {"point": {"x": 1, "tags": ["t"]}, "when": "2020-01-01T12:00:00"},
            id="struct",
        ),
        pytest.param(
            [Order(when=NOON.date(), price=decimal.Decimal("1.0"))],
            [{"when": "2020-01-01", "price": "1.0", "point": None}],
            id="pydantic",
        ),
        pytest.param(Pair(1, {2}), [1, [2]], id="namedtuple"),
        pytest.param(collections.OrderedDict(b=1, a=2), {"b": 1, "a": 2}, id="ordered-dict"),
        pytest.param(types.MappingProxyType({"a": {1}}), {"a": [1]}, id="mapping"),
        pytest.param(collections.deque([1]), [1], id="deque"),
        pytest.param({"a": 1}.keys(), ["a"], id="keys"),
        pytest.param({"a": 1}.values(), [1], id="values"),
        pytest.param(pathlib.PurePosixPath("/x"), "/x", id="path"),
        pytest.param({1: "a", 1.5: "b"}, {"1": "a", "1.5": "b"}, id="number-keys"),
        pytest.param({NOON.date(): 1, Colour.RED: 2}, {"2020-01-01": 1, "red": 2}, id="other-keys"),
    ],
)
def test_a_value_becomes_json_data(value: object, expected: Any) -> None:
    data = to_json_data(value)
    assert data == expected
    assert type(thaw(data)) is type(expected)
    assert json.loads(json_text(data)) == expected


class Hostile:
    """Everything that may be asked of it raises."""

    def __getattribute__(self, name: str) -> Any:
        raise RuntimeError(name)

    def __iter__(self) -> Any:
        raise RuntimeError("iter")

    def __repr__(self) -> str:
        raise RuntimeError("repr")


class BadMapping(collections.UserDict[str, int]):
    def __iter__(self) -> Any:
        raise ValueError("no")


class BadModel(BaseModel):
    value: Any

    def model_dump(self, **options: Any) -> Any:
        raise LookupError("no")


def nested(levels: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(levels - 1):
        value = [value]
    return value


def cycle() -> list[Any]:
    value: list[Any] = []
    value.append({"again": value})
    return value


def dataclass_cycle() -> Point:
    point = Point(1)
    point.x = point  # type: ignore[assignment]
    return point


@pytest.mark.parametrize(
    ("value", "words"),
    [
        pytest.param(math.nan, "NaN or Infinity", id="nan"),
        pytest.param({"a": [math.inf]}, "NaN or Infinity", id="inf"),
        pytest.param(Fraction("nan"), "NaN or Infinity", id="float-subclass"),
        pytest.param(2**64, "64-bit", id="int"),
        pytest.param([-(2**63) - 1], "64-bit", id="small-int"),
        pytest.param(object(), "a object is not JSON data", id="object"),
        pytest.param([1j], "a complex is not JSON data", id="complex"),
        pytest.param(Point, "a type is not JSON data", id="class"),
        pytest.param(BaseModel, "is not JSON data", id="model-class"),
        pytest.param(ValueError("x"), "a ValueError is not", id="exception"),
        pytest.param((x for x in [1]), "a generator is not", id="generator"),
        pytest.param(Colour.THING, "a object is not", id="enum-of-object"),
        pytest.param(Hostile(), "a Hostile is not", id="hostile"),
        pytest.param([Hostile()], "a Hostile is not", id="hostile-inside"),
        pytest.param(BadMapping(), "a BadMapping raised ValueError", id="bad-mapping"),
        pytest.param(BadModel(value=1), "a BadModel raised LookupError", id="bad-model"),
        pytest.param({(1, 2): 3}, "key of type tuple", id="tuple-key"),
        pytest.param({None: 3}, "key of type NoneType", id="none-key"),
        pytest.param({True: 3}, "key of type bool", id="bool-key"),
        pytest.param({math.nan: 3}, "key of type float", id="nan-key"),
        pytest.param({1: "a", "1": "b"}, "same text", id="clashing-keys"),
        pytest.param(nested(MAX_RESULT_DEPTH + 1), "deeper than 200", id="deep"),
        pytest.param(nested(50_000), "too deeply", id="very-deep"),
        pytest.param(cycle(), "contains itself", id="cycle"),
        pytest.param(dataclass_cycle(), "contains itself", id="dataclass-cycle"),
    ],
)
def test_what_json_cannot_hold_is_refused(value: object, words: str) -> None:
    with pytest.raises(NotJson, match=words) as caught:
        to_json_data(value)
    assert caught.value.reason == str(caught.value)


def test_a_value_may_be_nested_down_to_the_limit() -> None:
    assert to_json_data(nested(MAX_RESULT_DEPTH)) == nested(MAX_RESULT_DEPTH)


def test_an_interrupt_is_not_swallowed() -> None:
    class Interrupted(collections.UserDict[str, int]):
        def __iter__(self) -> Any:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        to_json_data(Interrupted())


def test_the_data_is_a_copy() -> None:
    value = {"a": [1]}
    data = to_json_data(value)
    value["a"].append(2)
    assert data == {"a": [1]}


@given(values)
def test_law_json_data_stays_as_it_is(value: Any) -> None:
    data = to_json_data(value)
    assert repr(data) == repr(value)
    assert repr(json.loads(json_text(data))) == repr(value)
