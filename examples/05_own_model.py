"""Your own model: an object with a method `stream` that yields chunks, with a `Finish` at the end.

This model has a dozen rules and needs no network. A model that calls a service differs only in the
source of its words. docs/models.md shows the helpers of hookline's own adapters: clients, errors.
"""

import asyncio
import json
from collections.abc import AsyncIterator

from hookline import Agent, ModelRequest
from hookline.models import Chunk, Finish, TextChunk, ToolCallChunk


class Clerk:
    name = "clerk"  # what traces call it

    async def stream(self, request: ModelRequest, /) -> AsyncIterator[Chunk]:
        last = request.messages[-1]
        if last.role == "user" and "train" in last.text:
            # Arguments are JSON text, since that is what models write; they may come in pieces.
            arguments = json.dumps({"to": last.text.split()[-1].rstrip("?")})
            yield ToolCallChunk(index=0, name="next_train", arguments=arguments)
            yield Finish(finish_reason="tool_calls")
            return
        answer = f"It leaves at {last.text}." if last.role == "tool" else "Ask me about trains."
        for word in answer.split(" "):
            yield TextChunk(f"{word} ")
        yield Finish(finish_reason="stop")  # without it, hookline takes the answer for cut off


async def next_train(to: str) -> str:
    """When the next train leaves."""
    return {"Basel": "12:04", "Paris": "12:40"}[to]


async def main() -> None:
    agent = Agent(Clerk(), tools=[next_train])
    for question in ("Hello!", "When is the train to Basel?"):
        response = await agent.chat(question)
        print(f"user   {question}\nclerk  {response.text}\n       ({response.steps} model calls)")


asyncio.run(main())
