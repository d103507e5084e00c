"""Spans, as they arrive at a receiver of OTLP: tree, names, kinds, attributes, current spans."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, get_args

import msgspec
import pytest
from opentelemetry import trace
from opentelemetry.baggage import get_baggage, set_baggage
from opentelemetry.context import attach, detach
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.sampling import (
    ALWAYS_OFF,
    Decision,
    ParentBased,
    Sampler,
    SamplingResult,
)
from opentelemetry.trace import get_current_span
from tests._otlp import Pipeline, only_traces, pipeline

from hookline import (
    Agent,
    Conversation,
    Deny,
    HookBus,
    Limits,
    ModelRequest,
    ModelResponse,
    NullBus,
    Settings,
    Stop,
    ToolFailure,
    ToolResult,
    Usage,
    define_hook,
)
from hookline.errors import MaxStepsError, OverloadedError
from hookline.events import TextDelta
from hookline.hooks import retry
from hookline.models import Finish, FinishReason, TextChunk
from hookline.points import OnStep
from hookline.testing import ScriptedModel, Turn, call, collect


@pytest.fixture(params=["http/protobuf", "grpc"])
def otlp(request: pytest.FixtureRequest) -> Iterator[Pipeline]:
    with pipeline(request.param) as made:
        yield made


@pytest.fixture
def http() -> Iterator[Pipeline]:
    with pipeline() as made:
        yield made


def current() -> str:
    """The name of the span that is current here."""
    return getattr(get_current_span(), "name", "-")


async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


# ── the tree, and what the spans say ────────────────────────────────────────────────────────


async def test_the_spans_of_a_chat(otlp: Pipeline) -> None:
    model = ScriptedModel(
        [call("add", a=1, b=2)],
        Turn(
            raw_chunks=[
                TextChunk("Three."),
                Finish(
                    usage=Usage(
                        input_tokens=30,
                        output_tokens=4,
                        cache_read_tokens=20,
                        cache_write_tokens=5,
                        reasoning_tokens=2,
                    ),
                    model="scripted-2026",
                    response_id="resp_1",
                ),
            ]
        ),
    )
    settings = Settings(temperature=0.5, top_p=0.9, max_tokens=100, seed=7, stop=("END",))
    agent = Agent(model, name="sums", tools=[add], settings=settings, telemetry=otlp.telemetry())
    response = await agent.chat("1 + 2?", conversation=Conversation(id="talk-1"))
    received = otlp.flush()
    assert received.tree() == [
        "invoke_agent sums",
        "  chat scripted",
        "  execute_tool add",
        "  chat scripted",
    ]
    agent_span, first, tool, second = received.spans
    asked = {
        "gen_ai.request.temperature": 0.5,
        "gen_ai.request.top_p": 0.9,
        "gen_ai.request.max_tokens": 100,
        "gen_ai.request.seed": 7,
        "gen_ai.request.stop_sequences": ["END"],
    }
    assert (agent_span.kind, agent_span.status) == ("INTERNAL", "UNSET")
    assert agent_span.attributes == {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": "sums",
        "gen_ai.conversation.id": "talk-1",
        "gen_ai.provider.name": "scripted",
        "gen_ai.request.model": "scripted",
        **asked,
        "gen_ai.usage.input_tokens": 40,
        "gen_ai.usage.output_tokens": response.usage.output_tokens,
        "gen_ai.usage.cache_read.input_tokens": 20,
        "gen_ai.usage.cache_creation.input_tokens": 5,
        "gen_ai.usage.reasoning.output_tokens": 2,
        "gen_ai.response.finish_reasons": ["stop"],
        "hookline.chat.id": response.chat_id,
        "hookline.outcome": "done",
        "hookline.steps": 2,
    }
    assert (first.kind, first.status) == ("CLIENT", "UNSET")
    first.attributes.pop("gen_ai.response.time_to_first_chunk", None)
    assert first.attributes == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "scripted",
        "gen_ai.request.model": "scripted",
        "gen_ai.request.stream": True,
        "gen_ai.conversation.id": "talk-1",
        **asked,
        "gen_ai.response.model": "scripted",
        "gen_ai.response.finish_reasons": ["tool_call"],
        "gen_ai.usage.input_tokens": 10,
        "gen_ai.usage.output_tokens": 4,
        "hookline.iteration": 0,
    }
    assert second.attributes["gen_ai.response.model"] == "scripted-2026"
    assert second.attributes["gen_ai.response.id"] == "resp_1"
    assert second.attributes["gen_ai.usage.input_tokens"] == 30
    assert second.attributes["gen_ai.usage.cache_read.input_tokens"] == 20
    assert second.attributes["hookline.iteration"] == 1
    assert (tool.kind, tool.status) == ("INTERNAL", "UNSET")
    assert tool.attributes == {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.agent.name": "sums",
        "gen_ai.tool.name": "add",
        "gen_ai.tool.type": "function",
        "gen_ai.tool.description": "Add two numbers.",
        "gen_ai.tool.call.id": "call_1",
        "hookline.iteration": 0,
    }
    for span in received.spans:
        assert span.trace_id == agent_span.trace_id
        assert agent_span.start <= span.start <= span.end <= agent_span.end
        assert span.events == []
        assert span.status_text == ""


@pytest.mark.parametrize("reason", get_args(FinishReason))
async def test_a_span_has_a_word_for_every_reason_that_an_answer_ends(
    http: Pipeline, reason: FinishReason
) -> None:
    agent = Agent(
        ScriptedModel(Turn("x", finish_reason=reason), repeat=True),
        telemetry=http.telemetry(),
        limits=Limits(steps=1),
    )
    with suppress(MaxStepsError):  # a pause asks the model to go on
        await agent.chat("hi")
    *_, asked = http.flush().spans
    (word,) = asked.attributes["gen_ai.response.finish_reasons"]
    words = {"tool_calls": "tool_call", "refusal": "content_filter"}
    assert word == words.get(reason, reason)


async def test_a_chat_without_a_conversation_has_no_conversation_id(http: Pipeline) -> None:
    await Agent(ScriptedModel("hi"), telemetry=http.telemetry()).chat("hi")
    for span in http.flush().spans:
        assert "gen_ai.conversation.id" not in span.attributes


class Sum(msgspec.Struct):
    total: int


async def test_an_answer_in_a_form_is_marked_as_json(http: Pipeline) -> None:
    agent = Agent(ScriptedModel('{"total": 3}', "3"), telemetry=http.telemetry())
    assert (await agent.chat("1 + 2?", output=Sum)).output == Sum(3)
    await agent.chat("1 + 2?")
    found = [span.attributes.get("gen_ai.output.type") for span in http.flush().spans]
    assert sorted(map(str, found)) == ["None", "None", "json", "json"]


async def test_the_server_and_the_provider_of_a_model_that_says_so(http: Pipeline) -> None:
    model: Any = ScriptedModel("hi", name="big-1")
    model.provider = "openai"
    model.server_address = "api.example.com"
    model.server_port = 8443
    await Agent(model, telemetry=http.telemetry()).chat("hi")
    span = http.flush().span("chat big-1")
    assert span.attributes["gen_ai.provider.name"] == "openai"
    assert span.attributes["server.address"] == "api.example.com"
    assert span.attributes["server.port"] == 8443


async def test_a_sub_agent_stands_below_the_tool_call_that_it_is(http: Pipeline) -> None:
    inner = Agent(ScriptedModel([call("add", a=1, b=1)], "2"), name="inner", tools=[add])
    outer = Agent(
        ScriptedModel([call("inner", input="1 + 1?")], "Two."),
        name="outer",
        tools=[inner.as_tool()],
        telemetry=http.telemetry(),
    )
    await outer.chat("ask")
    assert http.flush().tree() == [
        "invoke_agent outer",
        "  chat scripted",
        "  execute_tool inner",
        "    invoke_agent inner",
        "      chat scripted",
        "      execute_tool add",
        "      chat scripted",
        "  chat scripted",
    ]
    assert http.received.metrics["gen_ai.invoke_agent.tool_calls"].count == 2
    assert http.received.metrics["gen_ai.invoke_agent.tool_calls"].sum == 2  # one each, own only


async def test_another_agent_that_a_tool_asks_stands_below_it_as_well(http: Pipeline) -> None:
    other = Agent(ScriptedModel("2"), name="other")

    async def ask() -> str:
        """Ask the other one."""
        return (await other.chat("1 + 1?")).text

    agent = Agent(ScriptedModel([call("ask")], "Two."), tools=[ask], telemetry=http.telemetry())
    await agent.chat("ask")
    assert http.flush().tree()[2:4] == ["  execute_tool ask", "    invoke_agent other"]


async def test_an_agent_with_no_telemetry_is_in_no_trace(http: Pipeline) -> None:
    silent = Agent(ScriptedModel("2"), name="silent", telemetry=None)
    agent = Agent(
        ScriptedModel([call("silent", input="1 + 1?")], "Two."),
        tools=[silent.as_tool()],
        telemetry=http.telemetry(),
    )
    await agent.chat("ask")
    assert "invoke_agent silent" not in "".join(http.flush().tree())


@pytest.mark.parametrize("beside", [(), ("preRequest",), ("aroundRequest", "onDelta")], ids=str)
async def test_tracing_stands_at_no_delta_and_is_the_outermost(beside: tuple[str, ...]) -> None:
    bus = only_traces(TracerProvider(shutdown_on_exit=False)).bus_for_chat(beside)
    assert bus is not None
    assert bus.hooks("onDelta") == ()
    assert bool(bus.hooks("onHook")) is bool(beside)
    for point in ("aroundChat", "aroundRequest", "aroundToolCall"):
        assert bus.hooks(point)[0].priority >= 1_000


async def test_a_null_bus_runs_no_tracing_hook_either(http: Pipeline) -> None:
    agent = Agent(ScriptedModel("hi"), bus=NullBus(), telemetry=http.telemetry())
    await agent.chat("hi")
    assert http.flush().spans == []


async def test_a_sub_agent_with_hooks_that_it_inherits_is_told_of_them(http: Pipeline) -> None:
    inner = Agent(ScriptedModel("2"), name="inner")
    outer = Agent(
        ScriptedModel([call("inner", input="1 + 1?")], "Two."),
        tools=[inner.as_tool()],
        telemetry=http.telemetry(),
    )
    outer.add_hook(
        "preRequest", lambda ctx: ctx.request.replace(system="x"), name="x", inherit=True
    )
    await outer.chat("ask")
    events = http.flush().span("invoke_agent inner").events
    assert [event.attributes["hookline.hook.name"] for event in events] == ["x"]


async def test_a_model_that_a_wrapper_falls_back_to_is_the_one_of_the_span(
    http: Pipeline,
) -> None:
    small = ScriptedModel("from the small one", name="small")
    agent = Agent(
        ScriptedModel(Turn(fail=ConnectionError("down")), name="big"), telemetry=http.telemetry()
    )

    async def fall_back(ctx: Any, proceed: Any) -> ModelResponse:
        try:
            return await proceed()
        except ConnectionError:
            return await proceed(ctx.request.replace(model=small))

    agent.add_hook("aroundRequest", fall_back)
    await agent.chat("hi")
    span = http.flush().span("chat small")
    assert span.attributes["gen_ai.request.model"] == "small"
    assert span.attributes["hookline.attempts"] == 2
    assert span.status == "UNSET"
    (labels,) = http.received.metrics["gen_ai.client.operation.duration"].labels()
    assert labels["gen_ai.request.model"] == "small"


async def test_a_model_that_cannot_be_described_fails_no_chat(http: Pipeline) -> None:
    small: Any = ScriptedModel("from the small one", name="small")
    small.server_address, small.server_port = "host", "no number"
    agent = Agent(
        ScriptedModel(Turn(fail=ConnectionError("down")), name="big"), telemetry=http.telemetry()
    )

    async def fall_back(ctx: Any, proceed: Any) -> ModelResponse:
        try:
            return await proceed()
        except ConnectionError:
            return await proceed(ctx.request.replace(model=small))

    agent.add_hook("aroundRequest", fall_back)
    assert (await agent.chat("hi")).text == "from the small one"
    assert http.flush().tree() == ["invoke_agent agent", "  chat big"]


async def test_the_error_of_a_model_that_cannot_be_described_is_its_own() -> None:
    provider = TracerProvider(sampler=ParentBased(ALWAYS_OFF), shutdown_on_exit=False)
    model: Any = ScriptedModel(Turn(fail=ConnectionError("down")))
    model.server_address, model.server_port = "host", "no number"
    with pytest.raises(ConnectionError, match="down"):
        await Agent(model, telemetry=only_traces(provider)).chat("hi")


# ── who is current where ────────────────────────────────────────────────────────────────────


async def test_the_callers_span_is_the_parent_as_it_was_at_the_call(http: Pipeline) -> None:
    tracer = http.tracers.get_tracer("caller")
    agent = Agent(ScriptedModel("one", "two"), telemetry=http.telemetry())
    with tracer.start_as_current_span("here"):
        stream = agent.chat_stream("hi")
        done = await agent.chat("hi")
        assert current() == "here"
    with tracer.start_as_current_span("elsewhere"):
        async with stream:
            async for event in stream:
                assert current() == "elsewhere", event
        assert current() == "elsewhere"
    assert done.text == "one"
    tree = http.flush().tree()
    assert tree == [
        "here",
        "  invoke_agent agent",
        "    chat scripted",
        "  invoke_agent agent",
        "    chat scripted",
        "elsewhere",
    ]


async def test_the_span_that_is_current_in_hooks_and_tools(http: Pipeline) -> None:
    seen: dict[str, str] = {}

    def thread(n: int) -> int:
        """A sync tool: it runs in a thread."""
        seen[f"thread {n}"] = current()
        return n

    async def task(n: int) -> int:
        """An async tool, beside others."""
        await asyncio.sleep(0)
        seen[f"task {n}"] = current()
        return n

    class Model:
        name = "watching"

        async def stream(self, request: ModelRequest, /) -> Any:
            seen["model"] = current()
            calls = [call("thread", n=1), call("task", n=1), call("thread", n=2)]
            answer = [Turn("x", *calls), Turn("done")][min(len(request.messages) - 1, 1)]
            for chunk in answer.chunks(0, iter(["a", "b", "c"]).__next__, "m"):
                yield chunk

    agent: Agent[Any] = Agent(Model(), tools=[thread, task], telemetry=http.telemetry())
    for point in (
        *("onChatStart", "preChat", "preRequest", "onDelta", "onResponse", "onMessage"),
        *("preToolCall", "onToolCallResult", "onStep", "preStop", "onChatDone", "onChatEnd"),
    ):
        agent.add_hook(point, lambda ctx, point=point: seen.update({point: current()}))

    async def around(ctx: Any, proceed: Any) -> Any:
        seen[type(ctx).__name__] = current()
        return await proceed()

    for point in ("aroundChat", "aroundRequest", "aroundToolCall"):
        agent.add_hook(point, around)
    await agent.chat("go")
    inside = {name for name, span in seen.items() if span == "invoke_agent agent"}
    assert {seen.pop(name) for name in list(seen) if name.startswith("thread")} == {
        "execute_tool thread"
    }
    assert seen.pop("task 1") == "execute_tool task"
    assert seen.pop("AroundToolCall") in ("execute_tool task", "execute_tool thread")
    for name in ("model", "onDelta"):
        assert seen.pop(name) == "chat watching"
    assert set(seen) == inside
    assert current() == "-"


async def test_baggage_of_the_caller_reaches_hooks_and_tools(http: Pipeline) -> None:
    seen: list[object] = []

    def tool() -> int:
        """A tool."""
        seen.append(get_baggage("tenant"))
        return 1

    agent = Agent(ScriptedModel([call("tool")], "ok"), tools=[tool], telemetry=http.telemetry())
    token = attach(set_baggage("tenant", "acme"))
    try:
        await agent.chat("hi")
    finally:
        detach(token)
    assert seen == ["acme"]


async def test_many_chats_at_once_do_not_mix_up_their_spans(http: Pipeline) -> None:
    async def one(n: int) -> None:
        agent = Agent(
            ScriptedModel([call("add", a=n, b=1)] * 2, "ok", delay=0.0005),
            name=f"agent-{n}",
            tools=[add],
            telemetry=telemetry,
        )
        with tracer.start_as_current_span(f"caller-{n}"):
            await agent.chat("go")

    telemetry = http.telemetry()
    tracer = http.tracers.get_tracer("caller")
    await asyncio.gather(*[one(n) for n in range(20)])
    received = http.flush()
    spans = {span.span_id: span for span in received.spans}
    assert len(spans) == 20 * 6
    for span in spans.values():
        if span.name.startswith("invoke_agent"):
            parent = spans[span.parent_id]
            assert parent.name.rpartition("-")[2] == span.name.rpartition("-")[2]
        if span.name == "execute_tool add":
            assert (
                spans[span.parent_id].name == f"invoke_agent {span.attributes['gen_ai.agent.name']}"
            )


# ── sampling ────────────────────────────────────────────────────────────────────────────────


class Asked(Sampler):
    """Samples everything and keeps what it was asked."""

    def __init__(self) -> None:
        self.asked: dict[str, dict[str, Any]] = {}

    def should_sample(
        self,
        parent_context: Any,
        trace_id: int,
        name: str,
        kind: Any = None,
        attributes: Any = None,
        links: Any = None,
        trace_state: Any = None,
    ) -> SamplingResult:
        self.asked[name] = dict(attributes or {})
        return SamplingResult(Decision.RECORD_AND_SAMPLE, attributes)

    def get_description(self) -> str:
        return "asked"


async def test_a_sampler_sees_what_it_decides_by() -> None:
    sampler = Asked()
    provider = TracerProvider(sampler=sampler, shutdown_on_exit=False)
    model: Any = ScriptedModel([call("add", a=1, b=1)], "2")
    model.server_address = "api.example.com"
    await Agent(model, tools=[add], telemetry=only_traces(provider)).chat("hi")
    chat = sampler.asked["chat scripted"]
    for name in ("operation.name", "provider.name", "request.model"):
        assert f"gen_ai.{name}" in chat
    assert chat["server.address"] == "api.example.com"
    assert sampler.asked["invoke_agent agent"]["gen_ai.agent.name"] == "agent"
    assert sampler.asked["execute_tool add"]["gen_ai.tool.name"] == "add"


async def test_what_is_not_sampled_is_still_measured(http: Pipeline) -> None:
    http.tracers.sampler = ALWAYS_OFF
    agent = Agent(
        ScriptedModel([call("add", a=1, b=1)], "2"),
        tools=[add],
        telemetry=http.telemetry(capture="span_and_event"),
    )
    assert (await agent.chat("hi")).text == "2"
    received = http.flush()
    assert received.spans == []
    assert received.metrics["gen_ai.client.operation.duration"].count == 2


# ── what hooks did ──────────────────────────────────────────────────────────────────────────


def hooks_of(events: list[Any]) -> list[tuple[str, str, str]]:
    for event in events:
        assert event.name == "hookline.hook"
        assert event.attributes["hookline.hook.duration"] >= 0
    return [
        tuple(event.attributes[f"hookline.hook.{what}"] for what in ("name", "point", "outcome"))
        for event in events
    ]


async def test_the_event_of_a_hook_has_its_id(http: Pipeline) -> None:
    hook = define_hook("preToolCall", lambda ctx: Deny("no"), name="limits", id="add_limits")
    model = ScriptedModel([call("add", a=1, b=1)], "ok")
    agent = Agent(model, tools=[add], hooks=[hook], telemetry=http.telemetry())
    agent.add_hook("preChat", lambda ctx: ctx.request.replace(system="x"), name="x")
    await agent.chat("hi")
    events = [event for span in http.flush().spans for event in span.events]
    ids = {e.attributes["hookline.hook.name"]: e.attributes.get("hookline.hook.id") for e in events}
    assert ids == {"limits": "add_limits", "x": None}


async def test_a_hook_that_decided_leaves_an_event_on_the_span_around_it(http: Pipeline) -> None:
    agent = Agent(
        ScriptedModel([call("add", a=1, b=1), call("add", a=2, b=2), call("add", a=3, b=3)], "ok"),
        tools=[add],
        telemetry=http.telemetry(),
    )

    def decide(ctx: Any) -> Any:
        return {1: None, 2: ToolFailure("no"), 3: ToolResult(6)}[ctx.call.arguments["a"]]

    agent.add_hook("preRequest", lambda ctx: None, name="looks on")
    agent.add_hook("preRequest", lambda ctx: ctx.request.replace(system="x"), name="changes")
    agent.add_hook("preToolCall", decide, name="decides")
    agent.add_hook("onMessage", lambda ctx: "ignored", name="observes")
    agent.add_hook("onStep", lambda ctx: Stop("enough"), name="stops")
    await agent.chat("hi")
    spans = http.flush().spans
    assert hooks_of(spans[0].events) == [
        ("changes", "preRequest", "changed"),
        ("decides", "preToolCall", "blocked"),
        ("decides", "preToolCall", "answered"),
        ("stops", "onStep", "stopped"),
    ]
    assert all(span.events == [] for span in spans[1:])


async def test_a_wrapper_that_answers_says_so_on_its_span_and_no_model_is_counted(
    http: Pipeline,
) -> None:
    agent = Agent(ScriptedModel(), telemetry=http.telemetry())

    async def cache(ctx: Any, proceed: Any) -> ModelResponse:
        return ModelResponse.of("from the cache")

    agent.add_hook("aroundRequest", cache, name="cache")
    await agent.chat("hi")
    received = http.flush()
    (span,) = received.spans  # no model was asked, so there is no span of a model call
    assert span.name == "invoke_agent agent"
    assert hooks_of(span.events) == [("cache", "aroundRequest", "answered")]
    assert "gen_ai.client.operation.duration" not in received.metrics
    assert received.metrics["gen_ai.invoke_agent.inference_calls"].sum == 0


async def test_a_hook_that_raised_leaves_an_event(http: Pipeline) -> None:
    agent = Agent(ScriptedModel(), telemetry=http.telemetry())

    def broken(ctx: Any) -> None:
        raise LookupError("secret")

    agent.add_hook("preRequest", broken, name="broken")
    with pytest.raises(LookupError):
        await agent.chat("hi")
    span = http.flush().span("invoke_agent agent")
    assert hooks_of(span.events) == [("broken", "preRequest", "raised")]
    assert (span.status, span.attributes["error.type"]) == ("ERROR", "LookupError")


async def test_a_hook_on_each_delta_leaves_one_event_for_the_answer(http: Pipeline) -> None:
    agent = Agent(ScriptedModel("a text in many chunks", chunk=2), telemetry=http.telemetry())

    def shout(ctx: Any) -> Any:
        delta = ctx.delta
        return TextChunk(delta.text.upper()) if isinstance(delta, TextChunk) else None

    agent.add_hook("onDelta", shout, name="shout")
    events = await collect(agent.chat_stream("hi"))
    chunks = sum(isinstance(event, TextDelta) for event in events)
    received = http.flush()
    (event,) = received.span("chat scripted").events
    assert hooks_of([event]) == [("shout", "onDelta", "changed")]
    assert event.attributes["hookline.hook.count"] == chunks
    metric = received.metrics["hookline.hook.duration"]
    assert metric.count == 2  # one value for what it changed, one for what it let be


async def test_on_hook_hears_nothing_new_and_no_hook_of_the_user_is_kept_from_it(
    http: Pipeline,
) -> None:
    """Tracing listens at onHook like anybody else."""
    heard: list[str] = []
    agent = Agent(ScriptedModel("ok"), telemetry=http.telemetry())
    agent.add_hook("preRequest", lambda ctx: None, name="mine")
    agent.add_hook("onHook", lambda ctx: heard.append(ctx.hook))
    await agent.chat("hi")
    assert heard.count("mine") == 1


# ── on and off ──────────────────────────────────────────────────────────────────────────────


async def test_the_default_uses_the_global_provider_once_there_is_one(
    http: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = Agent(ScriptedModel("one", "two"))
    await agent.chat("before")
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", http.tracers)
    await agent.chat("after")
    assert http.flush().tree() == ["invoke_agent agent", "  chat scripted"]


async def test_hooks_of_a_chat_do_not_take_the_place_of_tracing(http: Pipeline) -> None:
    agent = Agent(ScriptedModel("one"), telemetry=http.telemetry())
    seen: list[str] = []
    await agent.chat("hi", hooks={"onMessage": lambda ctx: seen.append(ctx.message.role)})
    assert http.flush().tree() == ["invoke_agent agent", "  chat scripted"]
    assert seen == ["user", "assistant"]


async def test_a_source_of_hooks_is_asked_once_for_each_chat() -> None:
    """`telemetry=` takes anything that brings hooks."""
    seen: list[str] = []

    class Source:
        def __init__(self) -> None:
            self.bus: HookBus[Any] = HookBus()
            self.bus.add_hook("onMessage", lambda ctx: seen.append(ctx.message.role))
            self.asked: list[set[object]] = []

        def bus_for_chat(self, beside: Any) -> HookBus[Any]:
            self.asked.append(set(beside))
            return self.bus

    source = Source()
    agent = Agent(ScriptedModel("one", "two", "three"), telemetry=source)
    await agent.chat("hi")
    dispose = agent.add_hook("preRequest", lambda ctx: None)
    await agent.chat("hi")
    dispose()  # a hook that is gone counts no more
    await agent.chat("hi")
    assert source.asked == [set(), {"preRequest"}, set()]
    assert seen == ["user", "assistant"] * 3


async def test_why_a_model_was_asked_again_is_an_event_and_what_users_report_is_not(
    http: Pipeline,
) -> None:
    model = ScriptedModel(OverloadedError("secret words"), "Here.")
    agent = Agent(model, telemetry=http.telemetry(), hooks=[retry(base=0)])

    @agent.hook("onStep")
    async def report(ctx: OnStep[Any]) -> None:
        await ctx.run.status("mine", {"secret": "words"})

    await agent.chat("hi")
    events = [event for span in http.flush().spans for event in span.events]
    (told,) = [event for event in events if event.name != "hookline.hook"]
    assert told.name == "hookline.retry"
    assert told.attributes == {
        "error.type": "hookline.errors.OverloadedError",
        "hookline.retry.attempt": 2,
        "hookline.retry.of": 3,
        "hookline.retry.wait": 0.0,
    }


async def test_a_message_that_is_sent_into_the_chat_is_an_event_of_its_span(
    http: Pipeline,
) -> None:
    agent: Agent[Any] = Agent(ScriptedModel("One.", "Two."), telemetry=http.telemetry())
    agent.add_hook("preSteer", lambda ctx: Deny("no") if ctx.message.text == "no" else None)
    async with agent.chat_stream("go") as stream:
        stream.send("no")
        sent = stream.send("more", when="idle")
        async for _ in stream:
            pass
    events = http.flush().spans[0].events
    assert [event.attributes for event in events if event.name == "hookline.message_sent"] == [
        {"hookline.message_sent.id": sent.message.id, "hookline.message_sent.when": "idle"}
    ]
