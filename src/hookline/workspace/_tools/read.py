"""The tools `read` and `list`."""

from __future__ import annotations

import asyncio
import os
import stat
from typing import Any, Final

from hookline import File, Image, Run, Tool, ToolResult
from hookline.errors import ToolDenied
from hookline.workspace._errors import NotAFileError
from hookline.workspace._files.access import Access
from hookline.workspace._files.root import FileData
from hookline.workspace._files.text import decode
from hookline.workspace._tools.outputs import MAX_TEXT, Outputs, clean, clean_name
from hookline.workspace._tools.seen_files import note_read

MAX_LINES: Final = 2000
MAX_LINE: Final = 2000
"""The most characters of a line that `read` shows."""
MAX_MEDIA: Final = 5 << 20
MAX_NAMES: Final = 1000
_MEDIA: Final = {
    b"\x89PNG\r\n\x1a\n": "image/png",
    b"\xff\xd8\xff": "image/jpeg",
    b"GIF8": "image/gif",
    b"%PDF-": "application/pdf",
}


def reading_tools(access: Access, outputs: Outputs) -> list[Tool[Any, Any]]:
    """Make the tools that read files and folders."""

    async def read(
        run: Run[Any], path: str, offset: int = 1, limit: int = MAX_LINES
    ) -> str | ToolResult:
        """Read a text file, an image, a PDF, or the output of an earlier command.

        Args:
            path: A path in the workspace, or a handle such as "output:0123456789abcdef".
            offset: The first line, counted from 1.
            limit: The number of lines.
        """
        text = await asyncio.to_thread(outputs.read, path)
        if text is not None:
            return _numbered(text, offset, limit)
        file = await asyncio.to_thread(access.root.read, path, access.may_read)
        media = _media_type(file.data)
        if media is not None:
            return _as_media(file, media)
        text, _ = decode(file.data, path)
        note_read(run, file.path, file.digest)
        return _numbered(text, offset, limit)

    async def list_(path: str = ".") -> str:
        """List the files and folders of one folder; folders end with "/".

        Args:
            path: A folder in the workspace.
        """
        return await asyncio.to_thread(_listing, access, path)

    return [Tool(read, idempotent=True), Tool(list_, name="list", idempotent=True)]


def _numbered(text: str, offset: int, limit: int) -> str:
    """The lines of a text with their numbers, as many as a result takes."""
    lines = text.split("\n")
    if lines[-1] == "":
        lines.pop()
    if not lines:
        return "[the file is empty]"
    first = max(offset, 1)
    if first > len(lines):
        return f"[the file has {len(lines):,} lines; read it with a smaller offset]"
    rows: list[str] = []
    size, number = 0, first
    for number in range(first, min(first + max(limit, 1), len(lines) + 1)):
        line = lines[number - 1]
        cut = line if len(line) <= MAX_LINE else f"{line[:MAX_LINE]}… [{len(line):,} characters]"
        rows.append(f"{number}\t{clean(cut)}")
        size += len(rows[-1]) + 1
        if size > MAX_TEXT - MAX_LINE:
            break
    if number < len(lines):
        rows.append(
            f"[lines {first:,} to {number:,} of {len(lines):,}; continue with offset={number + 1}]"
        )
    return "\n".join(rows)


def _media_type(data: bytes) -> str | None:
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image/webp"
    return next((kind for magic, kind in _MEDIA.items() if data.startswith(magic)), None)


def _as_media(file: FileData, kind: str) -> ToolResult:
    if len(file.data) > MAX_MEDIA:
        raise NotAFileError(
            f"{file.path!r} is {kind} with {len(file.data):,} bytes, more than {MAX_MEDIA:,}; make "
            "it smaller with a command"
        )
    part = (File if kind == "application/pdf" else Image)(data=file.data, media_type=kind)
    return ToolResult(f"{file.path}: {kind}, {len(file.data):,} bytes", media=(part,))


def _listing(access: Access, path: str) -> str:
    root = access.root
    with root.descriptor(path, os.O_RDONLY | os.O_DIRECTORY) as fd:
        real = root.real(fd)
        if real != "." and access.rules.hides(real):
            raise ToolDenied(f"{path!r} must not be read; continue without it")
        prefix = "" if real == "." else f"{real}/"
        with os.scandir(fd) as entries:
            visible = [entry for entry in entries if not access.rules.hides(prefix + entry.name)]
        lines = sorted(_entry(entry) for entry in visible)
    if len(lines) > MAX_NAMES:
        lines[MAX_NAMES:] = [f"[{len(lines) - MAX_NAMES:,} more; use glob for some of them]"]
    return "\n".join(lines) or "[the folder is empty]"


def _entry(entry: os.DirEntry[str]) -> str:
    mark = ""
    if entry.is_symlink():
        mark = "@"
    elif entry.is_dir(follow_symlinks=False):
        mark = "/"
    elif not stat.S_ISREG(entry.stat(follow_symlinks=False).st_mode):
        mark = "="
    return clean_name(entry.name) + mark
