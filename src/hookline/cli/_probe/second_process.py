"""Paths of a probe on which another process answers, with nothing but a store in common."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec

from hookline import Approve
from hookline.cli._probe.resume import TALK, Order, Outcome
from hookline.errors import UsageError
from hookline.storage import resolve_store
from hookline.testing import CallPath, LeftOutError, Walk


class SecondProcess:
    """A process that imports the agent anew; it begins with the first path that needs it."""

    def __init__(self, target: str, deps: str | None) -> None:
        self._arguments = [target] if deps is None else [target, deps]
        self._process: asyncio.subprocess.Process | None = None

    @property
    def paths(self) -> dict[str, Walk]:
        """The paths through this process."""
        return {
            "withdrawn while the call waits (second process)": self._withdrawn,
            "changed by an answer (second process)": self._changed,
            "resumed twice (second process)": self._resumed_twice,
        }

    async def aclose(self) -> None:
        """End the process."""
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()
            await self._process.wait()

    async def _withdrawn(self, path: CallPath) -> None:
        """The guards of the agent are new: those of this process let the call wait."""
        path.is_approved = True
        async with _store() as (url, store):
            requests = await _pending(path, path.bare(store=store))
            await self._resume(path, url, requests)

    async def _changed(self, path: CallPath) -> None:
        path.is_approved = True
        async with _store() as (url, store):
            requests = await _pending(path, path.bare(path.turn(path.harmless), store=store))
            await self._resume(path, url, requests, edited=True)

    async def _resumed_twice(self, path: CallPath) -> None:
        """The tool runs here while the other process has the same answer."""
        async with _store() as (url, store):
            agent = path.guarded(store=store)
            requests = await _pending(path, agent)

            async def resume_there() -> None:
                path.on_run = None
                await self._resume(path, url, requests)

            path.on_run = resume_there
            answers = dict.fromkeys(requests, Approve())
            await path.resume(agent, TALK, answers, hooks=[path.question()])
        path.count()

    async def _resume(
        self, path: CallPath, url: str, requests: list[str], *, edited: bool = False
    ) -> None:
        """Let the other process answer these requests, if there are any."""
        if not requests:
            return
        order = Order(
            store=url,
            requests=requests,
            name=path.call.name,
            arguments=dict(path.call.arguments),
            secret=path.secret,
            edited=edited,
        )
        outcome = await self._send(order)
        path.runs += outcome.runs
        path.ran = path.ran or outcome.runs > 0
        path.has_refused = path.has_refused or outcome.has_refused
        path.guards |= outcome.guards
        path.refusers |= outcome.refusers

    async def _send(self, order: Order) -> Outcome:
        process = await self._started()
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(msgspec.json.encode(order) + b"\n")
        line = await process.stdout.readline()
        if not line:
            raise UsageError(
                f"{self._arguments[0]} ended a second process with status {await process.wait()}; "
                "see its error above, and let its module work in two processes at the same time"
            )
        outcome = msgspec.json.decode(line, type=Outcome)
        if outcome.error is not None:
            raise UsageError(
                f"a hook of {self._arguments[0]} failed in a second process ({outcome.error}); "
                "let the hook work in two processes at the same time"
            )
        return outcome

    async def _started(self) -> asyncio.subprocess.Process:
        if self._process is None:
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-P", "-m", "hookline.cli._probe.resume", *self._arguments),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            )
        return self._process


@asynccontextmanager
async def _store() -> AsyncGenerator[tuple[str, Any]]:
    """A SQLite store in a new file, and its URL."""
    try:
        resolve_store("sqlite:///probe.db")  # opens nothing
    except UsageError as exc:
        raise LeftOutError(str(exc)) from exc
    with TemporaryDirectory() as folder:
        url = f"sqlite:///{Path(folder, 'probe.db')}"
        store: Any = resolve_store(url)
        async with store:
            yield url, store


async def _pending(path: CallPath, agent: Any) -> list[str]:
    """The ids of the requests with which a chat ends."""
    response = await path.chat(agent, path.question(), conversation=TALK, approver=None)
    return [request.id for request in response.pending]
