"""`budget(by=, per=, ledger=)`: the chats of a tenant share money; each model call counts once."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from typing import Any

import pytest
from tests import _recording as recording

from hookline import Agent, Approve, Conversation, MemoryStore, ModelResponse, Run, Usage, tool
from hookline.errors import ChatAbortedError, OverloadedError, StoreError, UsageError
from hookline.hooks import Ledger, approve, budget, cache, fallback, retry, summarize
from hookline.models import Rates
from hookline.stores import SQLStore
from hookline.testing import ScriptedModel, Turn, call

USED = Usage(input_tokens=60, output_tokens=40)
PRICES = {name: Rates(input=0, output=rate) for name, rate in (("small", 25_000), ("big", 250_000))}
"""A call of 40 tokens costs 1 with "small" and 10 with "big"."""


def answering(*turns: Any, name: str = "small", n: int = 50) -> ScriptedModel:
    given = [turn if isinstance(turn, Turn) else Turn(turn, usage=USED) for turn in turns]
    return ScriptedModel(*(given or [Turn(text="Hello.", usage=USED)] * n), name=name)


def tenant(run: Run[Any]) -> str:
    return str(run.deps)


def shared(ledger: Any, cost: float = 3, **options: Any) -> Any:
    options = {"by": tenant, "per": "month", "price": PRICES, **options}
    return budget(cost=cost, ledger=ledger, **options)


async def total(ledger: Any, account: str = "2026 acme") -> float:
    amount = await ledger.spend(account, 0)
    assert isinstance(amount, float)
    return round(amount, 9)


def year() -> str:
    return "2026"


@tool
async def look() -> str:
    """Look."""
    return "seen"


# ── who pays ────────────────────────────────────────────────────────────────────────────────


async def test_the_chats_of_a_tenant_share_the_limit_and_say_what_the_customer_reads() -> None:
    hooks = shared(MemoryStore(), say="Your team's budget is used up.")
    agent: Agent[str] = Agent(answering(), hooks=hooks)
    reasons = [(await agent.chat("Hi", deps="acme")).stop_reason for _ in range(4)]
    assert reasons == [None, None, None, "cost_limit"]
    response = await agent.chat("Hi", deps="acme")
    assert response.text == "Your team's budget is used up."
    assert (await agent.chat("Hi", deps="other")).stop_reason is None


async def test_by_default_the_customer_reads_no_amount() -> None:
    agent: Agent[str] = Agent(answering(), hooks=shared(MemoryStore(), cost=0))
    response = await agent.chat("Hi", deps="acme")
    assert (response.stop_reason, response.text) == ("cost_limit", "cost limit reached")


async def test_each_period_begins_with_nothing_spent() -> None:
    month = ["2026-11"]
    hooks = shared(MemoryStore(), cost=1, per=lambda: month[0])
    agent: Agent[str] = Agent(answering(), hooks=hooks)
    assert (await agent.chat("Hi", deps="acme")).stop_reason is None
    assert (await agent.chat("Hi", deps="acme")).stop_reason == "cost_limit"
    month[0] = "2026-12"
    assert (await agent.chat("Hi", deps="acme")).stop_reason is None


async def test_a_running_chat_ends_before_the_call_that_is_not_paid() -> None:
    model = answering(*[call("look")] * 9)
    agent: Agent[str] = Agent(model, tools=[look], hooks=shared(MemoryStore(), cost=2))
    response = await agent.chat("Go", deps="acme")
    assert (response.stop_reason, response.steps) == ("cost_limit", 2)


# ── what a call costs ───────────────────────────────────────────────────────────────────────


async def test_a_chat_that_waits_for_an_approval_counts_once() -> None:
    ledger = MemoryStore()
    hooks = [*shared(ledger, per=year), approve("look")]
    agent: Agent[str] = Agent(answering(call("look"), "Done."), tools=[look], hooks=hooks)
    conversation = Conversation()
    await agent.chat("Go", deps="acme", conversation=conversation)
    assert await total(ledger) == 1
    conversation = Conversation.from_json(conversation.to_json())
    answers = {conversation.pending[0].id: Approve()}
    response = await agent.resume(conversation, answers, deps="acme")
    assert (response.text, await total(ledger)) == ("Done.", 2)


async def test_the_price_is_that_of_the_model_that_answered() -> None:
    ledger = MemoryStore()
    first = answering(Turn(fail=OverloadedError("no")))
    hooks = [fallback(answering(name="big")), *shared(ledger, per=year)]
    await Agent[str](first, hooks=hooks).chat("Hi", deps="acme")
    assert await total(ledger) == 10


async def test_after_a_handoff_it_is_that_of_the_other_agents_model_and_counts_once() -> None:
    ledger = MemoryStore()
    hooks = shared(ledger, cost=99, per=year)
    triage: Agent[str] = Agent(answering(call("transfer_to_billing")), name="triage", hooks=hooks)
    billing: Agent[str] = Agent(answering(name="big"), name="billing", hooks=hooks)
    triage.handoffs(billing)
    await triage.chat("Hi", deps="acme")
    assert await total(ledger) == 11


async def test_the_calls_of_sub_agents_count() -> None:
    ledger = MemoryStore()
    kid: Agent[str] = Agent(answering(name="big"), name="kid")
    model = answering(call("kid", input="help"), "Done.")
    mum: Agent[str] = Agent(model, tools=[kid.as_tool()], hooks=shared(ledger, 99, per=year))
    await mum.chat("Hi", deps="acme")
    assert await total(ledger) == 12


@pytest.mark.parametrize(("by", "cost"), [("own", 4), ("small", 4), ("big", 13)])
async def test_the_summaries_of_summarize_count(by: str, cost: int) -> None:
    """Three answers and a summary, while the hooks of two agents count."""
    ledger, talk = MemoryStore(), Conversation()
    billing: Agent[str] = Agent(answering(), name="billing", hooks=shared(ledger, 99, per=year))
    writer = None if by == "own" else answering(name=by)
    short = summarize(4, by=writer, count=lambda message: 1, keep=1)
    hooks = [*short, *shared(ledger, 99, per=year)]
    model = answering("One.", call("transfer_to_billing"))
    agent: Agent[str] = Agent(model, hooks=hooks)
    agent.handoffs(billing)
    await agent.chat("1", conversation=talk, deps="acme")
    response = await agent.chat("2", conversation=talk, deps="acme")
    assert (response.text, await total(ledger)) == ("Hello.", cost)


async def test_a_request_that_fails_costs_nothing() -> None:
    ledger = MemoryStore()
    failing = Turn(fail=OverloadedError("no"))
    hooks = [retry(sleep=lambda seconds: asyncio.sleep(0)), *shared(ledger, per=year)]
    agent: Agent[str] = Agent(answering(failing, failing, "Hello."), hooks=hooks)
    assert (await agent.chat("Hi", deps="acme")).text == "Hello."
    assert await total(ledger) == 1
    with pytest.raises(OverloadedError):
        await Agent[str](answering(failing), hooks=shared(ledger, per=year)).chat("Hi", deps="acme")
    assert await total(ledger) == 1


async def test_an_answer_without_a_model_call_costs_nothing() -> None:
    ledger = MemoryStore()
    agent: Agent[str] = Agent(answering(), hooks=[cache(), *shared(ledger, per=year)])
    await agent.chat("Hi", deps="acme")
    await agent.chat("Hi", deps="acme")
    assert await total(ledger) == 1
    agent.add_hook("aroundRequest", answered_by_hand)
    await agent.chat("Something else", deps="acme")
    assert await total(ledger) == 1


async def answered_by_hand(ctx: Any, proceed: Any) -> ModelResponse:
    return ModelResponse.of("By hand.")


async def test_an_abort_in_the_middle_of_a_call_keeps_its_estimate() -> None:
    ledger = MemoryStore()
    model = answering(Turn(text="Hello.", usage=USED))
    agent: Agent[str] = Agent(model, hooks=shared(ledger, 99, per=year))
    agent.add_hook("onDelta", lambda ctx: ctx.run.abort("enough") and None)
    with pytest.raises(ChatAbortedError):
        await agent.chat("Hi", deps="acme")
    assert await total(ledger) == 25  # 1,000 tokens of "small"


async def test_a_ledger_that_fails_ends_the_chat_before_the_model_is_called() -> None:
    class Broken:
        async def spend(
            self, account: str, amount: float, *, limit: float | None = None
        ) -> float | None:
            raise StoreError("the ledger is away")

    model = answering()
    with pytest.raises(StoreError, match="is away"):
        await Agent[str](model, hooks=shared(Broken())).chat("Hi", deps="acme")
    assert model.calls == 0


async def test_a_model_without_a_price_is_refused_before_it_is_called() -> None:
    model = answering(name="unknown")
    with pytest.raises(UsageError, match="no price for model 'unknown'"):
        await Agent[str](model, hooks=shared(MemoryStore())).chat("Hi", deps="acme")
    assert model.calls == 0


# ── several workers, and their deaths ───────────────────────────────────────────────────────


async def test_two_workers_overdraw_by_no_more_than_the_calls_in_flight(tmp_path: Any) -> None:
    url = f"sqlite:///{tmp_path}/ledger.db"
    async with SQLStore(url) as one, SQLStore(url) as two:
        agents = [Agent[str](answering(), hooks=shared(s, 20, per=year)) for s in (one, two)]

        async def work(agent: Agent[str]) -> int:
            answered = 0
            while (await agent.chat("Hi", deps="acme")).stop_reason is None:
                answered += 1
            return answered

        counts = await asyncio.gather(*map(work, agents))
        assert await total(two) == sum(counts)
        assert 1 <= sum(counts) <= 20 + len(agents) - 1


async def test_of_calls_that_begin_together_each_sees_the_others_reservations() -> None:
    ledger = MemoryStore()
    hooks = shared(ledger, 60, per=year)  # the estimate of a call is 25
    begun = asyncio.Semaphore(0)
    go = asyncio.Event()

    async def wait(ctx: Any, proceed: Any) -> Any:
        begun.release()
        await go.wait()
        return await proceed()

    agent: Agent[str] = Agent(answering(), hooks=hooks)
    agent.add_hook("aroundRequest", wait)
    chats = [asyncio.create_task(agent.chat("Hi", deps="acme")) for _ in range(5)]
    refused, _ = await asyncio.wait(chats, return_when=asyncio.FIRST_COMPLETED)
    assert {task.result().stop_reason for task in refused} == {"cost_limit"}
    for _ in range(3):
        await begun.acquire()
    go.set()
    reasons = [(await chat).stop_reason for chat in chats]
    assert sorted(map(str, reasons)) == ["None"] * 3 + ["cost_limit"] * 2
    assert await total(ledger) == 3


DYING = """
import asyncio, os, sys
from hookline import Agent
from hookline.hooks import budget
from hookline.models import Rates
from hookline.stores import SQLStore
from hookline.testing import ScriptedModel

