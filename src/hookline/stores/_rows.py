"""Conversations as rows: the statements that write them, and what is read from them.

What is damaged is never passed over: a row that cannot be read is an error that names it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Final, Protocol

import msgspec
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from hookline import Message, read_message
from hookline.errors import ConversationConflictError, StoreError
from hookline.storage import Change, PendingStep
from hookline.stores._schema import CONVERSATION, MESSAGE

C, M = CONVERSATION.c, MESSAGE.c
PIECE: Final = 256  # messages that are read before the event loop gets a turn
_step: Final = msgspec.json.Decoder(PendingStep)
_meta: Final = msgspec.json.Decoder(dict[str, Any])


def _parameter(name: str, column: sa.Column[Any]) -> sa.BindParameter[Any]:
    return sa.bindparam(name, type_=column.type)


# How many messages a conversation has, as a part of a statement about it.
COUNT: Final = (
    sa.select(sa.func.coalesce(sa.func.max(M.seq) + 1, 0))
    .where(M.conversation_id == C.id)
    .correlate(CONVERSATION)
    .scalar_subquery()
)
NEXT: Final = (
    sa.select(sa.func.coalesce(sa.func.max(M.seq) + 1, 0))
    .where(M.conversation_id == _parameter("id_", C.id))
    .scalar_subquery()
)
APPEND: Final = MESSAGE.insert().from_select(
    ["conversation_id", "seq", "id", "role", "body", "created"],
    sa.select(
        C.id,
        _parameter("seq_", M.seq),
        _parameter("message_id", M.id),
        _parameter("role_", M.role),
        _parameter("body_", M.body),
        _parameter("now_", M.created),
    )
    .where(
        C.id == _parameter("id_", C.id),
        C.owner == _parameter("owner_", C.owner),
        C.revision == _parameter("revision_", C.revision),
        _parameter("seq_", M.seq) == NEXT,
    )
    .with_for_update(read=True),  # PostgreSQL: nobody takes the lease in between
)
# All messages of a conversation, and what its own row says of them at that moment.
BODY: Final = (
    sa.select(M.seq, M.body, C.revision, C.messages)
    .select_from(CONVERSATION.outerjoin(MESSAGE, C.id == M.conversation_id))
    .where(C.id == _parameter("id_", C.id))
    .order_by(M.seq)
)
FIND: Final = sa.select(C.revision, C.owner, NEXT.label("at")).where(
    C.id == _parameter("id_", C.id)
)
INSERT: Final = MESSAGE.insert().values(
    conversation_id=_parameter("id_", C.id),
    seq=_parameter("seq_", M.seq),
    id=_parameter("message_id", M.id),
    role=_parameter("role_", M.role),
    body=_parameter("body_", M.body),
    created=_parameter("now_", M.created),
)


def row_of(conversation_id: str, seq: int, message: Message, now: float) -> dict[str, Any]:
    """A message as parameters of APPEND and INSERT."""
    return {
        "id_": conversation_id,
        "seq_": seq,
        "message_id": message.id or None,
        "role_": message.role,
        "body_": message.to_json().decode(),
        "now_": now,
    }


async def version_of(connection: AsyncConnection, conversation_id: str) -> tuple[int, str] | None:
    """The version and the owner that stand there."""
    found = (await connection.execute(FIND, {"id_": conversation_id})).one_or_none()
    return None if found is None else (found.revision + found.at, found.owner)


async def was_written(
    connection: AsyncConnection, conversation_id: str, owner: str, version: int
) -> bool:
    """Whether a try whose end was not seen had come to its end: only the owner counts up."""
    return await version_of(connection, conversation_id) == (version, owner)


async def conflict(
    connection: AsyncConnection, conversation_id: str, expected: int
) -> ConversationConflictError:
    """The error that tells what stands there instead."""
    found = await version_of(connection, conversation_id)
    version = None if found is None else found[0]
    return ConversationConflictError(conversation_id, expected, version)


async def lock(
    connection: AsyncConnection, conversation_id: str, owner: str, expected: int
) -> int | None:
    """Hold the row of a conversation; how many messages it has, None when it is not as expected."""
    held = sa.select(C.id).where(C.id == conversation_id).with_for_update()
    await connection.execute(held)
    found = (await connection.execute(FIND, {"id_": conversation_id})).one_or_none()
    if found is None or (found.revision + found.at, found.owner) != (expected, owner):
        return None
    count: int = found.at
    return count


async def write(
    connection: AsyncConnection, conversation_id: str, change: Change, count: int, now: float
) -> None:
    """Write a change into a conversation that is locked and has `count` messages."""
    if change.fresh:
        await connection.execute(MESSAGE.delete().where(M.conversation_id == conversation_id))
        count = 0
    after = count + len(change.messages)
    values: dict[str, Any] = {"revision": change.expected + 1 - after, "messages": after}
    if change.meta is not msgspec.UNSET:
        values["meta"] = msgspec.json.encode(change.meta).decode()
    if change.pending is not msgspec.UNSET:
        step = change.pending
        values["pending"] = None if step is None else step.to_json().decode()
        values["waits"] = int(step is not None and bool(step.waiting))
    await connection.execute(CONVERSATION.update().where(C.id == conversation_id).values(values))
    rows = [
        row_of(conversation_id, count + place, message, now)
        for place, message in enumerate(change.messages)
    ]
    if rows:
        await connection.execute(INSERT, rows)


# ── reading ─────────────────────────────────────────────────────────────────────────────────


class _Rows(Protocol):
    """A result of any columns, which SQLAlchemy 2.0 and 2.1 type differently."""

    def fetchmany(self, size: int, /) -> Sequence[Any]: ...


async def messages_of(
    conversation_id: str, rows: _Rows, revision: int
) -> tuple[Message, ...] | None:
    """The messages of these rows of BODY; None where they are of another revision.

    Raises StoreError where one is damaged or missing. The event loop gets its turns meanwhile.
    """
    found: list[Message] = []
    known = None
    while piece := rows.fetchmany(PIECE):
        if known is None:
            known = piece[0].messages
            if piece[0].revision != revision:
                return None
        else:
            await asyncio.sleep(0)
        for row in piece:
            if row.seq is None:
                break  # there is no message
            place = len(found)
            if row.seq != place:
                raise _damaged(conversation_id, f"message {place}", "it is missing")
            try:
                found.append(read_message(row.body))
            except (msgspec.DecodeError, UnicodeDecodeError, TypeError) as exc:
                raise _damaged(conversation_id, f"message {place}", str(exc)) from exc
    if known is not None and len(found) < known:
        raise _damaged(conversation_id, f"message {len(found)}", "it is missing")
    return None if known is None else tuple(found)


def meta_of(conversation_id: str, text: Any) -> dict[str, Any]:
    """The meta of a conversation."""
    try:
        return _meta.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, TypeError) as exc:
        raise _damaged(conversation_id, "meta", str(exc)) from exc


def pending_of(conversation_id: str, text: Any) -> PendingStep | None:
    """What waits there, or was answered last."""
    if text is None:
        return None
    try:
        return _step.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, TypeError) as exc:
        raise _damaged(conversation_id, "pending", str(exc)) from exc


def _damaged(conversation_id: str, what: str, why: str) -> StoreError:
    return StoreError(
        f"conversation {conversation_id!r}: {what} is damaged in the store ({why}). Nothing was "
        "changed; put the row back from a copy, or delete the conversation"
    )
