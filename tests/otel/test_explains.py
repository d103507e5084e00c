"""Why a chat took its way: stops, approvals, retries, handoffs, lives, costs, evaluations."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests._otlp import Pipeline, Received, Span, attributes_of, pipeline

from hookline import Agent, Approve, Conversation, Deny, ModelRequest, Stop, Usage, tool
from hookline.durable.sqlite import Chats, chats
from hookline.errors import OverloadedError, UsageError
from hookline.hooks import approve, budget, fallback, guardrail, retry
from hookline.models import Finish, Rates, TextChunk
from hookline.otel import record_evaluation
from hookline.runtimes import Durable
from hookline.testing import ScriptedModel, TestRuntime, Turn, call


@pytest.fixture
def http() -> Iterator[Pipeline]:
    with pipeline() as made:
        yield made


@tool
async def pay(amount: int) -> str:
    """Pay somebody."""
    return f"paid {amount}"


def events(received: Received, name: str) -> list[dict[str, Any]]:
    found = [event for span in received.ours for event in span.events]
    return [event.attributes for event in found if event.name == name]


# ── how it ended, and who was waited for ────────────────────────────────────────────────────


async def test_the_reason_of_a_stop(http: Pipeline) -> None:
    telemetry = http.telemetry()
    for reason in ("budget", "a reason with the words of a user"):
        agent = Agent(ScriptedModel("hi"), telemetry=telemetry)
        agent.add_hook("preRequest", lambda ctx, reason=reason: Stop(reason))
        await agent.chat("hi")
    await Agent(ScriptedModel("hi"), telemetry=telemetry).chat("hi")
    roots = [span for span in http.flush().ours if span.name.startswith("invoke")]
    said = [span.attributes.get("hookline.stop_reason") for span in roots]
    assert said == ["budget", "_OTHER", None]


@pytest.mark.parametrize(
    "decision",
    [Approve(), Approve(arguments={"amount": 1}, by="lea"), Deny("no"), Deny("no", by="lea")],
    ids=["approved", "edited", "denied", "denied by name"],
)
async def test_an_approval_in_a_later_chat_has_its_wait_and_a_link(
    http: Pipeline, decision: Approve | Deny
) -> None:
    agent = Agent(
        ScriptedModel([call("pay", amount=5)], "done"),
        tools=[pay],
        hooks=[approve("pay")],
        telemetry=http.telemetry(),
    )
    talk = Conversation(id="talk")
    asked = await agent.chat("pay", conversation=talk)
    await agent.resume(talk, {asked.pending[0].id: decision})
    received = http.flush()
    first, second = [span for span in received.ours if span.name.startswith("invoke")]
    assert first.attributes["hookline.stop_reason"] == "approval"
    assert first.attributes["hookline.pending"] == 1
    assert first.links == []
    assert second.links == [(first.span_id, {"hookline.link": "approval"})]
    assert second.trace_id != first.trace_id
    put, answered = events(received, "hookline.approval")
    about = {"gen_ai.tool.name": "pay", "gen_ai.tool.call.id": "call_1"}
    assert put == {**about, "hookline.approval.decision": "asked"}
    wait = answered.pop("hookline.approval.wait")
    assert wait >= (second.start - first.end) / 1e9
    word = "denied" if isinstance(decision, Deny) else "approved"
    edited = isinstance(decision, Approve) and decision.arguments is not None
    assert answered == {
        **about,
        "hookline.approval.decision": word,
        **({"hookline.approval.edited": True} if edited else {}),
        **({"hookline.approval.by": "lea"} if decision.by else {}),
    }


async def test_a_new_agent_on_the_same_store_is_linked_to_the_chat_that_asked(
    http: Pipeline, tmp_path: Path
) -> None:
    """As in another process: another agent and another telemetry."""

    def made(*turns: Any) -> Agent:
        return Agent(
            ScriptedModel(*turns),
            tools=[pay],
            hooks=[
                approve("pay"),
                budget(cost=5.0, price={"scripted": Rates(input=0, output=100_000)}),
            ],
            store=f"sqlite:///{tmp_path}/chats.db",
            telemetry=http.telemetry(),
        )

    turns = [Turn(call("pay", amount=n), usage=Usage(output_tokens=20)) for n in range(3)]
    async with made(turns[0]) as agent:
        asked = [await agent.chat("pay", conversation="talk")]
    for turn in turns[1:]:
        async with made(turn) as agent:
            (waits,) = asked[-1].pending
            asked.append(await agent.resume("talk", {waits.id: Approve()}))
    async with made("never said") as agent:
        (waits,) = asked[-1].pending
        last = await agent.resume("talk", {waits.id: Approve()})
    assert last.stop_reason == "cost_limit"
    chats = [span for span in http.flush().ours if span.name.startswith("invoke")]
    assert [span.links for span in chats] == [
        [],
        *[[(before.span_id, {"hookline.link": "approval"})] for before in chats[:-1]],
    ]
    assert len({span.trace_id for span in chats}) == 4
    said = [span.attributes.get("hookline.stop_reason") for span in chats]
    assert said == ["approval", "approval", "approval", "cost_limit"]
    assert {span.attributes["gen_ai.conversation.id"] for span in chats} == {"talk"}


async def test_an_approver_who_answers_while_the_chat_runs(http: Pipeline) -> None:
    async def approver(request: Any, run: Any) -> Approve:
        return Approve()

    agent = Agent(
        ScriptedModel([call("pay", amount=5)], "done"),
        tools=[pay],
        hooks=[approve("pay")],
        approver=approver,
        telemetry=http.telemetry(),
    )
    await agent.chat("pay")
    received = http.flush()
    (root,) = [span for span in received.ours if span.name.startswith("invoke")]
    assert root.links == []
    decisions = [e["hookline.approval.decision"] for e in events(received, "hookline.approval")]
    assert decisions == ["asked", "approved"]
    assert events(received, "hookline.approval")[1]["hookline.approval.wait"] >= 0


async def test_no_word_of_an_approval_is_its_secret_id(http: Pipeline) -> None:
    agent = Agent(
        ScriptedModel([call("pay", amount=5)], "done"),
        tools=[pay],
        hooks=[approve("pay")],
        telemetry=http.telemetry(capture="span_and_event"),
    )
    asked = await agent.chat("pay", conversation=Conversation(id="talk"))
    assert asked.pending[0].id.encode() not in http.flush().raw


async def test_the_next_life_of_a_durable_chat_is_linked_to_the_one_before(
    http: Pipeline, tmp_path: Path
) -> None:
    agent = Agent(
        ScriptedModel([call("pay", amount=5)], "done"),
        tools=[pay],
        hooks=[approve("pay")],
        runtime=Durable(),
        telemetry=http.telemetry(),
    )
    file = tmp_path / "jobs.db"
    async with Chats(file, poll=0.01) as client:
        async with chats(agent, file, poll=0.01, idle=0.03) as worker:
            id = await client.start("pay")
            while not (waiting := await client.pending(id)) or worker._lives:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        async with chats(agent, file, poll=0.01, idle=0.03):
            await client.answer(id, {waiting[0].id: Approve()})
            assert (await client.result(id)).text == "done"
    lives = [span for span in http.flush().ours if span.name.startswith("invoke")]
    assert len(lives) == 2
    assert lives[1].links == [(lives[0].span_id, {"hookline.link": "earlier_life"})]
    assert {span.attributes["hookline.chat.id"] for span in lives} == {id}
    assert [span.attributes["hookline.outcome"] for span in lives] == ["halted", "done"]
    assert [span.status for span in lives] == ["UNSET", "UNSET"]


# ── retries, fallbacks, handoffs, guardrails ────────────────────────────────────────────────


async def test_a_retry_and_a_fallback_say_what_failed(http: Pipeline) -> None:
    first = ScriptedModel(OverloadedError("words"), OverloadedError("words"), name="first")
    agent = Agent(
        first,
        hooks=[retry(2, base=0), fallback(ScriptedModel("ok", name="second"))],
        telemetry=http.telemetry(),
    )
    await agent.chat("hi")
    received = http.flush()
    error = {"error.type": "hookline.errors.OverloadedError"}
    (again,) = events(received, "hookline.retry")
    assert again.items() >= {**error, "hookline.retry.wait": 0.0}.items()
    (other,) = events(received, "hookline.fallback")
    assert other == {**error, "hookline.fallback.from": "first", "hookline.fallback.to": "second"}
    span: Span = received.span("chat second")
    assert next(event.name for event in span.events) == "hookline.retry"
    assert b"words" not in received.raw


async def test_a_handoff_and_a_guardrail_are_events(http: Pipeline) -> None:
    telemetry = http.telemetry()
    other = Agent(ScriptedModel("I am other."), name="other")
    agent = Agent(ScriptedModel(call("transfer_to_other")), telemetry=telemetry)
    agent.handoffs(other)
    await agent.chat("hi")
    guarded = Agent(
        ScriptedModel("hi"),
        hooks=[guardrail(lambda message, run: "no", name="polite", parallel=False)],
        telemetry=telemetry,
    )
    response = await guarded.chat("hi")
    assert response.stop_reason == "guardrail"
    received = http.flush()
    (event,) = events(received, "hookline.handoff")
    assert event == {"hookline.handoff.from": "agent", "hookline.handoff.to": "other"}
    (event,) = events(received, "hookline.guardrail")
    assert event == {
        "hookline.guardrail.name": "polite",
        "hookline.guardrail.on": "input",
        "hookline.guardrail.why": "tripped",
    }


# ── the reader is not the model ─────────────────────────────────────────────────────────────


class Instant:
    """A model that sends many chunks and takes no time for them."""

    name = "instant"
    provider = "tests"

    async def stream(self, request: ModelRequest, /) -> Any:
        for _ in range(400):
            yield TextChunk("word ")
        yield Finish()


async def test_a_slow_reader_is_not_a_slow_model(
    http: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the reader turns the clock: all of the span's time is the reader's."""
    now = 1_000.0
    monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: now)
    for module in ("_emit.spans", "_chat.model_call", "_chat.agent_span"):
        monkeypatch.setattr(f"hookline.otel.{module}.time_ns", lambda: round(now * 1e9))
    agent: Agent[Any] = Agent(Instant(), telemetry=http.telemetry())
    async with agent.chat_stream("hi") as stream:
        async for _ in stream:
            now += 0.25  # no rounding: sums of it are exact
            await asyncio.sleep(0)
    received = http.flush()
    span = received.span("chat instant")
    took = (span.end - span.start) / 1e9
    assert took > 300 * 0.25  # all but what the buffer holds is waited for
    assert span.attributes["hookline.reader_wait"] == took
    metrics = received.metrics
    assert metrics["gen_ai.client.operation.duration"].sum == 0
    assert metrics["gen_ai.client.operation.time_per_output_chunk"].sum == 0
    root = received.span("invoke_agent agent")
    assert root.attributes["hookline.reader_wait"] == took


