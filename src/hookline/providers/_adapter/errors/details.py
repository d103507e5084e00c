"""Read the details of an error response: headers, waiting times, texts without keys. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, Final
from unicodedata import category

from hookline.providers._adapter.json_fields import objects_in

MAX_TEXT: Final = 1_000
_LOOKS_LIKE_A_KEY: Final = re.compile(r"\b(?:sk|pk|key|rk)-[\w*.-]{6,}|\bAIza[\w*-]{6,}")
_REPLACEMENTS: Final = {"Cc": " ", "Zl": " ", "Zp": " ", "Cf": "", "Cs": "\ufffd"}
_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?)s")
# One pass is enough, whatever the page: a script without an end takes the rest of it.
_TAGS: Final = re.compile(r"<(script|style)\b.*?(?:</\1>|\Z)|<[^<>]*>", re.IGNORECASE | re.DOTALL)
PAGE: Final = re.compile(r"\s*<(?:!doctype|html|head|body|!--|\?xml)", re.IGNORECASE)
_HEAD: Final = 16 * 1024  # characters of a text that are read


def first(headers: Mapping[str, str] | None, *names: str) -> str | None:
    for name in names:
        value = headers.get(name) if headers is not None else None
        if value:
            return value
    return None


def retry_after(headers: Mapping[str, str] | None) -> float | None:
    """Return how many seconds a service asks to wait; all known forms are read."""
    millis = _number(first(headers, "retry-after-ms") or "")
    if millis is not None:
        return millis / 1000
    text = first(headers, "retry-after") or ""
    seconds = _number(text)
    if seconds is not None or not text:
        return seconds
    try:
        date = parsedate_to_datetime(text)
    except (ValueError, OverflowError):
        return None
    if date.tzinfo is None:
        date = date.replace(tzinfo=UTC)
    return max(0.0, (date - datetime.now(UTC)).total_seconds())


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if 0 <= number < 1e9 else None


def retry_delay(inner: Mapping[str, Any]) -> float | None:
    """Return Google's waiting time: an error detail with a duration such as "34.07s"."""
    for detail in objects_in(inner, "details"):
        match = _DURATION.fullmatch(str(detail.get("retryDelay")))
        if match:
            return float(match[1])
    return None


def scrubbed(text: str, secrets: Iterable[str] = ()) -> str:
    """Return the text as one short line, without keys, strings that look like keys, and hidden
    characters.
    """
    secrets = [secret for secret in secrets if len(secret) >= 4]
    rest = text[_HEAD:]
    # Control characters could forge a line of a log; marks hide or reorder their neighbours.
    text = "".join(_REPLACEMENTS.get(category(char), char) for char in text[:_HEAD])
    text = " ".join(text.split())
    if rest:  # the end may be the beginning of a secret
        longest = max(map(len, secrets), default=0)
        text = text[: max(0, len(text) - longest)]
    for secret in secrets:
        text = text.replace(secret, "…")
    text = _LOOKS_LIKE_A_KEY.sub("…", text)
    return text[:MAX_TEXT] + "…" if rest or len(text) > MAX_TEXT else text


def words_of(page: str) -> str:
    """Return the first words of a page, without its markup."""
    return " ".join(_TAGS.sub(" ", page[:_HEAD]).split())[:200]
