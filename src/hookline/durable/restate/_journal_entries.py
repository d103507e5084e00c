"""The entries of Restate's journal of a chat: input, batches, messages, and their times."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from hookline.runtimes import Batch

_batch: Final = msgspec.json.Decoder(Batch)
_DEATH: Final = b'{"death":'
_OUTCOME: Final = b'{"outcome":'
MESSAGES: Final = b'"messages"'
"""The step after which a life has collected messages."""


def promise_of(message: int | str) -> str:
    """The name of the promise for a message, by its number or its id."""
    return f"message/{message}" if isinstance(message, int) else f"message-id/{message}"


def messages_of(promises: dict[str, str | None]) -> list[tuple[str, float]]:
    """The messages in the promises of a chat."""
    messages: list[tuple[str, float]] = []
    while text := promises.get(promise_of(len(messages) + 1)):
        messages.append(message_in(text))
    return messages


def message_in(promise: str) -> tuple[str, float]:
    """The message in the value of its promise, and when it was sent."""
    at, _, body = promise.partition(" ")
    return body, float(at)


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
    """The steps that have ended: batches, marks of deaths and of messages, empty ones, the end."""
    completions = [(at, _completion(entry, "Run")) for at, entry in journal]
    return [(at, bytes(step["result"].get("Success", b""))) for at, step in completions if step]


async def mark() -> bytes:
    """Return what closes the step of a life that has died."""
    return _DEATH + f"{time.time():.3f}}}".encode()


def death_in(data: bytes) -> float | None:
    """Return when a death was noticed, if this step is a mark."""
    if not data.startswith(_DEATH):
        return None
    return msgspec.json.decode(data, type=dict[str, float])["death"]


def end_with(outcome: bytes) -> bytes:
    """Return the last step of a chat."""
    return _OUTCOME + outcome + b"}"


def outcome_in(data: bytes) -> bytes | None:
    """Return the outcome of the chat, if this is its last step."""
    return data[len(_OUTCOME) : -1] if data.startswith(_OUTCOME) else None


def is_batch(step: bytes) -> bool:
    """Whether a step is a batch of the chat's record."""
    return step not in (b"", MESSAGES) and not step.startswith((_DEATH, _OUTCOME))


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
    """The lives of a chat, by the names of their workers."""
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
                worker = line.key.partition(".")[2].rpartition(".")[0]
                name, begin = f"{worker}..", at
    if begin:
        yield name, None, begin, None, None
