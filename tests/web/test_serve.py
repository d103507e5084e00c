"""`hookline serve`: as a process of its own."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
import redis
from tests.web._redis import need_redis, new_prefix
from tests.web._server import eventually
from tests.web.test_site import native, request_of, text_of

from hookline.cli import main
from hookline.events import ChatDone

MODULE = """
import asyncio
from hookline import Agent
from hookline.testing import ScriptedModel, Turn

async def wait():
    await asyncio.sleep({delay})

agent = Agent(ScriptedModel(*[Turn("Hello, ", "Ada.", delay=wait)] * 9))
not_one = 3
tell = lambda request: request.system
tells = Agent(ScriptedModel(*[tell] * 9), system=lambda run: f"deps: {{run.deps}}")
customers = iter(["Ada", "Bob"])

async def customer():
    return next(customers)

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


def on_hangup(action: Any) -> Any:
    """Set what SIGHUP does to a server. Below `nohup`, it would inherit that nothing happens."""
    return partial(signal.signal, signal.SIGHUP, action)


@asynccontextmanager
async def served(
    folder: Path,
    *arguments: str,
    delay: float = 0.0,
    agent: str = "demo:agent",
    head: list[str] | None = None,
    hangup: Any = signal.SIG_DFL,
) -> AsyncIterator[tuple[Any, str, str]]:
    """The command, running; gives its process, its address and its token."""
    head = [] if head is None else head
    (folder / "demo.py").write_text(MODULE.format(delay=delay))
    port = free_port()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "hookline", "serve", agent, "--port", str(port)),
        *arguments,
        cwd=folder,
        stderr=asyncio.subprocess.PIPE,
        preexec_fn=on_hangup(hangup),
    )
    try:
        assert process.stderr is not None
        lines = [(await process.stderr.readline()).decode() for _ in range(3)]
        head.extend(lines)
        assert lines[0] == f"hookline serves {agent}\n"
        token = lines[2].split()[-1]
        assert lines[1].strip() == f"page:  http://127.0.0.1:{port}/#token={token}"
        if "--token" in arguments:
            token = arguments[arguments.index("--token") + 1]
        url = f"http://127.0.0.1:{port}"
        async with asyncio.timeout(60), httpx.AsyncClient(base_url=url, timeout=60) as http:
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
        async with httpx.AsyncClient(base_url=url, headers=headers, timeout=60) as http:
            assert "<title>hookline</title>" in (await http.get("/")).text
            answer = await http.post("/native", json=request_of("native", "hi"))
            assert text_of("native", answer.content) == "Hello, Ada."
            bare = await http.post("/native", json={}, headers={"authorization": ""})
            assert bare.status_code == 401
        process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(60):
            await process.wait()


async def test_only_this_machine_is_served_unless_an_address_is_named(tmp_path: Path) -> None:
    """All of 127.0.0.0/8 is this machine: another address of it stands for that of its network."""
    async with served(tmp_path) as (_, url, _), httpx.AsyncClient(timeout=60) as http:
        assert (await http.get(url)).status_code == 200
        with pytest.raises(httpx.ConnectError):
            await http.get(url.replace("127.0.0.1", "127.0.0.2"))


@pytest.mark.slow
@pytest.mark.parametrize("more", [(), ("--reload",)], ids=["here", "in another process"])
async def test_each_chat_gets_deps_of_its_own(tmp_path: Path, more: tuple[str, ...]) -> None:
    options = ("--deps", "demo:customer", *more)
    async with served(tmp_path, *options, agent="demo:tells") as (process, url, token):
        headers = {"authorization": f"Bearer {token}"}
        async with httpx.AsyncClient(base_url=url, headers=headers, timeout=60) as http:
            for name in ("Ada", "Bob"):
                answer = await http.post("/native", json=request_of("native", "hi"))
                assert text_of("native", answer.content) == f"deps: {name}"
        process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(30):
            await process.wait()


def test_deps_that_are_not_there_are_told_before_it_listens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "demo_with_deps.py").write_text(MODULE.format(delay=0.0))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    assert main(["serve", "demo_with_deps:tells", "--deps", "demo_with_deps:shop"]) == 2
    said = capsys.readouterr().err
    assert said.startswith("hookline: module 'demo_with_deps' has no 'shop'; name one of its ")
    assert said.endswith("(named by --deps demo_with_deps:shop)\n")
    assert "page:" not in said


@pytest.mark.slow
@pytest.mark.parametrize("more", [(), ("--reload",)], ids=["here", "in another process"])
@pytest.mark.parametrize("way", ["option", "environment"])
async def test_a_token_that_was_supplied_is_not_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str, more: tuple[str, ...]
) -> None:
    secret = "a-secret-of-the-user"
    arguments = more
    if way == "option":
        arguments = ("--token", secret, *more)
    else:
        monkeypatch.setenv("HOOKLINE_TOKEN", secret)
    head: list[str] = []
    async with served(tmp_path, *arguments, head=head) as (process, url, _):
        headers = {"authorization": f"Bearer {secret}"}
        async with httpx.AsyncClient(base_url=url, headers=headers, timeout=60) as http:
            assert (await http.get("/page/about")).status_code == 200
        process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(30):
            await process.wait()
        printed = "".join(head) + (await process.stderr.read()).decode()
    assert "page:" in printed
    assert secret not in printed


