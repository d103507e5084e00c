"""scripts/dev/blocks.py shows type checkers the docs, other_checkers.py shows others the API."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent
PAGE = """# A page

```python
from hookline import Agent
from hookline.testing import ScriptedModel

agent = Agent(ScriptedModel("Hi."), systen="Be brief.")
```

<!-- not run -->
```python
def untyped(x):
    return x
```

```sh
this is no python
```
"""


def blocks(page: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-P", str(ROOT / "scripts" / "dev" / "blocks.py"), str(page)]
    return subprocess.run(command, capture_output=True, text=True, encoding="utf-8")


@pytest.mark.slow
@pytest.mark.timeout(300)  # two type checkers from their beginning
def test_both_checkers_see_each_block_and_name_the_line_of_the_page(tmp_path: Path) -> None:
    page = tmp_path / "my-page.md"
    page.write_text(PAGE)
    done = blocks(page)
    assert (done.returncode, done.stderr) == (1, "")
    lines = done.stdout.splitlines()
    assert lines[-1] == "2 blocks: not clean"
    for line, mypy, pyright in (
        (7, "[call-overload]", "error: No overloads"),
        (12, "[no-untyped-def]", "reportUnknownParameterType"),
    ):
        for word in (mypy, pyright):
            assert any(f"{page}:{line}" in each and word in each for each in lines), done.stdout


def test_a_page_without_a_block_is_not_clean(tmp_path: Path) -> None:
    page = tmp_path / "empty.md"
    page.write_text("# Nothing\n")
    done = blocks(page)
    assert (done.returncode, done.stdout) == (1, "0 blocks: not clean\n")


def _script(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, ROOT / "scripts" / "dev" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
@pytest.mark.parametrize("checker", ["ty", "pyrefly"])
def test_another_checker_tells_the_lines_that_are_wrong(checker: str) -> None:
    script = _script("other_checkers")
    text = 'x: int = "a"  # type: ignore[assignment]\ny: str = "b"\nz: str = 3\n'
    assert script.expected(text) == {1}
    assert script.found_by(checker, text) == {1, 3}


def test_a_checker_that_is_not_installed_is_a_failure(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    script = _script("other_checkers")
    monkeypatch.setattr(script, "COMMANDS", {"no_such_checker": ()})
    assert script.main() == 1
    assert capsys.readouterr().out == "no_such_checker is not installed: run scripts/setup\n"


def test_the_checks_of_ci_run_them() -> None:
    check = (ROOT / "scripts" / "check").read_text()
    assert "scripts/dev/blocks.py || status=1" in check
    assert "scripts/dev/other_checkers.py || status=1" in check
    run = (ROOT / ".ci" / "run").read_text()
    assert '\nscripts/check >"$checked" 2>&1 &\ncheck=$!\n' in run
    assert '\nwait "$check" || status=$?\ncat "$checked"\n[ "$status" -eq 0 ]\n' in run
