"""What a request asks for, whichever protocol it came in, and how a bad one is refused.

Nothing that a client sends is trusted: a history is only what the client says it was, and an
answer to an approval counts only if the server had asked for it.
"""

from __future__ import annotations

from base64 import b64decode
from binascii import Error as Base64Error
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias, cast

import msgspec

from hookline import (
    ApprovalRequest,
    Approve,
    Deny,
    File,
    Image,
    Message,
    ToolFailure,
    ToolMessage,
    UserMessage,
)
from hookline.web._wire import json_text

Decision: TypeAlias = Approve | Deny
SystemPolicy: TypeAlias = Literal["refuse", "ignore"]
MAX_ID: Final = 128


class Refused(Exception):
    """The request is not carried out: an HTTP `status` and a `text`, one sentence for the client.

    `headers` go with the answer. Raised by the parsers; answer with it, or let `app` do so.
    """

    def __init__(self, status: int, text: str, **headers: str) -> None:
        self.status = status
        self.text = text
        self.headers = {name.replace("_", "-").lower(): value for name, value in headers.items()}
        super().__init__(text)


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What a client says to one approval, and which call it believes to be answering."""

    decision: Decision
    call_id: str | None = None
    arguments: Any = msgspec.UNSET


class Incoming(msgspec.Struct, frozen=True, kw_only=True):
    """A request, read.

    `message` is what the user says now, None where the chat goes on with `answers`. `history` is
    what the client says was said before. `message_id`: the answer that is gone on with or made
    again (`regenerate`). `raw`: the messages as they came.
    """

    conversation_id: str | None = None
    """The client's name of the conversation."""
    message: UserMessage | None = None
    history: tuple[Message, ...] = ()
    answers: dict[str, Answer] = msgspec.field(default_factory=lambda: dict[str, Answer]())
    regenerate: bool = False
    message_id: str | None = None
    run_id: str | None = None
    """The client's name of this run (AG-UI)."""
    modern: bool = True
    """The client speaks AG-UI 1.0."""
    raw: tuple[dict[str, Any], ...] = ()

    def decisions(self, pending: Sequence[ApprovalRequest]) -> dict[str, Decision]:
        """The answers, each of them to a call that the server has asked about.

        Raises Refused for one that is not waiting, or was given to another call or arguments.
        """
        waiting = {request.id: request for request in pending}
        for id, answer in self.answers.items():
            request = waiting.get(id)
            if request is None:
                raise Refused(
                    409, "This approval is not waiting for an answer; read the messages again."
                )
            if answer.call_id is not None and answer.call_id != request.call.id:
                raise Refused(409, "This approval is about another call; read the messages again.")
            if answer.arguments is not msgspec.UNSET and not _same(
                answer.arguments, request.call.arguments
            ):
                raise Refused(
                    409, "This approval is about other arguments; read the messages again."
                )
        return {id: answer.decision for id, answer in self.answers.items()}


def _same(one: Any, other: Any) -> bool:
    """Whether two JSON values are the same to a client whose numbers are doubles."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, (int, float)) and isinstance(other, (int, float)):
        return float(one) == float(other)
    mine: Any = one  # names that keep their type where `isinstance` narrows the others
    theirs: Any = other
    if isinstance(one, dict) and isinstance(other, dict):
        return mine.keys() == theirs.keys() and all(_same(mine[k], theirs[k]) for k in mine)
    if isinstance(one, list) and isinstance(other, (list, tuple)):
        return len(mine) == len(theirs) and all(map(_same, mine, theirs))
    return bool(one == other)


# ── reading with care ───────────────────────────────────────────────────────────────────────


def read_object(data: bytes) -> dict[str, Any]:
    """The JSON object of a body."""
    try:
        value = msgspec.json.decode(data)
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        raise Refused(400, "The body must be JSON.") from None
    if not isinstance(value, dict):
        raise Refused(400, "The body must be a JSON object.")
    return cast("dict[str, Any]", value)


def objects(value: Any, what: str) -> list[dict[str, Any]]:
    """A list of JSON objects."""
    try:
        return msgspec.convert(value, list[dict[str, Any]])
    except msgspec.ValidationError:
        raise Refused(400, f"{what} must be a list of objects.") from None


def object_of(value: Any, what: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise Refused(400, f"{what} must be an object.")
    return cast("dict[str, Any]", value)


def text_of(value: Any, what: str) -> str:
    if not isinstance(value, str):
        raise Refused(400, f"{what} must be a string.")
    return value


def id_of(value: Any, what: str) -> str:
    """An id of a client's: something short that can be printed."""
    if not isinstance(value, str) or not 0 < len(value) <= MAX_ID or not value.isprintable():
        raise Refused(400, f"{what} must be a string of 1 to {MAX_ID} printable characters.")
    return value


def call_id_of(value: Any) -> str:
    """The id of a call: a model made it, so it may hold anything."""
    if not isinstance(value, str) or not 0 < len(value) <= 1000:
        raise Refused(400, "A tool call's id must be a string of 1 to 1000 characters.")
    return value


def optional_id(value: Any, what: str) -> str | None:
    return None if value is None else id_of(value, what)


def no_system(policy: SystemPolicy) -> None:
    """A client has sent a system prompt."""
    if policy == "refuse":
        raise Refused(400, "System messages are not taken from clients; leave them out.")


def media(media_type: Any, url: Any, name: Any = None, data: Any = None) -> Image | File:
    """A picture or document: in the message, or behind an https address."""
    kind = text_of(media_type or "application/octet-stream", "A media type")
    content: bytes | None = None
    address: str | None = None
    if isinstance(url, str) and url.startswith("data:"):
        head, _, data = url.partition(",")
        if not head.endswith(";base64"):
            raise Refused(400, "A data: address must be base64.")
        kind = head[5:-7].split(";")[0] or kind
        url = None
    if data is not None:
        try:
            content = b64decode(text_of(data, "File data"), validate=True)
        except (Base64Error, ValueError):
            raise Refused(400, "The data of a file must be base64.") from None
    else:
        address = text_of(url, "The address of a file")
        if not address.startswith("https://"):
            raise Refused(400, "A file must be a data: or an https: address.")
    if kind.startswith("image/"):
        return Image(media_type=kind, data=content, url=address)
    label = name if isinstance(name, str) else None
    return File(media_type=kind, name=label, data=content, url=address)


def decision_of(approved: Any, reason: Any = None, arguments: Any = None) -> Decision:
    """An answer; only a plain `true` approves."""
    if approved is True:
        if arguments is None:
            return Approve()
        return Approve(arguments=object_of(arguments, "Changed arguments"))
    if approved is False:
        return Deny(reason if isinstance(reason, str) and reason else "denied by the user")
    raise Refused(400, "An approval must be answered with true or false.")


def result_message(id: str, call_id: str, name: str, value: Any) -> ToolMessage:
    """A result that a client says a call has had."""
    text = value if isinstance(value, str) else json_text(value)
    return ToolMessage(id=id, call_id=call_id, name=name, text=text)


def failed_message(
    id: str, call_id: str, name: str, error: str, outcome: Literal["error", "denied", "aborted"]
) -> ToolMessage:
    """The same for a call that came to nothing."""
    data: Mapping[str, Any] = {"error": {"type": ToolFailure.__name__, "message": error}}
    text = json_text(data)
    return ToolMessage(id=id, call_id=call_id, name=name, text=text, outcome=outcome)
