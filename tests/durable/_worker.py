"""A worker in a process of its own, whose agent says in a file what it does: `jobs trace store`."""

from __future__ import annotations

import asyncio
import json
import os
import random
import sys
from typing import Any

from hookline import Agent, Ask, Run, Usage, tool
from hookline.durable.sqlite import chats
from hookline.models import Finish, TextChunk, ToolCallChunk
from hookline.runtimes import Durable

TURNS: list[list[Any]] = [
    ["Let me see, ", *[f"w{i} " for i in range(10)], ("a", "lookup"), ("b", "charge"),
     ("c", "refund")],
    ["One more. ", *[f"x{i} " for i in range(10)], ("d", "lookup")],
    ["Done: ", *[f"y{i} " for i in range(10)], "end."],
]  # fmt: skip
PAUSE = float(os.environ.get("PAUSE", "0.01"))  # between two chunks of an answer
LAST = "".join(TURNS[-1])


class Trace:
    """Lines in a file that outlive whoever writes them."""

    def __init__(self, file: str) -> None:
        self._fd = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def note(self, *what: object) -> None:
        os.write(self._fd, (" ".join(map(str, what)) + "\n").encode())


class Model:
    """Answers by how many answers the history has, slowly."""

    name = "slow"

    def __init__(self, trace: Trace) -> None:
        self._trace = trace

    async def stream(self, request: Any) -> Any:
        turn = sum(message.role == "assistant" for message in request.messages)
        said = request.messages[0].text
        self._trace.note(said, f"model{turn}")
        calls = 0
        for part in TURNS[turn]:
            await asyncio.sleep(PAUSE)
            if isinstance(part, str):
                yield TextChunk(part)
            else:
                id, name = part
                arguments = json.dumps({"q": id})
                yield ToolCallChunk(index=calls, id=id, name=name, arguments=arguments)
                calls += 1
        usage = Usage(input_tokens=1, output_tokens=1)
        yield Finish(finish_reason="tool_calls" if calls else "stop", usage=usage)


def agent_of(trace: Trace, store: str | None = None) -> Agent[Any]:
    """The agent of the kills: three tools side by side, one of which asks, then one more."""

    def work(name: str, idempotent: bool) -> Any:
        async def fn(q: str, run: Run[Any]) -> str:
            trace.note(run.chat_id, f"{name}:{q}")
            await run.status("working", q)
            await asyncio.sleep(random.uniform(0.02, 0.2))
            trace.note(run.chat_id, f"{name}:{q}:done")
            return f"{name} {q}"

        fn.__name__ = name
        return tool(idempotent=idempotent, description=name)(fn)

    made: Agent[Any] = Agent(
        Model(trace),
        tools=[work("lookup", True), work("charge", False), work("refund", False)],
        runtime=Durable(),
        store=store,
    )
    made.add_hook("preToolCall", lambda ctx: Ask("Refund?") if ctx.call.name == "refund" else None)
    made.add_hook("onChatDone", lambda ctx: trace.note(ctx.run.chat_id, "done"))
    return made


async def main(jobs: str, trace: str, store: str) -> None:
    async with agent_of(Trace(trace), store or None) as agent:
        await chats(agent, jobs, idle=0.2, poll=0.05).run()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
