"""A cassette replays a chat exactly, and names the first thing that differs."""

# ruff: noqa: PT012, SIM117 - that a block of chats raises is what is tested

import asyncio
import json

import pytest
from tests.kit.cassette_scenes import KEY, in_a_process, play, resumed

from hookline import (
    Agent,
    Approve,
    Ask,
    Conversation,
    Deny,
    MemoryStore,
    Run,
    ToolResult,
    define_hook,
    tool,
)
from hookline.errors import (
    ChatAbortedError,
    OverloadedError,
    RateLimitError,
    StopChat,
    UsageError,
)
from hookline.hooks import retry, review, summarize
from hookline.models import Settings
from hookline.testing import ScriptedModel, Turn, call, collect
from hookline.testing.cassette import CassetteError, cassette
from hookline.testing.cassette._difference import LINES

RUNS: list[object] = []


@pytest.fixture(autouse=True)
def at_home(monkeypatch):
    """Not in CI, where nothing is recorded."""
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.delenv("HOOKLINE_CASSETTE", raising=False)
    RUNS.clear()


@pytest.fixture
def path(tmp_path):
    return tmp_path / "tapes" / "chat.json"


@tool
async def refund(amount: int) -> str:
    """Pay money back."""
    RUNS.append(amount)
    return f"refunded {amount}"


def script():
    return [call("refund", amount=3), call("refund", amount=4)], "Paid."


def make_agent(*turns, tools=(refund,), **options):
    return Agent(ScriptedModel(*turns), tools=list(tools), **options)


async def recorded(path, *turns, text="Pay me back.", **options):
    with cassette(path) as tape:
        response = await make_agent(*(turns or script()), **options).chat(text, hooks=[tape])
    RUNS.clear()
    return response


async def differs(path, agent, text="Pay me back.", **options):
    """The error of a replay; it is short, and nothing was reached."""
    with pytest.raises(CassetteError) as caught:
        with cassette(path) as tape:
            await agent.chat(text, hooks=[tape], **options)
    assert RUNS == []
    assert tape.live_calls == 0
    assert len(str(caught.value).splitlines()) <= 30
    assert len(caught.value.differences) == 1
    return caught.value


# ── generated scenes ────────────────────────────────────────────────────────────────────────


@pytest.mark.slow
@pytest.mark.parametrize("number", range(24))
async def test_a_scene_is_the_same_from_its_cassette(number, tmp_path):
    second = in_a_process if number in (4, 10) else resumed
    live, reached, calls = await play(number, tmp_path, "record", second)
    assert calls
    assert reached["model"]
    again, reached, calls = await play(number, tmp_path, "replay", second)
    assert again == live
    assert not reached
    assert calls == 0
    for tape in tmp_path.glob("*.json"):
        assert "planted" not in tape.read_text()
    assert "second" in live or number not in (4, 10)


# ── one change at each of these places ──────────────────────────────────────────────────────


def other_refund(doc="Pay money back.", **parameters):
    async def refund(amount: int) -> str:
        RUNS.append(amount)
        return ""

    refund.__doc__ = doc
    refund.__annotations__.update(parameters)
    return tool(refund)


def with_hook(point, hook, **options):
    agent = make_agent()
    agent.add_hook(point, hook, **options)
    return agent


def edit(ctx):
    amount = ctx.call.arguments["amount"]
    return ctx.call.replace(arguments={"amount": 40}) if amount == 4 else None


def deny(ctx):
    return Deny("too much") if ctx.call.arguments["amount"] == 4 else None


def longer(ctx):
    return ctx.result.replace(value=f"{ctx.result.value}!") if ctx.call.id == "call_2" else None


async def unasked(ctx, proceed):
    return ToolResult("refunded 3") if ctx.call.id == "call_1" else await proceed()


