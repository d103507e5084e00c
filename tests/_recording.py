"""A runtime that writes down what every step gave, and plays a chat again from that.

It stands on the public protocol alone: `for_chat`, `step`, `wait`, `gather`, `now`, `new_id`, and
of the chat `attempt`, `mark`, `effects`, `apply`. What it writes is one list of JSON objects, the
journal, in the order in which things happened:

    {"id": …} an id that was drawn        {"now": …} what the clock said, outside of any step
    {"begin": key}                        {"end": key, "value": …, "effects": …}

A step that ended is never run again: it gives its value back when all that ended before it has been
given back. A step that raised has no end, so it is run again; but an abort is something that a step
did, so a step that was cut off by it has an end too (`cut`).

`limit` lets the process die when it has written so many lines: nothing runs any more, and `Crash`
comes out of everything. `live` plays one life of a scene, and every hook, tool and model of it says
`note(...)`: the notes tell under which step what has run.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter, defaultdict, deque
from contextvars import ContextVar
from functools import partial
from typing import Any

import msgspec

from hookline import Approve, Conversation, Deny, LocalRuntime, Usage, UserMessage
from hookline.models import Finish, TextChunk, ToolCallChunk
from hookline.runtimes import Effects, Halted, key_name

OUTSIDE = "-"
USAGE = Usage(input_tokens=10, output_tokens=3)
_step: ContextVar[str] = ContextVar("step", default=OUTSIDE)


class Crash(Halted):
    """The process died here: this life of the chat is over."""


class Ids(LocalRuntime):
    """The local runtime with ids and a clock that can be foreseen."""

    def __init__(self, name: str = "chat", drawn: int = 0) -> None:
        self._name = name
        self._drawn = drawn
        self._time = 1000.0

    def new_id(self) -> str:
        self._drawn += 1
        return f"{self._name}-{self._drawn}"

    def now(self) -> float:
        self._time += 1.0
        return self._time


class TwoClocks(Ids):
    """Steps have a clock of their own inside, as under a recorder."""

    def __init__(self) -> None:
        super().__init__()
        self._inside = Ids()

    async def step(self, key: Any, fn: Any, returns: Any, /, *args: Any) -> Any:
        token = _step.set("a step")
        try:
            return await fn(*args)
        finally:
            _step.reset(token)

    def now(self) -> float:
        return super().now() if _step.get() == OUTSIDE else self._inside.now()


class Recording:
    """A runtime with a journal. `again` is the journal of an earlier life."""

    def __init__(
        self,
        again: list[dict[str, Any]] | None = None,
        *,
        limit: int | None = None,
        name: str = "chat",
        reread: bool = False,
        in_order: bool = True,
    ) -> None:
        past: list[dict[str, Any]] = json.loads(json.dumps(again or []))
        self.journal = past
        self.limit = limit
        self.keys: list[Any] = []  # every key of this life, in order
        self.given: list[str] = []  # the steps whose value came from the journal
        self.ran: list[str] = []  # the steps that ran
        self.notes: list[tuple[str, str]] = []
        self._plain = Ids(name, 1)  # of what is inside of steps, after the chat itself
        self._clock = Ids(name)
        self.died: Any = lambda: None
        self.answers = False
        self.life = f"{len(past)}"  # each begins where the journal of the one before ended
        self._reread = reread  # a step that ran gives its value as it is read back, too
        self._ids = deque(line["id"] for line in past if "id" in line)
        self._times = deque(line["now"] for line in past if "now" in line)
        for _ in self._ids:
            self._clock.new_id()
        for _ in self._times:
            self._clock.now()
        self._begun = Counter(line["begin"] for line in past if "begin" in line)
        self._ends: defaultdict[str, deque[tuple[int, Any]]] = defaultdict(deque)
        for place, line in enumerate(each for each in past if "end" in each):
            self._ends[line["end"]].append((place, line))
        self._in_order = in_order
        self._next = 0

    def note(self, text: str) -> None:
        """Something ran: under this step, or outside of any."""
        self.notes.append((_step.get(), text))

    @property
    def dead(self) -> bool:
        return self.limit is not None and len(self.journal) >= self.limit

    def _write(self, line: dict[str, Any]) -> None:
        if self.dead:
            self.died()
            raise Crash
        self.journal.append(json.loads(json.dumps(line)))

    # ── the protocol ────────────────────────────────────────────────────────────────────────

    def for_chat(self, chat: Any) -> Any:
        if _step.get() != OUTSIDE:
            return self._plain  # a chat inside a step belongs to the step
        return _OfChat(self, chat)

    async def messages(self) -> tuple[()]:
        return ()  # no other process sends anything

    def new_id(self) -> str:
        if _step.get() != OUTSIDE:
            return self._plain.new_id()
        if self._ids:
            return self._ids.popleft()
        drawn = self._clock.new_id()
        self._write({"id": drawn})
        return drawn

    def now(self) -> float:
        if _step.get() != OUTSIDE:
            return self._plain.now()
        if self._times:
            return self._times.popleft()
        time = self._clock.now()
        self._write({"now": time})
        return time

    async def gather(self, jobs: Any, /) -> None:
        await self._clock.gather(jobs)

    def lock(self) -> asyncio.Lock:
        return asyncio.Lock()

    def has_passed(self, key: Any) -> bool:
        return False

    def has_begun(self, key: Any) -> bool:
        return self._begun[key_name(key)] > 0

    async def step(self, key: Any, fn: Any, returns: Any, /, *args: Any) -> Any:
        raise AssertionError("the loop asks the runtime that for_chat gave")

    wait = step


class _OfChat:
    """The same, of one chat."""

    def __init__(self, all_: Recording, chat: Any) -> None:
        self._all = all_
        self._chat = chat
        self.gather = all_.gather
        self.lock = all_.lock
        self.has_passed = all_.has_passed
        self.has_begun = all_.has_begun
        self.now = all_.now
        self.new_id = all_.new_id
        self.life = all_.life
        self.answers = all_.answers
        self.messages = all_.messages

    def for_chat(self, chat: Any) -> Any:
        return self._all.for_chat(chat)

    async def step(self, key: Any, fn: Any, returns: Any, /, *args: Any) -> Any:
        def encode(value: Any) -> Any:
            return json.loads(returns.encode(value))

        def decode(data: Any) -> Any:
            return returns.decode(json.dumps(data).encode())

        return await self._once(key, partial(fn, *args), encode, decode)

    async def wait(self, key: Any, request: Any, ask: Any, /) -> Any:
        def decode(data: Any) -> Any:
            return msgspec.convert(data, Approve | Deny)

        async def answer() -> Any:
            return await ask() or Approve()  # without an approver: at once, as a client would

        return await self._once(key, answer, msgspec.to_builtins, decode)

    async def _once(self, key: Any, fn: Any, encode: Any, decode: Any) -> Any:
        all_, chat = self._all, self._chat
        name = key_name(key)
        assert _step.get() == OUTSIDE, f"{name} begins inside {_step.get()}"
        all_.keys.append(key)
        if all_._ends[name]:
            place, line = all_._ends[name].popleft()
            return decode(await self._given(place, name, line))
        all_._write({"begin": name})
        all_._begun[name] += 1
        all_.ran.append(name)
        chat.attempt = all_._begun[name]
        mark = chat.mark()
        token = _step.set(name)
        try:
            value = await fn()
        except asyncio.CancelledError:
            effects = chat.effects(mark)
            if effects.aborted:
                all_._write({"end": name, "cut": True, "effects": msgspec.to_builtins(effects)})
            raise
        finally:
            _step.reset(token)
        data = encode(value)
        effects = msgspec.to_builtins(chat.effects(mark))
        all_._write({"end": name, "value": data, "effects": effects})
        return decode(data) if all_._reread else value

    async def _given(self, place: int, name: str, line: Any) -> Any:
        all_ = self._all
        for _ in range(1000):
            if all_._next == place or not all_._in_order:
                break
            await asyncio.sleep(0)  # another one of the jobs side by side is next
        else:
            raise AssertionError(f"{name} waits for a step before it that nobody asks for")
        self._chat.apply(msgspec.convert(line["effects"], Effects))
        all_._next += 1
        all_.given.append(name)
        if line.get("cut"):
            raise asyncio.CancelledError("the chat was aborted in this step")
        return line["value"]


# ── scenes ──────────────────────────────────────────────────────────────────────────────────


def untimed(value: Any) -> Any:
    """The data without the times of calls and questions: a later life has other ones."""
    if isinstance(value, tuple):
        return tuple([untimed(each) for each in value])
    if not isinstance(value, msgspec.Struct) or not hasattr(value, "replace"):
        return value
    data: Any = value
    fields = {name: getattr(data, name) for name in data.__struct_fields__}
    without = {name: None if name in TIMES else untimed(each) for name, each in fields.items()}
    changes = {name: each for name, each in without.items() if each is not fields[name]}
    return data.replace(**changes) if changes else data


TIMES = ("at", "duration", "asked_at")


class Life:
    """What one life of a chat came to."""

    def __init__(self, runtime: Any, conversation: Conversation) -> None:
        self.runtime = runtime
        self.conversation = conversation
        self.events: list[Any] = []
        self.response: Any = None
        self.error: BaseException | None = None

    @property
    def journal(self) -> list[dict[str, Any]]:
        return self.runtime.journal

    @property
    def history(self) -> tuple[Any, ...]:
        return untimed(self.conversation.messages)

    @property
    def notes(self) -> list[str]:
        """What ran, in order."""
        return [text for _, text in self.runtime.notes]

    @property
    def names(self) -> list[str]:
        """The names of the keys, in order."""
        return [key_name(key) for key in self.runtime.keys]

    def ran(self, prefix: str) -> list[str]:
        """The notes that begin so."""
        return [text for text in self.notes if text.startswith(prefix)]


async def live(
    scene: Any,
    again: list[dict[str, Any]] | None = None,
    *,
    runtime: Any = None,
    conversation: Conversation | None = None,
    **options: Any,
) -> Life:
    """Play one life of a scene, in a process that knows nothing but the journal.

    `scene(runtime, note)` gives an agent and a function that begins its chat on a conversation.
    """
    if runtime is None:
        runtime = Recording(again, **options)
    if conversation is None:
        conversation = Conversation(id="conv")
    life = Life(runtime, conversation)
    asyncio.get_running_loop().set_exception_handler(_crashed)
    agent, begin = scene(runtime, getattr(runtime, "note", lambda text: None))
    heard = agent.subscribe()
    runtime.died = heard.close  # what is cleaned up after a crash is not seen by anybody
    try:
        life.response = untimed(await begin(agent, conversation))
    except (Exception, Crash) as exc:
        life.error = exc
    heard.close()
    async for event in heard:
        life.events.append(untimed(event))
    return life


def _crashed(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """A task that died of a crash has nobody who asks it why."""
    if not isinstance(context.get("exception"), Crash):
        loop.default_exception_handler(context)


def ask(text: str | UserMessage = "Go.", **options: Any) -> Any:
    """Begins a chat with this input."""

    async def begin(agent: Any, conversation: Conversation) -> Any:
        return await agent.chat(text, conversation=conversation, **options)

    return begin


# ── a model ─────────────────────────────────────────────────────────────────────────────────


class Model:
    """Answers by how many answers the history has, so that each process goes on where it was.

    A turn is a list: texts are deltas, `(id, name, {…})` are calls, an exception is raised.
    """

    name = "scripted"
    takes_schema = True

    def __init__(self, note: Any, *turns: Any) -> None:
        self.turns = turns
        self.note = note
        self.requests: list[Any] = []

    async def stream(self, request: Any) -> Any:
        self.requests.append(request)
        turn = sum(message.role == "assistant" for message in request.messages)
        self.note(f"model {turn}")
        called = 0
        for part in self.turns[turn]:
            if isinstance(part, str):
                yield TextChunk(part)
            elif isinstance(part, BaseException):
                raise part
            elif isinstance(part, tuple):
                id, name, arguments = part
                text = json.dumps(arguments)
                yield ToolCallChunk(index=called, id=id, name=name, arguments=text)
                called += 1
            else:
                yield part
        yield Finish(finish_reason="tool_calls" if called else "stop", usage=USAGE)
