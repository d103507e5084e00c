"""Durable chats as tasks of Absurd, which stores them in PostgreSQL: all statements on its tables.

A chat is a task; its id is the idempotency key. Each batch of its log is a checkpoint: `log/0`,
`log/1`. Messages from clients to a chat (answers and aborts) are events `<chat>/0`, `<chat>/1`, in
the order in which the clients held a lock. A chat that only waits sleeps until its next event. A
claim is ours while it contains our name: each writing transaction checks this with the row locked,
so the late writes of a suspended worker are refused.
"""

from __future__ import annotations

import asyncio
import json
import math
import time
from collections.abc import AsyncGenerator, Iterable, Set
from contextlib import asynccontextmanager, suppress
from contextvars import Context
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from hookline.durable._extra import needed
from hookline.durable._job import agent_of, encode_outcome
from hookline.durable._jobs import Ours, Taken, any_agent
from hookline.errors import RemoteChatError, StoreError, UsageError
from hookline.storage import shown_url

_TASK: Final = "hookline.chat"
_LOCK: Final = 0x686F6F6B  # the lock for the preparation
_SILENCE: Final = 30.0  # seconds after which a server that does not answer counts as lost
_LOOK_AHEAD: Final = 4  # events to query at once
_LONGEST: Final = 300  # characters of the server's words in an error
_OVER: Final = ("completed", "failed", "cancelled")


