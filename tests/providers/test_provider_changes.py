"""A conversation that begins at one provider goes on at every other."""

from __future__ import annotations

import json
import re
from base64 import b64encode
from itertools import permutations
from typing import Any

import pytest
from tests._wires import ADAPTERS, KEY, WIRES
from tests.wire import Wire, WireServer

from hookline import (
    Agent,
    AssistantMessage,
    Conversation,
    Image,
    Reasoning,
    Source,
    Text,
    ToolCall,
    ToolMessage,
    UserMessage,
    check_history,
    read_message,
    tool,
)
from hookline.errors import UsageError
from hookline.hooks import fallback
from hookline.providers.openai_chat import OpenAIChatModel
from hookline.providers.presets import preset
from hookline.testing import Turn, call

from ._habits import delta, sse

PAIRS = list(permutations(WIRES, 2))
SEALED = {
    "openai": {"id": "rs_own", "encrypted_content": "openais-own"},
    "anthropic": {"signature": "anthropics-own"},
    "google": {"signature": "Z29vZ2xlcy1vd24="},
}
OWN = ["openais-own", "anthropics-own", "Z29vZ2xlcy1vd24="]


@tool
async def weather(city: str) -> str:
    """The weather in a city."""
    return f"sunny in {city}"


def ids_in(body: Any) -> tuple[list[str], list[str]]:
    """The ids of the calls of a request, and those of its results."""
    asked: list[str] = []
    answered: list[str] = []

    def walk(each: Any) -> None:
        if isinstance(each, list):
            for inner in each:
                walk(inner)
        elif isinstance(each, dict):
            kind = each.get("type")
            if kind == "function_call":
                asked.append(each["call_id"])
            elif kind == "function_call_output":
                answered.append(each["call_id"])
            elif kind == "tool_use" or kind == "function":
                asked.extend([each["id"]] if "id" in each else [])
            elif kind == "tool_result":
                answered.append(each["tool_use_id"])
            elif "functionCall" in each:
                asked.append(each["functionCall"]["id"])
            elif "functionResponse" in each:
                answered.append(each["functionResponse"]["id"])
            if each.get("role") == "tool":
                answered.append(each["tool_call_id"])
            for inner in each.values():
                walk(inner)

    walk(body)
    return asked, answered


@pytest.mark.parametrize(("first", "then"), PAIRS, ids=[f"{a} to {b}" for a, b in PAIRS])
async def test_a_conversation_goes_on_at_another_provider(first: Any, then: Any) -> None:
    """With calls side by side, sealed reasoning, an answer that was cut off, and no new message."""
    talk = Conversation()
    begun = Turn(
        Reasoning("Hm.", SEALED),
        "I look.",
        call("weather", city="Oslo"),
        call("weather", city="Rome"),
    )
    async with WireServer(first, begun, "Sunny in both.", Wire(Turn("Half of"), stall=2000)) as one:
        agent = Agent(ADAPTERS[first]("m", base_url=one.url, api_key=KEY), tools=[weather])
        await agent.chat("Where is it sunny?", conversation=talk)
        async with agent.chat_stream("More, please.", conversation=talk) as stream:
            async for event in stream:
                if getattr(event, "text", None):
                    break
    messages = talk.messages
    check_history(messages)
    unanswered = Conversation(messages[:4])  # it ends with the results: no new user message
    async with WireServer(then, "Go on.", "Still here.") as two:
        other = Agent(ADAPTERS[then]("m", base_url=two.url, api_key=KEY), tools=[weather])
        assert (await other.chat(None, conversation=unanswered)).text == "Go on."
        assert (await other.chat("And now?", conversation=talk)).text == "Still here."
    for request in two.requests:
        asked, answered = ids_in(request.json)
        assert len(asked) == len(set(asked)) == 2
        assert asked == answered
        sent = json.dumps(request.json)
        assert "sunny in Oslo" in sent
        assert not any(secret in sent for secret in OWN)
    check_history(talk.messages)


# ── ids ─────────────────────────────────────────────────────────────────────────────────────

STRANGE = ["functions.x:0", "a b", "x" * 80, "é", "call_1", "", "call/1", "call:1", "x" * 80 + "y"]


USUAL = re.compile(r"[A-Za-z0-9_-]{1,64}")


