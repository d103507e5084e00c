"""preMessage and onMessage: before and after each commit; and the messages' ids and roles."""

import asyncio
import contextlib
import copy
import pickle
from typing import Any

import pytest

from hookline import (
    Agent,
    AssistantMessage,
    Continue,
    Conversation,
    Image,
    Message,
    Stop,
    Text,
    ToolCall,
    ToolMessage,
    UserMessage,
    check_history,
    tool,
)
from hookline.errors import ChatAbortedError, HistoryError, HookReturnError
from hookline.events import MessageAdded
from hookline.testing import ScriptedModel, Turn, call, collect


class Boom(Exception):
    pass


@tool
async def look(q: str = "") -> str:
    """Look it up."""
    return f"found {q}"


def by_role(role: str, change: Any) -> Any:
    """A hook that does something to the messages of one role."""
    return lambda ctx: change(ctx.message) if ctx.message.role == role else None


def line(message: Message) -> str:
    return f"{message.role} {message.text}".strip()


def agent_of(*turns: Any, **options: Any) -> Agent[Any]:
    return Agent(ScriptedModel(*turns), tools=[look], **options)


# ── when they fire ──────────────────────────────────────────────────────────────────────────


async def test_they_fire_around_every_commit_user_assistant_and_tool() -> None:
    out: list[str] = []
    agent = agent_of(["Let me see.", call("look", q="x")], "It is x.")
    agent.add_hook("preMessage", lambda ctx: out.append(f"pre {line(ctx.message)}"))
    agent.add_hook("onMessage", lambda ctx: out.append(f"on {line(ctx.message)}"))
    await agent.chat("hi")
    said = ["user hi", "assistant Let me see.", "tool found x", "assistant It is x."]
    assert out == [f"{when} {each}" for each in said for when in ("pre", "on")]


async def test_the_message_is_in_history_after_onMessage_and_not_before_preMessage() -> None:
    seen: list[Any] = []
    agent = agent_of(["a", call("look")], "ok")
    agent.add_hook("preMessage", lambda ctx: seen.append(len(ctx.run.history)))
    agent.add_hook("onMessage", lambda ctx: seen.append(len(ctx.run.history)))
    agent.add_hook("onMessage", lambda ctx: seen.append(ctx.run.history[-1] is ctx.message))
    await agent.chat("hi")
    assert seen == [0, 1, True, 1, 2, True, 2, 3, True, 3, 4, True]


async def test_the_text_of_a_Stop_is_a_message_like_any_other() -> None:
    out: list[str] = []
    agent = agent_of()
    agent.add_hook("preRequest", lambda ctx: Stop("closed", text="We are closed."))
    agent.add_hook("preMessage", lambda ctx: out.append(f"pre {line(ctx.message)}"))
    agent.add_hook("onMessage", lambda ctx: out.append(f"on {line(ctx.message)}"))
    await agent.chat("hi")
    assert out[2:] == ["pre assistant We are closed.", "on assistant We are closed."]


async def test_the_input_of_a_Continue_is_a_message_like_any_other() -> None:
    out: list[str] = []
    agent = agent_of("one", "two")
    agent.add_hook("preStop", lambda ctx: Continue("go on") if ctx.continuations == 0 else None)
    agent.add_hook("preMessage", lambda ctx: out.append(f"pre {line(ctx.message)}"))
    agent.add_hook("onMessage", lambda ctx: out.append(f"on {line(ctx.message)}"))
    await agent.chat("hi")
    assert out[4:6] == ["pre user go on", "on user go on"]


async def test_messages_given_with_the_conversation_pass_no_hook() -> None:
    out: list[str] = []
    said = [UserMessage(parts=(Text("old"),)), AssistantMessage(parts=(Text("answer"),))]
    agent = agent_of("ok")
    agent.add_hook("preMessage", lambda ctx: out.append(line(ctx.message)))
    await agent.chat("hi", conversation=Conversation(said))
    assert out == ["user hi", "assistant ok"]


# ── preMessage ──────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("role", ["user", "assistant", "tool"])
async def test_what_preMessage_returns_is_what_is_committed(role: str) -> None:
    """In history, in later requests, in MessageAdded, in onMessage, in the response."""
    seen: list[str] = []
    model = ScriptedModel(["one", call("look", q="x")], "two")
    agent = Agent(model, tools=[look])
    agent.add_hook(
        "preMessage",
        by_role(role, lambda message: message.replace(text="changed") if message.text else None),
    )
    agent.add_hook("onMessage", lambda ctx: seen.append(ctx.message.text))
    conversation = Conversation()
    events = await collect(agent.chat_stream("hi", conversation=conversation))
    was = {"user": ["hi"], "assistant": ["one", "two"], "tool": ["found x"]}
    expected = [
        "changed" if text in was[role] else text for text in ["hi", "one", "found x", "two"]
    ]
    added = [e.message.text for e in events if isinstance(e, MessageAdded)]
    assert [m.text for m in conversation.messages] == expected
    assert [m.text for m in model.last_request.messages] == expected[:3]
    assert [m.text for m in events[-1].response.messages] == expected
    assert added == seen == expected
    assert events[-1].response.text == expected[-1]


