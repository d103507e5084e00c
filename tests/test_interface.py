"""The public interface changes only on purpose, and users are told of it.

interface.txt lists it; scripts/dev/interface.py writes the file.
"""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
SCRIPT = ROOT / "scripts" / "dev" / "interface.py"
RELEASED = "a(x: int) -> None\nb() -> str\n"


def interface_script() -> Any:
    spec = importlib.util.spec_from_file_location("interface", SCRIPT)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def git(folder: Path, *arguments: str) -> None:
    identity = ("-c", "user.name=A", "-c", "user.email=a@example.org")
    subprocess.run(["git", *identity, *arguments], cwd=folder, check=True, capture_output=True)


@pytest.fixture
def released(tmp_path: Path) -> Path:
    """A repository with a released interface, and an empty section of unreleased changes."""
    (tmp_path / "interface.txt").write_text(RELEASED)
    (tmp_path / "CHANGELOG.md").write_text("## [Unreleased]\n\n## [1.0.0] - 2027-01-01\n\nAll.\n")
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "Version 1.0.0")
    git(tmp_path, "tag", "v1.0.0")
    return tmp_path


def test_the_file_lists_the_interface_as_it_is() -> None:
    command = [sys.executable, "-P", str(SCRIPT), "--check"]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout[-3000:] + run.stderr[-3000:]


def test_each_kind_of_promise_has_lines() -> None:
    lines = (ROOT / "interface.txt").read_text().splitlines()
    for beginning in (
        "hookline.Agent(model: ",
        "hookline.Agent.chat_stream(self, ",
        "hookline.errors.UsageError",
        "hookline.hooks.redact(",
        "hookline.events.TextDelta(",
        "preToolCall interceptor (",
        "TextDelta.",
        "ToolMessage.",
        "step/{}/model",
        "conversations 1: CREATE TABLE hookline_message",
        "durable 1: CREATE TABLE hookline_job ",
    ):
        assert any(line.startswith(beginning) for line in lines), beginning
    assert not [line for line in lines if " at 0x" in line]


@pytest.mark.parametrize(
    ("interface", "refused"),
    [
        (RELEASED, False),
        (RELEASED.replace("int", "str"), True),
        (RELEASED.replace("b() -> str\n", ""), True),
        (RELEASED + "c() -> None\n", True),
    ],
    ids=["the same", "changed", "removed", "added"],
)
def test_a_change_since_a_release_needs_a_sentence_in_the_changelog(
    released: Path, interface: str, refused: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    check_changelog = interface_script().check_changelog
    (released / "interface.txt").write_text(interface)
    assert check_changelog(released, "v1.0.0") == refused
    assert ("name each in CHANGELOG.md" in capsys.readouterr().out) == refused
    changelog = released / "CHANGELOG.md"
    empty = changelog.read_text()
    for text, still_refused in ("`d` is new.", refused), ("`a(x)`, `b`, `c` are new.", False):
        changelog.write_text(empty.replace("]\n\n## [1", f"]\n\n{text}\n\n## [1"))
        assert check_changelog(released, "v1.0.0") == still_refused


def test_the_commit_of_the_next_release_has_its_sentences_in_its_own_section(
    released: Path,
) -> None:
    check_changelog = interface_script().check_changelog
    (released / "interface.txt").write_text(RELEASED + "c() -> None\n")
    changelog = released / "CHANGELOG.md"
    empty = changelog.read_text()
    news = "]\n\n## [1.1.0] - 2027-02-01\n\n`c` is new.\n\n## [1.0.0"
    changelog.write_text(empty.replace("]\n\n## [1.0.0", news))
    assert not check_changelog(released, "v1.0.0")
    changelog.write_text(empty.replace("All.", "`c` is new."))
    assert check_changelog(released, "v1.0.0")


@pytest.mark.parametrize(
    "line",
    [
        "hookline.Agent.chat(self, text: str) -> Response",
        "preToolCall interceptor (call) -> Deny",
        'TextDelta.text: {"type": "string"}',
        "step/{}/call/{}",
        "conversations 3: CREATE TABLE hookline_account ( id TEXT )",
    ],
    ids=lambda line: line.partition(" ")[0],
)
def test_a_changelog_tells_a_change_by_its_name(line: str) -> None:
    is_told = interface_script().is_told
    text = "{} is new, see the agent, chat, text, step, conversations and `hookline`."
    assert not is_told(line, text.format("It"))
    names = ("Agent.chat", "preToolCall", "TextDelta", "step/{}/call/{}", "hookline_account")
    assert sum(is_told(line, text.format(f"`{name}`")) for name in names) == 1


def test_an_experimental_module_says_so() -> None:
    page = (ROOT / "docs" / "stability.md").read_text()
    section = page.partition("## Experimental")[2].partition("\n## ")[0]
    listed = set(re.findall(r"`(hookline[\w.]*)`", section))
    marked = {
        ".".join(path.relative_to(ROOT / "src").with_suffix("").parts).removesuffix(".__init__")
        for path in (ROOT / "src").rglob("*.py")
        if "\nExperimental: " in path.read_text()
    }
    assert listed == marked
