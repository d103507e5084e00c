"""Convert exceptions of an SDK, and errors sent by a service, to hookline's errors. Pure.

`Exchange` describes one request to a service for its errors: they name the requested host, unless
it is the provider's standard host.

SDK exceptions are recognized by their attributes and class names, because their HTTP library
changes between versions. No text created here contains a key. No error keeps a reference to the
SDK's exception, because that exception holds the request with its headers.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from math import inf
from typing import Any, Final, TypeGuard
from urllib.parse import urlsplit

from hookline.errors import (
    IdleTimeoutError,
    MalformedStreamError,
    ModelConnectionError,
    ModelError,
    RateLimitError,
)
from hookline.providers._adapter.errors.details import (
    PAGE,
    first,
    retry_after,
    retry_delay,
    scrubbed,
    words_of,
)
from hookline.providers._adapter.errors.kinds import ADVICE, kind_of
from hookline.providers._adapter.http_limits import REDIRECT
from hookline.providers._adapter.json_fields import is_list, is_object, objects_in
from hookline.providers._adapter.sse import EventTooLarge

_NO_MESSAGE: Final = re.compile(r"Error code: \d+( - None)?")
_REQUEST_IDS: Final = ("x-request-id", "request-id", "x-goog-request-id")


_REFUSED_CONNECTION: Final = (
    "connection refused",
    "connect call failed",
    "all connection attempts",
)
_LASTING: Final = (
    *("unsupportedprotocol", "invalidurl", "certificate", "wrong_version_number"),
    *("unsupported_protocol", "tlsv1_alert", "no_protocols_available", "sslv3_alert"),
)


class Exchange:
    """One request to a service. Each error of the request has the field `provider`, and a text that
    begins with `where`.

    `server` is the name under which the meta of messages keeps what the service sent, and expects
    back. `secrets` are removed from every text. `idle` is the longest time without an event, in
    seconds. `request_id` is set once the service has answered, and `url` once it has refused.
    """

    __slots__ = ("idle", "provider", "request_id", "secrets", "server", "url", "where")

    def __init__(
        self,
        provider: str,
        *,
        where: str | None = None,
        server: str | None = None,
        secrets: Iterable[str] = (),
        idle: float = inf,
    ) -> None:
        self.idle = idle
        self.url: str | None = None  # the address of a failed request, without its query
        self.provider = provider
        self.where = where or provider
        self.server = server or provider
        self.secrets = tuple(secrets)
        self.request_id: str | None = None

    def meta(self, data: Mapping[str, Any] | None) -> dict[str, Any] | None:
        """Return the meta that keeps the service's data; None for no data."""
        return {self.server: dict(data)} if data else None

    def note_request_id(self, headers: Mapping[str, str] | None) -> None:
        """Remember the id that the service gave to the request."""
        self.request_id = first(headers, *_REQUEST_IDS) or self.request_id

    def silent(self, what: str) -> IdleTimeoutError:
        """Build the error for a service that sent nothing useful in time."""
        return IdleTimeoutError(
            f"{self.where}: {what} arrived in time; try again, or raise idle_timeout=",
            provider=self.provider,
        )

    def cut_off(self) -> MalformedStreamError:
        """Build the error for a response that ended too early."""
        return self.malformed(f"{self.where}: the answer was cut off; try again", retryable=True)

    def malformed(
        self, what: str, *, retryable: bool, code: str | None = None
    ) -> MalformedStreamError:
        """Build the error for a response that is not in the provider's format."""
        return MalformedStreamError(
            what,
            provider=self.provider,
            request_id=self.request_id,
            retryable=retryable,
            code=code,
        )

    def unstreamed(self, body: object) -> ModelError:
        """Build the error for JSON that arrived instead of a stream.

        If the JSON is an error, its message is quoted. Other JSON is not quoted, because it could
        be a model's answer.
        """
        if is_error(body):
            return self.error(body)
        names = ", ".join(sorted(map(str, body))[:8]) if is_object(body) else type(body).__name__
        return self.malformed(
            f"{self.where}: received JSON ({scrubbed(names)}) instead of a stream of events; check "
            "base_url, and whether a proxy buffers responses",
            retryable=False,
        )

    def page(self, text: str, kind: str) -> ModelError:
        """Build the error for a page that arrived instead of a stream."""
        words = scrubbed(words_of(text), self.secrets) or "no text"
        return self.malformed(
            f"{self.where}: received {kind or 'a page'} instead of a stream of events: {words!r}; "
            "check base_url, and whether a proxy or sign-in page answered",
            retryable=False,
        )

    def error(self, body: object) -> ModelError:
        """Build the error for an error event in the middle of a response."""
        return service_error(self, body)


