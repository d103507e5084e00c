"""The second process of a probe: `python -m hookline.cli._probe.resume app:agent`.

Each line of its input names a conversation in a store and answers to its requests, as JSON. The
process resumes a copy of the agent with these answers, and writes a line with what became of the
call. The process ends with its input.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from typing import Any, Final

import msgspec

from hookline import Agent, Approve
from hookline.cli._target import Located, MakeDeps, deps_at, locate
from hookline.errors import HooklineError, UsageError
from hookline.storage import resolve_store
from hookline.testing import CallPath, call

TALK: Final = "probe"


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """A line of the input."""

    store: str
    requests: list[str]
    """The ids of the requests to approve."""
    name: str
    arguments: dict[str, Any]
    secret: str | None = None
    """The text that must not reach the tool; None: the whole call must not run."""
    edited: bool = False
    """Whether the approval changes the arguments to those of the call that must not run."""


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """A line of the output."""

    runs: int = 0
    has_refused: bool = False
    guards: set[str] = set()
    refusers: set[str] = set()
    error: str | None = None
    """The exception of the agent's hooks."""


async def _carry_out(order: Order, agent: Agent[Any], deps: Any) -> Outcome:
    path = CallPath(agent, call(order.name, order.arguments), deps, order.secret)
    answers = dict.fromkeys(order.requests, path.edited if order.edited else Approve())
    store: Any = resolve_store(order.store)
    async with store:
        with path.refusing(HooklineError):
            await path.resume(path.guarded("done", store=store), TALK, answers)
    return Outcome(
        runs=path.runs,
        has_refused=path.has_refused,
        guards=path.guards,
        refusers=path.refusers,
    )


async def _serve(located: Located, make_deps: MakeDeps, replies: int) -> None:
    agent = await located.agent()
    while line := await asyncio.to_thread(sys.stdin.readline):
        order = msgspec.json.decode(line, type=Order)
        try:
            outcome = await _carry_out(order, agent, await make_deps())
        except Exception as exc:
            outcome = Outcome(error=f"{type(exc).__name__}: {exc}")
        os.write(replies, msgspec.json.encode(outcome) + b"\n")


def main(target: str, deps: str | None = None) -> int:
    """Answer each line of stdin on stdout, to which nothing else is written."""
    logging.getLogger("hookline").setLevel(logging.ERROR)
    replies = os.dup(1)
    os.dup2(2, 1)
    try:
        asyncio.run(_serve(locate(target), deps_at(deps), replies))
    except UsageError as exc:
        print(f"hookline: {exc}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
