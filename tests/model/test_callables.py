"""What is read of a callable: parameters, hints, docstring."""

import dataclasses
import functools
import operator
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hookline._base.errors import ToolDefinitionError
from hookline._tools.callables import parse_docstring, read_callable

if TYPE_CHECKING:
    from nowhere import Unknown  # type: ignore[import-not-found]


def hints(fn: Callable[..., Any]) -> dict[str, Any]:
    return read_callable(fn, "t").hints


def problem(fn: Any) -> str:
    with pytest.raises(ToolDefinitionError) as caught:
        read_callable(fn, "t")
    assert caught.value.tool == "t"
    return str(caught.value).removeprefix("tool 't': ")


# ── kinds of callables ──────────────────────────────────────────────────────────────────────


def plain(a: int, b: str = "x", *, c: "float | None" = None) -> "Unknown":
    """Plain."""


class Service:
    """A service."""

    def method(self, a: int) -> None:
        """Method."""

    @classmethod
    def of_class(cls, a: int) -> None:
        """Of class."""

    @staticmethod
    def static(a: int) -> None:
        """Static."""

    def __call__(self, a: int) -> None: ...


class Documented(Service):
    def method(self, a: int) -> None: ...

    def __call__(self, a: int) -> None:
        """Called."""


@dataclasses.dataclass
class Undocumented:
    client: str

    def __call__(self, a: int) -> None: ...


