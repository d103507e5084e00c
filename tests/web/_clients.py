"""The JavaScript clients as subprocesses, and whether this machine has them.

HOOKLINE_WEB_CLIENTS=required makes what is missing a failure; without it, it is a visible skip.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

JS = Path(__file__).parent / "js"
REQUIRED = os.environ.get("HOOKLINE_WEB_CLIENTS") == "required"


def missing(what: str) -> None:
    """This machine lacks something: a skip, or a failure where everything must be there."""
    if REQUIRED:
        pytest.fail(f"{what}, and HOOKLINE_WEB_CLIENTS=required")
    pytest.skip(what)


def need_node() -> str:
    node = shutil.which("node")
    if node is None:
        missing("there is no node: install Node.js 20.19 or newer")
    if not (JS / "node_modules" / ".installed").exists():
        missing("the JavaScript clients are not installed: run scripts/dev/web-clients")
    assert node is not None
    return node


def run(script: str, given: Any, *arguments: str) -> Any:
    """Run a script of the folder js: JSON in, JSON out."""
    done = subprocess.run(
        [need_node(), script, *arguments],
        cwd=JS,
        input=json.dumps(given),
        capture_output=True,
        text=True,
        timeout=50,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


async def play(script: str, given: Any, *arguments: str) -> Any:
    """The same, beside a server in this event loop."""
    process = await asyncio.create_subprocess_exec(
        need_node(),
        script,
        *arguments,
        cwd=JS,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(50):
            out, err = await process.communicate(json.dumps(given).encode())
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode == 0, err.decode()
    return json.loads(out)
