"""Durable chats in a SQLite file: over restarts, kills, waits, and answers from other processes."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.durable import _worker

from hookline import Agent, Approve, Ask, Deny, LocalRuntime, UserMessage, check_history, tool
from hookline.durable.sqlite import Chats, Worker, chats
from hookline.errors import (
    ApprovalError,
    ChatAbortedError,
    ConversationBusyError,
    RemoteChatError,
    UsageError,
)
from hookline.runtimes import Durable
from hookline.stores import SQLStore
from hookline.testing import ScriptedModel, call

ROOT = Path(__file__).parents[2]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "jobs.db"


@pytest.fixture
async def client(file: Path) -> AsyncIterator[Chats]:
    made = Chats(file, poll=0.01)
    yield made
    made.close()


def worker(file: Path, agent: Agent[Any], **options: Any) -> Worker:
    return chats(agent, file, **{"poll": 0.01, "idle": 0.03, "lease": 1.0, **options})


def asking(ran: list[str], *turns: Any, **ask: Any) -> Agent[Any]:
    @tool
    async def delete(path: str) -> str:
        """Delete a file."""
        ran.append(path)
        return f"{path} is gone"

    made: Agent[Any] = Agent(ScriptedModel(*turns), tools=[delete], runtime=Durable())
    made.add_hook("preToolCall", lambda ctx: Ask("Really?", **ask))
    return made


async def waits(client: Chats, chat_id: str) -> str:
    """The id of what waits there, once it does."""
    while True:
        found = await client.pending(chat_id)
        if found:
            return found[0].id
        await asyncio.sleep(0.01)


async def at_rest(running: Worker) -> None:
    """Until it holds no chat."""
    while True:
        if not running._lives:
            return
        await asyncio.sleep(0.01)


async def test_a_chat_is_started_and_awaited_by_its_id(file: Path, client: Chats) -> None:
    async with worker(file, Agent(ScriptedModel("Hello."), runtime=Durable())):
        id = await client.start("Hi.")
        response = await client.result(id)
    assert (response.text, response.chat_id) == ("Hello.", id)
    assert [message.role for message in response.messages] == ["user", "assistant"]


async def test_one_id_is_one_chat(file: Path, client: Chats) -> None:
    model = ScriptedModel("Hello.")
    async with worker(file, Agent(model, runtime=Durable())):
        for _ in range(3):
            assert await client.start("Hi.", chat_id="one") == "one"
        assert (await client.result("one")).text == "Hello."
        await client.start("Hi again.", chat_id="one")
        assert (await client.result("one")).text == "Hello."
    assert len(model.requests) == 1


async def test_a_chat_that_waits_holds_no_worker_and_goes_on_when_it_is_answered(
    file: Path, client: Chats
) -> None:
    ran: list[str] = []
    agent = asking(ran, call("delete", path="a"), "Done.")
    async with worker(file, agent) as first:
        id = await client.start("Delete a.")
        request = await waits(client, id)
        await at_rest(first)
    assert ran == []
    async with worker(file, agent):
        await client.answer(id, {request: Approve()})
        assert (await client.result(id)).text == "Done."
    assert ran == ["a"]
    with pytest.raises(ApprovalError, match="nothing of chat"):
        await client.answer(id, {request: Approve()})


async def test_an_answer_counts_once_and_to_nothing_else(file: Path, client: Chats) -> None:
    ran: list[str] = []
    async with worker(file, asking(ran, call("delete", path="a"), "Done.")):
        id = await client.start("Delete a.")
        request = await waits(client, id)
        for wrong in ("another", f"{request}x"):
            with pytest.raises(ApprovalError):
                await client.answer(id, {request: Approve(), wrong: Approve()})  # all or none
        with pytest.raises(ApprovalError, match="use Approve"):
            await client.answer(id, {request: True})  # type: ignore[dict-item]
        assert [each.id for each in await client.pending(id)] == [request]
        await client.answer(id, {request: Deny("no")})
        with pytest.raises(ApprovalError):
            await client.answer(id, {request: Approve()})
        await client.result(id)
    assert ran == []


async def test_a_question_that_expires_is_denied_though_nobody_held_it(
    file: Path, client: Chats
) -> None:
    ran: list[str] = []
    async with worker(file, asking(ran, call("delete", path="a"), "Done.", expires=0.3)):
        id = await client.start("Delete a.")
        request = await waits(client, id)
        response = await client.result(id)
        with pytest.raises(ApprovalError):
            await client.answer(id, {request: Approve()})
    assert ran == []
    assert "expired" in response.messages[2].text


async def test_a_chat_is_aborted_by_its_id_while_it_runs_or_waits(
    file: Path, client: Chats
) -> None:
    ran: list[str] = []
    async with worker(file, asking(ran, call("delete", path="a"), "Done.")) as running:
        id = await client.start("Delete a.")
        await waits(client, id)
        await at_rest(running)
        assert await client.abort(id, "the user") is True
        with pytest.raises(ChatAbortedError) as caught:
            await client.result(id)
        assert caught.value.reason == "the user"
        check_history(caught.value.partial)
        assert await client.abort(id) is False
    assert ran == []


async def test_a_chat_that_waits_holds_its_conversation(
    tmp_path: Path, file: Path, client: Chats
) -> None:
    """Nobody renews its lease meanwhile; the question in the store stays its own."""
    ran: list[str] = []

    @tool
    async def delete(path: str) -> str:
        """Delete a file."""
        ran.append(path)
        return f"{path} is gone"

    now = [1000.0]
    url = f"sqlite:///{tmp_path}/chats.db"
    async with SQLStore(url, clock=lambda: now[0]) as store:
        model = ScriptedModel(call("delete", path="a"), "Done.")
        agent: Agent[Any] = Agent(model, tools=[delete], runtime=Durable(), store=store)
        agent.add_hook("preToolCall", lambda ctx: Ask("Really?"))
        other = Agent(ScriptedModel("Hello."), store=store)
        async with worker(file, agent) as running:
            id = await client.start("Delete a.", conversation="talk")
            request = await waits(client, id)
            await at_rest(running)
            now[0] += 1000  # its lease has run out
            assert [each.id for each in await store.pending()] == [request]
            for attempt in (
                other.chat("Hi.", conversation="talk"),
                other.resume("talk", {request: Approve()}),
            ):
                with pytest.raises(ConversationBusyError, match=r"client\.answer") as busy:
                    await attempt
                assert busy.value.chat_id == id
            assert ran == []
            await client.answer(id, {request: Approve()})
            assert (await client.result(id)).text == "Done."
        assert ran == ["a"]
        assert await store.pending() == ()
        assert (await other.chat("Hi.", conversation="talk")).text == "Hello."


async def test_a_chat_that_fails_is_a_finished_job(file: Path, client: Chats) -> None:
    agent: Agent[Any] = Agent(ScriptedModel(LookupError("no")), runtime=Durable())
    async with worker(file, agent):
        id = await client.start("Hi.")
        with pytest.raises(RemoteChatError, match="LookupError") as caught:
            await client.result(id)
    assert (caught.value.chat_id, caught.value.type) == (id, "LookupError")


async def test_deps_are_made_of_the_json_that_a_chat_was_started_with(
    file: Path, client: Chats
) -> None:
    seen: list[object] = []
    agent: Agent[Any] = Agent(ScriptedModel("Hello."), runtime=Durable())
    agent.add_hook("onChatStart", lambda ctx: seen.append(ctx.run.deps))

    async def make(data: Any) -> Any:
        return {"user": data["user"], "connection": object}

    async with worker(file, agent, deps=make):
        await client.result(await client.start("Hi.", deps={"user": "ada"}))
    assert seen == [{"user": "ada", "connection": object}]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"deps": object()}, "must be JSON"),
        ({"system": lambda run: "x"}, "system="),
        ({"model": ScriptedModel("x")}, "model="),
        ({"hooks": [lambda ctx: None]}, "hooks="),
        ({"conversation": 3}, "conversation="),
        ({"settings": {"temperature": 1}}, "settings="),
        ({"limits": {"steps": 1}}, "limits="),
        ({"chat_id": "a/b"}, "chat_id="),
        ({"chat_id": ""}, "chat_id="),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
async def test_what_a_file_cannot_keep_is_refused_by_name(
    client: Chats, options: Any, says: str
) -> None:
    with pytest.raises(UsageError, match=says):
        await client.start("Hi.", **options)


async def test_input_that_is_neither_text_nor_a_message_is_refused(client: Chats) -> None:
    with pytest.raises(UsageError, match="input="):
        await client.start(["Hi."])  # type: ignore[arg-type]
    await client.start(UserMessage(parts=()), chat_id="x")


async def test_an_agent_without_a_durable_runtime_is_refused(file: Path) -> None:
    for runtime in (LocalRuntime(), None):
        agent: Agent[Any] = (
            Agent(ScriptedModel("x"), runtime=runtime) if runtime else Agent(ScriptedModel("x"))
        )
        with pytest.raises(UsageError, match="runtime=Durable"):
            chats(agent, file)


async def test_there_is_no_result_of_what_was_not_started(client: Chats) -> None:
    with pytest.raises(UsageError, match="start it first"):
        await client.result("nothing")
    assert await client.pending("nothing") == ()
    assert await client.abort("nothing") is False


async def test_a_worker_that_stops_hands_its_chats_to_the_next_at_once(
    file: Path, client: Chats
) -> None:
    """The lease is longer than the test: nobody waits for it."""
    thinks = asyncio.Event()

    class Thinking:
        name = "scripted"

        async def stream(self, request: Any) -> Any:
            thinks.set()
            await asyncio.Event().wait()
            yield

    agent: Agent[Any] = Agent(Thinking(), runtime=Durable())
    async with worker(file, agent, lease=1000.0):
        id = await client.start("Hi.")
        await thinks.wait()
    async with worker(file, Agent(ScriptedModel("Hello."), runtime=Durable()), lease=1000.0):
        assert (await client.result(id)).text == "Hello."


# ── killed ──────────────────────────────────────────────────────────────────────────────────


class Processes:
    """Two workers, one of which is shot and begun again from time to time."""

    def __init__(self, *arguments: str) -> None:
        self.arguments = arguments
        self.kills = 0
        self.running = [self._begin(), self._begin()]

    def _begin(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-P", "-m", "tests.durable._worker", *self.arguments]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        return subprocess.Popen(command, cwd=ROOT, env=environment, stderr=subprocess.DEVNULL)

    def shoot(self) -> None:
        place = random.randrange(len(self.running))
        self.running[place].send_signal(signal.SIGKILL)
        self.running[place].wait()
        self.kills += 1
        self.running[place] = self._begin()

    def stop(self) -> None:
        for each in self.running:
            each.kill()
            each.wait()


@pytest.mark.parametrize("stored", [False, True], ids=["alone", "with a store"])
async def test_killed_workers_lose_and_repeat_nothing(
    tmp_path: Path, client: Chats, file: Path, stored: bool
) -> None:
    chats_, kills = 6, 5
    store = f"sqlite:///{tmp_path}/chats.db" if stored else ""
    trace = tmp_path / "trace"
    found = await survive(client, Processes(str(file), str(trace), store), chats_, kills, stored)
    await look_at(found, Counter(trace.read_text().splitlines()), store)


async def survive(
    client: Chats, processes: Processes, count: int, kills: int, stored: bool
) -> dict[str, Any]:
    """Start chats, shoot workers while they run, answer what is asked, and await all of them."""
    try:
        ids = [f"chat-{n}" for n in range(count)]
        for id in ids:
            await client.start(id, chat_id=id, conversation=f"talk-{id}" if stored else None)
        done = asyncio.gather(*[client.result(id) for id in ids])
        while not done.done():
            await asyncio.sleep(random.uniform(0.4, 1.2))
            for id in ids:
                for request in await client.pending(id):
                    await client.answer(id, {request.id: Approve()})
            if processes.kills < kills:
                processes.shoot()
        return dict(zip(ids, await done, strict=True))
    finally:
        processes.stop()


async def look_at(found: dict[str, Any], lines: Counter[str], store: str) -> None:
    """Each chat is right: nothing is lost, and nothing ran twice that may not."""
    for id, response in found.items():
        assert response.text == _worker.LAST
        roles = [message.role for message in response.messages]
        assert roles == ["user", "assistant", *["tool"] * 3, "assistant", "tool", "assistant"]
        check_history(response.messages)
        for name, call_id in (("charge", "b"), ("refund", "c")):
            assert lines[f"{id} {name}:{call_id}"] <= 1
        for message in response.messages:
            if message.role == "tool":
                name = f"{message.name} {message.call_id}"
                assert message.text == name or "may have run" in message.text
                if message.text == name:
                    assert lines[f"{id} {message.name}:{message.call_id}:done"] >= 1
    if store:
        async with SQLStore(store) as opened:
            for id, response in found.items():
                assert (await opened.open(f"talk-{id}")).messages == response.messages
