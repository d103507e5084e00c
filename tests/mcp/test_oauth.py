"""A login by OAuth, with an authorization server on this machine: kept, renewed, refused."""

from __future__ import annotations

import asyncio
import copy
import time
import warnings
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests._listening import listening
from tests._oauth_server import Authorization

from hookline import Agent, ToolFailure, ToolResult, tool
from hookline.errors import UsageError
from hookline.events import Status, ToolCallFinished
from hookline.mcp import MCPServer, MCPServerError, connect, oauth, serve
from hookline.testing import ScriptedModel, call, collect

httpx2 = pytest.importorskip("httpx2")
settings = pytest.importorskip("mcp.server.auth.settings")


class Store:
    """Keeps a login, as a file or a row would: as a copy."""

    def __init__(self) -> None:
        self.kept: dict[str, Any] | None = None

    async def load(self) -> dict[str, Any] | None:
        return copy.deepcopy(self.kept)

    async def save(self, login: dict[str, Any]) -> None:
        self.kept = copy.deepcopy(login)


class World:
    """An agent that is served behind a login, and a user with a browser."""

    def __init__(self, url: str, authorization: Authorization) -> None:
        self.url = url
        self.authorization = authorization
        self.store = Store()
        self.logins = 0

    async def login(self, address: str) -> str:
        self.logins += 1
        async with httpx2.AsyncClient() as browser:
            return str((await browser.get(address)).headers["location"])

    def server(self, **options: Any) -> MCPServer:
        auth = oauth(self.url, store=self.store, **{"login": self.login, **options})
        return MCPServer.http(self.url, label="bank", auth=auth)


@asynccontextmanager
async def world(*, expires_in: int | None = 3600, bank: Agent[Any] | None = None) -> Any:
    authorization = Authorization(expires_in=expires_in)
    async with listening(authorization.app) as issuer:
        authorization.url = issuer.removesuffix("/mcp")
        served = bank or Agent(ScriptedModel("We have 3 euros.", repeat=True), name="bank")
        # The address is known when it listens, and the app needs it before.
        app: list[Any] = []

        async def late(scope: Any, receive: Any, send: Any) -> None:
            if scope["type"] == "lifespan":
                return
            await app[0](scope, receive, send)

        async with listening(late, lifespan="off") as url:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                auth = settings.AuthSettings(
                    issuer_url=authorization.url,
                    resource_server_url=url,
                    validate_token_resource=False,
                )
                app.append(serve(served, auth=auth, token_verifier=authorization))
            yield World(url, authorization)


def asking(times: int = 1) -> Agent[Any]:
    calls = [call("chat", message="How much?", call_id=f"c{n}") for n in range(times)]
    return Agent(ScriptedModel(*calls, "done"))


def ends(events: list[Any]) -> list[Any]:
    return [event.result for event in events if isinstance(event, ToolCallFinished)]


FINE = ToolResult("We have 3 euros.")


async def test_the_first_connection_logs_in_and_the_login_is_kept() -> None:
    async with world() as w:
        async with connect(agent := asking(), w.server()):
            assert ends(await collect(agent.chat_stream("go"))) == [FINE]
        assert w.logins == 1
        assert w.authorization.seen == ["register", "authorize", "authorization_code"]
        # Another process, with the same store: nobody is asked, and nothing is registered.
        async with connect(agent := asking(), w.server(login=None)):
            assert ends(await collect(agent.chat_stream("go"))) == [FINE]
        assert w.logins == 1
        assert len(w.authorization.seen) == 3


@pytest.mark.parametrize(
    ("expires_in", "ahead"),
    [
        pytest.param(3600, 4_000, id="on-time"),
        pytest.param(3600, 0, id="early"),
        pytest.param(None, 0, id="without-a-word"),
    ],
)
async def test_a_token_that_expires_in_mid_chat_is_renewed_and_no_call_fails(
    monkeypatch: pytest.MonkeyPatch, expires_in: int | None, ahead: int
) -> None:
    real, passed = time.time, [0]
    monkeypatch.setattr(time, "time", lambda: real() + passed[0])
    async with world(expires_in=expires_in) as w:

        def expire(ctx: Any) -> None:
            w.authorization.expire()
            passed[0] += ahead

        agent = asking(3)
        agent.add_hook("onToolCallResult", expire)
        async with connect(agent, w.server()):
            assert ends(await collect(agent.chat_stream("go"))) == [FINE, FINE, FINE]
        assert w.logins == 1
        renewals = [each for each in w.authorization.seen if each == "refresh_token"]
        assert len(renewals) >= 2
        assert w.store.kept is not None
        assert w.store.kept["tokens"]["refresh_token"] in w.authorization.refresh


async def test_an_expired_login_of_the_store_is_renewed_by_a_new_process() -> None:
    async with world() as w:
        async with connect(asking(), w.server()):
            pass
        assert w.store.kept is not None
        w.store.kept["expires_at"] = 1.0  # long ago
        w.authorization.expire()
        async with connect(agent := asking(), w.server(login=None)):
            assert ends(await collect(agent.chat_stream("go"))) == [FINE]
        assert w.authorization.seen[3:] == ["refresh_token"]


