"""`by_sentence`: a check sees whole sentences, and what is shown is what is stored."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests._event_grammar import check_events

from hookline import Agent, Conversation, ModelResponse, Stop, define_hook
from hookline.errors import OverloadedError, UsageError
from hookline.events import ChatDone, ResponseReset, TextDelta
from hookline.hooks import by_sentence, retry
from hookline.hooks._text.by_sentence import _first
from hookline.testing import ScriptedModel, Turn, call, collect


def shown(events: list[Any]) -> str:
    text = ""
    for event in events:
        if isinstance(event, ResponseReset):
            text = ""
        elif isinstance(event, TextDelta):
            text += event.text
    return text


async def test_a_model_is_asked_once_a_sentence_for_a_thousand_chunks() -> None:
    judge = ScriptedModel("It is fine.", repeat=True)
    guard: Agent[Any] = Agent(judge)

    async def check(sentence: str, run: Any) -> None:
        assert (await guard.chat(sentence)).text == "It is fine."

    text = "This is a sentence of forty characters. " * 25
    talk = Conversation()
    agent: Agent[Any] = Agent(ScriptedModel(Turn(text, chunk=1)), hooks=by_sentence(check))
    events = await collect(agent.chat_stream("go", conversation=talk))
    check_events(events)
    assert len(text) == 1000
    asked = [request.messages[-1].text for request in judge.requests]
    assert asked == ["This is a sentence of forty characters. "] * 25
    assert shown(events) == talk.messages[-1].text == text


@pytest.mark.parametrize("chunk", [1, 3, 7, 100])
async def test_a_sentence_is_replaced_or_dropped_at_any_chunking(chunk: int) -> None:
    def check(sentence: str, run: Any) -> str | None:
        if "secret" in sentence:
            return "[…] "
        return "" if "drop" in sentence else None

    talk = Conversation()
    model = ScriptedModel(Turn("One. A secret! drop me\nWhat? The rest", chunk=chunk))
    agent: Agent[Any] = Agent(model, hooks=by_sentence(check))
    events = await collect(agent.chat_stream("go", conversation=talk))
    check_events(events)
    assert shown(events) == talk.messages[-1].text == "One. […] What? The rest"


async def test_a_stop_withdraws_the_answer() -> None:
    talk = Conversation()
    hooks = by_sentence(lambda text, run: Stop("guard", "No.") if "bad" in text else None)
    agent: Agent[Any] = Agent(ScriptedModel(Turn("Fine. It is bad. More.", chunk=2)), hooks=hooks)
    events = await collect(agent.chat_stream("go", conversation=talk))
    check_events(events)
    assert shown(events) == talk.messages[-1].text == "No."
    assert events[-1].response.stop_reason == "guard"


async def test_what_a_broken_attempt_has_held_back_is_not_shown_later() -> None:
    seen: list[str] = []
    talk = Conversation()
    model = ScriptedModel(
        Turn("Half a sen", chunk=2, fail=OverloadedError("busy"), fail_after=4),
        Turn("Whole.", chunk=2),
    )
    hooks = [retry(2, base=0), by_sentence(lambda text, run: seen.append(text))]
    agent: Agent[Any] = Agent(model, hooks=hooks)
    events = await collect(agent.chat_stream("go", conversation=talk))
    check_events(events)
    assert seen == ["Whole."]
    assert shown(events) == talk.messages[-1].text == "Whole."


@pytest.mark.parametrize("point", ["preChat", "preRequest", "onStep"])
async def test_a_stop_of_the_check_ends_a_chat_whose_text_comes_from_a_hook(point: str) -> None:
    def says(ctx: Any) -> Any:
        return Stop("closed", text="Bad.") if point == "onStep" else ModelResponse.of("Bad.")

    def check(sentence: str, run: Any) -> Stop | None:
        return Stop("halted") if sentence == "Bad." else None

    hook: Any = define_hook(point, says, id="says")  # type: ignore[call-overload]
    agent = Agent(ScriptedModel(call("nothing")), hooks=[hook])
    talk = Conversation()
    stream = agent.chat_stream("hi", conversation=talk, hooks=[by_sentence(check)])
    events = await collect(stream)
    check_events(events)
    done = events[-1]
    assert isinstance(done, ChatDone)
    assert done.response.stop_reason == ("closed" if point == "onStep" else "halted")
    assert shown(events) == "".join(m.text for m in talk.messages if m.role == "assistant") == ""


@given(st.text(alphabet='ab.!? \n。"', max_size=40), st.integers(1, 9), st.data())
def test_the_sentences_do_not_depend_on_the_chunks(text: str, chars: int, data: Any) -> None:
    def sentences(pieces: list[str]) -> list[str]:
        held, out = "", []
        for piece in [*pieces, None]:
            held += piece or ""
            while sentence := _first(held, chars, whole=piece is None):
                held = held[len(sentence) :]
                out.append(sentence)
        return out

    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=6)))
    pieces = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    assert sentences(pieces) == sentences([text])
    assert "".join(sentences(pieces)) == text


def test_wrong_options_are_refused() -> None:
    with pytest.raises(UsageError, match="chars"):
        by_sentence(lambda text, run: None, chars=0)
    with pytest.raises(UsageError, match="pass a function"):
        by_sentence("check")  # type: ignore[arg-type]
