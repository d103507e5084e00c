"""`Guide`: an answer is withdrawn, the model is told why and answers again."""

from __future__ import annotations

from typing import Any

import pytest
from tests._event_grammar import check_events

from hookline import Agent, Conversation, Limits, check_history
from hookline.errors import MaxStepsError, UsageError
from hookline.events import ResponseReset, TextDelta
from hookline.hooks import guardrail
from hookline.points import Guide
from hookline.testing import ScriptedModel, call, collect


def guiding(agent: Agent[Any], bad: str = "bad") -> None:
    @agent.hook("onResponse")
    def guide(ctx: Any) -> Guide | None:
        return Guide("Say it kindly.") if bad in ctx.response.text else None


def texts(talk: Conversation) -> list[str]:
    return [f"{message.role}: {message.text}" for message in talk.messages]


def shown(events: list[Any]) -> str:
    text = ""
    for event in events:
        if isinstance(event, ResponseReset):
            text = ""
        elif isinstance(event, TextDelta):
            text += event.text
    return text


@pytest.mark.parametrize("release", ["live", "response"])
async def test_the_answer_is_withdrawn_and_the_model_is_told_why(release: Any) -> None:
    ran: list[str] = []

    async def work() -> str:
        """Work."""
        ran.append("work")
        return "worked"

    talk = Conversation()
    model = ScriptedModel(["bad answer", call("work", id="a")], "kind")
    agent: Agent[Any] = Agent(model, tools=[work])
    guiding(agent)
    events = await collect(agent.chat_stream("go", conversation=talk, release=release))
    check_events(events)
    assert texts(talk) == ["user: go", "user: Say it kindly.", "assistant: kind"]
    assert [message.text for message in model.requests[1].messages] == ["go", "Say it kindly."]
    assert ran == []
    assert shown(events) == "kind"
    assert sum(isinstance(event, ResponseReset) for event in events) == (release == "live")
    response = events[-1].response
    assert (response.steps, response.text) == (2, "kind")
    check_history(talk.messages)


async def test_each_attempt_counts_as_a_step() -> None:
    talk = Conversation()
    agent: Agent[Any] = Agent(ScriptedModel(*["bad"] * 5), limits=Limits(steps=3))
    guiding(agent)
    with pytest.raises(MaxStepsError):
        await agent.chat("go", conversation=talk)
    assert texts(talk) == ["user: go", *["user: Say it kindly."] * 3]


async def test_the_decision_is_visible_and_later_hooks_do_not_see_the_answer() -> None:
    agent: Agent[Any] = Agent(ScriptedModel("bad", "kind"))
    guiding(agent)
    seen: list[Any] = []
    agent.add_hook("onResponse", lambda ctx: seen.append(ctx.response.text), priority=-1)
    agent.add_hook("onHook", lambda ctx: seen.append((ctx.outcome, ctx.returned)))
    await agent.chat("go")
    assert ("blocked", Guide("Say it kindly.")) in seen
    assert [each for each in seen if isinstance(each, str)] == ["kind"]


@pytest.mark.parametrize("live", [False, True])
async def test_a_guardrail_guides(live: bool) -> None:
    talk = Conversation()
    guard = guardrail(
        lambda answer, run: "Be kind." if "bad" in answer.text else None,
        on="output",
        on_fail="guide",
        live=live,
    )
    agent: Agent[Any] = Agent(ScriptedModel("bad", "kind"), hooks=guard)
    events = await collect(agent.chat_stream("go", conversation=talk))
    check_events(events)
    assert texts(talk) == ["user: go", "user: Be kind.", "assistant: kind"]
    assert shown(events) == "kind"


async def test_a_check_that_fails_still_stops_the_chat() -> None:
    def broken(answer: Any, run: Any) -> str | None:
        raise ValueError("broken")

    agent: Agent[Any] = Agent(
        ScriptedModel("bad", "kind"), hooks=guardrail(broken, on="output", on_fail="guide")
    )
    response = await agent.chat("go")
    assert (response.stop_reason, response.steps) == ("guardrail", 1)


def test_an_input_cannot_be_guided() -> None:
    with pytest.raises(UsageError, match="on_fail='guide'"):
        guardrail(lambda message, run: None, on_fail="guide")  # type: ignore[call-overload]
