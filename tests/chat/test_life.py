"""The life of a chat: the whole order, what goes wrong before it, and chats that never meet."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests._event_grammar import check_events
from tests._every_point import compacting, sending

from hookline import (
    Agent,
    Ask,
    AssistantMessage,
    Continue,
    Conversation,
    HookBus,
    Limits,
    ModelRequest,
    ModelResponse,
    Run,
    Stop,
    Text,
    ToolFailure,
    ToolResult,
    UserMessage,
    check_history,
    tool,
)
from hookline._conversations.conversation import state_of
from hookline.errors import (
    ChatAbortedError,
    ConversationBusyError,
    HistoryError,
    MaxStepsError,
    UnknownHookError,
    UsageError,
)
from hookline.events import (
    ChatDone,
    ChatFailed,
    ChatStarted,
    MessageAdded,
    ResponseReset,
    TextDelta,
    ToolCallFinished,
    ToolCallStarted,
)
from hookline.models import TextChunk
from hookline.points import TABLE
from hookline.testing import ScriptedModel, Turn, call, collect


class Boom(Exception):
    pass


@tool
async def look(q: str = "") -> str:
    """Look it up."""
    return f"found {q}"


class TraceBus(HookBus[Any]):
    """A bus that notes events in their place among the hooks."""

    def __init__(self, out: list[str]) -> None:
        super().__init__()
        self.out = out
        self.on_publish: list[Callable[[Any], None]] = []
        self.subscribe()  # nobody reads it: it is there so that events are made

    def publish(self, event: object) -> None:
        self.out.append(f"<{type(event).__name__}{of_event(event)}>")
        for tell in self.on_publish:
            tell(event)


def of_event(event: Any) -> str:
    match event:
        case MessageAdded():
            return f" {event.message.role}"
        case ToolCallStarted():
            return f" {event.call.id}"
        case ToolCallFinished():
            return f" {event.call_id} {event.outcome}"
    return f" {event.iteration}" if hasattr(event, "iteration") else ""


def of_context(ctx: Any) -> str:
    if (message := getattr(ctx, "message", None)) is not None:
        return f" {message.role}"
    if (delta := getattr(ctx, "delta", None)) is not None:
        return f" {type(delta).__name__}"
    if (asked := getattr(ctx, "call", None)) is not None:
        return f" {asked.id}"
    return f" {ctx.iteration}" if hasattr(ctx, "iteration") else ""


def traced(agent: Agent[Any], out: list[str], seen: list[Any] | None = None) -> None:
    """Note each hook point of a chat that fires; `seen` gets the contexts."""

    def observer(name: str) -> Callable[[Any], None]:
        def note(ctx: Any) -> None:
            out.append(f"{name}{of_context(ctx)}")
            if seen is not None:
                seen.append(ctx)

        return note

    def wrapper(name: str) -> Callable[[Any, Any], Awaitable[Any]]:
        async def note(ctx: Any, proceed: Any) -> Any:
            out.append(f"{name} >")
            if seen is not None:
                seen.append(ctx)
            result = await proceed()
            out.append(f"{name} <")
            return result

        return note

    add: Any = agent.add_hook
    for name, head in TABLE.items():
        if name != "onHook":
            add(name, wrapper(name) if head.kind == "wrapper" else observer(name))


# ── the whole order ─────────────────────────────────────────────────────────────────────────


async def test_the_whole_order_of_a_chat() -> None:
    out: list[str] = []
    model = ScriptedModel(["Let me see.", call("look", q="x", call_id="c")], "It is x.")
    agent = Agent(model, tools=[look], bus=TraceBus(out))
    traced(agent, out)
    with model:
        await agent.chat("what?", conversation=Conversation())
    assert out == [
        "aroundChat >",
        "<ChatStarted>",
        "onChatStart user",
        "preChat",
        "preMessage user",
        "<MessageAdded user>",
        "onMessage user",
        # step 0
        "preRequest 0",
        "<StepStarted 0>",
        "aroundRequest >",
        "onDelta TextChunk",
        "<TextDelta 0>",
        "onDelta PartEndChunk",
        "<PartEnd 0>",
        "onDelta ToolCallChunk",
        "<ToolCallDelta 0>",
        "aroundRequest <",
        "onResponse 0",
        "preMessage assistant",
        "<MessageAdded assistant>",
        "onMessage assistant",
        "preToolCall c",
        "<ToolCallStarted c>",
        "aroundToolCall >",
        "aroundToolCall <",
        "onToolCallResult c",
        "<ToolCallFinished c ok>",
        "preMessage tool",
        "<MessageAdded tool>",
        "onMessage tool",
        "onStep 0",
        "<StepFinished 0>",
        # step 1
        "preRequest 1",
        "<StepStarted 1>",
        "aroundRequest >",
        "onDelta TextChunk",
        "<TextDelta 1>",
        "onDelta PartEndChunk",
        "<PartEnd 1>",
        "aroundRequest <",
        "onResponse 1",
        "preMessage assistant",
        "<MessageAdded assistant>",
        "onMessage assistant",
        "onStep 1",
        "<StepFinished 1>",
        # the end
        "preStop",
        "onChatDone",
        "onChatEnd",
        "aroundChat <",
        "<ChatDone>",
    ]


async def test_the_events_of_a_chat_are_the_same_for_its_stream() -> None:
    out: list[str] = []
    model = ScriptedModel(["Let me see.", call("look", q="x", call_id="c")], "It is x.")
    agent = Agent(model, tools=[look], bus=TraceBus(out))
    events = await collect(agent.chat_stream("what?"))
    assert [f"<{type(event).__name__}{of_event(event)}>" for event in events] == out
    assert [event.seq for event in events] == list(range(1, len(events) + 1))


async def test_parallel_results_finish_as_they_come_and_are_committed_in_the_models_order() -> None:
    """12.3: ToolCallFinished when it finishes, its MessageAdded when it is committed."""
    out: list[str] = []
    second_done = asyncio.Event()

    @tool
    async def slow() -> str:
        await second_done.wait()
        return "slow"

    @tool
    async def fast() -> str:
        return "fast"

    model = ScriptedModel([call("slow", call_id="a"), call("fast", call_id="b")], "ok")
    bus = TraceBus(out)
    bus.on_publish.append(
        lambda e: (
            second_done.set() if isinstance(e, ToolCallFinished) and e.call_id == "b" else None
        )
    )
    agent = Agent(model, tools=[slow, fast], bus=bus)
    agent.add_hook("preToolCall", lambda ctx: out.append(f"preToolCall {ctx.call.id}"))
    await agent.chat("go")
    begin, end = out.index("preToolCall a"), out.index("<StepFinished 0>")
    assert out[begin : end + 1] == [
        "preToolCall a",
        "preToolCall b",
        "<ToolCallStarted a>",
        "<ToolCallStarted b>",
        "<ToolCallFinished b ok>",
        "<ToolCallFinished a ok>",
        "<MessageAdded tool>",
        "<MessageAdded tool>",
        "<StepFinished 0>",
    ]
    messages = model.requests[-1].messages
    assert [m.text for m in messages if m.role == "tool"] == ["slow", "fast"]


async def test_each_result_is_committed_as_soon_as_its_turn_comes() -> None:
    """A result does not wait for a slower call that stands behind it."""
    out: list[str] = []
    first_added = asyncio.Event()

    @tool
    async def fast() -> str:
        return "fast"

    @tool
    async def slow() -> str:
        await first_added.wait()
        return "slow"

    bus = TraceBus(out)
    bus.on_publish.append(
        lambda e: (
            first_added.set() if isinstance(e, MessageAdded) and e.message.role == "tool" else None
        )
    )
    model = ScriptedModel([call("fast"), call("slow")], "ok")
    await asyncio.wait_for(Agent(model, tools=[fast, slow], bus=bus).chat("go"), 60)
    assert [m.text for m in model.requests[-1].messages if m.role == "tool"] == ["fast", "slow"]


async def _abort(agent: Agent[Any]) -> None:
    agent.add_hook("onStep", lambda ctx: void(ctx.run.abort("enough")))


async def _fail(agent: Agent[Any]) -> None:
    def boom(ctx: Any) -> None:
        raise Boom

    agent.add_hook("onStep", boom)


async def _stop(agent: Agent[Any]) -> None:
    agent.add_hook("preRequest", lambda ctx: Stop("enough"))


async def _nothing(agent: Agent[Any]) -> None:
    return None


def void(value: object) -> None:
    return None


@pytest.mark.parametrize(
    ("prepare", "outcome"),
    [
        pytest.param(_nothing, ["onChatDone", "onChatEnd", "<ChatDone>"], id="done"),
        pytest.param(_stop, ["onChatDone", "onChatEnd", "<ChatDone>"], id="stopped"),
        pytest.param(_abort, ["onChatAbort", "onChatEnd", "<ChatAborted>"], id="aborted"),
        pytest.param(_fail, ["onChatError", "onChatEnd", "<ChatFailed>"], id="failed"),
    ],
)
async def test_exactly_one_outcome_then_the_end_then_the_last_event(
    prepare: Callable[[Agent[Any]], Awaitable[None]], outcome: list[str]
) -> None:
    out: list[str] = []
    agent = Agent(ScriptedModel("hi"), bus=TraceBus(out))
    await prepare(agent)
    traced(agent, out)
    await asyncio.gather(agent.chat("hi"), return_exceptions=True)
    ends = ("onChatDone", "onChatAbort", "onChatError", "onChatEnd", "<Chat")
    told = [line for line in out if line.startswith(ends) and line != "<ChatStarted>"]
    assert told == outcome


async def test_the_exception_is_raised_after_the_last_event() -> None:
    """ChatDone | ChatAborted | ChatFailed → the exception, if any, is raised."""
    error = Boom("why")
    agent = Agent(ScriptedModel(error))
    events: list[Any] = []
    with pytest.raises(Boom) as caught:
        await collect(agent.chat_stream("hi"), events)
    assert caught.value is error
    assert isinstance(events[-1], ChatFailed)
    assert (events[-1].error.type, events[-1].error.message) == ("Boom", "why")


async def test_the_conversation_is_freed_after_the_end_hooks_and_before_the_last_event() -> None:
    out: list[Any] = []
    conversation = Conversation()
    bus = TraceBus([])
    bus.on_publish.append(
        lambda e: out.append(("ChatDone", conversation.busy)) if isinstance(e, ChatDone) else None
    )
    agent = Agent(ScriptedModel("hi"), bus=bus)
    agent.add_hook("onChatEnd", lambda ctx: out.append(("onChatEnd", conversation.busy)))
    await agent.chat("hi", conversation=conversation)
    assert out == [("onChatEnd", True), ("ChatDone", False)]


async def test_the_reader_of_the_last_event_may_start_the_next_chat() -> None:
    conversation = Conversation()
    agent = Agent(ScriptedModel("one", "two"))
    async for event in agent.chat_stream("hi", conversation=conversation):
        if isinstance(event, ChatDone):
            assert (await agent.chat("more", conversation=conversation)).text == "two"
    assert [message.text for message in conversation.messages] == ["hi", "one", "more", "two"]


async def test_steps_are_counted_from_0() -> None:
    seen: list[tuple[int, int]] = []
    agent = Agent(ScriptedModel([call("look")], [call("look")], "ok"), tools=[look])
    agent.add_hook("preRequest", lambda ctx: seen.append((ctx.iteration, ctx.run.iteration)))
    await agent.chat("hi")
    assert seen == [(0, 0), (1, 1), (2, 2)]


# ── hooks: sync, async, awaitable ───────────────────────────────────────────────────────────


def hook_forms() -> list[Any]:
    async def later(out: list[str]) -> None:
        await asyncio.sleep(0)
        out.append("ran")

    class Callable_:
        def __init__(self, out: list[str]) -> None:
            self.out = out

        async def __call__(self, ctx: Any) -> None:
            await later(self.out)

    def sync(out: list[str]) -> Any:
        return lambda ctx: out.append("ran")

    def coroutine_function(out: list[str]) -> Any:
        async def hook(ctx: Any) -> None:
            await later(out)

        return hook

    def returns_coroutine(out: list[str]) -> Any:
        return lambda ctx: later(out)

    def returns_future(out: list[str]) -> Any:
        return lambda ctx: asyncio.ensure_future(later(out))

    return [
        pytest.param(sync, id="sync"),
        pytest.param(coroutine_function, id="async"),
        pytest.param(returns_coroutine, id="sync-giving-a-coroutine"),
        pytest.param(returns_future, id="sync-giving-a-future"),
        pytest.param(Callable_, id="async-callable-object"),
    ]


@pytest.mark.parametrize("make", hook_forms())
@pytest.mark.parametrize("point", ["onChatStart", "preChat", "onMessage", "onDelta", "onChatEnd"])
async def test_an_awaitable_that_a_hook_returns_is_awaited(point: Any, make: Any) -> None:
    """A hook is a callable, sync or async; each is awaited before the next one runs."""
    out: list[str] = []
    agent = Agent(ScriptedModel("hi"))
    agent.add_hook(point, make(out))
    agent.add_hook(point, lambda ctx: out.append("next"))
    await agent.chat("hi")
    assert out[:2] == ["ran", "next"]


# ── contexts ────────────────────────────────────────────────────────────────────────────────


async def contexts_of_a_chat() -> tuple[Agent[Any], list[Any]]:
    out: list[str] = []
    seen: list[Any] = []

    @tool
    async def fails(run: Run[Any]) -> str:
        await run.status("working")
        raise Boom

    model = ScriptedModel([call("look"), call("fails")], "ok")
    agent = Agent(model, tools=[look, fails])
    traced(agent, out, seen)
    agent.add_hook("onStep", sending("And then?"))
    agent.add_hook("preRequest", compacting)
    await agent.chat("hi")
    return agent, seen


async def test_every_context_is_frozen_and_has_the_run_of_its_chat() -> None:
    _, seen = await contexts_of_a_chat()
    elsewhere = {"onChatAbort", "onChatError", "onApproval", "onHook"}
    outside = {"onScopeRegister", "onScopeUnregister"}  # these two have no chat
    updates = {"preMessageUpdate", "onMessageUpdate"}
    fired = {TABLE[name].context for name in set(TABLE) - elsewhere - outside - updates}
    assert {type(ctx) for ctx in seen} == fired
    (chat_id,) = {ctx.run.chat_id for ctx in seen}
    assert chat_id
    for ctx in seen:
        for field in type(ctx).__struct_fields__:
            with pytest.raises(AttributeError):
                setattr(ctx, field, None)


async def test_no_context_holds_the_agent() -> None:
    agent, seen = await contexts_of_a_chat()
    for ctx in seen:
        for field in type(ctx).__struct_fields__:
            assert getattr(ctx, field) is not agent
    assert {ctx.run.agent for ctx in seen} == {"agent"}  # its name


# ── what is wrong before the start ──────────────────────────────────────────────────────────


async def _throws_before(ctx: Any, proceed: Any) -> Any:
    raise Boom


def busy() -> Conversation:
    conversation = Conversation()
    state_of(conversation).acquire("another")
    return conversation


WRONG_BEFORE = [
    pytest.param({"conversation": busy}, None, ConversationBusyError, id="busy-conversation"),
    pytest.param({"hooks": lambda: ["nobody"]}, None, UnknownHookError, id="unknown-hook-id"),
    pytest.param({"conversation": lambda: "c1"}, None, UsageError, id="id-without-a-store"),
    pytest.param({}, _throws_before, Boom, id="aroundChat-before-proceed"),
]


@pytest.mark.parametrize(("options", "around", "error"), WRONG_BEFORE)
async def test_what_is_wrong_before_the_start_reaches_the_caller_alone(
    options: dict[str, Any], around: Any, error: type[Exception]
) -> None:
    """No other hook, no event."""
    out: list[str] = []
    agent = Agent(ScriptedModel(), bus=TraceBus(out))
    if around is not None:
        agent.add_hook("aroundChat", around, priority=1)
    traced(agent, out)
    with pytest.raises(error):
        await agent.chat("hi", **{name: make() for name, make in options.items()})
    assert out == []


@pytest.mark.parametrize(("options", "around", "error"), WRONG_BEFORE)
async def test_what_is_wrong_before_the_start_reaches_the_reader_of_the_stream_alone(
    options: dict[str, Any], around: Any, error: type[Exception]
) -> None:
    out: list[str] = []
    events: list[Any] = []
    agent = Agent(ScriptedModel(), bus=TraceBus(out))
    if around is not None:
        agent.add_hook("aroundChat", around, priority=1)
    traced(agent, out)
    with pytest.raises(error):
        await collect(
            agent.chat_stream("hi", **{name: make() for name, make in options.items()}), events
        )
    assert (out, events) == ([], [])


async def test_a_message_id_that_the_history_has_is_refused_before_the_start() -> None:
    """A duplicate is refused with a clear error, to the caller alone."""
    out: list[str] = []
    said = UserMessage(id="u1", parts=(Text("hi"),))
    conversation = Conversation([said])
    agent = Agent(ScriptedModel("hello"), bus=TraceBus(out))
    traced(agent, out)
    with pytest.raises(HistoryError, match="u1"):
        await agent.chat(said, conversation=conversation)
    assert out == []
    assert conversation.messages == (said,)


@pytest.mark.parametrize("origin", ["input", "preChat"])
async def test_a_message_id_that_this_chat_would_give_is_refused(origin: str) -> None:
    """Otherwise the answer gets the id of the message that it answers."""
    said = UserMessage(id="mine.1", parts=(Text("hi"),))
    conversation = Conversation()
    agent = Agent(ScriptedModel("hello"))
    message: Any = said
    if origin == "preChat":
        agent.add_hook("preChat", lambda ctx: ctx.request.replace(message=said))
        message = "hi"
    with pytest.raises(UsageError, match=r"mine\.1"):
        await agent.chat(message, conversation=conversation, chat_id="mine")
    assert conversation.messages == ()


async def test_what_was_wrong_before_the_start_leaves_the_conversation_free() -> None:
    conversation = Conversation()
    agent = Agent(ScriptedModel("fine"))
    dispose = agent.add_hook("aroundChat", _throws_before)
    with pytest.raises(Boom):
        await agent.chat("hi", conversation=conversation)
    dispose()
    assert not conversation.busy
    assert conversation.messages == ()
    assert (await agent.chat("hi", conversation=conversation)).text == "fine"


async def test_a_throw_in_onChatStart_is_a_failed_chat() -> None:
    """The chat has started by then, so it has an outcome."""
    out: list[str] = []
    error = Boom()

    def boom(ctx: Any) -> None:
        raise error

    agent = Agent(ScriptedModel(), bus=TraceBus(out))
    agent.add_hook("onChatStart", boom, priority=-1)
    traced(agent, out)
    with pytest.raises(Boom) as caught:
        await agent.chat("hi")
    assert caught.value is error
    assert out == [
        "aroundChat >",
        "<ChatStarted>",
        "onChatStart user",
        "onChatError",
        "onChatEnd",
        "<ChatFailed>",
    ]


# ── chats that never meet ───────────────────────────────────────────────────────────────────


async def test_a_second_chat_remembers_nothing_of_the_first() -> None:
    model = ScriptedModel("one", "two")
    agent = Agent(model)
    await agent.chat("first")
    await agent.chat("second")
    assert [[m.text for m in r.messages] for r in model.requests] == [["first"], ["second"]]


async def test_two_users_of_one_agent_never_see_each_other() -> None:
    """Two chats in lockstep: history, requests, state, deps, ids, usage are each one's own."""
    seen: dict[str, list[Any]] = {"ann": [], "bob": []}
    meet = asyncio.Barrier(2)

    async def answer(request: ModelRequest) -> Any:
        await meet.wait()
        user = request.messages[0].text
        if len(request.messages) == 1:
            return [f"hello {user}", call("note", text=user)]
        return f"bye {user}"

    @tool
    async def note(text: str, run: Run[str]) -> str:
        run.state["noted"] = text
        await meet.wait()
        return f"noted {text}"

    agent: Agent[str] = Agent(ScriptedModel(*[answer] * 4), tools=[note])

    async def watch(ctx: Any) -> None:
        await meet.wait()
        run = ctx.run
        seen[run.deps].append((run.chat_id, run.state.get("noted"), [m.text for m in run.history]))

    agent.add_hook("onStep", watch)
    ann, bob = await asyncio.gather(
        agent.chat("ann", deps="ann", conversation=Conversation()), agent.chat("bob", deps="bob")
    )
    for name, response in (("ann", ann), ("bob", bob)):
        told = [name, f"hello {name}", f"noted {name}"]
        assert seen[name] == [
            (response.chat_id, name, told),
            (response.chat_id, name, [*told, f"bye {name}"]),
        ]
        assert response.text == f"bye {name}"
        assert [m.text for m in response.messages] == [*told, f"bye {name}"]
    assert ann.chat_id != bob.chat_id
    assert (ann.usage, ann.steps) == (bob.usage, bob.steps)


