"""What the examples are, read off the examples: their list, and what they need.

python scripts/dev/examples.py                     write examples/README.md
python scripts/dev/examples.py --check             exit 1 when it is stale
python scripts/dev/examples.py --needs             each program, a tab, what pip installs for it
python scripts/dev/examples.py --run WHEEL FOLDER  run those in FOLDER, each in an environment with
                                                   the wheel and what the example needs
"""

from __future__ import annotations

import ast
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PLACE = ROOT / "examples"
LIST = PLACE / "README.md"
NEEDS = re.compile(r"^Needs `pip install ([^`]+)`", re.MULTILINE)

HEAD = """\
# Examples

Generated from `examples/` by `scripts/dev/examples.py`.

The examples are in recommended reading order. Each example fits on one page and runs unchanged. The
examples need no network, because a scripted model answers. To use a real model, write
`Agent("openai:gpt-…")`.

```sh
pip install hookline         # or what the example lists at its top; in a checkout: pip install .
python examples/01_hooks.py
```
"""


def entries() -> list[Path]:
    """The numbered examples: a file, or a folder with its program in app.py."""
    return sorted(PLACE.glob("[0-9][0-9]_*"))


def program(entry: Path) -> Path:
    return entry / "app.py" if entry.is_dir() else entry


def head(entry: Path) -> str:
    return ast.get_docstring(ast.parse(program(entry).read_text())) or ""


def needs(entry: Path) -> str:
    """The arguments of `pip install`, as the head of the example has them."""
    found = NEEDS.search(head(entry))
    return found[1] if found else "hookline"


def rows() -> str:
    lines = ["| | | pip install |", "|---|---|---|"]
    for entry in entries():
        name = f"{entry.name}/" if entry.is_dir() else entry.name
        lines.append(f"| [{name}]({name}) | {head(entry).splitlines()[0]} | `{needs(entry)}` |")
    demo = head(PLACE / "demo.py").splitlines()[0]
    lines.append(f"| [demo.py](demo.py) | {demo} | `hookline` |")
    return "\n".join(lines) + "\n"


def run(wheel: Path, folder: Path) -> int:
    """One environment for each set of needs; says how each program ends, and counts failures."""
    failed = 0
    with tempfile.TemporaryDirectory() as place:
        elsewhere = shutil.copytree(folder, Path(place, "elsewhere"))
        made: dict[str, str] = {}
        for path in [*map(program, entries()), PLACE / "demo.py"]:
            wanted = needs(path.parent if path.name == "app.py" else path)
            if wanted not in made:
                made[wanted] = environment(
                    Path(place, f"venv{len(made)}"), wheel, wanted, elsewhere
                )
            name = path.relative_to(PLACE)
            done = subprocess.run(
                [made[wanted], "-I", "-W", "error", elsewhere / name],
                cwd=elsewhere,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=120,
            )
            well = done.returncode == 0 and done.stdout and not done.stderr
            print(f"{'ran' if well else 'FAILED'} {name} with {wanted}", flush=True)
            if not well:
                failed += 1
                print(done.stdout + done.stderr, f"exit status {done.returncode}", sep="\n")
    return failed


def environment(place: Path, wheel: Path, wanted: str, folder: Path) -> str:
    """An environment with the wheel and these, resolved at once; gives its Python."""
    venv.create(place, symlinks=True)
    python = str(place / "bin" / "python")
    asked = [re.sub(r"^hookline\b", str(wheel), each) for each in shlex.split(wanted)]
    pip = [sys.executable, "-m", "pip", "--python", python, "--disable-pip-version-check"]
    command = [*pip, "--no-input", "install", "--quiet", str(wheel), *asked]
    done = subprocess.run(command, cwd=folder, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE)
    if done.returncode:
        raise SystemExit(done.stderr.decode() + f"pip could not install {wanted}")
    return python


def main() -> int:
    if "--run" in sys.argv:
        wheel, folder = sys.argv[-2:]
        return run(Path(wheel).resolve(), Path(folder).resolve())
    if "--needs" in sys.argv:
        for entry in entries():
            print(program(entry).relative_to(PLACE), needs(entry), sep="\t")
        return 0
    stale: list[str] = []
    text = HEAD + "\n" + rows()
    if not LIST.exists() or LIST.read_text() != text:
        stale.append(str(LIST.relative_to(ROOT)))
        if "--check" not in sys.argv:
            LIST.write_text(text)
    print("stale: " + ", ".join(stale) if stale else "up to date")
    return 1 if stale and "--check" in sys.argv else 0


if __name__ == "__main__":
    raise SystemExit(main())
