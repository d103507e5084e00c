"""`Workspaces`: a folder for each conversation, user or team, behind the tools of one agent.

The tools and the guard of the agent find the workspace of a call by its run, and pass the call on.
No text of a client becomes part of a path.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

from hookline import HookDef, Run, Scope, Tool
from hookline.errors import UsageError
from hookline.points import PreToolCall, check_number
from hookline.workspace._guard import OwnTools, guard_hook
from hookline.workspace._tools.offload import offload
from hookline.workspace._workspace import Workspace


def by_conversation(run: Run[Any]) -> str:
    """Return the id of the conversation, or that of the chat if it has no conversation.

    A sub-agent works for the conversation of the root chat.
    """
    while run.parent is not None:
        run = run.parent
    return run.conversation_id or run.chat_id


class Workspaces:
    """Gives each key a workspace of its own: `Agent(model, plugins=[Workspaces("/srv/work")])`.

    Raises UsageError for options that `Workspace` refuses, and for a key that is not a text.

    Args:
        folder: The folder in which the folders are made.
        key: A function that takes the run and returns whose workspace it is. By default, each
            conversation has its own.
        limit: The number of workspaces that stay open while nobody uses them.
        options: The options of each `Workspace`, except `path` and `state`.
    """

    name = "workspaces"
    """The name of the plugin, and of its scope."""

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        key: Callable[[Run[Any]], str] = by_conversation,
        limit: int = 100,
        **options: Any,
    ) -> None:
        check_number("limit", limit, whole=True)
        if options.keys() & {"path", "state"}:
            raise UsageError(
                f"Workspaces({min(options.keys() & {'path', 'state'})}=…) is chosen for each key; "
                "leave it out"
            )
        self._folder = Path(folder)
        self._key = key
        self._limit = limit
        self._options = options
        self._open: dict[str, Workspace] = {}
        self._users: dict[str, int] = {}
        self._pattern = self._workspace("pattern")  # its tools are described, and never run
        tools = [self._tool(tool) for tool in self._pattern.tools_by_name.values()]
        self.tools_by_name: dict[str, Tool[Any, Any]] = {tool.name: tool for tool in tools}
        """The tools, by their names."""
        self._own = OwnTools(self.tools_by_name)
        self.hooks: tuple[HookDef, ...] = (guard_hook(self.name, self._decide, self.tools_by_name),)
        """The guard."""
        self.scopes = (
            Scope(self.name, tools=tools, context=self._pattern.context, title="Workspace"),
        )
        """The scope with the tools."""

    def of(self, run: Run[Any]) -> Workspace:
        """Return the workspace of a run, which is opened if it is not open."""
        return self._of(_name(self._key(run)))

    offload = offload
    """Put large results of other tools aside, behind handles that `read` pages."""

    async def cut(self, run: Run[Any], text: str, over: int) -> str:
        """Put a text of more than `over` characters aside in the workspace of a run."""
        async with self._use(run) as workspace:
            return await workspace.cut(run, text, over)

    async def aclose(self) -> None:
        """Close all workspaces."""
        await self._pattern.aclose()
        while self._open:
            _, workspace = self._open.popitem()
            await workspace.aclose()

    def _workspace(self, name: str) -> Workspace:
        root = self._folder / name / "files"
        root.mkdir(parents=True, exist_ok=True, mode=0o700)
        options: dict[str, Any] = {**self._options, "state": self._folder / name / "state"}
        return Workspace(root, **options)

    def _of(self, name: str) -> Workspace:
        workspace = self._open.pop(name, None) or self._workspace(name)
        self._open[name] = workspace  # the latest is the last
        return workspace

    @asynccontextmanager
    async def _use(self, run: Run[Any]) -> AsyncGenerator[Workspace]:
        """Keep the workspace of a run open; close others that nobody uses."""
        name = _name(self._key(run))
        self._users[name] = self._users.get(name, 0) + 1
        try:
            yield self._of(name)
        finally:
            self._users[name] -= 1
            if not self._users[name]:
                del self._users[name]
            idle = [name for name in self._open if name not in self._users]
            for name in idle[: max(len(idle) - self._limit, 0)]:  # the least recently used
                await self._open.pop(name).aclose()

    def _tool(self, tool: Tool[Any, Any]) -> Tool[Any, Any]:
        """Make a tool that passes its calls on to the workspace of the run."""

        async def pass_on(run: Run[Any], arguments: dict[str, Any]) -> Any:
            async with self._use(run) as workspace:
                return await workspace.call(tool.name, run, arguments)

        async def ran(run: Run[Any]) -> Any:
            async with self._use(run) as workspace:
                check = workspace.tools_by_name[tool.name].check
                assert check is not None
                return check.fn(run)

        return Tool.from_schema(
            tool.name,
            tool.description,
            tool.parameters,
            pass_on,
            validate=False,
            parallel=tool.parallel,
            idempotent=tool.idempotent,
            timeout=tool.timeout,
            enabled=tool.enabled,
            check=None if tool.check is None else ran,
        )

    async def _decide(self, ctx: PreToolCall[Any]) -> Any:
        if self._own.original(ctx.tool) is None:
            return None
        async with self._use(ctx.run) as workspace:
            own = workspace.tools_by_name[ctx.call.name]
            return await workspace.decide(ctx.replace(tool=own))


_DIGITS: Final = 32


def _name(key: Any) -> str:
    """The name of a folder, which no client can choose."""
    if not isinstance(key, str) or not key:
        raise UsageError(f"key= of Workspaces returned {key!r}; return a text that is not empty")
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGITS]
