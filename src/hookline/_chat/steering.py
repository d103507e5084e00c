"""Messages into a running chat: the way into its queue, and the one place that empties the queue.

Theory of operation. `send` queues a message from any task and never waits. The chat takes messages
out between two steps, in `take_input`: a "next" message before the next request, all messages when
the chat would end. What it takes is a recorded step. Each message passes preSteer, and is then
written like every other message, through preMessage and onMessage. A message is in no second chat:
it stays in this queue until it is in the history, and `return_input` returns what is left at the
end to its sender.

Clients of a durable chat send from other processes. Their messages are rows of the engine, which
the chat reads at the same two places. A later life reads all of them again: the recorded steps tell
it which were taken out before.
"""

from __future__ import annotations

from typing import Any, Final

from hookline._base.errors import HookError, StreamStateError, UsageError
from hookline._base.events import MessageQueued, MessageReturned
from hookline._base.input import sent_into, without_surrogates
from hookline._base.messages import Data, UserMessage
from hookline._base.returns import Deny, Hold, When
from hookline._chat.channel import HIGH_WATER
from hookline._chat.commit import commit
from hookline._chat.inbox import MAX_QUEUED, TOO_LATE, Inbox, Interrupt, SentMessage
from hookline._chat.life import Phase
from hookline._chat.state import RUNNING, Chat
from hookline._conversations.conversation import Conversation
from hookline._hooks.call_rules import intercept
from hookline._hooks.one_hook import effect_of
from hookline._hooks.points import END, PreSteer
from hookline._record.runtime import IDLE_INPUT, INPUT, LOCAL, RETURNED, Json, Key


class Steered(Data, frozen=True, kw_only=True):
    """The decision about one queued message, as it is recorded."""

    message: UserMessage
    refused: str | None = None
    held: bool = False
    """Whether the message stays in the queue."""


_STEERED: Final[Json[list[Steered]]] = Json(list[Steered])


def send(chat: Chat, message: Any, when: When) -> SentMessage:
    """Queue a message for this chat. It is returned at once if the chat takes no more messages.

    A message with an id is queued once: sent again, it is the message that was sent before.
    """
    sent = new_message(chat.chat_id, message, when)
    _check_loop(chat)
    sent.message = _as_shown(chat, sent.message, when)
    if chat.progress.inbox is not None:
        known = chat.progress.inbox.find(sent.message.id)
        if known is not None:
            return known
    if chat.life.phase > Phase.RUNNING:
        sent.decide("returned", TOO_LATE)
        return sent
    inbox = _inbox(chat)
    if inbox.full:
        sent.decide("returned", f"{MAX_QUEUED} messages wait already")
        return sent
    if isinstance(message, Interrupt):
        chat.interrupt_tools(sent.message.id)
    inbox.add(sent)
    # The sender may be the reader, so it never waits for room: without room, the chat publishes it.
    if chat.life.phase is Phase.RUNNING and len(chat.channel.items) <= HIGH_WATER:
        inbox.announced.add(sent.message.id)
        chat.put(_queued_event(chat, sent))
    return sent


def send_to(conversation: Conversation, message: Any, when: When) -> SentMessage:
    """Queue a message for the chat that runs on this conversation, if there is one."""
    for chat in list(RUNNING.values()):
        if chat.input.parent is None and _runs_on(chat, conversation):
            return send(chat, message, when)
    sent = new_message("none", message, when)
    sent.decide("returned", f"no chat is running on conversation {conversation.id!r}")
    return sent


def new_message(chat_id: str, message: Any, when: When) -> SentMessage:
    """A message with an id of its own; raises UsageError if it says nothing."""
    if when not in ("next", "idle"):
        raise UsageError(f"when={when!r} must be 'next' or 'idle'")
    if isinstance(message, Interrupt):
        if when != "next":
            raise UsageError(f"when={when!r} contradicts an Interrupt; leave when= out")
        message = message.message
    return SentMessage(sent_into(chat_id, message), when)


def _check_loop(chat: Chat) -> None:
    if chat.supervisor is not None and not chat.supervisor.is_here():
        raise StreamStateError(
            f"a message must be sent in the event loop of its chat {chat.chat_id!r}; from another "
            "thread, use loop.call_soon_threadsafe"
        )


def _runs_on(chat: Chat, conversation: Conversation) -> bool:
    """Whether the chat runs on this conversation, or on another view of the same stored one."""
    own = chat.input.conversation
    if own is None or own is conversation or own.store is None:
        return own is conversation
    return own.id == conversation.id and own.store is conversation.store


