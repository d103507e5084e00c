"""Structured output: the type that an answer is to have, as a schema, and an answer as its value.

A type whose JSON is no object is asked for as the field `value` of one, since providers take
objects alone. Nothing is repaired: an answer is one JSON object that fits, or its issues are told.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any, Final

import msgspec

from hookline._model.issues import decode_foreign, find_issues
from hookline._model.model import OutputSchema
from hookline._model.schema import BadArguments, describe_type, parse_arguments

MAX_BYTES: Final = 16 * 1024 * 1024
_REF: Final = "#/$defs/"


class Form:
    """A type that an answer is to have."""

    __slots__ = ("_kind", "_wrapped", "schema")

    def __init__(self, kind: Any) -> None:
        """Raises UsageError for a type that JSON cannot be converted to."""
        described, definitions = describe_type(kind)
        root = described
        found = definitions.get(described.get("$ref", "").removeprefix(_REF))
        if found is not None and found.get("type") == "object":
            root = {**found, **{name: described[name] for name in described if name != "$ref"}}
        self._kind = kind
        self._wrapped = root.get("type") != "object"
        if self._wrapped:
            root = {
                "type": "object",
                "properties": {"value": root},
                "required": ["value"],
                "additionalProperties": False,
            }
        if definitions:
            root["$defs"] = definitions
        name = re.sub(r"[^a-zA-Z0-9_-]+", "_", getattr(kind, "__name__", "") or "output")[:64]
        self.schema = OutputSchema(name=name, schema=root)

    def read(self, text: str) -> Any:
        """The answer as a value of the type; raises BadArguments with every issue."""
        if not text.strip():
            raise BadArguments(("there is no text in it",))
        value: Any = parse_arguments(text, limit=MAX_BYTES)
        if self._wrapped:
            if value.keys() != {"value"}:
                raise BadArguments(('it must be an object with the one field "value"',))
            value = value["value"]
        try:
            return msgspec.convert(value, self._kind, str_keys=True, dec_hook=decode_foreign)
        except Exception as error:
            issues = find_issues(value, self._kind, "")
            raise BadArguments(tuple(issues) or (str(error),)) from error

    def correction(self, issues: tuple[str, ...]) -> str:
        """What the model is told of an answer that does not fit."""
        listed = "\n".join(f"- {issue}" for issue in issues)
        return (
            f"Your answer does not have the form {self.schema.name} that was asked for:\n{listed}\n"
            "Answer again with the whole JSON object, corrected, and with nothing else."
        )


@lru_cache(maxsize=256)
def form_of(kind: Any) -> Form:
    """The form of a type; the same type gives the same one."""
    return Form(kind)
