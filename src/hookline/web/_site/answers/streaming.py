"""A response that streams a run: where it begins for a client, and how it is sent."""

from __future__ import annotations

from typing import Final
from urllib.parse import quote

import msgspec

from hookline.web._http.request_reply import Headers, Receive, Send
from hookline.web._protocols.ai_sdk.encoder import AiSdkVersion
from hookline.web._protocols.error_texts import DescribeError
from hookline.web._protocols.table import ENCODERS, Protocol, encoder_for
from hookline.web._runs.backlog import Reader, Run
from hookline.web._runs.hook_points import OnClientAttached
from hookline.web._runs.run import Caps, Live
from hookline.web._site.answers.connection import Line, line_to, send_run
from hookline.web._site.answers.presence import Leave, Presence
from hookline.web.relay._remote.run import RemoteRun

CONVERSATION: Final = "x-hookline-conversation"


class Streaming(msgspec.Struct, frozen=True, kw_only=True):
    """A run to be sent. `replay`: the client starts anew."""

    run: Run
    protocol: Protocol
    conversation_id: str
    caps: Caps
    ai_sdk_version: AiSdkVersion = 6
    describe_error: DescribeError | None = None
    approvals: bool = True
    start: int = 0
    replay: bool = False
    presence: Presence | None = None
    """Reports the client's arrival and departure."""

    async def send(self, receive: Receive, send: Send, cors: Headers) -> None:
        """Send the run until it ends or the client leaves."""
        reader = self.run.log.read(self.start)
        async with line_to(reader, self.caps, receive, send) as line:
            await line.open(headers_of(self.protocol, self.conversation_id, cors))
            await self.write(line, reader)

    async def write(self, line: Line, reader: Reader) -> None:
        """Send the run to a client that already has the response head."""
        run = self.run
        encoder, prelude = encoder_for(
            self.protocol,
            run,
            conversation_id=self.conversation_id,
            replay=self.replay,
            ai_sdk_version=self.ai_sdk_version,
            describe_error=self.describe_error,
            approvals=self.approvals,
        )
        leave = self._enter()
        try:
            await line.put(prelude)
            await send_run(line, run.log, reader, encoder)
        finally:
            if leave is not None:
                leave(len(run.log.readers - {reader}), encoder.complete)

    def _enter(self) -> Leave | None:
        if self.presence is None:
            return None
        return self.presence.enter(
            OnClientAttached(
                principal=self.run.header.principal,
                conversation_id=self.conversation_id,
                protocol=self.protocol,
                readers=len(self.run.log.readers),
                replay=self.replay,
            )
        )


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
    if not run.detached:
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
