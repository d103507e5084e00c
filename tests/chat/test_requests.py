"""What the model is asked: preRequest, aroundRequest, and requests built anew each step."""

import asyncio
import tracemalloc
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import pytest
from tests._event_grammar import check_events
from tests._tool_chats import Clock

from hookline import (
    Agent,
    AssistantMessage,
    Conversation,
    History,
    Limits,
    Message,
    ModelRequest,
    ModelResponse,
    Run,
    Scope,
    Settings,
    Text,
    Usage,
    UserMessage,
    tool,
)
from hookline.errors import HistoryError, HookError, HookReturnError, ModelError, UsageError
from hookline.events import (
    MessageAdded,
    PartEnd,
    ReasoningDelta,
    ResponseReset,
    TextDelta,
    ToolCallDelta,
)
from hookline.models import Finish, TextChunk
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


def texts(messages: Sequence[Message]) -> list[str]:
    return [message.text for message in messages]


def shown(events: list[Any]) -> list[Any]:
    """What a reader is shown, in order: text, R for a reset, a tuple for a piece of a call."""
    out: list[Any] = []
    for event in events:
        match event:
            case TextDelta() | ReasoningDelta():
                out.append(event.text)
            case ResponseReset():
                out.append("R")
            case ToolCallDelta():
                out.append((event.call_id, event.name))
            case MessageAdded(message=AssistantMessage()):
                out.append("=")
    return out


async def again(ctx: Any, proceed: Any) -> Any:
    """A wrapper that tries a second time."""
    try:
        return await proceed()
    except Boom:
        return await proceed()


# ── built anew each step ────────────────────────────────────────────────────────────────────


async def test_each_request_is_built_from_the_history_so_far() -> None:
    model = ScriptedModel(["Let me see.", call("look", q="x", call_id="c")], "It is x.")
    await Agent(model, tools=[look]).chat("hi")
    assert [texts(request.messages) for request in model.requests] == [
        ["hi"],
        ["hi", "Let me see.", "found x"],
    ]


async def test_a_request_begins_with_the_messages_of_the_conversation() -> None:
    conversation = Conversation(
        [UserMessage(parts=(Text("a"),)), AssistantMessage(parts=(Text("b"),))]
    )
    model = ScriptedModel("ok")
    await Agent(model).chat("c", conversation=conversation)
    assert texts(model.last_request.messages) == ["a", "b", "c"]


async def test_a_request_offers_the_tools_of_the_scopes_that_are_on_now() -> None:
    on = {"other": False}

    @tool
    async def switch() -> str:
        on["other"] = not on["other"]
        return "switched"

    model = ScriptedModel([call("switch")], [call("switch")], "ok")
    agent = Agent(model, tools=[switch])
    agent.scopes.register(Scope("more", tools=[other], enabled=lambda: on["other"]))
    await agent.chat("hi")
    assert [[t.name for t in r.tools] for r in model.requests] == [
        ["switch"],
        ["switch", "other"],
        ["switch"],
    ]


async def test_a_tool_that_preChat_left_in_and_that_was_switched_off_since_is_not_offered() -> None:
    """Built anew from the scopes enabled now *and* preChat's request."""
    on = {"other": True}

    @tool
    async def switch() -> None:
        on["other"] = False

    model = ScriptedModel([call("switch")], "ok")
    agent = Agent(model, tools=[switch, look])
    agent.scopes.register(Scope("more", tools=[other], enabled=lambda: on["other"]))
    agent.add_hook("preChat", lambda ctx: ctx.request.replace(tools=(switch, other)))
    await agent.chat("hi")
    assert [[t.name for t in r.tools] for r in model.requests] == [["switch", "other"], ["switch"]]


async def test_an_edit_of_preRequest_lasts_one_call() -> None:
    model = ScriptedModel([call("look")], "ok")
    agent = Agent(model, system="be kind", tools=[look, other])

    def hook(ctx: Any) -> Any:
        if ctx.iteration == 0:
            return ctx.request.replace(
                system="be brief",
                tools=(look,),
                settings=Settings(seed=1),
                messages=(UserMessage(parts=(Text("other words"),)),),
            )
        return None

    agent.add_hook("preRequest", hook)
    response = await agent.chat("hi")
    first, second = model.requests
    assert (first.system, first.tools, first.settings.seed) == ("be brief", (look,), 1)
    assert texts(first.messages) == ["other words"]
    assert (second.system, second.tools, second.settings.seed) == ("be kind", (look, other), None)
    assert texts(second.messages) == ["hi", "", "found "]
    assert texts(response.messages) == ["hi", "", "found ", "ok"]  # never stored


async def test_preRequest_is_a_chain() -> None:
    model = ScriptedModel("ok")
    agent = Agent(model, system="a")
    agent.add_hook("preRequest", lambda ctx: ctx.request.replace(system=ctx.request.system + "b"))
    agent.add_hook("preRequest", lambda ctx: None)
    agent.add_hook("preRequest", lambda ctx: ctx.request.replace(system=ctx.request.system + "c"))
    await agent.chat("hi")
    assert model.last_request.system == "abc"


