"""Markdown in a terminal: how it looks, that it is harmless, and that it is drawn once."""

from __future__ import annotations

import asyncio
import io
import sys
from pathlib import Path
from typing import Any

import pyte
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len
from tests._programs import in_terminal
from tests._terminal import Terminal

from hookline.cli._terminal.live_markdown import Answer
from hookline.cli._terminal.markdown import markdown, settled_size
from hookline.cli._terminal.screen import Screen

SHOWN = """\
# Title

One **bold** word, *another*, ~~none~~, `code` and [a link](https://example.org/a).
The next line. <b>HTML</b>

- one
- two
  1. nested
  2. again

3. loose

   and more

> quoted
> - inside

| Name | Count |
|------|------:|
| a | 1 |
| bb | 12,345 |

```python
def f():
    return 1
```

---
"""
LINES = """\
  Title

  One bold word, another, none, code and a link (https://example.org/a).
  The next line. <b>HTML</b>

   • one
   • two
      1 nested
      2 again

   3 loose
     and more

  ▌ quoted
  ▌  • inside

   Name   Count
   ────────────
   a          1
   bb    12,345

    def f():
        return 1

  ------------------------------------------------------------------------------
""".splitlines()


def plain(text: str, width: int = 80) -> list[str]:
    return ["".join(piece for _, piece in line).rstrip() for line in markdown(text, width)]


def styles(text: str) -> dict[str, str]:
    return {piece: str(style) for line in markdown(text, 80) for style, piece in line if style}


# ── how it looks ────────────────────────────────────────────────────────────────────────────


def test_each_kind_of_block_has_its_look() -> None:
    assert plain(SHOWN) == LINES


def test_styles_say_what_a_text_is() -> None:
    found = styles(SHOWN)
    assert found["Title"] == "bold underline"
    assert (found["bold"], found["another"], found["none"]) == ("bold", "italic", "strike")
    assert (found["code"], found["https://example.org/a"]) == ("cyan", "underline blue")
    assert found["def"] != found["f"]
    assert "on black" not in " ".join(found.values())


def test_a_language_that_is_not_in_the_list_is_not_highlighted() -> None:
    assert "bright_blue" not in "".join(styles("```brainfuck\ndef f(): ...\n```").values())
    long = "```python\n" + "def f(): ...\n" * 2000 + "```"
    assert "bright_blue" not in "".join(styles(long).values())


def test_wide_characters_take_the_room_that_they_take() -> None:
    assert plain("| 漢字 | b |\n|---|---|\n| c | d |\n") == [
        "   漢字  b",
        "   ───────",
        "   c     d",
    ]
    assert plain("ab 漢字漢字漢字漢字", 12) == ["  ab", "  漢字漢字漢", "  字漢字"]


def test_no_line_is_wider_than_can_be_read() -> None:
    assert max(map(len, plain("word " * 100, 200))) <= 102


def test_code_keeps_its_blanks_and_is_broken_anywhere() -> None:
    text = "```\na  b\n\n\tc" + "x" * 20 + "\n```"
    assert plain(text, 20) == ["    a  b", "", "        cxxxxxxxxxxx", "    xxxxxxxxx"]


# ── harmless ────────────────────────────────────────────────────────────────────────────────

LINE = st.sampled_from(
    ["# h", "> - 1. x", "text *a", "b* **c", "- one", "  - two", "    code", "1. x", "2. y", "> q",
     "", "", "", "```py", "```", "| a | b |", "|---|--:|", "| 漢字 | d", "$$", "$$ a", "\\[",
     "---", "===", "x", "~~~",
     "[l](https://e.org)", "![i](https://e.org/i)", "<b>", "&#x202e;&#x1b;&#10;&#13;", "`c`",
     "漢字漢字漢字漢字", "w" * 40, "👩\u200d👩\u200d👧 ❤\ufe0f", "\x1b[2J\x9b\u202e", "\r", "a\tb"]
)  # fmt: skip
TEXT = st.lists(LINE, max_size=14).map("\n".join)
WIDTH = st.integers(min_value=12, max_value=60)


@given(TEXT | st.text(), WIDTH)
def test_every_line_fits_behind_its_indent_and_controls_nothing(text: str, width: int) -> None:
    for line in markdown(text, width):
        shown = "".join(piece for _, piece in line)
        assert not shown or shown.startswith("  ")
        assert cell_len(shown) <= width
        assert not set("\x1b\x9b\u202e\r\n\t\x07") & set(shown)


@pytest.mark.parametrize(
    "text",
    ["[a](javascript:alert(1))", "[a](file:///etc/passwd)", "<script>a</script>", "[a]: http://x"],
)
def test_what_is_no_link_and_what_is_html_is_text(text: str) -> None:
    shown = " ".join(plain(text))
    assert "a" in shown or text.startswith("[a]:")
    assert "underline blue" not in styles(text).values()


