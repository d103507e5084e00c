"""A small authorization server: registration, codes with PKCE, tokens that expire and rotate."""

from __future__ import annotations

import base64
import hashlib
from itertools import count
from typing import Any
from urllib.parse import urlencode

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route


class Authorization:
    """Knows clients, codes and tokens; `expires_in` is what it says of the tokens that it gives."""

    def __init__(self, *, expires_in: int | None = 3600) -> None:
        self.expires_in = expires_in
        self.url = ""
        self.valid: dict[str, str] = {}  # access token: client
        self.refresh: dict[str, str] = {}  # refresh token: client
        self.clients: dict[str, dict[str, Any]] = {}
        self.codes: dict[str, tuple[str, str]] = {}  # code: client and challenge
        self.seen: list[str] = []  # what it was asked
        self._numbers = count(1)
        self.app = Starlette(
            routes=[
                Route("/.well-known/oauth-authorization-server", self._metadata),
                Route("/register", self._register, methods=["POST"]),
                Route("/authorize", self._authorize),
                Route("/tokens", self._token, methods=["POST"]),
            ]
        )

    async def _metadata(self, request: Request) -> Response:
        return JSONResponse(
            {
                "issuer": self.url,
                "authorization_endpoint": f"{self.url}/authorize",
                "token_endpoint": f"{self.url}/tokens",
                "registration_endpoint": f"{self.url}/register",
                "response_types_supported": ["code"],
                "code_challenge_methods_supported": ["S256"],
                "grant_types_supported": ["authorization_code", "refresh_token"],
                "token_endpoint_auth_methods_supported": ["none"],
            }
        )

    async def _register(self, request: Request) -> Response:
        self.seen.append("register")
        client = {**await request.json(), "client_id": f"client-{next(self._numbers)}"}
        client["token_endpoint_auth_method"] = "none"
        self.clients[client["client_id"]] = client
        return JSONResponse(client, status_code=201)

    async def _authorize(self, request: Request) -> Response:
        self.seen.append("authorize")
        asked = request.query_params
        assert asked["redirect_uri"] in self.clients[asked["client_id"]]["redirect_uris"]
        assert asked["code_challenge_method"] == "S256"
        code = f"code-{next(self._numbers)}"
        self.codes[code] = asked["client_id"], asked["code_challenge"]
        query = urlencode({"code": code, "state": asked["state"], "iss": self.url})
        return RedirectResponse(f"{asked['redirect_uri']}?{query}", status_code=302)

    async def _token(self, request: Request) -> Response:
        form = await request.form()
        kind = str(form["grant_type"])
        self.seen.append(kind)
        if kind == "authorization_code":
            client, challenge = self.codes.pop(str(form["code"]), ("", ""))
            digest = hashlib.sha256(str(form["code_verifier"]).encode()).digest()
            right = base64.urlsafe_b64encode(digest).decode().rstrip("=") == challenge
        else:
            client = self.refresh.pop(str(form["refresh_token"]), "")
            right = bool(client)
        if not right or client != form["client_id"]:
            return JSONResponse({"error": "invalid_grant"}, status_code=400)
        number = next(self._numbers)
        self.valid[f"access-{number}"] = client
        self.refresh[f"refresh-{number}"] = client
        tokens: dict[str, Any] = {
            "access_token": f"access-{number}",
            "refresh_token": f"refresh-{number}",
            "token_type": "Bearer",
        }
        if self.expires_in is not None:
            tokens["expires_in"] = self.expires_in
        return JSONResponse(tokens)

    # ── what a test does to it ──────────────────────────────────────────────────────────────

    async def verify_token(self, token: str) -> Any:
        """As the SDK's token verifier, for the server that the tokens are for."""
        from mcp.server.auth.provider import AccessToken

        client = self.valid.get(token)
        return None if client is None else AccessToken(token=token, client_id=client, scopes=[])

    def expire(self) -> None:
        """No token that it has given is any good now; what renews them still is."""
        self.valid.clear()

    def revoke(self) -> None:
        """Nor is what renews them."""
        self.valid.clear()
        self.refresh.clear()
