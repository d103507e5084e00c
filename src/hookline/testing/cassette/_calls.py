"""What a cassette keeps of a call: its place, its arguments, and the values that its tool sets."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import msgspec

from hookline import Run
from hookline.points import AroundToolCall
from hookline.testing.cassette._difference import call_text
from hookline.testing.cassette._tracks import CallEntry


def place_of(ctx: AroundToolCall[Any]) -> str:
    """The call by its step and its position in the answer: `0.1`."""
    for message in reversed(ctx.run.history):
        if message.role == "assistant":
            ids = [call.id for call in message.tool_calls]
            if ctx.call.id in ids:
                return f"{ctx.run.iteration}.{ids.index(ctx.call.id)}"
    return f"{ctx.run.iteration}.{ctx.call.id}"


def is_same(recorded: CallEntry, call: CallEntry) -> bool:
    """Whether the calls have the same tool and arguments."""
    return (recorded.tool, recorded.arguments) == (call.tool, call.arguments)


def call_difference(recorded: CallEntry | None, call: CallEntry) -> str:
    """What differs in two calls."""
    now = call_text(call.tool, call.arguments)
    if recorded is None:
        return f"{now} runs, but did not when it was recorded"
    old = call_text(recorded.tool, recorded.arguments)
    return f"the call differs (-recorded +now)\n    -{old}\n    +{now}"


def values_of(run: Run[Any]) -> dict[str, dict[str, bytes]]:
    """The values of a run that a tool may set."""
    return {"state": _encoded(run.state), "meta": _encoded(run.meta)}


def _encoded(values: dict[str, Any]) -> dict[str, bytes]:
    """The values that are JSON data; others cannot be recorded."""
    encoded: dict[str, bytes] = {}
    for name, value in list(values.items()):
        with suppress(TypeError, ValueError, msgspec.MsgspecError):
            encoded[name] = msgspec.json.encode(value)
    return encoded


def changes(
    before: dict[str, dict[str, bytes]], after: dict[str, dict[str, bytes]]
) -> dict[str, dict[str, Any]]:
    """The values that differ."""
    changes = {
        kind: {
            name: msgspec.json.decode(value)
            for name, value in values.items()
            if before[kind].get(name) != value
        }
        for kind, values in after.items()
    }
    return {kind: values for kind, values in changes.items() if values}
