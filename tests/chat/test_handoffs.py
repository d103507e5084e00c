"""`agent.handoffs(a, b)`: the model hands the conversation over, and the next step is another's."""

import logging

import pytest
from tests import _recording as recording
from tests._tool_chats import settle

from hookline import Agent, Approve, Ask, Conversation, Scope, Settings, tool
from hookline.errors import MaxStepsError, ScopeError, UsageError
from hookline.events import ChatStarted, Status, ToolCallFinished
from hookline.hooks import approve
from hookline.testing import ScriptedModel, call, collect

to_billing = call("transfer_to_billing", reason="it is about money")
to_triage = call("transfer_to_triage")


@tool
async def refund(amount: int) -> str:
    """Give money back."""
    return f"{amount} given back"


def desk(triage_turns=(to_billing,), billing_turns=("I am billing.",)):
    """An agent that triages and one that it hands over to."""
    triage = Agent(ScriptedModel(*triage_turns), name="triage", system="Triage.")
    billing = Agent(
        ScriptedModel(*billing_turns),
        name="billing",
        system="Bill.",
        tools=[refund],
        scopes=[Scope("rules", context=lambda: "Be exact.")],
        settings=Settings(temperature=0.5),
    )
    triage.handoffs(billing)
    return triage, billing


def outcomes(response):
    return [(m.name, m.outcome) for m in response.messages if m.role == "tool"]


# ── what changes ────────────────────────────────────────────────────────────────────────────


async def test_the_next_step_has_the_other_agents_model_system_tools_settings_and_scopes():
    triage, billing = desk()
    speakers = []
    triage.add_hook("preRequest", lambda ctx: speakers.append(ctx.run.agent))
    events = await collect(triage.chat_stream("My bill is wrong."))
    assert events[-1].response.text == "I am billing."
    assert speakers == ["triage", "billing"]
    (request,) = billing._config.model.requests
    assert request.system.startswith("Bill.")
    assert "Be exact." in request.system
    assert [offered.name for offered in request.tools] == ["refund"]
    assert request.settings.temperature == 0.5
    (told,) = [event for event in events if isinstance(event, Status)]
    assert (told.type, told.data) == ("handoff", {"from": "triage", "to": "billing"})


async def test_its_hooks_run_after_those_of_the_called_agent_which_go_on():
    triage, billing = desk(billing_turns=(call("refund", amount=5), "Done."))
    out = []
    for agent in (billing, triage):
        for point in ("preRequest", "preToolCall", "onChatEnd"):
            agent.add_hook(point, lambda ctx, a=agent, p=point: out.append((a.name, p)))
    response = await triage.chat("Give me 5 back.")
    assert outcomes(response) == [("transfer_to_billing", "ok"), ("refund", "ok")]
    assert out == [
        ("triage", "preRequest"),
        ("triage", "preToolCall"),
        ("triage", "preRequest"),
        ("billing", "preRequest"),
        ("triage", "preToolCall"),
        ("billing", "preToolCall"),
        ("triage", "preRequest"),
        ("billing", "preRequest"),
        ("triage", "onChatEnd"),
        ("billing", "onChatEnd"),
    ]


async def test_what_pre_chat_made_for_one_speaker_is_not_said_for_another():
    triage, billing = desk(billing_turns=(call("refund", amount=1), "Done."))
    triage.add_hook("preChat", lambda ctx: ctx.request.replace(system="Triage with care."))
    await triage.chat("Hello.")
    assert [r.system.partition("\n")[0] for r in billing._config.model.requests] == ["Bill."] * 2


async def test_a_conversation_remembers_who_speaks():
    triage, _ = desk(billing_turns=("I am billing.", "Still billing."))
    conversation = Conversation()
    await triage.chat("My bill is wrong.", conversation=conversation)
    conversation = Conversation.from_json(conversation.to_json())
    events = await collect(triage.chat_stream("And now?", conversation=conversation))
    assert events[-1].response.text == "Still billing."
    assert [event.agent for event in events if isinstance(event, ChatStarted)] == ["billing"]


