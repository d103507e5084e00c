"""What users copy runs: every example, the demo, and every block of code in README.md and docs/."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from hookline.points import TABLE

ROOT = Path(__file__).parent.parent
DEMO = ROOT / "examples" / "demo.py"
EXAMPLES = sorted(ROOT.glob("examples/[0-9]*.py"))
PAGES = [ROOT / "README.md", *sorted(ROOT.glob("docs/*.md"))]
BLOCK = re.compile(r"^(<!-- not run -->\n+)?```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
BLOCKS = [
    pytest.param(block[3], id=f"{page.name}-{number}")
    for page in PAGES
    for number, block in enumerate(BLOCK.finditer(page.read_text()), start=1)
    if block[2] == "python" and not block[1]
]
ESCAPES = re.compile(r"\x1b\[[0-9;]*m")


def command(path: Path) -> list[str]:
    return [sys.executable, "-W", "error", str(path)]


def environment(**more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name != "NO_COLOR"}
    return {**kept, **more, "PYTHONIOENCODING": "utf-8"}


def run(path: Path, cwd: Path) -> str:
    """What the program prints; it must end well and complain of nothing."""
    done = subprocess.run(
        command(path), cwd=cwd, env=environment(), capture_output=True, text=True, encoding="utf-8"
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


# ── examples ────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("path", [*EXAMPLES, DEMO], ids=lambda path: path.stem)
def test_an_example_runs_offline_and_prints_plain_text_into_a_pipe(
    path: Path, tmp_path: Path
) -> None:
    printed = run(path, tmp_path)
    assert printed.strip()
    assert "\x1b" not in printed


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_fits_on_a_page(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= 60


def test_examples_are_numbered_in_the_order_in_which_one_learns() -> None:
    assert [path.name[:2] for path in EXAMPLES] == [f"{n + 1:02}" for n in range(len(EXAMPLES))]


# ── the demo ────────────────────────────────────────────────────────────────────────────────


def on_a_terminal(tmp_path: Path, **env: str) -> str:
    """What the demo prints on a terminal."""
    pty: Any = pytest.importorskip("pty")
    ours, theirs = pty.openpty()
    process = subprocess.Popen(command(DEMO), cwd=tmp_path, env=environment(**env), stdout=theirs)
    os.close(theirs)
    printed = b""
    with os.fdopen(ours, "rb", buffering=0) as terminal:
        while True:
            try:
                piece = terminal.read(4096)
            except OSError:  # how Linux tells that nobody writes any more
                break
            if not piece:
                break
            printed += piece
    assert process.wait() == 0
    return printed.decode()


def test_the_demo_shows_hooks_text_and_a_summary_in_80_columns(tmp_path: Path) -> None:
    lines = run(DEMO, tmp_path).splitlines()
    assert max(map(len, lines)) <= 80
    for word in ("changed", "blocked", "asked", "denied", "error", "approved", "hooks fired"):
        assert any(word in line for line in lines), word


def test_the_demo_is_coloured_on_a_terminal(tmp_path: Path) -> None:
    printed = on_a_terminal(tmp_path)
    assert ESCAPES.search(printed)
    assert max(map(len, ESCAPES.sub("", printed).splitlines())) <= 80


def test_the_demo_is_plain_where_no_color_is_set(tmp_path: Path) -> None:
    assert "\x1b" not in on_a_terminal(tmp_path, NO_COLOR="1")


# ── the docs ────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("code", BLOCKS)
def test_a_block_of_code_runs_by_itself(code: str, tmp_path: Path) -> None:
    path = tmp_path / "block.py"
    path.write_text(code, encoding="utf-8")
    run(path, tmp_path)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    prose = BLOCK.sub("", page.read_text())
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", prose):
        assert target.startswith("https://") or (page.parent / target).exists(), target


def test_the_readme_leads_to_every_example_and_page() -> None:
    readme = (ROOT / "README.md").read_text()
    for path in (*EXAMPLES, *PAGES[1:]):
        assert f"({path.relative_to(ROOT)})" in readme, path.name


def test_the_readme_has_every_hook_point() -> None:
    rows = [line for line in (ROOT / "README.md").read_text().splitlines() if line[:3] == "| `"]
    named = {name for row in rows for name in re.findall(r"`(\w+)`", row.split("|")[1])}
    assert named == set(TABLE)


def test_the_design_names_every_file_of_the_package() -> None:
    """And no file that is not there."""
    package = ROOT / "src" / "hookline"
    design = (ROOT / "docs" / "design.md").read_text()
    named = set(re.findall(r"`(?:testing/)?(\w+\.py)`", design))
    files = {path.name for path in package.glob("*.py")} - {"_version.py"}
    assert files <= named, "not told of in docs/design.md"
    there = {path.name for path in package.rglob("*.py")} | {"generate.py"}
    assert named <= there, "told of in docs/design.md and not there"
