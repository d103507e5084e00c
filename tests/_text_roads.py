"""The roads on which a text reaches a reader, the store, the traces or the log, one chat for each.

Each chat carries a secret on one road, once with `redact` and once with a guardrail at the output.
`page()` writes the table in docs/security.md from what was found. A road on which the secret gets
through is listed with its reason; `tests/ready/test_text_roads.py` fails for one without.
"""

from __future__ import annotations

import asyncio
import logging
import re
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from hookline import (
    Agent,
    Approve,
    Ask,
    Continue,
    Conversation,
    Deny,
    MessageChanges,
    ModelResponse,
    Run,
    Scope,
    Stop,
    ToolCall,
    ToolResult,
)
from hookline.errors import ChatAbortedError, ModelError
from hookline.hooks import guardrail, redact
from hookline.models import TextChunk
from hookline.testing import ScriptedModel, Turn, call, collect, spans

SECRET = "sk-s3cr3t123"
PAGE = Path(__file__).parent.parent / "docs" / "security.md"
BEGIN, END = "<!-- text roads: scripts/text-matrix -->", "<!-- end of text roads -->"
LATE = -20_000  # a priority after that of `redact`

Guards: TypeAlias = Any
Play: TypeAlias = Callable[[Guards], Awaitable["Trace"]]


class Trace(NamedTuple):
    """What is left of a chat."""

    events: list[Any]
    conversation: Conversation
    response: Any = None


async def chat(agent: Agent[Any], *, message: str = "Hi.", **options: Any) -> Trace:
    conversation = Conversation()
    stream = agent.chat_stream(message, conversation=conversation, **options)
    events: list[Any] = []
    try:
        async for event in stream:
            events.append(event)
    except (ValueError, ModelError, ChatAbortedError):
        return Trace(events, conversation)
    return Trace(events, conversation, stream.response)


def agent_of(guards: Guards, *turns: Any, **options: Any) -> Agent[Any]:
    return Agent(ScriptedModel(*(turns or ("Done.",)), chunk=4), hooks=guards, **options)


def hooked(point: Any, hook: Any, *turns: Any, priority: int = 0, **options: Any) -> Play:
    """A chat with this hook."""

    async def play(guards: Guards) -> Trace:
        agent = agent_of(guards, *turns, **options)
        agent.add_hook(point, hook, priority=priority)
        return await chat(agent)

    return play


def said(*turns: Any, message: str = "Hi.", chat_options: Any = None, **options: Any) -> Play:
    """A chat in which the model, the user or a tool says it."""

    async def play(guards: Guards) -> Trace:
        agent = agent_of(guards, *turns, **options)
        return await chat(agent, message=message, **(chat_options or {}))

    return play


# ── tools ───────────────────────────────────────────────────────────────────────────────────


async def tells() -> str:
    """Return the secret."""
    return f"it is {SECRET}"


async def fails() -> str:
    """Raise the secret."""
    raise ValueError(SECRET)


async def reports(run: Run[Any]) -> str:
    """Report the secret."""
    await run.status("progress", {"text": SECRET})
    return "done"


async def asks(run: Run[Any]) -> str:
    """Ask for the secret."""
    await run.ask(f"Is it {SECRET}?")
    return "done"


async def takes(text: str = "") -> str:
    """Take a text."""
    return "done"


# ── roads with a scene of their own ─────────────────────────────────────────────────────────


async def sub_agent(guards: Guards) -> Trace:
    kid = Agent[Any](ScriptedModel(f"It is {SECRET}."), name="kid")
    return await chat(agent_of(guards, call("kid", input="help"), "Done.", tools=[kid.as_tool()]))


def _handoff(first: str, last: str, guards: Guards, *, at_target: bool) -> Agent[Any]:
    turn = Turn(text=first, tool_calls=[call("transfer_to_other")])
    triage = Agent[Any](ScriptedModel(turn), name="triage", hooks=[] if at_target else guards)
    other = Agent[Any](ScriptedModel(last), name="other", hooks=guards if at_target else [])
    triage.handoffs(other)
    return triage


async def target_speaks(guards: Guards) -> Trace:
    return await chat(_handoff("Wait.", f"It is {SECRET}.", guards, at_target=False))


async def first_speaks(guards: Guards) -> Trace:
    return await chat(_handoff(f"It is {SECRET}.", "Done.", guards, at_target=True))


async def approved(guards: Guards) -> Trace:
    agent = agent_of(guards, call("takes", text="a"), "Done.", tools=[takes])
    agent.add_hook("preToolCall", lambda ctx: Ask("Sure?"))
    trace = await chat(agent)
    answers = {trace.response.pending[0].id: Approve(arguments={"text": SECRET})}
    stream = agent.resume_stream(trace.conversation, answers)
    return Trace(await collect(stream), trace.conversation, stream.response)


