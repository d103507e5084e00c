"""How a chat ends well: Stop from every point that may return it, preStop, and the limit."""

import asyncio
from typing import Any

import pytest
from tests._event_grammar import check_events

from hookline import (
    Agent,
    Continue,
    Conversation,
    Limits,
    ModelResponse,
    Response,
    Stop,
    ToolFailure,
    ToolResult,
    check_history,
    tool,
)
from hookline.errors import ChatAbortedError, HookReturnError, MaxStepsError, StopChat
from hookline.events import (
    ChatDone,
    MessageAdded,
    StepFinished,
    StepStarted,
    TextDelta,
    ToolCallFinished,
    ToolCallStarted,
)
from hookline.testing import ScriptedModel, call, collect


class Boom(Exception):
    pass


def tools(ran: list[str]) -> list[Any]:
    @tool
    async def look(q: str = "") -> str:
        """Look it up."""
        ran.append("look")
        return f"found {q}"

    @tool
    async def fails() -> str:
        """Fail."""
        ran.append("fails")
        raise Boom("why")

    @tool
    async def stops() -> str:
        """Stop the chat."""
        ran.append("stops")
        raise StopChat("enough")

    return [look, fails, stops]


ENDS = ("onChatDone", "onChatAbort", "onChatError")


class Played:
    """One chat, and what was seen of it."""

    def __init__(self, *turns: Any, **options: Any) -> None:
        self.ran: list[str] = []
        self.ends: list[str] = []
        self.told: list[Any] = []  # the reasons that preStop was told
        self.steps: list[int] = []  # what onStep saw
        self.model = ScriptedModel(*turns)
        self.agent = Agent(self.model, tools=tools(self.ran), **options)
        self.conversation = Conversation()
        self.events: list[Any] = []
        for point in ENDS:
            self.agent.add_hook(point, lambda ctx: self.ends.append(type(ctx).__name__))
        self.agent.add_hook("preStop", lambda ctx: self.told.append(ctx.reason), priority=9)
        self.agent.add_hook("onStep", lambda ctx: self.steps.append(ctx.iteration), priority=9)

    async def chat(self) -> Response:
        stream = self.agent.chat_stream("hi", conversation=self.conversation)
        await collect(stream, self.events)
        check_events(self.events)
        check_history(self.conversation.messages)
        return stream.response

    def names(self, *kinds: type) -> list[str]:
        return [type(e).__name__ for e in self.events if isinstance(e, kinds)]


def at(iteration: int, value: Any) -> Any:
    """A hook that says something at one step."""
    return lambda ctx: value if ctx.run.iteration == iteration else None


# ── a Stop from every point that may return it ──────────────────────────────────────────────

FROM: dict[str, tuple[list[Any], int, list[str], bool]] = {
    # point: the script, the step of the Stop, the texts that are kept, whether that step began
    "preRequest": (["never"], 0, ["hi"], False),
    "preRequest-1": ([["a", call("look", q="x")], "never"], 1, ["hi", "a", "found x"], False),
    "preToolCall": (
        [["a", call("look")], "never"],
        0,
        ["hi", "a", '{"error":{"type":"Stopped","message":"not run: the chat was stopped"}}'],
        True,
    ),
    "onToolCallError": (
        [["a", call("fails")], "never"],
        0,
        ["hi", "a", '{"error":{"type":"Boom","message":"why"}}'],
        True,
    ),
    "onStep": ([["a", call("look", q="x")], "never"], 0, ["hi", "a", "found x"], True),
}


