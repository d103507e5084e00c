"""Map the ids of a request's calls and results to ids that the provider accepts. Pure.

A provider's own id, kept in the meta of the call, is sent back to it. Any other id is sent
unchanged if the provider accepts it, otherwise as its letters with a digest. The mapping is the
same in every request, and unique.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from hashlib import sha256
from typing import Any, Final

from hookline import AssistantMessage, Message, ToolCall
from hookline.providers._adapter.json_fields import own

USUAL: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")  # accepted by every provider but Mistral
NINE: Final = re.compile(r"[A-Za-z0-9]{9}")  # accepted by Mistral
_FOREIGN: Final = re.compile(r"[^A-Za-z0-9_-]")
_DIGITS: Final = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"


def call_ids(
    messages: Sequence[Message], provider: str, takes: re.Pattern[str] = USUAL
) -> Callable[[str], str]:
    """Return a function that maps the ids in these messages to ids for the provider."""
    mapping: dict[str, str] = {}
    others: set[str] = set()
    answers = [message for message in messages if isinstance(message, AssistantMessage)]
    calls = [call for answer in answers for call in answer.tool_calls]
    for call in calls:  # accepted ids stay unchanged, even if another call comes first
        fits = next((id for id in _fitting(call, provider, takes) if id not in others), None)
        if fits is not None:
            mapping[call.id] = fits
            others.add(fits)
    for call in calls:
        if call.id not in mapping:
            mapping[call.id] = _new_id(call.id, takes, others)
            others.add(mapping[call.id])
    return lambda id: mapping.get(id) or _new_id(id, takes, others)


def _fitting(call: ToolCall, provider: str, takes: re.Pattern[str]) -> Iterator[str]:
    """Yield the ids that can identify the call to a provider, its own id first."""
    mine = own(call.meta, provider).get("call_id")
    if isinstance(mine, str) and mine and takes is not NINE:
        yield mine
    if takes.fullmatch(call.id):
        yield call.id


def _new_id(id: str, takes: re.Pattern[str], others: set[str]) -> str:
    number = 0
    while True:
        value = int.from_bytes(sha256(f"{id}\0{number}".encode(errors="replace")).digest()[:12])
        digest = ""
        for _ in range(9):
            value, digit = divmod(value, 62)
            digest += _DIGITS[digit]
        candidate = digest if takes is NINE else f"{_FOREIGN.sub('_', id)[:54]}_{digest}"
        if candidate not in others:
            return candidate
        number += 1


def call_name(name: str) -> str:
    """Return a tool name that every provider accepts: a model may have called an invalid name."""
    return name if USUAL.fullmatch(name) else _FOREIGN.sub("_", name)[:64] or "unnamed"


def own_id(id: str) -> dict[str, Any]:
    """Return the meta that keeps a provider's own id; empty if hookline made the id."""
    return {} if not id or USUAL.fullmatch(id) else {"call_id": id}
