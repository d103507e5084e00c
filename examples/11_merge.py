"""Two agents answer at the same time, and their streams become one with aiostream.

Needs `pip install 'hookline[streams]'`.
"""

import asyncio

from aiostream import pipe, stream

from hookline import Agent
from hookline.events import ChatStarted, TextDelta
from hookline.points import OnChatAbort
from hookline.streams import coalesce, sentences, text
from hookline.testing import ScriptedModel

OPTIMIST = "The tests are green. Users have waited for weeks! Ship it today."
PESSIMIST = "It is Friday. Nobody watches the graphs on Saturday. Wait for Monday."
QUESTION = "Shall we release?"


def panellist(name: str, answer: str) -> Agent:
    return Agent(ScriptedModel(*[answer] * 3, chunk=16, delay=0.005), name=name)


async def main() -> None:
    a, b = panellist("optimist", OPTIMIST), panellist("pessimist", PESSIMIST)

    print("── both at once, every delta as it comes")
    names: dict[str, str] = {}
    async with stream.merge(a.chat_stream(QUESTION), b.chat_stream(QUESTION)).stream() as events:
        async for event in events:
            match event:
                case ChatStarted():
                    names[event.chat_id] = event.agent
                case TextDelta():
                    print(f"{names[event.chat_id]:>9} │ {event.text}")
                case _:
                    pass

    print("── both at once, in whole sentences")
    voices = [text(each.chat_stream(QUESTION)) | sentences.pipe() for each in (a, b)]
    async with stream.merge(*voices).stream() as lines:
        async for line in lines:
            print(f"          │ {line}")

    print("── one of them, in larger bites, and only two: leaving ends the chat")

    @b.hook("onChatAbort")
    def _(ctx: OnChatAbort) -> None:
        print(f"          │ (aborted: {ctx.reason})")

    bites = text(b.chat_stream(QUESTION)) | coalesce.pipe(chars=24, seconds=0.5) | pipe.take(2)
    async with bites.stream() as some:
        async for bite in some:
            print(f"          │ {bite}")


asyncio.run(main())
