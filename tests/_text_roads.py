"""The roads on which a text reaches a reader, a store, traces, logs or files, one chat for each.

Each chat carries a secret on one road, once with `redact` and once with a guardrail at the output.
`page()` writes the table in docs/security.md from what was found. A road on which the secret gets
through is listed with its reason; `tests/ready/test_text_roads.py` fails for one without.
"""

from __future__ import annotations

import asyncio
import logging
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from tests import _text_doors as doors
from tests._text_chats import (
    LATE,
    SECRET,
    THROUGH,
    Guards,
    Play,
    Trace,
    agent_of,
    chat,
    hooked,
    said,
    takes,
    tells,
)

from hookline import (
    Agent,
    Approve,
    Ask,
    Continue,
    Conversation,
    Deny,
    File,
    MessageChanges,
    ModelResponse,
    Run,
    Scope,
    Source,
    Stop,
    Tool,
    ToolCall,
    ToolResult,
    UserMessage,
)
from hookline.errors import ModelError
from hookline.hooks import guardrail, redact, summarize
from hookline.points import Guide
from hookline.storage import Rule
from hookline.testing import ScriptedModel, Turn, call, collect, spans

PAGE = Path(__file__).parent.parent / "docs" / "security.md"
BEGIN, END = "<!-- text roads: scripts/dev/text-matrix -->", "<!-- end of text roads -->"

# ── tools ───────────────────────────────────────────────────────────────────────────────────


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


def answered(answer: Any, *, args: str = "a", **options: Any) -> Play:
    """A chat in which a person answers so."""

    async def play(guards: Guards) -> Trace:
        agent = agent_of(guards, call("takes", text=args), "Done.", tools=[takes])
        agent.add_hook("preToolCall", lambda ctx: Ask("Sure?"))
        trace = await chat(agent)
        stream = agent.resume_stream(trace.conversation, {trace.response.pending[0].id: answer})
        return Trace(await collect(stream), trace.conversation, stream.response)

    return play


async def kid_thinks(guards: Guards) -> Trace:
    kid = Agent[Any](ScriptedModel(Turn(reasoning=THROUGH, text="Fine.")), name="kid")
    return await chat(agent_of(guards, call("kid", input="help"), "Done.", tools=[kid.as_tool()]))


async def kid_is_told(guards: Guards) -> Trace:
    kid = Agent[Any](ScriptedModel("Fine."), name="kid")
    return await chat(agent_of(guards, call("kid", input=SECRET), "Done.", tools=[kid.as_tool()]))


async def kid_calls(guards: Guards) -> Trace:
    kid = Agent[Any](ScriptedModel(call("tells"), "Fine."), name="kid", tools=[tells])
    return await chat(agent_of(guards, call("kid", input="help"), "Done.", tools=[kid.as_tool()]))


def sent(when: Any, hook: Any = None, text: str = THROUGH) -> Play:
    """A message is sent while the chat runs."""

    async def play(guards: Guards) -> Trace:
        agent = agent_of(guards, call("takes"), "Done.", "Done.", tools=[takes])
        if hook is not None:
            agent.add_hook("preSteer", hook)
        talk = Conversation()
        stream = agent.chat_stream("Hi.", conversation=talk)
        async with stream:
            stream.send(text, when=when)
            events = [event async for event in stream]
        return Trace(events, talk, stream.response)

    return play


async def guided(guards: Guards) -> Trace:
    """The answer is withdrawn, and the model answers again."""
    agent = agent_of(guards, THROUGH, "Done.")
    once = iter([Guide("Again.")])
    agent.add_hook("onResponse", lambda ctx: next(once, None), priority=2 * LATE)
    return await chat(agent)


def guide_with_it(ctx: Any) -> Guide | None:
    return Guide(f"Not {SECRET}.") if ctx.iteration == 0 else None


async def from_the_client(guards: Guards) -> Trace:
    """A client-side tool, whose result comes with the resumed chat."""
    schema: dict[str, Any] = {"type": "object", "properties": {}}
    tool = Tool.from_schema("look", "Look.", schema, client=True)
    agent = agent_of(guards, call("look", call_id="a"), "Done.", tools=[tool])
    trace = await chat(agent)
    stream = agent.resume_stream(trace.conversation, {"a": ToolResult(SECRET)})
    return Trace(await collect(stream), trace.conversation, stream.response)


