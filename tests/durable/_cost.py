"""Prints what a chunk and a tool iteration cost in bytecodes, before durable chats and after.

Run by test_local.py in a process of its own, where nothing else has imported them.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any

from tests.benchmarks import byhand, ours
from tests.benchmarks.measure import Work
from tests.benchmarks.where import a_unit

from hookline import Agent, Limits
from hookline.runtimes import Durable

ENGINES = ("sqlite", "postgres", "restate")


def text(**options: Any) -> Callable[[int], Work]:
    def make(units: int) -> Work:
        agent: Agent[Any] = Agent(ours.Streaming(byhand.texts(units)), **options)
        return lambda: ours.read_text(agent)

    return make


def calls(**options: Any) -> Callable[[int], Work]:
    def make(units: int) -> Work:
        agent: Agent[Any] = Agent(
            ours.Scripted(units),
            tools=[byhand.Counter().add],
            limits=Limits(steps=units + 1),
            **options,
        )
        return lambda: ours.read_calls(agent)

    return make


def costs(**options: Any) -> dict[str, float]:
    return {
        "chunk": sum(asyncio.run(a_unit(text(**options), 100)).values()),
        "iteration": sum(asyncio.run(a_unit(calls(**options), 10)).values()),
    }


def main() -> None:
    found = {"alone": costs()}
    assert "hookline.durable" not in sys.modules
    for name in ENGINES:
        import_module(f"hookline.durable.{name}")
    found["beside the engines"] = costs()
    found["Durable() outside of a job"] = costs(runtime=Durable())
    print(json.dumps(found))


if __name__ == "__main__":
    main()
