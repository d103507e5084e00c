"""Every text with which hookline raises an error, read off the source; run it to list them.

tests/test_error_texts.py judges them. A text is a template: an inserted value appears in it as
`⟨the expression⟩`.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import NamedTuple

import hookline.errors
from hookline.testing import ScriptError
from hookline.web import Refused

PACKAGE = Path(hookline.__file__).parent
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)

ERRORS: dict[str, type[BaseException]] = {
    **{name: getattr(hookline.errors, name) for name in hookline.errors.__all__},
    "ScriptError": ScriptError,
    "Refused": Refused,
}
# What is no message to a person: how Python ends an iterator or a task, and verdicts of checks.
CONTROL = {
    *("StopAsyncIteration", "CancelledError", "NotImplementedError", "AssertionError"),
    "SystemExit",
}
# Which argument of a constructor is the text, or the problem that it makes one of; the first else.
TEXT_AT = {"HookOptionError": 2, "ToolDefinitionError": 1, "Refused": 1}
# What makes an error of texts that it is given: who calls it, of which error, by which arguments.
MAKERS = {
    "formats/_read.py:refuse": ("formats/", "UsageError", (1,)),
    "providers/_adapter/errors/failures.py:malformed": ("providers/", "MalformedStreamError", (0,)),
    "providers/_adapter/request_parts.py:refuse": ("providers/", "BadRequestError", (1, 2)),
    "testing/_script.py:_misfits": ("testing/_script.py", "ScriptError", (0,)),
}
# What is raised to be caught again in its own package, and told as an error that is in the list.
SIGNALS = {
    "_tools/issues.py:decode_foreign": "an issue of ToolArgumentsError",
    "_tools/schema.py:reference": "the reason in a ToolDefinitionError",
    "providers/_adapter/json_fields.py:text_in": "MalformedStreamError",
    "providers/_adapter/json_fields.py:index_in": "MalformedStreamError",
    "providers/_adapter/streaming.py:parse_json": "MalformedStreamError",
    "providers/openai_chat/_reader.py:take": "MalformedStreamError",
    "providers/openai_chat/_reader.py:_call": "MalformedStreamError",
    "replay/_cassettes.py:records_of_cassette": "the text of the CassetteError",
    "workspace/_files/openat.py:_error": "Root and replace() say what is wrong with the path",
    "web/_site/error_statuses.py:refused_for": "the sentence for an error raised elsewhere",
}
# Functions whose `{problem}` another function returns.
GIVERS = {
    "_hooks/wrappers.py:_ask_again": ("_chat/run_tool.py", "again"),
    "_hooks/registration.py:check_hook": ("_hooks/option_checks.py", "problem_of"),
    "_model/chunks.py:measure": ("_model/chunks.py", "_problem"),
}
# A text that repeats what another error says.
REPEATED = {"output=⟨whole⟩: ⟨str(error).partition(': ')[2]⟩"}


class ErrorText(NamedTuple):
    """A text, where it stands and of which error it is."""

    where: str
    error: str
    text: str


def in_init(error: str) -> bool:
    """Whether the error makes its text of what it is given."""
    kind = ERRORS.get(error)
    return kind is not None and "__init__" in vars(kind) and error not in (*TEXT_AT, "ModelError")


def pieces(node: ast.AST | None, scope: ast.AST, tree: ast.Module) -> list[str] | None:
    """The templates that an expression may come to; None where the source does not say."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return [node.value]
    if isinstance(node, ast.JoinedStr):
        out = [""]
        for part in node.values:
            more = (
                [str(part.value)] if isinstance(part, ast.Constant) else _put_in(part, scope, tree)
            )
            out = [text + end for text in out for end in more]
        return out
    if isinstance(node, ast.IfExp):
        both = [pieces(each, scope, tree) for each in (node.body, node.orelse)]
        return [text for each in both for text in each or ()] or None
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        sides = [pieces(each, scope, tree) for each in (node.left, node.right)]
        if sides == [None, None]:
            return None
        left, right = (
            ["⟨" + ast.unparse(each) + "⟩"] if found is None else found
            for each, found in zip((node.left, node.right), sides, strict=True)
        )
        return [a + b for a in left for b in right]
    if isinstance(node, ast.Name):
        found = [
            text
            for each in ast.walk(scope)
            if isinstance(each, ast.Assign) and ast.unparse(each.targets[0]) == node.id
            for text in pieces(each.value, scope, tree) or ()
        ]
        return found or None
    if isinstance(node, ast.Call):
        return list(_given(node, tree)) or None
    return None


