"""W4: 1,000 and 5,000 chats at once, 20 chunks each, the model giving way after each chunk.

CPU a chat in this process; the peak memory of a chat in a fresh process for each variant, which is
this module run as a script: by how much the process grew from before the chats to its peak.
"""

from __future__ import annotations

import asyncio
import gc
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from hookline import Agent

from . import byhand, ours
from .measure import Options, Row, Work, interleaved, job, micros, ours_row, ratio_row

NAME = "W4"
CHUNKS = 20
CPU = 5.0  # targets: × the limit
KIB = 12.0


def limit_work(chats: int, crowd: byhand.Crowd) -> Work:
    texts = byhand.texts(CHUNKS)

    async def chat() -> int:
        return await byhand.read_text(lambda _: byhand.yielding(texts, crowd))

    async def all_of_them() -> int:
        return sum(await asyncio.gather(*(chat() for _ in range(chats))))

    return all_of_them


def our_work(chats: int, crowd: byhand.Crowd) -> Work:
    agent = Agent(ours.Yielding(byhand.texts(CHUNKS), crowd))

    async def all_of_them() -> int:
        return sum(await asyncio.gather(*(ours.read_text(agent) for _ in range(chats))))

    return all_of_them


WORKS = {"limit": limit_work, "ours": our_work}


def rows(options: Options) -> Iterator[Row]:
    for chats, usual in ((1_000, 11), (5_000, 7)):
        crowds = byhand.Crowd(), byhand.Crowd()
        works = limit_work(chats, crowds[0]), our_work(chats, crowds[1])
        jobs = [job(work, 1, chats * CHUNKS) for work in works]
        one, two = asyncio.run(interleaved(jobs, options.times(usual)))
        assert [crowd.peak for crowd in crowds] == [chats, chats], "not all at once"
        yield ratio_row(
            NAME,
            f"{chats:,} chats at once, CPU a chat",
            micros(one, chats),
            micros(two, chats),
            target=CPU,
        )
        pairs = [
            (measured_apart("limit", chats), measured_apart("ours", chats))
            for _ in range(options.times(5))
        ]
        yield ours_row(
            NAME,
            f"{chats:,} chats at once, peak memory a chat",
            [limit for limit, _ in pairs],
            [mine for _, mine in pairs],
            unit="KiB",
            target=KIB,
        )


# ── memory, in a process of its own ─────────────────────────────────────────────────────────


def measured_apart(variant: str, chats: int) -> float:
    """The KiB a chat that a fresh process measured."""
    assert __spec__ is not None
    command = [sys.executable, "-m", __spec__.name, variant, str(chats)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return float(done.stdout)


def peak() -> int:
    """The most memory that this process has ever had, in KiB."""
    try:
        # On Linux ru_maxrss may show what the parent had before it became this process.
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))
    except (OSError, StopIteration):
        found = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return found // 1024 if sys.platform == "darwin" else found


def forget_peak() -> None:
    """Let the peak be what there is now, where the system can."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return


async def grow(variant: str, chats: int) -> float:
    """Run the chats; by how many KiB a chat the process grew."""
    warm = WORKS[variant](20, byhand.Crowd())
    for _ in range(3):
        await warm()
    crowd = byhand.Crowd()
    work = WORKS[variant](chats, crowd)
    gc.collect()
    forget_peak()
    before = peak()
    delivered = await work()
    after = peak()
    assert delivered == chats * CHUNKS, delivered
    assert crowd.peak == chats, crowd.peak
    return (after - before) / chats


if __name__ == "__main__":
    print(asyncio.run(grow(sys.argv[1], int(sys.argv[2]))))
