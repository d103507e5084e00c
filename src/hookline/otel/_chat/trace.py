"""The trace of one chat: its agent span, its open child spans, and its counters.

Child spans end before the chat's span. A span that was cut by a cancellation is held back, with its
end time, until the reason of the abort is known.
"""

from __future__ import annotations

from collections.abc import Iterable
from time import time_ns
from typing import Any

from hookline import History, Message, ModelRequest, Run, Tool, Usage, UserMessage
from hookline.otel._chat.attributes import ModelWords, ToolWords, hook_labels, parameters
from hookline.otel._chat.continuation_links import Links
from hookline.otel._conventions import names
from hookline.otel._emit.own_failures import FailureReport
from hookline.otel._emit.spans import Operation


class Trace:
    """The tracing state of one chat."""

    def __init__(self, run: Run[Any], op: Operation, common: dict[str, Any]) -> None:
        self.run = run
        self.chat_id = run.chat_id
        self.agent = names.whole(run.agent)
        self.common = common  # the attributes of each span
        self.op = op
        self.links = Links(op)
        self.model_calls = 0
        self.tool_calls = 0
        self.reader_wait = 0.0  # seconds that model calls waited for the reader of the stream
        self.cost: float | None = None  # None if no price is known
        self.open: list[Operation] = []
        self.cut: list[tuple[Operation, int]] = []
        self.fresh = True  # no model has been called yet
        self.model: str | None = None  # the first requested model
        self.outcome: str | None = None
        self.reason: str | None = None
        self.usage: Usage | None = None
        self.deltas: dict[tuple[str, str], list[float]] = {}  # hooks at onDelta: calls, seconds
        self.system: str | None = None  # the parts already recorded
        self.tools: Any = None
        self.words: ModelWords | None = None  # for the last model
        self.tool_words: dict[str, ToolWords] = {}
        self._base = len(run.history)
        # The messages themselves, because a key may be the place of a message in memory.
        self._recorded: dict[str | int, Message] = {}
        if self._base:
            self._note(run.history[-1:])
        self._scanned = False

    # ── what is open ────────────────────────────────────────────────────────────────────────

    def hold(self, work: Operation) -> None:
        """Hold back a span that was cut by a cancellation, until the reason is known."""
        self.cut.append((work, time_ns()))

    def close_cut(self) -> None:
        """End the spans held back: the reason is known."""
        cut, self.cut = self.cut, []
        for work, at in cut:
            self._close(work, at)

    def close_open(self) -> None:
        """End all open child spans: the chat ends."""
        self.close_cut()
        for work in list(self.open):
            self._close(work, time_ns())

    def _close(self, work: Operation, at: int) -> None:
        with FailureReport("a call could not be traced to its end", work.drop):
            work.close(at, names.OTHER if self.reason in names.READER_GONE else names.CANCELLED)

    # ── the words ───────────────────────────────────────────────────────────────────────────

    def words_of(self, request: ModelRequest) -> ModelWords:
        """Return the attributes of a request's model, which are built when it changes."""
        words, model, settings = self.words, request.model, request.settings
        if words is None or words.model is not model or words.settings is not settings:
            content = self.op.emitter.content
            words = self.words = ModelWords(model, settings, self.common, content)
        return words

    def words_of_tool(self, tool: Tool[..., Any]) -> ToolWords:
        """Return the attributes of a tool, which are built once."""
        words = self.tool_words.get(tool.name)
        if words is None or words.tool is not tool:
            content, common = self.op.emitter.content, dict(self.common)
            common.pop(names.CONVERSATION, None)
            words = self.tool_words[tool.name] = ToolWords(tool, self.agent, common, content)
        return words

    def tell_model(self, words: ModelWords, request: ModelRequest) -> None:
        """Set the attributes of the first request on the chat's span."""
        attributes = self.op.attributes
        self.model = attributes[names.REQUEST_MODEL] = words.labels[names.REQUEST_MODEL]
        attributes.update(parameters(request.settings, self.op.emitter.content))
        if request.output is not None:
            attributes[names.OUTPUT_TYPE] = "json"

    # ── hooks at onDelta ────────────────────────────────────────────────────────────────────

    def tell_deltas(self, op: Operation) -> None:
        """Record the hooks at onDelta: one event and one value per hook, not per chunk."""
        deltas, self.deltas = self.deltas, {}
        for (hook, outcome), (count, seconds) in deltas.items():
            labels = hook_labels(hook, "onDelta", outcome)
            op.emitter.instruments.hook_duration.record(seconds, labels, op.context)
            if outcome != "ok" and op.span.is_recording():
                more = {names.HOOK_DURATION: seconds, names.HOOK_COUNT: int(count)}
                op.span.add_event(names.HOOK_EVENT, {**labels, **more})

    # ── what was written already ────────────────────────────────────────────────────────────

    def user_message(self) -> UserMessage | None:
        """Return the user's message as it was stored: hooks may have removed secrets from it."""
        for message in self.run.history[self._base :]:
            if isinstance(message, UserMessage):
                return message
        return None

    def unwritten(self, messages: Any, run: Run[Any]) -> list[Message]:
        """Return the messages of a request that no span of this or an earlier chat has recorded."""
        new: list[Message] = []
        if isinstance(messages, History):  # unchanged: new messages are at the end
            for message in reversed(messages):
                if _key(message) in self._recorded:
                    break
                new.append(message)
            new.reverse()
        else:
            if not self._scanned:
                self._scanned = True
                self._note(run.history[: self._base])
            new = [message for message in messages if _key(message) not in self._recorded]
        self._note(new)
        if self.fresh:
            return new
        # An answer was recorded with its response.
        return [message for message in new if message.role != "assistant"]

    def _note(self, messages: Iterable[Message]) -> None:
        self._recorded.update([(_key(message), message) for message in messages])


def _key(message: Message) -> str | int:
    """Return the key of a message: a message from a user or a hook may have no id."""
    return message.id or id(message)
