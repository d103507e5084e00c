"""What docs/security.md says of the whole package: what it needs, and to whom it connects."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

PROGRAM = """
import asyncio, sys
reached = []
def hear(event, args):
    if event in ("socket.connect", "socket.getaddrinfo", "subprocess.Popen", "os.system"):
        reached.append(event)
sys.addaudithook(hear)
import hookline, hookline.events, hookline.hooks, hookline.points, hookline.stores
from hookline.testing import ScriptedModel, call
def add(a: int, b: int) -> int:
    "Add."
    return a + b
async def main():
    agent = hookline.Agent(ScriptedModel([call("add", a=1, b=2)], "Three."), tools=[add])
    store = hookline.MemoryStore()
    answer = await agent.chat("1 + 2?", conversation=await store.open("c"))
    assert answer.text == "Three."
asyncio.run(main())
if "ask" in sys.argv:
    import socket
    socket.getaddrinfo("localhost", 1)
print(reached)
"""


def reached(*arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_an_import_and_a_chat_open_no_connection() -> None:
    assert reached() == "[]"
    assert reached("ask") == "['socket.getaddrinfo']"  # so it would be noticed


def test_the_core_needs_these_packages_at_a_lowest_version() -> None:
    page = (ROOT / "docs" / "security.md").read_text()
    named = re.search(r"The core needs four packages \(([^)]+)\)", page)
    assert named is not None
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    needed = [re.fullmatch(r"([a-z_-]+)>=[\d.]+", each) for each in project["dependencies"]]
    assert sorted(each[1] for each in needed if each) == named[1].split(", ")
    assert all(needed)  # no highest version, which would bind yours
