"""Read the details of an error response: headers, waiting times, texts without keys. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, Final
from unicodedata import category

from hookline.providers._adapter.parts import is_list, is_object

MAX_TEXT: Final = 1_000
_LOOKS_LIKE_A_KEY: Final = re.compile(r"\b(?:sk|pk|key|rk)-[\w*.-]{6,}|\bAIza[\w*-]{6,}")
_HIDDEN: Final = {"Cc": " ", "Zl": " ", "Zp": " ", "Cf": "", "Cs": "\ufffd"}
_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?)s")
# One pass is enough, whatever the page: a script without an end takes the rest of it.
_TAGS: Final = re.compile(r"<(script|style)\b.*?(?:</\1>|\Z)|<[^<>]*>", re.IGNORECASE | re.DOTALL)
PAGE: Final = re.compile(r"\s*<(?:!doctype|html|head|body|!--|\?xml)", re.IGNORECASE)
_PAGE_HEAD: Final = 16 * 1024  # characters


def details_of(inner: Mapping[str, Any]) -> list[dict[str, Any]]:
    details = inner.get("details")
    return [each for each in details if is_object(each)] if is_list(details) else []


def first(headers: Mapping[str, str] | None, *names: str) -> str | None:
    for name in names:
        found = headers.get(name) if headers is not None else None
        if found:
            return found
    return None


def retry_after(headers: Mapping[str, str] | None) -> float | None:
    """Return how many seconds a service asks to wait; all known forms are read."""
    millis = first(headers, "retry-after-ms")
    if millis is not None:
        found = _number(millis)
        if found is not None:
            return found / 1000
    text = first(headers, "retry-after")
    if text is None:
        return None
    found = _number(text)
    if found is not None:
        return found
    try:
        date = parsedate_to_datetime(text)
    except (ValueError, OverflowError):
        return None
    if date.tzinfo is None:
        date = date.replace(tzinfo=UTC)
    return max(0.0, (date - datetime.now(UTC)).total_seconds())


def _number(text: str) -> float | None:
    try:
        found = float(text)
    except ValueError:
        return None
    return found if 0 <= found < 1e9 else None


def retry_delay(inner: Mapping[str, Any]) -> float | None:
    """Return Google's waiting time: an error detail with a duration such as "34.07s"."""
    for each in details_of(inner):
        found = _DURATION.fullmatch(str(each.get("retryDelay")))
        if found:
            return float(found[1])
    return None


def _plain(text: str) -> str:
    """Replace line breaks and control characters, which could forge a line of a log, by spaces, and
    remove marks that hide or reorder their neighbours.
    """
    text = "".join(_HIDDEN.get(category(char), char) for char in text)
    return " ".join(text.split())


def scrubbed(text: str, secrets: Iterable[str] = ()) -> str:
    """Return the text as one short line, without keys, strings that look like keys, and hidden
    characters.
    """
    text = _plain(text)
    for secret in secrets:
        if len(secret) >= 4:
            text = text.replace(secret, "…")
    text = _LOOKS_LIKE_A_KEY.sub("…", text)
    return text if len(text) <= MAX_TEXT else text[:MAX_TEXT] + "…"


def words_of(page: str) -> str:
    """Return the first words of a page, without its markup."""
    return " ".join(_TAGS.sub(" ", page[:_PAGE_HEAD]).split())[:200]
