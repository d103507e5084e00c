"""Long answers: many calls, odd ids and names, and more bytes than an answer may have."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hookline import Agent, Conversation, Limits, ModelRequest, ToolMessage, tool
from hookline._model.assembly import unique_id
from hookline.errors import ModelError
from hookline.events import ToolCallFinished, ToolCallStarted
from hookline.models import Chunk, Finish, TextChunk, ToolCallChunk
from hookline.testing import ScriptedModel, call

ID = re.compile(r"[A-Za-z0-9_-]{1,64}")


@tool
async def echo(text: str = "") -> str:
    return text


async def test_calls_past_the_limit_have_results_and_events_and_yield_to_the_loop() -> None:
    calls = [call("echo", call_id=f"c{i}") for i in range(1000)]
    agent: Agent[Any] = Agent(
        ScriptedModel(calls, "done"), tools=[echo], limits=Limits(tool_calls=10)
    )
    asked: list[str] = []
    failed: list[str] = []
    turns = 0
    agent.add_hook("preToolCall", lambda ctx: asked.append(ctx.call.id))
    agent.add_hook("onToolCallError", lambda ctx: failed.append(ctx.call.id))

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count())
    response = await agent.chat("go")
    counting.cancel()
    ids = [each.id for each in calls]
    assert asked == ids[:10]
    assert failed == ids[10:]
    results = [each for each in response.messages if isinstance(each, ToolMessage)]
    assert [each.call_id for each in results] == ids
    assert turns >= (1000 - 10) // 64


async def test_calls_past_the_limit_are_started_and_finished_once() -> None:
    calls = [call("echo", call_id=f"c{i}") for i in range(200)]
    agent: Agent[Any] = Agent(
        ScriptedModel(calls, "done"), tools=[echo], limits=Limits(tool_calls=3)
    )
    async with agent.chat_stream("go") as stream:
        events = [event async for event in stream]
    started = Counter(each.call.id for each in events if isinstance(each, ToolCallStarted))
    finished = Counter(each.call_id for each in events if isinstance(each, ToolCallFinished))
    assert started == finished == Counter(each.id for each in calls)


async def test_hooks_see_the_tool_of_a_call_past_the_limit() -> None:
    """`tool=None` would say that there is no such tool."""
    model = ScriptedModel([call("echo", call_id=f"c{i}") for i in range(3)], "done")
    agent: Agent[Any] = Agent(model, tools=[echo], limits=Limits(tool_calls=1))
    seen: list[Any] = []
    agent.add_hook("onToolCallError", lambda ctx: seen.append((ctx.call.id, ctx.tool, ctx.scope)))
    await agent.chat("go")
    assert [(id, tool and tool.name, scope and scope.label) for id, tool, scope in seen] == [
        ("c1", "echo", "agent"),
        ("c2", "echo", "agent"),
    ]


@given(given=st.lists(st.text() | st.sampled_from(["a", "a_2", "a.b", "x" * 64, "x" * 63])))
def test_made_ids_are_different_and_every_provider_takes_them(given: list[str]) -> None:
    taken: dict[str, int | None] = {}
    made = [unique_id(id or "call", taken) for id in given]
    assert len(set(made)) == len(made)
    assert all(ID.fullmatch(id) for id in made)


async def test_ids_of_a_model_are_made_unique_and_fit_for_every_provider() -> None:
    calls = [call("echo", call_id=id) for id in ("a", "a", "a.b", "a_b", "y" * 80, "y" * 90)]
    agent: Agent[Any] = Agent(ScriptedModel(calls, "done"), tools=[echo])
    response = await agent.chat("go")
    ids = [each.call_id for each in response.messages if isinstance(each, ToolMessage)]
    assert ids == ["a", "a_2", "a_b", "a_b_2", "y" * 64, "y" * 62 + "_2"]


class Chunks:
    """A model that sends these chunks, then answers."""

    name = "chunks"

    def __init__(self, *chunks: Chunk) -> None:
        self.chunks = chunks
        self.closed = False

    async def stream(self, request: ModelRequest, /) -> AsyncIterator[Chunk]:
        try:
            for chunk in self.chunks if len(request.messages) == 1 else (TextChunk("done"),):
                yield chunk
            yield Finish()
        finally:
            self.closed = True


@pytest.mark.parametrize(
    ("name", "told"),
    [
        pytest.param("", "there is no tool ''; use one of these: echo", id="empty"),
        pytest.param("n" * 5000, f"there is no tool '{'n' * 64}…'; use one", id="long"),
    ],
)
async def test_a_call_with_an_odd_name_is_an_unknown_tool_like_any_other(
    name: str, told: str
) -> None:
    model = Chunks(ToolCallChunk(index=0, id="c", name=name, arguments="{}"))
    response = await Agent(model, tools=[echo]).chat("go")
    (result,) = [each for each in response.messages if isinstance(each, ToolMessage)]
    assert result.outcome == "error"
    assert told in result.text
    assert len(result.text) < 400
    assert response.text == "done"


@pytest.mark.parametrize("letter", ["x", "ü", "漢", "🌍"])
async def test_the_bound_of_an_answer_counts_bytes(letter: str) -> None:
    """Exactly the bytes of its text: one more is too many, wherever it comes."""
    size = len(letter.encode())
    fits = [TextChunk(letter)] * 10
    agent: Agent[Any] = Agent(Chunks(*fits), limits=Limits(answer_bytes=10 * size))
    assert (await agent.chat("go")).text == 10 * letter
    agent = Agent(Chunks(*fits, TextChunk("x")), limits=Limits(answer_bytes=10 * size))
    with pytest.raises(ModelError, match=rf"answer_bytes={10 * size}"):
        await agent.chat("go")


@pytest.mark.parametrize(
    "chunks",
    [
        pytest.param([TextChunk("kept "), *[TextChunk("x" * 10)] * 50], id="text"),
        pytest.param([TextChunk("kept "), *[TextChunk("ü" * 5)] * 50], id="text that is not ASCII"),
        pytest.param(
            [
                TextChunk("kept "),
                ToolCallChunk(index=0, id="c", name="echo"),
                *[ToolCallChunk(index=0, arguments="x" * 10)] * 50,
            ],
            id="arguments",
        ),
    ],
)
async def test_an_answer_over_its_bound_is_cut_off_and_its_text_kept(chunks: list[Chunk]) -> None:
    model = Chunks(*chunks)
    agent: Agent[Any] = Agent(model, tools=[echo], limits=Limits(answer_bytes=100))
    conversation = Conversation()
    with pytest.raises(ModelError, match=r"longer than Limits\.answer_bytes=100") as caught:
        await agent.chat("go", conversation=conversation)
    assert not caught.value.retryable
    assert model.closed
    user, answer = conversation.messages
    assert user.text == "go"
    assert answer.text.startswith("kept ")
    assert len(answer.text.encode()) <= 100
