"""One registration: the options of a hook, checked, and the disposer that removes it.

`Hook` is what the call rules see, `HookOptions` what `add_hook` was given, `HookInfo` how `hooks()`
lists it. Hooks that are declared and registered later are `declared.py`; where hooks are kept is
`bus.py`. While a plugin is set up, each new disposer is noted for it, whoever made the registration
(`plugins.py`).
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Mapping
from contextvars import ContextVar
from inspect import isasyncgenfunction, isgeneratorfunction, signature, unwrap
from typing import Any, Final, Literal, Protocol, Self

import msgspec

from hookline._base.errors import HookOptionError, closest, did_you_mean
from hookline._base.messages import Data
from hookline._hooks.points import Kind, PointSpec, spec_of
from hookline._model.tool import is_async_callable

OnError = Literal["raise", "log", "deny"]
_ID = re.compile(r"[a-z][a-z0-9_]*")


class Owner(Protocol):
    """Brings hooks: they bear its name, and it takes them back."""

    origin: str

    def note(self, dispose: Callable[[], object], /) -> None: ...


OWNER: Final[ContextVar[Owner | None]] = ContextVar("hookline.plugin", default=None)


class HookOptions(Data, frozen=True, kw_only=True):
    """The options of a hook, as `add_hook` and `define_hook` take them."""

    name: str
    """The hook's name: the function's, unless `name=` was given."""
    priority: int = 0
    """Higher runs first."""
    tools: tuple[str, ...] | None = None
    """The tools that it is limited to, None for all."""
    timeout: float | None = None
    """Seconds, None for no limit."""
    on_error: OnError = "raise"
    """What an exception does."""
    inherit: bool = False
    """True if it also runs in the chats of sub-agents."""
    id: str | None = None
    """What a definition may be named by."""
    required: bool = False
    """True if it also runs in a chat with `only_hooks=`."""
    withhold: bool = False
    """True if an answer is shown only once it has passed the hooks at onResponse."""


class HookInfo(HookOptions, frozen=True, kw_only=True):
    """One registration, as `hooks()` lists it."""

    point: str
    """The point's name."""
    origin: str
    """Who brought it: "agent", "add_hook", "global", a plugin, a file."""
    kind: Kind = "observer"
    """What its point is: observer, interceptor or wrapper."""
    is_async: bool = False
    """Whether its function is a coroutine function."""
    where: str | None = None
    """module:line of its function, where it has one."""


class Hook:
    """One registration. `alive` is False once its disposer has returned."""

    __slots__ = (
        "alive",
        "declared",
        "definition",
        "fn",
        "is_async",
        "name",
        "options",
        "origin",
        "spec",
        "timeout",
        "tools",
    )

    def __init__(
        self,
        spec: PointSpec,
        fn: Callable[..., Any],
        options: HookOptions,
        origin: str,
        definition: object = None,
    ) -> None:
        self.spec = spec
        self.fn = fn
        self.options = options
        self.name, self.tools, self.timeout = options.name, options.tools, options.timeout
        self.origin = origin
        self.definition = definition  # the HookDef that it was made of
        self.declared = False  # by Agent(hooks=): `only_hooks=` of a chat replaces it
        self.alive = True
        self.is_async = is_async_callable(fn)

    def info(self) -> HookInfo:
        """The registration as `hooks()` lists it."""
        return HookInfo(
            **msgspec.structs.asdict(self.options),
            point=self.spec.name,
            origin=self.origin,
            kind=self.spec.kind,
            is_async=self.is_async,
            where=_where(self.fn),
        )


class Disposer:
    """Removes one registration. Twice is harmless; it also works in a `with`."""

    __slots__ = ("_hook", "_remove")

    def __init__(self, remove: Callable[[Hook], None], hook: Hook) -> None:
        self._remove = remove
        self._hook = hook
        owner = OWNER.get()
        if owner is not None:
            owner.note(self)

    def __call__(self) -> None:
        self._remove(self._hook)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self()


_ADDED: Final = ("priority", "name", "tools", "timeout", "on_error", "inherit")
_DECLARED: Final = (*_ADDED, "id", "required", "withhold")


def make_hook(
    point: object, fn: Callable[..., Any], options: Mapping[str, Any], origin: str
) -> Hook:
    """A checked registration, not yet on a bus; a plugin that is being set up is its origin."""
    spec, checked = check_hook(point, fn, options, _ADDED)
    check_parameters(spec, fn, checked.name)
    owner = OWNER.get()
    if owner is not None and origin == "add_hook":
        origin = owner.origin
    return Hook(spec, fn, checked, origin)


