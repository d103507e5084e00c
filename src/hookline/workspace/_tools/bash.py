"""The tool `bash`."""

from __future__ import annotations

import asyncio
import codecs
import os
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from math import isfinite
from typing import Any, Final

import msgspec

from hookline import Run, Tool
from hookline.workspace._files.access import Access
from hookline.workspace._sandbox.commands import Commands
from hookline.workspace._sandbox.protocol import CommandLimits, Job
from hookline.workspace._snapshots import Snapshots
from hookline.workspace._tools.outputs import Outputs, clean

STATUS: Final = 0.2
"""The seconds between two events with the output of a running command."""
_MAX_STATUS: Final = 4000
_UNCONFINED: Final = """\
Run a line of bash in the workspace; returns what it prints, and its exit status.

Every command is a new shell without input. It runs outside of a sandbox."""
"""The description without a sandbox. An approval that was remembered in a sandbox does not hold."""


def bash_tool(
    access: Access,
    commands: Commands,
    outputs: Outputs,
    snapshots: Snapshots,
    enabled: Callable[[], bool],
) -> Tool[Any, Any]:
    """Make the tool that runs commands."""

    async def bash(
        run: Run[Any],
        command: str,
        cwd: str = ".",
        timeout: float | None = None,  # noqa: ASYNC109
    ) -> str:
        """Run a line of bash in the workspace; returns what it prints, and its exit status.

        Every command is a new shell: variables, /tmp and background processes end with it. There is
        no network, and no input.

        Args:
            command: The line of bash.
            cwd: The folder to run it in.
            timeout: Seconds after which the command is stopped.
        """
        limits = _limits(commands.limits, timeout)
        with access.root.descriptor(cwd, os.O_RDONLY | os.O_DIRECTORY) as folder:
            place = access.root.real(folder)
        before = await snapshots.before_command(run)
        async with commands.started(command, place, limits) as (job, renamed):
            text = await _printed(run, job)
            status = await job.wait()
        end = f"[stopped {job.stopped}]" if job.stopped else f"[exit {status}]"
        notes = [f"[{old} is a protected name; it was renamed to {new}]" for old, new in renamed]
        if renamed:
            data = {"kind": "held_back", "paths": [old for old, _ in renamed]}
            await run.status("workspace", data)
        await snapshots.tell_changes(run, before)
        result = await asyncio.to_thread(outputs.cut, text)
        return "\n".join([part for part in (result.rstrip("\n"), *notes, end) if part])

    return Tool(
        bash,
        description=None if commands.sandbox.confines else _UNCONFINED,
        parallel=False,
        timeout=float("inf"),
        enabled=enabled,
    )


def _limits(limits: CommandLimits, timeout: float | None) -> CommandLimits:
    if timeout is None or not isfinite(timeout) or timeout <= 0:
        return limits
    return msgspec.structs.replace(limits, seconds=min(timeout, limits.seconds))


async def _printed(run: Run[Any], job: Job) -> str:
    """Read the output of a command to its end; tell the stream about it as it comes."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    clock = asyncio.get_running_loop().time
    parts: list[str] = []
    untold, told_at = "", clock() - STATUS
    async with aclosing(job.output()) as output, aclosing(_or_none(output)) as chunks:
        async for chunk in chunks:
            part = clean(decoder.decode(chunk or b""))
            parts.append(part)
            untold = (untold + part)[-_MAX_STATUS:]
            if untold and clock() - told_at >= STATUS:
                await run.status("output", {"text": untold})
                untold, told_at = "", clock()
    parts.append(clean(decoder.decode(b"", final=True)))
    if untold:
        await run.status("output", {"text": untold})
    return "".join(parts)


async def _or_none(output: AsyncGenerator[bytes]) -> AsyncGenerator[bytes | None]:
    """Yield each chunk, and None whenever there was none for a while."""
    waiting: asyncio.Future[bytes] | None = None
    try:
        while True:
            if waiting is None:
                waiting = asyncio.ensure_future(anext(output, b""))
            await asyncio.wait([waiting], timeout=STATUS)
            if not waiting.done():
                yield None
                continue
            chunk, waiting = waiting.result(), None
            if not chunk:
                return
            yield chunk
    finally:
        if waiting is not None:
            waiting.cancel()
            await asyncio.wait([waiting])
