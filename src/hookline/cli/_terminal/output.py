"""Show a chat: on a terminal, in a pipe, or as JSON. It turns events into output.

On a terminal the answer streams, as Markdown if the terminal can redraw text. A pipe gets the
answer when it is complete, because text that a hook withdraws or changes could not be removed
there; everything else is a note. JSON shows every event unchanged.
"""

from __future__ import annotations

import json
import sys
from typing import Any, TypeAlias

from hookline import AssistantMessage, UserMessage
from hookline.cli._terminal.call_notes import APPROVAL, ChatNotes
from hookline.cli._terminal.clean_text import prose, strict
from hookline.cli._terminal.error_texts import FAILED
from hookline.cli._terminal.hook_lines import HookRun
from hookline.cli._terminal.live_markdown import Answer
from hookline.cli._terminal.screen import Screen
from hookline.cli._terminal.styled_lines import Line, cut
from hookline.cli._terminal.text_layout import Flow
from hookline.events import (
    ChatAborted,
    ChatDone,
    ChatEvent,
    ChatStarted,
    FileAdded,
    MessageAdded,
    MessageQueued,
    PartEnd,
    ReasoningDelta,
    ResponseReset,
    SourceAdded,
    StepFinished,
    StepStarted,
    TextDelta,
    ToolCallDelta,
    ToolCallFinished,
    ToolCallStarted,
)
from hookline.hooks import RequestPrefix


