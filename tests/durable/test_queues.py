"""Several agents in one place: each worker runs the chats of its own agent."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.durable._engines import Engine

from hookline import Agent
from hookline.durable import Client
from hookline.errors import RemoteChatError, UsageError
from hookline.runtimes import Durable
from hookline.testing import ScriptedModel, call


def agent_of(name: str, *turns: Any) -> Agent[Any]:
    return Agent(ScriptedModel(*turns), runtime=Durable(), name=name)


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["sqlite", "postgres"], indirect=True)
async def test_a_worker_leaves_the_chats_of_another_agent_to_that_agents_workers(
    engine: Engine, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    told: list[str] = []

    bank, zoo = agent_of("bank", "A bank."), agent_of("zoo", "A zoo.")
    async with engine.worker(zoo):
        first = await client.start("Hi.", agent="bank")
        second = await client.start("Hi.", agent="zoo")
        assert (await client.result(second)).text == "A zoo."
        while not told:
            told = [each for each in caplog.messages if "bank" in each]
            await asyncio.sleep(0.01)
        async with engine.worker(bank):
            assert (await client.result(first)).text == "A bank."
    assert told == [
        "chats of agent 'bank' wait for a worker of that agent: this worker runs agent 'zoo'"
    ]


async def test_a_chat_that_names_no_agent_runs_on_any_worker(
    engine: Engine, client: Client
) -> None:
    async with engine.worker(agent_of("zoo", "A zoo.")):
        assert (await client.result(await client.start("Hi."))).text == "A zoo."


@pytest.mark.parametrize("engine", ["restate"], indirect=True)
async def test_restate_cannot_leave_a_chat_to_another_worker_so_it_fails(
    engine: Engine, client: Client
) -> None:
    async with engine.worker(agent_of("zoo", "A zoo.")):
        id = await client.start("Hi.", agent="bank")
        with pytest.raises(RemoteChatError, match=r"is for agent 'bank'.*runs agent 'zoo'"):
            await client.result(id)


async def test_the_name_of_an_agent_is_text(client: Client) -> None:
    with pytest.raises(UsageError, match="agent=7"):
        await client.start("Hi.", agent=7)  # type: ignore[arg-type]


async def test_an_agent_may_hand_its_chat_to_another_one(engine: Engine, client: Client) -> None:
    zoo = agent_of("zoo", "A zoo.")
    bank = agent_of("bank", call("transfer_to_zoo", reason="animals"))
    bank.handoffs(zoo)
    async with engine.worker(bank):
        id = await client.start("Hi.", agent="bank")
        assert (await client.result(id)).text == "A zoo."
