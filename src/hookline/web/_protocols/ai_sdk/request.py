"""Read the requests of the Vercel AI SDK's chat transport."""

from __future__ import annotations

from typing import Any, Final

from hookline import ToolFailure, ToolResult, UserMessage
from hookline.web._http.request_reply import Refused
from hookline.web._protocols.ai_sdk.messages import from_ui_messages, tool_of
from hookline.web._protocols.incoming import (
    Answer,
    Incoming,
    SystemPolicy,
    bounded,
    call_id_of,
    decision_of,
    id_of,
    not_empty,
    object_of,
    objects,
    only,
    optional_id,
    text_of,
)

APPROVAL: Final = (
    *("id", "approved", "reason"),
    # further keys of versions 6 and 7
    *("descriptor", "requestReason", "isAutomatic", "signature", "inputSchemaInput"),
)


def parse_ai_sdk(body: dict[str, Any], *, system: SystemPolicy = "refuse") -> Incoming:
    """Read a request of the SDK's chat transport: all messages, or the last message as `message`.

    Raises Refused for anything else.
    """
    conversation_id = optional_id(bounded(body).get("id"), "id")
    regenerate = body.get("trigger") == "regenerate-message"
    items = objects(body.get("messages", []), "messages")
    if not items and isinstance(body.get("message"), dict):
        items = [body["message"]]
    if not items and not regenerate:
        raise Refused(400, "A request must have at least one message.")
    message_id = optional_id(body.get("messageId"), "messageId")
    last = items[-1] if items else {}
    if last.get("role") == "assistant" and not regenerate:
        return _answering(conversation_id, items, system)
    messages = from_ui_messages(items, system=system)
    message = messages[-1] if messages else None
    if not isinstance(message, UserMessage):
        if not regenerate:
            raise Refused(400, "The last message must be a user message.")
        message = None
    elif not regenerate:
        not_empty(message)
    return Incoming(
        conversation_id=conversation_id,
        message=message,
        history=tuple(messages[:-1] if message is not None else messages),
        regenerate=regenerate,
        message_id=message_id if regenerate else None,
    )


def _answering(
    conversation_id: str | None, items: list[dict[str, Any]], system: SystemPolicy
) -> Incoming:
    """Read a request that continues the last answer: with approvals, or with results of calls."""
    last = items[-1]
    answers, results = _answers(last), _results(last)
    if not answers and not results:
        raise Refused(400, "The last message must be a user message or must answer a call.")
    return Incoming(
        conversation_id=conversation_id,
        history=tuple(from_ui_messages(items[:-1] if answers else items, system=system)),
        answers=answers,
        results=results,
        message_id=id_of(last.get("id"), "A message id"),
    )


def _answers(message: dict[str, Any]) -> dict[str, Answer]:
    """Return the answered approvals in the last answer."""
    answers: dict[str, Answer] = {}
    for part in objects(message.get("parts"), "The parts of a message"):
        if part.get("state") != "approval-responded":
            continue
        approval = only(object_of(part.get("approval"), "An approval"), "An approval", APPROVAL)
        id = text_of(approval.get("id"), "An approval's id")
        if "input" not in part:
            raise Refused(400, "An approval must include the call's input.")
        if id in answers:
            raise Refused(400, "Send one answer to each approval.")
        answers[id] = Answer(
            decision=decision_of(approval.get("approved"), approval.get("reason")),
            call_id=call_id_of(part.get("toolCallId")),
            tool=tool_of(part),
            arguments=part["input"],
        )
    return answers


def _results(message: dict[str, Any]) -> dict[str, ToolResult | ToolFailure]:
    """Return the results of the last answer's calls, including those that the client ran."""
    results: dict[str, ToolResult | ToolFailure] = {}
    for part in objects(message.get("parts"), "The parts of a message"):
        state = part.get("state")
        if state == "output-available" and part.get("preliminary") is not True:
            results[call_id_of(part.get("toolCallId"))] = ToolResult(part.get("output"))
        elif state == "output-error":
            text = text_of(part.get("errorText", ""), "The errorText of a part")
            results[call_id_of(part.get("toolCallId"))] = ToolFailure(text)
    return results
