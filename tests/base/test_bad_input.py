"""Bad input from every side: a clear error, or a tool error to the model, and a valid history."""

import asyncio
import json
import math
from contextlib import suppress

import msgspec
import pytest
from tests._tool_chats import assert_json, goes_on, only, outcomes, result_ids, results, written

from hookline import (
    Agent,
    Approve,
    Ask,
    Continue,
    Conversation,
    Deny,
    File,
    Image,
    ModelResponse,
    Reasoning,
    Run,
    Scope,
    Stop,
    Text,
    ToolCall,
    ToolFailure,
    ToolMessage,
    ToolResult,
    UserMessage,
    read_message,
    tool,
)
from hookline.errors import (
    ChatAbortedError,
    ModelError,
    ToolArgumentsError,
    UnknownHookError,
    UsageError,
)
from hookline.events import TextDelta, ToolCallDelta, ToolCallStarted
from hookline.models import Finish, PartEndChunk, ReasoningChunk, TextChunk, ToolCallChunk
from hookline.testing import ScriptedModel, Turn, call, collect, raw_call


@tool
async def act(text: str = "", n: int = 0) -> str:
    return f"{text}{n}"


# ── arguments ───────────────────────────────────────────────────────────────────────────────


async def answered(text, name="act"):
    """What becomes of a call with this text: its outcome and what the model is told."""
    seen = []
    conversation = Conversation()
    model = ScriptedModel(raw_call(name, text, call_id="a"), "done", "next")
    agent = Agent(model, tools=[act])
    agent.add_hook("onToolCallError", lambda ctx: seen.append(ctx.error.exception))
    events = await collect(agent.chat_stream("go", conversation=conversation))
    assert events[-1].response.text == "done"
    assert_json(events)
    outcome = outcomes(events)
    ((id, _, said),) = results(conversation)
    assert id == "a"
    kept = written(conversation)["a"]
    await goes_on(agent, conversation)
    return outcome["a"], said, kept, seen


@pytest.mark.parametrize("text", ["", " ", "\n\t ", "{}", " {} "], ids=repr)
async def test_empty_arguments_count_as_an_empty_object(text):
    assert await answered(text) == ("ok", "0", {}, [])


DEEP = 100_000

bad_texts = pytest.mark.parametrize(
    "text",
    [
        pytest.param("null", id="null"),
        pytest.param("[]", id="an array"),
        pytest.param("[1, 2]", id="an array of numbers"),
        pytest.param('"text"', id="a string"),
        pytest.param("7", id="a number"),
        pytest.param("true", id="a boolean"),
        pytest.param("{", id="one bracket"),
        pytest.param('{"text": "Hel', id="cut in a string"),
        pytest.param('{"text": "x", "n"', id="cut after a key"),
        pytest.param('{"text": "x", ', id="cut after a comma"),
        pytest.param('{"text": "x"', id="cut before the end"),
        pytest.param('{"n": 1, "n": 2}', id="a duplicate key"),
        pytest.param('{"text": {"a": 1, "a": 1}}', id="a duplicate key inside"),
        pytest.param('{"n": NaN}', id="NaN"),
        pytest.param('{"n": Infinity}', id="Infinity"),
        pytest.param('{"n": -Infinity}', id="-Infinity"),
        pytest.param('{"n": 1e999}', id="a number out of range"),
        pytest.param('{"n": 123456789012345678901234567890}', id="an integer out of range"),
        pytest.param('{"n": ' + "9" * 5_000 + "}", id="an integer of 5,000 digits"),
        pytest.param("[" * DEEP, id="100,000 brackets"),
        pytest.param('{"text": ' + "[" * DEEP + "]" * DEEP + "}", id="100,000 nested arrays"),
        pytest.param('{"a":' * DEEP + "1" + "}" * DEEP, id="100,000 nested objects"),
        pytest.param('{"text": "' + "x" * 7_000_000 + '"}', id="7 MB"),
        pytest.param('{"text": "a\ud800b"}', id="a lone surrogate"),
        pytest.param('{"text": "\\ud800"}', id="an escaped lone surrogate"),
        pytest.param('{"text": "a\0b"}', id="a raw NUL"),
        pytest.param("{} {}", id="two objects"),
        pytest.param("\ufeff{}", id="a byte order mark"),
        pytest.param("hello", id="no JSON"),
    ],
)


