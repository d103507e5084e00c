"""A chat as it is shown: on a terminal, into a pipe, as JSON. Events go in, writing comes out.

On a terminal the answer streams. A pipe gets the answer when it is whole, since what a hook takes
back or changes could not be taken back there; all else is notes. JSON is every event as it is.
"""

from __future__ import annotations

import json
import sys
from typing import Any, Protocol

from hookline import AssistantMessage, Response, UserMessage
from hookline.cli._calls import APPROVAL, Calls, add_up
from hookline.cli._clean import prose, strict
from hookline.cli._flow import Flow
from hookline.cli._lines import Fired, cut, hook_line
from hookline.cli._screen import Screen
from hookline.events import (
    ChatAborted,
    ChatDone,
    ChatEvent,
    ChatStarted,
    MessageAdded,
    PartEnd,
    ReasoningDelta,
    ResponseReset,
    StepStarted,
    TextDelta,
    ToolCallDelta,
    ToolCallFinished,
    ToolCallStarted,
)


class View(Protocol):
    """What a chat is shown by."""

    def event(self, event: ChatEvent) -> None: ...

    def hook(self, fired: Fired) -> None: ...

    def end(self) -> None:
        """The chat is over, however it ended."""


class TerminalView:
    """The answer as it comes, with calls and hooks between its parts."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._calls = Calls(screen)
        self._flow = Flow()
        self._style: str | None = None  # of the part that is being written
        self._thought = False  # the last part was reasoning
        self._shown = False  # something of the answer that is not committed yet
        self._said = False  # something at all
        self._typed = 0  # messages that the user has typed, and sees already
        self._hooks: list[Fired] = []

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
        self._calls.event(event)

    def _own(self, event: ChatEvent) -> None:
        """An event of the chat itself that is no text."""
        match event:
            case ChatStarted():
                self._said, self._typed = False, 0 if event.message is None else 1
                self._screen.spin("thinking")
            case StepStarted():
                self._screen.spin("thinking")
            case PartEnd():
                self._close()
                self._screen.spin("thinking")
            case ToolCallDelta():
                self._screen.spin(f"writing a call of {strict(event.name)}")
            case ToolCallStarted() | ToolCallFinished():
                self._close()
                self._thought = False
            case ResponseReset():
                self._close()
                if self._shown:
                    self._screen.say("↺ taken back: what was said above is answered anew", "mark")
                self._shown = False
            case MessageAdded(message=message):
                self._shown = False
                self._added(message)
            case ChatDone(response=response):
                self._close()
                if not (self._said or response.stop_reason):
                    self._screen.say("(an empty answer)")
                self._calls.ended(event)
            case ChatAborted():
                self._close()
                self._calls.ended(event)
            case _:
                pass

    def _text(self, text: str, style: str) -> None:
        if self._style not in (None, style):
            self._close()
        if self._style is None and self._thought and not style:
            self._screen.write("\n")  # between what was thought and what is said
        self._thought = bool(style)
        self._style = style
        out = self._flow.feed(text, self._screen.width)
        if out:
            self._shown = self._said = True
            self._screen.write(out, style)
            self._screen.hold()

    def _close(self) -> None:
        """The text that was being written is whole, or will never be."""
        rest = self._flow.end(self._screen.width)
        self._said = self._said or bool(rest)
        self._screen.write(rest, self._style or "")
        self._style = None
        self._screen.release()
        self._tell()

    def _tell(self) -> None:
        """The hooks that were held back."""
        fired, self._hooks = self._hooks, []
        for each in fired:
            self._screen.note(hook_line(each, self._screen.width))

    def _added(self, message: object) -> None:
        if isinstance(message, UserMessage):
            self._typed -= 1
            if self._typed < 0:  # a hook goes on in the user's place
                line = [("you", "» "), ("dim", strict(message.text))]
                self._screen.note(cut(line, self._screen.width))

    def hook(self, fired: Fired) -> None:
        """Hooks at deltas are counted; whatever fires within a text is told after it."""
        if fired.point == "onDelta" or self._style is not None:
            self._hooks = add_up(self._hooks, fired)
        else:
            self._tell()
            self._screen.note(hook_line(fired, self._screen.width))

    def end(self) -> None:
        self._close()
        self._screen.still()


class PlainView:
    """stdout gets the answer and nothing else."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._calls = Calls(screen)
        self._hooks: list[Fired] = []

    def event(self, event: ChatEvent) -> None:
        if not event.path:
            match event:
                case TextDelta():
                    return
                case MessageAdded(message=AssistantMessage(tool_calls=[_, *_]) as message):
                    if message.text:
                        for line in prose(message.text).splitlines():
                            self._screen.note([("dim", f"  {line}")])
                case ChatDone(response=response):
                    self._answer(response)
                    self._calls.ended(event)
                case ChatAborted():
                    self._calls.ended(event)
                case _:
                    pass
        if self._hooks:
            self.end()
        self._calls.event(event)

    def _answer(self, response: Response) -> None:
        if response.text and response.stop_reason != APPROVAL:
            self._screen.write(prose(response.text).rstrip("\n") + "\n")

    def hook(self, fired: Fired) -> None:
        if fired.point == "onDelta":
            self._hooks = add_up(self._hooks, fired)
        else:
            self.end()
            self._screen.note(hook_line(fired, self._screen.width))

    def end(self) -> None:
        fired, self._hooks = self._hooks, []
        for each in fired:
            self._screen.note(hook_line(each, self._screen.width))


class JsonView:
    """Each event as a line of JSON in ASCII: no character in it does anything to a terminal."""

    def event(self, event: ChatEvent) -> None:
        self._line(json.loads(event.to_json()))

    def hook(self, fired: Fired) -> None:
        self._line(
            {
                "event": "hook",
                "chat_id": fired.chat_id,
                "point": fired.point,
                "hook": fired.hook,
                "outcome": fired.outcome,
                "duration": round(fired.seconds * 1000, 3),
            }
        )

    def _line(self, data: Any) -> None:
        text = json.dumps(data, separators=(",", ":")).replace("\x7f", "\\u007f")
        sys.stdout.write(text + "\n")
        sys.stdout.flush()

    def end(self) -> None:
        """Every line is whole."""
