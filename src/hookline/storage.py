"""Interfaces for authors of stores, and functions that find a store by its URL."""

from hookline._base.messages import RanCall
from hookline._base.returns import Rule
from hookline._conversations.rules import RULES, list_rules, revoke_rule
from hookline._conversations.store import (
    Change,
    ConversationInfo,
    PendingStep,
    Store,
    Stored,
    WaitingChild,
    after_prefix,
    chat_of,
    check_id,
    check_page,
    inherits,
)
from hookline._resolve import resolve_store, shown_url

__all__ = [
    "RULES",
    "Change",
    "ConversationInfo",
    "PendingStep",
    "RanCall",
    "Rule",
    "Store",
    "Stored",
    "WaitingChild",
    "after_prefix",
    "chat_of",
    "check_id",
    "check_page",
    "inherits",
    "list_rules",
    "resolve_store",
    "revoke_rule",
    "shown_url",
]
