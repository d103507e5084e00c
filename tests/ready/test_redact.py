"""`redact`: shown = stored = traced, however the text is cut."""

import asyncio
import json
import re

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests._event_grammar import check_events

from hookline import (
    Agent,
    Approve,
    Ask,
    Continue,
    Conversation,
    Deny,
    File,
    MessageChanges,
    ModelResponse,
    Reasoning,
    Run,
    Stop,
    Text,
    ToolCall,
    ToolFailure,
    ToolResult,
    UserMessage,
    check_history,
    tool,
)
from hookline.errors import ChatAbortedError, ModelError, StopChat, UsageError
from hookline.events import ReasoningDelta, ResponseReset, TextDelta, ToolCallDelta, ToolCallStarted
from hookline.hooks import redact, retry
from hookline.hooks._text.text_redactor import Pieces, Redactor
from hookline.models import Finish, PartEndChunk, ReasoningChunk, TextChunk
from hookline.testing import ScriptedModel, Turn, call, collect, raw_call

EMAIL = r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+"
CARD = r"\b\d{13,16}\b"
KEY = r"sk-[A-Za-z0-9]{8,}"
SECRET = "s3cr3t pass"


def redactor(*patterns, values=(), hold=128, words=False):
    return Redactor(patterns, values, "[x]", hold, words)


def streamed(redactor, pieces):
    stream = Pieces(redactor)
    out = [stream.feed(piece) for piece in pieces]
    return [*out, stream.feed("", last=True)]


def whole(text, *patterns, values=()):
    """What re.sub makes of the whole text, for patterns that do not overlap."""
    parts = [re.escape(value) for value in sorted(values, key=len, reverse=True)]
    return re.sub("|".join(f"(?:{each})" for each in [*patterns, *parts]), "[x]", text)


# ── the stream and the whole text ───────────────────────────────────────────────────────────

NAMES = st.text("abc.-+_1", min_size=1, max_size=20)
SECRETS = st.one_of(
    st.builds("{}@{}.org".format, NAMES, st.text("abc-", min_size=1, max_size=12)),
    st.text("0123456789", min_size=10, max_size=20),
    st.builds("sk-{}".format, st.text("aB3", max_size=30)),
    st.just(SECRET),
    st.text("s3cr t", max_size=12),  # nearly
)
PLAIN = st.text("ab @.-1ské\n…", max_size=40)
TEXTS = st.lists(st.one_of(SECRETS, PLAIN), max_size=8).map("".join)


@st.composite
def cut(draw, texts):
    """A text, and the pieces that it comes in."""
    text = draw(texts)
    places = sorted(draw(st.lists(st.integers(0, len(text)), max_size=len(text))))
    pieces = [text[a:b] for a, b in zip([0, *places], [*places, len(text)], strict=True)]
    return text, pieces


@settings(max_examples=400)
@given(cut(TEXTS))
@example(("a@b.c.d", ["a@b.c", ".d"]))
@example(("x sk-aaaaaaaa", ["x sk-", "aaaa", "aaaa"]))
def test_a_stream_gives_what_the_whole_text_gives_however_it_is_cut(made):
    text, pieces = made
    patterns = (EMAIL, CARD, KEY)
    both = redactor(*patterns, values=[SECRET])
    assert "".join(streamed(both, pieces)) == both.text(text)
    if SECRET not in text:  # which may overlap with a card's number
        assert both.text(text) == whole(text, *patterns)


RUNS = (r"[ab]+1", r"\w+-\w+", r"[^ -]+[ -]1", r"a+(?<=aa)b|1-", r"[\]a]+b\b", r"(?i)[A]+1")


@pytest.mark.parametrize("pattern", RUNS)
@given(text=st.text("ab1 -]A", max_size=40))
def test_a_search_that_skips_the_middle_of_runs_finds_the_same(pattern, text):
    assert redactor(pattern).text(text) == re.sub(pattern, "[x]", text)


