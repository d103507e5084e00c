"""A program in a pseudo-terminal: what it prints is waited for, and its screen looked at."""

from __future__ import annotations

import fcntl
import os
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import pyte

from hookline.cli import main

# Makes the terminal the program's own, so that Ctrl-C on it is a SIGINT, which is not ignored even
# where the tests run in the background of a shell; then becomes the program.
OWN = (
    "import fcntl, os, signal, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); "
    "signal.signal(signal.SIGINT, signal.SIG_DFL); os.execv(sys.argv[1], sys.argv[1:])"
)
ESCAPE = re.compile(rb"\x1b\[[0-?]*[ -/]*[@-~]|\x1b[()][0-9A-Z]|\x1b[=>]")
PATIENCE = 90.0  # seconds for something that is to be printed, on a machine that is busy


def environment(**more: str) -> dict[str, str]:
    """The variables of a program under test: nothing of ours says how it is to look."""
    ours = {"NO_COLOR", "FORCE_COLOR", "COLUMNS", "LINES", "HOOKLINE_TOKEN", "PYTHONWARNINGS"}
    kept = {name: value for name, value in os.environ.items() if name not in ours}
    quiet = {"HOOKLINE_HISTORY": ""}  # nothing is left behind in a home
    return {**kept, "TERM": "xterm-256color", "PYTHONIOENCODING": "utf-8", **quiet, **more}


def program(*arguments: str) -> list[str]:
    """The command, as a user runs it."""
    return [sys.executable, "-W", "error", "-m", "hookline", *arguments]


class Fork:
    """The command `hookline` in a fork of this process, with a terminal as its own.

    A user without rights cannot start Python if it is in the home of root. Its fork can go on.
    """

    def __init__(
        self, arguments: Sequence[str], cwd: Path, terminal: int, env: Mapping[str, str]
    ) -> None:
        self.returncode: int | None = None
        self._pid = os.fork()
        if self._pid:
            return
        status = 1
        try:
            os.setsid()
            fcntl.ioctl(terminal, termios.TIOCSCTTY, 0)
            for fd in range(3):
                os.dup2(terminal, fd)
            sys.stdin, sys.stdout, sys.stderr = os.fdopen(0), os.fdopen(1, "w"), os.fdopen(2, "w")
            os.chdir(cwd)
            os.environ.clear()
            os.environ.update(env)
            sys.modules.pop("app", None)  # of another test
            status = main(list(arguments))
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            os._exit(status)

    def poll(self) -> int | None:
        if self.returncode is None:
            pid, status = os.waitpid(self._pid, os.WNOHANG)
            self.returncode = os.waitstatus_to_exitcode(status) if pid else None
        return self.returncode

    def kill(self) -> None:
        os.kill(self._pid, signal.SIGKILL)

    def wait(self) -> None:
        if self.returncode is None:
            os.waitpid(self._pid, 0)