@pytest.mark.parametrize("text", [None, "bye"], ids=["without-text", "with-text"])
@pytest.mark.parametrize("where", FROM)
async def test_a_Stop_ends_the_chat_gracefully(where: str, text: str | None) -> None:
    """onChatDone with `response.stop_reason`; `text` is committed as an assistant message."""
    turns, step, kept, began = FROM[where]
    played = Played(*turns)
    add: Any = played.agent.add_hook
    add(where.removesuffix("-1"), at(step, Stop("enough", text=text)))
    response = await played.chat()
    assert played.ends == ["OnChatDone"]
    assert isinstance(played.events[-1], ChatDone)
    assert response.stop_reason == "enough"
    assert played.told == ["enough"]  # preStop sees it
    said = [] if text is None else [text]
    assert [m.text for m in played.conversation.messages] == [*kept, *said]
    assert response.messages == played.conversation.messages
    assert played.model.calls == (step + 1 if began else step)
    begun = list(range(step + 1 if began else step))
    assert played.steps == begun
    assert [e.iteration for e in played.events if isinstance(e, StepStarted)] == begun
    assert [e.iteration for e in played.events if isinstance(e, StepFinished)] == begun
    asked = began or step > 0  # the model was, and its own reason stays
    assert response.finish_reason == ("tool_calls" if asked else "stop" if text else None)
    if text is not None:
        assert response.text == text
        assert response.messages[-1].role == "assistant"


@pytest.mark.parametrize("where", FROM)
async def test_the_text_of_a_Stop_is_streamed(where: str) -> None:
    turns, step, _, _ = FROM[where]
    played = Played(*turns)
    add: Any = played.agent.add_hook
    add(where.removesuffix("-1"), at(step, Stop("enough", text="bye")))
    await played.chat()
    at_end = [e for e in played.events if isinstance(e, (TextDelta, MessageAdded))][-2:]
    delta, added = at_end
    assert isinstance(delta, TextDelta)
    assert isinstance(added, MessageAdded)
    assert (delta.text, added.message.text) == ("bye", "bye")


@pytest.mark.parametrize("text", ["", " \n"], ids=["empty", "blank"])
async def test_a_blank_text_of_a_Stop_is_absent(text: str) -> None:
    played = Played()
    played.agent.add_hook("preRequest", lambda ctx: Stop("enough", text=text))
    response = await played.chat()
    assert [m.role for m in response.messages] == ["user"]
    assert played.names(TextDelta) == []


@pytest.mark.parametrize("where", FROM)
async def test_the_conversation_goes_on_after_a_Stop(where: str) -> None:
    turns, step, kept, _ = FROM[where]
    played = Played(*turns)
    add: Any = played.agent.add_hook
    add(where.removesuffix("-1"), at(step, Stop("enough")))
    await played.chat()
    model = ScriptedModel("fine")
    await Agent(model).chat("again", conversation=played.conversation)
    assert [m.text for m in model.last_request.messages] == [*kept, "again"]


MAY_NOT_STOP = ["onDelta", "onResponse", "preMessage", "onToolCallResult", "preStop"]


@pytest.mark.parametrize("point", MAY_NOT_STOP)
async def test_a_Stop_from_another_point_is_a_HookReturnError(point: str) -> None:
    played = Played([call("look")], "ok")
    add: Any = played.agent.add_hook
    add(point, lambda ctx: Stop("enough"))
    with pytest.raises(HookReturnError, match=point):
        await played.chat()
    assert played.ends == ["OnChatError"]


async def test_stop_reason_is_None_exactly_on_natural_completion() -> None:
    played = Played([call("look")], "ok")
    assert (await played.chat()).stop_reason is None


# ── of several, the first ───────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("point", ["preRequest", "preToolCall", "onToolCallError", "onStep"])
async def test_of_several_Stops_in_one_dispatch_the_first_in_hook_order_counts(point: str) -> None:
    played = Played([call("fails")], "never")
    add: Any = played.agent.add_hook
    add(point, lambda ctx: Stop("second"))
    add(point, lambda ctx: Stop("third"))
    add(point, lambda ctx: Stop("first"), priority=1)
    assert (await played.chat()).stop_reason == "first"


async def test_a_Stop_from_preRequest_ends_its_chain() -> None:
    out: list[str] = []
    played = Played()
    played.agent.add_hook("preRequest", lambda ctx: Stop("enough"))
    played.agent.add_hook("preRequest", lambda ctx: out.append("later"))
    await played.chat()
    assert out == []


