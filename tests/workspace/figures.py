"""What a workspace costs, as figures; `scripts/dev/workspace-figures` prints them.

In turns, so that the load of the machine falls on both: ripgrep alone and `grep` of a workspace
over 100,000 files; an empty command; and imports in new processes. `--files` makes fewer files.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import aclosing
from pathlib import Path
from statistics import median
from typing import Any

from hookline import Agent, ToolCall
from hookline.testing import ScriptedModel
from hookline.workspace import Bwrap, CommandLimits, View, Workspace

from ._unprivileged import become_nobody

SEARCH = ["--hidden", "--no-messages", "-n", "needle"]


def make_files(folder: Path, count: int) -> None:
    """Make folders of 100 files; one file in a thousand has the word that is searched."""
    text = "".join(f"line {number} of a file that is searched\n" for number in range(25))
    for number in range(count):
        if number % 100 == 0:
            place = folder / f"{number // 10_000}" / f"{number // 100}"
            place.mkdir(parents=True)
        more = "the needle\n" if number % 1000 == 0 else ""
        (place / f"{number}.txt").write_text(text + more)


async def grep(workspace: Workspace) -> float:
    """The seconds of one call of `grep`, with its guard."""
    seconds = 0.0
    call = ToolCall(id="1", name="grep", arguments={"pattern": "needle"})
    agent = Agent(ScriptedModel(call, "done"), scopes=workspace.scopes, hooks=workspace.hooks)

    @agent.hook("aroundToolCall")
    async def measure(ctx: Any, proceed: Any) -> Any:
        nonlocal seconds
        start = time.perf_counter()
        result = await proceed()
        seconds = time.perf_counter() - start
        return result

    await agent.chat("go")
    return seconds


def ripgrep(program: str, folder: Path) -> float:
    start = time.perf_counter()
    subprocess.run([program, *SEARCH, "."], cwd=folder, stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - start


async def command(view: View) -> float:
    """The seconds from the start of a command to its output, without the output's end."""
    start = time.perf_counter()
    job = await Bwrap().start("echo", view, CommandLimits())
    async with aclosing(job.output()) as output:
        await anext(output)
        seconds = time.perf_counter() - start
    await job.wait()
    return seconds


def line(name: str, seconds: list[float]) -> None:
    print(
        f"{name:<34} {min(seconds) * 1000:8.1f} {median(seconds) * 1000:8.1f} "
        f"{max(seconds) * 1000:8.1f} ms   ({len(seconds)} times)",
        flush=True,
    )


async def measure(base: Path, files: int, times: int) -> None:
    folder = base / "project"
    folder.mkdir()
    print(f"load {os.getloadavg()[0]:.1f}; {'least':>38} {'median':>8} {'most':>8}", flush=True)
    workspace = Workspace(folder, state=base / "state", mode="edits")
    problem = await workspace.check()
    assert problem is None, problem
    fd = os.open(folder, os.O_RDONLY)
    view = View(root=str(folder), fd=fd)
    line("a command, to its first output", [await command(view) for _ in range(times * 5)])
    make_files(folder, files)
    program: Any = workspace._commands._rg
    bare, ours = [], []
    await grep(workspace)
    for _ in range(times):
        bare.append(ripgrep(program, folder))
        ours.append(await grep(workspace))
    line(f"rg over {files:,} files", bare)
    line(f"grep over {files:,} files", ours)
    line("the difference", [b - a for a, b in zip(bare, ours, strict=True)])
    await workspace.aclose()
    os.close(fd)


def imports(times: int) -> None:
    """Which modules `import hookline` brings, and what it costs."""
    code = "import hookline, sys; print([m for m in sys.modules if 'hookline.workspace' in m])"
    seconds = []
    for _ in range(times):
        start = time.perf_counter()
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
        seconds.append(time.perf_counter() - start)
    line("import hookline", seconds)
    print(f"modules of the workspace in it: {done.stdout.decode().strip()}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=100_000)
    parser.add_argument("--times", type=int, default=10)
    options = parser.parse_args()
    imports(options.times)
    if os.geteuid() == 0:
        become_nobody()
    base = Path(tempfile.mkdtemp(prefix="hookline-figures-"))
    try:
        asyncio.run(measure(base, options.files, options.times))
    finally:
        shutil.rmtree(base)


if __name__ == "__main__":
    main()