async def test_wrapper_model_and_onResponse_get_the_request_that_preRequest_left() -> None:
    seen: list[Any] = []
    model = ScriptedModel("ok")
    agent = Agent(model)
    agent.add_hook("preRequest", lambda ctx: ctx.request.replace(system="mine"))

    async def around(ctx: Any, proceed: Any) -> Any:
        seen.append(ctx.request.system)
        return await proceed()

    agent.add_hook("aroundRequest", around)

    def on_response(ctx: Any) -> None:
        seen.append(ctx.request.system)

    agent.add_hook("onResponse", on_response)
    await agent.chat("hi")
    assert [*seen, model.last_request.system] == ["mine"] * 3


async def test_an_edit_of_preRequest_works_on_top_of_what_preChat_left() -> None:
    model = ScriptedModel([call("look")], "ok")
    agent = Agent(model, system="a", tools=[look])
    agent.add_hook("preChat", lambda ctx: ctx.request.replace(system=ctx.request.system + "b"))
    agent.add_hook("preRequest", lambda ctx: ctx.request.replace(system=ctx.request.system + "c"))
    await agent.chat("hi")
    assert [request.system for request in model.requests] == ["abc", "abc"]


@pytest.mark.parametrize(
    "value",
    [
        pytest.param("text", id="str"),
        pytest.param(False, id="bool"),
        pytest.param(("a", "b"), id="tuple"),
        pytest.param(UserMessage(parts=(Text("x"),)), id="message"),
    ],
)
async def test_any_other_type_from_preRequest_is_a_HookReturnError(value: Any) -> None:
    def my_hook(ctx: Any) -> Any:
        return value

    model = ScriptedModel()
    agent = Agent(model)
    agent.add_hook("preRequest", my_hook, name="my_hook")
    with pytest.raises(HookReturnError) as caught:
        await agent.chat("hi")
    words = ("my_hook", "preRequest", type(value).__name__, "ModelRequest", "ModelResponse", "Stop")
    assert [word for word in words if word not in str(caught.value)] == []


async def test_two_tools_of_one_name_in_a_request_are_refused() -> None:
    model = ScriptedModel()
    agent = Agent(model, tools=[look])
    agent.add_hook("preRequest", lambda ctx: ctx.request.replace(tools=(look, look)))
    with pytest.raises(HookReturnError, match="different names"):
        await agent.chat("hi")
    assert model.requests == []


async def test_a_tool_that_a_hook_puts_into_the_request_can_be_called() -> None:
    model = ScriptedModel([call("other")], "ok")
    agent = Agent(model)
    agent.add_hook("preRequest", lambda ctx: ctx.request.replace(tools=(other,)))
    response = await agent.chat("hi")
    assert texts(response.messages) == ["hi", "", "other", "ok"]


# ── an answer in the model's place ──────────────────────────────────────────────────────────


async def test_a_ModelResponse_from_preRequest_ends_the_chain_and_skips_model_and_wrapper() -> None:
    out: list[str] = []
    model = ScriptedModel()
    agent = Agent(model)
    agent.add_hook("preRequest", lambda ctx: ModelResponse.of("cached"))
    agent.add_hook("preRequest", lambda ctx: out.append("a later preRequest"))

    async def around(ctx: Any, proceed: Any) -> Any:
        out.append("aroundRequest")
        return await proceed()

    agent.add_hook("aroundRequest", around)
    response = await agent.chat("hi")
    assert (response.text, response.stop_reason, out) == ("cached", None, [])
    assert model.requests == []


async def test_a_short_circuited_response_passes_onResponse_with_the_edited_request() -> None:
    seen: list[Any] = []
    agent = Agent(ScriptedModel(), system="a")
    agent.add_hook("preRequest", lambda ctx: ctx.request.replace(system="edited"))
    agent.add_hook("preRequest", lambda ctx: ModelResponse.of("cached"))

    def on_response(ctx: Any) -> None:
        seen.append((ctx.request.system, ctx.response.text))

    agent.add_hook("onResponse", on_response)
    await agent.chat("hi")
    assert seen == [("edited", "cached")]


async def test_a_short_circuited_response_is_streamed_one_delta_per_part() -> None:
    agent = Agent(ScriptedModel("ok"), tools=[look])

    def hook(ctx: Any) -> Any:
        if ctx.iteration == 0:
            made = call("look", q="x", call_id="c")
            return ModelResponse.of("a long answer", reasoning="hm", tool_calls=[made])
        return None

    agent.add_hook("preRequest", hook)
    events = await collect(agent.chat_stream("hi"))
    assert shown(events) == ["hm", "a long answer", ("c", "look"), "=", "ok", "="]
    assert [e.part for e in events if isinstance(e, PartEnd)] == ["reasoning", "text", "text"]


