"""The titles of conversations: the first words of the first message, as it is stored."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.web._server import client, conversation_of, direct, site_of
from tests.web.test_site import EACH, Gate, gated, native, request_of

from hookline import Agent, HookDef, NullBus, define_hook
from hookline.errors import HistoryError
from hookline.hooks import redact
from hookline.points import OnMessage, PreMessage, PreMessageUpdate
from hookline.testing import ScriptedModel

SAID = "I am joe@example.com"
KEPT = "I am [redacted]"
MAIL = r"\S+@\S+"


@EACH
@pytest.mark.parametrize("whose", ["the agent's hooks", "the site's hooks"])
async def test_a_title_has_what_the_hooks_left_of_the_message(protocol: str, whose: str) -> None:
    hooks = [redact(MAIL)]
    agent = Agent(ScriptedModel("Hello!"), hooks=hooks if whose == "the agent's hooks" else [])
    of_site = {} if whose == "the agent's hooks" else {"hooks": lambda scope, principal: hooks}
    async with direct(agent, page=True, **of_site) as (site, http):
        answer = await http.post(f"/{protocol}", json=request_of(protocol, SAID))
        assert answer.status_code == 200
        listed = await http.get("/conversations")
        assert [each["title"] for each in listed.json()["conversations"]] == [KEPT]
        talk = await conversation_of(site, "c1")
        assert (talk.messages[0].text, talk.meta["title"]) == (KEPT, KEPT)
        if protocol == "native":  # in the others, the id of the client's message repeats the text
            assert b"joe@example.com" not in talk.to_json() + answer.content


@pytest.mark.parametrize("whose", ["the agent's hooks", "the site's hooks"])
async def test_a_title_that_a_client_sets_is_redacted_like_a_message(whose: str) -> None:
    hooks = [redact(MAIL)]
    agent = Agent(ScriptedModel("Hello!"), hooks=hooks if whose == "the agent's hooks" else [])
    of_site = {} if whose == "the agent's hooks" else {"hooks": lambda scope, principal: hooks}
    async with direct(agent, page=True, **of_site) as (site, http):
        await http.post("/native", json=request_of("native", "Hi."))
        renamed = await http.patch("/conversations/c1", json={"title": SAID})
        assert renamed.json() == {"title": KEPT}
        listed = await http.get("/conversations")
        assert [each["title"] for each in listed.json()["conversations"]] == [KEPT]
        assert b"joe@example.com" not in (await conversation_of(site, "c1")).to_json()


async def test_a_hook_with_deps_may_refuse_the_title_that_a_client_sets() -> None:
    def refuse(ctx: PreMessageUpdate[Any]) -> None:
        if ctx.run.deps == "ada" and ctx.changes.text == "secret":
            raise HistoryError("not this title")

    agent = Agent(ScriptedModel("Hello!"))
    agent.add_hook("preMessageUpdate", refuse)
    async with direct(agent, deps=lambda scope, principal: "ada") as (site, http):
        await http.post("/native", json=request_of("native", "Hi."))
        renamed = await http.patch("/conversations/c1", json={"title": "secret"})
        assert renamed.status_code == 400
        assert (await conversation_of(site, "c1")).meta["title"] == "Hi."


async def test_hooks_in_a_table_are_kept_beside_the_title() -> None:
    seen: list[str] = []

    def heard(ctx: OnMessage) -> None:
        seen.append(ctx.message.role)

    agent = Agent(ScriptedModel("Hello!"))
    async with direct(agent, hooks=lambda scope, principal: {"onMessage": heard}) as (site, http):
        await http.post("/native", json=request_of("native", "hi"))
        assert (await conversation_of(site, "c1")).meta["title"] == "hi"
    assert seen == ["user", "assistant"]


async def test_a_title_is_listed_while_the_first_answer_runs_and_later_messages_keep_it() -> None:
    gate = Gate()
    async with site_of(gated("One.", "Two.", gate=gate)) as (_, url), client(url) as http:
        posting = asyncio.create_task(http.post("/native", json=request_of("native", "a  title")))
        await gate.reached.wait()
        listed = (await http.get("/conversations")).json()["conversations"]
        assert [each["title"] for each in listed] == ["a title"]
        gate.open.set()
        await posting
        await http.post("/native", json=request_of("native", "more"))
        listed = (await http.get("/conversations")).json()["conversations"]
        assert [each["title"] for each in listed] == ["a title"]


async def test_a_message_without_words_leaves_the_title_to_the_next() -> None:
    picture = {"parts": [{"part": "image", "media_type": "image/png", "data": "iVBORw=="}]}
    async with direct(Agent(ScriptedModel("One.", "Two."))) as (site, http):
        await http.post("/native", json={"conversation": "c1", "message": picture})
        assert "title" not in (await conversation_of(site, "c1")).meta
        await http.post("/native", json=request_of("native", "hi"))
        assert (await conversation_of(site, "c1")).meta["title"] == "hi"


async def test_the_title_is_no_hook_of_the_timeline() -> None:
    def same(ctx: PreMessage) -> None:
        return None

    own: HookDef = define_hook("preMessage", same, name="own")
    async with direct(Agent(ScriptedModel("Hello!"), hooks=[own]), page=True) as (_, http):
        answer = await http.post("/native", json=request_of("native", "hi"))
    assert answer.content.count(b'"hook":"own"') == 2
    assert b"hookline.web" not in answer.content
    assert native(answer.content)


async def test_a_title_needs_no_hooks() -> None:
    """On a NullBus no hook runs, so there is no hook that could have changed the message."""
    async with direct(Agent(ScriptedModel("Hello!"), bus=NullBus())) as (site, http):
        await http.post("/native", json=request_of("native", "hi"))
        listed = (await http.get("/conversations")).json()["conversations"]
        assert [each["id"] for each in listed] == ["c1"]
        assert [m.text for m in (await conversation_of(site, "c1")).messages] == ["hi", "Hello!"]
