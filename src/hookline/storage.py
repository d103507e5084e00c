"""Interfaces for authors of stores, and functions that find a store by its URL."""

from hookline._base.messages import RanCall
from hookline._conversations.store import (
    Change,
    ConversationInfo,
    PendingStep,
    Store,
    Stored,
    after_prefix,
    chat_of,
    check_id,
    check_page,
    inherits,
)
from hookline._resolve import resolve_store, shown_url

__all__ = [
    "Change",
    "ConversationInfo",
    "PendingStep",
    "RanCall",
    "Store",
    "Stored",
    "after_prefix",
    "chat_of",
    "check_id",
    "check_page",
    "inherits",
    "resolve_store",
    "shown_url",
]
