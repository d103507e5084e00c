"""The three protocols side by side: how a request is read, an answer written, a history shown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal, TypeAlias, get_args

from hookline import (
    Agent,
    ApprovalRequest,
    AssistantMessage,
    Message,
    ToolMessage,
    UserMessage,
)
from hookline.errors import UsageError
from hookline.web._ag_ui import AgUiEncoder
from hookline.web._ag_ui_messages import parse_ag_ui, to_ag_ui_messages
from hookline.web._ai_sdk import AiSdkEncoder, Target, chunks_of
from hookline.web._ai_sdk_messages import parse_ai_sdk, to_ui_messages
from hookline.web._incoming import Incoming, SystemPolicy
from hookline.web._live import Live
from hookline.web._mask import ErrorText, Mask
from hookline.web._native import NativeEncoder
from hookline.web._native_messages import parse_native, to_native_messages
from hookline.web._send import Encoder

Protocol: TypeAlias = Literal["native", "ai-sdk", "ag-ui"]
PROTOCOLS: tuple[Protocol, ...] = get_args(Protocol)


def check_protocol(name: str) -> None:
    if name not in PROTOCOLS:
        raise UsageError(f"protocol={name!r} must be one of {', '.join(PROTOCOLS)}")


def parse(protocol: Protocol, body: dict[str, Any], system: SystemPolicy = "refuse") -> Incoming:
    """What a request asks for; raises Refused."""
    if protocol == "ai-sdk":
        return parse_ai_sdk(body, system=system)
    if protocol == "ag-ui":
        return parse_ag_ui(body, system=system)
    return parse_native(body)


def encoder_for(
    protocol: Protocol,
    live: Live,
    *,
    conversation_id: str = "",
    replay: bool = False,
    target: Target = 6,
    errors: ErrorText | None = None,
) -> tuple[Encoder, bytes]:
    """The encoder of a run's events, and what it is to begin with.

    `replay`: the client begins anew, so that an answer which was gone on with is told whole.
    """
    incoming = live.incoming
    known = [call.id for call in last_calls(live.before)] if live.resumed else []
    if protocol == "native":
        return NativeEncoder(
            run=live.id, conversation_id=conversation_id or None, errors=errors
        ), b""
    if protocol == "ai-sdk":
        id: str | None = None
        prelude = b""
        if live.resumed:
            turn = shown_messages("ai-sdk", last_turn(live.before), errors=errors)
            id = (incoming.message_id if incoming else None) or (turn[0]["id"] if turn else None)
            if replay and turn:
                prelude = chunks_of({**turn[0], "id": id})
        encoder = AiSdkEncoder(
            message_id=id,
            known=known,
            target=target,
            errors=errors,
            started=bool(prelude),
            first=1 + _unanswered(live.before),
        )
        return encoder, prelude
    return AgUiEncoder(
        thread_id=conversation_id,
        run_id=(incoming.run_id if incoming is not None else None) or live.id,
        modern=incoming.modern if incoming is not None else True,
        messages=incoming.raw if incoming is not None else (),
        known=known,
        errors=errors,
    ), b""


def shown_messages(
    protocol: Protocol,
    messages: Iterable[Message],
    pending: Sequence[ApprovalRequest] = (),
    errors: ErrorText | None = None,
) -> list[dict[str, Any]]:
    """A history as the protocol's client wants it, without the texts of exceptions."""
    mask = Mask(errors)
    masked = [mask.message(message) for message in messages]
    if protocol == "ai-sdk":
        return to_ui_messages(masked, pending)
    if protocol == "ag-ui":
        return to_ag_ui_messages(masked)
    return to_native_messages(masked)


def last_turn(messages: Sequence[Message]) -> Sequence[Message]:
    """What was said since the user last spoke."""
    at = len(messages)
    while at and not isinstance(messages[at - 1], UserMessage):
        at -= 1
    return messages[at:]


def last_calls(messages: Sequence[Message]) -> Sequence[Any]:
    """The calls of the last answer."""
    for message in reversed(messages):
        if isinstance(message, AssistantMessage):
            return message.tool_calls
        if not isinstance(message, ToolMessage):
            break
    return ()


def _unanswered(messages: Sequence[Message]) -> int:
    """How many calls wait for a result, which a new message of the user's denies first."""
    for results, message in enumerate(reversed(messages)):
        if isinstance(message, AssistantMessage):
            return len(message.tool_calls) - results
        if not isinstance(message, ToolMessage):
            break
    return 0


def release_for(
    agent: Agent[Any], protocol: Protocol, target: Target
) -> Literal["live", "response"]:
    """`live`, unless hooks may take a shown text back and the client could not."""
    if protocol != "ai-sdk" or target >= 7:
        return "live"
    rewrites = agent.hooks("onResponse") or agent.hooks("preMessage")
    return "response" if rewrites else "live"
