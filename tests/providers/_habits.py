"""What servers are known to send, and what hookline makes of it: one row a habit.

`test_habits.py` sends each over a loopback socket to the vendor's own SDK, and
`scripts/generate.py` writes docs/compatibility.md from the same rows. The habits are after public
documentation, issues and source of the servers; no service was asked.
"""

from __future__ import annotations

import json
from typing import Any

import msgspec

from hookline.errors import (
    AuthenticationError,
    BadRequestError,
    ContentRefusedError,
    ContextTooLongError,
    MalformedStreamError,
    ModelError,
    OverloadedError,
    RateLimitError,
)
from hookline.testing import Wire, WireFormat

DONE = b"data: [DONE]\n\n"


class Habit(msgspec.Struct, frozen=True, kw_only=True):
    """One row. The fields after `wire` are what must come of it."""

    format: WireFormat = "openai-chat"
    server: str
    habit: str
    does: str
    wire: Wire
    model: str = "m"
    text: str | None = None
    reasoning: str | None = None
    calls: tuple[tuple[str, dict[str, Any]], ...] = ()
    finish: str | None = None
    error: type[ModelError] | None = None
    retryable: bool | None = None
    says: str = ""
    sent: str = ""  # what the request after the calls holds
    kept: str = ""  # what the answer's meta holds


def sse(*events: Any, done: bool = True) -> Wire:
    """Events of Chat Completions, or of a format that names them."""
    body = b"".join(b"data: " + json.dumps(each).encode() + b"\n\n" for each in events)
    return Wire(body=body + (DONE if done else b""))


def named(*events: Any) -> Wire:
    """Events with their names, as Anthropic and Responses send them."""
    lines = (f"event: {each['type']}\ndata: {json.dumps(each)}\n\n" for each in events)
    return Wire(body="".join(lines).encode())


def delta(reason: str | None = None, **fields: Any) -> dict[str, Any]:
    return {"id": "c", "choices": [{"index": 0, "delta": fields, "finish_reason": reason}]}


def calls(*given: Any, reason: str = "tool_calls") -> Wire:
    """Deltas of tool calls, one event each."""
    return sse(*(delta(tool_calls=each) for each in given), delta(reason))


def call(id: str | None = "c1", arguments: Any = '{"city": "Oslo"}', **more: Any) -> dict[str, Any]:
    function = {"name": "weather", "arguments": arguments}
    return {**({} if id is None else {"id": id}), "function": function, **more}


OSLO = ("weather", {"city": "Oslo"})
ROME = ("weather", {"city": "Rome"})
WHOLE = {"id": "c", "object": "chat.completion", "model": "m"}
HTML = (
    b"<!doctype html><html><head><title>Sign in</title></head><body>Sign in, please</body></html>"
)

# ── Chat Completions: calls ─────────────────────────────────────────────────────────────────

