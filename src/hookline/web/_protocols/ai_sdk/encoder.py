"""The UI message stream of the Vercel AI SDK, for `useChat` and related clients.

One answer is one UI message, however many steps it has. The default is the chunks of version 6,
which version 7 accepts, too. `target=7` adds `reset-step`, which removes a withdrawn text from the
screen; `target=5` leaves out chunks that version 5 does not know. Up to version 6 a text ends when
its message is committed, so that the end can mark the text as withdrawn. Sources and files are sent
at the same time, because the protocol cannot withdraw them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, Literal

from hookline import ToolCall, ToolFailure, Usage
from hookline.events import ChatEvent, ErrorInfo, ToolCallFinished
from hookline.web._http.sse import DONE, FRAME_END, RELOAD, dumps, frame, frame_until
from hookline.web._protocols.attachments import brought
from hookline.web._protocols.changes import (
    Aborted,
    AnyAct,
    Asked,
    Begin,
    Brought,
    CallDone,
    CallLost,
    CallMore,
    CallOpen,
    CallReady,
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

Target = Literal[5, 6, 7]
"""The versions of the AI SDK."""

FINISH: Final = {
    "stop": "stop",
    "tool_calls": "tool-calls",
    "length": "length",
    "refusal": "content-filter",
}
GOES_ON: Final = {"messageMetadata": {"stopReason": None}}
"""Metadata for a message that continues after an approval. Clients merge it into theirs."""


class AiSdkEncoder:
    """Encodes the events of one chat as a UI message stream.

    `message_id` is the id of the message that this answer continues after approvals, and `known`
    are the calls of that message. `denied` are the calls that the user has just denied. Without
    `message_id` the answer is a new message; its id is the id of the first committed message. If
    `started` is True, earlier data of this stream has opened a step. Until the first answer is
    committed, its id is assumed to be `{chat_id}.{first}`. If a chat fails before its first event,
    `chat_id` determines the id of the error.
    """

    media_type = "text/event-stream"
    """The content type of the response."""
    headers: tuple[tuple[str, str], ...] = (("x-vercel-ai-ui-message-stream", "v1"),)
    """Further headers that the protocol requires."""

    def __init__(
        self,
        *,
        message_id: str | None = None,
        known: Iterable[str] = (),
        denied: Iterable[str] = (),
        target: Target = 6,
        errors: ErrorText | None = None,
        started: bool = False,
        first: int = 1,
        chat_id: str = "",
    ) -> None:
        self._outline = Outline(known)
        self._denied = frozenset(denied)
        self._mask = Mask(errors, chat_id=chat_id)
        self._target = target
        self._message_id = message_id
        self._first = first
        self._expected = ""  # the id of the first answer, before it is committed
        self._started = started  # a prelude has written the start
        self._open = started  # a step is open
        self._more = b""  # the frame of a delta of the open part, without its text
        self._texts: list[str] = []  # complete; they end once their message is committed
        self._brought: list[bytes] = []  # sent once their message is committed
        self._raw: dict[str, ToolCall] = {}  # calls whose arguments are not a JSON object

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
        sign = _chunk("data-reload", data={}, transient=True)
        return sign + self._write(self._outline.fail(ErrorInfo(type="Error", message=RELOAD)))

    # ── acts ────────────────────────────────────────────────────────────────────────────────

    def _write(self, acts: list[AnyAct]) -> bytes:
        return b"".join([self._act(act) for act in acts])

    def _act(self, act: AnyAct) -> bytes:
        match act:
            case PartMore():
                return self._more + dumps(act.text) + FRAME_END
            case PartOpen():
                self._more = frame_until("delta", type=f"{act.kind}-delta", id=act.id)
                return self._begin(act.message) + _chunk(f"{act.kind}-start", id=act.id)
            case PartClose(kind="text") if self._target < 7:
                self._texts.append(act.id)
                return b""
            case PartClose():
                return _chunk(f"{act.kind}-end", id=act.id)
            case Brought():
                return self._bring(act)
            case Said():
                return self._end_texts()
            case StepOpen():
                before = self._begin(act.message) + self._end_texts() + self._close_step()
                self._open = True
                return before + _chunk("start-step")
            case StepClose():
                return self._end_texts() + self._close_step()
            case CallOpen():
                return self._begin(act.message) + _chunk(
                    "tool-input-start", toolCallId=act.id, toolName=act.name
                )
            case CallMore():
                return _chunk("tool-input-delta", toolCallId=act.id, inputTextDelta=act.text)
            case CallReady():
                return self._ready(act.call)
            case CallDone():
                return self._begin(None) + self._done(act.event)
            case CallLost():
                return self._lost(act)
            case Withdrawn():
                return self._withdraw(act)
            case Begin():
                self._expected = f"{act.event.chat_id}.{self._first}"
                return b""
            case Note():
                note = {"type": act.event.type, "data": act.event.data}
                if act.event.call_id is not None:
                    note["toolCallId"] = act.event.call_id
                begin = self._begin(self._expected)
                return begin + _chunk("data-status", data=note, transient=True)
            case Asked():
                if self._target < 6:
                    return b""
                request = act.request
                return self._begin(None) + _chunk(
                    "tool-approval-request", approvalId=request.id, toolCallId=request.call.id
                )
            case Done() | Aborted() | Failed():
                return self._begin(None) + self._end_texts() + self._last(act) + DONE
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

    def _bring(self, act: Brought) -> bytes:
        chunk = _chunk(**brought(act.id, act.part))
        if self._target < 7:
            self._brought.append(chunk)
            return b""
        return self._begin(act.message) + chunk

    def _end_texts(self, *, withdrawn: bool = False) -> bytes:
        mark = {"providerMetadata": {"hookline": {"withdrawn": True}}} if withdrawn else {}
        ids, self._texts = self._texts, []
        whole, self._brought = self._brought, []
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
        return _chunk(
            "tool-input-available", toolCallId=call.id, toolName=call.name, input=call.arguments
        )

    def _done(self, event: ToolCallFinished) -> bytes:
        call = self._raw.pop(event.call_id, None)
        result = event.result
        if not isinstance(result, ToolFailure):
            if call is not None:
                data = _chunk(
                    "tool-input-available", toolCallId=call.id, toolName=call.name, input={}
                )
            else:
                data = b""
            return data + _chunk(
                "tool-output-available", toolCallId=event.call_id, output=result.value
            )
        if call is not None:
            return _chunk(
                "tool-input-error",
                toolCallId=call.id,
                toolName=call.name,
                input=call.raw,
                errorText=result.message,
            )
        # A client accepts a denial only for a call that asked; other refusals are sent as errors.
        if event.outcome == "denied" and event.call_id in self._denied and self._target >= 6:
            return _chunk("tool-output-denied", toolCallId=event.call_id)
        return _chunk("tool-output-error", toolCallId=event.call_id, errorText=result.message)

    def _lost(self, act: CallLost) -> bytes:
        call = self._raw.pop(act.id, None)
        fields: dict[str, Any] = {"toolCallId": act.id, "errorText": "Not finished"}
        if act.ready and call is None:
            return _chunk("tool-output-error", **fields)
        said: Any = call.raw if call is not None else {}
        return _chunk("tool-input-error", toolName=act.name, input=said, **fields)

    def _withdraw(self, act: Withdrawn) -> bytes:
        """Withdraw parts and calls. Version 6 cannot: mark texts as withdrawn, and close calls."""
        if self._target >= 7:
            return _chunk("reset-step")
        out = [self._end_texts(withdrawn=True)]
        for id, name in act.calls:
            fields: dict[str, Any] = {"toolCallId": id, "toolName": name, "input": {}}
            out.append(_chunk("tool-input-error", **fields, errorText="Withdrawn"))
        return b"".join(out)

    def _last(self, act: Done | Aborted | Failed) -> bytes:
        if isinstance(act, Done):
            response = act.response
            waits = bool(response.pending or response.client_calls)
            reason = "tool-calls" if waits else FINISH.get(response.finish_reason or "", "other")
            metadata: dict[str, Any] = {"usage": usage_of(response.usage)}
            if response.stop_reason is not None:
                metadata["stopReason"] = response.stop_reason
            return _chunk("finish", finishReason=reason, messageMetadata=metadata)
        if isinstance(act, Aborted):
            extra = {"reason": act.reason} if act.reason else {}
            return _chunk("abort", **extra) + self._close_step()
        error = _chunk("error", errorText=act.error.message)
        return error + self._close_step() + _chunk("finish", finishReason="error")


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
    id = part["toolCallId"]
    call = _chunk("tool-input-available", toolCallId=id, toolName=name, input=part["input"])
    match part["state"]:
        case "output-available":
            return call + _chunk("tool-output-available", toolCallId=id, output=part["output"])
        case "output-error":
            return call + _chunk("tool-output-error", toolCallId=id, errorText=part["errorText"])
        case "output-denied":
            return call + _chunk("tool-output-denied", toolCallId=id)
        case _:
            return call
