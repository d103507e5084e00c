"""onResponse: the last word on what the model answered, before it is kept."""

import asyncio
from typing import Any

import pytest

from hookline import (
    Agent,
    AssistantMessage,
    Conversation,
    ModelResponse,
    Reasoning,
    Response,
    Stop,
    Text,
    ToolCall,
    Usage,
    check_history,
    tool,
)
from hookline.errors import ChatAbortedError, HookReturnError
from hookline.events import (
    MessageAdded,
    PartEnd,
    ReasoningDelta,
    ResponseReset,
    TextDelta,
    ToolCallFinished,
)
from hookline.testing import ScriptedModel, Turn, call, collect, raw_call


class Boom(Exception):
    pass


def make_tools(ran: list[Any]) -> list[Any]:
    @tool
    async def look(q: str = "") -> str:
        """Look it up."""
        ran.append(("look", q))
        return f"found {q}"

    @tool
    async def other() -> str:
        """Something else."""
        ran.append(("other",))
        return "other"

    return [look, other]


def first_step(change: Any) -> Any:
    """A hook for step 0 alone."""
    return lambda ctx: change(ctx.response) if ctx.iteration == 0 else None


async def chat(
    turns: list[Any], hook: Any, **options: Any
) -> tuple[Response, list[Any], ScriptedModel]:
    ran: list[Any] = []
    model = ScriptedModel(*turns)
    agent = Agent(model, tools=make_tools(ran))
    agent.add_hook("onResponse", hook)
    response = await agent.chat("hi", **options)
    return response, ran, model


# ── what it sees ────────────────────────────────────────────────────────────────────────────


async def test_onResponse_sees_the_answer_and_the_request_of_each_step() -> None:
    seen: list[Any] = []

    def hook(ctx: Any) -> None:
        calls = [made.name for made in ctx.response.tool_calls]
        seen.append((ctx.iteration, ctx.response.text, calls, len(ctx.request.messages)))

    await chat([["Let me see.", call("look", q="x")], "It is x."], hook)
    assert seen == [(0, "Let me see.", ["look"], 1), (1, "It is x.", [], 3)]


async def test_onResponse_sees_usage_finish_reason_and_model() -> None:
    seen: list[Any] = []
    usage = Usage(input_tokens=1, output_tokens=2)

    def hook(ctx: Any) -> None:
        response = ctx.response
        seen.append((response.usage, response.finish_reason, response.model, response.reasoning))

    await chat([Turn(text="a", reasoning="hm", usage=usage, finish_reason="length")], hook)
    assert seen == [(usage, "length", "scripted", "hm")]


async def test_onResponse_runs_before_the_answer_is_in_history() -> None:
    seen: list[int] = []
    await chat(["a"], lambda ctx: seen.append(len(ctx.run.history)))
    assert seen == [1]


async def test_onResponse_sees_what_onDelta_left() -> None:
    seen: list[str] = []
    agent = Agent(ScriptedModel("secret"))
    agent.add_hook(
        "onDelta", lambda ctx: ctx.delta.replace(text="***") if hasattr(ctx.delta, "text") else None
    )
    agent.add_hook("onResponse", lambda ctx: seen.append(ctx.response.text))
    await agent.chat("hi")
    assert seen == ["***"]


# ── it drains ───────────────────────────────────────────────────────────────────────────────


async def test_onResponse_always_drains_and_each_sees_what_the_one_before_returned() -> None:
    seen: list[str] = []
    agent = Agent(ScriptedModel("a"))

    def add(text: str) -> Any:
        def hook(ctx: Any) -> Any:
            seen.append(ctx.response.text)
            return ctx.response.replace(text=ctx.response.text + text)

        return hook

    agent.add_hook("onResponse", add("b"))
    agent.add_hook("onResponse", lambda ctx: seen.append("none"))
    agent.add_hook("onResponse", add("c"))
    response = await agent.chat("hi")
    assert seen == ["a", "none", "ab"]
    assert response.text == "abc"


async def test_a_new_ModelResponse_does_not_end_the_chain() -> None:
    out: list[str] = []
    agent = Agent(ScriptedModel("a"))
    agent.add_hook("onResponse", lambda ctx: ModelResponse.of("mine"))
    agent.add_hook("onResponse", lambda ctx: out.append(ctx.response.text))
    await agent.chat("hi")
    assert out == ["mine"]


