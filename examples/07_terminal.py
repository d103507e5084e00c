"""A chat in the terminal: it shows text as it arrives, and tool calls; Ctrl-C stops an answer.

`python 07_terminal.py openai:gpt-…` uses a real model (docs/models.md lists what you need).
Without a terminal, it plays a short session.
"""

import asyncio
import sys
from collections.abc import Iterator
from contextlib import suppress

from hookline import Agent, Conversation, ModelRequest
from hookline.events import TextDelta, ToolCallFinished, ToolCallStarted
from hookline.testing import Answer, ScriptedModel, call


def offline(request: ModelRequest) -> Answer:
    last = request.messages[-1]
    if "times" in last.text:
        return ["I do the sum.", call("multiply", a=6, b=7)]
    return f"It is {last.text}." if last.role == "tool" else "It is even; it is a product; " * 8


async def multiply(a: int, b: int) -> int:
    """Multiply two numbers."""
    return a * b


async def turn(line: str) -> None:
    async with agent.chat_stream(line, conversation=talk) as stream:
        async for event in stream:
            if isinstance(event, TextDelta):
                print(event.text, end="", flush=True)
            elif isinstance(event, ToolCallStarted):
                print(f"\n  [{event.call.name} {event.call.arguments}]")
            elif isinstance(event, ToolCallFinished):
                print(f"  [{event.outcome}]")
    print()


def typed() -> Iterator[str]:
    if not sys.stdin.isatty():
        for line in ("What is 6 times 7?", "Tell me more about it."):
            print(f"> {line}")
            yield line
        return
    with suppress(EOFError, KeyboardInterrupt):  # Ctrl-D, Ctrl-C
        while True:
            yield input("> ")


scripted = ScriptedModel(offline, repeat=True, chunk=5, delay=0.01)
agent = Agent(sys.argv[1] if sys.argv[1:] else scripted, tools=[multiply])
talk = Conversation()
with asyncio.Runner() as runner:  # one event loop for all turns; between them it stands still
    for line in typed():
        try:
            runner.run(turn(line))
        except KeyboardInterrupt:  # the runner has cancelled the turn: model and tools have ended
            print("\n(stopped)")
