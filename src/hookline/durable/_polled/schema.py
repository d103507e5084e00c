"""The tables of SQLite and PostgreSQL, and the migrations that create them.

Both engines have the same tables. A migration is frozen once it is released; it is written in SQL
that both accept, and runs in one transaction together with the update of the version.

A job belongs to the life whose token is in `owner`, as long as `lease` is in the future. A resting
job waits until `wake`, or for an answer or an abort; nobody owns it. `answers` counts the messages
with answers. `deaths` counts the lives that died since one ended well, and `stalls` those in a row
that died without progress. `suspect` is the worker with which the last life of a suspect died; see
`_shared.deaths`. Workers take no job of a queue in `hookline_job_drain`. A life whose death
`counts` has begun and was not told to stop. The messages that were sent into a chat are numbered,
and have the ids that they get in the history; its log says which were delivered.
"""

from __future__ import annotations

from typing import Final

from hookline.errors import StoreError

MIGRATIONS: Final[tuple[tuple[str, ...], ...]] = (
    (
        """CREATE TABLE hookline_job (
            queue TEXT NOT NULL,
            id TEXT NOT NULL,
            input TEXT NOT NULL,
            agent TEXT,
            conversation TEXT,
            key TEXT,
            priority INTEGER NOT NULL,
            version TEXT,
            trace TEXT,
            owner TEXT,
            lease DOUBLE PRECISION,
            resting BOOLEAN NOT NULL DEFAULT FALSE,
            wake DOUBLE PRECISION,
            abort TEXT,
            aborted DOUBLE PRECISION,
            answers INTEGER NOT NULL DEFAULT 0,
            deaths INTEGER NOT NULL DEFAULT 0,
            stalls INTEGER NOT NULL DEFAULT 0,
            state TEXT,
            outcome TEXT,
            created DOUBLE PRECISION NOT NULL,
            ended DOUBLE PRECISION,
            PRIMARY KEY (queue, id)
        )""",
        """CREATE TABLE hookline_job_log (
            queue TEXT NOT NULL,
            id TEXT NOT NULL,
            n INTEGER NOT NULL,
            at DOUBLE PRECISION NOT NULL,
            data BYTEA NOT NULL,
            PRIMARY KEY (queue, id, n)
        )""",
        """CREATE TABLE hookline_job_question (
            queue TEXT NOT NULL,
            id TEXT NOT NULL,
            request TEXT NOT NULL,
            body TEXT NOT NULL,
            asked DOUBLE PRECISION NOT NULL,
            answer TEXT,
            answered DOUBLE PRECISION,
            PRIMARY KEY (queue, id, request)
        )""",
        """CREATE TABLE hookline_job_life (
            queue TEXT NOT NULL,
            id TEXT NOT NULL,
            owner TEXT NOT NULL,
            version TEXT,
            began DOUBLE PRECISION NOT NULL,
            batches INTEGER NOT NULL,
            counts BOOLEAN NOT NULL,
            ended DOUBLE PRECISION,
            ending TEXT,
            PRIMARY KEY (queue, id, owner)
        )""",
        "CREATE INDEX hookline_job_ready ON hookline_job (queue, priority DESC, created) "
        "WHERE outcome IS NULL AND owner IS NULL AND NOT resting",
        "CREATE INDEX hookline_job_resting ON hookline_job (queue, wake) WHERE resting",
        "CREATE INDEX hookline_job_owner ON hookline_job (queue, owner) WHERE owner IS NOT NULL",
        "CREATE INDEX hookline_job_ended ON hookline_job (queue, ended) WHERE ended IS NOT NULL",
        "CREATE INDEX hookline_job_quarantine ON hookline_job (queue, ended) "
        "WHERE state = 'quarantined'",
        "CREATE INDEX hookline_job_created ON hookline_job (created)",
        "CREATE INDEX hookline_job_conversation ON hookline_job (queue, conversation) "
        "WHERE conversation IS NOT NULL",
    ),
    ("CREATE TABLE hookline_job_drain (queue TEXT PRIMARY KEY, since DOUBLE PRECISION NOT NULL)",),
    (
        """CREATE TABLE hookline_job_message (
            queue TEXT NOT NULL,
            id TEXT NOT NULL,
            n INTEGER NOT NULL,
            body TEXT NOT NULL,
            sent DOUBLE PRECISION NOT NULL,
            PRIMARY KEY (queue, id, n)
        )""",
    ),
    (
        "ALTER TABLE hookline_job_message ADD COLUMN message TEXT",
        "CREATE UNIQUE INDEX hookline_job_message_once "
        "ON hookline_job_message (queue, id, message)",
    ),
    (
        "ALTER TABLE hookline_job ADD COLUMN suspect TEXT",
        "CREATE INDEX hookline_job_suspect ON hookline_job (queue) "
        "WHERE suspect IS NOT NULL AND outcome IS NULL",
    ),
)
VERSIONS: Final = "CREATE TABLE hookline_job_schema (version INTEGER NOT NULL)"
LATEST: Final = len(MIGRATIONS)


def migrations(place: str, version: int) -> list[str]:
    """Return the statements that bring tables of this version up to date.

    Raises StoreError for a newer version.
    """
    if version > LATEST:
        raise StoreError(
            f"{place}: its tables of durable chats have version {version}, but this version of "
            f"hookline reads only versions up to {LATEST}; install a newer hookline"
        )
    if version == LATEST:
        return []
    statements = [statement for migration in MIGRATIONS[version:] for statement in migration]
    if version == 0:
        statements.append(VERSIONS)
    return [
        *statements,
        "DELETE FROM hookline_job_schema",
        f"INSERT INTO hookline_job_schema (version) VALUES ({LATEST})",
    ]
