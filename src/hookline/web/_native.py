"""hookline's own stream: every event as it is, with the moment it came, and the hooks that fired.

A frame's data is the event's JSON (`hookline.events.read_event` reads it) with one field more,
`at`: milliseconds since the run began. Texts of errors are masked; messages that were sent before
are not sent again with the last event. Frames of hooks have `"event": "hook"`.
"""

from __future__ import annotations

from typing import Any

import msgspec

from hookline import ApprovalRequest
from hookline.events import (
    ApprovalRequested,
    ChatAborted,
    ChatDone,
    ChatEvent,
    ChatFailed,
    ChatStarted,
    ErrorInfo,
    TextDelta,
)
from hookline.web._mask import ErrorText, Mask
from hookline.web._wire import dumps, frame, plain, quoted


class HookFired(msgspec.Struct, frozen=True, kw_only=True):
    """A hook ran: at which point, what it decided, and for how many milliseconds it took."""

    chat_id: str
    """The chat that it ran in."""
    point: str
    """The point's name."""
    hook: str
    """The hook's name."""
    outcome: str
    """What it decided."""
    duration: float
    """Milliseconds that it took."""


class NativeEncoder:
    """Events of one chat → bytes of hookline's own stream.

    `run` marks the ids of its frames; `conversation_id` is what the client calls the conversation,
    where it is stored under another name.
    """

    media_type = "text/event-stream"
    """The content type of the answer."""
    headers: tuple[tuple[str, str], ...] = ()
    """What the protocol wants besides."""

    def __init__(
        self,
        *,
        run: str = "",
        conversation_id: str | None = None,
        errors: ErrorText | None = None,
    ) -> None:
        self.shown_as = (conversation_id, id(errors))
        """Encoders of one run that agree in it write the same."""
        self._mask = Mask(errors)
        self._conversation_id = conversation_id
        self._run = run
        self._chat_id = ""
        self._seq = 0
        self.ended = False
        """Whether the last frame was written: what comes later is dropped."""

    def encode(self, event: ChatEvent, at: float | None = None, number: int | None = None) -> bytes:
        """The frame of one event; `at` in seconds, `number` its place in the run."""
        if self.ended:
            return b""
        self.passed(event)
        if type(event) is TextDelta and not event.path:
            return self._frame(self._text(event, at), number)
        event = self._shown(self._mask.event(event))
        return self._frame(dumps(_timed(plain(event), at)), number)

    def passed(self, event: ChatEvent) -> None:
        """This event is written, here or by an encoder that agrees with this one."""
        self._chat_id = self._chat_id or event.chat_id
        self._seq = event.seq
        if isinstance(event, (ChatDone, ChatAborted, ChatFailed)):
            self.ended = event.chat_id == self._chat_id

    def _shown(self, event: ChatEvent) -> ChatEvent:
        """Without what was sent before, and under the client's name of the conversation."""
        match event:
            case ChatDone(response=response):
                pending = tuple(map(self._request, response.pending))
                return event.replace(response=response.replace(messages=(), pending=pending))
            case ChatAborted():
                return event.replace(partial=())
            case ApprovalRequested():
                return event.replace(request=self._request(event.request))
            case ChatStarted() if self._conversation_id is not None:
                return event.replace(conversation_id=self._conversation_id)
            case _:
                return event

    def _request(self, request: ApprovalRequest) -> ApprovalRequest:
        if self._conversation_id is None:
            return request
        return request.replace(conversation_id=self._conversation_id)

    def hook(self, hook: HookFired, at: float | None = None, number: int | None = None) -> bytes:
        """The frame of a hook that has fired."""
        if self.ended:
            return b""
        return self._frame(dumps(_timed({"event": "hook", **plain(hook)}, at)), number)

    def end(self, error: BaseException | None = None, reason: str | None = None) -> bytes:
        """The last event, where the events ended without one."""
        if self.ended:
            return b""
        last: ChatAborted | ChatFailed
        if error is None:
            last = ChatAborted(chat_id=self._chat_id, seq=self._seq + 1, reason=reason)
        else:
            info = ErrorInfo.of(error)
            last = ChatFailed(chat_id=self._chat_id, seq=self._seq + 1, error=info)
        return self.encode(last)

    def _text(self, event: TextDelta, at: float | None) -> bytes:
        """The hot path: most frames are these."""
        when = b"" if at is None else b',"at":%.1f' % (at * 1000)
        return b'{"event":"text_delta","chat_id":%b,"seq":%d,"iteration":%d,"text":%b%b}' % (
            quoted(event.chat_id),
            event.seq,
            event.iteration,
            quoted(event.text),
            when,
        )

    def _frame(self, data: bytes, number: int | None) -> bytes:
        return frame(data, id="" if number is None else f"{self._run}-{number}")


def _timed(data: dict[str, Any], at: float | None) -> dict[str, Any]:
    if at is not None:
        data["at"] = round(at * 1000, 1)
    return data
