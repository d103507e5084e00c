"""The building blocks of adapters: what a model of your own can use.

An adapter builds a request, sends it, and converts the events of the answer to chunks. `Clients`
keeps the SDK's client, `server_sent_events` reads an answer, and `relay` does the rest: errors,
answers that were cut off, and closing.
"""

from hookline.providers._adapter.clients import Clients, check_extra
from hookline.providers._adapter.errors.details import retry_after, scrubbed
from hookline.providers._adapter.errors.failures import Exchange, failure, service_error
from hookline.providers._adapter.streaming import Body, Reader, relay, server_sent_events

__all__ = [
    "Body",
    "Clients",
    "Exchange",
    "Reader",
    "check_extra",
    "failure",
    "relay",
    "retry_after",
    "scrubbed",
    "server_sent_events",
    "service_error",
]
