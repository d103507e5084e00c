"""Answer a request: at once, or after the answer that runs now."""

from __future__ import annotations

from functools import partial
from secrets import token_hex
from types import SimpleNamespace
from typing import Any, TypeAlias

from msgspec.structs import replace

from hookline import Conversation
from hookline.web._http.messages import Request
from hookline.web._http.refused import Refused
from hookline.web._protocols.incoming import read_object
from hookline.web._protocols.table import Protocol, parse
from hookline.web._runs.backlog import Run
from hookline.web._runs.run import Live
from hookline.web._site.answers.presence import Presence
from hookline.web._site.answers.queued import Asked, Queued
from hookline.web._site.answers.remote import answer_afar, deps_of, hooks_of
from hookline.web._site.answers.streaming import Streaming
from hookline.web._site.begin import Opening, Options, begin, check_answers
from hookline.web._site.config import SiteConfig
from hookline.web._site.conversations import Index
from hookline.web._site.statuses import not_begun

Answer: TypeAlias = Streaming | Queued


class Answers:
    """Answers the requests of a site."""

    def __init__(self, config: SiteConfig, index: Index, presence: Presence) -> None:
        self._config = config
        self._runs = config.runs
        self._index = index
        self._presence = presence

    async def ask(self, request: Request, principal: str, protocol: Protocol) -> Answer:
        config = self._config
        body = await request.body(self._runs.caps.body_bytes, self._runs.caps.send)
        incoming = parse(protocol, read_object(body))
        incoming = replace(incoming, history=())  # the server stores the history
        check_answers(incoming, approvals=config.approvals)
        asked = Asked(
            request=request,
            principal=principal,
            protocol=protocol,
            incoming=incoming,
            id=incoming.conversation_id or token_hex(10),
            run=token_hex(6),
        )
        if config.on_busy == "queue" and incoming.message is not None and not incoming.regenerate:
            return await self._in_turn(asked)
        self._runs.check(asked.key, principal)
        if config.abroad is not None:
            return self.streaming(await answer_afar(config, self._index, asked), protocol, asked.id)
        if config.relay is None:
            return await self._begun(await self._begin(asked), asked)
        try:
            live = await self._begin(asked)
        except BaseException:
            config.relay.release(asked.key, asked.run)
            raise
        await config.relay.tell(asked.key, live)
        return await self._begun(live, asked)

    async def _in_turn(self, asked: Asked) -> Answer:
        """Answer a message, or queue it behind the answers before it."""
        place = self._runs.join(asked.key, asked.principal)
        if not place.turn.done():
            return Queued(
                place=place,
                runs=self._runs,
                begin=partial(self._late, asked),
                asked=asked,
                errors=self._config.errors,
            )
        try:
            live = await self._begin(asked)
        finally:
            self._runs.leave(place)
        return await self._begun(live, asked)

    async def _late(self, asked: Asked) -> Streaming:
        """Answer a queued message. It must not deny approvals that its user has not seen."""
        return await self._begun(await self._begin(asked, waited=True), asked)

    async def _begun(self, live: Live, asked: Asked) -> Streaming:
        """Return the answer once its chat has begun; raises Refused for what prevents the chat.

        A chat may be slow to begin, so the response then begins first, and comments keep its
        connection open.
        """
        try:
            await self._runs.begun(asked.key, live, self._runs.caps.keep_alive)
        except Exception as exc:
            chat_id = live.header.chat_id
            raise not_begun(exc, self._config.errors, chat_id) from exc
        return self.streaming(live, asked.protocol, asked.id)

    def streaming(
        self, run: Run, protocol: Protocol, id: str, *, start: int = 0, replay: bool = False
    ) -> Streaming:
        return Streaming(
            run=run,
            protocol=protocol,
            conversation_id=id,
            caps=self._runs.caps,
            target=self._config.target,
            errors=self._config.errors,
            start=start,
            replay=replay,
            presence=self._presence,
        )

    async def _begin(self, asked: Asked, *, waited: bool = False) -> Live:
        config, principal, incoming = self._config, asked.principal, asked.incoming
        preparing = self.prepare(asked, waited=waited)
        conversation, options = await self._runs.starts.prepare(asked.key, asked.run, preparing)
        opening = Opening(
            agent=config.agent,
            runs=self._runs,
            protocol=asked.protocol,
            on_disconnect=config.on_disconnect,
            target=config.target,
            edits=config.edits,
            client_tools=config.client_tools,
            ag_ui_state=config.ag_ui_state,
            ag_ui_context=config.ag_ui_context,
        )
        live = begin(
            opening,
            incoming,
            key=asked.key,
            principal=principal,
            conversation=conversation,
            options=options,
            run=asked.run,
        )
        self._index.touch(principal, asked.id, conversation)
        return live

    async def prepare(self, asked: Asked, *, waited: bool = False) -> tuple[Conversation, Options]:
        """Load what a run needs."""
        config, principal = self._config, asked.principal
        if config.relay is not None:
            await config.relay.claim(asked.key, asked.run)
        conversation = await self._index.open(principal, asked.id)
        if waited and (conversation.pending or conversation.client_calls):
            raise Refused(
                409, "The previous answer needs your approval or a result; send it first."
            )
        options = dict(config.options)
        if config.deps is not None:
            options["deps"] = await deps_of(config, asked)
        hooks: list[Any] = []
        given = await hooks_of(config, asked)
        if given is not None:
            hooks.append(SimpleNamespace(hooks=given))  # a list cannot contain a dict of hooks
        if not conversation.meta.get("title"):
            hooks.append(self._index.titling(principal, asked.id))
        if hooks:
            options["hooks"] = hooks
        return conversation, options
