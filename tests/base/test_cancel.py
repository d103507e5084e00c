"""Work that is finished whoever cancels, and time limits that pause."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests._tool_chats import Clock

from hookline._base.cancel import Deadlines, Expired, shielded, spawn


async def _turns(times: int = 5) -> None:
    for _ in range(times):
        await asyncio.sleep(0)


class Work:
    """Something that takes until its gate is opened."""

    def __init__(self, value: Any = "done") -> None:
        self.gate = asyncio.Event()
        self.value = value
        self.trace: list[str] = []

    async def __call__(self) -> Any:
        self.trace.append("begins")
        await self.gate.wait()
        self.trace.append("ends")
        if isinstance(self.value, BaseException):
            raise self.value
        return self.value


@pytest.mark.parametrize("cancels", [0, 1, 3])
async def test_what_is_shielded_ends_however_often_we_are_cancelled(cancels: int) -> None:
    work = Work()
    task = asyncio.create_task(shielded(work()))
    await _turns()
    for _ in range(cancels):
        task.cancel()
        await _turns()
        assert not task.done()
    work.gate.set()
    value, cut = await task
    assert value == "done"
    assert work.trace == ["begins", "ends"]
    assert (cut is not None) is (cancels > 0)
    assert task.cancelling() == cancels


async def test_what_shielded_work_raises_is_raised() -> None:
    work = Work(LookupError("why"))
    work.gate.set()
    with pytest.raises(LookupError, match="why"):
        await shielded(work())


async def test_shielded_work_that_is_cancelled_by_others_is_a_cancellation() -> None:
    work = Work()
    inner = asyncio.ensure_future(work())
    task = asyncio.create_task(shielded(inner))
    await _turns()
    inner.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert task.cancelling() == 0


async def test_the_wait_for_shielded_work_has_an_end_and_the_work_goes_on() -> None:
    work = Work()
    inner = asyncio.ensure_future(work())
    past = asyncio.get_running_loop().time()
    await _turns()
    assert await shielded(inner, past) == (None, None)
    assert not inner.done()
    work.gate.set()
    assert await inner == "done"


async def test_an_end_of_the_wait_does_not_matter_to_work_that_is_done() -> None:
    done = asyncio.get_running_loop().create_future()
    done.set_result("done")
    assert await shielded(done, 0.0) == ("done", None)


async def test_a_limit_does_not_count_while_it_is_paused() -> None:
    deadlines = Deadlines()
    work = Work()
    deadlines.pause()
    task = spawn(deadlines.run(work(), 0.0, "work"))
    await asyncio.sleep(0.01)  # the timer fires, and finds that the clock stands still
    assert not task.done()
    deadlines.resume()
    with pytest.raises(Expired):
        await task
    assert work.trace == ["begins"]
    deadlines.close()


async def test_a_limit_that_ran_out_leaves_nothing_of_its_cancellation() -> None:
    deadlines = Deadlines()

    async def main() -> int:
        with pytest.raises(Expired):
            await deadlines.run(asyncio.Event().wait(), 0.0, "work")
        task = asyncio.current_task()
        assert task is not None
        return task.cancelling()

    assert await spawn(main()) == 0
    deadlines.close()


async def test_a_cancellation_by_others_counts_although_the_limit_ran_out_too() -> None:
    deadlines = Deadlines()

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            task.cancel()  # by others, before the work has ended

    left: list[int] = []

    async def main() -> None:
        try:
            await deadlines.run(work(), 0.0, "work")
        finally:
            left.append(task.cancelling())

    task = spawn(main())
    with pytest.raises(asyncio.CancelledError):
        await task
    assert left == [1]
    deadlines.close()


async def test_a_limit_that_begins_in_a_pause_counts_from_the_end_of_the_pause() -> None:
    clock = Clock()
    deadlines = Deadlines()
    deadlines.enter()
    deadlines.pause()
    clock.skip(100)
    work = Work()
    task = spawn(deadlines.run(work(), 5.0, "work"))
    await clock.advance(100)
    deadlines.resume()
    await clock.advance(4)
    assert not task.done()
    await clock.advance(2)
    with pytest.raises(Expired):
        await task
    deadlines.close()