def history(ids: list[str], meta: Any = None) -> tuple[Any, ...]:
    calls = tuple(ToolCall(id=id, name="x", meta=meta) for id in ids)
    results = (ToolMessage(call_id=id, name="x", text="ok") for id in ids)
    return (UserMessage(parts=(Text("Hi."),)), AssistantMessage(parts=calls), *results)


async def ids_sent(kind: Any, messages: tuple[Any, ...], **options: Any) -> list[str]:
    """The ids that a provider is sent of the calls in a history; its results have the same ids."""
    async with WireServer("openai-chat" if kind == "mistral" else kind, "Yes.") as server:
        if kind == "mistral":
            model: Any = preset("mistral", "m", base_url=server.url, api_key=KEY)
        else:
            model = ADAPTERS[kind]("m", base_url=server.url, api_key=KEY, **options)
        await Agent(model).chat("And?", conversation=Conversation(messages))
    asked, answered = ids_in(server.requests[0].json)
    assert asked == answered
    return asked


TAKES = {**dict.fromkeys(WIRES, USUAL), "mistral": re.compile(r"[A-Za-z0-9]{9}")}


@pytest.mark.parametrize("kind", TAKES)
async def test_ids_are_what_a_provider_takes_without_collisions_and_always_the_same(
    kind: str,
) -> None:
    made = await ids_sent(kind, history(STRANGE))
    assert len(set(made)) == len(STRANGE)
    assert all(TAKES[kind].fullmatch(each) for each in made)
    again = await ids_sent(kind, (*history(STRANGE), *history(["another"])))
    assert again[:-1] == made


@pytest.mark.parametrize("kind", WIRES)
async def test_an_id_that_fits_stays_and_one_that_would_take_its_place_gives_way(kind: str) -> None:
    [taken] = await ids_sent(kind, history(["a b"]))
    other, same = await ids_sent(kind, history(["a b", taken]))
    assert same == taken
    assert other != taken


@pytest.mark.parametrize("kind", WIRES)
async def test_a_providers_own_id_goes_back_to_it_alone_and_only_once(kind: str) -> None:
    messages = history(["c1", "c2"], {"acme": {"call_id": "functions.x:0"}})
    first, second = await ids_sent(kind, messages, provider="acme")
    assert first == "functions.x:0" != second
    assert await ids_sent(kind, messages, provider="other") == ["c1", "c2"]


# ── with what a provider's own tools did ────────────────────────────────────────────────────

RECORDS: dict[str, dict[str, Any]] = {
    "openai": {"item": {"type": "web_search_call", "id": "own_1", "status": "completed"}},
    "anthropic": {
        "block": {"type": "server_tool_use", "id": "own_1", "name": "web_search", "input": {}}
    },
    "google": {"part": {"executableCode": {"language": "PYTHON", "code": "own_1"}}},
}
CITES: dict[str, dict[str, Any]] = {
    "openai": {"annotations": [{"type": "url_citation", "url": "https://own.example.org"}]},
    "openai-chat": {"annotations": [{"type": "url_citation", "url": "https://own.example.org"}]},
    "anthropic": {
        "citations": [{"type": "web_search_result_location", "url": "https://own.example.org"}]
    },
}
PICTURE = Image(media_type="image/png", data=b"\x89PNG own")


def searched(kind: str) -> Turn:
    """An answer with a record, a text that cites, a source, and a picture where one can be made."""
    record = [Reasoning("", {kind: RECORDS[kind]})] if kind in RECORDS else []
    text = Text("It is sunny.", {kind: CITES[kind]} if kind in CITES else None)
    picture = [] if kind == "anthropic" else [PICTURE]
    page = Source(url="https://own.example.org", title="Weather")
    return Turn(*record, text, page, *picture, call("weather", city="Oslo"))