async def test_a_speaker_that_is_unknown_now_falls_back_to_the_called_agent(caplog):
    triage, _ = desk()
    conversation = Conversation()
    await triage.chat("My bill is wrong.", conversation=conversation)
    alone = Agent(ScriptedModel("I am alone."), name="triage")
    assert (await alone.chat("Hello?", conversation=conversation)).text == "I am alone."
    lines = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]
    assert any("no handoff leads to" in line for line in lines)


async def test_a_handoff_and_back():
    triage, billing = desk([to_billing, "Triage again."], [to_triage])
    billing.handoffs(triage)
    conversation = Conversation()
    response = await triage.chat("Hello.", conversation=conversation)
    assert response.text == "Triage again."


# ── what stays ──────────────────────────────────────────────────────────────────────────────


@tool
async def look() -> str:
    """Look around."""
    return "seen"


KEYWORDS = {
    "system": "For this chat.",
    "tools": [look],
    "settings": Settings(seed=7),
    "output": int,
}


def check_chats_request(request):
    assert request.system.startswith("For this chat.")
    assert [offered.name for offered in request.tools] == ["refund", "look"]
    assert request.settings == Settings(seed=7, temperature=0.5)


async def test_what_a_chat_names_outlives_a_handoff():
    triage, billing = desk(billing_turns=(call("look"), '{"value": 5}'))
    response = await triage.chat("My bill is wrong.", **KEYWORDS)
    assert outcomes(response) == [("transfer_to_billing", "ok"), ("look", "ok")]
    assert response.output == 5
    check_chats_request(billing.model.requests[0])


async def test_what_a_chat_names_counts_for_a_remembered_speaker():
    triage, billing = desk(billing_turns=("I am billing.", '{"value": 6}'))
    conversation = Conversation()
    await triage.chat("My bill is wrong.", conversation=conversation)
    response = await triage.chat("And now?", conversation=conversation, **KEYWORDS)
    assert response.output == 6
    check_chats_request(billing.model.requests[1])


async def test_the_model_that_a_chat_names_speaks_after_a_handoff_too():
    triage, _ = desk(triage_turns=())
    model = ScriptedModel(to_billing, "The same model.")
    assert (await triage.chat("My bill is wrong.", model=model)).text == "The same model."


async def test_a_chats_tool_hides_the_targets_tool_of_the_same_name():
    triage, _ = desk(billing_turns=(call("refund", amount=5), "Done."))

    @tool(name="refund")
    async def chats_own(amount: int) -> str:
        """Give nothing back."""
        return f"not {amount}"

    response = await triage.chat("Give me 5 back.", tools=[chats_own])
    assert [message.text for message in response.tool_results][1] == "not 5"


async def test_the_answer_has_the_form_of_the_called_agent():
    triage = Agent[None, int](ScriptedModel(to_billing), name="triage", output=int)
    billing = Agent(ScriptedModel('{"value": "x"}', '{"value": 7}'), name="billing")
    triage.handoffs(billing)
    response = await triage.chat("How much?")
    assert (response.output, response.stop_reason) == (7, None)


@pytest.mark.parametrize("own", [None, str], ids=["no output", "another output"])
def test_a_handoff_to_an_agent_with_another_output_is_refused(own):
    triage = Agent(ScriptedModel(), name="triage", output=own)
    with pytest.raises(UsageError, match="give both agents the same output="):
        triage.handoffs(Agent(ScriptedModel(), name="billing", output=int))
    triage.handoffs(Agent(ScriptedModel(), name="support", output=own))


async def test_the_validators_of_both_agents_check_an_answer():
    def short(text):
        if len(text) > 10:
            raise ValueError("too long")

    def polite(text):
        if "please" not in text:
            raise ValueError("say please")

    model = ScriptedModel("Tell me at once.", "Say it, please.", "Yes please")
    triage = Agent(
        ScriptedModel(to_billing), name="triage", output_validators=[short], output_retries=2
    )
    triage.handoffs(Agent(model, name="billing", output_validators=[polite]))
    assert (await triage.chat("Hello.")).text == "Yes please"
    first, second = (request.messages[-1].text for request in model.requests[1:])
    assert "- too long\n- say please" in first
    assert "too long" in second
    assert "say please" not in second


