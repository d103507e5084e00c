"""hookline's own stream: every event with its time, and the hooks that ran.

The data of a frame is the event's JSON (`hookline.events.read_event` parses it) with an additional
field `at`: milliseconds since the run began. Error texts are masked, and fields with an empty
default may be left out. Frames of hooks have `"event": "hook"`. If events were lost, the stream
ends with `"event": "reload"`, which asks the client to reload the messages.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hookline import ApprovalRequest
from hookline.events import (
    ApprovalRequested,
    ChatAborted,
    ChatDone,
    ChatEvent,
    ChatFailed,
    ChatStarted,
    TextDelta,
    ToolCallStarted,
)
from hookline.web._http.sse import dumps, frame, plain
from hookline.web._protocols.masked_texts import DescribeError, Mask
from hookline.web._runs.backlog import HookFired


class NativeEncoder:
    """Encodes the events of one chat as hookline's own stream.

    `run` is part of the id of each frame. `conversation_id` is the conversation's id for the
    client, not the id in the store. If `conversation_id` is empty, the frames have no conversation
    id. `scope_of` returns the label of a tool's scope, which is shown at the start of a call. If a
    chat fails before its first event, `chat_id` determines the id of the error.
    """

    media_type = "text/event-stream"
    """The content type of the response."""
    headers: tuple[tuple[str, str], ...] = ()
    """Further headers that the protocol requires."""

    def __init__(
        self,
        *,
        run: str = "",
        conversation_id: str | None = None,
        describe_error: DescribeError | None = None,
        scope_of: Callable[[str], str | None] | None = None,
        chat_id: str = "",
    ) -> None:
        self.shown_as = (conversation_id, id(describe_error))
        """Encoders of one run with the same value write the same bytes."""
        self._mask = Mask(describe_error, chat_id=chat_id)
        self._scope_of = scope_of
        self._conversation_id = conversation_id
        self._run = run
        self._chat_id = chat_id
        self._seq = 0
        self.complete = False
        """Whether the last frame was written. Later events are dropped."""

    def agree(self, call_texts: dict[str, str]) -> None:
        """Use the same error texts, by call id, as the other encoders of the run."""
        self._mask.call_texts = call_texts

    def encode(self, event: ChatEvent, at: float | None = None, number: int | None = None) -> bytes:
        """Encode one event; `at` is its time in seconds, and `number` its position in the run."""
        if self.complete:
            return b""
        self.record(event)
        if type(event) is TextDelta and not event.path:
            return self._frame(self._text(event, at), number)
        event = self._for_client(self._mask.event(event))
        data = plain(event)
        if type(event) is ToolCallStarted and not event.path and self._scope_of is not None:
            data["scope"] = self._scope_of(event.call.name)
        return self._frame(dumps(_timed(data, at)), number)

    def record(self, event: ChatEvent) -> None:
        """Record an event that this encoder, or one that writes the same bytes, has written."""
        self._chat_id = self._chat_id or event.chat_id
        self._seq = event.seq
        if isinstance(event, (ChatDone, ChatAborted, ChatFailed)):
            self.complete = event.chat_id == self._chat_id

    def _for_client(self, event: ChatEvent) -> ChatEvent:
        """Return the event with the client's id of the conversation."""
        if self._conversation_id is None:
            return event
        match event:
            case ChatDone(response=response) if response.pending:
                pending = tuple(map(self._request, response.pending))
                return event.replace(response=response.replace(pending=pending))
            case ApprovalRequested():
                return event.replace(request=self._request(event.request))
            case ChatStarted():
                return event.replace(conversation_id=self._conversation_id or None)
            case _:
                return event

    def _request(self, request: ApprovalRequest) -> ApprovalRequest:
        return request.replace(conversation_id=self._conversation_id or None)

    def hook(self, hook: HookFired, at: float | None = None, number: int | None = None) -> bytes:
        """Encode the frame of a hook that ran."""
        if self.complete:
            return b""
        return self._frame(dumps(_timed({"event": "hook", **plain(hook)}, at)), number)

    def end(self, error: BaseException | None = None, reason: str | None = None) -> bytes:
        """Encode a closing event if the stream ended without one."""
        if self.complete:
            return b""
        last: ChatAborted | ChatFailed
        if error is None:
            last = ChatAborted(chat_id=self._chat_id, seq=self._seq + 1, reason=reason)
        else:
            info = self._mask.info(error)
            last = ChatFailed(chat_id=self._chat_id, seq=self._seq + 1, error=info)
        self.record(last)
        return self._frame(dumps(plain(last)), None)

    def reload(self) -> bytes:
        """If events were lost, encode the last frame, which asks the client to reload."""
        self.complete = True
        return frame(dumps({"event": "reload"}))

    def _text(self, event: TextDelta, at: float | None) -> bytes:
        """Encode a text delta. This is the hot path: most frames are text deltas."""
        when = b"" if at is None else b',"at":%.1f' % (at * 1000)
        return b'{"event":"text_delta","chat_id":%b,"seq":%d,"iteration":%d,"text":%b%b}' % (
            dumps(event.chat_id),
            event.seq,
            event.iteration,
            dumps(event.text),
            when,
        )

    def _frame(self, data: bytes, number: int | None) -> bytes:
        return frame(data, id="" if number is None else f"{self._run}-{number}")


def _timed(data: dict[str, Any], at: float | None) -> dict[str, Any]:
    if at is not None:
        data["at"] = round(at * 1000, 1)
    return data
