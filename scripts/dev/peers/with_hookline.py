"""The three programs with hookline. A section is what a user writes; the models are scripted."""

# ruff: noqa: I001 – each section has its own imports
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

from faults import JOB, Script

# section: desk
from hookline import Agent, Approve, Ask, Conversation, Deny
from hookline.events import TextDelta
from hookline.points import PreToolCall

# end
# section: worker
from hookline.durable import chats, client
from hookline.runtimes import Durable

# end
# section: migration
from hookline import repair_history
from hookline.formats import from_openai

# end
from hookline import AssistantMessage, ModelRequest, ToolMessage
from hookline.models import Finish, TextChunk, ToolCallChunk


class Scripted:
    name = "scripted"

    def __init__(self, script: Script) -> None:
        self.script = script

    async def stream(self, request: ModelRequest) -> AsyncIterator[Any]:
        calls, results, texts = [], [], []
        for message in request.messages:
            texts.append(message.text)
            if isinstance(message, AssistantMessage):
                calls += [call.id for call in message.tool_calls]
            if isinstance(message, ToolMessage):
                results.append(message.call_id)
        step = self.script.next(len(results), (calls, results, " ".join(texts)))
        if step:
            arguments = json.dumps(step[1])
            yield ToolCallChunk(index=0, id=f"c{len(results)}", name=step[0], arguments=arguments)
        elif texts[-1] == "Hello.":
            async for piece in self.script.pieces():
                yield TextChunk(text=piece)
        else:
            yield TextChunk(text="All done.")
        yield Finish(finish_reason="tool_calls" if step else "stop")


def model_of(script: Script) -> Scripted:
    return Scripted(script)


# section: desk
def guard(ctx: PreToolCall) -> Deny | Ask | None:
    if not ctx.call.arguments["order"].startswith("A-"):
        return Deny("That is the order of another customer.")
    return Ask("Refund it?") if ctx.call.arguments["euros"] > 50 else None


def desk_of(model: Any, refund: Callable[..., Any]) -> Agent:
    agent = Agent(model, tools=[refund])
    agent.add_hook("preToolCall", guard, guard=True)
    return agent


async def support(model: Any, refund: Callable[..., Any], edit: dict[str, Any] | None) -> None:
    agent, talk = desk_of(model, refund), Conversation()
    response = await agent.chat("Refund my order.", conversation=talk)
    while response.pending:
        answers = {asked.id: Approve(arguments=edit) for asked in response.pending}
        response = await agent.resume(talk, answers)


async def leave(model: Any, refund: Callable[..., Any]) -> None:
    async with desk_of(model, refund).chat_stream("Hello.") as stream:
        async for event in stream:
            if isinstance(event, TextDelta):
                break


# end
# section: worker
async def work(model: Any, pay: Callable[..., Any], folder: Path) -> None:
    agent = Agent(model, name="payer", tools=[pay], runtime=Durable())
    where = f"sqlite:///{folder}/jobs.db"
    async with chats(agent, where), client(where) as jobs:
        await jobs.start("Pay Ada.", chat_id=JOB, agent="payer")
        print((await jobs.result(JOB)).text)


# end
# section: migration
async def migrate(model: Any, history: list[dict[str, Any]]) -> None:
    imported = from_openai(history)
    talk = Conversation(repair_history(imported.messages).messages)
    await Agent(model, system=imported.system).chat("Go on.", conversation=talk)


# end