def is_error(event: object) -> TypeGuard[dict[str, Any]]:
    """Return whether an event or a body is an error, in one of the known forms."""
    if not is_object(event):
        return False
    if event.get("error") or event.get("errors"):
        return True
    if event.get("object") == "error" or event.get("type") == "error":
        return True
    if any(event.get(name) for name in ("choices", "candidates", "content", "output")):
        return False
    message = event.get("message") or event.get("detail")
    return bool(message) and not is_object(message) and event.get("role") is None


def failure(exchange: Exchange, exc: BaseException) -> ModelError:
    """Convert an exception of an SDK."""
    if isinstance(exc, ModelError):
        return exc
    where, provider = exchange.where, exchange.provider
    status = _status(exc)
    if status is not None:
        headers = getattr(getattr(exc, "response", None), "headers", None)
        body = getattr(exc, "body", None)
        if body is None:
            body = getattr(exc, "details", None)
        text = str(getattr(exc, "message", None) or exc)
        exchange.url = _url(exc)
        fallback = "" if _NO_MESSAGE.fullmatch(text.strip()) else text
        return service_error(exchange, body, status=status, headers=headers, fallback=fallback)
    if isinstance(exc, EventTooLarge):
        return exchange.malformed(
            f"{where}: the service sent {exc}; ask for less, such as a smaller image",
            retryable=False,
        )
    names = _names(exc)
    kind = type(exc).__name__
    if names & {"ConnectTimeout", "PoolTimeout", "ConnectionTimeoutError"}:
        return ModelConnectionError(
            f"{where}: no connection ({kind}); check the address and the network, and try again",
            provider=provider,
        )
    if names & {"TimeoutException", "APITimeoutError", "TimeoutError", "ServerTimeoutError"}:
        return exchange.silent(f"no data ({kind})")
    if names & {"TransportError", "APIConnectionError", "OSError", "ClientError", "StreamError"}:
        why = _reason(exc, exchange.secrets)
        lasting = _lasting(names, why)
        advice = "check the address, its protocol and its certificate" if lasting else "try again"
        if provider == "ollama" and any(word in why.lower() for word in _REFUSED_CONNECTION):
            advice = "start the server: ollama serve"
        return ModelConnectionError(
            f"{where}: the connection failed ({kind}{why}); {advice}",
            provider=provider,
            retryable=False if lasting else None,
        )
    # The exception's own text is left out: it may quote the answer.
    return MalformedStreamError(
        f"{where}: the response cannot be read ({kind}); try again, and check any proxy in between",
        provider=provider,
    )


