"""The seam to the outside world: what a durable runtime records, and what a chat played again from
the record is.

A scene is a function that makes an agent and begins its chat; `live` plays one life of it under a
recording runtime, in which every hook, tool and model says that it ran. What is promised: recorded
steps run once, however often the chat is begun again; the history, the response and the numbers of
the events are those of a chat that was never interrupted.
"""

import ast
import asyncio
import json
from collections import Counter
from pathlib import Path

import pytest
from tests._recording import OUTSIDE, Crash, Ids, Model, Recording, TwoClocks, ask, live

import hookline.points
from hookline import (
    Agent,
    Approve,
    Ask,
    AssistantMessage,
    Continue,
    Conversation,
    Deny,
    Image,
    Limits,
    LocalRuntime,
    MessageChanges,
    ModelResponse,
    Run,
    Scope,
    Settings,
    Stop,
    Text,
    ToolCall,
    ToolFailure,
    ToolMessage,
    ToolResult,
    UserMessage,
    check_history,
    tool,
)
from hookline._chat.inbox import Inbox, SentMessage
from hookline._chat.state import RUNNING
from hookline.errors import ChatAbortedError, ModelError, StopChat
from hookline.events import (
    ChatAborted,
    MessageAdded,
    PartEnd,
    ReasoningDelta,
    Status,
    TextDelta,
    ToolCallDelta,
    ToolCallFinished,
)
from hookline.models import PartEndChunk, ReasoningChunk, TextChunk
from hookline.points import Compaction, Guide, Hold
from hookline.runtimes import KEYS, key_name

# ── what the scenes are made of ─────────────────────────────────────────────────────────────


def watched(note, name, fn=None):
    """A hook that says that it ran, then does what `fn` does."""

    def hook(ctx):
        note(name)
        return None if fn is None else fn(ctx)

    return hook


def around(note, name):
    """A wrapper that says that it ran."""

    async def wrapper(ctx, proceed):
        note(name)
        return await proceed()

    return wrapper


def tools_of(note):
    """The tools of the scenes: each says that it ran, and may run again when it was cut off."""

    @tool(idempotent=True)
    async def add(a: int, b: int) -> int:
        note(f"tool add {a} {b}")
        return a + b

    @tool(idempotent=True)
    async def fails() -> str:
        note("tool fails")
        raise ValueError("as planned")

    @tool(idempotent=True)
    async def report(run: Run) -> str:
        note("tool report")
        run.state["report"] = ["one", 2]
        await run.status("working", {"done": 1})
        await run.status("working", {"done": 2})
        return "reported"

    @tool(idempotent=True)
    async def slow(run: Run) -> str:
        note("tool slow")
        run.state["slow"] = "begun"
        await run.status("slow", 1)
        for _ in range(20):
            await asyncio.sleep(0)
        run.state["slow"] = "ended"
        await run.status("slow", 2)
        return "slow"

    @tool(idempotent=True)
    async def secret() -> str:
        note("tool secret")
        return "secret"

    return [add, fails, report, slow, secret]


OBSERVED = (
    "onChatStart",
    "onMessage",
    "onStatus",
    "onApproval",
    "onChatDone",
    "onChatAbort",
    "onChatError",
)
CHAINS = (
    "preChat",
    "preSteer",
    "preCompact",
    "preRequest",
    "onResponse",
    "preMessage",
    "preToolCall",
    "onToolCallResult",
    "onToolCallError",
    "onStep",
    "preStop",
)
WRAPPERS = ("aroundChat", "aroundRequest", "aroundToolCall")


def watch_all(agent, note):
    """A hook at every point that says that it ran; the last one what became of run.state."""
    for point in (*OBSERVED, *CHAINS):
        agent.add_hook(point, watched(note, point), name=f"watch-{point}")
    agent.add_hook("onDelta", lambda ctx: note(f"onDelta {type(ctx.delta).__name__}"))
    for point in WRAPPERS:
        agent.add_hook(point, around(note, point), priority=100, name=f"watch-{point}")
    agent.add_hook("onHook", lambda ctx: note(f"onHook {ctx.point}"))

    def ended(ctx):
        note("onChatEnd")
        note(f"state {json.dumps(ctx.run.state, sort_keys=True)}")

    agent.add_hook("onChatEnd", ended)


# ── the scenes ──────────────────────────────────────────────────────────────────────────────

SCENES = {}


def scene(fn):
    """Enter a scene that is played whole, from every prefix, and in all other ways."""
    SCENES[fn.__name__] = fn
    return fn


@scene
def plain(runtime, note):
    """Two steps, one tool, no hooks at all."""
    model = Model(note, ["Let me ", "see.", ("c1", "add", {"a": 1, "b": 2})], ["It is 3."])
    return Agent(model, tools=tools_of(note), runtime=runtime), ask("1 + 2?")


@scene
def results_of_a_step(runtime, note):
    """What onStep is shown, although the results were written by an earlier life."""
    calls = ["See.", ("c1", "add", {"a": 1, "b": 2}), ("c2", "add", {"a": 3, "b": 4})]
    model = Model(note, calls, ["It is 3 and 7."])
    agent = Agent(model, tools=tools_of(note), runtime=runtime)
    agent.add_hook("onStep", lambda ctx: note(f"onStep {[each.text for each in ctx.results]}"))
    return agent, ask("1 + 2, 3 + 4?")


@scene
def ids_of_their_own(runtime, note):
    """The input has an id, and preChat gives a message with another."""
    agent = Agent(Model(note, ["Done."]), runtime=runtime)
    mine, other = (UserMessage(id=id, parts=(Text("Go."),)) for id in ("mine", "other"))
    agent.add_hook("preChat", lambda ctx: ctx.request.replace(message=other))
    return agent, ask(mine)


@scene
def checked(runtime, note):
    """An answer that a validator looks at."""

    def check(answer):
        note("check")

    model = Model(note, ["It is 3."])
    agent = Agent(model, output=str, output_validators=[check], runtime=runtime)
    return agent, ask("1 + 2?")


@scene
def every_point(runtime, note):
    """Parallel calls, each with another fate, and a hook at every point."""
    model = Model(
        note,
        [
            "Let me see.",
            ("c1", "add", {"a": 1, "b": 2}),
            ("c2", "nosuch", {}),
            ("c3", "fails", {}),
            ("c4", "secret", {}),
            ("c5", "add", {"a": 3, "b": 4}),
            ("c6", "report", {}),
        ],
        [ReasoningChunk("hm"), PartEndChunk("reasoning", {"seal": 1}), "First ", "answer."],
        ["Second answer.", ("c7", "add", {"a": 5, "b": 6})],
    )
    agent = Agent(model, tools=tools_of(note), system="Be kind.", runtime=runtime)
    watch_all(agent, note)

    def begins(ctx):
        return ctx.request.replace(
            system=f"{ctx.request.system} And brief.",
            message=ctx.request.message.replace(text="Compute."),
            settings=Settings(temperature=0.5),
        )

    async def edits(ctx):
        await ctx.run.compact("edits", ctx.request.messages, Compaction(1))
        ctx.run.state["requests"] = ctx.run.state.get("requests", 0) + 1
        if ctx.iteration != 1:
            return None
        more = UserMessage(parts=(Text("(be quick)"),))
        return ctx.request.replace(
            system=f"{ctx.request.system} And quick.",
            tools=ctx.request.tools[:1],
            messages=(*ctx.request.messages, more),
        )

    def shouts(ctx):
        if isinstance(ctx.delta, TextChunk):
            return (ctx.delta.replace(text=ctx.delta.text.upper()), TextChunk("!"))
        return None

    def decides(ctx):
        return {
            "c1": Ask("really?"),
            "c4": ToolFailure("not for you", type="Denied"),
            "c5": ToolResult({"cached": 7}),
        }.get(ctx.call.id)

    async def asks(request, run):
        note(f"approver {request.id}")
        run.state["asked"] = True
        await run.status("asking")
        return Approve()

    agent.add_hook("preChat", begins)
    agent.add_hook("preRequest", edits)
    agent.add_hook("onDelta", shouts)
    agent.add_hook(
        "onResponse",
        lambda ctx: ctx.response.replace(text="Better.") if ctx.iteration == 1 else None,
    )
    agent.add_hook(
        "preMessage",
        lambda ctx: (
            ctx.message.replace(text=f"<{ctx.message.text}>")
            if isinstance(ctx.message, ToolMessage)
            else None
        ),
    )
    agent.add_hook("preToolCall", decides)
    agent.add_hook("onToolCallResult", lambda ctx: ToolResult([ctx.result.value]))
    agent.add_hook("onToolCallError", lambda ctx: ToolResult("mended"), tools=["fails"])
    agent.add_hook("onStep", lambda ctx: Stop("enough", "Bye.") if ctx.iteration == 2 else None)
    agent.add_hook("preStop", lambda ctx: Continue("And?") if ctx.reason is None else None)
    return agent, ask("Go.", approver=asks)


@scene
def guided(runtime, note):
    """The first answer is withdrawn, with its call, and the model tries again."""
    model = Model(note, ["Bad.", ("c1", "add", {"a": 1, "b": 2})], ["Kind."])
    agent = Agent(model, tools=tools_of(note), runtime=runtime)
    watch_all(agent, note)
    agent.add_hook("onResponse", lambda ctx: Guide("No.") if ctx.response.text == "Bad." else None)
    return agent, ask("1 + 2?")


@scene
def steered(runtime, note):
    """Messages that each life finds in its queue: one for the next step, one for the end."""
    model = Model(note, ["See.", ("c1", "add", {"a": 1, "b": 2})], ["It is 3."], ["Bye."])
    agent = Agent(model, tools=tools_of(note), runtime=runtime)
    watch_all(agent, note)
    agent.add_hook("preSteer", lambda ctx: Deny("no") if ctx.message.text == "No." else None)

    sends = putting(("No.", "next"), ("Hurry.", "next"), ("Thanks.", "idle"))
    agent.add_hook("aroundChat", sends)
    return agent, ask("1 + 2?")


def putting(*messages):
    """A wrapper that puts messages into the queue of each life."""

    async def put(ctx, proceed):
        inbox = RUNNING[ctx.run.chat_id].progress.inbox = Inbox()
        for text, when in messages:
            id = f"{ctx.run.chat_id}.{text}"
            inbox.add(SentMessage(UserMessage(id=id, parts=(Text(text),)), when))
        return await proceed()

    return put


