"""Notes for terminals and pipes: calls, statuses, hooks, and the end of a chat."""

from __future__ import annotations

from math import inf
from typing import Final

from hookline.cli._terminal.clean_text import strict
from hookline.cli._terminal.hook_lines import HookRun, add_up, hook_line, prefix_line
from hookline.cli._terminal.screen import Screen
from hookline.cli._terminal.styled_lines import (
    call_line,
    cut,
    file_line,
    result_line,
    source_line,
    status_text,
)
from hookline.events import (
    ApprovalRequested,
    ChatAborted,
    ChatDone,
    ChatEvent,
    FileAdded,
    SourceAdded,
    Status,
    ToolCallFinished,
    ToolCallStarted,
)
from hookline.hooks import RequestPrefix

APPROVAL: Final = "approval"  # the stop_reason of a chat that waits for an answer


class Labels:
    """Labels for calls: a second `weather` that runs at the same time is `weather#2`."""

    def __init__(self) -> None:
        self._open: dict[tuple[tuple[str, ...], str], str] = {}
        self._waiting: set[str] = set()  # the labels of calls that wait for an approval

    def begin(self, event: ToolCallStarted) -> str:
        name = strict(event.call.name)
        labels = set(self._open.values())
        label, number = name, 1
        while label in labels:
            number += 1
            label = f"{name}#{number}"
        self._open[event.path, event.call.id] = label
        return label

    def finish(self, event: ToolCallFinished) -> str:
        label = self._open.pop((event.path, event.call_id), strict(event.name))
        self._waiting.discard(label)
        return label

    def ask(self, event: ApprovalRequested) -> None:
        self._waiting.add(self._open.get((event.path, event.request.call.id), ""))

    @property
    def running(self) -> str:
        return ", ".join(label for label in self._open.values() if label not in self._waiting)


class ChatNotes:
    """Shows calls, statuses and hooks as notes, on a terminal or in a pipe."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._labels = Labels()
        self._hooks: list[HookRun] = []  # held back
        self._figures: list[RequestPrefix] = []  # likewise

    def event(self, event: ChatEvent) -> None:
        screen, width = self._screen, self._screen.width
        match event:
            case ToolCallStarted():
                label = self._labels.begin(event)
                screen.note(call_line(label, event.call, len(event.path), width))
            case ToolCallFinished():
                label = self._labels.finish(event)
                screen.note(result_line(label, event, len(event.path), width))
            case ApprovalRequested():
                self._labels.ask(event)
            case SourceAdded():
                screen.note(source_line(event.source, len(event.path), width))
            case FileAdded():
                screen.note(file_line(event.file, len(event.path), width))
            case Status() if screen.spins:
                screen.spin(status_text(event))
                return
            case Status():
                screen.note(cut([("dim", f"  {status_text(event)}")], width))
            case _:
                return
        if self._labels.running:
            screen.spin(f"running {self._labels.running}")

    def hook(self, run: HookRun, *, hold: bool = False) -> None:
        """Show a hook, below those that were held back: hooks at deltas, which are counted."""
        self._hooks = add_up(self._hooks, run)
        if run.point != "onDelta" and not hold:
            self.tell_hooks()

    def tell_hooks(self) -> None:
        """Show the hooks that were held back."""
        runs, self._hooks = self._hooks, []
        for run in runs:
            self._screen.note(hook_line(run, self._screen.width))

    def prefix(self, figure: RequestPrefix) -> None:
        """Hold back what of a request a prompt cache can reuse."""
        self._figures.append(figure)

    def tell_prefixes(self, until: float = inf) -> None:
        """Show the figures that were held back, up to those of this step."""
        figures, self._figures = self._figures, []
        for figure in figures:
            if figure.iteration <= until:
                self._screen.note(prefix_line(figure, self._screen.width))
            else:
                self._figures.append(figure)

    def end(self, event: ChatDone | ChatAborted) -> None:
        """Show why a chat was stopped or aborted."""
        if isinstance(event, ChatAborted):
            reason = event.reason or "no reason given"
            self._screen.say(strict(f"■ stopped: {reason}"), "mark")
        elif event.response.stop_reason not in (None, APPROVAL):
            self._screen.say(strict(f"■ stopped: {event.response.stop_reason}"), "mark")