def service_error(
    exchange: Exchange,
    body: object,
    *,
    status: int | None = None,
    headers: Mapping[str, str] | None = None,
    fallback: str = "",
) -> ModelError:
    """Build the error for an HTTP status with its body, or for an error event."""
    outer, inner = _error_object(body)
    words = [inner.get("code"), inner.get("type"), inner.get("status")]
    code = next((word for word in words if isinstance(word, str) and word), None)
    message = scrubbed(_text_of(inner, fallback), exchange.secrets)
    if status is None:
        status = _number_of(inner.get("code"))
    about = " ".join(map(str, filter(None, (*words, message))))
    about += " ".join(str(detail.get("reason", "")) for detail in objects_in(inner, "details"))
    kind, retryable = kind_of(status, about)
    where = exchange.where if status is None else f"{exchange.where} ({status})"
    wait = retry_after(headers) or retry_delay(inner)
    if status == 404 and exchange.url:
        advice = f"Check the model's name and base_url; the request went to {exchange.url}"
    elif code == REDIRECT:
        advice = "Check base_url"
    else:
        advice = _advice(kind, wait, retryable)
    own_id = outer.get("request_id")
    return kind(
        f"{where}: {(message or 'no message').rstrip('. ')}. {advice}",
        provider=exchange.provider,
        status=status,
        code=code,
        request_id=first(headers, *_REQUEST_IDS)
        or (own_id if isinstance(own_id, str) else exchange.request_id),
        retry_after=wait,
        retryable=retryable,
    )


def _text_of(inner: Mapping[str, Any], fallback: str) -> str:
    """The text of the error."""
    sentence = inner.get("message")
    text = sentence if isinstance(sentence, str) and sentence else fallback
    return (words_of(text) or "a page without text") if PAGE.match(text) else text  # of a proxy


def _advice(kind: type[ModelError], wait: float | None, retryable: bool | None) -> str:
    """What to do about the error."""
    if kind is RateLimitError and wait is not None and retryable is not False:
        return f"Try again in {wait:g} s, or check the limits of the account"
    return ADVICE[kind]


def _error_object(body: object) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the body of an error, and the error object inside it, in any of the known forms."""
    if is_list(body) and body:
        body = body[0]
    if isinstance(body, str):
        body = {"message": body}
    outer: dict[str, Any] = body if is_object(body) else {}
    inner: Any = outer.get("error") or outer.get("errors") or outer
    if is_list(inner) and inner:
        inner = inner[0]
    if isinstance(inner, str):
        inner = {**outer, "message": inner}
    if not is_object(inner):
        inner = outer
    if not inner.get("message") and inner.get("detail"):
        detail = inner["detail"]
        inner = {**inner, "message": detail if isinstance(detail, str) else json.dumps(detail)}
    return outer, inner


def _lasting(names: set[str], why: str) -> bool:
    """Return whether another try would fail in the same way: a wrong address or protocol."""
    text = " ".join((*names, why)).lower()
    return any(word in text or word.replace("_", " ") in text for word in _LASTING)


def _number_of(code: object) -> int | None:
    """Read an HTTP status from the code of an error event."""
    if isinstance(code, str) and code.isdecimal() and len(code) == 3:
        code = int(code)
    return code if isinstance(code, int) and 100 <= code <= 599 else None


# ── what they carry ─────────────────────────────────────────────────────────────────────────


def _status(exc: BaseException) -> int | None:
    for name in ("status_code", "code"):
        value = getattr(exc, name, None)
        if isinstance(value, int) and not isinstance(value, bool):
            return value
    return None


def _url(exc: BaseException) -> str | None:
    """Return the address of a failed request, without its query and its password."""
    request = getattr(exc, "request", None) or getattr(
        getattr(exc, "response", None), "request", None
    )
    parts = urlsplit(str(getattr(request, "url", "") or ""))
    host = parts.netloc.rpartition("@")[2]
    return scrubbed(f"{parts.scheme}://{host}{parts.path}") if host else None


def _names(exc: BaseException) -> set[str]:
    """Return the class names of an exception and of its causes."""
    names: set[str] = set()
    cause: BaseException | None = exc
    for _ in range(5):
        if cause is None:
            break
        names |= {base.__name__ for base in type(cause).__mro__}
        cause = cause.__cause__
    return names


def _reason(exc: BaseException, secrets: Iterable[str]) -> str:
    text = scrubbed(str(exc.__cause__ or exc), secrets)
    return f": {text}" if text else ""