@scene
def returned(runtime, note):
    """A message that is held until the chat ends, and returned."""
    agent = Agent(Model(note, ["Hello."]), runtime=runtime)
    watch_all(agent, note)
    agent.add_hook("preSteer", lambda ctx: Hold())
    agent.add_hook("aroundChat", putting(("Later.", "idle")))
    return agent, ask()


@scene
def answered_by_hooks(runtime, note):
    """preChat answers step 0, preRequest step 1, a wrapper step 2; the model is not asked."""
    agent = Agent(Model(note), tools=tools_of(note), runtime=runtime)
    watch_all(agent, note)
    first = ToolCall(id="c1", name="add", arguments={"a": 1, "b": 1})
    agent.add_hook("preChat", lambda ctx: ModelResponse.of("From preChat.", tool_calls=[first]))
    second = ToolCall(id="c2", name="add", arguments={"a": 2, "b": 2})

    def answers(ctx):
        if ctx.iteration == 1:
            return ModelResponse.of("From preRequest.", tool_calls=[second])
        return None

    async def wraps(ctx, proceed):
        return ModelResponse.of("From a wrapper.")

    agent.add_hook("preRequest", answers)
    agent.add_hook("aroundRequest", wraps)
    return agent, ask()


@scene
def retried(runtime, note):
    """A wrapper asks the model twice; the first answer is taken back."""
    model = Model(note, ["An answer", " in pieces."])
    agent = Agent(model, runtime=runtime)

    async def twice(ctx, proceed):
        await proceed()
        return await proceed()

    agent.add_hook("aroundRequest", twice)
    watch_all(agent, note)
    return agent, ask()


@scene
def taken_back(runtime, note):
    """onResponse and preMessage put another text in place of what was streamed."""
    model = Model(
        note, ["Bad.", ("c1", "add", {"a": 1, "b": 1})], ["Worse.", ("c2", "add", {"a": 1, "b": 2})]
    )
    model.turns = (*model.turns, ["Worst."])
    agent = Agent(model, tools=tools_of(note), runtime=runtime)
    agent.add_hook(
        "onResponse",
        lambda ctx: ctx.response.replace(text="Good.") if ctx.iteration == 0 else None,
    )

    def before(ctx):
        if isinstance(ctx.message, AssistantMessage) and ctx.message.text == "Worse.":
            return ctx.message.replace(text="Better.")
        return None

    agent.add_hook("preMessage", before)
    return agent, ask()


@scene
def emptied(runtime, note):
    """onResponse leaves nothing of an answer that was shown."""
    agent = Agent(Model(note, ["Not ", "this."]), runtime=runtime)
    agent.add_hook("onResponse", lambda ctx: ctx.response.replace(parts=()))
    watch_all(agent, note)
    return agent, ask()


@scene
def whole_messages(runtime, note):
    """release="response", and a call whose deltas a hook hides."""
    model = Model(
        note,
        ["See.", ("c1", "add", {"a": 1, "b": 1}), ("c2", "secret", {})],
        ["Done."],
    )
    agent = Agent(model, tools=tools_of(note), runtime=runtime)
    agent.add_hook("onDelta", lambda ctx: () if getattr(ctx.delta, "id", 0) == "c2" else None)
    watch_all(agent, note)
    return agent, ask(release="response")


@scene
def stopped_by_a_call(runtime, note):
    """preToolCall stops the chat, with a text."""
    calls = [("c1", "add", {"a": 1, "b": 1}), ("c2", "secret", {})]
    agent = Agent(Model(note, ["See.", *calls]), tools=tools_of(note), runtime=runtime)
    watch_all(agent, note)
    agent.add_hook("preToolCall", lambda ctx: Stop("no", "I may not."), tools=["secret"])
    return agent, ask()


@scene
def stopped_at_once(runtime, note):
    """preChat stops the chat: nothing is written."""
    agent = Agent(Model(note), runtime=runtime)
    watch_all(agent, note)
    agent.add_hook("preChat", lambda ctx: Stop("closed", "We are closed."))
    return agent, ask()


@scene
def one_at_a_time(runtime, note):
    """Calls that run one after the other, each with its preToolCall."""
    calls = [("c1", "add", {"a": 1, "b": 1}), ("c2", "report", {}), ("c3", "fails", {})]
    model = Model(note, calls, ["Done."])
    agent = Agent(model, tools=tools_of(note), parallel_tools=False, runtime=runtime)
    watch_all(agent, note)
    return agent, ask()


@scene
def side_by_side(runtime, note):
    """Parallel calls: the first one ends last, and all of them report and write run.state."""
    calls = [("c1", "slow", {}), ("c2", "report", {}), ("c3", "add", {"a": 1, "b": 1})]
    agent = Agent(Model(note, calls, ["Done."]), tools=tools_of(note), runtime=runtime)
    watch_all(agent, note)
    return agent, ask()


@scene
def in_a_thread(runtime, note):
    """A sync tool runs in a thread, inside of its step."""

    @tool(idempotent=True)
    def compute(run: Run) -> int:
        note("tool compute")
        run.state["computed"] = True
        return 42

    model = Model(note, [("c1", "compute", {})], [("c2", "compute", {})], ["Done."])
    agent = Agent(model, tools=[compute], runtime=runtime)
    agent.add_hook("preStop", lambda ctx: note(f"state {ctx.run.state}"))
    return agent, ask(state={"given": 1})


@scene
def strange_ids(runtime, note):
    """Ids that are there twice, that are missing, and that look like keys."""
    ids = ["a", "a", "", "a/run", "a/result", "\u00e4\ud83d", "{}"]
    calls = [(id, "add", {"a": 1, "b": place}) for place, id in enumerate(ids)]
    model = Model(note, calls, [("a", "add", {"a": 2, "b": 2}), ("", "fails", {})], ["Done."])
    agent = Agent(model, tools=tools_of(note), runtime=runtime)
    watch_all(agent, note)
    return agent, ask()


@scene
def context_of_scopes(runtime, note):
    """A scope's context in the last user message, a system text that is asked each step."""

    def system(run):
        note("system")
        return f"Step {run.iteration}."

    def context():
        note("context")
        return {"time": "noon"}

    model = Model(note, [("c1", "add", {"a": 1, "b": 1})], ["Done."])
    agent = Agent(
        model,
        system=system,
        tools=tools_of(note),
        scopes=[Scope("clock", context=context, inject="user")],
        runtime=runtime,
    )
    watch_all(agent, note)
    return agent, ask()


@scene
def denied_by_the_approver(runtime, note):
    """Two calls ask; one is denied and one runs with other arguments."""

    def asks(request, run):
        note(f"approver {request.id}")
        return Deny("no") if request.call.id == "c1" else Approve(arguments={"a": 7, "b": 7})

    calls = [("c1", "add", {"a": 1, "b": 1}), ("c2", "add", {"a": 2, "b": 2})]
    agent = Agent(Model(note, calls, ["Done."]), tools=tools_of(note), runtime=runtime)
    watch_all(agent, note)
    agent.add_hook("preToolCall", lambda ctx: Ask("may I?", expires=60))
    return agent, ask(approver=asks)


@scene
def handed_to_a_client(runtime, note):
    """One call is approved and handed to the client, one is bad, one runs beside them."""

    @tool(client=True)
    def pick(kind: str) -> str:
        raise AssertionError("a client runs it")

    def asks(request, run):
        note(f"approver {request.id}")
        return Approve(arguments={"kind": "text"})

    calls = [("c1", "pick", {"kind": "png"}), ("c2", "pick", {}), ("c3", "add", {"a": 2, "b": 2})]
    agent = Agent(Model(note, calls), tools=[*tools_of(note), pick], runtime=runtime)
    watch_all(agent, note)
    agent.add_hook("preToolCall", lambda ctx: Ask("may I?") if ctx.call.id == "c1" else None)
    return agent, ask(approver=asks)


@scene
def too_many_steps(runtime, note):
    """Limits.steps is reached: the chat fails of itself."""
    turns = [[(f"c{i}", "add", {"a": i, "b": i})] for i in range(2)]
    agent = Agent(
        Model(note, *turns), tools=tools_of(note), limits=Limits(steps=2), runtime=runtime
    )
    watch_all(agent, note)
    return agent, ask()


@scene
def aborted_by_a_tool(runtime, note):
    """A tool aborts the chat, and returns."""

    @tool(idempotent=True)
    async def halt(run: Run) -> str:
        note("tool halt")
        run.state["halted"] = True
        run.abort("halted")
        return "never seen"

    calls = [("c1", "halt", {}), ("c2", "add", {"a": 1, "b": 1})]
    agent = Agent(Model(note, ["See.", *calls]), tools=[*tools_of(note), halt], runtime=runtime)
    watch_all(agent, note)
    return agent, ask()


@scene
def aborted_by_a_hook(runtime, note):
    """A hook aborts the chat after an answer that was shown; the partial text is kept."""
    agent = Agent(Model(note, ["Half an answer."]), tools=tools_of(note), runtime=runtime)
    agent.add_hook(
        "onResponse", watched(note, "halts", lambda ctx: ctx.run.abort("halted") and None)
    )
    watch_all(agent, note)
    return agent, ask()


def with_a_sub_agent_that_asks(runtime, note):
    """The questions of two sub-agents are answered while the chat waits; they go on."""
    runtime.answers = True
    # No two lives draw the same id, as outside of tests: a sub-agent goes on in another chat.
    runtime._plain = Ids("chat", 1000 * (1 + len(runtime.journal)))
    tools = []
    for name in ("first", "second"):
        turns = [("p1", "secret", {}), ("p2", "add", {"a": 1, "b": 2})], [f"{name} done"]
        child = Agent(
            Model(lambda text: note(f"child {text}"), *turns),
            name=name,
            tools=tools_of(lambda text: note(f"child {text}")),
            runtime=runtime,
        )
        child.add_hook("preToolCall", lambda ctx: Ask("may I?"), tools=["secret"], guard=True)
        tools.append(child.as_tool().replace(idempotent=True))
    calls = [("c1", "first", {"input": "hello"}), ("c2", "second", {"input": "hello"})]
    agent = Agent(Model(note, calls, ["Done."]), tools=tools, runtime=runtime)
    return agent, ask()


