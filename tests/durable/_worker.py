"""A worker in a process of its own, whose agent says in a file what it does.

Its arguments: the engine, its address, options of the worker as JSON, the trace, a
store, the address of a relay's Redis with the prefix of its keys, and the points at which its code
has one more hook.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
from collections.abc import Sequence
from importlib import import_module
from typing import Any

import msgspec

from hookline import Agent, Ask, Run, Usage, tool
from hookline.models import Finish, TextChunk, ToolCallChunk
from hookline.runtimes import Batch, Durable, Journal, Log
from hookline.stores import SQLStore
from hookline.web.relay import RedisRelay

TURNS: list[list[Any]] = [
    ["Let me see, ", *[f"w{i} " for i in range(10)], ("a", "lookup"), ("b", "charge"),
     ("c", "refund")],
    ["One more. ", *[f"x{i} " for i in range(10)], ("d", "lookup")],
    ["Done: ", *[f"y{i} " for i in range(10)], "end."],
]  # fmt: skip
PAUSE = float(os.environ.get("PAUSE", "0.01"))  # between two chunks of an answer
LAST = "".join(TURNS[-1])
POISON = "poison"  # the chat whose model call ends the process


class Trace:
    """Lines in a file that outlive whoever writes them."""

    def __init__(self, file: str) -> None:
        self._fd = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def note(self, *what: object) -> None:
        os.write(self._fd, (" ".join(map(str, (os.getpid(), *what))) + "\n").encode())


class Told:
    """A log that says in the trace which ends its life has read, and which were written."""

    def __init__(self, log: Log, trace: Trace, id: str) -> None:
        self._log = log
        self._trace = trace
        self._id = id
        self.answer = log.answer
        self.poke = log.poke

    async def read(self) -> list[bytes]:
        batches = await self._log.read()
        self._trace.note(self._id, "life")
        for data in batches:
            self._tell("read", data)
        return batches

    async def append(self, data: bytes) -> None:
        await self._log.append(data)
        self._tell("wrote", data)

    def _tell(self, what: str, data: bytes) -> None:
        for line in msgspec.json.decode(data, type=Batch).lines:
            if line.kind == "end":
                self._trace.note(self._id, f"{what}:{line.key}")


def telling(trace: Trace) -> None:
    """Let all journals of this process say what is recorded."""
    opened = Journal.open

    async def told(chat_id: str, log: Log, worker: str = "") -> Journal:
        return await opened(chat_id, Told(log, trace, chat_id), worker)

    Journal.open = told  # type: ignore[method-assign, assignment]


class Model:
    """Answers by how many answers the history has, slowly."""

    name = "slow"

    def __init__(self, trace: Trace) -> None:
        self._trace = trace

    async def stream(self, request: Any) -> Any:
        turn = sum(message.role == "assistant" for message in request.messages)
        said = request.messages[0].text
        self._trace.note(said, f"model{turn}")
        if said == POISON:
            os._exit(9)
        calls = 0
        for part in TURNS[min(turn, len(TURNS) - 1)]:  # a message can ask for one more
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


def agent_of(
    trace: Trace, store: SQLStore | None = None, deployed: Sequence[str] = ()
) -> Agent[Any]:
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
    for point in deployed:
        made.add_hook(point, lambda ctx: None)  # type: ignore[call-overload]
    made.add_hook(
        "onMessage",
        lambda ctx: trace.note(ctx.run.chat_id, f"message:{ctx.message.id}"),
    )
    made.add_hook("onChatDone", lambda ctx: trace.note(ctx.run.chat_id, "done"))
    return made


async def main(
    engine: str,
    address: str,
    options: str,
    trace: str,
    store: str,
    url: str,
    prefix: str,
    *deployed: str,
) -> None:
    module = import_module(f"hookline.durable.{engine}")
    relay = RedisRelay(url, prefix=prefix) if url else None
    telling(Trace(trace))
    # The other worker may be stopped while it writes to the file.
    opened = SQLStore(store, busy_timeout=60.0) if store else None
    async with agent_of(Trace(trace), opened, deployed) as agent:
        await module.chats(agent, address, relay=relay, **json.loads(options)).run()
