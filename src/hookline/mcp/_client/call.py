"""One call of a server's tool, from the chat's side.

The SDK's call runs in a task of its own. Meanwhile the tool's handler waits for the result and for
messages from the server: progress becomes `run.status`, at most ten per second, and a question
becomes `run.ask`. Both happen in the handler's task, because hooks may raise there, and such
exceptions must not reach the SDK. The time limit does not run while the user is asked. If the chat
is aborted or the time is over, the SDK's call is cancelled, which notifies the server.
"""

from __future__ import annotations

import asyncio
from contextvars import ContextVar
from typing import Any, Final, cast

import anyio

from hookline import Run, ToolFailure, ToolResult
from hookline.errors import ToolDenied
from hookline.mcp._client.connection import Link
from hookline.mcp._client.results import result_of
from hookline.mcp._client.tools import clean
from hookline.mcp._client.transport.http import SESSION_OVER, UNREADABLE
from hookline.mcp._errors import RAISED, MCPServerError, reason, sdk, short
from hookline.mcp._telemetry import ERROR, in_call, trace_of_now

EVERY: Final = 0.1  # seconds between two statuses of progress
CANCELLING: Final = 2.0  # seconds that the SDK may take to cancel a call
SETTLING: Final = 2.0  # seconds to wait for a change of the tools
PATIENCE: Final = 10.0  # seconds to wait for a connection
_current: ContextVar[Call | None] = ContextVar("hookline_mcp_call", default=None)