@scene
def with_a_sub_agent(runtime, note):
    """A sub-agent answers; its events are numbered with its parent's."""
    child = Agent(
        Model(lambda text: note(f"child {text}"), ["I am ", "the child."]),
        name="child",
        runtime=runtime,
    )
    child.add_hook("onMessage", watched(note, "child onMessage"))
    model = Model(note, [("c1", "child", {"input": "hello"})], ["Done."])
    agent = Agent(model, tools=[child.as_tool().replace(idempotent=True)], runtime=runtime)
    watch_all(agent, note)
    return agent, ask()


ALL_SCENES = pytest.mark.parametrize("play", SCENES.values(), ids=SCENES)


def same_end(life, whole):
    """Both lives came to the same response, or the same kind of error."""
    assert repr(life.error) == repr(whole.error)
    assert life.response == whole.response
    assert life.history == whole.history
    waits = life.conversation.pending or life.conversation.client_calls
    check_history(life.history, open_end=bool(waits))


def inside(life):
    """What ran inside of steps: what aroundChat does spans them all."""
    return [(step, text) for step, text in life.runtime.notes if step != OUTSIDE]


def by_number(life):
    found = {event.seq: event for event in life.events}
    assert len(found) == len(life.events)
    return found


# ── the whole record ────────────────────────────────────────────────────────────────────────


@ALL_SCENES
async def test_no_step_that_was_recorded_runs_again(play):
    """Recorded steps give what they gave: no model, tool or hook inside of them runs twice."""
    first = await live(play)
    second = await live(play, first.journal)
    assert second.runtime.ran == []
    assert inside(second) == []


@ALL_SCENES
async def test_a_chat_played_again_is_the_same_chat(play):
    """The same history, the same response, the same error."""
    first = await live(play)
    same_end(await live(play, first.journal), first)


@ALL_SCENES
async def test_a_chat_played_again_takes_the_same_steps_in_the_same_order(play):
    """Keys are derived: the second life asks for what the first one asked for."""
    first = await live(play)
    second = await live(play, first.journal)
    assert sorted(second.names) == sorted(first.names)
    assert second.runtime.given == [line["end"] for line in first.journal if "end" in line]


@ALL_SCENES
async def test_event_numbers_go_on_where_they_were(play):
    """What is published again has the number that it had, and the last number is the same."""
    first = await live(play)
    second = await live(play, first.journal)
    known = by_number(first)
    assert {seq: known.get(seq) for seq in by_number(second)} == by_number(second)
    assert second.events[-1] == first.events[-1]


@ALL_SCENES
async def test_a_chat_played_again_writes_nothing_more(play):
    """Nothing is drawn, no clock is read, no step begins: the journal is what it was."""
    first = await live(play)
    second = await live(play, first.journal)
    assert second.journal == first.journal


@ALL_SCENES
async def test_a_chat_played_again_streams_nothing_of_recorded_steps(play):
    """A replayed model step streams nothing, and a message is told of once."""
    first = await live(play)
    second = await live(play, first.journal)
    quiet = (TextDelta, ReasoningDelta, ToolCallDelta, PartEnd, MessageAdded, Status)
    assert [event for event in second.events if isinstance(event, quiet)] == []


# ── every prefix of the record ──────────────────────────────────────────────────────────────


def open_steps(journal):
    """The steps that a life had begun and not ended."""
    return {line["begin"] for line in journal if "begin" in line} - ended_steps(journal)


def ended_steps(journal):
    return {line["end"] for line in journal if "end" in line}


_deaths = {}


async def deaths(play):
    """[(the unbroken chat, what ran before, what ran after)] for a death after each line."""
    if play not in _deaths:
        whole = await live(play)
        found = []
        for limit in range(1, len(whole.journal)):
            before = await live(play, limit=limit)
            assert isinstance(before.error, Crash)
            assert before.journal == whole.journal[:limit]
            found.append((whole, before, await live(play, before.journal)))
        _deaths[play] = found
    return _deaths[play]


@pytest.mark.slow
@ALL_SCENES
async def test_a_chat_goes_on_from_every_step_to_the_same_end(play):
    """Resumed at each step boundary, and inside of each step: same history, same response."""
    for whole, _, after in await deaths(play):
        same_end(after, whole)


@pytest.mark.slow
@ALL_SCENES
async def test_what_was_recorded_ran_once_in_both_lives_together(play):
    """Each hook, tool and model run of a recorded step happens once, and none is left out."""
    for whole, before, after in await deaths(play):
        kept = ended_steps(before.journal)
        total = [(step, text) for step, text in inside(before) if step in kept] + inside(after)
        assert Counter(total) == Counter(inside(whole))


@pytest.mark.slow
@ALL_SCENES
async def test_only_what_was_interrupted_runs_a_second_time(play):
    """What ran in a life that died and runs again belongs to a step that has no end."""
    for _, before, after in await deaths(play):
        twice = {step for step, _ in inside(before)} & {step for step, _ in inside(after)}
        assert twice <= open_steps(before.journal)


@pytest.mark.slow
@ALL_SCENES
async def test_two_lives_publish_what_one_would_have_published(play):
    """Where no step was interrupted, every event of both lives is that of an unbroken chat."""
    for whole, before, after in await deaths(play):
        if open_steps(before.journal):
            continue
        assert by_number(before) | by_number(after) == by_number(whole)
        both = by_number(before).keys() & by_number(after).keys()
        assert [by_number(after)[seq] for seq in both] == [by_number(before)[seq] for seq in both]


@pytest.mark.slow
@ALL_SCENES
async def test_a_second_life_leaves_a_record_that_plays_too(play):
    """Two deaths: the third life begins with what the first two have written."""
    for whole, before, _ in await deaths(play):
        limit = len(before.journal) + 5
        middle = await live(play, before.journal, limit=limit)
        same_end(await live(play, middle.journal), whole)


# ── the record ──────────────────────────────────────────────────────────────────────────────


@ALL_SCENES
async def test_the_record_is_json(play):
    """A step's result is JSON: the value, the state, an abort, and how many events."""
    life = await live(play)
    assert json.loads(json.dumps(life.journal)) == life.journal


@ALL_SCENES
async def test_every_key_of_a_chat_is_in_the_table(play):
    """The whole list of keys stands in one table."""
    life = await live(play)
    assert {key[0] for key in life.runtime.keys} <= set(KEYS)


@ALL_SCENES
async def test_no_key_is_used_twice_in_a_chat(play):
    """Keys are derived and different."""
    life = await live(play)
    assert [name for name, times in Counter(life.names).items() if times > 1] == []


async def test_the_scenes_together_use_the_whole_table():
    """No key is in the table that these tests have not seen."""
    used = set()
    for play in (*SCENES.values(), waits, with_a_sub_agent_that_asks):
        used |= {key[0] for key in (await live(play)).runtime.keys}
    assert used == set(KEYS)


def test_the_table_of_keys_is_frozen():
    """Keys become stored data: a changed line here breaks every chat that is being recorded."""
    assert list(KEYS) == [
        "id/{}",
        "start",
        "preChat",
        "message/{}",
        "{}/message/{}",
        "step/{}/input",
        "step/{}/request",
        "step/{}/model",
        "step/{}/response",
        "step/{}/call/{}",
        "step/{}/call/{}/asked",
        "step/{}/call/{}/answer",
        "step/{}/call/{}/answered",
        "step/{}/call/{}/run",
        "step/{}/call/{}/child/{}/{}",
        "step/{}/call/{}/run/{}",
        "step/{}/call/{}/result",
        "step/{}/pending",
        "step/{}/end",
        "step/{}/output",
        "step/{}/say",
        "stop/{}",
        "stop/{}/input",
        "{}/outcome/{}",
        "{}/end/{}",
        "{}/returned/messages",
    ]


@pytest.mark.parametrize(
    ("key", "name"),
    [
        (("start",), "start"),
        (("message/{}", 3), "message/3"),
        (("step/{}/call/{}/run", 0, "c1"), "step/0/call/c1/run"),
        (("step/{}/call/{}", 1, "{}"), "step/1/call/%7B%7D"),
        (("step/{}/call/{}", 1, "a/b c"), "step/1/call/a%2Fb%20c"),
    ],
    ids=["no-part", "number", "id", "braces", "slash"],
)
def test_a_key_is_stored_under_its_name(key, name):
    assert key_name(key) == name


async def test_the_names_of_a_small_chat():
    """The record of a chat, as it is stored."""
    life = await live(plain)
    assert life.names == [
        "message/0",
        "step/0/request",
        "step/0/model",
        "message/1",
        "step/0/call/c1/run",
        "message/2",
        "step/1/request",
        "step/1/model",
        "message/3",
    ]


async def test_there_is_no_step_for_each_token():
    """One model call is one step, however many chunks come."""

    def long(runtime, note):
        return Agent(Model(note, ["word "] * 50), runtime=runtime), ask()

    life = await live(long)
    assert [name for name in life.names if "model" in name] == ["step/0/model"]
    assert len(life.journal) < 15


def test_two_keys_never_have_one_name():
    """Call ids are the model's text; a slash in one must not make it another key."""
    run = "step/{}/call/{}/run"
    assert key_name((run, 0, "a")) != key_name(("step/{}/call/{}", 0, "a/run"))


# ── the local runtime ───────────────────────────────────────────────────────────────────────


@ALL_SCENES
async def test_recording_changes_nothing(play):
    """The local one just calls: the same events, response and history as under a recorder."""
    recorded = await live(play)
    local = await live(play, runtime=TwoClocks())
    assert local.events == recorded.events
    same_end(local, recorded)


@ALL_SCENES
async def test_a_runtime_may_hand_on_values_as_they_are_read_back(play):
    """What a step gives is whole in its JSON: nothing depends on the object itself."""
    first = await live(play)
    read = await live(play, reread=True)
    assert read.events == first.events
    assert read.notes == first.notes
    same_end(read, first)


@ALL_SCENES
async def test_a_runtime_may_give_recorded_values_in_any_order(play):
    """Jobs side by side that all have their results at once: the same history and response."""
    first = await live(play)
    second = await live(play, first.journal, in_order=False)
    same_end(second, first)
    assert second.runtime.ran == []