async def test_an_async_onResponse_is_awaited() -> None:
    async def hook(ctx: Any) -> Any:
        await asyncio.sleep(0)
        return ctx.response.replace(text="later")

    response, _, _ = await chat(["a"], hook)
    assert response.text == "later"


@pytest.mark.parametrize(
    "value",
    [
        pytest.param("text", id="str"),
        pytest.param(False, id="bool"),
        pytest.param(Stop("x"), id="Stop"),
        pytest.param(AssistantMessage(parts=(Text("a"),)), id="message"),
        pytest.param((Text("a"),), id="parts"),
        pytest.param(Response(chat_id="x"), id="Response"),
    ],
)
async def test_any_other_type_from_onResponse_is_a_HookReturnError(value: Any) -> None:
    def my_hook(ctx: Any) -> Any:
        return value

    with pytest.raises(HookReturnError, match=r"my_hook.*onResponse.*ModelResponse"):
        await chat(["a"], my_hook)


# ── text ────────────────────────────────────────────────────────────────────────────────────


async def test_the_text_that_onResponse_leaves_is_kept_and_returned() -> None:
    conversation = Conversation()
    response, _, _ = await chat(
        ["a secret"], lambda ctx: ctx.response.replace(text="a ***"), conversation=conversation
    )
    assert response.text == "a ***"
    assert [m.text for m in conversation.messages] == ["hi", "a ***"]


async def test_blank_text_that_onResponse_writes_is_not_kept() -> None:
    def hook(ctx: Any) -> ModelResponse:
        return ctx.response.replace(parts=(*ctx.response.parts, Text(" \n")))

    response, _, _ = await chat(["hello"], hook)
    answer = response.messages[-1]
    assert isinstance(answer, AssistantMessage)
    assert answer.parts == (Text("hello"),)


async def test_arguments_that_onResponse_has_from_the_model_are_kept_as_an_object() -> None:
    """They were no JSON object; the call is answered with an error, and history shows `{}`."""
    turns = [Turn(tool_calls=[raw_call("look", "[1")]), "sorry"]
    response, ran, _ = await chat(turns, lambda ctx: ctx.response.replace(model="mine"))
    answer = response.messages[1]
    assert isinstance(answer, AssistantMessage)
    assert [(each.arguments, each.raw) for each in answer.tool_calls] == [({}, None)]
    assert ran == []


async def test_the_next_request_holds_what_onResponse_left() -> None:
    _, _, model = await chat(
        [["a secret", call("look")], "ok"], first_step(lambda r: r.replace(text="a ***"))
    )
    assert [m.text for m in model.last_request.messages] == ["hi", "a ***", "found "]


async def test_finish_reason_usage_and_meta_that_onResponse_leaves_are_kept() -> None:
    usage = Usage(output_tokens=9)
    response, _, _ = await chat(
        ["a"],
        lambda ctx: ctx.response.replace(finish_reason="other", usage=usage, meta={"k": 1}),
    )
    message = response.messages[-1]
    assert isinstance(message, AssistantMessage)
    assert (message.finish_reason, message.usage, message.meta) == ("other", usage, {"k": 1})
    assert response.finish_reason == "other"


async def test_what_onResponse_writes_as_usage_does_not_change_what_was_spent() -> None:
    spent = Usage(input_tokens=5, output_tokens=5)
    response, _, _ = await chat(
        [Turn("a", usage=spent)], lambda ctx: ctx.response.replace(usage=Usage())
    )
    assert response.usage == spent


async def test_replaced_text_stands_where_the_first_text_stood() -> None:
    response, _, _ = await chat(
        [Turn(text="a", reasoning="hm", tool_calls=[call("look", call_id="c")]), "ok"],
        first_step(lambda r: r.replace(text="b")),
    )
    message = response.messages[1]
    assert isinstance(message, AssistantMessage)
    assert message.parts == (Reasoning("hm"), Text("b"), ToolCall(id="c", name="look"))


# ── calls ───────────────────────────────────────────────────────────────────────────────────


