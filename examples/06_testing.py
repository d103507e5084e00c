"""Your own hooks and their tests: a policy that refuses calls, and a cache of a tool's results.

Needs `pip install hookline pytest`. In your project, put them into two files.
"""

import asyncio
import json
import subprocess
import sys

from hookline import Agent, Deny, Proceed, ToolCall, ToolFailure, ToolResult, define_hook
from hookline.points import AroundToolCall, PreToolCall
from hookline.testing import ScriptedModel, call, record


@define_hook("preToolCall", priority=200, on_error="deny")  # first of all; its errors are a no
def inside_only(ctx: PreToolCall) -> Deny | None:
    return None if ctx.call.arguments["url"].startswith("https://in/") else Deny("outside")


@define_hook("aroundToolCall")
async def once_a_chat(
    ctx: AroundToolCall, proceed: Proceed[ToolCall, ToolResult | ToolFailure]
) -> ToolResult | ToolFailure:
    key, seen = json.dumps(ctx.call.arguments), ctx.run.state  # no other chat sees this dict
    if key in seen:
        return ToolResult(seen[key])
    result = await proceed()
    if isinstance(result, ToolResult):  # an error is worth another try
        seen[key] = result.value
    return result


def fetch_all(*urls: object) -> tuple[list[str], list[str]]:
    """A chat that fetches these, one a step: what came of each, and what the tool was asked."""
    fetched: list[str] = []

    async def fetch(url: str) -> None:
        fetched.append(url)

    model = ScriptedModel(*[call("fetch", url=url) for url in urls], "Done.")
    agent = Agent(model, tools=[fetch], hooks=[inside_only, once_a_chat])
    with model, record(agent, points=["onToolCallResult", "onToolCallError"]) as recorder:
        asyncio.run(agent.chat("Go."))  # `with model` fails when its script is not played out
    return recorder.points, fetched


def test_a_page_is_fetched_once() -> None:
    points, fetched = fetch_all("https://in/a", "https://in/b", "https://in/a")
    assert points == ["onToolCallResult"] * 3
    assert fetched == ["https://in/a", "https://in/b"]


def test_what_is_not_inside_is_refused_and_so_is_what_is_no_address() -> None:
    assert fetch_all("https://elsewhere/", 7) == (["onToolCallError"] * 2, [])


if __name__ == "__main__":
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", __file__]
    raise SystemExit(subprocess.call(command))
