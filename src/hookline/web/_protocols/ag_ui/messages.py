"""Convert messages and requests between AG-UI and hookline."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable
from typing import Any, Final

import msgspec

from hookline import (
    AssistantMessage,
    File,
    Image,
    Message,
    Text,
    ToolCall,
    ToolFailure,
    ToolMessage,
    ToolResult,
    UserMessage,
)
from hookline.web._http.request_reply import Refused
from hookline.web._http.sse import dumps, json_text
from hookline.web._protocols.answer_changes import decision_on
from hookline.web._protocols.client_messages import media, narrow
from hookline.web._protocols.incoming import (
    Answer,
    Incoming,
    Outcome,
    SystemPolicy,
    bounded,
    call_id_of,
    decision_of,
    failed_message,
    id_of,
    no_system,
    not_empty,
    object_of,
    objects,
    only,
    optional_id,
    result_message,
    text_of,
)

ANSWER_SCHEMA: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {
        "approved": {"type": "boolean"},
        "editedArgs": {"type": "object"},
        "reason": {"type": "string"},
    },
    "required": ["approved"],
}
FIELDS: Final = (
    *("id", "role", "content", "name", "toolCalls", "toolCallId", "error", "encryptedValue"),
)
ENTRY: Final = ("interruptId", "status", "payload", "metadata")

# ── ours → theirs ───────────────────────────────────────────────────────────────────────────


def to_ag_ui_messages(messages: Iterable[Message]) -> list[dict[str, Any]]:
    """Convert a history to AG-UI messages; reasoning is a separate message before the answer."""
    out: list[dict[str, Any]] = []
    for message in messages:
        if isinstance(message, UserMessage):
            out.append(user_as_ag_ui(message))
            continue
        if isinstance(message, AssistantMessage) and message.reasoning:
            id = f"{message.id}.reasoning0"
            out.append({"id": id, "role": "reasoning", "content": message.reasoning})
        out.append(as_ag_ui(message))
    return out


def as_ag_ui(message: AssistantMessage | ToolMessage) -> dict[str, Any]:
    """Convert one message to AG-UI."""
    if isinstance(message, ToolMessage):
        decision = decision_on(message)
        return {
            "id": message.id,
            "role": "tool",
            "content": message.text,
            "toolCallId": message.call_id,
            **({"metadata": {"hookline": decision}} if decision else {}),
        }
    out: dict[str, Any] = {"id": message.id, "role": "assistant", "content": message.text}
    calls = [
        {
            "id": call.id,
            "type": "function",
            "function": {"name": call.name, "arguments": json_text(call.arguments)},
        }
        for call in message.tool_calls
    ]
    if calls:
        out["toolCalls"] = calls
    return out


def user_as_ag_ui(message: UserMessage) -> dict[str, Any]:
    """Convert a user's message to AG-UI."""
    return {"id": message.id, "role": "user", "content": _content(message)}


def _content(message: UserMessage) -> str | list[dict[str, Any]]:
    if all(isinstance(part, Text) for part in message.parts):
        return message.text
    return [_part(part) for part in message.parts]


def _part(part: Text | Image | File) -> dict[str, Any]:
    if isinstance(part, Text):
        return {"type": "text", "text": part.text}
    source: dict[str, Any] = {"type": "url", "value": part.url, "mimeType": part.media_type}
    if part.data is not None:
        source.update(type="data", value=b64encode(part.data).decode())
    return {"type": "image" if isinstance(part, Image) else "document", "source": source}


# ── theirs → ours ───────────────────────────────────────────────────────────────────────────


def from_ag_ui_messages(value: Any, *, system: SystemPolicy = "refuse") -> list[Message]:
    """Read the history that a client sends. Do not trust the history: the client can invent
    messages.

    A call without a result gets a result with the error "not finished". Raises Refused for invalid
    data and, by default, for a system or developer prompt.
    """
    out: list[Message] = []
    open_calls: dict[str, ToolCall] = {}
    for item in objects(value, "messages"):
        role = item.get("role")
        if role != "tool":
            _close(out, open_calls)
        if role in ("system", "developer"):
            no_system(system)
        elif role == "user":
            out.append(_user(item))
        elif role == "assistant":
            message = _assistant(item)
            if message.parts:
                out.append(message)
                open_calls = {call.id: call for call in message.tool_calls}
        elif role == "tool":
            call_id = call_id_of(item.get("toolCallId"))
            call = open_calls.pop(call_id, None)
            if call is None:
                raise Refused(400, "A tool message must follow the call that it answers.")
            out.append(_result(item, call))
        elif role not in ("reasoning", "activity"):
            raise Refused(400, "The role of a message must be one that the protocol defines.")
    _close(out, open_calls)
    return [narrow(message) for message in out]


def _close(out: list[Message], open_calls: dict[str, ToolCall]) -> None:
    for id, call in open_calls.items():
        out.append(failed_message(f"result.{id}", id, call.name, "not finished", "aborted"))
    open_calls.clear()


