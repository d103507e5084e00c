"""Asking the person at the terminal: for a message, and whether a call may run.

It reads with `input`, between chats and never within one, so that no loop is held up and Ctrl-C
means what it means at a prompt. What was typed before a question was put is thrown away: it cannot
have been the answer to it.
"""

from __future__ import annotations

import json
import sys
from contextlib import suppress
from importlib import import_module
from typing import Any, Final

import msgspec

from hookline import ApprovalRequest, Approve, Deny
from hookline.cli._clean import strict
from hookline.cli._flow import fit
from hookline.cli._lines import question, whole_call
from hookline.cli._screen import Screen, is_terminal

AGAIN: Final = "Ctrl-C again, or Ctrl-D, leaves."
NAME_CELLS: Final = 20
DENIED: Final = "denied by the user"


class LeftError(Exception):
    """Ctrl-D: the user wants to leave."""


def editable(arguments: dict[str, Any]) -> str:
    """Arguments as JSON to be edited, in which every character that is not seen is an escape."""
    text = json.dumps(arguments, ensure_ascii=False, default=repr)
    return "".join(char if strict(char) == char else json.dumps(char)[1:-1] for char in text)


class Prompts:
    """Questions, and the answers to them. `here`: somebody is there to be asked."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self.here = is_terminal(sys.stdin) and (screen.live or is_terminal(sys.stderr))
        self._readline: Any = None
        if screen.live and is_terminal(sys.stdin):
            with suppress(ImportError):  # Windows has none
                self._readline = import_module("readline")
                self._readline.set_auto_history(False)
                if screen.spins:  # what is pasted in several lines is one message
                    self._readline.parse_and_bind("set enable-bracketed-paste on")

    # ── a line ──────────────────────────────────────────────────────────────────────────────

    def _line(self, prompt: str, style: str = "1", prefilled: str = "") -> str:
        """One line; raises LeftError at its end by Ctrl-D, and KeyboardInterrupt."""
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

    def _styled(self, prompt: str, style: str) -> str:
        if not self._screen.coloured:
            return prompt
        if self._readline is None:
            return f"\x1b[{style}m{prompt}\x1b[0m"
        # readline has to know what of a prompt takes no room.
        return f"\x01\x1b[{style}m\x02{prompt}\x01\x1b[0m\x02"

    def _forget_what_was_typed(self) -> None:
        with suppress(ImportError, OSError):
            termios: Any = import_module("termios")
            with suppress(termios.error):
                termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)

    # ── a message ───────────────────────────────────────────────────────────────────────────

    def message(self) -> str:
        """What the user says, "" for an empty line.

        Raises LeftError (Ctrl-D) and KeyboardInterrupt (Ctrl-C twice).
        """
        warned = False
        while True:
            try:
                text = self._line("› ", "1;32")
                while text.endswith("\\"):
                    text = text[:-1] + "\n" + self._line("… ", "1;32")
            except KeyboardInterrupt:
                if warned:
                    raise
                warned = True
                self._screen.say(AGAIN)
                continue
            if text.strip() and self._readline is not None:
                self._readline.add_history(text.replace("\n", " "))
            return text if text.strip() else ""

    # ── an approval ─────────────────────────────────────────────────────────────────────────

    def decision(self, request: ApprovalRequest, number: int, total: int) -> Approve | Deny:
        """Show all that would run, and ask; raises LeftError and KeyboardInterrupt."""
        for line in question(request, number, total, self._screen.width):
            self._screen.note(line)
        self._forget_what_was_typed()
        edited: dict[str, Any] | None = None
        name = fit(strict(request.call.name), NAME_CELLS)
        while True:
            answer = self._line(f"Run {name}? [y/n/e] ", "1;33").strip().lower()
            if answer in ("y", "yes"):
                return Approve(arguments=edited)
            if answer in ("n", "no"):
                return Deny(self._line("Why not? ", "1;33").strip() or DENIED)
            if answer in ("e", "edit"):
                changed = self._edited(request.call.arguments if edited is None else edited)
                if changed is not None:
                    edited = changed
                    for line in whole_call(request.call.name, edited, self._screen.width):
                        self._screen.note(line)
            else:
                self._screen.say("y: run it.  n: refuse it.  e: edit the arguments.")

    def _edited(self, arguments: dict[str, Any]) -> dict[str, Any] | None:
        """Other arguments, or None where the user has thought better of it."""
        text = editable(arguments)
        self._screen.say("The arguments as JSON; an empty line leaves them as they are.")
        while True:
            text = self._line("arguments: ", "1;33", prefilled=text).strip()
            if not text:
                return None
            try:
                return msgspec.json.decode(text, type=dict[str, Any])
            except msgspec.DecodeError as exc:
                self._screen.say(strict(f"This is no object of JSON: {exc}"), "bad")