async def test_a_stream_that_is_cut_after_its_first_chunk_has_the_time_of_it(
    http: Pipeline,
) -> None:
    model = ScriptedModel(Turn("We", "ll", fail=ConnectionError("no"), fail_after=1))
    agent = Agent(model, telemetry=http.telemetry())
    with pytest.raises(ConnectionError):
        await agent.chat("hi")
    received = http.flush()
    span = received.span("chat scripted")
    assert span.attributes["gen_ai.response.time_to_first_chunk"] >= 0
    assert received.metrics["gen_ai.client.operation.time_to_first_chunk"].count == 1
    assert "gen_ai.client.operation.time_per_output_chunk" not in received.metrics


# ── costs, attributes, evaluations ──────────────────────────────────────────────────────────


async def test_what_calls_cost_is_on_spans_and_a_metric(http: Pipeline) -> None:
    rates = {"scripted": Rates(input=1_000_000, output=2_000_000)}
    model = ScriptedModel([call("pay", amount=1)], "done")
    agent = Agent(model, tools=[pay], telemetry=http.telemetry(price=rates))
    response = await agent.chat("hi")
    total = response.usage.input_tokens + 2 * response.usage.output_tokens
    received = http.flush()
    costs = [s.attributes["hookline.cost"] for s in received.ours if s.name == "chat scripted"]
    assert len(costs) == 2
    assert sum(costs) == received.span("invoke_agent agent").attributes["hookline.cost"] == total
    assert sum(point.as_double for point in received.metrics["hookline.cost"].points) == total


