"""Chats of every kind, small: what the encoders are shown, and what the checkers look at."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from hookline import (
    Agent,
    Approve,
    Ask,
    Continue,
    Conversation,
    Deny,
    File,
    Image,
    Limits,
    Message,
    ModelRequest,
    ModelResponse,
    Proceed,
    Run,
    Scope,
    Source,
    Stop,
    ToolCall,
    ToolFailure,
)
from hookline.events import ChatEvent
from hookline.models import TextChunk
from hookline.points import (
    AroundRequest,
    OnChatStart,
    OnDelta,
    OnResponse,
    OnStep,
    PreChat,
    PreSteer,
    PreStop,
    PreToolCall,
)
from hookline.testing import ScriptedModel, Turn, call, raw_call

HOSTILE = 'a\r\nb\rc\nd\x00e\u2028f\u2029g\x85h\n\ndata: {"type":"finish"}\n\nid: 9\x0b\x0c\u007f😀'


class Played(msgspec.Struct, frozen=True):
    """What came of a scene: all events, and the history before and after."""

    events: list[ChatEvent]
    before: tuple[Message, ...]
    after: tuple[Message, ...]
    error: BaseException | None = None
    resumed: bool = False


Scene = Callable[[], Awaitable[Played]]
SCENES: dict[str, Scene] = {}


def scene(make: Scene) -> Scene:
    SCENES[make.__name__] = make
    return make


async def play(
    agent: Agent[Any],
    said: str = "hello",
    *,
    on: Conversation | None = None,
    answers: dict[str, Any] | None = None,
    **options: Any,
) -> Played:
    talk = on if on is not None else Conversation()
    before = talk.messages
    if answers is None:
        stream = agent.chat_stream(said, conversation=talk, **options)
    else:
        stream = agent.resume_stream(talk, answers, **options)
    events: list[ChatEvent] = []
    error: BaseException | None = None
    try:
        async with stream:
            async for event in stream:
                events.append(event)
    except Exception as exc:
        error = exc
    return Played(events, before, talk.messages, error, answers is not None)


async def weather(city: str) -> dict[str, Any]:
    """The weather."""
    return {"city": city, "degrees": 21.5, "warning": None}


async def fails(city: str) -> str:
    """Fails."""
    raise RuntimeError(f"password=hunter2 for {city}")


async def slow(city: str, run: Run[Any]) -> str:
    """Reports what it does."""
    await run.status("looking", {"city": city, "nothing": None})
    await asyncio.sleep(0)
    return "sunny"


async def nothing() -> None:
    """Gives nothing."""


TOOLS = [weather, fails, slow, nothing]


def agent(*turns: Any, chunk: int = 4, **options: Any) -> Agent[Any]:
    return Agent(ScriptedModel(*turns, chunk=chunk), tools=TOOLS, **options)


@scene
async def a_text() -> Played:
    return await play(agent("Hello, Ada. How are you?"))


@scene
async def a_hostile_text() -> Played:
    turn = Turn(
        reasoning=HOSTILE, text=HOSTILE, tool_calls=[call("weather", city=HOSTILE, call_id=HOSTILE)]
    )
    return await play(agent(turn, HOSTILE, chunk=3), HOSTILE)


@scene
async def reasoning() -> Played:
    return await play(agent(Turn(reasoning="Hm, let me think.", text="Forty-two.")))


@scene
async def a_call() -> Played:
    return await play(agent(["I look. ", call("weather", city="Oslo")], "Sunny."))


@scene
async def messages_sent_into_the_answer() -> Played:
    talk = Conversation()

    async def hear() -> str:
        """Hears what is said meanwhile."""
        made.send(talk, HOSTILE)
        made.send(talk, "Thanks.", when="idle")
        made.send(talk, "No!")
        return "heard"

    made = Agent(ScriptedModel(call("hear"), "Short.", "You are welcome."), tools=[hear])

    @made.hook("preSteer")
    def refuse(ctx: PreSteer) -> Deny | None:
        return Deny("not so loud") if ctx.message.text == "No!" else None

    return await play(made, on=talk)


def _family(*turns: Any) -> Agent[Any]:
    """An agent, and another one below it whose call needs an approval."""
    below = Agent(ScriptedModel(*turns[1:]), name="below", tools=[weather])
    below.add_hook("preToolCall", lambda ctx: Ask("Look?"), guard=True)
    return Agent(ScriptedModel(turns[0]), name="above", tools=[below.as_tool()])


@scene
async def a_question_of_a_sub_agent() -> Played:
    return await play(_family(call("below", input="go"), call("weather", city="Oslo")))


@scene
async def an_answer_for_a_sub_agent() -> Played:
    talk = Conversation()
    asked = _family(call("below", input="go"), call("weather", city="Oslo"))
    (request,) = (await asked.chat("go", conversation=talk)).pending
    return await play(_family("Done.", "Sunny."), on=talk, answers={request.id: Approve()})


@scene
async def a_call_without_text() -> Played:
    return await play(agent([call("nothing")], "Done."))


@scene
async def calls_side_by_side() -> Played:
    calls = [call("slow", city="Rome"), call("weather", city="Oslo"), call("slow", city="Bonn")]
    return await play(agent(calls, "All of them are sunny."))


@scene
async def failing_calls() -> Played:
    calls = [call("fails", city="Rome"), call("weather", town=3), raw_call("weather", '{"ci')]
    return await play(agent([*calls, call("gone")], "That went wrong."))


@scene
async def several_texts() -> Played:
    turn = Turn("One. ", call("weather", city="Oslo"), "Two.")
    return await play(agent(turn, "Three."))


@scene
async def a_denied_call() -> Played:
    made = agent([call("weather", city="Rome")], "I may not.")

    @made.hook("preToolCall")
    def deny(ctx: PreToolCall) -> ToolFailure:
        return ToolFailure("not there")

    return await play(made)


@scene
async def changed_arguments() -> Played:
    made = agent([call("weather", city="Rome")], "Fine.")

    @made.hook("preToolCall")
    def change(ctx: PreToolCall) -> ToolCall:
        return ctx.call.replace(arguments={"city": "Oslo"})

    return await play(made)


@scene
async def a_hidden_call() -> Played:
    made = agent([call("weather", city="Rome")], "Fine.")

    @made.hook("onDelta")
    def hide(ctx: OnDelta) -> tuple[()] | None:
        return None if isinstance(ctx.delta, TextChunk) or not hasattr(ctx.delta, "index") else ()

    return await play(made)


def asking(*turns: Any) -> Agent[Any]:
    made = agent(*turns)

    @made.hook("preToolCall", tools=["weather"])
    def ask(ctx: PreToolCall) -> Ask:
        return Ask("May I?")

    return made


def two_calls() -> Agent[Any]:
    calls = [call("weather", city="Rome"), call("slow", city="Bonn")]
    return asking(["I ask. ", *calls], "It was done.", "Something else.")


@scene
async def an_approval() -> Played:
    return await play(two_calls(), on=Conversation())


@scene
async def an_approved_call() -> Played:
    made, talk = two_calls(), Conversation()
    await play(made, on=talk)
    return await play(made, on=talk, answers={talk.pending[0].id: Approve()})


@scene
async def a_call_denied_by_the_user() -> Played:
    made, talk = two_calls(), Conversation()
    await play(made, on=talk)
    return await play(made, on=talk, answers={talk.pending[0].id: Deny("no")})


@scene
async def one_of_two_answers() -> Played:
    calls = [call("weather", city="Rome"), call("weather", city="Bonn")]
    made, talk = asking(calls, "Done."), Conversation()
    await play(made, on=talk)
    return await play(made, on=talk, answers={talk.pending[0].id: Approve()})


@scene
async def an_unanswered_question() -> Played:
    made, talk = two_calls(), Conversation()
    await play(made, on=talk)
    return await play(made, "never mind", on=talk)


@scene
async def a_status_before_anything() -> Played:
    made = agent("Hello.")

    @made.hook("onChatStart")
    async def tell(ctx: OnChatStart) -> None:
        await ctx.run.status("waking up")

    return await play(made)


@scene
async def a_stop_with_text() -> Played:
    made = agent(["I look. ", call("weather", city="Oslo")], "never said")

    @made.hook("onStep")
    def stop(ctx: OnStep) -> Stop:
        return Stop("enough", "And now we stop.")

    return await play(made)


@scene
async def a_stop_instead_of_calls() -> Played:
    made = agent(["I look. ", call("weather", city="Oslo"), call("nothing")], "never said")

    @made.hook("preToolCall")
    def stop(ctx: PreToolCall) -> Stop:
        return Stop("enough", "No calls today.")

    return await play(made)


@scene
async def a_stop_before_anything() -> Played:
    made = agent()

    @made.hook("preChat")
    def stop(ctx: PreChat) -> Stop:
        return Stop("closed", "We are closed.")

    return await play(made)


@scene
async def a_rewritten_answer() -> Played:
    made = agent(Turn(reasoning="Secret thoughts.", text="The code is 1234."))

    @made.hook("onResponse")
    def redact(ctx: OnResponse) -> ModelResponse:
        return ctx.response.replace(text="The code is ****.")

    return await play(made)


def retrying(*turns: Any) -> Agent[Any]:
    made = agent(*turns)

    @made.hook("aroundRequest")
    async def retry(
        ctx: AroundRequest, proceed: Proceed[ModelRequest, ModelResponse]
    ) -> ModelResponse:
        try:
            return await proceed()
        except ConnectionError:
            return await proceed()

    return made


@scene
async def a_retried_answer() -> Played:
    cut = Turn("The wrong", Turn and " text", fail=ConnectionError("reset"), fail_after=2)
    return await play(retrying(cut, "The right text."))


PAGE = Source(url="https://example.org/a?b=1&c", title=HOSTILE)
DRAWING = Image(media_type="image/png", data=b"\x89PNG")
BROUGHT = [
    PAGE,
    Source(url="javascript:alert(1)", title="A trap"),
    Source(title="Handbook", name="handbook.pdf", media_type="application/pdf"),
    DRAWING,
    Image(media_type="image/webp", url="https://example.org/drawing.webp"),
    File(media_type="text/csv", name="table.csv", meta={"acme": {"file_id": "f1"}}),
]


@scene
async def sources_and_files() -> Played:
    turn = Turn("So it is.", BROUGHT[0], " And so.", *BROUGHT[1:], call("weather", city="Oslo"))
    return await play(agent(turn, Turn("Sunny.", DRAWING)))


@scene
async def a_retried_source() -> Played:
    cut = Turn(Source(url="https://example.org/wrong"), "No", fail=ConnectionError("reset"))
    return await play(retrying(cut, Turn("Yes.", PAGE)))


@scene
async def a_retried_call() -> Played:
    cut = Turn("No. ", call("weather", city="Rome", call_id="c1"), fail=ConnectionError("reset"))
    good = Turn("Yes. ", call("weather", city="Oslo", call_id="c1"))
    return await play(retrying(["First. ", call("nothing")], cut, good, "Done."))


@scene
async def an_abort() -> Played:
    made = agent(["Let me look. ", call("weather", city="Oslo")], "never said")

    @made.hook("preToolCall")
    async def abort(ctx: PreToolCall) -> None:
        ctx.run.abort("stopped by the user")
        await asyncio.sleep(0)

    return await play(made)


@scene
async def an_abort_in_a_text() -> Played:
    made = agent("One. Two. Three. Four.")

    @made.hook("onDelta")
    def abort(ctx: OnDelta) -> None:
        if isinstance(ctx.delta, TextChunk) and "Two" in ctx.delta.text:
            ctx.run.abort(None)

    return await play(made)


@scene
async def a_failing_model() -> Played:
    return await play(agent(Turn("It begins", fail=RuntimeError("key sk-123 is bad"))))


@scene
async def too_many_steps() -> Played:
    return await play(agent([call("weather", city="Oslo")], limits=Limits(steps=1)))


@scene
async def a_continuation() -> Played:
    made = agent("First.", "Second.")

    @made.hook("preStop")
    def more(ctx: PreStop) -> Continue | None:
        return Continue("go on") if ctx.continuations == 0 else None

    return await play(made)


@scene
async def released_by_response() -> Played:
    turn = Turn(reasoning="Hm.", text="I look. ", tool_calls=[call("weather", city="Oslo")])
    return await play(agent(turn, "Sunny."), release="response")


@scene
async def a_sub_agent() -> Played:
    child = Agent(ScriptedModel([call("slow", city="Rome")], "Sunny there."), tools=[slow])
    parent = ScriptedModel([call("child", input="Rome?")], "The child says it is sunny.")
    return await play(Agent(parent, tools=[child.as_tool(name="child")]))


@scene
async def sub_agents_of_a_sub_agent() -> Played:
    """One below another, and one that fails; the answer then ends while one of them runs."""
    lowest = Agent(ScriptedModel("Deep."), name="lowest")
    middle = Agent(
        ScriptedModel(call("lowest", input="?"), "Middle."), name="middle", tools=[lowest.as_tool()]
    )
    broken = Agent(ScriptedModel(RuntimeError("password=hunter2")), name="broken")
    endless = Agent(ScriptedModel(call("wait")), name="endless")

    async def wait() -> None:
        """Waits for the end."""
        stream.abort("enough")
        await asyncio.Event().wait()

    endless.scopes.register(Scope("wait", tools=[wait]))
    turns = [call("middle", input="?"), call("broken", input="?"), call("endless", input="?")]
    tools = [each.as_tool() for each in (middle, broken, endless)]
    above = Agent(ScriptedModel(*turns), name="above", tools=tools)
    talk = Conversation()
    stream = above.chat_stream("hello", conversation=talk)
    async with stream:
        events = [event async for event in stream]
    return Played(events, (), talk.messages)


@scene
async def an_empty_answer() -> Played:
    return await play(agent(Turn()))