async def test_a_short_circuited_response_passes_onDelta() -> None:
    agent = Agent(ScriptedModel())
    agent.add_hook("preRequest", lambda ctx: ModelResponse.of("a secret"))

    def redact(ctx: Any) -> Any:
        text = getattr(ctx.delta, "text", "")
        return ctx.delta.replace(text=text.replace("secret", "***")) if text else None

    agent.add_hook("onDelta", redact)
    events = await collect(agent.chat_stream("hi"))
    assert shown(events) == ["a ***", "="]
    assert events[-1].response.text == "a ***"


async def test_calls_of_a_short_circuited_response_are_run() -> None:
    model = ScriptedModel("ok")
    agent = Agent(model, tools=[look])

    def hook(ctx: Any) -> Any:
        return ModelResponse.of(tool_calls=[call("look", q="x")]) if ctx.iteration == 0 else None

    agent.add_hook("preRequest", hook)
    await agent.chat("hi")
    assert texts(model.last_request.messages) == ["hi", "", "found x"]
    (made,) = model.last_request.messages[1].tool_calls  # type: ignore[union-attr]
    assert made.id  # it came without one


async def test_a_short_circuited_response_is_a_step_like_any_other() -> None:
    """StepStarted, onStep, StepFinished; and it counts towards Limits.steps."""
    out: list[str] = []
    agent = Agent(ScriptedModel())
    agent.add_hook("preRequest", lambda ctx: ModelResponse.of("cached"))
    agent.add_hook("onStep", lambda ctx: out.append(f"onStep {ctx.response.text}"))
    events = [type(e).__name__ for e in await collect(agent.chat_stream("hi"))]
    assert out == ["onStep cached"]
    assert (events.count("StepStarted"), events.count("StepFinished")) == (1, 1)


# ── aroundRequest ───────────────────────────────────────────────────────────────────────────


async def test_the_first_aroundRequest_in_order_is_the_outermost() -> None:
    out: list[str] = []

    def wrapper(name: str) -> Any:
        async def around(ctx: Any, proceed: Any) -> Any:
            out.append(f"{name} >")
            response = await proceed()
            out.append(f"{name} < {response.text}")
            return response

        return around

    agent = Agent(ScriptedModel("ok"))
    agent.add_hook("aroundRequest", wrapper("b"))
    agent.add_hook("aroundRequest", wrapper("a"), priority=1)
    await agent.chat("hi")
    assert out == ["a >", "b >", "b < ok", "a < ok"]


async def test_proceed_with_another_request_is_what_inner_wrappers_and_the_model_get() -> None:
    seen: list[Any] = []
    model = ScriptedModel("ok")
    agent = Agent(model)

    async def outer(ctx: Any, proceed: Any) -> Any:
        return await proceed(ctx.request.replace(system="changed"))

    async def inner(ctx: Any, proceed: Any) -> Any:
        seen.append(ctx.request.system)
        return await proceed()

    agent.add_hook("aroundRequest", outer)
    agent.add_hook("aroundRequest", inner)
    await agent.chat("hi")
    assert (seen, model.last_request.system) == (["changed"], "changed")


async def test_proceed_gives_the_answer_as_onDelta_left_it() -> None:
    """What `onDelta` returns is what is streamed, stored and traced."""
    seen: list[str] = []
    agent = Agent(ScriptedModel("secret"))

    async def around(ctx: Any, proceed: Any) -> Any:
        response = await proceed()
        seen.append(response.text)
        return response

    agent.add_hook("aroundRequest", around)
    agent.add_hook(
        "onDelta", lambda ctx: ctx.delta.replace(text="***") if hasattr(ctx.delta, "text") else None
    )
    await agent.chat("hi")
    assert seen == ["***"]


async def test_a_wrapper_that_does_not_proceed_answers_in_the_models_place() -> None:
    model = ScriptedModel()
    agent = Agent(model)

    async def cache(ctx: Any, proceed: Any) -> Any:
        return ModelResponse.of("cached", reasoning="hm")

    agent.add_hook("aroundRequest", cache)
    events = await collect(agent.chat_stream("hi"))
    assert shown(events) == ["hm", "cached", "="]
    assert events[-1].response.text == "cached"
    assert model.requests == []


async def test_a_wrapper_that_changes_the_answer_takes_back_what_was_shown() -> None:
    agent = Agent(ScriptedModel(Turn("hel", "lo")))

    async def shout(ctx: Any, proceed: Any) -> Any:
        response = await proceed()
        return response.replace(text=response.text.upper())

    agent.add_hook("aroundRequest", shout)
    events = await collect(agent.chat_stream("hi"))
    assert shown(events) == ["hel", "lo", "R", "HELLO", "="]
    assert events[-1].response.text == "HELLO"


async def test_a_wrapper_that_falls_back_to_its_first_answer_shows_it_again() -> None:
    """The second attempt has taken the first answer back, and was cut off."""
    turns = Turn("one"), Turn("t", "wo", fail=ModelError("broken off"), fail_after=1)
    agent = Agent(ScriptedModel(*turns))

    async def twice(ctx: Any, proceed: Any) -> Any:
        first = await proceed()
        with suppress(ModelError):
            return await proceed()
        return first

    agent.add_hook("aroundRequest", twice)
    events = await collect(agent.chat_stream("hi"))
    check_events(events)
    assert shown(events) == ["one", "R", "t", "R", "one", "="]
    assert events[-1].response.text == "one"


