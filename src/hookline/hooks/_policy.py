"""`allow_tools`, `deny_commands`, `approve`: which calls may run, and which are asked about.

What is refused is told to the model, and the chat goes on. A check that fails denies its call.
Arguments are looked at twice: before the call, and again when its handler is about to run, since
other hooks and approvers may have changed them.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from fnmatch import fnmatchcase
from inspect import isawaitable
from typing import Any

from hookline import (
    Ask,
    ModelRequest,
    Proceed,
    ToolCall,
    ToolError,
    ToolResult,
    define_hook,
)
from hookline.errors import UsageError
from hookline.hooks._commands import command_of, runs, texts_in
from hookline.hooks._common import GUARD, LAST, Hooks
from hookline.points import AroundToolCall, PreRequest, PreToolCall


def _matches(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def allow_tools(*names: str, hide: bool = True, inherit: bool = False) -> Hooks:
    """Only these tools may run; `"read_*"` allows all that begin so. Without names, none may.

    `hide`: the others are not offered to the model either.
    """

    def offer(ctx: PreRequest[Any]) -> ModelRequest | None:
        left = tuple(tool for tool in ctx.request.tools if _matches(tool.name, names))
        return ctx.request.replace(tools=left) if len(left) < len(ctx.request.tools) else None

    def check(ctx: PreToolCall[Any]) -> ToolError | None:
        if _matches(ctx.call.name, names):
            return None
        return ToolError(f"tool {ctx.call.name!r} is not allowed here", type="Denied")

    guard = define_hook(
        "preToolCall", check, name="allow_tools", priority=GUARD, on_error="deny", inherit=inherit
    )
    if not hide:
        return (guard,)
    # Last of all: what another hook offers is looked at too.
    return (
        guard,
        define_hook("preRequest", offer, name="allow_tools", priority=LAST, inherit=inherit),
    )


def deny_commands(
    *commands: str | re.Pattern[str],
    tools: Iterable[str] | None = None,
    argument: str | None = None,
    inherit: bool = True,
) -> Hooks:
    """Refuse calls with such a command in their arguments: `deny_commands("rm -rf")`.

    A text is a command with flags and words: it is found however they are quoted, ordered and
    spelled, and behind `sudo`, `;`, `|` or `bash -c`. A pattern is searched as it is. `tools`: only
    these; `argument`: only there. A list of what is forbidden is no sandbox.
    """
    if not commands:
        raise UsageError("deny_commands() needs a command, such as deny_commands('rm -rf')")
    denied = [(each, command_of(each) if isinstance(each, str) else each) for each in commands]
    only = None if tools is None else tuple(tools)

    def refusal(call: ToolCall) -> ToolError | None:
        where = call.arguments if argument is None else call.arguments.get(argument)
        for text in texts_in(where):
            for each, pattern in denied:
                if pattern.search(text) if isinstance(pattern, re.Pattern) else runs(text, pattern):
                    shown = each if isinstance(each, str) else each.pattern
                    return ToolError(f"a command like {shown!r} is not allowed", type="Denied")
        return None

    def check(ctx: PreToolCall[Any]) -> ToolError | None:
        return refusal(ctx.call)

    async def check_again(
        ctx: AroundToolCall[Any], proceed: Proceed[ToolCall, ToolResult | ToolError]
    ) -> ToolResult | ToolError:
        return refusal(ctx.call) or await proceed()

    name = "deny_commands"
    return (
        define_hook(
            "preToolCall",
            check,
            name=name,
            priority=GUARD,
            on_error="deny",
            tools=only,
            inherit=inherit,
        ),
        define_hook(
            "aroundToolCall", check_again, name=name, priority=LAST, tools=only, inherit=inherit
        ),
    )


When = Callable[[PreToolCall[Any]], bool | Awaitable[bool]]


def approve(
    *names: str,
    when: When | None = None,
    arguments: Mapping[str, object] | None = None,
    prompt: str | Callable[[PreToolCall[Any]], str] = "May {name} run?",
    expires: float | None = None,
    inherit: bool = True,
) -> Hooks:
    """Ask somebody before such calls run: by name, by predicate, by argument; all that is given.

    `arguments={"path": "/etc/*"}`: asked where an argument is so; a text may have `*`, a function
    is called with the value. A call that lacks the argument is not asked about.
    """

    async def check(ctx: PreToolCall[Any]) -> Ask | None:
        if names and not _matches(ctx.call.name, names):
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
        "preToolCall", check, name="approve", priority=GUARD - 20, on_error="deny", inherit=inherit
    )
    return (hook,)


def _fits(value: object, wanted: Any) -> bool:
    if callable(wanted):
        return bool(wanted(value))
    if isinstance(wanted, str) and isinstance(value, str):
        return fnmatchcase(value, wanted)
    return bool(value == wanted)