async def test_onStep_always_drains() -> None:
    out: list[str] = []
    played = Played([call("look")], "never")
    played.agent.add_hook("onStep", lambda ctx: Stop("enough"))
    played.agent.add_hook("onStep", lambda ctx: out.append("later"))
    await played.chat()
    assert out == ["later"]


# ── onStep ──────────────────────────────────────────────────────────────────────────────────


async def test_onStep_sees_the_answer_and_the_results_of_its_calls_in_the_models_order() -> None:
    seen: list[Any] = []
    played = Played(["a", call("look", q="x"), call("fails")], "ok")

    def hook(ctx: Any) -> None:
        seen.append((ctx.iteration, ctx.response.text, [(m.name, m.outcome) for m in ctx.results]))

    played.agent.add_hook("onStep", hook)
    await played.chat()
    assert seen == [(0, "a", [("look", "ok"), ("fails", "error")]), (1, "ok", [])]


async def test_a_Stop_from_onStep_on_a_natural_last_step_is_not_reported() -> None:
    """Nor do the end hooks see one."""
    played = Played("ok")
    played.agent.add_hook("onStep", lambda ctx: Stop("enough"))
    response = await played.chat()
    assert (response.stop_reason, response.text) == (None, "ok")
    assert played.told == [None]


async def test_a_Stop_from_onStep_lets_the_results_of_the_step_stand() -> None:
    played = Played([call("look"), call("look")], "never")
    played.agent.add_hook("onStep", lambda ctx: Stop("enough"))
    response = await played.chat()
    assert played.ran == ["look", "look"]
    assert [m.role for m in response.messages] == ["user", "assistant", "tool", "tool"]


# ── preToolCall ─────────────────────────────────────────────────────────────────────────────


async def test_after_a_Stop_from_preToolCall_no_handler_of_the_step_starts() -> None:
    """Calls without an answer get `stopped`; one that was answered keeps its answer."""
    asked: list[str] = []
    played = Played([call("look", q=q, call_id=q) for q in ("a", "b", "c", "d", "e")], "never")

    def hook(ctx: Any) -> Any:
        asked.append(ctx.call.id)
        answers = {"b": ToolResult("mine"), "c": ToolFailure("no"), "d": Stop("enough")}
        return answers.get(ctx.call.id)

    played.agent.add_hook("preToolCall", hook)
    response = await played.chat()
    assert played.ran == []
    assert asked == ["a", "b", "c", "d"]
    results = [(m.call_id, m.outcome) for m in response.messages if m.role == "tool"]
    assert results == [
        ("a", "stopped"),
        ("b", "answered"),
        ("c", "denied"),
        ("d", "stopped"),
        ("e", "stopped"),
    ]
    finished = [(e.call_id, e.outcome) for e in played.events if isinstance(e, ToolCallFinished)]
    assert sorted(finished) == results
    started = [e.call.id for e in played.events if isinstance(e, ToolCallStarted)]
    assert started == ["a", "b", "c", "d", "e"]
    assert response.stop_reason == "enough"


async def test_a_stopped_call_passes_neither_result_hook() -> None:
    out: list[str] = []
    played = Played([call("look")], "never")
    played.agent.add_hook("preToolCall", lambda ctx: Stop("enough"))
    played.agent.add_hook("onToolCallResult", lambda ctx: out.append("result"))
    played.agent.add_hook("onToolCallError", lambda ctx: out.append("error"))
    await played.chat()
    assert out == []


async def test_a_Stop_from_preToolCall_of_a_serial_call_lets_earlier_results_stand() -> None:
    """A call that may not run beside others is asked about when the ones before are done."""
    played = Played(
        [call("look", q="x", call_id="a"), call("look", call_id="b"), call("look", call_id="c")],
        "never",
        parallel_tools=False,
    )
    played.agent.add_hook("preToolCall", lambda ctx: Stop("enough") if ctx.call.id == "b" else None)
    response = await played.chat()
    assert played.ran == ["look"]
    results = [(m.call_id, m.outcome) for m in response.messages if m.role == "tool"]
    assert results == [("a", "ok"), ("b", "stopped"), ("c", "stopped")]