async def test_a_wrapper_that_changes_only_usage_or_meta_takes_nothing_back() -> None:
    agent = Agent(ScriptedModel("hello"))

    async def mark(ctx: Any, proceed: Any) -> Any:
        return (await proceed()).replace(meta={"seen": True})

    agent.add_hook("aroundRequest", mark)
    events = await collect(agent.chat_stream("hi"))
    assert shown(events) == ["hello", "="]
    assert events[-1].response.messages[-1].meta == {"seen": True}


async def test_what_a_wrapper_writes_into_meta_is_kept_without_lone_surrogates() -> None:
    agent = Agent(ScriptedModel("hello"))

    async def mark(ctx: Any, proceed: Any) -> Any:
        return (await proceed()).replace(meta={"seen": "by \ud800"})

    agent.add_hook("aroundRequest", mark)
    response = await agent.chat("hi")
    assert response.messages[-1].meta == {"seen": "by \ufffd"}


async def test_the_models_exception_reaches_the_wrapper_and_the_caller_as_it_is() -> None:
    error = Boom()
    seen: list[BaseException] = []
    agent = Agent(ScriptedModel(error))

    async def around(ctx: Any, proceed: Any) -> Any:
        try:
            return await proceed()
        except Boom as exc:
            seen.append(exc)
            raise

    agent.add_hook("aroundRequest", around)
    with pytest.raises(Boom) as caught:
        await agent.chat("hi")
    assert seen == [error]
    assert caught.value is error
    assert getattr(error, "__notes__", []) == []  # what it wraps failed, not the hook


async def test_what_a_wrapper_raises_itself_ends_the_chat_with_a_note() -> None:
    agent = Agent(ScriptedModel("ok"))

    async def breaks(ctx: Any, proceed: Any) -> Any:
        await proceed()
        raise Boom

    agent.add_hook("aroundRequest", breaks, name="breaks")
    with pytest.raises(Boom) as caught:
        await agent.chat("hi")
    (note,) = caught.value.__notes__
    assert "breaks" in note
    assert "aroundRequest" in note


@pytest.mark.parametrize("value", [pytest.param(None, id="None"), pytest.param("text", id="str")])
async def test_a_wrapper_that_returns_no_ModelResponse_is_a_HookReturnError(value: Any) -> None:
    agent = Agent(ScriptedModel("ok"))

    async def around(ctx: Any, proceed: Any) -> Any:
        await proceed()
        return value

    agent.add_hook("aroundRequest", around)
    with pytest.raises(HookReturnError, match="aroundRequest"):
        await agent.chat("hi")


async def test_proceed_of_aroundRequest_takes_a_ModelRequest_only() -> None:
    agent = Agent(ScriptedModel())

    async def around(ctx: Any, proceed: Any) -> Any:
        return await proceed("text")

    agent.add_hook("aroundRequest", around)
    with pytest.raises(HookReturnError, match="ModelRequest"):
        await agent.chat("hi")


# ── retry and fallback ──────────────────────────────────────────────────────────────────────


async def test_a_retry_before_anything_was_shown_needs_no_reset() -> None:
    agent = Agent(ScriptedModel(Boom(), "ok"))
    agent.add_hook("aroundRequest", again)
    assert shown(await collect(agent.chat_stream("hi"))) == ["ok", "="]


async def test_a_retry_after_text_was_shown_publishes_ResponseReset() -> None:
    """I9: nothing is retried after its effect became visible, unless the stream says so."""
    agent = Agent(ScriptedModel(Turn("a", "b", fail=Boom()), "ok"))
    agent.add_hook("aroundRequest", again)
    events = await collect(agent.chat_stream("hi"))
    assert shown(events) == ["a", "b", "R", "ok", "="]
    assert texts(events[-1].response.messages) == ["hi", "ok"]


async def test_a_retry_after_reasoning_was_shown_publishes_ResponseReset() -> None:
    agent = Agent(ScriptedModel(Turn(reasoning="hm", fail=Boom()), "ok"))
    agent.add_hook("aroundRequest", again)
    assert shown(await collect(agent.chat_stream("hi"))) == ["hm", "R", "ok", "="]


async def test_a_retry_after_a_piece_of_a_call_was_shown_publishes_ResponseReset() -> None:
    """After *a delta* was shown: a call that never was must not stay on the screen."""
    agent = Agent(ScriptedModel(Turn(call("look", call_id="c"), fail=Boom()), "ok"), tools=[look])
    agent.add_hook("aroundRequest", again)
    assert shown(await collect(agent.chat_stream("hi"))) == [("c", "look"), "R", "ok", "="]


async def test_a_retry_after_all_deltas_were_dropped_needs_no_reset() -> None:
    agent = Agent(ScriptedModel(Turn("noise", fail=Boom()), "ok"))
    agent.add_hook("aroundRequest", again)
    agent.add_hook("onDelta", lambda ctx: () if getattr(ctx.delta, "text", "") == "noise" else None)
    assert shown(await collect(agent.chat_stream("hi"))) == ["ok", "="]


