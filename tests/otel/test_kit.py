"""`hookline.testing.spans`, what OpenInference's back-ends read, and chats that are not sampled."""

from __future__ import annotations

from typing import Any

import pytest
from opentelemetry.metrics import NoOpMeterProvider
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ParentBased

from hookline import Agent, Conversation
from hookline.errors import OverloadedError, UsageError
from hookline.hooks import approve, retry
from hookline.otel import Telemetry
from hookline.testing import ScriptedModel, call, spans


def pay(amount: int) -> str:
    """Pay somebody."""
    return f"paid {amount}"


async def test_the_tree_of_a_chat_and_its_sub_agent() -> None:
    def broken() -> None:
        """A tool."""
        raise LookupError("no")

    inner = Agent(ScriptedModel([call("broken")], "no"), name="inner", tools=[broken])
    model = ScriptedModel(OverloadedError("busy"), [call("inner", input="go")], "ok")
    outer = Agent(model, name="outer", tools=[inner.as_tool()], hooks=[retry(base=0)])
    with spans() as found:
        await outer.chat("hi")
    assert (
        found.tree("hookline.steps", events=True)
        == """\
invoke_agent outer hookline.steps=2
  chat scripted
    · hookline.retry
    · hookline.hook
  execute_tool inner
    invoke_agent inner hookline.steps=2
      chat scripted
      execute_tool broken !LookupError
      chat scripted
  chat scripted"""
    )
    assert len(found) == len(found.all) == 8
    assert found.by_name("execute_tool broken")[0].error == "LookupError"


async def test_only_chats_that_begin_inside_are_kept_and_an_agent_may_have_its_own() -> None:
    quiet = Agent(ScriptedModel("one", "two"), telemetry=None)
    with spans() as found:
        await quiet.chat("hi")
        await Agent(ScriptedModel("hi"), telemetry=found.telemetry).chat("hi")
    await Agent(ScriptedModel("hi")).chat("hi")
    assert found.tree() == "invoke_agent agent\n  chat scripted"


def test_spans_that_would_go_elsewhere_are_refused() -> None:
    with pytest.raises(UsageError, match="leave tracer_provider= out"), spans(tracer_provider=None):
        pass


@pytest.mark.parametrize("capture", ["no_content", "span_only"])
async def test_what_openinference_reads(capture: Any) -> None:
    agent = Agent(
        ScriptedModel([call("pay", amount=5)], "done"), tools=[pay], hooks=[approve("pay")]
    )
    with spans(openinference=True, capture=capture) as found:
        await agent.chat("pay", conversation=Conversation(id="talk"))
    root, asked = found.all
    assert root.attributes["openinference.span.kind"] == "AGENT"
    assert asked.attributes["openinference.span.kind"] == "LLM"
    assert root.attributes["session.id"] == "talk"
    assert root.attributes["output.value"] == "[waits for an approval of pay]"
    assert root.attributes.get("input.value") == ("pay" if capture == "span_only" else None)
    assert ("input.value" in asked.attributes) is (capture == "span_only")


async def test_a_chat_that_is_not_sampled_starts_one_span_and_no_more() -> None:
    provider = TracerProvider(sampler=ParentBased(ALWAYS_OFF), shutdown_on_exit=False)
    started: list[str] = []

    class Tracers:
        def get_tracer(self, *args: Any, **options: Any) -> Any:
            tracer = provider.get_tracer(*args, **options)
            inner = tracer.start_span

            def start(name: str, *args: Any, **options: Any) -> Any:
                started.append(name)
                return inner(name, *args, **options)

            tracer.start_span = start  # type: ignore[method-assign]
            return tracer

    telemetry = Telemetry(tracer_provider=Tracers(), meter_provider=NoOpMeterProvider())  # type: ignore[arg-type]
    agent = Agent(ScriptedModel([call("pay", amount=1)], "ok"), tools=[pay], telemetry=telemetry)
    await agent.chat("hi")
    assert started == ["invoke_agent agent"]
