"""`Guide`: an answer is withdrawn, the model is told why and answers again."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from tests import _recording as recording
from tests._event_grammar import check_events

from hookline import Agent, Conversation, Limits, check_history, define_hook
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
    model = ScriptedModel(["bad answer", call("work", call_id="a")], "kind")
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


def kind(**options: Any) -> Any:
    """A guardrail that asks for another answer than a bad one."""
    return guardrail(
        lambda answer, run: "Be kind." if "bad" in answer.text else None,
        on="output",
        on_fail="guide",
        **options,
    )


@pytest.mark.parametrize("release", ["live", "response"])
@pytest.mark.parametrize("live", [False, True])
async def test_a_guardrail_guides(live: bool, release: Any) -> None:
    talk = Conversation()
    agent: Agent[Any] = Agent(ScriptedModel("bad", "kind"), hooks=kind(live=live))
    events = await collect(agent.chat_stream("go", conversation=talk, release=release))
    check_events(events)
    assert texts(talk) == ["user: go", "user: Be kind.", "assistant: kind"]
    assert shown(events) == "kind"
    deltas = "".join(event.text for event in events if isinstance(event, TextDelta))
    assert deltas == ("badkind" if live and release == "live" else "kind")


class Verdict(msgspec.Struct):
    word: str


@pytest.mark.parametrize("release", ["live", "response"])
@pytest.mark.parametrize("first", [True, False])
async def test_a_guardrail_guides_before_the_answer_is_read_as_output(
    first: bool, release: Any
) -> None:
    """It sees what other hooks have made of the answer, in either order."""

    def spoil(ctx: Any) -> Any:
        return ctx.response.replace(text=ctx.response.text.replace("grim", "bad"))

    model = ScriptedModel('{"word": "grim"}', "no JSON", '{"word": "kind"}')
    hooks = [*kind(), define_hook("onResponse", spoil)]
    agent: Agent[Any] = Agent(model, output=Verdict, hooks=hooks if first else hooks[::-1])
    events = await collect(agent.chat_stream("go", release=release))
    check_events(events)
    response = events[-1].response
    assert (response.output, response.steps) == (Verdict("kind"), 3)
    assert [message.text for message in model.requests[1].messages] == ["go", "Be kind."]
    assert not any("bad" in message.text for message in response.messages)


async def test_a_guardrail_guides_wherever_a_durable_chat_is_cut() -> None:
    def guided(runtime: Any, note: Any) -> Any:
        def answer(request: Any) -> str:
            return "kind" if request.messages[-1].text == "Be kind." else "bad"

        model = ScriptedModel(answer, repeat=True)
        return Agent(model, hooks=kind(), runtime=runtime), recording.ask()

    whole = await recording.live(guided)
    assert whole.response.text == "kind"
    for cut in range(1, len(whole.journal)):
        first = await recording.live(guided, limit=cut)
        second = await recording.live(guided, first.journal)
        assert second.response.text == "kind", cut
        assert [m.text for m in second.history] == ["Go.", "Be kind.", "kind"], cut


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
