"""The house rules that a machine can read off the source."""

from __future__ import annotations

import ast
import importlib
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
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

REPOSITORY = Path(__file__).resolve().parent.parent
PACKAGE = Path(hookline.__file__).parent

# The plan, from the ground up: a package imports only what comes before it, and a module of a
# package only what comes before it there.
PLAN = {
    "_base": (
        "log",
        "cancel",
        "errors",
        "lists",
        "numbers",
        "frozen",
        "json",
        "messages",
        "returns",
        "events",
        "forks",
        "input",
        "patterns",
        "run",
        "visible",
    ),
    "_record": (
        "runtime",
        "format",
        "order",
        "journal",
        "durable",
    ),
    "_tools": (
        "bounded",
        "callables",
        "check",
        "foreign",
        "constraints",
        "issues",
        "schema",
        "tool",
        "scopes",
    ),
    "_model": (
        "model",
        "assembly",
        "chunks",
        "partial",
        "output",
        "prices",
        "prefix",
    ),
    "_hooks": (
        "points",
        "option_checks",
        "registration",
        "one_hook",
        "call_rules",
        "subscribe",
        "typed",
        "wrappers",
        "bus",
        "declared",
        "plugins",
        "scope_hooks",
        "sources",
        "views",
    ),
    "_conversations": (
        "history",
        "store",
        "ledger",
        "state",
        "conversation",
        "rules",
        "memory",
    ),
    "_chat": (
        "channel",
        "config",
        "leading_tools",
        "asking",
        "life",
        "recorder",
        "inbox",
        "state",
        "call",
        "reach",
        "request",
        "shown",
        "answer",
        "results",
        "guards",
        "rules",
        "child_history",
        "run_tool",
        "approval",
        "child_answers",
        "commit",
        "steering",
        "batch",
        "ending",
        "speaker",
        "entry",
        "output",
        "step",
        "resume",
        "loop",
        "supervisor",
        "stream",
        "update",
    ),
}
# The doors, each from the ground up by the same rule.
DOOR_PLANS = {
    "stores": (
        "_schema",
        "_url",
        "_connections",
        "_rows",
        "_leases",
        "_sql_store",
    ),
    "formats": (
        "_read",
        "_anthropic",
        "_openai",
    ),
    "replay": (
        "_records",
        "_cassettes",
        "_audits",
        "_sources",
        "_fork",
        "_offline",
        "_player",
        "_report",
        "_replay",
    ),
    "testing": (
        "_descriptions",
        "_events",
        "_request_checks",
        "_turn",
        "_script",
        "_expect",
        "_hook_recorder",
        "_spans",
        "_time",
        "_memory_log",
        "cassette._shape",
        "cassette._scrub",
        "cassette._difference",
        "cassette._tracks",
        "cassette._model",
        "cassette._hook_chats",
        "cassette._calls",
        "cassette._cassette",
        "cassette._context_manager",
        "cassette.__init__",
        "_guards.call_path",
        "_guards.basic_paths",
        "_guards.waiting_paths",
        "_guards.durable_paths",
        "_guards.sub_agent_calls",
        "_guards.sub_agent_tools",
        "_guards.path_table",
        "_guards.probe",
        "_prefix",
        "doors._request",
        "doors._web_paths",
        "doors._mcp_paths",
        "doors.__init__",
        "explore._arguments",
        "explore._scene",
        "explore._world",
        "explore._search",
        "explore.__init__",
        "_model_server",
        "sandbox_suite._attacks",
        "sandbox_suite._suite",
        "sandbox_suite.__init__",
    ),
    "hooks": (
        "_common",
        "_logs.jsonl_file",
        "_logs.audit",
        "_logs.log",
        "_guards.allow_tools",
        "_guards.approve",
        "_guards.shell_expansion",
        "_guards.shell_commands",
        "_guards.deny_commands",
        "_guards.pin_tools",
        "_guards.rate_limit",
        "_guards.review",
        "_context.window",
        "_context.summarize",
        "_context.watch_prefix",
        "_spending.accounts",
        "_spending.usage_meter",
        "_spending.budget",
        "_text.by_sentence",
        "_text.guardrail_checks",
        "_text.guardrail",
        "_text.text_redactor",
        "_text.redact_objects",
        "_text.redact",
        "_requests.cache",
        "_requests.retry",
    ),
    "otel": (
        "_conventions.names",
        "_conventions.openinference",
        "_emit.own_failures",
        "_emit.content",
        "_emit.log_events",
        "_emit.metrics",
        "_emit.emitter",
        "_emit.spans",
        "_chat.attributes",
        "_chat.continuation_links",
        "_chat.trace",
        "_chat.agent_span",
        "_chat.model_call",
        "_chat.span_events",
        "_chat.tool_call",
        "_chat.hooks",
        "_telemetry",
        "_setup",
    ),
    "providers": (
        "_adapter.json_fields",
        "_adapter.request_parts",
        "_adapter.response_files",
        "_adapter.errors.details",
        "_adapter.errors.kinds",
        "_adapter.http_limits",
        "_adapter.sse",
        "_adapter.errors.failures",
        "_adapter.clients",
        "_adapter.ids",
        "_adapter.schemas",
        "_adapter.merged_settings",
        "_adapter.streaming",
        "_adapter.connection",
        "tools",
        "anthropic._request",
        "anthropic._reader",
        "anthropic._model",
        "anthropic.__init__",
        "google._request",
        "google._reader",
        "google._model",
        "google.__init__",
        "openai._request",
        "openai._reader",
        "openai._model",
        "openai.__init__",
        "openai_chat._request",
        "openai_chat._think_tags",
        "openai_chat._reader",
        "openai_chat._model",
        "openai_chat.__init__",
        "presets",
        "kit",
    ),
    "mcp": (
        "_errors",
        "_telemetry",
        "_client.connection",
        "_client.tools",
        "_client.results",
        "_client.transport.sdk_log",
        "_client.transport.process",
        "_client.transport.http",
        "_client.call",
        "_client.pool",
        "_client.server",
        "_client.config",
        "_client.transport.addresses",
        "_client.transport.oauth",
        "_server.application",
        "_server.questions",
        "_server.serve",
    ),
    "durable": (
        "_job",
        "_status",
        "_timeline",
        "_trace",
        "_client",
        "_deploy_check",
        "_urls",
        "_shared.extra",
        "_shared.deaths",
        "_shared.outcome_waits",
        "_shared.same_machine",
        "_polled.schema",
        "_polled.database",
        "_polled.claims",
        "_polled.client_operations",
        "_polled.worker_operations",
        "_polled.metrics",
        "_polled.chat_life",
        "_polled.suspects",
        "_polled.worker",
        "postgres._connection",
        "postgres.__init__",
        "restate._journal_entries",
        "restate._deaths",
        "restate._requests",
        "restate._admin",
        "restate._slots",
        "restate._reports",
        "restate._operator_requests",
        "restate.__init__",
        "restate._messages",
        "restate._workflow",
        "restate._services",
        "sqlite._file",
        "sqlite.__init__",
    ),
    "web": (
        "_http.extra",
        "_http.sse",
        "_http.request_reply",
        "_http.access",
        "_runs.run_header",
        "_runs.backlog",
        "_runs.store_keys",
        "_runs.hook_points",
        "_runs.pending_requests",
        "_runs.run",
        "_runs.registry",
        "_runs.titles",
        "_protocols.incoming",
        "_protocols.client_messages",
        "_protocols.outgoing_files",
        "_protocols.answer_changes",
        "_protocols.ag_ui.messages",
        "_protocols.masked_texts",
        "_protocols.sub_agents",
        "_protocols.answer_structure",
        "_protocols.ai_sdk.encoder",
        "_protocols.ag_ui.encoder",
        "_protocols.ag_ui.state",
        "_protocols.ai_sdk.messages",
        "_protocols.ai_sdk.request",
        "_protocols.native.encoder",
        "_protocols.native.messages",
        "_protocols.table",
        "relay._redis",
        "relay._reader",
        "relay._codec",
        "relay._writer",
        "relay._remote_observers",
        "relay._commands",
        "relay._durable.earlier_lives",
        "relay._durable.chats",
        "relay._messages",
        "relay._remote_runs",
        "relay._relay",
        "relay.__init__",
        "_page.files",
        "_page.markdown",
        "_page.markdown_parser",
        "_page.step_details",
        "_page.recorder",
        "_page.timeline_store",
        "_page.run_observers",
        "_site.answers.connection",
        "_site.conversations",
        "_site.run_start",
        "_site.durable",
        "_site.error_statuses",
        "_site.config",
        "_site.answers.streaming",
        "_site.answers.answer",
        "_site.answers.responses",
        "_site.inbox",
        "_site.policy_trials",
        "_site.conversation_routes",
        "_site.page_routes",
        "_site.application",
        "_app",
    ),
    "workspace": (
        "_errors",
        "_commands.plain",
        "_commands.risky_programs",
        "_commands.rules",
        "_files.openat",
        "_files.root",
        "_files.text",
        "_files.diff",
        "_files.safe_write",
        "_files.access",
        "_files.protected_files",
        "_sandbox.protocol",
        "_sandbox.seccomp",
        "_sandbox.job",
        "_sandbox.bwrap",
        "_sandbox.unconfined",
        "_sandbox.commands",
        "_tools.seen_files",
        "_tools.outputs",
        "_tools.read",
        "_tools.offload",
        "_tools.search",
        "_tools.file_change",
        "_snapshots",
        "_tools.write",
        "_tools.bash",
        "_tools.plan",
        "_tools.skills",
        "_guard",
        "_workspace",
        "_tenants",
    ),
    "cli": (
        "_target",
        "_help",
        "_options",
        "_terminal.clean_text",
        "_terminal.text_layout",
        "_terminal.styled_lines",
        "_terminal.hook_lines",
        "_terminal.screen",
        "_terminal.call_notes",
        "_terminal.error_texts",
        "_terminal.markdown",
        "_terminal.live_markdown",
        "_terminal.output",
        "_terminal.prompts",
        "_probe.resume",
        "_probe.second_process",
        "_commands.approvals",
        "_commands.conversations",
        "_commands.durable_lines",
        "_commands.durable",
        "_commands.workspace",
        "_commands.chat_setup",
        "_commands.chat_session",
        "_commands.chat",
        "_commands.check",
        "_commands.hooks",
        "_commands.init",
        "_commands.mcp",
        "_commands.models",
        "_commands.replay",
        "_commands.workers",
        "_commands.reload",
        "_commands.serve",
        "_main",
    ),
}
GROUND = ("_version",)
ROOF = ("_resolve", "_chat_methods", "_agent")
INSIDE = [
    *GROUND,
    *(f"{package}.{module}" for package, modules in PLAN.items() for module in modules),
    *ROOF,
]
HEADS = [f"{package}.__init__" for package in PLAN]  # a docstring and nothing else
# The face: files that hold nothing but names of the core.
FACE = ("__init__", "errors", "events", "models", "points", "runtimes", "storage")
# The doors stand on the face and on neighbours of their own package.
DOORS = (*DOOR_PLANS, "dialogue", "discovery", "streams", "__main__")
IN_DOORS = [f"{door}.{module}" for door, modules in DOOR_PLANS.items() for module in modules]
# The command line is a door that stands on other doors; MCP has the providers' bounded bodies.
NEIGHBOURS = {
    "__main__": {"cli"},
    "cli": {"durable", "hooks", "mcp", "providers", "replay", "testing", "web", "workspace"},
    "mcp": {"providers"},
    "replay": {"durable", "testing"},
    "testing": {"hooks", "mcp", "web", "workspace"},
    "web": {"durable", "replay"},
    "workspace": {"hooks"},
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


PATHS = {_name(path): path for path in sorted(PACKAGE.rglob("*.py"))}
MODULES = every(PATHS)
CORE = [name for name in PATHS if name.startswith("_") and not name.startswith("__")]


@cache
def _tree(module: str) -> ast.Module:
    return ast.parse(PATHS[module].read_text())


@cache
def _nodes(tree: ast.AST) -> list[ast.AST]:
    return list(ast.walk(tree))


@cache
def _imports(tree: ast.AST) -> list[tuple[ast.stmt, str, list[str]]]:
    """Each import: where it stands, of which module, and which names."""
    imports: list[tuple[ast.stmt, str, list[str]]] = []
    for node in _nodes(tree):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative imports are not used"
            imports.append((node, node.module or "", [alias.name for alias in node.names]))
        elif isinstance(node, ast.Import):
            imports += [(node, alias.name, []) for alias in node.names]
    return imports


def _first_party(tree: ast.AST) -> Iterator[tuple[ast.stmt, str]]:
    """Each module of ours that is imported; the face is `__init__`."""
    for node, module, names in _imports(tree):
        if module.split(".")[0] != "hookline":
            continue
        package = module.removeprefix("hookline").removeprefix(".")
        for name in names or [""]:  # `from hookline.otel._conventions import names`: a module
            inner = f"{package}.{name}".strip(".")
            yield node, inner if inner in PATHS else package or "__init__"


# ── imports ─────────────────────────────────────────────────────────────────────────────────


def test_the_plan_knows_every_module() -> None:
    """A new module gets its place in the list above, where one sees what it may import."""
    faces = [f"{door}.__init__" for door in DOOR_PLANS]
    planned = [*INSIDE, *HEADS, *FACE, *IN_DOORS, *faces, "dialogue", "discovery", "streams"]
    heads = [name for name in PATHS if name.endswith("__init__") and not _faces(name)]
    assert sorted({*planned, *heads, "__main__"}) == sorted(PATHS)
    assert len(set(planned)) == len(planned)


def _faces(module: str) -> bool:
    """Whether an `__init__` exports names; the others are a docstring and nothing else."""
    return any(isinstance(node, ast.ImportFrom) for node in _tree(module).body)


@every([name for name in PATHS if name.endswith("__init__") and name not in FACE])
def test_the_head_of_a_package_is_a_face_or_a_docstring(module: str) -> None:
    assert _faces(module) or len(_tree(module).body) == 1


@every(CORE)
def test_imports_go_down_only(module: str) -> None:
    below = INSIDE[: INSIDE.index(module)] if module in INSIDE else []
    imported = {name for _, name in _first_party(_tree(module))}
    assert imported <= set(below), f"not below {module}: {sorted(imported - set(below))}"


@every([name for name in PATHS if name.startswith("cli.")])
def test_the_command_line_uses_no_private_module_of_another_door(module: str) -> None:
    others = {name for _, name in _first_party(_tree(module)) if not name.startswith("cli.")}
    private = {name for name in others if any(part.startswith("_") for part in name.split("."))}
    assert private - {"__init__"} == set()


@every(IN_DOORS)
def test_imports_of_a_door_go_down_only(module: str) -> None:
    door = module.split(".")[0]
    below = IN_DOORS[: IN_DOORS.index(module)]
    imported = {name for _, name in _first_party(_tree(module)) if name.split(".")[0] == door}
    above = {name if name in PATHS else f"{name}.__init__" for name in imported} - set(below)
    assert not above, f"not below {module}: {sorted(above)}"


# Packages with more than 12 modules and packages in them, and why they are not grouped.
MANY_ROOMS: dict[str, str] = {
    "": "the core, the public modules and the doors, each under its name",
    "_base": "small modules of values without an order among them",
    "_chat": "the engine, whose groups follow from a smaller state",
    "cli._commands": "a module for each command",
    "_hooks": "the table, and the rules around it",
    "testing": "the parts of a test, each under its name",
}


def test_a_package_has_12_rooms_at_most_unless_the_list_says_why() -> None:
    rooms: dict[str, set[str]] = {}
    for name in PATHS:
        parts = name.removesuffix(".__init__").split(".")
        for place in range(len(parts)):
            rooms.setdefault(".".join(parts[:place]), set()).add(parts[place])
    many = {package for package, inside in rooms.items() if len(inside - {"__init__"}) > 12}
    assert many == set(MANY_ROOMS)


@every(CORE)
def test_insiders_never_import_the_face_or_a_door(module: str) -> None:
    imported = {name for _, name in _first_party(_tree(module))}
    assert all(name.startswith("_") and name != "__init__" for name in imported)


@every(FACE)
def test_the_face_imports_the_core_and_never_a_door(module: str) -> None:
    assert {name for _, name in _first_party(_tree(module))} <= set(INSIDE)


@every([name for name in PATHS if name.split(".")[0] in DOORS])
def test_doors_import_only_the_face_and_their_neighbours(module: str) -> None:
    package = module.split(".")[0]
    near = {package, *NEIGHBOURS.get(package, ())}
    for _, name in _first_party(_tree(module)):
        assert name in FACE or name.split(".")[0] in near, name


@MODULES
def test_no_first_party_import_hides_under_type_checking_or_in_a_function(module: str) -> None:
    tree = _tree(module)
    at_the_top = {id(node) for node in tree.body}
    hidden = [name for node, name in _first_party(tree) if id(node) not in at_the_top]
    assert hidden == []


@every([*CORE, *FACE])
def test_the_core_imports_no_third_party_but_these(module: str) -> None:
    """No provider, store, web, relay or telemetry: those are adapters over public hooks.

    What is optional is imported where it is used, in a function.
    """
    for node, name, _ in _imports(_tree(module)):
        top = name.split(".")[0]
        if node in _tree(module).body and top not in sys.stdlib_module_names:
            assert top in ("hookline", "msgspec", "anyio", "typing_extensions"), name


def test_importing_hookline_loads_no_extra() -> None:
    code = (
        "import sys, hookline\n"
        "extras = 'aiostream aiosqlite anthropic asyncpg google openai opentelemetry pydantic'\n"
        "extras += ' sqlalchemy starlette uvicorn hookline.streams hookline.testing hookline.web'\n"
        "extras += ' hookline.discovery hookline.hooks hookline.providers hookline.otel'\n"
        "extras += ' hookline.formats hookline.stores hookline.cli cyclopts redis rich'\n"
        "extras += ' hookline.durable hookline.mcp hookline.dialogue sqlite3'\n"
        "extras += ' restate hypercorn httpx hookline.workspace ctypes'\n"
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
    for node in _nodes(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            used |= {node.attr} if node.value.id == package else set()
    return used


@every(LOOP)
def test_the_loop_asks_no_clock_draws_no_number_and_does_no_io(module: str) -> None:
    imported = {name.split(".")[0] for _, name, _ in _imports(_tree(module))}
    assert imported & WORLD == set()


@every([*LOOP, *HOOKS], ALLOWED)
def test_the_loop_starts_no_task_and_sets_no_timer(module: str, package: str) -> None:
    assert _used(_tree(module), package) <= ALLOWED[package]


def test_the_call_rules_have_a_clock_only_to_tell_on_hook_how_long_a_hook_took() -> None:
    names = [names for _, module, names in _imports(_tree("_hooks.call_rules")) if module == "time"]
    assert names == [["perf_counter"]]
    imported = {name.split(".")[0] for _, name, _ in _imports(_tree("_hooks.call_rules"))}
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
    for node in _nodes(tree):
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
    assert _yields_in_scopes(_tree(module)) == []


def test_the_search_for_such_yields_finds_one() -> None:
    code = "async def f():\n async with asyncio.timeout(1):\n  if 1:\n   yield 2\n"
    assert _yields_in_scopes(ast.parse(code)) == [4]
    harmless = "async def f():\n async with aclosing(x):\n  yield 2\n"
    assert _yields_in_scopes(ast.parse(harmless)) == []


# ── the face ────────────────────────────────────────────────────────────────────────────────

FACES = [*FACE, "hooks.__init__", "testing.__init__", "providers.__init__"]
FACES += ["providers.kit", "mcp.__init__", "stores.__init__", "formats.__init__"]


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
    imported = [each for _, _, names in _imports(_tree(module)) for each in names]
    assert sorted(names) == sorted(imported)


@every(FACES)
def test_the_face_holds_nothing_but_names(module: str) -> None:
    docstring, *imports, last = _tree(module).body
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
        "_record.journal",
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
    text = ast.get_docstring(_tree(module))
    assert text
    if module != "_base.errors":  # which draws the tree of all exceptions
        assert len(text.splitlines()) <= (30 if module in MECHANISMS else 15)


# Modules above 330 lines, and why they are not split.
LONG_MODULES = {
    "_agent": "all that an agent may be told is explained in one place",
    "_chat_methods": "the keywords of a chat, spelled out for each of its forms",
    "_base.errors": "the tree of errors is one",
    "_record.journal": "replaying, running and ending are one order of steps",
    "_base.messages": "the nouns of a conversation belong together",
    "_base.returns": "what hooks and persons answer is told in one place",
    "_record.runtime": "the seam to the environment is one: its keys, its protocol, its local form",
    "_chat.answer": "a chunk's way through hooks to its event is one piece",
    "_chat.batch": "the order of the calls of an answer is one decision",
    "_chat.state": "nothing else changes the state of a chat",
    "_chat.supervisor": "facts about asyncio's cancellation stay in one file",
    "_hooks.bus": "the methods of a bus, with the signature that users see",
    "_hooks.points": "the table is one",
    "durable._client": "the methods of clients and operators, as users see them",
    "durable._polled.client_operations": "each statement of clients and operators is here",
    "_tools.scopes": "a scope, and the scopes of an agent with their one lock",
    "_tools.tool": "the options of a tool, spelled out for each way to make one",
    "_conversations.state": "what a chat does with one list of messages",
    "cli._commands.durable": "every command with its options",
    "mcp._client.server": "a server's connection and its scope live and die together",
    "stores._sql_store": "each method of a store with its one transaction",
    "_conversations.store": "the protocol of a store, and the values that it takes",
    "web._protocols.answer_structure": "which parts of an answer are open is one state",
    "web._protocols.ag_ui.encoder": "the frames of each change",
    "web._protocols.ai_sdk.encoder": "the frames of each change",
    "web.relay._relay": "the methods of a relay, as users see them",
    "streams": "the types of two operators are written out for mypy",
}


@MODULES
def test_a_module_has_330_lines_at_most_unless_the_list_says_why(module: str) -> None:
    path = PACKAGE / f"{module.replace('.', '/')}.py"
    if path.is_file() and module != "_hooks.typed":  # which is generated
        lines = path.read_text().splitlines()
        generated = [
            node
            for node in _nodes(_tree(module))
            if isinstance(node, ast.If)
            and lines[node.lineno - 1].endswith("scripts/dev/generate.py")
        ]
        length = len(lines) - sum((node.end_lineno or 0) - node.lineno + 2 for node in generated)
        assert (length > 330) == (module in LONG_MODULES)


LONG = {
    ("_chat_methods", "chat"),  # all that a chat may be told
    ("web._protocols.table", "encoder_for"),  # the encoder of each protocol, with all its options
    ("web._app", "app"),  # all that an application may be told
    ("_agent", "__init__"),  # all that an agent may be told, each in its line
    ("web._app", "app"),  # all that an application may be told, each in its line
    ("_chat.state", "__init__"),  # all that a chat holds
}


@MODULES
def test_a_function_is_about_50_lines_and_takes_six_things_by_place(module: str) -> None:
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    for node in _nodes(_tree(module)):
        if isinstance(node, kinds):
            inner = [each for each in ast.walk(node) if isinstance(each, kinds) and each != node]
            lines = _lines(node) - sum(map(_lines, inner))
            assert lines <= 60 or (module, node.name) in LONG, (node.name, lines)
            given = [each.arg for each in (*node.args.posonlyargs, *node.args.args)]
            assert len([each for each in given if each not in ("self", "cls")]) <= 6, node.name


def _lines(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    return (node.end_lineno or 0) - node.lineno + 1


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
    for node in _nodes(_tree(module)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            assert _complexity(node) <= 15, node.name


@MODULES
def test_a_class_has_25_slots_or_fields_at_most(module: str) -> None:
    for node in _nodes(_tree(module)):
        if isinstance(node, ast.ClassDef):
            slots = [
                len(each.value.elts)
                for each in node.body
                if isinstance(each, ast.Assign) and isinstance(each.value, ast.Tuple)
                if ast.unparse(each.targets[0]) == "__slots__"
            ]
            fields = [each for each in node.body if isinstance(each, ast.AnnAssign)]
            assert max(len(fields), *slots, 0) <= 25, node.name


# ── what the tests of the doors import ──────────────────────────────────────────────────────

DOORS_TESTED = ("cli", "durable", "mcp", "otel", "providers", "stores", "web", "workspace")
PRIVATE_IMPORTERS = 21


def _private_names(path: Path) -> set[str]:
    """The private modules and names of hookline that a test imports, or replaces by their path."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and not node.level:
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.Constant):
            names.add(str(node.value))
    return {name for name in names if re.fullmatch(r"hookline\.(\w+\.)*_(?!_)[\w.]+", name)}


def test_few_tests_of_doors_import_a_private_module() -> None:
    """They use what a user has: the public names, the wire, the store, the events.

    When a file needs no private name any more, lower the number.
    """
    paths = [path for door in DOORS_TESTED for path in (REPOSITORY / "tests" / door).glob("*.py")]
    files = sorted(str(path.relative_to(REPOSITORY)) for path in paths if _private_names(path))
    assert len(files) == PRIVATE_IMPORTERS, "\n".join([f"{len(files)} files:", *files])


def test_the_search_for_private_names_finds_each_kind(tmp_path: Path) -> None:
    path = tmp_path / "test.py"
    private = ("hookline.web._runs.run.Live", "hookline._base.json", "hookline.mcp._errors")
    path.write_text(
        f"from hookline.web._runs.run import Live\nimport {private[1]}\npatch({private[2]!r})\n"
        "from hookline.web import app\nfrom hookline import __version__\nimport hookline.mcp\n"
    )
    assert _private_names(path) == set(private)


def test_the_face_is_small() -> None:
    assert len(hookline.__all__) <= 60  # past about 50, a name wants a door


# ── what the log may say ────────────────────────────────────────────────────────────────────

# From INFO up, records hold names and types. An exception's text, a reason or a reply may hold what
# a user wrote, or a driver's parameters and hosts.
LOUD = {"info", "warning", "error", "critical", "exception", "log", "log_throw"}
UNTOLD = {"exc", "error", "reason", "cause", "message", "text", "said", "content", "traceback"}


def _records(tree: ast.AST) -> Iterator[ast.Call]:
    """Each call that writes to the log from INFO up."""
    for node in _nodes(tree):
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
@every([name for name in PATHS if name != "hooks._logs.log"])
def test_no_record_from_info_up_formats_an_exception_or_a_reason(module: str) -> None:
    caught = {
        node.name
        for node in _nodes(_tree(module))
        if isinstance(node, ast.ExceptHandler) and node.name
    }
    for call in _records(_tree(module)):
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


# ── the hooks of pre-commit ─────────────────────────────────────────────────────────────────


def test_the_hook_for_generated_files_fires_on_what_they_are_made_from_and_on_themselves() -> None:
    config = (REPOSITORY / ".pre-commit-config.yaml").read_text()
    pattern = re.search(r"- id: generated\n(?:.*\n)*?        files: (.*)\n", config)
    assert pattern is not None
    script = (REPOSITORY / "scripts" / "dev" / "generate.py").read_text()
    pages = [f"docs/{page}" for page in re.findall(r'"docs" / "(\w+\.md)"', script)]
    images = [f"docs/images/{name}" for name in re.findall(r'"images" / "(\w+\.svg)"', script)]
    sources = ["_hooks/points.py", "_hooks/registration.py", "_hooks/typed.pyi", "errors.py"]
    paths = [*pages, *images, *(f"src/hookline/{name}" for name in sources)]
    paths += ["scripts/dev/generate.py", "tests/providers/_habits.py"]
    assert pages == ["docs/hooks.md"]
    assert [path for path in paths if not (REPOSITORY / path).exists()] == []
    assert [path for path in paths if not re.match(pattern[1], path)] == []
    assert not re.match(pattern[1], "README.md")
