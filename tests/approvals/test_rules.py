"""Remembered approvals: what a rule holds for, and what voids it."""

import random
from copy import deepcopy
from typing import Any

import pytest

from hookline import (
    Agent,
    Approve,
    Ask,
    Conversation,
    Deny,
    MemoryStore,
    Tool,
    ToolMessage,
)
from hookline.errors import ApprovalError
from hookline.storage import Rule, list_rules, revoke_rule
from hookline.testing import ScriptedModel, call

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "to": {"type": "string"},
        "euros": {"type": "integer"},
        "force": {"type": "boolean", "default": False},
        "invoice": {
            "type": "object",
            "properties": {"lines": {"type": "array", "items": {"type": "integer"}}},
        },
    },
    "required": ["to", "euros"],
}


class Till:
    """An agent that pays, and a person who is asked unless a rule answers."""

    def __init__(self, store: Any = None) -> None:
        self.store = store
        self.paid: list[Any] = []

    def agent(self, *turns: Any, name: str = "till", tool: Any = None, **more: Any) -> Agent:
        def pay(arguments: dict[str, Any]) -> str:
            self.paid.append(arguments)
            return "paid"

        if tool is None:
            tool = Tool.from_schema("pay", "Pay.", SCHEMA, pay)
        agent = Agent(ScriptedModel(*turns), name=name, tools=[tool], store=self.store, **more)
        agent.add_hook(
            "preToolCall", lambda ctx: Ask("Pay?"), name="asker", tools=[tool.name], guard=True
        )
        return agent

    async def remember(self, talk: Any, rule: Rule, **arguments: Any) -> None:
        arguments = arguments or {"to": "ann", "euros": 5}
        agent = self.agent(call("pay", **arguments), "done")
        (request,) = (await agent.chat("go", conversation=talk)).pending
        await agent.resume(talk, {request.id: Approve(by="lea", remember=rule)})
        self.paid.clear()

    async def asks(self, talk: Any, agent: Agent | None = None, **arguments: Any) -> bool:
        """Whether a person is asked about this call now."""
        agent = agent or self.agent(call("pay", **arguments), "done")
        response = await agent.chat("go", conversation=talk)
        return bool(response.pending)


async def test_a_remembered_call_is_not_asked_about_again():
    till, talk = Till(), Conversation()
    await till.remember(talk, Rule("pay"))
    agent = till.agent(call("pay", to="ann", euros=5), "done")
    seen = []
    agent.add_hook("onApproval", lambda ctx: seen.append(ctx.decision))
    response = await agent.chat("go", conversation=talk)
    assert response.text == "done"
    assert till.paid == [{"to": "ann", "euros": 5}]
    (result,) = response.tool_results
    assert result.ran is not None
    assert (result.ran.approved, result.ran.by, result.ran.hooks) == (True, "lea", ("asker",))
    (decision,) = seen
    assert decision.note == result.ran.note
    assert str(result.ran.note).startswith("by rule ")


@pytest.mark.parametrize(
    ("arguments", "asks"),
    [
        ({"to": "ann", "euros": 5}, False),
        ({"to": "ann", "euros": 5, "force": False}, False),  # what it is by default
        ({"to": "ann", "euros": 5, "force": True}, True),
        ({"to": "ann", "euros": 6}, True),
        ({"to": "bob", "euros": 5}, True),
        ({"to": "ann", "euros": 5, "more": 1}, True),
    ],
    ids=str,
)
async def test_a_rule_holds_for_exactly_its_arguments(arguments, asks):
    till, talk = Till(), Conversation()
    await till.remember(talk, Rule("pay"))
    assert await till.asks(talk, **arguments) is asks


async def test_a_rule_that_names_too_little_holds_for_nothing():
    """A default counts as an argument."""
    till, talk = Till(), Conversation()
    await till.remember(talk, Rule("pay", {"to": "ann", "euros": 5}))
    assert await till.asks(talk, to="ann", euros=5)
    till, talk = Till(), Conversation()
    await till.remember(talk, Rule("pay", {"to": "ann", "euros": 5, "force": False}))
    assert not await till.asks(talk, to="ann", euros=5)


