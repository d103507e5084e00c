"""The tables, and the migrations that create them.

Both dialects share one schema. A migration has a number and is frozen once it is released. It is
written in SQL that SQLite and PostgreSQL both accept, and runs in one transaction together with the
update of its number. A message is stored as the JSON that the core defines, unchanged.
"""

from __future__ import annotations

from typing import Final

import sqlalchemy as sa

_META: Final = sa.MetaData()

# The version is `revision` plus the number of messages. `beat` counts renewals of the lease, and
# `lease` is its duration in seconds. `messages` is the number of messages at the last release, so
# that lost messages are detected. `pending` is a PendingStep as JSON.
CONVERSATION: Final = sa.Table(
    "hookline_conversation",
    _META,
    sa.Column("id", sa.String(255), primary_key=True),
    sa.Column("revision", sa.BigInteger),
    sa.Column("messages", sa.BigInteger),
    sa.Column("meta", sa.Text),
    sa.Column("pending", sa.Text),
    sa.Column("waits", sa.Integer),
    sa.Column("owner", sa.Text),
    sa.Column("beat", sa.BigInteger),
    sa.Column("lease", sa.Double),
    sa.Column("expires", sa.Double),
    sa.Column("created", sa.Double),
    sa.Column("updated", sa.Double),
)

MESSAGE: Final = sa.Table(
    "hookline_message",
    _META,
    sa.Column("conversation_id", sa.String(255), primary_key=True),
    sa.Column("seq", sa.BigInteger, primary_key=True),
    sa.Column("id", sa.Text),
    sa.Column("role", sa.Text),
    sa.Column("body", sa.Text),
    sa.Column("created", sa.Double),
)

SCHEMA: Final = sa.Table("hookline_schema", _META, sa.Column("version", sa.BigInteger))

MIGRATIONS: Final[tuple[tuple[str, ...], ...]] = (
    (  # 1
        """CREATE TABLE hookline_conversation (
            id VARCHAR(255) NOT NULL PRIMARY KEY,
            revision BIGINT NOT NULL,
            meta TEXT NOT NULL,
            pending TEXT,
            waits INTEGER NOT NULL,
            owner TEXT,
            beat BIGINT NOT NULL,
            lease DOUBLE PRECISION,
            expires DOUBLE PRECISION,
            created DOUBLE PRECISION NOT NULL,
            updated DOUBLE PRECISION NOT NULL
        )""",
        """CREATE TABLE hookline_message (
            conversation_id VARCHAR(255) NOT NULL
                REFERENCES hookline_conversation (id) ON DELETE CASCADE,
            seq BIGINT NOT NULL,
            id TEXT,
            role TEXT NOT NULL,
            body TEXT NOT NULL,
            created DOUBLE PRECISION NOT NULL,
            PRIMARY KEY (conversation_id, seq),
            UNIQUE (conversation_id, id)
        )""",
        "CREATE INDEX hookline_conversation_updated ON hookline_conversation (updated)",
        "CREATE INDEX hookline_conversation_waits ON hookline_conversation (waits)",
    ),
    (  # 2
        "ALTER TABLE hookline_conversation ADD COLUMN messages BIGINT NOT NULL DEFAULT 0",
    ),
    (  # 3: the totals of `budget(ledger=store)`
        """CREATE TABLE hookline_account (
            id VARCHAR(255) NOT NULL PRIMARY KEY,
            total DOUBLE PRECISION NOT NULL
        )""",
    ),
    (  # 4: `list(prefix=…)` reads a range of this index
        "CREATE INDEX hookline_conversation_prefix "
        "ON hookline_conversation (id COLLATE {bytewise}, updated)",
    ),
)
BYTEWISE: Final = {"sqlite": "BINARY", "postgresql": "C"}
"""The collation that compares texts by their code points, in each dialect."""
LATEST: Final = len(MIGRATIONS)
LOCK: Final = 0x686F6F6B  # the PostgreSQL advisory lock that is held during a migration