CALLS = [
    Habit(
        server="OpenAI",
        habit="arguments in pieces",
        does="joins them",
        wire=calls(
            [call(index=0, arguments='{"ci')],
            [{"index": 0, "function": {"arguments": 'ty": "Oslo"}'}}],
        ),
        calls=(OSLO,),
    ),
    Habit(
        server="Gemini, Ollama",
        habit="a call without index",
        does="one call",
        wire=calls([call()]),
        calls=(OSLO,),
    ),
    Habit(
        server="Gemini",
        habit="two calls without index in one chunk",
        does="tells them by their ids",
        wire=calls([call("a"), call("b", '{"city": "Rome"}')]),
        calls=(OSLO, ROME),
    ),
    Habit(
        server="Gemini",
        habit="two calls without index in two chunks",
        does="tells them by their ids",
        wire=calls([call("a")], [call("b", '{"city": "Rome"}')]),
        calls=(OSLO, ROME),
    ),
    Habit(
        server="older Ollama, LiteLLM",
        habit="one index for all calls",
        does="a new id is a new call",
        wire=calls([call("a", index=0)], [call("b", '{"city": "Rome"}', index=0)]),
        calls=(OSLO, ROME),
    ),
    Habit(
        server="llama.cpp, older vLLM",
        habit="a call without id",
        does="makes an id",
        wire=calls([call(None, index=0)]),
        calls=(OSLO,),
    ),
    Habit(
        server="some proxies",
        habit="an empty id",
        does="makes an id",
        wire=calls([call("", index=0)]),
        calls=(OSLO,),
    ),
    Habit(
        server="Qwen",
        habit="id and name repeated in each chunk",
        does="one call",
        wire=calls([call("a", '{"city"', index=0)], [call("a", ': "Oslo"}', index=0)]),
        calls=(OSLO,),
    ),
    Habit(
        server="vLLM",
        habit="the same id for two calls",
        does="makes the second one unique",
        wire=calls([call("a", index=0), call("a", '{"city": "Rome"}', index=1)]),
        calls=(OSLO, ROME),
    ),
    Habit(
        server="Kimi",
        habit="ids such as functions.weather:0",
        does="keeps them for the way back, and gives other providers one that they take",
        wire=calls([call("functions.weather:0", index=0)]),
        calls=(OSLO,),
        sent='"tool_call_id": "functions.weather:0"',
    ),
    Habit(
        server="Ollama",
        habit="arguments as an object",
        does="takes the object",
        wire=calls([call(arguments={"city": "Oslo"}, index=0)]),
        calls=(OSLO,),
    ),
    Habit(
        server="LM Studio",
        habit="arguments of null",
        does="no arguments",
        wire=calls([call(arguments=None, index=0)]),
        calls=(("weather", {}),),
    ),
    Habit(
        server="Groq, Together",
        habit="finish_reason stop with calls",
        does="they are calls",
        wire=calls([call(index=0)], reason="stop"),
        calls=(OSLO,),
        finish="tool_calls",
    ),
    Habit(
        server="older proxies",
        habit="the old function_call",
        does="one call",
        wire=sse(
            delta(function_call={"name": "weather", "arguments": '{"city":'}),
            delta(function_call={"arguments": ' "Oslo"}'}),
            delta("function_call"),
        ),
        calls=(OSLO,),
        finish="tool_calls",
    ),
    Habit(
        server="Gemini",
        habit="a thought signature beside a call",
        does="sends it back with the call",
        wire=calls([call(index=0, extra_content={"google": {"thought_signature": "c2ln"}})]),
        calls=(OSLO,),
        sent='"thought_signature": "c2ln"',
    ),
    Habit(
        server="Mistral",
        habit="a call whole in one chunk, with the finish reason",
        does="one call",
        wire=sse(delta("tool_calls", tool_calls=[call("AbCdEfGh1", index=0)])),
        calls=(OSLO,),
    ),
]

# ── Chat Completions: text and reasoning ────────────────────────────────────────────────────

