"""The options of a hook: their defaults, and the problems with them."""

from __future__ import annotations

import re
from inspect import isasyncgenfunction, isgeneratorfunction
from typing import Any, Final, cast

from hookline._hooks.points import PointSpec
from hookline._tools.callables import is_async_callable

_ID: Final = re.compile(r"[a-z][a-z0-9_]*")
_POINTS: Final = {
    "withhold": ("onResponse",),
    "guard": ("preToolCall",),
    "keeps_deltas": ("onResponse", "preMessage"),
    "early": ("preSteer",),
    "observes": ("aroundChat", "aroundRequest", "aroundToolCall"),
}


def fill_in(spec: PointSpec, options: dict[str, Any]) -> None:
    """Fill in the options that depend on whether the hook is a guard."""
    guard = options.get("guard", False)
    if spec.name == "preToolCall" and guard is False:
        guard = options.get("on_error") == "deny" or options.get("required") is True
    options["guard"] = guard
    if options.get("required") is None:
        options["required"] = guard
    if options.get("inherit") is None and guard:
        options["inherit"] = True  # for other hooks, None says that nobody has decided


def problem_of(
    spec: PointSpec,
    hook: object,
    *,
    name: object,
    priority: object = 0,
    tools: object = None,
    timeout: object = None,
    on_error: object = "raise",
    inherit: object = False,
    guard: object = False,
    id: object = None,
    required: object = False,
    withhold: object = False,
    keeps_deltas: object = False,
    early: object = False,
    observes: object = False,
) -> str | None:
    """Describe the first problem with a hook and its options; None if there is none."""
    if not callable(hook):
        return f"{hook!r} must be a function or another callable"
    if isgeneratorfunction(hook) or isasyncgenfunction(hook):
        return "a function with `yield` does nothing when it is called; return the value instead"
    if not isinstance(name, str):
        return f"name={name!r} must be a str"
    if not isinstance(priority, int):
        return f"priority={priority!r} must be an int"
    if id is not None and not (isinstance(id, str) and _ID.fullmatch(id)):
        return f"the id {id!r} must be lowercase letters, digits and '_', and begin with a letter"
    flags = {
        "guard": guard,
        "inherit": inherit,
        "required": required,
        "withhold": withhold,
        "keeps_deltas": keeps_deltas,
        "early": early,
        "observes": observes,
    }
    if (problem := _problem_of_flags(spec, flags)) is not None:
        return problem
    if early and is_async_callable(hook):
        return f"early=True needs a sync function, but {hook!r} is async; use def, not async def"
    if spec.kind == "wrapper" and not is_async_callable(hook):
        return "a wrapper must be an async function: async def wrapper(ctx, proceed)"
    return _problem_at(spec, hook, tools, timeout, on_error)


def _problem_of_flags(spec: PointSpec, flags: dict[str, object]) -> str | None:
    for option, value in flags.items():
        if not isinstance(value, bool) and (option, value) != ("inherit", None):
            return f"{option}={value!r} must be True or False"
    for option, points in _POINTS.items():
        if flags[option] and spec.name not in points:
            return f"{option}=True works only at {' and '.join(points)}; leave it out"
    return None


def _problem_at(
    spec: PointSpec, hook: object, tools: object, timeout: object, on_error: object
) -> str | None:
    """Describe a problem with the options that depend on the point."""
    if tools is not None and not spec.at_tool:
        return f"tools={tools!r} works only at the points of a tool call; leave it out"
    if tools is not None and (problem := _problem_of_names(tools)) is not None:
        return problem
    if on_error not in ("raise", "log", "deny"):
        return f"on_error={on_error!r} must be 'raise', 'log' or 'deny'"
    if on_error == "deny" and spec.name != "preToolCall":
        return "on_error='deny' works only at preToolCall; use 'raise' or 'log'"
    if timeout is not None:
        if not isinstance(timeout, (int, float)) or not timeout > 0:
            return f"timeout={timeout!r} must be above 0 seconds"
        if not is_async_callable(hook):
            return f"timeout={timeout!r} needs an async hook; a sync hook cannot be interrupted"
    return None


def _problem_of_names(tools: object) -> str | None:
    """Describe why a hook that is limited to these tools would never run."""
    if not isinstance(tools, tuple):
        return f"tools={tools!r} must be a list of names or patterns"
    if not tools:
        return (
            "tools=[] matches no tool, so the hook would never run; leave out tools= for all tools"
        )
    for tool in cast("tuple[object, ...]", tools):
        if not isinstance(tool, str) or not tool:
            return f"tools= has {tool!r}, which matches no tool; use names, or patterns like 'a_*'"
    return None
