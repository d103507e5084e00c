"""List every reason why a JSON value does not fit a Python type, in texts for the model.

msgspec converts and stops at its first error. So a value that failed is checked again, one level
deeper each time, along its type: each list item and each field separately. If no part of a value
fails, the error is its own (a length, a `__post_init__`). Only failures are checked in this way, so
it may be slow.

Conversion is strict, also in pydantic models: only types that JSON lacks are converted from strings
(ISO times, UUID, base64, …). An issue names the path and the rule, but not the value, which may be
long or secret.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from enum import Enum
from itertools import repeat
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    Final,
    Literal,
    NotRequired,
    Required,
    TypeGuard,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

import msgspec

from hookline._base.json import clean_text, json_text, quote_name

_AT_PATH: Final = re.compile(r"(?s)(.*) - at `(?:key` in `)?\$(.*)`")


def is_model(kind: object) -> bool:
    """Return whether `kind` is a pydantic model class, without importing pydantic."""
    return isinstance(kind, type) and hasattr(kind, "model_validate_json")


def is_record(kind: object) -> bool:
    """Return whether `kind` is a Struct, a dataclass, an attrs class or a TypedDict."""
    marks = ("__struct_fields__", "__dataclass_fields__", "__attrs_attrs__", "__total__")
    return any(hasattr(kind, mark) for mark in marks)


def is_object(value: object) -> TypeGuard[dict[Any, Any]]:
    return isinstance(value, dict)


def decode_foreign(kind: Any, value: object) -> object:
    """Decode pydantic models in their strict JSON mode. This is the `dec_hook` for msgspec."""
    if isinstance(value, kind):
        return value
    if not is_model(kind):
        raise TypeError(f"{kind!r} cannot be converted from JSON")
    return kind.model_validate_json(msgspec.json.encode(value), strict=True)


def find_issues(value: Any, hint: Any, path: str) -> list[str]:
    """List every reason why `value` does not fit the type `hint`.

    The list is empty if `value` fits.
    """
    try:
        msgspec.convert(value, hint, str_keys=True, dec_hook=decode_foreign)
    except Exception as error:
        return _inside(value, hint, path) or _own(error, hint, path)
    return []


# ── inside a value: one level deeper ────────────────────────────────────────────────────────


def _inside(value: Any, hint: Any, path: str) -> list[str]:
    hint = _arm_for(value, hint)
    kind, args = get_origin(hint) or hint, get_args(hint)
    if not isinstance(kind, type):
        return []
    if is_object(value):
        if is_typeddict(kind) or not issubclass(kind, Mapping):
            return missing_and_unknown(value, kind, path)
        return _inside_mapping(value, args, path) if len(args) == 2 else []
    if _is_array(value) and issubclass(kind, Collection) and args:
        if kind is tuple and args[-1] is not Ellipsis:
            # msgspec's own error is about the length, where it differs.
            return _inside_array(value, args, path) if len(args) == len(value) else []
        return _inside_array(value, repeat(args[0]), path)
    return []


def _inside_array(value: Any, hints: Iterable[Any], path: str) -> list[str]:
    return [
        issue
        for index, (item, item_hint) in enumerate(zip(value, hints, strict=False))
        for issue in find_issues(item, item_hint, f"{path}[{index}]")
    ]


def _inside_mapping(value: dict[Any, Any], args: tuple[Any, ...], path: str) -> list[str]:
    issues: list[str] = []
    # Each key is tried in a dict, because `str_keys` converts strings only where they are keys.
    keys: Any = dict.__class_getitem__((args[0], Any))
    for key, item in value.items():
        try:
            msgspec.convert({key: None}, keys, str_keys=True)
        except Exception:
            issues.append(f"{_join(path, key)}: this key is not allowed here")
        issues += find_issues(item, args[1], _join(path, key))
    return issues


def missing_and_unknown(value: dict[Any, Any], kind: type, path: str) -> list[str]:
    """List every issue of an object that should have the fields of the class `kind`."""
    try:
        info: Any = msgspec.inspect.type_info(kind)
        fields = {field.encode_name: field for field in info.fields}
        hints = get_type_hints(kind, include_extras=True)
    except Exception:
        return []  # the fields of the class are unknown, so its own error is reported
    if getattr(info, "array_like", False):
        return []
    issues: list[str] = []
    for name, field in fields.items():
        if name in value:
            hint = _unqualified(hints.get(field.name, Any))
            issues += find_issues(value[name], hint, _join(path, name))
        elif field.required:
            issues.append(f"{_join(path, name)}: missing, but required")
    if getattr(info, "forbid_unknown_fields", False):
        known_fields = ", ".join(map(quote_name, fields)) or "none"
        issues += [
            f"{_join(path, key)}: unknown; the known names are: {known_fields}"
            for key in value
            if key not in fields and key != info.tag_field
        ]
    return issues


# ── types without wrappers ──────────────────────────────────────────────────────────────────


def _arm_for(value: object, hint: Any) -> Any:
    """Unwrap Annotated, NewType and aliases, and choose the only arm of a union that fits."""
    hint = _unqualified(hint)
    while True:
        if get_origin(hint) is Annotated:
            hint = get_args(hint)[0]
        elif hasattr(hint, "__supertype__"):
            hint = hint.__supertype__
        elif hasattr(hint, "__value__") and not isinstance(hint, type):
            hint = hint.__value__
        elif get_origin(hint) in (Union, UnionType):
            arms = [_arm_for(value, arm) for arm in get_args(hint) if arm is not NoneType]
            if len(arms) > 1:  # a single arm is meant, even if the value does not fit it at all
                arms = [arm for arm in arms if _takes(arm, value)]
            return arms[0] if len(arms) == 1 else hint
        else:
            return hint


def _takes(hint: Any, value: object) -> bool:
    kind: Any = get_origin(hint) or hint
    if not isinstance(kind, type):
        return False
    if is_object(value):
        config: Any = getattr(kind, "__struct_config__", None)
        if config is not None and config.tag is not None:
            return bool(value.get(config.tag_field) == config.tag)
        return issubclass(kind, Mapping) or is_record(hint)
    if _is_array(value):
        return issubclass(kind, Collection) and not issubclass(kind, (str, bytes, Mapping))
    return False


def _is_array(value: object) -> TypeGuard[Collection[Any]]:
    return isinstance(value, (list, tuple, set, frozenset))


def _unqualified(hint: Any) -> Any:
    while get_origin(hint) in (Required, NotRequired):
        hint = get_args(hint)[0]
    return hint


# ── texts for the model ─────────────────────────────────────────────────────────────────────


def _own(error: Exception, hint: Any, path: str) -> list[str]:
    errors: Any = getattr(error.__cause__, "errors", None)
    if callable(errors):  # pydantic's own list, with one item per issue
        issues_of: Any = errors(include_url=False, include_context=False, include_input=False)
        at = _AT_PATH.fullmatch(str(error))
        return [_pydantic(issue, path + (at[2] if at else "")) for issue in issues_of]
    values = _allowed_values(hint)
    if values:
        return [f"{path}: must be one of {values}"]
    if not isinstance(error, msgspec.ValidationError):
        return [f"{path}: cannot be converted to the required type ({type(error).__qualname__})"]
    text = str(error)
    if at := _AT_PATH.fullmatch(text):
        text, path = at[1], path + at[2]
    text = _short(text).replace("`", "")
    return [f"{path}: {text[:1].lower()}{text[1:]}"]


def _pydantic(issue: Any, path: str) -> str:
    for part in issue["loc"]:
        path = f"{path}[{part}]" if isinstance(part, int) else _join(path, part)
    return f"{path}: {_short(issue['msg'])}"


def _short(text: str) -> str:
    """Shorten a text: few messages repeat the value, but a value may be long or invalid Unicode."""
    return clean_text(text if len(text) <= 300 else text[:299] + "…")


def _allowed_values(hint: Any) -> str:
    hint = _arm_for(None, hint)
    values: Iterable[Any] = ()
    if get_origin(hint) is Literal:
        values = get_args(hint)
    elif isinstance(hint, type) and issubclass(hint, Enum):
        values = (member.value for member in hint)
    return ", ".join(map(json_text, values))


def _join(path: str, key: object) -> str:
    if isinstance(key, str) and key.isidentifier() and len(key) <= 60:
        return f"{path}.{key}" if path else key
    return f"{path}[{quote_name(key)}]" if path else quote_name(key)
