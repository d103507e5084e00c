"""The hooks around a whole chat: aroundChat, onChatStart, preChat, and those of its end."""

import asyncio
from typing import Any

import pytest

from hookline import (
    Agent,
    ChatRequest,
    Conversation,
    Image,
    Limits,
    ModelResponse,
    Response,
    Settings,
    Stop,
    Text,
    Usage,
    UserMessage,
    tool,
)
from hookline.errors import (
    ChatAbortedError,
    HistoryError,
    HookError,
    HookReturnError,
    HookTimeoutError,
    MaxStepsError,
    UsageError,
)
from hookline.events import (
    ChatDone,
    ChatFailed,
    ChatStarted,
    MessageAdded,
    PartEnd,
    StepStarted,
    TextDelta,
    ToolCallStarted,
)
from hookline.testing import ScriptedModel, Turn, call, collect


class Boom(Exception):
    pass


@tool
async def look(q: str = "") -> str:
    """Look it up."""
    return f"found {q}"


@tool
async def other() -> str:
    """Something else."""
    return "other"


def names(events: list[Any]) -> list[str]:
    return [type(event).__name__ for event in events]


def boom(ctx: Any) -> None:
    raise Boom


# ── aroundChat ──────────────────────────────────────────────────────────────────────────────


async def test_aroundChat_sees_the_message_and_gets_the_response() -> None:
    seen: list[Any] = []
    agent = Agent(ScriptedModel("hello"))

    async def around(ctx: Any, proceed: Any) -> Response:
        seen.append(ctx.message.text)
        response: Response = await proceed()
        seen.append(response.text)
        return response

    agent.add_hook("aroundChat", around)
    response = await agent.chat("hi")
    assert seen == ["hi", "hello"]
    assert response.text == "hello"


async def test_the_first_aroundChat_in_order_is_the_outermost() -> None:
    out: list[str] = []

    def wrapper(name: str) -> Any:
        async def around(ctx: Any, proceed: Any) -> Response:
            out.append(f"{name} >")
            response: Response = await proceed()
            out.append(f"{name} <")
            return response

        return around

    agent = Agent(ScriptedModel("hello"))
    agent.add_hook("aroundChat", wrapper("b"))
    agent.add_hook("aroundChat", wrapper("c"))
    agent.add_hook("aroundChat", wrapper("a"), priority=1)
    await agent.chat("hi")
    assert out == ["a >", "b >", "c >", "c <", "b <", "a <"]


async def test_aroundChat_may_proceed_with_another_message() -> None:
    seen: list[str] = []
    model = ScriptedModel("hello")
    agent = Agent(model)

    async def around(ctx: Any, proceed: Any) -> Response:
        response: Response = await proceed(ctx.message.replace(text="changed"))
        return response

    agent.add_hook("aroundChat", around)
    agent.add_hook("onChatStart", lambda ctx: seen.append(ctx.message.text))
    response = await agent.chat("hi")
    assert seen == ["changed"]
    assert response.messages[0].text == "changed"
    assert model.last_request.messages[0].text == "changed"


async def test_the_response_that_aroundChat_returns_is_what_caller_and_stream_get() -> None:
    async def around(ctx: Any, proceed: Any) -> Response:
        response: Response = await proceed()
        return response.replace(output={"n": 1})

    agent = Agent(ScriptedModel("hello", "hello"))
    agent.add_hook("aroundChat", around)
    assert (await agent.chat("hi")).output == {"n": 1}
    stream = agent.chat_stream("hi")
    events = await collect(stream)
    assert isinstance(events[-1], ChatDone)
    assert events[-1].response.output == {"n": 1}
    assert stream.response.output == {"n": 1}


async def test_proceed_of_aroundChat_raises_what_the_chat_raises() -> None:
    error = Boom()
    seen: list[BaseException] = []

    async def around(ctx: Any, proceed: Any) -> Response:
        try:
            response: Response = await proceed()
        except Exception as exc:
            seen.append(exc)
            raise
        return response

    agent = Agent(ScriptedModel(error))
    agent.add_hook("aroundChat", around)
    with pytest.raises(Boom) as caught:
        await agent.chat("hi")
    assert seen == [error]
    assert caught.value is error


