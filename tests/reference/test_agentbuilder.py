"""What users of AgentBuilder can do, row by row of its table in README.md."""

import asyncio
import logging
import textwrap

import pytest

from hookline import (
    Agent,
    Conversation,
    MemoryStore,
    ModelResponse,
    Stop,
    ToolFailure,
    ToolResult,
    define_hook,
    tool,
)
from hookline.dialogue import Dialogue
from hookline.discovery import from_folder
from hookline.errors import HookOptionError, UnknownHookError, UsageError
from hookline.events import ChatStarted, Status, ToolCallFinished, ToolCallStarted
from hookline.hooks import budget
from hookline.points import TABLE
from hookline.testing import ScriptedModel, Turn, call, collect

try:
    from hookline import MessageChanges
except ImportError:  # as long as the points of message updates are not there
    MessageChanges = None

from ._play import Boom, agent_of, names, only, requests, results, roles, sums, void


def noting(out, name):
    return lambda ctx: void(out.append(name))


def start(out, name, **options):
    return define_hook("onChatStart", noting(out, name), **options)


# ── declared hooks ──────────────────────────────────────────────────────────────────────────


async def test_010_hooks_are_found_in_a_folder_whatever_their_files_are_called(tmp_path):
    text = """
        from hookline import define_hook

        @define_hook("preMessage", id="shout")
        def shout(ctx):
            return ctx.message.replace(text=ctx.message.text.upper())
    """
    (tmp_path / "anything.py").write_text(textwrap.dedent(text))
    (tmp_path / "broken.py").write_text("import nothing_of_that_name")
    (tmp_path / "empty.py").write_text("")
    (tmp_path / "__init__.py").write_text("raise SystemExit")
    found = from_folder(tmp_path)
    assert [problem.where.rpartition("/")[2] for problem in found.problems] == [
        "broken.py",
        "empty.py",
    ]
    response = await agent_of("hello", hooks=found.hooks).chat("hi")
    assert [m.text for m in response.messages] == ["HI", "HELLO"]


@pytest.mark.parametrize("id", ["Upper", "1st", "with-dash"])
def test_011_an_id_is_snake_case_and_unique(id):
    with pytest.raises(HookOptionError, match=r"lowercase letters.*begin with a letter"):
        start([], "a", id=id)
    with pytest.raises(UsageError, match="two hooks have the id 'log'"):
        agent_of(hooks=[start([], "a", id="log"), start([], "b", id="log")])
    agent_of(hooks=[start([], "a", id="log_1"), start([], "b", id="log_2")])


async def test_012_a_chats_list_replaces_the_agents_and_an_empty_one_switches_them_off():
    out = []
    known = [start(out, "chat", id="chat")]
    agent = agent_of(hooks=[start(out, "agent", id="agent")], known_hooks=known)
    await agent.chat("hi")
    await agent.chat("hi", only_hooks=["chat"])
    await agent.chat("hi", only_hooks=[])
    assert out == ["agent", "chat"]


async def test_013_an_unknown_id_is_never_silent():
    agent = agent_of(hooks=[start([], "a", id="redact")])
    with pytest.raises(
        UnknownHookError,
        match=r"'redcat' \(did you mean 'redact'\?\). Use one of the known names \(redact",
    ):
        await agent.chat("hi", hooks=["redcat"])


async def test_014_a_plugin_brings_hooks_before_and_after_those_of_the_parent():
    """A tool may not install hooks on its caller; who uses it does, in the order wanted."""
    out = []
    kid = Agent(ScriptedModel("hi"), name="kid")

    async def child(agent):
        agent.add_hook("onChatStart", noting(out, "before"), priority=1)
        agent.add_hook("onChatStart", noting(out, "after"), priority=-1)

    agent = agent_of(tools=[kid.as_tool()], hooks=[start(out, "one"), start(out, "two")])
    await agent.use(child)
    await agent.chat("hi")
    assert out == ["before", "one", "two", "after"]


async def test_015_who_brought_a_hook_can_be_seen():
    agent = agent_of(hooks=[start([], "a", id="mine")])
    await agent.use([start([], "b", id="theirs")], name="billing")
    agent.add_hook("onChatStart", void)
    origins = {info.id: info.origin for info in agent.hooks()}
    assert origins == {"mine": "agent", "theirs": "plugin billing", None: "add_hook"}