async def test_a_retry_after_a_hook_that_dropped_the_first_delta_has_gone() -> None:
    agent = Agent(ScriptedModel(Turn("a", "b", "c", fail=Boom()), "ok"))
    agent.add_hook("aroundRequest", again)

    def drop_one(ctx: Any) -> Any:
        dispose()
        return ()

    dispose = agent.add_hook("onDelta", drop_one)
    assert shown(await collect(agent.chat_stream("hi"))) == ["b", "c", "R", "ok", "="]


async def test_with_release_response_a_retry_needs_no_reset() -> None:
    """Nothing was shown."""
    agent = Agent(ScriptedModel(Turn("a", "b", fail=Boom()), "ok"))
    agent.add_hook("aroundRequest", again)
    assert shown(await collect(agent.chat_stream("hi", release="response"))) == ["ok", "="]


async def test_a_retry_resets_its_own_step_alone() -> None:
    model = ScriptedModel(
        ["one", call("look", call_id="c")], Turn("a", fail=Boom()), Turn("b", fail=Boom()), "ok"
    )
    agent = Agent(model, tools=[look])

    async def thrice(ctx: Any, proceed: Any) -> Any:
        for _ in range(2):
            try:
                return await proceed()
            except Boom:
                pass
        return await proceed()

    agent.add_hook("aroundRequest", thrice)
    events = await collect(agent.chat_stream("hi"))
    assert shown(events) == ["one", ("c", "look"), "=", "a", "R", "b", "R", "ok", "="]
    assert [e.iteration for e in events if isinstance(e, ResponseReset)] == [1, 1]


async def test_a_retried_answer_keeps_the_ids_of_its_calls() -> None:
    """The ids of an answer that was taken back are free again."""
    turn = Turn(call("look", call_id="c"), fail=Boom())
    model = ScriptedModel(turn, [call("look", call_id="c")], "ok")
    agent = Agent(model, tools=[look])
    agent.add_hook("aroundRequest", again)
    response = await agent.chat("hi")
    assert [m.call_id for m in response.messages if m.role == "tool"] == ["c"]


async def test_a_wrapper_may_take_the_better_of_two_answers() -> None:
    agent = Agent(ScriptedModel("first", "second"))

    async def best(ctx: Any, proceed: Any) -> Any:
        first = await proceed()
        await proceed()
        return first

    agent.add_hook("aroundRequest", best)
    events = await collect(agent.chat_stream("hi"))
    assert shown(events) == ["first", "R", "second", "R", "first", "="]
    assert events[-1].response.text == "first"


async def test_a_fallback_is_another_model_in_the_request() -> None:
    primary, spare = ScriptedModel(Boom(), name="primary"), ScriptedModel("ok", name="spare")
    agent = Agent(primary)

    async def fallback(ctx: Any, proceed: Any) -> Any:
        try:
            return await proceed()
        except Boom:
            return await proceed(ctx.request.replace(model=spare))

    agent.add_hook("aroundRequest", fallback)
    response = await agent.chat("hi")
    assert response.text == "ok"
    assert response.messages[-1].model == "spare"  # type: ignore[union-attr]
    assert (primary.calls, spare.calls) == (1, 1)


async def test_a_retry_inside_a_fallback() -> None:
    primary = ScriptedModel(Turn("a", fail=Boom()), Turn("b", fail=Boom()))
    spare = ScriptedModel("ok")
    agent = Agent(primary)

    async def fallback(ctx: Any, proceed: Any) -> Any:
        try:
            return await proceed()
        except Boom:
            return await proceed(ctx.request.replace(model=spare))

    agent.add_hook("aroundRequest", fallback, priority=1)
    agent.add_hook("aroundRequest", again)
    events = await collect(agent.chat_stream("hi"))
    assert shown(events) == ["a", "R", "b", "R", "ok", "="]


async def test_a_wrapper_may_answer_after_the_model_has_failed() -> None:
    agent = Agent(ScriptedModel(Turn("a", fail=Boom())))

    async def apologise(ctx: Any, proceed: Any) -> Any:
        try:
            return await proceed()
        except Boom:
            return ModelResponse.of("sorry")

    agent.add_hook("aroundRequest", apologise)
    events = await collect(agent.chat_stream("hi"))
    assert shown(events) == ["a", "R", "sorry", "="]


async def test_every_attempt_is_counted_in_usage() -> None:
    one, two = Usage(input_tokens=1, output_tokens=2), Usage(input_tokens=10, output_tokens=20)
    agent = Agent(ScriptedModel(Turn("a", usage=one), Turn("b", usage=two)))

    async def twice(ctx: Any, proceed: Any) -> Any:
        await proceed()
        return await proceed()

    agent.add_hook("aroundRequest", twice)
    assert (await agent.chat("hi")).usage == one + two


async def test_without_a_retry_wrapper_nothing_is_retried() -> None:
    model = ScriptedModel(Boom(), "never")
    with pytest.raises(Boom):
        await Agent(model).chat("hi")
    assert model.calls == 1


