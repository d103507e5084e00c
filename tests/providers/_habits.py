"""What servers are known to send, and what hookline makes of it: one row a habit.

`test_habits.py` sends each over a loopback socket to the vendor's own SDK, and
`scripts/docs` makes the page “Compatibility” of the same rows. The habits are after public
documentation, issues and source of the servers; no service was asked.
"""

from __future__ import annotations

import json
from base64 import b64encode
from typing import Any

import msgspec
from tests.wire import Wire, WireFormat

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
    sources: tuple[str, ...] = ()  # the addresses that the answer is from
    files: tuple[str, ...] = ()  # the media types of what was made


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
        does="joins the pieces",
        wire=calls(
            [call(index=0, arguments='{"ci')],
            [{"index": 0, "function": {"arguments": 'ty": "Oslo"}'}}],
        ),
        calls=(OSLO,),
    ),
    Habit(
        server="Gemini, Ollama",
        habit="a call without an index",
        does="reads one call",
        wire=calls([call()]),
        calls=(OSLO,),
    ),
    Habit(
        server="Gemini",
        habit="two calls without indexes, in one chunk",
        does="distinguishes the calls by their ids",
        wire=calls([call("a"), call("b", '{"city": "Rome"}')]),
        calls=(OSLO, ROME),
    ),
    Habit(
        server="Gemini",
        habit="two calls without indexes, in two chunks",
        does="distinguishes the calls by their ids",
        wire=calls([call("a")], [call("b", '{"city": "Rome"}')]),
        calls=(OSLO, ROME),
    ),
    Habit(
        server="Gemini, some proxies",
        habit="two calls without indexes and ids, in one chunk",
        does="starts a new call at each name",
        wire=calls([call(""), call("", '{"city": "Rome"}')]),
        calls=(OSLO, ROME),
    ),
    Habit(
        server="some proxies",
        habit="two calls without indexes and ids, in several chunks",
        does="starts a new call at each name",
        wire=calls(
            [call(None, '{"city"')],
            [{"function": {"arguments": ': "Oslo"}'}}],
            [call(None, '{"city": "Rome"}')],
        ),
        calls=(OSLO, ROME),
    ),
    Habit(
        server="older Ollama, LiteLLM",
        habit="the same index for all calls",
        does="starts a new call at each new id",
        wire=calls([call("a", index=0)], [call("b", '{"city": "Rome"}', index=0)]),
        calls=(OSLO, ROME),
    ),
    Habit(
        server="llama.cpp, older vLLM",
        habit="a call without an id",
        does="creates an id",
        wire=calls([call(None, index=0)]),
        calls=(OSLO,),
    ),
    Habit(
        server="some proxies",
        habit="an empty id",
        does="creates an id",
        wire=calls([call("", index=0)]),
        calls=(OSLO,),
    ),
    Habit(
        server="Qwen",
        habit="the id and the name of a call in each chunk",
        does="reads one call",
        wire=calls([call("a", '{"city"', index=0)], [call("a", ': "Oslo"}', index=0)]),
        calls=(OSLO,),
    ),
    Habit(
        server="vLLM",
        habit="the same id for two calls",
        does="makes the second id unique",
        wire=calls([call("a", index=0), call("a", '{"city": "Rome"}', index=1)]),
        calls=(OSLO, ROME),
    ),
    Habit(
        server="Kimi",
        habit="ids such as functions.weather:0",
        does="keeps these ids for this provider; sends valid ids to other providers",
        wire=calls([call("functions.weather:0", index=0)]),
        calls=(OSLO,),
        sent='"tool_call_id": "functions.weather:0"',
    ),
    Habit(
        server="Ollama",
        habit="arguments as an object",
        does="accepts the object",
        wire=calls([call(arguments={"city": "Oslo"}, index=0)]),
        calls=(OSLO,),
    ),
    Habit(
        server="LM Studio",
        habit="null as arguments",
        does="reads a call without arguments",
        wire=calls([call(arguments=None, index=0)]),
        calls=(("weather", {}),),
    ),
    Habit(
        server="Groq, Together",
        habit="finish_reason stop, although there are calls",
        does="reads the calls, and sets the finish reason tool_calls",
        wire=calls([call(index=0)], reason="stop"),
        calls=(OSLO,),
        finish="tool_calls",
    ),
    Habit(
        server="older proxies",
        habit="the deprecated function_call",
        does="reads one call",
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
        habit="a thought signature next to a call",
        does="sends the signature back with the call",
        wire=calls([call(index=0, extra_content={"google": {"thought_signature": "c2ln"}})]),
        calls=(OSLO,),
        sent='"thought_signature": "c2ln"',
    ),
    Habit(
        server="Mistral",
        habit="a complete call and the finish reason in one chunk",
        does="reads one call",
        wire=sse(delta("tool_calls", tool_calls=[call("AbCdEfGh1", index=0)])),
        calls=(OSLO,),
    ),
]

