"""Pictures of the command line: what a real terminal of 80 columns shows, as PNG, and a recording
of a chat with a workspace, as SVG.

The program runs in a pseudo-terminal, its output goes through a terminal emulator (pyte), and
chromium paints what stands on the screen. The agent is the one of docs/cli.md.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import tempfile
from html import escape
from pathlib import Path
from typing import Any

import pyte
from playwright.sync_api import sync_playwright

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests._terminal import Terminal, program  # noqa: E402
from tests.workspace._recording import record  # noqa: E402
from tests.workspace._unprivileged import become_nobody  # noqa: E402

IMAGES = ROOT / "docs" / "images"
FAINT = re.compile(rb"\x1b\[2(?:;([0-9;]+))?m")  # which pyte does not know
COLOURS = {
    "red": "#f47067", "green": "#8ddb8c", "brown": "#e0b062", "blue": "#6cb6ff",
    "magenta": "#dcbdfb", "cyan": "#76d7e0", "default": "#dde3ea",
}  # fmt: skip
STYLE = """
body { margin: 0; background: #1c2128; width: max-content; }
pre { margin: 0; padding: 16px 20px; color: #dde3ea;
      font: 14px/20px "DejaVu Sans Mono", monospace; }
i { font-style: normal; display: inline-block; width: 1ch; height: 20px; vertical-align: top;
    overflow: visible; white-space: pre; }
"""


def _grey(match: re.Match[bytes]) -> bytes:
    return b"\x1b[38;5;%bm" % (b"140" if match[1] == b"35" else b"246")


def cell(char: Any) -> str:
    colour = COLOURS.get(char.fg, f"#{char.fg}")
    weight = ";font-weight:bold" if char.bold else ""
    slant = ";font-style:italic" if char.italics else ""
    line = ";text-decoration:underline" if char.underscore else ""
    return f'<i style="color:{colour}{weight}{slant}{line}">{escape(char.data)}</i>'


def page(terminal: Terminal) -> str:
    """What stands on the screen, and what was scrolled out of it."""
    screen = pyte.Screen(terminal.columns, 100)
    stream = pyte.ByteStream(screen)
    stream.feed(FAINT.sub(_grey, terminal.raw))
    rows = []
    for _, line in zip(terminal.lines, range(screen.lines), strict=False):
        cells = [cell(screen.buffer[line][place]) for place in range(terminal.columns)]
        rows.append("".join(cells))
    return f"<style>{STYLE}</style><pre>{'<br>'.join(rows)}</pre>"


def chat(folder: Path) -> str:
    with Terminal(program("chat", "app:agent", "--hooks"), folder, rows=70) as terminal:
        terminal.expect("› ")
        terminal.say("Do I need a hat in Paris, or in Rome?")
        terminal.expect("sunglasses")
        terminal.expect("› ")
        terminal.say("Tidy up, please.")
        terminal.expect("Run shell? [y/n/e] ")
        terminal.say("y")
        terminal.expect("is gone")
        terminal.expect("› ")
        return page(terminal)


def hooks(folder: Path) -> str:
    with Terminal(program("hooks", "app:agent"), folder, rows=50) as terminal:
        assert terminal.end() == 0
        return page(terminal)


def recording() -> str:
    """The recording of a chat with a workspace, made by a user without rights."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            if os.geteuid() == 0:
                become_nobody()
            with tempfile.TemporaryDirectory() as name, os.fdopen(writing, "w") as pipe:
                pipe.write(record(Path(name)))
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        text = pipe.read()
    os.waitpid(pid, 0)
    assert text, "the recording was not made"
    return text


def main() -> None:
    (IMAGES / "workspace.svg").write_text(recording())
    code = re.findall(r"^```python\n(.*?)^```$", (ROOT / "docs/cli.md").read_text(), re.S | re.M)
    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))))
    with tempfile.TemporaryDirectory() as name, sync_playwright() as playwright:
        folder = Path(name)
        (folder / "app.py").write_text(code[0])
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for picture, made in (("chat", chat), ("hooks", hooks)):
            view = browser.new_page(device_scale_factor=1.5)
            view.set_content(made(folder))
            view.locator("pre").screenshot(path=IMAGES / f"cli-{picture}.png")
        browser.close()


main()
