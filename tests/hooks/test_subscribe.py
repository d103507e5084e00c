"""Subscriptions: an iterator over events for any other task, bounded, that slows no chat."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections import deque
from contextlib import aclosing
from typing import Any

import pytest

from hookline import Agent, HookBus, NullBus, tool
from hookline.errors import HooklineError, StreamStateError, SubscriptionOverflowError
from hookline.events import (
    ChatDone,
    ChatEvent,
    ChatFailed,
    ChatStarted,
    Event,
    MessageAdded,
    TextDelta,
    ToolCallFinished,
)
from hookline.testing import ScriptedModel, call, collect


@tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def chatting(**options: Any) -> Agent[Any]:
    """An agent whose chat has a tool call and several deltas."""
    model = ScriptedModel(["Let me see.", call("add", a=1, b=2)], "It is 3.", chunk=4)
    return Agent(model, tools=[add], **options)


async def drain(subscription: Any) -> list[Any]:
    """What it holds, after it was closed."""
    subscription.close()
    return [event async for event in subscription]


# ── what is received ────────────────────────────────────────────────────────────────────────


async def test_without_types_it_receives_every_event_of_a_chat_as_the_stream_gives_them() -> None:
    agent = chatting()
    subscription = agent.subscribe()
    streamed = await collect(agent.chat_stream("hi"))
    assert await drain(subscription) == streamed
    assert isinstance(streamed[-1], ChatDone)


async def test_it_receives_the_events_of_chats_that_nobody_streams() -> None:
    agent = chatting()
    subscription = agent.subscribe()
    await agent.chat("hi")
    events = await drain(subscription)
    assert isinstance(events[0], ChatStarted)
    assert isinstance(events[-1], ChatDone)
    assert [event.seq for event in events] == list(range(1, len(events) + 1))


async def test_types_choose_what_it_receives() -> None:
    agent = chatting()
    texts, pairs = agent.subscribe(TextDelta), agent.subscribe(ChatStarted, ChatDone)
    await agent.chat("hi")
    assert "".join(event.text for event in await drain(texts)) == "Let me see.It is 3."
    assert [type(event) for event in await drain(pairs)] == [ChatStarted, ChatDone]


async def test_the_base_of_all_events_may_be_asked_for() -> None:
    agent = chatting()
    everything, based = agent.subscribe(), agent.subscribe(Event)
    await agent.chat("hi")
    assert await drain(based) == await drain(everything)


async def test_it_receives_the_events_of_all_chats_of_the_agent() -> None:
    agent: Agent[Any] = Agent(ScriptedModel("one", "two"))
    subscription = agent.subscribe(ChatDone)
    first, second = await asyncio.gather(agent.chat("a"), agent.chat("b"))
    ids = {event.chat_id for event in await drain(subscription)}
    assert ids == {first.chat_id, second.chat_id}


async def test_it_receives_nothing_of_another_agent() -> None:
    subscription = chatting().subscribe()
    await chatting().chat("hi")
    assert await drain(subscription) == []


async def test_it_receives_the_end_of_a_chat_that_fails() -> None:
    agent: Agent[Any] = Agent(ScriptedModel(OSError("down")))
    subscription = agent.subscribe(ChatFailed)
    with pytest.raises(OSError, match="down"):
        await agent.chat("hi")
    assert [event.error.type for event in await drain(subscription)] == ["OSError"]


async def test_it_goes_on_after_the_end_of_a_chat() -> None:
    agent: Agent[Any] = Agent(ScriptedModel("one", "two"))
    subscription = agent.subscribe(TextDelta)
    await agent.chat("hi")
    assert (await anext(subscription)).text == "one"
    await agent.chat("hi")
    assert (await anext(subscription)).text == "two"


async def test_it_begins_with_what_is_published_after_it_was_made() -> None:
    agent: Agent[Any] = Agent(ScriptedModel("one", "two"))
    await agent.chat("hi")
    subscription = agent.subscribe(TextDelta)
    await agent.chat("hi")
    assert [event.text for event in await drain(subscription)] == ["two"]


async def test_a_hook_may_subscribe_in_the_middle_of_a_chat() -> None:
    agent = chatting()
    made: list[Any] = []
    agent.add_hook("onStep", lambda ctx: made.append(agent.subscribe(TextDelta)))
    await agent.chat("hi")
    assert "".join(event.text for event in await drain(made[0])) == "It is 3."


async def test_two_subscribers_each_receive_everything() -> None:
    agent = chatting()
    one, two = agent.subscribe(), agent.subscribe()
    await agent.chat("hi")
    events = await drain(one)
    assert len(events) > 10
    assert await drain(two) == events


async def test_a_subscriber_that_closes_does_not_take_the_others_along() -> None:
    agent = chatting()
    one, two = agent.subscribe(), agent.subscribe()
    agent.add_hook("onStep", lambda ctx: one.close())
    await agent.chat("hi")
    assert isinstance((await drain(two))[-1], ChatDone)


# ── other tasks, other threads ──────────────────────────────────────────────────────────────


async def test_another_task_reads_while_the_chat_runs() -> None:
    out: list[str] = []
    agent = chatting()
    gate = asyncio.Event()

    async def read() -> None:
        async with agent.subscribe(ToolCallFinished) as events:
            async for event in events:
                out.append(f"read {event.name}")
                gate.set()
                return

    async def waits(ctx: Any) -> None:
        await gate.wait()
        out.append("the chat goes on")

    agent.add_hook("onStep", waits)
    task = asyncio.create_task(read())
    await asyncio.sleep(0)
    await agent.chat("hi")
    await task
    assert out[:2] == ["read add", "the chat goes on"]


async def test_another_thread_reads_in_a_loop_of_its_own() -> None:
    agent = chatting()
    subscription = agent.subscribe()
    waits = threading.Event()

    async def read() -> list[ChatEvent]:
        events: list[ChatEvent] = []
        first = asyncio.ensure_future(anext(subscription))
        await asyncio.sleep(0)
        waits.set()  # it waits for an event by now
        events.append(await first)
        async for event in subscription:
            events.append(event)
            if isinstance(event, ChatDone):
                break
        return events

    limited = lambda: asyncio.run(asyncio.wait_for(read(), 60))  # noqa: E731
    reader = asyncio.create_task(asyncio.to_thread(limited))
    await asyncio.to_thread(waits.wait)
    response = await agent.chat("hi")
    events = await reader
    assert isinstance(events[0], ChatStarted)
    assert isinstance(events[-1], ChatDone)
    assert events[-1].response == response
    assert [event.seq for event in events] == list(range(1, len(events) + 1))


async def test_an_event_published_in_another_thread_wakes_the_reader() -> None:
    bus: HookBus[Any] = HookBus()
    with bus.subscribe(str) as subscription:
        reader = asyncio.ensure_future(anext(subscription))
        await asyncio.sleep(0)
        await asyncio.to_thread(bus.publish, "from a thread")
        assert await reader == "from a thread"


@pytest.mark.parametrize("what", ["an event", "its end"])
async def test_what_another_thread_does_while_the_reader_begins_to_wait_is_not_missed(
    what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reader has found nothing, and cannot be woken yet."""
    bus: HookBus[Any] = HookBus()
    subscription = bus.subscribe(str)
    loop = asyncio.get_running_loop()

    def just_then() -> asyncio.AbstractEventLoop:
        monkeypatch.undo()
        did = (lambda: bus.publish("from a thread")) if what == "an event" else subscription.close
        thread = threading.Thread(target=did)
        thread.start()
        thread.join()
        return loop

    async def read() -> str:
        async for event in subscription:
            return event
        return "the end"

    reader = asyncio.ensure_future(read())
    monkeypatch.setattr(asyncio, "get_running_loop", just_then)
    for _ in range(20):
        await asyncio.sleep(0)
    assert reader.done()
    assert await reader == ("from a thread" if what == "an event" else "the end")
    if what == "an event":  # the reader may wait again
        reader = asyncio.ensure_future(read())
        await asyncio.sleep(0)
        bus.publish("later")
        assert await reader == "later"


