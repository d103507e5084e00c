"""What an SDK raised, or a service said, as one of hookline's errors. Pure.

The SDKs' exceptions are known by what they carry and by the names of their classes, since which
HTTP library they ride on changes with their versions. No text that is made here holds a key, and
no error of ours holds the SDK's: that one knows the request with its headers.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, Final

from hookline.errors import (
    AuthenticationError,
    BadRequestError,
    ContentRefusedError,
    ContextTooLongError,
    IdleTimeoutError,
    MalformedStreamError,
    ModelConnectionError,
    ModelError,
    OverloadedError,
    RateLimitError,
)
from hookline.providers._parts import is_list, is_object

MAX_TEXT: Final = 1_000

_CONTEXT: Final = re.compile(
    r"context[_ ](length|window)|maximum context|prompt is too long|too many (input )?tokens"
    r"|input token count|exceeds? the (maximum|model)[^.]{0,40}(tokens|context|length)"
    r"|input is too long|request_too_large",
    re.IGNORECASE,
)
_REFUSED: Final = re.compile(
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
_LOOKS_LIKE_A_KEY: Final = re.compile(r"\b(?:sk|pk|key|rk)-[\w*.-]{6,}|\bAIza[\w*-]{6,}")
_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?)s")


_ADVICE: Final[dict[type[ModelError], str]] = {
    AuthenticationError: "Check the key, and whether it may use this model",
    BadRequestError: "Change the model's name, the settings or the parts that it speaks of",
    ContentRefusedError: "Change what is asked",
    ContextTooLongError: "Send less, or use a model with more room",
    OverloadedError: "Try again later, or ask another model",
    RateLimitError: "Wait and try again, or look at the limits of the account",
}


def failure(provider: str, exc: BaseException, secrets: Iterable[str] = ()) -> ModelError:
    """The error for what an SDK raised."""
    if isinstance(exc, ModelError):
        return exc
    status = _status(exc)
    if status is not None:
        headers = getattr(getattr(exc, "response", None), "headers", None)
        body = getattr(exc, "body", None)
        if body is None:
            body = getattr(exc, "details", None)
        text = getattr(exc, "message", None) or str(exc)
        return told(
            provider, body, status=status, headers=headers, fallback=str(text), secrets=secrets
        )
    names = _names(exc)
    kind = type(exc).__name__
    if names & {"ConnectTimeout", "PoolTimeout", "ConnectionTimeoutError"}:
        return ModelConnectionError(
            f"{provider}: no connection ({kind}); check the address and the network, and try again",
            provider=provider,
        )
    if names & {"TimeoutException", "APITimeoutError", "TimeoutError", "ServerTimeoutError"}:
        return IdleTimeoutError(
            f"{provider}: nothing came for too long ({kind}); try again, or raise idle_timeout=",
            provider=provider,
        )
    if names & {"TransportError", "APIConnectionError", "OSError", "ClientError", "StreamError"}:
        return ModelConnectionError(
            f"{provider}: the connection failed ({kind}{_reason(exc, secrets)}); try again",
            provider=provider,
        )
    # No word of its own: it may quote the answer.
    return MalformedStreamError(
        f"{provider}: what came cannot be read ({kind}); try again, and look at what "
        "stands between",
        provider=provider,
    )


def told(
    provider: str,
    body: object,
    *,
    status: int | None = None,
    headers: Mapping[str, str] | None = None,
    fallback: str = "",
    secrets: Iterable[str] = (),
) -> ModelError:
    """The error for what the service said: an HTTP status with its body, or an error event."""
    if is_list(body) and body:
        body = body[0]
    inner = body if is_object(body) else {}
    if is_object(inner.get("error")):
        inner = inner["error"]
    words = [inner.get("code"), inner.get("type"), inner.get("status")]
    code = next((word for word in words if isinstance(word, str) and word), None)
    found = inner.get("message")
    message = scrubbed(found if isinstance(found, str) and found else fallback, secrets)
    if status is None and isinstance(inner.get("code"), int):
        status = inner["code"]
    about = " ".join(str(word) for word in (*words, message) if word)
    about += " ".join(str(each.get("reason", "")) for each in _details(inner))
    kind, retryable = _kind(status, about)
    where = provider if status is None else f"{provider} ({status})"
    return kind(
        f"{where}: {(message or 'no message').rstrip('. ')}. {_ADVICE[kind]}",
        provider=provider,
        status=status,
        code=code,
        request_id=_first(headers, "x-request-id", "request-id", "x-goog-request-id"),
        retry_after=retry_after(headers) or _retry_delay(inner),
        retryable=retryable,
    )


def _kind(status: int | None, about: str) -> tuple[type[ModelError], bool | None]:
    if status in (401, 403):
        return (ContentRefusedError if _REFUSED.search(about) else AuthenticationError), None
    if status == 402 or (status == 429 and _BROKE.search(about)):
        return RateLimitError, False
    if status == 429:
        return RateLimitError, None
    if status == 413:
        return ContextTooLongError, None
    if status in (408, 409) or (status is not None and status >= 500):
        return OverloadedError, None
    if _REFUSED.search(about):
        return ContentRefusedError, None
    if _CONTEXT.search(about):
        return ContextTooLongError, None
    if _KEYS.search(about):
        return AuthenticationError, None
    if status is None or status < 400:  # an error event in a stream that began well
        if _BROKE.search(about):
            return RateLimitError, False
        if _RATES.search(about):
            return RateLimitError, None
        if _BUSY.search(about):
            return OverloadedError, None
    elif _BROKE.search(about):
        return RateLimitError, False
    return BadRequestError, None


# ── what they carry ─────────────────────────────────────────────────────────────────────────


def _status(exc: BaseException) -> int | None:
    for name in ("status_code", "code"):
        found = getattr(exc, name, None)
        if isinstance(found, int) and not isinstance(found, bool):
            return found
    return None


def _names(exc: BaseException) -> set[str]:
    """The names of the classes of an exception and of what caused it."""
    found: set[str] = set()
    cause: BaseException | None = exc
    for _ in range(5):
        if cause is None:
            break
        found |= {each.__name__ for each in type(cause).__mro__}
        cause = cause.__cause__
    return found


def _reason(exc: BaseException, secrets: Iterable[str]) -> str:
    text = scrubbed(str(exc.__cause__ or exc), secrets)
    return f": {text}" if text else ""


def _details(inner: Mapping[str, Any]) -> list[dict[str, Any]]:
    details = inner.get("details")
    return [each for each in details if is_object(each)] if is_list(details) else []


def _first(headers: Mapping[str, str] | None, *names: str) -> str | None:
    for name in names:
        found = headers.get(name) if headers is not None else None
        if found:
            return found
    return None


def retry_after(headers: Mapping[str, str] | None) -> float | None:
    """The seconds that a service asks to wait, in whichever form it says so."""
    millis = _first(headers, "retry-after-ms")
    if millis is not None:
        found = _number(millis)
        if found is not None:
            return found / 1000
    text = _first(headers, "retry-after")
    if text is None:
        return None
    found = _number(text)
    if found is not None:
        return found
    try:
        date = parsedate_to_datetime(text)
    except ValueError:
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


def _retry_delay(inner: Mapping[str, Any]) -> float | None:
    """Google's: a detail of the error with a duration such as "34.07s"."""
    for each in _details(inner):
        found = _DURATION.fullmatch(str(each.get("retryDelay")))
        if found:
            return float(found[1])
    return None


def scrubbed(text: str, secrets: Iterable[str] = ()) -> str:
    """The text, bounded, with keys and what looks like one left out."""
    for secret in secrets:
        if len(secret) >= 4:
            text = text.replace(secret, "…")
    text = _LOOKS_LIKE_A_KEY.sub("…", text)
    return text if len(text) <= MAX_TEXT else text[:MAX_TEXT] + "…"