# ── the model of a request ──────────────────────────────────────────────────────────────────


async def test_a_request_names_the_agents_model() -> None:
    model = ScriptedModel("ok")
    await Agent(model).chat("hi")
    assert model.last_request.model is model


async def test_a_preRequest_hook_chooses_the_model_for_one_call() -> None:
    big, small = ScriptedModel("ok", name="big"), ScriptedModel([call("look")], name="small")
    agent = Agent(big, tools=[look])
    agent.add_hook(
        "preRequest", lambda ctx: ctx.request.replace(model=small) if ctx.iteration == 0 else None
    )
    await agent.chat("hi")
    assert (small.calls, big.calls) == (1, 1)


async def test_proceed_calls_the_model_that_preRequest_chose() -> None:
    small = ScriptedModel("ok")
    agent = Agent(ScriptedModel())
    agent.add_hook("preRequest", lambda ctx: ctx.request.replace(model=small))

    async def around(ctx: Any, proceed: Any) -> Any:
        assert ctx.request.model is small
        return await proceed()

    agent.add_hook("aroundRequest", around)
    assert (await agent.chat("hi")).text == "ok"


# ── system ──────────────────────────────────────────────────────────────────────────────────


def sync_system(run: Run[Any]) -> str:
    return f"step {run.iteration} for {run.deps}"


async def async_system(run: Run[Any]) -> str:
    await asyncio.sleep(0)
    return f"step {run.iteration} for {run.deps}"


@pytest.mark.parametrize("system", [sync_system, async_system], ids=["sync", "async"])
async def test_a_system_function_is_asked_each_step_with_the_run(system: Any) -> None:
    model = ScriptedModel([call("look")], "ok")
    await Agent(model, system=system, tools=[look]).chat("hi", deps="ann")
    assert [r.system for r in model.requests] == ["step 0 for ann", "step 1 for ann"]


async def test_a_system_function_is_asked_once_a_step() -> None:
    asked: list[int] = []

    def system(run: Run[Any]) -> str:
        asked.append(run.iteration)
        return "be kind"

    model = ScriptedModel([call("look")], "ok")
    await Agent(model, system=system, tools=[look]).chat("hi")
    assert asked == [0, 1]


@pytest.mark.parametrize(
    "system",
    [None, lambda run: None, "", lambda run: ""],
    ids=["None", "gives-None", "empty", "gives-empty"],
)
async def test_no_system_text_is_None_in_the_request(system: Any) -> None:
    model = ScriptedModel("ok")
    await Agent(model, system=system).chat("hi")
    assert model.last_request.system is None


async def test_preChat_sees_the_system_text_and_the_function_is_asked_on_if_it_leaves_it() -> None:
    model = ScriptedModel([call("look")], "ok")
    seen: list[str] = []
    agent = Agent(model, system=sync_system, tools=[look])

    def hook(ctx: Any) -> Any:
        seen.append(ctx.request.system)
        return ctx.request.replace(settings=Settings(seed=1))

    agent.add_hook("preChat", hook)
    await agent.chat("hi", deps="ann")
    assert seen == ["step 0 for ann"]
    assert [r.system for r in model.requests] == ["step 0 for ann", "step 1 for ann"]


async def test_a_system_function_that_raises_ends_the_chat() -> None:
    error = Boom()

    def system(run: Run[Any]) -> str:
        raise error

    with pytest.raises(Boom) as caught:
        await Agent(ScriptedModel(), system=system).chat("hi")
    assert caught.value is error


async def _cancelled_by_itself(run: Run[Any]) -> str:
    task = asyncio.ensure_future(asyncio.sleep(0))
    task.cancel()
    await task
    return "never"


@pytest.mark.parametrize("preChat", [False, True], ids=["step", "preChat"])
async def test_a_system_function_s_own_CancelledError_is_its_failure(preChat: bool) -> None:
    """Nobody has cancelled: the chat has failed and was not aborted."""
    agent = Agent(ScriptedModel(), system=_cancelled_by_itself)
    out: list[str] = []
    agent.add_hook("onChatError", lambda ctx: out.append("error"))
    agent.add_hook("onChatAbort", lambda ctx: out.append("aborted"))
    if preChat:
        agent.add_hook("preChat", lambda ctx: None)
    with pytest.raises(UsageError, match="system=") as caught:
        await agent.chat("hi")
    assert isinstance(caught.value.__cause__, asyncio.CancelledError)
    assert out == ["error"]


async def test_a_system_function_that_hangs_is_cancelled_with_the_chat(
    caplog: pytest.LogCaptureFixture,
) -> None:
    began = asyncio.Event()

    async def system(run: Run[Any]) -> str:
        began.set()
        await asyncio.Event().wait()
        return "never"

    out: list[str] = []
    agent = Agent(ScriptedModel(), system=system)
    agent.add_hook("onChatAbort", lambda ctx: out.append(str(ctx.reason)))
    task = asyncio.create_task(agent.chat("hi"))
    await began.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert out == ["cancelled"]
    assert caplog.text == ""


