"""Which error a status and the words of a service stand for, and what to do about it. Pure."""

from __future__ import annotations

import re
from typing import Final, TypeAlias

from hookline.errors import (
    AuthenticationError,
    BadRequestError,
    ContentRefusedError,
    ContextTooLongError,
    ModelError,
    OverloadedError,
    RateLimitError,
)

_CONTEXT: Final = re.compile(
    r"context[_ ](length|window)|maximum context|prompt is too long|too many (input )?tokens"
    r"|input token count|exceeds? the (maximum|model)[^.]{0,40}(tokens|context|length)"
    r"|input is too long|request_too_large",
    re.IGNORECASE,
)
_REFUSAL: Final = re.compile(
    r"content[_ ]?(filter|policy|management)|content_safety|safety_violations|responsible ?ai"
    r"|prohibited_content|bio_policy|misalignment_policy|usage polic|cyber_policy|model_armor",
    re.IGNORECASE,
)
_KEYS: Final = re.compile(
    r"api[_ ]key[_ ]invalid|invalid[_ ]api[_ ]key|api key not (valid|found)|authentication"
    r"|permission[_ ](denied|error)|unauthenticated|incorrect api key|credentials",
    re.IGNORECASE,
)
_RATES: Final = re.compile(r"rate[_ ]?limit|resource_exhausted|too many requests", re.IGNORECASE)
_BROKE: Final = re.compile(r"insufficient_quota|billing|credit balance|payment", re.IGNORECASE)
_BUSY: Final = re.compile(
    r"overloaded|server_error|api_error|unavailable|internal|timeout|deadline", re.IGNORECASE
)
_OURS: Final = re.compile(r"bad[_ ]?request|invalid|not[_ ]found|unsupported", re.IGNORECASE)
ADVICE: Final[dict[type[ModelError], str]] = {
    AuthenticationError: "Check the key, and whether it may use this model",
    BadRequestError: "Change the model's name, the settings or the parts that the error names",
    ContentRefusedError: "Change the prompt",
    ContextTooLongError: "Send less, or use a model with a larger context window",
    OverloadedError: "Try again later, or use another model",
    RateLimitError: "Wait and try again, or check the limits of the account",
}


Kind: TypeAlias = tuple[type[ModelError], bool | None]
"""The class of the error, and whether another try may help; None if that follows from the class."""


def kind_of(status: int | None, about: str) -> Kind:
    """The error that the status and these words of the service stand for."""
    if status in (401, 403):
        return (ContentRefusedError if _REFUSAL.search(about) else AuthenticationError), None
    if status == 402 or (status == 429 and _BROKE.search(about)):
        return RateLimitError, False
    if status == 429:
        return RateLimitError, None
    if status == 413:
        return ContextTooLongError, None
    if status is not None and 300 <= status < 400:  # a redirect that is not followed
        return BadRequestError, None
    if status in (408, 409) or (status is not None and status >= 500):
        return OverloadedError, None
    # An error event may come in a stream with a good status.
    return _kind_of_words(about, accepted=status is None or status < 400)


def _kind_of_words(about: str, *, accepted: bool) -> Kind:
    """`accepted`: the service accepted the request, which then failed."""
    if _REFUSAL.search(about):
        return ContentRefusedError, None
    if _CONTEXT.search(about):
        return ContextTooLongError, None
    if _KEYS.search(about):
        return AuthenticationError, None
    if _BROKE.search(about):
        return RateLimitError, False
    if accepted and _RATES.search(about):
        return RateLimitError, None
    if accepted and (_BUSY.search(about) or not _OURS.search(about)):
        return OverloadedError, None
    return BadRequestError, None
