"""Calls that may have run: how a program finds them after its worker has died."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.durable._engines import Engine

from hookline import Agent, Conversation, ToolMessage
from hookline.durable import Client
from hookline.points import OnToolCallError
from hookline.runtimes import Durable
from hookline.testing import ScriptedModel, call


class Bank:
    """A tool that begins, and that only the end of its worker ends."""

    def __init__(self) -> None:
        self.paying = asyncio.Event()
        self.told: list[tuple[str, str]] = []

    def agent(self, *turns: Any) -> Agent[Any]:
        async def pay() -> str:
            """Pay."""
            self.paying.set()
            await asyncio.Event().wait()
            return "paid"

        made: Agent[Any] = Agent(ScriptedModel(*turns), tools=[pay], runtime=Durable())

        @made.hook("onToolCallError")
        def note(ctx: OnToolCallError) -> None:
            self.told.append((ctx.call.name, ctx.error.type))

        return made


def result_in(messages: Any) -> ToolMessage:
    [found] = [each for each in messages if isinstance(each, ToolMessage)]
    return found


async def test_a_call_that_may_have_run_says_so_in_the_same_words_wherever_its_chat_ran(
    engine: Engine, client: Client
) -> None:
    bank = Bank()
    async with engine.worker(bank.agent(call("pay"))):
        id = await client.start("Pay.")
        await bank.paying.wait()
    async with engine.worker(bank.agent("I do not know.")):
        durable = result_in((await client.result(id)).messages)
    assert bank.told == [("pay", "Interrupted")]

    exports: list[bytes] = []
    talk = Conversation()

    async def pay() -> None:
        exports.append(talk.to_json())

    agent = Agent(ScriptedModel(call("pay"), "Done."), tools=[pay])
    await agent.chat("Pay.", conversation=talk)
    stored = result_in(Conversation.from_json(exports[0]).messages)

    assert (durable.outcome, stored.outcome) == ("error", "aborted")
    assert durable.text == stored.text
    assert stored.text.startswith('{"error":{"type":"Interrupted",')  # as docs/reliability.md does