# ── Chat Completions: text and reasoning ────────────────────────────────────────────────────

TEXTS = [
    Habit(
        server="Azure",
        habit="a first chunk with filter results and no choices",
        does="ignores the chunk",
        wire=sse({"choices": [], "prompt_filter_results": []}, delta("stop", content="Hi.")),
        text="Hi.",
    ),
    Habit(
        server="Azure",
        habit="a choice without a delta",
        does="ignores the chunk",
        wire=sse({"choices": [{"index": 0}]}, delta("stop", content="Hi.")),
        text="Hi.",
    ),
    Habit(
        server="older vLLM, LM Studio",
        habit="no usage",
        does="reports no usage",
        wire=sse(delta("stop", content="Hi.")),
        text="Hi.",
    ),
    Habit(
        server="xAI, vLLM",
        habit="usage in each chunk",
        does="uses the usage that arrives last",
        wire=sse(
            {**delta(content="Hi."), "usage": {"prompt_tokens": 1}},
            {**delta("stop"), "usage": {"prompt_tokens": 9}},
        ),
        text="Hi.",
    ),
    Habit(
        server="some gateways",
        habit="no [DONE]",
        does="accepts the answer if it has a finish reason",
        wire=sse(delta("stop", content="Hi."), done=False),
        text="Hi.",
    ),
    Habit(
        server="some gateways",
        habit="lines that end in CRLF",
        does="accepts these lines",
        wire=Wire(
            body=b'data: {"choices":[{"delta":{"content":"Hi."},"finish_reason":"stop"}]}\r\n\r\n'
        ),
        text="Hi.",
    ),
    Habit(
        server="OpenRouter",
        habit="comments that keep the connection open",
        does="ignores comments",
        wire=Wire(
            body=b': OPENROUTER PROCESSING\n\ndata: {"choices":[{"delta":{"content":"Hi."},'
            b'"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
        ),
        text="Hi.",
    ),
    Habit(
        server="DeepSeek, vLLM, SGLang",
        habit="reasoning in the field reasoning_content",
        does="reads the reasoning, and sends it back together with calls",
        wire=sse(delta(reasoning_content="Hm."), delta(tool_calls=[call(index=0)]), delta("stop")),
        reasoning="Hm.",
        calls=(OSLO,),
        sent='"reasoning_content": "Hm."',
    ),
    Habit(
        server="Groq, Ollama, OpenRouter",
        habit="reasoning in the field reasoning",
        does="reads the reasoning, and sends it back together with calls",
        wire=sse(delta(reasoning="Hm."), delta(tool_calls=[call(index=0)]), delta("stop")),
        reasoning="Hm.",
        calls=(OSLO,),
        sent='"reasoning": "Hm."',
    ),
    Habit(
        server="some gateways",
        habit="the same reasoning in reasoning_content and in reasoning",
        does="reads the reasoning once",
        wire=sse(delta(reasoning="Hm.", reasoning_content="Hm."), delta("stop", content="Hi.")),
        reasoning="Hm.",
        text="Hi.",
    ),
    Habit(
        server="OpenRouter",
        habit="reasoning_details with signatures",
        does="sends the signatures back together with calls",
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
        server="servers that run DeepSeek-R1, Qwen3 or QwQ and do not parse reasoning",
        habit="reasoning at the beginning of the text, as <think>…</think>",
        does="reads the text as reasoning, unless think_tags=False is set",
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
        server="any server",
        habit="<think> later in the text, such as in code",
        does="reads <think> as text",
        wire=sse(delta("stop", content="Write `<think>Hm.</think>`.")),
        text="Write `<think>Hm.</think>`.",
    ),
    Habit(
        server="Mistral",
        habit="content as a list that contains thinking",
        does="reads the text and the reasoning",
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
        does="reads the refusal as text, with the finish reason refusal",
        wire=sse(delta("stop", refusal="No.")),
        text="No.",
        finish="refusal",
    ),
    Habit(
        server="Azure, OpenAI",
        habit="finish_reason content_filter",
        does="sets the finish reason refusal",
        wire=sse(delta("content_filter", content="Half")),
        text="Half",
        finish="refusal",
    ),
    Habit(
        server="Mistral",
        habit="finish_reason model_length",
        does="sets the finish reason length",
        wire=sse(delta("model_length", content="Half")),
        text="Half",
        finish="length",
    ),
    Habit(
        server="OpenAI",
        habit="several choices",
        does="reads the first choice",
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
        does="keeps log probabilities in the message's meta",
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
        habit="status 200 with a complete answer instead of a stream",
        does="reads the answer",
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
        habit="half a character (a lone surrogate)",
        does="replaces the surrogate with U+FFFD",
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
        habit="an error object in the middle of the stream",
        does="raises the matching error",
        wire=sse(HALF, {"error": {"code": 502, "message": "upstream is down"}}),
        error=OverloadedError,
        retryable=True,
        says="upstream is down",
    ),
    Habit(
        server="older vLLM, SGLang",
        habit='an event with object "error" in the middle of the stream',
        does="raises the matching error",
        wire=sse(
            HALF, {"object": "error", "message": "boom", "type": "BadRequestError", "code": 400}
        ),
        error=BadRequestError,
        retryable=False,
        says="boom",
    ),
    Habit(
        server="some gateways",
        habit="a message and a code, but no error object, in the middle of the stream",
        does="raises the matching error",
        wire=sse(HALF, {"message": "slow down", "code": 429}),
        error=RateLimitError,
        retryable=True,
        says="slow down",
    ),
    Habit(
        server="Ollama",
        habit="a string as the error, in the middle of the stream",
        does="raises a retryable error with the server's text",
        wire=sse(HALF, {"error": "llama runner process has terminated"}),
        error=OverloadedError,
        retryable=True,
        says="llama runner process has terminated",
    ),
    Habit(
        server="OpenRouter",
        habit="an error in the choice",
        does="raises the matching error",
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
        does="raises an error",
        wire=sse(HALF, delta("error")),
        error=OverloadedError,
        retryable=True,
        says="failed in the middle",
    ),
    Habit(
        server="TGI, FastAPI servers",
        habit="a detail field in the middle of the stream",
        does="raises an error with the server's text",
        wire=sse(HALF, {"detail": "CUDA out of memory"}),
        error=OverloadedError,
        retryable=True,
        says="CUDA out of memory",
    ),
    Habit(
        server="servers that crash",
        habit="[DONE] without a finish reason",
        does="treats the answer as cut off",
        wire=sse(HALF),
        error=MalformedStreamError,
        retryable=True,
        says="cut off",
    ),
    Habit(
        server="servers that crash",
        habit="a body that ends without a finish reason",
        does="treats the answer as cut off",
        wire=sse(HALF, done=False),
        error=MalformedStreamError,
        retryable=True,
        says="cut off",
    ),
    Habit(
        server="OpenRouter",
        habit="status 200 with an error in the body",
        does="raises the matching error",
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
        habit="status 200 with an HTML page",
        does="raises an error with the page's text; the error is not retryable",
        wire=Wire(body=HTML, headers={"content-type": "text/html"}),
        error=MalformedStreamError,
        retryable=False,
        says="Sign in, please",
    ),
    Habit(
        server="vLLM",
        habit="status 400: the prompt is too long",
        does="raises ContextTooLongError",
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
        habit="status 422 with a list of details",
        does="raises an error that contains the details",
        wire=Wire(
            status=422, body=b'{"detail": [{"loc": ["body", "messages"], "msg": "field required"}]}'
        ),
        error=BadRequestError,
        retryable=False,
        says="field required",
    ),
    Habit(
        server="Ollama",
        habit="status 404 with a string as the error",
        does="raises an error with the text and the server's address",
        wire=Wire(status=404, body=b'{"error": "model \\"m\\" not found, try pulling it first"}'),
        error=BadRequestError,
        retryable=False,
        says="127.0.0.1:",
    ),
    Habit(
        server="any",
        habit="an error without a body",
        does="raises an error: the server sent no message",
        wire=Wire(status=404, body=b""),
        error=BadRequestError,
        retryable=False,
        says="no message",
    ),
    Habit(
        server="OpenAI",
        habit="status 401 with a text that contains the API key",
        does="raises an error without the key",
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
        habit="status 429 with Retry-After",
        does="raises RateLimitError with the time to wait",
        wire=Wire(status=429, headers={"retry-after": "7"}),
        error=RateLimitError,
        retryable=True,
    ),
    Habit(
        server="OpenAI",
        habit="status 429 because no credit is left",
        does="raises an error that is not retryable",
        wire=Wire(status=429, code="insufficient_quota"),
        error=RateLimitError,
        retryable=False,
    ),
    Habit(
        server="nginx, Cloudflare",
        habit="status 502 with an HTML page",
        does="raises OverloadedError",
        wire=Wire(status=502, body=b"<html>Bad Gateway</html>"),
        error=OverloadedError,
        retryable=True,
    ),
    Habit(
        server="Azure",
        habit="status 400: the prompt was filtered",
        does="raises ContentRefusedError",
        wire=Wire(status=400, code="content_filter", message="The response was filtered"),
        error=ContentRefusedError,
        retryable=False,
    ),
    Habit(
        server="any",
        habit="an event that is a list, or that has fields of the wrong type",
        does="raises an error about the format; the error is not retryable",
        wire=sse({"choices": 7}),
        error=MalformedStreamError,
        retryable=False,
    ),
    Habit(
        server="any",
        habit="an event that is not JSON",
        does="raises an error about the format; the error is retryable",
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
        does="ignores these events",
        wire=named(
            START, {"type": "ping"}, {"type": "new_event"}, *said("Hi."), ended("end_turn"), STOP
        ),
        text="Hi.",
    ),
    Habit(
        server="Anthropic",
        habit="thinking with a signature",
        does="reads the thinking as reasoning, and sends the reasoning back with its signature",
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
        does="sends the redacted thinking back unchanged",
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
        habit="a call with an empty input",
        does="reads a call without arguments",
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
        habit="the complete input at the start of a call",
        does="accepts the input",
        wire=named(START, *block(0, {**USE, "input": {"city": "Oslo"}}), ended("tool_use"), STOP),
        calls=(OSLO,),
    ),
    Habit(
        server="Anthropic",
        habit="an error event in the middle of the stream",
        does="raises the matching error with the request's id",
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
        habit="a refusal with details",
        does="sets the finish reason refusal, and keeps the details in the message's meta",
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
        habit="status 200 with a complete message instead of a stream",
        does="raises an error: the answer was not streamed",
        wire=Wire(body=b'{"type": "message", "role": "assistant", "content": [], "model": "c"}'),
        error=MalformedStreamError,
        retryable=False,
        says="instead of a stream",
    ),
    Habit(
        server="gateways",
        habit="status 200 with an error in the body",
        does="raises the matching error",
        wire=Wire(
            body=b'{"type": "error", "error": {"type": "overloaded_error", "message": "busy"}}'
        ),
        error=OverloadedError,
        retryable=True,
        says="busy",
    ),
    Habit(
        server="gateways",
        habit="a body that ends before message_stop",
        does="treats the answer as cut off",
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
WHOLE_ITEMS: list[dict[str, Any]] = [
    {
        "type": "reasoning",
        "id": "rs_1",
        "summary": [{"type": "summary_text", "text": text} for text in ("Hm.", "So.")],
    },
    {
        "type": "message",
        "id": "msg_1",
        "content": [
            {"type": "output_text", "text": "Hi."},
            {"type": "refusal", "refusal": " Again."},
        ],
    },
]
RESPONSES = [
    Habit(
        server="OpenAI",
        habit="the complete text, without deltas",
        does="reads the text",
        wire=named({"type": "response.output_text.done", **PLACE, "text": "Hi."}, COMPLETED),
        text="Hi.",
    ),
    Habit(
        server="some proxies",
        habit="complete items, without deltas",
        does="reads the reasoning and the text",
        wire=named(
            *(
                {"type": "response.output_item.done", "output_index": place, "item": item}
                for place, item in enumerate(WHOLE_ITEMS)
            ),
            COMPLETED,
        ),
        reasoning="Hm.\n\nSo.",
        text="Hi. Again.",
    ),
    Habit(
        server="OpenAI",
        habit="unknown events",
        does="ignores unknown events",
        wire=named(
            {"type": "response.new_event"},
            {"type": "response.output_text.delta", **PLACE, "delta": "Hi."},
            COMPLETED,
        ),
        text="Hi.",
    ),
    Habit(
        server="OpenAI",
        habit="an error event in the middle of the stream",
        does="raises the matching error",
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
        does="raises the matching error",
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
        does="sets the finish reason `length` or `refusal`, depending on the event",
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
        habit="status 200 with a complete response instead of a stream",
        does="raises an error: the answer was not streamed",
        wire=Wire(body=b'{"id": "r", "object": "response", "output": []}'),
        error=MalformedStreamError,
        retryable=False,
        says="instead of a stream",
    ),
    Habit(
        server="gateways",
        habit="a body that ends before response.completed",
        does="treats the answer as cut off",
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
        server="older Gemini",
        habit="the finish reason and the usage in each chunk",
        does="reads to the end of the body",
        wire=sse(
            *(
                {
                    **gemini({"text": text}, finishReason="STOP"),
                    "usageMetadata": {"promptTokenCount": 1},
                }
                for text in ("One ", "two.")
            ),
            done=False,
        ),
        text="One two.",
        finish="stop",
    ),
    Habit(
        server="Gemini",
        habit="calls without ids",
        does="creates ids",
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
        does="sends the signature back with the call",
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
        does="raises ContentRefusedError",
        wire=sse({"promptFeedback": {"blockReason": "SAFETY"}}, done=False),
        error=ContentRefusedError,
        retryable=False,
        says="blocked",
    ),
    Habit(
        server="Gemini",
        habit="the finish reason safety",
        does="sets the finish reason refusal",
        wire=sse(gemini({"text": "Half"}, finishReason="SAFETY"), done=False),
        text="Half",
        finish="refusal",
    ),
    Habit(
        server="Gemini",
        habit="MALFORMED_FUNCTION_CALL",
        does="raises a retryable error",
        wire=sse(gemini(finishReason="MALFORMED_FUNCTION_CALL"), done=False),
        error=MalformedStreamError,
        retryable=True,
        says="malformed call",
    ),
    Habit(
        server="Gemini",
        habit="an error in the middle of the stream",
        does="raises the matching error",
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
        habit="a body that ends without a finish reason",
        does="treats the answer as cut off",
        wire=sse(gemini({"text": "Half"}), done=False),
        error=MalformedStreamError,
        retryable=True,
        says="cut off",
    ),
]
GEMINI = [msgspec.structs.replace(each, format="google") for each in GEMINI]

# ── sources and files ───────────────────────────────────────────────────────────────────────

WEB = "https://example.org"
BYTES = b64encode(b"\x01\x00").decode()
CITED = {"type": "web_search_result_location", "url": WEB, "title": "Example", "cited_text": "Yes."}
PAINTED = {"type": "image_generation_call", "id": "ig_1", "status": "completed", "result": BYTES}
OPENED = {"type": "web_search_call", "id": "ws_1", "action": {"type": "open_page", "url": WEB}}
BROUGHT = [
    Habit(
        server="OpenAI, OpenRouter",
        habit="an annotation next to the text",
        does="reads a source, and keeps the annotation with the text",
        wire=sse(
            delta(content="Yes."),
            delta(annotations=[{"type": "url_citation", "url_citation": {"url": WEB}}]),
            delta("stop"),
        ),
        text="Yes.",
        sources=(WEB,),
    ),
    Habit(
        server="Perplexity, xAI",
        habit="a list of citations in each chunk",
        does="reads each source once",
        wire=sse(
            {**delta(content="Yes."), "citations": [WEB]}, {**delta("stop"), "citations": [WEB]}
        ),
        text="Yes.",
        sources=(WEB,),
    ),
    Habit(
        server="OpenRouter",
        habit="images next to the text",
        does="reads pictures",
        wire=sse(
            delta(images=[{"image_url": {"url": f"data:image/png;base64,{BYTES}"}}]), delta("stop")
        ),
        files=("image/png",),
    ),
    Habit(
        server="OpenAI",
        habit="sound in several pieces, with a transcript",
        does="reads a WAV file and the text",
        wire=sse(
            delta(audio={"id": "a1", "transcript": "Yes."}),
            delta(audio={"data": BYTES}),
            delta(audio={"expires_at": 1_800_000_000}),
            delta("stop"),
        ),
        text="Yes.",
        files=("audio/wav",),
    ),
    Habit(
        format="anthropic",
        server="Anthropic",
        habit="citations in a text",
        does="reads each citation as a source, and keeps the citations with the text",
        wire=named(
            START,
            *block(
                0,
                {"type": "text", "text": "", "citations": []},
                {"type": "text_delta", "text": "Yes."},
                {"type": "citations_delta", "citation": CITED},
            ),
            ended("end_turn"),
            STOP,
        ),
        text="Yes.",
        sources=(WEB,),
    ),
    Habit(
        format="openai",
        server="OpenAI",
        habit="a generated picture, and a web page that the model opened",
        does="reads a picture and a source, and sends both back unchanged",
        wire=named(
            {"type": "response.output_item.done", "output_index": 0, "item": PAINTED},
            {"type": "response.output_item.done", "output_index": 1, "item": OPENED},
            {"type": "response.completed", "response": {"id": "r"}},
        ),
        sources=(WEB,),
        files=("image/png",),
    ),
    Habit(
        format="google",
        server="Gemini",
        habit="grounding metadata at the end of an answer",
        does="reads sources, and keeps the metadata in the message's meta",
        wire=sse(
            gemini({"text": "Yes."}),
            gemini(
                {"text": ""},
                finishReason="STOP",
                groundingMetadata={"groundingChunks": [{"web": {"uri": WEB}}]},
            ),
            done=False,
        ),
        text="Yes.",
        sources=(WEB,),
        kept="groundingChunks",
    ),
    Habit(
        format="google",
        server="Gemini",
        habit="pictures and sound as inline data",
        does="reads a picture and a WAV file",
        wire=sse(
            gemini({"inlineData": {"mimeType": "image/png", "data": BYTES}}),
            gemini({"inlineData": {"mimeType": "audio/L16;rate=24000", "data": BYTES}}),
            gemini({"text": ""}, finishReason="STOP"),
            done=False,
        ),
        files=("image/png", "audio/wav"),
    ),
]

HABITS = {
    "Chat Completions: calls": CALLS,
    "Chat Completions: text and reasoning": TEXTS,
    "Chat Completions: errors": ERRORS,
    "Anthropic Messages": ANTHROPIC,
    "OpenAI Responses": RESPONSES,
    "Google Gemini": GEMINI,
    "Sources, pictures and sound": BROUGHT,
}


def page() -> str:
    """The page “Compatibility” of the documentation."""
    count = sum(map(len, HABITS.values()))
    lines = [
        "# Compatibility",
        "",
        "This page lists known deviations of servers from the providers' formats, and how hookline",
        f"handles each deviation. Each of the {count} rows has a test: a local server sends an",
        "answer with this deviation over a socket to the provider's own SDK. The rows are based on",
        "public documentation, issues and source code; no provider's service was called.",
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
