"""`app(policies=…)`: a principal tries a policy out on its own stored conversations."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest
from tests.web.test_site import direct, name_of

from hookline import Agent, Ask, Deny, MemoryStore, define_hook
from hookline.points import PreToolCall
from hookline.testing import ScriptedModel, call

ANN, LEA = {"x-user": "ann"}, {"x-user": "lea"}


async def pay(amount: int) -> str:
    """Pay."""
    paid.append(amount)
    return f"paid {amount}"


paid: list[int] = []


@pytest.fixture(autouse=True)
def _nothing_is_paid() -> None:
    paid.clear()


@define_hook("preToolCall", tools=["pay"])
def limit(ctx: PreToolCall) -> Ask | None:
    return Ask("over 50: sure?") if ctx.call.arguments["amount"] > 50 else None


@define_hook("preToolCall", tools=["pay"])
def deps_decide(ctx: PreToolCall[str]) -> Deny | None:
    return Deny(f"not for {ctx.run.deps}")


@define_hook("preToolCall", tools=["pay"])
def broken(ctx: PreToolCall) -> None:
    raise ValueError("the key is sk-secret")


def policies_of(principal: str) -> Mapping[str, Any]:
    hooks = {"limit": [limit], "by user": [deps_decide], "broken": [broken]}
    return hooks if principal == "ann" else {}


def desk(chats: int = 2) -> Agent[Any]:
    turns = [[call("pay", amount=80 - 60 * (number % 2)), "Paid."] for number in range(chats)]
    return Agent(ScriptedModel(*[turn for pair in turns for turn in pair]), tools=[pay])


def serving(agent: Agent[Any], **options: Any) -> Any:
    settings: dict[str, Any] = {"store": MemoryStore(), "policies": policies_of}
    return direct(agent, authorize=name_of, **settings | options)


async def ask(http: Any, conversation: str, user: Mapping[str, str] = ANN) -> None:
    body = {"conversation": conversation, "message": f"Pay in {conversation}."}
    assert (await http.post("/native", json=body, headers=user)).status_code == 200


async def report(http: Any, policy: str) -> dict[str, Any]:
    reply = await http.post("/policies", json={"policy": policy}, headers=ANN)
    assert reply.status_code == 200, reply.text
    data: dict[str, Any] = reply.json()
    return data


async def test_a_policy_is_replayed_over_the_own_conversations_alone() -> None:
    async with serving(desk(3)) as (_, http):
        await ask(http, "first")
        await ask(http, "second")
        await ask(http, "hers", LEA)
        assert paid == [80, 20, 80]
        data = await report(http, "limit")
        assert paid == [80, 20, 80]
    (verdict,) = data.pop("verdicts")
    assert data == {
        "policy": "limit",
        "chats": 2,
        "more": False,
        "differ": 1,
        "counts": {"asks": 1},
        "inexact": {},
    }
    assert verdict == {
        "conversation": "first",
        "title": "Pay in first.",
        "step": 0,
        "call": "pay(amount=80)",
        "was": "ok",
        "now": "asks",
        "after": False,
        "by": "limit",
        "why": "over 50: sure?",
    }


async def test_only_a_principal_with_policies_may_replay() -> None:
    async with serving(desk()) as (_, http):
        await ask(http, "c", LEA)
        names = (await http.get("/policies", headers=ANN)).json()
        assert names == {"policies": ["limit", "by user", "broken"]}
        assert (await http.get("/policies", headers=LEA)).json() == {"policies": []}
        reply = await http.post("/policies", json={"policy": "limit"}, headers=LEA)
        assert reply.status_code == 404
        assert (await http.delete("/policies", headers=ANN)).status_code == 405
        foreign = {**ANN, "origin": "https://elsewhere.example"}
        reply = await http.post("/policies", json={"policy": "limit"}, headers=foreign)
        assert reply.status_code == 403


async def test_without_policies_there_is_no_route() -> None:
    async with serving(desk(), policies=None) as (_, http):
        assert (await http.get("/policies", headers=ANN)).status_code == 404


async def test_deps_and_hooks_are_those_of_the_principal() -> None:
    def double(ctx: PreToolCall[str]) -> Any:
        return ctx.call.replace(arguments={"amount": ctx.call.arguments["amount"] * 2})

    def chat_hooks(scope: Any, principal: str) -> Any:
        return [define_hook("preToolCall", double)]

    options: dict[str, Any] = {"deps": lambda scope, principal: principal, "hooks": chat_hooks}
    async with serving(desk(), **options) as (_, http):
        await ask(http, "c")
        assert paid == [160]
        data = await report(http, "by user")
    assert data["inexact"] == {}  # the chat's own hooks are part of the agent as it is
    assert [(v["now"], v["why"]) for v in data["verdicts"]] == [("denied", "not for ann")]


async def test_no_conversations_is_an_empty_report() -> None:
    async with serving(desk()) as (_, http):
        data = await report(http, "limit")
    assert (data["chats"], data["verdicts"]) == (0, [])


async def test_the_latest_200_chats_are_replayed_and_200_verdicts_are_told() -> None:
    turns = [[call("pay", amount=80), call("pay", amount=20)], "Paid."] * 202
    async with serving(Agent(ScriptedModel(*turns), tools=[pay])) as (_, http):
        for conversation in ("old", *["long"] * 200, "new"):
            await ask(http, conversation)
        data = await report(http, "by user")
    assert (data["chats"], data["more"], data["counts"]) == (200, True, {"denied": 400})
    assert [v["conversation"] for v in data["verdicts"]] == ["new"] * 2 + ["long"] * 198


async def test_an_exception_of_a_policy_is_not_shown() -> None:
    async with serving(desk()) as (_, http):
        await ask(http, "c")
        reply = await http.post("/policies", json={"policy": "broken"}, headers=ANN)
    assert "raised" in [v["now"] for v in reply.json()["verdicts"]]
    assert "secret" not in reply.text


async def test_a_principal_has_one_replay_at_a_time(monkeypatch: Any) -> None:
    begun, end = asyncio.Event(), asyncio.Event()

    async def wait(ctx: PreToolCall) -> None:
        begun.set()
        await end.wait()

    slow = {"slow": [define_hook("preToolCall", wait)]}
    async with serving(desk(), policies=lambda principal: slow) as (_, http):
        await ask(http, "c")
        first = asyncio.ensure_future(report(http, "slow"))
        await begun.wait()
        second = await http.post("/policies", json={"policy": "slow"}, headers=ANN)
        assert (second.status_code, second.text) == (
            409,
            "A replay of yours is running; wait for its end.",
        )
        end.set()
        assert (await first)["differ"] == 0
        timeout = asyncio.timeout
        monkeypatch.setattr(asyncio, "timeout", lambda s: timeout(0 if s == 30 else s))
        end.clear()
        third = await http.post("/policies", json={"policy": "slow"}, headers=ANN)
        assert third.status_code == 503
        monkeypatch.undo()
        end.set()
        assert (await report(http, "slow"))["chats"] == 1  # it is free again