# ── what goes wrong ─────────────────────────────────────────────────────────────────────────


async def test_of_several_in_one_step_the_first_in_the_models_order_wins():
    support = Agent(ScriptedModel("I am support."), name="support")
    triage, billing = desk([[call("transfer_to_support"), to_billing]])
    triage.scopes.unregister("handoffs")
    triage.handoffs(billing, support)
    response = await triage.chat("Help.")
    assert response.text == "I am support."
    assert outcomes(response)[0] == ("transfer_to_support", "ok")
    assert outcomes(response)[1][1] != "ok"
    assert "was called first in this step" in response.messages[3].text


async def test_calls_of_other_tools_in_the_same_step_do_not_come_in_its_way():
    triage, _ = desk([[call("unknown"), call("look"), to_billing]])

    @tool
    async def look() -> str:
        """Look around."""
        return "seen"

    triage.scopes.register(Scope("eyes", tools=[look]))
    response = await triage.chat("My bill is wrong.")
    assert response.text == "I am billing."
    assert dict(outcomes(response)) == {
        "unknown": "error",
        "look": "ok",
        "transfer_to_billing": "ok",
    }


async def test_a_handoff_waits_for_the_calls_before_it():
    triage, _ = desk([[call("look"), to_billing]])

    @tool
    async def look() -> str:
        """Look around."""
        await settle()
        return "seen"

    triage.scopes.register(Scope("eyes", tools=[look]))
    events = await collect(triage.chat_stream("My bill is wrong."))
    told = [event for event in events if isinstance(event, (Status, ToolCallFinished))]
    assert [getattr(event, "name", "handoff") for event in told] == [
        "look",
        "handoff",
        "transfer_to_billing",
    ]


async def test_a_circle_is_bounded_by_the_steps_of_the_chat():
    triage, billing = desk([to_billing] * 20, [to_triage] * 20)
    billing.handoffs(triage)
    with pytest.raises(MaxStepsError):
        await triage.chat("Round and round.")


def test_a_handoff_to_itself_or_to_a_namesake_is_refused():
    triage, billing = desk()
    with pytest.raises(UsageError, match="same name"):
        triage.handoffs(triage)
    with pytest.raises(UsageError, match="same name"):
        triage.handoffs(Agent(ScriptedModel(), name="triage"))
    with pytest.raises(ScopeError):
        triage.handoffs(billing)


async def test_they_can_be_taken_back():
    agent = Agent(ScriptedModel(to_billing, "I stay."), name="triage")
    take_back = agent.handoffs(Agent(ScriptedModel(), name="billing"))
    take_back()
    response = await agent.chat("Hello.")
    assert (response.text, outcomes(response)) == ("I stay.", [("transfer_to_billing", "error")])


# ── other lives of a chat ───────────────────────────────────────────────────────────────────


async def test_after_an_approval_the_one_who_asked_goes_on():
    triage, billing = desk(billing_turns=(call("refund", amount=9), "Given."))
    await billing.use(approve("refund"))
    conversation = Conversation()
    response = await triage.chat("Give me 9 back.", conversation=conversation)
    (waits,) = response.pending
    response = await triage.resume(conversation, {waits.id: Approve()})
    assert (response.text, outcomes(response)) == ("Given.", [("refund", "ok")])


def handing_over(runtime, note):
    b = Agent(recording.Model(note, [], ["I am b."]), name="b", system="B.")
    a = Agent(recording.Model(note, [("c1", "transfer_to_b", {})]), name="a", runtime=runtime)
    a.handoffs(b)
    a.add_hook("preRequest", lambda ctx: note(f"{ctx.run.agent} speaks"))
    return a, recording.ask()


