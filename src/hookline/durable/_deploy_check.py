"""Replays the records of open chats with new code, before it goes live, and changes nothing.

A replay returns what is recorded, and begins no step: no model, tool or hook runs, nothing is
written, and the store is only read. So it ends at the first step that the record does not have.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from hashlib import sha256
from typing import Any, Final

import msgspec

from hookline import Agent, ApprovalRequest, Approve, Deny, Message, Store
from hookline.durable._client import Client
from hookline.durable._job import check_agent, read_decision, read_request, replay_job
from hookline.durable._status import Record, State
from hookline.errors import JournalError, RemoteChatError
from hookline.runtimes import Halted, Journal, key_name, read_log
from hookline.storage import Change, ConversationInfo, Stored

_OPEN: Final[tuple[State, ...]] = ("queued", "running", "waiting")
_MOST: Final = 1_000_000
_ANSWER: Final = "step/{}/call/{}/answer"  # of `hookline.runtimes.KEYS`


class Replay(msgspec.Struct, frozen=True, kw_only=True):
    """How the record of a chat fits the code."""

    id: str
    """The id of the chat."""
    fits: bool
    """Whether a worker with this code could continue the chat."""
    why: str = ""
    """What does not fit, how far the record was replayed, or which approval will not count."""


class _Log:
    """A log to which nothing is appended."""

    def __init__(self, batches: list[bytes]) -> None:
        self._batches = batches

    async def read(self) -> list[bytes]:
        return self._batches

    async def append(self, data: bytes) -> None:
        raise Halted

    async def answer(self, request: ApprovalRequest) -> Approve:
        await asyncio.Event().wait()
        raise AssertionError

    def poke(self) -> None:
        """Nobody looks at the journal."""


class _Reading:
    """A store that is only read."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.lease = None

    async def load(self, conversation_id: str) -> Stored | None:
        return await self._store.load(conversation_id)

    async def acquire(self, conversation_id: str, owner: str, *, heir: bool = False) -> int:
        stored = await self._store.load(conversation_id)
        return 0 if stored is None else stored.version

    async def renew(self, conversation_id: str, owner: str) -> bool:
        return True

    async def release(self, conversation_id: str, owner: str) -> None:
        """Nothing was acquired."""

    async def append(self, conversation_id: str, change: Change) -> int:
        raise Halted

    async def update(
        self, conversation_id: str, message: Message, *, owner: str, expected: int
    ) -> int:
        raise Halted

    async def delete(self, conversation_id: str) -> bool:
        raise Halted

    async def list(
        self, *, prefix: str = "", limit: int = 100, offset: int = 0
    ) -> tuple[ConversationInfo, ...]:
        return await self._store.list(prefix=prefix, limit=limit, offset=offset)

    async def pending(
        self, conversation_id: str | None = None, *, prefix: str = ""
    ) -> tuple[ApprovalRequest, ...]:
        return await self._store.pending(conversation_id, prefix=prefix)


async def check_chats(
    agent: Agent[Any],
    client: Client,
    *,
    timeout: float = 10.0,  # noqa: ASYNC109
) -> tuple[Replay, ...]:
    """Replay the records of all open chats that this agent may run; at most `timeout` seconds each.

    Raises UsageError if the agent has no `runtime=Durable()`.
    """
    check_agent(agent, None)
    replays: list[Replay] = []
    for state in _OPEN:
        for status in await client.list(state=state, limit=_MOST):
            if status.agent in (None, agent.name):
                record = await client.record(status.id)
                replays.append(await _replay(agent, record, timeout))
    return tuple(replays)


async def _replay(agent: Agent[Any], record: Record, seconds: float) -> Replay:
    id = record.id
    try:
        journal = await Journal.open(id, _Log([data for _, data in record.batches]))
    except JournalError as exc:
        return Replay(id=id, fits=False, why=exc.why)
    store = None if agent.store is None else _Reading(agent.store)
    journal.drain()  # it begins no step
    try:
        async with asyncio.timeout(seconds):
            await journal.carry(lambda: replay_job(agent, journal, record.input, store))
    except Halted:
        whys = [*dict.fromkeys(_void_approvals(agent, record))]
        if journal.past.next is not None:
            step = journal.past.next
            whys.append(f"new code runs before step {step!r}; what follows was not replayed")
        return Replay(id=id, fits=True, why="; ".join(whys))
    except TimeoutError:
        journal.halt()
        why = f"the replay waits at step {journal.past.next!r} for more than {seconds} s"
        return Replay(id=id, fits=False, why=why)
    except RemoteChatError:  # its failure is recorded; a worker writes down how it ended
        return Replay(id=id, fits=True)
    except JournalError as exc:
        return Replay(id=id, fits=False, why=exc.why)
    except Exception as exc:
        place = "its end" if journal.past.next is None else f"step {journal.past.next!r}"
        why = f"the replay stopped before {place}: {type(exc).__name__}: {exc}"
        return Replay(id=id, fits=False, why=why)
    return Replay(id=id, fits=True)


def _void_approvals(agent: Agent[Any], record: Record) -> Iterator[str]:
    """Say which waiting calls this code will not run, even if they are approved."""
    tools = {tool.name: tool for scope in agent.scopes for tool in scope.tools}
    lines = read_log(record.id, [data for _, data in record.batches])
    ends = {line.key for line in lines if line.kind == "end"}
    for _, body, _, answer, _ in record.questions:
        request = read_request(body)
        name, tool = request.call.name, tools.get(request.call.name)
        is_denied = answer is not None and isinstance(read_decision(answer), Deny)
        step = key_name((_ANSWER, request.iteration, request.call.id))
        if request.path or is_denied or step in ends:
            continue
        if tool is None:
            yield f"agent {agent.name!r} has no tool {name!r}, whose call waits for an approval"
        elif request.tool_digest not in ("", _digest_of(tool)):
            yield f"tool {name!r} differs from the one to be approved: the approval will not count"


def _digest_of(tool: Any) -> str:
    """Return what the `tool_digest` of a request for this tool is."""
    data = tool.name, tool.description, tool.parameters
    return sha256(msgspec.json.encode(data, order="deterministic")).hexdigest()
