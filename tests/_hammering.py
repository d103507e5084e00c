"""Many tasks that chat on ten conversations, as fast as the others let them.

python tests/_hammering.py URL PREFIX NUMBER TASKS CHATS
"""

from __future__ import annotations

import asyncio
import random
import sys
from typing import Any

from hookline import Agent, UserMessage
from hookline.errors import ConversationBusyError
from hookline.stores import SQLStore
from hookline.testing import ScriptedModel, call


class Model:
    """Calls `hear` with what the user said last, then answers."""

    async def stream(self, request: Any) -> Any:
        last = request.messages[-1]
        said = next(m for m in reversed(request.messages) if isinstance(m, UserMessage)).text
        turn: Any = f"answer to {said}"
        if last.role == "user":
            turn = call("hear", text=said)
        async for chunk in ScriptedModel(turn).stream(request):
            yield chunk


async def hear(text: str) -> str:
    """Hear it."""
    await asyncio.sleep(0)
    return f"heard {text}"


async def main(url: str, prefix: str, number: str, tasks: str, chats: str) -> None:
    async with SQLStore(url, busy_timeout=30) as store:
        agent = Agent(Model(), tools=[hear], store=store)
        refused = 0

        async def talk(task: int) -> None:
            nonlocal refused
            for chat in range(int(chats)):
                while True:
                    id = f"{prefix}-{random.randrange(10)}"
                    try:
                        await agent.chat(f"{number}/{task}/{chat}", conversation=id)
                        break
                    except ConversationBusyError:
                        refused += 1
                        await asyncio.sleep(random.random() / 20)

        await asyncio.gather(*[talk(task) for task in range(int(tasks))])
        print(refused)


asyncio.run(main(*sys.argv[1:]))
