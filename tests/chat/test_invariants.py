"""The loop as a state machine: whatever happens in whatever order, the invariants hold.

The rules are what users do: chat, read a stream for a while, break off, abort, drop the handle,
add and dispose hooks. What they do it with fails in every way: models, tools, hooks, approvers.
After each rule, and again when everything has been closed, the invariants I1, I3 to I10 and the
logs' half of I11 are asserted. (I2 is about spans, of which the core knows nothing.)
"""

from __future__ import annotations

import asyncio
import gc
import logging
import re
import warnings
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Coroutine
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    multiple,
    rule,
)
from tests._event_grammar import check_events

from hookline import (
    Agent,
    Approve,
    Ask,
    AssistantMessage,
    ChatStream,
    Continue,
    Conversation,
    Deny,
    Limits,
    ModelResponse,
    Run,
    Stop,
    ToolFailure,
    ToolMessage,
    ToolResult,
    check_history,
    tool,
)
from hookline.errors import (
    ChatAbortedError,
    ConversationBusyError,
    HookError,
    MaxStepsError,
    ModelError,
    StopChat,
    ToolDenied,
)
from hookline.events import (
    ChatAborted,
    ChatDone,
    ChatEvent,
    ChatFailed,
    ChatStarted,
    Interrupt,
    MessageAdded,
    SentMessage,
    StepFinished,
    StepStarted,
    ToolCallFinished,
    ToolCallStarted,
)
from hookline.hooks import by_sentence
from hookline.models import Finish, TextChunk, ToolCallChunk
from hookline.points import Guide, Hold
from hookline.testing import validate_request

T = TypeVar("T")
BOUND = 64
SECRET = "S3CRET"  # stands in every text, argument, result and exception
ANSWER = re.compile(rf"{SECRET} \d+\. ({SECRET} )*")  # a whole answer of the model
TERMINAL = (ChatDone, ChatAborted, ChatFailed)
OUTCOMES = {"onChatDone": "done", "onChatAbort": "aborted", "onChatError": "error"}
OURS = (ChatAbortedError, ConversationBusyError, MaxStepsError)


# ── what can happen ─────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class ModelTurn:
    """One answer of the model: pieces of text, calls, and how it ends."""

    pieces: int
    calls: tuple[tuple[str, str], ...]
    ending: str


@dataclass
class Plan:
    """What one chat will meet; it is also the chat's deps."""

    turns: tuple[ModelTurn, ...]
    approver: str
    taken: int = 0


plan_of_chat: ContextVar[Plan] = ContextVar("plan_of_chat")

model_turns = st.builds(
    ModelTurn,
    pieces=st.sampled_from([0, 1, 3, 30]),
    calls=st.lists(
        st.tuples(
            st.sampled_from(["work", "work", "work", "alone", "hidden", "nobody"]),
            st.sampled_from(
                ["ok", "ok", "raise", "hang", "status", "abort", "stop", "deny", "cancelled",
                 "slow", "bad arguments"]
            ),
        ),
        max_size=3,
    ).map(tuple),
    ending=st.sampled_from(["ok"] * 6 + ["raise", "cut", "hang", "cancelled"]),
)  # fmt: skip
plans = st.builds(
    Plan,
    turns=st.lists(model_turns, min_size=1, max_size=2).map(tuple),
    approver=st.sampled_from(["approve", "deny", "raise", "abort", "slow"]),
)
POINTS = [
    "aroundChat", "onChatStart", "preChat", "preSteer", "preRequest", "aroundRequest", "onDelta",
    "onResponse", "preMessage", "onMessage", "preToolCall", "aroundToolCall", "onToolCallResult",
    "onToolCallError", "onStep", "preStop", "onChatDone", "onChatAbort", "onChatError", "onChatEnd",
    "onStatus", "onApproval", "onHook",
]  # fmt: skip
WRAPPERS = ("aroundChat", "aroundRequest", "aroundToolCall")
ANYWHERE = ["pass", "sleep", "raise", "raise, logged", "abort", "dispose all"]
HERE = {
    "preChat": ["answer", "stop"],
    "preRequest": ["answer", "stop"],
    "preToolCall": ["deny", "ask", "answer", "stop", "raise, denied"],
    "onDelta": ["drop"],
    "onResponse": ["change", "guide"],
    "preSteer": ["hold", "refuse"],
    "onToolCallResult": ["convert"],
    "onToolCallError": ["convert", "stop"],
    "onStep": ["stop"],
    "preStop": ["continue"],
}
behaviours = st.sampled_from(POINTS + ["preToolCall"] * 15).flatmap(
    lambda point: st.tuples(st.just(point), st.sampled_from(ANYWHERE + HERE.get(point, []) * 2))
)