async def test_a_login_that_is_over_in_mid_chat_is_a_tool_error_and_the_chat_goes_on() -> None:
    async with world() as w:
        async with connect(asking(), w.server()):
            pass
        calls = [call("chat", message="How much?", call_id=each) for each in "ab"]
        agent = Agent(model := ScriptedModel(*calls, "done"))
        async with connect(agent, server := w.server(login=None)):
            w.authorization.revoke()
            events = await collect(agent.chat_stream("go"))
            assert server.connected
        for result in ends(events):
            assert isinstance(result, ToolFailure)
            assert result.type == "MCPError"
            assert "HTTP 401: the login is missing, has expired" in result.message
        assert model.requests[-1].messages[-1].role == "tool"  # it was told, and asked again
        assert len(model.requests) == 3


async def test_somebody_who_logs_in_again_in_mid_chat_makes_the_call_work() -> None:
    async with world() as w:
        agent = asking(2)
        async with connect(agent, w.server()):
            w.authorization.revoke()
            assert ends(await collect(agent.chat_stream("go"))) == [FINE, FINE]
        assert w.logins == 2


async def test_calls_at_one_time_renew_once_and_do_not_wait_for_each_other() -> None:
    both = asyncio.Barrier(2)

    @tool
    async def meet() -> str:
        """Wait for the other."""
        await both.wait()
        return "met"

    class Each:
        """A model that calls `meet` for each chat that is new to it."""

        def stream(self, request: Any) -> Any:
            turn = "met" if request.messages[-1].role == "tool" else call("meet")
            return ScriptedModel(turn).stream(request)

    async with world(bank=Agent(Each(), tools=[meet], name="bank")) as w:  # type: ignore[arg-type]
        two = [call("chat", message=each, call_id=each) for each in "ab"]
        agent = Agent(ScriptedModel(two, "done"))
        async with connect(agent, w.server()):
            w.authorization.expire()
            assert ends(await collect(agent.chat_stream("go"))) == [ToolResult("met")] * 2
        assert w.authorization.seen.count("refresh_token") == 1


async def test_without_a_login_it_cannot_be_connected_and_the_error_says_why() -> None:
    async with world() as w:
        with pytest.raises(MCPServerError, match="HTTP 401: the login is missing"):
            async with connect(asking(), w.server(login=None)):
                raise AssertionError("connected")


async def test_a_login_that_the_user_refuses_is_told() -> None:
    async with world() as w:

        async def login(address: str) -> str:
            return "http://127.0.0.1:8765/callback?error=access_denied"

        with pytest.raises(MCPServerError, match="HTTP 401"):
            async with connect(asking(), w.server(login=login)):
                raise AssertionError("connected")


async def test_a_client_that_is_known_already_is_not_registered() -> None:
    async with world() as w:
        known = {"redirect_uris": ["http://127.0.0.1:8765/callback"]}
        w.authorization.clients["known"] = known
        async with connect(agent := asking(), w.server(client_id="known")):
            assert ends(await collect(agent.chat_stream("go"))) == [FINE]
        assert w.authorization.seen == ["authorize", "authorization_code"]


async def test_a_login_without_a_store_lasts_as_long_as_its_auth() -> None:
    async with world() as w:
        server = MCPServer.http(w.url, label="bank", auth=oauth(w.url, login=w.login))
        for _ in range(2):
            async with connect(agent := asking(), server):
                assert ends(await collect(agent.chat_stream("go"))) == [FINE]
        assert w.logins == 1


def test_what_is_no_address_is_refused() -> None:
    with pytest.raises(UsageError, match="begin with https"):
        oauth("bank")


class Broken(Exception):
    """What a login of the user's own raises."""


async def test_a_login_that_raises_reaches_the_one_who_connects_once() -> None:
    async with world() as w:
        logins: list[str] = []
        broken = Broken("no browser")

        async def login(address: str) -> str:
            logins.append(address)
            raise broken

        with pytest.raises(Broken) as caught:
            async with connect(asking(), w.server(login=login)):
                raise AssertionError("connected")
        assert caught.value is broken
        assert len(logins) == 1


async def test_a_login_that_raises_in_mid_chat_fails_its_call_and_keeps_the_connection() -> None:
    async with world() as w:
        logins: list[str] = []

        async def login(address: str) -> str:
            if not logins:
                logins.append("fine")
                return await w.login(address)
            logins.append("broken")
            raise Broken("no browser")

        agent = asking(2)
        async with connect(agent, server := w.server(login=login)):
            w.authorization.revoke()
            events = await collect(agent.chat_stream("go"))
            assert server.connected
        assert ends(events) == [ToolFailure("no browser", type="Broken")] * 2
        assert logins == ["fine", "broken", "broken"]  # once for each call
        assert not [event for event in events if isinstance(event, Status)]


async def test_an_auth_of_the_users_own_that_raises_sends_nothing() -> None:
    async with world() as w:

        class Vault(httpx2.Auth):  # type: ignore[misc]
            async def async_auth_flow(self, request: Any) -> Any:
                raise Broken("the vault is sealed")
                yield request

        with pytest.raises(Broken, match="sealed"):
            async with connect(asking(), MCPServer.http(w.url, auth=Vault())):
                raise AssertionError("connected")
        assert w.authorization.seen == []
