"""The shape of an answer, whatever events come in: also such as no chat would publish."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.web import _check_ag_ui as ag_ui
from tests.web import _check_ai_sdk as ai_sdk

from hookline import (
    AssistantMessage,
    Response,
    Text,
    ToolCall,
    ToolFailure,
    ToolMessage,
    ToolResult,
    UserMessage,
)
from hookline.events import (
    ChatAborted,
    ChatDone,
    ChatEvent,
    ChatFailed,
    ChatStarted,
    ErrorInfo,
    MessageAdded,
    PartEnd,
    ReasoningDelta,
    ResponseReset,
    Status,
    StepFinished,
    StepStarted,
    TextDelta,
    ToolCallDelta,
    ToolCallFinished,
    ToolCallStarted,
)
from hookline.web import AgUiEncoder, AiSdkEncoder

AT: dict[str, Any] = {"chat_id": "c", "seq": 1}
STEP: dict[str, Any] = {**AT, "iteration": 0}
IDS = ("a", "b")


def call(id: str, **more: Any) -> ToolCall:
    return ToolCall(id=id, name="t", **more)


ALPHABET: list[ChatEvent] = [
    TextDelta(**STEP, text="x"),
    ReasoningDelta(**STEP, text="y"),
    PartEnd(**STEP, part="text"),
    PartEnd(**STEP, part="reasoning"),
    StepStarted(**STEP),
    StepFinished(**STEP),
    ResponseReset(**STEP),
    Status(**STEP, type="s"),
    TextDelta(**{**STEP, "path": ("a",)}, text="of a sub-agent"),
    MessageAdded(**AT, message=UserMessage(id="u", parts=(Text("u"),))),
    MessageAdded(**AT, message=AssistantMessage(id="m", parts=(Text("m"),))),
]
for id in IDS:
    ALPHABET += [
        ToolCallDelta(**STEP, index=0, call_id=id, name="t", arguments="{"),
        ToolCallStarted(**STEP, call=call(id)),
        ToolCallStarted(**STEP, call=call(id, raw="{")),
        ToolCallFinished(**STEP, call_id=id, name="t", outcome="ok", result=ToolResult(value=None)),
        ToolCallFinished(**STEP, call_id=id, name="t", outcome="denied", result=ToolFailure("no")),
        MessageAdded(**AT, message=ToolMessage(id="r" + id, call_id=id, name="t", text="1")),
    ]
ENDS: list[ChatEvent | None] = [
    None,
    ChatDone(**AT, response=Response(chat_id="c", text="said")),
    ChatAborted(**AT),
    ChatFailed(**AT, error=ErrorInfo(type="E", message="e")),
]
STARTED = ChatStarted(**AT, agent="a", message=UserMessage(parts=(Text("hi"),)))

chats = st.tuples(st.lists(st.sampled_from(ALPHABET), max_size=25), st.sampled_from(ENDS))


def encoded(encoder: Any, events: list[ChatEvent], last: ChatEvent | None) -> bytes:
    data = b"".join(encoder.encode(event) for event in [STARTED, *events])
    if last is not None:
        data += encoder.encode(last)
    data += encoder.end()
    assert encoder.complete
    assert b"".join(encoder.encode(event) for event in [*events, *ALPHABET]) == b""
    return bytes(data)


@settings(max_examples=300)
@given(chats)
def test_a_ui_message_stream_is_right_whatever_comes(
    chat: tuple[list[ChatEvent], ChatEvent | None],
) -> None:
    for target in (6, 7):
        data = encoded(AiSdkEncoder(ai_sdk_version=target), *chat)  # type: ignore[arg-type]
        ai_sdk.check(data, target=target)


@settings(max_examples=300)
@given(chats)
def test_an_ag_ui_run_is_right_whatever_comes(
    chat: tuple[list[ChatEvent], ChatEvent | None],
) -> None:
    data = encoded(AgUiEncoder(thread_id="t", run_id="r"), *chat)
    ag_ui.check(data, thread_id="t", run_id="r")
