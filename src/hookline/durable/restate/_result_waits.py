"""Waits for results on Restate; also asks the admin API, which knows the quarantined chats."""

from __future__ import annotations

import asyncio
from typing import Final, TypeVar

import msgspec

from hookline.durable._shared.outcome_waits import Waiters
from hookline.durable.restate._deaths import quarantine_in
from hookline.durable.restate._requests import Ingress, admin_of
from hookline.errors import StoreError, UsageError

T = TypeVar("T")
_LOOK: Final = 2.0  # seconds between two looks whether chats are quarantined


class Paused(msgspec.Struct, frozen=True):
    """A chat that may be quarantined, and its last failure."""

    id: str
    failure: str | None = None


def quoted(text: str) -> str:
    """Return a text of SQL."""
    return "'" + text.replace("'", "''") + "'"


class Results(Ingress):
    """A client that waits for results, and asks the admin API."""

    def __init__(self, url: str, name: str, headers: dict[str, str], admin: str | None) -> None:
        super().__init__(url, name, headers)
        self._admin = (admin or admin_of(url)).rstrip("/")
        self._quarantined = Waiters(self._quarantines, _LOOK)

    async def result(self, id: str) -> str:
        """Wait for the outcome of a job; one that killed its workers has one, too."""
        outcome = asyncio.ensure_future(super().result(id))
        quarantine = asyncio.ensure_future(self._quarantined.wait(id))
        tasks = outcome, quarantine
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            return str((outcome if outcome in done else quarantine).result())
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    async def _quarantines(self, ids: list[str]) -> dict[str, str | None]:
        """Return the outcomes of these jobs that are quarantined because of their deaths."""
        outcomes = dict[str, str | None].fromkeys(ids)
        try:
            rows = await self._rows(
                Paused,
                "SELECT target_service_key AS id, last_failure AS failure FROM sys_invocation "
                f"WHERE target_service_name = {quoted(self._name)} AND status = 'paused' "
                f"AND target_handler_name = 'run'",
            )
        except (StoreError, UsageError):  # the admin API is not reachable from here
            return outcomes
        for row in rows:
            if row.id in outcomes:
                outcomes[row.id] = quarantine_in(row.id, row.failure or "")
        return outcomes

    async def aclose(self) -> None:
        """Stop waiting, and disconnect."""
        await self._quarantined.aclose()
        await super().aclose()

    async def _rows(self, kind: type[T], sql: str) -> list[T]:
        body = msgspec.json.encode({"query": sql})
        answer = await self._ask("POST", f"{self._admin}/query", body)
        if not answer.is_success:
            raise StoreError(
                f"Restate's admin API at {self._admin} refused a query: status "
                f"{answer.status_code}; check admin=, and see Restate's log"
            )
        try:
            rows = msgspec.json.decode(answer.content, type=dict[str, list[kind]])  # type: ignore[valid-type]
        except msgspec.DecodeError as exc:
            raise UsageError(
                f"the server at {self._admin} is not Restate's admin API: {exc}; pass its address "
                "as admin="
            ) from exc
        return rows["rows"]
