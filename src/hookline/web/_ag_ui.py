"""AG-UI 1.0: what CopilotKit, HttpAgent and other front ends of that protocol read.

A message of a conversation is a message there. A text that was withdrawn disappears by a
MESSAGES_SNAPSHOT without it, for which the encoder needs the messages that the client sent.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final

from hookline import ApprovalRequest, AssistantMessage, ToolMessage, Usage
from hookline.events import ChatEvent, ErrorInfo
from hookline.web._acts import (
    Aborted,
    Answered,
    AnyAct,
    Asked,
    Begin,
    CallClose,
    CallMore,
    CallOpen,
    Done,
    Failed,
    Note,
    PartClose,
    PartMore,
    PartOpen,
    Said,
    StepClose,
    StepOpen,
    Withdrawn,
)
from hookline.web._ai_sdk import usage_of
from hookline.web._mask import ErrorText, Mask
from hookline.web._outline import Outline
from hookline.web._wire import dumps, frame, json_text, quoted

VERSION: Final = "1.0"
ANSWER_SCHEMA: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {
        "approved": {"type": "boolean"},
        "editedArgs": {"type": "object"},
        "reason": {"type": "string"},
    },
    "required": ["approved"],
}


class AgUiEncoder:
    """Events of one chat → bytes of an AG-UI run.

    `modern`: the client has declared protocol version 1.0, so that it knows how a run may end
    besides success. `messages`: those of the client's input, as it sent them.
    """

    media_type = "text/event-stream"
    """The content type of the answer."""
    headers: tuple[tuple[str, str], ...] = ()
    """What the protocol wants besides."""

    def __init__(
        self,
        *,
        thread_id: str,
        run_id: str,
        modern: bool = True,
        messages: Sequence[dict[str, Any]] = (),
        known: Sequence[str] = (),
        errors: ErrorText | None = None,
    ) -> None:
        self._outline = Outline(known)
        self._mask = Mask(errors)
        self._ids = {"threadId": thread_id, "runId": run_id}
        self._modern = modern
        self._messages = [dict(message) for message in messages]
        self._reasoning: dict[str, str] = {}  # texts shown, by id
        self._begun = False
        self._text: str | None = None  # the text message that is open
        self._announced: set[str] = set()  # messages that had a TEXT_MESSAGE_START
        self._asked: list[ApprovalRequest] = []
        self._usage: dict[str, Usage] = {}  # by model

    @property
    def ended(self) -> bool:
        """Whether the last frame was written: what comes later is dropped."""
        return self._outline.ended

    def encode(self, event: ChatEvent) -> bytes:
        """The frames of one event; none for an event that does not show."""
        return self._write(self._outline.feed(self._mask.event(event)))

    def end(self, error: BaseException | None = None, reason: str | None = None) -> bytes:
        """Close what the events left open. Nothing, when they had come to their end."""
        if self.ended:
            return b""
        if error is None:
            return self._write(self._outline.stop(reason))
        text = self._mask.text(ErrorInfo.of(error))
        return self._write(self._outline.fail(ErrorInfo(type="Error", message=text)))

    # ── acts ────────────────────────────────────────────────────────────────────────────────

    def _write(self, acts: list[AnyAct]) -> bytes:
        return b"".join([self._act(act) for act in acts])

    def _act(self, act: AnyAct) -> bytes:
        match act:
            case PartMore(kind="text"):
                data = b'{"type":"TEXT_MESSAGE_CONTENT","messageId":%b,"delta":%b}'
                return frame(data % (quoted(act.message), quoted(act.text)))
            case PartMore():
                self._reasoning[act.id] += act.text
                return _event("REASONING_MESSAGE_CONTENT", messageId=act.id, delta=act.text)
            case PartOpen(kind="text"):
                return self._open_text(act.message)
            case PartOpen():
                self._reasoning[act.id] = ""
                start = _event("REASONING_MESSAGE_START", messageId=act.id, role="reasoning")
                return _event("REASONING_START", messageId=act.id) + start
            case PartClose(kind="text"):
                return b""  # the message stays open until it is committed
            case PartClose():
                ends = ("REASONING_MESSAGE_END", "REASONING_END")
                return b"".join(_event(name, messageId=act.id) for name in ends)
            case CallOpen():
                return self._open_call(act)
            case CallMore():
                return _event("TOOL_CALL_ARGS", toolCallId=act.id, delta=act.text)
            case CallClose():
                return _event("TOOL_CALL_END", toolCallId=act.id)
            case Begin():
                return self._begin()
            case StepOpen():
                return _event("STEP_STARTED", stepName=f"step {act.number}")
            case StepClose():
                return self._close_text() + _step_end(act.number)
            case Said():
                return self._said(act.message)
            case Answered():
                return self._answered(act.message)
            case Withdrawn():
                return self._withdraw(act)
            case Note():
                value = {"type": act.event.type, "data": act.event.data}
                if act.event.call_id is not None:
                    value["toolCallId"] = act.event.call_id
                return _event("CUSTOM", name="status", value=value)
            case Asked():
                self._asked.append(act.request)
                return b""
            case Done():
                return self._begin() + self._close_text() + self._finished(act)
            case Aborted() | Failed():
                step = b"" if act.step is None else _step_end(act.step)
                return self._begin() + self._close_text() + step + self._broken(act)
            case _:
                return b""

    def _begin(self) -> bytes:
        if self._begun:
            return b""
        self._begun = True
        return _event("RUN_STARTED", **self._ids, protocolVersion=VERSION)

    # ── messages ────────────────────────────────────────────────────────────────────────────

    def _open_text(self, message: str) -> bytes:
        if self._text == message:
            return b""
        closed = self._close_text()
        self._text = message
        self._announced.add(message)
        return closed + _event("TEXT_MESSAGE_START", messageId=message, role="assistant")

    def _close_text(self) -> bytes:
        message, self._text = self._text, None
        return b"" if message is None else _event("TEXT_MESSAGE_END", messageId=message)

    def _open_call(self, act: CallOpen) -> bytes:
        """A call hangs on a message that the client knows: one without text is announced empty."""
        before = b"" if act.message in self._announced else self._open_text(act.message)
        return (
            before
            + self._close_text()
            + _event(
                "TOOL_CALL_START",
                toolCallId=act.id,
                toolCallName=act.name,
                parentMessageId=act.message,
            )
        )

    def _said(self, message: AssistantMessage) -> bytes:
        if message.usage is not None:
            name = message.model or ""
            self._usage[name] = self._usage.get(name, Usage()) + message.usage
        self._messages.append(as_ag_ui(message))
        return self._close_text()

    def _answered(self, message: ToolMessage) -> bytes:
        self._messages.append(as_ag_ui(message))
        return _event(
            "TOOL_CALL_RESULT",
            messageId=message.id,
            toolCallId=message.call_id,
            content=message.text,
            role="tool",
        )

    def _withdraw(self, act: Withdrawn) -> bytes:
        for kind, id in act.parts:
            if kind == "reasoning":  # a client keeps reasoning that a snapshot does not name
                self._reasoning[id] = ""
        reasoning = [
            {"id": id, "role": "reasoning", "content": text} for id, text in self._reasoning.items()
        ]
        self._announced.discard(act.message)
        snapshot = _event("MESSAGES_SNAPSHOT", messages=[*self._messages, *reasoning])
        return self._close_text() + snapshot

    # ── the end ─────────────────────────────────────────────────────────────────────────────

    def _finished(self, act: Done) -> bytes:
        outcome: dict[str, Any] = {"type": "success"}
        if self._asked:
            interrupts = [_interrupt(request) for request in self._asked]
            outcome = {"type": "interrupt", "interrupts": interrupts}
        return self._run_finished(outcome)

    def _broken(self, act: Aborted | Failed) -> bytes:
        if isinstance(act, Aborted):
            return self._run_finished({"type": "cancelled"})
        return _event("RUN_ERROR", message=act.error.message)

    def _run_finished(self, outcome: dict[str, Any]) -> bytes:
        more: dict[str, Any] = {}
        if self._modern:
            more["outcome"] = outcome
            if self._usage:
                more["usage"] = [
                    {**({"model": model} if model else {}), **usage_of(usage)}
                    for model, usage in self._usage.items()
                ]
        return _event("RUN_FINISHED", **self._ids, **more)


def as_ag_ui(message: AssistantMessage | ToolMessage) -> dict[str, Any]:
    """A message of ours as the protocol writes it."""
    if isinstance(message, ToolMessage):
        return {
            "id": message.id,
            "role": "tool",
            "content": message.text,
            "toolCallId": message.call_id,
        }
    out: dict[str, Any] = {"id": message.id, "role": "assistant", "content": message.text}
    calls = [
        {
            "id": call.id,
            "type": "function",
            "function": {"name": call.name, "arguments": json_text(call.arguments)},
        }
        for call in message.tool_calls
    ]
    if calls:
        out["toolCalls"] = calls
    return out


def _interrupt(request: ApprovalRequest) -> dict[str, Any]:
    out: dict[str, Any] = {
        "id": request.id,
        "reason": "tool_call",
        "toolCallId": request.call.id,
        "message": "\n".join(request.prompts),
        "responseSchema": ANSWER_SCHEMA,
    }
    if request.expires is not None:
        out["expiresAt"] = datetime.fromtimestamp(request.expires, UTC).isoformat()
    return out


def _step_end(number: int) -> bytes:
    return _event("STEP_FINISHED", stepName=f"step {number}")


def _event(type: str, **fields: Any) -> bytes:
    return frame(dumps({"type": type, **fields}))
