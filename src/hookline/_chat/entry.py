"""What is refused before a chat begins, when its conversation is there and nothing has changed."""

from __future__ import annotations

from hookline._base.errors import HistoryError, UsageError
from hookline._base.messages import UserMessage
from hookline._base.returns import Approve
from hookline._base.runtime import LOCAL
from hookline._chat.approval import check_answers
from hookline._chat.state import RUNNING, Chat


def check_entry(chat: Chat) -> None:
    """Raises UsageError, ApprovalError or HistoryError where the chat cannot begin."""
    _check_id(chat)
    task = chat.task
    if task.answers is not None:
        check_answers(chat.conversation, task.answers, chat.runtime.now())
        _check_tools(chat)
    elif task.message is None:
        _check_history(chat)
    else:
        check_message(chat, task.message)


def check_message(chat: Chat, message: UserMessage) -> None:
    """Refuse a message whose id the conversation has already."""
    if message.id and any(m.id == message.id for m in chat.history):
        raise HistoryError(
            [f"the conversation has a message with the id {message.id!r} already: leave the id out"]
        )


def _check_id(chat: Chat) -> None:
    """An id that the caller has chosen is no other chat's. A durable runtime has its own rule."""
    if chat.runtime is not LOCAL:
        return
    if RUNNING.setdefault(chat.chat_id, chat) is not chat:
        raise UsageError(
            f"chat_id={chat.chat_id!r}: a chat of this id is running; choose another id, or wait "
            "for that chat"
        )
    conversation = chat.conversation
    if chat.task.named and (conversation.ahead or _has_written(chat)):
        raise UsageError(
            f"chat_id={chat.chat_id!r}: a chat of this id has written to conversation "
            f"{conversation.id!r}; choose another id"
        )


def _has_written(chat: Chat) -> bool:
    return any(message.id.startswith(f"{chat.chat_id}.") for message in chat.history)


def _check_tools(chat: Chat) -> None:
    """What an answer approves must be there to be run."""
    answers = chat.task.answers or {}
    for request in chat.conversation.pending:
        name = request.call.name
        approved = isinstance(answers.get(request.id), Approve)
        if approved and chat.config.scopes.find(name) is None:
            raise UsageError(
                f"approval {request.id!r}: there is no tool {name!r} any more; give the agent or "
                "resume(tools=…) that tool, or answer with Deny"
            )


def _check_history(chat: Chat) -> None:
    """A chat without a message goes on from a history that waits for an answer."""
    if chat.conversation.pending_step is not None:
        raise UsageError(
            f"conversation {chat.conversation.id!r} has calls that wait for an approval: answer "
            "them with resume(conversation, answers)"
        )
    last = chat.history[-1].role if chat.history else None
    if last not in ("user", "tool"):
        raise UsageError(
            f"input=None goes on from the history, and its last message is of role {last!r}; it "
            "must be the user's or a tool's: pass input, or restore() the messages to go on from"
        )
