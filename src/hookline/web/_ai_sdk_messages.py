"""UI messages of the Vercel AI SDK ⇄ messages of ours, and the requests of its chat transport.

There one assistant message holds all the steps of an answer, split by `step-start`; here each
model answer and each tool result is a message. An answer is named by its first message.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from hookline import (
    ApprovalRequest,
    AssistantMessage,
    File,
    Image,
    Message,
    Reasoning,
    Text,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from hookline.web._incoming import (
    Answer,
    Incoming,
    Refused,
    SystemPolicy,
    call_id_of,
    decision_of,
    failed_message,
    id_of,
    media,
    no_system,
    object_of,
    objects,
    optional_id,
    result_message,
    text_of,
)

_ANSWERED = ("output-available", "output-error", "output-denied")

# ── ours → theirs ───────────────────────────────────────────────────────────────────────────


def to_ui_messages(
    messages: Iterable[Message], pending: Sequence[ApprovalRequest] = ()
) -> list[dict[str, Any]]:
    """A history as UI messages; the calls in `pending` are shown as waiting for an approval."""
    waiting = {request.call.id: request for request in pending}
    out: list[dict[str, Any]] = []
    calls: dict[str, dict[str, Any]] = {}
    for message in messages:
        if isinstance(message, UserMessage):
            parts = [_user_part(part) for part in message.parts]
            out.append({"id": message.id, "role": "user", "parts": parts})
        elif isinstance(message, AssistantMessage):
            if not out or out[-1]["role"] != "assistant":
                out.append({"id": message.id, "role": "assistant", "parts": []})
            out[-1]["parts"].append({"type": "step-start"})
            out[-1]["parts"].extend(_answer_parts(message, calls, waiting))
        elif message.call_id in calls:
            _settle(calls[message.call_id], message)
    return out


def _user_part(part: Text | Image | File) -> dict[str, Any]:
    if isinstance(part, Text):
        return {"type": "text", "text": part.text}
    url = part.url
    if part.data is not None:
        url = f"data:{part.media_type};base64,{b64encode(part.data).decode()}"
    out = {"type": "file", "mediaType": part.media_type, "url": url or ""}
    if isinstance(part, File) and part.name:
        out["filename"] = part.name
    return out


def _answer_parts(
    message: AssistantMessage,
    calls: dict[str, dict[str, Any]],
    waiting: dict[str, ApprovalRequest],
) -> Iterable[dict[str, Any]]:
    for part in message.parts:
        if isinstance(part, Text):
            yield {"type": "text", "text": part.text, "state": "done"}
        elif isinstance(part, Reasoning):
            if part.text:
                yield {"type": "reasoning", "text": part.text, "state": "done"}
        else:
            shown = {
                "type": f"tool-{part.name}",
                "toolCallId": part.id,
                "state": "input-available",
                "input": part.arguments,
            }
            request = waiting.get(part.id)
            if request is not None:
                shown["state"] = "approval-requested"
                shown["input"] = request.call.arguments
                shown["approval"] = {"id": request.id}
            calls[part.id] = shown
            yield shown


def _settle(part: dict[str, Any], message: ToolMessage) -> None:
    if message.outcome in ("ok", "answered"):
        part["state"] = "output-available"
        part["output"] = _value(message.text)
    elif message.outcome == "denied":
        part["state"] = "output-denied"
        part["approval"] = {"id": message.call_id, "approved": False}
    else:
        part["state"] = "output-error"
        part["errorText"] = _error_text(message.text)


def _value(text: str) -> Any:
    """What the model read as a text: JSON where it is some."""
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text


def _error_text(text: str) -> str:
    value = _value(text)
    try:
        return str(value["error"]["message"])
    except (TypeError, KeyError, IndexError):
        return text


# ── theirs → ours ───────────────────────────────────────────────────────────────────────────


def from_ui_messages(value: Any, *, system: SystemPolicy = "refuse") -> list[Message]:
    """The history that a client sends: what it says was said, not what was.

    Raises Refused for what is no UI message and, by default, for a system prompt.
    """
    out: list[Message] = []
    for item in objects(value, "messages"):
        role = item.get("role")
        if role == "system":
            no_system(system)
        elif role == "user":
            out.append(_user(item))
        elif role == "assistant":
            out.extend(_assistant(item))
        else:
            raise Refused(400, "A message must have a role of the protocol.")
    return out


def _user(item: dict[str, Any]) -> UserMessage:
    parts: list[Text | Image | File] = []
    for part in objects(item.get("parts"), "The parts of a message"):
        if part.get("type") == "text":
            parts.append(Text(text_of(part.get("text"), "A text")))
        elif part.get("type") == "file":
            parts.append(media(part.get("mediaType"), part.get("url"), part.get("filename")))
    if not parts:
        raise Refused(400, "A message of the user must not be empty.")
    return UserMessage(id=optional_id(item.get("id"), "A message id") or "", parts=tuple(parts))


def _assistant(item: dict[str, Any]) -> Iterable[Message]:
    """One UI message is several of ours: an answer for each step, and a result for each call."""
    id = id_of(item.get("id"), "A message id")
    steps: list[list[dict[str, Any]]] = [[]]
    for part in objects(item.get("parts"), "The parts of a message"):
        if part.get("type") == "step-start":
            steps.append([])
        else:
            steps[-1].append(part)
    number = 0
    for step in steps:
        own = id if number == 0 else f"{id}.{number}"
        parts: list[Any] = []
        results: list[ToolMessage] = []
        for part in step:
            kind = text_of(part.get("type"), "The type of a part")
            if kind == "text" and part.get("text"):
                parts.append(Text(text_of(part.get("text"), "A text")))
            elif kind == "reasoning" and part.get("text"):
                parts.append(Reasoning(text_of(part.get("text"), "A reasoning")))
            elif kind.startswith("tool-") or kind == "dynamic-tool":
                call, result = _call(kind, part, own)
                parts.append(call)
                results.append(result)
        if parts:
            number += 1
            yield AssistantMessage(id=own, parts=tuple(parts))
            yield from results


def _call(kind: str, part: dict[str, Any], message_id: str) -> tuple[ToolCall, ToolMessage]:
    name = kind.removeprefix("tool-")
    if kind == "dynamic-tool":
        name = text_of(part.get("toolName"), "The name of a tool")
    call_id = call_id_of(part.get("toolCallId"))
    arguments = part.get("input")
    call = ToolCall(
        id=call_id,
        name=name,
        arguments=object_of(arguments, "A call's input") if arguments is not None else {},
    )
    id = f"{message_id}.result.{call_id}"
    state = part.get("state")
    if state == "output-available":
        return call, result_message(id, call_id, name, part.get("output"))
    if state == "output-error":
        error = text_of(part.get("errorText", ""), "An error text")
        return call, failed_message(id, call_id, name, error, "error")
    if state == "output-denied":
        return call, failed_message(id, call_id, name, "denied by the user", "denied")
    return call, failed_message(id, call_id, name, "not finished", "aborted")


def parse_ai_sdk(body: dict[str, Any], *, system: SystemPolicy = "refuse") -> Incoming:
    """A request of the SDK's chat transport: all messages, or only the last as `message`.

    Raises Refused for what is none of that protocol.
    """
    conversation_id = optional_id(body.get("id"), "id")
    regenerate = body.get("trigger") == "regenerate-message"
    items = objects(body.get("messages", []), "messages")
    if not items and isinstance(body.get("message"), dict):
        items = [body["message"]]
    if not items and not regenerate:
        raise Refused(400, "There must be a message.")
    message_id = optional_id(body.get("messageId"), "messageId")
    last = items[-1] if items else {}
    if last.get("role") == "assistant" and not regenerate:
        return Incoming(
            conversation_id=conversation_id,
            history=tuple(from_ui_messages(items[:-1], system=system)),
            answers=_answers(last),
            message_id=id_of(last.get("id"), "A message id"),
        )
    messages = from_ui_messages(items, system=system)
    said = messages[-1] if messages else None
    if not isinstance(said, UserMessage):
        if not regenerate:
            raise Refused(400, "The last message must be the user's.")
        said = None
    return Incoming(
        conversation_id=conversation_id,
        message=said,
        history=tuple(messages[:-1] if said is not None else messages),
        regenerate=regenerate,
        message_id=message_id if regenerate else None,
    )


def _answers(message: dict[str, Any]) -> dict[str, Answer]:
    """The approvals that the user has answered in the last answer."""
    found: dict[str, Answer] = {}
    for part in objects(message.get("parts"), "The parts of a message"):
        if part.get("state") != "approval-responded":
            continue
        approval = object_of(part.get("approval"), "An approval")
        id = text_of(approval.get("id"), "An approval's id")
        found[id] = Answer(
            decision=decision_of(approval.get("approved"), approval.get("reason")),
            call_id=call_id_of(part.get("toolCallId")),
            arguments=part.get("input", msgspec.UNSET),
        )
    if not found:
        raise Refused(400, "The last message must be the user's, or answer an approval.")
    return found
