"""docs/coming-from.md: each library has its table, and its programs with ours beside them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PAGE = (Path(__file__).parent.parent / "docs" / "coming-from.md").read_text()
LIBRARIES = {
    "pydantic-ai": "pydantic-ai 2.68",
    "openai-agents": "openai-agents 0.24",
    "LangGraph": "langgraph 1.2",
    "strands": "strands-agents 1.62",
    "The hooks of the Claude Agent SDK": "claude-agent-sdk 0.2.187",
}
SECTIONS = dict(re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", PAGE, re.DOTALL | re.MULTILINE))
EACH = pytest.mark.parametrize("library", LIBRARIES)
FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def test_every_library_has_its_section() -> None:
    assert list(SECTIONS) == list(LIBRARIES)


@EACH
def test_a_section_names_the_version_that_was_checked(library: str) -> None:
    assert f"Checked with {LIBRARIES[library]}" in SECTIONS[library]


@EACH
def test_a_section_has_a_table_of_what_is_where(library: str) -> None:
    rows = re.findall(r"^\|(?! ?-)(.+)\|$", SECTIONS[library], re.MULTILINE)
    cells = [re.split(r"(?<!\\)\|", row) for row in rows]
    assert len(cells) >= 16
    assert {len(row) for row in cells} == {3}
    assert all(cell.strip() for row in cells for cell in row)


@EACH
def test_each_program_of_theirs_has_ours_beside_it(library: str) -> None:
    """Ours are run by tests/test_examples.py, and checked by scripts/dev/blocks.py."""
    fences = FENCE.findall(SECTIONS[library])
    assert [kind for kind, _ in fences] == ["py", "python"] * (len(fences) // 2)
    assert len(fences) >= 4
    for kind, code in fences:
        compile(code, library, "exec")
        assert ("hookline" in code) == (kind == "python")
        assert kind == "py" or "assert " in code
