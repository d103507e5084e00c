"""For writers of stores: what a store keeps, and what it is asked for."""

from hookline._store import Change, ConversationInfo, PendingStep, Store, Stored, check_id

__all__ = [
    "Change",
    "ConversationInfo",
    "PendingStep",
    "Store",
    "Stored",
    "check_id",
]