class TerminalView:
    """Shows the answer while it grows, with calls and hooks between its parts."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._notes = ChatNotes(screen)
        self._flow = Flow()
        self._answer: Answer | None = None  # the Markdown text being written
        self._style: str | None = None  # the style of the part being written
        self._thought = False  # whether the last part was reasoning
        self._below_calls = False  # whether results of calls are above
        self._has_uncommitted = False  # whether uncommitted text is shown
        self._has_output = False  # whether anything is shown
        self._typed = 0  # messages that the user has typed and already sees

    def event(self, event: ChatEvent) -> None:
        if not event.path:
            match event:
                case TextDelta():
                    self._text(event.text, "")
                    return
                case ReasoningDelta():
                    self._text(event.text, "thought")
                    return
                case _:
                    self._own(event)
        self._notes.event(event)

    def _own(self, event: ChatEvent) -> None:
        """Show an event of the chat itself, other than text."""
        match event:
            case ChatStarted():
                self._has_output, self._typed = False, 0 if event.message is None else 1
                self._screen.spin("thinking")
            case StepStarted():
                self._screen.spin("thinking")
            case PartEnd():
                self._close()
                self._screen.spin("thinking")
            case ToolCallDelta():
                self._screen.spin(f"preparing {strict(event.name)}")
            case ToolCallStarted() | ToolCallFinished() | SourceAdded() | FileAdded():
                self._close()
                self._thought = False
                self._below_calls = isinstance(event, ToolCallFinished)
            case ResponseReset():
                self._close()
                if self._has_uncommitted:
                    self._screen.say("↺ withdrawn: a new answer replaces the text above", "mark")
                self._has_uncommitted = False
            case MessageQueued() | MessageAdded():
                self._show_message(event)
            case ChatDone(response=response):
                self._close()
                if not (self._has_output or response.stop_reason):
                    self._screen.say("(an empty answer)")
                self._notes.end(event)
            case ChatAborted():
                self._close()
                self._notes.end(event)
            case _:
                pass

    def _text(self, text: str, style: str) -> None:
        if self._style not in (None, style):
            self._close()
        if self._style is None and (self._below_calls or (self._thought and not style)):
            self._screen.write("\n")  # below calls, and between reasoning and text
            self._below_calls = False
        self._thought = bool(style)
        self._style = style
        if self._screen.draws and not style:
            self._markdown(text)
            return
        out = self._flow.feed(text, self._screen.width)
        if out:
            self._has_uncommitted = self._has_output = True
            self._screen.write(out, style)
            self._screen.hold()

    def _markdown(self, text: str) -> None:
        if self._answer is None:
            if not text.strip():  # nothing visible yet
                return
            self._answer = Answer(self._screen)
            self._has_uncommitted = self._has_output = True
            self._screen.hold()
        self._answer.add(text)

    def _close(self) -> None:
        """End the text being written, complete or not."""
        answer, self._answer = self._answer, None
        if answer is not None:
            answer.end()
        rest = self._flow.end(self._screen.width)
        self._has_output = self._has_output or bool(rest)
        self._screen.write(rest, self._style or "")
        self._style = None
        self._screen.release()
        self._tell()

    def _tell(self) -> None:
        """Show the hooks and figures that were held back."""
        self._notes.tell_hooks()
        self._notes.tell_prefixes()

    def _show_message(self, event: MessageQueued | MessageAdded) -> None:
        message = event.message
        if isinstance(event, MessageQueued):
            self._screen.say(f"queued: {strict(message.text)}")
            return
        self._has_uncommitted = False
        if isinstance(message, UserMessage):
            self._typed -= 1
            if self._typed < 0:  # sent into the answer, or by a hook in the user's place
                line: Line = [("you", "» "), ("dim", strict(message.text))]
                self._screen.note(cut(line, self._screen.width))

    def hook(self, run: HookRun) -> None:
        """Show a hook; during a text, after it."""
        self._notes.hook(run, hold=self._style is not None)

    def prefix(self, figure: RequestPrefix) -> None:
        """Show what of a request a prompt cache can reuse; during a text, after it."""
        self._notes.prefix(figure)
        if self._style is None:
            self._tell()

    def end(self) -> None:
        self._close()
        self._screen.still()


class PlainView:
    """Writes only the answer to stdout."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._notes = ChatNotes(screen)

    def event(self, event: ChatEvent) -> None:
        if not event.path:
            match event:
                case TextDelta():
                    return
                case MessageAdded(message=AssistantMessage(tool_calls=[_, *_]) as message):
                    if message.text:
                        for line in prose(message.text).splitlines():
                            self._screen.note([("dim", f"  {line}")])
                case StepFinished():
                    self._notes.tell_prefixes(event.iteration)
                case ChatDone(response=response):
                    if response.text and response.stop_reason != APPROVAL:
                        self._screen.write(prose(response.text).rstrip("\n") + "\n")
                    self._notes.end(event)
                case ChatAborted():
                    self._notes.end(event)
                case _:
                    pass
        self._notes.tell_hooks()
        self._notes.event(event)

    def hook(self, run: HookRun) -> None:
        self._notes.hook(run)

    def prefix(self, figure: RequestPrefix) -> None:
        """Show what of a request a prompt cache can reuse, when its step is finished."""
        self._notes.prefix(figure)

    def end(self) -> None:
        self._notes.tell_hooks()


class JsonView:
    """Writes each event as a line of JSON in ASCII, so that no character affects a terminal."""

    def event(self, event: ChatEvent) -> None:
        self._line(json.loads(event.to_json()))

    def hook(self, run: HookRun) -> None:
        self._line(
            {
                "event": "hook",
                "chat_id": run.chat_id,
                "point": run.point,
                "hook": run.hook,
                "outcome": run.outcome,
                "duration": round(run.seconds * 1000, 3),
            }
        )

    def prefix(self, figure: RequestPrefix) -> None:
        self._line(
            {
                "event": "prefix",
                "chat_id": figure.run.chat_id,
                "iteration": figure.iteration,
                "share": round(figure.prefix.share, 3),
                "lost": figure.prefix.lost,
                "differs": figure.prefix.differs,
                "hook": figure.hook,
            }
        )

    def _line(self, data: Any) -> None:
        text = json.dumps(data, separators=(",", ":")).replace("\x7f", "\\u007f")
        try:
            sys.stdout.write(text + "\n")
            sys.stdout.flush()
        except BrokenPipeError:  # `hookline … | head`: the reader has gone
            sys.stdout = None
            raise SystemExit(FAILED) from None

    def end(self) -> None:
        """Do nothing: every line is already complete."""


View: TypeAlias = TerminalView | PlainView | JsonView
