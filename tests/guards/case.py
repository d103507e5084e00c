"""One cell of the matrix of guards: a road to `bash`, and agents with a guard of one kind.

A road is a function of a `Case`. It lets a model ask for `bash`, so that the command BAD would run
at the end if nothing refused it. A guard holds if BAD did not run.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import ExitStack, suppress
from contextvars import ContextVar
from typing import Any, Final

from hookline import (
    Agent,
    Approve,
    Ask,
    Deny,
    Tool,
    define_hook,
    global_bus,
)
from hookline.errors import HooklineError, ToolDenied
from hookline.hooks import allow_tools, approve, deny_commands, pin_tools
from hookline.testing import ScriptedModel, call

GOOD: Final = "ls"
BAD: Final = "rm -rf /"
LAST: Final = -1_000_000

HELD, RAN = "held", "ran"
BROKEN: ContextVar[bool] = ContextVar("broken", default=False)
"""Whether the guards of one's own raise an exception."""


def denies(ctx: Any) -> Deny | None:
    if BROKEN.get():
        raise ValueError("the check is broken")
    bad = ctx.call.name.endswith("bash") and ctx.call.arguments.get("command") == BAD
    return Deny("not this one") if bad else None


async def denies_around(ctx: Any, proceed: Any) -> Any:
    if denies(ctx) is not None:
        raise ToolDenied("not this one")
    return await proceed()


def own(**options: Any) -> Any:
    return define_hook("preToolCall", denies, name="guard", **options)


# Where each kind of guard is registered, and how it is made. "none" has no guard, and shows that
# the call runs on each road if nothing refuses it.
NONE: Final = "none"
KINDS: Final[dict[str, tuple[str, Callable[[], Any]]]] = {
    "deny_commands": ("declared", lambda: deny_commands("rm -rf")),
    "allow_tools": ("declared", lambda: allow_tools("sub*", "transfer*", "other", "ask")),
    "pin_tools": ("declared", lambda: pin_tools({}, "*bash")),
    "approve": ("declared", lambda: approve("*bash")),
    "required": ("declared", lambda: own(required=True)),
    "declared": ("declared", lambda: own(on_error="deny")),
    "add_hook": ("added", lambda: own(guard=True)),
    "add_hook, last": ("added", lambda: own(guard=True, priority=LAST)),
    "tools=": ("added", lambda: own(guard=True, tools=["bash"])),
    "inherit=True": ("added", lambda: own(guard=True, inherit=True)),
    "global": ("global", lambda: own(guard=True)),
    "of the chat": ("chat", lambda: own(guard=True)),
    "wrapper": ("added", lambda: define_hook("aroundToolCall", denies_around)),
}


def bash_call(command: str = BAD, name: str = "bash") -> Any:
    return call(name, command=command)


class Case:
    """One cell: agents with this kind of guard, and the commands that ran."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.ran: list[str] = []
        self.stack = ExitStack()
        self.place, make = KINDS.get(kind, ("none", tuple))
        self.hooks: Any = make()
        self.keywords: dict[str, Any] = {}  # of each chat
        self.bash = self.tool()

    def tool(self, name: str = "bash", **options: Any) -> Any:
        async def bash(command: str) -> str:
            self.ran.append(command)
            return f"ran {command}"

        return Tool(bash, name=name, **options)

    def bare(self, *turns: Any, **options: Any) -> Agent[Any]:
        """An agent without the guard."""
        options.setdefault("tools", [self.bash])
        options.setdefault("model", ScriptedModel(*(turns or (bash_call(),)), *["done"] * 4))
        return Agent(**options)

    def agent(self, *turns: Any, **options: Any) -> Agent[Any]:
        """An agent with the guard."""
        if self.kind == NONE:
            return self.bare(*turns, **options)
        if self.place == "declared":
            options["hooks"] = [self.hooks]
        agent = self.bare(*turns, **options)
        if self.place != "declared":
            self.tighten(agent)
        return agent

    def tighten(self, agent: Agent[Any]) -> None:
        """Add the guard now."""
        if self.kind == NONE:
            return
        if self.place == "chat":
            self.keywords = {"hooks": [self.hooks]}
            return
        bus = global_bus if self.place == "global" else agent.bus
        made: list[Any] = [self.hooks] if not isinstance(self.hooks, tuple) else [*self.hooks]
        for hook in made:
            options = hook.options
            more = {"guard": True} if hook.point == "preToolCall" else {}
            remove = bus.add_hook(
                hook.point, hook.fn, priority=options.priority, tools=options.tools,
                on_error=options.on_error, inherit=options.inherit, **more,
            )  # fmt: skip
            if self.place == "global":
                self.stack.callback(remove)

    async def chat(self, agent: Agent[Any], **options: Any) -> Any:
        options = {**self.keywords, **options}
        if "only_hooks" in options:
            options.pop("hooks", None)
        return await agent.chat("go", **options)

    async def stream(self, agent: Agent[Any], **options: Any) -> None:
        async with agent.chat_stream("go", **{**self.keywords, **options}) as stream:
            async for _ in stream:
                pass


def asks(agent: Agent[Any]) -> None:
    agent.add_hook("preToolCall", lambda ctx: Ask("May it?") if ctx.call.name == "bash" else None)


APPROVED = Approve()
EDITED = Approve(arguments={"command": BAD})


# ── the cells ───────────────────────────────────────────────────────────────────────────────

Road = Callable[[Case], Awaitable[Any]]
ROADS: Final[dict[str, Road]] = {}


def road(name: str) -> Callable[[Road], Road]:
    def add(fn: Road) -> Road:
        ROADS[name] = fn
        return fn

    return add


async def passage(kind: str, name: str) -> str:
    """Whether this kind of guard held on this road."""
    case = Case(kind)
    # A guard may end the chat with an error; what counts is whether the command ran.
    with case.stack, suppress(HooklineError):
        await ROADS[name](case)
    return RAN if BAD in case.ran else HELD
