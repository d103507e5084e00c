"""A worker that is stopped: running calls come to their end, and other workers go on from there."""

from __future__ import annotations

import asyncio
from collections import Counter
from importlib import import_module
from itertools import count
from typing import Any

import pytest
from tests.durable._engines import Engine
from tests.durable.test_engines import asking, waits

from hookline import Agent, Approve, Run, tool
from hookline.durable import Client
from hookline.models import Finish, TextChunk
from hookline.runtimes import Durable
from hookline.testing import ScriptedModel, call

PATIENT: dict[str, dict[str, Any]] = {
    "sqlite": {"lease": 1000.0},
    "postgres": {"lease": 1000},
    "restate": {"idle": 1000.0},
}


class Bank:
    """Two calls side by side, which end when they are let."""

    def __init__(self) -> None:
        self.began: list[str] = []
        self.both = asyncio.Event()
        self.may_end = {name: asyncio.Event() for name in ("pay", "look")}

    def agent(self, *turns: Any) -> Agent[Any]:
        async def work(name: str) -> str:
            self.began.append(name)
            if len(self.began) == 2:
                self.both.set()
            await self.may_end[name].wait()
            return f"{name}: done"

        async def pay() -> str:
            """Pay."""
            return await work("pay")

        async def look() -> str:
            """Look."""
            return await work("look")

        return Agent(ScriptedModel(*turns), tools=[pay, look], runtime=Durable())


def results(response: Any) -> list[str]:
    return [each.text for each in response.messages if each.role == "tool"]


async def test_a_worker_that_is_stopped_lets_its_running_calls_end_and_begins_nothing_else(
    engine: Engine, client: Client
) -> None:
    """The lease is longer than the test: nobody waits for it."""
    bank, patient = Bank(), PATIENT[engine.name]
    first = bank.agent([call("pay"), call("look")], "never")
    worker = engine.worker(first, **patient)
    async with worker:
        id = await client.start("Go.")
        await bank.both.wait()
        worker.stop(1000.0)
        bank.may_end["pay"].set()
        late = await client.start("Hi.")
        bank.may_end["look"].set()
    assert len(first.model.requests) == 1  # type: ignore[attr-defined]
    async with engine.worker(bank.agent("Done.", "Hello."), **patient):
        response = await client.result(id)
        await client.result(late)
    assert results(response) == ["pay: done", "look: done"]
    assert bank.began == ["pay", "look"]


@pytest.mark.parametrize("engine", ["sqlite", "postgres"], indirect=True)
async def test_a_queue_that_is_drained_lets_running_calls_end_and_begins_no_chat_until_it_resumes(
    engine: Engine, client: Client
) -> None:
    bank, patient = Bank(), PATIENT[engine.name]
    agent = bank.agent([call("pay"), call("look")], "Done.", "Hello.")
    async with engine.worker(agent, **patient):
        id = await client.start("Go.")
        await bank.both.wait()
        with pytest.raises(TimeoutError):
            await client.drain(timeout=0.3)
        assert (await client.counts()).running == 1
        late = await client.start("Hi.")
        for event in bank.may_end.values():
            event.set()
        async with asyncio.timeout(60):
            await client.drain()
        counts = await client.counts()
        assert (counts.running, counts.queued, counts.drained) == (0, 2, True)
        assert len(agent.model.requests) == 1  # type: ignore[attr-defined]
        with pytest.raises(TimeoutError):  # its workers look many times meanwhile
            await client.result(late, timeout=0.5)
        await client.resume()
        async with asyncio.timeout(60):
            response = await client.result(id)
            await client.result(late)
    assert results(response) == ["pay: done", "look: done"]
    assert bank.began == ["pay", "look"]
    assert not (await client.counts()).drained
    assert [status.deaths for status in await client.list()] == [0, 0]


@pytest.mark.parametrize("engine", ["sqlite", "postgres"], indirect=True)
async def test_a_worker_of_a_queue_that_is_drained_releases_the_suspects_that_wait_for_their_turn(
    engine: Engine, client: Client
) -> None:
    id = await client.start("Hi.")
    worker = engine.worker(Agent(ScriptedModel("Hello."), runtime=Durable()))
    [claim] = await worker._jobs.take("mine", 9)
    worker._suspects.add(claim)
    with pytest.raises(TimeoutError):
        await client.drain(timeout=0.3)
    await worker._look_after()
    assert (await client.status(id)).state == "queued"
    await client.resume()
    await worker._jobs.aclose()


