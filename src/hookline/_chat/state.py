"""What one chat holds, and the few verbs that change it: publish, commit, report, abort, fail.

The life of the chat is `loop.py`, the model's answer `answer.py`, its tool calls `batch.py`:
functions over this state. It knows no task: what has to do with one is asked of its supervisor.
"""

from __future__ import annotations

from asyncio import CancelledError
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from contextvars import ContextVar
from typing import Any, Final, Protocol, TypeAlias
from weakref import WeakValueDictionary

import msgspec

from hookline._base.cancel import Deadlines
from hookline._base.errors import ChatAbortedError, UsageError
from hookline._base.events import (
    MessageAdded,
    PartEnd,
    ReasoningDelta,
    ResponseReset,
    Status,
    TextDelta,
    ToolCallDelta,
)
from hookline._base.input import cleaned
from hookline._base.json import NotJson, json_text, to_json_data
from hookline._base.log import logger
from hookline._base.messages import (
    NO_USAGE,
    AssistantMessage,
    FinishReason,
    History,
    Message,
    ModelPart,
    Reasoning,
    Text,
    ToolCall,
    ToolMessage,
    Usage,
    UserMessage,
)
from hookline._base.returns import Outcome, Response
from hookline._base.run import Run
from hookline._base.runtime import KEPT, LOCAL, MESSAGE, Effects, Halted, Json, Key, Runtime
from hookline._chat.asking import ask
from hookline._chat.call import REPORTED, WRITING, WRITTEN, CallRun
from hookline._chat.channel import Channel, Outlet
from hookline._chat.config import Config, Task
from hookline._chat.life import Life, Phase, Sign, Verdict
from hookline._chat.record import Recorder
from hookline._hooks.call_rules import OUTSIDE, Firing, Watch, intercept, notify
from hookline._hooks.on_hook import watcher
from hookline._hooks.points import OnMessage, OnStatus, PreMessage
from hookline._model.assembly import Assembly, kept
from hookline._model.model import ModelRequest, ModelResponse
from hookline._model.tool import AnyTool
from hookline._talk.conversation import Conversation

NONE: Final[frozenset[str]] = frozenset()
_attempt: ContextVar[tuple[str, int] | None] = ContextVar("hookline_attempt", default=None)
_MESSAGE: Json[Message] = Json(UserMessage | AssistantMessage | ToolMessage)


RUNNING: WeakValueDictionary[str, Chat] = WeakValueDictionary()
"""The chats of this process that run, by their id."""

Act: TypeAlias = Callable[[], Coroutine[Any, Any, None]]
Ending: TypeAlias = deque[Act]


class SupervisorPort(Protocol):
    """A chat's view of its supervisor, which owns the task in which it lives."""

    def interrupt(self) -> None:
        """Cancel what runs: the chat was aborted or has failed. From any thread."""
        ...

    def hurry(self) -> None:
        """Start the grace period; what still runs when it is over is left behind."""
        ...

    def halt(self, exc: Halted) -> None:
        """Cancel what runs, and let the caller have this."""
        ...

    def cancelled(self) -> bool:
        """Whether somebody is cancelling the task."""
        ...

    def report_later(self, name: str, ended: Callable[[], bool]) -> None:
        """Name a tool's thread that still runs after the grace period."""
        ...

    def judge(self, exc: BaseException) -> None:
        """Decide the outcome by what came out of the chat; raises what is not the chat's."""
        ...

    async def finish(self, ending: Ending) -> None:
        """Carry out the ending whatever is cancelled meanwhile, within the grace period."""
        ...


class Making:
    """The step that is being made."""

    __slots__ = (
        "asking",
        "assembly",
        "base_messages",
        "base_tools",
        "batch",
        "hidden",
        "raised",
        "ran_live",
        "sent",
        "sent_tools",
        "shown",
        "streamed",
        "wrapped",
    )

    def __init__(self) -> None:
        self.base_messages: Sequence[Message] = ()  # what its request began with
        self.base_tools: tuple[AnyTool, ...] = ()  # what the scopes offered to it
        self.sent: ModelRequest | None = None  # what wrappers made of it
        self.sent_tools: tuple[str, ...] | None = None  # and what it offered, from the record
        self.asking = False  # the model's stream is open
        self.wrapped = False  # aroundRequest stands around it …
        self.streamed: ModelResponse | None = None  # … and was given this
        self.ran_live = False  # the answer was given by a step that ran, and is not from the record
        self.assembly: Assembly | None = None  # the answer that is being streamed
        self.shown = False  # text of it was published
        self.hidden = NONE  # calls whose deltas a hook has hidden
        self.batch: Any = None  # the tool calls that are being made
        self.raised: list[BaseException] | None = None  # by tools, where their frames know ours


