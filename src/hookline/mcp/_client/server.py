"""`MCPServer`: a server as a scope of agents. `connect` adds servers to an agent.

A server is connected when the first agent uses it, and closed when the last agent has released it.
Its tools form one scope, and a changed list replaces the old list in one step. If `headers=` is a
function of the run, each distinct set of headers has its own connection, so tenants never share a
session. This module is long because the options of each kind of server are spelled out.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from functools import partial
from inspect import isawaitable
from logging import getLogger
from pathlib import Path
from typing import Any, Final, TypeAlias

import msgspec

from hookline import (
    Agent,
    Ask,
    AssistantMessage,
    Message,
    Run,
    Scope,
    Text,
    Tool,
    ToolFailure,
    ToolResult,
    UserMessage,
)
from hookline.errors import ScopeError, UsageError
from hookline.mcp._client.call import Call, elicited, is_lost
from hookline.mcp._client.connection import Link
from hookline.mcp._client.pool import Headers, Pool
from hookline.mcp._client.results import Part, contents_of, part_of
from hookline.mcp._client.tools import clean, tools_of
from hookline.mcp._client.transport import http as _web
from hookline.mcp._client.transport import process as _process
from hookline.mcp._client.transport.sdk_log import quiet
from hookline.mcp._errors import MCPServerError, reason, sdk
from hookline.points import PreToolCall, as_tuple, check_number, matches

logger = getLogger("hookline.mcp")

AnyTool: TypeAlias = Tool[..., Any]
Open: TypeAlias = Callable[[Mapping[str, str], Callable[[str], None]], Any]
GUARD: Final = 200


class MCPServer:
    """An MCP server with tools for agents. Create a server with `stdio`, `http` or `local`.

    `label` names the server and its scope. `prefix` is added before the names of the server's
    tools. `allow` and `deny` are patterns for the server's own tool names, such as `"read_*"`; deny
    wins. `approve` are patterns for tools whose calls need approval. `timeout` is the time limit of
    one call, in seconds. The time limit pauses while the server asks the user. Raises UsageError if
    an option is invalid, or if the extra is missing.
    """

    def __init__(
        self,
        open: Open,
        *,
        label: str,
        prefix: str = "",
        allow: Iterable[str] = ("*",),
        deny: Iterable[str] = (),
        approve: Iterable[str] = (),
        timeout: float = 60.0,
        connect_timeout: float = 30.0,
        headers: Headers = None,
        connect_headers: Mapping[str, str] | None = None,
        about: Mapping[str, str | int] | None = None,
    ) -> None:
        if not label:
            raise UsageError("label='' of an MCP server: give it a name, such as \"files\"")
        check_number("timeout", timeout, above=0)
        check_number("connect_timeout", connect_timeout, above=0)
        self.label = label
        """The name of the server and of its scope."""
        self.prefix = prefix
        self.allow = _patterns("allow", allow)
        self.deny = _patterns("deny", deny)
        self.approve = _patterns("approve", approve)
        self.timeout = timeout
        self.left_out: dict[str, str] = {}
        """The tools that could not be used, with the reasons."""
        self._open = open
        self._asked_about: set[str] = set()  # tools whose own names match `approve`
        self._about = about
        self._connect_timeout = connect_timeout
        self._headers = headers
        fixed = {} if headers is None or callable(headers) else dict(headers)
        self._connect_headers = {**fixed, **(connect_headers or {})}
        self._link: Link | None = None
        self._pool: Pool | None = None
        self._scope: Scope | None = None
        self._agents: list[_Attached] = []
        self._starting = asyncio.Lock()
        self._users = 0
        self._ending: list[Link] = []  # closing connections, kept until they are closed

    # ── the three kinds ─────────────────────────────────────────────────────────────────────

    @classmethod
    def stdio(
        cls,
        command: str,
        *args: str,
        label: str | None = None,
        env: Mapping[str, str] | None = None,
        cwd: str | Path | None = None,
        prefix: str = "",
        allow: Iterable[str] = ("*",),
        deny: Iterable[str] = (),
        approve: Iterable[str] = (),
        timeout: float = 60.0,
        connect_timeout: float = 30.0,
    ) -> MCPServer:
        """Return a server that is a program. hookline starts it, and uses its stdin and stdout.

        The program's environment has PATH, HOME and similar variables, and the variables in `env`.
        """
        program = _process.Program(command, args, dict(env or {}), cwd)
        return cls(
            lambda headers, on_end: _process.transport(program, on_end),
            about={"network.transport": "pipe"},
            label=label or Path(command).stem,
            prefix=prefix,
            allow=allow,
            deny=deny,
            approve=approve,
            timeout=timeout,
            connect_timeout=connect_timeout,
        )

    @classmethod
    def http(
        cls,
        url: str,
        *,
        label: str | None = None,
        headers: Headers = None,
        connect_headers: Mapping[str, str] | None = None,
        auth: Any = None,
        prefix: str = "",
        allow: Iterable[str] = ("*",),
        deny: Iterable[str] = (),
        approve: Iterable[str] = (),
        timeout: float = 60.0,
        connect_timeout: float = 30.0,
    ) -> MCPServer:
        """Return a server at a URL, over streamable HTTP.

        `headers` is a mapping, or a function that takes the run and returns a mapping, for example
        with a token for each tenant. The function may be async. If `headers` is a function,
        `connect_headers` are sent to list the tools. `auth` is an `httpx2.Auth`, such as the SDK's
        `OAuthClientProvider` with your token store. Raises UsageError if the address is not a URL.
        """
        if not url.startswith(("http://", "https://")):
            raise UsageError(f"url={clean(url, 200)!r} of an MCP server must begin with https://")
        return cls(
            lambda values, on_end: _web.transport(url, values, auth),
            about=_web.about(url),
            label=label or url.partition("://")[2].partition("/")[0].rpartition("@")[2],
            headers=headers,
            connect_headers=connect_headers,
            prefix=prefix,
            allow=allow,
            deny=deny,
            approve=approve,
            timeout=timeout,
            connect_timeout=connect_timeout,
        )

    @classmethod
    def local(
        cls,
        server: Any,
        *,
        label: str | None = None,
        prefix: str = "",
        allow: Iterable[str] = ("*",),
        deny: Iterable[str] = (),
        approve: Iterable[str] = (),
        timeout: float = 60.0,
        connect_timeout: float = 30.0,
    ) -> MCPServer:
        """Return a server for an SDK object in this process: `mcp.server.MCPServer("notes")`."""
        return cls(
            lambda headers, on_end: server,
            label=label or str(getattr(server, "name", "") or "local"),
            prefix=prefix,
            allow=allow,
            deny=deny,
            approve=approve,
            timeout=timeout,
            connect_timeout=connect_timeout,
        )

    # ── its life ────────────────────────────────────────────────────────────────────────────

    async def start(self) -> None:
        """Connect and list the tools. Each start needs one `stop`.

        Raises MCPServerError, or the exception of a login.
        """
        quiet()
        async with self._starting:
            if self._users == 0:
                link = self._linked(self._connect_headers, self._take)
                await link.start()
                self._link = link
                if callable(self._headers):
                    self._pool = Pool(self._linked)
            self._users += 1

    def stop(self) -> None:
        """Release the server; the last release closes the server, in a separate task."""
        self._let_go()

    async def aclose(self) -> None:
        """Release the server, and wait until its connections are closed."""
        await _closed(self._let_go())

    def _let_go(self) -> list[Link]:
        """Release the server once; returns the connections to close after the last release."""
        if self._users == 0:
            return []
        self._users -= 1
        if self._users > 0:
            return []
        self._ending = [self._link] if self._link is not None else []
        self._ending += self._pool.links() if self._pool is not None else []
        for link in self._ending:
            link.close()
        self._link = self._scope = self._pool = None
        return self._ending

    async def __call__(self, agent: Agent[Any]) -> Callable[[], Awaitable[None]]:
        """Act as a plugin: `await agent.use(server)` connects, and its uninstall closes.

        `await uninstall.aclose()` waits until its connections are closed.
        """
        await self.start()
        try:
            detach = self.attach(agent)
        except BaseException:
            await self.aclose()
            raise

        def leave() -> Awaitable[None]:
            detach()
            return _closed(self._let_go())

        return leave

    def attach(self, agent: Agent[Any]) -> Callable[[], None]:
        """Register the server's tools with an agent; returns a disposer that removes the tools.

        Raises UsageError if the server is not started, and ScopeError if a tool's name is taken.
        """
        scope = self._scope
        if scope is None:
            raise self._not_started()
        try:
            attached = _Attached(agent, agent.scopes.register(scope))
        except ScopeError as exc:
            raise ScopeError(f"{exc}; or give the server a prefix= for its tools") from exc
        if self.approve:
            attached.remove_hook = agent.add_hook(
                "preToolCall",
                self._asks,
                priority=GUARD,
                name=f"approve {self.label}",
                on_error="deny",
                inherit=True,
            )
        self._agents.append(attached)

        def detach() -> None:
            if attached in self._agents:
                self._agents.remove(attached)
                if attached.remove_hook is not None:
                    attached.remove_hook()
                attached.remove_scope()

        return detach

    @property
    def connected(self) -> bool:
        """Whether the server is connected; a lost connection is restored in the background."""
        return self._link is not None and self._link.client is not None

    def tools_now(self) -> tuple[AnyTool, ...]:
        """The current tools of the server; empty before the server is started."""
        return self._scope.tools if self._scope is not None else ()

    def _linked(
        self, headers: Mapping[str, str], on_tools: Callable[[list[Any]], None] | None = None
    ) -> Link:
        return Link(
            self.label,
            partial(self._open, headers),
            elicit=elicited,
            connect_timeout=self._connect_timeout,
            on_tools=on_tools,
            about=self._about,
        )

    # ── its tools ───────────────────────────────────────────────────────────────────────────

    def _take(self, descriptions: list[Any]) -> None:
        """Replace the tools of the server."""
        tools, self.left_out, names = tools_of(
            descriptions,
            self.label,
            prefix=self.prefix,
            allow=self.allow,
            deny=self.deny,
            approve=self.approve,
            invoke=self._call,
        )
        self._asked_about |= names  # no new list takes an approval back
        self._scope = scope = Scope(self.label, tools=tools)
        for attached in self._agents:
            try:
                if attached.agent.scopes.get(self.label) is not None:
                    attached.remove_scope = attached.agent.scopes.replace(self.label, scope)
            except ScopeError:
                logger.warning(
                    "MCP server %r: a new tool has the name of another scope's tool, so the "
                    "server's old tools are kept",
                    self.label,
                )

    async def _call(
        self, name: str, arguments: dict[str, Any], run: Run[Any]
    ) -> ToolResult | ToolFailure:
        pool, link = self._pool, self._link
        if link is None:
            return ToolFailure(f"MCP server {self.label!r} is closed", type="MCPServerError")
        headers = self._headers
        if pool is not None and callable(headers):
            values: Any = headers(run)
            if isawaitable(values):
                values = await values
            try:
                link = await pool.get(values)
            except MCPServerError as exc:
                return ToolFailure(str(exc), type="MCPServerError")
        return await Call(link, name, run, self.timeout).make(arguments)

    def _asks(self, ctx: PreToolCall[Any]) -> Ask | None:
        """Ask about a call that matches `approve`, by the server's or the model's tool name."""
        if ctx.scope.label != self.label:
            return None
        name = ctx.call.name
        own = name.removeprefix(self.prefix)
        patterns = self.approve
        if name in self._asked_about or matches(name, patterns) or matches(own, patterns):
            return Ask(f"May {name} of MCP server {self.label!r} run?")
        return None

    # ── prompts and resources ───────────────────────────────────────────────────────────────

    async def prompt(self, name: str, **arguments: str) -> tuple[Message, ...]:
        """Return the messages of a prompt, and send nothing to a model; raises MCPServerError."""
        answer = await self._request("get_prompt", name, arguments or None)
        messages: list[Message] = []
        for message in answer.messages:
            part = part_of(message.content)
            if message.role == "user":
                messages.append(UserMessage(parts=(part,)))
            elif isinstance(part, Text):
                messages.append(AssistantMessage(parts=(part,)))
        return tuple(messages)

    async def read(self, uri: str) -> Part:
        """Return a resource as a part of a message; raises MCPServerError."""
        answer = await self._request("read_resource", uri)
        parts = [contents_of(item) for item in answer.contents]
        texts = [item.text for item in parts if isinstance(item, Text)]
        if parts and len(texts) == len(parts):
            return Text("\n".join(texts))
        if len(parts) != 1:
            raise MCPServerError(
                f"resource {clean(uri, 200)!r} of MCP server {self.label!r} has {len(parts)} parts "
                "that are not all text; read each part by its own address"
            )
        return parts[0]

    async def _request(self, method: str, *arguments: Any) -> Any:
        link = self._link
        if link is None:
            raise self._not_started()
        client = await link.ready(self.timeout)
        try:
            async with asyncio.timeout(self.timeout):
                return await getattr(client, method)(*arguments)
        except Exception as exc:
            if not isinstance(exc, TimeoutError) and is_lost(exc):
                link.report_loss(client, reason(exc))
            raise MCPServerError(f"MCP server {self.label!r}: {reason(exc)}") from exc

    def _not_started(self) -> UsageError:
        return UsageError(
            f"MCP server {self.label!r} is not connected; use connect() or start() first"
        )

    def __repr__(self) -> str:
        state = "connected" if self.connected else "not connected"
        return f"<MCPServer {self.label!r}, {state}>"


class _Attached(msgspec.Struct, eq=False):
    """An agent that uses the server's tools."""

    agent: Agent[Any]
    remove_scope: Callable[[], object]
    remove_hook: Callable[[], object] | None = None


