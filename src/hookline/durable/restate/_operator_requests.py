"""The operations of operators on Restate's chats, through its admin API: list, record, delete …

A chat is the invocation of the handler `run`. Its journal has the input and the batches of the
record, and is kept as long as the outcome. Restate itself pauses, resumes, kills and
purges invocations.
"""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import Any, Final, NoReturn

import msgspec

from hookline.durable._job import Fields, fields_of
from hookline.durable._status import ChatStatus, Counts, Query, Record, State, state_of
from hookline.durable.restate._journal_entries import (
    death_in,
    input_of,
    is_batch,
    lives_of,
    messages_of,
    steps_of,
    times_of,
)
from hookline.durable.restate._requests import Requests, quoted
from hookline.errors import UsageError

_PAGE: Final = 1000  # chats of one query
_LOOK: Final = 0.02  # seconds between two looks at an invocation that is being killed or paused
_LOOKS: Final = 500
_STATES: Final[dict[str, State]] = {
    "running": "running",
    "suspended": "waiting",
    "paused": "quarantined",
}
_OVER: Final = ("done", "aborted", "failed")


class _Chat(msgspec.Struct, frozen=True):
    invocation: str
    id: str
    status: str
    created: datetime
    ended: datetime | None = None
    entry: str | None = None  # of the journal, with the input


class _Entry(msgspec.Struct, frozen=True):
    at: datetime
    entry: str


class _Text(msgspec.Struct, frozen=True):
    key: str
    text: str | None = None


class _Invocation(msgspec.Struct, frozen=True):
    id: str
    created: datetime


class _Group(msgspec.Struct, frozen=True):
    status: str
    chats: int
    created: datetime


