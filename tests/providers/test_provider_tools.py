"""Tools that providers run: what they are told, what comes back, what goes back, who may refuse."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests._wires import ADAPTERS, KEY, WIRES, wire
from tests.wire import Wire, WireServer

from hookline import Agent, AssistantMessage, Conversation, Limits, Text, check_history, tool
from hookline.errors import MalformedStreamError, MaxStepsError, UsageError
from hookline.hooks import allow_tools, approve, fallback
from hookline.models import ProviderTool
from hookline.providers.anthropic import AnthropicModel, AnthropicSettings
from hookline.providers.openai import OpenAIModel, OpenAISettings
from hookline.providers.tools import (
    code_execution,
    file_search,
    image_generation,
    provider_tool,
    remote_mcp,
    web_fetch,
    web_search,
)

from ._habits import PLACE, START, STOP, block, ended, gemini, named, said, sse


@tool
async def weather(city: str) -> str:
    """The weather in a city."""
    return "sunny"


# ── what they are told ──────────────────────────────────────────────────────────────────────

TOOLS = [
    web_search(max_uses=2),
    web_fetch(),
    code_execution(),
    file_search(vector_stores=["vs_1"], stores=["fileSearchStores/1"]),
    image_generation(size="1024x1024"),
    remote_mcp("shop", "https://mcp.example.org", allowed_tools=["look"]),
    provider_tool("maps", google={"google_maps": {}}),
]
TOLD: dict[str, list[dict[str, Any]]] = {
    "openai": [
        {"type": "web_search"},
        {"type": "code_interpreter", "container": {"type": "auto"}},
        {"type": "file_search", "vector_store_ids": ["vs_1"]},
        {"type": "image_generation", "size": "1024x1024"},
        {
            "type": "mcp",
            "server_label": "shop",
            "server_url": "https://mcp.example.org",
            "require_approval": "never",
            "allowed_tools": ["look"],
        },
    ],
    "openai-chat": [],
    "anthropic": [
        {"type": "web_search_20260318", "name": "web_search", "max_uses": 2},
        {"type": "web_fetch_20260318", "name": "web_fetch"},
        {"type": "code_execution_20260521", "name": "code_execution"},
    ],
    "google": [
        {"googleSearch": {}},
        {"urlContext": {}},
        {"codeExecution": {}},
        {"fileSearch": {"file_search_store_names": ["fileSearchStores/1"]}},
        {"googleMaps": {}},
    ],
}


@pytest.mark.parametrize("kind", WIRES)
async def test_a_provider_is_told_of_the_tools_that_it_has_beside_ours(kind: Any) -> None:
    async with wire(kind, "Hi.") as (model, server):
        await Agent(model, tools=[weather, *TOOLS]).chat("Hi.")
    sent = server.requests[0].json["tools"]
    ours = [each for each in sent if "weather" in json.dumps(each)]
    assert len(ours) == 1
    assert [each for each in sent if each not in ours] == TOLD[kind]


def test_a_search_within_domains_is_not_offered_to_who_cannot_keep_to_them() -> None:
    bounded = web_search(allowed_domains=["example.org"])
    assert set(bounded.entries) == {"openai", "anthropic"}
    assert bounded.entries["openai"]["filters"] == {"allowed_domains": ["example.org"]}
    assert bounded.replace(name="search").entries == bounded.entries


# ── who may refuse ──────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("kind", WIRES)
async def test_a_guard_takes_a_providers_tool_out_of_the_request(kind: Any) -> None:
    async with wire(kind, "Hi.") as (model, server):
        agent = Agent(model, tools=[weather, web_search()], hooks=[allow_tools("weather")])
        await agent.chat("Hi.")
    assert len(server.requests[0].json["tools"]) == 1


@pytest.mark.parametrize("names", [("web_search",), ("web_*",), ()], ids=["named", "glob", "all"])
async def test_an_approval_cannot_be_asked_for_a_tool_that_never_runs_here(
    names: tuple[str, ...],
) -> None:
    async with wire("openai") as (model, server):
        agent = Agent(model, tools=[web_search()], hooks=[approve(*names)])
        with pytest.raises(UsageError, match="web_search"):
            await agent.chat("Hi.")
        assert server.requests == []


async def test_an_approval_of_other_tools_lets_it_be() -> None:
    async with wire("openai", "Hi.") as (model, _):
        agent = Agent(model, tools=[weather, web_search()], hooks=[approve("weather")])
        assert (await agent.chat("Hi.")).text == "Hi."


async def test_a_model_that_calls_a_providers_tool_like_one_of_ours_is_told_no() -> None:
    call = {**CALL, "name": "web_search", "arguments": "{}"}
    turn = named(
        {"type": "response.output_item.done", "output_index": 0, "item": call},
        {"type": "response.completed", "response": {"id": "r"}},
    )
    talk = Conversation()
    async with WireServer("openai", turn, "Sorry.") as server:
        model = OpenAIModel("m", base_url=server.url, api_key=KEY)
        await Agent(model, tools=[web_search()]).chat("Hi.", conversation=talk)
    assert "itself; do not call it" in getattr(talk.messages[2], "text", "")
    check_history(talk.messages)


# ── what comes back, and goes back whole ────────────────────────────────────────────────────

USE = {"type": "server_tool_use", "id": "srv_1", "name": "web_search", "input": {}}
FOUND = {
    "type": "web_search_tool_result",
    "tool_use_id": "srv_1",
    "content": [
        {
            "type": "web_search_result",
            "url": "https://example.org",
            "title": "Example",
            "encrypted_content": "sealed",
        }
    ],
}
CITED = {
    "type": "web_search_result_location",
    "url": "https://example.org",
    "title": "Example",
    "encrypted_index": "i1",
    "cited_text": "It is so.",
}
SEARCHED = [
    *block(0, USE, {"type": "input_json_delta", "partial_json": '{"query": "it"}'}),
    *block(1, FOUND),
]
ANSWER = block(
    2,
    {"type": "text", "text": "", "citations": []},
    {"type": "text_delta", "text": "So it is."},
    {"type": "citations_delta", "citation": CITED},
)


async def test_what_anthropics_tools_did_goes_back_whole_with_what_was_cited() -> None:
    talk = Conversation()
    first = named(START, *SEARCHED, *ANSWER, ended("end_turn"), STOP)
    async with WireServer("anthropic", first, "Bye.") as server:
        agent = Agent(
            AnthropicModel("m", base_url=server.url, api_key=KEY, provider="anthropic"),
            tools=[web_search()],
        )
        response = await agent.chat("Is it so?", conversation=talk)
        assert (response.text, response.tool_results) == ("So it is.", ())
        restored = Conversation(talk.messages)
        await agent.chat("Thanks.", conversation=restored)
    assert server.requests[1].json["messages"][1]["content"] == [
        {**USE, "input": {"query": "it"}},
        FOUND,
        {"type": "text", "text": "So it is.", "citations": [CITED]},
    ]
    answer = talk.messages[1]
    assert isinstance(answer, AssistantMessage)
    [text] = [part for part in answer.parts if isinstance(part, Text)]
    assert text.meta == {"anthropic": {"citations": [CITED]}}


HALF = [
    *said("I search."),
    *block(1, USE, {"type": "input_json_delta", "partial_json": '{"query": "it'}),
]


async def test_an_answer_that_is_too_long_within_an_input_of_anthropics_tool_keeps_its_text() -> (
    None
):
    talk = Conversation()
    first = named(START, *HALF, ended("max_tokens"), STOP)
    async with WireServer("anthropic", first, "Bye.") as server:
        agent = Agent(AnthropicModel("m", base_url=server.url, api_key=KEY), tools=[web_search()])
        response = await agent.chat("Is it so?", conversation=talk)
        assert (response.text, response.finish_reason) == ("I search.", "length")
        await agent.chat("Go on.", conversation=talk)
    assert server.requests[1].json["messages"][1]["content"] == [
        {"type": "text", "text": "I search."}
    ]


async def test_half_an_input_of_anthropics_tool_is_malformed_in_any_other_answer() -> None:
    async with WireServer("anthropic", named(START, *HALF, ended("end_turn"), STOP)) as server:
        model = AnthropicModel("m", base_url=server.url, api_key=KEY)
        with pytest.raises(MalformedStreamError):
            await Agent(model).chat("Is it so?")


async def test_a_turn_that_anthropic_pauses_goes_on_by_itself() -> None:
    talk = Conversation()
    paused = named(START, *block(0, USE), ended("pause_turn"), STOP)
    rest = named(START, *block(0, FOUND), *said("So it is."), ended("end_turn"), STOP)
    async with WireServer("anthropic", paused, rest) as server:
        agent = Agent(AnthropicModel("m", base_url=server.url, api_key=KEY), tools=[web_search()])
        response = await agent.chat("Is it so?", conversation=talk)
    assert response.text == "So it is."
    assert response.finish_reason == "stop"
    [question, begun] = server.requests[1].json["messages"]
    assert (question["role"], begun["role"], begun["content"]) == ("user", "assistant", [USE])
    check_history(talk.messages)


async def test_each_continuation_of_a_paused_turn_is_a_step() -> None:
    paused = named(START, *block(0, USE), ended("pause_turn"), STOP)
    async with WireServer("anthropic", *[paused] * 3) as server:
        model = AnthropicModel("m", base_url=server.url, api_key=KEY)
        with pytest.raises(MaxStepsError):
            await Agent(model, tools=[web_search()], limits=Limits(steps=3)).chat("Is it so?")
        assert len(server.requests) == 3


REASONING = [
    {"type": "reasoning", "id": f"rs_{n}", "summary": [], "encrypted_content": f"sealed{n}"}
    for n in (1, 2)
]
SEARCH = {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"query": "it"}}
CALL = {
    "type": "function_call",
    "id": "fc_1",
    "call_id": "c1",
    "name": "weather",
    "arguments": '{"city":"Oslo"}',
}
NOTE = {"type": "url_citation", "url": "https://example.org", "title": "Example"}


async def test_what_openais_tools_did_goes_back_whole_and_in_its_place() -> None:
    """Without the search the reasoning before it would have lost what follows it."""
    items = [REASONING[0], SEARCH, REASONING[1], CALL]
    turn = named(
        *(
            {"type": "response.output_item.done", "output_index": n, "item": item}
            for n, item in enumerate(items)
        ),
        {"type": "response.completed", "response": {"id": "r"}},
    )
    async with WireServer("openai", turn, "Sunny.") as server:
        model = OpenAIModel("m", base_url=server.url, api_key=KEY)
        await Agent(model, tools=[weather, web_search()]).chat("Is it so?")
    sent = server.requests[1].json["input"][1:5]
    assert sent == items


async def test_what_openais_text_cites_stays_with_it() -> None:
    message = {
        "type": "message",
        "id": "msg_1",
        "content": [{"type": "output_text", "text": "So it is.", "annotations": [NOTE]}],
    }
    turn = named(
        {"type": "response.output_item.done", "output_index": 0, "item": REASONING[0]},
        {"type": "response.output_text.delta", **PLACE, "delta": "So it is."},
        {"type": "response.output_item.done", "output_index": 1, "item": message},
        {"type": "response.completed", "response": {"id": "r"}},
    )
    talk = Conversation()
    async with WireServer("openai", turn, "Bye.") as server:
        agent = Agent(OpenAIModel("m", base_url=server.url, api_key=KEY), tools=[web_search()])
        await agent.chat("Is it so?", conversation=talk)
        await agent.chat("Thanks.", conversation=talk)
    [answer] = [each for each in server.requests[1].json["input"] if each.get("id") == "msg_1"]
    assert answer["content"][0]["annotations"] == [NOTE]


async def test_the_code_that_gemini_ran_goes_back() -> None:
    code = {"executableCode": {"language": "PYTHON", "code": "1 + 1"}}
    result = {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "2"}}
    turn = sse(gemini(code, result, {"text": "Two."}, finishReason="STOP"), done=False)
    talk = Conversation()
    async with WireServer("google", turn, "Bye.") as server:
        model = ADAPTERS["google"]("m", base_url=server.url, api_key=KEY)
        agent: Agent[Any] = Agent(model, tools=[code_execution()])
        await agent.chat("1 + 1?", conversation=talk)
        await agent.chat("Thanks.", conversation=talk)
    assert server.requests[1].json["contents"][1]["parts"] == [code, result, {"text": "Two."}]


# ── from one provider to the other ──────────────────────────────────────────────────────────


async def test_a_fallback_with_settings_caching_and_a_providers_tool() -> None:
    """Each request holds what its own provider knows."""
    found = named(START, *SEARCHED, *ANSWER, ended("end_turn"), STOP)
    async with (
        WireServer("openai", Wire(status=503)) as first,
        WireServer("anthropic", found) as second,
    ):
        model = OpenAIModel(
            "gpt-x",
            base_url=first.url,
            api_key=KEY,
            settings=OpenAISettings(reasoning_effort="high", cache_key="shop"),
        )
        other = AnthropicModel(
            "claude-x", base_url=second.url, api_key=KEY, settings=AnthropicSettings(cache=True)
        )
        tools = [web_search(), image_generation(), weather]
        agent = Agent(model, tools=tools, hooks=[fallback(other)], system="Be brief.")
        assert (await agent.chat("Is it so?")).text == "So it is."
    asked, then = first.requests[0].json, second.requests[0].json
    kinds = [each["type"] for each in asked["tools"]]
    assert kinds == ["function", "web_search", "image_generation"]
    assert [each["name"] for each in then["tools"]] == ["weather", "web_search"]
    assert set(then) == {"model", "stream", "max_tokens", "messages", "system", "tools"}


@pytest.mark.parametrize("kind", WIRES)
async def test_what_a_providers_tool_did_is_not_shown_to_another(kind: Any) -> None:
    talk = Conversation()
    first = named(START, *SEARCHED, *ANSWER, ended("end_turn"), STOP)
    async with WireServer("anthropic", first) as server:
        model = AnthropicModel("m", base_url=server.url, api_key=KEY, provider="anthropic")
        await Agent(model, tools=[web_search()]).chat("Is it so?", conversation=talk)
    async with wire(kind, "Yes.", provider=kind) as (other, server):
        await Agent(other).chat("Really?", conversation=talk)
    sent = json.dumps(server.requests[0].json)
    assert "So it is." in sent
    assert ("sealed" in sent) == (kind == "anthropic")


def test_a_providers_tool_is_a_tool_with_a_name() -> None:
    assert all(isinstance(each, ProviderTool) and each.name for each in TOOLS)