class Call:
    """A call in progress."""

    def __init__(self, link: Link, name: str, run: Run[Any], timeout: float) -> None:
        self.link = link
        self.name = name
        self.run = run
        self.timeout = timeout
        self._loop = asyncio.get_running_loop()
        self._wake = asyncio.Event()
        self._progress: dict[str, Any] | None = None
        self._next = 0.0  # when the next status may be published
        self._questions: list[tuple[Any, asyncio.Future[Any]]] = []
        self._own: BaseException | None = None  # raised by a hook or approver
        self._raised: list[Exception] = []  # by a login
        self._over = ""  # why no answer will come

    async def make(self, arguments: dict[str, Any]) -> ToolResult | ToolFailure:
        """Make the call. A problem with the server becomes a failure that the model sees."""
        link = self.link
        if link.client is None:
            await self.run.status("mcp/waiting", {"server": link.label, "reason": link.why})
        try:
            client = await link.ready(min(PATIENCE, self.timeout))
        except MCPServerError as exc:
            return ToolFailure(short(exc), type="MCPServerError")
        link.calls.append(self)
        try:
            with in_call(self.run, link.about, client.protocol_version) as labels:
                result = result_of(await self._answer(client, arguments))
                if isinstance(result, ToolFailure):
                    labels[ERROR] = "tool_error"
        except Exception as exc:
            if exc is self._own:
                raise
            if self._raised:
                raise self._raised[0] from None
            if isinstance(exc, TimeoutError):
                words = f"the server did not answer within {self.timeout:g} s"
                return ToolFailure(words, type="ToolTimeoutError")
            return await self._failed(client, exc)
        finally:
            link.calls.remove(self)
        await link.wait_until_fresh(SETTLING)
        return result

    async def _failed(self, client: Any, exc: Exception) -> ToolFailure:
        """Convert an exception of the SDK to a failure that the model sees."""
        if not is_lost(exc) and self.link.client is client:
            return ToolFailure(reason(exc).removeprefix("MCPError: "), type="MCPError")
        self.link.report_loss(client, reason(exc))
        why = self.link.why or reason(exc).removeprefix("MCPServerError: ")
        await self.run.status("mcp/lost", {"server": self.link.label, "reason": why})
        words = f"the connection to MCP server {self.link.label!r} was lost: {why}"
        return ToolFailure(words, type="MCPServerError")

    async def _answer(self, client: Any, arguments: dict[str, Any]) -> Any:
        token, raised = _current.set(self), RAISED.set(self._raised)
        try:
            task = asyncio.create_task(
                client.call_tool(
                    self.name, arguments, progress_callback=self._on_progress, meta=trace_of_now()
                )
            )
        finally:
            _current.reset(token)
            RAISED.reset(raised)
        task.add_done_callback(lambda _: self._wake.set())
        until = self._loop.time() + self.timeout
        try:
            while not task.done():
                async with asyncio.timeout_at(until):
                    await self._wake.wait()
                self._wake.clear()
                if self._over and not task.done():
                    raise MCPServerError(self._over)
                until += await self._serve()
            if self._progress is not None:
                await self._tell()
            return task.result()
        finally:
            for _, answer in self._questions:
                if not answer.done():  # `cancel` would reach the SDK, and end the connection
                    answer.set_result(sdk("mcp_types").ElicitResult(action="cancel"))
            if not task.done():
                task.cancel()
                await asyncio.wait([task], timeout=CANCELLING)
            if task.done() and not task.cancelled():
                task.exception()  # mark the exception as retrieved

    async def _serve(self) -> float:
        """Publish progress and ask questions; returns the seconds that the questions took."""
        if self._progress is not None and self._loop.time() >= self._next:
            await self._tell()
        began = self._loop.time()
        has_asked = False
        while self._questions:
            params, answer = self._questions[0]
            has_asked = True
            reply = await self._ask(params)
            del self._questions[0]
            if not answer.done():
                answer.set_result(reply)
        return self._loop.time() - began if has_asked else 0.0

    def over(self, why: str) -> None:
        """Note that the connection is closed: the SDK may never end a call that it has sent."""
        self._over = why
        self._wake.set()

    # ── progress ────────────────────────────────────────────────────────────────────────────

    async def _on_progress(self, progress: float, total: float | None, message: str | None) -> None:
        self._progress = {
            "server": self.link.label,
            "done": progress,
            "total": total,
            "message": None if message is None else clean(message, 1_000),
        }
        wait = self._next - self._loop.time()
        if wait <= 0:
            self._wake.set()
        else:
            self._loop.call_later(wait, self._wake.set)

    async def _tell(self) -> None:
        data, self._progress = self._progress, None
        self._next = self._loop.time() + EVERY
        try:
            await self.run.status("mcp/progress", data)
        except BaseException as exc:
            self._own = exc
            raise

    # ── questions ───────────────────────────────────────────────────────────────────────────

    async def question(self, params: Any) -> Any:
        """Handle a question from the server; called in a task of the SDK."""
        answer: asyncio.Future[Any] = self._loop.create_future()
        self._questions.append((params, answer))
        self._wake.set()
        return await answer

    async def _ask(self, params: Any) -> Any:
        types = sdk("mcp_types")
        url = getattr(params, "url", None)
        text = clean(params.message, 2_000)
        prompt = f"{self.link.label}: {text}" + (f"\n{clean(url, 2_000)}" if url else "")
        schema = None if url else _plain(params.requested_schema)
        try:
            content = await self.run.ask(prompt, schema)
        except ToolDenied:
            return types.ElicitResult(action="decline")
        except BaseException as exc:
            self._own = exc
            raise
        return types.ElicitResult(action="accept", content=None if url else content)


def _plain(schema: Any) -> dict[str, Any]:
    if isinstance(schema, dict):
        return cast("dict[str, Any]", schema)
    data: dict[str, Any] = schema.model_dump(by_alias=True, exclude_none=True)
    return data


async def elicited(link: Link, params: Any) -> Any:
    """Find the call that a question belongs to, and let that call ask it.

    A server without sessions asks in response to a call. A server with a session asks at any time:
    then the chat must be unambiguous, or the question is declined. No other chat ever sees it.
    """
    call = _current.get()
    if call is None:
        chats = {other.run.chat_id for other in link.calls}
        call = link.calls[-1] if len(chats) == 1 else None
    if call is None:
        return sdk("mcp_types").ElicitResult(action="decline")
    return await call.question(params)


def is_lost(exc: BaseException) -> bool:
    """Return whether the connection is unusable after this exception."""
    types, errors = sdk("mcp_types"), sdk("mcp.shared.exceptions")
    if isinstance(exc, errors.MCPError):
        failure: Any = exc
        ended = failure.code == types.CONNECTION_CLOSED and UNREADABLE not in failure.message
        return bool(ended or SESSION_OVER in failure.message)
    closed = (anyio.ClosedResourceError, anyio.BrokenResourceError, anyio.EndOfStream)
    return isinstance(exc, (OSError, *closed))
