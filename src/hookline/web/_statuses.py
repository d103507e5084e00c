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
from hookline.web._extra import needs
from hookline.web._incoming import Refused
from hookline.web._mask import ErrorText, Mask

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


def status_of(exc: BaseException) -> int:
    """Return the HTTP status for an exception of hookline; 500 for any other exception.

    A `Refused` has its own status; docs/web.md has a table of the other exceptions.
    """
    if isinstance(exc, Refused):
        return exc.status
    return next((status for kind, status in STATUSES.items() if isinstance(exc, kind)), 500)


def refused_for(exc: BaseException, errors: ErrorText | None = None) -> Refused:
    """Convert an exception to a refusal, with its status and a text without secrets."""
    if isinstance(exc, Refused):
        return exc
    later = exc.retry_after if isinstance(exc, RateLimitError) else None
    headers = {} if later is None else {"retry_after": str(ceil(later))}
    return Refused(status_of(exc), Mask(errors).text(ErrorInfo.of(exc)), **headers)


async def error_response(request: Any, exc: Exception) -> Response:
    """Handle exceptions in Starlette and FastAPI: `{"detail": …}` with the status of the exception.

    `api.add_exception_handler(HooklineError, error_response)`. The text is a sentence with an id;
    the log has the exception under the same id. The text of a `Refused` is sent unchanged.
    """
    refused = refused_for(exc)
    response: Response = needs("starlette.responses").JSONResponse(
        {"detail": refused.text}, refused.status, refused.headers
    )
    return response
