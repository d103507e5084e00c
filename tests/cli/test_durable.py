"""`hookline durable`: what an operator types, and what it says."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from hookline import Agent, Ask
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
    head, *lines = said(capsys, "ls", url).splitlines()
    assert head.split() == ["started", "chat", "state", "agent"]
    assert [line.split()[2:4] for line in lines] == [["done-1", "done"], ["open-1", "queued"]]
    assert "key acme" in lines[1]
    [chat] = json.loads(said(capsys, "ls", url, "--state", "done", "--output", "json"))
    assert (chat["id"], chat["version"]) == ("done-1", "v7")
    assert said(capsys, "ls", url, "--older-than", "7d").strip() == "no chats"
    assert main(["durable", "ls", url, "--limit", "1"]) == 0
    listed = capsys.readouterr()
    assert "open-1" not in listed.out
    assert "raise --limit" in listed.err
    timeline = said(capsys, "show", url, "done-1")
    assert "version v7" in timeline
    assert "step/0/model" in timeline


def test_an_operator_ends_retries_and_deletes_chats(
    url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert said(capsys, "quarantine", url, "open-1") == "chat open-1 is quarantined\n"
    assert "quarantined" in said(capsys, "ls", url)
    assert said(capsys, "retry", url, "open-1") == "chat open-1 is queued\n"
    assert said(capsys, "abort", url, "open-1", "--force").startswith("the abort of chat open-1 ")
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
    assert text == "drained: 0 running, 1 queued, 0 resting, 0 quarantined"
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


OF_QUEUE = {
    "ls": (),
    "counts": (),
    "drain": (),
    "resume": (),
    "cleanup": ("--older-than", "7d"),
    "check": ("tests.cli.test_durable:MINE",),
}
MINE = Agent(ScriptedModel("Hello."), name="mine", runtime=Durable())


@pytest.mark.parametrize("command", OF_QUEUE)
def test_a_command_about_a_queue_creates_no_file_and_names_the_missing_one(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "typo.db"
    assert main(["durable", command, f"sqlite:///{file}", *OF_QUEUE[command]]) == 2
    assert f"the file '{file}' does not exist; check the address" in capsys.readouterr().err
    assert not file.exists()


@pytest.mark.parametrize("command", OF_QUEUE)
def test_a_command_about_a_queue_without_chats_names_those_that_have_some(
    command: str, url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["durable", command, url, *OF_QUEUE[command], "--queue", "typo"]) == 0
    assert "queue 'typo' has no chats; these have: hookline" in capsys.readouterr().err


def test_a_check_fails_if_all_open_chats_are_for_other_agents(
    url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["durable", "check", url, "tests.cli.test_durable:MINE"]) == 1
    out, err = capsys.readouterr()
    assert out.splitlines() == [
        "0 open chats, 0 do not fit",
        "1 open chat for other agents: 'theirs' (1)",
    ]
    assert "no open chat is for agent 'mine'" in err


def test_an_operator_answers_watches_and_deletes_a_chat(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url = f"sqlite:///{tmp_path}/jobs.db"

    async def pay(account: str) -> str:
        """Pay."""
        return f"paid {account}"

    def agent(*script: Any) -> Agent[Any]:
        made = Agent(ScriptedModel(*script), tools=[pay], runtime=Durable())
        made.add_hook("preToolCall", lambda ctx: Ask("Pay it?"))
        return made

    async def until(state: str, *script: Any) -> None:
        async with chats(agent(*script), url), client(url) as jobs:
            await jobs.start("Pay.", chat_id="one")
            while (await jobs.status("one")).state != state:  # noqa: ASYNC110
                await asyncio.sleep(0.02)

    calls = [call("pay", account="a"), call("pay", account="b")]
    asyncio.run(until("waiting", calls))
    assert said(capsys, "counts", url) == "0 running, 0 queued, 1 resting, 0 quarantined\n"
    lines = said(capsys, "pending", url, "one").splitlines()
    assert lines == [
        'one.call_1  pay({"account": "a"})  Pay it?',
        'one.call_2  pay({"account": "b"})  Pay it?',
    ]
    said(capsys, "answer", url, "one", "one.call_1", status=2)
    text = said(capsys, "answer", url, "one", "one.call_1", "--approve", "--by", "ada")
    assert text == "one.call_1 is approved\n"
    text = said(capsys, "answer", url, "one", "one.call_2", "--deny", "too much")
    assert text == "one.call_2 is denied\n"
    assert said(capsys, "pending", url, "one") == "no call waits\n"
    asyncio.run(until("done", "Done."))
    text = said(capsys, "watch", url, "one")
    assert "approved by ada" in text
    assert "pay: Denied" in text
    assert text.splitlines()[-1].split()[2:] == ["end", "done"]
    assert said(capsys, "delete", url, "one") == "chat one is deleted\n"
    said(capsys, "show", url, "one", status=2)


def test_a_command_shows_the_traceback_of_its_error_if_debug_is_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path(tmp_path, "jobs.db").write_text("no database, but long enough to be taken for one " * 9)
    url = f"sqlite:///{tmp_path}/jobs.db"
    assert main(["durable", "ls", url]) == 1
    assert "--debug shows the traceback" in capsys.readouterr().err
    assert main(["durable", "ls", url, "--debug"]) == 1
    assert "Traceback (most recent call last)" in capsys.readouterr().err


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
    assert text.strip() == "1 open chat, 0 do not fit"