async def test_018_none_is_unchanged_at_every_point():
    agent = agent_of(sums, "done", system="Be nice.")
    for point in (
        "preChat",
        "preRequest",
        "onResponse",
        "preMessage",
        "preToolCall",
        "onToolCallResult",
    ):
        agent.add_hook(point, void)
    response = await agent.chat("hi")
    assert (results(response), requests(agent)[0].system) == ([("ok", "3")], "Be nice.")


async def test_019_each_sees_what_the_one_before_returned():
    agent = agent_of("a")
    for letter in "bc":
        agent.add_hook(
            "preMessage",
            lambda ctx, letter=letter: ctx.message.replace(text=ctx.message.text + letter),
        )
    response = await agent.chat("x")
    assert [m.text for m in response.messages] == ["xbc", "abc"]


async def test_022_what_event_hooks_return_is_ignored():
    agent = agent_of("text")
    agent.add_hook("onMessage", lambda ctx: {"content": "changed"})
    assert (await agent.chat("hi")).text == "text"


# ── errors ──────────────────────────────────────────────────────────────────────────────────


async def test_039_a_hook_that_may_fail_is_logged_and_the_last_good_value_goes_on(caplog):
    agent = agent_of("a")
    edit = lambda ctx: ctx.response.replace(text=ctx.response.text + "1")  # noqa: E731

    def fail(ctx):
        raise Boom

    agent.add_hook("onResponse", edit)
    agent.add_hook("onResponse", fail, on_error="log")
    agent.add_hook("onResponse", edit)
    with caplog.at_level(logging.WARNING, logger="hookline"):
        assert (await agent.chat("hi")).text == "a11"
    assert "onResponse raised: Boom" in caplog.text


async def test_040_each_hook_has_its_own_rule():
    agent = agent_of("ok", "ok")

    def fail(ctx):
        raise Boom

    agent.add_hook("preRequest", fail, on_error="log")
    assert (await agent.chat("hi")).text == "ok"
    agent.add_hook("preRequest", fail)
    with pytest.raises(Boom):
        await agent.chat("hi")


# ── the model's history ─────────────────────────────────────────────────────────────────────


async def test_053_a_new_thread_and_a_new_child_are_seen():
    out = []
    kid = Agent(ScriptedModel("hi"), name="kid")
    mum = agent_of(call("kid", input="x"), "one", "two", tools=[kid.as_tool()])

    @mum.hook("onChatStart", inherit=True)
    def note(ctx):
        if ctx.run.parent_chat_id is not None:
            out.append(f"child {ctx.run.agent}")
        elif not ctx.run.history:
            out.append("new thread")

    conversation = Conversation()
    await mum.chat("hi", conversation=conversation)
    await mum.chat("ho", conversation=conversation)
    assert out == ["new thread", "child kid"]


async def test_065_messages_may_be_filtered_for_the_model_and_stay_in_storage():
    agent = agent_of("one", "two")
    agent.add_hook(
        "preRequest", lambda ctx: ctx.request.replace(messages=ctx.request.messages[-1:])
    )
    conversation = Conversation()
    await agent.chat("hi", conversation=conversation)
    await agent.chat("ho", conversation=conversation)
    assert [m.text for m in requests(agent)[1].messages] == ["ho"]
    assert len(conversation.messages) == 4


async def test_066_the_list_that_goes_to_the_model_is_the_last_hooks():
    agent = agent_of()

    @agent.hook("aroundRequest", priority=-1000)
    async def last(ctx, proceed):
        messages = tuple(m.replace(text=m.text.upper()) for m in ctx.request.messages)
        return await proceed(ctx.request.replace(messages=messages))

    await agent.chat("hi")
    assert requests(agent)[0].messages[0].text == "HI"


async def test_067_the_system_text_may_be_changed_when_it_is_whole():
    agent = agent_of("ok", "ok", system=lambda run: f"You are {run.agent}.")
    agent.add_hook("preRequest", lambda ctx: None)
    await agent.chat("hi")
    agent.add_hook("preRequest", lambda ctx: ctx.request.replace(system=ctx.request.system.upper()))
    await agent.chat("hi")
    assert [each.system for each in requests(agent)] == ["You are agent.", "YOU ARE AGENT."]


# ── tools ───────────────────────────────────────────────────────────────────────────────────


async def test_090_a_call_is_seen_while_it_is_written_when_it_starts_and_when_it_is_done():
    agent = agent_of(Turn(sums, chunk=4), "done")
    events = await collect(agent.chat_stream("hi"))
    kinds = names(events)
    assert kinds.index("ToolCallDelta") < kinds.index("ToolCallStarted")
    assert kinds.index("ToolCallStarted") < kinds.index("ToolCallFinished")
    assert len(only(events, ToolCallStarted)) == len(only(events, ToolCallFinished)) == 1


