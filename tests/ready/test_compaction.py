"""`preCompact`: hooks may refuse a compaction, keep more, and write the text themselves."""

from __future__ import annotations

from typing import Any

import pytest

from hookline import Agent, Conversation, Deny, ModelRequest, check_history, tool
from hookline.errors import HookError
from hookline.hooks import summarize, window
from hookline.points import Compaction, PreCompact, PreRequest
from hookline.testing import ScriptedModel, call

HEAD = "Summary of the conversation so far:\n"


@tool
async def look(n: int) -> int:
    """Look at a place."""
    return n


def summarizing(writer: ScriptedModel) -> Any:
    return summarize(4, by=writer, keep=1, count=lambda message: 1)


async def sent(hooks: Any, pre_compact: Any, texts: int = 3) -> list[list[str]]:
    """The texts of each request of a talk of user messages and answers."""
    model = ScriptedModel(*["ok"] * texts)
    agent: Agent[Any] = Agent(model, hooks=hooks)
    agent.add_hook("preCompact", pre_compact)
    talk = Conversation()
    for n in range(texts):
        await agent.chat(str(n), conversation=talk)
    return [[message.text for message in request.messages] for request in model.requests]


async def test_the_hook_sees_who_shortens_what_and_how() -> None:
    seen: list[tuple[str, int, Compaction]] = []

    def see(ctx: PreCompact) -> None:
        seen.append((ctx.hook, len(ctx.messages), ctx.compaction))

    requests = await sent(window(4, keep=1), see)
    assert requests[2] == ["2"]
    assert seen == [("window", 5, Compaction(1))]
    seen.clear()
    await sent(summarizing(ScriptedModel("So far.")), see)
    assert seen == [("summarize", 5, Compaction(1))]


@pytest.mark.parametrize("name", ["window", "summarize"])
async def test_a_refusal_leaves_the_messages_and_calls_no_model(name: str) -> None:
    writer = ScriptedModel()
    hooks = window(4, keep=1) if name == "window" else summarizing(writer)
    requests = await sent(hooks, lambda ctx: Deny("not now"))
    assert requests[2] == ["0", "ok", "1", "ok", "2"]
    assert writer.calls == 0


@pytest.mark.parametrize("name", ["window", "summarize"])
async def test_a_hook_writes_the_text_in_place_of_the_others(name: str) -> None:
    writer = ScriptedModel()
    hooks = window(4, keep=1) if name == "window" else summarizing(writer)
    requests = await sent(hooks, lambda ctx: ctx.compaction.replace(text="My own."))
    assert requests[2] == [f"{HEAD}My own.\n\n2"]
    assert writer.calls == 0


async def test_a_text_for_a_summary_is_stored_with_it() -> None:
    asked: list[int] = []

    def own(ctx: PreCompact) -> Compaction:
        asked.append(len(ctx.messages))
        return ctx.compaction.replace(text="My own.")

    requests = await sent(summarizing(ScriptedModel()), own, texts=4)
    assert requests[3] == [f"{HEAD}My own.\n\n2", "ok", "3"]
    assert asked == [5]


async def test_a_hook_keeps_more_and_calls_stay_with_their_results() -> None:
    def more(ctx: PreCompact) -> Compaction:
        return ctx.compaction.replace(keep=5)

    for hooks, number in (window(5, keep=2), 5), (summarizing(ScriptedModel(*["So far."] * 2)), 7):
        model = ScriptedModel(*[[call("look", n=n)] for n in range(4)], "done")
        agent: Agent[Any] = Agent(model, tools=[look], hooks=hooks)
        agent.add_hook("preCompact", more)
        await agent.chat("go")
        for request in model.requests:
            check_history(request.messages)
        assert len(model.requests[-1].messages) == number


async def test_a_user_s_own_hook_asks_too() -> None:
    agent: Agent[Any] = Agent(ScriptedModel("ok", "ok"))
    answers: list[Compaction | None] = []

    @agent.hook("preRequest")
    async def shorten(ctx: PreRequest) -> ModelRequest | None:
        messages = ctx.request.messages
        compaction = await ctx.run.compact("shorten", messages, Compaction(1))
        answers.append(compaction)
        if compaction is None:
            return None
        return ctx.request.replace(messages=messages[-compaction.keep :])

    agent.add_hook(
        "preCompact", lambda ctx: Deny("short enough") if len(ctx.messages) < 3 else None
    )
    talk = Conversation()
    await agent.chat("0", conversation=talk)
    await agent.chat("1", conversation=talk)
    assert answers == [None, Compaction(1)]


@pytest.mark.parametrize("keep", [0, 6])
async def test_a_number_of_messages_that_do_not_exist_is_refused(keep: int) -> None:
    with pytest.raises(HookError, match="keep= from 1 to 5"):
        await sent(window(4, keep=1), lambda ctx: ctx.compaction.replace(keep=keep))
