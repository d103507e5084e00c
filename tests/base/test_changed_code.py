"""Durable chats that other code continues: hooks come and go, wherever a life was cut.

The record of a whole chat is cut after each of its lines. Code that has one passive hook more, or
one less, goes on from there: to the end, or until it dies, too, and the first code goes on again.
"""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from tests.base.test_journal import Life, World, live, once, results, same

from hookline import Agent, Ask, Deny, NotRun, Run, Stop, Tool, ToolResult, check_history, tool
from hookline._hooks.points import TABLE
from hookline.errors import JournalError, ToolDefinitionError
from hookline.runtimes import Halted
from hookline.testing import ScriptedModel, call

OUTSIDE = {"onScopeRegister", "onScopeUnregister", "preMessageUpdate", "onMessageUpdate"}
POINTS = [name for name in TABLE if name not in OUTSIDE]


class Bare(World):
    """A chat whose agent has one passive hook at each of these points, and no other hooks.

    If it asks, there is the hook that asks, too.
    """

    points = ()

    def __init__(self, *points: str, asks: bool) -> None:
        super().__init__(stored=False)
        self.points = points
        self.asks = asks

    def agent(self, **more: Any) -> Agent[Any]:
        made = self.bare(**more)
        if self.asks:
            made.add_hook(
                "preToolCall", lambda ctx: Ask("Refund?") if ctx.call.name == "refund" else None
            )
        for point in self.points:
            add(made, point)
        return made


def add(agent: Any, point: str) -> None:
    """Add a hook that changes nothing."""

    async def passes(ctx: Any, proceed: Any) -> Any:
        return await proceed()

    agent.add_hook(point, passes if point.startswith("around") else lambda ctx: None)


def calls_that_ran(world: World) -> set[str]:
    return {what for what in world.ran if what.partition(" ")[0] in ("lookup", "charge", "refund")}


async def goes_on(world: Bare, reference: Any, where: Any) -> None:
    """The chat comes to its end, with what had happened before."""
    ended = {line.key for line in world.lines if line.kind == "end"}
    before = len(world.ran)
    life = await live(world)
    assert life.error is None, (where, life.error)
    same(life, reference)
    once(world)
    again = world.ran[before:]
    for id, turn, what in (
        ("a", 0, "lookup a"), ("b", 0, "charge b"), ("c", 0, "refund c"), ("d", 1, "lookup d")
    ):  # fmt: skip
        assert f"step/{turn}/call/{id}/run" not in ended or what not in again, where
    for turn in range(3):
        assert f"step/{turn}/model" not in ended or f"model {turn}" not in again, where


ONE_POINT = [
    pytest.param([point], True, id=f"{point}-asks", marks=pytest.mark.slow) for point in POINTS
]
ALL_POINTS = [pytest.param(POINTS, True, id="all-asks"), pytest.param(POINTS, False, id="all")]


@pytest.mark.parametrize("comes", [True, False], ids=["comes", "goes"])
@pytest.mark.parametrize(("points", "asks"), [*ONE_POINT, *ALL_POINTS])
async def test_a_hook_that_comes_or_goes_between_two_lives_stops_no_chat_and_may_return(
    points: list[str], asks: bool, comes: bool
) -> None:
    old, new = ((), points) if comes else (points, ())
    first = Bare(*old, asks=asks)
    reference = await live(first)
    assert reference.error is None
    for cut, line in enumerate(first.lines, 1):
        if line.kind == "begin" and not line.key.endswith(("model", "run")):
            continue  # this line is only written together with the next one
        for more in (None, 3):
            world = Bare(*new, asks=asks)
            world.lines[:] = first.lines[:cut]
            if more is None:
                await goes_on(world, reference, cut)
            else:
                died = await live(world, cut + more)
                assert died.error is None or isinstance(died.error, Halted), (cut, more, died.error)
            world.points = old  # rolled back, also if the chat is over
            await goes_on(world, reference, (cut, more))