async def test_aroundChat_cannot_undo_the_outcome_by_swallowing_the_error() -> None:
    """The outcome was decided and told when proceed raised."""
    out: list[str] = []
    error = Boom()

    async def around(ctx: Any, proceed: Any) -> Response:
        try:
            await proceed()
        except Boom:
            out.append("swallowed")
        return Response(chat_id=ctx.run.chat_id, text="all is well")

    agent = Agent(ScriptedModel(error))
    agent.add_hook("aroundChat", around)
    agent.add_hook("onChatError", lambda ctx: out.append("onChatError"))
    with pytest.raises(Boom) as caught:
        await agent.chat("hi")
    assert caught.value is error
    assert out == ["onChatError", "swallowed"]


async def test_aroundChat_that_does_not_proceed_is_a_HookError_to_the_caller_alone() -> None:
    out: list[str] = []
    conversation = Conversation()
    events: list[Any] = []

    async def around(ctx: Any, proceed: Any) -> Response:
        return Response(chat_id=ctx.run.chat_id, text="cached")

    agent = Agent(ScriptedModel())
    agent.add_hook("aroundChat", around)
    for point in ("onChatStart", "onChatError", "onChatEnd"):
        agent.add_hook(point, lambda ctx: out.append(type(ctx).__name__))
    with pytest.raises(HookError, match="aroundChat"):
        await collect(agent.chat_stream("hi", conversation=conversation), events)
    assert (out, events, conversation.messages) == ([], [], ())


async def test_aroundChat_that_proceeds_twice_is_a_HookError_and_the_outcome_stands() -> None:
    out: list[str] = []
    events: list[Any] = []

    async def around(ctx: Any, proceed: Any) -> Response:
        await proceed()
        response: Response = await proceed()
        return response

    agent = Agent(ScriptedModel("hello"))
    agent.add_hook("aroundChat", around)
    agent.add_hook("onChatStart", lambda ctx: out.append("start"))
    agent.add_hook("onChatDone", lambda ctx: out.append("done"))
    agent.add_hook("onChatError", lambda ctx: out.append("error"))
    with pytest.raises(HookError, match="proceed"):
        await collect(agent.chat_stream("hi"), events)
    assert out == ["start", "done"]
    assert isinstance(events[-1], ChatDone)


async def test_aroundChat_that_throws_after_proceed_leaves_the_outcome() -> None:
    """Like a throw in onChatDone: ChatDone is delivered, then the exception is raised."""
    out: list[str] = []
    events: list[Any] = []
    error = Boom()

    async def around(ctx: Any, proceed: Any) -> Response:
        await proceed()
        raise error

    agent = Agent(ScriptedModel("hello"))
    agent.add_hook("aroundChat", around)
    for point in ("onChatDone", "onChatAbort", "onChatError", "onChatEnd"):
        agent.add_hook(point, lambda ctx: out.append(type(ctx).__name__))
    with pytest.raises(Boom) as caught:
        await collect(agent.chat_stream("hi"), events)
    assert caught.value is error
    assert out == ["OnChatDone", "OnChatEnd"]
    assert isinstance(events[-1], ChatDone)
    assert events[-1].response.text == "hello"


async def test_aroundChat_that_throws_after_a_failed_chat_does_not_hide_its_error() -> None:
    events: list[Any] = []
    error = Boom()

    async def around(ctx: Any, proceed: Any) -> Response:
        try:
            await proceed()
        finally:
            raise ValueError("another")

    agent = Agent(ScriptedModel(error))
    agent.add_hook("aroundChat", around)
    with pytest.raises(Boom) as caught:
        await collect(agent.chat_stream("hi"), events)
    assert caught.value is error
    assert isinstance(events[-1], ChatFailed)


