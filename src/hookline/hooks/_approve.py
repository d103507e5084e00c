"""`approve`: which calls somebody is asked about. A check that fails denies its call."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from fnmatch import fnmatchcase
from inspect import isawaitable
from typing import Any

from hookline import Ask, define_hook
from hookline.hooks._common import GUARD, Hooks, named, not_by_the_provider
from hookline.points import PreToolCall

When = Callable[[PreToolCall[Any]], bool | Awaitable[bool]]


def approve(
    *names: str,
    when: When | None = None,
    arguments: Mapping[str, object] | None = None,
    prompt: str | Callable[[PreToolCall[Any]], str] = "May {name} run?",
    expires: float | None = None,
    inherit: bool = True,
    required: bool = True,
) -> Hooks:
    """Ask somebody before such calls run: by name, by predicate, by argument; all that is given.

    `arguments={"path": "/etc/*"}`: asked where an argument is so; a text may have `*`, a function
    is called with the value. A call that lacks the argument is not asked about.
    """

    async def check(ctx: PreToolCall[Any]) -> Ask | None:
        if names and not named(ctx.call.name, names):
            return None
        for key, wanted in (arguments or {}).items():
            if key not in ctx.call.arguments or not _fits(ctx.call.arguments[key], wanted):
                return None
        if when is not None:
            asks = when(ctx)
            if not (await asks if isawaitable(asks) else asks):
                return None
        text = prompt.format(name=ctx.call.name) if isinstance(prompt, str) else prompt(ctx)
        return Ask(text, expires=expires)

    hook = define_hook(
        "preToolCall",
        check,
        name="approve",
        priority=GUARD - 20,
        on_error="deny",
        inherit=inherit,
        required=required,
    )
    if not names and (arguments is not None or when is not None):
        return (hook,)  # it is for calls that look like this, and may mean none of a provider's
    return (hook, not_by_the_provider("approve", names, inherit=inherit, required=required))


def _fits(value: object, wanted: Any) -> bool:
    if callable(wanted):
        return bool(wanted(value))
    if isinstance(wanted, str) and isinstance(value, str):
        return fnmatchcase(value, wanted)
    return bool(value == wanted)