class Writing:
    """What was written, and what of it is not told yet."""

    __slots__ = ("again", "count", "live", "untold")

    def __init__(self) -> None:
        self.count = 0  # messages that were written, or are being
        self.live = 0  # the same by a step that ran, and is not from the record
        self.again = False  # a step of the chat has begun more than once
        self.untold: Message | None = None  # written, and its event is not out


class LastAnswer:
    """The model's last answer, if it said anything."""

    __slots__ = ("corrections", "finish_reason", "message", "output")

    def __init__(self) -> None:
        self.message: AssistantMessage | None = None
        self.finish_reason: FinishReason | None = None
        self.output: Any = None  # as a value of the type that was asked for
        self.corrections = 0  # how often the model was told that it does not fit


class Progress:
    """How far the chat is."""

    __slots__ = ("continuations", "resumes", "started", "steps")

    def __init__(self) -> None:
        self.started = 0.0  # by the runtime's clock
        self.steps = 0  # steps that have begun
        self.continuations = 0
        self.resumes: str | None = None  # the chat whose step waited for an approval


class Chat:
    """One chat. Its attributes are the loop's; a hook sees it through `Run`."""

    __slots__ = (
        "__weakref__",
        "called",
        "chat_id",
        "conduct",
        "config",
        "conversation",
        "deadlines",
        "ending",
        "iteration",
        "last",
        "life",
        "live",
        "making",
        "messages",
        "outlet",
        "progress",
        "response",
        "runtime",
        "state",
        "supervisor",
        "task",
        "usage",
        "view",
        "writing",
    )

    def __init__(self, config: Config, task: Task, deadlines: Deadlines, outlet: Outlet) -> None:
        # what was asked for
        self.config = config
        self.task = task
        self.chat_id = task.chat_id
        self.view = task.view
        self.called = (config, task.view)  # of the agent that was called, whoever speaks
        # What is said is shown at once.
        self.live = task.release == "live" and not any(
            hook.options.withhold for hook in self.view.onResponse
        )

        # where it lives
        self.conversation = task.conversation or Conversation(id="-")
        self.deadlines = deadlines
        self.outlet = outlet
        self.conduct: Firing = self  # in the ending another, which is not broken
        self.runtime: Runtime = LOCAL
        self.supervisor: SupervisorPort | None = None  # none before it begins, and once it is over

        # how far it is
        self.state: dict[str, Any] = {} if task.state is None else task.state
        self.messages: list[Message] = []  # committed by this chat
        self.usage = NO_USAGE
        self.iteration = 0
        self.progress = Progress()
        self.writing = Writing()
        self.last = LastAnswer()
        self.making = Making()

        # how it ends
        self.life = Life()
        self.ending: Ending | None = None  # what is left to do once its outcome is decided
        self.response: Response | None = None

    # ── what Run and the dispatch ask ───────────────────────────────────────────────────────

    @property
    def agent_name(self) -> str:
        return self.config.name

    @property
    def deps(self) -> Any:
        return self.task.deps

    @property
    def parent_chat_id(self) -> str | None:
        parent: Chat | None = self.task.parent
        return None if parent is None else parent.chat_id

    @property
    def keeps(self) -> bool:
        """Whether what is said stays in a conversation of the user's."""
        return self.task.conversation is not None

    @property
    def attempt(self) -> int:
        """How often the step that runs here has begun; calls side by side have their own."""
        found = _attempt.get()
        return found[1] if found is not None and found[0] == self.chat_id else 1

    @attempt.setter
    def attempt(self, number: int) -> None:
        self.writing.again = self.writing.again or number > 1
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
        return watcher(self.view, self.run) if self.view.onHook else None

    @property
    def run(self) -> Run[Any]:
        """The chat as its hooks see it. Not kept: it holds the chat."""
        return Run(self)

    # ── how it ends ─────────────────────────────────────────────────────────────────────────

    @property
    def broken(self) -> bool:
        """Aborted or failed: nothing new begins."""
        return self.life.broken

    @property
    def over(self) -> bool:
        """Whether the caller has its result: what still runs was left behind."""
        return self.life.phase is Phase.OVER

    @property
    def outcome(self) -> Outcome | None:
        """How it ends, once the ending has begun."""
        return self.life.outcome

    @property
    def error(self) -> Exception | None:
        """What it has failed with, or the ChatAbortedError."""
        verdict = self.life.verdict
        return None if verdict is None else verdict.failure

    @property
    def reason(self) -> str | None:
        """The reason of its abort."""
        verdict = self.life.verdict
        return None if verdict is None else verdict.reason

    def abort(self, reason: str | None = None, *, by_reader: bool = False) -> bool:
        """Ask for the abort, from any thread: True when it decides the chat.

        `by_reader`: the reader of its stream asks, and is not told of it by an error.
        """
        verdict = Verdict(Sign.ABORT, ChatAbortedError(reason), reason, by_reader)
        if not self.life.decide(verdict):
            logger.info("chat %s: an abort came too late", self.chat_id)
            return False
        self.interrupt()
        return True

    def interrupt(self) -> None:
        """Cancel what runs: nothing new may begin."""
        if self.supervisor is not None:
            self.supervisor.interrupt()

    @property
    def cancelled(self) -> bool:
        """Whether somebody is cancelling the task in which it lives."""
        return self.supervisor is not None and self.supervisor.cancelled()

    def fail(self, exc: BaseException) -> None:
        """The chat has failed with this, whatever is raised or swallowed on the way out."""
        if self.life.decide(Verdict(Sign.FAIL, exc)) and self.supervisor is not None:
            self.supervisor.hurry()

    def lost(self, exc: BaseException) -> None:
        """The lease of the conversation was lost: stop the chat."""
        self.fail(exc)
        self.interrupt()

    def halt(self, exc: Halted | None = None) -> None:
        """This life is over, and the chat is not: nothing more of it happens here."""
        if self.life.move(Sign.HALT):
            self.outlet.mute()
            if self.supervisor is not None:
                self.supervisor.halt(exc or Halted("this life of the chat is over"))

    def check(self) -> None:
        """Stop here if the chat was aborted or has failed."""
        if self.broken:
            raise CancelledError("the chat was aborted")

    def dispose(self) -> None:
        """The chat is over: drop all that holds it, so that it is freed with its last holder."""
        self.life.forget()
        if RUNNING.get(self.chat_id) is self:
            del RUNNING[self.chat_id]
        self.supervisor = None
        self.making.batch = None
        self.conduct = OUTSIDE
        self.ending = None

    # ── events ──────────────────────────────────────────────────────────────────────────────

    async def publish(self, kind: Callable[..., Any], **fields: Any) -> None:
        """Put one event out, after waiting for room."""
        if self.outlet.full:
            await self.outlet.room()
        self.put(kind, **fields)

    def put(self, kind: Callable[..., Any], **fields: Any) -> None:
        """Put one event out, where room was waited for."""
        self.outlet.put(kind, **fields)

    async def status(self, type: str, data: Any, call_id: str | None) -> None:
        """Report progress. A throw in onStatus ends the chat, whoever sent the status."""
        if self.over:
            raise UsageError(
                f"chat {self.chat_id!r} is over, and nobody hears a status any more; send it "
                "before the end"
            )
        try:
            data = to_json_data(data)
        except NotJson as exc:
            raise UsageError(f"the data of status {type!r} must be JSON: {exc}") from exc
        await self.publish(Status, iteration=self.iteration, type=type, data=data, call_id=call_id)
        if not self.view.onStatus:
            return
        call = (
            self.making.batch.find(call_id) if self.making.batch is not None and call_id else None
        )
        ctx: OnStatus[Any] = OnStatus(run=self.run, type=type, data=data, call=call)
        try:
            await notify(self.view.onStatus, ctx, self.conduct)
        except Exception as exc:
            if self.outcome is not None:
                raise  # in the ending: the rule of the hook that sent it
            self.fail(exc)
            self.interrupt()  # a tool cannot catch it
            raise CancelledError("a hook at onStatus raised") from exc

    async def ask(
        self, prompt: str, schema: dict[str, Any] | None, call_id: str | None
    ) -> dict[str, Any]:
        """Put a question of a running tool to the approver."""
        step = self.making.batch
        call = step.find(call_id) if step is not None and call_id else None
        if call is None:
            raise UsageError(
                "run.ask() is for a tool that runs; a hook returns Ask('why') from preToolCall"
            )
        return await ask(self, call, prompt, schema)

    # ── history ─────────────────────────────────────────────────────────────────────────────

    async def commit(
        self,
        message: Message,
        *,
        streamed: tuple[ModelPart, ...] | None = None,
        run: CallRun | None = None,
    ) -> Message:
        """Write a message: preMessage, the write, the event, onMessage.

        `streamed`: what of an answer was shown so far; shown and stored are made the same. An
        answer that hooks have emptied is not written. `run`: the call whose result it is.
        """
        written = self.writing.count
        self.writing.count = written + 1
        key: Key = (MESSAGE, written)
        if self.outcome is not None:  # the ending of one life is not taken for another's
            kept = message.call_id if isinstance(message, ToolMessage) else message.role
            key = (KEPT, self.outcome, kept)  # how many were written depends on timing
        writes = self.writing.live
        message = await self.runtime.step(key, self._commit, _MESSAGE, message, streamed, run)
        if self.writing.live == writes:  # replayed: nothing ran, so nothing was written
            self.take_ids(message)
            if isinstance(message, AssistantMessage) and not message.parts:
                self.end_answer()
            else:
                self._append(message, run)
        return message

    async def _commit(
        self, message: Message, streamed: tuple[ModelPart, ...] | None, run: CallRun | None
    ) -> Message:
        self.writing.live += 1
        if not message.id:
            message = message.replace(id=self.next_id())
        if self.conversation.ahead:  # an earlier life has written it, and that counts
            message = self.conversation.ahead[0]
            self.take_ids(message)
        elif self.view.preMessage:
            message = await self._pre_message(message, run)
        if streamed is not None and isinstance(message, AssistantMessage):
            if self.view.preMessage:
                message = message.replace(parts=kept(message.parts))
            await self.agree(message.parts, streamed)
            if not message.parts:
                self.end_answer()
                return message
        await self._write(message, run)
        await self._publish_written(message)
        if self.view.onMessage:
            told: OnMessage[Any] = OnMessage(run=self.run, message=message)
            await notify(self.view.onMessage, told, self.conduct)
        return message

    async def _pre_message(self, message: Message, run: CallRun | None) -> Message:
        """Ask preMessage. A result that it was looking at when it failed is withheld."""
        ctx: PreMessage[Any] = PreMessage(run=self.run, message=message)
        try:
            ctx, _, _ = await intercept(self.view.preMessage, ctx, self.conduct)
        except Exception:
            if run is not None:
                run.withhold()
                run.message = run.message_for(message.id)
            raise
        return cleaned(ctx.message)

    async def _write(self, message: Message, run: CallRun | None) -> None:
        """Write it to the store and the conversation, whoever cancels us meanwhile."""
        if run is not None:
            assert isinstance(message, ToolMessage)
            run.message = message
            run.move(WRITING)
        try:
            cut = await self.conversation.write(message)
        except BaseException:
            if run is not None:
                run.move(REPORTED)
                if self.making.batch is None:  # the ending has left it to us
                    self._append(message, run)
            raise
        self._enter(message, run)
        if cut is not None:
            self.writing.untold = message
            raise cut

    async def write_past_hooks(self, message: Message, run: CallRun) -> None:
        """Write a result that hooks or the store have refused, in the form that is safe."""
        self._append(message, run)
        await self._publish_written(message)

    def write_now(self, message: Message, run: CallRun) -> None:
        """The same without waiting for room: what history must have when a hook hangs."""
        self._append(message, run)
        if not self.outlet.full:
            self.put(MessageAdded, message=message)

    async def _publish_written(self, message: Message) -> None:
        self.writing.untold = (
            message  # if we are cut off before the event is out, the ending publishes it
        )
        await self.publish(MessageAdded, message=message)
        self.writing.untold = None

    def next_id(self) -> str:
        """The id of the message that is written next."""
        return f"{self.chat_id}.{len(self.messages)}"

    def _append(self, message: Message, run: CallRun | None) -> None:
        if run is not None:
            run.move(WRITING)
        self.conversation.commit(message)
        self._enter(message, run)

    def _enter(self, message: Message, run: CallRun | None) -> None:
        """The message is written: the only place that says so."""
        if run is not None:
            run.move(WRITTEN)
        if isinstance(message, AssistantMessage):
            self.end_answer()
        self.messages.append(message)

    def end_answer(self) -> None:
        """Nothing of the answer is partial any more."""
        self.making.assembly = None
        self.making.shown = False

    def take_ids(self, message: Message) -> None:
        """The ids of its calls are taken: they are not the ones that the model gave here."""
        if type(message) is AssistantMessage:
            self.conversation.call_ids.update({call.id: None for call in message.tool_calls})

    async def agree(self, final: tuple[ModelPart, ...], streamed: tuple[ModelPart, ...]) -> None:
        """Make what is shown the same as what is stored."""
        if self.live and (final is streamed or said(final) == said(streamed)):
            return
        if self.writing.again and self.attempt > 1:
            self.making.shown = True  # by an interrupted attempt
        if said(streamed) or not self.live:
            await self.take_back()
        self.making.shown = True
        for index, part in enumerate(final):
            if not isinstance(part, ToolCall):
                await self._show_text(part)
            elif not self.live and part.id not in self.making.hidden:
                await self.publish(
                    ToolCallDelta,
                    iteration=self.iteration,
                    index=index,
                    call_id=part.id,
                    name=part.name,
                    arguments=json_text(part.arguments),
                )

    async def _show_text(self, part: Text | Reasoning) -> None:
        kind, name = (
            (TextDelta, "text") if isinstance(part, Text) else (ReasoningDelta, "reasoning")
        )
        if name == "text" or part.text.strip():
            await self.publish(kind, iteration=self.iteration, text=part.text)
            await self.publish(PartEnd, iteration=self.iteration, part=name)

    async def take_back(self) -> None:
        """What was shown since the last message is not what will be stored."""
        if self.making.shown:
            self.making.shown = False
            await self.publish(ResponseReset, iteration=self.iteration)

    def json_state(self) -> dict[str, Any]:
        """The JSON values of `run.state`: what outlives this process."""
        items = _encoded_items(self.state).items()
        return {key: msgspec.json.decode(data) for key, data in items}

    # ── for a durable runtime ───────────────────────────────────────────────────────────────

    def mark(self) -> Any:
        """The state before a step."""
        return _encoded_items(self.state), self.broken, self.usage

    def effects(self, mark: Any) -> Effects:
        """What was done since the mark."""
        before, broken, usage = mark
        verdict = self.life.verdict
        after = _encoded_items(self.state)
        changed = {key: self.state[key] for key, data in after.items() if before.get(key) != data}
        return Effects(
            state=changed or None,
            gone=tuple(key for key in before if key not in self.state),
            aborted=not broken and verdict is not None and verdict.sign is Sign.ABORT,
            reason=self.reason,
            seq=self.outlet.count,
            usage=None if self.usage is usage else self.usage,
            shown=self.making.shown,
            hidden=tuple(self.making.hidden),
            sent_tools=None
            if self.making.sent is None
            else tuple(t.name for t in self.making.sent.tools),
        )

    def apply(self, effects: Effects) -> None:
        """Do it again from the record."""
        self.state.update(effects.state or {})
        for key in effects.gone:
            self.state.pop(key, None)
        self.outlet.skip(effects.seq)
        self.usage = self.usage if effects.usage is None else effects.usage
        self.making.shown = effects.shown
        self.making.hidden |= set(effects.hidden)
        self.making.sent_tools = effects.sent_tools
        if effects.aborted:
            self.abort(effects.reason)

    def add_usage(self, usage: Usage) -> None:
        """Count what a model call has cost."""
        self.usage = usage if self.usage is NO_USAGE else self.usage + usage


