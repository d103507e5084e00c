"""The table of the conventions: it has teeth, and both versions hold for the same chats."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests._conventions import TABLE, faults
from tests._otlp import Received, Span, pipeline

from hookline import Agent, Conversation, Usage
from hookline.errors import UsageError
from hookline.hooks import fallback, retry
from hookline.models import Finish, TextChunk
from hookline.otel import Telemetry
from hookline.providers.anthropic import AnthropicModel
from hookline.testing import ScriptedModel, Turn, call


async def chatted(version: str) -> Received:
    """A tool that fails, a retry, a cache; a chat that fails; one that asks no model."""

    def broken() -> None:
        """A tool."""
        raise LookupError("no")

    used = Usage(input_tokens=9, output_tokens=2, cache_read_tokens=3, cache_write_tokens=4)
    last = Turn(raw_chunks=[TextChunk("done"), Finish(usage=used)])
    with pipeline() as otlp:
        telemetry = otlp.telemetry(semconv=version)
        failing = Turn(fail=ConnectionError("down"))
        agent = Agent(
            ScriptedModel([call("broken")], failing, last, failing, failing),
            tools=[broken],
            hooks=[retry(2, base=0, on=ConnectionError)],
            telemetry=telemetry,
        )
        await agent.chat("hi", conversation=Conversation(id="talk"))
        with pytest.raises(ConnectionError):
            await agent.chat("hi")
        stopped = Agent(ScriptedModel(), telemetry=telemetry, hooks={"preRequest": _broken})
        with pytest.raises(LookupError):
            await stopped.chat("hi")
        return otlp.flush()


def _broken(ctx: Any) -> None:
    raise LookupError("no")


@pytest.mark.parametrize("version", sorted(TABLE))
async def test_the_spans_have_what_each_version_asks_for(version: str) -> None:
    received = await chatted(version)
    assert [fault for span in received.ours for fault in faults(span, version)] == []
    assert {span.name.split()[0] for span in received.ours} == {
        "invoke_agent",
        "chat",
        "execute_tool",
    }
    (asked,) = [s for s in received.ours if s.attributes.get("gen_ai.usage.input_tokens") == 9][-1:]
    written = "cache_write" if version == "genai-v0.1.0" else "cache_creation"
    assert asked.attributes[f"gen_ai.usage.{written}.input_tokens"] == 4


async def test_a_required_attribute_that_is_missing_is_a_fault() -> None:
    spans = (await chatted("v1.41")).ours
    for operation in ("invoke_agent", "chat", "execute_tool"):
        span = next(span for span in spans if span.name.startswith(operation))
        for name in TABLE["v1.41"]["spans"][_kind(operation)]["required"]:
            less = {key: value for key, value in span.attributes.items() if key != name}
            assert faults(replace(span, attributes=less), "v1.41"), (operation, name)
        more = {**span.attributes, "gen_ai.made.up": 1}
        assert faults(replace(span, attributes=more), "v1.41") == [
            f"{span.name}: gen_ai.made.up is not of v1.41"
        ]
        assert faults(replace(span, kind="SERVER"), "v1.41") == [f"{span.name}: kind SERVER"]


def _kind(operation: str) -> str:
    kinds = {"invoke_agent": "invoke_agent.internal", "chat": "inference.client"}
    return f"gen_ai.{kinds.get(operation, 'execute_tool.internal')}"


async def test_an_error_type_and_the_status_go_together() -> None:
    span: Span = next(s for s in (await chatted("v1.41")).ours if s.status == "ERROR")
    assert faults(replace(span, status="UNSET"), "v1.41")


async def test_main_has_other_names_of_metrics_and_never_both() -> None:
    old, new = (await chatted("v1.41")).metrics, (await chatted("genai-v0.1.0")).metrics
    client = "gen_ai.client."
    assert {name for name in old if name.startswith(client)} == {
        f"{client}operation.duration",
        f"{client}operation.time_to_first_chunk",
        f"{client}token.usage",
    }
    assert {name for name in new if name.startswith(client)} == {
        f"{client}inference.duration",
        f"{client}inference.time_to_first_chunk",
        f"{client}inference.operation.input_tokens",
        f"{client}inference.operation.output_tokens",
        f"{client}inference.usage.input_tokens",
        f"{client}inference.usage.output_tokens",
        f"{client}inference.usage.cache_read.input_tokens",
        f"{client}inference.usage.cache_write.input_tokens",
    }
    (point,) = new[f"{client}inference.usage.cache_write.input_tokens"].points
    assert point.as_int == 4
    assert {"gen_ai.token.modality": "unknown"}.items() <= new[
        f"{client}inference.usage.input_tokens"
    ].labels()[0].items()


async def test_core_metrics_are_durations_and_tokens() -> None:
    with pipeline() as otlp:
        agent = Agent(ScriptedModel("hi"), telemetry=otlp.telemetry(metrics="core"))
        agent.add_hook("preRequest", lambda ctx: None)
        await agent.chat("hi")
        assert set(otlp.flush().metrics) == {
            "gen_ai.client.operation.duration",
            "gen_ai.client.token.usage",
            "gen_ai.invoke_agent.duration",
        }


async def test_a_wrapper_that_answers_after_a_failed_attempt_ends_its_span() -> None:
    async def kept(ctx: Any, proceed: Any) -> Any:
        try:
            return await proceed()
        except ConnectionError:
            from hookline import ModelResponse

            return ModelResponse.of("kept")

    with pipeline() as otlp:
        model = ScriptedModel(Turn(fail=ConnectionError("down")))
        agent = Agent(model, telemetry=otlp.telemetry(), hooks={"aroundRequest": kept})
        await agent.chat("hi")
        received = otlp.flush()
    assert received.tree() == ["invoke_agent agent", "  chat scripted"]
    assert received.metrics["gen_ai.invoke_agent.inference_calls"].sum == 1


async def test_an_attempt_in_a_task_of_its_own_is_inside_the_same_span() -> None:
    import asyncio

    async def hedged(ctx: Any, proceed: Any) -> Any:
        try:
            return await asyncio.create_task(proceed())
        except ConnectionError:
            return await asyncio.create_task(proceed())

    with pipeline() as otlp:
        model = ScriptedModel(Turn(fail=ConnectionError("down")), "ok")
        agent = Agent(model, telemetry=otlp.telemetry(), hooks=[fallback(model)])
        agent.add_hook("aroundRequest", hedged)
        await agent.chat("hi")
        received = otlp.flush()
    assert received.tree() == ["invoke_agent agent", "  chat scripted"]
    assert received.span("chat scripted").attributes["hookline.attempts"] == 2


@pytest.mark.parametrize(
    "option",
    [
        {"semconv": "v2"},
        {"metrics": "none"},
        {"max_attribute": 1},
        {"price": {"m": 1.0}},
        {"price": 3},
    ],
    ids=str,
)
def test_an_option_that_is_none_is_refused(option: Any) -> None:
    with pytest.raises(UsageError, match=next(iter(option))):
        Telemetry(**option)


async def test_the_client_that_we_make_for_anthropic_writes_no_second_span() -> None:
    anthropic = pytest.importorskip("anthropic")
    model: Any = AnthropicModel("claude", api_key="x")
    client: Any = await model._connection.clients.get()
    if hasattr(client, "_open_telemetry"):  # since version 2
        assert client._open_telemetry["traces"]["enabled"] is False
        assert anthropic.AsyncAnthropic(api_key="x")._open_telemetry["traces"]["enabled"] is True
