"""The runs of a server: their limits, their principals, and their shutdown."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, Final

from hookline import ChatStream, Message, Run, UserMessage
from hookline.web._http.request_reply import Refused
from hookline.web._runs.pending_requests import Lines, Place, Starts
from hookline.web._runs.run import DEFAULT_CAPS, Caps, Live, Receipt, Sink, When
from hookline.web._runs.run_header import Header

CLOSING: Final = "the server is shutting down"


class Runs:
    """The current runs. All routes of a process share one `Runs` object.

    The key of a run names its conversation. A second run with the same key is refused. The first
    argument of `find`, `send` and `stop` is the key.
    """

    def __init__(self, caps: Caps = DEFAULT_CAPS) -> None:
        self.caps = caps
        """The limits."""
        self.closing = False
        """Whether the server is shutting down and accepts no more runs."""
        self.record: Callable[[str, Live], Sink] | None = None
        """Creates the record of a run, if timelines are kept."""
        self.starts = Starts()
        """The requests whose runs have not begun."""
        self._live: dict[str, Live] = {}  # by key: running, or kept for a while after
        self._chats: dict[str, Live] = {}  # by chat id, running only
        self._nested: dict[str, Live] = {}  # by chat id of a sub-agent
        self._principals: Counter[str] = Counter()
        self._forget: dict[str, asyncio.TimerHandle] = {}  # runs that have ended, the oldest first
        self._bytes: Counter[str] = Counter()  # bytes of kept backlogs, by principal
        self._bytes_total = 0
        self._lines = Lines(lambda key: self.find(key) is None)

    def __len__(self) -> int:
        """The number of active runs."""
        return len(self._chats)

    def check(self, key: str, principal: str) -> None:
        """Raise Refused if a run cannot begin now."""
        if self.find(key) is not None:
            raise busy()
        self._check_room(principal)

    def _check_room(self, principal: str) -> None:
        if self.closing:
            raise closing()
        if len(self) + self._lines.waiting() >= self.caps.streams:
            raise Refused(429, "The server is busy; try again later.", retry_after="5")
        mine = self._principals[principal] + self._lines.waiting(principal)
        if mine >= self.caps.streams_per_principal:
            raise Refused(
                429, "Too many of your answers are running; wait until one ends.", retry_after="5"
            )

    def join(self, key: str, principal: str) -> Place:
        """Join a conversation's queue; raises Refused if the queue is full. Call `leave` later."""
        self._check_room(principal)
        if self._lines.length(key) >= self.caps.queue + (self.find(key) is None):
            raise Refused(
                429,
                "Too many messages wait for this answer; wait until it ends, or stop it.",
                retry_after="5",
            )
        return self._lines.join(key, principal)

    def leave(self, place: Place) -> None:
        """Leave the queue: the answer has begun, or is no longer needed."""
        self._lines.leave(place)

    def begin(
        self,
        key: str,
        stream: ChatStream,
        header: Header,
        *,
        detached: bool = False,
        before: tuple[Message, ...] = (),
        scope_of: Callable[[str], str | None] | None = None,
    ) -> Live:
        """Start a run; raises Refused if the run cannot start. Applications use `chat_response` or
        `resume_detached`, which also create the header.
        """
        principal = header.principal
        self.check(key, principal)
        live = Live(
            stream,
            header,
            caps=self.caps,
            detached=detached,
            before=before,
            scope_of=scope_of,
            grew=partial(self._grew, principal),
        )
        self._drop(key)
        self._live[key] = live
        self._chats[header.chat_id] = live
        self._principals[principal] += 1

        def on_end(live: Live) -> None:
            self._chats.pop(header.chat_id, None)
            for nested in [id for id, other in self._nested.items() if other is live]:
                del self._nested[nested]
            self._principals -= Counter([principal])
            if self._live.get(key) is live:
                self._end(key, live)
            self._lines.look(key)

        if self.record is not None:
            live.recorder = partial(self.record, key)
        live.start(on_end)
        return live

    def _end(self, key: str, live: Live) -> None:
        if not live.log.detached or self.closing:
            self._drop(key)
            return
        loop = asyncio.get_running_loop()
        self._forget[key] = loop.call_later(self.caps.replay_ttl, self._drop, key)

    async def until_begun(self, key: str, live: Live, max_wait: float | None = None) -> None:
        """Wait until the chat of a run has begun, or for `max_wait` seconds.

        Raises what prevents the chat; there is no trace of the run then.
        """
        try:
            await live.until_begun(max_wait)
        except Exception:
            await live.join()
            if self._live.get(key) is live:
                self._drop(key)
            raise

    def forget(self, key: str) -> None:
        """Drop the data of a run that has ended."""
        if self.find(key) is None:
            self._drop(key)

    def _drop(self, key: str) -> None:
        """Drop a run once it has no readers."""
        timer = self._forget.pop(key, None)
        if timer is not None:
            timer.cancel()
        live = self._live.pop(key, None)
        if live is not None:
            live.retire()

    # ── what is kept of them, in bytes ──────────────────────────────────────────────────────

    def _grew(self, principal: str, more: int) -> None:
        self._bytes_total += more
        self._bytes[principal] += more
        if not self._bytes[principal]:
            del self._bytes[principal]
        if more > 0:
            if self._bytes[principal] > self.caps.replay_bytes_per_principal:
                self._make_room(principal)
            if self._bytes_total > self.caps.replay_bytes_total:
                self._make_room(None)

    def _make_room(self, principal: str | None) -> None:
        """Drop the run that ended first; if all of them are active, half of the largest backlog."""
        mine = {
            key: live
            for key, live in self._live.items()
            if live.log.detached and principal in (None, live.header.principal)
        }
        for key in self._forget:
            if key in mine:
                self._drop(key)
                mine[key].log.forget()
                return
        largest = max(mine.values(), key=lambda live: live.log.bytes, default=None)
        if largest is not None:
            largest.log.drop_half()

    def find(self, key: str, *, include_ended: bool = False) -> Live | None:
        """Find the run with this key; with `include_ended`, also one that has ended and is kept."""
        live = self._live.get(key)
        return live if live is not None and (include_ended or not live.over) else None

    def send(self, key: str, message: UserMessage, when: When = "next") -> Receipt | None:
        """Send a message into the run with this key; None if nothing runs.

        If the receipt has no `refused`, the message is queued: the run's stream tells the rest.
        """
        live = self.find(key, include_ended=True)  # it knows a message that is sent again
        return None if live is None else live.send(message, when)

    def stop(self, key: str, reason: str = "stopped by the user") -> bool:
        """Stop the run with this key, and the requests that have not begun or wait for it; False
        if nothing was found.
        """
        was_queued = self._lines.stop(key, reason)
        starting = self.starts.stop(key, reason)
        live = self.find(key)
        return (live is not None and live.abort(reason)) or starting or was_queued

    async def shutdown(self, drain: float | None = None) -> None:
        """Refuse new runs, let the active runs end, and abort the remaining runs after `drain`
        seconds. Returns when all runs have ended; aborted runs end within the agents' grace period.

        Whatever `drain` is, runs are not aborted until their approved calls have begun, for up to
        `Caps.drain` seconds.
        """
        self.closing = True
        self._lines.stop_all(CLOSING)
        for timer in self._forget.values():
            timer.cancel()
        self._forget.clear()
        running = [asyncio.ensure_future(live.join()) for live in self._chats.values()]
        if running:
            seconds = self.caps.drain if drain is None else drain
            await asyncio.wait(running, timeout=seconds)
            await self._use_answers()
            for live in list(self._chats.values()):
                live.abort(CLOSING)
            await asyncio.wait(running)
        for key in list(self._live):
            self._drop(key)

    async def _use_answers(self) -> None:
        """Wait until the approved calls of the active runs have begun, for `Caps.drain` seconds."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self.caps.drain):
                for live in list(self._chats.values()):
                    await live.answers_used()

    def run_of(self, run: Run[Any]) -> Live | None:
        """Return the run of a chat, or the run that a sub-agent's chat belongs to."""
        live = self._chats.get(run.chat_id) or self._nested.get(run.chat_id)
        if live is None and run.parent_chat_id is not None:
            parent = run.parent_chat_id
            live = self._chats.get(parent) or self._nested.get(parent)
            if live is not None:
                self._nested[run.chat_id] = live
        return live


def closing() -> Refused:
    """Build the refusal of a request to a server that shuts down."""
    return Refused(503, "The server is shutting down; try again later.", retry_after="5")


def busy() -> Refused:
    """Build the refusal of an action that is not possible while an answer runs."""
    return Refused(
        409,
        "This conversation is busy with another answer; wait for it, or stop it.",
        retry_after="5",
    )