async def test_aroundChat_that_returns_no_Response_is_a_HookReturnError() -> None:
    async def around(ctx: Any, proceed: Any) -> Any:
        await proceed()

    agent = Agent(ScriptedModel("hello"))
    agent.add_hook("aroundChat", around)
    with pytest.raises(
        HookReturnError, match=r"aroundChat returned a value of type NoneType.*Response"
    ):
        await agent.chat("hi")


async def test_proceed_of_aroundChat_takes_a_user_message_only() -> None:
    async def around(ctx: Any, proceed: Any) -> Any:
        return await proceed("just text")

    agent = Agent(ScriptedModel())
    agent.add_hook("aroundChat", around)
    with pytest.raises(HookReturnError, match="UserMessage"):
        await agent.chat("hi")


async def test_aroundChat_wraps_the_end_hooks_too() -> None:
    out: list[str] = []

    async def around(ctx: Any, proceed: Any) -> Response:
        response: Response = await proceed()
        out.append("after proceed")
        return response

    agent = Agent(ScriptedModel("hello"))
    agent.add_hook("aroundChat", around)
    agent.add_hook("onChatDone", lambda ctx: out.append("onChatDone"))
    agent.add_hook("onChatEnd", lambda ctx: out.append("onChatEnd"))
    await agent.chat("hi")
    assert out == ["onChatDone", "onChatEnd", "after proceed"]


@pytest.mark.parametrize("own", [True, False], ids=["its-own-timeout", "timeout-option"])
async def test_aroundChat_can_bound_the_chat_in_time(own: bool) -> None:
    """timeout= covers what the wrapper wraps; running out is a HookTimeoutError."""
    out: list[str] = []
    hangs = asyncio.Event()

    async def around(ctx: Any, proceed: Any) -> Response:
        async with asyncio.timeout(0.01 if own else None):
            response: Response = await proceed()
        return response

    agent = Agent(ScriptedModel(Turn("never", delay=hangs.wait)), limits=Limits(grace=0.05))
    agent.add_hook("aroundChat", around, timeout=None if own else 0.01)
    agent.add_hook("onChatStart", lambda ctx: out.append("onChatStart"))
    for point in ("onChatDone", "onChatAbort", "onChatError", "onChatEnd"):
        agent.add_hook(point, lambda ctx: out.append(type(ctx).__name__))
    with pytest.raises(TimeoutError if own else HookTimeoutError):
        await agent.chat("hi")
    assert out in (
        ["onChatStart", "OnChatAbort", "OnChatEnd"],
        ["onChatStart", "OnChatError", "OnChatEnd"],
    )


# ── onChatStart ─────────────────────────────────────────────────────────────────────────────


async def test_onChatStart_fires_once_and_the_user_message_is_not_yet_in_history() -> None:
    seen: list[Any] = []
    agent = Agent(ScriptedModel([call("look")], "hello"), tools=[look])
    agent.add_hook("onChatStart", lambda ctx: seen.append((ctx.message.text, len(ctx.run.history))))
    await agent.chat("hi")
    assert seen == [("hi", 0)]


async def test_onChatStart_sees_the_history_of_the_conversation() -> None:
    seen: list[list[str]] = []
    conversation = Conversation()
    agent = Agent(ScriptedModel("one", "two"))
    agent.add_hook("onChatStart", lambda ctx: seen.append([m.text for m in ctx.run.history]))
    await agent.chat("a", conversation=conversation)
    await agent.chat("b", conversation=conversation)
    assert seen == [[], ["a", "one"]]


async def test_what_an_observer_returns_is_ignored() -> None:
    agent = Agent(ScriptedModel("hello"))
    agent.add_hook("onChatStart", lambda ctx: Stop("ignored"))
    agent.add_hook("onChatDone", lambda ctx: Response(chat_id="other"))
    agent.add_hook("onMessage", lambda ctx: 42)
    response = await agent.chat("hi")
    assert (response.text, response.stop_reason) == ("hello", None)


