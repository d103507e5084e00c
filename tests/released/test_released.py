"""Records of each released version are read by this one: rows, waiting steps, logs, and events."""

from __future__ import annotations

import shutil
from pathlib import Path

import msgspec
import pytest
from tests.released._program import CONVERSATION, agent, first_request, paid

from hookline import Approve, Conversation, UserMessage
from hookline._base.messages import Message
from hookline.durable.sqlite import Chats, chats
from hookline.events import ChatDone, TextDelta, read_event
from hookline.runtimes import Durable
from hookline.storage import list_rules
from hookline.stores import SQLStore

VERSIONS = sorted(path for path in Path(__file__).parent.iterdir() if path.name[0].isdigit())


@pytest.fixture(params=VERSIONS, ids=lambda path: path.name)
def records(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A copy of a version's records."""
    paid.clear()
    return Path(shutil.copytree(request.param, tmp_path / "records"))


def test_there_are_records() -> None:
    assert VERSIONS


def test_messages_are_read(records: Path) -> None:
    lines = (records / "messages.jsonl").read_bytes().splitlines()
    messages = [msgspec.json.decode(line, type=Message) for line in lines]
    assert messages == list(CONVERSATION)
    Conversation(messages)


def test_events_are_read(records: Path) -> None:
    events = [read_event(line) for line in (records / "events.jsonl").read_bytes().splitlines()]
    assert "".join(event.text for event in events if isinstance(event, TextDelta)) == "Well then."
    assert isinstance(events[-1], ChatDone)
    assert [event.seq for event in events] == list(range(1, len(events) + 1))


async def test_a_call_that_waits_in_a_store_is_answered(records: Path) -> None:
    async with SQLStore(f"sqlite:///{records}/chats.db") as store:
        (request,) = await store.pending("waits")
        assert (request.prompts, request.call.name) == (("Pay it?",), "pay")
        response = await agent(store=store).resume("waits", {request.id: Approve()})
        assert (response.text, paid) == ("Paid.", ["Ada 9"])


async def test_a_remembered_rule_holds(records: Path) -> None:
    async with SQLStore(f"sqlite:///{records}/chats.db") as store:
        assert [rule.tool for rule in await list_rules(store)] == ["pay"]
        response = await agent(store=store).chat("Pay Ada.", conversation="new")
        assert (response.text, paid) == ("Paid.", ["Ada 9"])


async def test_a_conversation_goes_on(records: Path) -> None:
    async with SQLStore(f"sqlite:///{records}/chats.db") as store:
        stored = await store.load("talk")
        assert stored is not None
        assert isinstance(stored.messages[0], UserMessage)
        response = await agent("Again.", store=store).chat("Go on.", conversation="talk")
        assert response.text == "Again."
        longer = await store.load("talk")
        assert longer is not None
        assert longer.messages[: len(stored.messages)] == stored.messages


async def test_durable_chats_go_on(records: Path) -> None:
    file = records / "jobs.db"
    async with chats(agent(runtime=Durable()), file), Chats(file) as jobs:
        assert (await jobs.result("finished")).text == "Paid."
        assert (await jobs.status("aborted")).state == "aborted"
        assert paid == []  # what has ended does not run again
        for name in ("waiting", "queued"):
            request = await first_request(jobs, name)
            await jobs.answer(name, {request.id: Approve()})
            assert (await jobs.result(name)).text == "Paid."
        assert paid == ["Ada 9"] * 2
