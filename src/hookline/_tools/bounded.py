"""Check data against an untrusted JSON schema without blocking the event loop for long.

The library `jsonschema` sets no bounds: a schema may refer to itself twice on each level, and `re`
may backtrack for years while every thread waits. Here each applied keyword counts, and the data is
rejected after too many of them. A pattern is tried only if the number of moves that `re` could
make, which is computed in advance, is small. A pattern that is not tried counts as matched, so the
code that runs the tool must check it. The same applies to `unevaluatedProperties` next to `$ref`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from functools import lru_cache
from importlib import import_module
from math import inf
from typing import Any, Final, TypeAlias, cast

STEPS: Final = 100_000  # keywords that may be applied to one value
MOVES: Final = 50_000_000  # moves that `re` may make on all texts of one value
DATA: Final = frozenset(["enum", "const", "default", "examples"])  # these contain no schemas
# What is left of both. jsonschema calls keywords with arguments of its own, so it is kept here.
_budget: ContextVar[list[int]] = ContextVar("hookline_schema_steps")

Keyword: TypeAlias = Callable[[Any, Any, Any, Any], Any]


class TooLong(Exception):
    """The check has used up its steps."""


@lru_cache(maxsize=16)
def bounded(dialect: Any) -> Any:
    """Return a validator class of jsonschema with bounds."""
    extend: Any = import_module("jsonschema").validators.extend
    keywords = {name: _counting(fn) for name, fn in dialect.VALIDATORS.items()}
    own: dict[str, Keyword] = {
        "pattern": _pattern,
        "patternProperties": _pattern_properties,
        "additionalProperties": _additional(dialect.VALIDATORS["additionalProperties"]),
        "uniqueItems": _unique(dialect.VALIDATORS["uniqueItems"]),
    }
    keywords.update({name: _counting(fn) for name, fn in own.items()})
    for name in ("unevaluatedProperties", "unevaluatedItems"):
        if name in dialect.VALIDATORS:
            keywords[name] = _counting(_unevaluated(dialect.VALIDATORS[name]))
    return extend(dialect, validators=keywords)


def errors_of(validator: Any, data: Any) -> Iterator[Any]:
    """Yield the errors of the data; raises TooLong."""
    _budget.set([STEPS, MOVES])
    yield from validator.iter_errors(data)


def without_dialects(schema: Any) -> Any:
    """Copy a schema without `$schema`, which would make another class check parts of it."""
    if isinstance(schema, list):
        return [without_dialects(item) for item in schema]  # pyright: ignore[reportUnknownVariableType]
    if not isinstance(schema, dict):
        return schema
    return {
        key: item if key in DATA else without_dialects(item)
        for key, item in schema.items()  # pyright: ignore[reportUnknownVariableType]
        if key != "$schema" or not isinstance(item, str)
    }


def matches(pattern: str, text: str) -> bool | None:
    """Return whether the text has a match; None if the search could take too long."""
    ways, size, anchored = _shape(pattern, len(text).bit_length())
    moves = ways * size * (1 if anchored else len(text) + 1)
    budget = _budget.get()
    if moves > budget[1]:
        return None
    _spend(1)
    budget[1] -= int(moves)
    return re.search(pattern, text) is not None


# ── steps ───────────────────────────────────────────────────────────────────────────────────


def _spend(steps: int) -> None:
    budget = _budget.get()
    budget[0] -= steps
    if budget[0] < 0:
        raise TooLong(f"more than {STEPS} steps")


def _counting(keyword: Keyword) -> Keyword:
    def count_first(validator: Any, value: Any, instance: Any, schema: Any) -> Any:
        _spend(1)
        return keyword(validator, value, instance, schema)

    return count_first


# ── keywords that could block ───────────────────────────────────────────────────────────────


def _pattern(validator: Any, pattern: str, instance: Any, schema: Any) -> Iterator[Any]:
    if isinstance(instance, str) and matches(pattern, instance) is False:
        error: Any = import_module("jsonschema").ValidationError
        yield error(f"{instance!r} does not match {pattern!r}")


def _pattern_properties(
    validator: Any, patterns: dict[str, Any], instance: Any, schema: Any
) -> Iterator[Any]:
    if isinstance(instance, dict):
        properties = cast("dict[str, Any]", instance)
        for pattern, subschema in patterns.items():
            for name, value in properties.items():
                if matches(pattern, name):  # a pattern that was not tried causes no error
                    yield from validator.descend(value, subschema, path=name, schema_path=pattern)


def _additional(plain: Keyword) -> Keyword:
    """The names that a pattern may take are seen to here; the rest is jsonschema's."""

    def additional(validator: Any, value: Any, instance: Any, schema: Any) -> Iterator[Any]:
        patterns = schema.get("patternProperties")
        if isinstance(instance, dict) and patterns:
            properties = cast("dict[str, Any]", instance)
            instance = {
                name: value
                for name, value in properties.items()
                if all(matches(pattern, name) is False for pattern in patterns)
            }
            schema = {key: value for key, value in schema.items() if key != "patternProperties"}
        return plain(validator, value, instance, schema)  # type: ignore[no-any-return]

    return additional


