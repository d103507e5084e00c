"""A sweep: one chat, ended early at each place where anything else can happen, in each way.

The chat of `_checkpoints.py` is run once for each checkpoint and each way to end it, and each time
the same things must hold: one outcome, a valid history, no task left, nothing said in the log.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests._checkpoints import (
    OUTCOMES,
    TERMINAL,
    WAYS,
    Act,
    Complaints,
    CountingLoop,
    Scene,
    abort_run,
    abort_stream,
    cancel_consumer,
    cancel_owner,
    close_stream,
    goes_on,
    nothing_runs,
    once,
    wish,
)

from hookline import Agent, AssistantMessage, Text, check_history, define_hook
from hookline.errors import ChatAbortedError, StreamInterruptedError
from hookline.events import ChatDone, ResponseReset, TextDelta
from hookline.hooks import by_sentence
from hookline.points import Guide
from hookline.testing import ScriptedModel, Turn, call


@pytest.fixture
def loop() -> Iterator[CountingLoop]:
    with asyncio.Runner(loop_factory=CountingLoop) as runner:
        loop = runner.get_loop()
        assert isinstance(loop, CountingLoop)
        yield loop


@pytest.fixture
def complaints() -> Iterator[Complaints]:
    handler = Complaints()
    logging.getLogger("hookline").addHandler(handler)
    yield handler
    logging.getLogger("hookline").removeHandler(handler)


def end_everywhere(
    way: str,
    loop: CountingLoop,
    complaints: Complaints,
    make: Callable[[], Scene] = Scene,
    check: Callable[[Scene], None] = Scene.holds,
) -> None:
    """End the chat in this way at each place where it can be cut."""
    form, act, errors = WAYS[way]
    endings: Counter[str] = Counter()

    async def sweep() -> int:
        at = 0
        while True:
            scene, happened = await once(form, act, at, make)
            try:
                check(scene)
                assert scene.error is None or isinstance(scene.error, errors)
                if at % 3 == 0:
                    await goes_on(scene.conversation)
                assert complaints.said == []
                assert loop.said == []
            except BaseException as exc:
                exc.add_note(f"at checkpoint {at}; trace {scene.trace}; raised {scene.error!r}")
                raise
            endings[scene.trace[1] if scene.trace else "nothing"] += 1
            if not happened:
                assert scene.error is None
                return at
            at += 1

    checkpoints = loop.run_until_complete(sweep())
    gc.collect()
    assert loop.said == []
    print(f"{way}: {checkpoints} checkpoints, {dict(endings)}")
    assert checkpoints > 70
    assert endings["aborted"] > 60


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
def test_ended_at_every_checkpoint(way: str, loop: CountingLoop, complaints: Complaints) -> None:
    """Section 7, first sentence, and I1, I3, I6, I7 – for each place where a chat can be cut."""
    end_everywhere(way, loop, complaints)


def checked() -> Scene:
    """A chat whose text is checked by the sentence, and whose first answer a Guide withdraws."""

    async def check(sentence: str, run: Any) -> str | None:
        await asyncio.sleep(0)
        return "" if "secret" in sentence else None

    def guide(ctx: Any) -> Guide | None:
        return Guide("Say it kindly.") if "Bad." in ctx.response.text else None

    bad = Turn("Bad. Very", " bad.", delay=lambda: asyncio.sleep(0))
    more = Turn("One. A sec", "ret. Two", delay=lambda: asyncio.sleep(0))
    hooks = [*by_sentence(check), define_hook("onResponse", guide)]
    return Scene(bad, wish(), more, hooks=hooks)


def holds_checked(scene: Scene) -> None:
    """A withdrawn answer is in no history, and the text that is shown is the text that is kept."""
    scene.holds()
    answers = [m for m in scene.conversation.messages[2:] if isinstance(m, AssistantMessage)]
    kept = [message.text for message in answers]
    assert not any("Bad" in message.text and not message.partial for message in answers)
    assert not any("secret" in text for text in kept)
    shown: dict[int, str] = {}
    for event in scene.events:
        if isinstance(event, ResponseReset):
            shown.pop(event.iteration, None)
        elif isinstance(event, TextDelta):
            shown[event.iteration] = shown.get(event.iteration, "") + event.text
    if scene.error is None and isinstance(scene.events[-1], ChatDone):
        assert list(shown.values()) == kept == ["let me see", "One. Two"]


@pytest.mark.parametrize(
    "way", ["the reader is cancelled", "run.abort() under a stream", "the owner is cancelled"]
)
def test_checked_and_guided_it_is_ended_at_every_checkpoint(
    way: str, loop: CountingLoop, complaints: Complaints
) -> None:
    end_everywhere(way, loop, complaints, checked, holds_checked)


PAIRS: dict[str, tuple[Act, Act]] = {
    "the reader is cancelled, then the owner": (cancel_consumer, cancel_owner),
    "the owner is cancelled, then the run aborted": (cancel_owner, abort_run),
    "the stream is aborted, then the reader cancelled": (abort_stream, cancel_consumer),
    "the stream is closed, then the reader cancelled": (close_stream, cancel_consumer),
}


@pytest.mark.parametrize("gap", [3])
@pytest.mark.parametrize("pair", PAIRS)
def test_ended_twice(pair: str, gap: int, loop: CountingLoop, complaints: Complaints) -> None:
    """The first decides; what comes a few callbacks later, in the middle of the ending, is late."""
    first, then = PAIRS[pair]

    def both(scene: Scene, consumer: asyncio.Task[None]) -> None:
        first(scene, consumer)
        loop.arm(gap, lambda: None if consumer.done() else then(scene, consumer))

    async def sweep() -> None:
        for at in range(2, 200, 2):
            scene, happened = await once("by_stream", both, at)
            try:
                scene.holds()
                assert scene.error is None or isinstance(
                    scene.error,
                    asyncio.CancelledError | ChatAbortedError | StreamInterruptedError,
                )
                if at % 3 == 0:
                    await goes_on(scene.conversation)
                assert (complaints.said, loop.said) == ([], [])
            except BaseException as exc:
                exc.add_note(f"at checkpoint {at}; trace {scene.trace}; raised {scene.error!r}")
                raise
            if not happened and scene.trace[1:2] == ["done"]:
                return

    loop.run_until_complete(sweep())
    gc.collect()
    assert loop.said == []


@pytest.mark.parametrize("turns", [0, 1, 3])
def test_dropped_after_every_event(turns: int, loop: CountingLoop, complaints: Complaints) -> None:
    """The reader takes n events, waits a few turns, and lets the handle go."""

    async def sweep() -> int:
        taken = 0
        while True:
            scene = Scene()
            stream = scene.agent.chat_stream("hi", conversation=scene.conversation, deps=scene)
            for _ in range(taken):
                scene.events.append(await anext(stream))
            for _ in range(turns):
                await asyncio.sleep(0)
            ended = bool(scene.events) and isinstance(scene.events[-1], TERMINAL)
            with warnings.catch_warnings(record=True) as said:
                warnings.simplefilter("always")
                del stream
            await nothing_runs()
            assert {each.category for each in said} <= {ResourceWarning}
            scene.holds()
            assert bool(scene.trace) == (taken > 0)
            assert not (ended and said)
            await goes_on(scene.conversation)
            assert (complaints.said, loop.said) == ([], [])
            if ended:
                return taken
            taken += 1

    events = loop.run_until_complete(sweep())
    print(f"dropped after each of {events} events, {turns} turns later")
    assert events > 25


@pytest.mark.parametrize("what", ["throws", "aborts", "cancels the caller"])
def test_at_every_call_of_a_hook(what: str, loop: CountingLoop, complaints: Complaints) -> None:
    """The n-th call of any hook throws, aborts, or has the caller cancelled."""
    endings: Counter[str] = Counter()

    async def sweep() -> int:
        at = 0
        while True:
            at += 1
            scene = Scene()
            fired: list[Any] = []

            consumers: list[asyncio.Task[None]] = []

            def act(
                number: int,
                ctx: Any,
                at: int = at,
                fired: list[Any] = fired,
                consumers: list[asyncio.Task[None]] = consumers,
            ) -> None:
                if number == at:
                    fired.append(ctx)
                    if what == "throws":
                        raise ValueError("the hook's")
                    if what == "aborts":
                        ctx.run.abort("swept")
                    else:
                        consumers[0].cancel()

            scene.at_hook = act
            consumer = loop.create_task(scene.by_stream())
            consumers.append(consumer)
            await asyncio.wait(consumers)
            await nothing_runs()
            error = asyncio.CancelledError() if consumer.cancelled() else consumer.exception()
            try:
                if fired and type(fired[0]).__name__ == "AroundChat":
                    assert scene.trace == []
                scene.holds()
                kind = {"throws": ValueError, "aborts": ChatAbortedError}
                assert error is None or isinstance(error, kind.get(what, asyncio.CancelledError))
                if at % 3 == 0:
                    await goes_on(scene.conversation)
                if what != "throws":  # throws of the last hooks are logged
                    assert complaints.said == []
                assert loop.said == []
            except BaseException as exc:
                exc.add_note(f"at hook {at}, {fired}; trace {scene.trace}; raised {error!r}")
                raise
            endings[scene.trace[1] if scene.trace else "nothing"] += 1
            if not fired:
                return at - 1

    hooks = loop.run_until_complete(sweep())
    gc.collect()
    assert loop.said == []
    print(f"{what}: at each of {hooks} calls of a hook, {dict(endings)}")
    assert hooks > 40


def test_shut_down_at_every_checkpoint(loop: CountingLoop) -> None:
    """A runner that cancels all tasks at once: nothing hangs, and the history stays whole."""

    async def sweep() -> int:
        at = 0
        while True:
            scene = Scene()
            main = asyncio.current_task()

            def all_of_them(main: Any = main) -> None:
                for task in asyncio.all_tasks():
                    if task is not main:
                        task.cancel()

            loop.arm(at, all_of_them)
            consumer = loop.create_task(scene.by_stream())
            await asyncio.wait([consumer])
            happened = loop.disarm()
            await nothing_runs()
            consumer.cancelled() or consumer.exception()
            try:
                check_history(scene.conversation.messages)
                assert len([each for each in scene.trace if each in OUTCOMES.values()]) <= 1
                assert (scene.model.open, scene.running) == (0, 0)
                if at % 3 == 0:
                    await goes_on(scene.conversation)
            except BaseException as exc:
                exc.add_note(f"at checkpoint {at}; trace {scene.trace}")
                raise
            if not happened:
                return at
            at += 1

    checkpoints = loop.run_until_complete(sweep())
    print(f"shut down at each of {checkpoints} checkpoints")
    assert checkpoints > 100


def test_a_sub_agent_is_ended_at_every_checkpoint(
    loop: CountingLoop, complaints: Complaints
) -> None:
    """'the parent's abort takes the child along': both have one outcome, wherever it comes."""

    class Family(Scene):
        def tools(self) -> list[Any]:
            self.inner: list[str] = []
            step = lambda: asyncio.sleep(0)  # noqa: E731
            child = Agent(ScriptedModel(Turn("hel", "lo", delay=step)), name="report")
            child.add_hook("onChatStart", lambda ctx: self.inner.append("start"))
            for point, outcome in OUTCOMES.items():
                child.add_hook(point, lambda ctx, o=outcome: self.inner.append(o))  # type: ignore[call-overload]
            child.add_hook("onChatEnd", lambda ctx: self.inner.append(f"end {ctx.outcome}"))
            return [child.as_tool(), *super().tools()[1:]]

    async def sweep() -> int:
        at = 0
        while True:
            scene = Family()
            scene.model._turns = (
                [
                    Text("let me see"),
                    call("report", input="?", call_id="c1"),
                    call("quick", n=1, call_id="c2"),
                ],
                "done",
            )
            consumers: list[asyncio.Task[None]] = []
            loop.arm(at, lambda consumers=consumers: consumers[0].cancel())  # type: ignore[misc]
            consumers.append(loop.create_task(scene.by_stream()))
            await asyncio.wait(consumers)
            happened = loop.disarm()
            await nothing_runs()
            try:
                scene.holds()
                assert scene.inner in ([], *(["start", o, f"end {o}"] for o in OUTCOMES.values()))
                if at % 3 == 0:
                    await goes_on(scene.conversation)
                assert (complaints.said, loop.said) == ([], [])
            except BaseException as exc:
                exc.add_note(f"at checkpoint {at}; trace {scene.trace}, inner {scene.inner}")
                raise
            if not happened:
                assert scene.inner == ["start", "done", "end done"]
                return at
            at += 1

    checkpoints = loop.run_until_complete(sweep())
    print(f"a sub-agent: {checkpoints} checkpoints")
    assert checkpoints > 80