# ── onToolCallError, StopChat ───────────────────────────────────────────────────────────────


@pytest.mark.parametrize("order", ["fails first", "fails last"])
async def test_after_a_Stop_from_onToolCallError_the_siblings_finish(order: str) -> None:
    """The call keeps its error, the chat stops after the step."""
    made = [call("fails"), call("look", q="x")]
    played = Played(made if order == "fails first" else made[::-1], "never")
    played.agent.add_hook("onToolCallError", lambda ctx: Stop("enough"))
    response = await played.chat()
    assert sorted(played.ran) == ["fails", "look"]
    results = {m.name: m.outcome for m in response.messages if m.role == "tool"}
    assert results == {"fails": "error", "look": "ok"}
    assert (response.stop_reason, played.steps) == ("enough", [0])


async def test_StopChat_from_a_tool_is_its_result_and_stops_after_the_step() -> None:
    played = Played([call("stops"), call("look", q="x")], "never")
    response = await played.chat()
    assert sorted(played.ran) == ["look", "stops"]
    results = [(m.text, m.outcome) for m in response.messages if m.role == "tool"]
    assert results == [("enough", "ok"), ("found x", "ok")]
    assert (response.stop_reason, played.told) == ("enough", ["enough"])


# ── preStop ─────────────────────────────────────────────────────────────────────────────────


def once(value: Any) -> Any:
    """A preStop hook that says it at the first end alone."""
    return lambda ctx: value if ctx.continuations == 0 else None


async def test_preStop_sees_a_natural_end_with_no_reason() -> None:
    seen: list[Any] = []
    played = Played([call("look")], "ok")

    def hook(ctx: Any) -> None:
        seen.append((ctx.reason, ctx.response.text, ctx.steps, ctx.continuations))

    played.agent.add_hook("preStop", hook)
    await played.chat()
    assert seen == [(None, "ok", 2, 0)]


async def test_preStop_does_not_see_a_chat_that_fails_or_is_aborted() -> None:
    def boom(ctx: Any) -> None:
        raise Boom

    def abort(ctx: Any) -> None:
        ctx.run.abort()

    for hook, error in ((boom, Boom), (abort, ChatAbortedError)):
        played = Played("ok")
        played.agent.add_hook("onStep", hook)
        with pytest.raises(error):
            await played.chat()
        assert played.told == []


async def test_a_Continue_goes_on_with_its_input_as_a_user_message() -> None:
    played = Played("one", "two")
    played.agent.add_hook("preStop", once(Continue("go on")))
    response = await played.chat()
    assert [line(m) for m in response.messages] == [
        "user hi",
        "assistant one",
        "user go on",
        "assistant two",
    ]
    assert (response.text, response.stop_reason) == ("two", None)
    assert [len(r.messages) for r in played.model.requests] == [1, 3]
    assert [e.iteration for e in played.events if isinstance(e, StepStarted)] == [0, 1]
    assert played.told == [None, None]


def line(message: Any) -> str:
    return f"{message.role} {message.text}"


async def test_several_Continues_are_joined_by_a_blank_line() -> None:
    played = Played("one", "two")
    played.agent.add_hook("preStop", once(Continue("b")))
    played.agent.add_hook("preStop", lambda ctx: None)
    played.agent.add_hook("preStop", once(Continue("c")))
    played.agent.add_hook("preStop", once(Continue("a")), priority=1)
    response = await played.chat()
    assert response.messages[2].text == "a\n\nb\n\nc"
    assert played.told == [None, None]  # one continuation, not three


@pytest.mark.parametrize("inputs", [[""], ["  "], ["", "\n"]], ids=repr)
async def test_a_blank_Continue_continues_nothing(inputs: list[str]) -> None:
    played = Played("one")
    for text in inputs:
        played.agent.add_hook("preStop", lambda ctx, text=text: Continue(text))
    assert (await played.chat()).text == "one"
    assert [message.text for message in played.conversation.messages] == ["hi", "one"]


