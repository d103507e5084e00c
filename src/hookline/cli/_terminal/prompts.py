"""Ask the person at the terminal: for a message, and whether a call may run.

Questions are read with `input`, and only between chats, so they never block an event loop, and
Ctrl-C works as at any prompt. During a chat, complete lines are passed on as messages (`lines`).
Anything typed before a question appears is discarded: it cannot be the answer to that question.
"""

from __future__ import annotations

import asyncio
import json
import os
import select
import sys
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import msgspec

from hookline import ApprovalRequest, Approve, Deny
from hookline.cli._terminal.clean_text import strict
from hookline.cli._terminal.screen import Screen, is_ours, is_terminal, modes
from hookline.cli._terminal.styled_lines import Line, question, whole_call
from hookline.cli._terminal.text_layout import fit
from hookline.storage import Rule

AGAIN: Final = "Press Ctrl-C again, or Ctrl-D, to leave."
NAME_CELLS: Final = 20
REMEMBERED: Final = 1000  # most lines of the history
DENIED: Final = "denied by the user"
KEYS: Final = {"yes": "y", "always": "a", "no": "n", "edit": "e"}


def _history() -> Path | None:
    """Return the history file: HOOKLINE_HISTORY, or None if that is empty."""
    value = os.environ.get("HOOKLINE_HISTORY")
    if value is not None:
        return Path(value) if value else None
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(state) / "hookline" / "history"


def _ready_lines(terminal: int) -> str:
    """Read the complete lines that the terminal has; "" for Ctrl-D."""
    data = os.read(terminal, 65536)
    while data and select.select([terminal], [], [], 0)[0]:
        more = os.read(terminal, 65536)
        if not more:
            break
        data += more
    return data.decode(errors="replace").removesuffix("\n")


class LeftError(Exception):
    """The user has pressed Ctrl-D to leave."""


def editable(arguments: dict[str, Any]) -> str:
    """Return arguments as JSON to be edited, with every invisible character escaped."""
    text = json.dumps(arguments, ensure_ascii=False, default=repr)
    return "".join(char if strict(char) == char else json.dumps(char)[1:-1] for char in text)


