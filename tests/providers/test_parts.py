"""Parts beyond text: each is sent in its provider's form, or refused before anything is sent."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests._wires import ADAPTERS, KEY, WIRES
from tests.wire import WireServer

from hookline import Agent, File, Image, Text, ToolResult, tool
from hookline.errors import BadRequestError
from hookline.providers.openai_chat import OpenAIChatModel
from hookline.providers.presets import preset
from hookline.testing import call

URL = "https://example.org/it"
PARTS: dict[str, Image | File] = {
    "picture": Image(media_type="image/png", data=b"PNG"),
    "picture by URL": Image(media_type="image/png", url=URL),
    "TIFF": Image(media_type="image/tiff", data=b"II"),
    "PDF": File(media_type="application/pdf", name="a.pdf", data=b"%PDF"),
    "PDF by URL": File(media_type="application/pdf", url=URL),
    "sound": File(media_type="audio/wav", data=b"RIFF"),
    "sound by URL": File(media_type="audio/wav", url=URL),
    "video": File(media_type="video/mp4", data=b"ftyp"),
    "video by URL": File(media_type="video/mp4", url=URL),
    "nothing": File(media_type="application/pdf"),
}
REFUSED: dict[str, dict[str, str]] = {
    "openai": {
        "sound": "use OpenAIChatModel or GoogleModel",
        "sound by URL": "use OpenAIChatModel or GoogleModel",
        "video": "use GoogleModel",
        "video by URL": "use GoogleModel",
        "nothing": "set one of them",
    },
    "openai-chat": {
        "PDF by URL": "pass the file's data=",
        "sound by URL": "pass the file's data=",
        "nothing": "pass the file's data=",
    },
    "anthropic": {
        "TIFF": "send PNG or JPEG",
        "sound": "GoogleModel accepts audio and video",
        "sound by URL": "GoogleModel accepts audio and video",
        "video": "GoogleModel accepts audio and video",
        "video by URL": "GoogleModel accepts audio and video",
        "nothing": "set one of them",
    },
    "google": {"nothing": "set one of them"},
}
CASES = [(kind, name) for kind in WIRES for name in PARTS]


@pytest.mark.parametrize(("kind", "name"), CASES, ids=[f"{a} {b}" for a, b in CASES])
async def test_a_part_is_sent_or_refused_with_the_way_out(kind: Any, name: str) -> None:
    part, refusal = PARTS[name], REFUSED[kind].get(name)
    async with WireServer(kind, "I see.") as server:
        agent: Agent[Any] = Agent(ADAPTERS[kind]("m", base_url=server.url, api_key=KEY))
        if refusal is None:
            await agent.chat([Text("Look:"), part])
            sent = json.dumps(server.requests[0].json)
            assert (URL in sent) == (part.url is not None)
        else:
            with pytest.raises(BadRequestError, match=refusal) as caught:
                await agent.chat([Text("Look:"), part])
            assert not caught.value.retryable
            assert server.requests == []


@pytest.mark.parametrize("kind", WIRES)
async def test_the_result_of_a_tool_is_refused_in_the_same_way(kind: Any) -> None:
    if kind == "google":
        return  # which takes all of them

    @tool
    async def film() -> ToolResult:
        """Film it."""
        name = "sound by URL" if kind == "openai-chat" else "video"
        return ToolResult("filmed", media=(PARTS[name],))

    async with WireServer(kind, call("film")) as server:
        agent = Agent(ADAPTERS[kind]("m", base_url=server.url, api_key=KEY), tools=[film])
        with pytest.raises(BadRequestError):
            await agent.chat("Film it.")
        assert len(server.requests) == 1


async def test_video_goes_to_servers_that_take_it_and_not_to_those_that_do_not() -> None:
    async with WireServer("openai-chat", "I see.") as server:
        model = OpenAIChatModel("qwen-vl", base_url=server.url)
        await Agent(model).chat([PARTS["video by URL"]])
        [part] = server.requests[0].json["messages"][0]["content"]
        assert part == {"type": "video_url", "video_url": {"url": URL}}
        for prefix in ("groq", "mistral", "deepseek", "ollama"):
            refusing = preset(prefix, "m", api_key=KEY, base_url=server.url)
            with pytest.raises(
                BadRequestError, match=r"video/mp4 is not supported; use GoogleModel"
            ):
                await Agent(refusing).chat([PARTS["video"]])
        assert len(server.requests) == 1


async def test_openai_takes_no_video() -> None:
    model = OpenAIChatModel("gpt-x", api_key=KEY, base_url="https://api.openai.com/v1")
    with pytest.raises(BadRequestError, match="video/mp4 is not supported"):
        await Agent(model).chat([PARTS["video"]])
