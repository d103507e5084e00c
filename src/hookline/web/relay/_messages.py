"""Messages between processes: “stop this run”, and the answer. Each process has an inbox."""

from __future__ import annotations

import asyncio
from secrets import token_hex
from typing import Final

import msgspec

from hookline.web._runs.registry import Runs
from hookline.web.relay._link import Link
from hookline.web.relay._redis import DURABLE


class ProcessMessage(msgspec.Struct, frozen=True, omit_defaults=True):
    """A message from one process to another."""

    act: str  # "stop", "done" (the answer to a stop), or "wake"
    token: str = ""
    back: str = ""  # the process to answer
    key: str = ""
    run: str = ""
    principal: str = ""
    reason: str = ""
    done: bool = False


_note: Final = msgspec.json.Decoder(ProcessMessage)


class ProcessInbox:
    """The inbox of this process, and the messages that it sends to other inboxes."""

    def __init__(self, link: Link, runs: Runs) -> None:
        self._link = link
        self._runs = runs
        self._waiting: dict[str, asyncio.Future[bool]] = {}  # pending answers, by token

    async def stop(self, key: str, principal: str, reason: str) -> bool:
        """Stop the run of a conversation in another process; False if there is none."""
        try:
            state = await self._link.state(key)
            if state is None:  # the key names the principal, so the claim is the principal's
                worker, run = await self._link.claim_of(key) or (DURABLE, "")
            elif state.over or state.header.principal != principal:
                return False
            else:
                worker, run = state.worker, state.header.run
            if worker == DURABLE or not await self._link.lives(worker):
                return False
            note = ProcessMessage(
                act="stop",
                token=token_hex(6),
                back=self._link.worker,
                key=key,
                run=run,
                principal=principal,
                reason=reason,
            )
            return await self._ask(worker, note)
        except self._link.outages:
            raise self._link.refusal() from None

    async def _ask(self, worker: str, note: ProcessMessage) -> bool:
        answer: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._waiting[note.token] = answer
        try:
            await self._send(worker, note)
            async with asyncio.timeout(self._link.lease):
                return await answer
        except TimeoutError:
            return False
        finally:
            del self._waiting[note.token]

    async def _send(self, worker: str, note: ProcessMessage) -> None:
        inbox = self._link.names.inbox(worker)
        pipe = self._link.commands.pipeline(transaction=False)
        pipe.xadd(inbox, {b"n": msgspec.json.encode(note)}, maxlen=1000, approximate=True)
        pipe.pexpire(inbox, self._link.ttl)
        await pipe.execute()

    def wake(self) -> None:
        """Wake the feed, so that it looks again at the streams that it follows."""
        self._link.later(self._send(self._link.worker, ProcessMessage(act="wake")))

    def take(self, id: bytes, fields: dict[bytes, bytes]) -> None:
        """Handle an incoming note."""
        try:
            note = _note.decode(fields[b"n"])
        except (KeyError, msgspec.MsgspecError):
            return
        if note.act == "stop":
            answer = ProcessMessage(act="done", token=note.token, done=self._stop(note))
            self._link.later(self._send(note.back, answer))
        elif note.act == "done":
            waiting = self._waiting.get(note.token)
            if waiting is not None and not waiting.done():
                waiting.set_result(note.done)

    def _stop(self, note: ProcessMessage) -> bool:
        """Stop a local run, if the note names this run and comes from its principal."""
        if self._runs.starts.stop(note.key, note.reason, run=note.run):
            return True
        live = self._runs.find(note.key)
        if live is None or live.header.run != note.run or live.header.principal != note.principal:
            return False
        return live.abort(note.reason)
