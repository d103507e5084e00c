"""Approvals inside sub-agents, three levels deep, across killed processes.

`scripts/dev/nested-approvals --tries 200` counts the tries that went right on each place: stores in
SQLite and PostgreSQL, and durable chats on SQLite, PostgreSQL and Restate. A try runs a chat whose
two branches of sub-agents ask at the same time, kills its process while they wait, and answers in
other processes: approved, denied or edited, together or one now and one later. It is right if each
approved call and each call beside it ran exactly once, and nothing else.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Coroutine
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests._postgres import database_of_our_own
from tests.durable._engines import Engine, Missing, places

from hookline import Agent, Approve, AssistantMessage, Deny, ToolMessage, UserMessage, check_history
from hookline.errors import ConversationBusyError
from hookline.hooks import approve
from hookline.runtimes import Durable
from hookline.stores import SQLStore
from hookline.testing import ScriptedModel, call

STORES = ("sqlite store", "postgres store")
ENGINES = ("sqlite", "postgres", "restate")
BRANCHES = ("left", "right")
DEPTH = 3
EDITED = 1


class Turns:
    """A model that goes on where the history is, in any process."""

    def __init__(self, calls: list[Any], last: str) -> None:
        self._calls = calls
        self._last = last

    async def stream(self, request: Any) -> Any:
        asked = False
        for message in request.messages:
            asked = (asked or isinstance(message, AssistantMessage)) and not isinstance(
                message, UserMessage
            )
        turn: Any = self._last if asked else self._calls
        async for chunk in ScriptedModel(turn).stream(request):
            yield chunk


def agent_of(file: Path, **more: Any) -> Agent[Any]:
    """The root agent of one process; its tools say in the file that they ran."""

    def note(line: str) -> str:
        fd = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(fd, f"{line}\n".encode())
        os.close(fd)
        return line

    async def pay(to: str, euros: int) -> str:
        """Pay."""
        return note(f"pay {to} {euros}")

    async def look(at: str) -> str:
        """Look."""
        return note(f"look {at}")

    tops = []
    for branch in BRANCHES:
        below: Any = pay
        down: Any = call("pay", to=branch, euros=80, call_id="pay")
        for level in range(DEPTH, 0, -1):
            name = f"{branch}{level}"
            agent = Agent(
                Turns([down, call("look", at=name, call_id="look")], f"{name} done"),
                name=name,
                tools=[look, below],
                hooks=[approve("pay")] if level == DEPTH else [],
            )
            below = agent.as_tool()
            down = call(name, input="go", call_id=f"to{level}")
        tops.append((below, down))
    calls = [down for _, down in tops]
    model = Turns([*calls, call("look", at="root", call_id="look")], "all done")
    return Agent(model, name="root", tools=[look, *[top for top, _ in tops]], **more)


def process(main: Callable[[], Coroutine[Any, Any, None]]) -> int:
    """Run this in a process of its own; returns its id."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            asyncio.run(main())
            code = 0
        except BaseException as exc:
            print(repr(exc)[:2000], file=sys.stderr)
        finally:
            os._exit(code)
    return pid


def end(pid: int, *, kill: bool) -> int:
    if kill:
        os.kill(pid, signal.SIGKILL)
    return os.waitpid(pid, 0)[1]


def lines(file: Path) -> Counter[str]:
    return Counter(file.read_text().splitlines() if file.exists() else [])


def expected(answers: dict[str, Any]) -> Counter[str]:
    """What runs exactly once."""
    looks = ["look root", *[f"look {b}{n + 1}" for b in BRANCHES for n in range(DEPTH)]]
    pays = []
    for branch, answer in answers.items():
        if isinstance(answer, Approve):
            pays.append(f"pay {branch} {EDITED if answer.arguments else 80}")
    return Counter([*looks, *pays])


def answer(rng: random.Random, branch: str) -> Any:
    return rng.choice([Approve(), Deny("no"), Approve(arguments={"to": branch, "euros": EDITED})])


# ── stores ──────────────────────────────────────────────────────────────────────────────────


async def asks(url: str, talk: str, file: Path) -> None:
    """The first process: it dies by itself while the calls wait."""
    async with SQLStore(url) as store:
        response = await agent_of(file, store=store).chat("go", conversation=talk)
        assert response.stop_reason == "approval", response.stop_reason
        os.kill(os.getpid(), signal.SIGKILL)


async def resumes(url: str, talk: str, file: Path, answers: dict[str, Any], dies: bool) -> None:
    """A later process: it answers for these branches."""
    async with SQLStore(url) as store:
        agent = agent_of(file, store=store)
        requests = {request.call.arguments["to"]: request for request in await store.pending(talk)}
        decisions = {requests[branch].id: decision for branch, decision in answers.items()}
        while True:
            try:
                response = await agent.resume(talk, decisions)
                break
            except ConversationBusyError:
                await asyncio.sleep(0.05)
        if dies:
            assert response.stop_reason == "approval"
            os.kill(os.getpid(), signal.SIGKILL)
        assert response.text == "all done", response.text
        stored = await store.load(talk)
        assert stored is not None
        check_history(stored.messages)
        texts = [m.text for m in stored.messages if isinstance(m, ToolMessage)]
        assert sorted(texts) == ["left1 done", "look root", "right1 done"], texts


