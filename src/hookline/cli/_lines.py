"""What is shown of calls, hooks, questions and ends: lines of styled pieces. Pure.

A `Line` is a list of pieces, each a style's name and a text that is clean already. Nothing here
knows a terminal but its width.
"""

from __future__ import annotations

import json
from typing import Any, Final, TypeAlias

import msgspec
from rich.cells import cell_len

from hookline import ApprovalRequest, ToolCall, ToolFailure, ToolResult
from hookline.cli._clean import strict
from hookline.cli._flow import fit, fold, pad
from hookline.events import Status, ToolCallFinished

Piece: TypeAlias = tuple[str, str]
Line: TypeAlias = list[Piece]

# The style of each outcome, of calls and of hooks; docs/cli.md shows them.
GOOD: Final = frozenset({"ok", "answered"})
BAD: Final = frozenset({"error", "denied", "aborted", "blocked", "raised"})
MARKED: Final = frozenset({"changed", "asked", "stopped"})


def style_of(outcome: str) -> str:
    """The style in which an outcome is written."""
    if outcome in BAD:
        return "bad"
    return "mark" if outcome in MARKED else "dim"


def compact(value: Any) -> str:
    """JSON on one line, with nothing in it that is not seen."""
    return strict(json.dumps(value, ensure_ascii=False, default=repr))


def cut(line: Line, width: int) -> Line:
    """The line in at most so many cells."""
    out: Line = []
    left = width
    for style, text in line:
        if left <= 0:
            break
        shown = fit(text, left)
        out.append((style, shown))
        left -= cell_len(shown)
    return out


# ── calls ───────────────────────────────────────────────────────────────────────────────────


def short_arguments(call: ToolCall) -> str:
    """The arguments as they would be written in Python, not shortened yet."""
    if call.raw is not None:
        return strict(call.raw)
    return ", ".join(f"{strict(name)}={compact(each)}" for name, each in call.arguments.items())


def call_line(label: str, call: ToolCall, depth: int, width: int) -> Line:
    """A call begins: `→ weather(city="Paris")`, on one line."""
    start = "  " * depth + "→ "
    room = width - len(start) - cell_len(label) - 2
    given = fit(short_arguments(call), max(1, room))
    return cut([("call", start), ("name", label), ("", f"({given})")], width)


def result_line(label: str, event: ToolCallFinished, depth: int, width: int) -> Line:
    """A call has its result: `✓ weather "18 degrees"`, on one line."""
    good = event.outcome in GOOD
    line: Line = [("good" if good else "bad", "  " * depth + ("✓ " if good else "✗ "))]
    line.append(("name", label))
    if event.outcome != "ok":
        line.append((style_of(event.outcome), f" {event.outcome}:"))
    return cut([*line, ("dim", f" {result_text(event.result)}")], width)


def result_text(result: ToolResult | ToolFailure) -> str:
    """What a call came to, on one line."""
    if isinstance(result, ToolFailure):
        kind = "" if result.type in ("Denied", "ToolFailure") else f"{result.type}: "
        return strict(f"{kind}{result.message}")
    media = f" and {len(result.media)} file(s)" if result.media else ""
    return compact(result.value) + media


def status_text(event: Status) -> str:
    """What a tool or hook reports of its progress, on one line."""
    data = event.data
    if data is None:
        return strict(event.type)
    if isinstance(data, str):
        return strict(f"{event.type}: {data}")
    if isinstance(data, dict):
        given = ", ".join(f"{strict(str(key))}={compact(each)}" for key, each in data.items())  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
        return f"{strict(event.type)}: {given}"
    return f"{strict(event.type)}: {compact(data)}"


# ── hooks ───────────────────────────────────────────────────────────────────────────────────


class Fired(msgspec.Struct, frozen=True, kw_only=True):
    """A hook that ran, or several runs of it in a row."""

    chat_id: str
    point: str
    hook: str
    outcome: str
    seconds: float
    times: int = 1


POINT: Final = 18  # cells of the columns, where there is room for them
NAME: Final = 28


def hook_line(fired: Fired, width: int) -> Line:
    """A hook has fired: its point, its name, what it decided, how long it took."""
    decided = fired.outcome + (f" ×{fired.times}" if fired.times > 1 else "")
    took = f" {_duration(fired.seconds)}"
    room = width - 2 - cell_len(decided) - len(took)
    point, name = strict(fired.point), strict(fired.hook).rpartition("<locals>.")[2]
    if room >= POINT + NAME:
        point, name = pad(point, POINT - 1) + " ", pad(name, NAME - 1) + " "
    else:
        point = fit(point, max(6, min(cell_len(point), room // 2 - 1))) + " "
        name = fit(name, max(4, room - cell_len(point) - 1)) + " "
    shown: Line = [("hook", f"· {point}"), ("dim", name)]
    return cut([*shown, (style_of(fired.outcome), decided), ("dim", took)], width)


def _duration(seconds: float) -> str:
    if seconds >= 10:
        return f"{seconds:.0f} s"
    if seconds >= 1:
        return f"{seconds:.1f} s"
    return f"{seconds * 1000:.1f} ms" if seconds >= 0.001 else f"{seconds * 1000:.2f} ms"


# ── questions ───────────────────────────────────────────────────────────────────────────────
#
# A prompt may quote arguments, and both may be anything. So the frame, the first two cells, says
# what a line is: `│ ` begins one, `│┄` goes on with the one above, `├ ` is the tool that would run.


def question(request: ApprovalRequest, number: int, total: int, width: int) -> list[Line]:
    """A question, with all of what would run: nothing is shortened, left out or unseen."""
    count = f" ({number} of {total})" if total > 1 else ""
    lines: list[Line] = [[], [("mark", f"? May this run?{count}")]]
    for prompt in request.prompts:
        for row in prompt.split("\n"):
            lines += _framed(strict(row), width)
    return [*lines, *whole_call(request.call.name, request.call.arguments, width)]


def whole_call(name: str, arguments: dict[str, Any], width: int) -> list[Line]:
    """A tool and all of its arguments, each beginning on a line of its own."""
    lines = _framed(strict(name), width, begin="├ ", style="name")
    if not arguments:
        lines += _framed("without arguments", width, indent=2, style="dim")
    for key, value in arguments.items():
        lines += _argument(key if key.isidentifier() else compact(key), value, width)
    return lines


def _argument(key: str, value: Any, width: int) -> list[Line]:
    """One argument; a text of several lines is shown as lines, which are counted."""
    if isinstance(value, str) and "\n" in value:
        rows = value.split("\n")
        lines = _framed(f"{key} = {len(rows)} lines:", width, indent=2)
        for row in rows:
            seen = f"{row[:-1]}\\x20" if row.endswith(" ") else row  # a blank at the end
            lines += _framed(strict(seen), width, indent=4, margin="┆ ")
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
    """Clean text in the frame of a question, with each line marked that goes on with another."""
    start = " " * indent + margin
    parts = fold(text, width - len(begin) - len(start))
    frames = [begin, *["│┄"] * (len(parts) - 1)]
    return [
        [("mark", frame), (style, start + part)] for frame, part in zip(frames, parts, strict=True)
    ]