@dataclass
class Reading:
    """A stream, and what its reader has seen of it."""

    stream: ChatStream | None
    conversation: Conversation
    events: list[ChatEvent] = field(default_factory=list)
    pull: asyncio.Task[ChatEvent] | None = None
    ended: bool = False
    error: BaseException | None = None


def began(reading: Reading) -> bool:
    """Bug: abort() after a chat that never began has ended is called timely."""
    return bool(reading.events)


class Listener(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.INFO)  # by default; DEBUG tells more
        self.said: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.said.append(self.format(record))


class Fickle:
    """A model that does what the chat's plan says."""

    def __init__(self, machine: Chats) -> None:
        self.machine = machine
        self.open = 0
        self.number = 0

    async def stream(self, request: Any) -> AsyncIterator[Any]:
        self.open += 1
        try:
            async for chunk in self.answer(request):
                yield chunk
        finally:
            self.open -= 1

    async def answer(self, request: Any) -> AsyncIterator[Any]:
        self.machine.asked(request)
        plan = plan_of_chat.get()
        turn = plan.turns[plan.taken] if plan.taken < len(plan.turns) else ModelTurn(1, (), "ok")
        plan.taken += 1
        for place in range(turn.pieces):
            yield TextChunk(f"{SECRET} " if place else self.machine.new_answer())
            await asyncio.sleep(0)
        for index, (name, mode) in enumerate(turn.calls):
            self.number += 1
            id = f"call-{self.number}"
            if turn.ending != "ok":
                self.machine.cut.add(id)
            good = f'{{"mode": "{mode}", "note": "{SECRET}"}}'
            arguments = good if mode != "bad arguments" else f'{{"mode": 7, "x": "{SECRET}"'
            yield ToolCallChunk(index=index, id=id, name=name, arguments=arguments)
        if turn.ending == "raise":
            raise self.machine.failure()
        if turn.ending == "cancelled":
            raise asyncio.CancelledError(SECRET)
        if turn.ending == "hang":
            await asyncio.Event().wait()
        if turn.ending != "cut":
            yield Finish(finish_reason="tool_calls" if turn.calls else "stop")