async def updated(guards: Guards) -> Trace:
    agent = agent_of(guards)
    trace = await chat(agent)
    id = trace.conversation.messages[0].id
    await agent.update_message(trace.conversation, id, MessageChanges(text=SECRET))
    return trace


async def rewritten(guards: Guards) -> Trace:
    """A rewriter of one's own at onDelta alone."""
    agent = agent_of([], call("tells"), "Done.", tools=[tells])
    agent.add_hook("onDelta", rewrite)
    return await chat(agent)


def rewrite(ctx: Any) -> Any:
    delta = ctx.delta
    return TextChunk(delta.text.replace(SECRET, "")) if isinstance(delta, TextChunk) else None


def raise_it(ctx: Any) -> None:
    raise ValueError(SECRET)


def keep_it(ctx: Any) -> None:
    ctx.run.state["note"] = ctx.run.meta["note"] = SECRET


def abort_with_it(ctx: Any) -> None:
    ctx.run.abort(SECRET)


def abort_late(ctx: Any) -> None:
    if "more" in ctx.delta.text:
        ctx.run.abort("enough")


async def logged(guards: Guards) -> Trace:
    agent = agent_of(guards)
    agent.add_hook("onMessage", raise_it, on_error="log")
    return await chat(agent)


# ── the table ───────────────────────────────────────────────────────────────────────────────

YOURS = "your code writes it, and no hook can change it"
ERROR = "the caller gets the exception itself, unchanged"
NO_ANSWER = "a guardrail at the output checks only the answers of the model"
AFTER = "a hook with a priority below -10,000 runs after the guard"
SPANS = "traces record requests as they are sent; pass `redact=` to `Telemetry`"
FIRST = "the hooks of the target do not run yet; put the guard on the agent that you call"
TRACED = "traces record the answer that was stopped; pass `redact=` to `Telemetry`"


class Road(NamedTuple):
    """A road, and the reasons why it is not covered; None: it must be."""

    play: Play
    redact: str | None = None
    guardrail: str | None = NO_ANSWER


DIED = ModelError(f"refused: {SECRET}")
THROUGH = f"It is {SECRET}."
ROADS: dict[str, Road] = {
    "answer of the model": Road(said(THROUGH), guardrail=TRACED),
    'answer of the model, with `release="response"`': Road(
        said(THROUGH, chat_options={"release": "response"}), guardrail=TRACED
    ),
    "answer as `output=`": Road(
        said(f'{{"value": ["{SECRET}"]}}', output=list[str]), guardrail=TRACED
    ),
    "text before a call": Road(
        said(Turn(text=THROUGH, tool_calls=[call("takes")]), "Done.", tools=[takes]),
        guardrail=TRACED,
    ),
    "reasoning": Road(
        said(Turn(reasoning=THROUGH, text="Done.")),
        guardrail="the check runs for answers with text, and here reads only the text; it can read "
        "`response.reasoning`",
    ),
    "partial text of an aborted chat": Road(
        hooked("onDelta", abort_late, f"{THROUGH} And more. And more.", priority=LATE),
        guardrail=None,
    ),
    "the user's message": Road(said(message=THROUGH)),
    "arguments of a call": Road(
        said(call("takes", text=SECRET), "Done.", tools=[takes]),
    ),
    "id of a call, name of a tool that does not exist": Road(
        said(Turn(tool_calls=[ToolCall(id=SECRET, name=SECRET)]), "Done."),
    ),
    "result of a tool": Road(said(call("tells"), "Done.", tools=[tells])),
    "exception of a tool": Road(said(call("fails"), "Done.", tools=[fails])),
    "answer of a hook in place of a tool": Road(
        hooked("preToolCall", lambda ctx: ToolResult(SECRET), call("takes"), "Ok.", tools=[takes]),
    ),
    "reason of a `Deny`": Road(
        hooked("preToolCall", lambda ctx: Deny(SECRET), call("takes"), "Ok.", tools=[takes]),
    ),
    "prompt of an `Ask`": Road(
        hooked("preToolCall", lambda ctx: Ask(SECRET), call("takes"), "Ok.", tools=[takes]),
        redact=YOURS,
    ),
    "prompt of `run.ask()`": Road(
        said(call("asks"), "Done.", tools=[asks], approver=lambda request, run: Approve()),
        redact=YOURS,
    ),
    "arguments of an `Approve`": Road(
        approved, redact="what runs is exactly what was approved; traces show it as it ran"
    ),
    "data of a status": Road(said(call("reports"), "Done.", tools=[reports]), redact=YOURS),
    "text and reason of a `Stop`": Road(
        hooked("preRequest", lambda ctx: Stop(SECRET, text=THROUGH)),
    ),
    "input of a `Continue`": Road(
        hooked("preStop", lambda ctx: Continue(THROUGH), "One.", "Two.", "Three.", "Four.")
    ),
    "answer of a hook in place of the model": Road(
        hooked("preRequest", lambda ctx: ModelResponse.of(THROUGH)), guardrail=None
    ),
    "answer that a later hook changes": Road(
        hooked("onResponse", lambda ctx: ctx.response.replace(text=THROUGH), priority=LATE),
        guardrail=AFTER,
    ),
    "message that a later hook changes": Road(
        hooked("preMessage", lambda ctx: ctx.message.replace(text=THROUGH), priority=LATE),
        redact=AFTER,
        guardrail=AFTER,
    ),
    "changes of a stored message": Road(updated),
    "answer of a sub-agent": Road(sub_agent, guardrail=TRACED),
    "answer after a handoff, guard on the called agent": Road(target_speaks, guardrail=TRACED),
    "answer before a handoff, guard on the target": Road(first_speaks, FIRST, FIRST),
    "reason of an abort": Road(hooked("preRequest", abort_with_it), redact=YOURS),
    "error of the model": Road(said(Turn(fail=DIED)), redact=ERROR),
    "exception of a hook": Road(hooked("preRequest", raise_it), redact=ERROR),
    'exception of a hook with `on_error="log"`': Road(
        logged, redact="only the level DEBUG has the texts of exceptions"
    ),
    "system text": Road(said(system=THROUGH), redact=SPANS),
    "context of a scope": Road(
        said(scopes=[Scope("facts", context=lambda: THROUGH)]), redact=SPANS
    ),
    "values that a hook keeps in `run.state` or `run.meta`": Road(
        hooked("onChatStart", keep_it), redact=YOURS
    ),
}


