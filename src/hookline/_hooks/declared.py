"""Hooks that are declared now and registered later: definitions, their ids, objects that hold them.

`expand` makes registrations of what `hooks=` was given; each takes a place of its own on a bus, and
a view runs a definition once, however often it is registered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol, TypeAlias, cast

from hookline._base.errors import HookOptionError, UnknownHookError, UsageError
from hookline._hooks.points import spec_of
from hookline._hooks.registration import (
    Hook,
    HookOptions,
    check_hook,
    check_parameters,
    make_hook,
)


class HookDef:
    """A hook to be registered later: for `Agent(hooks=[...])`, plugins and files of hooks.

    With an `id` it can be named by it; `required` hooks also run in a chat with `only_hooks=`.
    Calling it calls `fn`. As an attribute of a class it binds to an object like a method.
    `origin` says where it was found, for a hook that comes out of a file. Raises HookOptionError
    for an option that does not fit the point, and UnknownHookError.
    """

    __slots__ = ("_bound_to", "_class", "_fits", "_unbound", "fn", "options", "origin", "point")

    def __init__(self, point: object, fn: Callable[..., Any], **options: Any) -> None:
        self.options: HookOptions = check_hook(point, fn, options)[1]
        """The options, checked: `name`, `priority`, `timeout` and so on."""
        self.point = point
        """The point's name or context class."""
        self.fn = fn
        """The function."""
        self.origin: str | None = None
        self._fits = False  # its parameters are known to be right
        self._class: str | None = None  # of which it is a method
        self._unbound = self
        self._bound_to: object = None

    @property
    def name(self) -> str:
        """The hook's name: the function's, unless `name=` was given."""
        return self.options.name

    @property
    def id(self) -> str | None:
        """What it may be named by."""
        return self.options.id

    @property
    def required(self) -> bool:
        """True if it also runs in a chat with `only_hooks=`."""
        return self.options.required

    def __call__(self, *args: Any) -> Any:
        return self.fn(*args)

    def __set_name__(self, owner: type, name: str) -> None:
        self._class = owner.__qualname__

    def __get__(self, instance: object, owner: type | None = None) -> HookDef:
        bind = getattr(self.fn, "__get__", None)
        if instance is None or bind is None:
            return self
        bound: HookDef = object.__new__(type(self))
        bound.options, bound.point, bound.origin = self.options, self.point, self.origin
        bound.fn = bind(instance, owner)
        bound._class = None
        bound._unbound, bound._bound_to = self, instance
        return bound

    # Each access binds anew, so definitions are compared as methods are: by function and object.

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, HookDef):
            return NotImplemented
        return self._unbound is other._unbound and self._bound_to is other._bound_to

    def __hash__(self) -> int:
        return hash((id(self._unbound), id(self._bound_to)))

    def __repr__(self) -> str:
        return f"<HookDef {self.id or self.name!r} at {self.point}>"

    def register(self, origin: str) -> Hook:
        """A registration of this definition, not yet on a bus."""
        if self._class is not None:
            raise HookOptionError(
                str(self.point),
                self.name,
                f"it is a method of {self._class}; pass an object of that class, or its attribute",
            )
        spec = spec_of(self.point)
        if not self._unbound._fits:  # asked once: a chat may register it again and again
            check_parameters(spec, self.fn, self.name)
            self._unbound._fits = True
        return Hook(spec, self.fn, self.options, self.origin or origin, self)


class HookSet:
    """Base of a class whose methods are hooks, so that type checkers know its objects as hooks.

    An object goes wherever a definition goes: `Agent(hooks=[Tenant("ann")])`. While a program runs
    any class with methods under `@define_hook` will do.
    """


class HasHooks(Protocol):
    """A plugin that brings hooks; `tools` and `scopes` are looked at too."""

    @property
    def hooks(self) -> HooksArgument: ...


HookLike: TypeAlias = "HookDef | HookSet | HasHooks | str | Sequence[HookLike]"
HooksArgument: TypeAlias = "Mapping[Any, Any] | Sequence[HookLike]"


def hooks_of(holder: object) -> list[Any]:
    """What an object brings: its `hooks`, and its attributes that are definitions."""
    names = dict.fromkeys(
        name
        for attributes in (*(vars(kind) for kind in reversed(type(holder).__mro__)), _vars(holder))
        for name, value in attributes.items()
        if isinstance(value, (HookDef, staticmethod))
    )
    found = [getattr(holder, name) for name in names]
    own: list[Any] = [value for value in found if isinstance(value, HookDef)]
    given: Any = getattr(holder, "hooks", None)
    return own if given is None else [given, *own]


def _vars(holder: object) -> dict[str, Any]:
    return getattr(holder, "__dict__", {})


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
    """The definitions with an id among these, added to `found`; an id belongs to one alone."""
    found = {} if found is None else found
    for each in _flat(hooks):
        if isinstance(each, HookDef) and each.id is not None:
            other = found.setdefault(each.id, each)
            if other != each:
                raise UsageError(
                    f"two hooks have the id {each.id!r}: {other!r}, {each!r}; give one of them "
                    "another"
                )
    return found


def expand(hooks: HooksArgument, known: Mapping[str, HookDef], origin: str) -> list[Hook]:
    """The registrations that `hooks=` declares: a table, or definitions, ids and lists of them."""
    made: list[Hook] = []
    for each in _flat(hooks):
        if isinstance(each, HookDef):
            made.append(each.register(origin))
        elif isinstance(each, str):
            if each not in known:
                raise UnknownHookError(each, known, what="hook id")
            made.append(known[each].register(origin))
        else:
            point, fn = each
            made.append(make_hook(point, fn, {}, origin))
    for hook in made:
        hook.declared = True
    return made


def _flat(hooks: Any) -> Iterator[HookDef | str | tuple[Any, Any]]:
    """Definitions and ids in order, and a point with a function for each entry of a table."""
    if isinstance(hooks, Mapping):
        table = cast("Mapping[Any, Any]", hooks)  # type: ignore[redundant-cast]
        for point, value in table.items():
            for fn in cast("list[Any]", value) if isinstance(value, (list, tuple)) else [value]:
                yield point, fn
        return
    if isinstance(hooks, (str, HookDef)) or not isinstance(hooks, Sequence):
        raise UsageError(f"hooks={hooks!r} must be a table, or a list of definitions and ids")
    given = cast("Sequence[Any]", hooks)  # type: ignore[redundant-cast]
    for each in given:
        if isinstance(each, (HookDef, str)):
            yield each
        elif isinstance(each, (Sequence, Mapping)):
            yield from _flat(each)
        else:
            yield from _flat(_held(each))


def _held(each: object) -> list[Any]:
    if isinstance(each, type):
        raise UsageError(f"hooks= has the class {each.__qualname__}; pass an object of it")
    held = hooks_of(each)
    if not held and not hasattr(each, "hooks"):
        raise UsageError(
            f"{each!r} in hooks= is not a hook: pass what define_hook or hookline.hooks makes, an "
            "id, or an object that has such hooks"
        )
    return held
