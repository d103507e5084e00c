"""The connection of a model to its service: the client, the key, the address, and each request.

`Service` describes a service and its SDK. `Connection` is one model's access to it: it checks the
arguments that all models share, keeps the client, and names the server whose data a request may
contain. The wire formats are in the folders of the services.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Hashable
from contextlib import AbstractAsyncContextManager, aclosing
from typing import Any, Generic, TypeVar

import msgspec

from hookline.points import check_number
from hookline.providers._adapter.clients import (
    CONNECT_TIMEOUT,
    IDLE_TIMEOUT,
    Clients,
    address_of,
    check_alone,
    check_async,
    check_extra,
    check_url,
    from_environment,
    imported,
    keys_of,
    no_key,
    server_of,
    where_of,
)
from hookline.providers._adapter.errors.failures import Exchange
from hookline.providers._adapter.streaming import Body, send_request

C = TypeVar("C")


class Service(msgspec.Struct, frozen=True, kw_only=True):
    """A service, and the SDK that reaches it."""

    name: str
    """The name in errors."""
    meta: str
    """The key of the service's data in the meta of messages, at its own address."""
    extra: str
    """The extra to install."""
    modules: tuple[str, ...]
    """The modules that the SDK imports at its first request; the SDK itself is the first."""
    url: str
    """The address of the service."""
    host: str
    """The domain of the service: other hosts are gateways, or other services."""
    keys: tuple[str, ...]
    """The environment variables for the key; the first one that is set is used."""
    address: str = ""
    """The environment variable for another address."""
    variables: tuple[str, ...] = ()
    """Further environment variables that the SDK reads."""
    keyless: bool | None = False
    """Whether no key is needed; None: not at another address."""
    client: str
    """What may be passed as `client=`, for errors."""
    make: Callable[[Connection[Any]], Any]
    """Creates a client."""
    prepare: Callable[[Any], Any]
    """Adapts a client, also one that the user passed."""


class Connection(Generic[C]):
    """One model's connection to a service. The arguments are those of the models.

    `provider` names the service in errors. Data that a service expects back, such as signatures, is
    sent only to a service of the same name; without `provider`, only to the same host.
    """

    def __init__(
        self,
        service: Service,
        client: C | Callable[[], C] | None = None,
        api_key: str | None = None,
        base_url: str | None = None,
        *,
        provider: str | None = None,
        idle_timeout: float = IDLE_TIMEOUT,
    ) -> None:
        check_extra(service.modules[0], service.extra)
        check_number("idle_timeout", idle_timeout, above=0)
        check_alone(client, api_key=api_key, base_url=base_url)
        if client is None:
            check_url(base_url or from_environment(service.address))
        else:
            check_async(getattr(client, "aio", client), service.client)
        self.service = service
        self.provider = provider or service.name
        self.api_key = api_key
        self.base_url = base_url
        self.idle_timeout = idle_timeout
        self._client = client
        self._owner = provider
        self.clients: Clients[C] = Clients(
            client,
            modules=service.modules,
            make=lambda: service.make(self),
            key=self._identity,
            close=_close,
            prepare=service.prepare,
        )

    def key(self) -> str | None:
        """Return the key; raises UsageError if one is needed and there is none."""
        key = self.api_key or from_environment(*self.service.keys)
        keyless = self.service.keyless
        if key is None and not (self.base_url is not None if keyless is None else keyless):
            raise no_key(self.provider, *self.service.keys)
        return key

    def _identity(self) -> Hashable:
        """Return what decides whether two models can share a client."""
        service = self.service
        variables = (*service.keys, service.address, *service.variables)
        return (service.make, self.api_key, self.base_url, *map(from_environment, variables))

    def server(self) -> tuple[str | None, int | None]:
        """Return the host and port of the service, for traces."""
        if callable(self._client):
            return None, None  # the function decides
        urls = (self.base_url, from_environment(self.service.address), self.service.url)
        return server_of(address_of(self._client), *urls)

    def exchange(self) -> Exchange:
        """Begin a request."""
        keys: tuple[Any, ...] = (
            self.api_key,
            *map(from_environment, self.service.keys),
            *([] if callable(self._client) else keys_of(self._client)),
        )
        secrets = [key for key in keys if isinstance(key, str)]
        return Exchange(self.provider, secrets=secrets, idle=self.idle_timeout)

    async def open(self, exchange: Exchange) -> C:
        """Return the client, and name the server in the exchange."""
        client = await self.clients.get()
        url = address_of(client) or self.base_url
        exchange.secrets += keys_of(client)
        exchange.where = where_of(url, self.provider, self.service.host)
        exchange.server = self._owner or where_of(url, self.service.meta, self.service.host)
        return client

    def timeout(self) -> Any:
        """Return the SDK's timeouts for connecting and between bytes, without an overall one."""
        idle = self.idle_timeout
        return imported(self.service.modules[0]).Timeout(idle, connect=min(idle, CONNECT_TIMEOUT))

    async def events(
        self, exchange: Exchange, request: Callable[[C], AbstractAsyncContextManager[Body]]
    ) -> AsyncGenerator[Any, None]:
        """Send a request that an SDK prepares, and yield the JSON of the events of its answer."""
        client = await self.open(exchange)
        async with aclosing(send_request(request(client), exchange)) as events:
            async for event in events:
                yield event


async def _close(client: Any) -> None:
    await client.close()


def without_retries(client: Any) -> Any:
    """Turn off the retries of the SDK, which no hook would see."""
    # Older versions of Anthropic's client for Bedrock keep no HTTP client that is not named.
    return client.with_options(max_retries=0, http_client=getattr(client, "_client", None))
