"""Every public name is documented: what it is, what it raises, and a page that has it.

Read off the source, since that is what the API reference is made of: docstrings of modules,
classes, functions, methods and properties; of fields, attributes and aliases a string below them,
or a word on them in backticks in the docstring of their class.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import pydoc
import re
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import astuple
from tests._rules import every

import hookline
import hookline.errors
from hookline import Agent, HookInfo, ModelResponse, Response, Run
from hookline._base.json import MAX_ARGUMENT_DEPTH, MAX_RESULT_DEPTH
from hookline._chat.channel import SIZE
from hookline._chat.config import DEFAULT_LIMITS, ChatOptions
from hookline._conversations.store import check_id
from hookline.errors import UsageError
from hookline.mcp._client.transport.process import MAX_MESSAGE
from hookline.providers import OpenAIModel
from hookline.providers._adapter.http_limits import MAX_ERROR, MAX_VALUES
from hookline.providers._adapter.sse import MAX_EVENT
from hookline.stores import SQLStore
from hookline.web.relay import RedisRelay
from hookline.web.relay._redis import SILENCE

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = Path(hookline.__file__).parent

MODULES = [
    "hookline",
    *(
        f"hookline.{name}"
        for name in (
            *(
                "dialogue",
                "discovery",
                "durable",
                "durable.postgres",
                "durable.restate",
                "durable.sqlite",
                "errors",
                "events",
                "formats",
                "hooks",
                "mcp",
                "models",
                "otel",
                "points",
            ),
            *("providers", "replay", "runtimes", "storage", "stores", "streams", "testing", "web"),
            *(
                "testing.cassette",
                "testing.doors",
                "testing.explore",
                "testing.sandbox_suite",
                "web.relay",
                "workspace",
            ),
        )
    ),
    *(
        f"hookline.providers.{name}"
        for name in ("anthropic", "google", "kit", "openai", "openai_chat", "presets", "tools")
    ),
]
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
EMPTY_WORDS = {
    "a", "an", "and", "gives", "in", "is", "it", "its", "of", "or", "return", "returns", "that",
    "the", "these", "this", "to",
}  # fmt: skip


# ── reading the source ──────────────────────────────────────────────────────────────────────


@cache
def tree(module: str) -> ast.Module:
    path = PACKAGE.parent / module.replace(".", "/")
    return ast.parse(
        (path / "__init__.py" if path.is_dir() else path.with_suffix(".py")).read_text()
    )


def definition(module: str, name: str) -> tuple[str, ast.stmt]:
    """Where a public name is defined, past all the imports that pass it on."""
    for node in tree(module).body:
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("hookline"):
            for alias in node.names:
                if (alias.asname or alias.name) == name:
                    return definition(node.module, alias.name)
        named = isinstance(node, (ast.ClassDef, *FUNCTIONS)) and node.name == name
        if named and not _is_overload(node):
            return module, node
        if name in _assigned(node):
            return module, node
    raise AssertionError(f"{module}.{name} is not found in the source")


def _is_overload(node: ast.stmt) -> bool:
    decorators = getattr(node, "decorator_list", [])
    return any(
        "overload" in ast.unparse(each) or ".setter" in ast.unparse(each) for each in decorators
    )


def _assigned(node: ast.stmt) -> list[str]:
    targets = node.targets if isinstance(node, ast.Assign) else []
    if isinstance(node, ast.AnnAssign):
        targets = [node.target]
    return [each.id for each in targets if isinstance(each, ast.Name)]


def string_below(body: list[ast.stmt], node: ast.stmt) -> str | None:
    """The string that stands below an assignment."""
    place = body.index(node) + 1
    if place < len(body):
        below = body[place]
        if isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant):
            text: object = below.value.value
            return text if isinstance(text, str) else None
    return None


def own_bases(module: str, node: ast.ClassDef) -> Iterator[ast.ClassDef]:
    """The class and the bases that are ours, nearest first."""
    yield node
    for base in node.bases:
        name = ast.unparse(base).split("[")[0]
        try:
            where, found = definition(module, name)
        except AssertionError:
            continue
        if isinstance(found, ast.ClassDef):
            yield from own_bases(where, found)


def parts(module: str, node: ast.ClassDef) -> Iterator[tuple[str, str | None, ast.stmt]]:
    """Each public part of a class: its name, its docstring, where it stands."""
    docs = " ".join(ast.get_docstring(each) or "" for each in own_bases(module, node))
    seen: set[str] = set()
    for each in own_bases(module, node):
        for part in each.body:
            if isinstance(part, FUNCTIONS) and not _is_overload(part):
                if part.name == "__init__":
                    yield from _attributes(part, docs, seen)
                elif not part.name.startswith("_") and part.name not in seen:
                    seen.add(part.name)
                    yield part.name, ast.get_docstring(part), part
            for name in _assigned(part):
                if not name.startswith("_") and name not in seen:
                    seen.add(name)
                    named = f"its class names `{name}`" if f"`{name}`" in docs else None
                    yield name, string_below(each.body, part) or named, part


def _attributes(
    init: ast.FunctionDef | ast.AsyncFunctionDef, docs: str, seen: set[str]
) -> Iterator[tuple[str, str | None, ast.stmt]]:
    """What `__init__` puts on the object for all to see."""
    for node in ast.walk(init):
        targets = node.targets if isinstance(node, ast.Assign) else []
        if isinstance(node, ast.AnnAssign):
            targets = [node.target]
        for each in targets:
            ours = isinstance(each, ast.Attribute) and ast.unparse(each.value) == "self"
            if ours and not each.attr.startswith("_") and each.attr not in seen:  # type: ignore[attr-defined]
                name: str = each.attr  # type: ignore[attr-defined]
                seen.add(name)
                named = re.search(rf"`{name}(?:=[^`]*|\(\))?`", docs)
                below = string_below(init.body, node) if node in init.body else None
                yield name, below or (f"its class names `{name}`" if named else None), node


def names() -> Iterator[tuple[str, str]]:
    for module in MODULES:
        for name in importlib.import_module(module).__all__:
            if name != "__version__":
                yield module, name


@cache
def defined() -> list[tuple[str, str]]:
    """The module that defines each public name, and the name."""
    return sorted({(*definition(module, name)[:1], name) for module, name in names()})


EACH = every(defined)


# ── is it there, and does it say something ──────────────────────────────────────────────────


def words(text: str) -> set[str]:
    """The words of a text, in small letters, `snake_case` and `CamelCase` taken apart."""
    text = re.sub(r"([a-z])([A-Z])", r"\1 \2", text).replace("_", " ")
    return {word.rstrip("s") for word in re.findall(r"[a-z]+", text.lower())} - EMPTY_WORDS


def wrong(name: str, text: str | None, node: ast.stmt) -> str | None:
    """What is wrong with a docstring."""
    if not text:
        return "has no docstring"
    first = text.strip().split("\n\n")[0]
    if not re.search(r"[.:!?]$|[.:]\s", first) and not text.startswith("its class names"):
        return "does not begin with a sentence"
    signature = name
    if isinstance(node, FUNCTIONS):
        node_only = ast.unparse(ast.Module([type(node)(**{**vars(node), "body": []})], []))
        signature += node_only
    if not text.startswith("its class names") and not words(first) - words(signature):
        return f"only repeats the signature: {first!r}"
    return None


@EACH
def test_a_public_name_is_documented(module: str, name: str) -> None:
    where, node = definition(module, name)
    if isinstance(node, (ast.ClassDef, *FUNCTIONS)):
        assert not (problem := wrong(name, ast.get_docstring(node), node)), problem
    else:
        assert not (problem := wrong(name, string_below(tree(where).body, node), node)), problem
    if isinstance(node, ast.ClassDef):
        found = {part: wrong(part, text, at) for part, text, at in parts(where, node)}
        assert {part: problem for part, problem in found.items() if problem} == {}


@every(MODULES)
def test_a_public_module_says_what_it_is_for(module: str) -> None:
    assert ast.get_docstring(tree(module))


# ── what it raises ──────────────────────────────────────────────────────────────────────────


def _raised(node: ast.AST) -> set[str]:
    """The exceptions that this block itself makes and raises, not those of functions in it."""
    found: set[str] = set()
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Raise) and isinstance(child.exc, ast.Call):
            name = ast.unparse(child.exc.func)
            found |= {name} if name[0].isupper() else set()
        if not isinstance(child, (*FUNCTIONS, ast.Lambda, ast.ClassDef)):
            found |= _raised(child)
    return found


def _told(error: str, text: str) -> bool:
    """Whether a docstring speaks of the error, or of the kind that it is one of."""
    kind: Any = getattr(hookline.errors, error, None) or getattr(__builtins__, error, None)
    kinds = [each.__name__ for each in inspect.getmro(kind)] if kind else [error]
    general = {"HooklineError", "Exception", "BaseException", "object"}
    return any(each in text for each in kinds if each not in general)


CONTROL = {"StopAsyncIteration", "NotImplementedError"}


@EACH
def test_what_a_public_name_raises_stands_in_its_docstring(module: str, name: str) -> None:
    where, node = definition(module, name)
    untold: list[str] = []
    functions: list[tuple[str, ast.AST, str]] = []
    if isinstance(node, FUNCTIONS):
        functions.append((name, node, ast.get_docstring(node) or ""))
    elif isinstance(node, ast.ClassDef):
        about = ast.get_docstring(node) or ""
        for part in node.body:
            if isinstance(part, FUNCTIONS) and (part.name[0] != "_" or part.name[:2] == "__"):
                functions.append((part.name, part, f"{ast.get_docstring(part)}{about}"))
    for each, body, text in functions:
        untold += [
            f"{each}: {error}" for error in _raised(body) - CONTROL if not _told(error, text)
        ]
    assert where
    assert untold == []


# ── and where it is found ───────────────────────────────────────────────────────────────────


def test_every_public_module_has_its_page_in_the_api_reference() -> None:
    """scripts/docs checks that the page has each of its names."""
    navigation = (ROOT / "mkdocs.yml").read_text()
    listed = re.findall(r"^ +- [\w.]+: reference/([\w.]+)\.md$", navigation, re.MULTILINE)
    assert sorted(listed) == sorted(MODULES)


def test_no_public_module_is_forgotten() -> None:
    doors = {
        ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__")
        for path in PACKAGE.rglob("*.py")
    }
    public = {name for name in doors if not any(part[0] == "_" for part in name.split("."))}
    # The first has its one name in hookline.stores; then a program.
    no_page = {"hookline.cli"}
    assert public - no_page == set(MODULES)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "no docstring"),
        ("the model name", "no sentence"),
        ("Returns the model.", "repeats"),
        ("What the model is called in traces.", None),
    ],
    ids=["none", "no sentence", "repeats", "fine"],
)
def test_a_poor_docstring_is_found(text: str, problem: str | None) -> None:
    node = ast.parse("def name(model: Model) -> str: ...").body[0]
    found = wrong("name", text, node)
    assert (found is None) == (problem is None)


# ── fields ──────────────────────────────────────────────────────────────────────────────────

DATA = [
    (module, name)
    for module in ("hookline", "hookline.events", "hookline.models", "hookline.points")
    for name in importlib.import_module(module).__all__
    if hasattr(getattr(importlib.import_module(module), name), "__struct_fields__")
]


@every(DATA)
def test_each_field_has_a_docstring_of_its_own(module: str, name: str) -> None:
    """An editor shows it where the field is used, and not the docstring of the class."""
    _, node = definition(module, name)
    assert isinstance(node, ast.ClassDef)
    body = [*node.body, None]
    bare = [
        ast.unparse(each.target)
        for each, after in pairwise(body)
        if isinstance(each, ast.AnnAssign)
        and not ast.unparse(each.target).startswith("_")
        and not (isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant))
    ]
    assert bare == []


# ── in the guides ───────────────────────────────────────────────────────────────────────────

LOOKED_FOR = [
    (kind, name)
    for kind in (Response, ModelResponse, Run, HookInfo)
    for name in (*kind.__struct_fields__, *vars(kind))
    if not name.startswith("_") and name != "chat_of"  # which is hookline's own
]


@every(sorted({(kind.__name__, name) for kind, name in LOOKED_FOR}))
def test_the_guide_to_chats_has_each_field(kind: str, name: str) -> None:
    page = (ROOT / "docs" / "chats.md").read_text()
    start, end = GUIDES[kind]
    part = page[page.index(start) : page.index(end) if end else None]
    assert re.search(rf"`(?:await |ModelResponse\.)?{name}[`(]", part), part


GUIDES = {
    "Response": ("Every way to run a chat returns", "Hooks at `onResponse`"),
    "ModelResponse": ("Hooks at `onResponse`", "## What hooks and tools can use"),
    "Run": ("## What hooks and tools can use", "`agent.hooks()` lists"),
    "HookInfo": ("`agent.hooks()` lists", ""),
}


def test_the_guide_to_chats_has_each_argument_of_an_agent_with_its_default() -> None:
    page = (ROOT / "docs" / "chats.md").read_text()
    part = page.partition("## What you can pass to an agent")[2].partition("\n## ")[0]
    rows = dict(re.findall(r"^\| `(\w+)=?` \| ([^|]+) \|", part, re.MULTILINE))
    parameters = dict(inspect.signature(Agent).parameters)
    assert list(rows) == list(parameters)
    for name, parameter in parameters.items():
        default = parameter.default
        if isinstance(default, (bool, int, str)):
            shown = f'"{default}"' if isinstance(default, str) else repr(default)
            assert rows[name] == f"`{shown}`"
        else:
            assert (rows[name] == "required") == (default is inspect.Parameter.empty)


@every(["chat", "chat_stream", "resume", "resume_stream"])
def test_help_shows_each_keyword_of_a_chat(name: str) -> None:
    text = pydoc.render_doc(getattr(Agent, name), renderer=pydoc.plaintext)
    for keyword in ChatOptions.__struct_fields__:
        assert re.search(rf"\b{keyword}: '", text), text


def test_help_explains_each_keyword_of_a_chat() -> None:
    text = pydoc.render_doc(Agent.chat, renderer=pydoc.plaintext)
    for keyword in ("input", *ChatOptions.__struct_fields__):
        assert re.search(rf"^ +{keyword}: [A-Z\"`]", text, re.MULTILINE), keyword


def test_the_table_of_extras_has_them_all() -> None:
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    section = (
        (ROOT / "docs" / "quickstart.md").read_text().split("### Extras\n")[1].split("\n## ")[0]
    )
    rows = re.findall(r"^\| ((?:`\w+`(?:, )?)+) \|", section, re.MULTILINE)
    named = [name for row in rows for name in re.findall(r"`(\w+)`", row)]
    assert sorted(named) == sorted(project["optional-dependencies"])
    assert "docs/quickstart.md#extras" in (ROOT / "README.md").read_text()


# ── limits ──────────────────────────────────────────────────────────────────────────────────

UNITS = {"KiB": 1024, "MiB": 1024 * 1024, "days": 24 * 3600}


def amounts(text: str) -> list[float]:
    """The numbers of a text, in bytes or seconds."""
    numbers = re.findall(r"([\d,.]*\d)(?: (KiB|MiB|days))?", text)
    return [float(number.replace(",", "")) * UNITS.get(unit, 1) for number, unit in numbers]


def default(function: Any, name: str) -> Any:
    return inspect.signature(function).parameters[name].default


def test_the_table_of_limits_has_the_defaults() -> None:
    page = (ROOT / "docs" / "reliability.md").read_text()
    part = page.partition("\n## Limits\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| .+? \| ([^|]*\d[^|]*) \| [^|]+ \| [^|]+ \|$", part, re.MULTILINE)
    assert [amounts(row) for row in rows] == [
        *([each] for each in astuple(DEFAULT_LIMITS)),
        [SIZE],
        [default(Agent.subscribe, "size")],
        *([default(SQLStore, name)] for name in ("lease", "busy_timeout", "reconnect")),
        [255],
        [MAX_ARGUMENT_DEPTH, MAX_RESULT_DEPTH],
        [default(OpenAIModel, "idle_timeout")],
        [MAX_EVENT, MAX_VALUES],
        [MAX_ERROR],
        [MAX_MESSAGE, MAX_MESSAGE // 4, MAX_VALUES],
        [default(Agent, "output_retries")],
    ]
    check_id("x" * 255)
    with pytest.raises(UsageError, match="255"):
        check_id("x" * 256)


def test_the_page_of_the_relay_has_its_defaults() -> None:
    page = " ".join((ROOT / "docs" / "relay.md").read_text().split())
    numbers = re.findall(r"`(\w+)`(?: seconds)? \(([\d,]+(?: MiB| days)?)\)", page)
    assert {name: amounts(number) for name, number in numbers} == {
        name: [default(RedisRelay, name)]
        for name in ("lease", "max_entries", "max_waiting_bytes", "ttl", "observer_ttl")
    }
    assert f"within {SILENCE:g} seconds" in page
    assert f"the store's lease has expired ({default(SQLStore, 'lease'):g} seconds)" in page