def try_store(url: str, directory: Path, number: int, rng: random.Random) -> str | None:
    """One try; returns what is wrong."""
    talk, file = f"talk-{os.getpid()}-{number}", directory / f"{number}.ran"
    answers = {branch: answer(rng, branch) for branch in BRANCHES}
    end(process(partial(asks, url, talk, file)), kill=False)
    groups = [answers]
    if rng.random() < 0.6:
        first = rng.choice(BRANCHES)
        groups = [{first: answers[first]}, {b: a for b, a in answers.items() if b != first}]
    for place, group in enumerate(groups):
        dies = place < len(groups) - 1
        status = end(process(partial(resumes, url, talk, file, group, dies)), kill=False)
        if status != (signal.SIGKILL if dies else 0):
            return f"process {place} ended with {status}"
    ran = lines(file)
    return None if ran == expected(answers) else f"ran {dict(ran)}, answers {answers}"


# ── durable engines ─────────────────────────────────────────────────────────────────────────


async def works(engine: Engine, file: Path) -> None:
    async with engine.worker(agent_of(file, runtime=Durable())):
        await asyncio.sleep(600)


async def _questions(client: Any, id: str, count: int) -> dict[str, Any]:
    for _ in range(1200):
        requests = await client.pending(id)
        if len(requests) == count:
            return {request.call.arguments["to"]: request for request in requests}
        await asyncio.sleep(0.05)
    raise TimeoutError(f"{count} questions")


async def _start(engine: Engine, id: str) -> None:
    async with engine.client() as client:
        for _ in range(600):
            try:
                await client.start("go", chat_id=id)
                break
            except Exception:
                await asyncio.sleep(0.1)
        await _questions(client, id, 2)


async def _answers(engine: Engine, id: str, answers: dict[str, Any], count: int) -> None:
    async with engine.client() as client:
        requests = await _questions(client, id, count)
        decisions = {requests[branch].id: decision for branch, decision in answers.items()}
        await client.answer(id, decisions)


async def _result(engine: Engine, id: str) -> str:
    async with engine.client() as client:
        async with asyncio.timeout(60):
            return str((await client.result(id)).text)


def try_engine(engine: Engine, directory: Path, number: int, rng: random.Random) -> str | None:
    """One try; returns what is wrong."""
    id, file = f"nested-{os.getpid()}-{number}", directory / f"{number}.ran"
    answers = {branch: answer(rng, branch) for branch in BRANCHES}
    worker = process(partial(works, engine, file))
    try:
        asyncio.run(_start(engine, id))
        time.sleep(0.1)
    finally:
        end(worker, kill=True)  # both branches wait: nothing runs
    first = rng.choice(BRANCHES) if rng.random() < 0.6 else None
    # Restate takes answers only through a worker.
    early = engine.name != "restate" and first is None
    if early:
        asyncio.run(_answers(engine, id, answers, 2))
    worker = process(partial(works, engine, file))
    try:
        if first is not None:
            asyncio.run(_answers(engine, id, {first: answers[first]}, 2))
            rest = {branch: value for branch, value in answers.items() if branch != first}
            asyncio.run(_answers(engine, id, rest, 1))
        elif not early:
            asyncio.run(_answers(engine, id, answers, 2))
        text = asyncio.run(_result(engine, id))
    finally:
        end(worker, kill=True)
    ran = lines(file)
    right = text == "all done" and ran == expected(answers)
    return None if right else f"{text!r}: ran {dict(ran)}, answers {answers}"


def try_all(place: str, where: Any, tries: int, seed: int, directory: Path) -> list[str]:
    """What is wrong with these tries on one place."""
    rng = random.Random(f"{seed}-{place}")
    wrong: list[str] = []
    engine = None if place in STORES else Engine(place, where)  # one: Restate knows its address
    for number in range(tries):
        if engine is None:
            problem = try_store(where, directory, number, rng)
        else:
            try:
                problem = try_engine(engine, directory, number, rng)
            except Exception as exc:
                problem = repr(exc)
        if problem is not None:
            wrong.append(f"{place}, try {number}: {problem}")
    return wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("places", nargs="*", help=f"of {', '.join((*STORES, *ENGINES))}")
    parser.add_argument("--tries", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    chosen = options.places or [*STORES, *ENGINES]
    total = 0
    with ExitStack() as stack:
        engines = [place for place in chosen if place in ENGINES]
        found: dict[str, Any] = stack.enter_context(places(tuple(engines)))
        for place in chosen:
            directory = Path(stack.enter_context(TemporaryDirectory()))
            where = found.get(place)
            if place == "sqlite store":
                where = f"sqlite:///{directory}/chats.db"
            elif place == "postgres store":
                where = stack.enter_context(database_of_our_own("nested"))
            if isinstance(where, Missing | OSError):
                wrong = [f"{place}: {where}"]
            else:
                wrong = try_all(place, where, options.tries, options.seed, directory)
            print(f"{place}: {options.tries - len(wrong)} of {options.tries} right", flush=True)
            for line in wrong[:5]:
                print(f"  {line}")
            total += len(wrong)
    return 1 if total else 0


if __name__ == "__main__":
    sys.exit(main())