async def test_a_reader_in_another_thread_takes_the_event_that_would_be_dropped() -> None:
    """The writer has seen that the buffer is full, and the reader is faster."""
    bus: HookBus[Any] = HookBus()
    subscription = bus.subscribe(str, size=1, overflow="drop_oldest")
    bus.publish("first")
    read: list[str] = []

    async def one() -> None:
        read.append(await anext(subscription))

    class Items(deque[str]):
        def popleft(self) -> str:
            if not read:
                read.append("begun")
                thread = threading.Thread(target=lambda: asyncio.run(one()))
                thread.start()
                thread.join()
            return super().popleft()

    subscription._items = Items(subscription._items)
    bus.publish("second")
    assert read == ["begun", "first"]
    assert (await anext(subscription), subscription.dropped) == ("second", 0)


async def test_closing_in_another_thread_ends_the_reader() -> None:
    subscription = HookBus[Any]().subscribe(str)

    async def read() -> list[str]:
        return [event async for event in subscription]

    reader = asyncio.ensure_future(read())
    await asyncio.sleep(0)
    await asyncio.to_thread(subscription.close)
    assert await reader == []


async def test_a_reader_whose_loop_is_gone_disturbs_no_chat() -> None:
    agent = chatting()
    subscription = agent.subscribe()

    def give_up() -> Any:
        loop = asyncio.new_event_loop()
        reader: Any = loop.create_task(anext(subscription))
        loop.run_until_complete(asyncio.sleep(0))
        loop.close()  # and nobody has cancelled the reader
        reader._log_destroy_pending = False
        return reader

    reader = await asyncio.to_thread(give_up)
    assert (await agent.chat("hi")).text == "It is 3."
    assert not reader.done()


