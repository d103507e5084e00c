"""What keeps a release back: scripts/dev/release.py finds each planted fault."""

from __future__ import annotations

import importlib.util
import io
import json
import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
CHANGELOG = "# Changelog\n\n## [Unreleased]\n\n## [1.0.0] - 2027-01-01\n\nAll.\n"
METADATA = """\
Metadata-Version: 2.4
Name: hookline
Version: 1.0.0
Summary: A loop.
Author: Ada
License-Expression: MIT
License-File: LICENSE
Classifier: Programming Language :: Python :: 3.11
Requires-Python: >=3.11
Requires-Dist: anyio>=4.6
Requires-Dist: mcp<3,>=2.1; extra == "mcp"
Description-Content-Type: text/markdown

# hookline
"""
FILES = {
    "CHANGELOG.md": CHANGELOG,
    ".github/workflows/ci.yml": '        python: ["3.11"] # the classifiers\n',
    "pyproject.toml": '[project]\ndependencies = ["any_io>=4"]\n',
    "src/hookline/__init__.py": "",
    "src/hookline/_version.py": '__version__ = "1.0.0"\n',
    "tests/released/1.0.0/events.jsonl": "{}\n",
}


def script(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, ROOT / "scripts" / "dev" / f"{name}.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


release = script("release")
environments = script("environments")


def git(folder: Path, *arguments: str) -> None:
    identity = ("-c", "user.name=A", "-c", "user.email=a@example.org")
    subprocess.run(["git", *identity, *arguments], cwd=folder, check=True, capture_output=True)


def commit(root: Path, **changes: str | None) -> None:
    write(root, changes)
    git(root, "add", "--all", ".")
    git(root, "commit", "-qm", "A change", "--allow-empty")


def write(root: Path, files: dict[str, str | None]) -> None:
    for name, text in files.items():
        file = root / name
        if text is None:
            file.unlink()
            continue
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A repository whose only commit can be released."""
    root = tmp_path / "root"
    root.mkdir()
    git(root, "init", "-q")
    commit(root, **FILES)
    return root


@pytest.fixture
def dist(tmp_path: Path) -> Path:
    """The distributions of that commit."""
    dist = tmp_path / "dist"
    pack(dist)
    return dist


def pack(
    dist: Path, *, metadata: str = METADATA, stray: str = "", missing: str = "", size: int = 0
) -> None:
    dist.mkdir(exist_ok=True)
    files = {name: text for name, text in FILES.items() if name != missing}
    files |= {stray: "", "src/hookline/data.bin" if size else "": "x" * size}
    with zipfile.ZipFile(dist / "hookline-1.0.0-py3-none-any.whl", "w") as wheel:
        for name, text in files.items():
            if name.startswith("src/"):
                wheel.writestr(name.removeprefix("src/"), text)
        wheel.writestr("hookline-1.0.0.dist-info/METADATA", metadata)
        wheel.writestr("hookline-1.0.0.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
    with tarfile.open(dist / "hookline-1.0.0.tar.gz", "w:gz") as sdist:
        for name, text in {**files, "PKG-INFO": metadata}.items():
            if name and not name.startswith(".github"):
                entry = tarfile.TarInfo(f"hookline-1.0.0/{name}")
                entry.size = len(text)
                sdist.addfile(entry, io.BytesIO(text.encode()))


def test_a_commit_that_can_be_released_has_no_problems(root: Path, dist: Path) -> None:
    assert release.state_problems(root) == []
    assert release.content_problems(root, dist) == []
    assert release.missing_metadata(root, dist) == []
    assert release.differences(dist, dist) == []


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"CHANGELOG.md": CHANGELOG.replace("1.0.0", "0.9.0")}, "has no section '## [1.0.0]"),
        ({"CHANGELOG.md": CHANGELOG.replace("d]\n", "d]\n\nNews.\n")}, "text under Unreleased"),
        ({"tests/released/1.0.0/events.jsonl": None}, "tests/released/1.0.0 has no records"),
    ],
    ids=["no section", "unreleased", "no records"],
)
def test_a_commit_that_does_not_fit_its_version(
    root: Path, change: dict[str, str | None], problem: str
) -> None:
    commit(root, **change)
    (line,) = release.state_problems(root)
    assert problem in line


def test_a_changed_file_and_the_tag_of_another_commit(root: Path) -> None:
    git(root, "tag", "v1.0.0")
    assert release.state_problems(root) == []
    commit(root)
    (line,) = release.state_problems(root)
    assert "the tag of another commit" in line
    (root / "new.py").touch()
    assert "not committed" in release.state_problems(root)[0]


@pytest.mark.parametrize(
    ("options", "problems"),
    [
        ({"stray": "src/hookline/a.pem"}, ["wheel has a stray", "sdist has a stray"]),
        ({"stray": "notes.txt"}, ["the sdist has a stray notes.txt"]),
        ({"missing": "src/hookline/__init__.py"}, ["the wheel lacks", "the sdist lacks"]),
        ({"missing": "CHANGELOG.md"}, ["the sdist lacks CHANGELOG.md"]),
        ({"size": 3_000_000}, ["wheel has a stray", "sdist has a stray", "has more than"]),
    ],
    ids=["a secret", "notes", "no module", "no changelog", "large"],
)
def test_distributions_that_differ_from_what_is_tracked(
    root: Path, dist: Path, options: dict[str, Any], problems: list[str]
) -> None:
    pack(dist, **options)
    lines = release.content_problems(root, dist)
    assert len(lines) == len(problems)
    for line, problem in zip(lines, problems, strict=True):
        assert problem in line


def test_two_builds_that_differ(root: Path, dist: Path, tmp_path: Path) -> None:
    again = tmp_path / "again"
    pack(again, metadata=METADATA + "Built today.\n")
    lines = release.differences(dist, again)
    assert [line.rpartition(".")[2] for line in lines] == ["whl", "gz"]


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("License-Expression: MIT\n", "", "no License-Expression"),
        ("Requires-Python: >=3.11\n", "", "no Requires-Python"),
        (":: 3.11", ":: 3.10", "CI runs ['3.11']"),
        ("anyio>=4.6", "anyio<5,>=4.6", "has an upper bound"),
    ],
    ids=["licence", "python", "classifier", "bound"],
)
def test_metadata_that_is_not_complete(
    root: Path, dist: Path, old: str, new: str, problem: str
) -> None:
    pack(dist, metadata=METADATA.replace(old, new))
    (line,) = release.missing_metadata(root, dist)
    assert problem in line


def test_a_program_that_fails_is_a_problem() -> None:
    assert release.failures([sys.executable, "-c", "pass"]) == []
    assert release.failures([sys.executable, "-c", "raise SystemExit(3)"])


def test_a_checkout_without_history_is_refused(root: Path, tmp_path: Path) -> None:
    commit(root)
    git(tmp_path, "clone", "-q", "--depth=1", root.as_uri(), "shallow")
    (line,) = release.state_problems(tmp_path / "shallow")
    assert "git fetch --unshallow" in line


def test_a_change_of_the_interface_that_the_changelog_does_not_name(root: Path) -> None:
    interface = (ROOT / "scripts/dev/interface.py").read_text()
    commit(root, **{"scripts/dev/interface.py": interface, "interface.txt": "a(x: int)\n"})
    assert release.untold_changes(root) == []  # nothing was released before
    git(root, "tag", "v0.9.0")
    commit(root, **{"interface.txt": "a(x: str)\n"})
    git(root, "tag", "v1.0.0")
    assert release.untold_changes(root)
    commit(root, **{"CHANGELOG.md": CHANGELOG + "`a` takes a str.\n\n## [0.9.0] - 2026-12-01\n"})
    assert release.untold_changes(root) == []


@pytest.mark.parametrize(
    ("name", "version", "problems"),
    [
        ("any-io", "1.0.0", []),
        ("other", "1.0.0", ["s.json lacks any-io"]),
        ("any-io", "0.9.0", ["s.json is of version 0.9.0"]),
    ],
    ids=["right", "a package is missing", "an earlier version"],
)
def test_an_sbom_that_does_not_fit_the_commit(
    root: Path, tmp_path: Path, name: str, version: str, problems: list[str]
) -> None:
    sbom = {"metadata": {"component": {"version": version}}, "components": [{"name": name}]}
    (tmp_path / "s.json").write_text(json.dumps(sbom))
    assert release.sbom_problems(root, tmp_path / "s.json") == problems


def test_files_of_an_earlier_check_are_seen(dist: Path, tmp_path: Path) -> None:
    assert release.holds_files(dist)
    assert not release.holds_files(tmp_path / "none")


# ── extras ──────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("licence", "is_permissive"),
    [
        ("MIT", True),
        ("License :: OSI Approved :: Apache Software License; BSD 3-Clause", True),
        ("GPL-3.0-only OR MIT AND ISC", True),
        ("(GPL-3.0-only OR MIT) AND ISC", False),
        ("MPL-2.0 AND MIT", False),
        ("License :: OSI Approved :: GNU General Public License v3 (GPLv3); MIT", False),
        ("Limited Company Licence", False),
        ("not stated", False),
    ],
)
def test_which_licences_are_permissive(licence: str, is_permissive: bool) -> None:
    assert environments.is_permissive(licence) == is_permissive


@pytest.fixture
def wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A hookline with an extra that needs nothing, and one that needs what cannot be installed."""
    monkeypatch.setattr(environments, "HEAD", "import hookline\n")
    needs = 'Provides-Extra: schema\nProvides-Extra: mcp\nRequires-Dist: absent; extra == "mcp"\n'
    return pack_wheel(tmp_path, "hookline", f"License-Expression: MIT\n{needs}")


def pack_wheel(folder: Path, name: str, metadata: str) -> Path:
    file = folder / f"{name}-1.0.0-py3-none-any.whl"
    info = f"{name}-1.0.0.dist-info"
    head = f"Metadata-Version: 2.4\nName: {name}\nVersion: 1.0.0\n"
    with zipfile.ZipFile(file, "w") as wheel:
        wheel.writestr(f"{name}.py", "")
        wheel.writestr(f"{info}/METADATA", head + metadata)
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", f"{name}.py,,\n{info}/METADATA,,\n{info}/WHEEL,,\n")
    return file


@pytest.mark.parametrize(
    ("extra", "program", "problem"),
    [
        ("schema", "pass", None),
        ("schema", "raise SystemExit('It breaks.')", "It breaks."),
        ("mcp", "pass", "absent"),
    ],
    ids=["works", "its program fails", "cannot be installed"],
)
def test_an_extra_alone(
    wheel: Path, monkeypatch: pytest.MonkeyPatch, extra: str, program: str, problem: str | None
) -> None:
    monkeypatch.setitem(environments.PROGRAMS, extra, program)
    problems = environments.extra_problems(wheel.parent, wheel, extra, "--offline")
    assert len(problems) == (problem is not None)
    assert (problem or "") in "".join(problems)


def test_a_required_package_under_copyleft(wheel: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(environments.PROGRAMS, "", "pass")
    monkeypatch.setitem(environments.COPYLEFT, "strict", {""})
    pack_wheel(wheel.parent, "strict", "License-Expression: MIT AND GPL-3.0-only\n")
    wheel = pack_wheel(wheel.parent, "hookline", "License-Expression: MIT\nRequires-Dist: strict\n")
    links = ("--offline", "--find-links", str(wheel.parent))
    (line,) = environments.extra_problems(wheel.parent, wheel, "", *links)
    assert line.startswith("strict has the licence 'MIT AND GPL-3.0-only'")


def test_the_docs_list_each_exception() -> None:
    page = (ROOT / "docs" / "stability.md").read_text().partition("\n## Licences\n")[2]
    rows = re.findall(r"^\| ([\w-]+) \|.*\|(.*)\|$", page, re.MULTILINE)
    listed = {name: set(re.findall(r"`(\w+)`", extras)) for name, extras in rows}
    assert {name: extras for name, extras in listed.items() if extras} == environments.COPYLEFT


def test_a_licence_that_is_not_permissive_must_be_known() -> None:
    lines = environments.unexpected_licences(sys.executable, "web")
    assert any(line.startswith("hypothesis ") for line in lines)
    lines = environments.unexpected_licences(sys.executable, "explore")
    assert not any(line.startswith("hypothesis ") for line in lines)


def test_an_extra_without_a_program_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delitem(environments.PROGRAMS, "sqlite")
    with pytest.raises(AssertionError, match="sqlite"):
        environments.try_extras(tmp_path)
