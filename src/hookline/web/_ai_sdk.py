"""The UI message stream of the Vercel AI SDK: what `useChat` and its relatives read.

One answer is one message there, whatever steps it took. What is sent by default are the chunks of
version 6, which clients of version 7 take as well; `target=7` adds `reset-step`, by which a text
that was withdrawn disappears from the screen, and `target=5` leaves out what 5 does not know. Up
to 6 a text is ended when its message is committed, so that its end can say that it was withdrawn.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, Literal

from hookline import ToolCall, ToolFailure, Usage
from hookline.events import ChatEvent, ErrorInfo, ToolCallFinished
from hookline.web._acts import (
    Aborted,
    AnyAct,
    Asked,
    Begin,
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
from hookline.web._mask import ErrorText, Mask
from hookline.web._outline import Outline
from hookline.web._wire import DONE, dumps, frame, quoted

Target = Literal[5, 6, 7]

FINISH: Final = {
    "stop": "stop",
    "tool_calls": "tool-calls",
    "length": "length",
    "refusal": "content-filter",
}


class AiSdkEncoder:
    """Events of one chat → bytes of a UI message stream.

    `message_id`: of the message that this answer goes on with (after approvals), `known` its
    calls. Without it the answer is a message of its own, named by its first committed message.
    `started`: its beginning was written already, up to a step that is open. `first`: the number of
    the first answer among the chat's messages, for a chat that reports something before it.
    """

    media_type = "text/event-stream"
    """The content type of the answer."""
    headers: tuple[tuple[str, str], ...] = (("x-vercel-ai-ui-message-stream", "v1"),)
    """What the protocol wants besides."""

    def __init__(
        self,
        *,
        message_id: str | None = None,
        known: Iterable[str] = (),
        target: Target = 6,
        errors: ErrorText | None = None,
        started: bool = False,
        first: int = 1,
    ) -> None:
        self._outline = Outline(known)
        self._mask = Mask(errors)
        self._target = target
        self._message_id = message_id
        self._first = first
        self._expected = ""  # the id of the first answer, before it is there
        self._started = started  # by a prelude
        self._open = started  # a step
        self._texts: list[str] = []  # complete, and not ended before their message is committed
        self._raw: dict[str, ToolCall] = {}  # calls whose arguments are no JSON object

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
            case PartMore():
                data = b'{"type":"%b-delta","id":%b,"delta":%b}'
                return frame(data % (act.kind.encode(), quoted(act.id), quoted(act.text)))
            case PartOpen():
                return self._begin(act.message) + _chunk(f"{act.kind}-start", id=act.id)
            case PartClose(kind="text") if self._target < 7:
                self._texts.append(act.id)
                return b""
            case PartClose():
                return _chunk(f"{act.kind}-end", id=act.id)
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
        """`start`, before whatever comes first: it needs the id of the first message."""
        if self._started:
            return b""
        self._started = True
        id = self._message_id or message_id
        return _chunk("start", messageId=id) if id else _chunk("start")

    def _end_texts(self, *, withdrawn: bool = False) -> bytes:
        mark = {"providerMetadata": {"hookline": {"withdrawn": True}}} if withdrawn else {}
        ids, self._texts = self._texts, []
        return b"".join([_chunk("text-end", id=id, **mark) for id in ids])

    def _close_step(self) -> bytes:
        if not self._open:
            return b""
        self._open = False
        return _chunk("finish-step")

    def _ready(self, call: ToolCall) -> bytes:
        if call.raw is not None:
            self._raw[call.id] = call  # told with its error
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
        if event.outcome == "denied" and self._target >= 6:
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
        """Version 6 knows no way to take a text back: its part is marked, and calls are closed."""
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
            waits = bool(response.pending)
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
    """Tokens under the names that both protocols use."""
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
    """A UI message of a history as the chunks that make it, without its end."""
    out = [_chunk("start", messageId=message["id"])]
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
