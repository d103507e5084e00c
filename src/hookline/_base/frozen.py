"""Read-only JSON data: what messages, calls, results and settings hold, at every depth.

Rules. A payload is seen by history, requests, events, hooks and approvers, so nobody may change it
in place. Its objects and arrays are a dict and a list that refuse every write. They compare,
encode, validate and pickle like plain ones; a deep copy is plain and may be changed. Data is copied
once, where it enters a payload: `freeze` gives back what is frozen already. Leaves are left alone;
that they are JSON is the concern of `_base/json.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, NoReturn

from msgspec.structs import force_setattr


def _refuse(self: object, *args: Any, **kwargs: Any) -> NoReturn:
    raise TypeError(
        "data of a message, call or result is read-only; return a changed copy, such as "
        "call.replace(arguments={**call.arguments, 'key': value}), or edit copy.deepcopy(data)"
    )


# Construction is refused too: __init__ of a dict or a list fills one that is there. What freezes
# makes an empty one and fills it with the methods of the plain type.


class FrozenDict(dict[str, Any]):
    """A JSON object that nobody can change."""

    __slots__ = ()
    __init__ = __setitem__ = __delitem__ = __ior__ = pop = popitem = clear = _refuse
    update = setdefault = _refuse

    def __deepcopy__(self, memo: object) -> dict[str, Any]:
        plain: dict[str, Any] = thaw(self)
        return plain

    def __reduce__(self) -> Any:
        return dict, (dict(self),)  # copies and pickles are plain


class FrozenList(list[Any]):
    """A JSON array that nobody can change."""

    __slots__ = ()
    __init__ = __setitem__ = __delitem__ = __iadd__ = __imul__ = _refuse
    append = extend = insert = remove = pop = clear = sort = reverse = _refuse

    def __deepcopy__(self, memo: object) -> list[Any]:
        plain: list[Any] = thaw(self)
        return plain

    def __reduce__(self) -> Any:
        return list, (list(self),)


_LEAVES: Final = frozenset([str, int, float, bool, type(None)])
_FROZEN: Final = frozenset([FrozenDict, FrozenList])


def frozen_dict(data: dict[str, Any]) -> FrozenDict:
    """A read-only object of these items, whose values are frozen already."""
    made: FrozenDict = FrozenDict.__new__(FrozenDict)
    dict.update(made, data)  # pyright: ignore[reportUnknownMemberType]
    return made


def frozen_list(items: Iterable[Any]) -> FrozenList:
    """A read-only array of these items, which are frozen already."""
    made: FrozenList = FrozenList.__new__(FrozenList)
    list.extend(made, items)  # pyright: ignore[reportUnknownMemberType]
    return made


def freeze(data: Any) -> Any:
    """The data with each dict and list in it read-only; raises ValueError when it has no end."""
    kind: Any = type(data)  # pyright: ignore[reportUnknownVariableType]
    if kind in _LEAVES or kind in _FROZEN:
        return data
    try:
        return _frozen(data)
    except RecursionError:
        raise ValueError(
            f"a {kind.__qualname__} is nested too deeply, or contains itself; pass flat JSON data"
        ) from None


def _frozen(data: Any) -> Any:
    kind: Any = type(data)  # pyright: ignore[reportUnknownVariableType]
    if kind in _LEAVES or kind in _FROZEN:
        return data
    # The methods of the plain types: a class of the user's could tell each reader something else.
    if isinstance(data, dict):
        return frozen_dict({key: _frozen(value) for key, value in dict.items(data)})  # pyright: ignore
    if isinstance(data, list):
        return frozen_list([_frozen(value) for value in list.__iter__(data)])  # pyright: ignore
    if kind is tuple:
        return tuple([_frozen(value) for value in data])
    return data


def thaw(data: Any) -> Any:
    """A plain copy of JSON data, which belongs to whoever asked for it."""
    if isinstance(data, dict):
        return {
            key: value if type(value) in _LEAVES else thaw(value)  # pyright: ignore
            for key, value in data.items()  # pyright: ignore
        }
    if isinstance(data, (list, tuple)):
        return [thaw(value) for value in data]  # pyright: ignore
    return data


def own(struct: Any, *names: str) -> None:
    """Freeze the JSON data in these fields of a frozen Struct that is being made."""
    for name in names:
        value = getattr(struct, name)
        frozen = freeze(value)
        if frozen is not value:
            force_setattr(struct, name, frozen)


def own_tuples(struct: Any, *names: str) -> None:
    """Make tuples of the sequences that a Struct was given in these fields."""
    for name in names:
        value = getattr(struct, name)
        if type(value) is tuple or not isinstance(value, Sequence) or isinstance(value, str):
            continue
        force_setattr(struct, name, tuple(value))  # pyright: ignore


class ReadOnly:
    """An object whose attributes are set once, while it is made."""

    __slots__ = ()

    def _set(self, **attributes: Any) -> None:
        for name, value in attributes.items():
            object.__setattr__(self, name, value)

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"{self!r} is read-only; make a changed copy with .replace({name}=…)")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(
            f"{self!r} is read-only, {name!r} too; make a changed copy with .replace()"
        )


EMPTY: Final = frozen_dict({})