async def test_an_abort_of_one_chat_leaves_the_other_alone() -> None:
    meet = asyncio.Barrier(2)
    agent = Agent(ScriptedModel("hi", "hi"), limits=Limits(grace=0.05))

    async def hook(ctx: Any) -> None:
        await meet.wait()
        if ctx.message.text == "ann":
            ctx.run.abort("ann")

    agent.add_hook("onChatStart", hook)
    ann, bob = await asyncio.gather(agent.chat("ann"), agent.chat("bob"), return_exceptions=True)
    assert [type(ann).__name__, bob.text] == ["ChatAbortedError", "hi"]


async def test_each_chat_has_an_id_of_its_own_that_its_events_and_response_carry() -> None:
    agent = Agent(ScriptedModel("one", "two"))
    streams = [agent.chat_stream("a"), agent.chat_stream("b")]
    ids = []
    for stream in streams:
        events = await collect(stream)
        assert {event.chat_id for event in events} == {stream.chat_id}
        assert stream.response.chat_id == stream.chat_id
        assert isinstance(events[0], ChatStarted)
        ids.append(stream.chat_id)
    assert len(set(ids)) == 2


async def test_every_stream_of_events_is_well_formed() -> None:
    model = ScriptedModel(["Let me see.", call("look"), call("nobody")], "ok")
    check_events(await collect(Agent(model, tools=[look]).chat_stream("hi")))


