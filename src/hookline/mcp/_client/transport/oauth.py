"""`oauth`: log in to a server with OAuth, and keep the login in a store of yours.

The SDK's provider implements the protocol: discovery, registration, PKCE, tokens. This module adds
three things. A stored login keeps its expiry and the address of its authorization server, so a new
process renews the token without a new login. A token that is refused before its expiry is renewed
once before a new login is requested. Requests do not wait for each other's responses. If a login
fails, the server's own refusal is the error of that one call.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Collection
from contextlib import aclosing
from inspect import isawaitable
from logging import getLogger
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias
from urllib.parse import parse_qs, urlsplit

from hookline.errors import UsageError
from hookline.mcp._client.transport.addresses import check_address, hosts_of
from hookline.mcp._errors import sdk

if TYPE_CHECKING:
    from httpx2 import Auth

logger = getLogger("hookline.mcp")

TRIES: Final = 3  # unchanged, with a renewed token, after a new login
UNAUTHORIZED: Final = 401
Login: TypeAlias = Callable[[str], str | Awaitable[str]]
"""A function, sync or async, that lets a person log in at a URL and returns the final URL."""


class TokenStore(Protocol):
    """Stores one login, for example in a file. A login is JSON data with secrets."""

    async def load(self) -> dict[str, Any] | None:
        """Return the last saved login, or None."""
        ...

    async def save(self, login: dict[str, Any]) -> None:
        """Save a login, which replaces the last saved login."""
        ...


class _Memory:
    """Keeps a login while the process runs."""

    def __init__(self) -> None:
        self._login: dict[str, Any] | None = None

    async def load(self) -> dict[str, Any] | None:
        return self._login

    async def save(self, login: dict[str, Any]) -> None:
        self._login = login


def oauth(
    url: str,
    *,
    store: TokenStore | None = None,
    login: Login | None = None,
    redirect_uri: str = "http://127.0.0.1:8765/callback",
    scope: str | None = None,
    client_id: str | None = None,
    client_secret: str | None = None,
    name: str = "hookline",
    allow_hosts: Collection[str] = (),
) -> Auth:
    """Return the `auth=` of `MCPServer.http(url, …)` for a server that requires OAuth.

    `store` keeps the login; without a store the login lasts as long as the process. `login` sends
    the user to the given address, and returns the address to which the browser was redirected. The
    returned address begins with `redirect_uri`. Without `login`, only a stored login is used.
    Without `client_id`, the client registers itself under `name`.

    The server names the addresses of its login. They are asked only over https, at public addresses
    or at the server's own host; on loopback only if the server is there, too. `allow_hosts` are
    further hosts, such as an authorization server in your own network. Raises UsageError if the
    address is not a URL, or if the extra is missing.
    """
    if not url.startswith(("http://", "https://")):
        raise UsageError(f"oauth({url[:200]!r}) needs the URL of the server: begin with https://")
    auth = sdk("mcp.shared.auth")
    metadata = auth.OAuthClientMetadata(client_name=name, redirect_uris=[redirect_uri], scope=scope)
    fixed = None
    if client_id is not None:
        fixed = auth.OAuthClientInformationFull(
            client_id=client_id,
            client_secret=client_secret,
            redirect_uris=[redirect_uri],
            token_endpoint_auth_method="client_secret_post" if client_secret else "none",
        )
    browser = _Browser(login)
    storage = _Storage(_Memory() if store is None else store, fixed)
    provider = sdk("mcp.client.auth").OAuthClientProvider(
        url, metadata, storage, browser.redirected, browser.came_back
    )
    storage.context = provider.context
    hosts = hosts_of(allow_hosts)
    return _auth(provider, lambda address: check_address(address, url, hosts))


class _Browser:
    """The user's browser; the SDK uses it in two steps."""

    def __init__(self, login: Login | None) -> None:
        self._login = login
        self._address = ""

    async def redirected(self, address: str) -> None:
        self._address = address

    async def came_back(self) -> Any:
        auth = sdk("mcp.client.auth")
        if self._login is None:
            raise auth.OAuthFlowError("a login is needed, but oauth() has no login=")
        answer = self._login(self._address)
        back = await answer if isawaitable(answer) else answer
        query = {key: values[0] for key, values in parse_qs(urlsplit(back).query).items()}
        if "code" not in query:
            raise auth.OAuthFlowError(f"the login was refused ({query.get('error', 'no code')})")
        return auth.AuthorizationCodeResult(
            code=query["code"], state=query.get("state"), iss=query.get("iss")
        )


