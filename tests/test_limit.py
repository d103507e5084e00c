"""A public `limit=` is a number of at least 0, wherever it is: the same values are refused."""

import asyncio
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack
from inspect import isawaitable
from pathlib import Path
from typing import Any

import pytest

from hookline import MemoryStore
from hookline.cli import main
from hookline.cli._main import app
from hookline.durable import client
from hookline.errors import UsageError
from hookline.hooks import truncate
from hookline.replay import Report
from hookline.storage import check_page
from hookline.stores import SQLStore
from hookline.testing import expect
from hookline.workspace import Workspaces

ROOT = Path(__file__).parents[1]
AMOUNTS = {"MemoryStore.spend", "SQLStore.spend", "Expectation.cost_below"}  # take fractions, too
PROTOCOLS = {"Store.list", "Ledger.spend"}  # whose methods others write
WRONG = {"negative": -1, "text": "5", "nan": float("nan"), "true": True, "list": [1]}
WRONG_COUNTS = {"fraction": 1.5, "a whole float": 2.0, "none": None, "over a database's": 2**63}


def public_limits() -> set[str]:
    """The public callables with an argument `limit`, without the errors that tell of one."""
    lines = (ROOT / "interface.txt").read_text(encoding="utf-8").splitlines()
    found = [re.match(r"hookline\.([\w.]+)\(.*?\blimit: ", line) for line in lines]
    names = {match[1] for match in found if match and not match[1].startswith("errors.")}
    return {".".join(name.split(".")[-2:]) for name in names}


async def tried(where: str, limit: Any, folder: Path) -> Any:
    async with AsyncExitStack() as stack:
        memory = MemoryStore()
        stored = await stack.enter_async_context(SQLStore(f"sqlite:///{folder}/chats.db"))
        jobs = await stack.enter_async_context(client(f"sqlite:///{folder}/jobs.db"))
        calls: dict[str, Callable[[], Any]] = {
            "MemoryStore.list": lambda: memory.list(limit=limit),
            "MemoryStore.spend": lambda: memory.spend("a", 0, limit=limit),
            "SQLStore.list": lambda: stored.list(limit=limit),
            "SQLStore.spend": lambda: stored.spend("a", 0, limit=limit),
            "storage.check_page": lambda: check_page(limit, 0),
            "Client.list": lambda: jobs.list(limit=limit),
            "Report.table": lambda: Report().table(limit),
            "hooks.truncate": lambda: truncate(limit),
            "Expectation.cost_below": lambda: expect([]).cost_below(limit, {}),
            "Expectation.steps_below": lambda: expect([]).steps_below(limit),
            "workspace.Workspaces": lambda: Workspaces(folder / "all", limit=limit),
        }
        value = calls[where]()
        return await value if isawaitable(value) else value


LIMITS = sorted(public_limits() - PROTOCOLS)


def test_the_interface_lists_the_limits() -> None:
    assert {*PROTOCOLS, *AMOUNTS, "SQLStore.list", "Client.list"} <= public_limits()


@pytest.mark.parametrize("value", [*WRONG, *WRONG_COUNTS])
@pytest.mark.parametrize("where", LIMITS)
def test_every_public_limit_refuses_the_same_values(where: str, value: str, tmp_path: Path) -> None:
    if where in AMOUNTS and value in WRONG_COUNTS:
        return
    limit = {**WRONG, **WRONG_COUNTS}[value]
    with pytest.raises(UsageError, match=r"limit=.* must be"):
        asyncio.run(tried(where, limit, tmp_path))


@pytest.mark.parametrize("where", ["MemoryStore.list", "SQLStore.list", "Client.list"])
@pytest.mark.parametrize("limit", [0, 1, 2**63 - 1])
def test_a_list_takes_every_number_from_0(where: str, limit: int, tmp_path: Path) -> None:
    assert asyncio.run(tried(where, limit, tmp_path)) == ()


@pytest.mark.parametrize("offset", [-1, "5", 1.5, None])
def test_the_offset_of_a_page_is_checked_likewise(offset: Any) -> None:
    with pytest.raises(UsageError, match=r"offset=.* must be a whole number"):
        asyncio.run(MemoryStore().list(offset=offset))


def commands(group: Any, words: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The commands with an option --limit."""
    for name in group:
        if name.startswith("-"):
            continue
        command = group[name]
        yield from commands(command, (*words, name))
        options = command.assemble_argument_collection() if command.default_command else ()
        if any("--limit" in option.names for option in options):
            yield (*words, name)


COMMANDS: dict[tuple[str, ...], list[str]] = {
    ("durable", "ls"): ["sqlite:///jobs.db"],
    ("replay",): ["sqlite:///chats.db", "their_agent:agent", "--hook", "their_agent:nothing"],
}
AGENT = """
from hookline import Agent, define_hook
from hookline.testing import ScriptedModel
agent = Agent(ScriptedModel("ok"))
nothing = define_hook("preToolCall", lambda ctx: None)
"""


def test_the_commands_with_a_limit_are_known() -> None:
    assert set(commands(app)) == set(COMMANDS)


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_the_command_line_refuses_them_too(
    words: tuple[str, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "their_agent.py").write_text(AGENT, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    for limit in ("-1", "1.5", "five", str(2**63)):
        assert main([*words, *COMMANDS[words], "--limit", limit]) == 2
        assert f"--limit={limit}" in capsys.readouterr().err.replace("'", "")
    main([*words, *COMMANDS[words], "--limit", "0"])  # nothing is stored here
    assert "--limit" not in capsys.readouterr().err
