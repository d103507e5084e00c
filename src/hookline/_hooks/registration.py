"""Registrations: the checked options of a hook, and the disposer that removes it.

The call rules use `Hook`, `add_hook` takes the options in `HookOptions`, and `hooks()` returns
`HookInfo`. Definitions are in `declared.py`, and `bus.py` stores the registrations. While a plugin
is being set up, each new disposer is noted for the plugin, even if other code makes the
registration (`plugins.py`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from contextvars import ContextVar
from inspect import signature, unwrap
from typing import Any, Final, Literal, Protocol, Self

import msgspec

from hookline._base.errors import HookOptionError, closest, did_you_mean
from hookline._base.messages import Data
from hookline._base.patterns import NamePatterns
from hookline._hooks.option_checks import fill_in, problem_of
from hookline._hooks.points import Kind, PointSpec, spec_of
from hookline._tools.callables import is_async_callable

OnError = Literal["raise", "log", "deny"]
"""The effect of an exception in a hook."""


class Owner(Protocol):
    """Owns the hooks that are added while it is active: sets their origin, and removes them."""

    origin: str

    def note(self, dispose: Callable[[], object], /) -> None: ...


OWNER: Final[ContextVar[Owner | None]] = ContextVar("hookline.plugin", default=None)


class HookOptions(Data, frozen=True, kw_only=True):
    """The options of a hook, as in `add_hook` and `define_hook`."""

    name: str
    """The hook's name in errors and traces; by default the name of the function."""
    priority: int = 0
    """Hooks with a higher priority run first. Hooks of equal priority run in the order of
    registration."""
    tools: tuple[str, ...] | None = None
    """The names or patterns of the tools for which the hook runs; None means all tools. Only for
    hooks at points of a tool call."""
    timeout: float | None = None
    """The time limit in seconds; None means no limit. Only for async hooks. A hook that takes
    longer raises HookTimeoutError."""
    on_error: OnError = "raise"
    """The effect of an exception in the hook. "raise" ends the chat. "log" continues without the
    hook's return value. "deny" refuses the call, and is allowed only at preToolCall."""
    inherit: bool | None = None
    """Whether the hook also runs in the chats of sub-agents. By default, only guards do."""
    guard: bool = False
    """Whether the hook is a guard: it is asked again before the tool runs if the call has changed
    or has waited since the guard saw it. Only at preToolCall. A hook that is `required` or has
    `on_error="deny"` is a guard too."""
    id: str | None = None
    """The id of the definition, for the options `hooks=` and `only_hooks=` of a chat."""
    required: bool | None = None
    """Whether the hook also runs in a chat with `only_hooks=`. By default, only guards do."""
    withhold: bool = False
    """Whether an answer is shown only after the hooks at onResponse have accepted it."""
    keeps_deltas: bool = False
    """A promise: what `onDelta` has let pass is what the hook leaves in the answer. Other hooks at
    onResponse and preMessage delay the text for clients that cannot withdraw it."""
    early: bool = False
    """Whether the hook also runs when a message is sent, before the message is shown as queued. The
    hook must be a sync function that only changes the message. Only at preSteer."""
    observes: bool = False
    """A promise: the wrapper changes nothing. Copies made by `agent.twin()` leave it out, as they
    leave out observers. Only at the points of wrappers."""


class HookInfo(HookOptions, frozen=True, kw_only=True):
    """One registered hook, as `hooks()` lists it."""

    point: str
    """The point's name."""
    origin: str
    """The source of the hook: "agent", "add_hook", "global", a plugin or a file."""
    kind: Kind = "observer"
    """The kind of the hook's point: observer, interceptor or wrapper."""
    is_async: bool = False
    """Whether the hook's function is a coroutine function."""
    where: str | None = None
    """The `module:line` of the hook's function, if known."""
    unmatched: tuple[str, ...] = ()
    """The entries of `tools` that match none of the agent's current tools."""
    off: str | None = None
    """The option of the agent that leaves the hook out: `bus=NullBus()` or `global_hooks=False`;
    None if the hook runs."""