@contextmanager
def log_of_hookline() -> Iterator[list[str]]:
    lines: list[str] = []
    handler = logging.Handler()
    form = logging.Formatter()
    handler.emit = lambda record: lines.append(form.format(record))  # type: ignore[method-assign]
    logger = logging.getLogger("hookline")
    before = logger.propagate, logger.level
    logger.addHandler(handler)
    logger.propagate = False
    logger.setLevel(logging.DEBUG)
    try:
        yield lines
    finally:
        logger.removeHandler(handler)
        logger.propagate = before[0]
        logger.setLevel(before[1])


def _check(response: ModelResponse, run: Run[Any]) -> str | None:
    return "Stopped." if SECRET in response.text else None


GUARDS: dict[str, Callable[[], Guards]] = {
    "nothing": list,
    "redact": lambda: redact(values=[SECRET]),
    "guardrail": lambda: guardrail(_check, on="output"),
}


async def places(road: Road, guard: str) -> list[str]:
    """Where the secret is found after the chat: nowhere, if the road is covered."""
    guards = GUARDS[guard]()
    with log_of_hookline() as lines, spans(capture="span_and_event") as traced:
        trace = await road.play(guards)
        kinds = [type(event).__name__ for event in trace.events if SECRET in repr(event)]
        shown = ", ".join(f"`{kind}`" for kind in dict.fromkeys(kinds))
        found = [f"stream ({shown})"] if kinds else []
        if SECRET in trace.conversation.to_json().decode():
            found.append("store")
        if any(SECRET in repr(span) for span in traced.all):
            found.append("traces")
        if any(SECRET in line for line in lines):
            found.append("log at DEBUG")
    return found


async def rows() -> list[str]:
    """The lines of the table: where each guard lets a text through, and why."""
    lines = []
    for name, road in ROADS.items():
        cells = []
        for guard, why in (("redact", road.redact), ("guardrail", road.guardrail)):
            found = [] if why is NO_ANSWER else await places(road, guard)
            cells.append("–" if why is NO_ANSWER else f"no: {', '.join(found)}" if found else "yes")
        whys = dict.fromkeys([road.redact, road.guardrail])
        reasons = [why for why in whys if why not in (None, NO_ANSWER)]
        lines.append(f"| {name} | {' | '.join(cells)} | {'; '.join(map(str, reasons))} |")
    return lines


def page() -> str:
    """docs/security.md with the table of today."""
    table = "\n".join(
        [
            "| text | `redact` covers it | `guardrail(on='output')` covers it | why not |",
            "|---|---|---|---|",
            *asyncio.run(rows()),
        ]
    )
    text = PAGE.read_text(encoding="utf-8")
    pattern = re.compile(f"{re.escape(BEGIN)}.*?{re.escape(END)}", re.DOTALL)
    return pattern.sub(lambda match: f"{BEGIN}\n\n{table}\n\n{END}", text)


def main() -> int:
    text = page()
    if "--check" in sys.argv:
        return int(text != PAGE.read_text(encoding="utf-8"))
    PAGE.write_text(text, encoding="utf-8")
    print(text[text.index(BEGIN) : text.index(END)])
    return 0
