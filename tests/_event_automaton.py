"""The events of one chat, as an automaton that each event moves on or breaks."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import assert_never

from hookline import (
    AssistantMessage,
    File,
    Image,
    Message,
    Source,
    Text,
    ToolCall,
    ToolMessage,
    ToolResult,
    UserMessage,
)
from hookline.events import (
    ApprovalRequested,
    ChatAborted,
    ChatDone,
    ChatEvent,
    ChatFailed,
    ChatStarted,
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
from hookline.testing._descriptions import message_line, show


class WrongError(Exception):
    """What the events break."""


def need(fine: object, problem: str) -> None:
    if not fine:
        raise WrongError(problem)


@dataclass
class _Part:
    """A text or reasoning as it is shown, or a source or file, which comes whole."""

    kind: str
    text: str
    open: bool = True
    whole: Source | Image | File | None = None

    @property
    def seen(self) -> bool:
        return self.whole is not None or bool(self.text.strip())


@dataclass
class ChatGrammar:
    """What is known of one chat."""

    chat_id: str
    resumed: bool
    end: ChatEvent | None = None
    step: int | None = None  # the open step
    last: int | None = None  # the last finished one
    old: bool = True  # no step has begun: calls of an earlier chat may get their results
    answered: bool = False  # the open step has its assistant message
    last_words: bool = False  # text outside a step: what a Stop says
    parts: list[_Part] = field(default_factory=list[_Part])
    names: dict[int, tuple[str, str]] = field(default_factory=dict[int, tuple[str, str]])
    calls: dict[str, ToolCall] = field(default_factory=dict[str, ToolCall])  # of the open step
    ids: set[str] = field(default_factory=set[str])  # of all calls
    started: set[str] = field(default_factory=set[str])
    asked: set[str] = field(default_factory=set[str])
    passed: set[str] = field(default_factory=set[str])  # a client runs them: later results came
    client: set[str] = field(default_factory=set[str])  # the same, says the response
    finished: dict[str, ToolCallFinished] = field(default_factory=dict[str, ToolCallFinished])
    results: set[str] = field(default_factory=set[str])  # calls that have their message
    cut: bool = False  # something was left open that only an abort or error may leave
    messages: list[Message] = field(default_factory=list[Message])

    def take(self, event: ChatEvent) -> None:
        """The next event."""
        match event:
            case ChatStarted() | Status() | MessageQueued() | MessageReturned():
                pass
            case StepStarted():
                self._step_started(event)
            case TextDelta() | ReasoningDelta():
                self._delta(event)
            case PartEnd():
                self._part_end(event)
            case SourceAdded():
                self._brought(event.iteration, event.source)
            case FileAdded():
                self._brought(event.iteration, event.file)
            case ToolCallDelta():
                self._call_delta(event)
            case ResponseReset():
                self._in_answer(event.iteration)
                self.parts.clear()
                self.names.clear()
            case MessageAdded():
                self._message(event.message)
            case ToolCallStarted():
                self._started(event)
            case ApprovalRequested():
                self._asked(event)
            case ToolCallFinished():
                self._finished(event)
            case StepFinished():
                self._step_finished(event)
            case ChatDone():
                self._done(event)
                self.end = event
            case ChatAborted():
                rest = iter(event.partial)
                need(all(each in rest for each in self.messages), "`partial` lacks a message")
                self.end = event
            case ChatFailed():
                self.end = event
            case _:
                assert_never(event)

    # ── steps ───────────────────────────────────────────────────────────────────────────────

    def _step_started(self, event: StepStarted) -> None:
        need(self.step is None, f"step {self.step} is still open")
        need(not self.last_words, "a step after the text of a Stop")
        self._nothing_shown()
        if self.last is not None:
            need(event.iteration == self.last + 1, f"the last step was {self.last}")
        elif not self.resumed:
            need(event.iteration == 0, "the first step is 0")
            users = [each for each in self.messages if isinstance(each, UserMessage)]
            need(users, "a step before the user's message was added")
        self.step = event.iteration
        self.old = self.answered = False
        self.names.clear()
        self.calls.clear()

    def _step_finished(self, event: StepFinished) -> None:
        if not (self.resumed and self.old):
            need(self.step == event.iteration, f"the open step is {self.step}")
        self._nothing_open()
        self.step, self.last, self.old = None, event.iteration, False

    def _nothing_shown(self) -> None:
        """All text that was shown is in a message; blank text need not be."""
        held = not any(part.seen for part in self.parts)
        need(held, "text was shown that no message holds")
        self.parts.clear()

    def _nothing_open(self, *, pending: bool = False) -> None:
        """Text is in a message; each call has started, finished and its message."""
        self._nothing_shown()
        for id in self.calls:
            if pending and (id in self.asked | self.client or id not in self.started):
                continue
            for where, what in (
                (self.started, "not started"),
                (self.finished, "not finished"),
                (self.results, "no message"),
            ):
                need(id in where, f"call {id!r} has {what}")
        need(not self.cut, "a call without ToolCallStarted has a result")

    # ── the answer ──────────────────────────────────────────────────────────────────────────

    def _in_answer(self, iteration: int) -> None:
        """An answer is shown: in the open step before its message, or it is what a Stop says."""
        if self.step is None:
            self.last_words = True
            return
        need(self.step == iteration, f"the open step is {self.step}")
        need(not self.answered, "the step's assistant message was added before")

    def _delta(self, event: TextDelta | ReasoningDelta) -> None:
        self._in_answer(event.iteration)
        need(event.text, "an empty delta")
        kind = "text" if isinstance(event, TextDelta) else "reasoning"
        if not self.parts or not self.parts[-1].open:
            self.parts.append(_Part(kind, ""))
        need(self.parts[-1].kind == kind, f"the {self.parts[-1].kind} before has no PartEnd")
        self.parts[-1].text += event.text

    def _part_end(self, event: PartEnd) -> None:
        self._in_answer(event.iteration)
        fits = self.parts and self.parts[-1].open and self.parts[-1].kind == event.part
        need(fits, f"no {event.part} is open")
        self.parts[-1].open = False

    def _brought(self, iteration: int, part: Source | Image | File) -> None:
        self._in_answer(iteration)
        need(not self.parts or not self.parts[-1].open, "the part before has no PartEnd")
        self.parts.append(_Part(type(part).__name__, "", open=False, whole=part))

    def _call_delta(self, event: ToolCallDelta) -> None:
        need(self.step is not None, "a delta outside a step")
        self._in_answer(event.iteration)
        need(not self.parts or not self.parts[-1].open, "the part before has no PartEnd")
        need(event.call_id and event.name, "a call without id or name")
        known = self.names.setdefault(event.index, (event.call_id, event.name))
        need(known == (event.call_id, event.name), f"call {event.index} was {known}")

    # ── messages ────────────────────────────────────────────────────────────────────────────

    def _message(self, message: Message) -> None:
        need(message.id, "a message without id")
        need(all(message.id != each.id for each in self.messages), "a message id appears twice")
        if isinstance(message, ToolMessage):
            self._result(message)
        elif isinstance(message, AssistantMessage):
            self._answer(message)
        else:
            need(self.step is None, f"a user's message in step {self.step}")
            need(not self.last_words, "a user's message after the text of a Stop")
            self._nothing_shown()
        self.messages.append(message)

    def _answer(self, message: AssistantMessage) -> None:
        shown = [(part.kind, part.whole or part.text) for part in self.parts if part.seen]
        kept: list[tuple[str, object]] = []
        for part in message.parts:
            if isinstance(part, (Source, Image, File)):
                kept.append((type(part).__name__, part))
            elif not isinstance(part, ToolCall) and part.text.strip():
                kept.append(("text" if isinstance(part, Text) else "reasoning", part.text))
        need(shown == kept, f"shown was {show(shown)}, the message holds {show(kept)}")
        closed = message.partial or not any(part.open for part in self.parts)
        need(closed, "a part has no PartEnd")
        self.parts.clear()
        if self.step is None:
            need(self.last_words, "an assistant message outside a step")
            need(not message.tool_calls, "calls outside a step")
            return
        need(not self.answered, "a second assistant message in one step")
        self.answered = True
        for call in message.tool_calls:
            need(call.id not in self.ids, f"the call id {call.id!r} appears twice")
            self.ids.add(call.id)
            self.calls[call.id] = call

    def _result(self, message: ToolMessage) -> None:
        id = message.call_id
        need(id in self.calls or self.old, f"a result of {id!r}, which is no call of this step")
        need(id not in self.results, f"a second result of {id!r}")
        need(id in self.finished or id not in self.started, f"call {id!r} has not finished")
        finished = self.finished.get(id)
        if finished is None:
            self.cut = self.cut or not self.old
        else:
            # A hook at preMessage sees the message after ToolCallFinished; if the hook fails, the
            # result is withheld.
            withheld = message.outcome == "error" and '"type":"Withheld"' in message.text
            same = message.outcome == finished.outcome
            need(same or withheld, f"it finished as {finished.outcome!r}")
        for before in self.calls:
            if before == id:
                break
            if before not in self.results and before not in self.asked:
                need(before in self.started, f"call {before!r} comes first")
                self.passed.add(before)
        self.results.add(id)

    # ── calls ───────────────────────────────────────────────────────────────────────────────

    def _started(self, event: ToolCallStarted) -> None:
        call = event.call
        if not self.old:
            need(self.step == event.iteration, f"the open step is {self.step}")
            asked = self.calls.get(call.id)
            need(asked is not None, f"the model has made no call {call.id!r} in this step")
            need(asked is None or asked.name == call.name, "the call has another name")
        need(call.id not in self.started, f"call {call.id!r} started twice")
        self.started.add(call.id)

    def _asked(self, event: ApprovalRequested) -> None:
        id = event.request.call.id
        need(id in self.started or self.old, f"call {id!r} has not started")
        need(id not in self.finished and id not in self.asked, f"call {id!r} asks too late")
        self.asked.add(id)

    def _finished(self, event: ToolCallFinished) -> None:
        id = event.call_id
        need(id in self.started or self.old, f"call {id!r} has not started")
        need(id not in self.finished, f"call {id!r} finished twice")
        good = event.outcome in ("ok", "answered")
        fits = isinstance(event.result, ToolResult) == good
        need(fits, f"outcome {event.outcome!r} with a {type(event.result).__name__}")
        self.finished[id] = event
        self.asked.discard(id)

    # ── the end ─────────────────────────────────────────────────────────────────────────────

    def _done(self, event: ChatDone) -> None:
        response = event.response
        waits = response.stop_reason in ("approval", "client_tool")
        self.client = {call.id for call in response.client_calls}
        first = self.passed - self.client
        need(not first, f"calls {first} come first")
        need(self.step is None or waits, f"step {self.step} is still open")
        self._nothing_open(pending=waits)
        pending = {request.call.id for request in response.pending}
        need(
            pending == self.asked - self.client or self.resumed,
            f"asked was for {self.asked or 'nothing'}",
        )
        held = tuple(self.messages)
        if response.messages != held:
            lines = "\n  ".join(map(message_line, response.messages))
            raise WrongError(f"the response's messages are others:\n  {lines}")