class Hook:
    """One registration. `alive` is False once it has been removed."""

    __slots__ = (
        "alive",
        "declared",
        "definition",
        "fn",
        "guard",
        "is_async",
        "log_keys",
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
        self.name, self.timeout = options.name, options.timeout
        self.tools = None if options.tools is None else NamePatterns(options.tools)
        self.origin = origin
        self.definition = definition  # the HookDef that it was made from
        self.declared = False  # True if made from `hooks=`: `only_hooks=` of a chat replaces it
        self.alive = True
        self.log_keys: set[str] = set()  # what was logged about it, since each is logged once
        self.is_async = is_async_callable(fn)
        self.guard = options.guard  # read before each tool call

    def info(self) -> HookInfo:
        """Return the registration as `hooks()` shows it."""
        options = msgspec.structs.asdict(self.options)
        options["inherit"] = bool(options["inherit"])
        return HookInfo(
            **options,
            point=self.spec.name,
            origin=self.origin,
            kind=self.spec.kind,
            is_async=self.is_async,
            where=_where(self.fn),
        )


class Disposer:
    """Removes one registration. Call it, once or repeatedly, or use it as a context manager."""

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


_ADD_OPTIONS: Final = (
    *("priority", "name", "tools", "timeout", "on_error", "inherit", "guard"),
    *("keeps_deltas", "early", "observes"),
)
_DECLARED: Final = HookOptions.__struct_fields__


def make_hook(
    point: object, fn: Callable[..., Any], options: Mapping[str, Any], origin: str
) -> Hook:
    """Make a checked registration, not yet on a bus; its origin is the plugin being set up."""
    spec, values = check_hook(point, fn, options, _ADD_OPTIONS)
    check_parameters(spec, fn, values.name)
    owner = OWNER.get()
    if owner is not None and origin == "add_hook":  # a global hook is shown as global
        origin = owner.origin
    return Hook(spec, fn, values, origin)


def check_hook(
    point: object, fn: Any, keywords: Mapping[str, Any], names: Iterable[str] = _DECLARED
) -> tuple[PointSpec, HookOptions]:
    """Check a hook and its options; raises HookOptionError and UnknownHookError."""
    spec = check_names(point, keywords, names)
    name = keywords.get("name") or _name_of(fn)
    options: dict[str, Any] = {**keywords, "name": name}
    if isinstance(options.get("tools"), Iterable) and not isinstance(
        options["tools"], (str, bytes)
    ):
        options["tools"] = tuple(options["tools"])  # an iterator can be read only once
    fill_in(spec, options)
    problem = problem_of(spec, fn, **options)
    if problem:
        raise HookOptionError(spec.name, name, f"{problem}")
    if isinstance(getattr(fn, "options", None), HookOptions):  # they would be lost
        advice = "pass it to hooks= or agent.use() instead"
        raise HookOptionError(spec.name, name, f"{fn!r} has options of its own; {advice}")
    if options.get("tools") is not None:
        options["tools"] = tuple(sorted(set(options["tools"])))
    return spec, HookOptions(**options)


def check_names(
    point: object, options: Iterable[str], names: Iterable[str] = _ADD_OPTIONS
) -> PointSpec:
    """Check that all options are known; returns the point's spec."""
    spec = spec_of(point)
    for name in sorted(set(options) - set(names)):
        known_names = ", ".join(sorted(names))
        raise HookOptionError(
            spec.name,
            "?",
            f"there is no option {name!r}{did_you_mean(closest(name, names))}; "
            f"use one of: {known_names}",
        )
    return spec


def check_parameters(spec: PointSpec, fn: Callable[..., Any], name: str) -> None:
    """Check that a function can be called with the arguments of the point."""
    parameters = ("ctx", "proceed") if spec.kind == "wrapper" else ("ctx",)
    try:
        signature(fn).bind(*parameters)
    except TypeError as exc:
        problem = f"it must take ({', '.join(parameters)}): {exc}"
        raise HookOptionError(spec.name, name, problem) from None
    except ValueError:
        return  # implemented in C: the parameters are unknown


def _without_partials(hook: Any) -> Any:
    while isinstance(hook, functools.partial):
        hook = hook.func
    return hook


def _name_of(hook: Any) -> str:
    hook = _without_partials(hook)
    return str(getattr(hook, "__qualname__", None) or type(hook).__qualname__)


def _where(hook: Any) -> str | None:
    """Return the `module:line` of a hook; None for functions implemented in C."""
    try:
        hook = unwrap(_without_partials(hook))
    except ValueError:  # the function wraps itself
        return None
    for function in (hook, hook.__call__):
        code = getattr(function, "__code__", None)
        if code is not None:
            return f"{function.__module__}:{code.co_firstlineno}"
    return None
