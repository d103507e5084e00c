"""Hooks that shorten requests, and a provider's switches for its prompt cache, on the wire."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from tests._wires import WIRES, wire
from tests.ready._prefix_table import HOOKS, SHORTENING, STEPS, look
from tests.wire import WireFormat

from hookline import Agent, HookDef, Limits
from hookline.hooks import summarize
from hookline.providers.anthropic import AnthropicSettings
from hookline.providers.google import GoogleSettings
from hookline.providers.openai import OpenAISettings
from hookline.providers.openai_chat import OpenAIChatSettings
from hookline.testing import ScriptedModel, Turn, call

SETTINGS: dict[str, Any] = {
    "openai": OpenAISettings(cache_key="shop", cache_retention="24h"),
    "openai-chat": OpenAIChatSettings(cache_key="shop", cache_retention="24h"),
    "anthropic": AnthropicSettings(cache="1h"),
    "google": GoogleSettings(cached_content="cachedContents/1"),
}
MARK = {"type": "ephemeral", "ttl": "1h"}


def by_another(folder: Path) -> tuple[HookDef, ...]:
    """The summaries are written by a model of its own: the server answers in a fixed order."""
    return summarize(20_000, by=ScriptedModel("s" * 800, repeat=True))


def hooks_of(name: str, folder: Path) -> tuple[HookDef, ...]:
    made: dict[str, Callable[[Path], tuple[HookDef, ...]]] = {**HOOKS, "summarize": by_another}
    return made[name](folder)


async def bodies_of(kind: WireFormat, name: str, folder: Path) -> list[dict[str, Any]]:
    """The requests of a loop of 40 tool steps, as the provider gets them."""
    steps = [Turn("I look.", tool_calls=[call("look", n=n)]) for n in range(STEPS)]
    async with wire(kind, *steps, "Done.", settings=SETTINGS[kind]) as (model, server):
        agent = Agent(
            model,
            tools=[look],
            system="Be brief.",
            hooks=hooks_of(name, folder),
            limits=Limits(steps=STEPS + 5),
        )
        await agent.chat("Look around.")
    return [request.json for request in server.requests]


def pieces(body: dict[str, Any]) -> list[str]:
    """A request in the order in which providers cache it, one piece for each message."""
    head = [body.get(key) for key in ("tools", "system", "instructions", "systemInstruction")]
    messages = next(body[key] for key in ("messages", "input", "contents") if key in body)
    return [json.dumps(piece) for piece in (*head, *messages)]


def equal_start(before: list[str], after: list[str]) -> int:
    """The number of characters at the start of a request that are those of the one before."""
    size = 0
    for one, other in zip(before, after, strict=False):
        if one != other:
            break
        size += len(one)
    return size


@pytest.mark.parametrize("name", SHORTENING)
@pytest.mark.parametrize("kind", WIRES)
async def test_shortened_requests_keep_their_start_and_the_switch_of_the_cache(
    kind: WireFormat, name: str, tmp_path: Path
) -> None:
    bodies = await bodies_of(kind, name, tmp_path)
    assert len(bodies) == STEPS + 1
    for body in bodies:
        if kind == "google":
            assert body["cachedContent"] == "cachedContents/1"
        elif kind != "anthropic":
            assert (body["prompt_cache_key"], body["prompt_cache_retention"]) == ("shop", "24h")
    starts = [marked_starts(body) for body in bodies]  # and no marks are left in the bodies
    sizes = [equal_start(*pair) for pair in pairwise([pieces(body) for body in bodies])]
    assert sum(sizes) >= 0.85 * sum(len("".join(pieces(body))) for body in bodies[1:])
    if kind == "anthropic":
        hits = [
            max(map(len, {*before} & {*after}), default=0) for before, after in pairwise(starts)
        ]
        sizes = [len("".join(map(json.dumps, body["messages"]))) for body in bodies[:-1]]
        assert sum(hits) >= 0.85 * sum(sizes)
    else:
        assert not any(starts)


def marked_starts(body: dict[str, Any]) -> list[str]:
    """Take out the marks of Anthropic's cache; returns the start of the messages up to each."""
    head = [
        *body.get("tools", ()),
        *(body["system"] if isinstance(body.get("system"), list) else ()),
    ]
    marks = [part.pop("cache_control") for part in head if "cache_control" in part]
    starts: list[str] = []
    text = ""
    for message in body.get("messages", ()):
        found = [
            part.pop("cache_control")
            for part in message["content"] or ()
            if "cache_control" in part
        ]
        marks += found
        text += json.dumps(message)
        if found:
            starts.append(text)
    assert marks == [MARK] * len(marks)
    assert len(marks) <= 4
    return starts
