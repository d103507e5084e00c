"""The words of OpenTelemetry's GenAI conventions that hookline speaks, and how ours map to them.

They are kept here because no package does: the conventions' own constants are deprecated, and the
ones for GenAI are not released. The names are those of v1.41, which dashboards read today;
docs/telemetry.md tells what was renamed since.
"""

from __future__ import annotations

from typing import Any, Final

from hookline import Settings
from hookline.errors import HooklineError

# ── attributes ──────────────────────────────────────────────────────────────────────────────

OPERATION: Final = "gen_ai.operation.name"
PROVIDER: Final = "gen_ai.provider.name"
AGENT_NAME: Final = "gen_ai.agent.name"
CONVERSATION: Final = "gen_ai.conversation.id"
REQUEST_MODEL: Final = "gen_ai.request.model"
OUTPUT_TYPE: Final = "gen_ai.output.type"
REQUEST_STREAM: Final = "gen_ai.request.stream"
RESPONSE_MODEL: Final = "gen_ai.response.model"
RESPONSE_ID: Final = "gen_ai.response.id"
FINISH_REASONS: Final = "gen_ai.response.finish_reasons"
FIRST_CHUNK: Final = "gen_ai.response.time_to_first_chunk"
INPUT_TOKENS: Final = "gen_ai.usage.input_tokens"
OUTPUT_TOKENS: Final = "gen_ai.usage.output_tokens"
CACHE_READ: Final = "gen_ai.usage.cache_read.input_tokens"
CACHE_WRITE: Final = "gen_ai.usage.cache_creation.input_tokens"
REASONING_TOKENS: Final = "gen_ai.usage.reasoning.output_tokens"
TOKEN_TYPE: Final = "gen_ai.token.type"
TOOL_NAME: Final = "gen_ai.tool.name"
TOOL_TYPE: Final = "gen_ai.tool.type"
TOOL_DESCRIPTION: Final = "gen_ai.tool.description"
TOOL_CALL_ID: Final = "gen_ai.tool.call.id"
SERVER_ADDRESS: Final = "server.address"
SERVER_PORT: Final = "server.port"
ERROR_TYPE: Final = "error.type"
EXCEPTION_TYPE: Final = "exception.type"
EXCEPTION_MESSAGE: Final = "exception.message"

# Content: written only where somebody has asked for it.
SYSTEM: Final = "gen_ai.system_instructions"
INPUT: Final = "gen_ai.input.messages"
OUTPUT: Final = "gen_ai.output.messages"
DEFINITIONS: Final = "gen_ai.tool.definitions"
ARGUMENTS: Final = "gen_ai.tool.call.arguments"
RESULT: Final = "gen_ai.tool.call.result"

# Our own.
CHAT_ID: Final = "hookline.chat.id"
ITERATION: Final = "hookline.iteration"
OUTCOME: Final = "hookline.outcome"
STEPS: Final = "hookline.steps"
ATTEMPTS: Final = "hookline.attempts"
EARLIER: Final = "hookline.input.earlier_messages"
HOOK_EVENT: Final = "hookline.hook"
STATUS_EVENT: Final = "hookline.status"
STATUS_TYPE: Final = "hookline.status.type"
HOOK_NAME: Final = "hookline.hook.name"
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

# ── metrics: seconds double from bucket to bucket, tokens grow by four ──────────────────────

CLIENT_SECONDS: Final = [0.01 * 2**n for n in range(14)]
AGENT_SECONDS: Final = [0.1 * 2**n for n in range(13)]
TOKENS: Final = [float(4**n) for n in range(14)]
COUNTS: Final = [float(2**n) for n in range(8)]
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
LEFT: Final = ("consumer left", "collected")  # reasons of an abort: the reader walked away


def error_type(exc: BaseException) -> str:
    """The exception's name: with its module, except for Python's own; ours as they are imported."""
    kind = type(exc)
    if kind.__module__ == "builtins" or kind.__name__ == CANCELLED:
        return kind.__qualname__
    if isinstance(exc, HooklineError) and kind.__module__.startswith("hookline."):
        return f"hookline.errors.{kind.__qualname__}"
    return f"{kind.__module__}.{kind.__qualname__}"


def parameters(settings: Settings) -> dict[str, Any]:
    """The settings of a request, as attributes."""
    found: dict[str, Any] = {
        "gen_ai.request.temperature": settings.temperature,
        "gen_ai.request.top_p": settings.top_p,
        "gen_ai.request.max_tokens": settings.max_tokens,
        "gen_ai.request.seed": settings.seed,
        "gen_ai.request.stop_sequences": settings.stop or None,
    }
    return {name: value for name, value in found.items() if value is not None}
