"""One connection to a server: a task of its own that holds the SDK's client, and makes it anew.

The SDK's client has to be entered and left in one task, and that is never a chat's: a chat that is
aborted would take the connection with it. So a task connects, lists the tools, and then waits: for
the end, for a change of the tools, or for the connection to be lost. A lost one is made again after
0.5 s, then after twice that, at most 30 s. Calls use the client from their own tasks meanwhile.

    connecting ──listed──▶ up ──lost──▶ down ──after a while──▶ connecting
        └── the first time it fails: over          any ──close()──▶ over
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from contextvars import Context
from logging import getLogger
from typing import Any, Final, TypeAlias

from hookline.mcp._errors import MCPServerError, reason, sdk

logger = getLogger("hookline.mcp")

FIRST_WAIT: Final = 0.5
LONGEST_WAIT: Final = 30.0
MAX_PAGES: Final = 100
MAX_TOOLS: Final = 1_000
LISTENING: Final = 2.0  # seconds that a server may take to say that it tells of changes
CLOSING: Final = 5.0  # seconds that the end of a client may take

Target: TypeAlias = Any  # what the SDK's Client is made with
Elicit: TypeAlias = Callable[[Any, Any], Awaitable[Any]]
Changed: TypeAlias = Callable[[list[Any]], None]


class Link:
    """A connection that is kept up. `on_tools` is called with each list of tools that was read."""

    def __init__(
        self,
        label: str,
        open: Callable[[Callable[[str], None]], Any],
        *,
        elicit: Elicit,
        connect_timeout: float,
        on_tools: Changed | None = None,
    ) -> None:
        self.label = label
        self.client: Any = None
        """The SDK's client while it is connected, else None."""
        self.why = ""
        """Why it is not connected."""
        self.calls: list[Any] = []
        """The calls that are under way."""
        self.used = 0.0
        """When it was last used, by the loop's clock."""
        self._open = open
        self._elicit = elicit
        self._connect_timeout = connect_timeout
        self._on_tools = on_tools
        self._wake = asyncio.Event()
        self._lost = self._over = self._stale = False
        self._ended = ""  # how the program ended
        self._up = asyncio.Event()
        self._fresh = asyncio.Event()  # the tools are those that the server has
        self._fresh.set()
        self._task: asyncio.Task[None] | None = None

    # ── from outside ────────────────────────────────────────────────────────────────────────

    async def start(self) -> None:
        """Connect; raises MCPServerError where that fails the first time."""
        started: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        # A context of its own: what is current here – a span, a plugin – is not its business.
        self._task = asyncio.create_task(self._keep(started), context=Context())
        try:
            await started
        except BaseException:
            await self.aclose()
            raise

    def close(self) -> None:
        """Begin the end; its task carries it out."""
        self._over = True
        self._wake.set()

    async def aclose(self) -> None:
        """End it, and wait for that as long as it may take."""
        self.close()
        task = self._task
        if task is None or task.done():
            return
        await asyncio.wait([task], timeout=CLOSING)
        if not task.done():
            task.cancel()
            await asyncio.wait([task], timeout=CLOSING)

    async def ready(self, patience: float) -> Any:
        """The client, waited for where it is being connected again; raises MCPServerError."""
        if self.client is None and not self._over:
            with suppress(TimeoutError):
                async with asyncio.timeout(patience):
                    await self._up.wait()
        if self.client is None:
            raise MCPServerError(
                f"MCP server {self.label!r} is not connected ({self.why or 'closed'})"
            )
        self.used = asyncio.get_running_loop().time()
        return self.client

    def lost(self, client: Any, why: str) -> None:
        """This client's connection is of no more use."""
        if client is self.client and client is not None:
            self._drop(why)
            self._wake.set()

    def changed(self) -> None:
        """The server has other tools."""
        if self._on_tools is not None:
            self._stale = True
            self._fresh.clear()
            self._wake.set()

    async def settled(self, patience: float) -> None:
        """Wait until a change of the tools that was heard of has been read."""
        with suppress(TimeoutError):
            async with asyncio.timeout(patience):
                await self._fresh.wait()

    # ── its task ────────────────────────────────────────────────────────────────────────────

    async def _keep(self, started: asyncio.Future[None]) -> None:
        wait = FIRST_WAIT
        while not self._over:
            self._lost = False
            self._ended = ""
            try:
                async with AsyncExitStack() as stack:
                    client = await self._connect(stack)
                    wait = FIRST_WAIT
                    await self._watch(client, started)
            except Exception as exc:
                self._drop(self._ended or (self.why if self._lost else reason(exc)))
                if not started.done():
                    started.set_exception(self._failed(exc))
                    return
            finally:
                self._drop(self.why)
                if not started.done():
                    started.cancel()
            if not self._over:
                logger.info("MCP server %r is connected again in %g s", self.label, wait)
                await self._pause(wait)
                wait = min(wait * 2, LONGEST_WAIT)

    def _failed(self, exc: Exception) -> Exception:
        if isinstance(exc, MCPServerError):
            return MCPServerError(f"MCP server {self.label!r}: {exc}")
        if isinstance(exc, TimeoutError):
            why = f"it gave no answer within {self._connect_timeout:g} s"
        else:
            why = self._ended or reason(exc)
        failed = MCPServerError(f"MCP server {self.label!r} cannot be connected: {why}")
        failed.__cause__ = exc
        return failed

    async def _pause(self, seconds: float) -> None:
        """Wait, and no longer than until the end."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while not self._over:
                    self._wake.clear()
                    await self._wake.wait()

    async def _connect(self, stack: AsyncExitStack) -> Any:
        made: list[Any] = []

        def ended(why: str) -> None:
            """The program has ended, or the stream of it."""
            self._ended = why
            if made:
                self.lost(made[0], why)

        client = sdk("mcp").Client(
            self._open(ended),
            message_handler=self._hear,
            elicitation_callback=self._elicit,
            read_timeout_seconds=None,
        )
        async with asyncio.timeout(self._connect_timeout):
            await stack.enter_async_context(client)
            self._fresh.set()
            self._stale = False
            tools = await self._list(client) if self._on_tools is not None else []
        made.append(client)
        self.client = client
        self.why = ""
        self._up.set()
        if self._on_tools is not None:
            self._on_tools(tools)
        return client

    async def _watch(self, client: Any, started: asyncio.Future[None]) -> None:
        """Wait for the end of the connection; read the tools again when they have changed."""
        listens = asyncio.Event()
        async with _beside(self._listen(client, listens)):
            with suppress(TimeoutError):  # a server that does not answer here may do without
                async with asyncio.timeout(LISTENING):
                    await listens.wait()
            if not started.done():
                started.set_result(None)
            while not (self._over or self._lost):
                if self._stale and self._on_tools is not None:
                    self._stale = False
                    try:
                        async with asyncio.timeout(self._connect_timeout):
                            tools = await self._list(client)
                        self._on_tools(tools)
                    except Exception as exc:  # the old ones stand
                        logger.warning(
                            "the tools of MCP server %r could not be read again (%s)",
                            *(self.label, type(exc).__name__),
                        )
                        logger.debug("%s", reason(exc))
                    if not self._stale:
                        self._fresh.set()
                    continue
                self._wake.clear()
                await self._wake.wait()

    async def _list(self, client: Any) -> list[Any]:
        """All tools of the server, page by page, as far as a list may be long."""
        if client.server_capabilities.tools is None:
            return []
        tools: list[Any] = []
        cursor, seen = None, set[str]()
        for _ in range(MAX_PAGES):
            page = await client.list_tools(cursor=cursor, cache_mode="refresh")
            tools += page.tools
            cursor = page.next_cursor
            if not cursor or cursor in seen or len(tools) >= MAX_TOOLS:
                break
            seen.add(cursor)
        if cursor:
            logger.warning(
                "MCP server %r lists more than can be taken: the first %d tools are",
                *(self.label, min(len(tools), MAX_TOOLS)),
            )
        return tools[:MAX_TOOLS]

    async def _hear(self, message: Any) -> None:
        """What a server of the handshake says by itself."""
        if getattr(message, "method", "") == "notifications/tools/list_changed":
            self.changed()

    async def _listen(self, client: Any, listens: asyncio.Event) -> None:
        """What a server without sessions says of its tools, while somebody listens."""
        try:
            await self._hear_all(client, listens)
        finally:
            listens.set()

    async def _hear_all(self, client: Any, listens: asyncio.Event) -> None:
        modern = sdk("mcp_types.version").MODERN_PROTOCOL_VERSIONS
        tools = client.server_capabilities.tools
        if self._on_tools is None or client.protocol_version not in modern:
            return
        if tools is None or not tools.list_changed:
            return
        wait = FIRST_WAIT
        while True:
            try:
                async with client.listen(tools_list_changed=True) as events:
                    wait = FIRST_WAIT
                    listens.set()
                    async for _ in events:
                        self.changed()
            except Exception as exc:
                logger.debug("MCP server %r: %s", self.label, reason(exc))
            await asyncio.sleep(wait)
            wait = min(wait * 2, LONGEST_WAIT)
            self.changed()  # what was said meanwhile was not heard

    def _drop(self, why: str) -> None:
        self._lost = True
        self.why = why
        self.client = None
        self._up.clear()
        self._fresh.set()


@asynccontextmanager
async def _beside(work: Any) -> AsyncGenerator[None]:
    """Something that runs as long as the block."""
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])
        if not task.cancelled() and task.exception() is not None:
            logger.debug("%s", reason(task.exception() or BaseException()))
