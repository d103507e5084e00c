"""Inspect a callable: its parameters, their type hints, and its docstring.

Rules. A callable that cannot be called with only keyword arguments, or has a parameter without a
type, raises a ToolDefinitionError that says what to do. Type hints written as text are evaluated in
the function's scope: its globals, its closure, and the enclosing functions that are still running.
Docstrings are parsed in the styles of Google, NumPy and Sphinx; text in no known style counts as
description. This module does not depend on JSON Schema.
"""

from __future__ import annotations

import functools
import inspect
import re
import sys
from collections.abc import Callable, Mapping
from types import FrameType
from typing import Any, Final, get_type_hints

import msgspec

from hookline._base.errors import ToolDefinitionError

_NO_KEYWORD: Final[dict[object, str]] = {
    inspect.Parameter.POSITIONAL_ONLY: "is positional-only; remove the '/' from the signature",
    inspect.Parameter.VAR_POSITIONAL: "accepts any number of values; use one list",
    inspect.Parameter.VAR_KEYWORD: "accepts any name; name each parameter, or use one dict",
}


class Callee(msgspec.Struct, frozen=True, kw_only=True):
    """The docstring, and the parameters that a call can pass, in order and with their types."""

    parameters: dict[str, inspect.Parameter]
    hints: dict[str, Any]
    doc: str


def read_callable(fn: Callable[..., Any], tool: str) -> Callee:
    """Inspect a function, method, partial or callable object; raises ToolDefinitionError."""
    if inspect.isclass(fn) or not callable(fn):
        raise ToolDefinitionError(tool, f"{fn!r} cannot be a tool; pass a function")
    function, fixed, doc = _unwrap(fn)
    try:
        by_name = inspect.signature(fn).parameters
    except (ValueError, TypeError, NameError) as error:
        raise ToolDefinitionError(
            tool, f"its signature cannot be read ({error}); pass a function with type hints"
        ) from error
    # An argument that a partial binds by keyword is fixed and may be secret: models never see it.
    parameters = {name: parameter for name, parameter in by_name.items() if name not in fixed}
    for name, parameter in parameters.items():
        problem = _NO_KEYWORD.get(parameter.kind)
        if problem is None and parameter.annotation is parameter.empty:
            problem = "has no type hint; write one, for example 'str' or 'Any'"
            if name in ("self", "cls"):
                problem = "belongs to a method; make the tool from the method of an instance"
        if problem is not None:
            raise ToolDefinitionError(tool, f"parameter {name!r} {problem}")
    return Callee(parameters=parameters, hints=_resolve(function, parameters, tool), doc=doc)


def hints_of(
    fn: Callable[..., Any], parameters: Mapping[str, inspect.Parameter], tool: str
) -> dict[str, Any]:
    """The types of the parameters that have a type hint."""
    hinted = {
        name: parameter
        for name, parameter in parameters.items()
        if parameter.annotation is not parameter.empty
    }
    return _resolve(_unwrap(fn)[0], hinted, tool)


def _unwrap(fn: Any) -> tuple[Any, frozenset[str], str]:
    """Return the innermost function, the names that partials bind, and the docstring."""
    fixed: frozenset[str] = frozenset()
    while True:
        fn = inspect.unwrap(fn)
        if isinstance(fn, functools.partial):
            fixed |= fn.keywords.keys()
            fn = fn.func
        elif inspect.ismethod(fn):
            fn = fn.__func__
        elif inspect.isfunction(fn) or not inspect.isfunction(type(fn).__call__):
            return fn, fixed, inspect.getdoc(fn) or ""
        else:
            function = type(fn).__call__
            doc = function.__doc__ or type(fn).__doc__ or ""
            if doc.startswith(f"{type(fn).__name__}("):
                doc = ""  # the generated docstring of a dataclass is its signature
            return inspect.unwrap(function), fixed, inspect.cleandoc(doc)


def is_async_callable(fn: object) -> bool:
    """Return whether a call of this object returns a coroutine."""
    target: Any = fn
    while isinstance(target, functools.partial):
        target = target.func
    return inspect.iscoroutinefunction(target) or inspect.iscoroutinefunction(
        getattr(target, "__call__", None)  # noqa: B004 - checks the method itself
    )


def takes_run(fn: Callable[..., Any]) -> bool:
    """Return whether a predicate takes the run: as a required parameter, or one named `run`."""
    try:
        parameters = list(inspect.signature(fn).parameters.values())
    except (TypeError, ValueError):
        return False  # the signature of a builtin may be unknown
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    if not parameters or parameters[0].kind not in positional:
        return False
    first = parameters[0]
    return first.default is first.empty or first.name == "run"


# ── hints ───────────────────────────────────────────────────────────────────────────────────


def _resolve(
    function: Any, parameters: Mapping[str, inspect.Parameter], tool: str
) -> dict[str, Any]:
    """Evaluate the hints of the parameters; the return type does not matter."""

    def holder() -> None: ...

    names = getattr(function, "__globals__", {})
    local = _local_names(function)
    hints: dict[str, Any] = {}
    for name, parameter in parameters.items():  # one at a time, so that an error can name it
        holder.__annotations__ = {name: parameter.annotation}
        try:
            hints |= get_type_hints(holder, names, local, include_extras=True)
        except NameError as error:
            raise ToolDefinitionError(
                tool,
                f"the type hint of parameter {name!r} uses {error.name!r}, but the module does "
                "not define that name; define or import it at the top of the module, before the "
                "tool and not only under TYPE_CHECKING",
            ) from error
        except Exception as error:
            raise ToolDefinitionError(
                tool,
                f"the type hint of parameter {name!r} cannot be evaluated ({error}); write a hint "
                "that names a type",
            ) from error
    return hints