def test_a_link_shows_where_it_leads_whatever_it_says() -> None:
    assert plain("[https://good.example](https://evil.example)") == [
        "  https://good.example (https://evil.example)"
    ]
    assert plain("![i](https://e.example)") == ["  !i (https://e.example)"]


# ── while it grows ──────────────────────────────────────────────────────────────────────────


@given(TEXT, st.data())
def test_what_is_settled_stays_however_the_text_goes_on(text: str, data: st.DataObject) -> None:
    size = data.draw(st.integers(0, len(text)))
    before = settled_size(text[:size])
    assert settled_size(text) >= before
    done, rest = plain(text[:before]), plain(text[before:])
    whole = [*done, *([""] if done and rest else []), *rest]
    assert whole == plain(text) or "[l]:" in text


class Emulated(io.TextIOBase):
    """A terminal that is an emulator in this process."""

    encoding = "utf-8"

    def __init__(self, columns: int, rows: int) -> None:
        self.screen: Any = pyte.HistoryScreen(columns, rows, history=5000, ratio=0.5)
        self._stream: Any = pyte.Stream(self.screen)
        self.written: list[str] = []

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> int:
        self.written.append(text)
        self._stream.feed(text.replace("\n", "\r\n"))
        return len(text)

    @property
    def lines(self) -> list[str]:
        screen = self.screen
        rows = [*screen.history.top, *(screen.buffer[line] for line in range(screen.lines))]
        shown = ["".join(row[at].data for at in range(screen.columns)).rstrip() for row in rows]
        while shown and not shown[-1]:
            shown.pop()
        return shown


def drawn(text: str, sizes: list[int], columns: int, rows: int) -> Emulated:
    """The text in pieces of these sizes, each drawn."""
    terminal = Emulated(columns, rows)

    async def play() -> None:
        answer = Answer(Screen())
        rest = text
        for size in [*sizes, len(text)]:
            piece, rest = rest[:size], rest[size:]
            answer.add(piece)
            answer.draw()
        answer.end()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stdout", terminal)
        patch.setenv("TERM", "xterm-256color")
        patch.setenv("COLUMNS", str(columns))
        patch.setenv("LINES", str(rows))
        patch.delenv("NO_COLOR", raising=False)
        asyncio.run(play())
    return terminal


# What the emulator shows as other terminals do: it leaves the rest out after a joiner.
PLAIN_TEXT = TEXT.map(lambda text: text.replace("\u200d", "").replace("\ufe0f", "").strip("\r\n"))


@settings(max_examples=60)
@given(PLAIN_TEXT, st.lists(st.integers(1, 12), max_size=40), WIDTH, st.integers(4, 20))
def test_however_it_comes_it_stands_there_once(
    text: str, sizes: list[int], columns: int, rows: int
) -> None:
    """Also where it is longer than the screen: nothing is left of what was drawn on the way."""
    shown = [line.rstrip() for line in drawn(text, sizes, columns, rows).lines]
    wide = [line.replace(" ", "") for line in shown]  # the emulator's second cells
    expected = [line.replace(" ", "") for line in plain(text, columns)]
    while expected and not expected[-1]:
        expected.pop()
    assert wide == expected


def test_only_the_lines_that_have_changed_are_written_again() -> None:
    text = "- first\n- second\n- third"
    terminal = drawn(text, [len("- first\n- second\n")], 40, 20)
    assert sum("first" in each for each in terminal.written) == 1
    assert terminal.lines == ["   • first", "   • second", "   • third"]


def test_a_block_that_is_longer_than_the_screen_says_so_until_it_is_whole() -> None:
    code = "```\n" + "".join(f"line {n}\n" for n in range(30))
    terminal = drawn(code, [len(code)], 40, 10)
    assert any("⋮ 22 lines above" in each for each in terminal.written)
    assert terminal.lines == [f"    line {n}" for n in range(30)]


# ── in a real terminal ──────────────────────────────────────────────────────────────────────

MODULE = r'''
import asyncio
import os
from pathlib import Path

from hookline import Agent, Approve, Ask, Deny
from hookline.testing import ScriptedModel, Turn, call

TEXT = Path("answer.md").read_text()


async def file(name):
    while not os.path.exists(name):
        await asyncio.sleep(0.01)


def held(*pieces, name="go"):
    """The last piece comes when the test says so."""
    seen = []

    async def delay():
        seen.append(1)
        if len(seen) == len(pieces):
            await file(name)

    return Turn(*pieces, delay=delay, chunk=None)


async def delete(path: str) -> str:
    """Delete a file."""
    return "gone"


def agent_of(*turns):
    return Agent(ScriptedModel(*turns), name="helper", tools=[delete])


def whole():
    async def delay():
        await asyncio.sleep(0.005)

    return agent_of(Turn(TEXT, chunk=9, delay=delay))


def paused():
    return agent_of(held("Some *words* of the", " first line **and bold ones**.\n\n- end"))


def long():
    return agent_of(held("word " * 40, "and an end."), "Again.")


def evil():
    text = "**a**\x1b[2J\x1b]0;t\x07 &#27;[2J &#x9b;2J\n\n[\x1b]8;;x](http://e.org)"
    return agent_of(Turn(text, chunk=1))


def approves():
    """The agent's own approver asks in the terminal itself."""

    async def ask(request, run):
        return Approve() if await asyncio.to_thread(input, "well? ") == "yes" else Deny("no")

    turns = (["I *delete* it:\n", call("delete", path="a.txt")], "It is **gone**.")
    agent = Agent(ScriptedModel(*turns), name="helper", tools=[delete], approver=ask)
    agent.add_hook("preToolCall", lambda ctx: Ask("Delete it?"), tools=["delete"])
    return agent


def asks():
    agent = agent_of(["I *delete* it:\n", call("delete", path="a.txt")], "It is **gone**.")
    agent.add_hook("preToolCall", lambda ctx: Ask("Delete it?"), tools=["delete"])
    return agent
'''


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "app.py").write_text(MODULE)
    (tmp_path / "answer.md").write_text(SHOWN * 4)
    return tmp_path


