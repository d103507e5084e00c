"""A response that streams a run: where it begins for a client, how it is sent, and who reads it.

A message may have to wait for the answers before it. Its client then receives the response head at
once, and comments while it waits. The message belongs to this client: if the client leaves or stops
the conversation, the message is withdrawn.

`OnClientAttached` and `OnClientDetached` fire when clients start and stop to read an answer. An
observer cannot delay an answer, and an exception in it cannot break one. Each visit of a client has
a task of its own, in which the arrival is always reported before the departure.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeAlias
from urllib.parse import quote

import msgspec

from hookline import HookBus
from hookline.web._http.request_reply import Headers, Receive, Request, Send
from hookline.web._protocols.incoming import Incoming
from hookline.web._protocols.table import ENCODERS, Protocol, encoder_for
from hookline.web._runs.backlog import Reader, RunView
from hookline.web._runs.hook_points import OnClientAttached, OnClientDetached
from hookline.web._runs.pending_requests import Place, StoppedEarly
from hookline.web._runs.run import Live
from hookline.web._runs.run_header import Header
from hookline.web._site.answers.connection import Line, line_to, send_run
from hookline.web._site.config import SiteConfig
from hookline.web._site.conversations import conversation_key
from hookline.web.relay._remote_runs import RemoteRun

CONVERSATION: Final = "x-hookline-conversation"
Departure: TypeAlias = asyncio.Future[tuple[int, bool]]  # remaining readers; received everything?

logger = logging.getLogger("hookline.web")


class Presence:
    """The visits of a server's clients."""

    def __init__(self, bus: HookBus[Any]) -> None:
        self._bus = bus
        self._tasks: set[asyncio.Task[None]] = set()

    def enter(self, who: OnClientAttached) -> Departure:
        """Note that a client has arrived; set the result of the future when it leaves."""
        loop = asyncio.get_running_loop()
        departure: Departure = loop.create_future()
        task = loop.create_task(self._visit(who, departure), name="hookline.web visit")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return departure

    async def _visit(self, who: OnClientAttached, departure: Departure) -> None:
        await self._tell(who)
        readers, finished = await departure
        await self._tell(
            OnClientDetached(
                principal=who.principal,
                conversation_id=who.conversation_id,
                protocol=who.protocol,
                readers=readers,
                finished=finished,
            )
        )

    async def _tell(self, ctx: OnClientAttached | OnClientDetached) -> None:
        try:
            await self._bus.notify(ctx)
        except Exception as exc:
            logger.error("a hook at %s raised %s", type(ctx).__name__, type(exc).__name__)
            logger.debug("a hook at %s raised", type(ctx).__name__, exc_info=exc)

    async def settle(self, seconds: float = 5.0) -> None:
        """Wait until all departures are reported."""
        if self._tasks:
            await asyncio.wait(list(self._tasks), timeout=seconds)


class Streaming(msgspec.Struct, frozen=True, kw_only=True):
    """A run to be sent. `replay`: the client starts anew."""

    run: Live | RemoteRun
    protocol: Protocol
    conversation_id: str
    config: SiteConfig
    presence: Presence
    """Reports the client's arrival and departure."""
    start: int = 0
    replay: bool = False

    async def send(self, receive: Receive, send: Send, cors: Headers) -> None:
        """Send the run until it ends or the client leaves."""
        reader = self.run.log.read(self.start)
        async with line_to(reader, self.config.runs.caps, receive, send) as line:
            await line.open(headers_of(self.protocol, self.conversation_id, cors))
            await self.write(line, reader)

    async def write(self, line: Line, reader: Reader) -> None:
        """Send the run to a client that already has the response head."""
        run, config = self.run, self.config
        encoder, prelude = encoder_for(
            self.protocol,
            run,
            conversation_id=self.conversation_id,
            replay=self.replay,
            ai_sdk_version=config.ai_sdk_version,
            describe_error=config.describe_error,
            approvals=config.approvals,
        )
        departure = self.presence.enter(
            OnClientAttached(
                principal=run.header.principal,
                conversation_id=self.conversation_id,
                protocol=self.protocol,
                readers=len(run.log.readers),
                replay=self.replay,
            )
        )
        try:
            await line.put(prelude)
            await send_run(line, run.log, reader, encoder)
        finally:
            if not departure.done():
                departure.set_result((len(run.log.readers - {reader}), encoder.complete))


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


def headers_of(protocol: Protocol, conversation_id: str, cors: Headers) -> Headers:
    """Return the headers of a streamed response."""
    more = [*ENCODERS[protocol].headers, *cors, (CONVERSATION, quote(conversation_id))]
    if cors:
        more.append(("access-control-expose-headers", CONVERSATION))
    return more


def start_of(run: Live | RemoteRun, last: str) -> int | None:
    """Return the number of the next entry for a client whose last frame was `last`; None if it has
    everything, or if the entry is no longer kept. The client then reloads the messages.
    """
    if not run.log.detached:
        return None
    id, _, number = last.rpartition("-")
    log = run.log
    start = 0
    if id == run.header.run and number.isdecimal() and len(number) < 12:
        start = int(number) + 1
    elif run.over:
        return None
    if run.over and start >= log.number:
        return None
    # The last entry that another process has sent may still be on its way to us.
    end = log.number if isinstance(run, Live) else max(log.number, start)
    return start if log.first <= start <= end else None
