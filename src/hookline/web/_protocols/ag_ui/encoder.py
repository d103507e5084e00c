"""The AG-UI 1.0 encoder, for CopilotKit, HttpAgent and other front ends of that protocol.

Each message of a conversation is one AG-UI message. A withdrawn text is removed by a
MESSAGES_SNAPSHOT without it; for that the encoder needs the messages that the client sent.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from hookline import ApprovalRequest, AssistantMessage, Image, Source, ToolMessage, Usage
from hookline.events import ChatEvent, ErrorInfo, Status
from hookline.web._http.sse import FRAME_END, RELOAD, dumps, frame, frame_until
from hookline.web._protocols.ag_ui.messages import ANSWER_SCHEMA, as_ag_ui
from hookline.web._protocols.ai_sdk.encoder import usage_of
from hookline.web._protocols.attachments import address_of
from hookline.web._protocols.changes import (
    Aborted,
    Answered,
    AnyAct,
    Asked,
    Begin,
    Brought,
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
from hookline.web._protocols.error_texts import ErrorText, Mask
from hookline.web._protocols.outline import Outline

VERSION: Final = "1.0"
STATE: Final = "ag_ui.state"  # the status with the changes of the shared state


class AgUiEncoder:
    """Encodes the events of one chat as an AG-UI run.

    `modern`: the client uses AG-UI 1.0. `messages`: the messages that the client sent, as objects
    or as their JSON text. `posted`: the ids of the calls whose results the client sent.
    """

    media_type = "text/event-stream"
    """The content type of the response."""
    headers: tuple[tuple[str, str], ...] = ()
    """Further headers that the protocol requires."""

    def __init__(
        self,
        *,
        thread_id: str,
        run_id: str,
        modern: bool = True,
        messages: Sequence[dict[str, Any] | msgspec.Raw] = (),
        known: Sequence[str] = (),
        posted: Sequence[str] = (),
        errors: ErrorText | None = None,
        chat_id: str = "",
    ) -> None:
        self._outline = Outline(known)
        self._posted = frozenset(posted)
        self._mask = Mask(errors, chat_id=chat_id)
        self._ids = {"threadId": thread_id, "runId": run_id}
        self._modern = modern
        self._messages = [_text(message) for message in messages]
        self._reasoning: dict[str, str] = {}  # shown reasoning texts, by id
        self._more = b""  # the frame of a delta of the open part, without its text
        self._begun = False
        self._text: str | None = None  # the open text message
        self._announced: set[str] = set()  # messages that had a TEXT_MESSAGE_START
        self._brought: list[bytes] = []  # sent once their message is committed
        self._asked: list[ApprovalRequest] = []
        self._usage: dict[str, Usage] = {}  # by model

    @property
    def ended(self) -> bool:
        """Whether the last frame was written. Later events are dropped."""
        return self._outline.ended

    def encode(self, event: ChatEvent) -> bytes:
        """Encode one event; returns no bytes for an event that the protocol does not show."""
        return self._write(self._outline.feed(self._mask.event(event)))

    def end(self, error: BaseException | None = None, reason: str | None = None) -> bytes:
        """Close everything that is still open; returns no bytes if the events already ended."""
        if self.ended:
            return b""
        if error is None:
            return self._write(self._outline.stop(reason))
        said = ErrorInfo(type="Error", message=self._mask.words(error))
        return self._write(self._outline.fail(said))

    def reload(self) -> bytes:
        """If events were lost, encode the last frames, which ask the client to reload."""
        if self.ended:
            return b""
        lost = ErrorInfo(type="reload", message=RELOAD)
        return self._write(self._outline.fail(lost))

    # ── acts ────────────────────────────────────────────────────────────────────────────────

    def _write(self, acts: list[AnyAct]) -> bytes:
        return b"".join([self._act(act) for act in acts])

    def _act(self, act: AnyAct) -> bytes:
        match act:
            case PartMore():
                if act.kind == "reasoning":
                    self._reasoning[act.id] += act.text
                return self._more + dumps(act.text) + FRAME_END
            case PartOpen(kind="text"):
                kind = "TEXT_MESSAGE_CONTENT"
                self._more = frame_until("delta", type=kind, messageId=act.message)
                return self._open_text(act.message)
            case PartOpen():
                kind = "REASONING_MESSAGE_CONTENT"
                self._more = frame_until("delta", type=kind, messageId=act.id)
                self._reasoning[act.id] = ""
                start = _event("REASONING_MESSAGE_START", messageId=act.id, role="reasoning")
                return _event("REASONING_START", messageId=act.id) + start
            case PartClose(kind="text"):
                return b""  # the message stays open until it is committed
            case PartClose():
                ends = ("REASONING_MESSAGE_END", "REASONING_END")
                return b"".join(_event(name, messageId=act.id) for name in ends)
            case Brought():
                self._brought.append(_event("CUSTOM", **_brought(act)))
                return b""
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
                return self._close_text() + self._bring() + _step_end(act.number)
            case Said():
                return self._said(act.message)
            case Answered():
                return self._answered(act.message)
            case Withdrawn():
                return self._withdraw(act)
            case Note():
                return _note(act.event)
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

    def _bring(self) -> bytes:
        """Send the sources and files of a committed message. The protocol cannot withdraw them."""
        found, self._brought = self._brought, []
        return b"".join(found)

    def _open_call(self, act: CallOpen) -> bytes:
        """Open a call. The client must know its message, so a message without text starts empty."""
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
        self._messages.append(_text(as_ag_ui(message)))
        return self._close_text() + self._bring()

    def _answered(self, message: ToolMessage) -> bytes:
        if message.call_id in self._posted:  # the client sent this result itself
            return b""
        self._messages.append(_text(as_ag_ui(message)))
        return _event(
            "TOOL_CALL_RESULT",
            messageId=message.id,
            toolCallId=message.call_id,
            content=message.text,
            role="tool",
        )

    def _withdraw(self, act: Withdrawn) -> bytes:
        for kind, id in act.parts:
            if kind == "reasoning":  # a client keeps reasoning that a snapshot lacks
                self._reasoning[id] = ""
        reasoning = [
            _text({"id": id, "role": "reasoning", "content": text})
            for id, text in self._reasoning.items()
        ]
        self._announced.discard(act.message)
        self._brought = []
        snapshot = _event("MESSAGES_SNAPSHOT", messages=[*self._messages, *reasoning])
        return self._close_text() + snapshot

    # ── the end ─────────────────────────────────────────────────────────────────────────────

    def _finished(self, act: Done) -> bytes:
        outcome: dict[str, Any] = {"type": "success"}
        if self._asked:
            interrupts = [_interrupt(request) for request in self._asked]
            outcome = {"type": "interrupt", "interrupts": interrupts}
        elif act.response.client_calls:
            outcome["pendingToolCallIds"] = [call.id for call in act.response.client_calls]
        return self._run_finished(outcome)

    def _broken(self, act: Aborted | Failed) -> bytes:
        if isinstance(act, Aborted):
            return self._run_finished({"type": "cancelled"})
        code = {"code": "reload"} if act.error.type == "reload" else {}
        return _event("RUN_ERROR", message=act.error.message, **code)

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


def _note(event: Status) -> bytes:
    """Encode a status; changes of the shared state have events of their own in the protocol."""
    if event.type == STATE:
        kinds = [(f"STATE_{kind.upper()}", {kind: value}) for kind, value in event.data.items()]
        return b"".join(_event(name, **fields) for name, fields in kinds)
    value = {"type": event.type, "data": event.data}
    if event.call_id is not None:
        value["toolCallId"] = event.call_id
    return _event("CUSTOM", name="status", value=value)


def _brought(act: Brought) -> dict[str, Any]:
    """Encode a source or a file. The protocol has no event for it."""
    part = act.part
    about: dict[str, Any] = {"messageId": act.message, "id": act.id, "url": address_of(part)}
    about["mimeType"] = part.media_type
    if not isinstance(part, Image):
        about["filename"] = part.name
    if isinstance(part, Source):
        about["title"] = part.title
    value = {name: each for name, each in about.items() if each is not None}
    return {"name": "source" if isinstance(part, Source) else "file", "value": value}


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


def _text(message: dict[str, Any] | msgspec.Raw) -> msgspec.Raw:
    """Return the JSON text of a message."""
    return message if isinstance(message, msgspec.Raw) else msgspec.Raw(dumps(message))


def _step_end(number: int) -> bytes:
    return _event("STEP_FINISHED", stepName=f"step {number}")


def _event(type: str, **fields: Any) -> bytes:
    return frame(dumps({"type": type, **fields}))
