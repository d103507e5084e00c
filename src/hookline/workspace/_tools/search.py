"""The tools `glob` and `grep`, made with ripgrep: ignored and denied files are left out."""

from __future__ import annotations

import asyncio
import os
from typing import Any, Final, Literal

from hookline import Tool
from hookline.errors import ToolDenied
from hookline.workspace._commands.rules import compiled
from hookline.workspace._errors import NotAFileError, SearchError
from hookline.workspace._files.access import Access
from hookline.workspace._files.openat import O_PATH
from hookline.workspace._files.root import MAX_PATH
from hookline.workspace._sandbox.commands import Commands
from hookline.workspace._tools.outputs import Outputs, clean, clean_name

MAX_PATHS: Final = 1000
MAX_ROWS: Final = 500
MAX_COLUMNS: Final = 500
_ERROR: Final = 2
# .gitignore files count, also without a repository; a `-g` that includes files would undo them.
_COMMON: Final = (
    *("--no-config", "--color=never", "--hidden", "--no-require-git", "--no-ignore-global"),
    *("--no-messages", "--no-follow", "-g!.git"),
)
Mode = Literal["lines", "files", "count"]


def searching_tools(access: Access, commands: Commands, outputs: Outputs) -> list[Tool[Any, Any]]:
    """Make the tools that search."""

    async def glob(pattern: str, path: str = ".") -> str:
        """Find files by their names, as in "**/*.py". Ignored files are left out.

        Args:
            pattern: A pattern with *, ** and ?; without a slash, it matches names in any folder.
            path: The folder to search.
        """
        paths = await found_files(access, commands, path)
        prefix = _prefix(access, path)
        fits = compiled(pattern)
        matches = [path for path in paths if fits(path.removeprefix(prefix).casefold())]
        lines = [clean_name(path) for path in matches[:MAX_PATHS]]
        if len(matches) > MAX_PATHS:
            lines.append(f"[{len(matches) - MAX_PATHS:,} more; use a narrower pattern]")
        return "\n".join(lines) or "[no file matches]"

    async def grep(
        pattern: str,
        path: str = ".",
        *,
        glob: str | None = None,
        context: int = 0,
        ignore_case: bool = False,
        literal: bool = False,
        mode: Mode = "lines",
    ) -> str:
        """Search the text of files with a regular expression. Ignored files are left out.

        Args:
            pattern: A regular expression in the syntax of Rust, without look-around.
            path: The file or folder to search.
            glob: Search only files whose path matches, as in "*.py".
            context: The number of lines to show around each match.
            ignore_case: Whether to ignore case.
            literal: Whether the pattern is a plain text.
            mode: "lines" shows the lines, "files" the paths, "count" the number of lines per file.
        """
        options = ["--null", *_mode_options(mode, context)]
        options += ["-i"] * ignore_case + ["-F"] * literal + _type_options(glob)
        arguments = [*_COMMON, *options, "-e", pattern, "--", _target(access, path)]
        status, output = await commands.search(arguments)
        if status == _ERROR:
            await _check_pattern(commands, pattern, literal=literal)
        rows = _rows(access, output.decode("utf-8", "replace"), glob, files=mode == "files")
        first_rows = sorted(rows, key=lambda row: row[0])[:MAX_ROWS]
        lines = [text for _, text in first_rows]
        if len(rows) > MAX_ROWS:
            lines.append(f"[{len(rows) - MAX_ROWS:,} more; use a narrower pattern, path or glob]")
        text = "\n".join(lines) or "[no match]"
        return await asyncio.to_thread(outputs.cut, text)

    return [Tool(glob, idempotent=True), Tool(grep, idempotent=True)]


async def found_files(access: Access, commands: Commands, path: str = ".") -> list[str]:
    """Return the paths of all files that are neither ignored nor denied, sorted."""
    arguments = [*_COMMON, "--files", "--null", "--", _target(access, path)]
    _, output = await commands.search(arguments)
    names = [os.fsdecode(name).removeprefix("./") for name in output.split(b"\0") if name]
    rules = access.rules
    if rules.hiding:
        names = [name for name in names if not rules.hides(name)]
    return sorted(names)


def _target(access: Access, path: str) -> str:
    """Where to search: the real path, so that no link is followed later."""
    root = access.root
    with root.descriptor(path, O_PATH or os.O_RDONLY) as fd:
        real = root.real(fd)
    if real != "." and access.rules.hides(real):
        raise ToolDenied(f"{path!r} must not be read; continue without it")
    if len(real) > MAX_PATH:
        raise NotAFileError(f"{path!r} is too long; search a folder above it")
    return "./" if real == "." else f"./{real}"


def _prefix(access: Access, path: str) -> str:
    real = _target(access, path).removeprefix("./")
    return f"{real}/" if real else ""


def _mode_options(mode: Mode, context: int) -> list[str]:
    if mode == "files":
        return ["-l"]
    if mode == "count":
        return ["-c"]
    lines = ["-n", "--no-heading", "--with-filename", f"-M{MAX_COLUMNS}", "--max-columns-preview"]
    return [*lines, f"-C{min(max(context, 0), 20)}"]


def _type_options(glob: str | None) -> list[str]:
    """Limit the search to a type of files, which unlike `-g` leaves ignored files out."""
    if glob is None:
        return []
    name = glob.rstrip("/").rpartition("/")[2] or "*"
    if any(char in name for char in "{}[]:\\") or name == "**":
        name = "*"
    return ["--type-add", f"wanted:{name}", "-t", "wanted"]


def _rows(
    access: Access, text: str, glob: str | None, *, files: bool
) -> list[tuple[tuple[str, int], str]]:
    """The rows of an output with their places, without those of denied files."""
    fits = None if glob is None else compiled(glob)
    hides = access.rules.hides if access.rules.hiding else None
    rows: list[tuple[tuple[str, int], str]] = []
    matches: dict[str, bool] = {}
    lines = text.replace("\0", "\0\n").split("\n") if files else text.split("\n")
    for number, row in enumerate(lines):
        path, nul, rest = row.partition("\0")
        path = path.removeprefix("./")
        if not nul:
            continue  # the separator between two groups of lines
        if path not in matches:
            matches[path] = (fits is None or bool(fits(path.casefold()))) and not (
                hides is not None and hides(path)
            )
        if matches[path]:
            rows.append(
                ((path, number), f"{clean_name(path)}:{clean(rest)}" if rest else clean_name(path))
            )
    return rows


async def _check_pattern(commands: Commands, pattern: str, *, literal: bool) -> None:
    """Raise ripgrep's own message if the pattern is not valid."""
    option = ["-F"] * literal
    arguments = ["--no-config", "--color=never", *option, "-e", pattern, "--", "/dev/null"]
    status, output = await commands.search(arguments)
    if status == _ERROR:
        text = output.decode("utf-8", "replace").strip()
        raise SearchError(f"the pattern is not valid; correct it: {clean(text)[:1000]}")
