"""Which jobs a worker claims, and what becomes of the jobs of dead workers: the transactions."""

from __future__ import annotations

from collections.abc import Generator
from typing import Final, NamedTuple

from hookline.durable._polled.database import Row, Statement, Work
from hookline.durable._polled.deaths import MAX_DEATHS, Toll, outcome_of
from hookline.durable._urls import Policy
from hookline.errors import UsageError

READY: Final = "queue = $1 AND outcome IS NULL AND owner IS NULL AND NOT resting"
FIRST: Final = "ORDER BY priority DESC, created"  # and so by the index of the ready jobs
LAPSED: Final = "queue = $1 AND owner IS NOT NULL AND NOT HELD()"
_SWEEP: Final = 100  # lapsed claims to look at in one turn
_WAKE: Final = 1000  # resting chats to wake in one turn
DRAINED: Final = "EXISTS (SELECT 1 FROM hookline_job_drain d WHERE d.queue = $1)"
_MINE: Final = "(agent IS NULL OR CAST($2 AS text) IS NULL OR agent = $2)"
# A worker that pins runs the chats that began with its version, or have not begun.
FIT: Final = (
    f"{READY} AND {_MINE} AND (CAST($3 AS text) IS NULL OR version IS NULL OR version = $3) "
    f"AND id <> ALL($4) AND NOT {DRAINED}"
)


_RECORDS: Final = (
    "SELECT id, data FROM hookline_job_log WHERE queue = $1 AND id = ANY($2) ORDER BY id, n"
)
_ENDINGS: Final = (
    "SELECT id, ending FROM hookline_job_life WHERE queue = $1 AND id = ANY($2) "
    "AND ended IS NOT NULL ORDER BY ended"
)
_JOBS: Final = (
    "SELECT id, owner, input, abort, deaths, stalls, trace, answers FROM hookline_job "
    "WHERE queue = $1 AND id = ANY($2)"
)


class Selection(NamedTuple):
    """The jobs that a worker takes."""

    agent: str | None = None
    """The agent of the jobs; None: any."""
    version: str | None = None
    """The version of the worker's code, which is recorded for each life."""
    pin: bool = False
    """Whether to take only jobs that have begun with this version, or have not begun."""
    per_key: int | None = None
    """The most jobs of one key that run at once, in all workers."""
    max_deaths: int = MAX_DEATHS
    """The strikes after which a job is quarantined."""

    @property
    def pinned(self) -> str | None:
        """The only version whose jobs are taken; None: all."""
        return self.version if self.pin else None


ANY: Final = Selection()


def selection_of(
    version: str | None, policy: Policy, per_key: int | None, max_deaths: int
) -> Selection:
    """Return what a worker with these options takes. Raises UsageError for a wrong option."""
    if policy not in ("upgrade", "pin"):
        raise UsageError(f"policy={policy!r} must be 'upgrade' or 'pin'")
    if policy == "pin" and version is None:
        raise UsageError(f"policy={policy!r} needs version=; pass the version of your code")
    if max_deaths < 1:
        raise UsageError(f"max_deaths={max_deaths!r} must be at least 1")
    if per_key is not None and per_key < 1:
        raise UsageError(f"per_key={per_key!r} must be at least 1, or None")
    return Selection(version=version, pin=policy == "pin", per_key=per_key, max_deaths=max_deaths)


class Claim(NamedTuple):
    """A job that this worker has claimed for a life."""

    id: str
    owner: str
    job: str
    batches: list[bytes]
    """The record."""
    abort: str | None = None
    """The reason of the requested abort, as JSON."""
    strikes: int = 0
    """The weight of its deaths; a job with strikes counts as begun once `begin` is called."""
    ending: str | None = None
    """How the last life ended; None: there was none."""
    trace: str | None = None
    """The trace context of whoever started or answered the chat."""


