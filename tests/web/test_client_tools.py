"""Tools that run in the browser: the turn ends with the call, and the posted result goes on."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.web import _check_ag_ui as ag_ui
from tests.web import _check_ai_sdk as ai_sdk
from tests.web._clients import need_node
from tests.web._scenes import weather
from tests.web._server import conversation_of, direct, site_of
from tests.web.test_clients import ag_ui as http_agent
from tests.web.test_clients import ai
from tests.web.test_clients import text as shown
from tests.web.test_site import native, request_of, text_of

from hookline import Agent, Deny, tool
from hookline.hooks import deny_commands
from hookline.points import PreToolCall
from hookline.testing import ScriptedModel, call

EACH = pytest.mark.parametrize("protocol", ["native", "ai-sdk", "ag-ui"])
PARAMETERS = {"type": "object", "properties": {"kind": {"type": "string"}}, "required": ["kind"]}
PICK = {"name": "pick_file", "description": "Pick a file.", "parameters": PARAMETERS}


@tool(client=True)
def pick_file(kind: str) -> str:
    """Let the user pick a file of this kind."""
    raise NotImplementedError


def picking(*more: Any, **options: Any) -> Agent[Any]:
    calls = [
        call("pick_file", kind="png", call_id="p1"),
        call("weather", city="Oslo", call_id="w1"),
    ]
    turns = [["I ask. ", *calls], lambda request: f"You picked {request.messages[-2].text}."]
    return Agent(ScriptedModel(*turns, *more), tools=[weather, pick_file], **options)


def result_of(protocol: str, output: Any, shown: list[Any], id: str = "p1") -> dict[str, Any]:
    """The request that posts what the browser's tool gave."""
    if protocol == "native":
        return {"conversation": "c1", "results": {id: {"value": output}}}
    if protocol == "ai-sdk":
        last = json.loads(json.dumps(shown[-1]))
        for part in last["parts"]:
            if part.get("toolCallId") == id:
                part.update(state="output-available", output=output)
        return {"id": "c1", "messages": [*shown[:-1], last]}
    content = output if isinstance(output, str) else json.dumps(output)
    result = {"id": "r1", "role": "tool", "toolCallId": id, "content": content}
    run = {"threadId": "c1", "runId": "r", "protocolVersion": "1.0"}
    return {**run, "messages": [*shown, result]}


@EACH
async def test_a_result_of_the_browser_goes_on_with_the_answer(protocol: str) -> None:
    async with direct(picking()) as (site, http):
        first = await http.post(f"/{protocol}", json=request_of(protocol, "hi"))
        assert text_of(protocol, first.content) == "I ask. "
        told = (await http.get(f"/{protocol}/c1/messages")).json()
        second = await http.post(
            f"/{protocol}", json=result_of(protocol, "cat.png", told["messages"])
        )
        assert second.status_code == 200, second.text
        if protocol == "ai-sdk":
            chunks = ai_sdk.check(second.content, known={"p1"})
            assert "".join(c.get("delta", "") for c in chunks) == "You picked cat.png."
        else:
            assert text_of(protocol, second.content) == "You picked cat.png."
        kept = await conversation_of(site, "c1")
    assert [m.role for m in kept.messages] == ["user", "assistant", "tool", "tool", "assistant"]
    results = {m.call_id: (m.text, m.outcome) for m in kept.messages if m.role == "tool"}
    assert results["p1"] == ("cat.png", "ok")
    if protocol == "ai-sdk":
        assert ai_sdk.check(first.content)[-1]["finishReason"] == "tool-calls"
        parts = {p["toolCallId"]: p for p in told["messages"][-1]["parts"] if "toolCallId" in p}
        assert parts["p1"]["state"] == "input-available"
        assert parts["w1"]["state"] == "output-available"
        assert chunks[0]["messageId"] == told["messages"][-1]["id"]
    elif protocol == "ag-ui":
        last = ag_ui.check(first.content, thread_id="c1", run_id="r")[-1]
        assert last["outcome"] == {"type": "success", "pendingToolCallIds": ["p1"]}
        assert [each["id"] for each in told["clientCalls"]] == ["p1"]
    else:
        assert [each.id for each in native(first.content)[-1].response.client_calls] == ["p1"]


