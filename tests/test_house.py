"""The house rules that a machine can read off the source."""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings
from tests._rules import every

import hookline
import hookline.errors
import hookline.events
import hookline.models
import hookline.points
from hookline._base import errors as _errors
from hookline._base import events as _events
from hookline._model import model as _model
from hookline.errors import HooklineError
from hookline.points import TABLE

PACKAGE = Path(hookline.__file__).parent

# The plan, from the ground up: a package imports only what comes before it, and a module of a
# package only what comes before it there.
PLAN = {
    "_base": (
        "log",
        "forks",
        "cancel",
        "errors",
        "lists",
        "visible",
        "patterns",
        "frozen",
        "json",
        "messages",
        "run",
        "returns",
        "runtime",
        "order",
        "record",
        "journal",
        "durable",
        "events",
        "input",
    ),
    "_model": (
        "issues",
        "callables",
        "check",
        "constraints",
        "schema",
        "bounded",
        "prices",
        "foreign",
        "tool",
        "model",
        "partial",
        "output",
        "scopes",
        "chat_scopes",
        "assembly",
        "chunks",
    ),
    "_hooks": (
        "subscribe",
        "points",
        "option_checks",
        "registration",
        "declared",
        "plugins",
        "typed",
        "one_hook",
        "call_rules",
        "wrappers",
        "bus",
        "sources",
        "views",
        "scope_hooks",
    ),
    "_talk": ("history", "store", "ledger", "conversation", "memory"),
    "_chat": (
        "call",
        "channel",
        "config",
        "life",
        "asking",
        "record",
        "state",
        "shown",
        "commit",
        "speaker",
        "results",
        "request",
        "answer",
        "guards",
        "reach",
        "run_tool",
        "approval",
        "entry",
        "batch",
        "step",
        "resume",
        "ending",
        "output",
        "loop",
        "supervisor",
        "partial",
        "stream",
        "update",
    ),
}
GROUND = ("_version",)
ROOF = ("_resolve", "_asks", "_agent")
INSIDE = [
    *GROUND,
    *(f"{package}.{module}" for package, modules in PLAN.items() for module in modules),
    *ROOF,
]
HEADS = [f"{package}.__init__" for package in PLAN]  # a docstring and nothing else
# The face: files that hold nothing but names of the core.
FACE = ("__init__", "errors", "events", "models", "points", "runtimes", "storage")
# The doors stand on the face and on neighbours of their own package.
DOORS = (
    *(
        "cli",
        "dialogue",
        "discovery",
        "durable",
        "formats",
        "hooks",
        "mcp",
        "otel",
        "providers",
        "stores",
        "streams",
        "testing",
    ),
    *("web", "__main__"),
)
# The command line is a door that stands on other doors; MCP has the providers' bounded bodies.
NEIGHBOURS = {
    "__main__": {"cli"},
    "cli": {"mcp", "providers", "testing", "web"},
    "mcp": {"providers"},
}

# What one chat is made of: it reaches the world through the runtime alone.
LOOP = [
    *("_chat.loop", "_chat.step", "_chat.resume", "_chat.ending", "_chat.batch", "_chat.run_tool"),
    *("_chat.results", "_chat.answer", "_chat.approval", "_chat.request"),
    *("_model.assembly", "_model.chunks", "_chat.call", "_chat.commit", "_chat.shown"),
    *("_chat.state", "_base.returns"),
    "_chat.speaker",
]


def _name(path: Path) -> str:
    return ".".join(path.relative_to(PACKAGE).with_suffix("").parts)


TREES = {_name(path): ast.parse(path.read_text()) for path in sorted(PACKAGE.rglob("*.py"))}
MODULES = every(TREES)
CORE = [name for name in TREES if name.startswith("_") and not name.startswith("__")]