class Prompts:
    """Asks questions and reads the answers. `can_ask`: whether a person is at the terminal."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self.can_ask = is_terminal(sys.stdin) and (screen.live or is_terminal(sys.stderr))
        self._has_eof = False  # Ctrl-D was pressed during a chat
        self._history = _history()
        self._readline: Any = None
        if screen.live and is_terminal(sys.stdin):
            with suppress(ImportError):  # Windows has no readline
                self._readline = import_module("readline")
                self._readline.set_auto_history(False)
                if self._history is not None:
                    with suppress(OSError):
                        self._readline.read_history_file(self._history)
                        self._readline.set_history_length(REMEMBERED)
                if screen.spins:  # pasted lines form one message
                    self._readline.parse_and_bind("set enable-bracketed-paste on")

    def _remember(self, text: str) -> None:
        """Save a message to the history, readable only by its user."""
        if self._readline is None:
            return
        self._readline.add_history(text.replace("\n", " "))
        path = self._history
        if path is None:
            return
        with suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            path.touch(mode=0o600)
            self._readline.write_history_file(path)

    # ── a line ──────────────────────────────────────────────────────────────────────────────

    def _line(self, prompt: str, style: str = "1", prefilled: str = "") -> str:
        """Read one line; raises LeftError for Ctrl-D, and KeyboardInterrupt."""
        self._screen.still()
        try:
            if not self._screen.live:
                print(prompt, end="", file=sys.stderr, flush=True)
                line = sys.stdin.readline()
                if not line:
                    raise EOFError
                return line.rstrip("\n")
            if self._readline is not None and prefilled:
                self._readline.set_startup_hook(lambda: self._readline.insert_text(prefilled))
            return input(self._styled(prompt, style))
        except EOFError:
            print(file=sys.stdout if self._screen.live else sys.stderr)
            raise LeftError from None
        except KeyboardInterrupt:
            print(file=sys.stdout if self._screen.live else sys.stderr)
            raise
        finally:
            if self._readline is not None:
                self._readline.set_startup_hook(None)

    def _key(self, prompt: str, style: str) -> str:
        """Read one key, or a line if single keys cannot be read. Raises as `_line` does."""
        modules = modes() if self._screen.live else None
        if modules is None:
            return self._line(prompt, style)
        termios, tty = modules
        self._screen.still()
        before = termios.tcgetattr(sys.stdin.fileno())
        key = ""
        try:
            # Before the prompt is shown, so that the terminal does not echo a quick key.
            tty.setcbreak(sys.stdin.fileno(), termios.TCSANOW)
            sys.stdout.write(f"\x1b[{style}m{prompt}\x1b[0m" if self._screen.coloured else prompt)
            sys.stdout.flush()
            data = os.read(sys.stdin.fileno(), 1)
            if data in (b"", b"\x04"):  # Ctrl-D
                raise LeftError
            key = strict(data.decode(errors="replace").strip())
        finally:
            termios.tcsetattr(sys.stdin.fileno(), termios.TCSANOW, before)
            print(key, flush=True)
        self._forget_what_was_typed()  # an unneeded Enter
        return key

    def _styled(self, prompt: str, style: str) -> str:
        if not self._screen.coloured:
            return prompt
        if self._readline is None:
            return f"\x1b[{style}m{prompt}\x1b[0m"
        # readline must know which parts of a prompt take no space.
        return f"\x01\x1b[{style}m\x02{prompt}\x01\x1b[0m\x02"

    def _forget_what_was_typed(self) -> None:
        self._has_eof = False
        with suppress(ImportError, OSError):
            termios: Any = import_module("termios")
            with suppress(termios.error):
                termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)

    # ── a message ───────────────────────────────────────────────────────────────────────────

    def message(self) -> str:
        """Read a message, "" for an empty line.

        Raises LeftError (Ctrl-D) and KeyboardInterrupt (Ctrl-C twice).
        """
        is_second = False
        while True:
            if self._has_eof:
                raise LeftError
            try:
                text = self._line("› ", "1;32")
                while text.endswith("\\"):
                    text = text[:-1] + "\n" + self._line("… ", "1;32")
            except KeyboardInterrupt:
                if is_second:
                    raise
                is_second = True
                self._screen.say(AGAIN)
                continue
            if text.strip():
                self._remember(text)
            return text if text.strip() else ""

    @contextmanager
    def lines(self, on_line: Callable[[str], None]) -> Generator[None]:
        """Pass on the lines that are typed during a chat. Lines that are pasted together are one
        message. An unfinished line is left for the next prompt, and so is Ctrl-D.
        """
        if not (self._screen.live and is_terminal(sys.stdin)) or modes() is None:
            yield
            return
        loop, terminal = asyncio.get_running_loop(), sys.stdin.fileno()

        def read() -> None:
            if not is_ours(terminal):  # in the background; reading would stop the program
                loop.remove_reader(terminal)
                return
            text = _ready_lines(terminal)
            if not text:  # Ctrl-D
                self._has_eof = True
                loop.remove_reader(terminal)
            elif text.strip():
                self._remember(text)
                on_line(text)

        self._screen.listens = True
        self._screen.hush()
        loop.add_reader(terminal, read)
        try:
            yield
        finally:
            loop.remove_reader(terminal)
            self._screen.listens = False
            self._screen.echo()

    # ── an approval ─────────────────────────────────────────────────────────────────────────

    def decision(self, request: ApprovalRequest, number: int, total: int) -> Approve | Deny:
        """Show the complete call, and ask; raises LeftError and KeyboardInterrupt."""
        self._note(question(request, number, total, self._screen.width))
        self._forget_what_was_typed()
        edited: dict[str, Any] | None = None
        name = fit(strict(request.call.name), NAME_CELLS)
        again = any((details or {}).get("kind") == "command" for details in request.details)
        keys = "y/a/n/e" if again else "y/n/e"
        while True:
            word = self._key(f"Run {name}? [{keys}] ", "1;33").strip().lower()
            answer = KEYS.get(word, word)
            if answer == "y":
                return Approve(arguments=edited)
            if answer == "a" and again:
                return Approve(arguments=edited, remember=Rule(request.call.name))
            if answer == "n":
                return Deny(self._line("Why not? ", "1;33").strip() or DENIED)
            if answer == "e":
                arguments = self._edited(request.call.arguments if edited is None else edited)
                if arguments is not None:
                    edited = arguments
                    self._note(whole_call(request.call.name, edited, self._screen.width))
            else:
                always = "  a: run it, also later in this conversation." if again else ""
                self._screen.say(f"y: run it.{always}  n: refuse it.  e: edit the arguments.")

    def _note(self, lines: Iterable[Line]) -> None:
        for line in lines:
            self._screen.note(line)

    def _edited(self, arguments: dict[str, Any]) -> dict[str, Any] | None:
        """Read edited arguments; None if the user leaves them unchanged."""
        text = editable(arguments)
        self._screen.say("Edit the arguments (JSON); an empty line keeps them.")
        while True:
            text = self._line("arguments: ", "1;33", prefilled=text).strip()
            if not text:
                return None
            try:
                return msgspec.json.decode(text, type=dict[str, Any])
            except msgspec.DecodeError as exc:
                self._screen.say(strict(f"This is not a JSON object: {exc}"), "bad")