async def remembered(guards: Guards) -> Trace:
    """A rule for the arguments of a changed call."""
    answer = Approve(arguments={"text": SECRET}, remember=Rule("takes", scope="conversation"))
    return await answered(answer)(guards)


async def summarized(guards: Guards) -> Trace:
    """The model that writes a summary says it."""
    writer = ScriptedModel(THROUGH)
    hooks = [*summarize(lambda messages: len(messages) > 2, keep=1, by=writer), *guards]
    agent = agent_of(hooks, "One.", "Two.", "Three.")
    trace = await chat(agent)
    return await chat(agent, message="And now?", conversation=trace.conversation)


async def subscribed(guards: Guards) -> Trace:
    """Another task reads the events of the agent."""
    agent = agent_of(guards, THROUGH)
    async with agent.subscribe() as events:
        await agent.chat("Hi.", conversation=(talk := Conversation()))
        seen = [await anext(events) for _ in range(4)]
    return Trace(seen, talk)


async def older(guards: Guards) -> Trace:
    """The messages are older than the guard."""
    trace = await chat(agent_of([], THROUGH))
    return await chat(agent_of(guards), message="More.", conversation=trace.conversation)


def not_ok(value: Any) -> None:
    if value == "bad":
        raise ValueError(SECRET)


def refuses_it(value: str) -> None:
    if SECRET in value:
        raise ValueError("say it without a name")


async def data() -> dict[str, Any]:
    """Return data."""
    return {SECRET: [SECRET, 1]}


async def attached(guards: Guards) -> Trace:
    file = File(media_type="text/plain", data=b"x", name=SECRET)
    return await chat(agent_of(guards), message=UserMessage(parts=(file,)))


async def updated(guards: Guards) -> Trace:
    agent = agent_of(guards)
    trace = await chat(agent)
    id = trace.conversation.messages[0].id
    await agent.update_message(trace.conversation, id, MessageChanges(text=SECRET))
    return trace


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


async def guard_fails(guards: Guards) -> Trace:
    agent = agent_of(guards, call("takes"), "Done.", tools=[takes])
    agent.add_hook("preToolCall", raise_it, on_error="deny")
    return await chat(agent)


# ── the table ───────────────────────────────────────────────────────────────────────────────

DEBUG = "only the level DEBUG has the texts of exceptions; log at INFO"
YOURS = "your code writes it, and no hook can change it; leave the secret out there"
ERROR = "the caller gets the exception itself, unchanged; do not show its text"
NO_ANSWER = "a guardrail at the output checks only the answers of the model"
AFTER = "a hook with a priority below -10,000 runs after the guard; give it a higher one"
SPANS = "traces record requests as they are sent; pass `redact=` to `Telemetry`"
FIRST = "the hooks of the target do not run yet; put the guard on the agent that you call"
PROGRESS = "the server writes it, and a status passes no hook; do not show its `Status`"
ASKS = "the server writes it, and no hook can change it; use servers that you trust"
TEXT_ONLY = (
    "the check runs for answers with text, and here reads only the text; it can read "
    "`response.parts`"
)
OLDER = "the hook sees only what comes after it; change old messages with `agent.update_message`"
SUMMARY = "the summary is written in a chat of its own; give the agent `by=` the hooks too"
TAPE = "a cassette has the answers of the model as they come; pass `scrub=`"
JOB = "the client stores the message before any hook sees it; remove the secret before you send it"
DETAILS = "`details=True` shows requests, and the changes that each hook makes; leave it out"
STATE = "a hook sees `run.state` as a whole; change it at `onChatStart`"
FILES = "pictures and files are not changed; rename a file before the chat"
TRACED = "traces record the answer that was stopped; pass `redact=` to `Telemetry`"
LOGGED = f"{TRACED}; the log records it too"
CACHED = f"{TRACED}; the cache has it too, and the check stops it again"
EDITED = "the call is refused, and traces show it; pass `redact=` to `Telemetry`"
DECIDED = "`audit` writes what a person answers; leave out `content=True`"


class Road(NamedTuple):
    """A road, and the reasons why it is not covered; None: it must be."""

    play: Play
    redact: str | None = None
    guardrail: str | None = NO_ANSWER


