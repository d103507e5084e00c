"""Messages into a running chat: when they are committed, what hooks may do, what comes too late."""

from __future__ import annotations

import asyncio
from math import inf
from typing import Any

import pytest

from hookline import (
    Agent,
    Ask,
    Continue,
    Conversation,
    Deny,
    Limits,
    Stop,
    Text,
    ToolMessage,
    UserMessage,
    check_history,
    tool,
)
from hookline.errors import HookError, MaxStepsError, StreamStateError, UsageError
from hookline.events import (
    ChatDone,
    Interrupt,
    MessageAdded,
    MessageQueued,
    MessageReturned,
    StepStarted,
    ToolCallStarted,
)
from hookline.points import Hold, PreSteer
from hookline.testing import ScriptedModel, call


def texts(talk: Conversation) -> list[str]:
    return [f"{message.role}: {message.text}" for message in talk.messages]


def sending(*sends: Any, talk: Conversation, out: list[Any]) -> Any:
    """A tool that sends these messages while it runs."""

    async def work() -> str:
        """Work."""
        out.extend([agent_of[0].send(talk, text, when) for text, when in sends])
        return "worked"

    agent_of: list[Any] = []
    work.agent_of = agent_of  # type: ignore[attr-defined]
    return work


def agent_that(model: Any, *tools: Any, **options: Any) -> Any:
    agent: Agent[Any] = Agent(model, tools=tools, **options)
    for each in tools:
        each.agent_of.append(agent)
    return agent


async def test_next_is_committed_after_the_tools_and_seen_by_the_next_request() -> None:
    talk, sent = Conversation(), []
    work = sending(("hurry", "next"), ("please", "next"), talk=talk, out=sent)
    model = ScriptedModel([call("work"), call("work", call_id="b")], "Done.", "Never.")
    agent = agent_that(model, work)
    await agent.chat("go", conversation=talk)
    assert texts(talk) == [
        "user: go",
        "assistant: ",
        "tool: worked",
        "tool: worked",
        *(["user: hurry", "user: please"] * 2),
        "assistant: Done.",
    ]
    assert [message.text for message in model.requests[1].messages[-4:]] == [
        *("hurry", "please", "hurry", "please"),
    ]
    assert [each.status for each in sent] == ["delivered"] * 4
    assert [each.message.id for each in sent] == [m.id for m in talk.messages[4:8]]
    assert len({message.id for message in talk.messages}) == 9
    check_history(talk.messages)


async def test_idle_waits_for_the_end_of_the_work() -> None:
    talk, sent = Conversation(), []
    work = sending(("and then?", "idle"), ("hurry", "next"), talk=talk, out=sent)
    agent = agent_that(ScriptedModel(call("work"), "Done.", "Nothing."), work)
    response = await agent.chat("go", conversation=talk)
    assert texts(talk)[3:] == [
        "user: hurry",
        "assistant: Done.",
        "user: and then?",
        "assistant: Nothing.",
    ]
    assert response.text == "Nothing."
    assert [each.status for each in sent] == ["delivered", "delivered"]


async def test_next_in_the_last_answer_lets_the_chat_go_on() -> None:
    talk = Conversation()
    agent: Agent[Any] = Agent(ScriptedModel("One.", "Two."))
    sent: list[Any] = []

    @agent.hook("onResponse")
    def send(ctx: Any) -> None:
        if not sent:
            sent.append(agent.send(talk, "more"))

    await agent.chat("go", conversation=talk)
    assert texts(talk) == ["user: go", "assistant: One.", "user: more", "assistant: Two."]


async def test_a_message_before_the_first_request_follows_the_users() -> None:
    talk = Conversation()
    agent: Agent[Any] = Agent(ScriptedModel("One."))
    async with agent.chat_stream("go", conversation=talk) as stream:
        stream.send("quickly")
        events = [event async for event in stream]
    assert texts(talk) == ["user: go", "user: quickly", "assistant: One."]
    names = [type(event).__name__ for event in events]
    assert names[:5] == [
        *("ChatStarted", "MessageAdded", "MessageQueued", "MessageAdded", "StepStarted"),
    ]


