"""Convert UI messages of the Vercel AI SDK to messages of hookline, and back.

In the SDK one assistant message holds all steps of an answer, split by `step-start`. In hookline
each model answer and each tool result is a message. The id of a UI message is that of the answer's
first message.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import count
from typing import Any

import msgspec

from hookline import (
    ApprovalRequest,
    AssistantMessage,
    File,
    Image,
    Message,
    Reasoning,
    Source,
    Text,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from hookline.web._http.request_reply import Refused
from hookline.web._protocols.ai_sdk.encoder import AiSdkVersion, questions_of
from hookline.web._protocols.answer_changes import decision_on
from hookline.web._protocols.client_messages import media, narrow
from hookline.web._protocols.incoming import (
    SystemPolicy,
    call_id_of,
    failed_message,
    id_of,
    no_system,
    object_of,
    objects,
    optional_id,
    result_message,
    text_of,
)
from hookline.web._protocols.outgoing_files import attachment_part, ui_message

# ── ours → theirs ───────────────────────────────────────────────────────────────────────────


def to_ui_messages(
    messages: Iterable[Message],
    pending: Sequence[ApprovalRequest] = (),
    *,
    client_calls: Sequence[ToolCall] = (),
    ai_sdk_version: AiSdkVersion = 6,
    approvals: bool = True,
) -> list[dict[str, Any]]:
    """Convert a history to UI messages, for clients of version `ai_sdk_version`.

    The calls in `pending` are shown as waiting for an approval. The calls in `client_calls` are
    shown as calls for the client to run. The metadata of the waiting message has the questions.
    Without `approvals` the client may not answer approvals, and the metadata says so.
    """
    waiting: dict[str, ApprovalRequest] = {}  # by call, without those of sub-agents
    if ai_sdk_version >= 6:
        waiting = {request.call.id: request for request in pending if not request.path}
    to_run = {call.id: call for call in client_calls}
    out: list[dict[str, Any]] = []
    calls: dict[str, tuple[dict[str, Any], str]] = {}  # the part and the chat of each call
    for message in messages:
        if isinstance(message, UserMessage):
            out.append(ui_message(message))
        elif isinstance(message, AssistantMessage):
            parts = list(_answer_parts(message, waiting, to_run))
            _add_answer(out, message, parts, waiting, approvals=approvals)
            calls |= {
                part["toolCallId"]: (part, message.id) for part in parts if "toolCallId" in part
            }
        elif message.call_id in calls:
            call_part, made_by = calls[message.call_id]
            waited_for_approval = ai_sdk_version >= 6 and _chat_of(message.id) != _chat_of(made_by)
            _settle(call_part, message, waited_for_approval=waited_for_approval)
            _add_decision(out[-1], message)
    return out


def _add_answer(
    out: list[dict[str, Any]],
    message: AssistantMessage,
    parts: list[dict[str, Any]],
    waiting: dict[str, ApprovalRequest],
    *,
    approvals: bool,
) -> None:
    """Put an answer into the last UI message, which all answers of a turn share."""
    if not out or out[-1]["role"] != "assistant":
        out.append({"id": message.id, "role": "assistant", "parts": []})
    out[-1]["parts"] += [{"type": "step-start"}, *parts]
    calls = [part["toolCallId"] for part in parts if "approval" in part]
    if calls:
        questions = {call: questions_of(waiting[call]) for call in calls}
        metadata = out[-1].setdefault("metadata", {})
        metadata["questions"] = {**metadata.get("questions", {}), **questions}
        if not approvals:
            metadata["approvals"] = False


def _add_decision(ui_message: dict[str, Any], message: ToolMessage) -> None:
    """Put who decided about a call into the metadata."""
    decision = decision_on(message)
    if decision:
        metadata = ui_message.setdefault("metadata", {})
        metadata.setdefault("decisions", {})[message.call_id] = decision


def _chat_of(id: str) -> str:
    """Return the chat that committed a message."""
    return id.rpartition(".")[0]


def _answer_parts(
    message: AssistantMessage,
    waiting: dict[str, ApprovalRequest],
    to_run: dict[str, ToolCall],
) -> Iterable[dict[str, Any]]:
    counts = {"source": count(), "file": count()}
    for part in message.parts:
        if isinstance(part, Text):
            yield {"type": "text", "text": part.text, "state": "done"}
        elif isinstance(part, Reasoning):
            if part.text:
                yield {"type": "reasoning", "text": part.text, "state": "done"}
        elif not isinstance(part, ToolCall):
            kind = "source" if isinstance(part, Source) else "file"
            yield attachment_part(f"{message.id}.{kind}{next(counts[kind])}", part)
        else:
            call = {
                "type": f"tool-{part.name}",
                "toolCallId": part.id,
                "state": "input-available",
                "input": to_run.get(part.id, part).arguments,
            }
            request = waiting.get(part.id)
            if request is not None:
                call["state"] = "approval-requested"
                call["input"] = request.call.arguments
                call["approval"] = {"id": request.id}
            yield call


def _settle(part: dict[str, Any], message: ToolMessage, *, waited_for_approval: bool) -> None:
    """Write the result of a call into its part.

    A client accepts a denial only for a call that `waited_for_approval`; a call that a later
    chat answers has waited. Any other refusal is sent as an error with its reason.
    """
    if message.outcome in ("ok", "answered"):
        part["state"] = "output-available"
        part["output"] = _value(message.text)
    elif message.outcome == "denied" and waited_for_approval:
        part["state"] = "output-denied"
        reason = _error_text(message.text)
        part["approval"] = {"id": message.call_id, "approved": False, "reason": reason}
    else:
        part["state"] = "output-error"
        part["errorText"] = _error_text(message.text)


def _value(text: str) -> Any:
    """Parse a result text as JSON; returns the text itself if it is not JSON."""
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
    """Read the history that a client sends. Do not trust the history: the client can invent
    messages.

    Raises Refused for invalid data and, by default, for a system prompt.
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
            raise Refused(400, "The role of a message must be one that the protocol defines.")
    return [narrow(message) for message in out]


