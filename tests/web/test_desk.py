"""What is done with conversations besides speaking in them, who reads them, and Markdown."""

from __future__ import annotations

import asyncio
import re
import threading
from typing import Any
from urllib.parse import quote

import httpx
import msgspec
import pytest
from tests.web._scenes import fails, weather
from tests.web._server import client, direct, eventually, site_of
from tests.web.test_clients import _after
from tests.web.test_site import Gate, request_of

from hookline import Agent, Conversation, Limits, MemoryStore, Scope, Text, UserMessage
from hookline.errors import AuthenticationError, StoreError
from hookline.storage import RULES, Rule, list_rules
from hookline.testing import ScriptedModel, Turn, call
from hookline.web import (
    Caps,
    OnClientAttached,
    OnClientDetached,
    OnFeedback,
    Page,
    conversation_key,
)
from hookline.web._page import timeline_store
from hookline.web._page.markdown import LANGUAGES, LINES, MOST, MOST_CODE, TAGS, blocks
from hookline.web._page.markdown_parser import BYTES as TEXT_BYTES
from hookline.web._page.markdown_parser import OWN_REQUESTS, REQUESTS, TEXTS
from hookline.web._page.timeline_store import BYTES
from hookline.web._site import conversations

HEADERS = {"content-type": "application/json"}


async def said(http: Any, id: str, text: str) -> None:
    answer = await http.post("/native", json={"conversation": id, "message": text})
    assert "chat_done" in answer.text


# ── conversations ───────────────────────────────────────────────────────────────────────────


async def test_a_fork_has_what_came_before_a_message() -> None:
    async with direct(Agent(ScriptedModel("One.", "Two.", "Three."))) as (_, http):
        await said(http, "a", "First?")
        await said(http, "a", "Second?")
        messages = (await http.get("/native/a/messages")).json()["messages"]
        place = {"before": messages[2]["id"], "id": "b"}
        forked = await http.post("/conversations/a/fork", json=place)
        assert forked.json() == {"id": "b", "kept": 2}
        assert (await http.get("/native/b/messages")).json()["messages"] == messages[:2]
        await said(http, "b", "Another?")
        assert len((await http.get("/native/a/messages")).json()["messages"]) == 4
        again = await http.post("/conversations/a/fork", json=place)
        assert again.status_code == 409
        wrong = await http.post("/conversations/a/fork", json={"before": messages[1]["id"]})
        assert wrong.status_code == 404


async def test_a_fork_has_neither_handoffs_nor_rules_that_came_later() -> None:
    store = MemoryStore()
    transfer = call("transfer_to_billing")
    triage = Agent(ScriptedModel("I am triage.", transfer, "Triage again."), name="triage")
    triage.handoffs(Agent(ScriptedModel("I am billing."), name="billing"))
    async with direct(triage, store=store) as (_, http):
        await said(http, "a", "First?")
        await said(http, "a", "Second?")
        stored = await store.open(conversation_key("owner", "a"))
        stored.meta |= {RULES: [Rule("pay")], "own": 1}
        await stored.save()
        messages = (await http.get("/native/a/messages")).json()["messages"]
        await http.post("/conversations/a/fork", json={"before": messages[2]["id"], "id": "b"})
        key = conversation_key("owner", "b")
        assert (await store.open(key)).meta["own"] == 1
        assert await list_rules(store, key) == ()
        await said(http, "b", "Another?")
        assert (await http.get("/native/b/messages")).json()["messages"][-1]["parts"] == [
            {"part": "text", "text": "Triage again."}
        ]


@pytest.mark.parametrize("title", ["", "  ", "x" * 61, None, 5])
async def test_a_title_must_be_one(title: Any) -> None:
    async with direct(Agent(ScriptedModel("One."))) as (_, http):
        await said(http, "a", "First?")
        answer = await http.patch("/conversations/a", json={"title": title})
        assert answer.status_code == 400


async def test_a_title_is_kept_in_the_store_and_is_its_principals_alone() -> None:
    store = MemoryStore()

    def who(connection: Any) -> str | None:
        found: str | None = connection.headers.get("x-user")
        return found

    agent = Agent(ScriptedModel("One."))
    async with direct(agent, store=store, authorize=who) as (_, http):
        http.headers["x-user"] = "ada"
        await said(http, "a", "First?")
        assert (await http.patch("/conversations/a", json={"title": "Mine"})).status_code == 200
    async with direct(agent, store=store, authorize=who) as (_, http):
        http.headers["x-user"] = "bob"
        for method, path, body in (
            ("PATCH", "/conversations/a", {"title": "His"}),
            ("POST", "/conversations/a/fork", {"before": "x"}),
            ("POST", "/conversations/a/feedback", {"message": "x", "value": "up"}),
        ):
            answer = await http.request(method, path, json=body)
            assert (answer.status_code, "no such conversation" in answer.text) == (404, True)
        http.headers["x-user"] = "ada"
        (entry,) = (await http.get("/conversations")).json()["conversations"]
        assert entry["title"] == "Mine"


