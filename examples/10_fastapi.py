"""An agent behind FastAPI: an answer streamed over SSE, a way to stop it, and an approval.

Needs `pip install 'hookline[web]' fastapi httpx`. `uvicorn 10_fastapi:api` serves it; as a script
it calls itself. docs/web.md has the protocols that React front ends speak.
"""

import asyncio

from fastapi import FastAPI, Request, Response
from httpx import ASGITransport, AsyncClient

from hookline import Agent, MemoryStore
from hookline.events import ApprovalRequested, ChatEvent, read_event
from hookline.hooks import approve
from hookline.testing import ScriptedModel, call, event_line
from hookline.web import Runs, chat_response


async def order(flowers: str) -> str:
    """Order flowers."""
    return f"{flowers} are on their way"


turns = ("A florist loved tulips above all. " * 9, call("order", flowers="Tulips"), "Done.")
model = ScriptedModel(*turns, repeat=True, chunk=17, delay=0.02)
agent = Agent(model, tools=[order], hooks=[approve("order")])
runs, store, api = Runs(), MemoryStore(), FastAPI()


@api.post("/chat/{id}")
async def chat(id: str, request: Request) -> Response:
    talk = await store.open(id)  # here you would check whose conversation it is
    return await chat_response(agent, request, protocol="native", conversation=talk, runs=runs)


@api.post("/chat/{id}/stop")
async def stop(id: str) -> bool:
    return runs.stop(id)


async def ask(client: AsyncClient, **body: object) -> list[ChatEvent]:
    answer = await client.post("/chat/7", json=body)  # this client waits for the whole answer
    events = [read_event(line[5:]) for line in answer.text.splitlines() if line[:5] == "data:"]
    print(*map(event_line, events), sep="\n", end="\n\n")
    return events


async def main() -> None:
    async with AsyncClient(transport=ASGITransport(api), base_url="http://localhost") as client:
        answer = asyncio.create_task(ask(client, message="Tell me a story."))
        await asyncio.sleep(0.1)  # by now it has begun
        print("stop:", (await client.post("/chat/7/stop")).json())
        await answer
        events = await ask(client, message="Order tulips.")
        asked = [event.request.id for event in events if isinstance(event, ApprovalRequested)]
        await ask(client, answers={id: {"approved": True} for id in asked})


if __name__ == "__main__":
    asyncio.run(main())
