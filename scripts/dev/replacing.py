"""Write the types of `.replace(…)` into the nouns that hooks read and return, a keyword per field.

No type checker can derive "some of the fields of this class", so the signatures are written out,
at the end of each class. At run time, all of these classes share `Data.replace`. After a merge
conflict in one of the signatures, keep either side and run scripts/dev/generate.py.
"""

from __future__ import annotations

import ast
import inspect
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

from hookline._base.messages import Data

SOURCE = Path(__file__).resolve().parents[2] / "src"
MODULES = (
    "_base.messages",
    "_base.returns",
    "_model.model",
    "_model.prices",
    "_tools.tool",
    "_tools.scopes",
    "_chat.config",
)
OTHERS = {"Tool", "Scope"}  # which are no Data; the keywords of __init__ are their fields
FIXED = {"client", "fn", "signature"}  # of a tool
HEAD = "    if TYPE_CHECKING:  # by scripts/dev/generate.py\n"


def _trees(kind: type) -> dict[str, ast.expr]:
    """The annotations of the fields of a class and of its bases."""
    fields: dict[str, ast.expr] = {}
    for base in reversed(kind.__mro__):
        if not base.__module__.startswith("hookline"):
            continue
        (tree,) = ast.parse(inspect.getsource(base)).body
        assert isinstance(tree, ast.ClassDef)
        for node in tree.body:
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                fields[node.target.id] = node.annotation
    return fields


def keywords(kind: Any) -> dict[str, str]:
    """What `.replace(…)` of this class takes, with the types as the source writes them."""
    own = {
        name: parameter.annotation
        for name, parameter in inspect.signature(kind.replace).parameters.items()
        if parameter.kind is parameter.KEYWORD_ONLY
    }
    types = _trees(kind)
    if issubclass(kind, Data):
        return own | {name: ast.unparse(types[name]) for name in kind.__struct_fields__}
    taken = inspect.signature(kind.__init__).parameters
    return {
        name: taken[name].annotation if name == "tools" else ast.unparse(types[name])
        for name in taken
        if name != "self" and name not in FIXED
    }


def signature(kind: Any) -> str:
    fields = ", ".join(f"{name}: {type} = ..." for name, type in keywords(kind).items())
    return f"{HEAD}\n        def replace(self, *, {fields}) -> Self: ...\n"


def _is_generated(node: ast.stmt, lines: list[str]) -> bool:
    return isinstance(node, ast.If) and lines[node.lineno - 1] + "\n" == HEAD


def written(module: str) -> tuple[Path, str]:
    """The path and the text of a module, with the signatures of today's fields."""
    path = SOURCE / "hookline" / f"{module.replace('.', '/')}.py"
    lines = path.read_text(encoding="utf-8").splitlines()
    kinds = import_module(f"hookline.{module}")
    for node in reversed(ast.parse("\n".join(lines)).body):
        kind = getattr(kinds, node.name, None) if isinstance(node, ast.ClassDef) else None
        if not isinstance(node, ast.ClassDef) or not isinstance(kind, type):
            continue
        is_noun = issubclass(kind, Data) and kind.__struct_fields__
        if not (is_noun or node.name in OTHERS) or node.name == "ModelAnswer":
            continue
        end = node.end_lineno or 0
        for old in node.body:
            if _is_generated(old, lines):
                del lines[old.lineno - 1 : old.end_lineno]
                end -= (old.end_lineno or 0) - old.lineno + 1
                if not lines[end - 1]:
                    del lines[end - 1]
                    end -= 1
        lines[end:end] = ["", *signature(kind).splitlines()]
    ruff = [sys.executable, "-m", "ruff", "format", "-q", "--stdin-filename", str(path), "-"]
    text = "\n".join(lines) + "\n"
    return path, subprocess.run(ruff, input=text, text=True, capture_output=True, check=True).stdout
