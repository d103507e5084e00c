"""What users copy runs: every example, the demo, and every block of code in README.md and docs/."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests._forked_blocks import Programs

from hookline.points import TABLE

ROOT = Path(__file__).parent.parent
DEMO = ROOT / "examples" / "demo.py"
ENTRIES = sorted(ROOT.glob("examples/[0-9]*"))  # a file each, or a folder: a plugin is a package
EXAMPLES = [path for path in ENTRIES if path.is_file()]
FILES = [path for path in sorted(ROOT.glob("examples/**/*.py")) if path != DEMO]
PAGES = [ROOT / "README.md", *sorted(ROOT.glob("docs/*.md"))]
OTHERS = [ROOT / name for name in ("CONTRIBUTING.md", "SECURITY.md", "CODE_OF_CONDUCT.md")]
BLOCK = re.compile(r"^(<!-- not run -->\n+)?```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
TUTORIAL = ROOT / "docs" / "tutorial.md"  # what each of its blocks prints has a test of its own
BLOCKS = [
    pytest.param(block[3], id=f"{page.name}-{number}")
    for page in PAGES
    if page != TUTORIAL
    for number, block in enumerate(BLOCK.finditer(page.read_text()), start=1)
    if block[2] == "python" and not block[1]
]
ESCAPES = re.compile(r"\x1b\[[0-9;]*m")
Run = Callable[[Path, Path], subprocess.CompletedProcess[str]]


def command(path: Path) -> list[str]:
    return [sys.executable, "-W", "error", str(path)]


def environment(**more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name != "NO_COLOR"}
    return {**kept, **more, "PYTHONIOENCODING": "utf-8"}


def run(path: Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(path), cwd=cwd, env=environment(), capture_output=True, text=True, encoding="utf-8"
    )


def printed_by(done: subprocess.CompletedProcess[str]) -> str:
    """What the program prints; it must end well and complain of nothing."""
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


# ── examples ────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("path", [*EXAMPLES, DEMO], ids=lambda path: path.stem)
def test_an_example_runs_offline_and_prints_plain_text_into_a_pipe(
    path: Path, tmp_path: Path
) -> None:
    printed = printed_by(run(path, tmp_path))
    assert printed.strip()
    assert "\x1b" not in printed


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_an_example_fits_on_a_page(path: Path) -> None:
    most = 150 if path.name == "15_research_bot.py" else 60  # it shows how much fits together
    assert len(path.read_text().splitlines()) <= most


def test_examples_are_numbered_without_gaps() -> None:
    assert [path.name[:3] for path in ENTRIES] == [f"{n + 1:02}_" for n in range(len(ENTRIES))]


def test_every_file_of_the_examples_belongs_to_one_of_them() -> None:
    """Or is the demo, or the list."""
    there = {path for path in ROOT.glob("examples/*") if path.name != "__pycache__"}
    assert there == {*ENTRIES, DEMO, ROOT / "examples" / "README.md"}


def examples(option: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "scripts" / "dev" / "examples.py"), option]
    return subprocess.run(command, capture_output=True, text=True, encoding="utf-8")


def test_the_list_of_the_examples_and_the_page_that_shows_them_are_fresh() -> None:
    done = examples("--check")
    assert (done.stdout.strip(), done.returncode) == ("up to date", 0), done.stderr


def test_the_list_of_the_examples_has_a_line_for_each() -> None:
    listed = (ROOT / "examples" / "README.md").read_text()
    for path in (*ENTRIES, DEMO):
        assert listed.count(f"]({path.name}") == 1, path.name


def test_examples_name_extras_that_there_are() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    named = set(re.findall(r"hookline\[(.+?)\]", examples("--needs").stdout))
    assert named
    assert named <= set(project["optional-dependencies"])


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
    lines = printed_by(run(DEMO, tmp_path)).splitlines()
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


@pytest.fixture(scope="module")
def run_block() -> Iterator[Run]:
    """Run a program in a process of its own, which has imported hookline already."""
    if not hasattr(os, "fork"):
        yield run
        return
    modules = ("hookline", "hookline.hooks", "hookline.testing")
    with closing(Programs(*modules, env=environment())) as programs:
        yield programs.run


@pytest.mark.parametrize("code", BLOCKS)
def test_a_block_of_code_runs_by_itself(code: str, run_block: Run, tmp_path: Path) -> None:
    path = tmp_path / "block.py"
    path.write_text(code, encoding="utf-8")
    printed_by(run_block(path, tmp_path))


@pytest.mark.parametrize("page", [*PAGES, *OTHERS], ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    prose = BLOCK.sub("", page.read_text())
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", prose):
        assert target.startswith("https://") or (page.parent / target).exists(), target


@pytest.mark.parametrize("page", [*OTHERS, ROOT / "docs" / "releasing.md"], ids=lambda p: p.name)
def test_pages_for_those_who_work_on_it_name_files_that_are_there(page: Path) -> None:
    named = re.findall(
        r"(?:scripts|tests|docs|src|\.ci|\.github)/[\w/.<>-]*[\w>]", page.read_text()
    )
    assert [name for name in named if "<" not in name and not (ROOT / name).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_test_that_is_named_is_there(page: Path) -> None:
    for name, target in re.findall(r"\[(test_\w+)\]\(([^)]+)\)", page.read_text()):
        assert f"def {name}(" in (page.parent / target).read_text(), name


TOLD = re.compile(r"^```python\n(.*?)^```\n+```text\n(.*?)^```$", re.DOTALL | re.MULTILINE)
STEPS = TOLD.findall(TUTORIAL.read_text())


@pytest.mark.parametrize(("code", "printed"), STEPS, ids=range(1, len(STEPS) + 1))
def test_the_tutorial_prints_what_it_says(
    code: str, printed: str, run_block: Run, tmp_path: Path
) -> None:
    path = tmp_path / "step.py"
    path.write_text(code, encoding="utf-8")
    assert printed_by(run_block(path, tmp_path)) == printed


def test_every_step_of_the_tutorial_says_what_it_prints() -> None:
    assert len(STEPS) == TUTORIAL.read_text().count("```python\n")


def test_the_readme_leads_to_every_example_and_page() -> None:
    readme = (ROOT / "README.md").read_text()
    for path in (*ENTRIES, *PAGES[1:]):
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
