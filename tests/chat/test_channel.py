"""The channel between the writers of a run and its reader, without a chat."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from hookline import Agent
from hookline._chat.channel import HIGH_WATER, Channel
from hookline._chat.state import new_chat
from hookline.events import StepStarted
from hookline.testing import ScriptedModel

FULL = HIGH_WATER + 1


def put(channel: Channel, number: int) -> None:
    stream: Any = Agent(ScriptedModel()).chat_stream("hi")
    chat = new_chat(stream._config, stream._input, channel)
    chat.put(StepStarted(chat_id="c", iteration=number))


async def _turns(times: int = 5) -> None:
    for _ in range(times):
        await asyncio.sleep(0)


def filled() -> Channel:
    channel = Channel()
    for number in range(FULL):
        put(channel, number)
    return channel


async def write(channel: Channel, number: int) -> None:
    await channel.room()
    put(channel, number)


def last(channel: Channel) -> Any:
    found: Any = channel.items[-1]
    return found.iteration


async def take(channel: Channel) -> int | None:
    while not channel.items:
        if channel.closed:
            return None
        await channel.wait(asyncio.get_running_loop())
    event: Any = channel.take()
    return event.iteration


async def test_events_come_in_the_order_in_which_they_were_put() -> None:
    channel = Channel()
    for number in range(3):
        put(channel, number)
    channel.end()
    assert [await take(channel) for _ in range(4)] == [0, 1, 2, None]


async def test_writers_that_wait_are_served_in_order_and_within_the_bound() -> None:
    channel = filled()
    writers = [asyncio.create_task(write(channel, FULL + at)) for at in range(3)]
    await _turns()
    assert not any(writer.done() for writer in writers)
    seen: list[int | None] = []
    for _ in range(3):
        seen.append(await take(channel))
        await _turns()
        assert len(channel.items) == FULL
    while channel.items:
        seen.append(await take(channel))
    assert seen == list(range(FULL + 3))
    assert all(writer.done() for writer in writers)


async def test_a_reader_is_woken_by_the_next_event_and_by_the_end() -> None:
    channel = Channel()
    reader = asyncio.create_task(take(channel))
    await _turns()
    assert not reader.done()
    put(channel, 7)
    assert await reader == 7
    reader = asyncio.create_task(take(channel))
    await _turns()
    channel.end()
    assert await reader is None


async def test_a_writer_that_is_cancelled_while_it_waits_leaves_the_queue() -> None:
    channel = filled()
    first, second = (asyncio.create_task(write(channel, at)) for at in (100, 101))
    await _turns()
    first.cancel()
    await _turns()
    await take(channel)
    await second
    assert last(channel) == 101
    assert channel.writers == ()


async def test_a_writer_that_is_woken_and_cancelled_at_once_passes_its_turn_on() -> None:
    channel = filled()
    first, second = (asyncio.create_task(write(channel, at)) for at in (100, 101))
    await _turns()
    await take(channel)  # wakes the first, which has not run yet
    first.cancel()
    await second
    assert first.cancelled()
    assert last(channel) == 101


async def test_a_reader_that_is_woken_and_cancelled_at_once_loses_no_event() -> None:
    channel = Channel()
    reader = asyncio.create_task(take(channel))
    await _turns()
    put(channel, 1)
    reader.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reader
    assert await take(channel) == 1


async def test_closing_frees_the_writers_and_drops_what_is_put() -> None:
    channel = filled()
    writers = [asyncio.create_task(write(channel, at)) for at in range(3)]
    await _turns()
    channel.drop()
    await asyncio.gather(*writers)
    assert not channel.items
    assert await take(channel) is None


async def test_a_channel_without_a_reader_is_emptied_when_it_is_full_and_other_tasks_run() -> None:
    channel = Channel(unread=True)
    other = asyncio.create_task(_turns(0))
    for number in range(FULL):
        await write(channel, number)
    assert len(channel.items) == FULL
    assert not other.done()
    await write(channel, FULL)
    assert other.done()
    assert [event.iteration for event in channel.items] == [FULL]  # type: ignore[attr-defined]


async def test_a_writer_is_woken_only_when_it_has_room() -> None:
    channel = filled()
    put(channel, FULL)  # without waiting, as the margin allows
    writer = asyncio.create_task(write(channel, FULL + 1))
    await _turns()
    await take(channel)
    await _turns()
    assert not writer.done()
    await take(channel)
    await writer
    assert len(channel.items) == FULL
