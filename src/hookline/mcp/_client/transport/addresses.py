"""Which addresses an OAuth login may ask: a server names them, and so does a hostile one.

A request of a login goes to the server's own host, to a host that the user allows, or to a public
address over https. Names are resolved first. A name that resolves differently for the request
itself is not detected; https then needs a certificate for that name.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Collection, Sequence
from contextlib import suppress
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import TypeAlias
from urllib.parse import urlsplit

from hookline.errors import UsageError
from hookline.mcp._errors import MCPServerError

Address: TypeAlias = IPv4Address | IPv6Address


def hosts_of(allow_hosts: Collection[str]) -> frozenset[str]:
    """Check `allow_hosts=`; raises UsageError for anything but names of hosts."""
    if isinstance(allow_hosts, str) or any("/" in host or not host for host in allow_hosts):
        raise UsageError(
            f"oauth(allow_hosts={allow_hosts!r}) needs a list of host names, such as "
            "['login.example.com']"
        )
    return frozenset(host.lower().strip("[]") for host in allow_hosts)


async def check_address(address: str, server: str, hosts: Collection[str]) -> None:
    """Raise MCPServerError if a login of this server may not ask the address."""
    parts, own = urlsplit(address), urlsplit(server)
    host = (parts.hostname or "").lower()
    advice = f"pass allow_hosts=[{host!r}] to oauth() if you trust it"
    if host in hosts:
        return
    if host and host == (own.hostname or "").lower():
        if parts.scheme == "https" or own.scheme == "http":
            return
        raise MCPServerError(f"the login names {_display(address)}, which is not https")
    resolved = await _resolved(host)
    home = await _resolved((own.hostname or "").lower()) if _on_loopback(resolved) else []
    if _on_loopback(home):
        return
    if parts.scheme != "https":
        raise MCPServerError(f"the login names {_display(address)}, which is not https; {advice}")
    if not resolved or not all(map(_is_public, resolved)):
        raise MCPServerError(
            f"the login names {_display(address)}, which is not a public address; {advice}"
        )


async def _resolved(host: str) -> list[Address]:
    """Return the addresses of a host; none if it has none."""
    with suppress(ValueError):
        return [ip_address(host)]
    if host == "localhost" or host.endswith(".localhost"):
        return [ip_address("127.0.0.1")]
    try:
        entries = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return []
    return [ip_address(str(entry[4][0]).partition("%")[0]) for entry in entries]


def _on_loopback(addresses: Sequence[Address]) -> bool:
    return bool(addresses) and all(address.is_loopback for address in addresses)


def _is_public(address: Address) -> bool:
    return address.is_global and not address.is_multicast


def _display(address: str) -> str:
    """Name an address without its path and its query, which the server has chosen."""
    parts = urlsplit(address)
    return repr(f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"[:200])