def test_a_long_word_is_read_in_one_pass():
    """A search from each of its places would take hours."""
    word = "a" * 2_000_000
    assert redactor(EMAIL).text(f"{word} a@b.c {word}") == f"{word} [x] {word}"


class Counted:
    """A pattern that counts the characters that it is given to look at."""

    def __init__(self, pattern):
        self.pattern = re.compile(pattern)
        self.looked_at = 0

    def match(self, raw, place):
        self.looked_at += len(raw) - place
        return self.pattern.match(raw, place)

    def finditer(self, raw, place):
        self.looked_at += len(raw) - place
        return self.pattern.finditer(raw, place)


@pytest.mark.parametrize("words", [False, True], ids=["text", "words"])
@pytest.mark.parametrize(
    "word", ["a" * 8000, "a@" + "b." * 1000, "a@" + "b" * 1999], ids=["word", "match", "not yet"]
)
def test_a_character_costs_the_same_however_long_its_word_is(word, words):
    made = redactor(EMAIL, words=words)
    counted = Counted(EMAIL)
    made.searches = [(counted, counted)]
    stream = Pieces(made)
    costs = []
    for start in range(0, len(word), 1000):
        before = counted.looked_at
        for character in word[start : start + 1000]:
            stream.feed(character)
        costs.append((counted.looked_at - before) / 1000)
    assert max(costs) <= 2 * made.hold


@settings(max_examples=200)
@given(cut(TEXTS))
def test_words_are_the_same_and_are_let_go_sooner(made):
    text, pieces = made
    slow, fast = redactor(EMAIL, KEY), redactor(EMAIL, KEY, words=True)
    assert "".join(streamed(fast, pieces)) == "".join(streamed(slow, pieces)) == fast.text(text)


@settings(max_examples=200)
@given(cut(st.text("abc ", max_size=60)), st.lists(st.text("abc ", min_size=1, max_size=6)))
def test_values_are_found_whatever_they_are(made, values):
    text, pieces = made
    if not values:
        return
    both = redactor(values=values)
    shown = "".join(streamed(both, pieces))
    assert shown == both.text(text) == whole(text, values=values)
    assert not any(value in shown for value in values if "x" not in value)


@settings(max_examples=200)
@given(cut(TEXTS), st.sampled_from([8, 32, 128]))
def test_what_is_held_back_is_bounded(made, hold):
    """No more than `hold`, but for a match that may still grow."""
    _, pieces = made
    stream = Pieces(redactor(r"\d{1,4}", hold=hold))
    come = shown = 0
    for piece in pieces:
        come += len(piece)
        out = stream.feed(piece)
        shown += len(out.replace("[x]", ""))
        held = stream._raw[stream._at :]
        assert len(held) <= hold + 4 + len(piece)
        assert len(stream._raw) <= 2 * hold + 4 + len(piece)


@settings(max_examples=200)
@given(cut(st.text("ab1 ", max_size=80)))
def test_patterns_that_match_nothing_in_places_look_at_neighbours_and_overlap(made):
    text, pieces = made
    odd = (r"(?=1)|(?<=b)1+", r"\b|a1b", r"(?<!a)b{2,}(?!b)", r"^a", r"b$")
    patterns = [each for each in odd if not re.match(each, "")]
    both = redactor(*patterns, hold=100)
    assert "".join(streamed(both, pieces)) == both.text(text)


def test_words_are_shown_as_soon_as_they_end():
    stream = Pieces(redactor(EMAIL, words=True))
    assert [stream.feed(each) for each in ["Hel", "lo ", "a@b", ".c", " and"]] == [
        "",
        "Hello ",
        "",
        "",
        "[x] ",
    ]


def test_a_match_without_end_withholds_the_rest():
    """A pattern that never stops cannot be held back for ever; nothing of it is shown."""
    stream = Pieces(redactor(r"KEY:[\s\S]*", hold=10))
    shown = stream.feed("before KEY:") + "".join(stream.feed("secret " * 10) for _ in range(10))
    assert shown == "before [x]"
    assert len(stream._raw) < 100
    assert stream.feed("", last=True) == ""
    assert stream.feed("next text", last=True) == "next text"


