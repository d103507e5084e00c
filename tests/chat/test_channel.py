"""The channel between the writers of a run and its reader, without a chat."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from hookline._base.cancel import Deadlines
from hookline._chat.channel import SIZE, Channel, Outlet
from hookline._hooks.bus import View
from hookline.events import StepStarted


def put(channel: Channel, number: int) -> None:
    """Put an event as a chat without subscribers does."""
    outlet = Outlet(View(), Deadlines(None, 5.0), channel)
    outlet.put(StepStarted(chat_id="c", iteration=number))


async def _turns(times: int = 5) -> None:
    for _ in range(times):
        await asyncio.sleep(0)


def filled() -> Channel:
    channel = Channel()
    for number in range(SIZE):
        put(channel, number)
    return channel


async def write(channel: Channel, number: int) -> None:
    await channel.room()
    put(channel, number)


def last(channel: Channel) -> Any:
    found: Any = channel.items[-1]
    return found.iteration


async def take(channel: Channel) -> int | None:
    found: Any = await channel.get(asyncio.get_running_loop())
    return None if found is None else found.iteration


async def test_events_come_in_the_order_in_which_they_were_put() -> None:
    channel = Channel()
    for number in range(3):
        put(channel, number)
    channel.end()
    assert [await take(channel) for _ in range(4)] == [0, 1, 2, None]


async def test_writers_that_wait_are_served_in_order_and_within_the_bound() -> None:
    channel = filled()
    writers = [asyncio.create_task(write(channel, SIZE + at)) for at in range(3)]
    await _turns()
    assert not any(writer.done() for writer in writers)
    seen: list[int | None] = []
    for _ in range(3):
        seen.append(await take(channel))
        await _turns()
        assert len(channel.items) == SIZE
    while channel.items:
        seen.append(await take(channel))
    assert seen == list(range(SIZE + 3))
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
    assert channel.writers == []


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


async def test_a_channel_that_nobody_reads_is_never_full() -> None:
    channel = Channel(closed=True)
    for number in range(3 * SIZE):
        await write(channel, number)
    assert not channel.items
    assert channel.closed
