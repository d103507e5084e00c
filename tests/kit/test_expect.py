"""`expect` finds the calls of a chat, and its failures can be read."""

import pytest

from hookline import Agent, Approve, Ask, Conversation, Deny, Response, tool
from hookline.errors import UsageError
from hookline.models import Rates
from hookline.testing import ScriptedModel, call, collect, expect

PRICES = {"scripted": Rates(input=1_000_000, output=1_000_000)}


@tool
def refund(amount: int, to: str = "ann") -> str:
    """Pay money back."""
    return f"refunded {amount} to {to}"


@tool
def mail(to: str) -> str:
    """Write to somebody."""
    raise ValueError(f"{to} has no address")


@tool
def delete(account: str) -> str:
    """Delete an account."""
    return f"{account} is deleted"


def policy(ctx):
    if ctx.call.name == "delete":
        return Deny("accounts stay")
    amount = ctx.call.arguments.get("amount", 0)
    if amount > 50:
        return Ask("is that right?")
    return ctx.call.replace(arguments={"amount": 7, "to": "bob"}) if amount == 6 else None


def people(request, run):
    if request.call.arguments["amount"] > 100:
        return Deny("too much", by="ann")
    return Approve(arguments={"amount": 9})


def make_agent():
    model = ScriptedModel(
        [call("refund", amount=3), call("refund", amount=6)],
        [call("mail", to="ann"), call("delete", account="bob")],
        [call("refund", amount=60), call("refund", amount=600)],
        "All is done.",
    )
    agent = Agent(model, tools=[refund, mail, delete])
    agent.add_hook("preToolCall", policy)
    return agent


@pytest.fixture
async def response():
    return await make_agent().chat("go", approver=people)


async def test_the_arguments_are_those_that_ran(response):
    chat = expect(response)
    chat.called("refund", amount=3).before("mail")
    chat.called("refund", amount=7, to="bob")
    chat.called("refund", amount=9).after("mail")
    chat.called("refund", times=3).called("refund", times=0, amount=60)
    chat.called("refund", amount=lambda amount: amount < 5)
    chat.called("mail", outcome="error", to="ann")
    chat.asked("refund", amount=9).asked("refund", amount=600)
    chat.denied("delete", reason="accounts stay").denied("refund", reason="too much", amount=600)
    chat.not_called("delete").not_called("refund", amount=6).not_called("refund", amount=60)
    chat.text(contains="done", matches=r"^All .*\.$").steps_below(5).cost_below(1_000, PRICES)


async def test_a_stream_and_its_response_say_the_same():
    stream = make_agent().chat_stream("go", approver=people)
    chat = expect(await collect(stream))
    chat.called("refund", amount=9).after("mail")
    chat.denied("delete").asked("refund", amount=600).steps_below(5).text(contains="done")


async def test_a_call_that_waits_was_asked_and_has_not_ended():
    agent = Agent(ScriptedModel([call("refund", amount=60)]), tools=[refund])
    agent.add_hook("preToolCall", policy)
    chat = expect(await agent.chat("go", conversation=Conversation()))
    chat.asked("refund", amount=60)
    chat.called("refund", outcome="waiting")
    with pytest.raises(AssertionError):
        chat.called("refund")
    with pytest.raises(AssertionError):
        chat.not_called("refund")


async def test_a_call_that_a_resumed_chat_has_run_counts():
    agent = Agent(ScriptedModel([call("refund", amount=60)], "Done.", "Bye."), tools=[refund])
    agent.add_hook("preToolCall", policy)
    conversation = Conversation()
    [request] = (await agent.chat("go", conversation=conversation)).pending
    response = await agent.resume(conversation, {request.id: Approve()})
    chat = expect(response)
    chat.called("refund").asked("refund").text(contains="Done")
    for check in (chat.not_called, chat.called):  # the chat before it has the arguments
        with pytest.raises(
            AssertionError, match=r"refund\(of an earlier chat\) -> ok: 'refunded 60"
        ):
            check("refund", amount=60)
    expect(await agent.chat("again", conversation=conversation)).not_called("refund")


async def test_the_arguments_of_an_approver_are_those_of_a_resumed_call():
    agent = Agent(ScriptedModel([call("refund", amount=60)], "Done."), tools=[refund])
    agent.add_hook("preToolCall", policy)
    conversation = Conversation()
    [request] = (await agent.chat("go", conversation=conversation)).pending
    answers = {request.id: Approve(arguments={"amount": 9})}
    chat = expect(await agent.resume(conversation, answers))
    chat.called("refund", amount=9).not_called("refund", amount=60)


