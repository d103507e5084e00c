"""The writing of a message: preMessage, the write, its event, onMessage.

Theory of operation. A message is in history once its write has ended; only `_enter` records that.
A write that has begun is finished, even if the chat is cancelled meanwhile. The event and onMessage
come after the write. If the chat is broken off between the write and the event, the ending
publishes the event and calls onMessage.

A tool result is written on behalf of its call. The call's state (`call.py`) shows whether the write
has begun. If hooks or the store refuse a result, the ending writes a safe result without them,
since each call in history needs a result.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any, Final, TypeAlias

from msgspec.structs import replace

from hookline._base.events import MessageAdded
from hookline._base.input import without_surrogates
from hookline._base.messages import (
    AssistantMessage,
    Message,
    ModelPart,
    ToolMessage,
    UserMessage,
)
from hookline._chat.call import COMMITTED, FINISHED, WRITING, CallRun
from hookline._chat.channel import HIGH_WATER
from hookline._chat.recorder import ChatReturns
from hookline._chat.shown import show
from hookline._chat.state import Chat
from hookline._hooks.call_rules import intercept, notify
from hookline._hooks.points import OnMessage, PreMessage
from hookline._model.assembly import parts_to_store
from hookline._record.runtime import FINAL_MESSAGE, MESSAGE, Json, Key

Draft: TypeAlias = UserMessage | AssistantMessage | CallRun
"""A message that is to be written, or the call whose result is."""


def commit(
    chat: Chat, draft: Draft, *, streamed: tuple[ModelPart, ...] | None = None
) -> Awaitable[Any]:
    """Write a message as a recorded step; returns it, of the same role, as hooks have left it.

    `streamed`: the parts of an answer that were shown so far; if hooks change the answer, it is
    shown again. An answer that hooks have emptied is not written.
    """
    progress = chat.progress
    key: Key = (MESSAGE, progress.messages)
    progress.messages += 1
    # In an ending the key is not a count: the number of messages so far depends on timing, and
    # another life of the chat may have another ending.
    if chat.life.outcome is not None:
        kept_for = draft.id if isinstance(draft, CallRun) else draft.role
        key = (FINAL_MESSAGE, chat.life.outcome, kept_for)
    return chat.runtime.step(key, _commit, _WRITTEN, chat, draft, streamed)


async def _commit(chat: Chat, draft: Draft, streamed: tuple[ModelPart, ...] | None) -> Message:
    conversation = chat.conversation
    if conversation.earlier_messages:  # an earlier life of the chat has written it
        message = conversation.earlier_messages[0]
        take_ids(chat, message)
    else:
        message = _stamped(chat, draft)
        if chat.view.preMessage:
            message = await _pre_message(chat, message, draft)
    if streamed is not None and isinstance(message, AssistantMessage):
        # Before the write, so that in the events an answer comes before its MessageAdded.
        if message.parts is not streamed or not chat.live:
            await show(chat, message.parts, streamed)
        if not message.parts:
            end_answer(chat)
            return message
    if conversation.ledger is None:
        conversation.commit(message)
        _enter(chat, message, draft)
    else:
        await _store(chat, message, draft)
    if len(chat.channel.items) > HIGH_WATER:
        chat.progress.unannounced = message
        await chat.room()
    chat.put(MessageAdded(chat_id=chat.chat_id, message=message))
    chat.progress.unannounced = None
    if chat.view.onMessage:
        await _on_message(chat, message)
    return message


async def _append_recorded(message: Message, chat: Chat, draft: Draft, streamed: Any) -> None:
    """Append a message that an earlier life has written."""
    take_ids(chat, message)
    if isinstance(message, AssistantMessage) and not message.parts:
        end_answer(chat)
    else:
        await chat.conversation.wait_idle()
        _append(chat, message, draft)


_WRITTEN: Final[ChatReturns[Message]] = ChatReturns(
    form=Json(UserMessage | AssistantMessage | ToolMessage), on_replay=_append_recorded
)


async def _pre_message(chat: Chat, message: Message, draft: Draft) -> Message:
    """Call preMessage. If a hook raises, a tool result in the message is withheld."""
    ctx: PreMessage[Any] = PreMessage(run=chat.run, message=message)
    try:
        ctx, _, _ = await intercept(chat.view.preMessage, ctx, chat.firing)
    except Exception:
        if isinstance(draft, CallRun):  # the ending writes this message in place of the refused one
            draft.withhold()
            draft.message = draft.to_message()
        raise
    new = without_surrogates(ctx.message)
    if isinstance(new, AssistantMessage):
        new = new.replace(parts=parts_to_store(new.parts))
    return replace(new, chat_id=message.chat_id, at=message.at)


def _stamped(chat: Chat, draft: Message | CallRun) -> Message:
    """The message with its id, and with its chat and the time."""
    id = f"{chat.chat_id}.{len(chat.messages)}"
    if isinstance(draft, CallRun):
        return draft.to_message(id, chat.chat_id, chat.runtime.now())
    if not draft.id:
        return replace(draft, id=id, chat_id=chat.chat_id, at=chat.runtime.now())
    question = chat.conversation.question
    if question is not None and question.id == draft.id:  # only its answer is new
        return replace(draft, chat_id=question.chat_id, at=question.at)
    return replace(draft, chat_id=chat.chat_id, at=chat.runtime.now())


async def _store(chat: Chat, message: Message, draft: Draft) -> None:
    """Write the message to the store and the conversation, even if cancelled meanwhile."""
    run = draft if isinstance(draft, CallRun) else None
    if run is not None:
        assert isinstance(message, ToolMessage)
        run.message = message
        run.move(WRITING)

    def on_written() -> None:
        _enter(chat, message, draft)
        chat.progress.unannounced = message

    try:
        await chat.conversation.write(message, on_written)
    except BaseException:
        # The store has refused it, or was not asked before a cancellation.
        if run is not None and run.state is WRITING:
            run.move(FINISHED)
            if chat.step.batch is None:  # the batch is closed and left this call to its write
                _append(chat, message, run)
        raise


async def _on_message(chat: Chat, message: Message) -> None:
    ctx: OnMessage[Any] = OnMessage(run=chat.run, message=message)
    await notify(chat.view.onMessage, ctx, chat.firing)


async def announce_late(chat: Chat) -> None:
    """Announce a message if the chat was broken off between its write and its event."""
    message, chat.progress.unannounced = chat.progress.unannounced, None
    if message is None:
        return
    await chat.room()
    chat.put(MessageAdded(chat_id=chat.chat_id, message=message))
    await _on_message(chat, message)


async def write_past_hooks(chat: Chat, run: CallRun) -> None:
    """Append and publish a safe result in place of a refused one; the end of the chat stores it."""
    message = _stamped(chat, run.message or run)
    _append(chat, message, run)
    await chat.room()
    chat.put(MessageAdded(chat_id=chat.chat_id, message=message))


def write_now(chat: Chat, run: CallRun) -> None:
    """Write a result without waiting for room, because a hook hangs."""
    message = _stamped(chat, run.message or run)
    _append(chat, message, run)
    # The channel stays bounded, even if this reader misses the event.
    if len(chat.channel.items) <= HIGH_WATER:
        chat.put(MessageAdded(chat_id=chat.chat_id, message=message))


def _append(chat: Chat, message: Message, draft: Draft) -> None:
    chat.conversation.commit(message)
    _enter(chat, message, draft)


def _enter(chat: Chat, message: Message, draft: Draft) -> None:
    """Record that this chat has written the message. This is the only place that does."""
    if isinstance(draft, CallRun):
        assert isinstance(message, ToolMessage)
        draft.message = message
        draft.move(COMMITTED)
    elif isinstance(message, AssistantMessage):
        chat.step.assembly, chat.step.visible = None, False  # nothing of it is partial
    chat.messages.append(message)


def end_answer(chat: Chat) -> None:
    """End an answer that is not written, because it is empty: nothing of it is partial."""
    chat.step.assembly = None
    chat.step.visible = False


def take_ids(chat: Chat, message: Message) -> None:
    """Reserve the ids of the message's calls, which may differ from the model's."""
    if type(message) is AssistantMessage:
        chat.conversation.call_ids.update({call.id: None for call in message.tool_calls})
