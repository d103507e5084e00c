"""Whatever is promised of a trace holds in every ending of a chat: one table, all of it checked.

Each chat calls a tool and then answers, as far as its ending lets it. A secret is in all that is
said; `redact=` takes it out where content is written.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from itertools import pairwise
from typing import Any, NamedTuple

import pytest
from tests._otlp import Received, Span, pipeline

from hookline import Agent, Approve, Conversation, Deny, Response, Stop, tool
from hookline.errors import StopChat
from hookline.events import ToolCallStarted
from hookline.hooks import approve, fallback, retry
from hookline.models import Rates
from hookline.otel import Telemetry
from hookline.testing import ScriptedModel, Turn, call

SECRET = "4711-secret"
ABORTED = "hookline.errors.ChatAbortedError"
NAMES = {"v1.41": "gen_ai.client.operation", "genai-v0.1.0": "gen_ai.client.inference"}


@tool
async def pay(to: str) -> str:
    """Pay somebody."""
    return f"paid {to}"


@tool(name="pay")
async def broken(to: str) -> str:
    """Fail to pay somebody."""
    raise LookupError(to)


@tool(name="pay")
async def stops(to: str) -> str:
    """Stop the chat."""
    raise StopChat("enough")


@tool(name="pay")
async def hangs(to: str) -> str:
    """Pay somebody, some day."""
    await asyncio.Event().wait()
    return ""


PAYS = [call("pay", to=SECRET)]
FAILS = Turn(fail=ConnectionError(SECRET))
TALK = "talk"


def bank(telemetry: Telemetry, *turns: Any, pays: Any = pay, **options: Any) -> Agent[Any]:
    model = ScriptedModel(*(turns or (PAYS, f"It is {SECRET}.")), name="large")
    return Agent(model, name="bank", tools=[pays], telemetry=telemetry, **options)


async def chat(agent: Agent[Any]) -> Response:
    return await agent.chat(f"Pay {SECRET}", conversation=Conversation(id=TALK))


# ── the endings ─────────────────────────────────────────────────────────────────────────────


async def ok(to: Telemetry) -> None:
    await chat(bank(to))


async def recovered(to: Telemetry) -> None:
    hooks = [
        retry(2, base=0, on=ConnectionError),
        fallback(ScriptedModel("ok", name="small"), on=ConnectionError),
    ]
    await chat(bank(to, PAYS, FAILS, FAILS, hooks=hooks))


async def stopped_by_a_hook(to: Telemetry) -> None:
    await chat(bank(to, hooks={"onStep": lambda ctx: Stop("budget")}))


async def stopped_by_a_tool(to: Telemetry) -> None:
    await chat(bank(to, pays=stops))


async def model_failed(to: Telemetry) -> None:
    with pytest.raises(ConnectionError):
        await chat(bank(to, PAYS, FAILS))


async def model_failed_in_its_answer(to: Telemetry) -> None:
    cut = Turn(SECRET, fail=ConnectionError(SECRET), fail_after=1)
    with pytest.raises(ConnectionError):
        await chat(bank(to, PAYS, cut))


async def tool_failed(to: Telemetry) -> None:
    await chat(bank(to, pays=broken))


async def hook_failed(to: Telemetry) -> None:
    def fails(ctx: Any) -> None:
        raise ValueError(SECRET)

    with pytest.raises(ValueError, match=SECRET):
        await chat(bank(to, hooks={"onStep": fails}))


async def aborted(to: Telemetry) -> None:
    agent = bank(to, pays=hangs)
    async with agent.chat_stream(SECRET, conversation=Conversation(id=TALK)) as stream:
        async for event in stream:
            if isinstance(event, ToolCallStarted):
                stream.abort(f"enough of {SECRET}")


async def left(to: Telemetry) -> None:
    agent = bank(to, pays=hangs)
    async with agent.chat_stream(SECRET, conversation=Conversation(id=TALK)) as stream:
        async for event in stream:
            if isinstance(event, ToolCallStarted):
                break


async def timed_out(to: Telemetry) -> None:
    """The caller's own time limit, which is over when the tool begins."""
    limits: list[asyncio.Timeout] = []

    @tool(name="pay")
    async def late(to: str) -> None:
        """Begin when the time is over."""
        limits[0].reschedule(asyncio.get_running_loop().time())
        await asyncio.Event().wait()

    async def limited() -> None:
        async with asyncio.timeout(None) as limit:
            limits.append(limit)
            await chat(bank(to, pays=late))

    with pytest.raises(TimeoutError):
        await limited()