# ── it never slows a chat ───────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("overflow", ["close", "drop_oldest"])
@pytest.mark.parametrize("way", ["chat", "chat_stream"])
async def test_a_subscriber_that_never_reads_does_not_hold_up_a_chat(
    way: str, overflow: Any
) -> None:
    agent: Agent[Any] = Agent(ScriptedModel("x" * 500, chunk=1))
    agent.subscribe(size=2, overflow=overflow)
    if way == "chat":
        assert (await agent.chat("hi")).text == "x" * 500
    else:
        assert isinstance((await collect(agent.chat_stream("hi")))[-1], ChatDone)


async def test_publishing_never_waits() -> None:
    """Not even for one turn of the event loop: nothing of it can be awaited."""
    bus: HookBus[Any] = HookBus()
    subscription = bus.subscribe(size=1)
    assert bus.publish("a") is None
    assert bus.publish("b") is None
    assert subscription.closed


# ── overflow="close" ────────────────────────────────────────────────────────────────────────


async def test_by_default_what_overflows_closes_it_after_what_it_still_holds() -> None:
    bus: HookBus[Any] = HookBus()
    subscription = bus.subscribe(size=2)
    out: list[str] = []
    for event in "abcd":
        bus.publish(event)
    with pytest.raises(SubscriptionOverflowError) as caught:
        await collect(subscription, out)
    assert out == ["a", "b"]
    assert caught.value.limit == 2
    assert "drop_oldest" in str(caught.value)


async def test_close_is_the_default() -> None:
    bus: HookBus[Any] = HookBus()
    assert bus.subscribe().overflow == "close"
    assert chatting().subscribe().overflow == "close"


