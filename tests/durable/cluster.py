"""A chat that loses its worker in the middle of a tool, and whose stream goes on at the other.

`scripts/dev/cluster` starts Restate, Redis, two durable workers and a web application on this
machine. It asks for an answer as a browser does, kills the worker that runs the tool, and shows the
one stream that the browser reads: its other worker goes on with it, and nothing is told twice.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from typing import Any

import httpx
import redis
from tests.durable._engines import ROOT, Missing, Restate, free_port
from tests.durable.kills import until_taken
from tests.web._server import HEADERS, TOKEN, serve

from hookline import Agent, Run, tool
from hookline.durable.restate import Chats, chats
from hookline.events import (
    ChatDone,
    ResponseReset,
    Status,
    TextDelta,
    ToolCallFinished,
    ToolCallStarted,
    read_event,
)
from hookline.runtimes import Durable
from hookline.testing import ScriptedModel, call
from hookline.web import app
from hookline.web.relay import RedisRelay

Workers = dict[str, subprocess.Popen[bytes]]
NAME = os.environ.get("CLUSTER_WORKER", "")
SHOWN = (TextDelta, ResponseReset, ToolCallStarted, Status, ToolCallFinished, ChatDone)


@tool(idempotent=True)
async def gather(topic: str, run: Run[Any]) -> str:
    """Gather what is known of a topic."""
    for part in range(1, 6):
        await run.status("gathered", f"{part} of 5 by {NAME}")
        await asyncio.sleep(0.4)
    return f"all about {topic}"


class Model:
    """Answers by how many answers the history has, word by word."""

    name = "scripted"

    async def stream(self, request: Any) -> Any:
        if any(message.role == "assistant" for message in request.messages):
            turn = ScriptedModel("The tide comes twice a day, and the report is done.")
        else:
            turn = ScriptedModel(["I shall look. ", call("gather", topic="tides")])
        async for delta in turn.stream(request):
            await asyncio.sleep(0.1)
            yield delta


def agent(store: str) -> Agent[Any]:
    return Agent(Model(), tools=[gather], runtime=Durable(), store=store)


# ── a worker ────────────────────────────────────────────────────────────────────────────────


async def work(ingress: str, admin: str, bind: str, redis: str, store: str) -> None:
    async with agent(store) as one:
        relay = RedisRelay(redis)
        await chats(one, ingress, relay=relay, admin=admin, bind=bind, idle=2.0).run()


# ── what is shown ───────────────────────────────────────────────────────────────────────────


def shown(event: Any) -> str:
    match event:
        case TextDelta():
            return f"says    {event.text!r}"
        case ResponseReset():
            return "forget the text of this step"
        case ToolCallStarted():
            return f"tool    {event.call.name} begins"
        case Status():
            return f"status  {event.data}"
        case ToolCallFinished():
            return f"tool    {event.name}: {event.outcome}"
        case _:
            return "done"


async def follow(http: httpx.AsyncClient, workers: Workers) -> None:
    """Ask, show the stream to its end, and kill the worker whose tool has come to its middle."""
    asked = {"conversation": "tides", "message": "When is the tide?"}
    killed = False
    async with http.stream("POST", "/native", json=asked) as answer:
        async for line in answer.aiter_lines():
            if not line.startswith("data: "):
                continue
            event = read_event(line.removeprefix("data: "))
            if isinstance(event, SHOWN):
                print(shown(event), flush=True)
            if not killed and isinstance(event, Status) and event.data.startswith("3 of 5"):
                killed = True
                name = event.data.rpartition(" ")[2]
                workers[name].send_signal(signal.SIGKILL)
                print(f"--      kill -9 {name}, in the middle of its tool", flush=True)


def begin(restate: Restate, more: list[str], stack: ExitStack) -> Workers:
    """Two workers in processes of their own, behind one address."""
    workers: Workers = {}
    bind = f"127.0.0.1:{free_port()}"
    for name in ("worker-1", "worker-2"):
        command = [sys.executable, "-P", "-m", "tests.durable.cluster"]
        arguments = [restate.url, restate.admin_url, bind, *more]
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "CLUSTER_WORKER": name}
        workers[name] = subprocess.Popen(
            [*command, *arguments], cwd=ROOT, env=environment, stderr=subprocess.DEVNULL
        )
        stack.callback(workers[name].kill)
    return workers


async def show(restate: Restate, redis: str, store: str, stack: ExitStack) -> None:
    workers = begin(restate, [redis, store], stack)
    async with agent(store) as one, Chats(restate.url) as client:
        await until_taken(client, "up", None)
        site = app(
            one,
            token=TOKEN,
            on_disconnect="detach",
            relay=RedisRelay(redis),
            durable=client,
        )
        async with (
            serve(site) as url,
            httpx.AsyncClient(base_url=url, headers=HEADERS, timeout=60) as http,
        ):
            await follow(http, workers)
            kept = (await http.get("/native/tides/messages")).json()["messages"]
    print(f"\nthe last message, from the store: {kept[-1]['parts'][0]['text']!r}")


def until_up(url: str) -> None:
    with redis.Redis.from_url(url) as client:
        while True:
            try:
                client.ping()
                return
            except redis.RedisError:
                time.sleep(0.05)


def main() -> int:
    with ExitStack() as stack:
        directory = stack.enter_context(tempfile.TemporaryDirectory(ignore_cleanup_errors=True))
        program = shutil.which("redis-server")
        if program is None:
            print("cluster: there is no redis-server (Debian: redis-server)", file=sys.stderr)
            return 1
        try:
            restate = Restate(directory)
        except Missing as exc:
            print(f"cluster: there is no Restate: {exc}", file=sys.stderr)
            return 1
        stack.callback(restate.kill)
        port = str(free_port())
        server = subprocess.Popen(
            [program, "--port", port, "--bind", "127.0.0.1", "--save", ""],
            stdout=subprocess.DEVNULL,
        )
        stack.callback(server.kill)
        url = f"redis://127.0.0.1:{port}/0"
        until_up(url)
        asyncio.run(show(restate, url, f"sqlite:///{directory}/chats.db", stack))
    return 0


if __name__ == "__main__":
    if sys.argv[1:]:
        asyncio.run(work(*sys.argv[1:]))
    else:
        sys.exit(main())
