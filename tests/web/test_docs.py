"""The servers of docs/web.md and docs/frontends.md, as they stand there, answer."""

from __future__ import annotations

import asyncio
import inspect
import json
import re
from pathlib import Path
from typing import Any, get_args

import httpx
import pytest
from tests.web import _check_ai_sdk as ai_sdk
from tests.web._frontends import FILES, PAGES
from tests.web._server import serve
from tests.web.test_site import request_of, text_of

from hookline.web import Caps, app

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "web.md").read_text()
FRONT_ENDS = (DOCS / "frontends.md").read_text()
BLOCKS = re.findall(r"^```python\n(.*?)^```$", PAGE + FRONT_ENDS, re.DOTALL | re.MULTILINE)


def names_of(words: str) -> dict[str, Any]:
    """What the block with these words defines."""
    (block,) = [block for block in BLOCKS if words in block]
    names: dict[str, Any] = {"__name__": "docs"}
    exec(compile(block, "docs/web.md", "exec", dont_inherit=True), names)
    return names


def test_the_table_of_arguments_is_that_of_app() -> None:
    section = PAGE.partition("### Arguments of `app`\n")[2].partition("\n### ")[0]
    rows = re.findall(r"^\| `(\w+)` \| `(.+?)` \| .+ \|$", section, re.MULTILINE)
    documented = [(name, eval(default, {"Caps": Caps})) for name, default in rows]
    parameters = list(inspect.signature(app).parameters.values())[1:]
    assert documented == [(parameter.name, parameter.default) for parameter in parameters]


@pytest.mark.parametrize("words", ["api = FastAPI()\n\n\n@api.post", 'Route("/api/chat", chat'])
async def test_the_ten_lines_answer(words: str) -> None:
    (block,) = [block for block in BLOCKS if words in block]
    lines = [
        line for line in block.splitlines() if line and not line.startswith(("from", "import"))
    ]
    assert len(lines) <= 10
    async with (
        serve(names_of(words)["api"]) as url,
        httpx.AsyncClient(base_url=url, timeout=60) as http,
    ):
        answer = await http.post("/api/chat", json=request_of("ai-sdk", "hi"))
        assert text_of("ai-sdk", answer.content) == "Hello!"


async def test_the_mounted_application_answers() -> None:
    headers = {"host": "chat.example.com", "origin": "https://www.example.com"}
    api = names_of("hosts=[")["api"]
    async with (
        serve(api) as url,
        httpx.AsyncClient(base_url=url, headers=headers, timeout=60) as http,
    ):
        assert (await http.get("/agent/conversations")).status_code == 401
        http.headers["x-user"] = "ada"
        answer = await http.post("/agent/ai-sdk", json=request_of("ai-sdk", "hi"))
        assert text_of("ai-sdk", answer.content) == "Hello!"


async def test_the_lifespan_lets_the_runs_end_before_it_closes_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    names = names_of("site.shutdown(drain=10)")
    order: list[str] = []
    gate, reached = asyncio.Event(), asyncio.Event()

    async def wait(ctx: Any) -> None:
        reached.set()
        await gate.wait()

    agent, store = names["site"]._config.agent, names["store"]
    agent.add_hook("preRequest", wait)
    agent.add_hook("onChatEnd", lambda ctx: order.append(ctx.outcome))
    close = store.aclose

    async def closed() -> None:
        order.append("closed")
        await close()

    monkeypatch.setattr(store, "aclose", closed)
    headers = {"authorization": "Bearer a long secret of yours"}
    way = httpx.ASGITransport(names["api"])
    async with httpx.AsyncClient(
        transport=way, base_url="http://localhost", headers=headers
    ) as http:
        async with names["lifespan"](names["api"]):
            posting = asyncio.create_task(
                http.post("/agent/native", json=request_of("native", "hi"))
            )
            await reached.wait()
            asyncio.get_running_loop().call_soon(gate.set)  # by then the shutdown waits
        assert b"chat_done" in (await posting).content
    assert order == ["done", "closed"]


async def test_the_routes_that_detach_answer() -> None:
    api = names_of("resume_response(request")["api"]
    async with serve(api) as url, httpx.AsyncClient(base_url=url, timeout=60) as http:
        answer = await http.post("/chat/7", json=request_of("ai-sdk", "hi"))
        ai_sdk.check(answer.content)
        assert (await http.get("/chat/7/stream")).status_code == 204
        assert (await http.post("/chat/7/stop")).json() == {"stopped": False}


async def test_the_server_of_the_front_ends_takes_a_cookie_and_a_header() -> None:
    secret = "the secret of a session"
    api = names_of("sessions = {")["api"]
    async with serve(api) as url, httpx.AsyncClient(base_url=url, timeout=60) as http:
        for headers, status in (
            ({}, 401),
            ({"authorization": "Bearer another"}, 401),
            ({"authorization": f"Bearer {secret}"}, 200),
            ({"cookie": f"session={secret}"}, 200),
        ):
            answer = await http.get("/agent/native/new/messages", headers=headers)
            assert answer.status_code == status, headers
        assert answer.json()["messages"] == []


