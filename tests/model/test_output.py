"""`chat(..., output=Type)`: the answer in a form, read into a value; one correction, no more."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import msgspec
import pydantic
import pytest
from tests._event_grammar import check_events
from tests._recording import Crash, Model, ask, live
from typing_extensions import TypedDict

from hookline import (
    Agent,
    Approve,
    Ask,
    Continue,
    Conversation,
    Limits,
    ModelResponse,
    Stop,
    check_history,
    tool,
)
from hookline.errors import ChatAbortedError, OutputError, UsageError
from hookline.events import ChatDone, ChatFailed, StepStarted, read_event
from hookline.testing import ScriptedModel, call, collect, record


@dataclass
class City:
    """A place."""

    name: str
    people: Annotated[int, msgspec.Meta(ge=0)] = 0


class Trip(pydantic.BaseModel):
    cities: list[str] = pydantic.Field(min_length=1)
    note: str | None = None


class Tree(msgspec.Struct):
    name: str
    branches: list[Tree] = []


class Plain(TypedDict):
    a: int


GOOD = '{"name": "Oslo", "people": 7}'
BAD = '{"name": 3, "people": -1}'


async def read(kind: Any, *answers: str) -> Any:
    with ScriptedModel(*answers) as model:
        response = await Agent(model).chat("Tell.", output=kind)
    assert response.steps == len(answers)
    return response.output


# ── what it gives ───────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (City, GOOD, City("Oslo", 7)),
        (City, '{"name": "Oslo"}', City("Oslo")),
        (Trip, '{"cities": ["Oslo"]}', Trip(cities=["Oslo"])),
        (Tree, '{"name": "a", "branches": [{"name": "b"}]}', Tree("a", [Tree("b")])),
        (Plain, '{"a": 1}', {"a": 1}),
        (dict[str, int], '{"x": 1}', {"x": 1}),
        (list[City], '{"value": [{"name": "Oslo"}]}', [City("Oslo")]),
        (list[Trip], '{"value": [{"cities": ["Oslo"]}]}', [Trip(cities=["Oslo"])]),
        (Literal["yes", "no"], '{"value": "yes"}', "yes"),
        (int, '{"value": 42}', 42),
        (City | None, '{"value": null}', None),
    ],
    ids=str,
)
async def test_the_answer_becomes_a_value_of_the_type(kind: Any, text: str, value: Any) -> None:
    assert await read(kind, text) == value


async def test_a_value_without_a_type_of_its_own_may_be_changed() -> None:
    value = await read(dict[str, Any], '{"a": [{}]}')
    value["a"][0]["b"] = 2
    assert value == {"a": [{"b": 2}]}


async def test_the_model_is_given_the_schema_at_every_step() -> None:
    with ScriptedModel(call("look"), GOOD) as model:

        @tool
        async def look() -> str:
            return "seen"

        response = await Agent(model, tools=[look]).chat("Tell.", output=City)
    assert response.output == City("Oslo", 7)
    for request in model.requests:
        assert request.output is not None
        assert request.output.name == "City"
        assert request.output.schema["properties"]["people"]["minimum"] == 0
        assert request.output.schema["required"] == ["name"]
    msgspec.json.encode(model.last_request.output)


async def test_without_output_there_is_no_form() -> None:
    with ScriptedModel("Hello.") as model:
        response = await Agent(model).chat("Hi.")
    assert response.output is None
    assert model.last_request.output is None


@pytest.mark.parametrize("kind", [Tree, list[Tree], Trip], ids=str)
async def test_each_reference_of_the_schema_leads_somewhere(kind: Any) -> None:
    model = ScriptedModel('{"name": "a"}', '{"value": []}')
    with suppress(OutputError):
        await Agent(model).chat("Tell.", output=kind)
    assert model.last_request.output is not None
    schema = model.last_request.output.schema
    assert schema["type"] == "object"
    for ref in set(_refs(schema)):
        assert ref.removeprefix("#/$defs/") in schema["$defs"]


def _refs(data: Any) -> Any:
    if isinstance(data, dict):
        yield from ([data["$ref"]] if isinstance(data.get("$ref"), str) else [])
        for each in data.values():
            yield from _refs(each)
    elif isinstance(data, list):
        for each in data:
            yield from _refs(each)


def test_a_type_that_json_knows_not_is_refused_at_once() -> None:
    class Strange:
        pass

    agent = Agent(ScriptedModel())
    with pytest.raises(UsageError, match="Strange"):
        agent.chat_stream("Tell.", output=Strange)
    with pytest.raises(UsageError, match="pydantic"):
        agent.chat_stream("Tell.", output=Annotated[int, pydantic.Field(ge=1)])


async def test_the_events_carry_the_value_as_json() -> None:
    with ScriptedModel('{"cities": ["Oslo"], "note": "n"}') as model:
        stream = Agent(model).chat_stream("Tell.", output=Trip)
        events = await collect(stream)
    check_events(events)
    assert stream.response.output == Trip(cities=["Oslo"], note="n")
    done = read_event(events[-1].to_json())
    assert isinstance(done, ChatDone)
    assert done.response.output == {"cities": ["Oslo"], "note": "n"}


# ── an answer that does not fit ─────────────────────────────────────────────────────────────


async def test_a_failing_answer_is_one_more_step_that_tells_every_issue() -> None:
    conversation = Conversation()
    with ScriptedModel(BAD, GOOD) as model:
        agent = Agent(model)
        with record(agent, points=["preMessage", "onMessage", "preRequest", "onStep"]) as recorder:
            stream = agent.chat_stream("Tell.", output=City, conversation=conversation)
            events = await collect(stream)
    check_events(events)
    response = stream.response
    assert (response.output, response.text, response.steps) == (City("Oslo", 7), GOOD, 2)
    assert [m.role for m in conversation.messages] == ["user", "assistant", "user", "assistant"]
    told = conversation.messages[2].text
    assert "City" in told
    assert "name" in told
    assert "people" in told
    assert [event.iteration for event in events if isinstance(event, StepStarted)] == [0, 1]
    assert [line.split()[0] for line in recorder.lines] == [
        *("preMessage", "onMessage", "preRequest", "preMessage", "onMessage", "onStep"),
        *("preMessage", "onMessage", "preRequest", "preMessage", "onMessage", "onStep"),
    ]
    assert response.usage.output_tokens == sum(
        message.usage.output_tokens for message in response.messages if message.role == "assistant"
    )


@pytest.mark.parametrize("second", [BAD, "no JSON", "", '["Oslo"]', '{"name": "a"} or so'])
async def test_a_second_failure_is_an_error(second: str) -> None:
    conversation = Conversation()
    with ScriptedModel("Sure!", second) as model:
        agent = Agent(model)
        with record(agent, points=["onChatError", "onChatDone", "onChatEnd"]) as recorder:
            stream = agent.chat_stream("Tell.", output=City, conversation=conversation)
            with pytest.raises(OutputError) as caught:
                await collect(stream)
    assert caught.value.text == second
    assert caught.value.issues
    assert caught.value.type_name == "City"
    assert recorder.lines[-1].startswith("onChatEnd error")
    assert len(recorder.lines) == 2
    check_history(conversation.messages)


async def test_the_error_ends_the_stream_with_chat_failed() -> None:
    events = []
    stream = Agent(ScriptedModel("a", "b")).chat_stream("Tell.", output=int)
    with pytest.raises(OutputError):  # noqa: PT012 - the events before it are looked at
        async for event in stream:
            events.append(event)
    check_events(events)
    assert isinstance(events[-1], ChatFailed)
    assert events[-1].error.type == "OutputError"


async def test_the_extra_step_counts_against_the_limit_of_steps() -> None:
    with ScriptedModel(BAD) as model, pytest.raises(OutputError):
        await Agent(model, limits=Limits(steps=1)).chat("Tell.", output=City)


async def test_tools_may_be_called_while_the_answer_is_corrected() -> None:
    @tool
    async def look() -> str:
        return "Oslo"

    with ScriptedModel("Hm.", call("look"), GOOD) as model:
        response = await Agent(model, tools=[look]).chat("Tell.", output=City)
    assert (response.output, response.steps) == (City("Oslo", 7), 3)


async def test_a_wrapped_answer_must_be_the_one_field() -> None:
    assert await read(int, '{"number": 1}', '{"value": 1}') == 1
    assert await read(int, '{"value": 1, "more": 2}', '{"value": 1}') == 1


async def test_nothing_is_coerced() -> None:
    with pytest.raises(OutputError):
        await read(int, '{"value": "1"}', '{"value": 1.5}')
    with pytest.raises(OutputError):
        await read(Trip, '{"cities": "Oslo"}', '{"cities": []}')


# ── hooks ───────────────────────────────────────────────────────────────────────────────────


async def test_hooks_mend_the_answer_before_it_is_read() -> None:
    with ScriptedModel(f"```json\n{GOOD}\n```") as model:
        agent = Agent(model)

        @agent.hook("onResponse")
        def unfence(ctx) -> ModelResponse:
            return ctx.response.replace(text=ctx.response.text.strip("`\n").removeprefix("json"))

        response = await agent.chat("Tell.", output=City)
    assert response.output == City("Oslo", 7)


async def test_an_answer_that_a_hook_gives_is_read_too() -> None:
    agent = Agent(ScriptedModel())
    agent.add_hook("preRequest", lambda ctx: ModelResponse.of(GOOD))
    assert (await agent.chat("Tell.", output=City)).output == City("Oslo", 7)


async def test_a_hook_may_take_the_form_out_of_a_request() -> None:
    with ScriptedModel(GOOD) as model:
        agent = Agent(model)
        agent.add_hook("preRequest", lambda ctx: ctx.request.replace(output=None))
        response = await agent.chat("Tell.", output=City)
    assert model.last_request.output is None
    assert response.output == City("Oslo", 7)


async def test_a_stop_needs_no_output() -> None:
    agent = Agent(ScriptedModel())
    agent.add_hook("preRequest", lambda ctx: Stop("enough", "Bye."))
    response = await agent.chat("Tell.", output=City)
    assert (response.stop_reason, response.text, response.output) == ("enough", "Bye.", None)


async def test_pre_stop_sees_the_value_and_what_it_prolongs_is_read_anew() -> None:
    seen: list[Any] = []
    other = '{"name": "Rome"}'
    with ScriptedModel(GOOD, other) as model:
        agent = Agent(model)

        @agent.hook("preStop")
        def again(ctx) -> Continue | None:
            seen.append(ctx.response.output)
            return Continue("Another one.") if len(seen) == 1 else None

        response = await agent.chat("Tell.", output=City)
    assert seen == [City("Oslo", 7), City("Rome")]
    assert response.output == City("Rome")


async def test_a_step_that_waits_has_no_output_of_the_answer_before() -> None:
    @tool
    async def pay() -> str:
        """Pay."""
        return "paid"

    agent = Agent(ScriptedModel(GOOD, call("pay")), tools=[pay])
    agent.add_hook("preStop", lambda ctx: Continue("Another one."))
    agent.add_hook("preToolCall", lambda ctx: Ask("may I?"))
    response = await agent.chat("Tell.", output=City, conversation=Conversation())
    assert (response.stop_reason, response.output) == ("approval", None)


async def test_after_an_answer_that_does_not_fit_there_is_no_output_of_one_before() -> None:
    @tool
    async def pay() -> str:
        """Pay."""
        return "paid"

    agent = Agent(ScriptedModel(GOOD, "It is in Italy.", call("pay")), tools=[pay])
    agent.add_hook("preStop", lambda ctx: Continue("Another one."))
    agent.add_hook("preToolCall", lambda ctx: Ask("may I?"))
    response = await agent.chat("Tell.", output=City, conversation=Conversation())
    assert (response.stop_reason, response.output) == ("approval", None)


async def test_there_is_one_correction_for_the_whole_chat() -> None:
    with ScriptedModel("a", GOOD, "b") as model:
        agent = Agent(model)
        agent.add_hook("preStop", lambda ctx: Continue("Another one."))
        with pytest.raises(OutputError):
            await agent.chat("Tell.", output=City)


async def test_an_abort_while_the_correction_is_committed() -> None:
    with ScriptedModel("a") as model:
        agent = Agent(model)

        @agent.hook("onMessage")
        def stop(ctx) -> None:
            if ctx.message.role == "user" and len(ctx.run.history) > 1:
                ctx.run.abort("enough")

        with pytest.raises(ChatAbortedError):
            await agent.chat("Tell.", output=City)


async def test_a_resumed_chat_has_an_output_too() -> None:
    @tool
    async def look() -> str:
        return "Oslo"

    talk = Conversation()
    with ScriptedModel(call("look"), "Hm.", GOOD) as model:
        agent = Agent(model, tools=[look])
        agent.add_hook("preToolCall", lambda ctx: Ask("May I?"))
        waits = await agent.chat("Tell.", conversation=talk, output=City)
        assert (waits.stop_reason, waits.output) == ("approval", None)
        answers = {each.id: Approve() for each in waits.pending}
        response = await agent.resume(talk, answers, output=City)
    assert response.output == City("Oslo", 7)


async def test_two_chats_of_one_agent_have_their_own_forms() -> None:
    with ScriptedModel('{"value": 1}', "Plain.", GOOD) as model:
        agent = Agent(model)
        assert (await agent.chat("A number.", output=int)).output == 1
        assert (await agent.chat("Hi.")).output is None
        assert (await agent.chat("A city.", output=City)).output == City("Oslo", 7)


def test_the_schema_is_the_same_at_every_time() -> None:
    """Providers keep what they make of a schema, by its text."""
    texts = set()
    for _ in range(2):
        model = ScriptedModel(GOOD)
        asyncio.run(Agent(model).chat("Tell.", output=City))
        assert model.last_request.output is not None
        texts.add(json.dumps(model.last_request.output.schema))
    assert len(texts) == 1


# ── a chat that is played again ─────────────────────────────────────────────────────────────


def corrected(runtime: Any, note: Any) -> Any:
    """A scene: an answer that does not fit, its correction, and one that does."""
    return Agent(Model(note, ["Hm."], [GOOD]), runtime=runtime), ask("Tell.", output=City)


async def test_a_chat_goes_on_from_every_step_to_the_same_output() -> None:
    whole = await live(corrected)
    assert whole.response.output == City("Oslo", 7)
    for limit in range(1, len(whole.journal)):
        first = await live(corrected, limit=limit)
        assert isinstance(first.error, Crash)
        second = await live(corrected, first.journal)
        assert second.response == whole.response
        assert second.history == whole.history
        assert set(second.runtime.given).isdisjoint(second.runtime.ran)


async def test_a_request_that_is_read_back_has_its_form() -> None:
    forms: list[Any] = []

    def scene(runtime: Any, note: Any) -> Any:
        model = Model(note, [GOOD])
        forms.append(model)
        return Agent(model, runtime=runtime), ask("Tell.", output=City)

    await live(scene, reread=True)
    assert forms[0].requests[0].output.name == "City"


async def test_validators_without_an_output_check_the_text() -> None:
    def short(text: str) -> None:
        if len(text) > 5:
            raise ValueError("at most 5 letters")

    model = ScriptedModel("A long answer.", "Short")
    response = await Agent(model, output_validators=[short]).chat("Tell.")
    assert (response.text, response.output) == ("Short", None)
    asked = model.requests[1].messages[-1].text
    assert asked == "Your answer was not accepted:\n- at most 5 letters\nAnswer again, corrected."
    with pytest.raises(OutputError, match="at most 5 letters"):
        await Agent(ScriptedModel("Far too long.")).chat(
            "Tell.", output_validators=[short], output_retries=0
        )
