"""An approval across processes: one process asks and ends, another approves and runs the tool.

Needs `pip install 'hookline[sqlite]'`.
"""

import asyncio
import subprocess
import sys
import tempfile
from pathlib import Path

from hookline import Agent, Approve, Ask
from hookline.errors import ApprovalError
from hookline.points import PreToolCall
from hookline.testing import ScriptedModel, call


async def pay(to: str, euros: int) -> str:
    """Send money."""
    print(f"  (the tool runs: {euros} euros to {to})")
    return f"{euros} euros sent to {to}"


def agent_of(database: str, model: ScriptedModel) -> Agent:
    agent = Agent(model, tools=[pay], store=database)

    @agent.hook("preToolCall", tools=["pay"], on_error="deny")
    def ask(ctx: PreToolCall) -> Ask:
        return Ask(f"Send {ctx.call.arguments['euros']} euros?")

    return agent


async def first(database: str) -> None:
    async with agent_of(database, ScriptedModel(call("pay", to="Ada", euros=80))) as agent:
        response = await agent.chat("Pay Ada 80 euros.", conversation="order-5")
        print(f"first process: {response.stop_reason}, {response.pending[0].prompts[0]}")


async def second(database: str) -> None:
    async with agent_of(database, ScriptedModel("Ada has her money.")) as agent:
        assert agent.store is not None
        (request,) = await agent.store.pending()
        print(f"second process: yes to {request.call.name} {request.call.arguments}")
        response = await agent.resume("order-5", {request.id: Approve()})
        print(f"second process: {response.text}")
        try:
            await agent.resume("order-5", {request.id: Approve()})
        except ApprovalError as exc:
            print(f"once more: {exc}")


if len(sys.argv) > 1:
    part = {"first": first, "second": second}[sys.argv[1]]
    asyncio.run(part(sys.argv[2]))
else:
    with tempfile.TemporaryDirectory() as place:
        for name in ("first", "second"):
            url = f"sqlite:///{Path(place, 'chats.db')}"
            subprocess.run([sys.executable, __file__, name, url], check=True)