class _Run:
    """A task that this worker has claimed, with the messages of its clients."""

    def __init__(self, id: str, task: Any, run: Any) -> None:
        self.id = id
        self.task = task
        self.run = run
        self.batches = 0
        self.put: set[str] = set()  # questions already stored
        self.mails = 0
        self.answers: dict[str, str] = {}
        self.abort: str | None = None

    def hear(self, number: int, mail: dict[str, Any]) -> None:
        """Process the event of this number, unless another reader has processed it meanwhile."""
        if number < self.mails:
            return
        self.mails += 1
        for request, decision in mail.get("answers", {}).items():
            self.answers.setdefault(request, decision)
        if self.abort is None:
            self.abort = mail.get("abort")


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

    async def _mails(self, it: Any, id: str, run: _Run) -> None:
        """Process all messages from clients to a chat."""
        while True:
            names = [f"{id}/{run.mails + n}" for n in range(_LOOK_AHEAD)]
            before = run.mails
            for number, mail in enumerate(await self._emitted(it, names), before):
                run.hear(number, mail)
            if run.mails - before < _LOOK_AHEAD:
                return

    async def _emitted(self, it: Any, names: list[str]) -> list[dict[str, Any]]:
        rows = await it.fetch(
            f"SELECT event_name, payload FROM {self._table('e')} "
            "WHERE event_name = ANY($1) AND payload IS NOT NULL",
            names,
        )
        found = {row["event_name"]: json.loads(json.loads(row["payload"])) for row in rows}
        return [found[name] for name in names if name in found]

    async def _tell(self, it: Any, id: str, run: _Run, mail: dict[str, Any]) -> None:
        """Send a message to a chat, under its lock and after all earlier messages."""
        payload = json.dumps(json.dumps(mail))  # as text, because JSONB would change some values
        number = run.mails
        name = f"{id}/{number}"
        await it.execute("SELECT absurd.emit_event($1, $2, $3)", self._queue, name, payload)
        run.hear(number, mail)

    async def _locked(self, it: Any, id: str) -> tuple[Any, _Run] | None:
        """Lock a chat's task, and read its messages; None if there is no such task."""
        name = f"{self._queue}/{id}"
        await it.execute("SELECT pg_advisory_xact_lock(hashtextextended($1, 0))", name)
        row = await self._find(it, id)
        if row is None:
            return None
        run = _Run(id, row["task_id"], None)
        await self._mails(it, id, run)
        return row, run

    async def _find(self, it: Any, id: str) -> Any:
        """Return a chat's task; None if there is none, or no queue."""
        if not self._exists:
            query = "SELECT to_regclass($1) IS NOT NULL"
            self._exists = await it.fetchval(query, self._table("t"))
            if not self._exists:
                return None
        return await it.fetchrow(
            "SELECT task_id, state, completed_payload "
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
                _TASK,
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
            if row["state"] == "completed":
                return str(json.loads(row["completed_payload"]))
            if row["state"] in _OVER:
                error = RemoteChatError(id, "Cancelled", f"its task was {row['state']} in Absurd")
                return encode_outcome(id, error)
            await asyncio.sleep(self._poll)

    async def questions(self, id: str) -> list[str]:
        async with self._transaction() as it:
            row = await self._find(it, id)
            if row is None:
                raise self._unknown(id)
            if row["state"] in _OVER:
                return []
            run = _Run(id, row["task_id"], None)
            await self._mails(it, id, run)
            bodies = await self._questions(it, run)
        return [body for request, body in bodies.items() if request not in run.answers]

    async def _questions(self, it: Any, run: _Run) -> dict[str, str]:
        rows = await it.fetch(
            f"SELECT checkpoint_name, state FROM {self._table('c')} "
            "WHERE task_id = $1 AND starts_with(checkpoint_name, 'question/') ORDER BY updated_at",
            run.task,
        )
        return {
            row["checkpoint_name"].removeprefix("question/"): json.loads(row["state"])
            for row in rows
        }

    async def answer(self, id: str, answers: dict[str, str]) -> str | None:
        async with self._transaction() as it:
            found = await self._locked(it, id)
            if found is None:
                raise self._unknown(id)
            if found[0]["state"] in _OVER:
                return next(iter(answers), None)
            run = found[1]
            known = await self._questions(it, run)
            for request in answers:
                if request not in known or request in run.answers:
                    return request
            if answers:
                await self._tell(it, id, run, {"answers": answers})
            return None

    async def abort(self, id: str, reason: str) -> bool:
        async with self._transaction() as it:
            found = await self._locked(it, id)
            if found is None:
                raise self._unknown(id)
            if found[0]["state"] in _OVER:
                return False
            if found[1].abort is None:
                await self._tell(it, id, found[1], {"abort": reason})
            return True

    # ── of workers ──────────────────────────────────────────────────────────────────────────

    async def take(
        self, worker: str, limit: int, refused: Set[str], ours: Ours = any_agent
    ) -> list[Taken]:
        """Claim free tasks; each claim contains our name. Leave those of other agents."""
        await self._make_ready()
        taken: list[Taken] = []
        while len(taken) < limit:
            self._taken += 1
            owner = f"{worker}.{self._taken}"
            async with self._transaction() as it:
                row = await it.fetchrow(
                    "SELECT run_id, task_id, params FROM absurd.claim_task($1, $2, $3, 1)",
                    self._queue,
                    owner,
                    self._lease,
                )
                if row is None:
                    return taken
                # A separate statement: a combined one would not see a brand-new task.
                id = await it.fetchval(
                    f"SELECT idempotency_key FROM {self._table('t')} WHERE task_id = $1",
                    row["task_id"],
                )
                run = self._runs[owner] = _Run(id, row["task_id"], row["run_id"])
                await self._mails(it, run.id, run)
            job = json.loads(row["params"])
            if run.id in refused or not ours(agent_of(job)):
                await self.leave(run.id, owner, self._lease)
            else:
                taken.append(Taken(run.id, owner, job))
        return taken

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

    async def _hear(self, runs: list[_Run], it: Any) -> None:
        """Process the next new message for each of these chats."""
        by_name = {f"{run.id}/{run.mails}": (run, run.mails) for run in runs}
        rows = await it.fetch(
            f"SELECT event_name, payload FROM {self._table('e')} "
            "WHERE event_name = ANY($1) AND payload IS NOT NULL",
            list(by_name),
        )
        for row in rows:
            run, number = by_name[row["event_name"]]
            run.hear(number, json.loads(json.loads(row["payload"])))

    async def aborted(self, id: str, owner: str) -> None:
        """Do nothing: a later life requests the abort again, and it counts only once."""

    async def read(self, id: str, owner: str) -> list[bytes]:
        run = self._runs[owner]
        async with self._transaction() as it:
            rows = await it.fetch(
                f"SELECT state FROM {self._table('c')} WHERE task_id = $1 "
                "AND starts_with(checkpoint_name, 'log/') ORDER BY checkpoint_name COLLATE \"C\"",
                run.task,
            )
        run.batches = len(rows)
        return [json.loads(row["state"]).encode() for row in rows]

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
        if request not in run.answers and default is not None:
            async with self._transaction() as it:
                found = await self._locked(it, id)
                if found is not None and request not in found[1].answers:
                    await self._tell(it, id, found[1], {"answers": {request: default}})
                await self._mails(it, id, run)
        return run.answers.get(request)

    async def rest(self, id: str, owner: str, requests: list[str], wake: float | None) -> bool:
        async with self._transaction() as it:
            if not await self._held(it, [owner]):
                return False
            run = self._runs[owner]
            await self._mails(it, id, run)
            if run.abort is not None or any(request in run.answers for request in requests):
                return False
            suspended: bool = await it.fetchval(
                "SELECT should_suspend FROM absurd.await_event($1, $2, $3, $4, $5, $6)",
                self._queue,
                run.task,
                run.run,
                f"mail/{run.mails}",
                f"{id}/{run.mails}",
                None if wake is None else max(0, math.ceil(wake - time.time())),
            )
        return suspended

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