DIED = ModelError(f"refused: {SECRET}")
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
    "reasoning": Road(said(Turn(reasoning=THROUGH, text="Done.")), guardrail=TEXT_ONLY),
    "partial text of an aborted chat": Road(
        hooked("onDelta", abort_late, f"{THROUGH} And more. And more.", priority=LATE),
        guardrail=None,
    ),
    "the user's message": Road(said(message=THROUGH)),
    "a message that is older than the hook": Road(older, redact=OLDER, guardrail=OLDER),
    "message that is sent into the chat": Road(sent("next")),
    "message that is sent for the end of the chat": Road(sent("idle")),
    "message that `preSteer` refuses": Road(sent("next", lambda ctx: Deny("no"))),
    "message that `preSteer` changes": Road(
        sent("next", lambda ctx: ctx.message.replace(text=THROUGH), text="Quick.")
    ),
    "arguments of a call": Road(said(call("takes", text=SECRET), "Done.", tools=[takes])),
    "arguments that do not fit": Road(
        said(call("takes", text=[SECRET], **{SECRET: 1}), "Done.", tools=[takes])
    ),
    "id of a call, name of a tool that does not exist": Road(
        said(Turn(tool_calls=[ToolCall(id=SECRET, name=SECRET)]), "Done."),
    ),
    "result of a tool": Road(said(call("tells"), "Done.", tools=[tells])),
    "keys and values of a result": Road(said(call("data"), "Done.", tools=[data])),
    "name of a file of the user": Road(attached, redact=FILES),
    "result of a client-side tool": Road(from_the_client),
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
    "arguments of a call that waits for an answer": Road(
        hooked(
            "preToolCall",
            lambda ctx: Ask("Sure?"),
            call("takes", text=SECRET),
            "Ok.",
            tools=[takes],
        ),
    ),
    "details of an `Ask`": Road(
        hooked(
            "preToolCall",
            lambda ctx: Ask("Sure?", details={"diff": SECRET}),
            call("takes"),
            "Ok.",
            tools=[takes],
        ),
        redact=YOURS,
    ),
    "arguments of an `Approve`": Road(
        answered(Approve(arguments={"text": SECRET})),
        redact=EDITED,
    ),
    "note of an `Approve`": Road(answered(Approve(by="lea", note=SECRET))),
    "reason of a `Deny` by a person": Road(answered(Deny(SECRET, by="lea"))),
    "arguments of a remembered `Rule`": Road(
        remembered, redact=f"{EDITED}; the rule keeps the text: leave out `remember=`"
    ),
    "data of a status": Road(said(call("reports"), "Done.", tools=[reports]), redact=YOURS),
    "text and reason of a `Stop`": Road(
        hooked("preRequest", lambda ctx: Stop(SECRET, text=THROUGH)),
    ),
    "input of a `Continue`": Road(
        hooked("preStop", lambda ctx: Continue(THROUGH), "One.", "Two.", "Three.", "Four.")
    ),
    "reason of a `Guide`": Road(hooked("onResponse", guide_with_it, "One.", "Two.")),
    "answer that a `Guide` withdraws": Road(guided, guardrail=TRACED),
    "answer that an output validator refuses, without `output=`": Road(
        said(f"It is {SECRET}.", "Fine.", output_validators=[refuses_it]), guardrail=TRACED
    ),
    "exception of an output validator": Road(
        said("bad", "good", output_validators=[not_ok], output=str)
    ),
    "address and title of a source": Road(
        said([Source(url=f"https://a/{SECRET}", title=SECRET), "Done."]),
        guardrail=TEXT_ONLY,
    ),
    "summary of `summarize`": Road(summarized, redact=SUMMARY, guardrail=SUMMARY),
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
    "reasoning of a sub-agent": Road(kid_thinks, guardrail=TEXT_ONLY),
    "message for a sub-agent": Road(kid_is_told),
    "result of a tool of a sub-agent": Road(kid_calls),
    "answer after a handoff, guard on the called agent": Road(target_speaks, guardrail=TRACED),
    "answer before a handoff, guard on the target": Road(first_speaks, FIRST, FIRST),
    "reason of an abort": Road(hooked("preRequest", abort_with_it), redact=YOURS),
    "error of the model": Road(said(Turn(fail=DIED)), redact=ERROR),
    "exception of a hook": Road(hooked("preRequest", raise_it), redact=ERROR),
    'exception of a hook with `on_error="log"`': Road(logged, redact=DEBUG),
    'exception of a guard with `on_error="deny"`': Road(guard_fails, redact=DEBUG),
    "system text": Road(said(system=THROUGH), redact=SPANS),
    "context of a scope": Road(
        said(scopes=[Scope("facts", context=lambda: THROUGH)]), redact=SPANS
    ),
    "values that a hook keeps in `run.state` or `run.meta`": Road(
        hooked("onChatStart", keep_it), redact=YOURS
    ),
    "events of `agent.subscribe()`": Road(subscribed, guardrail=TRACED),
    "file of `audit(content=True)`": Road(doors.audit_file, guardrail=TRACED),
    "approvals in the file of `audit(content=True)`": Road(doors.audited_answers, redact=DECIDED),
    "lines of `log(content=True)`": Road(doors.log_file, guardrail=TRACED),
    "entries of `cache`": Road(doors.cached, guardrail=CACHED),
    "cassette": Road(doors.on_tape, redact=TAPE, guardrail=TRACED),
    "log of a durable chat, and what its readers show": Road(doors.durable_chat, guardrail=LOGGED),
    "message of a durable chat": Road(doors.durable_message, redact=JOB),
    "calls in a replay": Road(doors.replayed_call),
    "reason of a policy in a replay": Road(doors.replayed_reason),
    "fork": Road(doors.forked, guardrail=TRACED),
    "result of an MCP tool": Road(doors.of_mcp(text=THROUGH)),
    "error of an MCP tool": Road(doors.of_mcp(text=THROUGH, fails=True)),
    "progress of an MCP tool": Road(doors.of_mcp(progress=SECRET), redact=PROGRESS),
    "question of an MCP server": Road(doors.of_mcp(question=SECRET), redact=ASKS),
    "answer to an MCP client": Road(doors.over_mcp, guardrail=TRACED),
    "frames, messages and timeline of the web, native": Road(
        doors.on_the_web("native"), guardrail=TRACED
    ),
    "frames, messages and timeline of the web, AI SDK": Road(
        doors.on_the_web("ai-sdk"), guardrail=TRACED
    ),
    "frames, messages and timeline of the web, AG-UI": Road(
        doors.on_the_web("ag-ui"), guardrail=TRACED
    ),
    "timeline of the page, with `details=True`": Road(
        doors.on_the_web("native", details=True), redact=DETAILS, guardrail=TRACED
    ),
    "title of a conversation on the web": Road(doors.title),
    "title that a client sets": Road(doors.new_title),
    "state that an AG-UI front end shares": Road(doors.shared_state, redact=STATE),
    "frames of a relay": Road(doors.relayed, guardrail=TRACED),
}