@pytest.mark.parametrize(("first", "then"), PAIRS, ids=[f"{a} to {b}" for a, b in PAIRS])
async def test_what_a_providers_tools_did_stays_with_it(first: Any, then: Any) -> None:
    """There and back: the other provider reads the text and sees the picture, and no more."""
    talk = Conversation()
    async with WireServer(first, searched(first), "So it is.", "Welcome back.") as one:
        home = Agent(ADAPTERS[first]("m", base_url=one.url, api_key=KEY), tools=[weather])
        await home.chat("Is it sunny?", conversation=talk)
        answer = talk.messages[1]
        assert isinstance(answer, AssistantMessage)
        assert [each.url for each in answer.sources] == ["https://own.example.org"]
        restored = Conversation([read_message(each.to_json()) for each in talk.messages])
        async with WireServer(then, "It is.") as two:
            away = Agent(ADAPTERS[then]("m", base_url=two.url, api_key=KEY), tools=[weather])
            await away.chat("Really?", conversation=restored)
        await home.chat("And now?", conversation=restored)
    sent, back = json.dumps(two.requests[0].json), json.dumps(one.requests[2].json)
    picture = b64encode(PICTURE.data or b"").decode()
    assert "own_1" not in sent
    assert "own.example.org" not in sent
    assert "It is sunny." in sent
    assert ("own_1" in back) == (first in RECORDS)
    assert ("own.example.org" in back) == (first in ("openai", "anthropic"))
    for request in (sent, back):
        assert request.count(picture) == (0 if first == "anthropic" else 1)
    for body in (two.requests[0].json, one.requests[2].json):
        asked, answered = ids_in(body)
        assert len(asked) == 1
        assert asked == answered
    check_history(restored.messages)


# ── between servers of one format ───────────────────────────────────────────────────────────

SIGNED = {"google": {"thought_signature": "signed-by-the-first"}}
OPAQUE = ("sealed-by-the-first", "signed-by-the-first", "functions.weather:0", "reasoning_content")


def opaque() -> Wire:
    """An answer with all that a server of Chat Completions expects back."""
    details = [{"type": "reasoning.encrypted", "data": "sealed-by-the-first"}]
    called = {
        "index": 0,
        "id": "functions.weather:0",
        "function": {"name": "weather", "arguments": '{"city": "Oslo"}'},
        "extra_content": SIGNED,
    }
    return sse(
        delta(reasoning_content="Hm.", reasoning_details=details),
        delta(tool_calls=[called]),
        delta("tool_calls"),
    )


def named(name: str) -> Any:
    return lambda url: preset(name, "m", base_url=url, api_key=KEY)


def at(**options: Any) -> Any:
    return lambda url: OpenAIChatModel("m", base_url=url, api_key=KEY, **options)


def with_client(url: str) -> OpenAIChatModel:
    import openai

    return OpenAIChatModel("m", client=lambda: openai.AsyncOpenAI(api_key=KEY, base_url=url))


SERVERS = [
    (named("groq"), named("openrouter"), False),
    (named("groq"), at(), False),
    (at(), at(), False),
    (with_client, with_client, False),
    (at(), at(provider="acme"), False),
    (at(provider="acme"), at(provider="acme"), True),
    (named("groq"), named("groq"), True),
]


@pytest.mark.parametrize(
    ("first", "then", "same"),
    SERVERS,
    ids=[
        *("two presets", "a preset and a host", "two hosts", "two hosts of clients"),
        *("a host and a name", "one name", "one preset"),
    ],
)
async def test_opaque_data_of_a_server_of_chat_completions_go_back_to_it_alone(
    first: Any, then: Any, same: bool
) -> None:
    """A name that the user gives is the server's, wherever it is; otherwise its host is."""
    talk = Conversation()
    async with (
        WireServer("openai-chat", opaque(), "Sunny.", "Welcome back.") as one,
        WireServer("openai-chat", "Still sunny.") as two,
    ):
        home = Agent(first(one.url), tools=[weather])
        await home.chat("Is it sunny?", conversation=talk)
        restored = Conversation([read_message(each.to_json()) for each in talk.messages])
        await Agent(then(two.url), tools=[weather]).chat("Really?", conversation=restored)
        await home.chat("And now?", conversation=restored)
    sent = json.dumps(two.requests[0].json)
    assert [each in sent for each in OPAQUE] == [same] * len(OPAQUE)
    for request in one.requests[1:]:
        back = json.dumps(request.json)
        assert [each in back for each in OPAQUE] == [True] * len(OPAQUE)


OWN_FORMATS = ["openai", "anthropic", "google"]  # OpenAIChatModel has the cases above
OWNERS: dict[str, tuple[dict[str, Any], dict[str, Any], bool]] = {
    "two hosts": ({}, {}, False),
    "a host and a name": ({}, {"provider": "acme"}, False),
    "two names": ({"provider": "acme"}, {"provider": "emca"}, False),
    "one name": ({"provider": "acme"}, {"provider": "acme"}, True),
}


def sealed(kind: str) -> Turn:
    """An answer with all that a server of this format expects back."""
    record = Reasoning("", {kind: RECORDS[kind]})
    text = Text("It is sunny.", {kind: CITES[kind]} if kind in CITES else None)
    return Turn(Reasoning("Hm.", SEALED), record, text, call("weather", city="Oslo"))