def check_hook(
    point: object, fn: Any, given: Mapping[str, Any], known: Iterable[str] = _DECLARED
) -> tuple[PointSpec, HookOptions]:
    """The point and the options of a hook; raises HookOptionError and UnknownHookError."""
    spec = check_names(point, given, known)
    name = given.get("name") or _name_of(fn)
    options: dict[str, Any] = {**given, "name": name}
    problem = _problem(spec, fn, **options)
    if problem:
        raise HookOptionError(spec.name, name, problem)
    if options.get("tools") is not None:
        options["tools"] = tuple(sorted(set(options["tools"])))
    return spec, HookOptions(**options)


def check_names(point: object, given: Iterable[str], known: Iterable[str] = _ADDED) -> PointSpec:
    """Refuse options of other names; gives the point's spec."""
    spec = spec_of(point)
    for name in sorted(set(given) - set(known)):
        there = ", ".join(sorted(known))
        raise HookOptionError(
            spec.name,
            "?",
            f"there is no option {name!r}{did_you_mean(closest(name, known))}; use one of: {there}",
        )
    return spec


def check_parameters(spec: PointSpec, fn: Callable[..., Any], name: str) -> None:
    """Refuse a function that cannot be called with what the point gives."""
    given = ("ctx", "proceed") if spec.kind == "wrapper" else ("ctx",)
    try:
        signature(fn).bind(*given)
    except TypeError as exc:
        problem = f"it must take ({', '.join(given)}): {exc}"
        raise HookOptionError(spec.name, name, problem) from None
    except ValueError:
        return  # implemented in C: it does not say what it takes


def _name_of(hook: Any) -> str:
    while isinstance(hook, functools.partial):
        hook = hook.func
    return str(getattr(hook, "__qualname__", None) or type(hook).__qualname__)


def _problem(
    spec: PointSpec,
    hook: object,
    *,
    name: object,
    priority: object = 0,
    tools: object = None,
    timeout: object = None,
    on_error: object = "raise",
    inherit: object = False,
    id: object = None,
    required: object = False,
    withhold: object = False,
) -> str | None:
    """The first thing that is wrong with a hook and its options."""
    if not callable(hook):
        return f"{hook!r} must be a function, or be callable"
    if isgeneratorfunction(hook) or isasyncgenfunction(hook):
        return "a function with `yield` does nothing when it is called: return the value instead"
    if not isinstance(name, str):
        return f"name={name!r} must be a str"
    if not isinstance(priority, int):
        return f"priority={priority!r} must be an int"
    if id is not None and not (isinstance(id, str) and _ID.fullmatch(id)):
        return (
            f"the id {id!r} must be snake_case: lowercase letters, digits and '_', a letter first"
        )
    for option, value in (("inherit", inherit), ("required", required), ("withhold", withhold)):
        if not isinstance(value, bool):
            return f"{option}={value!r} must be True or False"
    if spec.kind == "wrapper" and not is_async_callable(hook):
        return "a wrapper must be an async function: async def wrapper(ctx, proceed)"
    return _problem_at(spec, hook, tools, timeout, on_error)


def _problem_at(
    spec: PointSpec, hook: object, tools: object, timeout: object, on_error: object
) -> str | None:
    """What is wrong with the options that depend on the point."""
    if tools is not None and not spec.at_tool:
        return f"tools={tools!r} is for the points of a tool call only; leave it out"
    if tools is not None and (not isinstance(tools, Iterable) or isinstance(tools, (str, bytes))):
        return f"tools={tools!r} must be a list of names"
    if on_error not in ("raise", "log", "deny"):
        return f"on_error={on_error!r} must be 'raise', 'log' or 'deny'"
    if on_error == "deny" and spec.name != "preToolCall":
        return "on_error='deny' is for preToolCall only; use 'raise' or 'log'"
    if timeout is not None:
        if not isinstance(timeout, (int, float)) or not timeout > 0:
            return f"timeout={timeout!r} must be above 0 seconds"
        if not is_async_callable(hook):
            return f"timeout={timeout!r} needs an async hook: a sync one cannot be interrupted"
    return None


def _where(hook: Any) -> str | None:
    """module:line of a hook; None for functions implemented in C."""
    while isinstance(hook, functools.partial):
        hook = hook.func
    try:
        hook = unwrap(hook)
    except ValueError:  # wraps itself
        return None
    for found in (hook, hook.__call__):
        code = getattr(found, "__code__", None)
        if code is not None:
            return f"{found.__module__}:{code.co_firstlineno}"
    return None