TEXTS = [
    Habit(
        server="Azure",
        habit="a first chunk with filter results and no choices",
        does="passes over it",
        wire=sse({"choices": [], "prompt_filter_results": []}, delta("stop", content="Hi.")),
        text="Hi.",
    ),
    Habit(
        server="Azure",
        habit="a choice without delta",
        does="passes over it",
        wire=sse({"choices": [{"index": 0}]}, delta("stop", content="Hi.")),
        text="Hi.",
    ),
    Habit(
        server="older vLLM, LM Studio",
        habit="no usage",
        does="no usage is told",
        wire=sse(delta("stop", content="Hi.")),
        text="Hi.",
    ),
    Habit(
        server="xAI, vLLM",
        habit="usage in each chunk",
        does="the last one counts",
        wire=sse(
            {**delta(content="Hi."), "usage": {"prompt_tokens": 1}},
            {**delta("stop"), "usage": {"prompt_tokens": 9}},
        ),
        text="Hi.",
    ),
    Habit(
        server="some gateways",
        habit="no [DONE]",
        does="a finish reason is enough",
        wire=sse(delta("stop", content="Hi."), done=False),
        text="Hi.",
    ),
    Habit(
        server="some gateways",
        habit="lines that end in CRLF",
        does="reads them",
        wire=Wire(
            body=b'data: {"choices":[{"delta":{"content":"Hi."},"finish_reason":"stop"}]}\r\n\r\n'
        ),
        text="Hi.",
    ),
    Habit(
        server="OpenRouter",
        habit="comments that keep the connection open",
        does="passes over them",
        wire=Wire(
            body=b': OPENROUTER PROCESSING\n\ndata: {"choices":[{"delta":{"content":"Hi."},'
            b'"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
        ),
        text="Hi.",
    ),
    Habit(
        server="DeepSeek, vLLM, SGLang",
        habit="reasoning_content",
        does="reasoning, sent back with calls",
        wire=sse(delta(reasoning_content="Hm."), delta(tool_calls=[call(index=0)]), delta("stop")),
        reasoning="Hm.",
        calls=(OSLO,),
        sent='"reasoning_content": "Hm."',
    ),
    Habit(
        server="Groq, Ollama, OpenRouter",
        habit="reasoning",
        does="reasoning, sent back with calls",
        wire=sse(delta(reasoning="Hm."), delta(tool_calls=[call(index=0)]), delta("stop")),
        reasoning="Hm.",
        calls=(OSLO,),
        sent='"reasoning": "Hm."',
    ),
    Habit(
        server="some gateways",
        habit="the same reasoning under both names",
        does="once",
        wire=sse(delta(reasoning="Hm.", reasoning_content="Hm."), delta("stop", content="Hi.")),
        reasoning="Hm.",
        text="Hi.",
    ),
    Habit(
        server="OpenRouter",
        habit="reasoning_details with signatures",
        does="sends them back with calls",
        wire=sse(
            delta(reasoning="Hm.", reasoning_details=[{"type": "x", "signature": "sealed"}]),
            delta(tool_calls=[call(index=0)]),
            delta("stop"),
        ),
        reasoning="Hm.",
        calls=(OSLO,),
        sent='"signature": "sealed"',
    ),
    Habit(
        server="DeepSeek-R1, Qwen3, QwQ where the server does not parse",
        habit="<think>…</think> in the text",
        does="reasoning, for families known to do so or with think_tags=True",
        model="deepseek-r1:8b",
        wire=sse(
            delta(content="<thi"),
            delta(content="nk>\nHm."),
            delta(content=" So.</th"),
            delta(content="ink>\n\nHi."),
            delta("stop"),
        ),
        reasoning="Hm. So.",
        text="Hi.",
    ),
    Habit(
        server="any other model",
        habit="<think> in the text",
        does="text",
        model="gpt-x",
        wire=sse(delta("stop", content="<think>Hm.</think>Hi.")),
        text="<think>Hm.</think>Hi.",
    ),
    Habit(
        server="Mistral",
        habit="content as a list, with thinking in it",
        does="text and reasoning",
        wire=sse(
            delta(content=[{"type": "thinking", "thinking": [{"type": "text", "text": "Hm."}]}]),
            delta("stop", content=[{"type": "text", "text": "Hi."}]),
        ),
        reasoning="Hm.",
        text="Hi.",
    ),
    Habit(
        server="OpenAI",
        habit="a refusal",
        does="text, and the finish reason refusal",
        wire=sse(delta("stop", refusal="No.")),
        text="No.",
        finish="refusal",
    ),
    Habit(
        server="Azure, OpenAI",
        habit="finish_reason content_filter",
        does="the finish reason refusal",
        wire=sse(delta("content_filter", content="Half")),
        text="Half",
        finish="refusal",
    ),
    Habit(
        server="Mistral",
        habit="finish_reason model_length",
        does="the finish reason length",
        wire=sse(delta("model_length", content="Half")),
        text="Half",
        finish="length",
    ),
    Habit(
        server="OpenAI",
        habit="several choices",
        does="the first one",
        wire=sse(
            {
                "choices": [
                    {"index": 0, "delta": {"content": "Hi."}, "finish_reason": "stop"},
                    {"index": 1, "delta": {"content": "No."}, "finish_reason": "stop"},
                ]
            }
        ),
        text="Hi.",
    ),
    Habit(
        server="OpenAI",
        habit="log probabilities",
        does="keeps them in the message's meta",
        wire=sse(
            {
                "choices": [
                    {
                        "delta": {"content": "Hi."},
                        "finish_reason": "stop",
                        "logprobs": {"content": [{"token": "Hi.", "logprob": -0.5}]},
                    }
                ]
            }
        ),
        text="Hi.",
        kept='"logprob": -0.5',
    ),
    Habit(
        server="servers that cannot stream",
        habit="200 with a whole completion",
        does="the answer",
        wire=Wire(
            body=json.dumps(
                {
                    **WHOLE,
                    "choices": [
                        {
                            "index": 0,
                            "message": {"role": "assistant", "content": "Hi."},
                            "finish_reason": "stop",
                        }
                    ],
                }
            ).encode(),
            headers={"content-type": "application/json"},
        ),
        text="Hi.",
    ),
    Habit(
        server="any",
        habit="half a character (a surrogate alone)",
        does="U+FFFD in its place",
        wire=Wire(
            body=b'data: {"choices":[{"delta":{"content":"a\\ud83d"},"finish_reason":"stop"}]}\n\n'
        ),
        text="a\ufffd",
    ),
]

