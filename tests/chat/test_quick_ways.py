"""The quick ways of a local chat come to what the long ways come to.

In the local runtime, hooks at preRequest and preToolCall are asked without a coroutine of the
chain's own as long as none of them waits. A runtime of one's own gets each step, the long way. Both
must be the same chat.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hookline import (
    Agent,
    Ask,
    Conversation,
    LocalRuntime,
    ModelResponse,
    Stop,
    Text,
    ToolFailure,
    ToolResult,
    UserMessage,
    tool,
)
from hookline._conversations.conversation import state_of
from hookline.errors import ToolDenied
from hookline.testing import ScriptedModel, call


class Boom(Exception):
    pass


class Plan(NamedTuple):
    """What a hook is going to do, after having waited so often."""

    does: str
    waits: int  # -1: it is no coroutine function
    on_error: str
    timeout: float | None


QUICK: dict[str, Any] = {}
LONG: dict[str, Any] = {"runtime": LocalRuntime()}  # one's own is asked for every step


def plans(*does: str) -> st.SearchStrategy[list[Plan]]:
    plan = st.builds(
        Plan,
        does=st.sampled_from(
            ("nothing", "nothing", "raises", "cancels", "aborts", "leaves", *does)
        ),
        waits=st.integers(-1, 2),
        on_error=st.sampled_from(("raise", "log")),
        timeout=st.sampled_from((None, None, 60.0)),
    )
    return st.lists(plan, min_size=1, max_size=4)


def hook_of(
    number: int, plan: Plan, seen: list[Any], dispose: Callable[[], object]
) -> Callable[[Any], Any]:
    def act(ctx: Any) -> Any:
        seen.append((number, ctx.run.iteration))
        match plan.does:
            case "raises":
                raise Boom
            case "cancels":
                raise asyncio.CancelledError
            case "denies":
                raise ToolDenied("no")
            case "aborts":
                ctx.run.abort("enough")
            case "leaves":
                dispose()  # the next hook's registration
            case "stops":
                return Stop("enough")
            case "answers":
                if hasattr(ctx, "call"):
                    return ToolResult("mine")
                return ModelResponse.of(f"hook {number}")
            case "refuses":
                return ToolFailure("no")
            case "asks":
                return Ask("may it?")
            case "changes":
                if hasattr(ctx, "call"):
                    return ctx.call.replace(arguments={"text": f"from {number}"})
                return ctx.request.replace(system=f"{ctx.request.system} {number}")
            case "lies":
                return 7
        return None

    async def waiting(ctx: Any) -> Any:
        for _ in range(plan.waits):
            await asyncio.sleep(0)
        return act(ctx)

    return act if plan.waits < 0 else waiting


async def played(point: Any, hooks: list[Plan], way: dict[str, Any]) -> list[Any]:
    """All that can be told of a chat with these hooks."""
    seen: list[Any] = []

    async def echo(text: str) -> str:
        seen.append(text)
        return text

    model = ScriptedModel(call("echo", text="model"), "done", strict=False)
    agent: Agent[Any] = Agent(model, tools=[echo], system="0", approver=lambda *_: True, **way)
    disposers: list[Callable[[], object]] = []
    for number, plan in enumerate(hooks):
        after = number + 1

        def dispose(after: int = after) -> None:
            if after < len(disposers):
                disposers[after]()

        hook = hook_of(number, plan, seen, dispose)
        more = {"on_error": plan.on_error, "timeout": plan.timeout if plan.waits >= 0 else None}
        disposers.append(agent.add_hook(point, hook, **more))
    seen.append("events")
    try:
        async with agent.chat_stream("go") as stream:
            async for event in stream:
                seen.append(type(event).__name__)
        seen.append([(m.role, m.text) for m in stream.response.messages])
    except BaseException as exc:
        seen.append((type(exc).__name__, str(exc), getattr(exc, "__notes__", [])))
    seen.append([request.system for request in model.requests])
    return seen


@pytest.mark.slow
@settings(max_examples=300)
@given(hooks=plans("stops", "answers", "changes", "lies"))
def test_at_pre_request(hooks: list[Plan]) -> None:
    quick, long = (asyncio.run(played("preRequest", hooks, way)) for way in (QUICK, LONG))
    assert quick == long


@pytest.mark.slow
@settings(max_examples=300)
@given(hooks=plans("stops", "answers", "refuses", "denies", "asks", "changes", "lies"))
def test_at_pre_tool_call(hooks: list[Plan]) -> None:
    quick, long = (asyncio.run(played("preToolCall", hooks, way)) for way in (QUICK, LONG))
    assert quick == long


@pytest.mark.parametrize("way", [QUICK, LONG], ids=["quick", "long"])
async def test_a_hook_that_waits_hears_of_an_abort(way: dict[str, Any]) -> None:
    """What is thrown into a hook that has begun reaches it, and what it does then counts."""
    heard: list[str] = []
    begun = asyncio.Event()
    agent: Agent[Any] = Agent(ScriptedModel("never"), **way)

    @agent.hook("preRequest")
    async def waits(ctx: Any) -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            heard.append("cancelled")
            await asyncio.sleep(0)
            heard.append("cleaned up")
            raise

    chat = asyncio.ensure_future(agent.chat("go"))
    await begun.wait()
    chat.cancel()
    with pytest.raises(asyncio.CancelledError):
        await chat
    assert heard == ["cancelled", "cleaned up"]


@pytest.mark.parametrize("way", [QUICK, LONG], ids=["quick", "long"])
@pytest.mark.parametrize("point", ["preRequest", "preToolCall"])
@pytest.mark.parametrize("is_async", [False, True])
async def test_a_hook_that_brings_the_first_observer_of_hooks_runs_once(
    way: dict[str, Any], point: Any, is_async: bool
) -> None:
    """What it has begun as a hook that nobody watches, it ends as one."""
    ran: list[str] = []
    model = ScriptedModel(call("echo", text="model"), "done", strict=False)
    agent: Agent[Any] = Agent(model, tools=[tool(name="echo")(_echo)], **way)

    def act(ctx: Any) -> Any:
        ran.append("first")
        agent.add_hook("onHook", lambda ctx: None)
        return Stop("enough")

    async def waiting(ctx: Any) -> Any:
        return act(ctx)

    agent.add_hook(point, waiting if is_async else act)
    agent.add_hook(point, lambda ctx: ran.append("second"))
    response = await agent.chat("go")
    assert response.stop_reason == "enough"
    assert ran == ["first"]


async def _echo(text: str) -> str:
    return text


@pytest.mark.parametrize("way", [QUICK, LONG], ids=["quick", "long"])
async def test_a_result_of_a_class_of_ones_own_is_a_result(way: dict[str, Any]) -> None:
    class Mine(ToolResult, frozen=True):
        """A user's."""

    agent: Agent[Any] = Agent(
        ScriptedModel(call("echo", text="x"), "done"), tools=[tool(name="echo")(_echo)], **way
    )

    @agent.hook("aroundToolCall")
    async def answers(ctx: Any, proceed: Any) -> Any:
        return Mine("mine")

    messages = (await agent.chat("go")).messages
    assert [(m.text, m.outcome) for m in messages if m.role == "tool"] == [("mine", "ok")]


async def test_a_message_that_is_changed_leaves_what_an_earlier_life_wrote_ahead() -> None:
    talk = state_of(Conversation([UserMessage(id="c.0", parts=(Text("a"),))]))
    kept, written = talk.messages[0], UserMessage(id="d.0", parts=(Text("b"),))
    talk.earlier_messages = [written]
    await talk.change(kept.replace(text="A"))
    talk.commit(written)
    assert talk.earlier_messages == []
    assert [m.text for m in talk.messages] == ["A", "b"]