async def test_ChatStarted_carries_what_the_chat_is() -> None:
    conversation = Conversation(id="c1")
    agent = Agent(ScriptedModel("hello"), name="helper")
    first = (await collect(agent.chat_stream("hi", conversation=conversation)))[0]
    assert isinstance(first, ChatStarted)
    assert first.message is not None
    told = (first.agent, first.message.text, first.conversation_id, first.parent_chat_id)
    assert told == ("helper", "hi", "c1", None)
    assert first.resumes is None


@pytest.mark.parametrize(
    "said",
    [
        pytest.param(None, id="None"),
        pytest.param(3, id="int"),
        pytest.param(b"hi", id="bytes"),
        pytest.param(["hi"], id="list-of-str"),
    ],
)
async def test_an_input_that_is_none_is_refused(said: Any) -> None:
    model = ScriptedModel("never")
    with pytest.raises((UsageError, TypeError)):
        await Agent(model).chat(said)
    assert model.calls == 0


@pytest.mark.parametrize("model", [None, "gpt", object()], ids=["None", "str", "object"])
def test_what_is_no_model_is_refused_where_the_agent_is_made(model: Any) -> None:
    with pytest.raises(UsageError):
        Agent(model)


@pytest.mark.parametrize("steps", [0, -1])
def test_a_chat_of_no_step_is_refused_where_the_limits_are_made(steps: int) -> None:
    with pytest.raises(UsageError, match="steps"):
        Limits(steps=steps)


async def test_an_unknown_option_of_a_chat_is_refused() -> None:
    agent: Any = Agent(ScriptedModel())
    with pytest.raises(TypeError, match="convesation"):
        await agent.chat("hi", convesation=Conversation())
    with pytest.raises(TypeError, match="convesation"):
        agent.chat_stream("hi", convesation=Conversation())


# ── the input ───────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "said",
    [
        pytest.param("hi", id="text"),
        pytest.param(UserMessage(parts=(Text("hi"),)), id="message"),
        pytest.param([Text("hi"), Image(url="https://example.org/a.png")], id="parts"),
    ],
)
async def test_the_input_of_a_chat_is_text_a_message_or_parts(said: Any) -> None:
    seen: list[str] = []
    agent = Agent(ScriptedModel("hello"))
    agent.add_hook("onChatStart", lambda ctx: seen.append(ctx.message.text))
    await agent.chat(said)
    assert seen == ["hi"]


# ── preChat ─────────────────────────────────────────────────────────────────────────────────


async def test_preChat_sees_message_system_tools_and_settings() -> None:
    seen: list[ChatRequest] = []
    settings = Settings(temperature=0.5)
    agent = Agent(ScriptedModel("ok"), system="be kind", tools=[look], settings=settings)

    def hook(ctx: Any) -> None:
        seen.append(ctx.request)

    agent.add_hook("preChat", hook)
    await agent.chat("hi")
    (request,) = seen
    assert request.message.text == "hi"
    assert (request.system, request.tools, request.settings) == ("be kind", (look,), settings)


async def test_preChat_runs_once_for_all_steps() -> None:
    out: list[str] = []
    agent = Agent(ScriptedModel([call("look")], "ok"), tools=[look])
    agent.add_hook("preChat", lambda ctx: out.append("preChat"))
    agent.add_hook("preRequest", lambda ctx: out.append(f"preRequest {ctx.iteration}"))
    await agent.chat("hi")
    assert out == ["preChat", "preRequest 0", "preRequest 1"]


async def test_preChat_is_a_chain_in_which_each_sees_what_the_one_before_returned() -> None:
    seen: list[str] = []
    agent = Agent(ScriptedModel("ok"))

    def add(text: str) -> Any:
        def hook(ctx: Any) -> ChatRequest:
            seen.append(ctx.request.message.text)
            changed: ChatRequest = ctx.request.replace(
                message=ctx.request.message.replace(text=ctx.request.message.text + text)
            )
            return changed

        return hook

    agent.add_hook("preChat", add("b"))
    agent.add_hook("preChat", lambda ctx: None)
    agent.add_hook("preChat", add("c"))
    response = await agent.chat("a")
    assert seen == ["a", "ab"]
    assert response.messages[0].text == "abc"


