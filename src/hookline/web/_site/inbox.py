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
from hookline.web._http.messages import Reply, Request, json_reply
from hookline.web._http.refused import Refused
from hookline.web._http.sse import plain
from hookline.web._protocols.incoming import Incoming, decision_of, read_object, text_of
from hookline.web._site.answers.answer import Answers
from hookline.web._site.answers.queued import AnswerRequest
from hookline.web._site.config import SiteConfig
from hookline.web._site.conversations import Index, read_conversation_key
from hookline.web._site.detached import resume_detached

Approvers: TypeAlias = Callable[[str, ApprovalRequest], bool | Awaitable[bool]]
"""Decides whether this principal may answer this request."""


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
        requests = await self._requests_for(principal)
        return json_reply({"approvals": [_entry(request) for request in requests]})

    async def post(self, http: Request, principal: str) -> Reply:
        """Answer one request; its chat continues without a reader."""
        caps = self._config.runs.caps
        body = read_object(await http.body(caps.body_bytes, caps.send))
        id, note = text_of(body.get("id"), "id"), body.get("note")
        decision = decision_of(body.get("approved"), body.get("reason"), body.get("arguments"))
        requests = await self._requests_for(principal)
        waiting = next((request for request in requests if request.id == id), None)
        if waiting is None:
            raise Refused(
                409, "This approval is not waiting for an answer; load the approvals again."
            )
        if body.get("arguments") is not None and not self._config.edits:
            raise Refused(403, "The arguments must not be changed; approve or deny the call.")
        changes: dict[str, Any] = {"by": principal or None}
        if note is not None and body["approved"]:
            changes["note"] = text_of(note, "note")
        asker, name = read_conversation_key(waiting.conversation_id or "")
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

    async def _requests_for(self, principal: str) -> list[ApprovalRequest]:
        requests: list[ApprovalRequest] = []
        for request in await self._config.store.pending():
            if request.conversation_id is None or not _is_ours(request.conversation_id):
                continue
            answer = self._approvers(principal, request)
            if (await answer if isawaitable(answer) else answer) is True:
                requests.append(request)
        return sorted(requests, key=lambda request: request.asked_at or 0.0)


def _is_ours(key: str) -> bool:
    """Whether the key comes from a route of `app`."""
    try:
        read_conversation_key(key)
    except UsageError:
        return False
    return True


def _entry(request: ApprovalRequest) -> dict[str, Any]:
    """Show a request, with the principal who asked."""
    asker, name = read_conversation_key(request.conversation_id or "")
    return {**plain(request.replace(conversation_id=name)), "principal": asker}