def secrets_of(kind: str) -> list[str]:
    """What only the server that sent it may get."""
    own = {"openai": OWN[0], "anthropic": OWN[1], "google": OWN[2]}[kind]
    return [own, "own_1", *(["own.example.org"] if kind in CITES else [])]


@pytest.mark.parametrize("how", OWNERS)
@pytest.mark.parametrize("kind", OWN_FORMATS)
async def test_opaque_data_of_a_server_go_back_to_it_alone(kind: Any, how: str) -> None:
    """Also when a fallback changes the server in the middle of a chat."""
    first, then, same = OWNERS[how]
    talk = Conversation()
    broken = Wire(status=503, message="overloaded")
    async with (
        WireServer(kind, sealed(kind), broken, "Welcome back.") as one,
        WireServer(kind, "Sunny.", "Still sunny.") as two,
    ):
        home = ADAPTERS[kind]("m", base_url=one.url, api_key=KEY, **first)
        away = ADAPTERS[kind]("m", base_url=two.url, api_key=KEY, **then)
        agent = Agent(home, tools=[weather], hooks=[fallback(away)])
        await agent.chat("Is it sunny?", conversation=talk)
        restored = Conversation([read_message(message.to_json()) for message in talk.messages])
        await Agent(away, tools=[weather]).chat("Really?", conversation=restored)
        await Agent(home, tools=[weather]).chat("And now?", conversation=restored)
    secrets = secrets_of(kind)
    assert len(two.requests) == 2
    for request in two.requests:
        body = json.dumps(request.json)
        assert "sunny in Oslo" in body
        assert [secret in body for secret in secrets] == [same] * len(secrets)
    for request in one.requests[1:]:
        body = json.dumps(request.json)
        assert [secret in body for secret in secrets] == [True] * len(secrets)


@pytest.mark.parametrize("kind", OWN_FORMATS)
async def test_the_data_of_a_providers_own_host_are_under_its_name(kind: Any) -> None:
    """With `provider=` a gateway gets what the provider's own host has sent, and the reverse."""
    async with WireServer(kind, "Sunny.", "Sunny.") as server:
        for options, gets in (({"provider": kind}, True), ({}, False)):
            model = ADAPTERS[kind]("m", base_url=server.url, api_key=KEY, **options)
            answer = AssistantMessage(parts=(Reasoning("Hm.", SEALED), Text("Yes.")))
            history = (UserMessage(parts=(Text("Is it?"),)), answer)
            await Agent(model).chat("Really?", conversation=Conversation(history))
            assert (secrets_of(kind)[0] in json.dumps(server.requests[-1].json)) == gets


@pytest.mark.parametrize("kind", WIRES)
@pytest.mark.parametrize("name", ["", "get weather!", "ü"], ids=["empty", "words", "ü"])
async def test_a_call_of_what_is_no_name_is_one_of_an_unknown_tool(kind: Any, name: str) -> None:
    """And the conversation goes on at every provider, none of which takes such a name."""
    talk = Conversation()
    async with WireServer(kind, call(name), "Sorry.") as server:
        agent = Agent(ADAPTERS[kind]("m", base_url=server.url, api_key=KEY), tools=[weather])
        response = await agent.chat("Hi.", conversation=talk)
    assert [each.outcome for each in response.tool_results] == ["error"]
    assert "UnknownToolError" in response.tool_results[0].text
    for other in WIRES:
        async with WireServer(other, "Yes.") as server:
            model = ADAPTERS[other]("m", base_url=server.url, api_key=KEY)
            await Agent(model).chat("Still there?", conversation=Conversation(talk.messages))
        found = re.findall(r'"name": "(.*?)"', json.dumps(server.requests[0].json))
        assert found
        assert all(USUAL.fullmatch(each) for each in found)


@pytest.mark.parametrize("kind", WIRES)
@pytest.mark.parametrize("text", ["", " \n"], ids=["empty", "blank"])
async def test_blank_text_is_refused_and_nothing_is_sent(kind: Any, text: str) -> None:
    talk = Conversation()
    async with WireServer(kind) as server:
        agent = Agent(ADAPTERS[kind]("m", base_url=server.url, api_key=KEY))
        with pytest.raises(UsageError, match="neither text nor media"):
            await agent.chat(text, conversation=talk)
        assert (server.requests, talk.messages) == ([], ())
