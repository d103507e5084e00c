"""Access control: check the Host and Origin of a request, and find its principal.

A page of another site can make a browser send requests to this server. So the Origin must be ours
or a listed one, and the Host must be one of our names, whatever the DNS says. There is no wildcard.
After that the request must have a principal: from the bearer token, or from `authorize`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from hmac import compare_digest
from inspect import isawaitable
from typing import Any, Final, TypeAlias
from urllib.parse import urlsplit

from hookline.errors import UsageError
from hookline.points import as_tuple
from hookline.web._http.extra import needs
from hookline.web._http.request_reply import Refused, Request

Authorize: TypeAlias = Callable[[Any], str | Awaitable[str | None] | None]
"""A function, sync or async, that returns the principal of a connection; None refuses it."""

LOOPBACK: Final = ("localhost", "127.0.0.1", "[::1]")
ONE: Final = "owner"  # the principal of the bearer token


class Guard:
    """Checks requests: `enter` returns the principal or raises Refused."""

    def __init__(
        self,
        *,
        token: str | None,
        authorize: Authorize | None,
        hosts: Iterable[str],
        origins: Iterable[str],
    ) -> None:
        if (token is None) == (authorize is None):
            raise UsageError("pass token= or authorize=, not both")
        if token is not None and len(token) < 16:
            raise UsageError("token= must have at least 16 characters")
        self._token = token
        self._authorize = authorize
        self._hosts = frozenset(_host(name) for name in _names_in(hosts, "hosts"))
        self._origins = frozenset(_origin(name) for name in _names_in(origins, "origins"))

    @property
    def shares_token(self) -> bool:
        """Whether all clients have the same token, and so are one principal."""
        return self._authorize is None

    def check_host(self, request: Request) -> str:
        """Check the Host of a request, and return it."""
        host = request.headers.get("host", "")
        if _name(host) not in self._hosts:
            raise Refused(403, "This host name must be one of the names in hosts= of the server.")
        return host

    def check_site(self, request: Request) -> tuple[tuple[str, str], ...]:
        """Check Host and Origin; returns the CORS headers for a listed origin."""
        host = self.check_host(request)
        origin = request.headers.get("origin")
        if origin is None:
            if request.headers.get("sec-fetch-site") in ("cross-site", "same-site"):
                raise Refused(
                    403,
                    "Requests from other sites must come from an origin listed in origins=.",
                )
            return ()
        if origin in self._origins:
            return (("access-control-allow-origin", origin), ("vary", "Origin"))
        try:
            site = urlsplit(origin)
        except ValueError:
            site = urlsplit("")
        # A page that was loaded without TLS may have been changed on its way. (In the opposite case
        # a proxy has removed the TLS.)
        weaker = site.scheme != "https" and request.scope.get("scheme") == "https"
        if site.netloc.lower() == host.lower() and not weaker:
            return ()
        raise Refused(403, "This origin must be one of the origins in origins= of the server.")

    async def enter(self, request: Request) -> str:
        """Return the principal of a request."""
        if self._authorize is None:
            assert self._token is not None
            kind, _, credential = request.headers.get("authorization", "").partition(" ")
            matches = kind.lower() == "bearer" and compare_digest(
                credential.strip().encode(), self._token.encode()
            )
            principal = ONE if matches else None
        else:
            answer = self._authorize(needs("starlette.requests").HTTPConnection(request.scope))
            principal = await answer if isawaitable(answer) else answer
        if not isinstance(principal, str) or not principal:
            raise Refused(
                401,
                "You are not signed in or not allowed to do this; sign in, or send a token.",
                www_authenticate="Bearer",
            )
        return principal


def preflight(request: Request, cors: tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...]:
    """Return the CORS headers that tell a listed origin what it may send."""
    if not cors:
        return ()
    return (
        *cors,
        ("access-control-allow-methods", "GET, POST, PATCH, DELETE"),
        ("access-control-allow-headers", "authorization, content-type, last-event-id, accept"),
        ("access-control-max-age", "600"),
    )


def _names_in(values: Iterable[str], what: str) -> list[str]:
    names = list(as_tuple(what, values))
    if any("*" in name for name in names):
        raise UsageError(f"{what}={names!r}: wildcards are not supported; list the names")
    return names


def _host(value: str) -> str:
    if "/" in value or not value:
        raise UsageError(f"hosts: {value!r} must be a host name such as 'chat.example.com'")
    return _name(value)


def _name(host: str) -> str:
    """Return a Host header without its port."""
    if host.startswith("["):
        return host.partition("]")[0].lower() + "]"
    return host.partition(":")[0].lower()


def _origin(value: str) -> str:
    parts = urlsplit(value)
    if parts.scheme not in ("http", "https") or not parts.netloc or parts.path or parts.query:
        raise UsageError(f"origins: {value!r} must look like 'https://chat.example.com'")
    return value.lower()
