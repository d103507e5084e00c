"""The looks at what a chat has left. Each gives a number that must be 0, and raises nothing.

They are written apart from the code that they watch: how calls and results pair is read off the
messages here, and open spans are counted by a processor of OpenTelemetry's SDK.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Any

from opentelemetry.context import Context
from opentelemetry.metrics import NoOpMeterProvider
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from tests._checkpoints import OUTCOMES, Complaints, Scene

from hookline import AssistantMessage, ToolMessage
from hookline.otel import Telemetry

TASKS = "tasks left"
SPANS = "spans left open"
STRAYS = "spans outside of their parent"
ORPHANS = "orphan tool calls in the history"
ONE = "chats without exactly one outcome"
REST = "other rules of tests/_checkpoints.py broken"
ALL = (TASKS, SPANS, STRAYS, ORPHANS, ONE, REST)


def orphans(messages: Sequence[Any]) -> int:
    """Calls without exactly one result right after their message, and results without a call."""
    wrong = 0
    place = 0
    while place < len(messages):
        message = messages[place]
        place += 1
        if isinstance(message, ToolMessage):
            wrong += 1  # no call stands before it
            continue
        if not isinstance(message, AssistantMessage):
            continue
        waiting = [call.id for call in message.tool_calls]
        while place < len(messages) and isinstance(messages[place], ToolMessage):
            id = messages[place].call_id
            if id in waiting:
                waiting.remove(id)
            else:
                wrong += 1
            place += 1
        wrong += len(waiting)
    return wrong


def one_outcome(trace: Sequence[str]) -> bool:
    """Whether a chat that began had one outcome and one end, in this order, and none otherwise."""
    if not trace:
        return True
    return len(trace) == 3 and trace[1] in OUTCOMES.values() and (
        (trace[0], trace[2]) == ("start", f"end {trace[1]}")
    )  # fmt: skip


class Spans(SpanProcessor):
    """What has begun and not ended, beside an exporter that keeps what has."""

    def __init__(self) -> None:
        self._open: set[int] = set()
        self._exporter = InMemorySpanExporter()
        provider = TracerProvider(shutdown_on_exit=False)
        provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        provider.add_span_processor(self)
        self.telemetry = Telemetry(tracer_provider=provider, meter_provider=NoOpMeterProvider())
        self.ended = 0

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        self._open.add(_id(span))

    def on_end(self, span: ReadableSpan) -> None:
        self._open.discard(_id(span))

    def take(self) -> tuple[int, int]:
        """How many are open, and how many stood outside of their parent; forgets them."""
        still = len(self._open)
        ended = self._exporter.get_finished_spans()
        self.ended += len(ended)
        times = {_id(span): (span.start_time or 0, span.end_time or 0) for span in ended}
        outside = 0
        for span in ended:
            if span.parent is None:
                continue
            begin, end = times.get(span.parent.span_id, (0, 0))  # a parent that has not ended
            mine = times[_id(span)]
            outside += not begin <= mine[0] <= mine[1] <= end
        self._open.clear()
        self._exporter.clear()
        return still, outside


def _id(span: Any) -> int:
    found: int = span.get_span_context().span_id
    return found


async def look(scene: Scene, spans: Spans) -> dict[str, int]:
    """What is broken after a chat of the scene, by the names above."""
    left = list(scene.left)
    for task in left:  # so that they are counted once
        task.cancel()
    await asyncio.gather(*left, return_exceptions=True)
    scene.left = set()
    still, outside = spans.take()
    try:
        scene.holds()
        rest = 0
    except Exception:
        rest = 1
    return {
        TASKS: len(left),
        SPANS: still,
        STRAYS: outside,
        ORPHANS: orphans(scene.conversation.messages),
        ONE: 0 if one_outcome(scene.trace) else 1,
        REST: rest,
    }


async def gone(count: Callable[[], int], seconds: float) -> float:
    """Wait until there is none, or for too long; how long it took."""
    begin = time.perf_counter()
    while count() and time.perf_counter() - begin < seconds:  # noqa: ASYNC110 – it tells nobody
        await asyncio.sleep(0)
    return time.perf_counter() - begin


@contextmanager
def listening() -> Generator[list[str], None, None]:
    """What hookline, asyncio and OpenTelemetry log as a warning or worse."""
    handler = Complaints()
    loggers = [logging.getLogger(name) for name in ("hookline", "asyncio", "opentelemetry")]
    spoke = [(logger, logger.propagate) for logger in loggers]
    for logger in loggers:
        logger.addHandler(handler)
        logger.propagate = False  # it is counted here, and not printed in the middle of a table
    try:
        yield handler.said
    finally:
        for logger, propagates in spoke:
            logger.removeHandler(handler)
            logger.propagate = propagates
