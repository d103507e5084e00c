"""What one chat may be told in place of the agent's: each keyword, on `chat` and on `resume`."""

from __future__ import annotations

import asyncio
import inspect
from functools import partial
from typing import Any

import pytest

from hookline import (
    Agent,
    ApprovalRequest,
    Approve,
    Ask,
    ChatRequest,
    Conversation,
    Deny,
    Limits,
    MemoryStore,
    Run,
    Scope,
    Settings,
    Stop,
    Text,
    UserMessage,
    tool,
)
from hookline._chat.config import ChatOptions
from hookline._record.runtime import LOCAL
from hookline.errors import (
    HookReturnError,
    MaxStepsError,
    ScopeError,
    UsageError,
)
from hookline.events import ChatStarted
from hookline.points import PreChat
from hookline.runtimes import Durable, Halted, Journal
from hookline.testing import ScriptedModel, TestRuntime, Turn, call, collect

WAYS = ["chat", "chat_stream", "resume", "resume_stream"]


@tool
async def look(q: str = "") -> str:
    return f"seen {q}"


@tool
async def extra() -> str:
    return "extra"


# ── the signature ───────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("way", WAYS)
def test_the_keywords_stand_in_the_signature(way: str) -> None:
    given = inspect.signature(getattr(Agent, way)).parameters
    named = [name for name, each in given.items() if each.kind is each.KEYWORD_ONLY]
    wanted = [
        *("conversation", "deps", "state", "hooks", "only_hooks", "model", "system", "tools"),
        *("settings", "limits", "approver", "output", "output_retries", "output_validators"),
        *("release", "runtime", "chat_id"),
    ]
    assert named == [each for each in wanted if "resume" not in way or each != "conversation"]
    assert not [each for each in given.values() if each.kind is each.VAR_KEYWORD]


@pytest.mark.parametrize("way", WAYS)
def test_each_keyword_is_handed_on_with_its_type(way: str) -> None:
    """The methods hand on their `locals()`, where mypy sees no types."""
    fields: dict[str, Any] = dict(ChatOptions.__annotations__, deps="DepsT | None")
    named = inspect.signature(getattr(Agent, way)).parameters
    positional = {"self", "input", "conversation", "answers"}
    assert {name for name in fields if name not in named} == set()
    for name, each in named.items():
        assert name in positional or fields[name].replace("msgspec.", "") == each.annotation, name


def test_the_docs_of_chat_explain_each_keyword() -> None:
    text = inspect.getdoc(Agent.chat) or ""
    given = inspect.signature(Agent.chat).parameters
    assert [name for name in given if name != "self" and f"    {name}: " not in text] == []


# ── model, system, settings, tools, limits ──────────────────────────────────────────────────


async def test_a_chat_may_ask_another_model() -> None:
    usual, other = ScriptedModel("usual"), ScriptedModel("other")
    agent = Agent(usual)
    assert (await agent.chat("hi", model=other)).text == "other"
    assert (await agent.chat("hi")).text == "usual"


async def test_a_chat_is_refused_a_model_that_is_not_one() -> None:
    model: Any = 3
    with pytest.raises(UsageError, match="3 is not a Model"):
        await Agent(ScriptedModel()).chat("hi", model=model)


@pytest.mark.parametrize(
    ("system", "sent"),
    [
        pytest.param("Be brief.", "Be brief.", id="a text"),
        pytest.param(lambda run: f"You are {run.agent}.", "You are agent.", id="a function"),
        pytest.param("", None, id="none"),
        pytest.param(None, "Be kind.", id="the agent's"),
    ],
)
async def test_a_chat_may_have_a_system_text_of_its_own(system: Any, sent: str | None) -> None:
    model = ScriptedModel("ok")
    await Agent(model, system="Be kind.").chat("hi", system=system)
    assert model.last_request.system == sent


async def test_settings_of_a_chat_change_only_the_fields_that_they_name() -> None:
    model = ScriptedModel("ok", "ok")
    agent = Agent(model, settings=Settings(temperature=0.5, max_tokens=10))
    await agent.chat("hi", settings=Settings(max_tokens=20))
    assert model.last_request.settings == Settings(temperature=0.5, max_tokens=20)
    await agent.chat("hi")
    assert model.last_request.settings == Settings(temperature=0.5, max_tokens=10)


