"""Line ends, NULs and forged frames in every field that a user, a model or a tool can fill."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.web._scenes import HOSTILE
from tests.web._sse import read, read_wide

from hookline import (
    ApprovalRequest,
    AssistantMessage,
    Reasoning,
    Response,
    Text,
    ToolCall,
    ToolFailure,
    ToolMessage,
    ToolResult,
    Usage,
    UserMessage,
)
from hookline.events import (
    ApprovalRequested,
    ChatAborted,
    ChatDone,
    ChatEvent,
    ChatFailed,
    ChatStarted,
    ErrorInfo,
    MessageAdded,
    PartEnd,
    ReasoningDelta,
    Status,
    StepFinished,
    StepStarted,
    TextDelta,
    ToolCallDelta,
    ToolCallFinished,
    ToolCallStarted,
)
from hookline.web import AgUiEncoder, AiSdkEncoder, HookFired, NativeEncoder

FORGED = [
    *("\n", "\r", "\r\n", "\n\n", "\r\r", "\0", "\u2028", "\u2029", "\x85", "\x0b", "\x0c", "\x1c"),
    "\ufeff",
    '\n\ndata: {"type":"finish"}\n\n',
    "\r\rdata: [DONE]\r\r",
    "\nid: 0\nevent: forged\nretry: 1\n: comment\n",
    '"}\n\ndata: {"type":"RUN_FINISHED","threadId":"t","runId":"r"}\n\n',
    "\ud800",
    HOSTILE,
]


def events(x: str) -> list[ChatEvent]:
    """Every event, with `x` in every field that holds a string of somebody else's."""
    at: dict[str, Any] = {"chat_id": x, "seq": 1}
    step: dict[str, Any] = {**at, "iteration": 0}
    call = ToolCall(id=x, name=x, arguments={x: [x, {x: x}]}, raw=None)
    request = ApprovalRequest(
        id=x, call=call, prompts=(x, x), chat_id=x, conversation_id=x, iteration=0, digest=x
    )
    said = AssistantMessage(
        id=x, parts=(Text(x), Reasoning(x, meta={x: x}), call), model=x, usage=Usage(), meta={x: x}
    )
    ok = ToolResult(value={x: x, "list": [x]})
    return [
        ChatStarted(**at, agent=x, message=UserMessage(id=x, parts=(Text(x),)), conversation_id=x),
        MessageAdded(**at, message=UserMessage(id=x, parts=(Text(x),))),
        StepStarted(**step),
        ReasoningDelta(**step, text=x),
        PartEnd(**step, part="reasoning"),
        TextDelta(**step, text=x),
        PartEnd(**step, part="text"),
        ToolCallDelta(**step, index=0, call_id=x, name=x, arguments=x),
        MessageAdded(**at, message=said),
        ToolCallStarted(**step, call=call),
        Status(**step, type=x, data={x: x}, call_id=x),
        Status(**{**step, "path": (x,)}, type=x, data=x),
        ToolCallFinished(**step, call_id=x, name=x, outcome="ok", result=ok),
        MessageAdded(**at, message=ToolMessage(id=x, call_id=x, name=x, text=x)),
        ToolCallStarted(**step, call=ToolCall(id=x + "2", name=x, raw=x)),
        ToolCallFinished(
            **step, call_id=x + "2", name=x, outcome="denied", result=ToolFailure(x, type=x)
        ),
        ToolCallStarted(**step, call=ToolCall(id=x + "3", name=x)),
        ToolCallFinished(
            **step, call_id=x + "3", name=x, outcome="error", result=ToolFailure(x, issues=(x,))
        ),
        ApprovalRequested(**at, request=request),
        StepFinished(**step),
        ChatDone(
            **at,
            response=Response(chat_id=x, text=x, reasoning=x, stop_reason=x, pending=(request,)),
        ),
    ]


def streams(x: str) -> list[bytes]:
    """What each encoder makes of them, ended in each way."""
    said = events(x)
    lasts: list[list[ChatEvent]] = [
        said,
        [*said[:-1], ChatAborted(chat_id=x, seq=9, reason=x)],
        [*said[:-1], ChatFailed(chat_id=x, seq=9, error=ErrorInfo(type=x, message=x))],
    ]
    out: list[bytes] = []
    for each in lasts:
        made = [
            AiSdkEncoder(message_id=x, describe_error=lambda error: x),
            AiSdkEncoder(ai_sdk_version=7, describe_error=lambda error: error.message),
            AgUiEncoder(
                thread_id=x,
                run_id=x,
                messages=[{"id": x, "role": "user", "content": x}],
                describe_error=lambda error: x,
            ),
            NativeEncoder(run="r", describe_error=lambda error: x),
        ]
        out += [b"".join(encoder.encode(event) for event in each) for encoder in made]
    native = NativeEncoder(run="r")
    out.append(native.hook(HookFired(chat_id=x, point=x, hook=x, outcome=x, duration=1.0), 0.1, 3))
    return out


def assert_unforged(data: bytes, x: str) -> None:
    """Each frame that was written is one event, and nothing else is."""
    assert data.isascii()
    assert b"\r" not in data
    assert b"\0" not in data
    found, comments = read(data)
    assert read_wide(data) == (found, comments)
    assert len(found) == data.count(b"\n\n") == data.count(b"\ndata: ") + data.startswith(b"data:")
    assert comments == []
    assert {event.type for event in found} == {"message"}
    for event in found:
        assert event.data == "[DONE]" or isinstance(json.loads(event.data), dict)
    ends = [e for e in found if e.data == "[DONE]" or json.loads(e.data).get("event") == "forged"]
    assert len(ends) <= 1


@pytest.mark.parametrize("x", FORGED, ids=ascii)
def test_no_field_can_forge_a_frame(x: str) -> None:
    for data in streams(x):
        assert_unforged(data, x)


@given(st.text(st.characters(exclude_categories=()), max_size=40))
def test_no_text_at_all_can_forge_a_frame(x: str) -> None:
    for data in streams(x):
        assert_unforged(data, x)


@pytest.mark.parametrize("x", [x for x in FORGED if x != "\ud800"], ids=ascii)
def test_what_was_said_arrives_as_it_was(x: str) -> None:
    native, *_ = [json.loads(event.data) for event in read(streams(x)[3])[0]]
    assert native["agent"] == native["conversation_id"] == native["message"]["id"] == x
    text = [json.loads(e.data) for e in read(streams(x)[0])[0] if '"text-delta"' in e.data]
    assert [chunk["delta"] for chunk in text] == [x]
    (done,) = [
        json.loads(e.data) for e in read(streams(x)[0])[0] if '"tool-output-available"' in e.data
    ]
    assert done["output"] == {x: x, "list": [x]}


def test_a_lone_surrogate_becomes_a_replacement_character() -> None:
    text = next(json.loads(e.data) for e in read(streams("\ud800")[3])[0] if "text_delta" in e.data)
    assert text["text"] == "\ufffd"
