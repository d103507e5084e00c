"""The guard of a workspace: a hook that decides about each call of its tools before it runs.

It refuses, asks, or lets a call run, by the rules and then by the mode. It is a guard of hookline:
no chat can leave it out, sub-agents inherit it, a call is denied if it fails, and it is asked again
immediately before the tool begins, if approvers or wrappers have changed the call meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Final, Literal

from hookline import Ask, Deny, HookDef, Tool, ToolFailure, define_hook
from hookline.errors import ToolArgumentsError, ToolCallError, ToolDenied
from hookline.points import PreToolCall
from hookline.workspace._commands.rules import Rules, Verdict, is_rule
from hookline.workspace._errors import MissingError, WorkspaceClosedError
from hookline.workspace._files.access import Access
from hookline.workspace._sandbox.commands import Commands
from hookline.workspace._tools.file_change import check, plan_change
from hookline.workspace._tools.seen_files import note_asked
from hookline.workspace._tools.skills import only_rules

Mode = Literal["read", "ask", "edits"]
"""What runs without a rule: only reading; reading, and the rest after an approval; or everything
that stays in the workspace."""
PRIORITY: Final = 200
_READS: Final = ("read", "list", "glob", "grep")
_WRITES: Final = ("write", "edit")
_Answer = Ask | Deny | ToolFailure | None


class OwnTools:
    """The tools of one workspace. A sub-agent may have other tools with the same names."""

    def __init__(self, tools: Mapping[str, Tool[Any, Any]]) -> None:
        self._tools = tools
        for tool in tools.values():
            function: Any = tool.fn
            function.workspace = self

    def original(self, tool: Tool[Any, Any]) -> Tool[Any, Any] | None:
        """Return the workspace's tool that this is, or of which it is a copy; None for others."""
        own = self._tools.get(tool.name)
        is_of_another = getattr(tool.fn, "workspace", self) is not self
        return None if own is None or is_of_another or tool.parameters != own.parameters else own


def guard_hook(
    name: str, decide: Callable[[PreToolCall[Any]], Awaitable[Any]], tools: Iterable[str]
) -> HookDef:
    """Make the hook of a guard for these tools."""
    return define_hook(
        "preToolCall", decide, name=name, priority=PRIORITY, on_error="deny", tools=list(tools)
    )


class Guard:
    """Decides about the calls of a workspace's tools."""

    def __init__(self, access: Access, commands: Commands, mode: Mode, own: OwnTools) -> None:
        self._own = own
        self._access = access
        self._commands = commands
        self._mode: Mode = mode

    async def decide(self, ctx: PreToolCall[Any]) -> _Answer:
        """Refuse the call, ask about it, or let it run."""
        tool = self._own.original(ctx.tool)
        if tool is None:
            return None
        try:
            arguments = tool.bind(dict(ctx.call.arguments))
        except ToolArgumentsError:
            return None  # the call does not run
        name = ctx.call.name
        try:
            names = await self._names(name, arguments)
            only = only_rules(ctx.run)
            if only is not None and name not in ("skill", "plan"):
                rules = Rules(allow=[text for text in only if is_rule(text)])
                if self._verdict(rules, name, arguments, names) is None:
                    tools = ", ".join(only) or "no tool"
                    return Deny(f"the skill of this chat allows only {tools}")
            verdict = self._verdict(self._access.rules, name, arguments, names)
            if name == "bash":
                return await self._command(arguments, verdict)
            if name in _WRITES:
                return await self._change(ctx, arguments, names, verdict)
            return _answer(verdict, name, names)
        except (ToolDenied, WorkspaceClosedError) as exc:
            return Deny(str(exc))
        except MissingError:
            return (
                None if name in _READS else ToolFailure("the file does not exist; list the folder")
            )
        except ToolCallError as exc:
            return ToolFailure.of(exc)

    async def _names(self, tool: str, arguments: dict[str, Any]) -> tuple[str, ...]:
        """The names of the file that a call is about."""
        if tool not in (*_READS, *_WRITES):
            return ()
        path = arguments.get("path", ".")
        if tool == "read" and path.startswith("output:"):
            return ()
        return await asyncio.to_thread(self._access.names, path)

    def _verdict(
        self, rules: Rules, tool: str, arguments: dict[str, Any], names: tuple[str, ...]
    ) -> Verdict | None:
        """Say what these rules want of a call."""
        if tool == "bash":
            confines = self._commands.sandbox.confines
            return rules.for_command(arguments["command"], confined=confines)
        if tool in _WRITES:
            return rules.for_paths("edit", names)
        return rules.for_paths("read", names) if tool in _READS else rules.for_tool(tool)

    async def _command(self, arguments: dict[str, Any], verdict: Verdict | None) -> _Answer:
        line, cwd = arguments["command"], arguments.get("cwd", ".")
        confines = self._commands.sandbox.confines
        if verdict is not None and verdict.kind == "deny":
            return Deny(f"{verdict.rule} is denied; continue without this command")
        problem = await self._commands.check()
        if problem is not None:
            return ToolFailure(
                f"commands cannot run: {problem}; continue without commands", type="NoSandboxError"
            )
        if verdict is not None and verdict.kind == "allow":
            return None
        if verdict is None and self._mode == "edits" and confines:
            return None
        place = "in the sandbox" if confines else "WITHOUT A SANDBOX"
        details = {"kind": "command", "text": line, "cwd": cwd, "confined": confines}
        return Ask(f"Run this command {place}?", details=details)

    async def _change(
        self,
        ctx: PreToolCall[Any],
        arguments: dict[str, Any],
        names: tuple[str, ...],
        verdict: Verdict | None,
    ) -> _Answer:
        if verdict is not None and verdict.kind == "deny":
            return Deny(f"{names[-1]!r} must not be changed ({verdict.rule}); leave it as it is")
        kind = "ask" if verdict is None and self._mode == "ask" else "allow"
        if (verdict.kind if verdict is not None else kind) == "allow":
            return None
        if ctx.again:  # the question alone matters, and it has been asked
            return Ask(f"Change {names[-1]}?")
        content = arguments["text" if ctx.call.name == "write" else "edits"]
        change = await asyncio.to_thread(plan_change, self._access, arguments["path"], content)
        check(ctx.run, change)
        self._access.may_write(change.path)
        note_asked(ctx.run, change.before)
        verb = "Create" if change.old is None else "Change"
        details = {"kind": "diff", "path": change.path, "text": change.text}
        return Ask(f"{verb} {change.path}?", details=details)


def _answer(verdict: Verdict | None, name: str, names: tuple[str, ...]) -> Ask | Deny | None:
    """The answer to a verdict about a tool that changes nothing."""
    target = f" {names[-1]}" if names else ""
    if verdict is None or verdict.kind == "allow":
        return None
    if verdict.kind == "deny":
        return Deny(f"{name}{target} is denied ({verdict.rule}); continue without it")
    return Ask(f"{name}{target}?", details={"kind": "path", "text": names[-1] if names else name})