@pytest.mark.parametrize("given", [5, b"be kind", ["be kind"]], ids=repr)
async def test_a_system_function_that_gives_no_text_is_refused(given: Any) -> None:
    with pytest.raises(UsageError, match=f"returned a {type(given).__name__}"):
        await Agent(ScriptedModel(), system=lambda run: given).chat("hi")


async def test_sections_of_scopes_follow_the_system_text() -> None:
    model = ScriptedModel("ok")
    agent = Agent(model, system="be kind")
    agent.scopes.register(Scope("page", context=lambda: "the user is on page 3"))
    await agent.chat("hi")
    assert model.last_request.system is not None
    assert model.last_request.system.startswith("be kind\n\n")
    assert "the user is on page 3" in model.last_request.system


# ── settings ────────────────────────────────────────────────────────────────────────────────


async def test_settings_of_the_agent_of_the_chat_and_of_hooks() -> None:
    model = ScriptedModel("a", "b", "c", "d")
    agent = Agent(model, settings=Settings(seed=1))
    await agent.chat("hi")
    await agent.chat("hi", settings=Settings(seed=2))
    with agent.add_hook("preChat", lambda ctx: ctx.request.replace(settings=Settings(seed=3))):
        await agent.chat("hi", settings=Settings(seed=2))
        with agent.add_hook(
            "preRequest", lambda ctx: ctx.request.replace(settings=Settings(seed=4))
        ):
            await agent.chat("hi")
    assert [request.settings.seed for request in model.requests] == [1, 2, 3, 4]


async def test_the_settings_of_one_chat_do_not_reach_the_next() -> None:
    model = ScriptedModel("a", "b")
    agent = Agent(model)
    await agent.chat("hi", settings=Settings(temperature=0.1))
    await agent.chat("hi")
    assert model.last_request.settings == Settings()


# ── messages of a request ───────────────────────────────────────────────────────────────────


async def test_the_messages_of_a_request_stay_what_they_were() -> None:
    """A request that a hook or a model has kept does not grow with the history."""
    conversation = Conversation()
    model = ScriptedModel([call("look")], "ok", "again")
    agent = Agent(model, tools=[look])
    await agent.chat("hi", conversation=conversation)
    await agent.chat("more", conversation=conversation)
    assert [len(request.messages) for request in model.requests] == [1, 3, 5]
    conversation.reset()
    assert [texts(request.messages)[-1] for request in model.requests] == ["hi", "found ", "more"]


async def test_the_messages_of_a_request_cannot_be_changed() -> None:
    model = ScriptedModel("ok")
    await Agent(model).chat("hi")
    messages: Any = model.last_request.messages
    with pytest.raises(TypeError):
        messages[0] = None
    with pytest.raises(TypeError):
        del messages[0]
    for name in ("append", "insert", "clear", "pop", "extend"):
        assert not hasattr(messages, name)


async def test_the_messages_of_a_request_are_a_sequence() -> None:
    said = [UserMessage(id=str(n), parts=(Text(str(n)),)) for n in range(4)]
    model = ScriptedModel("ok")
    await Agent(model).chat("4", conversation=Conversation(said))
    messages = model.last_request.messages
    assert len(messages) == 5
    assert texts(messages) == ["0", "1", "2", "3", "4"]
    assert texts(list(reversed(messages))) == ["4", "3", "2", "1", "0"]
    assert (messages[1], messages[-1].text) == (said[1], "4")
    assert messages[1:3] == tuple(said[1:3])
    assert messages[-5:-3] == tuple(said[:2])
    assert said[2] in messages
    assert messages.index(said[3]) == 3
    assert messages == tuple(messages)
    assert messages != tuple(said)
    with pytest.raises(IndexError):
        messages[5]
    with pytest.raises(IndexError):
        messages[-6]


async def test_the_messages_of_a_request_cost_the_same_however_many_there_are() -> None:
    """Not copied for each request: 40 requests over 20,000 messages, all of them kept."""
    steps, length = 40, 20_000
    said = [UserMessage(parts=(Text("x"),)) for _ in range(length)]
    conversation = Conversation(said)
    kept: list[Sequence[Message]] = []
    model = ScriptedModel(*[[call("look")] for _ in range(steps)], "ok", strict=False)
    agent = Agent(model, tools=[look], limits=Limits(steps=steps + 1))
    agent.add_hook("preRequest", lambda ctx: kept.append(ctx.request.messages))
    agent.add_hook("onStep", lambda ctx: kept.append(ctx.run.history))
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        await agent.chat("hi", conversation=conversation)
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(kept) == 2 * (steps + 1)
    assert all(isinstance(messages, History) for messages in kept)
    one_copy = 8 * length
    # One for the list that grows, and one to spare for the messages of this chat.
    assert after - before < 4 * one_copy


async def test_a_hook_may_return_its_own_messages_and_history_stays_as_it_was() -> None:
    conversation = Conversation(
        [UserMessage(parts=(Text("old"),)), AssistantMessage(parts=(Text("answer"),))]
    )
    model = ScriptedModel("ok")
    agent = Agent(model)
    agent.add_hook(
        "preRequest", lambda ctx: ctx.request.replace(messages=ctx.request.messages[-1:])
    )
    await agent.chat("hi", conversation=conversation)
    assert texts(model.last_request.messages) == ["hi"]
    assert texts(conversation.messages) == ["old", "answer", "hi", "ok"]


