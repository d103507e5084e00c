"""The instruments: their names, units and buckets as the conventions advise them."""

from __future__ import annotations

from collections.abc import Sequence

from opentelemetry.metrics import Histogram, Meter

from hookline.otel._names import AGENT_SECONDS, CLIENT_SECONDS, COUNTS, HOOK_SECONDS, TOKENS


class Instruments:
    """One histogram per metric."""

    __slots__ = (
        "agent_calls",
        "agent_duration",
        "agent_tools",
        "chunk_time",
        "duration",
        "first_chunk",
        "hook_duration",
        "tokens",
        "tool_duration",
    )

    def __init__(self, meter: Meter) -> None:
        def histogram(name: str, unit: str, buckets: Sequence[float], about: str) -> Histogram:
            return meter.create_histogram(
                name, unit=unit, description=about, explicit_bucket_boundaries_advisory=buckets
            )

        self.duration = histogram(
            "gen_ai.client.operation.duration", "s", CLIENT_SECONDS, "Duration of a model call."
        )
        self.tokens = histogram(
            "gen_ai.client.token.usage", "{token}", TOKENS, "Tokens of a model call, by type."
        )
        self.first_chunk = histogram(
            "gen_ai.client.operation.time_to_first_chunk",
            "s",
            CLIENT_SECONDS,
            "Time from a model call to the first chunk of its answer.",
        )
        self.chunk_time = histogram(
            "gen_ai.client.operation.time_per_output_chunk",
            "s",
            CLIENT_SECONDS,
            "Mean time between the chunks of an answer.",
        )
        self.agent_duration = histogram(
            "gen_ai.invoke_agent.duration", "s", AGENT_SECONDS, "Duration of a chat."
        )
        self.agent_calls = histogram(
            "gen_ai.invoke_agent.inference_calls",
            "{inference_call}",
            COUNTS,
            "Model calls of a chat, without those of sub-agents.",
        )
        self.agent_tools = histogram(
            "gen_ai.invoke_agent.tool_calls",
            "{tool_call}",
            COUNTS,
            "Tool calls of a chat, without those of sub-agents.",
        )
        self.tool_duration = histogram(
            "gen_ai.execute_tool.duration", "s", CLIENT_SECONDS, "Duration of a tool call."
        )
        self.hook_duration = histogram(
            "hookline.hook.duration", "s", HOOK_SECONDS, "Duration of a hook."
        )
