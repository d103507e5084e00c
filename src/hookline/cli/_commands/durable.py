"""`hookline durable`: list, inspect, retry, end, drain and delete chats, and check a deploy."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from datetime import datetime
from typing import Annotated, Any, Final, Literal

import msgspec
from cyclopts import App, Parameter

from hookline.cli._target import as_agent, locate, whole
from hookline.cli._terminal.clean_text import strict
from hookline.cli._terminal.screen import Screen
from hookline.cli._terminal.styled_lines import Line, cut
from hookline.cli._terminal.text_layout import pad
from hookline.durable import (
    ChatMessage,
    ChatStatus,
    Client,
    Counts,
    Event,
    Replay,
    check_chats,
    client,
)
from hookline.errors import UsageError
from hookline.events import Interrupt

State = Literal["queued", "running", "waiting", "done", "aborted", "failed", "quarantined"]
_UNITS: Final = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
Url = Annotated[
    str, Parameter(help="The engine of the chats, such as sqlite:///jobs.db or postgresql://….")
]
Id = Annotated[str, Parameter(help="The id of the chat.")]
Queue = Annotated[str | None, Parameter(help="The queue of the workers.")]
Admin = Annotated[
    str | None, Parameter(help="Restate's admin API. Defaults to port 9070 of the same host.")
]
Output = Annotated[Literal["text", "json"], Parameter(help="json: the same as JSON.")]

HELP: Final = """Look after the durable chats of an engine.

For example:

  hookline durable ls sqlite:///jobs.db
  hookline durable ls sqlite:///jobs.db --state quarantined
  hookline durable show sqlite:///jobs.db booking-7
  hookline durable retry sqlite:///jobs.db booking-7
  hookline durable send sqlite:///jobs.db booking-7 "Two seats, please."
  hookline durable abort sqlite:///jobs.db booking-7 --force
  hookline durable drain sqlite:///jobs.db --timeout 60s
  hookline durable resume sqlite:///jobs.db
  hookline durable cleanup sqlite:///jobs.db --older-than 30d
  hookline durable check sqlite:///jobs.db app:agent