async def test_a_response_whose_calls_were_dropped_ends_the_chat() -> None:
    response, ran, model = await chat(
        [["a", call("look")]], lambda ctx: ctx.response.replace(parts=(Text("a"),))
    )
    assert (response.text, response.stop_reason) == ("a", None)
    assert (ran, model.calls) == ([], 1)


async def test_one_of_two_calls_can_be_dropped() -> None:
    conversation = Conversation()
    response, ran, _ = await chat(
        [[call("look", q="x"), call("other")], "ok"],
        first_step(lambda r: r.replace(parts=r.tool_calls[1:])),
        conversation=conversation,
    )
    assert ran == [("other",)]
    assert [m.role for m in response.messages] == ["user", "assistant", "tool", "assistant"]
    check_history(conversation.messages)


async def test_calls_can_be_added_to_an_answer_that_has_none() -> None:
    response, ran, model = await chat(
        ["a", "ok"],
        first_step(lambda r: r.replace(parts=(*r.parts, call("look", q="x", call_id="mine")))),
    )
    assert ran == [("look", "x")]
    assert response.text == "ok"
    assert [m.text for m in model.last_request.messages] == ["hi", "a", "found x"]


async def test_a_call_that_was_added_without_an_id_gets_one() -> None:
    response, ran, _ = await chat(
        ["a", "ok"],
        first_step(lambda r: ModelResponse.of("a", tool_calls=[call("look"), call("look")])),
    )
    ids = [m.call_id for m in response.messages if m.role == "tool"]
    assert len(ran) == len(ids) == len(set(ids)) == 2
    assert all(ids)


async def test_a_call_that_was_added_with_an_id_in_use_gets_another() -> None:
    response, ran, _ = await chat(
        [[call("look", q="x", call_id="c")], "ok"],
        first_step(lambda r: r.replace(parts=(*r.parts, call("look", q="y", call_id="c")))),
    )
    first, second = [m.call_id for m in response.messages if m.role == "tool"]
    assert first == "c"
    assert second != "c"
    assert ran == [("look", "x"), ("look", "y")]


async def test_a_call_of_an_earlier_step_does_not_lend_its_id() -> None:
    def hook(ctx: Any) -> Any:
        if ctx.iteration == 1:
            return ctx.response.replace(parts=(call("other", call_id="c"),))
        return None

    response, _, _ = await chat([[call("look", call_id="c")], "more", "ok"], hook)
    ids = [m.call_id for m in response.messages if m.role == "tool"]
    assert len(set(ids)) == 2


async def test_arguments_are_changed_in_onResponse_and_history_shows_it() -> None:
    """Unlike preToolCall's change, it is what the model is taken to have written."""

    def hook(response: Any) -> Any:
        (made,) = response.tool_calls
        return response.replace(parts=(made.replace(arguments={"q": "y"}),))

    response, ran, _ = await chat([[call("look", q="x", call_id="c")], "ok"], first_step(hook))
    assert ran == [("look", "y")]
    message = response.messages[1]
    assert isinstance(message, AssistantMessage)
    assert [made.arguments for made in message.tool_calls] == [{"q": "y"}]
    assert message.tool_calls[0].id == "c"


async def test_a_call_can_be_turned_into_one_of_another_tool() -> None:
    def hook(response: Any) -> Any:
        return response.replace(parts=(response.tool_calls[0].replace(name="other", arguments={}),))

    _, ran, _ = await chat([[call("look", q="x")], "ok"], first_step(hook))
    assert ran == [("other",)]


async def test_bad_arguments_can_be_mended() -> None:
    def hook(response: Any) -> Any:
        (made,) = response.tool_calls
        assert made.raw == "{q: x}"
        return response.replace(parts=(made.replace(arguments={"q": "x"}, raw=None),))

    _, ran, _ = await chat([[raw_call("look", "{q: x}")], "ok"], first_step(hook))
    assert ran == [("look", "x")]


