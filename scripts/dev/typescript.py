"""The types of the native protocol for TypeScript: what clients/typescript/src/events.ts holds.

They come from the JSON schemas of the events, so they say what `plain` writes: a field that may be
None is left out, and every other field is there.
"""

from __future__ import annotations

from typing import Any

import msgspec

from hookline.events import ChatEvent
from hookline.web._runs.backlog import HookFired

HEAD = """\
// The frames of hookline's native protocol.
// Generated from the events of the Python library by scripts/dev/generate.py. Do not edit.
"""
TAIL = """\
/** Any event of a chat. Fields that are null are left out. */
export type ChatEvent =
  | {events};

/** A hook that ran; sent only with a timeline. */
export type HookFrame = HookFired & {{ event: "hook" }};

/** Frames were lost: load the messages again. */
export interface ReloadFrame {{
  event: "reload";
}}

/** One frame of a stream; `at` is its time in milliseconds since the run began. */
export type Frame = (ChatEvent | HookFrame | ReloadFrame) & {{ at?: number }};

/** A message of a conversation. */
export type Message = UserMessage | AssistantMessage | ToolMessage;
"""
EXTRA = {"ToolCallStarted": "  scope?: string | null;\n"}
"""Fields that the encoder adds to an event."""


def events() -> str:
    """The file with all types."""
    (chat_event, _), schemas = msgspec.json.schema_components(
        [ChatEvent, HookFired], ref_template="{name}"
    )
    names = [option["$ref"] for option in chat_event["anyOf"]]
    interfaces = [_interface(name, schema) for name, schema in schemas.items()]
    return "\n".join([HEAD, *interfaces, TAIL.format(events="\n  | ".join(names))])


def _interface(name: str, schema: dict[str, Any]) -> str:
    summary = schema["description"].split("\n\n")[0]
    fields = [_field(key, field) for key, field in schema["properties"].items()]
    return (
        f"/** {' '.join(summary.split())} */\n"
        f"export interface {name} {{\n{''.join(fields)}{EXTRA.get(name, '')}}}\n"
    )


def _field(name: str, schema: dict[str, Any]) -> str:
    # A text delta of the root chat has no path; a field without a default is always there.
    optional = name == "path" or schema.get("default", ...) is None
    return f"  {name}{'?' * optional}: {_type(schema)};\n"


def _type(schema: dict[str, Any]) -> str:
    match schema:
        case {"$ref": name}:
            return str(name)
        case {"enum": values}:
            return " | ".join(msgspec.json.encode(value).decode() for value in values)
        case {"anyOf": options}:
            kinds = [_type(option) for option in options if option.get("type") != "null"]
            return " | ".join(dict.fromkeys(kinds))
        case {"type": "array", "items": items}:
            kind = _type(items)
            return f"({kind})[]" if "|" in kind else f"{kind}[]"
        case {"type": "object"}:
            return "Record<string, unknown>"
        case {"type": "integer" | "number"}:
            return "number"
        case {"type": "string" | "boolean" as kind}:
            return str(kind)
        case _:
            return "unknown"
