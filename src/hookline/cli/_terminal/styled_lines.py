"""Calls, questions and ends of chats, as lines of styled pieces. Pure.

A `Line` is a list of pieces; each piece has a style or its name, and a clean text. Of the
terminal this module knows only the width.
"""

from __future__ import annotations

import json
from typing import Any, Final, TypeAlias

from rich.cells import cell_len
from rich.style import Style

from hookline import ApprovalRequest, File, Image, Source, ToolCall, ToolFailure, ToolResult
from hookline.cli._terminal.clean_text import strict
from hookline.cli._terminal.text_layout import fit, fold
from hookline.events import Status, ToolCallFinished

Piece: TypeAlias = tuple[str | Style, str]
Line: TypeAlias = list[Piece]

# The style of each outcome, of calls and of hooks; docs/cli.md shows them.
GOOD: Final = frozenset({"ok", "answered"})
BAD: Final = frozenset({"error", "denied", "aborted", "blocked", "raised"})
CAUTION: Final = frozenset({"changed", "asked", "stopped"})


def style_of(outcome: str) -> str:
    """Return the style of an outcome."""
    if outcome in BAD:
        return "bad"
    return "mark" if outcome in CAUTION else "dim"


def compact(value: Any) -> str:
    """Return JSON on one line, without invisible characters."""
    return strict(json.dumps(value, ensure_ascii=False, default=repr))


def cut(line: Line, width: int) -> Line:
    """Cut a line to at most this number of cells."""
    out: Line = []
    room = width
    for style, text in line:
        if room <= 0:
            break
        part = fit(text, room)
        out.append((style, part))
        room -= cell_len(part)
    return out


# ── calls ───────────────────────────────────────────────────────────────────────────────────


def short_arguments(call: ToolCall) -> str:
    """Return the arguments as keyword arguments of Python, not shortened yet."""
    if call.raw is not None:
        return strict(call.raw)
    return ", ".join(f"{strict(name)}={compact(value)}" for name, value in call.arguments.items())


def call_line(label: str, call: ToolCall, depth: int, width: int) -> Line:
    """Show the start of a call on one line: `→ weather(city="Paris")`."""
    start = "  " * depth + "→ "
    room = width - len(start) - cell_len(label) - 2
    arguments = fit(short_arguments(call), max(1, room))
    return cut([("call", start), ("name", label), ("", f"({arguments})")], width)


def result_line(label: str, event: ToolCallFinished, depth: int, width: int) -> Line:
    """Show the result of a call on one line: `✓ weather "18 degrees"`."""
    good = event.outcome in GOOD
    line: Line = [("good" if good else "bad", "  " * depth + ("✓ " if good else "✗ "))]
    line.append(("name", label))
    if event.outcome != "ok":
        line.append((style_of(event.outcome), f" {event.outcome}:"))
    room = width - sum(cell_len(text) for _, text in line) - 1
    return cut([*line, ("dim", f" {_ends(event.result, room)}")], width)


def _ends(result: ToolResult | ToolFailure, room: int) -> str:
    """Return the beginning of a result and, of a text with several lines, the last one."""
    text = result_text(result)
    value = result.value if isinstance(result, ToolResult) and not result.media else None
    if cell_len(text) <= room or not isinstance(value, str) or "\n" not in value.rstrip():
        return text
    last = compact(value.rstrip().rpartition("\n")[2])[1:]
    return text if cell_len(last) > room // 2 else fit(text, room - cell_len(last) - 1) + " " + last


def result_text(result: ToolResult | ToolFailure) -> str:
    """Return the result of a call on one line."""
    if isinstance(result, ToolFailure):
        kind = "" if result.type in ("Denied", "ToolFailure") else f"{result.type}: "
        return strict(f"{kind}{result.message}")
    media = f" and {len(result.media)} file(s)" if result.media else ""
    return compact(result.value) + media


def source_line(source: Source, depth: int, width: int) -> Line:
    """Show a source on one line: `※ Example https://example.org`."""
    where = [strict(text) for text in (source.title, source.name, source.url) if text]
    return cut([("dim", f"{'  ' * depth}※ {' '.join(where)}")], width)


def file_line(file: Image | File, depth: int, width: int) -> Line:
    """Show a generated file on one line: `※ image/png, 42 bytes`."""
    name = file.name if isinstance(file, File) else None
    size = f"{len(file.data)} bytes" if file.data is not None else None
    about = [strict(text) for text in (name, file.media_type, size, file.url) if text]
    return cut([("dim", f"{'  ' * depth}※ {', '.join(about)}")], width)