@bad_texts
async def test_bad_arguments_are_a_tool_error_and_history_shows_an_empty_object(text):
    outcome, said, kept, seen = await answered(text)
    assert outcome == "error"
    assert kept == {}
    assert isinstance(seen[0], ToolArgumentsError)
    assert json.loads(said)["error"]["type"] == "ToolArgumentsError"
    assert len(said) < 1_000


async def test_in_preToolCall_bad_arguments_are_empty_and_raw_holds_the_text():
    seen = []
    agent = Agent(ScriptedModel(raw_call("act", '{"n": 1, "n": 2}'), "done"), tools=[act])
    agent.add_hook("preToolCall", lambda ctx: seen.append((ctx.call.arguments, ctx.call.raw)))
    await agent.chat("go")
    assert seen == [({}, '{"n": 1, "n": 2}')]


async def test_good_arguments_have_no_raw_text():
    seen = []
    agent = Agent(ScriptedModel(raw_call("act", '{"n": 1}'), "done"), tools=[act])
    agent.add_hook("preToolCall", lambda ctx: seen.append((ctx.call.arguments, ctx.call.raw)))
    await agent.chat("go")
    assert seen == [({"n": 1}, None)]


async def test_an_escaped_NUL_in_the_arguments_reaches_the_tool():
    assert await answered('{"text": "a\\u0000b"}') == ("ok", "a\0b0", {"text": "a\0b"}, [])


async def test_arguments_that_the_models_limit_cut_off_before_they_began_never_run():
    """`finish_reason="length"`: no text at all is not `{}` then."""
    out = []

    @tool
    async def run(text: str = "") -> None:
        out.append(text)

    cut = Turn(raw_call("run", ""), finish_reason="length")
    response = await Agent(ScriptedModel(cut, "done"), tools=[run]).chat("go")
    assert [outcome for _, outcome, _ in results(response)] == ["error"]
    assert out == []


# ── call ids ────────────────────────────────────────────────────────────────────────────────


def chunks(*ids):
    """A turn that calls `act` with these ids."""
    parts = [
        ToolCallChunk(index=index, id=id, name="act", arguments=json.dumps({"n": index}))
        for index, id in enumerate(ids)
    ]
    return Turn(raw_chunks=[*parts, Finish(finish_reason="tool_calls")])


@pytest.mark.parametrize(
    "ids",
    [
        pytest.param(["a", "a"], id="twice the same"),
        pytest.param(["a", "a", "a", "a"], id="four times the same"),
        pytest.param([None, None], id="missing"),
        pytest.param(["", ""], id="empty"),
        pytest.param(["a", None, "a", ""], id="a mixture"),
        pytest.param(["a", "a_2", "a"], id="what a made-up id would be"),
    ],
)
async def test_duplicate_and_missing_call_ids_are_made_unique(ids):
    conversation = Conversation()
    agent = Agent(ScriptedModel(chunks(*ids), "done", "next"), tools=[act])
    events = await collect(agent.chat_stream("go", conversation=conversation))
    found = result_ids(conversation.messages)
    assert len(set(found)) == len(ids)
    assert all(found)
    assert [text for _, _, text in results(conversation)] == [str(n) for n in range(len(ids))]
    assert set(outcomes(events)) == set(found)
    await goes_on(agent, conversation)


async def test_call_ids_are_unique_before_anything_is_published_or_hooked():
    seen = []
    agent = Agent(ScriptedModel(chunks("a", "a"), "done"), tools=[act])
    agent.add_hook("onDelta", lambda ctx: seen.append(getattr(ctx.delta, "id", None)))
    agent.add_hook(
        "onResponse", lambda ctx: seen.extend(each.id for each in ctx.response.tool_calls)
    )
    agent.add_hook("preToolCall", lambda ctx: seen.append(ctx.call.id))
    events = await collect(agent.chat_stream("go"))
    first, second = [event.call_id for event in only(events, ToolCallDelta)]
    assert first != second
    assert [id for id in seen if id is not None] == [first, second] * 3
    assert [event.call.id for event in only(events, ToolCallStarted)] == [first, second]


async def test_an_id_of_an_earlier_step_is_made_unique_too():
    model = ScriptedModel(chunks("a"), chunks("a"), "done")
    response = await Agent(model, tools=[act]).chat("go")
    assert len(set(result_ids(response.messages))) == 2


async def test_ids_that_onResponse_writes_twice_are_made_unique():
    agent = Agent(ScriptedModel("hi", "done"), tools=[act])

    @agent.hook("onResponse")
    def calls(ctx):
        if ctx.iteration == 0:
            two = [ToolCall(id="a", name="act"), ToolCall(id="a", name="act")]
            return ModelResponse.of(tool_calls=two)
        return None

    response = await agent.chat("go")
    assert len(set(result_ids(response.messages))) == 2