async def cut_at(process: Any, number: signal.Signals, url: str, token: str) -> list[Any]:
    """Send the server a signal in the middle of an answer; returns the events of the answer."""
    headers = {"authorization": f"Bearer {token}"}
    data = b""
    async with (
        httpx.AsyncClient(base_url=url, headers=headers, timeout=60) as http,
        http.stream("POST", "/native", json=request_of("native", "hi")) as answer,
    ):
        async for piece in answer.aiter_raw():
            if not data:
                process.send_signal(number)
            data += piece
    return native(data)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize(("drain", "end"), [("20", "ChatDone"), ("0", "ChatAborted")])
async def test_a_signal_drains_or_aborts_what_runs(
    tmp_path: Path, drain: str, end: str, number: signal.Signals
) -> None:
    delay = 0.4 if drain == "20" else 30.0
    async with served(tmp_path, "--drain", drain, delay=delay) as (process, url, token):
        assert type((await cut_at(process, number, url, token))[-1]).__name__ == end
        async with asyncio.timeout(60):
            await process.wait()
        assert process.returncode in (0, -signal.SIGTERM)


async def test_below_nohup_a_server_outlives_its_terminal(tmp_path: Path) -> None:
    nohup = served(tmp_path, "--drain", "0", delay=0.4, hangup=signal.SIG_IGN)
    async with nohup as (process, url, token):
        assert type((await cut_at(process, signal.SIGHUP, url, token))[-1]) is ChatDone
        process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(60):
            await process.wait()


@pytest.mark.parametrize(
    ("target", "why"),
    [
        ("demo", "must be module:attribute"),
        ("nowhere_at_all:agent", "there is no module 'nowhere_at_all'"),
        ("demo_of_tests:other", "has no 'other'"),
        ("demo_of_tests:not_one", "must be an Agent, not a int"),
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


@pytest.mark.parametrize("name", ["agent", "make", "make_later"])
def test_an_agent_is_found_or_made(
    name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "demo_of_makers.py").write_text(MODULE.format(delay=0.0))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    assert main(["chat", f"demo_of_makers:{name}", "-m", "hi"]) == 0
    assert capsys.readouterr().out == "Hello, Ada.\n"


def test_an_error_inside_of_the_module_is_not_hidden(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "demo_that_breaks.py").write_text("import nothing_of_this_name")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    assert main(["serve", "demo_that_breaks:agent"]) == 2
    assert "needs nothing_of_this_name" in capsys.readouterr().err
    assert main(["serve", "demo_that_breaks:agent", "--debug"]) == 2
    shown = capsys.readouterr().err
    assert 'demo_that_breaks.py", line 1, in <module>' in shown
    assert "ModuleNotFoundError: No module named 'nothing_of_this_name'" in shown


def test_a_short_token_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "demo_of_tokens.py").write_text(MODULE.format(delay=0.0))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    assert main(["serve", "demo_of_tokens:agent", "--token", "short"]) == 2
    assert "at least 16 characters" in capsys.readouterr().err


# ── several processes ───────────────────────────────────────────────────────────────────────

STORED = """
from hookline import Agent
from hookline.stores import SQLStore
from hookline.testing import ScriptedModel

agent = Agent(ScriptedModel("Hello.", repeat=True), store=SQLStore("sqlite:///chats.db"))
"""


def children_of(pid: int) -> list[int]:
    return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


@pytest.fixture
def redis_url() -> Iterator[str]:
    """A Redis in which nothing of ours is left: `hookline serve` has the usual prefix."""
    url = need_redis()
    with redis.Redis.from_url(url) as client:
        before = set(client.scan_iter("hookline:*"))
        yield url
        for key in set(client.scan_iter("hookline:*")) - before:
            client.delete(key)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
async def test_several_workers_serve_behind_one_port_until_a_signal(
    tmp_path: Path, redis_url: str, number: signal.Signals
) -> None:
    (tmp_path / "stored.py").write_text(STORED)
    prefix = new_prefix()
    port = free_port()
    command = ("serve", "stored:agent", "--port", str(port), "--workers", "2")
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "hookline", *command, "--relay", redis_url),
        cwd=tmp_path,
        stderr=asyncio.subprocess.PIPE,
        preexec_fn=on_hangup(signal.SIG_DFL),
    )
    assert process.stderr is not None
    try:
        lines = [(await process.stderr.readline()).decode() for _ in range(3)]
        token = lines[2].split()[-1]
        headers = {"authorization": f"Bearer {token}"}
        url = f"http://127.0.0.1:{port}"
        for n in range(6):  # a new connection each: whichever worker takes it
            async with httpx.AsyncClient(base_url=url, headers=headers, timeout=60) as http:
                body = request_of("native", "hi", f"c{prefix[-9:-1]}{n}")
                answer = await http.post("/native", json=body)
                assert text_of("native", answer.content) == "Hello."
        if sys.platform == "linux":
            workers = children_of(process.pid)
            assert len(workers) == 2
            os.kill(workers[0], signal.SIGKILL)
            told = (await process.stderr.readline()).decode()
            assert told == "hookline: a worker has died; restarting it\n"
            await eventually(lambda: len(children_of(process.pid)) == 2)
    finally:
        process.send_signal(number)
        assert await asyncio.wait_for(process.wait(), 60) == 0


