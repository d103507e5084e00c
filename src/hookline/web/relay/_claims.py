"""The claims of one process: each holds a conversation until its run begins."""

from __future__ import annotations

from hookline.web._runs.registry import busy
from hookline.web.relay._commands import Link
from hookline.web.relay._redis import CLAIM, RELEASE, RENEW


class Claims:
    """Claims conversations for runs, at most one run for each conversation."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._take = link.commands.register_script(CLAIM)
        self._renew = link.commands.register_script(RENEW)
        self._release = link.commands.register_script(RELEASE)
        self._runs: dict[str, str] = {}  # the run that is to begin, by the conversation's key

    async def take(self, key: str, run: str, worker: str) -> None:
        """Claim a conversation; raises Refused if another run has claimed it."""
        link = self._link
        args = [link.names.worker_prefix, run, worker, int(link.lease * 1000)]
        try:
            free = await self._take(keys=[link.names.run(key)], args=args)
        except link.outages:
            raise link.refusal() from None
        if not free:
            raise busy()

    async def hold(self, key: str, run: str) -> None:
        """Claim a conversation for this process, until `drop` or `release`."""
        await self.take(key, run, self._link.worker)
        self._runs[key] = run

    def drop(self, key: str) -> None:
        """Stop renewing a claim: its run has begun."""
        self._runs.pop(key, None)

    def release(self, key: str, run: str) -> None:
        """Undo a claim whose run did not begin."""
        if self._runs.get(key) == run:  # else another request holds the conversation
            self.drop(key)
        self._link.later(self._release(keys=[self._link.names.run(key)], args=[run]))

    async def renew(self) -> None:
        """Keep the claims from expiring: `deps=` or `hooks=` may take longer than a lease."""
        for key, run in list(self._runs.items()):
            args = [run, int(self._link.lease * 1000)]
            await self._renew(keys=[self._link.names.run(key)], args=args)
