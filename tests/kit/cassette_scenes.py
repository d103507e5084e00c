"""Generated chats for cassettes: a model that depends on the request alone, tools, people, aborts.

A scene is played twice, with the model and the tools, and from its cassette alone. Some scenes
resume their chat in a second process: `python -m tests.kit.cassette_scenes FOLDER NUMBER ACTION`.
"""

import asyncio
import hashlib
import json
import os
import random
import sys
from collections import Counter, defaultdict
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import mcp.server
import msgspec

from hookline import Agent, Approve, Ask, Conversation, Deny, Run, ToolResult, tool
from hookline.errors import ChatAbortedError, OverloadedError, StopChat
from hookline.hooks import retry
from hookline.mcp import MCPServer, connect
from hookline.models import Finish, TextChunk, ToolCallChunk
from hookline.stores import SQLStore
from hookline.testing import TestRuntime
from hookline.testing.cassette import cassette

ROOT = Path(__file__).resolve().parents[2]
KEY = "sk-planted0123456789abcdef"
# A call that ends in the same moment in which its chat is aborted; in a replay, no tool has run.
RAN = "the call ran; the chat ended before its result was saved"
NOT_RAN = "not finished: the chat ended"


@dataclass
class City:
    name: str
    people: int


class SceneModel:
    """Answers at random, but the same request is always answered in the same way."""

    name = "scene"
    provider = "tests"

    def __init__(self, world, agent, calls, output):
        self.world, self.agent, self.calls, self.output = world, agent, calls, output
        self.takes_schema = world.number % 2 == 0
        self.failed = set()

    async def stream(self, request):
        self.world.reach("model")
        first = next(m.text for m in reversed(request.messages) if m.role == "user")
        answers = [m for m in request.messages if m.role == "assistant"]
        place = f"{self.world.number}/{self.agent}/{len(request.messages)}/{first}"
        source = random.Random(place)
        if source.random() < 0.1 and place not in self.failed:
            self.failed.add(place)
            if source.random() < 0.5:
                yield TextChunk("Well, ")
            raise OverloadedError("busy", retry_after=0.0)
        since_user = 0
        for message in reversed(request.messages):
            if message.role == "user":
                break
            since_user += message.role == "assistant"
        names = [t.name for t in request.tools if t.name in self.calls]
        if names and since_user < 2 and len(answers) < 5 and source.random() < 0.85:
            for index in range(source.randrange(1, 4)):
                name = source.choice([*names, "missing"] if source.random() < 0.2 else names)
                arguments = self.calls.get(name, lambda _: {"x": 1})(source)
                text = json.dumps(arguments)
                if source.random() < 0.07:
                    text = text[:-2]  # broken
                id = None if source.random() < 0.5 else f"c{len(answers)}{index}"
                half = source.randrange(len(text))
                yield ToolCallChunk(index=index, id=id, name=name, arguments=text[:half])
                yield ToolCallChunk(index=index, arguments=text[half:])
            yield Finish(finish_reason="tool_calls")
            return
        secret = f"The key is {KEY}. Keep it." if self.world.number % 3 == 0 else "None."
        text = source.choice(["Done.", secret, "That is all."])
        if self.output:
            right = len(answers) > 0 and source.random() < 0.8
            text = '{"name": "Rome", "people": 3}' if right else '{"name": "Rome"}'
        while text:
            size = source.randrange(1, 9)
            yield TextChunk(text[:size])
            text = text[size:]
        yield Finish()


class World:
    """One playing of one scene."""

    def __init__(self, number, is_live):
        self.number, self.is_live = number, is_live
        self.reached = Counter()

    def reach(self, what):
        self.reached[what] += 1
        assert self.is_live, f"{what} was reached in a replay"

    def tools(self):
        world = self

        @tool
        async def pay(amount: int, run: Run, to: str = "ann") -> dict[str, Any]:
            """Pay somebody."""
            world.reach("pay")
            await run.status("paying", {"amount": amount, "api_key": KEY})
            run.state["paid"] = run.state.get("paid", 0) + amount
            run.meta["last"] = to
            return {"paid": amount, "to": to, "key": KEY}

        @tool
        def look(name: str) -> str:
            """Look somebody up."""
            world.reach("look")
            if name == "nobody":
                raise KeyError("nobody has that name")
            return f"{name} is known"

        @tool
        async def confirm(what: str, run: Run) -> str:
            """Ask a person."""
            world.reach("confirm")
            answer = await run.ask(f"{what}?", {"type": "object"})
            return f"they said {json.dumps(answer)}"

        @tool
        async def finish(why: str) -> str:
            """End the chat."""
            world.reach("finish")
            raise StopChat(why)

        @tool
        async def halt(run: Run) -> str:
            """Never end: the chat is aborted."""
            world.reach("halt")
            await run.status("halting")
            if world.number % 3:
                run.abort("enough")
            await asyncio.Event().wait()
            raise AssertionError

        @tool(client=True)
        async def pick(color: str) -> str:
            """Let the user pick."""
            raise AssertionError

        return pay, look, confirm, finish, halt, pick


