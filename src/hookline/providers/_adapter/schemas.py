"""Fit the schema of an answer to the providers' own schema modes, which take only a part of JSON
Schema. Pure.

The answer is validated in any case, so a constraint may be left out. What would change the form of
the answer may not: such a schema is not strict, or is described in words.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from hookline.providers._adapter.parts import is_list, is_object

NAMED: Final = ("properties", "$defs", "patternProperties")  # schemas by names
INNER: Final = (
    *("items", "prefixItems", "contains", "additionalProperties", "propertyNames"),
    *("anyOf", "oneOf", "allOf", "not", "if", "then", "else"),
)  # a schema, or a list of schemas
REF: Final = "#/$defs/"
_FORM: Final = {
    *("type", "properties", "required", "additionalProperties", "items", "anyOf", "enum", "const"),
    *("$ref", "$defs", "title", "description"),
}
_FORMATS: Final = {
    *("date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"),
}
_STRICT: Final = {
    *_FORM,
    *("format", "pattern", "minItems", "maxItems", "multipleOf"),
    *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"),
}


def is_strict(schema: Any) -> bool:
    """Return whether OpenAI's strict mode takes a schema.

    Each object must require all its fields and allow no others, and each value must have a type.
    """
    strict = True

    def look(each: dict[str, Any]) -> dict[str, Any]:
        nonlocal strict
        strict = strict and each.keys() <= _STRICT and each.get("format", "date") in _FORMATS
        strict = strict and ("$ref" not in each or len(each) == 1)
        strict = strict and _has_form(each)
        if each.get("type") == "object":
            fields: dict[str, Any] = each.get("properties") or {}
            closed = each.get("additionalProperties", False) is False
            strict = strict and closed and bool(fields)
            strict = strict and set(each.get("required") or ()) == set(fields)
        return each

    mapped(schema, look)
    return strict


def plain(schema: Any) -> Any:
    """Return the schema with only the keywords that Anthropic takes; None if it has no such form.

    Anthropic takes neither dicts with any names, nor types that contain themselves.
    """
    taken = True

    def change(each: dict[str, Any]) -> dict[str, Any]:
        nonlocal taken
        if "oneOf" in each:
            each["anyOf"] = each.pop("oneOf")
        taken = taken and _has_form(each)
        if "$ref" in each:  # nothing else may be next to it
            return {"$ref": each["$ref"]}
        if each.get("type") == "object":
            taken = taken and ("properties" in each or not each.get("additionalProperties"))
            each["additionalProperties"] = False
        kept = {name: value for name, value in each.items() if name in {*_FORM, "default"}}
        if each.get("minItems") in (0, 1):
            kept["minItems"] = each["minItems"]
        if each.get("format") in {*_FORMATS, "uri"}:
            kept["format"] = each["format"]
        return kept

    found = mapped(schema, change)
    return found if taken and not _repeats(schema) else None


def closed(schema: Any) -> Any:
    """Return the schema with additionalProperties set to false wherever it is not set."""

    def close(each: dict[str, Any]) -> dict[str, Any]:
        if each.get("type") == "object" and "properties" in each:
            each.setdefault("additionalProperties", False)
        return each

    return mapped(schema, close)


def mapped(schema: Any, change: Callable[[dict[str, Any]], dict[str, Any]]) -> Any:
    """Return a copy with every subschema changed; names of fields are not taken for keywords."""
    if is_list(schema):
        return [mapped(each, change) for each in schema]
    if not is_object(schema):
        return schema
    out: dict[str, Any] = {}
    for name, each in schema.items():
        if name in NAMED and is_object(each):
            out[name] = {field: mapped(inner, change) for field, inner in each.items()}
        else:
            out[name] = mapped(each, change) if name in INNER else each
    return change(out)


def _has_form(each: dict[str, Any]) -> bool:
    """Return whether a subschema says which values it describes, in the case of lists, too."""
    if each.get("type") == "array":
        return is_object(each.get("items"))
    return not {"type", "anyOf", "enum", "const", "$ref"}.isdisjoint(each)


def _repeats(schema: dict[str, Any]) -> bool:
    """Return whether a definition contains itself."""
    definitions: dict[str, Any] = schema.get("$defs") or {}
    known = {name: set(_refs(each)) for name, each in definitions.items()}
    while leaves := [name for name, refs in known.items() if not refs & known.keys()]:
        for name in leaves:
            del known[name]
    return bool(known)


def _refs(schema: Any) -> Iterator[str]:
    """Yield the names of the definitions that a schema refers to."""
    found: list[str] = []

    def look(each: dict[str, Any]) -> dict[str, Any]:
        if isinstance(each.get("$ref"), str):
            found.append(each["$ref"].removeprefix(REF))
        return each

    mapped(schema, look)
    yield from found
