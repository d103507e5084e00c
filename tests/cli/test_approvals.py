"""`hookline approvals` and `hookline review report`."""

import asyncio
import json

from hookline import Agent, Approve
from hookline.cli import main
from hookline.hooks import approve, review
from hookline.storage import Rule
from hookline.stores import SQLStore
from hookline.testing import ScriptedModel, call


def remember(url: str, scope: str) -> None:
    async def prepare() -> None:
        def pay(euros: int) -> str:
            """Pay."""
            return "paid"

        async with SQLStore(url) as store:
            agent = Agent(
                ScriptedModel(call("pay", euros=5), "done"),
                name="till",
                tools=[pay],
                hooks=[approve("pay")],
                store=store,
            )
            (request,) = (await agent.chat("go", conversation="talk")).pending
            rule = Rule("pay", scope=scope)  # type: ignore[arg-type]
            await agent.resume("talk", {request.id: Approve(by="lea", remember=rule)})

    asyncio.run(prepare())


def test_rules_are_listed_and_revoked(tmp_path, capsys):
    url = f"sqlite:///{tmp_path}/chats.db"
    remember(url, "always")
    assert main(["approvals", url]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    assert 'till: pay({"euros": 5}) by lea' in line
    id = line.split()[0]
    assert main(["approvals", url, "--revoke", "other"]) != 0
    assert "there is no rule 'other'" in capsys.readouterr().err
    assert main(["approvals", url, "--revoke", id]) == 0
    assert capsys.readouterr().out == "no remembered approvals\n"


def test_the_rules_of_a_conversation_are_listed_as_json(tmp_path, capsys):
    url = f"sqlite:///{tmp_path}/chats.db"
    remember(url, "conversation")
    assert main(["approvals", url, "--conversation", "talk", "--output", "json"]) == 0
    (rule,) = json.loads(capsys.readouterr().out)
    assert (rule["tool"], rule["arguments"], rule["by"]) == ("pay", {"euros": 5}, "lea")
    assert main(["approvals", url]) == 0
    assert capsys.readouterr().out == "no remembered approvals\n"


def test_a_report_compares_a_reviewer_with_people(tmp_path, capsys):
    file = tmp_path / "reviews.jsonl"

    async def prepare() -> None:
        def pay() -> str:
            """Pay."""
            return "paid"

        model = ScriptedModel('{"decision": "deny", "reason": "too much"}')
        agent = Agent(
            ScriptedModel(call("pay"), "done"),
            tools=[pay],
            hooks=[approve("pay"), review(model, may=(), record=file)],
            approver=lambda request, run: Approve(by="lea"),
        )
        await agent.chat("go")

    asyncio.run(prepare())
    assert main(["review", "report", str(file)]) == 0
    out = capsys.readouterr().out
    assert "1 reviews, 1 of them answered by a person too" in out
    assert "review: deny     person: approve" in out
    assert "too much" in out
    assert main(["review", "report", str(file), "--output", "json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["answers"] == [{"review": "deny", "person": "approve", "calls": 1}]
    assert main(["review", "report", str(tmp_path / "none")]) != 0