@EACH
async def test_a_result_counts_once_and_only_for_what_waits(protocol: str) -> None:
    async with direct(picking()) as (site, http):
        await http.post(f"/{protocol}", json=request_of(protocol, "hi"))
        told = (await http.get(f"/{protocol}/c1/messages")).json()["messages"]
        before = (await conversation_of(site, "c1")).messages
        forged = result_of(protocol, "rain", told, id="w1")
        if protocol == "ag-ui":  # a second result of a call that has one
            assert (await http.post(f"/{protocol}", json=forged)).status_code == 400
        else:
            assert (await http.post(f"/{protocol}", json=forged)).status_code == 409
        assert (await conversation_of(site, "c1")).messages == before
        right = result_of(protocol, "cat.png", told)
        assert (await http.post(f"/{protocol}", json=right)).status_code == 200
        assert (await http.post(f"/{protocol}", json=right)).status_code == 409


async def test_a_tool_that_failed_in_the_browser_says_why() -> None:
    async with direct(picking()) as (site, http):
        await http.post("/native", json=request_of("native", "hi"))
        results = {"p1": {"error": "the user has closed the dialogue"}}
        body = {"conversation": "c1", "results": results}
        assert (await http.post("/native", json=body)).status_code == 200
        kept = await conversation_of(site, "c1")
    said = next(m for m in kept.messages if m.role == "tool" and m.call_id == "p1")
    assert said.outcome == "error"
    assert "closed the dialogue" in said.text


# ── tools that the front end brings along ───────────────────────────────────────────────────


def bringing(*tools: Any, **more: Any) -> dict[str, Any]:
    return request_of("ag-ui", "hi", **{"tools": list(tools), **more})


async def test_a_tool_of_the_front_end_is_taken_where_the_route_allows_it() -> None:
    offered: list[list[str]] = []

    def first(request: Any) -> Any:
        offered.append([each.name for each in request.tools])
        return [call("pick_file", kind="png", call_id="p1")]

    agent = Agent(ScriptedModel(first, "Fine.", first), tools=[weather])
    async with direct(agent, client_tools=["pick_file"]) as (_, http):
        other = {**PICK, "name": "other"}
        answer = await http.post("/ag-ui", json=bringing(PICK, other))
        last = ag_ui.check(answer.content, thread_id="c1", run_id="r")[-1]
        assert last["outcome"]["pendingToolCallIds"] == ["p1"]
        told = (await http.get("/ag-ui/c1/messages")).json()["messages"]
        body = {**result_of("ag-ui", "cat.png", told), "tools": [PICK]}
        answer = await http.post("/ag-ui", json=body)
        assert text_of("ag-ui", answer.content) == "Fine."
    assert offered == [["weather", "pick_file"]]


async def test_a_tool_of_the_front_end_is_left_out_where_it_is_not_allowed() -> None:
    agent = Agent(ScriptedModel(lambda request: f"{len(request.tools)} tools."), tools=[weather])
    async with direct(agent) as (_, http):
        answer = await http.post("/ag-ui", json=bringing(PICK))
        assert text_of("ag-ui", answer.content) == "1 tools."


@pytest.mark.parametrize("allowed", [True, False, ["weather"]])
async def test_a_tool_of_the_front_end_never_takes_the_name_of_ours(allowed: Any) -> None:
    agent = Agent(ScriptedModel("No."), tools=[weather])
    async with direct(agent, client_tools=allowed) as (_, http):
        answer = await http.post("/ag-ui", json=bringing({**PICK, "name": "weather"}))
        assert answer.status_code == 400
        assert answer.text == "The server already has a tool 'weather'; rename your tool."