@pytest.mark.parametrize("price", [lambda model, usage: None, lambda model, usage: 1 / 0])
async def test_a_call_whose_price_is_not_known_has_no_cost(http: Pipeline, price: Any) -> None:
    await Agent(ScriptedModel("hi"), telemetry=http.telemetry(price=price)).chat("hi")
    received = http.flush()
    assert all("hookline.cost" not in span.attributes for span in received.ours)
    assert "hookline.cost" not in received.metrics


@pytest.mark.parametrize("how", ["dict", "function", "raises"])
async def test_attributes_of_the_application_are_on_every_span(http: Pipeline, how: str) -> None:
    given: dict[str, Any] = {"user.id": "u1", "tags": ["a"], "tenant": None}

    def function(run: Any) -> dict[str, Any]:
        return {**given, "agent": run.agent} if how == "function" else 1 / 0  # type: ignore[return-value]

    agent = Agent(
        ScriptedModel([call("pay", amount=1)], "done"),
        tools=[pay],
        telemetry=http.telemetry(attributes=given if how == "dict" else function),
    )
    await agent.chat("hi")
    spans = http.flush().ours
    assert len(spans) == 4
    for span in spans:
        assert span.attributes.get("user.id") == (None if how == "raises" else "u1")
        assert "tenant" not in span.attributes
        assert ("agent" in span.attributes) is (how == "function")


