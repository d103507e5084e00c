"""Say whether what is committed can be released. Run this by scripts/dev/release-check.

    scripts/dev/release-check          check only
    scripts/dev/release-check dist     also write the distributions to dist, the SBOM to dist-sbom

Each check returns a line for each problem:

- the tree is clean and has its history, and the version has its section in the changelog, its
  records, and no other tag
- what is generated is fresh, and so is the list of the public interface; the changelog names each
  change of the interface since the last release
- the wheel and the sdist contain what is under version control, and nothing else; they are small,
  and a second build of the same commit gives the same bytes
- the metadata is complete, and the index would show it (`twine check --strict`)
- the wheel and each extra alone work in an empty environment, with licences that are known
- the SBOM lists what pyproject.toml names, and the folders hold nothing from an earlier run

Exit 1 when there is a problem.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import zipfile
from collections.abc import Iterable
from email.parser import HeaderParser
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PYTHON = (sys.executable, "-P")
UV = (*PYTHON, "-m", "uv", "--quiet")
MOST_KIB = {".whl": 2048, ".gz": 5120}  # what is far larger holds a file that nobody wanted
NOT_IN_SDIST = re.compile(r"\.(ci|github|editorconfig|gitignore|pre-commit)")


def main() -> int:
    out = Path(sys.argv[1]) if len(sys.argv) > 1 else None
    folders = [out, Path(f"{out}-sbom")] if out else []
    problems = [
        *state_problems(ROOT),
        *stale_files(),
        *untold_changes(ROOT),
        *(f"{folder} is not empty: remove it" for folder in folders if holds_files(folder)),
    ]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        dist, again = build(folder)
        sbom = write_sbom(folder / "again", folder / "sbom")
        for file in sorted([*dist.iterdir(), sbom]):
            print(f"{file.stat().st_size // 1024:5} KiB  {file.name}")
        problems += [
            *differences(dist, again),
            *content_problems(ROOT, dist),
            *missing_metadata(ROOT, dist),
            *sbom_problems(ROOT, sbom),
            *refused_metadata(dist),
            *failures([str(ROOT / "scripts/build-check"), str(dist)]),
            *failures([*PYTHON, "scripts/dev/environments.py", "extras"]),
        ]
        if not problems:
            for source, target in zip((dist, sbom.parent), folders, strict=False):
                shutil.copytree(source, target, dirs_exist_ok=True)
    for problem in problems:
        print(f"release-check: {problem}", file=sys.stderr)
    if not problems:
        print(f"hookline {version_of(ROOT)} can be released")
    return bool(problems)


# ── the commit ──────────────────────────────────────────────────────────────────────────────


def state_problems(root: Path) -> list[str]:
    """What of the commit, its changelog, tag and records does not fit its version."""
    version = version_of(root)
    changelog = (root / "CHANGELOG.md").read_text(encoding="utf-8")
    newest = re.search(r"^## \[(\d.*)\] - \d{4}-\d\d-\d\d$", changelog, re.MULTILINE)
    unreleased = re.search(r"^## \[Unreleased\]\n(.*?)(?=^## |\Z)", changelog, re.M | re.S)
    tag = git(root, "rev-parse", "-q", "--verify", f"refs/tags/v{version}^{{commit}}")
    problems = {
        "there are changes that are not committed": git(root, "status", "--porcelain"),
        "the history is missing: run `git fetch --unshallow --tags`": git(
            root, "rev-parse", "--is-shallow-repository"
        )
        == "true",
        f"CHANGELOG.md has no section '## [{version}] - <date>' at its top": not newest
        or newest[1] != version,
        "CHANGELOG.md still has text under Unreleased": unreleased and unreleased[1].strip(),
        f"v{version} is the tag of another commit: count the version up": tag
        and tag != git(root, "rev-parse", "HEAD"),
        f"tests/released/{version} has no records: store those of this version": not git(
            root, "ls-files", f"tests/released/{version}"
        ),
    }
    return [problem for problem, is_one in problems.items() if is_one]


def version_of(root: Path) -> str:
    text = (root / "src/hookline/_version.py").read_text(encoding="utf-8")
    match = re.search(r'^__version__ = "(.*)"$', text, re.MULTILINE)
    assert match, "src/hookline/_version.py has no version"
    return match[1]


def stale_files() -> list[str]:
    """Which generated files are not as they would be generated now."""
    scripts = ("generate.py", "examples.py", "interface.py")
    commands = [[sys.executable, f"scripts/dev/{script}", "--check"] for script in scripts]
    return [problem for command in commands for problem in failures(command)]


def untold_changes(root: Path) -> list[str]:
    """Whether the interface has changed since the last release without a word in the changelog."""
    own = f"--exclude=v{version_of(root)}"
    tag = git(root, "describe", "--tags", "--match=v*", own, "--abbrev=0")
    command = [*PYTHON, str(root / "scripts/dev/interface.py"), "--since", tag]
    return failures(command) if tag else []


def holds_files(folder: Path) -> bool:
    return folder.exists() and any(folder.iterdir())


# ── the distributions ───────────────────────────────────────────────────────────────────────


def build(folder: Path) -> tuple[Path, Path]:
    """Build the checkout and an export of its commit; return the folders of the distributions."""
    epoch = {**os.environ, "SOURCE_DATE_EPOCH": git(ROOT, "log", "-1", "--format=%ct")}
    archive = ("git", "archive", "--prefix=again/", f"--output={folder}/again.tar", "HEAD")
    subprocess.run(archive, cwd=ROOT, check=True)
    with tarfile.open(folder / "again.tar") as tar:
        tar.extractall(folder, filter="data")
    for source, dist in (ROOT, "dist"), (folder / "again", "dist-again"):
        command = [*PYTHON, "-m", "build", "--no-isolation", "--outdir", str(folder / dist)]
        subprocess.run([*command, str(source)], env=epoch, check=True, stdout=subprocess.DEVNULL)
    return folder / "dist", folder / "dist-again"


def differences(dist: Path, again: Path) -> list[str]:
    """Which files two builds of one commit do not share, byte for byte."""
    sums = [
        {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in folder.iterdir()}
        for folder in (dist, again)
    ]
    names = sorted(set(sums[0]) | set(sums[1]))
    return [f"a second build gives another {n}" for n in names if sums[0].get(n) != sums[1].get(n)]


def content_problems(root: Path, dist: Path) -> list[str]:
    """How the contents of the wheel and the sdist differ from what is under version control."""
    tracked = git(root, "ls-files").splitlines()
    with zipfile.ZipFile(one(dist, "*.whl")) as wheel:
        in_wheel = [name for name in wheel.namelist() if ".dist-info/" not in name]
    with tarfile.open(one(dist, "*.tar.gz")) as tar:
        in_sdist = [name.partition("/")[2] for name in tar.getnames()]
    source = [name.removeprefix("src/") for name in tracked if name.startswith("src/")]
    rest = [name for name in tracked if not NOT_IN_SDIST.match(name)]
    added = {"PKG-INFO", ".gitignore"}  # by hatchling
    problems = [
        *compared("the wheel", source, in_wheel),
        *compared("the sdist", rest, [name for name in in_sdist if name not in added]),
    ]
    for file in sorted(dist.iterdir()):
        if file.stat().st_size > MOST_KIB[file.suffix] * 1024:
            problems.append(f"{file.name} has more than {MOST_KIB[file.suffix]} KiB")
    return problems


def compared(name: str, expected: Iterable[str], packed: Iterable[str]) -> list[str]:
    return [
        *(f"{name} lacks {file}" for file in sorted(set(expected) - set(packed))),
        *(f"{name} has a stray {file}" for file in sorted(set(packed) - set(expected))),
    ]


def missing_metadata(root: Path, dist: Path) -> list[str]:
    """What the metadata lacks, and what it says that CI does not test."""
    with zipfile.ZipFile(one(dist, "*.whl")) as wheel:
        text = next(wheel.read(n).decode() for n in wheel.namelist() if n.endswith("/METADATA"))
    metadata = HeaderParser().parsestr(text)
    fields = ("Summary", "Author", "License-Expression", "License-File", "Requires-Python")
    problems = [f"the metadata has no {field}" for field in fields if not metadata[field]]
    tested = re.search(
        r"^ +python: \[(.*?)\]", (root / ".github/workflows/ci.yml").read_text(), re.M
    )
    pythons = re.findall(r'"(3\.\d+)"', tested[1] if tested else "")
    stated = re.findall(r":: (3\.\d+)$", "\n".join(metadata.get_all("Classifier", [])), re.M)
    if pythons != stated:
        problems.append(f"the classifiers name Python {stated}, but CI runs {pythons}")
    required = [entry for entry in metadata.get_all("Requires-Dist", []) if "extra ==" not in entry]
    return problems + [f"{entry} has an upper bound" for entry in required if "<" in entry]


def refused_metadata(dist: Path) -> list[str]:
    """What the index would refuse, or could not show."""
    files = [str(file) for file in sorted(dist.iterdir())]
    return failures([*UV, "tool", "run", "twine", "check", "--strict", *files])


def write_sbom(source: Path, folder: Path) -> Path:
    """Write what each extra would bring today, in CycloneDX; return the file."""
    folder.mkdir()
    version = version_of(source)
    file = folder / f"hookline-{version}.cdx.json"
    export = ("export", "--format", "cyclonedx1.5", "--all-extras", "--no-dev")
    subprocess.run(
        [*UV, *export, "--project", str(source), "--output-file", str(file)],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    sbom = json.loads(file.read_text(encoding="utf-8"))
    sbom["metadata"]["component"] |= {  # uv reads no version that is dynamic, and no licence
        "version": version,
        "purl": f"pkg:pypi/hookline@{version}",
        "licenses": [{"expression": "MIT"}],
    }
    file.write_text(json.dumps(sbom, indent=2), encoding="utf-8")
    return file


def sbom_problems(root: Path, file: Path) -> list[str]:
    """What the SBOM does not list of pyproject.toml, and whether it is of another version."""
    sbom = json.loads(file.read_text(encoding="utf-8"))
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    groups = [project["dependencies"], *project.get("optional-dependencies", {}).values()]
    names = {re.split(r"[^\w.-]", entry)[0] for group in groups for entry in group}
    listed = {component["name"] for component in sbom["components"]}
    missing = sorted({name.replace("_", "-").lower() for name in names} - listed)
    version = sbom["metadata"]["component"].get("version")
    return [
        *(f"{file.name} lacks {name}" for name in missing),
        *[f"{file.name} is of version {version}"] * (version != version_of(root)),
    ]


# ── programs ────────────────────────────────────────────────────────────────────────────────


def failures(command: list[str]) -> list[str]:
    """Run a command of the checkout; a failure is a problem."""
    run = subprocess.run(command, cwd=ROOT, check=False)
    return [f"`{shlex.join(command)}` failed"] * bool(run.returncode)


def git(root: Path, *arguments: str) -> str:
    run = subprocess.run(("git", *arguments), cwd=root, capture_output=True, text=True, check=False)
    return run.stdout.strip()


def one(folder: Path, pattern: str) -> Path:
    (file,) = folder.glob(pattern)
    return file


if __name__ == "__main__":
    raise SystemExit(main())
