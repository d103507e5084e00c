"""Arguments that a model may write for a tool: a few sets that the caller guards, and a few others.

The sets are combined from a small domain of each parameter: its default and examples, the ends of
its range, both sides of round numbers, an empty value. A function of the caller says which sets are
guarded. Optional parameters are also left out, since a guard may forget that.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from itertools import islice, product
from math import prod
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from hookline import Tool
from hookline.errors import ToolArgumentsError, UsageError

Guarded: TypeAlias = Callable[[dict[str, Any]], object] | Literal["always"]
"""Whether a call with these arguments needs an approval; "always" for each call of the tool."""
Arguments: TypeAlias = dict[str, Any]
NUMBERS: Final = (1, 0, 5, 10, 50, 51, 100, 101, 1_000, -5, 1_000_000)
TEXTS: Final = ("ann", "", "bob", "../etc", "rm -rf /")
SETS: Final = 2_000  # combinations that are tried
PER_KIND: Final = 24  # sets that a tool keeps of each kind
DEPTH: Final = 3
_MISSING: Final = object()


class Domain(NamedTuple):
    """The arguments of one tool."""

    guarded: list[Arguments]
    """Arguments that need an approval."""
    free: list[Arguments]
    """Other arguments that the tool accepts."""
    broken: list[Arguments]
    """Arguments that the tool does not accept."""


def domain_of(
    tool: Tool[..., Any], guarded: Guarded | None, more: Iterable[Mapping[str, Any]]
) -> Domain:
    """Find arguments for the tool; raises UsageError if none of them are guarded."""
    schema = tool.parameters
    fits, broken = [dict(arguments) for arguments in more], list[Arguments]()
    for arguments in islice(_objects(schema, schema.get("$defs", {}), 0), SETS):
        (fits if _accepts(tool, arguments) else broken).append(arguments)
    for name in schema.get("properties", {}):
        broken.append({**(fits[0] if fits else {}), name: []})
    needs = [arguments for arguments in fits if needs_approval(tool.name, guarded, arguments)]
    if guarded is not None and not needs:
        raise UsageError(
            f"no arguments of {tool.name!r} were found for which guarded[{tool.name!r}] is true; "
            f"pass some: values={{{tool.name!r}: [{{…}}]}}"
        )
    free = [arguments for arguments in fits if arguments not in needs]
    unfit = [arguments for arguments in broken if not _accepts(tool, arguments)]
    return Domain(needs[:PER_KIND], free[:PER_KIND], unfit[:3])


def needs_approval(name: str, guarded: Guarded | None, arguments: Arguments) -> bool:
    """Whether a run of the tool with these arguments needs an approval."""
    if guarded is None or guarded == "always":
        return guarded is not None
    try:
        return bool(guarded(arguments))
    except Exception as exc:
        exc.add_note(f"raised by guarded[{name!r}] for the arguments {arguments!r}")
        raise


def with_defaults(tool: Tool[..., Any], guarded: Guarded) -> Guarded:
    """The same check, which gets the default of an argument that is left out."""
    if guarded == "always":
        return guarded
    properties = tool.parameters.get("properties", {})
    defaults = {name: part["default"] for name, part in properties.items() if "default" in part}

    def check(arguments: Arguments) -> object:
        return guarded({**defaults, **arguments})

    return check


def _accepts(tool: Tool[..., Any], arguments: Arguments) -> bool:
    try:
        tool.bind(arguments)
    except ToolArgumentsError:
        return False
    return True


# ── domains ─────────────────────────────────────────────────────────────────────────────────


def _objects(schema: Mapping[str, Any], defs: Mapping[str, Any], depth: int) -> Iterable[Arguments]:
    """Objects of the schema; those with fewer differences from the first one come first."""
    required = schema.get("required", ())
    domains: dict[str, list[Any]] = {}
    for name, part in schema.get("properties", {}).items():
        values = _values(part, defs, depth + 1)
        domains[name] = values if name in required else [_MISSING, *values]
    sizes = [range(len(values)) for values in domains.values()]
    is_small = prod(map(len, sizes)) <= SETS * 10
    for places in sorted(product(*sizes), key=sum) if is_small else product(*sizes):
        values = [domain[place] for domain, place in zip(domains.values(), places, strict=True)]
        yield {n: v for n, v in zip(domains, values, strict=True) if v is not _MISSING}


def _values(schema: Mapping[str, Any], defs: Mapping[str, Any], depth: int) -> list[Any]:
    """Values of a schema, the plainest first."""
    if "$ref" in schema:
        schema = defs.get(str(schema["$ref"]).rpartition("/")[2], {})
    examples = [*schema.get("examples", ()), *([schema["default"]] if "default" in schema else [])]
    if "const" in schema:
        return [schema["const"]]
    if "enum" in schema:
        return list(schema["enum"])
    for key in ("anyOf", "oneOf"):
        if key in schema:
            return _distinct([v for part in schema[key] for v in _values(part, defs, depth)])
    return _distinct([*examples, *_of_type(schema, defs, depth)])


def _of_type(schema: Mapping[str, Any], defs: Mapping[str, Any], depth: int) -> list[Any]:
    match schema.get("type"):
        case "integer" | "number" as kind:
            ends = [schema[key] for key in ("minimum", "maximum") if key in schema]
            inner = [0.5] if kind == "number" else []
            return [*NUMBERS, *ends, *inner]
        case "string":
            return list(TEXTS)
        case "boolean":
            return [False, True]
        case "array":
            items = _values(schema.get("items", {}), defs, depth + 1)[:3] if depth < DEPTH else []
            return [[], *([value] for value in items)]
        case "object":
            return list(islice(_objects(schema, defs, depth), 6)) if depth < DEPTH else [{}]
        case "null":
            return [None]
        case _:
            return ["ann", 1, None]


def _distinct(values: list[Any]) -> list[Any]:
    return list({json.dumps(value, sort_keys=True): value for value in values}.values())
