"""A stream: the events of a chat as they happen, and the effect of leaving it early."""

import asyncio

from hookline import Agent, Run
from hookline.events import ChatDone, ChatEvent, Status, TextDelta, ToolCallFinished, read_event
from hookline.points import OnChatAbort
from hookline.testing import ScriptedModel, call


async def search(query: str, run: Run) -> list[str]:
    """Search the shelves."""
    await run.status("searching", {"shelf": 3})  # progress, for whoever watches
    return ["The Dispossessed", "The Lathe of Heaven"]


ANSWER = "We have two of hers: The Dispossessed and The Lathe of Heaven."
SEARCH = ("Let me look. ", call("search", query="Le Guin"))
model = ScriptedModel(SEARCH, ANSWER, ANSWER, chunk=12, delay=0.002)
agent = Agent(model, tools=[search])


def show(event: ChatEvent) -> None:
    match event:
        case TextDelta():
            print(event.text, end="", flush=True)
        case Status():
            print(f"\n[{event.type} {event.data}]")
        case ToolCallFinished():
            print(f"[{event.name}: {event.outcome}]")
        case ChatDone():
            print(f"\n[done: {event.response.usage.total_tokens} tokens]")
        case _:
            pass  # there are sixteen kinds; hookline.events lists them


@agent.hook("onChatAbort")
def aborted(ctx: OnChatAbort) -> None:
    print(f"\n[aborted: {ctx.reason}; kept {[message.role for message in ctx.partial]}]")


async def main() -> None:
    async with agent.chat_stream("What do you have by Le Guin?") as stream:
        async for event in stream:
            show(event)
            # Every event is frozen data with JSON both ways: this is what goes to a browser.
            assert read_event(event.to_json()) == event
    print(f"{stream.response.text!r}")

    async with agent.chat_stream("Once more, please.") as stream:
        async for event in stream:
            show(event)
            if isinstance(event, TextDelta) and "hers" in event.text:
                break  # the model and all tools are stopped before the next line is reached


asyncio.run(main())
