"""Conversations: valid histories, the store protocol, leases, and the memory store.

Imports `_base` and `_model`. A conversation does not depend on the chat that writes to it.
"""
