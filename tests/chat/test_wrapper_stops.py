"""A wrapper of tool calls may end the chat, and observers are told who aborted it."""

import asyncio

import pytest

from hookline import Agent, Run
from hookline.errors import ChatAbortedError, StopChat
from hookline.events import ToolCallStarted
from hookline.testing import ScriptedModel, call


async def look() -> str:
    """Look."""
    return "seen"


async def test_a_wrapper_that_raises_stopchat_ends_the_chat_after_the_step():
    agent = Agent(ScriptedModel([call("look"), call("look")]), tools=[look])

    @agent.hook("aroundToolCall")
    async def leave(ctx, proceed):
        if ctx.call.id == "call_1":
            raise StopChat("enough")
        return await proceed()

    response = await agent.chat("Go.")
    assert response.stop_reason == "enough"
    assert [result.text for result in response.tool_results] == ["enough", "seen"]


async def test_an_abort_says_whether_the_reader_asked_for_it():
    seen = []

    async def halt(run: Run) -> str:
        """Halt."""
        run.abort("tool")
        return ""

    async def wait() -> str:
        """Wait."""
        await asyncio.Event().wait()
        return ""

    def note(ctx):
        seen.append((ctx.reason, ctx.by_reader))

    agent = Agent(ScriptedModel(call("halt"), repeat=True), tools=[halt])
    agent.add_hook("onChatAbort", note)
    with pytest.raises(ChatAbortedError):
        await agent.chat("Go.")
    waits = Agent(ScriptedModel(call("wait")), tools=[wait])
    waits.add_hook("onChatAbort", note)
    stream = waits.chat_stream("Go.")
    async for event in stream:
        if isinstance(event, ToolCallStarted):
            stream.abort("reader")
    assert seen == [("tool", False), ("reader", True)]
