"""Ready-made guards stay in a chat with hooks of its own: a payment agent with tenants' hooks."""

from typing import Any

import msgspec
import pytest

from hookline import Agent, Approve, AssistantMessage, Conversation, HookDef, Tool, tool
from hookline.errors import HookOptionError, UsageError
from hookline.events import StepFinished
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
from hookline.storage import PendingStep
from hookline.testing import ScriptedModel, call, collect

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


LIMITED: dict[str, Any] = {
    "approve": lambda tools: approve(*tools),
    "deny_commands": lambda tools: deny_commands("rm", tools=tools),
    "pin_tools": lambda tools: pin_tools({}, *tools),
    "rate_limit": lambda tools: rate_limit(0, tools=tools),
    "truncate": lambda tools: truncate(1, tools=tools),
}


@pytest.mark.parametrize("make", LIMITED.values(), ids=LIMITED)
async def test_what_is_limited_to_some_tools_takes_patterns(make: Any) -> None:
    told: list[str] = []
    for name in ("fs_read", "dig"):

        def run_it(command: str) -> str:
            return "long text"

        agent = Agent(
            ScriptedModel(call(name, command="rm x"), "done"),
            tools=[Tool(run_it, name=each, description="Run.") for each in ("fs_read", "dig")],
            hooks=make(["fs_*"]),
        )
        response = await agent.chat("go", conversation=Conversation())
        waits = [each.call.name for each in response.pending]
        told.append("asked" if waits else response.tool_results[0].text)
    assert told[0] != "long text"
    assert told[1] == "long text"


@pytest.mark.parametrize("tools", [[], [""], "bash"], ids=["none", "empty", "a text"])
@pytest.mark.parametrize(
    "make", [LIMITED[each] for each in ("deny_commands", "rate_limit", "truncate")]
)
def test_what_would_never_run_is_refused(make: Any, tools: Any) -> None:
    with pytest.raises(HookOptionError, match="tools="):
        make(tools)


@pytest.mark.parametrize("make", [LIMITED["approve"], LIMITED["pin_tools"]])
def test_a_name_that_is_empty_is_refused(make: Any) -> None:
    with pytest.raises(HookOptionError, match="matches no tool"):
        make([""])


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


# ── a chat's own guards after an approval ───────────────────────────────────────────────────


async def waiting(**given: Any) -> tuple[Any, Conversation, list[str]]:
    """A chat that waits for an approval of `pay`; its model then calls `delete`."""
    ran: list[str] = []

    @tool
    async def pay_bill() -> str:
        ran.append("pay_bill")
        return "paid"

    @tool
    async def delete() -> str:
        ran.append("delete")
        return "deleted"

    model = ScriptedModel(call("pay_bill"), call("delete"), "done")
    agent = Agent(model, tools=[pay_bill, delete], hooks=[approve("pay_bill"), allow_tools("*")])
    talk = Conversation()
    response = await agent.chat("go", conversation=talk, **given)
    assert response.stop_reason == "approval"
    return agent, talk, ran


async def test_resume_without_the_guards_of_the_chat_is_refused_and_nothing_runs() -> None:
    agent, talk, ran = await waiting(hooks=[allow_tools("pay_bill")])
    answers = {each.id: Approve() for each in talk.pending}
    with pytest.raises(UsageError, match=r"required hooks allow_tools; pass the same hooks="):
        await agent.resume(talk, answers)
    with pytest.raises(UsageError, match="allow_tools"):
        await agent.resume(talk, answers, hooks=[log()])
    assert ran == []
    assert [each.id for each in talk.pending] == list(answers)
    response = await agent.resume(talk, answers, hooks=[allow_tools("pay_bill")])
    assert (ran, response.text) == (["pay_bill"], "done")


async def test_only_hooks_is_the_way_out() -> None:
    agent, talk, ran = await waiting(hooks=[allow_tools("pay_bill")])
    answers = {each.id: Approve() for each in talk.pending}
    await agent.resume(talk, answers, only_hooks=[])
    assert ran == ["pay_bill", "delete"]


async def test_hooks_that_are_not_required_need_not_be_given_again() -> None:
    agent, talk, ran = await waiting(hooks=[allow_tools("pay_bill", required=False), log()])
    await agent.resume(talk, {each.id: Approve() for each in talk.pending})
    assert ran == ["pay_bill", "delete"]


def test_a_step_that_was_stored_before_has_no_guards() -> None:
    step = msgspec.json.decode(
        b'{"chat_id": "c", "iteration": 0, "requests": []}', type=PendingStep
    )
    assert step.guards == ()


async def test_each_chat_counts_its_own_usage_and_a_step_is_finished_once() -> None:
    agent, talk, _ = await waiting()
    asked = [m for m in talk.messages if isinstance(m, AssistantMessage)]
    stream = agent.resume_stream(talk, {each.id: Approve() for each in talk.pending})
    events = await collect(stream)
    finished = [e.usage for e in events if isinstance(e, StepFinished)]
    response = stream.response
    own = [m.usage for m in response.messages if isinstance(m, AssistantMessage)]
    assert response.usage == own[0] + own[1]
    assert finished == [asked[0].usage, *own]  # the step that waited has ended in this chat
    assert response.steps == 3
