"""The last look in a durable chat, whose call waits for an answer in the engine's file."""

import asyncio

import pytest

from hookline import Agent, Approve, Ask, Deny
from hookline.durable import chats, client
from hookline.runtimes import Durable
from hookline.testing import ScriptedModel, call


@pytest.mark.parametrize("road", ["tightened", "changed"])
async def test_a_guard_refuses_what_was_approved_in_a_durable_chat(road, tmp_path):
    where = f"sqlite:///{tmp_path / 'jobs.db'}"
    ran, denied = [], ["bad"]

    async def bash(command: str) -> str:
        ran.append(command)
        return "ran"

    model = ScriptedModel(call("bash", command="good"), "done")
    agent = Agent(model, name="shell", tools=[bash], runtime=Durable())
    asked = asyncio.Event()
    agent.add_hook(
        "preToolCall",
        lambda ctx: Deny("no") if ctx.call.arguments["command"] in denied else None,
        on_error="deny",
    )
    agent.add_hook("preToolCall", lambda ctx: Ask("May it?"))
    agent.add_hook("onApproval", lambda ctx: asked.set())
    async with chats(agent, where), client(where) as jobs:
        chat_id = await jobs.start("go", agent="shell")
        await asked.wait()
        requests = await jobs.pending(chat_id)
        while not requests:  # the engine writes it after the hooks
            requests = await jobs.pending(chat_id)
        if road == "tightened":
            denied.append("good")
            answer = Approve()
        else:
            answer = Approve(arguments={"command": "bad"})
        await jobs.answer(chat_id, {each.id: answer for each in requests})
        response = await jobs.result(chat_id)
    assert response.text == "done"
    assert ran == []