async def test_the_answer_of_pre_chat_is_no_request_so_the_message_waits() -> None:
    from hookline import ModelResponse

    talk = Conversation()
    agent: Agent[Any] = Agent(ScriptedModel("Two."))
    agent.add_hook("preChat", lambda ctx: ModelResponse.of("One."))
    async with agent.chat_stream("go", conversation=talk) as stream:
        stream.send("more")
        async for _ in stream:
            pass
    assert texts(talk) == ["user: go", "assistant: One.", "user: more", "assistant: Two."]


async def test_continue_comes_first_and_pre_stop_is_asked_at_each_end() -> None:
    talk = Conversation()
    agent: Agent[Any] = Agent(ScriptedModel("1", "2", "3"))
    seen: list[int] = []

    @agent.hook("preStop")
    def more(ctx: Any) -> Continue | None:
        seen.append(ctx.continuations)
        return Continue("go on") if len(seen) == 1 else None

    async with agent.chat_stream("go", conversation=talk) as stream:
        stream.send("idle", when="idle")
        async for _ in stream:
            pass
    assert texts(talk) == [
        *("user: go", "assistant: 1", "user: go on", "assistant: 2", "user: idle"),
        "assistant: 3",
    ]
    assert seen == [0, 1, 1]


# ── preSteer ────────────────────────────────────────────────────────────────────────────────


async def test_a_hook_changes_holds_or_refuses() -> None:
    talk, sent = Conversation(), []
    work = sending(("change", "next"), ("hold", "next"), ("refuse", "next"), talk=talk, out=sent)
    agent = agent_that(ScriptedModel(call("work"), "Done.", "Held."), work)
    asked: list[str] = []

    @agent.hook("preSteer")
    def steer(ctx: Any) -> UserMessage | Hold | Deny | None:
        asked.append(f"{ctx.message.text} {ctx.when}")
        match ctx.message.text:
            case "change":
                return ctx.message.replace(parts=(Text("changed"),))
            case "hold":
                return Hold() if asked.count("hold next") == 1 else None
            case _:
                return Deny("not now")

    async with agent.chat_stream("go", conversation=talk) as stream:
        events = [event async for event in stream]
    [refusal] = [event for event in events if isinstance(event, MessageReturned)]
    assert (refusal.message.text, refusal.reason) == ("refuse", "not now")
    assert asked == ["change next", "hold next", "refuse next", "hold next"]
    assert texts(talk)[3:] == [
        *("user: changed", "assistant: Done.", "user: hold", "assistant: Held."),
    ]
    assert [(each.status, each.reason) for each in sent] == [
        *(("delivered", None), ("delivered", None), ("returned", "not now")),
    ]


async def test_a_message_that_is_held_to_the_end_is_returned() -> None:
    talk = Conversation()
    agent: Agent[Any] = Agent(ScriptedModel("One."))
    agent.add_hook("preSteer", lambda ctx: Hold())
    async with agent.chat_stream("go", conversation=talk) as stream:
        sent = stream.send("wait")
        async for _ in stream:
            pass
    assert not await sent.delivered()
    assert (sent.status, sent.reason) == (
        "returned",
        "the chat ended before the message was delivered",
    )
    assert texts(talk) == ["user: go", "assistant: One."]


async def test_a_delivered_message_passes_the_hooks_of_every_message() -> None:
    trace: list[str] = []
    agent: Agent[Any] = Agent(ScriptedModel("One."))
    agent.add_hook("preSteer", lambda ctx: trace.append("preSteer"))
    agent.add_hook("preMessage", lambda ctx: trace.append(f"preMessage {ctx.message.text}"))
    agent.add_hook("onMessage", lambda ctx: trace.append(f"onMessage {ctx.message.text}"))
    async with agent.chat_stream("go") as stream:
        stream.send("more")
        async for event in stream:
            if isinstance(event, MessageQueued | StepStarted):
                trace.append(type(event).__name__)
    assert [each for each in trace if "go" not in each and "One" not in each][-4:] == [
        *("preMessage more", "onMessage more", "MessageQueued", "StepStarted"),
    ]
    assert trace[2] == "preSteer"


