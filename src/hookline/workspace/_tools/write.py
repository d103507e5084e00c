"""The tools `write` and `edit`."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

from hookline import NotRun, Run, Tool
from hookline.workspace._errors import MissingError
from hookline.workspace._files.access import Access
from hookline.workspace._files.diff import counts
from hookline.workspace._files.root import digest
from hookline.workspace._files.safe_write import replace
from hookline.workspace._tools.file_change import NO_FILE, Change, Replacement, check, plan_change
from hookline.workspace._tools.outputs import keep_latest
from hookline.workspace._tools.seen_files import note_read

MAX_CALLS: Final = 200
"""The number of changes that are remembered, for durable chats that run one of them again."""
BeforeChange = Callable[[Run[Any]], Awaitable[None]]
"""Called before each change of a file."""


class Writer:
    """Changes files, one after the other, and remembers the calls that it has begun.

    The digest of the new version is noted before the file is replaced. If a durable chat runs a
    call again, and the file has that digest, the call is not repeated.
    """

    def __init__(self, access: Access, calls: Path, before_change: BeforeChange) -> None:
        self._access = access
        self._calls = calls
        self._before_change = before_change
        self._lock = threading.Lock()

    async def change(self, run: Run[Any], path: str, content: str | list[Replacement]) -> str:
        """Make a change, tell everyone about it, and return what the model reads."""
        await self._before_change(run)
        change = await asyncio.to_thread(self._make, run, path, content)
        after = digest(change.data)
        note_read(run, change.path, after)
        text = change.text
        additions, removals = counts(text)
        before = change.before or None
        data = {"path": change.path, "diff": text, "before": before, "after": after}
        await run.status("file_changed", data)
        verb = "created" if change.old is None else "changed"
        return f"{verb} {change.path}; lines added: {additions}, removed: {removals}"

    def ran(self, run: Run[Any]) -> str | NotRun:
        """Find out whether an earlier life of a durable chat has made this change."""
        try:
            after, _, path = self._note(run).read_text().partition("\n")
            file = self._access.root.read(path, self._access.may_read)
        except (OSError, MissingError):
            return NotRun()
        if file.digest != after:
            return NotRun()
        note_read(run, file.path, file.digest)
        return f"changed {file.path}; it was written by an earlier attempt of this call"

    def _make(self, run: Run[Any], path: str, content: str | list[Replacement]) -> Change:
        with self._lock:
            change = plan_change(self._access, path, content)
            check(run, change)
            self._calls.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._note(run).write_text(f"{digest(change.data)}\n{change.path}")
            keep_latest(self._calls, MAX_CALLS)
            expect = None if change.before == NO_FILE else change.before
            access = self._access
            replace(access.root, path, change.data, expect=expect, permit=access.may_write)
            return change

    def _note(self, run: Run[Any]) -> Path:
        return self._calls / digest((run.call_key or run.chat_id).encode())


def writing_tools(writer: Writer, enabled: Callable[[], bool]) -> list[Tool[Any, Any]]:
    """Make the tools that change files."""

    async def write(run: Run[Any], path: str, text: str) -> str:
        """Write a file. Read an existing file first; prefer edit for a part of a file.

        Args:
            path: A path in the workspace; missing folders are made.
            text: The whole new text.
        """
        return await writer.change(run, path, text)

    async def edit(run: Run[Any], path: str, edits: list[Replacement]) -> str:
        """Replace texts in a file that you have read; either all of them or none.

        Args:
            path: A path in the workspace.
            edits: The replacements, in order.
        """
        return await writer.change(run, path, edits)

    return [
        Tool(write, enabled=enabled, check=writer.ran),
        Tool(edit, enabled=enabled, check=writer.ran),
    ]
