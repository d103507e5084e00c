"""Mutated streams: what a service might send, broken in many ways, through the real SDKs.

The transport is in memory, so that hundreds of thousands can be tried; everything above it, from
the SDK's own client to the history of the conversation, is what a program runs.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import AsyncIterator
from importlib import import_module
from typing import Any

import httpx
import httpx2
from tests.wire import Wire, WireFormat
from tests.wire.habits import habits_of

from hookline import (
    Agent,
    Conversation,
    File,
    Image,
    Limits,
    Model,
    ModelRequest,
    Reasoning,
    Source,
    Text,
    Usage,
    check_history,
    read_message,
    tool,
)
from hookline.errors import HooklineError
from hookline.models import Chunk
from hookline.testing import Turn, call, validate_request

from ._wires import ADAPTERS, KEY

USAGE = Usage(input_tokens=50, output_tokens=20, cache_read_tokens=9, reasoning_tokens=5)
META = {
    "openai": {"id": "rs_1", "encrypted_content": "c2VhbGVk"},
    "anthropic": {"signature": "c2lnbmVk"},
    "google": {"signature": "c2lnbmVk"},
}
CITED = {
    "annotations": [{"type": "url_citation", "url": "https://example.org", "title": "Example"}],
    "citations": [{"type": "page_location", "document_index": 0, "document_title": "Mine"}],
}
TURNS = [
    Turn("Hello, ", "Ada", ". 世界 👩‍👩‍👧", usage=USAGE),
    Turn(Reasoning("Hm.", META), "Yes. ", "No."),
    Turn("Let me see.", call("weather", city="Köln")),
    Turn(tool_calls=[call("weather", city="Oslo"), call("weather", city="東京"), call("nobody")]),
    Turn(Reasoning("", META), call("weather", {"city": 'a\u2028b\\"\n', "days": [1, 2.5, None]})),
    Turn("Once upon", finish_reason="length"),
    Turn("I would rather not.", finish_reason="refusal"),
]
PAGE = Source(url="https://example.org", title="Example")
DRAWING = Image(data=b"\x89PNG\r\n\x1a\n")
KEPT = File(media_type="text/csv", meta={"anthropic": {"file_id": "file_1"}})
RECORD = Reasoning(
    "",
    {
        "openai": {"item": {"type": "web_search_call", "id": "ws_1", "action": {"type": "search"}}},
        "anthropic": {"block": {"type": "server_tool_use", "id": "s1", "name": "x", "input": {}}},
        "google": {"part": {"executableCode": {"language": "PYTHON", "code": "1 + 1"}}},
    },
)
MEDIA: dict[str, Image | File] = {
    "openai": DRAWING,
    "openai-chat": File(media_type="audio/wav", data=b"RIFF"),
    "anthropic": KEPT,
    "google": DRAWING,
}
BROUGHT: dict[str, list[Turn]] = {
    kind: [
        Turn(RECORD, PAGE, "So it ", "is.", PAGE, Source(title="Handbook"), media),
        Turn(Text("Cited.", {kind: CITED}), call("weather", city="Oslo"), media, PAGE),
    ]
    for kind, media in MEDIA.items()
}
"""Turns with what a provider's own tools bring."""
HABITS: dict[str, list[str]] = {
    kind: [name for name in habits_of(kind) if name not in ("function_call", "blocked")]
    for kind in ADAPTERS
}
VALUES: list[Any] = [
    None, True, -1, 0, 7, 10**30, 1.5, "", "x", "stop", "\ud83d", "tool_use", [], [1], {}, {"a": 1},
    "error", {"error": {"message": "m", "code": 500}}, [None], [[]], "response.completed",
]  # fmt: skip
UNKNOWN = [
    {"type": "response.brand_new", "output_index": 0, "delta": "?"},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "new_delta", "x": 1}},
    {"choices": [{"index": 0, "delta": {"new_field": [1]}}]},
    {"candidates": [{"content": {"parts": [{"newPart": {"x": 1}}]}}], "newField": 1},
    {"id": "x"},
]
GARBAGE = [
    b"\x00",
    b"\xff\xfe",
    b"data:",
    b"data: {",
    b"\r",
    b"\n\n",
    b": ping\n\n",
    b"\xe2\x80",
    b"}",
]


