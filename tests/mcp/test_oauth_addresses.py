"""The addresses that a server names for its login: which of them are asked."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests._listening import listening

from hookline import Agent
from hookline.errors import UsageError
from hookline.mcp import MCPServer, MCPServerError, connect, oauth
from hookline.testing import ScriptedModel

pytest.importorskip("mcp")
httpx2: Any = pytest.importorskip("httpx2")

AWAY = "https://bank.example/mcp"
HERE = "http://127.0.0.1:8000/mcp"
REFUSED = {
    "plain http": ("http://8.8.8.8/token", AWAY),
    "a private address": ("https://10.0.0.7/token", AWAY),
    "link-local, with a cloud's keys": ("http://169.254.169.254/latest/meta-data", AWAY),
    "link-local by https": ("https://169.254.169.254/latest/meta-data", AWAY),
    "loopback": ("https://127.0.0.1/admin", AWAY),
    "loopback as IPv6": ("https://[::1]/admin", AWAY),
    "loopback as IPv4 in IPv6": ("https://[::ffff:127.0.0.1]/admin", AWAY),
    "link-local as IPv4 in IPv6": ("https://[::ffff:169.254.169.254]/latest/meta-data", AWAY),
    "localhost": ("http://localhost:8080/admin", AWAY),
    "a name that is localhost": ("https://a.localhost/admin", AWAY),
    "the own host without https": ("http://bank.example/token", AWAY),
    "multicast": ("https://224.0.0.1/token", AWAY),
    "no host": ("https:///token", AWAY),
    "a file": ("file:///etc/passwd", AWAY),
    "private, from loopback": ("https://192.168.1.1/token", HERE),
}
TAKEN = {
    "a public address": ("https://8.8.8.8/token", AWAY),
    "the own host": ("https://bank.example:8443/token", AWAY),
    "loopback from loopback": ("http://localhost:9000/token", HERE),
    "the own host on a private address": ("http://10.0.0.7:9000/token", "http://10.0.0.7/mcp"),
}


async def asked(address: str, server: str, **options: Any) -> list[str]:
    """What a login of this server asks if the server names the address, until it gives up."""
    urls: list[str] = []

    def answer(request: Any) -> Any:
        urls.append(str(request.url))
        if str(request.url) != server:
            return httpx2.Response(404)
        challenge = f'Bearer resource_metadata="{address}"'
        return httpx2.Response(401, headers={"www-authenticate": challenge})

    transport, auth = httpx2.MockTransport(answer), oauth(server, **options)
    async with httpx2.AsyncClient(transport=transport, auth=auth) as http:
        try:
            await http.get(server)
        except MCPServerError as exc:
            assert urls == [server]
            urls.append(str(exc))
    return urls


@pytest.mark.parametrize(("address", "server"), REFUSED.values(), ids=REFUSED)
async def test_a_login_asks_no_such_address(address: str, server: str) -> None:
    _, error = await asked(address, server)
    assert error.startswith("the login names")


@pytest.mark.parametrize(("address", "server"), TAKEN.values(), ids=TAKEN)
async def test_a_login_asks_these_addresses(address: str, server: str) -> None:
    assert (await asked(address, server))[:2] == [server, address]


async def test_a_name_is_judged_by_all_its_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = asyncio.get_running_loop()

    async def getaddrinfo(host: str, port: Any, **options: Any) -> list[Any]:
        return [(0, 0, 0, "", ("8.8.8.8", 0)), (0, 0, 0, "", ("10.0.0.7", 0))]

    monkeypatch.setattr(loop, "getaddrinfo", getaddrinfo)
    address = "https://login.example/token"
    _, error = await asked(address, AWAY)
    assert "allow_hosts=['login.example']" in error
    assert address in await asked(address, AWAY, allow_hosts={"login.example"})


@pytest.mark.parametrize("hosts", ["login.example", ["https://login.example"], [""]])
def test_allow_hosts_takes_names_of_hosts(hosts: Any) -> None:
    with pytest.raises(UsageError, match="allow_hosts="):
        oauth(AWAY, allow_hosts=hosts)


async def test_a_server_that_names_another_address_is_told_and_not_obeyed() -> None:
    paths: list[str] = []

    async def hostile(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        paths.append(scope["path"])
        challenge = b'Bearer resource_metadata="http://169.254.169.254/latest/meta-data"'
        headers = [(b"www-authenticate", challenge)]
        await send({"type": "http.response.start", "status": 401, "headers": headers})
        await send({"type": "http.response.body", "body": b""})

    async with listening(hostile, lifespan="off") as url:
        server = MCPServer.http(url, label="bank", auth=oauth(url))
        with pytest.raises(MCPServerError, match=r"names 'http://169\.254\.169\.254'"):
            async with connect(Agent(ScriptedModel()), server):
                raise AssertionError("connected")
    assert paths == ["/mcp"]


async def test_a_stored_login_is_not_renewed_at_such_an_address() -> None:
    paths: list[str] = []

    async def server_of_tools(scope: Any, receive: Any, send: Any) -> None:
        paths.append(scope["path"])

    class Store:
        async def load(self) -> dict[str, Any]:
            away = "http://169.254.169.254"
            return {
                "tokens": {"access_token": "a", "refresh_token": "r", "token_type": "Bearer"},
                "expires_at": 1.0,
                "issuer": away,
                "client": {"client_id": "c", "redirect_uris": ["http://127.0.0.1:8765/callback"]},
                "server": {
                    "issuer": away,
                    "authorization_endpoint": f"{away}/authorize",
                    "token_endpoint": f"{away}/token",
                    "response_types_supported": ["code"],
                },
            }

        async def save(self, login: dict[str, Any]) -> None:
            raise AssertionError(login)

    async with listening(server_of_tools, lifespan="off") as url:
        server = MCPServer.http(url, label="bank", auth=oauth(url, store=Store()))
        with pytest.raises(MCPServerError, match=r"names 'http://169\.254\.169\.254'"):
            async with connect(Agent(ScriptedModel()), server):
                raise AssertionError("connected")
    assert paths == []
