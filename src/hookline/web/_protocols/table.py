"""The three protocols: read a request, encode an answer, show a history."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import Any, Final, Literal, TypeAlias, get_args
from weakref import WeakSet

from hookline import (
    Agent,
    ApprovalRequest,
    AssistantMessage,
    Message,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from hookline.errors import UsageError
from hookline.web._http.request_reply import Refused
from hookline.web._protocols.ag_ui.encoder import AgUiEncoder
from hookline.web._protocols.ag_ui.messages import (
    from_ag_ui_messages,
    parse_ag_ui,
    to_ag_ui_messages,
)
from hookline.web._protocols.ai_sdk.encoder import AiSdkEncoder, AiSdkVersion, chunks_of
from hookline.web._protocols.ai_sdk.messages import from_ui_messages, to_ui_messages
from hookline.web._protocols.ai_sdk.request import parse_ai_sdk
from hookline.web._protocols.incoming import (
    Incoming,
    SystemPolicy,
    not_empty,
    object_of,
    only,
)
from hookline.web._protocols.masked_texts import DescribeError, Mask
from hookline.web._protocols.native.encoder import NativeEncoder
from hookline.web._protocols.native.messages import (
    parse_native,
    parse_user_message,
    to_native_messages,
)
from hookline.web._runs.backlog import RunView
from hookline.web._runs.run import When
from hookline.web._runs.run_header import Header

Protocol: TypeAlias = Literal["native", "ai-sdk", "ag-ui"]
"""The protocols that a route can speak."""
PROTOCOLS: tuple[Protocol, ...] = get_args(Protocol)
ENCODERS: Final[dict[Protocol, type[Encoder]]] = {
    "native": NativeEncoder,
    "ai-sdk": AiSdkEncoder,
    "ag-ui": AgUiEncoder,
}
logger = logging.getLogger("hookline.web")
_warned_agents: Final[WeakSet[Agent[Any]]] = WeakSet()  # agents whose delayed answers were logged


def check_protocol(name: str) -> None:
    if name not in PROTOCOLS:
        raise UsageError(f"protocol={name!r} must be one of {', '.join(PROTOCOLS)}")


def parse(protocol: Protocol, body: dict[str, Any], system: SystemPolicy = "refuse") -> Incoming:
    """Parse a request; raises Refused."""
    if protocol == "ai-sdk":
        return parse_ai_sdk(body, system=system)
    if protocol == "ag-ui":
        return parse_ag_ui(body, system=system)
    return parse_native(body)


def parse_sent(protocol: Protocol, body: dict[str, Any]) -> tuple[UserMessage, When]:
    """Parse a message for a running answer: `{"message", "when"}`; raises Refused."""
    only(body, "The body", ("message", "when"))
    when = body.get("when", "next")
    if when not in ("next", "idle", "interrupt"):
        raise Refused(400, "when must be 'next', 'idle' or 'interrupt'.")
    value = body.get("message")
    if protocol == "native":
        return parse_user_message(value), when
    read = from_ui_messages if protocol == "ai-sdk" else from_ag_ui_messages
    messages = read([object_of(value, "message")])
    if len(messages) != 1 or not isinstance(messages[0], UserMessage):
        raise Refused(400, "The message must be a user message.")
    return not_empty(messages[0]), when


def encoder_for(
    protocol: Protocol,
    run: RunView,
    *,
    conversation_id: str | None = None,
    replay: bool = False,
    ai_sdk_version: AiSdkVersion = 6,
    describe_error: DescribeError | None = None,
    approvals: bool = True,
) -> tuple[Encoder, bytes]:
    """Return the encoder of a run's events, and the bytes that the response begins with.

    `replay`: the client starts anew, so an answer that continues an earlier one is sent whole.
    `approvals`: whether the client may answer approvals.
    """
    header, before = run.header, run.before
    earlier_calls = [call.id for call in last_calls(before)] if header.resumed else []
    if protocol == "native":
        return NativeEncoder(
            run=header.run,
            conversation_id=conversation_id,
            describe_error=describe_error,
            scope_of=run.scope_of,
            chat_id=header.chat_id,
        ), b""
    if protocol == "ai-sdk":
        id: str | None = None
        prelude = b""
        if header.resumed:
            turn = shown_messages(
                "ai-sdk",
                last_turn(before),
                describe_error=describe_error,
                ai_sdk_version=ai_sdk_version,
            )
            id = header.message_id or (turn[0]["id"] if turn else None)
            if replay and turn:
                prelude = chunks_of({**turn[0], "id": id})
        encoder = AiSdkEncoder(
            message_id=id,
            earlier_calls=earlier_calls,
            denied=header.denied,
            ai_sdk_version=ai_sdk_version,
            describe_error=describe_error,
            started=bool(prelude),
            first=1 + _unanswered(before),
            chat_id=header.chat_id,
            approvals=approvals,
        )
        return encoder, prelude
    return AgUiEncoder(
        thread_id=conversation_id or "",
        run_id=header.run_id or header.run,
        modern=header.modern,
        messages=None if header.messages_left_out else header.client_messages,
        earlier_calls=earlier_calls,
        client_results=header.client_results,
        describe_error=describe_error,
        chat_id=header.chat_id,
        approvals=approvals,
    ), b""


def shown_messages(
    protocol: Protocol,
    messages: Iterable[Message],
    pending: Sequence[ApprovalRequest] = (),
    describe_error: DescribeError | None = None,
    *,
    client_calls: Sequence[ToolCall] = (),
    ai_sdk_version: AiSdkVersion = 6,
    approvals: bool = True,
) -> list[dict[str, Any]]:
    """Convert a history for the clients of a protocol, with the texts of exceptions hidden."""
    mask = Mask(describe_error)
    masked = [mask.message(message) for message in messages]
    if protocol == "ai-sdk":
        return to_ui_messages(
            masked,
            pending,
            client_calls=client_calls,
            ai_sdk_version=ai_sdk_version,
            approvals=approvals,
        )
    if protocol == "ag-ui":
        return to_ag_ui_messages(masked)
    return to_native_messages(masked)


def untold(
    protocol: Protocol, header: Header, messages: tuple[Message, ...]
) -> tuple[Message, ...]:
    """Return the messages that a run's stream does not contain; clients load them separately."""
    before = messages[: header.before]
    if protocol == "native":
        return before
    if not header.resumed:  # up to the user's own message
        end = header.before + _unanswered(before) + 1
        return messages[:end]
    if protocol == "ai-sdk":  # the stream begins with the turn that it continues
        return before[: len(before) - len(last_turn(before))]
    return before