CHANGES = {
    "prompt": (make_agent, {"text": "Pay me."}, "request 0", "messages", "+"),
    "system": (lambda: make_agent(system="Be kind."), {}, "request 0", "system", "+Be kind."),
    "tool's description": (
        lambda: make_agent(tools=[other_refund("Pay it back.")]),
        {},
        "request 0",
        "tools",
        '+  "description": "Pay it back."',
    ),
    "tool's schema": (
        lambda: make_agent(tools=[other_refund(amount=float)]),
        {},
        "request 0",
        "tools",
        '"type": "number"',
    ),
    "another tool": (
        lambda: make_agent(tools=[refund, tool(lambda: 1, name="one")]),
        {},
        "request 0",
        "tools",
        '"name": "one"',
    ),
    "settings": (
        lambda: make_agent(settings=Settings(temperature=0.5)),
        {},
        "request 0",
        "settings",
        '+{"temperature": 0.5}',
    ),
    "model": (
        lambda: Agent(ScriptedModel(name="bigger"), tools=[refund]),
        {},
        "request 0",
        "model",
        "+bigger",
    ),
    "output": (lambda: make_agent(output=int), {}, "request 0", "", "+"),
    "hook that edits a call": (
        lambda: with_hook("preToolCall", edit),
        {},
        "call 0.1",
        "",
        "+refund(amount=40)",
    ),
    "hook that denies a call": (
        lambda: with_hook("preToolCall", deny),
        {},
        "request 1",
        "messages",
        '"outcome": "denied"',
    ),
    "hook that changes a result": (
        lambda: with_hook("onToolCallResult", longer),
        {},
        "request 1",
        "messages",
        "refunded 4!",
    ),
    "hook that changes a request": (
        lambda: with_hook("preRequest", lambda ctx: ctx.request.replace(system="Shh.")),
        {},
        "request 0",
        "system",
        "+Shh.",
    ),
    "wrapper that answers instead of the tool": (
        lambda: with_hook("aroundToolCall", unasked),
        {},
        "call 0.0",
        "",
        "did not happen",
    ),
}


@pytest.mark.parametrize("change", CHANGES)
async def test_a_change_is_named_with_its_request_or_call(path, change):
    await recorded(path)
    make, options, place, field, text = CHANGES[change]
    error = await differs(path, make(), **options)
    assert error.differences[0].place.startswith(place)
    assert f", {place}" in str(error)
    assert field in str(error)
    assert text in str(error)


async def test_a_long_text_is_cut_to_what_differs(path):
    system = "word " * 2000
    await recorded(path, system=system)
    error = await differs(path, make_agent(system=f"{system}twice {system}"))
    assert "+…" in str(error)
    assert "twice" in str(error)
    assert max(map(len, str(error).splitlines())) < 160


async def test_a_difference_of_many_lines_is_cut(path):
    await recorded(path)
    error = await differs(path, make_agent(system="\n".join(map(str, range(90)))))
    assert len(str(error).splitlines()) == LINES - 1
    assert "more lines" in str(error)


async def test_only_the_chat_that_differs_is_named(path):
    """The chats run at the same time, in another order than when they were recorded."""

    async def chats(system, texts):
        with cassette(path) as tape:
            agents = [make_agent("Yes.", system=system if t == "b" else None) for t in texts]
            chats = [a.chat(t, hooks=[tape]) for a, t in zip(agents, texts, strict=True)]
            return await asyncio.gather(*chats, return_exceptions=True)

    await chats("Be kind.", "abc")
    with pytest.raises(CassetteError) as caught:
        await chats("Be short.", "cba")
    assert [difference.chat for difference in caught.value.differences] == ['"b"']
    await chats("Be kind.", "bca")


# ── sub-agents ──────────────────────────────────────────────────────────────────────────────


def with_helper(turns=(), helper_turns=(), **options):
    helper = make_agent(*helper_turns, name="helper", **options)
    return make_agent(*turns, tools=[helper.as_tool(name="ask")])


async def test_a_change_in_a_sub_agent_is_named_there(path):
    turns = [call("ask", input="a"), call("ask", input="b")], "Done."
    with cassette(path) as tape:
        helper = [["A."], ["B."]]
        agent = with_helper(turns, [item[0] for item in helper])
        await agent.chat("Go.", hooks=[tape])
    assert tape.live_calls == 4
    with cassette(path) as tape:
        assert (await with_helper().chat("Go.", hooks=[tape])).text == "Done."
    with pytest.raises(CassetteError) as caught:
        with cassette(path) as tape:
            await with_helper(system="Help.").chat("Go.", hooks=[tape])
    first = caught.value.differences[0]
    assert (first.chat, first.place) == ('"Go." / call 0.0', "request 0 (step 0)")


