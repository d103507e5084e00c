"""An approval bot: it asks in a chat room, a person presses a button, and no answer means no.

Needs `pip install 'hookline[sqlite]'`. The store keeps the calls that wait, so you can stop
the bot at any time. When it starts again, it asks about the calls without an answer.
"""

import asyncio
import tempfile

from hookline import Agent, ApprovalRequest, Approve, Deny
from hookline.hooks import approve
from hookline.testing import ScriptedModel, call

# Here a chat service would be: a message with two buttons goes out, one of them is pressed.
room = asyncio.Queue[tuple[ApprovalRequest, asyncio.Future[bool]]]()


async def pay(to: str, euros: int) -> str:
    """Send money."""
    return f"{euros} euros sent to {to}"


async def settle(agent: Agent, request: ApprovalRequest) -> None:
    button = asyncio.get_running_loop().create_future()
    await room.put((request, button))
    try:
        async with asyncio.timeout(0.3):  # an hour, where it is people who answer
            decision = Approve() if await button else Deny("Ada said no")
    except TimeoutError:
        decision = Deny("nobody answered in time")
    assert request.conversation_id is not None  # what waits in a store has one
    response = await agent.resume(request.conversation_id, {request.id: decision})
    print(f"{request.conversation_id}  {decision}\n         {response.messages[0].text}")


async def ada() -> None:
    while True:
        request, button = await room.get()
        euros = request.call.arguments["euros"]
        print(f"{request.conversation_id}  {request.prompts[0]} {request.call.arguments}")
        if euros != 900:  # that one she does not see
            button.set_result(euros < 100)


async def main(database: str) -> None:
    calls = [call("pay", to="Bob", euros=euros) for euros in (80, 400, 900)]
    model = ScriptedModel(*calls, "Noted.", "Noted.", "Noted.")
    async with Agent(model, tools=[pay], hooks=[approve("pay")], store=database) as agent:
        for number in range(3):
            await agent.chat("Pay Bob.", conversation=f"order-{number}")

    person = asyncio.create_task(ada())
    async with Agent(model, tools=[pay], store=database) as agent:  # another process, another day
        assert agent.store is not None
        await asyncio.gather(*[settle(agent, each) for each in await agent.store.pending()])
    person.cancel()


with tempfile.TemporaryDirectory() as place:
    asyncio.run(main(f"sqlite:///{place}/chats.db"))