def decorated(fn: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(fn)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return fn(*args, **kwargs)

    return wrapper


def secret(key: str, a: int, b: int = 2) -> None:
    """Secret."""


@pytest.mark.parametrize(
    ("fn", "expected", "doc"),
    [
        pytest.param(plain, {"a": int, "b": str, "c": float | None}, "Plain.", id="function"),
        pytest.param(Service().method, {"a": int}, "Method.", id="method"),
        pytest.param(Documented().method, {"a": int}, "Method.", id="inherited-docstring"),
        pytest.param(Service.of_class, {"a": int}, "Of class.", id="classmethod"),
        pytest.param(Service.static, {"a": int}, "Static.", id="staticmethod"),
        pytest.param(Service(), {"a": int}, "A service.", id="object"),
        pytest.param(Documented(), {"a": int}, "Called.", id="object-with-docstring"),
        pytest.param(Undocumented("c"), {"a": int}, "", id="dataclass-object"),
        pytest.param(
            functools.cache(secret), {"key": str, "a": int, "b": int}, "Secret.", id="cached"
        ),
        pytest.param(
            decorated(secret), {"key": str, "a": int, "b": int}, "Secret.", id="decorated"
        ),
        pytest.param(functools.partial(secret, "k"), {"a": int, "b": int}, "Secret.", id="partial"),
        pytest.param(
            functools.partial(secret, key="k"),
            {"a": int, "b": int},
            "Secret.",
            id="partial-by-name",
        ),
        pytest.param(
            functools.partial(functools.partial(secret, "k"), b=1),
            {"a": int},
            "Secret.",
            id="nested",
        ),
        pytest.param(functools.partial(Service().method), {"a": int}, "Method.", id="of-a-method"),
        pytest.param(
            decorated(functools.partial(secret, "k", b=1)), {"a": int}, "Secret.", id="onion"
        ),
        pytest.param(functools.partial(Documented(), a=1), {}, "Called.", id="partial-of-object"),
    ],
)
def test_a_callable_is_read(fn: Any, expected: dict[str, Any], doc: str) -> None:
    callee = read_callable(fn, "t")
    assert (callee.hints, callee.doc) == (expected, doc)
    assert list(callee.parameters) == list(expected)


def test_a_builtin_is_read() -> None:
    callee = read_callable(os.getcwd, "t")
    assert (callee.hints, callee.parameters) == ({}, {})
    assert "working directory" in callee.doc


def test_extras_of_annotated_are_kept() -> None:
    def fn(a: "Annotated[int, 'x']") -> None: ...

    assert hints(fn) == {"a": Annotated[int, "x"]}


# ── what cannot be a tool ───────────────────────────────────────────────────────────────────


def no_hint(a: int, b) -> None: ...  # type: ignore[no-untyped-def]
def star(*a: int) -> None: ...
def double_star(**a: int) -> None: ...
def positional(a: int, /) -> None: ...
def unknown(a: "list[Unknown]") -> None: ...
def broken(a: "int |") -> None: ...  # noqa: F722
def wrong(a: "int | 3") -> None: ...


@pytest.mark.parametrize(
    ("fn", "words"),
    [
        pytest.param(no_hint, "parameter 'b' has no type hint; write one", id="no-hint"),
        pytest.param(lambda x: x, "parameter 'x' has no type hint", id="lambda"),
        pytest.param(star, "parameter 'a' accepts any number of values; use one list", id="args"),
        pytest.param(double_star, "parameter 'a' accepts any name; name each", id="kwargs"),
        pytest.param(positional, "parameter 'a' is positional-only; remove the '/'", id="slash"),
        pytest.param(Service.method, "parameter 'self' belongs to a method", id="unbound-method"),
        pytest.param(Service, "Service'> cannot be a tool; pass a function", id="class"),
        pytest.param(3, "3 cannot be a tool; pass a function", id="not-callable"),
        pytest.param(unknown, "uses 'Unknown', but the module does not define", id="unknown-name"),
        pytest.param(broken, "the type hint of parameter 'a' cannot be evaluated", id="syntax"),
        pytest.param(wrong, "the type hint of parameter 'a' cannot be evaluated", id="not-a-type"),
        pytest.param(print, "accepts any number of values", id="builtin"),
        pytest.param(dict.update, "cannot be read", id="no-signature"),
        pytest.param(operator.itemgetter(1), "", id="object-in-c"),
    ],
)
def test_what_cannot_be_called_by_names_is_refused(fn: Any, words: str) -> None:
    assert words in problem(fn)


# ── names in hints ──────────────────────────────────────────────────────────────────────────


class Item:
    """The global one."""


def test_a_hint_may_name_a_local_class_of_the_running_function() -> None:
    class Item: ...

    def fn(a: "list[Item]") -> None: ...

    assert hints(fn) == {"a": list[Item]}


def test_a_hint_may_name_what_is_in_the_closure() -> None:
    def make() -> Callable[..., Any]:
        class Item: ...

        def fn(a: "Item") -> Any:
            return Item

        return fn

    fn = make()
    assert hints(fn) == {"a": fn(None)}


def test_a_hint_may_name_a_class_two_functions_further_out() -> None:
    class Item: ...

    def make() -> dict[str, Any]:
        def fn(a: "Item") -> None: ...

        return hints(fn)

    assert make() == {"a": Item}


def test_the_innermost_name_wins() -> None:
    class Item: ...

    outer = Item

    def make() -> dict[str, Any]:
        class Item: ...

        def fn(a: "Item") -> None: ...

        assert Item is not outer
        assert hints(fn) == {"a": Item}
        return hints(fn)

    assert make() != {"a": outer}


def test_a_method_may_name_what_its_class_body_defines() -> None:
    found: dict[str, Any] = {}

    def look(fn: Callable[..., Any]) -> Callable[..., Any]:
        found.update(hints(functools.partial(fn, None)))
        return fn

    class Outer:
        class Inner: ...

        @look
        def method(self: Any, a: "Inner") -> None: ...

    assert found == {"a": Outer.Inner}


def test_a_caller_that_does_not_enclose_the_function_is_not_asked() -> None:
    def caller(Item: Any) -> dict[str, Any]:
        return hints(takes_item)

    assert caller(int) == {"a": Item}


def takes_item(a: "Item") -> None: ...


def test_a_name_that_left_with_its_function_is_refused() -> None:
    def make() -> Callable[..., Any]:
        class Gone: ...

        def fn(a: "Gone") -> None: ...

        return fn

    assert "uses 'Gone'" in problem(make())


def test_a_closure_without_a_value_yet_is_no_obstacle() -> None:
    def fn(a: int) -> Any:
        return later

    assert hints(fn) == {"a": int}
    later = 1
    assert fn(0) == later


# ── docstrings ──────────────────────────────────────────────────────────────────────────────

GOOGLE = """Finds flights.

Only direct ones.

Args:
    origin: Where it starts,
        as an airport code.
    target (str, optional): Where it ends (see: list).
    *more: Others.
    empty:

    late (dict[str, int]): After a blank line.

Returns:
    A list: of flights.

Raises:
    LookupError: if there is none.

Example:
    find("BER")
"""

NUMPY = """Finds flights.

Only direct ones.

Parameters
----------
origin : str
    Where it starts,
    as an airport code.
target, more : str, optional
    Where it ends.
empty

Returns
-------
list
    Flights.

Notes
-----
Slow.
"""

SPHINX = """Finds flights.

:param origin: Where it starts,
    as an airport code.
:param str target: Where it ends.
:type target: str
:param empty:
:returns: flights,
    as a list
:raises LookupError: if there is none

Only direct ones.
"""


@pytest.mark.parametrize(
    ("doc", "description", "texts"),
    [
        pytest.param("", "", {}, id="empty"),
        pytest.param("One line.", "One line.", {}, id="one-line"),
        pytest.param(
            GOOGLE,
            'Finds flights.\n\nOnly direct ones.\n\nExample:\n    find("BER")',
            {
                "origin": "Where it starts, as an airport code.",
                "target": "Where it ends (see: list).",
                "more": "Others.",
                "late": "After a blank line.",
            },
            id="google",
        ),
        pytest.param(
            NUMPY,
            "Finds flights.\n\nOnly direct ones.\n\nNotes\n-----\nSlow.",
            {
                "origin": "Where it starts, as an airport code.",
                "target": "Where it ends.",
                "more": "Where it ends.",
            },
            id="numpy",
        ),
        pytest.param(
            SPHINX,
            "Finds flights.\n\nOnly direct ones.",
            {"origin": "Where it starts, as an airport code.", "target": "Where it ends."},
            id="sphinx",
        ),
        pytest.param(
            "Sum.\nArgs:\n\ta: One.\n\tb: Two.", "Sum.", {"a": "One.", "b": "Two."}, id="tabs"
        ),
        pytest.param("Args:\n    a: One.", "", {"a": "One."}, id="arguments-only"),
        pytest.param("Sum.\n\nArgs:\nb: no entry", "Sum.\n\nb: no entry", {}, id="not-indented"),
        pytest.param("Uses a: b.\n\nArgs: none", "Uses a: b.\n\nArgs: none", {}, id="no-section"),
        pytest.param("See :ref:`x` and: y", "See :ref:`x` and: y", {}, id="a-role-is-no-field"),
        pytest.param(
            "Sum.\n----\nNot a section.", "Sum.\n----\nNot a section.", {}, id="underlined"
        ),
    ],
)
def test_a_docstring_is_read(doc: str, description: str, texts: dict[str, str]) -> None:
    assert parse_docstring(doc) == (description, texts)


@given(
    st.lists(
        st.sampled_from(
            ["Args:", "    a: b", "Parameters", "---", ":param a: b", "", "x", "  y: z"]
        )
    )
)
def test_law_any_docstring_can_be_read(lines: list[str]) -> None:
    description, texts = parse_docstring("\n".join(lines))
    assert description == description.strip()
    assert all(texts.values())