async def test_a_chat_that_a_tool_begins_is_part_of_its_result(path):
    inner = make_agent("inside")

    @tool
    async def think() -> str:
        """Think."""
        RUNS.append("think")
        return (await inner.chat("Think.", hooks=[tape])).text

    for _ in range(2):
        with cassette(path) as tape:
            agent = make_agent(call("think"), "Done.", tools=[think])
            response = await agent.chat("Go.", hooks=[tape])
        assert response.tool_results[0].text == "inside"
    assert RUNS == ["think"]
    assert list(json.loads(path.read_text())["chats"]) == ['"Go."']


# ── chats that hooks begin ──────────────────────────────────────────────────────────────────


def asking(point, answers, *turns, text="Look at this.", helper_turns=(), **options):
    """A hook that asks an agent of its own, which has a tool and a sub-agent."""

    @tool
    async def look() -> str:
        """Look."""
        RUNS.append("look")
        return "seen"

    tools = [look, make_agent(*helper_turns, name="helper").as_tool(name="ask")]
    asked = make_agent(*turns, tools=tools, **options)

    async def ask(ctx):
        answers.append((await asked.chat(text)).text)

    return define_hook(point, ask)


LOOKS = [call("look"), call("ask", input="Help.")], "Well."


@pytest.mark.parametrize("mode", ["all", "model"])
@pytest.mark.parametrize(
    "point", ["onChatStart", "preChat", "preRequest", "onResponse", "preToolCall", "onChatDone"]
)
async def test_a_chat_that_a_hook_begins_is_replayed_too(path, point, mode):
    def model(*turns):
        return turns * (2 if point in ("preRequest", "onResponse") else 1)

    answers = []
    with cassette(path, mode=mode) as tape:
        hook = asking(point, answers, *model(*LOOKS), helper_turns=model("Helped."))
        agent = make_agent(call("refund", amount=3), "Paid.", hooks=[hook])
        await agent.chat("Go.", hooks=[tape])
    before, ran = answers[:], RUNS[:]
    assert set(before) == {"Well."}
    assert tape.live_calls == 2 + 3 * len(before)
    with cassette(path, mode=mode) as tape:
        agent = make_agent(hooks=[asking(point, answers)])
        assert (await agent.chat("Go.", hooks=[tape])).text == "Paid."
    assert (answers, tape.live_calls) == (before * 2, 0)
    assert (ran if mode == "all" else ran * 2) == RUNS


async def test_a_summary_and_a_review_come_from_the_cassette(path):
    async def chats(model, reviewer):
        conversation = Conversation()
        hooks = [summarize(lambda messages: len(messages) > 3, keep=1), *review(reviewer)]
        agent = Agent(model, tools=[refund], hooks=hooks)
        with cassette(path) as tape:
            for text in ("Pay me back.", "Thanks."):
                await agent.chat(text, conversation=conversation, hooks=[tape])
        return [message.text for message in conversation.messages], tape.live_calls

    model = ScriptedModel(call("refund", amount=3), "Paid.", "They were paid.", "You are welcome.")
    reviewer = ScriptedModel('{"decision": "approve", "reason": "small"}')
    texts, calls = await chats(model, reviewer)
    assert (model.calls, reviewer.calls, calls) == (4, 1, 5)
    model, reviewer = ScriptedModel(), ScriptedModel()
    assert await chats(model, reviewer) == (texts, 0)
    assert (model.calls, reviewer.calls, RUNS) == (0, 0, [3])


