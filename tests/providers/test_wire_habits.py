"""The habits that a wire server can be told to have: the same answer, or an error of ours."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests._wires import ADAPTERS, KEY, WIRES
from tests.wire import Wire, WireServer
from tests.wire.habits import habits_of

from hookline import Agent, AssistantMessage, Conversation, Reasoning, check_history
from hookline.errors import MalformedStreamError, ModelError
from hookline.testing import Turn, call

FAILS = ("error", "failed", "no_finish", "blocked", "malformed_call")
CASES = [(kind, name) for kind in WIRES for name in habits_of(kind)]
FAILING = [(kind, name) for kind, name in CASES if name.startswith(FAILS)]
FINE = [case for case in CASES if case not in FAILING]
META = {"openai": {"id": "rs_1", "encrypted_content": "c2VhbGVk"}}


async def weather(city: str) -> str:
    """The weather in a city."""
    return "sunny"


def turn(name: str) -> Turn:
    calls = [call("weather", city="Oslo"), call("weather", city="Rome")]
    if name == "function_call":
        calls = calls[:1]
    elif name == "null_arguments":
        calls = [call("weather")]
    return Turn(Reasoning("Hm.", META), "I ", "look.", *calls)


async def chat(kind: Any, name: str, talk: Conversation) -> list[Any]:
    async with WireServer(kind, Wire(turn(name), habits=[name]), "Sunny.") as server:
        model = ADAPTERS[kind]("m", base_url=server.url, api_key=KEY)
        await Agent(model, tools=[weather]).chat("Hi.", conversation=talk)
        return server.requests


@pytest.mark.parametrize(("kind", "name"), FINE, ids=[f"{a} {b}" for a, b in FINE])
async def test_an_answer_is_the_same_whatever_the_server_does_differently(
    kind: Any, name: str
) -> None:
    talk = Conversation()
    requests = await chat(kind, name, talk)
    check_history(talk.messages)
    answer = talk.messages[1]
    assert isinstance(answer, AssistantMessage)
    assert (answer.text, answer.reasoning) == ("I look.", "Hm.")
    given = [each.arguments for each in answer.tool_calls]
    assert given == [each.arguments for each in turn(name).parts if hasattr(each, "arguments")]
    assert len({each.id for each in answer.tool_calls}) == len(given)
    assert answer.finish_reason == "tool_calls"
    if name == "signed_calls":
        assert "c2lnbmVk" in json.dumps(requests[1].json)


@pytest.mark.parametrize(("kind", "name"), FAILING, ids=[f"{a} {b}" for a, b in FAILING])
async def test_an_answer_that_breaks_is_an_error_and_never_an_answer(kind: Any, name: str) -> None:
    talk = Conversation()
    with pytest.raises(ModelError) as caught:
        await chat(kind, name, talk)
    assert (type(caught.value) is MalformedStreamError) == (name in ("no_finish", "malformed_call"))
    if name.startswith(("error_", "failed")) and name != "error_finish":
        assert "the server broke" in str(caught.value)
    check_history(talk.messages)


@pytest.mark.parametrize("kind", WIRES)
def test_a_habit_that_no_server_of_the_format_has_is_refused(kind: Any) -> None:
    with pytest.raises(ValueError, match="use one of"):
        Wire("Hi.", habits=["no_idnex"]).pieces(kind, 1)
