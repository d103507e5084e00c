"""`hookline hooks`: list the hooks at each point, in the order in which they fire."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from typing import Annotated, Any, Final

from cyclopts import Parameter
from rich.cells import cell_len

from hookline import HookInfo
from hookline.cli._options import Debug, Format, Target
from hookline.cli._target import locate
from hookline.cli._terminal.clean_text import strict
from hookline.cli._terminal.screen import Screen
from hookline.cli._terminal.styled_lines import Line, cut
from hookline.cli._terminal.text_layout import break_words, pad
from hookline.points import TABLE

MARGIN: Final = 9  # cells of the priority column
NAME: Final = 28  # most cells of a column
WHERE: Final = 32


def by_point(hooks: Iterable[HookInfo], *, every: bool) -> list[tuple[str, list[HookInfo]]]:
    """Group hooks by point, in the order of a chat, then the user's own points."""
    points: dict[str, list[HookInfo]] = {name: [] for name in TABLE}
    for hook in hooks:
        points.setdefault(hook.point, []).append(hook)
    return [(name, hooks) for name, hooks in points.items() if hooks or every]


def _kind(point: str, hooks: list[HookInfo]) -> str:
    return hooks[0].kind if hooks else TABLE[point].kind


def rules(hook: HookInfo) -> str:
    """Describe a hook's origin, its way of calling, and its non-default options."""
    words = [hook.origin, "async" if hook.is_async else "sync"]
    if hook.off is not None:
        words.append(f"off by {hook.off}")
    if hook.tools is not None:
        words.append(f"tools {', '.join(hook.tools)}")
    if hook.unmatched:
        words.append(f"no tool {', '.join(hook.unmatched)}")
    if hook.on_error != "raise":
        words.append(f"on_error {hook.on_error}")
    if hook.timeout is not None:
        words.append(f"timeout {hook.timeout:g} s")
    words += ["guard"] if hook.guard else ["required"] if hook.required else []
    words += ["inherit"] if hook.inherit else []
    return strict(" · ".join(words))


def listing(hooks: Iterable[HookInfo], width: int, *, every: bool = False) -> list[Line]:
    """Return the listing as lines of this number of cells."""
    hooks = list(hooks)
    names, places = ([_row(hook)[at] for hook in hooks] for at in (0, 1))
    name = min(NAME, max(map(cell_len, names), default=0))
    where = min(WHERE, max(map(cell_len, places), default=0))
    lines: list[Line] = []
    for point, group in by_point(hooks, every=every):
        title: Line = [("name", strict(point)), ("dim", f" · {_kind(point, group)}")]
        lines.append(cut(title, width))
        for hook in group:
            lines += _hook_lines(hook, name, where, width)
    return lines or [[("dim", "no hooks")]]


def _row(hook: HookInfo) -> tuple[str, str]:
    name = strict(hook.name).replace("<locals>.", "")
    if hook.id is not None and hook.id != hook.name:
        name = f"{name} (id {strict(hook.id)})"
    return name, strict(hook.where or "–")


def _hook_lines(hook: HookInfo, name: int, where: int, width: int) -> list[Line]:
    """Show one hook: in columns if there is space, otherwise one item per line."""
    (title, place), options = _row(hook), rules(hook)
    rest = width - MARGIN
    lines: list[Line] = []
    if cell_len(title) <= name and name + where + 4 <= rest:
        start = f"{pad(title, name)}  {pad(place, where)}  "
        if len(start) + cell_len(options) <= rest:
            lines.append([("", start), ("dim", options)])
            options = ""
        else:
            lines.append([("", start)])
    else:
        lines.extend([("", part)] for part in break_words(title, rest))
        lines.extend([("dim", part)] for part in break_words(place, rest))
    lines.extend([("dim", part)] for part in break_words(options, rest) if options)
    margins = [f"{hook.priority:>{MARGIN - 2}}  ", *([" " * MARGIN] * len(lines))]
    return [[("call", margin), *line] for margin, line in zip(margins, lines, strict=False)]


def as_json(hooks: Iterable[HookInfo], *, every: bool) -> str:
    """Return the hooks as JSON in ASCII: a list of points, each with its hooks."""
    data: list[dict[str, Any]] = [
        {
            "point": point,
            "kind": _kind(point, group),
            "hooks": [json.loads(hook.to_json()) for hook in group],
        }
        for point, group in by_point(hooks, every=every)
    ]
    return json.dumps(data, indent=2)


def hooks(
    agent: Target,
    /,
    *,
    all: Annotated[bool, Parameter(help="Include points without hooks.")] = False,
    output: Annotated[
        Format, Parameter(help="json: a list of points, each with its hooks.")
    ] = "text",
    debug: Debug = False,
) -> None:
    """List an agent's hooks by point, in the order in which they fire."""
    hook_infos = asyncio.run(locate(agent).agent()).hooks()
    screen = Screen()
    if output == "json":
        print(as_json(hook_infos, every=all))
        return
    for line in listing(hook_infos, screen.width if screen.live else 100, every=all):
        screen.line(line)
