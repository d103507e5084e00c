"""Remembered approvals as stored data: in `run.state`, in a conversation's `meta`, or in a store.

The rules of a whole store are the `meta` of a conversation with an id of its own, so that a store
needs nothing for them that it does not have.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from hookline._base.errors import ConversationBusyError, ConversationConflictError
from hookline._base.returns import Rule
from hookline._conversations.conversation import Conversation
from hookline._conversations.store import Store

RULES: Final = "hookline.rules"
"""The key of the rules in `run.state` and `meta`, and the id of the rules of a whole store."""
_ATTEMPTS: Final = 100  # of a write, while others write


def rules_in(data: Mapping[str, Any]) -> tuple[Rule, ...]:
    """Return the rules in `run.state` or in the `meta` of a conversation."""
    return tuple(msgspec.convert(data.get(RULES, ()), list[Rule]))


def add_to(data: Mapping[str, Any], rule: Rule) -> list[Any]:
    """Return the rules of `data` and this rule, without those that have ended."""
    now = rule.made_at or 0.0
    rules = [item for item in rules_in(data) if item.until is None or item.until > now]
    return [msgspec.to_builtins(item) for item in (*rules, rule)]


async def list_rules(store: Store, conversation_id: str | None = None) -> tuple[Rule, ...]:
    """Return the remembered rules of a conversation, or those with the scope "always"."""
    conversation = await store.load(conversation_id or RULES)
    return () if conversation is None else rules_in(conversation.meta)


async def revoke_rule(store: Store, rule_id: str, conversation_id: str | None = None) -> bool:
    """Remove a remembered rule; returns False if there is none with this id.

    Raises ConversationBusyError while a chat of the conversation runs.
    """

    def change(data: Mapping[str, Any]) -> list[Any] | None:
        rules = [rule for rule in rules_in(data) if rule.id != rule_id]
        unchanged = len(rules) == len(rules_in(data))
        return None if unchanged else [msgspec.to_builtins(rule) for rule in rules]

    return await _write(store, conversation_id or RULES, change)


async def add_rule(store: Store, rule: Rule) -> None:
    """Add a rule with the scope "always"."""
    await _write(store, RULES, lambda data: add_to(data, rule))


async def _write(
    store: Store, id: str, change: Callable[[Mapping[str, Any]], list[Any] | None]
) -> bool:
    """Change the rules of a conversation, again if another writer was faster."""
    for attempt in range(_ATTEMPTS):
        conversation = await Conversation.open(store, id)
        rules = change(conversation.meta)
        if rules is None:
            return False
        conversation.meta[RULES] = rules
        try:
            await conversation.save()
        except (ConversationBusyError, ConversationConflictError):
            if attempt == _ATTEMPTS - 1:
                raise
            await asyncio.sleep(0.02)
        else:
            return True
    return False
