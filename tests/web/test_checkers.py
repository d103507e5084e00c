"""The checkers find what is wrong: each is shown a good stream and then the same one, broken."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from tests.web import _check_ag_ui as ag_ui
from tests.web import _check_ai_sdk as ai_sdk
from tests.web._scenes import SCENES
from tests.web._sse import Event, read, read_wide

from hookline.web import AgUiEncoder, AiSdkEncoder

Frames = list[str]
Breaks = Callable[[Frames], Frames]


def frames_of(data: bytes) -> Frames:
    return [event.data for event in read(data)[0]]


def framed(frames: Frames, end: str = "\n") -> bytes:
    return "".join(f"data: {frame}{end}{end}" for frame in frames).encode()


def change(kind: str, **fields: Any) -> Breaks:
    """The first frame of this type with other fields; `...` leaves a field out."""

    def breaks(frames: Frames) -> Frames:
        at = first(kind, frames)
        chunk = {**json.loads(frames[at]), **fields}
        chunk = {key: value for key, value in chunk.items() if value is not ...}
        return [*frames[:at], json.dumps(chunk), *frames[at + 1 :]]

    return breaks


def first(kind: str, frames: Frames) -> int:
    return next(at for at, frame in enumerate(frames) if f'"type":"{kind}"' in frame)


def without(kind: str) -> Breaks:
    return lambda frames: [f for f in frames if f'"type":"{kind}"' not in f]


def twice(kind: str) -> Breaks:
    def breaks(frames: Frames) -> Frames:
        at = first(kind, frames)
        return [*frames[: at + 1], *frames[at:]]

    return breaks


def before(kind: str, other: str) -> Breaks:
    """The first frame of one type moved before the first of another."""

    def breaks(frames: Frames) -> Frames:
        moved = frames[first(kind, frames)]
        rest = [frame for frame in frames if frame is not moved]
        at = first(other, rest)
        return [*rest[:at], moved, *rest[at:]]

    return breaks


AI_SDK: dict[str, Breaks] = {
    "no [DONE]": lambda frames: frames[:-1],
    "frames after [DONE]": lambda frames: [*frames, frames[0]],
    "no start": without("start"),
    "start twice": twice("start"),
    "no finish": without("finish"),
    "finish twice": twice("finish"),
    "no step": without("start-step"),
    "a step that is not ended": without("finish-step"),
    "no text-start": without("text-start"),
    "a text that is not ended": without("text-end"),
    "a text that begins twice": twice("text-start"),
    "text after its end": before("text-end", "text-delta"),
    "reasoning in a text": before("reasoning-start", "tool-input-start"),
    "no call": lambda f: without("tool-input-available")(without("tool-input-start")(f)),
    "a result before its call": before("tool-output-available", "tool-input-start"),
    "a result twice": twice("tool-output-available"),
    "a null": change("start", messageMetadata=None),
    "a nested null": change("finish", messageMetadata={"usage": None}),
    "an unknown field": change("text-delta", text="x"),
    "a missing field": change("text-delta", delta=...),
    "a field of a wrong type": change("text-delta", delta=3),
    "an unknown chunk": change("start-step", type="begin-step"),
    "a chunk of version 7": change("start-step", type="reset-step"),
    "an unknown reason": change("finish", finishReason="tool_calls"),
    "no JSON": lambda frames: ["{", *frames[1:]],
}
AG_UI: dict[str, Breaks] = {
    "no RUN_STARTED": without("RUN_STARTED"),
    "RUN_STARTED twice": twice("RUN_STARTED"),
    "no RUN_FINISHED": without("RUN_FINISHED"),
    "RUN_FINISHED twice": twice("RUN_FINISHED"),
    "another run": change("RUN_FINISHED", runId="other"),
    "another thread": change("RUN_STARTED", threadId="other"),
    "RUN_ERROR and RUN_FINISHED": lambda f: [*f[:-1], '{"type":"RUN_ERROR","message":"x"}', f[-1]],
    "[DONE]": lambda frames: [*frames, "[DONE]"],
    "a text without start": without("TEXT_MESSAGE_START"),
    "a text that is not ended": without("TEXT_MESSAGE_END"),
    "a text that begins twice": twice("TEXT_MESSAGE_START"),
    "a call that is not ended": without("TOOL_CALL_END"),
    "arguments of no call": without("TOOL_CALL_START"),
    "arguments after their end": before("TOOL_CALL_END", "TOOL_CALL_ARGS"),
    "a call before its message": before("TOOL_CALL_START", "TEXT_MESSAGE_START"),
    "a step that is not ended": without("STEP_FINISHED"),
    "reasoning that is not ended": without("REASONING_END"),
    "a reasoning message that is not ended": without("REASONING_MESSAGE_END"),
    "a null": change("RUN_FINISHED", outcome=None),
    "an unknown field": change("TEXT_MESSAGE_CONTENT", text="x"),
    "a missing field": change("TEXT_MESSAGE_CONTENT", delta=...),
    "a result that is no string": change("TOOL_CALL_RESULT", content={"a": 1}),
    "an unknown event": change("STEP_STARTED", type="STEP_BEGUN"),
}


async def scene() -> list[Any]:
    made = await SCENES["released_by_response"]()
    return made.events


def check_ag_ui(data: bytes) -> None:
    ag_ui.check(data, thread_id="t", run_id="r")


@pytest.mark.parametrize("what", AI_SDK)
async def test_the_checker_of_ui_message_streams_fails_on(what: str) -> None:
    data = b"".join(map(AiSdkEncoder().encode, await scene()))
    frames = frames_of(data)
    ai_sdk.check(framed(frames))
    broken = AI_SDK[what](frames)
    assert broken != frames
    with pytest.raises((ai_sdk.Broken, json.JSONDecodeError)):
        ai_sdk.check(framed(broken))


@pytest.mark.parametrize("what", AG_UI)
async def test_the_checker_of_ag_ui_fails_on(what: str) -> None:
    data = b"".join(map(AgUiEncoder(thread_id="t", run_id="r").encode, await scene()))
    frames = frames_of(data)
    check_ag_ui(framed(frames))
    broken = AG_UI[what](frames)
    assert broken != frames
    with pytest.raises((ag_ui.Broken, json.JSONDecodeError)):
        check_ag_ui(framed(broken))


@pytest.mark.parametrize("check", [ai_sdk.check, check_ag_ui], ids=["ai-sdk", "ag-ui"])
@pytest.mark.parametrize("end", ["\r\n", "\r"], ids=["CRLF", "CR"])
async def test_both_fail_on_other_line_ends(check: Any, end: str) -> None:
    events = await scene()
    for encoder in (AiSdkEncoder(), AgUiEncoder(thread_id="t", run_id="r")):
        frames = frames_of(b"".join(map(encoder.encode, events)))
        with pytest.raises(AssertionError):
            check(framed(frames, end))


@pytest.mark.parametrize("check", [ai_sdk.check, check_ag_ui], ids=["ai-sdk", "ag-ui"])
async def test_both_fail_on_a_stream_that_is_cut(check: Any) -> None:
    events = await scene()
    for encoder in (AiSdkEncoder(), AgUiEncoder(thread_id="t", run_id="r")):
        data = b"".join(map(encoder.encode, events))
        for length in range(0, len(data) - 1, 97):
            with pytest.raises((AssertionError, json.JSONDecodeError)):
                check(data[:length])


def test_the_reader_of_events_goes_by_the_book() -> None:
    stream = (
        b"\xef\xbb\xbf: hi\ndata: a\r\ndata:b\rid: 7\nevent: x\n\ndata\n\nid: 8\0\n\ndata: cut\n"
    )
    events, comments = read(stream)
    assert events == [Event("a\nb", "x", "7"), Event("", "message", "7")]
    assert comments == ["hi"]


def test_the_wide_reader_breaks_lines_where_the_book_does_not() -> None:
    stream = "data: a\u2028data: b\n\n".encode()
    assert read(stream) != read_wide(stream)