async def test_a_change_of_a_chat_that_a_hook_begins_is_named_there(path):
    with cassette(path) as tape:
        agent = make_agent("Hi.", hooks=[asking("preRequest", [], "Well.")])
        await agent.chat("Go.", hooks=[tape])
    for change, text in (({"system": "Be kind."}, "+Be kind."), ({"text": "Look!"}, "Look!")):
        agent = make_agent(hooks=[asking("preRequest", [], **change)])
        error = await differs(path, agent, text="Go.")
        assert error.differences[0].chat.startswith('"Go." / hook "Look')
        assert error.differences[0].place == "request 0 (step 0)"
        assert text in str(error)
        assert "Look at this." in str(error)
    with cassette(path, action="patch") as tape:
        agent = make_agent(hooks=[asking("preRequest", [], "Hm.", system="Be kind.")])
        assert (await agent.chat("Go.", hooks=[tape])).text == "Hi."
    assert tape.live_calls == 1
    with pytest.raises(CassetteError, match=r"hook .*did not come to its first request"):
        with cassette(path) as tape:
            await make_agent().chat("Go.", hooks=[tape])


async def test_a_chat_that_a_hook_begins_with_the_cassette_is_recorded_once(path):
    async def ask(ctx):
        await asked.chat("Look at this.", hooks=[tape])

    for turns in (["Well."], []):
        asked = make_agent(*turns)
        with cassette(path) as tape:
            agent = make_agent(*turns, hooks=[define_hook("preRequest", ask)])
            await agent.chat("Go.", hooks=[tape])
        assert tape.live_calls == 2 * len(turns)
    assert list(json.loads(path.read_text())["chats"]) == ['"Go."', '"Look at this."']


async def test_a_chat_without_the_cassette_is_live(path):
    for _ in range(2):
        with cassette(path) as tape:
            await make_agent("Hi.").chat("Go.", hooks=[tape])
            assert (await make_agent("live").chat("Go.")).text == "live"
        assert (await make_agent("live").chat("Go.")).text == "live"
    assert list(json.loads(path.read_text())["chats"]) == ['"Go."']


@pytest.mark.parametrize("by", ["hook", "reader", "canceller"])
async def test_a_chat_that_a_hook_begins_may_be_cut_off(path, by):
    async def ask(ctx):
        async with asked.chat_stream("Look at this.") as stream:
            async for event in stream:
                if type(event).__name__ == "TextDelta":
                    begun.set()
                    if by == "hook":
                        break

    slow = ScriptedModel(Turn("Hello there", chunk=5, delay=Delay(asyncio.Event())))
    hook, seen = define_hook("preRequest", ask), []
    for model, asks in ((["Hi."], slow), ([], ScriptedModel())):
        asked, begun = Agent(asks), asyncio.Event()
        with cassette(path) as tape:
            stream = make_agent(*model, hooks=[hook]).chat_stream("Go.", hooks=[tape])
            reader = asyncio.create_task(collect(stream))
            await begun.wait()
            if by == "reader":
                stream.abort("enough")
            if by == "canceller":
                reader.cancel()
            (end,) = await asyncio.gather(reader, return_exceptions=True)
        end = end if isinstance(end, BaseException) else end[-1]
        seen.append(type(end).__name__)
    outcome = {"hook": "ChatDone", "reader": "ChatAborted", "canceller": "CancelledError"}[by]
    assert seen == [outcome, outcome]


# ── what is recorded ────────────────────────────────────────────────────────────────────────


async def test_an_answer_is_replayed_as_a_stream_with_its_errors(path):
    seen = []
    for _ in range(2):
        model = ScriptedModel(
            Turn("Hello there", fail=RateLimitError("slow", retry_after=0.0), fail_after=2),
            Turn("", fail=OverloadedError("busy", status=529)),
            Turn("Hello.", chunk=2),
        )
        errors = []
        agent = Agent(model, hooks=[retry(base=0.0)])

        @agent.hook("aroundRequest")
        async def watch(ctx, proceed, errors=errors):
            try:
                return await proceed()
            except Exception as exc:
                errors.append((type(exc), str(exc), exc.status, exc.retry_after, exc.retryable))
                raise

        with cassette(path) as tape:
            events = await collect(agent.chat_stream("Hi.", hooks=[tape]))
        names = [type(event).__name__ for event in events]
        seen.append((names, errors, [getattr(event, "text", None) for event in events]))
    assert seen[0] == seen[1]
    assert tape.live_calls == 0
    assert [error[0] for error in seen[0][1]] == [RateLimitError, OverloadedError]