async def test_the_order_of_calls_is_the_one_that_onResponse_left() -> None:
    ran: list[Any] = []
    agent = Agent(
        ScriptedModel([call("look", call_id="a"), call("other", call_id="b")], "ok"),
        tools=make_tools(ran),
        parallel_tools=False,
    )
    agent.add_hook("onResponse", first_step(lambda r: r.replace(parts=r.tool_calls[::-1])))
    events = await collect(agent.chat_stream("hi"))
    assert ran == [("other",), ("look", "")]
    assert [e.call_id for e in events if isinstance(e, ToolCallFinished)] == ["b", "a"]


async def test_an_added_call_of_an_unknown_tool_is_an_error_to_the_model() -> None:
    response, _, _ = await chat(
        ["a", "ok"], first_step(lambda r: ModelResponse.of(tool_calls=[call("nobody")]))
    )
    assert [(m.outcome, m.name) for m in response.messages if m.role == "tool"] == [
        ("error", "nobody")
    ]


async def test_an_added_call_of_a_tool_that_was_not_offered_does_not_run() -> None:
    """I10: an unoffered tool never runs, whichever path asks."""
    ran: list[Any] = []
    look, other = make_tools(ran)
    agent = Agent(ScriptedModel("a", "ok"), tools=[look, other])
    agent.add_hook("preRequest", lambda ctx: ctx.request.replace(tools=(look,)))
    agent.add_hook("onResponse", first_step(lambda r: ModelResponse.of(tool_calls=[call("other")])))
    response = await agent.chat("hi")
    assert ran == []
    assert [m.outcome for m in response.messages if m.role == "tool"] == ["error"]


async def test_an_answer_that_is_emptied_is_not_kept() -> None:
    conversation = Conversation()
    response, _, _ = await chat(["a"], lambda ctx: ModelResponse(), conversation=conversation)
    assert response.text == ""
    assert [m.role for m in conversation.messages] == ["user"]


async def test_a_rewritten_answer_with_calls_is_shown_as_stored() -> None:
    agent = Agent(ScriptedModel(["a", call("look")], "ok"), tools=make_tools([]))
    agent.add_hook("onResponse", first_step(lambda r: r.replace(text="b")))
    events = await collect(agent.chat_stream("hi"))
    told = [
        e.text if isinstance(e, TextDelta) else "R" if isinstance(e, ResponseReset) else "="
        for e in events
        if isinstance(e, (TextDelta, ResponseReset))
        or (isinstance(e, MessageAdded) and e.message.role == "assistant")
    ]
    assert told == ["a", "R", "b", "=", "ok", "="]


# ── a throw ─────────────────────────────────────────────────────────────────────────────────


async def test_a_throw_in_onResponse_ends_the_chat_and_runs_no_call() -> None:
    error = Boom()
    out: list[str] = []
    ran: list[Any] = []
    conversation = Conversation()

    def boom(ctx: Any) -> None:
        raise error

    agent = Agent(ScriptedModel(["a", call("look")]), tools=make_tools(ran))
    agent.add_hook("onResponse", boom)
    agent.add_hook("onResponse", lambda ctx: out.append("later"))
    agent.add_hook("onChatError", lambda ctx: out.append("onChatError"))
    with pytest.raises(Boom) as caught:
        await agent.chat("hi", conversation=conversation)
    assert caught.value is error
    assert (out, ran) == (["onChatError"], [])
    check_history(conversation.messages)


async def test_after_an_abort_in_onResponse_no_later_hook_of_it_runs() -> None:
    out: list[str] = []
    agent = Agent(ScriptedModel("a"))

    def abort(ctx: Any) -> None:
        out.append(f"aborted {ctx.run.abort('enough')}")

    agent.add_hook("onResponse", abort)
    agent.add_hook("onResponse", lambda ctx: out.append("later"))
    with pytest.raises(ChatAbortedError):
        await agent.chat("hi")
    assert out == ["aborted True"]


async def test_blank_reasoning_that_a_hook_gives_is_not_shown() -> None:
    agent = Agent(ScriptedModel("first"))
    parts = (Reasoning(" \n"), Text("changed"))
    agent.add_hook("onResponse", lambda ctx: ctx.response.replace(parts=parts))
    events = await collect(agent.chat_stream("hi"))
    assert [event.part for event in events if isinstance(event, PartEnd)] == ["text", "text"]
    assert not [event for event in events if isinstance(event, ReasoningDelta)]
