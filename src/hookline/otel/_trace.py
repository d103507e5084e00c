"""The trace of one chat: its agent span, what is open below it, and what it counts.

Children end before the chat. A span that a cancellation has cut is held back, its end known,
until it is certain why the chat was aborted.
"""

from __future__ import annotations

import asyncio
from time import time_ns
from typing import Any, Protocol

from hookline import History, Message, Run, Usage
from hookline.otel._names import CANCELLED, LEFT, OTHER
from hookline.otel._spans import Operation


class Work(Protocol):
    """A model call or a tool call that is open."""

    op: Operation

    def close(self, at: int, error: str) -> None:
        """It ends here, without a result."""
        ...


class Trace:
    """What tracing knows of one chat."""

    __slots__ = (
        "_base",
        "_scanned",
        "_seen",
        "agent",
        "chat_id",
        "conversation",
        "cut",
        "deltas",
        "fresh",
        "model",
        "model_calls",
        "op",
        "open",
        "outcome",
        "reason",
        "system",
        "task",
        "tool_calls",
        "tools",
        "usage",
    )

    def __init__(self, run: Run[Any], op: Operation) -> None:
        self.chat_id = run.chat_id
        self.agent = run.agent
        self.conversation = run.conversation_id
        self.op = op
        self.task: asyncio.Task[Any] | None = asyncio.current_task()
        self.open: list[Work] = []
        self.cut: list[tuple[Work, int]] = []
        self.fresh = True  # no model was called yet
        self.model: str | None = None
        self.model_calls = 0
        self.tool_calls = 0
        self.outcome: str | None = None
        self.reason: str | None = None
        self.usage: Usage | None = None
        self.deltas: dict[tuple[str, str], list[float]] = {}  # of hooks at onDelta: times, seconds
        self.system: str | None = None  # what was written of these already
        self.tools: Any = None
        self._base = len(run.history)
        self._seen = {run.history[-1].id} if self._base else set[str]()
        self._scanned = False

    # ── what is open ────────────────────────────────────────────────────────────────────────

    def hold(self, work: Work) -> None:
        """A cancellation has cut it: it has ended, and why is not known yet."""
        self.cut.append((work, time_ns()))

    def close_cut(self) -> None:
        """Now it is known why."""
        cut, self.cut = self.cut, []
        why = OTHER if self.reason in LEFT else CANCELLED
        for work, at in cut:
            work.close(at, why)

    def close_open(self) -> None:
        """Nothing stays open below a chat that ends: what was left behind ends with it."""
        self.close_cut()
        why = OTHER if self.reason in LEFT else CANCELLED
        for work in list(self.open):
            work.close(time_ns(), why)

    # ── what was written already ────────────────────────────────────────────────────────────

    def unwritten(self, messages: Any, run: Run[Any]) -> list[Message]:
        """The messages of a request that no span of this or an earlier chat has written."""
        new: list[Message] = []
        if isinstance(messages, History):  # as it stands: what is new is at its end
            for message in reversed(messages):
                if message.id in self._seen:
                    break
                new.append(message)
            new.reverse()
        else:
            if not self._scanned:
                self._scanned = True
                self._seen.update([message.id for message in run.history[: self._base]])
            new = [each for each in messages if not each.id or each.id not in self._seen]
        self._seen.update([message.id for message in new if message.id])
        if self.fresh:
            return new
        return [each for each in new if each.role != "assistant"]  # written when it was answered
