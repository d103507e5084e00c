"""JSON at the boundary of a tool: the arguments from the model, and the value from the tool.

Rules. Arguments from a model are never repaired: they are a JSON object that every JSON reader
reads in the same way, or BadArguments is raised. A tool's value becomes JSON data (str, int, float,
bool, None, list, dict with str keys) that every store and every network format can carry, or
NotJson is raised. Both errors are private to the core, so they are defined here and not in the tree
of `_base/errors.py`; the caller converts them to its own errors. No value is ever shown with repr,
which may raise or leak.

msgspec does the work. But msgspec accepts duplicate keys and huge integers, fails with
RecursionError on deep nesting and raises on lone surrogates. So small flat objects take the fast
path (below 1 µs), and everything else is checked strictly. This module does not depend on tools,
types or signatures.
"""

from __future__ import annotations

import math
import re
import sys
from collections import Counter, deque
from collections.abc import Mapping, Set, ValuesView
from functools import cache
from typing import Any, Final, Generic, TypeVar, cast

import msgspec

from hookline._base.frozen import EMPTY, freeze, frozen_dict, frozen_list

T = TypeVar("T")

MAX_ARGUMENT_DEPTH: Final = 64
# A result may be deeper than arguments. But msgspec and the stores must be able to read it at any
# depth of the stack, and Python's recursion limit is 1,000.
MAX_RESULT_DEPTH: Final = 200
MIN_INT: Final = -(2**63)
MAX_INT: Final = 2**64 - 1

# Consumes a whole string, closed or not, without backtracking: linear time on any text.
_BRACKET_OR_STRING = re.compile(r'[\[{]|[\]}]|"(?:[^"\\]|\\.)*+"?', re.DOTALL)
_LONG_NUMBER = re.compile(r"\d{19}")  # a number that fits into 64 bits may have 19 digits
_SURROGATE_ESCAPE = re.compile(r"\\u[dD][89a-fA-F]")


class BadArguments(Exception):
    """The arguments that a model sent are invalid; `issues` describes each problem."""

    def __init__(self, issues: tuple[str, ...]) -> None:
        super().__init__(issues)
        self.issues = issues

    def __str__(self) -> str:
        return "; ".join(self.issues)


class NotJson(Exception):
    """A tool's value cannot be converted to JSON data; `reason` says why and what to return."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


# ── text ────────────────────────────────────────────────────────────────────────────────────


def clean_text(text: str) -> str:
    """Make the text valid Unicode: join surrogate pairs, and replace lone surrogates by U+FFFD."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def clean_data(data: Any) -> Any:
    """Clean every string in JSON data; returns plain dicts and lists."""
    if isinstance(data, str):
        return clean_text(data)
    if isinstance(data, dict):
        return {clean_data(key): clean_data(value) for key, value in data.items()}  # pyright: ignore
    if isinstance(data, (list, tuple)):
        return [clean_data(value) for value in data]  # pyright: ignore
    return data


def quote_name(name: object) -> str:
    """Quote a name for a text to the model: short and valid, and never the repr."""
    if not isinstance(name, str):
        return f"a key of type {type(name).__qualname__}"
    return json_text(clean_text(name if len(name) <= 60 else name[:59] + "…"))


def json_text(data: Any) -> str:
    """Encode JSON data from `to_json_data` as compact text."""
    return _encode(data).decode()


# ── in: the model's arguments ───────────────────────────────────────────────────────────────


def parse_arguments(text: str, *, limit: int) -> dict[str, Any]:
    """Parse the JSON object in `text`; blank text is `{}`. Raises BadArguments.

    The object is read-only. `limit` is in bytes. Duplicate keys, NaN, infinities, numbers out of
    range, nesting deeper than 64, and lone surrogates are rejected too.
    """
    if len(text) > limit or not text.isascii():
        _check_text(text, limit)
    try:
        data = _OBJECT.decode(text)
    except Exception:
        return _parse_strictly(text)  # accepts the text, or describes the problem for the model
    # As many colons as keys: no duplicate key was lost, and no object is nested.
    if text.count(":") != len(data):
        return _parse_strictly(text)
    if "[" in text or (len(text) > 18 and _LONG_NUMBER.search(text)):
        return _parse_strictly(text)
    return frozen_dict(data)  # flat, so nothing in it can be changed


