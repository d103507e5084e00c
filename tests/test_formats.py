"""Histories in the formats of OpenAI and Anthropic, read and written."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hookline import (
    AssistantMessage,
    Conversation,
    File,
    Image,
    Message,
    Reasoning,
    Text,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from hookline.errors import UsageError
from hookline.formats import from_anthropic, from_openai, to_anthropic, to_openai

OPENAI: list[dict[str, Any]] = [
    {"role": "system", "content": "Be kind."},
    {"role": "developer", "content": [{"type": "text", "text": "Be brief."}]},
    {"role": "user", "content": "Is it raining?"},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {
                "id": "call_1",
                "type": "function",
                "function": {"name": "weather", "arguments": '{"city":"Oslo"}'},
            },
            {
                "id": "call_2",
                "type": "function",
                "function": {"name": "weather", "arguments": '{"city": "Oslo'},
            },
        ],
    },
    {"role": "tool", "tool_call_id": "call_1", "content": "rain"},
    {"role": "tool", "tool_call_id": "call_2", "content": [{"type": "text", "text": "?"}]},
    {"role": "assistant", "content": "Yes."},
    {
        "role": "user",
        "content": [
            {"type": "text", "text": "And here?"},
            {"type": "image_url", "image_url": {"url": "data:image/gif;base64,AAE="}},
            {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}},
            {
                "type": "file",
                "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,AAE="},
            },
        ],
    },
    {"role": "assistant", "refusal": "I cannot say.", "content": None},
]


def test_a_history_of_openai_is_read() -> None:
    found = from_openai(OPENAI)
    assert found.system == "Be kind.\n\nBe brief."
    assert found.messages == (
        UserMessage(parts=(Text("Is it raining?"),)),
        AssistantMessage(
            parts=(
                ToolCall(id="call_1", name="weather", arguments={"city": "Oslo"}),
                ToolCall(id="call_2", name="weather", raw='{"city": "Oslo'),
            )
        ),
        ToolMessage(call_id="call_1", name="weather", text="rain"),
        ToolMessage(call_id="call_2", name="weather", text="?"),
        AssistantMessage(parts=(Text("Yes."),)),
        UserMessage(
            parts=(
                Text("And here?"),
                Image(media_type="image/gif", data=b"\x00\x01"),
                Image(url="https://example.com/a.png"),
                File(media_type="application/pdf", name="a.pdf", data=b"\x00\x01"),
            )
        ),
        AssistantMessage(parts=(Text("I cannot say."),)),
    )
    Conversation(found.messages)  # and it is one


ANTHROPIC: dict[str, Any] = {
    "system": [{"type": "text", "text": "Be kind."}, {"type": "text", "text": "Be brief."}],
    "messages": [
        {"role": "user", "content": "Is it raining?"},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "Hm.", "signature": "sig"},
                {"type": "redacted_thinking", "data": "xyz"},
                {"type": "text", "text": "I look."},
                {"type": "tool_use", "id": "t1", "name": "weather", "input": {"city": "Oslo"}},
                {"type": "tool_use", "id": "t2", "name": "map", "input": {}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "t1", "content": "rain"},
                {
                    "type": "tool_result",
                    "tool_use_id": "t2",
                    "is_error": True,
                    "content": [
                        {"type": "text", "text": "half a map"},
                        {
                            "type": "image",
                            "source": {
                                "type": "base64",
                                "media_type": "image/png",
                                "data": "AAE=",
                            },
                        },
                    ],
                },
                {"type": "text", "text": "Well?"},
                {
                    "type": "document",
                    "title": "a.pdf",
                    "source": {"type": "url", "url": "https://example.com/a.pdf"},
                },
            ],
        },
        {"role": "assistant", "content": "Yes."},
    ],
}


def test_a_history_of_anthropic_is_read() -> None:
    found = from_anthropic(ANTHROPIC)
    assert found.system == "Be kind.\n\nBe brief."
    assert found.messages == (
        UserMessage(parts=(Text("Is it raining?"),)),
        AssistantMessage(
            parts=(
                Reasoning("Hm.", {"anthropic": {"signature": "sig"}}),
                Reasoning("", {"anthropic": {"data": "xyz"}}),
                Text("I look."),
                ToolCall(id="t1", name="weather", arguments={"city": "Oslo"}),
                ToolCall(id="t2", name="map"),
            )
        ),
        ToolMessage(call_id="t1", name="weather", text="rain"),
        ToolMessage(
            call_id="t2",
            name="map",
            text="half a map",
            outcome="error",
            media=(Image(media_type="image/png", data=b"\x00\x01"),),
        ),
        UserMessage(
            parts=(
                Text("Well?"),
                File(media_type="application/pdf", name="a.pdf", url="https://example.com/a.pdf"),
            )
        ),
        AssistantMessage(parts=(Text("Yes."),)),
    )
    Conversation(found.messages)


def test_what_was_read_is_written_as_it_was() -> None:
    read = from_anthropic(ANTHROPIC)
    again = to_anthropic(read.messages, system=read.system)
    assert from_anthropic(again) == read
    assert again["messages"][1] == ANTHROPIC["messages"][1]
    found = from_openai(OPENAI)
    written = to_openai(found.messages, system=found.system)
    assert written[0] == {"role": "system", "content": "Be kind.\n\nBe brief."}
    assert written[1] == OPENAI[2]
    assert written[2]["tool_calls"][0] == OPENAI[3]["tool_calls"][0]
    assert written[2]["tool_calls"][1]["function"]["arguments"] == "{}"  # bad text is not sent back
    assert written[6] == OPENAI[7]


def test_results_and_what_the_user_says_next_are_one_message_for_anthropic() -> None:
    written = to_anthropic(from_anthropic(ANTHROPIC).messages)
    assert "system" not in written
    assert [message["role"] for message in written["messages"]] == [
        "user", "assistant", "user", "assistant",
    ]  # fmt: skip


def test_reasoning_that_the_other_side_would_refuse_is_left_out() -> None:
    answer = AssistantMessage(parts=(Reasoning("hm", {"openai": {"id": "r"}}), Text("Yes.")))
    assert to_anthropic([answer])["messages"][0]["content"] == [{"type": "text", "text": "Yes."}]
    assert to_openai([answer]) == [{"role": "assistant", "content": "Yes."}]


@pytest.mark.parametrize("outcome", ["error", "denied", "stopped", "aborted"])
def test_every_result_that_is_none_is_an_error_to_anthropic(outcome: Any) -> None:
    result = ToolMessage(call_id="c", name="n", text="no", outcome=outcome)
    assert to_anthropic([result])["messages"][0]["content"][0]["is_error"] is True


# ── laws ────────────────────────────────────────────────────────────────────────────────────

words = st.text(min_size=1).filter(lambda text: text.strip() != "")
names = st.from_regex(r"[a-z_]{1,8}", fullmatch=True)
scalars = st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text()
arguments = st.dictionaries(st.text(max_size=5), scalars, max_size=3)


@st.composite
def histories(draw: st.DrawFn) -> list[Message]:
    """Turns of a user's text or picture, then an answer, perhaps after calls."""
    found: list[Message] = []
    for turn in range(draw(st.integers(1, 4))):
        picture = Image(data=draw(st.binary(max_size=5)), media_type="image/png")
        parts = (Text(draw(words)), picture) if draw(st.booleans()) else (Text(draw(words)),)
        found.append(UserMessage(parts=parts))
        calls = [
            ToolCall(id=f"c{turn}.{n}", name=draw(names), arguments=draw(arguments))
            for n in range(draw(st.integers(0, 3)))
        ]
        if calls:
            found.append(AssistantMessage(parts=tuple(calls)))
            found += [ToolMessage(call_id=c.id, name=c.name, text=draw(words)) for c in calls]
        found.append(AssistantMessage(parts=(Text(draw(words)),)))
    return found


