"""Read all streams that one process follows: one connection with one blocking XREAD.

A new stream cannot join an XREAD that is under way. The process therefore sends a message to its
own inbox, which ends the XREAD. With many streams there is a pause between two reads, so that each
read returns more entries.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

from hookline.web.relay._redis import outages

Fields = dict[bytes, bytes]
Take = Callable[[bytes, Fields], None]  # an entry: its id, its fields

BLOCK: Final = 2000  # milliseconds
COUNT: Final = 1000  # entries of a stream at a time
PAGE: Final = 500  # entries of a whole stream to read at a time
PAUSE_PER_STREAM: Final = 50e-6  # seconds
LONGEST_PAUSE: Final = 0.05


class Feed:
    """The streams that this process follows, each with the callback for its entries."""

    def __init__(self, client: Any, wake: Callable[[], None]) -> None:
        self._client = client
        self._wake = wake
        self._last: dict[bytes, bytes] = {}
        self._takes: dict[bytes, Take] = {}
        self._asking = False
        self._outages = outages()

    def __len__(self) -> int:
        return len(self._last)

    def follow(self, stream: str, after: bytes, take: Take) -> None:
        """Call `take` with each entry of a stream after this one."""
        name = stream.encode()
        self._last[name], self._takes[name] = after, take
        if self._asking:
            self._asking = False  # one wake-up is enough for all streams that join meanwhile
            self._wake()

    def leave(self, stream: str) -> None:
        """Stop following a stream."""
        self._last.pop(stream.encode(), None)
        self._takes.pop(stream.encode(), None)

    async def run(self) -> None:
        """Read until cancelled."""
        while True:
            positions = dict(self._last)
            self._asking = True
            try:
                got = await self._client.xread(positions, count=COUNT, block=BLOCK)
            except self._outages:
                await asyncio.sleep(0.2)
                continue
            finally:
                self._asking = False
            for name, entries in streams_of(got):
                take = self._takes.get(name)
                if take is None or self._last[name] != positions.get(name):
                    continue  # the stream was left while we waited, and perhaps followed anew
                for id, fields in entries:
                    if name in self._last:
                        self._last[name] = id
                        take(id, fields)
            pause = min(LONGEST_PAUSE, len(positions) * PAUSE_PER_STREAM)
            if pause > 0.001:
                await asyncio.sleep(pause)


def streams_of(got: Any) -> list[tuple[bytes, list[tuple[bytes, Fields]]]]:
    """Convert the reply of XREAD, in either version of the protocol, to streams with entries."""
    streams: Any = got.items() if hasattr(got, "items") else got or ()
    return [(name, pages[0] if isinstance(pages[0], list) else pages) for name, pages in streams]


async def read_stream(client: Any, stream: str, take: Take) -> None:
    """Call `take` with each entry that a stream has now."""
    after = b"-"
    while True:
        page = await client.xrange(stream, min=after, count=PAGE)
        for id, fields in page:
            take(id, fields)
        if len(page) < PAGE:
            return
        after = b"(" + page[-1][0]
