"""A server that is a program: its process, and the lines that it reads and writes.

The SDK's own transport waits for seconds at the end of a server, reads lines of any length, and
lets the server write to our stderr. Here the process has a group of its own that is gone within two
seconds whatever it does, a line is bounded, what is no JSON on its stdout is left out, and its
stderr goes to the log at DEBUG. Its environment is the SDK's short list and what the user gives.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from logging import getLogger
from pathlib import Path
from typing import Any, Final

import anyio

from hookline.mcp._errors import MCPServerError, sdk

logger = getLogger("hookline.mcp")

MAX_LINE: Final = 16 * 1024 * 1024  # bytes of one message
CLOSES: Final = 0.8  # seconds that a server has to end by itself, and then once more
_CHUNK: Final = 64 * 1024


class Program:
    """The command of a server."""

    def __init__(
        self,
        command: str,
        args: Sequence[str],
        *,
        env: Mapping[str, str] | None,
        cwd: str | Path | None,
        max_line: int = MAX_LINE,
    ) -> None:
        self.command = command
        self.args = tuple(args)
        self.env = dict(env or {})
        self.cwd = cwd
        self.max_line = max_line

    async def start(self) -> asyncio.subprocess.Process:
        """Start it; raises MCPServerError where that cannot be."""
        stdio = sdk("mcp.client.stdio")
        try:
            return await asyncio.create_subprocess_exec(
                self.command,
                *self.args,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                env={**stdio.get_default_environment(), **self.env},
                cwd=self.cwd,
                start_new_session=True,
            )
        except (OSError, ValueError) as exc:
            raise MCPServerError(
                f"the command {self.command!r} cannot be started ({type(exc).__name__}: {exc}); "
                "see whether it is installed and in PATH"
            ) from exc


@asynccontextmanager
async def transport(program: Program, ended: Callable[[str], None]) -> AsyncGenerator[Any]:
    """The streams to a program that runs; `ended` is called with why when it has ended."""
    process = await program.start()
    into, incoming = anyio.create_memory_object_stream[Any](0)
    outgoing, out_of = anyio.create_memory_object_stream[Any](0)
    assert process.stdout is not None
    assert process.stderr is not None
    tasks = [
        asyncio.create_task(_read(process, program, into, ended)),
        asyncio.create_task(_write(process, out_of)),
        asyncio.create_task(_log(process.stderr, program.command)),
    ]
    try:
        yield incoming, outgoing
    finally:
        for stream in (incoming, outgoing):
            stream.close()
        try:
            await _end(process)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            for stream in (into, out_of):
                stream.close()
            transport: Any = getattr(process, "_transport", None)
            if transport is not None:
                transport.close()


async def _read(
    process: asyncio.subprocess.Process, program: Program, into: Any, ended: Callable[[str], None]
) -> None:
    """Hand on each line that is a message; what is none was a print of the server's."""
    types, message_of = sdk("mcp_types"), sdk("mcp.shared.message").SessionMessage
    try:
        async for line in _lines(process, program.max_line):
            try:
                message = types.jsonrpc_message_adapter.validate_json(line, by_name=False)
            except ValueError:
                logger.debug("%s wrote to stdout what is no message", program.command)
                continue
            await into.send(message_of(message))
        ended(await _exit_status(process))
    except _TooLong:
        ended(f"the server sent a message of more than {program.max_line} bytes")
    except (anyio.ClosedResourceError, anyio.BrokenResourceError):
        pass  # we are closing
    finally:
        into.close()  # only now: who hears of the end asks why


class _TooLong(Exception):
    pass


async def _lines(process: asyncio.subprocess.Process, limit: int) -> AsyncIterator[bytes]:
    assert process.stdout is not None
    pieces: list[bytes] = []
    size = 0
    while chunk := await process.stdout.read(_CHUNK):
        *whole, rest = chunk.split(b"\n")
        for piece in whole:
            yield b"".join([*pieces, piece])
            pieces, size = [], 0
        pieces.append(rest)
        size += len(rest)
        if size > limit:
            raise _TooLong


async def _exit_status(process: asyncio.subprocess.Process) -> str:
    with suppress(TimeoutError):
        async with asyncio.timeout(0.5):
            code = await process.wait()
            return f"the server has ended with status {code}"
    return "the server has closed its output"


async def _write(process: asyncio.subprocess.Process, out_of: Any) -> None:
    assert process.stdin is not None
    with suppress(OSError, anyio.ClosedResourceError):
        async with out_of:
            async for each in out_of:
                text = each.message.model_dump_json(by_alias=True, exclude_unset=True)
                process.stdin.write(text.encode() + b"\n")
                await process.stdin.drain()


async def _log(stderr: asyncio.StreamReader, command: str) -> None:
    while chunk := await stderr.read(_CHUNK):
        logger.debug("%s: %s", command, chunk[:2_000].decode("utf-8", "replace").rstrip())


async def _end(process: asyncio.subprocess.Process) -> None:
    """Close its input, then ask it to end, then end it: it and all that it has started."""
    if process.stdin is not None:
        process.stdin.close()
    for kill in (None, signal.SIGTERM):
        if kill is not None:
            _signal(process, kill)
        with suppress(TimeoutError):
            async with asyncio.timeout(CLOSES):
                await process.wait()
                break
    _signal(process, signal.SIGKILL)  # what it has started may still run
    with suppress(TimeoutError):
        async with asyncio.timeout(CLOSES):
            await process.wait()


def _signal(process: asyncio.subprocess.Process, which: int) -> None:
    """To the whole group; where there are no groups, to the process."""
    with suppress(ProcessLookupError, PermissionError):
        if hasattr(os, "killpg"):
            os.killpg(process.pid, which)
        elif process.returncode is None:
            process.terminate() if which == signal.SIGTERM else process.kill()