async def test_what_preChat_changes_holds_for_every_step() -> None:
    settings = Settings(max_tokens=7)
    model = ScriptedModel([call("look")], "ok")
    agent = Agent(model, system="be kind", tools=[look, other])
    agent.add_hook(
        "preChat",
        lambda ctx: ctx.request.replace(
            system=ctx.request.system + "\nBe concise.", tools=(look,), settings=settings
        ),
    )
    await agent.chat("hi")
    told = [(r.system, r.tools, r.settings) for r in model.requests]
    assert told == [("be kind\nBe concise.", (look,), settings)] * 2


async def test_what_preChat_changes_lasts_for_that_chat_alone() -> None:
    model = ScriptedModel("ok", "ok")
    agent = Agent(model, system="be kind")
    dispose = agent.add_hook("preChat", lambda ctx: ctx.request.replace(system="be rude"))
    await agent.chat("hi")
    dispose()
    await agent.chat("hi")
    assert [r.system for r in model.requests] == ["be rude", "be kind"]


async def test_preChat_can_take_the_system_text_away() -> None:
    model = ScriptedModel("ok")
    agent = Agent(model, system="be kind")
    agent.add_hook("preChat", lambda ctx: ctx.request.replace(system=None))
    await agent.chat("hi")
    assert model.last_request.system is None


async def test_the_message_that_preChat_returns_is_committed() -> None:
    conversation = Conversation()
    model = ScriptedModel("ok")
    agent = Agent(model)
    agent.add_hook(
        "preChat",
        lambda ctx: ctx.request.replace(message=ctx.request.message.replace(text="changed")),
    )
    await agent.chat("hi", conversation=conversation)
    assert [m.text for m in conversation.messages] == ["changed", "ok"]
    assert model.last_request.messages[0].text == "changed"


async def test_a_message_of_preChat_whose_id_the_history_has_is_refused() -> None:
    """A duplicate never gets into the history."""
    said = UserMessage(id="u1", parts=(Text("old"),))
    conversation = Conversation([said])
    agent = Agent(ScriptedModel())
    agent.add_hook("preChat", lambda ctx: ctx.request.replace(message=said))
    with pytest.raises(HistoryError, match="u1"):
        await agent.chat("hi", conversation=conversation)
    assert conversation.messages == (said,)


async def test_a_ModelResponse_from_preChat_stands_for_the_first_answer() -> None:
    """No model call, no preRequest 0; onResponse is dispatched."""
    out: list[str] = []
    agent = Agent(ScriptedModel())
    agent.add_hook("preChat", lambda ctx: ModelResponse.of("from cache"))
    agent.add_hook("preChat", lambda ctx: out.append("a later preChat"))
    agent.add_hook("preRequest", lambda ctx: out.append("preRequest"))

    async def around(ctx: Any, proceed: Any) -> Any:
        out.append("aroundRequest")
        return await proceed()

    agent.add_hook("aroundRequest", around)
    agent.add_hook("onDelta", lambda ctx: out.append(f"onDelta {type(ctx.delta).__name__}"))
    agent.add_hook("onResponse", lambda ctx: out.append(f"onResponse {ctx.response.text}"))
    agent.add_hook("onStep", lambda ctx: out.append("onStep"))
    agent.add_hook("preStop", lambda ctx: out.append("preStop"))
    response = await agent.chat("hi")
    assert out == [
        "onDelta TextChunk",
        "onDelta PartEndChunk",
        "onResponse from cache",
        "onStep",
        "preStop",
    ]
    assert (response.text, response.stop_reason) == ("from cache", None)
    assert [m.text for m in response.messages] == ["hi", "from cache"]


