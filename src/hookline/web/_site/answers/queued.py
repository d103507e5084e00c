"""A message that waits for the answers before it, and then gets its own answer.

The client receives the response head at once, and comments while it waits. The message belongs to
this client: if the client leaves or stops the conversation, the message is withdrawn.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

import msgspec

from hookline.web._http.request_reply import Headers, Receive, Request, Send
from hookline.web._protocols.incoming import Incoming
from hookline.web._protocols.table import Protocol, encoder_for
from hookline.web._runs.backlog import Reader, RunView
from hookline.web._runs.run_header import Header
from hookline.web._runs.starts import Place, StoppedEarly
from hookline.web._site.answers.connection import Line, line_to
from hookline.web._site.answers.streaming import Streaming, headers_of
from hookline.web._site.config import SiteConfig
from hookline.web._site.conversations import conversation_key

logger = logging.getLogger("hookline.web")


class AnswerRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request for an answer, with its principal and the id of its run."""

    http: Request
    principal: str
    protocol: Protocol
    incoming: Incoming
    id: str
    """The client's id of the conversation."""
    run: str

    @property
    def key(self) -> str:
        """The id under which the conversation is stored."""
        return conversation_key(self.principal, self.id)


class Queued(msgspec.Struct, frozen=True, kw_only=True):
    """The response to a message in the queue."""

    place: Place
    config: SiteConfig
    request: AnswerRequest
    begin: Callable[[], Awaitable[Streaming]]

    async def send(self, receive: Receive, send: Send, cors: Headers) -> None:
        """Wait for the turn, start the answer, and send it until it ends or the client leaves."""
        reader, runs = Reader(), self.config.runs
        self.place.turn.add_done_callback(lambda _: reader.wake())
        async with line_to(reader, runs.caps, receive, send) as line:
            try:
                await line.open(headers_of(self.request.protocol, self.request.id, cors))
                streaming = await self._turn(line, reader)
            finally:
                runs.leave(self.place)
            if streaming is not None:
                streaming.run.log.read(streaming.start, reader)
                await streaming.write(line, reader)

    async def _turn(self, line: Line, reader: Reader) -> Streaming | None:
        """Wait for the turn, and start the answer; None if there is none."""
        turn = self.place.turn
        while not turn.done():
            if reader.disconnected:
                return None
            await line.wait()
        why = turn.result()
        error: Exception | None = None
        if why is None:
            try:
                return await self.begin()
            except StoppedEarly as stopped:
                why = stopped.reason
            except Exception as exc:
                logger.debug("a queued message was not answered", exc_info=exc)
                error = exc
        await line.put(self._ending(error, why), last=True)
        return None

    def _ending(self, error: Exception | None, reason: str | None) -> bytes:
        """Encode the end of an answer that has not begun."""
        request, incoming = self.request, self.request.incoming
        header = Header(
            run=request.run,
            chat_id="",
            run_id=incoming.run_id,
            modern=incoming.modern,
            client_messages=incoming.client_messages,
        )
        encoder, _ = encoder_for(
            request.protocol,
            RunView(header),
            conversation_id=request.id,
            describe_error=self.config.describe_error,
        )
        return encoder.end(error, reason)