def test_what_looks_back_sees_what_was_already_shown():
    pieces = ["#" + "-" * 40, "12", "34"]
    both = redactor(r"(?<=-)\d+", r"^#", hold=8)
    assert "".join(streamed(both, pieces)) == both.text("".join(pieces)) == "[x]" + "-" * 40 + "[x]"
    late = redactor(r"^a", hold=4)
    assert "".join(streamed(late, ["b" * 30, "a" * 5])) == "b" * 30 + "a" * 5


@pytest.mark.parametrize(
    "nothing",
    [{}, {"values": [""]}, {"patterns": [r"\d*"]}],
    ids=["none", "empty value", "empty match"],
)
def test_what_would_match_everywhere_or_nowhere_is_refused(nothing):
    with pytest.raises(UsageError, match="redact"):
        redact(*nothing.get("patterns", ()), values=nothing.get("values", ()))


def test_what_is_in_json_data_is_found_keys_and_all():
    data = {"a@b.org": [{"to": "x a@b.org"}, 3, None, True], "n": 1.5}
    assert redactor(EMAIL).data(data) == {"[x]": [{"to": "x [x]"}, 3, None, True], "n": 1.5}


def test_numbers_that_match_become_text_and_others_stay_numbers():
    data = {"card": 4111111111111111, "cents": [4.25, 425], "ok": True, "of": None}
    clean = redactor(r"\d{16}", r"4\.25").data(data)
    assert clean == {"card": "[x]", "cents": ["[x]", 425], "ok": True, "of": None}
    assert clean["ok"] is True


def test_keys_that_become_equal_keep_all_their_values():
    data = {
        "a@b.org": 1,
        "[x]": 2,
        "c@d.org": 3,
        "[x]²": 4,
        "e@f.org": {"g@h.org": 5, "i@j.org": 6},
    }
    both = redactor(EMAIL)
    clean = both.data(data)
    assert clean == {"[x]³": 1, "[x]": 2, "[x]⁴": 3, "[x]²": 4, "[x]⁵": {"[x]": 5, "[x]²": 6}}
    assert both.data(clean) == clean


@given(
    st.dictionaries(
        st.sampled_from(["1", "2", "12", "a", "1a", "a1", "[x]", "[x]²", "[x][x]"]), st.booleans()
    )
)
def test_no_value_is_lost_and_redacting_twice_changes_nothing(data):
    for both in (redactor(r"\d+"), redactor(r"(?<=a)\S+", r"1"), redactor(values=["1", "a"])):
        clean = both.data(data)
        assert list(clean.values()) == list(data.values())
        assert both.data(clean) == clean


def test_ten_thousand_keys_that_become_equal_stay_short():
    clean = redactor(EMAIL).data({f"n{n}@b.org": n for n in range(10_000)})
    assert list(clean.values()) == list(range(10_000))
    assert max(map(len, clean)) <= 8


@pytest.mark.parametrize("what", [("[a-z]+",), {"values": ["ted"]}], ids=["pattern", "value"])
def test_a_replacement_that_would_be_redacted_itself_is_refused(what):
    """It would grow each time: in the stream, in the answer and in the message."""
    with pytest.raises(UsageError, match="choose another replacement"):
        redact(**what) if isinstance(what, dict) else redact(*what)
    assert redact(".+")
    assert redact("[a-z]+", values=["ted"], replacement="***")


def test_a_function_may_say_what_stands_in_its_place():
    assert Redactor([EMAIL], [], lambda found: f"<{len(found)}>", 8, False).text("a@b.c") == "<5>"


# ── in a chat ───────────────────────────────────────────────────────────────────────────────


def agent_of(*turns, tools=(), chunk=3, **options):
    hooks = redact(EMAIL, values=[SECRET], **options)
    return Agent(ScriptedModel(*turns, chunk=chunk), tools=tools, hooks=[hooks])


