"""A checker of AG-UI streams, from the 1.0 schemas and the client's verifier.

It is stricter than the client, which would take a run without RUN_FINISHED, or with another's ids.
"""

from __future__ import annotations

import json
from typing import Any

from tests.web._sse import read

S, M, L = str, dict, list
EVENTS: dict[str, tuple[dict[str, type], dict[str, type]]] = {
    "RUN_STARTED": ({"threadId": S, "runId": S}, {"protocolVersion": S}),
    "RUN_FINISHED": ({"threadId": S, "runId": S}, {"outcome": M, "usage": L}),
    "RUN_ERROR": ({"message": S}, {"code": S, "metadata": M}),
    "STEP_STARTED": ({"stepName": S}, {}),
    "STEP_FINISHED": ({"stepName": S}, {}),
    "TEXT_MESSAGE_START": ({"messageId": S, "role": S}, {}),
    "TEXT_MESSAGE_CONTENT": ({"messageId": S, "delta": S}, {}),
    "TEXT_MESSAGE_END": ({"messageId": S}, {}),
    "REASONING_START": ({"messageId": S}, {}),
    "REASONING_MESSAGE_START": ({"messageId": S, "role": S}, {}),
    "REASONING_MESSAGE_CONTENT": ({"messageId": S, "delta": S}, {}),
    "REASONING_MESSAGE_END": ({"messageId": S}, {}),
    "REASONING_END": ({"messageId": S}, {}),
    "TOOL_CALL_START": ({"toolCallId": S, "toolCallName": S}, {"parentMessageId": S}),
    "TOOL_CALL_ARGS": ({"toolCallId": S, "delta": S}, {}),
    "TOOL_CALL_END": ({"toolCallId": S}, {}),
    "TOOL_CALL_RESULT": (
        {"messageId": S, "toolCallId": S, "content": S},
        {"role": S, "metadata": M},
    ),
    "MESSAGES_SNAPSHOT": ({"messages": L}, {}),
    "STATE_SNAPSHOT": ({"snapshot": M}, {}),
    "STATE_DELTA": ({"delta": L}, {}),
    "CUSTOM": ({"name": S, "value": object}, {}),
    "SUBAGENT_STARTED": (
        {"subagentRunId": S, "name": S},
        {"parentToolCallId": S, "parentSubagentRunId": S},
    ),
    "SUBAGENT_FINISHED": ({"subagentRunId": S}, {"outcome": M}),
    "SUBAGENT_ERROR": ({"subagentRunId": S, "message": S}, {"code": S}),
}
SPANS = {
    "TEXT_MESSAGE": ("START", "CONTENT", "END", "messageId"),
    "REASONING_MESSAGE": ("START", "CONTENT", "END", "messageId"),
    "REASONING": ("START", "", "END", "messageId"),
    "TOOL_CALL": ("START", "ARGS", "END", "toolCallId"),
    "STEP": ("STARTED", "", "FINISHED", "stepName"),
}


class Broken(AssertionError):
    """The stream breaks the protocol."""


def need(holds: object, why: str, event: object = None) -> None:
    if not holds:
        raise Broken(f"{why}: {event}")


def check(stream: bytes, *, thread_id: str, run_id: str) -> list[dict[str, Any]]:
    """Check the stream of one run."""
    need(b"\r" not in stream, "a carriage return: the client splits at two LF only")
    need(stream.isascii(), "not ASCII")
    need(stream.endswith(b"\n\n"), "the last frame is not ended")
    events: list[dict[str, Any]] = [json.loads(event.data) for event in read(stream)[0]]
    for event in events:
        _shape(event)
    _order(events, {"threadId": thread_id, "runId": run_id})
    return events


def _shape(event: dict[str, Any]) -> None:
    need(event.get("type") in EVENTS, "an unknown event", event)
    required, optional = EVENTS[event["type"]]
    keys = event.keys() - {"type"}
    need(required.keys() <= keys, "a field is missing", event)
    need(keys <= required.keys() | optional.keys(), "an unknown field", event)
    for key in keys:
        wanted = required.get(key) or optional[key]
        need(event[key] is not None, "a null", event)
        need(isinstance(event[key], wanted), f"{key} has a wrong type", event)


def _order(events: list[dict[str, Any]], ids: dict[str, str]) -> None:
    need(events and events[0]["type"] == "RUN_STARTED", "does not begin with RUN_STARTED")
    last = events[-1]
    need(last["type"] in ("RUN_FINISHED", "RUN_ERROR"), "no end")
    for event in (events[0], *([last] if last["type"] == "RUN_FINISHED" else [])):
        need({key: event[key] for key in ids} == ids, "other ids", event)
    open_: dict[str, set[str]] = {name: set() for name in SPANS}
    announced: set[str] = set()
    agents: dict[str, bool] = {}  # whether it still runs
    for event in events[1:-1]:
        kind = event["type"]
        if kind.startswith("SUBAGENT_"):
            id = event["subagentRunId"]
            need(agents.get(id) is (None if kind == "SUBAGENT_STARTED" else True), "twice", event)
            agents[id] = kind == "SUBAGENT_STARTED"
            need(event.get("parentSubagentRunId", id) in agents, "unknown parent", event)
        need(kind not in ("RUN_STARTED", "RUN_FINISHED", "RUN_ERROR"), "in the middle", event)
        for name, (start, middle, end, key) in SPANS.items():
            if kind == f"{name}_{start}":
                need(event[key] not in open_[name], "begins twice", event)
                open_[name].add(event[key])
            elif middle and kind == f"{name}_{middle}":
                need(event[key] in open_[name], "is not open", event)
            elif kind == f"{name}_{end}":
                need(event[key] in open_[name], "is not open", event)
                open_[name].discard(event[key])
        if kind == "TEXT_MESSAGE_START":
            announced.add(event["messageId"])
        elif kind == "TOOL_CALL_START":
            need(event["parentMessageId"] in announced, "its parent was not announced", event)
    need(not any(open_.values()), "something is open at the end", open_)
    need(not any(agents.values()), "a sub-agent runs at the end", agents)


def messages_of(
    events: list[dict[str, Any]], before: list[dict[str, Any]] | None = None
) -> list[dict[str, Any]]:
    """The messages that a client has after these events."""
    messages: list[dict[str, Any]] = [dict(each) for each in before or []]

    def find(id: str) -> dict[str, Any] | None:
        return next((each for each in messages if each["id"] == id), None)

    for event in events:
        match event["type"]:
            case "TEXT_MESSAGE_START":
                if find(event["messageId"]) is None:
                    new = {"id": event["messageId"], "role": event["role"], "content": ""}
                    messages.append(new)
            case "TEXT_MESSAGE_CONTENT":
                target = find(event["messageId"])
                assert target is not None
                target["content"] += event["delta"]
            case "TOOL_CALL_START":
                target = find(event["parentMessageId"])
                assert target is not None
                call = {"id": event["toolCallId"], "name": event["toolCallName"], "arguments": ""}
                target.setdefault("toolCalls", []).append(call)
            case "TOOL_CALL_ARGS":
                for each in messages:
                    for call in each.get("toolCalls", ()):
                        if call["id"] == event["toolCallId"]:
                            call["arguments"] += event["delta"]
            case "TOOL_CALL_RESULT":
                result = {key: event[key] for key in ("toolCallId", "content")}
                messages.append({"id": event["messageId"], "role": "tool", **result})
            case "MESSAGES_SNAPSHOT":
                messages = [dict(each) for each in event["messages"] if each["role"] != "reasoning"]
            case _:
                pass
    return messages
