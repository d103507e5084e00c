"""The state of one chat, and the few verbs that change it: status, ask, abort, fail, halt.

The rest of the engine is functions over this state: `loop.py` is the life of the chat, `answer.py`
the model's answer, `batch.py` its tool calls. The state knows nothing of tasks. Its supervisor
answers every question about them.
"""

from __future__ import annotations

from asyncio import CancelledError
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Sequence
from contextvars import ContextVar
from typing import Any, Final, Protocol, TypeAlias
from weakref import WeakValueDictionary

import msgspec
from msgspec.structs import force_setattr

from hookline._base.cancel import Deadlines
from hookline._base.errors import ChatAbortedError, UsageError
from hookline._base.events import ChatEvent, Status
from hookline._base.json import NotJson, to_json_data
from hookline._base.log import logger
from hookline._base.messages import (
    NO_USAGE,
    AssistantMessage,
    FinishReason,
    History,
    Message,
    Timing,
    Usage,
)
from hookline._base.returns import Compaction, Response
from hookline._base.run import Run
from hookline._chat.asking import ask
from hookline._chat.channel import CLOSED, Channel
from hookline._chat.config import ChatInput, Config
from hookline._chat.inbox import Inbox
from hookline._chat.life import Life, Phase, Sign, Verdict
from hookline._chat.recorder import Recorder
from hookline._conversations.conversation import state_of
from hookline._conversations.state import ConversationState
from hookline._hooks.call_rules import OUTSIDE, Firing, Watch, intercept, notify
from hookline._hooks.points import OnStatus, PreCompact
from hookline._model.assembly import Assembly
from hookline._model.model import ModelRequest, ModelResponse, model_name
from hookline._record.runtime import LOCAL, RUN, Effects, Halted, Key, Runtime
from hookline._tools.tool import AnyTool

NONE: Final[frozenset[str]] = frozenset()
_attempt: ContextVar[tuple[str, int] | None] = ContextVar("hookline_attempt", default=None)


RUNNING: WeakValueDictionary[str, Chat] = WeakValueDictionary()
"""The chats of this process that run, by their id."""

Act: TypeAlias = Callable[[], Coroutine[Any, Any, None]]
Ending: TypeAlias = deque[Act]


class SupervisorPort(Protocol):
    """A chat's view of its supervisor, which owns the task in which the chat runs."""

    def is_here(self) -> bool:
        """Whether the task's event loop is the running one."""
        ...

    @property
    def left_behind(self) -> bool:
        """Whether the task is stuck, and another task ends the chat."""
        ...

    def interrupt(self) -> None:
        """Cancel the chat's task after an abort or a failure. Call it from any thread."""
        ...

    def hurry(self) -> None:
        """Start the grace period. Work that still runs when it is over is left behind."""
        ...

    def halt(self, exc: Halted) -> None:
        """Cancel the chat's task and raise this in the caller."""
        ...

    def cancelled(self) -> bool:
        """Whether the task is being cancelled."""
        ...

    def report_later(self, name: str, is_over: Callable[[], bool]) -> None:
        """Log the name of a tool if its thread still runs after the grace period."""
        ...

    def judge(self, exc: BaseException) -> None:
        """Decide the outcome by an exception of the chat; raise any other exception again."""
        ...

    async def finish(self, ending: Ending) -> None:
        """Carry out the ending within the grace period, even if cancelled meanwhile."""
        ...


class Step(msgspec.Struct, eq=False):
    """The step that runs now, or has run last; each step has its own."""

    base_messages: Sequence[Message] = ()  # of its request, before hooks
    base_tools: tuple[AnyTool, ...] = ()  # offered by the scopes
    final_request: ModelRequest | None = None  # as wrappers have changed it
    sent_tools: tuple[str, ...] | None = None  # names of its tools, from the record
    asking: bool = False  # the model's stream is open
    has_wrappers: bool = False  # aroundRequest wraps the model …
    streamed: ModelResponse | None = None  # … and was given this answer
    assembly: Assembly | None = None  # the answer that is streamed now
    visible: bool = False  # some of its text was published
    hidden_calls: frozenset[str] = NONE  # calls whose deltas a hook has hidden
    batch: Any = None  # its tool calls


