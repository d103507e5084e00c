"""What the API reference shows of `define_hook`: the function that callers see.

In the source it is a value whose type has an overload for each hook point, and the overloads are in
a stub. The reference shows one signature with all options, as the overload of preToolCall has them.
"""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import griffe

STUB = Path(__file__).resolve().parents[2] / "src" / "hookline" / "_hooks" / "typed.pyi"
CODE = """
from collections.abc import Callable, Iterable
from typing import Any, Literal
from hookline._hooks.declared import HookDef

def define_hook(
    point: str | type, hook: Callable[..., Any] | None = None, *, {options}
) -> HookDef | Callable[[Callable[..., Any]], HookDef]: ...
"""


def _options() -> str:
    """The keywords of the overload that has all of them."""
    for node in ast.parse(STUB.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ClassDef) and node.name == "DefineHook":
            calls = [each.args for each in node.body if isinstance(each, ast.FunctionDef)]
            every = max(calls, key=lambda args: len(args.kwonlyargs))
            pairs = zip(every.kwonlyargs, every.kw_defaults, strict=True)
            return ", ".join(
                ast.unparse(each) + (f" = {ast.unparse(default)}" if default else "")
                for each, default in pairs
            )
    raise LookupError("typed.pyi has no class DefineHook")


class Signatures(griffe.Extension):
    """Puts the function in the place of the value."""

    def on_package(self, *, pkg: griffe.Module, **_: Any) -> None:
        if pkg.name != "hookline":
            return
        module = pkg["_agent"]
        old = module.members["define_hook"]
        made = griffe.visit(
            "hookline._agent", filepath=module.filepath, code=CODE.format(options=_options())
        )["define_hook"]
        made.docstring, made.lineno, made.endlineno = old.docstring, old.lineno, old.endlineno
        module.set_member("define_hook", made)
