"""`window` and `truncate`: a short request is still a valid one, a short result still a result."""

import json
from itertools import pairwise, takewhile

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hookline import (
    Agent,
    AssistantMessage,
    Conversation,
    Limits,
    Text,
    ToolCall,
    ToolMessage,
    ToolResult,
    UserMessage,
    check_history,
    tool,
)
from hookline.errors import UsageError
from hookline.hooks import rough_tokens, truncate, window
from hookline.hooks._context.window import Marks, _last, _since_cut
from hookline.testing import ScriptedModel, call

# ── the law ─────────────────────────────────────────────────────────────────────────────────


@st.composite
def histories(draw):
    """Any valid history: users, answers, answers with calls and all their results."""
    messages = []
    for n in range(draw(st.integers(0, 14))):
        kind = draw(st.sampled_from(["user", "assistant", "calls", "calls"]))
        text = draw(st.text("ab ", min_size=1, max_size=40))
        if kind == "user":
            messages.append(UserMessage(id=f"u{n}", parts=(Text(text),)))
            continue
        calls = tuple(
            ToolCall(id=f"c{n}.{k}", name="look")
            for k in range(draw(st.integers(1, 5)) if kind == "calls" else 0)
        )
        messages.append(AssistantMessage(id=f"a{n}", parts=(Text(text), *calls)))
        for each in calls:
            messages.append(ToolMessage(id=f"t{each.id}", call_id=each.id, name="look", text=text))
    return tuple(messages)


def last_group(messages):
    count = 1
    while count < len(messages) and isinstance(messages[-count], ToolMessage):
        count += 1
    return messages[len(messages) - count :]


@pytest.mark.slow
@settings(max_examples=500)
@given(
    histories(), st.one_of(st.none(), st.integers(0, 20)), st.one_of(st.none(), st.integers(0, 400))
)
def test_a_window_is_valid_short_enough_and_as_long_as_can_be(messages, most, tokens):
    kept = _last(messages, most, tokens, rough_tokens)
    if kept is None:
        kept = messages
    check_history(kept)
    # What was kept is the end of the history, and before it the user's message that it answers.
    start = next((n for n in range(len(messages) + 1) if messages[n:] == kept), None)
    if start is None:
        start = len(messages) - len(kept) + 1
        assert kept[1:] == messages[start:]
        users = [m for m in messages[:start] if isinstance(m, UserMessage)]
        assert kept[0] is users[-1]
    if any(isinstance(m, UserMessage) for m in messages[: start + 1]):
        assert isinstance(kept[0], UserMessage)
    group = last_group(messages)
    assert kept[-len(group) :] == group or not messages

    def fits(kept):
        return (most is None or len(kept) <= most) and (
            tokens is None or sum(map(rough_tokens, kept)) <= tokens
        )

    if not fits(kept):
        assert len(kept) <= len(group) + 1  # nothing but what must be sent
    elif kept != messages:
        # One more group would be too much.
        end = start - 1
        while end > 0 and isinstance(messages[end], ToolMessage):
            end -= 1
        users = [m for m in messages[:end] if isinstance(m, UserMessage)]
        pin = () if isinstance(messages[end], UserMessage) or not users else (users[-1],)
        longer = (*pin, *messages[end:])
        assert not fits(longer) or len(longer) == len(kept)


# ── in a chat ───────────────────────────────────────────────────────────────────────────────


@tool
async def look(n: int = 0) -> str:
    return f"seen {n}"


def sent(model):
    return [[m.role[0] for m in request.messages] for request in model.requests]


async def test_the_model_is_sent_the_last_messages_and_history_keeps_all():
    model = ScriptedModel(*["ok"] * 4)
    agent = Agent(model, hooks=[window(3)])
    conversation = Conversation()
    for n in range(4):
        await agent.chat(f"{n}", conversation=conversation)
    assert sent(model) == [["u"], ["u", "a", "u"], ["u", "a", "u"], ["u", "a", "u"]]
    assert len(conversation.messages) == 8
    assert model.requests[-1].messages[0].text == "2"


async def test_a_long_row_of_calls_keeps_the_question_that_began_it():
    model = ScriptedModel(*[call("look", n=n) for n in range(6)], "ok")
    agent = Agent(model, tools=[look], hooks=[window(5)])
    await agent.chat("the question")
    assert sent(model)[-1] == ["u", "a", "t", "a", "t"]
    assert model.requests[-1].messages[0].text == "the question"


async def test_a_last_group_that_is_larger_is_sent_whole():
    calls = [call("look", n=n) for n in range(6)]
    model = ScriptedModel(calls, "ok")
    agent = Agent(model, tools=[look], hooks=[window(2)])
    await agent.chat("go")
    assert sent(model)[-1] == ["u", "a", *"tttttt"]


async def test_tokens_are_counted_as_one_likes():
    model = ScriptedModel(*["ok"] * 3)
    agent = Agent(model, hooks=[window(tokens=10, count=lambda m: len(m.text))])
    conversation = Conversation()
    for text in ("1234567", "1234", "12"):
        await agent.chat(text, conversation=conversation)
    assert [len(each) for each in sent(model)] == [1, 1, 3]