async def test_a_ModelResponse_from_preChat_is_streamed_like_any_other() -> None:
    """One delta per part."""
    agent = Agent(ScriptedModel())
    agent.add_hook("preChat", lambda ctx: ModelResponse.of("from cache", reasoning="I know this"))
    events = await collect(agent.chat_stream("hi"))
    assert names(events) == [
        "ChatStarted",
        "MessageAdded",
        "StepStarted",
        "ReasoningDelta",
        "PartEnd",
        "TextDelta",
        "PartEnd",
        "MessageAdded",
        "StepFinished",
        "ChatDone",
    ]
    assert [e.text for e in events if isinstance(e, TextDelta)] == ["from cache"]


async def test_onResponse_sees_with_it_the_request_that_the_preChat_hooks_before_produced() -> None:
    seen: list[Any] = []
    agent = Agent(ScriptedModel(), system="be kind")
    agent.add_hook("preChat", lambda ctx: ctx.request.replace(system="be brief"))
    agent.add_hook("preChat", lambda ctx: ModelResponse.of("from cache"))

    def hook(ctx: Any) -> None:
        seen.append((ctx.request.system, [m.text for m in ctx.request.messages]))

    agent.add_hook("onResponse", hook)
    await agent.chat("hi")
    assert seen == [("be brief", ["hi"])]


async def test_calls_in_a_ModelResponse_from_preChat_are_run_and_step_1_asks_the_model() -> None:
    out: list[str] = []
    model = ScriptedModel("ok")
    agent = Agent(model, tools=[look])
    agent.add_hook(
        "preChat", lambda ctx: ModelResponse.of(tool_calls=[call("look", q="x", call_id="c")])
    )
    agent.add_hook("preRequest", lambda ctx: out.append(f"preRequest {ctx.iteration}"))
    events = await collect(agent.chat_stream("hi"))
    assert out == ["preRequest 1"]
    assert [m.text for m in model.last_request.messages] == ["hi", "", "found x"]
    assert [e.iteration for e in events if isinstance(e, StepStarted)] == [0, 1]
    assert any(isinstance(e, ToolCallStarted) and e.iteration == 0 for e in events)


async def test_a_Stop_from_preChat_ends_the_chat_with_nothing_written() -> None:
    """Nothing is written, preStop does not run; it is a graceful end."""
    out: list[str] = []
    conversation = Conversation()
    agent = Agent(ScriptedModel())
    agent.add_hook("preChat", lambda ctx: Stop("closed", text="We are closed."))
    agent.add_hook("preChat", lambda ctx: out.append("a later preChat"))
    for point in ("preMessage", "onMessage", "preRequest", "onStep", "preStop"):
        agent.add_hook(point, lambda ctx: out.append(type(ctx).__name__))
    for point in ("onChatDone", "onChatError", "onChatEnd"):
        agent.add_hook(point, lambda ctx: out.append(type(ctx).__name__))
    stream = agent.chat_stream("hi", conversation=conversation)
    events = await collect(stream)
    assert out == ["OnChatDone", "OnChatEnd"]
    assert names(events)[0] == "ChatStarted"
    assert not any(isinstance(e, (MessageAdded, StepStarted)) for e in events)
    assert isinstance(events[-1], ChatDone)
    assert stream.response.stop_reason == "closed"
    assert stream.response.text == "We are closed."
    assert stream.response.messages == conversation.messages == ()


async def test_a_Stop_from_preChat_took_no_step() -> None:
    agent = Agent(ScriptedModel())
    agent.add_hook("preChat", lambda ctx: Stop("closed"))
    assert (await agent.chat("hi")).steps == 0


