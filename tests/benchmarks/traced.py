"""The limits of W6: loops that make their spans and points by hand, with the bare SDK.

They do what hookline does: the same spans with their names, kinds, parents and attributes, in few
calls; the span of a read or of a tool is current while that runs, and never while a chunk is passed
on; with metrics, the same instruments with the same dimensions.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from time import time_ns
from typing import Any

from opentelemetry.context import attach, detach, get_current
from opentelemetry.metrics import Histogram, Meter
from opentelemetry.trace import SpanKind, Tracer, set_span_in_context

from hookline import Agent, Limits
from hookline.models import Chunk, ModelRequest

from . import byhand, ours
from .measure import Work

AGENT = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "agent"}
ASKED: dict[str, Any] = {
    "gen_ai.operation.name": "chat",
    "gen_ai.provider.name": "unknown",
    "gen_ai.request.model": "Scripted",
}
MODEL = {**ASKED, "gen_ai.request.stream": True}
USED = {
    "gen_ai.tool.name": "add",
    "gen_ai.tool.type": "function",
    "gen_ai.agent.name": "agent",
}
TOOL = {
    **USED,
    "gen_ai.operation.name": "execute_tool",
    "gen_ai.tool.description": "Add two numbers.",
}


# ── the limit ───────────────────────────────────────────────────────────────────────────────


class Histograms:
    """The instruments of an iteration; their buckets do not matter here."""

    def __init__(self, meter: Meter) -> None:
        def histogram(name: str) -> Histogram:
            buckets = [0.01 * 2**n for n in range(14)]
            return meter.create_histogram(name, explicit_bucket_boundaries_advisory=buckets)

        self.asked = histogram("gen_ai.client.operation.duration")
        self.first = histogram("gen_ai.client.operation.time_to_first_chunk")
        self.used = histogram("gen_ai.execute_tool.duration")


async def traced_stream(
    tracer: Tracer,
    script: Sequence[Sequence[byhand.Chunk]],
    tools: byhand.Tools,
    to: Histograms | None = None,
) -> AsyncIterator[tuple[str, Any]]:
    """The limit's loop with a span around the chat, each model call and each tool call."""
    history: list[byhand.Entry] = [byhand.user()]
    root = tracer.start_span("invoke_agent agent", attributes=AGENT)
    above = set_span_in_context(root)
    step = 0
    while True:
        said: list[str] = []
        wanted: list[byhand.CallChunk] = []
        start, first = time_ns(), 0
        span = tracer.start_span(
            "chat Scripted",
            context=above,
            kind=SpanKind.CLIENT,
            attributes={**MODEL, "hookline.iteration": step},
            start_time=start,
        )
        inside = set_span_in_context(span, above)
        chunks = byhand.scripted(script, 1, history)
        while True:
            token = attach(inside)
            try:
                chunk = await anext(chunks, None)
            finally:
                detach(token)
            if chunk is None:
                break
            first = first or time_ns() - start
            if isinstance(chunk, str):
                said.append(chunk)
                yield "text", chunk
            else:
                wanted.append(chunk)
        end = time_ns()
        reasons = ("tool_call",) if wanted else ("stop",)
        found: dict[str, Any] = {
            "gen_ai.response.finish_reasons": reasons,
            "gen_ai.response.time_to_first_chunk": first / 1e9,
        }
        span.set_attributes(found)
        span.end(end)
        if to is not None:
            to.asked.record((end - start) / 1e9, ASKED, inside)
            to.first.record(first / 1e9, ASKED, inside)
        history.append(("assistant", said, wanted))
        if not wanted:
            root.end()
            return
        for id, name, arguments in wanted:
            start = time_ns()
            span = tracer.start_span(
                f"execute_tool {name}",
                context=above,
                attributes={**TOOL, "gen_ai.tool.call.id": id, "hookline.iteration": step},
                start_time=start,
            )
            inside = set_span_in_context(span, above)
            token = attach(inside)
            try:
                value = await tools[name](**json.loads(arguments))
            finally:
                detach(token)
            end = time_ns()
            span.end(end)
            if to is not None:
                to.used.record((end - start) / 1e9, USED, inside)
            history.append(("tool", id, str(value)))
            yield "result", value
        step += 1


async def traced_by_hand(
    tracer: Tracer,
    script: Sequence[Sequence[byhand.Chunk]],
    tools: byhand.Tools,
    to: Histograms | None = None,
) -> int:
    """One such chat, all read; gives the number of finished calls."""
    done = 0
    async for kind, _ in traced_stream(tracer, script, tools, to):
        done += kind == "result"
    return done


# ── the same spans in a chat ──────────────────────────────────────────────────────────────────


class TracedModel(ours.Scripted):
    """A model that makes its span by hand."""

    def __init__(self, tracer: Tracer, calls: int) -> None:
        super().__init__(calls)
        self.tracer = tracer

    async def stream(self, request: ModelRequest, /) -> AsyncIterator[Chunk]:
        step = len(request.messages) // 2
        start, first, above = time_ns(), 0, get_current()
        attributes = {**MODEL, "hookline.iteration": step}
        span = self.tracer.start_span(
            "chat Scripted", above, SpanKind.CLIENT, attributes, start_time=start
        )
        token = attach(set_span_in_context(span, above))
        for chunk in self.answers[step]:
            first = first or time_ns() - start
            yield chunk
        detach(token)
        found: dict[str, Any] = {
            "gen_ai.response.finish_reasons": ("tool_call",),
            "gen_ai.response.time_to_first_chunk": first / 1e9,
        }
        span.set_attributes(found)
        span.end(time_ns())


class TracedCounter(byhand.Counter):
    """A tool that does."""

    def __init__(self, tracer: Tracer) -> None:
        super().__init__()
        self.tracer = tracer

    async def add(self, a: int, b: int) -> int:
        """Add two numbers."""
        above = get_current()
        attributes: dict[str, Any] = {
            **TOOL,
            "gen_ai.tool.call.id": f"call_{a}",
            "hookline.iteration": a,
        }
        span = self.tracer.start_span("execute_tool add", above, attributes=attributes)
        token = attach(set_span_in_context(span, above))
        self.calls += 1
        detach(token)
        span.end()
        return a + b


def inside(tracer: Tracer, calls: int) -> Work:
    """A chat of hookline's that is not traced, below a span by hand, with this model and tool."""
    tool = TracedCounter(tracer)
    agent: Agent[Any] = Agent(
        TracedModel(tracer, calls), tools=[tool.add], limits=Limits(steps=calls + 1), telemetry=None
    )

    async def chat() -> int:
        root = tracer.start_span("invoke_agent agent", attributes=AGENT)
        token = attach(set_span_in_context(root))
        try:
            return await ours.read_calls(agent)
        finally:
            detach(token)
            root.end()

    return chat