CALLS = {
    "pay": lambda s: {"amount": s.choice([1, 13, 60, 120, -7])},
    "look": lambda s: {"name": s.choice(["ann", "nobody"])},
    "confirm": lambda s: {"what": s.choice(["red", "blue"])},
    "echo": lambda s: {"text": s.choice(["a", "b"])},
    "ask_helper": lambda s: {"input": s.choice(["help", "look it up"])},
    "finish": lambda s: {"why": "it is late"},
    "halt": lambda s: {},
    "pick": lambda s: {"color": "red"},
    "transfer_to_desk": lambda s: {},
}


def policy(ctx):
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


async def judged(judge, ctx):
    """A hook that asks another agent, and shows what it has said."""
    history = ctx.run.history
    text = f"What of {len(history)} messages, {history[-1].text if history else ''}?"
    await ctx.run.status("judged", (await judge.chat(text)).text)


def person(request, run):
    way = int(hashlib.sha256(request.prompts[0].encode()).hexdigest(), 16) % 3
    if way == 0:
        return Deny("too much")
    edits = way == 1 and request.call.name == "pay"
    return Approve(arguments={"amount": 40}) if edits else Approve()


def make_agent(world):
    """The agent of a scene: a sub-agent and a colleague, tools, and hooks of its own."""
    source = random.Random(world.number)
    pay, look, confirm, finish, halt, pick = world.tools()
    own = [pay, look, confirm, *([halt] if source.random() < 0.3 else [])]
    # A tool that ends the chat is not recorded as such beside a call that waits for an answer.
    own += [finish if world.number % 4 == 1 else pick] if source.random() < 0.5 else []
    below = [pay, look, *([halt] if source.random() < 0.1 else [])]
    output = City if source.random() < 0.25 else None
    runtime = TestRuntime()

    def agent(name, tools, output):
        return Agent(
            SceneModel(world, name, CALLS, output is not None),
            name=name,
            system=f"You are {name}.",
            tools=tools,
            hooks=[retry(base=0.0)],
            output=output,
            output_retries=2,
            runtime=runtime,
        )

    helper = agent("helper", below, None)
    if source.random() < 0.6:
        own.append(helper.as_tool(name="ask_helper"))
    front = agent("front", own, output)
    front.add_hook("preToolCall", policy)
    if source.random() < 0.5:
        judge = agent("judge", [look], None)
        point = source.choice(["preChat", "preRequest", "onResponse", "preToolCall"])
        front.add_hook(point, partial(judged, judge), inherit=True)
    if source.random() < 0.4:
        front.handoffs(agent("desk", [look], output))
    return front


def parrot(world):
    """The MCP server of a scene."""
    server = mcp.server.MCPServer("parrot")

    @server.tool()
    def echo(text: str) -> str:
        """Say it again."""
        world.reach("echo")
        return text * 2

    return MCPServer.local(server)


# ── playing ─────────────────────────────────────────────────────────────────────────────────


def plain(value):
    """JSON data without what no replay can repeat: when a tool ran, and for how long."""
    data = json.dumps(msgspec.to_builtins(value, enc_hook=repr))
    data = data.replace(RAN, NOT_RAN)
    return _without_times(json.loads(data.replace(KEY, "[scrubbed]")))


def _without_times(data):
    if isinstance(data, dict):
        return {
            name: _without_times(item)
            for name, item in data.items()
            if name not in ("timing", "seq", *(("at", "duration") if "hooks" in data else ()))
        }
    return [_without_times(item) for item in data] if isinstance(data, (list, tuple)) else data


