"""Adapters to model providers, and the building blocks for further adapters.

`hookline.providers.openai`, `.openai_chat`, `.anthropic` and `.google` are the adapters; each
imports its SDK on first use. This module exports the names that a new adapter needs.
"""

from hookline.providers._adapter.clients import Clients, check_extra
from hookline.providers._adapter.errors.details import retry_after, scrubbed
from hookline.providers._adapter.errors.failures import Exchange, failure, told
from hookline.providers._adapter.streaming import Reader, relay, server_sent

__all__ = [
    "Clients",
    "Exchange",
    "Reader",
    "check_extra",
    "failure",
    "relay",
    "retry_after",
    "scrubbed",
    "server_sent",
    "told",
]
