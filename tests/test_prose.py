"""What users read is plain English: no phrase of scripts/dev/prose.py's list is in it."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent


def _script() -> Any:
    spec = importlib.util.spec_from_file_location("prose", ROOT / "scripts" / "dev" / "prose.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["prose"] = module
    spec.loader.exec_module(module)
    return module


prose = _script()
PAGE = """# A page

A hook stands
around the tool. `it throws` in code is left alone, and so is this:

```python
raise TypeError("it is no text")
```

The model is told why.
"""
MODULE = '''"""This is no page."""

__all__ = ["Shown"]


class Shown:
    """There where it stands."""

    def call(self) -> None:
        """Mend it."""
        raise TypeError(f"{self!r} is no call of this")

    def _own(self) -> None:
        """Mend nothing."""


def inside() -> None:
    """It throws."""  # no page shows it
'''


def _found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, text: str) -> list[str]:
    (tmp_path / "src").mkdir()
    path = tmp_path / name
    path.write_text(text)
    monkeypatch.setattr(prose, "ROOT", tmp_path)
    prose.public_names.cache_clear()
    found = [f"{each.where} {each.found}" for each in prose.check([path])]
    prose.public_names.cache_clear()
    return sorted(found)


def test_pages_docstrings_errors_and_help_are_in_plain_english() -> None:
    assert [f"{each.where}: {each.found}" for each in prose.check(prose.pages())] == []


def test_a_page_is_searched_across_lines_and_without_its_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert _found(tmp_path, monkeypatch, "page.md", PAGE) == [
        "page.md:10 is told",
        "page.md:3 stands around",
    ]


def test_a_module_is_searched_for_shown_docstrings_and_for_every_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert _found(tmp_path, monkeypatch, "src/module.py", MODULE) == [
        "src/module.py:1 is no page",
        "src/module.py:10 Mend",
        "src/module.py:11 is no call",
        "src/module.py:7 There where",
        "src/module.py:7 it stands",
    ]


@pytest.mark.parametrize(
    "text",
    [
        "there is no key",
        "it is no longer open",
        "`reason` is None",
        "so you can run it as it stands",
        "they can be told apart",
    ],
)
def test_ordinary_english_passes(text: str) -> None:
    assert list(prose.phrases(text)) == []


@pytest.mark.slow
def test_a_seed_draws_the_same_sentences_again() -> None:
    drawn = prose.sample(20, 7)
    assert drawn == prose.sample(20, 7)
    assert drawn != prose.sample(20, 8)
    assert len(set(drawn)) == 20


def test_the_words_of_a_page_are_counted_without_the_frame_of_tables_and_apart_from_code() -> None:
    assert prose.words("Two *words* –\n\n| a | b |\n|---|---|\n\n```python\nx = 1\n```\n") == (4, 7)