class LastAnswer(msgspec.Struct, eq=False):
    """The model's last answer, unless it was empty."""

    message: AssistantMessage | None = None
    finish_reason: FinishReason | None = None
    output: Any = None  # the answer as a value of the type `output=`
    corrections: int = 0  # requests to correct an answer that does not fit


class Progress(msgspec.Struct, eq=False):
    """The progress of the chat."""

    started: float = 0.0  # by the runtime's clock
    steps: int = 0  # steps that have begun
    continuations: int = 0
    stops: int = 0  # times that the chat would have ended, and went on
    messages: int = 0  # messages whose write has begun
    unannounced: Message | None = None  # written, and nobody was told so far
    inbox: Inbox | None = None  # from the first message on that is sent into the chat
    reader_seconds: float = 0.0  # that writers have waited for the reader
    resumes: str | None = None  # the chat whose step waited for approvals
    accepted: set[str] | None = None  # calls approved by `resume` that have not begun
    waiter: Callable[[], None] | None = None  # of `ChatStream.answers_used`
    raised: list[BaseException] | None = None  # by tools; their frames refer to ours

    def accept(self, call_ids: Iterable[str]) -> None:
        """Note the calls that the answers of this chat let run."""
        self.accepted = set(call_ids)
        self.use("")

    def use(self, call_id: str) -> None:
        """Note that this call has begun, or has a result."""
        if self.accepted is None:
            return
        self.accepted.discard(call_id)
        if not self.accepted and self.waiter is not None:
            self.waiter()