async def test_no_rule_holds_for_an_argument_that_it_does_not_name():
    """300 generated rules and calls: it holds only if every argument is named and the same."""
    rng = random.Random(7)
    values: list[Any] = [0, 1, True, False, None, "a", "b", [], [1], {}, {"x": 1}]
    names = ["a", "b", "c", "d"]
    held = 0
    for _ in range(300):
        defaults = {name: rng.choice(values) for name in names if rng.random() < 0.3}
        properties = {name: {"default": value} for name, value in defaults.items()}
        named = {name: rng.choice(values[:4]) for name in names if rng.random() < 0.5}
        arguments = {name: rng.choice(values[:4]) for name in names if rng.random() < 0.5}
        if rng.random() < 0.4:
            arguments = {k: v for k, v in named.items() if rng.random() < 0.9}
        schema = {"type": "object", "properties": properties}

        def pay(arguments: dict[str, Any]) -> str:
            return "paid"

        talk, till = Conversation(), Till()
        tool = Tool.from_schema("pay", "Pay.", schema, pay)
        first = till.agent(call("pay"), "done", tool=tool)
        (request,) = (await first.chat("go", conversation=talk)).pending
        await first.resume(talk, {request.id: Approve(remember=Rule("pay", named))})
        agent = till.agent(call("pay", **arguments), "done", tool=tool)
        asks = await till.asks(talk, agent)
        effective = {**defaults, **arguments}
        same = repr(sorted(effective.items(), key=str)) == repr(sorted(named.items(), key=str))
        assert asks is not same, (named, arguments, defaults)
        held += same
    assert held > 10  # the generator makes both kinds


def mutations() -> list[tuple[str, str, dict[str, Any]]]:
    """50 changes of the tool: 5 each of its name, its description, and 8 parts of its schema."""
    changes: list[tuple[str, str, dict[str, Any]]] = []

    def changed(name: str = "pay", description: str = "Pay.") -> dict[str, Any]:
        changes.append((name, description, deepcopy(SCHEMA)))
        return changes[-1][2]

    types: list[Any] = ["number", ["integer", "null"], ["integer", "string"], [], None]
    required = [[], ["to"], ["euros"], ["to", "euros", "to2"], ["euros", "to", "force"]]
    for i in range(5):
        changed(name=["Pay", "pay2", "pay_", "transfer", "p"][i])
        changed(description=["", "Pay", "Pay. ", "Pay.\u200b", "Pay fast."][i])
        changed()["properties"][f"extra{i}"] = {"type": "string"}
        schema = changed()
        schema["properties"][f"must{i}"] = {"type": "string"}
        schema["required"].append(f"must{i}")
        changed()["required"] = required[i]
        euros = changed()["properties"]["euros"]
        euros["type"] = types[i]
        if not types[i]:
            euros.pop("type")
            euros["title"] = str(types[i])
        changed()["properties"]["force"]["default"] = [True, 0, 1, None, "no"][i]
        changed()["properties"]["euros"]["maximum"] = 10 + i
        changed()["properties"]["to"]["description"] = f"Receiver {i}"
        lines = changed()["properties"]["invoice"]["properties"]["lines"]
        lines["items"] = {"type": "integer", "minimum": i}
    return changes


async def test_each_of_50_mutations_of_a_tool_voids_its_rule():
    changes = mutations()
    assert len({repr(change) for change in changes}) == 50
    for name, description, schema in changes:
        till, talk = Till(), Conversation()
        required = dict.fromkeys(schema["required"], "x")
        arguments = {**required, "to": "ann", "euros": 5, "force": False}
        await till.remember(talk, Rule("pay"), **arguments)
        assert not await till.asks(talk, **arguments)  # the tool as it was
        tool = Tool.from_schema(name, description, schema, lambda arguments: "paid")
        agent = till.agent(call(name, **arguments), "done", tool=tool)
        assert await till.asks(talk, agent), (name, description, schema)


async def test_a_rule_is_bound_to_the_agent():
    till, talk = Till(), Conversation()
    await till.remember(talk, Rule("pay"))
    assert await till.asks(talk, till.agent(call("pay", to="ann", euros=5), name="other"))


async def test_a_rule_ends():
    till, talk = Till(), Conversation()
    await till.remember(talk, Rule("pay", until=1.0))
    assert await till.asks(talk, to="ann", euros=5)
    till, talk = Till(), Conversation()
    await till.remember(talk, Rule("pay", until=1e12))
    assert not await till.asks(talk, to="ann", euros=5)


@pytest.mark.parametrize("kind", ["a guard before", "a hook after", "the last look"])
async def test_a_refusal_beats_a_rule(kind):
    till, talk = Till(), Conversation()
    await till.remember(talk, Rule("pay"))
    agent = till.agent(call("pay", to="ann", euros=5), "done")
    if kind == "the last look":
        agent.add_hook(
            "preToolCall", lambda ctx: Deny("no") if ctx.again else None, on_error="deny"
        )
        agent.add_hook("aroundToolCall", _again)
    else:
        priority = 100 if kind == "a guard before" else -100
        agent.add_hook("preToolCall", lambda ctx: Deny("no"), on_error="deny", priority=priority)
    response = await agent.chat("go", conversation=talk)
    assert till.paid == []
    assert [message.outcome for message in response.tool_results] == ["denied"]


