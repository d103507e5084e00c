"""The trace of one chat: its agent span, what is open below it, and what it counts.

Children end before the chat. A span that a cancellation has cut is held back, its end known,
until it is certain why the chat was aborted.
"""

from __future__ import annotations

import asyncio
from time import time_ns
from typing import Any, Protocol

from hookline import History, Message, Model, Run, Usage, UserMessage
from hookline.models import model_name
from hookline.otel import _names as names
from hookline.otel._report import report
from hookline.otel._spans import Operation


class Work(Protocol):
    """A model call or a tool call that is open."""

    def close(self, at: int, error: str) -> None:
        """It ends here, without a result."""
        ...

    def drop(self) -> None:
        """It ends as it is."""
        ...


class Trace:
    """What tracing knows of one chat."""

    __slots__ = (
        "_base",
        "_labels",
        "_model",
        "_scanned",
        "_seen",
        "agent",
        "chat_id",
        "conversation",
        "cut",
        "deltas",
        "fresh",
        "message",
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

    def __init__(self, run: Run[Any], op: Operation, message: UserMessage | None) -> None:
        self.message = message
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
        self._model: Model | None = None  # the last one, and its labels
        self._labels: dict[str, Any] = {}
        self._base = len(run.history)
        self._seen = {_key(run.history[-1])} if self._base else set[str | int]()
        self._scanned = False

    # ── what is open ────────────────────────────────────────────────────────────────────────

    def hold(self, work: Work) -> None:
        """A cancellation has cut it: it has ended, and why is not known yet."""
        self.cut.append((work, time_ns()))

    def close_cut(self) -> None:
        """Now it is known why."""
        cut, self.cut = self.cut, []
        for work, at in cut:
            self._close(work, at)

    def close_open(self) -> None:
        """Nothing stays open below a chat that ends: what was left behind ends with it."""
        self.close_cut()
        for work in list(self.open):
            self._close(work, time_ns())

    def _close(self, work: Work, at: int) -> None:
        try:
            work.close(at, names.OTHER if self.reason in names.LEFT else names.CANCELLED)
        except Exception as exc:
            report("a call could not be traced to its end", exc)
            work.drop()

    # ── the model ───────────────────────────────────────────────────────────────────────────

    def labels_of(self, model: Model) -> dict[str, Any]:
        """What spans and metrics say of a model; not to be changed."""
        if model is not self._model:
            self._model, self._labels = model, _labels_of(model)
        return self._labels

    # ── what was written already ────────────────────────────────────────────────────────────

    def unwritten(self, messages: Any, run: Run[Any]) -> list[Message]:
        """The messages of a request that no span of this or an earlier chat has written."""
        new: list[Message] = []
        if isinstance(messages, History):  # as it stands: what is new is at its end
            for message in reversed(messages):
                if _key(message) in self._seen:
                    break
                new.append(message)
            new.reverse()
        else:
            if not self._scanned:
                self._scanned = True
                self._seen.update([_key(message) for message in run.history[: self._base]])
            new = [message for message in messages if _key(message) not in self._seen]
        self._seen.update([_key(message) for message in new])
        if self.fresh:
            return new
        return [each for each in new if each.role != "assistant"]  # written when it was answered


def _key(message: Message) -> str | int:
    """What a message is known by: those that a user or a hook wrote may have no id."""
    return message.id or id(message)


def _labels_of(model: Model) -> dict[str, Any]:
    """What the span and the metrics of a model call say of the model."""
    labels: dict[str, Any] = {
        names.OPERATION: names.CHAT,
        names.PROVIDER: str(getattr(model, "provider", None) or names.UNKNOWN),
        names.REQUEST_MODEL: model_name(model),
    }
    address = getattr(model, "server_address", None)
    if address is not None:
        labels[names.SERVER_ADDRESS] = str(address)
        port = getattr(model, "server_port", None)
        if port is not None:
            labels[names.SERVER_PORT] = int(port)
    return labels
