"""Paths of a probe on which the call waits, or is made by another agent or in a durable chat."""

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
from hookline.testing._guard_path import (
    LAST,
    NEXT,
    OURS,
    SUB_AGENT,
    CallPath,
    LeftOutError,
    Walk,
)
from hookline.testing._script import ScriptedModel
from hookline.testing._time import TestRuntime
from hookline.testing._turn import call as call_of

_MOST_BATCHES: Final = 100  # of the record of a durable chat; about ten are written


# ── a call that waits ───────────────────────────────────────────────────────────────────────


async def _wait(path: CallPath, *hooks: Any, **options: Any) -> tuple[Any, Conversation, Any]:
    """A chat that ends with a question; returns its agent, conversation and approvals."""
    agent, talk = options.pop("agent", None) or path.guarded(), Conversation()
    response = await path.chat(agent, *hooks, conversation=talk, approver=None)
    return agent, talk, {request.id: Approve() for request in response.pending}


async def changed_by_an_answer(path: CallPath) -> None:
    path.is_approved = True
    agent = path.guarded(path.turn(path.harmless))
    agent, talk, answers = await _wait(path, path.question(), agent=agent)
    edits = dict.fromkeys(answers, path.edited)
    await path.resume(agent, talk, edits, hooks=[path.question()])


async def answered_too_late(path: CallPath) -> None:
    clock = TestRuntime()
    agent, talk, answers = await _wait(
        path, path.question(expires=60.0), agent=path.guarded(runtime=clock)
    )
    clock.advance(61.0)
    with path.refusing(ApprovalError):
        await path.resume(agent, talk, answers, hooks=[path.question()])


async def answered_twice(path: CallPath) -> None:
    """The process dies while the tool runs, and another one has the same answer."""
    agent, talk, answers = await _wait(path, path.question())

    async def resume_copy() -> None:
        path.on_run = None
        copy = Conversation.from_json(talk.to_json())
        with path.refusing(HooklineError):
            await path.resume(path.guarded("done"), copy, answers, hooks=[path.question()])

    path.on_run = resume_copy
    await path.resume(agent, talk, answers, hooks=[path.question()])
    path.count()


async def without_the_hooks(path: CallPath) -> None:
    """The chat had hooks of its own, with which the resumed chat does not run."""
    agent, talk, answers = await _wait(path, path.question(required=True))
    with path.refusing(UsageError):
        await path.resume(agent, talk, answers)


async def new_chat(path: CallPath) -> None:
    """The user goes on without answering."""

    def note(ctx: OnApproval[Any]) -> None:
        path.ran = path.ran or isinstance(ctx.decision, Approve)

    agent, talk, _ = await _wait(path, path.question())
    agent.add_hook("onApproval", note, name=OURS)
    await path.chat(agent, conversation=talk, approver=None, model=ScriptedModel("done"))


async def stored_request_changed(path: CallPath) -> None:
    path.must_differ()
    agent = path.guarded(path.turn(path.harmless))
    agent, talk, answers = await _wait(path, path.question(), agent=agent)
    if not answers:
        return
    data = json.loads(talk.to_json())
    data["pending"]["requests"][0]["call"]["arguments"] = dict(path.call.arguments)
    for answer in (Approve(), Deny("only a probe")):  # a person has seen another call
        copy = Conversation.from_json(json.dumps(data))
        with path.refusing(ApprovalError):
            await path.resume(agent, copy, dict.fromkeys(answers, answer), hooks=[path.question()])
        path.ran = path.ran or not copy.pending  # the answer was accepted: the question is gone


async def client_tool_removed(path: CallPath) -> None:
    flag = [True]
    scopes = path.scopes(client=True, enabled=lambda: bool(flag))
    agent, talk, answers = await _wait(path, path.question(), agent=path.guarded(scopes=scopes))
    flag.clear()
    await path.resume(agent, talk, answers, hooks=[path.question()])
    path.ran = any(path.is_meant(call.name, call.arguments) for call in talk.client_calls)


# ── access is withdrawn later ───────────────────────────────────────────────────────────────


async def withdrawn_while_an_approver_thinks(path: CallPath) -> None:
    path.is_approved = True
    path.withdrawn = False

    async def approve(request: Any, run: Any) -> Approve:
        path.withdrawn = True
        return Approve()

    await path.chat(path.guarded(later=True), path.question(), approver=approve)


async def withdrawn_between_two_runs(path: CallPath) -> None:
    path.is_approved = True
    path.withdrawn = False

    async def run(ctx: AroundToolCall[Any], proceed: Any) -> Any:
        await proceed()
        path.ran, path.withdrawn = False, True
        return await proceed()

    hook = define_hook("aroundToolCall", run, name=OURS, priority=LAST)
    await path.chat(path.guarded(later=True), hook)