async def test_preMessage_is_a_chain() -> None:
    agent = agent_of("a")
    for text in "bc":
        agent.add_hook(
            "preMessage",
            by_role("assistant", lambda m, text=text: m.replace(text=m.text + text)),
        )
    assert (await agent.chat("hi")).text == "abc"


async def test_an_async_preMessage_is_awaited() -> None:
    async def hook(ctx: Any) -> Any:
        await asyncio.sleep(0)
        return ctx.message.replace(text=ctx.message.text + "!")

    agent = agent_of("a")
    agent.add_hook("preMessage", hook)
    response = await agent.chat("hi")
    assert [m.text for m in response.messages] == ["hi!", "a!"]


async def test_replacing_the_text_of_a_user_message_keeps_its_pictures() -> None:
    picture = Image(url="https://example.org/a.png")
    agent = agent_of("ok")
    agent.add_hook("preMessage", by_role("user", lambda m: m.replace(text="***")))
    response = await agent.chat([Text("look at"), picture, Text("this")])
    assert response.messages[0] == UserMessage(
        id=response.messages[0].id, parts=(Text("***"), picture)
    )


async def test_an_assistant_message_keeps_its_calls_when_its_text_is_replaced() -> None:
    agent = agent_of(["a", call("look", call_id="c")], "ok")
    agent.add_hook("preMessage", by_role("assistant", lambda m: m.replace(text="b")))
    response = await agent.chat("hi")
    message = response.messages[1]
    assert isinstance(message, AssistantMessage)
    assert message.parts == (Text("b"), ToolCall(id="c", name="look"))


async def test_the_text_of_an_answer_with_calls_can_be_removed() -> None:
    conversation = Conversation()
    agent = agent_of(["a", call("look", call_id="c")], "ok")
    agent.add_hook(
        "preMessage", by_role("assistant", lambda m: m.replace(text="") if m.tool_calls else None)
    )
    await agent.chat("hi", conversation=conversation)
    message = conversation.messages[1]
    assert isinstance(message, AssistantMessage)
    assert message.parts == (ToolCall(id="c", name="look"),)


WRONG: list[Any] = [
    pytest.param("user", lambda m: AssistantMessage(id=m.id, parts=m.parts), id="another-role"),
    pytest.param("user", lambda m: m.replace(id="mine"), id="another-id-of-user"),
    pytest.param("assistant", lambda m: m.replace(id="mine"), id="another-id-of-assistant"),
    pytest.param("tool", lambda m: m.replace(id="mine"), id="another-id-of-tool"),
    pytest.param(
        "assistant", lambda m: UserMessage(id=m.id, parts=(Text("x"),)), id="assistant-to-user"
    ),
    pytest.param("assistant", lambda m: m.replace(parts=(Text("a"),)), id="calls-dropped"),
    pytest.param(
        "assistant",
        lambda m: m.replace(parts=(*m.parts, call("look", call_id="new"))),
        id="calls-added",
    ),
    pytest.param(
        "assistant",
        lambda m: m.replace(parts=tuple(p.replace(arguments={"q": "y"}) for p in m.tool_calls)),
        id="arguments-changed",
    ),
    pytest.param("tool", lambda m: m.replace(call_id="other"), id="another-call"),
    pytest.param("tool", lambda m: m.replace(name="other"), id="another-tool"),
    pytest.param("user", lambda m: "text", id="str"),
    pytest.param("user", lambda m: False, id="bool"),
    pytest.param("user", lambda m: Stop("x"), id="Stop"),
    pytest.param("user", lambda m: (m,), id="tuple"),
]


@pytest.mark.parametrize(("role", "change"), WRONG)
async def test_preMessage_keeps_role_calls_and_ids(role: str, change: Any) -> None:
    """`Message` (same role, calls and ids); anything else is a HookReturnError."""
    agent = agent_of([call("look", q="x", call_id="c")], "ok")
    agent.add_hook("preMessage", by_role(role, change), name="my_hook")
    with pytest.raises(HookReturnError, match=r"my_hook.*preMessage"):
        await agent.chat("hi")


