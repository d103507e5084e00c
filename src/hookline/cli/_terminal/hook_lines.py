"""The runs of hooks, as lines of styled pieces. Pure."""

from __future__ import annotations

from typing import Final

import msgspec
from rich.cells import cell_len

from hookline.cli._terminal.clean_text import strict
from hookline.cli._terminal.styled_lines import Line, cut, style_of
from hookline.cli._terminal.text_layout import fit, pad
from hookline.hooks import RequestPrefix


class HookRun(msgspec.Struct, frozen=True, kw_only=True):
    """One run of a hook, or several runs in a row."""

    chat_id: str
    point: str
    hook: str
    outcome: str
    seconds: float
    times: int = 1


POINT: Final = 18  # cells of the columns, if there is space
NAME: Final = 28


def hook_line(run: HookRun, width: int) -> Line:
    """Show a hook that ran: its point, name, decision and duration."""
    decided = run.outcome + (f" ×{run.times}" if run.times > 1 else "")
    took = f" {_duration(run.seconds)}"
    room = width - 2 - cell_len(decided) - len(took)
    point, name = strict(run.point), strict(run.hook).rpartition("<locals>.")[2]
    if room >= POINT + NAME:
        point, name = pad(point, POINT - 1) + " ", pad(name, NAME - 1) + " "
    else:
        point = fit(point, max(6, min(cell_len(point), room // 2 - 1))) + " "
        name = fit(name, max(4, room - cell_len(point) - 1)) + " "
    line: Line = [("hook", f"· {point}"), ("dim", name)]
    return cut([*line, (style_of(run.outcome), decided), ("dim", took)], width)


def prefix_line(figure: RequestPrefix, width: int) -> Line:
    """Show what of a request a prompt cache can reuse, and which hook has moved the rest."""
    prefix = figure.prefix
    line: Line = [
        ("hook", "· prompt cache "),
        ("dim", f"{prefix.share:.0%} of the request reusable"),
    ]
    if figure.hook is not None:
        line.append(("mark", f", {strict(figure.hook)} moved {prefix.differs}"))
    return cut(line, width)


def add_up(hooks: list[HookRun], run: HookRun) -> list[HookRun]:
    """Add a hook to the list; repeated hooks at deltas are counted."""
    for place, earlier in enumerate(hooks):
        if (earlier.point, earlier.hook) == (run.point, run.hook) and run.point == "onDelta":
            outcomes = [one.outcome for one in (earlier, run) if one.outcome != "ok"]
            total = msgspec.structs.replace(
                run,
                outcome=outcomes[0] if outcomes else "ok",
                seconds=earlier.seconds + run.seconds,
                times=earlier.times + 1,
            )
            return [*hooks[:place], total, *hooks[place + 1 :]]
    return [*hooks, run]


def _duration(seconds: float) -> str:
    if seconds >= 10:
        return f"{seconds:.0f} s"
    if seconds >= 1:
        return f"{seconds:.1f} s"
    return f"{seconds * 1000:.1f} ms" if seconds >= 0.001 else f"{seconds * 1000:.2f} ms"