def last_turn(messages: Sequence[Message]) -> Sequence[Message]:
    """Return the messages since the last user message."""
    at = len(messages)
    while at and not isinstance(messages[at - 1], UserMessage):
        at -= 1
    return messages[at:]


def last_calls(messages: Sequence[Message]) -> Sequence[ToolCall]:
    """Return the calls of the last answer."""
    answers = [item for item in last_turn(messages) if isinstance(item, AssistantMessage)]
    return answers[-1].tool_calls if answers else ()


def _unanswered(messages: Sequence[Message]) -> int:
    """Return the number of calls without a result; a new user message denies them first."""
    results = {item.call_id for item in last_turn(messages) if isinstance(item, ToolMessage)}
    return len([call for call in last_calls(messages) if call.id not in results])


def release_for(
    agent: Agent[Any], protocol: Protocol, ai_sdk_version: AiSdkVersion
) -> Literal["live", "response"]:
    """Return "live", unless hooks may withdraw a shown text and the client cannot remove it."""
    if protocol != "ai-sdk" or ai_sdk_version >= 7:
        return "live"
    hooks = (*agent.hooks("onResponse"), *agent.hooks("preMessage"))
    names = sorted({hook.name for hook in hooks if not hook.keeps_deltas})
    if not names:
        return "live"
    if agent not in _warned_agents:
        _warned_agents.add(agent)
        logger.warning(
            "AI SDK: answers are shown only when they are complete, because the hooks %s may "
            "change them and clients with ai_sdk_version=%s cannot withdraw text; declare them "
            "with keeps_deltas=True if they leave what onDelta has let pass, or use "
            "ai_sdk_version=7",
            ", ".join(names),
            ai_sdk_version,
        )
    return "response"


Encoder: TypeAlias = NativeEncoder | AiSdkEncoder | AgUiEncoder
