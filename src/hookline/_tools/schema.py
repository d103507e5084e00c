"""Make a JSON Schema from a callable's signature, and convert arguments to its typed parameters.

Rules. A type that msgspec cannot describe, or would silently ignore, raises a ToolDefinitionError
when the tool is made. Parameters keep their names: a single parameter that is a model is not
unwrapped. The same function always gives the same bytes. Every `$ref` points to the `$defs` at the
root. pydantic is only imported if one of the user's types is a pydantic model.

This module builds on `callables.py` (signature, hints, docstring), `issues.py` (why a value does
not fit) and `_base/json.py` (text and data). It does not depend on tools, runs or chats: the caller
decides with `skip` which parameter is injected.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Container, Sequence
from types import NoneType, UnionType
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec import convert
from msgspec.structs import asdict

from hookline._base.errors import ToolDefinitionError, UsageError
from hookline._base.frozen import freeze, thaw
from hookline._base.json import (
    BadArguments,
    clean_text,
    encode_foreign,
    to_json_data,
)
from hookline._tools.callables import Callee, parse_docstring, read_callable
from hookline._tools.constraints import Unknown, alias_target, is_foreign, translated
from hookline._tools.issues import decode_foreign, is_model, is_record, missing_and_unknown

REF: Final = "#/$defs/"


class Signature(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """A function's schema for the model, and the conversion of a call's arguments."""

    schema: dict[str, Any]
    description: str
    injected: str | None
    _arguments: type[msgspec.Struct]
    _plain: bool

    @property
    def parameters(self) -> frozenset[str]:
        """The names of the parameters that a call's arguments are bound to."""
        return frozenset(self._arguments.__struct_fields__)

    def bind(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Convert JSON to typed keyword arguments; parameters with a default may be left out.

        The values are new objects that the handler may change. Raises BadArguments, which lists
        every field that is wrong, missing or unknown.
        """
        try:
            # A Struct is 8 times as fast as a TypedDict, because msgspec caches its type.
            if self._plain:  # msgspec makes each list anew
                filled = convert(arguments, self._arguments)
            else:  # msgspec passes on the values of types such as Any
                arguments = thaw(arguments)
                filled = convert(arguments, self._arguments, str_keys=True, dec_hook=decode_foreign)
        except Exception as error:
            issues = missing_and_unknown(arguments, self._arguments, "")
            raise BadArguments(tuple(issues) or (clean_text(str(error)),)) from error
        values = asdict(filled)
        if len(values) == len(arguments):
            return values
        return {name: values[name] for name in arguments}


def inspect_callable(
    fn: Callable[..., Any], *, tool: str, skip: Callable[[object], bool]
) -> Signature:
    """Inspect the signature of a function, method, partial or callable object.

    A parameter is injected if `skip(hint)` is true for its type hint. The schema leaves out
    injected parameters, and parameters that a partial binds by keyword. Raises ToolDefinitionError
    if the callable cannot be a tool.
    """
    callee = read_callable(fn, tool)
    injected = [name for name, hint in callee.hints.items() if skip(hint)]
    if len(injected) > 1:
        raise ToolDefinitionError(
            tool, f"the parameters {', '.join(injected)} are all injected; keep only one of them"
        )
    hints = {
        name: _translated(tool, name, hint)
        for name, hint in callee.hints.items()
        if name not in injected
    }
    defaults = _defaults_of(callee, hints)
    for name, hint in hints.items():
        _refuse_ignored(tool, name, hint, defaults.get(name))
    properties, definitions = _describe(tool, hints)
    description, texts = parse_docstring(clean_text(callee.doc))
    for name, schema in properties.items():
        if name in texts:
            schema.setdefault("description", texts[name])
        if name in defaults:
            _show_default(schema, hints[name], defaults[name])
    schema = {
        "type": "object",
        "properties": properties,
        "required": [name for name in hints if name not in defaults],
        "additionalProperties": False,
    }
    return Signature(
        schema=freeze(schema | {"$defs": definitions} if definitions else schema),
        description=description,
        injected=injected[0] if injected else None,
        _arguments=_arguments_type(hints, defaults),
        _plain=all(map(_is_plain, hints.values())),
    )


def _defaults_of(callee: Callee, names: Container[str]) -> dict[str, Any]:
    """The defaults of those of these parameters that have one."""
    return {
        name: parameter.default
        for name, parameter in callee.parameters.items()
        if name in names and parameter.default is not parameter.empty
    }


def describe_types(kinds: Sequence[Any], whole: Any) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Return the schemas of types, and the definitions that the schemas refer to.

    `whole` is the `output=` type that contains these types. Raises UsageError for a type without a
    schema.
    """
    try:
        for kind in kinds:
            _refuse_ignored("output", "output", kind, None)
        properties, definitions = _schemas({f"part{n}": kind for n, kind in enumerate(kinds)})
    except ToolDefinitionError as error:
        raise UsageError(f"output={whole!r}: {str(error).partition(': ')[2]}") from error
    except Exception as error:
        raise UsageError(f"output={whole!r} cannot be described {_reason(error)}") from error
    return list(properties.values()), definitions


def _is_plain(hint: Any) -> bool:
    """Return whether this type is only strings, numbers, booleans, None, literals and lists.

    Such a value is converted in half the time.
    """
    origin = get_origin(hint)
    if origin in (Union, UnionType, Annotated, list):
        parts = get_args(hint)
        return all(map(_is_plain, parts[:1] if origin is Annotated else parts))
    return origin is Literal or hint in (str, int, float, bool, NoneType, None)


def _arguments_type(hints: dict[str, Any], optional: dict[str, Any]) -> type[msgspec.Struct]:
    # UNSET and not the default: the function fills in its own, which need not fit the type.
    fields: list[Any] = [
        (name, hint, msgspec.UNSET) if name in optional else (name, hint)
        for name, hint in hints.items()
    ]
    return msgspec.defstruct("Arguments", fields, kw_only=True, forbid_unknown_fields=True)


def _show_default(schema: dict[str, Any], hint: Any, default: object) -> None:
    """Add the default to the schema if a model could send it: JSON that fits the type."""
    try:
        # Sets are sorted, because the same function must give the same bytes in each process.
        ordered = msgspec.to_builtins(default, enc_hook=encode_foreign, order="deterministic")
        data = to_json_data(ordered)
        msgspec.convert(data, hint, str_keys=True, dec_hook=decode_foreign)
    except Exception:
        return
    schema["default"] = data


def _refuse_ignored(tool: str, name: str, hint: Any, default: object) -> None:
    """Raise for constraints that msgspec would silently ignore."""
    parts: list[Any] = [hint]
    visited: set[Any] = set()  # classes and aliases may contain themselves
    while parts:
        part = parts.pop()
        if is_foreign(part) or is_foreign(default):
            raise ToolDefinitionError(
                tool,
                f"parameter {name!r}: pydantic's Field works only in the hint of a parameter "
                "and in a pydantic model; write Annotated[<type>, Field(description=…, ge=…)] "
                "and a plain default",
            )
        if hasattr(part, "__pydantic_validator__") and not is_model(part):
            raise ToolDefinitionError(
                tool,
                f"parameter {name!r}: a pydantic dataclass would not be checked by pydantic; "
                "make it a BaseModel, or a dataclass of the standard library",
            )
        if (origin := get_origin(part)) is not None:
            parts += [origin, *get_args(part)]
        elif (inner := alias_target(part)) is not None and part not in visited:
            visited.add(part)
            parts.append(inner)
        elif isinstance(part, type) and part not in visited and is_record(part):
            visited.add(part)
            with contextlib.suppress(Exception):  # unknown names raise later, in the description
                parts += get_type_hints(part, include_extras=True).values()


def _translated(tool: str, name: str, hint: Any) -> Any:
    """Replace pydantic's metadata in the hint with msgspec's."""
    try:
        return translated(hint)
    except Unknown as unknown:
        raise ToolDefinitionError(
            tool,
            f"parameter {name!r}: pydantic's {unknown} has no equivalent in a tool's schema; use "
            "constraints and descriptions, or make the parameter a pydantic model",
        ) from None


# ── schema ──────────────────────────────────────────────────────────────────────────────────


def _describe(tool: str, hints: dict[str, Any]) -> tuple[dict[str, dict[str, Any]], dict[str, Any]]:
    """The schema of each parameter, and the definitions that the schemas refer to."""
    try:
        return _schemas(hints)
    except Exception as error:
        for name, hint in hints.items():
            try:
                _schemas({name: hint})
            except Exception as found:
                problem = f"the type of parameter {name!r} cannot be described"
                raise ToolDefinitionError(tool, f"{problem} {_reason(found)}") from found
        problem = "its parameters cannot be described together"
        raise ToolDefinitionError(tool, f"{problem} {_reason(error)}") from error


def _reason(error: Exception) -> str:
    text = " ".join(str(error).split())
    if "Type unions" in text:
        advice = "use a pydantic model with that union as a field, or msgspec Structs with tag=True"
    elif isinstance(error, NameError):
        advice = "define that name at the top of its module"
    elif isinstance(error, KeyError):  # msgspec found two classes with one name
        advice = "another class has the same module and name; rename one of them"
    else:
        advice = "use JSON types, dataclasses, TypedDicts, msgspec Structs or pydantic models"
    return f"({text}); {advice}"


def _schemas(hints: dict[str, Any]) -> tuple[dict[str, dict[str, Any]], dict[str, Any]]:
    msgspec.json.Decoder(_arguments_type(hints, {}))  # raises if arguments could not be converted
    models: dict[type, dict[str, Any]] = {}

    def reference(kind: type) -> dict[str, Any]:
        if not is_model(kind):
            raise TypeError(f"{kind!r} cannot be converted from JSON")
        return dict(models.setdefault(kind, {"$ref": "not known yet"}))

    def components() -> tuple[dict[str, dict[str, Any]], dict[str, Any]]:
        schemas, definitions = msgspec.json.schema_components(
            hints.values(), schema_hook=reference, ref_template=REF + "{name}"
        )
        return dict(zip(hints, schemas, strict=True)), definitions

    # The first pass collects the pydantic models, the second refers to their definitions.
    schemas, definitions = components()
    if models:
        theirs = _pydantic_schemas(models, existing=definitions)
        schemas, definitions = components()
        definitions |= theirs
    msgspec.json.encode([schemas, definitions])  # raises if an extra_json_schema is not JSON
    return schemas, definitions


def _pydantic_schemas(
    models: dict[type, dict[str, Any]], *, existing: dict[str, Any]
) -> dict[str, Any]:
    """Describe pydantic models under names not in `existing`, and set the `$ref` of each."""
    from pydantic.json_schema import models_json_schema

    prefix = ""
    while True:
        refs, root = models_json_schema(
            [(model, "validation") for model in models],
            ref_template=REF + prefix + "{model}",
        )
        definitions = {
            prefix + name: definition for name, definition in root.get("$defs", {}).items()
        }
        if definitions.keys().isdisjoint(existing):  # a Struct may have the name of a model
            break
        prefix += "pydantic_"
    for model in models:
        models[model] = refs[model, "validation"]
    return definitions