@tool
async def weather(city: str) -> str:
    """The weather in a city."""
    return f"sunny in {city}"


# ── mutations ───────────────────────────────────────────────────────────────────────────────


def _cut(events: list[bytes], dice: random.Random) -> list[bytes]:
    whole = b"".join(events)
    return [whole[: dice.randrange(len(whole) + 1)]]


def _drop(events: list[bytes], dice: random.Random) -> list[bytes]:
    out = list(events)
    del out[dice.randrange(len(out))]
    return out or [b""]


def _double(events: list[bytes], dice: random.Random) -> list[bytes]:
    place = dice.randrange(len(events))
    return [*events[: place + 1], events[dice.randrange(len(events))], *events[place:]]


def _reorder(events: list[bytes], dice: random.Random) -> list[bytes]:
    out = list(events)
    one, two = dice.randrange(len(out)), dice.randrange(len(out))
    if dice.random() < 0.2:
        dice.shuffle(out)
    else:
        out[one], out[two] = out[two], out[one]
    return out


def _unknown(events: list[bytes], dice: random.Random) -> list[bytes]:
    place = dice.randrange(len(events) + 1)
    event = f"data: {json.dumps(dice.choice(UNKNOWN))}\n\n".encode()
    return [*events[:place], event, *events[place:]]


def _garbage(events: list[bytes], dice: random.Random) -> list[bytes]:
    whole = b"".join(events)
    place = dice.randrange(len(whole) + 1)
    return [whole[:place], dice.choice(GARBAGE), whole[place:]]


def _flip(events: list[bytes], dice: random.Random) -> list[bytes]:
    whole = bytearray(b"".join(events))
    if whole:
        whole[dice.randrange(len(whole))] = dice.randrange(256)
    return [bytes(whole)]


def _value(events: list[bytes], dice: random.Random) -> list[bytes]:
    """Another value, or none, somewhere in the JSON of an event."""
    place = dice.randrange(len(events))
    head, _, text = events[place].partition(b"data: ")
    try:
        data = json.loads(text)
    except ValueError:
        return events
    at, path = data, dice.randrange(1, 6)
    while isinstance(at, (dict, list)) and at:
        key: Any = dice.choice(list(at)) if isinstance(at, dict) else dice.randrange(len(at))
        path -= 1
        if path <= 0 or not isinstance(at[key], (dict, list)) or not at[key]:
            if dice.random() < 0.3:
                del at[key]
            else:
                at[key] = dice.choice(VALUES)
            break
        at = at[key]
    out = list(events)
    out[place] = head + b"data: " + json.dumps(data).encode() + b"\n\n"
    return out


MUTATIONS = [_cut, _drop, _double, _reorder, _unknown, _garbage, _flip, _value, _value, _value]


def mutant(kind: WireFormat, dice: random.Random) -> tuple[list[bytes], bool]:
    """The pieces of a mutated stream, and whether its connection breaks at the end."""
    events = list(WHOLE[kind][dice.randrange(len(WHOLE[kind]))])
    for _ in range(dice.choice((1, 1, 1, 2, 3))):
        events = dice.choice(MUTATIONS)(events, dice)
    whole = b"".join(events)
    if dice.random() < 0.5:  # split anywhere, inside of code points too
        size = dice.choice((1, 2, 3, 7, 50, 333))
        pieces = [whole[n : n + size] for n in range(0, len(whole), size)]
        if len(pieces) > 400:
            pieces = [b"".join(pieces[:-300]), *pieces[-300:]]
    else:
        pieces = events
    return pieces, dice.random() < 0.1


WHOLE: dict[str, list[list[bytes]]] = {
    kind: [
        *(Wire(turn).pieces(kind, 1) for turn in (*TURNS, *BROUGHT[kind])),
        *(Wire(TURNS[n % 5], habits=[h]).pieces(kind, 1) for n, h in enumerate(HABITS[kind])),
    ]
    for kind in ADAPTERS
}
PLAIN: dict[str, list[bytes]] = {kind: Wire("Well.").pieces(kind, 2) for kind in ADAPTERS}


