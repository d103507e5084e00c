"""What every model must do alike: each adapter through its real SDK, and the scripted model."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import pytest
from tests._event_grammar import check_events
from tests._wires import KINDS, backend

from hookline import (
    Agent,
    Conversation,
    File,
    Image,
    Reasoning,
    Settings,
    Text,
    ToolCall,
    ToolResult,
    Usage,
    check_history,
    tool,
)
from hookline.errors import ChatAbortedError, ModelError
from hookline.events import ChatDone, PartEnd, ReasoningDelta, TextDelta, ToolCallDelta
from hookline.testing import (
    Turn,
    call,
    collect,
    text_of_events,
    validate_request,
)

pytestmark = [pytest.mark.usefixtures("no_leaks"), pytest.mark.parametrize("kind", KINDS)]

PNG = bytes.fromhex("89504e470d0a1a0a")


@tool
async def weather(city: str) -> str:
    """The weather in a city."""
    return f"sunny in {city}"


@pytest.mark.slow
async def test_text_in_many_alphabets_is_shown_as_it_is_stored(kind: str) -> None:
    text = 'Grüße, 世界 👩‍👩‍👧 – a\u2028b\n```\n\t"quoted"\\'
    async with backend(kind, text) as model:
        stream = Agent(model).chat_stream("Hi.")
        events = await collect(stream)
    check_events(events)
    assert text_of_events(events) == stream.response.text == text
    assert sum(isinstance(event, TextDelta) for event in events) >= 1


async def test_a_conversation_goes_on_and_each_request_is_valid(kind: str) -> None:
    talk = Conversation()
    async with backend(kind, "Hello, Ada.", "You are Ada.") as model:
        agent = Agent(model, system="Be brief.")
        agent.add_hook("aroundRequest", _validating)
        await agent.chat("I am Ada.", conversation=talk)
        response = await agent.chat("Who am I?", conversation=talk)
    assert response.text == "You are Ada."
    assert [message.role for message in talk.messages] == ["user", "assistant"] * 2
    check_history(talk.messages)


async def _validating(ctx, proceed):
    validate_request(ctx.request)
    return await proceed()


async def test_reasoning_comes_apart_from_the_text(kind: str) -> None:
    turn = Turn(reasoning="She asks for a hat.", text="Take one.")
    async with backend(kind, turn) as model:
        stream = Agent(model).chat_stream("A hat?")
        events = await collect(stream)
    check_events(events)
    assert stream.response.reasoning == "She asks for a hat."
    assert stream.response.text == "Take one."
    kinds = [type(event) for event in events]
    assert kinds.index(ReasoningDelta) < kinds.index(PartEnd) < kinds.index(TextDelta)


async def test_one_tool_call_and_its_result(kind: str) -> None:
    turns = (["Let me see. ", call("weather", city="Oslo")], "It is sunny.")
    async with backend(kind, *turns) as model:
        stream = Agent(model, tools=[weather]).chat_stream("How is Oslo?")
        events = await collect(stream)
    check_events(events)
    deltas = [event for event in events if isinstance(event, ToolCallDelta)]
    assert "".join(delta.arguments for delta in deltas).replace(" ", "") == '{"city":"Oslo"}'
    _, answer, result, last = stream.response.messages
    assert answer.finish_reason == "tool_calls"
    assert (result.text, result.outcome) == ("sunny in Oslo", "ok")
    assert last.text == "It is sunny."


async def test_parallel_calls_keep_their_order_and_their_arguments(kind: str) -> None:
    cities = ["Oslo", "Köln", "東京"]
    calls = [call("weather", city=city) for city in cities]
    async with backend(kind, calls, "All sunny.") as model:
        response = await Agent(model, tools=[weather]).chat("And there?")
    answer = response.messages[1]
    assert [each.arguments["city"] for each in answer.tool_calls] == cities
    assert len({each.id for each in answer.tool_calls}) == 3
    results = [message for message in response.messages if message.role == "tool"]
    assert [each.text for each in results] == [f"sunny in {city}" for city in cities]
    assert [each.call_id for each in results] == [each.id for each in answer.tool_calls]


async def test_a_call_without_arguments(kind: str) -> None:
    async def now() -> str:
        return "noon"

    async with backend(kind, call("now"), "It is noon.") as model:
        response = await Agent(model, tools=[now]).chat("The time?")
    assert response.messages[1].tool_calls[0].arguments == {}
    assert response.messages[2].text == "noon"


async def test_failing_unknown_and_misused_tools_are_told_to_the_model(kind: str) -> None:
    async def broken() -> str:
        raise ValueError("no luck")

    calls = [call("broken"), call("nowhere", x=1), call("weather", town="Oslo")]
    async with backend(kind, calls, "I am sorry.") as model:
        response = await Agent(model, tools=[broken, weather]).chat("Try.")
    results = [message for message in response.messages if message.role == "tool"]
    assert [each.outcome for each in results] == ["error"] * 3
    assert "no luck" in results[0].text
    assert response.text == "I am sorry."


async def test_images_and_files_go_in_and_come_back_from_tools(kind: str) -> None:
    @tool
    async def draw() -> ToolResult:
        return ToolResult("drawn", media=(Image(data=PNG),))

    parts = [
        Text("Like this one:"),
        Image(data=PNG),
        Image(url="https://example.org/hat.png"),
        File(media_type="application/pdf", name="hats.pdf", data=b"%PDF-1.7"),
    ]
    async with backend(kind, call("draw"), "As you wished.") as model:
        response = await Agent(model, tools=[draw]).chat(parts)
    assert response.text == "As you wished."
    assert response.messages[2].media == (Image(data=PNG),)


async def test_usage_is_counted_with_what_was_cached_and_reasoned(kind: str) -> None:
    one = Usage(input_tokens=100, output_tokens=40, cache_read_tokens=60, reasoning_tokens=25)
    two = Usage(input_tokens=7, output_tokens=3)
    turns = (
        Turn(reasoning="Hm.", tool_calls=[call("weather", city="Oslo")], usage=one),
        Turn(text="Sunny.", usage=two),
    )
    async with backend(kind, *turns) as model:
        stream = Agent(model, tools=[weather]).chat_stream("Oslo?")
        events = await collect(stream)
    assert stream.response.usage == one + two
    assert [m.usage for m in stream.response.messages if m.role == "assistant"] == [one, two]
    assert isinstance(events[-1], ChatDone)


async def test_the_answer_says_which_model_gave_it(kind: str) -> None:
    async with backend(kind, "Me.") as model:
        response = await Agent(model).chat("Who?")
        named = "scripted" if kind == "scripted" else "wire-model"
    assert response.messages[-1].model == named


@pytest.mark.parametrize("reason", ["length", "refusal", "other"])
async def test_why_an_answer_ended(kind: str, reason: str) -> None:
    async with backend(kind, Turn(text="Once upon", finish_reason=reason)) as model:
        response = await Agent(model).chat("A tale.")
    assert (response.text, response.finish_reason) == ("Once upon", reason)


async def test_an_answer_that_says_nothing_is_not_written(kind: str) -> None:
    async with backend(kind, "") as model:
        response = await Agent(model).chat("Hush.")
    assert [message.role for message in response.messages] == ["user"]


async def test_settings_reach_every_model(kind: str) -> None:
    settings = Settings(temperature=0.5, top_p=0.9, max_tokens=99, tool_choice="required")
    async with backend(kind, call("weather", city="Oslo"), "Sunny.") as model:
        response = await Agent(model, tools=[weather], settings=settings).chat("Oslo?")
    assert response.text == "Sunny."


async def test_an_abort_keeps_what_was_shown_and_closes_the_model(kind: str) -> None:
    turn = Turn(text="One. Two. Three. Four. Five.")
    conversation = Conversation()
    async with backend(kind, turn) as model:
        agent = Agent(model)

        def enough(ctx) -> None:
            ctx.run.abort("enough")

        agent.add_hook("onDelta", enough)
        with pytest.raises(ChatAbortedError):
            await agent.chat("Count.", conversation=conversation)
    check_history(conversation.messages)
    assert conversation.messages[0].text == "Count."


async def test_a_reader_that_leaves_closes_the_model(kind: str) -> None:
    async with (
        backend(kind, Turn(text="One. Two. Three. Four. Five.")) as model,
        Agent(model).chat_stream("Count.") as stream,
    ):
        async for event in stream:
            if isinstance(event, TextDelta):
                break
    assert [task for task in asyncio.all_tasks() if "Supervisor" in repr(task)] == []


async def test_a_failing_model_is_a_model_error_and_the_user_message_stays(kind: str) -> None:
    conversation = Conversation()
    turn = Turn(text="Half an ans", no_finish=True)
    async with backend(kind, turn) as model:
        with pytest.raises(ModelError):
            await Agent(model).chat("Hi.", conversation=conversation)
    check_history(conversation.messages)
    assert conversation.messages[0].text == "Hi."


async def test_many_chats_at_once_do_not_mix(kind: str) -> None:
    async with backend(kind, *[f"Answer {n}." for n in range(10)]) as model:
        agent = Agent(model)
        responses = await asyncio.gather(*(agent.chat(f"Question {n}.") for n in range(10)))
    assert sorted(r.text for r in responses) == [f"Answer {n}." for n in range(10)]


@dataclass
class City:
    name: str
    people: int


async def test_structured_output_and_its_one_correction(kind: str) -> None:
    turns = (call("weather", city="Oslo"), '{"name": "Oslo"}', '{"name": "Oslo", "people": 7}')
    async with backend(kind, *turns) as model:
        response = await Agent(model, tools=[weather]).chat("Which city?", output=City)
    assert response.output == City("Oslo", 7)
    assert response.steps == 3


async def test_reasoning_and_calls_are_parts_in_their_order(kind: str) -> None:
    turn = Turn(reasoning="Look.", text="I look.", tool_calls=[call("weather", city="Oslo")])
    async with backend(kind, turn, "Sunny.") as model:
        response = await Agent(model, tools=[weather]).chat("Oslo?")
    kinds = [type(part) for part in response.messages[1].parts]
    assert kinds == [Reasoning, Text, ToolCall]