@pytest.mark.parametrize("point", ["preSteer", "preMessage"])
async def test_a_message_whose_hook_raises_is_returned(point: str) -> None:
    talk = Conversation()
    agent: Agent[Any] = Agent(ScriptedModel("One."))

    def broken(ctx: Any) -> None:
        if ctx.message.text == "more":
            raise ValueError("broken")

    agent.add_hook(point, broken)  # type: ignore[call-overload]
    stream = agent.chat_stream("go", conversation=talk)
    async with stream:
        sent = stream.send("more")
        with pytest.raises(ValueError, match="broken"):
            async for _ in stream:
                pass
    assert sent.status == "returned"
    assert texts(talk) == ["user: go"]


# ── too late ────────────────────────────────────────────────────────────────────────────────


async def test_after_the_end_a_message_is_returned_at_once() -> None:
    talk = Conversation()
    agent: Agent[Any] = Agent(ScriptedModel("One."))
    async with agent.chat_stream("go", conversation=talk) as stream:
        async for event in stream:
            if isinstance(event, ChatDone):
                late = stream.send("late")
    assert (late.status, stream.send("later").status) == ("returned", "returned")
    nobody = agent.send(talk, "anyone?")
    assert (nobody.status, nobody.reason) == (
        "returned",
        f"no chat is running on conversation {talk.id!r}",
    )
    assert not await nobody.delivered()


@pytest.mark.parametrize("end", ["abort", "stop", "steps", "approval"])
async def test_what_an_end_leaves_in_the_queue_is_returned(end: str) -> None:
    talk, sent = Conversation(), []
    when = "next" if end in ("abort", "steps") else "idle"
    work = sending(("more", when), talk=talk, out=sent)
    agent = agent_that(
        ScriptedModel(call("work"), call("work", call_id="b"), "Done."),
        work,
        limits=Limits(steps=1 if end == "steps" else 20),
    )
    if end == "abort":
        agent.add_hook("onStep", lambda ctx: ctx.run.abort("enough"))
    elif end == "stop":
        agent.add_hook("onStep", lambda ctx: Stop("enough"))
    elif end == "approval":
        asks = iter([None, Ask("sure?")])
        agent.add_hook("preToolCall", lambda ctx: next(asks))
    stream = agent.chat_stream("go", conversation=talk)
    try:
        async with stream:
            async for _ in stream:
                pass
    except MaxStepsError:
        assert end == "steps"
    except Exception:
        assert end == "abort"
    assert [each.status for each in sent] == ["returned"]
    assert "user: more" not in texts(talk)


async def test_a_hook_at_the_end_hears_nothing_of_a_later_message() -> None:
    talk, sent = Conversation(), []
    agent: Agent[Any] = Agent(ScriptedModel("One."))
    agent.add_hook("onChatDone", lambda ctx: sent.append(agent.send(talk, "late")))
    await agent.chat("go", conversation=talk)
    assert sent[0].status == "returned"


# ── the sender ──────────────────────────────────────────────────────────────────────────────


async def test_a_message_that_is_sent_again_is_queued_once() -> None:
    model = ScriptedModel("Hello.", "Done.")
    message = UserMessage(id="mine", parts=(Text("hurry"),))
    async with Agent(model).chat_stream("hi") as stream:
        sent = stream.send(message, when="idle")
        assert stream.send(message) is sent
        async for _ in stream:
            pass
    assert stream.send(message) is sent
    assert sent.status == "delivered"
    assert [m.text for m in stream.response.messages] == ["hi", "Hello.", "hurry", "Done."]


async def test_a_stream_ends_with_the_messages_that_came_too_late() -> None:
    async with Agent(ScriptedModel("Hello.")).chat_stream("hi", limits=Limits(steps=1)) as stream:
        sent = [stream.send(text, when="idle") for text in ("a", "b")]
        events = [event async for event in stream]
    assert [
        (event.message.id, event.reason) for event in events if isinstance(event, MessageReturned)
    ] == [(each.message.id, "the chat ended before the message was delivered") for each in sent]
    assert isinstance(events[-1], ChatDone)
    assert [each.status for each in sent] == ["returned"] * 2


