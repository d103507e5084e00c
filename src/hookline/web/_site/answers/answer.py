"""Answer a request: at once, after the answer that runs now, or in a durable worker."""

from __future__ import annotations

from functools import partial
from secrets import token_hex
from types import SimpleNamespace
from typing import Any, TypeAlias

from msgspec.structs import replace

from hookline import Conversation
from hookline.web._http.request_reply import Refused, Request
from hookline.web._protocols.table import Protocol, parse, release_for
from hookline.web._runs.run import Live
from hookline.web._runs.titles import titling
from hookline.web._site.answers.streaming import AnswerRequest, Presence, Queued, Streaming
from hookline.web._site.config import SiteConfig
from hookline.web._site.conversations import Index, conversation_key
from hookline.web._site.error_statuses import not_begun
from hookline.web._site.run_start import Options, begin, check_answers, scope_of_agent
from hookline.web.relay._remote_runs import RemoteRun

Answer: TypeAlias = Streaming | Queued


class Answers:
    """Answers the requests of a site."""

    def __init__(self, config: SiteConfig, index: Index, presence: Presence) -> None:
        self._config = config
        self._runs = config.runs
        self._index = index
        self.streaming = partial(Streaming, config=config, presence=presence)
        """Builds the response that streams a run."""

    async def ask(self, http: Request, principal: str, protocol: Protocol) -> Answer:
        config = self._config
        incoming = parse(protocol, await config.body(http))
        incoming = replace(incoming, history=())  # the server stores the history
        check_answers(incoming, approvals=config.approvals)
        request = AnswerRequest(
            http=http,
            principal=principal,
            protocol=protocol,
            incoming=incoming,
            id=incoming.conversation_id or token_hex(10),
            run=token_hex(6),
        )
        if config.on_busy == "queue" and incoming.message is not None and not incoming.regenerate:
            return await self._in_turn(request)
        self._runs.check(request.key, principal)
        if config.durable is not None:
            run = await self._ask_worker(request)
            return self.streaming(run=run, protocol=protocol, conversation_id=request.id)
        if config.relay is None:
            return await self._stream(await self._begin(request), request)
        try:
            live = await self._begin(request)
        except BaseException:
            config.relay.release(request.key, request.run)
            raise
        await config.relay.tell(request.key, live)
        return await self._stream(live, request)

    async def _in_turn(self, request: AnswerRequest) -> Answer:
        """Answer a message, or queue it behind the answers before it."""
        place = self._runs.join(request.key, request.principal)
        if not place.turn.done():
            return Queued(
                place=place,
                config=self._config,
                begin=partial(self._late, request),
                request=request,
            )
        try:
            live = await self._begin(request)
        finally:
            self._runs.leave(place)
        return await self._stream(live, request)

    async def _late(self, request: AnswerRequest) -> Streaming:
        """Answer a queued message. It must not deny approvals that its user has not seen."""
        return await self._stream(await self._begin(request, queued=True), request)

    async def _stream(self, live: Live, request: AnswerRequest) -> Streaming:
        """Return the answer once its chat has begun; raises Refused for what prevents the chat.

        A chat may be slow to begin, so the response then begins first, and comments keep its
        connection open.
        """
        try:
            await self._runs.until_begun(request.key, live, self._runs.caps.keep_alive)
        except Exception as exc:
            chat_id = live.header.chat_id
            raise not_begun(exc, self._config.describe_error, chat_id) from exc
        return self.streaming(run=live, protocol=request.protocol, conversation_id=request.id)

    async def _begin(self, request: AnswerRequest, *, queued: bool = False) -> Live:
        config, principal, incoming = self._config, request.principal, request.incoming
        preparing = self.prepare(request, queued=queued)
        conversation, options = await self._runs.starts.prepare(request.key, request.run, preparing)
        live = begin(
            config,
            request.protocol,
            incoming,
            key=request.key,
            principal=principal,
            conversation=conversation,
            options=options,
            run=request.run,
        )
        self._index.touch(principal, request.id, conversation)
        return live

    async def prepare(
        self, request: AnswerRequest, *, queued: bool = False
    ) -> tuple[Conversation, Options]:
        """Load what a run needs."""
        config, principal = self._config, request.principal
        if config.relay is not None:
            await config.relay.claim(request.key, request.run)
        conversation = await self._index.open(principal, request.id)
        if queued and (conversation.pending or conversation.client_calls):
            raise Refused(
                409, "The previous answer needs your approval or a result; send it first."
            )
        options = dict(config.options)
        if config.deps is not None:
            options["deps"] = await config.chat_option("deps", request.http, principal)
        hooks: list[Any] = []
        chat_hooks = await config.chat_option("hooks", request.http, principal)
        if chat_hooks is not None:
            hooks.append(SimpleNamespace(hooks=chat_hooks))  # a list cannot contain a dict of hooks
        if not conversation.meta.get("title"):
            hooks.append(titling(partial(self._index.title, principal, request.id)))
        if hooks:
            options["hooks"] = hooks
        return conversation, options

    # ── runs of other processes ─────────────────────────────────────────────────────────────

    async def follow(self, principal: str, id: str) -> RemoteRun | None:
        """Return a conversation's last run in another process, ready to be shown."""
        relay = self._config.relay
        assert relay is not None
        run = await relay.find(conversation_key(principal, id), principal)
        if run is not None:
            try:
                conversation = await self._index.open(principal, id)
            except BaseException:
                run.log.unread()
                raise
            run.before = conversation.messages[: run.header.before]
            run.scope_of = partial(scope_of_agent, self._config.agent)
        return run

    async def _ask_worker(self, request: AnswerRequest) -> RemoteRun:
        """Let a durable worker answer, and follow its run. Raises Refused."""
        config, principal = self._config, request.principal
        assert config.durable is not None
        preparing = self._prepare_for_worker(request)
        conversation, deps = await self._runs.starts.prepare(request.key, request.run, preparing)
        self._index.touch(principal, request.id, conversation)
        options: dict[str, Any] = {
            "deps": deps,
            "release": release_for(config.agent, request.protocol, config.ai_sdk_version),
            **config.options,
        }
        await config.durable.ask(request.incoming, conversation, principal, **options)
        run = await self.follow(principal, request.id)
        if run is None:
            raise Refused(503, "The answer cannot be read now; load the messages again.")
        return run

    async def _prepare_for_worker(self, request: AnswerRequest) -> tuple[Conversation, Any]:
        deps = await self._config.chat_option("deps", request.http, request.principal)
        return await self._index.open(request.principal, request.id), deps
