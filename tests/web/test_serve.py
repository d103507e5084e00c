"""`hookline serve`: as a process of its own."""

from __future__ import annotations

import asyncio
import signal
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.web.test_site import native, request_of, text_of

from hookline import Agent
from hookline.cli import main
from hookline.cli._target import ModuleFailedError, locate, settled

MODULE = """
import asyncio
from hookline import Agent
from hookline.testing import ScriptedModel, Turn

async def wait():
    await asyncio.sleep({delay})

agent = Agent(ScriptedModel(*[Turn("Hello, ", "Ada.", delay=wait)] * 9))
not_one = 3

def make():
    return agent

async def make_later():
    return agent
"""


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


@asynccontextmanager
async def served(
    folder: Path, *arguments: str, delay: float = 0.0
) -> AsyncIterator[tuple[Any, str, str]]:
    """The command, running; gives its process, its address and its token."""
    (folder / "demo.py").write_text(MODULE.format(delay=delay))
    port = free_port()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "hookline", "serve", "demo:agent", "--port", str(port)),
        *arguments,
        cwd=folder,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        assert process.stderr is not None
        lines = [(await process.stderr.readline()).decode() for _ in range(3)]
        assert lines[0] == "hookline serves demo:agent\n"
        token = lines[2].split()[-1]
        assert lines[1].strip() == f"page:  http://127.0.0.1:{port}/#token={token}"
        url = f"http://127.0.0.1:{port}"
        async with asyncio.timeout(20), httpx.AsyncClient(base_url=url) as http:
            while True:
                try:
                    await http.get("/")
                    break
                except httpx.ConnectError:
                    await asyncio.sleep(0.02)
        yield process, url, token
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def test_it_serves_the_page_and_an_answer(tmp_path: Path) -> None:
    async with served(tmp_path) as (process, url, token):
        headers = {"authorization": f"Bearer {token}"}
        async with httpx.AsyncClient(base_url=url, headers=headers) as http:
            assert "<title>hookline</title>" in (await http.get("/")).text
            answer = await http.post("/native", json=request_of("native", "hi"))
            assert text_of("native", answer.content) == "Hello, Ada."
            bare = await http.post("/native", json={}, headers={"authorization": ""})
            assert bare.status_code == 401
        process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(10):
            await process.wait()


@pytest.mark.parametrize(("drain", "end"), [("20", "ChatDone"), ("0", "ChatAborted")])
async def test_a_signal_drains_or_aborts_what_runs(tmp_path: Path, drain: str, end: str) -> None:
    delay = 0.4 if drain == "20" else 30.0
    async with served(tmp_path, "--drain", drain, delay=delay) as (process, url, token):
        headers = {"authorization": f"Bearer {token}"}
        async with httpx.AsyncClient(base_url=url, headers=headers, timeout=30) as http:
            body = request_of("native", "hi")
            data = b""
            async with http.stream("POST", "/native", json=body) as answer:
                async for piece in answer.aiter_raw():
                    if not data:
                        process.send_signal(signal.SIGTERM)
                    data += piece
            assert type(native(data)[-1]).__name__ == end
        async with asyncio.timeout(10):
            await process.wait()
        assert process.returncode in (0, -signal.SIGTERM)


@pytest.mark.parametrize(
    ("target", "why"),
    [
        ("demo", "must be module:attribute"),
        ("nowhere_at_all:agent", "there is no module 'nowhere_at_all'"),
        ("demo_of_tests:other", "has no 'other'"),
        ("demo_of_tests:not_one", "is a int, and must be an Agent"),
    ],
)
def test_what_is_no_agent_is_told(
    target: str,
    why: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "demo_of_tests.py").write_text(MODULE.format(delay=0.0))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    assert main(["serve", target]) == 2
    assert why in capsys.readouterr().err


async def test_an_agent_is_found_or_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "demo_of_makers.py").write_text(MODULE.format(delay=0.0))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    agent = await settled(locate("demo_of_makers:agent"), "demo_of_makers:agent")
    assert isinstance(agent, Agent)
    for maker in ("demo_of_makers:make", "demo_of_makers:make_later"):
        assert await settled(locate(maker), maker) is agent


def test_an_error_inside_of_the_module_is_not_hidden(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "demo_that_breaks.py").write_text("import nothing_of_this_name")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    with pytest.raises(ModuleFailedError, match="nothing_of_this_name") as caught:
        locate("demo_that_breaks:agent")
    assert isinstance(caught.value.__cause__, ModuleNotFoundError)


def test_a_short_token_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "demo_of_tokens.py").write_text(MODULE.format(delay=0.0))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    assert main(["serve", "demo_of_tokens:agent", "--token", "short"]) == 2
    assert "at least 16 characters" in capsys.readouterr().err