class OperatorRequests(Requests):
    """The operations on the chats of a Restate server; `Operations` describes the methods."""

    async def _select(self, where: str, offset: int = 0) -> list[_Chat]:
        return await self.rows(
            _Chat,
            "SELECT i.id AS invocation, i.target_service_key AS id, i.status, "
            "i.created_at AS created, i.completed_at AS ended, j.entry_json AS entry "
            "FROM sys_invocation i LEFT JOIN sys_journal j ON j.id = i.id AND j.index = 0 "
            f"WHERE i.target_service_name = {quoted(self.name)} "
            f"AND i.target_handler_name = 'run' {where} "
            f"ORDER BY i.created_at, i.id LIMIT {_PAGE} OFFSET {offset}",
        )

    async def _chat(self, id: str) -> _Chat:
        for chat in await self._select(f"AND i.target_service_key = {quoted(id)}"):
            return chat
        raise self._unknown(id)

    async def _until(self, id: str, status: str) -> bool:
        """Wait until a chat has this status; False if it has not after a while."""
        for _ in range(_LOOKS):
            if (await self._chat(id)).status == status:
                return True
            await asyncio.sleep(_LOOK)
        return False

    # ── what operators see ──────────────────────────────────────────────────────────────────

    async def chats(self, query: Query) -> list[ChatStatus]:
        where = ""
        if query.id is not None:
            where += f" AND i.target_service_key = {quoted(query.id)}"
        if query.before is not None:
            where += f" AND i.created_at < {_time(query.before)}"
        if query.state is not None:
            where += f" AND {'' if query.state in _OVER else 'NOT '}(i.status = 'completed')"
        chats: list[ChatStatus] = []
        offset = 0
        while True:
            page = await self._select(where, offset)
            for chat in page:
                fields = fields_of(input_of(chat.entry))
                if not _matches(query, fields):
                    continue
                status = await self._status(chat, fields)
                if status is not None and query.state in (None, status.state):
                    chats.append(status)
                if len(chats) == query.limit:
                    return chats
            if len(page) < _PAGE:
                return chats
            offset += _PAGE

    async def _status(self, chat: _Chat, fields: Fields) -> ChatStatus | None:
        state = _STATES.get(chat.status, "queued")
        if chat.status == "completed":
            outcome = await self._outcome(chat.id)
            if outcome is None:  # deleted meanwhile
                return None
            state = state_of(outcome)
        return ChatStatus(
            id=chat.id,
            state=state,
            agent=fields.agent,
            key=fields.key,
            conversation=fields.conversation,
            created=chat.created.timestamp(),
            ended=None if chat.ended is None else chat.ended.timestamp(),
        )

    async def queues(self) -> list[str]:
        sql = (
            "SELECT DISTINCT target_service_name AS key FROM sys_invocation "
            "WHERE target_service_ty = 'workflow' AND target_handler_name = 'run'"
        )
        return sorted(row.key for row in await self.rows(_Text, sql))

    async def counts(self) -> Counts:
        groups = await self.rows(
            _Group,
            "SELECT status, count(*) AS chats, min(created_at) AS created FROM sys_invocation "
            f"WHERE target_service_name = {quoted(self.name)} AND target_handler_name = 'run' "
            "GROUP BY status",
        )
        chats = {group.status: group.chats for group in groups}
        waiting = [group for group in groups if group.status in ("pending", "scheduled", "ready")]
        ages = [(datetime.now(group.created.tzinfo) - group.created) for group in waiting]
        return Counts(
            queued=sum(group.chats for group in waiting),
            oldest=max((age.total_seconds() for age in ages), default=0.0),
            running=chats.get("running", 0),
            resting=chats.get("suspended", 0) + chats.get("backing-off", 0),
            quarantined=chats.get("paused", 0),
        )

    async def _journal(self, chat: _Chat) -> list[tuple[float, Any]]:
        entries = await self.rows(
            _Entry,
            "SELECT appended_at AS at, entry_json AS entry FROM sys_journal "
            f"WHERE id = {quoted(chat.invocation)} ORDER BY index",
        )
        return [(entry.at.timestamp(), msgspec.json.decode(entry.entry)) for entry in entries]

    async def record(self, id: str) -> Record:
        chat = await self._chat(id)
        outcome = await self._outcome(id) if chat.status == "completed" else None
        journal = await self._journal(chat)
        steps = steps_of(journal)
        batches = [(at, data) for at, data in steps if is_batch(data)]
        at_key = f"service_name = {quoted(self.name)} AND service_key = {quoted(id)}"
        questions = await self.rows(
            _Text,
            f"SELECT key, value_utf8 AS text FROM state WHERE {at_key} "
            "AND key LIKE 'question/%' ORDER BY key",
        )
        promises = await self.rows(
            _Text,
            "SELECT key, completion_success_value_utf8 AS text FROM sys_promise "
            f"WHERE {at_key} AND completed",
        )
        promise = {row.key: row.text for row in promises}
        requests = await self.rows(
            _Invocation,
            "SELECT id, created_at AS created FROM sys_invocation "
            f"WHERE target_service_name = {quoted(self.name)} AND target_handler_name = 'abort' "
            f"AND target_service_key = {quoted(id)} ORDER BY created_at LIMIT 1",
        )
        created = chat.created.timestamp()
        ended = None if chat.ended is None else chat.ended.timestamp()
        aborted = requests[0].created.timestamp() if requests else ended or created
        times = times_of(journal)
        return Record(
            id=id,
            created=created,
            aborted=aborted if "abort" in promise else None,
            abort=promise.get("abort"),
            ended=ended,
            state=None if outcome is None else state_of(outcome),
            outcome=outcome,
            input=input_of(chat.entry),
            lives=list(lives_of(steps)),
            batches=batches,
            questions=[
                (
                    request := row.key.removeprefix("question/"),
                    row.text or "",
                    times.get(row.key, created),
                    promise.get(f"answer/{request}"),
                    times.get(f"answer/{request}", ended or created),
                )
                for row in questions
            ],
            messages=messages_of(promise),
        )

    # ── what operators do ───────────────────────────────────────────────────────────────────

    async def discard(self, id: str, outcome: str, state: State) -> bool:
        """Pause or kill a job that no life holds; False if one does, or if it is over."""
        chat = await self._chat(id)
        if chat.status in ("running", "completed"):
            return False
        action, status = ("kill", "completed") if state == "aborted" else ("pause", "paused")
        if chat.status == status:
            return True
        return await self.act(chat.invocation, action) and await self._until(id, status)

    async def retry(self, id: str) -> bool:
        """Resume a paused job, and take its deaths back; False if it is not paused."""
        chat = await self._chat(id)
        if chat.status != "paused":
            return False
        steps = enumerate(steps_of(await self._journal(chat)), 1)
        if deaths := [number for number, (_, data) in steps if death_in(data) is not None]:
            await self.undo(id, deaths)
        return await self.act(chat.invocation, "resume")

    async def delete(self, id: str) -> bool:
        """Delete a job that is over, and the answers to it; False if it is not over."""
        if (await self._chat(id)).status != "completed":
            return False
        names = f"{quoted(self.name)}, {quoted(self.name + '-answers')}"
        invocations = await self.rows(
            _Invocation,
            f"SELECT id, created_at AS created FROM sys_invocation WHERE status = 'completed' "
            f"AND target_service_name IN ({names}) AND target_service_key = {quoted(id)}",
        )
        for invocation in invocations:
            await self.act(invocation.id, "purge")
        return True

    async def forget(self, conversation: str) -> int:
        total = 0
        for status in await self.chats(Query(conversation=conversation, limit=2**31)):
            if status.conversation == conversation and status.state != "running":
                if status.state not in _OVER:
                    await self.discard(status.id, "", "aborted")
                total += await self.delete(status.id)
        return total

    async def cleanup(self, before: float) -> int:
        total = 0
        where = f"AND i.status = 'completed' AND i.completed_at < {_time(before)}"
        while True:
            chats = await self._select(where)
            for chat in chats:
                total += await self.delete(chat.id)
            if len(chats) < _PAGE:
                return total

    async def drain(self) -> NoReturn:
        """Raise UsageError: Restate calls its workers by itself."""
        raise UsageError(
            f"chats of {self.name!r} cannot be drained on Restate; stop its workers, and Restate "
            "continues their chats once a worker is back"
        )

    async def resume(self) -> NoReturn:
        """Raise UsageError: nothing was drained."""
        raise UsageError(
            f"chats of {self.name!r} cannot be drained on Restate; start a worker to continue them"
        )


def _time(at: float) -> str:
    return f"to_timestamp_millis({int(at * 1000)})"


def _matches(query: Query, fields: Fields) -> bool:
    return (
        query.agent in (None, fields.agent)
        and query.key in (None, fields.key)
        and (fields.conversation or "").startswith(query.conversation or "")
    )
