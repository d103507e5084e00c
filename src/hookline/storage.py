"""For writers of stores: what a store keeps and is asked for; and stores by their URLs."""

from hookline._resolve import resolve_store, shown_url
from hookline._talk.store import (
    Change,
    ConversationInfo,
    PendingStep,
    Store,
    Stored,
    chat_of,
    check_id,
)

__all__ = [
    "Change",
    "ConversationInfo",
    "PendingStep",
    "Store",
    "Stored",
    "chat_of",
    "check_id",
    "resolve_store",
    "shown_url",
]
