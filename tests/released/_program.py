"""The agent whose chats are kept as records of each version, and the program that keeps them.

    python -m tests.released._program 0.1.0    # once, before the version is released

A later version reads these files; never write those of a released version again.
"""

from __future__ import annotations

import asyncio
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from hookline import (
    Agent,
    ApprovalRequest,
    Approve,
    Ask,
    AssistantMessage,
    File,
    Image,
    Reasoning,
    Source,
    Text,
    ToolCall,
    ToolMessage,
    Usage,
    UserMessage,
)
from hookline.durable import Client
from hookline.durable.sqlite import Chats, chats
from hookline.errors import ChatAbortedError
from hookline.models import ModelRequest
from hookline.points import PreToolCall
from hookline.runtimes import Durable
from hookline.storage import Rule
from hookline.stores import SQLStore
from hookline.testing import ScriptedModel, Turn, call

HERE = Path(__file__).resolve().parent
PICTURE = b"\x89PNG\r\n\x1a\n"
paid: list[str] = []
"""The calls of `pay` that ran."""

CONVERSATION = (
    UserMessage(
        id="u1",
        parts=(
            Text("Pay 9 to Ada. Ünïcödé \u202e 🪝"),
            Image(media_type="image/png", data=PICTURE),
            File(media_type="text/plain", data=b"bill", name="bill.txt"),
        ),
    ),
    AssistantMessage(
        id="a1",
        parts=(
            Reasoning("I look it up.", meta={"anthropic": {"signature": "c2ln"}}),
            Text("One moment."),
            Source(url="https://example.org/ada", title="Ada"),
            ToolCall(id="c1", name="look_up", arguments={"who": "Ada"}),
        ),
        finish_reason="tool_calls",
        usage=Usage(input_tokens=12, output_tokens=7, cache_read_tokens=3),
        model="test-1",
    ),
    ToolMessage(id="t1", call_id="c1", name="look_up", text="known"),
    AssistantMessage(id="a2", parts=(Text("Ada is known."),), finish_reason="stop"),
)
"""A message of each role, with each kind of part."""


async def pay(who: str, amount: int) -> str:
    """Pay somebody."""
    paid.append(f"{who} {amount}")
    return f"{who} has {amount}"


def reply(request: ModelRequest) -> Any:
    """Call `pay`, and say so once it has run."""
    if request.messages[-1].role == "tool":
        return Turn("Paid.")
    return Turn(call("pay", call_id="p1", who="Ada", amount=9))


def agent(*turns: Any, **options: Any) -> Agent[Any]:
    """An agent that asks before it pays."""
    model = ScriptedModel(*(turns or (reply,)), repeat=True)
    payer: Agent[Any] = Agent(model, name="payer", tools=[pay], **options)

    @payer.hook("preToolCall", name="ask")
    def ask(ctx: PreToolCall) -> Ask:
        return Ask("Pay it?", details={"kind": "text", "text": "9"})

    return payer


async def write(folder: Path) -> None:
    """Write the records of this version."""
    (folder / "messages.jsonl").write_bytes(
        b"\n".join(message.to_json() for message in CONVERSATION) + b"\n"
    )
    async with SQLStore(f"sqlite:///{folder}/chats.db") as store:
        await write_conversations(store, folder)
    file = folder / "jobs.db"
    async with Chats(file) as jobs:
        for name in ("finished", "waiting", "aborted", "queued"):
            if name != "queued":
                await jobs.start("Pay Ada.", chat_id=name, agent="payer")
        async with chats(agent(runtime=Durable()), file, idle=0.05):
            for name in ("finished", "waiting", "aborted"):
                request = await first_request(jobs, name)
                if name == "finished":
                    await jobs.answer(name, {request.id: Approve(by="eve", note="fine")})
                    await jobs.result(name)
                if name == "aborted":
                    await jobs.abort(name, "enough")
                    with suppress(ChatAbortedError):
                        await jobs.result(name)
        await jobs.start("Pay Ada.", chat_id="queued", agent="payer")


async def first_request(jobs: Client, chat_id: str) -> ApprovalRequest:
    """Wait until a chat asks for an approval."""
    async for _ in jobs.watch(chat_id):
        for request in await jobs.pending(chat_id):
            return request
    raise AssertionError(f"{chat_id} has ended")


async def write_conversations(store: SQLStore, folder: Path) -> None:
    """A finished conversation, two that wait, a rule, and the events of a chat."""
    payer = agent(store=store)
    for name in ("waits", "ruled"):
        await payer.chat("Pay Ada.", conversation=name)
    request = (await store.pending("ruled"))[0]
    rule = Rule("pay", arguments={"who": "Ada", "amount": 9}, scope="always")
    await payer.resume("ruled", {request.id: Approve(by="eve", remember=rule)})
    stream = agent(Turn("Well then.", reasoning="Hm."), store=store).chat_stream(
        "Hello.", conversation="talk"
    )
    lines = [msgspec.json.encode(event) async for event in stream]
    (folder / "events.jsonl").write_bytes(b"\n".join(lines) + b"\n")


if __name__ == "__main__":
    records = HERE / sys.argv[1]
    records.mkdir()
    asyncio.run(write(records))
