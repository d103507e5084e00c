"""throw: an exception from every place at which code of others is called, one at a time.

The places are found by a run in which nothing fails, and each is then tried in a chat of its own:
each call of a hook, wrappers after `proceed` too, each tool where it begins and where it ends, each
chunk of the model, each request to the store, and, through the providers' SDKs on real sockets,
answers that break off anywhere. `promised` says what the contract wants of each.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from tests import _every_point as t1
from tests._checkpoints import Scene, answer, goes_on, left_running, wish

from hookline import Conversation, MemoryStore, Scope, tool
from hookline.errors import ChatAbortedError
from hookline.points import TABLE

from . import services
from .figures import Budget, Figure, Findings, tries
from .invariants import ALL, ORPHANS, REST, TASKS, Spans, listening, look, orphans

NAME = "throw"
TITLE = "an exception from every hook, tool, model, store and provider"
WEIGHT = 10

CALLER = "callers who got another exception object"
OUTCOME = "chats with another outcome than was promised"
NEXT = "conversations on which the next chat failed"
TOOLS = ("report", "fails", "quick")
IGNORED = {name for name in TABLE if name.startswith("onScope")} | {
    "onChatAbort", "onChatError", "onChatEnd", "onHook"
}  # fmt: skip


SWITCHES = ("scope enabled", "scope context", "tool enabled")


@tool
async def unused() -> None:
    """Is offered, and nobody calls it."""


class Fault(Exception):
    """What is raised."""


class Planned(Exception):
    """What a chat fails with that is to fail before the fault comes."""


@dataclass(frozen=True)
class Promise:
    """What must come of a fault: whether its exception reaches the caller, and the outcome."""

    raised: bool
    outcome: str | None


def promised(place: str) -> Promise:
    """What the contract says of a fault at this place, in a chat that would be done."""
    if place in IGNORED or place in SWITCHES:
        return Promise(False, "done")  # logged; off, or left out
    if place == "aroundChat" or place in ("store acquire", "store load"):
        return Promise(True, None)  # the caller's alone: the chat has not begun
    if place in ("onChatDone", "after aroundChat"):
        return Promise(True, "done")  # the outcome stands
    if place.startswith("store release") or place.split()[0] in TOOLS:
        return Promise(False, "done")  # logged; told to the model
    return Promise(True, "error")


class Places:
    """Chats that fail at one place each, and what was found."""

    def __init__(self) -> None:
        self.spans = Spans()
        self.findings = Findings(*ALL, CALLER, OUTCOME, NEXT)
        self.tried: dict[str, int] = {}
        self.points: set[str] = set()

    def scene(self, *turns: Any, **options: Any) -> Scene:
        """The scene, with a system text and a scope that are asked for as well."""

        def asked(name: str, answer: Any) -> Any:
            made.site(name)
            return answer

        options = {"telemetry": self.spans.telemetry, **options}

        def system(run: Any) -> str:
            return str(asked("system", "Be brief."))

        made = Scene(*turns, system=system, **options)
        extra = Scope(
            "extra",
            tools=[unused.replace(enabled=lambda: asked("tool enabled", True))],
            context=lambda: asked("scope context", "It is Monday."),
            enabled=lambda: asked("scope enabled", True),
        )
        made.agent.scopes.register(extra)
        return made

    async def run(self, scene: Scene) -> None:
        """Play it; what reached the caller stands in `scene.error`."""
        task = asyncio.ensure_future(scene.by_stream())
        await asyncio.wait([task])
        scene.error = task.exception()
        scene.left = await left_running()

    async def judge(
        self, kind: str, place: str, scene: Scene, promise: Promise, expected: Any
    ) -> None:
        """Compare what came with what was promised; `expected` is what the caller must get."""
        self.tried[kind] = self.tried.get(kind, 0) + 1
        self.findings.take(await look(scene, self.spans), place)
        same = scene.error is expected
        self.findings.note(CALLER, 0 if same else 1, f"{place}: {scene.error!r}")
        came = scene.trace[1] if len(scene.trace) > 1 else None
        right = came == promise.outcome
        self.findings.note(OUTCOME, 0 if right else 1, f"{place}: {came} for {promise.outcome}")
        await self.next(place, scene.conversation)

    async def next(self, place: str, conversation: Conversation) -> None:
        try:
            await goes_on(conversation)
        except Exception as exc:
            self.findings.note(NEXT, 1, f"{place}: {exc!r}")


# ── hooks, tools, the approver ──────────────────────────────────────────────────────────────


async def _sites(places: Places) -> list[str]:
    """Every place of the scene, in the order in which a chat comes to it."""
    scene = places.scene()
    found: list[str] = []
    scene.at_site = lambda name, ctx: found.append(name)
    await places.run(scene)
    assert scene.error is None
    places.spans.take()
    return found


async def at_sites(places: Places, budget: Budget) -> None:
    """A fault at each place of the scene."""
    for number, place in enumerate(await _sites(places)):
        budget.tell(f"{place}, place {number}")
        fault = Fault(place)
        scene = places.scene()
        scene.at_site = _raising(number, fault)
        await places.run(scene)
        of_tool = place.split()[0] in TOOLS
        kind = "hook and approver"
        if of_tool or place in SWITCHES or place == "system":
            kind = "tool" if of_tool else "system text and scope"
        promise = promised(place)
        await places.judge(kind, place, scene, promise, fault if promise.raised else None)
        places.points.add(place.removeprefix("after "))
        told = sum(error is fault for error in scene.tool_errors)
        if of_tool and told != 1:
            places.findings.note(CALLER, 1, f"{place}: onToolCallError did not get it")


def _raising(number: int, fault: Exception) -> Callable[[str, Any], None]:
    """Raise it at the n-th place."""
    count = iter(range(number + 1))

    def at(name: str, ctx: Any) -> None:
        if next(count, None) == number:
            raise fault

    return at


async def at_endings(places: Places) -> None:
    """A fault in each hook that is told how a failed or aborted chat has ended."""
    for way, point in (("error", "onChatError"), ("aborted", "onChatAbort")):
        for place in (point, "onChatEnd"):
            planned, fault = Planned(), Fault(place)
            scene = places.scene()
            scene.at_site = _ending(way, place, planned, fault)
            await places.run(scene)
            expected: BaseException | None = planned
            if way == "aborted" and isinstance(scene.error, ChatAbortedError):
                expected = scene.error
            promise = Promise(False, way)
            await places.judge("hook and approver", f"{place}, {way}", scene, promise, expected)
            places.points.add(place)


def _ending(
    way: str, place: str, planned: Exception, fault: Exception
) -> Callable[[str, Any], None]:
    """End the chat in this way at its first step, and raise the fault at this place."""

    def at(name: str, ctx: Any) -> None:
        if name == "onStep" and way == "error":
            raise planned
        if name == "onStep":
            ctx.run.abort("planned")
        if name == place:
            raise fault

    return at


async def beside_chats(places: Places) -> None:
    """The points that the scene does not reach: of scopes, of updates, of a compaction."""
    for point in TABLE:
        if not (point.startswith("onScope") or "Update" in point or point == "preCompact"):
            continue
        fault = Fault(point)
        agent = t1.agent_for(point)
        agent.add_hook(point, t1.raising(fault))
        came: BaseException | None = None
        try:
            await t1.play(point, agent)
        except Exception as exc:
            came = exc
        expected = None if point in IGNORED else fault
        places.tried["hook and approver"] += 1
        places.findings.note(CALLER, 0 if came is expected else 1, f"{point}: {came!r}")
        places.findings.note(TASKS, len(await left_running()), point)
        places.points.add(point)


# ── the model ───────────────────────────────────────────────────────────────────────────────


class Refusing:
    """A model that raises before it gives an iterator."""

    name = "refusing"

    def __init__(self, fault: Exception) -> None:
        self._fault = fault

    def stream(self, request: Any, /) -> Any:
        raise self._fault


async def in_models(places: Places) -> None:
    """A fault before each chunk of each answer, and before there is an iterator."""
    chunks = len(wish().chunks(0, str, "")), len(answer().chunks(0, str, ""))
    for step, count in enumerate(chunks):
        for after in range(count):
            fault = Fault()
            options = {"fail": fault, "fail_after": after}
            turns = [answer(**options)] if step else [wish(**options)]
            scene = places.scene(*([wish(), *turns] if step else turns))
            await places.run(scene)
            place = f"model call {step}, chunk {after}"
            await places.judge("model", place, scene, promised(place), fault)
    fault = Fault()
    scene = places.scene(model=Refusing(fault))
    await places.run(scene)
    await places.judge("model", "stream()", scene, promised("stream()"), fault)


# ── the store ───────────────────────────────────────────────────────────────────────────────


class Faulty:
    """A store in memory that fails once: at the n-th request, before or after it is carried out."""

    lease: float | None = None

    def __init__(
        self, inner: MemoryStore, number: int = -1, fault: Exception | None = None
    ) -> None:
        self.asked: list[str] = []
        self._inner = inner
        self._number = number
        self._fault = fault

    def __getattr__(self, name: str) -> Any:
        async def request(*args: Any, **options: Any) -> Any:
            self._place(f"store {name}")
            value = await getattr(self._inner, name)(*args, **options)
            self._place(f"store {name}, carried out")
            return value

        return request

    def _place(self, name: str) -> None:
        self.asked.append(name)
        if len(self.asked) - 1 == self._number and self._fault is not None:
            raise self._fault


async def _stored(places: Places, number: int, fault: Exception | None) -> tuple[Scene, Any, Any]:
    """The scene on a conversation in a store that has a chat already."""
    inner = MemoryStore()
    await goes_on(await Conversation.open(inner, "talk"))
    store: Any = Faulty(inner, number, fault)
    scene = places.scene(conversation=Conversation.at(store, "talk"))
    await places.run(scene)
    return scene, inner, store


async def in_stores(places: Places) -> None:
    """A fault at each request to the store; then the store is opened anew, as a process would."""
    whole, _, store = await _stored(places, -1, None)
    assert whole.error is None
    places.spans.take()
    for number, place in enumerate(store.asked):
        fault = Fault(place)
        scene, inner, _ = await _stored(places, number, fault)
        promise = promised(place)
        if place in ("store acquire, carried out", "store load, carried out"):
            promise = Promise(True, None)
        found = await look(scene, places.spans)
        # What holds is asked of the store: the scene's object is left behind with its chat.
        found[ORPHANS] = found[REST] = 0
        if place == "store acquire, carried out" or place.startswith("store release"):
            # Nobody knows whether the lease was given, or given back: it runs out, by its length.
            await inner.release("talk", (await inner.load("talk")).owner or "")
        found[ORPHANS] = orphans((await Conversation.open(inner, "talk")).messages)
        places.findings.take(found, place)
        places.tried["store"] = places.tried.get("store", 0) + 1
        same = scene.error is (fault if promise.raised else None)
        places.findings.note(CALLER, 0 if same else 1, f"{place}: {scene.error!r}")
        came = scene.trace[1] if len(scene.trace) > 1 else None
        right = came == promise.outcome
        places.findings.note(OUTCOME, 0 if right else 1, f"{place}: {came}")
        await places.next(place, await Conversation.open(inner, "talk"))


async def _everything(places: Places, budget: Budget) -> None:
    await at_sites(places, budget)
    await at_endings(places)
    await beside_chats(places)
    await in_models(places)
    await in_stores(places)


def figures(budget: Budget) -> Iterator[Figure]:
    places = Places()
    with listening():  # what is ignored is logged
        asyncio.run(_everything(places, budget))
        found = asyncio.run(services.broken_off(budget))
    note = ", ".join(f"{kind} {count}" for kind, count in places.tried.items())
    yield tries(NAME, "places that raised", sum(places.tried.values()), 100, note)
    points = len(places.points & set(TABLE))
    yield tries(NAME, "hook points among them, which are all", points, len(TABLE))
    yield from places.findings.figures(NAME)
    yield from found