async def test_an_approved_call_that_has_run_keeps_its_result_if_its_tool_is_described_anew() -> (
    None
):
    first = Bare(asks=True)
    reference = await live(first)
    keys = [line.key for line in first.lines if line.kind == "end"]
    for cut, line in enumerate(first.lines, 1):
        if line.kind != "end" or keys.index(line.key) < keys.index("step/0/call/c/answer"):
            continue
        world = Bare(asks=True)
        world.lines[:] = first.lines[:cut]
        world.change = lambda tools: [tool.replace(description="New.") for tool in tools]
        life = await live(world)
        assert life.error is None, (cut, line.key, life.error)
        text = results(life)["c"]
        if any(each.key == "step/0/call/c/run" for each in first.lines[:cut]):
            assert text == results(reference)["c"] or "may have run" in text, (cut, line.key)
        else:
            assert "description or the parameters" in text, (cut, line.key)


@pytest.mark.parametrize("asks", [True, False], ids=["asks", "asks nothing"])
async def test_a_tool_that_comes_after_the_model_has_called_it_changes_nothing_that_is_recorded(
    asks: bool,
) -> None:
    first = Bare(asks=asks)
    first.change = lambda tools: [tool for tool in tools if tool.name == "charge"]
    reference = await live(first)
    assert results(reference)["a"].startswith('{"error":{"type":"UnknownToolError"')
    cuts = [n for n, line in enumerate(first.lines, 1) if line.kind == "end"]
    for cut in cuts:
        for more in (None, 3):
            world = Bare(asks=asks)
            world.lines[:] = first.lines[:cut]
            life = await live(world, None if more is None else cut + more)
            assert life.error is None or isinstance(life.error, Halted), (cut, more, life.error)
            world.change = first.change  # rolled back
            life = await live(world)
            assert life.error is None, (cut, more, life.error)
            check_history(life.conversation.messages)
            for line in first.lines[:cut]:
                if line.kind == "end" and line.key.startswith("message/"):
                    message = msgspec.json.decode(line.value)
                    texts = {m.id: m.text for m in life.conversation.messages}
                    assert message["role"] != "tool" or texts[message["id"]] == message["text"]


async def test_a_skipped_step_is_logged_by_its_name(caplog: pytest.LogCaptureFixture) -> None:
    first = Bare("onApproval", asks=True)
    await live(first)
    world = Bare(asks=True)
    world.lines[:] = first.lines
    await live(world)
    said = [record.getMessage() for record in caplog.records]
    assert [text.partition(" of its record")[0] for text in said] == [
        "durable chat chat: skipped step 'step/0/call/c/asked'",
        "durable chat chat: skipped step 'step/0/call/c/answered'",
    ]


async def test_what_a_hook_had_decided_counts_without_the_hook() -> None:
    """Its guard is gone, but the call was denied; a result was redacted; a chat was stopped."""
    secret = "charge b done"

    def strict(world: Bare) -> Agent[Any]:
        made = Bare.agent(world)
        made.add_hook("preToolCall", lambda ctx: Deny("no") if ctx.call.id == "a" else None)
        made.add_hook(
            "onToolCallResult", lambda ctx: ToolResult("***") if ctx.call.id == "b" else None
        )
        made.add_hook("onStep", lambda ctx: Stop("enough"))
        return made

    first = Bare(asks=False)
    first.agent = lambda **more: strict(first)  # type: ignore[method-assign]
    reference = await live(first)
    assert reference.response.stop_reason == "enough"
    for cut, line in enumerate(first.lines, 1):
        world = Bare(asks=False)
        world.lines[:] = first.lines[:cut]
        ended = {each.key for each in world.lines if each.kind == "end"}
        life = await live(world)
        assert life.error is None, (cut, line.key)
        texts = results(life)
        assert "step/0/call/a" not in ended or "lookup a" not in world.ran, cut
        assert "step/0/call/b/result" not in ended or secret not in str(texts), cut
        assert ("step/0/end" not in ended) is (life.response.stop_reason is None), cut


