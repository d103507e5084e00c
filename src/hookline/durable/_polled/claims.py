"""Which jobs a worker claims, and what becomes of the jobs of dead workers: the transactions."""

from __future__ import annotations

import math
from typing import Final, NamedTuple

from hookline.durable._polled.database import Database, Statement, Work
from hookline.durable._shared.deaths import MAX_DEATHS, TRIAL, Toll, outcome_of
from hookline.durable._shared.same_machine import is_gone
from hookline.durable._urls import Policy
from hookline.errors import UsageError

READY: Final = "queue = $1 AND outcome IS NULL AND owner IS NULL AND NOT resting"
FIRST: Final = "ORDER BY priority DESC, created"  # and so by the index of the ready jobs
LAPSED: Final = "queue = $1 AND owner IS NOT NULL AND NOT HELD()"
_SWEEP: Final = 1000  # lapsed claims to look at in one turn
_WAKE: Final = 1000  # resting chats to wake in one turn
DRAINED: Final = "EXISTS (SELECT 1 FROM hookline_job_drain d WHERE d.queue = $1)"
MINE: Final = "(agent IS NULL OR CAST($2 AS text) IS NULL OR agent = $2)"
# A worker that pins runs the chats that began with its version, or have not begun.
FIT: Final = (
    f"{READY} AND {MINE} AND (CAST($3 AS text) IS NULL OR version IS NULL OR version = $3) "
    f"AND id <> ALL($4) AND NOT {DRAINED}"
)
ONE_DEATH_LESS: Final = (
    "deaths = CASE WHEN deaths > 0 THEN deaths - 1 ELSE 0 END, "
    "stalls = CASE WHEN stalls > 0 THEN stalls - 1 ELSE 0 END"
)
_RECORDS: Final = (
    "SELECT id, data, at FROM hookline_job_log WHERE queue = $1 AND id = ANY($2) ORDER BY id, n"
)
_ENDINGS: Final = (
    "SELECT id, ending FROM hookline_job_life WHERE queue = $1 AND id = ANY($2) "
    "AND ended IS NOT NULL ORDER BY ended"
)
_JOBS: Final = (
    "SELECT id, owner, input, abort, deaths, stalls, suspect, trace, answers FROM hookline_job "
    "WHERE queue = $1 AND id = ANY($2)"
)
_LAPSED_JOBS: Final = (
    "SELECT j.id, j.owner, deaths, stalls, suspect, counts, batches, coalesce((SELECT at "
    "FROM hookline_job_log g WHERE g.queue = j.queue AND g.id = j.id AND g.n >= batches "
    "ORDER BY n DESC LIMIT 1), began) FROM hookline_job j JOIN hookline_job_life l "
    "ON l.queue = j.queue AND l.id = j.id AND l.owner = j.owner "
    f"WHERE j.queue = $1 AND j.id IN (SELECT id FROM hookline_job WHERE {LAPSED} AND {MINE} "
    "ORDER BY owner LIMIT $3 FOR UPDATE SKIP LOCKED)"
)


class _Lapsed(NamedTuple):
    """A job whose claim has lapsed."""

    id: str
    owner: str
    deaths: int
    stalls: int
    suspect: str | None
    counts: bool
    """Whether its life has died."""
    batches: int
    """Of the record, when the life began."""
    last: float
    """When the life recorded something for the last time."""


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
    """The weight of its deaths."""
    last: float | None = None
    """When a suspect recorded something for the last time, which counts as begun once `begin` is
    called; None: it is not a suspect."""
    ending: str | None = None
    """How the last life ended; None: there was none."""
    trace: str | None = None
    """The trace context of whoever started or answered the chat."""


