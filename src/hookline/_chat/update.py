"""The change of a message in history: its hooks, the write, its observers.

A change works like a chat, with an id and a run of its own, and holds the conversation. So the
history never changes during a step. A change is not part of a chat and is never replayed.
"""

from __future__ import annotations

from asyncio import CancelledError
from typing import Any

from hookline._base.cancel import being_cancelled, finished
from hookline._base.errors import UsageError
from hookline._base.input import says_nothing, without_surrogates
from hookline._base.messages import (
    AssistantMessage,
    File,
    Image,
    Message,
    ModelPart,
    Reasoning,
    Text,
    ToolCall,
    ToolMessage,
    UserMessage,
    UserPart,
    calls_of,
)
from hookline._base.returns import MessageChanges
from hookline._chat.state import Chat
from hookline._hooks.call_rules import intercept, notify
from hookline._hooks.points import OnMessageUpdate, PreMessageUpdate
from hookline._model.assembly import parts_to_store

_USER = (Text, Image, File)
_MODEL = (Text, Reasoning, ToolCall)


async def update_message(chat: Chat, message_id: str, changes: MessageChanges) -> Message:
    """Change the message with that id and return it.

    Raises UsageError, or what a hook raises; ConversationBusyError while a chat runs.
    """
    conversation = chat.conversation
    conversation.acquire(chat.chat_id)
    try:
        return await _on_conversation(chat, message_id, changes)
    except CancelledError:
        # No task is cancelled for an abort or a lost lease: hooks and writes are only refused.
        if chat.error is None or being_cancelled():
            raise
        raise chat.error from None
    finally:
        try:
            await finished(conversation.leave(chat.chat_id))
        finally:
            conversation.release(chat.chat_id)
            chat.deadlines.close()
            chat.dispose()


async def _on_conversation(chat: Chat, message_id: str, changes: MessageChanges) -> Message:
    conversation = chat.conversation
    await conversation.take(chat.chat_id, chat.lose_lease)
    message = next((m for m in chat.history if m.id and m.id == message_id), None)
    if message is None:
        raise UsageError(
            f"conversation {conversation.id!r} has no message with the id {message_id!r}; "
            "use the id of a message in conversation.messages"
        )
    with_changes(message, changes)
    return await _update(chat, message, changes)


async def _update(chat: Chat, message: Message, changes: MessageChanges) -> Message:
    view = chat.view
    if view.preMessageUpdate:
        ctx: PreMessageUpdate[Any] = PreMessageUpdate(
            run=chat.run, message=message, changes=changes
        )
        ctx, _, _ = await intercept(view.preMessageUpdate, ctx, chat)
        changes = ctx.changes
    new = with_changes(message, changes)
    if new != message:
        await chat.conversation.change(new)
    if view.onMessageUpdate:
        event: OnMessageUpdate[Any] = OnMessageUpdate(run=chat.run, message=new, changes=changes)
        await notify(view.onMessageUpdate, event, chat)
    return new


def with_changes(message: Message, changes: MessageChanges) -> Message:
    """The message with these changes; raises UsageError if they do not fit the message."""
    if changes.parts is not None:
        message = _with_parts(message, changes.parts)
    if changes.text is not None:
        message = message.replace(text=changes.text)
    if isinstance(message, AssistantMessage):
        message = message.replace(parts=parts_to_store(message.parts))
    if not isinstance(message, ToolMessage) and says_nothing(message.parts):
        raise UsageError(
            f"these changes leave message {message.id!r} empty; keep some text or a part"
        )
    return without_surrogates(message)


def _with_parts(message: Message, parts: tuple[UserPart | ModelPart, ...]) -> Message:
    if isinstance(message, ToolMessage):
        raise UsageError(f"tool message {message.id!r} has only text, no parts; pass text=")
    takes = _USER if isinstance(message, UserMessage) else _MODEL
    for part in parts:
        if type(part) not in takes:
            raise UsageError(
                f"{type(part).__name__} is not a part of a message with the role "
                f"{message.role!r}; leave it out"
            )
    if isinstance(message, AssistantMessage) and calls_of(parts) != message.tool_calls:
        raise UsageError(
            f"the tool calls of message {message.id!r} must not change, since their results follow "
            "it; pass the same calls"
        )
    typed: Any = parts  # of the kinds that this message may have
    return message.replace(parts=typed)