async def test_titles_and_messages_are_searched() -> None:
    async with direct(Agent(ScriptedModel("Of pears.", "Of PLUMS."))) as (_, http):
        await said(http, "a", "Apples?")
        await said(http, "b", "Cherries?")
        for words, found in (("apple", ["a"]), ("plums", ["b"]), ("of", ["b", "a"]), ("x", [])):
            answer = (await http.get("/conversations", params={"search": words})).json()
            assert [each["id"] for each in answer["conversations"]] == found


async def test_the_latest_conversations_are_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conversations, "SEARCHED", 2)
    async with direct(Agent(ScriptedModel("One.", "Two.", "Three."))) as (_, http):
        for id in ("a", "b", "c"):
            await said(http, id, "Plums?")
        answer = (await http.get("/conversations", params={"search": "plums"})).json()
    assert [entry["id"] for entry in answer["conversations"]] == ["c", "b"]


async def test_the_latest_runs_of_a_timeline_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timeline_store, "RUNS", 2)
    async with direct(Agent(ScriptedModel("One.", "Two.", "Three.")), page=True) as (_, http):
        for text in ("1", "2", "3"):
            await said(http, "a", text)
        runs = (await http.get("/page/a/timeline")).json()["runs"]
    assert len(runs) == 2


async def test_feedback_is_about_an_answer_of_the_conversation() -> None:
    agent: Agent[Any] = Agent(ScriptedModel("One."))
    told: list[OnFeedback] = []
    agent.bus.add_hook(OnFeedback, told.append)
    async with direct(agent) as (_, http):
        await said(http, "a", "First?")
        question, answer = (await http.get("/native/a/messages")).json()["messages"]
        way = "/conversations/a/feedback"
        body = {"message": answer["id"], "value": "down", "comment": "too short"}
        assert (await http.post(way, json=body)).status_code == 204
        for wrong, status in ((question["id"], 404), ("nobody", 404)):
            assert (await http.post(way, json={**body, "message": wrong})).status_code == status
        assert (await http.post(way, json={**body, "value": "maybe"})).status_code == 400
    (one,) = told
    assert (one.conversation_id, one.value, one.comment) == ("a", "down", "too short")


# ── what the page asks for ──────────────────────────────────────────────────────────────────


async def test_without_the_page_none_of_its_routes_is_there() -> None:
    async with direct(Agent(ScriptedModel("One."))) as (_, http):
        await said(http, "a", "First?")
        for path in ("/page/about", "/page/a/timeline", "/page/a/steps/x/0"):
            assert (await http.get(path)).status_code == 404
        answer = await http.post("/page/markdown", json={"texts": ["x"]})
        assert answer.status_code == 404


async def test_markdown_that_takes_long_keeps_no_thread_from_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gate = threading.Event()

    def slow(text: str) -> list[Any]:
        gate.wait(30)
        return blocks(text)

    monkeypatch.setattr("hookline.web._page.markdown_parser.blocks", slow)
    options: dict[str, Any] = {"authorize": lambda http: http.headers.get("x-user"), "page": True}
    async with direct(Agent(ScriptedModel()), **options) as (site, http):

        def parse(user: str) -> asyncio.Task[httpx.Response]:
            body = {"texts": ["*x*"]}
            return asyncio.create_task(
                http.post("/page/markdown", json=body, headers={"x-user": user})
            )

        try:
            waiting = [parse(f"user{n // OWN_REQUESTS}") for n in range(REQUESTS)]
            await eventually(lambda: len(site._page.markdown._requests) == REQUESTS)
            refused = await parse("kim")
            assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
            assert await asyncio.wait_for(asyncio.to_thread(lambda: "free"), 60) == "free"
        finally:
            gate.set()
        for answer in await asyncio.gather(*waiting):
            assert answer.json()["texts"] == [msgspec.to_builtins(blocks("*x*"))]
        gate.clear()
        try:
            own = [parse("kim") for _ in range(OWN_REQUESTS)]
            await eventually(
                lambda: (
                    [owner for owner, _ in site._page.markdown._requests].count("kim")
                    == OWN_REQUESTS
                )
            )
            assert (await parse("kim")).status_code == 503
        finally:
            gate.set()
        assert (await parse("eve")).status_code == 200
        await asyncio.gather(*own)
        await site.shutdown()


