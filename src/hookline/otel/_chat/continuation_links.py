"""Marks that a chat leaves in `run.state` for its continuation: its span, and its open questions.

A chat that waits for an approval is continued by another chat, and a durable chat by its own next
life; both find the same `run.state`. The span of the continuation is linked to the earlier span.
"""

from __future__ import annotations

from time import time_ns
from typing import Any, Final, cast

from opentelemetry.trace import SpanContext, TraceFlags

from hookline import Run
from hookline.otel._conventions import names
from hookline.otel._emit.spans import Operation

KEY: Final = "hookline.otel"


class Links:
    """The links of one chat."""

    __slots__ = ("_met", "_op", "_requested_at")

    def __init__(self, op: Operation) -> None:
        self._op = op
        self._met = False
        self._requested_at: dict[str, int] = {}  # when each approval was requested, by call id

    def meet(self, run: Run[Any], *, leave: bool = True) -> None:
        """Link to the earlier span and, with `leave`, leave a mark; only the first call counts."""
        if self._met or not self._op.span.is_recording():
            return
        mark: Any = run.state.get(KEY)
        if isinstance(mark, dict):
            self._link(cast("dict[str, Any]", mark), run)
        if leave:
            self._met = True
            self._mark(run)

    def approval_requested(self, run: Run[Any], call_id: str) -> None:
        """Note that an approval was requested."""
        self.meet(run)
        self._requested_at[call_id] = time_ns()
        self._mark(run)

    def approval_wait(self, run: Run[Any], call_id: str) -> float | None:
        """Return how long the answer took, in seconds; None if unknown."""
        self.meet(run)
        begin = self._requested_at.pop(call_id, None)
        return None if begin is None else max(time_ns() - begin, 0) / 1e9

    def _mark(self, run: Run[Any]) -> None:
        context = self._op.span.get_span_context()
        if self._op.span.is_recording():
            run.state[KEY] = {
                "trace": f"{context.trace_id:032x}",
                "span": f"{context.span_id:016x}",
                "chat": run.chat_id,
                "asked": dict(self._requested_at),
            }

    def _link(self, mark: dict[str, Any], run: Run[Any]) -> None:
        context = self._op.span.get_span_context()
        trace, span = int(str(mark["trace"]), 16), int(str(mark["span"]), 16)
        if span == context.span_id:
            return
        before = SpanContext(trace, span, is_remote=True, trace_flags=TraceFlags(1))
        kind = "earlier_life" if mark.get("chat") == run.chat_id else "approval"
        self._op.span.add_link(before, {names.LINK: kind})
        self._requested_at.update(mark.get("asked") or {})
