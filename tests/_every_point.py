"""Chats in which every hook point fires, for the tests that go through the whole table.

`fire(point, hook, **options)` makes an agent, adds the one hook, and plays the chat that brings the
point about; it gives or raises what the chat did.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hookline import (
    Agent,
    Approve,
    Ask,
    Conversation,
    MessageChanges,
    Response,
    Run,
    Scope,
    tool,
)
from hookline._chat.state import RUNNING
from hookline._chat.steering import send
from hookline.points import Compaction
from hookline.testing import ScriptedModel, call


class Planned(Exception):
    """What a chat that is to fail ends with."""


@tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool
async def report(run: Run) -> str:
    """Say how far it is."""
    await run.status("working", {"done": 1})
    return "reported"


@tool
async def broken() -> str:
    """Fail."""
    raise ValueError("broken")


def model() -> ScriptedModel:
    """Three calls – one that succeeds, one that reports, one that fails – and an answer."""
    return ScriptedModel(
        ["Let me see.", call("add", a=1, b=2), call("report"), call("broken")], "All done."
    )


def agent_for(point: str, **options: Any) -> Any:
    """An agent whose chat brings the point about, with the hooks that this takes."""
    options = {"model": model(), "tools": [add, report, broken], **options}
    if point == "onApproval":
        options.setdefault("approver", lambda request, run: Approve())
    agent: Agent[Any] = Agent(options.pop("model"), **options)
    if point == "onChatError":
        agent.add_hook("onStep", raising(Planned("as planned")), priority=-1000, name="fails")
    elif point == "onChatAbort":
        agent.add_hook("onStep", _abort, priority=-1000, name="aborts")
    elif point == "onApproval":
        agent.add_hook("preToolCall", lambda ctx: Ask("sure?"), tools=["add"], name="asks")
    elif point == "preSteer":
        agent.add_hook("onStep", sending("And then?"), priority=-1000, name="sends")
    elif point == "preCompact":
        agent.add_hook("preRequest", compacting, priority=-1000, name="compacts")
    elif point == "onHook":
        agent.add_hook("onChatStart", lambda ctx: None, name="seen")
    return agent


def sending(text: str) -> Callable[[Any], None]:
    """A hook at onStep that sends this message into its chat, after the first step."""

    def hook(ctx: Any) -> None:
        if ctx.iteration == 0:
            send(RUNNING[ctx.run.chat_id], text, "next")

    return hook


async def compacting(ctx: Any) -> None:
    """A hook at preRequest that asks whether it may shorten, and does not."""
    await ctx.run.compact("compacts", ctx.request.messages, Compaction(1))


def _abort(ctx: Any) -> None:
    ctx.run.abort("as planned")


async def play(point: str, agent: Any, **options: Any) -> Response:
    """The chat of that agent; for the points of scopes one comes and goes before it,
    and for those of updates a message is changed after it."""
    if point in ("onScopeRegister", "onScopeUnregister"):
        agent.scopes.register(Scope("later"))()
    if point not in ("preMessageUpdate", "onMessageUpdate"):
        answer: Response = await agent.chat("Add 1 and 2.", **options)
        return answer
    talk = options.setdefault("conversation", Conversation())
    response: Response = await agent.chat("Add 1 and 2.", **options)
    await agent.update_message(talk, talk.messages[0].id, MessageChanges(text="Add 1 and 3."))
    return response


async def fire(point: str, hook: Callable[..., Any], **options: Any) -> Response:
    """Add the hook to an agent and play the chat that brings its point about."""
    agent = agent_for(point)
    agent.add_hook(point, hook, **options)
    return await play(point, agent)


def observing(out: list[Any], kind: str) -> Callable[..., Any]:
    """A hook of that kind that writes down its context and changes nothing."""
    if kind == "wrapper":

        async def wrapper(ctx: Any, proceed: Any) -> Any:
            out.append(ctx)
            return await proceed()

        return wrapper
    return out.append


def raising(exc: BaseException, kind: str = "observer") -> Callable[..., Any]:
    """A hook of that kind that raises."""
    if kind == "wrapper":

        async def wrapper(ctx: Any, proceed: Any) -> Any:
            raise exc

        return wrapper

    def hook(ctx: Any) -> None:
        raise exc

    return hook


def returning(value: Any, kind: str) -> Callable[..., Any]:
    """A hook of that kind that returns the value."""
    if kind == "wrapper":

        async def wrapper(ctx: Any, proceed: Any) -> Any:
            await proceed()
            return value

        return wrapper
    return lambda ctx: value
