"""Telemetry of MCP, by OpenTelemetry's conventions.

The SDK creates a span for each request, and puts the trace into its `_meta`, on both sides. This
module adds the attributes of a call to the tool's own span, if there is one, and the durations of
calls and sessions. `hookline.otel` sets the span of a call in OpenTelemetry's current context;
neither module imports the other. Values that belong to no chat go to the global meter provider.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from time import perf_counter
from typing import Any, Final, TypeAlias, cast

from hookline import Run
from hookline.mcp._errors import sdk

Labels: TypeAlias = dict[str, str | int]

SECONDS: Final = [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 120, 300]
METHOD: Final = "mcp.method.name"
VERSION: Final = "mcp.protocol.version"
ERROR: Final = "error.type"
STATUS: Final = "rpc.response.status_code"
TOOL: Final = "gen_ai.tool.name"
OPERATION: Final = "gen_ai.operation.name"
NOT_FOUND: Final = -32601


@contextmanager
def in_call(run: Run[Any], about: Mapping[str, str | int], version: str) -> Generator[Labels]:
    """Record a call to a server, if it is wanted; yields its labels."""
    tell: Any = sdk("opentelemetry.context").get_value(f"hookline.call:{run.chat_id}:{run.call_id}")
    labels: Labels = {METHOD: "tools/call", VERSION: version, **about}
    with _timed(labels, lambda seconds: tell and tell(labels, seconds)):
        yield labels


@contextmanager
def in_session(
    about: Mapping[str, str | int], version: str, is_lost: Callable[[], bool]
) -> Generator[None]:
    """Record the duration of a connection to a server, and whether it was lost."""
    labels: Labels = {VERSION: version, **about}
    began = perf_counter()
    try:
        yield
    except Exception as exc:
        labels.update(_failed(exc))
        raise
    else:
        if is_lost():
            labels[ERROR] = "connection_lost"
    finally:
        histogram = _histogram(
            "mcp.client.session.duration",
            "Duration of a session with an MCP server, measured by the client.",
        )
        histogram.record(perf_counter() - began, labels)


@contextmanager
def _timed(labels: Labels, record: Callable[[float], object]) -> Generator[None]:
    """Record the seconds of a request, and the error that it raised."""
    began = perf_counter()
    try:
        yield
    except BaseException as exc:
        labels.update(_failed(exc))
        raise
    finally:
        record(perf_counter() - began)


def measuring(name: str) -> Any:
    """Return SDK middleware that measures requests to a server; `name` is the name of its tool."""
    histogram = _histogram(
        "mcp.server.operation.duration",
        "Duration of a request to an MCP server, measured by the server.",
    )

    async def measure(ctx: Any, call_next: Any) -> Any:
        labels: Labels = {METHOD: ctx.method, VERSION: ctx.protocol_version}
        if ctx.method == "tools/call":
            params: dict[str, Any] = ctx.params or {}
            labels[OPERATION] = "execute_tool"
            if params.get("name") == name:
                labels[TOOL] = name

        def record(seconds: float) -> None:
            if labels.get(STATUS) == str(NOT_FOUND):
                labels[METHOD] = "_OTHER"  # a client may ask for anything
            histogram.record(seconds, labels)

        with _timed(labels, record):
            result = await call_next(ctx)
            if _is_error(result):
                labels[ERROR] = "tool_error"
            return result

    return measure


def measuring_sessions() -> Any:
    """Return SDK middleware that measures sessions, from the handshake until they are closed."""
    histogram = _histogram(
        "mcp.server.session.duration",
        "Duration of a session with an MCP client, measured by the server.",
    )

    async def measure(ctx: Any, call_next: Any) -> Any:
        began = perf_counter()
        result = await call_next(ctx)
        if ctx.method == "initialize":
            labels: Labels = {VERSION: ctx.session.protocol_version}
            # The SDK reports the end of a connection only here.
            ctx.session._connection.exit_stack.callback(
                lambda: histogram.record(perf_counter() - began, labels)
            )
        return result

    return measure


def trace_of_now() -> dict[str, Any] | None:
    """Return the `_meta` with the trace of a request; the SDK sets it only for remote servers."""
    meta: dict[str, Any] = {}
    sdk("opentelemetry.propagate").inject(meta)
    return meta or None


def _histogram(name: str, about: str) -> Any:
    meter = sdk("opentelemetry.metrics").get_meter("hookline")
    return meter.create_histogram(
        name, unit="s", description=about, explicit_bucket_boundaries_advisory=SECONDS
    )


def _is_error(result: Any) -> bool:
    if isinstance(result, Mapping):
        return cast("Mapping[str, Any]", result).get("isError") is True
    return getattr(result, "is_error", False) is True


def _failed(exc: BaseException) -> Labels:
    if isinstance(exc, sdk("mcp.shared.exceptions").MCPError):
        error: Any = exc
        return {ERROR: str(error.code), STATUS: str(error.code)}
    return {ERROR: "timeout" if isinstance(exc, TimeoutError) else type(exc).__name__}