async def test_a_new_hook_is_not_asked_about_what_is_already_decided() -> None:
    """It would stop the chat, or refuse a call, in the middle of what has happened."""

    def strict(world: Bare) -> Agent[Any]:
        made = Bare.agent(world)
        made.add_hook("preChat", lambda ctx: Stop("no"))
        made.add_hook("preToolCall", lambda ctx: Deny("no") if ctx.call.id == "a" else None)
        made.add_hook("onStep", lambda ctx: Stop("no") if ctx.iteration == 0 else None)
        return made

    first = Bare(asks=False)
    reference = await live(first)
    place = next(n for n, line in enumerate(first.lines) if line.key == "step/1/model")
    world = Bare(asks=False)
    world.lines[:] = first.lines[:place]
    world.agent = lambda **more: strict(world)  # type: ignore[method-assign]
    same(await live(world), reference)
    for cut, line in enumerate(first.lines[:place], 1):
        world = Bare(asks=False)
        world.lines[:] = first.lines[:cut]
        world.agent = lambda world=world, **more: strict(world)  # type: ignore[method-assign, misc]
        stopped = await live(world)
        assert stopped.error is None, (cut, line.key)
        world.agent = lambda world=world, **more: Bare.agent(world)  # type: ignore[method-assign, misc]
        assert (await live(world)).response == stopped.response, (cut, line.key)


async def test_a_denied_call_does_not_run_without_the_hook_that_asked() -> None:
    first = Bare(asks=True)
    await live(first)
    asked = next(n for n, line in enumerate(first.lines) if line.kind == "wait") + 1
    world = Bare(asks=False)
    world.lines[:] = first.lines[:asked]
    world.decision = Deny("no")
    life = await live(world)
    assert life.error is None
    assert "Denied" in results(life)["c"]
    assert "refund c" not in world.ran


async def test_a_model_or_tool_never_runs_before_the_whole_record_is_given() -> None:
    """Code that would go another way stops there, and the record stays as it was."""
    first = Bare(asks=False)
    reference = await live(first)
    place = next(n for n, line in enumerate(first.lines) if line.key == "step/1/model")
    world = Bare(asks=False)
    world.lines[:] = [line for line in first.lines[:place] if line.key != "message/3"]
    before = list(world.lines)
    life = await live(world)
    assert isinstance(life.error, JournalError)
    assert "'message/4'" in str(life.error)
    assert calls_that_ran(world) == set()
    assert world.lines[: len(before)] == before
    assert all(line.kind in ("life", "begin") for line in world.lines[len(before) :])
    world.lines[:] = first.lines[:place]
    same(await live(world), reference)


# ── tools ───────────────────────────────────────────────────────────────────────────────────


def renamed(tools: list[Any]) -> list[Any]:
    return [each.replace(name="pay") if each.name == "charge" else each for each in tools]


def removed(tools: list[Any]) -> list[Any]:
    return [each for each in tools if each.name != "charge"]


def with_function(fn: Any, **options: Any) -> Any:
    fn.__name__ = "charge"
    made = tool(description="charge", **options)(fn)
    return lambda tools: [made if each.name == "charge" else each for each in tools]


async def more(q: str, account: str) -> str:
    raise AssertionError("it ran again")


async def other(q: int) -> str:
    raise AssertionError("it ran again")


def disabled(tools: list[Any]) -> list[Any]:
    return [
        each.replace(enabled=lambda: False) if each.name == "charge" else each for each in tools
    ]


CHANGES = {
    "same": lambda tools: tools,
    "renamed": renamed,
    "removed": removed,
    "required parameter": with_function(more),
    "type": with_function(other),
    "disabled": disabled,
    "client": with_function(other, client=True),
}


async def changed(world: Bare, change: Any) -> Life:
    world.change = change
    return await live(world)


@pytest.mark.parametrize("asks", [True, False], ids=["asks", "asks nothing"])
@pytest.mark.parametrize("change", CHANGES)
async def test_a_call_that_may_have_run_says_so_whatever_became_of_its_tool(
    change: str, asks: bool
) -> None:
    first = Bare(asks=asks)
    await live(first)
    run = "step/0/call/b/run"
    begun = next(n for n, line in enumerate(first.lines) if line.key == run) + 1
    world = Bare(asks=asks)
    world.lines[:] = first.lines[:begun]
    life = await changed(world, CHANGES[change])
    assert life.error is None
    assert results(life)["b"].startswith('{"error":{"type":"Interrupted"')
    assert "charge b" not in world.ran


