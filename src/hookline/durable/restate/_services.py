"""The services of `hookline.durable.restate`: a workflow for each chat, and an object for answers.

The object receives all answers and messages to a chat, one at a time, and also the expiry of a
question. The first answer counts. If a client sends several answers, all of them count or none.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
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
    run_job,
)
from hookline.durable._polled.deaths import Toll, is_call
from hookline.durable._trace import in_trace
from hookline.durable.restate._messages import deliver
from hookline.durable.restate._workflow import ABORT, WorkflowLog, answer_to, question
from hookline.errors import JournalError
from hookline.runtimes import Halted, Journal, read_log

logger = logging.getLogger("hookline.durable")
_bytes: Final = BytesSerde()
_SOON: Final = timedelta(milliseconds=50)  # before another worker goes on
_BUSY: Final = timedelta(seconds=1)  # before a chat asks for a place again
_REFUSAL_DELAY: Final = timedelta(seconds=30)  # before another worker, or newer code, tries again
_LONGEST_DELAY: Final = 10.0  # seconds before a chat whose lives record nothing goes on
_RETRY: Final = restate.InvocationRetryPolicy(
    initial_interval=timedelta(milliseconds=50),
    exponentiation_factor=2.0,
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
) -> Sequence[restate.Workflow | restate.VirtualObject]:
    """Return the services that run an agent's chats; `lives` has the journals of those that run."""
    workflow = restate.Workflow(name)
    gate = restate.VirtualObject(f"{name}-answers", invocation_retry_policy=_RETRY)
    wait = timedelta(seconds=idle)
    slots = asyncio.Semaphore(concurrency)

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

        log = WorkflowLog(context, expire_in, idle / 3)

        async def chat(journal: Journal) -> Response:
            # Other chats go on meanwhile, should this one kill the worker again.
            if delay := min(_delay_after(context.key(), log.batches), idle / 3):
                logger.info("durable chat %s goes on in %.1f s", context.key(), delay)
                await asyncio.sleep(delay)
            with in_trace(fields_of(job.decode()).trace):
                return await run_job(agent, journal, job.decode(), deps, relay)

        try:  # Restate gives up a call that is silent for long
            await asyncio.wait_for(slots.acquire(), idle / 2)
        except TimeoutError as exc:
            raise RetryableError("the worker is busy", retry_after=_BUSY) from exc
        try:
            return await _live(context.key(), chat, log, lives)
        finally:
            slots.release()

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


def _delay_after(id: str, batches: list[bytes]) -> float:
    """Return the seconds before the next life; from the second without progress, they double.

    Progress is a recorded call or answer. The lives in a row without it count. The record does not
    tell the death of a worker from another end, so this only delays the chat.
    """
    lives, begins = 0, set[str]()
    for line in read_log(id, batches):
        if line.kind == "life":
            lives += 1
            begins.clear()
        elif line.kind == "begin":
            begins.add(line.key)
        elif line.kind == "end":
            call_ended = is_call(line.key) and line.key in begins
            if call_ended or line.key.endswith("/answer"):
                lives = 0
    return min(Toll(stalls=lives).delay, _LONGEST_DELAY)


async def _live(
    id: str,
    begin: Callable[[Journal], Awaitable[Response]],
    log: WorkflowLog,
    lives: set[Journal],
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
        return encode_outcome(id, came_to)

    try:
        journal = await Journal.open(id, log)
        journal.receive = log.messages.receive
        task = asyncio.ensure_future(chat(journal))
        lives.add(journal)
        try:
            await log.drive(journal, task)
        finally:
            lives.discard(journal)
        return (await task).encode()
    except Halted as exc:  # this worker was stopped
        raise RetryableError("the worker was stopped", retry_after=_SOON) from exc
    except JournalError as exc:
        logger.error("durable chat %s cannot continue here: %s", id, exc.why)
        raise RetryableError(f"{type(exc).__name__}: {exc}", retry_after=_REFUSAL_DELAY) from exc
