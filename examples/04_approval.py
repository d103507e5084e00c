"""Approvals: a hook asks, and a person answers, at once or later when the chat is resumed."""

import asyncio

from hookline import Agent, ApprovalRequest, Approve, Ask, Conversation, Deny, Run
from hookline.points import OnApproval, PreToolCall
from hookline.testing import ScriptedModel, call


async def pay(to: str, euros: int) -> str:
    """Send money."""
    return f"{euros} euros sent to {to}"


model = ScriptedModel(
    call("pay", to="Ada", euros=80),
    "Ada has her 80 euros.",
    call("pay", to="Ada", euros=200),
    "Then I leave it.",
    [call("pay", to="Bob", euros=60), call("pay", to="Cem", euros=5)],
    "Both are paid.",
)
agent = Agent(model, tools=[pay])


# The arguments are not validated yet: where this hook fails on them, the call is denied.
@agent.hook("preToolCall", tools=["pay"], on_error="deny")
def large_sums_need_a_yes(ctx: PreToolCall) -> Ask | None:
    to, euros = ctx.call.arguments["to"], ctx.call.arguments["euros"]
    return Ask(f"Send {euros} euros to {to}?") if euros >= 50 else None


@agent.hook("onApproval")
def protocol(ctx: OnApproval) -> None:
    print("asked" if ctx.decision is None else ctx.decision, ctx.request.prompts)


async def approver(request: ApprovalRequest, run: Run) -> Approve | Deny:
    return Approve() if request.call.arguments["euros"] < 100 else Deny("too much")


async def main() -> None:
    talk = Conversation()
    response = await agent.chat("Pay Ada 80 euros.", conversation=talk)
    print(f"{response.stop_reason}: {len(response.pending)} call waits in the conversation")
    response = await agent.resume(talk, {response.pending[0].id: Approve()})
    print(response.text)

    response = await agent.chat("And 200 more.", conversation=talk)
    response = await agent.resume(talk, {response.pending[0].id: Deny("not today")})
    print(response.text)

    response = await agent.chat("Pay Bob and Cem.", approver=approver)  # answered while it runs
    print(response.text)


asyncio.run(main())
