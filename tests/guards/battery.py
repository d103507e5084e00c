"""Agents with guards of each kind, for the probe: `python -m tests.guards.battery` exits with 1 if
a probe finds a call that passes.

`mutations.py` runs it with changed sources: a change that it does not notice is one that a user's
own proof does not notice either.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Callable
from contextlib import aclosing
from types import SimpleNamespace
from typing import Any, Final

from hookline import Agent, Ask, Deny, Stop, define_hook, global_bus
from hookline.cli._probe.second_process import SecondProcess
from hookline.errors import ToolDenied
from hookline.hooks import approve, deny_commands
from hookline.providers import tools as provider_tools
from hookline.testing import Expected, ScriptedModel, call, probe
from hookline.testing.doors import DOOR_PATHS

BAD: Final = call("bash", command="rm -rf /")


async def bash(command: str = "") -> str:
    """Run a command."""
    raise AssertionError("a probe runs no tool")


def is_bad(ctx: Any) -> bool:
    return bool(ctx.call.arguments.get("command") == "rm -rf /")


def denies(ctx: Any) -> Deny | None:
    return Deny("no") if is_bad(ctx) else None


def stops(ctx: Any) -> Stop | None:
    return Stop("no") if is_bad(ctx) else None


def asks(ctx: Any) -> Ask | None:
    return Ask("May it?") if is_bad(ctx) else None


def raises(ctx: Any) -> None:
    if is_bad(ctx):
        raise ToolDenied("no")


def fails(ctx: Any) -> None:
    if is_bad(ctx):
        raise ValueError("the check is broken")


async def hangs(ctx: Any) -> None:
    if is_bad(ctx):
        await asyncio.sleep(0.2)  # too long for its limit, and short enough for the others


def agent(*hooks: Any, **options: Any) -> Agent[Any]:
    return Agent(ScriptedModel(), tools=[bash], hooks=[*hooks], **options)


def with_guard(hook: Any, **options: Any) -> Agent[Any]:
    made = agent()
    made.add_hook("preToolCall", hook, **options)
    return made


def with_global_guard() -> Agent[Any]:
    global_bus.add_hook("preToolCall", denies, guard=True)
    return agent()


def with_search(*hooks: Any) -> Agent[Any]:
    tools = [provider_tools.web_search()]
    return Agent(ScriptedModel(), tools=[bash, *tools], hooks=[*hooks])


SEARCH: Final = call("web_search")
Row = tuple[Callable[[], Agent[Any]], Any, Expected]
BATTERY: Final[dict[str, Row]] = {
    "guard=True": (lambda: with_guard(denies, guard=True), BAD, "denied"),
    "tools=": (lambda: with_guard(denies, guard=True, tools=["bash"]), BAD, "denied"),
    "a guard that stops": (lambda: with_guard(stops, guard=True), BAD, "denied"),
    "a guard that asks": (lambda: with_guard(asks, guard=True), BAD, "asked"),
    "ToolDenied": (lambda: with_guard(raises, guard=True), BAD, "denied"),
    "a broken guard": (lambda: with_guard(fails, on_error="deny"), BAD, "denied"),
    "timeout=": (lambda: with_guard(hangs, on_error="deny", timeout=0.01), BAD, "denied"),
    "required": (lambda: agent(define_hook("preToolCall", denies, required=True)), BAD, "denied"),
    "global": (with_global_guard, BAD, "denied"),
    "deny_commands": (lambda: agent(deny_commands("rm -rf")), BAD, "denied"),
    "approve": (lambda: agent(approve("bash")), BAD, "asked"),
    "of a provider's tool": (
        lambda: with_search(
            define_hook("preToolCall", denies, guard=True, tools=["bash", "web_search"])
        ),
        SEARCH,
        "denied",
    ),
    "ready-made, of a provider's tool": (
        lambda: with_search(approve()),
        SEARCH,
        "denied",
    ),
}


MAKERS: Final = SimpleNamespace(**{f"row{n}": row[0] for n, row in enumerate(BATTERY.values())})
"""The functions that make the agents, for a second process, which finds them by name."""


async def passed(name: str) -> list[str]:
    """The paths on which the call of this row passes."""
    make, tool_call, expected = BATTERY[name]
    target = f"tests.guards.battery:MAKERS.row{list(BATTERY).index(name)}"
    try:
        async with aclosing(SecondProcess(target, None)) as second:
            paths = {**DOOR_PATHS, **second.paths}
            result = await probe(make(), tool_call, paths=paths)
        return [*result.failures(expected), *result.left_out]
    finally:
        global_bus.clear("preToolCall")


async def main() -> int:
    """Probe the agents; returns 1 at the first whose call passes, or whose chat breaks."""
    for name in BATTERY:
        try:
            paths = await passed(name)
        except Exception as exc:
            paths = [*getattr(exc, "__notes__", ())]
            if not any(note.startswith("raised by the probe") for note in paths):
                raise
        if paths:
            more = f" and {len(paths) - 1} more" if paths[1:] else ""
            print(f"{name}: {paths[0]}{more}")
            return 1
    return 0


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)  # of guards that fail on purpose
    sys.exit(asyncio.run(main()))
