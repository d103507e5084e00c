"""Show runs of other processes: follow a run, or start one in a durable worker."""

from __future__ import annotations

from functools import partial
from inspect import isawaitable
from typing import Any, Literal

from hookline import Conversation
from hookline.web._http.refused import Refused
from hookline.web._http.request_reply import Request
from hookline.web._protocols.table import release_for
from hookline.web._site.answers.queued import AnswerRequest
from hookline.web._site.begin import scope_of_agent
from hookline.web._site.config import SiteConfig
from hookline.web._site.conversations import Index, conversation_key
from hookline.web._site.error_statuses import refused_for
from hookline.web.relay._remote import RemoteRun


async def follow(config: SiteConfig, index: Index, principal: str, id: str) -> RemoteRun | None:
    """Return a conversation's last run in another process, ready to be shown."""
    assert config.relay is not None
    run = await config.relay.find(conversation_key(principal, id), principal)
    if run is not None:
        try:
            conversation = await index.open(principal, id)
        except BaseException:
            run.log.unread()
            raise
        run.before = conversation.messages[: run.header.before]
        run.scope_of = partial(scope_of_agent, config.agent)
    return run


async def deps_of(config: SiteConfig, http: Request, principal: str) -> Any:
    """Call `deps=` for a request."""
    return await _call("deps", config, http, principal)


async def hooks_of(config: SiteConfig, http: Request, principal: str) -> Any:
    """Call `hooks=` for a request."""
    return await _call("hooks", config, http, principal)


async def _call(
    name: Literal["deps", "hooks"], config: SiteConfig, http: Request, principal: str
) -> Any:
    """Call a function of the application; the log names the function if it raises."""
    function = getattr(config, name)
    if function is None:
        return None
    try:
        value = function(http.scope, principal)
        return await value if isawaitable(value) else value
    except Exception as exc:
        raise refused_for(exc, config.describe_error, what=f"{name}= raised") from exc


async def _prepare(
    config: SiteConfig, index: Index, request: AnswerRequest
) -> tuple[Conversation, Any]:
    """Load what a chat needs."""
    deps = await deps_of(config, request.http, request.principal)
    return await index.open(request.principal, request.id), deps


async def answer_remotely(config: SiteConfig, index: Index, request: AnswerRequest) -> RemoteRun:
    """Let a durable worker answer, and follow its run. Raises Refused."""
    assert config.durable is not None
    incoming, principal = request.incoming, request.principal
    preparing = _prepare(config, index, request)
    conversation, deps = await config.runs.starts.prepare(request.key, request.run, preparing)
    index.touch(principal, request.id, conversation)
    options: dict[str, Any] = {
        "deps": deps,
        "release": release_for(config.agent, request.protocol, config.ai_sdk_version),
        **config.options,
    }
    await config.durable.ask(incoming, conversation, principal, **options)
    run = await follow(config, index, principal, request.id)
    if run is None:
        raise Refused(503, "The answer cannot be read now; load the messages again.")
    return run
