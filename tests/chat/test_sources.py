"""Sources and files of an answer: shown, kept, changed by hooks, taken back, stored."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from tests._event_grammar import check_events

from hookline import (
    Agent,
    AssistantMessage,
    Conversation,
    File,
    Image,
    MemoryStore,
    ModelRequest,
    ModelResponse,
    Proceed,
    Source,
    Store,
    Text,
    ToolCall,
    check_history,
    read_message,
)
from hookline.errors import ChatAbortedError, ModelError
from hookline.events import (
    ChatEvent,
    FileAdded,
    MessageAdded,
    PartEnd,
    ResponseReset,
    SourceAdded,
    TextDelta,
    read_event,
)
from hookline.hooks import redact
from hookline.models import FileChunk, PartEndChunk, SourceChunk, TextChunk
from hookline.points import AroundRequest, OnDelta, OnResponse
from hookline.stores import SQLStore
from hookline.testing import ScriptedModel, Turn, call, collect

PAGE = Source(url="https://example.org", title="Example", meta={"acme": {"rank": 1}})
PICTURE = Image(media_type="image/png", data=b"\x89PNG", meta={"acme": {"id": "i1"}})
REPORT = File(media_type="application/pdf", name="report.pdf", meta={"acme": {"file_id": "f1"}})
CITED = {"acme": {"citations": [{"url": "https://example.org"}]}}
ANSWER = (Text("So it is.", CITED), PAGE, PICTURE, REPORT)


def brought(events: list[ChatEvent]) -> list[Any]:
    """What is shown, in order."""
    out: list[Any] = []
    for event in events:
        match event:
            case TextDelta():
                out.append(event.text)
            case PartEnd():
                out.append("|")
            case SourceAdded():
                out.append(event.source)
            case FileAdded():
                out.append(event.file)
            case ResponseReset():
                out.append("R")
            case MessageAdded(message=AssistantMessage()):
                out.append("M")
            case _:
                pass
    return out


def answer_in(events: list[ChatEvent]) -> AssistantMessage:
    """The one answer that was added."""
    (found,) = [
        each.message
        for each in events
        if isinstance(each, MessageAdded) and isinstance(each.message, AssistantMessage)
    ]
    return found


async def test_sources_and_files_are_streamed_and_are_parts_of_the_answer() -> None:
    agent = Agent(ScriptedModel(Turn(*ANSWER)))
    events = await collect(agent.chat_stream("Is it so?"))
    check_events(events)
    assert brought(events) == ["So it is.", "|", PAGE, PICTURE, REPORT, "M"]
    answer = answer_in(events)
    assert answer.parts == ANSWER
    assert (answer.sources, answer.files) == ((PAGE,), (PICTURE, REPORT))
    assert read_message(answer.to_json()) == answer
    assert [read_event(each.to_json()) for each in events] == events


async def test_the_response_has_those_of_all_its_answers() -> None:
    async def look() -> str:
        """Look."""
        return "seen"

    agent = Agent(ScriptedModel([PAGE, call("look")], ["Done.", PICTURE]), tools=[look])
    response = await agent.chat("Look.")
    assert (response.sources, response.files) == ((PAGE,), (PICTURE,))


async def test_a_source_ends_the_text_before_it() -> None:
    agent = Agent(ScriptedModel(["One. ", PAGE, "Two."]))
    events = await collect(agent.chat_stream("Count."))
    check_events(events)
    assert brought(events) == ["One. ", "|", PAGE, "Two.", "|", "M"]


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
async def test_stored_messages_hold_them(kind: str, tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        store: Store = MemoryStore()
        if kind == "sqlite":
            address = f"sqlite:///{tmp_path}/talks.db"
            store = await stack.enter_async_context(SQLStore(address))
        agent = Agent(ScriptedModel(Turn(*ANSWER)), store=store)
        await agent.chat("Is it so?", conversation="c")
        kept = await store.load("c")
    assert kept is not None
    answer = kept.messages[1]
    assert isinstance(answer, AssistantMessage)
    assert answer.parts == ANSWER


# ── hooks ───────────────────────────────────────────────────────────────────────────────────


async def test_a_hook_drops_changes_and_adds_them() -> None:
    def change(ctx: OnDelta) -> Any:
        match ctx.delta:
            case FileChunk():
                return ()
            case SourceChunk(source=source):
                return SourceChunk(source.replace(title="Mine"))
            case TextChunk(text=text):
                return (TextChunk(text.upper()), SourceChunk(Source(title="Beside")))
            case _:
                return None

    agent = Agent(ScriptedModel(["Yes.", PAGE, PICTURE]))
    agent.add_hook("onDelta", change)
    events = await collect(agent.chat_stream("Is it so?"))
    check_events(events)
    mine = PAGE.replace(title="Mine")
    assert brought(events) == ["YES.", "|", Source(title="Beside"), mine, "M"]


async def test_what_a_hook_adds_at_the_end_of_a_text_comes_after_it() -> None:
    def add(ctx: OnDelta) -> Any:
        if isinstance(ctx.delta, PartEndChunk):
            return (SourceChunk(PAGE), TextChunk(" Indeed."), ctx.delta)
        return None

    agent = Agent(ScriptedModel(Turn(Text("Yes.", CITED))))
    agent.add_hook("onDelta", add)
    events = await collect(agent.chat_stream("Is it so?"))
    check_events(events)
    assert brought(events) == ["Yes.", " Indeed.", "|", PAGE, "M"]
    assert answer_in(events).parts == (Text("Yes. Indeed.", CITED), PAGE)


async def test_text_in_place_of_a_source_is_a_text_of_its_own() -> None:
    def told(ctx: OnDelta) -> Any:
        if isinstance(ctx.delta, SourceChunk):
            return TextChunk(f"[{ctx.delta.source.title}]")
        return None

    agent = Agent(ScriptedModel(["Yes. ", PAGE, "Really."]))
    agent.add_hook("onDelta", told)
    events = await collect(agent.chat_stream("Is it so?"))
    check_events(events)
    assert brought(events) == ["Yes. ", "|", "[Example]", "|", "Really.", "|", "M"]


async def test_a_response_without_them_takes_them_back() -> None:
    def bare(ctx: OnResponse) -> ModelResponse:
        parts = ctx.response.parts
        return ctx.response.replace(parts=tuple(each for each in parts if isinstance(each, Text)))

    agent = Agent(ScriptedModel(Turn(*ANSWER)))
    agent.add_hook("onResponse", bare)
    events = await collect(agent.chat_stream("Is it so?"))
    check_events(events)
    assert brought(events)[-4:] == ["R", "So it is.", "|", "M"]


async def test_an_answer_of_a_hook_keeps_them_and_what_its_text_cites() -> None:
    async def answer(
        ctx: AroundRequest, proceed: Proceed[ModelRequest, ModelResponse]
    ) -> ModelResponse:
        return ModelResponse(parts=ANSWER)

    agent = Agent(ScriptedModel())
    agent.add_hook("aroundRequest", answer)
    events = await collect(agent.chat_stream("Is it so?"))
    check_events(events)
    assert brought(events) == ["So it is.", "|", PAGE, PICTURE, REPORT, "M"]
    assert answer_in(events).parts == ANSWER


async def test_they_wait_for_the_whole_response_where_that_is_asked_for() -> None:
    agent = Agent(ScriptedModel(Turn(*ANSWER)))
    events = await collect(agent.chat_stream("Is it so?", release="response"))
    check_events(events)
    assert brought(events) == ["So it is.", "|", PAGE, PICTURE, REPORT, "M"]


async def test_a_retry_takes_them_back() -> None:
    async def again(
        ctx: AroundRequest, proceed: Proceed[ModelRequest, ModelResponse]
    ) -> ModelResponse:
        try:
            return await proceed()
        except ModelError:
            return await proceed()

    broken = Turn(PAGE, fail=ModelError("broken"))
    agent = Agent(ScriptedModel(broken, Turn("Yes.", PICTURE)))
    agent.add_hook("aroundRequest", again)
    events = await collect(agent.chat_stream("Is it so?"))
    check_events(events)
    assert brought(events) == [PAGE, "R", "Yes.", "|", PICTURE, "M"]


async def test_an_answer_that_is_cut_off_keeps_what_it_had() -> None:
    sent = 0

    async def stall() -> None:
        nonlocal sent
        sent += 1
        if sent == 4:
            await asyncio.Event().wait()

    turn = Turn(PAGE, call("x"), "Begun", ", and never ended", delay=stall)
    agent = Agent(ScriptedModel(turn))
    talk = Conversation()
    async with agent.chat_stream("Is it so?", conversation=talk) as stream:
        async for event in stream:
            if isinstance(event, TextDelta):
                break
    answer = talk.messages[1]
    assert isinstance(answer, AssistantMessage)
    assert answer.partial
    assert answer.parts[0] == PAGE
    assert not any(isinstance(part, ToolCall) for part in answer.parts)
    check_history(talk.messages)


async def test_an_abort_tells_of_them() -> None:
    def leave(ctx: OnDelta) -> None:
        if isinstance(ctx.delta, FileChunk):
            ctx.run.abort("enough")

    agent = Agent(ScriptedModel(Turn(*ANSWER)))
    agent.add_hook("onDelta", leave)
    with pytest.raises(ChatAbortedError) as raised:
        await agent.chat("Is it so?")
    assert any(PAGE in getattr(each, "parts", ()) for each in raised.value.partial)


HIDDEN = redact(values=["ada@example.org"])


async def test_redact_looks_at_sources() -> None:
    page = Source(url="https://example.org/?for=ada@example.org", title="Of ada@example.org")
    agent = Agent(ScriptedModel(["Yes.", page, PICTURE]), hooks=[HIDDEN])
    events = await collect(agent.chat_stream("Is it so?"))
    check_events(events)
    assert PICTURE in brought(events)
    assert "ada@" not in "".join(each.to_json().decode() for each in events)


@pytest.mark.parametrize(
    "chunk",
    [SourceChunk("https://example.org"), FileChunk(PAGE), SourceChunk(PICTURE)],  # type: ignore[arg-type]
    ids=["text", "source", "file"],
)
async def test_a_chunk_of_something_else_is_the_adapters_fault(chunk: Any) -> None:
    with pytest.raises(ModelError, match="fix its adapter"):
        await Agent(ScriptedModel(Turn(raw_chunks=[chunk]))).chat("Is it so?")
