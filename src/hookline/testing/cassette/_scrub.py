"""Secrets are replaced in everything that a cassette compares and writes.

A text is scrubbed as a whole before it is compared, and an answer before it is split into chunks,
so that no piece of a secret is written. Scrubbing twice changes nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final, TypeAlias, cast

Scrub: TypeAlias = Callable[[str], str]
"""Returns the text without its secrets."""
SCRUBBED: Final = "[scrubbed]"
_NAMES: Final = (
    r"(?:proxy-)?authorization|(?:set-)?cookie|(?:[a-z0-9]+[_-])*(?:api|access|secret|private)[_-]?key|"
    r"passwords?|passwd|(?:client[_-])?secret|(?:access|refresh|auth|id|bearer)[_-]?token|token|"
    r"credentials?"
)
_NAME: Final = re.compile(_NAMES, re.IGNORECASE)
_FIELD: Final = re.compile(
    rf"""((?P<quote>\\?["'])(?:{_NAMES})(?P=quote)\s*:\s*(?P=quote))(?:\\.|(?!(?P=quote)).)+?(?P=quote)""",
    re.IGNORECASE | re.DOTALL,
)
_PATTERNS: Final = tuple(
    re.compile(pattern)
    for pattern in (
        r"(?s)-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)",
        r"\b(?:sk|pk|rk)[-_][A-Za-z0-9_-]{8,}",
        r"\b(?:gh[pousr]_|github_pat_|glpat-|hf_|xox[abeprs]-|npm_|pypi-)[A-Za-z0-9_-]{10,}",
        r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b",
        r"\bAIza[0-9A-Za-z_-]{30,}",
        r"\beyJ[A-Za-z0-9_-]{5,}\.[A-Za-z0-9_-]{5,}\.[A-Za-z0-9_-]*",
        r"(?<=://)[^\s/:@]*:[^\s/@]+(?=@)",
        r"(?i:(?<=\bbearer )|(?<=\bbasic ))[A-Za-z0-9._~+/=-]{8,}",
    )
)


def scrubber(own: Scrub | None) -> Scrub:
    """Return the function that removes the secrets of a text: the usual ones, and the caller's."""

    def scrub(text: str) -> str:
        text = _FIELD.sub(lambda match: f"{match[1]}{SCRUBBED}{match['quote']}", text)
        for pattern in _PATTERNS:
            text = pattern.sub(SCRUBBED, text)
        return text if own is None else own(text)

    return scrub


def scrub_data(value: Any, scrub: Scrub) -> Any:
    """Return JSON data without secrets; a text under a secret's name is replaced as a whole."""
    if isinstance(value, str):
        return scrub(value)
    if isinstance(value, dict):
        fields = cast("dict[str, Any]", value)
        return {
            scrub(name): SCRUBBED
            if isinstance(item, str) and _NAME.fullmatch(name)
            else scrub_data(item, scrub)
            for name, item in fields.items()
        }
    if isinstance(value, (list, tuple)):
        return [scrub_data(item, scrub) for item in cast("list[Any]", value)]
    return value


def scrub_chunks(chunks: list[dict[str, Any]], scrub: Scrub) -> list[dict[str, Any]]:
    """Return the chunks of an answer without secrets, also those that are split among chunks."""
    texts: dict[tuple[Any, ...], list[int]] = {}
    part = 0
    for place, chunk in enumerate(chunks):
        kind = chunk["chunk"]
        if kind == "call":
            texts.setdefault((kind, chunk["index"]), []).append(place)
        elif kind in ("text", "reasoning"):
            texts.setdefault((kind, part), []).append(place)
        else:
            part += 1
    scrubbed = [scrub_data(chunk, scrub) for chunk in chunks]
    gaps: set[int] = set()
    for (kind, _), places in texts.items():
        field = "arguments" if kind == "call" else "text"
        whole = "".join(chunks[place].get(field, "") for place in places)
        for place in places:
            scrubbed[place][field] = chunks[place].get(field, "")
        if scrub(whole) != whole:
            scrubbed[places[0]][field] = scrub(whole)
            for place in places[1:]:
                scrubbed[place][field] = ""
                if set(scrubbed[place]) <= {"chunk", "text", "index", "arguments"}:
                    gaps.add(place)
    return [chunk for place, chunk in enumerate(scrubbed) if place not in gaps]
