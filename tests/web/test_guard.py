"""Who may ask: tokens, principals, hosts, origins, content types."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest
from tests.web._server import (
    HEADERS,
    LOCAL,
    TOKEN,
    client,
    conversation_of,
    direct,
    eventually,
    site_of,
)
from tests.web.test_site import PROTOCOLS, Gate, asking, gated, request_of

from hookline import Agent
from hookline.errors import UsageError
from hookline.testing import ScriptedModel
from hookline.web import Caps, app, conversation_key

ROUTES = [
    ("POST", "/native"),
    ("POST", "/ai-sdk"),
    ("POST", "/ag-ui"),
    ("GET", "/native/c1/stream"),
    ("POST", "/ai-sdk/c1/stop"),
    ("GET", "/ag-ui/c1/messages"),
    ("GET", "/conversations"),
    ("DELETE", "/conversations/c1"),
]
EVERY = pytest.mark.parametrize(("method", "path"), ROUTES)


def one() -> Agent[Any]:
    return Agent(ScriptedModel("Hello.", "Hello."))


@EVERY
@pytest.mark.parametrize("given", [None, "Bearer", "Bearer wrong", f"Basic {TOKEN}", TOKEN])
async def test_nothing_is_done_without_the_token(method: str, path: str, given: str | None) -> None:
    async with direct(one()) as (site, http):
        http.headers.pop("authorization")
        headers = {"authorization": given} if given is not None else {}
        answer = await http.request(method, path, json=request_of("native", "hi"), headers=headers)
        assert answer.status_code == 401
        assert answer.headers["www-authenticate"] == "Bearer"
        assert len(site.runs) == 0


async def test_a_token_is_made_and_printed(capsys: pytest.CaptureFixture[str]) -> None:
    app(one())
    printed = capsys.readouterr().err
    assert printed.startswith("hookline.web: the bearer token is ")
    assert len(printed.split()[-1]) >= 32


@pytest.mark.parametrize(
    "options",
    [
        {"token": "short"},
        {"token": TOKEN, "authorize": lambda connection: "ada"},
        {"token": TOKEN, "origins": ["*"]},
        {"token": TOKEN, "origins": ["https://*.example.com"]},
        {"token": TOKEN, "origins": "https://example.com"},
        {"token": TOKEN, "origins": ["example.com"]},
        {"token": TOKEN, "origins": ["https://example.com/"]},
        {"token": TOKEN, "hosts": ["*"]},
        {"token": TOKEN, "hosts": ["http://example.com"]},
        {"token": TOKEN, "on_disconnect": "ignore"},
    ],
    ids=[
        *("short token", "two ways", "wildcard", "wildcard in a name", "a text", "no scheme"),
        *("a path", "any host", "an address", "unknown policy"),
    ],
)
def test_what_would_be_unsafe_is_refused_at_once(options: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        app(one(), **options)


@EVERY
@pytest.mark.parametrize("host", ["evil.example", "localhost.evil.example", "127.0.0.2", ""])
async def test_another_name_than_ours_is_refused(method: str, path: str, host: str) -> None:
    """A page of theirs whose name was made to mean this machine."""
    async with direct(one()) as (site, http):
        answer = await http.request(
            method, path, json=request_of("native", "hi"), headers={"host": host}
        )
        assert answer.status_code == 403 or (host == "" and answer.status_code == 400)
        assert len(site.runs) == 0


@EVERY
@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"origin": "http://localhost:1"},
        {"origin": "https://chat.example.com.evil.example"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
    ],
    ids=str,
)
async def test_another_site_is_refused(method: str, path: str, headers: dict[str, str]) -> None:
    options: dict[str, Any] = {"origins": ["https://chat.example.com"]}
    async with direct(one(), **options) as (site, http):
        body = request_of("native", "hi")
        answer = await http.request(method, path, json=body, headers=headers)
        assert answer.status_code == 403
        assert "access-control-allow-origin" not in answer.headers
        preflight = await http.options(path, headers=headers)
        assert preflight.status_code == 403
        assert len(site.runs) == 0


async def test_a_listed_site_may_ask() -> None:
    origin = "https://chat.example.com"
    async with direct(one(), origins=[origin]) as (_, http):
        headers = {"origin": origin, "sec-fetch-site": "cross-site"}
        http.headers.pop("authorization")  # a preflight has none
        preflight = await http.options("/native", headers=headers)
        assert preflight.status_code == 204
        assert preflight.headers["access-control-allow-origin"] == origin
        assert "authorization" in preflight.headers["access-control-allow-headers"]
        assert "access-control-allow-credentials" not in preflight.headers
        body = request_of("native", "hi")
        answer = await http.post("/native", json=body, headers={**headers, **HEADERS})
        assert answer.status_code == 200
        assert answer.headers["access-control-allow-origin"] == origin
        assert answer.headers["vary"] == "Origin"


async def test_our_own_page_may_ask() -> None:
    async with direct(one()) as (_, http):
        body = request_of("native", "hi")
        assert (await http.post("/native", json=body, headers={"origin": LOCAL})).status_code == 200


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "", None])
async def test_a_body_that_a_form_could_send_is_refused(protocol: str, kind: str | None) -> None:
    import json

    async with direct(one()) as (site, http):
        headers = {} if kind is None else {"content-type": kind}
        content = json.dumps(request_of(protocol, "hi"))
        answer = await http.post(f"/{protocol}", content=content, headers=headers)
        assert answer.status_code == 415
        assert len(site.runs) == 0


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b"null", b'"x"', b"\xff", b"[" * 100_000, b'{"message": 1}', b"{}"]
)
@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_a_body_that_is_no_request_is_refused(protocol: str, body: bytes) -> None:
    async with direct(one()) as (site, http):
        headers = {"content-type": "application/json"}
        answer = await http.post(f"/{protocol}", content=body, headers=headers)
        assert answer.status_code == 400
        assert len(answer.text) < 200
        assert len(site.runs) == 0


# ── principals ──────────────────────────────────────────────────────────────────────────────


async def who(connection: Any) -> str | None:
    await asyncio.sleep(0)
    found: str | None = connection.headers.get("x-user")
    return found


async def test_a_conversation_belongs_to_its_principal() -> None:
    """Nobody else reads, resumes, answers, stops or forgets it, or learns that it is there."""
    gate = Gate()
    agent = gated("Hello.", "Hi, Bob.", gate=gate)
    options: dict[str, Any] = {"authorize": who, "on_disconnect": "detach"}
    async with site_of(agent, **options) as (site, url), client(url, **{"x-user": "ada"}) as http:
        bob = {"x-user": "bob"}
        posting = asyncio.create_task(http.post("/native", json=request_of("native", "secret")))
        await gate.reached.wait()
        assert (await http.get("/native/c1/stream", headers=bob)).status_code == 204
        for protocol in PROTOCOLS:
            unknown = await http.get(f"/{protocol}/nobody/messages", headers=bob)
            hers = await http.get(f"/{protocol}/c1/messages", headers=bob)
            assert (hers.status_code, hers.content) == (200, unknown.content)
            assert hers.headers.multi_items() == unknown.headers.multi_items()
            assert hers.json()["messages"] == []
        stopped = await http.post("/native/c1/stop", headers=bob)
        assert stopped.json() == {"stopped": False}
        assert (await http.delete("/conversations/c1", headers=bob)).status_code == 404
        assert (await http.get("/conversations", headers=bob)).json() == {"conversations": []}
        gate.open.set()
        whole = (await posting).content
        last_id = whole.rpartition(b"id: ")[2].split()[0].decode()
        resumed = await http.get(
            "/native/c1/stream", headers={**bob, "last-event-id": last_id[:-1] + "0"}
        )
        assert resumed.status_code == 204
        his = await http.post("/native", json=request_of("native", "mine"), headers=bob)
        assert b"secret" not in his.content  # the same id is another conversation
        assert [m.text for m in (await conversation_of(site, "c1", "ada")).messages] == [
            "secret",
            "Hello.",
        ]


ASKED = [
    *[("GET", f"/{each}/{{}}/messages", None) for each in PROTOCOLS],
    *[("GET", f"/{each}/{{}}/stream", None) for each in PROTOCOLS],
    ("POST", "/native/{}/stop", None),
    ("PATCH", "/conversations/{}", {"title": "Mine"}),
    ("POST", "/conversations/{}/fork", {"before": "x"}),
    ("POST", "/conversations/{}/feedback", {"message": "x", "value": "up"}),
    ("GET", "/rules?conversation={}", None),
    ("DELETE", "/rules/r1?conversation={}", None),
    ("GET", "/page/{}/timeline", None),
    ("GET", "/page/{}/steps/run/0", None),
    ("DELETE", "/conversations/{}", None),
]


@pytest.mark.parametrize(("method", "path", "body"), ASKED)
async def test_no_route_tells_anothers_conversation_from_one_that_is_not_there(
    method: str, path: str, body: Any
) -> None:
    async with direct(one(), authorize=who, page=True, on_disconnect="detach") as (_, http):
        answer = await http.post(
            "/native", json=request_of("native", "hi", "hers"), headers={"x-user": "ada"}
        )
        assert answer.status_code == 200
        seen: list[Any] = []
        for id in ("hers", "none"):
            found = await http.request(
                method, path.format(id), json=body, headers={"x-user": "bob"}
            )
            seen.append((found.status_code, found.content, found.headers.multi_items()))
        assert seen[0] == seen[1]
        assert seen[0][0] < 500


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_nobody_else_answers_an_approval(protocol: str) -> None:
    from tests.web.test_site import answer_of, asked

    agent, paid = asking()
    async with direct(agent, authorize=who) as (site, http):
        http.headers["x-user"] = "ada"
        known = await asked(http, protocol)
        body = answer_of(protocol, known)
        for other in ("bob", "ada/c1", "ADA", "ad"):
            answer = await http.post(f"/{protocol}", json=body, headers={"x-user": other})
            assert answer.status_code == 409
        assert paid == []
        assert (await http.post(f"/{protocol}", json=body)).status_code == 200
        assert paid == ["Ada"]
        await eventually(lambda: len(site.runs) == 0)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (("a/b", "c"), ("a", "b/c")),
        (("a%2Fb", "c"), ("a/b", "c")),
        (("é", "c"), ("e\u0301", "c")),
        (("a", "../b/c"), ("b", "c")),
        (("a" * 200, "c"), ("a" * 201, "c")),
        (("a" * 200, "c"), (conversation_key("a" * 200, "").rstrip("/"), "c")),
    ],
)
def test_names_of_principals_cannot_be_made_to_meet(
    one: tuple[str, str], other: tuple[str, str]
) -> None:
    assert conversation_key(*one) != conversation_key(*other)
    assert max(len(conversation_key(*one)), len(conversation_key(*other))) <= 255


async def test_somebody_unknown_is_nobody() -> None:
    async with direct(one(), authorize=who) as (_, http):
        assert (await http.get("/conversations")).status_code == 401


async def test_authorize_that_raises_lets_nobody_in() -> None:
    def broken(connection: Any) -> str:
        raise RuntimeError("secret")

    async with direct(one(), authorize=broken) as (_, http):
        answer = await http.get("/conversations")
        assert answer.status_code == 500
        assert "secret" not in answer.text


# ── routes ──────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/native", 405),
        ("DELETE", "/native/c1/messages", 405),
        ("GET", "/native/c1/stop", 405),
        ("GET", "/nothing", 404),
        ("GET", "/native/c1/nothing", 404),
        ("GET", "/native/stream", 400),
        ("GET", "/native/" + "x" * 129 + "/stream", 400),
        ("GET", "/native/a%0Ab/stream", 400),
        ("GET", "/", 404),
        ("GET", "/page.js", 404),
    ],
)
async def test_other_routes_are_not_there(method: str, path: str, status: int) -> None:
    async with direct(one()) as (_, http):
        assert (await http.request(method, path)).status_code == status


async def test_ids_with_every_kind_of_character_are_found_again() -> None:
    from urllib.parse import quote

    for id in ("a/b", "ä ö", "a%2Fb", "a/../b", "...", "a?b#c", "😀"):
        async with direct(one()) as (_, http):
            await http.post("/ai-sdk", json=request_of("ai-sdk", "hi", id))
            path = f"/ai-sdk/{quote(id, safe='')}/messages"
            assert len((await http.get(path)).json()["messages"]) == 2
            listed = (await http.get("/conversations")).json()["conversations"]
            assert [each["id"] for each in listed] == [id]


async def test_a_conversation_is_forgotten() -> None:
    async with direct(one()) as (_, http):
        await http.post("/native", json=request_of("native", "hi"))
        assert (await http.delete("/conversations/c1")).status_code == 204
        assert (await http.get("/native/c1/messages")).json()["messages"] == []
        assert (await http.get("/conversations")).json() == {"conversations": []}


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_an_unknown_conversation_is_an_empty_one_and_reading_makes_none(
    protocol: str,
) -> None:
    async with direct(one(), on_disconnect="detach") as (site, http):
        answer = await http.get(f"/{protocol}/c1/messages")
        more = {} if protocol == "ai-sdk" else {"pending": [], "clientCalls": [], "mayAnswer": True}
        assert answer.json() == {"messages": [], "running": False, **more}
        assert (await http.get(f"/{protocol}/c1/stream")).status_code == 204
        assert (await http.post(f"/{protocol}/c1/stop")).json() == {"stopped": False}
        assert (await http.get("/conversations")).json() == {"conversations": []}
        assert await site._config.store.load("owner/c1") is None
        await http.post(f"/{protocol}", json=request_of(protocol, "hi"))
        assert len((await http.get(f"/{protocol}/c1/messages")).json()["messages"]) == 2


async def test_the_page_is_sent_with_headers_that_hold_it_to_itself() -> None:
    async with direct(one(), page=True) as (_, http):
        http.headers.pop("authorization")
        for path in ("/", "/page.css", "/page.js", "/icon.svg"):
            answer = await http.get(path)
            assert answer.status_code == 200
            policy = answer.headers["content-security-policy"]
            assert policy.startswith("default-src 'none'; script-src 'self'")
            assert "unsafe" not in policy
            assert TOKEN not in answer.text
            assert answer.headers["x-content-type-options"] == "nosniff"
            assert "http://" not in answer.text.replace("http://www.w3.org/2000/svg", "")
        assert (await http.get("/", headers={"host": "evil.example"})).status_code == 403


async def test_a_run_of_another_site_of_the_process_is_not_found() -> None:
    async with site_of(one(), caps=Caps(drain=0.0)) as (first, _), site_of(one()) as (second, _):
        assert first.runs is not second.runs


@pytest.mark.parametrize(
    ("scheme", "origin", "status"),
    [
        ("https", "https://127.0.0.1", 200),
        ("https", "http://127.0.0.1", 403),
        ("http", "http://127.0.0.1", 200),
        ("http", "https://127.0.0.1", 200),  # a proxy has taken the TLS off
    ],
)
async def test_the_scheme_of_the_origin_counts(scheme: str, origin: str, status: int) -> None:
    way = httpx.ASGITransport(app(one(), token=TOKEN))
    base = f"{scheme}://127.0.0.1"
    async with httpx.AsyncClient(transport=way, base_url=base, headers=HEADERS) as http:
        body = request_of("native", "hi")
        answer = await http.post("/native", json=body, headers={"origin": origin})
        assert answer.status_code == status


@pytest.mark.parametrize("protocol", ["ai-sdk", "ag-ui", "native"])
async def test_a_body_of_very_many_messages_is_refused_before_they_are_read(protocol: str) -> None:
    many: list[dict[str, str]] = [{}] * 10_001
    body = request_of(protocol, "hi", **{"history" if protocol == "native" else "messages": many})
    async with direct(one()) as (_, http):
        answer = await http.post(f"/{protocol}", json=body)
        assert answer.status_code == 413
        assert "must not have more than 10000 items" in answer.text
