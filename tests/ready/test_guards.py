"""Ready-made guards stay in a chat with hooks of its own: a payment agent with tenants' hooks."""

from typing import Any

import pytest

from hookline import Agent, HookDef, tool
from hookline.hooks import (
    allow_tools,
    approve,
    audit,
    budget,
    cache,
    deny_commands,
    fallback,
    guardrail,
    log,
    pin_tools,
    rate_limit,
    redact,
    retry,
    summarize,
    truncate,
    window,
)
from hookline.points import OnMessage
from hookline.testing import ScriptedModel, call

GUARDS: dict[str, Any] = {
    "allow_tools": lambda **options: allow_tools("pay", **options),
    "approve": lambda **options: approve("pay", **options),
    "audit": lambda **options: audit("audit.jsonl", **options),
    "deny_commands": lambda **options: deny_commands("rm -rf", **options),
    "budget": lambda **options: budget(finish_reasons=["length"], **options),
    "guardrail": lambda **options: guardrail(lambda message, run: None, **options),
    "guardrail, output": lambda **options: guardrail(str, on="output", **options),
    "pin_tools": lambda **options: pin_tools({}, **options),
    "rate_limit": lambda **options: rate_limit(1, by="chat", **options),
    "redact": lambda **options: redact("secret", **options),
}
OTHERS: dict[str, Any] = {
    "cache": cache,
    "fallback": lambda **options: fallback(ScriptedModel(), **options),
    "log": lambda **options: log(content=True, **options),
    "retry": retry,
    "summarize": lambda **options: summarize(9, **options),
    "truncate": truncate,
    "window": lambda **options: window(3, **options),
}
MAIL = r"\w+@\w+\.org"


@pytest.mark.parametrize("make", GUARDS.values(), ids=GUARDS)
def test_every_hook_of_a_guard_is_required_unless_it_is_told_otherwise(make: Any) -> None:
    assert {hook.required for hook in make()} == {True}
    assert {hook.required for hook in make(required=False)} == {False}


@pytest.mark.parametrize("make", OTHERS.values(), ids=OTHERS)
def test_every_other_hook_is_required_where_it_is_asked_for(make: Any) -> None:
    assert {hook.required for hook in make()} == {False}
    assert {hook.required for hook in make(required=True)} == {True}


class Shop:
    """A payment agent, and what has come of it."""

    def __init__(self, *hooks: Any) -> None:
        self.paid: list[int] = []
        self.seen: list[str] = []

        @tool
        async def pay(amount: int) -> str:
            """Pay."""
            self.paid.append(amount)
            return "paid by ada@example.org"

        self.agent: Agent[Any] = Agent(
            ScriptedModel(call("pay", amount=5), "Paid for ada@example.org."),
            tools=[pay],
            hooks=hooks,
        )

    def tenant_logger(self, ctx: OnMessage[Any]) -> None:
        self.seen.append(ctx.message.text)


@pytest.mark.parametrize("option", ["hooks", "only_hooks"])
async def test_a_tenants_hooks_leave_the_guards_of_the_payment_agent(option: str) -> None:
    shop = Shop(approve("pay"), redact(MAIL))
    tenant = {option: [HookDef("onMessage", shop.tenant_logger)]}
    response = await shop.agent.chat("Pay 5 for ada@example.org.", **tenant)  # type: ignore[arg-type]
    assert shop.paid == []
    assert "Denied" in response.messages[2].text
    assert response.text == "Paid for [redacted]."
    assert shop.seen[0] == "Pay 5 for [redacted]."
    assert shop.seen == [message.text for message in response.messages]


async def test_guards_that_are_not_required_go_with_only_hooks() -> None:
    shop = Shop(approve("pay", required=False), redact(MAIL, required=False))
    response = await shop.agent.chat("Pay 5.", only_hooks=[])
    assert shop.paid == [5]
    assert response.text == "Paid for ada@example.org."


async def test_a_guard_that_a_tenant_adds_joins_those_of_the_agent() -> None:
    shop = Shop(redact(MAIL))
    response = await shop.agent.chat("Pay 5.", hooks=[approve("pay")])
    assert shop.paid == []
    assert response.text == "Paid for [redacted]."
