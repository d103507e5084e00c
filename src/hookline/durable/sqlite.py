"""Durable chats on one machine, in a SQLite file: nothing to install, no server.

    agent = Agent("anthropic:…", tools=[…], store="sqlite:///chats.db", runtime=Durable())
    async with chats(agent, "jobs.db"):                  # a worker: any number of processes
        client = Chats("jobs.db")                        # from any process of this machine
        await client.start("Book it.", conversation="c1", chat_id="7f3")
        response = await client.result("7f3")

A worker looks into the file a few times a second: it tells that it lives, takes jobs that nobody
has, and takes over those of a worker that has given no sign for `lease` seconds. A chat that waits
for an answer is put aside after `idle` seconds, and holds no memory until the answer is there.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from hookline import ApprovalRequest, Approve, Deny, Limits, Response, Settings, UserMessage
from hookline.durable._job import Job, encode_job, read_outcome
from hookline.durable._sqlite import Jobs
from hookline.durable._sqlite_worker import Worker, chats
from hookline.errors import ApprovalError, UsageError

__all__ = ["Chats", "Worker", "chats"]

Decision = Approve | Deny
_request: Final = msgspec.json.Decoder(ApprovalRequest)


class Chats:
    """The client of the durable chats in a file, from any process."""

    def __init__(self, file: str | os.PathLike[str], *, poll: float = 0.1) -> None:
        self._jobs = Jobs(os.fspath(file))
        self._poll = poll

    async def start(
        self,
        input: str | UserMessage | None,
        *,
        conversation: str | None = None,
        chat_id: str | None = None,
        deps: Any = None,
        settings: Settings | None = None,
        limits: Limits | None = None,
        system: str | None = None,
        model: str | None = None,
        hooks: tuple[str, ...] | list[str] = (),
    ) -> str:
        """Start a chat and give its id. A known `chat_id` is that chat, and starts nothing.

        All of it must be JSON: `deps` becomes what the worker's `deps=` makes of it, `model` is a
        name, and `hooks` are ids that the agent knows. Raises UsageError for anything else.
        """
        job = Job(
            input=input,
            conversation=conversation,
            deps=deps,
            settings=settings,
            limits=limits,
            system=system,
            model=model,
            hooks=tuple(hooks),
        )
        id = os.urandom(10).hex() if chat_id is None else chat_id
        if not id.replace("-", "").replace("_", "").isalnum() or not id.isascii() or len(id) > 64:
            raise UsageError(
                f"chat_id={chat_id!r} must be 1 to 64 characters out of A-Z, a-z, 0-9, '_' and '-'"
            )
        await self._jobs.add(id, encode_job(job))
        return id

    async def pending(self, chat_id: str) -> tuple[ApprovalRequest, ...]:
        """The calls of a chat that wait for an answer."""
        return tuple([_request.decode(text) for text in await self._jobs.questions(chat_id)])

    async def answer(self, chat_id: str, answers: Mapping[str, Decision]) -> None:
        """Answer what waits: `{approval_id: Approve() | Deny("why")}`, all or none.

        Raises ApprovalError where nothing waits for one of them, or it was answered before.
        """
        for id, decision in answers.items():
            if not isinstance(decision, (Approve, Deny)):  # pyright: ignore
                raise ApprovalError(
                    f"the answer to {id!r} is {decision!r}; use Approve() or Deny()"
                )
        encoded = {id: msgspec.json.encode(each).decode() for id, each in answers.items()}
        wrong = await self._jobs.answer(chat_id, encoded)
        if wrong is not None:
            raise ApprovalError(
                f"nothing of chat {chat_id!r} waits for approval {wrong!r}: it was answered, has "
                "expired, or its chat is over; look at pending()"
            )

    async def abort(self, chat_id: str, reason: str | None = None) -> bool:
        """Ask for the abort of a chat; False where it is over."""
        return await self._jobs.abort(chat_id, msgspec.json.encode(reason).decode())

    async def result(self, chat_id: str) -> Response:
        """Wait for the response.

        Raises ChatAbortedError, RemoteChatError where the chat has failed, and UsageError where
        there is none of this id.
        """
        while True:
            outcome = await self._jobs.outcome(chat_id)
            if outcome is not None:
                return read_outcome(outcome)
            await asyncio.sleep(self._poll)

    def close(self) -> None:
        """Close the file."""
        self._jobs.close()
