"""A public module without its extra names the command that installs the extra."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SRC = Path(__file__).parents[1] / "src"
CORE = {"anyio", "msgspec", "opentelemetry", "typing_extensions", "sniffio", "idna"}
# Imports each module in a process in which only the core's packages can be imported.
PROGRAM = f"""
import importlib, sys

CORE = {sorted(CORE)!r}


class OnlyTheCore:
    def find_spec(self, name, path=None, target=None):
        top = name.partition(".")[0]
        extra = name.startswith(("opentelemetry.sdk", "opentelemetry.exporter"))
        if extra or top not in (*CORE, "hookline", *sys.stdlib_module_names):
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=top)


sys.meta_path.insert(0, OnlyTheCore())
for name in sys.argv[1:]:
    try:
        importlib.import_module(name)
    except ImportError as exc:
        print(name, exc)
"""


def public_modules() -> list[str]:
    paths = [path.relative_to(SRC).with_suffix("") for path in SRC.rglob("*.py")]
    names = [path.parent if path.name == "__init__" else path for path in paths]
    return sorted(
        ".".join(name.parts) for name in names if not any(part[0] == "_" for part in name.parts)
    )


def test_a_public_module_without_its_extra_says_how_to_install_it() -> None:
    modules = public_modules()
    assert {"hookline.stores", "hookline.streams", "hookline.testing.explore"} <= {*modules}
    command = [sys.executable, "-c", PROGRAM, *modules]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    messages = dict(line.split(" ", 1) for line in lines)
    bad = {name: text for name, text in messages.items() if "pip install 'hookline[" not in text}
    assert bad == {}
    assert messages.keys() == {"hookline.stores", "hookline.streams", "hookline.testing.explore"}
