"""Adapters to model providers, and the frame that they stand in.

`hookline.providers.openai`, `.openai_chat`, `.anthropic` and `.google` are the adapters; each
imports its SDK when it is used. Here are the names that a further adapter needs.
"""

from hookline.providers._clients import Clients, check_extra
from hookline.providers._failures import failure, retry_after, scrubbed, told
from hookline.providers._frame import Reader, relay, server_sent

__all__ = [
    "Clients",
    "Reader",
    "check_extra",
    "failure",
    "relay",
    "retry_after",
    "scrubbed",
    "server_sent",
    "told",
]