async def test_limits_of_a_chat_change_only_the_fields_that_they_name() -> None:
    calls = [call("look"), call("look")]
    agent = Agent(
        ScriptedModel(calls, calls, "ok", calls, calls),
        tools=[look],
        limits=Limits(tool_calls=1, steps=3),
    )
    response = await agent.chat("hi")
    assert [each.outcome for each in response.tool_results] == ["ok", "error"] * 2
    with pytest.raises(MaxStepsError):
        await agent.chat("hi", limits=Limits(steps=1))


async def test_tools_of_a_chat_are_added_and_are_gone_after_it() -> None:
    model = ScriptedModel([call("extra"), call("look")], "ok", call("extra"), "ok")
    agent = Agent(model, tools=[look])
    seen: list[str] = []
    agent.add_hook("preToolCall", lambda ctx: seen.append(ctx.scope.label if ctx.scope else ""))
    response = await agent.chat("hi", tools=[extra])
    assert [each.text for each in response.tool_results] == ["extra", "seen "]
    assert [each.name for each in model.last_request.tools] == ["look", "extra"]
    assert seen == ["chat", "agent"]
    response = await agent.chat("hi")
    assert [each.outcome for each in response.tool_results] == ["error"]
    assert [scope.label for scope in agent.scopes] == ["agent"]


async def test_a_tool_whose_name_the_agent_has_is_refused_before_the_chat_starts() -> None:
    @tool(name="look")
    async def other() -> str:
        return "other"

    model, events = ScriptedModel(), list[str]()
    agent = Agent(model, tools=[look])
    agent.add_hook("onChatStart", lambda ctx: events.append("started"))
    with pytest.raises(ScopeError, match="'look' is taken by scope 'agent'"):
        await agent.chat("hi", tools=[other])
    assert events == []


async def test_a_tool_that_a_scope_brings_later_is_hidden_from_a_chat_that_has_one(
    caplog: pytest.LogCaptureFixture,
) -> None:
    @tool(name="extra")
    async def later() -> str:
        return "later"

    @tool
    async def more() -> str:
        return "more"

    model = ScriptedModel(call("look"), [call("extra"), call("more")], "ok", call("extra"), "ok")
    agent = Agent(model, tools=[look])

    @agent.hook("onToolCallResult", tools=["look"])
    def register(ctx: Any) -> None:
        agent.scopes.register(Scope("late", tools=[later, more]))

    response = await agent.chat("hi", tools=[extra])
    assert [each.text for each in response.tool_results] == ["seen ", "extra", "more"]
    assert sorted(each.name for each in model.last_request.tools) == ["extra", "look", "more"]
    assert caplog.text.count("tool 'extra' was registered, but a chat's own") == 1
    response = await agent.chat("hi")
    assert [each.text for each in response.tool_results] == ["later"]


async def test_what_a_chat_is_given_does_not_reach_its_sub_agents() -> None:
    inner = ScriptedModel("inner")
    child = Agent(inner, name="child", system="child's")
    parent = Agent(ScriptedModel("never"), tools=[child.as_tool()])
    outer = ScriptedModel(call("child", input="x"), "outer")
    await parent.chat(
        "hi", model=outer, system="Be brief.", tools=[extra], settings=Settings(seed=1)
    )
    assert inner.last_request.system == "child's"
    assert inner.last_request.tools == ()
    assert inner.last_request.settings == Settings()


async def test_a_chat_that_is_told_to_has_nobody_to_ask() -> None:
    agent = Agent(ScriptedModel(call("look")), tools=[look], approver=lambda *_: Approve())
    agent.add_hook("preToolCall", lambda ctx: Ask("may it?"))
    response = await agent.chat("hi", approver=None, conversation=Conversation())
    assert response.stop_reason == "approval"


# ── the runtime ─────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("way", WAYS)
async def test_a_chat_may_have_a_runtime_of_its_own(way: str) -> None:
    agent, _ = asking(call("look"), "ok", call("look"), "ok", tools=[look])
    conversation, options = Conversation(), {"runtime": TestRuntime(time=7.0)}
    given: tuple[Any, ...] = ("hi",)
    if "resume" in way:
        given = await waiting(agent)
        conversation = given[0]
    else:
        options["conversation"] = conversation
    started = getattr(agent, way)(*given, **options)
    await (collect(started) if "stream" in way else started)
    last = conversation.messages[-1]
    assert (last.chat_id, last.at) == ("chat-1", 7.0)
    assert agent.runtime is LOCAL