async def test_a_throw_in_preMessage_commits_nothing() -> None:
    error = Boom()
    out: list[str] = []
    conversation = Conversation()

    def boom(ctx: Any) -> None:
        raise error

    agent = agent_of()
    agent.add_hook("preMessage", boom)
    agent.add_hook("preMessage", lambda ctx: out.append("later"))
    agent.add_hook("onMessage", lambda ctx: out.append("onMessage"))
    with pytest.raises(Boom) as caught:
        await agent.chat("hi", conversation=conversation)
    assert caught.value is error
    assert (out, conversation.messages) == ([], ())


async def test_an_answer_that_preMessage_refused_is_not_kept_another_way() -> None:
    """I7: it is asked at most once, and what it threw at is not kept as a partial answer."""
    asked: list[Any] = []
    conversation = Conversation()

    def guard(ctx: Any) -> None:
        if ctx.message.role == "assistant":
            asked.append(ctx.message.partial)
            if len(asked) == 1:
                raise Boom

    agent = agent_of("secret")
    agent.add_hook("preMessage", guard)
    with pytest.raises(Boom):
        await agent.chat("hi", conversation=conversation)
    assert asked == [False]
    assert [m.text for m in conversation.messages] == ["hi"]


async def test_a_result_that_no_hook_would_have_is_still_shown_as_it_is_stored() -> None:
    """12.3: its MessageAdded when it is committed, also where the hooks have failed."""
    conversation = Conversation()
    agent = agent_of([call("look", q="x"), call("look", q="y")], parallel_tools=False)

    def refuse(ctx: Any) -> None:
        if ctx.message.role == "tool":
            raise Boom

    agent.add_hook("preMessage", refuse)
    events: list[Any] = []
    with pytest.raises(Boom):
        await collect(agent.chat_stream("hi", conversation=conversation), events)
    added = [e.message for e in events if isinstance(e, MessageAdded)]
    assert tuple(added) == conversation.messages
    check_history(conversation.messages)


async def test_on_error_log_keeps_the_last_good_message() -> None:
    def boom(ctx: Any) -> None:
        raise Boom

    agent = agent_of("a")
    agent.add_hook("preMessage", by_role("assistant", lambda m: m.replace(text="b")))
    agent.add_hook("preMessage", boom, on_error="log")
    assert (await agent.chat("hi")).text == "b"


# ── onMessage ───────────────────────────────────────────────────────────────────────────────


async def test_onMessage_cannot_change_the_message() -> None:
    agent = agent_of("a")
    agent.add_hook("onMessage", lambda ctx: ctx.message.replace(text="b"))
    assert (await agent.chat("hi")).text == "a"


@pytest.mark.parametrize("how", ["raises", "aborts"])
@pytest.mark.parametrize("role", ["user", "assistant", "tool"])
async def test_after_a_throw_or_abort_in_onMessage_the_message_stands_once(
    role: str, how: str
) -> None:
    """Each message is committed once and only once; the history stays valid."""
    conversation = Conversation()

    def hook(ctx: Any) -> None:
        if ctx.message.role == role:
            if how == "raises":
                raise Boom
            ctx.run.abort("enough")

    agent = agent_of(["a", call("look", q="x")], "ok")
    dispose = agent.add_hook("onMessage", hook)
    with pytest.raises((Boom, ChatAbortedError)):
        await agent.chat("hi", conversation=conversation)
    kept = [line(m) for m in conversation.messages]
    assert kept[0] == "user hi"
    assert kept[1:2] == ([] if role == "user" else ["assistant a"])
    assert len(kept) == (1 if role == "user" else 3)
    assert not any(m.partial for m in conversation.messages if isinstance(m, AssistantMessage))
    check_history(conversation.messages)
    dispose()
    following = Agent(ScriptedModel("fine"))
    assert (await following.chat("again", conversation=conversation)).text == "fine"


async def test_a_call_whose_message_stands_and_which_was_not_begun_has_an_aborted_result() -> None:
    conversation = Conversation()
    ran: list[str] = []

    @tool
    async def act() -> None:
        ran.append("act")

    agent = Agent(ScriptedModel([call("act", call_id="c")]), tools=[act])

    def abort(ctx: Any) -> None:
        if ctx.message.role == "assistant":
            ctx.run.abort("enough")

    agent.add_hook("onMessage", abort)
    with pytest.raises(ChatAbortedError):
        await agent.chat("hi", conversation=conversation)
    assert ran == []
    result = conversation.messages[-1]
    assert isinstance(result, ToolMessage)
    assert (result.call_id, result.outcome) == ("c", "aborted")