async def cancelled(to: Telemetry) -> None:
    begun = asyncio.Event()

    @tool(name="pay")
    async def begins(to: str) -> None:
        """Begin, and never end."""
        begun.set()
        await asyncio.Event().wait()

    task = asyncio.create_task(chat(bank(to, pays=begins)))
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def denied(to: Telemetry) -> None:
    async def nobody(request: Any, run: Any) -> Deny:
        return Deny(SECRET)

    await chat(bank(to, hooks=[approve("pay")], approver=nobody))


async def waits(to: Telemetry) -> None:
    await chat(bank(to, hooks=[approve("pay")]))


async def resumed(to: Telemetry) -> None:
    agent, talk = bank(to, hooks=[approve("pay")]), Conversation(id=TALK)
    asked = await agent.chat(SECRET, conversation=talk)
    await agent.resume(talk, {asked.pending[0].id: Approve()})


async def resumed_and_failed(to: Telemetry) -> None:
    agent, talk = bank(to, PAYS, FAILS, hooks=[approve("pay")]), Conversation(id=TALK)
    asked = await agent.chat(SECRET, conversation=talk)
    with pytest.raises(ConnectionError):
        await agent.resume(talk, {asked.pending[0].id: Approve()})


class Ending(NamedTuple):
    """What a chat that ends so leaves behind; of two chats, what the last one does."""

    play: Callable[[Telemetry], Awaitable[None]]
    spans: list[tuple[str, str | None]]  # of all chats, below each root: what, and its error
    outcome: str = "done"
    error: str | None = None  # of the root
    stop: str | None = None
    events: tuple[str, ...] = ()  # of hookline's own, beside those of hooks


MODEL, TOOL = ("chat large", None), ("execute_tool pay", None)
FAILED = ("chat large", "ConnectionError")
CUT = ("execute_tool pay", "CancelledError")
ASKED = ("hookline.approval asked",)
APPROVED = (*ASKED, "hookline.approval approved")
ENDINGS = [
    Ending(ok, [MODEL, TOOL, MODEL]),
    Ending(
        recovered,
        [MODEL, TOOL, ("chat small", None)],
        events=("hookline.retry", "hookline.fallback"),
    ),
    Ending(stopped_by_a_hook, [MODEL, TOOL], stop="budget"),
    Ending(stopped_by_a_tool, [MODEL, TOOL], stop="enough"),
    Ending(model_failed, [MODEL, TOOL, FAILED], "error", "ConnectionError"),
    Ending(model_failed_in_its_answer, [MODEL, TOOL, FAILED], "error", "ConnectionError"),
    Ending(tool_failed, [MODEL, ("execute_tool pay", "LookupError"), MODEL]),
    Ending(hook_failed, [MODEL, TOOL], "error", "ValueError"),
    Ending(aborted, [MODEL, CUT], "aborted", ABORTED),
    Ending(left, [MODEL, ("execute_tool pay", "_OTHER")], "aborted", "_OTHER"),
    Ending(timed_out, [MODEL, CUT], "aborted", "CancelledError"),
    Ending(cancelled, [MODEL, CUT], "aborted", "CancelledError"),
    Ending(denied, [MODEL, MODEL], events=(*ASKED, "hookline.approval denied")),
    Ending(waits, [MODEL], stop="approval", events=ASKED),
    Ending(resumed, [MODEL, TOOL, MODEL], events=APPROVED),
    Ending(resumed_and_failed, [MODEL, TOOL, FAILED], "error", "ConnectionError", events=APPROVED),
]
CHATS = {resumed: 2, resumed_and_failed: 2}


