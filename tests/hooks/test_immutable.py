"""Payloads are read-only at every depth: who writes into one changes nothing, and is told so."""

from __future__ import annotations

import copy
import json
import pickle
from contextlib import nullcontext
from typing import Any

import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests import _every_point as t1
from tests._writing import attack

from hookline import (
    Agent,
    Approve,
    Ask,
    Conversation,
    File,
    Image,
    Reasoning,
    Scope,
    Settings,
    Source,
    Text,
    ToolCall,
    ToolResult,
    tool,
)
from hookline._base.frozen import FrozenDict, FrozenList, freeze, thaw
from hookline.errors import ChatAbortedError
from hookline.events import Status
from hookline.models import Finish, ModelRequest, ModelResponse
from hookline.points import TABLE
from hookline.testing import ScriptedModel, call, collect

NESTED = {"lines": [{"amount": 1, "tags": ["a", ["b"]]}], "meta": {"deep": {"er": []}}}


@tool
async def pay(lines: list[Any], meta: dict[str, Any], run: Any = None) -> Any:
    """Pay what the lines say."""
    return {"paid": lines, "meta": meta}


@tool
async def show(value: Any) -> ToolResult:
    """Show a picture and tell of it."""
    return ToolResult({"shown": [value, {"deep": [1]}]}, media=(Image(data=b"x"),))


def agent_for(point: str) -> Any:
    model = ScriptedModel(
        ["Well.", call("pay", **NESTED), call("show", value=NESTED), call("broken")], "All done."
    )
    settings = Settings(extra={"a": {"b": [1, {"c": 2}]}})
    agent = t1.agent_for(
        point, model=model, tools=[pay, show, t1.broken, t1.add], settings=settings
    )

    @agent.hook("onChatStart", priority=1)
    async def tells(ctx: Any) -> None:
        await ctx.run.status("begun", NESTED)

    if point == "onApproval":
        agent.add_hook("preToolCall", lambda ctx: Ask("really?"), tools=["pay"])
    return agent


@pytest.mark.parametrize("head", TABLE.values(), ids=TABLE.keys())
async def test_no_payload_of_any_point_can_be_written_into(head: Any) -> None:
    through: list[str] = []
    fired = 0

    def attacks(ctx: Any) -> None:
        nonlocal fired
        fired += 1
        through.extend(attack(ctx))

    async def around(ctx: Any, proceed: Any) -> Any:
        attacks(ctx)
        result = await proceed()
        through.extend(attack(result))
        return result

    agent, plain = agent_for(head.name), agent_for(head.name)
    agent.add_hook(head.name, around if head.kind == "wrapper" else attacks, priority=-5)
    talk, other = Conversation(), Conversation()
    for each, kept in ((agent, talk), (plain, other)):
        fails = head.name in ("onChatError", "onChatAbort")
        with pytest.raises((t1.Planned, ChatAbortedError)) if fails else nullcontext():
            await t1.play(head.name, each, conversation=kept)
    assert fired
    assert through == []
    assert [texts(m) for m in talk.messages] == [texts(m) for m in other.messages]


def texts(message: Any) -> Any:
    return (message.role, message.text, [c.arguments for c in getattr(message, "tool_calls", ())])


async def test_nobody_can_write_into_what_the_model_is_asked() -> None:
    asked: list[ModelRequest] = []
    agent = agent_for("preRequest")

    @agent.hook("aroundRequest")
    async def keeps(ctx: Any, proceed: Any) -> Any:
        asked.append(ctx.request)
        return await proceed()

    await agent.chat("go")
    assert [attack(request) for request in asked] == [[]] * len(asked)
    assert attack(ModelRequest(model=ScriptedModel("x"), messages=[])) == []


async def test_nobody_can_write_into_an_event_or_the_answer() -> None:
    agent = agent_for("onMessage")
    stream = agent.chat_stream("go")
    events = await collect(stream)
    assert any(isinstance(event, Status) for event in events)
    assert [attack(event) for event in events] == [[]] * len(events)
    assert attack(stream.response) == []


async def test_a_handler_gets_plain_objects_of_its_own_each_time() -> None:
    seen: list[Any] = []

    @tool(idempotent=True)
    async def spoil(lines: list[Any], meta: dict[str, Any]) -> str:
        seen.append(copy.deepcopy((lines, meta)))
        assert (type(lines), type(lines[0]), type(meta)) == (list, dict, dict)
        lines[0]["amount"] = 1000
        meta.clear()
        return "spoilt"

    agent = Agent(ScriptedModel(call("spoil", **NESTED), "done"), tools=[spoil])

    @agent.hook("aroundToolCall")
    async def twice(ctx: Any, proceed: Any) -> Any:
        await proceed()
        return await proceed()

    response = await agent.chat("go")
    assert seen == [(NESTED["lines"], NESTED["meta"])] * 2
    assert response.messages[1].tool_calls[0].arguments == NESTED  # type: ignore[union-attr]


