"""`hookline durable`: what an operator types, and what it says."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

import pytest

from hookline import Agent
from hookline.cli import main
from hookline.durable import chats, client
from hookline.runtimes import Durable
from hookline.testing import ScriptedModel, call


@pytest.fixture
def url(tmp_path: Path) -> str:
    """Two chats: one is done, and one waits for a worker of another agent."""
    where = f"sqlite:///{tmp_path}/jobs.db"

    async def prepare() -> None:
        agent = Agent(ScriptedModel("Hello."), name="mine", runtime=Durable())
        async with chats(agent, where, version="v7"), client(where) as jobs:
            await jobs.result(await jobs.start("Hi.", chat_id="done-1", agent="mine"))
            await jobs.start("Hi.", chat_id="open-1", agent="theirs", key="acme")

    asyncio.run(prepare())
    return where


def said(capsys: pytest.CaptureFixture[str], *arguments: str, status: int = 0) -> str:
    capsys.readouterr()
    assert main(["durable", *arguments]) == status
    return capsys.readouterr().out


def test_an_operator_lists_and_shows_chats(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    lines = said(capsys, "ls", url).splitlines()
    assert [line.split()[2:4] for line in lines] == [["done-1", "done"], ["open-1", "queued"]]
    assert "key acme" in lines[1]
    [chat] = json.loads(said(capsys, "ls", url, "--state", "done", "--output", "json"))
    assert (chat["id"], chat["version"]) == ("done-1", "v7")
    assert said(capsys, "ls", url, "--older-than", "7d").strip() == "no chats"
    timeline = said(capsys, "show", url, "done-1")
    assert "version v7" in timeline
    assert "step/0/model" in timeline


def test_an_operator_ends_retries_and_deletes_chats(
    url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    said(capsys, "quarantine", url, "open-1")
    assert "quarantined" in said(capsys, "ls", url)
    said(capsys, "retry", url, "open-1")
    said(capsys, "abort", url, "open-1", "--force")
    said(capsys, "abort", url, "open-1", status=1)
    assert said(capsys, "cleanup", url, "--older-than", "0s").strip() == "2 chats deleted"
    said(capsys, "cleanup", url, "--older-than", "soon", status=2)


def test_a_message_is_sent_into_a_chat_unless_it_is_over(
    url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    said(capsys, "send", url, "open-1", "Two seats, please.", "--when", "idle")
    assert "message  open-1." in said(capsys, "show", url, "open-1")
    assert main(["durable", "send", url, "done-1", "Two seats, please."]) == 1
    assert "not delivered to chat done-1: the chat ended" in capsys.readouterr().err


def test_a_message_beyond_the_most_that_may_wait_names_this_reason(
    url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    async def fill() -> None:
        async with client(url) as jobs:
            for number in range(64):
                await jobs.send("open-1", f"{number}")

    asyncio.run(fill())
    assert main(["durable", "send", url, "open-1", "One more."]) == 1
    assert "64 messages wait already" in capsys.readouterr().err


def test_an_operator_drains_a_queue_and_resumes_it(
    url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    text = said(capsys, "drain", url, "--timeout", "20s").strip()
    assert text == "drained: no chat runs, 1 wait, 0 are quarantined"
    said(capsys, "resume", url)

    async def drain_while_a_chat_runs() -> None:
        begun, release = asyncio.Event(), asyncio.Event()

        async def look() -> str:
            begun.set()
            await release.wait()
            return "seen"

        model = ScriptedModel(call("look"), "Done.")
        agent = Agent(model, tools=[look], name="theirs", runtime=Durable())
        async with chats(agent, url):
            await begun.wait()
            await asyncio.to_thread(said, capsys, "drain", url, "--timeout", "0s", status=1)
            release.set()

    asyncio.run(drain_while_a_chat_runs())
    said(capsys, "resume", url)


def test_a_deploy_is_checked(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    Path(tmp_path, "deployed.py").write_text(
        "from hookline import Agent\n"
        "from hookline.runtimes import Durable\n"
        "from hookline.testing import ScriptedModel\n"
        "agent = Agent(ScriptedModel('Hi.'), name='theirs', runtime=Durable())\n"
    )
    try:
        text = said(capsys, "check", url, "deployed:agent")
    finally:
        sys.modules.pop("deployed", None)
    assert text.strip() == "1 open chats, 0 do not fit"