async def test_ids_of_a_response_given_by_a_hook_are_made_unique():
    agent = Agent(ScriptedModel("done"), tools=[act])

    @agent.hook("preRequest")
    def answer(ctx):
        if ctx.iteration == 0:
            two = [ToolCall(id="a", name="act"), ToolCall(id="", name="act")]
            return ModelResponse.of(tool_calls=[*two, two[0]])
        return None

    response = await agent.chat("go")
    assert len(set(result_ids(response.messages))) == 3


# ── a model that breaks its protocol ────────────────────────────────────────────────────────


class Raw:
    """A model whose first stream is made by hand; it then answers "next"."""

    def __init__(self, make):
        self._make = make
        self._used = False

    def stream(self, request):
        if self._used:
            return ScriptedModel("next").stream(request)
        self._used = True
        return self._make(request)


async def fails(make, kind=ModelError):
    """The chat fails with a clear error, and the conversation takes the next turn."""
    conversation = Conversation()
    agent = Agent(Raw(make), tools=[act])
    seen = []
    agent.add_hook("onChatError", lambda ctx: seen.append(ctx.error))
    events = []
    with pytest.raises(kind) as caught:
        await collect(agent.chat_stream("go", conversation=conversation), events)
    assert seen == [caught.value]
    assert_json(events)
    await goes_on(agent, conversation)
    return caught.value, conversation


def of(*items):
    async def make(request):
        for item in items:
            yield item

    return make


async def test_a_model_that_yields_nothing_is_a_ModelError():
    error, conversation = await fails(of())
    assert "Finish" in str(error)
    assert [message.role for message in conversation.messages] == ["user", "user", "assistant"]


async def test_a_model_that_ends_without_Finish_is_a_ModelError_and_its_text_is_kept_as_partial():
    error, conversation = await fails(of(TextChunk("half an ans")))
    assert "Finish" in str(error)
    message = conversation.messages[1]
    assert (message.text, message.partial) == ("half an ans", True)


async def test_calls_of_a_stream_that_was_cut_never_run():
    out = []
    conversation = Conversation()

    @tool
    async def run() -> None:
        out.append("run")

    agent = Agent(Raw(of(ToolCallChunk(index=0, id="a", name="run", arguments="{}"))), tools=[run])
    with pytest.raises(ModelError):
        await agent.chat("go", conversation=conversation)
    assert out == []
    assert [message.role for message in conversation.messages] == ["user"]
    await goes_on(agent, conversation)


async def test_a_Finish_alone_is_an_empty_answer():
    """Blank text is absent: nothing is committed for it."""
    conversation = Conversation()
    agent = Agent(Raw(of(Finish())))
    response = await agent.chat("go", conversation=conversation)
    assert response.text == ""
    assert [message.role for message in conversation.messages] == ["user"]
    await goes_on(agent, conversation)


@pytest.mark.parametrize(
    "item",
    [
        pytest.param("text", id="a str"),
        pytest.param(None, id="None"),
        pytest.param({"text": "x"}, id="a dict"),
        pytest.param(b"bytes", id="bytes"),
        pytest.param(Text("x"), id="a part"),
        pytest.param(UserMessage(parts=()), id="a message"),
        pytest.param(ModelResponse.of("x"), id="a response"),
        pytest.param(TextChunk, id="a class"),
    ],
)
async def test_an_unknown_delta_is_a_ModelError_that_names_its_type(item):
    error, _ = await fails(of(TextChunk("one "), item, Finish()))
    assert type(item).__name__ in str(error)


@pytest.mark.parametrize(
    "chunk",
    [
        pytest.param(PartEndChunk("nonsense"), id="the end of an unknown part"),
        pytest.param(ToolCallChunk(index=0, id="a", name=7), id="a number as name"),
        pytest.param(ToolCallChunk(index=0, id=7, name="act"), id="a number as id"),
        pytest.param(ToolCallChunk(index="0", id="a", name="act"), id="a text as index"),
        pytest.param(
            ToolCallChunk(index=0, id="a", name="act", arguments={"n": 1}), id="a dict as arguments"
        ),
        pytest.param(Finish(finish_reason="nonsense"), id="an unknown finish reason"),
        pytest.param(Finish(usage="many"), id="usage that is none"),
    ],
)
async def test_a_malformed_chunk_is_a_ModelError(chunk):
    ending = [] if isinstance(chunk, Finish) else [Finish(finish_reason="tool_calls")]
    _, conversation = await fails(of(chunk, *ending))
    for message in conversation.messages:
        assert read_message(message.to_json()) == message


