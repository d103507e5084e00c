"""`hookline check --probe`: send recorded calls over the paths to their tools, and show a table."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Iterator
from contextlib import aclosing
from pathlib import Path
from typing import Annotated, Any

import msgspec
from cyclopts import Parameter

from hookline.cli._options import Debug, Deps, Target
from hookline.cli._probe.second_process import SecondProcess
from hookline.cli._target import Located, deps_at, locate
from hookline.cli._terminal.clean_text import strict
from hookline.cli._terminal.screen import Screen
from hookline.errors import UsageError
from hookline.testing import Expected, Probe, call, probe
from hookline.testing.doors import DOOR_PATHS


class Line(msgspec.Struct, forbid_unknown_fields=True):
    """A line of the file: a call, and what must become of it."""

    name: str
    arguments: dict[str, Any] = msgspec.field(default_factory=dict[str, Any])
    expect: Expected = "denied"
    secret: str | None = None
    """The text that the tool must not get."""


def calls_in(path: str) -> list[Line]:
    """Read the calls of a file, one JSON object a line; raises UsageError for a wrong line."""
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError) as exc:
        raise UsageError(
            f"--probe {path} cannot be read ({exc}); pass a file with one call a line"
        ) from exc
    calls: list[Line] = []
    for number, line in enumerate(lines, 1):
        if line.strip():
            calls.append(_call_in(line, f"{path}:{number}"))
    if not calls:
        raise UsageError(f"--probe {path} has no calls; write one JSON object a line")
    return calls


def _call_in(line: str, where: str) -> Line:
    try:
        data = msgspec.json.decode(line, type=Line)
    except msgspec.MsgspecError as exc:
        raise UsageError(
            f'{where}: {line!r} must be like {{"name": "bash", "arguments": {{"command": "rm"}}, '
            f'"expect": "denied"}}; expect is "denied", "asked" or "redacted" ({exc})'
        ) from exc
    if (data.expect == "redacted") != (data.secret is not None):
        raise UsageError(
            f'{where}: "expect": "redacted" and "secret" belong together; add "secret", the text '
            "of the arguments that the tool must not get"
        )
    return data


def check(
    agent: Target,
    /,
    *,
    probe: Annotated[str, Parameter(help="A file with one call a line, as JSON.")],
    deps: Deps = None,
    debug: Debug = False,
) -> int:
    """Send calls over the paths to their tools, and report those that a guard lets pass."""
    logging.getLogger("hookline").setLevel(logging.ERROR)  # the notes say it once
    located, calls = locate(agent), calls_in(probe)
    return asyncio.run(_check(located, calls, Screen(), deps=deps))


async def _check(located: Located, calls: list[Line], screen: Screen, *, deps: str | None) -> int:
    """Probe each call; returns 1 if one passes a guard by, or if a guard was never asked."""
    agent, make_deps = await located.agent(), deps_at(deps)
    results: list[tuple[Probe, Expected]] = []
    async with aclosing(SecondProcess(located.target, deps)) as second:
        paths = {**DOOR_PATHS, **second.paths}
        for line in calls:
            tool_call = call(line.name, line.arguments)
            result = await probe(
                agent, tool_call, deps=await make_deps(), paths=paths, secret=line.secret
            )
            results.append((result, line.expect))
    failed = False
    for result, expected in results:
        failures = result.failures(expected)
        failed = failed or bool(failures)
        for text in _lines(result, expected, failures):
            screen.line([("", strict(text))])
    names = {name for result, _ in results for name in result.guards}
    for hook in agent.hooks("preToolCall"):
        if hook.guard and hook.name not in names:
            failed = True
            screen.line([("", strict(f"FAIL  guard {hook.name} was never asked"))])
    return 1 if failed else 0


def _lines(result: Probe, expected: Expected, failures: list[str]) -> Iterator[str]:
    """One call of the table: its verdict, and the paths on which it passed or was not sent."""
    mark: str = "ok"
    verdict: str = expected
    paths = f"{len(result.paths(expected))} paths"
    if failures:
        mark, verdict, paths = "FAIL", f"not {expected}", f"{len(failures)} of {paths}"
    arguments = json.dumps(result.call.arguments, ensure_ascii=True)
    yield f"{mark:<5} {result.call.name} {arguments}  {verdict} on {paths}"
    for path in failures:
        other = result.other.get(path)
        yield f"      {result.passages[path]}: {path}" + (
            "" if other is None else f", ran with {json.dumps(other, ensure_ascii=True)}"
        )
    for path, reason in result.left_out.items():
        yield f"      left out: {path} ({reason})"
    for note in result.notes:
        yield f"      {note}"