async def test_a_chat_that_comes_to_its_end_in_time_is_over(engine: Engine, client: Client) -> None:
    says, may_end = asyncio.Event(), asyncio.Event()

    class Slow:
        name = "slow"

        async def stream(self, request: Any) -> Any:
            says.set()
            await may_end.wait()
            yield TextChunk("Hello.")
            yield Finish(finish_reason="stop")

    worker = engine.worker(Agent(Slow(), runtime=Durable()), **PATIENT[engine.name])
    async with worker:
        id = await client.start("Hi.")
        await says.wait()
        worker.stop(1000.0)
        may_end.set()
    async with engine.worker(Agent(ScriptedModel(), runtime=Durable())):
        assert (await client.result(id)).text == "Hello."


async def test_a_call_that_does_not_end_in_time_is_cut_off(engine: Engine, client: Client) -> None:
    bank, patient = Bank(), PATIENT[engine.name]
    worker = engine.worker(bank.agent([call("pay"), call("look")], "never"), **patient)
    async with worker:
        id = await client.start("Go.")
        await bank.both.wait()
        worker.stop(0.0)
    async with engine.worker(bank.agent("Done."), **patient):
        response = await client.result(id)
    assert all("may have run" in each for each in results(response))
    assert bank.began == ["pay", "look"]


async def test_a_chat_that_waits_does_not_hold_up_a_worker_that_is_stopped(
    engine: Engine, client: Client
) -> None:
    ran: list[str] = []
    patient = PATIENT[engine.name]
    worker = engine.worker(asking(ran, call("delete", path="a"), "never"), **patient)
    async with worker:
        id = await client.start("Delete a.")
        request = await waits(client, id)
        worker.stop(1000.0)
    async with engine.worker(asking(ran, "Done."), **patient):
        await client.answer(id, {request: Approve()})
        assert (await client.result(id)).text == "Done."
    assert ran == ["a"]


@pytest.mark.parametrize("engine", ["restate"], indirect=True)
async def test_a_chat_that_restate_may_suspend_does_not_hold_up_a_worker_that_is_stopped(
    engine: Engine, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_rest = asyncio.Event()
    restate: Any = import_module("restate")
    wait_completed = restate.wait_completed

    def watched(*futures: Any) -> Any:
        if len(futures) == 2:  # the answer and the abort: no step is open
            at_rest.set()
        return wait_completed(*futures)

    monkeypatch.setattr(restate, "wait_completed", watched)
    ran: list[str] = []
    worker = engine.worker(asking(ran, call("delete", path="a"), "never"), idle=1000.0)
    async with worker:
        id = await client.start("Delete a.")
        request = await waits(client, id)
        await at_rest.wait()
        worker.stop(1000.0)
    async with engine.worker(asking(ran, "Done."), idle=1000.0):
        await client.answer(id, {request: Approve()})
        assert (await client.result(id)).text == "Done."
    assert ran == ["a"]


async def test_workers_that_follow_one_another_interrupt_no_call_of_many_chats(
    engine: Engine, client: Client
) -> None:
    """Each worker is stopped while its chats run, and the next one begins: a deploy under load."""
    runs: Counter[tuple[str, int]] = Counter()
    has_begun = asyncio.Condition()

    @tool
    async def work(number: int, run: Run[Any]) -> str:
        """Work."""
        async with has_begun:
            runs[run.chat_id, number] += 1
            has_begun.notify_all()
        await asyncio.sleep(0.05)
        return f"worked {number}"

    steps = [[call("work", number=step), call("work", number=10 + step)] for step in range(3)]

    def turn(request: Any) -> Any:
        done = sum(message.role == "assistant" for message in request.messages)
        return steps[done] if done < len(steps) else "Done."

    async def deploy() -> None:
        for number in count():
            model = ScriptedModel(turn, repeat=True)
            worker = engine.worker(Agent(model, tools=[work], runtime=Durable()), **patient)
            async with worker:
                is_up.set()
                async with has_begun:
                    await has_begun.wait_for(lambda: runs.total() > 15 * (number + 1))  # noqa: B023
                worker.stop(1000.0)

    patient, is_up = PATIENT[engine.name], asyncio.Event()
    deploys = asyncio.create_task(deploy())
    await is_up.wait()
    ids = [await client.start("Go.") for _ in range(10)]
    responses = [await client.result(id) for id in ids]
    deploys.cancel()
    await asyncio.wait([deploys])
    expected = [f"worked {number}" for step in range(3) for number in (step, 10 + step)]
    assert [results(response) for response in responses] == [expected] * 10
    assert set(runs.values()) == {1}
    assert [status.deaths for status in await client.list()] == [0] * 10