async def test_a_call_without_a_name_is_a_ModelError():
    await fails(of(ToolCallChunk(index=0, id="a"), Finish(finish_reason="tool_calls")))


@pytest.mark.parametrize("text", [None, 7, b"bytes"], ids=repr)
@pytest.mark.parametrize("chunk", [TextChunk, ReasoningChunk], ids=["text", "reasoning"])
async def test_a_text_that_is_no_str_leaves_a_valid_history(chunk, text):
    conversation = Conversation()
    agent = Agent(Raw(of(chunk(text), TextChunk("and more"), Finish())))
    events = []
    with suppress(Exception):
        await collect(agent.chat_stream("go", conversation=conversation), events)
    assert_json(events)
    await goes_on(agent, conversation)
    for message in conversation.messages:
        assert read_message(message.to_json()) == message


async def test_the_first_name_and_id_of_a_call_hold():
    conversation = Conversation()
    turn = of(
        ToolCallChunk(index=0, id="a", name="act", arguments='{"n"'),
        ToolCallChunk(index=0, id="b", name="other", arguments=": 1}"),
        Finish(finish_reason="tool_calls"),
    )
    agent = Agent(Raw(turn), tools=[act])
    response = await agent.chat("go", conversation=conversation)
    assert results(response) == [("a", "ok", "1")]


@pytest.mark.parametrize(
    "late",
    [
        pytest.param(TextChunk("more"), id="text"),
        pytest.param(Finish(), id="another Finish"),
        pytest.param(ToolCallChunk(index=0, id="a", name="act"), id="a call"),
        pytest.param("nonsense", id="nonsense"),
    ],
)
async def test_chunks_after_Finish_are_a_ModelError(late):
    error, conversation = await fails(of(TextChunk("whole."), Finish(), late))
    assert "Finish" in str(error)
    assert conversation.messages[1].partial


async def test_a_model_that_raises_reaches_the_caller_with_the_same_exception():
    error = ConnectionError("gone")

    async def make(request):
        yield TextChunk("half ")
        raise error

    caught, conversation = await fails(make, ConnectionError)
    assert caught is error
    assert conversation.messages[1].partial


async def test_a_model_that_raises_before_its_first_chunk_leaves_the_user_message_alone():
    async def make(request):
        raise ConnectionError("refused")
        yield

    _, conversation = await fails(make, ConnectionError)
    assert [message.role for message in conversation.messages] == ["user", "user", "assistant"]


async def test_a_model_whose_stream_raises_at_once():
    def make(request):
        raise ConnectionError("refused")

    await fails(make, ConnectionError)


@pytest.mark.parametrize("value", [None, 7, "text", [TextChunk("x")]], ids=repr)
async def test_a_model_whose_stream_gives_no_async_iterator_is_a_ModelError(value):
    await fails(lambda request: value)


async def test_a_model_that_raises_CancelledError_uncancelled_has_failed():
    async def make(request):
        yield TextChunk("half ")
        raise asyncio.CancelledError

    await fails(make, ModelError)


async def test_what_a_model_raises_in_its_clean_up_never_replaces_the_first_error():
    async def make(request):
        try:
            yield TextChunk("one")
            yield "nonsense"
        finally:
            raise RuntimeError("in the clean-up")

    error, _ = await fails(make)
    assert "str" in str(error)


async def test_what_a_model_raises_in_its_clean_up_never_replaces_an_abort():
    inside = asyncio.Event()

    async def make(request):
        try:
            yield TextChunk("one")
            inside.set()
            await asyncio.Event().wait()
        finally:
            raise RuntimeError("in the clean-up")

    conversation = Conversation()
    agent = Agent(Raw(make))
    aborted = []
    agent.add_hook("onChatAbort", lambda ctx: aborted.append(ctx.reason))
    chat = asyncio.ensure_future(agent.chat("go", conversation=conversation))
    await inside.wait()
    chat.cancel()
    with pytest.raises(asyncio.CancelledError):
        await chat
    assert aborted == ["cancelled"]
    await goes_on(agent, conversation)


async def test_what_a_model_raises_in_its_clean_up_after_Finish_is_a_clear_error():
    async def make(request):
        try:
            yield TextChunk("whole.")
            yield Finish()
        finally:
            raise RuntimeError("in the clean-up")

    error, _ = await fails(make, RuntimeError)
    assert str(error) == "in the clean-up"