@given(histories(), st.none() | words)
def test_writing_and_reading_gives_the_same(history: list[Message], system: str | None) -> None:
    openai = from_openai(to_openai(history, system=system))
    assert (openai.messages, openai.system) == (tuple(history), system)
    anthropic = from_anthropic(to_anthropic(history, system=system))
    assert (anthropic.messages, anthropic.system) == (tuple(history), system)


@given(
    st.recursive(
        scalars,
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(["role", "content", "type", "text", "tool_calls", "source", "id"]),
                inner | st.sampled_from(["user", "assistant", "tool", "text", "image", "tool_use"]),
                max_size=5,
            )
        ),
        max_leaves=20,
    )
)
def test_whatever_is_given_is_read_or_refused(data: Any) -> None:
    messages = data if isinstance(data, list) else [data]
    for read in (lambda: from_openai(messages), lambda: from_anthropic({"messages": messages})):
        with contextlib.suppress(UsageError):
            read()


# ── refusals ────────────────────────────────────────────────────────────────────────────────


def said(*parts: Any) -> list[dict[str, Any]]:
    return [{"role": "user", "content": list(parts)}]


def answered(**fields: Any) -> list[dict[str, Any]]:
    return [{"role": "assistant", "content": "x", **fields}]


@pytest.mark.parametrize(
    ("messages", "says"),
    [
        ([{"content": "x"}], "message 0: 'role' must be a str"),
        ([{"role": "oracle", "content": "x"}], "no role 'oracle'"),
        ([{"role": "user", "content": "x"}, {"role": "system", "content": "x"}], "before all"),
        ([{"role": "user", "content": 7}], "content must be a string or a list"),
        (said("x"), "part 0: this must be a dict, not a str"),
        (said({}), "part 0: 'type' must be"),
        (
            said({"type": "input_audio"}),
            "no parts of type 'input_audio'",
        ),
        (said({"type": "image_url", "image_url": {"url": "data:x"}}), "base64"),
        (said({"type": "image_url", "image_url": {"url": "data:a/b;base64,!"}}), "must be base64"),
        ([{"role": "tool", "content": "x"}], "'tool_call_id'"),
        ([{"role": "assistant", "tool_calls": [{"id": "c"}]}], "call 0: 'function'"),
        (["hello"], "must be a dict, not a str"),
        ([AssistantMessage(parts=())], "with their model_dump"),
        (answered(audio={"id": "a"}), "message 0: hookline messages have no field 'audio'"),
        (answered(function_call={"name": "f", "arguments": "{}"}), "no field 'function_call'"),
        (answered(reasoning_content="hm"), "no field 'reasoning_content'"),
        (answered(annotations=[{"type": "url_citation"}]), "no field 'annotations'"),
        ([{"role": "user", "name": "ada", "content": "x"}], "no field 'name'"),
        (answered(tool_calls=5), "'tool_calls' must be a list"),
        (
            answered(tool_calls=[{"id": "c", "function": {"name": "f", "arguments": [1]}}]),
            r"call 0: the arguments must be a JSON text, not \[1\]",
        ),
        (
            said({"type": "file", "file": {"filename": 5, "file_data": "data:a/b;base64,AAE="}}),
            "'filename' must be a str",
        ),
    ],
)
def test_what_cannot_be_read_of_openai_is_named(messages: Any, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        from_openai(messages)


@pytest.mark.parametrize(
    ("messages", "says"),
    [
        (None, "'messages' must be a list"),
        ([{"role": "system", "content": "x"}], "no role 'system'"),
        (
            said({"type": "search_result"}),
            "no parts of type 'search_result'",
        ),
        (said({"type": "image", "source": {"type": "file", "file_id": "f"}}), "type 'file'"),
        (said({"type": "tool_result"}), "'tool_use_id'"),
        ([{"role": "assistant", "content": [{"type": "server_tool_use"}]}], "server_tool_use"),
        (
            [{"role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": "n"}]}],
            "'input' must be a dict",
        ),
        (
            said({"type": "image", "source": {"type": "url", "url": "u", "media_type": 5}}),
            "'media_type' must be a str",
        ),
        (
            said(
                {
                    "type": "document",
                    "source": {"type": "url", "url": "u"},
                    "context": "It is old.",
                }
            ),
            "no field 'context'",
        ),
        (
            answered(content=[{"type": "thinking", "thinking": "x", "signature": 5}]),
            "'signature' must be a str",
        ),
        (answered(content=[{"type": "text", "text": "x", "citations": 5}]), "'citations' must be"),
    ],
)
def test_what_cannot_be_read_of_anthropic_is_named(messages: Any, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        from_anthropic({"messages": messages})


def test_what_cannot_be_written_is_named() -> None:
    with pytest.raises(UsageError, match="neither data nor url"):
        to_openai([UserMessage(parts=(Image(),))])
    with pytest.raises(UsageError, match="neither data nor url"):
        to_anthropic([UserMessage(parts=(Image(),))])
    result = ToolMessage(call_id="c", name="n", text="t", media=(Image(url="u"),))
    with pytest.raises(UsageError, match="not have images"):
        to_openai([result])


@pytest.mark.parametrize("write", [to_openai, to_anthropic])
def test_a_picture_of_a_model_is_not_dropped(write: Any) -> None:
    answer = AssistantMessage(parts=(Text("Look:"), Image(data=b"1")))
    with pytest.raises(UsageError, match="message 0: answers in this format have no Image"):
        write([answer])


def test_a_text_and_a_refusal_are_both_read() -> None:
    found = from_openai(answered(content="Well.", refusal="I cannot say.")).messages
    assert found == (AssistantMessage(parts=(Text("Well."), Text("I cannot say."))),)


def test_the_empty_fields_of_an_sdk_are_no_data() -> None:
    empty: dict[str, Any] = {
        "refusal": None,
        "annotations": [],
        "audio": None,
        "function_call": None,
    }
    assert from_openai(answered(**empty, tool_calls=None)) == from_openai(answered())


def test_citations_of_anthropic_are_read_and_written_as_they_were() -> None:
    cited = [{"type": "char_location", "cited_text": "It rains.", "document_index": 0}]
    body = {"messages": answered(content=[{"type": "text", "text": "Yes.", "citations": cited}])}
    read = from_anthropic(body)
    assert to_anthropic(Conversation(read.messages).messages) == body


def test_a_data_url_may_have_parameters_before_its_base64() -> None:
    url = "data:text/plain;charset=utf-8;base64,AAE="
    part = {"type": "file", "file": {"filename": "a.txt", "file_data": url}}
    [message] = from_openai([{"role": "user", "content": [part]}]).messages
    assert message.parts == (File(media_type="text/plain", name="a.txt", data=b"\x00\x01"),)


def test_an_answer_of_only_reasoning_has_empty_content_at_openai() -> None:
    """OpenAI takes null only with calls."""
    [written] = to_openai([AssistantMessage(parts=(Reasoning("Hm."),))])
    assert written == {"role": "assistant", "content": ""}


# ── data that is not JSON ───────────────────────────────────────────────────────────────────


def deep() -> dict[str, Any]:
    top: dict[str, Any] = {}
    inner = top
    for _ in range(100_000):
        inner["a"] = inner = {}
    return top


def cycle() -> dict[str, Any]:
    data: dict[str, Any] = {}
    data["a"] = data
    return data


def places_at_openai(value: Any) -> dict[str, Any]:
    function = {"name": "look", "arguments": value}
    call = {"id": "c", "type": "function", "function": function}
    return {
        "content": [{"role": "user", "content": value}],
        "part": [{"role": "user", "content": [value]}],
        "url": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": value}}]}],
        "role": [{"role": value}],
        "calls": [{"role": "assistant", "tool_calls": value}],
        "call": [{"role": "assistant", "tool_calls": [value]}],
        "arguments": [{"role": "assistant", "tool_calls": [call]}],
        "call id": [{"role": "tool", "tool_call_id": value, "content": "x"}],
        "message": [value],
        "messages": value,
    }


def places_at_anthropic(value: Any) -> dict[str, Any]:
    def body(role: str, **part: Any) -> dict[str, Any]:
        return {"messages": [{"role": role, "content": [part]}]}

    return {
        "system": {"system": value, "messages": []},
        "content": {"messages": [{"role": "user", "content": value}]},
        "role": {"messages": [{"role": value}]},
        "input": body("assistant", type="tool_use", id="c", name="look", input=value),
        "citations": body("assistant", type="text", text="x", citations=[value]),
        "thinking": body("assistant", type="thinking", thinking=value),
        "source": body("user", type="image", source=value),
        "result": body("user", type="tool_result", tool_use_id="c", content=value),
        "messages": {"messages": value},
    }


HOSTILE = {"deep": deep(), "cycle": cycle(), "object": object(), "null": None}
READERS: dict[str, tuple[Any, Any]] = {
    "openai": (from_openai, places_at_openai),
    "anthropic": (from_anthropic, places_at_anthropic),
}


@pytest.mark.parametrize("kind", HOSTILE)
@pytest.mark.parametrize("reader", READERS)
def test_data_that_is_not_json_is_refused_at_every_place(reader: str, kind: str) -> None:
    read, places = READERS[reader]
    for place, history in places(HOSTILE[kind]).items():
        try:
            messages = read(history).messages
        except UsageError as exc:
            assert len(str(exc)) < 400, place  # noqa: PT017
        else:
            for message in messages:
                message.to_json()


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a":' * 3_000 + "1" + "}" * 3_000])
def test_arguments_that_are_nested_too_deeply_are_kept_as_text(text: str) -> None:
    call = {"id": "c", "type": "function", "function": {"name": "look", "arguments": text}}

    answer = from_openai([{"role": "assistant", "tool_calls": [call]}]).messages[0]

    assert isinstance(answer, AssistantMessage)
    assert answer.tool_calls[0].raw == text


@pytest.mark.parametrize("value", [None, 5, "text", b"bytes", {"role": "user"}])
@pytest.mark.parametrize("function", [from_openai, to_openai, to_anthropic])
def test_what_is_no_list_of_messages_is_refused(function: Any, value: Any) -> None:
    with pytest.raises(UsageError, match="messages must be a list of messages, not"):
        function(value)


@pytest.mark.parametrize("item", [None, "text", {"role": "user"}, Text("x")])
@pytest.mark.parametrize("write", [to_openai, to_anthropic])
def test_an_item_that_is_no_message_is_named(write: Any, item: Any) -> None:
    with pytest.raises(UsageError, match="message 1: this must be a message of hookline, not a"):
        write([UserMessage(parts=(Text("Hi."),)), item])
