"""A recording of `hookline chat --workspace .` as an animated SVG, for docs/workspace.md.

The program runs in a pseudo-terminal, with a scripted model and a real sandbox. A frame is what the
screen shows at one moment; how long it is shown is the choice of this module.
"""

from __future__ import annotations

from html import escape
from pathlib import Path
from typing import Any, Final

import pyte
from tests._terminal import Fork, Terminal, environment

MODULE: Final = """
from hookline import Agent
from hookline.testing import ScriptedModel, Turn, call


def plan(*statuses):
    texts = ["Run the test", "Correct the function", "Run it again"]
    items = [{"text": t, "status": s} for t, s in zip(texts, statuses)]
    return call("plan", items=items)


change = {"old": "return net * 1.19", "new": "return round(net * 1.19, 2)"}
TEST = call("bash", command="python3 test_prices.py")
agent = Agent(
    ScriptedModel(
        [plan("active", "open", "open"), TEST],
        Turn("The price is not rounded.", call("read", path="prices.py")),
        call("edit", path="prices.py", edits=[change]),
        [plan("done", "done", "active"), TEST],
        "Prices have two decimals now, and the test passes.",
    ),
    name="coder",
)
"""
PRICES: Final = "def gross(net):\n    return net * 1.19\n"
TEST: Final = """from prices import gross

if gross(9.99) != 11.89:
    raise SystemExit(f"gross(9.99) is {gross(9.99)}, and not 11.89")
print("passed")
"""
COMMAND: Final = "hookline chat app:agent --workspace ."
COLUMNS: Final = 84
ROWS: Final = 32
_COLOURS: Final = {
    "red": "#f47067", "green": "#8ddb8c", "brown": "#e0b062", "blue": "#6cb6ff",
    "magenta": "#dcbdfb", "cyan": "#76d7e0", "default": "#dde3ea",
}  # fmt: skip
_WIDTH: Final = 8.4
_HEIGHT: Final = 19
_MARGIN: Final = 14


class Recording:
    """The frames of a terminal, each with the seconds for which it is shown."""

    def __init__(self) -> None:
        self._frames: list[tuple[float, list[str]]] = []

    def shows(self, raw: bytes, seconds: float) -> None:
        """Add a frame: the screen after these bytes."""
        screen: Any = pyte.Screen(COLUMNS, ROWS)
        pyte.ByteStream(screen).feed(raw)
        rows = [_row(screen.buffer[line]) for line in range(ROWS)]
        if not screen.cursor.hidden:
            cursor = f'<rect class="c" x="{_x(screen.cursor.x):g}" y="2" width="8" height="16"/>'
            rows[screen.cursor.y] += cursor
        self._frames.append((seconds, rows))

    def svg(self) -> str:
        """The recording, which repeats; without animation, it is the last frame."""
        total = sum(seconds for seconds, _ in self._frames)
        width, height = COLUMNS * _WIDTH + 2 * _MARGIN, ROWS * _HEIGHT + 2 * _MARGIN
        rows: dict[str, int] = {}
        styles, frames, start = [], [], 0.0
        for number, (seconds, lines) in enumerate(self._frames):
            first, last = start / total * 100, (start + seconds) / total * 100
            start += seconds
            before = f"0%,{first - 0.001:.3f}%{{visibility:hidden}}" if number else ""
            after = f"{last:.3f}%,100%{{visibility:hidden}}" if last < 99.999 else ""
            styles.append(
                f"@keyframes f{number}{{{before}{first:.3f}%,{last - 0.001:.3f}%"
                f"{{visibility:visible}}{after}}}#f{number}{{animation-name:f{number}}}"
            )
            uses = "".join(
                f'<use href="#r{rows.setdefault(row, len(rows))}" y="{line * _HEIGHT}"/>'
                for line, row in enumerate(lines)
                if row
            )
            frames.append(f'<g id="f{number}" class="f">{uses}</g>')
        definitions = "".join(f'<g id="r{number}">{row}</g>' for row, number in rows.items())
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height}" '
            f'width="{width:g}" height="{height}">'
            "<title>hookline chat --workspace: an agent runs a test, and asks before it changes a "
            "file</title><style>"
            "text{font:14px ui-monospace,'DejaVu Sans Mono',Menlo,Consolas,monospace;"
            "white-space:pre;fill:#dde3ea}.c{fill:#dde3ea;opacity:.6}"
            f".f{{visibility:hidden;animation:{total:g}s step-end infinite}}"
            f"#f{len(frames) - 1}{{visibility:visible}}"
            f"{''.join(styles)}@media(prefers-reduced-motion){{.f{{animation:none}}}}</style>"
            f'<rect width="100%" height="100%" rx="8" fill="#1c2128"/>'
            f'<defs>{definitions}</defs><g transform="translate({_MARGIN} {_MARGIN})">'
            f"{''.join(frames)}</g></svg>\n"
        )


