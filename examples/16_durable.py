"""A durable chat: a worker asks and ends, a person answers, and a new worker goes on at that step.

The workers and the client could run on different machines: see docs/durable.md.
"""

import asyncio
from contextlib import aclosing
from pathlib import Path
from tempfile import TemporaryDirectory

from hookline import Agent, Approve, Ask, tool
from hookline.durable import chats, client
from hookline.runtimes import Durable
from hookline.testing import Answer, ScriptedModel, call


@tool
async def book(flight: str) -> str:
    """Book a flight."""
    print(f"  the tool books {flight}")
    return f"{flight} is booked"


def agent(*script: Answer) -> Agent:
    booking = Agent(ScriptedModel(*script), name="booking", tools=[book], runtime=Durable())
    booking.add_hook("preToolCall", lambda ctx: Ask(f"Book {ctx.call.arguments['flight']}?"))
    return booking


async def main(where: str) -> None:
    async with client(where) as jobs:
        chat_id = await jobs.start("Book HL 1.", agent="booking")
        worker = chats(agent(call("book", flight="HL 1")), where)
        async with worker, aclosing(jobs.watch(chat_id)) as events:
            async for event in events:
                if event.kind == "question":
                    break
        print("the first worker is gone; the chat is", (await jobs.status(chat_id)).state)

        for request in await jobs.pending(chat_id):
            print(f"  {request.prompts[0]} yes")
            await jobs.answer(chat_id, {request.id: Approve(by="ada")})

        async with chats(agent("Booked."), where):  # it repeats no call of the model
            print("the second worker:", (await jobs.result(chat_id)).text)
        for event in await jobs.timeline(chat_id):
            if event.kind != "step":
                print(f"  {event.kind:<9}{event.text}")


if __name__ == "__main__":
    with TemporaryDirectory() as folder:
        asyncio.run(main(f"sqlite:///{Path(folder, 'jobs.db')}"))