# ── whatever the hooks return ───────────────────────────────────────────────────────────────

# What a hook at each point may do: the values that it may return; a throw and an abort besides.
RETURNS: dict[str, list[Callable[[Any], Any]]] = {
    "onChatStart": [],
    "preChat": [
        lambda ctx: ctx.request.replace(system="mine"),
        lambda ctx: ModelResponse.of("given", tool_calls=[call("look", call_id="g")]),
        lambda ctx: Stop("closed", text="closed"),
    ],
    "preRequest": [
        lambda ctx: ctx.request.replace(tools=()),
        lambda ctx: ModelResponse.of("given"),
        lambda ctx: ModelResponse.of("given", tool_calls=[call("look"), call("fails")]),
        lambda ctx: Stop("enough"),
        lambda ctx: Stop("enough", text="bye"),
    ],
    "onDelta": [
        lambda ctx: (),
        lambda ctx: ctx.delta,
        lambda ctx: (ctx.delta, ctx.delta) if isinstance(ctx.delta, TextChunk) else None,
    ],
    "onResponse": [
        lambda ctx: ctx.response.replace(text="changed"),
        lambda ctx: ctx.response.replace(text=""),
        lambda ctx: ctx.response.replace(parts=ctx.response.tool_calls[:1]),
        lambda ctx: ctx.response.replace(parts=(*ctx.response.parts, call("look", call_id="c"))),
    ],
    "preMessage": [lambda ctx: ctx.message.replace(text="changed")],
    "onMessage": [],
    "preToolCall": [
        lambda ctx: ctx.call.replace(arguments={"q": "y"}),
        lambda ctx: ToolResult("mine"),
        lambda ctx: ToolFailure("no"),
        lambda ctx: Stop("enough", text="bye"),
        lambda ctx: Ask("may I?"),
    ],
    "onToolCallResult": [lambda ctx: ToolResult("changed"), lambda ctx: ToolFailure("bad")],
    "onToolCallError": [lambda ctx: ToolFailure("changed"), lambda ctx: Stop("enough")],
    "onStep": [lambda ctx: Stop("enough"), lambda ctx: Stop("enough", text="bye")],
    "preStop": [lambda ctx: Continue("more")],
    "onChatDone": [],
}