def test_the_runtimes_keep_the_protocol():
    """Both have the methods that the loop asks for."""
    needed = {name for name in vars(hookline.Runtime) if not name.startswith("_")}
    methods = {
        "for_chat",
        "step",
        "wait",
        "gather",
        "lock",
        "has_begun",
        "has_passed",
        "messages",
        "now",
        "new_id",
    }
    assert needed == methods | {"life", "answers"}
    for runtime in (LocalRuntime(), Recording(), Ids()):
        assert needed <= set(dir(runtime))


async def test_the_local_step_is_the_call_itself():
    """It just calls: what the function gives is handed on, and nothing is encoded."""

    async def fn():
        return "value"

    assert await LocalRuntime().step(("start",), fn, None) == "value"


async def test_gather_raises_the_first_exception_alone():
    """The first exception cancels the rest and is raised alone, no group."""
    out = []

    async def fails():
        raise ValueError("first")

    async def waits_long():
        try:
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            out.append("cancelled")
            raise

    with pytest.raises(ValueError, match="first"):
        await LocalRuntime().gather([waits_long, fails])
    assert out == ["cancelled"]


async def test_gather_runs_side_by_side():
    """A job may wait for what another one does."""
    done = asyncio.Event()
    out = []

    async def waits_for_it():
        await done.wait()
        out.append("waited")

    async def does_it():
        out.append("did")
        done.set()

    await LocalRuntime().gather([waits_for_it, does_it])
    assert out == ["did", "waited"]


async def test_gather_waits_for_jobs_that_clean_up():
    """Cancelled from outside, it ends when its jobs have ended."""
    out = []
    started = asyncio.Event()

    async def cleans_up():
        try:
            started.set()
            await asyncio.get_running_loop().create_future()
        finally:
            for _ in range(5):
                await asyncio.sleep(0)
            out.append("clean")

    task = asyncio.ensure_future(LocalRuntime().gather([cleans_up, cleans_up]))
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert out == ["clean", "clean"]


async def test_gather_does_not_swallow_the_cancellation_of_a_job():
    """A job that was cancelled did not do its work."""

    async def cancels_itself():
        raise asyncio.CancelledError

    async def does_it():
        await asyncio.sleep(0)

    with pytest.raises(asyncio.CancelledError):
        await LocalRuntime().gather([cancels_itself, does_it])


async def test_the_runtime_may_bring_the_answer_to_a_question():
    """wait: where a signal brings the decision, the approver is not asked."""
    waited = []

    class Signal(Ids):
        async def wait(self, key, request, ask):
            waited.append((key_name(key), request.call.id))
            return Deny("not today") if request.call.id == "c1" else Approve()

    life = await live(denied_by_the_approver, runtime=Signal())
    assert sorted(waited) == [("step/0/call/c1/answer", "c1"), ("step/0/call/c2/answer", "c2")]
    outcomes = [each.outcome for each in life.history if isinstance(each, ToolMessage)]
    assert outcomes == ["denied", "ok"]


async def test_a_lone_call_runs_in_the_task_of_the_chat():
    """A lone tool call needs no gather."""
    gathered = []

    class Counting(Ids):
        async def gather(self, jobs):
            gathered.append(len(jobs))
            await super().gather(jobs)

    await live(plain, runtime=Counting())
    assert gathered == []
    await live(side_by_side, runtime=Counting())
    assert gathered == [3]


def test_ids_that_nobody_can_guess():
    """new_id gives another id each time, of at least 80 bits."""
    drawn = {LocalRuntime().new_id() for _ in range(100)}
    assert len(drawn) == 100
    assert min(map(len, drawn)) >= 20


async def test_the_clock_and_the_ids_are_the_runtimes():
    """The chat id, the times of messages and the duration of a chat come from the runtime."""
    durations = []

    def timed(runtime, note):
        agent = Agent(Model(note, ["Hi."]), runtime=runtime)
        agent.add_hook("onChatEnd", lambda ctx: durations.append(ctx.duration))
        return agent, ask()

    life = await live(timed, runtime=Ids("mine"))
    assert life.response.chat_id == "mine-1"
    assert [message.at for message in life.conversation.messages] == [1002.0, 1003.0]
    assert durations == [3.0]  # the clock goes on by one whenever it is read


async def test_the_runtime_of_a_chat_is_asked_for_once():
    """for_chat: once, before the first step, with a chat that has its id."""
    asked = []

    class Asked(Ids):
        def for_chat(self, chat):
            asked.append((chat.chat_id, chat.attempt))
            return self

    await live(every_point, runtime=Asked())
    assert asked == [("chat-1", 1)]


LOOP = (
    "_chat.loop",
    "_chat.step",
    "_chat.resume",
    "_chat.ending",
    "_chat.answer",
    "_chat.batch",
    "_chat.results",
    "_chat.request",
)
LOOP = (*LOOP, "_chat.results", "_chat.request", "_chat.state", "_chat.approval")
LOOP = (*LOOP, "_model.assembly", "_chat.call")
WORLD = {"time", "random", "uuid", "secrets", "datetime", "threading", "os", "socket", "anyio"}
SPAWNING = {
    "create_task",
    "ensure_future",
    "gather",
    "TaskGroup",
    "create_task_group",
    "get_running_loop",
    "get_event_loop",
    "call_later",
    "call_soon",
    "run_in_executor",
    "to_thread",
    "run_coroutine_threadsafe",
    "sleep",
    "timeout",
    "wait_for",
    "open",
}


@pytest.mark.parametrize("module", LOOP, ids=LOOP)
def test_the_loop_reaches_the_world_only_through_the_runtime(module):
    """It does no I/O, asks no clock, draws no random number, starts no task."""
    path = Path(hookline.__file__).parent / f"{module.replace('.', '/')}.py"
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found += [each.name for each in node.names if each.name.split(".")[0] in WORLD]
            found += [each.name for each in node.names if each.name == "asyncio"]
        elif isinstance(node, ast.ImportFrom):
            source = (node.module or "").split(".")[0]
            found += [source] if source in WORLD else []
            if source == "asyncio":
                allowed = {"CancelledError", "Lock"}
                found += [each.name for each in node.names if each.name not in allowed]
        elif isinstance(node, ast.Attribute) and node.attr in SPAWNING:
            owner = ast.unparse(node.value)
            if not owner.endswith(("runtime", "store", "asm")):
                found.append(f"{owner}.{node.attr}")
        elif isinstance(node, ast.Name) and node.id in SPAWNING:
            found.append(node.id)
    assert found == []


# ── what a step has done ────────────────────────────────────────────────────────────────────


def effects_of(life, name):
    return next(line["effects"] for line in life.journal if line.get("end") == name)


def cut_after(life, name):
    """The record up to the end of that step."""
    lines = [line.get("end") for line in life.journal]
    return life.journal[: lines.index(name) + 1]


def cut_inside(life, name):
    """The record up to the beginning of that step."""
    lines = [line.get("begin") for line in life.journal]
    return life.journal[: lines.index(name) + 1]


async def test_changes_of_the_state_are_in_the_record():
    """The value with the changes that the step made to run.state; None where it made none."""
    life = await live(one_at_a_time)
    assert effects_of(life, "step/0/call/c2/run")["state"] == {"report": ["one", 2]}
    assert effects_of(life, "step/0/call/c1/run")["state"] is None


async def test_a_chat_that_goes_on_has_the_state():
    """Hooks of the second life see what those of the first have written."""
    whole = await live(every_point)
    after = await live(every_point, cut_after(whole, "step/1/request"))
    assert after.ran("state ") == whole.ran("state ")


async def test_what_a_hook_removed_from_the_state_stays_removed():
    """A step's changes are also the keys that it took away."""

    def removes(runtime, note):
        agent = Agent(Model(note, ["Hi."]), runtime=runtime)
        agent.add_hook("onChatStart", lambda ctx: ctx.run.state.update(a=1, b=2))
        agent.add_hook("preChat", lambda ctx: ctx.run.state.pop("a") and None)
        agent.add_hook("preStop", lambda ctx: note(f"state {ctx.run.state}"))
        return agent, ask()

    whole = await live(removes)
    after = await live(removes, cut_after(whole, "preChat"))
    assert after.ran("state ") == whole.ran("state ") == ["state {'b': 2}"]


async def test_a_durable_runtime_carries_the_json_values_of_the_state_only():
    """What is no JSON stays behind; the rest goes on, and the chat does not mind."""

    def locks(runtime, note):
        agent = Agent(Model(note, ["Hi."]), runtime=runtime)
        agent.add_hook("onChatStart", lambda ctx: ctx.run.state.update(lock=object(), n=1))
        agent.add_hook("preStop", lambda ctx: note(f"keys {sorted(ctx.run.state)}"))
        return agent, ask()

    whole = await live(locks)
    assert whole.error is None
    assert whole.ran("keys ") == ["keys ['lock', 'n']"]
    after = await live(locks, cut_after(whole, "message/1"))
    assert after.ran("keys ") == ["keys ['n']"]


async def test_a_recorded_call_does_not_undo_what_another_one_writes():
    """Of calls side by side each record has the changes of its own call."""

    @tool(idempotent=True)
    async def counts(run: Run) -> str:
        run.state["attempt"] = run.attempt
        for _ in range(10):
            await asyncio.sleep(0)
        return "counted"

    def counting(runtime, note):
        calls = [("c1", "counts", {}), ("c2", "report", {})]
        agent = Agent(
            Model(note, calls, ["Done."]), tools=[*tools_of(note), counts], runtime=runtime
        )
        agent.add_hook("preStop", lambda ctx: note(f"attempt {ctx.run.state['attempt']}"))
        return agent, ask()

    whole = await live(counting)
    after = await live(counting, cut_after(whole, "step/0/call/c2/run"))
    assert after.ran("attempt ") == ["attempt 2"]


