"""Servers that are programs, and behave badly: bounded, told clearly, and the chat goes on."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tests._ahead import jump_in
from tests.web._server import eventually

from hookline import Agent
from hookline.errors import ScopeError
from hookline.events import Status, ToolCallFinished
from hookline.mcp import MCPServer, MCPServerError, connect
from hookline.testing import ScriptedModel, call, collect

PROGRAM = str(Path(__file__).resolve().parents[1] / "_mcp_program.py")


def server_of(kind: str, **options: Any) -> MCPServer:
    return MCPServer.stdio(sys.executable, PROGRAM, kind, label=kind, **options)


async def results(
    server: MCPServer, *names: str, out_of_time: str = ""
) -> tuple[dict[str, str], list[Any]]:
    """What calls of these tools, one a step, came to, and the statuses."""
    agent = Agent(ScriptedModel(*[call(name, call_id=name) for name in names], "done"))
    if out_of_time:
        jump_in(agent, out_of_time)
    async with connect(agent, server):
        events = await collect(agent.chat_stream("go"))
    found = {
        event.call_id: str(getattr(event.result, "value", None) or event.result.message)  # type: ignore[union-attr]
        for event in events
        if isinstance(event, ToolCallFinished)
    }
    return found, [event for event in events if isinstance(event, Status)]


def children() -> set[str]:
    """The processes that this one has started and that still run."""
    task = Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children")
    if not task.exists():
        pytest.skip("needs /proc")
    return set(task.read_text().split())


async def only(before: set[str]) -> None:
    """Wait until no process is left but these: a killed one stays until the loop has reaped it."""
    await eventually(lambda: children() == before)


# ── it cannot be connected ──────────────────────────────────────────────────────────────────


async def fails(server: MCPServer) -> str:
    agent = Agent(ScriptedModel("x"))
    with pytest.raises(MCPServerError) as failed:
        async with connect(agent, server):
            raise AssertionError("connected")
    assert list(agent.scopes) == []
    return str(failed.value)


async def test_a_command_that_does_not_exist_is_named() -> None:
    words = await fails(MCPServer.stdio("no-such-command-here", label="files"))
    assert "'files'" in words
    assert "'no-such-command-here' cannot be started" in words
    assert "PATH" in words


async def test_a_server_that_ends_at_once_is_told_with_its_status_and_its_last_words() -> None:
    assert await fails(server_of("exits")) == (
        "cannot connect to MCP server 'exits': the server has ended with status 7; "
        'its last words: "no licence"'
    )
    assert (await fails(MCPServer.stdio("false", label="mute"))).endswith("with status 1")


async def test_last_words_do_not_tell_a_secret_of_the_environment() -> None:
    words = await fails(server_of("exits", env={"LICENCE": "sk-12345", "MODE": "no"}))
    assert words.endswith('its last words: "no licence for …"')


@pytest.mark.parametrize(
    ("text", "last"),
    [
        pytest.param("", "", id="nothing"),
        pytest.param("\n \n---\n", "", id="no words"),
        pytest.param("one\ntwo\n\n", "two", id="lines"),
        pytest.param("one\r\ntwo\r\n", "two", id="lines of Windows"),
        pytest.param("  only this\n", "only this", id="indented"),
        pytest.param(
            'Traceback (most recent call last):\n  File "a.py", line 1, in <module>\n'
            "    import nothing\nModuleNotFoundError: No module named 'nothing'\n",
            "ModuleNotFoundError: No module named 'nothing'",
            id="Python",
        ),
        pytest.param(
            "/a.js:1\nthrow new Error('no key')\n^\n\nError: no key\n    at Object.<anonymous> "
            "(/a.js:1:7) {\n  code: 1\n}\n\nNode.js v20.19.0\n",
            "Error: no key",
            id="Node",
        ),
        pytest.param("\x1b[31mno \x1b[1mkey\x1b[0m\x07\n", "no key", id="colours"),
        pytest.param("\u202eno key\u200b", "no key", id="hidden characters"),
        pytest.param("x" * 300, "x" * 200 + "…", id="long"),
    ],
)
async def test_last_words_are_the_last_line_that_says_something(text: str, last: str) -> None:
    program = "import sys; sys.stderr.buffer.write(sys.argv[1].encode()); sys.exit(7)"
    words = await fails(MCPServer.stdio(sys.executable, "-c", program, text, label="x"))
    quote = f'; its last words: "{last}"' if last else ""
    assert words.endswith(f"ended with status 7{quote}")


async def test_a_server_that_never_answers_is_given_up() -> None:
    before = children()
    assert "no answer within 0.3 s" in await fails(server_of("silent", connect_timeout=0.3))
    await only(before)


async def test_of_two_servers_one_that_fails_leaves_nothing_of_the_other() -> None:
    before = children()
    agent = Agent(ScriptedModel("x"))
    with pytest.raises(MCPServerError):
        async with connect(agent, server_of("ok"), server_of("exits")):
            raise AssertionError("connected")
    assert list(agent.scopes) == []
    await only(before)


async def test_two_servers_with_a_tool_of_one_name_are_told_of_prefix() -> None:
    agent = Agent(ScriptedModel("x"))
    with pytest.raises(ScopeError, match="prefix="):
        async with connect(agent, server_of("ok"), server_of("talks")):
            raise AssertionError("connected")
    assert list(agent.scopes) == []
    async with connect(agent, server_of("ok"), server_of("talks", prefix="t_")):
        assert agent.scopes.find("ok") is not None
        assert agent.scopes.find("t_ok") is not None


# ── it misbehaves while it runs ─────────────────────────────────────────────────────────────


async def test_what_a_server_prints_to_stdout_is_left_out() -> None:
    found, _ = await results(server_of("talks"), "ok")
    assert found == {"ok": "fine"}


async def test_schemas_that_cannot_be_used_are_left_out_and_reported() -> None:
    server = server_of("ok")
    agent = Agent(ScriptedModel("x"))
    async with connect(agent, server):
        assert set(server.left_out) == {"bad", "remote"}
        assert "must be a valid JSON schema" in server.left_out["bad"]
        assert "nothing is fetched" in server.left_out["remote"]
        assert agent.scopes.find("bad") is None
        assert agent.scopes.find("ok") is not None


async def test_a_server_that_answers_with_50_MB_is_a_tool_error_and_is_connected_again() -> None:
    found, statuses = await results(server_of("ok"), "huge", "ok")
    assert "was lost" in found["huge"]
    assert "more than 6291456 bytes" in found["huge"]
    assert found["ok"] == "fine"
    assert [status.type for status in statuses] == ["mcp/lost", "mcp/waiting"]


async def test_an_answer_with_too_many_values_is_a_tool_error_and_is_connected_again() -> None:
    """The SDK would make hundreds of objects of a kilobyte, and block the loop meanwhile."""
    found, statuses = await results(server_of("ok"), "many", "ok")
    assert "more than 400000 JSON values" in found["many"]
    assert found["ok"] == "fine"
    assert [status.type for status in statuses] == ["mcp/lost", "mcp/waiting"]


async def test_the_sdks_log_does_not_quote_what_a_program_sends(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.INFO):
        found, _ = await results(server_of("ok"), "wrong", "ok")
    assert found["ok"] == "fine"
    assert "4711" not in caplog.text


async def test_a_server_that_dies_in_a_call_is_a_tool_error_and_the_next_call_works() -> None:
    found, statuses = await results(server_of("ok"), "dies", "ok")
    assert "the connection to MCP server 'ok' was lost" in found["dies"]
    assert found["ok"] == "fine"
    assert statuses[0].data["server"] == "ok"


async def test_a_call_that_never_ends_runs_out_of_time_and_the_session_stays() -> None:
    found, _ = await results(server_of("ok"), "never", "ok", out_of_time="never")
    assert found == {"never": "the server did not answer within 60 s", "ok": "fine"}


async def test_a_server_that_lies_about_its_result_is_a_tool_error() -> None:
    found, _ = await results(server_of("ok"), "liar", "ok")
    assert "the server's data does not match its own schema" in found["liar"]
    assert found["ok"] == "fine"


async def test_a_thousand_notes_of_progress_are_a_few_statuses() -> None:
    found, statuses = await results(server_of("ok"), "noisy")
    assert found == {"noisy": "noise"}
    assert 1 <= len(statuses) < 100
    assert statuses[-1].data["done"] == 1_000


async def test_after_a_change_of_the_tools_the_next_step_has_the_new_ones() -> None:
    agent = Agent(model := ScriptedModel(call("rename"), call("other"), "done"))
    async with connect(agent, server_of("ok")):
        await agent.chat("go")
    offered = [{tool.name for tool in request.tools} for request in model.requests]
    assert "ok" in offered[0]
    assert "other" in offered[1]
    assert "ok" not in offered[1]
    assert all(len(names) == 9 for names in offered)


# ── it does not want to end ─────────────────────────────────────────────────────────────────


def group(leader: int) -> set[int]:
    """The processes of a group that still run."""
    found: set[int] = set()
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            state, _, its_group, *_ = path.read_text().rpartition(")")[2].split()
            if int(its_group) == leader and state != "Z":
                found.add(int(path.parent.name))
    return found


@pytest.fixture
def on_notice() -> Iterator[Callable[[Callable[[str], None]], None]]:
    """Calls a function with each line that a stubborn server writes while it is ended."""

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            for line in record.getMessage().splitlines():
                _, marker, notice = line.partition("stubborn: ")
                for function in functions if marker else ():
                    function(notice)

    functions: list[Callable[[str], None]] = []
    logger, handler = logging.getLogger("hookline.mcp"), Handler(logging.DEBUG)
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    yield functions.append
    logger.setLevel(level)
    logger.removeHandler(handler)


async def test_a_server_that_ignores_its_end_is_killed_with_all_that_it_has_started(
    on_notice: Callable[[Callable[[str], None]], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = asyncio.get_running_loop()
    notices: list[str] = []
    now = loop.time()

    def a_second_passes(notice: str) -> None:
        nonlocal now
        notices.append(notice)
        now += 1.0

    before = children()
    async with connect(Agent(ScriptedModel("x")), server_of("stubborn")):
        [leader] = children() - before
        assert len(group(int(leader))) == 2
        # From here on, time passes only when the server refuses to end: two seconds in all.
        on_notice(a_second_passes)
        now = loop.time()
        monkeypatch.setattr(loop, "time", lambda: now)
    monkeypatch.undo()
    await only(before)
    await eventually(lambda: not group(int(leader)))
    assert notices == ["its input is closed", "SIGTERM"]


async def test_a_server_whose_end_is_cancelled_is_killed_with_all_that_it_has_started(
    on_notice: Callable[[Callable[[str], None]], None],
) -> None:
    """As when `asyncio.run` ends, which cancels every task that is left."""
    is_ending = asyncio.Event()
    on_notice(lambda notice: is_ending.set())
    before, tasks = children(), asyncio.all_tasks()
    server = server_of("stubborn")
    await server.start()
    [leader] = children() - before
    server.stop()
    await is_ending.wait()
    left = asyncio.all_tasks() - tasks
    for task in left:
        task.cancel()
    await asyncio.wait(left)
    await only(before)
    await eventually(lambda: not group(int(leader)))


async def test_a_chat_that_is_aborted_in_a_call_leaves_the_session_usable() -> None:
    server = server_of("ok")
    agent = Agent(ScriptedModel(call("never"), call("ok", call_id="ok"), "done"))
    async with connect(agent, server):
        async with agent.chat_stream("go") as stream:
            async for event in stream:
                if event.__class__.__name__ == "ToolCallStarted":
                    stream.abort("enough")
        response = await agent.chat("again")
    assert [m.text for m in response.messages if m.role == "tool"] == ["fine"]


@pytest.mark.slow
async def test_a_thousand_calls_leave_nothing_behind() -> None:
    model = ScriptedModel(*[call("ok")] * 10, "done", repeat=True)
    agent = Agent(model)
    server = server_of("ok")
    counts: list[int] = []
    async with connect(agent, server):
        for _ in range(3):
            for _ in range(50):
                await agent.chat("go")
            model.requests.clear()  # which it keeps for tests
            gc.collect()
            counts.append(len(gc.get_objects()))
        assert server._link is not None
        assert server._link.calls == []
    # The first five hundred fill caches; the next thousand add less than one object a call.
    assert counts[2] - counts[0] < 500