# ── ids, roles ──────────────────────────────────────────────────────────────────────────────


async def test_every_message_has_an_id_and_no_two_have_the_same() -> None:
    conversation = Conversation()
    agent = agent_of(["a", call("look"), call("look")], "b", ["c", call("look")], "d")
    await agent.chat("hi", conversation=conversation)
    await agent.chat("more", conversation=conversation)
    ids = [m.id for m in conversation.messages]
    assert all(ids)
    assert len(set(ids)) == len(ids) == 9


async def test_two_chats_of_one_agent_make_different_ids() -> None:
    agent = agent_of("a", "a")
    first, second = await agent.chat("hi"), await agent.chat("hi")
    assert {m.id for m in first.messages}.isdisjoint(m.id for m in second.messages)


async def test_the_id_of_a_message_is_known_to_preMessage() -> None:
    seen: list[str] = []
    agent = agent_of("a")
    agent.add_hook("preMessage", lambda ctx: seen.append(ctx.message.id))
    response = await agent.chat("hi")
    assert seen == [m.id for m in response.messages]


async def test_an_id_that_the_user_gave_is_kept() -> None:
    response = await agent_of("a").chat(UserMessage(id="mine", parts=(Text("hi"),)))
    assert response.messages[0].id == "mine"


async def test_an_id_that_the_conversation_has_is_refused_before_the_chat_begins() -> None:
    began: list[str] = []
    agent, talk = agent_of("a", "b"), Conversation()
    message = UserMessage(id="mine", parts=(Text("hi"),))
    await agent.chat(message, conversation=talk)
    before = talk.messages
    agent.add_hook("onChatStart", lambda ctx: began.append(ctx.run.chat_id))
    with pytest.raises(HistoryError, match="already has a message with the id 'mine'"):
        await agent.chat(message, conversation=talk)
    assert (began, talk.messages) == ([], before)


async def test_the_roles_of_a_chat_alternate_as_they_should() -> None:
    agent = agent_of([call("look"), call("look")], [call("look")], "ok")
    response = await agent.chat("hi")
    assert "".join(m.role[0] for m in response.messages) == "uattata"


async def test_an_assistant_message_tells_what_the_model_said_of_it() -> None:
    response = await agent_of(Turn("a", finish_reason="length")).chat("hi")
    message = response.messages[-1]
    assert isinstance(message, AssistantMessage)
    assert (message.finish_reason, message.model, message.partial) == ("length", "scripted", False)
    assert message.usage == response.usage


async def test_a_tool_message_names_its_call() -> None:
    response = await agent_of([call("look", q="x", call_id="c")], "ok").chat("hi")
    assert response.messages[2] == ToolMessage(
        id=response.messages[2].id, call_id="c", name="look", text="found x", outcome="ok"
    )


@pytest.mark.parametrize("point", ["onMessage", "onResponse", "preToolCall"])
async def test_the_arguments_of_a_call_are_not_changed_behind_the_back(point: Any) -> None:
    """Every payload is immutable: what runs and what is kept is what was *returned*."""
    agent = agent_of([call("look", q="x", call_id="c")], "ok")

    def meddle(ctx: Any) -> None:
        holder = getattr(ctx, "message", None) or getattr(ctx, "response", None)
        for made in [ctx.call] if holder is None else getattr(holder, "tool_calls", ()):
            with contextlib.suppress(TypeError):
                made.arguments["q"] = "evil"

    agent.add_hook(point, meddle)
    response = await agent.chat("hi")
    message = response.messages[1]
    assert isinstance(message, AssistantMessage)
    assert [made.arguments for made in message.tool_calls] == [{"q": "x"}]
    assert response.messages[2].text == "found x"


async def test_a_copy_of_a_calls_arguments_is_a_plain_dict_of_the_copys_own() -> None:
    response = await agent_of([call("look", q="x", call_id="c")], "ok").chat("hi")
    message = response.messages[1]
    assert isinstance(message, AssistantMessage)
    arguments = message.tool_calls[0].arguments
    copies = [copy.copy(arguments), copy.deepcopy(arguments), pickle.loads(pickle.dumps(arguments))]
    for mine in copies:
        assert type(mine) is dict
        mine["q"] = "changed"
    assert arguments == {"q": "x"}


async def test_a_message_is_frozen() -> None:
    response = await agent_of("a").chat("hi")
    message: Any = response.messages[0]
    with pytest.raises(AttributeError):
        message.parts = ()
    with pytest.raises(AttributeError):
        message.parts[0].text = "x"
