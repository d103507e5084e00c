"""What holds for all ready-made hooks: a section with its rule, and the rule itself."""

import asyncio
import fnmatch
import inspect
import re
from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tests._event_grammar import check_events

import hookline.hooks
from hookline import Agent, Approve, Conversation, HookDef, Tool, tool
from hookline.errors import ModelError, OverloadedError
from hookline.events import TextDelta
from hookline.hooks import (
    allow_tools,
    approve,
    audit,
    budget,
    by_sentence,
    cache,
    deny_commands,
    fallback,
    guardrail,
    log,
    pin_tools,
    rate_limit,
    redact,
    retry,
    review,
    summarize,
    truncate,
    watch_prefix,
    window,
)
from hookline.testing import ScriptedModel, Turn, call, collect

MADE = {
    "budget": lambda path: budget(steps=99),
    "allow_tools": lambda path: allow_tools("*"),
    "deny_commands": lambda path: deny_commands("rm -rf"),
    "pin_tools": lambda path: pin_tools({}, "unused_*"),
    "rate_limit": lambda path: rate_limit(99),
    "approve": lambda path: approve("unused_tool"),
    "review": lambda path: review(ScriptedModel(), tools=["unused_tool"]),
    "window": lambda path: window(99),
    "summarize": lambda path: summarize(10**6),
    "truncate": lambda path: truncate(),
    "watch_prefix": lambda path: watch_prefix(),
    "redact": lambda path: redact("secret"),
    "by_sentence": lambda path: by_sentence(lambda text, run: None),
    "guardrail": lambda path: guardrail(lambda message, run: None),
    "cache": lambda path: cache(),
    "retry": lambda path: retry(),
    "fallback": lambda path: fallback(ScriptedModel()),
    "audit": lambda path: audit(path),
    "log": lambda path: log(),
}
NAMES = pytest.mark.parametrize("name", MADE)
PAGE = (Path(__file__).parents[2] / "docs" / "ready-made.md").read_text()


class Boom(Exception):
    pass


def boom(*args):
    raise Boom


@tool
async def look(where: str = "here") -> str:
    return "seen"


@tool
async def unused_tool() -> str:
    return "used"


def test_every_function_of_the_package_is_among_them():
    functions = {
        name for name, value in vars(hookline.hooks).items() if inspect.isfunction(value)
    } - {"read_reviews", "request_key", "rough_tokens", "runs_command", "tool_digest"}
    assert functions == set(MADE)


@NAMES
def test_each_has_a_section_with_an_example_and_its_failure_rule(name):
    section = PAGE.split(f"\n## {name}\n")[1].split("\n## ")[0]
    assert "```python" in section
    assert f"import {name}" in section or re.search(rf"import .*\b{name}\b", section)
    assert re.search(rf"^\| \[`{name}`\]\(#{name}\) \| \w.* \| \w.* \|$", PAGE, re.MULTILINE)


@NAMES
async def test_all_of_them_leave_a_chat_that_they_have_nothing_to_do_with_as_it_is(name, tmp_path):
    def chat(hooks):
        model = ScriptedModel(
            Turn(reasoning="hm", text="I look", tool_calls=[call("look")]), "It is so."
        )
        return Agent(model, tools=[look, unused_tool], hooks=hooks).chat_stream("Is it?")

    async def told(hooks):
        events = await collect(chat(hooks))
        check_events(events)
        return [m.text for m in events[-1].response.messages], "".join(
            each.text for each in events if isinstance(each, TextDelta)
        )

    assert await told([MADE[name](tmp_path / "a")]) == await told([])


@NAMES
async def test_all_of_them_are_plugins_named_like_their_function_and_leave_nothing(name, tmp_path):
    agent = Agent(ScriptedModel("ok"), tools=[look, unused_tool])
    remove = await agent.use(MADE[name](tmp_path / "a"))
    assert {info.origin for info in agent.hooks()} == {f"plugin {name}"}
    assert {info.name for info in agent.hooks()} == {name}
    await agent.chat("hi")
    remove()
    assert agent.hooks() == ()


async def test_all_of_them_together(tmp_path):
    hooks = [make(tmp_path / "a") for make in MADE.values()]
    model = ScriptedModel([call("look"), call("look", where="secret")], ["so", " be ", "it"])
    agent = Agent(model, tools=[look, unused_tool], hooks=hooks)
    events = await collect(agent.chat_stream("hi"))
    check_events(events)
    assert events[-1].response.text == "so be it"
    assert events[-1].response.messages[1].tool_calls[1].arguments == {"where": "[redacted]"}


# ── failure rules ───────────────────────────────────────────────────────────────────────────

ENDS = {
    "budget, price": lambda path: budget(cost=1.0, price=boom),
    "budget, count": lambda path: budget(steps=1, count=boom),
    "window, count": lambda path: window(tokens=1, count=boom),
    "redact, replacement": lambda path: redact("here", replacement=boom),
    "audit, file": lambda path: audit(path / "no" / "folder"),
    "retry, on": lambda path: retry(on=boom),
    "fallback, on": lambda path: fallback(ScriptedModel(), on=boom),
}
DENIES = {
    "rate_limit, key": lambda path: rate_limit(9, by=boom),
    "approve, when": lambda path: approve(when=boom),
    "approve, prompt": lambda path: approve(prompt=boom),
    "approve, argument": lambda path: approve(arguments={"where": boom}),
}


