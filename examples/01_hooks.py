"""Hooks in an async application: an observer, an interceptor, a wrapper, and a disposer.

The agent is made once; `handle` is what a web framework would call for each request.
"""

import asyncio
from dataclasses import dataclass

from hookline import Agent, ModelRequest, ModelResponse, Proceed
from hookline.points import AroundRequest, OnChatEnd, OnMessage, PreRequest
from hookline.testing import ScriptedModel


@dataclass(frozen=True)
class Session:
    user: str
    language: str


model = ScriptedModel(ConnectionError("no route to host"), "Bonjour !", "Hello!", "Welcome!")
agent = Agent[Session](model)  # it plays a script; Agent[Session]("openai:gpt-…") asks a real one


@agent.hook("onChatEnd")  # an observer sees, and changes nothing
async def log(ctx: OnChatEnd[Session]) -> None:
    print(f"log    {ctx.run.deps.user}: {ctx.outcome}, {ctx.usage.total_tokens} tokens")


@agent.hook("preRequest")  # an interceptor may return a changed payload; None leaves it as it is
def speak_their_language(ctx: PreRequest[Session]) -> ModelRequest:
    return ctx.request.replace(system=f"You greet people in {ctx.run.deps.language}.")


@agent.hook("aroundRequest")  # a wrapper has a before, an after, and the choice to go on
async def retry_once(
    ctx: AroundRequest[Session], proceed: Proceed[ModelRequest, ModelResponse]
) -> ModelResponse:
    try:
        return await proceed()
    except ConnectionError as exc:
        print(f"retry  {exc}")
        return await proceed()


async def handle(user: str, language: str) -> dict[str, str]:
    return {"answer": (await agent.chat("Hi", deps=Session(user, language))).text}


async def main() -> None:
    print(await handle("Ada", "French"))

    def trace(ctx: OnMessage[Session]) -> None:
        print(f"trace  {ctx.run.deps.user}: {ctx.message.role} message")

    with agent.add_hook("onMessage", trace):  # what add_hook returns takes that hook away again
        print(await handle("Bob", "English"))
    print(await handle("Cem", "English"))  # no trace any more


asyncio.run(main())