def new_chat(config: Config, task: Task, channel: Channel | None) -> Chat:
    """A chat that has not begun."""
    parent: Chat | None = task.parent
    if parent is None:
        deadlines = Deadlines(None, config.limits.grace)
        outlet = Outlet(task.chat_id, task.view, deadlines, channel or Channel(closed=True))
    else:
        deadlines = Deadlines(parent.deadlines, config.limits.grace)
        path = (*parent.outlet.path, task.call_id or "")
        outlet = Outlet(task.chat_id, task.view, deadlines, parent.outlet.channel, path)
    chat = Chat(config, task, deadlines, outlet)
    runtime = config.runtime.for_chat(chat)
    chat.runtime = runtime if runtime is LOCAL else Recorder(chat, runtime)
    return chat


def _encoded_items(state: dict[str, Any]) -> dict[str, bytes]:
    """The JSON values of run.state; others live in this process only."""
    found: dict[str, bytes] = {}
    for key, value in state.items():
        try:
            found[key] = msgspec.json.encode(value)
        except Exception:
            continue
    return found


def said(parts: tuple[ModelPart, ...]) -> list[tuple[type, str]]:
    """What of an answer is shown: text and reasoning that are not blank."""
    return [
        (type(part), part.text)
        for part in parts
        if isinstance(part, (Text, Reasoning)) and part.text.strip()
    ]
