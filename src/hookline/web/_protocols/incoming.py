"""Read requests, in whichever protocol they arrive, and refuse bad ones.

Nothing that a client sends is trusted: its history is only a claim, and its answer to an approval
counts only if the server has asked for one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from math import inf
from typing import Any, Final, Literal, TypeAlias, cast

import msgspec

from hookline import (
    ApprovalRequest,
    Approve,
    Deny,
    Message,
    Text,
    ToolFailure,
    ToolMessage,
    ToolResult,
    UserMessage,
)
from hookline.web._http.request_reply import Refused
from hookline.web._http.sse import json_text

Decision: TypeAlias = Approve | Deny
Result: TypeAlias = ToolResult | ToolFailure
Outcome: TypeAlias = Literal["ok", "error", "denied", "aborted"]
SystemPolicy: TypeAlias = Literal["refuse", "ignore"]
"""What happens to system messages from a client."""
MAX_ID: Final = 128
MAX_ITEMS: Final = 10_000
"""The most messages in a request, and the most parts in a message."""
MAX_VALUES: Final = 200_000
"""The most JSON values in a request; an empty array takes 2 bytes of a body, but 64 of memory."""
_STRING: Final = re.compile(rb'"(?:[^"\\]++|\\.)*+"?', re.DOTALL)  # also without its end: linear
MAX_DEPTH: Final = 100
"""How deep the JSON values of a request may be nested."""


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """A client's answer to one approval, and the call that the answer is for."""

    decision: Decision
    call_id: str | None = None
    tool: str | None = None
    arguments: Any = msgspec.UNSET


class Incoming(msgspec.Struct, frozen=True, kw_only=True):
    """A parsed request.

    `message` is the new user message, or None if the request continues the chat with `answers`.
    `history` is the history that the client sent. `message_id` is the answer to continue, or the
    answer to replace if `regenerate` is True.
    """

    conversation_id: str | None = None
    """The client's id of the conversation."""
    message: UserMessage | None = None
    history: tuple[Message, ...] = ()
    answers: dict[str, Answer] = msgspec.field(default_factory=lambda: dict[str, Answer]())
    results: dict[str, Result] = msgspec.field(default_factory=lambda: dict[str, Result]())
    """All results that the client reports, by call id, also for calls that the server ran."""
    tools: tuple[dict[str, Any], ...] = ()
    """The tools that the front end brings along (AG-UI)."""
    state: dict[str, Any] = msgspec.field(default_factory=lambda: dict[str, Any]())
    """The front end's state (AG-UI)."""
    context: tuple[tuple[str, str], ...] = ()
    """The front end's context: descriptions and values (AG-UI)."""
    regenerate: bool = False
    message_id: str | None = None
    run_id: str | None = None
    """The client's id of the run (AG-UI)."""
    modern: bool = True
    """Whether the client uses AG-UI 1.0."""
    client_messages: tuple[msgspec.Raw, ...] = ()
    """The messages as JSON text, for a MESSAGES_SNAPSHOT (AG-UI)."""

    def decisions(
        self, pending: Sequence[ApprovalRequest], *, by: str, edits: bool = True
    ) -> dict[str, Decision]:
        """Return the decisions of the principal `by`, by approval id.

        The server must have asked for each decision.

        Raises Refused if an approval is not pending, or if an answer is for another call or other
        arguments. Without `edits`, also raises Refused if an answer changes the arguments.
        """
        waiting = {request.id: request for request in pending}
        for id, answer in self.answers.items():
            request = waiting.get(id)
            if request is None:
                raise Refused(
                    409, "This approval is not waiting for an answer; load the messages again."
                )
            other = (answer.call_id or request.call.id) != request.call.id
            if other or (answer.tool or request.call.name) != request.call.name:
                raise Refused(409, "This approval is for another call; load the messages again.")
            if answer.arguments is not msgspec.UNSET and not _same(
                answer.arguments, request.call.arguments
            ):
                raise Refused(409, "This approval is for other arguments; load the messages again.")
            if not edits and _edited(answer.decision, request.call.arguments):
                raise Refused(403, "The arguments must not be changed; approve or deny the call.")
        who = by or None
        return {id: answer.decision.replace(by=who) for id, answer in self.answers.items()}


def _edited(decision: Decision, arguments: Any) -> bool:
    arguments_after = decision.arguments if isinstance(decision, Approve) else None
    return arguments_after is not None and not _same(arguments_after, arguments)