async def test_what_a_tool_returned_is_its_own_no_more() -> None:
    mine: dict[str, Any] = {"rows": [1]}
    seen: list[Any] = []

    @tool
    async def rows() -> Any:
        return mine

    agent = Agent(ScriptedModel(call("rows"), "done"), tools=[rows])

    @agent.hook("onToolCallResult")
    def later(ctx: Any) -> None:
        mine["rows"].append(2)
        seen.append(ctx.result.value)

    response = await agent.chat("go")
    assert seen == [{"rows": [1]}]
    assert response.messages[2].text == '{"rows":[1]}'


# ── the data itself ─────────────────────────────────────────────────────────────────────────

ATOMS = st.none() | st.booleans() | st.integers(-9, 9) | st.floats(-9, 9) | st.text(max_size=4)
DATA = st.recursive(
    ATOMS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=12,
)


@given(DATA)
def test_frozen_data_is_like_the_plain_data(data: Any) -> None:
    frozen = freeze(data)
    assert attack(frozen) == []
    assert frozen == data
    assert freeze(frozen) is frozen
    assert json.dumps(frozen) == json.dumps(data)
    assert msgspec.json.encode(frozen) == msgspec.json.encode(data)
    assert pydantic.TypeAdapter(type(data)).validate_python(frozen) == data
    for plain in (thaw(frozen), copy.deepcopy(frozen), pickle.loads(pickle.dumps(frozen))):
        assert plain == data
        assert kinds(plain) == kinds(data)


def kinds(data: Any) -> Any:
    if isinstance(data, dict):
        return (type(data), [kinds(each) for each in data.values()])
    if isinstance(data, list):
        return (type(data), [kinds(each) for each in data])
    return type(data)


def test_a_write_is_an_error_that_says_what_to_do() -> None:
    made = ToolCall(id="c", name="pay", arguments={"a": [1]})
    for write in (lambda: made.arguments.update(a=2), lambda: made.arguments["a"].append(2)):
        with pytest.raises(TypeError, match=r"read-only.*\.replace\("):
            write()
    changed = made.replace(arguments={**made.arguments, "a": 2})
    assert (changed.arguments, made.arguments) == ({"a": 2}, {"a": [1]})


def test_what_is_frozen_is_a_dict_and_a_list_and_is_copied_once() -> None:
    mine: dict[str, Any] = {"a": [1]}
    made = ToolCall(id="c", name="pay", arguments=mine)
    mine["a"].append(2)
    assert made.arguments == {"a": [1]}
    assert (type(made.arguments), type(made.arguments["a"])) == (FrozenDict, FrozenList)
    assert made.replace(name="other").arguments is made.arguments
    assert pickle.loads(pickle.dumps(made)).arguments == made.arguments
    assert type(pickle.loads(pickle.dumps(made)).arguments) is FrozenDict


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda data: ToolCall(id="c", name="n", arguments=data), id="call"),
        pytest.param(lambda data: ToolCall(id="c", name="n", meta=data), id="call-meta"),
        pytest.param(lambda data: Text("t", data), id="text"),
        pytest.param(lambda data: Reasoning("r", data), id="reasoning"),
        pytest.param(lambda data: Image(meta=data), id="image"),
        pytest.param(lambda data: File(media_type="text/plain", meta=data), id="file"),
        pytest.param(lambda data: Source(meta=data), id="source"),
        pytest.param(lambda data: ToolResult(data), id="result"),
        pytest.param(lambda data: Settings(extra=data), id="settings"),
        pytest.param(lambda data: Approve(arguments=data), id="approve"),
        pytest.param(lambda data: Finish(meta=data), id="finish"),
        pytest.param(lambda data: ModelResponse(meta=data), id="response"),
        pytest.param(
            lambda data: Status(chat_id="c", iteration=0, type="t", data=data), id="status"
        ),
    ],
)
def test_data_is_frozen_where_a_payload_is_made(make: Any) -> None:
    assert attack(make(copy.deepcopy(NESTED))) == []
    endless: dict[str, Any] = {}
    endless["self"] = endless
    with pytest.raises(ValueError, match="contains itself"):
        make(endless)


def test_a_tool_and_a_scope_are_read_only_too() -> None:
    for each in (pay, Scope("notes", tools=[show])):
        assert attack(each) == []
    with pytest.raises(AttributeError, match=r"read-only.*replace\("):
        pay.timeout = 5