async def test_a_model_that_goes_on_when_it_is_closed_never_replaces_the_first_error():
    async def make(request):
        try:
            yield b"nonsense"
        finally:
            yield TextChunk("I will not stop")

    error, _ = await fails(make)
    assert "bytes" in str(error)


class Iterator:
    """An async iterator that is no generator: it has no aclose."""

    def __init__(self, *items):
        self._items = list(items)

    def __aiter__(self):
        return self

    async def __anext__(self):
        if not self._items:
            raise StopAsyncIteration
        return self._items.pop(0)


async def test_a_model_may_give_any_async_iterator():
    agent = Agent(Raw(lambda request: Iterator(TextChunk("hi"), Finish())))
    assert (await agent.chat("go")).text == "hi"


async def test_a_model_may_give_its_iterator_after_an_await():
    async def make(request):
        await asyncio.sleep(0)
        return Iterator(TextChunk("hi"), Finish())

    assert (await Agent(Raw(make)).chat("go")).text == "hi"


async def test_blank_text_is_absent_and_empty_deltas_are_dropped():
    turn = of(TextChunk(""), TextChunk(" \n"), PartEndChunk("text"), ReasoningChunk(""), Finish())
    response = await Agent(Raw(turn)).chat("go")
    assert [message.role for message in response.messages] == ["user"]


async def test_the_end_of_a_part_that_never_began_is_harmless():
    turn = of(PartEndChunk("text"), PartEndChunk("reasoning"), TextChunk("hi"), Finish())
    response = await Agent(Raw(turn)).chat("go")
    assert response.text == "hi"


# ── text ────────────────────────────────────────────────────────────────────────────────────

TEXTS = {"a lone surrogate": "a\ud800b", "only a surrogate": "\udfff", "NUL": "a\0b"}
texts = pytest.mark.parametrize("bad", TEXTS.values(), ids=TEXTS)


def user_text(bad):
    return Agent(ScriptedModel("done", "next")), bad


def user_message(bad):
    return Agent(ScriptedModel("done", "next")), UserMessage(parts=(Text(bad),))


def user_parts(bad):
    return Agent(ScriptedModel("done", "next")), [Text(bad), Text("and more")]


def user_media(bad):
    parts = [File(media_type=bad, name=bad, url=bad), Image(media_type=bad, url=bad)]
    return Agent(ScriptedModel("done", "next")), parts


def model_text(bad):
    return Agent(ScriptedModel([bad, "more"], "next")), "go"


def model_text_alone(bad):
    return Agent(ScriptedModel(bad, "next")), "go"


def model_reasoning(bad):
    return Agent(ScriptedModel([Reasoning(bad), "more"], "next")), "go"


def model_signature(bad):
    return Agent(ScriptedModel([Reasoning("why", {"signature": bad}), "more"], "next")), "go"


def model_name(bad):
    chunks = [TextChunk("done"), Finish(model=bad, response_id=bad, meta={"x": bad})]
    return Agent(ScriptedModel(Turn(raw_chunks=chunks), "next")), "go"


def call_name(bad):
    return Agent(ScriptedModel(call(f"act{bad}"), "done", "next"), tools=[act]), "go"


def call_id(bad):
    return Agent(ScriptedModel(call("act", call_id=bad), "done", "next"), tools=[act]), "go"


def call_arguments(bad):
    return Agent(ScriptedModel(call("act", text=bad), "done", "next"), tools=[act]), "go"


def call_raw(bad):
    turn = raw_call("act", '{"text": "' + bad + '"}')
    return Agent(ScriptedModel(turn, "done", "next"), tools=[act]), "go"


def with_tool(fn):
    return Agent(ScriptedModel(call("work"), "done", "next"), tools=[tool(name="work")(fn)]), "go"


def tool_text(bad):
    async def work() -> str:
        return bad

    return with_tool(work)


def tool_value(bad):
    async def work():
        return {"key": [bad], f"{bad}!": 1}

    return with_tool(work)


def tool_error(bad):
    async def work():
        raise ValueError(bad)

    return with_tool(work)


def tool_returned_error(bad):
    async def work():
        return ToolFailure(bad, type=bad)

    return with_tool(work)


def tool_status(bad):
    async def work(run: Run):
        await run.status(f"at {bad}", {"text": bad, bad: 1})

    return with_tool(work)


