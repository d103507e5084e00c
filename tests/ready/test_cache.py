"""`cache`: the same request is answered once, and looks the same to everybody."""

import asyncio
import logging

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests._event_grammar import check_events

from hookline import (
    Agent,
    AssistantMessage,
    Conversation,
    ModelRequest,
    Settings,
    Text,
    ToolCall,
    ToolMessage,
    Usage,
    UserMessage,
    tool,
)
from hookline.errors import ModelError
from hookline.events import TextDelta, ToolCallDelta
from hookline.hooks import MemoryCache, cache, fallback, request_key
from hookline.testing import ScriptedModel, Turn, call, collect


@tool
async def look(n: int = 0) -> str:
    """Look around."""
    return f"seen {n}"


def agents(*turns, store=None, **options):
    """Two agents with one cache, and their model."""
    model = ScriptedModel(*turns)
    hook = cache(store, **options)
    return Agent(model, tools=[look], hooks=[hook]), model


async def test_a_hit_does_not_ask_the_model():
    agent, model = agents("one", "two")
    assert [(await agent.chat("hi")).text for _ in range(3)] == ["one"] * 3
    assert (await agent.chat("ho")).text == "two"
    assert len(model.requests) == 2


async def test_a_hit_is_streamed_like_any_answer():
    agent, _ = agents(Turn(reasoning="hm", text="a long answer", chunk=2))
    await agent.chat("hi")
    events = await collect(agent.chat_stream("hi"))
    check_events(events)
    assert [each.text for each in events if isinstance(each, TextDelta)] == ["a long answer"]


async def test_a_hit_costs_nothing():
    agent, _ = agents("one")
    assert (await agent.chat("hi")).usage != Usage()
    assert (await agent.chat("hi")).usage == Usage()


async def test_a_chat_with_tools_can_be_played_again():
    agent, model = agents(call("look", n=1), "done")
    conversation = Conversation()
    await agent.chat("go")
    events = await collect(agent.chat_stream("go", conversation=conversation))
    assert len(model.requests) == 2
    assert [m.text for m in conversation.messages[2:]] == ["seen 1", "done"]
    assert [each.arguments for each in events if isinstance(each, ToolCallDelta)] == ['{"n":1}']


DIFFERENT = {
    "text": lambda request: request.replace(messages=request.messages[:-1]),
    "system": lambda request: request.replace(system="Be brief."),
    "settings": lambda request: request.replace(settings=Settings(temperature=0.5)),
    "tools": lambda request: request.replace(tools=()),
    "description": lambda request: request.replace(tools=(look.replace(description="Look away."),)),
    "model": lambda request: request.replace(model=ScriptedModel(name="other")),
}


@pytest.mark.parametrize("what", DIFFERENT)
async def test_what_the_model_is_given_decides(what):
    requests = []
    agent = Agent(ScriptedModel("ok"), tools=[look])
    agent.add_hook("preRequest", lambda ctx: requests.append(ctx.request))
    await agent.chat("hi")
    (request,) = requests
    assert request_key(request) == request_key(request.replace(system=None))
    assert request_key(DIFFERENT[what](request)) != request_key(request)


def step_of(ids, text="seen"):
    """A history of one step with two calls."""
    calls = tuple(ToolCall(id=id, name="look", arguments={"n": n}) for n, id in enumerate(ids))
    return (
        UserMessage(id=f"u{ids}", parts=(Text("hi"),)),
        AssistantMessage(id=f"a{ids}", parts=calls),
        *(ToolMessage(call_id=id, name="look", text=f"{text} {n}") for n, id in enumerate(ids)),
    )


def test_ids_are_no_part_of_it_but_which_result_is_whose_is():
    model = ScriptedModel()
    one = step_of(["a", "b"])
    swapped = (*one[:2], one[2].replace(call_id="b"), one[3].replace(call_id="a"))
    histories = (one, step_of(["c", "d"]), step_of(["a", "b"], text="other"), swapped)
    keys = [request_key(ModelRequest(model=model, messages=each)) for each in histories]
    assert keys[0] == keys[1]
    assert len(set(keys)) == 3


async def test_models_without_a_name_are_never_taken_for_each_other():
    class Nameless:
        def __init__(self, text):
            self.inner = ScriptedModel(text)

        def stream(self, request):
            return self.inner.stream(request)

    hook = cache()
    for text in ("one", "two"):
        assert (await Agent(Nameless(text), hooks=[hook]).chat("hi")).text == text