class Claims:
    """The transactions by which a worker gets its jobs."""

    def __init__(self, queue: str, database: Database, lease: float) -> None:
        self._queue = queue
        self._database = database
        self._lease = lease

    def claim(
        self, prefix: str, limit: int, fit: tuple[object, ...], selection: Selection
    ) -> Work[list[tuple[Claim, int]]]:
        """Claim ready jobs; returns them, each with the number of messages with answers.

        They are either suspects, which come first, or none of them is a suspect.
        """
        ids = yield from self._choose("suspect IS NOT NULL", limit, fit, selection.per_key)
        if not ids:
            ids = yield from self._choose("suspect IS NULL", limit, fit, selection.per_key)
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
            "WHERE l.queue = j.queue AND l.id = j.id), suspect IS NULL "
            "FROM hookline_job j WHERE queue = $1 AND id = ANY($2)",
            at,
        )
        batches: dict[str, list[bytes]] = {id: [] for id in ids}
        times = dict.fromkeys(ids, math.inf)  # nothing is recorded: it may be the begin that kills
        for id, data, time in (yield Statement(_RECORDS, at)):
            batches[id].append(bytes(data))
            times[id] = time
        endings = {row[0]: row[1] for row in (yield Statement(_ENDINGS, at))}
        claims: dict[str, tuple[Claim, int]] = {}
        for row in (yield Statement(_JOBS, at)):
            id, owner, job, abort, deaths, stalls, suspect, trace, answers = row
            strikes = max(Toll(deaths, stalls).strikes, min(deaths, 1))
            last = None if suspect is None else times[id]
            claim = Claim(id, owner, job, batches[id], abort, strikes, last, endings.get(id), trace)
            claims[id] = claim, answers
        return [claims[id] for id in ids]

    def _choose(
        self, which: str, limit: int, fit: tuple[object, ...], per_key: int | None
    ) -> Work[list[str]]:
        """Return the next ready jobs, locked; at most `per_key` of each key run then."""
        where, values = f"{FIT} AND {which}", (self._queue, *fit, limit)
        running: dict[str, int] = {}
        if per_key is not None:
            if self._database.lock is not None:  # others would count the same running jobs
                yield Statement(self._database.lock, (self._queue,))
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

    async def end_those_of_the_gone(self) -> None:
        """Let the claims of workers lapse whose processes are known to be gone."""
        sql = "SELECT id, owner FROM hookline_job WHERE queue = $1 AND owner IS NOT NULL"
        rows = await self._database.fetch(sql, self._queue, reads=True)
        claims = [row for row in rows if is_gone(worker_of(row[1], self._database.boot))]
        if claims:
            ids, owners = zip(*claims, strict=True)
            sql = (
                "UPDATE hookline_job SET lease = 0 "
                "WHERE queue = $1 AND id = ANY($2) AND owner = ANY($3)"
            )
            await self._database.fetch(sql, self._queue, list(ids), list(owners))

    def sweep(self, selection: Selection) -> Work[list[tuple[str, int]]]:
        """Free the jobs whose claims have lapsed, and count the deaths of their lives.

        Returns the jobs that were quarantined, with their deaths.
        """
        quarantined: list[tuple[str, int]] = []
        workers: dict[str, list[_Lapsed]] = {}
        for row in (yield Statement(_LAPSED_JOBS, (self._queue, selection.agent, _SWEEP))):
            job = _Lapsed(*row)
            workers.setdefault(worker_of(job.owner, self._database.boot), []).append(job)
        for worker, jobs in workers.items():
            dead = [job for job in jobs if job.counts]
            since = max((job.last for job in dead), default=0.0) - TRIAL
            for job in jobs:
                if job.counts:
                    toll = yield from self._bury(worker, job, since, selection.max_deaths)
                    if toll.strikes >= selection.max_deaths:
                        quarantined.append((job.id, toll.deaths))
                else:
                    yield from self._free(job, job.suspect, Toll(job.deaths, job.stalls), "lapsed")
            if dead and all(job.suspect is not None for job in dead):
                yield from self._clear_others([job.id for job in dead])
        return quarantined

    def _bury(self, worker: str, job: _Lapsed, since: float, max_deaths: int) -> Work[Toll]:
        """Count the death of a life; only one with a record after `since` is a suspect at once."""
        sql = "SELECT data FROM hookline_job_log WHERE queue = $1 AND id = $2 AND n >= $3"
        rows = yield Statement(sql, (self._queue, job.id, job.batches))
        toll = Toll(job.deaths, job.stalls).after(bytes(row[0]) for row in rows)
        is_suspect = job.last >= since or toll.strikes > 1
        yield from self._free(job, worker if is_suspect else None, toll, "died")
        if toll.strikes >= max_deaths:
            sql = (
                "UPDATE hookline_job SET resting = FALSE, wake = NULL, outcome = $3, "
                "state = 'quarantined', ended = TIME() WHERE queue = $1 AND id = $2"
            )
            yield Statement(sql, (self._queue, job.id, outcome_of(job.id, toll.deaths)))
        return toll

    def _free(self, job: _Lapsed, suspect: str | None, toll: Toll, ending: str) -> Work[None]:
        """Take a job from its life; it is ready after the delay of its deaths."""
        sql = (
            "UPDATE hookline_job SET owner = NULL, lease = NULL, deaths = $3, stalls = $4, "
            "resting = CAST($5 AS double precision) > 0, "
            "wake = CASE WHEN CAST($5 AS double precision) > 0 THEN TIME() + $5 END, "
            "suspect = $6 WHERE queue = $1 AND id = $2"
        )
        yield Statement(sql, (self._queue, job.id, toll.deaths, toll.stalls, toll.delay, suspect))
        yield ending_of(self._queue, job.id, job.owner, ending)

    def _clear_others(self, ids: list[str]) -> Work[None]:
        """One of these suspects has died again: take back the deaths of those it died with."""
        sql = (
            "SELECT owner FROM hookline_job_life "
            "WHERE queue = $1 AND id = ANY($2) AND ending = 'died'"
        )
        rows = yield Statement(sql, (self._queue, ids))
        workers = list({worker_of(row[0], self._database.boot) for row in rows})
        sql = (
            f"UPDATE hookline_job SET suspect = NULL, {ONE_DEATH_LESS} "
            "WHERE queue = $1 AND id <> ALL($2) AND suspect = ANY($3) AND outcome IS NULL"
        )
        yield Statement(sql, (self._queue, ids, workers))


def worker_of(owner: str, boot: str) -> str:
    """Return the name of the worker in the token of a life."""
    return owner.removeprefix(boot).partition(".")[0]


def ending_of(queue: str, id: str, owner: str, ending: str) -> Statement:
    """Return the statement that notes how a life ended."""
    return Statement(
        "UPDATE hookline_job_life SET ended = TIME(), ending = $4 "
        "WHERE queue = $1 AND id = $2 AND owner = $3",
        (queue, id, owner, ending),
    )


def forgiven(place: str) -> str:
    """Return the assignments that forget the deaths of a job if the parameter is true."""
    flag = f"CAST({place} AS boolean)"
    values = {"deaths": "0", "stalls": "0", "suspect": "NULL"}
    assignments = [f"{k} = CASE WHEN {flag} THEN {v} ELSE {k} END" for k, v in values.items()]
    return ", ".join(assignments)
