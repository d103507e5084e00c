"""`load`: read the configuration files in which Claude, VS Code and Cursor list their servers.

They have `mcpServers` (Claude Desktop, Claude Code, Cursor) or `servers` (VS Code), and may contain
comments and trailing commas. `${env:NAME}`, `${NAME}`, `${NAME:-default}`, `${userHome}`,
`${workspaceFolder}` and `${input:id}` are replaced. Errors name the place in the file.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, cast

from hookline.errors import UsageError
from hookline.mcp._client.server import MCPServer
from hookline.mcp._client.transport.http import about

_COMMENT: Final = re.compile(r'"(?:[^"\\]|\\.)*"|//[^\n]*|/\*.*?\*/', re.DOTALL)
_COMMA: Final = re.compile(r'"(?:[^"\\]|\\.)*"|,(?=\s*[\]}])', re.DOTALL)
_VARIABLE: Final = re.compile(r"\$\{([^}]*)\}")
_TYPES: Final = {"http", "streamable-http", "streamableHttp", "sse"}


def load(
    path: str | os.PathLike[str],
    *,
    inputs: Mapping[str, str] | None = None,
    prefix: bool = True,
    timeout: float = 60.0,
) -> list[MCPServer]:
    """Return the servers of a configuration file, without the disabled servers.

    `inputs` has the values for `${input:id}`. With `prefix`, the names of a server's tools begin
    with the server's name, so tool names are unique. Raises UsageError if the file is invalid; the
    text names the file and the place of the error.
    """
    file = Path(path)
    try:
        text = file.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as exc:
        raise UsageError(
            f"{file} cannot be read ({type(exc).__name__}: {exc}); name a configuration file"
        ) from exc
    data = _parsed(file, text)
    place, entries = _servers(file, data)
    reader = _Reader(file, dict(inputs or {}))
    servers: list[MCPServer] = []
    for name, entry in entries.items():
        where = f"{place}.{name}"
        options = reader.mapping(entry, where)
        if options.get("disabled") is not True:
            servers.append(_server(reader, name, options, where, prefix, timeout))
    return servers


def _parsed(file: Path, text: str) -> Any:
    def blank(match: re.Match[str]) -> str:
        whole = match[0]
        # Keep the number of lines, so that an error names the right line.
        return whole if whole.startswith('"') else re.sub(r"[^\n]", " ", whole)

    plain = _COMMA.sub(blank, _COMMENT.sub(blank, text))
    try:
        return json.loads(plain)
    except json.JSONDecodeError as exc:
        raise UsageError(
            f"{file}: invalid JSON: {exc.msg}; look at line {exc.lineno}, column {exc.colno}"
        ) from exc
    except RecursionError as exc:
        raise UsageError(f"{file}: the JSON is nested too deeply; write a flat object") from exc


def _servers(file: Path, data: Any) -> tuple[str, dict[str, Any]]:
    top: Any = data
    places = (("mcpServers",), ("servers",), ("mcp", "servers"), ("mcp", "mcpServers"))
    for keys in places:
        level = top
        for key in keys:
            level = cast("dict[str, Any]", level).get(key) if isinstance(level, dict) else None
        if isinstance(level, dict):
            return ".".join(keys), cast("dict[str, Any]", level)
        if level is not None:
            raise UsageError(f"{file}: {'.'.join(keys)} must be an object with the servers by name")
    raise UsageError(f'{file} has neither "mcpServers" nor "servers"; add one of them')


def _server(
    reader: _Reader, name: str, options: dict[str, Any], where: str, prefix: bool, timeout: float
) -> MCPServer:
    begin = re.sub(r"[^a-zA-Z0-9_-]", "_", name) + "_" if prefix else ""
    kind = options.get("type", "stdio" if "command" in options else "http")
    if kind == "stdio":
        command = reader.text(options.get("command"), f"{where}.command")
        args = reader.texts(options.get("args", []), f"{where}.args")
        env = reader.texts_by_name(options.get("env", {}), f"{where}.env")
        if options.get("envFile") is not None:
            env = {**reader.env_file(options["envFile"], f"{where}.envFile"), **env}
        cwd = options.get("cwd")
        return MCPServer.stdio(
            command,
            *args,
            label=name,
            prefix=begin,
            env=env,
            cwd=None if cwd is None else reader.text(cwd, f"{where}.cwd"),
            timeout=timeout,
        )
    if not isinstance(kind, str) or kind not in _TYPES:
        raise reader.wrong(f"{where}.type", f"{kind!r} must be one of stdio, http")
    if kind == "sse":
        raise reader.wrong(
            f"{where}.type", "'sse' is not supported; try 'http', which most servers support"
        )
    url = reader.url(options.get("url"), f"{where}.url")
    headers = reader.texts_by_name(options.get("headers", {}), f"{where}.headers")
    return MCPServer.http(url, label=name, prefix=begin, headers=headers, timeout=timeout)


class _Reader:
    """Reads values, replaces their variables, and reports the place of an error."""

    def __init__(self, file: Path, inputs: dict[str, str]) -> None:
        self._file = file
        self._inputs = inputs

    def wrong(self, where: str, problem: str) -> UsageError:
        return UsageError(f"{self._file}: {where}: {problem}; change the file")

    def mapping(self, value: object, where: str) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise self.wrong(where, f"must be an object, not {_kind(value)}")
        return cast("dict[str, Any]", value)

    def text(self, value: object, where: str) -> str:
        if not isinstance(value, str) or not value:
            raise self.wrong(where, f"must be a string, not {_kind(value)}")
        return _VARIABLE.sub(lambda match: self._variable(match[1], where), value)

    def url(self, value: object, where: str) -> str:
        url = self.text(value, where)
        try:
            about(url)
        except UsageError:  # its text may show a variable
            url = ""
        if not url.startswith(("http://", "https://")):
            raise self.wrong(where, "must be an address, such as https://host:port/mcp")
        return url

    def texts(self, value: object, where: str) -> list[str]:
        if not isinstance(value, list):
            raise self.wrong(where, f"must be a list of strings, not {_kind(value)}")
        items = cast("list[object]", value)
        return [
            "" if item == "" else self.text(item, f"{where}[{i}]") for i, item in enumerate(items)
        ]

    def texts_by_name(self, value: object, where: str) -> dict[str, str]:
        return {
            name: "" if text == "" else self.text(text, f"{where}.{name}")
            for name, text in self.mapping(value, where).items()
            if text is not None
        }

    def env_file(self, value: object, where: str) -> dict[str, str]:
        path = Path(self.text(value, where))
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as exc:
            raise self.wrong(where, f"{path} cannot be read ({type(exc).__name__})") from exc
        variables: dict[str, str] = {}
        for line in lines:
            name, sign, text = line.removeprefix("export ").partition("=")
            if sign and not line.lstrip().startswith("#"):
                variables[name.strip()] = text.strip().strip("\"'")
        return variables

    def _variable(self, name: str, where: str) -> str:
        kind, colon, rest = name.partition(":")
        if name == "userHome":
            return str(Path.home())
        if name in ("workspaceFolder", "workspaceRoot"):
            return str(Path.cwd())
        if name in ("pathSeparator", "/"):
            return os.sep
        if kind == "input" and colon:
            if rest not in self._inputs:
                raise self.wrong(
                    where, f"the input {rest!r} is missing; pass load(..., inputs={{…}})"
                )
            return self._inputs[rest]
        variable, _, default = (rest if kind == "env" and colon else name).partition(":-")
        text = os.environ.get(variable)
        if text is None and ":-" not in name:
            raise self.wrong(where, f"the environment variable {variable!r} is not set")
        return default if text is None else text


def _kind(value: object) -> str:
    kinds: dict[type, str] = {
        dict: "an object",
        list: "a list",
        str: "an empty string",
        type(None): "null",
    }
    return kinds.get(type(value), json.dumps(value)[:40])
