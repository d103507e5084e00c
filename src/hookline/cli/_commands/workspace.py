"""A workspace in `hookline chat`, its commands /diff and /undo, and `hookline workspace check`."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Coroutine
from typing import Annotated, Any, Final

from cyclopts import App, Parameter

from hookline import __version__
from hookline.cli import _help
from hookline.cli._terminal.clean_text import strict
from hookline.cli._terminal.error_texts import FAILED
from hookline.cli._terminal.screen import Screen
from hookline.workspace import Snapshot, Workspace

Lines = list[tuple[str, str]]
"""Texts, each with its style."""
_STYLES: Final = {"+": "good", "-": "bad", "@": "dim"}
_AUTOMATIC: Final = "before step "


async def greeting(workspace: Workspace) -> Lines:
    """Say what a chat may do in the workspace."""
    lines: Lines = [(f"workspace, mode {workspace.mode}; /diff shows and /undo undoes changes", "")]
    problem = await workspace.check()
    if not workspace.sandbox.confines:
        lines.append(("NO SANDBOX: commands have all your rights; read each before y", "bad"))
    elif problem is not None:
        lines.append((f"commands cannot run: {problem}", "bad"))
    return lines


async def _check(path: str) -> tuple[Lines, bool]:
    """Say what works in a folder on this machine, and whether everything does."""
    async with Workspace(path) as workspace:
        problem = await workspace.check()
        lines = [("✓ files: read, list, write and edit", "good")]
        if problem is None:
            name = workspace.sandbox.name
            lines.append((f"✓ commands run in a sandbox ({name}), without network", "good"))
        else:
            lines.append((f"✗ commands cannot run: {problem}", "bad"))
        if workspace.can_search:
            lines.append(("✓ search with glob and grep, snapshots and undo", "good"))
        else:
            install = 'pip install "hookline[workspace]"'
            lines.append((f"✗ no search, no snapshots: ripgrep is not installed: {install}", "bad"))
    return lines, all(style == "good" for _, style in lines)


# ── commands of a chat ──────────────────────────────────────────────────────────────────────


async def _diff(workspace: Workspace, start_time: float) -> Lines:
    """The changes since the chat began."""
    steps = await _steps(workspace, start_time)
    text = await workspace.diff(steps[0].id) if steps else ""
    rows = text.rstrip("\n").split("\n") if text else ["nothing has changed"]
    return [(row, _STYLES.get(row[:1], "")) for row in rows]


async def _undo(workspace: Workspace, start_time: float) -> Lines:
    """Undo the latest step that has changed something."""
    for step in reversed(await _steps(workspace, start_time)):
        if await workspace.diff(step.id):
            await workspace.restore(step.id)
            return [("the files are as they were before the last change", "")]
    return [("there is nothing to undo", "")]


async def _steps(workspace: Workspace, start_time: float) -> list[Snapshot]:
    """The snapshots before the steps of this chat, the oldest first."""
    snapshots = await workspace.snapshots()
    return [
        snapshot
        for snapshot in snapshots
        if snapshot.at >= start_time and snapshot.label.startswith(_AUTOMATIC)
    ]


COMMANDS: Final[dict[str, Callable[[Workspace, float], Coroutine[Any, Any, Lines]]]] = {
    "/diff": _diff,
    "/undo": _undo,
}
"""What a person may type instead of a message."""


def is_command(text: str) -> bool:
    """Return whether a line is meant as a command: a slash and one word."""
    return re.fullmatch(r"\s*/[a-z]+\s*", text) is not None


app = App(name="workspace", help=_help.WORKSPACE, help_format="plaintext", version=__version__)


@app.command(help=_help.WORKSPACE)
def check(
    path: Annotated[str, Parameter(help="The folder; by default, this one.")] = ".", /
) -> int:
    """Say what the tools of a workspace can do on this machine."""
    lines, works = asyncio.run(_check(path))
    screen = Screen()
    for text, style in lines:
        screen.line([(style, strict(text))])
    return 0 if works else FAILED
