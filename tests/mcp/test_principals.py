"""The principal of a request to an agent that is served: one for each user of each client."""

from __future__ import annotations

from typing import Any

import pytest
from tests._listening import listening

from hookline import Agent, MemoryStore
from hookline.mcp import serve
from hookline.testing import ScriptedModel

mcp = pytest.importorskip("mcp")
httpx2 = pytest.importorskip("httpx2")
transport = pytest.importorskip("mcp.client.streamable_http")
provider = pytest.importorskip("mcp.server.auth.provider")
settings = pytest.importorskip("mcp.server.auth.settings")


class Verifier:
    """Knows the tokens: a token is the place of its client and user in a list."""

    def __init__(self, logins: list[tuple[str, str | None]]) -> None:
        self.logins = logins

    async def verify_token(self, token: str) -> Any:
        client_id, subject = self.logins[int(token)]
        return provider.AccessToken(token=token, client_id=client_id, scopes=[], subject=subject)


async def kept_by(logins: list[tuple[str, str | None]]) -> list[str]:
    """Where the store keeps the conversation "a" of each of these."""
    store = MemoryStore()
    agent = Agent(ScriptedModel("Hi.", repeat=True), store=store)
    auth = settings.AuthSettings(
        issuer_url="https://login.example",
        resource_server_url="http://127.0.0.1/mcp",
        validate_token_resource=False,
    )
    app = serve(agent, auth=auth, token_verifier=Verifier(logins))
    async with listening(app) as url:
        for number in range(len(logins)):
            headers = {"Authorization": f"Bearer {number}"}
            async with (
                httpx2.AsyncClient(headers=headers) as http,
                mcp.Client(transport.streamable_http_client(url, http_client=http)) as client,
            ):
                await client.call_tool("chat", {"message": "hi", "conversation": "a"})
    return [kept.id for kept in await store.list()]


async def test_a_client_cannot_have_the_name_of_another_clients_user() -> None:
    logins = [
        ("https://a.example/app", "bob"),
        ("https://a.example", "app/bob"),
        ("https://a.example/app/bob", None),
        ("https://a.example/app", None),
        ("https:%2F%2Fa.example%2Fapp", "bob"),
    ]
    assert len(await kept_by(logins)) == len(logins)


@pytest.mark.parametrize("subject", [None, "bob"])
async def test_the_name_of_a_plain_client_is_readable(subject: str | None) -> None:
    name = "app" if subject is None else "app%2Fbob"
    assert await kept_by([("app", subject)]) == [f"mcp:{name}:a"]


async def test_without_a_token_everybody_is_the_same() -> None:
    store = MemoryStore()
    agent = Agent(ScriptedModel("Hi.", repeat=True), store=store)
    async with listening(serve(agent)) as url:
        for _ in range(2):
            async with mcp.Client(url) as client:
                await client.call_tool("chat", {"message": "hi", "conversation": "a"})
    assert [kept.id for kept in await store.list()] == ["mcp::a"]