def everything(events, conversation):
    """All that a reader, a subscriber and the store have of a chat, as text."""
    return "\n".join(
        [event.to_json().decode() for event in events]
        + [message.to_json().decode() for message in conversation.messages]
    )


def assert_clean(text):
    assert "@" not in text
    assert "s3cr" not in text


@settings(max_examples=60)
@given(TEXTS, st.integers(1, 9))
def test_shown_is_stored_is_traced(text, chunk):
    async def run():
        agent = agent_of(Turn(text=text or "x", chunk=chunk))
        traced = []
        agent.add_hook("onResponse", lambda ctx: traced.append(ctx.response.text), priority=-99999)
        conversation = Conversation()
        events = await collect(agent.chat_stream("hi", conversation=conversation))
        shown = "".join(each.text for each in events if isinstance(each, TextDelta))
        stored = "".join(m.text for m in conversation.messages if m.role == "assistant")
        expected = Redactor([EMAIL], [SECRET], "[redacted]", 128, False).text(text or "x")
        assert [each for each in events if isinstance(each, ResponseReset)] == []
        if expected.strip():
            assert shown.lstrip() == stored.lstrip() == traced[0].lstrip() == expected.lstrip()
        else:
            assert shown == stored == ""

    asyncio.run(run())


@pytest.mark.parametrize("release", ["live", "response"])
async def test_nothing_of_it_is_anywhere_not_in_events_messages_hooks_or_requests(release):
    @tool
    async def look(where: str, run: Run) -> dict[str, object]:
        return {"mails": ["me@home.org"], where: f"{SECRET}!"}

    @tool
    async def fail(where: str) -> str:
        raise ValueError(f"no {where} for {SECRET}")

    turns = (
        Turn(
            reasoning=f"ask a@b.org, {SECRET}",
            text="I ask a@b.org.",
            tool_calls=[call("look", where="c@d.org"), call("fail", where="c@d.org")],
        ),
        f"They are me@home.org and {SECRET}",
    )
    agent = agent_of(*turns, tools=[look, fail])
    seen = []
    for point in ("preRequest", "onResponse", "onMessage", "onToolCallResult", "onToolCallError"):
        agent.add_hook(point, lambda ctx: seen.append(repr(ctx)))

    async def outside(ctx, proceed):
        result = await proceed()
        seen.append(repr(result))
        return result

    agent.add_hook("aroundToolCall", outside)
    agent.add_hook("aroundRequest", outside)

    conversation = Conversation()
    message = UserMessage(
        parts=(Text("I am me@home.org"), File(media_type="text/plain", data=b"x"))
    )
    stream = agent.chat_stream(message, conversation=conversation, release=release)
    events = await collect(stream)
    check_events(events)
    text = everything(events, conversation)
    assert_clean(text)
    assert text.count("[redacted]") > 10
    assert '"part":"file"' in text
    assert_clean("\n".join(seen))
    assert conversation.messages[1].tool_calls[0].arguments == {"where": "[redacted]"}
    assert not [each for each in events if isinstance(each, ToolCallDelta)]


async def test_arguments_may_be_left_alone():
    got = []

    @tool
    async def mail(to: str) -> str:
        got.append(to)
        return f"sent to {to}"

    agent = agent_of(call("mail", to="a@b.org"), "ok", tools=[mail], arguments=False)
    conversation = Conversation()
    events = await collect(agent.chat_stream("hi", conversation=conversation))
    assert got == ["a@b.org"]
    assert conversation.messages[2].text == "sent to [redacted]"
    assert [each for each in events if isinstance(each, ToolCallDelta)]


async def test_arguments_that_are_no_json_are_redacted_too():
    @tool
    async def mail(to: str) -> str:
        return "sent"

    agent = agent_of(raw_call("mail", '{"to": "a@b.org'), "ok", tools=[mail])
    conversation = Conversation()
    events = await collect(agent.chat_stream("hi", conversation=conversation))
    assert_clean(everything(events, conversation))


