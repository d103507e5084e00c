"""Build responses that Starlette and its frameworks accept from a route."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import cache
from typing import TYPE_CHECKING, Any

from hookline.web._http.extra import needs
from hookline.web._http.refused import Refused
from hookline.web._http.request_reply import Receive, Scope, Send, refusal
from hookline.web._protocols.table import Encoder
from hookline.web._runs.run import Caps, Live
from hookline.web._site.answers.connection import line_to, send_run

if TYPE_CHECKING:
    from starlette.responses import Response


class Whole:
    """A complete response: a refusal, or no content (204)."""

    def __init__(self, refusal_: Refused | None) -> None:
        self.status = 204 if refusal_ is None else refusal_.status
        self._reply = refusal(refusal_ if refusal_ is not None else Refused(204, ""))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._reply.send(send)


class Running:
    """A run that starts when its response is sent, so an unsent response runs nothing."""

    status = 200

    def __init__(
        self,
        start: Callable[[], Awaitable[tuple[Live, Encoder, bytes]]],
        caps: Caps,
        first: int = 0,
    ) -> None:
        self._start = start
        self._caps = caps
        self._first = first  # the entry that the response begins with

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            live, encoder, prelude = await self._start()
        except Refused as refused:
            await refusal(refused).send(send)
            return
        reader = live.log.read(self._first)
        async with line_to(reader, self._caps, receive, send) as line:
            await line.open(encoder.headers)
            await line.put(prelude)
            await send_run(line, live.log, reader, encoder)


@cache
def response_type() -> Callable[[Whole | Running], Response]:
    """Return a Starlette response class for these responses."""
    base: Any = needs("starlette.responses").Response

    class ChatResponse(base):  # type: ignore[misc]
        def __init__(self, inner: Whole | Running) -> None:
            super().__init__(status_code=inner.status)  # pyright: ignore[reportUnknownMemberType]
            self._inner = inner

        async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
            await self._inner(scope, receive, send)
            if self.background is not None:
                await self.background()

    return ChatResponse


def once(body: bytes) -> Receive:
    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body}

    return receive
