"""The pure mappings of the adapters: a request as a provider's JSON, and chunks from its events.

The events are as the providers' documents and SDKs have them; no service was asked.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from hookline import (
    AssistantMessage,
    File,
    Image,
    ModelRequest,
    Reasoning,
    Settings,
    Text,
    ToolCall,
    ToolMessage,
    Usage,
    UserMessage,
    tool,
)
from hookline.errors import BadRequestError, ContentRefusedError, MalformedStreamError, ModelError
from hookline.models import (
    Finish,
    OutputSchema,
    PartEndChunk,
    ReasoningChunk,
    TextChunk,
    ToolCallChunk,
)
from hookline.providers.anthropic import _reader as _anthropic_reader
from hookline.providers.anthropic import _request as _anthropic_request
from hookline.providers.google import _reader as _google_reader
from hookline.providers.google import _request as _google_request
from hookline.providers.openai import _reader as _openai_reader
from hookline.providers.openai import _request as _openai_request
from hookline.providers.openai_chat import _reader as _openai_chat_reader
from hookline.providers.openai_chat import _request as _openai_chat_request
from hookline.testing import ScriptedModel

NOBODY = ScriptedModel()
PNG = b"\x89PNG"


@tool
async def weather(city: str) -> str:
    """The weather in a city."""
    return city


SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
SCHEMA["additionalProperties"] = False
META = {
    "openai": {"id": "rs_1", "encrypted_content": "sealed"},
    "openai-chat": {"field": "reasoning_content"},
    "anthropic": {"signature": "signed"},
    "google": {"signature": "c2ln"},
}
TALK = (
    UserMessage(parts=(Text("Look:"), Image(data=PNG), Text("  "))),
    AssistantMessage(
        parts=(
            Reasoning("Hm.", META),
            Text("I look."),
            ToolCall(
                id="c1",
                name="weather",
                arguments={"city": "Köln"},
                meta={"openai": {"id": "fc_1"}, "google": {"signature": "c2ln"}},
            ),
            ToolCall(id="c2", name="weather", arguments={"city": "Oslo"}),
        ),
        meta={"openai": {"messages": [{"id": "msg_1", "phase": "commentary"}]}},
    ),
    ToolMessage(call_id="c1", name="weather", text="sunny", media=(Image(data=PNG),)),
    ToolMessage(call_id="c2", name="weather", text='{"error":{}}', outcome="error"),
    AssistantMessage(parts=(Text("Sunny."),)),
    UserMessage(parts=(Text("And this?"), File(media_type="application/pdf", data=b"%PDF"))),
)
SETTINGS = Settings(
    temperature=0.5,
    top_p=0.9,
    max_tokens=99,
    tool_choice="weather",
    extra={name: {"metadata": {"a": "b"}} for name in ("openai", "openai-chat", "anthropic")},
)
REQUEST = ModelRequest(
    model=NOBODY, messages=TALK, system="Be brief.", tools=(weather,), settings=SETTINGS
)
URL = "data:image/png;base64,iVBORw=="
PDF = "data:application/pdf;base64,JVBERg=="


def chunks(reader: Any, *events: Any) -> list[Any]:
    """All that a reader makes of these events, up to its Finish."""
    return [*(chunk for event in events for chunk in reader.take(event)), *reader.end()]


def lines(text: str) -> list[Any]:
    return [json.loads(line) for line in text.strip().splitlines()]


# ── OpenAI: Responses ───────────────────────────────────────────────────────────────────────


def test_a_request_to_responses() -> None:
    assert json.loads(json.dumps(_openai_request.request_body("gpt-x", REQUEST))) == {
        "model": "gpt-x",
        "stream": True,
        "store": False,
        "instructions": "Be brief.",
        "input": [
            {
                "role": "user",
                "content": [
                    {"type": "input_text", "text": "Look:"},
                    {"type": "input_image", "image_url": URL, "detail": "auto"},
                ],
            },
            {
                "type": "reasoning",
                "id": "rs_1",
                "summary": [{"type": "summary_text", "text": "Hm."}],
                "encrypted_content": "sealed",
            },
            {
                "type": "message",
                "role": "assistant",
                "status": "completed",
                "id": "msg_1",
                "phase": "commentary",
                "content": [{"type": "output_text", "text": "I look.", "annotations": []}],
            },
            {
                "type": "function_call",
                "call_id": "c1",
                "name": "weather",
                "id": "fc_1",
                "arguments": '{"city":"Köln"}',
            },
            {
                "type": "function_call",
                "call_id": "c2",
                "name": "weather",
                "arguments": '{"city":"Oslo"}',
            },
            {
                "type": "function_call_output",
                "call_id": "c1",
                "output": [
                    {"type": "input_text", "text": "sunny"},
                    {"type": "input_image", "image_url": URL, "detail": "auto"},
                ],
            },
            {"type": "function_call_output", "call_id": "c2", "output": '{"error":{}}'},
            {"role": "assistant", "content": "Sunny."},
            {
                "role": "user",
                "content": [
                    {"type": "input_text", "text": "And this?"},
                    {"type": "input_file", "filename": "file", "file_data": PDF},
                ],
            },
        ],
        "tools": [
            {
                "type": "function",
                "name": "weather",
                "description": "The weather in a city.",
                "parameters": SCHEMA,
                "strict": False,
            }
        ],
        "tool_choice": {"type": "function", "name": "weather"},
        "temperature": 0.5,
        "top_p": 0.9,
        "max_output_tokens": 99,
        "metadata": {"a": "b"},
    }


RESPONSES = """
{"type":"response.created","response":{"id":"resp_1","status":"in_progress"}}
{"type":"response.output_item.added","output_index":0,"item":{"id":"rs_1","type":"reasoning","summary":[]}}
{"type":"response.reasoning_summary_part.added","output_index":0,"summary_index":0,"part":{"type":"summary_text","text":""}}
{"type":"response.reasoning_summary_text.delta","output_index":0,"summary_index":0,"delta":"First."}
{"type":"response.reasoning_summary_part.added","output_index":0,"summary_index":1,"part":{"type":"summary_text","text":""}}
{"type":"response.reasoning_summary_text.delta","output_index":0,"summary_index":1,"delta":"Second."}
{"type":"response.output_item.done","output_index":0,"item":{"id":"rs_1","type":"reasoning","summary":[],"encrypted_content":"sealed"}}
{"type":"response.output_item.added","output_index":1,"item":{"id":"msg_1","type":"message","role":"assistant","content":[]}}
{"type":"response.output_text.delta","output_index":1,"content_index":0,"delta":"I "}
{"type":"response.output_text.delta","output_index":1,"content_index":0,"delta":"look."}
{"type":"response.output_text.done","output_index":1,"content_index":0,"text":"I look."}
{"type":"response.output_item.done","output_index":1,"item":{"id":"msg_1","type":"message","role":"assistant","phase":"commentary","content":[]}}
{"type":"response.output_item.added","output_index":2,"item":{"id":"fc_1","type":"function_call","call_id":"c1","name":"weather","arguments":""}}
{"type":"response.function_call_arguments.delta","output_index":2,"delta":"{\\"city\\""}
{"type":"response.output_item.added","output_index":3,"item":{"id":"fc_2","type":"function_call","call_id":"c2","name":"now","arguments":""}}
{"type":"response.function_call_arguments.delta","output_index":2,"delta":":1}"}
{"type":"response.function_call_arguments.done","output_index":2,"arguments":"{\\"city\\":1}"}
{"type":"response.function_call_arguments.done","output_index":3,"arguments":"{}"}
{"type":"response.web_search_call.searching","output_index":4}
{"type":"response.output_item.done","output_index":2,"item":{"id":"fc_1","type":"function_call","call_id":"c1","name":"weather","arguments":"{\\"city\\":1}"}}
{"type":"response.completed","response":{"id":"resp_1","model":"gpt-x-2026","status":"completed","usage":{"input_tokens":100,"input_tokens_details":{"cached_tokens":60,"cache_write_tokens":5},"output_tokens":40,"output_tokens_details":{"reasoning_tokens":25},"total_tokens":140}}}
"""


def test_the_events_of_responses() -> None:
    assert chunks(_openai_reader.ResponsesReader(), *lines(RESPONSES)) == [
        ReasoningChunk("First."),
        ReasoningChunk("\n\n"),
        ReasoningChunk("Second."),
        PartEndChunk("reasoning", {"openai": {"id": "rs_1", "encrypted_content": "sealed"}}),
        TextChunk("I "),
        TextChunk("look."),
        PartEndChunk("text"),
        ToolCallChunk(index=2, id="c1", name="weather", meta={"openai": {"id": "fc_1"}}),
        ToolCallChunk(index=2, arguments='{"city"'),
        ToolCallChunk(index=3, id="c2", name="now", meta={"openai": {"id": "fc_2"}}),
        ToolCallChunk(index=2, arguments=":1}"),
        ToolCallChunk(index=3, arguments="{}"),
        Finish(
            finish_reason="tool_calls",
            usage=Usage(
                input_tokens=100,
                output_tokens=40,
                cache_read_tokens=60,
                cache_write_tokens=5,
                reasoning_tokens=25,
            ),
            model="gpt-x-2026",
            response_id="resp_1",
            meta={"openai": {"messages": [{"id": "msg_1", "phase": "commentary"}]}},
        ),
    ]


def test_a_refusal_of_responses_and_text_that_comes_whole() -> None:
    refused = chunks(
        _openai_reader.ResponsesReader(),
        {"type": "response.refusal.delta", "output_index": 0, "content_index": 0, "delta": "No."},
        {"type": "response.completed", "response": {}},
    )
    assert refused == [TextChunk("No."), Finish(finish_reason="refusal")]
    whole = chunks(
        _openai_reader.ResponsesReader(),
        {"type": "response.output_text.done", "output_index": 0, "content_index": 0, "text": "Hi."},
        {"type": "response.incomplete", "response": {"incomplete_details": {"reason": "new"}}},
    )
    assert whole == [TextChunk("Hi."), Finish(finish_reason="other")]


def test_text_that_came_in_pieces_is_not_read_again_from_its_item() -> None:
    """Wherever the pieces say that they belong."""
    item = {"type": "message", "content": [{"type": "output_text", "text": "Hi."}]}
    end = {"type": "response.output_item.done", "output_index": 0, "item": item}
    for place in ({"output_index": 0, "content_index": 0}, {"output_index": 0}, {}):
        piece = {"type": "response.output_text.delta", "delta": "Hi.", **place}
        done = {"type": "response.completed", "response": {}}
        found = chunks(_openai_reader.ResponsesReader(), piece, end, done)
        assert [each.text for each in found if isinstance(each, TextChunk)] == ["Hi."]


def test_reasoning_that_is_not_sealed_or_whole_is_not_sent_back() -> None:
    open_ = AssistantMessage(
        parts=(Reasoning("Hm."), Text("So."), ToolCall(id="c", name="x")),
        meta={"openai": {"messages": [{"id": "msg_1"}]}},
    )
    broken = AssistantMessage(parts=(Reasoning("Hm.", META), Text("So")), partial=True)
    body = _openai_request.request_body("m", ModelRequest(model=NOBODY, messages=(open_, broken)))
    assert body["input"] == [
        {"role": "assistant", "content": "So."},
        {"type": "function_call", "call_id": "c", "name": "x", "arguments": "{}"},
        {"role": "assistant", "content": "So"},
    ]


# ── OpenAI: Chat Completions ────────────────────────────────────────────────────────────────


def test_a_request_to_chat_completions() -> None:
    settings = SETTINGS.replace(stop=("END",), seed=7)
    body = _openai_chat_request.request_body("qwen", REQUEST.replace(settings=settings))
    assert body == {
        "model": "qwen",
        "stream": True,
        "stream_options": {"include_usage": True},
        "messages": [
            {"role": "system", "content": "Be brief."},
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "Look:"},
                    {"type": "image_url", "image_url": {"url": URL}},
                ],
            },
            {
                "role": "assistant",
                "content": "I look.",
                "reasoning_content": "Hm.",
                "tool_calls": [
                    {
                        "id": "c1",
                        "type": "function",
                        "function": {"name": "weather", "arguments": '{"city":"Köln"}'},
                    },
                    {
                        "id": "c2",
                        "type": "function",
                        "function": {"name": "weather", "arguments": '{"city":"Oslo"}'},
                    },
                ],
            },
            {"role": "tool", "tool_call_id": "c1", "content": "sunny"},
            {"role": "tool", "tool_call_id": "c2", "content": '{"error":{}}'},
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "Files returned by the tools above:"},
                    {"type": "image_url", "image_url": {"url": URL}},
                ],
            },
            {"role": "assistant", "content": "Sunny."},
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "And this?"},
                    {"type": "file", "file": {"filename": "file", "file_data": PDF}},
                ],
            },
        ],
        "tools": [
            {
                "type": "function",
                "function": {
                    "name": "weather",
                    "description": "The weather in a city.",
                    "parameters": SCHEMA,
                },
            }
        ],
        "tool_choice": {"type": "function", "function": {"name": "weather"}},
        "temperature": 0.5,
        "top_p": 0.9,
        "max_tokens": 99,
        "stop": ["END"],
        "seed": 7,
        "metadata": {"a": "b"},
    }


CHAT = """
{"id":"chatcmpl-1","model":"gpt-x","choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}],"usage":null}
{"id":"chatcmpl-1","model":"gpt-x","choices":[{"index":0,"delta":{"reasoning_content":"Hm."},"finish_reason":null}]}
{"id":"chatcmpl-1","model":"gpt-x","choices":[{"index":0,"delta":{"content":"I look."},"finish_reason":null}]}
{"id":"chatcmpl-1","model":"gpt-x","choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"c1","type":"function","function":{"name":"weather","arguments":""}}]}}]}
{"id":"chatcmpl-1","model":"gpt-x","choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"{}"}},{"index":1,"id":"c2","function":{"name":"now","arguments":"{}"}}]}}]}
{"id":"chatcmpl-1","model":"gpt-x","choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}]}
{"id":"chatcmpl-1","model":"gpt-x","choices":[],"usage":{"prompt_tokens":10,"completion_tokens":5,"total_tokens":15,"prompt_tokens_details":{"cached_tokens":4},"completion_tokens_details":{"reasoning_tokens":2}}}
"""  # noqa: E501


def test_the_events_of_chat_completions() -> None:
    assert chunks(_openai_chat_reader.ChatReader(), *lines(CHAT), None) == [
        ReasoningChunk("Hm."),
        PartEndChunk("reasoning", {"openai-chat": {"field": "reasoning_content"}}),
        TextChunk("I look."),
        ToolCallChunk(index=0, id="c1", name="weather"),
        ToolCallChunk(index=0, arguments="{}"),
        ToolCallChunk(index=1, id="c2", name="now", arguments="{}"),
        Finish(
            finish_reason="tool_calls",
            usage=Usage(input_tokens=10, output_tokens=5, cache_read_tokens=4, reasoning_tokens=2),
            model="gpt-x",
            response_id="chatcmpl-1",
        ),
    ]


def delta(reason: str | None = None, **fields: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": fields, "finish_reason": reason}]}


def called(index: int | None, id: str | None, name: str | None, arguments: str | None) -> Any:
    call: dict[str, Any] = {"function": {"name": name, "arguments": arguments}, "id": id}
    return delta(tool_calls=[call if index is None else {**call, "index": index}])


ONE = called(0, "a", "one", "{}")
LOOSE = {
    "one index for all": [ONE, called(0, "b", "two", '{"x"'), called(0, None, None, ":1}")],
    "no index": [
        called(None, "a", "one", "{}"),
        called(None, "b", "two", '{"x"'),
        called(None, "b", None, ":1}"),
    ],
    "no index and no id": [
        called(None, "a", "one", "{}"),
        called(None, "b", "two", '{"x"'),
        called(None, None, None, ":1}"),
    ],
    "holes, and names again": [
        called(3, "a", "one", None),
        called(7, "b", "two", '{"x":1}'),
        called(3, "a", "one", "{}"),
    ],
}


@pytest.mark.parametrize("events", LOOSE.values(), ids=LOOSE)
def test_calls_of_servers_that_do_not_keep_to_the_letter(events: list[Any]) -> None:
    found = chunks(_openai_chat_reader.ChatReader(), *events, delta("stop"))
    calls: dict[int, list[ToolCallChunk]] = {}
    for chunk in found[:-1]:
        calls.setdefault(chunk.index, []).append(chunk)
    assert {
        (each[0].id, each[0].name, "".join(more.arguments for more in each))
        for each in calls.values()
    } == {("a", "one", "{}"), ("b", "two", '{"x":1}')}
    assert found[-1].finish_reason == "tool_calls"


def test_data_beside_a_call_is_kept_whatever_chunks_follow() -> None:
    signed = {"google": {"thought_signature": "signed"}}
    first = called(0, "functions.x:0", "x", None)
    first["choices"][0]["delta"]["tool_calls"][0]["extra_content"] = signed
    again = called(0, "functions.x:0", None, "{}")
    found = chunks(_openai_chat_reader.ChatReader(), first, again, delta("tool_calls"))
    kept = {"call_id": "functions.x:0", "extra_content": signed}
    assert [each.meta for each in found[:2]] == [{"openai-chat": kept}] * 2


COUNTS = {"prompt_tokens": 10, "completion_tokens": 5}


@pytest.mark.parametrize(
    ("more", "output"),
    [
        ({"total_tokens": 15}, 5),
        ({"total_tokens": 17}, 7),
        ({"completion_tokens": 1, "total_tokens": 13}, 3),
        ({"completion_tokens": 1}, 3),
    ],
    ids=["OpenAI", "xAI", "xAI, a short text", "no total"],
)
def test_output_tokens_are_a_total_that_includes_reasoning(more: Any, output: int) -> None:
    """xAI counts reasoning beside the completion; only its total has both."""
    usage = {**COUNTS, **more, "completion_tokens_details": {"reasoning_tokens": 2}}
    end = {"choices": [], "usage": usage}
    found = chunks(_openai_chat_reader.ChatReader(), delta("stop", content="x"), end)[-1]
    assert found.usage == Usage(input_tokens=10, output_tokens=output, reasoning_tokens=2)


def test_usage_in_the_choice_is_read() -> None:
    """Kimi has it there."""
    last = delta("stop")
    last["choices"][0]["usage"] = COUNTS
    found = chunks(_openai_chat_reader.ChatReader(), delta(content="x"), last)[-1]
    assert found.usage == Usage(input_tokens=10, output_tokens=5)


def test_reasoning_details_go_back_as_they_came() -> None:
    details = [{"type": "reasoning.encrypted", "data": "sealed"}]
    found = chunks(
        _openai_chat_reader.ChatReader(),
        delta(reasoning="Hm.", reasoning_details=details),
        delta(content="So."),
        delta("stop"),
    )
    meta = {"openai-chat": {"field": "reasoning", "details": details}}
    assert found[1] == PartEndChunk("reasoning", meta)
    message = AssistantMessage(parts=(Reasoning("Hm.", meta), ToolCall(id="c", name="x")))
    request = ModelRequest(model=NOBODY, messages=(message,))
    sent = _openai_chat_request.request_body("m", request)["messages"][0]
    assert (sent["reasoning"], sent["reasoning_details"]) == ("Hm.", details)
    assert sent["content"] is None


def test_a_stream_that_ends_without_a_reason_was_cut_off() -> None:
    for rest in ((), (None,)):
        with pytest.raises(MalformedStreamError):
            chunks(_openai_chat_reader.ChatReader(), delta(content="Half"), *rest)
    whole = delta("stop", content="Whole")
    assert chunks(_openai_chat_reader.ChatReader(), whole)[-1] == Finish()


def test_sound_goes_to_chat_completions_and_files_by_url_do_not() -> None:
    sound = UserMessage(parts=(File(media_type="audio/mpeg", data=b"x"),))
    body = _openai_chat_request.request_body("m", ModelRequest(model=NOBODY, messages=(sound,)))
    content = body["messages"][0]["content"]
    assert content == [{"type": "input_audio", "input_audio": {"data": "eA==", "format": "mp3"}}]
    by_url = UserMessage(parts=(File(media_type="application/pdf", url="https://example.org/"),))
    with pytest.raises(BadRequestError):
        _openai_chat_request.request_body("m", ModelRequest(model=NOBODY, messages=(by_url,)))


# ── Anthropic ───────────────────────────────────────────────────────────────────────────────


def test_a_request_to_anthropic() -> None:
    source = {"type": "base64", "media_type": "image/png", "data": "iVBORw=="}
    image = {"type": "image", "source": source}
    assert _anthropic_request.request_body("claude-x", REQUEST) == {
        "model": "claude-x",
        "stream": True,
        "max_tokens": 99,
        "system": "Be brief.",
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "Look:"}, image]},
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "Hm.", "signature": "signed"},
                    {"type": "text", "text": "I look."},
                    {"type": "tool_use", "id": "c1", "name": "weather", "input": {"city": "Köln"}},
                    {"type": "tool_use", "id": "c2", "name": "weather", "input": {"city": "Oslo"}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {
                        "type": "tool_result",
                        "tool_use_id": "c1",
                        "content": [{"type": "text", "text": "sunny"}, image],
                    },
                    {
                        "type": "tool_result",
                        "tool_use_id": "c2",
                        "content": '{"error":{}}',
                        "is_error": True,
                    },
                ],
            },
            {"role": "assistant", "content": [{"type": "text", "text": "Sunny."}]},
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "And this?"},
                    {
                        "type": "document",
                        "source": {
                            "type": "base64",
                            "media_type": "application/pdf",
                            "data": "JVBERg==",
                        },
                    },
                ],
            },
        ],
        "tools": [
            {
                "name": "weather",
                "description": "The weather in a city.",
                "input_schema": SCHEMA,
            }
        ],
        "tool_choice": {"type": "tool", "name": "weather"},
        "temperature": 0.5,
        "top_p": 0.9,
        "metadata": {"a": "b"},
    }


MESSAGES = """
{"type":"message_start","message":{"id":"msg_1","model":"claude-x-2026","content":[],"usage":{"input_tokens":30,"cache_read_input_tokens":60,"cache_creation_input_tokens":10,"output_tokens":1}}}
{"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":"","signature":""}}
{"type":"ping"}
{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"Hm."}}
{"type":"content_block_delta","index":0,"delta":{"type":"signature_delta","signature":"signed"}}
{"type":"content_block_stop","index":0}
{"type":"content_block_start","index":1,"content_block":{"type":"redacted_thinking","data":"hidden"}}
{"type":"content_block_stop","index":1}
{"type":"content_block_start","index":2,"content_block":{"type":"text","text":""}}
{"type":"content_block_delta","index":2,"delta":{"type":"text_delta","text":"I look."}}
{"type":"content_block_stop","index":2}
{"type":"content_block_start","index":3,"content_block":{"type":"server_tool_use","id":"srv_1","name":"web_search","input":{}}}
{"type":"content_block_delta","index":3,"delta":{"type":"input_json_delta","partial_json":"{}"}}
{"type":"content_block_stop","index":3}
{"type":"content_block_start","index":4,"content_block":{"type":"tool_use","id":"toolu_1","name":"weather","input":{}}}
{"type":"content_block_delta","index":4,"delta":{"type":"input_json_delta","partial_json":""}}
{"type":"content_block_delta","index":4,"delta":{"type":"input_json_delta","partial_json":"{\\"city\\":1}"}}
{"type":"content_block_stop","index":4}
{"type":"content_block_start","index":5,"content_block":{"type":"tool_use","id":"toolu_2","name":"now","input":{"zone":"UTC"}}}
{"type":"content_block_stop","index":5}
{"type":"message_delta","delta":{"stop_reason":"tool_use","stop_sequence":null},"usage":{"output_tokens":40,"output_tokens_details":{"thinking_tokens":25}}}
{"type":"message_stop"}
"""


SEARCH = {"type": "server_tool_use", "id": "srv_1", "name": "web_search", "input": {}}


def test_the_events_of_anthropic() -> None:
    assert chunks(_anthropic_reader.MessagesReader(), *lines(MESSAGES)) == [
        ReasoningChunk("Hm."),
        PartEndChunk("reasoning", {"anthropic": {"signature": "signed"}}),
        PartEndChunk("reasoning", {"anthropic": {"data": "hidden"}}),
        TextChunk("I look."),
        PartEndChunk("text"),
        PartEndChunk("reasoning", {"anthropic": {"block": SEARCH}}),
        ToolCallChunk(index=4, id="toolu_1", name="weather"),
        ToolCallChunk(index=4, arguments=""),
        ToolCallChunk(index=4, arguments='{"city":1}'),
        ToolCallChunk(index=5, id="toolu_2", name="now"),
        ToolCallChunk(index=5, arguments='{"zone":"UTC"}'),
        Finish(
            finish_reason="tool_calls",
            usage=Usage(
                input_tokens=100,
                output_tokens=40,
                cache_read_tokens=60,
                cache_write_tokens=10,
                reasoning_tokens=25,
            ),
            model="claude-x-2026",
            response_id="msg_1",
        ),
    ]


def test_results_and_what_the_user_says_next_are_one_turn_of_anthropic() -> None:
    messages = (
        AssistantMessage(parts=(Reasoning("of another provider"), ToolCall(id="c", name="x"))),
        ToolMessage(call_id="c", name="x", text="done"),
        UserMessage(parts=(Text("And now?"),)),
    )
    body = _anthropic_request.request_body("m", ModelRequest(model=NOBODY, messages=messages))
    assert [(each["role"], len(each["content"])) for each in body["messages"]] == [
        ("assistant", 1),
        ("user", 2),
    ]


@pytest.mark.parametrize("meta", [{"signature": "signed"}, {"data": "sealed"}], ids=str)
def test_no_answer_that_anthropic_reads_ends_with_thinking(meta: Any) -> None:
    """Anthropic refuses it, now and in every later request of the conversation."""
    thought, call = Reasoning("Hm.", {"anthropic": meta}), ToolCall(id="c", name="x")

    def sent(*parts: Any, partial: bool = False) -> list[Any]:
        answer = AssistantMessage(parts=parts, partial=partial)
        asked, again = UserMessage(parts=(Text("Hi."),)), UserMessage(parts=(Text("So?"),))
        request = ModelRequest(model=NOBODY, messages=(asked, answer, again))
        turns = _anthropic_request.request_body("m", request)["messages"]
        return [
            each["type"]
            for turn in turns
            if turn["role"] == "assistant"
            for each in turn["content"]
        ]

    kind = "thinking" if "signature" in meta else "redacted_thinking"
    assert sent(thought) == []
    assert sent(Text("I see."), thought, thought) == ["text"]
    assert sent(thought, Text("I see.")) == [kind, "text"]
    assert sent(thought, call) == [kind, "tool_use"]
    assert sent(thought, Text("I s"), partial=True) == ["text"]


def test_documents_of_anthropic() -> None:
    parts = (
        File(media_type="text/plain", name="a.txt", data="Grüße".encode()),
        File(media_type="application/pdf", url="https://example.org/a.pdf"),
        Image(url="https://example.org/a.png"),
    )
    request = ModelRequest(model=NOBODY, messages=(UserMessage(parts=parts),))
    assert _anthropic_request.request_body("m", request)["messages"][0]["content"] == [
        {
            "type": "document",
            "source": {"type": "text", "media_type": "text/plain", "data": "Grüße"},
            "title": "a.txt",
        },
        {"type": "document", "source": {"type": "url", "url": "https://example.org/a.pdf"}},
        {"type": "image", "source": {"type": "url", "url": "https://example.org/a.png"}},
    ]
    word = UserMessage(parts=(File(media_type="application/msword", data=b"x"),))
    with pytest.raises(BadRequestError, match="application/msword"):
        _anthropic_request.request_body("m", ModelRequest(model=NOBODY, messages=(word,)))


# ── Google ──────────────────────────────────────────────────────────────────────────────────


def test_a_request_to_google() -> None:
    settings = SETTINGS.replace(extra={"google": {"labels": {"a": "b"}}}, stop=("END",), seed=7)
    image = {"inline_data": {"mime_type": "image/png", "data": PNG}}
    assert _google_request.request_body("gemini-x", REQUEST.replace(settings=settings)) == {
        "model": "gemini-x",
        "contents": [
            {"role": "user", "parts": [{"text": "Look:"}, image]},
            {
                "role": "model",
                "parts": [
                    {"text": "", "thought_signature": b"sig"},
                    {"text": "I look."},
                    {
                        "function_call": {"name": "weather", "args": {"city": "Köln"}, "id": "c1"},
                        "thought_signature": b"sig",
                    },
                    {"function_call": {"name": "weather", "args": {"city": "Oslo"}, "id": "c2"}},
                ],
            },
            {
                "role": "user",
                "parts": [
                    {
                        "function_response": {
                            "name": "weather",
                            "response": {"output": "sunny"},
                            "id": "c1",
                            "parts": [image],
                        }
                    },
                    {
                        "function_response": {
                            "name": "weather",
                            "response": {"error": '{"error":{}}'},
                            "id": "c2",
                        }
                    },
                ],
            },
            {"role": "model", "parts": [{"text": "Sunny."}]},
            {
                "role": "user",
                "parts": [
                    {"text": "And this?"},
                    {"inline_data": {"mime_type": "application/pdf", "data": b"%PDF"}},
                ],
            },
        ],
        "config": {
            "automatic_function_calling": {"disable": True},
            "system_instruction": "Be brief.",
            "tools": [
                {
                    "function_declarations": [
                        {
                            "name": "weather",
                            "description": "The weather in a city.",
                            "parameters_json_schema": SCHEMA,
                        }
                    ]
                }
            ],
            "tool_config": {
                "function_calling_config": {"mode": "ANY", "allowed_function_names": ["weather"]}
            },
            "temperature": 0.5,
            "top_p": 0.9,
            "max_output_tokens": 99,
            "stop_sequences": ["END"],
            "seed": 7,
            "labels": {"a": "b"},
        },
    }


def test_gemini_3_is_told_that_a_call_is_not_its_own() -> None:
    foreign = AssistantMessage(parts=(ToolCall(id="a", name="x"), ToolCall(id="b", name="x")))
    request = ModelRequest(model=NOBODY, messages=(foreign,))
    old, new = (
        _google_request.request_body(name, request)["contents"][0]["parts"]
        for name in ("gemini-2.5-pro", "models/gemini-3.8-flash")
    )
    assert [set(part) for part in old] == [{"function_call"}] * 2
    assert [set(part) for part in new] == [
        {"function_call", "thought_signature"},
        {"function_call"},
    ]


GEMINI = """
{"candidates":[{"content":{"role":"model","parts":[{"text":"Hm.","thought":true}]},"index":0}],"modelVersion":"gemini-x-001","responseId":"r1"}
{"candidates":[{"content":{"role":"model","parts":[{"text":"I look."}]},"index":0}],"modelVersion":"gemini-x-001","responseId":"r1"}
{"candidates":[{"content":{"role":"model","parts":[{"functionCall":{"name":"weather","args":{"city":1}},"thoughtSignature":"c2ln"},{"functionCall":{"name":"now","id":"g2"}}]},"index":0}]}
{"candidates":[{"content":{"role":"model","parts":[{"text":"","thoughtSignature":"ZW5k"}]},"finishReason":"STOP","index":0}],"usageMetadata":{"promptTokenCount":100,"cachedContentTokenCount":60,"candidatesTokenCount":15,"thoughtsTokenCount":25,"totalTokenCount":140}}
"""  # noqa: E501


def test_the_events_of_google() -> None:
    assert chunks(_google_reader.GeminiReader(), *lines(GEMINI)) == [
        ReasoningChunk("Hm."),
        TextChunk("I look."),
        ToolCallChunk(
            index=0,
            name="weather",
            arguments='{"city":1}',
            meta={"google": {"signature": "c2ln"}},
        ),
        ToolCallChunk(index=1, id="g2", name="now", arguments="{}"),
        PartEndChunk("reasoning", {"google": {"signature": "ZW5k"}}),
        Finish(
            finish_reason="tool_calls",
            usage=Usage(
                input_tokens=100, output_tokens=40, cache_read_tokens=60, reasoning_tokens=25
            ),
            model="gemini-x-001",
            response_id="r1",
        ),
    ]


def test_of_an_answer_that_was_cut_off_google_gets_the_text_alone() -> None:
    parts = (Reasoning("Hm.", {"google": {"signature": "c2ln"}}), Text("Half of"))
    request = ModelRequest(model=NOBODY, messages=(AssistantMessage(parts=parts, partial=True),))
    [turn] = _google_request.request_body("m", request)["contents"]
    assert turn["parts"] == [{"text": "Half of"}]


def test_how_google_ends() -> None:
    def ended(reason: str) -> Any:
        return {"candidates": [{"finishReason": reason}]}

    assert chunks(_google_reader.GeminiReader(), ended("SAFETY")) == [
        Finish(finish_reason="refusal")
    ]
    assert chunks(_google_reader.GeminiReader(), ended("LANGUAGE")) == [
        Finish(finish_reason="other")
    ]
    with pytest.raises(MalformedStreamError, match="call"):
        chunks(_google_reader.GeminiReader(), ended("MALFORMED_FUNCTION_CALL"))
    with pytest.raises(MalformedStreamError, match="cut off"):
        chunks(_google_reader.GeminiReader())
    with pytest.raises(ContentRefusedError, match="OTHER"):
        chunks(_google_reader.GeminiReader(), {"promptFeedback": {"blockReason": "OTHER"}})


# ── all of them ─────────────────────────────────────────────────────────────────────────────

READERS = {
    "openai": _openai_reader.ResponsesReader,
    "openai-chat": _openai_chat_reader.ChatReader,
    "anthropic": _anthropic_reader.MessagesReader,
    "google": _google_reader.GeminiReader,
}
each_reader = pytest.mark.parametrize("reader", READERS.values(), ids=READERS)
RECORDED = [RESPONSES, CHAT, MESSAGES, GEMINI]


@pytest.mark.parametrize(
    ("reader", "events"), list(zip(READERS.values(), RECORDED, strict=True)), ids=READERS
)
def test_every_answer_that_is_cut_off_says_so(reader: Any, events: str) -> None:
    """Chat Completions says why an answer ended before it tells the usage."""
    whole = lines(events)
    last = len(whole) - (1 if events is CHAT else 0)
    for end in range(last):
        with pytest.raises(ModelError):
            chunks(reader(), *whole[:end])


OUTPUT = OutputSchema(
    name="Trip",
    schema={
        "type": "object",
        "properties": {
            "minimum": {"type": "integer", "minimum": 1},
            "stops": {"type": "array", "items": {"$ref": "#/$defs/Stop"}},
        },
        "required": ["minimum", "stops"],
        "$defs": {
            "Stop": {
                "type": "object",
                "properties": {"enum": {"type": "string", "enum": ["minimum"]}},
                "required": ["enum"],
            }
        },
    },
)


def test_the_form_of_the_answer_goes_to_the_providers_own_schema_mode() -> None:
    request = ModelRequest(model=NOBODY, messages=(), output=OUTPUT)
    form = _openai_request.request_body("m", request)["text"]["format"]
    assert (form["type"], form["name"], form["strict"]) == ("json_schema", "Trip", True)
    assert form["schema"]["additionalProperties"] is False
    assert form["schema"]["$defs"]["Stop"]["additionalProperties"] is False
    chat = _openai_chat_request.request_body("m", request)["response_format"]
    assert chat == {"type": "json_schema", "json_schema": {k: form[k] for k in form if k != "type"}}
    schema = _anthropic_request.request_body("m", request)["output_config"]["format"]["schema"]
    assert schema["properties"]["minimum"] == {"type": "integer"}
    assert schema["$defs"]["Stop"]["properties"]["enum"]["enum"] == ["minimum"]
    config = _google_request.request_body("m", request)["config"]
    assert config["response_mime_type"] == "application/json"
    assert config["response_json_schema"] == OUTPUT.schema


MODULES = {
    "openai": _openai_request,
    "openai-chat": _openai_chat_request,
    "anthropic": _anthropic_request,
}


@pytest.mark.parametrize("name", MODULES)
def test_provider_options_pass_through_add_tools_and_take_fields_out(name: str) -> None:
    module: Any = MODULES[name]
    mine = {"tools": [{"type": "web_search"}], "stream": None, "new_option": 1}
    extra = {name: mine, **{other: {"foreign": 1} for other in MODULES if other != name}}
    request = ModelRequest(
        model=NOBODY, messages=(), tools=(weather,), settings=Settings(extra=extra)
    )
    body = module.request_body("m", request)
    assert len(body["tools"]) == 2
    assert body["tools"][1] == {"type": "web_search"}
    assert body["new_option"] == 1
    assert "foreign" not in body
    assert "stream" not in body


@pytest.mark.parametrize("choice", ["auto", "none", "required"])
def test_the_words_of_tool_choice(choice: str) -> None:
    request = ModelRequest(
        model=NOBODY, messages=(), tools=(weather,), settings=Settings(tool_choice=choice)
    )
    assert _openai_request.request_body("m", request)["tool_choice"] == choice
    assert _openai_chat_request.request_body("m", request)["tool_choice"] == choice
    theirs = {"auto": "auto", "none": "none", "required": "any"}[choice]
    assert _anthropic_request.request_body("m", request)["tool_choice"] == {"type": theirs}
    config = _google_request.request_body("m", request)["config"]["tool_config"]
    theirs = {"auto": "AUTO", "none": "NONE", "required": "ANY"}[choice]
    assert config == {"function_calling_config": {"mode": theirs}}
    bare = request.replace(tools=())
    assert "tool_choice" not in _openai_request.request_body("m", bare)
