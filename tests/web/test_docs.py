"""The servers of docs/web.md, as they stand there, answer."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.web import _check_ai_sdk as ai_sdk
from tests.web._server import serve
from tests.web.test_site import request_of, text_of

PAGE = (Path(__file__).parents[2] / "docs" / "web.md").read_text()
BLOCKS = re.findall(r"^```python\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)


def names_of(words: str) -> dict[str, Any]:
    """What the block with these words defines."""
    (block,) = [block for block in BLOCKS if words in block]
    names: dict[str, Any] = {"__name__": "docs"}
    exec(compile(block, "docs/web.md", "exec", dont_inherit=True), names)
    return names


@pytest.mark.parametrize("words", ["api = FastAPI()\n\n\n@api.post", 'Route("/api/chat", chat'])
async def test_the_ten_lines_answer(words: str) -> None:
    (block,) = [block for block in BLOCKS if words in block]
    lines = [
        line for line in block.splitlines() if line and not line.startswith(("from", "import"))
    ]
    assert len(lines) <= 10
    async with serve(names_of(words)["api"]) as url, httpx.AsyncClient(base_url=url) as http:
        answer = await http.post("/api/chat", json=request_of("ai-sdk", "hi"))
        assert text_of("ai-sdk", answer.content) == "Hello!"


async def test_the_mounted_application_answers() -> None:
    headers = {"host": "chat.example.com", "origin": "https://www.example.com"}
    api = names_of("def who(connection)")["api"]
    async with serve(api) as url, httpx.AsyncClient(base_url=url, headers=headers) as http:
        assert (await http.get("/agent/conversations")).status_code == 401
        http.headers["x-user"] = "ada"
        answer = await http.post("/agent/ai-sdk", json=request_of("ai-sdk", "hi"))
        assert text_of("ai-sdk", answer.content) == "Hello!"


async def test_the_routes_that_detach_answer() -> None:
    api = names_of("resume_response(request")["api"]
    async with serve(api) as url, httpx.AsyncClient(base_url=url) as http:
        answer = await http.post("/chat/7", json=request_of("ai-sdk", "hi"))
        ai_sdk.check(answer.content)
        assert (await http.get("/chat/7/stream")).status_code == 204
        assert (await http.post("/chat/7/stop")).json() == {"stopped": False}


def test_the_bounds_are_those_of_the_code() -> None:
    from hookline.web import Caps

    told = set(re.findall(r"`(\w+)`", PAGE.partition("## Bounds")[2].partition("## What")[0]))
    assert set(Caps.__struct_fields__) <= told