@pytest.mark.parametrize("partly", [False, True], ids=["at once", "one by one"])
async def test_a_call_that_waits_beside_a_handoff_is_run_by_the_one_who_made_it(partly):
    paid = []

    async def pay(to: str) -> str:
        """Pay."""
        paid.append(to)
        return "paid"

    calls = [to_billing, call("pay", call_id="p1", to="Ada"), call("pay", call_id="p2", to="Bob")]
    triage = Agent(ScriptedModel(calls), name="triage", tools=[pay])
    billing = Agent(ScriptedModel("I am billing."), name="billing")
    triage.handoffs(billing)
    triage.add_hook("preToolCall", lambda ctx: Ask("Pay?"), tools=["pay"])
    talk = Conversation()
    await triage.chat("Pay, and my bill is wrong.", conversation=talk)
    first, second = talk.pending
    if partly:
        await triage.resume(talk, {first.id: Approve()})
    response = await triage.resume(talk, {item.id: Approve() for item in talk.pending})
    assert sorted(paid) == ["Ada", "Bob"]
    assert response.text == "I am billing."
    assert second.call.name == "pay"


async def test_after_a_deploy_without_the_handoff_the_one_who_asked_goes_on():
    def agents(*turns, handoff):
        hooks = list(approve("refund"))
        triage = Agent(ScriptedModel(*turns), name="triage", tools=[refund], hooks=hooks)
        if handoff:
            triage.handoffs(Agent(ScriptedModel("I am billing."), name="billing"))
        return triage

    talk = Conversation()
    await agents(to_billing, handoff=True).chat("My bill is wrong.", conversation=talk)
    await agents(call("refund", amount=5), handoff=False).chat("Well?", conversation=talk)
    (item,) = talk.pending
    again = agents("Done.", handoff=True)
    response = await again.resume(talk, {item.id: Approve()})
    assert outcomes(response) == [("refund", "ok")]
    assert response.text == "Done."


@pytest.mark.parametrize("way", ["replaced", "restored", "reset"])
async def test_a_handoff_that_is_not_in_the_history_does_not_count(way):
    triage, _ = desk(["I am triage.", to_billing, "Triage again."], ["I am billing."] * 3)
    talk = Conversation()
    for text, answer in [
        ("Hello.", "I am triage."),
        ("My bill is wrong.", "I am billing."),
        ("Really?", "I am billing."),
    ]:
        assert (await triage.chat(text, conversation=talk)).text == answer
    question = "Hello again."
    if way == "replaced":
        question = talk.replace_answer(talk.messages[1].id)
    elif way == "restored":
        talk.restore(talk.messages[:2])
    else:
        talk.reset()
    assert (await triage.chat(question, conversation=talk)).text == "Triage again."


async def test_an_approved_handoff_is_remembered_when_the_next_call_waits_and_in_the_next_chat():
    triage, _ = desk([to_billing], [call("refund", amount=5), "Given.", "Still billing."])
    talk = Conversation()
    hooks = [approve("transfer_to_billing", "refund")]
    response = await triage.chat("My bill is wrong.", conversation=talk, hooks=hooks)
    for _ in range(2):
        (request,) = response.pending
        response = await triage.resume(talk, {request.id: Approve()}, hooks=hooks)
    assert response.text == "Given."
    assert (await triage.chat("Well?", conversation=talk)).text == "Still billing."


async def test_of_several_handoffs_the_last_one_in_the_history_counts():
    triage, billing = desk([to_billing, "I am triage."], [to_triage, "I am billing."])
    billing.handoffs(triage)
    talk = Conversation()
    await triage.chat("My bill is wrong.", conversation=talk)
    assert talk.messages[-1].text == "I am triage."
    talk.restore(talk.messages[:3])
    assert (await triage.chat("Well?", conversation=talk)).text == "I am billing."


async def test_under_a_durable_runtime_the_same_one_speaks_wherever_the_chat_was_cut():
    whole = await recording.live(handing_over)
    assert (whole.response.text, whole.ran("b speaks")) == ("I am b.", ["b speaks"])
    for cut in range(1, len(whole.journal)):
        first = await recording.live(handing_over, limit=cut)
        if first.journal[-1].get("begin", "").endswith("/run"):
            continue  # the handoff itself was cut off: the model is told so, and goes on alone
        second = await recording.live(
            handing_over, first.journal, conversation=Conversation(id="conv", meta=meta_of(first))
        )
        assert second.response.text == "I am b.", cut


def meta_of(life):
    """What a store would give back to the next life."""
    return life.conversation.meta
