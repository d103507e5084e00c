"""Parse Markdown for the page, within limits: a hostile text takes seconds of a processor.

The parser has threads of its own, so that it never keeps those of the default pool from others.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Final

from hookline.web._http.request_reply import Refused
from hookline.web._page.markdown import blocks

TEXTS: Final = 50  # most texts of a request
BYTES: Final = 512 * 1024  # most bytes of a request's texts
REQUESTS: Final = 16  # most requests that wait or are parsed
OWN_REQUESTS: Final = 4  # most of them from one principal


class MarkdownParser:
    """The threads that parse, and the requests that wait for them."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(2, thread_name_prefix="hookline.web markdown")
        self._requests: list[tuple[str, Future[Any]]] = []

    async def parse(self, principal: str, texts: list[str]) -> list[Any]:
        """Return each text as blocks; raises Refused for too many texts, bytes or requests."""
        if len(texts) > TEXTS:
            raise Refused(400, f"texts must be a list of at most {TEXTS} strings.")
        if sum([len(text.encode(errors="replace")) for text in texts]) > BYTES:
            raise Refused(413, f"The texts must not be larger than {BYTES} bytes together.")
        self._requests = [request for request in self._requests if not request[1].done()]
        own = sum([owner == principal for owner, _ in self._requests])
        if len(self._requests) >= REQUESTS or own >= OWN_REQUESTS:
            raise Refused(503, "Too many texts wait to be parsed; try again.", retry_after="1")
        future = self._pool.submit(lambda: [blocks(text) for text in texts])
        self._requests.append((principal, future))
        return await asyncio.wrap_future(future)

    def close(self) -> None:
        """Drop the requests that wait, and end the threads."""
        self._pool.shutdown(wait=False, cancel_futures=True)
