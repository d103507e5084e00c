"""Conversations as rows: the statements that write and read them.

Damaged data is never skipped: a row that cannot be read raises an error that names it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

import msgspec
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from hookline import Message, read_message
from hookline.errors import ConversationConflictError, StoreError
from hookline.storage import Change, PendingStep, after_prefix
from hookline.stores._schema import BYTEWISE, CONVERSATION, MESSAGE

T = TypeVar("T")
C, M = CONVERSATION.c, MESSAGE.c
PIECE: Final = 512  # messages to read before other tasks of the event loop can run
_step: Final = msgspec.json.Decoder(PendingStep)
_meta: Final = msgspec.json.Decoder(dict[str, Any])


def _parameter(name: str, column: sa.Column[Any]) -> sa.BindParameter[Any]:
    return sa.bindparam(name, type_=column.type)


def in_range(prefix: str, dialect: str) -> list[sa.ColumnElement[bool]]:
    """The conditions on a conversation whose id begins with `prefix`: a range of an index."""
    if not prefix:
        return []
    id = sa.collate(C.id, BYTEWISE[dialect])
    above = after_prefix(prefix)
    return [id >= prefix, *([] if above is None else [id < above])]


# The number of messages of a conversation, as a part of a statement about the conversation.
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
_MESSAGE: Final = {
    "conversation_id": _parameter("id_", C.id),
    "seq": _parameter("seq_", M.seq),
    "id": _parameter("message_id", M.id),
    "role": _parameter("role_", M.role),
    "body": _parameter("body_", M.body),
    "created": _parameter("now_", M.created),
}
INSERT: Final = MESSAGE.insert().values(_MESSAGE)
APPEND: Final = MESSAGE.insert().from_select(
    list(_MESSAGE),
    sa.select(*_MESSAGE.values())
    .where(
        C.id == _MESSAGE["conversation_id"],
        C.owner == _parameter("owner_", C.owner),
        C.revision == _parameter("revision_", C.revision),
        _MESSAGE["seq"] == NEXT,
    )
    .with_for_update(read=True),  # PostgreSQL: no other owner can take the lease in between
)
# Add to an account that is below its limit. No row is returned for an account at its limit.
SPEND: Final = sa.text(
    "INSERT INTO hookline_account (id, total) VALUES (:account, :amount) "
    "ON CONFLICT (id) DO UPDATE SET total = hookline_account.total + excluded.total "
    "WHERE CAST(:limit AS DOUBLE PRECISION) IS NULL "
    "OR hookline_account.total < CAST(:limit AS DOUBLE PRECISION) "
    "RETURNING total"
)
# The messages of a conversation from a place on, with the columns of the conversation's row.
BODY: Final = (
    sa.select(M.seq, M.body, C.revision, C.messages)
    .select_from(
        CONVERSATION.outerjoin(
            MESSAGE, sa.and_(C.id == M.conversation_id, M.seq >= _parameter("from_", M.seq))
        )
    )
    .where(C.id == _parameter("id_", C.id))
    .order_by(M.seq)
    .limit(PIECE)
)
FIND: Final = sa.select(C.revision, C.owner, NEXT.label("at")).where(
    C.id == _parameter("id_", C.id)
)


def row_of(conversation_id: str, seq: int, message: Message, now: float) -> dict[str, Any]:
    """A message as the parameters of APPEND and INSERT."""
    return {
        "id_": conversation_id,
        "seq_": seq,
        "message_id": message.id or None,
        "role_": message.role,
        "body_": message.to_json().decode(),
        "now_": now,
    }


async def version_after(
    connection: AsyncConnection, conversation_id: str, owner: str, expected: int, again: bool
) -> int:
    """Return the new version of a change that found another version than `expected`.

    An earlier, uncertain attempt may have written it: only the owner can do that. Otherwise, raises
    ConversationConflictError with the stored version.
    """
    row = (await connection.execute(FIND, {"id_": conversation_id})).one_or_none()
    version = None if row is None else row.revision + row.at
    if again and row is not None and (version, row.owner) == (expected + 1, owner):
        return expected + 1
    raise ConversationConflictError(conversation_id, expected, version)


async def lock(
    connection: AsyncConnection, conversation_id: str, owner: str, expected: int
) -> int | None:
    """Lock a conversation's row; returns its number of messages, None if it is not as expected."""
    rows = sa.select(C.id).where(C.id == conversation_id).with_for_update()
    await connection.execute(rows)
    row = (await connection.execute(FIND, {"id_": conversation_id})).one_or_none()
    if row is None or (row.revision + row.at, row.owner) != (expected, owner):
        return None
    count: int = row.at
    return count


