"""What an AG-UI front end shares: a declared part of `run.state`, and its context."""

from __future__ import annotations

import asyncio
import copy
import json
from typing import Any, TypedDict

import httpx
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from tests.web import _check_ag_ui as checker
from tests.web._clients import need_node
from tests.web._server import HEADERS, LOCAL, client, conversation_of, direct, eventually, site_of
from tests.web.test_clients import ag_ui
from tests.web.test_site import PROTOCOLS, Gate, request_of

from hookline import Agent, ModelRequest, Run, tool
from hookline.points import OnChatEnd, OnMessage
from hookline.testing import ScriptedModel, Turn, call
from hookline.web import chat_response


class Board(TypedDict, total=False):
    """A form that a front end's state must have."""

    cards: list[str]


@tool
async def add(title: str, run: Run[Any]) -> str:
    """Add a card."""
    board = run.state.setdefault("board", {"cards": []})
    board["cards"].append(title)
    run.state["secret"] = title
    await run.status("added", title)
    run.state["count"] = len(board["cards"])
    return "added"


def planner(*titles: str) -> Agent[Any]:
    turns = [[call("add", title=title)] for title in titles]
    return Agent(ScriptedModel(*turns, "Done."), tools=[add])


def changes(events: list[dict[str, Any]]) -> list[Any]:
    kinds = {"STATE_SNAPSHOT": "snapshot", "STATE_DELTA": "delta"}
    return [event[kinds[event["type"]]] for event in events if event["type"] in kinds]


async def ask(http: httpx.AsyncClient, said: str = "go", **more: Any) -> list[dict[str, Any]]:
    answer = await http.post("/ag-ui", json=request_of("ag-ui", said, **more))
    assert answer.status_code == 200, answer.text
    return checker.check(answer.content, thread_id="c1", run_id="r")


async def test_a_declared_part_of_the_state_is_shown_whole_and_then_by_what_changes() -> None:
    options = {"ag_ui_state": {"board": None, "count": None}}
    async with direct(planner("one", "two"), **options) as (_, http):
        events = await ask(http)
    assert changes(events) == [
        {"board": {"cards": ["one"]}},
        [{"op": "add", "path": "/count", "value": 1}],
        [{"op": "add", "path": "/board/cards/-", "value": "two"}],
        [{"op": "replace", "path": "/count", "value": 2}],
    ]
    kinds = [event["type"] for event in events]
    assert kinds[0] == "RUN_STARTED"
    assert kinds.index("STATE_SNAPSHOT") < kinds.index("TOOL_CALL_RESULT")
    assert all("secret" not in json.dumps(each) for each in changes(events))


async def test_what_a_hook_changes_last_of_all_is_shown_before_the_end() -> None:
    agent = planner()

    @agent.hook("onChatEnd")
    def ended(ctx: OnChatEnd[Any]) -> None:
        ctx.run.state["count"] = 7

    async with direct(agent, ag_ui_state={"count": None}) as (_, http):
        events = await ask(http)
    assert [event["type"] for event in events][-2:] == ["STATE_SNAPSHOT", "RUN_FINISHED"]
    assert changes(events) == [{"count": 7}]


async def test_a_front_end_sets_what_has_a_type_and_nothing_else() -> None:
    seen: list[Any] = []
    agent = planner("two")
    agent.add_hook("onChatStart", lambda ctx: seen.append(copy.deepcopy(ctx.run.state)))
    state = {"board": {"cards": ["one"]}, "count": 99, "secret": "x", "admin": True}
    async with direct(agent, ag_ui_state={"board": Board, "count": None}) as (_, http):
        events = await ask(http, state=state)
    assert seen == [{"board": {"cards": ["one"]}}]
    assert changes(events)[0] == {"board": {"cards": ["one"]}}
    assert [{"op": "add", "path": "/board/cards/-", "value": "two"}] in changes(events)


async def test_without_a_declaration_no_state_goes_either_way() -> None:
    seen: list[Any] = []
    agent = planner("one")
    agent.add_hook("onChatStart", lambda ctx: seen.append(dict(ctx.run.state)))
    async with direct(agent) as (_, http):
        assert changes(await ask(http, state={"board": {"cards": ["x"]}})) == []
    assert seen == [{}]


@pytest.mark.parametrize("bad", [7, {"cards": "one"}, {"cards": [1]}, None])
async def test_a_state_of_another_form_is_refused(bad: Any) -> None:
    async with direct(planner(), ag_ui_state={"board": Board}) as (site, http):
        body = request_of("ag-ui", "go", state={"board": bad})
        answer = await http.post("/ag-ui", json=body)
        assert answer.status_code == 400
        assert answer.text == "The state 'board' must fit the type that the server declares."
        assert (await conversation_of(site, "c1")).messages == ()


