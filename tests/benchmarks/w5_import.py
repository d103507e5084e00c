"""W5: `import hookline` against the import of asyncio and its dependencies alone, and its size.

And the first chat of each adapter, in which its SDK is imported in a thread: how long it takes, and
how long the event loop, where a task beside it wakes every millisecond, was held at most.

Each import is timed inside a fresh interpreter, so starting one is not part of the figure, and
from byte code that an unmeasured import has written to a folder of our own.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import requires
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from packaging.requirements import Requirement
from tests._wires import WIRES

from .measure import Options, Row, ours_row, ratio_row

NAME = "W5"
RATIO = 1.5  # targets
DISTRIBUTIONS = 6
ALONE = "asyncio, anyio, anyio.to_thread, msgspec, typing_extensions"  # what hookline imports
CHILD = """
import sys, time
before = set(sys.modules)
wall, cpu = time.perf_counter(), time.process_time()
import {names}
cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
import json
new = [name for name in sys.modules if name not in before]
print(json.dumps(dict(wall=wall * 1e3, cpu=cpu * 1e3, new=new)))
"""


FIRST = """
import asyncio, json, sys, time
from hookline import Agent
from tests.wire import WireServer
from tests._wires import ADAPTERS

async def main(kind):
    held = 0.0

    async def beside():
        nonlocal held
        while True:
            before = time.perf_counter()
            await asyncio.sleep(0.001)
            held = max(held, time.perf_counter() - before)

    async with WireServer(kind, "Hi.", "Hi.") as server:
        agent = Agent(ADAPTERS[kind]("m", base_url=server.url, api_key="any"))
        ticking = asyncio.create_task(beside())
        took = []
        for _ in range(2):
            begun = time.perf_counter()
            await agent.chat("Hi.")
            took.append(time.perf_counter() - begun)
        ticking.cancel()
    print(json.dumps(dict(first=took[0] * 1e3, second=took[1] * 1e3, held=held * 1e3)))

asyncio.run(main({kind!r}))
"""


def first_chat(kind: str, cache: str) -> dict[str, float]:
    """The first chat of an adapter in a fresh interpreter: milliseconds."""
    env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    code = FIRST.replace("{kind!r}", repr(kind))
    command = [sys.executable, "-X", f"pycache_prefix={cache}", "-c", code]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=env)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def imported(names: str, cache: str) -> dict[str, Any]:
    """Import these in a fresh interpreter: milliseconds of wall and CPU, and the new modules."""
    env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    code = CHILD.format(names=names)
    command = [sys.executable, "-P", "-X", f"pycache_prefix={cache}", "-c", code]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=env)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def foreign(modules: list[str]) -> set[str]:
    """The packages among these that are neither Python's nor ours."""
    tops = {name.partition(".")[0] for name in modules}
    return {top for top in tops if top not in sys.stdlib_module_names and top != "hookline"}


def distributions(root: str) -> set[str]:
    """What is installed with it where nothing else is asked for."""
    found: set[str] = set()
    todo = [root]
    while todo:
        name = re.sub(r"[-_.]+", "-", todo.pop()).lower()
        if name in found:
            continue
        found.add(name)
        for text in requires(name) or ():
            needed = Requirement(text)
            if needed.marker is None or needed.marker.evaluate({"extra": ""}):
                todo.append(needed.name)
    return found


def rows(options: Options) -> Iterator[Row]:
    with TemporaryDirectory() as cache:
        alone, whole = imported(ALONE, cache), imported("hookline", cache)  # writes the byte code
        pairs = [
            (imported(ALONE, cache), imported("hookline", cache)) for _ in range(options.times(15))
        ]
    more = sorted(foreign(whole["new"]) - foreign(alone["new"]))
    note = f"{len(whole['new'])} modules, {len(alone['new'])} for the dependencies"
    if more:
        note += f"; hookline imports also {', '.join(more)}"
    for clock, said in (("cpu", "CPU"), ("wall", "wall")):
        yield ratio_row(
            NAME,
            f"import hookline, {said}",
            [limit[clock] for limit, _ in pairs],
            [mine[clock] for _, mine in pairs],
            unit="ms",
            target=RATIO,
            note=note,
        )
        note = ""
    with TemporaryDirectory() as cache:
        for kind in WIRES:
            first_chat(kind, cache)
            chats = [first_chat(kind, cache) for _ in range(options.times(5))]
            second = median(each["second"] for each in chats)
            for name, what in (("first", "takes"), ("held", "holds the event loop at most")):
                yield ours_row(
                    NAME,
                    f"{kind}: the first chat {what}",
                    None,
                    [each[name] for each in chats],
                    unit="ms",
                    note=f"the second takes {second:.0f} ms" if name == "first" else "",
                )
    names = sorted(distributions("hookline"))
    yield ours_row(
        NAME,
        "distributions installed",
        None,
        [float(len(names))],
        unit="",
        target=DISTRIBUTIONS,
        note=", ".join(names),
    )
