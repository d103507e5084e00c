"""Forks a recorded chat: a new conversation has what came before a step, and goes on from there."""

from __future__ import annotations

from hookline import Conversation
from hookline.errors import HistoryError, UsageError
from hookline.points import check_number
from hookline.replay._records import Record


def fork(record: Record, *, step: int) -> Conversation:
    """Return a new conversation with all messages before a step of a record.

    `agent.chat(None, conversation=fork(record, step=2))` goes on from there, with the agent's own
    model, tools and hooks. A step is an answer of the model with its calls, counted from 0; the
    number of answers goes on after the last one. The conversation has an id of its own and is in no
    store. Raises UsageError if the record has no such step, or not the messages before it, or
    nothing to go on from.
    """
    check_number("step", step, whole=True)
    answers = [at for at, message in enumerate(record.messages) if message.role == "assistant"]
    has_ended = bool(answers) and record.messages[-1].role == "assistant"
    last = len(answers) - has_ended
    if step > len(answers):
        raise UsageError(
            f"step={step} is not in the record {record.id!r}; pass a step from 0 to {last}"
        )
    own = record.messages if step == len(answers) else record.messages[: answers[step]]
    whole = bool(own) and own[0] == record.message
    if not whole or own[-1].role == "assistant":
        why = "the chat ended there" if whole else "the record lacks the first messages of the chat"
        raise UsageError(
            f"the record {record.id!r} cannot go on from step={step}, because {why}; pass an "
            "earlier step, or a record that was read from a store or a log"
        )
    try:
        return Conversation((*record.before, *own))
    except HistoryError as exc:
        raise UsageError(
            f"the record {record.id!r} cannot go on from step={step}, because its messages are not "
            f"complete ({exc}); pass an earlier step"
        ) from exc