async def test_what_other_hooks_put_in_is_redacted_too():
    @tool
    async def look() -> str:
        return "fine"

    agent = agent_of(call("look"), call("look"), call("nope"), "an answer", tools=[look])
    agent.add_hook("onToolCallResult", lambda ctx: ctx.result.replace(value=SECRET))
    agent.add_hook("onToolCallError", lambda ctx: ToolFailure("ask a@b.org"))
    agent.add_hook("onResponse", lambda ctx: ctx.response.replace(text=f"{SECRET} it is"))
    agent.add_hook(
        "preToolCall",
        lambda ctx: ToolResult("a@b.org") if ctx.iteration else None,
    )
    agent.add_hook("onStep", lambda ctx: Stop("enough", SECRET) if ctx.iteration == 2 else None)
    conversation = Conversation()
    events = await collect(agent.chat_stream("hi", conversation=conversation))
    text = everything(events, conversation)
    assert_clean(text)
    assert text.count("[redacted]") > 5


async def test_an_answer_that_a_hook_gave_is_redacted():
    agent = agent_of()
    agent.add_hook("preRequest", lambda ctx: ModelResponse.of("Mail a@b.org"))
    assert (await agent.chat("hi")).text == "Mail [redacted]"


async def test_input_of_a_continuation_is_redacted():
    agent = agent_of("one", "two")
    agent.add_hook("preStop", lambda ctx: None if ctx.continuations else Continue("and a@b.org?"))
    response = await agent.chat("hi")
    assert [m.text for m in response.messages if m.role == "user"] == ["hi", "and [redacted]?"]


async def test_what_was_held_back_of_a_broken_answer_is_not_in_the_next():
    agent = agent_of(Turn("Write to a@b", fail=ModelError("cut", retryable=True)), "It is fine.")

    async def no_time(seconds):
        pass

    await agent.use(retry(sleep=no_time))
    events = await collect(agent.chat_stream("hi"))
    shown = "".join(each.text for each in events if isinstance(each, TextDelta))
    assert shown == "It is fine."


async def test_what_was_held_back_when_the_chat_was_aborted_is_not_kept():
    agent = agent_of(Turn("Hello " * 50 + "a@b", ".org", delay=None, chunk=0))
    agent.add_hook(
        "onDelta", lambda ctx: void(ctx.run.abort("enough")) if ctx.delta.text == ".org" else None
    )
    conversation = Conversation()
    with pytest.raises(ChatAbortedError):
        await agent.chat("hi", conversation=conversation)
    (_, partial) = conversation.messages
    assert partial.partial
    assert "Hello " in partial.text
    assert_clean(partial.text)


def void(value):
    return None


async def test_reasoning_that_was_changed_loses_its_signature_and_other_keeps_it():
    chunks = [
        ReasoningChunk("Ask a@b.org"),
        PartEndChunk("reasoning", {"signature": "1"}),
        ReasoningChunk("Fine"),
        PartEndChunk("reasoning", {"signature": "2"}),
        TextChunk("ok"),
        Finish(),
    ]
    agent = agent_of(Turn(raw_chunks=chunks))
    conversation = Conversation()
    events = await collect(agent.chat_stream("hi", conversation=conversation))
    parts = conversation.messages[1].parts
    assert [(p.text, p.meta) for p in parts[:2]] == [
        ("Ask [redacted]", None),
        ("Fine", {"signature": "2"}),
    ]
    resets = [n for n, each in enumerate(events) if isinstance(each, ResponseReset)]
    last = events[resets[-1] if resets else 0 :]
    assert "".join(e.text for e in last if isinstance(e, ReasoningDelta)) == "Ask [redacted]Fine"


async def test_a_thousand_chats_side_by_side_do_not_mix_what_is_held_back():
    async def answer(request):
        name = request.messages[-1].text
        await asyncio.sleep(0)
        return Turn(f"{name} a@", "b.org ", f"is {name}", delay=lambda: asyncio.sleep(0))

    agent = agent_of(*[answer] * 1000)
    responses = await asyncio.gather(*(agent.chat(f"n{n}") for n in range(1000)))
    assert [r.text for r in responses] == [f"n{n} [redacted] is n{n}" for n in range(1000)]