@pytest.mark.parametrize(
    "bad",
    [
        {"name": ""},
        {"name": 7},
        {"name": "x y"},
        {"parameters": {"type": "array"}},
        {"parameters": []},
        {"description": 7},
    ],
    ids=str,
)
async def test_a_bad_tool_of_the_front_end_is_refused(bad: dict[str, Any]) -> None:
    async with direct(Agent(ScriptedModel("No.")), client_tools=True) as (site, http):
        assert (await http.post("/ag-ui", json=bringing({**PICK, **bad}))).status_code == 400
        many = [{**PICK, "name": f"t{n}"} for n in range(65)]
        assert (await http.post("/ag-ui", json=bringing(*many))).status_code == 400
        assert (await conversation_of(site, "c1")).messages == ()


# ── the real clients ────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("version", ["ai", "ai6", "ai5"])
async def test_the_chat_of_the_sdk_runs_its_tool_and_goes_on(version: str) -> None:
    need_node()
    target: Any = {"ai": 7, "ai6": 6, "ai5": 5}[version]
    async with site_of(picking(), ai_sdk_version=target) as (site, url):
        options = {"tools": {"pick_file": "cat.png"}, "last": "You picked"}
        seen = await ai(url, [{"send": "hi"}], version, **options)
        kept = await conversation_of(site, "c1")
    assert seen["status"] == "ready", seen
    assert seen["ran"] == [{"kind": "png"}]
    assert [m["role"] for m in seen["messages"]] == ["user", "assistant"]
    assert shown(seen["messages"][1]) == "I ask. You picked cat.png."
    parts = {p["toolCallId"]: p for p in seen["messages"][1]["parts"] if "toolCallId" in p}
    assert parts["p1"]["output"] == "cat.png"
    assert seen["valid"] is None
    assert kept.messages[-1].text == "You picked cat.png."


async def test_http_agent_runs_its_tool_and_goes_on() -> None:
    need_node()
    tools = {"tools": [PICK]}
    turns = [["I ask. ", call("pick_file", kind="png", call_id="p1")], "You picked it."]
    agent = Agent(ScriptedModel(*turns), tools=[weather])
    async with site_of(agent, client_tools=True) as (site, url):
        script = [
            {"send": "hi", "parameters": tools},
            {"results": {"pick_file": "cat.png"}, "parameters": tools},
        ]
        seen = await http_agent(url, script)
        kept = await conversation_of(site, "c1")
    assert seen["runs"] == ["resolved", "resolved"], seen
    assert seen["warnings"] == []
    assert [m["role"] for m in seen["messages"]] == ["user", "assistant", "tool", "assistant"]
    assert seen["messages"][-1]["content"] == "You picked it."
    assert [m.role for m in kept.messages] == ["user", "assistant", "tool", "assistant"]


# ── refusals without a question ─────────────────────────────────────────────────────────────


@pytest.mark.parametrize("version", ["ai", "ai6", "ai5"])
@pytest.mark.parametrize("how", ["policy", "commands"])
async def test_a_refusal_is_shown_with_its_reason_live_and_after_a_reload(
    version: str, how: str
) -> None:
    need_node()
    target: Any = {"ai": 7, "ai6": 6, "ai5": 5}[version]

    async def run(command: str) -> str:
        """Run a command."""
        return "ran"

    hooks = [deny_commands("rm -rf")] if how == "commands" else []
    model = ScriptedModel([call("run", command="rm -rf /", call_id="c1")], "I may not.")
    agent = Agent(model, tools=[run], hooks=hooks)
    if how == "policy":

        @agent.hook("preToolCall")
        def refuse(ctx: PreToolCall) -> Deny:
            return Deny("not on this machine")

    async with site_of(agent, ai_sdk_version=target) as (_, url):
        live = await ai(url, [{"send": "hi"}], version)
        again = await ai(url, [{"load": True}], version)
    for seen in (live, again):
        assert seen["valid"] is None, seen["valid"]
        (part,) = [p for p in seen["messages"][1]["parts"] if p["type"] == "tool-run"]
        assert part["state"] == "output-error"
        if how != "commands":
            assert part["errorText"] == "not on this machine"
        else:
            assert "rm -rf" in part["errorText"]