def throw(ctx: Any) -> None:
    raise Boom


def abort(ctx: Any) -> None:
    ctx.run.abort("enough")


ACTS = [(point, act) for point, acts in RETURNS.items() for act in (*acts, throw, abort)]


def at(when: int, act: Any) -> Any:
    """A hook that acts once, after so many calls in which it does nothing."""
    left = [when]

    def hook(ctx: Any) -> Any:
        left[0] -= 1
        return act(ctx) if left[0] == -1 else None

    return hook


async def again(ctx: Any, proceed: Any) -> Any:
    try:
        return await proceed()
    except Boom:
        return await proceed()


def texts_shown(events: list[Any]) -> list[str]:
    """The texts of the answers, as a reader of the stream was shown them."""
    shown = [""]
    for event in events:
        match event:
            case TextDelta():
                shown[-1] += event.text
            case ResponseReset():
                shown[-1] = ""
            case MessageAdded(message=AssistantMessage()):
                shown.append("")
    assert shown[-1] == ""  # nothing is left on the screen that was not kept
    return shown[:-1]


@settings(max_examples=200)
@example(
    script=[["look"]],
    acts=[(("preMessage", throw), 2)],
    retried=False,
    release="live",
    parallel=False,
)
@given(
    script=st.lists(
        st.lists(st.sampled_from(["text", " ", "look", "fails", "nobody"]), max_size=3), max_size=3
    ),
    acts=st.lists(
        st.tuples(st.sampled_from(ACTS), st.integers(0, 3)),
        max_size=4,
        unique_by=lambda each: each[0][0],
    ),
    retried=st.booleans(),
    release=st.sampled_from(["live", "response"]),
    parallel=st.booleans(),
)
def test_whatever_the_hooks_do_the_laws_hold(
    script: list[list[str]], acts: list[Any], retried: bool, release: Any, parallel: bool
) -> None:
    """One outcome; well-formed events; valid requests and history; shown = stored; freed."""

    @tool
    async def fails() -> str:
        raise Boom

    async def chat() -> None:
        turns: list[Any] = [
            [part if part in ("text", " ") else call(part) for part in turn] for turn in script
        ]
        if retried:
            turns.insert(0, Turn("broken", call("look"), fail=Boom()))
        model = ScriptedModel(*turns, *["ok"] * 9)  # it refuses a request that is not valid
        agent = Agent(model, tools=[look, fails], parallel_tools=parallel, limits=Limits(steps=6))
        add: Any = agent.add_hook
        if retried:
            add("aroundRequest", again)
        for (point, act), when in acts:
            add(point, at(when, act))
        outcomes: list[str] = []
        for point in ("onChatDone", "onChatAbort", "onChatError", "onChatEnd"):
            add(point, lambda ctx: outcomes.append(type(ctx).__name__), priority=9)
        conversation = Conversation()
        events: list[Any] = []
        stream = agent.chat_stream("hi", conversation=conversation, release=release)
        with contextlib.suppress(Boom, ChatAbortedError, MaxStepsError):
            await collect(stream, events)
        assert (len(outcomes), outcomes[-1]) == (2, "OnChatEnd")
        check_events(events)
        kept = [m.text for m in conversation.messages if isinstance(m, AssistantMessage)]
        assert texts_shown(events) == kept
        assert not conversation.busy
        check_history(conversation.messages, open_end=bool(conversation.pending))
        ids = [m.id for m in conversation.messages]
        assert len(set(ids)) == len(ids)
        following = Agent(ScriptedModel("fine"), tools=[look, fails])
        await following.chat("again", conversation=conversation)
        check_history(conversation.messages)

    asyncio.run(chat())
