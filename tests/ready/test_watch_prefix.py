"""`watch_prefix`: how much of a request a prompt cache can reuse, and which hook is to blame."""

import logging
from itertools import count

import pytest

from hookline import (
    Agent,
    Conversation,
    Limits,
    Text,
    ToolMessage,
    Usage,
    UserMessage,
    define_hook,
    tool,
)
from hookline.errors import OverloadedError
from hookline.events import Status
from hookline.hooks import (
    budget,
    cache,
    fallback,
    log,
    redact,
    retry,
    truncate,
    watch_prefix,
    window,
)
from hookline.models import OutputSchema, PrefixMeter
from hookline.testing import ScriptedModel, Turn, call, collect

STEPS = 12


@tool
async def look(n: int = 0) -> str:
    """Look at a place."""
    return f"seen {n}: " + "x" * 400


@tool
async def other() -> str:
    """Do another thing."""
    return "done"


def user(text):
    return UserMessage(parts=(Text(text),))


def edit(change, point="preRequest"):
    """A hook that passes on the request with these changes; it gets a number that grows."""
    numbers = count()

    def hook(ctx):
        return ctx.request.replace(**change(ctx.request, next(numbers)))

    return define_hook(point, hook, name="culprit")


def wrap(change):
    numbers = count()

    async def hook(ctx, proceed):
        return await proceed(ctx.request.replace(**change(ctx.request, next(numbers))))

    return define_hook("aroundRequest", hook, name="culprit")


def old_results_cleared(request, n):
    cut = len(request.messages) - 4
    return {
        "messages": tuple(
            m.replace(text="[cleared]") if i < cut and isinstance(m, ToolMessage) else m
            for i, m in enumerate(request.messages)
        )
    }


def first_message_changed(request, n):
    first = request.messages[0]
    return {"messages": (first.replace(text=f"{first.text} {n}"), *request.messages[1:])}


def system_of_its_time(request, n):
    return {"system": f"It is {n} o'clock. {request.system}"}


def system_with_a_note(request, n):
    return {"system": f"{request.system}\nStep {n}."}


def tools_in_another_order(request, n):
    return {"tools": request.tools[:: 1 if n % 2 else -1]}


def a_tool_left_out(request, n):
    return {"tools": request.tools[: 1 + n % 2]}


def a_tool_described_anew(request, n):
    first, *rest = request.tools
    return {"tools": (first.replace(description=f"Look, for the {n}th time."), *rest)}


def another_model(request, n):
    return {"model": ScriptedModel(*[call("look", n=n)] * 2, name=f"model {n % 2}")}


def a_message_in_front(request, n):
    return {"messages": (user(f"Today's number is {n}."), *request.messages)}


def only_the_last(request, n):
    first, *rest = request.messages
    return {"messages": (first, *rest[-4:])}


def another_schema(request, n):
    schema = {"type": "object", "title": f"Answer {n}"}
    return {"output": OutputSchema(name="Answer", schema=schema)}


def slow(change):
    numbers = count()

    async def hook(ctx):
        return ctx.request.replace(**change(ctx.request, next(numbers)))

    return define_hook("preRequest", hook, name="culprit")


def named(hooks):
    """Ready-made hooks under the culprit's name."""
    (hook,) = hooks
    return define_hook(hook.point, hook.fn, name="culprit")


LOOP = {
    "the time in the system text": lambda: edit(system_of_its_time),
    "a note at the end of the system text": lambda: edit(system_with_a_note),
    "tools in another order": lambda: edit(tools_in_another_order),
    "a tool left out now and then": lambda: edit(a_tool_left_out),
    "a description that changes": lambda: edit(a_tool_described_anew),
    "a first message that changes": lambda: edit(first_message_changed),
    "a message put in front": lambda: edit(a_message_in_front),
    "old results cleared": lambda: edit(old_results_cleared),
    "only the last messages": lambda: edit(only_the_last),
    "a schema that changes": lambda: edit(another_schema),
    "a sliding window": lambda: named(window(6, keep=6)),
    "an async hook": lambda: slow(system_of_its_time),
    "a wrapper and the system text": lambda: wrap(system_of_its_time),
    "a wrapper and the tools": lambda: wrap(tools_in_another_order),
    "a wrapper and a description": lambda: wrap(a_tool_described_anew),
    "a wrapper and the first message": lambda: wrap(first_message_changed),
    "a wrapper and old results": lambda: wrap(old_results_cleared),
    "a wrapper and a message in front": lambda: wrap(a_message_in_front),
}
CHATS = {
    "the system text of each chat": lambda: edit(system_of_its_time, "preChat"),
    "the tools of each chat": lambda: edit(tools_in_another_order, "preChat"),
}


def bystanders():
    """Hooks that change requests, but always in the same way, before and after the culprit."""

    def constant(ctx):
        return ctx.request.replace(system=f"{ctx.request.system} Be kind.")

    def reminder(ctx):
        return ctx.request.replace(messages=(*ctx.request.messages, user("Go on.")))

    async def same(ctx, proceed):
        return await proceed(ctx.request.replace(system=f"{ctx.request.system} Be brief."))

    return [
        *budget(steps=99),
        *redact("secret"),
        *truncate(),
        *retry(),
        *log(),
        define_hook("preRequest", constant, name="constant", priority=5),
        define_hook("preRequest", reminder, name="reminder", priority=-5),
        define_hook("aroundRequest", same, name="same", priority=-5),
        define_hook("aroundRequest", same, name="same too", priority=5),
    ]


