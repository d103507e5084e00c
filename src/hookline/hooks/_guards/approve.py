"""`approve`: ask for approval of some calls. If the check fails, its call is denied."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from inspect import isawaitable
from typing import Any

from hookline import Ask
from hookline.errors import UsageError
from hookline.hooks._common import GUARD, Hooks, definer, not_by_the_provider
from hookline.points import PreToolCall

When = Callable[[PreToolCall[Any]], bool | Awaitable[bool]]
"""A predicate, sync or async, that selects the calls that need an approval."""
Condition = (
    Callable[[Any], object] | str | float | bool | Sequence[object] | Mapping[str, object] | None
)
"""A condition on an argument: a value, a text with `*`, a list of values, or a function."""


def approve(
    *names: str,
    when: When | None = None,
    arguments: Mapping[str, Condition] | None = None,
    prompt: str | Callable[[PreToolCall[Any]], str] = "May {name} run?",
    expires: float | None = None,
    inherit: bool = True,
    required: bool = True,
) -> Hooks:
    """Ask for approval of a call that matches all given conditions: name, `when` and `arguments`.

    With `arguments={"path": "/etc/*"}`, approval is needed only if the argument `path` matches. A
    text may contain `*`. You can also pass a function, which is called with the argument's value.
    If a call leaves the argument out, the tool's default counts; if the default is not known, the
    call needs approval. In a `prompt`, `{name}` is the name of the tool. Raises UsageError if a
    `prompt` has other fields.
    """
    if isinstance(prompt, str):
        try:
            prompt.format(name="")
        except (LookupError, ValueError, AttributeError) as exc:
            raise UsageError(
                f"approve(prompt={prompt!r}) may contain only {{name}}, and other braces doubled; "
                "for the arguments of a call, pass a function of the context"
            ) from exc

    async def check(ctx: PreToolCall[Any]) -> Ask | None:
        for key, condition in (arguments or {}).items():
            if not _concerns(ctx, key, condition):
                return None
        if when is not None:
            asks = when(ctx)
            if not (await asks if isawaitable(asks) else asks):
                return None
        text = prompt.format(name=ctx.call.name) if isinstance(prompt, str) else prompt(ctx)
        return Ask(text, expires=expires)

    add = definer(name="approve", inherit=inherit, required=required)
    hook = add("preToolCall", check, priority=GUARD - 20, on_error="deny", tools=names or None)
    if not names and (arguments is not None or when is not None):
        return (hook,)  # the conditions are about calls, and may not concern provider tools at all
    return (hook, not_by_the_provider(add, "approve", names))


def _concerns(ctx: PreToolCall[Any], key: str, condition: Condition) -> bool:
    """Return whether the call has the wanted argument, or may have it by its tool's default."""
    if key in ctx.call.arguments:
        return _fits(ctx.call.arguments[key], condition)
    parameters = ctx.tool.parameters.get("properties", {})
    if key not in parameters:
        return False
    return "default" not in parameters[key] or _fits(parameters[key]["default"], condition)


def _fits(value: object, condition: Any) -> bool:
    if callable(condition):
        return bool(condition(value))
    if isinstance(condition, str) and isinstance(value, str):
        return fnmatchcase(value, condition)
    return bool(value == condition)
