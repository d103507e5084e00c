"""The requests to a Restate server, over HTTP: to its ingress, and to its admin API.

Only the admin API knows the quarantined chats, so whoever waits for a result asks it too.
"""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

import msgspec

from hookline.durable._job import aborted_outcome, encode_outcome
from hookline.durable._shared.extra import needed
from hookline.durable._shared.outcome_waits import Waiters
from hookline.durable._status import Sending
from hookline.durable.restate._deaths import quarantine_in
from hookline.errors import RemoteChatError, StoreError, UsageError

T = TypeVar("T")
_NOT_READY: Final = 470  # Restate's own status: the workflow is running
_AGAIN: Final = 1.0  # seconds before an unreachable server is tried again
_LOOK: Final = 2.0  # seconds between two looks whether chats are quarantined
_SILENCE: Final = 30.0  # seconds without an answer before a request is given up, or asked again
_UNAVAILABLE: Final = (429, 502, 503, 504)  # of a server that starts, or of a proxy; not of a chat
_DENIED: Final = (401, 403)  # of a proxy
_NOT_FOUND: Final = HTTPStatus.NOT_FOUND.value
_KILLED: Final = "killed"  # Restate's own word, as the error of a workflow


class _Reply(msgspec.Struct, frozen=True):
    """The fields by which an answer of Restate is recognized."""

    event: str = ""  # in an outcome
    invocation: str = msgspec.field(default="", name="invocationId")  # in a receipt
    message: str = ""  # in an error
    source: str = ""  # of an error: the ingress, or a chat


_reply_decoder: Final = msgspec.json.Decoder(_Reply)


class _Paused(msgspec.Struct, frozen=True):
    """A chat that may be quarantined."""

    invocation: str
    id: str


class Failure(msgspec.Struct, frozen=True):
    """Why the last attempt of an invocation failed."""

    text: str | None = None


def quoted(text: str) -> str:
    """Return a text of SQL."""
    return "'" + text.replace("'", "''") + "'"


