"""Tools: functions with a name, a description and a JSON schema made from the signature.

`@tool` makes a tool. A problem with the signature is an error at that point and not in the middle
of a chat. A tool is data: `_chat/batch.py` runs calls and makes their results.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Generic,
    Literal,
    ParamSpec,
    Self,
    TypeAlias,
    TypeVar,
    cast,
    overload,
)

import msgspec

from hookline._base.errors import (
    ToolArgumentsError,
    ToolDefinitionError,
    ToolDenied,
    UnknownToolError,
)
from hookline._base.frozen import ReadOnly, thaw
from hookline._base.json import BadArguments, clean_text
from hookline._base.run import Run, is_run
from hookline._tools.callables import is_async_callable, takes_run
from hookline._tools.check import Check, read_check
from hookline._tools.foreign import (
    ForeignSignature,
    check_client,
    client_function,
    foreign_signature,
)
from hookline._tools.schema import Signature, inspect_callable

P = ParamSpec("P")
R = TypeVar("R")

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")


Enabled: TypeAlias = Callable[[], bool] | Callable[[Run[Any]], bool]
"""A function that returns whether a tool or a scope is on. It may also take no parameter."""


class StandInSignature(msgspec.Struct, frozen=True, eq=False):
    """The signature of a tool whose function another one stands for."""

    _original: Signature | ForeignSignature

    injected: ClassVar[str] = "run"
    parameters: ClassVar[frozenset[str]] = frozenset(["arguments"])

    @property
    def schema(self) -> dict[str, Any]:
        """The schema of the original."""
        return self._original.schema

    def bind(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Check the arguments as the original does, and pass them on as they are."""
        self._original.bind(arguments)
        return {"arguments": thaw(arguments)}


