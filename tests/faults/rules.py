"""rules: what must never happen to a call, a conversation or a buffer, tried again and again.

Refused tools: chats with up to five calls side by side, each refused or allowed in a way drawn by
lot, and a count of the handlers that ran. Seals: an approval is answered after somebody has changed
the call in the store. Fences: a chat whose lease went to another, or that knows an old version,
writes. Bounds: a model talks to a reader that does not read.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from random import Random
from typing import Any

from hookline import (
    Agent,
    Approve,
    Ask,
    Conversation,
    Deny,
    MemoryStore,
    ModelRequest,
    Run,
    Scope,
    Stop,
    Text,
    ToolFailure,
    ToolResult,
    UserMessage,
    tool,
)
from hookline.errors import ApprovalError, HooklineError, ToolDenied
from hookline.models import Chunk, Finish, TextChunk
from hookline.points import PreToolCall
from hookline.storage import Change, Store
from hookline.testing import ScriptedModel, call

from .figures import Budget, Figure, Findings, tries
from .invariants import listening

NAME = "rules"
TITLE = "refused calls, changed approvals, late writes and readers that do not read"
WEIGHT = 8

RAN = "calls that were refused and ran"
NOT_ONCE = "calls that were allowed and did not run exactly once"
SEALS = "approved calls that were changed and ran"
FENCES = "writes of a chat that had lost its conversation"
BOUNDS = "events held for a reader that does not read, beyond the bound"
BOUND = 64
TALK = 20 * BOUND  # chunks that the model would send

# Each way to refuse a call: what the policy hook answers, or what else is done to the call.
REFUSALS = (
    *("failure", "deny", "raises denied", "fails closed", "answered", "stop"),
    *("approver says no", "approver is asked and raises denied"),
    *("disabled", "not offered", "unknown", "bad arguments"),
)


# ── refused tools ───────────────────────────────────────────────────────────────────────────


class Policy:
    """Refuses the calls of one chat as the lots say."""

    def __init__(self, fates: dict[str, str]) -> None:
        self.fates = fates

    def check(self, ctx: PreToolCall[Any]) -> Any:
        answers: dict[str, Callable[[], Any]] = {
            "failure": lambda: ToolFailure("no"),
            "deny": lambda: ToolFailure("no", type="Denied"),
            "answered": lambda: ToolResult("known"),
            "stop": lambda: Stop("enough"),
            "approver says no": lambda: Ask("May it?"),
            "approver is asked and raises denied": lambda: Ask("May it?"),
            "asked and allowed": lambda: Ask("May it?"),
        }
        fate = self.fates[ctx.call.id]
        if fate == "raises denied":
            raise ToolDenied("no")
        if fate == "fails closed":
            raise ValueError("the check itself fails")
        return answers[fate]() if fate in answers else None

    def approve(self, request: Any, run: Any) -> Any:
        fate = self.fates[request.call.id]
        return Deny("no") if fate.startswith("approver") else Approve()


async def refused(chance: Random, findings: Findings) -> None:
    """One chat whose calls are refused or allowed by lot."""
    ran: Counter[str] = Counter()

    async def work(n: int, run: Run[Any]) -> int:
        ran[run.call_id or ""] += 1
        await asyncio.sleep(0)
        return n

    fates = {
        f"c{i}": chance.choice([*REFUSALS, "allowed", "allowed", "asked and allowed"])
        for i in range(chance.randint(1, 5))
    }
    policy = Policy(fates)
    names = {"disabled": "off", "not offered": "hidden", "unknown": "nothing"}
    calls: list[Any] = []
    for id, fate in fates.items():
        arguments: dict[str, Any] = {"n": "x"} if fate == "bad arguments" else {"n": 1}
        made = call(names.get(fate, "work"), call_id=id, **arguments)
        calls.append(made)
    agent = Agent(
        ScriptedModel(calls, *["done"] * 2),
        tools=[work, _named(work, "hidden")],
        scopes=[Scope("switch", tools=[_named(work, "off")], enabled=lambda: False)],
        approver=policy.approve,
    )
    agent.add_hook("preToolCall", policy.check, on_error="deny", priority=chance.choice([0, 200]))
    agent.add_hook("preRequest", lambda ctx: ctx.request.replace(
        tools=tuple(each for each in ctx.request.tools if each.name != "hidden")
    ))  # fmt: skip
    await agent.chat("go")
    stopped = "stop" in fates.values()
    for id, fate in fates.items():
        allowed = fate in ("allowed", "asked and allowed")
        if not allowed or stopped:
            findings.note(RAN, ran[id], f"{fate} of {sorted(fates.values())}")
        elif ran[id] != 1:
            findings.note(NOT_ONCE, 1, f"ran {ran[id]} times of {sorted(fates.values())}")


def _named(function: Callable[..., Any], name: str) -> Any:
    return tool(name=name)(function)


# ── seals ───────────────────────────────────────────────────────────────────────────────────


async def sealed(chance: Random, findings: Findings) -> None:
    """An approval whose call somebody changes in the stored conversation is refused."""
    ran: list[Any] = []

    @tool
    async def pay(amount: int, to: dict[str, str]) -> str:
        """Pay."""
        ran.append((amount, to))
        return "paid"

    def agent(*turns: Any) -> Agent[Any]:
        made: Agent[Any] = Agent(ScriptedModel(*turns), tools=[pay])
        made.add_hook("preToolCall", lambda ctx: Ask("Pay?"))
        return made

    talk = Conversation(id="c")
    first = agent(call("pay", call_id="p", amount=1, to={"name": "ada"}))
    response = await first.chat("go", conversation=talk)
    stored = json.loads(talk.to_json())
    changes: dict[str, Callable[[Any], Any]] = {
        "the amount": lambda wanted: wanted["arguments"].update(amount=1000),
        "a nested value": lambda wanted: wanted["arguments"]["to"].update(name="eve"),
        "a new argument": lambda wanted: wanted["arguments"].update(more=1),
        "the id": lambda wanted: wanted.update(id="q"),
    }
    what = chance.choice(list(changes))
    for wanted in _calls_in(stored["pending"]):
        changes[what](wanted)
    request_id = response.pending[0].id
    try:
        changed = Conversation.from_json(json.dumps(stored))
        await agent("done").resume(changed, {request_id: Approve()})
    except (ApprovalError, HooklineError):
        pass
    findings.note(SEALS, len(ran), f"{what} was changed")


def _calls_in(pending: Any) -> Iterator[Any]:
    """The stored calls of a pending step."""
    for request in pending["requests"]:
        yield request["call"]


# ── fences ──────────────────────────────────────────────────────────────────────────────────


async def fenced(store: Store, chance: Random, findings: Findings) -> None:
    """A chat writes that has lost its lease, never had one, or knows an old version."""
    id = f"c{chance.randrange(10**12)}"
    await store.acquire(id, "first")
    version = await store.append(id, _change("first", 0, 0))
    await store.release(id, "first")
    await store.acquire(id, "second")
    late = {
        "its lease was given back": _change("first", version, 1),
        "it never had the lease": _change("stranger", version, 1),
        "it knows an old version": _change("second", version - 1, 1),
    }
    why = chance.choice(list(late))
    try:
        await store.append(id, late[why])
    except HooklineError:
        wrong = 0
    else:
        wrong = 1
    stored = await store.load(id)
    assert stored is not None
    findings.note(FENCES, wrong or int(len(stored.messages) != 1), f"{type(store).__name__}: {why}")


def _change(owner: str, expected: int, place: int) -> Change:
    message = UserMessage(id=f"{owner}.{place}", parts=(Text(f"{owner} writes"),))
    return Change(owner=owner, expected=expected, place=place, messages=(message,))


# ── bounds ──────────────────────────────────────────────────────────────────────────────────


class Talker:
    """Counts what it was asked to send."""

    name = "talker"

    def __init__(self) -> None:
        self.sent = 0

    async def stream(self, request: ModelRequest, /) -> AsyncIterator[Chunk]:
        for _ in range(TALK):
            self.sent += 1
            yield TextChunk("word ")
        yield Finish()


async def bounded(chance: Random, findings: Findings) -> None:
    """A stream of which a little is read: the model must wait."""
    model = Talker()
    read = chance.randrange(10)
    async with Agent(model).chat_stream("go") as stream:
        for _ in range(read):
            await anext(stream)
        for _ in range(3 * TALK):  # turns of the loop in which the model could go on
            await asyncio.sleep(0)
        findings.note(BOUNDS, max(0, model.sent - read - BOUND - 1), f"after {read} events")


# ── the part ────────────────────────────────────────────────────────────────────────────────


def figures(budget: Budget) -> Iterator[Figure]:
    findings = Findings(RAN, NOT_ONCE, SEALS, FENCES, BOUNDS)
    done: Counter[str] = Counter()

    async def run() -> None:
        store = MemoryStore()
        await bounded(budget.chance, findings)
        while budget.left > 0 or done["chats with calls that are refused"] < len(REFUSALS):
            await refused(budget.chance, findings)
            await sealed(budget.chance, findings)
            await fenced(store, budget.chance, findings)
            for what in ("chats with calls that are refused", "changed approvals", "late writes"):
                done[what] += 1
            budget.tell(f"{done.total()} tried")

    with listening():
        asyncio.run(run())
    for what, count in done.items():
        yield tries(NAME, what, count)
    yield from findings.figures(NAME)
