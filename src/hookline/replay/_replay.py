"""`replay`: each record is played with the agent as it is, and with the change of its hooks."""

from __future__ import annotations

import os
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable
from typing import Any, TypeAlias

from hookline import Agent
from hookline.durable import Client
from hookline.errors import UsageError
from hookline.points import as_tuple
from hookline.replay._player import Player
from hookline.replay._records import Record
from hookline.replay._report import Report, inexact_reasons, verdicts_of
from hookline.replay._sources import Source, Unreadable, readings_in
from hookline.storage import Store

Records: TypeAlias = Source | Iterable[Record] | AsyncIterable[Record]
"""A store, its URL, a client of durable chats, a file, or records read from somewhere else."""


async def replay(
    records: Records,
    agent: Agent[Any],
    *,
    hooks: Any = (),
    without: Iterable[str] = (),
    deps: Callable[[Record], Any] | None = None,
    since: float | None = None,
) -> Report:
    """Return what this change of the agent's hooks would have done to recorded chats.

    `hooks` are added to the agent's hooks; hooks whose id or name is in `without` are left out.
    `deps` makes the deps of a chat from its record. `since` is a time in seconds since the epoch:
    conversations and chats before it are left out. Conversations and logs that cannot be read are
    in the report, with the reason.

    A call that asks for an approval gets the decision of the record, and is approved if there is
    none. After the first difference of a chat, the model might have written something else; these
    verdicts have `after=True`. Hooks see the time of the record. Observers do not run. A hook that
    opens a connection or starts a program raises an error. Raises UsageError if there are no
    records, or if `hooks` and `without` change nothing.
    """
    additions = as_tuple("hooks", hooks)
    exclusions = as_tuple("without", without)
    if not additions and not exclusions:
        raise UsageError(
            f"hooks={hooks!r} and without={without!r} change nothing; pass the hooks to try out, "
            "or the names of hooks to leave out"
        )
    _check_names(exclusions, agent)
    base = Player(agent, deps=deps)
    candidate = Player(agent, hooks=additions, without=exclusions, deps=deps)
    report = Report()
    async for record in _iterate(records, since):
        if isinstance(record, Unreadable):
            report.unreadable.append(f"{record.id}: {record.error}")
            continue
        report.chats += 1
        before = await base.play(record)
        questions = {id for id, call in before.calls.items() if call.prompts}
        after = await candidate.play(record, questions)
        report.verdicts += verdicts_of(record, before, after)
        report.inexact.update(inexact_reasons(record, before))
    if not report.chats and not report.unreadable:
        raise UsageError(f"records={records!r} has no chats; check the URL or path, and since=")
    return report


def _check_names(names: Iterable[str], agent: Agent[Any]) -> None:
    """Raise UsageError for a name that no hook of the agent has."""
    registered = {name for hook in agent.hooks() for name in (hook.id, hook.name)}
    for name in names:
        if name not in registered:
            choices = ", ".join(sorted(repr(name) for name in registered if name)) or "none"
            raise UsageError(f"without={name!r} is not a hook of the agent; name one of: {choices}")


async def _iterate(records: Records, since: float | None) -> AsyncIterator[Record | Unreadable]:
    if isinstance(records, (Store, Client, str, os.PathLike)):
        async for reading in readings_in(records, since=since):
            yield reading
    elif isinstance(records, AsyncIterable):
        async for record in records:
            yield record
    else:
        for record in records:
            yield record