async def _closed(links: list[Link]) -> None:
    await asyncio.gather(*[link.aclose() for link in links])


def _patterns(name: str, value: Iterable[str]) -> tuple[str, ...]:
    patterns = as_tuple(name, value)
    if not all(patterns):
        raise UsageError(
            f"{name}={patterns!r} has an empty pattern, which matches no tool; remove it"
        )
    return patterns


@asynccontextmanager
async def connect(agent: Agent[Any], *servers: MCPServer) -> AsyncGenerator[None]:
    """Connect servers, and add their tools to an agent for the duration of the block.

    Raises MCPServerError for the first server that cannot be connected, the exception of a login,
    and ScopeError if two tools have the same name. After an exception, all servers are released.
    """
    sdk("mcp")
    started: list[MCPServer] = []
    undo: list[Callable[[], object]] = []

    async def start(server: MCPServer) -> None:
        await server.start()
        started.append(server)

    try:
        results = await asyncio.gather(*map(start, servers), return_exceptions=True)
        failed = [item for item in results if isinstance(item, BaseException)]
        if failed:
            raise failed[0]
        for server in servers:
            undo.append(server.attach(agent))
        yield
    finally:
        for item in reversed(undo):
            with suppress(Exception):
                item()
        # Release them now: a cancelled `gather` does not even begin what it has to run.
        closing = [_closed(server._let_go()) for server in started]  # pyright: ignore[reportPrivateUsage]
        await asyncio.gather(*closing, return_exceptions=True)
