"""Reasoning between tags in the text of servers that speak Chat Completions."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from itertools import combinations, pairwise
from typing import Any

import httpx2
import pytest
from tests._wires import KEY
from tests.wire import WireServer

from hookline import Agent, Text, UserMessage
from hookline.models import ModelRequest, ReasoningChunk, TextChunk
from hookline.providers.openai_chat import OpenAIChatModel
from hookline.testing import Turn, call

ANSWERS: dict[str, tuple[str, str, str]] = {
    "tagged": ("<think>Hm.</think>Hi.", "Hm.", "Hi."),
    "lines": ("\n <think>\nHm.\n</think>\n\nHi.", "Hm.\n", "Hi."),
    "long tag": ("<thinking>Hm.</thinking>Hi.", "Hm.", "Hi."),
    "other end": ("<think>a</thinking>b</think>c", "a</thinking>b", "c"),
    "no end": ("<think>Hm.</thi", "Hm.</thi", ""),
    "nothing else": ("<think>Hm.</think>", "Hm.", ""),
    "empty": ("<think></think>Hi.", "", "Hi."),
    "again": ("<think>a</think>b<think>c</think>", "a", "b<think>c</think>"),
    "lines later": ("<think>a</think>b\n\nc", "a", "b\n\nc"),
    "inside": ("<think>a<think>b</think>c", "a<think>b", "c"),
    "code first": ("```\n<think>a</think>\n```", "", "```\n<think>a</think>\n```"),
    "quoted": ("`<think>` opens.", "", "`<think>` opens."),
    "later": ("Hi. <think>a</think>", "", "Hi. <think>a</think>"),
    "half a tag": ("<thi", "", "<thi"),
    "another tag": ("<thinner>a", "", "<thinner>a"),
    "signs": ("< think>a", "", "< think>a"),
}


Chunks = AsyncIterator[TextChunk | ReasoningChunk]


@asynccontextmanager
async def answering() -> AsyncIterator[Callable[[Iterable[str]], Chunks]]:
    """A function that gives the chunks of an answer whose text a server sends in these pieces."""
    import openai

    texts: Iterable[str] = ()

    class Body(httpx2.AsyncByteStream):
        async def __aiter__(self) -> AsyncIterator[bytes]:
            for piece in texts:
                yield event({"delta": {"content": piece}})
            yield event({"delta": {}, "finish_reason": "stop"})

    def event(choice: dict[str, Any]) -> bytes:
        return b"data: %b\n\n" % json.dumps({"choices": [choice]}).encode()

    def answer(request: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(200, headers={"content-type": "text/event-stream"}, stream=Body())

    async def chunks(pieces: Iterable[str]) -> Chunks:
        nonlocal texts
        texts = pieces
        async for chunk in model.stream(request):
            if isinstance(chunk, TextChunk | ReasoningChunk):
                yield chunk

    async with httpx2.AsyncClient(transport=httpx2.MockTransport(answer)) as http:
        client = openai.AsyncOpenAI(api_key=KEY, base_url="http://localhost/v1", http_client=http)
        model = OpenAIChatModel("m", client=client)
        request = ModelRequest(model=model, messages=(UserMessage(parts=(Text("Hi."),)),))
        yield chunks


def cuts(text: str) -> Iterable[list[str]]:
    """The text in one, two and three pieces, cut at every place, and in single characters."""
    yield [text]
    yield list(text)
    for count in (1, 2):
        for places in combinations(range(1, len(text)), count):
            ends = (0, *places, len(text))
            yield [text[a:b] for a, b in pairwise(ends)]


@pytest.mark.parametrize("name", ANSWERS)
async def test_an_answer_is_split_in_the_same_way_wherever_it_is_cut(name: str) -> None:
    text, reasoning, rest = ANSWERS[name]
    async with answering() as chunks:
        for pieces in cuts(text):
            parts = {ReasoningChunk: "", TextChunk: ""}
            async for chunk in chunks(pieces):
                parts[type(chunk)] += chunk.text
            assert (parts[ReasoningChunk], parts[TextChunk]) == (reasoning, rest), pieces


async def test_text_is_not_held_back_once_it_is_known_to_be_text() -> None:
    seen: list[str] = []
    seen_after: dict[str, list[str]] = {}

    def pieces() -> Iterable[str]:
        """The next piece is asked for when there is nothing more to read of this one."""
        for piece in ("<thin", "g>", "<"):
            yield piece
            seen_after[piece] = [*seen]

    async with answering() as chunks:
        async for chunk in chunks(pieces()):
            assert isinstance(chunk, TextChunk)
            seen.append(chunk.text)
    assert seen_after == {"<thin": [], "g>": ["<thing>"], "<": ["<thing>", "<"]}


@pytest.mark.parametrize("host", ["api.openai.com", "acme.openai.azure.com", "localhost"])
@pytest.mark.parametrize("wish", [None, True, False])
async def test_tags_are_split_at_every_server_but_openais(host: str, wish: bool | None) -> None:
    splits = (host == "localhost") if wish is None else wish
    async with WireServer("openai-chat", "<think>Hm.</think>Hi.") as server:

        def client() -> Any:
            import openai

            made = openai.AsyncOpenAI(api_key=KEY, base_url=f"https://{host}/v1")
            send = made._client.send

            async def to_the_server(request: Any, **options: Any) -> Any:
                request.url = request.url.copy_with(
                    scheme="http",
                    host="127.0.0.1",
                    port=int(server.url.split(":")[2].split("/")[0]),
                )
                return await send(request, **options)

            made._client.send = to_the_server  # type: ignore[method-assign]
            return made

        answer = await Agent(OpenAIChatModel("m", client=client, think_tags=wish)).chat("Hi.")
    assert answer.text == ("Hi." if splits else "<think>Hm.</think>Hi.")


async def test_calls_after_reasoning_without_an_end_are_made() -> None:
    async with WireServer("openai-chat", Turn("<think>Hm.", call("look")), "Done.") as server:
        model = OpenAIChatModel("m", base_url=server.url, api_key=KEY)
        response = await Agent(model).chat("Hi.")
    assert response.text == "Done."
    assert [result.name for result in response.tool_results] == ["look"]
