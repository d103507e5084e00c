"""onDelta, and the law that the text shown is the text stored."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hookline import (
    Agent,
    AssistantMessage,
    Conversation,
    Message,
    ModelRequest,
    ModelResponse,
    Proceed,
    Reasoning,
    Stop,
    Text,
    tool,
)
from hookline.errors import ChatAbortedError, HookReturnError
from hookline.events import (
    ChatEvent,
    MessageAdded,
    PartEnd,
    ReasoningDelta,
    ResponseReset,
    TextDelta,
    ToolCallDelta,
    ToolCallStarted,
)
from hookline.models import Finish, PartEndChunk, ReasoningChunk, TextChunk, ToolCallChunk
from hookline.points import AroundRequest
from hookline.testing import ScriptedModel, Turn, call, collect


class Boom(Exception):
    pass


@tool
async def look(q: str = "") -> str:
    """Look it up."""
    return f"found {q}"


def shown(events: list[Any]) -> list[Any]:
    """What a reader is shown: text, reasoning in (), | at the end of a part, R for a reset."""
    out: list[Any] = []
    for event in events:
        match event:
            case TextDelta():
                out.append(event.text)
            case ReasoningDelta():
                out.append(f"({event.text})")
            case PartEnd():
                out.append("|")
            case ResponseReset():
                out.append("R")
            case ToolCallDelta():
                out.append(f"{event.name}{event.arguments}")
            case MessageAdded(message=AssistantMessage()):
                out.append("=")
    return out


def on_text(change: Callable[[str], Any]) -> Callable[[Any], Any]:
    """A hook that does something to each text delta."""
    return lambda ctx: change(ctx.delta.text) if isinstance(ctx.delta, TextChunk) else None


async def run(turn: Any, *hooks: Callable[[Any], Any], **options: Any) -> tuple[list[Any], Message]:
    """One chat with these onDelta hooks: what it shows, and the answer that it keeps."""
    agent = Agent(ScriptedModel(turn))
    for hook in hooks:
        agent.add_hook("onDelta", hook)
    events = await collect(agent.chat_stream("hi", **options))
    return shown(events), events[-1].response.messages[-1]


# ── what a hook may do to a delta ───────────────────────────────────────────────────────────


async def test_without_hooks_the_deltas_are_those_of_the_model() -> None:
    told, message = await run(Turn("a", "b"))
    assert told == ["a", "b", "|", "="]
    assert message.text == "ab"


async def test_onDelta_sees_each_delta_of_the_model_and_the_ends_of_its_parts() -> None:
    seen: list[Any] = []
    agent = Agent(
        ScriptedModel(
            Turn("a", "b", reasoning="hm", tool_calls=[call("look", q="x", call_id="c")]), "ok"
        ),
        tools=[look],
    )
    agent.add_hook("onDelta", lambda ctx: seen.append((ctx.iteration, ctx.delta)))
    await agent.chat("hi")
    assert seen == [
        (0, ReasoningChunk("hm")),
        (0, PartEndChunk("reasoning")),
        (0, TextChunk("a")),
        (0, TextChunk("b")),
        (0, PartEndChunk("text")),
        (0, ToolCallChunk(index=0, id="c", name="look", arguments='{"q": "x"}')),
        (1, TextChunk("ok")),
        (1, PartEndChunk("text")),
    ]


async def test_what_onDelta_returns_is_streamed_and_stored() -> None:
    told, message = await run(Turn("a", "b"), on_text(lambda text: TextChunk(text.upper())))
    assert told == ["A", "B", "|", "="]
    assert message.text == "AB"


async def test_None_leaves_the_delta_as_it_is() -> None:
    told, _ = await run(Turn("a", "b"), lambda ctx: None)
    assert told == ["a", "b", "|", "="]


async def test_an_empty_tuple_drops_the_delta() -> None:
    told, message = await run(Turn("a", "b"), on_text(lambda text: () if text == "a" else None))
    assert told == ["b", "|", "="]
    assert message.text == "b"


async def test_a_tuple_of_deltas_splits_it() -> None:
    told, message = await run(Turn("ab"), on_text(lambda text: tuple(map(TextChunk, text))))
    assert told == ["a", "b", "|", "="]
    assert message.text == "ab"


async def test_each_hook_sees_one_by_one_what_the_hook_before_returned() -> None:
    seen: list[str] = []
    told, _ = await run(
        Turn("ab"),
        on_text(lambda text: tuple(map(TextChunk, text))),
        on_text(seen.append),
        on_text(lambda text: TextChunk(text * 2)),
    )
    assert seen == ["a", "b"]
    assert told == ["aa", "bb", "|", "="]


async def test_a_later_hook_does_not_see_what_an_earlier_one_dropped() -> None:
    seen: list[str] = []
    await run(
        Turn("a", "b"), on_text(lambda text: () if text == "a" else None), on_text(seen.append)
    )
    assert seen == ["b"]


async def test_an_async_hook_is_awaited_before_the_next_delta() -> None:
    out: list[str] = []

    async def hook(ctx: Any) -> None:
        await asyncio.sleep(0)
        out.append(getattr(ctx.delta, "text", "|"))

    await run(Turn("a", "b"), hook)
    assert out == ["a", "b", "|"]


async def test_a_hook_that_an_earlier_one_disposes_does_not_see_that_delta() -> None:
    """…also where the earlier one made several deltas of it, of which it sees none."""
    seen: list[Any] = []
    disposers: list[Any] = []
    agent: Any = Agent(ScriptedModel(Turn("abcd", chunk=2)))

    def split(ctx: Any) -> Any:
        disposers[0]()
        if isinstance(ctx.delta, TextChunk):
            return tuple(TextChunk(letter) for letter in ctx.delta.text)
        return None

    agent.add_hook("onDelta", split, priority=1)
    disposers.append(agent.add_hook("onDelta", lambda ctx: seen.append(ctx.delta)))
    assert (await agent.chat("hi")).text == "abcd"
    assert seen == []


async def test_text_that_is_held_back_can_be_released_at_the_end_of_its_part() -> None:
    """Each text part ends with a PartEnd delta that passes the hooks too."""
    held: list[str] = []

    def hold(ctx: Any) -> Any:
        if isinstance(ctx.delta, TextChunk):
            held.append(ctx.delta.text)
            return ()
        return (TextChunk("".join(held)), ctx.delta)

    told, message = await run(Turn("a", "b", "c"), hold)
    assert told == ["abc", "|", "="]
    assert message.text == "abc"


async def test_what_is_released_at_the_end_of_a_part_passes_the_later_hooks() -> None:
    seen: list[Any] = []

    def hold(ctx: Any) -> Any:
        if isinstance(ctx.delta, TextChunk):
            return ()
        return (TextChunk("released"), ctx.delta)

    def hook(ctx: Any) -> None:
        seen.append(ctx.delta)

    await run(Turn("a"), hold, hook)
    assert seen == [TextChunk("released"), PartEndChunk("text")]


async def test_a_word_that_is_cut_by_the_chunks_can_be_redacted() -> None:
    """What holding back is for: a window that is longer than the secret."""
    window = ""

    def redact(ctx: Any) -> Any:
        nonlocal window
        if isinstance(ctx.delta, TextChunk):
            window = (window + ctx.delta.text).replace("secret", "***")
            keep = len("secret") - 1
            out, window = window[:-keep], window[-keep:]
            return TextChunk(out)
        rest, window = window, ""
        return (TextChunk(rest), ctx.delta)

    told, message = await run(Turn(text="the secret is a secret.", chunk=3), redact)
    assert message.text == "the *** is a ***."
    assert "".join(told[:-2]) == "the *** is a ***."


async def test_the_end_of_a_part_cannot_be_dropped() -> None:
    told, _ = await run(Turn("a"), lambda ctx: () if isinstance(ctx.delta, PartEndChunk) else None)
    assert told == ["a", "|", "="]


async def test_the_end_of_a_part_that_a_hook_drops_still_reaches_the_later_hooks() -> None:
    """Else a hook that holds text back would never let it go."""

    def hold(ctx: Any) -> Any:
        if isinstance(ctx.delta, TextChunk):
            return ()
        return (TextChunk("released"), ctx.delta)

    told, message = await run(
        Turn("a"), lambda ctx: () if isinstance(ctx.delta, PartEndChunk) else None, hold
    )
    assert told == ["released", "|", "="]
    assert message.text == "released"


async def test_a_part_of_which_nothing_is_left_is_not_shown_at_all() -> None:
    agent = Agent(ScriptedModel(Turn("a", "b")))
    agent.add_hook("onDelta", on_text(lambda text: ()))
    events = await collect(agent.chat_stream("hi"))
    assert shown(events) == []
    assert [m.role for m in events[-1].response.messages] == ["user"]


async def test_empty_deltas_of_the_model_are_dropped() -> None:
    seen: list[Any] = []

    def hook(ctx: Any) -> None:
        seen.append(ctx.delta)

    told, _ = await run(Turn(TextChunk(""), "a", TextChunk(""), ReasoningChunk("")), hook)
    assert told == ["a", "|", "="]
    assert seen == [TextChunk("a"), PartEndChunk("text")]


async def test_empty_deltas_of_a_hook_are_dropped() -> None:
    told, _ = await run(Turn("a", "b"), on_text(lambda t: TextChunk("") if t == "a" else None))
    assert told == ["b", "|", "="]


async def test_reasoning_passes_onDelta_and_is_stored_as_shown() -> None:
    def quiet(ctx: Any) -> Any:
        if isinstance(ctx.delta, ReasoningChunk):
            return ReasoningChunk(ctx.delta.text.replace("I think", "…"))
        return None

    told, message = await run(Turn(text="yes", reasoning="I think so"), quiet)
    assert told == ["(… so)", "|", "yes", "|", "="]
    assert isinstance(message, AssistantMessage)
    assert (message.reasoning, message.text) == ("… so", "yes")


async def test_reasoning_can_be_dropped() -> None:
    told, message = await run(
        Turn(text="yes", reasoning="I think so"),
        lambda ctx: () if isinstance(ctx.delta, ReasoningChunk) else None,
    )
    assert told == ["yes", "|", "="]
    assert isinstance(message, AssistantMessage)
    assert message.reasoning == ""


async def test_reasoning_can_be_turned_into_text_and_stays_one_text() -> None:
    def aloud(ctx: Any) -> Any:
        return TextChunk(ctx.delta.text) if isinstance(ctx.delta, ReasoningChunk) else None

    turn = Turn(ReasoningChunk("hello"), ReasoningChunk(" "), ReasoningChunk("world"))
    told, message = await run(turn, aloud)
    assert "".join(piece for piece in told if piece not in "|=") == "hello world"
    assert message.text == "hello world"


async def test_text_can_be_turned_into_reasoning() -> None:
    """A hook that cuts <think> out of the text."""
    told, message = await run(
        Turn("<think>hm</think>", "yes"),
        on_text(lambda t: ReasoningChunk(t[7:-8]) if t.startswith("<think>") else None),
    )
    assert [piece for piece in told if piece != "|"] == ["(hm)", "yes", "="]
    assert isinstance(message, AssistantMessage)
    assert (message.reasoning, message.text) == ("hm", "yes")


async def test_the_meta_of_reasoning_is_kept_whatever_a_hook_does_to_its_text() -> None:
    """It is what the provider wants back."""
    turn = Turn(ReasoningChunk("hm"), PartEndChunk("reasoning", {"signature": "s"}), "yes")
    _, message = await run(turn, lambda ctx: () if isinstance(ctx.delta, ReasoningChunk) else None)
    assert isinstance(message, AssistantMessage)
    assert [p.meta for p in message.parts if isinstance(p, Reasoning)] == [{"signature": "s"}]


async def test_signed_reasoning_that_a_hook_turns_into_text_is_stored_as_text() -> None:
    turn = Turn(ReasoningChunk("hm"), PartEndChunk("reasoning", {"signature": "s"}), "yes")

    def said(ctx: Any) -> Any:
        return TextChunk(ctx.delta.text) if isinstance(ctx.delta, ReasoningChunk) else None

    _, message = await run(turn, said)
    assert [(type(part), part.text) for part in message.parts] == [(Text, "hm"), (Text, "yes")]


async def test_blank_reasoning_with_meta_is_stored_without_its_text() -> None:
    """It is not shown, so it is not stored; the meta is."""
    turn = Turn(ReasoningChunk(" "), PartEndChunk("reasoning", {"signature": "s"}), "yes")
    told, message = await run(turn)
    assert told == ["yes", "|", "="]
    assert isinstance(message, AssistantMessage)
    assert message.parts == (Reasoning("", {"signature": "s"}), Text("yes"))


async def test_two_texts_of_the_model_are_two_parts() -> None:
    told, message = await run(Turn("a", PartEndChunk("text"), "b"))
    assert told == ["a", "|", "b", "|", "="]
    assert isinstance(message, AssistantMessage)
    assert message.parts == (Text("a"), Text("b"))


async def test_a_hook_that_is_added_in_mid_stream_sees_the_next_delta() -> None:
    seen: list[str] = []
    agent = Agent(ScriptedModel(Turn("a", "b", "c")))

    def first(ctx: Any) -> None:
        if getattr(ctx.delta, "text", "") == "a":
            agent.add_hook("onDelta", lambda ctx: seen.append(getattr(ctx.delta, "text", "|")))

    agent.add_hook("onDelta", first)
    await agent.chat("hi")
    assert seen == ["b", "c", "|"]


async def test_a_throw_in_onDelta_ends_the_chat_with_the_same_exception() -> None:
    error = Boom()

    def boom(ctx: Any) -> None:
        raise error

    agent = Agent(ScriptedModel(Turn("a", "b")))
    agent.add_hook("onDelta", boom, name="boom")
    with pytest.raises(Boom) as caught:
        await agent.chat("hi")
    assert caught.value is error
    assert any("boom" in note and "onDelta" in note for note in error.__notes__)


async def test_a_model_is_closed_when_onDelta_throws() -> None:
    model = ScriptedModel(Turn("a", "b"))
    agent = Agent(model)

    def boom(ctx: Any) -> None:
        raise Boom

    agent.add_hook("onDelta", boom)
    with pytest.raises(Boom):
        await agent.chat("hi")
    assert (model.closed, model.open) == (1, 0)


# ── what a hook may not do ──────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "value",
    [
        pytest.param("text", id="str"),
        pytest.param(True, id="bool"),
        pytest.param(Text("a"), id="part"),
        pytest.param(Finish(), id="finish"),
        pytest.param(TextDelta(chat_id="x", seq=0, iteration=0, text="a"), id="event"),
        pytest.param(Stop("x"), id="stop"),
        pytest.param(("a", "b"), id="tuple-of-str"),
        pytest.param((TextChunk("a"), None), id="tuple-with-None"),
        pytest.param(ToolCallChunk(index=0, name="look", arguments="{}"), id="a-call"),
        pytest.param((TextChunk("a"), PartEndChunk("text")), id="an-end-of-its-own"),
    ],
)
async def test_any_other_value_from_onDelta_is_a_HookReturnError(value: Any) -> None:
    def my_hook(ctx: Any) -> Any:
        return value

    agent = Agent(ScriptedModel(Turn("a")))
    agent.add_hook("onDelta", my_hook, name="my_hook")
    with pytest.raises(HookReturnError, match=r"my_hook.*onDelta"):
        await agent.chat("hi")


async def test_a_tool_call_delta_can_be_hidden_and_the_call_runs() -> None:
    """Tool-call deltas can only be withheld from display."""
    model = ScriptedModel(["a", call("look", q="x", call_id="c")], "ok")
    agent = Agent(model, tools=[look])
    agent.add_hook("onDelta", lambda ctx: () if isinstance(ctx.delta, ToolCallChunk) else None)
    events = await collect(agent.chat_stream("hi"))
    assert shown(events) == ["a", "|", "=", "ok", "|", "="]
    assert [e.call.arguments for e in events if isinstance(e, ToolCallStarted)] == [{"q": "x"}]
    assert [m.text for m in model.last_request.messages] == ["hi", "a", "found x"]


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda delta: delta.replace(arguments="{}"), id="arguments"),
        pytest.param(lambda delta: delta.replace(name="other"), id="name"),
        pytest.param(lambda delta: delta.replace(id="other"), id="id"),
        pytest.param(lambda delta: TextChunk("a call"), id="text"),
        pytest.param(lambda delta: (delta, TextChunk("a call")), id="and-text"),
    ],
)
async def test_a_tool_call_delta_cannot_be_changed(change: Any) -> None:
    model = ScriptedModel([call("look", q="x")])
    agent = Agent(model, tools=[look])
    agent.add_hook("onDelta", lambda ctx: change(ctx.delta))
    with pytest.raises(HookReturnError, match="onDelta"):
        await agent.chat("hi")


async def test_a_tool_call_delta_that_is_returned_as_it_is_is_shown() -> None:
    model = ScriptedModel([call("look", q="x")], "ok")
    agent = Agent(model, tools=[look])
    agent.add_hook("onDelta", lambda ctx: ctx.delta)
    assert shown(await collect(agent.chat_stream("hi")))[0] == 'look{"q": "x"}'


async def test_arguments_that_come_in_pieces_are_shown_in_pieces() -> None:
    model = ScriptedModel(Turn(call("look", q="x", call_id="c"), chunk=4), "ok")
    events = await collect(Agent(model, tools=[look]).chat_stream("hi"))
    pieces = [e for e in events if isinstance(e, ToolCallDelta)]
    assert [piece.arguments for piece in pieces] == ['{"q"', ': "x', '"}']
    assert {(p.call_id, p.name, p.index) for p in pieces} == {("c", "look", 0)}


# ── blank text ──────────────────────────────────────────────────────────────────────────────


async def test_blank_text_is_neither_shown_nor_stored() -> None:
    """Models like to write an empty line before a call."""
    model = ScriptedModel(Turn("\n", "\n", tool_calls=[call("look")]), "ok")
    agent = Agent(model, tools=[look])
    events = await collect(agent.chat_stream("hi"))
    assert shown(events) == ["look{}", "=", "ok", "|", "="]
    assert events[-1].response.messages[1].text == ""


async def test_blank_pieces_before_text_are_shown_with_it() -> None:
    told, message = await run(Turn("\n", " ", "a", " ", "\n"))
    assert "".join(told[:-2]) == message.text == "\n a \n"


# ── ResponseReset ───────────────────────────────────────────────────────────────────────────


async def chat_with(point: Any, hook: Any, turn: Any, **options: Any) -> tuple[list[Any], Any]:
    agent = Agent(ScriptedModel(turn, "ok"), tools=[look])
    agent.add_hook(point, hook)
    conversation = Conversation()
    events = await collect(agent.chat_stream("hi", conversation=conversation, **options))
    return shown(events), conversation.messages


def respond(text: str) -> Any:
    return lambda ctx: ctx.response.replace(text=text) if ctx.iteration == 0 else None


def rewrite(text: str) -> Any:
    def hook(ctx: Any) -> Any:
        if ctx.message.role == "assistant" and ctx.run.iteration == 0:
            return ctx.message.replace(text=text)
        return None

    return hook


@pytest.mark.parametrize(
    ("point", "hook"),
    [
        pytest.param("onResponse", respond("changed"), id="onResponse"),
        pytest.param("preMessage", rewrite("changed"), id="preMessage"),
    ],
)
async def test_a_change_of_what_was_shown_is_a_reset_and_the_new_content(
    point: str, hook: Any
) -> None:
    """Text shown = stored."""
    told, messages = await chat_with(point, hook, Turn("a", "b"))
    assert told == ["a", "b", "|", "R", "changed", "|", "="]
    assert [m.text for m in messages] == ["hi", "changed"]


@pytest.mark.parametrize(
    ("point", "hook"),
    [
        pytest.param("onResponse", respond("ab"), id="onResponse"),
        pytest.param("preMessage", rewrite("ab"), id="preMessage"),
    ],
)
async def test_no_reset_where_nothing_was_changed(point: str, hook: Any) -> None:
    told, _ = await chat_with(point, hook, Turn("a", "b"))
    assert told == ["a", "b", "|", "="]


async def test_no_reset_where_nothing_was_shown() -> None:
    """An answer of calls alone to which a hook adds text."""
    told, messages = await chat_with("onResponse", respond("first I look"), [call("look")])
    assert told[:4] == ["look{}", "first I look", "|", "="]
    assert messages[1].text == "first I look"


async def test_an_answer_that_onResponse_empties_is_taken_back_and_not_stored() -> None:
    told, messages = await chat_with("onResponse", respond(""), Turn("a", "b"))
    assert told == ["a", "b", "|", "R"]
    assert [m.text for m in messages] == ["hi"]


async def test_an_answer_that_preMessage_empties_is_taken_back_and_not_stored() -> None:
    """Blank text is absent, and no request may hold an empty message."""
    seen: list[str] = []
    agent = Agent(ScriptedModel(Turn("a", "b"), "ok"))
    agent.add_hook("preMessage", rewrite(""))
    agent.add_hook("onMessage", lambda ctx: seen.append(ctx.message.role))
    conversation = Conversation()
    events = await collect(agent.chat_stream("hi", conversation=conversation))
    assert shown(events) == ["a", "b", "|", "R"]
    assert [m.role for m in conversation.messages] == seen == ["user"]
    agent.bus.clear("preMessage")
    await agent.chat("more", conversation=conversation)


async def test_the_reset_names_the_step() -> None:
    agent = Agent(ScriptedModel(["one", call("look")], "two"), tools=[look])
    agent.add_hook(
        "onResponse", lambda ctx: ctx.response.replace(text="2") if ctx.iteration == 1 else None
    )
    events = await collect(agent.chat_stream("hi"))
    assert [e.iteration for e in events if isinstance(e, ResponseReset)] == [1]


async def test_what_replaces_an_answer_does_not_pass_onDelta_again() -> None:
    """12.1: what onResponse or preMessage put in place of it is final."""
    seen: list[Any] = []
    agent = Agent(ScriptedModel("a"))
    agent.add_hook("onDelta", lambda ctx: seen.append(getattr(ctx.delta, "text", "|")))
    agent.add_hook("onResponse", respond("b"))
    agent.add_hook("preMessage", rewrite("c"))
    events = await collect(agent.chat_stream("hi"))
    assert seen == ["a", "|"]
    assert shown(events) == ["a", "|", "R", "c", "|", "="]


async def test_changed_reasoning_is_taken_back_too() -> None:
    def hook(ctx: Any) -> Any:
        parts = [Reasoning("…") if isinstance(p, Reasoning) else p for p in ctx.response.parts]
        return ctx.response.replace(parts=tuple(parts))

    told, messages = await chat_with("onResponse", hook, Turn(text="yes", reasoning="hm"))
    assert told == ["(hm)", "|", "yes", "|", "R", "(…)", "|", "yes", "|", "="]
    assert messages[-1].reasoning == "…"


@pytest.mark.parametrize("point", ["onResponse", "preMessage"])
async def test_an_answer_that_a_hook_throws_at_is_taken_back_and_not_stored(point: Any) -> None:
    """The hook refused it: shown = stored = nothing."""
    conversation = Conversation()
    agent = Agent(ScriptedModel(Turn("a", "b")))

    def refuse(ctx: Any) -> None:
        if point == "onResponse" or ctx.message.role == "assistant":
            raise Boom

    agent.add_hook(point, refuse)
    events: list[Any] = []
    with pytest.raises(Boom):
        await collect(agent.chat_stream("hi", conversation=conversation), events)
    assert shown(events) == ["a", "b", "|", "R"]
    assert [m.text for m in conversation.messages] == ["hi"]


@pytest.mark.parametrize("point", ["onResponse", "preMessage"])
async def test_an_answer_that_was_shown_when_a_hook_aborts_is_kept_as_shown(point: Any) -> None:
    conversation = Conversation()
    agent = Agent(ScriptedModel(Turn("a", "b")))

    def abort(ctx: Any) -> None:
        if point == "onResponse" or ctx.message.role == "assistant":
            ctx.run.abort("enough")

    agent.add_hook(point, abort)
    events: list[Any] = []
    with pytest.raises(ChatAbortedError):
        await collect(agent.chat_stream("hi", conversation=conversation), events)
    assert shown(events) == ["a", "b", "|", "="]
    assert [m.text for m in conversation.messages] == ["hi", "ab"]
    assert getattr(conversation.messages[-1], "partial", None) is True


async def test_the_text_of_a_Stop_passes_onDelta() -> None:
    """12.1: short-circuited responses and Stop.text pass onDelta."""
    agent = Agent(ScriptedModel())
    agent.add_hook("preRequest", lambda ctx: Stop("closed", text="secret"))
    agent.add_hook("onDelta", on_text(lambda text: TextChunk("***")))
    events = await collect(agent.chat_stream("hi"))
    assert shown(events) == ["***", "|", "="]
    assert events[-1].response.text == "***"


# ── release="response" ──────────────────────────────────────────────────────────────────────


async def test_released_by_response_an_answer_comes_whole_one_delta_per_part() -> None:
    turn = Turn("a", "b", PartEndChunk("text"), "c", reasoning="hm")
    told, _ = await chat_with("onResponse", lambda ctx: None, turn, release="response")
    assert told == ["(hm)", "|", "ab", "|", "c", "|", "="]


async def test_released_by_response_a_call_comes_whole_as_onResponse_left_it() -> None:
    """A call is a part too."""
    turn = Turn("a", call("look", q="x", call_id="c"), chunk=3)

    def hook(ctx: Any) -> Any:
        parts = tuple(
            p.replace(arguments={"q": "y"}) if p in ctx.response.tool_calls else p
            for p in ctx.response.parts
        )
        return ctx.response.replace(parts=parts)

    told, _ = await chat_with("onResponse", hook, turn, release="response")
    assert told == ["a", "|", 'look{"q":"y"}', "=", "ok", "|", "="]


async def test_released_by_response_a_call_that_onDelta_hid_stays_hidden() -> None:
    told, _ = await chat_with(
        "onDelta",
        lambda ctx: () if isinstance(ctx.delta, ToolCallChunk) else None,
        ["a", call("look")],
        release="response",
    )
    assert told == ["a", "|", "=", "ok", "|", "="]


@pytest.mark.parametrize(
    ("point", "hook"),
    [
        pytest.param("onResponse", respond("changed"), id="onResponse"),
        pytest.param("preMessage", rewrite("changed"), id="preMessage"),
    ],
)
async def test_released_by_response_only_what_the_hooks_left_is_published(
    point: str, hook: Any
) -> None:
    told, messages = await chat_with(point, hook, Turn("a", "b"), release="response")
    assert told == ["changed", "|", "="]
    assert messages[-1].text == "changed"


async def test_released_by_response_nothing_is_published_before_the_hooks_have_run() -> None:
    out: list[str] = []
    agent = Agent(ScriptedModel(Turn("a", "b")))
    agent.add_hook("onResponse", lambda ctx: out.append("onResponse"))
    agent.add_hook("preMessage", lambda ctx: out.append("preMessage"))
    agent.add_hook("onDelta", lambda ctx: out.append("onDelta"))
    with agent.subscribe(TextDelta) as texts:
        agent.bus.publish = note(agent.bus.publish, out)  # type: ignore[method-assign]
        await agent.chat("hi", release="response")
        del texts
    told = [line for line in out if line != "onDelta"]
    assert told == ["preMessage", "onResponse", "preMessage", "TextDelta ab"]


def note(publish: Any, out: list[str]) -> Any:
    def noted(event: Any) -> None:
        if isinstance(event, TextDelta):
            out.append(f"TextDelta {event.text}")
        publish(event)

    return noted


async def test_released_by_response_the_deltas_pass_onDelta_as_the_model_writes_them() -> None:
    seen: list[str] = []
    agent = Agent(ScriptedModel(Turn("a", "b")))
    agent.add_hook("onDelta", on_text(seen.append))
    await agent.chat("hi", release="response")
    assert seen == ["a", "b"]


async def test_released_by_response_the_text_of_a_Stop_comes_whole() -> None:
    agent = Agent(ScriptedModel())
    agent.add_hook("preRequest", lambda ctx: Stop("closed", text="bye"))
    events = await collect(agent.chat_stream("hi", release="response"))
    assert shown(events) == ["bye", "|", "="]


@pytest.mark.parametrize("point", ["onResponse", "preMessage"])
@pytest.mark.parametrize("how", ["raises", "aborts"])
async def test_released_by_response_what_the_hooks_did_not_pass_is_never_shown(
    point: Any, how: str
) -> None:
    """Each message is published only once `onResponse` and `preMessage` have run."""
    agent = Agent(ScriptedModel("secret"))
    agent.add_hook("onResponse", lambda ctx: ctx.response.replace(text="***"))
    asked: list[Any] = []

    def hook(ctx: Any) -> None:
        if point == "preMessage" and ctx.message.role == "user":
            return
        asked.append(ctx)
        if how == "raises":
            raise Boom
        ctx.run.abort("enough")

    agent.add_hook(point, hook)
    events: list[Any] = []
    with pytest.raises((Boom, ChatAbortedError)):
        await collect(agent.chat_stream("hi", release="response"), events)
    assert len(asked) == 1
    assert [piece for piece in shown(events) if piece not in "|=R"] == []
    assert not any("secret" in event.to_json().decode() for event in events)


async def test_released_by_response_a_broken_answer_shows_nothing() -> None:
    agent = Agent(ScriptedModel(Turn("sec", "ret", fail=Boom())))
    events: list[Any] = []
    with pytest.raises(Boom):
        await collect(agent.chat_stream("hi", release="response"), events)
    assert [piece for piece in shown(events) if piece not in "|=R"] == []


# ── the law: shown = stored ─────────────────────────────────────────────────────────────────


class Screen:
    """What a user interface does with the events; it knows nothing else."""

    def __init__(self) -> None:
        self.done: list[tuple[str, str]] = []
        self.text = ""
        self.reasoning = ""

    def take(self, event: ChatEvent) -> None:
        match event:
            case TextDelta():
                self.text += event.text
            case ReasoningDelta():
                self.reasoning += event.text
            case ResponseReset():
                self.text = self.reasoning = ""
            case MessageAdded(message=AssistantMessage() as message):
                # The text that is on the screen when a message is added is that message's.
                assert (self.text, self.reasoning) == (message.text, message.reasoning)
                self.done.append((self.text, self.reasoning))
                self.text = self.reasoning = ""


PIECES = st.sampled_from(["a", "bc", " ", "\n", "", "secret", "sec", "ret", "é", "x y", "\u2028"])
TEXTS = PIECES.map(TextChunk)
REASONINGS = PIECES.map(ReasoningChunk)
CHUNKS = st.lists(
    st.one_of(
        TEXTS,
        TEXTS,
        REASONINGS,
        st.sampled_from([PartEndChunk("text"), PartEndChunk("reasoning")]),
        st.just(PartEndChunk("reasoning", {"signature": "s"})),
    ),
    max_size=8,
)


def upper(ctx: Any) -> Any:
    delta = ctx.delta
    return delta.replace(text=delta.text.upper()) if hasattr(delta, "text") else None


def letters(ctx: Any) -> Any:
    delta = ctx.delta
    return tuple(delta.replace(text=c) for c in delta.text) if hasattr(delta, "text") else None


def no_spaces(ctx: Any) -> Any:
    return () if getattr(ctx.delta, "text", "x").isspace() else None


def no_reasoning(ctx: Any) -> Any:
    return () if isinstance(ctx.delta, ReasoningChunk) else None


def aloud(ctx: Any) -> Any:
    return TextChunk(ctx.delta.text) if isinstance(ctx.delta, ReasoningChunk) else None


def silently(ctx: Any) -> Any:
    return ReasoningChunk(ctx.delta.text) if isinstance(ctx.delta, TextChunk) else None


def both(ctx: Any) -> Any:
    delta = ctx.delta
    return (delta, ReasoningChunk("*"), TextChunk(" ")) if isinstance(delta, TextChunk) else None


def signed(ctx: Any) -> Any:
    return (TextChunk("!"), ctx.delta) if isinstance(ctx.delta, PartEndChunk) else None


def late(ctx: Any) -> Any:
    return (ctx.delta, TextChunk("?")) if isinstance(ctx.delta, PartEndChunk) else None


def no_ends(ctx: Any) -> Any:
    return () if isinstance(ctx.delta, PartEndChunk) else None


def holding() -> Any:
    held: list[Any] = []

    def hold(ctx: Any) -> Any:
        if isinstance(ctx.delta, (TextChunk, ReasoningChunk)):
            held.append(ctx.delta)
            return ()
        if isinstance(ctx.delta, PartEndChunk):
            out = (*held, ctx.delta)
            held.clear()
            return out
        return None

    return hold


def redacting() -> Any:
    window = ""

    def redact(ctx: Any) -> Any:
        nonlocal window
        if isinstance(ctx.delta, TextChunk):
            window = (window + ctx.delta.text).replace("secret", "***")
            out, window = window[:-5], window[-5:]
            return TextChunk(out)
        if isinstance(ctx.delta, PartEndChunk):
            rest, window = window, ""
            return (TextChunk(rest), ctx.delta)
        return None

    return redact


def always(hook: Any) -> Any:
    return lambda: hook


PLAIN_HOOKS = (
    *(upper, letters, no_spaces, no_reasoning, aloud),
    *(silently, both, signed, late, no_ends),
)
DELTA_HOOKS = st.lists(
    st.sampled_from([holding, redacting, *map(always, PLAIN_HOOKS)]),
    max_size=3,
)


def keep_response(ctx: Any) -> Any:
    return None


def blank_response(ctx: Any) -> Any:
    return ctx.response.replace(text="")


def spaces_response(ctx: Any) -> Any:
    return ctx.response.replace(text=" ")


def new_response(ctx: Any) -> Any:
    return ctx.response.replace(text=ctx.response.text + "+")


def turned_response(ctx: Any) -> Any:
    return ctx.response.replace(parts=tuple(reversed(ctx.response.parts)))


def no_parts(ctx: Any) -> Any:
    return ModelResponse()


RESPONSE_HOOKS = st.sampled_from(
    [
        keep_response,
        keep_response,
        blank_response,
        spaces_response,
        new_response,
        turned_response,
        no_parts,
    ]
)


def keep_message(ctx: Any) -> Any:
    return None


def assistants(change: Any) -> Any:
    return lambda ctx: change(ctx.message) if ctx.message.role == "assistant" else None


MESSAGE_HOOKS = st.sampled_from(
    [
        keep_message,
        keep_message,
        assistants(lambda message: message.replace(text=message.text + "-")),
        assistants(lambda message: message.replace(text="")),
        assistants(lambda message: message.replace(text="  ")),
    ]
)


async def again(ctx: Any, proceed: Any) -> Any:
    try:
        return await proceed()
    except Boom:
        return await proceed()


@settings(max_examples=250)
@given(
    first=CHUNKS,
    second=CHUNKS,
    third=CHUNKS,
    hooks=DELTA_HOOKS,
    response_hook=RESPONSE_HOOKS,
    message_hook=MESSAGE_HOOKS,
    release=st.sampled_from(["live", "live", "response"]),
    stop=st.booleans(),
)
def test_the_text_shown_is_the_text_stored(
    first: list[Any],
    second: list[Any],
    third: list[Any],
    hooks: list[Any],
    response_hook: Any,
    message_hook: Any,
    release: Any,
    stop: bool,
) -> None:
    """Whatever the chunks and whatever the hooks: a first answer that breaks off and is retried,
    one with a call, one without, perhaps the text of a Stop."""

    async def chat() -> None:
        model = ScriptedModel(
            Turn(*first, fail=Boom()),
            Turn(*second, tool_calls=[call("look")]),
            Turn(*third),
            "more",
        )
        conversation = Conversation()
        agent = Agent(model, tools=[look])
        agent.add_hook("aroundRequest", again)
        for make in hooks:
            agent.add_hook("onDelta", make())
        agent.add_hook("onResponse", response_hook)
        agent.add_hook("preMessage", message_hook)
        if stop:
            agent.add_hook("onStep", lambda ctx: Stop("enough", text="bye secret"))
        screen = Screen()
        stream = agent.chat_stream("hi", conversation=conversation, release=release)
        for event in await collect(stream):
            screen.take(event)
        stored = [
            (m.text, m.reasoning) for m in conversation.messages if isinstance(m, AssistantMessage)
        ]
        assert screen.done == stored
        assert (screen.text, screen.reasoning) == ("", "")  # nothing is left that is not stored
        for message in conversation.messages:
            if isinstance(message, AssistantMessage):
                assert message.parts
                assert all(p.text.strip() for p in message.parts if isinstance(p, Text))

    asyncio.run(chat())


@settings(max_examples=150)
@given(
    chunks=CHUNKS,
    hooks=DELTA_HOOKS,
    message_hook=MESSAGE_HOOKS,
    release=st.sampled_from(["live", "live", "response"]),
    at=st.integers(0, 9),
    how=st.sampled_from(["fails", "raises", "aborts"]),
)
def test_the_text_shown_is_the_text_stored_of_an_answer_that_breaks_off(
    chunks: list[Any], hooks: list[Any], message_hook: Any, release: Any, at: int, how: str
) -> None:
    """The model fails, or a hook raises or aborts at some delta: what was shown is kept, marked."""

    async def chat() -> None:
        left = [at]

        def breaker(ctx: Any) -> None:
            left[0] -= 1
            if left[0] == -1 and how == "raises":
                raise Boom
            if left[0] == -1 and how == "aborts":
                ctx.run.abort("enough")

        conversation = Conversation()
        agent = Agent(ScriptedModel(Turn(*chunks, fail=Boom())))
        agent.add_hook("onDelta", breaker, priority=1)
        for make in hooks:
            agent.add_hook("onDelta", make())
        agent.add_hook("preMessage", message_hook)
        screen = Screen()
        events: list[Any] = []
        with pytest.raises((Boom, ChatAbortedError)):
            await collect(
                agent.chat_stream("hi", conversation=conversation, release=release), events
            )
        for event in events:
            screen.take(event)
        stored = [m for m in conversation.messages if isinstance(m, AssistantMessage)]
        assert screen.done == [(m.text, m.reasoning) for m in stored]
        assert (screen.text, screen.reasoning) == ("", "")
        assert all(m.partial for m in stored)

    asyncio.run(chat())


@settings(max_examples=60)
@given(text=st.text(max_size=30), sizes=st.lists(st.integers(1, 9), min_size=1, max_size=5))
def test_the_chunking_of_an_answer_does_not_matter(text: str, sizes: list[int]) -> None:
    async def chat() -> None:
        pieces: list[str] = []
        at = 0
        while at < len(text):
            size = sizes[len(pieces) % len(sizes)]
            pieces.append(text[at : at + size])
            at += size
        whole = await Agent(ScriptedModel(Turn(text))).chat("hi")
        cut = await Agent(ScriptedModel(Turn(*pieces))).chat("hi")
        assert cut.text == whole.text
        assert len(cut.messages) == len(whole.messages)

    asyncio.run(chat())


async def test_how_long_an_answer_took_is_told_where_the_clock_of_the_loop_stands_still() -> None:
    """uvloop's counts in milliseconds, and not within a turn of the loop."""
    told: list[Any] = []
    agent = Agent(ScriptedModel(Turn("one two three", chunk=4)))

    @agent.hook("aroundRequest")
    async def look(ctx: AroundRequest, proceed: Proceed[ModelRequest, ModelResponse]) -> Any:
        response = await proceed()
        told.append(response.timing)
        return response

    await agent.chat("hi")
    (timing,) = told
    assert 0 < timing.first_chunk <= timing.duration