async def test_attributes_that_a_function_does_not_give_do_not_cost_the_trace(
    http: Pipeline,
) -> None:
    def nobody(run: Any) -> Any:
        return None

    await Agent(ScriptedModel("hi"), telemetry=http.telemetry(attributes=nobody)).chat("hi")
    assert http.flush().tree() == ["invoke_agent agent", "  chat scripted"]


async def test_attributes_with_several_texts_are_redacted_too(http: Pipeline) -> None:
    telemetry = http.telemetry(
        attributes={"tags": ["a", "secret"], "more": ("secret",), "sizes": [1, 2]},
        redact=lambda text: text.replace("secret", "***"),
    )
    await Agent(ScriptedModel("hi"), telemetry=telemetry).chat("hi")
    received = http.flush()
    for span in received.ours:
        assert span.attributes["tags"] == ["a", "***"]
        assert span.attributes["more"] == ["***"]
        assert span.attributes["sizes"] == [1, 2]


async def test_an_evaluation_is_an_event_of_its_chat(http: Pipeline) -> None:
    telemetry = http.telemetry(redact=lambda text: text.replace("secret", "***"))
    response = await Agent(ScriptedModel("hi"), telemetry=telemetry).chat("hi")
    done = record_evaluation(
        response,
        "helpful",
        score=0.5,
        label="meh secret",
        explanation="a secret",
        telemetry=telemetry,
    )
    assert done
    received = http.flush()
    (event,) = received.events
    assert event.event_name == "gen_ai.evaluation.result"
    assert event.span_id == received.span("invoke_agent agent").span_id
    assert attributes_of(event.attributes) == {
        "gen_ai.evaluation.name": "helpful",
        "gen_ai.evaluation.score.value": 0.5,
        "gen_ai.evaluation.score.label": "meh ***",
        "gen_ai.evaluation.explanation": "a ***",
        "hookline.chat.id": response.chat_id,
    }
    with pytest.raises(UsageError, match="needs score"):
        record_evaluation(response, "helpful")
    other = await Agent(ScriptedModel("hi"), telemetry=None).chat("hi")
    assert not record_evaluation(other, "helpful", score=1, telemetry=telemetry)


async def test_a_chat_that_has_more_lives_is_remembered_from_its_last_one(http: Pipeline) -> None:
    """The last 1,024 chats are remembered; other ones end between its lives, and after them."""
    telemetry = http.telemetry()

    def agent() -> Agent[Any]:
        """An agent whose first chat has the id chat-1, as those of the others have."""
        return Agent(ScriptedModel("hi"), runtime=TestRuntime(), telemetry=telemetry)

    other = Agent(ScriptedModel("hi", repeat=True), telemetry=telemetry)
    await agent().chat("hi")
    for _ in range(1023):
        await other.chat("hi")
    response = await agent().chat("hi")
    last = await other.chat("hi")
    assert response.chat_id == "chat-1"
    for chat in (response, last):
        assert record_evaluation(chat, "helpful", score=1, telemetry=telemetry)


# ── the prompt cache ────────────────────────────────────────────────────────────────────────


async def test_a_model_call_says_how_much_of_its_request_equals_the_one_before(
    http: Pipeline,
) -> None:
    model = ScriptedModel(*["ok"] * 3, name="m")
    agent = Agent(model, system="Be kind. " * 20, telemetry=http.telemetry())
    conversation = Conversation()
    for system in (None, None, "Be brief."):
        await agent.chat("go", conversation=conversation, system=system)
    calls = [span for span in http.flush().ours if span.name == "chat m"]
    shares = [span.attributes.get("hookline.prefix") for span in calls]
    assert shares[0] is None
    assert 0.3 < shares[1] < 1
    assert shares[2] == 0