@pytest.mark.parametrize(
    "value",
    [
        pytest.param("text", id="str"),
        pytest.param(True, id="bool"),
        pytest.param(False, id="False-is-not-None"),
        pytest.param(UserMessage(parts=(Text("hi"),)), id="message"),
        pytest.param(Response(chat_id="x"), id="response"),
        pytest.param((Stop("x"),), id="tuple"),
    ],
)
async def test_any_other_type_from_preChat_is_a_HookReturnError(value: Any) -> None:
    """It names hook, point, the value's type and the types allowed."""

    def my_hook(ctx: Any) -> Any:
        return value

    agent = Agent(ScriptedModel())
    agent.add_hook("preChat", my_hook, name="my_hook")
    with pytest.raises(HookReturnError) as caught:
        await agent.chat("hi")
    text = str(caught.value)
    for word in (
        "my_hook",
        "preChat",
        type(value).__name__,
        "ChatRequest",
        "ModelResponse",
        "Stop",
        "None",
    ):
        assert word in text


async def test_a_throw_in_preChat_ends_the_chat_before_anything_is_written() -> None:
    conversation = Conversation()
    out: list[str] = []
    agent = Agent(ScriptedModel())
    agent.add_hook("preChat", boom)
    agent.add_hook("preChat", lambda ctx: out.append("a later preChat"))
    agent.add_hook("onChatError", lambda ctx: out.append(type(ctx.error).__name__))
    with pytest.raises(Boom):
        await agent.chat("hi", conversation=conversation)
    assert out == ["Boom"]
    assert conversation.messages == ()


# ── the end ─────────────────────────────────────────────────────────────────────────────────


async def test_onChatDone_sees_the_response_and_the_answer_is_in_history() -> None:
    seen: list[Any] = []
    agent = Agent(ScriptedModel("hello"))
    agent.add_hook(
        "onChatDone",
        lambda ctx: seen.append((ctx.response, [m.text for m in ctx.run.history])),
    )
    response = await agent.chat("hi")
    assert seen == [(response, ["hi", "hello"])]


async def test_onChatError_sees_the_exception_itself() -> None:
    error = Boom()
    seen: list[Any] = []
    agent = Agent(ScriptedModel(error))

    def hook(ctx: Any) -> None:
        seen.append(ctx.error)

    agent.add_hook("onChatError", hook)
    with pytest.raises(Boom):
        await agent.chat("hi")
    assert len(seen) == 1
    assert seen[0] is error


async def test_onChatAbort_sees_the_reason_and_what_was_kept() -> None:
    seen: list[Any] = []
    agent = Agent(ScriptedModel("hello"))

    def abort(ctx: Any) -> None:
        ctx.run.abort("enough")

    agent.add_hook("onStep", abort)
    agent.add_hook(
        "onChatAbort",
        lambda ctx: seen.append((ctx.reason, [m.text for m in ctx.partial])),
    )
    with pytest.raises(ChatAbortedError) as caught:
        await agent.chat("hi")
    assert seen == [("enough", ["hi", "hello"])]
    assert caught.value.reason == "enough"
    assert [m.text for m in caught.value.partial] == ["hi", "hello"]


async def _end_of(agent: Agent[Any]) -> Any:
    seen: list[Any] = []

    def hook(ctx: Any) -> None:
        seen.append(ctx)

    agent.add_hook("onChatEnd", hook)
    (result,) = await asyncio.gather(agent.chat("hi"), return_exceptions=True)
    (ctx,) = seen
    return ctx, result


async def test_onChatEnd_after_done_has_the_response() -> None:
    usage = Usage(input_tokens=3, output_tokens=4)
    ctx, response = await _end_of(Agent(ScriptedModel(Turn("hello", usage=usage))))
    assert (ctx.outcome, ctx.response, ctx.error, ctx.usage) == ("done", response, None, usage)
    assert ctx.duration >= 0


async def test_onChatEnd_after_an_error_has_the_error() -> None:
    usage = Usage(input_tokens=3, output_tokens=4)
    agent = Agent(ScriptedModel(Turn("hello", usage=usage)))
    agent.add_hook("onStep", boom)
    ctx, error = await _end_of(agent)
    assert (ctx.outcome, ctx.response, ctx.usage) == ("error", None, usage)
    assert ctx.error is error
    assert isinstance(error, Boom)


