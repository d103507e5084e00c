"""A tool's signature that somebody else's JSON schema describes: a server's, a client's, a file's.

Rules. A schema that is none is an error where the tool is made, and so is a `$ref` that leads out
of it: nothing is ever fetched. Arguments are checked as they stand: no default is filled in and
nothing is converted. The library `jsonschema` is an extra and is imported when a schema is to be
checked. What it says of a value is bounded, for it may quote the whole of it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from itertools import islice
from typing import Any, Final

import msgspec

from hookline._base.errors import ToolDefinitionError
from hookline._base.frozen import thaw
from hookline._base.json import BadArguments, NotJson, clean_text, to_json_data
from hookline._base.run import is_run
from hookline._model.callables import hints_of

MAX_ISSUES: Final = 20
_ISSUE: Final = 300  # characters
_DATA: Final = frozenset(["enum", "const", "default", "examples"])  # no schemas in there


class ForeignSignature(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """What a model has to know to call a function, told by a schema that is not made from it."""

    schema: dict[str, Any]
    description: str
    injected: str | None
    _argument: str
    _validator: Any

    def bind(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """The arguments, plain and checked, as the function's one parameter."""
        try:
            plain = thaw(arguments)
        except RecursionError as error:
            raise BadArguments(("they contain themselves; send a finite value",)) from error
        if self._validator is not None:
            _check(self._validator, plain)
        return {self._argument: plain}


def _check(validator: Any, data: Any) -> None:
    try:
        issues = [_issue(error) for error in islice(validator.iter_errors(data), MAX_ISSUES)]
    except Exception as error:  # such as a pattern that is none, or a schema without end
        issues = [f"they cannot be checked against the tool's schema ({_issue(error)})"]
    if issues:
        raise BadArguments(tuple(issues))


def checker(name: str, schema: dict[str, Any]) -> Callable[[Any], None]:
    """A check of data against a schema, which raises BadArguments; ToolDefinitionError if bad."""
    return partial(_check, _validator(schema, name))


def foreign_signature(
    name: str, description: str, schema: dict[str, Any], fn: Any, *, validate: bool
) -> ForeignSignature:
    """The signature; raises ToolDefinitionError for a schema or a function that cannot work."""
    if not isinstance(schema, dict):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ToolDefinitionError(name, f"schema={schema!r} must be a dict: a JSON schema")
    try:
        data: Any = to_json_data({"type": "object", "properties": {}, **schema})
    except NotJson as error:
        raise ToolDefinitionError(name, f"its schema must be JSON data: {error}") from error
    if data["type"] != "object" or not isinstance(data["properties"], dict):
        raise ToolDefinitionError(
            name, f"schema={data!r} must describe an object, with 'properties'"
        )
    argument, injected = _parameters(fn, name)
    return ForeignSignature(
        schema=data,
        description=clean_text(description),
        injected=injected,
        _argument=argument,
        _validator=_validator(data, name) if validate else None,
    )


def _parameters(fn: Any, tool: str) -> tuple[str, str | None]:
    """The parameter for the arguments, and the one for the run."""
    try:
        parameters = inspect.signature(fn).parameters
    except (TypeError, ValueError) as error:
        raise ToolDefinitionError(
            tool, f"{fn!r} must be a function of the arguments, such as async def call(arguments)"
        ) from error
    hints = hints_of(fn, parameters, tool)
    injected = [name for name in parameters if is_run(hints.get(name))]
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    rest = [
        name
        for name, parameter in parameters.items()
        if name not in injected
        and (parameter.kind not in named or parameter.default is parameter.empty)
    ]
    if len(rest) != 1 or len(injected) > 1 or parameters[rest[0]].kind not in named:
        raise ToolDefinitionError(
            tool,
            f"its function must not take ({', '.join(parameters)}); give it one dict, and the run "
            "if it needs one: async def call(arguments: dict[str, Any], run: Run)",
        )
    return rest[0], injected[0] if injected else None


def _validator(schema: dict[str, Any], tool: str) -> Any:
    """What checks values against the schema, compiled once."""
    try:
        jsonschema: Any = import_module("jsonschema")
        referencing: Any = import_module("referencing")
        drafts: Any = import_module("referencing.jsonschema")
    except ImportError as error:
        raise ToolDefinitionError(
            tool,
            f"checking arguments against a JSON schema needs {error.name}: "
            'pip install "hookline[schema]", or pass validate=False',
        ) from error
    plain: Any = thaw(schema)
    unresolvable = referencing.exceptions.Unresolvable
    draft = drafts.DRAFT202012
    dialect = jsonschema.validators.validator_for(plain, default=jsonschema.Draft202012Validator)
    registry = referencing.Registry()  # knows nothing beside, and fetches nothing
    try:
        dialect.check_schema(plain)
        resource = referencing.Resource.from_contents(plain, default_specification=draft)
        for ref, resolver in _references(plain, registry.resolver_with_root(resource), draft):
            try:
                resolver.lookup(ref)
            except (unresolvable, ValueError) as error:
                raise ToolDefinitionError(
                    tool,
                    f"its schema refers to {ref[:100]!r}, which is not in it; nothing is "
                    "fetched; put the definition under '$defs'",
                ) from error
    except jsonschema.SchemaError as error:
        raise ToolDefinitionError(
            tool, f"schema= must be a JSON schema: {_issue(error)}"
        ) from error
    return dialect(plain, registry=registry)


def _references(schema: Any, resolver: Any, draft: Any) -> Iterator[tuple[str, Any]]:
    """Each `$ref` of a schema, with what resolves it."""
    if isinstance(schema, list):
        for each in schema:  # pyright: ignore[reportUnknownVariableType]
            yield from _references(each, resolver, draft)
    if not isinstance(schema, dict):
        return
    if isinstance(schema.get("$id"), str):  # pyright: ignore
        resolver = resolver.in_subresource(draft.create_resource(schema))
    for key, each in schema.items():  # pyright: ignore
        if key in ("$ref", "$dynamicRef") and isinstance(each, str):
            yield each, resolver
        elif key not in _DATA:
            yield from _references(each, resolver, draft)


def _issue(error: Any) -> str:
    path = ".".join(str(each) for each in getattr(error, "absolute_path", ()))
    text = clean_text(getattr(error, "message", None) or type(error).__name__)
    if len(text) > _ISSUE:
        text = f"{text[: _ISSUE // 2]} … {text[-_ISSUE // 2 :]}"
    return f"{path[:100]}: {text}" if path else text


def takes_run(fn: Callable[..., Any]) -> bool:
    """Whether a predicate asks for the run: by a parameter that must be given, or that says so."""
    try:
        parameters = list(inspect.signature(fn).parameters.values())
    except (TypeError, ValueError):
        return False  # of a builtin nobody knows
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    if not parameters or parameters[0].kind not in positional:
        return False
    first = parameters[0]
    return first.default is first.empty or first.name == "run"