async def test_an_agent_that_goes_on_after_a_handoff_has_the_runtime_of_the_chat() -> None:
    clerk = Agent(ScriptedModel(), name="clerk")
    clerk.handoffs(Agent(ScriptedModel(), name="helper", runtime=TestRuntime(time=3.0)))
    model = ScriptedModel(call("transfer_to_helper"), "here I am")
    response = await clerk.chat("hi", model=model, runtime=TestRuntime(time=7.0))
    assert [message.at for message in response.messages] == [7.0] * 4


async def test_a_sub_agent_keeps_its_own_runtime() -> None:
    child = Agent(ScriptedModel("inner"), name="child", runtime=TestRuntime(time=3.0))
    times: list[float | None] = []
    child.add_hook("onMessage", lambda ctx: times.append(ctx.message.at))
    parent = Agent(ScriptedModel(call("child", input="x"), "outer"), tools=[child.as_tool()])
    response = await parent.chat("hi", runtime=TestRuntime(time=7.0))
    assert times == [3.0, 3.0]
    assert {message.at for message in response.messages} == {7.0}


async def test_a_chat_of_an_agent_that_is_not_durable_may_go_on_after_a_crash() -> None:
    runs: list[str] = []

    @tool
    async def pay() -> str:
        runs.append("paid")
        return "paid"

    agent = Agent(ScriptedModel(call("pay"), "Done."), tools=[pay])
    log = ListLog(dies_after="run")
    chat = partial(agent.chat, "pay", chat_id="one", runtime=Durable())
    with pytest.raises(Halted):
        await (await Journal.open("one", log)).carry(chat)
    response = await (await Journal.open("one", log)).carry(chat)
    assert (response.text, runs) == ("Done.", ["paid"])


class ListLog:
    """A log in memory. The process dies once, at the first batch after that of a step's end."""

    def __init__(self, *, dies_after: str) -> None:
        self.batches: list[bytes] = []
        self.last: str | None = dies_after

    async def read(self) -> list[bytes]:
        return list(self.batches)

    async def append(self, data: bytes) -> None:
        if self.last is not None and any(f'/{self.last}","value"' in str(b) for b in self.batches):
            self.last = None
            raise Halted
        self.batches.append(data)

    async def answer(self, request: ApprovalRequest) -> Deny:
        return Deny("nobody is asked")

    def poke(self) -> None:
        """Nothing is suspended here."""


@pytest.mark.parametrize("wrong", [3, Durable, "durable", object()], ids=type)
async def test_what_is_no_runtime_is_refused_by_chats_and_agents(wrong: Any) -> None:
    model = ScriptedModel("ok")
    with pytest.raises(UsageError, match=r"is not a runtime: .* pass an object such as Durable"):
        await Agent(model).chat("hi", runtime=wrong)
    with pytest.raises(UsageError, match="is not a runtime"):
        Agent(model, runtime=wrong)
    assert model.requests == []


# ── resume ──────────────────────────────────────────────────────────────────────────────────


async def waiting(agent: Agent[Any], **options: Any) -> tuple[Conversation, dict[str, Any]]:
    conversation = Conversation()
    response = await agent.chat("hi", conversation=conversation, **options)
    return conversation, {each.id: Approve() for each in response.pending}


def asking(*turns: Any, **options: Any) -> tuple[Agent[Any], ScriptedModel]:
    model = ScriptedModel(*turns)
    agent: Agent[Any] = Agent(model, **options)
    agent.add_hook("preToolCall", lambda ctx: Ask("may it?"))
    return agent, model


async def test_resume_beats_what_preChat_stored() -> None:
    agent, model = asking(call("look"), "ok", tools=[look])

    @agent.hook("preChat")
    def prepare(ctx: PreChat) -> ChatRequest:
        settings = Settings(temperature=0.1, max_tokens=5)
        return ctx.request.replace(
            system="preChat's", settings=settings, tools=ctx.request.tools[:1]
        )

    conversation, answers = await waiting(agent)
    await agent.resume(
        conversation,
        answers,
        system="resume's",
        settings=Settings(max_tokens=7),
        tools=[extra],
    )
    request = model.last_request
    assert request.system == "resume's"
    assert request.settings == Settings(temperature=0.1, max_tokens=7)
    assert [each.name for each in request.tools] == ["look", "extra"]


async def test_a_resumed_chat_that_is_given_nothing_has_what_preChat_stored() -> None:
    agent, model = asking(call("look"), "ok", tools=[look])
    agent.add_hook("preChat", lambda ctx: ctx.request.replace(system="preChat's"))
    conversation, answers = await waiting(agent)
    await agent.resume(conversation, answers)
    assert model.last_request.system == "preChat's"