async def test_onChatEnd_after_an_abort_has_neither() -> None:
    agent = Agent(ScriptedModel("hello"))

    def abort(ctx: Any) -> None:
        ctx.run.abort()

    agent.add_hook("preRequest", abort)
    ctx, error = await _end_of(agent)
    assert (ctx.outcome, ctx.response, ctx.error) == ("aborted", None, None)
    assert isinstance(error, ChatAbortedError)


async def test_onChatEnd_counts_as_error_when_the_steps_are_used_up() -> None:
    agent = Agent(ScriptedModel([call("look")]), tools=[look], limits=Limits(steps=1))
    ctx, error = await _end_of(agent)
    assert ctx.outcome == "error"
    assert isinstance(ctx.error, MaxStepsError)
    assert ctx.error is error


async def test_the_response_has_all_of_the_chat() -> None:
    """Text, reasoning, messages of this chat, usage, finish_reason, stop_reason, pending."""
    conversation = Conversation()
    one, two = Usage(input_tokens=1, output_tokens=2), Usage(input_tokens=10, output_tokens=20)
    model = ScriptedModel(
        "before",
        Turn("Let me see.", tool_calls=[call("look", q="x")], usage=one),
        Turn(text="It is x.", reasoning="hm", usage=two, finish_reason="length"),
    )
    agent = Agent(model, tools=[look])
    await agent.chat("earlier", conversation=conversation)
    response = await agent.chat("hi", conversation=conversation)
    assert (response.text, response.reasoning) == ("It is x.", "hm")
    assert [m.text for m in response.messages] == ["hi", "Let me see.", "found x", "It is x."]
    assert response.messages == conversation.messages[2:]
    assert response.usage == one + two
    assert (response.finish_reason, response.stop_reason) == ("length", None)
    assert (response.pending, response.output) == ((), None)


@pytest.mark.parametrize(
    "turns",
    [
        pytest.param([Turn(finish_reason="refusal")], id="only-step"),
        pytest.param([["Let me see.", call("look")], Turn(finish_reason="refusal")], id="last"),
    ],
)
async def test_text_and_finish_reason_of_the_response_are_those_of_the_last_answer(
    turns: list[Any],
) -> None:
    """A blank answer is absent from history; what the caller gets is still its own."""
    response = await Agent(ScriptedModel(*turns), tools=[look]).chat("hi")
    assert (response.text, response.finish_reason) == ("", "refusal")


async def test_the_end_hooks_run_in_order_of_priority() -> None:
    out: list[str] = []
    agent = Agent(ScriptedModel("hello"))
    agent.add_hook("onChatDone", lambda ctx: out.append("low"), priority=-1)
    agent.add_hook("onChatDone", lambda ctx: out.append("high"), priority=1)
    agent.add_hook("onChatEnd", lambda ctx: out.append("end"))
    await agent.chat("hi")
    assert out == ["high", "low", "end"]


@pytest.mark.parametrize("point", ["onChatDone", "onChatEnd"])
async def test_an_abort_in_a_hook_of_the_end_is_too_late(point: Any) -> None:
    """Each start is followed by exactly one outcome: the first decides."""
    seen: list[bool] = []
    out: list[str] = []
    agent = Agent(ScriptedModel("hello"))
    agent.add_hook(point, lambda ctx: seen.append(ctx.run.abort("late")))
    agent.add_hook("onChatAbort", lambda ctx: out.append("onChatAbort"))
    assert (await agent.chat("hi")).text == "hello"
    assert (seen, out) == ([False], [])


async def test_PartEnd_closes_each_part_of_a_played_answer() -> None:
    agent = Agent(ScriptedModel())
    agent.add_hook("preChat", lambda ctx: ModelResponse(parts=(Text("a"), Text("b"))))
    events = await collect(agent.chat_stream("hi"))
    told = [e.text if isinstance(e, TextDelta) else "|" for e in events if is_text(e)]
    assert told == ["a", "|", "b", "|"]


def is_text(event: Any) -> bool:
    return isinstance(event, (TextDelta, PartEnd))