def hooked(point, answer, *turns):
    agent = Agent(ScriptedModel(*(turns or (call("act"), "done", "next"))), tools=[act])
    used = []

    def once(ctx):
        if used:
            return None
        used.append(True)
        return answer(ctx)

    agent.add_hook(point, once)
    return agent, "go"


def hook_result(bad):
    return hooked("preToolCall", lambda ctx: ToolResult(bad))


def hook_error(bad):
    return hooked("preToolCall", lambda ctx: ToolFailure(bad, type=bad, issues=(bad,)))


def hook_arguments(bad):
    return hooked("preToolCall", lambda ctx: ctx.call.replace(arguments={"text": bad}))


def hook_replaced_result(bad):
    return hooked("onToolCallResult", lambda ctx: ToolResult(bad))


def hook_converted_result(bad):
    return hooked("onToolCallResult", lambda ctx: ToolFailure(bad))


def hook_stop(bad):
    return hooked("preToolCall", lambda ctx: Stop(bad, text=bad), call("act"), "next")


def hook_stop_step(bad):
    return hooked("onStep", lambda ctx: Stop(bad, text=bad), call("act"), "next")


def hook_stop_chat(bad):
    return hooked("preChat", lambda ctx: Stop(bad, text=bad), "next")


def hook_response(bad):
    return hooked("preRequest", lambda ctx: ModelResponse.of(bad, reasoning=bad), "next")


def hook_on_response(bad):
    return hooked("onResponse", lambda ctx: ModelResponse.of(bad), "done", "next")


def hook_delta(bad):
    return hooked("onDelta", lambda ctx: TextChunk(bad), "done", "next")


def hook_message(bad):
    return hooked("preMessage", lambda ctx: ctx.message.replace(text=bad), "done", "next")


def hook_message_of_a_tool(bad):
    def changed(ctx):
        return ctx.message.replace(text=bad) if ctx.message.role == "tool" else None

    agent = Agent(ScriptedModel(call("act"), "done", "next"), tools=[act])
    agent.add_hook("preMessage", changed)
    return agent, "go"


def hook_whole_response(bad):
    """Each string that a hook may put into an answer, the provider's own data too."""
    own = {"x": [bad], bad: bad}
    asked = ToolCall(id="c1", name="act", arguments={"text": bad, bad: [bad]}, meta=own)
    whole = ModelResponse(
        parts=(Reasoning(bad, own), Text(bad), asked), model=bad, response_id=bad, meta=own
    )
    return hooked("onResponse", lambda ctx: whole, "done", "done", "next")


def hook_whole_message(bad):
    def changed(ctx):
        if ctx.message.text != "done":
            return None
        own = {"x": [bad], bad: bad}
        return ctx.message.replace(parts=(Reasoning(bad, own), Text(bad)), model=bad, meta=own)

    agent = Agent(ScriptedModel("done", "next"))
    agent.add_hook("preMessage", changed)
    return agent, "go"


def hook_continue(bad):
    return hooked("preStop", lambda ctx: Continue(bad), "done", "done", "next")


def hook_request(bad):
    return hooked(
        "preChat",
        lambda ctx: ctx.request.replace(message=ctx.request.message.replace(text=bad), system=bad),
        "done",
        "next",
    )


def hook_status(bad):
    return hooked("onChatStart", lambda ctx: ctx.run.status(bad, bad), "done", "next")


def asked(bad):
    agent = Agent(
        ScriptedModel(call("act"), "done", "next"), tools=[act], approver=lambda r, run: Deny(bad)
    )
    agent.add_hook("preToolCall", lambda ctx: Ask(bad))
    return agent, "go"


def approved(bad):
    agent = Agent(
        ScriptedModel(call("act"), "done", "next"),
        tools=[act],
        approver=lambda r, run: Approve(arguments={"text": bad}),
    )
    agent.add_hook("preToolCall", lambda ctx: Ask("?"))
    return agent, "go"


def system(bad):
    return Agent(ScriptedModel("done", "next"), system=f"Be {bad}."), "go"


def scope_in_system(bad):
    scope = Scope("s", context=lambda: f"now: {bad}", title=bad)
    return Agent(ScriptedModel("done", "next"), scopes=[scope]), "go"


def scope_in_user(bad):
    scope = Scope("s", context=lambda: f"now: {bad}", inject="user", title=bad)
    return Agent(ScriptedModel("done", "next"), scopes=[scope]), "go"


