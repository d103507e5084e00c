"""Generated chats in each kind of record: tools, sub-agents, handoffs, aborts, hooks, a person.

One playing of a scene is kept in a store, on a cassette and in an audit file. A second one, as a
durable chat, is kept in a log.
"""

import asyncio
import os
import random
from contextlib import suppress
from unittest.mock import patch

from hookline import (
    Agent,
    Approve,
    Ask,
    Conversation,
    Deny,
    MemoryStore,
    Run,
    ToolMessage,
    define_hook,
    tool,
)
from hookline.errors import ChatAbortedError
from hookline.hooks import audit
from hookline.replay import record_of_log, records_in
from hookline.runtimes import Durable, Journal
from hookline.testing import ScriptedModel, call, raw_call
from hookline.testing.cassette import cassette

RUNS = []


@tool
def pay(amount: int, to: str = "ann") -> dict:
    """Pay somebody."""
    RUNS.append(("pay", amount, to))
    return {"paid": amount, "to": to}


@tool
def look(name: str) -> str:
    """Look somebody up."""
    RUNS.append(("look", name))
    if name == "nobody":
        raise ValueError("nobody has that name")
    return f"{name} is known"


@tool
async def give_up(run: Run) -> str:
    """Abort the chat."""
    RUNS.append(("give_up",))
    run.abort("enough")
    await asyncio.Event().wait()
    raise AssertionError


def own_policy(ctx):
    """The agent's own hook: it denies, asks and edits."""
    amount = ctx.call.arguments.get("amount", 0)
    if ctx.call.name != "pay" or not isinstance(amount, int):
        return None
    if amount == 13:
        return Deny("unlucky")
    if amount > 100:
        return Ask("so much?")
    if amount < 0:
        return ctx.call.replace(arguments={**ctx.call.arguments, "amount": -amount})
    return None


def make_agent(turns, **options):
    model = ScriptedModel(*turns)
    helper = Agent(ScriptedModel(*["I have helped."] * 20), name="helper")
    tools = [pay, look, give_up, helper.as_tool(name="ask_helper")]
    agent = Agent(model, name="front", tools=tools, **options)
    agent.add_hook("preToolCall", own_policy, inherit=False)
    agent.handoffs(Agent(model, name="desk", tools=tools))
    return agent


def make_turns(source, hands_off=False, aborts=False):
    """The answers of a model in one chat, and what a person decides."""
    turns = []
    for _ in range(source.randrange(0, 4)):
        turns.append([_call(source) for _ in range(source.randrange(1, 4))])
    if hands_off:
        turns.insert(source.randrange(0, len(turns) + 1), call("transfer_to_desk"))
    if aborts:
        turns.append(call("give_up"))
    turns.append(source.choice(["done", "That is all.", "secret 4711"]))
    return turns, source.choice(["approve", "deny", "edit"])


def _call(source):
    kind = source.randrange(11)
    if kind == 10:
        return call("ask_helper", input="What now?")
    if kind < 6:
        amount = source.choice([1, 13, 49, 50, 51, 99, 120, 500, -7])
        more = {"to": source.choice(["bob", "eve"])} if source.random() < 0.5 else {}
        return call("pay", amount=amount, **more)
    if kind < 8:
        return call("look", name=source.choice(["ann", "nobody"]))
    if kind == 8:
        return call("missing", x=1)
    return source.choice([raw_call("pay", '{"amount": '), call("pay", amount="much")])


def decide(way):
    def person(request, run):
        if way == "deny":
            return Deny("too much", by="ann")
        if way == "edit":
            return Approve(arguments={"amount": 40}, by="ann")
        return Approve(by="ann")

    return person


class Log:
    """The log of a durable chat, in memory."""

    def __init__(self, person):
        self.batches = []
        self.person = person

    async def read(self):
        return list(self.batches)

    async def append(self, data):
        self.batches.append(data)

    async def answer(self, request):
        return self.person(request, None)

    def poke(self):
        pass


async def stored_scenes(number, seed=1, hooks=()):
    """Conversations of one or two chats in a store, and (turns, way) by the message of a chat."""
    source, store, scenes = random.Random(seed), MemoryStore(), {}
    for place in range(number):
        conversation = Conversation.at(store, f"talk{place}")
        parts = source.randrange(1, 3)
        for part in range(parts):
            hands_off = part == parts - 1 and source.random() < 0.3
            turns, way = make_turns(source, hands_off, source.random() < 0.2)
            waits = source.random() < 0.3
            agent = make_agent(turns)
            message = f"question {part} of talk{place}"
            person = None if waits else decide(way)
            with suppress(ChatAbortedError):
                response = await agent.chat(
                    message, conversation=conversation, approver=person, hooks=list(hooks)
                )
                while response.pending:  # answered later, by another chat
                    answers = {ask.id: decide(way)(ask, None) for ask in response.pending}
                    response = await agent.resume(conversation, answers, hooks=list(hooks))
            scenes[message] = turns, way
    return store, scenes


