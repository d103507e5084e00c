"""`run.ask`: a running tool asks the approver and goes on with the answer."""

from __future__ import annotations

from typing import Any

import pytest

from hookline import Agent, Approve, Conversation, Deny, Run, ToolResult, tool
from hookline.errors import UsageError
from hookline.events import ApprovalRequested, ToolCallFinished
from hookline.testing import ScriptedModel, call, collect

SCHEMA = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}


def agent_for(approver: Any, *, schema: Any = SCHEMA, **options: Any) -> Agent[Any]:
    @tool(**options)
    async def greet(loud: bool, run: Run) -> str:
        """Greet somebody."""
        answer = await run.ask("Who is it?", schema)
        answer["mine"] = True  # a plain dict of its own
        return f"Hello, {answer['name']}"

    model = ScriptedModel(call("greet", loud=True, call_id="c"), "done")
    return Agent(model, tools=[greet], approver=approver)


async def outcome(agent: Agent[Any]) -> tuple[str, Any]:
    events = await collect(agent.chat_stream("go", conversation=Conversation()))
    [end] = [event for event in events if isinstance(event, ToolCallFinished)]
    return end.outcome, getattr(end.result, "value", None) or end.result.message  # type: ignore[union-attr]


async def test_a_tool_asks_and_goes_on_with_what_was_approved() -> None:
    asked: list[Any] = []
    told: list[Any] = []

    async def approver(request: Any, run: Run) -> Approve:
        asked.append((request.prompts, request.schema, request.call.name, run.call_id))
        return Approve(arguments={"name": "Ada"})

    agent = agent_for(approver)
    agent.add_hook("onApproval", lambda ctx: told.append(ctx.decision))
    events = await collect(agent.chat_stream("go"))
    assert asked == [(("Who is it?",), SCHEMA, "greet", "c")]
    assert told == [None, Approve(arguments={"name": "Ada"})]
    assert [event.request.schema for event in events if isinstance(event, ApprovalRequested)] == [
        SCHEMA
    ]
    assert await outcome(agent_for(approver)) == ("ok", "Hello, Ada")


@pytest.mark.parametrize(
    ("approver", "words"),
    [
        pytest.param(None, "nobody can answer", id="no-approver"),
        pytest.param(lambda request, run: Deny("not today"), "not today", id="denied"),
    ],
)
async def test_a_question_that_is_denied_is_a_denied_call(approver: Any, words: str) -> None:
    found, text = await outcome(agent_for(approver))
    assert words in text
    assert found in ("denied", "error")


@pytest.mark.parametrize(
    ("approver", "words"),
    [
        pytest.param(lambda request, run: True, "returned a bool", id="no-decision"),
        pytest.param(lambda request, run: Approve(), "does not fit", id="nothing"),
        pytest.param(
            lambda request, run: Approve(arguments={"name": 1}), "does not fit", id="wrong"
        ),
    ],
)
async def test_an_answer_that_cannot_be_used_is_an_error_of_the_call(
    approver: Any, words: str
) -> None:
    found, text = await outcome(agent_for(approver))
    assert found == "error"
    assert words in text


async def test_without_a_schema_any_approval_will_do() -> None:
    @tool
    async def delete(run: Run) -> Any:
        """Delete it."""
        return await run.ask("Really?")

    agent = Agent(
        ScriptedModel(call("delete"), "done"), tools=[delete], approver=lambda r, run: Approve()
    )
    events = await collect(agent.chat_stream("go"))
    [end] = [event for event in events if isinstance(event, ToolCallFinished)]
    assert (end.outcome, end.result) == ("ok", ToolResult({}))


async def test_the_time_limit_of_the_tool_stands_still_while_it_asks() -> None:
    limits: list[float] = []

    async def approver(request: Any, run: Run) -> Approve:
        chat: Any = Run.chat_of(run)
        limits.append(chat.deadlines._pauses)
        return Approve(arguments={"name": "Ada"})

    assert await outcome(agent_for(approver, timeout=5)) == ("ok", "Hello, Ada")
    assert limits == [1]


async def test_a_hook_cannot_ask_outside_of_a_call() -> None:
    agent = agent_for(lambda request, run: Approve())

    @agent.hook("onChatStart")
    async def asks(ctx: Any) -> None:
        await ctx.run.ask("May I?")

    with pytest.raises(UsageError, match=r"run\.ask\(\) is for a tool"):
        await agent.chat("go")