PLACES = [
    user_text,
    user_message,
    user_parts,
    user_media,
    model_text,
    model_text_alone,
    model_reasoning,
    model_signature,
    model_name,
    call_name,
    call_id,
    call_arguments,
    call_raw,
    tool_text,
    tool_value,
    tool_error,
    tool_returned_error,
    tool_status,
    hook_result,
    hook_error,
    hook_arguments,
    hook_replaced_result,
    hook_converted_result,
    hook_stop,
    hook_stop_step,
    hook_stop_chat,
    hook_response,
    hook_on_response,
    hook_delta,
    hook_message,
    hook_message_of_a_tool,
    hook_whole_message,
    hook_whole_response,
    hook_continue,
    hook_request,
    hook_status,
    asked,
    approved,
    system,
    scope_in_system,
    scope_in_user,
]


@texts
@pytest.mark.parametrize("place", PLACES, ids=lambda place: place.__name__)
async def test_bad_text_anywhere_leaves_events_history_and_requests_that_every_wire_takes(
    place, bad
):
    agent, said = place(bad)
    requests = []
    agent.add_hook("preRequest", lambda ctx: requests.append(ctx.request), priority=-1)
    conversation = Conversation()
    events = await collect(agent.chat_stream(said, conversation=conversation))
    assert_json(events)
    await goes_on(agent, conversation)
    for request in requests:
        (request.system or "").encode()
    for holder in (conversation, *requests):
        for message in holder.messages:
            msgspec.json.encode(message)  # which takes no lone surrogate, as most libraries


@texts
async def test_bad_text_in_an_exception_leaves_events_that_every_wire_takes(bad):
    error = ValueError(bad)

    def broken(ctx):
        raise error

    agent = Agent(ScriptedModel("done"))
    agent.add_hook("preRequest", broken)
    events = []
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - it is that very object
        await collect(agent.chat_stream("go"), events)
    assert caught.value is error
    assert_json(events)


@texts
async def test_bad_text_in_the_reason_of_an_abort_leaves_events_that_every_wire_takes(bad):
    agent = Agent(ScriptedModel("done"))
    agent.add_hook("onChatStart", lambda ctx: ctx.run.abort(bad) and None)
    events = []
    with pytest.raises(ChatAbortedError):
        await collect(agent.chat_stream("go"), events)
    assert_json(events)


async def test_a_surrogate_pair_that_two_chunks_split_is_no_bad_text_of_ours():
    """Whatever becomes of the halves, what is shown is what is stored."""
    turn = Turn(TextChunk("smile \ud83d"), TextChunk("\ude00!"))
    conversation = Conversation()
    agent = Agent(ScriptedModel(turn, "next"))
    events = await collect(agent.chat_stream("go", conversation=conversation))
    assert_json(events)
    shown = "".join(event.text for event in only(events, TextDelta))
    assert conversation.messages[1].text == shown
    await goes_on(agent, conversation)


async def test_NUL_in_a_text_is_kept_as_it_is():
    conversation = Conversation()
    await Agent(ScriptedModel("a\0b")).chat("c\0d", conversation=conversation)
    assert [message.text for message in conversation.messages] == ["c\0d", "a\0b"]


# ── results ─────────────────────────────────────────────────────────────────────────────────


class Unshowable:
    def __repr__(self):
        raise RuntimeError("never ask")

    __str__ = __repr__


class Lazy:
    """Raises whatever is asked of it."""

    def __getattr__(self, name):
        raise RuntimeError(name)


def cyclic_list():
    value = [1]
    value.append(value)
    return value


def cyclic_dict():
    value = {}
    value["self"] = value
    return value


def deep():
    value = []
    for _ in range(100_000):
        value = [value]
    return value