async def test_workers_need_a_relay(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "demo:agent", "--workers", "2"]) == 2
    assert "more than one worker needs --relay" in capsys.readouterr().err


@pytest.mark.parametrize("store", ["", ", store=MemoryStore()"], ids=["none", "memory"])
def test_workers_need_a_store_that_they_share(
    store: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    module = "unshared_demo_memory" if store else "unshared_demo"
    (tmp_path / f"{module}.py").write_text(
        "from hookline import Agent, MemoryStore\n"
        "from hookline.testing import ScriptedModel\n"
        f"agent = Agent(ScriptedModel('Hi.'){store})\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    asked = ["serve", f"{module}:agent", "--port", "0", "--workers", "2"]
    assert main([*asked, "--relay", "redis://localhost"]) == 2
    assert "needs a shared store" in capsys.readouterr().err


def test_a_port_that_is_taken_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "taken_demo.py").write_text(MODULE.format(delay=0))
    monkeypatch.syspath_prepend(tmp_path)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert main(["serve", "taken_demo:agent", "--port", str(port)]) == 4
    said = capsys.readouterr().err
    assert said == (f"hookline: port {port} of 127.0.0.1 is taken; choose another with --port\n")


@pytest.mark.slow
async def test_what_a_store_keeps_is_there_after_a_restart(tmp_path: Path) -> None:
    keep = ("--store", "sqlite:///chats.db", "--starter", "How are you?", "--token", "t" * 20)
    async with served(tmp_path, *keep) as (process, url, token):
        headers = {"authorization": f"Bearer {token}"}
        async with httpx.AsyncClient(base_url=url, headers=headers, timeout=60) as http:
            body = {"conversation": "a", "message": "Hi."}
            assert "chat_done" in (await http.post("/native", json=body)).text
            about = (await http.get("/page/about")).json()
            assert (about["starters"], about["details"]) == (["How are you?"], True)
        process.send_signal(signal.SIGTERM)
        await process.wait()
    async with served(tmp_path, *keep) as (process, url, token):
        headers = {"authorization": f"Bearer {token}"}
        async with httpx.AsyncClient(base_url=url, headers=headers, timeout=60) as http:
            (entry,) = (await http.get("/conversations")).json()["conversations"]
            assert (entry["id"], entry["title"]) == ("a", "Hi.")
            (run,) = (await http.get("/page/a/timeline")).json()["runs"]
            assert run["ended"] == "done"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
async def test_reload_passes_on_every_option_and_ends_its_server(
    tmp_path: Path, number: signal.Signals
) -> None:
    options = ("--reload", "--description=- it is quick", "--starter=-v?", "--store=sqlite:///a.db")
    async with served(tmp_path, *options) as (process, url, token):
        headers = {"authorization": f"Bearer {token}"}
        async with httpx.AsyncClient(base_url=url, headers=headers, timeout=60) as http:
            about = (await http.get("/page/about")).json()
            assert (about["description"], about["starters"]) == ("- it is quick", ["-v?"])
        process.send_signal(number)
        async with asyncio.timeout(30):
            assert await process.wait() == 128 + signal.SIGTERM
        async with httpx.AsyncClient(timeout=60) as http:
            with pytest.raises(httpx.ConnectError):
                await http.get(url)


async def test_reload_passes_the_relay_on(tmp_path: Path) -> None:
    (tmp_path / "demo.py").write_text(MODULE.format(delay=0))
    options = ("--port", "0", "--reload", "--relay", "redis://127.0.0.1:1/0")
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "hookline", "serve", "demo:agent", *options),
        cwd=tmp_path,
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stderr is not None
    line = await process.stderr.readline()
    process.send_signal(signal.SIGTERM)
    await process.wait()
    assert line.startswith(b"hookline: relay= needs a store=")


async def test_reload_serves_what_was_changed(tmp_path: Path) -> None:
    async with served(tmp_path, "--reload") as (process, url, token):
        headers = {"authorization": f"Bearer {token}"}
        async with httpx.AsyncClient(base_url=url, headers=headers, timeout=60) as http:
            assert (await http.get("/page/about")).json()["name"] == "agent"
            source = (tmp_path / "demo.py").read_text()
            (tmp_path / "demo.py").write_text(source + '\nagent.name = "another"\n')
            line = b""
            while b"page:" not in line:  # it says that it has changed, then where it serves
                line = await asyncio.wait_for(process.stderr.readline(), 60)
                assert line
            assert token.encode() in line
            assert (await http.get("/page/about")).json()["name"] == "another"
        process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(30):
            await process.wait()
