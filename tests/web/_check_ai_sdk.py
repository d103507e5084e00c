"""A checker of UI message streams, from the SDK's chunk schema and its message reader.

It is stricter than the client, which would take a stream without `finish` or `[DONE]`.
"""

from __future__ import annotations

import json
from typing import Any

from tests.web._sse import read

META = {"providerMetadata"}
# type → (required, optional); chunks of version 6
CHUNKS: dict[str, tuple[set[str], set[str]]] = {
    "start": (set(), {"messageId", "messageMetadata"}),
    "start-step": (set(), set()),
    "finish-step": (set(), set()),
    "finish": (set(), {"finishReason", "messageMetadata"}),
    "abort": (set(), {"reason"}),
    "error": ({"errorText"}, set()),
    "message-metadata": ({"messageMetadata"}, set()),
    "text-start": ({"id"}, META),
    "text-delta": ({"id", "delta"}, META),
    "text-end": ({"id"}, META),
    "reasoning-start": ({"id"}, META),
    "reasoning-delta": ({"id", "delta"}, META),
    "reasoning-end": ({"id"}, META),
    "source-url": ({"sourceId", "url"}, {"title"} | META),
    "source-document": ({"sourceId", "mediaType", "title"}, {"filename"} | META),
    "file": ({"url", "mediaType"}, META),
    "tool-input-start": ({"toolCallId", "toolName"}, {"dynamic", "title"}),
    "tool-input-delta": ({"toolCallId", "inputTextDelta"}, set()),
    "tool-input-available": ({"toolCallId", "toolName", "input"}, {"dynamic", "title"}),
    "tool-input-error": ({"toolCallId", "toolName", "input", "errorText"}, {"dynamic", "title"}),
    "tool-output-available": ({"toolCallId", "output"}, {"preliminary"}),
    "tool-output-error": ({"toolCallId", "errorText"}, set()),
    "tool-output-denied": ({"toolCallId"}, set()),
    "tool-approval-request": ({"approvalId", "toolCallId"}, set()),
}
ANY = {"input", "output", "data"}  # JSON values of users: a null is one
NO_STRINGS = {"messageMetadata", "providerMetadata", "dynamic", "preliminary", "transient"}
SEVEN = {"reset-step"}
REASONS = {"stop", "length", "content-filter", "tool-calls", "error", "other"}


class Broken(AssertionError):
    """The stream breaks the protocol."""


def need(holds: object, why: str, chunk: object = None) -> None:
    if not holds:
        raise Broken(f"{why}: {chunk}")


def chunks_of(stream: bytes) -> list[dict[str, Any]]:
    """The chunks of a stream that is framed right and ends with [DONE]."""
    need(b"\r" not in stream, "a carriage return")
    need(stream.isascii(), "not ASCII")
    need(stream.endswith(b"\n\n"), "the last frame is not ended")
    events, _ = read(stream)
    need(events and events[-1].data == "[DONE]", "no [DONE] at the end")
    need(all(event.type == "message" for event in events), "an event type")
    return [json.loads(event.data) for event in events[:-1]]


def check(stream: bytes, *, target: int = 6, known: set[str] | None = None) -> list[dict[str, Any]]:
    """Check a whole stream; `known`: calls of the message that it goes on with."""
    chunks = chunks_of(stream)
    for chunk in chunks:
        _shape(chunk, target)
    _order(chunks, known or set())
    return chunks


def _shape(chunk: dict[str, Any], target: int) -> None:
    kind = chunk.get("type")
    need(isinstance(kind, str), "no type", chunk)
    assert isinstance(kind, str)
    if kind.startswith("data-"):
        required, optional = {"data"}, {"id", "transient"}
    elif kind in SEVEN:
        need(target >= 7, "a chunk that version 6 rejects", chunk)
        required, optional = set[str](), set[str]()
    else:
        need(kind in CHUNKS, "an unknown chunk", chunk)
        required, optional = CHUNKS[kind]
    keys = chunk.keys() - {"type"}
    need(required <= keys, "a field is missing", chunk)
    need(keys <= required | optional, "an unknown field", chunk)
    for key in keys - ANY:
        value = chunk[key]
        if key == "messageMetadata" and kind == "start" and value == {"stopReason": None}:
            continue  # takes back what the turn before has said
        _no_null(value, chunk)
        if key not in (
            "messageMetadata",
            "dynamic",
            "preliminary",
            "transient",
            "providerMetadata",
        ):
            need(isinstance(chunk[key], str), "no string", chunk)
    need(chunk.get("finishReason", "stop") in REASONS, "an unknown reason", chunk)


def _no_null(value: Any, chunk: object) -> None:
    need(value is not None, "a null", chunk)
    for each in value.values() if isinstance(value, dict) else ():
        _no_null(each, chunk)


