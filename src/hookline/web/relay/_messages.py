"""Messages between processes: “stop this run”, a user's message for a run, and the answers.

Each process has an inbox, a stream in Redis. A note that wants an answer is carried out by the
process that deletes it from the inbox: its receiver, or its sender, which takes it back when no
answer comes. So a sender knows whether its note was carried out, unless the receiver took the note
and was lost before it could answer.
"""

from __future__ import annotations

import asyncio
from secrets import token_hex
from typing import Final

import msgspec
from msgspec.structs import replace

from hookline import UserMessage
from hookline.web._http.request_reply import Refused
from hookline.web._runs.registry import Runs
from hookline.web._runs.run import Live, Receipt, When
from hookline.web.relay._commands import Link
from hookline.web.relay._redis import DURABLE


class ProcessMessage(msgspec.Struct, frozen=True, omit_defaults=True):
    """A message from one process to another."""

    act: str  # "stop", "send", "done" (the answer to these), or "wake"
    token: str = ""
    back: str = ""  # the process to answer
    key: str = ""
    run: str = ""
    principal: str = ""
    reason: str = ""
    done: bool = False
    message: UserMessage | None = None
    when: When = "next"
    receipt: Receipt | None = None


_note: Final = msgspec.json.Decoder(ProcessMessage)


class ProcessInbox:
    """The inbox of this process, and the messages that it sends to other inboxes."""

    def __init__(self, link: Link, runs: Runs) -> None:
        self._link = link
        self._runs = runs
        self._waiting: dict[str, asyncio.Future[ProcessMessage]] = {}  # pending answers, by token

    async def ask(self, note: ProcessMessage) -> ProcessMessage | None:
        """Send a note to the process of a conversation's run; None if nobody has carried it out.

        Raises Refused if the other process took the note, but did not say what it did with it.
        """
        link = self._link
        with link.refusing():
            owner = await self._owner(note.key, note.principal)
            if owner is None or not await link.lives(owner[0]):
                return None
            worker, run = owner
            token = token_hex(6)
            answer: asyncio.Future[ProcessMessage] = asyncio.get_running_loop().create_future()
            self._waiting[token] = answer
            try:
                id = await self._send(worker, replace(note, token=token, back=link.worker, run=run))
                await asyncio.wait([answer], timeout=link.lease)
                if not answer.done() and await self._delete(worker, id):
                    return None
                await asyncio.wait([answer], timeout=link.lease)
            finally:
                del self._waiting[token]
        if not answer.done():
            raise Refused(
                503, "It is not known whether this was done; load the messages, or try again."
            )
        return answer.result()

    async def _owner(self, key: str, principal: str) -> tuple[str, str] | None:
        """Return the process of a conversation's run, and the run; None if this principal has none
        in a process that takes notes.
        """
        state = await self._link.state(key)
        if state is None:  # the key names the principal, so the claim is the principal's
            owner = await self._link.claim_of(key)
        elif state.over or state.header.principal != principal:
            return None
        else:
            owner = state.worker, state.header.run
        return None if owner is None or owner[0] == DURABLE else owner

    async def _delete(self, worker: str, id: bytes) -> bool:
        """Delete a note from an inbox; False if it was no longer there."""
        return bool(await self._link.commands.xdel(self._link.names.inbox(worker), id))

    async def _send(self, worker: str, note: ProcessMessage) -> bytes:
        """Put a note into an inbox; return its id there."""
        inbox = self._link.names.inbox(worker)
        pipe = self._link.commands.pipeline(transaction=False)
        pipe.xadd(inbox, {b"n": msgspec.json.encode(note)}, maxlen=1000, approximate=True)
        pipe.pexpire(inbox, self._link.ttl)
        id: bytes = (await pipe.execute())[0]
        return id

    def wake(self) -> None:
        """Wake the feed, so that it looks again at the streams that it follows."""
        self._link.later(self._send(self._link.worker, ProcessMessage(act="wake")))

    def take(self, id: bytes, fields: dict[bytes, bytes]) -> None:
        """Handle an incoming note."""
        try:
            note = _note.decode(fields[b"n"])
        except (KeyError, msgspec.MsgspecError):
            return
        if note.act in ("stop", "send"):
            self._link.later(self._carry_out(id, note))
        elif note.act == "done":
            waiting = self._waiting.get(note.token)
            if waiting is not None and not waiting.done():
                waiting.set_result(note)

    async def _carry_out(self, id: bytes, note: ProcessMessage) -> None:
        """Do what a note says, unless its sender has taken it back, and answer."""
        if not await self._delete(self._link.worker, id):
            return
        answer = ProcessMessage(act="done", token=note.token)
        if note.act == "stop":
            answer = replace(answer, done=self._stop(note))
        elif note.message is not None:
            live = self._run_of(note)
            receipt = None if live is None else live.send(note.message, note.when)
            answer = replace(answer, receipt=receipt)
        await self._send(note.back, answer)

    def _run_of(self, note: ProcessMessage) -> Live | None:
        """Return the local run, if the note names this run and comes from its principal."""
        live = self._runs.find(note.key)
        if live is None or live.header.run != note.run or live.header.principal != note.principal:
            return None
        return live

    def _stop(self, note: ProcessMessage) -> bool:
        """Stop a local run, or one that has not begun."""
        if self._runs.starts.stop(note.key, note.reason, run=note.run):
            return True
        live = self._run_of(note)
        return live is not None and live.abort(note.reason)