def chat(folder: Path, agent: str, *options: str, **more: Any) -> Terminal:
    return in_terminal(folder, "chat", f"app:{agent}", *options, **more)


@pytest.mark.parametrize("rows", [50, 8])
def test_an_answer_is_drawn_once_on_any_screen(folder: Path, rows: int) -> None:
    with chat(folder, "whole", "-m", "go", rows=rows) as terminal:
        assert terminal.end() == 0
        assert terminal.lines == plain(SHOWN * 4)


def test_the_open_block_is_shown_while_it_grows(folder: Path) -> None:
    with chat(folder, "paused", "-m", "go") as terminal:
        terminal.expect("of the")
        assert terminal.lines == ["  Some words of the"]
        (folder / "go").touch()
        assert terminal.end() == 0
        assert terminal.lines == ["  Some words of the first line and bold ones.", "", "   • end"]


def test_a_terminal_that_is_made_narrower_shows_the_answer_once(folder: Path) -> None:
    with chat(folder, "long", "-m", "go") as terminal:
        terminal.expect("word word")
        while len(terminal.lines) < 3:
            terminal.expect("word")
        terminal.resize(40)
        (folder / "go").touch()
        assert terminal.end() == 0
        assert terminal.lines == plain("word " * 40 + "and an end.", 40)


def test_what_is_typed_meanwhile_is_kept_for_the_prompt(folder: Path) -> None:
    with chat(folder, "long") as terminal:
        terminal.expect("› ")
        terminal.say("go")
        terminal.expect("word word")
        terminal.send("typed ahead\r")
        (folder / "go").touch()
        terminal.expect("an end.")
        terminal.expect("Again.")
        lines = [line for line in terminal.lines if "word" in line or "an end" in line]
        assert lines == plain("word " * 40 + "and an end.")


def test_ctrl_c_leaves_what_was_said_and_gives_the_terminal_back(folder: Path) -> None:
    with chat(folder, "long") as terminal:
        terminal.expect("› ")
        terminal.say("go")
        terminal.expect("word word")
        terminal.send("\x03")
        terminal.expect("■ stopped: interrupted")
        terminal.expect("› ")
        terminal.send("echoed")
        terminal.expect("echoed")


def test_an_approval_stands_below_the_answer(folder: Path) -> None:
    with chat(folder, "asks") as terminal:
        terminal.expect("› ")
        terminal.say("go")
        terminal.expect("Run delete? [y/n/e] ")
        assert "  I delete it:" in terminal.lines
        terminal.send("y")
        terminal.expect("gone.")
        terminal.expect("› ")
        assert "  It is gone." in terminal.lines


def test_what_an_agents_own_approver_is_told_is_seen(folder: Path) -> None:
    with chat(folder, "approves", "-m", "go") as terminal:
        terminal.expect("well? ")
        terminal.send("yes")
        terminal.expect("yes")
        terminal.send("\r")
        terminal.expect("It is gone.")
        assert terminal.end() == 0


def test_no_escape_of_the_answer_gets_to_the_terminal(folder: Path) -> None:
    with chat(folder, "evil", "-m", "go") as terminal:
        assert terminal.end() == 0
        for sequence in (b"\x1b[2J", b"\x1b]", b"\x07", b"\xc2\x9b"):
            assert sequence not in terminal.raw
        assert "a␛[2J␛]0;t␇" in terminal.lines[0]


@pytest.mark.parametrize("how", [{"NO_COLOR": "1"}, {"TERM": "dumb"}], ids=["no colour", "dumb"])
def test_where_nothing_can_be_drawn_the_text_is_as_it_was_written(
    folder: Path, how: dict[str, str]
) -> None:
    (folder / "answer.md").write_text("# A *b*\n")
    with chat(folder, "whole", "-m", "go", **how) as terminal:
        assert terminal.end() == 0
        assert terminal.lines == ["  # A *b*"]
