"""The names of OpenTelemetry's GenAI conventions, and their mapping from hookline's own names.

They are defined here because no package provides them: the constants in the conventions' package
are deprecated, and those for GenAI are not released. A `Semconv` holds the differences between the
versions; all other names are the same in each.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from hookline.errors import HooklineError

# ── attributes ──────────────────────────────────────────────────────────────────────────────

OPERATION: Final = "gen_ai.operation.name"
PROVIDER: Final = "gen_ai.provider.name"
AGENT_NAME: Final = "gen_ai.agent.name"
CONVERSATION: Final = "gen_ai.conversation.id"
REQUEST_MODEL: Final = "gen_ai.request.model"
OUTPUT_TYPE: Final = "gen_ai.output.type"
REQUEST_STREAM: Final = "gen_ai.request.stream"
STOP_SEQUENCES: Final = "gen_ai.request.stop_sequences"
RESPONSE_MODEL: Final = "gen_ai.response.model"
RESPONSE_ID: Final = "gen_ai.response.id"
FINISH_REASONS: Final = "gen_ai.response.finish_reasons"
FIRST_CHUNK: Final = "gen_ai.response.time_to_first_chunk"
INPUT_TOKENS: Final = "gen_ai.usage.input_tokens"
OUTPUT_TOKENS: Final = "gen_ai.usage.output_tokens"
CACHE_READ: Final = "gen_ai.usage.cache_read.input_tokens"
REASONING_TOKENS: Final = "gen_ai.usage.reasoning.output_tokens"
TOKEN_TYPE: Final = "gen_ai.token.type"
TOKEN_MODALITY: Final = "gen_ai.token.modality"
TOOL_NAME: Final = "gen_ai.tool.name"
TOOL_TYPE: Final = "gen_ai.tool.type"
TOOL_DESCRIPTION: Final = "gen_ai.tool.description"
TOOL_CALL_ID: Final = "gen_ai.tool.call.id"
SERVER_ADDRESS: Final = "server.address"
SERVER_PORT: Final = "server.port"
ERROR_TYPE: Final = "error.type"
EXCEPTION_TYPE: Final = "exception.type"
EXCEPTION_MESSAGE: Final = "exception.message"

# Content: recorded only on request.
SYSTEM: Final = "gen_ai.system_instructions"
INPUT: Final = "gen_ai.input.messages"
OUTPUT: Final = "gen_ai.output.messages"
DEFINITIONS: Final = "gen_ai.tool.definitions"
ARGUMENTS: Final = "gen_ai.tool.call.arguments"
RESULT: Final = "gen_ai.tool.call.result"

EVALUATION_NAME: Final = "gen_ai.evaluation.name"
EVALUATION_SCORE: Final = "gen_ai.evaluation.score.value"
EVALUATION_LABEL: Final = "gen_ai.evaluation.score.label"
EVALUATION_WHY: Final = "gen_ai.evaluation.explanation"

# Names of hookline's own.
CHAT_ID: Final = "hookline.chat.id"
ITERATION: Final = "hookline.iteration"
OUTCOME: Final = "hookline.outcome"
STEPS: Final = "hookline.steps"
ATTEMPTS: Final = "hookline.attempts"
EARLIER: Final = "hookline.input.earlier_messages"
OMITTED_MESSAGES: Final = "hookline.input.dropped_messages"
PREFIX: Final = "hookline.prefix"
READER_WAIT: Final = "hookline.reader_wait"
STOP_REASON: Final = "hookline.stop_reason"
PENDING: Final = "hookline.pending"
COST: Final = "hookline.cost"
LINK: Final = "hookline.link"
APPROVAL_EVENT: Final = "hookline.approval"
APPROVAL_DECISION: Final = "hookline.approval.decision"
APPROVAL_EDITED: Final = "hookline.approval.edited"
APPROVAL_BY: Final = "hookline.approval.by"
APPROVAL_WAIT: Final = "hookline.approval.wait"
SENT_EVENT: Final = "hookline.message_sent"
SENT_ID: Final = "hookline.message_sent.id"
SENT_WHEN: Final = "hookline.message_sent.when"
HOOK_EVENT: Final = "hookline.hook"
# For each status that hookline itself publishes: its event, and the keys of its data.
STATUS_EVENTS: Final = {
    "retrying": ("hookline.retry", ("attempt", "of", "wait", "error", "status", "code")),
    "falling-back": ("hookline.fallback", ("from", "to", "error", "status", "code")),
    "guardrail": ("hookline.guardrail", ("name", "on", "why")),
    "handoff": ("hookline.handoff", ("from", "to")),
    "summarized": ("hookline.summarized", ("messages", "tokens")),
    "prefix-moved": ("hookline.prefix_moved", ("hook", "share", "lost", "differs")),
}
HOOK_NAME: Final = "hookline.hook.name"
HOOK_ID: Final = "hookline.hook.id"
HOOK_POINT: Final = "hookline.hook.point"
HOOK_OUTCOME: Final = "hookline.hook.outcome"
HOOK_DURATION: Final = "hookline.hook.duration"
HOOK_COUNT: Final = "hookline.hook.count"

# ── operations and events ───────────────────────────────────────────────────────────────────

INVOKE_AGENT: Final = "invoke_agent"
CHAT: Final = "chat"
EXECUTE_TOOL: Final = "execute_tool"
DETAILS_EVENT: Final = "gen_ai.client.inference.operation.details"
EXCEPTION_EVENT: Final = "gen_ai.client.operation.exception"
EVALUATION_EVENT: Final = "gen_ai.evaluation.result"

# ── what differs between versions ───────────────────────────────────────────────────────────


class Semconv(NamedTuple):
    """The names that differ between the versions of the conventions."""

    cache_write: str
    """The attribute for tokens written to a cache."""
    calls: str
    """The prefix of the metrics of model calls."""
    typed_tokens: bool
    """Whether one histogram has all tokens by type; if not, each type has its own instruments."""
    agent_caches: bool
    """Whether an `invoke_agent` span counts cached tokens."""
    schema: str | None
    """The schema URL of the version, if one is published."""


SEMCONVS: Final = {
    "v1.41": Semconv(
        cache_write="gen_ai.usage.cache_creation.input_tokens",
        calls="gen_ai.client.operation",
        typed_tokens=True,
        agent_caches=True,
        schema="https://opentelemetry.io/schemas/1.41.0",
    ),
    "genai-v0.1.0": Semconv(
        cache_write="gen_ai.usage.cache_write.input_tokens",
        calls="gen_ai.client.inference",
        typed_tokens=False,
        agent_caches=False,
        schema=None,
    ),
}

# ── metrics: seconds double from bucket to bucket, tokens grow by four ──────────────────────

CLIENT_SECONDS: Final = [0.01 * 2**n for n in range(14)]
AGENT_SECONDS: Final = [0.1 * 2**n for n in range(13)]
TOKENS: Final = [float(4**n) for n in range(14)]
COUNTS: Final = [float(2**n) for n in range(8)]
MCP_SECONDS: Final = [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 120, 300]
HOOK_SECONDS: Final = [0.0001 * 4**n for n in range(10)]

# ── what of ours becomes what of theirs ─────────────────────────────────────────────────────

FINISHED: Final = {
    "stop": "stop",
    "tool_calls": "tool_call",
    "pause": "pause",
    "length": "length",
    "refusal": "content_filter",
    "other": "other",
}
UNKNOWN: Final = "unknown"
OTHER: Final = "_OTHER"
CANCELLED: Final = "CancelledError"
READER_GONE: Final = ("consumer left", "collected")  # abort reasons for a stream without a reader


def error_type(exc: BaseException) -> str:
    """Return an exception's name: qualified, except for built-ins; ours as users import them."""
    kind = type(exc)
    if kind.__module__ == "builtins" or kind.__name__ == CANCELLED:
        return kind.__qualname__
    if isinstance(exc, HooklineError) and kind.__module__.startswith("hookline."):
        return f"hookline.errors.{kind.__qualname__}"
    return f"{kind.__module__}.{kind.__qualname__}"


def whole(text: str) -> str:
    """Return the text with valid Unicode: one lone surrogate would lose its whole batch."""
    return text if text.isascii() else text.encode(errors="replace").decode()


_IDENTIFIER: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.\-]{0,63}")


def identifier(text: str) -> str:
    """Return a short name unchanged; any other text may be content, and becomes `_OTHER`."""
    return text if _IDENTIFIER.fullmatch(text) else OTHER
