"""Tools: a function with a name, a description and a JSON schema made from its signature.

`@tool` makes one. What is wrong with the signature is an error there and not in the middle of a
chat. A tool is data: how calls become results is `_chat/batch.py`.
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Awaitable, Callable
from typing import Any, Generic, ParamSpec, Self, TypeVar, cast, overload

from hookline._base.errors import ToolArgumentsError, ToolDefinitionError, UnknownToolError
from hookline._base.run import is_run
from hookline._model.schema import BadArguments, Signature, inspect_callable

P = ParamSpec("P")
R = TypeVar("R")

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")


class Tool(Generic[P, R]):
    """Something a model can call. Made by `@tool`; calling it calls the function behind it.

    `parallel=False`: it runs alone. `idempotent`: a wrapper may run it again. `timeout` in seconds
    (None: the agent's limit, inf: none). `enabled()` is asked at every request and call. Raises
    ToolDefinitionError where a model could not call it.
    """

    __slots__ = (
        "__weakref__",
        "description",
        "enabled",
        "fn",
        "idempotent",
        "is_async",
        "name",
        "parallel",
        "parameters",
        "signature",
        "timeout",
    )

    def __init__(
        self,
        fn: Callable[P, R],
        *,
        name: str | None = None,
        description: str | None = None,
        parallel: bool = True,
        idempotent: bool = False,
        timeout: float | None = None,
        enabled: Callable[[], bool] | None = None,
        parameters: dict[str, Any] | None = None,
        signature: Signature | None = None,
    ) -> None:
        if not callable(fn):
            raise ToolDefinitionError(repr(name), f"{fn!r} must be a function, or be callable")
        self.name = name if name is not None else getattr(fn, "__name__", type(fn).__name__)
        """What the model calls it by."""
        if not _NAME.fullmatch(self.name):
            raise ToolDefinitionError(
                self.name, f"{self.name!r} must be 1 to 64 letters, digits, '_' or '-'; pass name="
            )
        if timeout is not None and not timeout > 0:
            raise ToolDefinitionError(self.name, f"timeout={timeout!r} must be above 0 seconds")
        if enabled is not None and is_async_callable(enabled):
            raise ToolDefinitionError(
                self.name, f"enabled={enabled!r} must not be async: it is asked at each call"
            )
        self.fn = fn
        """The function behind it."""
        if signature is None:
            signature = inspect_callable(fn, tool=self.name, skip=is_run)
        self.signature: Signature = signature
        """How arguments are bound to the function."""
        self.description = description if description is not None else self.signature.description
        """What the model is told of it."""
        self.parameters = parameters if parameters is not None else self.signature.schema
        """The JSON schema of its arguments."""
        self.parallel = parallel
        self.idempotent = idempotent
        self.timeout = timeout
        self.enabled = enabled
        self.is_async = is_async_callable(fn)
        """Whether the function is; a sync one runs in a thread."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.fn(*args, **kwargs)

    def bind(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """The typed keyword arguments; raises ToolArgumentsError with every issue."""
        try:
            return self.signature.bind(arguments)
        except BadArguments as bad:
            raise ToolArgumentsError(self.name, bad.issues) from None

    def replace(self, **changes: Any) -> Self:
        """A copy with some of name, description, parallel, idempotent, timeout, enabled changed."""
        options = {option: getattr(self, option) for option in _KEPT}
        return type(self)(self.fn, **{**options, **changes})

    def __repr__(self) -> str:
        return f"<Tool {self.name!r}>"


def unknown_tool(name: str) -> AnyTool:
    """What stands for a tool that does not exist, where a hook is shown one."""

    def unknown() -> None:
        raise UnknownToolError(name, ())

    tool: AnyTool = Tool(unknown, name="unknown", description="This tool does not exist.")
    tool.name = name
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
def tool(fn: Callable[P, R], /) -> Tool[P, R]: ...
@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    parallel: bool = True,
    idempotent: bool = False,
    timeout: float | None = None,
    enabled: Callable[[], bool] | None = None,
) -> Callable[[Callable[P, R]], Tool[P, R]]: ...
def tool(
    fn: Callable[P, R] | None = None, /, **options: Any
) -> Tool[P, R] | Callable[[Callable[P, R]], Tool[P, R]]:
    """Make a Tool from a function: its name, its docstring, its typed parameters.

    A parameter annotated `Run[Deps]` is given the run and is not part of the schema. Raises
    ToolDefinitionError when no schema can be made. A sync function runs in a thread.
    """
    if fn is not None:
        return Tool(fn)
    return lambda function: Tool(function, **options)


_KEPT = (
    "name",
    "description",
    "parallel",
    "idempotent",
    "timeout",
    "enabled",
    "parameters",
    "signature",
)
AnyTool = Tool[..., Any]
ToolLike = AnyTool | Callable[..., Any]


def as_tool(value: ToolLike) -> AnyTool:
    """The tool itself, or one made of a plain function."""
    return cast("AnyTool", value) if isinstance(value, Tool) else Tool(value)


Handler = Callable[..., Awaitable[Any]]
