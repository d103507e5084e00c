"""Map exceptions to HTTP statuses, for `app` and for your own routes."""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING, Any, Final

from hookline.errors import (
    ApprovalError,
    ConversationBusyError,
    ConversationConflictError,
    HistoryError,
    IdleTimeoutError,
    ModelError,
    OutputError,
    OverloadedError,
    RateLimitError,
    RemoteChatError,
    StoreError,
    StreamInterruptedError,
)
from hookline.events import ErrorInfo
from hookline.web._http.extra import needs
from hookline.web._http.request_reply import Refused
from hookline.web._protocols.masked_texts import DescribeError, Mask

if TYPE_CHECKING:
    from starlette.responses import Response

STATUSES: Final[dict[type[BaseException], int]] = {
    ConversationBusyError: 409,
    ConversationConflictError: 409,
    ApprovalError: 409,
    HistoryError: 400,
    RateLimitError: 503,
    OverloadedError: 503,
    IdleTimeoutError: 504,
    ModelError: 502,
    OutputError: 502,
    RemoteChatError: 502,
    StoreError: 503,
    StreamInterruptedError: 503,
}
"""The first class that an exception is an instance of decides; any other exception is 500."""
BUSY: Final = 5.0
"""The seconds after which a client may ask again whether a conversation is free."""


def status_of(exc: BaseException) -> int:
    """Return the HTTP status for an exception of hookline; 500 for any other exception.

    A `Refused` has its own status; docs/web.md has a table of the other exceptions.
    """
    if isinstance(exc, Refused):
        return exc.status
    return next((status for kind, status in STATUSES.items() if isinstance(exc, kind)), 500)


def refused_for(
    exc: BaseException,
    describe_error: DescribeError | None = None,
    *,
    chat_id: str = "",
    what: str = "a request failed with",
) -> Refused:
    """Convert an exception to a refusal, with its status and a text without secrets.

    `chat_id`: the chat that the exception has prevented. `what`: what the log says before the type
    of the exception.
    """
    if isinstance(exc, Refused):
        return exc
    text = Mask(describe_error, chat_id=chat_id, what=what).text(ErrorInfo.of(exc))
    later = _later(exc)
    headers = {} if later is None else {"retry_after": str(ceil(later))}
    return Refused(status_of(exc), text, **headers)


def not_begun(exc: BaseException, describe_error: DescribeError | None, chat_id: str) -> Refused:
    """Convert an exception that has prevented a chat to a refusal."""
    return refused_for(exc, describe_error, chat_id=chat_id, what="a chat did not begin:")


def _later(exc: BaseException) -> float | None:
    """Return in how many seconds a client may try again; None if nobody knows."""
    if isinstance(exc, ConversationBusyError):
        return BUSY
    return exc.retry_after if isinstance(exc, RateLimitError) else None


async def error_response(request: Any, exc: Exception) -> Response:
    """Handle exceptions in Starlette and FastAPI: `{"detail": …}` with the status of the exception.

    `api.add_exception_handler(HooklineError, error_response)`. The text is a sentence with an id;
    the log has the exception under the same id. The text of a `Refused` is sent unchanged.
    """
    refusal = refused_for(exc)
    response: Response = needs("starlette.responses").JSONResponse(
        {"detail": refusal.text}, refusal.status, refusal.headers
    )
    return response
