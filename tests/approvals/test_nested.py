"""Approvals inside sub-agents: the request waits in the conversation of the root chat."""

import asyncio
from typing import Any

import pytest

from hookline import (
    Agent,
    Approve,
    Ask,
    Conversation,
    Deny,
    MemoryStore,
    Run,
    ToolMessage,
    check_history,
    tool,
)
from hookline.errors import ApprovalError, UsageError
from hookline.events import ApprovalRequested
from hookline.points import PreToolCall
from hookline.testing import ScriptedModel, call


class Family:
    """Agents that ask one another, down to one that pays; each life has new agents and models."""

    def __init__(self, depth: int = 3, store: Any = None) -> None:
        self.depth = depth
        self.store = store
        self.ran: list[str] = []

    def turns(self, level: int, first: bool) -> list[Any]:
        """The model's turns of a level; in a later life, only those after the question."""
        if level == self.depth:
            calls = [
                call("pay", euros=80, call_id="pay"),
                call("note", text=f"level {level}", call_id=f"note{level}"),
            ]
        else:
            calls = [
                call(f"agent{level + 1}", input="go", call_id=f"down{level}"),
                call("note", text=f"level {level}", call_id=f"note{level}"),
            ]
        return [calls, f"done {level}"] if first else [f"done {level}"]

    def root(self, *, first: bool = True, **more: Any) -> Agent:
        """The root agent of one life."""

        async def pay(euros: int) -> str:
            """Pay."""
            self.ran.append(f"pay {euros}")
            return f"{euros} paid"

        async def note(text: str) -> str:
            """Write a note."""
            self.ran.append(text)
            return "noted"

        below: Agent | None = None
        for level in range(self.depth, -1, -1):
            tools: list[Any] = [note]
            tools.append(pay if below is None else below.as_tool())
            agent = Agent(
                ScriptedModel(*self.turns(level, first)),
                name=f"agent{level}",
                tools=tools,
                store=self.store if level == 0 else None,
                **(more if below is None else {}),
            )
            if below is None:
                agent.add_hook("preToolCall", lambda ctx: Ask("Pay?"), tools=["pay"], guard=True)
            below = agent
        assert below is not None
        return below


@pytest.mark.parametrize("depth", [1, 2, 3])
async def test_a_question_of_a_sub_agent_waits_in_the_conversation_of_the_root_chat(depth):
    family, talk = Family(depth), Conversation()
    response = await family.root().chat("Pay.", conversation=talk)
    assert response.stop_reason == "approval"
    (request,) = response.pending
    assert request.path == tuple(f"down{level}" for level in range(depth))
    assert request.call.name == "pay"
    assert request.conversation_id == talk.id
    assert talk.pending == response.pending
    assert sorted(family.ran) == [f"level {level}" for level in range(depth + 1)]

    response = await family.root(first=False).resume(talk, {request.id: Approve()})
    assert response.text == "done 0"
    assert family.ran[-1] == "pay 80"
    assert len(family.ran) == depth + 2  # nothing ran twice
    assert talk.pending == ()
    check_history(talk.messages)
    results = {m.call_id: m.text for m in talk.messages if isinstance(m, ToolMessage)}
    assert results["down0"] == "done 1"


@pytest.mark.parametrize("depth", [1, 3])
async def test_it_waits_in_a_store_for_agents_of_another_life(depth):
    store = MemoryStore()
    family = Family(depth, store)
    await family.root().chat("Pay.", conversation="order")
    (request,) = await store.pending()
    assert (request.conversation_id, len(request.path)) == ("order", depth)
    response = await family.root(first=False).resume("order", {request.id: Approve()})
    assert response.text == "done 0"
    assert family.ran[-1] == "pay 80"
    assert await store.pending() == ()


async def test_a_denial_reaches_the_model_of_the_sub_agent():
    family, talk = Family(2), Conversation()
    (request,) = (await family.root().chat("Pay.", conversation=talk)).pending
    response = await family.root(first=False).resume(talk, {request.id: Deny("too much")})
    assert response.text == "done 0"
    assert "pay 80" not in family.ran


async def test_edited_arguments_run():
    family, talk = Family(2), Conversation()
    (request,) = (await family.root().chat("Pay.", conversation=talk)).pending
    answers = {request.id: Approve(arguments={"euros": 5})}
    await family.root(first=False).resume(talk, answers)
    assert family.ran[-1] == "pay 5"