async def test_091_success_may_become_failure_and_failure_success():
    agent = agent_of([sums, call("broken")], "done")
    agent.add_hook("onToolCallResult", lambda ctx: ToolFailure("too small"), tools=["add"])
    agent.add_hook("onToolCallError", lambda ctx: ToolResult("recovered"), tools=["broken"])
    response = await agent.chat("hi")
    assert [outcome for outcome, _ in results(response)] == ["error", "ok"]
    assert results(response)[1][1] == "recovered"


async def test_092_a_result_is_replaced_and_never_removed():
    """What users removed a call for: the model is not to see what it came to."""
    agent = agent_of(sums, "done")
    agent.add_hook("onToolCallResult", lambda ctx: ToolResult(None))
    response = await agent.chat("hi")
    assert results(response) == [("ok", "null")]
    assert roles(requests(agent)[1].messages) == ["user", "assistant", "tool"]


async def test_093_the_last_edit_of_a_result_before_it_is_stored():
    out = []
    agent = agent_of([sums, call("nope")], "done")
    agent.add_hook("onToolCallResult", noting(out, "onToolCallResult"))
    agent.add_hook("onToolCallError", noting(out, "onToolCallError"))

    @agent.hook("preMessage")
    def store(ctx):
        if ctx.message.role != "tool":
            return None
        out.append("preMessage")
        return ctx.message.replace(text="stored")

    agent.add_hook(
        "onMessage", lambda ctx: out.append("onMessage") if ctx.message.role == "tool" else None
    )
    response = await agent.chat("hi")
    assert [text for _, text in results(response)] == ["stored", "stored"]
    assert out.index("onToolCallResult") < out.index("preMessage") < out.index("onMessage")


# ── messages ────────────────────────────────────────────────────────────────────────────────


async def test_095_before_each_message_is_written_once():
    out = []
    agent = agent_of("answer")

    @agent.hook("preMessage")
    def before(ctx):
        out.append((ctx.message.role, ctx.message.text))
        return ctx.message.replace(text=f"[{ctx.message.text}]")

    conversation = Conversation()
    await agent.chat("hi", conversation=conversation)
    assert out == [("user", "hi"), ("assistant", "answer")]
    assert [m.text for m in conversation.messages] == ["[hi]", "[answer]"]


async def test_096_after_a_message_was_written_a_failure_may_be_logged(caplog):
    out = []
    agent = agent_of()

    def fail(ctx):
        raise Boom

    agent.add_hook("onMessage", fail, on_error="log")
    agent.add_hook("onMessage", lambda ctx: out.append(ctx.message.role))
    with caplog.at_level(logging.WARNING, logger="hookline"):
        await agent.chat("hi")
    assert out == ["user", "assistant"]


@pytest.mark.xfail(
    "preMessageUpdate" not in TABLE, reason="message updates come with conversations that last"
)
async def test_097_before_and_after_a_message_is_updated_and_live_and_stored_agree():
    out = []
    store = MemoryStore()
    agent = agent_of("one", store=store)
    await agent.chat("hi", conversation="talk")
    conversation = await store.open("talk")
    agent.add_hook(
        "preMessageUpdate",
        lambda ctx: ctx.changes.replace(text=ctx.changes.text.upper()),
    )
    agent.add_hook("onMessageUpdate", lambda ctx: out.append(ctx.message.text))
    answer = conversation.messages[-1]
    changed = await agent.update_message(conversation, answer.id, MessageChanges(text="changed"))
    assert changed.text == conversation.messages[-1].text == "CHANGED"
    assert (await store.open("talk")).messages[-1].text == "CHANGED"
    assert out == ["CHANGED"]


async def test_102_a_threads_messages_are_kept_by_its_id():
    store = MemoryStore()
    agent = agent_of("one", "two", store=store)
    for thread in ("a", "b"):
        await agent.chat("hi", conversation=thread)
    for thread, answer in (("a", "one"), ("b", "two")):
        assert [m.text for m in (await store.open(thread)).messages] == ["hi", answer]


# ── the run ─────────────────────────────────────────────────────────────────────────────────


async def test_104_a_hook_may_block_a_run_before_the_model_is_asked():
    agent = agent_of()
    agent.add_hook("preRequest", lambda ctx: Stop("hook_blocked", "I may not talk about that."))
    conversation = Conversation()
    response = await agent.chat("hi", conversation=conversation)
    assert (response.stop_reason, response.text) == ("hook_blocked", "I may not talk about that.")
    assert requests(agent) == []
    assert roles(conversation.messages) == ["user", "assistant"]


