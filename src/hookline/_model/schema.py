"""A callable's signature as JSON Schema, and a model's arguments as its typed keyword arguments.

Rules. What msgspec cannot describe, or would silently ignore, is a ToolDefinitionError where the
tool is made. Parameters keep their names: a lone model parameter is not unwrapped. The same
function gives the same bytes. Every `$ref` points to the `$defs` at the root. pydantic is only
touched when a user's own type is one of its models.

Below it: `callables.py` (signature, hints, docstring), `issues.py` (why a value does not fit)
and `_base/json.py` (text and data), whose public names are had from here. Knows nothing of tools,
runs or chats: the caller says with `skip` which parameter it injects.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from types import NoneType, UnionType
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec import convert
from msgspec.structs import asdict

from hookline._base.errors import ToolDefinitionError, UsageError
from hookline._base.frozen import freeze, thaw
from hookline._base.json import (
    BadArguments,
    NotJson,
    clean_text,
    encode_foreign,
    json_text,
    parse_arguments,
    to_json_data,
)
from hookline._model.callables import parse_docstring, read_callable
from hookline._model.constraints import Unknown, is_foreign, translated
from hookline._model.issues import decode_foreign, is_model, is_record, missing_and_unknown

__all__ = [
    "BadArguments",
    "NotJson",
    "Signature",
    "clean_text",
    "describe_types",
    "inspect_callable",
    "json_text",
    "parse_arguments",
    "to_json_data",
]

_REF: Final = "#/$defs/"


class Signature(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """What a model has to know to call a function, and how its arguments become the function's."""

    schema: dict[str, Any]
    description: str
    injected: str | None
    _arguments: type[msgspec.Struct]
    _plain: bool

    def bind(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """The typed keyword arguments; a parameter with a default may be left out.

        They are plain objects of their own: the handler may change them. BadArguments names every
        field that is wrong, missing or unknown.
        """
        try:
            arguments = thaw(arguments)
            # A Struct, for msgspec remembers what it is: 8 times as fast as a TypedDict.
            if self._plain:
                filled = convert(arguments, self._arguments)
            else:
                filled = convert(arguments, self._arguments, str_keys=True, dec_hook=decode_foreign)
        except Exception as error:
            issues = missing_and_unknown(arguments, self._arguments, "")
            raise BadArguments(tuple(issues) or (clean_text(str(error)),)) from error
        bound = asdict(filled)
        if len(bound) == len(arguments):
            return bound
        return {name: bound[name] for name in arguments}


def inspect_callable(
    fn: Callable[..., Any], *, tool: str, skip: Callable[[object], bool]
) -> Signature:
    """The signature of a function, method, partial or callable object.

    A parameter for whose type `skip` is true is injected and no part of the schema; nor is one
    that a partial bound by keyword. ToolDefinitionError says why a callable cannot be a tool.
    """
    callee = read_callable(fn, tool)
    injected = [name for name, hint in callee.hints.items() if skip(hint)]
    if len(injected) > 1:
        raise ToolDefinitionError(
            tool, f"the parameters {', '.join(injected)} are all injected; keep one of them"
        )
    hints = {
        name: _translated(tool, name, hint)
        for name, hint in callee.hints.items()
        if name not in injected
    }
    defaults = {
        name: parameter.default
        for name, parameter in callee.parameters.items()
        if name in hints and parameter.default is not parameter.empty
    }
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


def describe_types(kinds: Sequence[Any], whole: Any) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The schemas of types and the definitions that they refer to; raises UsageError.

    `whole` is the `output=` that they are parts of.
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
    """Whether JSON data of this type has no keys but strings, and nothing that is not msgspec's.

    Such a value is converted in half the time.
    """
    origin = get_origin(hint)
    if origin in (Union, UnionType, Annotated, list):
        parts = get_args(hint)
        return all(map(_is_plain, parts[:1] if origin is Annotated else parts))
    return origin is Literal or hint in (str, int, float, bool, NoneType, None)


def _arguments_type(hints: dict[str, Any], optional: dict[str, Any]) -> type[msgspec.Struct]:
    fields: list[Any] = [
        (name, hint, msgspec.UNSET) if name in optional else (name, hint)
        for name, hint in hints.items()
    ]
    return msgspec.defstruct("Arguments", fields, kw_only=True, forbid_unknown_fields=True)


def _show_default(schema: dict[str, Any], hint: Any, default: object) -> None:
    """The default goes into the schema if a model could write it: JSON that fits the type."""
    try:
        ordered = msgspec.to_builtins(default, enc_hook=encode_foreign, order="deterministic")
        data = to_json_data(ordered)
        msgspec.convert(data, hint, str_keys=True, dec_hook=decode_foreign)
    except Exception:
        return
    schema["default"] = data


def _refuse_ignored(tool: str, name: str, hint: Any, default: object) -> None:
    """Refuses what msgspec would pass over in silence: a promise that nobody would keep."""
    parts: list[Any] = [hint]
    seen: set[type] = set()  # classes may contain themselves
    while parts:
        part = parts.pop()
        if is_foreign(part) or is_foreign(default):
            raise ToolDefinitionError(
                tool,
                f"parameter {name!r}: pydantic's Field works in the hint of a parameter and in a "
                "pydantic model; write Annotated[<type>, Field(description=…, ge=…)] and a plain "
                "default",
            )
        if hasattr(part, "__pydantic_validator__") and not is_model(part):
            raise ToolDefinitionError(
                tool,
                f"parameter {name!r}: a pydantic dataclass would not be checked by pydantic; "
                "make it a BaseModel, or a dataclass of the standard library",
            )
        if (origin := get_origin(part)) is not None:
            parts += [origin, *get_args(part)]
        elif isinstance(part, type) and part not in seen and is_record(part):
            seen.add(part)
            with contextlib.suppress(Exception):  # unknown names are found when it is described
                parts += get_type_hints(part, include_extras=True).values()


def _translated(tool: str, name: str, hint: Any) -> Any:
    """The hint with msgspec's words in place of pydantic's."""
    try:
        return translated(hint)
    except Unknown as unknown:
        raise ToolDefinitionError(
            tool,
            f"parameter {name!r}: pydantic's {unknown} has no counterpart in a tool's schema; use "
            "constraints and descriptions, or make the parameter a pydantic model",
        ) from None


# ── schema ──────────────────────────────────────────────────────────────────────────────────


def _describe(tool: str, hints: dict[str, Any]) -> tuple[dict[str, dict[str, Any]], dict[str, Any]]:
    """Each parameter's schema, and the definitions that they refer to."""
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
    elif isinstance(error, KeyError):  # msgspec finds no name for a class
        advice = "there is another class of the same module and name; rename one"
    else:
        advice = "use JSON types, dataclasses, TypedDicts, msgspec Structs or pydantic models"
    return f"({text}); {advice}"


def _schemas(hints: dict[str, Any]) -> tuple[dict[str, dict[str, Any]], dict[str, Any]]:
    msgspec.json.Decoder(_arguments_type(hints, {}))  # refuses what could not be converted later
    models: dict[type, dict[str, Any]] = {}

    def reference(kind: type) -> dict[str, Any]:
        if not is_model(kind):
            raise TypeError(f"{kind!r} is not a type that JSON can be converted to")
        return dict(models.setdefault(kind, {"$ref": "not known yet"}))

    def components() -> tuple[dict[str, dict[str, Any]], dict[str, Any]]:
        found, definitions = msgspec.json.schema_components(
            hints.values(), schema_hook=reference, ref_template=_REF + "{name}"
        )
        return dict(zip(hints, found, strict=True)), definitions

    # Once to learn which pydantic models there are, once more to refer to their definitions.
    schemas, definitions = components()
    if models:
        theirs = _pydantic_schemas(models, taken=definitions)
        schemas, definitions = components()
        definitions |= theirs
    msgspec.json.encode([schemas, definitions])  # an extra_json_schema may hold anything
    return schemas, definitions


def _pydantic_schemas(
    models: dict[type, dict[str, Any]], *, taken: dict[str, Any]
) -> dict[str, Any]:
    """The definitions of pydantic models, under names not `taken`; each model gets its `$ref`."""
    from pydantic.json_schema import models_json_schema

    prefix = ""
    while True:
        refs, root = models_json_schema(
            [(model, "validation") for model in models],
            ref_template=_REF + prefix + "{model}",
        )
        definitions = {prefix + name: found for name, found in root.get("$defs", {}).items()}
        if definitions.keys().isdisjoint(taken):
            break
        prefix += "pydantic_"
    for model in models:
        models[model] = refs[model, "validation"]
    return definitions
