"""Trials of the policies of `app(policies=…)`: hooks, on a principal's own stored conversations.

    GET  /policies              the names of the policies that the principal may try out
    POST /policies              {"policy"}: what the policy would have done to the latest chats

A replay calls no model, tool, observer, telemetry or store: see `hookline.replay`. The texts of
exceptions are for the log, not for the client.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from inspect import isawaitable
from types import SimpleNamespace
from typing import Any, Final, TypeAlias

from hookline import Agent
from hookline.replay import Record, Verdict, records_of, replay
from hookline.web._http.request_reply import Refused, Reply, Request, json_reply
from hookline.web._protocols.incoming import text_of
from hookline.web._site.config import SiteConfig
from hookline.web._site.conversations import Entry, Index, conversation_key

Hooks: TypeAlias = Mapping[str, Sequence[Any]]
Policies: TypeAlias = Callable[[str], Hooks | Awaitable[Hooks]]
"""Returns the policies that a principal may try out: the hooks of each, by its name."""

CHATS: Final = 200  # most chats that are replayed
VERDICTS: Final = 200  # most verdicts in a reply
SECONDS: Final = 30  # most seconds of a replay

logger = logging.getLogger("hookline.web")


class PolicyRoutes:
    """The routes of the policies."""

    def __init__(self, config: SiteConfig, index: Index, policies: Policies) -> None:
        self._config = config
        self._index = index
        self._policies = policies
        self._busy: set[str] = set()  # the principals whose replay runs

    async def get(self, principal: str) -> Reply:
        """List the names of the policies that the principal may try out."""
        return json_reply({"policies": list(await self._policies_of(principal))})

    async def post(self, http: Request, principal: str) -> Reply:
        """Replay the latest chats of the principal with a policy; return the verdicts."""
        body = await self._config.body(http)
        name = text_of(body.get("policy"), "policy")
        policies = await self._policies_of(principal)
        if name not in policies:
            raise Refused(404, "There is no such policy; choose one from the list.")
        if principal in self._busy:
            raise Refused(409, "A replay of yours is running; wait for its end.")
        self._busy.add(principal)
        try:
            async with asyncio.timeout(SECONDS):
                return await self._report(http, principal, name, policies[name])
        except TimeoutError:
            raise Refused(
                503, f"The replay took longer than {SECONDS} seconds; try a faster policy."
            ) from None
        finally:
            self._busy.discard(principal)

    async def _policies_of(self, principal: str) -> Hooks:
        policies = self._policies(principal)
        return await policies if isawaitable(policies) else policies

    async def _report(self, http: Request, principal: str, name: str, hooks: Any) -> Reply:
        chats, more = await self._chats(principal)
        reply: dict[str, Any] = {"policy": name, "chats": len(chats), "more": more}
        if not chats:
            return json_reply({**reply, "differ": 0, "counts": {}, "verdicts": [], "inexact": {}})
        deps = await self._config.chat_option("deps", http, principal)
        agent: Agent[Any] = self._config.agent
        chat_hooks = await self._config.chat_option("hooks", http, principal)
        if chat_hooks is not None:
            more_hooks: Any = SimpleNamespace(hooks=chat_hooks)  # of any form that a chat takes
            agent = agent.twin(hooks=[more_hooks])
        records = [record for record, _ in chats]
        report = await replay(records, agent, hooks=hooks, deps=lambda record: deps)
        entries = {record.id: entry for record, entry in chats}
        return json_reply(
            {
                **reply,
                "differ": report.differing,
                "counts": report.counts,
                "verdicts": [_row(v, entries[v.chat], name) for v in report.verdicts[:VERDICTS]],
                "inexact": report.inexact,
            }
        )

    async def _chats(self, principal: str) -> tuple[list[tuple[Record, Entry]], bool]:
        """The latest chats with their conversations, and whether there are more."""
        chats: list[tuple[Record, Entry]] = []
        for entry in await self._index.entries(principal):
            if len(chats) == CHATS:
                return chats, True
            stored = await self._config.store.load(conversation_key(principal, entry.id))
            if stored is None:
                continue
            records = records_of(stored.messages, id=entry.id, at=entry.updated)
            room = CHATS - len(chats)
            chats += [(record, entry) for record in records[-room:]]
            if len(records) > room:
                return chats, True
        return chats, False


def _row(verdict: Verdict, entry: Entry, policy: str) -> dict[str, Any]:
    reason = verdict.reason
    if verdict.now == "raised":
        logger.debug("policy %r raised in the replay of %r: %s", policy, verdict.chat, reason)
        reason = ""
    return {
        "conversation": entry.id,
        "title": entry.title,
        "step": verdict.step,
        "call": verdict.call,
        "was": verdict.was,
        "now": verdict.now,
        "after": verdict.after,
        "by": verdict.hook,
        "why": reason,
    }
