"""`hookline replay`, as a program."""

import asyncio
import json

import pytest
from tests._programs import run

from hookline import Agent
from hookline.durable import chats, client
from hookline.hooks import audit
from hookline.runtimes import Durable
from hookline.stores import SQLStore
from hookline.testing import ScriptedModel, call
from hookline.testing.cassette import cassette

APP = """
from hookline import Agent, Ask, Deny, define_hook
from hookline.testing import ScriptedModel

async def pay(amount: int) -> str:
    "Pay an amount."
    raise AssertionError("no tool runs in a replay")

agent = Agent(ScriptedModel(), tools=[pay])

@agent.hook("preToolCall", name="ask")
def ask(ctx):
    return Ask("sure?") if ctx.call.arguments["amount"] > 50 else None

@define_hook("preToolCall")
def limit(ctx):
    return Deny("too much") if ctx.call.arguments["amount"] > 10 else None

def plain(ctx):
    return None
"""


async def _store(path):
    async def pay(amount: int) -> str:
        """Pay an amount."""
        return f"paid {amount}"

    async with SQLStore(f"sqlite:///{path}") as store:
        model = ScriptedModel([call("pay", amount=5), call("pay", amount=20)], "done")
        agent = Agent(model, tools=[pay], store=store)
        await agent.chat("go", conversation="talk", chat_id="c1")


def folder_with_chats(tmp_path):
    (tmp_path / "app.py").write_text(APP)
    asyncio.run(_store(tmp_path / "chats.db"))
    return tmp_path


def test_a_hook_is_tried_out_on_stored_chats(tmp_path):
    folder = folder_with_chats(tmp_path)
    done = run(folder, "replay", "chats.db", "app:agent", "--hook", "app:limit", "--since", "1d")
    assert done.stdout == (
        "chat     step  call            was  now     by     why\n"
        "talk/c1  0     pay(amount=20)  ok   denied  limit  too much\n"
        "1 chat, 1 differs: denied 1\n"
    )
    assert done.returncode == 0


async def _record(folder):
    async def pay(amount: int) -> str:
        """Pay an amount."""
        return f"paid {amount}"

    with cassette(folder / "tape.json", action="record") as tape:
        model = ScriptedModel([call("pay", amount=5), call("pay", amount=20)], "done")
        hooks = [tape, *audit(folder / "audit.jsonl", content=True)]
        await Agent(model, tools=[pay]).chat("go", hooks=hooks, chat_id="c1")


@pytest.mark.slow
def test_a_hook_is_tried_out_on_a_cassette_and_on_an_audit_file(tmp_path, monkeypatch):
    monkeypatch.delenv("CI", raising=False)
    folder = folder_with_chats(tmp_path)
    asyncio.run(_record(folder))
    for path, chat in {"tape.json": '"go"', "audit.jsonl": "c1  "}.items():
        done = run(folder, "replay", path, "app:agent", "--hook", "app:limit")
        assert done.stdout == (
            "chat  step  call            was  now     by     why\n"
            f"{chat}  0     pay(amount=20)  ok   denied  limit  too much\n"
            "1 chat, 1 differs: denied 1\n"
        )
    wrong = run(folder, "replay", "app.py", "app:agent", "--hook", "app:limit")
    assert wrong.returncode == 2
    assert "'app.py' has no chats that can be read; pass a store" in wrong.stderr
    timed = run(folder, "replay", "tape.json", "app:agent", "--hook", "app:limit", "--since", "7d")
    assert (timed.returncode, "cannot be used with the cassette" in timed.stderr) == (2, True)


@pytest.mark.slow
def test_a_verdict_may_fail_a_build(tmp_path):
    folder = folder_with_chats(tmp_path)
    words = ("replay", "sqlite:///chats.db", "app:agent", "--hook", "app:limit")
    done = run(folder, *words, "--fail-on", "denied", "--output", "json", "--html", "out.html")
    assert done.returncode == 1
    assert json.loads(done.stdout)["differing"] == 1
    assert "too much" in (folder / "out.html").read_text()
    assert run(folder, *words, "--fail-on", "allowed").returncode == 0
    left_out = run(folder, "replay", "chats.db", "app:agent", "--without", "ask")
    assert left_out.stdout == "1 chat, 0 differ\n"


@pytest.mark.slow
def test_wrong_use_exits_with_2_and_says_what_to_do(tmp_path):
    folder = folder_with_chats(tmp_path)
    for words, text in {
        ("none.db", "app:agent", "--hook", "app:limit"): "there is no file 'none.db'",
        ("chats.db", "app:agent", "--hook", "app:plain"): "make it a definition",
        ("chats.db", "app:agent"): "pass the hooks to try out",
        ("chats.db", "app:agent", "--hook", "app:limit", "--since", "soon"): "must be a time span",
        ("chats.db", "app:agent", "--hook", "app:limit", "--since", "2999-01-01"): "has no chats",
    }.items():
        done = run(folder, "replay", *words)
        assert (done.returncode, text in done.stderr) == (2, True), done.stderr


async def _durable(folder):
    async def pay(amount: int) -> str:
        """Pay an amount."""
        return f"paid {amount}"

    url = f"sqlite:///{folder}/jobs.db"
    model = ScriptedModel([call("pay", amount=5), call("pay", amount=20)], "done")
    agent = Agent(model, tools=[pay], runtime=Durable())
    async with chats(agent, url, queue="desk"), client(url, queue="desk") as jobs:
        await jobs.result(await jobs.start("go", chat_id="c1"))


def test_a_hook_is_tried_out_on_the_logs_of_durable_chats(tmp_path):
    (tmp_path / "app.py").write_text(APP)
    asyncio.run(_durable(tmp_path))
    words = ("sqlite:///jobs.db", "app:agent", "--hook", "app:limit", "--queue", "desk")
    done = run(tmp_path, "replay", *words, "--durable", "--since", "1d")
    assert done.stdout == (
        "chat  step  call            was  now     by     why\n"
        "c1    0     pay(amount=20)  ok   denied  limit  too much\n"
        "1 chat, 1 differs: denied 1\n"
    )
    late = run(tmp_path, "replay", *words, "--durable", "--since", "2999-01-01")
    assert (late.returncode, "has no chats" in late.stderr) == (2, True)
    wrong = run(tmp_path, "replay", *words)
    assert (wrong.returncode, "add --durable" in wrong.stderr) == (2, True)