def _inbox(chat: Chat) -> Inbox:
    if chat.progress.inbox is None:
        chat.progress.inbox = Inbox()
    return chat.progress.inbox


def may_have_input(chat: Chat, answer: object) -> bool:
    """Whether the next step has a request, and messages may wait for it.

    A message must not come before an answer that replaces another: if the chat failed, the message
    would be lost with its part of the history.
    """
    if chat.progress.inbox is None and chat.runtime is LOCAL:
        return False
    return answer is None and not chat.conversation.replaces


async def take_input(chat: Chat, step: int, *, idle: bool) -> bool:
    """Commit the queued messages that are due before this step; return whether there were any."""
    if chat.last.finish_reason == "pause":  # the provider goes on with its own answer
        return False
    key: Key = (IDLE_INPUT if idle else INPUT, step)
    due = await _due(chat, key, idle=idle)
    chat.check()
    if not chat.asks(due, key):
        return False
    steered = await chat.runtime.step(key, _steer, _STEERED, chat, due)
    chat.check()
    accepted = False
    for decision in steered:
        if decision.held:  # a later life must not announce it again
            _inbox(chat).announced.add(decision.message.id)
        elif decision.refused is None:
            accepted = True
            await commit(chat, decision.message)
            _inbox(chat).decide(decision.message.id, "delivered")
        else:
            await _return(chat, decision)
    return accepted


async def return_input(chat: Chat) -> None:
    """Return the messages that are still queued, because the chat ends."""
    key: Key = (RETURNED, chat.life.outcome)
    due = await _due(chat, key, idle=True)
    if chat.asks(due, key):
        for decision in await chat.runtime.step(key, _refuse, _STEERED, due):
            await _return(chat, decision)


async def _due(chat: Chat, key: Key, *, idle: bool) -> tuple[SentMessage, ...]:
    """The messages to decide in this step; clients of a durable chat may have sent more."""
    if chat.runtime is not LOCAL and not chat.runtime.has_passed(key):
        for message, when in await chat.runtime.messages():
            _inbox(chat).add(SentMessage(_as_shown(chat, message, when), when))
    return () if chat.progress.inbox is None else chat.progress.inbox.due(idle=idle)


async def _refuse(due: tuple[SentMessage, ...]) -> list[Steered]:
    return [Steered(message=sent.message, refused=TOO_LATE) for sent in due]


async def _return(chat: Chat, decision: Steered) -> None:
    """Tell the reader and the sender that a message was not delivered."""
    message, reason = decision.message, decision.refused or ""
    await chat.room()
    chat.put(MessageReturned(chat_id=chat.chat_id, message=message, reason=reason))
    _inbox(chat).decide(message.id, "returned", reason)


async def _steer(chat: Chat, due: tuple[SentMessage, ...]) -> list[Steered]:
    """Pass the messages through preSteer. A message that a hook holds stays in the queue."""
    decisions: list[Steered] = []
    announced = _inbox(chat).announced
    for sent in due:
        if sent.message.id not in announced:
            announced.add(sent.message.id)
            await chat.room()
            chat.put(_queued_event(chat, sent))
        ctx = _context(chat, sent.message, sent.when)
        ctx, answer, _ = await intercept(chat.view.preSteer, ctx, chat)
        if isinstance(answer, Deny):
            decisions.append(Steered(message=sent.message, refused=answer.reason))
        elif isinstance(answer, Hold):
            decisions.append(Steered(message=sent.message, held=True))
        else:
            decisions.append(Steered(message=without_surrogates(ctx.message)))
    return decisions


def _context(chat: Chat, message: UserMessage, when: When) -> PreSteer[Any]:
    return PreSteer(run=chat.run, message=message, when=when)


def _as_shown(chat: Chat, message: UserMessage, when: When) -> UserMessage:
    """The message as readers may see it, before the other hooks at preSteer have passed it."""
    early = [hook for hook in chat.view.preSteer if hook.options.early]
    if not early:
        return message
    ctx = _context(chat, message, when)
    for hook in early:
        if (value := hook.fn(ctx)) is not None:
            if effect_of(hook, ctx, value) is END:
                raise HookError(
                    f"hook {hook.name!r} returned {value!r}, but an early hook must return the "
                    "changed message or None; use a second hook at preSteer"
                )
            ctx = ctx.replace(message=without_surrogates(value))
    return ctx.message


def _queued_event(chat: Chat, sent: SentMessage) -> MessageQueued:
    return MessageQueued(chat_id=chat.chat_id, message=sent.message, when=sent.when)
