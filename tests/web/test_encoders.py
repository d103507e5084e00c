"""The encoders against checkers that were written from the protocols, over chats of every kind."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.web import _check_ag_ui as ag_ui
from tests.web import _check_ai_sdk as ai_sdk
from tests.web._scenes import PAGE, SCENES, Played
from tests.web._sse import read, read_wide

from hookline import AssistantMessage, ToolMessage, UserMessage
from hookline.events import ChatFailed, ChatStarted, MessageAdded, read_event
from hookline.web import AgUiEncoder, AiSdkEncoder, NativeEncoder, Refused, encode, to_ui_messages

EVERY = pytest.mark.parametrize("name", SCENES)
SECRETS = ("hunter2", "sk-123", "Traceback", "RuntimeError")
# Version 6 of the SDK has no way to take a text back; it is marked. See docs/web.md.
RESETS = ("a_rewritten_answer", "a_retried_answer", "a_retried_call", "a_retried_source")


def open_calls(played: Played) -> set[str]:
    if not played.resumed:
        return set()
    last = next(m for m in reversed(played.before) if isinstance(m, AssistantMessage))
    done = {m.call_id for m in played.before if isinstance(m, ToolMessage)}
    return {call.id for call in last.tool_calls} - done


def all_calls(played: Played) -> list[str]:
    if not played.resumed:
        return []
    last = next(m for m in reversed(played.before) if isinstance(m, AssistantMessage))
    return [call.id for call in last.tool_calls]


def ai_sdk_of(played: Played, upto: int | None = None, **options: Any) -> bytes:
    encoder = AiSdkEncoder(
        earlier_calls=all_calls(played), message_id="m1" if played.resumed else None, **options
    )
    data = b"".join(encoder.encode(event) for event in played.events[:upto])
    assert upto is not None or encoder.complete
    return data + encoder.end()


def ag_ui_of(played: Played, upto: int | None = None) -> bytes:
    encoder = AgUiEncoder(thread_id="t", run_id="r", earlier_calls=all_calls(played), messages=SENT)
    data = b"".join(encoder.encode(event) for event in played.events[:upto])
    return data + encoder.end()


SENT = [{"id": "u1", "role": "user", "content": "hello"}]


def said_after(played: Played) -> list[AssistantMessage]:
    """The answers that the chat has committed, whole ones and cut ones."""
    added = [e.message for e in played.events if isinstance(e, MessageAdded) and not e.path]
    return [m for m in added if isinstance(m, AssistantMessage)]


# ── the Vercel AI SDK ───────────────────────────────────────────────────────────────────────


@EVERY
@pytest.mark.parametrize("target", [6, 7])
async def test_a_ui_message_stream_is_right(name: str, target: Any) -> None:
    played = await SCENES[name]()
    ai_sdk.check(ai_sdk_of(played, ai_sdk_version=target), target=target, known=open_calls(played))


@EVERY
@pytest.mark.parametrize("target", [6, 7])
async def test_a_ui_message_stream_shows_the_text_that_is_stored(name: str, target: Any) -> None:
    """With version 6, less the parts that are marked as withdrawn."""
    played = await SCENES[name]()
    data = ai_sdk_of(played, ai_sdk_version=target)
    chunks = ai_sdk.check(data, target=target, known=open_calls(played))
    before = [{"type": "tool-x", "toolCallId": id} for id in all_calls(played)]
    parts = ai_sdk.message_of(chunks, before)
    shown = "".join(part["text"] for part in parts if part["type"] == "text")
    stored = "".join(message.text for message in said_after(played))
    assert shown == (stored or ("We are closed." if name == "a_stop_before_anything" else ""))
    thought = "".join(part["text"] for part in parts if part["type"] == "reasoning")
    if target == 6 and name in RESETS:
        return  # reasoning has ended before it can be marked
    assert thought == "".join(message.reasoning for message in said_after(played))


@pytest.mark.parametrize("name", [name for name in SCENES if name not in RESETS])
async def test_the_same_message_is_shown_live_and_from_history(name: str) -> None:
    played = await SCENES[name]()
    stored = to_ui_messages(played.after[len(played.before) :])
    answers = [m for m in stored if m["role"] == "assistant"]
    split = ("a_continuation", "messages_sent_into_the_answer")  # a user's message in the middle
    if played.resumed or not answers or name in (*split, "an_approval"):
        return
    chunks = ai_sdk.chunks_of(ai_sdk_of(played))
    assert chunks[0] == {"type": "start", "messageId": answers[0]["id"]}
    live = ai_sdk.message_of(chunks)
    assert [p for p in kinds(live) if p] == [p for p in kinds(answers[0]["parts"]) if p]


def kinds(parts: list[dict[str, Any]]) -> list[Any]:
    """Texts as they are, calls by their outcome, then the rest; steps do not matter."""
    out: list[Any] = []
    rest: list[Any] = []  # comes with the end of its message
    for part in parts:
        if part["type"] in ("text", "reasoning"):
            out.append((part["type"], part["text"]))
        elif part["type"] in ("source-url", "source-document", "file"):
            rest.append(part)
        elif part["type"].startswith("tool-"):
            state = part["state"].replace("input-error", "output-error")
            out.append((part["type"], part["toolCallId"], state))
    return [*out, *rest]


@pytest.mark.parametrize("target", [6, 7])
async def test_sources_and_files_are_parts_of_the_message(target: Any) -> None:
    played = await SCENES["sources_and_files"]()
    chunks = ai_sdk.chunks_of(ai_sdk_of(played, ai_sdk_version=target))
    found = [c for c in chunks if c["type"] in ("source-url", "source-document", "file")]
    url, document, file = "source-url", "source-document", "file"
    kinds = [c["type"] for c in found]
    assert kinds == [url, document, document, file, file, document, file]
    page, trap, handbook, drawing, far, table, _ = found
    assert page["url"] == PAGE.url
    assert "url" not in trap  # what a browser must not open is named, and no link
    assert (handbook["filename"], handbook["mediaType"]) == ("handbook.pdf", "application/pdf")
    assert drawing["url"] == "data:image/png;base64,iVBORw=="
    assert far["url"] == "https://example.org/drawing.webp"
    assert (table["title"], table["mediaType"]) == ("table.csv", "text/csv")
    ids = [c["sourceId"] for c in found if "sourceId" in c]
    assert len(set(ids)) == len(ids)


@pytest.mark.parametrize("target", [6, 7])
async def test_a_source_that_was_taken_back_is_not_shown(target: Any) -> None:
    chunks = ai_sdk.chunks_of(ai_sdk_of(await SCENES["a_retried_source"](), ai_sdk_version=target))
    parts = ai_sdk.message_of(chunks)
    assert [part["url"] for part in parts if part["type"] == "source-url"] == [PAGE.url]


async def test_ag_ui_tells_of_sources_and_files_in_custom_events() -> None:
    for name, shown in (("sources_and_files", 7), ("a_retried_source", 1)):
        events = ag_ui.check(ag_ui_of(await SCENES[name]()), thread_id="t", run_id="r")
        told = [each for each in events if each["type"] == "CUSTOM"]
        assert len(told) == shown
        assert told[0]["name"] == "source"
        assert told[0]["value"]["url"] == PAGE.url


async def test_a_withdrawn_text_is_taken_off_the_screen_by_version_7_only() -> None:
    played = await SCENES["a_retried_call"]()
    seven = [c["type"] for c in ai_sdk.chunks_of(ai_sdk_of(played, ai_sdk_version=7))]
    assert "reset-step" in seven
    six = [c["type"] for c in ai_sdk.chunks_of(ai_sdk_of(played))]
    assert "reset-step" not in six
    withdrawn = {"providerMetadata": {"hookline": {"withdrawn": True}}}
    marked = [c for c in ai_sdk.chunks_of(ai_sdk_of(played)) if c.items() >= withdrawn.items()]
    assert [c["type"] for c in marked] == ["text-end"]


async def test_version_5_gets_no_approvals() -> None:
    for name in ("an_approval", "a_call_denied_by_the_user"):
        data = ai_sdk_of(await SCENES[name](), ai_sdk_version=5)
        assert b"tool-approval-request" not in data
        assert b"tool-output-denied" not in data


# ── AG-UI ───────────────────────────────────────────────────────────────────────────────────


@EVERY
async def test_an_ag_ui_run_is_right(name: str) -> None:
    ag_ui.check(ag_ui_of(await SCENES[name]()), thread_id="t", run_id="r")


@EVERY
async def test_an_ag_ui_run_shows_the_messages_that_are_stored(name: str) -> None:
    played = await SCENES[name]()
    events = ag_ui.check(ag_ui_of(played), thread_id="t", run_id="r")
    shown = {m["id"]: m for m in ag_ui.messages_of(events, SENT)}
    answers = said_after(played)
    for message in answers:
        assert shown[message.id]["content"] == message.text
        calls = [call["id"] for call in shown[message.id].get("toolCalls", ())]
        assert sorted(calls) == sorted(call.id for call in message.tool_calls)
    if name != "a_stop_before_anything":
        ids = {m["id"] for m in shown.values() if m["role"] == "assistant"}
        assert ids == {m.id for m in answers}
    for event in played.events:
        message = event.message if isinstance(event, MessageAdded) and not event.path else None
        if isinstance(message, ToolMessage) and message.outcome == "ok" and played.before == ():
            assert shown[message.id]["content"] == message.text


@pytest.mark.parametrize(
    ("name", "outcome"),
    [("a_text", "success"), ("an_approval", "interrupt"), ("an_abort", "cancelled")],
)
async def test_an_ag_ui_run_says_how_it_ended(name: str, outcome: str) -> None:
    events = ag_ui.check(ag_ui_of(await SCENES[name]()), thread_id="t", run_id="r")
    assert events[-1]["outcome"]["type"] == outcome


async def test_an_ag_ui_client_of_before_1_0_gets_no_outcome() -> None:
    played = await SCENES["an_abort"]()
    encoder = AgUiEncoder(thread_id="t", run_id="r", modern=False)
    data = b"".join(map(encoder.encode, played.events))
    assert ag_ui.check(data, thread_id="t", run_id="r")[-1].keys() == {"type", "threadId", "runId"}


# ── hookline's own ──────────────────────────────────────────────────────────────────────────


def harmless(value: Any) -> Any:
    """An event as JSON without what is hidden: errors, and addresses that no page may follow."""
    if isinstance(value, list):
        return [harmless(each) for each in value]
    if not isinstance(value, dict):
        return value
    hidden = {"error", *(("text", "result") if value.get("outcome") == "error" else ())}
    if not str(value.get("url")).startswith("https:"):
        hidden.add("url")
    return {key: harmless(each) for key, each in value.items() if key not in hidden}


@EVERY
async def test_the_native_stream_is_the_events(name: str) -> None:
    played = await SCENES[name]()
    encoder = NativeEncoder(run="r")
    data = b"".join(encoder.encode(e, 0.5, n) for n, e in enumerate(played.events))
    events, _ = read(data)
    assert [event.id for event in events] == [f"r-{n}" for n in range(len(played.events))]
    assert [type(read_event(e.data)) for e in events] == [type(e) for e in played.events]
    for event, sent in zip(played.events, events, strict=True):
        shown = json.loads(read_event(sent.data).to_json())
        assert harmless(shown) == harmless(json.loads(event.to_json()))
        assert json.loads(sent.data)["at"] == 500.0


# ── all of them ─────────────────────────────────────────────────────────────────────────────


@EVERY
async def test_a_stream_that_is_cut_anywhere_is_closed(name: str) -> None:
    played = await SCENES[name]()
    for upto in range(len(played.events)):
        if upto:
            ai_sdk.check(ai_sdk_of(played, upto), known=open_calls(played))
            ag_ui.check(ag_ui_of(played, upto), thread_id="t", run_id="r")


@EVERY
async def test_nothing_follows_the_end(name: str) -> None:
    played = await SCENES[name]()
    for encoder in (AiSdkEncoder(), AgUiEncoder(thread_id="t", run_id="r"), NativeEncoder()):
        for event in played.events:
            encoder.encode(event)
        assert encoder.complete
        assert encoder.encode(played.events[0]) == b""
        assert encoder.end() == encoder.end(RuntimeError("late")) == b""


@EVERY
async def test_no_text_of_an_exception_goes_out(name: str) -> None:
    played = await SCENES[name]()
    native = NativeEncoder()
    data = ai_sdk_of(played) + ag_ui_of(played) + b"".join(map(native.encode, played.events))
    for secret in SECRETS:
        assert secret.encode() not in data, secret


async def test_a_mapper_says_what_goes_out() -> None:
    played = await SCENES["failing_calls"]()
    encoder = AiSdkEncoder(describe_error=lambda error: f"{error.type}!")
    data = b"".join(map(encoder.encode, played.events))
    assert b'"errorText":"RuntimeError!"' in data
    assert b"hunter2" not in data


@EVERY
async def test_every_reader_of_lines_sees_the_same_frames(name: str) -> None:
    played = await SCENES[name]()
    native = NativeEncoder(run="r")
    own = b"".join(native.encode(e, 0.5, n) for n, e in enumerate(played.events))
    for data in (ai_sdk_of(played), ag_ui_of(played), own):
        events, comments = read(data)
        assert read_wide(data) == (events, comments)
        assert len(events) == data.count(b"\n\n")
        assert {event.type for event in events} == {"message"}


@pytest.mark.parametrize("error", [None, RuntimeError("secret")], ids=["cut", "raised"])
async def test_a_chat_that_never_began_has_an_end(error: BaseException | None) -> None:
    data = AgUiEncoder(thread_id="t", run_id="r").end(error)
    ag_ui.check(data, thread_id="t", run_id="r")
    ai_sdk.check(AiSdkEncoder().end(error))
    (event,), _ = read(NativeEncoder().end(error))
    assert type(read_event(event.data)).__name__ == ("ChatFailed" if error else "ChatAborted")
    assert b"secret" not in data


@pytest.mark.parametrize("seconds", [None, "5"])
def test_a_refusal_in_a_stream_says_whether_to_try_again(seconds: str | None) -> None:
    refusal = Refused(429, "Busy.", retry_after=seconds)
    (event,), _ = read(NativeEncoder().end(refusal))
    failed = read_event(event.data)
    assert isinstance(failed, ChatFailed)
    assert failed.error.message == "Busy."
    assert failed.error.retryable is (seconds is not None)
    assert failed.error.retry_after == (None if seconds is None else 5.0)


async def test_encode_needs_no_web_framework_and_ends_whatever_is_raised() -> None:
    played = await SCENES["a_call"]()

    async def broken() -> Any:
        for event in played.events[:6]:
            yield event
        raise ConnectionError("secret")

    data = b"".join([part async for part in encode(broken(), AiSdkEncoder())])
    assert ai_sdk.check(data)[-1] == {"type": "finish", "finishReason": "error"}
    assert b"secret" not in data


async def test_the_user_message_is_a_message_of_the_users() -> None:
    played = await SCENES["a_text"]()
    (said,) = [m for m in played.after if isinstance(m, UserMessage)]
    assert to_ui_messages(played.after)[0] == {
        "id": said.id,
        "role": "user",
        "parts": [{"type": "text", "text": "hello"}],
    }


def test_a_client_that_lost_the_first_events_is_told_in_a_message_that_has_begun() -> None:
    chunks = ai_sdk.check(AiSdkEncoder().reload())
    assert [chunk["type"] for chunk in chunks] == ["start", "data-reload", "error", "finish"]


async def test_front_ends_see_sub_agents_and_the_calls_that_started_them() -> None:
    played = await SCENES["sub_agents_of_a_sub_agent"]()
    started = {e.agent: e for e in played.events if isinstance(e, ChatStarted)}
    calls = {name: event.path[-1] for name, event in started.items() if event.path}
    ids = {name: event.chat_id for name, event in started.items()}
    events = ag_ui.check(ag_ui_of(played), thread_id="t", run_id="r")
    shown = [e for e in events if e["type"].startswith("SUBAGENT_")]
    begun = {e["name"]: e for e in shown if e["type"] == "SUBAGENT_STARTED"}
    assert {name: e["parentToolCallId"] for name, e in begun.items()} == calls
    assert {name: e.get("parentSubagentRunId") for name, e in begun.items()} == {
        "middle": None,
        "lowest": ids["middle"],
        "broken": None,
        "endless": None,
    }
    names = {id: name for name, id in ids.items()}
    ends = {names[e["subagentRunId"]]: e for e in shown if e["type"] != "SUBAGENT_STARTED"}
    assert ends["middle"]["outcome"] == ends["lowest"]["outcome"] == {"type": "success"}
    assert ends["endless"]["code"] == "aborted"
    assert ends["broken"]["type"] == "SUBAGENT_ERROR"
    assert "hunter2" not in str(shown)

    parts = [c for c in ai_sdk.check(ai_sdk_of(played)) if c["type"] == "data-subagent"]
    last = {part["data"]["name"]: part["data"] for part in parts}
    assert {name: data["status"] for name, data in last.items()} == {
        "middle": "done",
        "lowest": "done",
        "broken": "failed",
        "endless": "aborted",
    }
    assert {name: data["path"] for name, data in last.items()} == {
        name: list(event.path) for name, event in started.items() if event.path
    }
    assert "hunter2" not in str(parts)
