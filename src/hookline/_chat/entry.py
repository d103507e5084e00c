"""The checks before a chat begins: its conversation is loaded, and nothing has changed yet."""

from __future__ import annotations

from collections.abc import Mapping

from hookline._base.errors import HistoryError, UsageError
from hookline._base.messages import UserMessage
from hookline._base.returns import Answer, Approve
from hookline._chat.approval import check_answers
from hookline._chat.config import Config
from hookline._chat.leading_tools import sub_agent_of
from hookline._chat.rules import check_rule
from hookline._chat.speaker import SPEAKER
from hookline._chat.state import RUNNING, Chat
from hookline._conversations.store import PendingStep, made_by
from hookline._record.runtime import ID, LOCAL, Json

_EXISTS: Json[bool] = Json(bool)


async def check_entry(chat: Chat) -> None:
    """Raise UsageError, ApprovalError or HistoryError if the chat cannot begin."""
    _check_id(chat)
    task = chat.input
    if task.answers is not None and task.parent is not None:
        check_answers(chat.conversation, task.answers, None)  # the root chat has checked the time
    elif task.answers is not None:
        check_answers(chat.conversation, task.answers, chat.runtime.now())
        _check_tools(chat)
        _check_guards(chat)
    elif task.message is None:
        _check_history(chat)
    else:
        await check_message(chat, task.message, "input")


async def check_message(chat: Chat, message: UserMessage, origin: str) -> None:
    """Refuse a message if the conversation already has its id.

    If an earlier life of this chat did not find the id, that life has written the message itself.
    """
    if not message.id:
        return
    if made_by(chat.chat_id, message):
        raise UsageError(
            f"the id {message.id!r} of the message begins like the ids that chat {chat.chat_id!r} "
            "gives to its own messages; leave the id out"
        )
    exists = await chat.runtime.step((ID, origin), _find, _EXISTS, chat, message.id)
    if not exists:
        chat.conversation.take_back(message.id)
    if exists or await _find(chat, message.id):
        raise HistoryError(
            [f"the conversation already has a message with the id {message.id!r}; leave the id out"]
        )


async def _find(chat: Chat, id: str) -> bool:
    return any(message.id == id for message in chat.history)


def _check_id(chat: Chat) -> None:
    """Refuse a chosen id that another chat has. A durable runtime has its own rule."""
    if chat.runtime is not LOCAL:
        RUNNING[chat.chat_id] = chat
        return
    # RUNNING is weak, so a chat that was dropped does not keep its id.
    if RUNNING.setdefault(chat.chat_id, chat) is not chat:
        raise UsageError(
            f"chat_id={chat.chat_id!r}: a chat with this id is running; choose another id, or wait "
            "for that chat"
        )
    conversation = chat.conversation
    if chat.input.has_chat_id and (conversation.earlier_messages or _has_written(chat)):
        raise UsageError(
            f"chat_id={chat.chat_id!r}: a chat with this id has written to conversation "
            f"{conversation.id!r}; choose another id"
        )


def _has_written(chat: Chat) -> bool:
    return any(made_by(chat.chat_id, message) for message in chat.history)


def _check_tools(chat: Chat) -> None:
    """Refuse an approval of a call whose tool is gone, or whose sub-agent is."""
    step = chat.conversation.pending_step
    answers = chat.input.answers or {}
    if step is not None:
        _check_tools_of(chat.config, step, answers)
        for request in step.requests:
            answer = answers.get(request.id)
            if isinstance(answer, Approve) and answer.remember is not None:
                check_rule(chat, request, answer.remember)


def _check_tools_of(config: Config, step: PendingStep, answers: Mapping[str, Answer]) -> None:
    for request in step.requests:
        name = request.call.name
        is_own = request.path == step.path
        approved = isinstance(answers.get(request.id), Approve)
        if is_own and approved and config.scopes.find(name) is None:
            raise UsageError(
                f"approval {request.id!r}: tool {name!r} no longer exists; pass the tool to the "
                "agent or to resume(tools=…), or answer with Deny"
            )
    for child in step.children:
        entry = config.scopes.find(child.call.name)
        sub_agent = None if entry is None else sub_agent_of(entry[0])
        if any(isinstance(answers.get(id), Approve) for id in child.step.ids):
            if sub_agent is None or sub_agent.name != child.agent:
                raise UsageError(
                    f"the sub-agent {child.agent!r}, which waits for an approval, is no longer the "
                    f"tool {child.call.name!r}; pass the tool to the agent or to resume(tools=…), "
                    "or answer with Deny"
                )
            if SPEAKER not in child.meta:  # otherwise the tools are those of another agent
                _check_tools_of(sub_agent, child.step, answers)


def _check_guards(chat: Chat) -> None:
    """Refuse to resume a chat without its required hooks, unless `only_hooks=` is given."""
    step = chat.conversation.pending_step
    if step is None or chat.input.only_hooks:
        return
    missing = [name for name in step.guards if name not in chat.input.guards]
    if missing:
        raise UsageError(
            f"chat {step.chat_id!r} had the required hooks {', '.join(missing)}; pass the same "
            "hooks= to resume, or choose the hooks with only_hooks="
        )


def _check_history(chat: Chat) -> None:
    """Refuse a chat without a message unless the history needs an answer."""
    if chat.conversation.pending_step is not None:
        raise UsageError(
            f"conversation {chat.conversation.id!r} has calls that wait for an answer; use "
            "resume(conversation, answers)"
        )
    last = chat.history[-1].role if chat.history else None
    if last not in ("user", "tool"):
        raise UsageError(
            f"input=None continues the history, but its last message must have the role 'user' or "
            f"'tool', not {last!r}; pass input, or restore() other messages first"
        )
