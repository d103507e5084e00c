"""What Restate's journal of a chat says: its input, its batches, and when something happened."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from hookline.durable.restate._deaths import death_in
from hookline.runtimes import Batch

_batch: Final = msgspec.json.Decoder(Batch)


def input_of(entry: str | None) -> str:
    """The job of a chat; empty if Restate keeps its journal no longer."""
    if entry is None:
        return ""
    return bytes(msgspec.json.decode(entry)["Command"]["Input"]["payload"]).decode()


def _completion(entry: Any, kind: str) -> Any:
    """The completion of this kind in an entry of the journal, or None."""
    notification = entry.get("Notification")
    return notification and notification.get("Completion", {}).get(kind)


def steps_of(journal: list[tuple[float, Any]]) -> list[tuple[float, bytes]]:
    """The steps that have ended: batches, marks of deaths, and empty ones."""
    completions = [(at, _completion(entry, "Run")) for at, entry in journal]
    return [(at, bytes(step["result"].get("Success", b""))) for at, step in completions if step]


def times_of(journal: list[tuple[float, Any]]) -> dict[str, float]:
    """When the questions were asked and answered, by the keys of the state and of the promises."""
    times: dict[str, float] = {}
    answers: dict[int, str] = {}
    for at, entry in journal:
        command: dict[str, Any] = entry.get("Command") or {}
        if "SetState" in command:
            times[command["SetState"]["key"]] = at
        if "GetPromise" in command:
            answers[command["GetPromise"]["completion_id"]] = command["GetPromise"]["key"]
        completion = _completion(entry, "GetPromise")
        if completion and completion["completion_id"] in answers:
            times[answers[completion["completion_id"]]] = at
    return times


def lives_of(
    steps: list[tuple[float, bytes]],
) -> Iterator[tuple[str, str | None, float, float | None, str | None]]:
    """The lives of a chat: Restate does not tell which worker ran them, so they have numbers."""
    name, begin = "", 0.0
    for at, data in steps:
        if death_in(data) is not None:
            yield name, None, begin or at, at, "died"
            name, begin = "", 0.0
            continue
        try:
            lines = _batch.decode(data).lines if data else []
        except msgspec.DecodeError:  # of newer code
            continue
        for line in lines:
            if line.kind == "life":
                if begin:
                    yield name, None, begin, None, None
                name, begin = f"{line.key}.", at
    if begin:
        yield name, None, begin, None, None