class HeavyDict(dict):
    def items(self):
        raise RuntimeError("no items")


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(object, id="an object"),
        pytest.param(Unshowable, id="an object whose repr raises"),
        pytest.param(lambda: [Unshowable()], id="one inside a list"),
        pytest.param(Lazy, id="an object whose attributes raise"),
        pytest.param(cyclic_list, id="a list in itself"),
        pytest.param(cyclic_dict, id="a dict in itself"),
        pytest.param(deep, id="100,000 nested lists"),
        pytest.param(lambda: math.nan, id="NaN"),
        pytest.param(lambda: {"a": math.inf}, id="Infinity"),
        pytest.param(lambda: 10**30, id="a huge integer"),
        pytest.param(lambda: {(1,): 2}, id="a tuple as key"),
        pytest.param(lambda: {1: "a", "1": "b"}, id="two keys of the same text"),
        pytest.param(lambda: Exception, id="a class"),
        pytest.param(lambda: (n for n in range(3)), id="a generator"),
        pytest.param(lambda: open, id="a function"),
    ],
)
async def test_a_result_that_is_no_json_is_a_tool_error(make):
    value = make()

    @tool
    async def give():
        return value

    conversation = Conversation()
    agent = Agent(ScriptedModel(call("give"), "done", "next"), tools=[give])
    events = await collect(agent.chat_stream("go", conversation=conversation))
    assert list(outcomes(events).values()) == ["error"]
    assert_json(events)
    assert len(results(conversation)[0][2]) < 1_000
    await goes_on(agent, conversation)


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda: "x" * 50_000_000, id="a text"),
        pytest.param(lambda: ["x" * 1_000_000] * 50, id="a list"),
        pytest.param(lambda: b"x" * 37_500_000, id="bytes"),
    ],
)
async def test_a_result_of_50_MB_is_truncated(make):
    value = make()

    @tool
    async def give():
        return value

    conversation = Conversation()
    agent = Agent(ScriptedModel(call("give"), "done", "next"), tools=[give])
    await agent.chat("go", conversation=conversation)
    ((_, outcome, text),) = results(conversation)
    assert outcome == "ok"
    assert "truncated" in text
    assert len(text) < 300_000
    await goes_on(agent, conversation)


class Silent(Exception):
    def __str__(self):
        raise RuntimeError("no text")

    __repr__ = __str__


@pytest.mark.parametrize(
    "error",
    [
        pytest.param(Silent(), id="its text raises"),
        pytest.param(ValueError("x" * 10_000_000), id="10 MB of text"),
        pytest.param(ValueError(Unshowable()), id="an argument whose text raises"),
        pytest.param(KeyError(Unshowable()), id="an argument whose repr raises"),
        pytest.param(UnicodeDecodeError("utf-8", b"\xff", 0, 1, "bad"), id="UnicodeDecodeError"),
        pytest.param(RecursionError("deep"), id="RecursionError"),
        pytest.param(MemoryError(), id="MemoryError"),
    ],
)
async def test_an_exception_that_is_hard_to_show_is_a_tool_error(error):
    @tool
    async def fail():
        raise error

    conversation = Conversation()
    agent = Agent(ScriptedModel(call("fail"), "done", "next"), tools=[fail])
    events = await collect(agent.chat_stream("go", conversation=conversation))
    assert list(outcomes(events).values()) == ["error"]
    assert_json(events)
    await goes_on(agent, conversation)


async def test_an_exception_that_is_hard_to_show_ends_a_chat_as_itself():
    """Raised by a hook, where the same object reaches the caller."""
    error = Silent()

    def broken(ctx):
        raise error

    agent = Agent(ScriptedModel("done"))
    agent.add_hook("preRequest", broken)
    events = []
    with pytest.raises(Silent) as caught:
        await collect(agent.chat_stream("go"), events)
    assert caught.value is error
    assert events[-1].error.type == "Silent"
    assert_json(events)


# ── the caller's own ────────────────────────────────────────────────────────────────────────


async def test_an_unknown_tool_name_of_any_kind_is_a_tool_error():
    names = ["nope", "no such tool", "act ", "ACT", "act\n", "__class__", "x" * 10_000]
    model = ScriptedModel([call(name) for name in names], "done")
    response = await Agent(model, tools=[act]).chat("go")
    assert {outcome for _, outcome, _ in results(response)} == {"error"}


def test_an_unknown_hook_name_is_an_UnknownHookError_with_the_closest_names():
    with pytest.raises(UnknownHookError, match="preToolCall"):
        Agent(ScriptedModel()).add_hook("preToolcall", print)


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({"nonsense": 1}, id="name"),
        pytest.param({"conversation": 7}, id="type"),
    ],
)
async def test_a_bad_option_of_chat_is_refused_before_anything_happens(options):
    model = ScriptedModel()
    with pytest.raises((TypeError, UsageError)):
        await Agent(model).chat("go", **options)
    assert model.requests == []


async def test_nothing_of_a_refused_step_is_left_when_the_chat_is_asked_again():
    """Two faults in a row, then an answer: every request on the way is valid."""
    conversation = Conversation()
    for fault in (ConnectionError("one"), ValueError("two")):
        agent = Agent(ScriptedModel([call("act"), call("nope")], fault), tools=[act])
        with pytest.raises(type(fault)):
            await agent.chat("go", conversation=conversation)
    await goes_on(Agent(ScriptedModel("next")), conversation)
    tools = [message for message in conversation.messages if isinstance(message, ToolMessage)]
    assert len(tools) == 4
