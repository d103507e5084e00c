"""`Workspace`: a directory, the tools that work in it, and the guard that watches over them."""

from __future__ import annotations

import asyncio
import hashlib
import os
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, Final, Literal, Self, get_args

from hookline import HookDef, Run, Scope, Tool
from hookline.errors import UsageError
from hookline.points import PreToolCall
from hookline.workspace._commands.rules import Rules
from hookline.workspace._files.access import PROTECTED, Access
from hookline.workspace._files.root import Root
from hookline.workspace._guard import Guard, Mode, OwnTools, guard_hook
from hookline.workspace._sandbox.bwrap import Bwrap
from hookline.workspace._sandbox.commands import Commands
from hookline.workspace._sandbox.protocol import CommandLimits, Sandbox
from hookline.workspace._sandbox.unconfined import Unconfined
from hookline.workspace._snapshots import Snapshot, Snapshots
from hookline.workspace._tools.bash import bash_tool
from hookline.workspace._tools.offload import offload
from hookline.workspace._tools.outputs import Outputs
from hookline.workspace._tools.plan import plan_tool
from hookline.workspace._tools.read import reading_tools
from hookline.workspace._tools.search import searching_tools
from hookline.workspace._tools.skills import Skills
from hookline.workspace._tools.write import Writer, writing_tools

TOOLS: Final = ("read", "list", "glob", "grep", "write", "edit", "bash", "plan", "skill")
"""The names of the tools, in the order in which the model sees them."""