# ── Chat Completions: errors ────────────────────────────────────────────────────────────────

HALF = delta(content="Half")
ERRORS = [
    Habit(
        server="OpenRouter, llama.cpp, newer vLLM",
        habit="an error object in mid-stream",
        does="an error of its kind",
        wire=sse(HALF, {"error": {"code": 502, "message": "upstream is down"}}),
        error=OverloadedError,
        retryable=True,
        says="upstream is down",
    ),
    Habit(
        server="older vLLM, SGLang",
        habit='an event with object "error" in mid-stream',
        does="an error of its kind",
        wire=sse(
            HALF, {"object": "error", "message": "boom", "type": "BadRequestError", "code": 400}
        ),
        error=BadRequestError,
        retryable=False,
        says="boom",
    ),
    Habit(
        server="some gateways",
        habit="message and code without any frame in mid-stream",
        does="an error of its kind",
        wire=sse(HALF, {"message": "slow down", "code": 429}),
        error=RateLimitError,
        retryable=True,
        says="slow down",
    ),
    Habit(
        server="Ollama",
        habit="an error that is a string in mid-stream",
        does="worth another try, with its words",
        wire=sse(HALF, {"error": "llama runner process has terminated"}),
        error=OverloadedError,
        retryable=True,
        says="llama runner process has terminated",
    ),
    Habit(
        server="OpenRouter",
        habit="an error in the choice",
        does="an error of its kind",
        wire=sse(
            {
                "choices": [
                    {
                        "delta": {},
                        "finish_reason": "error",
                        "error": {"code": 503, "message": "busy"},
                    }
                ]
            }
        ),
        error=OverloadedError,
        retryable=True,
        says="busy",
    ),
    Habit(
        server="OpenRouter, Groq",
        habit="finish_reason error",
        does="an error",
        wire=sse(HALF, delta("error")),
        error=OverloadedError,
        retryable=True,
        says="failed in the middle",
    ),
    Habit(
        server="TGI, FastAPI servers",
        habit="detail in mid-stream",
        does="an error with its words",
        wire=sse(HALF, {"detail": "CUDA out of memory"}),
        error=OverloadedError,
        retryable=True,
        says="CUDA out of memory",
    ),
    Habit(
        server="servers that crash",
        habit="[DONE] without a finish reason",
        does="cut off",
        wire=sse(HALF),
        error=MalformedStreamError,
        retryable=True,
        says="cut off",
    ),
    Habit(
        server="servers that crash",
        habit="the body ends without a finish reason",
        does="cut off",
        wire=sse(HALF, done=False),
        error=MalformedStreamError,
        retryable=True,
        says="cut off",
    ),
    Habit(
        server="OpenRouter",
        habit="200 with an error as its body",
        does="an error of its kind",
        wire=Wire(
            body=b'{"error": {"code": 402, "message": "out of credits"}}',
            headers={"content-type": "application/json"},
        ),
        error=RateLimitError,
        retryable=False,
        says="out of credits",
    ),
    Habit(
        server="proxies, sign-in pages",
        habit="200 with an HTML page",
        does="tells what the page says; no further try",
        wire=Wire(body=HTML, headers={"content-type": "text/html"}),
        error=MalformedStreamError,
        retryable=False,
        says="Sign in, please",
    ),
    Habit(
        server="vLLM",
        habit="400: the prompt is too long",
        does="ContextTooLongError",
        wire=Wire(
            status=400,
            body=b'{"object":"error","message":"The maximum context length is 4096 tokens.",'
            b'"type":"BadRequestError","code":400}',
        ),
        error=ContextTooLongError,
        retryable=False,
        says="maximum context length",
    ),
    Habit(
        server="FastAPI servers",
        habit="422 with a list of details",
        does="tells them",
        wire=Wire(
            status=422, body=b'{"detail": [{"loc": ["body", "messages"], "msg": "field required"}]}'
        ),
        error=BadRequestError,
        retryable=False,
        says="field required",
    ),
    Habit(
        server="Ollama",
        habit="404 with an error that is a string",
        does="tells it, and which server was asked",
        wire=Wire(status=404, body=b'{"error": "model \\"m\\" not found, try pulling it first"}'),
        error=BadRequestError,
        retryable=False,
        says="127.0.0.1:",
    ),
    Habit(
        server="any",
        habit="an error without a body",
        does="says that there was no message",
        wire=Wire(status=404, body=b""),
        error=BadRequestError,
        retryable=False,
        says="no message",
    ),
    Habit(
        server="OpenAI",
        habit="401 that quotes the key",
        does="leaves the key out",
        wire=Wire(
            status=401,
            body=b'{"error": {"message": "Incorrect API key provided: sk-secret-1234567890."}}',
        ),
        error=AuthenticationError,
        retryable=False,
        says="provided: ….",
    ),
    Habit(
        server="OpenAI, Groq",
        habit="429 with Retry-After",
        does="RateLimitError, which says how long to wait",
        wire=Wire(status=429, headers={"retry-after": "7"}),
        error=RateLimitError,
        retryable=True,
    ),
    Habit(
        server="OpenAI",
        habit="429 because nothing is left",
        does="not worth another try",
        wire=Wire(status=429, code="insufficient_quota"),
        error=RateLimitError,
        retryable=False,
    ),
    Habit(
        server="nginx, Cloudflare",
        habit="502 with an HTML page",
        does="OverloadedError",
        wire=Wire(status=502, body=b"<html>Bad Gateway</html>"),
        error=OverloadedError,
        retryable=True,
    ),
    Habit(
        server="Azure",
        habit="400: the prompt was filtered",
        does="ContentRefusedError",
        wire=Wire(status=400, code="content_filter", message="The response was filtered"),
        error=ContentRefusedError,
        retryable=False,
    ),
    Habit(
        server="any",
        habit="an event that is a list, or has fields of a wrong type",
        does="not in the format; no further try",
        wire=sse({"choices": 7}),
        error=MalformedStreamError,
        retryable=False,
    ),
    Habit(
        server="any",
        habit="an event that is no JSON",
        does="unreadable; worth another try",
        wire=Wire(body=b"data: {half\n\n"),
        error=MalformedStreamError,
        retryable=True,
    ),
]

