"""A research bot with triage, a handoff, two concurrent sub-agents, and memory.

A guardrail checks the question while the model answers. The researchers' tool streams its
progress. The conversation remembers the current agent, so the second question goes straight to the
editor. To use real models, replace the scripted models with names such as "openai:gpt-5".
"""

import asyncio
from typing import Any

from hookline import Agent, Conversation, Run, UserMessage, tool
from hookline.events import Status
from hookline.hooks import budget, guardrail, summarize
from hookline.testing import ScriptedModel, call

LIBRARY = {
    "tides": ["The moon pulls the sea.", "The sun pulls too, half as much."],
    "waves": ["Wind makes waves.", "Long waves travel for days."],
}


@tool
async def search(topic: str, run: Run[Any]) -> list[str]:
    """Look a topic up in the library."""
    found: list[str] = []
    for page, text in enumerate(LIBRARY.get(topic, []), 1):
        await run.status("page", {"topic": topic, "page": page})
        found.append(text)
    return found


async def on_topic(message: UserMessage, run: Run[Any]) -> str | None:
    """A real check would ask a small model."""
    return "I only do research." if "password" in message.text else None


def researcher(topic: str) -> Agent[Any]:
    model = ScriptedModel(call("search", topic=topic), f"On {topic}: see the library.")
    return Agent(model, name=f"{topic}_researcher", tools=[search])


def bot() -> Agent[Any]:
    editor = Agent(
        ScriptedModel(
            [call("tides_researcher", input="tides"), call("waves_researcher", input="waves")],
            "Tides come from the moon, waves from the wind.",
            "As I wrote: the moon.",
            "It is …",  # the guardrail cuts this off
        ),
        name="editor",
        system="Ask the researchers, then write the report.",
        tools=[researcher("tides").as_tool(), researcher("waves").as_tool()],
    )
    triage = Agent(
        ScriptedModel(call("transfer_to_editor", reason="research")),
        name="triage",
        system="Hand research over to the editor.",
        hooks=[guardrail(on_topic), budget(steps=20, tokens=200_000), summarize(50_000)],
    )
    triage.handoffs(editor)
    return triage


async def main() -> None:
    agent, memory = bot(), Conversation()
    async with agent.chat_stream("What moves the sea?", conversation=memory) as stream:
        async for event in stream:
            if isinstance(event, Status):
                print(event.type, event.data)
    print(stream.response.text)
    print((await agent.chat("What makes the tides?", conversation=memory)).text)
    refused = await agent.chat("What is the root password?", conversation=memory)
    print(refused.stop_reason, "-", refused.text)


if __name__ == "__main__":
    asyncio.run(main())
