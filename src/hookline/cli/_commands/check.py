"""`hookline check --probe`: send recorded calls over the roads to their tools, and show a table."""

from __future__ import annotations

import json
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

import msgspec

from hookline import Agent
from hookline.cli._terminal.clean_text import strict
from hookline.cli._terminal.screen import Screen
from hookline.errors import UsageError
from hookline.testing import Expected, Probe, call, probe


class _Line(msgspec.Struct, forbid_unknown_fields=True):
    """A line of the file."""

    name: str
    arguments: dict[str, Any] = msgspec.field(default_factory=dict[str, Any])
    expect: Expected = "denied"


def calls_in(path: str) -> list[tuple[Any, Expected]]:
    """Read the calls of a file, one JSON object a line; raises UsageError for a wrong line."""
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError) as exc:
        raise UsageError(
            f"--probe {path} cannot be read ({exc}); pass a file with one call a line"
        ) from exc
    calls: list[tuple[Any, Expected]] = []
    for number, line in enumerate(lines, 1):
        if line.strip():
            calls.append(_call_in(line, f"{path}:{number}"))
    if not calls:
        raise UsageError(f"--probe {path} has no calls; write one JSON object a line")
    return calls


def _call_in(line: str, where: str) -> tuple[Any, Expected]:
    try:
        data = msgspec.json.decode(line, type=_Line)
    except msgspec.MsgspecError as exc:
        raise UsageError(
            f'{where}: {line!r} must be like {{"name": "bash", "arguments": {{"command": "rm"}}, '
            f'"expect": "denied"}}; expect is "denied" or "asked" ({exc})'
        ) from exc
    return call(data.name, data.arguments), data.expect


async def check(located: Awaitable[Agent[Any]], path: str, screen: Screen) -> int:
    """Probe each call; returns 1 if one passes a guard by, or if a guard was never asked."""
    agent = await located
    results: list[tuple[Probe, Expected]] = []
    for tool_call, expected in calls_in(path):
        results.append((await probe(agent, tool_call), expected))
    failed = False
    for result, expected in results:
        failures = result.failures(expected)
        failed = failed or bool(failures)
        arguments = json.dumps(result.call.arguments, ensure_ascii=True)
        verdict = f"passes: {', '.join(failures)}" if failures else expected
        mark = "FAIL" if failures else "ok"
        screen.line([("", strict(f"{mark:<5} {result.call.name} {arguments}  {verdict}"))])
        for road, reason in result.left_out.items():
            screen.line([("", strict(f"      left out: {road} ({reason})"))])
    names = {name for result, _ in results for name in result.guards}
    guards = [hook for hook in agent.hooks("preToolCall") if hook.guard]
    for hook in guards:
        if hook.name not in names:
            failed = True
            screen.line([("", strict(f"FAIL  guard {hook.name} was never asked"))])
    return 1 if failed else 0
