"""One registration: what `add_hook` was told, checked, and the disposer that takes it back.

`Hook` is what the call rules see, `HookDef` a hook that is declared and registered later,
`HookInfo` how a registration is listed. Where hooks are kept is `bus.py`. While a plugin is being
set up, each new disposer is noted for it, whoever made the registration (`plugins.py`). It is long
because each option is explained where it is checked.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextvars import ContextVar
from inspect import isasyncgenfunction, isgeneratorfunction, unwrap
from typing import Any, Final, Literal, Protocol, Self, TypeAlias, cast

from hookline._base.errors import HookOptionError, UnknownHookError, UsageError
from hookline._base.messages import Data
from hookline._hooks.points import Head, Kind, head_of
from hookline._model.tool import is_async_callable

OnError = Literal["raise", "log", "deny"]
_ID = re.compile(r"[a-z][a-z0-9_]*")


class Owner(Protocol):
    """Somebody who brings hooks: they bear its name, and it takes them back."""

    origin: str

    def note(self, dispose: Callable[[], object], /) -> None: ...


OWNER: Final[ContextVar[Owner | None]] = ContextVar("hookline.plugin", default=None)


class Hook:
    """One registration. `alive` is False once its disposer has returned."""

    __slots__ = (
        "alive",
        "declared",
        "definition",
        "fn",
        "head",
        "id",
        "inherit",
        "is_async",
        "name",
        "on_error",
        "origin",
        "priority",
        "required",
        "timeout",
        "tools",
    )

    def __init__(
        self,
        head: Head,
        fn: Callable[..., Any],
        *,
        name: str,
        priority: int,
        tools: frozenset[str] | None,
        timeout: float | None,
        on_error: OnError,
        inherit: bool,
        origin: str,
    ) -> None:
        self.head = head
        self.fn = fn
        self.name = name
        self.priority = priority
        self.tools = tools
        self.timeout = timeout
        self.on_error: OnError = on_error
        self.inherit = inherit
        self.origin = origin
        self.id: str | None = None
        self.required = False
        self.declared = False  # by Agent(hooks=): `only_hooks=` of a chat replaces it
        self.definition: HookDef | None = None
        self.alive = True
        self.is_async = is_async_callable(fn)


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


class HookInfo(Data, frozen=True, kw_only=True):
    """One registration, as `hooks()` lists it."""

    point: str
    """The point's name."""
    name: str
    """The hook's name: the function's, unless `name=` was given."""
    priority: int
    """Higher runs first."""
    origin: str
    """Who brought it: "agent", "add_hook", a plugin, a file."""
    id: str | None = None
    """What a definition may be named by."""
    required: bool = False
    """True if it also runs in a chat with `only_hooks=`."""
    on_error: OnError = "raise"
    """What a throw does."""
    timeout: float | None = None
    """Seconds, None for no limit."""
    tools: tuple[str, ...] | None = None
    """The tools that it is limited to, None for all."""
    inherit: bool = False
    """Whether it also hears the chats of sub-agents."""
    kind: Kind = "observer"
    """What its point is: observer, interceptor or wrapper."""
    is_async: bool = False
    """Whether its function is a coroutine function."""
    where: str | None = None
    """module:line of its function, where it has one."""


class HookDef:
    """A hook to be registered later: for `Agent(hooks=[...])`, plugins and files of hooks.

    With an `id` it can be named by it; `required` hooks also run in a chat with `only_hooks=`.
    `origin` says where it was found, for a hook that comes out of a file. Calling it calls `fn`.
    `point` and `options` are what `add_hook` will be given. Raises HookOptionError for an id or an
    option that does not fit, and UnknownHookError.
    """

    __slots__ = ("fn", "id", "options", "origin", "point", "required")

    def __init__(
        self,
        point: object,
        fn: Callable[..., Any],
        *,
        id: str | None = None,
        required: bool = False,
        **options: Any,
    ) -> None:
        if id is not None and not _ID.fullmatch(id):
            raise HookOptionError(
                str(point),
                id,
                f"the id {id!r} must be snake_case: lowercase letters, digits and '_', a letter "
                "first",
            )
        check_options(point, options)
        make_hook(point, fn, **options)  # what else is wrong is said here
        self.point = point
        self.fn = fn
        self.id = id
        self.required = required
        self.options = options
        self.origin: str | None = None

    def __call__(self, *args: Any) -> Any:
        return self.fn(*args)

    def __repr__(self) -> str:
        return f"<HookDef {self.id or getattr(self.fn, '__qualname__', '?')!r} at {self.point}>"


HookLike: TypeAlias = "HookDef | str | Sequence[HookLike]"
HooksArgument: TypeAlias = "Mapping[Any, Any] | Sequence[HookLike]"


def make_hook(
    point: object,
    hook: Callable[..., Any],
    *,
    priority: int = 0,
    name: str | None = None,
    tools: Iterable[str] | None = None,
    timeout: float | None = None,
    on_error: OnError = "raise",
    inherit: bool = False,
    origin: str = "",
) -> Hook:
    """A checked registration, not yet on a bus."""
    head = head_of(point)
    name = name or _name_of(hook)
    problem = _problem(head, hook, priority, tools, timeout, on_error)
    if problem:
        raise HookOptionError(head.name, name, problem)
    owner = OWNER.get()
    if owner is not None and origin == "add_hook":
        origin = owner.origin
    return Hook(
        head,
        hook,
        name=name,
        priority=priority,
        tools=None if tools is None else frozenset(tools),
        timeout=timeout,
        on_error=on_error,
        inherit=inherit,
        origin=origin,
    )


