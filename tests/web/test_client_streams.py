"""What the encoders write, read by the real clients: every scene, and broken ones."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from tests.web import _check_ag_ui as ag_ui
from tests.web._clients import need_node, run
from tests.web._scenes import SCENES, Played
from tests.web.test_checkers import AG_UI, AI_SDK, framed, frames_of
from tests.web.test_encoders import RESETS, SENT, ag_ui_of, ai_sdk_of

from hookline import AssistantMessage
from hookline.events import MessageAdded
from hookline.web import AgUiEncoder, AiSdkEncoder, to_ag_ui_messages, to_ui_messages

# What `ai` and `@ag-ui/client` let pass, so that only the checkers here stand in its way.
AI_SDK_LETS_PASS = {
    *("no [DONE]", "no start", "start twice", "no finish", "finish twice", "no step"),
    *("a step that is not ended", "a text that is not ended", "a text that begins twice"),
    *("reasoning in a text", "a result twice", "an unknown field", "a chunk of version 7"),
    *("a null", "a nested null", "frames after [DONE]", "a result before its call"),
}
AG_UI_LETS_PASS = {
    *("no RUN_FINISHED", "another run", "another thread", "RUN_ERROR and RUN_FINISHED"),
    *("a call before its message", "a text without start", "an unknown field"),
    *("an unknown event",),
}


def base(data: bytes) -> str:
    return base64.b64encode(data).decode()


def shown_text(message: dict[str, Any]) -> str:
    """The text, as docs/frontends.md shows it: without what was withdrawn."""
    texts = [part for part in message["parts"] if part["type"] == "text"]
    shown = [
        p for p in texts if not p.get("providerMetadata", {}).get("hookline", {}).get("withdrawn")
    ]
    return "".join(part["text"] for part in shown)


def stored_text(played: Played) -> str:
    added = [e.message for e in played.events if isinstance(e, MessageAdded) and not e.path]
    return "".join(m.text for m in added if isinstance(m, AssistantMessage))


FRESH = (
    *("an_approved_call", "a_call_denied_by_the_user", "one_of_two_answers"),
    "an_answer_for_a_sub_agent",
)


@pytest.mark.parametrize(("version", "target"), [("ai", 7), ("ai", 6), ("ai6", 6), ("ai5", 5)])
async def test_the_sdk_reads_every_scene(version: str, target: Any) -> None:
    need_node()
    names = [name for name in SCENES if name not in FRESH]  # those need the message before
    played = [await SCENES[name]() for name in names]
    streams = [base(ai_sdk_of(each, ai_sdk_version=target)) for each in played]
    for name, each, result in zip(names, played, run("read.mjs", streams, version), strict=True):
        failed = name in ("a_failing_model", "too_many_steps")
        assert bool(result.get("failed")) == failed, (name, result.get("failed"))
        if name == "a_stop_before_anything":
            assert shown_text(result["message"]) == "We are closed."
        elif "message" in result:
            assert shown_text(result["message"]) == stored_text(each), name
        if version == "ai5" or name in RESETS:
            continue
        states = [part.get("state") for part in (result.get("message") or {"parts": []})["parts"]]
        assert "input-streaming" not in states, name
        assert "streaming" not in states, name


@pytest.mark.parametrize(("version", "target"), [("ai", 7), ("ai", 6), ("ai6", 6), ("ai5", 5)])
@pytest.mark.parametrize("name", ["sources_and_files", "a_retried_source"])
async def test_the_sdk_has_the_sources_and_files(name: str, version: str, target: Any) -> None:
    need_node()
    played = await SCENES[name]()
    [result] = run("read.mjs", [base(ai_sdk_of(played, ai_sdk_version=target))], version)
    assert "failed" not in result
    kinds = ("source-url", "source-document", "file")
    shown = [part for part in result["message"]["parts"] if part["type"] in kinds]
    answers = [m for m in to_ui_messages(played.after) if m["role"] == "assistant"]
    stored = [part for part in answers[0]["parts"] if part["type"] in kinds]
    for part in (*shown, *stored):
        assert part.pop("sourceId", "x")  # an attempt more has another number
    assert shown == stored


async def test_ag_ui_verifies_and_reads_every_scene() -> None:
    need_node()
    played = {name: await make() for name, make in SCENES.items() if name not in FRESH}
    streams = {name: ag_ui_of(each) for name, each in played.items()}
    ids = {"threadId": "t", "runId": "r", "messages": SENT}
    given = [{"data": base(data), **ids} for data in streams.values()]
    for name, result in zip(played, run("verify.mjs", given), strict=True):
        failed = name in ("a_failing_model", "too_many_steps")
        assert bool(result.get("failed")) == failed, (name, result.get("failed"))
        assert result["warnings"] == [], name
        events = ag_ui.check(streams[name], thread_id="t", run_id="r")
        ours = {m["id"]: m.get("content", "") for m in ag_ui.messages_of(events, SENT)}
        theirs = {m["id"]: m.get("content", "") for m in result["messages"]}
        reasoning = [m["id"] for m in result["messages"] if m["role"] == "reasoning"]
        assert {id: text for id, text in theirs.items() if id not in reasoning} == ours, name
        thought = "".join(theirs[id] for id in reasoning)
        added = [e.message for e in played[name].events if isinstance(e, MessageAdded)]
        said = [m for m in added if isinstance(m, AssistantMessage)]
        assert thought == "".join(m.reasoning for m in said), name
        assert bool(result["pending"]) == (name in ("an_approval", "a_question_of_a_sub_agent"))


async def test_the_clients_have_a_message_that_was_sent_into_the_answer_in_its_place() -> None:
    need_node()
    played = await SCENES["messages_sent_into_the_answer"]()
    ids = {"threadId": "t", "runId": "r", "messages": []}
    [theirs] = run("verify.mjs", [{"data": base(ag_ui_of(played)), **ids}])
    stored = to_ag_ui_messages(played.after[1:])
    assert [(m["id"], m["role"], m["content"]) for m in theirs["messages"]] == [
        (m["id"], m["role"], m["content"]) for m in stored
    ]
    [result] = run("read.mjs", [base(ai_sdk_of(played))], "ai")
    parts = result["message"]["parts"]
    shown = [part["type"] for part in parts if part["type"] != "step-start"]
    assert shown == ["tool-hear", "data-message", "text", "data-message", "text"]
    sent = [m for m in to_ui_messages(played.after[1:]) if m["role"] == "user"]
    assert [part["data"] for part in parts if part["type"] == "data-message"] == [
        {"status": "delivered", "message": message} for message in sent
    ]


async def test_the_sdk_fails_on_broken_streams_that_it_looks_at() -> None:
    need_node()
    played = await SCENES["released_by_response"]()
    frames = frames_of(b"".join(map(AiSdkEncoder().encode, played.events)))
    broken = [base(framed(breaks(frames))) for breaks in AI_SDK.values()]
    results = run("read.mjs", broken, "ai6")
    passed = {
        what for what, result in zip(AI_SDK, results, strict=True) if not result.get("failed")
    }
    assert passed <= AI_SDK_LETS_PASS
    assert len(AI_SDK) - len(passed) >= 6


async def test_ag_ui_fails_on_broken_streams_that_it_looks_at() -> None:
    need_node()
    played = await SCENES["released_by_response"]()
    frames = frames_of(b"".join(map(AgUiEncoder(thread_id="t", run_id="r").encode, played.events)))
    ids = {"threadId": "t", "runId": "r", "messages": SENT}
    broken = {what: framed(breaks(frames)) for what, breaks in AG_UI.items()}
    broken["CRLF"] = framed(frames, "\r\n")
    results = run("verify.mjs", [{"data": base(data), **ids} for data in broken.values()])
    passed = {
        what
        for what, result in zip(broken, results, strict=True)
        if not result.get("failed") and not result["warnings"]
    }
    assert passed <= AG_UI_LETS_PASS
    assert len(broken) - len(passed) >= 12
