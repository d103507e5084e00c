"""The signature of a tool that is described by an external JSON schema: a server's or a client's.

Rules. An invalid schema is an error when the tool is made. So is a `$ref` that points outside the
schema: nothing is ever fetched. Arguments are checked as they are: no default is filled in and
nothing is converted. The library `jsonschema` is an optional dependency, imported when a schema has
to be checked. Its messages are truncated, because they may quote a whole value.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from itertools import islice
from typing import Any, Final

import msgspec

from hookline._base.errors import ToolDefinitionError, ToolDenied
from hookline._base.frozen import thaw
from hookline._base.json import BadArguments, NotJson, clean_text, to_json_data
from hookline._base.run import is_run
from hookline._tools.bounded import DATA, TooLong, bounded, errors_of, without_dialects
from hookline._tools.callables import hints_of

MAX_ISSUES: Final = 20
_ISSUE: Final = 300  # characters


class ForeignSignature(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """The schema of a function, which is not derived from its signature."""

    schema: dict[str, Any]
    injected: str | None
    _argument: str
    _validator: Any

    @property
    def parameters(self) -> frozenset[str]:
        """The name of the parameter that gets the arguments."""
        return frozenset([self._argument])

    def bind(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Check the arguments and pass a plain copy as the function's one parameter."""
        try:
            plain = thaw(arguments)
        except RecursionError as error:
            raise BadArguments(("the arguments contain themselves; send finite data",)) from error
        if self._validator is not None:
            _check(self._validator, plain)
        return {self._argument: plain}


def _check(validator: Any, data: Any) -> None:
    try:
        issues = [_issue(error) for error in islice(errors_of(validator, data), MAX_ISSUES)]
    except TooLong:
        issues = ["checking the arguments against the tool's schema takes too long; send less"]
    except Exception as error:  # such as an invalid pattern, or a schema without end
        issues = [f"the arguments cannot be checked against the tool's schema ({_issue(error)})"]
    if issues:
        raise BadArguments(tuple(issues))


def checker(name: str, schema: dict[str, Any]) -> Callable[[Any], None]:
    """Make a check of data against a schema; raises ToolDefinitionError, the check BadArguments."""
    return partial(_check, _validator(schema, name))


def foreign_signature(
    name: str, schema: dict[str, Any], fn: Any, *, validate: bool
) -> ForeignSignature:
    """Make the signature; raises ToolDefinitionError for an invalid schema or function."""
    if not isinstance(schema, dict):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ToolDefinitionError(name, f"schema={schema!r} must be a dict with a JSON schema")
    try:
        data: Any = to_json_data({"type": "object", "properties": {}, **schema})
    except NotJson as error:
        raise ToolDefinitionError(name, f"its schema must be JSON data: {error}") from error
    if data["type"] != "object" or not isinstance(data["properties"], dict):
        raise ToolDefinitionError(
            name, f"schema={data!r} must describe an object and have 'properties'"
        )
    argument, injected = _parameters(fn, name)
    return ForeignSignature(
        schema=data,
        injected=injected,
        _argument=argument,
        _validator=_validator(data, name) if validate else None,
    )


def _parameters(fn: Any, tool: str) -> tuple[str, str | None]:
    """The name of the parameter for the arguments, and the name of the parameter for the run."""
    try:
        parameters = inspect.signature(fn).parameters
    except (TypeError, ValueError) as error:
        raise ToolDefinitionError(
            tool, f"{fn!r} must be a function that takes the arguments: async def call(arguments)"
        ) from error
    hints = hints_of(fn, parameters, tool)
    injected = [name for name in parameters if is_run(hints.get(name))]
    by_name = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    rest = [
        name
        for name, parameter in parameters.items()
        if name not in injected
        and (parameter.kind not in by_name or parameter.default is parameter.empty)
    ]
    if len(rest) != 1 or len(injected) > 1 or parameters[rest[0]].kind not in by_name:
        raise ToolDefinitionError(
            tool,
            f"its function must not have the parameters ({', '.join(parameters)}); give it one "
            "dict parameter, "
            "and the run if needed: async def call(arguments: dict[str, Any], run: Run)",
        )
    return rest[0], injected[0] if injected else None


def _validator(schema: dict[str, Any], tool: str) -> Any:
    """Compile a validator for the schema."""
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
    unresolvable = referencing.exceptions.Unresolvable
    draft = drafts.DRAFT202012
    dialect = jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator)
    registry = referencing.Registry()  # contains no other schemas, and fetches nothing
    try:
        dialect.check_schema(schema)
        resource = referencing.Resource.from_contents(schema, default_specification=draft)
        for ref, resolver in _references(schema, registry.resolver_with_root(resource), draft):
            try:
                resolver.lookup(ref)
            except (unresolvable, ValueError) as error:
                raise ToolDefinitionError(
                    tool,
                    f"its schema refers to {ref[:100]!r}, which is not in the schema, and "
                    "nothing is fetched; put the definition under '$defs'",
                ) from error
    except jsonschema.SchemaError as error:
        raise ToolDefinitionError(
            tool, f"schema= must be a valid JSON schema: {_issue(error)}"
        ) from error
    return bounded(dialect)(without_dialects(schema), registry=registry)


def _references(schema: Any, resolver: Any, draft: Any) -> Iterator[tuple[str, Any]]:
    """Yield each `$ref` of a schema, with its resolver."""
    if isinstance(schema, list):
        for value in schema:  # pyright: ignore[reportUnknownVariableType]
            yield from _references(value, resolver, draft)
    if not isinstance(schema, dict):
        return
    if isinstance(schema.get("$id"), str):  # pyright: ignore
        resolver = resolver.in_subresource(draft.create_resource(schema))
    for key, value in schema.items():  # pyright: ignore
        if key in ("$ref", "$dynamicRef") and isinstance(value, str):
            yield value, resolver
        elif key not in DATA:
            yield from _references(value, resolver, draft)


def _issue(error: Any) -> str:
    path = ".".join(str(key) for key in getattr(error, "absolute_path", ()))
    text = clean_text(getattr(error, "message", None) or type(error).__name__)
    if len(text) > _ISSUE:
        text = f"{text[: _ISSUE // 2]} … {text[-_ISSUE // 2 :]}"
    return f"{path[:100]}: {text}" if path else text


def client_function(name: str, fn: Callable[..., Any] | None, client: bool) -> Callable[..., Any]:
    """Return the function of a tool that a schema describes; a client's tool has no function."""
    if fn is None:
        if not client:
            raise ToolDefinitionError(
                name, f"fn={fn!r} must be a function; or pass client=True if a client runs the tool"
            )
        return _run_by_client
    if client:
        raise ToolDefinitionError(name, f"a client runs this tool (client=True); leave out {fn!r}")
    return fn


async def _run_by_client(arguments: dict[str, Any]) -> Any:
    raise ToolDenied(f"a client runs this tool with {arguments!r}; pass its result to resume()")


def check_client(name: str, timeout: float | None, injected: str | None) -> None:
    """Raise if a client's tool has options that only a local handler could use."""
    if timeout is not None:
        raise ToolDefinitionError(
            name, f"timeout={timeout!r} has no effect if a client runs the tool; leave it out"
        )
    if injected is not None:
        raise ToolDefinitionError(
            name,
            f"a tool that runs in the client gets no Run; leave out the parameter {injected!r}",
        )