async def test_it_forgets_a_chat_when_it_ends_however_it_ends():
    hooks = redact(EMAIL)
    streams = hooks[2].fn.__self__.streams
    boom = Turn("a@", fail=ValueError("boom"))
    agent = Agent(ScriptedModel("ok", boom, "ok"), hooks=[hooks])
    await agent.chat("hi")
    with pytest.raises(ValueError, match="boom"):
        await agent.chat("hi")
    async with agent.chat_stream("hi") as stream:
        async for _ in stream:
            break
    assert len(streams) == 0


async def test_it_follows_into_sub_agents():
    kid = Agent(ScriptedModel("mail a@b.org"), name="kid")
    mum = Agent(
        ScriptedModel(call("kid", input="ask c@d.org"), "done"),
        tools=[kid.as_tool()],
        hooks=[redact(EMAIL)],
    )
    conversation = Conversation()
    events = await collect(mum.chat_stream("go", conversation=conversation))
    assert_clean(everything(events, conversation))


async def test_what_is_asked_and_approved_is_redacted():
    ran = []

    @tool
    async def mail(to: str) -> str:
        ran.append(to)
        return "sent"

    agent = agent_of(call("mail", to="a@b.org"), "ok", tools=[mail])
    agent.add_hook("preToolCall", lambda ctx: Ask("May I?"))
    conversation = Conversation()
    response = await agent.chat("hi", conversation=conversation)
    (request,) = response.pending
    assert_clean(request.to_json().decode())
    await agent.resume(conversation, {request.id: Approve()})
    assert ran == ["[redacted]"]


@pytest.mark.parametrize("writer", ["an approver", "a later hook", "a wrapper"])
async def test_no_tool_gets_a_secret_that_was_written_into_a_call_later(writer):
    got = []

    def send(text: str) -> str:
        """Send a text."""
        got.append(text)
        return "sent"

    async def wrap(ctx, proceed):
        return await proceed(ctx.call.replace(arguments={"text": SECRET}))

    agent = agent_of(call("send", text="hi"), "Done.", tools=[send])
    if writer == "an approver":
        agent.add_hook("preToolCall", lambda ctx: Ask("Sure?"))
    elif writer == "a later hook":
        change = {"text": SECRET}
        agent.add_hook(
            "preToolCall", lambda ctx: ctx.call.replace(arguments=change), priority=-20_000
        )
    else:
        agent.add_hook("aroundToolCall", wrap)
    approver = lambda request, run: Approve(arguments={"text": SECRET})  # noqa: E731
    talk = Conversation()
    stream = agent.chat_stream("Hi.", conversation=talk, approver=approver)
    events = await collect(stream)
    assert got == []
    assert [result.outcome for result in stream.response.tool_results] == ["denied"]
    assert "make the call without this text" in stream.response.tool_results[0].text
    if writer != "a later hook":  # one that runs after `redact` shows it in ToolCallStarted
        assert_clean(everything(events, talk))


async def test_a_call_that_a_guard_denies_is_recorded_without_the_secret_of_its_approver():
    @tool
    async def send(text: str) -> str:
        return "sent"

    agent = agent_of(call("send", text="hi"), "Done.", tools=[send])
    agent.add_hook("preToolCall", lambda ctx: Deny("no") if ctx.again else Ask("?"), guard=True)
    talk = Conversation()
    approver = lambda request, run: Approve(arguments={"text": SECRET})  # noqa: E731
    events = await collect(agent.chat_stream("Hi.", conversation=talk, approver=approver))
    (message,) = [message for message in talk.messages if message.role == "tool"]
    assert message.outcome == "denied"
    assert message.ran.arguments == {"text": "[redacted]"}
    assert_clean(everything(events, talk))