def _check_text(text: str, limit: int) -> None:
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise _bad("the text contains a lone surrogate; write valid Unicode") from None
    if size > limit:
        raise _bad(f"the arguments are {size} bytes long, but only {limit} are allowed; send less")


def _parse_strictly(text: str) -> dict[str, Any]:
    if not text.strip():
        return EMPTY
    if text.count("[") + text.count("{") > MAX_ARGUMENT_DEPTH:
        _check_depth(text)
    try:
        data: Any = _strict().decode(text)
    except ValueError as error:
        raise _bad(_syntax(error, text)) from error
    if type(data) is not dict:
        raise _bad(
            'the arguments must be one JSON object such as {"name": "value"}, not '
            f"{_NAMES[type(data)]}"
        )
    if _SURROGATE_ESCAPE.search(text):
        try:
            _encode(data)
        except UnicodeEncodeError as error:
            raise _bad(
                "a string has a lone surrogate escape such as \\ud83d; write the character itself"
            ) from error
    return cast("dict[str, Any]", freeze(data))


def _check_depth(text: str) -> None:
    depth = 0
    for match in _BRACKET_OR_STRING.finditer(text):
        first = text[match.start()]
        if first in "[{":
            depth += 1
            if depth > MAX_ARGUMENT_DEPTH:
                raise _bad(
                    f"the JSON is nested deeper than {MAX_ARGUMENT_DEPTH} levels; flatten it"
                )
        elif first != '"':
            depth -= 1


def _syntax(error: Any, text: str) -> str:
    if error.pos >= len(text.rstrip()) or error.msg.startswith("Unterminated string"):
        return "the JSON ends too early; write the whole object"
    problem = error.msg[:1].lower() + error.msg[1:].removesuffix(" at")
    return f"not valid JSON: {problem} at character {error.pos}; write one JSON object"


def _bad(issue: str) -> BadArguments:
    return BadArguments((issue,))


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    data = dict(pairs)
    if len(data) != len(pairs):
        counts = Counter(key for key, _ in pairs)
        twice = ", ".join(quote_name(key) for key, count in counts.items() if count > 1)
        raise _bad(f"an object has the same key more than once: {twice}; write each key once")
    return data


def _integer(digits: str) -> int:
    # 21 characters are longer than any valid integer, so the conversion can be skipped.
    if len(digits) > 20 or not MIN_INT <= (value := int(digits)) <= MAX_INT:
        raise _bad(f"the integer {digits[:24]} is out of the 64-bit range; write it as a string")
    return value


def _number(digits: str) -> float:
    value = float(digits)
    if math.isinf(value):
        raise _bad(f"the number {digits[:24]} is too large; write it as a string")
    return value


def _constant(name: str) -> float:
    raise _bad(f"{name} is not JSON; write null or a number")


_NAMES: Final[dict[Any, str]] = {
    list: "an array",
    str: "a string",
    int: "a number",
    float: "a number",
    bool: "a boolean",
    type(None): "null",
}
_OBJECT: Final = msgspec.json.Decoder(dict[str, Any])
_encode: Final = msgspec.json.Encoder().encode


@cache
def _strict() -> Any:
    """Make Python's own decoder with our rules; imported only when needed."""
    from json import JSONDecoder

    return JSONDecoder(
        object_pairs_hook=_object,
        parse_int=_integer,
        parse_float=_number,
        parse_constant=_constant,
    )


