"""Texts of providers' errors: one plain line, one advice, the address if it is at fault."""

from __future__ import annotations

import asyncio
import json
import ssl
import sys
from types import ModuleType
from typing import Any

import pytest
from tests._wires import ADAPTERS, KEY, WIRES, wire
from tests.wire import Wire

from hookline import Agent
from hookline.cli import main
from hookline.errors import ModelConnectionError, ModelError, RateLimitError, UsageError
from hookline.providers.kit import Exchange, failure, scrubbed
from hookline.providers.presets import preset
from hookline.testing import ScriptedModel

NOT_FOUND = b'{"error": {"message": "Not Found"}}'
each_wire = pytest.mark.parametrize("kind", WIRES)


async def failing(kind: Any, turn: Wire) -> ModelError:
    async with wire(kind, turn) as (model, _):
        with pytest.raises(ModelError) as caught:
            await Agent(model).chat("Hello.")
    return caught.value


@each_wire
async def test_an_error_of_a_service_holds_no_control_characters(kind: Any) -> None:
    words = "no\x1b[31m\x07\r\nERROR root: forged \u202egnp.exe\u200b \x9b2J\u2028end"
    error = await failing(
        kind, Wire(status=400, body=json.dumps({"error": {"message": words}}).encode())
    )
    text = str(error)
    assert text.isprintable()
    assert "no [31m ERROR root: forged gnp.exe 2J end" in text


def test_hidden_characters_do_not_hide_a_key() -> None:
    assert KEY not in scrubbed(f"{KEY[:8]}\u200b{KEY[8:]} is wrong", [KEY])


@each_wire
async def test_a_404_names_the_address_that_was_asked(kind: Any) -> None:
    async with wire(kind, Wire(status=404, body=NOT_FOUND)) as (m, server):
        with pytest.raises(ModelError) as caught:
            await Agent(m).chat("Hello.")
    assert f"the request went to {server.url}" in str(caught.value)
    assert "?" not in str(caught.value)


@each_wire
async def test_the_page_of_a_proxy_is_not_printed(kind: Any) -> None:
    page = b"<!DOCTYPE html><html><style>p{color:red}</style><body><h1>502 Bad Gateway</h1>"
    error = await failing(kind, Wire(status=502, body=page + b"<p>nginx</p>" * 100))
    assert "502 Bad Gateway nginx" in str(error)
    assert "<" not in str(error)
    assert len(str(error)) < 400


@each_wire
@pytest.mark.parametrize("status", [400, 401, 404, 429, 500])
def test_the_advice_stands_once_on_the_command_line(
    kind: Any, status: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    turn = Wire(status=status, body=b'{"error": {"message": "No."}}')
    error = asyncio.run(failing(kind, turn))
    module: Any = ModuleType("advised")
    module.agent = Agent(ScriptedModel(error))
    monkeypatch.setitem(sys.modules, "advised", module)
    assert main(["chat", "advised:agent", "-m", "Hello."]) == 1
    assert " ".join(capsys.readouterr().err.split()) == f"hookline: {error}"


async def test_a_rate_limit_says_when_to_try_again() -> None:
    body = b'{"error": {"message": "Slow down."}}'
    error = await failing("openai", Wire(status=429, body=body, headers={"retry-after": "2"}))
    assert type(error) is RateLimitError
    assert "Try again in 2 s" in str(error)


@each_wire
@pytest.mark.parametrize(
    "url", ["localhost:8000/v1", "api.example.com", "ftp://host/", "https://", "http://h:port/"]
)
def test_an_address_without_a_scheme_is_refused_where_the_model_is_made(
    kind: Any, url: str
) -> None:
    with pytest.raises(UsageError, match=r"base_url=.*begin with https://"):
        ADAPTERS[kind]("m", base_url=url, api_key=KEY)


def test_the_refusal_of_an_address_does_not_show_its_password() -> None:
    with pytest.raises(UsageError) as caught:
        ADAPTERS["openai"]("m", base_url="user:secret@host/v1", api_key=KEY)
    assert "secret" not in str(caught.value)


async def test_ollama_that_is_not_running_is_told_so() -> None:
    model = preset("ollama", "qwen3", base_url="http://127.0.0.1:9/v1")
    with pytest.raises(ModelConnectionError, match="ollama serve") as caught:
        await Agent(model).chat("Hello.")
    assert caught.value.retryable


class ConnectError(OSError):
    """What an HTTP library raises."""


@pytest.mark.parametrize(
    ("cause", "retryable"),
    [
        (ConnectError("[SSL: WRONG_VERSION_NUMBER] wrong version number (_ssl.c:1006)"), False),
        (ConnectError("[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed"), False),
        (ssl.SSLCertVerificationError("certificate verify failed: self-signed"), False),
        (ConnectError("[Errno 104] Connection reset by peer"), True),
    ],
    ids=["version", "certificate", "own certificate", "reset"],
)
def test_a_wrong_protocol_is_not_tried_again(cause: Exception, retryable: bool) -> None:
    error = failure(Exchange("openai"), cause)
    assert type(error) is ModelConnectionError
    assert error.retryable is retryable
    assert ("try again" in str(error)) is retryable
