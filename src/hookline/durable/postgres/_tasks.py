"""Durable chats as tasks of Absurd, which stores them in PostgreSQL: all statements on its tables.

A chat is a task; its id is the idempotency key, and the task's name has the name of its agent. All
that belongs to a chat is a checkpoint of its task, so that a clean-up of the events loses nothing:
the batches of its log (`log/0`, `log/1`), its questions, and the messages of clients (`answer/<id>`
and `abort`). Whoever writes such a message holds the lock of the chat's run, and wakes the run if
it sleeps. A claim is ours while it contains our name: each writing transaction checks this with the
row locked, so the late writes of a suspended worker are refused. The headers of a task count the
deaths of its lives.
"""

from __future__ import annotations

import asyncio
import json
import math
import time
from collections.abc import AsyncGenerator, Iterable, Mapping, Set
from contextlib import asynccontextmanager, suppress
from contextvars import Context
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from hookline.durable._extra import needed
from hookline.durable._job import agent_of, encode_outcome
from hookline.durable._polled.deaths import deaths_after, delay, outcome_of
from hookline.durable._polled.queue import Taken
from hookline.durable._status import HEAD, ChatStatus, Query
from hookline.errors import RemoteChatError, StoreError, UsageError
from hookline.storage import shown_url

_TASK: Final = "hookline.chat"
_LOCK: Final = 0x686F6F6B  # the lock for the preparation
_SILENCE: Final = 30.0  # seconds after which a server that does not answer counts as lost
_SWEEP: Final = 100  # lapsed claims to look at in one turn
_CLEANED: Final = 1000  # chats to delete in one transaction
_LONGEST: Final = 300  # characters of the server's words in an error
_OVER: Final = ("completed", "failed", "cancelled")


def _task_of(agent: str | None) -> str:
    """Return the name of the tasks for an agent; None: for any agent."""
    return _TASK if agent is None else f"{_TASK}:{agent}"


def _deaths(headers: str | None) -> int:
    return int(json.loads(headers or "{}").get("deaths", 0))


class _Run:
    """A task that this worker has claimed, with the messages of its clients."""

    def __init__(self, id: str, task: Any, run: Any) -> None:
        self.id = id
        self.task = task
        self.run = run
        self.batches = 0
        self.put: set[str] = set()  # questions already stored
        self.answers: dict[str, str] = {}
        self.abort: str | None = None

    @property
    def expected(self) -> list[str]:
        """The names of the messages that clients may still send."""
        names = [f"answer/{request}" for request in self.put if request not in self.answers]
        return names if self.abort is not None else [*names, "abort"]

    def hear(self, name: str, text: str) -> None:
        """Process a message."""
        if name == "abort":
            self.abort = text
        else:
            self.answers[name.removeprefix("answer/")] = text


@asynccontextmanager
async def _within(pool: Any) -> AsyncGenerator[Any]:
    """Open a connection in a transaction, and drop the connection if the server falls silent."""
    connection = await pool.acquire(timeout=_SILENCE)
    # A time limit of asyncpg itself would wait for the server, to cancel the statement there.
    timer = asyncio.get_running_loop().call_later(_SILENCE, connection.terminate, context=Context())
    try:
        async with connection.transaction():
            yield connection
    finally:
        timer.cancel()
        with suppress(TimeoutError):  # the pool has then dropped the connection
            await pool.release(connection, timeout=_SILENCE)