async def test_106_a_limit_ends_with_a_reason():
    agent = agent_of(*[sums] * 9, hooks=[budget(steps=3)])
    response = await agent.chat("hi")
    assert (response.stop_reason, len(requests(agent))) == ("steps_limit", 3)


async def test_140_no_tool_runs_after_an_abort():
    ran = []

    @tool
    async def work() -> None:
        ran.append(1)

    agent = agent_of([call("work"), call("work")], tools=[work])
    agent.add_hook("preToolCall", lambda ctx: void(ctx.run.abort("user")))
    out = []
    agent.add_hook("onChatAbort", lambda ctx: out.append(ctx.reason))
    await asyncio.gather(agent.chat("hi"), return_exceptions=True)
    assert (ran, out) == ([], ["user"])


async def test_151_calls_in_order_where_one_wants_it():
    out = []

    @tool(parallel=False)
    async def step(n: int) -> None:
        out.append(n)
        await asyncio.sleep(0)
        out.append(n)

    await agent_of([call("step", n=n) for n in range(3)], "done", tools=[step]).chat("hi")
    assert out == [0, 0, 1, 1, 2, 2]


async def test_153_only_tools_offered_in_this_turn_run():
    ran = []

    @tool
    async def hidden() -> None:
        ran.append(1)

    agent = agent_of(call("hidden"), "done", tools=[hidden])
    agent.add_hook("preRequest", lambda ctx: ctx.request.replace(tools=()))
    response = await agent.chat("hi")
    assert (ran, results(response)[0][0]) == ([], "error")


async def test_155_a_call_may_wait_for_a_person():
    from hookline import Ask

    agent = agent_of(sums, "done", hooks=[define_hook("preToolCall", lambda ctx: Ask("May it?"))])
    response = await agent.chat("hi", conversation=Conversation())
    assert [each.call.name for each in response.pending] == ["add"]


async def test_158_a_child_is_a_chat_of_its_own_waited_for_or_not():
    kid = Agent(ScriptedModel("hi", "hi"), name="kid")
    done = asyncio.Event()
    tasks = []

    @tool
    async def later(input: str) -> str:
        """Ask the kid and do not wait."""
        tasks.append(asyncio.create_task(kid.chat(input)))
        done.set()
        return "asked"

    mum = agent_of(
        [call("kid", input="x"), call("later", input="y")], "done", tools=[kid.as_tool(), later]
    )
    response = await mum.chat("hi")
    assert [text for _, text in results(response)] == ["hi", "asked"]
    assert (await tasks[0]).text == "hi"


async def test_164_a_script_with_delays_errors_and_checks_of_what_it_is_asked():
    def check(request):
        assert request.messages[-1].text == "hi"
        return Turn("ok", delay=0.0)

    model = ScriptedModel(check, Boom("later"))
    agent = Agent(model)
    assert (await agent.chat("hi")).text == "ok"
    with pytest.raises(Boom):
        await agent.chat("hi")
    model.done()


# ── the examples of its document ────────────────────────────────────────────────────────────


async def test_169_two_sides_take_turns_and_one_may_be_told_to_speak():
    sides = [Agent(ScriptedModel(f"{name}1", f"{name}2"), name=name) for name in ("a", "b")]
    dialogue = Dialogue(*sides, turns=3)
    dialogue.send("Talk.")
    spoke = []
    async for event in dialogue:
        if isinstance(event, ChatStarted):
            spoke.append(event.agent)
            if spoke == ["a", "b"]:
                dialogue.say("b")
                dialogue.send("Once more.")
    assert spoke == ["a", "b", "b"]


async def test_recipe_log_created_messages():
    out = []
    agent = agent_of(hooks={"onMessage": lambda ctx: out.append(f"{ctx.message.role} created")})
    await agent.chat("hi")
    assert out == ["user created", "assistant created"]


async def test_recipe_a_status_while_a_tool_is_called():
    agent = agent_of(sums, "done")
    agent.add_hook("preToolCall", lambda ctx: ctx.run.status("calling", ctx.call.name))
    events = await collect(agent.chat_stream("hi"))
    assert [each.data for each in only(events, Status)] == ["add"]


async def test_recipe_an_answer_of_ones_own():
    agent = agent_of()
    agent.add_hook("preChat", lambda ctx: ModelResponse.of("Closed today."))
    assert (await agent.chat("hi")).text == "Closed today."