def _order(chunks: list[dict[str, Any]], known: set[str]) -> None:
    need(chunks and chunks[0]["type"] == "start", "does not begin with start")
    need([c["type"] for c in chunks].count("start") == 1, "start twice")
    open_parts: dict[str, str] = {}
    seen_parts: set[str] = set()
    calls: dict[str, str] = dict.fromkeys(known, "available")
    in_step = ended = False
    for chunk in chunks[1:]:
        kind = chunk["type"]
        need(
            not ended or (kind in ("finish-step", "finish") and ended != "finish"),
            "after the end",
            chunk,
        )
        name, _, verb = kind.partition("-")
        if name in ("text", "reasoning"):
            id = f"{name}:{chunk['id']}"
            if verb == "start":
                need(in_step, "a part outside of a step", chunk)
                need(id not in seen_parts, "an id twice", chunk)
                # texts may stay open until their message is complete, reasoning may not
                need("reasoning" not in open_parts.values(), "two parts are open", chunk)
                seen_parts.add(id)
                open_parts[id] = name
            else:
                need(id in open_parts, "a part that is not open", chunk)
                if verb == "end":
                    del open_parts[id]
        elif kind in ("source-url", "source-document", "file"):
            need(in_step, "a source or a file outside of a step", chunk)
            need("reasoning" not in open_parts.values(), "reasoning is open", chunk)
            address = chunk.get("url", "https://")
            need(address.startswith(("https://", "http://", "data:")), "an address", chunk)
        elif kind.startswith("tool-"):
            _tool(kind, chunk, calls)
        elif kind == "start-step":
            need(not in_step, "a step in a step", chunk)
            in_step = True
        elif kind in ("finish-step", "reset-step"):
            need(in_step and not open_parts, "a step that is not open, or with an open part", chunk)
            in_step = kind == "reset-step"
            if kind == "reset-step":
                calls = {id: state for id, state in calls.items() if state != "streaming"}
        elif kind in ("finish", "abort", "error"):
            need(not open_parts, "a part is open at the end", chunk)
            need(kind != "finish" or not in_step, "a step is open at the end", chunk)
            ended = kind
    need(ended, "no finish, abort or error")
    need(ended != "error", "no finish after the error")
    need(not in_step and not open_parts, "something is open at the end")


def _tool(kind: str, chunk: dict[str, Any], calls: dict[str, str]) -> None:
    id = chunk["toolCallId"]
    state = calls.get(id)
    match kind:
        case "tool-input-start":
            need(state in (None, "withdrawn"), "a call begins twice", chunk)
            calls[id] = "streaming"
        case "tool-input-delta":
            need(state == "streaming", "a call that is not open", chunk)
        case "tool-input-available":
            need(state in (None, "streaming"), "a call is available twice", chunk)
            calls[id] = "available"
        case "tool-input-error":
            need(state in (None, "streaming"), "an input error after the input", chunk)
            calls[id] = "withdrawn" if chunk["errorText"] == "Withdrawn" else "done"
        case "tool-approval-request":
            need(state == "available", "an approval of a call that is not there", chunk)
            calls[id] = "asked"
        case _:
            need(state in ("available", "asked"), "a result of no call, or a second one", chunk)
            calls[id] = "done"


def message_of(
    chunks: list[dict[str, Any]], before: list[dict[str, Any]] | None = None
) -> list[dict[str, Any]]:
    """The parts of the message that a client shows after these chunks."""
    parts: list[dict[str, Any]] = list(before or [])
    active: dict[str, dict[str, Any]] = {}
    for chunk in chunks:
        kind = chunk["type"]
        if chunk.get("providerMetadata", {}).get("hookline", {}).get("withdrawn"):
            parts[:] = [part for part in parts if part is not active[chunk["id"]]]
        elif kind in ("text-start", "reasoning-start"):
            part = {"type": kind.partition("-")[0], "text": ""}
            active[chunk["id"]] = part
            parts.append(part)
        elif kind in ("text-delta", "reasoning-delta"):
            active[chunk["id"]]["text"] += chunk["delta"]
        elif kind in ("source-url", "source-document", "file"):
            parts.append(chunk)
        elif kind == "start-step":
            parts.append({"type": "step-start"})
        elif kind == "reset-step":
            while parts and parts[-1]["type"] != "step-start":
                parts.pop()
        elif kind.startswith("tool-"):
            _show_tool(parts, kind, chunk)
    return parts


def _show_tool(parts: list[dict[str, Any]], kind: str, chunk: dict[str, Any]) -> None:
    id = chunk["toolCallId"]
    part = next((p for p in reversed(parts) if p.get("toolCallId") == id), None)
    if part is None:
        part = {"type": f"tool-{chunk['toolName']}", "toolCallId": id}
        parts.append(part)
    part["state"] = kind.removeprefix("tool-")
    for key in ("input", "output", "errorText"):
        if key in chunk:
            part[key] = chunk[key]