def _unique(plain: Keyword) -> Keyword:
    """Count the steps of `uniqueItems`, which is quadratic if the values cannot be sorted."""

    def unique(validator: Any, value: Any, instance: Any, schema: Any) -> Any:
        if isinstance(instance, list) and value:
            items = cast("list[object]", instance)
            size, kinds = len(items), {_sorted_as(item) for item in items}
            _spend(size // 100 if kinds in ({"text"}, {"number"}) else size * size // 100)
        return plain(validator, value, instance, schema)

    return unique


def _sorted_as(value: object) -> str:
    return "text" if isinstance(value, str) else "number" if isinstance(value, (int, float)) else ""


def _unevaluated(plain: Keyword) -> Keyword:
    """Skip schemas with references: the library searches them without any bound."""

    def unevaluated(validator: Any, value: Any, instance: Any, schema: Any) -> Any:
        text = repr(schema)
        _spend(len(text) // 100)
        if "Ref'" in text or "'$ref'" in text or "'patternProperties'" in text:
            return ()
        return plain(validator, value, instance, schema)

    return unevaluated


# ── the cost of a pattern ───────────────────────────────────────────────────────────────────


@lru_cache(maxsize=1_000)
def _shape(pattern: str, bits: int) -> tuple[float, int, bool]:
    """The ways through a pattern, its size, and whether it is anchored.

    The result is for texts of fewer than 2**bits characters. It is an upper bound: each choice in
    a repetition or an alternative is a factor.
    """
    parser: Any = import_module("re._parser")  # the parser that `re` itself uses
    parsed = parser.parse(pattern)
    tree: Any = list(parsed)
    ways, size = _cost(tree, 1 << bits)
    first = [str(part) for part in tree[0]] if tree else []
    lines = bool(parsed.state.flags & re.MULTILINE)
    anchored = first == ["AT", "AT_BEGINNING_STRING"] or (
        first == ["AT", "AT_BEGINNING"] and not lines
    )
    return ways, size, anchored


def _cost(nodes: Any, length: int) -> tuple[float, int]:
    ways, size = 1.0, 0
    for op, argument in nodes:
        more, parts = _node(str(op), argument, length)
        ways, size = min(ways * more, inf), size + parts
    return ways, max(size, 1)


def _node(op: str, argument: Any, length: int) -> tuple[float, int]:
    if op.endswith("_REPEAT"):
        low, high, inner = argument
        return _repeat(low, high, inner, length)
    if op == "BRANCH":
        return _either(argument[1], length)
    if op == "GROUPREF_EXISTS":
        return _either([argument[1], argument[2] or []], length)
    if op in ("SUBPATTERN", "ASSERT", "ASSERT_NOT"):
        return _cost(argument[-1], length)
    if op == "ATOMIC_GROUP":
        return _cost(argument, length)
    if op == "GROUPREF":
        return 1, length
    return 1, len(argument) if op == "IN" else 1


def _repeat(low: Any, high: Any, inner: Any, length: int) -> tuple[float, int]:
    """Multiply the choices of the number of repetitions by the choices within each of them."""
    ways, size = _cost(inner, length)
    high = min(int(high), length)
    choices: float = max(high - int(low), 0) + 1
    if ways > 1:
        few = high <= 32 and ways <= MOVES
        choices = ways ** max(high, 1) * choices if few else inf
    return choices, size * max(int(low), 1)


def _either(branches: Any, length: int) -> tuple[float, int]:
    costs = [_cost(branch, length) for branch in branches]
    return sum(ways for ways, _ in costs), sum(size for _, size in costs)