async def test_a_new_chat_denies_what_a_sub_agent_waits_for():
    family, talk = Family(2), Conversation()
    seen = []
    await family.root().chat("Pay.", conversation=talk)
    agent = family.root(first=False)
    agent.add_hook("onApproval", lambda ctx: seen.append((ctx.request.path, ctx.decision)))
    response = await agent.chat("No, wait.", conversation=talk)
    assert response.text == "done 0"
    assert "pay 80" not in family.ran
    assert talk.pending == ()
    ((path, decision),) = seen
    assert path == ("down0", "down1")
    assert isinstance(decision, Deny)
    check_history(talk.messages)


async def test_an_export_has_what_the_sub_agent_needs():
    family, talk = Family(2), Conversation()
    (request,) = (await family.root().chat("Pay.", conversation=talk)).pending
    talk = Conversation.from_json(talk.to_json())
    response = await family.root(first=False).resume(talk, {request.id: Approve()})
    assert response.text == "done 0"
    assert family.ran[-1] == "pay 80"


async def test_the_request_in_the_stream_names_its_path():
    family = Family(2)
    stream = family.root().chat_stream("Pay.", conversation=Conversation())
    async with stream:
        (event,) = [event async for event in stream if isinstance(event, ApprovalRequested)]
    assert event.path == event.request.path == ("down0", "down1")


async def test_without_a_conversation_the_call_of_a_sub_agent_is_denied():
    family = Family(1)
    response = await family.root().chat("Pay.")
    assert response.text == "done 0"
    assert "pay 80" not in family.ran


async def test_a_guard_of_the_sub_agent_looks_again():
    """Access that was withdrawn while the call waited stays withdrawn."""
    family, talk = Family(2), Conversation()
    (request,) = (await family.root().chat("Pay.", conversation=talk)).pending
    agent = family.root(first=False)
    seen = []

    def closed(ctx: PreToolCall) -> Deny:
        seen.append((ctx.call.name, ctx.again))
        return Deny("closed")

    agent.add_hook("preToolCall", closed, on_error="deny", tools=["pay"])
    response = await agent.resume(talk, {request.id: Approve()})
    assert seen == [("pay", True)]
    assert "pay 80" not in family.ran
    assert response.text == "done 0"


async def test_a_changed_tool_of_a_sub_agent_does_not_run_on_the_old_approval():
    async def pay(euros: int) -> str:
        """Pay."""
        raise AssertionError("it ran")

    def life(turns, paid):
        kid = Agent(ScriptedModel(*turns[1]), name="kid", tools=[paid])
        kid.add_hook("preToolCall", lambda ctx: Ask("Pay?"), guard=True)
        return Agent(ScriptedModel(*turns[0]), name="mum", tools=[kid.as_tool()])

    talk = Conversation()
    first = life([[call("kid", input="x")], [call("pay", euros=8)]], pay)
    (request,) = (await first.chat("go", conversation=talk)).pending

    @tool(name="pay")
    async def other(euros: int) -> str:
        """Pay, and pay again."""
        raise AssertionError("it ran")

    model = ScriptedModel("not paid")
    kid = Agent(model, name="kid", tools=[other])
    second = Agent(ScriptedModel("done"), name="mum", tools=[kid.as_tool()])
    await second.resume(talk, {request.id: Approve()})
    (answer,) = [m for m in model.requests[0].messages if isinstance(m, ToolMessage)]
    assert answer.outcome == "denied"
    assert "were changed after the approval" in answer.text


@pytest.mark.parametrize("gone", ["the sub-agent", "its tool"])
async def test_what_is_gone_is_named_before_the_answer_counts(gone):
    family, talk = Family(1), Conversation()
    (request,) = (await family.root().chat("Pay.", conversation=talk)).pending
    kid = Agent(ScriptedModel("x"), name="agent1")
    tools = [kid.as_tool()] if gone == "its tool" else []
    agent = Agent(ScriptedModel("x"), name="agent0", tools=tools)
    with pytest.raises(UsageError, match="no longer"):
        await agent.resume(talk, {request.id: Approve()})
    assert [each.id for each in talk.pending] == [request.id]
    await family.root(first=False).resume(talk, {request.id: Approve()})
    assert family.ran[-1] == "pay 80"


async def test_an_answer_counts_once():
    family, talk = Family(2), Conversation()
    (request,) = (await family.root().chat("Pay.", conversation=talk)).pending
    await family.root(first=False).resume(talk, {request.id: Approve()})
    with pytest.raises(ApprovalError):
        await family.root(first=False).resume(talk, {request.id: Approve()})
    assert family.ran.count("pay 80") == 1


# ── two children ────────────────────────────────────────────────────────────────────────────


