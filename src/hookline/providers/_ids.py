"""The ids of a request's calls and results as a provider takes them. Pure.

An id of the provider's own, kept in the call's meta, goes back to it. Any other goes as it is where
it fits, else as its letters with a digest: the same in every request, and no two alike.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from hashlib import sha256
from typing import Any, Final

from hookline import AssistantMessage, Message, ToolCall
from hookline.providers._parts import own

USUAL: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")  # what every provider takes but Mistral
NINE: Final = re.compile(r"[A-Za-z0-9]{9}")  # Mistral's
_DIGITS: Final = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"


def call_ids(
    messages: Sequence[Message], provider: str, takes: re.Pattern[str] = USUAL
) -> Callable[[str], str]:
    """A function from the ids of these messages to those of the provider."""
    found: dict[str, str] = {}
    used: set[str] = set()
    calls = [
        part
        for message in messages
        if isinstance(message, AssistantMessage)
        for part in message.parts
        if isinstance(part, ToolCall)
    ]
    for call in calls:  # those that fit keep theirs, wherever another one stands
        fits = next((id for id in _fitting(call, provider, takes) if id not in used), None)
        if fits is not None:
            found[call.id] = fits
            used.add(fits)
    for call in calls:
        if call.id not in found:
            found[call.id] = _made(call.id, takes, used)
            used.add(found[call.id])
    return lambda id: found.get(id) or _made(id, takes, used)


def _fitting(call: ToolCall, provider: str, takes: re.Pattern[str]) -> Iterator[str]:
    """The ids by which a provider may know the call, its own first."""
    mine = own(call.meta, provider).get("call_id")
    if isinstance(mine, str) and mine and takes is not NINE:
        yield mine
    if takes.fullmatch(call.id):
        yield call.id


def _made(id: str, takes: re.Pattern[str], used: set[str]) -> str:
    number = 0
    while True:
        value = int.from_bytes(sha256(f"{id}\0{number}".encode(errors="replace")).digest()[:12])
        digest = ""
        for _ in range(9):
            value, digit = divmod(value, 62)
            digest += _DIGITS[digit]
        made = digest if takes is NINE else f"{re.sub('[^A-Za-z0-9_-]', '_', id)[:54]}_{digest}"
        if made not in used:
            return made
        number += 1


def own_id(id: str) -> dict[str, Any]:
    """What is kept of a provider's id that is not one of ours; nothing where it is."""
    return {} if not id or USUAL.fullmatch(id) else {"call_id": id}
