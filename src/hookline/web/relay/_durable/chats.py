"""Show a durable chat: each life of the chat continues the stream of the life before it.

Theory of operation. To its readers a durable chat looks like any other: a run ends when the chat
waits for an approval, and another run continues it once the answer is there. All lives of the chat
write to the stream of the run. The first entry of each life is a fence: its id begins with the
number of the life, so Redis refuses late writes of an earlier life. Before a batch of the record is
appended, the events up to that batch are written to the stream (`recording`). A later life repeats
some of the events between its steps; such an event has a name, and a name is written only once.
After a rest, all events until the chat is back at its question have been shown before, so the life
publishes nothing until then.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from secrets import token_hex
from typing import Any, Final

import msgspec

from hookline import ApprovalRequest, HookDef, Message, Response, define_hook
from hookline.events import (
    ApprovalRequested,
    ChatDone,
    ChatEvent,
    ChatStarted,
    ReasoningDelta,
    ResponseReset,
    StepStarted,
    TextDelta,
    ToolCallDelta,
    ToolCallFinished,
)
from hookline.points import OnChatEnd
from hookline.runtimes import Journal
from hookline.web._runs.run_header import Header
from hookline.web._runs.titles import titling
from hookline.web.relay._codec import END, LOSS, WAITS, end_of
from hookline.web.relay._commands import Link
from hookline.web.relay._durable.earlier_lives import OVER, Before, name_of, principal_of
from hookline.web.relay._reader import read_stream
from hookline.web.relay._writer import RunSink, Writer

OF_ANSWER: Final = (TextDelta, ReasoningDelta, ToolCallDelta, ResponseReset)


class LifePublisher:
    """Publishes the events of one life of a durable chat, as the witness of the life's journal."""

    def __init__(
        self,
        link: Link,
        writer: Writer,
        journal: Journal,
        key: str,
        messages: Callable[[], Awaitable[Sequence[Message]]],
    ) -> None:
        self.unsaid = False
        """Whether the chat has ended, and the end could not be written."""
        self._link = link
        self._writer = writer
        self._journal = journal
        self._key = key
        self._messages = messages  # of the stored conversation
        self._run: RunSink | None = None
        self._start = 0.0
        self._names: set[str] = set()
        self._silent = False
        self._rested: int | None = None  # the number of the last event before the rest
        self._back = asyncio.Event()  # the chat is back at its rest
        self._mute = False  # nothing further is written
        self._over = False  # this life has ended
        self._ends = False  # the chat has decided its outcome
        self._last_seq = journal.past.seq
        self._more = asyncio.Event()
        self._order = asyncio.Lock()  # keeps writes in order
        self._pausing: asyncio.Task[None] | None = None
        self._started: ChatStarted | None = None
        self._step: StepStarted | None = None
        self._approvals: dict[str, ApprovalRequest] = {}  # by the id of the call

    @property
    def hooks(self) -> list[HookDef]:
        """The hooks that give the conversation its title, and say that the chat ends."""
        return [titling(), define_hook("onChatEnd", self._ending, name="hookline.web end")]

    # ── where the lives before this one have stopped ────────────────────────────────────────

    async def begin(self) -> None:
        """Find the events already shown, and keep earlier lives from showing more."""
        await self._patiently(self._find())
        self._journal.witness = self

    async def _find(self) -> None:
        state = await self._link.state(self._key)
        self._rested = None if state is None else state.rest_of(self._journal.chat_id)
        if state is None or state.header.chat_id != self._journal.chat_id:
            self._silent = self._last_seq > 0
        elif state.over:
            log = self._link.names.log(self._key, state.header.run)
            last = await self._link.commands.xrevrange(log, count=1)
            self._silent = True
            self._mute = bool(last) and last[0][1].get(END, WAITS) not in (WAITS, LOSS)
        else:
            await self._go_on(state.header)

    async def _go_on(self, header: Header) -> None:
        """Continue a run: read its stream."""
        run = await self._take(header)
        if run is None:
            return
        before = Before()
        await read_stream(self._link.commands, run.log, before.take)
        run.number = len(before.events)
        self._names |= before.names
        for event in before.events:
            self._note(event)
        if not before.events:
            self._silent = self._last_seq > 0
        elif not before.whole or max(e.seq for e in before.events) < self._last_seq:
            await self._end(LOSS)  # Redis has lost part of the run
            self._silent = True

    # ── what the chat tells ─────────────────────────────────────────────────────────────────

    async def put(self, event: ChatEvent) -> None:
        """Publish an event, unless an earlier life has published it."""
        if self._is_new(event):
            async with self._order:
                await self._tell(event)
        self._note(event)
        self._last_seq = max(self._last_seq, event.seq)
        self._more.set()

    def _is_new(self, event: ChatEvent) -> bool:
        """Whether no life has published the event before."""
        name = name_of(event)
        if name is None:
            replayed = self._journal.replayed
            if replayed is None or event.seq <= replayed:
                return False
            self._silent = False
            return True
        if name in self._names:
            return False
        self._names.add(name)
        if name == OVER or (self._rested is not None and event.seq > self._rested):
            self._silent = False
        return not self._silent

    def _note(self, event: ChatEvent) -> None:
        if event.path:
            return
        match event:
            case ChatStarted():
                self._started = event
            case StepStarted():
                self._step = event
            case ApprovalRequested(request=request):
                self._approvals[request.call.id] = request
            case ToolCallFinished(call_id=id):
                self._approvals.pop(id, None)
            case _:
                pass

    async def _tell(self, event: ChatEvent) -> None:
        if self._run is None and not self._mute:
            await self._patiently(self._open(event))
        at_start = self._run is not None and self._run.number == 0
        if at_start and not isinstance(event, ChatStarted) and self._started is not None:
            self._write(self._started.replace(resumes=self._journal.chat_id, message=None))
            if self._step is not None and isinstance(event, OF_ANSWER):
                self._write(self._step)  # Redis has lost the run in which the step was published
        self._write(event)

    def _write(self, event: ChatEvent, *, observed: bool = True) -> None:
        run = self._run
        if run is None or self._mute:
            return
        at = asyncio.get_running_loop().time() - self._start
        run.put(run.number, at, event, observed=observed)
        self._mute = run.given_up

    async def _open(self, first: ChatEvent | None) -> None:
        """Begin a run: the requested one, or a new one."""
        state = await self._link.state(self._key)
        chat = self._journal.chat_id
        if state is not None and not state.over and state.header.chat_id == chat:
            await self._take(state.header)
            return
        principal = principal_of(self._key)
        if principal is None:
            self._mute = True
            return
        messages = await self._messages()
        before = len(messages)
        if self._started is None:
            question = first.message if isinstance(first, ChatStarted) else None
            own = None if question is None else question.id  # a user's message may bring its own id
            of_chat = (
                number
                for number, message in enumerate(messages)
                if message.id == own or message.id.startswith(f"{chat}.")
            )
            before = next(of_chat, before)
        header = Header(
            run=token_hex(6),
            chat_id=chat,
            principal=principal,
            before=before,
            resumed=self._started is not None,
        )
        await self._take(header)

    async def _take(self, header: Header) -> RunSink | None:
        """Write to a run from here on; Redis then refuses the writes of earlier lives."""
        run = RunSink(self._writer, self._key, header, life=self._journal.number)
        names = msgspec.json.encode(sorted(self._names))
        if not await self._link.take(self._key, header, run.life, names, ends=self._ends):
            self._mute = True
            return None
        self._run = run
        self._start = asyncio.get_running_loop().time()
        return run

    async def close(self) -> None:
        """End the run of a chat whose end is unsaid."""
        await self._link.close(self._key, self._journal.chat_id, self._journal.number)

    async def renew(self) -> None:
        """Keep the run from expiring."""
        run = self._run
        if run is not None and not self._mute:
            await self._link.take(self._key, run.header, run.life, b"[]", ends=self._ends)

    # ── what the journal tells ──────────────────────────────────────────────────────────────

    async def recording(self, seq: int) -> None:
        """Write all events up to this one, before the journal records them."""
        await self._until(seq)
        if not self._mute:
            await self._patiently(self._writer.flush())

    async def _until(self, seq: int) -> None:
        """Wait until this event has arrived from the stream of the chat."""
        while self._last_seq < seq and not (self._mute or self._over):
            self._more.clear()
            await self._more.wait()

    def rests(self) -> None:
        """End the run: every branch of the chat waits for an answer."""
        seq = self._journal.seq
        if not self._back.is_set():
            self._rested = seq
        self._back.set()
        if self._pausing is None or self._pausing.done():
            self._pausing = asyncio.create_task(self._pause(seq))

    async def asking(self) -> None:
        """Hold back an answer that is already there until the chat is back at its question."""
        if self._silent and not self._mute:
            await self._back.wait()

    async def _pause(self, seq: int) -> None:
        """End the run, as for any chat that waits for an approval."""
        await self._until(seq)
        async with self._order:
            if self._run is None or self._run.number == 0 or self._last_seq != seq:
                return  # nothing was shown since the last rest, or the chat already continues
            waits = Response(
                chat_id=self._journal.chat_id,
                finish_reason="tool_calls",
                stop_reason="approval",
                pending=tuple(self._approvals.values()),
            )
            done = ChatDone(chat_id=self._journal.chat_id, seq=seq, response=waits)
            self._write(done, observed=False)
            await self._patiently(self._link.rest(self._key, done.chat_id, seq))
            await self._end(WAITS)

    # ── the end ─────────────────────────────────────────────────────────────────────────────

    async def end(self, error: BaseException | None) -> None:
        """End this life; the chat goes on unless the error is one that ends a chat."""
        self._journal.witness = None
        self._over = True
        self._more.set()
        if self._pausing is not None:
            await self._pausing
        if not self._journal.halted and isinstance(error, Exception | None):
            async with self._order:
                if self._run is None and not self._names:  # the chat failed before it began
                    await self._patiently(self._open(None))
                self.unsaid = self._run is None and self._mute
                await self._end(end_of(error))

    async def _ending(self, ctx: OnChatEnd[Any]) -> None:
        """Say so before the chat reads its messages for the last time: later ones have no event."""
        self._ends = True
        await self._until(self._journal.seq)
        await self._patiently(self.renew())

    async def _end(self, how: bytes) -> None:
        run, self._run = self._run, None
        if run is not None:
            self._writer.end(run, how)  # also where Redis is away: it is written once it is back
            await self._patiently(self._writer.flush())
            self._mute = False  # the next run is another

    # ── Redis may be away ───────────────────────────────────────────────────────────────────

    async def _patiently(self, what: Coroutine[Any, Any, None]) -> None:
        """Wait for Redis, but not for long; then the chat continues, and its readers reload."""
        try:
            async with asyncio.timeout(self._link.lease):
                await what
        except self._link.failures as exc:
            self._link.complain(exc)
            self._mute = True
            if self._run is not None:
                self._writer.give_up(self._run)
            self._more.set()