async def test_a_number_is_redacted_wherever_it_is_shown_and_what_is_stored_stays_json():
    @tool
    async def card(number: str) -> dict[str, int]:
        return {"card": 4111111111111111}

    agent = Agent(
        ScriptedModel(call("card", number=4111111111111111), call("card", number="x"), "done"),
        tools=[card],
        hooks=[redact(r"\b\d{16}\b")],
    )
    conversation = Conversation()
    events = await collect(agent.chat_stream("go", conversation=conversation))
    assert "4111111111111111" not in everything(events, conversation)
    found = [each for each in conversation.messages if each.role == "tool"]
    assert [json.loads(each.text) for each in found] == [{"card": "[redacted]"}] * 2


@pytest.mark.parametrize("how", ["tool", "hook"])
async def test_the_reason_of_a_stop_is_redacted(how):
    @tool
    async def mail() -> str:
        raise StopChat("ask joe@example.com")

    agent = Agent(ScriptedModel(call("mail")), tools=[mail], hooks=[redact(EMAIL)])
    if how == "hook":
        agent.add_hook("preToolCall", lambda ctx: Stop("ask joe@example.com"))
    conversation = Conversation()
    events = await collect(agent.chat_stream("go", conversation=conversation))
    assert "joe" not in everything(events, conversation)
    assert events[-1].response.stop_reason == "ask [redacted]"


async def test_the_message_that_starts_a_chat_is_shown_redacted():
    agent = agent_of("ok")
    first = (await collect(agent.chat_stream("I am a@b.org")))[0]
    assert first.message.text == "I am [redacted]"
    assert json.loads(first.to_json())["message"]["parts"][0]["text"] == "I am [redacted]"


async def test_started_calls_show_the_arguments_as_redacted():
    @tool
    async def mail(to: str) -> str:
        return "sent"

    agent = agent_of(call("mail", to="a@b.org"), "ok", tools=[mail])
    events = await collect(agent.chat_stream("hi"))
    (started,) = [each for each in events if isinstance(each, ToolCallStarted)]
    assert started.call.arguments == {"to": "[redacted]"}


# ── the small roads ─────────────────────────────────────────────────────────────────────────


TOKEN = "sk-s3cr3t123"  # which ids and names can have


@pytest.mark.parametrize("arguments", [True, False])
async def test_ids_of_calls_and_invented_names_of_tools_are_redacted(arguments):
    calls = [
        ToolCall(id=f"id-{TOKEN}", name=f"no-{TOKEN}", meta={"service": {"id": TOKEN}}),
        ToolCall(id=f"id_{TOKEN}", name="look"),
        ToolCall(id=f"id_{TOKEN}", name="look"),
    ]

    @tool
    async def look() -> str:
        return "seen"

    model = ScriptedModel(Turn(tool_calls=calls), "Done.")
    agent = Agent(model, tools=[look], hooks=redact(KEY, arguments=arguments))
    conversation = Conversation()
    events = await collect(agent.chat_stream("hi", conversation=conversation))
    assert_clean(everything(events, conversation))
    assert [message.outcome for message in conversation.messages[2:5]] == ["error", "ok", "ok"]
    check_history(conversation.messages)


async def test_a_tool_whose_own_name_matches_still_runs():
    @tool(name=TOKEN)
    async def look() -> str:
        return "seen"

    model = ScriptedModel(call(TOKEN), "Done.")
    response = await Agent(model, tools=[look], hooks=redact(KEY)).chat("hi")
    assert response.tool_results[0].outcome == "ok"


async def test_the_changes_of_a_stored_message_are_redacted():
    agent = agent_of("Hello.")
    conversation = Conversation()
    await agent.chat("hi", conversation=conversation)
    first, last = conversation.messages
    await agent.update_message(conversation, first.id, MessageChanges(text=f"Is it {SECRET}?"))
    parts = (Reasoning(f"It is {SECRET}."), Text(f"Yes, {SECRET}."))
    await agent.update_message(conversation, last.id, MessageChanges(parts=parts))
    assert [message.text for message in conversation.messages] == [
        "Is it [redacted]?",
        "Yes, [redacted].",
    ]
    assert_clean(everything([], conversation))