class Workspace:
    """A directory that an agent works in: `Agent(model, plugins=[Workspace(".")])`.

    Its tools read, search and change files beneath the directory, and run commands in a sandbox.
    Raises UsageError for a directory that cannot be a workspace: /, the home folder, or one that
    contains `state`.

    Args:
        path: The directory.
        mode: What runs without a rule. "read": the tools that change something are not offered.
            "ask": changes and commands need an approval. "edits": changes run, and commands if the
            sandbox confines them.
        rules: Rules about files and commands, which go before the mode.
        sandbox: What runs commands. By default, bubblewrap. "none" runs them with the rights of
            this program, each after an approval; it needs `unsafe=True`.
        limits: The limits of each command.
        tools: The names of the tools to offer; all by default.
        skills: Folders of skills.
        protect: Files that nobody may change from here, as patterns.
        env: Environment variables of commands.
        state: The folder for outputs and snapshots. By default, a folder for this directory in
            `$XDG_STATE_HOME/hookline`.
        at: The absolute path that commands and the model see. With None, it is the directory's own
            path; programs that contain this path, such as a virtual environment, then work.
        unsafe: Whether `sandbox="none"` is meant.
    """

    name = "workspace"
    """The name of the plugin, and of its scope."""

    def __init__(
        self,
        path: str | PathLike[str],
        *,
        mode: Mode = "ask",
        rules: Rules | None = None,
        sandbox: Sandbox | Literal["auto", "none"] = "auto",
        limits: CommandLimits | None = None,
        tools: Sequence[str] = TOOLS,
        skills: Iterable[str | PathLike[str]] = (),
        protect: Iterable[str] = PROTECTED,
        env: Mapping[str, str] | None = None,
        state: str | PathLike[str] | None = None,
        at: str | None = "/workspace",
        unsafe: bool = False,
    ) -> None:
        _check(path, mode, tools, at)
        self.mode: Mode = mode
        """What runs without a rule."""
        self._root = Root(path, at)
        self._state = _state_of(self._root.path, state)
        access = Access(self._root, rules or Rules(), tuple(protect))
        self._access = access
        self._commands = Commands(
            _sandbox_of(sandbox, unsafe=unsafe), access, limits or CommandLimits(), env or {}
        )
        self._snapshots = Snapshots(access, self._commands, self._state)
        self._skills = Skills(skills, access.rules)
        outputs = self._outputs = Outputs(self._state / "outputs")
        writer = Writer(access, self._state / "calls", self._snapshots.before_change)
        all_tools = [
            *reading_tools(access, outputs),
            *searching_tools(access, self._commands, outputs),
            *writing_tools(writer, self._changes),
            bash_tool(access, self._commands, outputs, self._snapshots, self._changes),
            plan_tool(),
            *([self._skills.tool(outputs)] if self._skills else []),
        ]
        self.tools_by_name: dict[str, Tool[Any, Any]] = {
            tool.name: tool for tool in all_tools if tool.name in tools
        }
        """The tools, by their names."""
        self._guard = Guard(access, self._commands, mode, OwnTools(self.tools_by_name))
        self.hooks: tuple[HookDef, ...] = (
            guard_hook(self.name, self._guard.decide, self.tools_by_name),
        )
        """The guard."""
        own = self.tools_by_name.values()
        self.scopes: tuple[Scope, ...] = (
            Scope(self.name, tools=own, context=self.context, title="Workspace"),
        )
        """The scope with the tools, and what the model is told about the workspace."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """End everything, and close the directory."""
        await self._commands.sandbox.aclose()
        self._root.close()

    async def check(self) -> str | None:
        """Return None if commands can run, else the reason and what to change."""
        return await self._commands.check()

    @property
    def sandbox(self) -> Sandbox:
        """What runs commands."""
        return self._commands.sandbox

    @property
    def can_search(self) -> bool:
        """Whether ripgrep is installed, for `glob`, `grep` and snapshots."""
        return self._commands.can_search

    @property
    def rules(self) -> Rules:
        """What is allowed, needs an approval, or is denied, before the mode decides."""
        return self._access.rules

    # ── snapshots ───────────────────────────────────────────────────────────────────────────

    async def snapshot(self, label: str = "") -> str:
        """Take a snapshot of all files that are not ignored; returns its id."""
        return (await self._snapshots.take(label)).id

    async def snapshots(self) -> list[Snapshot]:
        """Return the snapshots, the oldest first."""
        return await self._snapshots.all()

    async def restore(self, id: str) -> str:
        """Put the files of a snapshot back; returns the id of a snapshot of what was there."""
        return (await self._snapshots.restore(id)).id

    async def diff(self, since: str) -> str:
        """Return what has changed since a snapshot."""
        return await self._snapshots.diff(since)

    offload = offload
    """Put large results of other tools aside, behind handles that `read` pages."""

    # ── the model ───────────────────────────────────────────────────────────────────────────

    def _changes(self) -> bool:
        """Whether the tools that change something are offered."""
        return self.mode != "read"

    async def call(self, name: str, run: Run[Any], arguments: Mapping[str, Any]) -> Any:
        """Run a tool for a call that the guard has seen; for `Workspaces`."""
        tool = self.tools_by_name[name]
        injected = tool.signature.injected
        values = tool.bind(dict(arguments))
        return await tool.fn(**values, **({} if injected is None else {injected: run}))

    async def decide(self, ctx: PreToolCall[Any]) -> Any:
        """Return what the guard says about a call; for `Workspaces`."""
        return await self._guard.decide(ctx)

    async def cut(self, run: Run[Any], text: str, over: int) -> str:
        """Put a text of more than `over` characters aside; return its ends and its handle."""
        return await asyncio.to_thread(self._outputs.cut, text, over)

    def context(self, run: Run[Any]) -> str:
        """Return the text for the model about the workspace."""
        lines = [
            f"You work in the folder {self._root.at}. Paths are relative to it.",
            "Read a file before you change it. Use edit for parts of files, grep and glob to find "
            "things, and bash to run programs and tests.",
        ]
        if self.mode == "read":
            lines[1] = "You can read and search files; you cannot change anything."
        elif self._commands.sandbox.confines:
            lines.append("Commands run in a sandbox without network.")
        if self._skills:
            lines.append(self._skills.catalogue())
        return "\n".join(lines)


def _check(path: str | PathLike[str], mode: Any, tools: Sequence[str], at: str | None) -> None:
    if not hasattr(os, "O_DIRECTORY"):
        raise UsageError(f"a workspace, as of {str(path)!r}, needs Linux or macOS; use a container")
    real = os.path.realpath(path)
    if real == "/" or real == os.path.realpath(os.path.expanduser("~")):
        raise UsageError(
            f"the workspace {str(path)!r} is the whole machine or your home; pass the folder of a "
            "project"
        )
    if mode not in get_args(Mode):
        raise UsageError(f"Workspace(mode={mode!r}) must be 'read', 'ask' or 'edits'")
    unknown = [name for name in tools if name not in TOOLS]
    if unknown or isinstance(tools, str):
        raise UsageError(f"Workspace(tools={tools!r}) must be a list of: {', '.join(TOOLS)}")
    if at is not None and (not at.startswith("/") or os.path.normpath(at) != at or at == "/"):
        raise UsageError(f"Workspace(at={at!r}) must be an absolute path, such as '/workspace'")


def _sandbox_of(sandbox: Any, *, unsafe: bool) -> Sandbox:
    if sandbox == "auto":
        return Bwrap()
    if sandbox == "none":
        if not unsafe:
            raise UsageError(
                f"sandbox={sandbox!r} runs commands with all rights of this program; pass "
                "unsafe=True too if the machine can be thrown away"
            )
        return Unconfined()
    if not isinstance(sandbox, Sandbox):
        raise UsageError(f"Workspace(sandbox={sandbox!r}) must be a Sandbox, 'auto' or 'none'")
    return sandbox


def _state_of(root: str, state: str | PathLike[str] | None) -> Path:
    """The folder for what is kept about a workspace, which commands must not reach."""
    if state is None:
        home = os.environ.get("XDG_STATE_HOME") or os.path.join(
            os.path.expanduser("~"), ".local", "state"
        )
        name = hashlib.sha256(root.encode()).hexdigest()[:32]
        path = Path(home, "hookline", "workspaces", name)
        if not os.access(_existing(path), os.W_OK):
            path = Path(tempfile.gettempdir(), f"hookline-{os.getuid()}", name)
    else:
        path = Path(state)
    real = os.path.realpath(path)
    if real == root or real.startswith(f"{root}/"):
        raise UsageError(
            f"the state {real!r} is in the workspace, where commands could change it; pass another "
            "folder as state="
        )
    return Path(real)


def _existing(path: Path) -> Path:
    """The part of a path that exists."""
    while not path.exists():
        path = path.parent
    return path