def _x(column: int) -> float:
    return column * _WIDTH


def _row(cells: Any) -> str:
    """A row of the screen: one text for each style."""
    parts: list[tuple[int, str, str]] = []
    for column in range(COLUMNS):
        cell = cells[column]
        colour = _COLOURS.get(cell.fg, f"#{cell.fg}")
        style = f' fill="{colour}"' if colour != _COLOURS["default"] else ""
        style += ' font-weight="bold"' if cell.bold else ""
        if parts and parts[-1][2] == style:
            parts[-1] = (parts[-1][0], parts[-1][1] + cell.data, style)
        else:
            parts.append((column, cell.data, style))
    texts = [(column, text.rstrip(), style) for column, text, style in parts]
    return "".join(
        f'<text x="{_x(column):g}" y="15" textLength="{_x(len(text)):g}"{_fill(style)}>'
        f"{escape(text, quote=False)}</text>"
        for column, text, style in texts
        if text
    )


def _fill(style: str) -> str:
    """A style as an attribute, which goes before the colour of the style sheet."""
    colour, _, rest = style.partition('" font')
    if not colour.startswith(" fill"):
        return style
    return f' style="fill:{colour.split(chr(34))[1]}"' + (f" font{rest}" if rest else "")


def record(base: Path) -> str:
    """Run the program in a folder, and return the recording."""
    project = base / "project"
    project.mkdir()
    (project / "prices.py").write_text(PRICES)
    (project / "test_prices.py").write_text(TEST)
    (project / "app.py").write_text(MODULE)
    (project / ".gitignore").write_text("__pycache__\n")
    variables = environment(XDG_STATE_HOME=str(base / "state"), HOME=str(base))
    arguments = ["chat", "app:agent", "--workspace", "."]
    recording = Recording()
    prompt = b"\x1b[32m$\x1b[0m "
    for length in range(0, len(COMMAND) + 1, 4):
        recording.shows(prompt + COMMAND[:length].encode(), 0.12)
    shell = prompt + COMMAND.encode() + b"\r\n"

    def start(terminal: int) -> Fork:
        return Fork(arguments, project, terminal, variables)

    with Terminal(start, project, columns=COLUMNS, rows=ROWS) as terminal:

        def waits(words: str, seconds: float) -> None:
            terminal.expect(words)
            recording.shows(shell + terminal.raw, seconds)

        def types(text: str) -> None:
            for length in range(1, len(text) + 1, 3):
                recording.shows(shell + terminal.raw + text[:length].encode(), 0.1)
            recording.shows(shell + terminal.raw + text.encode(), 0.7)
            terminal.say(text)

        waits("› ", 1.2)
        types("The test fails. Mend it.")
        waits("Run bash? [y/a/n/e] ", 3.5)
        terminal.send("a")
        waits("Run edit? [y/n/e] ", 5)
        terminal.send("y")
        terminal.expect("passes.")
        waits("› ", 4)
        types("/diff")
        waits("› ", 4)
        types("/undo")
        waits("› ", 4)
    return recording.svg()