class Chat:
    """One chat. The engine uses its attributes; hooks see it through `Run`."""

    __slots__ = (
        "__weakref__",
        "channel",
        "chat_id",
        "config",
        "conversation",
        "deadlines",
        "ending",
        "firing",
        "first_config",
        "input",
        "iteration",
        "last",
        "life",
        "live",
        "messages",
        "path",
        "progress",
        "response",
        "runtime",
        "state",
        "step",
        "supervisor",
        "usage",
        "view",
    )

    def __init__(
        self, config: Config, input: ChatInput, deadlines: Deadlines, channel: Channel
    ) -> None:
        # the input
        self.config = config
        self.input = input
        self.chat_id = input.chat_id
        self.view = input.view
        self.first_config = config  # as `input.view`, of the agent that was called
        # Whether text is shown at once. A hook that withholds must see the whole answer first.
        self.live = input.release == "live" and not any(
            hook.options.withhold for hook in self.view.onResponse
        )

        # its surroundings
        if input.conversation is not None:
            self.conversation = state_of(input.conversation)
        else:
            self.conversation = input.own_history or ConversationState(id="-")
        self.deadlines = deadlines
        self.channel = channel
        parent: Chat | None = input.parent
        self.path: tuple[str, ...] = () if parent is None else (*parent.path, input.call_id or "")
        """The calls that lead from the root chat to this chat."""
        self.firing: Firing = self  # replaced in the ending, where hooks run again
        self.runtime: Runtime = LOCAL
        self.supervisor: SupervisorPort | None = None  # only while it runs

        # its progress
        self.state: dict[str, Any] = {} if input.state is None else input.state
        self.messages: list[Message] = []  # committed by this chat
        self.usage = NO_USAGE
        self.iteration = 0
        self.progress = Progress()
        self.last = LastAnswer()
        self.step = Step()

        # its end
        self.life = Life()
        self.ending: Ending | None = None  # the work left once the outcome is decided
        self.response: Response | None = None

    # ── for Run and the dispatch ───────────────────────────────────────────────────────────

    @property
    def agent_name(self) -> str:
        return self.config.name

    @property
    def model_name(self) -> str:
        return model_name(self.config.model)

    @property
    def provider(self) -> str | None:
        provider: object = getattr(self.config.model, "provider", None)
        return None if provider is None else str(provider)

    @property
    def timing(self) -> Timing | None:
        asm = self.step.assembly
        return (
            None
            if asm is None
            else asm.timing(self.deadlines.clock(), self.progress.reader_seconds)
        )

    @property
    def deps(self) -> Any:
        return self.input.deps

    @property
    def parent(self) -> Chat | None:
        """The chat whose tool call this sub-agent answers."""
        parent: Chat | None = self.input.parent
        return parent

    @property
    def parent_chat_id(self) -> str | None:
        return None if self.parent is None else self.parent.chat_id

    @property
    def keeps(self) -> bool:
        """Whether its messages stay in a conversation that the user has passed."""
        return self.input.conversation is not None

    @property
    def can_wait(self) -> bool:
        """Whether its calls may wait for answers that come after the chat."""
        return self.keeps or self.input.own_history is not None

    @property
    def root(self) -> Chat:
        """The chat that the user has begun: itself, or the chat above all its parents."""
        chat = self
        while chat.parent is not None:
            chat = chat.parent
        return chat

    @property
    def attempt(self) -> int:
        """The number of attempts of the step that runs here; parallel calls count their own."""
        attempt = _attempt.get()
        return attempt[1] if attempt is not None and attempt[0] == self.chat_id else 1

    @attempt.setter
    def attempt(self, number: int) -> None:
        _attempt.set((self.chat_id, number))

    @property
    def conversation_id(self) -> str | None:
        return self.conversation.id if self.keeps else None

    @property
    def meta(self) -> dict[str, Any]:
        return self.conversation.meta

    @property
    def history(self) -> History:
        return self.conversation.history

    @property
    def watch(self) -> Watch | None:
        return Watch(self.view, self.run) if self.view.onHook else None

    @property
    def run(self) -> Run[Any]:
        """The chat as its hooks see it. It refers to the chat, so the chat does not keep it."""
        return Run(self)

    # ── the end ─────────────────────────────────────────────────────────────────────────────

    @property
    def left_behind(self) -> bool:
        """Whether the chat's task is stuck: its wrappers at aroundChat may never return."""
        return self.supervisor is not None and self.supervisor.left_behind

    @property
    def broken(self) -> bool:
        """Aborted or failed: nothing new begins."""
        return self.life.broken

    @property
    def over(self) -> bool:
        """Whether the caller has the result. Work that still runs was left behind."""
        return self.life.phase is Phase.OVER

    @property
    def error(self) -> Exception | None:
        """The exception that ended the chat: its failure, or the ChatAbortedError."""
        verdict = self.life.verdict
        return None if verdict is None else verdict.failure

    @property
    def reason(self) -> str | None:
        """The reason for its abort."""
        verdict = self.life.verdict
        return None if verdict is None else verdict.reason

    @property
    def aborted_by_reader(self) -> bool:
        """Whether the stream's reader aborted it."""
        verdict = self.life.verdict
        return verdict is not None and verdict.by_reader

    def abort(self, reason: str | None = None, *, by_reader: bool = False) -> bool:
        """Abort the chat, from any thread; return False if that comes too late.

        `by_reader`: the stream's reader aborts, so that the stream raises no ChatAbortedError.
        """
        verdict = Verdict(Sign.ABORT, ChatAbortedError(reason), reason, by_reader)
        if not self.life.decide(verdict):
            logger.info("chat %s: an abort was requested too late", self.chat_id)
            return False
        self.interrupt()
        return True

    def interrupt(self) -> None:
        """Cancel the running work."""
        if self.supervisor is not None:
            self.supervisor.interrupt()

    def interrupt_tools(self, message_id: str) -> None:
        """Cancel the running tools that an Interrupt may cancel, unless its message is known."""
        inbox = self.progress.inbox
        if self.step.batch is not None and (inbox is None or not inbox.knows(message_id)):
            self.step.batch.interrupt()

    @property
    def cancelled(self) -> bool:
        """Whether the chat's task is being cancelled."""
        return self.supervisor is not None and self.supervisor.cancelled()

    def fail(self, exc: BaseException) -> None:
        """Fail with this exception, whatever else is raised or swallowed on the way out."""
        if self.life.decide(Verdict(Sign.FAIL, exc)) and self.supervisor is not None:
            self.supervisor.hurry()

    def lose_lease(self, exc: BaseException) -> None:
        """Stop the chat: the conversation's lease was lost."""
        self.fail(exc)
        self.interrupt()

    def halt(self, exc: Halted | None = None) -> None:
        """End this life of the chat. Nothing more happens here; the chat goes on elsewhere."""
        for chat in list(RUNNING.values()):
            if chat.input.parent is self:  # a sub-agent runs inside one of its tool calls
                chat.halt(exc)
        if self.life.move(Sign.HALT):
            self.channel = CLOSED
            if self.supervisor is not None:
                self.supervisor.halt(exc or Halted("this life of the chat is over"))

    def check(self) -> None:
        """Raise CancelledError if the chat was aborted or has failed."""
        if self.life.broken:
            raise CancelledError("the chat was aborted")

    def dispose(self) -> None:
        """Drop every reference to the chat of an ended run, so that it can be freed."""
        if self.progress.inbox is not None:
            halted = self.life.outcome is None and self.progress.started > 0
            self.progress.inbox.close({message.id for message in self.messages}, halted=halted)
        self.life.forget()
        if RUNNING.get(self.chat_id) is self:
            del RUNNING[self.chat_id]
        self.supervisor = None
        self.step.batch = None
        self.channel = CLOSED
        self.firing = OUTSIDE
        self.ending = None

    # ── events ──────────────────────────────────────────────────────────────────────────────

    def put(self, event: ChatEvent) -> None:
        """Give an event the next number, and pass it to the reader and the subscribers.

        The caller waits for room before, except for the events that `MARGIN` holds. The event is
        frozen, but nobody else has it yet. A chat that is over publishes nothing more.
        """
        channel = self.channel
        channel.seq = seq = channel.seq + 1
        force_setattr(event, "seq", seq)
        if self.path:
            force_setattr(event, "path", self.path)
        channel.intake.append(event)
        if channel.reader is not None:
            channel.wake_reader()
        if self.view.subscribed and not self.over:
            self.view.publish(event)

    async def room(self) -> None:
        """Wait until there is room for events; no time limit of the chat runs meanwhile."""
        clock = self.deadlines.clock
        began = clock()
        self.deadlines.pause()
        try:
            await self.channel.room()
        finally:
            self.deadlines.resume()
            self.progress.reader_seconds += clock() - began

    async def status(self, type: str, data: Any, call_id: str | None) -> None:
        """Report progress. An exception in onStatus ends the chat, whoever sent the status."""
        if self.over:
            raise UsageError(
                f"chat {self.chat_id!r} is over and cannot report a status; report it "
                "before the chat ends"
            )
        try:
            data = to_json_data(data)
        except NotJson as exc:
            raise UsageError(f"the data of status {type!r} must be JSON: {exc}") from exc
        await self.room()
        self.put(
            Status(
                chat_id=self.chat_id,
                iteration=self.iteration,
                type=type,
                data=data,
                call_id=call_id,
            )
        )
        if not self.view.onStatus:
            return
        call_run = self.call_run(call_id)
        call = None if call_run is None else call_run.call
        ctx: OnStatus[Any] = OnStatus(run=self.run, type=type, data=data, call=call)
        try:
            await notify(self.view.onStatus, ctx, self.firing)
        except Exception as exc:
            if self.life.outcome is not None:
                raise  # in the ending, the failure rule of the sending hook applies
            self.fail(exc)
            self.interrupt()  # a tool cannot catch it
            raise CancelledError("a hook at onStatus raised") from exc

    async def compact(
        self, hook: str, messages: Sequence[Message], compaction: Compaction
    ) -> Compaction | None:
        """Ask the hooks at preCompact about a compaction; None if one refuses it."""
        ctx: PreCompact[Any] = PreCompact(
            run=self.run, hook=hook, messages=tuple(messages), compaction=compaction
        )
        ctx, refusal, _ = await intercept(self.view.preCompact, ctx, self.firing)
        return ctx.compaction if refusal is None else None

    async def ask(
        self, prompt: str, schema: dict[str, Any] | None, call_id: str | None
    ) -> dict[str, Any]:
        """Put a running tool's question to the approver."""
        call_run = self.call_run(call_id)
        if call_run is None:
            raise UsageError(
                "run.ask() is for a tool that is running; in a hook at preToolCall, return "
                "Ask('why')"
            )
        return await ask(self, call_run.call, prompt, schema)

    def call_run(self, call_id: str | None) -> Any:
        """The run of a tool call of this step, a CallRun; None if it has no such call."""
        runs = () if self.step.batch is None else self.step.batch.runs
        return next((run for run in runs if run.id == call_id), None)

    def add_usage(self, usage: Usage) -> None:
        """Add the usage of a model call."""
        self.usage = usage if self.usage is NO_USAGE else self.usage + usage

    # ── for a durable runtime ───────────────────────────────────────────────────────────────

    def json_state(self) -> dict[str, Any]:
        """The JSON values of `run.state`, which outlive this process."""
        items = _encoded_items(self.state).items()
        return {key: msgspec.json.decode(data) for key, data in items}

    def mark(self) -> Any:
        """The state before a step, for `effects`."""
        return _encoded_items(self.state), _encoded_items(self.meta), self.broken, self.usage

    def effects(self, mark: Any) -> Effects:
        """The changes since the mark."""
        state, meta, broken, usage = mark
        verdict = self.life.verdict
        return Effects(
            state=_new_items(state, self.state),
            state_removed=tuple(key for key in state if key not in self.state),
            meta=_new_items(meta, self.meta),
            meta_removed=tuple(key for key in meta if key not in self.meta),
            aborted=not broken and verdict is not None and verdict.sign is Sign.ABORT,
            reason=self.reason,
            seq=self.channel.seq,
            usage=None if self.usage is usage else self.usage,
            text_visible=self.step.visible,
            hidden_calls=tuple(self.step.hidden_calls),
            sent_tools=None
            if self.step.final_request is None
            else tuple(t.name for t in self.step.final_request.tools),
        )

    def asks(self, hooks: Any, key: Key) -> bool:
        """Whether the step of these hooks, which decide something, is due.

        What the hooks of an earlier life have decided counts. New hooks decide about what comes.
        """
        return self.runtime.has_begun(key) or (bool(hooks) and not self.runtime.has_passed(key))

    def has_run(self, iteration: int, call_id: str) -> bool:
        """Whether the handler of this call has begun in an earlier life."""
        return self.runtime.has_begun((RUN, iteration, call_id))

    def apply(self, effects: Effects) -> None:
        """Apply recorded changes."""
        self.state.update(effects.state or {})
        for key in effects.state_removed:
            self.state.pop(key, None)
        self.meta.update(effects.meta or {})
        for key in effects.meta_removed:
            self.meta.pop(key, None)
        self.channel.seq = max(self.channel.seq, effects.seq)
        self.usage = self.usage if effects.usage is None else effects.usage
        self.step.visible = effects.text_visible
        self.step.hidden_calls |= set(effects.hidden_calls)
        self.step.sent_tools = effects.sent_tools
        if effects.aborted:
            self.abort(effects.reason)


def new_chat(config: Config, input: ChatInput, channel: Channel | None) -> Chat:
    """A new chat that has not begun."""
    parent: Chat | None = input.parent
    if parent is not None:
        channel = parent.channel
    deadlines = Deadlines(None if parent is None else parent.deadlines, config.limits.grace)
    chat = Chat(config, input, deadlines, channel or Channel(unread=True))
    runtime = config.runtime.for_chat(chat)
    chat.runtime = runtime if runtime is LOCAL else Recorder(chat, runtime)
    return chat


def _new_items(before: dict[str, bytes], now: dict[str, Any]) -> dict[str, Any] | None:
    """The JSON values that have changed."""
    after = _encoded_items(now)
    return {key: now[key] for key, data in after.items() if before.get(key) != data} or None


def _encoded_items(state: dict[str, Any]) -> dict[str, bytes]:
    """The JSON values of run.state or run.meta, encoded. Other values stay in this process."""
    items: dict[str, bytes] = {}
    for key, value in state.items():
        try:
            items[key] = msgspec.json.encode(value)
        except Exception:
            continue
    return items