class Claims:
    """The transactions by which a worker gets its jobs."""

    def __init__(self, queue: str, lock: str | None, lease: float) -> None:
        self._queue = queue
        self._lock = lock
        self._lease = lease

    def claim(
        self, prefix: str, limit: int, fit: tuple[object, ...], selection: Selection
    ) -> Generator[Statement, list[Row], list[tuple[Claim, int]]]:
        """Claim ready jobs; returns them, each with the number of messages with answers."""
        ids = yield from self._choose(limit, fit, selection.per_key)
        if not ids:
            return []
        at = (self._queue, ids)
        yield Statement(
            "UPDATE hookline_job SET owner = CAST($3 AS text) || id, lease = CLOCK() + $4, "
            "version = coalesce($5, version) WHERE queue = $1 AND id = ANY($2)",
            (*at, prefix, self._lease, selection.version),
        )
        yield Statement(
            "INSERT INTO hookline_job_life (queue, id, owner, version, began, batches, counts) "
            "SELECT queue, id, owner, version, TIME(), (SELECT count(*) FROM hookline_job_log l "
            "WHERE l.queue = j.queue AND l.id = j.id), deaths = 0 "
            "FROM hookline_job j WHERE queue = $1 AND id = ANY($2)",
            at,
        )
        batches: dict[str, list[bytes]] = {id: [] for id in ids}
        for id, data in (yield Statement(_RECORDS, at)):
            batches[id].append(bytes(data))
        endings = {row[0]: row[1] for row in (yield Statement(_ENDINGS, at))}
        claims: dict[str, tuple[Claim, int]] = {}
        for id, owner, job, abort, deaths, stalls, trace, answers in (yield Statement(_JOBS, at)):
            strikes = max(Toll(deaths, stalls).strikes, min(deaths, 1))
            ending = endings.get(id)
            claims[id] = Claim(id, owner, job, batches[id], abort, strikes, ending, trace), answers
        return [claims[id] for id in ids]

    def _choose(
        self, limit: int, fit: tuple[object, ...], per_key: int | None
    ) -> Generator[Statement, list[Row], list[str]]:
        """Return the next ready jobs, locked; at most `per_key` of each key run then."""
        where, values = FIT, (self._queue, *fit, limit)
        running: dict[str, int] = {}
        if per_key is not None:
            if self._lock is not None:  # others would count the same running jobs
                yield Statement(self._lock, (self._queue,))
            sql = (
                "SELECT key, count(*) FROM hookline_job WHERE queue = $1 AND owner IS NOT NULL "
                "AND key IS NOT NULL GROUP BY key"
            )
            running = {row[0]: row[1] for row in (yield Statement(sql, (self._queue,)))}
            where += " AND (key IS NULL OR key <> ALL($6))"
            values += ([key for key, count in running.items() if count >= per_key],)
        sql = (
            f"SELECT id, key FROM hookline_job WHERE {where} "
            f"{FIRST}, id LIMIT $5 FOR UPDATE SKIP LOCKED"
        )
        ids: list[str] = []
        for id, key in (yield Statement(sql, values)):
            if per_key is not None and key is not None:
                running[key] = running.get(key, 0) + 1
                if running[key] > per_key:
                    continue
            ids.append(id)
        return ids

    def wake(self) -> Work[None]:
        """Make the resting jobs ready whose time has come."""
        sql = (
            "SELECT id FROM hookline_job WHERE queue = $1 AND resting AND wake <= TIME() "
            "ORDER BY wake LIMIT $2 FOR UPDATE SKIP LOCKED"
        )
        ids = [row[0] for row in (yield Statement(sql, (self._queue, _WAKE)))]
        if ids:
            sql = (
                "UPDATE hookline_job SET resting = FALSE, wake = NULL "
                "WHERE queue = $1 AND id = ANY($2)"
            )
            yield Statement(sql, (self._queue, ids))

    def sweep(self, selection: Selection) -> Work[None]:
        """Free the jobs whose claims have lapsed, and count the deaths of their lives."""
        sql = (
            "SELECT id, owner, deaths, stalls FROM hookline_job "
            f"WHERE {LAPSED} AND {_MINE} LIMIT $3 FOR UPDATE SKIP LOCKED"
        )
        for id, owner, deaths, stalls in (
            yield Statement(sql, (self._queue, selection.agent, _SWEEP))
        ):
            sql = (
                "SELECT counts, batches FROM hookline_job_life "
                "WHERE queue = $1 AND id = $2 AND owner = $3"
            )
            [(counts, first)] = yield Statement(sql, (self._queue, id, owner))
            toll = Toll(deaths, stalls)
            if counts:
                sql = "SELECT data FROM hookline_job_log WHERE queue = $1 AND id = $2 AND n >= $3"
                rows = yield Statement(sql, (self._queue, id, first))
                toll = toll.after(bytes(row[0]) for row in rows)
            yield from self._free(id, owner, toll, "died" if counts else "lapsed")
            if counts and toll.strikes >= selection.max_deaths:
                sql = (
                    "UPDATE hookline_job SET resting = FALSE, wake = NULL, outcome = $3, "
                    "state = 'quarantined', ended = TIME() WHERE queue = $1 AND id = $2"
                )
                yield Statement(sql, (self._queue, id, outcome_of(id, toll.deaths)))

    def _free(self, id: str, owner: str, toll: Toll, ending: str) -> Work[None]:
        """Take a job from its life; it is ready after the delay of its deaths."""
        delay = toll.delay
        sql = (
            "UPDATE hookline_job SET owner = NULL, lease = NULL, deaths = $3, stalls = $4, "
            "resting = CAST($5 AS double precision) > 0, "
            "wake = CASE WHEN CAST($5 AS double precision) > 0 THEN TIME() + $5 END "
            "WHERE queue = $1 AND id = $2"
        )
        yield Statement(sql, (self._queue, id, toll.deaths, toll.stalls, delay))
        yield ending_of(self._queue, id, owner, ending)


def ending_of(queue: str, id: str, owner: str, ending: str) -> Statement:
    """Return the statement that notes how a life ended."""
    return Statement(
        "UPDATE hookline_job_life SET ended = TIME(), ending = $4 "
        "WHERE queue = $1 AND id = $2 AND owner = $3",
        (queue, id, owner, ending),
    )
