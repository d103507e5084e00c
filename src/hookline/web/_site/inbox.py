"""The inbox of `app(approvers=…)`: somebody else lists the pending approvals, and answers one.

An approver sees only the requests that `approvers` allows, of all principals. The chat continues as
the chat of its own principal, with that principal's `deps` and `hooks`; the decision carries the
name of the approver.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from inspect import isawaitable
from secrets import token_hex
from typing import Any, TypeAlias

from hookline import ApprovalRequest
from hookline.errors import UsageError
from hookline.web._http.request_reply import Refused, Reply, Request, json_reply
from hookline.web._http.sse import plain
from hookline.web._protocols.incoming import Incoming, decision_of, text_of
from hookline.web._site.answers.answer import Answers
from hookline.web._site.answers.streaming import AnswerRequest
from hookline.web._site.config import SiteConfig
from hookline.web._site.conversations import Index, read_conversation_key
from hookline.web._site.run_start import resume_detached

Approvers: TypeAlias = Callable[[str, ApprovalRequest, str], bool | Awaitable[bool]]
"""Decides whether a principal may answer a request of the principal who is the last argument."""
_Entry: TypeAlias = tuple[ApprovalRequest, str]
"""A request with the conversation id of its client, and the principal who asked."""


class Inbox:
    """The routes of the approvers."""

    def __init__(
        self, config: SiteConfig, index: Index, answers: Answers, approvers: Approvers
    ) -> None:
        self._config = config
        self._index = index
        self._answers = answers
        self._approvers = approvers

    async def get(self, principal: str) -> Reply:
        """List the pending requests that the principal may answer, the oldest first."""
        entries = await self._entries_for(principal)
        return json_reply(
            {"approvals": [{**plain(request), "principal": asker} for request, asker in entries]}
        )

    async def post(self, http: Request, principal: str) -> Reply:
        """Answer one request; its chat continues without a reader."""
        body = await self._config.body(http)
        id, note = text_of(body.get("id"), "id"), body.get("note")
        decision = decision_of(body.get("approved"), body.get("reason"), body.get("arguments"))
        entries = await self._entries_for(principal)
        entry = next((entry for entry in entries if entry[0].id == id), None)
        if entry is None:
            raise Refused(
                409, "This approval is not waiting for an answer; load the approvals again."
            )
        if body.get("arguments") is not None and not self._config.edits:
            raise Refused(403, "The arguments must not be changed; approve or deny the call.")
        changes: dict[str, Any] = {"by": principal or None}
        if note is not None and body["approved"]:
            changes["note"] = text_of(note, "note")
        name, asker = entry[0].conversation_id or "", entry[1]
        ask = AnswerRequest(
            http=http,
            principal=asker,
            protocol="native",
            incoming=Incoming(conversation_id=name),
            id=name,
            run=token_hex(6),
        )
        conversation, options = await self._answers.prepare(ask)
        answers = {id: decision.replace(**changes)}
        await resume_detached(
            self._config.agent,
            conversation,
            answers,
            runs=self._config.runs,
            principal=asker,
            **options,
        )
        self._index.touch(asker, name, conversation)
        return json_reply({"decided": id}, 202)

    async def _entries_for(self, principal: str) -> list[_Entry]:
        entries: list[_Entry] = []
        for request in await self._config.store.pending():
            entry = _entry(request)
            if entry is None:
                continue
            answer = self._approvers(principal, *entry)
            if (await answer if isawaitable(answer) else answer) is True:
                entries.append(entry)
        return sorted(entries, key=lambda entry: entry[0].asked_at or 0.0)


def _entry(request: ApprovalRequest) -> _Entry | None:
    """The request as its client knows it, and who asked; None if no route of `app` made the key."""
    try:
        asker, name = read_conversation_key(request.conversation_id or "")
    except UsageError:
        return None
    return request.replace(conversation_id=name), asker
