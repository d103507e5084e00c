"""Remembered approvals on the web: a principal lists those that hold for it, and revokes one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from tests.web.test_site import direct, name_of

from hookline import Agent, Approve, Ask, MemoryStore
from hookline.storage import Rule, list_rules
from hookline.testing import ScriptedModel, call
from hookline.web import conversation_key

ANN, LEA = {"x-user": "ann"}, {"x-user": "lea"}
TOKEN = {"authorization": f"Bearer {'secret ' * 4}"}


async def pay(euros: int) -> str:
    """Pay."""
    return f"paid {euros}"


def till(store: MemoryStore, *turns: Any) -> Agent[Any]:
    agent: Agent[Any] = Agent(ScriptedModel(*turns), name="till", tools=[pay], store=store)
    agent.add_hook("preToolCall", lambda ctx: Ask("Pay?"), guard=True)
    return agent


async def remember(store: MemoryStore, principal: str, rule: Rule) -> str:
    """Let a person approve a call of this principal with a rule; returns the rule's id."""
    key = conversation_key(principal, "c")
    agent = till(store, call("pay", euros=5), "done")
    (request,) = (await agent.chat("go", conversation=key)).pending
    await agent.resume(key, {request.id: Approve(by="lea", remember=rule)})
    (made,) = await list_rules(store, None if rule.scope == "always" else key)
    return made.id


async def rules_of(http: Any, user: Mapping[str, str], conversation: str = "c") -> list[Any]:
    reply = await http.get(f"/rules?conversation={conversation}", headers=user)
    assert reply.status_code == 200, reply.text
    rules: list[Any] = reply.json()["rules"]
    return rules


async def test_the_owner_of_a_conversation_lists_its_rules_and_revokes_one() -> None:
    store = MemoryStore()
    id = await remember(store, "ann", Rule("pay", until=1e12))
    agent = till(store, call("pay", euros=5), "done", call("pay", euros=5))
    async with direct(agent, authorize=name_of) as (_, http):
        (rule,) = await rules_of(http, ANN)
        about = {name: rule[name] for name in ("id", "agent", "tool", "arguments", "by", "until")}
        assert about == {
            "id": id,
            "agent": "till",
            "tool": "pay",
            "arguments": {"euros": 5},
            "by": "lea",
            "until": 1e12,
        }
        body = {"conversation": "c", "message": "Again."}
        assert "approval_requested" not in (await http.post("/native", json=body, headers=ANN)).text
        where = f"/rules/{id}?conversation=c"
        assert (await http.delete(where, headers=ANN)).status_code == 204
        assert (await http.delete(where, headers=ANN)).status_code == 404
        assert await rules_of(http, ANN) == []
        assert "approval_requested" in (await http.post("/native", json=body, headers=ANN)).text


async def test_nobody_else_sees_or_revokes_the_rules_of_a_conversation() -> None:
    store = MemoryStore()
    id = await remember(store, "ann", Rule("pay"))
    async with direct(till(store), authorize=name_of) as (_, http):
        assert await rules_of(http, LEA) == []
        assert await rules_of(http, LEA, "ann/c") == []
        for conversation in ("c", "ann/c", ""):
            reply = await http.delete(f"/rules/{id}?conversation={conversation}", headers=LEA)
            assert reply.status_code == 404
        assert len(await rules_of(http, ANN)) == 1


@pytest.mark.parametrize("conversation", ["", "c", "unknown"])
async def test_rules_for_all_conversations_are_for_those_who_share_the_token(
    conversation: str,
) -> None:
    store = MemoryStore()
    id = await remember(store, "ann", Rule("pay", scope="always"))
    async with direct(till(store), authorize=name_of) as (_, http):
        assert await rules_of(http, ANN, conversation) == []
        where = f"/rules/{id}?conversation={conversation}"
        assert (await http.delete(where, headers=ANN)).status_code == 404
    token = TOKEN["authorization"].removeprefix("Bearer ").strip()
    async with direct(till(store), token=token) as (_, http):
        assert (await http.get("/rules")).status_code == 401
        (rule,) = await rules_of(http, TOKEN, conversation)
        assert (rule["id"], rule["scope"]) == (id, "always")
        assert (await http.delete(where, headers=TOKEN)).status_code == 204
    assert await list_rules(store) == ()


async def test_a_rule_is_not_revoked_while_a_chat_of_its_conversation_runs() -> None:
    store = MemoryStore()
    id = await remember(store, "ann", Rule("pay"))
    key = conversation_key("ann", "c")
    await store.acquire(key, "another process")
    async with direct(till(store), authorize=name_of) as (_, http):
        reply = await http.delete(f"/rules/{id}?conversation=c", headers=ANN)
        assert (reply.status_code, "busy" in reply.text) == (409, True)
        await store.release(key, "another process")
        assert (await http.delete(f"/rules/{id}?conversation=c", headers=ANN)).status_code == 204


@pytest.mark.parametrize(
    ("method", "path", "allow"), [("POST", "/rules", "GET"), ("GET", "/rules/r1", "DELETE")]
)
async def test_another_method_is_refused(method: str, path: str, allow: str) -> None:
    async with direct(till(MemoryStore()), authorize=name_of) as (_, http):
        reply = await http.request(method, path, headers=ANN)
        assert (reply.status_code, reply.headers["allow"]) == (405, allow)