async def test_the_texts_of_a_markdown_request_have_a_bound_together() -> None:
    async with direct(Agent(ScriptedModel()), page=True) as (site, http):
        for texts, status in (
            (["é" * (TEXT_BYTES // 4), "é" * (TEXT_BYTES // 4)], 200),
            (["é" * (TEXT_BYTES // 4), "é" * (TEXT_BYTES // 4) + "x"], 413),
            (["x"] * (TEXTS + 1), 400),
            ("x", 400),
        ):
            answer = await http.post("/page/markdown", json={"texts": texts})
            assert answer.status_code == status
        await site.shutdown()


async def test_the_page_and_its_routes_need_the_token_and_the_right_origin() -> None:
    async with direct(Agent(ScriptedModel("One.")), page=True) as (_, http):
        for path in ("/page/about", "/page/a/timeline"):
            assert (await http.get(path, headers={"authorization": ""})).status_code == 401
            evil = {"origin": "https://evil.example"}
            assert (await http.get(path, headers=evil)).status_code == 403


async def test_a_timeline_outlives_the_server_and_goes_with_its_conversation() -> None:
    store = MemoryStore()
    page = Page(details=True)
    agent: Agent[Any] = Agent(ScriptedModel("One."), system="Be brief.")
    async with direct(agent, store=store, page=page) as (site, http):
        await said(http, "a", "First?")
        await site.shutdown()
    async with direct(Agent(ScriptedModel()), store=store, page=page) as (_, http):
        (run,) = (await http.get("/page/a/timeline")).json()["runs"]
        assert run["ended"] == "done"
        assert run["frames"][0]["event"] == "step_started"
        step = (await http.get(f"/page/a/steps/{run['run']}/0")).json()
        assert (step["system"], step["answer"]) == ("Be brief.", "One.")
        assert step["messages"] == [["user", "First?"]]
        listed = (await http.get("/conversations")).json()["conversations"]
        assert [each["id"] for each in listed] == ["a"]
        assert (await http.delete("/conversations/a")).status_code == 204
        assert await store.list() == ()


@pytest.mark.parametrize("id", ["a/b", "/", "a/timeline", "a/steps/b", "about", "ä ?#"])
async def test_a_timeline_is_found_whatever_its_conversation_is_called(id: str) -> None:
    async with direct(Agent(ScriptedModel("One.")), page=Page(details=True)) as (_, http):
        await said(http, id, "First?")
        way = f"/page/{quote(id, safe='')}"
        (run,) = (await http.get(f"{way}/timeline")).json()["runs"]
        step = await http.get(f"{way}/steps/{run['run']}/0")
        assert step.json()["answer"] == "One."


async def test_a_run_with_many_details_takes_no_timeline_away() -> None:
    """What does not fit loses its details first, and the oldest runs are dropped first."""
    long = ["x" * 100_000, call("weather", city="Oslo")]
    turns = ["One.", *[long] * 30, "Two.", "Three."]
    agent: Agent[Any] = Agent(ScriptedModel(*turns), tools=[weather], limits=Limits(steps=40))
    async with direct(agent, page=Page(details=True)) as (site, http):
        for text in ("a", "b", "c"):
            await said(http, "a", text)
            await site._page.timelines.settle()
        first, second, third = (await http.get("/page/a/timeline")).json()["runs"]
        assert [each["ended"] for each in (first, second, third)] == ["done"] * 3
        assert (await http.get(f"/page/a/steps/{third['run']}/0")).json()["answer"] == "Three."
        (stored,) = [each for each in await site._config.store.list() if "%~" in each.id]
        assert len(msgspec.json.encode(stored.meta)) < 2 * BYTES


async def test_a_sub_agents_steps_are_kept_with_what_they_asked() -> None:
    def asking(name: str, model: ScriptedModel, *tools: Any) -> Agent[Any]:
        return Agent(model, name=name, system=f"You are {name}.", tools=list(tools))

    inner = asking("inner", ScriptedModel("Snow."))
    middle = asking("middle", ScriptedModel(call("inner", input="Snow?"), "It snows."))
    middle.scopes.register(Scope("below", tools=[inner.as_tool()]))
    agent = asking("outer", ScriptedModel(call("middle", input="Well?"), "So it is."))
    agent.scopes.register(Scope("below", tools=[middle.as_tool()]))
    async with direct(agent, page=Page(details=True, price=lambda usage: 0.25)) as (site, http):
        await said(http, "a", "What is it like?")
        await site._page.timelines.settle()
        (run,) = (await http.get("/page/a/timeline")).json()["runs"]
        begun = [each for each in run["frames"] if each["event"] == "step_started"]
        depths = [(len(each.get("path", ())), each["iteration"]) for each in begun]
        assert depths == [(0, 0), (1, 0), (2, 0), (1, 1), (0, 1)]
        way = f"/page/a/steps/{run['run']}"
        steps = [
            (await http.get(f"{way}/{each.get('chat_id', '')}/{each['iteration']}")).json()
            for each in begun
            if each.get("path")
        ]
        assert [(each["system"], each["answer"]) for each in steps] == [
            ("You are middle.", '→ inner({"input":"Snow?"})'),
            ("You are inner.", "Snow."),
            ("You are middle.", "It snows."),
        ]
        for step in steps:
            assert step["usage"]["output_tokens"] > 0
            assert step["cost"] == 0.25
            assert step["first"] is not None
        assert (await http.get(f"{way}/0")).json()["system"] == "You are outer."
        assert (await http.get(f"{way}/nobody/0")).status_code == 404


async def test_an_error_has_one_id_in_the_stream_the_timeline_and_the_log(caplog: Any) -> None:
    """Also one that comes before the first event, and one of a tool, loaded again."""
    store = MemoryStore()
    turns = ([call("fails", city="Rome")], "Well.", RuntimeError("password=hunter2"))
    agent: Agent[Any] = Agent(ScriptedModel(*turns), tools=[fails])
    async with direct(agent, store=store, page=Page()) as (site, http):
        body = {"conversation": "a", "message": "One."}
        tool = ids_in((await http.post("/native", json=body)).text)
        loaded = ids_in((await http.get("/native/a/messages")).text)
        assert len(tool) == 1
        assert tool == loaded
        streams = [(await http.post("/native", json={**body, "message": "Two."})).text]
        streams += [(await http.get(f"/{each}/a/stream")).text for each in ("native", "ai-sdk")]
        found = set().union(*map(ids_in, streams)) - tool
        await site._page.timelines.settle()
        kept = (await http.get("/page/a/timeline")).json()["runs"][-1]["text"]
        assert found == ids_in(kept)
        assert len(found) == 1
        assert found <= ids_in(caplog.text)


async def test_the_log_says_what_the_service_answered_and_where_it_was_raised(caplog: Any) -> None:
    failure = AuthenticationError(
        "key sk-secret is wrong",
        provider="openai",
        status=401,
        code="invalid\x1bkey",
        request_id="req_1",
    )
    async with direct(Agent(ScriptedModel(failure))) as (_, http):
        answer = await http.post("/native", json={"conversation": "a", "message": "One."})
    [id] = ids_in(answer.text)
    [line] = [record for record in caplog.messages if "raised at" in record]
    start = f"error {id}: provider=openai; status=401; code=invalid"
    assert line.startswith(start)
    assert "; request_id=req_1; raised at _script.py:" in line
    assert "\x1b" not in line
    assert "secret" not in caplog.text


def ids_in(text: str) -> set[str]:
    return set(re.findall(r"error ([0-9a-f]{8})", text))


@pytest.mark.parametrize("protocol", ["native", "ai-sdk", "ag-ui"])
async def test_an_error_before_the_first_event_has_one_id_too(
    protocol: Any, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken(MemoryStore):
        async def acquire(self, conversation_id: str, owner: str, *, heir: bool = False) -> int:
            if not conversation_id.startswith("%~"):
                raise StoreError("the disk is full")
            return await super().acquire(conversation_id, owner, heir=heir)

    agent: Agent[Any] = Agent(ScriptedModel("One."))
    async with direct(agent, store=Broken(), page=Page()) as (site, http):
        body = request_of(protocol, "Hi.", "a")
        answer = await http.post(f"/{protocol}", json=body)
        assert answer.status_code == 503
        told = ids_in(answer.text)
        assert len(told) == 1
        assert ids_in(caplog.text) == told
        await site._page.timelines.settle()
        assert (await site._page.timelines.read(conversation_key("owner", "a"))).runs == []


# ── who reads ───────────────────────────────────────────────────────────────────────────────


async def test_a_clients_coming_and_leaving_is_told() -> None:
    gate = Gate()
    agent: Agent[Any] = Agent(ScriptedModel(Turn("One ", "two.", delay=_after(gate, 1))))
    told: list[Any] = []
    agent.bus.add_hook(OnClientAttached, told.append)
    agent.bus.add_hook(OnClientDetached, told.append)
    async with site_of(agent, on_disconnect="detach") as (site, url), client(url) as http:
        body = {"conversation": "a", "message": "Hi."}
        async with http.stream("POST", "/native", json=body) as answer:
            async for line in answer.aiter_lines():
                if "One" in line:
                    break
        await eventually(lambda: len(told) == 2)  # it left in the middle
        assert told[0] == OnClientAttached(
            principal="owner", conversation_id="a", protocol="native", readers=1
        )
        assert told[1] == OnClientDetached(
            principal="owner", conversation_id="a", protocol="native", readers=0, finished=False
        )
        gate.open.set()
        await http.get("/ai-sdk/a/stream")
        await eventually(lambda: len(site.runs) == 0)
        await eventually(lambda: len(told) == 4 or not told[2:])
    for attached, detached in zip(told[2::2], told[3::2], strict=True):
        assert (attached.protocol, attached.replay) == ("ai-sdk", True)
        assert detached.finished


async def test_an_observer_that_raises_breaks_no_answer() -> None:
    agent: Agent[Any] = Agent(ScriptedModel("One."))

    def boom(ctx: Any) -> None:
        raise RuntimeError("boom")

    agent.bus.add_hook(OnClientAttached, boom)
    agent.bus.add_hook(OnClientDetached, boom)
    async with direct(agent) as (site, http):
        await said(http, "a", "Hi.")
        await site.shutdown()


# ── Markdown ────────────────────────────────────────────────────────────────────────────────


def tags_of(node: Any) -> set[str]:
    if isinstance(node, str):
        return set()
    return {node[0]}.union(*map(tags_of, node[2:]))


def hrefs_of(node: Any) -> list[str]:
    if isinstance(node, str):
        return []
    own = [node[1]["href"]] if "href" in node[1] else []
    return [*own, *(href for each in node[2:] for href in hrefs_of(each))]


def text_of(node: Any) -> str:
    return node if isinstance(node, str) else "".join(map(text_of, node[2:]))


def formulas(text: str) -> list[str]:
    found: list[str] = []

    def look(node: Any) -> None:
        if not isinstance(node, str):
            if node[1].get("class") == "maths":
                found.append(text_of(node))
            for each in node[2:]:
                look(each)

    for block in blocks(text):
        look(block.node)
    return found


@pytest.mark.parametrize(
    ("text", "formula"),
    [
        ("$$\n\\begin{aligned}\na_1 &= b_1 \\\\\n\n- c*d*\n$$\n", None),
        ("So:\n$$\n# x\n$$\nand *so* on", "$$\n# x\n$$"),
        ("$$ a_1\n- b_1 *c*\n+ d $$\n", None),
        ("\\[\n1. x_i * y_i *\n\\]\n", None),
        ("$$a_1 * b_1 * c$$", None),
        ("- item\n\n  $$\n  - x\n  $$\n- more", "$$\n- x\n$$"),
        ("$$\nit *grows*", None),
    ],
)
def test_a_formula_of_several_lines_is_left_as_it_is(text: str, formula: str | None) -> None:
    assert formulas(text) == [text.rstrip("\n") if formula is None else formula]


def test_a_sign_that_nothing_closes_takes_no_more_than_its_paragraph() -> None:
    after = blocks("$$ is *much*\n\n*That* is all.")[-1]
    assert tags_of(after.node) == {"p", "em"}


@pytest.mark.parametrize(
    "text",
    [
        "<script>alert(1)</script>",
        "<b onclick=x>y</b>\n\n<div>\nz\n</div>",
        "[a](javascript:alert(1))",
        "[a](JaVaScRiPt:alert(1)) [b](data:text/html,x) [c](vbscript:x) [d](file:///etc/passwd)",
        "![a](javascript:alert(1)) ![b](data:image/svg+xml,x)",
        "[a]: javascript:x\n\n[a]",
        "<javascript:alert(1)>",
        "[a](&#106;avascript:x)",
        "[a](//evil.example/x) [b](/etc) [c](#x)",
    ],
)
def test_hostile_markdown_gives_no_link_and_no_tag(text: str) -> None:
    found = [each.node for each in blocks(text)]
    assert [href for node in found for href in hrefs_of(node)] == []
    assert set().union(*map(tags_of, found)) <= {"p"}


@pytest.mark.parametrize("text", ["> " * 3000 + "x", "[" * 5000, "*a _b " * 4000, "`" * 9999])
def test_deep_and_endless_markdown_is_read_as_well(text: str) -> None:
    found = [each.node for each in blocks(text)]
    assert set().union(*map(tags_of, found)) <= TAGS


@pytest.mark.parametrize(
    "text", ["~~a *b " * 2000 + "* ~~" * 2000, "**a _b " * 2000 + "_ **" * 2000]
)
def test_a_text_whose_marks_are_nested_too_deeply_stays_a_text(text: str) -> None:
    (block,) = blocks(text)
    assert msgspec.json.decode(msgspec.json.encode(block))["node"] == ["p", {}, text]


def test_what_is_too_long_stays_text() -> None:
    (block,) = blocks("# x\n" * MOST)
    assert block.node[0] == "p"


def test_nothing_of_a_code_block_is_lost_in_its_colours() -> None:
    code = "def f(x):\n\treturn 'a' + 1  # <b>\n\n"
    for language in sorted(LANGUAGES):
        (block,) = blocks(f"```{language}\n{code}```")
        assert text_of(block.node) == code, language


def test_a_long_code_block_is_made_of_pieces_that_stay_while_it_grows() -> None:
    lines = "".join(f"x{n} = {n}  # \u2028\n" for n in range(3 * MOST_CODE // 12))
    pieces: list[Any] = []
    for end in (len(lines) // 7, len(lines) // 2, len(lines)):
        code = lines[: lines.rindex("\n", 0, end) + 1]
        (block,) = blocks(f"```python\n{code}")
        assert text_of(block.node) == code
        before, pieces = pieces, list(block.node[2:])
        assert pieces[: len(before[:-1])] == before[:-1]
        assert {text_of(piece).count("\n") for piece in pieces[:-1]} == {LINES}
    assert ["span", {"class": "n"}, "1"] in pieces[0]
    assert len(pieces[-1]) == 3  # without colours


def test_a_formula_stays_as_it_is() -> None:
    (block,) = blocks("It is $a_1 * b_1 * c$, \\(x_1_\\), $$y*z*$$, and costs $5 or *$6*.")
    assert text_of(block.node) == "It is $a_1 * b_1 * c$, \\(x_1_\\), $$y*z*$$, and costs $5 or $6."


def test_each_block_says_where_it_begins() -> None:
    text = "# a\n\nb\nc\n\n- d\n- e\n\n```\nf\n```\n"
    assert [each.line for each in blocks(text)] == [0, 2, 5, 8]


async def test_the_list_of_a_principal_does_not_depend_on_the_rows_of_others() -> None:
    def who(request: Any) -> str:
        name: str = request.headers["x-name"]
        return name

    store = MemoryStore()
    async with direct(Agent(ScriptedModel("Hello.")), store=store, authorize=who) as (_, http):
        http.headers["x-name"] = "ada"
        await said(http, "a", "Hi.")
    for number in range(5_200):
        message = UserMessage(parts=(Text("x"),))
        await Conversation([message], id=conversation_key("mallory", str(number))).save(store)
    async with direct(Agent(ScriptedModel()), store=store, authorize=who) as (_, http):
        http.headers["x-name"] = "ada"
        listed = (await http.get("/conversations")).json()["conversations"]
        assert [entry["id"] for entry in listed] == ["a"]
        found = (await http.get("/conversations", params={"search": "hi"})).json()["conversations"]
        assert [entry["id"] for entry in found] == ["a"]


async def test_a_principal_has_a_limited_number_of_conversations_copies_included() -> None:
    caps = Caps(conversations_per_principal=2)
    async with direct(Agent(ScriptedModel(*["Hello."] * 4)), caps=caps) as (_, http):
        await said(http, "a", "One?")
        await said(http, "b", "Two?")
        third = await http.post("/native", json={"conversation": "c", "message": "Three?"})
        assert third.status_code == 429
        assert "too many conversations" in third.text
        await said(http, "a", "Four?")
        messages = (await http.get("/native/a/messages")).json()["messages"]
        place = {"before": messages[2]["id"], "id": "d"}
        assert (await http.post("/conversations/a/fork", json=place)).status_code == 429
        assert (await http.delete("/conversations/b")).status_code in (200, 204)
        await said(http, "c", "Three?")
