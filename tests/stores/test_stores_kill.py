"""Processes that die, and processes that share: what is written is whole, once and in order.

HOOKLINE_KILLS=200 shoots 200 processes on SQLite and a quarter of that on PostgreSQL.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any

import pytest

from hookline import Agent, Approve, Deny
from hookline.errors import ApprovalError, ConversationBusyError
from hookline.stores import SQLStore
from hookline.testing import ScriptedModel

HERE = Path(__file__).parents[1]
KILLS = int(os.environ.get("HOOKLINE_KILLS", "20"))

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork and SIGKILL")


def python(script: str, *arguments: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-W", "error", str(HERE / script), *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


@pytest.mark.slow
@pytest.mark.timeout(580)
def test_killed_at_any_moment_nothing_is_lost_or_doubled(
    database: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rounds = KILLS if database.startswith("sqlite") else max(5, KILLS // 4)
    process = python("_killing.py", database, rounds, random.randrange(10**6), tmp_path)
    told, _ = process.communicate()
    assert process.returncode == 0
    assert told.startswith(f"{rounds} killed, ")
    with capsys.disabled():
        print(f"\n{database.partition(':')[0]}: {told.strip()}")


# ── approvals and death ─────────────────────────────────────────────────────────────────────


def run(*arguments: object) -> tuple[int, list[str]]:
    """What the process told, and how it ended."""
    process = python("_approving.py", *arguments)
    told, _ = process.communicate(timeout=50)
    return process.returncode, told.split()


def ran(file: Path) -> list[str]:
    return file.read_text().splitlines() if file.exists() else []


@pytest.fixture
def talk() -> str:
    return f"talk-{uuid.uuid4().hex[:12]}"


@pytest.mark.parametrize("death", ["after", "before"], ids=["it was told", "its lease was free"])
def test_an_approval_outlives_its_process_and_the_tool_runs_once(
    database: str, talk: str, death: str, tmp_path: Path
) -> None:
    file = tmp_path / "ran"
    code, told = run(database, talk, file, "ask", death)
    assert code == -signal.SIGKILL
    assert ran(file) == []
    ids = told or asyncio.run(pending(database, talk))
    assert len(ids) == 1
    code, told = run(database, talk, file, "approve", *ids)
    assert (code, told) == (0, ["done"])
    assert ran(file) == ["a.txt"]
    for _ in range(2):  # a replayed answer runs nothing, in whatever process
        code, told = run(database, talk, file, "approve", *ids)
        assert (code, told) == (0, ["ApprovalError"])
    assert ran(file) == ["a.txt"]


def test_a_tool_whose_process_dies_in_it_does_not_run_again(
    database: str, talk: str, tmp_path: Path
) -> None:
    file = tmp_path / "ran"
    _, ids = run(database, talk, file, "ask", "never")
    code, _ = run(database, talk, file, "die", *ids)
    assert code == -signal.SIGKILL
    assert ran(file) == ["a.txt"]
    code, told = run(database, talk, file, "approve", *ids)
    assert (code, told) == (0, ["ApprovalError"])
    assert asyncio.run(last_results(database, talk)) == ["aborted"]
    assert ran(file) == ["a.txt"]


@pytest.mark.slow
def test_of_two_processes_that_answer_at_once_one_does(
    database: str, talk: str, tmp_path: Path
) -> None:
    file = tmp_path / "ran"
    _, ids = run(database, talk, file, "ask", "never")
    both = [python("_approving.py", database, talk, file, "approve", *ids) for _ in range(2)]
    told = sorted(process.communicate(timeout=50)[0].strip() for process in both)
    assert told in (["ApprovalError", "done"], ["ConversationBusyError", "done"])
    assert ran(file) == ["a.txt"]


async def pending(database: str, talk: str) -> list[str]:
    async with SQLStore(database) as store:
        return [request.id for request in await store.pending(talk)]


async def last_results(database: str, talk: str) -> list[str]:
    async with SQLStore(database) as store:
        messages = (await store.open(talk)).messages
        return [message.outcome for message in messages if message.role == "tool"]


async def test_the_same_answer_twice_at_the_same_moment_runs_once(
    database: str, talk: str, tmp_path: Path
) -> None:
    """In one process: two tasks, two agents, one database."""
    file = tmp_path / "ran"
    _, ids = run(database, talk, file, "ask", "never")
    async with SQLStore(database) as store:
        count = 0

        async def delete(path: str) -> str:
            """Delete a file."""
            nonlocal count
            count += 1
            return f"{path} is gone"

        async def answer(number: int) -> str:
            agent = Agent(ScriptedModel("Done."), tools=[delete], store=store)
            decision = Approve() if number % 2 else Deny("no")
            try:
                await agent.resume(talk, {ids[0]: decision})
            except (ApprovalError, ConversationBusyError) as exc:
                return type(exc).__name__
            return "done"

        told = await asyncio.gather(*[answer(number) for number in range(10)])
        assert told.count("done") == 1
        assert count == told.index("done") % 2
        results = [m.outcome for m in (await store.open(talk)).messages if m.role == "tool"]
        assert len(results) == 1


# ── many at once ────────────────────────────────────────────────────────────────────────────


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_hundred_at_once_on_ten_conversations(
    database: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Processes of tasks: each chat is there once, whole, and its answer stands after it."""
    processes, tasks, chats = 5, 20, 2 if KILLS >= 200 else 1
    prefix = f"many-{uuid.uuid4().hex[:8]}"
    children = [
        python("_hammering.py", database, prefix, number, tasks, chats)
        for number in range(processes)
    ]
    told = [child.communicate(timeout=280)[0].strip() for child in children]
    assert [child.returncode for child in children] == [0] * processes
    said = asyncio.run(everything_said(database, prefix))
    expected = {
        f"{process}/{task}/{chat}"
        for process in range(processes)
        for task in range(tasks)
        for chat in range(chats)
    }
    assert sorted(said) == sorted(expected)  # each once, and nothing else
    with capsys.disabled():
        print(f"\n{database.partition(':')[0]}: {len(said)} chats, {' '.join(told)} refused")


async def everything_said(database: str, prefix: str) -> list[str]:
    said: list[str] = []
    async with SQLStore(database) as store:
        for number in range(10):
            messages: Any = (await store.open(f"{prefix}-{number}")).messages
            assert len(messages) % 4 == 0
            for place in range(0, len(messages), 4):
                asked, called, result, answer = messages[place : place + 4]
                assert called.tool_calls[0].arguments == {"text": asked.text}
                assert result.text == f"heard {asked.text}"
                assert answer.text == f"answer to {asked.text}"
                said.append(asked.text)
    return said