# ── Anthropic ───────────────────────────────────────────────────────────────────────────────

START = {
    "type": "message_start",
    "message": {"id": "m", "model": "c", "usage": {"input_tokens": 1}},
}
STOP = {"type": "message_stop"}


def ended(reason: str, **more: Any) -> dict[str, Any]:
    return {
        "type": "message_delta",
        "delta": {"stop_reason": reason, **more},
        "usage": {"output_tokens": 1},
    }


def block(index: int, start: dict[str, Any], *deltas: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {"type": "content_block_start", "index": index, "content_block": start},
        *({"type": "content_block_delta", "index": index, "delta": each} for each in deltas),
        {"type": "content_block_stop", "index": index},
    ]


def said(text: str) -> list[dict[str, Any]]:
    return block(0, {"type": "text", "text": ""}, {"type": "text_delta", "text": text})


USE = {"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {}}
ANTHROPIC = [
    Habit(
        server="Anthropic",
        habit="pings, unknown events and unknown deltas",
        does="passes over them",
        wire=named(
            START, {"type": "ping"}, {"type": "new_event"}, *said("Hi."), ended("end_turn"), STOP
        ),
        text="Hi.",
    ),
    Habit(
        server="Anthropic",
        habit="thinking with a signature",
        does="reasoning, sent back with its signature",
        wire=named(
            START,
            *block(
                0,
                {"type": "thinking", "thinking": "", "signature": ""},
                {"type": "thinking_delta", "thinking": "Hm."},
                {"type": "signature_delta", "signature": "signed"},
            ),
            *block(1, USE, {"type": "input_json_delta", "partial_json": '{"city": "Oslo"}'}),
            ended("tool_use"),
            STOP,
        ),
        reasoning="Hm.",
        calls=(OSLO,),
        sent='"signature": "signed"',
    ),
    Habit(
        server="Anthropic",
        habit="redacted thinking",
        does="goes back as it came",
        wire=named(
            START,
            *block(0, {"type": "redacted_thinking", "data": "hidden"}),
            *block(1, USE, {"type": "input_json_delta", "partial_json": '{"city": "Oslo"}'}),
            ended("tool_use"),
            STOP,
        ),
        calls=(OSLO,),
        sent='"data": "hidden"',
    ),
    Habit(
        server="Anthropic",
        habit="an empty input",
        does="no arguments",
        wire=named(
            START,
            *block(0, USE, {"type": "input_json_delta", "partial_json": ""}),
            ended("tool_use"),
            STOP,
        ),
        calls=(("weather", {}),),
    ),
    Habit(
        server="gateways",
        habit="the whole input at the beginning of the block",
        does="takes it",
        wire=named(START, *block(0, {**USE, "input": {"city": "Oslo"}}), ended("tool_use"), STOP),
        calls=(OSLO,),
    ),
    Habit(
        server="Anthropic",
        habit="an error event in mid-stream",
        does="an error of its kind, with the id of the request",
        wire=named(
            START,
            *said("Half"),
            {
                "type": "error",
                "error": {"type": "overloaded_error", "message": "busy"},
                "request_id": "req_7",
            },
        ),
        error=OverloadedError,
        retryable=True,
        says="busy",
        kept="req_7",
    ),
    Habit(
        server="Anthropic",
        habit="a refusal with its details",
        does="the finish reason refusal; the details are in the message's meta",
        wire=named(
            START,
            *said("No."),
            ended("refusal", stop_details={"type": "refusal", "category": "cyber"}),
            STOP,
        ),
        text="No.",
        finish="refusal",
        kept='"category": "cyber"',
    ),
    Habit(
        server="gateways",
        habit="200 with a whole message",
        does="says that it was not streamed",
        wire=Wire(body=b'{"type": "message", "role": "assistant", "content": [], "model": "c"}'),
        error=MalformedStreamError,
        retryable=False,
        says="in place of a stream",
    ),
    Habit(
        server="gateways",
        habit="200 with an error as its body",
        does="an error of its kind",
        wire=Wire(
            body=b'{"type": "error", "error": {"type": "overloaded_error", "message": "busy"}}'
        ),
        error=OverloadedError,
        retryable=True,
        says="busy",
    ),
    Habit(
        server="gateways",
        habit="the body ends before message_stop",
        does="cut off",
        wire=named(START, *said("Half"), ended("end_turn")),
        error=MalformedStreamError,
        retryable=True,
        says="cut off",
    ),
]
ANTHROPIC = [msgspec.structs.replace(each, format="anthropic") for each in ANTHROPIC]

# ── OpenAI Responses ────────────────────────────────────────────────────────────────────────

COMPLETED = {"type": "response.completed", "response": {"id": "r", "status": "completed"}}
PLACE = {"output_index": 0, "content_index": 0}
RESPONSES = [
    Habit(
        server="OpenAI",
        habit="text that comes whole, without deltas",
        does="the text",
        wire=named({"type": "response.output_text.done", **PLACE, "text": "Hi."}, COMPLETED),
        text="Hi.",
    ),
    Habit(
        server="OpenAI",
        habit="unknown events",
        does="passes over them",
        wire=named(
            {"type": "response.new_event"},
            {"type": "response.output_text.delta", **PLACE, "delta": "Hi."},
            COMPLETED,
        ),
        text="Hi.",
    ),
    Habit(
        server="OpenAI",
        habit="an error event in mid-stream",
        does="an error of its kind",
        wire=named(
            {"type": "response.output_text.delta", **PLACE, "delta": "Half"},
            {"type": "error", "code": "rate_limit_exceeded", "message": "slow"},
        ),
        error=RateLimitError,
        retryable=True,
        says="slow",
    ),
    Habit(
        server="OpenAI",
        habit="response.failed",
        does="an error of its kind",
        wire=named(
            {
                "type": "response.failed",
                "response": {"error": {"code": "server_error", "message": "oops"}},
            }
        ),
        error=OverloadedError,
        retryable=True,
        says="oops",
    ),
    Habit(
        server="OpenAI",
        habit="response.incomplete",
        does="the finish reason length, or refusal",
        wire=named(
            {"type": "response.output_text.delta", **PLACE, "delta": "Half"},
            {
                "type": "response.incomplete",
                "response": {"incomplete_details": {"reason": "max_output_tokens"}},
            },
        ),
        text="Half",
        finish="length",
    ),
    Habit(
        server="gateways",
        habit="200 with a whole response",
        does="says that it was not streamed",
        wire=Wire(body=b'{"id": "r", "object": "response", "output": []}'),
        error=MalformedStreamError,
        retryable=False,
        says="in place of a stream",
    ),
    Habit(
        server="gateways",
        habit="the body ends before response.completed",
        does="cut off",
        wire=named({"type": "response.output_text.delta", **PLACE, "delta": "Half"}),
        error=MalformedStreamError,
        retryable=True,
        says="cut off",
    ),
]
RESPONSES = [msgspec.structs.replace(each, format="openai") for each in RESPONSES]

# ── Gemini ──────────────────────────────────────────────────────────────────────────────────


def gemini(*parts: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"candidates": [{"content": {"role": "model", "parts": list(parts)}, **more}]}


GEMINI = [
    Habit(
        server="Gemini",
        habit="calls without ids",
        does="makes ids",
        wire=sse(
            gemini(
                {"functionCall": {"name": "weather", "args": {"city": "Oslo"}}}, finishReason="STOP"
            ),
            done=False,
        ),
        calls=(OSLO,),
        finish="tool_calls",
    ),
    Habit(
        server="Gemini",
        habit="a signature on a call",
        does="sends it back with the call",
        wire=sse(
            gemini(
                {
                    "functionCall": {"name": "weather", "args": {"city": "Oslo"}},
                    "thoughtSignature": "c2ln",
                },
                finishReason="STOP",
            ),
            done=False,
        ),
        calls=(OSLO,),
        sent='"thoughtSignature": "c2ln"',
    ),
    Habit(
        server="Gemini",
        habit="the prompt was blocked",
        does="ContentRefusedError",
        wire=sse({"promptFeedback": {"blockReason": "SAFETY"}}, done=False),
        error=ContentRefusedError,
        retryable=False,
        says="blocked",
    ),
    Habit(
        server="Gemini",
        habit="a finish reason of safety",
        does="the finish reason refusal",
        wire=sse(gemini({"text": "Half"}, finishReason="SAFETY"), done=False),
        text="Half",
        finish="refusal",
    ),
    Habit(
        server="Gemini",
        habit="MALFORMED_FUNCTION_CALL",
        does="worth another try",
        wire=sse(gemini(finishReason="MALFORMED_FUNCTION_CALL"), done=False),
        error=MalformedStreamError,
        retryable=True,
        says="malformed call",
    ),
    Habit(
        server="Gemini",
        habit="an error in mid-stream",
        does="an error of its kind",
        wire=sse(
            gemini({"text": "Half"}),
            {"error": {"code": 503, "message": "busy", "status": "UNAVAILABLE"}},
            done=False,
        ),
        error=OverloadedError,
        retryable=True,
        says="busy",
    ),
    Habit(
        server="Gemini",
        habit="the body ends without a finish reason",
        does="cut off",
        wire=sse(gemini({"text": "Half"}), done=False),
        error=MalformedStreamError,
        retryable=True,
        says="cut off",
    ),
]
GEMINI = [msgspec.structs.replace(each, format="google") for each in GEMINI]

HABITS = {
    "Chat Completions: calls": CALLS,
    "Chat Completions: text and reasoning": TEXTS,
    "Chat Completions: errors": ERRORS,
    "Anthropic Messages": ANTHROPIC,
    "OpenAI Responses": RESPONSES,
    "Google Gemini": GEMINI,
}


def page() -> str:
    """docs/compatibility.md."""
    count = sum(map(len, HABITS.values()))
    lines = [
        "# Compatibility",
        "",
        "<!-- Written by scripts/generate.py from tests/providers/_habits.py: do not edit. -->",
        "",
        f"What servers are known to send, and what hookline makes of it. Each of the {count} rows",
        "is a test: the body goes over a socket to the provider's own SDK. They follow public",
        "documentation, issues and source of the servers; no service was asked.",
    ]
    for title, rows in HABITS.items():
        lines += ["", f"## {title}", "", "| server | habit | what hookline does |", "|---|---|---|"]
        for row in rows:
            cells = (
                each.replace("|", "\\|").replace("<", "&lt;")
                for each in (row.server, row.habit, row.does)
            )
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"