def _imports(tree: ast.AST) -> Iterator[tuple[ast.stmt, str, list[str]]]:
    """Each import: where it stands, of which module, and which names."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative imports are not used"
            yield node, node.module or "", [alias.name for alias in node.names]
        elif isinstance(node, ast.Import):
            for alias in node.names:
                yield node, alias.name, []


def _first_party(tree: ast.AST) -> Iterator[tuple[ast.stmt, str]]:
    """Each module of ours that is imported; the face is `__init__`."""
    for node, module, names in _imports(tree):
        if module == "hookline" and names and all(name in TREES for name in names):
            yield from ((node, name) for name in names)  # `from hookline import _points`
        elif module.split(".")[0] == "hookline":
            yield node, module.removeprefix("hookline").removeprefix(".") or "__init__"


# ── imports ─────────────────────────────────────────────────────────────────────────────────


def test_the_plan_knows_every_module() -> None:
    """A new module gets its place in the list above, where one sees what it may import."""
    doors = [name for name in TREES if name.split(".")[0] in DOORS]
    assert sorted([*INSIDE, *HEADS, *FACE, *doors]) == sorted(TREES)
    assert len(set(INSIDE)) == len(INSIDE)


@every(CORE)
def test_imports_go_down_only(module: str) -> None:
    below = INSIDE[: INSIDE.index(module)] if module in INSIDE else []
    imported = {name for _, name in _first_party(TREES[module])}
    assert imported <= set(below), f"not below {module}: {sorted(imported - set(below))}"


@every(CORE)
def test_insiders_never_import_the_face_or_a_door(module: str) -> None:
    imported = {name for _, name in _first_party(TREES[module])}
    assert all(name.startswith("_") and name != "__init__" for name in imported)


@every(FACE)
def test_the_face_imports_the_core_and_never_a_door(module: str) -> None:
    assert {name for _, name in _first_party(TREES[module])} <= set(INSIDE)


@every([name for name in TREES if name.split(".")[0] in DOORS])
def test_doors_import_only_the_face_and_their_neighbours(module: str) -> None:
    package = module.split(".")[0]
    near = {package, *NEIGHBOURS.get(package, ())}
    for _, name in _first_party(TREES[module]):
        assert name in FACE or name.split(".")[0] in near, name


@MODULES
def test_no_first_party_import_hides_under_type_checking_or_in_a_function(module: str) -> None:
    tree = TREES[module]
    at_the_top = {id(node) for node in tree.body}
    hidden = [name for node, name in _first_party(tree) if id(node) not in at_the_top]
    assert hidden == []


@every([*CORE, *FACE])
def test_the_core_imports_no_third_party_but_these(module: str) -> None:
    """No provider, store, web, relay or telemetry: those are adapters over public hooks.

    What is optional is imported where it is used, in a function.
    """
    for node, name, _ in _imports(TREES[module]):
        top = name.split(".")[0]
        if node in TREES[module].body and top not in sys.stdlib_module_names:
            assert top in ("hookline", "msgspec", "anyio", "typing_extensions"), name


def test_importing_hookline_loads_no_extra() -> None:
    code = (
        "import sys, hookline\n"
        "extras = 'aiostream aiosqlite anthropic asyncpg google openai opentelemetry pydantic'\n"
        "extras += ' sqlalchemy starlette uvicorn hookline.streams hookline.testing hookline.web'\n"
        "extras += ' hookline.discovery hookline.hooks hookline.providers hookline.otel'\n"
        "extras += ' hookline.formats hookline.stores hookline.cli cyclopts redis rich'\n"
        "extras += ' hookline.durable hookline.mcp hookline.dialogue sqlite3'\n"
        "extras += ' restate hypercorn httpx absurdctl'\n"
        "print([name for name in extras.split() if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stderr


# ── the loop ────────────────────────────────────────────────────────────────────────────────

WORLD = {
    "concurrent", "datetime", "multiprocessing", "os", "pathlib", "random", "secrets", "signal",
    "socket", "sqlite3", "subprocess", "threading", "time", "urllib", "uuid",
}  # fmt: skip
# Words about a cancellation that is under way, and a lock for what runs side by side in one task.
# The thread of a sync tool is the one thing that is begun here, inside the step that runs the tool.
HOOKS = ("_hooks.one_hook", "_hooks.call_rules", "_hooks.wrappers", "_hooks.bus")
ALLOWED = {"asyncio": {"CancelledError", "Lock", "current_task"}, "anyio": {"to_thread"}}


def _used(tree: ast.AST, package: str) -> set[str]:
    """The names of a package that a module uses."""
    used: set[str] = set()
    for _, module, names in _imports(tree):
        if module == package:
            used |= set(names)
        elif module.startswith(f"{package}."):
            used.add(module.split(".")[1])
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            used |= {node.attr} if node.value.id == package else set()
    return used


@every(LOOP)
def test_the_loop_asks_no_clock_draws_no_number_and_does_no_io(module: str) -> None:
    imported = {name.split(".")[0] for _, name, _ in _imports(TREES[module])}
    assert imported & WORLD == set()


@every([*LOOP, *HOOKS], ALLOWED)
def test_the_loop_starts_no_task_and_sets_no_timer(module: str, package: str) -> None:
    assert _used(TREES[module], package) <= ALLOWED[package]


def test_the_call_rules_have_a_clock_only_to_tell_on_hook_how_long_a_hook_took() -> None:
    names = [names for _, module, names in _imports(TREES["_hooks.call_rules"]) if module == "time"]
    assert names == [["perf_counter"]]
    imported = {name.split(".")[0] for _, name, _ in _imports(TREES["_hooks.call_rules"])}
    assert imported & WORLD == {"time"}


# ── no yield where a scope is open ──────────────────────────────────────────────────────────

SCOPES = {
    "TaskGroup", "create_task_group", "CancelScope", "fail_after", "fail_at", "move_on_after",
    "move_on_at", "timeout", "timeout_at", "use_span", "start_as_current_span",
}  # fmt: skip
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


def _yields(node: ast.AST) -> Iterator[int]:
    """The lines that yield in this block, not those of functions in it."""
    if isinstance(node, (ast.Yield, ast.YieldFrom)):
        yield node.lineno
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, FUNCTIONS):
            yield from _yields(child)


def _yields_in_scopes(tree: ast.AST) -> list[int]:
    found: list[int] = []
    for node in ast.walk(tree):
        if isinstance(node, (ast.With, ast.AsyncWith)):
            names = {
                getattr(part, "attr", getattr(part, "id", ""))
                for item in node.items
                for part in ast.walk(item.context_expr)
            }
            if names & SCOPES:
                found += [line for each in node.body for line in _yields(each)]
    return found


@MODULES
def test_nothing_yields_inside_a_cancel_scope_a_task_group_or_a_current_span(module: str) -> None:
    assert _yields_in_scopes(TREES[module]) == []


def test_the_search_for_such_yields_finds_one() -> None:
    code = "async def f():\n async with asyncio.timeout(1):\n  if 1:\n   yield 2\n"
    assert _yields_in_scopes(ast.parse(code)) == [4]
    harmless = "async def f():\n async with aclosing(x):\n  yield 2\n"
    assert _yields_in_scopes(ast.parse(harmless)) == []


# ── the face ────────────────────────────────────────────────────────────────────────────────

FACES = [*FACE, "hooks.__init__", "testing.__init__", "providers.__init__"]


def _all(module: str) -> list[str]:
    name = "hookline." + module
    names: list[str] = importlib.import_module(name.removesuffix(".__init__")).__all__
    return names


def _place(name: str) -> tuple[int, str]:
    """CONSTANTS, then Classes, then the rest, as the linter sorts them."""
    return (0 if name.isupper() else 1 if name[0].isupper() else 2), name


@every(FACES)
def test_all_is_sorted_and_complete(module: str) -> None:
    names = _all(module)
    assert names == sorted(names, key=_place)
    imported = [each for _, _, names in _imports(TREES[module]) for each in names]
    assert sorted(names) == sorted(imported)


@every(FACES)
def test_the_face_holds_nothing_but_names(module: str) -> None:
    docstring, *imports, last = TREES[module].body
    assert isinstance(docstring, ast.Expr)
    assert all(isinstance(node, ast.ImportFrom) for node in imports)
    assert isinstance(last, ast.Assign)
    assert ast.unparse(last.targets[0]) == "__all__"


@every(FACES)
def test_every_name_of_the_face_is_there(module: str) -> None:
    home = importlib.import_module(("hookline." + module).removesuffix(".__init__"))
    for name in _all(module):
        assert hasattr(home, name)


def _classes(module: object, base: type) -> set[str]:
    return {
        name
        for name, value in vars(module).items()
        if isinstance(value, type) and issubclass(value, base) and not name.startswith("_")
    }


def test_every_exception_of_ours_stands_in_errors() -> None:
    assert _classes(_errors, HooklineError) == set(hookline.errors.__all__)


def test_every_event_stands_in_events() -> None:
    assert _classes(_events, _events.Event) <= set(hookline.events.__all__)


def test_every_context_stands_in_points() -> None:
    assert {head.context.__name__ for head in TABLE.values()} <= set(hookline.points.__all__)


def test_every_chunk_stands_in_models() -> None:
    chunks = {name for name in vars(_model) if name.endswith("Chunk")} | {
        "Chunk",
        "Delta",
        "Finish",
    }
    assert chunks <= set(hookline.models.__all__)


def test_the_tree_in_the_head_of_errors_draws_every_exception() -> None:
    assert _errors.__doc__ is not None
    for name in hookline.errors.__all__:
        assert name in _errors.__doc__


def test_no_test_of_the_suite_has_a_deadline() -> None:
    """One Hypothesis profile, in conftest.py, decides: no test may fail for being slow."""
    assert settings().deadline is None
    set_elsewhere = [
        str(path)
        for path in Path(__file__).parent.rglob("*.py")
        if path.name not in ("conftest.py", Path(__file__).name) and "deadline=" in path.read_text()
    ]
    assert set_elsewhere == []


# ── heads and sizes ─────────────────────────────────────────────────────────────────────────


MECHANISMS = {
    *(
        "_base.journal",
        "_chat.batch",
        "_chat.life",
        "_chat.supervisor",
        "_chat.channel",
        "_hooks.call_rules",
    ),
}
"""These tell their theory of operation."""


@MODULES
def test_a_module_opens_by_saying_what_lives_here(module: str) -> None:
    text = ast.get_docstring(TREES[module])
    assert text
    if module != "_base.errors":  # which draws the tree of all exceptions
        assert len(text.splitlines()) <= (30 if module in MECHANISMS else 15)


# Modules above 330 lines, and why they are not split.
LONG_MODULES = {
    "_agent": "all that an agent may be told is explained in one place",
    "_asks": "the keywords of a chat, spelled out for each of its forms",
    "_base.errors": "the tree of errors is one",
    "_base.journal": "replaying, running and ending are one order of steps",
    "_base.messages": "the nouns of a conversation belong together",
    "_base.returns": "what hooks and persons answer is told in one place",
    "_base.runtime": "the seam to the environment is one: its keys, its protocol, its local form",
    "_chat.answer": "a chunk's way through hooks to its event is one piece",
    "_chat.batch": "the order of the calls of an answer is one decision",
    "_chat.state": "nothing else changes the state of a chat",
    "_chat.supervisor": "facts about asyncio's cancellation stay in one file",
    "_hooks.bus": "the methods of a bus, with the signature that users see",
    "_hooks.points": "the table is one",
    "durable._absurd": "every statement on the tables of Absurd stands in one file",
    "durable._sqlite": "every statement on the tables of a file of jobs stands in one file",
    "_model.tool": "the options of a tool, spelled out for each way to make one",
    "_talk.conversation": "what users and chats may do with one list of messages",
    "mcp._server": "a server's connection and its scope live and die together",
    "stores.sql": "each method of a store with its one transaction",
    "_talk.store": "the protocol of a store, and the values that it takes",
    "streams": "the types of two operators are written out for mypy",
    "testing._wire_formats": "the formats of four providers",
    "testing._wire_habits": "what servers do differently, a function for each",
}


@MODULES
def test_a_module_has_330_lines_at_most_unless_the_list_says_why(module: str) -> None:
    path = PACKAGE / f"{module.replace('.', '/')}.py"
    if path.is_file() and module != "_hooks.typed":  # which is generated
        lines = path.read_text().splitlines()
        generated = [
            node
            for node in ast.walk(TREES[module])
            if isinstance(node, ast.If) and lines[node.lineno - 1].endswith("scripts/generate.py")
        ]
        length = len(lines) - sum((node.end_lineno or 0) - node.lineno + 2 for node in generated)
        assert (length > 330) == (module in LONG_MODULES)


LONG = {
    ("_chat.answer", "_stream"),  # the hot way of a chunk, where each call would be paid for
    ("_asks", "chat"),  # all that a chat may be told
    ("cli._main", "serve"),  # all that a server may be told
    ("web._app", "app"),  # all that an application may be told
    ("_agent", "__init__"),  # all that an agent may be told, each in its line
    ("web._app", "app"),  # all that an application may be told, each in its line
    ("_chat.state", "__init__"),  # all that a chat holds
}


@MODULES
def test_a_function_is_about_50_lines_and_takes_six_things_by_place(module: str) -> None:
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    for node in ast.walk(TREES[module]):
        if isinstance(node, kinds):
            inner = [each for each in ast.walk(node) if isinstance(each, kinds) and each != node]
            lines = _lines(node) - sum(map(_lines, inner))
            assert lines <= 60 or (module, node.name) in LONG, (node.name, lines)
            given = [each.arg for each in (*node.args.posonlyargs, *node.args.args)]
            assert len([each for each in given if each not in ("self", "cls")]) <= 6, node.name


def _lines(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    return (node.end_lineno or 0) - node.lineno + 1


# Cyclomatic complexity above 15, and why it is worth it.
COMPLEX: dict[tuple[str, str], str] = {
    ("_base.json", "_checked"): "one branch for each kind of JSON value",
    ("_chat.answer", "_stream"): "the hot way of a chunk",
    ("_hooks.call_rules", "_drive"): "the loop of all hooks but wrappers, read as one",
    ("_model.callables", "parse_docstring"): "three styles of docstrings",
    ("_model.chunks", "checked"): "one branch for each kind of chunk",
    ("_model.issues", "_inside"): "one branch for each kind of type",
    ("_model.schema", "inspect_callable"): "one check for each kind of parameter",
    ("providers._failures", "told"): "one branch for each form of a server's error",
    ("providers._kinds", "kind_of"): "one branch for each status",
    ("stores._url", "_postgres"): "one branch for each form of address",
    ("testing._wire", "pieces"): "one branch for each kind of part",
    ("web._ag_ui", "_act"): "one branch for each act",
    ("web._ai_sdk", "_act"): "one branch for each act",
    ("web._outline", "_take"): "one branch for each event",
    ("web._record", "put"): "one branch for each event",
    ("web._protocols", "encoder_for"): "one branch for each protocol",
}


BRANCHES = (
    *(ast.If, ast.For, ast.AsyncFor, ast.While, ast.IfExp),
    *(ast.ExceptHandler, ast.match_case),
)


def _complexity(function: ast.AST) -> int:
    """1, and 1 for each place where the flow may take another way."""
    count = 1
    for node in _own(function):
        if isinstance(node, BRANCHES):
            count += 1
        elif isinstance(node, ast.BoolOp):
            count += len(node.values) - 1
        elif isinstance(node, ast.comprehension):
            count += 1 + len(node.ifs)
    return count


def _own(function: ast.AST) -> Iterator[ast.AST]:
    """The nodes of a function, without those of functions and classes in it."""
    for node in ast.iter_child_nodes(function):
        yield node
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield from _own(node)


@MODULES
def test_a_function_has_a_complexity_of_15_at_most(module: str) -> None:
    for node in ast.walk(TREES[module]):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            assert _complexity(node) <= 15 or (module, node.name) in COMPLEX, node.name


@MODULES
def test_a_class_has_25_slots_or_fields_at_most(module: str) -> None:
    for node in ast.walk(TREES[module]):
        if isinstance(node, ast.ClassDef):
            slots = [
                len(each.value.elts)
                for each in node.body
                if isinstance(each, ast.Assign) and isinstance(each.value, ast.Tuple)
                if ast.unparse(each.targets[0]) == "__slots__"
            ]
            fields = [each for each in node.body if isinstance(each, ast.AnnAssign)]
            assert max(len(fields), *slots, 0) <= 25, node.name


def test_the_face_is_small() -> None:
    assert len(hookline.__all__) <= 60  # past about 50, a name wants a door


# ── what the log may say ────────────────────────────────────────────────────────────────────

# From INFO up, records hold names and types. An exception's text, a reason or a reply may hold what
# a user wrote, or a driver's parameters and hosts.
LOUD = {"info", "warning", "error", "critical", "exception", "log", "log_throw"}
UNTOLD = {"exc", "error", "reason", "cause", "message", "text", "said", "content", "traceback"}


def _records(tree: ast.AST) -> Iterator[ast.Call]:
    """Each call that writes to the log from INFO up."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        if isinstance(node.func, ast.Name) and node.func.id == "log_throw":
            yield node
        elif isinstance(node.func, ast.Attribute) and node.func.attr in LOUD:
            logger = ast.unparse(node.func.value)
            if logger.rpartition(".")[2].strip("_") in ("logger", "log", "out"):
                yield node