async def test_changes_of_the_meta_are_in_the_record_and_are_made_again():
    """They are there again before the store has seen them."""

    def counts(runtime, note):
        calls = [("c1", "add", {"a": 1, "b": 1})]
        agent = Agent(Model(note, calls, ["Done."]), tools=tools_of(note), runtime=runtime)

        def begin(ctx):
            ctx.run.meta.update(n=1, old={"deep": [1]})

        def request(ctx):
            ctx.run.meta["n"] += 1
            ctx.run.meta["old"]["deep"].append(ctx.iteration)
            if ctx.iteration:
                del ctx.run.meta["old"]

        agent.add_hook("onChatStart", begin)
        agent.add_hook("preRequest", request)
        agent.add_hook("preStop", lambda ctx: note(f"meta {ctx.run.meta}"))
        return agent, ask()

    whole = await live(counts)
    assert effects_of(whole, "step/0/request")["meta"] == {"n": 2, "old": {"deep": [1, 0]}}
    assert effects_of(whole, "step/1/request")["meta"] == {"n": 3}
    assert effects_of(whole, "step/1/request")["meta_gone"] == ["old"]
    assert effects_of(whole, "step/0/call/c1/run")["meta"] is None
    for step in ("start", "step/0/request", "step/0/call/c1/run", "step/1/request"):
        after = await live(counts, cut_after(whole, step))
        assert after.ran("meta ") == whole.ran("meta ") == ["meta {'n': 3}"]
        assert after.conversation.meta == {"n": 3}


async def test_a_step_knows_the_number_of_the_last_event():
    """How many events were published stands in the record of each step."""
    life = await live(one_at_a_time)
    first, second = (effects_of(life, f"step/0/call/c{i}/run")["seq"] for i in (1, 2))
    between = [event for event in life.events if first < event.seq <= second]
    assert kinds(between)[-2:] == ["Status", "Status"]
    assert life.events[-1].seq == len(life.events)


async def test_events_are_numbered_whether_or_not_anybody_hears_them():
    """A second life without readers counts on all the same."""
    whole = await live(plain)
    again = Recording(cut_after(whole, "message/2"))
    agent, begin = plain(again, again.note)
    await begin(agent, Conversation(id="conv"))
    numbers = [
        [(line["end"], line["effects"]["seq"]) for line in journal if "end" in line]
        for journal in (again.journal, whole.journal)
    ]
    assert numbers[0] == numbers[1]


async def test_a_replayed_model_step_counts_its_tokens():
    """The usage of a chat is that of both lives."""
    whole = await live(plain)
    assert whole.response.usage.input_tokens == 20
    for name in ("step/0/model", "message/1", "step/1/model", "message/3"):
        after = await live(plain, cut_after(whole, name))
        assert after.response.usage == whole.response.usage


async def test_an_answer_after_a_replayed_one_gets_ids_that_are_free():
    """Duplicate call ids are made unique, whichever life the first one came from."""

    def repeats(runtime, note):
        turns = [[("c1", "add", {"a": 1, "b": i})] for i in range(3)]
        return Agent(Model(note, *turns, ["Done."]), tools=tools_of(note), runtime=runtime), ask()

    whole = await live(repeats)
    for name in ("step/0/model", "message/1", "message/2", "step/1/model"):
        same_end(await live(repeats, cut_after(whole, name)), whole)


async def test_an_id_that_a_hook_gave_to_a_call_is_taken_too():
    """The same for calls that onResponse has put into an answer."""

    def repeats(runtime, note):
        model = Model(note, ["One."], [("c1", "add", {"a": 1, "b": 1})], ["Done."])
        agent = Agent(model, tools=tools_of(note), runtime=runtime)
        calls = [ToolCall(id="c1", name="add", arguments={"a": 0, "b": 0})]
        agent.add_hook(
            "onResponse",
            lambda ctx: ModelResponse.of("Mine.", tool_calls=calls) if ctx.iteration == 0 else None,
        )
        return agent, ask()

    whole = await live(repeats)
    for name in ("step/0/response", "message/1", "message/2"):
        same_end(await live(repeats, cut_after(whole, name)), whole)


# ── a step that was interrupted ─────────────────────────────────────────────────────────────


def kinds(events):
    return [type(event).__name__ for event in events]


async def test_a_model_step_that_runs_again_begins_with_a_reset():
    """A re-run model step begins with ResponseReset."""
    whole = await live(plain)
    after = await live(plain, cut_inside(whole, "step/0/model"))
    assert kinds(after.events)[:4] == ["ChatStarted", "StepStarted", "ResponseReset", "TextDelta"]
    assert kinds(after.events).count("ResponseReset") == 1


async def test_a_first_run_begins_with_no_reset():
    whole = await live(plain)
    assert "ResponseReset" not in kinds(whole.events)
    after = await live(plain, cut_after(whole, "step/0/request"))
    assert "ResponseReset" not in kinds(after.events)


async def test_an_answer_of_a_hook_that_is_shown_again_begins_with_a_reset():
    """The same for an answer that a hook gave, which is streamed like any other."""
    whole = await live(answered_by_hooks)
    for step in ("step/0/model", "step/1/model", "step/2/model"):
        after = await live(answered_by_hooks, cut_inside(whole, step))
        assert kinds(after.events).count("ResponseReset") == 1


async def test_the_text_of_a_stop_that_is_shown_again_begins_with_a_reset():
    """The same for what a Stop says."""
    whole = await live(stopped_by_a_call)
    after = await live(stopped_by_a_call, cut_inside(whole, "step/0/say"))
    assert kinds(after.events).count("ResponseReset") == 1


async def test_the_attempt_is_what_the_runtime_says():
    """run.attempt is 1, or more in an interrupted step that runs again."""

    def tells(runtime, note):
        model = Model(note, ["Hi."])
        agent = Agent(model, runtime=runtime)

        async def wraps(ctx, proceed):
            note(f"attempt {ctx.run.attempt}")
            return await proceed()

        agent.add_hook("aroundRequest", wraps)
        agent.add_hook("preStop", lambda ctx: note(f"attempt {ctx.run.attempt}"))
        return agent, ask()

    whole = await live(tells)
    second = await live(tells, cut_inside(whole, "step/0/model"))
    third = await live(tells, second.journal[: len(cut_inside(whole, "step/0/model")) + 1])
    assert whole.ran("attempt") == ["attempt 1", "attempt 1"]
    assert second.ran("attempt") == ["attempt 2", "attempt 1"]
    assert third.ran("attempt") == ["attempt 3", "attempt 1"]


async def test_a_tool_sees_that_its_call_is_made_again():
    """What an idempotent tool needs to know: an interrupted call of it runs again."""

    def pays(runtime, note):
        @tool(idempotent=True)
        async def pay(run: Run) -> str:
            note(f"pay {run.attempt}")
            return "paid"

        return Agent(
            Model(note, [("c1", "pay", {})], ["Done."]), tools=[pay], runtime=runtime
        ), ask()

    whole = await live(pays)
    after = await live(pays, cut_inside(whole, "step/0/call/c1/run"))
    assert (whole.ran("pay"), after.ran("pay")) == (["pay 1"], ["pay 2"])


async def test_an_interrupted_call_of_another_tool_is_not_made_again():
    """Nothing is retried after its effect became visible, unless the tool is idempotent."""

    def pays(runtime, note):
        @tool
        async def pay() -> str:
            note("tool pay")
            return "paid"

        agent = Agent(Model(note, [("c1", "pay", {})], ["Done."]), tools=[pay], runtime=runtime)
        return agent, ask()

    whole = await live(pays)
    after = await live(pays, cut_inside(whole, "step/0/call/c1/run"))
    assert (whole.ran("tool "), after.ran("tool ")) == (["tool pay"], [])
    (message,) = [each for each in after.history if isinstance(each, ToolMessage)]
    assert message.outcome == "error"
    assert "may have run" in message.text
    assert after.response.text == "Done."


async def test_the_attempt_is_that_of_each_call():
    """Of calls side by side one may be the second attempt and another the first."""

    def tells(runtime, note):
        @tool(idempotent=True)
        async def tell(name: str, run: Run) -> str:
            for _ in range(5):
                await asyncio.sleep(0)
            note(f"{name} {run.attempt}")
            return "told"

        calls = [("c1", "tell", {"name": "one"}), ("c2", "tell", {"name": "two"})]
        return Agent(Model(note, calls, ["Done."]), tools=[tell], runtime=runtime), ask()

    whole = await live(tells)
    after = await live(tells, cut_inside(whole, "step/0/call/c1/run"))
    assert sorted(after.notes) == ["model 1", "one 2", "two 1"]


async def test_a_message_that_is_shown_whole_and_shown_again_begins_with_a_reset():
    """With release="response" it is the message's step that streams: the same rule."""
    whole = await live(whole_messages)
    assert "ResponseReset" not in kinds(whole.events)
    after = await live(whole_messages, cut_inside(whole, "message/1"))
    assert kinds(after.events).count("ResponseReset") == 1


async def test_what_was_shown_by_an_earlier_life_is_taken_back():
    """If a hook changes what was already streamed, ResponseReset comes first."""
    whole = await live(taken_back)
    assert kinds(whole.events).count("ResponseReset") == 2
    for step in ("step/0/model", "step/0/response", "step/1/model", "step/1/response"):
        after = await live(taken_back, cut_after(whole, step))
        left = 2 if step.startswith("step/0") else 1
        assert kinds(after.events).count("ResponseReset") == left


async def test_a_call_that_was_hidden_in_an_earlier_life_stays_hidden():
    """With release="response" a call is shown once, unless onDelta hid it."""
    whole = await live(whole_messages)
    after = await live(whole_messages, cut_after(whole, "step/0/model"))
    shown = [event.call_id for event in after.events if isinstance(event, ToolCallDelta)]
    assert shown == ["c1"]


async def test_an_answer_that_a_hook_has_emptied_stays_unwritten_in_a_replay():
    """Blank text is absent: the record of its commit holds a message that nobody keeps."""

    def emptied(runtime, note):
        agent = Agent(Model(note, ["Never mind."]), runtime=runtime)
        agent.add_hook(
            "preMessage",
            lambda ctx: ctx.message.replace(text="") if ctx.message.role == "assistant" else None,
        )
        return agent, ask()

    whole = await live(emptied)
    assert [each.text for each in whole.history] == ["Go."]
    for name in ("message/1", "step/0/model"):
        after = await live(emptied, cut_after(whole, name))
        assert [each.text for each in after.history] == ["Go."]
        assert after.ran("model ") == []
        assert after.response.text == whole.response.text == ""


async def test_a_text_that_an_earlier_life_has_shown_is_kept_as_partial():
    """A partial assistant text is kept and marked, whichever life has streamed it."""
    whole = await live(aborted_by_a_hook)
    after = await live(aborted_by_a_hook, cut_after(whole, "step/0/model"))
    assert [(each.text, getattr(each, "partial", False)) for each in after.history] == [
        ("Go.", False),
        ("Half an answer.", True),
    ]


