"""Routes to manage conversations and their remembered approvals.

GET    /conversations[?search=…]     the principal's conversations
PATCH  /conversations/{id}           {"title"}: rename a conversation
DELETE /conversations/{id}           delete a conversation
POST   /conversations/{id}/fork      {"before", "id"}: a new one with the messages before `before`
POST   /conversations/{id}/feedback  {"message", "value", "comment"}: rate an answer
GET    /rules[?conversation=…]       the remembered approvals that hold there, or everywhere
DELETE /rules/{rule}[?conversation=…]  revoke a remembered approval
"""

from __future__ import annotations

from secrets import token_hex
from typing import Any, Final
from urllib.parse import parse_qs

import msgspec

from hookline import Agent, AssistantMessage, Conversation
from hookline.errors import ConversationBusyError, ConversationConflictError
from hookline.storage import RULES, Store, list_rules, revoke_rule
from hookline.web._http.request_reply import Refused, Reply, Request, json_reply
from hookline.web._http.sse import plain
from hookline.web._page.timeline_store import Timeline, Timelines
from hookline.web._protocols.incoming import id_of, text_of
from hookline.web._runs.hook_points import OnFeedback
from hookline.web._runs.titles import TITLE, title_of
from hookline.web._site.config import SiteConfig
from hookline.web._site.conversations import Index, busy_with_answer, conversation_key

COMMENT: Final = 2000  # most characters of a comment


class ConversationRoutes:
    """The routes for conversations. `timelines`: None without the page."""

    def __init__(self, config: SiteConfig, index: Index, timelines: Timelines | None) -> None:
        self._config = config
        self._agent: Agent[Any] = config.agent
        self._index = index
        self._timelines = timelines

    async def _find(self, principal: str, id: str) -> Conversation:
        if not await self._index.has(principal, id):
            raise Refused(404, "There is no such conversation; choose one from the list.")
        return await self._index.open(principal, id)

    async def entries(self, request: Request, principal: str) -> Reply:
        """List the conversations, or those that contain the searched words."""
        words = _query(request, "search").strip()
        entries = self._index.search(principal, words) if words else self._index.entries(principal)
        return json_reply({"conversations": await entries})

    async def conversation(self, request: Request, principal: str, rest: str) -> Reply:
        """Rename, fork or rate a conversation."""
        id, _, what = rest.rpartition("/")
        how = {"fork": self.fork, "feedback": self.feedback}.get(what) if id else None
        allow(request, "PATCH" if how is None else "POST")
        id = id_of(rest if how is None else id, "A conversation's id")
        return await (how or self.rename)(request, principal, id)

    async def rename(self, request: Request, principal: str, id: str) -> Reply:
        """Change the title of a conversation."""
        title = " ".join(text_of((await self._config.body(request)).get("title"), "title").split())
        if not 0 < len(title) <= TITLE:
            raise Refused(400, f"A title must have 1 to {TITLE} characters.")
        conversation = await self._find(principal, id)
        hooks = await self._config.chat_option("hooks", request, principal)
        if hooks or self._agent.hooks("preMessageUpdate"):  # otherwise nobody needs the deps
            deps = await self._config.chat_option("deps", request, principal)
            title = await title_of(self._agent, title, deps=deps, hooks=hooks)
        if conversation.busy:
            raise busy_with_answer()
        conversation.meta["title"] = title
        try:
            await conversation.save()
        except (ConversationBusyError, ConversationConflictError):
            raise busy_with_answer() from None
        self._index.title(principal, id, title)
        return json_reply({"title": title})

    async def fork(self, request: Request, principal: str, id: str) -> Reply:
        """Create a conversation with the messages before a user message."""
        body = await self._config.body(request)
        before = id_of(body.get("before"), "before")
        new = id_of(body.get("id", token_hex(10)), "id")
        source = await self._find(principal, id)
        messages = source.messages
        at = next((n for n, message in enumerate(messages) if message.id == before), -1)
        if at < 0 or messages[at].role != "user":
            raise Refused(404, "There is no such user message; load the messages again.")
        if await self._index.has(principal, new):
            raise Refused(409, "There is already a conversation with that id; choose another id.")
        await self._index.check_room(principal)
        if at:
            meta = {**msgspec.to_builtins(source.meta), "forked": id}
            meta.pop(RULES, None)  # they were made for the other conversation
            copy = Conversation(messages[:at], id=conversation_key(principal, new), meta=meta)
            await copy.save(self._config.store)
            self._index.title(principal, new, str(meta.get("title", "")))
        return json_reply({"id": new, "kept": at})

    async def feedback(self, request: Request, principal: str, id: str) -> Reply:
        """Store a rating, and notify the hooks at OnFeedback."""
        body = await self._config.body(request)
        message = id_of(body.get("message"), "message")
        value = body.get("value")
        if value not in ("up", "down", None):
            raise Refused(400, "value must be up, down or null.")
        comment = text_of(body.get("comment", ""), "comment")[:COMMENT]
        conversation = await self._find(principal, id)
        answers = {item.id for item in conversation.messages if isinstance(item, AssistantMessage)}
        if message not in answers:
            raise Refused(404, "There is no such answer; load the messages again.")

        def judge(timeline: Timeline) -> None:
            timeline.feedback.pop(message, None)
            if value is not None:
                timeline.feedback[message] = value

        if self._timelines is not None:
            await self._timelines.change(conversation_key(principal, id), judge)
        await self._agent.bus.notify(
            OnFeedback(
                principal=principal,
                conversation_id=id,
                message_id=message,
                value=value,
                comment=comment,
            )
        )
        return Reply(status=204)

    # ── remembered approvals ────────────────────────────────────────────────────────────────

    async def rules(self, request: Request, principal: str, rule: str) -> Reply:
        """List the remembered approvals that hold in a conversation, or revoke one."""
        allow(request, "DELETE" if rule else "GET")
        places = await self._places_of_rules(principal, _query(request, "conversation"))
        if not rule:
            rules = [each for place in places for each in await list_rules(*place)]
            return json_reply({"rules": [plain(each) for each in rules]})
        for store, key in places:
            try:
                if await revoke_rule(store, rule, key):
                    return Reply(status=204)
            except (ConversationBusyError, ConversationConflictError):
                raise busy_with_answer() from None
        raise Refused(404, "There is no such remembered approval; load the list again.")

    async def _places_of_rules(self, principal: str, id: str) -> list[tuple[Store, str | None]]:
        """Return where rules are kept that this principal may see and revoke.

        Rules with the scope "always" tell of the calls of all principals, so they are only for
        those who share the token of the server.
        """
        places: list[tuple[Store, str | None]] = []
        if id and await self._index.has(principal, id_of(id, "conversation")):
            places.append((self._config.store, conversation_key(principal, id)))
        store = getattr(self._agent, "store", None)
        if self._config.guard.shares_token and store is not None:
            places.append((store, None))
        return places


def allow(request: Request, method: str) -> None:
    """Raise Refused if the request has another method."""
    if request.method != method:
        raise Refused(405, f"Use {method} here.", allow=method)


def _query(request: Request, name: str) -> str:
    """Return a parameter of the address; empty if it is not there."""
    query = parse_qs(request.scope.get("query_string", b"").decode("latin-1"))
    value: str = query.get(name, [""])[0]
    return value
