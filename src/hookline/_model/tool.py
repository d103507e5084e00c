"""Tools: a function with a name, a description and a JSON schema made from its signature.

`@tool` makes one. What is wrong with the signature is an error there and not in the middle of a
chat. A tool is data: how calls become results is `_chat/batch.py`.
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Awaitable, Callable
from typing import Any, Generic, ParamSpec, Self, TypeAlias, TypeVar, cast, overload

from hookline._base.errors import (
    ToolArgumentsError,
    ToolDefinitionError,
    ToolDenied,
    UnknownToolError,
)
from hookline._base.frozen import ReadOnly
from hookline._base.json import clean_text
from hookline._base.run import Run, is_run
from hookline._model.foreign import ForeignSignature, foreign_signature, takes_run
from hookline._model.schema import BadArguments, Signature, inspect_callable

P = ParamSpec("P")
R = TypeVar("R")

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")


Enabled: TypeAlias = Callable[[], bool] | Callable[[Run[Any]], bool]
"""Whether a tool or a scope is on; the run may be left out."""


class Tool(ReadOnly, Generic[P, R]):
    """Something a model can call. Made by `@tool`; calling it calls the function behind it.

    `parallel=False`: it runs alone. `idempotent`: a wrapper may run it again. `timeout` in seconds
    (None: the agent's limit, inf: none). `enabled(run)` is asked at every request and call. Raises
    ToolDefinitionError where a model could not call it.
    """

    __slots__ = (
        "__weakref__",
        "description",
        "enabled",
        "fn",
        "idempotent",
        "is_async",
        "is_on",
        "name",
        "parallel",
        "parameters",
        "signature",
        "timeout",
    )

    fn: Callable[P, R]
    """The function behind it."""
    name: str
    """The name that the model calls it by."""
    description: str
    """The text that tells the model of it."""
    parameters: dict[str, Any]
    """The JSON schema of its arguments."""
    parallel: bool
    """False: it runs alone."""
    idempotent: bool
    """True: a wrapper may run it again."""
    timeout: float | None
    """Seconds; None for the limit of the agent, inf for none."""
    enabled: Enabled | None
    """Decides whether the tool is offered and may run."""
    is_on: Callable[[Run[Any]], object] | None
    """`enabled`, asked with the run whether or not it takes one."""
    is_async: bool
    """Whether the function is; a sync one runs in a thread."""
    signature: Signature | ForeignSignature
    """How arguments are bound to the function."""

    def __init__(
        self,
        fn: Callable[P, R],
        *,
        name: str | None = None,
        description: str | None = None,
        parallel: bool = True,
        idempotent: bool = False,
        timeout: float | None = None,
        enabled: Enabled | None = None,
    ) -> None:
        if not callable(fn):
            raise ToolDefinitionError(repr(name), f"{fn!r} must be a function, or be callable")
        known: str = name if name is not None else getattr(fn, "__name__", type(fn).__name__)
        _check_name(known)
        signature = inspect_callable(fn, tool=known, skip=is_run)
        self._make(
            fn=fn,
            name=known,
            description=description if description is not None else signature.description,
            signature=signature,
            parallel=parallel,
            idempotent=idempotent,
            timeout=timeout,
            enabled=enabled,
        )

    def _make(self, *, signature: Signature | ForeignSignature, **options: Any) -> None:
        name, timeout, enabled = options["name"], options["timeout"], options["enabled"]
        _check_name(name)
        if timeout is not None and not timeout > 0:
            raise ToolDefinitionError(name, f"timeout={timeout!r} must be above 0 seconds")
        if enabled is not None and is_async_callable(enabled):
            raise ToolDefinitionError(
                name, f"enabled={enabled!r} must not be async: it is asked at each call"
            )
        self._set(
            **options,
            signature=signature,
            parameters=signature.schema,
            is_on=with_run(enabled),
            is_async=is_async_callable(options["fn"]),
        )

    @classmethod
    def from_schema(
        cls,
        name: str,
        description: str,
        schema: dict[str, Any],
        fn: Callable[..., Any],
        *,
        validate: bool = True,
        parallel: bool = True,
        idempotent: bool = False,
        timeout: float | None = None,
        enabled: Enabled | None = None,
    ) -> AnyTool:
        """A tool that a JSON schema describes: `fn` gets the arguments as one dict.

        It gets the run too where it has a parameter annotated `Run`. Arguments are checked against
        the schema (Draft 2020-12 unless `$schema` says otherwise) with the library jsonschema, and
        neither converted nor completed; `validate=False` leaves the check to `fn`. Raises
        ToolDefinitionError for what is not a schema, and for a `$ref` that leads out of it.
        """
        _check_name(name)
        made: Any = object.__new__(cls)
        made._make(
            fn=fn,
            name=name,
            description=clean_text(description),
            signature=foreign_signature(name, description, schema, fn, validate=validate),
            parallel=parallel,
            idempotent=idempotent,
            timeout=timeout,
            enabled=enabled,
        )
        return cast("AnyTool", made)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.fn(*args, **kwargs)

    def bind(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """The typed keyword arguments; raises ToolArgumentsError with every issue."""
        try:
            return self.signature.bind(arguments)
        except BadArguments as bad:
            raise ToolArgumentsError(self.name, bad.issues) from None

    def replace(self, **changes: Any) -> Self:
        """A copy with some of name, description, parallel, idempotent, timeout, enabled changed.

        Raises TypeError for any other option.
        """
        unknown = changes.keys() - _KEPT
        if unknown:
            raise TypeError(
                f"a tool has no option {min(unknown)!r}; use {', '.join(sorted(_KEPT))}"
            )
        options = {option: getattr(self, option) for option in _KEPT}
        made = object.__new__(type(self))
        made._make(fn=self.fn, signature=self.signature, **{**options, **changes})
        return made

    def __repr__(self) -> str:
        return f"<Tool {self.name!r}>"


class ProviderTool(Tool[..., Any]):
    """A tool that a provider runs itself, such as its web search.

    It is offered by its name like any other, so that hooks can take it out of a request, and it is
    never called here. `entries` holds what each provider is told of it. Raises ToolDefinitionError
    for a name that no tool can have.
    """

    __slots__ = ("entries",)

    entries: dict[str, dict[str, Any]]
    """By the name of the provider; others are not told of the tool."""

    def __init__(self, name: str, entries: dict[str, dict[str, Any]]) -> None:
        def run_elsewhere() -> None:
            raise ToolDenied(
                f"the provider runs {name!r} itself; do not call it, use what it answers"
            )

        super().__init__(run_elsewhere, name=name, description="Run by the provider.")
        self._set(entries=entries)

    def replace(self, **changes: Any) -> Self:
        """A copy with options of a tool changed; its entries stay. Raises TypeError for others."""
        made = super().replace(**changes)
        made._set(entries=self.entries)
        return made


def _check_name(name: object) -> None:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ToolDefinitionError(
            str(name), f"{name!r} must be 1 to 64 letters, digits, '_' or '-'; pass name="
        )


def with_run(enabled: Enabled | None) -> Callable[[Run[Any]], object] | None:
    """The predicate as one that is given the run, whether or not it takes it."""
    asked: Any = enabled
    return asked if asked is None or takes_run(asked) else lambda run: asked()


def unknown_tool(name: str) -> AnyTool:
    """What stands for a tool that does not exist, where a hook is shown one."""

    def unknown() -> None:
        raise UnknownToolError(name, ())

    tool: AnyTool = Tool(unknown, name="unknown", description="This tool does not exist.")
    tool._set(name=name)  # pyright: ignore[reportPrivateUsage] - which may be no tool's name
    return tool


def is_async_callable(fn: object) -> bool:
    """Whether calling it gives a coroutine."""
    target: Any = fn
    while isinstance(target, functools.partial):
        target = target.func
    return inspect.iscoroutinefunction(target) or inspect.iscoroutinefunction(
        getattr(target, "__call__", None)  # noqa: B004 - the method itself is looked at
    )


@overload
def tool(
    fn: Callable[P, R],
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    parallel: bool = True,
    idempotent: bool = False,
    timeout: float | None = None,
    enabled: Enabled | None = None,
) -> Tool[P, R]: ...
@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    parallel: bool = True,
    idempotent: bool = False,
    timeout: float | None = None,
    enabled: Enabled | None = None,
) -> Callable[[Callable[P, R]], Tool[P, R]]: ...
def tool(
    fn: Callable[P, R] | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    parallel: bool = True,
    idempotent: bool = False,
    timeout: float | None = None,
    enabled: Enabled | None = None,
) -> Tool[P, R] | Callable[[Callable[P, R]], Tool[P, R]]:
    """Make a Tool from a function: its name, its docstring, its typed parameters.

    A parameter annotated `Run[Deps]` is given the run and is not part of the schema. Raises
    ToolDefinitionError when no schema can be made. A sync function runs in a thread.
    """

    def make(function: Callable[P, R]) -> Tool[P, R]:
        return Tool(
            function,
            name=name,
            description=description,
            parallel=parallel,
            idempotent=idempotent,
            timeout=timeout,
            enabled=enabled,
        )

    return make if fn is None else make(fn)


_KEPT = frozenset(["name", "description", "parallel", "idempotent", "timeout", "enabled"])
AnyTool = Tool[..., Any]
ToolLike = AnyTool | Callable[..., Any]


def as_tool(value: ToolLike) -> AnyTool:
    """The tool itself, or one made of a plain function."""
    return cast("AnyTool", value) if isinstance(value, Tool) else Tool(value)


Handler = Callable[..., Awaitable[Any]]
