"""Reasoning between tags in the text of servers that speak Chat Completions."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import combinations, pairwise
from typing import Any

import pytest
from tests._wires import KEY
from tests.wire import WireServer

from hookline import Agent
from hookline.providers._adapter.think_tags import ThinkTags
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
    "inside": ("<think>a<think>b</think>c", "a<think>b", "c"),
    "code first": ("```\n<think>a</think>\n```", "", "```\n<think>a</think>\n```"),
    "quoted": ("`<think>` opens.", "", "`<think>` opens."),
    "later": ("Hi. <think>a</think>", "", "Hi. <think>a</think>"),
    "half a tag": ("<thi", "", "<thi"),
    "another tag": ("<thinner>a", "", "<thinner>a"),
    "signs": ("< think>a", "", "< think>a"),
}


def split(pieces: Iterable[str]) -> tuple[str, str]:
    tags = ThinkTags()
    parts = [part for piece in pieces for part in tags.take(piece)]
    parts += tags.end()
    return (
        "".join(text for kind, text in parts if kind == "reasoning"),
        "".join(text for kind, text in parts if kind == "text"),
    )


def cuts(text: str) -> Iterable[list[str]]:
    """The text in one, two and three pieces, cut at every place, and in single characters."""
    yield [text]
    yield list(text)
    for count in (1, 2):
        for places in combinations(range(1, len(text)), count):
            ends = (0, *places, len(text))
            yield [text[a:b] for a, b in pairwise(ends)]


@pytest.mark.parametrize("name", ANSWERS)
def test_an_answer_is_split_in_the_same_way_wherever_it_is_cut(name: str) -> None:
    text, reasoning, rest = ANSWERS[name]
    for pieces in cuts(text):
        assert split(pieces) == (reasoning, rest), pieces


def test_text_is_not_held_back_once_it_is_known_to_be_text() -> None:
    tags = ThinkTags()
    assert list(tags.take("<thin")) == []
    assert list(tags.take("g>")) == [("text", "<thing>")]
    assert list(tags.take("<")) == [("text", "<")]


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
