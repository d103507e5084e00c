"""Roads of a probe on which the call waits, or is made by another agent or in a durable chat."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any, Final

from hookline import (
    Approve,
    Conversation,
    Deny,
    MemoryStore,
    ModelRequest,
    Scope,
    ToolMessage,
    define_hook,
)
from hookline.errors import ApprovalError, HooklineError, UsageError
from hookline.models import Chunk
from hookline.points import AroundToolCall, OnApproval
from hookline.runtimes import Durable, Halted, Journal
from hookline.testing._guard_road import (
    LAST,
    NEXT,
    OURS,
    SUB_AGENT,
    LeftOutError,
    Road,
    Walk,
)
from hookline.testing._script import ScriptedModel
from hookline.testing._time import TestRuntime
from hookline.testing._turn import call as call_of

_MOST_BATCHES: Final = 100  # of the record of a durable chat; about ten are written


# ── a call that waits ───────────────────────────────────────────────────────────────────────


async def _wait(road: Road, *hooks: Any, **options: Any) -> tuple[Any, Conversation, Any]:
    """A chat that ends with a question; returns its agent, conversation and approvals."""
    agent, talk = options.pop("agent", None) or road.guarded(), Conversation()
    response = await road.chat(agent, *hooks, conversation=talk, approver=None)
    return agent, talk, {request.id: Approve() for request in response.pending}


async def changed_by_an_answer(road: Road) -> None:
    road.is_approved = True
    agent = road.guarded(road.turn(road.harmless))
    agent, talk, answers = await _wait(road, road.question(), agent=agent)
    edits = dict.fromkeys(answers, road.edited)
    await road.resume(agent, talk, edits, hooks=[road.question()])


async def answered_too_late(road: Road) -> None:
    clock = TestRuntime()
    agent, talk, answers = await _wait(
        road, road.question(expires=60.0), agent=road.guarded(runtime=clock)
    )
    clock.advance(61.0)
    with road.refusing(ApprovalError):
        await road.resume(agent, talk, answers, hooks=[road.question()])


async def answered_twice(road: Road) -> None:
    """The process dies while the tool runs, and another one has the same answer."""
    agent, talk, answers = await _wait(road, road.question())

    async def resume_copy() -> None:
        road.on_run = None
        copy = Conversation.from_json(talk.to_json())
        with road.refusing(HooklineError):
            await road.resume(road.guarded("done"), copy, answers, hooks=[road.question()])

    road.on_run = resume_copy
    await road.resume(agent, talk, answers, hooks=[road.question()])
    road.count()


async def without_the_hooks(road: Road) -> None:
    """The chat had hooks of its own, with which the resumed chat does not run."""
    agent, talk, answers = await _wait(road, road.question(required=True))
    with road.refusing(UsageError):
        await road.resume(agent, talk, answers)


async def new_chat(road: Road) -> None:
    """The user goes on without answering."""

    def note(ctx: OnApproval[Any]) -> None:
        road.ran = road.ran or isinstance(ctx.decision, Approve)

    agent, talk, _ = await _wait(road, road.question())
    agent.add_hook("onApproval", note, name=OURS)
    await road.chat(agent, conversation=talk, approver=None, model=ScriptedModel("done"))


async def stored_request_changed(road: Road) -> None:
    road.must_differ()
    agent = road.guarded(road.turn(road.harmless))
    agent, talk, answers = await _wait(road, road.question(), agent=agent)
    if not answers:
        return
    data = json.loads(talk.to_json())
    data["pending"]["requests"][0]["call"]["arguments"] = dict(road.call.arguments)
    for answer in (Approve(), Deny("only a probe")):  # a person has seen another call
        copy = Conversation.from_json(json.dumps(data))
        with road.refusing(ApprovalError):
            await road.resume(agent, copy, dict.fromkeys(answers, answer), hooks=[road.question()])
        road.ran = road.ran or not copy.pending  # the answer was accepted: the question is gone


async def client_tool_removed(road: Road) -> None:
    flag = [True]
    scopes = road.scopes(client=True, enabled=lambda: bool(flag))
    agent, talk, answers = await _wait(road, road.question(), agent=road.guarded(scopes=scopes))
    flag.clear()
    await road.resume(agent, talk, answers, hooks=[road.question()])
    road.ran = any(road.is_meant(call.name, call.arguments) for call in talk.client_calls)


# ── access is withdrawn later ───────────────────────────────────────────────────────────────


async def withdrawn_while_an_approver_thinks(road: Road) -> None:
    road.is_approved = True
    road.withdrawn = False

    async def approve(request: Any, run: Any) -> Approve:
        road.withdrawn = True
        return Approve()

    await road.chat(road.guarded(later=True), road.question(), approver=approve)


async def withdrawn_between_two_runs(road: Road) -> None:
    road.is_approved = True
    road.withdrawn = False

    async def run(ctx: AroundToolCall[Any], proceed: Any) -> Any:
        await proceed()
        road.ran, road.withdrawn = False, True
        return await proceed()

    hook = define_hook("aroundToolCall", run, name=OURS, priority=LAST)
    await road.chat(road.guarded(later=True), hook)


async def withdrawn_while_it_waits(road: Road) -> None:
    road.is_approved = True
    road.withdrawn = False
    agent, talk, answers = await _wait(road, road.question(), agent=road.guarded(later=True))
    road.withdrawn = True
    await road.resume(agent, talk, answers, hooks=[road.question()])


async def withdrawn_in_a_store(road: Road) -> None:
    """Another agent, with nothing but the store in common, gets the answer."""
    road.is_approved = True
    store = MemoryStore()
    first = road.bare(store=store)
    response = await road.chat(first, road.question(), conversation="probe", approver=None)
    answers = {request.id: Approve() for request in response.pending}
    await road.resume(road.guarded("done", store=store), "probe", answers)


async def withdrawn_while_a_sub_agent_waits(road: Road) -> None:
    road.is_approved = True
    road.must_inherit()
    below, talk = road.bare(), Conversation()
    below.add_hook("preToolCall", road.question().fn, name=OURS)
    top = [call_of(SUB_AGENT, input="probe"), "done"]
    first = road.bare(*top, tools=[below.as_tool(name=SUB_AGENT)])
    response = await road.chat(first, conversation=talk, approver=None)
    answers = {request.id: Approve() for request in response.pending}
    second = road.guarded("done", scopes=_with(road, below.as_tool(name=SUB_AGENT)))
    await road.resume(second, talk, answers)


# ── other agents ────────────────────────────────────────────────────────────────────────────


def _with(road: Road, *tools: Any) -> list[Any]:
    """The scopes of the agent, and one with these tools."""
    return [*road.scopes(), Scope(OURS, tools=tools)]


async def in_a_sub_agent(road: Road) -> None:
    tools = [road.guarded().as_tool(name=SUB_AGENT)]
    await road.chat(road.bare(call_of(SUB_AGENT, input="probe"), tools=tools))


def below(levels: int) -> Walk:
    async def walk(road: Road) -> None:
        road.must_inherit()
        agent = road.bare()
        for _ in range(levels - 1):
            tools = [agent.as_tool(name=SUB_AGENT)]
            agent = road.bare(call_of(SUB_AGENT, input="probe"), tools=tools)
        scopes = _with(road, agent.as_tool(name=SUB_AGENT))
        await road.chat(road.guarded(call_of(SUB_AGENT, input="probe"), scopes=scopes))

    return walk


async def after_a_handoff(road: Road) -> None:
    first = road.guarded(call_of(f"transfer_to_{NEXT}"))
    target, turns = road.bare(name=NEXT), list[str]()
    target.add_hook("preRequest", lambda ctx: turns.append(ctx.run.agent), name=OURS)
    first.handoffs(target)
    await road.chat(first)
    if not turns:
        raise LeftOutError("the agent's hooks allow no handoff")


async def handed_over_to(road: Road) -> None:
    first = road.bare(call_of(f"transfer_to_{NEXT}"), name="probe_first", scopes=[])
    first.handoffs(road.guarded(name=NEXT))
    await road.chat(first)


# ── durable chats ───────────────────────────────────────────────────────────────────────────


class _Model:
    """A model that goes on where the history is, in any life of a durable chat."""

    name = provider = OURS

    def __init__(self, turn: Any) -> None:
        self._turn = turn

    async def stream(self, request: ModelRequest, /) -> AsyncIterator[Chunk]:
        turn = "done" if isinstance(request.messages[-1], ToolMessage) else self._turn
        async for chunk in ScriptedModel(turn).stream(request):
            yield chunk


class _Log:
    """The record of a durable chat in memory. The worker dies at the batch with this number."""

    def __init__(self, road: Road, crash: int | None = None) -> None:
        self._road = road
        self._crash = crash
        self._batches: list[bytes] = []
        self.answer_of: Any = road.deny

    async def read(self) -> list[bytes]:
        return list(self._batches)

    async def append(self, data: bytes) -> None:
        if len(self._batches) == self._crash:
            self._crash = None
            raise Halted
        self._batches.append(data)

    async def answer(self, request: Any) -> Any:
        return await self.answer_of(request, None)

    def poke(self) -> None:
        """Nothing is suspended here."""


async def _live(road: Road, log: _Log, *hooks: Any) -> bool:
    """One life of a durable chat; returns whether the chat has ended."""
    agent = road.guarded(model=_Model(road.turn()), runtime=Durable(), later=True)
    journal = await Journal.open("probe", log)
    options: dict[str, Any] = {"approver": None, "chat_id": "probe"}
    try:
        await journal.carry(lambda: road.chat(agent, *hooks, **options))
    except Halted:
        return False
    return True


async def durable(road: Road) -> None:
    await _live(road, _Log(road))


async def withdrawn_while_a_durable_chat_waits(road: Road) -> None:
    road.is_approved = True
    road.withdrawn = False

    async def approve(request: Any, run: Any) -> Approve:
        road.withdrawn = True
        return Approve()

    log = _Log(road)
    log.answer_of = approve
    await _live(road, log, road.question())


async def withdrawn_before_a_replay(road: Road) -> None:
    """The worker dies at each place of the record in turn, and another one goes on."""
    road.is_approved = True
    for crash in range(_MOST_BATCHES):
        road.withdrawn = False
        log = _Log(road, crash)
        if await _live(road, log):
            break
        road.ran, road.withdrawn = False, True
        await _live(road, log)
        if road.ran:
            return
    road.ran = False  # of the life that did not end early, before access was withdrawn