async def loop(hooks, *, steps=STEPS, tokens=100, report=None, **options):
    turns = [Turn(tool_calls=[call("look", n=n)], usage=USED) for n in range(steps)]
    model = ScriptedModel(*turns, "ok")
    agent = Agent(
        model,
        tools=[look, other],
        system="Be helpful. " * 40,
        hooks=[*hooks, *watch_prefix(report, tokens=tokens)],
        limits=Limits(steps=steps + 5),
        **options,
    )
    return await collect(agent.chat_stream("go"))


USED = Usage(input_tokens=9000, cache_read_tokens=1234, output_tokens=1)


def warnings(caplog):
    return [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]


@pytest.mark.parametrize("case", LOOP)
async def test_the_warning_names_the_hook_that_moved_the_prefix_of_a_loop(case, caplog):
    await loop([*bystanders(), LOOP[case]()])
    (warning,) = warnings(caplog)
    assert warning.startswith("hook 'culprit' moves")
    assert "the provider read 1,234 of 9,000 input tokens from its cache" in warning


@pytest.mark.parametrize("case", CHATS)
async def test_the_warning_names_the_hook_that_moved_the_prefix_of_each_chat(case, caplog):
    model = ScriptedModel(*["ok " * 200] * 6)
    hooks = [*bystanders(), CHATS[case](), *watch_prefix(tokens=100)]
    agent = Agent(model, tools=[look, other], system="Be helpful. " * 40, hooks=hooks)
    conversation = Conversation()
    for _ in range(6):
        await agent.chat("go", conversation=conversation)
    (warning,) = warnings(caplog)
    assert warning.startswith("hook 'culprit' moves")


def test_there_are_twenty_planted_cases():
    assert len(LOOP) + len(CHATS) == 20


async def test_hooks_that_only_add_to_requests_are_not_named(caplog):
    figures = []
    events = await loop(bystanders(), report=figures.append)
    assert len(figures) == STEPS
    assert {figure.hook for figure in figures} == {None}
    assert not warnings(caplog)
    assert not [event for event in events if isinstance(event, Status)]


async def test_a_hook_that_moves_the_prefix_rarely_has_a_status_but_no_warning(caplog):
    events = await loop([*bystanders(), *window(14, keep=4)])
    moves = [event.data for event in events if isinstance(event, Status)]
    assert {move["hook"] for move in moves} == {"window"}
    assert 1 <= len(moves) <= 3
    assert not warnings(caplog)


async def test_each_hook_is_logged_once(caplog):
    hooks = [edit(system_of_its_time), *watch_prefix(tokens=10)]
    agent = Agent(ScriptedModel(*["ok"] * 9), hooks=hooks, system="Be kind. " * 9)
    for _ in range(3):
        conversation = Conversation()
        for _ in range(3):
            await agent.chat("go", conversation=conversation)
    assert len(warnings(caplog)) == 1


async def test_a_system_text_that_moves_by_itself_is_not_a_hooks_fault(caplog):
    numbers = count()
    model = ScriptedModel(*["ok " * 100] * 4)
    agent = Agent(
        model, system=lambda run: f"{next(numbers)} " * 99, hooks=[log(), watch_prefix(tokens=10)]
    )
    conversation = Conversation()
    for _ in range(4):
        await agent.chat("go", conversation=conversation)
    (warning,) = warnings(caplog)
    assert warning.startswith("no hook, but the history of agent 'agent' moves")


async def test_an_answer_from_a_cache_is_no_request(caplog):
    figures = []
    model = ScriptedModel("ok")
    agent = Agent(model, hooks=[cache(), watch_prefix(figures.append)])
    for _ in range(3):
        await agent.chat("go")
    assert figures == []


async def test_a_fallback_to_another_model_moves_the_prefix():
    figures = []
    failing = ScriptedModel("ok " * 100, OverloadedError("no"), name="first")
    second = ScriptedModel("ok", name="second")
    agent = Agent(
        failing,
        hooks=[fallback(second), watch_prefix(figures.append, tokens=9)],
    )
    conversation = Conversation()
    for _ in range(2):
        await agent.chat("go", conversation=conversation)
    (figure,) = figures
    assert (figure.hook, figure.prefix.differs, figure.prefix.share) == ("fallback", "model", 0.0)


async def test_a_report_that_raises_is_logged_and_the_chat_goes_on(caplog):
    def report(figure):
        raise ValueError("no room")

    events = await loop([], report=report)
    assert events[-1].response.text == "ok"
    assert any("watch_prefix" in record.getMessage() for record in caplog.records)


async def test_a_request_that_only_adds_loses_nothing():
    model = ScriptedModel("one", "two")
    conversation = Conversation()
    agent = Agent(model, system="Be kind.", tools=[look])
    for text in ("a", "b"):
        await agent.chat(text, conversation=conversation)
    meter = PrefixMeter()
    first, second = model.requests
    assert meter.measure(first) is None
    prefix = meter.measure(second)
    assert (prefix.lost, prefix.differs, prefix.reused) == (0, None, 1.0)
    assert 0.5 < prefix.share < 1.0
    shorter = meter.measure(first)
    assert (shorter.differs, shorter.share) == ("messages[1]", 1.0)
    assert shorter.lost > 0
