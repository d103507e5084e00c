"""Fit the schema of an answer to the providers' own schema modes, which take only a part of JSON
Schema. Pure.

The answer is validated in any case, so a constraint may be left out. What would change the form of
the answer may not: such a schema is not strict, or is described in words.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from hookline.providers._adapter.json_fields import is_list, is_object

SCHEMA_MAPS: Final = ("properties", "$defs", "patternProperties")  # schemas by names
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
    for part in _subschemas(schema):
        strict = part.keys() <= _STRICT and part.get("format", "date") in _FORMATS
        strict = strict and ("$ref" not in part or len(part) == 1)
        strict = strict and _has_form(part)
        if part.get("type") == "object":
            fields: dict[str, Any] = part.get("properties") or {}
            closed = part.get("additionalProperties", False) is False
            strict = strict and closed and bool(fields)
            strict = strict and set(part.get("required") or ()) == set(fields)
        if not strict:
            return False
    return True


def plain(schema: Any) -> Any:
    """Return the schema with only the keywords that Anthropic takes; None if it has no such form.

    Anthropic takes neither dicts with any names, nor types that contain themselves.
    """
    fits = True

    def change(part: dict[str, Any]) -> dict[str, Any]:
        nonlocal fits
        if "oneOf" in part:
            part["anyOf"] = part.pop("oneOf")
        fits = fits and _has_form(part)
        if "$ref" in part:  # nothing else may be next to it
            return {"$ref": part["$ref"]}
        if part.get("type") == "object":
            fits = fits and ("properties" in part or not part.get("additionalProperties"))
            part["additionalProperties"] = False
        fields = {name: value for name, value in part.items() if name in {*_FORM, "default"}}
        if part.get("minItems") in (0, 1):
            fields["minItems"] = part["minItems"]
        if part.get("format") in {*_FORMATS, "uri"}:
            fields["format"] = part["format"]
        return fields

    result = mapped(schema, change)
    return result if fits and not _repeats(schema) else None


def closed(schema: Any) -> Any:
    """Return the schema with additionalProperties set to false wherever it is not set."""

    def close(part: dict[str, Any]) -> dict[str, Any]:
        if part.get("type") == "object" and "properties" in part:
            part.setdefault("additionalProperties", False)
        return part

    return mapped(schema, close)


def mapped(schema: Any, change: Callable[[dict[str, Any]], dict[str, Any]]) -> Any:
    """Return a copy with every subschema changed; names of fields are not taken for keywords."""
    if is_list(schema):
        return [mapped(value, change) for value in schema]
    if not is_object(schema):
        return schema
    out: dict[str, Any] = {}
    for name, value in schema.items():
        if name in SCHEMA_MAPS and is_object(value):
            out[name] = {field: mapped(inner, change) for field, inner in value.items()}
        else:
            out[name] = mapped(value, change) if name in INNER else value
    return change(out)


def _has_form(part: dict[str, Any]) -> bool:
    """Return whether a subschema says which values it describes, in the case of lists, too."""
    if part.get("type") == "array":
        return is_object(part.get("items"))
    return not {"type", "anyOf", "enum", "const", "$ref"}.isdisjoint(part)


def _repeats(schema: dict[str, Any]) -> bool:
    """Return whether a definition contains itself."""
    definitions: dict[str, Any] = schema.get("$defs") or {}
    references = {
        name: {
            str(part["$ref"]).removeprefix(REF)
            for part in _subschemas(definition)
            if "$ref" in part
        }
        for name, definition in definitions.items()
    }
    while leaves := [name for name, refs in references.items() if not refs & references.keys()]:
        for name in leaves:
            del references[name]
    return bool(references)


def _subschemas(schema: Any) -> list[dict[str, Any]]:
    """Return a schema and all schemas in it."""
    parts: list[dict[str, Any]] = []

    def keep(part: dict[str, Any]) -> dict[str, Any]:
        parts.append(part)
        return part

    mapped(schema, keep)
    return parts
