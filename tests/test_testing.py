"""hookline.testing: the scripted model, the recorder, the checks, order and time."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, aclosing
from typing import Any

import pytest
from tests._event_grammar import check_events
from tests.wire import Wire, WireServer

from hookline import (
    Agent,
    ApprovalRequest,
    Approve,
    Ask,
    AssistantMessage,
    Continue,
    Conversation,
    Deny,
    HookBus,
    ModelRequest,
    ModelResponse,
    Proceed,
    Reasoning,
    Run,
    Scope,
    Stop,
    Text,
    ToolCall,
    ToolFailure,
    ToolMessage,
    Usage,
    UserMessage,
    check_history,
    tool,
)
from hookline import testing as face
from hookline.errors import (
    ChatAbortedError,
    HistoryError,
    HooklineError,
    ModelError,
    RateLimitError,
    UnknownHookError,
    UsageError,
)
from hookline.events import (
    ApprovalRequested,
    ChatAborted,
    ChatDone,
    ChatEvent,
    ChatFailed,
    ChatStarted,
    ErrorInfo,
    MessageAdded,
    PartEnd,
    ReasoningDelta,
    ResponseReset,
    Status,
    StepFinished,
    StepStarted,
    TextDelta,
    ToolCallFinished,
    ToolCallStarted,
    read_event,
)
from hookline.models import Chunk, Finish, PartEndChunk, ReasoningChunk, TextChunk, ToolCallChunk
from hookline.points import TABLE, AroundRequest, PreToolCall
from hookline.providers.openai_chat import OpenAIChatModel
from hookline.testing import (
    Failure,
    ModelServer,
    Recorder,
    ScriptedModel,
    ScriptError,
    Sequencer,
    TestRuntime,
    Turn,
    call,
    collect,
    event_line,
    message_line,
    raw_call,
    record,
    text_of_events,
    validate_request,
)


class Boom(Exception):
    """Raised on purpose."""


@tool
def weather(city: str) -> str:
    """The weather in a city."""
    return "sunny"


@tool
async def clock(city: str, run: Run) -> str:
    """The time in a city."""
    await run.status("looking", city)
    return "noon"


def request_to(model: ScriptedModel, *messages: Any, **fields: Any) -> ModelRequest:
    return ModelRequest(model=model, messages=messages, **fields)


def user(text: str = "hi") -> UserMessage:
    return UserMessage(parts=(Text(text),))


async def chunks_of(model: ScriptedModel) -> list[Chunk]:
    return await collect(model.stream(request_to(model, user())))


# ── the scripted model: turns ───────────────────────────────────────────────────────────────


async def test_a_script_of_a_call_and_a_text_is_a_chat() -> None:
    with ScriptedModel([call("weather", city="Paris")], "It is sunny.") as model:
        response = await Agent(model, tools=[weather]).chat("How is it in Paris?")
    assert response.text == "It is sunny."
    assert [message_line(each) for each in response.messages] == [
        "user 'How is it in Paris?'",
        "assistant weather {'city': 'Paris'}",
        "tool weather 'sunny'",
        "assistant 'It is sunny.'",
    ]
    assert [len(request.messages) for request in model.requests] == [1, 3]
    assert (model.calls, model.last_request) == (2, model.requests[1])


def usage(output: int) -> Usage:
    return Usage(input_tokens=10, output_tokens=output)


def finish(reason: Any = "stop", output: int = 0) -> Finish:
    return Finish(finish_reason=reason, usage=usage(output), model="scripted")


PARIS = '{"city": "Paris"}'
PARIS_CHUNK = ToolCallChunk(index=0, id="call_1", name="weather", arguments=PARIS)


def now(request: ModelRequest) -> str:
    return "now"


async def later(request: ModelRequest) -> str:
    return "later"


def nothing(request: ModelRequest) -> None:
    return None


@pytest.mark.parametrize(
    ("turn", "chunks"),
    [
        pytest.param("hello", [TextChunk("hello"), finish(output=2)], id="text"),
        pytest.param("", [finish()], id="empty text"),
        pytest.param(
            call("weather", city="Paris"), [PARIS_CHUNK, finish("tool_calls", 5)], id="call"
        ),
        pytest.param(
            [call("weather", city="Paris"), call("clock", call_id="mine")],
            [
                PARIS_CHUNK,
                ToolCallChunk(index=1, id="mine", name="clock", arguments="{}"),
                finish("tool_calls", 5),
            ],
            id="calls",
        ),
        pytest.param(
            ["Let me ", "see.", call("weather", city="Paris")],
            [TextChunk("Let me "), TextChunk("see."), PARIS_CHUNK, finish("tool_calls", 7)],
            id="pieces of text and a call",
        ),
        pytest.param(
            raw_call("weather", "{"),
            [
                ToolCallChunk(index=0, id="call_1", name="weather", arguments="{"),
                finish("tool_calls", 1),
            ],
            id="raw call",
        ),
        pytest.param(
            raw_call("weather", "", call_id="r"),
            [ToolCallChunk(index=0, id="r", name="weather"), finish("tool_calls")],
            id="raw call of nothing",
        ),
        pytest.param(
            [Text("a"), Text("b"), Reasoning("c"), Reasoning("d", {"sign": 1}), Reasoning("e")],
            [
                TextChunk("a"),
                PartEndChunk("text"),
                TextChunk("b"),
                ReasoningChunk("c"),
                PartEndChunk("reasoning"),
                ReasoningChunk("d"),
                PartEndChunk("reasoning", {"sign": 1}),
                ReasoningChunk("e"),
                finish(output=2),
            ],
            id="whole parts",
        ),
        pytest.param(
            Turn("b", reasoning="why", text="a", tool_calls=[call("weather", city="Paris")]),
            [
                ReasoningChunk("why"),
                TextChunk("a"),
                TextChunk("b"),
                PARIS_CHUNK,
                finish("tool_calls", 6),
            ],
            id="turn by name",
        ),
        pytest.param(
            Turn("abcde", raw_call("weather", "xyz"), chunk=2),
            [
                TextChunk("ab"),
                TextChunk("cd"),
                TextChunk("e"),
                ToolCallChunk(index=0, id="call_1", name="weather", arguments="xy"),
                ToolCallChunk(index=0, arguments="z"),
                finish("tool_calls", 2),
            ],
            id="in pieces",
        ),
        pytest.param(
            Turn("a", finish_reason="length", usage=None),
            [TextChunk("a"), Finish(finish_reason="length", model="scripted")],
            id="finish and usage given",
        ),
        pytest.param(Turn("a", no_finish=True), [TextChunk("a")], id="no finish"),
        pytest.param(Turn(raw_chunks=[1, TextChunk("")]), [1, TextChunk("")], id="raw chunks"),
        pytest.param(Turn(raw_chunks=[]), [], id="no chunks"),
        pytest.param(
            ModelResponse(parts=(Text("a"),), finish_reason="refusal", response_id="r"),
            [TextChunk("a"), Finish(finish_reason="refusal", response_id="r")],
            id="response as it is",
        ),
        pytest.param(now, [TextChunk("now"), finish(output=1)], id="callable"),
        pytest.param(later, [TextChunk("later"), finish(output=2)], id="async callable"),
    ],
)
async def test_a_turn_becomes_chunks(turn: Any, chunks: list[Chunk]) -> None:
    assert await chunks_of(ScriptedModel(turn)) == chunks


async def test_calls_are_numbered_through_the_script_and_keep_no_number_from_another() -> None:
    shared = call("weather", city="Paris")
    for _ in range(2):
        model = ScriptedModel([shared, shared], shared, "done")
        await Agent(model, tools=[weather]).chat("hi")
        asked = [each for each in model.last_request.messages if isinstance(each, ToolMessage)]
        assert [each.call_id for each in asked] == ["call_1", "call_2", "call_3"]


def test_call_takes_arguments_by_name_and_as_a_dict() -> None:
    assert call("find", {"call_id": 7, "the-key": 1}, name="x") == ToolCall(
        id="", name="find", arguments={"call_id": 7, "the-key": 1, "name": "x"}
    )
    number: Any = 7
    with pytest.raises(TypeError, match=r'call\(\'find\', \{"call_id": 7\}\)'):
        call("find", call_id=number)


async def test_an_argument_named_id_reaches_the_tool() -> None:
    found: list[str] = []

    async def find(id: str) -> str:
        """Find something."""
        found.append(id)
        return "found"

    with ScriptedModel(call("find", id="A-1", call_id="first"), "Done.") as model:
        response = await Agent(model, tools=[find]).chat("hi")
    assert found == ["A-1"]
    assert [result.call_id for result in response.tool_results] == ["first"]


async def test_the_model_sets_chunk_and_delay_and_a_turn_its_own() -> None:
    waits: list[str] = []

    def wait(name: str) -> Callable[[], Awaitable[None]]:
        async def waiting() -> None:
            waits.append(name)

        return waiting

    model = ScriptedModel(
        "abcd", Turn("abcd", chunk=0, delay=wait("turn")), chunk=2, delay=wait("model"), name="m"
    )
    assert [len(await chunks_of(model)) for _ in range(2)] == [3, 2]
    assert waits == ["model"] * 3 + ["turn"] * 2
    assert model.name == "m"


async def test_a_delay_lets_others_run_before_each_chunk() -> None:
    trace: list[str] = []

    async def other() -> None:
        trace.append("other")

    model = ScriptedModel(Turn("ab", chunk=1, delay=0))
    async for chunk in model.stream(request_to(model, user())):
        trace.append(type(chunk).__name__)
        await asyncio.create_task(other())
    assert trace == ["TextChunk", "other", "TextChunk", "other", "Finish", "other"]


@pytest.mark.parametrize(
    ("turn", "before"),
    [
        pytest.param(Boom("x"), 0, id="an exception as a turn"),
        pytest.param(Turn("ab", chunk=1, fail=Boom("x")), 2, id="before the finish"),
        pytest.param(Turn("ab", chunk=1, fail=Boom("x"), fail_after=1), 1, id="after one"),
        pytest.param(Turn("ab", chunk=1, fail=Boom("x"), fail_after=0), 0, id="at once"),
        pytest.param(Turn("ab", chunk=1, fail=Boom("x"), fail_after=3), 3, id="after the finish"),
        pytest.param(Turn(raw_chunks=["?"], fail=Boom("x")), 1, id="after raw chunks"),
        pytest.param(Turn("a", cleanup=Boom("x")), 2, id="in the clean-up"),
    ],
)
async def test_a_turn_fails_where_it_should(turn: Any, before: int) -> None:
    model = ScriptedModel(turn)
    got: list[Chunk] = []
    with pytest.raises(Boom, match="x"):
        await collect(model.stream(request_to(model, user())), got)
    assert len(got) == before
    assert (model.open, model.closed, model.cancelled) == (0, 0, 0)


async def test_the_exception_of_a_turn_is_the_one_that_was_written() -> None:
    boom = Boom("x")
    with pytest.raises(Boom) as caught:
        await Agent(ScriptedModel(boom)).chat("hi")
    assert caught.value is boom


async def test_clean_up_raises_while_a_stream_is_left() -> None:
    model = ScriptedModel(Turn("ab", chunk=1, cleanup=Boom("x")))
    stream: Any = model.stream(request_to(model, user()))
    await anext(stream)
    with pytest.raises(Boom, match="x"):
        await stream.aclose()
    assert model.closed == 1


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        pytest.param({"text": "a", "raw_chunks": []}, "the whole turn", id="raw and parts"),
        pytest.param({"fail_after": 1}, "needs fail=", id="fail_after alone"),
        pytest.param({"fail": Boom(), "fail_after": -1}, "at least 0", id="fail_after"),
        pytest.param({"chunk": -1}, "at least 0", id="chunk"),
        pytest.param({"tool_calls": [3]}, "3 is not part of a turn", id="part"),
    ],
)
def test_a_turn_that_contradicts_itself_is_refused(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        Turn(**options)


def test_a_model_with_negative_pieces_is_refused() -> None:
    with pytest.raises(ValueError, match="chunk=-1 must be at least 0"):
        ScriptedModel("hello", chunk=-1)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"points": "onMessage"}, r"write points=\['onMessage'\]"),
        ({"events": TextDelta}, r"write events=\[TextDelta\]"),
    ],
    ids=["points", "events"],
)
def test_a_recorder_of_what_is_no_list_is_refused(options: Any, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        record(Agent(ScriptedModel()), **options)


@pytest.mark.parametrize("option", ["piece", "after", "cut", "stall"])
def test_an_answer_of_a_negative_length_is_refused(option: str) -> None:
    options: dict[str, Any] = {option: -1}
    with pytest.raises(ValueError, match=f"{option}=-1 must be at least 0"):
        Wire("hello", **options)


def test_a_server_of_no_known_format_or_habit_is_refused() -> None:
    unknown: Any = "morse"
    with pytest.raises(ValueError, match="no format 'morse'; use one of: openai-chat"):
        WireServer(unknown)
    with pytest.raises(ValueError, match="no habit 'no_index' for 'anthropic'"):
        WireServer("anthropic", Wire("hello", habits=["no_index"]))


async def test_a_connection_that_is_cut_at_once_sends_nothing_of_the_answer() -> None:
    async with WireServer("openai", Wire("hello", cut=0)) as server:
        host, port = server.url.removeprefix("http://").removesuffix("/v1").split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(b"POST /v1/responses HTTP/1.1\r\ncontent-length: 0\r\n\r\n")
        got = b""
        with contextlib.suppress(ConnectionError):
            got = await reader.read()
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()
    assert b"hello" not in got


def test_a_turn_shows_itself() -> None:
    assert repr(Turn("a", fail=Boom("x"))) == "Turn('a', fail=Boom('x'))"
    assert repr(Turn(raw_chunks=[1])) == "Turn(1)"


# ── the scripted model: strictness ──────────────────────────────────────────────────────────


async def test_a_surplus_call_says_how_many_turns_there_were_and_what_was_asked() -> None:
    model = ScriptedModel(call("weather", city="Paris"))
    with pytest.raises(ScriptError) as caught:
        await Agent(model, tools=[weather]).chat("hi")
    assert str(caught.value).splitlines() == [
        "call 2 of a script with 1 turn; add a turn, or find out why the model was "
        "called again: the last request was:",
        "  user 'hi'",
        "  assistant weather {'city': 'Paris'}",
        "  tool weather 'sunny'",
    ]
    assert isinstance(caught.value, AssertionError)
    assert isinstance(caught.value, HooklineError)


async def test_a_script_that_repeats_begins_again_where_it_ends() -> None:
    with ScriptedModel("a", "b", repeat=True) as model:
        agent = Agent(model)
        assert [(await agent.chat("hi")).text for _ in range(5)] == ["a", "b", "a", "b", "a"]
    model = ScriptedModel("a", "b", repeat=True)
    await Agent(model).chat("hi")
    with pytest.raises(ScriptError, match=r"1 of 2 turns were not used; .*: 'b'"):
        model.done()
    with pytest.raises(ScriptError, match="call 1 of a script with 0 turns"):
        await Agent(ScriptedModel(repeat=True)).chat("hi")


async def test_unused_turns_are_named_when_the_script_is_done() -> None:
    model = ScriptedModel("a", "b", call("weather"))
    with pytest.raises(ScriptError, match=r"3 of 3 turns were not used.*; the model was never"):
        model.done()
    with pytest.raises(ScriptError, match="never called"):
        _ = model.last_request
    with (
        pytest.raises(ScriptError, match=r"2 of 3 turns were not used; .*: 'b', ToolCall\("),
        model,
    ):
        await Agent(model).chat("hi")
    assert repr(model) == "<ScriptedModel 'scripted', 1 of 3 turns played>"


async def test_unused_turns_do_not_mask_an_exception_in_flight() -> None:
    with pytest.raises(Boom), ScriptedModel("a", "b"):
        raise Boom


async def test_what_did_not_fit_is_raised_again_where_a_hook_has_hidden_it() -> None:
    async def fallback(
        ctx: AroundRequest, proceed: Proceed[ModelRequest, ModelResponse]
    ) -> ModelResponse:
        try:
            return await proceed()
        except Exception:
            return ModelResponse.of("fallback")

    model = ScriptedModel()
    agent = Agent(model)
    agent.add_hook("aroundRequest", fallback)
    assert (await agent.chat("hi")).text == "fallback"
    with pytest.raises(ScriptError, match="call 1 of a script with 0 turns"):
        model.done()


@pytest.mark.parametrize(
    ("turn", "problem"),
    [
        pytest.param(3, "turn 1 must be a turn: 3 is not part of a turn", id="number"),
        pytest.param(nothing, "the callable of turn 1 must be a turn", id="None"),
        pytest.param(
            Turn("a", fail=Boom(), fail_after=3), "but the turn has only 2", id="too late"
        ),
    ],
)
async def test_what_is_no_turn_is_a_script_error(turn: Any, problem: str) -> None:
    model = ScriptedModel(turn)
    with pytest.raises(ScriptError, match=problem):
        await chunks_of(model)
    with pytest.raises(ScriptError, match=problem):
        model.done()


async def test_a_request_that_breaks_pairing_fails_the_test() -> None:
    def forget(ctx: Any) -> Any:
        return ctx.request.replace(messages=ctx.request.messages[:2])

    def agent(model: ScriptedModel) -> Agent:
        agent = Agent(model, tools=[weather])
        agent.add_hook("preRequest", forget)
        return agent

    strict = ScriptedModel(call("weather", city="Paris"), "done")
    with pytest.raises(HistoryError, match="call 'call_1' of 'weather' has no result"):
        await agent(strict).chat("hi")  # refused before the model is asked
    broken = strict.last_request.replace(
        messages=[user(), AssistantMessage(parts=(call("weather", call_id="c9"),))]
    )
    with pytest.raises(HistoryError, match="c9"):
        [chunk async for chunk in strict.stream(broken)]
    with pytest.raises(HistoryError, match="c9"):
        strict.done()
    lenient = ScriptedModel("done", strict=False)
    assert [chunk async for chunk in lenient.stream(broken)]


@pytest.mark.parametrize(
    ("messages", "tools", "problems"),
    [
        pytest.param([user()], [weather], [], id="fine"),
        pytest.param(
            [user(), AssistantMessage(parts=())],
            [],
            ["message 1: this assistant message has no content"],
            id="empty",
        ),
        pytest.param(
            [
                user(),
                AssistantMessage(parts=(ToolCall(id="a", name="weather", raw="{"),)),
                ToolMessage(call_id="a", name="weather", text=""),
            ],
            [],
            ["message 1: call 'a' contains its raw arguments"],
            id="raw arguments",
        ),
        pytest.param(
            [ToolMessage(call_id="a", name="weather", text="")],
            [weather, clock, weather],
            [
                "message 0: a result for call 'a', but there is no such call before it",
                "tool 'weather' is offered twice",
            ],
            id="all problems at once",
        ),
    ],
)
def test_validate_request(messages: Any, tools: Any, problems: Sequence[str]) -> None:
    request = request_to(ScriptedModel(), *messages, tools=tuple(tools))
    if not problems:
        validate_request(request)
        return
    with pytest.raises(HistoryError) as caught:
        validate_request(request)
    assert caught.value.problems == tuple(problems)


async def test_streams_that_are_left_early_are_counted() -> None:
    arrived = asyncio.Event()

    async def forever() -> None:
        arrived.set()
        await asyncio.Event().wait()

    model = ScriptedModel("whole", Turn("ab", chunk=1), Turn("a", delay=forever), later)
    await chunks_of(model)
    stream: Any = model.stream(request_to(model, user()))
    async with aclosing(stream):
        await anext(stream)
        assert model.open == 1
    assert (model.open, model.closed, model.cancelled) == (0, 1, 0)
    task = asyncio.create_task(chunks_of(model))
    await arrived.wait()
    task.cancel()
    await asyncio.wait([task])
    assert (model.open, model.closed, model.cancelled) == (0, 1, 1)


async def test_a_models_own_cancelled_error_is_not_counted_as_a_cancellation() -> None:
    model = ScriptedModel(asyncio.CancelledError())
    with pytest.raises(ModelError):
        await Agent(model).chat("hi")
    assert model.cancelled == 0


async def test_an_abort_leaves_no_stream_open() -> None:
    model = ScriptedModel(Turn("x" * 100, chunk=1))
    async with Agent(model).chat_stream("hi") as stream:
        async for event in stream:
            if isinstance(event, TextDelta):
                stream.abort()
    assert (model.open, model.closed + model.cancelled) == (0, 1)


async def test_chats_that_share_a_model_take_turns_as_they_come() -> None:
    def echo(request: ModelRequest) -> str:
        (message,) = request.messages
        assert isinstance(message, UserMessage)
        return message.text.upper()

    with ScriptedModel(*[echo] * 3) as model:
        agent = Agent(model)
        answers = await asyncio.gather(*(agent.chat(each) for each in "abc"))
    assert [each.text for each in answers] == ["A", "B", "C"]


# ── the recorder ────────────────────────────────────────────────────────────────────────────


async def test_a_chat_is_recorded_as_lines() -> None:
    model = ScriptedModel(["Let me see.", call("weather", city="Paris")], "It is sunny.")
    agent = Agent(model, tools=[weather])
    with record(agent) as recorder:
        await agent.chat("hi")
    assert recorder.lines == [
        "aroundChat >",
        "onChatStart hi",
        "preChat hi",
        "preMessage user 'hi'",
        "onMessage user 'hi'",
        "preRequest 0",
        "aroundRequest 0 >",
        "aroundRequest 0 <",
        "onResponse 0 text='Let me see.' weather {'city': 'Paris'}",
        "preMessage assistant 'Let me see.' weather {'city': 'Paris'}",
        "onMessage assistant 'Let me see.' weather {'city': 'Paris'}",
        "preToolCall weather {'city': 'Paris'}",
        "aroundToolCall weather >",
        "aroundToolCall weather <",
        "onToolCallResult weather 'sunny'",
        "preMessage tool weather 'sunny'",
        "onMessage tool weather 'sunny'",
        "onStep 0",
        "preRequest 1",
        "aroundRequest 1 >",
        "aroundRequest 1 <",
        "onResponse 1 text='It is sunny.'",
        "preMessage assistant 'It is sunny.'",
        "onMessage assistant 'It is sunny.'",
        "onStep 1",
        "preStop",
        "onChatDone 'It is sunny.'",
        "onChatEnd done",
        "aroundChat <",
    ]
    assert recorder.points[:7] == [
        "aroundChat",
        "onChatStart",
        "preChat",
        "preMessage",
        "onMessage",
        "preRequest",
        "aroundRequest",
    ]
    assert recorder.points.count("aroundRequest") == 2
    assert recorder.text == "\n".join(recorder.lines)
    assert repr(recorder) == "<Recorder of 29 lines>"


async def test_recording_stops_with_its_block_and_changes_nothing() -> None:
    agent = Agent(ScriptedModel("a", "b", "c"))
    assert not agent.hooks()
    with record(agent, events=True) as recorder:
        assert len(agent.hooks()) == len(TABLE) - 2
        await agent.chat("one")
    count = len(recorder.lines)
    await agent.chat("two")
    recorder.stop()
    assert not agent.hooks()
    assert not agent.bus.subscribers
    assert len(recorder.lines) == count
    recorder.clear()
    assert (recorder.lines, recorder.points) == ([], [])


async def test_only_the_points_that_were_asked_for_are_recorded() -> None:
    agent = Agent(ScriptedModel(Turn("Hi.", call("weather", city="x"), chunk=8), "ok"))
    with record(agent, points=["onDelta", "onToolCallError"]) as recorder:
        await agent.chat("hi")
    assert recorder.lines == [
        "onDelta 0 text 'Hi.'",
        "onDelta 0 end of text",
        "onDelta 0 call 0 weather '{\"city\":'",
        "onDelta 0 call 0 weather ' \"x\"}'",
        "onToolCallError weather UnknownToolError: there is no tool 'weather'; continue "
        "without tools: none is offered",
        "onDelta 1 text 'ok'",
        "onDelta 1 end of text",
    ]


def test_of_a_point_that_there_is_not_nothing_stays() -> None:
    agent = Agent(ScriptedModel())
    with pytest.raises(UnknownHookError, match="onMessages"):
        record(agent, points=["onMessage", "onMessages"])
    assert not agent.hooks()


async def test_the_recorder_comes_after_all_other_hooks_unless_told_otherwise() -> None:
    agent = Agent(ScriptedModel("a", "b"))
    agent.add_hook("onResponse", lambda ctx: ctx.response.replace(text="changed"), priority=-99)
    points = ["onResponse"]
    with record(agent, points=points) as last, record(agent, points=points, priority=999) as first:
        await agent.chat("hi")
    assert last.lines == ["onResponse 0 text='changed'"]
    assert first.lines == ["onResponse 0 text='a'"]


async def test_what_a_wrapper_saw_raised_is_recorded() -> None:
    agent = Agent(ScriptedModel(Boom("no")))
    points = ["aroundChat", "aroundRequest", "onChatError", "onChatEnd"]
    with record(agent, points=points) as recorder, pytest.raises(Boom):
        await agent.chat("hi")
    assert recorder.lines == [
        "aroundChat >",
        "aroundRequest 0 >",
        "aroundRequest 0 ! Boom: no",
        "onChatError Boom: no",
        "onChatEnd error",
        "aroundChat ! Boom: no",
    ]


async def test_events_stand_among_the_hooks_where_they_were_published() -> None:
    agent = Agent(ScriptedModel(call("clock", city="x"), "noon"), tools=[clock])
    points = ["preRequest", "onMessage", "aroundToolCall", "onStatus", "onChatEnd"]
    with record(agent, points=points, events=True) as recorder:
        await agent.chat("hi")
    assert recorder.lines == [
        "ChatStarted hi",
        "MessageAdded user 'hi'",
        "onMessage user 'hi'",
        "preRequest 0",
        "StepStarted 0",
        'ToolCallDelta 0 clock \'{"city": "x"}\'',
        "MessageAdded assistant clock {'city': 'x'}",
        "onMessage assistant clock {'city': 'x'}",
        "ToolCallStarted clock {'city': 'x'}",
        "aroundToolCall clock >",
        "Status looking 'x'",
        "onStatus looking 'x'",
        "aroundToolCall clock <",
        "ToolCallFinished clock ok 'noon'",
        "MessageAdded tool clock 'noon'",
        "onMessage tool clock 'noon'",
        "StepFinished 0",
        "preRequest 1",
        "StepStarted 1",
        "TextDelta 1 'noon'",
        "PartEnd 1 text",
        "MessageAdded assistant 'noon'",
        "onMessage assistant 'noon'",
        "StepFinished 1",
        "onChatEnd done",
        "ChatDone 'noon'",
    ]
    assert set(recorder.points) == set(points)


async def test_events_of_some_types_and_without_hooks() -> None:
    agent = Agent(ScriptedModel("a"))
    lines: list[str] = []
    with record(agent, points=[], events=[StepStarted, ChatDone], echo=lines.append) as recorder:
        await agent.chat("hi")
    assert recorder.lines == lines == ["StepStarted 0", "ChatDone 'a'"]
    assert recorder.points == []


async def test_a_stream_is_noted_as_it_is_read() -> None:
    agent = Agent(ScriptedModel("a"))
    with record(agent, points=["onChatEnd"]) as recorder:
        events = await recorder.read(agent.chat_stream("hi"))
    check_events(events)
    lines = [line for line in recorder.lines if line != "onChatEnd done"]
    assert lines == [event_line(event) for event in events]
    assert len(recorder.lines) == len(events) + 1


@pytest.mark.parametrize("text", ["\x1b[2J", "\x1b]0;title\x07", "a\nb", "\x9b31m", "\u202e"])
def test_lines_quote_what_a_terminal_would_obey(text: str) -> None:
    lines = [
        event_line(TextDelta(chat_id="c", iteration=0, text=text)),
        event_line(Status(chat_id="c", iteration=0, type="t", data={"key": text})),
        event_line(ChatFailed(chat_id="c", error=ErrorInfo(type="Error", message=text))),
        message_line(UserMessage(parts=(Text(text),))),
        message_line(ToolMessage(call_id="1", name="weather", text=text)),
        message_line(AssistantMessage(parts=(ToolCall(id="1", name="a", arguments={"b": text}),))),
    ]
    for line in lines:
        assert line.isprintable(), line


async def test_the_lines_of_a_sub_agent_are_indented() -> None:
    deep = Agent(ScriptedModel("c"), name="deep")
    sub = Agent(ScriptedModel(call("deep", input="go"), "b"), name="sub", tools=[deep.as_tool()])
    agent = Agent(ScriptedModel(call("sub", input="go"), "a"), tools=[sub.as_tool()])
    with record(agent, points=["onChatStart", "onChatEnd"], inherit=True) as recorder:
        await agent.chat("hi")
    with record(sub, points=[], events=[ChatStarted]) as silent:
        pass
    assert silent.lines == []
    assert recorder.lines == [
        "onChatStart hi",
        "  onChatStart go",
        "    onChatStart go",
        "    onChatEnd done",
        "  onChatEnd done",
        "onChatEnd done",
    ]


async def played(options: dict[str, Any], order: str) -> Recorder:
    """A recording of two sub-agents and a tool that run at the same time, and end in `order`."""
    may_end = {name: asyncio.Event() for name in "abc"}
    ended = {name: asyncio.Event() for name in "abc"}

    async def work(run: Run) -> str:
        await may_end[run.agent].wait()
        return run.agent

    tools = [tool(work, name=f"work{number}") for number in range(2)]
    two = [call("work0"), call("work1")]
    helpers = [Agent(ScriptedModel(two, "done"), name=name, tools=tools) for name in "ab"]
    calls = [call("a", input="x"), call("b", input="x"), call("c")]
    own = [*(helper.as_tool() for helper in helpers), tool(work, name="c")]
    agent = Agent(ScriptedModel(calls, "done"), name="c", tools=own)
    agent.add_hook("onToolCallResult", lambda ctx: ended[ctx.call.name].set())
    with record(agent, inherit=True, **options) as recorder:
        chat = asyncio.ensure_future(agent.chat("go"))
        for name in order:
            may_end[name].set()
            await ended[name].wait()
        await chat
    return recorder


RECORDED: dict[str, dict[str, Any]] = {
    "all": {"events": True},
    "one point": {"points": ["onToolCallResult"]},
    "events": {"points": [], "events": [MessageAdded, ToolCallFinished]},
}


@pytest.mark.parametrize("which", RECORDED)
async def test_lines_by_call_do_not_depend_on_which_call_ends_first(which: str) -> None:
    one = await played(RECORDED[which], "abc")
    for order in ("cba", "bca"):
        other = await played(RECORDED[which], order)
        assert other.lines != one.lines
        assert other.lines_by_call == one.lines_by_call
        assert sorted(other.lines_by_call) == sorted(other.lines)
    if which == "one point":
        assert one.lines_by_call == [
            "  onToolCallResult work0 'a'",
            "  onToolCallResult work1 'a'",
            "onToolCallResult a 'done'",
            "  onToolCallResult work0 'b'",
            "  onToolCallResult work1 'b'",
            "onToolCallResult b 'done'",
            "onToolCallResult c 'c'",
        ]


async def test_on_hook_is_recorded_where_asked_for_and_not_of_the_recorder() -> None:
    agent = Agent(ScriptedModel("a"))

    def shout(ctx: Any) -> Any:
        return ctx.response.replace(text="A")

    agent.add_hook("onResponse", shout, name="shout")
    with record(agent, points=["onHook", "onResponse"]) as recorder:
        await agent.chat("hi")
    assert recorder.lines == ["onHook onResponse shout changed", "onResponse 0 text='A'"]


async def test_approvals_scopes_and_a_resumed_chat_have_their_lines() -> None:
    agent = Agent(ScriptedModel([call("weather", city="x")], "done"), tools=[weather])
    agent.add_hook("preToolCall", lambda ctx: Ask("may I?"))
    conversation = Conversation()
    points = ["onChatStart", "onApproval", "onChatDone", "onScopeRegister", "onScopeUnregister"]
    with record(agent, points=points) as recorder:
        dispose = agent.scopes.register(Scope("more", tools=[clock]))
        dispose()
        await agent.chat("hi", conversation=conversation)
        (pending,) = conversation.pending
        await agent.resume(conversation, {pending.id: Approve()})
    assert recorder.lines == [
        "onScopeRegister more",
        "onScopeUnregister more",
        "onChatStart hi",
        "onApproval weather asked",
        "onChatDone '' approval",
        "onChatStart",
        "onApproval weather approved",
        "onChatDone 'done'",
    ]


async def test_a_line_is_short_and_one_line_whatever_was_said() -> None:
    class Rude:
        def __repr__(self) -> str:
            raise Boom

    class Mute(Exception):
        def __str__(self) -> str:
            raise Boom

    agent = Agent(ScriptedModel(Mute()))
    agent.add_hook("preRequest", lambda ctx: None)
    with record(agent, points=["onChatStart", "onChatError"]) as recorder, pytest.raises(Mute):
        await agent.chat("a\nb" + "c" * 200)
    assert recorder.lines == [f"onChatStart a\\nb{'c' * 76}…", "onChatError Mute"]
    rude = ToolCall(id="", name="f", arguments={"x": Rude()})
    message = AssistantMessage(parts=(rude, raw_call("g", "{")), partial=True)
    shown = "<FrozenDict, whose repr raises Boom>"
    assert message_line(message) == f"assistant (partial) f {shown} g '{{'"


def test_every_point_of_the_table_can_be_recorded() -> None:
    bus: HookBus[Any] = HookBus()
    with record(bus, points=TABLE):
        assert [info.point for info in bus.hooks()] == list(TABLE)


# ── streams: collected and checked ──────────────────────────────────────────────────────────


async def test_collect_closes_what_it_has_read_and_keeps_what_came_before_an_exception() -> None:
    agent = Agent(ScriptedModel(Turn("ab", fail=Boom("x"))))
    events: list[ChatEvent] = []
    with pytest.raises(Boom):
        await collect(agent.chat_stream("hi"), events)
    assert isinstance(events[-1], ChatFailed)
    check_events(events)

    class Numbers:
        def __init__(self) -> None:
            self.closed = False

        async def __aiter__(self) -> Any:
            for each in (1, 2):
                yield each

        async def aclose(self) -> None:
            self.closed = True

    numbers: Any = Numbers()
    assert await collect(numbers) == [1, 2]
    assert numbers.closed


async def test_the_text_of_events_is_what_a_ui_shows() -> None:
    model = ScriptedModel(["Let me ", "see.", call("weather", city="x")], "Rainy.", chunk=2)
    agent = Agent(model, tools=[weather])
    agent.add_hook(
        "onResponse", lambda ctx: ctx.response.replace(text="Sunny.") if ctx.iteration else None
    )
    events = await collect(agent.chat_stream("hi"))
    assert any(isinstance(event, ResponseReset) for event in events)
    assert text_of_events(events) == "Let me see.\n\nSunny."
    assert text_of_events(events, path=("call_1",)) == ""


def stopping(ctx: Any) -> Stop:
    return Stop("enough", "That is all.")


def aborting(ctx: Any) -> None:
    ctx.run.abort("enough")


def failing(ctx: Any) -> None:
    raise Boom


async def wrecking(ctx: Any, proceed: Any) -> Any:
    raise Boom


def changing(ctx: Any) -> Any:
    return ctx.response.replace(text="Changed.")


def silencing(ctx: Any) -> Any:
    return ctx.message.replace(text="") if ctx.message.role == "assistant" else None


def prolonging(ctx: Any) -> Continue | None:
    return None if ctx.continuations else Continue("more")


def answering(ctx: Any) -> ModelResponse | None:
    if ctx.iteration:
        return None
    return ModelResponse.of(
        "By hand.", tool_calls=[call("weather", city="x", call_id="a")], reasoning="hm"
    )


async def retrying(ctx: Any, proceed: Any) -> Any:
    await proceed()
    return await proceed()


TWO_CALLS = Turn("Let me see.", call("weather", city="a"), call("clock", city="b"), reasoning="hm")


@pytest.mark.parametrize("release", ["live", "response"])
@pytest.mark.parametrize(
    ("turns", "hooks"),
    [
        pytest.param([TWO_CALLS, "Sunny."], {}, id="two calls"),
        pytest.param([[call("nope"), raw_call("weather", "{")], "ok"], {}, id="bad calls"),
        pytest.param([Turn(raw_chunks=[finish()])], {}, id="nothing"),
        pytest.param([["\n\n", call("weather", city="a")], "ok"], {}, id="blank text"),
        pytest.param(["Sunny."], {"preChat": stopping}, id="Stop from preChat"),
        pytest.param([], {"preRequest": stopping}, id="Stop from preRequest"),
        pytest.param([TWO_CALLS], {"preToolCall": stopping}, id="Stop from preToolCall"),
        pytest.param([TWO_CALLS], {"onStep": stopping}, id="Stop from onStep"),
        pytest.param([TWO_CALLS, "x"], {"onResponse": changing}, id="changed answer"),
        pytest.param([TWO_CALLS, "x"], {"preMessage": silencing}, id="text taken away"),
        pytest.param(["a", "b"], {"preStop": prolonging}, id="Continue"),
        pytest.param(["done"], {"preRequest": answering}, id="answer by hand"),
        pytest.param(["one", "two"], {"aroundRequest": retrying}, id="retry"),
        pytest.param([TWO_CALLS], {"onResponse": aborting}, id="abort in onResponse"),
        pytest.param([TWO_CALLS], {"onDelta": aborting}, id="abort in onDelta"),
        pytest.param([TWO_CALLS], {"aroundToolCall": wrecking}, id="a wrapper that throws"),
        pytest.param([TWO_CALLS], {"onStatus": failing}, id="onStatus throws"),
        pytest.param([TWO_CALLS, Turn("x", fail=Boom())], {}, id="a model that throws"),
        pytest.param([Turn("x", no_finish=True)], {}, id="a cut answer"),
    ],
)
async def test_the_events_of_these_chats_are_right(
    turns: Any, hooks: dict[str, Any], release: Any
) -> None:
    for chunk in (0, 1, 7):
        agent = Agent(ScriptedModel(*turns, chunk=chunk), tools=[weather, clock], hooks=hooks)
        events: list[ChatEvent] = []
        conversation = Conversation()
        try:
            stream = agent.chat_stream("hi", conversation=conversation, release=release)
            await collect(stream, events)
        except (Boom, ChatAbortedError, ModelError):
            pass
        check_events(events)
        check_history(conversation.messages)


@pytest.mark.parametrize(
    "decision", [Approve(), Deny("no"), None], ids=["approved", "denied", "new chat"]
)
@pytest.mark.parametrize("parallel", [True, False], ids=["parallel", "one by one"])
async def test_the_events_of_a_chat_that_waits_and_of_the_next_are_right(
    parallel: bool, decision: Any
) -> None:
    def ask(ctx: PreToolCall) -> Ask | None:
        return Ask("may I?") if ctx.call.name == "clock" else None

    calls = [call("weather", city="a"), call("clock", city="b"), call("weather", city="c")]
    model = ScriptedModel(calls, "done")
    agent = Agent(model, tools=[weather, clock], parallel_tools=parallel)
    agent.add_hook("preToolCall", ask)
    conversation = Conversation()
    with model:
        check_events(await collect(agent.chat_stream("hi", conversation=conversation)))
        (pending,) = conversation.pending
        stream = agent.chat_stream("again", conversation=conversation)
        if decision is not None:
            stream = agent.resume_stream(conversation, {pending.id: decision})
        check_events(await collect(stream))


@pytest.mark.parametrize("inner", ["b", Boom("inside")], ids=["done", "failed"])
async def test_the_events_of_a_sub_agent_are_right(inner: Any) -> None:
    sub = Agent(
        ScriptedModel(call("weather", city="x"), inner), name="sub", tools=[weather], system="s"
    )
    calls = [call("sub", input="a"), call("weather", city="y")]
    agent = Agent(ScriptedModel(calls, "a"), tools=[sub.as_tool(), weather])
    events = await collect(agent.chat_stream("hi"))
    check_events(events)
    assert text_of_events(events, path=("call_1",)) == ("b" if inner == "b" else "")


# ── check_events finds what is wrong ────────────────────────────────────────────────────────


async def good_events() -> list[ChatEvent]:
    runtime = TestRuntime()
    model = ScriptedModel(["Let me see.", call("weather", city="x")], "Sunny.")
    return await collect(Agent(model, tools=[weather], runtime=runtime).chat_stream("hi"))


def place(events: list[ChatEvent], kind: type, nth: int = 0) -> int:
    return [i for i, event in enumerate(events) if isinstance(event, kind)][nth]


def numbered(events: list[Any]) -> list[ChatEvent]:
    return [event.replace(seq=seq) for seq, event in enumerate(events, 1)]


Change = Callable[[list[ChatEvent]], list[ChatEvent]]


def without(kind: type, nth: int = 0) -> Change:
    return lambda events: [each for i, each in enumerate(events) if i != place(events, kind, nth)]


def twice(kind: type, nth: int = 0) -> Change:
    def change(events: list[ChatEvent]) -> list[ChatEvent]:
        where = place(events, kind, nth)
        return [*events[: where + 1], *events[where:]]

    return change


def later_than(kind: type, nth: int, other: type, other_nth: int = 0) -> Change:
    def change(events: list[ChatEvent]) -> list[ChatEvent]:
        moved, after = events[place(events, kind, nth)], events[place(events, other, other_nth)]
        rest = [each for each in events if each is not moved]
        where = rest.index(after)
        return [*rest[: where + 1], moved, *rest[where + 1 :]]

    return change


def changed(kind: type, nth: int = 0, **fields: Any) -> Change:
    def change(events: list[Any]) -> list[ChatEvent]:
        where = place(events, kind, nth)
        return [*events[:where], events[where].replace(**fields), *events[where + 1 :]]

    return change


def no_events(events: list[ChatEvent]) -> list[ChatEvent]:
    return []


def no_call_events(events: list[ChatEvent]) -> list[ChatEvent]:
    return without(ToolCallStarted)(without(ToolCallFinished)(events))


def no_response_messages(events: list[ChatEvent]) -> list[ChatEvent]:
    *rest, last = events
    assert isinstance(last, ChatDone)
    return [*rest, last.replace(response=last.response.replace(messages=()))]


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        pytest.param(no_events, "there are no events", id="none"),
        pytest.param(without(ChatDone), "no last event", id="no end"),
        pytest.param(twice(ChatDone), "the last event of the chat came before", id="two ends"),
        pytest.param(without(ChatStarted), "an event before ChatStarted", id="no start"),
        pytest.param(twice(ChatStarted), "the chat had started", id="two starts"),
        pytest.param(changed(StepStarted, chat_id="x"), "the chat here is 'chat-1'", id="foreign"),
        pytest.param(changed(TextDelta, path=("x",)), "'x' of this chat has not", id="no call"),
        pytest.param(changed(TextDelta, path=("x", "y")), "has no parent", id="no parent"),
        pytest.param(without(StepStarted), "outside a step", id="no step"),
        pytest.param(twice(StepStarted), "step 0 is still open", id="step in a step"),
        pytest.param(without(StepFinished), "step 0 is still open", id="step not finished"),
        pytest.param(without(StepFinished, 1), "step 1 is still open", id="last step open"),
        pytest.param(changed(StepStarted, 1, iteration=2), "the last step was 0", id="a gap"),
        pytest.param(changed(StepStarted, iteration=1), "the first step is 0", id="begins at 1"),
        pytest.param(changed(StepFinished, iteration=1), "the open step is 0", id="other step"),
        pytest.param(
            later_than(StepStarted, 0, ChatStarted), "before the user's message", id="too early"
        ),
        pytest.param(changed(TextDelta, iteration=7), "the open step is 0", id="delta of another"),
        pytest.param(changed(TextDelta, text=""), "an empty delta", id="empty delta"),
        pytest.param(
            changed(TextDelta, text="Other."), "message holds .*Let me see", id="shown is not kept"
        ),
        pytest.param(without(TextDelta), "no text is open", id="part of nothing"),
        pytest.param(without(PartEnd), "has no PartEnd", id="part without end"),
        pytest.param(changed(PartEnd, part="reasoning"), "no reasoning is open", id="other part"),
        pytest.param(
            later_than(TextDelta, 1, PartEnd, 1), "no text is open", id="text after its end"
        ),
        pytest.param(
            without(MessageAdded, 1), "the model has made no call", id="no assistant message"
        ),
        pytest.param(without(MessageAdded, 2), "call 'call_1' has no message", id="no result"),
        pytest.param(without(MessageAdded, 3), "no message holds", id="shown and not added"),
        pytest.param(twice(MessageAdded), "a message id appears twice", id="added twice"),
        pytest.param(
            later_than(MessageAdded, 2, StepFinished), "'call_1' has no message", id="late result"
        ),
        pytest.param(
            later_than(ToolCallFinished, 0, MessageAdded, 2), "has not finished", id="early result"
        ),
        pytest.param(without(ToolCallStarted), "has not started", id="call not started"),
        pytest.param(twice(ToolCallStarted), "started twice", id="started twice"),
        pytest.param(twice(ToolCallFinished), "finished twice", id="finished twice"),
        pytest.param(
            no_call_events,
            "has not started",
            id="a result from nowhere",
        ),
        pytest.param(
            changed(ToolCallStarted, call=ToolCall(id="call_1", name="x")),
            "another name",
            id="name",
        ),
        pytest.param(changed(ToolCallFinished, outcome="error"), "with a ToolResult", id="outcome"),
        pytest.param(
            changed(ToolCallFinished, outcome="answered"), "it finished as 'answered'", id="differs"
        ),
        pytest.param(
            no_response_messages,
            "the response's messages are others",
            id="response without messages",
        ),
    ],
)
async def test_wrong_events_are_found(change: Change, problem: str) -> None:
    events = await good_events()
    check_events(events)
    with pytest.raises(AssertionError, match=problem):
        check_events(numbered(change(events)))


async def test_a_gap_in_the_numbers_is_shown_in_an_excerpt() -> None:
    events = await good_events()
    del events[3]
    with pytest.raises(AssertionError) as caught:
        check_events(events)
    assert str(caught.value).splitlines() == [
        "seq 5 follows 3",
        "      1 ChatStarted hi",
        "      2 MessageAdded user 'hi'",
        "      3 StepStarted 0",
        ">>    5 PartEnd 0 text",
        '      6 ToolCallDelta 0 weather \'{"city": "x"}\'',
        "      7 MessageAdded assistant 'Let me see.' weather {'city': 'x'}",
        "      8 ToolCallStarted weather {'city': 'x'}",
        "      9 ToolCallFinished weather ok 'sunny'",
    ]


async def test_a_stream_that_was_left_may_lack_its_end() -> None:
    events = await good_events()
    for count in range(1, len(events)):
        check_events(events[:count], complete=False)
        with pytest.raises(AssertionError, match="no last event"):
            check_events(events[:count])


HEAD: dict[str, Any] = {"chat_id": "c", "seq": 1}
STEP: dict[str, Any] = {**HEAD, "iteration": 0}
FAILED = r'{"event":"chat_failed","chat_id":"c","seq":1,"error":{"type":"Boom","message":"a\nb"}}'
ASKED = ApprovalRequest(
    id="a",
    call=ToolCall(id="a", name="f"),
    prompts=(),
    chat_id="c",
    conversation_id=None,
    iteration=0,
    digest="",
)


@pytest.mark.parametrize(
    ("event", "line"),
    [
        (ChatStarted(**HEAD, agent="a"), "ChatStarted"),
        (ReasoningDelta(**STEP, text="hm"), "ReasoningDelta 0 'hm'"),
        (ResponseReset(**STEP), "ResponseReset 0"),
        (Status(**STEP, type="thinking"), "Status thinking None"),
        (ApprovalRequested(**HEAD, request=ASKED), "ApprovalRequested f {}"),
        (
            ToolCallFinished(
                **STEP,
                call_id="a",
                name="f",
                outcome="error",
                result=ToolFailure("no", type="Boom"),
            ),
            "ToolCallFinished f error Boom: no",
        ),
        (ChatAborted(**HEAD, reason="enough"), "ChatAborted enough"),
        (ChatAborted(**HEAD), "ChatAborted"),
        (read_event(FAILED), "ChatFailed Boom: a\\nb"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_an_event_has_a_line(event: ChatEvent, line: str) -> None:
    assert event_line(event) == line


async def test_what_the_model_thought_has_its_lines() -> None:
    agent = Agent(ScriptedModel(Turn("a", reasoning="hm")))
    with record(agent, points=["onDelta", "onResponse"]) as recorder:
        await agent.chat("hi")
    assert recorder.lines == [
        "onDelta 0 reasoning 'hm'",
        "onDelta 0 end of reasoning",
        "onDelta 0 text 'a'",
        "onDelta 0 end of text",
        "onResponse 0 reasoning='hm' text='a'",
    ]


async def test_a_wrapper_may_report_before_its_chat_has_started() -> None:
    async def slowly(ctx: Any, proceed: Any) -> Any:
        await ctx.run.status("waiting for a place")
        return await proceed()

    agent = Agent(ScriptedModel("a"))
    agent.add_hook("aroundChat", slowly)
    events = await collect(agent.chat_stream("hi"))
    assert isinstance(events[0], Status)
    check_events(events)


# ── order and time ──────────────────────────────────────────────────────────────────────────


async def test_a_sequencer_orders_tasks_however_they_start() -> None:
    seq = Sequencer()
    trace: list[int] = []

    async def at(*positions: int) -> None:
        for position in positions:
            async with seq(position):
                trace.append(position)

    await asyncio.gather(at(2, 3), at(1, 4), at(0, 5))
    assert trace == [0, 1, 2, 3, 4, 5]
    with pytest.raises(UsageError, match="position 3 of the sequence was already used"):
        await at(3)


async def test_a_sequence_goes_on_after_an_exception_and_breaks_at_a_cancellation() -> None:
    seq = Sequencer()

    async def at(position: int) -> str:
        async with seq(position):
            return "ran"

    with pytest.raises(Boom):
        async with seq(0):
            raise Boom
    assert await at(1) == "ran"
    tasks = [asyncio.create_task(at(position)) for position in (3, 4)]
    async with seq(2):
        await asyncio.sleep(0)  # both wait for their turn now
        tasks[0].cancel()
        cancelled, broken = await asyncio.gather(*tasks, return_exceptions=True)
    assert isinstance(cancelled, asyncio.CancelledError)
    assert isinstance(broken, UsageError)
    with pytest.raises(UsageError, match="the sequence is broken"):
        await at(5)


async def test_the_test_runtime_has_its_own_time_and_ids() -> None:
    runtime = TestRuntime(1000.0)
    agent = Agent(
        ScriptedModel(call("weather", city="x"), "b", "c"), tools=[weather], runtime=runtime
    )
    durations: list[float] = []

    def tick(ctx: Any) -> None:
        runtime.advance(2.5)

    agent.add_hook("onStep", tick)
    agent.add_hook("onChatEnd", lambda ctx: durations.append(ctx.duration))
    assert [(await agent.chat("hi")).chat_id for _ in range(2)] == ["chat-1", "chat-2"]
    assert durations == [5.0, 2.5]
    assert runtime.now() == runtime.time == 1007.5
    with pytest.raises(ValueError, match="time only goes forward"):
        runtime.advance(-1)
    runtime.time = 0.0
    assert runtime.now() == 0.0


async def test_an_approval_expires_by_the_test_runtimes_clock() -> None:
    runtime = TestRuntime()
    agent = Agent(ScriptedModel(call("weather", city="x")), tools=[weather], runtime=runtime)
    agent.add_hook("preToolCall", lambda ctx: Ask("may I?", expires=60))
    conversation = Conversation()
    await agent.chat("hi", conversation=conversation)
    (pending,) = conversation.pending
    runtime.advance(61)
    with pytest.raises(UsageError, match="expired"):
        await agent.resume(conversation, {pending.id: Approve()})


async def test_a_client_that_resets_its_connection_has_left() -> None:
    asked = asyncio.Event()

    async def hold() -> None:
        asked.set()
        await asyncio.Event().wait()

    async with WireServer("openai", Wire("Hello", delay=hold)) as server:
        client = socket.create_connection(("127.0.0.1", int(server.url.split(":")[2][:-3])))
        client.sendall(b"POST /v1/chat/completions HTTP/1.1\r\ncontent-length: 2\r\n\r\n{}")
        await asked.wait()
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.close()
        async with asyncio.timeout(60):
            await server.left.wait()
        assert server.left_at is not None


def test_the_face() -> None:
    assert sorted(face.__all__) == list(face.__all__)
    assert all(hasattr(face, name) for name in face.__all__)
    assert Recorder.__doc__
    assert face.check_history is check_history


# ── a server ────────────────────────────────────────────────────────────────────────────────


async def test_a_server_answers_each_request_with_the_next_reply() -> None:
    replies = (Failure(429, "too fast", {"retry-after": "3"}), "Four.")
    async with ModelServer(*replies) as server:
        agent = Agent(OpenAIChatModel("any", base_url=server.url, api_key="any"))
        with pytest.raises(RateLimitError, match="too fast") as caught:
            await agent.chat("2 + 2?")
        assert caught.value.retry_after == 3.0
        assert (await agent.chat("2 + 2?")).text == "Four."
    assert [request["messages"][-1]["content"] for request in server.requests] == ["2 + 2?"] * 2


async def test_a_server_without_replies_says_so_at_its_end() -> None:
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(ModelServer())
        agent = Agent(OpenAIChatModel("any", base_url=server.url, api_key="any"))
        with pytest.raises(ModelError, match="no more replies"):
            await agent.chat("2 + 2?")
        with pytest.raises(ScriptError, match="1 requests for 0 replies"):
            await stack.aclose()
