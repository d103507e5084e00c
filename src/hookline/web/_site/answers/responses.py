"""Build responses that Starlette and its frameworks accept from a route."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import cache
from typing import TYPE_CHECKING, Any, TypeAlias

from hookline.web._http.extra import needs
from hookline.web._http.request_reply import Receive, Refused, Reply, Scope, Send, refusal
from hookline.web._protocols.table import Encoder
from hookline.web._runs.run import Caps, Live
from hookline.web._site.answers.connection import line_to, send_run

if TYPE_CHECKING:
    from starlette.responses import Response


Answer: TypeAlias = Callable[[Receive, Send], Awaitable[None]]


def whole_response(refused: Refused | None) -> Response:
    """Return a complete response: a refusal, or no content (204)."""
    reply = Reply(status=204) if refused is None else refusal(refused)

    async def answer(receive: Receive, send: Send) -> None:
        await reply.send(send)

    return _response_type()(reply.status, answer)


def run_response(
    start: Callable[[], Awaitable[tuple[Live, Encoder, bytes]]], caps: Caps, first: int = 0
) -> Response:
    """Return the response of a run that starts when it is sent, so an unsent response runs nothing.

    `first`: the entry that the response begins with.
    """

    async def answer(receive: Receive, send: Send) -> None:
        try:
            live, encoder, prelude = await start()
        except Refused as refused:
            await refusal(refused).send(send)
            return
        reader = live.log.read(first)
        async with line_to(reader, caps, receive, send) as line:
            await line.open(encoder.headers)
            await line.put(prelude)
            await send_run(line, live.log, reader, encoder)

    return _response_type()(200, answer)


@cache
def _response_type() -> Callable[[int, Answer], Response]:
    """Return a Starlette response class for these responses."""
    base: Any = needs("starlette.responses").Response

    class ChatResponse(base):  # type: ignore[misc]
        def __init__(self, status: int, answer: Answer) -> None:
            super().__init__(status_code=status)  # pyright: ignore[reportUnknownMemberType]
            self._answer = answer

        async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
            await self._answer(receive, send)
            if self.background is not None:
                await self.background()

    return ChatResponse


def once(body: bytes) -> Receive:
    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body}

    return receive
