"""The instruments, with the names, units and buckets that the conventions recommend."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from opentelemetry.context import Context
from opentelemetry.metrics import Counter, Histogram, Meter, NoOpMeter

from hookline import Usage
from hookline.otel._conventions import names
from hookline.otel._conventions.names import (
    AGENT_SECONDS,
    CLIENT_SECONDS,
    COUNTS,
    HOOK_SECONDS,
    MCP_SECONDS,
    TOKENS,
    Semconv,
)

Labels = dict[str, Any]


class Points(NamedTuple):
    """The dimensions of an answered model call: for the call, and for its tokens."""

    call: Labels
    input: Labels
    output: Labels
    modal: Labels

    @classmethod
    def of(cls, call: Labels) -> Points:
        """Return the dimensions of a call with these labels."""
        return cls(
            call,
            {**call, names.TOKEN_TYPE: "input"},
            {**call, names.TOKEN_TYPE: "output"},
            {**call, names.TOKEN_MODALITY: "unknown"},
        )


class Instruments:
    """One instrument per metric; disabled instruments record nothing."""

    def __init__(self, meter: Meter, semconv: Semconv, *, core: bool) -> None:
        rest: Meter = NoOpMeter("hookline") if core else meter

        def histogram(
            name: str, about: str, buckets: Sequence[float] = CLIENT_SECONDS, unit: str = "s"
        ) -> Histogram:
            of = rest if name in _REST or name.endswith("chunk") else meter
            return of.create_histogram(
                name, unit=unit, description=about, explicit_bucket_boundaries_advisory=buckets
            )

        calls = semconv.calls
        self.duration = histogram(f"{calls}.duration", "Duration of a model call.")
        self.first_chunk = histogram(
            f"{calls}.time_to_first_chunk",
            "Time from a model call to the first chunk of its answer.",
        )
        self.chunk_time = histogram(
            f"{calls}.time_per_output_chunk", "Mean time between the chunks of an answer."
        )
        self._tokens(meter, semconv, histogram)
        self.cost: Counter = meter.create_counter(
            "hookline.cost", unit="{currency}", description="Cost of model calls."
        )
        self.agent_duration = histogram(
            "gen_ai.invoke_agent.duration", "Duration of a chat.", AGENT_SECONDS
        )
        self.agent_calls = histogram(
            "gen_ai.invoke_agent.inference_calls",
            "Model calls of a chat, without those of sub-agents.",
            COUNTS,
            "{inference_call}",
        )
        self.agent_tools = histogram(
            "gen_ai.invoke_agent.tool_calls",
            "Tool calls of a chat, without those of sub-agents.",
            COUNTS,
            "{tool_call}",
        )
        self.tool_duration = histogram("gen_ai.execute_tool.duration", "Duration of a tool call.")
        self.mcp_duration = histogram(
            "mcp.client.operation.duration", "Duration of a request to an MCP server.", MCP_SECONDS
        )
        self.hook_duration = histogram(
            "hookline.hook.duration", "Duration of a hook.", HOOK_SECONDS
        )

    def _tokens(self, meter: Meter, semconv: Semconv, histogram: Any) -> None:
        self._typed: Histogram | None = None
        self._counters: list[tuple[Counter, str]] = []
        if semconv.typed_tokens:
            self._typed = histogram(
                "gen_ai.client.token.usage", "Tokens of a model call, by type.", TOKENS, "{token}"
            )
            return
        for name, field in _USAGE_FIELDS.items():
            instrument = meter.create_counter(
                f"gen_ai.client.inference.usage.{name}", unit="{token}", description="Tokens used."
            )
            self._counters.append((instrument, field))
        self._input, self._output = [
            histogram(
                f"gen_ai.client.inference.operation.{name}_tokens",
                f"The {name} tokens of a model call.",
                TOKENS,
                "{token}",
            )
            for name in ("input", "output")
        ]

    def record_tokens(self, usage: Usage, points: Points, context: Context) -> None:
        """Record the tokens of a model call."""
        if self._typed is not None:
            self._typed.record(usage.input_tokens, points.input, context)
            self._typed.record(usage.output_tokens, points.output, context)
            return
        self._input.record(usage.input_tokens, points.call, context)
        self._output.record(usage.output_tokens, points.call, context)
        for counter, field in self._counters:
            if tokens := getattr(usage, field):
                counter.add(tokens, points.modal, context)


_USAGE_FIELDS = {
    "input_tokens": "input_tokens",
    "output_tokens": "output_tokens",
    "cache_read.input_tokens": "cache_read_tokens",
    "cache_write.input_tokens": "cache_write_tokens",
    "reasoning.output_tokens": "reasoning_tokens",
}
_REST = {  # what `metrics="core"` leaves out
    "gen_ai.invoke_agent.inference_calls",
    "gen_ai.invoke_agent.tool_calls",
    "mcp.client.operation.duration",
    "hookline.hook.duration",
}