# ── aborts and errors ───────────────────────────────────────────────────────────────────────


async def test_an_abort_that_a_step_asked_for_is_asked_for_again():
    """A step's record has the abort and its reason; a second life ends as the first one did."""
    whole = await live(aborted_by_a_tool)
    effects = effects_of(whole, "step/0/call/c1/run")
    assert (effects["aborted"], effects["reason"]) == (True, "halted")
    after = await live(aborted_by_a_tool, cut_after(whole, "step/0/call/c1/run"))
    assert isinstance(after.error, ChatAbortedError)
    assert after.error.reason == "halted"
    assert after.ran("tool ") == []
    same_end(after, whole)


async def test_an_abort_by_a_hook_is_asked_for_again():
    """The same where the step was cut off by its own abort."""
    whole = await live(aborted_by_a_hook)
    after = await live(aborted_by_a_hook, cut_after(whole, "step/0/response"))
    assert isinstance(after.error, ChatAbortedError)
    assert after.ran("halts") == []
    assert after.ran("onChatAbort") == ["onChatAbort"]


async def test_a_step_that_did_not_abort_says_so():
    """Only the step that asked for it has the abort."""
    whole = await live(aborted_by_a_tool)
    aborted = [line["end"] for line in whole.journal if line.get("effects", {}).get("aborted")]
    assert aborted == ["step/0/call/c1/run"]


def fails_once(point, broken):
    """A scene in which a hook at that point raises while `broken` has something in it."""

    def scene_of(runtime, note):
        calls = [("c1", "add", {"a": 1, "b": 1}), ("c2", "fails", {})]
        agent = Agent(
            Model(note, ["See.", *calls], ["Done."]), tools=tools_of(note), runtime=runtime
        )
        watch_all(agent, note)

        def raises(ctx):
            note("raises")
            if broken:
                raise OSError("the network")

        if point.startswith("around"):

            async def wraps(ctx, proceed):
                raises(ctx)
                return await proceed()

            agent.add_hook(point, wraps)
        else:
            agent.add_hook(point, raises)
        return agent, ask()

    return scene_of


RAISING = (
    "onChatStart",
    "preChat",
    "preRequest",
    "aroundRequest",
    "onDelta",
    "onResponse",
    "preMessage",
    "onMessage",
    "preToolCall",
    "aroundToolCall",
    "onToolCallResult",
    "onToolCallError",
    "onStep",
    "preStop",
)


@pytest.mark.parametrize("point", RAISING)
async def test_an_exception_is_not_recorded(point):
    """The step runs again: the same exception, once more raised by the hook itself."""
    play = fails_once(point, [1])
    first = await live(play)
    second = await live(play, first.journal)
    assert repr(first.error) == repr(second.error) == "OSError('the network')"
    assert first.error is not second.error
    assert second.ran("raises") != []
    assert second.history == first.history


@pytest.mark.parametrize("point", RAISING)
async def test_a_step_that_failed_may_succeed_in_the_next_life(point):
    """What the ending of the failed life has recorded is not taken for the chat that goes on."""
    unbroken = await live(fails_once(point, []))
    first = await live(fails_once(point, [1]))
    second = await live(fails_once(point, []), first.journal)
    same_end(second, unbroken)
    assert second.ran("onChatDone") == ["onChatDone"]
    assert second.ran("onChatEnd") == ["onChatEnd"]


async def test_a_model_that_failed_may_succeed_in_the_next_life():
    """A partial answer that was kept when a life failed is not taken for the answer."""

    def breaks(broken):
        def play(runtime, note):
            turn = ["Half ", OSError("the network")] if broken else ["Half ", "and whole."]
            return Agent(Model(note, turn), runtime=runtime), ask()

        return play

    unbroken = await live(breaks(False))
    first = await live(breaks(True))
    assert [each.text for each in first.history] == ["Go.", "Half "]
    for length in range(len(first.journal) - 2, len(first.journal) + 1):
        same_end(await live(breaks(False), first.journal[:length]), unbroken)


async def test_a_throw_of_on_chat_done_comes_out_of_a_replay_too():
    """The throw of onChatDone reaches the caller, however often the chat is played."""

    def throws(runtime, note):
        agent = Agent(Model(note, ["Hi."]), runtime=runtime)

        def raises(ctx):
            note("raises")
            raise ValueError("as planned")

        agent.add_hook("onChatDone", raises)
        agent.add_hook("onChatDone", watched(note, "the other"))
        return agent, ask()

    first = await live(throws)
    second = await live(throws, first.journal)
    assert repr(first.error) == repr(second.error) == "ValueError('as planned')"
    assert second.notes == ["raises"]


async def test_a_hook_that_is_logged_is_recorded_with_what_stands():
    """on_error="log": the step gave a value, and that is its record."""

    def logs(runtime, note):
        agent = Agent(Model(note, ["Hi."]), runtime=runtime)

        def raises(ctx):
            note("raises")
            raise ValueError("as planned")

        agent.add_hook("onResponse", raises, on_error="log")
        return agent, ask()

    first = await live(logs)
    second = await live(logs, first.journal)
    assert (first.error, first.notes, second.notes) == (None, ["model 0", "raises"], [])
    same_end(second, first)


async def test_a_tool_error_is_data():
    """What a tool raised is a result like any other: type and message, and the tool ran."""

    def play(runtime, note):
        model = Model(note, [("c1", "fails", {})], ["Done."])
        agent = Agent(model, tools=tools_of(note), runtime=runtime)

        def sees(ctx):
            note(f"error {ctx.error.type} {ctx.error.message}")

        agent.add_hook("onToolCallError", sees)
        return agent, ask()

    whole = await live(play)
    after = await live(play, cut_after(whole, "step/0/call/c1/run"))
    assert after.notes == ["error ValueError as planned", "model 1"]
    same_end(after, whole)


async def test_a_stop_from_inside_a_tool_is_recorded():
    """raise StopChat: the call's result is the reason, and the chat stops after the step."""

    def play(runtime, note):
        @tool(idempotent=True)
        async def closes() -> str:
            note("tool closes")
            raise StopChat("closed")

        calls = [("c1", "closes", {}), ("c2", "add", {"a": 1, "b": 1})]
        return Agent(Model(note, calls), tools=[*tools_of(note), closes], runtime=runtime), ask()

    whole = await live(play)
    assert whole.response.stop_reason == "closed"
    for length in range(2, len(whole.journal)):
        same_end(await live(play, whole.journal[:length]), whole)


async def test_an_abort_from_outside_belongs_to_the_step_that_ran():
    """stream.abort() in the middle of a model step: played again, the chat ends there again."""
    streams = []

    def play(runtime, note):
        async def begin(agent, conversation):
            stream = agent.chat_stream("Go.", conversation=conversation)
            streams.append(stream)
            async with stream:
                async for _ in stream:
                    pass
            return stream.response

        def stops(ctx):
            note("onDelta")
            streams[-1].abort("enough")

        agent = Agent(Model(note, ["One ", "two."]), runtime=runtime)
        agent.add_hook("onDelta", stops)
        return agent, begin

    whole = await live(play)
    again = await live(play, whole.journal)
    assert again.notes == []
    assert again.events[-1] == whole.events[-1]
    assert type(whole.events[-1]) is ChatAborted


# ── approvals ───────────────────────────────────────────────────────────────────────────────


def waits(runtime, note):
    """Two calls ask and nobody is there: they wait. A third one runs."""
    calls = [
        ("c1", "add", {"a": 1, "b": 1}),
        ("c2", "secret", {}),
        ("c3", "add", {"a": 3, "b": 3}),
    ]

    def system(run):
        note("system")
        return "Be kind."

    model = Model(note, ["See.", *calls], ["Done."])
    agent = Agent(model, tools=tools_of(note), system=system, runtime=runtime)
    watch_all(agent, note)
    agent.add_hook("preToolCall", lambda ctx: Ask("may I?") if ctx.call.id != "c1" else None)
    return agent, ask()


def answered(decide):
    """The same agent, and its chat that goes on with the answers."""

    def play(runtime, note):
        agent, _ = waits(runtime, note)

        async def begin(agent, conversation):
            answers = {each.id: decide(each) for each in conversation.pending}
            return await agent.resume(conversation, answers)

        return agent, begin

    return play


def left(life):
    """The conversation as a store would load it."""
    conversation = life.conversation
    return Conversation(life.history, id="conv", pending=conversation.pending_step)


def some(request):
    return Approve() if request.call.id == "c2" else Deny("no")


async def test_a_chat_that_waits_is_the_same_in_a_replay():
    """response.pending and what the conversation waits for are what they were."""
    first = await live(waits)
    assert [request.call.id for request in first.response.pending] == ["c2", "c3"]
    second = await live(waits, first.journal)
    same_end(second, first)
    assert inside(second) == []
    assert second.conversation.pending_step == first.conversation.pending_step


async def test_a_chat_that_waits_is_the_same_from_every_step():
    for whole, _, after in await deaths(waits):
        same_end(after, whole)
        assert after.conversation.pending_step == whole.conversation.pending_step


async def test_a_chat_whose_sub_agents_ask_is_the_same_from_every_step():
    for whole, _, after in await deaths(with_a_sub_agent_that_asks):
        assert after.response.text == "Done."
        assert after.conversation.pending_step is None
        same_end(after, whole)


async def test_a_chat_that_waits_denies_nothing_of_its_own_when_it_is_played_again():
    """What an earlier life of it has written down, the question too, it writes itself again."""
    first = await live(waits)
    for length in range(len(first.journal) + 1):
        again = await live(waits, first.journal[:length], conversation=left(first))
        same_end(again, first)
        assert again.conversation.pending_step == first.conversation.pending_step


async def test_a_resumed_chat_plays_again_from_every_step():
    """A pending approval that is answered under the recording runtime."""
    first = await live(waits)
    play = answered(some)
    whole = await live(play, conversation=left(first), name="later")
    assert whole.response.text == "Done."
    assert whole.ran("tool ") == ["tool secret"]
    for length in range(1, len(whole.journal) + 1):
        again = await live(play, whole.journal[:length], conversation=left(first))
        same_end(again, whole)
        assert again.conversation.pending == ()