async def _again(ctx: Any, proceed: Any) -> Any:
    ctx.run.state["x"] = 1
    return await proceed(ctx.call.replace())


@pytest.mark.parametrize(
    ("scope", "same_chat", "same_talk", "elsewhere"),
    [
        ("chat", True, False, False),
        ("conversation", True, True, False),
        ("always", True, True, True),
    ],
)
async def test_a_rule_holds_in_its_scope(scope, same_chat, same_talk, elsewhere):
    till = Till(MemoryStore())
    pay = call("pay", to="ann", euros=5)
    agent = till.agent(pay, pay, "done")
    (request,) = (await agent.chat("go", conversation="a")).pending
    answers = {request.id: Approve(remember=Rule("pay", scope=scope))}
    response = await agent.resume("a", answers)  # the model asks for the same again
    assert (not response.pending) is same_chat
    if response.pending:
        await agent.chat("no", conversation="a")
    assert (not await till.asks("a", to="ann", euros=5)) is same_talk
    assert (not await till.asks("b", to="ann", euros=5)) is elsewhere


@pytest.mark.parametrize("scope", ["conversation", "always"])
async def test_a_rule_is_listed_and_revoked(scope):
    till = Till(store := MemoryStore())
    await till.remember("a", Rule("pay", scope=scope))
    place = "a" if scope == "conversation" else None
    (rule,) = await list_rules(store, place)
    assert (rule.tool, rule.agent, rule.by) == ("pay", "till", "lea")
    assert rule.arguments == {"to": "ann", "euros": 5, "force": False}
    assert await revoke_rule(store, rule.id, place)
    assert not await revoke_rule(store, rule.id, place)
    assert await list_rules(store, place) == ()
    assert await till.asks("a", to="ann", euros=5)


@pytest.mark.parametrize(
    ("rule", "words"),
    [(Rule("other"), "does not fit"), (Rule("pay", scope="always"), "needs a store")],
    ids=["tool", "store"],
)
async def test_a_rule_that_cannot_be_remembered_is_refused_before_anything_runs(rule, words):
    till, talk = Till(), Conversation()
    agent = till.agent(call("pay", to="ann", euros=5), "done")
    (request,) = (await agent.chat("go", conversation=talk)).pending
    with pytest.raises(ApprovalError, match=words):
        await agent.resume(talk, {request.id: Approve(remember=rule)})
    assert till.paid == []
    assert talk.pending == (request,)


async def test_edited_arguments_are_those_that_are_remembered():
    till, talk = Till(), Conversation()
    agent = till.agent(call("pay", to="ann", euros=5), "done")
    (request,) = (await agent.chat("go", conversation=talk)).pending
    edit = Approve(arguments={"to": "ann", "euros": 1}, remember=Rule("pay"))
    await agent.resume(talk, {request.id: edit})
    assert await till.asks(talk, to="ann", euros=5)
    await till.agent("no").chat("no", conversation=talk)
    assert not await till.asks(talk, to="ann", euros=1)


async def test_a_rule_of_a_sub_agent_holds_in_the_conversation_of_the_root_chat():
    paid: list[int] = []

    def pay() -> str:
        """Pay."""
        paid.append(1)
        return "paid"

    def life(*turns: Any) -> Agent:
        kid = Agent(ScriptedModel(*turns[1:]), name="kid", tools=[pay])
        kid.add_hook("preToolCall", lambda ctx: Ask("Pay?"), guard=True)
        return Agent(ScriptedModel(turns[0], "done"), name="mum", tools=[kid.as_tool()])

    talk, down = Conversation(), call("kid", input="x")
    (request,) = (await life(down, call("pay")).chat("go", conversation=talk)).pending
    await life("done", "kid done").resume(talk, {request.id: Approve(remember=Rule("pay"))})
    response = await life(down, call("pay"), "kid done").chat("again", conversation=talk)
    assert response.text == "done"
    assert len(paid) == 2


async def test_a_hook_may_answer_the_questions_of_the_hooks_before_it():
    till = Till()
    agent = till.agent(call("pay", to="ann", euros=5), "done")
    agent.add_hook("preToolCall", lambda ctx: Approve(by="bot"), priority=-1)
    response = await agent.chat("go")
    assert till.paid == [{"to": "ann", "euros": 5}]
    (result,) = [m for m in response.messages if isinstance(m, ToolMessage)]
    assert result.ran is not None
    assert (result.ran.approved, result.ran.by) == (True, "bot")


async def test_a_question_after_an_answer_is_for_a_person():
    till, talk = Till(), Conversation()
    agent = till.agent(call("pay", to="ann", euros=5), "done")
    agent.add_hook("preToolCall", lambda ctx: Approve(by="bot"), priority=1)
    response = await agent.chat("go", conversation=talk)
    assert len(response.pending) == 1
    assert till.paid == []
