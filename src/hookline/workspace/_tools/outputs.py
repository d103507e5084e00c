"""Long results: the model reads their beginning and end, and pages the rest by a handle."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path
from typing import Final

from hookline.workspace._errors import MissingError

MAX_TEXT: Final = 30_000
"""The most characters of a result."""
MAX_OUTPUTS: Final = 100
"""The number of outputs that are kept."""
_HANDLE: Final = re.compile(r"output:([0-9a-f]{16})")
_CONTROL: Final = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)


def clean(text: str) -> str:
    """Show control characters as numbers, so that no terminal obeys them."""
    text = text.replace("\r\n", "\n")
    return _CONTROL.sub(lambda match: f"\\x{ord(match[0]):02x}", text)


def clean_name(path: str) -> str:
    """Show a path in one line, without control characters."""
    return clean(path).replace("\n", "\\x0a").replace("\t", "\\x09")


def keep_latest(folder: Path, count: int) -> None:
    """Remove all but the latest files of a folder. Other threads and programs may do the same."""
    times: dict[Path, int] = {}
    for file in folder.iterdir():
        with suppress(FileNotFoundError):
            times[file] = file.stat().st_mtime_ns
    for file in sorted(times, key=times.__getitem__)[:-count]:
        file.unlink(missing_ok=True)


class Outputs:
    """Texts in a folder, each with a handle such as `output:0123456789abcdef`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def keep(self, text: str) -> str:
        """Store a text; return its handle."""
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        name = os.urandom(8).hex()
        path = self._folder / name
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(text.encode("utf-8", "replace"))
        keep_latest(self._folder, MAX_OUTPUTS)
        return f"output:{name}"

    def read(self, handle: str) -> str | None:
        """Return the text of a handle; None if this is no handle. Raises MissingError."""
        match = _HANDLE.fullmatch(handle)
        if match is None:
            return None
        try:
            return (self._folder / match[1]).read_text("utf-8")
        except OSError:
            raise MissingError(f"{handle!r} is no longer kept; run the command again") from None

    def cut(self, text: str, limit: int = MAX_TEXT) -> str:
        """Return a text that is not too long: its beginning, its end, and the handle of all."""
        if len(text) <= limit:
            return text
        handle = self.keep(text)
        head, tail = limit // 3, limit - limit // 3
        excess = len(text) - limit
        note = f"[{excess:,} characters are left out here; for all, read the path {handle!r}]"
        return f"{text[:head]}\n{note}\n{text[-tail:]}"