async def test_a_tool_that_stops_the_chat_reports_and_sets_state(path):
    @tool
    async def leave(run: Run) -> str:
        """Leave."""
        RUNS.append("leave")
        await run.status("leaving", 1)
        run.state["left"] = True
        run.meta["last"] = "bye"
        run.state["object"] = object()
        raise StopChat("enough")

    seen = []
    for _ in range(2):
        agent = make_agent(call("leave"), tools=[leave])

        @agent.hook("onToolCallResult")
        def look(ctx):
            seen.append((ctx.run.state.get("left"), dict(ctx.run.meta)))

        with cassette(path) as tape:
            stream = agent.chat_stream("Go.", hooks=[tape])
            events = await collect(stream)
        statuses = [event.type for event in events if type(event).__name__ == "Status"]
        seen.append((stream.response.stop_reason, stream.response.tool_results[0].text, statuses))
    assert seen[:2] == seen[2:]
    assert seen[1] == ("enough", "enough", ["leaving"])
    assert RUNS == ["leave"]


@pytest.mark.parametrize("fault", ["raises", "does not fit"])
async def test_an_answer_that_fails_a_tool_fails_it_in_a_replay_too(path, fault):
    def approver(request, run):
        if fault == "raises":
            raise OSError("no terminal")
        return Approve(arguments={"name": 3})

    @tool
    async def ask(run: Run) -> str:
        """Ask."""
        schema = {"type": "object", "properties": {"name": {"type": "string"}}}
        return str(await run.ask("Who?", schema))

    results = []
    for _ in range(2):
        agent = Agent(ScriptedModel(call("ask"), "Then not."), tools=[ask], approver=approver)
        with cassette(path) as tape:
            response = await agent.chat("Go.", hooks=tape.hooks)
        results.append([message.text for message in response.tool_results])
    assert results[0] == results[1]
    assert ("OSError" if fault == "raises" else "ApprovalError") in results[0][0]


async def test_a_question_of_a_tool_is_asked_again(path):
    @tool
    async def choose(run: Run) -> str:
        """Choose."""
        RUNS.append("choose")
        return str(await run.ask("Which?", {"type": "object"}))

    questions = []

    def person(request, run):
        questions.append(request.prompts)
        return Approve(arguments={"color": "red"})

    for _ in range(2):
        with cassette(path) as tape:
            agent = make_agent(call("choose"), "Fine.", tools=[choose])
            await agent.chat("Go.", hooks=[tape], approver=person)
    assert questions == [("Which?",), ("Which?",)]
    assert RUNS == ["choose"]


@pytest.mark.parametrize("by", ["tool", "reader", "canceller"])
async def test_an_abort_in_a_tool_ends_the_chat_in_the_same_way(path, by):
    @tool
    async def halt(run: Run) -> str:
        """Halt."""
        RUNS.append("halt")
        await run.status("halting")
        if by == "tool":
            run.abort("enough")
        await asyncio.Event().wait()
        return ""

    seen = []
    for _ in range(2):
        agent = make_agent([call("refund", amount=1), call("halt")], tools=[refund, halt])
        conversation = Conversation()
        with cassette(path) as tape:
            stream = agent.chat_stream("Go.", hooks=[tape], conversation=conversation)
            try:
                async for event in stream:
                    if type(event).__name__ == "Status" and by == "reader":
                        stream.abort("seen")
                    if type(event).__name__ == "Status" and by == "canceller":
                        task = asyncio.current_task()
                        asyncio.get_running_loop().call_soon(task.cancel)
                end = "the stream ended"
            except (ChatAbortedError, asyncio.CancelledError) as exc:
                end = repr(exc)
                if by == "canceller":
                    asyncio.current_task().uncancel()
        seen.append((end, [(m.role, m.text) for m in conversation.messages]))
    assert seen[0] == seen[1]
    assert sorted(map(str, RUNS)) == ["1", "halt"]