@pytest.mark.parametrize("point", ["preRequest", "aroundRequest"])
async def test_messages_of_a_hook_that_are_no_valid_history_are_not_sent(point: Any) -> None:
    """I1: every request sent pairs each call with exactly one result."""
    model = ScriptedModel([call("look")], "never", strict=False)
    agent = Agent(model, tools=[look])

    def trimmed(request: ModelRequest) -> ModelRequest:
        return request.replace(messages=request.messages[-1:])

    async def around(ctx: Any, proceed: Any) -> Any:
        return await proceed(trimmed(ctx.request))

    agent.add_hook(point, around if point == "aroundRequest" else lambda c: trimmed(c.request))
    with pytest.raises((HistoryError, HookReturnError)):
        await agent.chat("hi")
    assert model.calls == 1


async def test_a_list_of_messages_that_a_hook_has_returned_is_the_hooks_no_more() -> None:
    """Every payload is immutable."""
    lists: list[list[Message]] = []
    model = ScriptedModel("ok")
    agent = Agent(model)

    def hook(ctx: Any) -> Any:
        lists.append(list(ctx.request.messages))
        return ctx.request.replace(messages=lists[0])

    agent.add_hook("preRequest", hook)
    agent.add_hook("aroundRequest", clearing(lists))
    await agent.chat("hi")
    assert texts(model.last_request.messages) == ["hi"]


async def test_a_list_of_messages_that_a_wrapper_goes_on_with_is_the_wrappers_no_more() -> None:
    """The model is given what does not change, and what a hook holds on to is another list."""
    mine: list[Message] = []
    seen: list[Any] = []

    class Reading:
        async def stream(self, request: ModelRequest) -> Any:
            seen.append(request.messages)
            mine.clear()
            yield TextChunk("ok")
            yield Finish()

    agent = Agent(Reading())

    async def around(ctx: Any, proceed: Any) -> Any:
        mine.extend(ctx.request.messages)
        return await proceed(ctx.request.replace(messages=mine))

    agent.add_hook("aroundRequest", around)
    await agent.chat("hi")
    assert texts(seen[0]) == ["hi"]


def clearing(lists: list[list[Message]]) -> Any:
    async def around(ctx: Any, proceed: Any) -> Any:
        lists[0].clear()
        return await proceed()

    return around


async def test_a_request_is_frozen() -> None:
    model = ScriptedModel("ok")
    await Agent(model).chat("hi")
    request: Any = model.last_request
    for field in ModelRequest.__struct_fields__:
        with pytest.raises(AttributeError):
            setattr(request, field, None)
    with pytest.raises(TypeError):
        request.replace(unknown=1)


async def test_proceed_is_refused_once_its_hook_has_returned() -> None:
    """A wrapper that keeps its `proceed` cannot run what it wraps when the chat has gone on."""
    kept: list[Any] = []
    agent = Agent(ScriptedModel("hello"))

    async def keeps(ctx: Any, proceed: Any) -> Any:
        kept.append(proceed)
        return await proceed()

    agent.add_hook("aroundRequest", keeps)
    await agent.chat("hi")
    with pytest.raises(HookError, match="after its hook had returned"):
        await kept[0]()


async def test_a_wrapper_that_removes_itself_and_proceeds_shows_the_answer_once() -> None:
    agent = Agent(ScriptedModel("once"))

    async def lone(ctx: Any, proceed: Any) -> Any:
        dispose()
        response = await proceed()
        assert response.timing is not None
        return response

    dispose = agent.add_hook("aroundRequest", lone)
    assert shown(await collect(agent.chat_stream("hi"))) == ["once", "="]


async def test_after_a_wrapper_has_gone_answers_are_not_timed() -> None:
    agent = Agent(ScriptedModel(call("look"), "done"), tools=[look])

    async def once(ctx: Any, proceed: Any) -> Any:
        dispose()
        return await proceed()

    dispose = agent.add_hook("aroundRequest", once)
    timings: list[Any] = []
    agent.add_hook("onResponse", lambda ctx: timings.append(ctx.response.timing))
    await agent.chat("hi")
    assert timings == [None, None]


async def test_how_long_the_first_chunk_took_is_told_of_the_first() -> None:
    clock = Clock()
    told: list[Any] = []

    class Slow:
        name = "slow"

        async def stream(self, request: ModelRequest) -> Any:
            yield TextChunk("one ")
            clock.skip(10)
            yield TextChunk("two")
            yield Finish()

    async def timed(ctx: Any, proceed: Any) -> Any:
        response = await proceed()
        told.append(response.timing)
        return response

    agent = Agent(Slow())
    agent.add_hook("aroundRequest", timed)
    await agent.chat("hi")
    (timing,) = told
    assert timing.duration - timing.first_chunk >= 10
