"""`load` reads the files of Claude, VS Code and Cursor as they are, and says where one is wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hookline.errors import UsageError
from hookline.mcp import MCPServer, load

CLAUDE_DESKTOP = """{
  "globalShortcut": "Ctrl+Space",
  "mcpServers": {
    "filesystem": {
      "command": "npx",
      "args": ["-y", "@modelcontextprotocol/server-filesystem", "/Users/ada/Desktop"]
    },
    "github": {
      "command": "docker",
      "args": ["run", "-i", "--rm", "-e", "GITHUB_TOKEN", "ghcr.io/github/github-mcp-server"],
      "env": {"GITHUB_TOKEN": "${GITHUB_TOKEN:-none}"}
    },
    "off": {"command": "x", "disabled": true}
  }
}"""

VS_CODE = """{
  // the servers of this workspace
  "inputs": [
    {"type": "promptString", "id": "key", "description": "API key", "password": true},
  ],
  "servers": {
    "playwright": {"command": "npx", "args": ["-y", "@playwright/mcp@latest"], /* local */},
    "bank": {
      "type": "http",
      "url": "https://bank.example/mcp", // not a comment: "//"
      "headers": {"Authorization": "Bearer ${input:key}", "X-Home": "${userHome}"},
    },
  },
}"""

CURSOR = """{
  "mcpServers": {
    "local": {
      "type": "stdio",
      "command": "${workspaceFolder}/bin/server",
      "envFile": ".env",
      "env": {"A": "${env:SECRET_A}"}
    },
    "remote": {"url": "https://x.example/mcp", "headers": {"Authorization": "${env:SECRET_A}"}}
  }
}"""


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[tuple[str, Any, Any]]:
    """What the servers were made with."""
    out: list[tuple[str, Any, Any]] = []
    real = {"stdio": MCPServer.stdio, "http": MCPServer.http}

    def noting(kind: str) -> Any:
        def make(*args: Any, **options: Any) -> MCPServer:
            out.append((kind, args, options))
            return real[kind](*args, **options)

        return make

    for kind in real:
        monkeypatch.setattr(MCPServer, kind, noting(kind))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SECRET_A", "s3cret")
    monkeypatch.delenv("GITHUB_TOKEN", raising=False)
    (tmp_path / ".env").write_text("# secrets\nexport B='two'\nA=one\n")
    return out


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "mcp.json"
    path.write_text(text)
    return path


def test_claudes_file_loads_as_it_is(made: Any, tmp_path: Path) -> None:
    servers = load(written(tmp_path, CLAUDE_DESKTOP))
    assert [(server.label, server.prefix) for server in servers] == [
        ("filesystem", "filesystem_"),
        ("github", "github_"),
    ]
    assert made[0][1] == (
        *("npx", "-y", "@modelcontextprotocol/server-filesystem", "/Users/ada/Desktop"),
    )
    assert made[1][2]["env"] == {"GITHUB_TOKEN": "none"}


def test_vs_codes_file_loads_as_it_is(made: Any, tmp_path: Path) -> None:
    servers = load(written(tmp_path, VS_CODE), inputs={"key": "k3y"}, prefix=False)
    assert [(server.label, server.prefix) for server in servers] == [
        ("playwright", ""),
        ("bank", ""),
    ]
    assert made[1][1] == ("https://bank.example/mcp",)
    assert made[1][2]["headers"] == {"Authorization": "Bearer k3y", "X-Home": str(Path.home())}


def test_cursors_file_loads_as_it_is(made: Any, tmp_path: Path) -> None:
    load(written(tmp_path, CURSOR))
    assert made[0][1] == (f"{tmp_path}/bin/server",)
    assert made[0][2]["env"] == {"A": "s3cret", "B": "two"}
    assert made[1][2]["headers"] == {"Authorization": "s3cret"}


@pytest.mark.parametrize(
    ("text", "place"),
    [
        pytest.param('{"mcpServers": {\n  "a": {"command": }}}', "line 2, column 20", id="syntax"),
        pytest.param("[]", 'neither "mcpServers" nor "servers"', id="list"),
        pytest.param('{"mcpServers": []}', "mcpServers must be an object", id="servers"),
        pytest.param('{"servers": {"a": 1}}', "servers.a: must be an object, not 1", id="server"),
        pytest.param('{"servers": {"a": {}}}', "servers.a.url: must be a string", id="nothing"),
        pytest.param(
            '{"servers": {"a": {"command": "x", "args": ["y", 3]}}}',
            "servers.a.args[1]: must be a string, not 3",
            id="argument",
        ),
        pytest.param(
            '{"servers": {"a": {"command": "x", "env": {"K": null, "L": 3}}}}',
            "servers.a.env.L: must be a string, not 3",
            id="env",
        ),
        pytest.param(
            '{"servers": {"a": {"type": "carrier-pigeon", "url": "x"}}}',
            "servers.a.type: 'carrier-pigeon' must be one of",
            id="type",
        ),
        pytest.param(
            '{"servers": {"a": {"command": "${env:NOT_SET_HERE}"}}}',
            "servers.a.command: the environment variable 'NOT_SET_HERE' is not set",
            id="variable",
        ),
        pytest.param(
            '{"servers": {"a": {"type": ["http"], "url": "https://x"}}}',
            "servers.a.type: ['http'] must be one of",
            id="types",
        ),
        pytest.param(
            '{"servers": {"a": {"url": "example.com/mcp"}}}',
            "servers.a.url: must be an address",
            id="url",
        ),
        pytest.param(
            '{"servers": {"a": {"url": "https://x:port/"}}}',
            "servers.a.url: must be an address",
            id="port",
        ),
        pytest.param(
            '{"servers": {"a": {"url": "https://x/${input:key}"}}}',
            "servers.a.url: the input 'key' is missing",
            id="input",
        ),
        pytest.param(
            '{"servers": {"a": {"command": "x", "envFile": "gone.env"}}}',
            "servers.a.envFile: gone.env cannot be read",
            id="env-file",
        ),
        pytest.param("[" * 100_000, "mcp.json", id="deep"),
    ],
)
def test_a_broken_file_is_told_with_its_path_and_its_place(
    made: Any, tmp_path: Path, text: str, place: str
) -> None:
    path = written(tmp_path, text)
    with pytest.raises(UsageError) as wrong:
        load(path)
    assert str(path) in str(wrong.value)
    assert place in str(wrong.value)


def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"gone\.json cannot be read"):
        load(tmp_path / "gone.json")


@pytest.mark.parametrize(
    "server", ['"command": "${env:SECRET_A}", "args": 3', '"url": "${env:SECRET_A}/mcp"']
)
def test_a_secret_of_a_file_is_in_no_error(made: Any, tmp_path: Path, server: str) -> None:
    text = f'{{"servers": {{"a": {{{server}}}}}}}'
    with pytest.raises(UsageError) as wrong:
        load(written(tmp_path, text))
    assert "s3cret" not in str(wrong.value)
