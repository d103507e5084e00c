"""Keep the bytes of a server's answers out of the SDK's log.

The SDK logs the traceback of an answer that cannot be read, and pydantic's errors quote it. At
DEBUG the traceback stays.
"""

from __future__ import annotations

import logging
from pathlib import PurePath
from typing import Final

_LOGGERS: Final = (
    *("mcp.client.streamable_http", "mcp.client.session", "mcp.client.client"),
    *("mcp.client.auth.oauth2", "mcp.shared.jsonrpc_dispatcher", "mcp.shared.dispatcher"),
    *("mcp.shared.direct_dispatcher", "client"),  # the last is the name that its session uses
)


class _WithoutQuotes(logging.Filter):
    """Replaces the traceback of a record by the name of its exception."""

    def filter(self, record: logging.LogRecord) -> bool:
        of_sdk = "mcp" in PurePath(record.pathname).parts  # others may have a logger "client"
        if (
            of_sdk
            and record.exc_info
            and not logging.getLogger(record.name).isEnabledFor(logging.DEBUG)
        ):
            kind = record.exc_info[0]
            record.msg = f"{record.getMessage()} ({kind.__name__ if kind else 'no exception'})"
            record.args = ()
            record.exc_info = record.exc_text = None
        return True


_FILTER: Final = _WithoutQuotes()


def quiet() -> None:
    """Keep answers out of the SDK's loggers; a second time changes nothing."""
    for name in _LOGGERS:
        logging.getLogger(name).addFilter(_FILTER)