def die(ctx):
    os._exit(9)

prices = {"small": Rates(input=0, output=25_000)}
hooks = budget(cost=9, by=lambda run: "acme", per=lambda: "2026", price=prices,
               ledger=SQLStore(sys.argv[1]))
agent = Agent(ScriptedModel("Hello.", name="small"), hooks=hooks)
agent.add_hook("onDelta", die)
asyncio.run(agent.chat("Hi"))
"""


async def test_a_process_that_is_killed_in_a_call_has_reserved_it(tmp_path: Any) -> None:
    url = f"sqlite:///{tmp_path}/ledger.db"
    command = [sys.executable, "-c", DYING, url]
    process = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True)
    assert process.returncode == 9, process.stderr
    async with SQLStore(url) as store:
        assert await total(store) == 25


async def test_a_durable_chat_counts_its_calls_wherever_it_was_cut() -> None:
    ledgers: list[MemoryStore] = []

    def scene(runtime: Any, note: Any) -> Any:
        model = recording.Model(note, [("c1", "look", {})], ["Done."])
        hooks = shared(ledgers[-1], 1000, per=year, by=None, price=lambda model, usage: 1.0)
        agent = Agent[Any](model, name="a", tools=[look], hooks=hooks, runtime=runtime)
        return agent, recording.ask()

    ledgers.append(MemoryStore())
    whole = await recording.live(scene)
    assert await total(ledgers[-1], "2026") == 2
    for cut in range(1, len(whole.journal)):
        ledgers.append(MemoryStore())
        first = await recording.live(scene, limit=cut)
        second = await recording.live(scene, first.journal)
        assert second.response is not None
        calls = len(first.ran("model")) + len(second.ran("model"))
        # A life that ends before its step is recorded leaves the reservation of that step.
        assert calls <= await total(ledgers[-1], "2026") <= calls + 1, cut


# ── arguments ───────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"per": "fortnight", "cost": 1, "price": PRICES}, "must be one of 'hour', 'day'"),
        ({"by": "acme", "cost": 1, "price": PRICES}, "must be a function"),
        ({"ledger": {}, "cost": 1, "price": PRICES}, "must have a method `spend`"),
        ({"per": "day", "steps": 1}, "pass cost= too"),
        ({"per": "day", "cost": 1}, "cost= needs price="),
    ],
    ids=["per", "by", "ledger", "no cost", "no price"],
)
def test_arguments_that_cannot_work_are_refused(wrong: dict[str, Any], text: str) -> None:
    with pytest.raises(UsageError, match=text):
        budget(**wrong)


@pytest.mark.parametrize("name", [None, "", "x" * 201], ids=["None", "empty", "long"])
async def test_a_chat_without_the_name_of_an_account_is_refused(name: Any) -> None:
    agent: Agent[str] = Agent(answering(), hooks=shared(MemoryStore(), by=lambda run: name))
    with pytest.raises(UsageError, match="return the name of an account"):
        await agent.chat("Hi")


def test_the_stores_are_ledgers() -> None:
    assert isinstance(MemoryStore(), Ledger)
    assert isinstance(SQLStore("sqlite:///ledger.db"), Ledger)
