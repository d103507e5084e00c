"""The approved, the shown, the stored and the run are one value, whoever tries to change it."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from tests._writing import attack

from hookline import Agent, Approve, Ask, Conversation, MemoryStore, Run, tool
from hookline.errors import ApprovalError, HookError
from hookline.events import ApprovalRequested, ToolCallStarted
from hookline.points import TABLE
from hookline.testing import ScriptedModel, call

ORDER: dict[str, Any] = {"lines": [{"amount": 1, "to": ["ada"]}]}


class Chat:
    """One call that asks, and everything that somebody was given of it."""

    def __init__(self, *, approver: bool) -> None:
        self.ran: list[Any] = []
        self.approved: list[Any] = []
        self.shown: list[Any] = []
        self.through: list[str] = []
        self.store = MemoryStore()

        @tool
        async def pay(lines: list[dict[str, Any]], run: Run) -> Any:
            """Pay."""
            self.ran.append(copy.deepcopy({"lines": lines}))
            lines[0]["amount"] = 1000  # its own
            lines.append({"amount": 7})
            self.attack(run.history[-1])
            return {"paid": lines}

        def answer(request: Any, run: Any) -> Approve:
            self.attack(request)
            self.approved.append(copy.deepcopy(request.call.arguments))
            return Approve()

        self.agent: Agent[Any] = Agent(
            ScriptedModel(call("pay", **ORDER), "done"),
            tools=[pay],
            store=self.store,
            approver=answer if approver else None,
        )
        self.agent.add_hook("preToolCall", lambda ctx: Ask("sure?"), priority=1)

    def attack(self, payload: Any) -> None:
        self.through += attack(payload)

    def attack_at(self, point: str) -> None:
        """Somebody at this point, before and after what it wraps, writes wherever it can."""
        if TABLE[point].kind != "wrapper":
            self.agent.add_hook(point, self.attack, priority=-5)
            return

        async def around(ctx: Any, proceed: Any) -> Any:
            self.attack(ctx)
            result = await proceed()
            self.attack(result)
            return result

        self.agent.add_hook(point, around, priority=-5)

    async def play(self) -> None:
        talk = "talk"
        async with self.agent.chat_stream("go", conversation=talk) as stream:
            async for event in stream:
                self.see(event)
        waiting = stream.response.pending
        if waiting:
            self.approved += [copy.deepcopy(waiting[0].call.arguments)]
            self.attack(stream.response)
            answers = {waiting[0].id: Approve()}
            async with self.agent.resume_stream(talk, answers) as stream:
                async for event in stream:
                    self.see(event)

    def see(self, event: Any) -> None:
        self.attack(event)
        if isinstance(event, ToolCallStarted):
            self.shown.append(copy.deepcopy(event.call.arguments))
        if isinstance(event, ApprovalRequested):
            self.shown.append(copy.deepcopy(event.request.call.arguments))

    async def stored(self) -> Any:
        loaded: Any = await self.store.load("talk")
        return [call.arguments for message in loaded.messages for call in calls_of(message)]


def calls_of(message: Any) -> Any:
    return [part for part in getattr(message, "parts", ()) if hasattr(part, "arguments")]


@pytest.mark.parametrize("approver", [True, False], ids=["approver", "resume"])
@pytest.mark.parametrize("point", list(TABLE))
async def test_nobody_at_any_point_changes_what_was_approved(point: str, approver: bool) -> None:
    chat = Chat(approver=approver)
    chat.attack_at(point)
    await chat.play()
    assert chat.through == []
    assert chat.ran == chat.approved == [ORDER]
    assert chat.shown == [ORDER] * 2
    assert await chat.stored() == [ORDER]


@pytest.mark.parametrize("approver", [True, False], ids=["approver", "resume"])
@pytest.mark.parametrize("which", ["asked", "answered"])
async def test_an_observer_that_writes_by_force_is_noticed_and_nothing_runs(
    which: str, approver: bool
) -> None:
    """The seal is compared after the last hook, and what is sealed is bound."""
    chat = Chat(approver=approver)

    @chat.agent.hook("onApproval")
    def force(ctx: Any) -> None:
        if (ctx.decision is None) == (which == "asked"):
            dict.update(ctx.request.call.arguments["lines"][0], amount=1000)

    with pytest.raises(ApprovalError):
        await chat.play()
    assert chat.ran == []


@pytest.mark.parametrize("approver", [True, False], ids=["approver", "resume"])
async def test_a_wrapper_cannot_put_other_arguments_in_place_of_the_approved(
    approver: bool,
) -> None:
    chat = Chat(approver=approver)

    @chat.agent.hook("aroundToolCall")
    async def other(ctx: Any, proceed: Any) -> Any:
        return await proceed(ctx.call.replace(arguments={"lines": [{"amount": 1000}]}))

    with pytest.raises(HookError, match="was approved and can no longer be changed"):
        await chat.play()
    assert chat.ran == []


async def test_what_a_hook_put_into_a_call_is_its_own_no_more() -> None:
    mine = {"lines": [{"amount": 2}]}
    chat = Chat(approver=True)
    chat.agent.add_hook("preToolCall", lambda ctx: ctx.call.replace(arguments=mine), priority=2)

    @chat.agent.hook("onApproval")
    def later(ctx: Any) -> None:
        mine["lines"][0]["amount"] = 1000

    await chat.play()
    assert chat.ran == chat.approved == [{"lines": [{"amount": 2}]}]


async def test_what_an_approver_wrote_is_its_own_no_more() -> None:
    mine = {"lines": [{"amount": 3}]}
    chat = Chat(approver=False)
    talk = Conversation()
    response = await chat.agent.chat("go", conversation=talk)
    decision = Approve(arguments=mine)

    @chat.agent.hook("onApproval")
    def later(ctx: Any) -> None:
        mine["lines"][0]["amount"] = 1000
        assert attack(ctx) == []

    await chat.agent.resume(talk, {response.pending[0].id: decision})
    assert chat.ran == [{"lines": [{"amount": 3}]}]