def test_every_file_of_the_front_ends_is_built_by_a_test() -> None:
    built = {title for files in PAGES.values() for title in files.values()}
    assert built | {"vite.config.ts", "next.config.ts"} == set(FILES)


def test_the_bounds_are_those_of_the_code() -> None:
    from hookline.web import Caps

    told = set(re.findall(r"`(\w+)`", PAGE.partition("\n## Limits\n")[2].partition("\n## ")[0]))
    assert set(Caps.__struct_fields__) <= told


def test_the_native_section_has_every_frame_and_every_key() -> None:
    from hookline.events import ChatEvent
    from hookline.web import Refused, parse_native

    def keys(body: Any) -> set[str]:
        """The keys that an error names."""
        with pytest.raises(Refused) as caught:
            parse_native(body)
        return set(re.findall(r"'(\w+)'", caught.value.text.partition("use only ")[2]))

    section = PAGE.split("## Native\n")[1].split("\n## ")[0]
    rows = re.findall(r"^\| ((?:`\w+`(?:, )?)+) \|", section, re.MULTILINE)
    named = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    frames = {str(each.__struct_config__.tag) for each in get_args(ChatEvent)} | {"hook", "reload"}
    allowed = keys({"x": 1}) | keys({"answers": {"1": {"x": 1}}})
    assert named == frames | allowed - {"messageId"} | {"event"}
    assert "`messageId`" in section
    bodies = [json.loads(each) for each in re.findall(r"-d '(.*)'", section)]
    assert [parse_native(body).message is None for body in bodies] == [False, True]


async def test_a_policy_of_the_page_is_tried_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    names = names_of("policies=policies_of")
    way = httpx.ASGITransport(names["site"])
    headers = {"x-user": "bea"}
    bea = httpx.AsyncClient(transport=way, base_url="http://localhost", headers=headers)
    async with names["site"]._config.store, bea:
        await bea.post("/ai-sdk", json=request_of("ai-sdk", "Give it back."))
        (name,) = (await bea.get("/policies")).json()["policies"]
        report = (await bea.post("/policies", json={"policy": name})).json()
        fields = ["chats", "differ", "counts", "inexact", "verdicts"]
        assert {*fields, "policy", "more"} == set(report)
        assert all(f"`{field}`" in PAGE for field in fields)
        assert [(verdict["now"], verdict["by"]) for verdict in report["verdicts"]] == [
            ("asks", "refund_limit")
        ]
        await names["site"].shutdown()  # a chat that still ends would open the store again


async def test_somebody_else_approves_what_the_application_asks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    names = names_of("approvers=may_approve")
    seen: list[Any] = []
    names["agent"].add_hook("onChatStart", lambda ctx: seen.append(ctx.run.deps))
    way = httpx.ASGITransport(names["site"])
    ada, bea = (
        httpx.AsyncClient(transport=way, base_url="http://localhost", headers={"x-user": name})
        for name in ("ada", "bea")
    )
    async with names["store"], ada, bea:
        await ada.post("/ai-sdk", json=request_of("ai-sdk", "Give it back."))
        assert (await ada.get("/approvals")).json() == {"approvals": []}
        (request,) = (await bea.get("/approvals")).json()["approvals"]
        assert (request["principal"], request["call"]["arguments"]) == ("ada", {"euros": 80})
        decision = {"id": request["id"], "approved": True}
        assert (await ada.post("/approvals", json=decision)).status_code == 409
        assert (await bea.post("/approvals", json=decision)).status_code == 202
        assert (await bea.post("/approvals", json=decision)).status_code == 409
        await names["site"].shutdown()
        (entry,) = await names["store"].list()
        assert (await names["store"].open(entry.id)).messages[-1].text == "You have it back."
    assert seen == ["ada", "ada"]


async def test_nobody_approves_a_request_of_her_own_in_the_docs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    names = names_of("approvers=may_approve")
    way = httpx.ASGITransport(names["site"])
    lea, bea = (
        httpx.AsyncClient(transport=way, base_url="http://localhost", headers={"x-user": name})
        for name in ("lea", "bea")
    )
    async with names["store"], lea, bea:
        await lea.post("/ai-sdk", json=request_of("ai-sdk", "Give it back."))
        assert (await lea.get("/approvals")).json() == {"approvals": []}
        (request,) = (await bea.get("/approvals")).json()["approvals"]
        decision = {"id": request["id"], "approved": True}
        assert (await lea.post("/approvals", json=decision)).status_code == 409
        await names["site"].shutdown()


def test_the_table_of_statuses_is_that_of_the_code() -> None:
    from hookline import errors
    from hookline.web import status_of

    section = PAGE.split("### Map errors to statuses\n")[1].split("\n## ")[0]
    rows = re.findall(r"^\| (.*) \| (\d+) \|$", section, re.MULTILINE)
    named = {name: int(status) for row, status in rows for name in re.findall(r"`(\w+)`", row)}
    assert named.keys() <= set(errors.__all__)
    for kind in (getattr(errors, name) for name in errors.__all__):
        statuses = [named[base.__name__] for base in kind.__mro__ if base.__name__ in named]
        assert status_of(kind.__new__(kind)) == (statuses or [500])[0], kind.__name__
