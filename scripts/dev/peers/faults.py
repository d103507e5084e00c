"""The same model, tools, faults and questions for each library.

Each program is asked whether it keeps a promise while something goes wrong. None of the promises
needs hookline: another library keeps it if its programs, written as its docs say, keep it.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from time import process_time
from typing import Any

JOB = "job-1"
HISTORY: list[dict[str, Any]] = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Weather in Oslo and Rome?"},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {"id": id, "type": "function", "function": {"name": "weather", "arguments": city}}
            for id, city in (("c1", '{"city": "Oslo"}'), ("c2", '{"city": "Rome"}'))
        ],
    },
    {"role": "tool", "tool_call_id": "c1", "content": "Rain."},
]
"""A history in the format of Chat Completions; its process ended before the second result."""


class Script:
    """What the model does: it calls the tools in turn, and then answers."""

    def __init__(self, *calls: tuple[str, dict[str, Any]], kill_at: int = -1) -> None:
        self.calls = calls
        self.kill_at = kill_at
        self.requests: list[Any] = []
        self.closed = False  # whether a stream was left

    def next(self, results: int, request: Any = None) -> tuple[str, dict[str, Any]] | None:
        """The call after this number of results, or None for an answer."""
        self.requests.append(request)
        if results == self.kill_at:
            os._exit(9)
        return self.calls[results] if results < len(self.calls) else None

    async def pieces(self) -> AsyncIterator[str]:
        """An answer in pieces, that notices when its reader leaves."""
        try:
            for _ in range(50):
                yield "word "
                await asyncio.sleep(0.001)
        finally:
            self.closed = True


def support_desk(library: Any) -> dict[str, bool]:
    """A guard refuses orders of other customers; a refund of more than 50 needs an approval."""
    paid: list[tuple[str, int]] = []

    async def refund(order: str, euros: int) -> str:
        """Refund an order."""
        paid.append((order, euros))
        return "refunded"

    def run(order: str, euros: int, edit: dict[str, Any] | None = None) -> list[tuple[str, int]]:
        paid.clear()
        script = Script(("refund", {"order": order, "euros": euros}))
        asyncio.run(library.support(library.model_of(script), refund, edit))
        return list(paid)

    async def left() -> bool:
        script = Script()
        await library.leave(library.model_of(script), refund)
        return script.closed

    return {
        "a small refund is paid": run("A-1", 20) == [("A-1", 20)],
        "the order of another customer is refused": run("B-1", 20) == [],
        "an approved refund is paid once": run("A-1", 80) == [("A-1", 80)],
        "an approver's edit to another customer's order is refused": run(
            "A-1", 80, {"order": "B-1", "euros": 80}
        )
        == [],
        "when the reader has left, the model has stopped": asyncio.run(left()),
    }


def durable_worker(library: Any) -> dict[str, bool]:
    """A worker pays, is killed by the system, and is started again."""

    def run(kill: str) -> tuple[int, int, str]:
        with tempfile.TemporaryDirectory() as folder:
            command = [sys.executable, __file__, "worker", library.__name__, folder]
            outputs = [
                subprocess.run(
                    command,
                    env={**os.environ, "KILL": moment},
                    capture_output=True,
                    text=True,
                    timeout=300,
                    check=False,
                )
                for moment in (kill, "")
            ]
            lines = (Path(folder) / "log").read_text().split()
            if os.environ.get("SHOW"):
                print(*(output.stderr[-2000:] for output in outputs))
            return lines.count("paid"), lines.count("asked-0"), outputs[-1].stdout

    after, within = run("after"), run("within")
    return {
        "killed in the second request: the answer comes": "All done." in after[2],
        "killed in the second request: the tool ran once": after[0] == 1,
        "killed in the second request: the first request was sent once": after[1] == 1,
        "killed in the tool after it has paid: it does not pay again": within[0] == 1,
        "killed in the tool after it has paid: the answer comes": "All done." in within[2],
    }


def worker(name: str, folder: Path) -> None:
    """The process that is killed."""
    log = folder / "log"

    def note(text: str) -> None:
        with log.open("a") as file:
            file.write(f"{text}\n")

    async def pay(to: str) -> str:
        """Pay somebody."""
        note("paid")
        if os.environ["KILL"] == "within":
            os._exit(9)
        return "paid"

    class Logged(Script):
        def next(self, results: int, request: Any = None) -> tuple[str, dict[str, Any]] | None:
            note(f"asked-{results}")
            return super().next(results, request)

    script = Logged(("pay", {"to": "Ada"}), kill_at=1 if os.environ["KILL"] == "after" else -1)
    library = importlib.import_module(name)
    asyncio.run(library.work(library.model_of(script), pay, folder))


def migration(library: Any) -> dict[str, bool]:
    """A history from elsewhere, with a call that has no result, goes on."""
    script = Script()
    try:
        asyncio.run(library.migrate(library.model_of(script), HISTORY))
    except Exception as error:
        if os.environ.get("SHOW"):
            print(f"{type(error).__name__}: {error}")
    calls, results, texts = script.requests[-1] if script.requests else ([], [], "")
    return {
        "the model is asked with the whole history": "Rain." in texts and "Go on." in texts,
        "each call of the request has its result": sorted(calls) == sorted(results) != [],
    }


def microseconds(library: Any) -> tuple[float, float]:
    """CPU time of one tool iteration in chats of 10 iterations; also of the least loop."""

    async def refund(order: str, euros: int) -> str:
        """Refund an order."""
        return "refunded"

    async def least_loop(script: Script) -> None:
        messages: list[dict[str, Any]] = [{"role": "user", "content": "Refund my order."}]
        results = 0
        while step := script.next(results, messages):
            messages.append({"role": "assistant", "call": json.dumps(step[1])})
            result = await {"refund": refund}[step[0]](**json.loads(messages[-1]["call"]))
            messages.append({"role": "tool", "content": result})
            results += 1

    async def chats(run: Callable[[Script], Any]) -> float:
        begin = process_time()
        for _ in range(20):
            await run(Script(*[("refund", {"order": "A-1", "euros": 1})] * 10))
        return (process_time() - begin) / 200 * 1e6

    def with_library(script: Script) -> Any:
        return library.support(library.model_of(script), refund, None)

    def median(run: Callable[[Script], Any]) -> float:
        return sorted(asyncio.run(chats(run)) for _ in range(5))[2]

    return median(with_library), median(least_loop)


def lines(name: str) -> dict[str, int]:
    """The lines of each section, without empty ones."""
    counted: dict[str, int] = {}
    section = ""
    for line in (Path(__file__).parent / f"{name}.py").read_text().splitlines():
        if line.startswith("# section: "):
            section = line.removeprefix("# section: ")
        elif line == "# end":
            section = ""
        elif section and line.strip():
            counted[section] = counted.get(section, 0) + 1
    return counted


def main() -> None:
    if sys.argv[1] == "worker":
        worker(sys.argv[2], Path(sys.argv[3]))
        return
    library = importlib.import_module(sys.argv[1])
    questions: dict[str, Callable[[Any], dict[str, bool]]] = {
        "desk": support_desk,
        "worker": durable_worker,
        "migration": migration,
    }
    kept = {name: ask(library) for name, ask in questions.items()}
    print(json.dumps({"kept": kept, "microseconds": microseconds(library)}))


if __name__ == "__main__":
    main()
