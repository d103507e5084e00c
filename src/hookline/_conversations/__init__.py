"""Conversations: valid histories, the store protocol, leases, and the memory store.

Imports only the packages below it, and not `_hooks`. A conversation does not depend on the chat
that writes to it.
"""