async def logged_scenes(number, seed=1):
    """Logs of durable chats, by chat, and the scenes by message."""
    source, logs, scenes = random.Random(seed), {}, {}
    for place in range(number):
        turns, way = make_turns(source, source.random() < 0.3, source.random() < 0.2)
        log = Log(decide(way))
        journal = await Journal.open(f"c{place}", log)
        agent = make_agent(turns, runtime=Durable())
        with suppress(ChatAbortedError):
            await journal.carry(
                lambda agent=agent, place=place: agent.chat(f"c{place}", chat_id=f"c{place}")
            )
        logs[f"c{place}"] = log.batches
        scenes[f"c{place}"] = turns, way
    return logs, scenes


KINDS = ("conversation", "log", "cassette", "audit")


async def all_records(folder, number, seed=1):
    """The records by their kind, and (turns, way) by the message of a chat."""
    tape, lines = folder / "tape.json", folder / "audit.jsonl"
    with patch.dict(os.environ, {"CI": ""}), cassette(tape, action="record") as recording:
        hooks = [recording, *audit(lines, content=True)]
        store, scenes = await stored_scenes(number, seed, hooks)
    logs, logged = await logged_scenes(number, seed)
    records = {
        "conversation": [record async for record in records_in(store)],
        "log": [record_of_log(id, batches) for id, batches in logs.items()],
        "cassette": [record async for record in records_in(tape)],
        "audit": [record async for record in records_in(lines)],
    }
    return records, scenes | logged


# ── policies ────────────────────────────────────────────────────────────────────────────────


def _amount(ctx):
    amount = ctx.call.arguments.get("amount", 0)
    return amount if ctx.call.name == "pay" and isinstance(amount, int) else 0


def _doubled(ctx):
    if not _amount(ctx):
        return None
    return ctx.call.replace(arguments={**ctx.call.arguments, "amount": 2 * _amount(ctx)})


async def _closed(ctx, proceed):
    if ctx.call.arguments.get("name") == "ann":
        return Deny("closed")
    return await proceed()


POLICIES = {
    "limit": ("preToolCall", lambda ctx: Deny("limit") if _amount(ctx) > 50 else None),
    "ask": ("preToolCall", lambda ctx: Ask("sure?") if _amount(ctx) > 45 else None),
    "double": ("preToolCall", _doubled),
    "not bob": (
        "preToolCall",
        lambda ctx: Deny("no bob") if ctx.call.arguments.get("to") == "bob" else None,
    ),
    "no lookups": ("preToolCall", lambda ctx: Deny("no") if ctx.call.name == "look" else None),
    "first step only": (
        "preToolCall",
        lambda ctx: Deny("later") if ctx.run.iteration > 0 else None,
    ),
    "twice at most": ("preToolCall", lambda ctx: _counted(ctx)),
    "edit and ask": (
        "preToolCall",
        lambda ctx: (
            (ctx.call.replace(arguments={**ctx.call.arguments, "to": "zoe"}), Ask("to zoe?"))
            if _amount(ctx) == 49
            else None
        ),
    ),
    "guard": (
        "preToolCall",
        lambda ctx: Deny("guarded") if _amount(ctx) >= 99 else None,
        {"required": True},
    ),
    "nothing": ("preToolCall", lambda ctx: None),
}


def _counted(ctx):
    count = ctx.run.state["count"] = ctx.run.state.get("count", 0) + 1
    return Deny("enough") if count > 2 else None


def policy(name):
    point, hook, *options = POLICIES[name]
    return define_hook(point, hook, name=name, **(options[0] if options else {}))


# ── what happens live ───────────────────────────────────────────────────────────────────────


async def _live(turns, way, *hooks):
    """The calls of a live chat: outcome, arguments that ran, text, whether a person was asked."""
    conversation = Conversation()
    asked = set()

    def person(request, run):
        asked.add(request.call.id)
        return decide(way)(request, run)

    with suppress(ChatAbortedError):
        await make_agent(turns).chat(
            "go", approver=person, hooks=list(hooks), conversation=conversation
        )
    calls = {}
    for message in conversation.messages:
        if isinstance(message, ToolMessage):
            ran = message.ran.arguments if message.ran is not None else None
            asks = message.call_id in asked
            calls[message.call_id] = (message.outcome, ran, message.text, asks)
    return calls


def _kinds(before, after):
    """What became of each call that differs, in the words of a verdict."""
    changed = {}
    for id, (outcome, ran, text, asked) in before.items():
        other_outcome, other_ran, other_text, other_asked = after[id]
        if other_asked and not asked:
            changed[id] = "asks"
        elif other_outcome != outcome:
            changed[id] = "denied" if other_outcome == "denied" else "allowed"
        elif other_ran != ran:
            changed[id] = "changed"
        elif other_text != text and outcome == "error":  # the tools after another handoff
            changed[id] = "result"
    return changed


async def expected_verdicts(turns, way, hook):
    """The verdicts of a hook, from two live runs of a chat."""
    return list(_kinds(await _live(turns, way), await _live(turns, way, hook)).values())
