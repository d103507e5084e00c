"""One connection to a server: a separate task holds the SDK's client, and restores the connection.

The SDK's client must be entered and left in the same task. That cannot be a chat's task: aborting
the chat would close the connection. So a separate task connects, lists the tools, and then waits
for the end, for a change of the tools, or for the loss of the connection. It restores a lost
connection after 0.5 s, and then after twice that time, at most 30 s. Meanwhile calls use the client
from their own tasks.

    connecting ──listed──▶ up ──lost──▶ down ──after a while──▶ connecting
        └── the first time it fails: over          any ──close()──▶ over
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from contextvars import Context
from logging import getLogger
from typing import Any, Final, TypeAlias

from hookline.mcp._errors import RAISED, MCPServerError, reason, sdk
from hookline.mcp._telemetry import in_session

logger = getLogger("hookline.mcp")

FIRST_WAIT: Final = 0.5
LONGEST_WAIT: Final = 30.0
MAX_PAGES: Final = 100
MAX_TOOLS: Final = 1_000
LISTENING: Final = 2.0  # seconds for a server to confirm that it reports changes
CLOSING: Final = 5.0  # seconds for a client to close

Elicit: TypeAlias = "Callable[[Link, Any], Awaitable[Any]]"
OnTools: TypeAlias = Callable[[list[Any]], None]


class Link:
    """A connection that is restored if lost. `on_tools` is called with each new list of tools."""

    def __init__(
        self,
        label: str,
        open: Callable[[Callable[[str], None]], Any],
        *,
        elicit: Elicit,
        connect_timeout: float,
        on_tools: OnTools | None = None,
        about: Mapping[str, str | int] | None = None,
    ) -> None:
        self.label = label
        self.about = dict(about or {})
        """The transport and address, as telemetry attributes."""
        self.client: Any = None
        """The SDK's client while connected, else None."""
        self.why = ""
        """The reason for not being connected."""
        self.calls: list[Any] = []
        """The calls in progress."""
        self.last_use = 0.0
        """The time of the last use, by the loop's clock."""
        self._open = open
        self._elicit = elicit
        self._connect_timeout = connect_timeout
        self._on_tools = on_tools
        self._wake = asyncio.Event()
        self._is_lost = self._over = self._stale = False
        self._exit_reason = ""  # how the program has ended
        self._raised: list[Exception] = []  # by a login, while connecting
        self._up = asyncio.Event()
        self._fresh = asyncio.Event()  # the tools are up to date
        self._fresh.set()
        self._task: asyncio.Task[None] | None = None

    # ── from outside ────────────────────────────────────────────────────────────────────────

    async def start(self) -> None:
        """Connect; raises MCPServerError if the first attempt fails."""
        started: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        # A separate context: the task must not inherit the current span or plugin.
        self._task = asyncio.create_task(self._keep(started), context=Context())
        try:
            await started
        except BaseException:
            self._task.cancel()  # there is nothing yet that wants a graceful end
            await self.aclose()
            raise

    def close(self) -> None:
        """Start to close; the task does the rest."""
        self._over = True
        self._wake.set()

    async def aclose(self) -> None:
        """Close, and wait until the connection is closed."""
        self.close()
        task = self._task
        if task is None or task.done():
            return
        await asyncio.wait([task], timeout=CLOSING)
        if not task.done():
            task.cancel()
            await asyncio.wait([task], timeout=CLOSING)

    async def ready(self, patience: float) -> Any:
        """Return the client, after waiting for a reconnection if needed; raises MCPServerError."""
        if self.client is None and not self._over:
            with suppress(TimeoutError):
                async with asyncio.timeout(patience):
                    await self._up.wait()
        if self.client is None:
            raise MCPServerError(
                f"MCP server {self.label!r} is not connected ({self.why or 'closed'})"
            )
        self.last_use = asyncio.get_running_loop().time()
        return self.client

    def report_loss(self, client: Any, why: str) -> None:
        """Note that the connection of a client is lost."""
        if client is self.client and client is not None:
            self._drop(why)
            self._wake.set()

    def mark_stale(self) -> None:
        """Note that the tools of the server have changed."""
        if self._on_tools is not None:
            self._stale = True
            self._fresh.clear()
            self._wake.set()

    async def wait_until_fresh(self, patience: float) -> None:
        """Wait until an announced change of the tools has been read."""
        with suppress(TimeoutError):
            async with asyncio.timeout(patience):
                await self._fresh.wait()

    # ── its task ────────────────────────────────────────────────────────────────────────────

    async def _keep(self, started: asyncio.Future[None]) -> None:
        wait = FIRST_WAIT
        while not self._over:
            self._is_lost = False
            self._exit_reason = ""
            try:
                async with AsyncExitStack() as stack:
                    client = await self._connect(stack)
                    wait = FIRST_WAIT
                    with in_session(self.about, client.protocol_version, lambda: self._is_lost):
                        await self._watch(client, started)
            except Exception as exc:
                self._drop(self._exit_reason or (self.why if self._is_lost else reason(exc)))
                if not started.done():
                    started.set_exception(self._failed(exc))
                    return
            finally:
                self._drop(self.why)
                for call in self.calls:
                    call.over(self.why or "it was closed")
                if not started.done():
                    started.cancel()
            if not self._over:
                logger.info("MCP server %r: reconnecting in %g s", self.label, wait)
                await self._pause(wait)
                wait = min(wait * 2, LONGEST_WAIT)
        if not started.done():  # closed before it began
            started.set_exception(MCPServerError(f"MCP server {self.label!r} was closed"))

    def _failed(self, exc: Exception) -> Exception:
        if self._raised:
            return self._raised[0]
        if isinstance(exc, MCPServerError):
            return MCPServerError(f"MCP server {self.label!r}: {exc}")
        if isinstance(exc, TimeoutError):
            why = f"no answer within {self._connect_timeout:g} s"
        else:
            why = self._exit_reason or reason(exc)
        failed = MCPServerError(f"cannot connect to MCP server {self.label!r}: {why}")
        failed.__cause__ = exc
        return failed

    async def _pause(self, seconds: float) -> None:
        """Wait, but not longer than until the end."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while not self._over:
                    self._wake.clear()
                    await self._wake.wait()

    async def _connect(self, stack: AsyncExitStack) -> Any:
        clients: list[Any] = []

        def on_end(why: str) -> None:
            """Note that the program or its stream has ended."""
            self._exit_reason = why
            if clients:
                self.report_loss(clients[0], why)

        async def elicit(context: Any, params: Any) -> Any:
            return await self._elicit(self, params)

        client = sdk("mcp").Client(
            self._open(on_end),
            message_handler=self._hear,
            elicitation_callback=elicit,
            read_timeout_seconds=None,
        )
        self._raised = []
        token = RAISED.set(self._raised)
        try:
            async with asyncio.timeout(self._connect_timeout):
                await stack.enter_async_context(client)
                client.session.validate_tool_result = _unchecked  # the SDK's has no size limit
                self._fresh.set()
                self._stale = False
                tools = await self._list(client) if self._on_tools is not None else []
        finally:
            RAISED.reset(token)
        if self._exit_reason:  # right after its answer
            raise MCPServerError(self._exit_reason)
        clients.append(client)
        self.client = client
        self.why = ""
        self._up.set()
        if self._on_tools is not None:
            self._on_tools(tools)
        return client

    async def _watch(self, client: Any, started: asyncio.Future[None]) -> None:
        """Wait for the end of the connection; list the tools again when they change."""
        listens = asyncio.Event()
        async with _in_background(self._listen(client, listens)):
            with suppress(TimeoutError):  # a server that does not answer here is still usable
                async with asyncio.timeout(LISTENING):
                    await listens.wait()
            if not started.done():
                started.set_result(None)
            while not (self._over or self._is_lost):
                if self._stale and self._on_tools is not None:
                    self._stale = False
                    try:
                        async with asyncio.timeout(self._connect_timeout):
                            tools = await self._list(client)
                        self._on_tools(tools)
                    except Exception as exc:  # keep the old tools
                        logger.warning(
                            "the tools of MCP server %r could not be updated (%s)",
                            *(self.label, type(exc).__name__),
                        )
                        logger.debug("%s", reason(exc))
                    if not self._stale:
                        self._fresh.set()
                    await self._pause(FIRST_WAIT)  # its tools may change with each listing
                    continue
                self._wake.clear()
                await self._wake.wait()

    async def _list(self, client: Any) -> list[Any]:
        """List the tools of the server, page by page, up to the limit."""
        if client.server_capabilities.tools is None:
            return []
        tools: list[Any] = []
        cursor, cursors = None, set[str]()
        for _ in range(MAX_PAGES):
            page = await client.list_tools(cursor=cursor, cache_mode="refresh")
            tools += page.tools
            cursor = page.next_cursor
            if not cursor or cursor in cursors or len(tools) >= MAX_TOOLS:
                break
            cursors.add(cursor)
        if cursor:
            logger.warning(
                "MCP server %r lists too many tools: only the first %d are used",
                *(self.label, min(len(tools), MAX_TOOLS)),
            )
        return tools[:MAX_TOOLS]

    async def _hear(self, message: Any) -> None:
        """Handle a message that a server with a session sends on its own."""
        if getattr(message, "method", "") == "notifications/tools/list_changed":
            self.mark_stale()

    async def _listen(self, client: Any, listens: asyncio.Event) -> None:
        """Listen for changes of the tools, on a server without sessions."""
        modern = sdk("mcp_types.version").MODERN_PROTOCOL_VERSIONS
        tools = client.server_capabilities.tools
        reports = tools is not None and tools.list_changed
        if self._on_tools is None or client.protocol_version not in modern or not reports:
            listens.set()
            return
        wait = FIRST_WAIT
        while True:
            try:
                async with client.listen(tools_list_changed=True) as events:
                    wait = FIRST_WAIT
                    listens.set()
                    async for _ in events:
                        self.mark_stale()
            except Exception as exc:
                logger.debug("MCP server %r: %s", self.label, reason(exc))
            await asyncio.sleep(wait)
            wait = min(wait * 2, LONGEST_WAIT)
            self.mark_stale()  # changes in the meantime were missed

    def _drop(self, why: str) -> None:
        self._is_lost = True
        self.why = why
        self.client = None
        self._up.clear()
        self._fresh.set()


async def _unchecked(name: str, result: Any) -> None:
    """Do nothing: results are checked by the tools, not by the SDK."""


@asynccontextmanager
async def _in_background(work: Any) -> AsyncGenerator[None]:
    """Run a coroutine in the background until the block ends."""
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])
        if not task.cancelled() and task.exception() is not None:
            logger.debug("%s", reason(task.exception() or BaseException()))
