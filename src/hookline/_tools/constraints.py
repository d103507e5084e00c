"""Convert pydantic's `Field` and annotated_types in a parameter's hint to msgspec's `Meta`.

`Annotated[int, pydantic.Field(ge=1)]` is the common way to write constraints. Both libraries
describe the same JSON schema, so one can replace the other when a hint is read. Anything without a
counterpart, such as an alias, raises a clear error. pydantic itself is never imported here.
"""

from __future__ import annotations

from types import UnionType
from typing import Annotated, Any, Final, Union, get_args, get_origin

import msgspec

_SAME: Final = frozenset(
    (
        *("gt", "ge", "lt", "le", "multiple_of", "min_length", "max_length", "pattern"),
        *("title", "description", "examples"),
    )
)
_EXTRA: Final = "json_schema_extra"
_NO_EFFECT: Final = frozenset(["annotation", "strict", "repr"])


class Unknown(Exception):
    """A constraint that msgspec does not support."""


def is_foreign(value: object) -> bool:
    """Return whether this is metadata of pydantic or annotated_types."""
    kind = type(value)
    return kind.__module__ == "annotated_types" or (
        kind.__name__ == "FieldInfo" and kind.__module__.startswith("pydantic")
    )


def translated(hint: Any, *outer: Any) -> Any:
    """Replace pydantic's metadata in a hint with msgspec's; raises Unknown."""
    if not _holds_foreign(hint):
        return hint
    if (inner := alias_target(hint)) is not None:
        if hint in outer:
            raise Unknown("Field in an alias that contains itself")
        return translated(inner, *outer, hint)
    origin, args = get_origin(hint), get_args(hint)
    if origin is Annotated:
        meta = [_meta(arg) if is_foreign(arg) else arg for arg in args[1:]]
        return Annotated[(translated(args[0], *outer), *meta)]
    generic: Any = Union if origin is UnionType else origin  # `X | Y` has no type to subscript
    return generic[tuple(translated(arg, *outer) for arg in args)]


def alias_target(hint: Any) -> Any:
    """Return the type that a NewType or an alias stands for; None for any other type."""
    if isinstance(hint, type) or get_origin(hint) is not None:
        return None
    return getattr(hint, "__supertype__", None) or getattr(hint, "__value__", None)


def _holds_foreign(hint: Any, *outer: Any) -> bool:
    if is_foreign(hint):
        return True
    inner = alias_target(hint)
    parts = get_args(hint) if inner is None else (inner,)
    if inner is not None and hint in outer:  # an alias that contains itself
        return False
    return any(_holds_foreign(part, *outer, hint) for part in parts)


def _meta(value: Any) -> msgspec.Meta:
    options: dict[str, Any] = {}
    for name, option in _options_of(value).items():
        if name in _SAME:
            options[name] = getattr(option, "pattern", option) if name == "pattern" else option
        elif name == _EXTRA and isinstance(option, dict):
            options["extra_json_schema"] = option
        elif name not in _NO_EFFECT:
            raise Unknown(name)
    return msgspec.Meta(**options)


def _options_of(value: Any) -> dict[str, Any]:
    """The options of a Field, or of an object of annotated_types."""
    options: dict[str, Any] = dict(getattr(value, "_attributes_set", ()))
    for item in getattr(value, "metadata", [value]):  # a Field keeps some options there
        names = getattr(item, "__dataclass_fields__", None) or getattr(item, "__dict__", None)
        if not names:
            raise Unknown(type(item).__name__)
        options.update({name: getattr(item, name) for name in names})
    return {name: option for name, option in options.items() if option is not None}