@pytest.mark.parametrize("step_begins", [False, True])
async def test_an_abort_above_reaches_a_sub_agent_before_its_first_request(path, step_begins):
    @tool
    async def halt(run: Run) -> str:
        """Halt."""
        if step_begins:
            await begun.wait()
        run.abort("enough")
        await asyncio.Event().wait()
        return ""

    async def wait(ctx, proceed):
        begun.set()
        await asyncio.Event().wait()

    seen = []
    for _ in range(2):
        begun = asyncio.Event()
        helper = Agent(ScriptedModel(), name="helper", hooks=[define_hook("aroundRequest", wait)])
        calls = [call("ask_helper", input="Help."), call("halt")]
        agent = make_agent(calls, tools=[halt, helper.as_tool(name="ask_helper")])
        events = []
        with cassette(path) as tape:
            with pytest.raises(ChatAbortedError):
                async for event in agent.chat_stream("Go.", hooks=[tape]):
                    events.append((event.path, type(event).__name__))
        seen.append([name for place, name in events if place])
    assert seen[0] == seen[1]
    assert ("StepStarted" in seen[0], seen[0][-1]) == (step_begins, "ChatAborted")


async def test_an_abort_in_the_middle_of_an_answer(path):
    never = asyncio.Event()
    for _ in range(2):
        agent = Agent(ScriptedModel(Turn("Hello there", chunk=5, delay=Delay(never))))
        with cassette(path) as tape:
            stream = agent.chat_stream("Hi.", hooks=[tape])
            text = ""
            async for event in stream:
                text += getattr(event, "text", "") if type(event).__name__ == "TextDelta" else ""
                if text:
                    stream.abort("enough")
        assert text == "Hello"


class Delay:
    """Waits before the second piece, for ever."""

    def __init__(self, event):
        self.event, self.count = event, 0

    async def __call__(self):
        self.count += 1
        if self.count > 1:
            await self.event.wait()


async def test_answers_of_people_and_clients_come_from_the_test(path):
    @tool(client=True)
    async def pick(color: str) -> str:
        """Pick."""
        raise AssertionError

    def ask(ctx):
        return Ask("sure?") if ctx.call.name == "refund" else None

    async def chat(result):
        agent = make_agent(
            [call("refund", amount=3), call("pick", color="red")], "Done.", tools=[refund, pick]
        )
        agent.add_hook("preToolCall", ask)
        conversation = Conversation.at(MemoryStore(), "talk")
        with cassette(path) as tape:
            response = await agent.chat("Go.", hooks=[tape], conversation=conversation)
            answers = {response.pending[0].id: Approve(), response.client_calls[0].id: result}
            return await agent.resume(conversation, answers, hooks=[tape])

    assert (await chat(ToolResult("blue"))).text == (await chat(ToolResult("blue"))).text
    assert RUNS == [3]
    with pytest.raises(CassetteError, match="green") as caught:
        await chat(ToolResult("green"))
    assert caught.value.differences[0].chat == '"Go." #2'


# ── modes and actions ───────────────────────────────────────────────────────────────────────


async def test_in_model_mode_tools_run(path):
    for run in range(2):
        with cassette(path, mode="model") as tape:
            await make_agent(*script()).chat("Go.", hooks=[tape])
        assert len(RUNS) == 2 * (run + 1)
    assert "calls" not in json.loads(path.read_text())["chats"]['"Go."']
    with pytest.raises(CassetteError, match="mode='model'"):
        with cassette(path):
            pass


async def test_patch_records_from_the_first_difference_of_a_chat(path, monkeypatch):
    await recorded(path)
    with cassette(path, action="patch") as tape:
        await make_agent().chat("Pay me back.", hooks=[tape])
    before = path.read_text()
    monkeypatch.setenv("HOOKLINE_CASSETTE", "patch")
    with cassette(path) as tape:
        agent = make_agent("Paid less.")
        agent.add_hook("preToolCall", deny)
        response = await agent.chat("Pay me back.", hooks=[tape])
    assert (response.text, tape.live_calls, RUNS) == ("Paid less.", 1, [])
    assert [difference.place for difference in tape.differences] == ["request 1 (step 1)"]
    assert path.read_text() != before
    monkeypatch.delenv("HOOKLINE_CASSETTE")
    with cassette(path) as tape:
        agent = make_agent()
        agent.add_hook("preToolCall", deny)
        assert (await agent.chat("Pay me back.", hooks=[tape])).text == "Paid less."