def _same(one: Any, other: Any) -> bool:
    """Return whether two JSON values are equal to a client that reads numbers as doubles."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, (int, float)) and isinstance(other, (int, float)):
        return _double(one) == _double(other)
    mine: Any = one  # keeps its type where `isinstance` narrows the other name
    theirs: Any = other
    if isinstance(one, dict) and isinstance(other, dict):
        return mine.keys() == theirs.keys() and all(_same(mine[k], theirs[k]) for k in mine)
    if isinstance(one, list) and isinstance(other, (list, tuple)):
        return len(mine) == len(theirs) and all(map(_same, mine, theirs))
    return bool(one == other)


def _double(number: float) -> float:
    try:
        return float(number)
    except OverflowError:
        return inf if number > 0 else -inf


# ── reading with care ───────────────────────────────────────────────────────────────────────


def read_object(data: bytes) -> dict[str, Any]:
    """Parse the body as a JSON object."""
    if _surely_too_many(data):
        raise _too_many_values()
    try:
        value = msgspec.json.decode(data)
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        raise Refused(400, "The body must be JSON.") from None
    if not isinstance(value, dict):
        raise Refused(400, "The body must be a JSON object.")
    body = bounded(cast("dict[str, Any]", value))
    json.loads(data, object_pairs_hook=_unique)
    return body


def _surely_too_many(data: bytes) -> bool:
    """Return whether the body has too many JSON values, without parsing it.

    A value follows each comma, and begins with each bracket; those within strings do not count. A
    value has at most two strings, itself and its key.
    """
    if data.count(b'"') - data.count(b'\\"') > 4 * MAX_VALUES:
        return True
    if max(_count(data, b","), _count(data, b"[{")) <= MAX_VALUES:
        return False
    data = _STRING.sub(b"", data)
    return max(_count(data, b","), _count(data, b"[{")) > MAX_VALUES


def _count(data: bytes, characters: bytes) -> int:
    return len(data) - len(data.translate(None, characters))


def _too_many_values() -> Refused:
    return Refused(413, f"The body must not have more than {MAX_VALUES} JSON values.")


def _unique(pairs: list[tuple[str, Any]]) -> None:
    """Check that an object has no key twice: a proxy may read the first value, and we the last."""
    keys: set[str] = set()
    for key, _ in pairs:
        if key in keys:
            raise Refused(
                400, f"The body has the key {key[:64]!r} twice in one object; send it once."
            )
        keys.add(key)


def bounded(body: dict[str, Any]) -> dict[str, Any]:
    """Check the number and the depth of a request's JSON values, and the size of its integers."""
    level: list[Any] = [body]
    values = depth = 0
    while level:
        values, depth = values + len(level), depth + 1
        if values > MAX_VALUES:
            raise _too_many_values()
        if depth > MAX_DEPTH:
            raise Refused(400, f"The body must not be nested deeper than {MAX_DEPTH} levels.")
        inner: list[Any] = []
        for value in level:
            if isinstance(value, dict):
                inner += cast("dict[str, Any]", value).values()
            elif isinstance(value, list):
                inner += value
            elif type(value) is int and not -(2**63) <= value < 2**64:
                raise Refused(400, "An integer must fit into 64 bits.")
        level = inner
    return body


def objects(value: Any, what: str) -> list[dict[str, Any]]:
    """Check a list of JSON objects; its length is limited because each item is checked."""
    items: Any = value
    if isinstance(value, list) and len(items) > MAX_ITEMS:
        raise Refused(413, f"{what} must not have more than {MAX_ITEMS} items.")
    try:
        return msgspec.convert(value, list[dict[str, Any]])
    except msgspec.ValidationError:
        raise Refused(400, f"{what} must be a list of objects.") from None


def object_of(value: Any, what: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise Refused(400, f"{what} must be an object.")
    return cast("dict[str, Any]", value)


def only(value: dict[str, Any], what: str, keys: Iterable[str]) -> dict[str, Any]:
    """Check an object for unknown keys: a key that is silently ignored could change the chat."""
    keys = tuple(keys)
    unknown = [repr(key[:64]) for key in value if key not in keys][:5]
    if unknown:
        noun = "key" if len(unknown) == 1 else "keys"
        names, known = ", ".join(unknown), ", ".join(map(repr, keys))
        raise Refused(400, f"{what} has the unknown {noun} {names}; use only {known}.")
    return value


def text_of(value: Any, what: str) -> str:
    if not isinstance(value, str):
        raise Refused(400, f"{what} must be a string.")
    return value


def id_of(value: Any, what: str) -> str:
    """Check an id from a client: a short, printable string."""
    if not isinstance(value, str) or not 0 < len(value) <= MAX_ID or not value.isprintable():
        raise Refused(400, f"{what} must be a string of 1 to {MAX_ID} printable characters.")
    if value in (".", ".."):  # in an address, clients resolve these
        raise Refused(400, f"{what} must not be '.' or '..'; choose another id.")
    return value


def call_id_of(value: Any) -> str:
    """Check the id of a call. A model made it, so it may contain any characters."""
    if not isinstance(value, str) or not 0 < len(value) <= 1000:
        raise Refused(400, "A tool call's id must be a string of 1 to 1000 characters.")
    return value


def optional_id(value: Any, what: str) -> str | None:
    return None if value is None else id_of(value, what)


def not_empty(message: UserMessage) -> UserMessage:
    """Check that a user's message has a text or a file."""
    if all(isinstance(part, Text) and not part.text.strip() for part in message.parts):
        raise Refused(400, "The message must not be empty.")
    return message


def no_system(policy: SystemPolicy) -> None:
    """Refuse a system prompt from a client, if the policy says so."""
    if policy == "refuse":
        raise Refused(400, "System messages are not accepted from clients; leave them out.")


def decision_of(approved: Any, reason: Any = None, arguments: Any = None) -> Decision:
    """Read a decision; only a literal `true` approves."""
    if reason is not None:
        text_of(reason, "The reason of an answer")
    if approved is True:
        if arguments is None:
            return Approve()
        return Approve(arguments=object_of(arguments, "Changed arguments"))
    if approved is False:
        return Deny(reason or "denied by the user")
    raise Refused(400, "An approval must be answered with true or false.")


def result_message(
    id: str, call_id: str, name: str, value: Any, outcome: Outcome = "ok"
) -> ToolMessage:
    """Build the message for a result that a client reports."""
    text = value if isinstance(value, str) else json_text(value)
    return ToolMessage(id=id, call_id=call_id, name=name, text=text, outcome=outcome)


def failed_message(id: str, call_id: str, name: str, error: str, outcome: Outcome) -> ToolMessage:
    """Build the message for a failed call that a client reports."""
    data = {"error": {"type": ToolFailure.__name__, "message": error}}
    return result_message(id, call_id, name, data, outcome)