def _retrying(data: dict[str, Any]) -> str:
    """Return the status of `hookline.hooks.retry` as a sentence."""
    status = "" if data.get("status") is None else f" ({data['status']})"
    wait, attempt, of = (data.get(name) for name in ("wait", "attempt", "of"))
    return strict(
        f"{data.get('error')}{status}: trying again in {wait} s (attempt {attempt} of {of})"
    )


def status_text(event: Status) -> str:
    """Return a status from a tool or hook on one line."""
    data = event.data
    if data is None:
        return strict(event.type)
    if event.type == "retrying" and isinstance(data, dict):
        return _retrying(data)  # pyright: ignore[reportUnknownArgumentType]
    if isinstance(data, str):
        return strict(f"{event.type}: {data}")
    if isinstance(data, dict):
        fields = ", ".join(f"{strict(str(key))}={compact(value)}" for key, value in data.items())  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
        return f"{strict(event.type)}: {fields}"
    return f"{strict(event.type)}: {compact(data)}"


# ── questions ───────────────────────────────────────────────────────────────────────────────
#
# A prompt may quote arguments, and both may contain any text. So the frame (the first two cells)
# marks each line: `│ ` begins a line, `│┄` continues the line above, `├ ` is the tool of the call.


def question(request: ApprovalRequest, number: int, total: int, width: int) -> list[Line]:
    """Show a question with the complete call: nothing is shortened, left out or invisible."""
    count = f" ({number} of {total})" if total > 1 else ""
    lines: list[Line] = [[], [("mark", f"? May this run?{count}")]]
    for prompt in request.prompts:
        for row in prompt.split("\n"):
            lines += _framed(strict(row), width)
    for details in request.details:
        lines += _details(details or {}, request.call.arguments, width)
    return [*lines, *whole_call(request.call.name, request.call.arguments, width)]


def _details(details: dict[str, Any], arguments: dict[str, Any], width: int) -> list[Line]:
    """Show the data of a question: a difference in colours, other data but texts of the call."""
    text = details.get("text")
    if details.get("kind") != "diff" or not isinstance(text, str):
        texts = [value for value in arguments.values() if isinstance(value, str)]
        return [
            line
            for name, value in details.items()
            if name != "kind" and value not in texts
            for line in _argument(name if name.isidentifier() else compact(name), value, width)
        ]
    styles = {"+": "good", "-": "bad", "@": "dim"}
    return [
        line
        for row in text.rstrip("\n").split("\n")
        for line in _framed(strict(row), width, indent=2, style=styles.get(row[:1], ""))
    ]


def whole_call(name: str, arguments: dict[str, Any], width: int) -> list[Line]:
    """Show a tool and all of its arguments, each on its own line."""
    lines = _framed(strict(name), width, begin="├ ", style="name")
    if not arguments:
        lines += _framed("without arguments", width, indent=2, style="dim")
    for key, value in arguments.items():
        lines += _argument(key if key.isidentifier() else compact(key), value, width)
    return lines


def _argument(key: str, value: Any, width: int) -> list[Line]:
    """Show one argument; a multi-line text is shown as lines, with their number."""
    if isinstance(value, str) and "\n" in value:
        rows = value.split("\n")
        lines = _framed(f"{key} = {len(rows)} lines:", width, indent=2)
        for row in rows:
            visible = f"{row[:-1]}\\x20" if row.endswith(" ") else row  # a blank at the end
            lines += _framed(strict(visible), width, indent=4, margin="┆ ")
        return lines
    text = f"{key} = {compact(value)}"
    if isinstance(value, (dict, list)) and cell_len(text) > width - 4:
        whole = json.dumps(value, ensure_ascii=False, indent=2, default=repr)
        rows = f"{key} = {whole}".split("\n")
        return [line for row in rows for line in _framed(strict(row), width, indent=2)]
    return _framed(text, width, indent=2)


def _framed(
    text: str, width: int, *, begin: str = "│ ", indent: int = 0, margin: str = "", style: str = ""
) -> list[Line]:
    """Put clean text into the frame of a question, with continuation lines marked."""
    start = " " * indent + margin
    parts = fold(text, width - len(begin) - len(start))
    frames = [begin, *["│┄"] * (len(parts) - 1)]
    return [
        [("mark", frame), (style, start + part)] for frame, part in zip(frames, parts, strict=True)
    ]
