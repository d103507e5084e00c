"""Structured output: the schema of an answer's type, and the conversion of an answer to a value.

A type that is not an object in JSON is requested as the field `value` of an object, because
providers only accept objects; `str` is the plain text. In a union of records each member gets a
constant field `kind`, which is removed again before the member is read. The answer may be in a
fenced block. Nothing else is repaired: if it is not one JSON object that fits, the model gets its
issues.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from types import UnionType
from typing import Any, Final, Protocol, TypeAlias, TypeGuard, Union, get_args, get_origin

import msgspec

from hookline._base.errors import UsageError
from hookline._base.frozen import thaw
from hookline._base.json import BadArguments, parse_arguments
from hookline._model.model import OutputSchema
from hookline._model.partial import NOTHING, partial_object
from hookline._tools.issues import decode_foreign, find_issues, is_model, is_object, is_record
from hookline._tools.schema import REF, describe_types

MAX_BYTES: Final = 16 * 1024 * 1024
KIND: Final = "kind"
_FENCED: Final = re.compile(r"```[a-zA-Z]*[ \t]*\n(.*?)\n?[ \t]*```", re.DOTALL)
_FENCE: Final = re.compile(r"[^{]*```[a-zA-Z]*[ \t]*\n")
_Json: TypeAlias = dict[str, Any]
_UNION: Any = Union


class Form:
    """A type that an answer must have."""

    __slots__ = ("_is_wrapped", "_shape", "kind", "name", "schema")

    def __init__(self, kind: Any) -> None:
        """Raises UsageError for a type that cannot be built from JSON."""
        self.kind = kind
        self.name = "str"
        self.schema: OutputSchema | None = None
        self._shape: _Shape | None = None
        self._is_wrapped = False
        if kind is str:
            return
        self._shape = shape = _shape_of(kind, kind)
        # All types are described at once, so that their definitions have different names.
        schemas, definitions = describe_types([leaf.kind for leaf in shape.leaves()], kind)
        root = _resolved(shape.describe(iter(schemas), definitions), definitions)
        self._is_wrapped = root.get("type") != "object"
        if self._is_wrapped:
            root = {
                "type": "object",
                "properties": {"value": root},
                "required": ["value"],
                "additionalProperties": False,
            }
        if definitions:
            root["$defs"] = definitions
        self.name = re.sub(r"[^a-zA-Z0-9_-]+", "_", shape.name)[:64]
        self.schema = OutputSchema(name=self.name, schema=root)

    def read(self, text: str) -> Any:
        """Convert the answer to a value of the type; raises BadArguments with every issue."""
        if self._shape is None:
            return text
        if not text.strip():  # which `parse_arguments` reads as {}
            raise BadArguments(("the answer has no text",))
        value: Any = _object_in(text)
        if self._is_wrapped:
            if value.keys() != {"value"}:
                raise BadArguments(('the answer must be an object with only the field "value"',))
            return self._shape.read(value["value"], "value")
        return self._shape.read(value, "")

    def partial(self, text: str) -> Any:
        """The content of an unfinished answer so far, as JSON data; or NOTHING."""
        if self._shape is None:
            return text
        fence = _FENCE.match(text)
        data = partial_object(text if fence is None else text[fence.end() :])
        if data is NOTHING:
            return NOTHING
        if self._is_wrapped:
            return self._shape.plain(data["value"]) if "value" in data else NOTHING
        return self._shape.plain(data)

    def correction(self, issues: tuple[str, ...]) -> str:
        """The text that asks the model to correct an answer with these issues."""
        lines = "\n".join(f"- {issue}" for issue in issues)
        if self._shape is None:
            return f"Your answer was not accepted:\n{lines}\nAnswer again, corrected."
        last = "Answer again with the whole JSON object, corrected, and with nothing else."
        return f"Your answer does not have the requested form {self.name}:\n{lines}\n{last}"


@lru_cache(maxsize=256)
def form_of(kind: Any) -> Form:
    """Return the form of a type; cached per type."""
    return Form(kind)


def _object_in(text: str) -> _Json:
    """Parse the only object in the answer, which may be in a fenced block.

    Unlike the arguments of a call, it is not shared, and its reader may change it.
    """
    try:  # the whole text, since a string in it may have fenced blocks, too
        data: _Json = parse_arguments(text, limit=MAX_BYTES)
    except BadArguments:
        blocks = _FENCED.findall(text)
        if len(blocks) != 1:
            raise
        data = parse_arguments(blocks[0], limit=MAX_BYTES)
    value: _Json = thaw(data)
    return value


def _resolved(schema: _Json, definitions: _Json) -> _Json:
    """Resolve a schema that is only a `$ref` to an object."""
    target = definitions.get(schema.get("$ref", "").removeprefix(REF))
    if target is None or target.get("type") != "object":
        return schema
    return {**target, **{name: schema[name] for name in schema if name != "$ref"}}


# ── shapes: split a type into parts that msgspec can read ───────────────────────────────────


class _Shape(Protocol):
    name: str

    def leaves(self) -> Iterator[_Leaf]: ...
    def describe(self, schemas: Iterator[_Json], definitions: _Json) -> _Json: ...
    def read(self, value: Any, path: str) -> Any: ...
    def plain(self, value: Any) -> Any: ...


def _shape_of(kind: Any, whole: Any) -> _Shape:
    while hasattr(kind, "__value__") and not isinstance(kind, type):
        kind = kind.__value__  # an alias made with `type`
    if get_origin(kind) in (Union, UnionType):
        records = [arm for arm in get_args(kind) if _is_record(arm)]
        if len(records) > 1 and not all(map(_is_tagged, records)):
            return _OneOf(records, [arm for arm in get_args(kind) if not _is_record(arm)], whole)
    if get_origin(kind) is list:
        item = _shape_of(get_args(kind)[0], whole)
        if not isinstance(item, _Leaf):
            return _ListOf(item)
    return _Leaf(kind)


def _is_record(kind: Any) -> bool:
    plain = get_origin(kind) or kind
    return is_model(plain) or is_record(plain)


def _is_tagged(kind: Any) -> bool:
    """Return whether msgspec itself can tell this type from others."""
    config: Any = getattr(get_origin(kind) or kind, "__struct_config__", None)
    return config is not None and config.tag is not None


class _Leaf:
    """A type that msgspec can read."""

    def __init__(self, kind: Any) -> None:
        self.kind = kind
        self.name: str = getattr(kind, "__name__", "") or "output"

    def leaves(self) -> Iterator[_Leaf]:
        yield self

    def describe(self, schemas: Iterator[_Json], definitions: _Json) -> _Json:
        return next(schemas)

    def read(self, value: Any, path: str) -> Any:
        try:
            return msgspec.convert(value, self.kind, str_keys=True, dec_hook=decode_foreign)
        except Exception as error:
            issues = find_issues(value, self.kind, path)
            raise BadArguments(tuple(issues) or (str(error),)) from error

    def plain(self, value: Any) -> Any:
        return value


class _ListOf:
    """A list whose items msgspec cannot tell apart."""

    def __init__(self, item: _Shape) -> None:
        self._item = item
        self.name = f"list_of_{item.name}"

    def leaves(self) -> Iterator[_Leaf]:
        return self._item.leaves()

    def describe(self, schemas: Iterator[_Json], definitions: _Json) -> _Json:
        return {"type": "array", "items": self._item.describe(schemas, definitions)}

    def read(self, value: Any, path: str) -> Any:
        if not _is_array(value):
            raise BadArguments((f"{path}: must be an array",))
        items: list[Any] = []
        issues: list[str] = []
        for index, item in enumerate(value):
            try:
                items.append(self._item.read(item, f"{path}[{index}]"))
            except BadArguments as bad:
                issues += bad.issues
        if issues:
            raise BadArguments(tuple(issues))
        return items

    def plain(self, value: Any) -> Any:
        if not _is_array(value):
            return value
        return [self._item.plain(item) for item in value]


class _OneOf:
    """A union of records, each with its `kind`, and perhaps other types."""

    def __init__(self, records: list[Any], others: list[Any], whole: Any) -> None:
        self._whole = whole
        self._records = [_Leaf(record) for record in records]
        self._other = _Leaf(_UNION[tuple(others)]) if others else None
        self._members: dict[str, tuple[_Leaf, bool]] = {}  # True: `kind` is its own field
        self.name = "_or_".join(record.name for record in self._records)

    def leaves(self) -> Iterator[_Leaf]:
        yield from self._records
        if self._other is not None:
            yield self._other

    def describe(self, schemas: Iterator[_Json], definitions: _Json) -> _Json:
        arms = [self._describe(record, next(schemas), definitions) for record in self._records]
        if self._other is not None:
            other = next(schemas)
            for arm in other.get("anyOf", [other]):
                if {"type", "enum", "const"}.isdisjoint(arm) or arm.get("type") == "object":
                    raise self._no_union(
                        f"{self._other.kind!r} may also be an object; make the type a record"
                    )
                arms.append(arm)
        return {"anyOf": arms}

    def _describe(self, member: _Leaf, schema: _Json, definitions: _Json) -> _Json:
        schema = _resolved(schema, definitions)
        if schema.get("type") != "object":
            raise self._no_union(f"{member.name} is not an object in JSON; make the type a record")
        fields = schema.get("properties", {})
        own = KIND in fields
        kind = _constant(fields[KIND]) if own else member.name
        if kind is None:
            raise self._no_union(
                f"{member.name} has its own field {KIND!r}; rename the field, or make its type a "
                "Literal of one string"
            )
        if kind in self._members:
            raise self._no_union(f"two members are named {kind!r}; rename one of them")
        self._members[kind] = member, own
        required = [name for name in schema.get("required", []) if name != KIND]
        return {
            **schema,
            "properties": {**fields, KIND: {"type": "string", "enum": [kind]}},
            "required": [KIND, *required],
        }

    def _no_union(self, why: str) -> UsageError:
        return UsageError(
            f"output={self._whole!r}: {why}. The members of a union must be records, "
            "such as dataclasses or pydantic models, and must have different names"
        )

    def read(self, value: Any, path: str) -> Any:
        kinds = ", ".join(f'"{kind}"' for kind in self._members)
        if not is_object(value):
            if self._other is not None:
                return self._other.read(value, path)
            raise BadArguments((f'{path}: must be an object whose "{KIND}" is one of {kinds}',))
        match = self._member(value)
        if match is None:
            raise BadArguments((f"{path}.{KIND}: must be one of {kinds}",))
        member, own = match
        return member.read(value if own else _without_kind(value), path)

    def plain(self, value: Any) -> Any:
        if not is_object(value):
            return value
        member = self._member(value)
        return value if member is not None and member[1] else _without_kind(value)

    def _member(self, value: _Json) -> tuple[_Leaf, bool] | None:
        kind = value.get(KIND)  # may be a list or an object, which no dict can look up
        return self._members.get(kind) if isinstance(kind, str) else None


def _is_array(value: object) -> TypeGuard[list[Any]]:
    return isinstance(value, list)


def _without_kind(value: _Json) -> _Json:
    return {name: item for name, item in value.items() if name != KIND}


def _constant(schema: _Json) -> str | None:
    """The only string that a field may have, if the schema allows only one."""
    values = schema.get("enum", [schema["const"]] if "const" in schema else [])
    return values[0] if len(values) == 1 and isinstance(values[0], str) else None
