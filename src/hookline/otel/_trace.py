"""The trace of one chat: its agent span, what is open below it, and what it counts.

Children end before the chat. A span that a cancellation has cut is held back, its end known,
until it is certain why the chat was aborted.
"""

from __future__ import annotations

import asyncio
from time import time_ns
from typing import Any, Protocol

from hookline import History, Message, ModelRequest, Run, Tool, Usage, UserMessage
from hookline.otel import _names as names
from hookline.otel._report import report
from hookline.otel._spans import Operation
from hookline.otel._words import ModelWords, ToolWords


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
        "tool_words",
        "tools",
        "usage",
        "words",
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
        self.words: ModelWords | None = None  # of the last model
        self.tool_words: dict[str, ToolWords] = {}
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

    # ── the words ───────────────────────────────────────────────────────────────────────────

    def words_of(self, request: ModelRequest) -> ModelWords:
        """Put together what is said of the model that is asked from now on."""
        words = self.words = ModelWords(request.model, request.settings, self.conversation)
        return words

    def words_of_tool(self, tool: Tool[..., Any]) -> ToolWords:
        """Put together what is said of a tool."""
        words = self.tool_words[tool.name] = ToolWords(tool, self.agent)
        return words

    def tell_model(self, words: ModelWords, request: ModelRequest) -> None:
        """The chat's own span says what its first request does."""
        found = self.op.attributes
        self.model = found[names.REQUEST_MODEL] = words.labels[names.REQUEST_MODEL]
        found.update(names.parameters(request.settings))
        if request.output is not None:
            found[names.OUTPUT_TYPE] = "json"

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
