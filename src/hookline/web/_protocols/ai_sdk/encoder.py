"""The UI message stream of the Vercel AI SDK, for `useChat` and related clients.

One answer is one UI message, however many steps it has. The default is the chunks of version 6,
which version 7 accepts, too. `ai_sdk_version=7` adds `reset-step`, which removes a withdrawn text
from the screen; `ai_sdk_version=5` leaves out chunks that version 5 does not know. Up to version 6
a text ends when its message is committed, so that the end can mark the text as withdrawn. Sources
and files are sent at the same time, because the protocol cannot withdraw them.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import zip_longest
from typing import Any, Final, Literal

from hookline import (
    ApprovalRequest,
    AssistantMessage,
    Response,
    ToolCall,
    ToolFailure,
    ToolMessage,
    Usage,
)
from hookline.events import ChatStarted, ErrorInfo, Status, ToolCallFinished
from hookline.web._http.sse import DONE, FRAME_END, RELOAD, dumps, frame, frame_until
from hookline.web._protocols.answer_changes import (
    Aborted,
    AnyChange,
    AttachmentAdded,
    CallLost,
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
from hookline.web._protocols.outgoing_files import attachment_part, ui_message

AiSdkVersion = Literal[5, 6, 7]
"""The versions of the AI SDK."""

FINISH: Final = {
    "stop": "stop",
    "tool_calls": "tool-calls",
    "length": "length",
    "refusal": "content-filter",
}
NOT_FINISHED: Final = "Not finished"
GOES_ON: Final = {"messageMetadata": {"stopReason": None}}
"""Metadata for a message that continues after an approval. Clients merge it into theirs."""


class AiSdkEncoder(PartsEncoder):
    """Encodes the events of one chat as a UI message stream.

    `message_id` is the id of the message that this answer continues after approvals, and
    `earlier_calls` are the calls of that message. `denied` are the calls that the user has just
    denied. Without `message_id` the answer is a new message; its id is the id of the first
    committed message. If `started` is True, earlier data of this stream has opened a step. Until
    the first answer is committed, its id is assumed to be `{chat_id}.{first}`. If a chat fails
    before its first event, `chat_id` determines the id of the error. `approvals` is whether the
    client may answer approvals; if not, the metadata of the message says so.
    """

    headers = (("x-vercel-ai-ui-message-stream", "v1"),)
    """Further headers that the protocol requires."""

    def __init__(
        self,
        *,
        message_id: str | None = None,
        earlier_calls: Iterable[str] = (),
        denied: Iterable[str] = (),
        ai_sdk_version: AiSdkVersion = 6,
        describe_error: DescribeError | None = None,
        started: bool = False,
        first: int = 1,
        chat_id: str = "",
        approvals: bool = True,
    ) -> None:
        super().__init__(earlier_calls, describe_error, chat_id)
        self._denied = frozenset(denied)
        self._version = ai_sdk_version
        self._message_id = message_id
        self._may_answer = approvals
        self._first = first
        self._expected = ""  # the id of the first answer, before it is committed
        self._started = started  # a prelude has written the start
        self._open = started  # a step is open
        self._more = b""  # the frame of a delta of the open part, without its text
        self._texts: list[str] = []  # complete; they end once their message is committed
        self._attachments: list[bytes] = []  # sent once their message is committed
        self._raw: dict[str, ToolCall] = {}  # calls whose arguments are not a JSON object

    def reload(self) -> bytes:
        """If events were lost, encode the last frames, which ask the client to reload."""
        if self.complete:
            return b""
        sign = self._begin(self._expected) + _chunk("data-reload", data={}, transient=True)
        return sign + self._write(self._structure.end(ErrorInfo(type="Error", message=RELOAD)))

    # ── changes ─────────────────────────────────────────────────────────────────────────────

    def _encode_change(self, change: AnyChange) -> bytes:
        match change:
            case PartMore():
                return self._more + dumps(change.text) + FRAME_END
            case PartOpen():
                self._more = frame_until("delta", type=f"{change.kind}-delta", id=change.id)
                return self._begin(change.message) + _chunk(f"{change.kind}-start", id=change.id)
            case PartClose(kind="text") if self._version < 7:
                self._texts.append(change.id)
                return b""
            case PartClose():
                return _chunk(f"{change.kind}-end", id=change.id)
            case AttachmentAdded():
                return self._bring(change)
            case CallOpen():
                return self._begin(change.message) + _chunk(
                    "tool-input-start", toolCallId=change.id, toolName=change.name
                )
            case CallMore():
                return _chunk("tool-input-delta", toolCallId=change.id, inputTextDelta=change.text)
            case ToolCall():
                return self._ready(change)
            case ToolCallFinished():
                return self._begin(None) + self._done(change)
            case CallLost():
                return self._close_lost(change)
            case _:
                return self._encode_progress(change)

    def _encode_progress(self, change: AnyChange) -> bytes:
        """Encode a change that is not about a part of the answer."""
        match change:
            case AssistantMessage():
                return self._end_texts()
            case ToolMessage():
                return self._decision(change)
            case StepOpen():
                before = self._begin(change.message) + self._end_texts() + self._close_step()
                self._open = True
                return before + _chunk("start-step")
            case StepClose():
                return self._end_texts() + self._close_step()
            case Withdrawn():
                return self._withdraw(change)
            case ChatStarted():
                self._expected = f"{change.chat_id}.{self._first}"
                return b""
            case SentChanged():
                return self._begin(self._expected) + _sent(change)
            case SubAgentChanged():
                return self._begin(self._expected) + _sub_agent(change)
            case Status():
                return self._begin(self._expected) + _status(change)
            case ApprovalRequest():
                # A client knows no calls of sub-agents.
                if self._version < 6 or change.path:
                    return b""
                return self._begin(None) + _approval(change)
            case Response() | Aborted() | ErrorInfo():
                return self._begin(None) + self._end_texts() + self._last(change) + DONE
            case _:
                return b""

    def _begin(self, message_id: str | None) -> bytes:
        """Write `start` before the first chunk; it needs the id of the first message."""
        if self._started:
            return b""
        self._started = True
        if self._message_id:
            return _chunk("start", messageId=self._message_id, **GOES_ON)
        return _chunk("start", messageId=message_id) if message_id else _chunk("start")

    def _bring(self, change: AttachmentAdded) -> bytes:
        chunk = _chunk(**attachment_part(change.id, change.part))
        if self._version < 7:
            self._attachments.append(chunk)
            return b""
        return self._begin(change.message) + chunk

    def _end_texts(self, *, withdrawn: bool = False) -> bytes:
        mark = {"providerMetadata": {"hookline": {"withdrawn": True}}} if withdrawn else {}
        ids, self._texts = self._texts, []
        whole, self._attachments = self._attachments, []
        ends = [_chunk("text-end", id=id, **mark) for id in ids]
        return b"".join(ends if withdrawn else [*ends, *whole])

    def _close_step(self) -> bytes:
        if not self._open:
            return b""
        self._open = False
        return _chunk("finish-step")

    def _ready(self, call: ToolCall) -> bytes:
        if call.raw is not None:
            self._raw[call.id] = call  # sent together with its error
            return b""
        return _input(call.id, call.name, call.arguments)

    def _done(self, event: ToolCallFinished) -> bytes:
        id, result = event.call_id, event.result
        call = self._raw.pop(id, None)
        if not isinstance(result, ToolFailure):
            available = b"" if call is None else _input(id, call.name, {})
            return available + _chunk("tool-output-available", toolCallId=id, output=result.value)
        if call is not None:
            return _input_error(id, call.name, call.raw, result.message)
        # A client accepts a denial only for a call that asked; other refusals are sent as errors.
        if event.outcome == "denied" and id in self._denied and self._version >= 6:
            return _chunk("tool-output-denied", toolCallId=id)
        return _chunk("tool-output-error", toolCallId=id, errorText=result.message)

    def _decision(self, message: ToolMessage) -> bytes:
        decision = decision_on(message)
        if not decision:
            return b""
        metadata = {"decisions": {message.call_id: decision}}
        return self._begin(None) + _chunk("message-metadata", messageMetadata=metadata)

    def _close_lost(self, change: CallLost) -> bytes:
        call = self._raw.pop(change.id, None)
        if change.ready and call is None:
            return _chunk("tool-output-error", toolCallId=change.id, errorText=NOT_FINISHED)
        input: Any = {} if call is None else call.raw
        return _input_error(change.id, change.name, input, NOT_FINISHED)

    def _withdraw(self, change: Withdrawn) -> bytes:
        """Withdraw parts and calls. Version 6 cannot: mark texts as withdrawn, and close calls."""
        if self._version >= 7:
            return _chunk("reset-step")
        out = [self._end_texts(withdrawn=True)]
        out += [_input_error(id, name, {}, "Withdrawn") for id, name in change.calls]
        return b"".join(out)

    def _last(self, last: Response | Aborted | ErrorInfo) -> bytes:
        if isinstance(last, Response):
            waits = bool(last.pending or last.client_calls)
            reason = "tool-calls" if waits else FINISH.get(last.finish_reason or "", "other")
            metadata: dict[str, Any] = {"usage": usage_of(last.usage)}
            if last.pending and not self._may_answer:
                metadata["approvals"] = False
            if last.stop_reason is not None:
                metadata["stopReason"] = last.stop_reason
            return _chunk("finish", finishReason=reason, messageMetadata=metadata)
        if isinstance(last, Aborted):
            extra = {"reason": last.reason} if last.reason else {}
            return _chunk("abort", **extra) + self._close_step()
        again = retry_of(last)
        advice = _chunk("data-error", data=again, transient=True) if again else b""
        error = advice + _chunk("error", errorText=last.message)
        return error + self._close_step() + _chunk("finish", finishReason="error")


def _input(id: str, name: str, input: Any) -> bytes:
    return _chunk("tool-input-available", toolCallId=id, toolName=name, input=input)


def _input_error(id: str, name: str, input: Any, text: str) -> bytes:
    return _chunk("tool-input-error", toolCallId=id, toolName=name, input=input, errorText=text)


def _approval(request: ApprovalRequest) -> bytes:
    metadata = {"questions": {request.call.id: questions_of(request)}}
    ids = {"approvalId": request.id, "toolCallId": request.call.id}
    questions = _chunk("message-metadata", messageMetadata=metadata)
    return questions + _chunk("tool-approval-request", **ids)


def questions_of(request: ApprovalRequest) -> list[dict[str, Any]]:
    """Return the prompts of a request, each with its details if it has any."""
    return [
        {"prompt": prompt, **({"details": details} if details else {})}
        for prompt, details in zip_longest(request.prompts, request.details)
    ]


def _status(event: Status) -> bytes:
    data = {"type": event.type, "data": event.data}
    if event.call_id is not None:
        data["toolCallId"] = event.call_id
    return _chunk("data-status", data=data, transient=True)


def _sent(change: SentChanged) -> bytes:
    """Encode a message that was sent into the chat. Only a delivered one is part of the answer."""
    data = change.data(ui_message(change.message))
    if change.status == "delivered":
        return _chunk("data-message", id=change.message.id, data=data)
    return _chunk("data-message", data=data, transient=True)


def _sub_agent(change: SubAgentChanged) -> bytes:
    """Encode a sub-agent as a part that changes when it ends."""
    data: dict[str, Any] = {"name": change.name, "status": change.status, "path": change.path}
    if change.text is not None:
        data["errorText"] = change.text
    return _chunk("data-subagent", id=change.id, data=data)


def usage_of(usage: Usage) -> dict[str, int]:
    """Return the tokens under the names that both protocols use."""
    return {
        "inputTokens": usage.input_tokens,
        "outputTokens": usage.output_tokens,
        "totalTokens": usage.total_tokens,
        "reasoningTokens": usage.reasoning_tokens,
        "cachedInputTokens": usage.cache_read_tokens,
    }


def _chunk(type: str, **fields: Any) -> bytes:
    return frame(dumps({"type": type, **fields}))


def chunks_of(message: dict[str, Any]) -> bytes:
    """Encode a UI message of a history as chunks, without its end."""
    out = [_chunk("start", messageId=message["id"], **GOES_ON)]
    stepping = False
    for number, part in enumerate(message["parts"]):
        kind: str = part["type"]
        if kind == "step-start":
            out.append((_chunk("finish-step") if stepping else b"") + _chunk("start-step"))
            stepping = True
        elif kind in ("text", "reasoning"):
            id = f"{message['id']}.before{number}"
            out.append(_chunk(f"{kind}-start", id=id))
            out.append(_chunk(f"{kind}-delta", id=id, delta=part["text"]))
            out.append(_chunk(f"{kind}-end", id=id))
        elif kind in ("source-url", "source-document", "file"):
            out.append(_chunk(**part))
        elif kind.startswith("tool-"):
            out.append(_call_chunks(kind.removeprefix("tool-"), part))
    return b"".join(out)


def _call_chunks(name: str, part: dict[str, Any]) -> bytes:
    id, state = part["toolCallId"], part["state"]
    call = _input(id, name, part["input"])
    if not state.startswith("output-"):
        return call
    result = {key: part[key] for key in ("output", "errorText") if key in part}
    return call + _chunk(f"tool-{state}", toolCallId=id, **result)