def _put_in(part: ast.AST, scope: ast.AST, tree: ast.Module) -> list[str]:
    """What an f-string has in its braces: the texts that it may be, or the expression."""
    value = getattr(part, "value", part)
    found = None
    if isinstance(value, (ast.Name, ast.Call)) and getattr(part, "conversion", 0) < 0:
        found = pieces(value, scope, tree)
    return found or ["⟨" + ast.unparse(value) + "⟩"]


def _given(call: ast.Call, tree: ast.Module) -> Iterator[str]:
    """What a function of the same module returns, or a table of it holds."""
    name = ast.unparse(call.func)
    for node in ast.walk(tree):
        if isinstance(node, FUNCTIONS) and node.name == name:
            yield from returned(node, tree)
        values = getattr(node, "value", None)
        if isinstance(node, (ast.Assign, ast.AnnAssign)) and isinstance(values, ast.Dict):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if f"{ast.unparse(targets[0])}.get" == name:
                for value in values.values:
                    yield from pieces(value, tree, tree) or ()


def returned(function: ast.AST, tree: ast.Module) -> Iterator[str]:
    """The texts that a function may return."""
    for node in ast.walk(function):
        if isinstance(node, ast.Return):
            yield from pieces(node.value, function, tree) or ()


def _function_of(tree: ast.Module) -> dict[ast.AST, ast.AST]:
    """The innermost function around each node."""
    around: dict[ast.AST, ast.AST] = {}

    def visit(node: ast.AST, function: ast.AST) -> None:
        around[node] = function
        inner = node if isinstance(node, FUNCTIONS) else function
        for child in ast.iter_child_nodes(node):
            visit(child, inner)

    visit(tree, tree)
    return around


def _is_error(name: str) -> bool:
    kind = ERRORS.get(name, getattr(builtins, name, None))
    wanted = isinstance(kind, type) and issubclass(kind, BaseException)
    return wanted and name not in CONTROL


def _constructors(tree: ast.Module) -> Iterator[tuple[str, ast.Call, ast.AST]]:
    """The texts that errors make in `__init__`."""
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            for part in node.body:
                if isinstance(part, FUNCTIONS) and part.name == "__init__":
                    for call in ast.walk(part):
                        if isinstance(call, ast.Call) and "super().__init__" in ast.unparse(
                            call.func
                        ):
                            yield node.name, call, part


def error_texts() -> Iterator[ErrorText]:
    """Each text; one that is not found is given as an empty one."""
    for path in sorted(PACKAGE.rglob("*.py")):
        place = path.relative_to(PACKAGE).as_posix()
        tree = ast.parse(path.read_text(encoding="utf-8"))
        if place == "_base/errors.py":
            for name, call, function in _constructors(tree):
                for text in pieces(call.args[0], function, tree) or ():
                    if name not in TEXT_AT:
                        yield ErrorText(f"{place}:{call.lineno}", name, text)
            continue
        around = _function_of(tree)
        for node in ast.walk(tree):
            if isinstance(node, ast.Call):
                yield from _of_call(node, place, tree, around[node])


def _of_call(node: ast.Call, place: str, tree: ast.Module, scope: ast.AST) -> Iterator[ErrorText]:
    name = ast.unparse(node.func).rpartition(".")[2]
    where = f"{place}:{node.lineno}"
    inside = f"{place}:{getattr(scope, 'name', '')}"
    for maker, (folder, error, wanted) in MAKERS.items():
        if name == maker.partition(":")[2] and place.startswith(folder):
            given = [pieces(node.args[at], scope, tree) or [""] for at in wanted]
            for texts in product(*given):
                yield ErrorText(where, error, "; ".join(texts))
    if not _is_error(name) or in_init(name) or inside in MAKERS or inside in SIGNALS:
        return
    at = TEXT_AT.get(name, 0)
    if len(node.args) > at:  # else it has no text
        texts = pieces(node.args[at], scope, tree)
        if inside in GIVERS:
            other, function = GIVERS[inside]
            texts = [each for text in texts or () for each in _elsewhere(text, other, function)]
        for text in [""] if texts is None else texts:
            if text not in REPEATED:
                yield ErrorText(where, name, text)


def _elsewhere(text: str, place: str, name: str) -> Iterator[str]:
    """The text with `{problem}` as a function of another module returns it."""
    tree = ast.parse((PACKAGE / place).read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, FUNCTIONS) and node.name == name:
            yield from (text.replace("⟨problem⟩", each) for each in returned(node, tree))


if __name__ == "__main__":
    for each in sorted(error_texts(), key=lambda each: (each.error, each.text)):
        print(f"{each.error} ({each.where})\n    {each.text}")
