"""The second process of a probe: `python -m hookline.cli._doors.resume app:agent`.

Each line of its input names a conversation in a store and answers to its requests, as JSON. The
process resumes a copy of the agent with these answers, and writes a line with what became of the
call. The process ends with its input.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from typing import Any

import msgspec

from hookline import Agent, Approve
from hookline.cli._target import as_agent, deps_at, locate
from hookline.errors import HooklineError
from hookline.storage import resolve_store
from hookline.testing import Road, call

TALK = "probe"


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """A line of the input."""

    store: str
    requests: list[str]
    """The ids of the requests to approve."""
    name: str
    arguments: dict[str, Any]
    edited: bool = False
    """Whether the approval changes the arguments to those of the call that must not run."""


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """A line of the output."""

    runs: int = 0
    has_refused: bool = False
    guards: set[str] = set()
    refusers: set[str] = set()
    error: str | None = None
    """The exception of the agent's module or its hooks."""


async def _carry_out(order: Order, agent: Agent[Any], deps: Any) -> Outcome:
    road = Road(agent, call(order.name, order.arguments), deps)
    answers = dict.fromkeys(order.requests, road.edited if order.edited else Approve())
    async with resolve_store(order.store) as store:
        with road.refusing(HooklineError):
            await road.resume(road.guarded("done", store=store), TALK, answers)
    return Outcome(
        runs=road.runs,
        has_refused=road.has_refused,
        guards=road.guards,
        refusers=road.refusers,
    )


async def main(target: str, deps: str | None = None) -> None:
    """Answer each line of stdin on stdout, to which nothing else is written."""
    logging.getLogger("hookline").setLevel(logging.ERROR)
    replies = os.dup(1)
    os.dup2(2, 1)
    agent: Agent[Any] | None = None
    while line := await asyncio.to_thread(sys.stdin.readline):
        order = msgspec.json.decode(line, type=Order)
        try:
            agent = agent or await as_agent(locate(target), target)
            outcome = await _carry_out(order, agent, await deps_at(deps)())
        except Exception as exc:
            outcome = Outcome(error=f"{type(exc).__name__}: {exc}")
        os.write(replies, msgspec.json.encode(outcome) + b"\n")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
