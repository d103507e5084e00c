"""A request becomes a run: the message, the answers to approvals, or the same question again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, TypeAlias

import msgspec

from hookline import (
    Agent,
    ApprovalRequest,
    ChatStream,
    Conversation,
    Deny,
    Run,
    UserMessage,
)
from hookline.errors import ConversationBusyError, HistoryError
from hookline.web._ai_sdk import Target
from hookline.web._incoming import Incoming, Refused
from hookline.web._live import Live
from hookline.web._protocols import Protocol, last_turn, release_for
from hookline.web._runs import Runs

Deps: TypeAlias = Callable[[Any, str], Any]
OnDisconnect: TypeAlias = Literal["cancel", "detach"]
Options: TypeAlias = dict[str, Any]


class Opening(msgspec.Struct, frozen=True, kw_only=True):
    """What is the same for all chats of a route."""

    agent: Any  # Agent: its type parameter is the caller's
    runs: Runs
    protocol: Protocol
    on_disconnect: OnDisconnect = "cancel"
    target: Target = 6


def begin(
    opening: Opening,
    incoming: Incoming,
    *,
    key: str,
    principal: str,
    conversation: Conversation | None,
    options: Options,
) -> Live:
    """Begin the run that a request asks for; raises Refused, with nothing changed.

    Without a conversation the client's history is believed for this one chat, and a call that asks
    for an approval is denied: there would be nothing to hold an answer against.
    """
    opening.runs.check(key, principal)
    agent: Agent[Any] = opening.agent
    options = {"release": release_for(agent, opening.protocol, opening.target), **options}
    if conversation is None:
        before, stream = _of_client(agent, incoming, options)
    else:
        if conversation.busy:
            raise Refused(
                409, "This conversation is busy with another answer; wait for it, or stop it."
            )
        before, stream = _of_server(agent, incoming, conversation, options)
    return opening.runs.begin(
        key,
        principal,
        stream,
        kept=opening.on_disconnect == "detach",
        before=before,
        incoming=incoming,
    )


def _of_client(
    agent: Agent[Any], incoming: Incoming, options: Options
) -> tuple[tuple[Any, ...], ChatStream]:
    if incoming.answers:
        raise Refused(409, "This approval is not waiting for an answer; read the messages again.")
    history, message = incoming.history, incoming.message
    if message is None:  # make the answer again: the history ends with the question
        last = history[-1] if history else None
        if not isinstance(last, UserMessage):
            raise Refused(400, "There must be a message of the user to answer again.")
        history, message = history[:-1], last
    try:
        conversation = Conversation(history)
    except HistoryError:
        raise Refused(
            400, "The history must be valid: leave it to the server, or begin a new conversation."
        ) from None
    options = {"approver": _nobody, **options}
    return tuple(history), agent.chat_stream(message, conversation=conversation, **options)


def _nobody(request: ApprovalRequest, run: Run[Any]) -> Deny:
    return Deny("approvals need a conversation that the server keeps")


def _of_server(
    agent: Agent[Any], incoming: Incoming, conversation: Conversation, options: Options
) -> tuple[tuple[Any, ...], ChatStream]:
    before = conversation.messages
    if incoming.answers:
        decisions = incoming.decisions(conversation.pending)
        return before, agent.resume_stream(conversation, decisions, **options)
    message = incoming.message
    if incoming.regenerate:
        message = _take_back(conversation, incoming.message_id)
        before = conversation.messages
    assert message is not None
    if message.id and any(each.id == message.id for each in before):
        raise Refused(409, "This message was sent before; read its answer instead.")
    return before, agent.chat_stream(message, conversation=conversation, **options)


def _take_back(conversation: Conversation, message_id: str | None) -> UserMessage:
    """Forget an answer and what came after it; gives the question that it answered."""
    messages = conversation.messages
    end = len(messages)
    if message_id is not None:
        found = (at for at, each in enumerate(messages) if each.id == message_id)
        end = next(found, end - 1) + 1
    at = end - len(last_turn(messages[:end])) - 1
    question = messages[at] if at >= 0 else None
    if not isinstance(question, UserMessage):
        raise Refused(409, "There is no answer to make again; send a message.")
    try:
        conversation.restore(messages[:at])
    except ConversationBusyError:
        raise Refused(
            409, "This conversation is busy with another answer; wait for it, or stop it."
        ) from None
    return question