def _local_names(function: Any) -> dict[str, Any]:
    """The names that a hint may use in addition to the globals; inner scopes take precedence."""
    if not inspect.isfunction(function):
        return {}
    generic: tuple[Any, ...] = getattr(function, "__type_params__", ())  # Python 3.12
    local = {parameter.__name__: parameter for parameter in generic}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            local.setdefault(name, cell.cell_contents)
        except ValueError:
            continue  # a variable of the enclosing function that has no value yet
    frame: FrameType | None = sys._getframe(1)  # pyright: ignore[reportPrivateUsage]
    while frame is not None:
        # Not every caller: only the functions and class bodies that contain the function.
        encloses = function.__qualname__.startswith(frame.f_code.co_qualname + ".")
        if encloses and frame.f_globals is function.__globals__:
            for name, value in frame.f_locals.items():
                local.setdefault(name, value)
        frame = frame.f_back
    return local


# ── docstrings ──────────────────────────────────────────────────────────────────────────────

_PARAMETERS: Final = {
    *("args", "arguments", "parameters", "params", "other parameters"),
    *("keyword args", "keyword arguments"),
}
# Of no use to a model, which sees the actual results and errors.
_LEFT_OUT: Final = {"returns", "return", "yields", "yield", "raises", "raise", "receives", "warns"}
_FIELD = re.compile(r":(\w+)(?:[ \t]+([^:]*))?:[ \t]*(.*)")
_PARAMETER_FIELDS: Final = {"param", "parameter", "arg", "argument", "key", "keyword"}
_LEFT_OUT_FIELDS: Final = {"type", "rtype", "ytype", "except", "exception"} | _LEFT_OUT
_GOOGLE_ENTRY = re.compile(r"\*{0,2}(\w+)\s*(?:\(.*?\))?\s*:(?:\s+|$)(.*)")
_NUMPY_ENTRY = re.compile(r"(\*{0,2}\w+(?:\s*,\s*\*{0,2}\w+)*)\s*(?::.*)?")


def parse_docstring(doc: str) -> tuple[str, dict[str, str]]:
    """Split a docstring into the description and the texts of the parameters.

    The description does not include the sections on parameters, results and errors.
    """
    lines = doc.expandtabs().splitlines()
    lines_kept: list[str] = []
    texts: dict[str, str] = {}
    while lines:
        line = lines.pop(0)
        title = line.rstrip().lower()
        underlined = bool(lines) and re.fullmatch(r"-{3,}\s*", lines[0]) is not None
        if underlined and title in _PARAMETERS | _LEFT_OUT:
            lines.pop(0)
            block = _take_numpy(lines)
            if title in _PARAMETERS:
                _read_entries(block, _NUMPY_ENTRY, texts)
        elif title.endswith(":") and title[:-1] in _PARAMETERS | _LEFT_OUT:
            block = inspect.cleandoc("\n" + "\n".join(_take_indented(lines))).splitlines()
            if title[:-1] in _PARAMETERS:
                _read_entries(block, _GOOGLE_ENTRY, texts)
        elif (field := _FIELD.fullmatch(line)) and field[1] in _PARAMETER_FIELDS:
            _read_field(field, _take_indented(lines), texts)
        elif field and field[1] in _LEFT_OUT_FIELDS:
            _take_indented(lines)
        else:
            lines_kept.append(line.rstrip())
    description = re.sub(r"\n{3,}", "\n\n", "\n".join(lines_kept)).strip()
    return description, {name: text for name, text in texts.items() if text}


def _read_field(field: re.Match[str], more: list[str], texts: dict[str, str]) -> None:
    """Read a parameter of the style `:param name: text`, whose text may go on in more lines."""
    name = (field[2] or "").split(" ")[-1].lstrip("*")
    texts[name] = " ".join([field[3], *(part.strip() for part in more)]).strip()


def _take_indented(lines: list[str]) -> list[str]:
    """Take the block that belongs to the previous line: all lines that are indented or blank."""
    block: list[str] = []
    while lines and (not lines[0].strip() or lines[0].startswith(" ")):
        block.append(lines.pop(0))
    return block


def _take_numpy(lines: list[str]) -> list[str]:
    """Take a NumPy section, which ends before the next underlined title."""
    block: list[str] = []
    while lines and not (len(lines) > 1 and re.fullmatch(r"-{3,}\s*", lines[1])):
        block.append(lines.pop(0))
    return block


def _read_entries(block: list[str], entry: re.Pattern[str], texts: dict[str, str]) -> None:
    names: list[str] = []
    for line in block:
        match = None if line.startswith(" ") else entry.fullmatch(line.rstrip())
        if match:
            names = [name.strip(" *") for name in match[1].split(",")]
            first = match[2] if match.re.groups > 1 else ""
            texts.update(dict.fromkeys(names, first))
        elif line.strip():
            texts.update({name: f"{texts[name]} {line.strip()}".strip() for name in names})