"""

app = App(name="durable", help=HELP, help_format="plaintext")


def _run(
    url: str, queue: str | None, admin: str | None, work: Callable[[Client], Awaitable[Any]]
) -> Any:
    async def run() -> Any:
        async with client(url, queue=queue, admin=admin) as jobs:
            return await work(jobs)

    return asyncio.run(run())


def _print(lines: Iterable[Line]) -> None:
    screen = Screen()
    width = screen.width if screen.live else 160
    for line in lines:
        screen.line(cut(line, width))


@app.command
def ls(
    url: Url,
    /,
    *,
    state: Annotated[State | None, Parameter(help="Only chats in this state.")] = None,
    agent: Annotated[str | None, Parameter(help="Only chats of this agent.")] = None,
    key: Annotated[str | None, Parameter(help="Only chats of this key.")] = None,
    conversation: Annotated[
        str | None, Parameter(help="Only chats whose conversation begins with this.")
    ] = None,
    older_than: Annotated[
        str | None, Parameter(help="Only chats that were started before, such as 30s, 2h or 7d.")
    ] = None,
    limit: Annotated[int, Parameter(converter=whole, help="The most chats to list.")] = 100,
    queue: Queue = None,
    admin: Admin = None,
    output: Output = "text",
) -> int:
    """List chats, the oldest first."""
    age = None if older_than is None else seconds_of(older_than)

    async def work(jobs: Client) -> tuple[ChatStatus, ...]:
        return await jobs.list(
            state=state,
            agent=agent,
            key=key,
            conversation=conversation,
            older_than=age,
            limit=limit,
        )

    chats: tuple[ChatStatus, ...] = _run(url, queue, admin, work)
    if output == "json":
        print(json.dumps(msgspec.to_builtins(chats), indent=2))
        return 0
    _print(map(_row, chats) if chats else [[("dim", "no chats")]])
    return 0


def _row(chat: ChatStatus) -> Line:
    kind = {"failed": "bad", "quarantined": "bad", "waiting": "mark"}.get(chat.state, "")
    more = [f"key {chat.key}"] if chat.key else []
    more += [f"version {chat.version}"] if chat.version else []
    more += [f"{chat.deaths} deaths"] if chat.deaths else []
    return [
        ("dim", f"{_time(chat.created)}  "),
        ("name", pad(strict(chat.id), 24)),
        (kind, f"  {chat.state:<12}"),
        ("", strict(chat.agent or "")),
        ("dim", strict("  " + ", ".join(more)) if more else ""),
    ]


@app.command
def show(
    url: Url, id: Id, /, *, queue: Queue = None, admin: Admin = None, output: Output = "text"
) -> int:
    """Show what has happened to a chat: its lives, steps, questions and answers."""

    async def work(jobs: Client) -> tuple[ChatStatus, tuple[Event, ...]]:
        return await jobs.status(id), await jobs.timeline(id)

    status, events = _run(url, queue, admin, work)
    if output == "json":
        print(json.dumps([msgspec.to_builtins(event) for event in events], indent=2))
        return 0
    _print([_row(status), *map(_event, events)])
    return 0


def _event(event: Event) -> Line:
    kind = {"death": "bad", "loss": "bad", "question": "mark", "answer": "mark"}
    return [
        ("dim", f"{_time(event.at)}  "),
        (kind.get(event.kind, "name"), f"{event.kind:<9}"),
        ("", strict(event.name)),
        ("dim", strict(f"  {event.text}") if event.text else ""),
    ]


@app.command
def retry(url: Url, id: Id, /, *, queue: Queue = None, admin: Admin = None) -> int:
    """Queue a quarantined chat again."""
    _run(url, queue, admin, lambda jobs: jobs.retry(id))
    return 0


@app.command
def quarantine(url: Url, id: Id, /, *, queue: Queue = None, admin: Admin = None) -> int:
    """Put a chat that no worker runs into quarantine, until it is retried."""
    _run(url, queue, admin, lambda jobs: jobs.quarantine(id))
    return 0


@app.command
def send(
    url: Url,
    id: Id,
    text: Annotated[str, Parameter(help="The message.")],
    /,
    *,
    when: Annotated[
        Literal["next", "idle", "interrupt"],
        Parameter(
            help="next: before the next request; idle: when the chat would end; interrupt: cancel "
            "the running tools that are idempotent first."
        ),
    ] = "next",
    queue: Queue = None,
    admin: Admin = None,
) -> int:
    """Send a message into a chat. Exits with 1 if it is not delivered and will not be."""

    async def work(jobs: Client) -> ChatMessage:
        if when == "interrupt":
            return await jobs.send(id, Interrupt(text))
        return await jobs.send(id, text, when=when)

    message: ChatMessage = _run(url, queue, admin, work)
    if message.status == "returned":
        Screen().fault(f"not delivered to chat {strict(id)}: {strict(str(message.reason))}")
        return 1
    return 0


@app.command
def abort(
    url: Url,
    id: Id,
    /,
    *,
    reason: Annotated[str | None, Parameter(help="The reason, for hooks and the result.")] = None,
    force: Annotated[bool, Parameter(help="End a chat that no worker runs at once.")] = False,
    queue: Queue = None,
    admin: Admin = None,
) -> int:
    """Abort a chat."""
    if not _run(url, queue, admin, lambda jobs: jobs.abort(id, reason, force=force)):
        Screen().fault(f"chat {strict(id)} is over")
        return 1
    return 0


@app.command
def drain(
    url: Url,
    /,
    *,
    timeout: Annotated[
        str | None, Parameter(help="How long to wait for running calls, such as 60s or 5m.")
    ] = None,
    queue: Queue = None,
    admin: Admin = None,
) -> int:
    """Let workers take no chats until `resume`, and wait until no chat runs.

    Running model calls and tool calls end; their chats wait. Exits with 1 if some still run.
    """
    limit = None if timeout is None else seconds_of(timeout)

    async def work(jobs: Client) -> Counts:
        with suppress(TimeoutError):
            await jobs.drain(timeout=limit)
        return await jobs.counts()

    counts: Counts = _run(url, queue, admin, work)
    figures = f"{counts.queued + counts.resting} wait, {counts.quarantined} are quarantined"
    if counts.running:
        Screen().fault(f"not drained yet: {counts.running} chats run, {figures}")
        return 1
    print(f"drained: no chat runs, {figures}")
    return 0


@app.command
def resume(url: Url, /, *, queue: Queue = None, admin: Admin = None) -> int:
    """Let workers take chats again, after `drain`."""
    _run(url, queue, admin, lambda jobs: jobs.resume())
    return 0


@app.command
def cleanup(
    url: Url,
    /,
    *,
    older_than: Annotated[str, Parameter(help="How long ago they ended, such as 30s, 2h or 7d.")],
    queue: Queue = None,
    admin: Admin = None,
) -> int:
    """Delete the chats that ended long ago, with their records."""
    age = seconds_of(older_than)
    print(f"{_run(url, queue, admin, lambda jobs: jobs.cleanup(older_than=age))} chats deleted")
    return 0


@app.command
def check(
    url: Url,
    agent: Annotated[str, Parameter(help="module:attribute of the agent.")],
    /,
    *,
    queue: Queue = None,
    admin: Admin = None,
    timeout: Annotated[float, Parameter(help="The most seconds for each chat.")] = 10.0,
) -> int:
    """Replay the records of all open chats with this code; exit with 1 if a chat does not fit.

    Nothing runs and nothing is changed.
    """
    located = locate(agent)

    async def work(jobs: Client) -> tuple[Replay, ...]:
        return await check_chats(await as_agent(located, agent), jobs, timeout=timeout)

    replays: tuple[Replay, ...] = _run(url, queue, admin, work)
    misfits = [replay for replay in replays if not replay.fits]
    _print(_verdict(replay) for replay in replays if replay.why)
    print(f"{len(replays)} open chats, {len(misfits)} do not fit")
    return 1 if misfits else 0


def _verdict(replay: Replay) -> Line:
    kind = "dim" if replay.fits else "bad"
    return [("name", strict(replay.id)), (kind, f"  {strict(replay.why)}")]


def seconds_of(text: str) -> float:
    """Return the seconds of a duration such as `30s`, `2h` or `7d`. Raises UsageError."""
    try:
        return float(text[:-1]) * _UNITS[text[-1:]]
    except (KeyError, ValueError):
        raise UsageError(
            f"{text!r} is not a duration; use a number and s, m, h or d, such as 7d"
        ) from None


def _time(at: float) -> str:
    return datetime.fromtimestamp(at).strftime("%Y-%m-%d %H:%M:%S")