async def test_a_resumed_chat_runs_nothing_twice():
    """Approved calls, onApproval and all the rest: once in both lives together."""
    first = await live(waits)
    play = answered(some)
    whole = await live(play, conversation=left(first), name="later")
    for limit in range(1, len(whole.journal)):
        before = await live(play, conversation=left(first), name="later", limit=limit)
        after = await live(play, before.journal, conversation=left(first), name="later")
        kept = ended_steps(before.journal)
        total = [(step, text) for step, text in inside(before) if step in kept] + inside(after)
        assert Counter(total) == Counter(inside(whole))


async def test_a_resumed_chat_played_again_asks_nobody_anything():
    """No hook, no tool, no system function runs in a replay of the whole record."""
    first = await live(waits)
    whole = await live(answered(some), conversation=left(first), name="later")
    again = await live(answered(some), whole.journal, conversation=left(first))
    assert inside(again) == []
    assert {text for _, text in again.runtime.notes} <= {"aroundChat", "onHook aroundChat"}


async def test_the_keys_of_a_resumed_chat_are_different_and_in_the_table():
    first = await live(waits)
    whole = await live(answered(some), conversation=left(first), name="later")
    assert len(set(whole.names)) == len(whole.names)
    assert {key[0] for key in whole.runtime.keys} <= set(KEYS)


async def test_a_new_chat_that_denies_what_waits_plays_again():
    """A new chat on a conversation with pending calls denies them, in every life."""

    def goes_on(runtime, note):
        agent, _ = waits(runtime, note)
        return agent, ask("Never mind.")

    first = await live(waits)
    whole = await live(goes_on, conversation=left(first), name="later")
    assert [m.outcome for m in whole.history if isinstance(m, ToolMessage)] == [
        "ok",
        "denied",
        "denied",
    ]
    for length in range(1, len(whole.journal) + 1):
        same_end(await live(goes_on, whole.journal[:length], conversation=left(first)), whole)


async def test_an_answer_is_asked_for_once():
    """The approver is asked in one life, and what it did to run.state is in the record."""
    whole = await live(every_point)
    line = next(each for each in whole.journal if each.get("end") == "step/0/call/c1/answer")
    assert line["value"]["kind"] == "approve"
    assert line["effects"]["state"]["asked"] is True
    after = await live(every_point, cut_after(whole, "step/0/call/c1/answer"))
    assert after.ran("approver") == []
    same_end(after, whole)


async def test_an_interrupted_question_is_put_again():
    """The approver that had not answered is asked by the next life."""
    whole = await live(every_point)
    after = await live(every_point, cut_inside(whole, "step/0/call/c1/answer"))
    assert after.ran("approver") == ["approver chat-1.c1"]
    same_end(after, whole)


async def test_a_question_expires_by_the_clock_of_the_record():
    """expires= is reckoned once; a second life does not give more time."""
    whole = await live(denied_by_the_approver)
    requests = [each.request for each in whole.events if kinds([each]) == ["ApprovalRequested"]]
    after = await live(denied_by_the_approver, cut_after(whole, "step/0/call/c2"))
    again = [each.request for each in after.events if kinds([each]) == ["ApprovalRequested"]]
    assert again == requests
    assert all(request.expires for request in requests)


# ── what is known by name ───────────────────────────────────────────────────────────────────


def gives_a_tool(note, name):
    """A hook that puts a tool of its own into the request."""

    @tool(name=name, idempotent=True)
    async def extra() -> str:
        note("tool of the hook")
        return "extra"

    def gives(ctx):
        others = tuple(each for each in ctx.request.tools if each.name != name)
        return ctx.request.replace(tools=(*others, extra))

    return gives


def with_a_tool_of(point, name="extra"):
    def play(runtime, note):
        model = Model(note, [("c1", name, {})], ["Done."])
        agent = Agent(model, tools=tools_of(note), runtime=runtime)
        agent.add_hook(point, gives_a_tool(note, name))
        return agent, ask()

    return play


@pytest.mark.parametrize("point", ["preChat", "preRequest"])
async def test_a_tool_that_a_hook_brought_is_not_needed_in_a_replay(point):
    """Recorded steps give what they gave, whatever is known of the tools now."""
    first = await live(with_a_tool_of(point))
    assert first.ran("tool ") == ["tool of the hook"]
    second = await live(with_a_tool_of(point), first.journal)
    assert second.notes == []
    same_end(second, first)


@pytest.mark.parametrize("point", ["preChat", "preRequest"])
async def test_a_tool_in_place_of_another_is_never_that_other_one(point):
    """A hook put its own `secret` in: a later life never runs the agent's instead."""
    play = with_a_tool_of(point, "secret")
    whole = await live(play)
    assert whole.ran("tool ") == ["tool of the hook"]
    for length in range(1, len(whole.journal)):
        after = await live(play, whole.journal[:length])
        assert "tool secret" not in after.notes
        check_history(after.history)


async def test_a_model_that_a_hook_chose_is_not_needed_in_a_replay():
    """request.model is what proceed calls; once it has answered nobody needs it."""

    def chooses(runtime, note):
        other = Model(note, ["From the other."])
        other.name = "other"
        agent = Agent(Model(note, ["Never."]), runtime=runtime)
        agent.add_hook("preRequest", lambda ctx: ctx.request.replace(model=other))
        return agent, ask()

    first = await live(chooses)
    assert first.response.text == "From the other."
    for name in ("step/0/model", "message/1"):
        second = await live(chooses, cut_after(first, name))
        assert second.ran("model") == []
        same_end(second, first)


async def test_a_model_that_a_hook_chose_is_not_replaced_by_the_agents():
    """A request is for the model that the record names, or fails."""

    def chooses(runtime, note):
        other = Model(note, ["From the other."])
        other.name = "other"
        agent = Agent(Model(note, ["Never."]), runtime=runtime)
        agent.add_hook("preRequest", lambda ctx: ctx.request.replace(model=other))
        return agent, ask()

    whole = await live(chooses)
    after = await live(chooses, cut_after(whole, "step/0/request"))
    assert isinstance(after.error, ModelError)
    assert "'other'" in str(after.error)
    assert after.ran("model") == []


async def test_the_messages_that_a_hook_chose_are_in_the_record():
    """A model step that was interrupted asks with them again."""
    asked = []

    def chooses(runtime, note):
        model = Model(note, ["Hm."])
        agent = Agent(model, runtime=runtime)
        own = (UserMessage(parts=(Text("Mine."),)),)
        agent.add_hook("preRequest", lambda ctx: ctx.request.replace(messages=own))

        async def look(ctx, proceed):
            asked.append([message.text for message in ctx.request.messages])
            return await proceed()

        agent.add_hook("aroundRequest", look)
        return agent, ask()

    whole = await live(chooses)
    same_end(await live(chooses, cut_inside(whole, "step/0/model")), whole)
    assert asked == [["Mine."], ["Mine."]]


async def test_a_StopChat_in_the_models_place_is_the_same_in_a_replay():
    """There is no answer to take from the record."""

    def stops(runtime, note):
        async def closed(ctx, proceed):
            raise StopChat("closed", "Bye.")

        agent = Agent(Model(note), runtime=runtime)
        agent.add_hook("aroundRequest", closed)
        return agent, ask()

    whole = await live(stops)
    assert whole.response.text == "Bye."
    same_end(await live(stops, whole.journal), whole)


async def test_a_scope_that_a_tool_registered_is_not_needed_in_a_replay():
    """A tool brings a scope along: in a replay neither it nor the scope's observers run."""

    def loads(runtime, note):
        @tool
        async def later() -> str:
            note("tool later")
            return "later"

        @tool
        async def load() -> str:
            note("tool load")
            agent.scopes.register(Scope("more", tools=[later]))
            return "loaded"

        model = Model(note, [("c1", "load", {})], [("c2", "later", {})], ["Done."])
        agent = Agent(model, tools=[load], runtime=runtime)
        agent.add_hook("onScopeRegister", watched(note, "onScopeRegister"))
        return agent, ask()

    first = await live(loads)
    assert first.ran("tool ") == ["tool load", "tool later"]
    second = await live(loads, first.journal)
    assert second.notes == []
    same_end(second, first)


@pytest.mark.parametrize("was", [True, False], ids=["was-on", "was-off"])
async def test_a_call_is_admitted_once(was):
    """Whether a tool is on is asked in a step: a replay runs no call that was refused."""
    on = []

    def switched(runtime, note):
        @tool(enabled=lambda: on[-1])
        async def maybe() -> str:
            note("tool maybe")
            return "maybe"

        def switches(ctx):
            on.append(was)

        agent = Agent(Model(note, [("c1", "maybe", {})], ["Done."]), tools=[maybe], runtime=runtime)
        agent.add_hook("onResponse", switches)
        return agent, ask()

    on[:] = [True]
    first = await live(switched)
    assert first.ran("tool ") == (["tool maybe"] if was else [])
    on[:] = [not was]
    second = await live(switched, first.journal)
    assert second.notes == []
    assert second.names == first.names
    same_end(second, first)


async def test_what_the_scopes_offered_is_asked_once():
    """enabled() and context() are asked inside of steps, so not in a replay."""
    whole = await live(context_of_scopes)
    assert whole.ran("context") != []
    again = await live(context_of_scopes, whole.journal)
    assert again.ran("context") == again.ran("system") == []


# ── values that are no JSON ─────────────────────────────────────────────────────────────────


def replies(value):
    """preToolCall gives this value."""

    def play(runtime, note):
        model = Model(note, [("c1", "add", {"a": 1, "b": 1})], ["Done."])
        agent = Agent(model, tools=tools_of(note), runtime=runtime)
        agent.add_hook("preToolCall", lambda ctx: value(ctx.call))
        return agent, ask()

    return play


NOT_JSON = pytest.mark.parametrize(
    "value",
    [
        lambda call: ToolResult(object()),
        lambda call: ToolResult({"when": complex(1, 2)}),
        lambda call: ToolResult("lone \ud800 surrogate"),
        lambda call: ToolFailure("lone \ud800 surrogate"),
    ],
    ids=["answer", "inside", "surrogate", "surrogate-error"],
)