async def withdrawn_while_it_waits(path: CallPath) -> None:
    path.is_approved = True
    path.withdrawn = False
    agent, talk, answers = await _wait(path, path.question(), agent=path.guarded(later=True))
    path.withdrawn = True
    await path.resume(agent, talk, answers, hooks=[path.question()])


async def withdrawn_in_a_store(path: CallPath) -> None:
    """Another agent, with nothing but the store in common, gets the answer."""
    path.is_approved = True
    store = MemoryStore()
    first = path.bare(store=store)
    response = await path.chat(first, path.question(), conversation="probe", approver=None)
    answers = {request.id: Approve() for request in response.pending}
    await path.resume(path.guarded("done", store=store), "probe", answers)


async def withdrawn_while_a_sub_agent_waits(path: CallPath) -> None:
    path.is_approved = True
    path.must_inherit()
    below, talk = path.bare(), Conversation()
    below.add_hook("preToolCall", path.question().fn, name=OURS)
    top = [call_of(SUB_AGENT, input="probe"), "done"]
    first = path.bare(*top, tools=[below.as_tool(name=SUB_AGENT)])
    response = await path.chat(first, conversation=talk, approver=None)
    answers = {request.id: Approve() for request in response.pending}
    second = path.guarded("done", scopes=_with(path, below.as_tool(name=SUB_AGENT)))
    await path.resume(second, talk, answers)


# ── other agents ────────────────────────────────────────────────────────────────────────────


def _with(path: CallPath, *tools: Any) -> list[Any]:
    """The scopes of the agent, and one with these tools."""
    return [*path.scopes(), Scope(OURS, tools=tools)]


async def in_a_sub_agent(path: CallPath) -> None:
    tools = [path.guarded().as_tool(name=SUB_AGENT)]
    await path.chat(path.bare(call_of(SUB_AGENT, input="probe"), tools=tools))


def below(levels: int) -> Walk:
    async def walk(path: CallPath) -> None:
        path.must_inherit()
        agent = path.bare()
        for _ in range(levels - 1):
            tools = [agent.as_tool(name=SUB_AGENT)]
            agent = path.bare(call_of(SUB_AGENT, input="probe"), tools=tools)
        scopes = _with(path, agent.as_tool(name=SUB_AGENT))
        await path.chat(path.guarded(call_of(SUB_AGENT, input="probe"), scopes=scopes))

    return walk


async def after_a_handoff(path: CallPath) -> None:
    first = path.guarded(call_of(f"transfer_to_{NEXT}"))
    target, turns = path.bare(name=NEXT), list[str]()
    target.add_hook("preRequest", lambda ctx: turns.append(ctx.run.agent), name=OURS)
    first.handoffs(target)
    await path.chat(first)
    if not turns:
        raise LeftOutError("the agent's hooks allow no handoff")


async def handed_over_to(path: CallPath) -> None:
    first = path.bare(call_of(f"transfer_to_{NEXT}"), name="probe_first", scopes=[])
    first.handoffs(path.guarded(name=NEXT))
    await path.chat(first)


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

    def __init__(self, path: CallPath, crash: int | None = None) -> None:
        self._path = path
        self._crash = crash
        self._batches: list[bytes] = []
        self.answer_of: Any = path.deny

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


async def _live(path: CallPath, log: _Log, *hooks: Any) -> bool:
    """One life of a durable chat; returns whether the chat has ended."""
    agent = path.guarded(model=_Model(path.turn()), runtime=Durable(), later=True)
    journal = await Journal.open("probe", log)
    options: dict[str, Any] = {"approver": None, "chat_id": "probe"}
    try:
        await journal.carry(lambda: path.chat(agent, *hooks, **options))
    except Halted:
        return False
    return True


async def durable(path: CallPath) -> None:
    await _live(path, _Log(path))


async def withdrawn_while_a_durable_chat_waits(path: CallPath) -> None:
    path.is_approved = True
    path.withdrawn = False

    async def approve(request: Any, run: Any) -> Approve:
        path.withdrawn = True
        return Approve()

    log = _Log(path)
    log.answer_of = approve
    await _live(path, log, path.question())


async def withdrawn_before_a_replay(path: CallPath) -> None:
    """The worker dies at each place of the record in turn, and another one goes on."""
    path.is_approved = True
    for crash in range(_MOST_BATCHES):
        path.withdrawn = False
        log = _Log(path, crash)
        if await _live(path, log):
            break
        path.ran, path.withdrawn = False, True
        await _live(path, log)
        if path.ran:
            return
    path.ran = False  # of the life that did not end early, before access was withdrawn