async def test_patch_replays_what_is_the_same_in_other_chats(path):
    with cassette(path) as tape:
        await make_agent("one").chat("a", hooks=[tape])
        await make_agent("two").chat("b", hooks=[tape])
        await make_agent("three").chat("c", hooks=[tape])
    with cassette(path, action="patch") as tape:
        await make_agent().chat("a", hooks=[tape])
        await make_agent("new", system="x").chat("b", hooks=[tape])
    assert tape.live_calls == 1
    assert list(json.loads(path.read_text())["chats"]) == ['"a"', '"b"']


async def test_nothing_is_written_if_the_block_raises(path):
    await recorded(path)
    before = path.read_text()
    with pytest.raises(ZeroDivisionError):
        with cassette(path, action="record") as tape:
            await make_agent("x").chat("Go.", hooks=[tape])
            raise ZeroDivisionError
    assert path.read_text() == before
    assert [file.name for file in path.parent.iterdir()] == ["chat.json"]


async def test_in_ci_nothing_is_recorded(path, monkeypatch):
    monkeypatch.setenv("CI", "true")
    with pytest.raises(CassetteError, match="CI is set"):
        with cassette(path):
            raise AssertionError
    monkeypatch.setenv("CI", "false")
    await recorded(path)
    monkeypatch.setenv("CI", "1")
    with cassette(path) as tape:
        await make_agent().chat("Pay me back.", hooks=[tape])
    with pytest.raises(CassetteError, match="commit the file"):
        with cassette(path, action="patch"):
            raise AssertionError


async def test_equal_requests_beyond_the_recorded_ones_differ(path):
    agent = make_agent("one", "two")
    with cassette(path) as tape:
        for text in ("one", "two"):
            assert (await agent.chat("Hi.", hooks=[tape])).text == text
    with pytest.raises(CassetteError) as caught:
        with cassette(path) as tape:
            for text in ("one", "two", "three"):
                assert (await make_agent().chat("Hi.", hooks=[tape])).text == text
    assert caught.value.differences[0].chat == '"Hi." #3'
    assert "was not recorded" in str(caught.value)


async def test_an_answer_is_not_given_to_a_second_equal_request_of_a_chat(path):
    async def twice(ctx, proceed):
        await proceed()
        return await proceed()

    await recorded(path, "Hi.")
    error = await differs(path, with_hook("aroundRequest", twice))
    assert error.differences[0].place == "request 1 (step 0)"
    assert "was not recorded" in str(error)


async def test_what_was_recorded_and_did_not_happen_is_a_difference(path):
    await recorded(path)
    with pytest.raises(CassetteError, match=r"chat .Pay me back.*was recorded"):
        with cassette(path):
            pass

    def stop(ctx):
        ctx.run.abort("no")

    agent = with_hook("onToolCallResult", stop)
    with pytest.raises(CassetteError, match="did not happen"):
        with cassette(path) as tape:
            with pytest.raises(ChatAbortedError):
                await agent.chat("Pay me back.", hooks=[tape])


async def test_a_difference_that_the_test_catches_still_fails_the_block(path):
    await recorded(path)
    with pytest.raises(CassetteError, match="system"):
        with cassette(path) as tape:
            with pytest.raises(CassetteError):
                await make_agent(system="x").chat("Pay me back.", hooks=[tape])
    with pytest.raises(CassetteError, match="system") as caught:
        with cassette(path) as tape:
            try:
                await make_agent(system="x").chat("Pay me back.", hooks=[tape])
            except CassetteError:
                raise ValueError from None
    assert isinstance(caught.value.__cause__, ValueError)


async def test_ignored_fields_are_not_compared(path):
    await recorded(path, system="It is Monday.")
    with cassette(path, ignore=["system"]) as tape:
        await make_agent(system="It is Tuesday.").chat("Pay me back.", hooks=[tape])
    with pytest.raises(UsageError, match="ignore='headers'"):
        with cassette(path, ignore=["headers"]):
            pass


