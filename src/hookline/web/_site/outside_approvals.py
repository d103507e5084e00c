"""Answer approvals from outside the chat's own request: the run has no reader at first."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from secrets import token_hex
from typing import Any, Unpack

from hookline import Agent, Approve, Conversation, Deny, ToolFailure, ToolResult
from hookline.web._runs.options import ChatOptions
from hookline.web._runs.registry import Runs
from hookline.web._runs.run_header import Header
from hookline.web._site.begin import scope_of_agent


async def resume_detached(
    agent: Agent[Any],
    conversation: Conversation,
    answers: Mapping[str, Approve | Deny | ToolResult | ToolFailure],
    *,
    runs: Runs,
    principal: str = "",
    **options: Unpack[ChatOptions],
) -> None:
    """Answer the pending approvals of a conversation, and let the run continue without a reader.

    The `options` go to `agent.resume`. Pass the `deps` and `hooks` of the chat again, also those of
    the functions `deps=` and `hooks=` of `app`. Returns as soon as the chat has begun. The user
    reads the answer through `resume_response`, or from `app` with `runs=site.runs`. The run counts
    as an answer of `principal`. Raises the errors that `resume` raises before anything runs, such
    as ApprovalError and ConversationBusyError. Raises Refused if the conversation is busy, or
    `runs` is full.
    """
    before = conversation.messages
    denied = [
        request.call.id
        for request in conversation.pending
        if isinstance(answers.get(request.id), Deny)
    ]
    runs.check(conversation.id, principal)
    stream = agent.resume_stream(conversation, dict(answers), **options)
    header = Header(
        run=token_hex(6),
        chat_id=stream.chat_id,
        principal=principal,
        before=len(before),
        resumed=True,
        denied=tuple(denied),
    )
    live = runs.begin(
        conversation.id,
        stream,
        header,
        detached=True,
        before=before,
        scope_of=partial(scope_of_agent, agent),
    )
    await runs.until_begun(conversation.id, live)