async def test_a_removed_tool_is_unknown_and_its_recorded_result_counts() -> None:
    first = Bare(asks=False)
    await live(first)
    for cut, at in enumerate(first.lines, 1):
        if at.kind != "end":
            continue
        world = Bare(asks=False)
        world.lines[:] = first.lines[:cut]
        begun = any(line.key == "step/0/call/b/run" for line in world.lines)
        asked = any(line.key == "step/0/model" for line in world.lines)
        life = await changed(world, removed)
        assert life.error is None, at.key
        text = results(life)["b"]
        if not begun:
            assert "UnknownToolError" in text, at.key
            assert "charge" in text, at.key
        else:
            assert "charge b done" in text or "may have run" in text, at.key
        assert asked or not begun


# ── @tool(check=…) ──────────────────────────────────────────────────────────────────────────


async def again(check: Any, **options: Any) -> tuple[str, list[str]]:
    """What a call comes to whose worker died in it: its result, and what ran in the next life."""
    ran: list[str] = []

    async def pay(q: str, run: Run[Any]) -> str:
        ran.append(f"pay {q} {run.call_key}")
        return "paid now"

    first = Bare(asks=False)
    await live(first)
    begun = next(n for n, line in enumerate(first.lines) if line.key == "step/0/call/b/run") + 1
    world = Bare(asks=False)
    world.lines[:] = first.lines[:begun]
    made = tool(name="charge", description="charge", check=check, **options)(pay)
    world.change = lambda tools: [made if each.name == "charge" else each for each in tools]
    life = await live(world)
    assert life.error is None
    replayed = await live(world)  # it was recorded as a part of the call
    assert results(replayed) == results(life)
    return results(life)["b"], ran


@pytest.mark.parametrize("kind", ["sync", "async"])
async def test_a_check_that_knows_the_result_of_a_call_gives_it(kind: str) -> None:
    asked: list[Any] = []

    def check(q: str, run: Run[Any]) -> str:
        asked.append((q, run.call_key, run.attempt))
        return "paid before"

    async def later(q: str, run: Run[Any]) -> str:
        return check(q, run)

    assert await again(check if kind == "sync" else later) == ("paid before", [])
    assert asked == [("b", "chat.b", 2)]


async def test_a_call_that_its_check_says_did_not_happen_runs_under_the_same_key() -> None:
    assert await again(lambda: NotRun()) == ("paid now", ["pay b chat.b"])


def fails() -> None:
    raise OSError("no bank")


@pytest.mark.parametrize("check", [lambda: None, fails], ids=["none", "raises"])
async def test_a_check_that_cannot_tell_leaves_a_call_that_may_have_run(check: Any) -> None:
    text, ran = await again(check)
    assert "may have run" in text
    assert ran == []


async def test_a_check_is_not_asked_about_a_call_that_begins() -> None:
    asked: list[str] = []

    @tool(check=lambda: asked.append("check"))
    async def pay() -> str:
        """Pay."""
        return "paid"

    response = await Agent(ScriptedModel(call("pay"), "Done."), tools=[pay]).chat("Pay.")
    assert response.text == "Done."
    assert asked == []


def test_a_check_that_cannot_be_called_is_refused_with_its_parameter() -> None:
    async def pay(q: str) -> str:
        """Pay."""
        return q

    def wrong(account: str) -> None:
        return None

    with pytest.raises(ToolDefinitionError, match="parameter 'account'"):
        tool(check=wrong)(pay)
    with pytest.raises(ToolDefinitionError, match="idempotent=True"):
        tool(check=lambda: None, idempotent=True)(pay)
    copy = tool(check=lambda: None)(pay).replace(name="other")
    assert copy.check is not None
    schema = Tool.from_schema("pay", "Pay.", {"type": "object"}, lambda data: data, check=takes)
    assert schema.check is not None


def takes(data: dict[str, Any]) -> None:
    """The one argument of the tool."""
