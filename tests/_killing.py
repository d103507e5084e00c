"""Kill chats with SIGKILL at random moments, and look at what they left.

python tests/_killing.py URL ROUNDS SEED DIRECTORY [SECONDS]

Each round forks a child that chats without end on one of a few conversations: steps with several
tool calls, on a store. It is killed after a random time. A second child opens the conversation as
a new process would, checks it, and takes the next turn. The last line tells the count. No round
but the first begins after SECONDS. The first round that finds damage is the last one, and
DIRECTORY/damage tells what it was.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import random
import signal
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

from hookline import Agent, Conversation, UserMessage, check_history
from hookline.errors import ConversationBusyError
from hookline.stores import SQLStore
from hookline.testing import call

LEASE = 0.1
CONVERSATIONS = 5
WHOLE = "all conversations whole"
WARM = 4  # chats by which is measured how long one takes here and now


class Model:
    """Asks for two calls, then for one, then answers; whatever the history is."""

    def __init__(self, label: str) -> None:
        self.label = label
        self.calls = 0

    async def stream(self, request: Any) -> Any:
        from hookline.testing import ScriptedModel

        check_history(request.messages)
        since = 0
        for message in reversed(request.messages):
            if isinstance(message, UserMessage):
                break
            since += message.role == "assistant"
        self.calls += 1
        first = call("look", q="a", call_id=f"{self.label}-{self.calls}a")
        second = call("look", q="b", call_id=f"{self.label}-{self.calls}b")
        turn: Any = {0: ["Let me see.", first, second], 1: first}.get(since, "All done.")
        async for chunk in ScriptedModel(turn).stream(request):
            await asyncio.sleep(0)
            yield chunk


def note(path: Path, line: str) -> None:
    """One line, whole or not at all, that outlives the process."""
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(file, f"{line}\n".encode())
    os.close(file)


async def chat_on(url: str, id: str, label: str, directory: Path, chats: int = 10_000) -> None:
    """The child that is shot: it tells which messages are written and which tools begin."""
    store = SQLStore(url, lease=LEASE)

    async def look(q: str) -> str:
        """Look it up."""
        await asyncio.sleep(0.001)
        return f"found {q}"

    agent = Agent(Model(label), tools=[look], store=store)
    agent.add_hook("onMessage", lambda ctx: note(directory / f"{id}.written", ctx.message.id))

    async def began(ctx: Any, proceed: Any) -> Any:
        note(directory / f"{id}.ran", ctx.call.id)
        return await proceed()

    agent.add_hook("aroundToolCall", began)
    warm = Agent(Model(label), tools=[look], store=store)
    await warm.chat("warm", conversation=f"{id}-{label}")  # connections stand, caches are full
    os.write(1, b"go\n")
    for number in range(chats):
        await agent.chat(f"{label} {number}", conversation=id)


def damage(ids: list[str], written: list[str], ran: list[str]) -> dict[str, int]:
    """What is wrong with these messages, of which those were said to be written, and these calls.

    A message that was written and is not there is lost; one that is there and was not said to be
    written was written in the moment of death, and is no fault.
    """
    there = set(ids)
    kept = [each for each in written if each in there]
    return {
        "lost": len(written) - len(kept),
        "doubled": len(ids) - len(there),
        "reordered": int(list(dict.fromkeys(each for each in ids if each in set(kept))) != kept),
        "ran twice": len(ran) - len(set(ran)),
    }


async def look_at(url: str, id: str, label: str, directory: Path) -> None:
    """The child that comes after: it loads, checks, and takes the next turn."""
    async with SQLStore(url) as store:
        talk = await Conversation.open(store, id)
        ids = [message.id for message in talk.messages]
        written = _lines(directory / f"{id}.written")
        found = damage(ids, written, _lines(directory / f"{id}.ran"))
        if any(found.values()):
            note(directory / "damage", json.dumps(found))
            raise AssertionError(f"after {len(written)} messages: {found}")
        agent = Agent(Model(label), store=store)
        while True:
            try:
                response = await agent.chat(f"{label} and now?", conversation=id)
                break
            except ConversationBusyError:  # the dead one's lease: it runs out
                await asyncio.sleep(0.02)
        assert response.text == "All done."
        again = await Conversation.open(store, id)
        check_history(again.messages)
        assert again.messages[-len(response.messages) :] == response.messages
        assert [message.id for message in again.messages][: len(written)] == ids[: len(written)]
        for message in response.messages:
            note(directory / f"{id}.written", message.id)


def _lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def _fork(work: Any) -> tuple[int, int]:
    """A child that runs this; its pid, and a file to hear from it."""
    ours, theirs = os.pipe()
    pid = os.fork()
    if pid:
        os.close(theirs)
        return pid, ours
    os.dup2(theirs, 1)
    code = 1
    try:
        asyncio.run(work())
        code = 0
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        os._exit(code)


def _chat_takes(url: str, prefix: str, directory: Path) -> float:
    """Seconds that a chat takes, whatever else the machine does."""
    pid, pipe = _fork(partial(chat_on, url, f"{prefix}-warm", "warm", directory, WARM))
    assert os.read(pipe, 3) == b"go\n"
    begin = time.perf_counter()
    _, status = os.waitpid(pid, 0)
    os.close(pipe)
    assert status == 0
    return (time.perf_counter() - begin) / WARM


def main(url: str, rounds: int, seed: int, directory: Path, seconds: float = math.inf) -> int:
    until = time.monotonic() + seconds
    chance = random.Random(seed)
    killed, whole = 0, WHOLE
    prefix = f"kill-{os.getpid()}"
    longest = 3 * _chat_takes(url, prefix, directory)
    for number in range(rounds):
        if killed and time.monotonic() > until:
            break
        id, label = f"{prefix}-{number % CONVERSATIONS}", f"r{number}"
        pid, pipe = _fork(partial(chat_on, url, id, label, directory))
        assert os.read(pipe, 3) == b"go\n"
        time.sleep(chance.uniform(0, longest))
        os.kill(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
        os.close(pipe)
        assert os.WIFSIGNALED(status), f"round {number}: the child ended by itself"
        killed += 1
        pid, pipe = _fork(partial(look_at, url, id, f"{label}n", directory))
        _, status = os.waitpid(pid, 0)
        os.close(pipe)
        if status:
            whole = f"round {number} found damage, see above"
            break
    messages = sum(len(_lines(path)) for path in directory.glob("*.written"))
    ran = sum(len(_lines(path)) for path in directory.glob("*.ran"))
    print(f"{killed} killed, {messages} messages, {ran} tool calls, {whole}")
    return 0 if whole == WHOLE else 1


if __name__ == "__main__":
    given = sys.argv
    sys.exit(main(given[1], int(given[2]), int(given[3]), Path(given[4]), *map(float, given[5:])))