async def test_a_blank_Continue_adds_nothing_to_the_others() -> None:
    played = Played("one", "two")
    for text in ("", "first", " ", "second"):
        played.agent.add_hook(
            "preStop", lambda ctx, text=text: Continue(text) if ctx.continuations == 0 else None
        )
    await played.chat()
    assert played.conversation.messages[2].text == "first\n\nsecond"


async def test_preStop_sees_the_end_that_a_tool_asked_for() -> None:
    """`preStop` sees every end, the one by StopChat too."""
    played = Played([call("stops")])
    assert (await played.chat()).stop_reason == "enough"
    assert played.told == ["enough"]


async def test_an_async_preStop_is_awaited() -> None:
    async def hook(ctx: Any) -> Any:
        await asyncio.sleep(0)
        return Continue("go on") if ctx.continuations == 0 else None

    played = Played("one", "two")
    played.agent.add_hook("preStop", hook)
    assert (await played.chat()).text == "two"


async def test_continuations_are_counted() -> None:
    seen: list[Any] = []
    played = Played("one", "two", "three")

    def hook(ctx: Any) -> Any:
        seen.append((ctx.continuations, ctx.steps))
        return Continue("more") if ctx.continuations < 2 else None

    played.agent.add_hook("preStop", hook)
    await played.chat()
    assert seen == [(0, 1), (1, 2), (2, 3)]


async def test_after_the_last_continuation_preStop_is_not_dispatched() -> None:
    """At most 3 times."""
    played = Played("one", "two", "three", "four")
    played.agent.add_hook("preStop", lambda ctx: Continue("more"))
    response = await played.chat()
    assert (response.text, response.stop_reason) == ("four", None)
    assert played.told == [None] * 3
    assert played.model.calls == 4


async def test_the_number_of_continuations_can_be_set() -> None:
    played = Played("one", "two", limits=Limits(continuations=1))
    played.agent.add_hook("preStop", lambda ctx: Continue("more"))
    assert (await played.chat()).text == "two"
    assert played.told == [None]


async def test_continuations_are_counted_for_each_chat() -> None:
    agent = Agent(ScriptedModel("one", "two", "three", "four"), limits=Limits(continuations=1))
    agent.add_hook("preStop", lambda ctx: Continue("more"))
    assert [(await agent.chat("hi")).text for _ in range(2)] == ["two", "four"]


@pytest.mark.parametrize("where", FROM)
async def test_a_Continue_does_not_count_where_the_chat_was_stopped(where: str) -> None:
    """At a natural end only."""
    turns, step, _, _ = FROM[where]
    played = Played(*turns)
    add: Any = played.agent.add_hook
    add(where.removesuffix("-1"), at(step, Stop("enough")))
    played.agent.add_hook("preStop", lambda ctx: Continue("go on"))
    response = await played.chat()
    assert response.stop_reason == "enough"
    assert played.told == ["enough"]
    assert "go on" not in [m.text for m in response.messages]


async def test_a_Continue_does_not_count_when_no_step_is_left() -> None:
    """A natural end at the last step stays one; it is no MaxStepsError."""
    played = Played("one", limits=Limits(steps=1))
    played.agent.add_hook("preStop", lambda ctx: Continue("more"))
    response = await played.chat()
    assert (response.text, response.stop_reason) == ("one", None)
    assert [m.text for m in response.messages] == ["hi", "one"]
    assert played.told == [None]


async def test_a_continued_chat_is_one_chat() -> None:
    """One start, one end; step numbers go on, so does the usage."""
    out: list[str] = []
    played = Played("one", "two")
    played.agent.add_hook("preStop", once(Continue("go on")))
    for point in ("onChatStart", "preChat", "onChatDone", "onChatEnd"):
        played.agent.add_hook(point, lambda ctx: out.append(type(ctx).__name__))
    response = await played.chat()
    assert out == ["OnChatStart", "PreChat", "OnChatDone", "OnChatEnd"]
    assert response.steps == 2
    assert response.usage.output_tokens == 2