async def test_the_events_of_sub_agents_do_not_count():
    inner = Agent(ScriptedModel([call("refund", amount=3)], "done"), name="inner", tools=[refund])
    outer = Agent(ScriptedModel([call("inner", input="go")], "done"), tools=[inner.as_tool()])
    events = await collect(outer.chat_stream("go"))
    assert any(event.path for event in events)
    expect(events).called("inner", times=1).not_called("refund")


CALLS = """
the calls of the chat:
  refund(amount=3) -> ok: 'refunded 3 to ann'
  refund(amount=7, to='bob') -> ok: 'refunded 7 to bob'
  mail(to='ann') -> error: '{"error":{"type":"ValueError","message":"ann has no address"}}'
  delete(account='bob') -> denied: '{"error":{"type":"Denied","message":"accounts stay"}}'
  refund(amount=9) -> ok: 'refunded 9 to ann'
  refund(amount=600) -> denied: '{"error":{"type":"Denied","message":"too much"}}'"""

FAILURES = {
    "expected refund(amount=4) -> ok": lambda chat: chat.called("refund", amount=4),
    "expected refund(amount=6) -> ok": lambda chat: chat.called("refund", amount=6),
    "expected refund(cause='broken') -> ok": lambda chat: chat.called("refund", cause="broken"),
    "expected pay() -> ok": lambda chat: chat.called("pay"),
    "expected delete() -> ok": lambda chat: chat.called("delete"),
    "expected refund() -> error": lambda chat: chat.called("refund", outcome="error"),
    "expected refund() -> ok, 2 times; it was called 3 times": (
        lambda chat: chat.called("refund", times=2)
    ),
    "expected refund() -> ok, 0 times; it was called 3 times": (
        lambda chat: chat.called("refund", times=0)
    ),
    "expected no mail()": lambda chat: chat.not_called("mail"),
    "expected no refund(amount=9)": lambda chat: chat.not_called("refund", amount=9),
    "expected mail() -> denied": lambda chat: chat.denied("mail"),
    "expected delete() -> denied because 'they go'": (
        lambda chat: chat.denied("delete", reason="they go")
    ),
    "expected an approval to be requested for mail()": lambda chat: chat.asked("mail"),
    "expected an approval to be requested for refund(amount=3)": (
        lambda chat: chat.asked("refund", amount=3)
    ),
    "expected mail before refund": lambda chat: chat.called("mail", outcome="error").before(
        "refund"
    ),
    "expected refund after mail": lambda chat: chat.called("refund", amount=3).after("mail"),
    "expected a call of pay": lambda chat: chat.called("refund").before("pay"),
    "expected a text with 'sorry', but the answer is 'All is done.'": (
        lambda chat: chat.text(contains="sorry")
    ),
    r"expected a text that matches '\\d', but the answer is 'All is done.'": (
        lambda chat: chat.text(matches=r"\d")
    ),
    "expected fewer than 4 steps, but the chat had 4": lambda chat: chat.steps_below(4),
}


@pytest.mark.parametrize("line", FAILURES)
async def test_a_failure_lists_the_calls(line, response):
    with pytest.raises(AssertionError) as caught:
        FAILURES[line](expect(response))
    assert str(caught.value) == line + CALLS


async def test_an_argument_may_be_named_like_an_option(response):
    with pytest.raises(AssertionError, match=r"expected refund\(times=3, outcome='x'\) -> ok"):
        expect(response).called("refund", {"times": 3, "outcome": "x"})


async def test_a_failure_names_a_predicate(response):
    def is_large(amount):
        return amount > 1_000

    with pytest.raises(AssertionError, match=r"expected refund\(amount=<is_large>\) -> ok"):
        expect(response).called("refund", amount=is_large)


async def test_a_cost_that_is_too_high_and_one_that_is_unknown(response):
    with pytest.raises(AssertionError, match="expected a cost below 1, but the answers cost "):
        expect(response).cost_below(1, PRICES)
    with pytest.raises(UsageError, match="no price of the model 'scripted'"):
        expect(response).cost_below(1, {"other": Rates(input=1, output=1)})


def test_a_place_needs_a_call():
    with pytest.raises(UsageError, match=r"first: called\(…\)\.before"):
        expect(Response(chat_id="c")).before("refund")


async def test_a_chat_without_a_response_says_so():
    agent = Agent(ScriptedModel(ValueError("away")))
    stream = agent.chat_stream("go")
    events = []
    with pytest.raises(ValueError, match="away"):
        await collect(stream, events)
    with pytest.raises(AssertionError, match="it ended without one\nthe calls of the chat: none"):
        expect(events).steps_below(3)