async def test_state_that_is_no_json_ends_the_chat_and_says_so_to_its_programmer() -> None:
    errors: list[BaseException] = []
    agent = planner()
    agent.add_hook("onChatStart", lambda ctx: ctx.run.state.update(board=object()))
    agent.add_hook("onChatError", lambda ctx: errors.append(ctx.error))
    async with direct(agent, ag_ui_state={"board": None}) as (_, http):
        answer = await http.post("/ag-ui", json=request_of("ag-ui", "go"))
    assert '"RUN_ERROR"' in answer.text
    assert "run.state['board'] is shared with front ends; keep JSON data in it" in str(errors[0])


async def test_hooks_that_report_while_the_state_is_told_do_not_hold_it_up() -> None:
    agent = planner("one")

    @agent.hook("onStatus")
    async def more(ctx: Any) -> None:
        if ctx.type == "ag_ui.state" and "more" not in ctx.run.state:
            ctx.run.state["more"] = True
            await ctx.run.status("more")

    async with direct(agent, ag_ui_state={"board": None, "more": None}) as (_, http):
        events = await ask(http)
    assert changes(events) == [
        {"board": {"cards": ["one"]}},
        [{"op": "add", "path": "/more", "value": True}],
    ]


async def test_a_reader_that_comes_later_has_the_state_too() -> None:
    gate = Gate()
    model = ScriptedModel([call("add", title="one")], Turn("Done.", delay=gate))
    options: dict[str, Any] = {"ag_ui_state": {"board": None}, "on_disconnect": "detach"}
    async with site_of(Agent(model, tools=[add]), **options) as (site, url), client(url) as http:
        first = asyncio.create_task(ask(http))
        await gate.reached.wait()
        second = asyncio.create_task(http.get("/ag-ui/c1/stream"))
        await eventually(lambda: len(site.runs._live["owner/c1"].log.readers) == 2)
        gate.open.set()
        events = checker.check((await second).content, thread_id="c1", run_id="r")
        assert changes(events) == changes(await first) == [{"board": {"cards": ["one"]}}]


# ── context ─────────────────────────────────────────────────────────────────────────────────


def asked(requests: list[ModelRequest]) -> Agent[Any]:
    def answer(request: ModelRequest) -> str:
        requests.append(request)
        return "Yes."

    return Agent(ScriptedModel(answer, answer), system="Be kind.")


CONTEXT = [
    {"description": "The open page", "value": "Invoice 7"},
    {"description": "Cart", "value": {"items": 2}},
]


async def test_context_is_told_beside_what_the_user_said_and_is_not_kept() -> None:
    requests: list[ModelRequest] = []
    async with direct(asked(requests), ag_ui_context=True) as (site, http):
        await ask(http, context=CONTEXT)
        assert [m.text for m in (await conversation_of(site, "c1")).messages] == ["go", "Yes."]
    (request,) = requests
    assert request.system == "Be kind."
    assert request.messages[-1].text == (
        "go\n\n## Context from the user's application\n"
        '- The open page: Invoice 7\n- Cart: {"items":2}'
    )


async def test_context_is_ignored_unless_the_route_allows_it() -> None:
    requests: list[ModelRequest] = []
    async with direct(asked(requests)) as (_, http):
        await ask(http, context=CONTEXT)
    assert [m.text for m in requests[0].messages] == ["go"]
    assert "Invoice" not in str(requests)


@pytest.mark.parametrize("bad", ["text", [7], [{"description": 7, "value": "x"}]])
async def test_context_of_another_form_is_refused(bad: Any) -> None:
    async with direct(asked([]), ag_ui_context=True) as (_, http):
        answer = await http.post("/ag-ui", json=request_of("ag-ui", "go", context=bad))
        assert answer.status_code == 400


