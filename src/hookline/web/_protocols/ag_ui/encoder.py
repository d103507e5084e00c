"""The AG-UI 1.0 encoder, for CopilotKit, HttpAgent and other front ends of that protocol.

Each message of a conversation is one AG-UI message. A withdrawn text is removed by a
MESSAGES_SNAPSHOT without it; for that the encoder needs the messages that the client sent.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from hookline import (
    ApprovalRequest,
    AssistantMessage,
    Image,
    Response,
    Source,
    ToolMessage,
    Usage,
)
from hookline.events import ChatStarted, ErrorInfo, Status
from hookline.web._http.sse import FRAME_END, RELOAD, dumps, frame, frame_until
from hookline.web._protocols.ag_ui.messages import ANSWER_SCHEMA, as_ag_ui, user_as_ag_ui
from hookline.web._protocols.ai_sdk.encoder import usage_of
from hookline.web._protocols.answer_changes import (
    Aborted,
    AnyChange,
    AttachmentAdded,
    CallClose,
    CallMore,
    CallOpen,
    PartClose,
    PartMore,
    PartOpen,
    SentChanged,
    StepClose,
    StepOpen,
    SubAgentChanged,
    Withdrawn,
    decision_on,
)
from hookline.web._protocols.answer_structure import PartsEncoder
from hookline.web._protocols.masked_texts import DescribeError, retry_of
from hookline.web._protocols.outgoing_files import address_of
from hookline.web._runs.backlog import Lagged

VERSION: Final = "1.0"
STATE: Final = "ag_ui.state"  # the status with the changes of the shared state


class AgUiEncoder(PartsEncoder):
    """Encodes the events of one chat as an AG-UI run.

    `modern`: the client uses AG-UI 1.0. `messages`: the messages that the client sent, as objects
    or as their JSON text; None if they are unknown, so that withdrawing a text raises Lagged.
    `client_results`: the ids of the calls whose results the client sent. `approvals`: whether the
    client may answer approvals.
    """

    def __init__(
        self,
        *,
        thread_id: str,
        run_id: str,
        modern: bool = True,
        messages: Sequence[dict[str, Any] | msgspec.Raw] | None = (),
        earlier_calls: Sequence[str] = (),
        client_results: Sequence[str] = (),
        describe_error: DescribeError | None = None,
        chat_id: str = "",
        approvals: bool = True,
    ) -> None:
        super().__init__(earlier_calls, describe_error, chat_id)
        self._client_results = frozenset(client_results)
        self._ids = {"threadId": thread_id, "runId": run_id}
        self._modern = modern
        self._may_answer = approvals
        self._messages_known = messages is not None
        self._messages = [_text(message) for message in messages or ()]
        self._reasoning: dict[str, str] = {}  # shown reasoning texts, by id
        self._more = b""  # the frame of a delta of the open part, without its text
        self._started = False
        self._step: int | None = None  # the open step
        self._text: str | None = None  # the open text message
        self._announced: set[str] = set()  # messages that had a TEXT_MESSAGE_START
        self._attachments: list[bytes] = []  # sent once their message is committed
        self._approvals: list[ApprovalRequest] = []
        self._usage: dict[str, Usage] = {}  # by model

    def reload(self) -> bytes:
        """If events were lost, encode the last frames, which ask the client to reload."""
        if self.complete:
            return b""
        return self._write(self._structure.end(ErrorInfo(type="reload", message=RELOAD)))

    # ── changes ─────────────────────────────────────────────────────────────────────────────

    def _encode_change(self, change: AnyChange) -> bytes:
        match change:
            case PartMore():
                if change.kind == "reasoning":
                    self._reasoning[change.id] += change.text
                return self._more + dumps(change.text) + FRAME_END
            case PartOpen(kind="text"):
                kind = "TEXT_MESSAGE_CONTENT"
                self._more = frame_until("delta", type=kind, messageId=change.message)
                return self._open_text(change.message)
            case PartOpen():
                kind = "REASONING_MESSAGE_CONTENT"
                self._more = frame_until("delta", type=kind, messageId=change.id)
                self._reasoning[change.id] = ""
                start = _event("REASONING_MESSAGE_START", messageId=change.id, role="reasoning")
                return _event("REASONING_START", messageId=change.id) + start
            case PartClose(kind="text"):
                return b""  # the message stays open until it is committed
            case PartClose():
                ends = ("REASONING_MESSAGE_END", "REASONING_END")
                return b"".join(_event(name, messageId=change.id) for name in ends)
            case AttachmentAdded():
                self._attachments.append(_event("CUSTOM", **_attachment(change)))
                return b""
            case CallOpen():
                return self._open_call(change)
            case CallMore():
                return _event("TOOL_CALL_ARGS", toolCallId=change.id, delta=change.text)
            case CallClose():
                return _event("TOOL_CALL_END", toolCallId=change.id)
            case _:
                return self._encode_progress(change)

    def _encode_progress(self, change: AnyChange) -> bytes:
        """Encode a change that is not about a part of the answer."""
        match change:
            case ChatStarted():
                return self._begin()
            case StepOpen():
                self._step = change.number
                return _event("STEP_STARTED", stepName=f"step {change.number}")
            case StepClose():
                return self._close_text() + self._bring() + self._close_step()
            case AssistantMessage():
                return self._commit_message(change)
            case ToolMessage():
                return self._commit_result(change)
            case Withdrawn():
                return self._withdraw(change)
            case SentChanged():
                return self._sent(change)
            case Status():
                return _note(change)
            case SubAgentChanged() if self._modern:
                return _sub_agent(change)
            case ApprovalRequest():
                self._approvals.append(change)
                return b""
            case Response() | Aborted() | ErrorInfo():
                end = self._close_text() + self._close_step() + self._last(change)
                return self._begin() + end
            case _:
                return b""

    def _begin(self) -> bytes:
        if self._started:
            return b""
        self._started = True
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
        frames, self._attachments = self._attachments, []
        return b"".join(frames)

    def _open_call(self, change: CallOpen) -> bytes:
        """Open a call. The client must know its message, so a message without text starts empty."""
        before = b"" if change.message in self._announced else self._open_text(change.message)
        return (
            before
            + self._close_text()
            + _event(
                "TOOL_CALL_START",
                toolCallId=change.id,
                toolCallName=change.name,
                parentMessageId=change.message,
            )
        )

    def _commit_message(self, message: AssistantMessage) -> bytes:
        if message.usage is not None:
            name = message.model or ""
            self._usage[name] = self._usage.get(name, Usage()) + message.usage
        self._messages.append(_text(as_ag_ui(message)))
        return self._close_text() + self._bring()

    def _commit_result(self, message: ToolMessage) -> bytes:
        if message.call_id in self._client_results:  # the client sent this result itself
            return b""
        self._messages.append(_text(as_ag_ui(message)))
        decision = decision_on(message)
        return _event(
            "TOOL_CALL_RESULT",
            messageId=message.id,
            toolCallId=message.call_id,
            content=message.text,
            role="tool",
            **({"metadata": {"hookline": decision}} if decision and self._modern else {}),
        )

    def _sent(self, change: SentChanged) -> bytes:
        """Send a message that was sent into the chat; a delivered one becomes a message, too."""
        message = user_as_ag_ui(change.message)
        note = _event("CUSTOM", name="message", value=change.data(message))
        if change.status != "delivered":
            return note
        self._messages.append(_text(message))
        if not self._modern or not change.message.text:
            return note
        id = {"messageId": change.message.id}
        return (
            self._close_text()
            + note
            + _event("TEXT_MESSAGE_START", **id, role="user")
            + _event("TEXT_MESSAGE_CONTENT", **id, delta=change.message.text)
            + _event("TEXT_MESSAGE_END", **id)
        )

    def _withdraw(self, change: Withdrawn) -> bytes:
        if not self._messages_known:
            raise Lagged
        for kind, id in change.parts:
            if kind == "reasoning":  # a client keeps reasoning that a snapshot lacks
                self._reasoning[id] = ""
        reasoning = [
            _text({"id": id, "role": "reasoning", "content": text})
            for id, text in self._reasoning.items()
        ]
        self._announced.discard(change.message)
        self._attachments = []
        snapshot = _event("MESSAGES_SNAPSHOT", messages=[*self._messages, *reasoning])
        return self._close_text() + snapshot

    # ── the end ─────────────────────────────────────────────────────────────────────────────

    def _close_step(self) -> bytes:
        number, self._step = self._step, None
        return b"" if number is None else _event("STEP_FINISHED", stepName=f"step {number}")

    def _last(self, last: Response | Aborted | ErrorInfo) -> bytes:
        if isinstance(last, Response):
            return self._run_finished(self._outcome(last))
        if isinstance(last, Aborted):
            return self._run_finished({"type": "cancelled"})
        more: dict[str, Any] = {"code": "reload"} if last.type == "reload" else {}
        again = retry_of(last)
        if again and self._modern:
            more["metadata"] = {"hookline": again}
        return _event("RUN_ERROR", message=last.message, **more)

    def _outcome(self, response: Response) -> dict[str, Any]:
        outcome: dict[str, Any] = {"type": "success"}
        if self._approvals:
            interrupts = [
                _interrupt(request, may_answer=self._may_answer) for request in self._approvals
            ]
            outcome = {"type": "interrupt", "interrupts": interrupts}
        elif response.client_calls:
            outcome["pendingToolCallIds"] = [call.id for call in response.client_calls]
        return outcome

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


def _sub_agent(change: SubAgentChanged) -> bytes:
    """Encode the beginning or the end of a sub-agent."""
    id = {"subagentRunId": change.id}
    match change.status:
        case "running":
            above = {} if change.parent is None else {"parentSubagentRunId": change.parent}
            call = change.path[-1]
            return _event(
                "SUBAGENT_STARTED", **id, name=change.name, parentToolCallId=call, **above
            )
        case "done":
            return _event("SUBAGENT_FINISHED", **id, outcome={"type": "success"})
        case "waits":
            return _event("SUBAGENT_FINISHED", **id, outcome={"type": "suspended"})
        case "aborted":
            return _event("SUBAGENT_ERROR", **id, message="Not finished", code="aborted")
        case "failed":
            return _event("SUBAGENT_ERROR", **id, message=change.text or "")


def _attachment(change: AttachmentAdded) -> dict[str, Any]:
    """Encode a source or a file. The protocol has no event for it."""
    part = change.part
    about: dict[str, Any] = {"messageId": change.message, "id": change.id, "url": address_of(part)}
    about["mimeType"] = part.media_type
    if not isinstance(part, Image):
        about["filename"] = part.name
    if isinstance(part, Source):
        about["title"] = part.title
    value = {name: field for name, field in about.items() if field is not None}
    return {"name": "source" if isinstance(part, Source) else "file", "value": value}


def _interrupt(request: ApprovalRequest, *, may_answer: bool) -> dict[str, Any]:
    out: dict[str, Any] = {
        "id": request.id,
        "reason": "tool_call",
        "toolCallId": request.call.id,
        "message": "\n".join(request.prompts),
        "responseSchema": ANSWER_SCHEMA,
    }
    about: dict[str, Any] = {} if may_answer else {"approvals": False}
    if request.details:
        about["details"] = request.details
    if about:
        out["metadata"] = {"hookline": about}
    if request.expires is not None:
        out["expiresAt"] = datetime.fromtimestamp(request.expires, UTC).isoformat()
    return out


def _text(message: dict[str, Any] | msgspec.Raw) -> msgspec.Raw:
    """Return the JSON text of a message."""
    return message if isinstance(message, msgspec.Raw) else msgspec.Raw(dumps(message))


def _event(type: str, **fields: Any) -> bytes:
    return frame(dumps({"type": type, **fields}))
