"""Hooks that are defined now and registered later: definitions, their ids, and objects with hooks.

`expand` makes the registrations for `hooks=`. Each registration has its own place on a bus, but a
view runs a definition only once, however many times it is registered.
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
    """A hook that `Agent(hooks=[...])`, a plugin or a file of hooks registers later.

    A hook with an `id` can be passed to `hooks=` by its id. `required` hooks also run in a chat
    with `only_hooks=`. Calling a HookDef calls its `fn`. A HookDef in a class body binds to an
    instance, as a method does. `origin` is the file or entry point in which discovery found the
    hook. Raises HookOptionError for an option that does not fit the point, and UnknownHookError for
    an unknown point.
    """

    __slots__ = ("_bound_to", "_class", "_fits", "_unbound", "fn", "options", "origin", "point")

    def __init__(self, point: object, fn: Callable[..., Any], **options: Any) -> None:
        self.options: HookOptions = check_hook(point, fn, options)[1]
        """The checked options: `name`, `priority`, `timeout` and so on."""
        self.point = point
        """The point's name or context class."""
        self.fn = fn
        """The function."""
        self.origin: str | None = None
        self._fits = False  # whether its parameters have been checked
        self._class: str | None = None  # the class that it is a method of
        self._unbound = self
        self._bound_to: object = None

    @property
    def name(self) -> str:
        """The hook's name; by default the function's name."""
        return self.options.name

    @property
    def id(self) -> str | None:
        """The id that can be passed to `hooks=`; None if the hook has no id."""
        return self.options.id

    @property
    def required(self) -> bool:
        """True if the hook also runs in a chat with `only_hooks=`."""
        return bool(self.options.required)

    def __call__(self, *args: Any) -> Any:
        return self.fn(*args)

    def __set_name__(self, owner: type, name: str) -> None:
        self._class = owner.__qualname__

    def __get__(self, instance: object, owner: type | None = None) -> HookDef:
        bind = getattr(self.fn, "__get__", None)
        if instance is None or bind is None:
            return self
        definition: HookDef = object.__new__(type(self))
        definition.options, definition.point, definition.origin = (
            self.options,
            self.point,
            self.origin,
        )
        definition.fn = bind(instance, owner)
        definition._class = None
        definition._unbound, definition._bound_to = self, instance
        return definition

    # Each access binds anew, so definitions compare like methods: by function and object.

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, HookDef):
            return NotImplemented
        return self._unbound is other._unbound and self._bound_to is other._bound_to

    def __hash__(self) -> int:
        return hash((id(self._unbound), id(self._bound_to)))

    def __repr__(self) -> str:
        return f"<HookDef {self.id or self.name!r} at {self.point}>"

    def register(self, origin: str) -> Hook:
        """Make a registration of this definition, without adding it to a bus."""
        if self._class is not None:
            raise HookOptionError(
                str(self.point),
                self.name,
                f"the hook is a method of {self._class}; pass an instance of the class instead",
            )
        spec = spec_of(self.point)
        if not self._unbound._fits:  # checked only once, because each chat may register it again
            check_parameters(spec, self.fn, self.name)
            self._unbound._fits = True
        return Hook(spec, self.fn, self.options, self.origin or origin, self)


class HookSet:
    """Base class for classes whose methods are hooks; type checkers then accept the instances.

    Pass an instance wherever a definition is accepted: `Agent(hooks=[Tenant("ann")])`. At run time,
    the base class is optional; only the decorator `@define_hook` is needed.
    """


class HasHooks(Protocol):
    """A plugin that has hooks; its `tools` and `scopes` are used too."""

    @property
    def hooks(self) -> HooksArgument: ...


HookLike: TypeAlias = "HookDef | HookSet | HasHooks | str | Sequence[HookLike]"
"""A hook definition, an object with hooks, the id of a definition, or a list of these."""
HooksArgument: TypeAlias = "Mapping[Any, Any] | Sequence[HookLike]"
"""The values that `hooks=` takes: a dict of points and functions, or a list of definitions and
ids."""


