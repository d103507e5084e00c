"""The services of `hookline.durable.restate`: a workflow for each chat, and an object for answers.

The object receives all answers and messages to a chat, one at a time, and also the expiry of a
question. The first answer counts. If a client sends several answers, all of them count or none.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from functools import partial
from typing import Any, Final

import restate
from restate.exceptions import RetryableError
from restate.serde import BytesSerde

from hookline import Agent, Response
from hookline.durable._job import (
    LATE,
    MakeDeps,
    Relay,
    encode_decision,
    encode_outcome,
    fields_of,
    log_end,
    run_job,
)
from hookline.durable._shared.deaths import LONGEST_DELAY, PATIENCE, words_of
from hookline.durable._shared.same_machine import LastCall
from hookline.durable._trace import in_trace
from hookline.durable.restate._deaths import toll_of, undone_by, workers_of_the_dead
from hookline.durable.restate._journal_entries import death_in
from hookline.durable.restate._messages import deliver
from hookline.durable.restate._reports import Reports
from hookline.durable.restate._slots import Busy, Slots, Suspect
from hookline.durable.restate._workflow import ABORT, WorkflowLog, answer_to, question
from hookline.errors import JournalError
from hookline.runtimes import Halted, Journal

logger = logging.getLogger("hookline.durable")
_bytes: Final = BytesSerde()
_SOON: Final = timedelta(milliseconds=50)  # before another worker goes on
_REFUSAL_DELAY: Final = timedelta(seconds=30)  # before another worker, or newer code, tries again
_PAUSE: Final = timedelta(seconds=PATIENCE)  # before a chat that was not quarantined asks again
_SILENCE: Final = 10.0  # seconds for which a worker may at least be busy
_LONGEST_DELAY: Final = 10.0  # seconds before a suspect begins, if its deaths may not count
_RETRY: Final = restate.InvocationRetryPolicy(
    initial_interval=timedelta(milliseconds=50),
    exponentiation_factor=1.5,  # with 2.0, a chat waits as long again as its worker was away
    max_interval=timedelta(seconds=1),
    max_attempts=2**31 - 1,
    on_max_attempts="pause",
)


def services_of(
    agent: Agent[Any],
    *,
    deps: MakeDeps | None,
    relay: Relay | None,
    name: str,
    concurrency: int,
    idle: float,
    retention: float,
    lives: set[Journal],
    last_call: LastCall,
    reports: Reports | None,
    max_deaths: int,
) -> Sequence[restate.Workflow | restate.VirtualObject]:
    """Return the services that run an agent's chats; `lives` has the journals of those that run."""
    workflow = restate.Workflow(name)
    gate = restate.VirtualObject(f"{name}-answers", invocation_retry_policy=_RETRY)
    silence = max(idle, _SILENCE)
    wait = timedelta(seconds=silence)
    # Restate gives up a call that is silent for long.
    slots = Slots(concurrency, silence / 2, last_call)

    @workflow.main(
        name="run",
        input_serde=_bytes,
        output_serde=_bytes,
        inactivity_timeout=wait,
        abort_timeout=wait,
        workflow_retention=timedelta(seconds=retention),
        journal_retention=timedelta(seconds=retention),  # it names the conversation of the chat
        invocation_retry_policy=_RETRY,
    )
    async def run(context: restate.WorkflowContext, job: bytes) -> bytes:
        def expire_in(id: str, delay: timedelta) -> None:
            context.object_send(expire, key=context.key(), arg=id, send_delay=delay)

        log = WorkflowLog(context, expire_in, silence / 3, idle)

        async def chat(journal: Journal) -> Response:
            await log.has_opened.wait()  # if the worker dies from now on, it is noticed
            with in_trace(fields_of(job.decode()).trace):
                return await run_job(agent, journal, job.decode(), deps, relay)

        await log.read()
        if log.outcome is not None:
            return log.outcome
        suspect = await _suspect(context, log, reports, max_deaths, slots)
        try:
            async with slots.slot(suspect, log.has_call, log.make_room):
                return await _live(context.key(), chat, log, lives, last_call)
        except Busy as exc:
            raise RetryableError(str(exc), retry_after=timedelta(seconds=exc.delay)) from exc
        except BaseException as exc:
            if log.open_step is not None and not isinstance(exc, RetryableError):
                logger.warning(
                    "durable chat %s was lost: its connection to Restate has ended; another life "
                    "continues it, and what still runs here may run there too",
                    context.key(),
                )
            if log.open_step is not None and reports is not None:
                reports.take_back(context.key(), log.open_step)
            raise

    @workflow.handler(name="undo")
    async def undo(context: restate.WorkflowSharedContext, steps: list[int]) -> None:
        for step in steps:
            promise = context.promise(undone_by(step), serde=_bytes)
            if await promise.peek() is None:
                await promise.resolve(b"undone")

    @workflow.handler(name="abort")
    async def abort(context: restate.WorkflowSharedContext, reason: str) -> None:
        promise = context.promise(ABORT, serde=_bytes)
        if await promise.peek() is None:
            await promise.resolve(reason.encode())

    @workflow.handler(name="pending")
    async def pending(context: restate.WorkflowSharedContext) -> list[str]:
        bodies: list[str] = []
        for key in sorted(await context.state_keys()):
            if not key.startswith(question("")):
                continue
            id = key.removeprefix(question(""))
            if await context.promise(answer_to(id), serde=_bytes).peek() is None:
                body = await context.get(key, serde=_bytes)
                bodies.append((body or b"").decode())
        return bodies

    @workflow.handler(name="settle", ingress_private=True)
    async def settle(context: restate.WorkflowSharedContext, answers: dict[str, str]) -> str | None:
        for id in answers:
            body = await context.get(question(id), serde=_bytes)
            if body is None or await context.promise(answer_to(id), serde=_bytes).peek():
                return id
        for id, decision in answers.items():
            await context.promise(answer_to(id), serde=_bytes).resolve(decision.encode())
        return None

    @workflow.handler(name="deliver", ingress_private=True)
    async def receive(context: restate.WorkflowSharedContext, message: list[Any]) -> str:
        return await deliver(context, *message)

    @gate.handler(name="send")
    async def send(context: restate.ObjectContext, message: list[Any]) -> str:
        return await context.workflow_call(receive, key=context.key(), arg=message)

    @gate.handler(name="answer")
    async def answer(context: restate.ObjectContext, answers: dict[str, str]) -> str | None:
        return await context.workflow_call(settle, key=context.key(), arg=answers)

    @gate.handler(name="expire", ingress_private=True)
    async def expire(context: restate.ObjectContext, id: str) -> None:
        late = {id: encode_decision(LATE)}
        await context.workflow_call(settle, key=context.key(), arg=late)

    return workflow, gate


