"""The file of `hookline.durable.sqlite` while another process uses it."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path

from hookline.durable._sqlite import Jobs


async def test_a_new_file_that_another_process_is_writing_is_waited_for(tmp_path: Path) -> None:
    file = str(tmp_path / "chats.db")
    other = sqlite3.connect(file, isolation_level=None)
    other.execute("CREATE TABLE theirs (id)")  # without a write-ahead log, as a new file is
    other.execute("BEGIN IMMEDIATE")
    jobs = Jobs(file, poll=0.01)
    adding = asyncio.create_task(jobs.add("chat-1", "{}"))
    await asyncio.sleep(0.1)
    assert not adding.done()
    other.execute("COMMIT")
    assert await adding
    jobs.close()
    other.close()


async def test_many_that_open_a_new_file_at_once_all_get_in(tmp_path: Path) -> None:
    file = str(tmp_path / "chats.db")
    all = [Jobs(file, poll=0.01) for _ in range(24)]
    added = await asyncio.gather(*(jobs.add(f"chat-{n}", "{}") for n, jobs in enumerate(all)))
    assert added == [True] * 24
    for jobs in all:
        jobs.close()