async def test_hooks_see_the_context_before_the_model_does() -> None:
    requests: list[ModelRequest] = []
    agent = asked(requests)

    @agent.hook("preRequest")
    def hide(ctx: Any) -> ModelRequest:
        last = ctx.request.messages[-1]
        changed = last.replace(text=last.text.replace("Invoice 7", "…"))
        return ctx.request.replace(messages=(*ctx.request.messages[:-1], changed))

    async with direct(agent, ag_ui_context=True) as (_, http):
        await ask(http, context=CONTEXT)
    assert "The open page: …" in requests[0].messages[-1].text


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_routes_of_ones_own_share_with_ag_ui_alone(protocol: Any) -> None:
    requests: list[ModelRequest] = []
    agent = asked(requests)
    heard: list[str] = []

    async def route(request: Request) -> Response:
        return await chat_response(
            agent,
            request,
            protocol=protocol,
            ag_ui_state={"seen": int},
            ag_ui_context=True,
            hooks={"onMessage": lambda ctx: _count(ctx, heard)},
        )

    way = httpx.ASGITransport(Starlette(routes=[Route("/", route, methods=["POST"])]))
    async with httpx.AsyncClient(transport=way, base_url=LOCAL, headers=HEADERS) as http:
        more = {"context": CONTEXT, "state": {"seen": 5}} if protocol == "ag-ui" else {}
        answer = await http.post("/", json=request_of(protocol, "go", **more))
        assert answer.status_code == 200, answer.text
    shared = protocol == "ag-ui"
    assert ("STATE_SNAPSHOT" in answer.text, "STATE_DELTA" in answer.text) == (shared, shared)
    assert ("Invoice" in str(requests[0].messages)) == shared
    assert heard == ["user", "assistant"]


def _count(ctx: OnMessage[Any], heard: list[str]) -> None:
    heard.append(ctx.message.role)
    ctx.run.state["seen"] = ctx.run.state.get("seen", 0) + 1


# ── differences ─────────────────────────────────────────────────────────────────────────────

LEAVES = (
    st.none() | st.booleans() | st.integers(-3, 3) | st.floats(-2, 2) | st.text("a/~", max_size=3)
)
JSON = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text("a/~0", max_size=2), inner),
    max_leaves=12,
)


def patched(value: Any, operations: list[dict[str, Any]]) -> Any:
    """What RFC 6902 says, of the operations that there are."""
    value = json.loads(json.dumps(value))
    for each in operations:
        steps = [s.replace("~1", "/").replace("~0", "~") for s in each["path"].split("/")[1:]]
        if not steps:
            assert each["op"] == "replace"
            value = each["value"]
            continue
        place = value
        for step in steps[:-1]:
            place = place[int(step) if isinstance(place, list) else step]
        last: Any = steps[-1]
        if isinstance(place, list):
            if each["op"] == "add":
                assert last == "-"
                place.append(each["value"])
                continue
            last = int(last)
        elif each["op"] == "add":
            assert last not in place
        if each["op"] == "remove":
            del place[last]
        else:
            place[last] = each["value"]
    return value


async def shown(before: Any, after: Any) -> list[Any]:
    """The changes of a state that a front end is sent."""
    agent = Agent(ScriptedModel("Done."))
    agent.add_hook("onChatStart", lambda ctx: ctx.run.state.update(value=before))
    agent.add_hook("onChatEnd", lambda ctx: ctx.run.state.update(value=after))
    async with direct(agent, ag_ui_state={"value": None}) as (_, http):
        return changes(await ask(http))


@given(JSON, JSON)
@example([1], [True])
@example([1, 2, 3], [1])
def test_the_differences_make_the_one_of_the_other(before: Any, after: Any) -> None:
    snapshot, *deltas = asyncio.run(shown(before, after))
    same = json.dumps(before, sort_keys=True) == json.dumps(after, sort_keys=True)
    assert len(deltas) == (0 if same else 1)
    state = patched(snapshot, deltas[0] if deltas else [])
    assert json.dumps(state, sort_keys=True) == json.dumps({"value": after}, sort_keys=True)


# ── the real client ─────────────────────────────────────────────────────────────────────────


async def test_http_agent_has_the_state_of_the_server_and_sends_its_own() -> None:
    need_node()
    agent = Agent(
        ScriptedModel([call("add", title="one")], "Done.", [call("add", title="two")], "Done."),
        tools=[add],
    )
    requests: list[Any] = []
    agent.add_hook("preRequest", lambda ctx: requests.append(ctx.request.messages[-1].text))
    context = [{"description": "Page", "value": "7"}]
    script: list[Any] = [
        {"send": "go", "parameters": {"context": context}},
        {"setState": {"board": {"cards": ["one", "mine"]}, "count": 40}},
        {"send": "more"},
    ]
    options: dict[str, Any] = {"ag_ui_state": {"board": Board, "count": None}}
    async with site_of(agent, ag_ui_context=True, **options) as (_, url):
        seen = await ag_ui(url, script)
    assert (seen["runs"], seen["warnings"]) == (["resolved", "resolved"], [])
    assert seen["state"] == {"board": {"cards": ["one", "mine", "two"]}, "count": 3}
    assert requests[0] == "go\n\n## Context from the user's application\n- Page: 7"
