"""`hookline replay`: what a change of an agent's hooks would have done to recorded chats."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Collection
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Final

from cyclopts import Parameter

from hookline import HookDef
from hookline.cli._options import Debug, Deps, Format, Target
from hookline.cli._target import Located, deps_at, locate, object_at, whole
from hookline.cli._terminal.clean_text import strict
from hookline.cli._terminal.screen import Screen
from hookline.durable import client
from hookline.errors import UsageError
from hookline.replay import Report
from hookline.replay import replay as replay_chats

UNITS: Final = {"m": 60, "h": 3_600, "d": 86_400, "w": 604_800}


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class ReplayOptions:
    """The options of `hookline replay`."""

    durable: Annotated[
        bool, Parameter(help="The records are the logs of an engine of durable chats.")
    ] = False
    queue: Annotated[str | None, Parameter(help="The queue of the durable chats.")] = None
    hook: Annotated[
        tuple[str, ...], Parameter(help="module:attribute of a hook definition to add.")
    ] = ()
    without: Annotated[
        tuple[str, ...], Parameter(help="The id or name of a hook to leave out.")
    ] = ()
    since: Annotated[str | None, Parameter(help="Only what is newer: 7d, 12h, or a date.")] = None
    deps: Deps = None
    html: Annotated[str | None, Parameter(help="Write the report to this file, too.")] = None
    fail_on: Annotated[
        tuple[str, ...], Parameter(help="Exit with 1 for a verdict such as denied or allowed.")
    ] = ()
    limit: Annotated[int, Parameter(converter=whole, help="How many verdicts the table lists.")] = (
        50
    )
    output: Annotated[Format, Parameter(help="json: the whole report.")] = "text"
    debug: Debug = False


DEFAULTS: Final = ReplayOptions()


def hooks_at(targets: Collection[str]) -> list[Any]:
    """Return the hook definitions at these places; raises UsageError for anything else."""
    hooks: list[Any] = []
    for target in targets:
        value = object_at(target)
        for hook in value if isinstance(value, (list, tuple)) else [value]:  # pyright: ignore
            if not isinstance(hook, HookDef):
                raise UsageError(
                    f"--hook {target} is {hook!r}, which has no point; make it a definition, with "
                    '@define_hook("preToolCall")'
                )
            hooks.append(hook)
    return hooks


def since_of(text: str | None, now: float) -> float | None:
    """The time that `--since` names: `7d` ago, or a date."""
    if text is None:
        return None
    match = re.fullmatch(r"(\d+)([mhdw])", text)
    if match is not None:
        return now - int(match[1]) * UNITS[match[2]]
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        raise UsageError(
            f"--since {text} must be a time span, such as 7d or 12h, or a date, such as 2026-11-01"
        ) from None


async def _run(records: str, located: Located, options: ReplayOptions, screen: Screen) -> int:
    """Replay the chats and print the report; returns 1 for a verdict that `--fail-on` names."""
    if options.queue is not None and not options.durable:
        raise UsageError(
            f"--queue {options.queue} is a queue of durable chats; add --durable to read their logs"
        )
    hooks, since = hooks_at(options.hook), since_of(options.since, time.time())
    deps = await deps_at(options.deps)()
    async with (
        client(records, queue=options.queue) if options.durable else nullcontext(records)
    ) as source:
        report = await replay_chats(
            source,
            await located.agent(),
            hooks=hooks,
            without=options.without,
            since=since,
            deps=lambda record: deps,
        )
    _show(report, options, screen)
    return 1 if any(report.counts[now] for now in options.fail_on) else 0


def _show(report: Report, options: ReplayOptions, screen: Screen) -> None:
    if options.html is not None:
        Path(options.html).write_text(report.html(), encoding="utf-8")
    if options.output == "json":
        print(report.json())
        return
    for line in report.table(options.limit).splitlines():
        screen.line([("", strict(line))])


def replay(
    records: Annotated[
        str,
        Parameter(help="A store's URL; or a store, a cassette or an audit file."),
    ],
    agent: Target,
    /,
    *,
    options: ReplayOptions = DEFAULTS,
) -> int:
    """Show what a change of an agent's hooks would have done to recorded chats."""
    return asyncio.run(_run(records, locate(agent), options, Screen()))