# ── what holds in each ──────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("capture", ["no_content", "span_and_event"])
@pytest.mark.parametrize("semconv", list(NAMES))
@pytest.mark.parametrize("ending", ENDINGS, ids=lambda ending: ending.play.__name__)
async def test_all_that_is_promised_holds(
    ending: Ending, semconv: str, capture: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    with pipeline() as otlp:  # checks each span against the conventions at its end
        await ending.play(
            otlp.telemetry(
                semconv=semconv,
                capture=capture,
                redact=lambda text: text.replace(SECRET, "***"),
                price={name: Rates(input=1e6, output=1e6) for name in ("large", "small")},
                attributes={"user.id": "ada"},
                openinference=True,
            )
        )
        received = otlp.flush()
    roots = [span for span in received.ours if span.name == "invoke_agent bank"]
    inner = [span for span in received.ours if span not in roots]
    assert len(roots) == CHATS.get(ending.play, 1)
    _ends(ending, roots, inner)
    _told(ending, roots, inner, received)
    _measured(ending, roots, inner, received, NAMES[semconv])
    assert SECRET.encode() not in received.raw
    assert ("***" in str([span.attributes for span in received.ours])) is (capture != "no_content")
    loggers = ("opentelemetry", "hookline.otel")
    assert [each for each in caplog.records if each.name.startswith(loggers)] == []


def _ends(ending: Ending, roots: list[Span], inner: list[Span]) -> None:
    """The tree, each span once and inside its parent, with its error."""
    ids = {span.span_id: span for span in [*roots, *inner]}
    assert len(ids) == len(roots) + len(inner)
    for span in inner:
        parent = ids[span.parent_id]
        assert parent in roots
        assert parent.start <= span.start <= span.end <= parent.end
    found = [(span.name, span.attributes.get("error.type")) for span in inner]
    assert found == ending.spans
    *before, last = roots
    assert [span.status for span in before] == ["UNSET"] * len(before)
    assert last.attributes.get("error.type") == ending.error
    assert last.attributes["hookline.outcome"] == ending.outcome
    assert last.attributes.get("hookline.stop_reason") == ending.stop
    assert last.attributes.get("hookline.pending") == (1 if ending.play is waits else None)


def _told(ending: Ending, roots: list[Span], inner: list[Span], received: Received) -> None:
    """Attributes that the application asked for, costs, kinds, times, events and links."""
    for span in [*roots, *inner]:
        assert span.attributes["user.id"] == "ada"
        assert span.attributes["openinference.span.kind"] in ("AGENT", "LLM", "TOOL")
    for span in roots:
        assert span.attributes["gen_ai.provider.name"] == "scripted"
        assert span.attributes["gen_ai.conversation.id"] == span.attributes["session.id"] == TALK
    asked = [span for span in inner if span.name.startswith("chat")]
    for span in asked:
        failed = "error.type" in span.attributes
        assert ("hookline.cost" in span.attributes) is not failed
        assert (span.attributes["gen_ai.response.finish_reasons"] == ["error"]) is failed
        streamed = not failed or ending.play is model_failed_in_its_answer
        assert ("gen_ai.response.time_to_first_chunk" in span.attributes) is streamed
    costs = [span.attributes.get("hookline.cost", 0.0) for span in asked]
    assert sum(span.attributes.get("hookline.cost", 0.0) for span in roots) == sum(costs) > 0
    if ending.play is waits:
        assert "waits for an approval" in roots[0].attributes["output.value"]
    events = [event for span in received.ours for event in span.events]
    told = [
        f"{event.name} {event.attributes.get('hookline.approval.decision', '')}".strip()
        for event in events
        if event.name != "hookline.hook"
    ]
    assert told == list(ending.events)
    for first, second in pairwise(roots):
        assert second.links == [(first.span_id, {"hookline.link": "approval"})]
    assert all(span.links == [] for span in [roots[0], *inner])


def _measured(
    ending: Ending, roots: list[Span], inner: list[Span], received: Received, calls: str
) -> None:
    """Metrics count what the spans show, with the same errors."""
    metrics = received.metrics
    tools = [span for span in inner if span.name.startswith("execute_tool")]
    models = [span for span in inner if span not in tools]
    for name, spans in (
        (f"{calls}.duration", models),
        ("gen_ai.execute_tool.duration", tools),
        ("gen_ai.invoke_agent.duration", roots),
    ):
        if not spans:
            assert name not in metrics
            continue
        metric = metrics[name]
        assert metric.count == len(spans)
        took = sum(span.end - span.start for span in spans) / 1e9
        assert metric.sum == pytest.approx(took)
        errors = {labels.get("error.type") for labels in metric.labels()}
        assert errors == {span.attributes.get("error.type") for span in spans}
        assert not any("user.id" in labels for labels in metric.labels())
    assert metrics["gen_ai.invoke_agent.inference_calls"].sum == len(models)
    assert metrics["gen_ai.invoke_agent.tool_calls"].sum == len(tools)
    costs = [point.as_double for point in metrics["hookline.cost"].points]
    assert sum(costs) == sum(span.attributes.get("hookline.cost", 0.0) for span in roots)
    failures = [e for e in received.events if e.event_name == "gen_ai.client.operation.exception"]
    assert len(failures) == {"ConnectionError": 1}.get(ending.error or "", 0) + (
        2 if ending.play is recovered else 0
    )