class Reader(Generic[T]):
    """Reads one type from JSON. The decoder is made at the first read."""

    __slots__ = ("_decoder", "_type")

    def __init__(self, type_: Any) -> None:
        self._type = type_
        self._decoder: msgspec.json.Decoder[T] | None = None

    def decode(self, data: bytes | str, /) -> T:
        """Decode the value; raises msgspec.DecodeError."""
        if self._decoder is None:
            self._decoder = msgspec.json.Decoder(self._type)
        return self._decoder.decode(data)


# ── out: the tool's value ───────────────────────────────────────────────────────────────────


def to_json_data(value: object) -> Any:
    """Make a read-only copy of the value as JSON data; raises NotJson if JSON cannot hold it."""
    try:
        return _check_data(msgspec.to_builtins(value, enc_hook=encode_foreign), 0)
    except NotJson:
        raise
    except RecursionError as error:
        raise NotJson("it is nested too deeply, or contains itself; return a flat copy") from error
    except Exception as error:
        raise NotJson(
            f"a {type(value).__qualname__} raised {type(error).__qualname__} while it was "
            "converted; return plain data instead"
        ) from error


def encode_foreign(value: object) -> object:
    """Convert a value that msgspec cannot encode one level closer to JSON; raises NotJson."""
    kind = type(value)  # check the type, because the value itself could pretend or raise
    typed: Any = value
    if issubclass(kind, str):
        return str.__str__(typed)
    if issubclass(kind, int):
        return int.__int__(typed)
    if issubclass(kind, float):
        return float.__float__(typed)
    if hasattr(kind, "model_dump") and hasattr(kind, "model_json_schema"):
        return typed.model_dump(mode="json")
    if issubclass(kind, Mapping):
        return dict(typed)
    if issubclass(kind, (deque, Set, ValuesView)):
        return list(typed)
    pathlib = sys.modules.get("pathlib")  # a program that has a path has imported pathlib
    if pathlib is not None and issubclass(kind, pathlib.PurePath):
        return str(typed)
    raise NotJson(
        f"a {kind.__qualname__} is not JSON data; return str, numbers, lists, dicts, "
        "dataclasses, msgspec Structs or pydantic models"
    )


def _check_data(data: Any, depth: int) -> Any:
    """Fix or reject values that `to_builtins` accepts but JSON does not."""
    kind = type(data)  # pyright: ignore[reportUnknownVariableType]
    if kind is str:
        return data if data.isascii() else clean_text(data)
    if kind is int:
        if MIN_INT <= data <= MAX_INT:
            return data
        raise NotJson("it contains an integer out of the 64-bit range; return it as a string")
    if kind is float and not math.isfinite(data):
        raise NotJson("it contains NaN or Infinity, which JSON lacks; return None or a string")
    if data is None or kind is bool or kind is float:
        return data
    if depth >= MAX_RESULT_DEPTH:
        raise NotJson(f"it is nested deeper than {MAX_RESULT_DEPTH} levels; return a flatter value")
    if kind is list or kind is tuple:
        return frozen_list([_check_data(item, depth + 1) for item in data])
    if kind is not dict:  # an Enum's value, which msgspec returns unconverted
        return _check_data(msgspec.to_builtins(data, enc_hook=encode_foreign), depth + 1)
    return _check_dict(data, depth)


def _check_dict(data: dict[Any, Any], depth: int) -> Any:
    clean = {
        key if type(key) is str and key.isascii() else _key(key): _check_data(item, depth + 1)
        for key, item in data.items()
    }
    if len(clean) != len(data):
        raise NotJson("two keys of a dict become the same text; use keys that differ as strings")
    return frozen_dict(clean)


def _key(key: Any) -> str:
    if type(key) is str:
        return clean_text(key)
    if type(key) is int or (type(key) is float and math.isfinite(key)):
        return repr(key)
    raise NotJson(f"it contains a dict key of type {type(key).__qualname__}; return string keys")