def check_options(point: object, options: Iterable[str], own: Iterable[str] = ()) -> Head:
    """Refuse options that there are not; gives the point's head."""
    head = head_of(point)
    known = {*_OPTIONS, *own}
    unknown = sorted(set(options) - known)
    if unknown:
        there = ", ".join(sorted(known))
        raise HookOptionError(
            head.name, "?", f"there is no option {unknown[0]!r}; use one of: {there}"
        )
    return head


_OPTIONS = ("priority", "name", "tools", "timeout", "on_error", "inherit")


def _name_of(hook: Any) -> str:
    while isinstance(hook, functools.partial):
        hook = hook.func
    return str(getattr(hook, "__qualname__", None) or type(hook).__qualname__)


def _problem(
    head: Head, hook: object, priority: object, tools: object, timeout: object, on_error: object
) -> str | None:
    if not callable(hook):
        return f"{hook!r} must be a function, or be callable"
    if isgeneratorfunction(hook) or isasyncgenfunction(hook):
        return "a function with `yield` does nothing when it is called: return the value instead"
    if not isinstance(priority, int):
        return f"priority={priority!r} must be an int"
    if tools is not None and not head.at_tool:
        return f"tools={tools!r} is for the points of a tool call only; leave it out"
    if isinstance(tools, str):
        return f"tools={tools!r} must be a list of names"
    if on_error not in ("raise", "log", "deny"):
        return f"on_error={on_error!r} must be 'raise', 'log' or 'deny'"
    if on_error == "deny" and head.name != "preToolCall":
        return "on_error='deny' is for preToolCall only; use 'raise' or 'log'"
    if timeout is not None:
        if not isinstance(timeout, (int, float)) or not timeout > 0:
            return f"timeout={timeout!r} must be above 0 seconds"
        if not is_async_callable(hook):
            return f"timeout={timeout!r} needs an async hook: a sync one cannot be interrupted"
    if head.kind == "wrapper" and not is_async_callable(hook):
        return "a wrapper must be an async function: async def wrapper(ctx, proceed)"
    return None


def info_of(hook: Hook) -> HookInfo:
    return HookInfo(
        point=hook.head.name,
        name=hook.name,
        priority=hook.priority,
        origin=hook.origin,
        id=hook.id,
        required=hook.required,
        on_error=hook.on_error,
        timeout=hook.timeout,
        tools=None if hook.tools is None else tuple(sorted(hook.tools)),
        inherit=hook.inherit,
        kind=hook.head.kind,
        is_async=hook.is_async,
        where=_where(hook.fn),
    )


def _where(hook: Any) -> str | None:
    """Where a hook is written; what is written in C is nowhere."""
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


def define(point: object, hook: Callable[..., Any] | None = None, **options: Any) -> Any:
    """A definition, or the decorator that makes one of the function below it."""
    if hook is not None:
        return HookDef(point, hook, **options)

    def made(fn: Callable[..., Any]) -> HookDef:
        return HookDef(point, fn, **options)

    return made


def definitions(
    hooks: HooksArgument, found: dict[str, HookDef] | None = None
) -> dict[str, HookDef]:
    """The definitions with an id among these, added to `found`; an id stands for one alone."""
    found = {} if found is None else found
    if isinstance(hooks, Mapping):
        return found
    for each in hooks:
        if isinstance(each, HookDef):
            if each.id is not None and found.setdefault(each.id, each) is not each:
                raise UsageError(
                    f"two hooks have the id {each.id!r}: {found[each.id]!r}, "
                    f"{each!r}; give one of them another"
                )
        elif not isinstance(each, str):
            definitions(each, found)
    return found


def expand(hooks: HooksArgument, known: Mapping[str, HookDef], origin: str) -> list[Hook]:
    """The registrations that `hooks=` declares: a table, or definitions, ids and lists of them."""
    if isinstance(hooks, str):
        raise UsageError(f"hooks={hooks!r} must be a table, or a list of definitions and ids")
    if isinstance(hooks, Mapping):
        made = [
            make_hook(point, fn, origin=origin)
            for point, value in hooks.items()
            for fn in (cast("list[Any]", value) if isinstance(value, (list, tuple)) else [value])
        ]
    else:
        made = [hook for each in hooks for hook in _expanded(each, known, origin)]
    for hook in made:
        hook.declared = True
    return made


def _expanded(each: HookLike, known: Mapping[str, HookDef], origin: str) -> list[Hook]:
    if isinstance(each, str):
        if each not in known:
            raise UnknownHookError(each, known, what="hook id")
        each = known[each]
    if not isinstance(each, HookDef):
        return expand(each, known, origin)
    options: dict[str, Any] = {"origin": each.origin or origin, **each.options}
    hook = make_hook(each.point, each.fn, **options)
    hook.id, hook.required, hook.definition = each.id, each.required, each
    return [hook]