@contextmanager
def log_of_hookline() -> Iterator[list[tuple[str, str]]]:
    lines: list[tuple[str, str]] = []
    handler = logging.Handler()
    form = logging.Formatter()
    handler.emit = lambda record: lines.append(  # type: ignore[method-assign]
        (record.levelname, form.format(record))
    )
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
        found += [place for place, text in trace.more.items() if SECRET in text]
        if any(SECRET in repr(span) for span in traced.all):
            found.append("traces")
        found += dict.fromkeys(f"log at {level}" for level, line in lines if SECRET in line)
    return found


async def rows() -> list[str]:
    """The lines of the table: where the guards let texts through, and why.

    Texts with the same answers share a line, and so do those that no guard lets through.
    """
    texts: dict[str, list[str]] = {}
    for name, road in ROADS.items():
        cells = []
        for guard, why in (("redact", road.redact), ("guardrail", road.guardrail)):
            found = [] if why is NO_ANSWER else await places(road, guard)
            cells.append("–" if why is NO_ANSWER else f"no: {', '.join(found)}" if found else "yes")
        whys = dict.fromkeys([road.redact, road.guardrail])
        reasons = [why for why in whys if why not in (None, NO_ANSWER)]
        texts.setdefault(f"{' | '.join(cells)} | {'; '.join(map(str, reasons))}", []).append(name)
    covered = sum(len(names) for answers, names in texts.items() if "no: " not in answers)
    lines = [
        f"| {'; '.join(names)} | {answers} |"
        for answers, names in texts.items()
        if "no: " in answers
    ]
    return [*lines, f"| {covered} other texts | yes | yes, or – |  |"]


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
