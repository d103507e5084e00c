"""The structure of one answer: which parts are open, and the order in which they close.

All protocols with parts use this one machine: it turns events into changes, and an encoder writes
each change. It keeps these rules for every sequence of events:

- Everything that is opened is closed, in order, before the end. The end comes once, and last.
- At most one text or reasoning part is open, and none when a call begins.
- A call gets its result only after it was opened, in this answer or in the one that it continues.
- The ids are those of the committed messages: `chat id.number among its messages`.
- A message that was sent into the chat is delivered or returned before the end.
- Each sub-agent that has begun ends before the end.

The other events of sub-agents are not part of the answer; only their statuses are passed on.
"""

from __future__ import annotations

from collections.abc import Iterable

from hookline import (
    AssistantMessage,
    File,
    Image,
    Response,
    Source,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from hookline.events import (
    ChatAborted,
    ChatDone,
    ChatEvent,
    ChatFailed,
    ChatStarted,
    ErrorInfo,
    FileAdded,
    MessageAdded,
    MessageQueued,
    MessageReturned,
    PartEnd,
    ReasoningDelta,
    ResponseReset,
    SourceAdded,
    Status,
    StepFinished,
    StepStarted,
    TextDelta,
    ToolCallDelta,
    ToolCallFinished,
    ToolCallStarted,
)
from hookline.web._http.sse import json_text
from hookline.web._protocols.answer_changes import (
    Aborted,
    AnyChange,
    AttachmentAdded,
    CallClose,
    CallLost,
    CallMore,
    CallOpen,
    PartClose,
    PartKind,
    PartMore,
    PartOpen,
    SentChanged,
    StepClose,
    StepOpen,
    Withdrawn,
)
from hookline.web._protocols.masked_texts import DescribeError, Mask
from hookline.web._protocols.sub_agents import SubAgents


class AnswerStructure:
    """The open parts of one answer. Pure.

    `earlier_calls`: the calls of an answer that it continues.
    """

    def __init__(self, earlier_calls: Iterable[str] = ()) -> None:
        self.complete = False
        self._changes: list[AnyChange] = []
        self._chat_id: str | None = None
        self._messages = 0  # the number of the chat's messages, used in their ids
        self._step: int | None = None
        self._last_step = -1
        self._has_answer = False  # this step has an answer; more text becomes another message
        self._part: tuple[PartKind, str] | None = None
        self._parts: list[tuple[str, str]] = []  # the shown parts of the unfinished answer
        self._numbers: dict[str, int] = {}  # the number of parts of each kind
        self._writing: dict[str, str] = {}  # calls whose arguments are open
        self._calls: dict[str, str] = {}  # the calls of the unfinished answer
        self._call_ids = set(earlier_calls)
        self._open: dict[str, tuple[str, bool]] = {}  # calls without a result: name, ready
        self._decided: set[str] = set()  # calls that have started
        self._finished: set[str] = set()
        self._spoke = False
        self._sub_agents = SubAgents()
        self._queued: set[str] = set()  # ids of messages that were sent into the chat

    @property
    def message_id(self) -> str:
        """The id of the next message to be committed."""
        return f"{self._chat_id}.{self._messages}"

    def feed(self, event: ChatEvent) -> list[AnyChange]:
        """Return the changes for one event."""
        self._changes = []
        if self.complete:
            return self._changes
        if event.path or (self._chat_id is not None and event.chat_id != self._chat_id):
            return self._sub_agents.take(event)
        self._take(event)
        return self._changes

    def end(self, last: Aborted | ErrorInfo) -> list[AnyChange]:
        """Return the changes for an answer that was cut off, or ended with an exception."""
        self._changes = []
        self._end(last)
        return self._changes

    # ── events ──────────────────────────────────────────────────────────────────────────────

    def _take(self, event: ChatEvent) -> None:
        """Take an event about a part of the answer, or another."""
        match event:
            case TextDelta():
                self._more("text", event.text)
            case ReasoningDelta():
                self._more("reasoning", event.text)
            case PartEnd():
                if self._part is not None and self._part[0] == event.part:
                    self._close_part()
            case SourceAdded():
                self._bring("source", event.source)
            case FileAdded():
                self._bring("file", event.file)
            case ToolCallDelta():
                self._open_call(event.call_id, event.name)
                if event.arguments and event.call_id in self._writing:
                    self._changes.append(CallMore(event.call_id, event.arguments))
            case ToolCallStarted():
                self._start_call(event.call)
            case ToolCallFinished():
                self._finish_call(event)
            case ResponseReset():
                self._withdraw()
            case _:
                self._take_progress(event)

    def _take_progress(self, event: ChatEvent) -> None:
        """Take an event that is not about a part of the answer."""
        match event:
            case MessageAdded():
                self._add(event)
            case MessageQueued(message=message):
                self._queued.add(message.id)
                self._changes.append(SentChanged("queued", message))
            case MessageReturned(message=message, reason=reason):
                self._changes.append(SentChanged("returned", message, reason))
            case StepStarted():
                self._close_step()
                self._open_step(event.iteration)
            case StepFinished():
                self._close_step()
            case Status():
                self._changes.append(event)
            case ChatStarted():
                self._chat_id = event.chat_id
                self._changes.append(event)
            case ChatDone():
                self._done(event.response)
            case ChatAborted():
                self._end(Aborted(event.reason))
            case ChatFailed():
                self._end(event.error)
            case _:  # ApprovalRequested, sent at the end if it is still open
                pass

    def _add(self, event: MessageAdded) -> None:
        message = event.message
        self._close_part()
        if isinstance(message, AssistantMessage):
            self._close_parts()
            self._changes.append(message)
            self._has_answer, self._spoke = True, True
            self._parts, self._calls = [], {}
            self._numbers = {}
        elif isinstance(message, ToolMessage) and message.call_id in self._call_ids:
            self._close_call(message.call_id)
            self._lose(message.call_id)
            self._changes.append(message)
        elif isinstance(message, UserMessage) and message.id in self._queued:
            self._changes.append(SentChanged("delivered", message))
        self._messages += 1

    def _more(self, kind: PartKind, text: str) -> None:
        if self._part is None or self._part[0] != kind:
            self._close_part()
            self._begin_answer()
            self._part = (kind, self._new_part(kind))
            self._changes.append(PartOpen(*self._part, self.message_id))
        self._changes.append(PartMore(kind, self._part[1], text))

    def _new_part(self, kind: str) -> str:
        number = self._numbers.get(kind, 0)
        self._numbers[kind] = number + 1
        id = f"{self.message_id}.{kind}{number}"
        self._parts.append((kind, id))
        return id

    def _bring(self, kind: str, part: Source | Image | File) -> None:
        self._close_part()
        self._begin_answer()
        self._changes.append(AttachmentAdded(self._new_part(kind), part, self.message_id))

    def _begin_answer(self) -> None:
        """Open a step for the text. A Stop after a step, or after its answer, gets a new step."""
        if self._step is None or self._has_answer:
            number = self._last_step + 1
            self._close_step()
            self._open_step(number)

    def _open_call(self, id: str, name: str) -> None:
        self._close_part()
        if id not in self._calls and id not in self._call_ids:
            self._begin_answer()
            self._calls[id] = self._writing[id] = name
            self._open[id] = (name, False)
            self._call_ids.add(id)
            self._changes.append(CallOpen(id, name, self.message_id))

    def _start_call(self, call: ToolCall) -> None:
        if call.id in self._decided:
            return
        self._decided.add(call.id)
        self._close_part()
        if call.id not in self._call_ids:  # hooks had hidden the call; it is shown when it runs
            self._call_ids.add(call.id)
            self._writing[call.id] = call.name
            owner = f"{self._chat_id}.{self._messages - 1}"
            self._changes.append(CallOpen(call.id, call.name, owner))
            text = call.raw if call.raw is not None else json_text(call.arguments)
            self._changes.append(CallMore(call.id, text))
        self._close_call(call.id)
        self._open[call.id] = (call.name, True)
        self._changes.append(call)

    def _finish_call(self, event: ToolCallFinished) -> None:
        id = event.call_id
        if id not in self._call_ids or id in self._finished:
            return
        self._finished.add(id)
        if id in self._open:
            self._start_call(ToolCall(id=id, name=event.name))
            del self._open[id]
        self._changes.append(event)

    def _withdraw(self) -> None:
        self._close_parts()
        self._calls = {id: name for id, name in self._calls.items() if id not in self._decided}
        if self._parts or self._calls:
            calls = tuple(self._calls.items())
            self._changes.append(Withdrawn(self.message_id, tuple(self._parts), calls))
        self._call_ids.difference_update(self._calls)
        for id in self._calls:
            self._open.pop(id, None)
        self._parts, self._calls = [], {}

    # ── closing ─────────────────────────────────────────────────────────────────────────────

    def _close_part(self) -> None:
        if self._part is not None:
            self._changes.append(PartClose(*self._part))
            self._part = None

    def _close_call(self, id: str) -> None:
        if self._writing.pop(id, None) is not None:
            self._changes.append(CallClose(id))

    def _lose(self, id: str) -> None:
        call = self._open.pop(id, None)
        if call is not None:
            self._decided.add(id)
            self._finished.add(id)
            self._changes.append(CallLost(id, *call))

    def _close_parts(self) -> None:
        self._close_part()
        for id in list(self._writing):
            self._close_call(id)

    def _open_step(self, number: int) -> None:
        self._step, self._has_answer = number, False
        self._last_step = number
        self._changes.append(StepOpen(number, self.message_id))

    def _close_step(self) -> None:
        self._close_parts()
        if self._step is not None:
            self._changes.append(StepClose())
            self._step = None
            self._parts, self._calls = [], {}  # the remaining parts stay

    def _done(self, response: Response) -> None:
        if response.text and not self._spoke and not self._parts and response.steps == 0:
            self._more("text", response.text)  # a Stop before any text
        self._close_parts()
        self._changes.extend(response.pending)
        self._close_step()
        self._end(response)

    def _end(self, last: Response | Aborted | ErrorInfo) -> None:
        self.complete = True
        self._close_parts()
        if not isinstance(last, Response):
            for id in list(self._open):
                self._lose(id)
        self._changes.extend(self._sub_agents.stop())
        self._changes.append(last)


class PartsEncoder:
    """What the encoders of the protocols with parts share: each of them writes the changes."""

    media_type = "text/event-stream"
    """The content type of the response."""
    headers: tuple[tuple[str, str], ...] = ()
    """Further headers that the protocol requires."""

    def __init__(
        self, earlier_calls: Iterable[str], describe_error: DescribeError | None, chat_id: str
    ) -> None:
        self._structure = AnswerStructure(earlier_calls)
        self._mask = Mask(describe_error, chat_id=chat_id)

    @property
    def complete(self) -> bool:
        """Whether the last frame was written. Later events are dropped."""
        return self._structure.complete

    def encode(self, event: ChatEvent) -> bytes:
        """Encode one event; returns no bytes for an event that the protocol does not show."""
        return self._write(self._structure.feed(self._mask.event(event)))

    def end(self, error: BaseException | None = None, reason: str | None = None) -> bytes:
        """Close everything that is still open; returns no bytes if the events already ended."""
        if self.complete:
            return b""
        last = Aborted(reason) if error is None else self._mask.info(error)
        return self._write(self._structure.end(last))

    def _write(self, changes: list[AnyChange]) -> bytes:
        return b"".join([self._encode_change(change) for change in changes])

    def _encode_change(self, change: AnyChange) -> bytes:
        raise NotImplementedError
