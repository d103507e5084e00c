"""The client of clients/typescript, compiled once for each process of the tests."""

from __future__ import annotations

import subprocess
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.web._clients import JS, need_node, play
from tests.web._server import TOKEN

CLIENT = Path(__file__).parents[2] / "clients" / "typescript"


@cache
def _folder() -> TemporaryDirectory[str]:
    """A folder that lives as long as this process."""
    return TemporaryDirectory(prefix="hookline-client-")


@cache
def compiled() -> str:
    """The path of the compiled client; a type error is a failure."""
    node = need_node()
    folder = Path(_folder().name)
    # The compiler writes ES modules where a package.json says so.
    (folder / "package.json").write_text('{"type": "module"}')
    tsc = JS / "node_modules" / "typescript" / "bin" / "tsc"
    command = [node, str(tsc), "-p", str(CLIENT), "--outDir", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return str(folder / "client.js")


async def chat(url: str, script: list[Any], **more: Any) -> Any:
    """Play a script with the client; gives its state at the end, and what it saw."""
    given = {"url": f"{url}/native", "token": TOKEN, "id": "c1", "script": script, **more}
    return await play("native.mjs", given, compiled())