async def test_send_finds_the_chat_by_the_id_of_its_stored_conversation() -> None:
    from hookline import MemoryStore

    store, sent = MemoryStore(), []

    async def work() -> str:
        """Work."""
        sent.append(agent.send("talk", "hurry"))
        sent.append(agent.send("other", "hurry"))
        return "worked"

    agent: Agent[Any] = Agent(ScriptedModel(call("work"), "Done."), tools=[work], store=store)
    await agent.chat("go", conversation="talk")
    assert [each.status for each in sent] == ["delivered", "returned"]
    talk = await Conversation.open(store, "talk")
    assert texts(talk)[3:] == ["user: hurry", "assistant: Done."]


async def test_a_sub_agents_chat_takes_no_message_of_the_conversation() -> None:
    talk, sent = Conversation(), []

    async def inner() -> str:
        """Work."""
        sent.append(agent.send(talk, "hurry"))
        return "worked"

    child: Agent[Any] = Agent(ScriptedModel(call("inner"), "Found."), tools=[inner], name="child")
    agent: Agent[Any] = Agent(
        ScriptedModel(call("child", input="?"), "Done."), tools=[child.as_tool()]
    )
    await agent.chat("go", conversation=talk)
    assert texts(talk)[3:] == ["user: hurry", "assistant: Done."]
    assert sent[0].status == "delivered"


async def test_wrong_uses_are_refused() -> None:
    talk = Conversation()
    agent: Agent[Any] = Agent(ScriptedModel("One."))
    stream = agent.chat_stream("go", conversation=talk)
    with pytest.raises(StreamStateError, match="has not begun"):
        stream.send("early")
    async with stream:
        with pytest.raises(UsageError, match="must be 'next' or 'idle'"):
            stream.send("more", when="soon")  # type: ignore[arg-type]
        with pytest.raises(UsageError, match="neither text nor media"):
            stream.send(" ")
        async for _ in stream:
            pass
    with pytest.raises(UsageError, match="conversation=None"):
        agent.send(None, "more")  # type: ignore[arg-type]


async def test_another_event_loop_cannot_send() -> None:
    talk = Conversation()
    agent: Agent[Any] = Agent(ScriptedModel("One."))

    @agent.hook("onResponse")
    async def send(ctx: Any) -> None:
        await asyncio.to_thread(lambda: asyncio.run(_send_in_another_loop(agent, talk)))

    with pytest.raises(StreamStateError, match="event loop"):
        await agent.chat("go", conversation=talk)


async def _send_in_another_loop(agent: Any, talk: Conversation) -> None:
    agent.send(talk, "more")


async def test_the_queue_is_bounded() -> None:
    talk = Conversation()
    agent: Agent[Any] = Agent(ScriptedModel("One."))
    async with agent.chat_stream("go", conversation=talk) as stream:
        sent = [stream.send(f"m{n}") for n in range(70)]
        events = [event async for event in stream]
    assert [each.status for each in sent] == ["delivered"] * 64 + ["returned"] * 6
    assert sent[-1].reason == "64 messages wait already"
    assert texts(talk) == ["user: go", *(f"user: m{n}" for n in range(64)), "assistant: One."]
    queued = [event.message.id for event in events if isinstance(event, MessageQueued)]
    added = [event.message.id for event in events if isinstance(event, MessageAdded)]
    assert queued == added[1:65]


async def test_a_sender_waits_in_another_task() -> None:
    talk = Conversation()
    agent: Agent[Any] = Agent(ScriptedModel("One.", delay=0.001, chunk=1))
    stream = agent.chat_stream("go", conversation=talk)

    async def reads() -> None:
        async for _ in stream:
            pass

    async with stream:
        reader = asyncio.create_task(reads())
        assert await stream.send("more").delivered()
        await reader


# ── Interrupt ───────────────────────────────────────────────────────────────────────────────


def slow_tools() -> tuple[Any, Any, Any]:
    """A tool that may be interrupted, one that may not, and the event that ends the second."""
    end = asyncio.Event()

    @tool(idempotent=True)
    async def search() -> str:
        """Search."""
        await asyncio.Event().wait()
        return "never"

    @tool
    async def pay() -> str:
        """Pay."""
        await end.wait()
        return "paid"

    return search, pay, end


async def both_run(stream: Any, *names: str) -> None:
    """Read until these tools have begun, and let them run to their wait."""
    begun: set[str] = set()
    async for event in stream:
        if isinstance(event, ToolCallStarted):
            begun.add(event.call.name)
        if begun == {*names}:
            break
    for _ in range(5):
        await asyncio.sleep(0)


