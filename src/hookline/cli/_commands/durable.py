"""`hookline durable`: list, inspect, answer, end, drain and delete chats, and check a deploy."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from contextlib import aclosing, suppress
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal

import msgspec
from cyclopts import App, Parameter

from hookline import ApprovalRequest, Approve, Deny, __version__
from hookline.cli import _help
from hookline.cli._commands.durable_lines import (
    chat_row,
    chat_rows,
    event_row,
    figures,
    number_of,
    others_line,
    question_row,
    seconds_of,
    verdict_row,
)
from hookline.cli._options import Debug, Format
from hookline.cli._target import locate, whole
from hookline.cli._terminal.clean_text import strict
from hookline.cli._terminal.screen import Screen, show_data, show_lines
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
OPEN: Final[tuple[State, ...]] = ("queued", "running", "waiting")
ALL: Final = 1_000_000
Url = Annotated[
    str, Parameter(help="The engine of the chats, such as sqlite:///jobs.db or postgresql://….")
]
Id = Annotated[str, Parameter(help="The id of the chat.")]
Output = Annotated[Format, Parameter(help="json: the same as JSON.")]


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Options:
    """The options of every command."""

    queue: Annotated[str | None, Parameter(help="The queue of the workers.")] = None
    admin: Annotated[
        str | None, Parameter(help="Restate's admin API. Defaults to port 9070 of the same host.")
    ] = None
    debug: Debug = False


DEFAULTS: Final = Options()

app = App(name="durable", help=_help.DURABLE, help_format="plaintext", version=__version__)


def _run(
    url: str, options: Options, work: Callable[[Client], Awaitable[Any]], *, of_queue: bool = False
) -> Any:
    """Do the work of a command; if it is about a queue, see that there is one."""

    async def run() -> Any:
        async with client(url, queue=options.queue, admin=options.admin) as jobs:
            if of_queue:
                await _look(jobs, options.queue or "hookline")
            return await work(jobs)

    return asyncio.run(run())


async def _look(jobs: Client, queue: str) -> None:
    """Name the queues with chats if this one has none. Raises UsageError if there are no tables."""
    queues = await jobs.queues()
    if queues and queue not in queues:
        Screen().fault(strict(f"queue {queue!r} has no chats; these have: {', '.join(queues)}"))


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
    options: Options = DEFAULTS,
    output: Output = "text",
) -> None:
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

    chats: tuple[ChatStatus, ...] = _run(url, options, work, of_queue=True)
    show_data(msgspec.to_builtins(chats), chat_rows(chats), output)
    if output == "text" and len(chats) == limit:
        Screen().fault(f"there may be more than these {limit} chats: raise --limit")


@app.command
def counts(url: Url, /, *, output: Output = "text", options: Options = DEFAULTS) -> None:
    """Count the chats of a queue that are not over."""
    result: Counts = _run(url, options, lambda jobs: jobs.counts(), of_queue=True)
    if output == "json":
        print(json.dumps(msgspec.to_builtins(result), indent=2))
        return
    end = "; drained: workers take no chats before resume" if result.drained else ""
    oldest = f"; the oldest is queued for {result.oldest:.0f} s" if result.queued else ""
    print(f"{result.running} running, {figures(result)}{oldest}{end}")


@app.command
def show(url: Url, id: Id, /, *, output: Output = "text", options: Options = DEFAULTS) -> None:
    """Show what has happened to a chat: its lives, steps, questions and answers."""

    async def work(jobs: Client) -> tuple[ChatStatus, tuple[Event, ...]]:
        events = await jobs.timeline(id)
        return await jobs.status(id), events

    status, events = _run(url, options, work)
    lines = [chat_row(status), *map(event_row, events)]
    show_data(msgspec.to_builtins(events), lines, output)


@app.command
def watch(url: Url, id: Id, /, *, options: Options = DEFAULTS) -> None:
    """Show what happens to a chat, until it is over."""

    async def work(jobs: Client) -> None:
        async with aclosing(jobs.watch(id)) as events:
            async for event in events:
                show_lines([event_row(event)])

    _run(url, options, work)


@app.command
def pending(url: Url, id: Id, /, *, output: Output = "text", options: Options = DEFAULTS) -> None:
    """List the calls of a chat that wait for an answer, each with its id."""
    requests: tuple[ApprovalRequest, ...] = _run(url, options, lambda jobs: jobs.pending(id))
    lines = [*map(question_row, requests)] or [[("dim", "no call waits")]]
    show_data([json.loads(request.to_json()) for request in requests], lines, output)


@app.command
def answer(
    url: Url,
    id: Id,
    request: Annotated[str, Parameter(help="The id of the waiting call, as `pending` lists it.")],
    /,
    *,
    approve: Annotated[bool, Parameter(help="Let the call run.")] = False,
    deny: Annotated[str | None, Parameter(help="Refuse the call, for this reason.")] = None,
    by: Annotated[str | None, Parameter(help="Who answers.")] = None,
    options: Options = DEFAULTS,
) -> None:
    """Answer a call that waits: --approve, or --deny with a reason for the model."""
    if approve == (deny is not None):
        raise UsageError(f"{request!r} needs one answer: --approve, or --deny and a reason")
    decision = Approve(by=by) if deny is None else Deny(deny, by=by)
    _run(url, options, lambda jobs: jobs.answer(id, {request: decision}))
    print(f"{strict(request)} is {'approved' if deny is None else 'denied'}")


@app.command
def retry(url: Url, id: Id, /, *, options: Options = DEFAULTS) -> None:
    """Queue a quarantined chat again."""
    _run(url, options, lambda jobs: jobs.retry(id))
    print(f"chat {id} is queued")


@app.command
def quarantine(url: Url, id: Id, /, *, options: Options = DEFAULTS) -> None:
    """Put a chat that no worker runs into quarantine, until it is retried."""
    _run(url, options, lambda jobs: jobs.quarantine(id))
    print(f"chat {id} is quarantined")


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
    options: Options = DEFAULTS,
) -> int:
    """Send a message into a chat. Exits with 1 if it is not delivered and will not be."""

    async def work(jobs: Client) -> ChatMessage:
        if when == "interrupt":
            return await jobs.send(id, Interrupt(text))
        return await jobs.send(id, text, when=when)

    message: ChatMessage = _run(url, options, work)
    if message.status == "returned":
        Screen().fault(f"not delivered to chat {strict(id)}: {strict(str(message.reason))}")
        return 1
    print(f"message {message.message.id} is {message.status}")
    return 0


@app.command
def abort(
    url: Url,
    id: Id,
    /,
    *,
    reason: Annotated[str | None, Parameter(help="The reason, for hooks and the result.")] = None,
    force: Annotated[bool, Parameter(help="End a chat that no worker runs at once.")] = False,
    options: Options = DEFAULTS,
) -> int:
    """Abort a chat."""
    if not _run(url, options, lambda jobs: jobs.abort(id, reason, force=force)):
        Screen().fault(f"chat {strict(id)} is over")
        return 1
    print(f"the abort of chat {id} is {'done or requested' if force else 'requested'}")
    return 0


@app.command
def delete(url: Url, id: Id, /, *, options: Options = DEFAULTS) -> None:
    """Delete a chat that is over or quarantined, with its record, input and outcome."""
    _run(url, options, lambda jobs: jobs.delete(id))
    print(f"chat {id} is deleted")


@app.command
def drain(
    url: Url,
    /,
    *,
    timeout: Annotated[
        str | None, Parameter(help="How long to wait for running calls, such as 60s or 5m.")
    ] = None,
    options: Options = DEFAULTS,
) -> int:
    """Let workers take no chats until `resume`, and wait until no chat runs.

    Running model calls and tool calls end; their chats wait. Exits with 1 if some still run.
    """
    limit = None if timeout is None else seconds_of(timeout)

    async def work(jobs: Client) -> Counts:
        with suppress(TimeoutError):
            await jobs.drain(timeout=limit)
        return await jobs.counts()

    result: Counts = _run(url, options, work, of_queue=True)
    if result.running:
        Screen().fault(f"not drained yet: {result.running} running, {figures(result)}")
        return 1
    print(f"drained: 0 running, {figures(result)}")
    return 0


@app.command
def resume(url: Url, /, *, options: Options = DEFAULTS) -> None:
    """Let workers take chats again, after `drain`."""
    _run(url, options, lambda jobs: jobs.resume(), of_queue=True)
    print("workers take chats")


@app.command
def cleanup(
    url: Url,
    /,
    *,
    older_than: Annotated[str, Parameter(help="How long ago they ended, such as 30s, 2h or 7d.")],
    options: Options = DEFAULTS,
) -> None:
    """Delete the chats that ended long ago, with their records."""
    age = seconds_of(older_than)
    count: int = _run(url, options, lambda jobs: jobs.cleanup(older_than=age), of_queue=True)
    print(f"{number_of(count, 'chat')} deleted")


@app.command
def check(
    url: Url,
    agent: Annotated[str, Parameter(help="module:attribute of the agent.")],
    /,
    *,
    options: Options = DEFAULTS,
    timeout: Annotated[float, Parameter(help="The most seconds for each chat.")] = 10.0,
) -> int:
    """Replay the records of all open chats with this code; exit with 1 if a chat does not fit.

    Nothing runs and nothing is changed. Also exits with 1 if all open chats of the queue are for
    other agents.
    """
    located = locate(agent)

    async def work(jobs: Client) -> tuple[str, tuple[Replay, ...], list[ChatStatus]]:
        deployed = await located.agent()
        name = deployed.name
        chats = [chat for state in OPEN for chat in await jobs.list(state=state, limit=ALL)]
        others = [chat for chat in chats if chat.agent not in (None, name)]
        return name, await check_chats(deployed, jobs, timeout=timeout), others

    name, replays, others = _run(url, options, work, of_queue=True)
    misfits = [replay for replay in replays if not replay.fits]
    show_lines(verdict_row(replay) for replay in replays if replay.why)
    verb = "does" if len(misfits) == 1 else "do"
    print(f"{number_of(len(replays), 'open chat')}, {len(misfits)} {verb} not fit")
    if others:
        print(strict(others_line(others)))
    if others and not replays:
        Screen().fault(
            strict(
                f"no open chat is for agent {name!r}: if the agent was renamed, these chats wait "
                "for a worker with the old name"
            )
        )
    return 1 if misfits or (others and not replays) else 0