def note(events, event, world):
    """Add an event; a text with a secret is scrubbed as a whole, which joins its pieces."""
    if world.number % 3 == 0 and event["event"] == "text_delta" and events:
        last = events[-1]
        if {**last, "text": ""} == {**event, "text": ""}:
            last["text"] = (last["text"] + event["text"]).replace(KEY, "[scrubbed]")
            return
    events.append(event)


async def read(world, stream):
    """Read a stream; return its events by path and call, and the response or the error."""
    events = defaultdict(list)
    leaves = world.number % 3 == 0
    try:
        async for event in stream:
            call = getattr(event, "call", None)
            id = getattr(event, "call_id", None) or getattr(call, "id", "")
            note(events["/".join(event.path) + f" {id}"], plain(event), world)
            if leaves and getattr(event, "type", "") == "halting":
                stream.abort("the reader has seen enough")
        end = plain(stream.response)
    except ChatAbortedError as exc:
        end = f"aborted: {exc.reason}"
    except Exception as exc:
        end = f"{type(exc).__name__}: {exc}"
    return {"events": dict(events), "end": end}


async def first(number, folder, is_live, action):
    """Play the chats of a scene, up to where they wait."""
    world = World(number, is_live)
    agent = make_agent(world)
    approver = person if number % 4 else None
    outcomes = []
    async with SQLStore(url(folder)) as store, connect(agent, parrot(world)):
        conversation = await Conversation.open(store, "talk")
        with cassette(folder / "first.json", action=action) as tape:
            for text in ("Begin.", "Go on.")[: 1 + number % 2]:
                stream = agent.chat_stream(
                    text, conversation=conversation, approver=approver, hooks=[tape]
                )
                outcomes.append(await read(world, stream))
                if conversation.pending or conversation.client_calls:
                    break
        waits = bool(conversation.pending or conversation.client_calls)
    return outcomes, waits, world.reached, tape.live_calls


async def resumed(number, folder, is_live, action):
    """Answer what waits, as a second process does."""
    world = World(number, is_live)
    agent = make_agent(world)
    outcomes = []
    async with SQLStore(url(folder)) as store, connect(agent, parrot(world)):
        conversation = await Conversation.open(store, "talk")
        with cassette(folder / "second.json", action=action) as tape:
            for turn in range(4):
                answers = {call.id: ToolResult("picked") for call in conversation.client_calls}
                answers |= {request.id: person(request, None) for request in conversation.pending}
                if not answers:
                    break
                stream = agent.resume_stream(
                    conversation, answers, approver=person, hooks=[tape], chat_id=f"resumed-{turn}"
                )
                outcomes.append(await read(world, stream))
        outcomes.append(plain(list(conversation.messages)))
    return outcomes, world.reached, tape.live_calls


def url(folder):
    return f"sqlite:///{folder / 'chats.db'}"


async def play(number, folder, action, second=resumed):
    """Play a scene; return everything that can be seen of it, and what was reached."""
    is_live = action == "record"
    (folder / "chats.db").unlink(missing_ok=True)
    outcomes, waits, reached, calls = await first(number, folder, is_live, action)
    async with SQLStore(url(folder)) as store:
        stored = await store.load("talk")
    history = plain(list(stored.messages)) if stored is not None else []
    seen = {"first": outcomes, "history": history}
    if waits:
        seen["second"], more, more_calls = await second(number, folder, is_live, action)
        reached, calls = reached + more, calls + more_calls
    return json.loads(json.dumps(seen)), reached, calls


async def in_a_process(number, folder, is_live, action):
    """Resume in a process of its own."""
    command = [sys.executable, "-m", "tests.kit.cassette_scenes", str(folder), str(number), action]
    environment = {name: value for name, value in os.environ.items() if name != "CI"}
    process = await asyncio.create_subprocess_exec(
        *command, cwd=ROOT, env=environment, stdout=asyncio.subprocess.PIPE
    )
    output, _ = await process.communicate()
    assert process.returncode == 0
    seen, reached, calls = json.loads(output)
    return seen, Counter(reached), calls


if __name__ == "__main__":
    result = asyncio.run(
        resumed(int(sys.argv[2]), Path(sys.argv[1]), sys.argv[3] == "record", sys.argv[3])
    )
    print(json.dumps(result))
