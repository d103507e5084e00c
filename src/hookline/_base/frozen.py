"""Read-only JSON data: the content of messages, calls, results and settings, at every depth.

Rules. History, requests, events, hooks and approvers all see the same payload, so nothing may
change it in place. Its objects and arrays are a dict and a list that refuse every write. They
compare, encode, validate and pickle like plain ones; a deep copy is plain and can be changed. Data
is copied once, when it enters a payload: `freeze` returns frozen data unchanged. Other values are
not touched; `_base/json.py` checks that they are valid JSON.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, NoReturn

from msgspec.structs import force_setattr

from hookline._base.lists import as_tuple


def _refuse(self: object, *args: Any, **kwargs: Any) -> NoReturn:
    raise TypeError(
        "data of a message, call or result is read-only; return a changed copy, such as "
        "call.replace(arguments={**call.arguments, 'key': value}), or edit copy.deepcopy(data)"
    )


# Construction is refused too, because __init__ of a dict or a list can fill an existing one.
# `freeze` makes an empty object and fills it with the methods of the plain type.


class FrozenDict(dict[str, Any]):
    """A read-only JSON object."""

    __slots__ = ()
    __init__ = __setitem__ = __delitem__ = __ior__ = pop = popitem = clear = _refuse
    update = setdefault = _refuse

    def __deepcopy__(self, memo: object) -> dict[str, Any]:
        plain: dict[str, Any] = thaw(self)
        return plain

    def __reduce__(self) -> Any:
        return dict, (dict(self),)  # copies and pickles are plain


class FrozenList(list[Any]):
    """A read-only JSON array."""

    __slots__ = ()
    __init__ = __setitem__ = __delitem__ = __iadd__ = __imul__ = _refuse
    append = extend = insert = remove = pop = clear = sort = reverse = _refuse

    def __deepcopy__(self, memo: object) -> list[Any]:
        plain: list[Any] = thaw(self)
        return plain

    def __reduce__(self) -> Any:
        return list, (list(self),)


_LEAVES: Final = frozenset([str, int, float, bool, type(None)])
READ_ONLY: Final = _LEAVES | {FrozenDict, FrozenList}


def frozen_dict(data: Mapping[str, Any] | Iterable[tuple[str, Any]]) -> FrozenDict:
    """Make a read-only object of these items, whose values are already frozen."""
    result: FrozenDict = FrozenDict.__new__(FrozenDict)
    dict.update(result, data)  # pyright: ignore[reportUnknownMemberType]
    return result


def frozen_list(items: Iterable[Any]) -> FrozenList:
    """Make a read-only array of these items, which are already frozen."""
    result: FrozenList = FrozenList.__new__(FrozenList)
    list.extend(result, items)  # pyright: ignore[reportUnknownMemberType]
    return result


def freeze(data: Any) -> Any:
    """Make all dicts and lists in the data read-only; raises ValueError for endless nesting."""
    kind: Any = type(data)  # pyright: ignore[reportUnknownVariableType]
    if kind in READ_ONLY:
        return data
    try:
        # Use the methods of the plain types: a subclass could return something else at each read.
        if isinstance(data, dict):
            result = frozen_dict(dict.items(data))  # pyright: ignore
            if not _LEAVES.issuperset(map(type, dict.values(result))):  # pyright: ignore
                for key, value in dict.items(result):  # pyright: ignore
                    dict.__setitem__(result, key, freeze(value))  # pyright: ignore
            return result
        if isinstance(data, list):
            return frozen_list([freeze(value) for value in list.__iter__(data)])  # pyright: ignore
        if kind is tuple:
            return tuple([freeze(value) for value in data])
    except RecursionError:
        raise ValueError(
            f"a {kind.__qualname__} is nested too deeply, or contains itself; pass flat JSON data"
        ) from None
    return data


def thaw(data: Any) -> Any:
    """Return a plain copy of JSON data, which the caller may change."""
    if isinstance(data, dict):
        return {
            key: value if type(value) in _LEAVES else thaw(value)  # pyright: ignore
            for key, value in data.items()  # pyright: ignore
        }
    if isinstance(data, (list, tuple)):
        return [thaw(value) for value in data]  # pyright: ignore
    return data


def own(struct: Any, name: str) -> None:
    """Freeze the JSON data in this field of a frozen Struct that is being made."""
    value = getattr(struct, name)
    if type(value) not in READ_ONLY:
        force_setattr(struct, name, freeze(value))


def own_tuple(struct: Any, name: str) -> None:
    """Convert the list in this field of a Struct to a tuple; None stays."""
    value = getattr(struct, name)
    if type(value) is not tuple and value is not None:
        force_setattr(struct, name, as_tuple(name, value))


class ReadOnly:
    """An object whose attributes can be set only while it is created."""

    __slots__ = ()

    def _set(self, **attributes: Any) -> None:
        for name, value in attributes.items():
            object.__setattr__(self, name, value)

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"{self!r} is read-only; make a changed copy with .replace({name}=…)")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(
            f"{self!r} is read-only, so {name!r} cannot be deleted; make a copy with .replace()"
        )


EMPTY: Final = frozen_dict({})