@pytest.mark.parametrize("what", ENDS)
async def test_one_that_fails_ends_the_chat_with_its_exception(what, tmp_path):
    turns = [ModelError("x")] if what.startswith(("retry", "fallback")) else [call("look"), "here"]
    agent = Agent(ScriptedModel(*turns), tools=[look, unused_tool], hooks=[ENDS[what](tmp_path)])
    seen = []
    agent.add_hook("onChatError", lambda ctx: seen.append(type(ctx.error)))
    events = []
    kind = FileNotFoundError if what.startswith("audit") else Boom
    with pytest.raises(kind):
        await collect(agent.chat_stream("hi"), events)
    assert seen == [kind]
    assert [each for each in events if isinstance(each, TextDelta)] == []


@pytest.mark.parametrize("what", DENIES)
async def test_a_guard_that_fails_denies_its_call(what, tmp_path):
    ran = []

    @tool(name="look")
    async def looks(where: str) -> None:
        ran.append(where)

    agent = Agent(
        ScriptedModel(call("look", where="here"), "I may not."),
        tools=[looks],
        hooks=[DENIES[what](tmp_path)],
    )
    response = await agent.chat("hi", conversation=Conversation())
    assert (response.text, response.messages[2].outcome, ran) == ("I may not.", "denied", [])


# ── laws of those that have none of their own file's ────────────────────────────────────────

WORDS = st.sampled_from(["read", "read_a", "write", "write_b", "pay"])
PATTERNS = st.lists(st.sampled_from(["read", "read_*", "*", "w*", "pay?", "[p]ay"]), max_size=3)


def recorded(names):
    """Tools that note that they ran."""
    ran = []

    def made(name):
        async def work() -> None:
            ran.append(name)

        return Tool(work, name=name)

    return [made(name) for name in sorted(set(names))], ran


@settings(max_examples=100)
@given(st.lists(WORDS, min_size=1, max_size=5), PATTERNS, st.booleans())
def test_no_tool_runs_but_those_that_are_allowed(asked, patterns, hide):

    tools, ran = recorded(asked)
    model = ScriptedModel([call(name) for name in asked], "done")
    agent = Agent(model, tools=tools, hooks=[allow_tools(*patterns, hide=hide)])
    asyncio.run(agent.chat("go"))
    assert sorted(ran) == sorted(
        name for name in asked if any(fnmatch.fnmatchcase(name, each) for each in patterns)
    )


@settings(max_examples=100)
@given(
    st.lists(WORDS, min_size=1, max_size=5),
    PATTERNS.filter(lambda them: bool(them) and all(them)),
    st.booleans(),
)
def test_what_asks_never_runs_unapproved_and_runs_once_when_it_is(asked, patterns, later):

    tools, ran = recorded(asked)
    asks = [name for name in asked if any(fnmatch.fnmatchcase(name, each) for each in patterns)]
    assume(asks)  # a guard that no tool matches is refused

    async def run():
        model = ScriptedModel([call(name) for name in asked], "done")
        agent = Agent(model, tools=tools, hooks=[approve(*patterns)])
        conversation = Conversation()
        response = await agent.chat("go", conversation=conversation)
        assert sorted(each.call.name for each in response.pending) == sorted(asks)
        assert not any(name in asks for name in ran)
        if response.pending and later:
            answers = {each.id: Approve() for each in response.pending}
            await agent.resume(conversation, answers)
            assert sorted(ran) == sorted(asked)

    asyncio.run(run())


@settings(max_examples=100)
@given(
    st.lists(
        st.sampled_from(["down", "half", "ok", "mine"]),
        min_size=2,
        max_size=6,
    )
)
def test_the_first_model_that_answers_answers_and_no_later_one_is_asked(fates):
    models = [
        ScriptedModel(
            {
                "down": OverloadedError("down"),
                "half": Turn(f"half of {n}", fail=ModelError("cut")),
                "ok": f"answer of {n}",
                "mine": Boom(),
            }[fate],
            name=f"m{n}",
        )
        for n, fate in enumerate(fates)
    ]
    agent = Agent(models[0], hooks=[fallback(*models[1:])])
    end = next((n for n, fate in enumerate(fates) if fate in ("ok", "mine")), len(fates) - 1)

    async def run():
        conversation = Conversation()
        stream = agent.chat_stream("hi", conversation=conversation)
        events = []
        if fates[end] == "ok":
            await collect(stream, events)
            assert conversation.messages[-1].text == f"answer of {end}"
        else:
            with pytest.raises(Boom if fates[end] == "mine" else ModelError):
                await collect(stream, events)
        check_events(events)

    asyncio.run(run())
    assert [model.calls for model in models] == [1] * (end + 1) + [0] * (len(fates) - end - 1)


def test_definitions_are_what_they_give():
    for make in MADE.values():
        made = make(Path("x"))
        assert all(
            isinstance(each, HookDef) for each in (made if isinstance(made, tuple) else [made])
        )
