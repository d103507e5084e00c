"""Paths of a probe on which the call waits for a person: in a chat, after it, or in a store."""

from __future__ import annotations

import json
from typing import Any

from hookline import Approve, Conversation, Deny, MemoryStore
from hookline.errors import ApprovalError, HooklineError, UsageError
from hookline.points import AroundToolCall, OnApproval
from hookline.testing._guards.call_path import OURS, CallPath, last_hook, withdrawing
from hookline.testing._script import ScriptedModel
from hookline.testing._time import TestRuntime


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
    path.is_approved, path.withdrawn = True, False
    await path.chat(path.guarded(later=True), path.question(), approver=withdrawing(path))


async def withdrawn_between_two_runs(path: CallPath) -> None:
    path.is_approved, path.withdrawn = True, False

    async def run(ctx: AroundToolCall[Any], proceed: Any) -> Any:
        await proceed()
        path.ran, path.withdrawn = False, True
        return await proceed()

    await path.chat(path.guarded(later=True), last_hook("aroundToolCall", run))


async def withdrawn_while_it_waits(path: CallPath) -> None:
    path.is_approved, path.withdrawn = True, False
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