async def test_a_tool_of_a_chat_must_be_given_again_to_resume_it() -> None:
    agent, model = asking(call("extra"), "ok", tools=[look])
    conversation, answers = await waiting(agent, tools=[extra])
    with pytest.raises(UsageError, match="tool 'extra' no longer exists"):
        await agent.resume(conversation, answers)
    assert [each.id for each in conversation.pending] == list(answers)
    response = await agent.resume(conversation, answers, tools=[extra])
    assert [each.text for each in response.tool_results] == ["extra"]
    assert len(model.requests) == 2


async def test_a_call_without_a_tool_can_be_denied() -> None:
    agent, _ = asking(call("extra"), "ok", tools=[look])
    conversation, answers = await waiting(agent, tools=[extra])
    response = await agent.resume(conversation, dict.fromkeys(answers, Deny("no")))
    assert [each.outcome for each in response.tool_results] == ["denied"]


async def test_the_json_of_run_state_is_there_when_the_chat_is_resumed() -> None:
    agent, _ = asking(call("look"), "ok", tools=[look], store=MemoryStore())
    seen: list[dict[str, Any]] = []

    @agent.hook("onChatStart")
    def begin(ctx: Any) -> None:
        seen.append(dict(ctx.run.state))
        ctx.run.state.setdefault("spent", {"tokens": 3})
        ctx.run.state["live"] = object()

    response = await agent.chat("hi", conversation="one", state={"kept": 1, "changed": 1})
    answers = {each.id: Approve() for each in response.pending}
    await agent.resume("one", answers, state={"changed": 2})
    assert seen == [
        {"kept": 1, "changed": 1},
        {"kept": 1, "changed": 2, "spent": {"tokens": 3}},
    ]


# ── chat_id ─────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("chat_id", ["", "a.b", "ä", "x" * 65, "a b", "a\n"])
async def test_an_id_that_no_store_or_url_would_take_is_refused(chat_id: str) -> None:
    with pytest.raises(UsageError, match="must be 1 to 64 characters"):
        await Agent(ScriptedModel()).chat("hi", chat_id=chat_id)


async def test_a_chat_has_the_id_that_it_was_given() -> None:
    stream = Agent(ScriptedModel("ok")).chat_stream("hi", chat_id="order_17-A")
    assert stream.chat_id == "order_17-A"
    assert {event.chat_id for event in await collect(stream)} == {"order_17-A"}


async def test_an_id_that_is_running_is_refused_and_free_again_after_it() -> None:
    gate = asyncio.Event()
    agent = Agent(ScriptedModel(Turn("one", delay=gate.wait), "two"))
    async with agent.chat_stream("hi", chat_id="a") as stream:
        await anext(stream)
        with pytest.raises(UsageError, match="a chat with this id is running"):
            await agent.chat("hi", chat_id="a")
        gate.set()
        async for _ in stream:
            pass
    assert (await agent.chat("hi", chat_id="a")).text == "two"


async def test_an_id_that_has_written_to_the_conversation_is_refused() -> None:
    agent, conversation = Agent(ScriptedModel("one", "two")), Conversation()
    await agent.chat("hi", chat_id="a", conversation=conversation)
    before = conversation.messages
    with pytest.raises(UsageError, match="a chat with this id has written"):
        await agent.chat("hi", chat_id="a", conversation=conversation)
    assert conversation.messages == before
    assert (await agent.chat("hi", chat_id="a", conversation=Conversation())).text == "two"


async def test_nor_is_one_taken_that_wrote_before_another_chat() -> None:
    agent, conversation = Agent(ScriptedModel("one", "two", "three")), Conversation()
    await agent.chat("hi", chat_id="a", conversation=conversation)
    await agent.chat("hi", chat_id="b", conversation=conversation)
    before = conversation.messages
    with pytest.raises(UsageError, match="a chat with this id has written"):
        await agent.chat("hi", chat_id="a", conversation=conversation)
    assert conversation.messages == before


# ── input=None, and blank input ─────────────────────────────────────────────────────────────