@pytest.mark.parametrize("seconds", [None, inf], ids=["limit", "no limit"])
async def test_an_interrupt_cancels_the_tools_that_allow_it_and_no_other(
    seconds: float | None,
) -> None:
    search, pay, end = slow_tools()
    talk = Conversation()
    model = ScriptedModel([call("search"), call("pay")], "Done.")
    limits = Limits() if seconds is None else Limits(tool_timeout=seconds)
    agent: Agent[Any] = Agent(model, tools=[search, pay], limits=limits)
    async with agent.chat_stream("go", conversation=talk) as stream:
        await both_run(stream, "search", "pay")
        sent = stream.send(Interrupt("stop searching"))
        for _ in range(5):
            await asyncio.sleep(0)
        end.set()
        async for _ in stream:
            pass
    assert sent.status == "delivered"
    search_result, pay_result = [m for m in talk.messages if isinstance(m, ToolMessage)]
    assert (search_result.outcome, pay_result.text) == ("error", "paid")
    assert "may have run" in search_result.text
    assert [m.text for m in talk.messages[4:]] == ["stop searching", "Done."]
    check_history(talk.messages)


async def test_an_interrupt_of_one_call_leaves_the_chat_and_its_task_alone() -> None:
    search, _, _ = slow_tools()
    talk = Conversation()
    agent: Agent[Any] = Agent(ScriptedModel([call("search")], "Done."), tools=[search])
    task = asyncio.ensure_future(agent.chat("go", conversation=talk))
    for _ in range(20):
        await asyncio.sleep(0)
    sent = agent.send(talk, Interrupt("stop"))
    response = await task
    assert (response.text, sent.status, task.cancelling()) == ("Done.", "delivered", 0)


async def test_an_interrupt_without_a_running_tool_is_a_message() -> None:
    talk = Conversation()
    agent: Agent[Any] = Agent(ScriptedModel("One."))
    async with agent.chat_stream("go", conversation=talk) as stream:
        stream.send(Interrupt("quickly"))
        with pytest.raises(UsageError, match="contradicts an Interrupt"):
            stream.send(Interrupt("later"), when="idle")
        async for _ in stream:
            pass
    assert texts(talk) == ["user: go", "user: quickly", "assistant: One."]


async def test_an_early_hook_changes_a_message_before_it_is_shown_as_queued_or_returned() -> None:
    def clean(ctx: PreSteer[Any]) -> UserMessage:
        return ctx.message.replace(text=ctx.message.text.replace("secret", "[x]"))

    def refuse(ctx: PreSteer[Any]) -> Deny | None:
        return Deny("not that") if "bad" in ctx.message.text else None

    agent: Agent[Any] = Agent(ScriptedModel("Done.", "More."))
    agent.add_hook("preSteer", refuse)
    agent.add_hook("preSteer", clean, early=True)
    stream = agent.chat_stream("Hi.", conversation=(talk := Conversation()))
    async with stream:
        good, bad = stream.send("secret one"), stream.send("bad secret")
        events = [event async for event in stream]
    shown = [event.message.text for event in events if isinstance(event, MessageQueued)]
    assert shown == ["[x] one", "bad [x]"]
    assert [e.message.text for e in events if isinstance(e, MessageReturned)] == ["bad [x]"]
    assert (good.message.text, bad.message.text) == ("[x] one", "bad [x]")
    assert "secret" not in repr(events) + talk.to_json().decode()


async def test_an_early_hook_must_be_sync_and_only_change_the_message() -> None:
    async def late(ctx: PreSteer[Any]) -> None:
        pass

    agent: Agent[Any] = Agent(ScriptedModel("Done."))
    with pytest.raises(UsageError, match=r"early=True needs a sync function, but .* is async"):
        agent.add_hook("preSteer", late, early=True)
    agent.add_hook("preSteer", lambda ctx: Deny("no"), early=True, name="no")
    stream = agent.chat_stream("Hi.")
    async with stream:
        with pytest.raises(HookError, match="an early hook must return the changed message"):
            stream.send("More.")
        _ = [event async for event in stream]
