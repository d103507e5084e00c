"""A server that is a program: its process, and the lines that it reads and writes.

The SDK's own transport waits for seconds when a server ends, reads lines of any length, and lets
the server write to our stderr. Here the process has its own process group, which is gone within two
seconds in any case. The length of a line and its number of JSON values are limited, non-JSON output
on stdout is skipped, and stderr goes to the log at DEBUG. If the server exits on its own, the error
quotes its last line. The environment is the SDK's short list plus the user's variables.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from logging import getLogger
from pathlib import Path
from typing import Any, Final, NamedTuple

import anyio

from hookline.mcp._errors import MCPServerError, sdk
from hookline.providers._adapter.http_limits import MAX_VALUES, too_large

logger = getLogger("hookline.mcp")

MAX_MESSAGE: Final = 6 * 1024 * 1024
"""The bytes of one message, of which the SDK makes several copies."""
CLOSES: Final = 0.8  # seconds for a server to exit on its own, and again after SIGTERM
LAST_WORDS: Final = 200  # characters of stderr that an error quotes
MAX_STDERR: Final = 4096  # bytes of stderr in which the last line is searched
SECRET: Final = 6  # shortest value of a variable that is left out of a quote
_CHUNK: Final = 16 * 1024  # bytes, of which each line may be a refused message
_ESCAPE: Final = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]")


class Program(NamedTuple):
    """The command of a server."""

    command: str
    args: tuple[str, ...]
    env: Mapping[str, str]
    cwd: str | Path | None

    async def start(self) -> asyncio.subprocess.Process:
        """Start the process; raises MCPServerError if that fails."""
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
                "check that it is installed and in PATH"
            ) from exc


@asynccontextmanager
async def transport(program: Program, on_end: Callable[[str], None]) -> AsyncGenerator[Any]:
    """Run a program and return its streams; `on_end` is called with the reason when it ends."""
    process = await program.start()
    into, incoming = anyio.create_memory_object_stream[Any](0)
    outgoing, out_of = anyio.create_memory_object_stream[Any](0)
    assert process.stdout is not None
    assert process.stderr is not None
    stderr = _Stderr(process.stderr, program)
    tasks = [
        asyncio.create_task(_read(process, program, into, on_end, stderr)),
        asyncio.create_task(_write(process, out_of)),
        stderr.task,
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
    process: asyncio.subprocess.Process,
    program: Program,
    into: Any,
    on_end: Callable[[str], None],
    stderr: _Stderr,
) -> None:
    """Pass on each line that is a message; other lines are prints of the server."""
    types, message_of = sdk("mcp_types"), sdk("mcp.shared.message").SessionMessage
    try:
        async for line in _lines(process):
            if too_large(line, MAX_MESSAGE):
                raise _TooLarge
            try:
                message = types.jsonrpc_message_adapter.validate_json(line, by_name=False)
            except ValueError:
                logger.debug("a line on the stdout of %s is not a message", program.command)
                continue
            await into.send(message_of(message))
        line_of_error = await stderr.last_words()
        on_end(
            await _exit_status(process)
            + (f'; its last words: "{line_of_error}"' if line_of_error else "")
        )
    except _TooLarge:
        on_end(
            f"the server sent a message of more than {MAX_MESSAGE} bytes (a quarter if it is not "
            f"ASCII), or of more than {MAX_VALUES} JSON values"
        )
    except (anyio.ClosedResourceError, anyio.BrokenResourceError):
        pass  # the connection is closing
    finally:
        into.close()  # not earlier: the reader asks for the reason


class _TooLarge(Exception):
    """A message is too large."""


async def _lines(process: asyncio.subprocess.Process) -> AsyncIterator[bytes]:
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
        if size > MAX_MESSAGE:
            raise _TooLarge
        await asyncio.sleep(0)  # read() does not wait for data that is here


async def _exit_status(process: asyncio.subprocess.Process) -> str:
    if await _ends(process, 0.5):
        return f"the server has ended with status {process.returncode}"
    return "the server has closed its output"


async def _write(process: asyncio.subprocess.Process, out_of: Any) -> None:
    assert process.stdin is not None
    with suppress(OSError, anyio.ClosedResourceError):
        async with out_of:
            async for message in out_of:
                text = message.message.model_dump_json(by_alias=True, exclude_unset=True)
                process.stdin.write(text.encode() + b"\n")
                await process.stdin.drain()


class _Stderr:
    """What a program writes to stderr: it goes to the log, and the end of it is kept."""

    def __init__(self, stream: asyncio.StreamReader, program: Program) -> None:
        self.task = asyncio.create_task(self._log(stream, program.command))
        self._tail = b""
        self._secrets = [value for value in program.env.values() if len(value) >= SECRET]

    async def _log(self, stream: asyncio.StreamReader, command: str) -> None:
        while chunk := await stream.read(_CHUNK):
            self._tail = (self._tail + chunk)[-MAX_STDERR:]
            logger.debug("%s: %s", command, chunk[:2_000].decode("utf-8", "replace").rstrip())

    async def last_words(self) -> str:
        """The last line that says something, once the program has ended; "" if there is none."""
        await asyncio.wait([self.task], timeout=0.5)  # what it has started may hold it open
        text = self._tail.decode("utf-8", "replace")
        for secret in self._secrets:
            text = text.replace(secret, "…")
        return last_words(text)


def last_words(text: str) -> str:
    """The last line of a text of stderr that says something, cleaned and bounded."""
    plain = _ESCAPE.sub("", text)
    lines = ["".join(filter(str.isprintable, line)).rstrip() for line in plain.splitlines()]
    telling = [line for line in lines if any(map(str.isalpha, line))]
    # Below its error Node prints the stack, indented, and its own version.
    outer = [line for line in telling if line[0] != " " and not line.startswith("Node.js v")]
    last = ["", *telling, *outer][-1].strip()
    return last if len(last) <= LAST_WORDS else f"{last[:LAST_WORDS]}…"


async def _end(process: asyncio.subprocess.Process) -> None:
    """Close the input, then send SIGTERM, then SIGKILL to the process and its children."""
    if process.stdin is not None:
        process.stdin.close()
    try:
        if not await _ends(process, CLOSES):
            _signal(process, signal.SIGTERM)
            await _ends(process, CLOSES)
    finally:  # even if this is cancelled
        _signal(process, signal.SIGKILL)  # its children may still run
    await _ends(process, CLOSES)


async def _ends(process: asyncio.subprocess.Process, seconds: float) -> bool:
    """Return whether the process ends within the given time."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await process.wait()
            return True
    return False


def _signal(process: asyncio.subprocess.Process, which: int) -> None:
    """Send a signal to the process group, or to the process if there are no groups."""
    with suppress(ProcessLookupError, PermissionError):
        if hasattr(os, "killpg"):
            os.killpg(process.pid, which)
        elif process.returncode is None:
            process.terminate() if which == signal.SIGTERM else process.kill()