async def test_a_reader_that_waits_never_overflows() -> None:
    agent: Agent[Any] = Agent(ScriptedModel("x" * 100, chunk=1))
    subscription = agent.subscribe(TextDelta, size=65)

    async def read() -> int:
        return len([event async for event in subscription])

    reader = asyncio.ensure_future(read())
    async with agent.chat_stream("hi") as stream:
        async for _ in stream:
            await asyncio.sleep(0)
    subscription.close()
    assert await reader == 100


async def test_after_the_overflow_was_told_it_is_at_its_end() -> None:
    bus: HookBus[Any] = HookBus()
    subscription = bus.subscribe(size=1)
    bus.publish("a")
    bus.publish("b")
    assert await anext(subscription) == "a"
    with pytest.raises(SubscriptionOverflowError):
        await anext(subscription)
    with pytest.raises(StopAsyncIteration):
        await anext(subscription)


async def test_an_overflow_that_is_of_no_asked_type_is_none() -> None:
    bus: HookBus[Any] = HookBus()
    subscription = bus.subscribe(int, size=1)
    bus.publish(1)
    bus.publish("b")
    assert not subscription.closed


async def test_a_subscription_that_overflowed_costs_later_chats_nothing() -> None:
    bus: HookBus[Any] = HookBus()
    bus.subscribe(size=1)
    bus.publish("a")
    bus.publish("b")
    assert bus.subscribers == ()


# ── overflow="drop_oldest" ──────────────────────────────────────────────────────────────────


async def test_drop_oldest_keeps_the_latest_and_counts_what_it_dropped() -> None:
    bus: HookBus[Any] = HookBus()
    subscription = bus.subscribe(size=2, overflow="drop_oldest")
    for event in "abcde":
        bus.publish(event)
    assert subscription.dropped == 3
    assert await drain(subscription) == ["d", "e"]


async def test_events_that_were_not_asked_for_are_not_counted() -> None:
    bus: HookBus[Any] = HookBus()
    subscription = bus.subscribe(int, size=1, overflow="drop_oldest")
    for event in (1, "a", "b", 2):
        bus.publish(event)
    assert subscription.dropped == 1


async def test_what_was_dropped_of_a_chat_can_be_counted() -> None:
    agent: Agent[Any] = Agent(ScriptedModel("x" * 50, chunk=1))
    everything = agent.subscribe()
    subscription = agent.subscribe(size=5, overflow="drop_oldest")
    await agent.chat("hi")
    events = await drain(everything)
    assert subscription.dropped == len(events) - 5
    assert await drain(subscription) == events[-5:]


async def test_the_count_is_visible() -> None:
    bus: HookBus[Any] = HookBus()
    subscription = bus.subscribe(size=1, overflow="drop_oldest")
    bus.publish("a")
    bus.publish("b")
    assert "1 dropped" in repr(subscription)


async def test_its_memory_is_bounded() -> None:
    bus: HookBus[Any] = HookBus()
    subscription = bus.subscribe(size=3, overflow="drop_oldest")
    for number in range(10_000):
        bus.publish(number)
    assert len(await drain(subscription)) == 3


async def test_by_default_the_bound_is_finite() -> None:
    bus: HookBus[Any] = HookBus()
    subscription = bus.subscribe(overflow="drop_oldest")
    for number in range(100_000):
        bus.publish(number)
    assert subscription.dropped > 0


# ── closing, leaving, reading ───────────────────────────────────────────────────────────────


@pytest.mark.parametrize("form", ["with", "async with", "aclosing", "close"])
async def test_it_is_closed_by_every_form_of_leaving(form: str) -> None:
    bus: HookBus[Any] = HookBus()
    subscription = bus.subscribe()
    if form == "with":
        with subscription:
            pass
    elif form == "async with":
        async with subscription:
            pass
    elif form == "aclosing":
        async with aclosing(subscription):
            pass
    else:
        subscription.close()
    assert subscription.closed
    assert bus.subscribers == ()
    bus.publish("late")
    assert await drain(subscription) == []