# ── secrets ─────────────────────────────────────────────────────────────────────────────────

SECRETS = (
    KEY,
    "ghp_0123456789abcdefghij",
    "AKIAABCDEFGHIJKLMNOP",
    "AIzaSyA0123456789abcdefghijklmnopqrstu",
    "xoxb-123456789012-abcdef",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl",
)


@pytest.mark.parametrize("secret", SECRETS)
@pytest.mark.parametrize("chunk", [1, 3, 0])
async def test_a_secret_is_not_on_the_cassette(path, secret, chunk):
    @tool
    async def send(text: str, password: str) -> dict[str, str]:
        """Send."""
        return {"text": f"Bearer {secret}", "authorization": "hunter2 hunter3"}

    for _ in range(2):
        model = ScriptedModel(
            [
                f"I use {secret}, then",
                call("send", text=f"{secret} {secret}", password="pass word"),
            ],
            f"Sent with {secret}.",
            chunk=chunk,
        )
        with cassette(path) as tape:
            agent = Agent(model, tools=[send], system=f"Use {secret}.")
            await agent.chat(f"My key is {secret}", hooks=[tape])
    text = path.read_text()
    pieces = [secret[place : place + 8] for place in range(len(secret) - 8)]
    for piece in (*pieces, "hunter2", "hunter3", "pass word"):
        assert piece not in text
    assert "I use [scrubbed], then" in text


async def test_a_new_key_is_no_difference(path):
    """Secrets are removed before requests are compared."""
    for turns, key in ((["Noted."], KEY), ([], "sk-another0123456789abcdef")):
        with cassette(path) as tape:
            agent = make_agent(*turns, system=f"Use {key}.")
            assert (await agent.chat(f"My key is {key}", hooks=[tape])).text == "Noted."
    assert tape.live_calls == 0


async def test_own_secrets_are_scrubbed_too(path):
    def scrub(text):
        return text.replace("Ada", "[name]")

    for _ in range(2):
        with cassette(path, scrub=scrub) as tape:
            await make_agent("Hello, Ada.").chat("I am Ada.", hooks=[tape])
    assert "Ada" not in path.read_text()


# ── the file ────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{", "line 1 column 2"),
        ("[]", "format None"),
        ('{"hookline_cassette": 9}', "format 9"),
        ('{"hookline_cassette": 1, "mode": "all", "chats": {"a": {"requests": 3}}}', "damaged"),
        ('{"hookline_cassette": 1, "mode": "all"}', "damaged"),
    ],
)
def test_a_file_that_is_no_cassette_is_an_error(tmp_path, text, problem):
    path = tmp_path / "tape.json"
    path.write_text(text)
    with pytest.raises(CassetteError, match=problem):
        with cassette(path):
            pass


def test_wrong_use_is_an_error_that_says_what_to_do(path, monkeypatch):
    with pytest.raises(CassetteError, match="there is no cassette"):
        with cassette(path, action="replay"):
            pass
    with pytest.raises(UsageError, match="mode='some'"):
        with cassette(path, mode="some"):
            pass
    with pytest.raises(UsageError, match="action='play'"):
        with cassette(path, action="play"):
            pass
    monkeypatch.setenv("HOOKLINE_CASSETTE", "yes")
    with pytest.raises(UsageError, match="HOOKLINE_CASSETTE='yes'"):
        with cassette(path):
            pass


async def test_the_file_is_the_same_each_time_it_is_recorded(path):
    await recorded(path)
    before = path.read_text()
    with cassette(path, action="record") as tape:
        await make_agent(*script()).chat("Pay me back.", hooks=[tape])
    assert path.read_text() == before
    assert before.endswith("}\n")
    assert max(map(len, before.splitlines())) <= 160


async def test_a_replay_needs_no_key_and_no_model(path):
    class Absent:
        name = "scripted"

        def stream(self, request):
            raise AssertionError

    await recorded(path)
    with cassette(path) as tape:
        agent = Agent(Absent(), tools=[refund])
        assert (await agent.chat("Pay me back.", hooks=[tape])).text == "Paid."