def test_a_window_without_a_size_is_refused():
    with pytest.raises(UsageError, match="window"):
        window()


@given(histories(), st.integers(1, 12), st.integers(1, 12), st.booleans())
def test_a_cut_window_is_a_valid_history_that_ends_with_the_last_message(
    history, most, keep, in_tokens
):
    keep = min(most, keep)
    high, low = (None, most * 20), (None, keep * 20)
    if not in_tokens:
        high, low = (most, None), (keep, None)
    tail = _since_cut(history, Marks(*high, *low, rough_tokens))
    if tail is not None:
        check_history(tail)
        assert tail[-1] == history[-1]
        group = len(last_group(history)) + 1  # and the question that it answers
        size = sum(map(rough_tokens, tail)) if in_tokens else len(tail)
        assert size <= (high[1] if in_tokens else high[0]) or len(tail) <= group


async def test_keep_cuts_rarely_so_that_most_requests_begin_like_the_one_before():
    model = ScriptedModel(*[call("look", n=n) for n in range(40)], "ok")
    agent = Agent(model, tools=[look], hooks=[window(40, keep=10)], limits=Limits(steps=50))
    await agent.chat("go")
    requests = [[message.to_json() for message in r.messages] for r in model.requests]
    prefix = sum(
        len(text)
        for before, after in pairwise(requests)
        for text, _ in takewhile(lambda pair: pair[0] == pair[1], zip(after, before, strict=False))
    )
    assert len(requests) == 41
    assert max(map(len, requests)) <= 40
    assert prefix / sum(len(text) for request in requests[1:] for text in request) >= 0.85


@pytest.mark.parametrize(
    "options",
    [
        {"keep": 3},
        {"messages": 3, "keep": 4},
        {"messages": 3, "keep": 0},
        {"messages": 3, "keep": 2, "tokens": 9},
    ],
    ids=["no messages", "more than messages", "none", "with tokens"],
)
def test_a_keep_that_cannot_apply_is_refused(options):
    with pytest.raises(UsageError, match="window"):
        window(**options)


# ── truncate ────────────────────────────────────────────────────────────────────────────────


def results(response):
    return [m.text for m in response.messages if m.role == "tool"]


def reading(value, hook):
    @tool
    async def read() -> object:
        if isinstance(value, Exception):
            raise value
        return value

    return Agent(ScriptedModel(call("read"), "ok"), tools=[read], hooks=[hook])


async def test_a_long_text_is_cut_and_says_so():
    seen = []
    agent = reading("x" * 10_500, truncate(10_000))
    agent.add_hook("onToolCallResult", lambda ctx: seen.append(ctx.result.truncated), priority=-1)
    (text,) = results(await agent.chat("go"))
    assert text == "x" * 10_000 + "\n[500 characters left out]"
    assert seen == [True]


async def test_the_end_may_be_kept_too():
    (text,) = results(await reading("a" * 50 + "b" * 50, truncate(20, tail=5)).chat("go"))
    assert text == "a" * 15 + "\n[80 characters left out]\n" + "b" * 5


@pytest.mark.parametrize(
    "value", ["x" * 20, "", {"a": [1]}, None, 3], ids=["text", "empty", "data", "none", "number"]
)
async def test_what_is_short_enough_stays_as_it_is(value):
    (text,) = results(await reading(value, truncate(20)).chat("go"))
    assert text == (value if isinstance(value, str) else json.dumps(value, separators=(",", ":")))


async def test_other_values_are_cut_as_json():
    (text,) = results(await reading({"rows": list(range(100))}, truncate(12)).chat("go"))
    assert text.startswith('{"rows":[0,1\n[')


async def test_errors_are_cut_too():
    (text,) = results(await reading(ValueError("x" * 99), truncate(10)).chat("go"))
    assert json.loads(text)["error"]["message"] == "x" * 10 + "\n[89 characters left out]"


async def test_for_some_tools_alone():
    (text,) = results(await reading("x" * 99, truncate(10, tools=["other"])).chat("go"))
    assert text == "x" * 99


@pytest.mark.parametrize(
    "wrong", [(-1, 0), (10, 11), (10, -1)], ids=["limit", "tail above", "tail below"]
)
def test_sizes_that_cannot_be_are_refused(wrong):
    limit, tail = wrong
    with pytest.raises(UsageError, match=r"limit=|tail="):
        truncate(limit, tail=tail)


@settings(max_examples=100)
@given(st.text(max_size=300), st.integers(0, 60), st.integers(0, 60))
def test_so_many_characters_are_kept_and_no_more(text, head, tail):
    hook = truncate(head + tail, tail=tail)[0]

    class Ctx:
        result = ToolResult(text)

    changed = hook(Ctx)
    if len(text) <= head + tail:
        assert changed is None
        return
    assert changed.value.startswith(text[:head])
    if tail and not text.endswith("\n"):
        assert changed.value.endswith(text[-tail:])
    assert len(changed.value) <= head + tail + len("\n[300 characters left out]\n")
