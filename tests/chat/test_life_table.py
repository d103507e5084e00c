"""The life of a chat as a table: `_chat/life.py`, walked at random, and walked by real chats."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from hookline import Agent, Limits
from hookline._chat.life import DONE, MOVES, OUTCOMES, Life, Phase, Sign, Verdict
from hookline.errors import ChatAbortedError, StreamInterruptedError
from hookline.testing import ScriptedModel

VERDICTS = sorted(OUTCOMES, key=lambda sign: sign.value)
OWN = sorted(set(Sign) - set(OUTCOMES) | {Sign.COMPLETE}, key=lambda sign: sign.value)


def verdict_of(sign: Sign) -> Verdict:
    return DONE if sign is Sign.COMPLETE else Verdict(sign, LookupError("why"), sign.value)


def walk(*signs: Sign) -> Life:
    """A life that was given these signs, as its chat gives them."""
    life = Life()
    for sign in signs:
        if sign in OUTCOMES:
            life.decide(verdict_of(sign))
        if sign in OWN:
            life.move(sign)
    return life


class Walk(RuleBasedStateMachine):
    """Signs in any order: a small model of the rules, beside the life itself."""

    def __init__(self) -> None:
        super().__init__()
        self.life = Life()
        self.first: Verdict | None = None
        self.before = Phase.NEW

    @rule(sign=st.sampled_from(VERDICTS))
    def decide(self, sign: Sign) -> None:
        verdict = verdict_of(sign)
        timely = self.life.decide(verdict)
        assert timely is (self.first is None and (self.before, sign) in MOVES)
        if timely:
            self.first = verdict
        if timely and sign is Sign.COMPLETE:  # the chat does both in one breath
            assert self.life.move(sign)

    @rule(sign=st.sampled_from(sorted(set(OWN) - {Sign.COMPLETE}, key=lambda sign: sign.value)))
    def move(self, sign: Sign) -> None:
        assert self.life.move(sign) is ((self.before, sign) in MOVES)

    @rule()
    def forget(self) -> None:
        if self.life.phase is Phase.OVER:
            self.life.forget()
            assert self.life.late == ()
            assert self.life.verdict is None or self.life.verdict.error is None

    @invariant()
    def a_life_only_goes_on(self) -> None:
        phase = self.life.phase
        assert phase >= self.before
        self.before = phase

    @invariant()
    def the_first_verdict_stays(self) -> None:
        found = self.life.verdict
        assert (found and found.sign) is (self.first and self.first.sign)

    @invariant()
    def the_outcome_is_the_verdict_s_once_the_ending_has_begun(self) -> None:
        if self.life.outcome is not None:
            assert self.first is not None
            assert self.life.outcome == self.first.outcome
            assert self.before >= Phase.ENDING
        elif self.before is Phase.ENDING:
            raise AssertionError("a chat ends without an outcome")

    @invariant()
    def what_is_decided_otherwise_than_done_is_broken(self) -> None:
        if self.first is not None and self.first is not DONE:
            assert self.life.broken
        if self.before is Phase.BREAKING:
            assert self.life.broken


test_a_life_walked_at_random_keeps_its_rules = Walk.TestCase


@pytest.mark.parametrize("phase", [each for each in Phase if each is not Phase.OVER], ids=str)
def test_every_phase_leads_to_the_end(phase: Phase) -> None:
    reached, todo = {phase}, [phase]
    while todo:
        here = todo.pop()
        found = {to for (start, _), to in MOVES.items() if start is here} - reached
        reached |= found
        todo += found
    assert Phase.OVER in reached


def test_every_move_leads_on_and_none_leads_out_of_the_end() -> None:
    assert all(to > start for (start, _), to in MOVES.items())
    assert {start for start, _ in MOVES} == set(Phase) - {Phase.OVER}
    assert {sign for _, sign in MOVES} == set(Sign)


class _Between(list[Verdict]):
    """A list of verdicts into which another thread writes just before it is written to."""

    def __init__(self, other: Callable[[], bool]) -> None:
        super().__init__()
        self.other: Callable[[], bool] | None = other
        self.said: list[bool] = []

    def append(self, verdict: Verdict, /) -> None:
        other, self.other = self.other, None
        if other is not None:
            self.said.append(other())
        super().append(verdict)


@pytest.mark.parametrize("late", VERDICTS, ids=lambda sign: sign.name)
@pytest.mark.parametrize("early", VERDICTS, ids=lambda sign: sign.name)
def test_of_two_verdicts_at_the_same_moment_one_counts(early: Sign, late: Sign) -> None:
    life = walk(Sign.PROCEED)
    first = Verdict(early, None, "first")
    between = _Between(lambda: life.decide(first if early is not Sign.COMPLETE else DONE))
    life._verdicts = between
    second = Verdict(late, None, "second") if late is not Sign.COMPLETE else DONE
    timely = life.decide(second)
    assert between.said == [True]
    if early is Sign.COMPLETE and late is Sign.COMPLETE:
        return  # one object: the chat answers once
    assert timely is False
    assert life.verdict is not second
    assert life.broken is (early is not Sign.COMPLETE)


# ── walked by real chats ────────────────────────────────────────────────────────────────────


async def _done(agent: Agent) -> None:
    await agent.chat("hi")


async def _fails(agent: Agent) -> None:
    @agent.hook("preRequest")
    def fails(ctx: Any) -> None:
        raise LookupError("why")

    await agent.chat("hi")


async def _aborts(agent: Agent) -> None:
    agent.add_hook("preRequest", lambda ctx: ctx.run.abort() and None)
    await agent.chat("hi")


async def _is_aborted_before(agent: Agent) -> None:
    @agent.hook("aroundChat")
    async def around(ctx: Any, proceed: Any) -> Any:
        ctx.run.abort()
        return await proceed()

    await agent.chat("hi")


async def _fails_before(agent: Agent) -> None:
    @agent.hook("aroundChat")
    async def around(ctx: Any, proceed: Any) -> Any:
        raise LookupError("why")

    await agent.chat("hi")


async def _loses_its_lease_before(agent: Agent) -> None:
    @agent.hook("aroundChat")
    async def around(ctx: Any, proceed: Any) -> Any:
        ctx.run.chat_of(ctx.run).lose_lease(LookupError("why"))
        return await proceed()

    await agent.chat("hi")


async def _is_cut(agent: Agent) -> None:
    me: list[asyncio.Task[Any]] = []

    @agent.hook("preRequest")
    async def cut(ctx: Any) -> None:
        task = asyncio.current_task()
        assert task is not None
        me.append(task)
        task.cancel()
        await asyncio.sleep(0)

    await agent.chat("hi")


async def _is_left_behind(agent: Agent) -> None:
    gate = asyncio.Event()

    @agent.hook("preRequest")
    async def ignores(ctx: Any) -> None:
        ctx.run.abort()
        with suppress(asyncio.CancelledError):
            await gate.wait()
        await gate.wait()

    try:
        await agent.chat("hi")
    finally:
        gate.set()
        await asyncio.sleep(0)


WALKS: dict[str, tuple[Callable[[Agent], Awaitable[None]], list[Sign]]] = {
    "done": (_done, [Sign.PROCEED, Sign.COMPLETE, Sign.RESULT]),
    "error": (_fails, [Sign.PROCEED, Sign.FAIL, Sign.CAUGHT, Sign.RESULT]),
    "aborted": (_aborts, [Sign.PROCEED, Sign.ABORT, Sign.CAUGHT, Sign.RESULT]),
    "cut": (_is_cut, [Sign.PROCEED, Sign.CUT, Sign.CAUGHT, Sign.RESULT]),
    "left behind": (_is_left_behind, [Sign.PROCEED, Sign.ABORT, Sign.GRACE_OVER, Sign.RESULT]),
    "aborted before it begins": (_is_aborted_before, [Sign.ABORT]),
    "error before it begins": (_fails_before, [Sign.RESULT]),
    "lease lost before it begins": (_loses_its_lease_before, [Sign.FAIL]),
}


@pytest.mark.parametrize("name", WALKS)
async def test_chats_walk_the_table(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    chat, expected = WALKS[name]
    walked: list[Sign] = []
    decide, move = Life.decide, Life.move

    def decided(life: Life, verdict: Verdict) -> bool:
        timely = decide(life, verdict)
        if timely and verdict is not DONE:
            walked.append(verdict.sign)
        return timely

    def moved(life: Life, sign: Sign) -> bool:
        done = move(life, sign)
        if done:
            walked.append(sign)
        return done

    monkeypatch.setattr(Life, "decide", decided)
    monkeypatch.setattr(Life, "move", moved)
    agent = Agent(ScriptedModel("hello"), limits=Limits(grace=0.05))
    with suppress(LookupError, ChatAbortedError, StreamInterruptedError):
        await chat(agent)
    assert walked == expected


def test_the_walks_of_chats_and_exits_make_every_move() -> None:
    """An exit, and Halted, may come at any moment: `halt` has tests of its own."""
    made: set[tuple[Phase, Sign]] = set()
    for _, signs in WALKS.values():
        phase = Phase.NEW
        for sign in signs:
            made.add((phase, sign))
            phase = MOVES[phase, sign]
    assert {move for move in MOVES if move[1] is not Sign.HALT} == made