async def test_close_twice_is_harmless() -> None:
    bus: HookBus[Any] = HookBus()
    subscription = bus.subscribe()
    subscription.close()
    subscription.close()
    assert bus.subscribers == ()


async def test_closing_wakes_a_reader_that_waits() -> None:
    subscription = HookBus[Any]().subscribe()
    reader = asyncio.ensure_future(collect(subscription))
    await asyncio.sleep(0)
    subscription.close()
    assert await reader == []


async def test_what_it_holds_can_still_be_read_after_close() -> None:
    bus: HookBus[Any] = HookBus()
    subscription = bus.subscribe()
    bus.publish("a")
    subscription.close()
    assert [event async for event in subscription] == ["a"]


async def test_a_second_reader_is_an_error_at_once() -> None:
    subscription = HookBus[Any]().subscribe()
    first = asyncio.ensure_future(anext(subscription))
    await asyncio.sleep(0)
    with pytest.raises(StreamStateError):
        await anext(subscription)
    subscription.close()
    with pytest.raises(StopAsyncIteration):
        await first


async def test_a_cancelled_reader_may_read_again() -> None:
    bus: HookBus[Any] = HookBus()
    subscription = bus.subscribe()
    reader = asyncio.ensure_future(anext(subscription))
    await asyncio.sleep(0)
    reader.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reader
    bus.publish("a")
    assert await anext(subscription) == "a"


async def test_an_event_is_not_lost_when_its_reader_is_cancelled_just_then() -> None:
    bus: HookBus[Any] = HookBus()
    subscription = bus.subscribe()
    reader = asyncio.ensure_future(anext(subscription))
    await asyncio.sleep(0)
    bus.publish("a")
    reader.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reader
    assert await anext(subscription) == "a"


async def test_a_subscription_does_not_keep_a_chat_alive() -> None:
    agent = chatting()
    before = set(asyncio.all_tasks())
    agent.subscribe()
    await agent.chat("hi")
    gc.collect()
    assert set(asyncio.all_tasks()) == before


# ── what is refused ─────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "options",
    [{"size": 0}, {"size": -1}, {"overflow": "block"}, {"size": "many"}],
    ids=["size=0", "size=-1", "overflow", "size='many'"],
)
def test_options_that_cannot_work_are_refused_and_nothing_is_subscribed(options: Any) -> None:
    bus: Any = HookBus()
    with pytest.raises(HooklineError):
        bus.subscribe(**options)
    assert bus.subscribers == ()


@pytest.mark.parametrize("bad", ["TextDelta", 3, (TextDelta, 3)], ids=["str", "int", "tuple"])
async def test_what_is_no_type_is_refused_when_subscribing_and_breaks_no_chat(bad: Any) -> None:
    agent = chatting()
    with pytest.raises(HooklineError):
        agent.subscribe(bad)
    assert (await agent.chat("hi")).text == "It is 3."


async def test_a_union_of_event_types_may_be_asked_for() -> None:
    agent = chatting()
    subscription = agent.subscribe(ChatStarted | ChatDone)
    await agent.chat("hi")
    assert [type(event) for event in await drain(subscription)] == [ChatStarted, ChatDone]


# ── standalone ──────────────────────────────────────────────────────────────────────────────


async def test_on_a_bus_without_an_agent_any_object_is_an_event() -> None:
    bus: HookBus[Any] = HookBus()
    numbers, everything = bus.subscribe(int), bus.subscribe()
    for event in (1, "a", None, 2):
        bus.publish(event)
    assert await drain(numbers) == [1, 2]
    assert await drain(everything) == [1, "a", None, 2]


async def test_publish_without_subscribers_is_harmless() -> None:
    HookBus[Any]().publish("nobody hears it")


async def test_a_null_bus_still_publishes() -> None:
    """It runs no hook; events are no hooks."""
    agent = chatting(bus=NullBus())
    subscription = agent.subscribe(MessageAdded)
    await agent.chat("hi")
    assert len(await drain(subscription)) == 4
