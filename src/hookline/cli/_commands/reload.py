"""`hookline serve --reload`: restart a server when a Python file below this folder changes.

The server runs in a separate process, so that every module is imported again; this process watches.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from hookline.cli._commands.workers import hangups

EVERY: Final = 0.4  # seconds between two checks
SPARE: Final = 15  # seconds that a server may take to end, besides its drain time
NEW_TOKEN: Final = "HOOKLINE_SERVE_NEW_TOKEN"  # a token that the server may print
SKIP: Final = frozenset({"__pycache__", "node_modules", "site-packages", "venv"})


def files_of(folder: Path) -> dict[str, int]:
    """Return the Python files below a folder, with their modification times."""
    files: dict[str, int] = {}
    for place, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if name not in SKIP and name[0] != "."]
        for name in names:
            if name.endswith(".py"):
                path = os.path.join(place, name)
                with suppress(OSError):  # the file has been removed in the meantime
                    files[path] = os.stat(path).st_mtime_ns
    return files


def changes_between(before: dict[str, int], now: dict[str, int]) -> list[str]:
    """Return the changed, created or removed files."""
    return sorted(path for path in {*before, *now} if before.get(path) != now.get(path))


def watch(command: Sequence[str], token: str, *, new: bool, relay: str | None, drain: float) -> int:
    """Serve until a signal, and restart after each change; returns the exit status. `new`: the
    server may print the token.
    """
    for number in (signal.SIGTERM, *hangups()):
        signal.signal(number, _on_signal)
    environment = {**os.environ, "HOOKLINE_TOKEN": token, **({NEW_TOKEN: token} if new else {})}
    if relay is not None:
        environment["HOOKLINE_RELAY"] = relay
    folder = Path.cwd()
    before = files_of(folder)
    server = _begin(command, environment)
    try:
        while True:
            time.sleep(EVERY)
            now = files_of(folder)
            changes = changes_between(before, now)
            if not changes:
                continue
            before = now
            name = os.path.relpath(changes[0], folder)
            print(f"hookline: {name!r} has changed; restarting", file=sys.stderr, flush=True)
            _end(server, drain)
            server = _begin(command, environment)
    finally:
        _end(server, drain)


def _begin(command: Sequence[str], environment: dict[str, str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-m", "hookline", *command], env=environment)


def _end(server: subprocess.Popen[bytes], drain: float) -> None:
    """Stop the server as a user would; kill it if it does not end within its drain time."""
    if server.poll() is None:
        server.terminate()
        try:
            server.wait(drain + SPARE)
        except subprocess.TimeoutExpired:
            server.kill()
    server.wait()


def _on_signal(*_: object) -> None:
    raise SystemExit(128 + signal.SIGTERM)