async def _suspect(
    context: restate.WorkflowContext,
    log: WorkflowLog,
    reports: Reports | None,
    max_deaths: int,
    slots: Slots,
) -> Suspect | None:
    """Return whether a chat is a suspect. Raises RetryableError if it begins later, or never."""
    times = [at for data in log.steps if (at := death_in(data)) is not None]
    if not times:
        return None
    toll = None if reports is None else await reports.toll(context.key(), log.steps)
    delay = LONGEST_DELAY
    if toll is None:  # a death may have been taken back
        toll, delay = toll_of(log.steps, ()), _LONGEST_DELAY
    elif reports is not None and toll.strikes >= max_deaths:
        slots.explain(workers_of_the_dead(log.steps))
        reports.quarantine(context.key(), context.request().id, toll.deaths)
        raise RetryableError(words_of(context.key(), toll.deaths), retry_after=_PAUSE)
    if not toll.deaths:
        return None
    workers = workers_of_the_dead(log.steps)[-toll.deaths :]
    suspect = Suspect(context.key(), max(toll.strikes, 1), workers)
    slots.meet(suspect)
    delay = times[-1] + min(toll.delay, delay) - time.time()
    if delay > 0:
        words = f"the chat begins in {delay:.1f} seconds, because its worker died"
        raise RetryableError(words, retry_after=timedelta(seconds=delay))
    return suspect


async def _live(
    id: str,
    begin: Callable[[Journal], Awaitable[Response]],
    log: WorkflowLog,
    lives: set[Journal],
    last_call: LastCall,
) -> bytes:
    """Run one life of a chat to its outcome; without an outcome, Restate begins another life."""

    async def chat(journal: Journal) -> str:
        came_to: Response | Exception
        try:
            came_to = await journal.carry(lambda: begin(journal))
        except Exception as exc:
            if journal.halted:
                raise
            came_to = exc
        log_end(id, came_to)
        return encode_outcome(id, came_to)

    try:
        journal = await Journal.open(id, log, last_call.worker)
        verb = "began" if journal.number == 1 else "continues"
        logger.info("durable chat %s %s: life %d", id, verb, journal.number)
        journal.receive = log.messages.receive
        journal.on_call = partial(last_call.note, id)
        task = asyncio.ensure_future(chat(journal))
        lives.add(journal)
        try:
            await log.drive(journal, task)
        finally:
            lives.discard(journal)
        return await log.end((await task).encode())
    except Halted as exc:  # this worker was stopped
        raise RetryableError("the worker was stopped", retry_after=_SOON) from exc
    except JournalError as exc:
        logger.error("durable chat %s cannot continue here: %s", id, exc.why)
        raise RetryableError(f"{type(exc).__name__}: {exc}", retry_after=_REFUSAL_DELAY) from exc