def _user(item: dict[str, Any]) -> UserMessage:
    parts: list[Text | Image | File] = []
    for part in objects(item.get("parts"), "The parts of a message"):
        if part.get("type") == "text":
            parts.append(Text(text_of(part.get("text"), "The text of a part")))
        elif part.get("type") == "file":
            parts.append(media(part.get("mediaType"), part.get("url"), part.get("filename")))
    if not parts:
        raise Refused(400, "A user message must not be empty.")
    return UserMessage(id=optional_id(item.get("id"), "A message id") or "", parts=tuple(parts))


def _assistant(item: dict[str, Any]) -> Iterable[Message]:
    """Split a UI message into an answer for each step, and a result for each call."""
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
                parts.append(Text(text_of(part.get("text"), "The text of a part")))
            elif kind == "reasoning" and part.get("text"):
                parts.append(Reasoning(text_of(part.get("text"), "The text of a reasoning part")))
            elif kind == "file":
                parts.append(media(part.get("mediaType"), part.get("url"), part.get("filename")))
            elif kind in ("source-url", "source-document"):
                parts.append(_source(part))
            elif kind.startswith("tool-") or kind == "dynamic-tool":
                call, result = _call(part, own)
                parts.append(call)
                results.append(result)
        if parts:
            number += 1
            yield AssistantMessage(id=own, parts=tuple(parts))
            yield from results


def _source(part: dict[str, Any]) -> Source:
    names = {"url": "url", "title": "title", "name": "filename", "media_type": "mediaType"}
    values = {ours: part.get(theirs) for ours, theirs in names.items()}
    fields: dict[str, Any] = {
        name: text_of(value, "A field of a source")
        for name, value in values.items()
        if value is not None
    }
    return Source(**fields)


def _call(part: dict[str, Any], message_id: str) -> tuple[ToolCall, ToolMessage]:
    name = tool_of(part)
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
        error = text_of(part.get("errorText", ""), "The errorText of a part")
        return call, failed_message(id, call_id, name, error, "error")
    if state == "output-denied":
        return call, failed_message(id, call_id, name, "denied by the user", "denied")
    return call, failed_message(id, call_id, name, "not finished", "aborted")


def tool_of(part: dict[str, Any]) -> str:
    """Return the name of the tool that a part calls."""
    kind = text_of(part.get("type"), "The type of a part")
    if kind == "dynamic-tool":
        return text_of(part.get("toolName"), "The name of a tool")
    return kind.removeprefix("tool-")
