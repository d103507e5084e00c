"""A release assistant: its hooks on the left as they fire, and the user's view on the right.

`scripts/demo` runs it. The model is scripted: no network is needed.
"""

import asyncio
import os
import signal
import sys
from collections import Counter
from time import perf_counter

from hookline import Agent, Approve, Ask, ModelRequest, Proceed, ToolCall, ToolFailure, ToolResult
from hookline.events import ApprovalRequested, ChatEvent, TextDelta, ToolCallFinished
from hookline.points import AroundToolCall, OnHook, OnToolCallResult, PreRequest, PreToolCall
from hookline.testing import ScriptedModel, call

TERMINAL = sys.stdout.isatty()
PACE = 0.02 if TERMINAL else 0.0  # seconds a word: only a person wants to see them come
CODES = {"changed": 36, "asked": 33, "blocked": 31, "denied": 31, "error": 31, "good": 32, "ok": 2}
if not TERMINAL or os.environ.get("NO_COLOR"):
    CODES.clear()
QUESTION = "Release 2.4, please."
seen: Counter[str] = Counter()


def assistant() -> Agent:
    async def run_tests() -> str:
        """Run the whole test suite."""
        await asyncio.sleep(PACE * 18)
        return "812 passed"

    async def error_rate() -> float:
        """Ask the monitoring how many requests fail."""
        await asyncio.sleep(PACE * 6)
        raise ConnectionError("the monitoring does not answer")

    async def deploy(version: str) -> str:
        """Put a version into production."""
        await asyncio.sleep(PACE * 12)
        return f"{version} runs on 3 hosts"

    async def approver(*_: object) -> Approve:
        await asyncio.sleep(PACE * 20)  # somebody reads the question
        screen.word(" ! approved", "good")
        return Approve()

    def say(text: str, *calls: ToolCall) -> list[str | ToolCall]:
        return [*(f" {word}" for word in text.split()), *calls]

    release = call("deploy", version="2.4")
    first = (call("run_tests"), call("error_rate"), release)
    model = ScriptedModel(
        say("I run the tests, ask for the error rate, and deploy.", *first),
        say("That was too early. Now the tests have passed, so I deploy again.", release),
        say("Version 2.4 runs on 3 hosts. The monitoring is down: please have a look at it."),
        delay=PACE,
    )
    return Agent(model, tools=[run_tests, error_rate, deploy], approver=approver)


def add_hooks(agent: Agent) -> None:
    @agent.hook("preRequest")
    def be_brief(ctx: PreRequest) -> ModelRequest:
        return ctx.request.replace(system="You release software. Be brief.")

    def frozen(ctx: PreToolCall) -> ToolFailure:
        return ToolFailure("not before the tests have passed", type="Frozen")

    unfreeze = agent.add_hook("preToolCall", frozen, tools=["deploy"], priority=200)

    @agent.hook("preToolCall", tools=["deploy"])
    def ask_first(ctx: PreToolCall) -> Ask:
        return Ask(f"Deploy {ctx.call.arguments.get('version')}?")

    @agent.hook("aroundToolCall")
    async def timed(
        ctx: AroundToolCall, proceed: Proceed[ToolCall, ToolResult | ToolFailure]
    ) -> ToolResult | ToolFailure:
        start = perf_counter()
        result = await proceed()
        seen["ms"] += round(1000 * (perf_counter() - start))
        return result

    @agent.hook("onToolCallResult", tools=["run_tests"])
    def lift_freeze(ctx: OnToolCallResult) -> None:
        unfreeze()  # the disposer takes away that one hook

    for point in ("onChatStart", "onToolCallError", "onApproval", "onChatDone"):
        agent.add_hook(point, lambda ctx: None, name="audit")

    @agent.hook("onHook")
    async def show(ctx: OnHook) -> None:
        await asyncio.sleep(0)  # the stream's reader is a task of its own: let it catch up
        seen["hooks"] += 1
        screen.row(ctx.point, ctx.hook.rpartition(".")[2], ctx.outcome)


class Screen:
    """Two columns; the right one is written word by word."""

    written = 0  # of the open line of the right column

    def paint(self, text: str, colour: str) -> str:
        return f"\x1b[{CODES[colour]}m{text}\x1b[0m" if colour in CODES else text

    def row(self, point: str, hook: str, outcome: str) -> None:
        self.end()
        print(f"{point:<17}{hook:<13}{self.paint(f'{outcome:<8}', outcome)}│", flush=TERMINAL)

    def word(self, text: str, colour: str = "") -> None:
        if self.written + len(text) > 40:
            self.end()
        start = "" if self.written else " " * 38 + "│"
        print(start + self.paint(text, colour), end="", flush=TERMINAL)
        self.written += len(text)

    def end(self) -> None:
        if self.written:
            print(flush=TERMINAL)
        self.written = 0

    def event(self, event: ChatEvent) -> None:
        seen["events"] += 1
        if isinstance(event, TextDelta):
            self.word(event.text)
        elif isinstance(event, ApprovalRequested):
            self.end()
            self.word(f" ? {event.request.prompts[0]}", "asked")
        elif isinstance(event, ToolCallFinished):
            seen[event.outcome] += 1
            self.end()
            self.word(f" > {event.name}:")
            self.word(f" {event.outcome}", "good" if event.outcome == "ok" else event.outcome)
            said = event.result
            self.word(f" ({said.value if isinstance(said, ToolResult) else said.type})")


screen = Screen()


async def main() -> None:
    agent = assistant()
    add_hooks(agent)
    print(f"{'hook point':<17}{'hook':<13}decided │ stream\n{'─' * 38}┼{'─' * 41}")
    screen.word(f" you: {QUESTION}")
    start = perf_counter()
    async with agent.chat_stream(QUESTION) as stream:
        async for event in stream:
            screen.event(event)
    screen.end()
    print(
        f"\n{stream.response.steps} steps, {seen['ok']} tool calls done, {seen['denied']} denied, "
        f"{seen['error']} failed, {seen['hooks']} hooks fired, {seen['events']} events\n"
        f"{1000 * (perf_counter() - start):.0f} ms, in which tools worked for {seen['ms']} ms"
    )


for name in ("SIGINT", "SIGPIPE"):  # Ctrl-C and `| head` end it without a traceback
    if hasattr(signal, name):
        signal.signal(getattr(signal, name), signal.SIG_DFL)
asyncio.run(main())