async def test_who_asks_is_not_part_of_it_but_what_is_known_is():
    agent, model = agents("one", "two")
    await agent.chat("hi", deps="ann")
    await agent.chat("hi", deps="bob")
    assert len(model.requests) == 1
    conversation = Conversation(messages=[])
    await agent.chat("hi", conversation=conversation)
    await agent.chat("hi", conversation=conversation)  # knows the first answer
    assert len(model.requests) == 2


@pytest.mark.parametrize("reason", ["length", "other", "refusal"])
async def test_an_answer_that_is_not_whole_is_not_kept(reason):
    agent, _ = agents(Turn(text="half", finish_reason=reason), "whole")
    assert [(await agent.chat("hi")).text for _ in range(2)] == ["half", "whole"]


async def test_an_answer_that_failed_is_not_kept():
    agent, _ = agents(Turn("half", fail=ValueError("boom")), "whole")
    with pytest.raises(ValueError, match="boom"):
        await agent.chat("hi")
    assert (await agent.chat("hi")).text == "whole"


async def test_a_key_may_be_ones_own_and_none_passes_by():
    agent, _ = agents("one", "two", "three", key=lambda request: request.messages[0].text[:1])
    assert [(await agent.chat(text)).text for text in ("ab", "ac", "bb")] == ["one", "one", "two"]
    agent, _ = agents("one", "two", key=lambda request: None)
    assert [(await agent.chat("hi")).text for _ in range(2)] == ["one", "two"]


class Broken:
    def __init__(self, *broken):
        self.broken = broken

    async def get(self, key):
        if "get" in self.broken:
            raise OSError("down")
        return b"{" if "value" in self.broken else None

    async def set(self, key, value):
        if "set" in self.broken:
            raise OSError("down")


@pytest.mark.parametrize("broken", ["get", "set", "value"])
async def test_a_store_that_fails_is_logged_and_the_model_is_asked(broken, caplog):
    agent, model = agents("one", store=Broken(broken))
    with caplog.at_level(logging.WARNING, logger="hookline"):
        assert (await agent.chat("hi")).text == "one"
    assert len(model.requests) == 1
    assert "'cache' at aroundRequest raised" in caplog.text


async def test_settings_that_are_no_data_are_not_cached(caplog):
    agent, _ = agents("one", "two")
    extra = Settings(extra={"client": object()})
    assert [(await agent.chat("hi", settings=extra)).text for _ in range(2)] == ["one", "two"]


@pytest.mark.parametrize("order", [1, -1], ids=["cache first", "fallback first"])
async def test_the_answer_of_a_fallback_is_not_taken_for_that_of_the_first_model(order):
    down = ModelError("down")
    first = ScriptedModel(down, down, "from the first", name="first")
    second = ScriptedModel("from the second", name="second")
    agent = Agent(first, hooks=[cache(), fallback(second)][::order])
    texts = [(await agent.chat("hi")).text for _ in range(4)]
    assert texts == ["from the second", "from the second", "from the first", "from the first"]
    assert (len(first.requests), len(second.requests)) == (3, 1)


# ── the memory ──────────────────────────────────────────────────────────────────────────────


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


@settings(max_examples=200)
@given(
    size=st.integers(1, 4),
    acts=st.lists(st.tuples(st.sampled_from("gs"), st.sampled_from("abcdef"), st.integers(0, 3))),
)
def test_it_is_a_bounded_map_that_forgets_what_was_used_longest_ago(size, acts):
    async def run():
        clock = Clock()
        store = MemoryCache(size, ttl=5, clock=clock)
        known = {}  # in the order of use
        for act, key, seconds in acts:
            clock.now += seconds
            if act == "s":
                value = f"{clock.now}".encode()
                await store.set(key, value)
                known.pop(key, None)
                known[key] = (clock.now, value)
                while len(known) > size:
                    del known[next(iter(known))]
            else:
                since, value = known.pop(key, (0, None))
                if value is not None and clock.now - since < 5:
                    known[key] = (since, value)
                else:
                    value = None
                assert await store.get(key) == value
            assert len(store) <= size

    asyncio.run(run())