def _user(item: dict[str, Any]) -> UserMessage:
    content = item.get("content")
    id = optional_id(item.get("id"), "A message id") or ""
    if isinstance(content, str):
        return UserMessage(id=id, parts=(Text(content),))
    parts: list[Text | Image | File] = []
    for part in objects(content, "The content of a message"):
        kind = part.get("type")
        if kind == "text":
            parts.append(Text(text_of(part.get("text"), "The text of a part")))
        elif kind == "binary":
            name = part.get("filename")
            parts.append(media(part.get("mimeType"), part.get("url"), name, part.get("data")))
        else:
            source = object_of(part.get("source"), "The source of a part")
            value = source.get("value")
            if source.get("type") == "data":
                parts.append(media(source.get("mimeType"), None, data=value))
            else:
                parts.append(media(source.get("mimeType"), value))
    if not parts:
        raise Refused(400, "A user message must not be empty.")
    return UserMessage(id=id, parts=tuple(parts))


def _assistant(item: dict[str, Any]) -> AssistantMessage:
    parts: list[Any] = []
    content = item.get("content")
    if isinstance(content, str) and content:
        parts.append(Text(content))
    for call in objects(item.get("toolCalls") or [], "toolCalls"):
        function = object_of(call.get("function"), "A call's function")
        text = text_of(function.get("arguments", "{}"), "A call's arguments")
        try:
            arguments = msgspec.json.decode(text or "{}", type=dict[str, Any])
        except (msgspec.DecodeError, RecursionError):
            arguments = {}
        name = text_of(function.get("name"), "The name of a tool")
        id = call_id_of(call.get("id"))
        parts.append(ToolCall(id=id, name=name, arguments=arguments))
    return AssistantMessage(id=id_of(item.get("id"), "A message id"), parts=tuple(parts))


def _result(item: dict[str, Any], call: ToolCall) -> ToolMessage:
    id = id_of(item.get("id"), "A message id")
    outcome: Outcome = "error" if isinstance(item.get("error"), str) else "ok"
    return result_message(id, call.id, call.name, item.get("content"), outcome)


def parse_ag_ui(body: dict[str, Any], *, system: SystemPolicy = "refuse") -> Incoming:
    """Read a RunAgentInput. Raises Refused for anything else."""
    thread_id = id_of(bounded(body).get("threadId"), "threadId")
    run_id = id_of(body.get("runId"), "runId")
    items = objects(body.get("messages"), "messages")
    messages = from_ag_ui_messages(items, system=system)
    results = _results(items)
    resume = objects(body.get("resume") or [], "resume")
    answers = dict([_answer(entry) for entry in resume])
    if len(answers) < len(resume):
        raise Refused(400, "Send one answer to each approval.")
    message: UserMessage | None = None
    if not answers and not results:
        last = messages.pop() if messages else None
        if not isinstance(last, UserMessage):
            raise Refused(400, "The last message must be a user message.")
        message = not_empty(last)
    version = body.get("protocolVersion")
    return Incoming(
        conversation_id=thread_id,
        run_id=run_id,
        modern=isinstance(version, str) and version.split(".")[0].isdigit() and version >= "1",
        client_messages=tuple(
            [_snapshot_form(item) for item in items if item.get("role") != "activity"]
        ),
        tools=tuple(objects(body.get("tools") or [], "tools")),
        message=message,
        history=tuple(messages),
        answers=answers,
        results=results,
        state=_state(body.get("state")),
        context=tuple(_context(entry) for entry in objects(body.get("context") or [], "context")),
    )


def _snapshot_form(item: dict[str, Any]) -> msgspec.Raw:
    """Encode a message for a MESSAGES_SNAPSHOT, without unknown fields, which no client reads."""
    return msgspec.Raw(dumps({name: item[name] for name in FIELDS if name in item}))


def _state(value: Any) -> dict[str, Any]:
    """Return the state; a state that is not an object becomes {}: only objects have keys."""
    return value if isinstance(value, dict) else {}  # pyright: ignore[reportUnknownVariableType]


def _context(entry: dict[str, Any]) -> tuple[str, str]:
    value = entry.get("value")
    description = text_of(entry.get("description", ""), "The description of a context")
    return description, value if isinstance(value, str) else json_text(value)


def _results(items: list[dict[str, Any]]) -> dict[str, ToolResult | ToolFailure]:
    """Return the results after the last answer, including those of calls that the client ran."""
    results: dict[str, ToolResult | ToolFailure] = {}
    for item in reversed(items):
        if item.get("role") != "tool":
            break
        id = call_id_of(item.get("toolCallId"))
        error = item.get("error")
        failed = isinstance(error, str)
        results[id] = ToolFailure(str(error)) if failed else ToolResult(item.get("content"))
    return results


def _answer(entry: dict[str, Any]) -> tuple[str, Answer]:
    only(entry, "An entry of resume", ENTRY)
    id = text_of(entry.get("interruptId"), "interruptId")
    if entry.get("status") == "cancelled":
        return id, Answer(decision=decision_of(False, "cancelled by the user"))
    if entry.get("status") != "resolved":
        raise Refused(400, "The status of an answer must be 'resolved' or 'cancelled'.")
    what = "The payload of an answer"
    payload = only(object_of(entry.get("payload"), what), what, ANSWER_SCHEMA["properties"])
    decision = decision_of(
        payload.get("approved"), payload.get("reason"), payload.get("editedArgs")
    )
    return id, Answer(decision=decision)