class Terminal:
    """A command, or a function that starts a process with the terminal as its own.

    `raw` is all that was printed, `lines` what the screen shows, from its first line on.
    """

    def __init__(
        self,
        command: Sequence[str] | Callable[[int], Any],
        cwd: Path,
        *,
        columns: int = 80,
        rows: int = 50,
        **env: str,
    ) -> None:
        self.raw = b""
        self._seen = 0  # how much of the text was waited for already
        self.columns = columns
        self._screen: Any = pyte.HistoryScreen(columns, rows, history=5000, ratio=0.5)
        self._stream: Any = pyte.ByteStream(self._screen)
        self._ours, theirs = os.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        if callable(command):
            self.process: Any = command(theirs)
        else:
            self.process = subprocess.Popen(
                [sys.executable, "-c", OWN, *command],
                cwd=cwd,
                env=environment(**env),
                stdin=theirs,
                stdout=theirs,
                stderr=theirs,
                start_new_session=True,
            )
        os.close(theirs)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self._ours)

    @property
    def text(self) -> str:
        """All that was printed, without escape sequences and carriage returns."""
        return ESCAPE.sub(b"", self.raw).replace(b"\r", b"").decode(errors="replace")

    @property
    def lines(self) -> list[str]:
        """What stands on the screen, and what was scrolled out of it."""
        screen = self._screen
        rows = [*screen.history.top, *(screen.buffer[line] for line in range(screen.lines))]
        columns = range(self.columns)
        shown = ["".join(row[place].data for place in columns).rstrip() for row in rows]
        while shown and not shown[-1]:
            shown.pop()
        return shown

    def colour(self, words: str) -> str:
        """The colour in which these words stand on the screen."""
        for row, line in enumerate(self._screen.display):
            if (place := line.find(words)) >= 0:
                colour: str = self._screen.buffer[row][place].fg
                return colour
        raise AssertionError(f"{words!r} is not on the screen: {self.lines}")

    def _read(self, until: float) -> bool:
        """Take what there is; False at the end."""
        ready, _, _ = select.select([self._ours], [], [], max(0.0, until - time.monotonic()))
        assert ready, f"nothing more was printed, and this is there:\n{self.text[-3000:]}"
        try:
            data = os.read(self._ours, 65536)
        except OSError:  # how Linux tells that nobody writes any more
            return False
        self.raw += data
        self._stream.feed(data)
        return bool(data)

    def expect(self, words: str) -> str:
        """Wait until these words are printed, after those that were waited for before."""
        until = time.monotonic() + PATIENCE
        while (place := self.text.find(words, self._seen)) < 0:
            assert self._read(until), f"it ended without {words!r}:\n{self.text[-3000:]}"
        before = self.text[self._seen : place]
        self._seen = place + len(words)
        return before

    def send(self, text: str) -> None:
        """Type this."""
        os.write(self._ours, text.encode())

    def say(self, text: str) -> None:
        """Type a line."""
        self.send(text + "\r")

    def press_ctrl_c(self, words: str) -> None:
        """Ctrl-C at a prompt, until it is noticed and these words are printed.

        Python's readline looks for signals only when one wakes it from waiting for a key. One that
        comes just before it waits, as a test can send it, shows at the next.
        """
        for _ in range(8):
            self.send("\x03")
            until = time.monotonic() + PATIENCE / 8
            while self.text.find(words, self._seen) < 0:
                ready, _, _ = select.select(
                    [self._ours], [], [], max(0.0, until - time.monotonic())
                )
                if not ready:
                    break
                assert self._read(until), f"it ended without {words!r}:\n{self.text[-3000:]}"
            else:
                self.expect(words)
                return
        raise AssertionError(f"{words!r} was never printed:\n{self.text[-3000:]}")

    def resize(self, columns: int) -> None:
        """Make the window narrower or wider; as a terminal does, it breaks lines that are longer.

        A line that ends where it was broken is not put together again: the program under test
        writes none.
        """
        shown = self.lines
        rows = [
            row[at : at + columns] for row in shown for at in range(0, max(1, len(row)), columns)
        ]
        ended = bool(shown) and self._screen.cursor.x == 0
        self.columns = columns
        self._screen = pyte.HistoryScreen(columns, self._screen.lines, history=5000, ratio=0.5)
        self._stream = pyte.ByteStream(self._screen)
        self._stream.feed("\r\n".join(rows).encode() + (b"\r\n" if ended else b""))
        size = struct.pack("HHHH", self._screen.lines, columns, 0, 0)
        fcntl.ioctl(self._ours, termios.TIOCSWINSZ, size)

    def interrupt(self) -> None:
        """A SIGINT for the program itself."""
        self.process.send_signal(signal.SIGINT)

    def end(self) -> int:
        """Wait for the end; gives the exit status."""
        until = time.monotonic() + PATIENCE
        while self._read(until):
            pass
        return int(self.process.wait(PATIENCE))