class Jobs:
    """The chats in one queue of a database."""

    def __init__(self, url: str, queue: str, poll: float, lease: int = 3) -> None:
        scheme, _, rest = url.partition(":")
        if scheme.partition("+")[0] not in ("postgres", "postgresql"):
            raise UsageError(
                f"{shown_url(url)!r} is not the URL of a database; use postgresql://user@host/name"
            )
        if not queue.isidentifier():
            raise UsageError(f"queue={queue!r} must consist of letters, digits and '_'")
        self._asyncpg = needed("asyncpg")
        self._absurdctl = needed("absurdctl")
        self._errors = (
            self._asyncpg.PostgresError,
            self._asyncpg.InterfaceError,
            self._asyncpg.InternalClientError,  # a connection broke during a statement
        )
        self._url = f"postgresql:{rest}"
        self._exists = False  # the queue, as far as we know
        self._queue = queue
        self._poll = poll
        self._lease = lease
        self._pool: Any = None
        self._opening = asyncio.Lock()
        self._runs: dict[str, _Run] = {}  # by owner
        self._taken = 0
        self._beaten = -math.inf
        self._foreign: set[str] = set()  # chats of other agents whose task does not name the agent

    # ── the database ────────────────────────────────────────────────────────────────────────

    @asynccontextmanager
    async def _transaction(self) -> AsyncGenerator[Any]:
        """Open a connection in a transaction. Raises StoreError."""
        try:
            pool = self._pool or await self._open()
            async with _within(pool) as connection:
                yield connection
        except (OSError, *self._errors) as exc:
            raise self._explained(exc) from exc

    def _explained(self, exc: Exception) -> StoreError:
        """Return the error with the server's words, and without the password."""
        name, words = shown_url(self._url), " ".join(str(exc).split()) or type(exc).__name__
        if password := unquote(urlsplit(self._url).password or ""):
            words = words.replace(password, "…")
        words = words[:_LONGEST]
        connection = self._asyncpg.PostgresConnectionError
        stopping = self._asyncpg.OperatorInterventionError
        broken = (ConnectionResetError, BrokenPipeError, connection, stopping, *self._errors[1:])
        if isinstance(exc, broken):
            return StoreError(f"{name}: the connection was cut ({words}); try again")
        if isinstance(exc, OSError):
            return StoreError(
                f"{name}: the server cannot be reached ({words}); check that it runs, and that the "
                "host and port are right"
            )
        return StoreError(
            f"{name}: the database refused the operation ({words}); check that the database "
            "exists, and that its user may write"
        )

    async def _open(self) -> Any:
        async with self._opening:
            if self._pool is None:
                # The timer of an idle connection would keep the context of its last chat alive.
                pool = await self._asyncpg.create_pool(
                    self._url, min_size=0, max_size=8, max_inactive_connection_lifetime=0
                )
                self._pool = pool
            return self._pool

    async def _make_ready(self) -> None:
        """Create Absurd's schema and our queue, unless they exist."""
        if self._exists:
            return
        async with self._transaction() as it:
            await it.execute("SELECT pg_advisory_xact_lock($1)", _LOCK)
            if await it.fetchval("SELECT to_regnamespace('absurd') IS NULL"):
                await it.execute(self._absurdctl.BUNDLED_SCHEMA_SQL)
            queues = "SELECT true FROM absurd.queues WHERE queue_name = $1"
            if not await it.fetchval(queues, self._queue):
                await it.execute("SELECT absurd.create_queue($1)", self._queue)
        self._exists = True

    def _table(self, kind: str) -> str:
        return f'absurd."{kind}_{self._queue}"'

    async def aclose(self) -> None:
        """Close the connections. The next call opens them again."""
        if self._pool is not None:
            for owner, run in list(self._runs.items()):  # claimed, but not started
                with suppress(StoreError):  # another worker takes it after its lease
                    await self.leave(run.id, owner)
        self._exists = False
        pool, self._pool = self._pool, None
        if pool is not None:
            with suppress(TimeoutError):  # the pool has then dropped its connections
                async with asyncio.timeout(_SILENCE):
                    await pool.close()

    async def _hear(self, runs: list[_Run], it: Any) -> None:
        """Process the new messages to these chats."""
        by_task = {run.task: run for run in runs}
        names = [(run.task, name) for run in runs for name in run.expected]
        rows = await it.fetch(
            f"SELECT task_id, checkpoint_name, state FROM {self._table('c')} "
            "WHERE (task_id, checkpoint_name) IN (SELECT * FROM unnest($1::uuid[], $2::text[]))",
            [task for task, _ in names],
            [name for _, name in names],
        )
        for row in rows:
            by_task[row["task_id"]].hear(row["checkpoint_name"], json.loads(row["state"]))

    async def _tell(self, it: Any, task: Any, messages: Mapping[str, str]) -> None:
        """Store messages to a chat whose run is locked, unless they exist, and wake the chat."""
        await it.execute(
            f"INSERT INTO {self._table('c')} (task_id, checkpoint_name, state) "
            "SELECT $1, name, state FROM unnest($2::text[], $3::jsonb[]) _ (name, state) "
            "ON CONFLICT DO NOTHING",
            task,
            list(messages),
            # As text in JSON, because JSONB would change some values.
            [json.dumps(text) for text in messages.values()],
        )
        await it.execute(
            f"UPDATE {self._table('r')} SET available_at = absurd.current_time() "
            "WHERE task_id = $1 AND state = 'sleeping'",
            task,
        )

    async def _locked(self, it: Any, id: str) -> Any:
        """Lock the run of a chat, and return its task. Raises UsageError for an unknown chat."""
        row = await self._find(it, id)
        if row is None:
            raise self._unknown(id)
        await it.execute(  # the run before the task, in the order of Absurd
            f"SELECT 1 FROM {self._table('r')} WHERE task_id = $1 "
            "AND state IN ('pending', 'running', 'sleeping') ORDER BY run_id FOR UPDATE",
            row["task_id"],
        )
        return await self._find(it, id)

    async def _find(self, it: Any, id: str) -> Any:
        """Return a chat's task; None if there is none, or no queue."""
        if not self._exists:
            query = "SELECT to_regclass($1) IS NOT NULL"
            self._exists = await it.fetchval(query, self._table("t"))
            if not self._exists:
                return None
        return await it.fetchrow(
            "SELECT task_id, state, completed_payload, headers "
            f"FROM {self._table('t')} WHERE idempotency_key = $1",
            id,
        )

    # ── of clients ──────────────────────────────────────────────────────────────────────────

    async def add(self, id: str, job: str) -> None:
        options = json.dumps({"idempotency_key": id, "retry_strategy": {"kind": "none"}})
        await self._make_ready()
        async with self._transaction() as it:
            await it.execute(
                "SELECT absurd.spawn_task($1, $2, $3, $4)",
                self._queue,
                _task_of(agent_of(job)),
                json.dumps(job),
                options,
            )

    def _unknown(self, id: str) -> UsageError:
        return UsageError(
            f"there is no durable chat {id!r} in {shown_url(self._url)}, queue={self._queue!r}; "
            "start it first"
        )

    async def result(self, id: str) -> str:
        while True:
            async with self._transaction() as it:
                row = await self._find(it, id)
            if row is None:
                raise self._unknown(id)
            if row["state"] in _OVER:
                return self._outcome(id, row)
            await asyncio.sleep(self._poll)

    def _outcome(self, id: str, row: Any) -> str:
        if row["state"] == "completed":
            return str(json.loads(row["completed_payload"]))
        if row["state"] == "failed" and (deaths := _deaths(row["headers"])):
            return outcome_of(id, deaths)
        error = RemoteChatError(id, "Cancelled", f"its task was {row['state']} in Absurd")
        return encode_outcome(id, error)

    async def questions(self, id: str) -> list[str]:
        async with self._transaction() as it:
            row = await self._find(it, id)
            if row is None:
                raise self._unknown(id)
            if row["state"] in _OVER:
                return []
            return list((await self._questions(it, row["task_id"])).values())

    async def _questions(self, it: Any, task: Any) -> dict[str, str]:
        """Return the questions that wait for an answer, by their ids."""
        rows = await it.fetch(
            f"SELECT checkpoint_name, state FROM {self._table('c')} q "
            "WHERE task_id = $1 AND starts_with(checkpoint_name, 'question/') AND NOT EXISTS ("
            f"SELECT 1 FROM {self._table('c')} a WHERE a.task_id = $1 "
            "AND a.checkpoint_name = 'answer/' || substr(q.checkpoint_name, 10)"
            ") ORDER BY updated_at",
            task,
        )
        return {
            row["checkpoint_name"].removeprefix("question/"): json.loads(row["state"])
            for row in rows
        }

    async def answer(self, id: str, answers: dict[str, str]) -> str | None:
        async with self._transaction() as it:
            row = await self._locked(it, id)
            if row["state"] in _OVER:
                return next(iter(answers), None)
            known = await self._questions(it, row["task_id"])
            for request in answers:
                if request not in known:
                    return request
            await self._tell(
                it, row["task_id"], {f"answer/{request}": text for request, text in answers.items()}
            )
            return None

    async def abort(self, id: str, reason: str) -> bool:
        async with self._transaction() as it:
            row = await self._locked(it, id)
            if row["state"] in _OVER:
                return False
            await self._tell(it, row["task_id"], {"abort": reason})
            return True

    async def discard(self, id: str, outcome: str) -> bool:
        """Store the outcome of a chat that no life holds; False if one does, or if it is over."""
        async with self._transaction() as it:
            row = await self._locked(it, id)
            if row["state"] in ("completed", "cancelled"):
                return False
            held = await it.fetchval(
                f"SELECT true FROM {self._table('r')} WHERE task_id = $1 AND state = 'running' "
                "AND claim_expires_at > absurd.current_time()",
                row["task_id"],
            )
            if held:
                return False
            await it.execute(
                f"UPDATE {self._table('r')} SET state = 'completed', claimed_by = NULL, "
                "completed_at = absurd.current_time() WHERE run_id = ("
                f"SELECT run_id FROM {self._table('r')} WHERE task_id = $1 "
                "ORDER BY attempt DESC LIMIT 1)",
                row["task_id"],
            )
            await it.execute(
                f"UPDATE {self._table('t')} SET state = 'completed', completed_payload = $2 "
                "WHERE task_id = $1",
                row["task_id"],
                json.dumps(outcome),
            )
            return True

    async def chats(self, query: Query) -> list[ChatStatus]:
        async with self._transaction() as it:
            if await self._find(it, "") is None and not self._exists:
                return []
            rows = await it.fetch(
                self._list,
                query.id,
                query.state,
                query.agent and _task_of(query.agent),
                query.before,
                query.limit,
            )
        return [
            ChatStatus(
                id=row["id"],
                state=row["state"],
                agent=agent_of(json.loads(row["params"])),
                created=row["created"],
                deaths=_deaths(row["headers"]),
            )
            for row in rows
        ]

    @property
    def _list(self) -> str:
        t, c = self._table("t"), self._table("c")
        return f"""
            SELECT * FROM (
                SELECT t.idempotency_key AS id, t.task_name, t.params, t.headers,
                extract(epoch FROM t.enqueue_at)::float8 AS created,
                CASE WHEN t.state = 'completed' THEN CASE
                    WHEN left(t.completed_payload #>> '{{}}', {HEAD}) LIKE '%"chat_done"%'
                    THEN 'done'
                    WHEN left(t.completed_payload #>> '{{}}', {HEAD}) LIKE '%"chat_aborted"%'
                    THEN 'aborted' ELSE 'failed' END
                WHEN t.state = 'failed' AND coalesce((t.headers->>'deaths')::int, 0) > 0
                THEN 'quarantined'
                WHEN t.state IN ('failed', 'cancelled') THEN 'failed'
                WHEN t.state = 'running' THEN 'running'
                WHEN EXISTS (
                    SELECT 1 FROM {c} q WHERE q.task_id = t.task_id
                    AND starts_with(q.checkpoint_name, 'question/') AND NOT EXISTS (
                        SELECT 1 FROM {c} a WHERE a.task_id = t.task_id
                        AND a.checkpoint_name = 'answer/' || substr(q.checkpoint_name, 10)))
                THEN 'waiting' ELSE 'queued' END AS state
                FROM {t} t WHERE t.idempotency_key IS NOT NULL
                AND ($1::text IS NULL OR t.idempotency_key = $1)
            ) _ WHERE ($2::text IS NULL OR state = $2) AND ($3::text IS NULL OR task_name = $3)
            AND ($4::float8 IS NULL OR created < $4) ORDER BY created LIMIT $5
        """

    async def retry(self, id: str) -> bool:
        async with self._transaction() as it:
            row = await self._locked(it, id)
            if row["state"] != "failed" or not _deaths(row["headers"]):
                return False
            await it.execute("SELECT absurd.retry_task($1, $2)", self._queue, row["task_id"])
            await self._note(it, row["task_id"], {"deaths": 0, "lapsed": None})
            await it.execute(
                f"UPDATE {self._table('t')} SET max_attempts = NULL WHERE task_id = $1",
                row["task_id"],
            )
            return True

    async def delete(self, id: str) -> bool:
        async with self._transaction() as it:
            row = await self._locked(it, id)
            if row["state"] not in _OVER:
                return False
            await self._delete(it, [row["task_id"]])
            return True

    async def _delete(self, it: Any, tasks: list[Any]) -> None:
        for kind in "wcrt":
            table = self._table(kind)
            await it.execute(f"DELETE FROM {table} WHERE task_id = ANY($1::uuid[])", tasks)

    async def cleanup(self, before: float) -> int:
        count = 0
        async with self._transaction() as it:
            if await self._find(it, "") is None and not self._exists:
                return 0
        while True:
            async with self._transaction() as it:
                rows = await it.fetch(
                    f"SELECT t.task_id FROM {self._table('t')} t "
                    f"LEFT JOIN {self._table('r')} r ON r.run_id = t.last_attempt_run "
                    "WHERE t.state IN ('completed', 'cancelled') AND t.idempotency_key IS NOT NULL "
                    "AND coalesce(r.completed_at, t.cancelled_at) < to_timestamp($1) LIMIT $2",
                    before,
                    _CLEANED,
                )
                await self._delete(it, [row["task_id"] for row in rows])
            count += len(rows)
            if len(rows) < _CLEANED:
                return count

    # ── of workers ──────────────────────────────────────────────────────────────────────────

    async def take(
        self,
        worker: str,
        limit: int,
        refused: Set[str],
        agent: str | None = None,
        max_deaths: int = 5,
    ) -> list[Taken]:
        await self._make_ready()
        names = [_task_of(None)] if agent is None else [_task_of(None), _task_of(agent)]
        async with self._transaction() as it:
            await self._sweep(it, names, agent is None, max_deaths)
        first, self._taken = self._taken, self._taken + limit
        async with self._transaction() as it:
            rows = await it.fetch(
                self._claim,
                names,
                agent is None,
                [*refused, *self._foreign],
                limit,
                worker,
                first,
                self._lease,
            )
            runs = [_Run(row["id"], row["task_id"], row["run_id"]) for row in rows]
            await self._hear(runs, it)
        taken: list[Taken] = []
        for row, run in zip(rows, runs, strict=True):
            job, owner = json.loads(row["params"]), row["owner"]
            self._runs[owner] = run
            if agent is None or agent_of(job) in (None, agent):
                taken.append(Taken(run.id, owner, job, run.abort, _deaths(row["headers"])))
            else:  # stored when tasks did not name their agents
                self._foreign.add(run.id)
                await self.leave(run.id, owner)
        return taken

    @property
    def _claim(self) -> str:
        """The one statement that claims tasks of these names, each for an owner of its own."""
        t, r, c = (self._table(kind) for kind in "trc")
        return f"""
            WITH candidate AS (
                SELECT r.run_id FROM {r} r JOIN {t} t ON t.task_id = r.task_id
                WHERE r.state IN ('pending', 'sleeping')
                AND t.state IN ('pending', 'sleeping', 'running')
                AND r.available_at <= absurd.current_time()
                AND (t.task_name = ANY($1::text[]) OR $2) AND t.idempotency_key <> ALL($3::text[])
                ORDER BY r.available_at, r.run_id LIMIT $4 FOR UPDATE OF r SKIP LOCKED
            ), numbered AS (
                SELECT run_id, $5::text || '.' || ($6::bigint + row_number() OVER ()) AS owner
                FROM candidate
            ), claimed AS (
                UPDATE {r} r SET state = 'running', claimed_by = n.owner, wake_event = NULL,
                claim_expires_at = absurd.current_time() + make_interval(secs => $7),
                started_at = absurd.current_time(), available_at = absurd.current_time()
                FROM numbered n WHERE r.run_id = n.run_id
                RETURNING r.run_id, r.task_id, r.attempt, n.owner
            )
            UPDATE {t} t SET state = 'running', attempts = greatest(t.attempts, claimed.attempt),
            first_started_at = coalesce(t.first_started_at, absurd.current_time()),
            last_attempt_run = claimed.run_id,
            headers = coalesce(t.headers, '{{}}') || jsonb_build_object(
                'begun', CASE WHEN coalesce((t.headers->>'deaths')::int, 0) = 0
                         THEN claimed.owner END,
                'batches', (SELECT count(*) FROM {c} c WHERE c.task_id = t.task_id
                            AND starts_with(c.checkpoint_name, 'log/')))
            FROM claimed WHERE t.task_id = claimed.task_id
            RETURNING claimed.run_id, t.task_id, t.idempotency_key AS id, claimed.owner, t.params,
            t.headers
        """

    async def _sweep(self, it: Any, names: list[str], everyone: bool, max_deaths: int) -> None:
        """End the runs whose claims have lapsed, and count the deaths of their lives."""
        rows = await it.fetch(
            "SELECT r.run_id, r.claimed_by, r.attempt, t.task_id, t.headers "
            f"FROM {self._table('r')} r JOIN {self._table('t')} t ON t.task_id = r.task_id "
            "WHERE r.state = 'running' AND r.claim_expires_at <= absurd.current_time() "
            "AND (t.task_name = ANY($1::text[]) OR $2) "
            "ORDER BY r.claim_expires_at, r.run_id LIMIT $3 FOR UPDATE OF r SKIP LOCKED",
            names,
            everyone,
            _SWEEP,
        )
        for row in rows:
            known = json.loads(row["headers"] or "{}")
            deaths, lapsed = known.get("deaths", 0), None
            if known.get("begun") == row["claimed_by"]:
                log = await self._log(it, row["task_id"], known["batches"])
                deaths, lapsed = deaths_after(deaths, log), row["claimed_by"]
            over = deaths >= max_deaths
            await it.execute(
                f"UPDATE {self._table('t')} SET headers = coalesce(headers, '{{}}') || $2, "
                "max_attempts = CASE WHEN $3 THEN $4::int END WHERE task_id = $1",
                row["task_id"],
                json.dumps({"deaths": deaths, "lapsed": lapsed}),
                over,
                row["attempt"],
            )
            await it.execute(
                "SELECT absurd.fail_run($1, $2, $3, "
                "absurd.current_time() + make_interval(secs => $4))",
                self._queue,
                row["run_id"],
                json.dumps({"name": "$ClaimTimeout", "workerId": row["claimed_by"]}),
                delay(deaths),
            )

    async def _log(self, it: Any, task: Any, first: int) -> list[bytes]:
        """Return the batches of a log, from this number on."""
        rows = await it.fetch(
            f"SELECT state FROM {self._table('c')} WHERE task_id = $1 "
            "AND starts_with(checkpoint_name, 'log/') "
            'ORDER BY checkpoint_name COLLATE "C" OFFSET $2',
            task,
            first,
        )
        return [json.loads(row["state"]).encode() for row in rows]

    async def others(self, agent: str) -> set[str]:
        async with self._transaction() as it:
            rows = await it.fetch(
                "SELECT DISTINCT task_name FROM (SELECT t.task_name "
                f"FROM {self._table('r')} r JOIN {self._table('t')} t ON t.task_id = r.task_id "
                "WHERE r.state = 'pending' AND t.task_name <> ALL($1::text[]) LIMIT 100) _",
                [_task_of(None), _task_of(agent)],
            )
        return {row["task_name"].removeprefix(_task_of("")) for row in rows}

    async def _note(self, it: Any, task: Any, facts: Mapping[str, object]) -> None:
        """Note facts about the lives of a chat."""
        await it.execute(
            f"UPDATE {self._table('t')} SET headers = coalesce(headers, '{{}}') || $2 "
            "WHERE task_id = $1",
            task,
            json.dumps(facts),
        )

    async def begin(self, id: str, owner: str) -> None:
        async with self._transaction() as it:
            if await self._held(it, [owner]):
                await self._note(it, self._runs[owner].task, {"begun": owner})

    async def clear(self, id: str, owner: str) -> None:
        async with self._transaction() as it:
            if await self._held(it, [owner]):
                await self._note(it, self._runs[owner].task, {"deaths": 0})

    async def lost(self, id: str, owner: str) -> None:
        async with self._transaction() as it:
            row = await self._locked(it, id)
            known = json.loads(row["headers"] or "{}")
            if known.get("lapsed") == owner and row["state"] not in _OVER:
                deaths = max(0, known.get("deaths", 0) - 1)
                await self._note(it, row["task_id"], {"deaths": deaths, "lapsed": None})
        self._runs.pop(owner, None)

    async def _held(self, it: Any, owners: Iterable[str]) -> list[str]:
        """Return the owners that still have their claims, and lock the claims until we commit."""
        runs = [self._runs[owner].run for owner in owners if owner in self._runs]
        rows = await it.fetch(
            f"SELECT run_id, claimed_by FROM {self._table('r')} "
            "WHERE run_id = ANY($1::uuid[]) AND state = 'running' ORDER BY run_id FOR UPDATE",
            runs,
        )
        return [row["claimed_by"] for row in rows if row["claimed_by"] in self._runs]

    async def beat(self, owners: list[str]) -> dict[str, str | None]:
        now = time.monotonic()
        async with self._transaction() as it:
            held = await self._held(it, owners)
            runs = {owner: self._runs[owner] for owner in held}  # some may end while we wait
            if now - self._beaten >= self._lease / 4:
                await it.execute(
                    "SELECT absurd.extend_claim($1, run, $3) FROM unnest($2::uuid[]) run",
                    self._queue,
                    [run.run for run in runs.values()],
                    self._lease,
                )
                self._beaten = now
            await self._hear(list(runs.values()), it)
        return {owner: run.abort for owner, run in runs.items()}

    async def aborted(self, id: str, owner: str) -> None:
        """Do nothing: a later life requests the abort again, and it counts only once."""

    async def read(self, id: str, owner: str) -> list[bytes]:
        run = self._runs[owner]
        async with self._transaction() as it:
            batches = await self._log(it, run.task, 0)
        run.batches = len(batches)
        return batches

    async def _checkpoint(self, it: Any, run: _Run, name: str, text: str) -> None:
        await it.execute(
            "SELECT absurd.set_task_checkpoint_state($1, $2, $3, $4, $5, $6)",
            self._queue,
            run.task,
            name,
            json.dumps(text),
            run.run,
            self._lease,
        )

    async def append(self, id: str, owner: str, data: bytes) -> bool:
        async with self._transaction() as it:
            if not await self._held(it, [owner]):
                return False
            run = self._runs[owner]
            await self._checkpoint(it, run, f"log/{run.batches:08}", data.decode())
        run.batches += 1
        return True

    async def ask(
        self, id: str, owner: str, request: str, body: str, default: str | None
    ) -> str | None:
        run = self._runs[owner]
        if request not in run.put:
            async with self._transaction() as it:
                if await self._held(it, [owner]):
                    await self._checkpoint(it, run, f"question/{request}", body)
            run.put.add(request)
            async with self._transaction() as it:  # an earlier life may have asked
                await self._hear([run], it)
        if request not in run.answers and default is not None:
            async with self._transaction() as it:
                await self._locked(it, id)
                await self._tell(it, run.task, {f"answer/{request}": default})
                await self._hear([run], it)
        return run.answers.get(request)

    async def rest(self, id: str, owner: str, requests: list[str], wake: float | None) -> bool:
        async with self._transaction() as it:
            if not await self._held(it, [owner]):
                return False
            run = self._runs[owner]
            await self._hear([run], it)
            if run.abort is not None or any(request in run.answers for request in requests):
                return False
            await it.execute(
                "SELECT absurd.schedule_run($1, $2, "
                "coalesce(to_timestamp($3::double precision), 'infinity'))",
                self._queue,
                run.run,
                wake,
            )
        return True

    async def leave(self, id: str, owner: str, delay: float = 0.0) -> None:
        async with self._transaction() as it:
            if await self._held(it, [owner]):
                await it.execute(
                    "SELECT absurd.schedule_run($1, $2, "
                    "absurd.current_time() + make_interval(secs => $3))",
                    self._queue,
                    self._runs[owner].run,
                    delay,
                )
        self._runs.pop(owner, None)

    async def finish(self, id: str, owner: str, outcome: str) -> None:
        async with self._transaction() as it:
            if await self._held(it, [owner]):
                await it.execute(
                    "SELECT absurd.complete_run($1, $2, $3)",
                    self._queue,
                    self._runs[owner].run,
                    json.dumps(outcome),
                )
        self._runs.pop(owner, None)