# ── a service in memory ─────────────────────────────────────────────────────────────────────


class Memory:
    """Answers the first request with a mutant, further ones plainly."""

    def __init__(self, kind: WireFormat) -> None:
        self.kind = kind
        self.library = library_of(kind)
        self.pieces: list[bytes] | None = None
        self.breaks = False

    async def answer(self, request: Any) -> Any:
        pieces, breaks = self.pieces, self.breaks
        self.pieces, self.breaks = None, False
        if pieces is None:
            pieces = PLAIN[self.kind]
        headers = {"content-type": "text/event-stream"}
        return self.library.Response(200, headers=headers, content=self._body(pieces, breaks))

    async def _body(self, pieces: list[bytes], breaks: bool) -> AsyncIterator[bytes]:
        for piece in pieces:
            yield piece
        if breaks:
            raise self.library.ReadError("connection reset")


def library_of(kind: WireFormat) -> Any:
    """The HTTP library that the installed version of an SDK takes clients of."""
    sdks = {"anthropic": "anthropic._base_client", "google": "google.genai._api_client"}
    sdk = import_module(sdks.get(kind, "openai._base_client"))
    return httpx2 if hasattr(sdk, "httpx2") else httpx


def adapter(kind: WireFormat, memory: Memory) -> tuple[Model, Any]:
    """The adapter on the SDK's real client, whose transport is in memory."""
    library = memory.library
    http = library.AsyncClient(transport=library.MockTransport(memory.answer))
    client: Any
    if kind.startswith("openai"):
        import openai

        client = openai.AsyncOpenAI(api_key=KEY, base_url="http://memory/v1", http_client=http)
    elif kind == "anthropic":
        import anthropic

        client = anthropic.AsyncAnthropic(api_key=KEY, base_url="http://memory", http_client=http)
    else:
        from google import genai

        options: Any = {"httpx_async_client": http, "base_url": "http://memory"}
        client = genai.Client(api_key=KEY, http_options=options)
    return ADAPTERS[kind]("m", client=client), http


class Valid:
    """A model that looks at each request first, as a strict provider does."""

    def __init__(self, inner: Model) -> None:
        self._inner = inner

    def stream(self, request: ModelRequest, /) -> AsyncIterator[Chunk]:
        validate_request(request)
        return self._inner.stream(request)


class Fuzz:
    """Chats over mutants, through one adapter."""

    def __init__(self, kind: WireFormat) -> None:
        self.kind: WireFormat = kind
        self._transport = Memory(kind)
        self._model, self._http = adapter(kind, self._transport)
        self._agent: Agent[Any] = Agent(Valid(self._model), tools=[weather], limits=Limits(steps=3))

    async def once(self, number: int) -> str:
        """What came of this mutant: "answered" or the name of an error of ours.

        Raises whatever is no error of ours, and what is wrong with the conversation that is left.
        """
        dice = random.Random(f"{self.kind}{number}")
        self._transport.pieces, self._transport.breaks = mutant(self.kind, dice)
        conversation = Conversation()
        try:
            await self._agent.chat("Hi.", conversation=conversation)
            came = "answered"
        except HooklineError as exc:
            came = type(exc).__name__
        except Exception as exc:
            exc.add_note(f"{self.kind}, mutant {number}")
            raise
        check_history(conversation.messages)
        for message in conversation.messages:
            assert read_message(message.to_json()) == message
        return came

    async def aclose(self) -> None:
        await self._http.aclose()


async def fuzz(kind: WireFormat, count: int, seed: int) -> Counter[str]:
    """Chats over so many mutants; what came of them. Whatever is no error of ours is raised."""
    tally: Counter[str] = Counter()
    chats = Fuzz(kind)
    for number in range(seed, seed + count):
        tally[await chats.once(number)] += 1
    await chats.aclose()
    return tally
