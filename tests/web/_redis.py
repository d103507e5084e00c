"""Redis for the tests: the one of this machine, under a prefix of our own, or a server of our own.

Where HOOKLINE_REDIS is set, the tests that need a server fail without it; where it is not, the
usual place is tried, and they skip.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import socket
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from secrets import token_hex
from typing import Any

import pytest
import redis
import redis.asyncio

NAMED = os.environ.get("HOOKLINE_REDIS")
URL = NAMED or "redis://127.0.0.1:6379/15"


def missing(what: str) -> None:
    if NAMED:
        pytest.fail(f"{what}, and HOOKLINE_REDIS names one")
    pytest.skip(what)


def need_redis() -> str:
    """The address of a Redis of version 7 or newer."""
    try:
        with redis.Redis.from_url(URL) as client:
            version = str(client.info()["redis_version"])
    except redis.RedisError as exc:
        missing(f"there is no Redis here ({type(exc).__name__})")
        raise
    if int(version.split(".")[0]) < 7:
        missing(f"this Redis is {version}, and 7 is needed")
    return URL


def clear(prefix: str) -> None:
    """Delete what a test has left."""
    with redis.Redis.from_url(URL) as client:
        found: Any = list(client.scan_iter(f"{prefix}*"))
        if found:
            client.delete(*found)


class Server:
    """A redis-server of our own, to be killed and started again: empty, or with its data."""

    def __init__(self, folder: Path, keeps: bool) -> None:
        program = shutil.which("redis-server")
        if program is None:
            missing("there is no redis-server")
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self._command = [
            *(str(program), "--port", str(self.port), "--bind", "127.0.0.1"),
            *("--save", "", "--dir", str(folder)),
            *("--appendonly", "yes" if keeps else "no", "--appendfsync", "no"),
        ]
        self._process: subprocess.Popen[bytes] | None = None

    async def start(self) -> None:
        self._process = self._begin()
        client = redis.asyncio.Redis.from_url(self.url)
        async with asyncio.timeout(60):
            while True:
                try:
                    await client.ping()
                    break
                except redis.RedisError:
                    await asyncio.sleep(0.02)
        await client.aclose()

    def _begin(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(self._command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def freeze(self) -> None:
        """Stop it as it is: it accepts connections and commands, and answers none of them."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


@asynccontextmanager
async def own_redis(folder: Path, *, keeps: bool = False) -> AsyncIterator[Server]:
    """A server of our own, running."""
    server = Server(folder, keeps)
    await server.start()
    try:
        yield server
    finally:
        server.kill()


class Names:
    """The names of a relay's keys, as an operator sees them in Redis."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix

    def run(self, key: str) -> str:
        return f"{self._prefix}run:{key}"

    def log(self, key: str, run: str) -> str:
        return f"{self._prefix}log:{key}:{run}"

    def worker(self, id: str) -> str:
        return f"{self._prefix}worker:{id}"

    def inbox(self, id: str) -> str:
        return f"{self._prefix}inbox:{id}"


def new_prefix() -> str:
    return f"hookline-test-{token_hex(4)}:"
