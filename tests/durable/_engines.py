"""The engines of durable chats, each on this machine, as the tests and the kills use them."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests._postgres import database_of_our_own

from hookline import Agent
from hookline.durable import Client
from hookline.durable._polled.worker_operations import Jobs
from hookline.durable.postgres._connection import Connections
from hookline.durable.sqlite._file import File
from hookline.runtimes import Journal

ROOT = Path(__file__).parents[2]
SERVERS = ROOT / "tests/durable/js/node_modules/@restatedev"
NAMES = ("sqlite", "postgres", "restate")


class Missing(Exception):
    """What an engine needs is not on this machine."""


_ports: set[int] = set()


def free_port() -> int:
    """A port that this process has not used: Restate remembers whose an address was."""
    while True:
        with socket.socket() as chosen:
            chosen.bind(("127.0.0.1", 0))
            port: int = chosen.getsockname()[1]
        if port not in _ports:
            _ports.add(port)
            return port


class Restate:
    """A server of our own, with its data in a directory."""

    def __init__(self, directory: str) -> None:
        found = sorted(SERVERS.glob("restate-server-*/bin/restate-server"))
        if not found:
            raise Missing("scripts/dev/restate-server has not been run")
        self.program = found[0]
        self.directory = directory
        self.ingress, self.admin, self.node = free_port(), free_port(), free_port()
        self.url = f"http://127.0.0.1:{self.ingress}"
        self.admin_url = f"http://127.0.0.1:{self.admin}"
        self.start()

    def start(self) -> None:
        environment = {
            **os.environ,
            "RESTATE_BASE_DIR": self.directory,
            "RESTATE_NODE_NAME": "tests",
            # Few, so that chats share a connection to their worker, as they do under load; and each
            # of the 24 that are the default costs time of the processor.
            "RESTATE_DEFAULT_NUM_PARTITIONS": "2",
            "RESTATE_LOG_FILTER": "error",
            "RESTATE_DISABLE_TELEMETRY": "true",
            "RESTATE_BIND_ADDRESS": f"127.0.0.1:{self.node}",
            "RESTATE_ADVERTISED_ADDRESS": f"http://127.0.0.1:{self.node}",
            "RESTATE_INGRESS__BIND_ADDRESS": f"127.0.0.1:{self.ingress}",
            "RESTATE_ADMIN__BIND_ADDRESS": f"127.0.0.1:{self.admin}",
        }
        self.process = subprocess.Popen(
            [self.program],
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for url in (f"{self.url}/restate/health", f"{self.admin_url}/health"):
            self._await(url)

    def _await(self, url: str) -> None:
        for _ in range(600):
            if self.process.poll() is not None:
                raise RuntimeError(f"restate-server ended with {self.process.returncode}")
            try:
                urllib.request.urlopen(url).close()
                return
            except OSError:
                time.sleep(0.1)
        raise RuntimeError("restate-server does not come up")

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()


class Postgres:
    """A server of our own, with its data in a directory."""

    def __init__(self, directory: str) -> None:
        found = sorted(Path("/usr/lib/postgresql").glob("*/bin")) or [Path("/usr/bin")]
        self.bin = found[-1]
        if not (self.bin / "initdb").exists():
            raise Missing("there is no initdb (Debian: postgresql)")
        self.data = str(Path(directory, "data"))
        self.user: dict[str, Any] = {}
        if os.getuid() == 0:  # whom it refuses to serve
            shutil.chown(directory, "postgres")
            self.user = {"user": "postgres", "group": "postgres", "extra_groups": []}
        self.port = free_port()
        self.url = f"postgresql://postgres@127.0.0.1:{self.port}/postgres"
        self._run("initdb", "-D", self.data, "-U", "postgres", "-A", "trust").wait()
        self.start()

    def _run(self, program: str, *arguments: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [str(self.bin / program), *arguments],
            cwd="/",
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            **self.user,
        )

    def start(self) -> None:
        for _ in range(600):  # what is left of the one that was killed must be gone first
            self.process = self._run(
                "postgres", "-D", self.data, "-p", str(self.port), "-k", self.data
            )
            if self._is_up():
                return
            time.sleep(0.1)
        raise RuntimeError("postgres does not come up")

    def _is_up(self) -> bool:
        while self.process.poll() is None:
            asked = self._run("pg_isready", "-h", "127.0.0.1", "-p", str(self.port))
            if asked.wait() == 0:
                return True
            time.sleep(0.05)
        return False

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()


class Engine:
    """One engine, with chats of its own for each test."""

    def __init__(self, name: str, where: Any) -> None:
        self.name = name
        self.where = where
        self.own = os.urandom(4).hex()
        self.port = free_port() if name == "restate" else 0

    def options(self) -> dict[str, Any]:
        """What makes a worker quick, in a process of its own, too."""
        if self.name == "sqlite":
            return {"poll": 0.02, "idle": 0.1, "lease": 1.0}
        if self.name == "postgres":
            return {"poll": 0.05, "idle": 0.1, "lease": 2, "queue": f"q{self.own}"}
        return {
            "idle": 1.0,
            "name": f"s{self.own}",
            "bind": f"127.0.0.1:{self.port}",
            "admin": self.where.admin_url,
        }

    @property
    def address(self) -> str:
        if self.name == "sqlite":
            return f"{self.where}/{self.own}.db"
        return str(getattr(self.where, "url", self.where))

    def worker(self, agent: Agent[Any], **options: Any) -> Any:
        from importlib import import_module

        module = import_module(f"hookline.durable.{self.name}")
        return module.chats(agent, self.address, **{**self.options(), **options})

    def client(self) -> Client:
        from importlib import import_module

        module = import_module(f"hookline.durable.{self.name}")
        chosen = self.options()
        kept = {name: chosen[name] for name in ("poll", "queue", "name", "admin") if name in chosen}
        made: Client = module.Chats(self.address, **kept)
        return made

    async def at_rest(self, worker: Any) -> None:
        """Until it holds no chat."""
        while True:
            if self.name == "restate":
                at_rest = not worker._calls
            else:  # one task gives signs of life
                at_rest = not worker._lives and len(worker._tasks) <= 1
            if at_rest:
                return
            await asyncio.sleep(0.01)

    def journals(self, worker: Any) -> list[Journal]:
        """The journals of the chats that a worker runs."""
        if self.name == "restate":
            return list(worker._lives)
        return [life.journal for life in worker._lives.values()]

    def jobs(self, poll: float = 0.01, lease: float = 1.0) -> Jobs:
        """The chats of SQLite or PostgreSQL, as a worker has them."""
        if self.name == "sqlite":
            return Jobs(File(self.address), "hookline", poll, lease)
        return Jobs(Connections(self.address), self.options()["queue"], poll, lease)

    def arguments(self) -> list[str]:
        """Of tests.durable._worker."""
        return [self.name, self.address, json.dumps(self.options())]


@contextmanager
def places(names: tuple[str, ...] = NAMES, *, own: bool = False) -> Iterator[dict[str, Any]]:
    """Where each engine is, for as long as somebody needs it; an exception where it is missing.

    `own`: PostgreSQL is a server of our own, to be killed.
    """
    with ExitStack() as stack:
        found: dict[str, Any] = {}
        for name in names:
            try:
                found[name] = _place(name, stack, own=own)
            except (OSError, Missing) as exc:
                found[name] = Missing(str(exc) or type(exc).__name__)
        yield found


def _place(name: str, stack: ExitStack, *, own: bool) -> Any:
    if name == "postgres" and not own:
        return stack.enter_context(database_of_our_own("durable"))
    directory = stack.enter_context(TemporaryDirectory(ignore_cleanup_errors=True))
    if name == "sqlite":
        return directory
    server = Postgres(directory) if name == "postgres" else Restate(directory)
    stack.callback(server.kill)
    return server