def _told(node: ast.AST) -> Iterator[str]:
    """The values that a record shows; of `type(exc)` and `error.type` the type alone."""
    if isinstance(node, ast.Call) and ast.unparse(node.func) == "type":
        return
    if isinstance(node, ast.Attribute):
        yield node.attr
        if not isinstance(node.value, ast.Name):
            yield from _told(node.value)
        return
    if isinstance(node, ast.Name):
        yield node.id
    for child in ast.iter_child_nodes(node):
        yield from _told(child)


def _shown_by(call: ast.Call) -> set[str]:
    arguments: list[ast.expr] = [*call.args, *[each.value for each in call.keywords]]
    if isinstance(call.func, ast.Name):  # log_throw shows the type of its second argument
        arguments = arguments[:1]
    return {name for each in arguments for name in _told(each)}


# `log_events` is asked by its user to log what is said, at the length and level that they choose.
@every([name for name in TREES if name != "hooks._logging"])
def test_no_record_from_info_up_formats_an_exception_or_a_reason(module: str) -> None:
    caught = {
        node.name
        for node in ast.walk(TREES[module])
        if isinstance(node, ast.ExceptHandler) and node.name
    }
    for call in _records(TREES[module]):
        assert not _shown_by(call) & (UNTOLD | caught), f"line {call.lineno}"
        assert ast.unparse(call.func) != "logger.exception", f"line {call.lineno}"
        assert "exc_info" not in {each.arg for each in call.keywords}, f"line {call.lineno}"


@pytest.mark.parametrize(
    ("line", "shows"),
    [
        ("logger.warning('%s: %s', self.id, exc)", {"exc"}),
        ("logger.info(f'abort({reason!r})')", {"reason"}),
        ("_log.error('%s', str(self.error))", {"error"}),
        ("log_throw(f'chat: {exc}', exc)", {"exc"}),
        ("logger.error('%s', type(exc).__name__)", set()),
        ("logger.error('%s', error.type)", set()),
        ("log_throw(f'chat {chat.chat_id}', exc)", set()),
        ("logger.debug('%s', exc)", set()),
    ],
)
def test_what_a_record_shows_is_found(line: str, shows: set[str]) -> None:
    found = {name for call in _records(ast.parse(line)) for name in _shown_by(call)}
    assert found & UNTOLD == shows