class Tool(ReadOnly, Generic[P, R]):
    """A tool that a model can call. If you call the tool yourself, it calls its function.

    With `parallel=False`, no other call runs at the same time. `idempotent` allows a wrapper to run
    the tool again. `timeout` is in seconds; with None, the agent's limit applies, and with inf,
    there is no limit. `enabled(run)` is called at every request and tool call. With `client=True`,
    a client runs the tool and posts the result. `check` finds out whether an earlier life of a
    durable chat has run a call. Raises ToolDefinitionError if a model cannot call the tool.
    """

    __slots__ = (
        "__weakref__",
        "check",
        "client",
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
    """The function that the tool calls."""
    name: str
    """The name that the model uses to call the tool."""
    description: str
    """The description that the model sees."""
    parameters: dict[str, Any]
    """The JSON schema of the tool's arguments."""
    parallel: bool
    """Whether other calls may run at the same time."""
    idempotent: bool
    """Whether a wrapper may run the tool again."""
    timeout: float | None
    """The time limit of a call in seconds; None for the agent's limit, inf for no limit."""
    enabled: Enabled | None
    """A function that returns whether the tool is offered and may run."""
    client: bool
    """True if a client runs the tool and posts the result; `fn` only describes the arguments."""
    check: Check | None
    """Finds out whether a call has run that an earlier life of a durable chat has begun."""
    is_on: Callable[[Run[Any]], object] | None
    """The `enabled` function in a form that always takes the run."""
    is_async: bool
    """Whether the function is async; a sync function runs in a thread."""
    signature: Signature | ForeignSignature | StandInSignature
    """Binds arguments to the parameters of the function."""
    leads: ClassVar[Literal["agent", "handoff"] | None] = None
    """Whether the tool leads to another agent: as a sub-agent, or by a handoff."""
    agent: ClassVar[Any] = None
    """The agent that the tool leads to; None for other tools."""

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
        client: bool = False,
        check: Callable[..., Any] | None = None,
    ) -> None:
        if not callable(fn):
            raise ToolDefinitionError(repr(name), f"{fn!r} must be a function or another callable")
        base_name: str = name if name is not None else getattr(fn, "__name__", type(fn).__name__)
        _check_name(base_name)  # before the errors that begin with the name
        signature = inspect_callable(fn, tool=base_name, skip=is_run)
        self._make(
            fn=fn,
            name=base_name,
            description=description if description is not None else signature.description,
            signature=signature,
            parallel=parallel,
            idempotent=idempotent,
            timeout=timeout,
            enabled=enabled,
            client=client,
            check=check,
        )

    def _make(
        self, *, signature: Signature | ForeignSignature | StandInSignature, **options: Any
    ) -> None:
        name, timeout, enabled = options["name"], options["timeout"], options["enabled"]
        _check_name(name)
        if timeout is not None and not timeout > 0:
            raise ToolDefinitionError(name, f"timeout={timeout!r} must be above 0 seconds")
        if enabled is not None and is_async_callable(enabled):
            raise ToolDefinitionError(
                name, f"enabled={enabled!r} must not be async; pass a sync function"
            )
        if options["client"]:
            check_client(name, timeout, signature.injected)
        options["check"] = read_check(parameters=signature.parameters, **options)
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
        fn: Callable[..., Any] | None = None,
        *,
        validate: bool = True,
        parallel: bool = True,
        idempotent: bool = False,
        timeout: float | None = None,
        enabled: Enabled | None = None,
        client: bool = False,
        check: Callable[..., Any] | None = None,
    ) -> AnyTool:
        """Make a tool from a JSON schema; `fn` gets the arguments as one dict.

        If `fn` has a parameter with the type hint `Run`, this parameter gets the run. The library
        jsonschema checks arguments against the schema, by default with Draft 2020-12. Arguments are
        not converted, and defaults are not filled in. With `validate=False`, `fn` must check the
        arguments itself. With `client=True`, there is no `fn`. Raises ToolDefinitionError if the
        schema is not valid, or has a `$ref` that points outside the schema.
        """
        _check_name(name)
        fn = client_function(name, fn, client)
        tool: Any = object.__new__(cls)  # __init__ would make the schema from the signature
        tool._make(
            fn=fn,
            name=name,
            description=clean_text(description),
            signature=foreign_signature(name, schema, fn, validate=validate),
            parallel=parallel,
            idempotent=idempotent,
            timeout=timeout,
            enabled=enabled,
            client=client,
            check=check,
        )
        return cast("AnyTool", tool)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.fn(*args, **kwargs)

    def bind(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Convert JSON to typed keyword arguments; raises ToolArgumentsError with every issue."""
        try:
            return self.signature.bind(arguments)
        except BadArguments as bad:
            raise ToolArgumentsError(self.name, bad.issues) from None

    if not TYPE_CHECKING:

        def replace(self, **changes: Any) -> Self:
            """Return a copy with changed options of `@tool`; TypeError for `client` and others."""
            unknown = changes.keys() - OPTIONS
            if unknown:
                raise TypeError(
                    f"a tool has no option {min(unknown)!r}; use {', '.join(sorted(OPTIONS))}"
                )
            copy = object.__new__(type(self))
            copy._make(
                fn=self.fn,
                signature=self.signature,
                client=self.client,
                **{**self.options, **changes},
            )
            return copy

    @property
    def options(self) -> dict[str, Any]:
        """The options that `replace` can change."""
        return {option: getattr(self, option) for option in OPTIONS}

    def with_handler(
        self, handler: Callable[[dict[str, Any], Run[Any]], Awaitable[Any]]
    ) -> AnyTool:
        """Return a copy that calls this async function, with the arguments as JSON and the run.

        To a model and to hooks, the copy is the same tool: its name, description and schema do not
        change, and arguments that do not fit are refused. hookline runs the copy also if a client
        runs the original. An earlier life of a durable chat is not checked.
        """
        signature = self.signature
        copy: Any = cast("Any", object.__new__(Tool))
        copy._make(
            fn=handler,
            signature=signature
            if isinstance(signature, StandInSignature)
            else StandInSignature(signature),
            client=False,
            **{**self.options, "check": None},
        )
        return cast("AnyTool", copy)

    def __repr__(self) -> str:
        return f"<Tool {self.name!r}>"

    if TYPE_CHECKING:  # by scripts/dev/generate.py

        def replace(
            self,
            *,
            name: str = ...,
            description: str = ...,
            parallel: bool = ...,
            idempotent: bool = ...,
            timeout: float | None = ...,
            enabled: Enabled | None = ...,
            check: Check | None = ...,
        ) -> Self: ...


class ProviderTool(Tool[..., Any]):
    """A tool that the provider itself runs, such as a web search.

    The tool is offered by name like any other tool, so hooks can remove the tool from a request.
    hookline never calls the tool. `entries` has the data to send to each provider. Raises
    ToolDefinitionError for a name that is not a valid tool name.
    """

    __slots__ = ("entries",)

    entries: dict[str, dict[str, Any]]
    """A dict of provider names to entries. Other providers do not see the tool."""

    def __init__(self, name: str, entries: dict[str, dict[str, Any]]) -> None:
        def run_elsewhere() -> None:
            raise ToolDenied(f"the provider runs {name!r} itself; do not call it; use its results")

        super().__init__(run_elsewhere, name=name, description="Run by the provider.")
        self._set(entries=entries)

    if not TYPE_CHECKING:

        def replace(self, **changes: Any) -> Self:
            """Return a changed copy with the same entries; refuses unknown options."""
            tool = super().replace(**changes)
            tool._set(entries=self.entries)
            return tool


class UnknownTool(Tool[..., Any]):
    """A placeholder for a tool that does not exist."""

    __slots__ = ()


def _check_name(name: object) -> None:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ToolDefinitionError(
            str(name), f"{name!r} must be 1 to 64 letters, digits, '_' or '-'; pass name="
        )


def with_run(fn: Callable[..., Any] | None) -> Callable[[Run[Any]], Any] | None:
    """Return a function that takes the run, even if the original does not."""
    return fn if fn is None or takes_run(fn) else lambda run: fn()


def unknown_tool(name: str) -> AnyTool:
    """Make a placeholder for a tool that does not exist, for hooks that need a tool."""

    def unknown() -> None:
        raise UnknownToolError(name, ())

    tool: AnyTool = UnknownTool(unknown, name="unknown", description="This tool does not exist.")
    tool._set(name=name)  # pyright: ignore[reportPrivateUsage] - may be an invalid tool name
    return tool


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
    client: bool = False,
    check: Callable[..., Any] | None = None,
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
    client: bool = False,
    check: Callable[..., Any] | None = None,
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
    client: bool = False,
    check: Callable[..., Any] | None = None,
) -> Tool[P, R] | Callable[[Callable[P, R]], Tool[P, R]]:
    """Make a Tool from a function's name, docstring and typed parameters.

    A parameter with the type hint `Run[Deps]` gets the run and is not part of the schema. A sync
    function runs in a thread. With `client=True`, the function only describes the tool and is never
    called. The chat ends with `stop_reason="client_tool"`, and `resume()` continues with the result
    from the client.

    If a worker dies during a call in a durable chat, the next worker asks `check`, a function that
    takes any of the tool's parameters, and a `Run` if needed. It returns the result of the call if
    the call has happened, `NotRun()` if it has not, and None if it cannot tell. Raises
    ToolDefinitionError if no schema can be made, or if `check` has other parameters.
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
            client=client,
            check=check,
        )

    return make if fn is None else make(fn)


OPTIONS = frozenset(
    ["name", "description", "parallel", "idempotent", "timeout", "enabled", "check"]
)
AnyTool = Tool[..., Any]
ToolLike = AnyTool | Callable[..., Any]
"""A tool, or a function to make a tool from."""


def as_tool(value: ToolLike) -> AnyTool:
    """Return the tool itself, or make one from a plain function."""
    return cast("AnyTool", value) if isinstance(value, Tool) else Tool(value)
