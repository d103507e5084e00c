"""Interfaces for authors of stores, and functions that find a store by its URL."""

from hookline._base.messages import RanCall
from hookline._resolve import resolve_store, shown_url
from hookline._talk.store import (
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