class Requests:
    """A client of a Restate server."""

    def __init__(self, url: str, name: str, headers: dict[str, str], admin: str | None) -> None:
        """`url` is the ingress, `name` the name of the workers, and `admin` the admin API.

        The default address of the admin API is port 9070 on the host of the ingress.
        """
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise UsageError(
                f"{url!r} is not the URL of a Restate server; use e.g. http://127.0.0.1:8080"
            )
        self._httpx = needed("httpx")
        self.url = url.rstrip("/")
        self.name = name
        host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
        self.admin = (admin or f"{parts.scheme}://{host}:9070").rstrip("/")
        self._headers = headers
        self._client: Any = None
        self._quarantined = Waiters(self._quarantines, _LOOK)

    async def ask(self, method: str, path: str, body: bytes | None = None) -> Any:
        """Send a request. Raises StoreError if the server is not reachable, or cannot answer now.

        Raises UsageError if a proxy denies the request.
        """
        if self._client is None:
            self._client = self._httpx.AsyncClient(timeout=_SILENCE, headers=self._headers)
        headers = {"accept": "application/json"}  # a query answers in another format otherwise
        if body is not None:
            headers["content-type"] = "application/json"
        try:
            answer = await self._client.request(
                method,
                path if "://" in path else self.url + path,
                content=body,
                headers=headers,
            )
        except self._httpx.HTTPError as exc:
            raise StoreError(
                f"Restate at {self.url} is not reachable ({type(exc).__name__}); check that it "
                "runs, and that its URL is right"
            ) from exc
        if answer.status_code in _UNAVAILABLE:
            raise StoreError(
                f"Restate at {self.url} cannot answer now: status {answer.status_code}; try again"
            )
        if answer.status_code in _DENIED:
            raise UsageError(
                f"{self.url} denies the request: status {answer.status_code}; pass what its proxy "
                "needs as Chats(url, headers={…})"
            )
        return answer

    async def rows(self, kind: type[T], sql: str) -> list[T]:
        """Ask the admin API. Raises StoreError or UsageError."""
        body = msgspec.json.encode({"query": sql})
        answer = await self.ask("POST", f"{self.admin}/query", body)
        if not answer.is_success:
            raise StoreError(
                f"Restate's admin API at {self.admin} refused a query: status "
                f"{answer.status_code}; check admin=, and see Restate's log"
            )
        try:
            rows = msgspec.json.decode(answer.content, type=dict[str, list[kind]])  # type: ignore[valid-type]
        except msgspec.DecodeError as exc:
            raise UsageError(
                f"the server at {self.admin} is not Restate's admin API: {exc}; pass its address "
                "as admin="
            ) from exc
        return rows["rows"]

    async def act(self, invocation: str, action: str) -> bool:
        """Pause, resume, kill or purge an invocation; returns whether Restate accepts it."""
        path = f"{self.admin}/invocations/{invocation}/{action}"
        return bool((await self.ask("PATCH", path)).is_success)

    def _read(self, answer: Any) -> _Reply:
        """Read an answer; raises UsageError if it cannot come from Restate."""
        try:
            reply = _reply_decoder.decode(answer.content)
        except (msgspec.DecodeError, UnicodeDecodeError):
            reply = _Reply()
        if reply.event or reply.invocation or reply.message:
            return reply
        raise UsageError(
            f"the server at {self.url} is not Restate: it answered with status "
            f"{answer.status_code}; use the address of Restate's ingress"
        )

    async def _call(self, path: str, value: object = None) -> Any:
        """Call a handler, and return its answer."""
        body = None if value is None else msgspec.json.encode(value)
        answer = await self.ask("POST", path, body)
        if answer.status_code == _NOT_FOUND:
            raise UsageError(
                f"Restate at {self.url} does not know {path}: register a worker, or "
                f"replace name={self.name!r} with the name of the registered workers"
            )
        if not answer.is_success:
            raise StoreError(
                f"Restate at {self.url} refused {path}: status {answer.status_code}; "
                "see Restate's log"
            )
        return answer

    async def _runs(self, id: str) -> bool:
        """Return whether a chat is not over. Raises UsageError if there is no such chat."""
        answer = await self.ask("GET", f"/restate/workflow/{self.name}/{id}/output")
        self._read(answer)
        if answer.status_code == _NOT_FOUND:
            raise self._unknown(id)
        return bool(answer.status_code == _NOT_READY)

    async def _outcome(self, id: str) -> str | None:
        """Return the outcome of a chat that is over; None if it is deleted."""
        answer = await self.ask("GET", f"/restate/workflow/{self.name}/{id}/output")
        return None if answer.status_code == _NOT_FOUND else self._outcome_in(id, answer)

    def _outcome_in(self, id: str, answer: Any) -> str:
        if answer.is_success:
            return str(answer.text)
        if self._read(answer).message == _KILLED:
            return aborted_outcome(id, None)
        return encode_outcome(id, RemoteChatError(id, "TerminalError", str(answer.text)))

    def _unknown(self, id: str) -> UsageError:
        return UsageError(
            f"there is no durable chat {id!r} at {self.url}, name={self.name!r}; start it first"
        )

    async def add(self, id: str, job: str) -> None:
        self._read(await self._call(f"/{self.name}/{id}/run/send", msgspec.Raw(job.encode())))

    async def result(self, id: str) -> str:
        """Wait for the outcome of a job; one that killed its workers has one, too."""
        outcome = asyncio.ensure_future(self._attach(id))
        quarantine = asyncio.ensure_future(self._quarantined.wait(id))
        tasks = outcome, quarantine
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            return str((outcome if outcome in done else quarantine).result())
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    async def _attach(self, id: str) -> str:
        """Wait for the outcome at the ingress."""
        path = f"/restate/workflow/{self.name}/{id}/attach"
        await self._runs(id)  # a wrong address raises here: the wait ignores an outage
        while True:
            try:
                answer = await self.ask("GET", path)
            except StoreError:  # the server is briefly unreachable; the chat still exists
                await asyncio.sleep(_AGAIN)
                continue
            if answer.status_code == _NOT_FOUND:
                raise self._unknown(id)
            if answer.status_code < 500 or self._read(answer).source != "ingress":
                return self._outcome_in(id, answer)
            await asyncio.sleep(_AGAIN)  # this failure is not the chat's

    async def _quarantines(self, ids: list[str]) -> dict[str, str | None]:
        """Return the outcomes of these jobs that are quarantined because of their deaths."""
        outcomes = dict[str, str | None].fromkeys(ids)
        try:
            paused = await self.rows(
                _Paused,
                "SELECT id AS invocation, target_service_key AS id FROM sys_invocation "
                f"WHERE target_service_name = {quoted(self.name)} AND status = 'paused' "
                f"AND target_handler_name = 'run'",
            )
            for chat in paused:
                if chat.id in outcomes:
                    outcomes[chat.id] = await self._quarantine(chat)
        except (StoreError, UsageError):  # the admin API is not reachable from here
            pass
        return outcomes

    async def _quarantine(self, chat: _Paused) -> str | None:
        """Return the outcome of a paused chat; None if no deaths paused it.

        Restate forgets the last failure of an invocation when it restarts, but keeps the event.
        """
        failures = await self.rows(
            Failure,
            "SELECT event_json AS text FROM sys_journal_events "
            f"WHERE id = {quoted(chat.invocation)} AND event_type = 'Paused' "
            "ORDER BY appended_at DESC LIMIT 1",
        )
        return quarantine_in(chat.id, failures[0].text or "") if failures else None

    async def questions(self, id: str) -> list[str]:
        if not await self._runs(id):
            return []
        bodies: list[str] = (await self._call(f"/{self.name}/{id}/pending")).json()
        return bodies

    async def answer(
        self, id: str, answers: dict[str, str], trace: str | None = None
    ) -> str | None:
        if not await self._runs(id):
            return next(iter(answers), None)
        if not answers:
            return None
        wrong = await self._call(f"/{self.name}-answers/{id}/answer", answers)
        return str(wrong.json()) if wrong.content else None

    async def send(self, id: str, message: str, body: str, most: int, interrupts: bool) -> Sending:
        runs = await self._runs(id)
        letter = (message, body, most if runs else 0)
        answer = await self._call(f"/{self.name}-answers/{id}/send", letter)
        sending = msgspec.json.decode(answer.content, type=Sending)
        return "over" if sending == "full" and not runs else sending

    async def abort(self, id: str, reason: str) -> bool:
        if not await self._runs(id):
            return False
        await self._call(f"/{self.name}/{id}/abort", reason)
        return True

    async def undo(self, id: str, steps: list[int]) -> None:
        """Take the deaths of lives back that had these steps open."""
        await self._call(f"/{self.name}/{id}/undo", steps)

    async def aclose(self) -> None:
        """Stop waiting, and disconnect."""
        await self._quarantined.aclose()
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()