class Twins:
    """A root chat that asks two agents at once; each asks for an approval, or for two."""

    def __init__(self, questions: int = 1) -> None:
        self.ran: list[str] = []
        self.questions = questions
        self.models: dict[str, ScriptedModel] = {}

    def root(self, *, first: bool = True) -> Agent:
        async def pay(to: str) -> str:
            """Pay."""
            self.ran.append(to)
            return "paid"

        kids = []
        for name in ("ann", "bob"):
            calls = [
                call("pay", to=f"{name}{n}", call_id="pay" + "x" * n) for n in range(self.questions)
            ]
            turns: list[Any] = [calls] if first else []
            self.models[name] = ScriptedModel(*turns, f"{name} done", f"{name} again")
            kid = Agent(self.models[name], name=name, tools=[pay])
            kid.add_hook("preToolCall", lambda ctx: Ask("Pay?"), guard=True)
            kids.append(kid.as_tool())
        calls = [call("ann", input="x", call_id="A"), call("bob", input="x", call_id="B")]
        turns = [calls] if first else []
        return Agent(ScriptedModel(*turns, "all done"), name="mum", tools=kids)


async def test_two_children_are_answered_one_now_and_one_later():
    twins, talk = Twins(), Conversation()
    ann, bob = (await twins.root().chat("go", conversation=talk)).pending
    assert (ann.path, bob.path) == (("A",), ("B",))

    response = await twins.root(first=False).resume(talk, {bob.id: Approve()})
    assert response.stop_reason == "approval"
    assert response.pending == (ann,)
    assert twins.ran == ["bob0"]

    response = await twins.root(first=False).resume(talk, {ann.id: Approve()})
    assert response.text == "all done"
    assert twins.ran == ["bob0", "ann0"]
    results = {m.call_id: m.text for m in talk.messages if isinstance(m, ToolMessage)}
    assert results == {"A": "ann done", "B": "bob done"}


async def test_one_child_is_answered_question_by_question():
    twins, talk = Twins(questions=2), Conversation()
    pending = (await twins.root().chat("go", conversation=talk)).pending
    for number, request in enumerate(pending):
        response = await twins.root(first=False).resume(talk, {request.id: Approve()})
        assert len(response.pending) == 3 - number
    assert response.text == "all done"
    assert twins.ran == ["ann0", "ann1", "bob0", "bob1"]


# ── the chat ends before the call has begun ─────────────────────────────────────────────────


async def test_a_chat_that_fails_before_the_call_begins_leaves_the_request():
    family, talk = Family(2), Conversation()
    (request,) = (await family.root().chat("Pay.", conversation=talk)).pending
    agent = family.root(first=False)
    agent.add_hook("aroundToolCall", _raises, tools=["agent1"])
    with pytest.raises(RuntimeError):
        await agent.resume(talk, {request.id: Approve()})
    assert [each.id for each in talk.pending] == [request.id]
    assert "pay 80" not in family.ran
    response = await family.root(first=False).resume(talk, {request.id: Approve()})
    assert response.text == "done 0"
    assert family.ran.count("pay 80") == 1


async def _raises(ctx: Any, proceed: Any) -> Any:
    raise RuntimeError("boom")


async def test_an_abort_while_the_call_runs_uses_the_answer_up():
    begun = asyncio.Event()

    async def pay() -> str:
        """Pay."""
        begun.set()
        await asyncio.sleep(60)
        return "paid"

    def life(*turns):
        kid = Agent(ScriptedModel(*turns[1:]), name="kid", tools=[pay])
        kid.add_hook("preToolCall", lambda ctx: Ask("Pay?"), guard=True)
        return Agent(ScriptedModel(turns[0]), name="mum", tools=[kid.as_tool()])

    talk = Conversation()
    first = life(call("kid", input="x"), call("pay"))
    (request,) = (await first.chat("go", conversation=talk)).pending
    stream = life("done", "kid done").resume_stream(talk, {request.id: Approve()})
    async with stream:
        await begun.wait()
        assert stream.abort("enough")
    assert talk.pending == ()
    check_history(talk.messages)


async def test_a_tool_that_calls_a_sub_agent_by_itself_does_not_wait():
    """It would run again from its beginning."""
    begun = []

    async def pay() -> str:
        """Pay."""
        return "paid"

    kid = Agent(ScriptedModel(call("pay"), "kid done"), name="kid", tools=[pay])
    kid.add_hook("preToolCall", lambda ctx: Ask("Pay?"), guard=True)
    inner = kid.as_tool()

    async def outer(run: Run) -> Any:
        """Ask."""
        begun.append(1)
        return await inner.fn(input="x", run=run)

    mum = Agent(ScriptedModel(call("outer"), "done"), name="mum", tools=[outer])
    response = await mum.chat("go", conversation=Conversation())
    assert (response.text, begun) == ("done", [1])