async def test_what_preChat_changed_holds_after_a_Continue() -> None:
    played = Played("one", "two")
    played.agent.add_hook("preChat", lambda ctx: ctx.request.replace(system="mine"))
    played.agent.add_hook("preStop", once(Continue("go on")))
    await played.chat()
    assert [r.system for r in played.model.requests] == ["mine", "mine"]


async def test_an_answer_of_preChat_is_not_given_again_after_a_Continue() -> None:
    played = Played("two")
    played.agent.add_hook("preChat", lambda ctx: ModelResponse.of("one"))
    played.agent.add_hook("preStop", once(Continue("go on")))
    response = await played.chat()
    assert [m.text for m in response.messages] == ["hi", "one", "go on", "two"]


@pytest.mark.parametrize(
    "value",
    [
        pytest.param("go on", id="str"),
        pytest.param(True, id="bool"),
        pytest.param([Continue("a")], id="list"),
    ],
)
async def test_any_other_type_from_preStop_is_a_HookReturnError(value: Any) -> None:
    played = Played("one")
    played.agent.add_hook("preStop", lambda ctx: value, name="my_hook")
    with pytest.raises(HookReturnError, match=r"my_hook.*preStop.*Continue"):
        await played.chat()


@pytest.mark.parametrize("value", ["enough", True, ToolResult(1)], ids=["str", "bool", "result"])
async def test_any_other_type_from_onStep_is_a_HookReturnError(value: Any) -> None:
    played = Played("one")
    played.agent.add_hook("onStep", lambda ctx: value, name="my_hook")
    with pytest.raises(HookReturnError, match=r"my_hook.*onStep.*Stop"):
        await played.chat()


# ── Limits.steps ────────────────────────────────────────────────────────────────────────────


async def test_Limits_steps_is_the_hard_limit() -> None:
    """That many model calls, the last one's tools, onStep, then MaxStepsError → onChatError."""
    played = Played([call("look")], [call("look")], "never", limits=Limits(steps=2))
    with pytest.raises(MaxStepsError) as caught:
        await played.chat()
    assert caught.value.limit == 2
    assert played.model.calls == 2
    assert played.ran == ["look", "look"]
    assert played.steps == [0, 1]
    assert played.ends == ["OnChatError"]
    assert played.told == []
    assert "".join(m.role[0] for m in played.conversation.messages) == "uatat"
    check_history(played.conversation.messages)
    assert played.names(StepFinished) == ["StepFinished"] * 2


async def test_Limits_steps_is_20_unless_it_is_set() -> None:
    played = Played(*[[call("look")] for _ in range(20)], "never")
    with pytest.raises(MaxStepsError):
        await played.chat()
    assert played.model.calls == 20


async def test_a_natural_end_at_the_last_step_is_no_error() -> None:
    played = Played([call("look")], "ok", limits=Limits(steps=2))
    assert (await played.chat()).text == "ok"


async def test_a_Stop_at_the_last_step_is_no_error() -> None:
    played = Played([call("look")], limits=Limits(steps=1))
    played.agent.add_hook("onStep", lambda ctx: Stop("enough"))
    assert (await played.chat()).stop_reason == "enough"


async def test_preRequest_is_not_asked_beyond_the_last_step() -> None:
    asked: list[int] = []
    played = Played([call("look")], limits=Limits(steps=1))
    played.agent.add_hook("preRequest", lambda ctx: asked.append(ctx.iteration))
    with pytest.raises(MaxStepsError):
        await played.chat()
    assert asked == [0]


async def test_steps_that_hooks_answer_count_too() -> None:
    """The limit holds for a hook that answers with calls for ever."""
    played = Played(limits=Limits(steps=3))
    played.agent.add_hook("preRequest", lambda ctx: ModelResponse.of(tool_calls=[call("look")]))
    with pytest.raises(MaxStepsError):
        await played.chat()
    assert played.steps == [0, 1, 2]


async def test_a_conversation_goes_on_after_MaxStepsError() -> None:
    played = Played([call("look")], limits=Limits(steps=1))
    with pytest.raises(MaxStepsError):
        await played.chat()
    following = Agent(ScriptedModel("fine"))
    assert (await following.chat("again", conversation=played.conversation)).text == "fine"