class _Storage:
    """The SDK's token storage, which also keeps the expiry and the server."""

    def __init__(self, store: TokenStore, fixed: Any) -> None:
        self.context: Any = None
        self._store = store
        self._fixed = fixed

    async def get_tokens(self) -> Any:
        login = await self._store.load()
        if login is None or not login.get("tokens"):
            return None
        auth, context = sdk("mcp.shared.auth"), self.context
        context.token_expiry_time = login.get("expires_at")
        context.auth_server_url = login.get("issuer")
        if login.get("server"):
            context.oauth_metadata = auth.OAuthMetadata.model_validate(login["server"])
        return auth.OAuthToken.model_validate(login["tokens"])

    async def set_tokens(self, tokens: Any) -> None:
        context = self.context
        await self._save(
            tokens=_json(tokens),
            expires_at=context.token_expiry_time,
            issuer=context.auth_server_url,
            server=None if context.oauth_metadata is None else _json(context.oauth_metadata),
        )

    async def get_client_info(self) -> Any:
        login = await self._store.load()
        if self._fixed is not None or login is None or not login.get("client"):
            return self._fixed
        auth = sdk("mcp.shared.auth")
        return auth.OAuthClientInformationFull.model_validate(login["client"])

    async def set_client_info(self, client_info: Any) -> None:
        await self._save(client=_json(client_info))

    async def _save(self, **changes: Any) -> None:
        await self._store.save({**(await self._store.load() or {}), **changes})


def _json(model: Any) -> dict[str, Any]:
    data: dict[str, Any] = model.model_dump(mode="json", exclude_none=True)
    return data


def _auth(provider: Any, check: Callable[[str], Awaitable[None]]) -> Auth:
    httpx2: Any = sdk("httpx2")
    failed: Any = sdk("mcp.client.auth").OAuthFlowError

    class OAuth(httpx2.Auth):  # type: ignore[misc]
        """The provider's flow, without its lock during the server's response."""

        async def async_auth_flow(self, request: Any) -> AsyncGenerator[Any, Any]:
            refusal: Any = None  # the response that a new login continues from
            renewed = False
            for _ in range(TRIES):
                token = request.headers.get("Authorization") if refusal is not None else ""
                try:
                    async with aclosing(provider.async_auth_flow(request)) as flow:
                        message = await anext(flow)
                        while message is not request:  # renew the token first
                            await check(str(message.url))
                            message = await flow.asend((yield message))
                        if refusal is not None and request.headers.get("Authorization") == token:
                            message = await flow.asend(refusal)
                            while message is not request:
                                await check(str(message.url))
                                message = await flow.asend((yield message))
                except failed as exc:
                    logger.warning("an OAuth login has failed (%s)", type(exc).__name__)
                    logger.debug("%s", exc)
                    yield request  # the server's own refusal
                    return
                answer = yield request
                if not _is_refused(answer):
                    return
                renew = not renewed and _renew(provider.context, request, answer)
                renewed, refusal = True, None if renew else answer

    auth: Auth = OAuth()
    return auth


def _is_refused(answer: Any) -> bool:
    challenge = answer.headers.get("WWW-Authenticate", "")
    return answer.status_code == UNAUTHORIZED or (
        answer.status_code == 403 and "insufficient_scope" in challenge
    )


def _renew(context: Any, request: Any, answer: Any) -> bool:
    """Return whether to retry with a token that exists already, or needs no login to renew."""
    if answer.status_code != UNAUTHORIZED or context.current_tokens is None:
        return False
    if request.headers.get("Authorization") != f"Bearer {context.current_tokens.access_token}":
        return True  # another request has renewed it in the meantime
    if not context.can_refresh_token():
        return False
    context.token_expiry_time = 1.0  # the token has expired, whatever its expiry says
    return True
