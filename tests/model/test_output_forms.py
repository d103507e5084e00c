"""Structured answers: an agent's type, unions, fences, corrections, validators, partial objects."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from typing import Any, Literal

import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests._recording import Crash, Model, ask, live

from hookline import Agent, Conversation, Limits, ModelRequest, ModelResponse, Run, Stop, tool
from hookline._base.json import to_json_data
from hookline._model.partial import NOTHING, partial_object
from hookline.errors import MaxStepsError, ModelError, OutputError, UsageError
from hookline.hooks import fallback
from hookline.testing import ScriptedModel, Turn, call, collect


@dataclass
class City:
    name: str
    people: int = 0


class Trip(pydantic.BaseModel):
    cities: list[str]


class Note(msgspec.Struct):
    text: str


class Tagged(pydantic.BaseModel):
    kind: Literal["tag"] = "tag"
    n: int


class Other(pydantic.BaseModel):
    kind: Literal["other"]
    n: int


@dataclass
class Kinded:
    kind: str
    n: int


class One(msgspec.Struct, tag=True):
    n: int


class Two(msgspec.Struct, tag=True):
    n: int


GOOD = '{"name": "Oslo", "people": 7}'
OSLO = City("Oslo", 7)


async def read(kind: Any, *answers: str, **options: Any) -> Any:
    with ScriptedModel(*answers) as model:
        return (await Agent(model).chat("Tell.", output=kind, **options)).output


# ── the agent's own type ────────────────────────────────────────────────────────────────────


async def test_an_agent_has_a_type_of_its_own() -> None:
    with ScriptedModel(GOOD, GOOD) as model:
        agent = Agent(model, output=City)
        assert (await agent.chat("Tell.")).output == City("Oslo", 7)
        async with agent.chat_stream("Tell.") as stream:
            async for _ in stream:
                pass
        assert stream.response.output == City("Oslo", 7)
    assert model.last_request.output is not None


async def test_a_chat_has_another_type_than_its_agent() -> None:
    with ScriptedModel('{"value": 3}', GOOD) as model:
        agent = Agent(model, output=City)
        assert (await agent.chat("Tell.", output=int)).output == 3
        assert (await agent.chat("Tell.")).output == City("Oslo", 7)


async def test_str_switches_the_type_of_the_agent_off() -> None:
    with ScriptedModel("Plain.") as model:
        response = await Agent(model, output=City).chat("Tell.", output=str)
    assert (response.output, response.text) == ("Plain.", "Plain.")
    assert model.last_request.output is None


async def test_a_type_that_cannot_be_described_is_refused_where_the_agent_is_made() -> None:
    class Strange: ...

    with pytest.raises(UsageError, match="Strange"):
        Agent(ScriptedModel(), output=Strange)


async def test_a_stopped_chat_has_no_output() -> None:
    agent = Agent(ScriptedModel(GOOD), output=City)
    agent.add_hook("onStep", lambda ctx: Stop("enough", "Bye."))
    response = await agent.chat("Tell.")
    assert (response.text, response.output) in [("Bye.", None), (GOOD, City("Oslo", 7))]


async def test_an_agent_as_a_tool_gives_its_output_as_json() -> None:
    child = Agent(ScriptedModel(GOOD), name="child", output=City)
    model = ScriptedModel(call("child", input="x"), "ok")
    response = await Agent(model, tools=[child.as_tool()]).chat("hi")
    assert json.loads(response.tool_results[0].text) == {"name": "Oslo", "people": 7}


async def test_a_stopped_agent_as_a_tool_gives_its_text() -> None:
    child = Agent(ScriptedModel(), name="child", output=City)
    child.add_hook("preRequest", lambda ctx: Stop("enough", "Bye."))
    model = ScriptedModel(call("child", input="x"), "ok")
    response = await Agent(model, tools=[child.as_tool()]).chat("hi")
    assert response.tool_results[0].text == "Bye."


# ── unions ──────────────────────────────────────────────────────────────────────────────────


UNIONS = pytest.mark.parametrize(
    ("kind", "value", "output"),
    [
        pytest.param(City | Trip, {"kind": "City", "name": "a"}, City("a"), id="dataclass"),
        pytest.param(
            City | Trip, {"kind": "Trip", "cities": ["a"]}, Trip(cities=["a"]), id="pydantic"
        ),
        pytest.param(City | Trip | Note, {"kind": "Note", "text": "t"}, Note("t"), id="struct"),
        pytest.param(City | Note | None, None, None, id="or nothing"),
        pytest.param(City | Note | str, "text", "text", id="or a text"),
        pytest.param(City | Note | list[int], [1], [1], id="or a list"),
        pytest.param(Tagged | Other, {"kind": "tag", "n": 1}, Tagged(n=1), id="a kind of its own"),
        pytest.param(City | Tagged, {"kind": "City", "name": "a"}, City("a"), id="mixed"),
        pytest.param(One | Two, {"type": "Two", "n": 1}, Two(1), id="msgspec's tags"),
        pytest.param(
            list[City | Note],
            [{"kind": "Note", "text": "t"}, {"kind": "City", "name": "a"}],
            [Note("t"), City("a")],
            id="a list of them",
        ),
    ],
)


@UNIONS
async def test_a_union_is_told_apart_by_its_kinds(kind: Any, value: Any, output: Any) -> None:
    assert await read(kind, json.dumps({"value": value})) == output


async def test_the_schema_of_a_union_has_a_constant_kind_in_each_member() -> None:
    model = ScriptedModel('{"value": {"kind": "City", "name": "a"}}')
    await Agent(model).chat("Tell.", output=City | Trip | None)
    assert model.last_request.output is not None
    assert model.last_request.output.name == "City_or_Trip"
    schema = model.last_request.output.schema
    assert schema["required"] == ["value"]
    arms = schema["properties"]["value"]["anyOf"]
    kinds = [arm["properties"]["kind"]["enum"] for arm in arms if "properties" in arm]
    assert kinds == [["City"], ["Trip"]]
    assert [arm["required"][0] for arm in arms if "required" in arm] == ["kind", "kind"]
    assert [arm for arm in arms if "properties" not in arm] == [{"type": "null"}]


@pytest.mark.parametrize(
    ("value", "issue"),
    [
        pytest.param({"name": "a"}, 'value.kind: must be one of "City", "Trip"', id="no kind"),
        pytest.param({"kind": "Town"}, "value.kind: must be one of", id="an unknown kind"),
        pytest.param({"kind": ["City"]}, "value.kind: must be one of", id="a kind of a wrong type"),
        pytest.param(3, "value: must be an object", id="no object"),
        pytest.param({"kind": "City"}, "value.name: missing, but required", id="a field"),
    ],
)
async def test_what_does_not_fit_a_union_is_told_to_the_model(value: Any, issue: str) -> None:
    good = json.dumps({"value": {"kind": "City", "name": "a"}})
    with ScriptedModel(json.dumps({"value": value}), good) as model:
        await Agent(model).chat("Tell.", output=City | Trip)
    assert issue in model.last_request.messages[-1].text


async def test_every_item_of_a_list_of_unions_is_told() -> None:
    with pytest.raises(OutputError) as caught:
        await read(list[City | Note], '{"value": [{}, {"kind": "City"}]}', output_retries=0)
    assert [issue.partition(":")[0] for issue in caught.value.issues] == [
        "value[0].kind",
        "value[1].name",
    ]


def _same_name() -> Any:
    @dataclass
    class City:
        n: int

    return City


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        pytest.param(City | _same_name(), "two members are named 'City'", id="one name"),
        pytest.param(City | Kinded, "Kinded has its own field 'kind'", id="a field"),
        pytest.param(City | Note | dict[str, int], "may also be an object", id="a dict"),
        pytest.param(City | Note | Any, "may also be an object", id="anything"),
    ],
)
def test_a_union_that_cannot_be_told_apart_is_refused(kind: Any, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        Agent(ScriptedModel(), output=kind)


class Worded:
    """A model that knows nothing of schemas."""

    def __init__(self, *answers: str) -> None:
        self.scripted = ScriptedModel(*answers)

    def stream(self, request: ModelRequest, /) -> Any:
        return self.scripted.stream(request)


async def test_a_model_without_a_mode_for_schemas_is_asked_in_words() -> None:
    model = Worded("Oslo.", GOOD)
    agent = Agent(model, system="Be brief.", output=City)
    seen: list[ModelRequest] = []
    agent.add_hook("preRequest", lambda ctx: seen.append(ctx.request))
    response = await agent.chat("Tell.")
    assert (response.output, response.steps) == (OSLO, 2)
    for request, sent in zip(seen, model.scripted.requests, strict=True):
        assert request.system == "Be brief."
        assert request.output is not None
        assert sent.output is None
        assert sent.system is not None
        assert sent.system.startswith("Be brief.\n\nAnswer with one JSON object")
        assert json.loads(sent.system.rpartition("schema:\n")[2]) == request.output.schema
        assert sent.prompted() is sent


async def test_a_model_is_asked_in_words_without_a_system_text_too() -> None:
    model = Worded(GOOD)
    assert (await Agent(model, output=City).chat("Tell.")).output == OSLO
    assert model.scripted.last_request.system.startswith("Answer with one JSON object")


async def test_how_the_form_is_asked_for_is_decided_by_the_model_that_is_called() -> None:
    worded, knows = Worded(GOOD), ScriptedModel(ModelError("down"), GOOD)
    agent = Agent(knows, output=City, hooks=[fallback(worded)])
    assert (await agent.chat("Tell.")).output == OSLO
    assert (await agent.chat("Tell.")).output == OSLO
    assert [request.output is None for request in knows.requests] == [False, False]
    assert [request.output is None for request in worded.scripted.requests] == [True]


async def test_no_words_are_added_where_no_form_is_asked_for() -> None:
    model = Worded("Hello.", "Hello.")
    await Agent(model).chat("Hi.")
    await Agent(model, output=str).chat("Hi.")
    assert [request.system for request in model.scripted.requests] == [None, None]


# ── fenced answers ──────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "text",
    [
        f"```json\n{GOOD}\n```",
        f"```\n{GOOD}```",
        f"\n\n```JSON \n{GOOD}\n  ```\n",
        f"Here it is:\n```json\n{GOOD}\n```\nAnything else?",
    ],
    ids=["json", "bare", "blank lines", "with words around"],
)
async def test_a_fenced_answer_costs_no_correction(text: str) -> None:
    assert await read(City, text, output_retries=0) == City("Oslo", 7)


@pytest.mark.parametrize(
    "text",
    [
        f"{GOOD} or so",
        f"```json\n{GOOD}\n```\n```json\n{GOOD}\n```",
        "```json\n{]\n```",
        "```\n```",
    ],
    ids=["words", "two blocks", "broken", "empty"],
)
async def test_nothing_else_is_repaired(text: str) -> None:
    with pytest.raises(OutputError):
        await read(City, text, output_retries=0)


# ── corrections ─────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("retries", [0, 1, 3])
async def test_the_model_is_asked_as_often_as_it_may_correct_itself(retries: int) -> None:
    model = ScriptedModel(*["no"] * (retries + 1))
    with model, pytest.raises(OutputError):
        await Agent(model, output=City, output_retries=retries).chat("Tell.")
    with ScriptedModel(*["no"] * retries, GOOD) as model:
        response = await Agent(model).chat("Tell.", output=City, output_retries=retries)
    assert (response.output, response.steps) == (City("Oslo", 7), retries + 1)


async def test_a_correction_is_a_step() -> None:
    model = ScriptedModel("no", "no")
    with pytest.raises((OutputError, MaxStepsError)):
        await Agent(model, output=City, output_retries=9, limits=Limits(steps=2)).chat("Tell.")
    assert len(model.requests) == 2


async def test_fewer_than_no_correction_is_refused() -> None:
    with pytest.raises(UsageError, match="output_retries=-1"):
        Agent(ScriptedModel(), output_retries=-1)
    with pytest.raises(UsageError, match="output_retries=-1"):
        await Agent(ScriptedModel()).chat("hi", output_retries=-1)


# ── validators ──────────────────────────────────────────────────────────────────────────────


def real(city: City) -> None:
    if city.name == "Atlantis":
        raise ValueError("Atlantis is not a city; name one that exists")


async def populated(city: City, run: Run[int]) -> None:
    await asyncio.sleep(0)
    if city.people < run.deps:
        raise ValueError(f"it must have {run.deps} people at least")


async def test_a_validator_tells_the_model_why() -> None:
    with ScriptedModel('{"name": "Atlantis"}', GOOD) as model:
        agent = Agent[int, City](model, output=City, output_validators=[real, populated])
        response = await agent.chat("Tell.", deps=5)
    assert (response.output, response.steps) == (City("Oslo", 7), 2)
    told = model.last_request.messages[-1].text
    assert "Atlantis is not a city" in told
    assert "it must have 5 people at least" in told


async def test_an_answer_that_no_validator_takes_is_an_error() -> None:
    conversation = Conversation()
    with pytest.raises(OutputError, match="Atlantis is not a city") as caught:
        await Agent(ScriptedModel('{"name": "Atlantis"}')).chat(
            "Tell.",
            output=City,
            output_validators=[real],
            output_retries=0,
            conversation=conversation,
        )
    assert caught.value.text == '{"name": "Atlantis"}'
    assert [each.role for each in conversation.messages] == ["user", "assistant"]


@pytest.mark.parametrize("error", [KeyError("x"), RuntimeError("broken")], ids=repr)
async def test_any_other_exception_of_a_validator_ends_the_chat_as_itself(
    error: Exception,
) -> None:
    def broken(city: City) -> None:
        raise error

    with ScriptedModel(GOOD) as model, pytest.raises(type(error)) as caught:
        await Agent(model, output=City, output_validators=[broken]).chat("Tell.")
    assert caught.value is error
    assert error.__notes__ == ["raised by the output validator 'broken'"]


async def test_a_validator_that_cancels_itself_has_failed() -> None:
    def cancelled(city: City) -> None:
        raise asyncio.CancelledError

    agent = Agent(ScriptedModel(GOOD), output=City, output_validators=[cancelled])
    with pytest.raises(UsageError, match="'cancelled' raised CancelledError by itself"):
        await agent.chat("Tell.")


async def test_the_validators_of_an_agent_are_for_its_own_type() -> None:
    with ScriptedModel('{"value": 1}') as model:
        agent = Agent(model, output=City, output_validators=[real])
        assert (await agent.chat("Tell.", output=int)).output == 1


async def test_a_text_is_validated_too() -> None:
    def short(text: str) -> None:
        if len(text) > 5:
            raise ValueError("use five letters at most")

    with ScriptedModel("too long", "short") as model:
        response = await Agent(model, output=str, output_validators=[short]).chat("Tell.")
    assert response.output == "short"


async def test_a_validator_is_not_asked_again_when_a_chat_is_played_again() -> None:
    asked: list[str] = []

    def scene(runtime: Any, note: Any) -> Any:
        def check(city: City) -> None:
            asked.append(city.name)
            real(city)

        model = Model(note, ['{"name": "Atlantis"}'], [GOOD])
        agent = Agent(model, runtime=runtime, output=City, output_validators=[check])
        return agent, ask("Tell.")

    whole = await live(scene)
    assert whole.response.output == City("Oslo", 7)
    assert asked == ["Atlantis", "Oslo"]
    for limit in range(1, len(whole.journal)):
        first = await live(scene, limit=limit)
        assert isinstance(first.error, Crash)
        second = await live(scene, first.journal)
        assert second.response == whole.response
        assert set(second.runtime.given).isdisjoint(second.runtime.ran)


# ── partial objects ─────────────────────────────────────────────────────────────────────────


async def partials(agent: Agent[Any, Any], **options: Any) -> list[Any]:
    async with agent.chat_stream("Tell.", **options) as stream:
        return [part async for part in stream.partial_outputs()]


async def test_the_answer_is_there_as_data_while_it_is_written() -> None:
    agent = Agent(ScriptedModel(GOOD, chunk=4), output=City)
    parts = await partials(agent)
    assert parts[0] == {}
    assert {"name": "Os"} in parts
    assert parts[-1] == {"name": "Oslo", "people": 7}
    assert [part for part in parts if "people" in part] == [parts[-1]]  # a number comes whole


@UNIONS
async def test_the_last_item_is_the_output(kind: Any, value: Any, output: Any) -> None:
    text = json.dumps({"value": value})
    agent = Agent(ScriptedModel(f"```json\n{text}\n```", chunk=3))
    async with agent.chat_stream("Tell.", output=kind) as stream:
        parts = [part async for part in stream.partial_outputs()]
    assert stream.response.output == output
    assert parts[-1] == to_json_data(stream.response.output)
    if kind == City | Trip:
        assert not [part for part in parts if "kind" in part]


async def test_a_correction_begins_the_data_anew() -> None:
    parts = await partials(Agent(ScriptedModel('{"name": 1}', GOOD), output=City))
    assert parts == [{"name": 1}, {"name": "Oslo", "people": 7}]


async def test_the_data_of_a_further_step_begin_anew_though_they_are_the_same() -> None:
    @tool
    async def look() -> str:
        """Look around."""
        return "seen"

    agent = Agent(ScriptedModel([GOOD, call("look")], GOOD), tools=[look], output=City)
    assert await partials(agent) == [{"name": "Oslo", "people": 7}] * 2


async def test_what_is_taken_back_begins_the_data_anew() -> None:
    agent = Agent(ScriptedModel('{"name": "Rome"}'), output=City)
    agent.add_hook("onResponse", lambda ctx: ModelResponse.of('{"name": "Oslo"}'))
    assert await partials(agent) == [{"name": "Rome"}, {"name": "Oslo"}]


async def test_the_text_of_sub_agents_is_no_part_of_it() -> None:
    child = Agent(ScriptedModel('{"name": "Rome"}'), name="child")
    agent = Agent(ScriptedModel(call("child", input="x"), GOOD), tools=[child.as_tool()])
    assert await partials(agent, output=City) == [{"name": "Oslo", "people": 7}]


async def test_a_text_grows() -> None:
    assert await partials(Agent(ScriptedModel("abc", chunk=1)), output=str) == ["a", "ab", "abc"]


async def test_how_the_chat_ends_is_raised() -> None:
    parts: list[Any] = []
    with pytest.raises(OutputError):  # noqa: PT012 - what came before is looked at
        async with Agent(ScriptedModel('{"name": 1}'), output=City).chat_stream(
            "Tell.", output_retries=0
        ) as stream:
            async for part in stream.partial_outputs():
                parts.append(part)
    assert parts == [{"name": 1}]


async def test_without_a_type_there_is_nothing_to_read() -> None:
    stream = Agent(ScriptedModel("hi")).chat_stream("hi")
    with pytest.raises(UsageError, match="pass output="):
        stream.partial_outputs()
    assert await collect(stream)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.floats(-9, 9) | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=8,
)


def begins(part: Any, whole: Any) -> bool:
    """Whether the one may grow into the other."""
    if isinstance(part, str) and isinstance(whole, str):
        return whole.startswith(part)
    if isinstance(part, list) and isinstance(whole, list):
        return len(part) <= len(whole) and all(map(begins, part, whole))
    if isinstance(part, dict) and isinstance(whole, dict):
        return all(name in whole and begins(each, whole[name]) for name, each in part.items())
    return bool(part == whole)


@given(st.dictionaries(st.text(max_size=4), JSON, max_size=4), st.booleans(), st.data())
def test_law_each_beginning_of_an_object_grows_into_it(
    whole: Any, ascii: bool, data: st.DataObject
) -> None:
    text = json.dumps(whole, ensure_ascii=ascii)
    part = partial_object(text[: data.draw(st.integers(0, len(text)))])
    assert part is NOTHING or begins(part, whole)
    assert partial_object(text) == whole


@given(st.text(alphabet='{}[]":,\\u1dD8ate \n'))
def test_law_any_text_is_an_object_so_far_or_nothing(text: str) -> None:
    part = partial_object(text)
    assert part is NOTHING or isinstance(part, dict)


async def test_deltas_of_one_character_give_each_item_once() -> None:
    turn = Turn('{"name": "a\\u00e9\\ud83d\\ude00b"}', chunk=1)
    parts = await partials(Agent(ScriptedModel(turn), output=City))
    names = [part["name"] for part in parts if "name" in part]
    assert names == ["", "a", "aé", "aé😀", "aé😀b"]