class Chats(RuleBasedStateMachine):
    """One agent, some conversations, and whatever is done with them."""

    conversations = Bundle("conversations")
    readings = Bundle("readings")
    hooks = Bundle("hooks")

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.loop_said: list[str] = []
        self.loop.set_exception_handler(
            lambda loop, context: self.loop_said.append(f"{context['message']} {context}")
        )
        self.listener = Listener()
        self.log = logging.getLogger("hookline")
        self.level = self.log.level
        self.log.setLevel(logging.INFO)
        self.log.addHandler(self.listener)
        self.log.propagate = False
        self.failures: list[BaseException] = []
        self.problems: list[str] = []
        self.requests: Counter[tuple[str, int]] = Counter()
        self.ran: Counter[str] = Counter()
        self.refused: set[str] = set()  # ids of calls that must not run
        self.cut: set[str] = set()  # ids of calls in an answer that never was complete
        self.running = 0
        self.answers = 0
        self.rejected: set[str] = set()  # answers that a Guide has withdrawn
        self.sent: list[SentMessage] = []
        self.trace: dict[str, list[str]] = defaultdict(list)
        self.messages: dict[str, list[str]] = defaultdict(list)
        self.histories: dict[int, tuple[Any, ...]] = {}
        self.kept: list[Conversation] = []
        self.open: list[Reading] = []
        self.disposers: list[Any] = []
        self.model = Fickle(self)
        self.agent: Agent[Any] = Agent(
            self.model,
            tools=self.tools(),
            approver=self.approver,
            limits=Limits(grace=0.01, steps=4),
        )
        self.heard = self.agent.subscribe(size=100_000)
        self.record()

    # what the agent is made of

    def failure(self) -> BaseException:
        """An exception that is ours to recognise."""
        error = LookupError(SECRET)
        self.failures.append(error)
        return error

    def tools(self) -> list[Any]:
        async def act(mode: str, run: Run[Plan]) -> str:
            assert run.call_id is not None
            self.ran[run.call_id] += 1
            self.running += 1
            try:
                if mode == "raise":
                    raise self.failure()
                if mode == "hang":
                    await asyncio.Event().wait()
                if mode == "status":
                    for _ in range(20):
                        await run.status("tick", SECRET)
                if mode == "abort":
                    run.abort("why")
                if mode == "stop":
                    raise StopChat(SECRET)
                if mode == "deny":
                    raise ToolDenied(SECRET)
                if mode == "cancelled":
                    raise asyncio.CancelledError(SECRET)
                if mode == "slow":
                    for _ in range(5):
                        await asyncio.sleep(0)
                return SECRET
            finally:
                self.running -= 1

        @tool(idempotent=True)
        async def work(mode: str, note: str, run: Run[Any]) -> str:
            return await act(mode, run)

        @tool(parallel=False)
        async def alone(mode: str, note: str, run: Run[Any]) -> str:
            return await act(mode, run)

        @tool(enabled=lambda: False)
        async def hidden(mode: str, note: str, run: Run[Any]) -> str:
            self.problems.append("I10: an unoffered tool ran")
            return await act(mode, run)

        return [work, alone, hidden]

    async def approver(self, request: Any, run: Run[Plan]) -> Any:
        how = run.deps.approver
        if how in ("deny", "raise", "abort"):
            self.refused.add(request.call.id)
        if how == "raise":
            raise self.failure()
        if how == "abort":
            run.abort("why")
        if how == "slow":
            for _ in range(5):
                await asyncio.sleep(0)
        return Deny(SECRET) if how == "deny" else Approve()

    def record(self) -> None:
        """Hooks that only look, before all others."""
        add: Any = self.agent.add_hook

        def note(point: str, said: Any) -> None:
            add(
                point,
                lambda ctx: self.trace[ctx.run.chat_id].append(said(ctx)) if ctx.run else None,
                priority=1000,
            )

        note("onChatStart", lambda ctx: "start")
        for point, outcome in OUTCOMES.items():
            note(point, lambda ctx, outcome=outcome: outcome)
        note("onChatEnd", lambda ctx: f"end {ctx.outcome}")
        add(
            "onMessage",
            lambda ctx: self.messages[ctx.run.chat_id].append(ctx.message.id),
            priority=1000,
        )
        add(
            "aroundRequest",
            self.count_requests,
            priority=-1000,
        )

    async def count_requests(self, ctx: Any, proceed: Any) -> Any:
        self.requests[ctx.run.chat_id, ctx.iteration] += 1
        return await proceed()

    def new_answer(self) -> str:
        """The start of an answer that no other answer has."""
        self.answers += 1
        return f"{SECRET} {self.answers}. "

    def asked(self, request: Any) -> None:
        try:
            validate_request(request)
        except Exception as exc:
            self.problems.append(f"I1: {exc}")

    # the rules

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Do it in a task of the loop; I5: nobody cancels that task."""

        async def main() -> T:
            task = asyncio.current_task()
            assert task is not None
            value = await work
            for _ in range(3):
                await asyncio.sleep(0)  # what cancels unrelated code strikes at the next await
            assert task.cancelling() == 0, "I5"
            return value

        return self.loop.run_until_complete(main())

    async def turns(self, number: int) -> None:
        for _ in range(number):
            await asyncio.sleep(0)

    def judge(self, error: BaseException) -> None:
        """I4: what reaches the user is the original, or hookline's own word for what it did."""
        if isinstance(error, HookError | ModelError):
            # for a CancelledError that nobody had asked for, or a model that broke off
            assert isinstance(error.__cause__, asyncio.CancelledError | None), repr(error)
        elif not isinstance(error, OURS):
            assert any(error is each for each in self.failures), repr(error)

    @initialize(target=conversations)
    def some_conversations(self) -> Any:
        return multiple(self.conversation(), self.conversation())

    @initialize(sentences=st.booleans(), guides=st.booleans())
    def some_checks(self, sentences: bool, guides: bool) -> None:
        """In half of the machines a check of each sentence, and a Guide for each other answer."""
        add: Any = self.agent.add_hook

        def guide(ctx: Any) -> Any:
            odd = ANSWER.fullmatch(ctx.response.text) and self.answers % 2
            return self.value("onResponse", "guide", ctx) if odd else None

        if guides:
            add("onResponse", guide, name="guides")
        for hook in by_sentence(lambda text, run: None) if sentences else ():
            add(hook.point, hook.fn, name="by_sentence")

    @initialize(target=hooks, wanted=st.lists(behaviours, max_size=3))
    def some_hooks(self, wanted: list[tuple[str, str]]) -> Any:
        return multiple(*[self.added(behaviour, 0) for behaviour in wanted])

    def conversation(self) -> Conversation:
        conversation = Conversation()
        self.kept.append(conversation)
        return conversation

    @rule(conversation=conversations, plan=plans)
    def chat(self, conversation: Conversation, plan: Plan) -> None:
        self.chatted(conversation, plan)

    @rule(conversation=conversations, plan=plans)
    def chat_again(self, conversation: Conversation, plan: Plan) -> None:
        """The same: what is most common."""
        self.chatted(conversation, plan)

    def chatted(self, conversation: Conversation, plan: Plan) -> None:
        """A whole chat; one that hangs is cancelled after a while."""

        async def main() -> None:
            plan.taken = 0
            plan_of_chat.set(plan)
            busy = conversation.busy
            task = asyncio.ensure_future(
                self.agent.chat(SECRET, conversation=conversation, deps=plan)
            )
            for _ in range(300):
                await asyncio.sleep(0)
                if task.done():
                    break
            task.cancel()
            await asyncio.wait([task])
            if task.cancelled():
                return
            error = task.exception()
            if error is not None:
                assert busy or not isinstance(error, ConversationBusyError)
                self.judge(error)
            else:
                assert not busy

        self.run(main())

    @rule(
        target=readings,
        conversation=conversations,
        plan=plans,
        release=st.sampled_from(["live", "response"]),
    )
    def stream(self, conversation: Conversation, plan: Plan, release: Any) -> Any:
        return self.open_stream(conversation, plan, release)

    def open_stream(self, conversation: Conversation, plan: Plan, release: Any) -> Any:
        plan.taken = 0

        async def main() -> ChatStream:
            plan_of_chat.set(plan)
            return self.agent.chat_stream(
                SECRET, conversation=conversation, deps=plan, release=release
            )

        reading = Reading(self.run(main()), conversation)
        self.open.append(reading)
        return reading

    @rule(reading=readings, number=st.sampled_from([1, 2, 5, 40]))
    def read(self, reading: Reading, number: int) -> None:
        """Pull some events; a pull that waits is left waiting."""
        if reading.stream is None or reading.ended:
            return

        async def main() -> None:
            for _ in range(number):
                if reading.pull is None:
                    assert reading.stream is not None
                    reading.pull = asyncio.ensure_future(anext(reading.stream))
                for _ in range(80):
                    await asyncio.sleep(0)
                    if reading.pull.done():
                        break
                else:
                    return
                self.take(reading)
                if reading.ended:
                    return

        self.run(main())

    def take(self, reading: Reading) -> None:
        """What a finished pull has given."""
        pull, reading.pull = reading.pull, None
        assert pull is not None
        if pull.cancelled():
            reading.ended = True
            return
        error = pull.exception()
        if error is None:
            reading.events.append(pull.result())
        else:
            reading.ended = True
            if not isinstance(error, StopAsyncIteration):
                reading.error = error
                self.judge(error)

    @rule(number=st.integers(1, 60))
    def wait(self, number: int) -> None:
        self.run(self.turns(number))

    @rule(reading=readings)
    def cancel_reader(self, reading: Reading) -> None:
        if reading.pull is None:
            return

        async def main() -> None:
            assert reading.pull is not None
            reading.pull.cancel()
            await asyncio.wait([reading.pull])
            self.take(reading)
            reading.ended = True

        self.run(main())

    @rule(reading=readings)
    def abort(self, reading: Reading) -> None:
        if reading.stream is None:
            return
        stream = reading.stream

        async def main() -> None:
            first, second = stream.abort("why"), stream.abort("why")
            assert not second
            assert not (first and reading.ended and began(reading))

        self.run(main())

    @rule(
        conversation=conversations,
        plan=plans,
        sends=st.lists(st.sampled_from(["next", "idle", "interrupt"]), min_size=1, max_size=3),
        events=st.integers(1, 12),
    )
    def steer(self, conversation: Conversation, plan: Plan, sends: list[str], events: int) -> None:
        """Read a stream for a while, say something to its chat, and read on."""
        reading = self.open_stream(conversation, plan, "live")
        for message in sends:
            self.read(reading, events)
            if began(reading):
                self.sent.append(self.run(self.say(reading.stream, message)))
        self.read(reading, 40)
        self.run(self.left(reading, drops=False))

    async def say(self, stream: Any, message: str) -> SentMessage:
        text = f"{SECRET} to {len(self.sent)}"
        sent: SentMessage
        if message == "interrupt":
            sent = stream.send(Interrupt(text))
        else:
            sent = stream.send(text, message)
        return sent

    @rule(reading=consumes(readings), drops=st.booleans())
    def leave(self, reading: Reading, drops: bool) -> None:
        """Close it, or let go of it."""
        self.run(self.left(reading, drops))

    async def left(self, reading: Reading, drops: bool) -> None:
        stream, reading.stream = reading.stream, None
        if stream is None:
            return
        if drops and reading.pull is None:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ResourceWarning)
                del stream
        else:
            await stream.aclose()
        if reading.pull is not None:
            await asyncio.wait([reading.pull])
            self.take(reading)
        reading.ended = True
        self.open.remove(reading)

    @rule(target=hooks, behaviour=behaviours, priority=st.integers(-1, 1))
    def add_hook(self, behaviour: tuple[str, str], priority: int) -> Any:
        return self.added(behaviour, priority)

    def added(self, behaviour: tuple[str, str], priority: int) -> Any:
        point, how = behaviour
        options: dict[str, Any] = {"priority": priority}
        if how == "raise, logged":
            options["on_error"] = "log"
        elif how == "raise, denied":
            options["on_error"] = "deny"
        fn: Any = self.wrapper(how) if point in WRAPPERS else self.hook(point, how)
        add: Any = self.agent.add_hook
        disposer = add(point, fn, **options)
        self.disposers.append(disposer)
        return disposer

    @rule(disposer=hooks)
    def dispose(self, disposer: Any) -> None:
        disposer()

    def hook(self, point: str, how: str) -> Any:
        async def hook(ctx: Any) -> Any:
            if how == "sleep":
                await self.turns(2)
            elif how.startswith("raise"):
                if how == "raise, denied":
                    self.refused.add(ctx.call.id)
                raise self.failure()
            elif how == "abort":
                if ctx.run is not None:
                    ctx.run.abort("why")
            elif how == "dispose all":
                for disposer in self.disposers:
                    disposer()
            elif how != "pass":
                return self.value(point, how, ctx)
            return None

        return hook

    def value(self, point: str, how: str, ctx: Any) -> Any:
        """What a hook returns to change the course of the chat."""
        if point == "preToolCall" and how != "ask":
            self.refused.add(ctx.call.id)
            return {
                "deny": ToolFailure(SECRET),
                "answer": ToolResult(SECRET),
                "stop": Stop(SECRET, text=SECRET),
            }[how]
        if point == "onToolCallResult":
            return ToolFailure(SECRET)
        if point == "onToolCallError" and how == "convert":
            # converting back what the other chain has converted would be a hook's mistake
            return None if ctx.error.message == SECRET else ToolResult(SECRET)
        values: dict[str, Any] = {
            "ask": Ask(SECRET),
            "answer": ModelResponse.of(SECRET),
            "stop": Stop(SECRET, text=SECRET),
            "drop": (),
            "continue": Continue(SECRET),
            "guide": Guide(SECRET),
            "hold": Hold(),
            "refuse": Deny(SECRET),
        }
        if how == "guide" and ANSWER.fullmatch(ctx.response.text):
            self.rejected.add(ctx.response.text)
        if how == "change":
            return ctx.response.replace(text=f"{SECRET} changed")
        return values[how]

    def wrapper(self, how: str) -> Any:
        async def wrapper(ctx: Any, proceed: Any) -> Any:
            if how == "sleep":
                await self.turns(2)
            elif how.startswith("raise"):
                raise self.failure()
            elif how == "abort":
                ctx.run.abort("why")
            elif how == "dispose all":
                for disposer in self.disposers:
                    disposer()
            return await proceed()

        return wrapper

    # the invariants

    @invariant()
    def hold(self) -> None:
        self.requests_are_valid()
        self.outcomes_are_single()
        self.history_is_whole()
        self.sends_are_decided_once()
        self.rejected_answers_are_withdrawn()
        self.nothing_runs_twice_or_unasked()
        self.the_buffer_is_bounded()
        self.events_are_in_order()
        self.logs_tell_no_content()
        self.the_loop_has_nothing_to_say()

    def requests_are_valid(self) -> None:
        """I1, and I10's unoffered tool."""
        assert self.problems == []

    def outcomes_are_single(self) -> None:
        """Each start is followed by exactly one outcome, then the end; nothing without a start."""
        for lines in self.trace.values():
            assert lines[0] == "start", lines
            whole = [["start", each, f"end {each}"] for each in OUTCOMES.values()]
            assert any(lines == each[: len(lines)] for each in whole), lines

    def history_is_whole(self) -> None:
        """I6: only appended to, and valid whenever no chat runs on it."""
        for conversation in self.kept:
            now = conversation.messages
            before = self.histories.get(id(conversation), ())
            assert now[: len(before)] == before
            self.histories[id(conversation)] = now
            if not conversation.busy:
                check_history(now)
                for message in now:
                    if isinstance(message, AssistantMessage):
                        assert message.parts
        for ids in self.messages.values():
            assert len(ids) == len(set(ids))  # I7: each message is told once

    def sends_are_decided_once(self) -> None:
        """A sent message is in one history exactly once, or in none and is returned."""
        ids = Counter(message.id for talk in self.kept for message in talk.messages)
        for sent in self.sent:
            assert ids[sent.message.id] <= 1
            if sent.status != "queued":
                assert sent.status in ("delivered", "returned")
                assert ids[sent.message.id] == (sent.status == "delivered")

    def rejected_answers_are_withdrawn(self) -> None:
        """An answer that a Guide has withdrawn is in no history and is not the response."""
        for talk in self.kept:
            for message in talk.messages:
                assert message.text not in self.rejected
        for reading in self.open:
            for event in reading.events:
                if isinstance(event, ChatDone):
                    assert event.response.text not in self.rejected

    def nothing_runs_twice_or_unasked(self) -> None:
        """I9 and I10; arguments that were cut never run either."""
        assert max(self.ran.values(), default=0) <= 1
        assert max(self.requests.values(), default=0) <= 1
        assert self.refused.isdisjoint(self.ran)
        assert self.cut.isdisjoint(self.ran)

    def the_buffer_is_bounded(self) -> None:
        """I8: what was put and not read is at most 64, and the one last event."""
        put: Counter[str] = Counter()
        for event in self.heard._items:
            if not isinstance(event, TERMINAL):
                put[event.chat_id] += 1
        for reading in self.open:
            if reading.stream is not None and reading.events:
                taken = [e for e in reading.events if not isinstance(e, TERMINAL)]
                waiting = put[reading.events[0].chat_id] - len(taken)
                assert waiting <= BOUND

    def events_are_in_order(self) -> None:
        """I7: numbered without a gap, and what was started is ended."""
        for reading in self.open:
            events = reading.events
            assert [event.seq for event in events] == list(range(1, len(events) + 1))
            if not events:
                continue
            check_events(events, complete=False)
            assert isinstance(events[0], ChatStarted)
            finals = [event for event in events if isinstance(event, TERMINAL)]
            assert len(finals) <= 1
            if finals:
                assert finals[0] is events[-1]
                begun = Counter(e.call.id for e in events if isinstance(e, ToolCallStarted))
                ended = Counter(e.call_id for e in events if isinstance(e, ToolCallFinished))
                assert begun == ended
                assert max(begun.values(), default=0) <= 1
                added = [e.message.id for e in events if isinstance(e, MessageAdded)]
                assert len(added) == len(set(added))
            steps = [e for e in events if isinstance(e, StepStarted | StepFinished)]
            for number, event in enumerate(steps):
                assert isinstance(event, StepStarted if number % 2 == 0 else StepFinished)
                assert event.iteration == number // 2

    def logs_tell_no_content(self) -> None:
        """I11: no text, argument, result or exception text in a log record."""
        for line in self.listener.said:
            assert SECRET not in line, line

    def the_loop_has_nothing_to_say(self) -> None:
        assert self.loop_said == []

    def teardown(self) -> None:
        """Close everything: then nothing of ours is alive (I3), and every chat has ended."""
        try:
            self.run(self.close())
            gc.collect(
                1
            )  # what was just dropped; a full collection would take longer than all else
            self.the_loop_has_nothing_to_say()
            self.outcomes_are_single()
            self.history_is_whole()
            self.logs_tell_no_content()
            assert all(lines[-1].startswith("end ") for lines in self.trace.values()), self.trace
            assert (self.model.open, self.running) == (0, 0)
            assert not any(conversation.busy for conversation in self.kept)
            assert all(sent.status != "queued" for sent in self.sent)
            for conversation in self.kept:
                calls = [
                    call.id
                    for message in conversation.messages
                    if isinstance(message, AssistantMessage)
                    for call in message.tool_calls
                ]
                results = [m.call_id for m in conversation.messages if isinstance(m, ToolMessage)]
                assert sorted(calls) == sorted(results)
        finally:
            self.loop.close()
            self.log.removeHandler(self.listener)
            self.log.setLevel(self.level)
            self.log.propagate = True

    async def close(self) -> None:
        for reading in list(self.open):
            await self.left(reading, drops=False)
        for _ in range(200):
            await asyncio.sleep(0)
            if len(asyncio.all_tasks()) == 1:
                break
        others = asyncio.all_tasks() - {asyncio.current_task()}  # type: ignore[arg-type]
        assert others == set(), "I3"


Chats.TestCase.settings = settings(
    max_examples=200,
    stateful_step_count=12,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)
test_the_invariants_hold = pytest.mark.slow(Chats.TestCase)