@NOT_JSON
async def test_what_is_no_json_ends_no_chat_that_is_recorded(value):
    """A step's result is JSON: what cannot be is the same tool error as without a recorder."""
    local = await live(replies(value), runtime=Ids())
    recorded = await live(replies(value))
    assert local.error is None
    same_end(recorded, local)


async def test_arguments_that_are_no_json_end_no_chat_that_is_recorded():
    """The same for arguments that preToolCall gave to a call."""
    bad = replies(lambda call: call.replace(arguments={"a": object(), "b": 1}))
    local = await live(bad, runtime=Ids())
    recorded = await live(bad)
    assert local.error is None
    same_end(recorded, local)


@NOT_JSON
async def test_what_is_no_json_is_the_same_in_a_replay(value):
    first = await live(replies(value))
    second = await live(replies(value), first.journal)
    assert second.notes == []
    same_end(second, first)


async def test_media_come_back_from_the_record():
    """Bytes of the user's and of a tool's images are JSON in the record and bytes again after."""

    def shows(runtime, note):
        @tool(idempotent=True)
        async def camera() -> ToolResult:
            note("tool camera")
            return ToolResult("seen", media=(Image(media_type="image/png", data=b"\x00\xff"),))

        agent = Agent(
            Model(note, [("c1", "camera", {})], ["Done."]), tools=[camera], runtime=runtime
        )
        agent.add_hook("onToolCallResult", lambda ctx: None)
        agent.add_hook("preChat", lambda ctx: None)

        async def begin(agent, conversation):
            parts = [Text("Look."), Image(media_type="image/png", data=b"\x01\xfe")]
            return await agent.chat(parts, conversation=conversation)

        return agent, begin

    whole = await live(shows)
    assert whole.history[2].media[0].data == b"\x00\xff"
    for length in range(1, len(whole.journal) + 1):
        after = await live(shows, whole.journal[:length])
        same_end(after, whole)
        assert after.history[0].parts[1].data == b"\x01\xfe"


async def test_any_text_comes_back_from_the_record():
    """NUL, emoji and surrogates in what a model streams."""

    def speaks(runtime, note):
        return Agent(Model(note, ["a\x00b ", "\N{PARTY POPPER}", "\ud83d"]), runtime=runtime), ask()

    whole = await live(speaks)
    for length in range(1, len(whole.journal) + 1):
        same_end(await live(speaks, whole.journal[:length]), whole)


# ── sub-agents, conversations, streams ──────────────────────────────────────────────────────


async def test_a_sub_agent_is_part_of_the_call_that_asked_it():
    """Its chat runs inside of the tool's step: recorded with it, and not run again."""
    whole = await live(with_a_sub_agent)
    assert [name for name in whole.names if "run" in name] == ["step/0/call/c1/run"]
    assert whole.ran("child") == ["child onMessage", "child model 0", "child onMessage"]
    after = await live(with_a_sub_agent, cut_after(whole, "step/0/call/c1/run"))
    assert after.ran("child") == []
    same_end(after, whole)


async def test_a_sub_agents_events_count():
    """Numbered in order per root chat, in a replay too."""
    whole = await live(with_a_sub_agent)
    inner = [event for event in whole.events if event.path]
    assert len(inner) > 4
    after = await live(with_a_sub_agent, cut_after(whole, "step/0/call/c1/run"))
    assert min(event.seq for event in after.events if isinstance(event, ToolCallFinished)) == (
        inner[-1].seq + 1
    )


def before():
    """A conversation that has had a turn."""
    return Conversation(
        [
            UserMessage(id="u", parts=(Text("Hello."),)),
            AssistantMessage(
                id="a", parts=(Text("Hi."), ToolCall(id="c1", name="add", arguments={}))
            ),
            ToolMessage(id="t", call_id="c1", name="add", text="0"),
        ],
        id="conv",
    )


async def test_a_chat_on_a_conversation_plays_again_from_every_step():
    """Messages are written after those of earlier chats, each once."""

    def later(runtime, note):
        model = Model(note, [], ["See.", ("c1", "add", {"a": 1, "b": 1})], ["Done."])
        return Agent(model, tools=tools_of(note), runtime=runtime), ask()

    whole = await live(later, conversation=before())
    assert whole.error is None
    assert len(whole.history) == 7
    for length in range(1, len(whole.journal) + 1):
        same_end(await live(later, whole.journal[:length], conversation=before()), whole)


async def test_a_chat_plays_again_on_the_conversation_that_it_wrote_to():
    """Each message is committed once and only once, also where the store has it already."""
    for play in (plain, every_point, waits):
        whole = await live(play)
        written = whole.history
        again = await live(play, whole.journal, conversation=whole.conversation)
        assert again.history == written


async def test_a_stream_goes_on_too():
    """chat_stream under a recorder: what a second life streams is what was missing."""

    def streams(runtime, note):
        agent, _ = plain(runtime, note)

        async def begin(agent, conversation):
            async with agent.chat_stream("Go.", conversation=conversation) as stream:
                async for event in stream:
                    note(f"{event.seq} {type(event).__name__}")
            return stream.response

        return agent, begin

    whole = await live(streams)
    after = await live(streams, cut_after(whole, "step/1/request"))
    assert [text for text in after.notes if text[0].isdigit()] == [
        "1 ChatStarted",
        "3 StepStarted",
        "9 ToolCallStarted",
        "10 ToolCallFinished",
        "12 StepFinished",
        "13 StepStarted",
        "14 TextDelta",
        "15 PartEnd",
        "16 MessageAdded",
        "17 StepFinished",
        "18 ChatDone",
    ]


async def test_chats_of_one_agent_have_records_of_their_own():
    """A runtime is told which chat asks: two at once do not mix."""
    chats = {}

    class Each(Ids):
        def for_chat(self, chat):
            found = Recording()
            chats[chat.chat_id] = found
            return found.for_chat(chat)

    runtime = Each()
    agent, _ = plain(runtime, lambda text: None)
    first, second = await asyncio.gather(agent.chat("One."), agent.chat("Two."))
    for response in (first, second):
        texts = [
            line["value"]["parts"]
            for line in chats[response.chat_id].journal
            if line.get("end") == "message/0"
        ]
        assert texts == [[{"part": "text", "text": response.messages[0].text}]]


# ── the rule of a replay, in the table of hook points ───────────────────────────────────────


def scopes_in_a_chat(runtime, note):
    """A tool registers a scope and removes it."""

    @tool
    async def load() -> str:
        agent.scopes.register(Scope("more"))()
        return "loaded"

    agent = Agent(Model(note, [("c1", "load", {})], ["Done."]), tools=[load], runtime=runtime)
    for point in ("onScopeRegister", "onScopeUnregister"):
        agent.add_hook(point, watched(note, point))
    return agent, ask()


def changed_afterwards(runtime, note):
    """A message is changed when the chat is over."""
    agent = Agent(Model(note, ["Done."]), runtime=runtime)
    for point in ("preMessageUpdate", "onMessageUpdate"):
        agent.add_hook(point, watched(note, point))

    async def begin(agent, conversation):
        response = await agent.chat("Go.", conversation=conversation)
        changes = MessageChanges(text="Stop.")
        await agent.update_message(conversation, conversation.messages[0].id, changes)
        return response

    return agent, begin


PLAYED = {
    "preSteer": steered,
    "preMessageUpdate": changed_afterwards,
    "onMessageUpdate": changed_afterwards,
    "onChatAbort": aborted_by_a_tool,
    "onChatError": too_many_steps,
    "onScopeRegister": scopes_in_a_chat,
    "onScopeUnregister": scopes_in_a_chat,
}


@pytest.mark.parametrize("point", list(hookline.points.TABLE))
async def test_a_replay_runs_the_hooks_that_the_table_says(point):
    says = hookline.points.TABLE[point].replay
    play = PLAYED.get(point, every_point)
    first = await live(play)
    second = await live(play, first.journal)
    ran = [text for text in first.notes if text.split()[0] == point]
    again = [text for text in second.notes if text.split()[0] == point]
    assert ran != []
    if says == "not run again":
        assert [text for text in again if text != "onHook aroundChat"] == []
    else:
        assert says.startswith("runs again")
        assert again == ran


async def test_a_wrapper_of_the_whole_chat_runs_in_each_life():
    """aroundChat spans the chat, so it is outside of every step."""
    whole = await live(every_point)
    assert whole.runtime.notes[0] == (OUTSIDE, "aroundChat")
    after = await live(every_point, cut_after(whole, "step/1/model"))
    assert after.ran("aroundChat") == ["aroundChat"]


async def test_every_hook_but_around_chat_runs_inside_of_a_step():
    """Hooks – observers too – run inside the step whose moment they see."""
    for play in SCENES.values():
        life = await live(play)
        outside = {text for step, text in life.runtime.notes if step == OUTSIDE}
        assert outside <= {"aroundChat", "onHook aroundChat"}


INSIDE = {
    "start": {"onChatStart"},
    "preChat": {"preChat"},
    "message/0": {"preMessage", "onMessage"},
    "step/0/request": {"preCompact", "preRequest"},
    "step/0/model": {"aroundRequest", "onDelta"},
    "step/0/response": {"onResponse"},
    "step/0/call/c1": {"preToolCall"},
    "step/0/call/c1/asked": {"onApproval"},
    "step/0/call/c1/answer": {"onStatus"},
    "step/0/call/c1/answered": {"onApproval"},
    "step/0/call/c1/run": {"aroundToolCall"},
    "step/0/call/c1/result": {"onToolCallResult"},
    "step/0/call/c2/result": {"onToolCallError"},
    "step/0/call/c6/run": {"aroundToolCall", "onStatus"},
    "step/0/end": {"onStep"},
    "stop/0": {"preStop"},
    "step/2/say": {"onDelta"},
    "done/outcome/0": {"onChatDone"},
    "done/end/0": {"onChatEnd"},
}


async def test_each_hook_runs_in_the_step_whose_moment_it_sees():
    """The whole onion of a wrapper is one step, and so is a whole chain."""
    life = await live(every_point)
    found = {}
    for step, text in life.runtime.notes:
        point = text.split()[0]
        if point in {*OBSERVED, *CHAINS, *WRAPPERS, "onDelta", "onChatEnd"}:
            found.setdefault(step, set()).add(point)
    assert {step: found.get(step) for step in INSIDE} == INSIDE