async def write(
    connection: AsyncConnection, conversation_id: str, change: Change, count: int, now: float
) -> None:
    """Write a change to a conversation that is locked and has `count` messages."""
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
        values["waits"] = int(step is not None and bool(step.unbegun))
    await connection.execute(CONVERSATION.update().where(C.id == conversation_id).values(values))
    rows = [
        row_of(conversation_id, count + place, message, now)
        for place, message in enumerate(change.messages)
    ]
    if rows:
        await connection.execute(INSERT, rows)


# ── reading ─────────────────────────────────────────────────────────────────────────────────


async def messages_of(
    connection: AsyncConnection, conversation_id: str, revision: int
) -> tuple[Message, ...] | None:
    """Read the messages of a conversation; None if its revision has changed meanwhile.

    The messages are read in pieces, because a driver makes all rows of a result at once. Other
    tasks can run after each piece. Raises StoreError if a message is damaged or missing.
    """
    messages: list[Message] = []
    while True:
        where = {"id_": conversation_id, "from_": len(messages)}
        piece = (await connection.execute(BODY, where)).all()
        if not piece or piece[0].revision != revision:
            return None
        _read_piece(conversation_id, piece, messages)
        if len(piece) < PIECE:
            if len(messages) < piece[0].messages:
                raise _damaged(conversation_id, f"message {len(messages)}", "it is missing")
            return tuple(messages)


def _read_piece(conversation_id: str, piece: Sequence[Any], messages: list[Message]) -> None:
    """Add the messages of these rows."""
    for row in piece:
        if row.seq is None:
            return  # there are no more messages
        place = len(messages)
        if row.seq != place:
            raise _damaged(conversation_id, f"message {place}", "it is missing")
        messages.append(_decoded(conversation_id, f"message {place}", read_message, row.body))


def meta_of(conversation_id: str, text: Any) -> dict[str, Any]:
    """Decode the meta of a conversation."""
    return _decoded(conversation_id, "meta", _meta.decode, text)


def pending_of(conversation_id: str, text: Any) -> PendingStep | None:
    """Decode the step that waits, or the last one that was answered."""
    return None if text is None else _decoded(conversation_id, "pending", _step.decode, text)


def _decoded(conversation_id: str, what: str, decode: Callable[[Any], T], text: Any) -> T:
    try:
        return decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, TypeError) as exc:
        raise _damaged(conversation_id, what, str(exc)) from exc


def _damaged(conversation_id: str, what: str, why: str) -> StoreError:
    return StoreError(
        f"conversation {conversation_id!r}: {what} is damaged in the store ({why}). Nothing was "
        "changed; restore the row from a backup, or delete the conversation"
    )


async def spend(
    account: str, amount: float, limit: float | None, connection: AsyncConnection, again: bool
) -> float | None:
    """Add to an account; return the new total, or None if the account is at its limit."""
    if limit is not None and limit <= 0:
        return None  # the statement would still create the account
    values = {"account": account, "amount": float(amount), "limit": limit}
    total: Any = (await connection.execute(SPEND, values)).scalar_one_or_none()
    return None if total is None else float(total)  # SQLite returns 5 for 5.0