async def test_a_chat_without_input_goes_on_from_the_history() -> None:
    model = ScriptedModel("again")
    agent = Agent(model)
    seen: list[Any] = []
    agent.add_hook("onChatStart", lambda ctx: seen.append(ctx.message))
    agent.add_hook("preChat", lambda ctx: seen.append(ctx.request.message))
    conversation = Conversation([UserMessage(parts=(Text("hi"),))])
    events = await collect(agent.chat_stream(None, conversation=conversation))
    assert [each.text for each in conversation.messages] == ["hi", "again"]
    assert isinstance(events[0], ChatStarted)
    assert [events[0].message, *seen] == [None, None, None]
    assert [each.text for each in model.last_request.messages] == ["hi"]


async def test_an_answer_is_made_anew_by_restoring_the_messages_before_it() -> None:
    agent, conversation = Agent(ScriptedModel("one", "two")), Conversation()
    await agent.chat("hi", conversation=conversation)
    conversation.restore(conversation.messages[:1])
    assert (await agent.chat(None, conversation=conversation)).text == "two"
    assert [each.text for each in conversation.messages] == ["hi", "two"]


async def test_a_chat_goes_on_from_the_results_of_tools() -> None:
    agent, conversation = Agent(ScriptedModel(call("look"), "ok"), tools=[look]), Conversation()
    agent.add_hook("onStep", lambda ctx: Stop("enough"))
    await agent.chat("hi", conversation=conversation)
    assert conversation.messages[-1].role == "tool"
    assert (await agent.chat(None, conversation=conversation)).text == "ok"


async def test_without_input_a_history_that_ends_with_an_answer_is_refused() -> None:
    agent, conversation = Agent(ScriptedModel("one")), Conversation()
    await agent.chat("hi", conversation=conversation)
    with pytest.raises(UsageError, match="must have the role 'user' or 'tool', not 'assistant'"):
        await agent.chat(None, conversation=conversation)
    with pytest.raises(UsageError, match="must have the role 'user' or 'tool', not None"):
        await agent.chat(None)
    assert len(conversation.messages) == 2


async def test_without_input_what_waits_for_an_approval_must_be_resumed() -> None:
    agent, _ = asking(call("look"), tools=[look])
    conversation, _ = await waiting(agent)
    with pytest.raises(UsageError, match=r"wait for an answer; use resume\("):
        await agent.chat(None, conversation=conversation)
    assert conversation.pending


async def test_preChat_cannot_put_a_message_where_there_is_none() -> None:
    agent = Agent(ScriptedModel())
    message = UserMessage(parts=(Text("mine"),))
    agent.add_hook("preChat", lambda ctx: ctx.request.replace(message=message))
    conversation = Conversation([UserMessage(parts=(Text("hi"),))])
    with pytest.raises(HookReturnError, match="without a message"):
        await agent.chat(None, conversation=conversation)
    assert len(conversation.messages) == 1


@pytest.mark.parametrize(
    "blank",
    ["", " \n", UserMessage(parts=()), UserMessage(parts=(Text(" "),)), [], [Text("")]],
    ids=["empty", "blank", "no parts", "blank part", "empty list", "empty part"],
)
async def test_input_without_text_and_media_is_refused(blank: Any) -> None:
    conversation = Conversation()
    with pytest.raises(UsageError, match="neither text nor media"):
        await Agent(ScriptedModel()).chat(blank, conversation=conversation)
    assert conversation.messages == ()


# ── run.meta ────────────────────────────────────────────────────────────────────────────────


async def test_a_hook_reads_and_writes_the_meta_of_the_conversation() -> None:
    store = MemoryStore()
    agent = Agent(ScriptedModel("one", "two"), store=store)

    @agent.hook("onChatStart")
    def count(ctx: Any) -> None:
        ctx.run.meta["chats"] = ctx.run.meta.get("chats", 0) + 1

    await agent.chat("hi", conversation="one")
    await agent.chat("hi", conversation="one")
    stored = await store.load("one")
    assert stored is not None
    assert stored.meta == {"chats": 2}


async def test_without_a_conversation_the_meta_is_of_this_chat_alone() -> None:
    seen: list[dict[str, Any]] = []

    @tool
    async def note(run: Run) -> str:
        seen.append(dict(run.meta))
        return "ok"

    agent = Agent(ScriptedModel(call("note"), "ok", call("note"), "ok"), tools=[note])
    agent.add_hook("onChatStart", lambda ctx: ctx.run.meta.setdefault("chat", ctx.run.chat_id))
    first, second = await agent.chat("hi"), await agent.chat("hi")
    assert seen == [{"chat": first.chat_id}, {"chat": second.chat_id}]