def hooks_of(holder: object) -> list[Any]:
    """Return an object's `hooks`, and its attributes that are definitions."""
    # Base classes first, and each name once: a hook that a subclass replaces keeps its place.
    names = dict.fromkeys(
        name
        for kind in (*reversed(type(holder).__mro__), holder)
        for name, value in getattr(kind, "__dict__", {}).items()
        if isinstance(value, (HookDef, staticmethod))  # no property is evaluated
    )
    definitions = [getattr(holder, name) for name in names]
    own: list[Any] = [value for value in definitions if isinstance(value, HookDef)]
    declared: Any = getattr(holder, "hooks", None)
    return own if declared is None else [declared, *own]


def define(point: object, hook: Callable[..., Any] | None = None, **options: Any) -> Any:
    """Return a definition, or a decorator that makes a definition from a function."""
    if hook is not None:
        return HookDef(point, hook, **options)

    def definition(fn: Callable[..., Any]) -> HookDef:
        return HookDef(point, fn, **options)

    return definition


def definitions(
    hooks: HooksArgument, by_id: dict[str, HookDef] | None = None
) -> dict[str, HookDef]:
    """Add the definitions that have an id to `by_id`; each id may belong to only one definition."""
    by_id = {} if by_id is None else by_id
    for item in _flat(hooks):
        if isinstance(item, HookDef) and item.id is not None:
            other = by_id.setdefault(item.id, item)
            if other != item:
                raise UsageError(
                    f"two hooks have the id {item.id!r}: {other!r} and {item!r}; give one of them "
                    "another id"
                )
    return by_id


def expand(
    hooks: HooksArgument, definitions_by_id: Mapping[str, HookDef], origin: str
) -> list[Hook]:
    """Make the registrations for `hooks=`: a table, or definitions, ids and lists of these."""
    hooks_made: list[Hook] = []
    for item in _flat(hooks):
        if isinstance(item, HookDef):
            hooks_made.append(item.register(origin))
        elif isinstance(item, str):
            if item not in definitions_by_id:
                raise UnknownHookError(item, definitions_by_id, what="hook id")
            hooks_made.append(definitions_by_id[item].register(origin))
        else:
            point, fn = item
            hooks_made.append(make_hook(point, fn, {}, origin))
    for hook in hooks_made:
        hook.declared = True
    return hooks_made


def _flat(hooks: Any) -> Iterator[HookDef | str | tuple[Any, Any]]:
    """Yield definitions and ids in order, and (point, function) for each entry of a table."""
    if isinstance(hooks, Mapping):
        table = cast("Mapping[Any, Any]", hooks)  # type: ignore[redundant-cast]
        for point, value in table.items():
            for fn in cast("list[Any]", value) if isinstance(value, (list, tuple)) else [value]:
                yield point, fn
        return
    if isinstance(hooks, (str, HookDef)) or not isinstance(hooks, Sequence):
        raise UsageError(f"hooks={hooks!r} must be a list, or a dict of points and functions")
    items = cast("Sequence[Any]", hooks)  # type: ignore[redundant-cast]
    for item in items:
        if isinstance(item, (HookDef, str)):
            yield item
        elif isinstance(item, (Sequence, Mapping)):
            yield from _flat(item)
        else:
            yield from _flat(_hooks_held_by(item))


def _hooks_held_by(item: object) -> list[Any]:
    if isinstance(item, type):
        raise UsageError(f"hooks= has the class {item.__qualname__}; pass an instance of the class")
    definitions = hooks_of(item)
    if not definitions and not hasattr(item, "hooks"):
        raise UsageError(
            f"{item!r} in hooks= is not a hook; pass a hook made by define_hook or "
            "hookline.hooks, the id of a hook, or an object that has hooks"
        )
    return definitions
